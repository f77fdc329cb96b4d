"""The special-function unit of NVIDIA GPUs of compute capability 9.0, in integers: every approximation it offers, to the bit.

The unit evaluates a quadratic in the low bits X of the significand, with coefficients chosen by its upper bits:

    P = K + C1 * X + C2 * s(X)

where ``s(X)`` is the square of X without the columns of partial products below 2**19, and nothing else is rounded; the
result is P cut off to 24 bits. The tables in ``special_function_unit.npz`` (627 rows of K, C1, C2) were fitted to the
outputs of an NVIDIA H200. All instructions were compared with it on all 2**32 bit patterns: every result is equal.

The instructions are those that flush subnormal numbers (``ex2.approx.ftz.f32`` of PTX and so on); ``tanh.approx.f32`` has
no such form, and keeps them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels._jit import kernel

EX2, RCP, RSQRT, SQRT, LG2, SIN, COS, TANH = range(8)
INSTRUCTIONS = ("ex2", "rcp", "rsqrt", "sqrt", "lg2", "sin", "cos", "tanh")

with np.load(Path(__file__).with_suffix(".npz"), allow_pickle=False) as _data:
    _EX2, _RCP, _RSQRT, _SQRT, _LG2, _SIN, _TANH = (
        np.ascontiguousarray(_data[name], np.int64) for name in ("ex2", "rcp", "rsqrt", "sqrt", "lg2", "sin", "tanh")
    )


def _kept_columns(n: int, first: int, square: bool) -> int:
    """Return the partial products of a 17-bit square from column 19 on: within n, or between its two halves."""
    bits = [k for k in range(17) if n >> k & 1]
    total = 0
    for k, a in enumerate(bits):
        if square and 2 * a >= 19:
            total += 1 << (2 * a)
        for b in bits[:k]:
            if a + b + 1 >= 19 and (square or b < first <= a):
                total += 1 << (a + b + 1)
    return total >> 19


# A square in two parts: the upper 9 bits with themselves, and with the lower 8, where bits 11..16 meet bits 2..7 alone.
_UPPER = np.array([_kept_columns(h << 8, 8, True) for h in range(512)], np.int64)
_MIXED = np.array([_kept_columns((k >> 6) << 11 | (k & 63) << 2, 8, False) for k in range(4096)], np.int64)

_INFINITY = np.float32(np.inf)
_NAN = np.float32(np.nan)
_ZERO, _ONE = np.float32(0), np.float32(1)
# For the exponents -8 to 2 of the operand of tanh: how many bits of its significand choose the row, and the first one.
_TANH_FIRST = -8
_TANH_BITS = np.array([0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3], np.int64)
_TANH_ROW = np.array([0, 1, 2, 3, 5, 7, 11, 15, 19, 27, 43], np.int64)
_PER_TURN = 0.15915493667125702  # float32(1 / (2 pi))


@kernel
def _bits(x: Any) -> Any:
    return np.int64(np.float32(x).view(np.uint32))


@kernel
def _float(bits: Any) -> Any:
    return np.uint32(bits).view(np.float32)


@kernel
def truncated_square(x: int) -> int:
    """Return the square of a 17-bit number over 2**19, of which the unit leaves out the lower columns."""
    return _UPPER[x >> 8] + _MIXED[(x >> 11) << 6 | (x & 255) >> 2]


@kernel
def _quadratic(table: Any, row: int, shift: int, constant: int, x: int, square: int) -> int:
    return (table[row, 0] << shift) + constant + table[row, 1] * x + table[row, 2] * square


@kernel
def ex2(x: Any) -> Any:
    """Return 2**x. Subnormal operands count as 0, results below 2**-126 are 0."""
    bits = _bits(x)
    magnitude = bits & 0x7FFFFFFF
    if magnitude > 0x7F800000:
        return _NAN
    negative = bits >> 31 == 1
    if magnitude >= 0x43000000:  # 128
        return _ZERO if negative else _INFINITY
    exponent = (magnitude >> 23) - 127
    significand = (magnitude & 0x7FFFFF) | 0x800000
    if exponent < -23:
        fixed = 0
    elif exponent >= 0:
        fixed = significand << exponent
    else:
        fixed = significand >> -exponent
    whole, fraction = fixed >> 23, fixed & 0x7FFFFF
    if negative:
        if fraction == 0:
            whole = -whole
            return _float((whole + 127) << 23) if whole >= -126 else _ZERO
        whole, fraction = -whole - 1, 0x7FFFFF - fraction
    if whole < -126:
        return _ZERO
    low = fraction & 0x1FFFF
    p = _quadratic(_EX2, fraction >> 17, 13, 6114, low, truncated_square(low))
    return _float(((whole + 127) << 23) + (p >> 15) - 0x800000)


@kernel
def rcp(x: Any) -> Any:
    """Return 1 / x. Subnormal operands count as 0, results below 2**-126 are 0."""
    bits = _bits(x)
    sign, magnitude = bits & 0x80000000, bits & 0x7FFFFFFF
    if magnitude > 0x7F800000:
        return _NAN
    if magnitude < 0x800000:
        return _float(sign | 0x7F800000)
    exponent, mantissa = (magnitude >> 23) - 127, magnitude & 0x7FFFFF
    if mantissa == 0:
        biased, p = 127 - exponent, 0
    else:
        low = mantissa & 0xFFFF
        p = (_quadratic(_RCP, mantissa >> 16, 13, 2023, low, truncated_square(2 * low)) >> 15) - 0x800000
        biased = 126 - exponent
    if biased < 1:
        return _float(sign)
    return _float(sign | (biased << 23) + p)


@kernel
def rsqrt(x: Any) -> Any:
    """Return 1 / sqrt(x). Subnormal operands count as 0."""
    bits = _bits(x)
    sign, magnitude = bits & 0x80000000, bits & 0x7FFFFFFF
    if magnitude > 0x7F800000:
        return _NAN
    if magnitude < 0x800000:
        return _float(sign | 0x7F800000)
    if sign != 0:
        return _NAN
    if magnitude == 0x7F800000:
        return _ZERO
    exponent, mantissa = (magnitude >> 23) - 127, magnitude & 0x7FFFFF
    odd = exponent & 1
    half = (exponent - odd) >> 1
    if (mantissa == 0) & (odd == 0):
        return _float((127 - half) << 23)
    low = mantissa & 0x1FFFF
    p = _quadratic(_RSQRT, (mantissa >> 17) + 64 * odd, 14, -1, low, truncated_square(low))
    return _float(((126 - half) << 23) + (p >> 16) - 0x800000)


@kernel
def sqrt(x: Any) -> Any:
    """Return the square root of x. Subnormal operands count as 0."""
    bits = _bits(x)
    sign, magnitude = bits & 0x80000000, bits & 0x7FFFFFFF
    if magnitude > 0x7F800000:
        return _NAN
    if magnitude < 0x800000:
        return _float(sign)
    if sign != 0:
        return _NAN
    if magnitude == 0x7F800000:
        return _INFINITY
    exponent, mantissa = (magnitude >> 23) - 127, magnitude & 0x7FFFFF
    odd = exponent & 1
    half = (exponent - odd) >> 1
    low = mantissa & 0x1FFFF
    p = _quadratic(_SQRT, (mantissa >> 17) + 64 * odd, 15, -1, low, truncated_square(low))
    return _float(((127 + half) << 23) + (p >> 17) - 0x800000)


@kernel
def _normalized(a: int, unit: int, sign: int) -> Any:
    """Return a * 2**-unit, cut off to 24 bits, for a positive a."""
    exponent = (np.float64(a).view(np.int64) >> 52) - 1023
    if exponent >= 23:
        significand = a >> (exponent - 23)
    else:
        significand = a << (23 - exponent)
    return _float(sign | (exponent - unit + 126 << 23) + significand)


@kernel
def lg2(x: Any) -> Any:
    """Return log2(x). Subnormal operands count as 0."""
    bits = _bits(x)
    sign, magnitude = bits & 0x80000000, bits & 0x7FFFFFFF
    if magnitude > 0x7F800000:
        return _NAN
    if magnitude < 0x800000:
        return _float(0xFF800000)
    if sign != 0:
        return _NAN
    if magnitude == 0x7F800000:
        return _INFINITY
    if bits == 0x3F800000:
        return _ZERO
    exponent, mantissa = (magnitude >> 23) - 127, magnitude & 0x7FFFFF
    low = mantissa & 0x1FFFF
    p = _quadratic(_LG2, mantissa >> 17, 12, 837, low, truncated_square(low))
    if exponent >= 0:
        return _normalized(((exponent << 38) + p) & ~3, 38, 0)
    return _normalized(((-exponent << 38) - p - 1) & ~3, 38, 0x80000000)


@kernel
def _scaled(x: Any) -> Any:
    """Return x / (2 pi) as the instruction before the unit gives it: rounded towards zero, without subnormals."""
    if _bits(x) & 0x7F800000 == 0:
        return _float(_bits(x) & 0x80000000)
    product = np.float64(x) * _PER_TURN
    rounded = np.float32(product)
    if abs(np.float64(rounded)) > abs(product):
        rounded = _float(_bits(rounded) - 1)
    if _bits(rounded) & 0x7F800000 == 0:
        return _float(_bits(rounded) & 0x80000000)
    return rounded


@kernel
def _sine(x: Any, quarter: int) -> Any:
    turns = _scaled(x)
    bits = _bits(turns)
    magnitude = bits & 0x7FFFFFFF
    if magnitude >= 0x7F800000:
        return _NAN
    exponent = (magnitude >> 23) - 127
    significand = (magnitude & 0x7FFFFF) | 0x800000
    shift = exponent + 2  # to units of 2**-25
    if (magnitude == 0) | (shift < -23):
        fixed = 0
    elif shift >= 0:
        fixed = significand << min(shift, 24) if shift < 25 else 0
    else:
        fixed = significand >> -shift
    sign = 0
    if bits >> 31 == 1:
        if quarter == 0:
            sign = 2
    quadrant = (fixed >> 23) + quarter + sign
    fraction = fixed & 0x7FFFFF
    if quadrant & 1:
        fraction = 0x7FFFFF - fraction
    low = fraction & 0x1FFFF
    p = _quadratic(_SIN, fraction >> 17, 12, 0, low, truncated_square(low))
    negative = (quadrant & 2) << 30
    if p <= 0:
        return _float(negative)
    return _normalized(min(p, 1 << 37), 37, negative)


@kernel
def sin(x: Any) -> Any:
    """Return sin(x) as ``__sinf`` gives it: one multiplication by 1 / (2 pi), and the unit."""
    return _sine(x, 0)


@kernel
def cos(x: Any) -> Any:
    """Return cos(x) as ``__cosf`` gives it: one multiplication by 1 / (2 pi), and the unit."""
    return _sine(x, 1)


@kernel
def tanh(x: Any) -> Any:
    """Return tanh(x): x itself below 2**-8 in magnitude, subnormal or not, and 1 from 8 on."""
    bits = _bits(x)
    sign, magnitude = bits & 0x80000000, bits & 0x7FFFFFFF
    if magnitude > 0x7F800000:
        return _NAN
    exponent, mantissa = (magnitude >> 23) - 127, magnitude & 0x7FFFFF
    if exponent < _TANH_FIRST:
        return np.float32(x)
    if exponent > 2:
        return _float(sign | 0x3F800000)
    width = _TANH_BITS[exponent - _TANH_FIRST]
    row = _TANH_ROW[exponent - _TANH_FIRST] + (mantissa >> (23 - width))
    low = mantissa >> (23 - width - 17) & 0x1FFFF
    p = _quadratic(_TANH, row, 15, 0, low, truncated_square(low))
    return _normalized(p, 39, sign)


@kernel
def evaluate(instruction: int, x: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Write an instruction of each x into out; the instructions are numbered as in `INSTRUCTIONS`."""
    n = x.size
    if instruction == EX2:
        for i in range(n):
            out[i] = ex2(x[i])
    elif instruction == RCP:
        for i in range(n):
            out[i] = rcp(x[i])
    elif instruction == RSQRT:
        for i in range(n):
            out[i] = rsqrt(x[i])
    elif instruction == SQRT:
        for i in range(n):
            out[i] = sqrt(x[i])
    elif instruction == LG2:
        for i in range(n):
            out[i] = lg2(x[i])
    elif instruction == SIN:
        for i in range(n):
            out[i] = sin(x[i])
    elif instruction == COS:
        for i in range(n):
            out[i] = cos(x[i])
    else:
        for i in range(n):
            out[i] = tanh(x[i])
