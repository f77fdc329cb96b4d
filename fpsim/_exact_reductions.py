"""Digits of exact sums, dot products and matrix products: which kernel runs over which block of the operands."""

from __future__ import annotations

import itertools
import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from fpsim._exact_values import Digits
from fpsim.formats import FLOAT32, FLOAT64

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# Products below which threads cost more than they save, and elements that a copy of a strided array holds at once.
_THREAD_WORK = 1 << 18
_COPY = 1 << 17
# Bits of the digits above the largest term, and outputs above which the range of the data is looked up, to have few.
_HEADROOM = 64
_MANY = 1000
# The lowest bit of scaled operands that folds in float64 can reach.
_LOWEST = -450


def _specials(met: NDArray[np.uint8], terms: int) -> Floats | None:
    """Return NaN, infinity or -0 where a sum is so, 0 elsewhere; None when that is everywhere."""
    from fpsim.kernels import exact as kernels

    if terms == 0 or (met == kernels.OTHER).all():
        return None
    infinite = met & (kernels.PLUS_INFINITY | kernels.MINUS_INFINITY)
    special = np.zeros(met.shape)
    special[met & kernels.OTHER == 0] = -0.0
    special[infinite == kernels.PLUS_INFINITY] = math.inf
    special[infinite == kernels.MINUS_INFINITY] = -math.inf
    special[(met & kernels.NAN > 0) | (infinite == kernels.PLUS_INFINITY | kernels.MINUS_INFINITY)] = math.nan
    return special


def _extent(values: NDArray[Any], many: bool) -> tuple[int, int]:
    """Return (low, top): finite values are multiples of 2**low and below 2**top; read from the values if `many`."""
    info = FLOAT32 if values.dtype == np.float32 else FLOAT64
    low, top = info.emin - info.precision + 1, info.emax + 1
    if many:
        magnitude = np.abs(values)
        finite = magnitude[np.isfinite(magnitude) & (magnitude > 0)]
        if finite.size == 0:
            return 0, 0
        top = math.frexp(finite.max())[1]
        low = max(low, math.frexp(finite.min())[1] - info.precision)
    return low, top


def _blank(rows: int, low: int, top: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    return np.zeros((rows, (top + _HEADROOM - low) // 32 + 3), np.int64), np.zeros(rows, np.uint8)


def _finish(digits: NDArray[np.int64], met: NDArray[np.uint8], low: int, terms: int) -> Digits:
    return Digits(digits, np.full(len(digits), low, np.int64), 32, _specials(met, terms))


def _frozen(values: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view, so that the kernels are compiled once and not again for read-only input."""
    view = values.view()
    view.flags.writeable = False
    return view


def _pieces(values: NDArray[Any], kept: int, row: int = 0) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield (which rows, contiguous (rows, columns) array); the first `kept` axes make the rows.

    Of arrays that are not contiguous only pieces are copied.
    """
    rows = math.prod(values.shape[:kept])
    if values.flags.c_contiguous or values.size <= _COPY:
        yield slice(row, row + rows), np.ascontiguousarray(values).reshape(rows, values.size // max(rows, 1))
        return
    inner = values.size // len(values)
    step = max(1, _COPY // inner)
    stride = rows // len(values) if kept else 0
    for i in range(0, len(values), step):
        part, axes = (values[i : i + step], kept) if inner <= _COPY else (values[i], max(kept - 1, 0))
        yield from _pieces(part, axes, row + i * stride)


def sums(values: NDArray[Any], kept: int) -> Digits:
    """Return the sums of float32 or float64 values of any strides over all but the first `kept` axes."""
    from fpsim.kernels import exact_sums as kernels

    rows = math.prod(values.shape[:kept])
    low, top = _extent(values, rows > _MANY)
    digits, met = _blank(rows, low, top)
    short = values.dtype == np.float32
    add, bits = (kernels.add_short_sums, np.int32) if short else (kernels.add_long_sums, np.int64)
    for where, piece in _pieces(values, kept):
        block = _frozen(piece)
        add(block, block.view(bits), digits[where], met[where], low)
    return _finish(digits, met, low, math.prod(values.shape[kept:]))


def row_dots(x: NDArray[Any], y: NDArray[Any]) -> Digits:
    """Return the dot products of the rows of x and y (R, K), row by row."""
    dtype = np.result_type(x, y)
    rows, terms = x.shape
    x, y = np.ascontiguousarray(x, dtype), np.ascontiguousarray(y, dtype)
    (low_x, top_x), (low_y, top_y) = (_extent(v, rows > _MANY) for v in (x, y))
    low = low_x + low_y
    digits, met = _blank(rows, low, top_x + top_y)
    _add_dots(x, y, digits, met, low, pairs=False)
    return _finish(digits, met, low, terms)


def _add_dots(
    x: NDArray[Any], y: NDArray[Any], digits: NDArray[np.int64], met: NDArray[np.uint8], low: int, *, pairs: bool
) -> None:
    from fpsim.kernels import exact_sums as kernels

    x, y = _frozen(x), _frozen(y)
    if x.dtype == np.float32:
        kernels.add_short_dots(x, y, x.view(np.int32), y.view(np.int32), digits, met, low, pairs)
    else:
        kernels.add_long_dots(x, y, x.view(np.int64), y.view(np.int64), digits, met, low, pairs)


def _scaled(values: NDArray[Any], axis: int) -> tuple[Floats, NDArray[np.int64], int]:
    """Scale along an axis by powers of two to magnitudes below 1 (1/2 for float64).

    Return the scaled values, the exponents taken out, and the exponent of the lowest bit: below `_LOWEST` where the
    scaled values would not be exact.
    """
    from fpsim.kernels import exact_product as kernels

    largest = np.max(np.abs(values), axis=axis, keepdims=True, initial=0.0)
    exponent = np.frexp(largest)[1].astype(np.int64) + (values.dtype == np.float64)
    half = -exponent // 2  # in two steps: the power itself may leave float64
    with np.errstate(under="ignore"):
        scaled = values * np.ldexp(1.0, half) * np.ldexp(1.0, -exponent - half)
    scaled = np.ascontiguousarray(scaled)
    lost = np.count_nonzero(scaled) < np.count_nonzero(values)
    return scaled, np.squeeze(exponent, axis), _LOWEST - 1 if lost else kernels.lowest_bit(scaled.reshape(-1))


def _halves(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Write products of doubles as longer sums of products of at most 53 bits (Dekker's splitting)."""

    def split(v: Floats) -> list[Floats]:
        c = 134217729.0 * v
        high = c - (c - v)
        low = v - high
        return [high, low] if low.any() else [v]

    xs, ys = split(x), split(y)
    return (
        np.concatenate([part for part in xs for _ in ys], axis=-1),
        np.concatenate([part for _ in xs for part in ys], axis=-2),
    )


def products(left: NDArray[Any], right: NDArray[Any]) -> Digits:
    """Exact products of batches of matrices, (batch, m, k) and (batch, k, n)."""
    from fpsim.kernels import exact_product as kernels
    from fpsim.kernels.exact import FOLD

    x, y = left, right
    finite = bool(np.isfinite(x).all() and np.isfinite(y).all())
    if not finite:
        x, y = (np.where(np.isfinite(v), v, v.dtype.type(0)) for v in (x, y))
    x_scaled, x_exponent, x_lowest = _scaled(x, -1)
    y_scaled, y_exponent, y_lowest = _scaled(y, -2)
    if min(x_lowest, y_lowest) < _LOWEST:
        digits, exponent, width = _wide_products(x, y)
    else:
        folds = max(1, -((x_lowest + y_lowest) // FOLD))
        if np.float64 in (x.dtype, y.dtype):
            x_scaled, y_scaled = _halves(x_scaled, y_scaled)
        digits = np.zeros((len(x), x.shape[-2], y.shape[-1], folds + 1), np.int64)
        _over_rows(
            digits, x.shape[-1], lambda i, r: kernels.add_products(x_scaled[i, r], y_scaled[i], digits[i, r], folds)
        )
        exponent = x_exponent[:, :, None] + y_exponent[:, None, :] - FOLD * folds
        width = FOLD
    special = _special_products(left, right, digits, finite)
    return Digits(digits.reshape(exponent.size, digits.shape[-1]), exponent.reshape(-1), width, special)


def _wide_products(x: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return digits, exponents and width of products whose range is too wide for folds: each output on its own."""
    from fpsim.kernels import exact as kernels

    dtype = np.result_type(x, y)
    x, y = np.ascontiguousarray(x, dtype), np.ascontiguousarray(y.swapaxes(-1, -2), dtype)
    (low_x, top_x), (low_y, top_y) = _extent(x, True), _extent(y, True)
    low = low_x + low_y
    shape = (len(x), x.shape[1], y.shape[1])
    digits, met = _blank(math.prod(shape), low, top_x + top_y)
    digits, met = digits.reshape(*shape, digits.shape[1]), met.reshape(shape)

    def run(i: int, rows: slice) -> None:
        part = digits[i, rows].reshape(-1, digits.shape[-1]), met[i, rows].reshape(-1)
        _add_dots(x[i, rows], y[i], *part, low, pairs=True)

    _over_rows(digits, x.shape[-1] * 8, run)
    return digits, np.full(shape, low, np.int64), kernels.DIGIT


def _special_products(x: NDArray[Any], y: NDArray[Any], digits: NDArray[np.int64], finite: bool) -> Floats | None:
    """Return the outputs that are NaN, infinite or -0, see `_specials`."""
    from fpsim.kernels import exact_product as kernels

    terms = x.shape[-1]
    if finite and x.all() and y.all():
        return None
    met = np.empty(digits.shape[:-1], np.uint8)
    zero = np.logical_not(digits.any(axis=-1))
    for i in range(len(x)):
        a, b = (_frozen(np.ascontiguousarray(v[i], np.float64)) for v in (x, y))
        kernels.classify_products(a, b, zero[i], finite, met[i])
    return _specials(met.reshape(-1), terms)


def _over_rows(digits: NDArray[np.int64], terms: int, task: Callable[[int, slice], None]) -> None:
    """Call task(i, rows) for blocks of rows of every matrix of the batch, in threads where that pays."""
    count, rows, columns = digits.shape[:3]
    work = count * rows * columns * terms
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if work < _THREAD_WORK or workers == 1:
        for i in range(count):
            task(i, slice(0, rows))
        return
    pieces = max(1, min(rows, -(-4 * workers // count)))
    edges = [rows * p // pieces for p in range(pieces + 1)]
    with ThreadPoolExecutor(workers) as pool:
        done = [pool.submit(task, i, slice(a, b)) for i in range(count) for a, b in itertools.pairwise(edges)]
        for future in done:
            future.result()
