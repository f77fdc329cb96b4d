"""The order of Eigen's full reduction of a float32 tensor, which TensorFlow's ``reduce_sum`` runs on the CPU.

Source: ``unsupported/Eigen/CXX11/src/Tensor/TensorReduction.h``. Checked bit for bit against TensorFlow 2.21 (x86-64,
whose wheels are compiled for AVX: vectors of 8).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fpsim.arithmetic import Arithmetic
from fpsim.orders.base import Order
from fpsim.orders.combinators import HalvingFold, lane_sums
from fpsim.orders.named import NamedRule
from fpsim.programs import Builder, Items, Segment, count_items, split_items

_PACKET = 8
_LEAF = 1024 * _PACKET
_UNROLLED = 4


@dataclass(frozen=True, slots=True)
class EigenSum(NamedRule):
    """Eigen's tensor sum with vectors of 8: halves down to 8192 terms, and there four vectors.

    `shards` is the number of threads that take a run of n // shards terms each; what is left over comes first.
    """

    shards: int = 1
    name: ClassVar[str] = "eigen_sum"
    merges_axes: ClassVar[bool] = True

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        arithmetic = replace(arithmetic, start="+0")
        n = count_items(items)
        size = n // self.shards
        if self.shards == 1 or size == 0:
            return _tree(builder, items, arithmetic, 0, {})
        sums: list[Segment] = []
        first = 0
        while count_items(items) >= size:
            shard, items = split_items(items, size)
            sums.append(_tree(builder, shard, arithmetic, first, {}))
            first += size
        rest = [_tree(builder, items, arithmetic, first, {})] if items else []
        return builder.fold((*rest, *sums), arithmetic)


def _tree(
    builder: Builder, items: Items, arithmetic: Arithmetic, first: int, known: dict[tuple[object, ...], Segment]
) -> Segment:
    """Halve the terms, cut at a multiple of a packet, until they fit a leaf."""
    n = count_items(items)
    row = items[0]
    key = (n, first % _PACKET, row.stride, id(row.item)) if len(items) == 1 and row.outer_count == 1 else None
    if key is not None and key in known:
        return known[key].moved(row.base)
    if n > _LEAF:
        cut = -(-(first + -(-n // 2)) // _PACKET) * _PACKET - first
        left, right = split_items(items, cut)
        parts = [
            _tree(builder, left, arithmetic, first, known),
            _tree(builder, right, arithmetic, first + cut, known),
        ]
        total = builder.fold(parts, arithmetic)
    else:
        total = _leaf(builder, items, arithmetic)
    if key is not None:
        known[key] = total.moved(-row.base)
    return total


def _leaf(builder: Builder, items: Items, arithmetic: Arithmetic) -> Segment:
    """Add the terms that do not fill a vector, and to them the sum of the lanes, which are folded by halves."""
    n = count_items(items)
    body, rest = split_items(items, n - n % _PACKET)
    sums = [builder.fold(rest, arithmetic)] if rest else []
    if body:
        plain = replace(arithmetic, start="first")
        sums.append(HalvingFold().build(builder, lane_sums(builder, body, arithmetic, _PACKET, _Lane()), plain))
    return builder.fold(sums, arithmetic)


@dataclass(frozen=True, slots=True)
class _Lane(Order):
    """Four accumulators, added one by one; then the terms left over."""

    name: ClassVar[str] = "eigen_lane"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        n = count_items(items)
        body, rest = split_items(items, n - n % _UNROLLED)
        sums = lane_sums(builder, body, arithmetic, _UNROLLED) if body else ()
        return builder.fold((*sums, *rest), arithmetic)
