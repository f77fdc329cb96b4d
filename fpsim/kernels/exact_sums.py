"""Exact sums and dot products of rows, a block of terms at a time.

A block goes to the digits by folds (see `fpsim.kernels.exact`). Blocks of float32 terms or products that need more than
three folds go to one integer per exponent instead; blocks that hold NaN, infinities, or doubles too large for the folds
go to the digits one term at a time. All sums are of integers, so that the order does not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fpsim.kernels._jit import kernel
from fpsim.kernels.exact import (
    FOLD,
    LARGEST,
    OTHER,
    add_integer,
    add_products,
    add_terms,
    fma,
    fold_block,
    fold_buffer,
    magic,
    normalise,
    put,
    signs,
    specials,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

BLOCK = 2048
# Blocks whose 48-bit integers one 64-bit bin can hold, and the exponent fields of doubles that are products of float32.
BIN_BLOCKS = 8
BIN_FIRST, BIN_LAST = 725, 1280


# -- float32 ----------------------------------------------------------------------------------------------------------


@kernel
def _range(bits: Array) -> tuple[int, int]:
    """Largest and smallest exponent field of the non-zero float32 numbers with these bits; 255 and 0 without any."""
    largest: Any = np.int32(0)
    smallest: Any = np.int32(0x7FFFFFFF)
    for i in range(bits.size):
        b = np.int32(bits[i] & 0x7FFFFFFF)
        c = np.int32((b - 1) & 0x7FFFFFFF)
        largest = max(largest, b)
        smallest = min(smallest, c)
    return largest >> 23, (255 if largest == 0 else (smallest + 1) >> 23)


@kernel
def _product_range(a_bits: Array, b_bits: Array) -> tuple[int, int, int]:
    """Largest operand, and largest and smallest sum of two exponent fields (at least 1 each) of non-zero products."""
    operand: Any = np.int32(0)
    largest: Any = np.int32(0)
    smallest: Any = np.int32(1023)
    for i in range(a_bits.size):
        a = np.int32(a_bits[i] & 0x7FFFFFFF)
        b = np.int32(b_bits[i] & 0x7FFFFFFF)
        high = max(a, b)  # nested, a maximum of three does not vectorise
        operand = max(operand, high)
        s = np.int32(max(a >> 23, 1) + max(b >> 23, 1))
        largest = max(largest, s)
        s = s if min(a, b) > 0 else np.int32(1023)
        smallest = min(smallest, s)
    return operand >> 23, largest, smallest


@kernel
def _bin_terms(bits: Array, bins: Array) -> None:
    """Add float32 bits to bins by their sign and exponent, and count them from bit 47 on."""
    for i in range(bits.size):
        b = np.uint64(np.uint32(bits[i]))
        bins[b >> np.uint64(23)] += np.int64(b) + 0x800000000000


@kernel
def _flush_terms(bins: Array, digits: Array, base: int) -> None:
    for k in range(512):
        v = bins[k]
        bins[k] = 0
        field = k & 255
        count = v >> 47
        v = (v & 0x7FFFFFFFFFFF) - count * (k << 23)
        if field:
            v += count << 23
        if v:
            position = max(field, 1) - 150 - base
            if position < 0:  # then the bits that go are zeros
                v >>= -position
                position = 0
            add_integer(digits, v if k < 256 else -v, position)


@kernel
def _bin_products(x: Array, y: Array, index: Array, value: Array, bins: Array) -> None:
    """Add float32 products to bins by sign and exponent, as integers with their leading bit at 2**47."""
    for i in range(x.size):
        t = np.float64(x[i]) * np.float64(y[i])
        b: Any = np.float64(t).view(np.int64)
        index[i] = np.int32((b >> 52) & 4095)
        value[i] = ((b & 0xFFFFFFFFFFFFF) >> 5) | 0x800000000000
    for i in range(x.size):
        bins[np.uint64(np.uint32(index[i]))] += value[i]


@kernel
def _flush_products(bins: Array, digits: Array, base: int) -> None:
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
def _add_short(
    x: Array,
    y: Array | None,
    x_bits: Array,
    y_bits: Array | None,
    digits: Array,
    base: int,
    index: Array,
    value: Array,
    bins: Array,
) -> tuple[int, bool]:
    """Add a block of float32 terms or products; return what it held, and whether it went to the bins."""
    if y is None or y_bits is None:
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
        return specials(x, y), False
    if empty:
        return signs(x, y), False
    if top - bottom > 3 * FOLD:
        if y is None:
            _bin_terms(x_bits, bins)
        else:
            _bin_products(x, y, index, value, bins)
        return OTHER, True
    fold_block(x, y, digits, base, top, bottom)
    return OTHER, False


@kernel
def _add_short_row(
    x: Array,
    y: Array | None,
    x_bits: Array,
    y_bits: Array | None,
    digits: Array,
    base: int,
    index: Array,
    value: Array,
    bins: Array,
) -> int:
    met = 0
    binned = 0
    for start in range(0, x.size, BLOCK):
        end = min(start + BLOCK, x.size)
        if y is None or y_bits is None:
            new, used = _add_short(x[start:end], None, x_bits[start:end], None, digits, base, index, value, bins)
        else:
            new, used = _add_short(
                x[start:end], y[start:end], x_bits[start:end], y_bits[start:end], digits, base, index, value, bins
            )
        met |= new
        binned += used
        if binned == BIN_BLOCKS or (binned and end == x.size):
            if y is None:
                _flush_terms(bins, digits, base)
            else:
                _flush_products(bins, digits, base)
            binned = 0
    normalise(digits)
    return met


@kernel
def add_short_sums(x: Array, bits: Array, digits: Array, met: Array, base: int) -> None:
    """Add each row of x (R, K), float32 with its int32 view `bits`, to its row of digits (R, L)."""
    index = np.empty(BLOCK, np.int32)
    value = np.empty(BLOCK, np.int64)
    bins = np.zeros(4096, np.int64)
    for r in range(x.shape[0]):
        met[r] |= _add_short_row(x[r], None, bits[r], None, digits[r], base, index, value, bins)


@kernel
def add_short_dots(
    a: Array, b: Array, a_bits: Array, b_bits: Array, digits: Array, met: Array, base: int, pairs: bool
) -> None:
    """Add dot products of rows of a and b: of all pairs of rows, or of row r with row r; as `add_short_sums`."""
    index = np.empty(BLOCK, np.int32)
    value = np.empty(BLOCK, np.int64)
    bins = np.zeros(4096, np.int64)
    for r in range(digits.shape[0]):
        i, j = (r // b.shape[0], r % b.shape[0]) if pairs else (r, r)
        met[r] |= _add_short_row(a[i], b[j], a_bits[i], b_bits[j], digits[r], base, index, value, bins)


# -- float64 ----------------------------------------------------------------------------------------------------------


@kernel
def _long_range(bits: Array) -> tuple[int, int]:
    """`_range` of float64; without non-zero numbers the smallest is 2047."""
    largest: Any = np.int64(0)
    smallest: Any = np.int64(0x7FFFFFFFFFFFFFFF)
    for i in range(bits.size):
        b = bits[i] & 0x7FFFFFFFFFFFFFFF
        c = (b - 1) & 0x7FFFFFFFFFFFFFFF
        largest = max(largest, b)
        smallest = min(smallest, c)
    return largest >> 52, (2047 if largest == 0 else (smallest + 1) >> 52)


@kernel
def _long_product_range(a_bits: Array, b_bits: Array) -> tuple[int, int, int]:
    """Return the same of float64 as `_product_range`, with fields from 0.

    The smallest is 4095 without non-zero products, and 0 where a factor is subnormal.
    """
    operand: Any = np.int64(0)
    largest: Any = np.int64(0)
    smallest: Any = np.int64(4095)
    for i in range(a_bits.size):
        a = a_bits[i] & 0x7FFFFFFFFFFFFFFF
        b = b_bits[i] & 0x7FFFFFFFFFFFFFFF
        high = max(a, b)
        low = min(a, b)
        operand = max(operand, high)
        s = (a >> 52) + (b >> 52)
        largest = max(largest, s)
        s = s if low >= 0x10000000000000 else (4095 if low == 0 else 0)
        smallest = min(smallest, s)
    return operand >> 52, largest, smallest


@kernel
def _add_long(x: Array, bits: Array, t: Array, digits: Array, base: int) -> int:
    """Add a block of doubles; t is scratch."""
    high, low = _long_range(bits)
    top = max(high, 1) - 1022
    if top > LARGEST:
        return add_terms(x, digits, base)
    if low == 2047:
        return signs(x, None)
    bottom = max(low, 1) - 1075
    if top - bottom > 3 * FOLD:
        for i in range(x.size):
            t[i] = x[i]
        fold_buffer(t[: x.size], digits, base, top, bottom)
    else:
        fold_block(x, None, digits, base, top, bottom)
    return OTHER


@kernel
def _fold_errors(x: Array, y: Array, m1: float, m12: float, m3: float, m34: float) -> tuple[int, int, int, int]:
    """Two folds of the rounded products, and two of their errors."""
    a: Any = np.int64(0)
    b: Any = np.int64(0)
    c: Any = np.int64(0)
    d: Any = np.int64(0)
    for i in range(x.size):
        t = x[i] * y[i]
        s = fma(x[i], y[i], -t)
        u = np.float64(t + m1)
        a += u.view(np.int64)
        b += np.float64(t - (u - m12)).view(np.int64)
        u = np.float64(s + m3)
        c += u.view(np.int64)
        d += np.float64(s - (u - m34)).view(np.int64)
    return a, b, c, d


@kernel
def _add_long_products(x: Array, y: Array, x_bits: Array, y_bits: Array, t: Array, digits: Array, base: int) -> int:
    """Add products of doubles, each as a rounded product and its error where doubles hold both."""
    n = x.size
    operand, high, low = _long_product_range(x_bits, y_bits)
    if operand < 2047 and low == 4095:
        return signs(x, y)
    if operand == 2047 or high > 2044 + LARGEST or low < 2150 - 1074:
        return add_products(x, y, digits, base)
    # |rounded product| <= 2**top, a multiple of 2**bottom; the error is below 2**-53 times that, a multiple of
    # 2**(bottom - 52).
    top = high - 2044
    bottom = low - 2098
    if top - bottom <= 2 * FOLD:
        m1 = magic(bottom + FOLD)
        m3 = magic(bottom - 1)
        a, b, c, d = _fold_errors(x, y, m1, m1 + magic(bottom), m3, m3 + magic(bottom - 52))
        put(digits, a, n, bottom + FOLD, base)
        put(digits, b, n, bottom, base)
        put(digits, c, n, bottom - 1, base)
        put(digits, d, n, bottom - 52, base)
        return OTHER
    for i in range(n):
        p = x[i] * y[i]
        t[i] = p
        t[BLOCK + i] = fma(x[i], y[i], -p)
    fold_buffer(t[:n], digits, base, top, bottom)
    fold_buffer(t[BLOCK : BLOCK + n], digits, base, top - 53, bottom - 52)
    return OTHER


@kernel
def add_long_sums(x: Array, bits: Array, digits: Array, met: Array, base: int) -> None:
    """`add_short_sums` for float64; `bits` is its int64 view."""
    t = np.empty(BLOCK)
    for r in range(x.shape[0]):
        for start in range(0, x.shape[1], BLOCK):
            end = min(start + BLOCK, x.shape[1])
            met[r] |= _add_long(x[r, start:end], bits[r, start:end], t, digits[r], base)
        normalise(digits[r])


@kernel
def add_long_dots(
    a: Array, b: Array, a_bits: Array, b_bits: Array, digits: Array, met: Array, base: int, pairs: bool
) -> None:
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
