"""The orders of XLA's float32 sums and products on the CPU, as JAX runs them.

XLA's threads flush subnormals, those of operands too. Short sums follow the passes that rewrite a reduction into windows
(``tree_reduction_rewriter.cc``), as seen in the compiled module; long ones are given to the library YNNPACK. Found by
probing, and checked bit for bit against JAX 0.10.2 and 0.11.2 (x86-64 with AVX-512: AMD EPYC, and all but sums over the
first axis of 4096 elements and more on an Intel Xeon).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from fpsim.arithmetic import Arithmetic, Settings
from fpsim.formats import Format
from fpsim.orders.base import SERIAL, Order, Part, Product, Reduction
from fpsim.orders.combinators import Chunks, HalvingFold, blocks, lane_sums
from fpsim.orders.named import NamedRule
from fpsim.programs import Builder, Items, Segment, count_items, split_items

_WINDOW = 32
_LIBRARY = 4096  # elements from which the sum goes to YNNPACK
_SHARE = 32768  # terms that YNNPACK gives to a thread
_LANES = 16
_BLOCK, _SIXTEEN = 64, 16  # vectors that are added in nested groups of four
_NEST_16 = Chunks(4)
_NEST_64 = Chunks(_SIXTEEN, _NEST_16)
_ROWS = 256  # rows of a block in a sum over the first axis
_FLUSHING = Settings(ftz=True, daz=True)


@dataclass(frozen=True, slots=True)
class XlaCpuSum(NamedRule):
    """``jnp.sum`` on the CPU: of fewer than 4096 elements in windows, of more by YNNPACK.

    Windows have 32 terms, centred; their sums go into windows of 32, and so on. YNNPACK has 16 lanes, each a Kahan sum
    over blocks of 64 terms that are added in groups of four; a sum over the first axis of a matrix has one lane, with
    blocks of 256. Where XLA has several `threads`, more than 32768 elements are cut into such runs; JAX 0.11, and the
    dot product in 0.10 too, do so with one thread. A run over the first axis has as many ``rows`` as fit into 32768
    elements (JAX 0.10), or as many ``blocks`` of 256 rows, at least one (JAX 0.11). A single column is a vector.
    """

    threads: int = 1
    runs: str = "rows"
    name: ClassVar[str] = "xla_cpu_sum"
    own: ClassVar[Settings] = _FLUSHING
    choices: ClassVar[dict[str, tuple[str, ...]]] = {"runs": ("rows", "blocks")}

    def layout(self, case: Reduction) -> tuple[tuple[int, ...], list[Part]]:
        # JAX copies what it is given into C order, so strides do not matter.
        if len(case.shape) > 2 or sum(case.shape[axis] != 1 for axis in case.axes) > 1:
            self.refuse("sums over several axes or of arrays of more than two dimensions")
        if math.prod(case.shape) < _LIBRARY:
            return case.axes, [Part(_Windows())]
        newer = self.runs == "blocks"
        if case.n <= 1 or case.axes[-1] == len(case.shape) - 1 or case.outputs == 1:
            return case.axes, [Part(_Library(self.threads))]
        share = _SHARE // case.outputs if self.threads > 1 else 0
        if self.threads > 1 and newer:
            share = max(share // _ROWS, 1) * _ROWS
        if self.threads > 1 and share < 2:
            self.refuse(f"sums over the first axis of more than {_SHARE // 2} columns, by several threads")
        return case.axes, [Part(_Columns(share))]

    def product(self, shape: Product) -> list[Part]:
        if shape.m != 1 or shape.n != 1:
            self.refuse("products of matrices")
        return [Part(self)]

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        order = _Windows() if count_items(items) < _LIBRARY else _Library(self.threads)
        return order.build(builder, items, arithmetic, width=width)


@dataclass(frozen=True, slots=True)
class XlaCpuProd(NamedRule):
    """``jnp.prod`` of a whole 1-D array on the CPU: windows of 32, centred, their products in windows, and so on."""

    name: ClassVar[str] = "xla_cpu_prod"
    own: ClassVar[Settings] = _FLUSHING

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        return _Windows().build(builder, items, arithmetic, width=width)


@dataclass(frozen=True, slots=True)
class _Flushing(Order):
    """A part of the rule, with its settings."""

    name: ClassVar[str] = ""

    def defaults(self, data: Format | None) -> Settings:
        del data
        return _FLUSHING


@dataclass(frozen=True, slots=True)
class _Windows(_Flushing):
    """Windows of 32 terms, from +0, while there are more than that."""

    name: ClassVar[str] = "xla_windows"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        arithmetic = replace(arithmetic, start="+0")
        n = count_items(items)
        while n > _WINDOW:
            # Zeros fill the windows up, half of them before the first term.
            zeros = -n % _WINDOW // 2
            first, rest = split_items(items, _WINDOW - zeros)
            items = (builder.fold(first, arithmetic), *blocks(builder, rest, arithmetic, _WINDOW, SERIAL))
            n = count_items(items)
        return builder.fold(items, arithmetic)


@dataclass(frozen=True, slots=True)
class _Library(_Flushing):
    """YNNPACK's sum; where there are several threads, of the sums of runs of 32768 terms."""

    threads: int = 1
    name: ClassVar[str] = "ynnpack_sum"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        arithmetic = replace(arithmetic, start="first")
        while self.threads > 1 and count_items(items) > _SHARE:
            items = blocks(builder, items, arithmetic, _SHARE, _Library())
        lanes = lane_sums(builder, items, arithmetic, _LANES, _Lane(count_items(items) // _LANES))
        return builder.fold([HalvingFold().build(builder, lanes, arithmetic, width=_LANES)], arithmetic, start="+0")


@dataclass(frozen=True, slots=True)
class _Lane(Order):
    """One lane of vectors, `full` of which are whole: a Kahan sum over the blocks.

    What is left over after the blocks enters by ``s + (rest - c)``. An empty sum stands for it if nothing is left: so
    the last correction is subtracted in either case, and the one after it dropped.
    """

    full: int
    name: ClassVar[str] = "ynnpack_lane"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        head, tail = split_items(items, self.full // _BLOCK * _BLOCK)
        terms: Items = ()
        rest: Items = ()
        if head:
            terms = blocks(builder, head, arithmetic, _BLOCK, _NEST_64)
        left = self.full % _BLOCK
        for size, nest in ((_SIXTEEN, _NEST_16), (4, SERIAL)):
            part, tail = split_items(tail, left // size * size)
            left %= size
            if part:
                rest = (*rest, *blocks(builder, part, arithmetic, size, nest))
        if tail:
            rest = (*rest, builder.fold(tail, arithmetic))
        last = builder.fold(rest, arithmetic, start=None if rest else "+0")
        if not head:
            return last
        return builder.fold((*terms, last.moved(0 if rest else terms[0].base)), _kahan(arithmetic))


@dataclass(frozen=True, slots=True)
class _Columns(_Flushing):
    """A sum over the first axis: a Kahan sum over blocks of 256 rows, which are added in sixteens; the rest in fours.

    Where there are several threads, runs of `share` rows come first, and then the sum of their sums.
    """

    share: int = 0
    name: ClassVar[str] = "ynnpack_columns"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        arithmetic = replace(arithmetic, start="first")
        while self.share and count_items(items) > self.share:
            items = blocks(builder, items, arithmetic, self.share, _Columns())
        n = count_items(items)
        head, tail = split_items(items, n - n % _ROWS)
        terms = blocks(builder, head, arithmetic, _ROWS, _NEST_64) if head else ()
        sixteens, tail = split_items(tail, n % _ROWS // _SIXTEEN * _SIXTEEN)
        rest = blocks(builder, sixteens, arithmetic, _SIXTEEN, _NEST_16) if sixteens else ()
        if tail:
            rest = (*rest, _NEST_16.build(builder, tail, arithmetic))
        last = builder.fold(rest, arithmetic, start=None if rest else "+0")
        if terms:
            last = builder.fold((*terms, last.moved(0 if rest else terms[0].base)), _kahan(arithmetic))
        return builder.fold([last], arithmetic, start="+0")


def _kahan(arithmetic: Arithmetic) -> Arithmetic:
    return replace(arithmetic, compensation="kahan", start="+0")
