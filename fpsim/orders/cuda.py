"""The order of a reduction kernel, stated by its launch geometry.

Every kernel that adds in blocks of threads is covered: which terms a thread takes, how the threads of a block are
added, and how the blocks are. Checked against a simulation thread by thread, and on an H200 with numba-cuda 0.30.4 by
the kernels in ``fpsim/devices/_cuda_kernels.py``, each of which realises such an order: equal bits on 223 sizes.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from fpsim.arithmetic import Arithmetic
from fpsim.errors import StrategyError
from fpsim.orders.base import Order, Serial
from fpsim.orders.combinators import HalvingFold, blocks
from fpsim.orders.named import Terms
from fpsim.programs import Builder, Items, Segment, flat

_FOLD = HalvingFold()
_WARP = 32
_MOST = 1024  # threads of a block


@dataclass(frozen=True, slots=True)
class CudaReduce(Order):
    """A reduction kernel that is launched with `grid` blocks of `block` threads.

    A tile is what a block takes at a time: `items` vectors for each thread, of `vector` neighbouring terms. Block b
    takes the tiles b, b + grid, ... until no term is left. A thread adds its terms in turn to its accumulators, which
    start from +0 and are added from left to right. Threads, blocks and accumulators without a term hold +0.

    Attributes
    ----------
    grid, block : int
        The launch: how many blocks, and how many threads in each, at most 1024.
    items : int
        Vectors of a thread in a tile.
    vector : int
        Neighbouring terms that are read at once, 4 for a ``float4``.
    accumulators : int
        Of a thread; its term number j goes to accumulator j mod `accumulators`. As many as `vector` by default. Must
        divide the terms of a thread in a tile.
    index : {"strided", "blocked"}
        Vectors of a thread in a tile: every `block`-th one, or neighbours.
    warp : Order, optional
        How the 32 threads of a warp are added: ``fold`` for shuffles over 16, 8, 4, 2, 1 threads, ``pairwise`` for
        shuffles over 1, 2, 4, 8, 16, in either direction. By default the block has no warps.
    combine : Order
        How the threads of a block are added, or its warps, which then stand in 32 places, as for a warp that shuffles.
    second : Order, optional
        How the blocks are added to +0. By default by the same kernel with one block. ``serial`` is one thread, or
        atomic additions in the sequence of the blocks; ``shuffle(seed)`` atomic additions in a random sequence, of
        the blocks that have terms.

    Raises
    ------
    StrategyError
        No such kernel can be launched.
    """

    grid: int
    block: int
    items: int = 1
    vector: int = 1
    accumulators: int = 0
    index: str = "strided"
    warp: Order | None = None
    combine: Order = _FOLD
    second: Order | None = None
    name: ClassVar[str] = "cuda_reduce"

    def __post_init__(self) -> None:
        for field, least in (("grid", 1), ("block", 1), ("items", 1), ("vector", 1), ("accumulators", 0)):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                message = f"cuda_reduce: {field} must be a whole number of at least {least}, not {value!r}"
                raise StrategyError(message)
        if self.block > _MOST:
            message = f"cuda_reduce: a block has at most {_MOST} threads, not {self.block}"
            raise StrategyError(message)
        if self.index not in ("strided", "blocked"):
            message = f"cuda_reduce: index={self.index} is not one of strided, blocked"
            raise StrategyError(message)
        if self.warp is not None and self.block % _WARP:
            message = f"cuda_reduce: block must be a multiple of {_WARP} where warps are added, not {self.block}"
            raise StrategyError(message)
        if self._per_tile % self._accumulators:
            message = (
                f"cuda_reduce: accumulators must divide items * vector = {self._per_tile}, "
                f"the terms of a thread in a tile, which {self.accumulators} does not"
            )
            raise StrategyError(message)

    @property
    def _accumulators(self) -> int:
        return self.accumulators or self.vector

    @property
    def _per_tile(self) -> int:
        return self.items * self.vector

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        terms, plain = _Tiled(items), dataclasses.replace(arithmetic, start="first")
        tile = self.block * self._per_tile
        full, rest = divmod(terms.n, tile)

        def tiles(number: int) -> tuple[int, int]:
            """Return how many full tiles a block has, and how many terms in the last one."""
            return -(-(full - number) // self.grid), rest if full % self.grid == number else 0

        def one(number: int) -> Segment:
            times, last = tiles(number)
            threads = self._threads(builder, terms, number * tile, times, last, arithmetic)
            return self._added(builder, threads, plain)

        started = min(self.grid, full + (rest > 0))
        total = self._blocks(builder, terms.alike(started, tile, tiles, one), plain)
        zero = self.grid > 1 or self._last_first >= terms.n or self._has_empty_places
        return builder.fold([total], arithmetic, start="+0") if zero else total

    @property
    def _last_first(self) -> int:
        """Return which term is the first one of the last accumulator."""
        tile = self.block * self._per_tile
        return (self.grid - 1) * tile + self._offset(self.block - 1, self._accumulators - 1)

    @property
    def _has_empty_places(self) -> bool:
        return self.warp is not None and self.block < _MOST and self.combine != Serial()

    def _offset(self, thread: int, item: int) -> int:
        """Return where in a tile a thread finds its term of that number."""
        vector, place = divmod(item, self.vector)
        number = vector * self.block + thread if self.index == "strided" else thread * self.items + vector
        return number * self.vector + place

    def _threads(
        self, builder: Builder, terms: _Tiled, first: int, times: int, last: int, arithmetic: Arithmetic
    ) -> Items:
        """Return the sums of the threads of a block with `times` full tiles and then one of `last` terms."""
        row = self.block * self.vector

        def left(thread: int) -> int:
            """Return how many terms of the last tile a thread takes."""
            if self.index == "blocked":
                return min(max(last - thread * self._per_tile, 0), self._per_tile)
            return last // row * self.vector + min(max(last % row - thread * self.vector, 0), self.vector)

        def total(thread: int) -> Segment:
            offsets = [self._offset(thread, item) for item in range(self._per_tile)]
            k = self._accumulators
            sums = []
            for place in range(k):
                own = terms.tiles(first, offsets[place::k], times, self.grid * row * self.items)
                start = first + times * self.grid * row * self.items
                own = (*own, *terms.tiles(start, offsets[place : left(thread) : k], 1, 0))
                if own:
                    sums.append(builder.fold(own, arithmetic, start="+0"))
            return builder.fold(sums, dataclasses.replace(arithmetic, start="first"))

        step = self.vector if self.index == "strided" else self._per_tile
        working = self.block if times else min(self.block, -(-last // step))
        return terms.alike(working, step, left, total)

    def _added(self, builder: Builder, threads: Items, arithmetic: Arithmetic) -> Segment:
        """Return the sum of the threads of a block."""
        if self.warp is None:
            return self.combine.build(builder, threads, arithmetic, width=self.block)
        warps = blocks(builder, threads, arithmetic, _WARP, _InWarp(self.warp))
        return self.combine.build(builder, warps, arithmetic, width=_WARP)

    def _blocks(self, builder: Builder, sums: Items, arithmetic: Arithmetic) -> Segment:
        """Return the sum of the blocks."""
        if self.grid == 1:
            (total,) = sums
            return total
        second = dataclasses.replace(self, grid=1) if self.second is None else self.second
        return second.build(builder, sums, arithmetic, width=self.grid)

    def arguments(self) -> list[str]:
        given = []
        for field in dataclasses.fields(self)[2:]:
            value = getattr(self, field.name)
            if value != field.default:
                given.append(f"{field.name}={value}")
        return [str(self.grid), str(self.block), *given]


@dataclass(frozen=True, slots=True)
class _InWarp(Order):
    """An order over the threads of a warp, those without a term at its end."""

    order: Order
    name: ClassVar[str] = ""

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        return self.order.build(builder, items, arithmetic, width=_WARP)


class _Tiled(Terms):
    """Terms by their places in tiles."""

    def tiles(self, first: int, offsets: list[int], times: int, period: int) -> Items:
        """Return the terms at these offsets from `first`, then from `first` + `period`, and so on."""
        runs = _progressions(offsets) if times else []
        if len(runs) == 1 and self._row is not None:
            offset, count, step = runs[0]
            row, place = self._row, first + offset
            base, stride = row.base + place * row.stride, step * row.stride
            return (flat(Segment(base, count, stride, times, period * row.stride, row.item)),)
        starts = [first + number * period for number in range(times)]
        return tuple(
            segment
            for start in starts
            for offset, count, step in runs
            for segment in self.take(start + offset, count, step)
        )


def _progressions(numbers: list[int]) -> list[tuple[int, int, int]]:
    """Return the first number, length and step of the arithmetic progressions that make up rising numbers."""
    out: list[tuple[int, int, int]] = []
    for number in numbers:
        if out:
            first, count, step = out[-1]
            if count == 1 or number == first + count * step:
                out[-1] = (first, count + 1, number - first if count == 1 else step)
                continue
        out.append((number, 1, 1))
    return out
