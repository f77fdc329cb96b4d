"""CUDA kernels that each realise one summation order, compiled by Numba.

A reduction kernel is put together from three device functions: a thread collects its terms, a block combines its
threads, and what the block has is stored. The zero that an accumulator starts from has the type of the terms: from a
Python float Numba would compute in float64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import numpy as np

#: What happens to two factors: the first alone is added, one fused multiply-add, or a rounded product is added.
Product = Literal["sum", "fused", "separate"]

GRID, BLOCK, TILE, ITEMS = 64, 256, 16, 4
_WARP, _EVERY_LANE = 32, 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Reduction:
    """How the kernel of one reduction is put together.

    Attributes
    ----------
    collect : {"grid_stride", "float4", "tile"}
        Which terms a thread adds: every one at a distance of all threads; the same with four neighbours at a time, in
        four accumulators; or four terms, `block` apart, of the block's own tile.
    combine : {"none", "fold", "down", "xor"}
        How a block of one thread, or of `block` threads is added: in shared memory by halves; by shuffles over
        16, 8, 4, 2, 1 lanes, then the same over the warps; or over 1, 2, 4, 8, 16 lanes, then warp after warp.
    store : {"partial", "atomic"}
        Each block's sum to its own place, or all of them added to one.
    block, grid : int
        Threads of a block, and blocks; 0 for as many as there are tiles.
    second : str
        The kernel that adds the sums of the blocks, in one block.
    order : str
        The text of its order.
    """

    collect: str
    combine: str
    order: str = ""
    second: str = ""
    store: str = "partial"
    block: int = BLOCK
    grid: int = GRID

    def blocks(self, n: int) -> int:
        """Return the number of blocks for n terms."""
        return self.grid or max(1, -(-n // (self.block * ITEMS)))


_LAUNCH = f"{GRID}, {BLOCK}"
#: The reductions by name; those that others run as their second pass have no order of their own.
REDUCTIONS = {
    "serial": Reduction("grid_stride", "none", "serial+start(0.0)", block=1, grid=1),
    "grid_stride": Reduction("grid_stride", "fold", f"cuda_reduce({_LAUNCH})", "grid_stride"),
    "shuffle_down": Reduction("grid_stride", "down", f"cuda_reduce({_LAUNCH}, warp=fold)", "shuffle_down"),
    "shuffle_xor": Reduction(
        "grid_stride", "xor", f"cuda_reduce({_LAUNCH}, warp=pairwise, combine=serial)", "shuffle_xor"
    ),
    "float4": Reduction("float4", "fold", f"cuda_reduce({_LAUNCH}, vector=4, second=serial)", "serial"),
    "two_pass": Reduction(
        "tile",
        "fold",
        f"cuda_reduce({{grid}}, {BLOCK}, items={ITEMS}, second=cuda_reduce(1, {2 * BLOCK}))",
        "512",
        grid=0,
    ),
    "512": Reduction("grid_stride", "fold", block=2 * BLOCK, grid=1),
    "atomic": Reduction("grid_stride", "fold", f"cuda_reduce({_LAUNCH}, second=serial+start(0.0)+ftz)", store="atomic"),
}
PRODUCTS = ("matmul_naive", "matmul_tiled")


def numba_cuda() -> Any:
    """Return the module ``numba.cuda``."""
    return import_module("numba.cuda")


@functools.cache
def source(kernel: str, product: Product, form: str = "float32", /) -> Callable[..., Any]:
    """Return the Python function of a kernel, to be compiled by ``numba.cuda`` without any fast-math option.

    `form` is float32 or float64: the type of the terms and of the sums.
    """
    if kernel in PRODUCTS:
        return _PRODUCT_KERNELS[kernel](_step("contracted" if product == "fused" else product, form), form)
    return _reduction(REDUCTIONS[kernel], _step(product, form), form)


def signature(kernel: str, form: str = "float32", /) -> tuple[Any, ...]:
    """Return the types of a kernel's arguments: x, y, out, or A, B, C."""
    types = import_module("numba.types")
    return (types.Array(_type(form), 2 if kernel in PRODUCTS else 1, "C"),) * 3


@functools.cache
def compiled(kernel: str, product: Product, form: str = "float32", /) -> Any:
    """Return the kernel, ready to be launched."""
    return numba_cuda().jit(source(kernel, product, form))


def _device(function: Callable[..., Any]) -> Any:
    return numba_cuda().jit(device=True, inline="always")(function)


def _type(form: str) -> Any:
    return getattr(import_module("numba"), form)


def _zero(form: str) -> Any:
    return np.dtype(form).type(0)


def _step(product: str, form: str) -> Any:
    """Return the function that takes two factors into an accumulator."""
    cuda, letter = numba_cuda(), "d" if form == "float64" else "f"
    add, multiply = (getattr(cuda.libdevice, f"{letter}{name}_rn") for name in ("add", "mul"))

    def alone(accumulator: Any, a: Any, b: Any) -> Any:  # noqa: ARG001
        return accumulator + a

    def fused(accumulator: Any, a: Any, b: Any) -> Any:
        return cuda.fma(a, b, accumulator)

    def contracted(accumulator: Any, a: Any, b: Any) -> Any:  # as users write it: the compiler fuses it by default
        return accumulator + a * b

    def separate(accumulator: Any, a: Any, b: Any) -> Any:
        return add(accumulator, multiply(a, b))

    steps = {"sum": alone, "fused": fused, "contracted": contracted, "separate": separate}
    return _device(steps[product])


def _reduction(parts: Reduction, step: Any, form: str) -> Callable[..., Any]:
    collect = _COLLECT[parts.collect](step, form)
    combine = _COMBINE[parts.combine](parts.block, form)
    store = _STORE[parts.store]()
    cuda = numba_cuda()

    def reduction(x: Any, y: Any, out: Any) -> None:
        total = combine(collect(x, y))
        if cuda.threadIdx.x == 0:
            store(out, total)

    return reduction


# --- what a thread collects -----------------------------------------------------------------------------------------


def _grid_stride(step: Any, form: str) -> Any:
    cuda, zero = numba_cuda(), _zero(form)

    def collect(x: Any, y: Any) -> Any:
        accumulator = zero
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            accumulator = step(accumulator, x[i], y[i])
        return accumulator

    return _device(collect)


def _tile(step: Any, form: str) -> Any:
    cuda, zero = numba_cuda(), _zero(form)

    def collect(x: Any, y: Any) -> Any:
        accumulator = zero
        first = cuda.blockIdx.x * cuda.blockDim.x * ITEMS + cuda.threadIdx.x
        for item in range(ITEMS):
            i = first + item * cuda.blockDim.x
            if i < x.size:
                accumulator = step(accumulator, x[i], y[i])
        return accumulator

    return _device(collect)


def _float4(step: Any, form: str) -> Any:
    cuda, zero, load = numba_cuda(), _zero(form), _vector_load(form)

    def collect(x: Any, y: Any) -> Any:
        s0, s1, s2, s3 = zero, zero, zero, zero
        thread, threads = cuda.grid(1), cuda.gridsize(1)
        whole = x.size // 4
        for i in range(thread, whole, threads):
            a, b = load(x, i), load(y, i)
            s0 = step(s0, a[0], b[0])
            s1 = step(s1, a[1], b[1])
            s2 = step(s2, a[2], b[2])
            s3 = step(s3, a[3], b[3])
        if whole % threads == thread:  # whose turn the last vector is, which has fewer than four terms
            i = 4 * whole
            if i < x.size:
                s0 = step(s0, x[i], y[i])
            if i + 1 < x.size:
                s1 = step(s1, x[i + 1], y[i + 1])
            if i + 2 < x.size:
                s2 = step(s2, x[i + 2], y[i + 2])
        return ((s0 + s1) + s2) + s3

    return _device(collect)


def _vector_load(form: str) -> Any:
    """Return the function that reads the four neighbours 4i, ..., 4i + 3 of an array at a multiple of 16 bytes."""
    ir, types = import_module("llvmlite.ir"), import_module("numba.types")
    gep_inbounds = import_module("numba.core.cgutils").gep_inbounds

    def load(context: Any, array: Any, index: Any) -> Any:
        del context
        result = types.UniTuple(_type(form), 4)

        def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            vector = ir.VectorType(ir.DoubleType() if form == "float64" else ir.FloatType(), 4)
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            pointer = builder.bitcast(data, vector.as_pointer())
            value = builder.load(gep_inbounds(builder, pointer, arguments[1]))
            value.align = 16
            lanes = [builder.extract_element(value, ir.Constant(ir.IntType(32), lane)) for lane in range(4)]
            return context.make_tuple(builder, signature.return_type, lanes)

        return result(array, index), lower

    return import_module("numba.cuda.extending").intrinsic(load)


_COLLECT = {"grid_stride": _grid_stride, "float4": _float4, "tile": _tile}


# --- how the threads of a block are added ---------------------------------------------------------------------------


def _none(block: int, form: str) -> Any:
    del block, form

    def combine(value: Any) -> Any:
        return value

    return _device(combine)


def _fold(block: int, form: str) -> Any:
    cuda, number = numba_cuda(), _type(form)

    def combine(value: Any) -> Any:
        shared = cuda.shared.array(block, number)
        thread = cuda.threadIdx.x
        shared[thread] = value
        cuda.syncthreads()
        half = block // 2
        while half > 0:
            if thread < half:
                shared[thread] += shared[thread + half]
            cuda.syncthreads()
            half //= 2
        return shared[0]

    return _device(combine)


def _down(block: int, form: str) -> Any:
    cuda, number, zero = numba_cuda(), _type(form), _zero(form)
    warps = block // _WARP

    def fold(value: Any) -> Any:
        offset = _WARP // 2
        while offset > 0:
            value += cuda.shfl_down_sync(_EVERY_LANE, value, offset)
            offset //= 2
        return value

    in_warp = _device(fold)

    def combine(value: Any) -> Any:
        sums = cuda.shared.array(_WARP, number)
        warp, lane = cuda.threadIdx.x // _WARP, cuda.threadIdx.x % _WARP
        value = in_warp(value)
        if lane == 0:
            sums[warp] = value
        cuda.syncthreads()
        value = sums[lane] if lane < warps else zero
        if warp == 0:
            value = in_warp(value)
        return value

    return _device(combine)


def _xor(block: int, form: str) -> Any:
    cuda, number = numba_cuda(), _type(form)
    warps = block // _WARP

    def combine(value: Any) -> Any:
        sums = cuda.shared.array(warps, number)
        warp, lane = cuda.threadIdx.x // _WARP, cuda.threadIdx.x % _WARP
        offset = 1
        while offset < _WARP:
            value += cuda.shfl_xor_sync(_EVERY_LANE, value, offset)
            offset *= 2
        if lane == 0:
            sums[warp] = value
        cuda.syncthreads()
        total = sums[0]
        for other in range(1, warps):
            total += sums[other]
        return total

    return _device(combine)


_COMBINE = {"none": _none, "fold": _fold, "down": _down, "xor": _xor}


# --- where the sum of a block goes ----------------------------------------------------------------------------------


def _partial() -> Any:
    cuda = numba_cuda()

    def store(out: Any, total: Any) -> None:
        out[cuda.blockIdx.x] = total

    return _device(store)


def _atomic() -> Any:
    cuda = numba_cuda()

    def store(out: Any, total: Any) -> None:
        cuda.atomic.add(out, 0, total)

    return _device(store)


_STORE = {"partial": _partial, "atomic": _atomic}


# --- matrix products ------------------------------------------------------------------------------------------------


def _matmul_naive(step: Any, form: str) -> Callable[..., Any]:
    cuda, zero = numba_cuda(), _zero(form)

    def matmul_naive(a: Any, b: Any, c: Any) -> None:
        column, row = cuda.grid(2)
        if row < c.shape[0] and column < c.shape[1]:
            accumulator = zero
            for k in range(a.shape[1]):
                accumulator = step(accumulator, a[row, k], b[k, column])
            c[row, column] = accumulator

    return matmul_naive


def _matmul_tiled(step: Any, form: str) -> Callable[..., Any]:
    cuda, number, zero = numba_cuda(), _type(form), _zero(form)

    def matmul_tiled(a: Any, b: Any, c: Any) -> None:
        left = cuda.shared.array((TILE, TILE), number)
        right = cuda.shared.array((TILE, TILE), number)
        column, row = cuda.grid(2)
        x, y = cuda.threadIdx.x, cuda.threadIdx.y
        accumulator = zero
        for first in range(0, a.shape[1], TILE):
            if row < a.shape[0] and first + x < a.shape[1]:
                left[y, x] = a[row, first + x]
            if first + y < a.shape[1] and column < b.shape[1]:
                right[y, x] = b[first + y, column]
            cuda.syncthreads()
            for k in range(min(TILE, a.shape[1] - first)):
                accumulator = step(accumulator, left[y, k], right[k, x])
            cuda.syncthreads()
        if row < c.shape[0] and column < c.shape[1]:
            c[row, column] = accumulator

    return matmul_tiled


_PRODUCT_KERNELS = {"matmul_naive": _matmul_naive, "matmul_tiled": _matmul_tiled}
