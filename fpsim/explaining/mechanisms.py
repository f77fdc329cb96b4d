"""What may make results of one operation differ: the registry of mechanisms, each a small unit of its own.

A mechanism knows the operations it applies to, what it predicts for every output, how simple it is, and which switch
removes it. Everything else - which inputs there are, what was observed, which mechanism is right - is not its business.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from fpsim.errors import FpsimError
from fpsim.explaining.observation import Case

#: What it means for the verdict that a mechanism gives the observed numbers.
Kind = Literal["rounding", "reduced", "range", "definition", "fault"]
#: In this order a match decides: what is harmless needs no other explanation.
KINDS: Final = ("rounding", "reduced", "range", "definition", "fault")
#: Roundings that all predictions of one mechanism may cost: about half a second. A count, so that load changes no result.
_WORK: Final = 500_000_000
_START: Final = 300_000  # what starting a prediction costs, in roundings
_LEAST: Final = 3  # plain predictions of one mechanism that are made whatever they cost, and a single one of others


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
    weight : int
        How much more than a plain rounding each of its roundings costs.
    """

    text: str
    rank: int
    compute: Callable[[], Any]
    weight: int = 1


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
        elementary,
        elementwise,
        faults,
        formulas,
        ranges,
        reductions,
        scans,
        variants,
    )  # fmt: skip

    return tuple(sorted(_REGISTRY, key=lambda one: (KINDS.index(one.kind), one.rank)))


def work_of(case: Case, /) -> int:
    """Return about how many roundings one prediction of all outputs takes."""
    sizes: list[int] = [int(x.size) for x in case.inputs] or [int(case.get("steps", 1))]
    slow = 1 if {case.data.precision, case.result.precision} <= {24, 53} else 40
    if case.op in ("dot", "matmul", "distance") and len(case.inputs) > 1 and case.x.ndim:
        return slow * sizes[0] * max(sizes[1] // max(int(case.x.shape[-1]), 1), 1)
    if case.op == "conv" and len(case.inputs) > 1:
        return math.prod(sizes[:2])
    return slow * max(sizes)


def computed(
    case: Case, /, *, kinds: Collection[str] = KINDS, names: Collection[str] | None = None,
    texts: Collection[str] | None = None, most: int | None = None,
) -> Iterator[tuple[Mechanism, Prediction, NDArray[np.float64]]]:  # fmt: skip
    """Yield what each mechanism predicts for a case, as far as the work allows; what is not defined is left out.

    Parameters
    ----------
    case : Case
    kinds, names, texts : collections of str, optional
        Only mechanisms of these kinds and names, and predictions of these texts.
    most : int, optional
        Predictions of each mechanism.
    """
    if any(x.size == 0 for x in case.inputs):
        return
    work = work_of(case)
    for one in mechanisms():
        if case.op not in one.operations or one.kind not in kinds or (not case.inputs and case.op != "batch_norm"):
            continue
        if names is not None and one.name not in names:
            continue
        try:
            spent = 0
            for number, prediction in enumerate(itertools.islice(one.predict(case), most)):
                spent += _START + work * prediction.weight
                if spent > _WORK and number >= (_LEAST if prediction.weight == 1 else 1):
                    break
                if texts is not None and prediction.text not in texts:
                    continue
                try:
                    with np.errstate(all="ignore"):
                        yield one, prediction, np.asarray(prediction.compute(), np.float64)
                except FpsimError:
                    continue
        except FpsimError:
            continue
