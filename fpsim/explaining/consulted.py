"""Mechanisms of the registry for a sum or product that no strategy gives: number types, ranges, definitions and faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim._matching import Match
from fpsim._observed_operation import Operation
from fpsim.explaining.faults import gives
from fpsim.explaining.mechanisms import KINDS, Mechanism, computed
from fpsim.explaining.observation import Case
from fpsim.explaining.relations import added, relation
from fpsim.formats import Format

if TYPE_CHECKING:
    from fpsim._exact_values import Exact

#: What the search over strategies tries already.
_SEARCHED: Final = frozenset((
    "order of additions", "FMA", "compensated summation", "wider accumulator", "low-precision accumulator",
    "reduced-precision operands", "rounded partial results",
))  # fmt: skip
_MOST: Final = 30_000_000  # products of an operation whose mechanisms are worked out
_STATUS: Final = {
    "rounding": "reproduced",
    "range": "other computation",
    "definition": "other computation",
    "fault": "fault",
}


def case_of(task: Operation, form: Format, /) -> Case:
    """Return a sum or product as the mechanisms see it."""
    axis = task.axis if task.axis is None or isinstance(task.axis, int) else tuple(task.axis)
    return Case(task.op, task.inputs, task.data, form, {} if axis is None else {"axis": axis})


def consult(
    task: Operation, values: NDArray[Any], form: Format, reference: Exact, bound: Any, beyond: NDArray[np.bool], /
) -> tuple[str, str, tuple[Match, ...]] | None:  # fmt: skip
    """Return the status, the note and the matches of a side by mechanisms that are no strategies; None where none fits.

    Parameters
    ----------
    task : Operation
    values : ndarray
        The side's results.
    form : Format
        Of the results.
    reference : Exact
        The exact results.
    bound : float64 array
        How far rounding leads in any order.
    beyond : bool array
        Where the results are further off; elsewhere only mechanisms of rounding are tried.
    """
    if task.size * task.n > _MOST:
        return None
    observed, exact = np.asarray(values, np.float64), np.asarray(reference.round("float64"), np.float64)
    kinds = [kind for kind in KINDS if (kind != "rounding") == bool(beyond.any()) and kind != "reduced"]
    found: list[tuple[int, int, int, Mechanism, str]] = []
    for one, prediction, given in computed(case_of(task, form), kinds=kinds):
        if one.name in _SEARCHED or given.shape != observed.shape:
            continue
        same = bool(np.all((given == observed) | (np.isnan(given) & np.isnan(observed))))
        if same or (one.kind == "fault" and gives(observed, given, exact, np.asarray(bound))):
            found.append(
                (KINDS.index(one.kind), one.rank + prediction.rank + 4 * (not same), len(found), one, prediction.text)
            )
    if found:
        found.sort(key=lambda fit: fit[:3])
        matches = tuple(
            Match(text, checked=task.size, mechanism=one.name)
            for *_, one, text in found
            if one.kind == found[0][3].kind
        )
        first = found[0][3]
        return _STATUS[first.kind], f"{first.name}: {matches[0].strategy}", matches
    if not beyond.any():
        return None
    name, told = relation(observed, exact, np.zeros(observed.shape))
    if name:
        return "other computation", f"{name}: {told}", ()
    told = added(observed, exact, np.asarray(bound)) if task.op != "sum" else ""
    return ("fault", f"beta*C dropped or doubled: {told}", ()) if told else None
