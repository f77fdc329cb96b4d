"""The orders of CUB's sums of float32, which CuPy's sums over whole arrays and rows, and Thrust's, call.

Sources: ``agent_reduce.cuh``, ``agent_warp_reduce``, ``tuning_reduce.cuh``, ``thread_reduce.cuh``,
``grid_even_share.cuh`` of CCCL, with the policy of compute capabilities 6.0 to 9.0. Checked bit for bit against recorded
results of CuPy 14.2 on an H200.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from fpsim.arithmetic import Arithmetic
from fpsim.orders.base import Order, Part, Reduction, Serial
from fpsim.orders.combinators import Chunks, Lanes, Pairwise
from fpsim.orders.named import NamedRule, Terms
from fpsim.programs import Builder, Items, Segment

_THREADS, _ITEMS, _VECTOR, _WARP = 256, 16, 4, 32
_TILE = _THREADS * _ITEMS
_WARP_TILE = _WARP * _ITEMS  # up to which a warp has a segment to itself; a thread has those up to _ITEMS
#: The smallest device runs one block at a time, and five are started for each that can run.
_FEWEST_BLOCKS = 5
#: A warp adds neighbours; the warps of a block are added one by one.
_BLOCK = Chunks(_WARP, Pairwise(), combine=Serial())


@dataclass(frozen=True, slots=True)
class CubSum(NamedRule):
    """CUB's sum, as in ``cupy.sum`` of a whole array: tiles of 4096 terms go round the blocks, then one block adds up.

    `blocks` is the most that are started: five times the number of blocks of 256 threads that the device can run at
    once (5280 on an H200). It must be given where it matters, from 6 tiles on. ``loads=single`` is for terms that do not
    begin at a multiple of 16 bytes. ``thread=sequential`` is what CCCL did up to version 2.7: a thread added its terms
    one by one.
    """

    blocks: int = 0
    loads: str = "vector"
    thread: str = "tree"
    name: ClassVar[str] = "cub_sum"
    choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "loads": ("vector", "single"),
        "thread": ("tree", "sequential"),
    }

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        own = replace(arithmetic, start="first")
        terms = Terms(items)
        tiles = -(-terms.n // _TILE)
        blocks = min(tiles, self.blocks or _FEWEST_BLOCKS)
        if tiles > blocks and not self.blocks:
            self.refuse(f"{terms.n} terms without the number of blocks that the device starts (blocks=...)")

        def shape(block: int) -> object:
            return (tiles - 1 - block) // blocks, block == (tiles - 1) % blocks

        sums = terms.alike(blocks, _TILE, shape, lambda block: self._block(builder, terms, block, blocks, own))
        if blocks > 1:
            partial = Terms(sums)
            sums = (replace(self, loads="vector")._block(builder, partial, 0, 1, own),)
        return builder.fold(sums, arithmetic, start="+0")

    def _block(self, builder: Builder, terms: Terms, block: int, blocks: int, arithmetic: Arithmetic) -> Segment:
        """Return the sum of the tiles block, block + blocks, ..."""
        starts = range(block * _TILE, terms.n, blocks * _TILE)
        full = [start for start in starts if start + _TILE <= terms.n]
        last = starts[-1]
        rest = terms.n - last if last not in full[-1:] else 0
        step = _VECTOR if full and self.loads == "vector" else 1

        def total(thread: int) -> Segment:
            so_far: Items = ()
            for start in full:
                so_far = (self._add(builder, (*so_far, *self._tile(terms, start, thread)), arithmetic),)
            more = terms.take(last + thread, -(-(rest - thread) // _THREADS), _THREADS) if rest else ()
            return builder.fold((*so_far, *more), arithmetic)

        def shape(thread: int) -> object:
            # What is left over lies at another distance from the full tiles for each thread.
            apart = thread if full and step > 1 and thread < rest else -1
            return max(0, -(-(rest - thread) // _THREADS)), apart

        threads = terms.alike(_THREADS if full else min(rest, _THREADS), step, shape, total)
        return _BLOCK.build(builder, threads, arithmetic)

    def _tile(self, terms: Terms, start: int, thread: int) -> Items:
        """Return the terms of a full tile that a thread takes."""
        if self.loads == "single":
            return terms.take(start + thread, _ITEMS, _THREADS)
        firsts = [start + (row * _THREADS + thread) * _VECTOR for row in range(_ITEMS // _VECTOR)]
        return tuple(part for first in firsts for part in terms.take(first, _VECTOR))

    def _add(self, builder: Builder, items: Items, arithmetic: Arithmetic) -> Segment:
        order = Pairwise() if self.thread == "tree" else Serial()
        return order.build(builder, items, arithmetic)


@dataclass(frozen=True, slots=True)
class CubSegmentedSum(NamedRule):
    """CUB's ``DeviceSegmentedReduce::Sum`` over segments of one size, as in ``cupy.sum`` over the last axis.

    Up to 16 terms are the business of a thread, up to 512 of a warp, and more of a block, which is ``cub_sum`` with one
    block. ``loads=single`` is for long segments that do not begin at a multiple of 16 bytes; in the rows of a matrix
    that does, each row finds this out by itself.
    """

    loads: str = "vector"
    name: ClassVar[str] = "cub_segmented_sum"
    choices: ClassVar[dict[str, tuple[str, ...]]] = {"loads": ("vector", "single")}

    def layout(self, case: Reduction) -> tuple[tuple[int, ...], list[Part]]:
        axes, _ = NamedRule.layout(replace(self), replace(case, shape=self._one(case), strides=case.strides))
        if len(case.shape) > 2:
            self.refuse("arrays of more than two dimensions")
        count, outputs = case.n, case.outputs
        if self.loads != "vector" or count < _TILE or count % _VECTOR == 0:
            return axes, [Part(self)]
        period = _VECTOR // math.gcd(count, _VECTOR)
        aligned = range(0, outputs, period)
        others = tuple(row for row in range(outputs) if row % period)
        parts = [Part(self, columns=aligned), Part(replace(self, loads="single"), columns=others)]
        return axes, [part for part in parts if part.columns]

    @staticmethod
    def _one(case: Reduction) -> tuple[int, ...]:
        """Return the shape with a single output."""
        return tuple(size if axis in case.axes else 1 for axis, size in enumerate(case.shape))

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        n = sum(segment.size for segment in items)
        if n > _WARP_TILE:
            return CubSum(blocks=1, loads=self.loads).build(builder, items, arithmetic, width=width)
        own = replace(arithmetic, start="first")
        order: Order = Serial() if n < _ITEMS else Pairwise() if n == _ITEMS else Lanes(_WARP, combine=Pairwise())
        if n == _WARP_TILE:
            # Each lane takes four neighbours at a time, and adds its 16 terms in pairs.
            terms = Terms(items)
            lanes = terms.alike(
                _WARP,
                _VECTOR,
                lambda _: 0,
                lambda lane: Pairwise().build(
                    builder,
                    tuple(
                        part
                        for row in range(_ITEMS // _VECTOR)
                        for part in terms.take((row * _WARP + lane) * _VECTOR, _VECTOR)
                    ),
                    own,
                ),
            )
            return builder.fold([Pairwise().build(builder, lanes, own)], arithmetic, start="+0")
        return builder.fold([order.build(builder, items, own)], arithmetic, start="+0")
