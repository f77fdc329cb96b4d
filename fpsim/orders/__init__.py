"""Orders: the generic combinators, and one named rule for each known implementation."""

from __future__ import annotations

from fpsim.orders.base import Configured, Order
from fpsim.orders.combinators import (
    Cascade,
    Chunks,
    Grid,
    HalvingFold,
    Interleaved,
    Lanes,
    Pairwise,
    Permute,
    Reverse,
    Rotate,
    Serial,
    Shuffle,
    Split,
    SplitK,
)
from fpsim.orders.explicit import Tree
from fpsim.orders.numpy import NumpySum
from fpsim.orders.numpy_matmul import NumpyMatmul

#: Every order by its name in a strategy text.
ORDERS: dict[str, type[Order]] = {
    order.name: order
    for order in (
        Serial, Pairwise, HalvingFold, Lanes, Chunks, SplitK, Split, Interleaved, Cascade, Grid, Reverse, Rotate,
        Permute, Shuffle, Tree, NumpySum, NumpyMatmul,
    )
}  # fmt: skip

__all__ = [
    "ORDERS", "Cascade", "Chunks", "Configured", "Grid", "HalvingFold", "Interleaved", "Lanes", "NumpyMatmul", "NumpySum", "Order",
    "Pairwise", "Permute", "Reverse", "Rotate", "Serial", "Shuffle", "Split", "SplitK", "Tree",
]  # fmt: skip
