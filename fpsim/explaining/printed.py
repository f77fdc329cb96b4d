"""Printed decimals as what they are: intervals of numbers that print so."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.errors import InputError
from fpsim.formats import Format, round_to

Doubles = NDArray[np.float64]
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?inf(inity)?|nan", re.IGNORECASE)
_SHORT = 3  # digits of a number that is taken at its word if few bits hold it
_FIXED = 4  # numbers that show a fixed number of decimals


@dataclass(frozen=True, eq=False, slots=True)
class Printed:
    """Numbers that were printed as decimals.

    Attributes
    ----------
    values : float64 array
        The nearest numbers of the format.
    low, high : float64 arrays
        Every number from low to high, both included, prints so.
    note : str
        What stands out, such as a number that the format does not have.
    """

    values: Doubles
    low: Doubles
    high: Doubles
    note: str = ""


def is_number(text: Any, /) -> bool:
    """Tell whether a text is one decimal number, an infinity or NaN."""
    return isinstance(text, int | float) or (isinstance(text, str) and _NUMBER.fullmatch(text.strip()) is not None)


def read(numbers: Any, form: Format, /, *, name: str = "a result") -> Printed:
    """Return what printed numbers stand for.

    Parameters
    ----------
    numbers : str, number or nested sequences of them
        As printed; Python floats are taken as Python prints them.
    form : Format
        Of the numbers that were printed.

    Notes
    -----
    All numbers of one result are taken to be printed with as many significant digits as the longest of them, because
    printing drops zeros. Whole numbers, and numbers of at most three digits that eight bits hold, are taken at their
    word: half a unit of ``1.0`` would be 5 percent.
    """
    words, shape = _flat(numbers, name)
    decimals = [_decimal(word, name) for word in words]
    finite = [d for d in decimals if d is not None and d.is_finite() and d != 0]
    digits = max((len(d.normalize().as_tuple().digits) for d in finite), default=0)
    places = max((-int(d.normalize().as_tuple().exponent) for d in finite), default=0)
    fixed = _fixed_decimals(words, decimals)
    values, low, high = [], [], []
    strangers = []
    for word, decimal in zip(words, decimals, strict=True):
        exact = float(word) if decimal is None else float(decimal)
        nearest = float(np.asarray(round_to(np.float64(exact), form))) if math.isfinite(exact) else exact
        half = 0.0 if decimal is None else fixed or _half_unit(decimal, digits, places)
        if not math.isfinite(nearest) or (nearest != exact and not half and form.precision > 24):
            half = 0.0
        values.append(nearest)
        low.append(min(nearest, exact - half) if math.isfinite(nearest) else nearest)
        high.append(max(nearest, exact + half) if math.isfinite(nearest) else nearest)
        if nearest != exact and exact.is_integer() and abs(exact) < 2.0**53:
            strangers.append(f"{word.strip()} is no {form} number: {nearest:.17g} prints so, or the result was wider")
    arrays = [np.array(x, np.float64).reshape(shape) for x in (values, low, high)]
    return Printed(arrays[0], arrays[1], arrays[2], "; ".join(strangers[:2]))


def _fixed_decimals(words: list[str], decimals: list[Decimal | None]) -> float:
    """Return half a unit of the last decimal where all numbers have equally many, as ``%.4f`` prints; else 0."""
    places = {-int(d.as_tuple().exponent) for d in decimals if d is not None and d.is_finite()}
    if len(words) < _FIXED or len(places) != 1 or min(places) <= _SHORT or any("e" in word.lower() for word in words):
        return 0.0
    return float(0.5 * 10.0 ** -min(places))


def _half_unit(decimal: Decimal, digits: int, places: int) -> float:
    """Return half a unit of the last digit that was printed; 0 for numbers taken at their word."""
    if decimal == 0:
        return 0.5 * 10.0**-places if places > 0 and digits >= _SHORT else 0.0
    if decimal == decimal.to_integral_value() and digits <= 6 + (abs(decimal) >= 10**6) * 3:
        return 0.0
    own = len(decimal.normalize().as_tuple().digits)
    mantissa, _ = math.frexp(float(decimal))
    if digits <= _SHORT and own <= _SHORT and (mantissa * 256).is_integer():
        return 0.0
    # With as many digits as the longest, or as many decimals as the longest has: the coarser of both.
    significant = decimal.adjusted() - digits + 1
    return float(0.5 * 10.0 ** min(significant, int(decimal.normalize().as_tuple().exponent)))


def _decimal(word: str, name: str) -> Decimal | None:
    text = word.strip()
    if not _NUMBER.fullmatch(text):
        message = f"{name}: {text[:30]!r} is not a number"
        raise InputError(message)
    return None if text.lower().lstrip("+-")[0] in "in" else Decimal(text)


def _flat(numbers: Any, name: str) -> tuple[list[str], tuple[int, ...]]:
    if isinstance(numbers, np.ndarray):
        numbers = numbers.tolist()
    shape: list[int] = []
    inner = numbers
    while isinstance(inner, Sequence) and not isinstance(inner, str):
        shape.append(len(inner))
        if not len(inner):
            break
        inner = inner[0]
    words = [str(word) for word in _leaves(numbers)]
    if len(words) != math.prod(shape):
        message = f"{name}: its rows have different lengths"
        raise InputError(message)
    return words, tuple(shape)


def _leaves(numbers: Any) -> Iterator[Any]:
    if isinstance(numbers, Sequence) and not isinstance(numbers, str):
        for part in numbers:
            yield from _leaves(part)
    else:
        yield numbers
