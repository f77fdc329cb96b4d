"""Kernels of ``numba.cuda`` as users write them, with the host functions that launch them."""

# mypy: ignore-errors
from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, float32
from numba.cuda import libdevice

TILE = 4


@cuda.jit
def block_kernel(x: Any, out: Any) -> None:
    """Each thread its terms, serially; then the threads by halves."""
    shared = cuda.shared.array(16, float32)
    t = cuda.threadIdx.x
    total = np.float32(0)
    for i in range(t, x.size, cuda.blockDim.x):
        total += x[i]
    shared[t] = total
    cuda.syncthreads()
    half = 8
    while half > 0:
        if t < half:
            shared[t] += shared[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        out[0] = shared[0]


def block_sum(x: Any) -> Any:
    out = cuda.device_array(1, np.float32)
    block_kernel[1, 16](cuda.to_device(x), out)
    return out.copy_to_host()[0]


@cuda.jit
def wide_kernel(x: Any, out: Any) -> None:
    total = 0.0  # a float64 for the compiler, a float32 for NumPy
    for i in range(x.size):
        total += x[i]
    out[0] = total


def wide_sum(x: Any) -> Any:
    out = np.zeros(1, np.float32)
    wide_kernel[1, 1](x, out)
    return out[0]


@cuda.jit
def matmul_kernel(a: Any, b: Any, c: Any) -> None:
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array((TILE, TILE), float32)
    column, row = cuda.grid(2)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    total = np.float32(0)
    for first in range(0, a.shape[1], TILE):
        left[y, x] = a[row, first + x] if row < a.shape[0] and first + x < a.shape[1] else np.float32(0)
        right[y, x] = b[first + y, column] if first + y < b.shape[0] and column < b.shape[1] else np.float32(0)
        cuda.syncthreads()
        for k in range(TILE):
            total += left[y, k] * right[k, x]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


def tiled_matmul(a: Any, b: Any) -> Any:
    c = cuda.device_array((a.shape[0], b.shape[1]), np.float32)
    grid = (-(-b.shape[1] // TILE), -(-a.shape[0] // TILE))
    matmul_kernel[grid, (TILE, TILE)](cuda.to_device(a), cuda.to_device(b), c)
    return c.copy_to_host()


@cuda.jit
def dot_kernel(x: Any, y: Any, out: Any) -> None:
    total = np.float32(0)
    for i in range(x.size):
        total += x[i] * y[i]
    out[0] = total


def dot(x: Any, y: Any) -> Any:
    out = cuda.device_array(1, np.float32)
    dot_kernel[1, 1](x, y, out)
    return out.copy_to_host()[0]


@cuda.jit
def atomic_kernel(x: Any, out: Any) -> None:
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(out, 0, x[i])


def atomic_sum(x: Any) -> Any:
    out = np.zeros(1, np.float32)
    atomic_kernel[2, 8](x, out)
    return out[0]


@cuda.jit
def warp_kernel(x: Any, out: Any) -> None:
    value = x[cuda.threadIdx.x]
    offset = 16
    while offset > 0:
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, offset)
        offset //= 2
    if cuda.threadIdx.x == 0:
        out[0] = value


def warp_sum(x: Any) -> Any:
    out = np.zeros(1, np.float32)
    warp_kernel[1, 32](x, out)
    return out[0]


@cuda.jit
def separate_kernel(x: Any, y: Any, out: Any) -> None:
    total = np.float32(0)
    for i in range(x.size):
        total = libdevice.fadd_rn(total, libdevice.fmul_rn(x[i], y[i]))
    out[0] = total


def separate_dot(x: Any, y: Any) -> Any:
    out = cuda.device_array(1, np.float32)
    separate_kernel[1, 1](x, y, out)
    return out.copy_to_host()[0]


@cuda.jit
def exponential_kernel(x: Any, out: Any) -> None:
    total = np.float32(0)
    for i in range(x.size):
        total += libdevice.fast_expf(x[i])
    out[0] = total


def exponentials(x: Any) -> Any:
    out = np.zeros(1, np.float32)
    exponential_kernel[1, 1](x, out)
    return out[0]
