"""Sums on a CUDA GPU whose bits do not change from run to run: in a fixed order, or exact inside and rounded once."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from fpsim.devices import _cuda_kernels as kernels, _cuda_sums as sums
from fpsim.devices._cuda_kernels import numba_cuda
from fpsim.devices.numba_cuda import _found, _quietly
from fpsim.errors import InputError, MissingExtraError

#: Bits of a digit, and the exponents of the units of the digits: float32's numbers are below 2**128, multiples of 2**-149.
_WIDTH: Final = 40
UNITS: Final = tuple(128 - _WIDTH * (digit + 1) for digit in range(7))
#: Terms after which a thread empties its accumulators, so that these stay exact: 2**53 / 2**_WIDTH.
_TERMS: Final = 8192
BLOCK, _BLOCKS = 256, 1056
#: Numbers in memory: two halves of each digit, and how many NaN and infinities of each sign there were.
PLACES: Final = 2 * len(UNITS) + 3
#: What `ordered_sum` adds.
HOW: Final = ("float32", "pairwise", "neumaier", "float64")
cuda: Any = None  # the module numba.cuda, once a kernel is asked for


def reproducible_sum(x: Any, /, *, grid: int | None = None, block: int = BLOCK) -> np.float32:
    """Return the exactly rounded sum of float32 numbers, computed on a CUDA GPU.

    Parameters
    ----------
    x : array of float32
        On the host, or on the device (``numba.cuda.to_device``, CuPy, PyTorch: anything with the CUDA array interface).
    grid, block : int, optional
        Blocks, and threads of a block, a power of two up to 1024. They do not matter for the result.

    Returns
    -------
    float32
        The sum, rounded once to nearest even: the bits of ``fpsim.exact.sum(x).round("float32")``. Infinities and NaN
        give what IEEE additions give.

    Raises
    ------
    InputError
        The numbers are not float32, or the launch is not possible.
    MissingExtraError
        numba-cuda or a GPU is missing.

    Notes
    -----
    Each thread splits a number into seven digits of 40 bits at fixed places, by additions of 1.5 * 2**(52 + place) in
    float64, which are error-free (Demmel & Nguyen, ARITH 2013, "Fast reproducible floating-point summation", in the
    form of Rump, Ogita & Oishi's extraction, SIAM J. Sci. Comput. 31 (2008) 189-224). Digits are added exactly: up to
    8192 of them in float64, then as 64-bit integers, by atomic additions, whose order does not matter.
    """
    module = numba_cuda()
    values = _on_device(x, "reproducible_sum")
    places = module.to_device(np.zeros(PLACES, np.int64))
    with _quietly():
        kernel(_checked("block", block))[
            _checked("grid", grid or min(_BLOCKS, max(1, -(-values.size // block)))), block
        ](values, places)
    return result(places.copy_to_host())


def ordered_sum(x: Any, /, *, how: str = "neumaier", grid: int = _BLOCKS, block: int = BLOCK) -> np.float32:
    """Return a sum of float32 numbers, computed on a CUDA GPU in an order that the launch alone determines.

    Parameters
    ----------
    x : array of float32
        As for `reproducible_sum`.
    how : {"float32", "pairwise", "neumaier", "float64"}
        What is added: float32 numbers, each thread taking its terms in turn; the same in tiles of 1024 terms by
        halves, then their sums in tiles, and so on; float32 numbers with the sum of their rounding errors, added at
        the end; or float64 numbers.
    grid, block : int
        Blocks, and threads of a block, a power of two up to 1024. Not for ``pairwise``, which takes as many as it needs.

    Returns
    -------
    float32
        The bits of ``fpsim.sum(x, ordered_sum_strategy(x.size, ...))``.

    Raises
    ------
    InputError, MissingExtraError
        As for `reproducible_sum`.
    """
    _checked("grid", grid), _checked("block", block)
    _checked_how(how)
    module = numba_cuda()
    values = _on_device(x, "ordered_sum")
    with _quietly():
        if how == "pairwise":
            while True:
                blocks = _tiles(values.size)
                out = module.device_array(blocks, np.float32)
                kernels.compiled("two_pass", "sum")[blocks, kernels.BLOCK](values, values, out)
                if blocks == 1:
                    return np.float32(out.copy_to_host()[0])
                values = out
        dtype = sums.accumulator(how)
        totals, errors = module.device_array(grid, dtype), module.device_array(grid, dtype)
        out = module.device_array(1, np.float32)
        sums.kernel(how, block, last=False)[grid, block](values, totals, errors)
        sums.kernel(how, block, last=True)[1, block](totals, errors, out)
    return np.float32(out.copy_to_host()[0])


def ordered_sum_strategy(n: int, /, *, how: str = "neumaier", grid: int = _BLOCKS, block: int = BLOCK) -> str:
    """Return the strategy of `ordered_sum` for n terms.

    Examples
    --------
    >>> from fpsim.devices.cuda import ordered_sum_strategy
    >>> ordered_sum_strategy(10**6, how="float64")
    'cuda_reduce(1056, 256)+acc(float64)+output(float32)'
    """
    _checked_how(how)
    if how != "pairwise":
        return f"cuda_reduce({grid}, {block}){sums.SETTINGS[how]}"
    blocks = _tiles(n)
    second = f", second={ordered_sum_strategy(blocks, how=how)}" if blocks > 1 else ""
    return f"cuda_reduce({blocks}, {kernels.BLOCK}, items={kernels.ITEMS}{second})"


def _tiles(n: int) -> int:
    return max(1, -(-n // (kernels.BLOCK * kernels.ITEMS)))


def _checked_how(how: str) -> None:
    if how not in HOW:
        message = f"how must be one of {', '.join(HOW)}, not {how!r}"
        raise InputError(message)


def _on_device(x: Any, name: str) -> Any:
    """Return the numbers as an array of Numba on the device."""
    _require_gpu(name)
    module = numba_cuda()
    given = x if hasattr(x, "__cuda_array_interface__") else module.to_device(_host(x, name))
    values = module.as_cuda_array(given) if not hasattr(given, "copy_to_host") else given
    if values.dtype != np.float32:
        message = f"{name} takes float32, not {values.dtype}"
        raise InputError(message)
    if values.ndim != 1 or not values.is_c_contiguous():
        message = f"{name} takes a contiguous array of one dimension on the device; pass x.ravel()"
        raise InputError(message)
    return values


@functools.cache
def _require_gpu(name: str) -> None:
    reason = _found()[0]
    if reason:
        message = f"{name} needs a CUDA GPU: {reason}"
        raise MissingExtraError(message)


def _host(x: Any, name: str) -> Any:
    array = np.asarray(x)
    if array.dtype != np.float32:
        message = f"{name} takes float32, not {array.dtype}"
        raise InputError(message)
    return np.ascontiguousarray(array).reshape(-1)


def _checked(name: str, value: int) -> int:
    if value < 1 or (name == "block" and (value > 1024 or value & (value - 1))):
        wanted = "a power of two up to 1024" if name == "block" else "a whole number of at least 1"
        message = f"{name} must be {wanted}, not {value!r}"
        raise InputError(message)
    return value


def result(places: Any, /) -> np.float32:
    """Return the number that the digits in memory stand for, rounded to float32."""
    from fpsim._exact_values import _round_integer
    from fpsim.formats import FLOAT32

    *digits, invalid, up, down = (int(place) for place in places)
    if invalid or (up and down):
        return np.float32(math.nan)
    if up or down:
        return np.float32(math.inf if up else -math.inf)
    total = 0
    for low, high in zip(digits[::2], digits[1::2], strict=True):
        total = (total << _WIDTH) + (high << 32) + low
    return np.float32(_round_integer(total, UNITS[-1], FLOAT32, "nearest-even"))


@functools.cache
def kernel(block: int, /) -> Any:
    """Return the kernel, ready to be launched with so many threads."""
    return numba_cuda().jit(source(block))


def source(block: int, /) -> Callable[..., Any]:
    """Return the Python function of the kernel, to be compiled without any fast-math option."""
    globals()["cuda"] = numba_cuda()  # as a global, which Numba's simulator can replace by its own
    m0, m1, m2, m3, m4, m5, m6 = (1.5 * 2.0 ** (52 + unit) for unit in UNITS)
    w0, w1, w2, w3, w4, w5, w6 = (2.0**-unit for unit in UNITS)
    large, int64 = np.float32(2.0 ** (UNITS[1] - 1)), np.int64  # smaller numbers have no digits 0 and 1
    largest = np.float32(np.finfo(np.float32).max)

    def store(places: Any, shared: Any, digit: Any, value: Any) -> None:
        """Add a digit of every thread of the block to memory, in two halves."""
        thread = cuda.threadIdx.x
        for half in range(2):
            cuda.syncthreads()
            shared[thread] = value & 0xFFFFFFFF if half == 0 else value >> 32
            distance = block // 2
            while distance > 0:
                cuda.syncthreads()
                if thread < distance:
                    shared[thread] += shared[thread + distance]
                distance //= 2
            if thread == 0:
                cuda.atomic.add(places, 2 * digit + half, shared[0])

    store = cuda.jit(device=True, inline="always")(store)

    def added(value: Any, places: Any, sums: Any) -> Any:
        """Return the sums of digits with those of one more number."""
        s0, s1, s2, s3, s4, s5, s6 = sums
        rest = float(value)
        if not abs(value) < large:
            if not abs(value) <= largest:
                place = 14 if value != value else (15 if value > 0 else 16)  # noqa: PLR0124
                cuda.atomic.add(places, place, int64(1))
                rest = 0.0
            q = (rest + m0) - m0
            s0 += q
            rest -= q
            q = (rest + m1) - m1
            s1 += q
            rest -= q
        q = (rest + m2) - m2
        s2 += q
        rest -= q
        q = (rest + m3) - m3
        s3 += q
        rest -= q
        q = (rest + m4) - m4
        s4 += q
        rest -= q
        if rest != 0.0:  # it has digits below 2**-73
            q = (rest + m5) - m5
            s5 += q
            rest -= q
            q = (rest + m6) - m6
            s6 += q
        return s0, s1, s2, s3, s4, s5, s6

    added = cuda.jit(device=True, inline="always")(added)

    def reproducible(x: Any, places: Any) -> None:
        shared = cuda.shared.array(block, int64)
        first, step = cuda.grid(1), cuda.gridsize(1)
        rounds = (x.size + step * _TERMS - 1) // (step * _TERMS)
        for number in range(rounds):
            sums = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
            i = first + number * step * _TERMS
            stop = min(x.size, i + step * _TERMS)
            while i + 3 * step < stop:  # four loads under way at a time
                a, b, c, d = x[i], x[i + step], x[i + 2 * step], x[i + 3 * step]
                sums = added(d, places, added(c, places, added(b, places, added(a, places, sums))))
                i += 4 * step
            while i < stop:
                sums = added(x[i], places, sums)
                i += step
            s0, s1, s2, s3, s4, s5, s6 = sums
            store(places, shared, 0, int64(s0 * w0))
            store(places, shared, 1, int64(s1 * w1))
            store(places, shared, 2, int64(s2 * w2))
            store(places, shared, 3, int64(s3 * w3))
            store(places, shared, 4, int64(s4 * w4))
            store(places, shared, 5, int64(s5 * w5))
            store(places, shared, 6, int64(s6 * w6))

    return reproducible
