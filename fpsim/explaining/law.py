"""Long sums of which only the law of the terms is known: where a running sum stagnates does not depend on the sample."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.explaining.observation import Case, Observed
from fpsim.formats import Format, as_format

Doubles = NDArray[np.float64]
_ACCUMULATORS = (*range(1, 65), 80, 96, 112, 128, 192, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class LawMatch:
    """A number of accumulators that gives a result, for terms of this law.

    Attributes
    ----------
    accumulators : int or None
        How many; None for the sum without error.
    format : str
        Of the accumulators.
    value : float
        What they give.
    distance : float
        From the observed number, in units of what data of the law vary by.
    """

    accumulators: int | None
    format: str
    value: float
    distance: float


def stagnated(terms: Doubles, n: float, form: Format, /) -> float:
    """Return where one running sum of n terms of a law ends, by the law of large numbers in each binade.

    Notes
    -----
    In a binade the sum is a multiple of its ulp q, so that each addition adds the term rounded to a multiple of q (half
    of q is lost at even sums, and a sum stays even where all terms are alike): on average the mean of the rounded terms.
    The sum stops where that is zero.

    Examples
    --------
    >>> import numpy as np
    >>> from fpsim.formats import as_format
    >>> stagnated(np.ones(1), 1e9, as_format("float32"))
    16777216.0
    """
    return Growth(terms, form).after(n)


class Growth:
    """How a running sum of terms of a law grows: what a term adds on average, in each binade of the sum."""

    def __init__(self, terms: Doubles, form: Format) -> None:
        self._terms = terms
        self._form = form
        self._first = math.floor(math.log2(max(float(terms.mean()), 1e-300)))
        self._steps: list[float] = []

    def _step(self, number: int) -> float:
        while len(self._steps) <= number:
            q = 2.0 ** (self._first + len(self._steps) - self._form.precision + 1)
            scaled = self._terms / q
            self._steps.append(float(np.mean(q * np.rint(scaled))))
        return self._steps[number]

    def after(self, n: float) -> float:
        """Return the sum of n terms."""
        total, number = 0.0, 0
        while n > 0 and (step := self._step(number)) > 0:
            room = 2.0 ** (self._first + number + 1) - total
            taken = min(n, room / step)
            total += taken * step
            n -= taken
            number += 1
        return total


def terms_of_law(case: Case) -> tuple[Doubles, float] | None:
    """Return a sample of the terms of a long sum and their number; None where they have both signs."""
    x = np.asarray(case.x, np.float64).reshape(-1)
    n = float(case.get("of_law") or x.size)
    if case.op == "norm":
        terms = x * x
    elif case.op in ("dot", "matmul") and len(case.inputs) > 1:
        y = np.asarray(case.inputs[1], np.float64).reshape(-1)
        terms = x * y if x.size == y.size else x
    elif case.op in ("sum", "mean"):
        terms = x
    else:
        return None
    if terms.min() < 0 or not terms.any():
        return None
    return (terms, n) if case.get("of_law") else (terms, float(x.size))


def matches(case: Case, side: Observed, form: Format, /) -> list[LawMatch]:
    """Return the numbers of accumulators that give a side, nearest first; empty where the law says nothing."""
    given = terms_of_law(case)
    if given is None or side.values.size != 1:
        return []
    terms, n = given
    n = float(side.settings.get("n", n))
    observed = float(side.values)
    exact = n * float(terms.mean())
    roots: list[Callable[[float], float]] = [_itself]
    if case.op == "mean":
        roots = [lambda v: v / n]
    elif case.op == "norm":
        roots = [math.sqrt, _itself]
    found = []
    names = [
        name
        for name in dict.fromkeys((str(form), "float32", "bfloat16", "float16"))
        if as_format(name).precision <= form.precision
    ]
    growth = {name: Growth(terms, as_format(name)) for name in names}
    for finish in roots:
        noise = 4 * float(terms.std()) * math.sqrt(n) / exact  # relative
        ideal = finish(exact)
        noise *= 0.5 if finish is math.sqrt else 1.0
        if abs(observed / ideal - 1) > 0.999 or observed > 1.5 * ideal:
            continue
        slack = float(side.slack()) / observed
        trailing = _trailing(observed)
        allowed = max(noise, slack, trailing, 1e-3)
        if abs(observed / ideal - 1) <= allowed:
            found.append(LawMatch(None, str(form), ideal, 0.0))
        for name in names:
            for k in _ACCUMULATORS:
                value = finish(k * growth[name].after(n / k))
                distance = abs(observed / value - 1) if value else math.inf
                if distance <= allowed:
                    found.append(LawMatch(k, name, value, distance / allowed))
    return sorted(found, key=lambda one: (one.accumulators is not None, one.distance))


def _itself(value: float) -> float:
    return value


def _trailing(value: float) -> float:
    """Return half a unit of the last digit that is not zero, relatively: 151660000 may be 1.5166e8."""
    if not value.is_integer() or value == 0:
        return 0.0
    digits = len(str(int(abs(value))).rstrip("0"))
    return 0.5 * 10.0 ** (1 - digits) if digits < 6 else 0.0


def describe(found: list[LawMatch], of: Any, /) -> str:
    """Say what fits."""
    best = found[0]
    if best.accumulators is None:
        return f"what terms of this law add up to, {best.value:.6g}"
    others = [str(m.accumulators) for m in found[1:4] if m.format == best.format and m.accumulators is not None]
    same = f" ({', '.join(others)} fit as well)" if others else ""
    del of
    plural = "s" * (best.accumulators > 1)
    return f"{best.accumulators} {best.format} accumulator{plural}{same}: {best.value:.6g}"
