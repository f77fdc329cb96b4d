"""The orders of OpenBLAS's dot products on x86-64.

Sources: OpenBLAS ``kernel/x86_64/sdot.c`` and ``ddot.c`` with ``*dot_microk_skylakex-2.c`` and ``*_haswell-2.c``.
Checked bit for bit against `numpy.dot` of the wheels of NumPy 2.4 (OpenBLAS 0.3.31) and 2.5 (0.3.34). The alignment
does not matter, the number of threads only in float64.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fpsim.arithmetic import Arithmetic, Rounding, Settings
from fpsim.formats import FLOAT64, Format
from fpsim.orders.base import Part, Product, Reduction, Serial, halves
from fpsim.orders.combinators import HalvingFold, Pairwise, blocks, lane_sums
from fpsim.orders.named import NamedRule
from fpsim.orders.permutations import Reverse
from fpsim.programs import Builder, Items, Segment, count_items, joined, split_items

_PAIRWISE = Pairwise()
_DDOT_ON_ONE_THREAD = 10_000


@dataclass(frozen=True, slots=True)
class OpenblasSdot(NamedRule):
    """``sdot``, and so ``np.dot`` of two float32 vectors: fused lanes, and a rest of rounded products in float64.

    `core` names OpenBLAS's kernels: AMD Zen 4 and Intel processors with AVX-512 run ``skylakex``, others with AVX2
    ``haswell``. With ``inputs=strided`` (a positive stride other than 1 on either side) pairs are added in float64.
    """

    core: str = "skylakex"
    inputs: str = "contiguous"
    name: ClassVar[str] = "openblas_sdot"
    own: ClassVar[Settings] = Settings(fma=True)
    choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "core": ("skylakex", "haswell"),
        "inputs": ("contiguous", "strided"),
    }

    def product(self, shape: Product) -> list[Part]:
        if shape.m != 1 or shape.n != 1:
            self.refuse("matrices, whose products go to other routines (numpy_matmul)")
        if self.inputs == "contiguous" and "other" in (shape.left, shape.right):
            self.refuse("vectors with steps in memory, unless it says inputs=strided (for positive steps)")
        return [Part(self)]

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        fused = replace(arithmetic, start="first")
        wide = replace(
            arithmetic,
            accumulator=Rounding(FLOAT64),
            fma=False,
            product=arithmetic.product or arithmetic.accumulator.format,
            output=arithmetic.accumulator,
        )
        n = count_items(items)
        if self.inputs == "strided":
            body, rest = split_items(items, n - n % 2)
            # GCC contracts a*b + c*d to fma(a, b, c*d) in the one build and not in the other.
            pair = blocks(builder, body, fused, 2, Reverse()) if self.core == "skylakex" else ()
            if self.core == "haswell":
                pair = blocks(builder, body, replace(fused, fma=False), 2, Serial())
            return builder.fold((*pair, *rest), wide, start="+0")
        body, rest = split_items(items, n - n % 32)
        kernel = _skylakex if self.core == "skylakex" else _haswell
        if not rest:
            return kernel(builder, body, fused)
        total = [kernel(builder, body, fused)] if body else []
        return builder.fold((*rest, *total), wide, start="+0")


@dataclass(frozen=True, slots=True)
class OpenblasDdot(NamedRule):
    """``ddot``, and so ``np.dot`` of two float64 vectors: fused lanes, then the rest one by one.

    `core` is that of `OpenblasSdot`. From 10,001 terms on `threads` share the work.
    """

    core: str = "skylakex"
    threads: int = 1
    name: ClassVar[str] = "openblas_ddot"
    own: ClassVar[Settings] = Settings(accumulator=Rounding(FLOAT64), fma=True)
    choices: ClassVar[dict[str, tuple[str, ...]]] = {"core": ("skylakex", "haswell")}

    def defaults(self, data: Format | None) -> Settings:
        if data not in (None, FLOAT64):
            self.refuse(f"operands in {data}")
        return self.own

    def layout(self, case: Reduction) -> tuple[tuple[int, ...], list[Part]]:
        if case.strides == (8,) and not case.buffered:
            return case.axes, [Part(self)]
        return self.refuse("sums other than that over a vector of float64 side by side in memory")

    def product(self, shape: Product) -> list[Part]:
        if shape.m != 1 or shape.n != 1:
            self.refuse("matrices, whose products go to other routines (numpy_matmul)")
        if "other" in (shape.left, shape.right):
            self.refuse("vectors with steps in memory")
        return [Part(self)]

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        n, threads = count_items(items), self.threads if count_items(items) > _DDOT_ON_ONE_THREAD else 1
        total: list[Segment] = []
        for thread in range(threads):
            share, items = split_items(items, -(-count_items(items) // (threads - thread)))
            total.append(self._share(builder, share, replace(arithmetic, start="first")))
        return builder.fold(total, arithmetic, start="+0") if n else builder.fold((), arithmetic)

    def _share(self, builder: Builder, items: Items, fused: Arithmetic) -> Segment:
        n = count_items(items)
        body, rest = split_items(items, n - n % 16)
        total: list[Segment] = []
        if body and self.core == "skylakex":
            total = [HalvingFold().build(builder, _registers(builder, body, fused, 32), fused)]
        elif body:
            registers = _fold_each(builder, lane_sums(builder, body, replace(fused, start="+0"), 16), fused, 4)
            total = [_PAIRWISE.build(builder, lane_sums(builder, registers, fused, 2, _PAIRWISE), fused)]
        return builder.fold((*total, *rest), replace(fused, fma=self.core == "skylakex"), start="+0")


def _skylakex(builder: Builder, items: Items, arithmetic: Arithmetic) -> Segment:
    """Four registers of 16 lanes, folded to 8 lanes each; one more block of 32 terms; the registers, the lanes."""
    lanes = _registers(builder, items, arithmetic, 64)
    return _PAIRWISE.build(builder, halves(builder, lanes, arithmetic, 4), arithmetic)


def _registers(builder: Builder, items: Items, arithmetic: Arithmetic, period: int) -> Items:
    """Sum four registers over `period` terms at a time; fold each to half its lanes, take half as many; add them."""
    from_zero = replace(arithmetic, start="+0")
    n = count_items(items)
    body, last = split_items(items, n - n % period)
    if body:
        registers = _fold_each(builder, lane_sums(builder, body, from_zero, period), arithmetic, period // 4)
        if last:
            registers = halves(builder, (*registers, *last), arithmetic, period // 2)
    else:
        registers = lane_sums(builder, last, from_zero, period // 2)
    return lane_sums(builder, registers, arithmetic, period // 8)


def _haswell(builder: Builder, items: Items, arithmetic: Arithmetic) -> Segment:
    """Four registers of 8 lanes, folded to 4 lanes each; the registers in pairs; the lanes in pairs."""
    registers = lane_sums(builder, items, replace(arithmetic, start="+0"), 32)
    lanes = lane_sums(builder, _fold_each(builder, registers, arithmetic, 8), arithmetic, 4, _PAIRWISE)
    return _PAIRWISE.build(builder, lanes, arithmetic)


def _fold_each(builder: Builder, items: Items, arithmetic: Arithmetic, lanes: int) -> Items:
    """Add the upper half of each register of so many lanes to its lower half."""
    out: list[Segment] = []
    while items:
        register, items = split_items(items, lanes)
        out += halves(builder, register, arithmetic, lanes // 2)
    return joined(out)
