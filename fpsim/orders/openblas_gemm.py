"""The orders of OpenBLAS's packed float32 matrix-matrix products on x86-64.

Sources: OpenBLAS ``interface/gemm.c`` and ``syrk.c``, in ``driver/level3`` ``level3.c``, ``level3_thread.c``,
``level3_syrk.c``, ``level3_syrk_threaded.c`` and ``syrk_kernel.c``, and ``kernel/x86_64/sgemm_kernel_8x4_haswell_2.c``.
Checked bit for bit against NumPy 2.4 with OpenBLAS 0.3.31 and NumPy 2.5 with 0.3.34 on 1 and 2 threads.

OpenBLAS stores matrices by columns, so that it computes the transposed product: its ``m`` are NumPy's columns, its
``n`` NumPy's rows. Here rows and columns are NumPy's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fpsim.arithmetic import Arithmetic, Settings
from fpsim.orders.base import Configured, Order, Part, Product
from fpsim.orders.combinators import Chunks, lane_sums
from fpsim.programs import Builder, Items, Segment, count_items, split_items

_FMA = Settings(fma=True, start="+0")
_ONE_THREAD = 262_144  # m*n*k of a product that each thread gets at least
_ONE_THREAD_SYRK = 439_776  # n*(n + 1)*k of a @ a.T up to which one thread computes it
_ROWS = 4  # rows that the kernels take at a time


@dataclass(frozen=True, slots=True)
class Blocking:
    """How the kernels of a core cut a product.

    Attributes
    ----------
    columns, terms, rows : int
        What is packed at a time (OpenBLAS's P, Q and R).
    unit : int
        Columns that the kernel takes at a time, the multiple to which parts are rounded, and the least share of a
        thread.
    """

    columns: int
    terms: int
    rows: int
    unit: int


_BLOCKING = {
    ("skylakex", "0.3.31"): Blocking(448, 448, 18_256, 16),
    ("skylakex", "0.3.34"): Blocking(384, 512, 15_984, 16),
    ("haswell", "0.3.31"): Blocking(320, 320, 25_872, 8),
    ("haswell", "0.3.34"): Blocking(384, 512, 15_984, 8),
}
#: Where the HASWELL kernel sums even and odd terms in accumulators of their own, by row and column.
_Places = NDArray[np.bool_]


def packed(shape: Product, *, core: str, version: str, threads: int) -> list[Part]:
    """Return the orders of a product of two matrices (``sgemm``)."""
    blocking = _BLOCKING[core, version]
    threads = max(1, min(threads, shape.m * shape.n * shape.k // _ONE_THREAD))
    by_columns, by_rows = _grid(shape, threads, blocking)
    sizes = _term_blocks(shape.k, blocking, halves=by_columns * by_rows > 1)
    if core == "skylakex":
        return [Part(Configured(Chunks(sizes), _FMA))]
    double = np.zeros((shape.m, shape.n), bool)
    if by_columns * by_rows == 1:
        _product(double, blocking)
    else:
        _threaded_product(double, by_columns, by_rows, blocking)
    return _parts(double, sizes)


def symmetric(shape: Product, *, core: str, version: str, threads: int) -> list[Part]:
    """Return the orders of ``a @ a.T`` (``ssyrk``): the upper triangle is computed, the lower one a copy."""
    blocking = _BLOCKING[core, version]
    sizes = _term_blocks(shape.k, blocking, halves=True)
    if core == "skylakex":
        return [Part(Configured(Chunks(sizes), _FMA))]
    n = shape.n
    double = np.zeros((n, n), bool)
    threaded = n * (n + 1) * shape.k > _ONE_THREAD_SYRK and n >= threads * blocking.unit
    if threads == 1 or not threaded:
        _triangle(double, blocking)
    else:
        _threaded_triangle(double, threads, blocking)
    return _parts(np.triu(double) | np.triu(double).T, sizes)


def _grid(shape: Product, threads: int, blocking: Blocking) -> tuple[int, int]:
    """Return into how many parts the columns and the rows are cut for threads."""
    columns, rows, ratio = shape.n, shape.m, blocking.unit
    by_columns = threads if columns >= 2 * ratio else 1
    while by_columns > 1 and columns < by_columns * ratio:
        by_columns //= 2
    if rows < ratio * by_columns:
        return by_columns, 1
    by_rows = min(-(-rows // (ratio * by_columns)), threads // by_columns)
    # As square as can be: the divisor of the cuts by columns, to be made by rows instead, with the shortest edges.
    divisors = []
    for i in range(1, math.isqrt(by_columns) + 1):
        if by_columns % i == 0:
            divisors += [i, by_columns // i]
    best = min(divisors, key=lambda i: rows * (by_columns // i) + columns * by_rows * i)
    return by_columns // best, by_rows * best


def _term_blocks(k: int, blocking: Blocking, *, halves: bool) -> tuple[int, ...]:
    """Return the sizes of the blocks of terms; the last two are nearly equal."""
    return tuple(_steps(k, blocking.terms, 1 if halves else blocking.unit, up=halves))


def _steps(count: int, most: int, unit: int, *, up: bool = False) -> Iterator[int]:
    """Yield the sizes of blocks of at most `most`; the half of a rest, rounded `up` or down, goes up to the unit."""
    while count:
        size = count
        if count >= 2 * most:
            size = most
        elif count > most:
            size = -(-((count + up) // 2) // unit) * unit
        yield size
        count -= size


def _parts(double: _Places, sizes: tuple[int, ...]) -> list[Part]:
    """Return the orders of rows and columns; equal rows share a part."""
    serial, twofold = Configured(Chunks(sizes), _FMA), Configured(Chunks(sizes, _EvenOdd()), _FMA)
    alike: dict[bytes, list[int]] = {}
    for i, row in enumerate(np.packbits(double, axis=1)):
        alike.setdefault(row.tobytes(), []).append(i)
    parts: list[Part] = []
    for rows in alike.values():
        for order, columns in ((serial, ~double[rows[0]]), (twofold, double[rows[0]])):
            parts.append(Part(order, tuple(rows), tuple(np.flatnonzero(columns).tolist())))
    return [part for part in parts if part.columns]


@dataclass(frozen=True, slots=True)
class _EvenOdd(Order):
    """The even and the odd terms of the largest multiple of 8, the rest with the even ones."""

    name: ClassVar[str] = "even_odd"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        n = count_items(items)
        body, rest = split_items(items, n - n % 8)
        if not body:
            return builder.fold(items, arithmetic)
        return builder.fold(lane_sums(builder, body, arithmetic, 2, extra=rest), arithmetic)


# --- the HASWELL kernel and the drivers that call it: each marks the places with two accumulators -------------------


def _kernel(double: _Places) -> None:
    """Mark the places of one call, for all rows and columns of the view `double`.

    Rows go in twelves, then in eights, fours, twos and ones; columns in tiles of 8. Of twelve rows the first six have
    two accumulators in the first tile; in the last one six of them, which six by the parity of tiles. Four rows have
    two accumulators in all tiles.
    """
    rows, columns = double.shape
    tiles, twelves = columns // 8, rows // 12
    if tiles > 1:
        group = double[: 12 * twelves].reshape(twelves, 12, columns)
        half = 6 * (tiles % 2)
        group[:, :6, :8] = True
        group[:, half : half + 6, 8 * tiles - 8 : 8 * tiles] = True
    rest = rows % 12
    first = 12 * twelves + rest // 8 * 8
    double[first : first + rest % 8 // 4 * 4, : 8 * tiles] = True


def _in_pieces(double: _Places) -> None:
    """Mark the places of a stretch of columns whose rows are packed and computed piece by piece."""
    rows, first = len(double), 0
    while first < rows:
        left = rows - first
        size = 3 * _ROWS if left >= 3 * _ROWS else min(left, _ROWS)
        _kernel(double[first : first + size])
        first += size


def _product(double: _Places, blocking: Blocking) -> None:
    """Mark the places on one thread: the first stretch of columns goes in pieces, the others with all rows at a time."""
    rows, columns = double.shape
    for top in range(0, rows, blocking.rows):
        some, left = double[top : top + blocking.rows], 0
        for width in _steps(columns, blocking.columns, blocking.unit):
            (_kernel if left else _in_pieces)(some[:, left : left + width])
            left += width


def _threaded_product(double: _Places, by_columns: int, by_rows: int, blocking: Blocking) -> None:
    """Mark the places on several threads: each takes some columns, and packs some of the rows that these meet."""
    rows, columns = double.shape
    most = blocking.rows * by_columns * by_rows
    bounds = [0, *itertools.accumulate(_shares(columns, by_columns, blocking.unit))]
    first = 0
    for step in range(0, rows, most):
        for group in _shares(min(rows - step, most), by_rows, 1):
            for owner, size in enumerate(_shares(group, by_columns, blocking.unit, least=blocking.unit)):
                for thread, (left, right) in enumerate(itertools.pairwise(bounds)):
                    _threads_meet(double[first : first + size, left:right], thread == owner, blocking)
                first += size


def _threads_meet(double: _Places, own: bool, blocking: Blocking) -> None:
    """Mark the places of the columns of one thread and the rows that one packs, in two halves."""
    rows, columns = double.shape
    half = -(-rows // 2)
    for some in (double[:half], double[half:]):
        left = 0
        for width in _thread_stretches(columns, blocking):
            (_in_pieces if own and not left else _kernel)(some[:, left : left + width])
            left += width


def _thread_stretches(columns: int, blocking: Blocking) -> list[int]:
    first = next(_steps(columns, blocking.columns, blocking.unit), 0)
    return [first, *_steps(columns - first, blocking.columns, blocking.unit, up=True)]


def _shares(count: int, parts: int, unit: int, *, least: int = 0) -> list[int]:
    """Return the shares of threads: nearly equal, rounded up to a multiple of `unit` where there is room."""
    out: list[int] = []
    while count > 0:
        width = max(-(-count // (parts - len(out))), least)
        if unit <= count and unit < width:
            width = -(-width // unit) * unit
        out.append(min(width, count))
        count -= out[-1]
    return out


# --- the drivers of ssyrk ------------------------------------------------------------------------------------------


def _crossing(double: _Places, rows: slice, columns: slice) -> None:
    """Mark the places of one call for a block that the diagonal may cross, of which the part above it is needed.

    The blocks of 8 rows on the diagonal have one accumulator.
    """
    above = min(max(columns.start - rows.start, 0), rows.stop - rows.start)
    _kernel(double[rows.start : rows.start + above, columns])
    if above < rows.stop - rows.start:
        _kernel(double[rows.start + above : rows.stop, max(rows.stop, columns.start) : columns.stop])


def _triangle(double: _Places, blocking: Blocking) -> None:
    """Mark the places on one thread: stretches of columns, each with all the rows above its triangle at a time."""
    left, n = 0, len(double)
    for width in _steps(n, blocking.columns, blocking.unit):
        _kernel(double[:left, left : left + width])
        left += width


def _threaded_triangle(double: _Places, threads: int, blocking: Blocking) -> None:
    """Mark the places on several threads: each takes some columns, and packs the rows with the same numbers."""
    unit = blocking.unit
    bounds = [0, *itertools.accumulate(_triangle_shares(len(double), threads, unit))]
    for thread, (left, right) in enumerate(itertools.pairwise(bounds)):
        # The last columns come first, as many as leave a multiple of what is packed at a time.
        last = _last_stretch(right - left, blocking)
        for top, bottom in itertools.pairwise(bounds[: thread + 2]):
            for rows in _runs(top, bottom, unit * -(-(bottom - top) // (2 * unit))):
                for some in [rows] if top < left else _runs(rows.start, rows.stop, unit):
                    _crossing(double, some, slice(right - last, right))
                for columns in _runs(left, right - last, blocking.columns):
                    _crossing(double, rows, columns)


def _last_stretch(columns: int, blocking: Blocking) -> int:
    """Return how many of a thread's columns leave a multiple of what is packed at a time."""
    size = next(_steps(columns, blocking.columns, blocking.unit))
    over = (columns - size) % blocking.columns
    return size - (blocking.columns - over if over else 0)


def _runs(start: int, stop: int, size: int) -> list[slice]:
    return [slice(first, min(first + size, stop)) for first in range(start, stop, size)]


def _triangle_shares(n: int, threads: int, unit: int) -> list[int]:
    """Return the columns of each thread: triangles and trapezia of nearly equal areas."""
    out: list[int] = []
    first = 0
    while first < n:
        width = n - first
        if threads - len(out) > 1:
            equal = int(math.sqrt(first * first + n * n / threads) - first + (unit - 1)) // unit * unit
            width = equal if unit - 1 <= equal <= width else width
        out.append(width)
        first += width
    return out
