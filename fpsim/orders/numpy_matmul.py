"""The orders of NumPy's float32 matrix products through OpenBLAS on x86-64.

Sources: NumPy's ``matmul.c.src`` (which BLAS routine a shape goes to) and OpenBLAS's ``interface/gemm.c``,
``driver/level3/level3.c`` and ``level3_thread.c``, ``kernel/x86_64/sgemv_t_4.c`` and the small-matrix kernels of
SKYLAKEX. Checked bit for bit against NumPy 2.4 with OpenBLAS 0.3.31, the SKYLAKEX kernels, on 1 and 2 threads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fpsim.arithmetic import NO_SETTINGS, Arithmetic, Settings
from fpsim.errors import StrategyError, UnknownOrderError
from fpsim.formats import FLOAT32, Format
from fpsim.orders.base import Configured, Order, Part, Product
from fpsim.orders.combinators import Chunks, HalvingFold, Lanes, Pairwise, Serial
from fpsim.programs import Builder, Items, Segment, count_items, split_items

CORES = ("skylakex",)
_FMA = Settings(fma=True, start="+0")
#: Terms that the packed kernels take before they add to the result, and the multiple that a halved rest is cut to.
_BLOCK, _UNIT = 448, 16
_SMALL = 1_000_000  # m*n*k up to which the kernels for small matrices are used
_ONE_THREAD = 262_144  # m*n*k that each thread gets at least
_GEMV_BLOCK = 4096
_GEMV_THREADS = 460_800  # elements of the matrix from which its rows are shared among threads


@dataclass(frozen=True, slots=True)
class NumpyMatmul(Order):
    """``a @ b`` of float32 matrices or a matrix and a vector, as NumPy's OpenBLAS computes it.

    `core` names OpenBLAS's kernels, `threads` how many it may use.
    """

    core: str = "skylakex"
    threads: int = 1
    name: ClassVar[str] = "numpy_matmul"

    def __post_init__(self) -> None:
        if self.core not in CORES:
            message = f"numpy_matmul: core={self.core} is not known; known are {', '.join(CORES)}"
            raise StrategyError(message)
        if self.threads < 1:
            message = f"numpy_matmul: threads must be at least 1, not {self.threads}"
            raise StrategyError(message)

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del builder, items, arithmetic, width
        message = "numpy_matmul depends on the shapes of a product: use it with matmul, not for a sum or a tree"
        raise UnknownOrderError(message)

    def defaults(self, data: Format | None) -> Settings:
        if data not in (None, FLOAT32):
            message = f"numpy_matmul is known for float32, not for {data}"
            raise UnknownOrderError(message)
        return NO_SETTINGS

    def product(self, shape: Product) -> list[Part]:
        if shape.k == 1:
            return [Part(Configured(Serial(), _FMA))]
        if shape.m == 1 or shape.n == 1:
            return self._matrix_vector(shape)
        if "other" in (shape.left, shape.right):
            message = "numpy_matmul: products of matrices that BLAS cannot read in place are not modelled"
            raise UnknownOrderError(message)
        size = shape.m * shape.n * shape.k
        if shape.same:
            return [_blocked(shape.k, halves=True)]
        if size <= _SMALL:
            return _small(shape)
        return [_blocked(shape.k, halves=min(self.threads, size // _ONE_THREAD) > 1)]

    def _matrix_vector(self, shape: Product) -> list[Part]:
        if shape.m == shape.n == 1:
            message = "numpy_matmul: a product of two vectors goes to sdot, which is not modelled here"
            raise UnknownOrderError(message)
        if shape.m == 1:
            return self._vector_matrix(shape)
        if shape.left != "C":
            message = "numpy_matmul: a matrix times a vector is known for matrices in C order"
            raise UnknownOrderError(message)
        if shape.k <= 8:
            message = "numpy_matmul: a matrix times a vector of at most 8 elements is not modelled"
            raise UnknownOrderError(message)
        rows = shape.m
        per_thread = rows
        if rows * shape.k >= _GEMV_THREADS:
            per_thread = -(-rows // self.threads)
        parts: list[Part] = []
        for first in range(0, rows, per_thread):
            last = min(first + per_thread, rows)
            parts += _gemv_t_rows(first, last)
        return parts

    def _vector_matrix(self, shape: Product) -> list[Part]:
        if shape.right == "C" and shape.k <= 48 and shape.k != 4 and shape.n <= 16384:
            return [Part(Configured(Serial(), _FMA))]
        if shape.right == "C" and shape.k % 4 == 0 and shape.n % 16 == 0 and shape.n * shape.k < _GEMV_THREADS:
            return [Part(Configured(_GemvN(), _FMA))]
        message = "numpy_matmul: this vector times a matrix is not modelled"
        raise UnknownOrderError(message)

    def arguments(self) -> list[str]:
        return [f"core={self.core}", f"threads={self.threads}"]


def _blocked(k: int, *, halves: bool) -> Part:
    """Blocks of `_BLOCK` terms, each summed from zero and added to the result; the last two nearly equal."""
    sizes = []
    while k:
        if k >= 2 * _BLOCK:
            size = _BLOCK
        elif k > _BLOCK:
            size = (k + 1) // 2 if halves else -(-(k // 2) // _UNIT) * _UNIT
        else:
            size = k
        sizes.append(size)
        k -= size
    return Part(Configured(Chunks(tuple(sizes)), _FMA))


def _small(shape: Product) -> list[Part]:
    """Return the orders of the kernels for small matrices: serial over all terms, 16 lanes for some outputs."""
    m, n, k = shape.m, shape.n, shape.k
    serial = Configured(Serial(), _FMA)
    if shape.left == "F":
        if shape.right == "F" and k < 4:
            message = "numpy_matmul: products of two transposed matrices of fewer than 4 terms are not modelled"
            raise UnknownOrderError(message)
        return [Part(serial)]
    first = n - n % 16 if shape.right == "C" else 0
    if shape.right == "C" and not (1 <= n % 16 <= 8 and k >= 32):
        return [Part(serial)]
    if shape.right == "F" and (k < 32 or m * n > 1200):
        return [_blocked(k, halves=False)]
    # The lanes are added in quads where four outputs are stored together, else by halves.
    quads = Configured(Lanes(16, combine=Pairwise()), _FMA)
    fold = Configured(Lanes(16, combine=HalvingFold()), _FMA)
    columns, rows = max(n // 4 * 4, first), m // 4 * 4
    return [
        Part(serial, (0, m), (0, first)),
        Part(quads, (0, m), (first, columns)),
        Part(quads, (0, rows), (columns, n)),
        Part(fold, (rows, m), (columns, n)),
    ]


def _gemv_t_rows(first: int, last: int) -> list[Part]:
    """Return the orders of the rows of a matrix-vector product: four at a time, then two, then one."""
    quads = first + (last - first) // 4 * 4
    pairs = quads + (last - quads) // 2 * 2
    every = (0, 1)
    return [
        Part(_GemvT(8), (first, quads), every),
        Part(_GemvT(4), (quads, pairs), every),
        Part(_GemvT(1), (pairs, last), every),
    ]


@dataclass(frozen=True, slots=True)
class _GemvT(Order):
    """A row of sgemv_t: 8 fused lanes, 4 lanes of rounded products, or (1) two sets of 4 such lanes in turn."""

    lanes: int
    name: ClassVar[str] = "sgemv_t"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        fused = replace(arithmetic, fma=True, start="first")
        own = replace(fused, fma=self.lanes == 8)
        n = count_items(items)
        body, tail = split_items(items, n - n % 4)
        total: list[Segment] = []
        while body:
            block, body = split_items(body, _GEMV_BLOCK)
            total.append(self._block(builder, block, own))
        rest = [split_items(split_items(tail, place)[1], 1)[0][0] for place in range(n % 4)]
        if len(rest) == 1:
            total.append(rest[0])
        elif rest:
            # The compiler contracts a*b + c*d to fma(a, b, c*d): the second product is rounded.
            total.append(builder.fold([rest[1], rest[0], *rest[2:]], fused))
        return builder.fold(total, fused, start="+0")

    def _block(self, builder: Builder, items: Items, arithmetic: Arithmetic) -> Segment:
        n = count_items(items)
        head, body = split_items(items, 4 if n % 8 and self.lanes != 4 else 0)
        period = 4 if self.lanes == 4 else 8
        places = []
        for lane in range(period):
            terms = list(split_items(split_items(head, lane)[1], 1)[0]) if lane < 4 else []
            if lane < count_items(body):
                (row,) = split_items(body, lane)[1]
                terms.append(Segment(row.base, -(-row.count // period), row.stride * period, item=row.item))
            places.append([builder.fold(terms, arithmetic)] if terms else [])
        sums = [builder.fold([*places[lane], *places[lane + 4]], arithmetic) if period == 8 else places[lane][0]
                for lane in range(4)]  # fmt: skip
        halves = [builder.fold(sums[:2], arithmetic), builder.fold(sums[2:], arithmetic)]
        return builder.fold(halves, arithmetic)


@dataclass(frozen=True, slots=True)
class _GemvN(Order):
    """A column of sgemv_n: blocks of 8 terms, then one of 4, each a chain from zero that is added to the result."""

    name: ClassVar[str] = "sgemv_n"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        n = count_items(items)
        sizes = (8,) * (n // 8) + ((4,) if n % 8 else ())
        return Chunks(sizes).build(builder, items, arithmetic, width=width)
