"""Reductions on the CPU compiled by Numba: each in one order, or in the order that the compiler chooses.

The zero that an accumulator starts from has the type of the terms: from a Python float Numba would compute in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.extending import intrinsic

LANES = 8


@intrinsic
def _fused(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a*b + c with one rounding, in the type of the operands."""
    del typingctx, b, c

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del context, signature
        return builder.fma(*args)

    return a(a, a, a), codegen


_fma: Any = _fused


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function for each type of operands that it meets; the compiler keeps the order that is written."""
    out: Callable[..., Any] = numba.jit(nogil=True, error_model="numpy")(function)
    return out


def _reordered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function so that the compiler may choose the order and fuse products (``fastmath=True``).

    For the routine ``numba.fastmath`` alone, which is there so that what users' own such code gives can be compared.
    """
    out: Callable[..., Any] = numba.jit(nogil=True, error_model="numpy", fastmath=True)(function)
    return out


# --- sums -----------------------------------------------------------------------------------------------------------


def _sum(x: Any) -> Any:
    total = x.dtype.type(0)
    for i in range(x.size):
        total += x[i]
    return total


serial_sum = _compiled(_sum)
fastmath_sum = _reordered(_sum)


@_compiled
def serial_sum_axis0(x: Any) -> Any:
    out = np.zeros(x.shape[1], x.dtype)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[j] += x[i, j]
    return out


@_compiled
def _halves(lanes: Any) -> Any:
    width = LANES
    while width > 1:
        width //= 2
        for lane in range(width):
            lanes[lane] += lanes[lane + width]
    return lanes[0]


@_compiled
def lanes_sum(x: Any) -> Any:
    lanes = np.zeros(LANES, x.dtype)
    for i in range(x.size):
        lanes[i % LANES] += x[i]
    return _halves(lanes)


@_compiled
def pairwise_sum(x: Any) -> Any:
    room = x.copy()
    n = x.size
    while n > 1:
        for i in range(n // 2):
            room[i] = room[2 * i] + room[2 * i + 1]
        if n % 2:
            room[n // 2] = room[n - 1]
        n = (n + 1) // 2
    return room[0] if x.size else x.dtype.type(0)


@_compiled
def serial_cumsum(x: Any) -> Any:
    out = np.empty_like(x)
    total = x.dtype.type(0)
    for i in range(x.size):
        total += x[i]
        out[i] = total
    return out


@_compiled
def serial_prod(x: Any) -> Any:
    product = x.dtype.type(1)
    for i in range(x.size):
        product *= x[i]
    return product


@_compiled
def serial_mean(x: Any) -> Any:
    return serial_sum(x) / x.dtype.type(x.size)


@_compiled
def serial_var(x: Any) -> Any:
    mean = serial_mean(x)
    total = x.dtype.type(0)
    for i in range(x.size):
        deviation = x[i] - mean
        total += deviation * deviation
    return total / x.dtype.type(x.size)


@_compiled
def serial_std(x: Any) -> Any:
    return np.sqrt(serial_var(x))


# --- products -------------------------------------------------------------------------------------------------------


def _dot(a: Any, b: Any) -> Any:
    total = a.dtype.type(0)
    for i in range(a.size):
        total += a[i] * b[i]
    return total


serial_dot = _compiled(_dot)
fastmath_dot = _reordered(_dot)


@_compiled
def fused_dot(a: Any, b: Any) -> Any:
    total = a.dtype.type(0)
    for i in range(a.size):
        total = _fma(a[i], b[i], total)
    return total


@_compiled
def lanes_dot(a: Any, b: Any) -> Any:
    lanes = np.zeros(LANES, a.dtype)
    for i in range(a.size):
        lanes[i % LANES] += a[i] * b[i]
    return _halves(lanes)


@_compiled
def pairwise_dot(a: Any, b: Any) -> Any:
    return pairwise_sum(a * b)


@_compiled
def serial_norm(x: Any) -> Any:
    return np.sqrt(serial_dot(x, x))


@_compiled
def fused_norm(x: Any) -> Any:
    return np.sqrt(fused_dot(x, x))


@_compiled
def multiply(a: Any, b: Any) -> Any:
    return a * b


def _of_rows(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a sum over each row of a matrix."""

    @_compiled
    def rows(x: Any) -> Any:
        out = np.empty(x.shape[0], x.dtype)
        for i in range(x.shape[0]):
            out[i] = kernel(x[i])
        return out

    return rows


def _of_rows_and_columns(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a matrix product whose outputs are dot products of one kind."""

    @_compiled
    def product(a: Any, b: Any) -> Any:
        out = np.empty((a.shape[0], b.shape[1]), a.dtype)
        for i in range(a.shape[0]):
            for j in range(b.shape[1]):
                out[i, j] = kernel(a[i], b[:, j])
        return out

    return product


serial_sum_axis1 = _of_rows(serial_sum)
lanes_sum_axis1 = _of_rows(lanes_sum)
pairwise_sum_axis1 = _of_rows(pairwise_sum)
serial_matmul = _of_rows_and_columns(serial_dot)
fused_matmul = _of_rows_and_columns(fused_dot)
lanes_matmul = _of_rows_and_columns(lanes_dot)


# --- what Numba makes of NumPy's methods ----------------------------------------------------------------------------


@_compiled
def numpy_sum(x: Any) -> Any:
    return x.sum()


@_compiled
def numpy_sum_axis0(x: Any) -> Any:
    return x.sum(axis=0)


@_compiled
def numpy_sum_axis1(x: Any) -> Any:
    return x.sum(axis=1)


@_compiled
def numpy_mean(x: Any) -> Any:
    return x.mean()


@_compiled
def numpy_var(x: Any) -> Any:
    return x.var()


@_compiled
def numpy_std(x: Any) -> Any:
    return x.std()


@_compiled
def numpy_prod(x: Any) -> Any:
    return x.prod()


@_compiled
def numpy_cumsum(x: Any) -> Any:
    return x.cumsum()
