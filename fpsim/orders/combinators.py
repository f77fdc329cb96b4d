"""The generic orders that cut terms into parts. They nest: the sum of a part, or of partial sums, is an order too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fpsim.arithmetic import Arithmetic
from fpsim.errors import InputError, StrategyError
from fpsim.orders.base import SERIAL, Order, Scattered, at_least_one, halves, pairs, parts
from fpsim.programs import Builder, Items, Segment, count_items, flat, joined, rows_of, segments_key, split_items

#: Segments from which terms are looked up by number instead of split off again and again.
_MANY = 64


@dataclass(frozen=True, slots=True)
class Pairwise(Order):
    """Adjacent pairs, pairs of pairs and so on, an odd one carried; with `base`, over serial blocks of that size."""

    base: int = 1
    name: ClassVar[str] = "pairwise"

    def __post_init__(self) -> None:
        at_least_one("pairwise", base=self.base)

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        if self.base > 1:
            items = blocks(builder, items, arithmetic, self.base, SERIAL)
        while count_items(items) > 1:
            items = pairs(builder, items, arithmetic)
        return _term(builder, items, arithmetic)

    def arguments(self) -> list[str]:
        return [str(self.base)] if self.base > 1 else []


@dataclass(frozen=True, slots=True)
class HalvingFold(Order):
    """Term t + w/2 is added to term t, w halves (rounded up) until one is left, as in a shared-memory reduction."""

    name: ClassVar[str] = "fold"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        width = max(width, count_items(items))
        while width > 1:
            width = (width + 1) // 2
            items = halves(builder, items, arithmetic, width)
        return _term(builder, items, arithmetic)


TAILS = ("lanes", "after", "lane0")


@dataclass(frozen=True, slots=True)
class Lanes(Order):
    """Term i goes to lane i mod `count`; each lane is summed by `inner`, the lanes by `combine`.

    `tail` says what becomes of the last n mod count terms: "lanes" leaves them in the lanes 0, 1, ...; "after" adds
    them one by one after the lanes are combined; "lane0" gives them all to the first lane; an order sums them on
    their own and then adds the sum of the lanes to that, in the tail's arithmetic.
    """

    count: int
    inner: Order = SERIAL
    combine: Order = SERIAL
    tail: str | Order = "lanes"
    name: ClassVar[str] = "lanes"

    def __post_init__(self) -> None:
        at_least_one("lanes", count=self.count)
        if isinstance(self.tail, str) and self.tail not in TAILS:
            message = f"lanes: tail={self.tail} is not one of {', '.join(TAILS)}, or an order"
            raise StrategyError(message)

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        n = count_items(items)
        rest: Items = ()
        if self.tail != "lanes":
            items, rest = split_items(items, n - n % self.count)
        total: list[Segment] = []
        if items:
            extra = rest if self.tail == "lane0" else ()
            lanes = lane_sums(builder, items, arithmetic, self.count, self.inner, extra)
            total = [self.combine.build(builder, lanes, arithmetic, width=self.count)]
        if not rest or (self.tail == "lane0" and items):
            return total[0]
        if isinstance(self.tail, str):
            return builder.fold([*total, *rest], arithmetic)
        own = self.tail.build(builder, rest, arithmetic)
        assert own.item is not None
        if not total:
            return own
        return builder.fold([own, *total], own.item.arithmetic)

    def arguments(self) -> list[str]:
        tail = [] if self.tail == "lanes" else [f"tail={self.tail}"]
        return [str(self.count), *parts(self.inner, self.combine), *tail]


def lane_sums(
    builder: Builder, items: Items, arithmetic: Arithmetic, k: int, inner: Order = SERIAL, extra: Items = ()
) -> Items:
    """Return the sums of k lanes, term i in lane i mod k, in order; `extra` terms go to the first."""
    rows = rows_of(items, unless_multiple_of=k)
    n = count_items(rows)
    if len(rows) == 1 and rows[0].outer_count == 1 and not extra:
        # All lanes of one length are equal but for their place.
        row = rows[0]
        out = []
        for first, many, length in ((0, n % k, n // k + 1), (n % k, k - n % k, n // k)):
            if length and many:
                lane = Segment(row.base + first * row.stride, length, k * row.stride, item=row.item)
                total = inner.build(builder, (lane,), arithmetic)
                out.append(Segment(total.base, many, row.stride, item=total.item))
        return tuple(out)
    totals = []
    scattered = Scattered(rows) if len(rows) > _MANY else None
    for place in range(min(k, n)):
        part = _every(rows, place, k) if scattered is None else scattered.pick(np.arange(place, n, k))
        if place == 0:
            part = (*part, *extra)
        totals.append(inner.build(builder, part, arithmetic))
    return joined(totals)


def _every(rows: Items, start: int, step: int) -> Items:
    """Terms start, start + step, ... of segments that have one level or rows of a multiple of `step` terms."""
    out = []
    position = 0
    for row in rows:
        first = (start - position) % step
        if first < row.count:
            count = (row.count - first + step - 1) // step
            base = row.base + first * row.stride
            out.append(Segment(base, count, step * row.stride, row.outer_count, row.outer_stride, row.item))
        position += row.size
    return tuple(flat(segment) for segment in out)


def blocks(builder: Builder, items: Items, arithmetic: Arithmetic, size: int, inner: Order) -> Items:
    """Sum runs of `size` neighbouring terms, the last one shorter."""
    if len(items) > _MANY:
        n = count_items(items)
        return _cut(builder, items, arithmetic, [*[size] * (n // size), *([n % size] if n % size else [])], inner)
    out: list[Segment] = []
    pending: Items = ()  # the beginning of a run that goes on in the next segment
    queue = [*reversed(rows_of(items, unless_multiple_of=size))]
    while queue:
        row = queue.pop()
        if pending:
            more, rest = split_items((row,), size - count_items(pending))
            pending = (*pending, *more)
            if count_items(pending) == size:
                out.append(inner.build(builder, pending, arithmetic))
                pending = ()
            queue += reversed(rows_of(rest, unless_multiple_of=size))
            continue
        many = row.count // size
        if many:
            total = inner.build(builder, (Segment(row.base, size, row.stride, item=row.item),), arithmetic)
            stride = size * row.stride
            out.append(flat(Segment(total.base, many, stride, row.outer_count, row.outer_stride, total.item)))
        if row.count % size:
            pending = (Segment(row.base + many * size * row.stride, row.count % size, row.stride, item=row.item),)
    if pending:
        out.append(inner.build(builder, pending, arithmetic))
    return joined(out)


def _cut(builder: Builder, items: Items, arithmetic: Arithmetic, sizes: list[int], inner: Order) -> Items:
    totals = []
    scattered = Scattered(items) if len(items) > _MANY else None
    first = 0
    for size in sizes:
        if scattered is None:
            part, items = split_items(items, size)
        else:
            part = scattered.pick(np.arange(first, first + size))
        first += size
        totals.append(inner.build(builder, part, arithmetic))
    return joined(totals)


@dataclass(frozen=True, slots=True)
class Chunks(Order):
    """Runs of `size` neighbouring terms (or runs of listed sizes), each summed by `inner`, the sums by `combine`."""

    size: int | tuple[int, ...]
    inner: Order = SERIAL
    combine: Order = SERIAL
    name: ClassVar[str] = "chunks"

    def __post_init__(self) -> None:
        sizes = self.size if isinstance(self.size, tuple) else (self.size,)
        for size in sizes or (0,):
            at_least_one("chunks", size=size)

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        if isinstance(self.size, int):
            totals = blocks(builder, items, arithmetic, self.size, self.inner)
        else:
            n = count_items(items)
            if sum(self.size) != n:
                message = f"{self}: the listed sizes add up to {sum(self.size)}, but there are {n} terms"
                raise InputError(message)
            totals = _cut(builder, items, arithmetic, list(self.size), self.inner)
        return self.combine.build(builder, totals, arithmetic)

    def arguments(self) -> list[str]:
        size = str(self.size) if isinstance(self.size, int) else f"[{', '.join(map(str, self.size))}]"
        return [size, *parts(self.inner, self.combine)]


@dataclass(frozen=True, slots=True)
class SplitK(Order):
    """Chunks of ceil(n / parts) terms, as a split-K product cuts its inner dimension."""

    parts: int
    inner: Order = SERIAL
    combine: Order = SERIAL
    name: ClassVar[str] = "split_k"

    def __post_init__(self) -> None:
        at_least_one("split_k", parts=self.parts)

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        size = -(-count_items(items) // self.parts)
        return self.combine.build(builder, blocks(builder, items, arithmetic, size, self.inner), arithmetic)

    def arguments(self) -> list[str]:
        return [str(self.parts), *parts(self.inner, self.combine)]


@dataclass(frozen=True, slots=True)
class Split(Order):
    """`parts` nearly equal runs, the first n mod parts of them one longer, as threads share a loop."""

    parts: int
    inner: Order = SERIAL
    combine: Order = SERIAL
    name: ClassVar[str] = "split"

    def __post_init__(self) -> None:
        at_least_one("split", parts=self.parts)

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        n = count_items(items)
        longer = n % self.parts * (n // self.parts + 1)
        head, tail = split_items(items, longer)
        totals: Items = ()
        if head:
            totals = blocks(builder, head, arithmetic, n // self.parts + 1, self.inner)
        if tail:
            totals = (*totals, *blocks(builder, tail, arithmetic, n // self.parts, self.inner))
        return self.combine.build(builder, totals, arithmetic)

    def arguments(self) -> list[str]:
        return [str(self.parts), *parts(self.inner, self.combine)]


@dataclass(frozen=True, slots=True)
class Interleaved(Order):
    """Groups of `block` neighbouring terms go round `parts` accumulators; `combine` adds those."""

    parts: int
    inner: Order = SERIAL
    block: int = 1
    combine: Order = SERIAL
    name: ClassVar[str] = "interleaved"

    def __post_init__(self) -> None:
        at_least_one("interleaved", parts=self.parts, block=self.block)

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        n = count_items(items)
        rows = rows_of(items)
        scattered = Scattered(rows) if len(rows) != 1 else None
        totals = [
            self.inner.build(builder, self._part(rows, scattered, n, part), arithmetic)
            for part in range(min(self.parts, -(-n // self.block)))
        ]
        return self.combine.build(builder, joined(totals), arithmetic, width=self.parts)

    def _part(self, rows: Items, scattered: Scattered | None, n: int, part: int) -> Items:
        first, period = part * self.block, self.parts * self.block
        if scattered is None:
            row = rows[0]
            whole = max(0, (n - first - self.block) // period + 1)
            out = [Segment(row.base + first * row.stride, self.block, row.stride, whole, period * row.stride, row.item)]
            start = first + whole * period
            if start < n:
                rest = Segment(row.base + start * row.stride, min(self.block, n - start), row.stride, item=row.item)
                out.append(rest)
            return tuple(s for s in out if s.size)
        places = (np.arange(first, n, period)[:, None] + np.arange(self.block)).reshape(-1)
        return scattered.pick(places[places < n])

    def arguments(self) -> list[str]:
        block = [] if self.block == 1 else [f"block={self.block}"]
        inner, combine = parts(self.inner, SERIAL), parts(SERIAL, self.combine)
        return [str(self.parts), *inner, *block, *combine]


@dataclass(frozen=True, slots=True)
class Cascade(Order):
    """`levels` accumulators: the first takes `step` terms and is then added to the second and cleared, and so on.

    Terms beyond the last full step stay in the first. At the end the accumulators are added, first to last.
    """

    levels: int
    step: int
    name: ClassVar[str] = "cascade"

    def __post_init__(self) -> None:
        at_least_one("cascade", levels=self.levels, step=self.step)

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        kept: list[Items] = []  # what is left in each accumulator, first to last
        for level in range(self.levels):
            n = count_items(items)
            full = n - n % self.step if level < self.levels - 1 else 0
            items, rest = split_items(items, full)
            kept.append(rest)
            if not items:
                break
            items = blocks(builder, items, arithmetic, self.step, SERIAL)
        sums = [builder.fold(rest, arithmetic) for rest in kept if rest]
        return builder.fold(sums, arithmetic)

    def arguments(self) -> list[str]:
        return [str(self.levels), str(self.step)]


@dataclass(frozen=True, slots=True)
class Grid(Order):
    """A GPU reduction: `blocks` of `threads`, each thread taking `items` terms at a time, in a grid-stride loop.

    Block b takes the tiles b, b + blocks, ... of threads*items terms; in a tile, thread t takes the terms t,
    t + threads, ... A thread adds what it takes serially. `block` sums the threads of a block, `combine` the blocks.
    Threads and blocks without a term add an exact zero, which changes nothing.
    """

    blocks: int
    threads: int
    items: int = 1
    block: Order = HalvingFold()
    combine: Order = SERIAL
    name: ClassVar[str] = "grid"

    def __post_init__(self) -> None:
        at_least_one("grid", blocks=self.blocks, threads=self.threads, items=self.items)

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        rows, n, tile = rows_of(items), count_items(items), self.threads * self.items
        scattered = Scattered(rows) if len(rows) != 1 else None
        totals = []
        known: dict[tuple[object, ...], Segment] = {}  # the sum of a block by the shape of its threads, from leaf 0
        for b in range(min(self.blocks, -(-n // tile))):
            if scattered is None:
                threads = self._threads(builder, rows[0], n, b * tile, arithmetic)
            else:
                firsts = range(b * tile, min(b * tile + self.threads, n))
                parts = [scattered.pick(self._places(first, n)) for first in firsts]
                threads = joined(builder.fold(part, arithmetic) for part in parts)
            origin = threads[0].base
            shape = segments_key(tuple(segment.moved(-origin) for segment in threads))
            if shape not in known:
                total = self.block.build(builder, threads, arithmetic, width=self.threads)
                known[shape] = total.moved(-origin)
            totals.append(known[shape].moved(origin))
        return self.combine.build(builder, joined(totals), arithmetic, width=self.blocks)

    def _places(self, first: int, n: int) -> NDArray[np.int64]:
        """Return the terms of the thread whose first one is `first`."""
        period = self.blocks * self.threads * self.items
        places = (np.arange(first, n, period)[:, None] + self.threads * np.arange(self.items)).reshape(-1)
        return places[places < n]

    def _threads(self, builder: Builder, row: Segment, n: int, first: int, arithmetic: Arithmetic) -> Items:
        """Return the sums of the threads of the block that begins at term `first`, equal neighbours as one segment."""
        period = self.blocks * self.threads * self.items
        out: list[Segment] = []
        end = min(first + self.threads, n)
        while first < end:
            last_in_tile = first + (self.items - 1) * self.threads
            whole, spare = divmod(n - 1 - last_in_tile + period, period)
            start = first + whole * period
            rest, spare_rest = divmod(n - 1 - start + self.threads, self.threads) if start < n else (0, period)
            parts = (
                Segment(first, self.items, self.threads, whole, period),
                Segment(start, rest, self.threads),
            )
            placed = [
                Segment(row.base + p.base * row.stride, p.count, p.stride * row.stride, p.outer_count, p.outer_stride * row.stride, row.item)
                for p in parts
            ]  # fmt: skip
            total = builder.fold(placed, arithmetic)
            run = min(end - first, spare + 1, spare_rest + 1)
            out.append(Segment(total.base, run, row.stride, item=total.item))
            first += run
        return joined(out)

    def arguments(self) -> list[str]:
        out = [str(self.blocks), str(self.threads)]
        if self.items != 1:
            out.append(str(self.items))
        if self.block != HalvingFold():
            out.append(f"block={self.block}")
        return [*out, *parts(SERIAL, self.combine)]


def _term(builder: Builder, items: Items, arithmetic: Arithmetic) -> Segment:
    """Return the one term that is left; a lone leaf becomes a sum of one."""
    (segment,) = items
    return segment if segment.item is not None else builder.fold(items, arithmetic)
