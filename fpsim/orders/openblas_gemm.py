"""The orders of OpenBLAS's packed float32 and float64 matrix-matrix products on x86-64.

Sources: OpenBLAS ``interface/gemm.c`` and ``syrk.c``, in ``driver/level3`` ``level3.c``, ``level3_thread.c``,
``level3_syrk.c``, ``level3_syrk_threaded.c`` and ``syrk_kernel.c``, and ``kernel/x86_64/sgemm_kernel_8x4_haswell_2.c``;
the float64 kernels by probing; the blocks are those that the libraries have in memory. Checked bit for bit against
NumPy 2.4 with OpenBLAS 0.3.31 and NumPy 2.5 with 0.3.34 on 1 to 64 threads, on an AMD Zen 4. The blocks of 0.3.34 for
other processors are read from the library, as they stand before it looks at the processor; they are those of 0.3.31.

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
from fpsim.errors import UnknownOrderError
from fpsim.orders.base import SERIAL, Configured, Order, Part, Product
from fpsim.orders.combinators import Chunks, Lanes, Pairwise, lane_sums
from fpsim.programs import Builder, Items, Segment, count_items, split_items

_FMA = Settings(fma=True, start="+0")
_ONE_THREAD = 262_144  # m*n*k of a product that each thread gets at least
_ONE_THREAD_SYRK = 439_776  # n*(n + 1)*k of a @ a.T up to which one thread computes it


@dataclass(frozen=True, slots=True)
class Blocking:
    """How the kernels of a core cut a product.

    Attributes
    ----------
    columns, terms, rows : int
        What is packed at a time (OpenBLAS's P, Q and R).
    tile : tuple of int
        Columns and rows that the kernel takes at a time; shares of columns and of terms are multiples of the first.
    square : int
        The edge of the squares on the diagonal of a symmetric product.
    """

    columns: int
    terms: int
    rows: int
    tile: tuple[int, int]
    square: int

    @property
    def ratio(self) -> int:
        """The least share of a thread, and what its columns and rows are rounded to."""
        return max(self.tile)


_BLOCKING = {
    ("float32", "skylakex", False): Blocking(448, 448, 18_256, (16, 4), 32),
    ("float32", "haswell", False): Blocking(320, 320, 25_872, (8, 4), 8),
    ("float64", "skylakex", False): Blocking(192, 384, 10_704, (16, 2), 32),
    ("float64", "haswell", False): Blocking(512, 256, 15_856, (4, 8), 8),
    # From 0.3.34 on OpenBLAS has other ones for Zen 4 and 5, whatever kernels it runs (kernel/setparam-ref.c).
    ("float32", "skylakex", True): Blocking(384, 512, 15_984, (16, 4), 32),
    ("float32", "haswell", True): Blocking(384, 512, 15_984, (8, 4), 8),
    ("float64", "skylakex", True): Blocking(512, 512, 7664, (16, 2), 32),
    ("float64", "haswell", True): Blocking(512, 512, 7664, (4, 8), 8),
}
#: The float64 kernel of HASWELL copies so many terms of 12 rows to its stack; the blocks for Zen 4 are longer.
_ON_STACK = 298
#: How a kernel sums the terms of an output, by row and column: in the order of that number in `_ORDERS`.
_Places = NDArray[np.uint8]


def packed(shape: Product, *, data: str, core: str, zen4: bool, threads: int) -> list[Part]:
    """Return the orders of a product of two matrices (``gemm``)."""
    blocking = _BLOCKING[data, core, zen4]
    threads = max(1, min(threads, shape.m * shape.n * shape.k // _ONE_THREAD))
    by_columns, by_rows = _grid(shape, threads, blocking)
    sizes = _term_blocks(shape.k, blocking, halves=by_columns * by_rows > 1)
    _check(shape, sizes, blocking)
    if blocking.tile not in _ORDERS:
        return [Part(Configured(Chunks(sizes), _FMA))]
    places = np.zeros((shape.m, shape.n), np.uint8)
    if by_columns * by_rows == 1:
        _product(places, blocking)
    else:
        _threaded_product(places, by_columns, by_rows, blocking)
    return _parts(places, sizes, _ORDERS[blocking.tile])


def symmetric(shape: Product, *, data: str, core: str, zen4: bool, threads: int) -> list[Part]:
    """Return the orders of ``a @ a.T`` (``syrk``): the upper triangle is computed, the lower one a copy."""
    blocking = _BLOCKING[data, core, zen4]
    sizes = _term_blocks(shape.k, blocking, halves=True)
    _check(shape, sizes, blocking)
    if blocking.tile not in _ORDERS:
        return [Part(Configured(Chunks(sizes), _FMA))]
    n = shape.n
    places = np.zeros((n, n), np.uint8)
    threaded = n * (n + 1) * shape.k > _ONE_THREAD_SYRK and n >= threads * blocking.ratio
    if threads == 1 or not threaded:
        _triangle(places, blocking)
    else:
        _threaded_triangle(places, threads, blocking)
    return _parts(np.triu(places) + np.triu(places, 1).T, sizes, _ORDERS[blocking.tile])


def _check(shape: Product, sizes: tuple[int, ...], blocking: Blocking) -> None:
    if blocking.tile == (4, 8) and shape.m >= 24 and max(sizes) > _ON_STACK:
        message = "OpenBLAS 0.3.34 writes beyond its stack in this product with its HASWELL kernels on Zen 4 and 5"
        raise UnknownOrderError(message)


def _grid(shape: Product, threads: int, blocking: Blocking) -> tuple[int, int]:
    """Return into how many parts the columns and the rows are cut for threads."""
    columns, rows, ratio = shape.n, shape.m, blocking.ratio
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
    return tuple(_steps(k, blocking.terms, 1 if halves else blocking.tile[0], up=halves))


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


def _parts(places: _Places, sizes: tuple[int, ...], orders: tuple[Order, ...]) -> list[Part]:
    """Return the orders of rows and columns; equal rows share a part."""
    alike: dict[bytes, list[int]] = {}
    for i, row in enumerate(places):
        alike.setdefault(row.tobytes(), []).append(i)
    parts: list[Part] = []
    for rows in alike.values():
        for number, order in enumerate(orders):
            columns = tuple(np.flatnonzero(places[rows[0]] == number).tolist())
            if columns:
                parts.append(Part(Configured(Chunks(sizes, order), _FMA), tuple(rows), columns))
    return parts


@dataclass(frozen=True, slots=True)
class _InTurn(Order):
    """The terms of the largest multiple of 8 go to so many accumulators in turn, the rest to the first."""

    accumulators: int
    name: ClassVar[str] = "in_turn"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        n = count_items(items)
        body, rest = split_items(items, n - n % 8)
        if not body:
            return builder.fold(items, arithmetic)
        return Pairwise().build(
            builder, lane_sums(builder, body, arithmetic, self.accumulators, extra=rest), arithmetic
        )


#: The orders of the kernels that do not sum all outputs alike, by the tile that tells the kernels apart.
_ORDERS: dict[tuple[int, int], tuple[Order, ...]] = {
    (8, 4): (SERIAL, _InTurn(2)),
    (4, 8): (SERIAL, _InTurn(4)),
    (16, 2): (SERIAL, Lanes(2, tail="after"), Lanes(4, combine=Pairwise(), tail="after")),
}


# --- the kernels and the drivers that call them: each marks the places of other orders than the serial one ----------


def _kernel(places: _Places, blocking: Blocking) -> None:
    """Mark the places of one call, for all rows and columns of the view `places`."""
    rows, columns = places.shape
    rest, twelves, tiles = rows % 12, rows // 12, columns // 8
    if blocking.tile == (4, 8):  # HASWELL, float64: 4 accumulators for the last one of an odd number of rows
        places[rows - rows % 2 :, : columns // 4 * 4] = 1
    elif blocking.tile == (16, 2):  # SKYLAKEX, float64: more terms at a time where fewer than 8 columns are left
        four = 8 * tiles + columns % 8 // 4 * 4
        places[: 12 * twelves, 8 * tiles : four] = 1
        places[: 12 * twelves, four:] = 2
    else:
        # HASWELL, float32: of twelve rows the first six have two accumulators in the first tile of columns; in the last
        # one six of them, which six by the parity of tiles. Four rows that are left after eight have two in all tiles.
        if tiles > 1:
            group = places[: 12 * twelves].reshape(twelves, 12, columns)
            half = 6 * (tiles % 2)
            group[:, :6, :8] = 1
            group[:, half : half + 6, 8 * tiles - 8 : 8 * tiles] = 1
        first = 12 * twelves + rest // 8 * 8
        places[first : first + rest % 8 // 4 * 4, : 8 * tiles] = 1


def _in_pieces(places: _Places, blocking: Blocking) -> None:
    """Mark the places of a stretch of columns whose rows are packed and computed piece by piece."""
    rows, first, tile = len(places), 0, blocking.tile[1]
    while first < rows:
        left = rows - first
        size = 3 * tile if left >= 3 * tile else min(left, tile)
        _kernel(places[first : first + size], blocking)
        first += size


def _product(places: _Places, blocking: Blocking) -> None:
    """Mark the places on one thread: the first stretch of columns goes in pieces, the others with all rows at once."""
    rows, columns = places.shape
    for top in range(0, rows, blocking.rows):
        some, left = places[top : top + blocking.rows], 0
        for width in _steps(columns, blocking.columns, blocking.tile[0]):
            (_kernel if left else _in_pieces)(some[:, left : left + width], blocking)
            left += width


def _threaded_product(places: _Places, by_columns: int, by_rows: int, blocking: Blocking) -> None:
    """Mark the places on places threads: each takes some columns, and packs some of the rows that these meet."""
    rows, columns = places.shape
    most = blocking.rows * by_columns * by_rows
    bounds = [0, *itertools.accumulate(_shares(columns, by_columns, blocking.ratio))]
    first = 0
    for step in range(0, rows, most):
        for group in _shares(min(rows - step, most), by_rows, 1):
            for owner, size in enumerate(_shares(group, by_columns, blocking.ratio, least=blocking.ratio)):
                for thread, (left, right) in enumerate(itertools.pairwise(bounds)):
                    _threads_meet(places[first : first + size, left:right], thread == owner, blocking)
                first += size


def _threads_meet(places: _Places, own: bool, blocking: Blocking) -> None:
    """Mark the places of the columns of one thread and the rows that one packs, in two halves."""
    rows, columns = places.shape
    half = -(-rows // 2)
    for some in (places[:half], places[half:]):
        left = 0
        for width in _thread_stretches(columns, blocking):
            (_in_pieces if own and not left else _kernel)(some[:, left : left + width], blocking)
            left += width


def _thread_stretches(columns: int, blocking: Blocking) -> list[int]:
    first = next(_steps(columns, blocking.columns, blocking.tile[0]), 0)
    return [first, *_steps(columns - first, blocking.columns, blocking.tile[0], up=True)]


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


def _crossing(places: _Places, rows: slice, columns: slice, blocking: Blocking) -> None:
    """Mark the places of one call for a block that the diagonal may cross, of which the part above it is needed."""
    above = min(max(columns.start - rows.start, 0), rows.stop - rows.start)
    _kernel(places[rows.start : rows.start + above, columns], blocking)
    first, last = max(rows.start + above, columns.start), min(rows.stop, columns.stop)
    if rows.start + above < rows.stop:
        _kernel(places[rows.start + above : rows.stop, max(last, columns.start) : columns.stop], blocking)
    for corner in range(first, last, blocking.square):
        end = min(corner + blocking.square, last)
        _kernel(places[corner:end, corner:end], blocking)
        _kernel(places[corner:end, end:last], blocking)


def _triangle(places: _Places, blocking: Blocking) -> None:
    """Mark the places on one thread: stretches of columns, each with all the rows above its triangle at a time."""
    left, n = 0, len(places)
    for width in _steps(n, blocking.columns, blocking.square):
        columns = slice(left, left + width)
        _crossing(places, columns, columns, blocking)
        _kernel(places[:left, columns], blocking)
        left += width


def _threaded_triangle(places: _Places, threads: int, blocking: Blocking) -> None:
    """Mark the places on places threads: each takes some columns, and packs the rows with the same numbers."""
    unit = blocking.square
    bounds = [0, *itertools.accumulate(_triangle_shares(len(places), threads, unit))]
    for thread, (left, right) in enumerate(itertools.pairwise(bounds)):
        # The last columns come first, as many as leave a multiple of what is packed at a time.
        last = _last_stretch(right - left, blocking)
        for top, bottom in itertools.pairwise(bounds[: thread + 2]):
            for rows in _runs(top, bottom, unit * -(-(bottom - top) // (2 * unit))):
                for some in [rows] if top < left else _runs(rows.start, rows.stop, unit):
                    _crossing(places, some, slice(right - last, right), blocking)
                for columns in _runs(left, right - last, blocking.columns):
                    _crossing(places, rows, columns, blocking)


def _last_stretch(columns: int, blocking: Blocking) -> int:
    """Return how many of a thread's columns leave a multiple of what is packed at a time."""
    size = next(_steps(columns, blocking.columns, blocking.square))
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
