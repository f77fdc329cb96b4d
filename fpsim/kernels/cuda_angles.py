"""CUDA's float32 sine and cosine, to the bit; see `fpsim.kernels.cuda_functions`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpsim.kernels._jit import kernel
from fpsim.kernels.cuda_arithmetic import bits_of, coefficients, flushed, polynomial
from fpsim.kernels.elementwise import fma32

_ZERO, _ONE = np.float32(0), np.float32(1)
_INFINITY, _NAN = np.float32(np.inf), np.float32(np.nan)
_SIN = coefficients("-0x1.9a82a6p-13", "0x1.110bc8p-7", "-0x1.555550p-3")
_COS = coefficients("0x1.975800p-16", "-0x1.6c0fdap-10", "0x1.555576p-5", "-0x1.fffffep-2")

# The first bits of 2 / pi, in words of 32, for the reduction of large angles.
_TWO_OVER_PI = np.array([0, 0x28BE60DB, 0x9391054A, 0x7F09D5F4, 0x7D4D3770, 0x36D8A566, 0x4F10E410, 0], np.uint64)
_PER_RIGHT_ANGLE = np.float32(0.6366197723675814)  # 2 / pi
_RIGHT_ANGLE = (-np.float32(float.fromhex("0x1.921fb0p+0")), -np.float32(float.fromhex("0x1.5110b4p-22")),
                -np.float32(float.fromhex("0x1.846988p-48")))  # fmt: skip
_REDUCED_EXACTLY = np.float32(105615)


@kernel
def _large_angle(x: Any) -> Any:
    """Return the remainder of x by pi/2 and the quotient, from 96 bits of 2/pi (Payne, Hanek, 1983)."""
    bits = bits_of(x)
    e = ((bits >> 23) & 0xFF) - 126
    significand = np.uint64(((bits & 0x7FFFFF) | 0x800000) << 8)
    i, left, right = e >> 5, np.uint64(e & 31), np.uint64(32 - (e & 31))
    word = np.uint64(0xFFFFFFFF)
    hi = ((_TWO_OVER_PI[i] << left) | (_TWO_OVER_PI[i + 1] >> right)) & word
    mid = ((_TWO_OVER_PI[i + 1] << left) | (_TWO_OVER_PI[i + 2] >> right)) & word
    lo = ((_TWO_OVER_PI[i + 2] << left) | (_TWO_OVER_PI[i + 3] >> right)) & word
    product = significand * mid + ((significand * lo) >> np.uint64(32))
    product = (((significand * hi) & word) << np.uint64(32)) + product
    quotient = np.int64(product >> np.uint64(62))
    fraction = np.int64(product & np.uint64(0x3FFFFFFFFFFFFFFF))
    if fraction & 0x2000000000000000:
        fraction -= 0x4000000000000000
        quotient += 1
    remainder = np.float32(np.float64(fraction) * (1.5707963267948966 * 2.0**-62))
    if x < _ZERO:
        return -remainder, -quotient
    return remainder, quotient


@kernel
def _angle(x: Any) -> Any:
    """Return the remainder of x by pi/2 and the quotient, in three steps if x is small enough (Cody, Waite, 1980)."""
    if abs(x) > _REDUCED_EXACTLY:
        return _large_angle(x)
    j = np.float32(np.rint(np.float32(x * _PER_RIGHT_ANGLE)) + _ZERO)
    r = fma32(j, _RIGHT_ANGLE[0], x)
    r = fma32(j, _RIGHT_ANGLE[1], r)
    return fma32(j, _RIGHT_ANGLE[2], r), np.int64(j)


@kernel
def _sine(x: Any, quarter: int, flush: bool) -> Any:
    x = flushed(x, flush)
    if not abs(x) < _INFINITY:
        return _NAN
    r, quotient = _angle(x)
    quotient += quarter
    s = np.float32(r * r)
    if quotient & 1:
        y = fma32(polynomial(_COS, s), s, _ONE)
    else:
        y = fma32(polynomial(_SIN, s), fma32(s, r, _ZERO), r)
    return flushed(-y if quotient & 2 else y, flush)


@kernel
def sin(x: Any, flush: bool) -> Any:
    """Return sin(x)."""
    return _sine(x, 0, flush)


@kernel
def cos(x: Any, flush: bool) -> Any:
    """Return cos(x)."""
    return _sine(x, 1, flush)
