"""Which strategies give observed results bit for bit: a sample of outputs first, the survivors on all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim._candidates import Candidate
from fpsim._observed_operation import Operation, Sample
from fpsim._plausibility import pattern
from fpsim._trials import parsed, results
from fpsim.emulation import product_shape
from fpsim.formats import Format
from fpsim.orders.base import Order, Reduction
from fpsim.programs import LEAF, Program
from fpsim.strategies import Strategy

Bits = NDArray[Any]
_WORK = 4_000_000_000  # multiplications and additions that survivors may cost on all outputs
_LEAST_WHOLE = 4  # survivors that are compared on all outputs whatever that costs
_SLOW = 1000  # what a compensated addition costs beside a plain one
_COMPENSATED = ("kahan", "neumaier", "dot2")
_KEPT = 100_000  # outputs up to which results are kept for other sides
_DISTINCT = 300  # matches whose trees are compared with each other
_NESTED = 2048
_MOST_PARTS = 4  # strategies that may share the outputs of one result
_LEAST_PART = 16  # outputs that a part must have, so that it is no chance
#: Share of the outputs from which on a strategy is not there by chance: good orders agree on a third of them.
LEAST_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Match:
    """A strategy that gives one side's results bit for bit.

    Attributes
    ----------
    strategy : str
        Its simplest name.
    also : tuple of str
        Other strategies that are the same tree for this number of terms.
    checked : int
        How many outputs were compared.
    reduced : bool
        It rounds operands below their own format, or accumulates below float32.
    mechanism : str
        The name of the mechanism that it belongs to.
    """

    strategy: str
    also: tuple[str, ...] = ()
    checked: int = 0
    reduced: bool = False
    mechanism: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the outputs of one side, and the strategy that gives them bit for bit.

    Attributes
    ----------
    strategy : str
        Its text.
    count : int
        How many outputs it gives that no part before it gives.
    where : str
        Which they are, in words.
    """

    strategy: str
    count: int
    where: str


@dataclass(frozen=True, eq=False)
class Found:
    """What the search found for one side.

    Attributes
    ----------
    matches : tuple of Match
        All strategies that give every output, distinct trees, simplest first.
    nearest : tuple of (str, float) or None
        Without a match: the strategy that gives most outputs, and its share of them.
    unlike : bool array or None
        The outputs that `nearest` does not give.
    tried : int
        Number of strategies tried.
    parts : tuple of Part
        Without a match: few strategies of full precision that give all outputs together, as libraries treat edges in
        another way; empty where there are none.
    """

    matches: tuple[Match, ...]
    nearest: tuple[str, float] | None
    unlike: NDArray[np.bool] | None = field(repr=False)
    tried: int
    parts: tuple[Part, ...] = ()


def bits(values: Any, /) -> Bits:
    """Return values as integers that are equal where values are: one NaN, one zero."""
    values = np.asarray(values)
    kind = {2: np.uint16, 4: np.uint32, 8: np.uint64}[values.dtype.itemsize]
    with np.errstate(all="ignore"):
        plain = np.where(np.isnan(values), values.dtype.type(np.nan), values + values.dtype.type(0))
    return np.asarray(plain, values.dtype).view(kind)


Side = tuple[NDArray[Any], Format]


def search(
    operation: Operation, sides: Mapping[str, Side], /, *, strategies: Iterable[str] = (), seed: int = 0
) -> dict[str, Found]:
    """Return for each side, its values and their format, the strategies that give it bit for bit."""
    sample = operation.sample(np.random.default_rng(seed))
    found: dict[str, Found] = {}
    for form in dict.fromkeys(form for _, form in sides.values()):
        group = {name: values for name, (values, own) in sides.items() if own == form}
        found |= _search(operation, sample, group, form, list(strategies), seed)
    return {name: found[name] for name in sides}


def _search(
    operation: Operation, sample: Sample, sides: dict[str, NDArray[Any]], form: Format, own: list[str], seed: int
) -> dict[str, Found]:
    """Search for sides of one format: every candidate is evaluated once."""
    wanted = {name: bits(values).reshape(-1) for name, values in sides.items()}
    seen = {name: wanted[name][sample.outputs] for name in sides}
    kind = next(iter(sides.values())).dtype
    survivors: dict[str, list[Candidate]] = {name: [] for name in sides}
    best: dict[str, tuple[float, Candidate | None]] = dict.fromkeys(sides, (0.05, None))
    tried = 0
    sampled = [values.reshape(-1)[sample.outputs] for values in sides.values()]

    def again(other: Operation) -> Sample:
        return other.sample(np.random.default_rng(seed))

    rows = np.stack(list(seen.values()))
    for candidate, given in results(operation, sample, sampled, form, own, again, lambda: all(survivors.values())):
        tried += 1
        if not np.can_cast(given.dtype, kind):
            continue
        shares = (bits(given.astype(kind)) == rows).sum(axis=1) / rows.shape[1]
        for name, share in zip(sides, shares.tolist(), strict=True):
            if share == 1:
                survivors[name].append(candidate)
                continue
            most, other = best[name]
            if share > most or (share == most and other is not None and candidate.rank < other.rank):
                best[name] = share, candidate
    found = {}
    trees: dict[str, Any] = {}
    wholes: dict[str, Bits] = {}
    for name, values in sides.items():
        matches = _confirmed(operation, survivors[name], wanted[name], kind, sample, wholes)
        nearest, unlike = None, None
        close = survivors[name][0] if survivors[name] else best[name][1]
        if not matches and close is not None:
            unlike = (bits(whole(operation, close.text, kind)).reshape(-1) != wanted[name]).reshape(operation.shape)
            nearest = close.text, float(1 - unlike.mean())
        parts: tuple[Part, ...] = ()
        if nearest is not None and unlike is not None and nearest[1] >= LEAST_SHARE:
            parts = _parts(operation, values, form, nearest[0], unlike, own)
        found[name] = Found(_distinct(matches, operation, trees), nearest, unlike, tried, parts)
    return found


def _parts(
    operation: Operation, values: NDArray[Any], form: Format, first: str, unlike: NDArray[np.bool], own: list[str]
) -> tuple[Part, ...]:
    """Return strategies that give all outputs together, starting with one that gives all but those marked."""
    wanted = bits(values)
    parts = [Part(first, int((~unlike).sum()), pattern(np.atleast_1d(~unlike)))]
    for _ in range(_MOST_PARTS - 1):
        if int(unlike.sum()) < _LEAST_PART:
            return ()
        mask = unlike

        def again(other: Operation, mask: NDArray[np.bool] = mask) -> Sample:
            return other.sample_where(mask)

        sample = again(operation)
        inside = mask.reshape(-1)[sample.outputs]
        seen = wanted.reshape(-1)[sample.outputs][inside]
        best: tuple[float, int, Candidate] | None = None
        for candidate, given in results(operation, sample, [values.reshape(-1)[sample.outputs]], form, own, again):
            if candidate.reduced or not np.can_cast(given.dtype, values.dtype):
                continue
            share = float((bits(given.astype(values.dtype))[inside] == seen).mean())
            if share >= 0.5 and (best is None or (share, -candidate.rank) > best[:2]):
                best = share, -candidate.rank, candidate
        if best is None:
            return ()
        unlike = mask & (bits(whole(operation, best[2].text, values.dtype)) != wanted)
        gained = mask & ~unlike
        if int(gained.sum()) < _LEAST_PART:
            return ()
        parts.append(Part(best[2].text, int(gained.sum()), pattern(np.atleast_1d(gained))))
        if not unlike.any():
            return tuple(parts)
    return ()


def whole(operation: Operation, text: str, dtype: Any) -> NDArray[Any]:
    """Return all outputs under a strategy, as numbers of the observed type."""
    with np.errstate(all="ignore"):
        return operation.whole(text).astype(dtype)


def is_compensated(text: str, /) -> bool:
    """Tell whether a strategy's additions are compensated, which takes hundreds of times as long."""
    return any(name in text for name in _COMPENSATED)


def _confirmed(
    operation: Operation, survivors: list[Candidate], wanted: Bits, dtype: Any, sample: Sample, wholes: dict[str, Bits]
) -> list[tuple[Candidate, int]]:  # fmt: skip
    """Compare survivors on more outputs, and on all as far as the work allows; `wholes` keeps results seen before.

    What is compared on the sample only needs another that gives all outputs.
    """
    if len(sample.outputs) == len(wanted):
        return [(candidate, len(wanted)) for candidate in survivors]
    survivors = sorted(survivors, key=lambda c: (c.rank, len(c.text)))
    room, work = _WORK, max(1, operation.size * operation.n * 4)
    confirmed: list[tuple[Candidate, int]] = []
    for number, candidate in enumerate(survivors):
        slow = is_compensated(candidate.text) and bool(confirmed) and room < work * _SLOW
        if slow or (number >= _LEAST_WHOLE and room <= 0):
            if confirmed:
                confirmed.append((candidate, len(sample.outputs)))
            continue
        text = candidate.text
        if text not in wholes:
            room -= work * (_SLOW if is_compensated(text) else 1)
            wholes[text] = bits(whole(operation, text, dtype)).reshape(-1)
        if np.array_equal(wholes[text], wanted):
            confirmed.append((candidate, len(wanted)))
        if operation.size > _KEPT:
            wholes.clear()
    return confirmed


def _distinct(matches: list[tuple[Candidate, int]], operation: Operation, trees: dict[str, Any]) -> tuple[Match, ...]:
    """Join strategies that are the same tree under several names; simplest first. `trees` keeps those seen before."""
    matches = sorted(matches, key=lambda pair: (pair[0].rank, len(pair[0].text), pair[0].text))
    groups: dict[Any, list[tuple[Candidate, int]]] = {}
    for number, pair in enumerate(matches):
        key: Any = number
        if number < _DISTINCT and len(matches) > 1:
            text = pair[0].text
            if text not in trees:
                trees[text] = _tree(pair[0], operation)
            key = trees[text]
        groups.setdefault(key, []).append(pair)
    return tuple(
        Match(group[0][0].text, tuple(c.text for c, _ in group[1:]), group[0][1], group[0][0].reduced)
        for group in groups.values()
    )


def _tree(candidate: Candidate, operation: Operation) -> Any:
    from fpsim._arrays import axes_of

    chosen = parsed(candidate.text)
    if operation.op != "sum" and type(chosen.order).product is not Order.product:
        own = chosen.order.defaults(operation.data).merged(chosen.settings)
        parts = chosen.order.product(product_shape(*operation.inputs))
        keys = [_key(Strategy(part.order, own), operation) for part in parts]
        alike = all(key == keys[0] for key in keys)
        return keys[0] if alike else tuple(zip(keys, ((str(p.rows), str(p.columns)) for p in parts), strict=True))
    if operation.op == "sum":
        x = operation.inputs[0]
        case = Reduction(x.shape, x.strides, axes_of(x.ndim, operation.axis), operation.data)
        chosen = Strategy(chosen.order.layout(case)[1][0].order, chosen.settings)
    return _key(chosen, operation)


def _key(chosen: Strategy, operation: Operation) -> Any:
    program = chosen.program(operation.n, data=operation.data)
    arithmetic = tuple(map(str, program.arithmetics))
    if program.n > _NESTED:
        return program.nodes.tobytes(), program.segments.tobytes(), arithmetic
    return nesting(program, flattened=len(arithmetic) == 1), arithmetic


def nesting(program: Program, /, *, flattened: bool) -> bytes:
    """Return the tree of a program in a form that is equal for equal trees: leaves as visited, with their parentheses.

    Where `flattened`, a group that stands first in another is none of its own: ``((a b) c)`` is ``(a b c)``.
    """
    known: dict[int, NDArray[np.int64]] = {}
    for node, (first, count) in enumerate(program.nodes[:, :2].tolist()):
        parts = []
        for base, n_outer, s_outer, n_inner, s_inner, child in program.segments[first : first + count].tolist():
            at = base + s_outer * np.arange(n_outer)[:, None] + s_inner * np.arange(n_inner)
            inner = np.zeros((1, 3), np.int64) if child == LEAF else known[child]
            many = np.repeat(inner[None], at.size, axis=0)
            many[:, :, 0] += at.reshape(-1, 1)
            parts.append((many.reshape(-1, 3), at.size, len(inner)))
        rows = np.concatenate([part for part, _, _ in parts]) if parts else np.zeros((0, 3), np.int64)
        if sum(terms for _, terms, _ in parts) > 1:
            head = parts[0][2]  # leaves of the first term
            if flattened and head > 1:
                rows[0, 1] -= 1
                rows[head - 1, 2] -= 1
            rows[0, 1] += 1
            rows[-1, 2] += 1
        known[node] = rows
    return known[len(program.nodes) - 1].astype(np.int32).tobytes()
