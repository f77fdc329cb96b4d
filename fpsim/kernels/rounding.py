"""One correct rounding of a float64 value to any binary format inside float64, written once on integer bits.

`round_value` is the only place of the project where a value is narrowed. It is branch-free apart from choices that do
not change inside a loop, so that LLVM vectorises every loop around it, and it rounds once: nothing passes through an
intermediate format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fpsim.kernels._jit import inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The positions of these names in `fpsim.formats.ROUNDING_MODES` and `OVERFLOW_POLICIES` (a test compares them).
NEAREST_EVEN, NEAREST_AWAY, TOWARD_ZERO, UP, DOWN, TO_ODD, STOCHASTIC = range(7)
INFINITY, NAN, SATURATE = range(3)

_MAGNITUDE = 0x7FFF_FFFF_FFFF_FFFF
_FRACTION = 0x000F_FFFF_FFFF_FFFF
_IMPLICIT = 0x0010_0000_0000_0000
_INFINITE = 0x7FF0_0000_0000_0000
_QUIET_NAN = 0x7FF8_0000_0000_0000


@inlined
def power_of_two_bits(exponent: int) -> int:
    """Return the bits of the float64 2**exponent, for exponents from -1074 to 1023."""
    return (exponent + 1023) << 52 if exponent >= -1022 else 1 << max(exponent + 1074, 0)


@inlined
def round_value(
    x: float,
    precision: int,
    emin: int,
    largest: float,
    overflow: int,
    subnormals: bool,
    mode: int,
    random: int = 0,
) -> float:
    """Round one float64 to a format; the parameters are those of `fpsim.formats.Format.parameters`.

    Parameters
    ----------
    x : float64
        The value.
    precision : int64
        Bits of the significand with the hidden bit, 1 to 53.
    emin : int64
        Exponent of the smallest normal number, at least -1022.
    largest : float64
        The largest finite number of the format.
    overflow : int64
        What stands for infinity: `INFINITY`, `NAN`, or `SATURATE` (the largest finite number).
    subnormals : bool
        False: x is rounded as if the exponent were unbounded below, and a result smaller than 2**emin in magnitude
        becomes a zero of the same sign (tininess after rounding, as SSE's FTZ), in every mode.
    mode : int64
        `NEAREST_EVEN` to `STOCHASTIC`. A literal constant makes the loop around the call vectorise.
    random : int64
        For `STOCHASTIC`: at least 63 uniform random bits, none negative. The value is rounded away from zero with a
        probability that is the discarded fraction, exact to 2**-63.

    Returns
    -------
    float64
        The rounded value. Signed zeros and NaN are kept. The exponent is unbounded above while rounding; a result
        beyond `largest` is an overflow, which gives the stand-in for infinity in the nearest and stochastic modes and
        in the directed mode that points away from zero, and `largest` otherwise.
    """
    bits: Any = np.float64(x).view(np.int64)
    magnitude = bits & _MAGNITUDE
    negative = bits < 0
    field = magnitude >> 52
    significand = (magnitude & _FRACTION) | (_IMPLICIT if field > 0 else 0)

    shift = 53 - precision  # how many low bits of the significand go
    if subnormals:
        shift += max(emin + 1023 - max(field, 1), 0)
    elif field == 0:
        shift = max(shift - 1, 0)  # only the binade below 2**-1022 can still round up to 2**emin
    away: Any = False
    if mode == STOCHASTIC:
        significand >>= min(max(shift - 63, 0), 63)
        shift = min(shift, 63)
        rest = significand & ((1 << shift) - 1)
        away = (random & ((1 << shift) - 1)) < rest
    else:
        shift = min(shift, 54)
        rest = significand & ((1 << shift) - 1)
        odd = (significand >> shift) & 1
        if mode == NEAREST_EVEN:
            away = 2 * rest + odd > (1 << shift)
        elif mode == NEAREST_AWAY:
            away = 2 * rest >= (1 << shift)
        elif mode == UP:
            away = (rest > 0) & (not negative)
        elif mode == DOWN:
            away = (rest > 0) & negative
        elif mode == TO_ODD:
            away = (rest > 0) & (odd == 0)
    # Magnitudes are ordered like their bits, so a carry runs into the exponent by itself. From 53 bits on everything
    # of x goes, and the neighbours are zero and the smallest number of the format.
    rounded: Any = 0
    if shift > 52:
        rounded = power_of_two_bits(emin - precision + 1) if away else 0
    else:
        rounded = magnitude - rest + ((1 << shift) if away else 0)

    limit = np.float64(largest).view(np.int64)
    passes: Any = (mode != TOWARD_ZERO) & (mode != TO_ODD)
    if mode == UP:
        passes = not negative
    elif mode == DOWN:
        passes = negative
    beyond: Any = limit
    if overflow == INFINITY:
        beyond = _INFINITE
    elif overflow == NAN:
        beyond = _QUIET_NAN
    if rounded > limit:
        rounded = beyond if passes | (magnitude == _INFINITE) else limit
    if (not subnormals) & (rounded < ((emin + 1023) << 52)):
        rounded = 0
    if magnitude > _INFINITE:
        rounded = magnitude
    return np.int64(rounded | (bits ^ magnitude)).view(np.float64)


@inlined
def round_to_odd_sum(total: float, error: float) -> float:
    """Return total + error rounded to odd in float64, where total is that sum rounded to nearest and error is exact.

    Rounding the result once more, to at most 51 bits, is then as good as rounding the exact sum (Boldo and Melquiond,
    "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd", IEEE Trans. Comput. 57,
    2008). A zero, infinite or NaN total is returned as it is.
    """
    bits = np.float64(total).view(np.int64)
    magnitude = bits & _MAGNITUDE
    outward = np.int64(error > 0.0) - np.int64(error < 0.0)
    step = -outward if bits < 0 else outward
    even = (bits & 1) == 0
    return np.int64(bits + (step if even & (magnitude > 0) & (magnitude < _INFINITE) else 0)).view(np.float64)


@kernel
def round_array_to_nearest(
    x: NDArray[np.floating],
    out: NDArray[np.floating],
    precision: int,
    emin: int,
    largest: float,
    overflow: int,
    subnormals: bool,
) -> None:
    """Round a vector into `out`, to nearest even.

    x and out are contiguous vectors of one length, float32 or float64 each; out may be x. The values of the format
    must fit the type of out.
    """
    for i in range(x.size):
        out[i] = round_value(x[i], precision, emin, largest, overflow, subnormals, NEAREST_EVEN)


@kernel
def round_array(
    x: NDArray[np.floating],
    out: NDArray[np.floating],
    precision: int,
    emin: int,
    largest: float,
    overflow: int,
    subnormals: bool,
    mode: int,
) -> None:
    """Round a vector into `out` in a mode other than nearest-even and stochastic: one loop per mode, each vectorised."""
    n = x.size
    if mode == NEAREST_AWAY:
        for i in range(n):
            out[i] = round_value(x[i], precision, emin, largest, overflow, subnormals, NEAREST_AWAY)
    elif mode == TOWARD_ZERO:
        for i in range(n):
            out[i] = round_value(x[i], precision, emin, largest, overflow, subnormals, TOWARD_ZERO)
    elif mode == UP:
        for i in range(n):
            out[i] = round_value(x[i], precision, emin, largest, overflow, subnormals, UP)
    elif mode == DOWN:
        for i in range(n):
            out[i] = round_value(x[i], precision, emin, largest, overflow, subnormals, DOWN)
    else:
        for i in range(n):
            out[i] = round_value(x[i], precision, emin, largest, overflow, subnormals, TO_ODD)


@kernel
def round_array_stochastic(
    x: NDArray[np.floating],
    out: NDArray[np.floating],
    precision: int,
    emin: int,
    largest: float,
    overflow: int,
    subnormals: bool,
    random: NDArray[np.int64],
) -> None:
    """Round a vector into `out` stochastically, with 63 random bits for each element."""
    for i in range(x.size):
        out[i] = round_value(x[i], precision, emin, largest, overflow, subnormals, STOCHASTIC, random[i])
