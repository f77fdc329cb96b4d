"""The orders of NumPy's float32 matrix products through OpenBLAS on x86-64.

Sources: NumPy's ``matmul.c.src`` (which BLAS routine a shape goes to) and OpenBLAS's ``interface/gemm.c``,
``driver/level3/level3.c`` and ``level3_thread.c``, ``kernel/x86_64/sgemv_t_4.c`` and the small-matrix kernels of
SKYLAKEX. Checked bit for bit against NumPy 2.4 with OpenBLAS 0.3.31 and NumPy 2.5 with 0.3.34: the SKYLAKEX kernels on
1 and 2 threads, the HASWELL kernels on one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fpsim.arithmetic import NO_SETTINGS, Arithmetic, Settings
from fpsim.errors import StrategyError, UnknownOrderError
from fpsim.formats import FLOAT32, Format
from fpsim.orders.base import Configured, Order, Part, Product
from fpsim.orders.combinators import Chunks, HalvingFold, Lanes, Pairwise, Serial, lane_sums
from fpsim.orders.openblas import OpenblasSdot
from fpsim.programs import Builder, Items, Segment, count_items, split_items

CORES = ("skylakex", "haswell")
_FMA = Settings(fma=True, start="+0")
#: Terms that the packed kernels take before they add to the result, and the multiple that a halved rest is cut to.
_BLOCKS = {
    ("skylakex", "0.3.31"): (448, 16),
    ("skylakex", "0.3.34"): (512, 16),
    ("haswell", "0.3.31"): (320, 8),
    ("haswell", "0.3.34"): (512, 8),
}
VERSIONS = ("0.3.31", "0.3.34")
_SMALL = 1_000_000  # m*n*k up to which the kernels for small matrices are used
_ONE_THREAD = 262_144  # m*n*k that each thread gets at least
#: Columns that HASWELL's packed kernel takes at a time.
_STRETCHES = {"0.3.31": 320, "0.3.34": 384}
_GEMV_BLOCK = 4096
_GEMV_THREADS = 460_800  # elements of the matrix from which its rows are shared among threads


@dataclass(frozen=True, slots=True)
class NumpyMatmul(Order):
    """``a @ b`` of float32 matrices or a matrix and a vector, as NumPy's OpenBLAS computes it.

    `core` names OpenBLAS's kernels, `threads` how many it may use, `version` its release.
    """

    core: str = "skylakex"
    threads: int = 1
    version: str = "0.3.31"
    name: ClassVar[str] = "numpy_matmul"

    def __post_init__(self) -> None:
        if self.core not in CORES:
            message = f"numpy_matmul: core={self.core} is not known; known are {', '.join(CORES)}"
            raise StrategyError(message)
        if self.version not in VERSIONS:
            message = f"numpy_matmul: OpenBLAS version={self.version} is not known; known are {', '.join(VERSIONS)}"
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
        threaded = min(self.threads, size // _ONE_THREAD) > 1
        if self.core == "haswell":
            if shape.same or threaded:
                message = "numpy_matmul: products on several threads and a @ a.T are not modelled for core=haswell"
                raise UnknownOrderError(message)
            return _haswell(shape, self.version)
        if shape.same:
            return [_blocked(shape.k, (self.core, self.version), halves=True)]
        if size <= _SMALL:
            return _small(shape, self.version)
        return [_blocked(shape.k, (self.core, self.version), halves=threaded)]

    def _matrix_vector(self, shape: Product) -> list[Part]:
        if shape.m == shape.n == 1:
            if "other" in (shape.left, shape.right):
                message = "numpy_matmul: for vectors with steps use openblas_sdot(inputs=strided)"
                raise UnknownOrderError(message)
            return [Part(OpenblasSdot(self.core))]
        if shape.m == 1:
            return self._vector_matrix(shape)
        if shape.left != "C":
            message = "numpy_matmul: a matrix times a vector is known for matrices in C order"
            raise UnknownOrderError(message)
        if shape.k <= 8 and self.core == "skylakex":
            message = "numpy_matmul: a matrix times a vector of at most 8 elements is not modelled"
            raise UnknownOrderError(message)
        rows = shape.m
        per_thread = rows
        if rows * shape.k >= _GEMV_THREADS:
            per_thread = -(-rows // self.threads)
        parts: list[Part] = []
        for first in range(0, rows, per_thread):
            last = min(first + per_thread, rows)
            parts += _gemv_t_rows(first, last, self.core == "skylakex")
        return parts

    def _vector_matrix(self, shape: Product) -> list[Part]:
        if self.core == "skylakex" and shape.right == "C" and shape.k <= 48 and shape.k != 4 and shape.n <= 16384:
            return [Part(Configured(Serial(), _FMA))]
        if shape.right == "C" and shape.k % 4 == 0 and shape.n % 16 == 0 and shape.n * shape.k < _GEMV_THREADS:
            return [Part(Configured(_GemvN(), _FMA))]
        message = "numpy_matmul: this vector times a matrix is not modelled"
        raise UnknownOrderError(message)

    def arguments(self) -> list[str]:
        return [f"core={self.core}", f"threads={self.threads}", f'version="{self.version}"']


def _blocks(k: int, kernels: tuple[str, str], *, halves: bool = False) -> tuple[int, ...]:
    """Return the sizes of the blocks of terms; the last two are nearly equal."""
    block, unit = _BLOCKS[kernels]
    sizes = []
    while k:
        if k >= 2 * block:
            size = block
        elif k > block:
            size = (k + 1) // 2 if halves else -(-(k // 2) // unit) * unit
        else:
            size = k
        sizes.append(size)
        k -= size
    return tuple(sizes)


def _blocked(k: int, kernels: tuple[str, str], *, halves: bool) -> Part:
    """Return the order of the packed kernels: blocks, each summed from zero and added to the result."""
    return Part(Configured(Chunks(_blocks(k, kernels, halves=halves)), _FMA))


def _haswell(shape: Product, version: str) -> list[Part]:
    """Return the orders of HASWELL's kernel, which sums some tiles in two accumulators, of the even and the odd terms.

    Rows go in twelves, then in fours; columns in stretches, each in tiles of 8. Of twelve rows the first six have two
    accumulators in the first tile, and six of them in the last, which six by the parity of tiles.
    """
    sizes = _blocks(shape.k, ("haswell", version))
    serial = Configured(Chunks(sizes), _FMA)
    double = Configured(Chunks(sizes, _EvenOdd()), _FMA)
    twelves, fours = shape.m // 12 * 12, shape.m // 4 * 4
    upper = tuple(i for i in range(twelves) if i % 12 < 6)
    lower = tuple(i for i in range(twelves) if i % 12 >= 6)
    quads, last = tuple(range(twelves, fours)), tuple(range(fours, shape.m))
    parts: list[Part] = []
    first, left, stretch = 0, shape.n, _STRETCHES[version]
    while left:
        width = stretch if left >= 2 * stretch else -(-(left // 2) // 8) * 8 if left > stretch else left
        tiles = width // 8
        start = tuple(range(first, first + 8 * min(tiles, 1)))
        end = tuple(range(first + 8 * (tiles - 1), first + 8 * tiles)) if tiles > 1 else ()
        middle = tuple(range(first + len(start), first + 8 * tiles - len(end)))
        rest = tuple(range(first + 8 * tiles, first + width))
        with_two = double if tiles > 1 else serial
        halves = (double, serial) if tiles % 2 == 0 else (serial, double)
        # After the first stretch eight rows in one go have one accumulator, four still two.
        in_fours = serial if first and len(quads) == 8 else double
        parts += [
            Part(with_two, upper, start), Part(serial, lower, start),
            Part(halves[0], upper, end), Part(halves[1], lower, end),
            Part(serial, (*upper, *lower), (*middle, *rest)),
            Part(in_fours, quads, (*start, *middle, *end)), Part(serial, quads, rest),
            Part(serial, last, (*start, *middle, *end, *rest)),
        ]  # fmt: skip
        first, left = first + width, left - width
    return [part for part in parts if part.rows and part.columns]


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


def _small(shape: Product, version: str) -> list[Part]:
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
        return [_blocked(k, ("skylakex", version), halves=False)]
    # The lanes are added in quads where four outputs are stored together, else by halves.
    quads = Configured(Lanes(16, combine=Pairwise()), _FMA)
    fold = Configured(Lanes(16, combine=HalvingFold()), _FMA)
    columns, rows = max(n // 4 * 4, first), m // 4 * 4
    return [
        Part(serial, range(m), range(first)),
        Part(quads, range(m), range(first, columns)),
        Part(quads, range(rows), range(columns, n)),
        Part(fold, range(rows, m), range(columns, n)),
    ]


def _gemv_t_rows(first: int, last: int, contracted: bool) -> list[Part]:
    """Return the orders of the rows of a matrix-vector product: four at a time, then two, then one."""
    quads = first + (last - first) // 4 * 4
    pairs = quads + (last - quads) // 2 * 2
    return [
        Part(_GemvT(8, contracted), range(first, quads)),
        Part(_GemvT(4, contracted), range(quads, pairs)),
        Part(_GemvT(1, contracted), range(pairs, last)),
    ]


@dataclass(frozen=True, slots=True)
class _GemvT(Order):
    """A row of sgemv_t: 8 fused lanes, 4 lanes of rounded products, or (1) two sets of 4 such lanes in turn.

    `contracted`: the compiler fused products of the last n mod 4 terms.
    """

    lanes: int
    contracted: bool
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
        if rest and not self.contracted:
            total.append(builder.fold(rest, replace(fused, fma=False)))
        elif len(rest) == 1:
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
