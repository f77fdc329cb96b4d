"""What roundings do that are not fair: the error's mean, and of structured data its variance, measured on other data.

Both come from the errors of data like those given, never from those of the data themselves.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim import exact
from fpsim._arrays import axes_of
from fpsim.orders.named import NamedRule
from fpsim.strategies import Strategy

_Array = NDArray[Any]
_PERMUTATIONS = 4
#: Scaled copies of structured data; each has a factor within 1/16 of 1.
COPIES: Final = 32
_NEAR = 1.0 / 16
_MOST_SUMMED, _MOST_MULTIPLIED = 2**24, 2**22  # terms of all outputs together that copies are made of
_HELD = 2**22  # numbers of copies at a time
_PRECISIONS = (8, 11, 24, 53)  # of bfloat16, float16 and TF32, float32, float64
_FAIR = 1.4  # times the variance of fair roundings: what the mean square over copies may come to by chance
_INFLATION = 1.25  # of a variance that is known from so many copies


def is_structured(op: str, arrays: tuple[_Array, ...], axis: Any) -> bool:
    """Tell whether roundings may repeat: few different terms, or terms that rise or fall over long stretches."""
    if op == "sum":
        x = arrays[0]
        axes = axes_of(x.ndim, axis)
        kept = tuple(a for a in range(x.ndim) if a not in axes)
        n = math.prod(x.shape[a] for a in axes)
        rows = [x.transpose((*kept, *axes)).reshape(-1, n)[:8]]
    else:
        left, right = arrays
        right = right if right.ndim == 1 else np.swapaxes(right, -1, -2)
        rows = [x.reshape(-1, x.shape[-1])[:8] for x in (left, right)]
    found = []
    for some in rows:
        n = some.shape[1]
        with np.errstate(invalid="ignore"):
            steps = np.sign(np.diff(some.astype(np.float64), axis=1))
        turns = (steps[:, 1:] * steps[:, :-1] < 0).sum(axis=1)
        smooth = (turns <= n // 16) & np.isfinite(some).all(axis=1)
        few = np.array([np.unique(row).size <= max(2, n // 16) for row in some])
        found.append(n > 3 and bool((smooth | few).any()))
    return all(found)


def permuted_drift(op: str, chosen: Strategy, values: tuple[_Array, ...], axis: Any, rng: Any) -> _Array:
    """Return the mean error over permutations of the terms."""
    from fpsim.formats import _generator

    source = _generator(rng)
    reference = exact.sum(*values, axis=axis) if op == "sum" else exact.matmul(*values)
    errors: list[_Array] = []
    for _ in range(_PERMUTATIONS):
        if op == "sum":
            x = values[0]
            axes = axes_of(x.ndim, axis)
            kept = [a for a in range(x.ndim) if a not in axes]
            moved = x.transpose((*kept, *axes)).reshape((*(x.shape[a] for a in kept), -1))
            errors.append(reference.error(_emulate("sum", chosen, (source.permuted(moved, axis=-1),), -1)))
        else:
            order = source.permutation(values[0].shape[-1])
            left = _in_layout_of(values[0], np.take(values[0], order, axis=-1))
            right = _in_layout_of(values[1], np.take(values[1], order, axis=0 if values[1].ndim == 1 else -2))
            errors.append(reference.error(_emulate(op, chosen, (left, right), None)))
    with np.errstate(all="ignore"):
        mean = np.asarray(np.mean(errors, axis=0))
    return np.where(np.isnan(mean), np.inf, mean)  # a sum that overflowed


def structured_errors(
    op: str, chosen: Strategy, values: tuple[_Array, ...], axis: Any, rng: Any, most: float = 1.0
) -> tuple[_Array, _Array] | None:
    """Return the mean and the mean square of the error of structured data; None if there are too many to measure them.

    Of the terms of a sorted or constant sum roundings are alike that are close to each other: their errors add up, or
    cancel. A factor changes which bits they drop, and keeps what they have in common.

    Parameters
    ----------
    op, chosen, values, axis
        The operation, the strategy, the operands as it uses them.
    rng : source of the factors
    most : float
        Share of the work that this strategy may have.
    """
    from fpsim.formats import _generator

    terms = values[0].size if op == "sum" else _terms_of_product(*values)
    if terms > most * (_MOST_SUMMED if op == "sum" else _MOST_MULTIPLIED):
        return None
    source, precisions = _generator(rng), [_precision(x) for x in values]
    with np.errstate(all="ignore"):
        if op != "sum" and not isinstance(chosen.order, NamedRule):
            factors = 1.0 + source.uniform(-_NEAR, _NEAR, COPIES)
            group = max(1, _HELD // values[1].size)
            left, right = values
            groups = [factors[i : i + group] for i in range(0, COPIES, group)]
            errors = np.concatenate([_side_by_side(chosen, left, right, some, precisions[1]) for some in groups])
        else:
            errors = np.array([_of_copy(op, chosen, values, axis, precisions, source) for _ in range(COPIES)])
        mean, square = np.mean(errors, axis=0), np.mean(np.square(errors), axis=0)
    mean, square = (np.where(np.isnan(x), np.inf, x) for x in (mean, square))  # a copy that overflowed
    return np.asarray(mean), np.asarray(square)


def _of_copy(
    op: str, chosen: Strategy, values: tuple[_Array, ...], axis: Any, precisions: list[int], source: np.random.Generator
) -> _Array:
    """Return the errors of one scaled copy, in units of the data given."""
    factors = 1.0 + source.uniform(-_NEAR, _NEAR, len(values))
    scaled = [_scaled(*each) for each in zip(values, factors, precisions, strict=True)]
    copies = tuple(_in_layout_of(x, new) for x, new in zip(values, scaled, strict=True))
    reference = exact.sum(*copies, axis=axis) if op == "sum" else exact.matmul(*copies)
    return np.asarray(reference.error(_emulate(op, chosen, copies, axis)) / np.prod(factors))


def _side_by_side(chosen: Strategy, left: _Array, right: _Array, factors: _Array, precision: int) -> _Array:
    """Return the errors of copies of a product whose right operand is scaled, worked out as columns of one product."""
    rows, columns = np.atleast_2d(left), right[:, None] if right.ndim == 1 else right
    scaled = np.moveaxis(_scaled(columns[None], factors.reshape(-1, *[1] * columns.ndim), precision), 0, -2)
    copies = scaled.reshape(*columns.shape[:-1], -1)
    errors = exact.matmul(rows, copies).error(_emulate("matmul", chosen, (rows, copies), None))
    each = np.moveaxis(np.reshape(errors, (*np.shape(errors)[:-1], factors.size, columns.shape[-1])), -2, 0)
    each = each / factors.reshape(-1, *[1] * (each.ndim - 1))
    ends = (
        each.shape[:-2] + (() if left.ndim == 1 else each.shape[-2:-1]) + (() if right.ndim == 1 else each.shape[-1:])
    )
    return np.asarray(each.reshape(ends))


def judged(mean: _Array, square: _Array, variance: _Array, drift: _Array) -> tuple[_Array, _Array]:
    """Return drift and variance of structured data: those of fair roundings where the errors of copies are such.

    Parameters
    ----------
    mean, square : ndarray
        Of the errors of copies, as from `structured_errors`.
    variance, drift : ndarray
        Of fair roundings.
    """
    with np.errstate(all="ignore"):
        fair = square - 2.0 * drift * mean + drift * drift <= _FAIR * variance
        spread = np.maximum(_INFLATION * (square - mean * mean), variance)
    spread = np.where(np.isnan(spread), np.inf, spread)
    return np.where(fair, drift, mean), np.where(fair, variance, spread)


def _terms_of_product(a: _Array, b: _Array) -> int:
    k = a.shape[-1]
    rows = a.shape[-2] if a.ndim > 1 else 1
    columns = b.shape[-1] if b.ndim > 1 else 1
    stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return int(math.prod(stack)) * rows * columns * int(k)


def _precision(x: _Array) -> int:
    """Return the precision of the narrowest usual format that holds all numbers."""
    with np.errstate(all="ignore"):
        significands = np.frexp(x.astype(np.float64))[0]
    for bits in _PRECISIONS[:-1]:
        scaled = np.ldexp(significands, bits)
        if np.array_equal(scaled, np.rint(scaled), equal_nan=True):
            return bits
    return _PRECISIONS[-1]


def _scaled(x: _Array, factor: Any, precision: int) -> _Array:
    """Return x times factors, rounded to a precision."""
    product = x.astype(np.float64) * factor
    if precision == np.finfo(x.dtype).nmant + 1:
        return np.asarray(product.astype(x.dtype))
    significand, exponent = np.frexp(product)
    return np.asarray(np.ldexp(np.rint(np.ldexp(significand, precision)), exponent - precision).astype(x.dtype))


def _in_layout_of(x: _Array, new: _Array) -> _Array:
    """Return new values in the layout in memory that x has, on which rules depend."""
    out = np.empty_like(x)
    out[...] = new
    return out


def _emulate(op: str, chosen: Strategy, arrays: tuple[_Array, ...], axis: Any) -> Any:
    from fpsim import emulation

    if op == "sum":
        return emulation.sum(arrays[0], chosen, axis=axis)
    return emulation.matmul(arrays[0], arrays[1], chosen)
