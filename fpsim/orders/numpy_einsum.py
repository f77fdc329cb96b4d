"""The orders of `numpy.einsum` with its own loops (``optimize=False``), float32, x86-64.

Source: ``numpy/_core/src/multiarray/einsum_sumprod.c.src``. These loops are compiled for the baseline of the build
alone, which for x86-64 wheels has vectors of four float32 and no FMA, and the iterator hands them 8192 terms at a
time. Checked bit for bit against the wheels of NumPy 2.4 and 2.5.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fpsim.arithmetic import Arithmetic
from fpsim.orders.base import Order, Part, Product, Reduction, Serial
from fpsim.orders.combinators import Lanes, Pairwise, blocks
from fpsim.orders.named import NamedRule
from fpsim.programs import Builder, Items, Segment, count_items, split_items

_BUFFER = 8192
_VECTOR, _UNROLLED = 4, 4  # lanes, and vectors that a step takes together
_WORDS: dict[str, tuple[str, ...]] = {"inputs": ("contiguous", "strided")}


@dataclass(frozen=True, slots=True)
class _Einsum(NamedRule):
    """A sum of chunks, from zero. With ``inputs=strided``, terms apart in memory are added one by one."""

    inputs: str = "contiguous"
    choices: ClassVar[dict[str, tuple[str, ...]]] = _WORDS

    def layout(self, case: Reduction) -> tuple[tuple[int, ...], list[Part]]:
        if self.inputs == "strided" and len(case.shape) == 1 and case.strides[0] and not case.buffered:
            return case.axes, [Part(self)]
        return NamedRule.layout(self, case)

    def product(self, shape: Product) -> list[Part]:
        if shape.m != 1 or shape.n != 1:
            self.refuse("matrices")
        if self.inputs == "contiguous" and "other" in (shape.left, shape.right):
            self.refuse("vectors with steps in memory, unless it says inputs=strided (for steps other than 0)")
        return [Part(self)]

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        from_zero = replace(arithmetic, start="+0")
        chunk = Serial() if self.inputs == "strided" else _Chunk(descending=self.name == "einsum_dot")
        return builder.fold(blocks(builder, items, from_zero, _BUFFER, chunk), from_zero)


@dataclass(frozen=True, slots=True)
class EinsumSum(_Einsum):
    """``np.einsum("i->", x)``: four lanes; four vectors are added in pairs before they enter them."""

    name: ClassVar[str] = "einsum_sum"


@dataclass(frozen=True, slots=True)
class EinsumDot(_Einsum):
    """``np.einsum("i,i->", x, y)``: four lanes; of four vectors the last enters them first."""

    name: ClassVar[str] = "einsum_dot"


@dataclass(frozen=True, slots=True)
class _Chunk(Order):
    """What one call of the loop gives."""

    descending: bool
    name: ClassVar[str] = "einsum_chunk"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        steps = count_items(items) // (_VECTOR * _UNROLLED)
        lane = _Lane(steps, self.descending)
        return Lanes(_VECTOR, lane, combine=Pairwise()).build(builder, items, arithmetic)


@dataclass(frozen=True, slots=True)
class _Lane(Order):
    """One lane: so many steps of four terms, then the rest one by one."""

    steps: int
    descending: bool
    name: ClassVar[str] = "einsum_lane"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        body, rest = split_items(items, self.steps * _UNROLLED)
        if self.descending:
            body = _turned(body)
        else:
            body = blocks(builder, body, replace(arithmetic, start="first"), _UNROLLED, Pairwise())
        return builder.fold((*body, *rest), arithmetic)


def _turned(items: Items) -> Items:
    """Return the terms with each group of four turned round."""
    out: list[Segment] = []
    if len(items) == 1 and items[0].outer_count == 1:
        row = items[0]
        first = row.base + (_UNROLLED - 1) * row.stride
        return (
            Segment(first, _UNROLLED, -row.stride, row.count // _UNROLLED, _UNROLLED * row.stride, row.item),
        )  # fmt: skip
    while items:
        group, items = split_items(items, _UNROLLED)
        out += [
            Segment(s.base + (s.count - 1) * s.stride, s.count, -s.stride, item=s.item)
            for s in reversed(group)
        ]  # fmt: skip
    return tuple(out)
