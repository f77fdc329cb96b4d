"""Directed probes for the arithmetic of a black box, whatever its tree is."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim._black_box import BlackBox
from fpsim.formats import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, TF32, Format

Array = NDArray[Any]
_TRIPLES = 3
_NUMPY = ("float16", "float32", "float64")
_BEYOND = 100  # bits: more than any accumulator but an exact one holds
_DEEPEST = 45  # bits: more than any alignment of a fused add
_MODES = ("nearest-even", "nearest-away", "toward-zero")


@dataclass(slots=True)
class Facts:
    """What directed probes show; None where they do not tell.

    Attributes
    ----------
    operands : (Format, str) or None
        What operands are rounded to, and how.
    precision : int
        Bits of the narrowest accumulator that was met; more than 64 where nothing is ever lost.
    rounding : str or None
        How that accumulator rounds: "nearest-even", "toward-zero", ...
    result : Format
        The format of the results.
    ftz, daz : bool or None
        Subnormal results, respectively operands, become zero.
    negative_zero : bool or None
        The sum of terms -0 is -0.
    align : int or None
        Terms are added three or more at a time: the fraction bits that are kept below the largest of them.
    said : list of str
        The same in words.
    """

    result: Format
    operands: tuple[Format, str] | None = None
    precision: int = 0
    rounding: str | None = None
    ftz: bool | None = None
    daz: bool | None = None
    negative_zero: bool | None = None
    align: int | None = None
    said: list[str] = field(default_factory=list)


def facts_of(box: BlackBox, result: Format, rng: np.random.Generator) -> Facts:
    """Probe what happens to a lone term, to three terms, to subnormal numbers and to zeros."""
    facts = Facts(result)
    with np.errstate(all="ignore"):
        _operand_rounding(box, facts)
        if box.n >= 3:
            _accumulator(box, facts, rng)
            _fused_add(box, facts)
        _subnormals(box, facts)
        _zeros(box, facts)
    return facts


def _results(box: BlackBox, places: dict[int, float]) -> NDArray[np.float64]:
    """Return all outputs for terms that are 0 but for some, which the operands' format holds."""
    terms = np.zeros(box.n)
    for place, value in places.items():
        terms[place] = value
    return box.of_terms(terms)


def _operand_rounding(box: BlackBox, facts: Facts) -> None:
    """See in a lone number of all its bits how operands are rounded (or sums, in a narrow accumulator)."""
    form = box.form
    if form.precision <= FLOAT16.precision or form.precision > FLOAT32.precision:
        return

    def lone(value: float) -> float:
        return float(_results(box, {0: value})[0])

    for target in (BFLOAT16, TF32):
        ulp = 2.0 ** (1 - target.precision)
        if target.precision >= facts.result.precision or lone(1 + ulp) != 1 + ulp or lone(1 + ulp / 2) == 1 + ulp / 2:
            continue
        seen = tuple((lone(v) - 1) / ulp for v in (1 + ulp / 2, 1 + 1.5 * ulp, 1 + 0.75 * ulp))
        modes: dict[tuple[float, ...], str] = {
            (0.0, 2.0, 1.0): "nearest-even",
            (1.0, 2.0, 1.0): "nearest-away",
            (0.0, 1.0, 0.0): "toward-zero",
        }
        mode = modes.get(seen)
        if mode is not None:
            narrow = FLOAT16 if target == TF32 and lone(2.0**17) != 2.0**17 else target
            facts.operands = (narrow, mode)
            facts.said.append(f"a lone term is rounded to {narrow}, {mode}")
        return


def _accumulator(box: BlackBox, facts: Facts, rng: np.random.Generator) -> None:
    """Find from which e on 1 + 2**-e - 1 is not 2**-e; which two meet first is not known, so all orders are tried."""
    least = _BEYOND  # the smallest e that was lost
    where: tuple[int, int, int] | None = None

    def kept(e: int, one: int, small: int, minus: int) -> bool:
        values = _results(box, {one: 1.0, small: 2.0**-e, minus: -1.0}) * 2.0**e
        return bool((np.abs(values - 1) <= (2.0**-5 if box.op == "mean" else 0)).all())

    for _ in range(_TRIPLES):
        for places in itertools.permutations(rng.choice(box.n, 3, replace=False).tolist()):
            if kept(least - 1, *places):
                continue
            low, least = 0, least - 1
            while least - low > 1:
                middle = (low + least) // 2
                low, least = (middle, least) if kept(middle, *places) else (low, middle)
            where = places
    facts.precision = least
    if where is None:
        facts.said.append("no accumulator drops a bit: sums are exact, compensated, or very wide")
        return
    one, small, minus = where

    def after(*extra: float) -> float:
        return float(_results(box, {one: 1.0, small: extra[0], minus: -1.0})[0]) / 2.0 ** (1 - least)

    half = 2.0**-least
    if box.form.precision >= 4 and box.op != "mean":
        seen = (after(half), after(1.5 * half))
        modes = {(0.0, 1.0): "nearest-even", (1.0, 1.0): "nearest-away", (0.0, 0.0): "toward-zero"}
        facts.rounding = modes.get(seen)
    name = {24: "float32", 53: "float64", 11: "float16", 8: "bfloat16", 64: "extended"}.get(least)
    facts.said.append(
        f"the narrowest accumulator has {least} bits{f' ({name})' if name else ''}"
        + (f", rounding {facts.rounding}" if facts.rounding else "")
    )


def _fused_add(box: BlackBox, facts: Facts) -> None:
    """See whether neighbours are added three at a time: then 2**-e is lost beside 1 and -1 wherever it stands.

    Of additions of two terms, one order of the three terms adds 1 and -1 first, and keeps any 2**-e.
    """
    if not box.multiplies or box.form.includes(FLOAT64):
        return
    top = min(box.form.emax, 8)
    deepest = min(top - 2 * int(np.log2(box.form.smallest_subnormal)), _DEEPEST)

    def kept(e: int, small: int, others: tuple[int, int]) -> bool:
        places = {others[0]: 2.0**top, others[1]: -(2.0**top), small: 2.0 ** (top - e)}
        return bool(_results(box, places)[0] == 2.0 ** (top - e))

    def bits(small: int, others: tuple[int, int]) -> int | None:
        if kept(deepest, small, others):
            return None
        low, lost = 0, deepest
        while lost - low > 1:
            middle = (low + lost) // 2
            low, lost = (middle, lost) if kept(middle, small, others) else (low, middle)
        return low

    for first in dict.fromkeys((0, (box.n // 2) & ~7, box.n - 3)):
        three = range(first, first + 3)
        if three[-1] >= box.n:
            continue
        found: set[int | None] = set()
        for small in three:
            one, other = (place for place in three if place != small)
            found.add(bits(small, (one, other)))
            if None in found:
                break
        else:
            if len(found) == 1 and (least := found.pop()):
                facts.align = max(facts.align or 0, least)
    if facts.align is not None:
        facts.said.append(
            f"terms are added three or more at a time, with {facts.align} fraction bits below the largest of them"
        )


def _subnormals(box: BlackBox, facts: Facts) -> None:
    form = box.form
    if form not in (FLOAT32, FLOAT64) or box.op == "mean":
        return
    normal = form.smallest_normal
    tiny = normal / 8  # a subnormal number of few bits, which narrower operands of this range have too
    lone = float(_results(box, {0: tiny})[0])
    facts.daz = lone == 0.0 if facts.result == form and (facts.operands or (form,))[0] != FLOAT16 else None
    if box.n >= 2:
        difference = float(_results(box, {0: 1.5 * normal, 1: -normal})[0])
        facts.ftz = difference == 0.0 if facts.daz is not None else None
    if facts.daz or facts.ftz:
        facts.said.append("subnormal numbers become zero")


def _zeros(box: BlackBox, facts: Facts) -> None:
    terms = np.full(box.n, -0.0)
    result = box.of_terms(terms)
    facts.negative_zero = bool(np.signbit(result).all()) if (result == 0).all() else None
    if facts.negative_zero is not None:
        facts.said.append(f"the sum of terms -0 is {'-0' if facts.negative_zero else '+0'}")


def settings_of(facts: Facts, box: BlackBox) -> list[str]:
    """Return the settings that fit the facts, the likeliest first, without ``fma`` and the start of accumulators."""
    narrow = "" if facts.result in (FLOAT32, FLOAT64) else f"+output({facts.result})"
    wide = "+acc(float64)" if facts.result == FLOAT64 else ""
    operands = ""
    if facts.operands is not None:
        form, mode = facts.operands
        operands = f"+operands({form})" if mode == "nearest-even" else f"+operands({form}, {mode.replace('-', '_')})"
    flags = ("+ftz" if facts.ftz else "") + ("+daz" if facts.daz else "")
    output = f"+output({facts.result})" if facts.result != FLOAT64 else ""
    bases = {
        24: [narrow], 53: [f"+acc(float64){output}"], 11: ["+acc(float16)", narrow], 8: ["+acc(bfloat16)", narrow],
    }  # fmt: skip
    found = bases.get(facts.precision, [wide + narrow])
    if facts.precision in (24, 11, 8) and facts.rounding not in (None, "nearest-even"):
        name = {24: "float32", 11: "float16", 8: "bfloat16"}[facts.precision]
        found = [f"+acc({name}, {facts.rounding.replace('-', '_')})", *found]
    if facts.precision > 24:
        names = ("kahan", "neumaier", *(("dot2",) if box.multiplies else ()))
        found = [*found, *(f"{wide}+{name}{narrow}" for name in names), f"+acc(float64){output}"]
        found += [f"+acc(float64)+{name}{output}" for name in names] if facts.precision > 53 else []
    else:
        found = [*found, narrow]
    ends = [f"{flags}{operands}"]
    if box.multiplies and facts.daz and facts.ftz is False and facts.result == box.form:
        # Products by a kernel that flushes, and their sum by one that does not.
        ends.insert(0, f"+product({box.form}(subnormals=False)){ends[0]}")
    if facts.operands is not None and facts.operands[0].precision == facts.precision:
        ends.append(flags)  # the accumulator alone may have rounded the lone term
    texts = [f"{base}{end}" for end in ends for base in found]
    if facts.negative_zero is False and box.multiplies:  # accumulators that start from +0
        texts += [f"{text}+start(0.0)" for text in texts]
    return list(dict.fromkeys(texts))


def fused_settings(facts: Facts, box: BlackBox, outputs: list[str]) -> list[str]:
    """Return the settings of fused adds that fit the facts; `outputs` are formats that all results are numbers of."""
    if facts.align is None:
        return []
    operands = ""
    if facts.operands is not None:
        form, mode = facts.operands
        operands = f"+operands({form})" if mode == "nearest-even" else f"+operands({form}, {mode.replace('-', '_')})"
    elif str(box.form) not in _NUMPY:
        operands = f"+operands({box.form})"
    aligned = [f"+align({facts.align})"]
    narrow = {11: "float16", 8: "bfloat16"}.get(facts.precision)
    if narrow:
        mode = "" if facts.rounding in (None, "nearest-even") else f", {facts.rounding.replace('-', '_')}"
        aligned.insert(0, f"+align({facts.align}, {narrow}{mode})")
    return [f"{one}{operands}{output}" for one in aligned for output in (*(f"+output({o})" for o in outputs), "")]


def is_fused(box: BlackBox, product: int, other: int) -> NDArray[np.bool] | None:
    """Tell for every output whether one product is fused into its sum with another; None where products are exact.

    ``a * a - c`` with c the rounded square is the rounding error of the square where it is fused, and 0 otherwise. No
    other term may have joined either before they meet, or only zeros.
    """
    precision = box.form.precision
    if box.form not in (FLOAT32, FLOAT64) or not box.multiplies:
        return None
    half = (precision + 1) // 2
    a, c = 1 + 2.0**-half, 1 + 2.0 ** (1 - half)
    first, second = np.zeros(box.n), np.zeros(box.n)
    first[product], second[product] = a, a
    first[other], second[other] = -c, 1.0
    return np.asarray(box.run(*box.spread(first, second)).astype(np.float64).reshape(-1) == 2.0 ** (-2 * half))
