"""Which strategies give observed results bit for bit: a sample of outputs first, the survivors on all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim import _candidates
from fpsim._candidates import Candidate
from fpsim._observed_operation import Operation, Sample
from fpsim.errors import InputError, UnknownOrderError
from fpsim.formats import FLOAT32, FLOAT64, Format, as_format, round_to

Bits = NDArray[Any]
_WORK = 20_000_000_000  # multiplications and additions that survivors may cost on all outputs
_DISTINCT = 300  # matches whose trees are compared with each other
_NESTED = 2048


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
    """

    strategy: str
    also: tuple[str, ...] = ()
    checked: int = 0
    reduced: bool = False


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
    """

    matches: tuple[Match, ...]
    nearest: tuple[str, float] | None
    unlike: NDArray[np.bool] | None = field(repr=False)
    tried: int


def bits(values: Any, /) -> Bits:
    """Return values as integers that are equal where values are: one NaN, one zero."""
    values = np.asarray(values)
    kind = {2: np.uint16, 4: np.uint32, 8: np.uint64}[values.dtype.itemsize]
    with np.errstate(all="ignore"):
        plain = np.where(np.isnan(values), values.dtype.type(np.nan), values + values.dtype.type(0))
    return plain.astype(values.dtype).view(kind)


def search(
    operation: Operation, values: NDArray[Any], result: Format, /, *, strategies: Iterable[str] = (), seed: int = 0
) -> Found:
    """Return the strategies that give `values`, which are results in format `result`, bit for bit."""
    wanted = bits(values).reshape(-1)
    sample = operation.sample(np.random.default_rng(seed))
    survivors: list[Candidate] = []
    best: tuple[float, Candidate] | None = None
    tried = 0
    for candidate, given in _evaluated(operation, sample, values.reshape(-1), result, list(strategies), seed):
        tried += 1
        if given.dtype != values.dtype:
            continue
        same = bits(given) == wanted[sample.outputs]
        if same.all():
            survivors.append(candidate)
        elif best is None or same.mean() > best[0]:
            best = float(same.mean()), candidate
    matches = _confirmed(operation, survivors, wanted, values.dtype, sample)
    nearest, unlike = None, None
    if not matches:
        close = survivors[0] if survivors else best[1] if best is not None and best[0] >= 0.05 else None
        if close is not None:
            unlike = (bits(whole(operation, close.text, values.dtype)).reshape(-1) != wanted).reshape(operation.shape)
            nearest = close.text, float(1 - unlike.mean())
    return Found(_distinct(matches, operation), nearest, unlike, tried)


def whole(operation: Operation, text: str, dtype: Any) -> NDArray[Any]:
    """Return all outputs under a strategy, as numbers of the observed type."""
    with np.errstate(all="ignore"):
        return operation.whole(text).astype(dtype)


def _evaluated(
    operation: Operation, sample: Sample, values: NDArray[Any], result: Format, own: list[str], seed: int
) -> Iterator[tuple[Candidate, NDArray[Any]]]:
    """Yield (candidate, its results on the sample), simplest kinds first."""
    n, op, data = operation.n, operation.op, operation.data
    for text in own:
        yield Candidate(text, "", -1, _is_reduced(text, data)), operation.whole(text).reshape(-1)[sample.outputs]
    for order, rank in _candidates.orders(n, op=op):
        for settings, extra, reduced in _candidates.plain_settings(data, result, op):
            yield from _one(operation, sample, Candidate(order, settings, rank + extra, reduced))
    short = _candidates.short_orders(n, op=op)
    if result != FLOAT64:
        for order, rank in short:
            wide = Candidate(order, f"+acc(float64)+output({result})", rank + 15)
            for _, given in _one(operation, sample, Candidate(order, "+acc(float64)")):
                yield wide, _as_result(given, result, values.dtype)
    yield from _with_operands(operation, sample, result, short, seed)
    seen = values[sample.outputs]
    for settings, extra, reduced in _candidates.other_settings(data, result, op):
        if _possible(settings, operation, sample, seen, result):
            for order, rank in short if n * len(sample.outputs) <= 200_000 else short[:3]:
                yield from _one(operation, sample, Candidate(order, settings, rank + extra, reduced))


def _one(operation: Operation, sample: Sample, candidate: Candidate) -> Iterator[tuple[Candidate, NDArray[Any]]]:
    try:
        if candidate.order.startswith("numpy_sum") and operation.op == "sum":  # its order depends on the layout
            yield candidate, operation.whole(candidate.text).reshape(-1)[sample.outputs]
        else:
            yield candidate, sample.evaluate(candidate.text)
    except (InputError, UnknownOrderError):  # not defined for this case
        return


def _with_operands(
    operation: Operation, sample: Sample, result: Format, short: list[tuple[str, int]], seed: int
) -> Iterator[tuple[Candidate, NDArray[Any]]]:
    """Yield candidates that round their operands first. Their products are exact, so that FMA makes no difference."""
    if operation.data.precision < FLOAT32.precision or result == FLOAT64:
        return
    output = "" if result == FLOAT32 else f"+output({result})"
    for name, mode in _candidates.OPERANDS:
        if as_format(name).precision >= operation.data.precision:
            continue
        rounded = operation.rounded(name, mode)
        if rounded is None:
            continue
        same = rounded.sample(np.random.default_rng(seed))
        told = name if mode == "nearest-even" else f"{name}, {mode.replace('-', '_')}"
        for order, rank in short:
            for _, given in _one(rounded, same, Candidate(order, output)):
                yield Candidate(order, f"+operands({told}){output}", rank + 20, True), given


def _possible(settings: str, operation: Operation, sample: Sample, seen: NDArray[Any], result: Format) -> bool:
    """Tell cheaply whether unusual arithmetic can have given the sampled results."""
    with np.errstate(all="ignore"):
        for name in ("float16", "bfloat16"):
            if f"acc({name})" in settings:
                return bool(np.array_equal(np.asarray(round_to(seen, name)), seen, equal_nan=True))
        # A compensated sum is within a few units of exact, plus a second-order term (Higham, section 4.3).
        terms = operation.terms(sample.outputs)
        unit = 2.0**-result.precision
        size = np.abs(terms).sum(axis=1)
        exact = terms.sum(axis=1)
        near = 3 * unit * np.maximum(np.abs(exact), np.abs(seen)) + (2 + operation.n * operation.n * unit) * unit * size
        return bool(np.all(~(np.abs(seen - exact) > near)))


def _as_result(values: NDArray[Any], result: Format, dtype: Any) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        return np.asarray(round_to(values, result)).astype(dtype)


def _is_reduced(text: str, data: Format) -> bool:
    from fpsim.strategies import strategy

    arithmetic = strategy(text).arithmetic(data)
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
    from fpsim.strategies import strategy

    chosen = strategy(candidate.text)
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
