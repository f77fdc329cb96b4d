"""Bounds of the rounding error of a strategy: proved ones, and probabilistic ones.

A bound holds for the order and the arithmetic that the emulators run: mixed formats, directed rounding, flush-to-zero
and compensation included. Where a partial sum might overflow there is no bound, and the answer is infinity.

A is the sum of the magnitudes of the terms, s the exact sum, u the unit roundoff, v the largest relative error of one
rounding; sums of log1p(v) along a path are called growth (see `growth_bound`). Formulas are functions of their own,
each with its assumptions and source; `table` evaluates on given data those that apply, beside the observed error.
"""

from __future__ import annotations

from fpsim.bounds.data import Operands, bound, bound_of, operands, over_outputs, worst_cases
from fpsim.bounds.formulas import (
    compensated_bound,
    fused_add_error,
    growth_bound,
    kahan_bound,
    path_bound,
    real_sum_bound,
    relative_rounding_error,
    sum_bound,
    uncorrected_bound,
    underflow_error,
)
from fpsim.bounds.programs import OPERATIONS, WorstCase, check_operation, classical, worst_case

_check = check_operation

__all__ = [
    "OPERATIONS", "Operands", "WorstCase", "bound", "bound_of", "check_operation", "classical", "compensated_bound",
    "fused_add_error", "growth_bound", "kahan_bound", "operands", "over_outputs", "path_bound", "real_sum_bound",
    "relative_rounding_error", "sum_bound", "uncorrected_bound", "underflow_error", "worst_case", "worst_cases",
]  # fmt: skip
