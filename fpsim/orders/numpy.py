"""The orders of NumPy's reductions.

Sources: ``numpy/_core/src/umath/loops_utils.h.src`` (pairwise sum) and ``nditer_constr.c`` (buffering), NumPy 2.3 to
2.4. The result does not depend on the SIMD level, the alignment or the stride, but on which axis is the inner loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fpsim.arithmetic import Arithmetic, Settings
from fpsim.errors import UnknownOrderError
from fpsim.orders.base import Order
from fpsim.orders.combinators import Lanes, Pairwise
from fpsim.programs import Builder, Items, Segment, count_items, split_items

_BLOCK = 128
_BUFFER = 8192
_EIGHT_LANES = Lanes(8, combine=Pairwise(), tail="after")


@dataclass(frozen=True, slots=True)
class NumpySum(Order):
    """``np.sum``: pairwise by halves rounded down to multiples of 8, over blocks of at most 128 terms in 8 lanes.

    With `chunk`, the inner loop sees that many terms at a time, and the results are added serially, from +0.
    """

    chunk: int = 0
    name: ClassVar[str] = "numpy_sum"
    defaults: ClassVar[Settings] = Settings()

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        n = count_items(items)
        if self.chunk == 1:
            return builder.fold(items, arithmetic, start="+0")
        known: dict[tuple[int, int, int], Segment] = {}
        size = self.chunk or n
        parts: list[Segment] = []
        whole, rest = split_items(items, n - n % size)
        if len(whole) == 1 and whole[0].outer_count == 1:
            row = whole[0]
            total = _pairwise(builder, (Segment(row.base, size, row.stride, item=row.item),), arithmetic, known)
            parts.append(Segment(total.base, n // size, size * row.stride, item=total.item))
        else:
            for _ in range(n // size):
                head, whole = split_items(whole, size)
                parts.append(_pairwise(builder, head, arithmetic, known))
        if rest:
            parts.append(_pairwise(builder, rest, arithmetic, known))
        return builder.fold(parts, arithmetic, start="+0")

    def layout(
        self, shape: tuple[int, ...], strides: tuple[int, ...], axes: tuple[int, ...], *, buffered: bool = False
    ) -> tuple[tuple[int, ...], Order]:
        if self.chunk:
            return axes, self
        return sum_layout(shape, strides, axes, buffered=buffered)

    def arguments(self) -> list[str]:
        return [f"chunk={self.chunk}"] if self.chunk else []


def _pairwise(
    builder: Builder, items: Items, arithmetic: Arithmetic, known: dict[tuple[int, int, int], Segment]
) -> Segment:
    n = count_items(items)
    row = items[0]
    key = (n, row.stride, id(row.item)) if len(items) == 1 and row.outer_count == 1 else None
    if key is not None and key in known:
        return known[key].moved(row.base)
    if n < 8:
        total = builder.fold(items, arithmetic)
    elif n <= _BLOCK:
        total = _EIGHT_LANES.build(builder, items, arithmetic)
    else:
        half = n // 2 - n // 2 % 8
        left, right = split_items(items, half)
        total = builder.fold(
            [_pairwise(builder, left, arithmetic, known), _pairwise(builder, right, arithmetic, known)], arithmetic
        )
    if key is not None:
        known[key] = total.moved(-row.base)
    return total


def sum_layout(
    shape: tuple[int, ...], strides: tuple[int, ...], axes: tuple[int, ...], /, *, buffered: bool = False
) -> tuple[tuple[int, ...], NumpySum]:
    """Return how ``np.sum`` walks an array of native float32 or float64.

    Parameters
    ----------
    shape, strides : tuple of int
        Those of the array; strides in bytes.
    axes : tuple of int
        The axes summed over, not negative.
    buffered : bool
        The array is byte-swapped or unaligned, so that NumPy copies it piece by piece.

    Returns
    -------
    order : tuple of int
        The summed axes, slowest first: the terms of an output in this order are the leaves.
    rule : NumpySum
        The order over those leaves.

    Raises
    ------
    UnknownOrderError
        The iterator buffers this layout in a way that is not modelled.
    """
    # The iterator sorts axes by stride, C order among equals, and merges those that continue each other.
    live = [axis for axis in range(len(shape)) if shape[axis] != 1]
    live.sort(key=lambda axis: (-abs(strides[axis]), axis))
    order = tuple(axis for axis in live if axis in axes)
    rest = tuple(axis for axis in axes if axis not in order)
    merged: list[tuple[int, int, bool]] = []  # size, stride, summed; slowest first
    for axis in live:
        size, stride, summed = shape[axis], strides[axis], axis in axes
        if merged and merged[-1][2] == summed and merged[-1][1] == stride * size:
            merged[-1] = (merged[-1][0] * size, stride, summed)
        else:
            merged.append((size, stride, summed))
    if not merged or not order:
        return rest + order, NumpySum()
    unknown = f"np.sum over an array of shape {shape} and strides {strides} is buffered in a way that is not modelled"
    if buffered:
        if len(merged) > 1:
            raise UnknownOrderError(unknown)
        return rest + order, NumpySum(_BUFFER)
    inner, _, summed = merged[-1]
    if not summed:
        return rest + order, NumpySum(1)
    if all(part[2] for part in merged):
        if len(merged) == 1:
            return rest + order, NumpySum()
        if len(merged) == 2:
            return rest + order, NumpySum(_BUFFER // inner * inner if inner <= _BUFFER else inner)
        raise UnknownOrderError(unknown)
    return rest + order, NumpySum(inner)
