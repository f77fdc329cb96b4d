"""Elementwise functions over vectors, their rounding with a safety test, and the comparison with what a library gave.

The loops of `apply` and `apply2` call the C library of the platform, in the precision of the vectors: float64 for the
reference, float32 where the C library itself is what is measured.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from fpsim.kernels._jit import inlined, kernel
from fpsim.kernels.general import two_sum_error
from fpsim.kernels.rounding import round_to_odd_sum

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Functions of one operand, of two, and of three.
EXP, EXP2, EXPM1, LOG, LOG2, LOG1P, SIN, COS, TANH, ERF, SIGMOID, RSQRT, SQRT = range(13)
POW, ADD, SUBTRACT, MULTIPLY, DIVIDE = range(13, 18)
MULTIPLY_ADD = 18

# What a position is, as bits: the answer is one that any library gets right (plus or minus an operand, 0, 1/2, 1, infinity, NaN),
# an operand or the answer is subnormal, and the float64 value is too near a rounding boundary to decide.
TRIVIAL, SUBNORMAL, UNSAFE = 1, 2, 4

# Counts and maxima of `compare`.
(
    COUNT, CORRECT, TELLING, TELLING_CORRECT, SPECIAL, ZERO_SIGN, SUBNORMALS, SUBNORMAL_CORRECT, FLUSHED, MEASURED,
) = range(10)  # fmt: skip
N_COUNTS = 10
MAX_ULP, MAX_SUBNORMAL_ULP, SUM_ULP = range(3)
AT_MAX, AT_SPECIAL, AT_SUBNORMAL = range(3)

_MAGNITUDE = 0x7FFF_FFFF
_INFINITE = 0x7F80_0000
_NORMAL = 0x0080_0000


@kernel
def apply(function: int, x: NDArray[np.floating], out: NDArray[np.floating]) -> None:
    """Write a function of each x into out, in the precision of x."""
    one = x.dtype.type(1)
    n = x.size
    if function == EXP:
        for i in range(n):
            out[i] = math.exp(x[i])
    elif function == EXP2:
        for i in range(n):
            out[i] = math.exp2(x[i])
    elif function == EXPM1:
        for i in range(n):
            out[i] = math.expm1(x[i])
    elif function == LOG:
        for i in range(n):
            out[i] = math.log(x[i])
    elif function == LOG2:
        for i in range(n):
            out[i] = math.log2(x[i])
    elif function == LOG1P:
        for i in range(n):
            out[i] = math.log1p(x[i])
    elif function == SIN:
        for i in range(n):
            out[i] = math.sin(x[i])
    elif function == COS:
        for i in range(n):
            out[i] = math.cos(x[i])
    elif function == TANH:
        for i in range(n):
            out[i] = math.tanh(x[i])
    elif function == ERF:
        for i in range(n):
            out[i] = math.erf(x[i])
    elif function == SIGMOID:
        for i in range(n):
            out[i] = one / (one + math.exp(-x[i]))
    elif function == RSQRT:
        for i in range(n):
            out[i] = one / math.sqrt(x[i])
    else:
        for i in range(n):
            out[i] = math.sqrt(x[i])


@kernel
def apply2(function: int, x: NDArray[np.floating], y: NDArray[np.floating], out: NDArray[np.floating]) -> None:
    """Write a function of each x and y into out, in their precision."""
    n = x.size
    if function == POW:
        for i in range(n):
            out[i] = math.pow(x[i], y[i])
    elif function == ADD:
        for i in range(n):
            out[i] = x[i] + y[i]
    elif function == SUBTRACT:
        for i in range(n):
            out[i] = x[i] - y[i]
    elif function == MULTIPLY:
        for i in range(n):
            out[i] = x[i] * y[i]
    else:
        for i in range(n):
            out[i] = x[i] / y[i]


@intrinsic
def fma32(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a*b + c with one rounding, in float32."""
    del typingctx, a, b, c

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del context, signature
        return builder.fma(*args)

    return types.float32(types.float32, types.float32, types.float32), codegen


@kernel
def fma(a: NDArray[np.float32], b: NDArray[np.float32], c: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Write a*b + c into out, rounded once by the processor's fused instruction."""
    for i in range(a.size):
        out[i] = fma32(a[i], b[i], c[i])


@kernel
def multiply_add(
    a: NDArray[np.floating], b: NDArray[np.floating], c: NDArray[np.floating], out: NDArray[np.floating]
) -> None:
    """Write a*b + c into out, rounded twice in the precision of the operands."""
    for i in range(a.size):
        out[i] = a[i] * b[i] + c[i]


@kernel
def fused(a: NDArray[np.float32], b: NDArray[np.float32], c: NDArray[np.float32], out: NDArray[np.float64]) -> None:
    """Write a*b + c rounded to odd in float64 into out: one more rounding gives the correctly rounded float32."""
    for i in range(a.size):
        product = np.float64(a[i]) * np.float64(b[i])  # exact: 48 bits, from 2**-298 on
        term = np.float64(c[i])
        total = product + term
        out[i] = round_to_odd_sum(total, two_sum_error(product, term, total))


@inlined
def _magnitude(x: Any) -> Any:
    return np.int64(np.float32(x).view(np.int32)) & _MAGNITUDE


@kernel
def mark_subnormal(x: NDArray[np.float32], flags: NDArray[np.uint8]) -> None:
    """Mark the positions where x is subnormal."""
    for i in range(x.size):
        bits = _magnitude(x[i])
        if (bits > 0) & (bits < _NORMAL):
            flags[i] |= SUBNORMAL


@kernel
def mark_equal(x: NDArray[np.float32], correct: NDArray[np.float32], flags: NDArray[np.uint8]) -> None:
    """Mark the positions where the correct result is this operand, or its negative, as trivial."""
    for i in range(x.size):
        if abs(x[i]) == abs(correct[i]):
            flags[i] |= TRIVIAL


@kernel
def round_safely(
    values: NDArray[np.float64],
    bound: float,
    out: NDArray[np.float32],
    flags: NDArray[np.uint8],
) -> None:
    """Round float64 values to float32, and mark the trivial, the subnormal and the undecided.

    The value is within ``bound`` times itself of the exact one; where both ends of that interval round to one float32,
    so does the exact value.
    """
    below, above = 1.0 - bound, 1.0 + bound
    for i in range(values.size):
        value = values[i]
        result = np.float32(value)
        out[i] = result
        flag = flags[i]
        if np.float32(value * below) != np.float32(value * above):
            if value == value:  # noqa: PLR0124
                flag |= UNSAFE
        bits = _magnitude(result)
        if (bits > 0) & (bits <= _NORMAL):  # 2**-126 too: computed a little too small it is subnormal
            flag |= SUBNORMAL
        if (bits == 0) | (bits >= _INFINITE) | (bits == 0x3F80_0000) | (bits == 0x3F00_0000):
            flag |= TRIVIAL
        flags[i] = flag


@inlined
def ulp_of(value: float) -> float:
    """Return the distance of the float32 numbers around a float64 value; 2**104 from 2**127 on."""
    exponent: Any = ((np.float64(value).view(np.int64) >> 52) & 0x7FF) - 1023
    exponent = min(max(exponent, -126), 127)
    return np.int64((exponent - 23 + 1023) << 52).view(np.float64)


@inlined
def error_in_ulps(value: float, observed: float) -> float:
    """Return the distance of a finite result from the exact value, in ulps of the exact value."""
    return abs(np.float64(observed) - value) / ulp_of(value)


@kernel
def ulp_errors(values: NDArray[np.float64], observed: NDArray[np.float32], out: NDArray[np.float64]) -> None:
    """Write the error of each result in ulps into out: an infinity counts as 2**128, equal NaNs and infinities as 0."""
    for i in range(values.size):
        value = values[i]
        result: Any = np.float64(observed[i])
        expected = np.float64(np.float32(value))
        if (expected == result) & (abs(result) == np.inf):
            out[i] = 0.0
        elif (value != value) & (result != result):  # noqa: PLR0124
            out[i] = 0.0
        elif abs(value) == np.inf:
            out[i] = np.inf if result == result else np.nan  # noqa: PLR0124
        else:
            if abs(result) == np.inf:
                result = math.copysign(2.0**128, result)
            out[i] = error_in_ulps(value, result)


@kernel
def compare(
    values: NDArray[np.float64],
    correct: NDArray[np.float32],
    flags: NDArray[np.uint8],
    observed: NDArray[np.float32],
    counts: NDArray[np.int64],
    errors: NDArray[np.float64],
    where: NDArray[np.int64],
) -> None:
    """Count how results compare with the correctly rounded ones.

    Parameters
    ----------
    values, correct, flags : arrays of shape (n,)
        The float64 values, their correct roundings, and what each position is.
    observed : float32 array of shape (n,)
        What the library gave.
    counts, errors, where : arrays
        Set by this function; their positions are named at the top of this module. ``where`` holds -1 for none.
    """
    counts[:] = 0
    errors[:] = 0.0
    where[:] = -1
    counts[COUNT] = values.size
    for i in range(values.size):
        y, r, flag = observed[i], correct[i], flags[i]
        y_bits, r_bits = np.int64(np.float32(y).view(np.int32)), np.int64(np.float32(r).view(np.int32))
        y_size, r_size = y_bits & _MAGNITUDE, r_bits & _MAGNITUDE
        right = (y_bits == r_bits) | ((y_size > _INFINITE) & (r_size > _INFINITE))
        counts[CORRECT] += right
        if flag & SUBNORMAL:
            if right & ((flag & TRIVIAL) != 0) & ((r_size == 0) | (r_size >= _NORMAL)):
                continue  # as right with a zero in place of the subnormal number
            counts[SUBNORMALS] += 1
            counts[SUBNORMAL_CORRECT] += right
            if not right:
                flushed = ((y_size == 0) | (y_size >= _INFINITE)) & (r_size > 0)
                counts[FLUSHED] += flushed
                error = 0.0
                if (y_size < _INFINITE) & (r_size < _INFINITE) & (not flushed):
                    error = error_in_ulps(values[i], y)
                if (error > errors[MAX_SUBNORMAL_ULP]) | (where[AT_SUBNORMAL] < 0):
                    errors[MAX_SUBNORMAL_ULP] = max(error, errors[MAX_SUBNORMAL_ULP])
                    where[AT_SUBNORMAL] = i
        else:
            telling = (flag & TRIVIAL) == 0
            counts[TELLING] += telling
            counts[TELLING_CORRECT] += telling & right
            if (y_size >= _INFINITE) | (r_size >= _INFINITE):
                if not right:
                    counts[SPECIAL] += 1
                    if where[AT_SPECIAL] < 0:
                        where[AT_SPECIAL] = i
            else:
                if (y_size == 0) & (r_size == 0) & (not right):
                    counts[ZERO_SIGN] += 1
                error = error_in_ulps(values[i], y)
                if telling:
                    counts[MEASURED] += 1
                    errors[SUM_ULP] += error
                if error > errors[MAX_ULP]:
                    errors[MAX_ULP] = error
                    where[AT_MAX] = i


@kernel
def count_different(a: NDArray[np.uint32], b: NDArray[np.uint32], flags: NDArray[np.uint8], counts: Any) -> None:
    """Count the positions where two results differ (NaN equals NaN): in all, and where neither trivial nor subnormal.

    The third count is the largest number of float32 numbers between two finite results of the second kind.
    """
    counts[:] = 0
    for i in range(a.size):
        x, y = np.int64(a[i]), np.int64(b[i])
        x_size, y_size = x & _MAGNITUDE, y & _MAGNITUDE
        differs = (x != y) & ((x_size <= _INFINITE) | (y_size <= _INFINITE))
        counts[0] += differs
        if differs & (flags[i] == 0):
            counts[1] += 1
            if (x_size < _INFINITE) & (y_size < _INFINITE):
                apart = abs(x_size - y_size) if x >> 31 == y >> 31 else x_size + y_size
                counts[2] = max(counts[2], apart)
