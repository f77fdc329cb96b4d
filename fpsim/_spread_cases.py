"""Reductions whose runs can be drawn: their operands, exact results, and what arrives."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim import emulation, exact as exactly
from fpsim._arrays import axes_of
from fpsim._arrivals import Arrivals, arrivals as arrivals_of, seeded
from fpsim.arrival_models import ArrivalLaw
from fpsim.errors import InputError
from fpsim.strategies import Strategy

_Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Case:
    """A reduction whose runs can be drawn."""

    shape: tuple[int, ...]
    exact: _Array
    draw: Callable[[int, np.random.Generator], Iterator[_Array]]
    parts: list[Arrivals | None]  # of all outputs together, or of each

    def runs(self, count: int, rng: np.random.Generator) -> Iterator[_Array]:
        return self.draw(count, rng)


def with_law(case: Case, law: ArrivalLaw) -> Case:
    part = case.parts[0] if len(case.parts) == 1 else None
    if part is None or part.first is not None:
        message = "arrivals= is for a strategy whose last additions alone are in random order, and not for index_add"
        raise InputError(message)
    part = dataclasses.replace(part, law=law)
    return Case(case.shape, case.exact, part.runs, [part])


def case_of(op: str, inputs: tuple[Any, ...], chosen: Strategy, axis: Any) -> Case:
    wanted = 1 if op == "sum" else 2
    if len(inputs) != wanted:
        message = f"{op} takes {wanted} operand{'s' * (wanted > 1)}, not {len(inputs)}"
        raise InputError(message)
    if axis is not None and op != "sum":
        message = f"axis is for sums; {op} has none"
        raise InputError(message)
    names = ("x",) if op == "sum" else ("a", "b")
    given = [emulation.operand_of(x, name, chosen) for x, name in zip(inputs, names, strict=True)]
    operands = tuple(values for values, _ in given)
    data = given[0][1]
    if op == "sum":
        (x,) = operands
        exact = exactly.sum(x, axis=axis)
        axes = axes_of(x.ndim, axis)
        kept = tuple(a for a in range(x.ndim) if a not in axes)
        shape = tuple(x.shape[a] for a in kept)
        moved = x.transpose((*axes, *kept))
        views: tuple[_Array, ...] = (moved.reshape(-1, math.prod(shape)),)
    else:
        left, right = operands
        if op == "dot" and not left.ndim == right.ndim == 1:
            message = f"dot takes two vectors, not arrays of {left.ndim} and {right.ndim} dimensions"
            raise InputError(message)
        if not (1 <= left.ndim <= 2 and 1 <= right.ndim <= 2) or left.shape[-1] != right.shape[0]:
            message = (
                f"spread of matmul takes two matrices or vectors that fit, not shapes {left.shape} and {right.shape}"
            )
            raise InputError(message)
        exact = exactly.matmul(left, right)
        shape = (*left.shape[:-1], *right.shape[1:])
        views = (np.atleast_2d(left), right if right.ndim == 2 else right[:, None])
    found = arrivals_of(chosen, views, data)
    if found is not None:
        return Case(shape, _doubles(exact), found.runs, [found])

    def again(count: int, rng: np.random.Generator) -> Iterator[_Array]:
        for _ in range(count):
            one = seeded(chosen, rng)
            result = (
                emulation.sum(inputs[0], one, axis=axis) if op == "sum" else emulation.matmul(inputs[0], inputs[1], one)
            )
            yield np.asarray(result)[None]

    return Case(shape, _doubles(exact), again, [None])


def index_add_case(inputs: tuple[Any, ...], chosen: Strategy) -> Case:
    """Return additions to slots: the number in the slot, then its terms in their order of arrival."""
    if len(inputs) != 3:
        message = f"index_add takes the target, the indices and the source, not {len(inputs)} operands"
        raise InputError(message)
    (target, _), (source, data) = (
        emulation.operand_of(x, name, chosen) for x, name in ((inputs[0], "target"), (inputs[2], "source"))
    )
    index = np.asarray(inputs[1])
    if target.ndim != 1 or source.ndim != 1 or index.shape != source.shape or index.dtype.kind not in "iu":
        message = "index_add takes a target of one dimension, and whole indices and a source of one length"
        raise InputError(message)
    if index.size and not 0 <= index.min() <= index.max() < target.size:
        message = f"indices must be from 0 to {target.size - 1}"
        raise InputError(message)
    order = np.argsort(index, kind="stable")
    cuts = np.searchsorted(index[order], np.arange(target.size + 1))
    parts: list[Arrivals | None] = []
    exact = target.astype(np.float64)
    for slot in range(target.size):
        own = source[order[cuts[slot] : cuts[slot + 1]]]
        if own.size == 0:
            parts.append(None)
            continue
        terms = np.concatenate([target[slot : slot + 1], own]).astype(source.dtype)
        exact[slot] = float(exactly.sum(terms).round("float64"))
        part = arrivals_of(chosen, (terms[1:, None],), data)
        if part is None:
            message = f"index_add takes a random order of the terms themselves, such as shuffle, not {chosen}"
            raise InputError(message)
        parts.append(part.after(target[slot : slot + 1]) if target[slot] else part)

    def draw(count: int, rng: np.random.Generator) -> Iterator[_Array]:
        columns = [
            np.full(count, target[slot]) if part is None else np.concatenate([*part.runs(count, rng)])[:, 0]
            for slot, part in enumerate(parts)
        ]
        yield np.stack(columns, axis=1) if columns else np.empty((count, 0), target.dtype)

    return Case((target.size,), exact, draw, parts)


def _doubles(exact: Any) -> _Array:
    return np.asarray(exact.round("float64"), np.float64)
