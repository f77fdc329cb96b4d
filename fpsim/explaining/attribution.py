"""The difference of two sides as a chain of single changes: order, FMA, operands, accumulator, output."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim._matching import Match
from fpsim.errors import FpsimError
from fpsim.strategies import Strategy, strategy

_TRIED: Final = 40  # matches of each side that are compared for the shortest chain
#: The settings that one change replaces, in the sequence of a chain.
CHANGES: Final = (
    ("FMA", ("fma", "product")),
    ("operand precision", ("operands", "right")),
    ("alignment of fused adds", ("align",)),
    ("accumulator precision", ("accumulator",)),
    ("compensation", ("compensation",)),
    ("subnormal numbers", ("ftz", "daz")),
    ("start and division", ("start", "mean")),
    ("output rounding", ("output",)),
)
ORDER: Final = "order of additions"
_MOST_PAIRED: Final = 4  # sides of which every pair has a chain
_MECHANISMS: Final = {
    "operand precision": "reduced-precision operands",
    "accumulator precision": "low-precision accumulator",
    "compensation": "compensated summation",
    "subnormal numbers": "subnormal numbers flushed to zero (FTZ/DAZ)",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One change on the way from one side to the other.

    Attributes
    ----------
    change : str
        What is changed: "order of additions", "FMA", "operand precision", ...
    strategy : str
        What is computed after the change.
    share : float
        Its part of the difference: the increments of all steps add up to the difference, and a share is the projection
        of an increment on it, so that shares add up to 1. Negative where a step takes back what others make.
    changed : int
        Outputs that the step changes.
    largest : float
        The largest change, absolute.
    """

    change: str
    strategy: str
    share: float
    changed: int
    largest: float


@dataclass(frozen=True, slots=True)
class Attribution:
    """The difference of two reproduced sides, written as a chain of single changes.

    Attributes
    ----------
    first, second : str
        Names of the sides.
    start : str
        The strategy of the first side.
    steps : tuple of Step
        What leads from it to the strategy of the second.
    chains : int
        How many pairs of matched strategies need as few changes; where it is not 1, another chain fits as well.
    """

    first: str
    second: str
    start: str
    steps: tuple[Step, ...]
    chains: int = 1

    def __str__(self) -> str:
        parts = [
            f"{one.change} {round(100 * one.share)} % ({one.changed} outputs, at most {one.largest:.3g}) -> {one.strategy}"
            for one in self.steps
        ]
        other = "" if self.chains == 1 else f" [{self.chains - 1} other chains are as short]"
        return f"{self.second} - {self.first}: {self.start} -> " + "; ".join(parts) + other


def changes(first: str, second: str, /) -> list[str]:
    """Return what differs between two strategies, by the names of the changes; texts that are none differ as a whole."""
    try:
        a, b = strategy(first), strategy(second)
    except FpsimError:
        return [] if first == second else ["mechanism"]
    found = [ORDER] if str(a.order) != str(b.order) else []
    return found + [name for name, fields in CHANGES if _values(a, fields) != _values(b, fields)]


def _values(one: Strategy, fields: Sequence[str]) -> list[Any]:
    own = one.arithmetic()
    plain = {"fma": False, "compensation": None, "ftz": False, "daz": False}
    values = [getattr(one.settings, name) for name in fields]
    values = [
        plain[name] if value is None and name in plain else value for name, value in zip(fields, values, strict=True)
    ]
    return [str(own.accumulator)] if list(fields) == ["accumulator"] else values


def nearest_pairs(first: Sequence[Match], second: Sequence[Match], /) -> list[tuple[list[str], str, str]]:
    """Return the pairs of matches with fewest changes, simplest first."""
    pairs = [
        (len(changed), i + j, changed, a.strategy, b.strategy)
        for i, a in enumerate(first[:_TRIED])
        for j, b in enumerate(second[:_TRIED])
        if (changed := changes(a.strategy, b.strategy))
    ]
    least = min(pairs, default=None)
    return [] if least is None else [pair[2:] for pair in sorted(pairs) if pair[0] == least[0]]


def intermediate(first: str, second: str, changed: Sequence[str], /) -> Iterator[tuple[str, str]]:
    """Yield each change and the strategy after it."""
    a, b = strategy(first), strategy(second)
    order, settings = a.order, a.settings
    for name in changed:
        if name == ORDER:
            order = b.order
        else:
            fields = dict(CHANGES)[name]
            settings = dataclasses.replace(settings, **{field: getattr(b.settings, field) for field in fields})
        yield name, str(Strategy(order, settings))


def attribute(
    names: tuple[str, str],
    matches: tuple[Sequence[Match], Sequence[Match]],
    compute: Callable[[str], Any],
    /,
) -> Attribution | None:
    """Return the chain from the first side to the second, or None where there is none.

    Parameters
    ----------
    names, matches : pairs
        Of the two sides.
    compute : callable
        Returns the outputs under a strategy.
    """
    pairs = nearest_pairs(*matches)
    for changed, first, second in pairs[:4]:
        if "mechanism" in changed:
            continue
        for sequence in itertools.islice(itertools.permutations(changed), 6):
            try:
                listed = list(intermediate(first, second, sequence))
                results = [np.asarray(compute(text), np.float64) for text in (first, *(text for _, text in listed))]
            except FpsimError:
                continue  # a setting without another one is no arithmetic: try them in another sequence
            if listed[-1][1] != str(strategy(second)):
                results[-1] = np.asarray(compute(second), np.float64)
            return Attribution(*names, first, _steps(listed, results), len(pairs))
    return None


def _steps(listed: list[tuple[str, str]], results: list[NDArray[np.float64]]) -> tuple[Step, ...]:
    with np.errstate(all="ignore"):
        usable = np.isfinite(np.stack(results)).all(axis=0)
        difference = np.where(usable, results[-1] - results[0], 0.0)
        scale = float(np.abs(difference).max(initial=0.0)) or 1.0
        whole = float(np.sum((difference / scale) ** 2))
        found = []
        for (name, text), before, after in zip(listed, results, results[1:], strict=False):
            step = np.where(usable, after - before, 0.0)
            share = float(np.sum(step / scale * (difference / scale)) / whole) if whole else 0.0
            unlike = (before != after) & ~(np.isnan(before) & np.isnan(after))
            found.append(Step(name, text, share, int(np.sum(unlike)), float(np.abs(step).max(initial=0.0))))
    return tuple(found)


def attributions(
    sides: Sequence[Any], differences: Sequence[Any], compute: Callable[[str], Any], /
) -> tuple[Attribution, ...]:
    """Return the chains of pairs of sides that differ and are both matched: of many sides, those with the first.

    Parameters
    ----------
    sides : sequence of Side
    differences : sequence of Difference
    compute : callable
        Returns the outputs under a strategy.
    """
    by_name = {side.name: side for side in sides}
    found = []
    if len(sides) > _MOST_PAIRED:
        differences = [one for one in differences if one.first == sides[0].name]
    for one in differences:
        first, second = by_name.get(one.first), by_name.get(one.second)
        if one.differing and first is not None and second is not None and first.matches and second.matches:
            chain = attribute((one.first, one.second), (first.matches, second.matches), compute)
            if chain is not None:
                found.append(chain)
    return tuple(found)


def ranked(sides: Sequence[Any], chains: Sequence[Attribution], /) -> tuple[str, ...]:
    """Return the names of the mechanisms that chains and the status of sides give, the largest share first."""
    steps = sorted((step for chain in chains for step in chain.steps if step.changed), key=lambda step: -step.share)
    own = [side for side in sides if side.status in ("fault", "other computation")]
    names = [side.matches[0].mechanism if side.matches else side.note.partition(":")[0] for side in own]
    names += ["fault" for side in sides if side.status == "beyond bound"]
    names += [_MECHANISMS["operand precision"] for side in sides if side.status == "reduced size"]
    names += [_MECHANISMS.get(step.change, step.change) for step in steps]
    names += [ORDER for side in sides if side.status == "rounding size"]
    names += [side.matches[0].mechanism for side in sides if side.matches and side.matches[0].mechanism]
    return tuple(dict.fromkeys(names))
