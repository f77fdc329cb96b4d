"""CUDA kernels that add float32 numbers in one order of a launch, with more or less care, compiled by Numba.

A thread takes every term at a distance of all threads, a block adds its threads by halves in shared memory and stores
its sum, and a second launch with one block adds the sums of the blocks in the same way. What the threads hold is a
float32 number, a float64 number, or a float32 number and the sum of its rounding errors (Neumaier, ZAMM 54 (1974) 39-51).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import numpy as np

from fpsim.devices._cuda_kernels import numba_cuda

#: The settings of a strategy that each kind of accumulator stands for.
SETTINGS: Final = {"float32": "", "float64": "+acc(float64)+output(float32)", "neumaier": "+neumaier"}
cuda: Any = None  # the module numba.cuda, once a kernel is asked for


@functools.cache
def kernel(kind: str, block: int, /, *, last: bool) -> Any:
    """Return a kernel, ready to be launched with so many threads."""
    return numba_cuda().jit(source(kind, block, last=last))


def accumulator(kind: str, /) -> type[np.float32 | np.float64]:
    """Return the type of the sums of blocks."""
    return np.float64 if kind == "float64" else np.float32


def signature(kind: str, /, *, last: bool) -> tuple[Any, ...]:
    """Return the types of a kernel's arguments: x, sums, errors; or sums, errors, out."""
    types = import_module("numba.types")
    terms, sums = types.Array(types.float32, 1, "C"), types.Array(getattr(types, accumulator(kind).__name__), 1, "C")
    return (sums, sums, terms) if last else (terms, sums, sums)


def source(kind: str, block: int, /, *, last: bool) -> Callable[..., Any]:
    """Return the Python function of the first kernel or of the last, to be compiled without any fast-math option."""
    globals()["cuda"] = numba_cuda()  # as a global, which Numba's simulator can replace by its own
    number = accumulator(kind)
    zero, narrow, largest = number(0.0), np.float32, np.float32(np.finfo(np.float32).max)

    def plain(total: Any, error: Any, term: Any, own: Any) -> Any:  # noqa: ARG001
        return total + number(term), error

    def corrected(total: Any, error: Any, term: Any, own: Any) -> Any:
        after = total + term
        if abs(after) <= largest:
            lost = (total - after) + term if abs(total) >= abs(term) else (term - after) + total
            error += lost
        return after, error + own

    added = cuda.jit(device=True, inline="always")(corrected if kind == "neumaier" else plain)

    def combined(total: Any, error: Any) -> Any:
        """Return what the threads of the block have, added by halves."""
        totals = cuda.shared.array(block, number)
        errors = cuda.shared.array(block, number)  # on a line of its own, by which Numba's simulator tells arrays apart
        thread, half = cuda.threadIdx.x, block // 2
        totals[thread], errors[thread] = total, error
        cuda.syncthreads()
        while half > 0:
            if thread < half:
                totals[thread], errors[thread] = added(
                    totals[thread], errors[thread], totals[thread + half], errors[thread + half]
                )
            cuda.syncthreads()
            half //= 2
        return totals[0], errors[0]

    combined = cuda.jit(device=True, inline="always")(combined)

    def first_pass(x: Any, sums: Any, errors: Any) -> None:
        i, step = cuda.grid(1), cuda.gridsize(1)
        total, error = zero, zero
        while i + 3 * step < x.size:  # four loads under way at a time
            a, b, c, d = x[i], x[i + step], x[i + 2 * step], x[i + 3 * step]
            total, error = added(total, error, a, zero)
            total, error = added(total, error, b, zero)
            total, error = added(total, error, c, zero)
            total, error = added(total, error, d, zero)
            i += 4 * step
        while i < x.size:
            total, error = added(total, error, x[i], zero)
            i += step
        total, error = combined(total, error)
        if cuda.threadIdx.x == 0:
            sums[cuda.blockIdx.x], errors[cuda.blockIdx.x] = total, error

    def last_pass(sums: Any, errors: Any, out: Any) -> None:
        total, error = zero, zero
        for i in range(cuda.threadIdx.x, sums.size, block):
            total, error = added(total, error, sums[i], errors[i])
        total, error = combined(total, error)
        if cuda.threadIdx.x == 0:
            if abs(total) <= largest:
                total += error
            out[0] = narrow(total)

    return last_pass if last else first_pass
