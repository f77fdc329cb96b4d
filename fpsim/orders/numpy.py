"""The orders of NumPy's reductions.

Sources: ``numpy/_core/src/umath/loops_utils.h.src`` (pairwise sum), ``loops.c.src`` (float16) and ``nditer_constr.c``
(buffering), ``numpy/_core/_methods.py`` (means), NumPy 2.3 to 2.5. The result does not depend on the SIMD level, the
alignment or the stride, but on which axis is the inner loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from fpsim.arithmetic import NO_SETTINGS, Arithmetic, Rounding, Settings
from fpsim.errors import StrategyError, UnknownOrderError
from fpsim.formats import FLOAT16, FLOAT32, FLOAT64, Format
from fpsim.orders.base import Order, Part, Reduction
from fpsim.orders.combinators import Lanes, Pairwise, blocks
from fpsim.programs import Builder, Items, Segment, count_items, joined, split_items

_BLOCK = 128
_BUFFER = 8192
_EIGHT_LANES = Lanes(8, combine=Pairwise(), tail="after")
_ACCUMULATORS: Final = {form: Settings(accumulator=Rounding(form)) for form in (FLOAT16, FLOAT64)}


@dataclass(frozen=True, slots=True)
class NumpySum(Order):
    """``np.sum``: pairwise by halves rounded down to multiples of 8, over blocks of at most 128 terms in 8 lanes.

    With `chunk`, the inner loop sees that many terms at a time, and the results are added serially, from +0. With
    `row`, chunks are cut from rows of that many terms, the last one of a row shorter. In float16 the inner loop
    computes in float32, and what it has added to is rounded to float16 after each chunk.
    """

    chunk: int = 0
    row: int = 0
    name: ClassVar[str] = "numpy_sum"
    by_passes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for field, value in (("chunk", self.chunk), ("row", self.row)):
            if value < 0:
                message = f"{self.name}: {field} must be a whole number of at least 0, not {value}"
                raise StrategyError(message)

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        if self.chunk == 1:
            return builder.fold(items, arithmetic, start="+0")
        if _is_half(arithmetic):
            inner = replace(arithmetic, accumulator=Rounding(FLOAT32))
            rounded = replace(inner, output=arithmetic.accumulator)
            total: list[Segment] = []
            for part in self._chunks(items):
                term = _pairwise(builder, part, inner, {})
                total = [builder.fold([*total, term], rounded, start="first" if total else "+0")]
            return total[0]
        n = count_items(items)
        row = self.row or n
        size = self.chunk or row
        if row % size == 0 or row >= n:
            parts: Items = blocks(builder, items, arithmetic, size, _Inner())
        else:
            every: list[Segment] = []
            for part in self._parts(items):
                every += blocks(builder, part, arithmetic, size, _Inner())
            parts = joined(every)
        return builder.fold(parts, arithmetic, start="+0")

    def _parts(self, items: Items) -> Iterator[Items]:
        """Return the rows that chunks are cut from."""
        return _cut(items, self.row or count_items(items))

    def _chunks(self, items: Items) -> Iterator[Items]:
        for part in self._parts(items):
            yield from _cut(part, self.chunk or count_items(part))

    def layout(self, case: Reduction) -> tuple[tuple[int, ...], list[Part]]:
        if self.chunk:
            return case.axes, [Part(self)]
        axes, rule = sum_layout(case)
        return axes, [Part(type(self)(rule.chunk, rule.row))]

    def defaults(self, data: Format | None) -> Settings:
        if data is None or data == FLOAT32:
            return NO_SETTINGS
        if data in _ACCUMULATORS:
            return _ACCUMULATORS[data]
        message = f"{self.name} is not known for {data}: it is for float16, float32 and float64"
        raise UnknownOrderError(message)

    def for_mean(self, data: Format | None) -> tuple[Order, Settings]:
        if data == FLOAT16 and type(self) is NumpySum:
            return _CastSum(self.chunk, self.row), Settings(accumulator=Rounding(FLOAT32), output=Rounding(FLOAT16))
        return self, NO_SETTINGS

    def arguments(self) -> list[str]:
        return [f"{name}={value}" for name, value in (("chunk", self.chunk), ("row", self.row)) if value]


@dataclass(frozen=True, slots=True)
class _CastSum(NumpySum):
    """``np.sum(x, dtype=...)`` of another type than x has: the iterator converts a buffer of terms at a time."""

    def layout(self, case: Reduction) -> tuple[tuple[int, ...], list[Part]]:
        return NumpySum.layout(self, replace(case, buffered=True))


@dataclass(frozen=True, slots=True)
class NumpyProd(NumpySum):
    """``np.prod``: serial, in the order in which NumPy walks the array; for use with `fpsim.prod`.

    In float16 the inner loop computes in float32, and the product is rounded to float16 after each `chunk` of terms
    that it gets. In other types it does not matter how the terms are handed to it.
    """

    name: ClassVar[str] = "numpy_prod"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        if self.chunk == 1 or not _is_half(arithmetic):
            return builder.fold(items, arithmetic)
        rounded = replace(arithmetic, accumulator=Rounding(FLOAT32), output=arithmetic.accumulator)
        total: list[Segment] = []
        for part in self._chunks(items):
            total = [builder.fold([*total, *part], rounded)]
        return total[0]


def _is_half(arithmetic: Arithmetic) -> bool:
    """Whether this is the arithmetic of NumPy's float16."""
    return arithmetic.accumulator == Rounding(FLOAT16) and not arithmetic.ftz and arithmetic.compensation is None


def _cut(items: Items, size: int) -> Iterator[Items]:
    """Return runs of `size` neighbouring terms, the last one shorter."""
    n = count_items(items)
    whole, rest = split_items(items, n - n % size)
    yield from _rows(whole, size)
    if rest:
        yield rest


def _rows(items: Items, size: int) -> Iterator[Items]:
    for segment in items:
        if segment.outer_count > 1 or segment.size % size:
            break
    else:
        for s in items:
            for first in range(0, s.count, size):
                yield (Segment(s.base + first * s.stride, size, s.stride, item=s.item),)
        return
    while items:
        head, items = split_items(items, size)
        yield head


@dataclass(frozen=True, slots=True)
class _Inner(Order):
    """What one call of the inner loop gives."""

    name: ClassVar[str] = "numpy_inner"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        return _pairwise(builder, items, arithmetic, {})


def _pairwise(
    builder: Builder, items: Items, arithmetic: Arithmetic, known: dict[tuple[int, int, int], Segment]
) -> Segment:
    n = count_items(items)
    row = items[0]
    key = (n, row.stride, id(row.item)) if len(items) == 1 and row.outer_count == 1 else None
    if key is not None and key in known:
        return known[key].moved(row.base)
    if n < 8:
        total = builder.fold(items, arithmetic)
    elif n <= _BLOCK:
        total = _EIGHT_LANES.build(builder, items, arithmetic)
    else:
        half = n // 2 - n // 2 % 8
        left, right = split_items(items, half)
        total = builder.fold(
            [_pairwise(builder, left, arithmetic, known), _pairwise(builder, right, arithmetic, known)], arithmetic
        )
    if key is not None:
        known[key] = total.moved(-row.base)
    return total


def sum_layout(case: Reduction, /) -> tuple[tuple[int, ...], NumpySum]:
    """Return how ``np.sum`` walks an array of float16, float32 or float64.

    Parameters
    ----------
    case : Reduction
        The array and the axes summed over.

    Returns
    -------
    order : tuple of int
        The summed axes, slowest first: the terms of an output in this order are the leaves.
    rule : NumpySum
        The order over those leaves.

    Notes
    -----
    Beyond one stretch of memory all depends on how the iterator cuts the array, which holds for NumPy 2.3 and later
    and the default buffer of 8192 elements (``np.setbufsize``).
    """
    shape, strides, axes = case.shape, case.strides, case.axes
    order = _axis_order(shape, strides)
    summed = tuple(axis for axis in order if axis in axes)
    dims = _merged([(shape[axis], strides[axis], axis in axes) for axis in reversed(order) if shape[axis] != 1])
    if not dims or not summed or 0 in shape:
        return summed, NumpySum()
    if not dims[0][2]:
        return summed, NumpySum(1)
    row, chunk = _inner_loop(dims, case.buffered)
    n = case.n
    if row >= n:
        row = 0
    if row and row % chunk == 0:
        row = 0
    return summed, NumpySum(0 if chunk >= n else chunk, row)


def _axis_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """Return the axes in the order of iteration, slowest first.

    The iterator sorts by insertion, beginning with C order; an axis moves inwards past those of a larger stride, over
    axes of stride 0 or length 1, which compare with nothing.
    """
    steps = [0 if size == 1 else abs(stride) for size, stride in zip(shape, strides, strict=True)]
    inner_first: list[int] = []
    for axis in reversed(range(len(shape))):
        place = len(inner_first)
        for before in reversed(range(len(inner_first))):
            other = steps[inner_first[before]]
            if steps[axis] and other:
                if other <= steps[axis]:
                    break
                place = before
        inner_first.insert(place, axis)
    return inner_first[::-1]


def _merged(dims: list[tuple[int, int, bool]]) -> list[tuple[int, int, bool]]:
    """Merge neighbouring axes (size, stride, summed), fastest first, that continue each other."""
    out: list[tuple[int, int, bool]] = []
    for size, stride, summed in dims:
        if out and out[-1][2] == summed and out[-1][0] * out[-1][1] == stride:
            out[-1] = (out[-1][0] * size, out[-1][1], summed)
        else:
            out.append((size, stride, summed))
    return out


def _inner_loop(dims: list[tuple[int, int, bool]], cast: bool) -> tuple[int, int]:
    """Return how many terms are iterated together, and how many of them the inner loop gets at a time.

    `dims` are the axes, fastest first, of which the first is summed. The iterator takes a further axis in as long as
    the cost, (1 + number of buffered operands) for each filling of a buffer, does not grow; a change from summed to
    kept axes is as far as it can go, and then the inner loop runs over the axes before it.
    """
    cost = best_cost = 2 if cast else 1
    size = best_size = dims[0][0]
    core, best, turn = 1, 0, 0
    single = 1  # so many axes of the input have a single stride
    for d in range(1, len(dims)):
        if turn or (size >= _BUFFER and cost > 1):
            break
        previous, this = dims[d - 1], dims[d]
        if single == d:
            if previous[0] * previous[1] == this[1]:
                single += 1
            elif not cast:
                cost += 1
        if this[2] != previous[2]:  # the output's stride changes between zero and something
            cost += 1
            turn = d
        inner, size = size, size * this[0]
        together = size if cost == 1 else min(size, _BUFFER)
        if cost * best_size <= best_cost * together:
            best_cost, best_size, core, best = cost, size, inner, d
    reduces = bool(turn) and best == turn
    if reduces:
        return core, core
    must_buffer = cast or single <= best
    limit = _BUFFER // core * core
    return best_size, min(best_size, limit) if must_buffer else best_size
