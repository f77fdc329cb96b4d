"""Bounds of the rounding error of a strategy: proved ones, and probabilistic ones.

A bound holds for the order and the arithmetic that the emulators run: mixed formats, directed rounding, flush-to-zero
and compensation included. Where a partial sum might overflow there is no bound, and the answer is infinity.

A is the sum of the magnitudes of the terms, s the exact sum, u the unit roundoff, v the largest relative error of one
rounding; sums of log1p(v) along a path are called growth (see `growth_bound`). Formulas are functions of numbers; bounds
on given data are functions of a `Case`; each has its assumptions and source. `table` shows all that apply to a case
beside the observed error, and takes bounds of your own.
"""

from __future__ import annotations

from fpsim.bounds.cases import Case, NotApplicableError, PartialSums, case
from fpsim.bounds.data import Operands, bound, bound_of, operands, over_outputs, worst_cases
from fpsim.bounds.formulas import (
    accurate_accumulator_bound,
    block_fma_bound,
    compensated_bound,
    dot2_bound,
    fabsum_bound,
    fused_add_error,
    fused_chain_bound,
    gamma_bound,
    growth_bound,
    hallman_ipsen_bound,
    height_bound,
    higham_mary_bound,
    kahan_bound,
    neumaier_bound,
    pairwise_compensated_bound,
    path_bound,
    probability_factor,
    random_data_bound,
    real_sum_bound,
    relative_rounding_error,
    stochastic_azuma_bound,
    stochastic_bound,
    stochastic_variance_bound,
    sum_bound,
    superblock_bound,
    superblock_height,
    uncorrected_bound,
    underflow_error,
)
from fpsim.bounds.probable import (
    difference,
    hallman_ipsen,
    higham_mary,
    random_order,
    random_order_deviation,
    stochastic_rounding,
    ulp_variance,
)
from fpsim.bounds.programs import OPERATIONS, WorstCase, check_operation, classical, worst_case
from fpsim.bounds.tables import ALL, Bound, BoundRow, BoundTable, table
from fpsim.bounds.worst import (
    compensated,
    depth_weighted,
    gamma,
    half_ulp,
    height,
    height_linear,
    n_roundings,
    of_strategy,
    overflow_possible,
    running,
)

__all__ = [
    "ALL", "OPERATIONS", "Bound", "BoundRow", "BoundTable", "Case", "NotApplicableError", "Operands", "PartialSums",
    "WorstCase", "accurate_accumulator_bound", "block_fma_bound", "bound", "bound_of", "case", "check_operation",
    "classical", "compensated", "compensated_bound", "depth_weighted", "difference", "dot2_bound", "fabsum_bound",
    "fused_add_error", "fused_chain_bound", "gamma", "gamma_bound", "growth_bound",
    "half_ulp", "hallman_ipsen", "hallman_ipsen_bound", "height", "height_bound", "height_linear", "higham_mary",
    "higham_mary_bound", "kahan_bound", "n_roundings", "neumaier_bound", "of_strategy", "operands", "over_outputs",
    "overflow_possible", "pairwise_compensated_bound", "path_bound", "probability_factor", "random_data_bound",
    "random_order", "random_order_deviation", "real_sum_bound", "relative_rounding_error", "running",
    "stochastic_azuma_bound", "stochastic_bound", "stochastic_rounding", "stochastic_variance_bound", "sum_bound", "superblock_bound",
    "superblock_height", "table", "ulp_variance", "uncorrected_bound", "underflow_error", "worst_case", "worst_cases",
]  # fmt: skip
