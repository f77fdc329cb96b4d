"""Figures about results: what each mechanism predicts for a largest error, a mean difference, a share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.explaining.mechanisms import Mechanism, computed
from fpsim.explaining.observation import Case, Measure
from fpsim.explaining.operations import Reference

Doubles = NDArray[np.float64]
#: How far a figure may be from a prediction, relatively: other runs, orders and random numbers vary so.
_ROOM = {"max": 0.35, "mean": 0.06, "std": 0.06, "norm": 0.25, "share": 0.35, "max over max": 0.2}
_MOST = 24  # predictions of one mechanism
_PAIRS = 3  # predictions that others are compared with


@dataclass(frozen=True, eq=False, slots=True)
class Judged:
    """What can be said about a figure.

    Attributes
    ----------
    measure : Measure
    status : str
        "beyond bound", "rounding size", "reduced", "too large" or "not examined".
    text : str
        Why.
    mechanism : Mechanism or None
        The simplest that predicts it.
    others : tuple of str
        Names of others.
    """

    measure: Measure
    status: str
    text: str
    mechanism: Mechanism | None = None
    others: tuple[str, ...] = ()


def figure(statistic: str, difference: Doubles, scale: float = 1.0) -> float:
    """Return a statistic of differences."""
    d = np.abs(difference[np.isfinite(difference)])
    if not d.size:
        return 0.0
    match statistic.split(maxsplit=1)[0]:
        case "mean":
            return float(d.mean())
        case "norm":
            return float(np.sqrt(np.sum(d**2)))
        case "std":
            return float(np.std(difference[np.isfinite(difference)]))
        case "share":
            return float(np.mean(d > 0))
    if statistic == "max over max":
        return float(d.max()) / (scale or 1.0)
    return float(d.max())


def judge(case: Case, reference: Reference, measure: Measure, /) -> Judged:
    """Compare a figure with the bound, with the size of rounding, and with what each mechanism predicts."""
    if measure.statistic in ("place", "max output", "max relative"):
        if measure.statistic == "max relative":
            return _relative(reference, measure)
        return Judged(measure, "not examined", "")
    if measure.statistic.startswith("count"):
        number = float(measure.statistic.split()[1])
        if measure.low > 0 and not np.any(np.abs(reference.value - number) <= reference.bound):
            return Judged(
                measure,
                "beyond bound",
                f"no result can be {number:g}: the exact ones lie within {reference.bound.max():.3g} of {reference.value.min():.6g} to {reference.value.max():.6g}",
            )
        return Judged(measure, "not examined", "")
    two = 2.0 if measure.against != "exact" else 1.0
    largest = float(np.abs(reference.value).max(initial=0.0))
    if measure.statistic != "share":
        bound = figure("max" if measure.statistic == "std" else measure.statistic, reference.bound, largest) * two
        if measure.low > bound * (1 + 1e-9):
            beyond = Judged(
                measure,
                "beyond bound",
                f"{measure.low:.4g} is more than the {bound:.3g} that rounding of any order can give",
            )
            fitting = _predicted(case, reference, measure)
            return fitting if fitting is not None and fitting.status == "reduced" else beyond
        size = _size(measure, reference, largest) * math.sqrt(two)
        if measure.low <= size:
            fitting = _predicted(case, reference, measure)
            told = f"{_number(measure)} is within what rounding gives here ({size:.3g})"
            if fitting is not None and fitting.status == "rounding size":
                return Judged(measure, "rounding size", f"{told}; {fitting.text}", fitting.mechanism, fitting.others)
            return Judged(measure, "rounding size", told)
        fitting = _predicted(case, reference, measure)
        if fitting is not None:
            return fitting
        return Judged(
            measure,
            "too large",
            f"{_number(measure)} is within the worst-case bound ({bound:.3g}), but more than rounding gives ({size:.3g})",
        )
    fitting = _predicted(case, reference, measure)
    return fitting or Judged(measure, "too large", f"no mechanism tried predicts {_number(measure)}")


def _number(measure: Measure) -> str:
    return (
        f"{measure.name} {(measure.low + measure.high) / 2:.4g}"
        if math.isfinite(measure.high)
        else f"{measure.name} above {measure.low:.3g}"
    )


def _relative(reference: Reference, measure: Measure) -> Judged:
    with np.errstate(all="ignore"):
        allowed = 2 * reference.bound / np.abs(reference.value)
    most = float(np.nanmax(allowed, initial=0.0))
    if measure.low > most:
        return Judged(
            measure,
            "beyond bound",
            f"a relative difference above {measure.low:.3g} is more than the {most:.3g} that rounding can give",
        )
    return Judged(measure, "not examined", "relative differences mean nothing near zero")


def _size(measure: Measure, reference: Reference, largest: float) -> float:
    limit = math.sqrt(2 * math.log(2000 * max(reference.size.size, 1)))
    size, last = reference.size, reference.last
    match measure.statistic:
        case "mean":
            return 1.5 * float(size.mean()) + float(last.mean())
        case "norm":
            return 1.5 * float(np.sqrt(np.sum(size**2))) + float(np.sqrt(np.sum(last**2)))
        case "std":
            return 1.5 * float(np.sqrt(np.mean(size**2))) + float(np.sqrt(np.mean(last**2)))
    largest_size = float((limit * size + last).max(initial=0.0))
    return largest_size / (largest or 1.0) if measure.statistic == "max over max" else largest_size


_last: list[tuple[Case, list[tuple[Mechanism, str, Doubles]]]] = []  # several figures belong to one case


def _all(case: Case, reference: Reference) -> list[tuple[Mechanism, str, Doubles]]:
    """Return what rounding and reduced precision predict, worked out once for a case."""
    if _last and _last[0][0] is case:
        return _last[0][1]
    found = [
        (one, prediction.text, given)
        for one, prediction, given in computed(case, kinds=("rounding", "reduced"), most=_MOST)
        if given.shape == reference.value.shape
    ]
    _last[:] = [(case, found)]
    return found


def _predicted(case: Case, reference: Reference, measure: Measure) -> Judged | None:
    """Return what the simplest fitting mechanism says, or None."""
    largest = float(np.abs(reference.value).max(initial=0.0))
    room = _ROOM.get(measure.statistic, 0.2)
    if not case.known or case.data.precision < 24:  # of other numbers of the same law
        room = max(room, 0.35) if measure.statistic in ("share", "mean", "std") else 0.9
    base: list[tuple[str, Doubles]] = []
    fitting: list[tuple[float, Mechanism, str, float]] = []
    for one, told_as, given in _all(case, reference):
        against = [("the exact result", reference.value)] if measure.against == "exact" else base
        for name, other in against:
            value = figure(measure.statistic, given - other, largest)
            if value <= 0 or measure.high <= 0:
                off = 0.0 if value == measure.low else math.inf
            else:
                off = max(math.log(max(measure.low, 1e-300) / value), math.log(value / measure.high), 0.0)
            if off <= room:
                fitting.append((off, one, f"{told_as} against {name}", value))
        if len(base) < _PAIRS:
            base.append((told_as, given))
    if not fitting:
        return None
    kinds = {"rounding": 0, "reduced": 1}
    off, best, text, value = min(fitting, key=lambda f: (kinds[f[1].kind], round(f[0], 2), f[1].rank))
    others = tuple(dict.fromkeys(f[1].name for f in sorted(fitting, key=lambda f: f[0]) if f[1].name != best.name))
    del off
    status = "rounding size" if best.kind == "rounding" else "reduced"
    return Judged(measure, status, f"{text} gives {value:.4g} where {_number(measure)} was reported", best, others)


def told(judged: Any, /) -> str:
    """Return the sentence about a figure."""
    return f"{judged.measure.name}: {judged.text}"
