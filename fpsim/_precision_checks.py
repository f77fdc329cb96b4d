"""Second looks at what probes of a product's precision seemed to show, so that nothing wrong is said of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from fpsim._arithmetic_facts import Facts, facts_of
from fpsim._black_box import BlackBox
from fpsim.formats import FLOAT32, Format

_SCALE = 6  # exponent of the factor of both operands, small enough for results of float16


def confirmed(
    function: Callable[..., Any], box: BlackBox, facts: Facts, result: Format, rng: np.random.Generator
) -> Facts:
    """Return the facts with an accumulator that is really one: what it loses must not be lost without a sum as well.

    Narrow operands do not hold the small terms that a wide accumulator keeps, or flush the subnormal ones. Those are
    then written as products of normal numbers, or all terms are scaled. Precision 0 is unknown.
    """
    if _kept(box, facts.precision) or not box.multiplies:
        return facts
    attempts = [(function, box.form.without_subnormals()), (_scaled(function), box.form)]
    for other, form in attempts:
        again = BlackBox(other, box.op, box.shape, box.form)
        again.form = form
        found = facts_of(again, result, rng)
        box.calls += again.calls
        if _kept(again, found.precision):
            return dataclasses.replace(facts, precision=found.precision, rounding=found.rounding)
    return dataclasses.replace(facts, precision=0, rounding=None)


def _kept(box: BlackBox, precision: int) -> bool:
    """Tell whether the smallest terms that were probed come back when they are alone."""
    if not 0 < precision <= 64:
        return True
    terms = np.zeros(box.n)
    terms[box.n // 2] = 2.0**-precision
    return bool((box.of_terms(terms) == 2.0**-precision).all()) or box.op == "mean"


def _scaled(function: Callable[..., Any]) -> Callable[..., Any]:
    def scaled(*operands: Any) -> Any:
        out = np.asarray(function(*(x * x.dtype.type(2.0**_SCALE) for x in operands)))
        return (out.astype(np.float64) * 4.0**-_SCALE).astype(out.dtype if out.dtype.itemsize > 4 else np.float32)

    return scaled


def promotion(box: BlackBox, facts: Facts) -> int | None:
    """Return after how many terms a narrow accumulator's sum is moved to a wider one; None where it is not.

    The first term is 1 and another one so small that the narrow accumulator drops it; from some place on it is kept.
    """
    if not 0 < facts.precision < FLOAT32.precision or box.op == "mean" or box.n < 2:
        return None

    def kept(place: int) -> bool:
        terms = np.zeros(box.n)
        terms[0], terms[place] = 1.0, 2.0**-facts.precision
        return bool((box.of_terms(terms) == 1 + 2.0**-facts.precision).all())

    if not kept(box.n - 1):
        return None
    low, high = 0, box.n - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if kept(middle) else (middle, high)
    return high


def rounds_operands(box: BlackBox, form: Format, mode: str) -> bool:
    """Tell whether operands are rounded to a format, and not just sums to as many bits.

    The square of a number that the format rounds to 1 is more than the next number if operands are kept.
    """
    if not box.multiplies or mode == "nearest-away":
        return False
    share = 0.9375 if mode == "toward-zero" else 0.5  # of the distance to the next number: a tie, which goes to even
    value = 1 + share * 2.0 ** (1 - form.precision)
    first, second = np.zeros(box.n), np.zeros(box.n)
    first[0] = second[0] = value
    return bool((box.run(*box.spread(first, second)).astype(np.float64) == 1.0).all())


__all__ = ["confirmed", "promotion", "rounds_operands"]
