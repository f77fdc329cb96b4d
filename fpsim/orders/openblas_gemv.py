"""The orders of OpenBLAS's float32 and float64 matrix-vector products on x86-64.

Sources: OpenBLAS ``interface/gemv.c``, ``driver/level2/gemv_thread.c``, and in ``kernel/x86_64`` ``sgemv_t_4.c``,
``sgemv_n_4.c``, ``dgemv_t_4.c`` and ``dgemv_n_4.c`` with the kernels that they include for HASWELL and SKYLAKEX.
Checked bit for bit against NumPy 2.4 with OpenBLAS 0.3.31 and NumPy 2.5 with 0.3.34 on 1 to 64 threads.

The compilers fuse a product with an addition of the same C expression in the SKYLAKEX kernels, ``a*b + c*d`` to
``fma(a, b, c*d)``, and in the HASWELL kernels only in that for rows of float64 (`contracted` below).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fpsim.arithmetic import Arithmetic, Settings
from fpsim.orders.base import SERIAL, Configured, Order, Scattered
from fpsim.orders.combinators import Chunks, HalvingFold, Lanes, Pairwise, Split, blocks
from fpsim.orders.explicit import Tree
from fpsim.orders.permutations import Reverse
from fpsim.programs import Builder, Items, Segment, count_items, joined, split_items

_THREADED = 460_800  # elements of the matrix from which threads share the work
_COLUMNS = 4096  # columns of float32 that are computed in one go
_FMA = Settings(fma=True, start="+0")
_ROUNDED = Settings(fma=False, start="+0")
_SERIAL = Configured(Split(1), _FMA)  # the sum is added to zero: a -0 from an underflow does not stay
_ADDED = Configured(SERIAL, _ROUNDED)
_PAIRWISE = Configured(Pairwise(), _ROUNDED)
_SECOND_FIRST = Configured(Split(1, Tree("1 0 2")), _FMA)
#: Versions whose compiler (GCC, not Clang) also fuses products and additions that are written as intrinsics.
_FUSED_INTRINSICS = ("0.3.34",)
#: SKYLAKEX: most outputs that the kernels for few terms take, and most terms of those for rows and for columns.
_FEW_OUTPUTS, _FEW_IN_ROWS, _FEW_IN_COLUMNS = 16_384, 8, 48
Outputs = list[tuple[Order, range]]


def rows_by_vector(rows: int, terms: int, *, core: str, version: str, threads: int, double: bool) -> Outputs:
    """Return which order computes which outputs where the terms of a row lie side by side (``gemv_t``)."""
    out: Outputs = []
    for part in _shares(rows, terms, threads):
        if not double and _is_few(part, terms, core, _FEW_IN_ROWS):
            out += _few_terms(part, terms, version)
        else:
            out += _rows(part, core, double)
    return [(order, places) for order, places in out if places]


def columns_by_vector(columns: int, terms: int, *, core: str, threads: int, double: bool) -> Outputs:
    """Return which order computes which outputs where the outputs of a term lie side by side (``gemv_n``)."""
    shares = _shares(columns, terms, threads)
    if columns * terms >= _THREADED and len(shares) < threads and columns * threads <= 1024:
        # Too few outputs for all threads: each takes a share of the terms, many more than those of the small kernels.
        sizes = tuple(len(share) for share in _split(terms, threads))
        orders = _columns(range(columns), sizes[0], columns, core, double)
        return [(Configured(Chunks(sizes, order), _FMA), places) for order, places in orders if places]
    out: Outputs = []
    for part in shares:
        out += _columns(part, terms, columns, core, double)
    return [(order, places) for order, places in out if places]


def _shares(outputs: int, terms: int, threads: int) -> list[range]:
    """Return the outputs of each thread."""
    return _split(outputs, threads if outputs * terms >= _THREADED else 1)


def _split(count: int, threads: int) -> list[range]:
    out: list[range] = []
    first = 0
    while first < count:
        width = max(-(-(count - first) // (threads - len(out))), 4)
        out.append(range(first, min(first + width, count)))
        first += width
    return out


def _is_few(part: range, terms: int, core: str, most: int) -> bool:
    return core == "skylakex" and len(part) <= _FEW_OUTPUTS and terms <= most


def _few_terms(part: range, terms: int, version: str) -> Outputs:
    """SKYLAKEX has a kernel for rows of 2, of 3, ... of 8 terms; each takes groups of so many rows, then of so many."""
    fused = version in _FUSED_INTRINSICS
    kernels: dict[int, tuple[tuple[int, Order], ...]] = {
        2: ((16, _SERIAL), (1, _ADDED)),
        3: ((8, _SERIAL), (4, _SECOND_FIRST), (2, _ADDED), (1, _SECOND_FIRST)),
        4: ((2, _PAIRWISE), (1, _ADDED)),
        5: ((4, _SERIAL), (1, _ADDED)),
        6: ((8, _SERIAL), (4, _Quarters(((0,), (3,), (1, 2), (4, 5)), fused)), (1, _ADDED)),
        7: ((8, _SERIAL), (4, _Quarters(((0, 1), (2, 3), (4, 5), (6,)), fused)), (1, _ADDED)),
        8: (
            (4, _PAIRWISE),
            (2, Configured(Tree("((0 1) (4 5)) ((2 3) (6 7))"), _ROUNDED)),
            (1, Configured(Tree("(0 4) (1 5) (2 6) (3 7)"), _ROUNDED)),
        ),
    }
    out: Outputs = []
    for group, order in kernels[terms]:
        size = len(part) // group * group
        out.append((order, part[:size]))
        part = part[size:]
    return out


def _rows(part: range, core: str, double: bool) -> Outputs:
    """Rows are taken four at a time, then two, then one."""
    contracted = core == "skylakex" or double
    quads, pairs = len(part) // 4 * 4, len(part) // 2 * 2
    size, blocks_of_rows = (2048, _DOUBLE_ROWS) if double else (4096, _SINGLE_ROWS)
    parts = part[:quads], part[quads:pairs], part[pairs:]
    return [(_Row(block, size, contracted), some) for block, some in zip(blocks_of_rows, parts, strict=True)]


def _columns(part: range, terms: int, columns: int, core: str, double: bool) -> Outputs:
    """Columns are taken 4 or 16 at a time, of float32 after the first n mod 16 of each block; the last n mod 4 last."""
    if not double and _is_few(part, terms, core, _FEW_IN_COLUMNS) and terms != 4:
        return [(_SERIAL, part)]
    contracted = core == "skylakex"
    body, tail = part[: len(part) // 4 * 4], part[len(part) // 4 * 4 :]
    out: Outputs = []
    if double:
        out = [(_Column(_DOUBLE_COLUMNS[core]), body)]
    else:
        pair = (2 if contracted else 1, SERIAL)
        for first in range(0, len(body), _COLUMNS):
            block = body[first : first + _COLUMNS]
            places = block[: len(block) % 16], block[len(block) % 16 :]
            for inner, some in zip((Lanes(2), SERIAL), places, strict=True):
                out.append((_Column(((8, inner), (4, inner), pair, (1, SERIAL))), some))
    if columns == len(tail):
        return [*out, (_Narrow(contracted), tail)]
    return [*out, (_SERIAL if contracted else _ADDED, tail)]


@dataclass(frozen=True, slots=True)
class _Quarters(Order):
    """Four sums of one or two terms, the last two added to the first two; `fused`: the first term of two is."""

    terms: tuple[tuple[int, ...], ...]
    fused: bool
    name: ClassVar[str] = "sgemv_t_quarters"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        rounded = replace(arithmetic, fma=False, start="+0")
        own = replace(rounded, fma=self.fused)
        places = Scattered(items)
        sums = [builder.fold(places.pick(np.array(some[::-1])), own) for some in self.terms]
        return builder.fold([HalvingFold().build(builder, joined(sums), rounded)], rounded)


@dataclass(frozen=True, slots=True)
class _Row(Order):
    """A row of gemv_t: `block` sums so many terms at a time, and the last n mod 4 are added to the sum of these."""

    block: Order
    size: int
    contracted: bool
    name: ClassVar[str] = "gemv_t"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        fused = replace(arithmetic, fma=True, start="first")
        n = count_items(items)
        body, tail = split_items(items, n - n % 4)
        total: list[Segment] = []
        while body:
            some, body = split_items(body, self.size)
            total.append(self.block.build(builder, some, fused))
        rest = [split_items(split_items(tail, place)[1], 1)[0][0] for place in range(n % 4)]
        if rest and not self.contracted:
            total.append(builder.fold(rest, replace(fused, fma=False)))
        elif len(rest) == 1:
            total.append(rest[0])
        elif rest:
            total.append(builder.fold([rest[1], rest[0], *rest[2:]], fused))
        return builder.fold(total, fused, start="+0")


@dataclass(frozen=True, slots=True)
class _Octet(Order):
    """Eight lanes, of which the upper four are added to the lower four; the first 4 of an odd number of fours go first.

    Those first ones go to the lower lanes.
    """

    name: ClassVar[str] = "sgemv_t_octet"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        n = count_items(items)
        head, body = split_items(items, n % 8)
        sums: list[Segment] = []
        for lane in range(8):
            terms = list(split_items(split_items(head, lane)[1], 1)[0]) if lane < 4 else []
            if lane < count_items(body):
                (row,) = split_items(body, lane)[1]
                terms.append(Segment(row.base, -(-row.count // 8), row.stride * 8, item=row.item))
            if terms:
                sums.append(builder.fold(terms, arithmetic))
        folded = [builder.fold(sums[lane::4], arithmetic) for lane in range(4)]
        return Pairwise().build(builder, tuple(folded), arithmetic)


_PLAIN = Settings(fma=False, start="first")
_FUSED = Settings(fma=True, start="first")
#: The blocks of rows that are taken four at a time, of two rows, and of one.
_SINGLE_ROWS = (
    Configured(_Octet(), _FUSED),
    Configured(Lanes(4, combine=Pairwise()), _PLAIN),
    Configured(_Octet(), _PLAIN),
)
_DOUBLE_ROWS = (
    Configured(Lanes(4, combine=HalvingFold()), _FUSED),
    Configured(Lanes(2), _PLAIN),
    Configured(Lanes(4, combine=HalvingFold()), _PLAIN),
)
#: So many terms of a column of float64 at a time, and their order.
_DOUBLE_COLUMNS: dict[str, tuple[tuple[int, Order], ...]] = {
    "skylakex": ((4, Tree("1 0 2 3")), (2, Reverse()), (1, SERIAL)),
    "haswell": ((4, Lanes(2)), (2, _ADDED), (1, SERIAL)),
}


@dataclass(frozen=True, slots=True)
class _Column(Order):
    """A column of gemv_n: so many terms at a time, each lot a sum from zero that is added to the result."""

    lots: tuple[tuple[int, Order], ...]
    name: ClassVar[str] = "gemv_n"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        fused = replace(arithmetic, fma=True, start="+0")
        total: list[Segment] = []
        for size, order in self.lots:
            n = count_items(items)
            body, items = split_items(items, n - n % size)
            total += blocks(builder, body, fused, size, order)
        return builder.fold(total, fused)


@dataclass(frozen=True, slots=True)
class _Narrow(Order):
    """A column of a matrix of two or three columns: the terms in pairs, those beyond a multiple of 4 one by one."""

    contracted: bool
    name: ClassVar[str] = "gemv_n_narrow"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        own = replace(arithmetic, fma=self.contracted, start="first")
        n = count_items(items)
        body, rest = split_items(items, n - n % 4)
        pairs = blocks(builder, body, own, 2, Reverse())
        total = builder.fold((*pairs, *rest), own, start="+0")
        return builder.fold([total], own, start="+0")  # the result, to which the sum is added, is zero
