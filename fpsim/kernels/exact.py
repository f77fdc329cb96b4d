"""Integer digits that hold any sum of doubles or of their products, and the folds that fill them.

A block of terms is folded in float64: with ``M = 1.5 * 2**(52 + cut)`` and ``|t| < 2**(51 + cut)`` the bits of ``t + M``
are the bits of ``M`` plus the integer nearest to ``t / 2**cut``, so that integer additions sum them without error, and
``t - ((t + M) - M)`` is what the next fold, 51 bits lower, has to take. As many folds are done as the block's exponents
need. The Ms of neighbouring folds add without error, so the last fold is ``t - ((t + M) - (M + M'))``. The few integers of a block then go to a superaccumulator of 32-bit digits (Kulisch, *Computer Arithmetic and Validity*).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fpsim.kernels._jit import kernel
from fpsim.kernels.rounding import power_of_two_bits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

FOLD = 51
DIGIT = 32
# Bound 2**LARGEST of terms that three folds, counted from the lowest bit, can take without overflow of M.
LARGEST = 970
# What a sum has met; OTHER is any term but -0.
NAN, PLUS_INFINITY, MINUS_INFINITY, OTHER = 1, 2, 4, 8


@intrinsic
def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:  # noqa: ARG001
    """Fused multiply-add of float64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        double = ir.DoubleType()
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(double, [double] * 3), "llvm.fma.f64")
        return builder.call(function, args)

    return types.float64(types.float64, types.float64, types.float64), codegen


@kernel
def power(exponent: int) -> float:
    """2**exponent for -1074 <= exponent <= 1023."""
    return np.int64(power_of_two_bits(exponent)).view(np.float64)


@kernel
def add_integer(digits: Array, value: Any, position: int) -> None:
    """Add value * 2**position; each of the three digits it touches grows by less than 2**33."""
    k = position >> 5
    r = position & 31
    low = (value & 0xFFFFFFFF) << r
    high = (value >> 32) << r
    digits[k] += low & 0xFFFFFFFF
    digits[k + 1] += (low >> 32) + (high & 0xFFFFFFFF)
    digits[k + 2] += high >> 32


@kernel
def normalise(digits: Array) -> None:
    """Bring all digits but the last, which keeps the sign, to 0 <= digit < 2**32."""
    carry: Any = np.int64(0)
    last = digits.size - 1
    for k in range(last):
        d = digits[k] + carry
        digits[k] = d & 0xFFFFFFFF
        carry = d >> 32
    digits[last] += carry


@kernel
def magic(cut: int) -> float:
    """Return the M that rounds terms below 2**(51 + cut) to multiples of 2**cut."""
    return 1.5 * power(cut + 52)


@kernel
def put(digits: Array, total: int, count: int, cut: int, base: int) -> None:
    """Add a fold: `total` is the sum of the bits of t + M over `count` terms."""
    add_integer(digits, total - count * np.float64(magic(cut)).view(np.int64), cut - base)


@kernel
def _fold1(x: Array, y: Array | None, m1: float) -> int:
    """Fold the terms of x, or the products of x and y, which are exact in float64; y may be None."""
    a: Any = np.int64(0)
    for i in range(x.size):
        t = np.float64(x[i])
        if y is not None:
            t = t * np.float64(y[i])
        a += np.float64(t + m1).view(np.int64)
    return a


@kernel
def _fold2(x: Array, y: Array | None, m1: float, m12: float) -> tuple[int, int]:
    a: Any = np.int64(0)
    b: Any = np.int64(0)
    for i in range(x.size):
        t = np.float64(x[i])
        if y is not None:
            t = t * np.float64(y[i])
        u = np.float64(t + m1)
        a += u.view(np.int64)
        b += np.float64(t - (u - m12)).view(np.int64)
    return a, b


@kernel
def _fold3(x: Array, y: Array | None, m1: float, m2: float, m23: float) -> tuple[int, int, int]:
    a: Any = np.int64(0)
    b: Any = np.int64(0)
    c: Any = np.int64(0)
    for i in range(x.size):
        t = np.float64(x[i])
        if y is not None:
            t = t * np.float64(y[i])
        u = np.float64(t + m1)
        a += u.view(np.int64)
        t -= u - m1
        u = np.float64(t + m2)
        b += u.view(np.int64)
        c += np.float64(t - (u - m23)).view(np.int64)
    return a, b, c


@kernel
def _peel(x: Array, m1: float) -> int:
    """One fold, which leaves in x what is below it."""
    a: Any = np.int64(0)
    for i in range(x.size):
        u = np.float64(x[i] + m1)
        a += u.view(np.int64)
        x[i] -= u - m1
    return a


@kernel
def fold_block(x: Array, y: Array | None, digits: Array, base: int, top: int, low: int) -> None:
    """Add terms below 2**top that are multiples of 2**low, at most 3 * FOLD bits; top <= LARGEST, low >= -1074."""
    n = x.size
    m1 = magic(low)
    if top - low <= FOLD:
        put(digits, _fold1(x, y, m1), n, low, base)
        return
    m2 = magic(low + FOLD)
    if top - low <= 2 * FOLD:
        b, a = _fold2(x, y, m2, m2 + m1)
    else:
        m3 = magic(low + 2 * FOLD)
        c, b, a = _fold3(x, y, m3, m2, m2 + m1)
        put(digits, c, n, low + 2 * FOLD, base)
    put(digits, b, n, low + FOLD, base)
    put(digits, a, n, low, base)


@kernel
def fold_buffer(t: Array, digits: Array, base: int, top: int, low: int) -> None:
    """`fold_block` for any range; t is overwritten."""
    while top - low > 3 * FOLD:
        top = top - FOLD
        put(digits, _peel(t, magic(top)), t.size, top, base)
    fold_block(t, None, digits, base, top, low)


@kernel
def _mantissa(value: float) -> tuple[int, int]:
    """(m, e) with value = m * 2**e, for a finite double."""
    bits: Any = np.float64(value).view(np.int64)
    field = (bits >> 52) & 2047
    m = bits & 0xFFFFFFFFFFFFF
    if field:
        m |= 0x10000000000000
    else:
        field = np.int64(1)
    return (-m if bits < 0 else m), field - 1075


@kernel
def classify(value: float) -> int:
    """Say which special value a double is that is not finite."""
    if np.isnan(value):
        return NAN
    return PLUS_INFINITY if value > 0 else MINUS_INFINITY


@kernel
def specials(x: Array, y: Array | None) -> int:
    """Say what a block of terms or products holds that has an infinity or NaN in it."""
    met = OTHER
    for i in range(x.size):
        t = np.float64(x[i])
        finite = np.isfinite(t)
        if y is not None:
            v = np.float64(y[i])
            finite = finite and np.isfinite(v)
            t = t * v
        if not finite:
            met |= classify(t)
    return met


@kernel
def add_terms(x: Array, digits: Array, base: int) -> int:
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
def add_products(x: Array, y: Array, digits: Array, base: int) -> int:
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
def signs(x: Array, y: Array | None) -> int:
    """Say whether a block of zero terms, or of products with a zero factor, holds any but -0."""
    for i in range(x.size):
        negative = np.signbit(x[i])
        if y is not None:
            negative ^= np.signbit(y[i])
        if not negative:
            return OTHER
    return 0
