"""Exact sums and dot products: integer digits that hold any sum of doubles or of their products.

A block of terms is folded in float64: with ``M = 1.5 * 2**(52 + cut)`` and ``|t| < 2**(51 + cut)`` the bits of ``t + M``
are the bits of ``M`` plus the integer nearest to ``t / 2**cut``, so that integer additions sum them without error, and
``t - ((t + M) - M)`` is what the next fold, 51 bits lower, has to take. As many folds are done as the block's exponents
need. The few integers of each block then go to a superaccumulator of 32-bit digits (Kulisch). Blocks that hold NaN,
infinities, or numbers too large for ``M`` go to the digits one term at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fpsim.kernels._jit import kernel

BLOCK = 2048
FOLD = 51
DIGIT = 32

# What a sum has met; OTHER is any term but -0.
NAN, PLUS_INFINITY, MINUS_INFINITY, OTHER = 1, 2, 4, 8


@intrinsic
def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """Fused multiply-add of float64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        double = ir.DoubleType()
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(double, [double] * 3), "llvm.fma.f64"
        )
        return builder.call(function, args)

    return types.float64(types.float64, types.float64, types.float64), codegen


@kernel
def power(exponent):
    """2**exponent for -1074 <= exponent <= 1023."""
    if exponent >= -1022:
        return np.int64((np.int64(exponent) + 1023) << 52).view(np.float64)
    return np.int64(np.int64(1) << (np.int64(exponent) + 1074)).view(np.float64)


@kernel
def add_integer(digits, value, position):
    """Add value * 2**position; each of the three digits it touches grows by less than 2**33."""
    k = position >> 5
    r = position & 31
    low = (value & 0xFFFFFFFF) << r
    high = (value >> 32) << r
    digits[k] += low & 0xFFFFFFFF
    digits[k + 1] += (low >> 32) + (high & 0xFFFFFFFF)
    digits[k + 2] += high >> 32


@kernel
def normalise(digits):
    """Bring all digits but the last, which keeps the sign, to 0 <= digit < 2**32."""
    carry = np.int64(0)
    last = digits.size - 1
    for k in range(last):
        d = digits[k] + carry
        digits[k] = d & 0xFFFFFFFF
        carry = d >> 32
    digits[last] += carry


@kernel
def _fold1(x, m1):
    a = np.int64(0)
    for i in range(x.size):
        a += np.float64(np.float64(x[i]) + m1).view(np.int64)
    return a


@kernel
def _fold2(x, m1, m2):
    a = np.int64(0)
    b = np.int64(0)
    for i in range(x.size):
        t = np.float64(x[i])
        u = np.float64(t + m1)
        a += u.view(np.int64)
        b += np.float64(t - (u - m1) + m2).view(np.int64)
    return a, b


@kernel
def _fold3(x, m1, m2, m3):
    a = np.int64(0)
    b = np.int64(0)
    c = np.int64(0)
    for i in range(x.size):
        t = np.float64(x[i])
        u = np.float64(t + m1)
        a += u.view(np.int64)
        t -= u - m1
        u = np.float64(t + m2)
        b += u.view(np.int64)
        c += np.float64(t - (u - m2) + m3).view(np.int64)
    return a, b, c


@kernel
def _peel(x, rest, m1, m2, m3):
    """Three folds, and what they leave."""
    a = np.int64(0)
    b = np.int64(0)
    c = np.int64(0)
    for i in range(x.size):
        t = np.float64(x[i])
        u = np.float64(t + m1)
        a += u.view(np.int64)
        t -= u - m1
        u = np.float64(t + m2)
        b += u.view(np.int64)
        t -= u - m2
        u = np.float64(t + m3)
        c += u.view(np.int64)
        rest[i] = t - (u - m3)
    return a, b, c


@kernel
def _magic(cut):
    return 1.5 * power(cut + 52)


@kernel
def _put(digits, total, count, cut, base):
    add_integer(digits, total - count * np.float64(_magic(cut)).view(np.int64), cut - base)


@kernel
def _fold_block(x, rest, digits, base, top, low):
    """Add x, whose terms are below 2**top and multiples of 2**low (both within the range of doubles)."""
    n = x.size
    c1 = max(top - FOLD, low)
    c2 = max(c1 - FOLD, low)
    c3 = max(c2 - FOLD, low)
    if c1 == low:
        _put(digits, _fold1(x, _magic(c1)), n, c1, base)
        return
    if c2 == low:
        a, b = _fold2(x, _magic(c1), _magic(c2))
        _put(digits, a, n, c1, base)
        _put(digits, b, n, c2, base)
        return
    if c3 == low:
        a, b, c = _fold3(x, _magic(c1), _magic(c2), _magic(c3))
    else:
        a, b, c = _peel(x, rest, _magic(c1), _magic(c2), _magic(c3))
    _put(digits, a, n, c1, base)
    _put(digits, b, n, c2, base)
    _put(digits, c, n, c3, base)
    while c3 > low:
        c1 = max(c3 - FOLD, low)
        c2 = max(c1 - FOLD, low)
        c3 = max(c2 - FOLD, low)
        a, b, c = _peel(rest, rest, _magic(c1), _magic(c2), _magic(c3))
        _put(digits, a, n, c1, base)
        if c2 < c1:
            _put(digits, b, n, c2, base)
        if c3 < c2:
            _put(digits, c, n, c3, base)


@kernel
def _exponents(bits):
    """Largest and smallest exponent field of the non-zero doubles with these bits; (-1, 2047) when all are zero."""
    largest = np.int64(0)
    smallest = np.int64(0x7FFFFFFFFFFFFFFF)
    for i in range(bits.size):
        b = bits[i] & 0x7FFFFFFFFFFFFFFF
        c = (b - 1) & 0x7FFFFFFFFFFFFFFF
        if b > largest:
            largest = b
        if c < smallest:
            smallest = c
    if largest == 0:
        return np.int64(-1), np.int64(2047)
    return largest >> 52, (smallest + 1) >> 52


@kernel
def _mantissa(value):
    """(m, e) with value = m * 2**e, for a finite double."""
    bits = np.float64(value).view(np.int64)
    field = (bits >> 52) & 2047
    m = bits & 0xFFFFFFFFFFFFF
    if field:
        m |= 0x10000000000000
    else:
        field = np.int64(1)
    return (-m if bits < 0 else m), field - 1075


@kernel
def classify(value):
    if np.isnan(value):
        return NAN
    return PLUS_INFINITY if value > 0 else MINUS_INFINITY


@kernel
def _add_terms(x, digits, base):
    met = 0
    for i in range(x.size):
        v = np.float64(x[i])
        if np.isfinite(v):
            m, e = _mantissa(v)
            if m != 0:
                add_integer(digits, m, e - base)
        else:
            met |= classify(v)
    normalise(digits)
    return met


@kernel
def _add_block(x, bits, rest, digits, base, precision):
    """Add a block of doubles, of at most `precision` bits each and multiples of 2**base; say what it held."""
    high, low = _exponents(bits)
    if high < 0:
        for i in range(bits.size):
            if bits[i] == 0:
                return OTHER
        return 0
    if high > 2044:
        return OTHER | _add_terms(x, digits, base)
    _fold_block(x, rest, digits, base, max(high, 1) - 1022, max(max(low, 1) - 1022 - precision, base))
    return OTHER


@kernel
def add_rows(x, digits, met, base, precision):
    """Add each row of x (R, K) to its row of digits (R, L)."""
    t = np.empty(BLOCK)
    bits = t.view(np.int64)
    for r in range(x.shape[0]):
        for start in range(0, x.shape[1], BLOCK):
            n = min(BLOCK, x.shape[1] - start)
            row = x[r, start : start + n]
            for i in range(n):
                t[i] = row[i]
            met[r] |= _add_block(t[:n], bits[:n], t[:n], digits[r], base, precision)
        normalise(digits[r])


@kernel
def _add_products(a, b, digits, base):
    """Products one by one, in integers: right for all doubles."""
    met = 0
    for i in range(a.size):
        u = np.float64(a[i])
        v = np.float64(b[i])
        if not (np.isfinite(u) and np.isfinite(v)):
            met |= classify(u * v) | OTHER
            continue
        m, e = _mantissa(u)
        n, f = _mantissa(v)
        if m == 0 or n == 0:
            if not (np.signbit(u) ^ np.signbit(v)):
                met |= OTHER
            continue
        met |= OTHER
        position = e + f - base
        sign = np.int64(-1 if (m < 0) != (n < 0) else 1)
        m = abs(m)
        n = abs(n)
        low = (m & 0x7FFFFFF) * (n & 0x7FFFFFF)
        middle = (m & 0x7FFFFFF) * (n >> 27) + (m >> 27) * (n & 0x7FFFFFF)
        high = (m >> 27) * (n >> 27)
        add_integer(digits, sign * low, position)
        add_integer(digits, sign * middle, position + 27)
        add_integer(digits, sign * high, position + 54)
    normalise(digits)
    return met


@kernel
def _add_short_products(a, b, t, bits, digits, base):
    """Products of at most 53 bits that doubles hold exactly (float32 operands)."""
    n = a.size
    for i in range(n):
        t[i] = np.float64(a[i]) * np.float64(b[i])
    high, _ = _exponents(bits[:n])
    if high == 2047:
        return _add_products(a, b, digits, base)
    return _add_block(t[:n], bits[:n], t[:n], digits, base, 48)


@kernel
def _add_long_products(a, b, a_bits, b_bits, t, bits, digits, base):
    """Products of doubles, each as a rounded product and its error where both are exact."""
    n = a.size
    a_high, a_low = _exponents(a_bits)
    b_high, b_low = _exponents(b_bits)
    if a_high + b_high > 2046 + 1020 or min(a_low + b_low, 2046) < 2046 - 960:
        return _add_products(a, b, digits, base)
    met = 0
    for i in range(n):
        p = a[i] * b[i]
        t[i] = p
        t[n + i] = fma(a[i], b[i], -p)
    met = _add_block(t[:n], bits[:n], t[:n], digits, base, 53)
    _add_block(t[n : 2 * n], bits[n : 2 * n], t[n : 2 * n], digits, base, 53)
    return met


@kernel
def add_dots(a, b, digits, met, base, pairs):
    """Add the dot products of the rows of a and b: of all pairs of rows, or of row r with row r."""
    t = np.empty(2 * BLOCK)
    bits = t.view(np.int64)
    for r in range(digits.shape[0]):
        i, j = (r // b.shape[0], r % b.shape[0]) if pairs else (r, r)
        for start in range(0, a.shape[1], BLOCK):
            n = min(BLOCK, a.shape[1] - start)
            x = a[i, start : start + n]
            y = b[j, start : start + n]
            met[r] |= _add_short_products(x, y, t, bits, digits[r], base)
        normalise(digits[r])


@kernel
def add_long_dots(a, b, a_bits, b_bits, digits, met, base, pairs):
    """`add_dots` for float64 operands; a_bits and b_bits are their int64 views."""
    t = np.empty(2 * BLOCK)
    bits = t.view(np.int64)
    for r in range(digits.shape[0]):
        i, j = (r // b.shape[0], r % b.shape[0]) if pairs else (r, r)
        for start in range(0, a.shape[1], BLOCK):
            end = start + min(BLOCK, a.shape[1] - start)
            met[r] |= _add_long_products(
                a[i, start:end], b[j, start:end], a_bits[i, start:end], b_bits[j, start:end], t, bits, digits[r], base
            )
        normalise(digits[r])
