"""Exact sums and dot products: integer digits that hold any sum of doubles or of their products.

A block of terms is folded in float64: with ``M = 1.5 * 2**(52 + cut)`` and ``|t| < 2**(51 + cut)`` the bits of ``t + M``
are the bits of ``M`` plus the integer nearest to ``t / 2**cut``, so that integer additions sum them without error, and
``t - ((t + M) - M)`` is what the next fold, 51 bits lower, has to take. As many folds are done as the block's exponents
need. Blocks of float32 terms or products that need more than three go to one integer per exponent instead. What a
block gives goes to a superaccumulator of 32-bit digits (Kulisch). Blocks that hold NaN, infinities, or numbers too
large for ``M`` go to the digits one term at a time.
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
# Blocks whose 48-bit integers one 64-bit bin can hold, and the exponent fields of doubles that are products of float32.
BIN_BLOCKS = 8
BIN_FIRST, BIN_LAST = 725, 1280

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
def _magic(cut):
    return 1.5 * power(cut + 52)


@kernel
def _put(digits, total, count, cut, base):
    """Add a fold: `total` is the sum of the bits of t + M over `count` terms."""
    add_integer(digits, total - count * np.float64(_magic(cut)).view(np.int64), cut - base)


@kernel
def _fold1(x, y, m1):
    """Fold the terms of x, or the products of x and y, which are exact in float64; y may be None."""
    a = np.int64(0)
    for i in range(x.size):
        t = np.float64(x[i])
        if y is not None:
            t = t * np.float64(y[i])
        a += np.float64(t + m1).view(np.int64)
    return a


@kernel
def _fold2(x, y, m1, m2):
    a = np.int64(0)
    b = np.int64(0)
    for i in range(x.size):
        t = np.float64(x[i])
        if y is not None:
            t = t * np.float64(y[i])
        u = np.float64(t + m1)
        a += u.view(np.int64)
        b += np.float64(t - (u - m1) + m2).view(np.int64)
    return a, b


@kernel
def _fold3(x, y, m1, m2, m3):
    a = np.int64(0)
    b = np.int64(0)
    c = np.int64(0)
    for i in range(x.size):
        t = np.float64(x[i])
        if y is not None:
            t = t * np.float64(y[i])
        u = np.float64(t + m1)
        a += u.view(np.int64)
        t -= u - m1
        u = np.float64(t + m2)
        b += u.view(np.int64)
        c += np.float64(t - (u - m2) + m3).view(np.int64)
    return a, b, c


@kernel
def _peel(x, m1):
    """One fold, which leaves in x what is below it."""
    a = np.int64(0)
    for i in range(x.size):
        u = np.float64(x[i] + m1)
        a += u.view(np.int64)
        x[i] -= u - m1
    return a


@kernel
def _fold_block(x, y, digits, base, top, low):
    """Add up to 3 * FOLD bits: terms below 2**top that are multiples of 2**low, both within the range of doubles."""
    n = x.size
    c1 = max(top - FOLD, low)
    c2 = max(c1 - FOLD, low)
    c3 = max(c2 - FOLD, low)
    if c1 == low:
        _put(digits, _fold1(x, y, _magic(c1)), n, c1, base)
    elif c2 == low:
        a, b = _fold2(x, y, _magic(c1), _magic(c2))
        _put(digits, a, n, c1, base)
        _put(digits, b, n, c2, base)
    else:
        a, b, c = _fold3(x, y, _magic(c1), _magic(c2), _magic(c3))
        _put(digits, a, n, c1, base)
        _put(digits, b, n, c2, base)
        _put(digits, c, n, c3, base)


@kernel
def _fold_buffer(t, digits, base, top, low):
    """`_fold_block` for any range; t is overwritten."""
    while top - low > 3 * FOLD:
        top = top - FOLD
        _put(digits, _peel(t, _magic(top)), t.size, top, base)
    _fold_block(t, None, digits, base, top, low)


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
    """Say which special value a double is that is not finite."""
    if np.isnan(value):
        return NAN
    return PLUS_INFINITY if value > 0 else MINUS_INFINITY


@kernel
def _add_terms(x, digits, base):
    """Add terms one by one: right for all doubles."""
    met = OTHER
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
def _add_products(x, y, digits, base):
    """Add products one by one, in integers: right for all doubles."""
    met = 0
    for i in range(x.size):
        u = np.float64(x[i])
        v = np.float64(y[i])
        if not (np.isfinite(u) and np.isfinite(v)):
            met |= classify(u * v) | OTHER
            continue
        m, e = _mantissa(u)
        n, f = _mantissa(v)
        if m == 0 or n == 0:
            if np.signbit(u) == np.signbit(v):
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
def _signs(x, y):
    """What zero terms, or products with a zero factor, are."""
    for i in range(x.size):
        negative = np.signbit(x[i])
        if y is not None:
            negative ^= np.signbit(y[i])
        if not negative:
            return OTHER
    return 0


# -- float32 ----------------------------------------------------------------------------------------------------------


@kernel
def _range(bits):
    """Largest and smallest exponent field of the non-zero float32 numbers with these bits; 255 and 0 without any."""
    largest = np.int32(0)
    smallest = np.int32(0x7FFFFFFF)
    for i in range(bits.size):
        b = np.int32(bits[i] & 0x7FFFFFFF)
        c = np.int32((b - 1) & 0x7FFFFFFF)
        if b > largest:
            largest = b
        if c < smallest:
            smallest = c
    return largest >> 23, (255 if largest == 0 else (smallest + 1) >> 23)


@kernel
def _product_range(a_bits, b_bits):
    """Largest operand, and largest and smallest sum of two exponent fields (at least 1 each) of non-zero products."""
    operand = np.int32(0)
    largest = np.int32(0)
    smallest = np.int32(1023)
    for i in range(a_bits.size):
        a = np.int32(a_bits[i] & 0x7FFFFFFF)
        b = np.int32(b_bits[i] & 0x7FFFFFFF)
        operand = max(operand, max(a, b))
        s = np.int32(max(a >> 23, 1) + max(b >> 23, 1))
        if s > largest:
            largest = s
        if a == 0 or b == 0:
            s = np.int32(1023)
        if s < smallest:
            smallest = s
    return operand >> 23, largest, smallest


@kernel
def _bin_block(x, y, index, value, bins):
    """Add terms of at most 48 bits to bins by sign and exponent, as integers with their leading bit at 2**47."""
    for i in range(x.size):
        t = np.float64(x[i])
        if y is not None:
            t = t * np.float64(y[i])
        b = np.float64(t).view(np.int64)
        index[i] = np.int32((b >> 52) & 4095)
        value[i] = ((b & 0xFFFFFFFFFFFFF) >> 5) | 0x800000000000
    for i in range(x.size):
        bins[np.uint64(np.uint32(index[i]))] += value[i]


@kernel
def _flush(bins, digits, base):
    for field in range(BIN_FIRST, BIN_LAST):
        v = bins[field] - bins[field + 2048]
        if v:
            position = field - 1070 - base
            if position < 0:
                v >>= -position
                position = 0
            add_integer(digits, v, position)
        bins[field] = 0
        bins[field + 2048] = 0


@kernel
def _add_short(x, y, x_bits, y_bits, digits, base, index, value, bins):
    """Add a block of float32 terms or products; return what it held, and whether it went to the bins."""
    if y is None:
        high, low = _range(x_bits)
        finite = high < 255
        empty = low == 255
        top = max(high, 1) - 126
        bottom = max(low, 1) - 150
    else:
        operand, high, low = _product_range(x_bits, y_bits)
        finite = operand < 255
        empty = low == 1023
        top = high - 252
        bottom = low - 300
    if not finite:
        return (_add_terms(x, digits, base) if y is None else _add_products(x, y, digits, base)), False
    if empty:
        return _signs(x, y), False
    if top - bottom > 3 * FOLD:
        _bin_block(x, y, index, value, bins)
        return OTHER, True
    _fold_block(x, y, digits, base, top, bottom)
    return OTHER, False


@kernel
def _add_short_row(x, y, x_bits, y_bits, digits, base, index, value, bins):
    met = 0
    binned = 0
    for start in range(0, x.size, BLOCK):
        end = min(start + BLOCK, x.size)
        if y is None:
            new, used = _add_short(x[start:end], None, x_bits[start:end], None, digits, base, index, value, bins)
        else:
            new, used = _add_short(
                x[start:end], y[start:end], x_bits[start:end], y_bits[start:end], digits, base, index, value, bins
            )
        met |= new
        binned += used
        if binned == BIN_BLOCKS:
            _flush(bins, digits, base)
            binned = 0
    if binned:
        _flush(bins, digits, base)
    normalise(digits)
    return met


@kernel
def add_short_sums(x, bits, digits, met, base):
    """Add each row of x (R, K), float32 with its int32 view `bits`, to its row of digits (R, L)."""
    index = np.empty(BLOCK, np.int32)
    value = np.empty(BLOCK, np.int64)
    bins = np.zeros(4096, np.int64)
    for r in range(x.shape[0]):
        met[r] |= _add_short_row(x[r], None, bits[r], None, digits[r], base, index, value, bins)


@kernel
def add_short_dots(a, b, a_bits, b_bits, digits, met, base, pairs):
    """Add dot products of rows of a and b: of all pairs of rows, or of row r with row r; as `add_short_sums`."""
    index = np.empty(BLOCK, np.int32)
    value = np.empty(BLOCK, np.int64)
    bins = np.zeros(4096, np.int64)
    for r in range(digits.shape[0]):
        i, j = (r // b.shape[0], r % b.shape[0]) if pairs else (r, r)
        met[r] |= _add_short_row(a[i], b[j], a_bits[i], b_bits[j], digits[r], base, index, value, bins)


# -- float64 ----------------------------------------------------------------------------------------------------------


@kernel
def _long_range(bits):
    """`_range` of float64; without non-zero numbers the smallest is 2047."""
    largest = np.int64(0)
    smallest = np.int64(0x7FFFFFFFFFFFFFFF)
    for i in range(bits.size):
        b = bits[i] & 0x7FFFFFFFFFFFFFFF
        c = (b - 1) & 0x7FFFFFFFFFFFFFFF
        if b > largest:
            largest = b
        if c < smallest:
            smallest = c
    return largest >> 52, (2047 if largest == 0 else (smallest + 1) >> 52)


@kernel
def _long_product_range(a_bits, b_bits):
    """`_product_range` of float64; without non-zero products the smallest is 4095."""
    operand = np.int64(0)
    largest = np.int64(0)
    smallest = np.int64(4095)
    for i in range(a_bits.size):
        a = a_bits[i] & 0x7FFFFFFFFFFFFFFF
        b = b_bits[i] & 0x7FFFFFFFFFFFFFFF
        operand = max(operand, max(a, b))
        s = max(a >> 52, 1) + max(b >> 52, 1)
        if s > largest:
            largest = s
        if a == 0 or b == 0:
            s = np.int64(4095)
        if s < smallest:
            smallest = s
    return operand >> 52, largest, smallest


@kernel
def _add_long(x, bits, t, digits, base):
    """Add a block of doubles; t is scratch."""
    high, low = _long_range(bits)
    if high > 2044:
        return _add_terms(x, digits, base)
    if low == 2047:
        return _signs(x, None)
    top = max(high, 1) - 1022
    bottom = max(low, 1) - 1075
    if top - bottom > 3 * FOLD:
        for i in range(x.size):
            t[i] = x[i]
        _fold_buffer(t[: x.size], digits, base, top, bottom)
    else:
        _fold_block(x, None, digits, base, top, bottom)
    return OTHER


@kernel
def _fold_errors(x, y, m1, m2, m3, m4):
    """Two folds of the rounded products, and two of their errors."""
    a = np.int64(0)
    b = np.int64(0)
    c = np.int64(0)
    d = np.int64(0)
    for i in range(x.size):
        t = x[i] * y[i]
        s = fma(x[i], y[i], -t)
        u = np.float64(t + m1)
        a += u.view(np.int64)
        b += np.float64(t - (u - m1) + m2).view(np.int64)
        u = np.float64(s + m3)
        c += u.view(np.int64)
        d += np.float64(s - (u - m3) + m4).view(np.int64)
    return a, b, c, d


@kernel
def _add_long_products(x, y, x_bits, y_bits, t, digits, base):
    """Add products of doubles, each as a rounded product and its error where doubles hold both."""
    n = x.size
    operand, high, low = _long_product_range(x_bits, y_bits)
    if operand < 2047 and low == 4095:
        return _signs(x, y)
    if operand == 2047 or high > 2044 + 1022 or low < 2150 - 1074:
        return _add_products(x, y, digits, base)
    # |rounded product| <= 2**top, a multiple of 2**bottom; the error is below 2**-53 times that, a multiple of
    # 2**(bottom - 52).
    top = high - 2044
    bottom = low - 2098
    if top - bottom <= 2 * FOLD:
        c1 = max(top - FOLD, bottom)
        c3 = max(top - 53 - FOLD, bottom - 52)
        a, b, c, d = _fold_errors(x, y, _magic(c1), _magic(bottom), _magic(c3), _magic(bottom - 52))
        _put(digits, a, n, c1, base)
        _put(digits, b, n, bottom, base)
        _put(digits, c, n, c3, base)
        _put(digits, d, n, bottom - 52, base)
        return OTHER
    for i in range(n):
        p = x[i] * y[i]
        t[i] = p
        t[BLOCK + i] = fma(x[i], y[i], -p)
    _fold_buffer(t[:n], digits, base, top, bottom)
    _fold_buffer(t[BLOCK : BLOCK + n], digits, base, top - 53, bottom - 52)
    return OTHER


@kernel
def add_long_sums(x, bits, digits, met, base):
    """`add_short_sums` for float64; `bits` is its int64 view."""
    t = np.empty(BLOCK)
    for r in range(x.shape[0]):
        for start in range(0, x.shape[1], BLOCK):
            end = min(start + BLOCK, x.shape[1])
            met[r] |= _add_long(x[r, start:end], bits[r, start:end], t, digits[r], base)
        normalise(digits[r])


@kernel
def add_long_dots(a, b, a_bits, b_bits, digits, met, base, pairs):
    """`add_short_dots` for float64."""
    t = np.empty(2 * BLOCK)
    for r in range(digits.shape[0]):
        i, j = (r // b.shape[0], r % b.shape[0]) if pairs else (r, r)
        for start in range(0, a.shape[1], BLOCK):
            end = min(start + BLOCK, a.shape[1])
            met[r] |= _add_long_products(
                a[i, start:end], b[j, start:end], a_bits[i, start:end], b_bits[j, start:end], t, digits[r], base
            )
        normalise(digits[r])
