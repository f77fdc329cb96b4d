"""Exact numbers as integer digits, their correct rounding, and the errors of other results against them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fpsim._arrays import as_floats
from fpsim.errors import InputError
from fpsim.formats import FLOAT16, FLOAT32, FLOAT64, Format, as_format, round_to, rounding_mode_code

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fpsim.formats import RoundingMode

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Digits:
    """Exact numbers: (sum over k of digits[:, k] * 2**(width * k)) * 2**exponent, or special where it is not zero."""

    digits: NDArray[np.int64]
    exponent: NDArray[np.int64]
    width: int
    special: Floats | None

    def integer(self, index: int) -> tuple[int, int]:
        """Return (m, e) with value = m * 2**e."""
        m = 0
        for digit in reversed(self.digits[index].tolist()):
            m = (m << self.width) + digit
        return m, int(self.exponent[index])


@dataclass(frozen=True, slots=True)
class Pairs:
    """The exact numbers as doubles: high nearest to the number, low nearest to the rest; integers where neither fits."""

    high: Floats
    low: Floats
    state: NDArray[np.uint8]
    extremes: dict[int, tuple[int, int]]


def _round_integer(m: int, e: int, form: Format, mode: str) -> float:
    """Round m * 2**e, which leaves the range of float64, to a format."""
    magnitude = abs(m)
    top = magnitude.bit_length() + e - 1
    quantum = (max(top, form.emin) if form.subnormals else top) - form.precision + 1
    shift = max(quantum - e, 0)
    kept, rest = magnitude >> shift, magnitude & ((1 << shift) - 1)
    half = 1 << shift >> 1
    outward = {"up": m > 0, "down": m < 0}.get(mode, False)
    away = {
        "nearest-even": rest > half or (rest == half and shift > 0 and kept & 1 == 1),
        "nearest-away": shift > 0 and rest >= half,
        "to-odd": rest > 0 and kept & 1 == 0,
    }.get(mode, rest > 0 and outward)
    kept += away
    result = Fraction(kept) * Fraction(2) ** (e + shift)
    if result > Fraction(form.max):
        passes = outward or mode.startswith("nearest")
        beyond = {"infinity": math.inf, "nan": math.nan, "saturate": form.max}[form.overflow]
        result_float = beyond if passes else form.max
    elif not form.subnormals and result < Fraction(form.smallest_normal):
        result_float = 0.0
    else:
        result_float = float(result)
    return -result_float if m < 0 else result_float


@dataclass(frozen=True, eq=False)
class Exact:
    """Exact results of a reduction, one for each output.

    Attributes
    ----------
    shape : tuple of int
        Shape of the result, as NumPy's.
    terms : str
        What was summed, for people: ``"sum of 1000 terms"``.

    Notes
    -----
    Results that are not finite follow IEEE 754: NaN if a term is NaN, or infinity times zero, or if infinities of both
    signs meet; else the infinity. An exact zero is +0 unless every term is -0. The sum of no terms is +0.
    """

    shape: tuple[int, ...]
    terms: str
    _digits: Digits = field(repr=False)
    _magnitude: Callable[[], Floats] = field(repr=False)
    _cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    # -- the value ------------------------------------------------------------------------------------------------

    @property
    def _pairs(self) -> Pairs:
        if "pairs" not in self._cache:
            self._cache["pairs"] = _split(self._digits)
        return cast("Pairs", self._cache["pairs"])

    def round(self, format: Format | str | Any = "float32", *, mode: RoundingMode = "nearest-even") -> Any:
        """Return the exact values correctly rounded to a format.

        Parameters
        ----------
        format : Format, str or dtype
            The format.
        mode : str, optional
            Any rounding mode of `fpsim.round_to` but ``"stochastic"``.

        Returns
        -------
        ndarray or scalar
            Of the result's shape, a scalar for a scalar: float16, float32 or float64 for these formats, else float32
            where it holds every number of the format, else float64.

        Raises
        ------
        InputError
            If the format or mode is unknown, or the mode stochastic.

        Examples
        --------
        >>> import numpy as np
        >>> from fpsim import exact
        >>> exact.sum(np.float32([1, 2**-24, 2**-149])).round("float32") - 1
        np.float32(1.1920929e-07)
        """
        from fpsim.kernels import exact_values

        form = as_format(format)
        code = rounding_mode_code(mode)
        if mode == "stochastic":
            message = "an exact value has no stochastic rounding; round it to float64 and call fpsim.round_to"
            raise InputError(message)
        pairs = self._pairs
        near = np.empty_like(pairs.high)
        exact_values.stand_in(
            pairs.high, pairs.low, pairs.state, near, form.precision, form.emin, form.subnormals, code
        )
        rounded = np.asarray(round_to(near, form, mode=mode), np.float64)
        for index, (m, e) in pairs.extremes.items():
            rounded[index] = _round_integer(m, e, form, mode)
        if not form.subnormals:
            small = (np.abs(pairs.high) < 2.0**-1000) & (pairs.low != 0)
            for place in np.flatnonzero(small).tolist():
                rounded[place] = _round_integer(*self._digits.integer(place), form, mode)
        return rounded.astype(_storage(form)).reshape(self.shape)[()]

    def to_mpmath(self) -> Any:
        """Return the exact values as mpmath numbers of whatever precision they need.

        Returns
        -------
        mpmath.mpf or ndarray of object
            A scalar for a scalar. The precision of mpmath's context is neither read nor changed.
        """
        import mpmath

        values = np.empty(self._pairs.high.size, object)
        special = self._digits.special
        for index in range(values.size):
            if special is not None and special[index] != 0:
                values[index] = mpmath.mpf(float(special[index]))
            else:
                values[index] = mpmath.mp.make_mpf(mpmath.libmp.from_man_exp(*self._digits.integer(index)))
        return values.reshape(self.shape)[()]

    def __float__(self) -> float:
        if self.shape:
            message = f"only a scalar result converts to float; this one has shape {self.shape}"
            raise InputError(message)
        return float(self.round("float64"))

    # -- errors ---------------------------------------------------------------------------------------------------

    def error(self, result: Any, /) -> Any:
        """Return result - exact as float64, within 1 ulp of float64 (correctly rounded where result is the nearest).

        Parameters
        ----------
        result : array_like
            Results, of a shape that broadcasts with the exact one.

        Returns
        -------
        ndarray of float64 or scalar
            Zero where both are the same infinity; NaN where either is NaN.
        """
        return self._error(self._values(result))[()]

    def ulp_error(self, result: Any, /, format: Format | str | Any | None = None) -> Any:
        """Return the signed error in units in the last place of the exact value.

        Parameters
        ----------
        result : array_like
            Results, of a shape that broadcasts with the exact one.
        format : Format, str or dtype, optional
            The format whose ulps count; that of `result` by default.

        Returns
        -------
        ndarray of float64 or scalar
            ``(result - exact) / 2**(max(e, emin) - precision + 1)`` with ``2**e <= abs(exact) < 2**(e + 1)``; at zero
            the ulp is the smallest one. Zero where both are the same infinity, NaN where either is NaN or the exact
            value is not finite.
        """
        values, own = as_floats(result, name="result")
        form = own if format is None else as_format(format)
        error = self._error(values.astype(np.float64))
        unit = np.maximum(self._binade().reshape(self.shape), form.emin) - form.precision + 1
        unit = np.broadcast_to(unit, error.shape)
        half = unit // 2  # in two steps: 2**-unit itself may leave float64
        with np.errstate(over="ignore", under="ignore"):
            return np.ldexp(np.ldexp(error, -half), half - unit)[()]

    def relative_error(self, result: Any, /) -> Any:
        """Return (result - exact) / abs(exact) as float64.

        Parameters
        ----------
        result : array_like
            Results, of a shape that broadcasts with the exact one.

        Returns
        -------
        ndarray of float64 or scalar
            Signed; zero where the result is exact, infinite where only the exact value is zero.
        """
        return self._over(self._error(self._values(result)), np.abs(self._high()))[()]

    def backward_error(self, result: Any, /) -> Any:
        """Return abs(result - exact) / (sum of the terms' magnitudes).

        This is the smallest relative change of all terms that makes the result exact (Higham, *Accuracy and Stability
        of Numerical Algorithms*, section 3.1 and problem 7.7).

        Parameters
        ----------
        result : array_like
            Results, of a shape that broadcasts with the exact one.

        Returns
        -------
        ndarray of float64 or scalar
            Zero where the result is exact; NaN where the exact value or the result is NaN.
        """
        return self._over(np.abs(self._error(self._values(result))), self._terms_magnitude())[()]

    @property
    def magnitude(self) -> Any:
        """Sum of the magnitudes of all terms, nearest float64.

        Computed when first asked for, from the operands as they are then: do not change them in place before.
        """
        return self._terms_magnitude()[()]

    @property
    def condition(self) -> Any:
        """Condition number, magnitude / abs(exact): infinite where the exact value is zero and a term is not.

        1 for the sum of no terms or of zeros (Higham, section 4.2).
        """
        magnitude = self._terms_magnitude()
        high = np.abs(self._high())
        ratio = self._over(magnitude, high)
        return np.where((magnitude == 0) & (high == 0), 1.0, ratio)[()]

    # -- forms ----------------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        if not self.shape:
            return f"exact {self.terms}: {float(self)!r}"
        return f"exact {self.terms}, shape {self.shape}:\n{self.round('float64')}"

    def __repr__(self) -> str:
        return f"<{self}>"

    def to_dict(self) -> dict[str, Any]:
        """Return shape, values and magnitudes (nearest float64) and condition numbers as plain Python objects."""
        return {
            "shape": list(self.shape),
            "terms": self.terms,
            "value": np.asarray(self.round("float64")).tolist(),
            "magnitude": np.asarray(self.magnitude).tolist(),
            "condition": np.asarray(self.condition).tolist(),
        }

    # -- inside ---------------------------------------------------------------------------------------------------

    def _high(self) -> Floats:
        """Return the nearest float64 to each value."""
        return np.asarray(self.round("float64"))

    def _terms_magnitude(self) -> Floats:
        if "magnitude" not in self._cache:
            self._cache["magnitude"] = np.asarray(self._magnitude(), np.float64)
        return cast("Floats", self._cache["magnitude"])

    def _values(self, result: Any) -> Floats:
        return as_floats(result, name="result")[0].astype(np.float64)

    def _error(self, result: Floats) -> Floats:
        try:
            shape = np.broadcast_shapes(result.shape, self.shape)
        except ValueError:
            shape = ()
        if shape not in (self.shape, result.shape):
            message = f"result has shape {result.shape}, the exact one has {self.shape}"
            raise InputError(message)
        pairs = self._pairs
        high, low = (np.broadcast_to(part.reshape(self.shape), shape) for part in (pairs.high, pairs.low))
        result = np.broadcast_to(result, shape)
        with np.errstate(all="ignore"):
            total = result - high
            part = total - result
            rest = (result - (total - part)) - (high + part)
            error = np.where(np.isfinite(total), total + (rest - low), total)
            error = np.where((result == high) & np.isinf(high), 0.0, error)
        if pairs.extremes or np.any(~np.isfinite(error) & np.isfinite(result)):
            self._repair(error, result)
        return cast("Floats", error)

    def _repair(self, error: Floats, result: Floats) -> None:
        """Recompute in integers the errors that float64 cannot give in steps."""
        number = np.broadcast_to(np.arange(self._pairs.high.size).reshape(self.shape), error.shape)
        wanted = np.zeros(self._pairs.high.size, np.bool)
        wanted[list(self._pairs.extremes)] = True
        wanted = (wanted[number] | ~np.isfinite(error)) & np.isfinite(result)
        if self._digits.special is not None:
            wanted &= np.isfinite(self._digits.special)[number]
        for place in map(tuple, np.argwhere(wanted)):
            m, e = self._digits.integer(int(number[place]))
            difference = Fraction(float(result[place])) - Fraction(m) * Fraction(2) ** e
            error[place] = _fraction_to_double(difference)

    def _binade(self) -> NDArray[np.int64]:
        """Return e with 2**e <= abs(exact) < 2**(e+1), far below any format's for zero."""
        pairs = self._pairs
        mantissa, exponent = np.frexp(pairs.high)
        below = (np.abs(mantissa) == 0.5) & (pairs.low != 0) & (np.signbit(pairs.low) != np.signbit(pairs.high))
        binade = np.where(pairs.high == 0, -(10**6), exponent.astype(np.int64) - 1 - below)
        for index, (m, e) in pairs.extremes.items():
            binade[index] = abs(m).bit_length() - 1 + e
        return cast("NDArray[np.int64]", binade)

    @staticmethod
    def _over(error: Floats, scale: Floats) -> Floats:
        with np.errstate(all="ignore"):
            return np.where(error == 0, error, error / scale)


def _fraction_to_double(value: Fraction) -> float:
    try:
        return value.numerator / value.denominator
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _storage(form: Format) -> type[np.floating[Any]]:
    if form.overflow == "infinity" and form in (FLOAT16, FLOAT32, FLOAT64):
        native: dict[int, type[np.floating[Any]]] = {11: np.float16, 24: np.float32, 53: np.float64}
        return native[form.precision]
    return np.float32 if FLOAT32.includes(form) else np.float64


def _split(numbers: Digits) -> Pairs:
    from fpsim.kernels import exact_values

    n = numbers.digits.shape[0]
    high, low, state = np.empty(n), np.empty(n), np.empty(n, np.uint8)
    exact_values.split(numbers.digits, numbers.width, numbers.exponent, high, low, state)
    extremes = {int(i): numbers.integer(int(i)) for i in np.flatnonzero(state == exact_values.EXTREME)}
    if numbers.special is not None:
        special = (numbers.special != 0) | np.signbit(numbers.special)
        high[special], low[special] = numbers.special[special], 0.0
        for place in np.flatnonzero(special).tolist():
            extremes.pop(place, None)
    for index, (m, e) in extremes.items():
        high[index], low[index] = _fraction_to_double(Fraction(m) * Fraction(2) ** e), 0.0
    return Pairs(high, low, state, extremes)
