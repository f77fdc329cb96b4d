"""How observed results differ from each other, without knowing what is right."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim._plausibility import pattern
from fpsim.formats import Format, as_format, round_to

#: Values and their format, by name.
Results = dict[str, tuple[NDArray[Any], Format]]


@dataclass(frozen=True, slots=True)
class Difference:
    """How two observed results differ.

    Attributes
    ----------
    first, second : str
        Names of the sides.
    differing, total : int
        Elements whose values differ, and all elements. Two NaN are equal, and so are zeros of either sign.
    max_ulp : float
        Largest distance, in ulps of the larger of both numbers, in the format with fewer bits.
    max_absolute, max_relative : float
        Largest absolute distance; largest distance relative to the larger number.
    where : str
        Which elements differ.
    """

    first: str
    second: str
    differing: int
    total: int
    max_ulp: float
    max_absolute: float
    max_relative: float
    where: str


def differences(results: Results, /) -> tuple[Difference, ...]:
    """Return how each pair of results differs."""
    names = list(results)
    return tuple(_difference(a, b, *results[a], *results[b]) for i, a in enumerate(names) for b in names[i + 1 :])


def _difference(
    first: str, second: str, x: NDArray[Any], form_x: Format, y: NDArray[Any], form_y: Format
) -> Difference:
    form = min(form_x, form_y, key=lambda f: f.precision)
    a, b = x.astype(np.float64), y.astype(np.float64)
    unequal = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    with np.errstate(all="ignore"):
        distance = np.where(unequal, np.abs(a - b), 0.0)
        larger = np.maximum(np.abs(a), np.abs(b))
        finite = np.isfinite(distance) & unequal
        exponent = np.maximum(np.frexp(larger)[1] - 1, form.emin) - form.precision + 1
        ulps = np.where(finite, np.ldexp(np.ldexp(distance, -(exponent // 2)), exponent // 2 - exponent), 0.0)
        relative = np.where(finite, distance / larger, 0.0)
        distance = np.where(finite, distance, 0.0)
    infinite = int((unequal & ~finite).sum())
    where = pattern(np.atleast_1d(unequal))
    if infinite:
        where += f" ({infinite} with a NaN or an infinity on one side)"
    return Difference(
        first, second, int(unequal.sum()), unequal.size, float(ulps.max()), float(distance.max()),
        float(relative.max()), where,
    )  # fmt: skip


def narrower(values: NDArray[Any], form: Format, /) -> str:
    """Say which narrower format holds every number, if one does."""
    for name in ("bfloat16", "float16", "tf32", "float32"):
        narrow = as_format(name)
        if narrow.precision < form.precision and values.size > 3:
            with np.errstate(all="ignore"):
                if np.array_equal(np.asarray(round_to(values, narrow)), values, equal_nan=True):
                    return f"every number is one of {name}, though stored as {form}"
    return ""


def scale(results: Results, worst: Difference, /) -> str:
    """Say how large the largest difference is beside the data, and what would make it so large."""
    values = results[worst.first][0].astype(np.float64)
    values = values[np.isfinite(values)]
    size = math.sqrt(float(np.mean(values**2))) if values.size else 0.0
    if worst.max_absolute == 0:
        return "The sides differ only where one is infinite or NaN."
    share = worst.max_absolute / size if size else math.inf
    form = min((results[n][1] for n in (worst.first, worst.second)), key=lambda f: f.precision)
    unit = 2.0**-form.precision
    if share < 64 * unit:
        hint = f"a few roundings of {form}: another order or FMA would do it, and so would a small fault"
    elif share < 2.0**-8:
        hint = f"{share / unit:.3g} units of {form}: long sums, cancellation, operands in reduced precision, or a fault"
    else:
        hint = "too large for a few roundings: operands in bfloat16, strong cancellation, or a fault"
    return f"The largest difference is {share:.2g} of the data's root mean square, {hint}."
