"""What two sides may differ by on given data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim import bounds
from fpsim._any_order import any_order
from fpsim._arrays import axes_of
from fpsim._roundoff import Account, Sample, account, picker
from fpsim._tolerance_drift import is_structured, judged, permuted_drift, structured_errors
from fpsim._tolerance_targets import AnyOrder, Member, Target
from fpsim.errors import InputError

_Array = NDArray[Any]
_DRIFTS = 0.05  # of a typical term: a smaller error of a sum does not drift
_NOT_SUPPORTED = ("mean", "norm", "var", "std", "prod", "cumsum")


@dataclass(frozen=True, slots=True)
class _Part:
    """What the additions and products of one member of a side may be off by, and the operands that it uses."""

    hard: _Array
    variance: _Array
    largest: _Array
    drift: _Array
    fixed: _Array
    operands: tuple[_Array, ...]
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """What both sides together may be off by, and the results' size.

    Attributes
    ----------
    hard : ndarray
        The roundings of both, at worst.
    variance, largest, drift, fixed : ndarray
        Variance, the largest part of it that comes from one rounding, mean, and what counts in full.
    shift, shift_variance : ndarray
        What the sides differ by since they round their operands differently, known but for `shift_slack`; and its
        variance, were the signs of the roundings random.
    shift_slack : ndarray
        Error of `shift` itself.
    scale : ndarray
        Magnitude of the result.
    term : float
        Median magnitude of a term.
    flags : tuple of str
        For the reader.
    """

    hard: _Array
    variance: _Array
    largest: _Array
    drift: _Array
    fixed: _Array
    shift: _Array
    shift_variance: _Array
    shift_slack: _Array
    scale: _Array
    term: float
    flags: tuple[str, ...]


def measured(
    op: str, sides: list[Target], arrays: tuple[_Array, ...], axis: Any, rng: Any, some: Sample | None = None
) -> Measured:
    """Return what the sides may differ by; of one side, from the exact result.

    Parameters
    ----------
    op, arrays, axis
        The operation and its operands.
    sides : list of Target
        One or two.
    rng : source of permutations
    some : pair of arrays of int, optional
        The outputs to look at, as for `fpsim._roundoff.account`.
    """
    term, structured = typical_term(arrays), is_structured(op, arrays, axis)
    pick = picker(op, arrays, some)
    found = [
        [
            _part(op, member, arrays, axis, term, 1 / len(side.members) if structured else 0.0, rng, some, pick)
            for member in side.members
        ]
        for side in sides
    ]  # fmt: skip
    values = list(_together(found))
    shifts = list(_shifts(op, found, arrays, axis, pick))
    flags = [flag for side in found for part in side for flag in part.flags]
    same = len(sides) == 2 and len(sides[0].members) == 1 and sides[0].members == sides[1].members
    if same and not isinstance(sides[0].members[0], AnyOrder):
        values, flags = [np.zeros_like(x) for x in values], []
    with np.errstate(all="ignore"):
        scale = np.abs(pick(_result(op, arrays, axis)))
        special = np.isnan(pick(_result(op, tuple(x * x.dtype.type(0) for x in arrays), axis)))
    if special.any():
        values, shifts = ([np.where(special, 0.0, x) for x in some_values] for some_values in (values, shifts))
        scale = np.where(special, 0.0, scale)
        free = special & _infinite_or_not(op, sides, arrays, axis, pick) if not same else np.zeros_like(special)
        values[0] = np.where(free, np.inf, values[0])
        values[4] = np.where(free, np.inf, values[4])
        flags.append(f"terms of {int(special.sum())} outputs are not finite: there the results must be the same")
    if np.isinf(values[0]).any():
        flags.append("partial sums may overflow, and there is no tolerance then")
    hard, variance, largest, drift, fixed = values
    shift, shift_variance, slack = shifts
    return Measured(
        hard, variance, largest, drift, fixed, shift, shift_variance, slack, scale, term,
        tuple(dict.fromkeys(flags)),
    )  # fmt: skip


def _infinite_or_not(
    op: str, sides: list[Target], arrays: tuple[_Array, ...], axis: Any, pick: Callable[[Any], _Array]
) -> NDArray[np.bool]:
    """Tell which outputs with infinite terms may be NaN in one order and infinite in another.

    That is where the sum of the finite terms may overflow, and no order gives NaN whatever they are.
    """
    finite = tuple(np.where(np.isfinite(x), x, x.dtype.type(0)) for x in arrays)
    units = tuple(np.where(np.isfinite(x), np.sign(x), x) for x in arrays)
    overflows = np.zeros(np.shape(pick(_result(op, finite, axis))), bool)
    for member in (member for side in sides for member in side.members):
        for one in member.variants() if isinstance(member, AnyOrder) else (member,):
            overflows |= np.isinf(pick(bounds.bound(op, one, *finite, axis=axis)))
    with np.errstate(all="ignore"):
        return overflows & ~np.isnan(pick(_result(op, units, axis)))


def check_shapes(op: str, arrays: tuple[_Array, ...], axis: Any) -> None:
    """Raise `InputError` where there is nothing to work out a tolerance for."""
    if any(x.size == 0 for x in arrays):
        message = f"{op} of empty arrays has no tolerance"
        raise InputError(message)
    if op == "sum":
        axes_of(arrays[0].ndim, axis)
        return
    a, b = arrays
    if axis is not None:
        message = f"axis is for sums, not for {op}"
        raise InputError(message)
    fits = a.ndim > 0 and b.ndim > 0 and a.shape[-1] == b.shape[-2 if b.ndim > 1 else 0]
    if op == "dot":
        fits = fits and a.ndim == b.ndim == 1
    elif fits and max(a.ndim, b.ndim) > 2:
        try:
            np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except ValueError:
            fits = False
    if not fits:
        kinds = "two vectors of one length" if op == "dot" else "arrays whose shapes np.matmul takes"
        message = f"the tolerance of a {op} is worked out for {kinds}, not for shapes {a.shape} and {b.shape}"
        raise InputError(message)


def check_operation(op: str, count: int | None = None) -> None:
    """Raise `InputError` for an operation that tolerances do not know, and name what is not supported."""
    if op in _NOT_SUPPORTED:
        message = f"the tolerance of a {op} is not supported; sum, dot and matmul are, and {', '.join(_NOT_SUPPORTED)} are not"
        raise InputError(message)
    bounds.check_operation(op, count)


def terms_of(op: str, arrays: tuple[_Array, ...], outputs: int) -> int:
    """Return the number of terms of an output."""
    return arrays[0].size // max(outputs, 1) if op == "sum" else int(arrays[0].shape[-1])


def typical_term(arrays: tuple[_Array, ...]) -> float:
    """Return the median magnitude of a term; zeros and numbers that are not finite do not count."""
    sizes = [np.abs(x.astype(np.float64)) for x in arrays]
    some = [x[(x > 0) & np.isfinite(x)] for x in sizes]
    with np.errstate(all="ignore"):
        return float(np.prod([float(np.median(x)) if x.size else 0.0 for x in some]))


# --- one member -------------------------------------------------------------------------------------------------------


def _part(
    op: str, chosen: Member, arrays: tuple[_Array, ...], axis: Any, term: float, structured: float, rng: Any,
    some: Sample | None, pick: Callable[[Any], _Array],
) -> _Part:  # fmt: skip
    if isinstance(chosen, AnyOrder):
        most = 0.0 if structured else term
        return _part_of_any(op, chosen, any_order(op, chosen, *arrays, axis=axis, some=some), arrays, axis, most)
    given = bounds.operands(op, chosen, *arrays, axis=axis)
    plain = dataclasses.replace(given, conversion=np.zeros_like(given.conversion))
    worst = np.asarray(pick(bounds.bound_of(op, chosen, plain, axis=axis)), np.float64)
    own: Account | None = account(op, chosen, *arrays, axis=axis, some=some)
    none = np.zeros_like(worst)
    if own is None:
        flag = f"{chosen} compensates, flushes or sums in groups: its worst-case bound counts in full"
        return _Part(worst, none, none, none, worst, given.values, (flag,))
    flags: list[str] = []
    hard = np.minimum(own.hard, worst)
    variance, largest, drift = own.variance, own.largest, own.drift
    if np.any(drift):
        most = float(np.max(np.abs(drift[np.isfinite(drift)]), initial=0.0))
        flags.append(f"{chosen} truncates: its errors lean toward zero, by up to {most:.3g}")
    if structured and np.any(hard > 0):
        found = structured_errors(op, chosen, given.values, axis, rng, structured)
        if found is None:
            flags.append("structured data: the terms are smooth or few of them differ, so the worst case is used")
            return _Part(hard, none, none, none, hard, given.values, tuple(flags))
        drift, variance = judged(pick(found[0]), pick(found[1]), variance, drift)
        flags.append(
            "structured data: the terms are smooth or few of them differ, so errors are measured on scaled copies"
        )
        largest = np.where(variance == own.variance, largest, 0.0)
    elif not np.any(drift) and bool((np.sqrt(variance[np.isfinite(variance)]) > _DRIFTS * term).any()):
        drift = pick(permuted_drift(op, chosen, given.values, axis, rng))
        flags.append(f"the errors of {chosen} drift: they have grown to the size of its terms")
    return _Part(hard, variance, largest, drift, none, given.values, tuple(flags))


def _part_of_any(op: str, chosen: AnyOrder, own: Account, arrays: tuple[_Array, ...], axis: Any, term: float) -> _Part:
    values = bounds.operands(op, chosen.variants()[0], *arrays, axis=axis).values
    none = np.zeros_like(own.hard)
    with np.errstate(all="ignore"):
        unknown = ~np.isfinite(own.variance) | (np.sqrt(own.variance) > _DRIFTS * term)
    flags = []
    if unknown.any():
        flags.append(f"{chosen}: roundings may drift or repeat in some orders, so their worst case counts")
    fixed = np.where(unknown, own.hard, 0.0)
    return _Part(own.hard, np.where(unknown, 0.0, own.variance), none, none, fixed, values, tuple(flags))


# --- both sides -------------------------------------------------------------------------------------------------------


def _together(found: list[list[_Part]]) -> tuple[_Array, ...]:
    """Add up the sides; of several members of a side the worst counts."""
    hard = sum(np.max([p.hard for p in side], axis=0) for side in found)
    variance = sum(np.max([p.variance for p in side], axis=0) for side in found)
    # A smaller part of one rounding is the safer assumption.
    largest = np.max([np.min([p.largest for p in side], axis=0) for side in found], axis=0)
    drift = sum(np.max([np.abs(p.drift) for p in side], axis=0) for side in found)
    fixed = sum(np.max([p.fixed for p in side], axis=0) for side in found)
    return tuple(np.asarray(x) for x in (hard, variance, largest, drift, fixed))


def _shifts(
    op: str, found: list[list[_Part]], arrays: tuple[_Array, ...], axis: Any, pick: Callable[[Any], _Array]
) -> tuple[_Array, _Array, _Array]:
    """Return the largest difference that comes from rounded operands, its variance, and float64's error in it.

    What both sides round alike cancels.
    """
    given = [x.astype(np.float64) for x in arrays]
    none = np.zeros_like(found[0][0].hard)
    others: list[tuple[_Array, ...]] = [tuple(given)] if len(found) == 1 else [p.operands for p in found[1]]
    total, variance, slack = none, none, none
    seen: set[tuple[bytes, ...]] = set()
    for one in (p.operands for p in found[0]):
        for other in others:
            pairs = [(x.astype(np.float64), y.astype(np.float64)) for x, y in zip(one, other, strict=True)]
            changes = [_difference(x, y) for x, y in pairs]
            if not any(change.any() for change in changes):
                continue
            key = tuple(change.tobytes() for change in changes)
            if key in seen:
                continue
            seen.add(key)
            shift, spread, error = (pick(x) for x in _shift(op, pairs, changes, axis))
            total = np.where(np.abs(shift) > np.abs(total), shift, total)
            variance, slack = np.maximum(variance, spread), np.maximum(slack, error)
    return total, variance, slack


def _difference(x: _Array, y: _Array) -> _Array:
    with np.errstate(all="ignore"):
        return np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, x - y)


def _shift(
    op: str, pairs: list[tuple[_Array, _Array]], changes: list[_Array], axis: Any
) -> tuple[_Array, _Array, _Array]:
    with np.errstate(all="ignore"):
        if op == "sum":
            (change,) = changes
            n = change.size
            return (
                np.asarray(np.sum(change, axis=axis)), np.asarray(np.sum(change * change, axis=axis)),
                np.asarray(np.sum(np.abs(change), axis=axis)) * (n + 4) * 2.0**-52,
            )  # fmt: skip
        (a, a2), (b, _) = pairs
        da, db = changes
        # a b - a2 b2 = da b + a2 db
        shift = np.matmul(da, b) + np.matmul(a2, db)
        spread = np.matmul(da * da, b * b) + np.matmul(a2 * a2, db * db) + 2 * np.matmul(da * a2, b * db)
        slack = np.matmul(np.abs(da), np.abs(b)) + np.matmul(np.abs(a2), np.abs(db))
    n = a.shape[-1]
    return np.asarray(shift), np.asarray(np.maximum(spread, 0.0)), np.asarray(slack * (n + 4) * 2.0**-51)


def _result(op: str, arrays: tuple[_Array, ...], axis: Any) -> Any:
    wide = [x.astype(np.float64) for x in arrays]
    return np.sum(wide[0], axis=axis) if op == "sum" else np.matmul(*wide)
