"""Sums whose partial sums arrive in a random order: the partial sums, and what they add up to in many runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fpsim._execution import run_products, run_sums, storage
from fpsim.arithmetic import Arithmetic, Settings
from fpsim.arrival_models import ArrivalLaw
from fpsim.errors import StrategyError
from fpsim.formats import Format, round_to
from fpsim.orders import Order, Shuffle
from fpsim.orders.base import finished
from fpsim.programs import Builder, Fold, Items, Program, Segment, leaves
from fpsim.strategies import Strategy

_Array = NDArray[Any]
_BATCH = 8  # runs at a time; so few columns are summed in place


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Partial sums that are the same in every run, and how they are added in the order in which they arrive.

    Attributes
    ----------
    partials : ndarray, shape (terms, outputs)
        The numbers that arrive.
    shuffle : Shuffle
        The model of arrival, and the order in which what has arrived is added.
    additions, arithmetic : Arithmetic
        That of the additions of what arrives, and that of the whole strategy.
    program : Program
        The tree over the terms in their order of arrival.
    first : ndarray or None
        A number to which they are added, of a single output.
    law : ArrivalLaw or None
        Gives the order of arrival instead of `shuffle`.
    """

    partials: _Array
    shuffle: Shuffle
    additions: Arithmetic
    arithmetic: Arithmetic
    program: Program
    first: _Array | None = None
    law: ArrivalLaw | None = None

    def after(self, first: _Array, /) -> Arrivals:
        """Return the same arrivals, added one by one to the number `first`, shape (1,)."""
        builder = Builder()
        root = builder.fold(leaves(len(self.partials) + 1), self.additions)
        closed = finished(builder, root, Settings(output=self.arithmetic.output))
        return dataclasses.replace(self, first=first, program=Program.of(closed, len(self.partials) + 1))

    def runs(self, count: int, rng: np.random.Generator, /) -> Iterator[_Array]:
        """Yield the results of so many runs in batches, shape (runs, outputs).

        All outputs of a run see one order of arrival, as the outputs of one tile do.
        """
        terms, outputs = self.partials.shape
        if outputs != 1:
            for _ in range(count):
                yield self._summed(self.partials[self._order(rng)])[None]
            return
        before = 0 if self.first is None else 1
        room = np.empty((min(_BATCH, count), before + terms), self.partials.dtype)
        if self.first is not None:
            room[:, 0] = self.first
        simple = self.law is None and self.shuffle.block == 1 and not self.shuffle.window
        for first in range(0, count, _BATCH):
            rows = room[: min(_BATCH, count - first)]
            for row in rows[:, before:]:
                if simple:
                    row[:] = self.partials[:, 0]
                    rng.shuffle(row)
                else:
                    np.take(self.partials[:, 0], self._order(rng), out=row)
            yield self._summed(rows.T)[:, None]

    def _order(self, rng: np.random.Generator) -> _Array:
        return (self.law or self.shuffle).places(len(self.partials), rng)

    def _summed(self, view: _Array) -> _Array:
        return run_sums(view, self.program, self.arithmetic)


@dataclass(frozen=True, slots=True)
class _Capture(Order):
    """Stands where terms arrive in a random order, and remembers them."""

    found: list[tuple[Items, Arithmetic, Segment]] = field(default_factory=list, compare=False)
    name: ClassVar[str] = "captured"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        total = builder.fold(items, arithmetic)
        self.found.append((items, arithmetic, total))
        return total


def random_places(order: Order, /) -> list[Shuffle]:
    """Return the random orders without a seed inside an order."""
    found: list[Shuffle] = []

    def note(shuffle: Shuffle) -> Order:
        found.append(shuffle)
        return shuffle

    _rebuilt(order, note)
    return found


def seeded(chosen: Strategy, rng: np.random.Generator, /) -> Strategy:
    """Return the strategy with a seed for every random order in it."""

    def with_seed(shuffle: Shuffle) -> Order:
        return dataclasses.replace(shuffle, seed=int(rng.integers(2**63)))

    return Strategy(_rebuilt(chosen.order, with_seed), chosen.settings)


def _rebuilt(order: Order, change: Callable[[Shuffle], Order]) -> Order:
    if isinstance(order, Shuffle) and order.seed is None:
        order = change(order)
    parts = {f.name: getattr(order, f.name) for f in dataclasses.fields(order)}  # type: ignore[arg-type]
    changed = {name: _rebuilt(part, change) for name, part in parts.items() if isinstance(part, Order)}
    if all(changed[name] is parts[name] for name in changed):
        return order
    return dataclasses.replace(order, **changed)  # type: ignore[type-var]


def arrivals(chosen: Strategy, operands: tuple[_Array, ...], data: Format, /) -> Arrivals | None:
    """Return the partial sums that arrive in a random order, for a sum (n, outputs) or a product (m, n) by (n, k).

    None where the random order is not that of the last additions, or stands in several places.
    """
    random = random_places(chosen.order)
    n = operands[-1].shape[0]
    if len(random) != 1 or n == 0:
        return None
    capture = _Capture()
    order = _rebuilt(chosen.order, lambda _: capture)
    whole = chosen.arithmetic(data)
    total = order.build(Builder(), leaves(n), dataclasses.replace(whole, output=None))
    if len(capture.found) != 1:
        return None
    items, arithmetic, last = capture.found[0]
    after = _steps_after(last.item, total.item)
    fused = len(operands) == 2 and arithmetic.fma and any(segment.item is None for segment in items)
    if after is None or arithmetic.terms or fused:
        return None
    partials = np.concatenate([*_partial_sums(items, operands, arithmetic)])
    builder = Builder()
    root = random[0].inner.build(builder, leaves(len(partials)), arithmetic)
    for step in after:
        root = builder.fold([root], step.arithmetic, start=step.start)
    closed = finished(builder, root, Settings(output=whole.output))
    return Arrivals(partials, random[0], arithmetic, whole, Program.of(closed, len(partials)))


def _steps_after(inner: Fold | None, total: Fold | None) -> list[Fold] | None:
    """Return the folds of a single term that lead from a sum to the total, or None where it has other terms."""
    steps: list[Fold] = []
    while total is not None and total is not inner:
        if len(total.segments) != 1 or total.segments[0].size != 1:
            return None
        steps.append(total)
        total = total.segments[0].item
    return None if total is None else steps[::-1]


def _partial_sums(items: Items, operands: tuple[_Array, ...], arithmetic: Arithmetic) -> Iterator[_Array]:
    """Yield the terms of `items`, arrays of shape (terms, outputs)."""
    programs: dict[int, Program] = {}
    wide = storage(arithmetic.accumulator.format)
    for segment in items:
        across = np.arange(segment.outer_count)[:, None] * segment.outer_stride
        places = (segment.base + across + np.arange(segment.count) * segment.stride).reshape(-1)
        if segment.item is None:
            yield _leaves(operands, places, arithmetic).astype(wide)
            continue
        program = programs.setdefault(id(segment.item), _program_of(segment.item))
        yield from (part.astype(wide) for part in _sums(operands, places, program, segment.item.arithmetic))


def _leaves(operands: tuple[_Array, ...], places: _Array, arithmetic: Arithmetic) -> _Array:
    if len(operands) == 1:
        return operands[0][places]
    left, right = operands[0].T[places].astype(np.float64), operands[1][places].astype(np.float64)
    if not (operands[0].dtype == operands[1].dtype == np.float32):
        message = (
            "single products that arrive need float32 operands; let sums arrive, as in chunks(32, combine=shuffle)"
        )
        raise StrategyError(message)
    products = (left[:, :, None] * right[:, None, :]).reshape(len(places), -1)  # exact
    form = arithmetic.product or arithmetic.accumulator.format
    return np.asarray(round_to(products, form, mode=arithmetic.accumulator.mode))


def _sums(operands: tuple[_Array, ...], places: _Array, program: Program, arithmetic: Arithmetic) -> Iterator[_Array]:
    right = operands[-1]
    if len(operands) == 1 and program.n * len(places) <= 2 * max(right.shape[0], 1):
        view = right[np.arange(program.n)[:, None] + places]
        yield run_sums(view.reshape(program.n, -1), program, arithmetic).reshape(len(places), -1)
        return
    for first in places.tolist():
        last = first + program.n
        if len(operands) == 1:
            yield run_sums(right[first:last], program, arithmetic)[None]
        else:
            yield run_products(operands[0][:, first:last], right[first:last], program, arithmetic).reshape(1, -1)


def _program_of(root: Fold) -> Program:
    """Return the program of a fold, whose leaves need not be neighbours: n is the stretch that they lie in."""
    size: dict[int, tuple[int, int]] = {}  # leaves, and stretch
    stack = [root]
    while stack:
        fold = stack[-1]
        missing = [s.item for s in fold.segments if s.item is not None and id(s.item) not in size]
        if missing:
            stack += missing
            continue
        stack.pop()
        leaf_count = stretch = 0
        for s in fold.segments:
            inside, length = (1, 1) if s.item is None else size[id(s.item)]
            far = s.base + max(0, (s.outer_count - 1) * s.outer_stride) + max(0, (s.count - 1) * s.stride)
            leaf_count, stretch = leaf_count + s.size * inside, max(stretch, far + length)
        size[id(fold)] = leaf_count, stretch
    leaf_count, stretch = size[id(root)]
    return dataclasses.replace(Program.of(Segment(0, 1, 0, item=root), leaf_count), n=stretch)
