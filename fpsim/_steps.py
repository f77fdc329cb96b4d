"""The single operations between reductions: differences, squares, quotients and roots, each rounded once."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim._execution import storage
from fpsim.arithmetic import Arithmetic, Rounding
from fpsim.formats import FLOAT32, FLOAT64, Format, RoundingMode, round_to

_Array = NDArray[Any]


def stored(wide: _Array, form: Format, mode: RoundingMode, output: Rounding | None = None) -> _Array:
    """Return float64 results rounded to a format (and then to the output format), in its NumPy type."""
    values = np.asarray(round_to(wide, form, mode=mode))
    if output is not None:
        form = output.format
        values = np.asarray(round_to(values, form, mode=output.mode))
    with np.errstate(over="ignore"):
        return values.astype(storage(form))


def divided(total: _Array, count: float, arithmetic: Arithmetic, *, exact_count: bool) -> _Array:
    """Return sums divided by a count, or multiplied by its rounded inverse, as float64 that is yet to be rounded.

    The count is converted to float32, or to a wider accumulator, before it divides, unless it is used as it is.
    """
    form, mode = arithmetic.accumulator.format, arithmetic.accumulator.mode
    wide = total.astype(np.float64)
    divisor = np.float64(count)
    if not exact_count:
        divisor = np.float64(round_to(float(count), FLOAT32 if FLOAT32.includes(form) else form))
    with np.errstate(all="ignore"):
        if arithmetic.mean == "divide":
            return _sticky(wide / divisor, wide, form, lambda q, x: x - q * Fraction(float(divisor)))
        one = np.ones(1)
        inverse = _sticky(one / divisor, one, form, lambda q, x: x - q * Fraction(float(divisor)))
        factor = np.float64(round_to(inverse[0], form, mode=mode))
        return _sticky(wide * factor, wide, form, lambda q, x: x * Fraction(float(factor)) - q)


def roots(squares: _Array, form: Format) -> _Array:
    """Return square roots of numbers of a format, as float64 that is yet to be rounded."""
    wide = squares.astype(np.float64)
    with np.errstate(all="ignore"):
        return _sticky(np.sqrt(wide), wide, form, lambda q, x: x - q * q)


def differences(a: _Array, b: _Array, arithmetic: Arithmetic) -> _Array:
    """Return a - b in the accumulator's format, in the memory order in which NumPy allocates the result."""
    accumulator, form = arithmetic.accumulator, flushed(arithmetic)
    with np.errstate(all="ignore"):
        if form == FLOAT32 and accumulator.mode == "nearest-even" and a.dtype == b.dtype == np.float32:
            return np.asarray(np.subtract(a, b))
        wide = np.asarray(np.subtract(a, b, dtype=np.float64))
        if accumulator.format != FLOAT64:
            # The error of the difference (Knuth) makes it odd where it is inexact, so that it can be rounded again.
            x, y = a.astype(np.float64), b.astype(np.float64)
            virtual = wide - x
            error = (x - (wide - virtual)) - (y + virtual)
            even = np.isfinite(wide) & (error != 0) & (wide.view(np.int64) % 2 == 0)
            np.copyto(wide, np.nextafter(wide, np.where(error > 0, np.inf, -np.inf)), where=even)
        return _rounded(wide, form, accumulator.mode)


def squares(x: _Array, arithmetic: Arithmetic) -> _Array | None:
    """Return the squares, rounded to the format of separate products; None where float64 does not hold them exactly."""
    form, mode = arithmetic.product or arithmetic.accumulator.format, arithmetic.accumulator.mode
    form = form.without_subnormals() if arithmetic.ftz else form
    with np.errstate(all="ignore"):
        if form == FLOAT32 and mode == "nearest-even" and x.dtype == np.float32:
            return np.asarray(np.multiply(x, x))
        if x.dtype != np.float32 and form != FLOAT64:
            return None
        return _rounded(np.asarray(np.multiply(x, x, dtype=np.float64)), form, mode)


def flushed(arithmetic: Arithmetic) -> Format:
    """Return the accumulator's format, without subnormals where results are flushed."""
    form = arithmetic.accumulator.format
    return form.without_subnormals() if arithmetic.ftz else form


def _rounded(wide: _Array, form: Format, mode: RoundingMode) -> _Array:
    """Return float64 numbers rounded to a format, as float32 if that holds it, in the same memory order."""
    if form == FLOAT64:
        return wide
    out = np.empty_like(wide, np.float32 if FLOAT32.includes(form) else np.float64)
    out[...] = round_to(wide, form, mode=mode)
    return out


def _sticky(results: _Array, values: _Array, form: Format, excess: Callable[[Fraction, Fraction], Fraction]) -> _Array:
    """Make float64 results of one operation odd where they are inexact, so that they can be rounded to `form`.

    `excess` of a result and its operand has the sign of the exact result minus the result. Up to 25 bits nothing needs
    to be done: a quotient, product or root of such numbers is exact or far from the middle between two of them.
    """
    if form.precision <= 25 or form == FLOAT64:
        return results
    out = np.array(results)
    for index, result in np.ndenumerate(results):
        if not np.isfinite(result) or result == 0:
            continue
        rest = excess(Fraction(float(result)), Fraction(float(values[index])))
        if rest and np.float64(result).view(np.int64) % 2 == 0:
            out[index] = np.nextafter(result, np.inf if rest > 0 else -np.inf)
    return out
