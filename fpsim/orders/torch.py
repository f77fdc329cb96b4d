"""The orders of PyTorch's float32 sums.

Sources: ``aten/src/ATen/native/cpu/SumKernel.cpp`` and ``aten/src/ATen/native/TensorIteratorReduce.cpp`` (CPU),
``aten/src/ATen/native/cuda/Reduce.cuh`` (CUDA). Checked bit for bit against PyTorch 2.13 (CPU, x86-64), and against
recorded results of PyTorch 2.11 (CPU, and CUDA 13.0 on an H200).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from fpsim.arithmetic import Arithmetic
from fpsim.orders.base import Order
from fpsim.orders.combinators import Cascade, HalvingFold, lane_sums
from fpsim.orders.named import NamedRule, Terms
from fpsim.programs import Builder, Items, Segment, count_items, split_items

_LANES = 8  # whatever the processor: the sum is not compiled for AVX-512
_GRAIN = 32768  # terms that a thread gets at least
_LEVELS = 4
_MOST_THREADS = 256  # below 512 the partial sums of the threads pass a single level of the cascade


@dataclass(frozen=True, slots=True)
class TorchCpuSum(NamedRule):
    """``torch.sum`` on an x86-64 CPU: 8 lanes, each a cascade over four interleaved parts.

    From 32768 terms on, up to `threads` threads take a run of terms each.
    """

    threads: int = 1
    name: ClassVar[str] = "torch_cpu_sum"
    merges_axes: ClassVar[bool] = True

    def for_outputs(self, outputs: int) -> Self:
        return replace(self, threads=1) if outputs > 1 else self

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        arithmetic = replace(arithmetic, start="+0")
        n = count_items(items)
        parts = min(self.threads, -(-n // _GRAIN))
        if n < _GRAIN or parts == 1:
            return _contiguous(builder, items, arithmetic)
        if self.threads > _MOST_THREADS:
            self.refuse(f"more than {_MOST_THREADS} threads")
        size = -(-n // parts)
        sums: list[Segment] = []
        while items:
            part, items = split_items(items, size)
            sums.append(_contiguous(builder, part, arithmetic))
        return _over_threads(builder, sums, self.threads, arithmetic)


def _contiguous(builder: Builder, items: Items, arithmetic: Arithmetic) -> Segment:
    """Fewer than 8 terms as they are; else vectors of 8, their lanes added one by one after the terms left over."""
    n = count_items(items)
    if n < _LANES:
        return _ROW.build(builder, items, arithmetic)
    body, rest = split_items(items, n - n % _LANES)
    lanes = lane_sums(builder, body, arithmetic, _LANES, _ROW)
    return builder.fold((*rest, *lanes), arithmetic)


@dataclass(frozen=True, slots=True)
class _Row(Order):
    """Four interleaved cascades; the last n mod 4 terms are added to the first, then the others."""

    name: ClassVar[str] = "torch_row_sum"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        n = count_items(items)
        body, rest = split_items(items, n - n % 4)
        if not body:
            return builder.fold(rest, arithmetic)
        size = n // 4
        step = 2 ** max(4, (size - 1).bit_length() // _LEVELS)
        first, others = split_items(lane_sums(builder, body, arithmetic, 4, Cascade(_LEVELS, step)), 1)
        return builder.fold((*first, *rest, *others), replace(arithmetic, start="first"))


_ROW = _Row()


def _over_threads(builder: Builder, sums: list[Segment], threads: int, arithmetic: Arithmetic) -> Segment:
    """Add what the threads give as a row of so many terms; those without work give zeros."""

    def row(places: list[int]) -> list[Segment]:
        whole = len(places) // 4 * 4
        parts = [places[j:whole:4] for j in range(4)]
        parts[0] += places[whole:]
        return add([add([sums[i] for i in part if i < len(sums)]) for part in parts])

    def add(terms: list[list[Segment]] | list[Segment]) -> list[Segment]:
        flat = [term for part in terms for term in (part if isinstance(part, list) else [part])]
        return [builder.fold(flat, arithmetic)] if flat else []

    whole = threads // _LANES * _LANES
    if not whole:
        return row([*range(threads)])[0]
    rest = [sums[i] for i in range(whole, len(sums))]
    return add([rest, *(row([*range(lane, whole, _LANES)]) for lane in range(_LANES))])[0]


_MOST = 512  # threads of a block
_VECTORISED = 128  # terms from which four neighbours are read at once
_VALUES = 4  # accumulators of a thread
_FEW, _MANY = 16, 256  # terms for each thread: at least in each of several blocks; more than that take several
_INDEX = 2**31  # longer sums are cut


@dataclass(frozen=True, slots=True)
class TorchCudaSum(NamedRule):
    """``torch.sum`` on a CUDA GPU: four accumulators a thread, then halves over the threads of a block.

    `shift` is how many elements the first term lies behind a multiple of 16 bytes. More than 130560 terms go to several
    blocks, and then `blocks`, how many of 512 threads the device can run at once, must be given (528 on an H200).
    """

    shift: int = 0
    blocks: int = 0
    name: ClassVar[str] = "torch_cuda_sum"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        terms = Terms(items)
        fold, plain = HalvingFold(), replace(arithmetic, start="first")
        arithmetic = replace(arithmetic, start="+0")
        if terms.n < _VECTORISED:
            threads = _threads(terms.n)
            sums = _single(builder, terms, threads, arithmetic)
            return fold.build(builder, sums, plain, width=threads)
        blocks = self._started(terms.n)
        vectors = _Vectors(builder, terms, arithmetic, _threads(terms.n // _VALUES), blocks, self.shift % _VALUES)
        sums = vectors.sums()
        if blocks > 1:
            # The block that finishes last adds what all have left behind.
            partial = Terms(sums)
            sums = partial.alike(
                min(_MOST, blocks),
                1,
                lambda thread: thread < blocks % _MOST,
                lambda thread: builder.fold(partial.take(thread, blocks, _MOST), arithmetic),
            )
            return fold.build(builder, sums, plain, width=_MOST)
        return builder.fold(sums, plain)

    def _started(self, n: int) -> int:
        """Return the number of blocks that share a sum."""
        each = -(-n // _MOST)
        if each < _MANY:
            return 1
        if self.shift:
            self.refuse(f"{n} terms that do not begin at a multiple of 16 bytes")
        if not self.blocks or n >= _INDEX:
            self.refuse(f"{n} terms without the number of blocks that the device runs at once (blocks=...)")
        return max(min(self.blocks, -(-each // _FEW)), -(-each // _MANY))


@dataclass(frozen=True, slots=True)
class _Vectors:
    """The terms before the first multiple of 16 bytes, then four at a time, then those left over."""

    builder: Builder
    terms: Terms
    arithmetic: Arithmetic
    threads: int
    blocks: int
    shift: int

    def sums(self) -> Items:
        """Return the sums of the blocks."""
        _, vectors, _ = self._parts()
        longer = vectors % (self.blocks * self.threads)

        def shape(block: int) -> object:
            return min(max(longer - block * self.threads, 0), self.threads), block == 0

        return self.terms.alike(self.blocks, _VALUES * self.threads, shape, self._block)

    def _parts(self) -> tuple[int, int, int]:
        """Return the numbers of terms before, of vectors, and of terms after."""
        head = -self.shift % _VALUES
        vectors, rest = divmod(self.terms.n - head, _VALUES)
        return head, vectors, rest

    def _block(self, block: int) -> Segment:
        head, vectors, rest = self._parts()
        every = self.blocks * self.threads

        def special(thread: int) -> bool:
            return block == 0 and (_VALUES - head <= thread < _VALUES or thread < rest)

        def sort(thread: int) -> object:
            return block * self.threads + thread < vectors % every, thread if special(thread) else -1

        def total(thread: int) -> Segment:
            number = block * self.threads + thread
            times = -(-(vectors - number) // every)
            own = [self.terms.take(head + _VALUES * number + value, times, _VALUES * every) for value in range(_VALUES)]
            if special(thread):
                before = self.terms.take(thread - (_VALUES - head), 1) if thread >= _VALUES - head else ()
                after = self.terms.take(self.terms.n - rest + thread, 1) if thread < rest else ()
                own[0] = (*before, *own[0], *after)
            parts = [self.builder.fold(part, self.arithmetic) for part in own if part]
            return self.builder.fold(parts, plain)

        plain = replace(self.arithmetic, start="first")
        threads = self.terms.alike(self.threads, _VALUES, sort, total)
        return HalvingFold().build(self.builder, threads, plain, width=self.threads)


def _threads(n: int) -> int:
    """Return the largest power of two up to n, and up to the size of a block."""
    return min(1 << (n.bit_length() - 1), _MOST)


def _single(builder: Builder, terms: Terms, threads: int, arithmetic: Arithmetic) -> Items:
    """Each thread takes every `threads`-th term, into its four accumulators in turn."""

    def total(thread: int) -> Segment:
        own = terms.take(thread, terms.n, threads)
        parts = lane_sums(builder, own, arithmetic, min(_VALUES, count_items(own)))
        return builder.fold(parts, replace(arithmetic, start="first"))

    return terms.alike(threads, 1, lambda thread: thread < terms.n % threads, total)
