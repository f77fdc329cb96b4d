"""Whether errors are of a size that rounding can give, and where they are not."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fpsim._candidates import OPERANDS
from fpsim._observed_operation import Operation, accumulator
from fpsim.arithmetic import Rounding
from fpsim.bounds.formulas import relative_rounding_error, underflow_error
from fpsim.formats import Format

if TYPE_CHECKING:
    from fpsim._exact_values import Exact

Doubles = NDArray[np.float64]
#: Probability that rounding alone exceeds the statistical limit somewhere.
DOUBT = 1e-3
_WORST = 16  # outputs with the largest errors that are looked at one by one


@dataclass(frozen=True, eq=False)
class Judgement:
    """The size of one side's errors.

    Attributes
    ----------
    beyond : bool array of the result's shape
        Outputs whose error no order of correctly rounded operations can give.
    bound_ratio : float
        Largest error divided by the worst-case bound of its output; infinite where the bound is zero.
    rms_ratio, max_ratio : float
        Errors divided by the statistical size of the rounding of one long chain: root mean square over sampled outputs,
        and largest.
    limit : float
        What `max_ratio` may be for as many outputs as there are.
    rms_limit : float
        What `rms_ratio` may be.
    """

    beyond: NDArray[np.bool] = field(repr=False)
    bound_ratio: float
    rms_ratio: float
    max_ratio: float
    limit: float
    rms_limit: float

    @property
    def is_within_bound(self) -> bool:
        """Whether every error lies within the worst-case bound."""
        return not self.beyond.any()

    @property
    def has_rounding_size(self) -> bool:
        """Whether the errors are within the bound and as large as rounding makes them."""
        return self.is_within_bound and self.max_ratio <= self.limit and self.rms_ratio <= self.rms_limit


def worst_case(operation: Operation, reference: Exact, result: Format, /) -> Doubles:
    """Return the bound on the absolute error of each output that holds for every order, with or without FMA.

    Notes
    -----
    Jeannerod & Rump, Math. Comp. 87 (2018) 803-819: theorem 4.1 for sums, 4.2 for products, with their underflow; plus
    the rounding of operands wider than the accumulator, and of the result where that is narrower. Zero where every
    partial sum is exact. Terms that are zero count for nothing: adding them rounds nothing.
    """
    form = accumulator(operation.data, result)
    rounding = Rounding(form)
    unit = form.unit_roundoff
    magnitude = np.asarray(reference.magnitude, np.float64)
    product = operation.op != "sum"
    n, v = np.maximum(operation.rounded_terms(), 1), relative_rounding_error(rounding)
    with np.errstate(all="ignore"):
        if product:  # `real_sum_bound` and `sum_bound`, of arrays
            bound = (v + (n - 1) * v * (1 + v)) * magnitude + n * (1 + n * unit) * underflow_error(rounding)
        else:
            bound = (n - 1) * v * magnitude
        if operation.data.precision > form.precision:
            bound = bound + (2 if product else 1) * unit * (1 + 2 * operation.n * unit) * magnitude
        else:
            bound = np.where(operation.exact_in(form, magnitude), 0.0, bound)
        if result.precision < form.precision or result.emin > form.emin:
            bound = bound + (np.abs(reference.round("float64")) + bound) * 2.0**-result.precision
            bound = bound + math.ldexp(0.5, result.emin - result.precision + 1)
    return np.asarray(bound)


def chain_size(operation: Operation, terms: Doubles, result: Format) -> Doubles:
    """Return the statistical size of the rounding error of outputs, from their exact terms (outputs, n).

    Notes
    -----
    The square root of the sum of ulp**2/12 over the roundings of one running sum: forwards, backwards, or in random
    order (expected), whichever is larger. The error of a rounding is taken as uniform over an ulp. Trees and several
    accumulators round smaller partial sums, so that this is an upper limit for the orders in use, not for all orders
    that there are. In random order a partial sum of k of n terms x with sum s has the expected square
    k (n-k)/(n (n-1)) sum(x**2) + k (k-1)/(n (n-1)) s**2, and ulp**2 is 4 u**2 times the square of the number over that
    of its significand, whose inverse square is 0.541 on average (its logarithm taken as uniform).
    """
    form = accumulator(operation.data, result)
    with np.errstate(all="ignore"):
        partial = np.cumsum(terms, axis=1)
        added = terms != 0  # adding zero rounds nothing, nor does the first addition
        several = np.count_nonzero(added, axis=1)
        after_first = added & (np.cumsum(added, axis=1) > 1)
        before_last = added & (np.cumsum(added[:, ::-1], axis=1)[:, ::-1] > 1)
        forward = np.sum(np.where(after_first, _ulp(partial, form), 0) ** 2, axis=1)
        rest = partial[:, -1:] - partial + terms  # from each term to the last
        backward = np.sum(np.where(before_last, _ulp(rest, form), 0) ** 2, axis=1)
        n = np.maximum(several, 2)
        squares = ((n + 1) / 6 - 1 / n) * np.sum(terms**2, axis=1) + (n + 1) / 3 * partial[:, -1] ** 2
        shuffled = 0.541 * 4 * form.unit_roundoff**2 * squares * (several > 1)
        variance = np.maximum(np.maximum(forward, backward), shuffled)
        if operation.op != "sum":
            variance = variance + np.sum(_ulp(terms, form) ** 2, axis=1)
        if result.precision < form.precision:
            variance = variance + _ulp(partial[:, -1], result) ** 2
        if operation.data.precision > form.precision:
            variance = variance + 2 * np.sum(_ulp(terms, form) ** 2, axis=1)
    return np.asarray(np.sqrt(variance / 12))


def judge(
    operation: Operation,
    bound: Doubles,
    values: NDArray[Any],
    reference: Exact,
    result: Format,
    sampled: NDArray[np.int64],
) -> Judgement:
    """Return how large the errors of one side are, beside what rounding gives."""
    error = np.abs(np.asarray(reference.error(values), np.float64))
    beyond = _beyond(error, bound, values, reference, result)
    flat_error, flat_bound = error.reshape(-1), bound.reshape(-1)
    usable = np.isfinite(flat_error)
    with np.errstate(all="ignore"):
        ratio = np.where(flat_error == 0, 0.0, flat_error / flat_bound)
        ratio = np.where(usable, ratio, 0.0)
    order = np.argsort(ratio)[::-1][:_WORST]
    sampled = sampled[usable[sampled]]
    limit = math.sqrt(2 * math.log(2 * max(operation.size, 1) / DOUBT))
    rms_limit = 1 + 3 / math.sqrt(2 * max(len(sampled), 1))
    room = max(1, 4_000_000 // max(operation.n, 1))
    outputs = np.union1d(order[:room], sampled)
    everything = _ratios(operation, flat_error, outputs, result)
    typical = everything[np.searchsorted(outputs, sampled)]
    rms = math.sqrt(float(np.mean(typical**2))) if len(typical) else 0.0
    return Judgement(beyond, float(ratio.max(initial=0.0)), rms, float(everything.max(initial=0.0)), limit, rms_limit)


def _ratios(operation: Operation, error: Doubles, outputs: NDArray[np.int64], result: Format) -> Doubles:
    if not len(outputs):
        return np.zeros(0)
    size = chain_size(operation, operation.terms(outputs), result)
    with np.errstate(all="ignore"):
        return np.where(error[outputs] == 0, 0.0, error[outputs] / size)


def _beyond(error: Doubles, bound: Doubles, values: NDArray[Any], reference: Exact, result: Format) -> NDArray[np.bool]:
    """Tell which outputs rounding cannot explain, infinities and NaN among them."""
    exact = np.asarray(reference.round("float64"))
    observed = np.asarray(values, np.float64)
    special = ~np.isfinite(exact)
    same = np.where(np.isnan(exact), np.isnan(observed), observed == exact)
    with np.errstate(all="ignore"):
        may_overflow = np.asarray(reference.magnitude) * 1.01 >= result.max
        finite = np.isfinite(observed)
        wrong = np.where(finite, error > bound * (1 + 1e-12), ~may_overflow)
        # An infinity or NaN among the terms may turn into the other only where partial sums overflow.
        return np.where(special, ~same & ~(may_overflow & np.isnan(observed)), wrong)


def _ulp(values: Doubles, form: Format) -> Doubles:
    exponent = np.where(values == 0, form.emin, np.frexp(values)[1] - 1)
    return np.asarray(np.ldexp(1.0, np.maximum(exponent, form.emin) - form.precision + 1))


def operands_that_fit(
    operation: Operation, values: NDArray[Any], reference: Exact, result: Format, sampled: NDArray[np.int64]
) -> tuple[list[str], float] | None:
    """Return the reduced formats of operands that make most of the error vanish, and by which factor; else None.

    Only a strong effect counts: at least 4 on 8 or more outputs, at least 16 on fewer.
    """
    error = np.abs(np.asarray(reference.error(values), np.float64)).reshape(-1)[sampled]
    sampled = sampled[np.isfinite(error)]
    error = error[np.isfinite(error)]
    if not len(sampled):
        return None
    observed = np.asarray(values, np.float64).reshape(-1)[sampled]
    remaining: dict[str, float] = {}
    for name, mode in OPERANDS:
        rounded = operation.rounded(name, mode)
        if rounded is None:
            continue
        with np.errstate(all="ignore"):
            left = np.abs(observed - rounded.terms(sampled).sum(axis=1))
        if np.isfinite(left).all():
            remaining[f"{name}{'' if mode == 'nearest-even' else ', ' + mode.replace('-', '_')}"] = _rms(left)
    if not remaining:
        return None
    # What differs only at ties, or only in range, is not told apart; the usual format stands first.
    least = min(remaining.values())
    fitting = [name for name, left in remaining.items() if left <= 1.1 * least]
    floor = _rms(_ulp(observed, result)) / math.sqrt(12)
    factor = _rms(error) / max(least, floor)
    return (fitting, factor) if factor >= (4 if len(sampled) >= 8 else 16) else None


def _rms(values: Doubles) -> float:
    return math.sqrt(float(np.mean(values**2)))


def pattern(wrong: NDArray[np.bool], /) -> str:
    """Return in words which elements of an array are marked."""
    count, total = int(wrong.sum()), wrong.size
    if count == 0:
        return "none"
    if count == total:
        return "every element" if total > 1 else "the only element"
    places = np.argwhere(wrong)
    if count == 1:
        return f"one element, at {_place(places[0])}"
    low, high = places.min(axis=0), places.max(axis=0)
    inside = int(np.prod(high - low + 1))
    if wrong.ndim == 1 and count > 2:
        steps = np.unique(np.diff(places[:, 0]))
        if len(steps) == 1 and steps[0] > 1:
            return f"every {steps[0]}th element from {low[0]} to {high[0]}"
    filling = count >= 0.9 * inside and inside < total
    if filling or (count >= 0.5 * inside and 2 * inside <= total):
        parts = [f"{_axis_name(axis, wrong.ndim)} {_span(a, b)}" for axis, (a, b) in enumerate(zip(low, high, strict=True))
                 if b - a + 1 < wrong.shape[axis]]  # fmt: skip
        return f"{count} elements, {'filling' if filling else 'within'} {', '.join(parts)}"
    if wrong.ndim == 2:
        rows, columns = np.unique(places[:, 0]), np.unique(places[:, 1])
        few_rows = len(rows) <= max(1, wrong.shape[0] // 10) and wrong.shape[0] > 1
        few_columns = len(columns) <= max(1, wrong.shape[1] // 10) and wrong.shape[1] > 1
        if few_rows or few_columns:
            by_rows = few_rows and (len(rows) <= len(columns) or not few_columns)
            few, name = (rows, "rows") if by_rows else (columns, "columns")
            listed = ", ".join(map(str, few[:6])) + (", ..." if len(few) > 6 else "")
            return f"{count} elements, all in {name} {listed}"
    return f"{count} of {total} elements, scattered; the first at {_place(places[0])}"


def _axis_name(axis: int, ndim: int) -> str:
    return {(0, 2): "rows", (1, 2): "columns", (0, 1): "elements"}.get((axis, ndim), f"axis {axis}")


def _span(first: Any, last: Any) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


def _place(index: Any) -> str:
    numbers = [int(i) for i in index]
    return f"[{', '.join(map(str, numbers))}]"
