"""The orders of PyTorch's float32 sums on CUDA GPUs.

Source: ``aten/src/ATen/native/cuda/Reduce.cuh``. Checked bit for bit against recorded results of PyTorch 2.11 with
CUDA 13.0 on an H200; PyTorch 2.13 has the same source.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from fpsim.arithmetic import Arithmetic
from fpsim.orders.base import Order, Part, Reduction
from fpsim.orders.combinators import HalvingFold, lane_sums
from fpsim.orders.named import NamedRule, Terms
from fpsim.programs import Builder, Items, Segment, count_items

_MOST = 512  # threads of a block
_WARP = 32
_VECTORISED = 128  # terms from which four neighbours are read at once
_VALUES = 4  # accumulators of a thread
_FEW, _MANY = 16, 256  # terms for each thread: at least in each of several blocks; more than that take several
_INDEX = 2**31  # larger arrays are cut
_FOLD = HalvingFold()


@dataclass(frozen=True, slots=True)
class TorchCudaSum(NamedRule):
    """``torch.sum`` on a CUDA GPU: four accumulators a thread, then halves over the threads of a block.

    `shift` is how many elements the first term lies behind a multiple of 16 bytes. Sums that are shared by several
    blocks (more than 130560 terms, for a whole array) need `blocks`, how many of 512 threads the device can run at
    once (528 on an H200). With FMA it is the sum of squares in ``torch.linalg.vector_norm``, and with `reciprocal`
    ``torch.mean``.
    """

    shift: int = 0
    blocks: int = 0
    name: ClassVar[str] = "torch_cuda_sum"
    merges_axes: ClassVar[bool] = True

    def layout(self, case: Reduction) -> tuple[tuple[int, ...], list[Part]]:
        shape = case.shape
        if case.outputs <= 1 or case.n <= 1:
            return NamedRule.layout(replace(self), case) if case.n > 1 else (case.axes, [Part(self)])
        if len(shape) != 2 or case.strides != (shape[1] * 4, 4) or case.buffered or math.prod(shape) >= _INDEX:
            self.refuse("several sums at a time but over an axis of a contiguous matrix")
        if self.shift:
            self.refuse("several sums at a time that do not begin at a multiple of 16 bytes")
        rows, columns = shape
        if case.axes == (0,):
            return case.axes, [Part(self._launch(rows, columns, across=True))]
        launch = self._launch(columns, rows)
        if not launch.vectors or columns % _VALUES == 0:
            return case.axes, [Part(launch)]
        period = _VALUES // math.gcd(columns, _VALUES)
        parts = [
            Part(replace(launch, shift=row * columns % _VALUES), columns=range(row, rows, period))
            for row in range(min(period, rows))
        ]
        return case.axes, parts

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        n = count_items(items)
        if n >= _INDEX:
            self.refuse(f"{n} terms")
        launch = replace(self._launch(n, 1), shift=self.shift % _VALUES)
        if self.shift and launch.blocks > 1:
            self.refuse(f"{n} terms that do not begin at a multiple of 16 bytes")
        return launch.build(builder, items, arithmetic, width=width)

    def _launch(self, inputs: int, outputs: int, *, across: bool = False) -> _Launch:
        """Return how sums are shared out; `across` when neighbours in memory belong to different sums."""
        vectors = not across and inputs >= _VECTORISED
        together = math.gcd(outputs, _VALUES) if across else 1  # sums that a thread computes
        wide = outputs // together if across else inputs // _VALUES if vectors else inputs
        most = _MOST // together
        x, y = (min(_floor(size), most) for size in (wide, inputs if across else outputs))
        width = min(x, _WARP)
        height = min(y, most // width)
        width = min(x, most // height)
        lanes = 1 if across else width  # threads beside each other that share a sum
        each = -(-inputs // lanes)
        split = each >= min(height * _FEW, _MANY)
        at_once = (width if across else 1) * (1 if split else height)
        share = height if split else 1
        each = -(-inputs // (lanes * share))
        blocks = 1
        if split and each >= _MANY:
            blocks = self._started(inputs, each, -(-(outputs // together) // at_once), width * height)
        return _Launch(lanes, share, blocks, vectors)

    def _started(self, n: int, each: int, grid: int, threads: int) -> int:
        """Return the number of blocks that share a sum."""
        if not self.blocks:
            self.refuse(f"{n} terms without the number of blocks that the device runs at once (blocks=...)")
        device = self.blocks * _MOST // threads
        if grid > device:
            return 1
        return max(min(-(-device // grid), -(-each // _FEW)), -(-each // _MANY))


@dataclass(frozen=True, slots=True)
class _Launch(Order):
    """A sum by `blocks` of `width` x `height` threads; four terms are read at a time if `vectors`."""

    width: int
    height: int
    blocks: int
    vectors: bool
    shift: int = 0
    name: ClassVar[str] = "torch_cuda_launch"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        terms = Terms(items)
        plain, arithmetic = replace(arithmetic, start="first"), replace(arithmetic, start="+0")
        threads = self.width * self.height
        if self.vectors:
            sums = _Vectors(builder, terms, arithmetic, self).sums()
        else:
            sums = terms.alike(
                self.blocks,
                threads,
                lambda block: min(max(terms.n % (self.blocks * threads) - block * threads, 0), threads),
                lambda block: self._block(builder, _strided(builder, terms, block, self, arithmetic), plain),
            )
        if self.blocks == 1:
            return builder.fold(sums, plain)
        # The block that finishes last adds what all have left behind.
        partial = Terms(sums)
        sums = partial.alike(
            min(threads, self.blocks),
            1,
            lambda thread: thread < self.blocks % threads,
            lambda thread: builder.fold(partial.take(thread, self.blocks, threads), arithmetic),
        )
        # Halves of the threads above each other, then beside each other: the same as halves of all.
        return _FOLD.build(builder, sums, plain, width=threads)

    def _block(self, builder: Builder, threads: Items, plain: Arithmetic) -> Segment:
        """Return the sum of a block: over the threads beside each other, then over those above each other."""
        if self.height == 1 or self.width == 1:
            return _FOLD.build(builder, threads, plain, width=self.width * self.height)
        own = Terms(threads)
        rows = own.alike(
            -(-own.n // self.width),
            self.width,
            lambda row: row,
            lambda row: _FOLD.build(builder, own.take(row * self.width, self.width), plain, width=self.width),
        )
        return _FOLD.build(builder, rows, plain, width=self.height)


@dataclass(frozen=True, slots=True)
class _Vectors:
    """The terms before the first multiple of 16 bytes, then four at a time, then those left over."""

    builder: Builder
    terms: Terms
    arithmetic: Arithmetic
    launch: _Launch

    def sums(self) -> Items:
        """Return the sums of the blocks."""
        _, vectors, _ = self._parts()
        threads = self.launch.width * self.launch.height
        longer = vectors % (self.launch.blocks * threads)

        def shape(block: int) -> object:
            return min(max(longer - block * threads, 0), threads), block == 0

        return self.terms.alike(self.launch.blocks, _VALUES * threads, shape, self._block)

    def _parts(self) -> tuple[int, int, int]:
        """Return the numbers of terms before, of vectors, and of terms after."""
        head = -self.launch.shift % _VALUES
        vectors, rest = divmod(self.terms.n - head, _VALUES)
        return head, vectors, rest

    def _block(self, block: int) -> Segment:
        head, vectors, rest = self._parts()
        threads = self.launch.width * self.launch.height
        every = self.launch.blocks * threads

        def special(thread: int) -> bool:
            return block == 0 and (_VALUES - head <= thread < _VALUES or thread < rest)

        def sort(thread: int) -> object:
            return block * threads + thread < vectors % every, thread if special(thread) else -1

        def total(thread: int) -> Segment:
            number = block * threads + thread
            times = -(-(vectors - number) // every)
            own = [self.terms.take(head + _VALUES * number + value, times, _VALUES * every) for value in range(_VALUES)]
            if special(thread):
                before = self.terms.take(thread - (_VALUES - head), 1) if thread >= _VALUES - head else ()
                after = self.terms.take(self.terms.n - rest + thread, 1) if thread < rest else ()
                own[0] = (*before, *own[0], *after)
            parts = [self.builder.fold(part, self.arithmetic) for part in own if part]
            return self.builder.fold(parts, plain)

        plain = replace(self.arithmetic, start="first")
        sums = self.terms.alike(threads, _VALUES, sort, total)
        return self.launch._block(self.builder, sums, plain)


def _floor(n: int) -> int:
    """Return the largest power of two up to n."""
    return 1 << (n.bit_length() - 1)


def _strided(builder: Builder, terms: Terms, block: int, launch: _Launch, arithmetic: Arithmetic) -> Items:
    """Each thread takes every so many terms, into its four accumulators in turn."""
    threads = launch.width * launch.height
    every = launch.blocks * threads
    first = block * threads

    def total(thread: int) -> Segment:
        own = terms.take(first + thread, terms.n, every)
        parts = lane_sums(builder, own, arithmetic, min(_VALUES, count_items(own)))
        return builder.fold(parts, replace(arithmetic, start="first"))

    return terms.alike(min(threads, terms.n - first), 1, lambda thread: first + thread < terms.n % every, total)
