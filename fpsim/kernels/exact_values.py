"""From exact digits to doubles: value = (sum of digits[k] * 2**(width * k)) * 2**exponent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fpsim.kernels._jit import kernel
from fpsim.kernels.exact import power
from fpsim.kernels.rounding import NEAREST_AWAY, NEAREST_EVEN, TO_ODD, TOWARD_ZERO, UP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

# What `split` says of a value: nothing special; it needs integers (its bits leave the range of doubles); it lies midway
# between two doubles, and `high` is the one nearer to zero.
PLAIN, EXTREME, TIE = 0, 1, 2


@kernel
def _carry(digits: Array, width: int, scratch: Array) -> bool:
    """Copy digits into scratch as 0 <= digit < 2**width, of the absolute value; return whether it is negative."""
    mask = (np.int64(1) << width) - 1
    carry: Any = np.int64(0)
    n = digits.size
    for k in range(n):
        d = digits[k] + carry
        scratch[k] = d & mask
        carry = d >> width
    scratch[n] = carry & mask
    scratch[n + 1] = (carry >> width) & mask
    if carry >= 0:
        return False
    _negate(scratch, width, (n + 2) * width)
    return True


@kernel
def _negate(scratch: Array, width: int, bits: int) -> None:
    """Replace the number in the lowest `bits` bits by 2**bits minus it; bits above must be zero, and stay so."""
    mask = (np.int64(1) << width) - 1
    carry: Any = np.int64(1)
    k = 0
    while bits > 0:
        if bits < width:
            mask = (np.int64(1) << bits) - 1
        d = (~scratch[k] & mask) + carry
        scratch[k] = d & mask
        carry = np.int64(1) if d > mask else np.int64(0)
        bits -= width
        k += 1


@kernel
def _log2(digit: int) -> int:
    """Position of the leading bit of 0 < digit < 2**53."""
    bits: Any = np.float64(digit).view(np.int64)
    return int((bits >> 52) - 1023)


@kernel
def _top(scratch: Array, width: int) -> int:
    """Bits up to the leading one: 0 for zero."""
    for k in range(scratch.size - 1, -1, -1):
        if scratch[k]:
            return k * width + _log2(scratch[k]) + 1
    return 0


@kernel
def _take(scratch: Array, width: int, position: int, count: int) -> int:
    """`count` <= 62 bits from bit `position` on, as an integer."""
    k = position // width
    offset = position - k * width
    value: Any = np.int64(0)
    got = 0
    while got < count and k < scratch.size:
        value |= ((scratch[k] >> offset) & ((np.int64(1) << min(width - offset, count - got)) - 1)) << got
        got += width - offset
        offset = 0
        k += 1
    return value


@kernel
def _any_below(scratch: Array, width: int, position: int) -> bool:
    """Whether a bit below `position` is set."""
    k = position // width
    for i in range(k):
        if scratch[i]:
            return True
    rest = position - k * width
    return rest > 0 and (scratch[k] & ((np.int64(1) << rest) - 1)) != 0


@kernel
def _clear_above(scratch: Array, width: int, position: int) -> None:
    k = position // width
    rest = position - k * width
    scratch[k] &= (np.int64(1) << rest) - 1
    for i in range(k + 1, scratch.size):
        scratch[i] = 0


@kernel
def _lowest(scratch: Array, width: int) -> int:
    """Position of the lowest set bit of a number that is not zero."""
    k = 0
    while scratch[k] == 0:
        k += 1
    return k * width + _log2(scratch[k] & -scratch[k])


@kernel
def _nearest(scratch: Array, width: int, top: int) -> tuple[int, int, bool, bool]:
    """Round to 53 bits, ties to even: (mantissa, position of its lowest bit, whether away from zero, whether a tie)."""
    position = top - 53
    if position <= 0:
        return _take(scratch, width, 0, top), 0, False, False
    m = _take(scratch, width, position, 53)
    half = _take(scratch, width, position - 1, 1)
    below = _any_below(scratch, width, position - 1)
    away = half == 1 and (below or (m & 1) == 1)
    return (m + 1 if away else m), position, away, half == 1 and not below


@kernel
def split(digits: Array, width: int, exponent: Array, high: Array, low: Array, state: Array) -> None:
    """Write each value (a row of digits) as high + low: high nearest to it, low nearest to the rest.

    digits is (n, L); the other arrays have n elements. high is infinite or inexact where the state is EXTREME.
    """
    scratch = np.empty(digits.shape[1] + 2, np.int64)
    for r in range(digits.shape[0]):
        high[r] = 0.0
        low[r] = 0.0
        state[r] = PLAIN
        negative = _carry(digits[r], width, scratch)
        top = _top(scratch, width)
        if top == 0:
            continue
        e = exponent[r]
        if top + e > 1023 or (e < -1074 and _lowest(scratch, width) + e < -1074):
            state[r] = EXTREME
            continue
        sign = -1.0 if negative else 1.0
        m, position, away, tie = _nearest(scratch, width, top)
        high[r] = _double(sign * m, position + e)
        if position == 0:
            continue
        if tie and not away:
            state[r] = TIE
        _clear_above(scratch, width, position)
        if away:
            _negate(scratch, width, position)
            sign = -sign
        top = _top(scratch, width)
        if top > 0:
            m, position, away, tie = _nearest(scratch, width, top)
            low[r] = _double(sign * m, position + e)


@kernel
def _double(m: float, e: int) -> float:
    """M * 2**e for an integer m, where that is a double; e itself may be below -1074."""
    while e < -1074:
        m *= 0.5
        e += 1
    return m * power(e)


@kernel
def _toward(value: float, direction: float) -> float:
    """Return the double next to a non-zero value, above it if direction is positive, below if negative."""
    bits = np.float64(value).view(np.int64)
    step: Any = np.int64(1 if (direction > 0) == (bits >= 0) else -1)
    return np.int64(bits + step).view(np.float64)


@kernel
def stand_in(
    high: Array, low: Array, state: Array, out: Array, precision: int, emin: int, subnormals: bool, mode: int
) -> None:
    """Write to `out` the double that rounds to a format as the exact value high + low does, in the same mode.

    Where the format drops two or more bits of a double of that magnitude, it is the value rounded to odd. Where it drops
    one, rounding to nearest needs a double off the midpoint instead; where it drops none, the double is the result.
    """
    for r in range(high.size):
        h = high[r]
        d = low[r]
        out[r] = h
        if d == 0 or state[r] == EXTREME:
            continue
        bits = np.float64(h).view(np.int64)
        odd = (bits & 1) == 1
        exponent = max((bits >> 52) & 2047, 1) - 1023
        dropped = 53 - precision + (max(emin - exponent, 0) if subnormals else 0)
        inward = (d > 0) != (h > 0)
        if dropped >= 2 or (dropped == 1 and mode > NEAREST_AWAY) or mode == TO_ODD:
            move = not odd
        elif mode == NEAREST_EVEN:
            move = dropped == 1 and odd
        elif mode == NEAREST_AWAY:
            move = odd if dropped == 1 else state[r] == TIE
        elif mode == TOWARD_ZERO:
            move = inward
        else:
            move = (d > 0) == (mode == UP)
        if move:
            out[r] = _toward(h, d)
