"""CUDA's float32 logarithms, to the bit; see `fpsim.kernels.cuda_functions`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpsim.kernels._jit import kernel
from fpsim.kernels.cuda_arithmetic import bits_of, coefficients, float_of, flushed, polynomial
from fpsim.kernels.elementwise import fma32

_ZERO, _ONE = np.float32(0), np.float32(1)
_INFINITY, _NAN = np.float32(np.inf), np.float32(np.nan)
_SMALLEST_NORMAL = np.float32(2.0**-126)
_LOG2E = np.float32(1.4426950408889634)
_LN2 = np.float32(0.6931471805599453)
_LN2_23 = np.float32(0.6931471805599453 * 2.0**-23)
_TWO_THIRDS, _ROOT_HALF_BITS = 0x3F2AAAAB, 0x3F3504F3
_LOG = coefficients(
    "-0x1.0aa04ep-3", "0x1.2073ecp-3", "-0x1.f19b98p-4", "0x1.1e52aap-3", "-0x1.55b172p-3", "0x1.99da16p-3",
    "-0x1.fffe44p-3", "0x1.5554f0p-2", "-0x1p-1",
)  # fmt: skip
_LOG2 = coefficients(
    "0x1.8d6508p-4", "-0x1.58fe62p-3", "0x1.5f9e54p-3", "-0x1.6e9c86p-3", "0x1.a417e8p-3", "-0x1.ec7916p-3",
    "0x1.277f32p-2", "-0x1.715492p-2", "0x1.ec7094p-2", "-0x1.715476p-1",
)  # fmt: skip
_LOG1P = coefficients(
    "-0x1.737ef0p-5", "0x1.b00024p-4", "-0x1.0ef1c0p-3", "0x1.28c8eap-3", "-0x1.54d1bap-3", "0x1.995f3cp-3",
    "-0x1.000084p-2", "0x1.5555ccp-2", "-0x1p-1",
)  # fmt: skip


@kernel
def _scaled_log(a: Any, factors: Any) -> Any:
    m = polynomial(factors, a)
    return fma32(np.float32(m * a), a, a)


@kernel
def _parts(x: Any, least: int) -> Any:
    """Return m and e of a positive x = (1 + m) 2**e, with 1 + m from the float32 number of these bits to its double."""
    exponent = _ZERO
    if x < _SMALLEST_NORMAL:
        x = np.float32(x * np.float32(2.0**23))
        exponent = np.float32(-23)
    bits = bits_of(x)
    e = (bits - least) >> 23 << 23
    return np.float32(float_of(bits - e) - _ONE), fma32(np.float32(e), np.float32(2.0**-23), exponent)


@kernel
def log(x: Any, flush: bool) -> Any:
    """Return log(x) = e log(2) + log(1 + m), with 1 + m from 2/3 to 4/3."""
    x = flushed(x, flush)
    if not ((x > _ZERO) & (x < _INFINITY)):
        if x == _ZERO:
            return -_INFINITY
        return x if x == _INFINITY else _NAN
    m, exponent = _parts(x, _TWO_THIRDS)
    return flushed(fma32(exponent, _LN2, _scaled_log(m, _LOG)), flush)


@kernel
def log2(x: Any, flush: bool) -> Any:
    """Return log2(x) = e + log2(1 + m), with 1 + m from sqrt(1/2) to sqrt(2)."""
    x = flushed(x, flush)
    if not ((x > _ZERO) & (x < _INFINITY)):
        if x == _ZERO:
            return -_INFINITY
        return x if x == _INFINITY else _NAN
    m, exponent = _parts(x, _ROOT_HALF_BITS)
    y = np.float32(np.float32(polynomial(_LOG2, m) * m) * m)
    return flushed(np.float32(exponent + fma32(m, _LOG2E, y)), flush)


@kernel
def log1p(x: Any, flush: bool) -> Any:
    """Return log(1 + x) = e log(2) + log(1 + m), with m from -1/4 to 1/2."""
    x = flushed(x, flush)
    if not ((x > -_ONE) & (x < _INFINITY)):
        if x == -_ONE:
            return -_INFINITY
        return x if x == _INFINITY else _NAN
    if x == _ZERO:
        return x
    exact = np.float64(x) + 1.0
    u = np.float32(exact)
    if (np.float64(u) > exact) | ((exact == 1.0) & (x < _ZERO)):
        u = float_of(bits_of(u) - 1)
    e = (bits_of(u) - 0x3F400000) >> 23 << 23
    m = float_of(bits_of(x) - e) if bits_of(x) - e > -0x80000000 else _ZERO
    quarter = float_of(0x40800000 - e)
    m = np.float32(m + fma32(np.float32(0.25), quarter, -_ONE))
    return flushed(fma32(np.float32(e), _LN2_23, _scaled_log(m, _LOG1P)), flush)
