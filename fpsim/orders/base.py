"""What an order is: a rule that turns a sequence of terms into a summation tree."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fpsim.arithmetic import NO_SETTINGS, Arithmetic, Settings
from fpsim.errors import StrategyError
from fpsim.formats import Format
from fpsim.programs import Builder, Items, Segment, count_items, flat, joined, rows_of


@dataclass(frozen=True, slots=True)
class Product:
    """What the order of a matrix product can depend on.

    Attributes
    ----------
    m, k, n : int
        The shapes: (m, k) by (k, n).
    left, right : {"C", "F", "other"}
        Memory order of the operands.
    same : bool
        The right operand is the left one transposed, in the same memory.
    """

    m: int
    k: int
    n: int
    left: str = "C"
    right: str = "C"
    same: bool = False


@dataclass(frozen=True, slots=True)
class Reduction:
    """What the order of a sum over axes of an array can depend on.

    Attributes
    ----------
    shape, strides : tuple of int
        Those of the array; strides in bytes.
    axes : tuple of int
        The axes summed over, not negative, in ascending order.
    format : Format or None
        The format of the numbers as they lie in memory, where that is known.
    buffered : bool
        The array is byte-swapped or unaligned, so that a library copies it first.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    axes: tuple[int, ...]
    format: Format | None = None
    buffered: bool = False

    @property
    def n(self) -> int:
        """The number of terms of a sum."""
        return math.prod(self.shape[axis] for axis in self.axes)

    @property
    def outputs(self) -> int:
        """The number of sums."""
        return math.prod(size for axis, size in enumerate(self.shape) if axis not in self.axes)


@dataclass(frozen=True, slots=True)
class Part:
    """Outputs of a matrix product, or of several sums, that one order computes.

    Attributes
    ----------
    order : Order
        The order.
    rows, columns : range, tuple of int, or None
        Which ones; None means all. Sums are columns, numbered in C order of the axes that are kept.
    """

    order: Order
    rows: range | tuple[int, ...] | None = None
    columns: range | tuple[int, ...] | None = None


class Order(ABC):
    """A rule that gives the summation tree of any number of terms.

    Orders are immutable and compare by value. A term may itself be a finished partial sum, so that orders nest.
    """

    #: The name in a strategy text.
    name: ClassVar[str]
    #: Means, variances and norms are put together from passes over whole arrays, as NumPy does it: squares are rounded
    #: before they are summed, the quotient by a count comes from float64, and is rounded only once if it is a scalar.
    by_passes: ClassVar[bool] = False

    @abstractmethod
    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        """Return the sum of `items`, at least one, as a single term.

        `width` is the number of places the terms stand in, where a fixed tree has room for more terms than there are.
        """

    def layout(self, case: Reduction) -> tuple[tuple[int, ...], list[Part]]:
        """Return in which sequence the terms of a sum over axes are taken, and which order computes which outputs.

        The axes come slowest first. Generic orders take the terms in C order and compute all outputs alike; a named
        rule asks what its library does for this array.

        Raises
        ------
        UnknownOrderError
            A named rule does not know this case.
        """
        return case.axes, [Part(self)]

    def product(self, shape: Product) -> list[Part]:
        """Return which order computes which outputs of a matrix product; generic orders compute all alike.

        Raises
        ------
        UnknownOrderError
            A named rule does not know this product.
        """
        del shape
        return [Part(self)]

    def defaults(self, data: Format | None) -> Settings:
        """Return the settings that belong to a named rule for operands of a format; generic orders have none.

        Raises
        ------
        UnknownOrderError
            The rule does not know this format.
        """
        del data
        return NO_SETTINGS

    def for_mean(self, data: Format | None) -> tuple[Order, Settings]:
        """Return the order and the default settings of the sum of a mean, where they differ from those of a sum."""
        del data
        return self, NO_SETTINGS

    def for_deviations(self, data: Format | None) -> tuple[Order, Settings]:
        """Return the order and the default settings of the sum of squared deviations from a mean, where they differ.

        The deviations, the quotient and its root are computed in the accumulator format of these settings.
        """
        del data
        return self, NO_SETTINGS

    def check(self, arithmetic: Arithmetic) -> None:
        """Raise `StrategyError` where the order cannot be had in this arithmetic; most can in any."""
        del arithmetic

    def arguments(self) -> list[str]:
        """Return the arguments in the notation of a strategy text."""
        return []

    def __str__(self) -> str:
        arguments = self.arguments()
        return f"{self.name}({', '.join(arguments)})" if arguments else self.name


@dataclass(frozen=True, slots=True)
class Configured(Order):
    """An order with settings of its own, as it stands inside another order."""

    order: Order
    settings: Settings
    name: ClassVar[str] = ""

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        own = self.settings.over(arithmetic)
        own.check()
        total = self.order.build(builder, items, own, width=width)
        return finished(builder, total, self.settings)

    def __str__(self) -> str:
        return f"{self.order}{self.settings}"


@dataclass(frozen=True, slots=True)
class Serial(Order):
    """One accumulator takes the terms from left to right."""

    name: ClassVar[str] = "serial"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        return builder.fold(items, arithmetic)


SERIAL = Serial()


def finished(builder: Builder, total: Segment, settings: Settings) -> Segment:
    """Return the sum `total` rounded to the output format of `settings`, if they name one."""
    if settings.output is None:
        return total
    fold = total.item
    assert fold is not None
    if fold.arithmetic.output is not None:
        again = dataclasses.replace(fold.arithmetic, compensation=None, output=settings.output)
        return builder.fold([total], again, start="first")
    terms = [segment.moved(total.base) for segment in fold.segments]
    return builder.fold(terms, dataclasses.replace(fold.arithmetic, output=settings.output), start=fold.start)


def pairs(builder: Builder, items: Items, arithmetic: Arithmetic) -> Items:
    """Add neighbours, (0, 1), (2, 3), ...; an odd one is carried."""
    out: list[Segment] = []
    pending: Segment | None = None  # the left one of a pair whose right one stands in the next segment
    rows: list[Segment] = []
    position = 0
    for segment in items:
        rows += rows_of((segment,), unless_multiple_of=0 if position % 2 else 2)
        position += segment.size
    for segment in rows:
        if segment.outer_count > 1:
            left = Segment(segment.base, 1, 0, item=segment.item)
            pair = builder.fold([left, left.moved(segment.stride)], arithmetic)
            half, stride = segment.count // 2, 2 * segment.stride
            out.append(flat(Segment(pair.base, half, stride, segment.outer_count, segment.outer_stride, pair.item)))
            continue
        base, count = segment.base, segment.count
        if pending is not None:
            out.append(builder.fold([pending, _one(segment, 0)], arithmetic))
            base, count = base + segment.stride, count - 1
            pending = None
        if count >= 2:
            left = Segment(base, 1, 0, item=segment.item)
            pair = builder.fold([left, left.moved(segment.stride)], arithmetic)
            out.append(Segment(pair.base, count // 2, 2 * segment.stride, item=pair.item))
        if count % 2:
            pending = Segment(base + (count - 1) * segment.stride, 1, 0, item=segment.item)
    if pending is not None:
        out.append(pending)
    return joined(out)


def halves(builder: Builder, items: Items, arithmetic: Arithmetic, half: int) -> Items:
    """Add term t + half to term t; a term without a partner is carried."""
    rows = rows_of(items)
    out: list[Segment] = []
    low, high = _Cursor(rows), _Cursor(rows)
    high.skip(half)
    remaining = min(half, count_items(items))
    while remaining:
        left = low.here()
        if high.finished:
            run = min(low.left_in_segment, remaining)
            out.append(Segment(left.base, run, low.stride, item=left.item))
        else:
            right = high.here()
            run = min(low.left_in_segment, high.left_in_segment, remaining)
            if low.stride != high.stride and run > 1:
                run = 1
            pair = builder.fold([left, right], arithmetic)
            out.append(Segment(pair.base, run, low.stride, item=pair.item))
            high.skip(run)
        low.skip(run)
        remaining -= run
    return joined(out)


class _Cursor:
    """A position in a sequence of one-level segments."""

    def __init__(self, rows: Items) -> None:
        self._rows = [s for s in rows if s.count]
        self._row = 0
        self._at = 0

    @property
    def finished(self) -> bool:
        return self._row == len(self._rows)

    @property
    def stride(self) -> int:
        return self._rows[self._row].stride

    @property
    def left_in_segment(self) -> int:
        return self._rows[self._row].count - self._at

    def here(self) -> Segment:
        return _one(self._rows[self._row], self._at)

    def skip(self, count: int) -> None:
        while count and not self.finished:
            step = min(count, self.left_in_segment)
            self._at += step
            count -= step
            if self.left_in_segment == 0:
                self._row, self._at = self._row + 1, 0


def _one(segment: Segment, position: int) -> Segment:
    return Segment(segment.base + position * segment.stride, 1, 0, item=segment.item)


class Scattered:
    """Terms by number, for orders that take them in no regular way."""

    def __init__(self, items: Items) -> None:
        self._rows = rows_of(items)
        self._bases = np.concatenate([row.base + row.stride * np.arange(row.count) for row in self._rows])
        self._owners = np.repeat(np.arange(len(self._rows)), [row.count for row in self._rows])

    def pick(self, places: NDArray[np.int64]) -> Items:
        """Return the terms with these numbers, in this order."""
        bases, owners = self._bases[places].tolist(), self._owners[places].tolist()
        return joined(
            Segment(base, 1, 0, item=self._rows[owner].item) for base, owner in zip(bases, owners, strict=True)
        )


def parts(inner: Order, combine: Order) -> list[str]:
    """Return the arguments `inner` and `combine` as a text shows them."""
    first = [] if inner == SERIAL else [str(inner)]
    return first if combine == SERIAL else [*first, f"combine={combine}"]


def at_least_one(order: str, **values: object) -> None:
    """Raise `StrategyError` unless these arguments of an order are whole numbers of at least 1."""
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            message = f"{order}: {name} must be a whole number of at least 1, not {value!r}"
            raise StrategyError(message)
