"""The orders of NumPy's float32 and float64 matrix products through OpenBLAS on x86-64.

Sources: NumPy's ``matmul.c.src`` (which BLAS routine a shape goes to), OpenBLAS's ``interface/gemm.c`` and its kernels
``?gemm_small_kernel_*_skylakex.c`` for small matrices; the other products are in `openblas_gemm`, `openblas_gemv` and
`openblas`. Checked bit for bit against NumPy 2.4 with OpenBLAS 0.3.31 and NumPy 2.5 with 0.3.34 on 1 to 64 threads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fpsim.arithmetic import NO_SETTINGS, Arithmetic, Rounding, Settings
from fpsim.errors import StrategyError, UnknownOrderError
from fpsim.formats import FLOAT32, FLOAT64, Format
from fpsim.orders.base import Configured, Order, Part, Product, Serial
from fpsim.orders.combinators import HalvingFold, Lanes, Pairwise
from fpsim.orders.openblas import OpenblasDdot, OpenblasSdot
from fpsim.orders.openblas_gemm import packed, symmetric
from fpsim.orders.openblas_gemv import columns_by_vector, rows_by_vector
from fpsim.programs import Builder, Items, Segment

CORES = ("skylakex", "haswell")
_FMA = Settings(fma=True, start="+0")
_SETTINGS = {"float32": NO_SETTINGS, "float64": Settings(accumulator=Rounding(FLOAT64))}
PROCESSORS = ("unstated", "zen4", "other")
VERSIONS = ("0.3.31", "0.3.34")
_SMALL = 1_000_000  # m*n*k up to which the kernels for small matrices are used


@dataclass(frozen=True, slots=True)
class NumpyMatmul(Order):
    """``a @ b`` of matrices or a matrix and a vector, as NumPy's OpenBLAS computes it.

    `core` names OpenBLAS's kernels, `threads` how many it may use, `version` its release; `data` is float32 or float64.
    From 0.3.34 on the blocks of large products are others on AMD Zen 4 and 5 (``processor=zen4``) than elsewhere
    (``processor=other``).
    """

    core: str = "skylakex"
    threads: int = 1
    version: str = "0.3.31"
    data: str = "float32"
    processor: str = "unstated"
    name: ClassVar[str] = "numpy_matmul"

    def __post_init__(self) -> None:
        if self.core not in CORES:
            message = f"numpy_matmul: core={self.core} is not known; known are {', '.join(CORES)}"
            raise StrategyError(message)
        if self.version not in VERSIONS:
            message = f"numpy_matmul: OpenBLAS version={self.version} is not known; known are {', '.join(VERSIONS)}"
            raise StrategyError(message)
        if self.data not in _SETTINGS:
            message = f"numpy_matmul: data={self.data} is not known; known are {', '.join(_SETTINGS)}"
            raise StrategyError(message)
        if self.processor not in PROCESSORS:
            known = ", ".join(PROCESSORS)
            message = f"numpy_matmul: processor={self.processor} is not known; known are {known}"
            raise StrategyError(message)
        if self.threads < 1:
            message = f"numpy_matmul: threads must be at least 1, not {self.threads}"
            raise StrategyError(message)

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del builder, items, arithmetic, width
        message = "numpy_matmul depends on the shapes of a product: use it with matmul, not for a sum or a tree"
        raise UnknownOrderError(message)

    def defaults(self, data: Format | None) -> Settings:
        if data not in (None, FLOAT32, FLOAT64):
            message = f"numpy_matmul is known for float32 and float64, not for {data}"
            raise UnknownOrderError(message)
        if data is not None and str(data) != self.data:
            message = f"this numpy_matmul is that of {self.data}: for operands in {data} write data={data} in it"
            raise UnknownOrderError(message)
        return _SETTINGS[self.data]

    def product(self, shape: Product) -> list[Part]:
        parts = self._product(shape)
        if self.data == "float32" or shape.m == shape.n == 1 != shape.k:
            return parts
        return [replace(part, order=_Double(part.order)) for part in parts]

    def _product(self, shape: Product) -> list[Part]:
        if shape.k == 1:  # a rounded product, added to zero: one that underflows loses its sign
            return [Part(Configured(Serial(), Settings(fma=False, start="+0")))]
        if shape.m == 1 or shape.n == 1:
            return self._matrix_vector(shape)
        if "other" in (shape.left, shape.right):
            message = "numpy_matmul: products of matrices that BLAS cannot read in place are not modelled"
            raise UnknownOrderError(message)
        if self.core == "skylakex" and not shape.same and shape.m * shape.n * shape.k <= _SMALL:
            small = _small(shape, 16 if self.data == "float32" else 8)
            if small:
                return small
        return self._matrices(shape)

    def _matrices(self, shape: Product) -> list[Part]:
        rule = symmetric if shape.same else packed
        tables = [self.processor == "zen4"]
        if self.version == "0.3.31":
            tables = [False]
        elif self.processor == "unstated":
            tables = [False, True]
        parts = [rule(shape, data=self.data, core=self.core, zen4=zen4, threads=self.threads) for zen4 in tables]
        if parts[0] != parts[-1]:
            message = (
                "numpy_matmul: this product depends on the processor: write processor=zen4 for AMD Zen 4 and 5 in it,"
                " processor=other for all others"
            )
            raise UnknownOrderError(message)
        return parts[0]

    def _matrix_vector(self, shape: Product) -> list[Part]:
        double = self.data == "float64"
        if shape.m == shape.n == 1:
            if "other" in (shape.left, shape.right):
                message = "numpy_matmul: for float32 vectors with steps use openblas_sdot(inputs=strided)"
                raise UnknownOrderError(message)
            return [Part(OpenblasDdot(self.core, self.threads) if double else OpenblasSdot(self.core))]
        matrix = shape.right if shape.m == 1 else shape.left
        if "other" in (shape.left, shape.right):
            message = "numpy_matmul: products with operands that are not contiguous are not modelled"
            raise UnknownOrderError(message)
        terms_together = matrix == ("F" if shape.m == 1 else "C")
        count = max(shape.m, shape.n)
        if terms_together:
            outputs = rows_by_vector(
                count, shape.k, core=self.core, version=self.version, threads=self.threads, double=double
            )
        else:
            outputs = columns_by_vector(count, shape.k, core=self.core, threads=self.threads, double=double)
        if shape.m == 1:
            return [Part(order, columns=places) for order, places in outputs]
        return [Part(order, places) for order, places in outputs]

    def arguments(self) -> list[str]:
        data = [] if self.data == "float32" else [f"data={self.data}"]
        processor = [] if self.processor == "unstated" else [f"processor={self.processor}"]
        return [f"core={self.core}", f"threads={self.threads}", f'version="{self.version}"', *data, *processor]


@dataclass(frozen=True, slots=True)
class _Double(Order):
    """An order whose accumulators are float64."""

    order: Order
    name: ClassVar[str] = "double"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        return self.order.build(builder, items, arithmetic, width=width)

    def defaults(self, data: Format | None) -> Settings:
        del data
        return _SETTINGS["float64"]

    def __str__(self) -> str:
        return str(self.order)


def _small(shape: Product, lanes: int) -> list[Part]:
    """Return the orders of the kernels for small matrices: serial over all terms, lanes for some outputs.

    The list is empty where the packed kernels are used nevertheless.
    """
    m, n, k = shape.m, shape.n, shape.k
    serial = Configured(Serial(), _FMA)
    if shape.left == "F":
        return [Part(serial)]
    first = n - n % lanes if shape.right == "C" else 0
    if shape.right == "C" and not (1 <= n % lanes <= lanes // 2 and k >= 2 * lanes):
        return [Part(serial)]
    if shape.right == "F" and (k < 32 or m * n > 1200):
        return []
    # The lanes are added in quads where four outputs are stored together, else by halves.
    quads = Configured(Lanes(lanes, combine=Pairwise()), _FMA)
    fold = Configured(Lanes(lanes, combine=HalvingFold()), _FMA)
    columns, rows = max(n // 4 * 4, first), m // 4 * 4
    return [
        Part(serial, range(m), range(first)),
        Part(quads, range(m), range(first, columns)),
        Part(quads, range(rows), range(columns, n)),
        Part(fold, range(rows, m), range(columns, n)),
    ]
