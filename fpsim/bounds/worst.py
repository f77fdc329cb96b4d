"""Proved bounds of abs(error), each a function of a case.

Every one holds for each output by itself. `NotApplicableError` says which assumption a case does not meet.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.arithmetic import Arithmetic, Rounding
from fpsim.bounds.cases import Case
from fpsim.bounds.formulas import (
    dot2_bound,
    gamma_bound,
    height_bound,
    neumaier_bound,
    pairwise_compensated_bound,
    path_bound,
    real_sum_bound,
    sum_bound,
    underflow_error,
)
from fpsim.bounds.programs import SLACK
from fpsim.programs import LEAF, Program

Floats = NDArray[np.float64]


def _scaled(case: Case, relative: Any, extra: Any = 0.0) -> Floats:
    with np.errstate(all="ignore"):
        out = (relative * case.magnitude + extra + _underflow(case)) * SLACK
    return np.where(case.magnitude == 0, 0.0, np.where(np.isnan(out), math.inf, out))


def _underflow(case: Case) -> float:
    """Products round to multiples of the smallest subnormal number; sums are exact there."""
    if case.op == "sum":
        return 0.0
    rounding = Rounding(case.arithmetic.product or case.rounding.format, case.rounding.mode)
    return case.n * underflow_error(rounding) * (1.0 + real_sum_bound(case.n, case.v))


def _paths(case: Case) -> int:
    return case.n if case.op != "sum" else max(case.n - 1, 0)


def gamma(case: Case, /) -> Floats:
    """gamma_(n-1) A for a sum, gamma_n A for a dot product; any order, n u < 1.

    One format, to nearest, no overflow. Wilkinson (1963); Higham, *Accuracy and Stability* (2002), (4.4).
    """
    case.require_one_format()
    case.require_no_overflow()
    relative = gamma_bound(_paths(case), case.u)
    case.require(math.isfinite(relative), f"needs n u < 1, and n u is {_paths(case) * case.u:.3g}")
    return _scaled(case, relative)


def n_roundings(case: Case, /) -> Floats:
    """(n - 1) u/(1 + u) A for a sum, less than n u A for a dot product; any order, any n.

    One format, to nearest, gradual underflow, no overflow. Jeannerod & Rump, Math. Comp. 87 (2018) 803-819, theorems 4.1
    and 4.2; for fused products see `real_sum_bound`.
    """
    case.require_one_format()
    case.require_no_overflow()
    if case.op == "sum":
        return _scaled(case, sum_bound(case.n, case.v))
    return _scaled(case, case.v + (1.0 + case.v) * real_sum_bound(case.n, case.v) if not _all_fused(case) else
                   real_sum_bound(case.n, case.v))  # fmt: skip


def _all_fused(case: Case) -> bool:
    return all(a.fma for program, _ in case.programs for a in program.arithmetics)


def height(case: Case, /) -> Floats:
    """((1 + v)**h - 1) A, h the most roundings on a path from a leaf to the root; no restriction.

    One format, to nearest, no overflow. Higham (2002), section 4.2, with v = u/(1 + u) for u.
    """
    case.require_one_format()
    case.require_no_overflow()
    return _scaled(case, np.vectorize(lambda h: path_bound(h, case.v), otypes=[float])(case.roundings))


def height_linear(case: Case, /) -> Floats:
    """H u A, only for a height of at most u**(-1/2) - 1: beyond it is false.

    Sums of one format, to nearest. Lange & Rump, Math. Comp. 88 (2019) 349-368.
    """
    case.require_one_format()
    case.require_no_overflow()
    case.require(case.op == "sum", "proved for sums of numbers of the format; products are rounded, or real, numbers")
    top = float(case.roundings.max(initial=0))
    relative = height_bound(int(top), case.u)
    case.require(math.isfinite(relative), f"needs h <= u**(-1/2) - 1 = {case.u**-0.5 - 1:.4g}, and h is {top:.0f}")
    return _scaled(case, case.roundings * case.u)


def depth_weighted(case: Case, /) -> Floats:
    """Sum over the leaves of ((1 + v)**d_i - 1) abs(x_i), d_i the roundings that leaf i passes.

    One format, to nearest, no overflow. Higham (2002), section 4.2.
    """
    case.require_one_format()
    case.require_no_overflow()
    out = np.zeros(case.shape)
    for program, places in case.programs:
        weights = np.expm1(case.leaf_roundings(program) * math.log1p(case.v))
        out[places] = _weighted(case, weights)[places]
    return np.asarray((out * (1.0 + (case.n + 8) * 2.0**-52) + _underflow(case)) * SLACK)


def _weighted(case: Case, weights: Floats) -> Floats:
    """Return the sum of the magnitudes of the terms times a weight of each leaf."""
    with np.errstate(all="ignore"):
        if case.op == "sum":
            from fpsim.emulation import _terms

            view, shape, _ = _terms(
                case.operands.values[0], case.strategy, case.axis, case.operands.data, case.inputs[0]
            )
            return np.asarray(weights @ np.abs(view.astype(np.float64))).reshape(shape)
        a, b = (np.abs(x.astype(np.float64)) for x in case.operands.values)
        return np.asarray(np.matmul(a * weights, b)).reshape(case.shape)


def of_strategy(case: Case, /) -> Floats:
    """Bound of the strategy's own tree and arithmetic, node by node: `fpsim.bounds.bound`.

    Mixed formats, directed rounding, Kahan, Neumaier and Dot2, fused adds, flush-to-zero and rounded operands included:
    (product of (1 + v_k) along the worst path - 1) A, or by the number of terms, and what underflows.
    """
    case.require_no_overflow()
    return case.strategy_bound


def running(case: Case, /) -> Floats:
    """Sum of u_k abs(s_k) over the computed partial sums s_k: Wilkinson's running error bound.

    To nearest u_k is the unit roundoff of node k, else twice that; rounded products count. Higham (2002), (4.3).
    """
    sums = case.partial_sums
    case.require(np.isfinite(sums.largest).all(), "a partial sum is not finite")
    case.require_no_overflow()
    roundings = [rounding for program, _ in case.programs for own in program.arithmetics for rounding in _all(own)]
    single = case.op == "sum" and len(set(roundings)) == 1 and roundings[0].format.includes(case.operands.data)
    # Sums of subnormal numbers of the format are exact.
    underflows = 0.0 if single else sums.roundings * max(map(underflow_error, roundings))
    total = sums.first * (1.0 + (case.n + 8) * 2.0**-51) + underflows + case.operands.conversion
    return np.asarray(total)


def _all(a: Arithmetic) -> list[Rounding]:
    return [a.accumulator, Rounding(a.product or a.accumulator.format, a.accumulator.mode), a.output or a.accumulator]


def half_ulp(case: Case, /) -> Floats:
    """Sum over the inexact nodes of min(ulp(s_k)/2, abs of the smaller operand): the sharpest bound from the data.

    A node whose operands are multiples of its result's ulp is exact. The error is exactly the sum of the local errors
    (Higham (2002), (4.2)). In other modes than to nearest a node counts with an ulp; a fused add with what its alignment
    truncates. The measured rounding of the operands is added.
    """
    case.require(case.account is not None, "compensated and flushing sums have no account of single roundings")
    case.require(np.isfinite(case.account.hard).all(), "partial sums overflow")
    return np.asarray(case.account.hard + case.operands.conversion)


def compensated(case: Case, /) -> Floats:
    """U abs(s) + q A, in the published form: Neumaier's and Dot2's sums, and their trees.

    q = gamma_(n-1)**2 (Neumaier), gamma_n**2 (Dot2: Ogita, Rump & Oishi, SISC 26 (2005) 1955-1988), and for a tree of
    height h with all errors collected (1 + u) theta_(2h) theta_h. To nearest, one format. Kahan's sum has no published bound
    without a remainder: see `of_strategy`, 3 u + O(n u**2).
    """
    kind = case.arithmetic.compensation
    case.require(kind in ("neumaier", "dot2"), "no compensation by collected errors")
    case.require(case.op == "sum" or kind == "dot2", "Neumaier's sum of rounded products has the errors of those")
    case.require(case.rounding.format.includes(case.operands.data), "terms wider than the accumulator")
    case.require(case.arithmetic.product in (None, case.rounding.format), "products of a format of their own")
    case.require(case.rounding.mode.startswith("nearest"), "errors of additions are exact only to nearest")
    case.require(
        not (case.arithmetic.ftz or case.arithmetic.daz) and case.arithmetic.output is None,
        "flushing, or another output format",
    )
    case.require(not np.any(case.operands.conversion), "operands are rounded first")
    case.require_no_overflow()
    for program, _ in case.programs:
        own = all(
            a.compensation == kind and a.accumulator == case.rounding and a.output in (None, a.accumulator)
            for a in program.arithmetics
        )
        case.require(own, "parts with arithmetic of their own")
        serial = len(program.nodes) <= 2 and program.height == max(program.n - 1, 0)
        if not serial:
            case.require(kind == "neumaier" and _same_but_closed(program), "Dot2 has a published bound as a serial sum")
            u, q = pairwise_compensated_bound(program.height, case.v)
        else:
            u, q = (neumaier_bound if case.op == "sum" else dot2_bound)(case.n, case.u)
    extra = 5 * case.n * case.rounding.format.smallest_subnormal if case.op != "sum" else 0.0
    return np.asarray((u * case.value + q * case.magnitude + extra) * SLACK)


def _same_but_closed(program: Program) -> bool:
    """Whether all sums carry their errors up to the root, which alone adds them."""
    closed = [
        int(node) for node, row in enumerate(program.nodes) if program.arithmetics[int(row[3])].output is not None
    ]
    inner = {row[5] for row in program.segments.tolist() if row[5] != LEAF}
    return not any(node in inner for node in closed)


def overflow_possible(case: Case, /) -> NDArray[np.bool]:
    """Return for which outputs a partial sum may overflow, so that no bound holds: unless (1 + theta) A is finite.

    Sufficient for safety only; `PartialSums.largest` has the largest partial sum of one order.
    """
    return np.asarray(~np.isfinite(case.strategy_bound))


WORST = (
    gamma, n_roundings, height, height_linear, depth_weighted, of_strategy, running, half_ulp, compensated,
)  # fmt: skip
