"""Sums that no tree describes: of sorted terms, and without any rounding but the last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fpsim import exact
from fpsim._black_box import Array, BlackBox
from fpsim._hypotheses import Observed, bits
from fpsim.formats import as_format
from fpsim.strategies import strategy

_PLACES = 6  # ways to place the terms that only an exact sum adds right
_FEWEST = 3  # observations without equal magnitudes
_SORTED: dict[str, Callable[[Array], Any]] = {
    "in ascending order": np.sort,
    "in descending order": lambda x: np.sort(x)[::-1],
    "by ascending magnitude": lambda x: x[np.argsort(np.abs(x), kind="stable")],
    "by descending magnitude": lambda x: x[np.argsort(-np.abs(x), kind="stable")],
}


def exact_sum(box: BlackBox, seen: Sequence[Observed]) -> list[str]:
    """Say so where every result is the correctly rounded exact one, also of terms that compensated sums add wrong."""
    rule = exact.matmul if box.multiplies else exact.sum
    if box.op == "mean" or not _keeps_all(box, as_format(seen[0].result.dtype).precision):
        return []
    for one in seen:
        if not _equal(rule(*one.operands).round(str(one.result.dtype)), one.result):
            return []
    note = (
        "every result is the correctly rounded exact one, whatever the order of the terms, as math.fsum gives it: no"
        " accumulator loses anything, so there is no order to reveal"
    )
    return [note]


def _keeps_all(box: BlackBox, precision: int) -> bool:
    """Tell whether what lies beside half a unit in the last place counts, and what is left when two large pairs cancel.

    A compensated sum rounds its correction: it loses the smallest of three terms, or of five with two cancelling pairs.
    """
    ulp = 2.0 ** (1 - precision)
    cases = [({0: 1.0, 1: ulp / 2, 2: ulp * ulp / 16}, 1 + ulp)]
    large = 2.0**110 if precision <= 24 else 2.0**240
    if box.form.max > large:
        cases.append(({0: large, 1: large**0.5, 2: 1.0, 3: -(large**0.5), 4: -large}, 1.0))
    rng = np.random.default_rng(0)
    for values, expected in cases:
        if len(values) > box.n or box.form.smallest_subnormal > min(map(abs, values.values())):
            continue
        for trial in range(_PLACES):
            places = np.arange(box.n) if not trial else rng.permutation(box.n)
            terms = np.zeros(box.n)
            for place, value in values.items():
                terms[places[place]] = value
            if (box.of_terms(terms) != expected).any():
                return False
    return True


def value_order(box: BlackBox, seen: Sequence[Observed]) -> list[str]:
    """Say how a sum depends on the values of its terms, where it does: no tree describes that."""
    # Equal magnitudes may be sorted in any order.
    seen = [one for one in seen if np.unique(np.abs(one.operands[0])).size == box.n]
    if box.op != "sum" or box.n < 2 or len(seen) < _FEWEST or not _permutes(box, seen):
        return []
    if len({float(one.result) for one in seen if np.isfinite(one.result)}) < _FEWEST:
        return ["the result does not depend on the terms: it is always the same, or not a finite number"]
    for how, sort in _SORTED.items():
        for order in ("serial", "pairwise", "numpy_sum"):
            if all(_equal(box.emulate(strategy(order), (sort(one.operands[0]),)), one.result) for one in seen):
                return [
                    f"the terms are sorted first, {how}, and then added ({order}): the order depends on their values"
                ]
    note = (
        "the result does not depend on the order of the terms: they are sorted, or collected by their size, before they"
        " are added"
    )
    return [note]


def _equal(given: Any, result: Array) -> bool:
    return np.array_equal(bits(np.asarray(given), result.dtype), bits(result, result.dtype))


def _permutes(box: BlackBox, seen: Sequence[Observed]) -> bool:
    rng = np.random.default_rng(0)
    for one in seen:
        (x,) = one.operands
        if not _equal(box.run(rng.permutation(x)), one.result):
            return False
    return True
