"""The exact reference: sums, dot products and matrix products without any rounding, and the errors of other results.

Every finite input is exact, however wide the range of exponents. Errors are always measured against the exact value of
the stored inputs.
"""

from __future__ import annotations

import itertools
import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fpsim._arrays import as_floats
from fpsim._exact_values import Digits, Exact
from fpsim.errors import InputError
from fpsim.formats import FLOAT32, FLOAT64

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Exact", "dot", "matmul", "sum"]

# Products below which threads cost more than they save, and elements that a copy of a strided array holds at once.
_THREAD_WORK = 1 << 18
_COPY = 1 << 17
# Bits of the digits above the largest term, and the lowest bit of scaled operands that folds in float64 can reach.
_HEADROOM = 64
_LOWEST = -450


# -- digits of 32 bits: sums and dot products -------------------------------------------------------------------------


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


def _wide(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.float32) if values.dtype == np.float16 else values


def _frozen(values: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view, so that the kernels are compiled once and not again for read-only input."""
    view = values.view()
    view.flags.writeable = False
    return view


def _row_blocks(values: NDArray[Any], rows: int) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield (which rows, contiguous (rows, columns) array), copying only pieces of arrays that are not contiguous."""
    columns = values.shape[1]
    if values.flags.c_contiguous:
        yield slice(None), values
        return
    tall = max(1, _COPY // max(columns, 1))
    for r in range(0, rows, tall):
        part = values[r : r + tall]
        for c in range(0, columns, _COPY):
            yield slice(r, r + tall), _frozen(np.ascontiguousarray(part[:, c : c + _COPY]))


def sum(x: Any, /, *, axis: int | tuple[int, ...] | None = None) -> Exact:
    """Return the exact sum of the elements of an array.

    Parameters
    ----------
    x : array_like
        Terms: float16, float32, float64, or what converts to them exactly.
    axis : int or tuple of int, optional
        Axes that are summed; all by default.

    Returns
    -------
    Exact
        Of the shape of ``np.sum(x, axis)``.

    Raises
    ------
    InputError
        If x does not hold real numbers, or has no such axis.

    Examples
    --------
    >>> import numpy as np
    >>> from fpsim import exact
    >>> s = exact.sum(np.float32([1e30, 1, -1e30]))
    >>> float(s), s.error(np.float32(0)), f"{s.condition:.1e}"
    (1.0, np.float64(-1.0), '2.0e+30')
    """
    from fpsim.kernels import exact_sums as kernels

    given, _ = as_floats(x, name="x")
    values, shape = _axis_last(_wide(given), axis)
    rows, terms = values.shape
    low, top = _extent(values, rows > 1000)
    digits, met = _blank(rows, low, top)
    short = values.dtype == np.float32
    add, bits = (kernels.add_short_sums, np.int32) if short else (kernels.add_long_sums, np.int64)
    for where, block in _row_blocks(_frozen(values), rows):
        add(block, block.view(bits), digits[where], met[where], low)
    return Exact(
        shape,
        f"sum of {terms} terms",
        _finish(digits, met, low, terms),
        lambda: cast("Floats", sum(np.abs(given), axis=axis).round("float64")),
    )


def _axis_last(values: NDArray[Any], axis: int | tuple[int, ...] | None) -> tuple[NDArray[Any], tuple[int, ...]]:
    """Return values as (outputs, terms) and the shape of the outputs."""
    if axis is None:
        if values.flags.c_contiguous or values.flags.f_contiguous:
            return values.reshape((1, values.size), order="A"), ()
        axes = tuple(range(values.ndim))
    else:
        try:
            axes = np.lib.array_utils.normalize_axis_tuple(axis, values.ndim)
        except (ValueError, TypeError) as error:
            message = f"x has {values.ndim} dimensions and no axis {axis}"
            raise InputError(message) from error
    kept = [i for i in range(values.ndim) if i not in axes]
    shape = tuple(values.shape[i] for i in kept)
    terms = math.prod(values.shape[i] for i in axes)
    return values.transpose([*kept, *axes]).reshape(math.prod(shape), terms), shape


def dot(a: Any, b: Any, /) -> Exact:
    """Return the exact dot product of two vectors, or of stacks of vectors along their last axis.

    Parameters
    ----------
    a, b : array_like
        Vectors of one length n, or stacks (..., n) that broadcast.

    Returns
    -------
    Exact
        A scalar for vectors; else of the shape of the stack, as ``np.vecdot``.

    Raises
    ------
    InputError
        If the operands do not hold real numbers or their shapes do not fit.

    Examples
    --------
    >>> from fpsim import exact
    >>> d = exact.dot([1e300, 1e-300, -1e300], [1e300, 1e-300, 1e300])
    >>> float(d), bool(d.to_mpmath() > 0)
    (0.0, True)
    """
    x, y = (_wide(as_floats(v, name=name)[0]) for v, name in ((a, "a"), (b, "b")))
    if not x.ndim or not y.ndim or x.shape[-1] != y.shape[-1]:
        message = f"dot takes vectors of one length, not shapes {x.shape} and {y.shape}"
        raise InputError(message)
    try:
        x, y = np.broadcast_arrays(x, y)
    except ValueError as error:
        message = f"the stacks of vectors {x.shape} and {y.shape} do not broadcast"
        raise InputError(message) from error
    shape, terms = x.shape[:-1], x.shape[-1]
    numbers = _dots(x.reshape(math.prod(shape), terms), y.reshape(math.prod(shape), terms))
    return Exact(
        shape,
        f"dot product of {terms} terms",
        numbers,
        lambda: cast("Floats", dot(np.abs(x), np.abs(y)).round("float64")),
    )


def _dots(x: NDArray[Any], y: NDArray[Any]) -> Digits:
    """Return the dot products of the rows of x and y (R, K), row by row."""
    dtype = np.result_type(x, y)
    rows, terms = x.shape
    x, y = np.ascontiguousarray(x, dtype), np.ascontiguousarray(y, dtype)
    (low_x, top_x), (low_y, top_y) = (_extent(v, rows > 1000) for v in (x, y))
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


# -- matrix products --------------------------------------------------------------------------------------------------


def matmul(a: Any, b: Any, /) -> Exact:
    """Return the exact matrix product, with the shapes of ``np.matmul``.

    Parameters
    ----------
    a, b : array_like
        Matrices (..., m, k) and (..., k, n) whose leading axes broadcast, or vectors.

    Returns
    -------
    Exact
        Of the shape of ``np.matmul(a, b)``. The bits do not depend on the number of threads.

    Raises
    ------
    InputError
        If the operands do not hold real numbers or their shapes do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from fpsim import exact
    >>> a = np.full((2, 3), 0.1, np.float32)
    >>> exact.matmul(a, a.T).ulp_error(a @ a.T).shape
    (2, 2)
    """
    x, y = (_wide(as_floats(v, name=name)[0]) for v, name in ((a, "a"), (b, "b")))
    if not x.ndim or not y.ndim:
        message = "matmul takes vectors and matrices, not scalars"
        raise InputError(message)
    left = x[None, :] if x.ndim == 1 else x
    right = y[:, None] if y.ndim == 1 else y
    if left.shape[-1] != right.shape[-2]:
        message = (
            f"the shapes {x.shape} and {y.shape} do not multiply: {left.shape[-1]} terms against {right.shape[-2]}"
        )
        raise InputError(message)
    try:
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError as error:
        message = f"the leading axes of {x.shape} and {y.shape} do not broadcast"
        raise InputError(message) from error
    count = math.prod(batch)
    left = np.broadcast_to(left, batch + left.shape[-2:]).reshape(count, *left.shape[-2:])
    right = np.broadcast_to(right, batch + right.shape[-2:]).reshape(count, *right.shape[-2:])
    shape = batch + (() if x.ndim == 1 else left.shape[-2:-1]) + (() if y.ndim == 1 else right.shape[-1:])
    return Exact(
        shape,
        f"matrix product of {left.shape[-1]} terms",
        _products(left, right),
        lambda: cast("Floats", matmul(np.abs(x), np.abs(y)).round("float64")),
    )


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


def _products(left: NDArray[Any], right: NDArray[Any]) -> Digits:
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
