"""The order of ``numba.cuda.reduce``.

Source: ``numba/cuda/kernels/reduction.py``. Checked bit for bit with numba-cuda 0.30.4 on an
H200: 223 sizes up to 200000.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fpsim.arithmetic import Arithmetic
from fpsim.orders.base import Serial
from fpsim.orders.combinators import Chunks, HalvingFold
from fpsim.orders.named import NamedRule, Terms
from fpsim.programs import Builder, Items, Segment, count_items, joined, split_items

_WARP, _THREADS, _BLOCKS = 32, 128, 64
#: In a full block each warp is folded, and the four warps are added as (0 + 2) + (1 + 3).
_FULL = Chunks(_WARP, HalvingFold(), combine=HalvingFold())


@dataclass(frozen=True, slots=True)
class NumbaCudaReduce(NamedRule):
    """``numba.cuda.reduce`` with a + b and the initial value 0: blocks of 128 threads, at most 64 of them."""

    name: ClassVar[str] = "numba_cuda_reduce"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        own = replace(arithmetic, start="first")
        n = count_items(items)
        body, rest = split_items(items, n - n % _THREADS)
        sums: list[Segment] = []
        if body:
            terms = Terms(body)
            blocks = min(n // _THREADS, _BLOCKS)
            longer = n // _THREADS % blocks

            def block(number: int) -> Segment:
                def thread(place: int) -> Segment:
                    first = number * _THREADS + place
                    return builder.fold(terms.take(first, terms.n, blocks * _THREADS), own)

                threads = terms.alike(_THREADS, 1, lambda _: None, thread)
                return _FULL.build(builder, threads, own)

            sums += terms.alike(blocks, _THREADS, lambda number: number < longer, block)
        if rest:
            sums.append(_partial(builder, rest, own))
        if len(joined(sums)) > 1 or sums[0].size > 1:
            sums = [_partial(builder, joined(sums), own)]
        return builder.fold(sums, arithmetic, start="+0")


def _partial(builder: Builder, items: Items, arithmetic: Arithmetic) -> Segment:
    """Return what a block of fewer than 128 threads gives: the last warp adds one by one, and so are the warps."""
    warps: list[Segment] = []
    while items:
        warp, items = split_items(items, _WARP)
        order = HalvingFold() if items else Serial()
        warps.append(order.build(builder, warp, arithmetic))
    return builder.fold(warps, arithmetic)
