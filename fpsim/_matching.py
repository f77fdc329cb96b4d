"""Which strategies give observed results bit for bit: a sample of outputs first, the survivors on all of them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim import _candidates
from fpsim._candidates import Candidate
from fpsim._observed_operation import Operation, Sample
from fpsim._plausibility import pattern
from fpsim.errors import InputError, UnknownOrderError
from fpsim.formats import FLOAT32, FLOAT64, Format, RoundingMode, round_to
from fpsim.orders.base import Reduction
from fpsim.strategies import Strategy, strategy

Bits = NDArray[Any]
_WORK = 20_000_000_000  # multiplications and additions that survivors may cost on all outputs
_DISTINCT = 300  # matches whose trees are compared with each other
_NESTED = 2048
_MOST_PARTS = 4  # strategies that may share the outputs of one result
_LEAST_PART = 16  # outputs that a part must have, so that it is no chance
#: Share of the outputs from which on a strategy is not there by chance: good orders agree on a third of them.
LEAST_SHARE = 0.5
_LONG = 200_000  # terms of a sample that count as many
_THREADED = 100_000  # terms of a sample from which on candidates run side by side


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

    for candidate, given in _results(operation, sample, sampled, form, own, again):
        tried += 1
        if not np.can_cast(given.dtype, kind):
            continue
        given_bits = bits(given.astype(kind))
        for name in sides:
            same = given_bits == seen[name]
            if same.all():
                survivors[name].append(candidate)
            elif same.mean() > best[name][0]:
                best[name] = float(same.mean()), candidate
    found = {}
    for name, values in sides.items():
        matches = _confirmed(operation, survivors[name], wanted[name], kind, sample)
        nearest, unlike = None, None
        close = survivors[name][0] if survivors[name] else best[name][1]
        if not matches and close is not None:
            unlike = (bits(whole(operation, close.text, kind)).reshape(-1) != wanted[name]).reshape(operation.shape)
            nearest = close.text, float(1 - unlike.mean())
        parts: tuple[Part, ...] = ()
        if nearest is not None and unlike is not None and nearest[1] >= LEAST_SHARE:
            parts = _parts(operation, values, form, nearest[0], unlike, own)
        found[name] = Found(_distinct(matches, operation), nearest, unlike, tried, parts)
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
        for candidate, given in _results(operation, sample, [values.reshape(-1)[sample.outputs]], form, own, again):
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


@lru_cache(4096)
def _parsed(text: str) -> Strategy:
    return strategy(text)


_Again = Callable[[Operation], Sample]  # the same sample of an operation on other inputs of the same shape
_Task = tuple[Candidate, Callable[[], NDArray[Any]]]


def _results(
    operation: Operation, sample: Sample, sampled: list[NDArray[Any]], result: Format, own: list[str], again: _Again
) -> Iterator[tuple[Candidate, NDArray[Any]]]:
    """Yield each candidate with its results on the sample; those not defined for this case are left out."""

    def run(task: _Task) -> tuple[Candidate, NDArray[Any] | None]:
        try:
            with np.errstate(all="ignore"):
                return task[0], task[1]()
        except (InputError, UnknownOrderError):
            return task[0], None

    tasks = _tasks(operation, sample, sampled, result, own, again)
    threads = (os.cpu_count() or 1) if operation.n * len(sample.outputs) >= _THREADED else 1
    with ThreadPoolExecutor(threads) as pool:
        for some in _batches(tasks, 64) if threads > 1 else ():
            yield from ((candidate, given) for candidate, given in pool.map(run, some) if given is not None)
    for task in tasks if threads == 1 else ():
        candidate, given = run(task)
        if given is not None:
            yield candidate, given


def _batches(tasks: Iterator[_Task], size: int) -> Iterator[list[_Task]]:
    while batch := list(itertools.islice(tasks, size)):
        yield batch


def _tasks(
    operation: Operation, sample: Sample, sampled: list[NDArray[Any]], result: Format, own: list[str], again: _Again
) -> Iterator[_Task]:
    """Yield candidates and how to evaluate them, the usual kinds of arithmetic first."""
    n, op, data = operation.n, operation.op, operation.data
    kind = sampled[0].dtype

    def of(candidate: Candidate) -> _Task:
        return candidate, partial(_evaluate, operation, sample, candidate.order, candidate.settings)

    for text in own:
        given = Candidate(text, "", -1, _is_reduced(text, data))
        yield given, partial(_from_whole, operation, sample, text)
    for order, rank in _candidates.orders(n, op=op):
        for settings, extra, reduced in _candidates.plain_settings(data, result, op):
            yield of(Candidate(order, settings, rank + extra, reduced))
    if data == result == FLOAT32:
        for text, rank in _candidates.named_rules(op):
            yield Candidate(text, "", rank), partial(_from_whole, operation, sample, text)
    short = _candidates.short_orders(n, op=op)
    usual = n * len(sample.outputs) <= _LONG  # else what is unusual is tried in the likeliest orders only
    short = short if usual else short[:10]
    if result != FLOAT64 and any(_nearly_rounded(operation, sample, seen, result) for seen in sampled):
        for order, rank in short:
            wide = Candidate(order, f"+acc(float64)+output({result})", rank + 15)
            inner = of(Candidate(order, "+acc(float64)"))[1]
            yield wide, lambda inner=inner: _as_result(inner(), result, kind)  # type: ignore[misc]
    yield from _with_fused_adds(operation, sample, sampled, result)
    yield from _with_operands(operation, result, short, again)
    for settings, extra, reduced in _candidates.other_settings(data, result, op):
        if any(_possible(settings, operation, sample, seen, result) for seen in sampled):
            for order, rank in short if usual else short[:1]:
                yield of(Candidate(order, settings, rank + extra, reduced))


def _evaluate(operation: Operation, sample: Sample, order: str, settings: str) -> NDArray[Any]:
    if order == "numpy_sum" and operation.op == "sum":  # its order depends on the layout
        return _from_whole(operation, sample, order + settings)
    return sample.evaluate(_parsed(order + settings))


def _from_whole(operation: Operation, sample: Sample, text: str) -> NDArray[Any]:
    return operation.whole(text).reshape(-1)[sample.outputs]


def _with_operands(
    operation: Operation, result: Format, short: list[tuple[str, int]], again: _Again
) -> Iterator[_Task]:
    """Yield candidates that round their operands first. Their products are exact, so that FMA makes no difference."""
    if operation.data.precision < FLOAT32.precision or result == FLOAT64:
        return
    output = "" if result == FLOAT32 else f"+output({result})"
    for name, mode in _candidates.OPERANDS:
        rounded = operation.rounded(name, mode)
        if rounded is None:
            continue
        same = again(rounded)
        told = name if mode == "nearest-even" else f"{name}, {mode.replace('-', '_')}"
        for order, rank in short:
            candidate = Candidate(order, f"+operands({told}){output}", rank + 20, True)
            yield candidate, partial(_evaluate, rounded, same, order, output)


def _with_fused_adds(
    operation: Operation, sample: Sample, sampled: list[NDArray[Any]], result: Format
) -> Iterator[_Task]:
    """Yield the fused adds of matrix units, for formats of operands that the results are near to."""
    data = operation.data
    if operation.op == "sum" or FLOAT64 in (data, result):
        return
    given: tuple[tuple[str, RoundingMode], ...] = ((str(data), "nearest-even"),)
    output = "" if result == FLOAT32 else f"+output({result})"
    for name, mode in _candidates.OPERANDS if data == FLOAT32 else given:
        rounded = operation.rounded(name, mode)
        if rounded is None and mode != "nearest-even":
            continue
        if rounded is not None and not any(_fits(rounded, operation, sample, seen) for seen in sampled):
            continue
        told = name if mode == "nearest-even" else f"{name}, {mode.replace('-', '_')}"
        for order, align, rank in _candidates.fused_orders(operation.n, name):
            candidate = Candidate(order, f"{align}+operands({told}){output}", rank, data == FLOAT32)
            yield candidate, partial(_evaluate, operation, sample, order, candidate.settings)


def _fits(rounded: Operation, operation: Operation, sample: Sample, seen: NDArray[Any]) -> bool:
    """Tell whether sampled results are about as near to the exact ones of rounded operands as to those of the given."""
    with np.errstate(all="ignore"):
        errors = [np.abs(seen - one.terms(sample.outputs).sum(axis=1)) for one in (rounded, operation)]
        finite = np.isfinite(errors[0]) & np.isfinite(errors[1])
        sizes = [float(np.mean(error[finite] ** 2)) for error in errors] if finite.any() else [0.0, 0.0]
    return sizes[0] <= 1.2 * sizes[1]


def _nearly_rounded(operation: Operation, sample: Sample, seen: NDArray[Any], result: Format) -> bool:
    """Tell whether sampled results may have been accumulated in float64 and rounded once."""
    terms = operation.terms(sample.outputs)
    with np.errstate(all="ignore"):
        exact = terms.sum(axis=1)
        doubt = (operation.n + 2) * 2.0**-52 * np.abs(terms).sum(axis=1) + 2.0**-1000
        low, high = (_as_result(exact + sign * doubt, result, seen.dtype) for sign in (-1, 1))
    return bool(np.all(~((seen < low) | (seen > high))))


def _possible(settings: str, operation: Operation, sample: Sample, seen: NDArray[Any], result: Format) -> bool:
    """Tell cheaply whether unusual arithmetic can have given the sampled results."""
    with np.errstate(all="ignore"):
        for name in ("float16", "bfloat16"):
            if f"acc({name})" in settings:
                return bool(np.array_equal(np.asarray(round_to(seen, name)), seen, equal_nan=True))
        # Compensated sums are within (2u + O(n u**2)) sum(abs(terms)) of exact (Higham, section 4.3), beside what the
        # products were rounded by, which dot2 makes up for.
        terms = operation.terms(sample.outputs)
        unit = 2.0**-result.precision
        size = np.abs(terms).sum(axis=1)
        exact = terms.sum(axis=1)
        near = (
            (2.1 + (operation.op != "sum" and "dot2" not in settings) + 8 * operation.n * unit) * unit * size
        )
        return bool(np.all(~(np.abs(seen - exact) > near)))


def _as_result(values: NDArray[Any], result: Format, dtype: Any) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        return np.asarray(round_to(values, result)).astype(dtype)


def _is_reduced(text: str, data: Format) -> bool:
    arithmetic = _parsed(text).arithmetic(data)
    low_operands = arithmetic.operands is not None and arithmetic.operands.format.precision < data.precision
    return low_operands or arithmetic.accumulator.format.precision < FLOAT32.precision


def _confirmed(
    operation: Operation, survivors: list[Candidate], wanted: Bits, dtype: Any, sample: Sample
) -> list[tuple[Candidate, int]]:
    """Compare survivors on more outputs, and on all as far as the work allows."""
    if len(sample.outputs) == len(wanted):
        return [(candidate, len(wanted)) for candidate in survivors]
    survivors = sorted(survivors, key=lambda c: (c.rank, len(c.text)))
    allowed = max(4, _WORK // max(1, operation.size * operation.n * 4))
    confirmed = []
    for number, candidate in enumerate(survivors):
        if number >= allowed:
            confirmed.append((candidate, len(sample.outputs)))
            continue
        if np.array_equal(bits(whole(operation, candidate.text, dtype)).reshape(-1), wanted):
            confirmed.append((candidate, len(wanted)))
    return confirmed


def _distinct(matches: list[tuple[Candidate, int]], operation: Operation) -> tuple[Match, ...]:
    """Join strategies that are the same tree under several names; simplest first."""
    matches = sorted(matches, key=lambda pair: (pair[0].rank, len(pair[0].text), pair[0].text))
    groups: dict[Any, list[tuple[Candidate, int]]] = {}
    for number, pair in enumerate(matches):
        key = _tree(pair[0], operation) if number < _DISTINCT else number
        groups.setdefault(key, []).append(pair)
    return tuple(
        Match(group[0][0].text, tuple(c.text for c, _ in group[1:]), group[0][1], group[0][0].reduced)
        for group in groups.values()
    )


def _tree(candidate: Candidate, operation: Operation) -> Any:
    from fpsim._arrays import axes_of

    chosen = _parsed(candidate.text)
    if operation.op == "sum":
        x = operation.inputs[0]
        case = Reduction(x.shape, x.strides, axes_of(x.ndim, operation.axis), operation.data)
        chosen = Strategy(chosen.order.layout(case)[1][0].order, chosen.settings)
    program = chosen.program(operation.n, data=operation.data)
    arithmetic = tuple(map(str, program.arithmetics))
    if program.n > _NESTED:
        return program.nodes.tobytes(), program.segments.tobytes(), arithmetic
    text = program.nested()
    return (_flattened(text) if len(arithmetic) == 1 else text), arithmetic


def _flattened(text: str) -> str:
    """Drop the parentheses of every group that stands first in another: ``((a b) c)`` is ``(a b c)``."""
    out: list[str] = []
    dropped: list[bool] = []
    for token in text.replace("(", "( ").replace(")", " )").split():
        if token == "(":
            dropped.append(not out or out[-1] == "(")
            if not dropped[-1]:
                out.append(token)
            elif not out:
                out.append("(")
        elif token == ")":
            if not dropped.pop():
                out.append(token)
        else:
            out.append(token)
    return " ".join(out)
