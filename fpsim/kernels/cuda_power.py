"""CUDA's float32 power function, to the bit; see `fpsim.kernels.cuda_functions`.

The form is that of a power function that N. Juffa published (Stack Overflow, answer 40519989), but to base 2: a logarithm
in two numbers by way of (m - 1) / (m + 1). The order of its low terms, its constants and its coefficients were fitted to
outputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels import special_function_unit as unit
from fpsim.kernels._jit import kernel
from fpsim.kernels.cuda_arithmetic import bits_of, coefficients, float_of, flushed, polynomial
from fpsim.kernels.elementwise import fma32

_ZERO, _ONE, _THREE = np.float32(0), np.float32(1), np.float32(3)
_INFINITY, _NAN = np.float32(np.inf), np.float32(np.nan)
_SMALLEST_NORMAL = np.float32(2.0**-126)
_ROOT_HALF_BITS = 0x3F3504F3
_LOG2E = np.float32(1.4426950408889634)
_LOG2E_REST = np.float32(float.fromhex("0x1.4abc66p-26"))
_FARTHEST = np.float32(160)  # exponents beyond which a result overflows, or underflows to zero
_LOG2 = coefficients("0x1.5865c6p-11", "0x1.a5cfb6p-9", "0x1.2776e6p-6", "0x1.ec709ep-4")
_EXP2 = coefficients(
    "0x1.3f971cp-13", "0x1.5f0bdap-10", "0x1.3b30acp-7", "0x1.c6af76p-5", "0x1.ebfbd8p-3", "0x1.62e430p-1", "0x1p0",
)  # fmt: skip


@kernel
def _log2(x: Any) -> Any:
    """Return log2(x) of a positive x as the sum of two numbers: e + log2(m), with m from sqrt(1/2) to sqrt(2)."""
    exponent = _ZERO
    if x < _SMALLEST_NORMAL:
        x = np.float32(x * np.float32(2.0**24))
        exponent = np.float32(-24)
    e = (bits_of(x) - _ROOT_HALF_BITS) >> 23
    m = float_of(bits_of(x) - (e << 23))
    exponent = np.float32(exponent + np.float32(e))
    a = np.float32(m - _ONE)
    r = unit.rcp(np.float32(m + _ONE))
    u = np.float32(r * np.float32(a + a))  # 2 (m - 1) / (m + 1), and what it lacks of that
    rest = np.float32(a - u)
    rest = np.float32(r * fma32(-u, a, np.float32(rest + rest)))
    s = np.float32(u * u)
    p = np.float32(polynomial(_LOG2, s) * s)
    high = fma32(u, _LOG2E, exponent)
    low = fma32(u, _LOG2E, np.float32(exponent - high))
    low = fma32(u, _LOG2E_REST, fma32(rest, _LOG2E, low))
    low = fma32(p, u, fma32(np.float32(p * _THREE), rest, low))
    total = np.float32(high + low)
    return total, np.float32(low - np.float32(total - high))


@kernel
def _positive(x: Any, y: Any) -> Any:
    """Return x**y for a positive finite x other than 1 and a finite y: 2**(n + f) with abs(f) up to 1/2."""
    high, low = _log2(x)
    t = np.float32(high * y)
    if abs(t) > _FARTHEST:
        return _INFINITY if t > _ZERO else _ZERO
    rest = fma32(low, y, fma32(high, y, -t))
    n = np.rint(t)
    f = np.float32(np.float32(t - n) + rest)
    return np.float32(np.float64(polynomial(_EXP2, f)) * 2.0 ** np.float64(n))


@kernel
def power(x: Any, y: Any, flush: bool) -> Any:
    """Return x**y, in special cases as IEEE 754 demands of pow."""
    x, y = flushed(x, flush), flushed(y, flush)
    if (x == _ONE) | (y == _ZERO):
        return _ONE
    if (x != x) | (y != y):  # noqa: PLR0124
        return _NAN
    size = abs(y)
    whole = np.floor(size) == size
    odd = whole & (size < np.float32(2.0**24)) & (np.floor(size * np.float32(0.5)) * np.float32(2) != size)
    t = abs(x)
    if (t == _ZERO) | (t == _INFINITY):
        z = _INFINITY if (t == _INFINITY) == (y > _ZERO) else _ZERO
    elif (x < _ZERO) & (not whole):
        return _NAN
    elif t == _ONE:
        z = _ONE
    elif size == _INFINITY:
        z = _INFINITY if (t > _ONE) == (y > _ZERO) else _ZERO
    else:
        z = flushed(_positive(t, y), flush)
    return np.float32(-z) if odd & (np.copysign(_ONE, x) < _ZERO) else z


@kernel
def powers(flush: bool, x: NDArray[np.float32], y: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Write each x to the power of its y into out."""
    for i in range(x.size):
        out[i] = power(x[i], y[i], flush)
