"""Candidates evaluated on a sample of outputs: which are worth it, and how each is computed."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim import _candidates
from fpsim._candidates import Candidate
from fpsim._observed_operation import Operation, Sample, operation as make
from fpsim.emulation import product_shape
from fpsim.errors import InputError, UnknownOrderError
from fpsim.formats import FLOAT32, FLOAT64, Format, RoundingMode, round_to
from fpsim.strategies import Strategy, strategy

_LONG = 200_000  # terms of a sample that count as many
_WHOLE = 300_000_000  # products and sums that a rule of a whole result may take
_THREADED = 100_000  # terms of a sample from which on candidates run side by side


@lru_cache(4096)
def parsed(text: str) -> Strategy:
    return strategy(text)


Again = Callable[[Operation], Sample]  # the same sample of an operation on other inputs of the same shape
Task = tuple[Candidate, Callable[[], NDArray[Any]]]


def results(
    operation: Operation, sample: Sample, sampled: list[NDArray[Any]], result: Format, own: list[str], again: Again,
    enough: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[Candidate, NDArray[Any]]]:  # fmt: skip
    """Yield each candidate with its results on the sample; those not defined for this case are left out.

    Of long sums, unusual arithmetic is left out where the usual gives all sides: `enough` is asked between the two.
    """

    def run(task: Task) -> tuple[Candidate, NDArray[Any] | None]:
        try:
            with np.errstate(all="ignore"):
                return task[0], task[1]()
        except (InputError, UnknownOrderError):
            return task[0], None

    long = operation.n * len(sample.outputs) > _LONG
    threads = (os.cpu_count() or 1) if operation.n * len(sample.outputs) >= _THREADED else 1
    with ThreadPoolExecutor(threads) as pool:
        for tasks in (
            _usual(operation, sample, result, own), _unusual(operation, sample, sampled, result, again, long=long)
        ):  # fmt: skip
            for some in _batches(tasks, 64):
                found = pool.map(run, some) if threads > 1 else map(run, some)
                yield from ((candidate, given) for candidate, given in found if given is not None)
            if long and enough():
                return


def _batches(tasks: Iterator[Task], size: int) -> Iterator[list[Task]]:
    while batch := list(itertools.islice(tasks, size)):
        yield batch


def _usual(operation: Operation, sample: Sample, result: Format, own: list[str]) -> Iterator[Task]:
    """Yield the usual kinds of arithmetic in every order, and how to evaluate them."""
    op, data = operation.op, operation.data
    for text in own:
        given = Candidate(text, "", -1, is_reduced(text, data))
        yield given, partial(_from_whole, operation, sample, text)
    for order, rank in _candidates.orders(operation.n, op=op):
        for settings, extra, reduced in _candidates.plain_settings(data, result, op):
            yield _task(operation, sample, Candidate(order, settings, rank + extra, reduced))
    if data == result == FLOAT32:
        for text, rank in _candidates.named_rules(op):
            yield Candidate(text, "", rank), partial(_from_whole, operation, sample, text)
    yield from _recorded(operation, sample, result)


def _task(operation: Operation, sample: Sample, candidate: Candidate) -> Task:
    return candidate, partial(_evaluate, operation, sample, candidate.order, candidate.settings)


def _unusual(
    operation: Operation, sample: Sample, sampled: list[NDArray[Any]], result: Format, again: Again, *, long: bool
) -> Iterator[Task]:
    """Yield other accumulators and operands, fused adds and compensation; of long sums in the likeliest orders only."""
    op, data, kind = operation.op, operation.data, sampled[0].dtype
    short = _candidates.short_orders(operation.n, op=op)[: 10 if long else None]
    if result != FLOAT64 and any(_nearly_rounded(operation, sample, seen, result) for seen in sampled):
        for order, rank in short:
            wide = Candidate(order, f"+acc(float64)+output({result})", rank + 15)
            inner = _task(operation, sample, Candidate(order, "+acc(float64)"))[1]
            yield wide, lambda inner=inner: as_result(inner(), result, kind)  # type: ignore[misc]
    yield from _with_fused_adds(operation, sample, sampled, result)
    yield from _with_operands(operation, sample, sampled, result, short, again)
    yield from _with_one_operand(operation, sample, sampled, result, short)
    probe = sample.probe()
    for settings, extra, reduced in _candidates.other_settings(data, result, op):
        fitting = [seen for seen in sampled if _possible(settings, operation, sample, seen, result)]
        if fitting:
            for order, rank in short[: 1 if long else None]:
                one = Candidate(order, settings, rank + extra, reduced)
                yield one, partial(_probed, operation, sample, probe, fitting, one)


def _recorded(operation: Operation, sample: Sample, result: Format) -> Iterator[Task]:
    """Yield rules of whole products, and what profiles have on record for this operation and shape."""
    op, data = operation.op, operation.data
    if operation.size * operation.n > _WHOLE:
        return
    rules = _candidates.product_rules(data) if op == "matmul" and data == result else []
    seen: set[Any] = set()
    for text, rank in [*rules, *_candidates.profiles(op, data)]:
        try:
            key = text if op == "sum" else tuple(parsed(text).order.product(product_shape(*operation.inputs)))
            reduced = is_reduced(text, data)
        except (InputError, UnknownOrderError):
            continue
        if key not in seen:  # a number of threads often changes nothing
            seen.add(key)
            yield Candidate(text, "", rank, reduced), partial(_from_whole, operation, sample, text)


def _evaluate(operation: Operation, sample: Sample, order: str, settings: str) -> NDArray[Any]:
    if order == "numpy_sum" and operation.op == "sum":  # its order depends on the layout
        return _from_whole(operation, sample, order + settings)
    return sample.evaluate(parsed(order + settings))


def _probed(
    operation: Operation, sample: Sample, probe: tuple[Sample, NDArray[np.int64]], sampled: list[NDArray[Any]],
    candidate: Candidate,
) -> NDArray[Any]:  # fmt: skip
    """Return a candidate's results on the sample; NaN beyond the first few where those give half of no side's."""
    few, places = probe
    if len(places) == len(sample.outputs):
        return _evaluate(operation, sample, candidate.order, candidate.settings)
    first = _evaluate(operation, few, candidate.order, candidate.settings)
    if any(2 * np.sum(first.astype(seen.dtype) == seen[places]) >= len(places) for seen in sampled):
        return _evaluate(operation, sample, candidate.order, candidate.settings)
    out = np.full(sample.outputs.shape, np.nan, first.dtype)
    out[places] = first
    return out


def _from_whole(operation: Operation, sample: Sample, text: str) -> NDArray[Any]:
    return operation.whole(text).reshape(-1)[sample.outputs]


def _with_operands(
    operation: Operation, sample: Sample, sampled: list[NDArray[Any]], result: Format, short: list[tuple[str, int]],
    again: Again,
) -> Iterator[Task]:  # fmt: skip
    """Yield candidates that round their operands first. Their products are exact, so that FMA makes no difference."""
    if operation.data.precision < FLOAT32.precision or result == FLOAT64:
        return
    output = "" if result == FLOAT32 else f"+output({result})"
    for name, mode in _candidates.OPERANDS:
        rounded = operation.rounded(name, mode)
        if rounded is None:
            continue
        if operation.n * len(sample.outputs) > _LONG and not any(
            _fits(rounded, operation, sample, seen) for seen in sampled
        ):
            continue
        same = again(rounded)
        told = name if mode == "nearest-even" else f"{name}, {mode.replace('-', '_')}"
        for order, rank in short:
            candidate = Candidate(order, f"+operands({told}){output}", rank + 20, True)
            yield candidate, partial(_evaluate, rounded, same, order, output)


def _with_one_operand(
    operation: Operation, sample: Sample, sampled: list[NDArray[Any]], result: Format, short: list[tuple[str, int]]
) -> Iterator[Task]:
    """Yield candidates that round one operand only, for formats that the results are near to."""
    data = operation.data
    if operation.op == "sum" or data.precision < FLOAT32.precision or result == FLOAT64:
        return
    output = "" if result == FLOAT32 else f"+output({result})"
    for name in dict.fromkeys(name for name, _ in _candidates.OPERANDS):
        rounded = operation.rounded(name, "nearest-even")
        if rounded is None:
            continue
        for which, told in enumerate((f"{name}, {data}", f"{data}, {name}")):
            inputs = [
                one if i == which else x
                for i, (x, one) in enumerate(zip(operation.inputs, rounded.inputs, strict=True))
            ]
            one = make(operation.op, inputs)
            if not any(_fits(one, operation, sample, seen) for seen in sampled):
                continue
            for order, rank in short:
                for fma in ("", "+fma"):
                    candidate = Candidate(order, f"{fma}+operands({told}){output}", rank + 24 + bool(fma), True)
                    yield candidate, partial(_evaluate, operation, sample, order, candidate.settings)


def _with_fused_adds(
    operation: Operation, sample: Sample, sampled: list[NDArray[Any]], result: Format
) -> Iterator[Task]:
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
        low, high = (as_result(exact + sign * doubt, result, seen.dtype) for sign in (-1, 1))
    return bool(np.all(~((seen < low) | (seen > high))))


def _possible(settings: str, operation: Operation, sample: Sample, seen: NDArray[Any], result: Format) -> bool:
    """Tell cheaply whether unusual arithmetic can have given the sampled results."""
    with np.errstate(all="ignore"):
        for name in ("float16", "bfloat16"):
            if f"acc({name})" in settings:
                return bool(np.array_equal(np.asarray(round_to(seen, name)), seen, equal_nan=True))
        # Compensated sums are within (2u + O(n u**2)) sum(abs(terms)) of exact (Higham, section 4.3), beside what the
        # products were rounded by, which dot2 makes up for. The second part is a random walk of n roundings: for long
        # sums its root is taken, and a partial sum for the first part.
        terms = operation.terms(sample.outputs)
        unit, n = 2.0**-result.precision, operation.n
        size, exact = np.abs(terms).sum(axis=1), terms.sum(axis=1)
        first = 2.1 + (operation.op != "sum" and "dot2" not in settings)
        if terms.size > _LONG and operation.op == "sum":
            near = first * unit * np.abs(np.cumsum(terms, axis=1)).max(axis=1) + 8 * n**0.5 * unit * unit * size
        else:
            near = (first + 8 * n * unit) * unit * size
        return bool(np.all(~(np.abs(seen - exact) > near)))


def as_result(values: NDArray[Any], result: Format, dtype: Any) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        return np.asarray(round_to(values, result)).astype(dtype)


def is_reduced(text: str, data: Format) -> bool:
    arithmetic = parsed(text).arithmetic(data)
    low_operands = arithmetic.operands is not None and arithmetic.operands.format.precision < data.precision
    return low_operands or arithmetic.accumulator.format.precision < FLOAT32.precision
