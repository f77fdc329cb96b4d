"""What may make results of one operation differ: the registry of mechanisms, each a small unit of its own.

A mechanism knows the operations it applies to, what it predicts for every output, how simple it is, and which switch
removes it. Everything else - which inputs there are, what was observed, which mechanism is right - is not its business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from fpsim.explaining.observation import Case

#: What it means for the verdict that a mechanism gives the observed numbers.
Kind = Literal["rounding", "reduced", "range", "definition", "fault"]
#: In this order a match decides: what is harmless needs no other explanation.
KINDS: Final = ("rounding", "reduced", "range", "definition", "fault")


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a mechanism predicts.

    Attributes
    ----------
    text : str
        What was computed, in words or as a strategy.
    rank : int
        Smaller is simpler, and more often what a library does.
    compute : callable
        Returns all outputs.
    """

    text: str
    rank: int
    compute: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Mechanism:
    """One way in which results come to differ.

    Attributes
    ----------
    name : str
        Its name in reports.
    kind : str
        One of `KINDS`: "rounding" and "reduced" (less precision than the data have) are explainable by rounding;
        "range" (flushed or overflowed), "definition" (another formula is computed) and "fault" are not.
    operations : frozenset of str
        That it applies to.
    predict : callable
        Yields a `Prediction` for each variant.
    rank : int
        Of the mechanism, added to those of its predictions.
    switch : str
        What removes it, in words; empty where nothing is known.
    foresees : str
        What it looks like without inputs.
    """

    name: str
    kind: Kind
    operations: frozenset[str]
    predict: Callable[[Case], Iterator[Prediction]]
    rank: int = 0
    switch: str = ""
    foresees: str = ""


_REGISTRY: list[Mechanism] = []


def mechanism(
    name: str, kind: Kind, operations: str, *, rank: int = 0, switch: str = "", foresees: str = ""
) -> Callable[[Callable[[Case], Iterator[Prediction]]], Callable[[Case], Iterator[Prediction]]]:
    """Register a function that yields predictions as a mechanism for operations, named with blanks between."""

    def register(predict: Callable[[Case], Iterator[Prediction]]) -> Callable[[Case], Iterator[Prediction]]:
        _REGISTRY.append(Mechanism(name, kind, frozenset(operations.split()), predict, rank, switch, foresees))
        return predict

    return register


def mechanisms() -> tuple[Mechanism, ...]:
    """Return every mechanism, those of the verdict's order first."""
    from fpsim.explaining import (  # noqa: F401 - importing them registers what they hold
        definitions,
        elementwise,
        faults,
        formulas,
        ranges,
        reductions,
        scans,
    )  # fmt: skip

    return tuple(sorted(_REGISTRY, key=lambda one: (KINDS.index(one.kind), one.rank)))
