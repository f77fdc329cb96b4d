"""What the roundings of any order may cost on given data.

Of all binary trees over n terms the j-th largest node has at most n - j + 1 leaves: of j nodes with at least m leaves
take one with none of the others below it; it has m - 1 nodes, so that m - 1 + j - 1 <= n - 1. So the partial sums of any
order, sorted, are no larger than those of the terms added by falling magnitude, T_2 <= ... <= T_n, and what grows with
the magnitude of a partial sum, such as its ulp, is bounded by its sum over these.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim import bounds
from fpsim._roundoff import Account, Sample, picker
from fpsim._tolerance_targets import AnyOrder
from fpsim.formats import Format

Floats = NDArray[np.float64]
_BLOCKS = 64  # that the partial sums are taken together in, each with its largest one
_LEAST_GRID, _MOST_GRID = -2200, 4000
_SLACK = 1.0 + 2.0**-36  # float64's own errors in sums and square roots


def any_order(op: str, chosen: AnyOrder, /, *inputs: Any, axis: Any = None, some: Sample | None = None) -> Account:
    """Return an account that holds for every order.

    Parameters
    ----------
    op, *inputs, axis, some
        As for `fpsim._roundoff.account`.
    chosen : AnyOrder
        The arithmetic.

    Returns
    -------
    Account
        The variance is NaN where it is not known: in directed rounding, and without subnormal numbers.
    """
    variants = chosen.variants()
    used = [bounds.operands(op, one, *inputs, axis=axis) for one in variants]
    given = dataclasses.replace(used[0], conversion=np.zeros_like(used[0].conversion))
    cases = [np.asarray(bounds.bound_of(op, one, given, axis=axis)) for one in variants]
    worst = np.max(cases, axis=0)
    pick = picker(op, given.values, some)
    arithmetic = variants[0].arithmetic(given.data)
    form, rounding = arithmetic.accumulator.format, arithmetic.accumulator
    plain = (
        rounding.mode.startswith("nearest") and form.subnormals and not arithmetic.ftz and not arithmetic.daz
        and arithmetic.product in (None, form) and (arithmetic.output is None or arithmetic.output.format == form)
        and form.includes(given.data)
    )  # fmt: skip
    if not plain:
        worst = pick(worst)
        none = np.zeros_like(worst)
        return Account(worst, np.full_like(worst, math.nan), none, pick(given.magnitude), none)
    with np.errstate(all="ignore"):
        parts = _terms(op, given.values, axis, some)
    magnitude, worst = pick(given.magnitude), pick(worst)
    n, tops, grid = parts.n, parts.tops, parts.grid
    growth = math.expm1((n + 2) * math.log1p(form.unit_roundoff))
    least = 2.0 ** (form.emin - form.precision)  # half of the smallest subnormal
    with np.errstate(all="ignore"):
        error = np.zeros_like(magnitude)
        variance = np.zeros_like(magnitude)
        for top, count in tops:
            ulp = _ulp(np.minimum(top, magnitude) * (1 + growth) * _SLACK + n * least, form)
            error = error + count * 0.5 * ulp
            variance = variance + count * ulp * ulp / 8.0
        if op != "sum":
            error = error + form.unit_roundoff * magnitude + n * least
            variance = variance + 0.5 * form.unit_roundoff**2 * parts.squares + n * least**2
        exact = magnitude * (1 + 2.0**-40) <= np.ldexp(1.0, np.clip(grid + form.precision, -1070, 1023))
        exact &= grid >= form.emin - form.precision + 1
        error, variance = (np.where(exact, 0.0, x) for x in (error * _SLACK, variance))
        hard = np.where(worst == math.inf, math.inf, np.minimum(error, worst))
    return Account(hard, variance, np.zeros_like(hard), magnitude, np.zeros_like(hard))


@dataclasses.dataclass(frozen=True, slots=True)
class _Terms:
    """The number of terms; bounds of the largest partial sums with how many they stand for; grid and sum of squares."""

    n: int
    tops: list[tuple[Floats, int]]
    grid: NDArray[np.int64]
    squares: Floats


def _ulp(x: Floats, form: Format) -> Floats:
    exponent = np.frexp(x)[1] - 1
    ulp: Floats = np.ldexp(1.0, np.maximum(exponent, form.emin) - form.precision + 1)
    return np.where(np.isfinite(x), ulp, np.inf)


def _grid(x: Floats) -> NDArray[np.int64]:
    """Return the exponent of the largest power of two that divides each number."""
    mantissa, exponent = np.frexp(x)
    whole = np.where(np.isfinite(x), np.abs(mantissa) * 2.0**53, 0.0).astype(np.int64)
    low = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    return np.where(whole == 0, _MOST_GRID, exponent.astype(np.int64) - 53 + low)


def _blocks(n: int) -> list[tuple[int, int]]:
    """Return pairs of (last, count): blocks of the numbers 2 to n."""
    ends = np.unique(np.linspace(1, n, min(_BLOCKS, n - 1) + 1).astype(np.int64))
    return [(int(b), int(b - a)) for a, b in itertools.pairwise(ends)] if n > 1 else []


def _terms(op: str, values: tuple[Any, ...], axis: Any, some: Sample | None) -> _Terms:
    if op == "sum":
        from fpsim._arrays import axes_of

        x = np.abs(values[0].astype(np.float64))
        axes = axes_of(x.ndim, axis)
        kept = [a for a in range(x.ndim) if a not in axes]
        shape = tuple(x.shape[a] for a in kept)
        rows = x.transpose((*kept, *axes)).reshape(*shape, -1)
        if some is not None:
            rows = rows.reshape(-1, rows.shape[-1])[some[1]]
        totals = np.cumsum(-np.sort(-rows, axis=-1), axis=-1)
        n = rows.shape[-1]
        tops = [(totals[..., last - 1], count) for last, count in _blocks(n)]
        return _Terms(n, tops, _grid(rows).min(axis=-1, initial=_MOST_GRID), np.square(rows).sum(axis=-1))
    a, b = (np.abs(x.astype(np.float64)) for x in values)
    left = a[None, :] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b
    if some is not None:
        left, right = left[..., some[0], :], right[..., some[1]]
    n = left.shape[-1]
    squares = [np.square(left), np.square(right)]
    one = np.cumsum(-np.sort(-squares[0], axis=-1), axis=-1)
    other = np.cumsum(-np.sort(-squares[1], axis=-2), axis=-2)

    def shaped(x: Any) -> Any:
        if some is not None:
            return x.reshape(-1)
        x = x[..., 0] if b.ndim == 1 else x
        return (x[..., 0] if b.ndim == 1 else x[..., 0, :]) if a.ndim == 1 else x

    tops = [
        (shaped(np.sqrt(one[..., last - 1, None] * other[..., None, last - 1, :])), count)
        for last, count in _blocks(n)
    ]  # fmt: skip
    grid = _grid(left).min(axis=-1)[..., :, None] + _grid(right).min(axis=-2)[..., None, :]
    return _Terms(n, tops, shaped(np.clip(grid, _LEAST_GRID, _MOST_GRID)), shaped(np.matmul(*squares)))
