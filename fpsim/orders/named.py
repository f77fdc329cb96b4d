"""What named rules have in common: where they hold, and how they take their terms."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar, NoReturn, Self

import numpy as np

from fpsim.arithmetic import NO_SETTINGS, Settings
from fpsim.errors import StrategyError, UnknownOrderError
from fpsim.formats import FLOAT32, Format
from fpsim.orders.base import Order, Part, Reduction, Scattered
from fpsim.programs import Items, Segment, count_items, joined, rows_of

_ITEM = 4  # bytes of a float32


class NamedRule(Order):
    """A complete strategy: what one library does with contiguous float32 terms.

    Attributes
    ----------
    own : Settings
        The arithmetic that belongs to the rule.
    choices : dict of str to tuple of str
        The words that an argument may be.
    merges_axes : bool
        A sum over several axes of contiguous memory is the sum over that memory.
    """

    own: ClassVar[Settings] = NO_SETTINGS
    choices: ClassVar[dict[str, tuple[str, ...]]] = {}
    merges_axes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            words = self.choices.get(field.name)
            if words is not None and value not in words:
                message = f"{self.name}: {field.name}={value} is not known; known are {', '.join(words)}"
                raise StrategyError(message)
            least = 0 if field.default == 0 else 1
            if words is None and (not isinstance(value, int) or value < least):
                message = f"{self.name}: {field.name} must be a whole number of at least {least}, not {value!r}"
                raise StrategyError(message)

    def layout(self, case: Reduction) -> tuple[tuple[int, ...], list[Part]]:
        shape, strides = case.shape, case.strides
        dims = sorted(((strides[axis], shape[axis]) for axis in case.axes if shape[axis] != 1), reverse=True)
        if len(dims) > 1 and not self.merges_axes:
            self.refuse("sums over several axes")
        step = _ITEM
        for stride, size in reversed(dims):
            if (stride != step or case.buffered) and 0 not in shape:
                self.refuse("terms that do not lie side by side in memory as native float32")
            step *= size
        return tuple(sorted(case.axes, key=lambda axis: (-strides[axis], axis))), [Part(self.for_outputs(case.outputs))]

    def for_outputs(self, outputs: int) -> Self:
        """Return the rule for one of so many sums that are computed together."""
        if outputs > 1:
            self.refuse("several sums at a time")
        return self

    def defaults(self, data: Format | None) -> Settings:
        if data not in (None, FLOAT32):
            self.refuse(f"operands in {data}")
        return self.own

    def refuse(self, case: str) -> NoReturn:
        """Say that the rule does not know a case."""
        message = f"{self.name} is not known for {case}"
        raise UnknownOrderError(message)

    def arguments(self) -> list[str]:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        given = [(field.name, getattr(self, field.name), field.default) for field in fields]
        return [f"{name}={value}" for name, value, default in given if value != default]


class Terms:
    """Terms by number, to be taken at a stride."""

    def __init__(self, items: Items) -> None:
        rows = rows_of(items)
        self.n = count_items(items)
        self._row = rows[0] if len(rows) == 1 else None
        self._scattered = Scattered(rows) if len(rows) != 1 else None

    def take(self, first: int, count: int, step: int = 1) -> Items:
        """Return the terms first, first + step, ..., so many of them that exist."""
        count = min(count, -(-(self.n - first) // step))
        if count <= 0:
            return ()
        if self._scattered is not None:
            return self._scattered.pick(first + step * np.arange(count))
        row = self._row
        assert row is not None
        return (Segment(row.base + first * row.stride, count, step * row.stride, item=row.item),)

    def alike(self, threads: int, step: int, sort: Callable[[int], object], total: Callable[[int], Segment]) -> Items:
        """Return the sums of so many threads, whose terms begin `step` terms apart.

        Neighbouring threads of the same `sort` are equal but for their place; `total` gives the sum of one.
        """
        out: list[Segment] = []
        thread = 0
        while thread < threads:
            run = 1
            while self._row is not None and thread + run < threads and sort(thread + run) == sort(thread):
                run += 1
            one = total(thread)
            stride = step * self._row.stride if self._row is not None else 0
            out.append(Segment(one.base, run, stride, item=one.item))
            thread += run
        return joined(out)
