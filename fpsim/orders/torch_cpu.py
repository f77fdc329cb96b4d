"""The orders of PyTorch's sums and norms on x86-64 CPUs.

Sources: ``aten/src/ATen/native/cpu/SumKernel.cpp``, ``aten/src/ATen/native/TensorIteratorReduce.cpp``,
``aten/src/ATen/native/cpu/ReduceOpsKernel.cpp`` and ``aten/src/ATen/native/ReduceOps.cpp`` (variances). Checked bit for bit against PyTorch 2.13 (AMD EPYC, Zen 4), and sums of
float32 against recorded results of PyTorch 2.11 (Intel Xeon).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from fpsim.arithmetic import NO_SETTINGS, Arithmetic, Rounding, Settings
from fpsim.errors import StrategyError, UnknownOrderError
from fpsim.formats import FLOAT32, FLOAT64, Format
from fpsim.orders.base import SERIAL, Order, Part, Reduction
from fpsim.orders.combinators import Cascade, lane_sums
from fpsim.orders.named import NamedRule
from fpsim.programs import Builder, Items, Segment, count_items, split_items

_VECTOR = 32  # bytes, whatever the processor: the sum is not compiled for AVX-512
_ROUNDED = 128  # bytes, to which the columns of a thread are rounded down
_GRAIN = 32768  # elements that a thread gets at least
_LEVELS = 4
_MOST_THREADS = 256  # below 512 the partial sums of the threads pass a single level of the cascade


@dataclass(frozen=True, slots=True)
class TorchCpuSum(NamedRule):
    """``torch.sum`` on an x86-64 CPU: 8 lanes (4 of float64), each a cascade over four interleaved parts.

    A sum over the rows of a matrix (axis 0) takes four vectors of columns at a time through one cascade each, and the
    columns left over as it takes a row. From 32768 elements on, up to `threads` threads take a run of terms, or of
    columns, each. ``torch.var`` and ``std`` of a whole tensor take the deviations from the mean of that, their squares
    and what follows in float64.
    """

    threads: int = 1
    lanes: int = 8
    name: ClassVar[str] = "torch_cpu_sum"

    def __post_init__(self) -> None:
        NamedRule.__post_init__(self)
        if self.lanes not in (4, 8):
            message = f"torch_cpu_sum: lanes={self.lanes} is not known; known are 8 (float32) and 4 (float64)"
            raise StrategyError(message)

    def layout(self, case: Reduction) -> tuple[tuple[int, ...], list[Part]]:
        shape, strides, item = case.shape, case.strides, _VECTOR // self.lanes
        if 0 not in shape and (case.buffered or not _dense(shape, strides, range(len(shape)), item)):
            self.refuse(
                f"terms that do not lie side by side in memory as native {'float32' if item == 4 else 'float64'}"
            )
        if case.n <= 1 or _dense(shape, strides, case.axes, item):
            axes = tuple(sorted(case.axes, key=lambda axis: (-strides[axis], axis)))
            return axes, [Part(self if case.outputs <= 1 else replace(self, threads=1))]
        if len(shape) != 2 or strides[1] != item:
            self.refuse("sums over several axes, or over an axis that is neither the first nor the last of a matrix")
        columns = shape[1]
        straight = 4 * self.lanes if columns >= self.lanes else 4
        whole = columns - columns % straight
        start = self._last_start(columns) if case.n * columns >= _GRAIN else 0
        if 4 <= columns - start < self.lanes:
            whole = columns - columns % 4  # the last thread has too few columns for a vector
        own = self.defaults(None)
        parts = [Part(_Column(own), columns=range(whole)), Part(_Row(own), columns=range(whole, columns))]
        return case.axes, [part for part in parts if part.columns]

    def _last_start(self, columns: int) -> int:
        """Return the first column that the last thread takes."""
        size = -(-columns // min(self.threads, columns))
        start = (columns - 1) // size * size
        return start - start % (_ROUNDED * self.lanes // _VECTOR)

    def defaults(self, data: Format | None) -> Settings:
        if self.lanes == 4 and data in (None, FLOAT64):
            return Settings(accumulator=Rounding(FLOAT64))
        if data not in (None, FLOAT32) or (self.lanes == 4 and data is not None):
            self.refuse(f"operands in {data}" + ("" if data != FLOAT64 else ": lanes=4 is the rule for those"))
        return self.own

    def for_deviations(self, data: Format | None) -> tuple[Order, Settings]:
        output = Rounding(FLOAT32) if data == FLOAT32 else None
        return _Deviations(self.threads), Settings(accumulator=Rounding(FLOAT64), output=output)

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        arithmetic = replace(arithmetic, start="+0")
        parts = list(_shared(items, self.threads))
        if len(parts) == 1:
            return self._contiguous(builder, items, arithmetic)
        if self.threads > _MOST_THREADS:
            self.refuse(f"more than {_MOST_THREADS} threads")
        sums = [self._contiguous(builder, part, arithmetic) for part in parts]
        return _over_threads(builder, sums, self.threads, self.lanes, arithmetic)

    def _contiguous(self, builder: Builder, items: Items, arithmetic: Arithmetic) -> Segment:
        """Fewer terms than lanes as they are; else the lanes are added one by one after the terms left over."""
        n = count_items(items)
        if n < self.lanes:
            return _ROW.build(builder, items, arithmetic)
        body, rest = split_items(items, n - n % self.lanes)
        lanes = lane_sums(builder, body, arithmetic, self.lanes, _ROW)
        return builder.fold((*rest, *lanes), arithmetic)


@dataclass(frozen=True, slots=True)
class _Deviations(Order):
    """The squared deviations of ``torch.var`` of a whole tensor: serially in float64, by threads as in a sum."""

    threads: int = 1
    name: ClassVar[str] = "torch_deviations"

    def layout(self, case: Reduction) -> tuple[tuple[int, ...], list[Part]]:
        if case.outputs > 1:
            message = "torch_cpu_sum is not known for several variances at a time, which PyTorch updates term by term"
            raise UnknownOrderError(message)
        return tuple(sorted(case.axes, key=lambda axis: (-case.strides[axis], axis))), [Part(self)]

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        arithmetic = replace(arithmetic, start="+0")
        return builder.fold([builder.fold(part, arithmetic) for part in _shared(items, self.threads)], arithmetic)


@dataclass(frozen=True, slots=True)
class TorchCpuNorm(NamedRule):
    """``torch.linalg.vector_norm`` on an x86-64 CPU, before the square root: 8 lanes of rounded squares.

    The lanes are added one by one, then the squares left over; the last n mod 4 of them are fused, except with
    ``code=default``, what PyTorch runs where there is no AVX2 (``torch.backends.cpu.get_cpu_capability()``).
    """

    code: str = "avx2"
    name: ClassVar[str] = "torch_cpu_norm"
    choices: ClassVar[dict[str, tuple[str, ...]]] = {"code": ("avx2", "default")}

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        n = count_items(items)
        body, rest = split_items(items, n - n % 8)
        lanes = lane_sums(builder, body, replace(arithmetic, start="+0"), 8, SERIAL) if body else ()
        squares, last = split_items(rest, len(rest) and count_items(rest) - n % 4)
        total: Items = ()
        if lanes or squares:
            total = (builder.fold((*lanes, *squares), arithmetic),)
        if self.code == "avx2":
            arithmetic = replace(arithmetic, fma=True, product=None)
        return builder.fold((*total, *last), arithmetic)


def _dense(shape: tuple[int, ...], strides: tuple[int, ...], axes: range | tuple[int, ...], item: int) -> bool:
    """Whether the elements along these axes lie side by side."""
    step = item
    for stride, size in sorted((strides[axis], shape[axis]) for axis in axes if shape[axis] != 1):
        if stride != step:
            return False
        step *= size
    return True


def _shared(items: Items, threads: int) -> Iterator[Items]:
    """Yield the runs of terms that the threads take."""
    n = count_items(items)
    size = -(-n // max(1, min(threads, -(-n // _GRAIN))))
    while items:
        part, items = split_items(items, size)
        yield part


@dataclass(frozen=True, slots=True)
class _Row(Order):
    """Four interleaved cascades; the last n mod 4 terms are added to the first, then the others."""

    own: Settings = NO_SETTINGS
    name: ClassVar[str] = "torch_row_sum"

    def defaults(self, data: Format | None) -> Settings:
        del data
        return self.own

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        arithmetic = replace(arithmetic, start="+0")
        n = count_items(items)
        body, rest = split_items(items, n - n % 4)
        if not body:
            return builder.fold(rest, arithmetic)
        cascade = Cascade(_LEVELS, _step(n // 4))
        first, others = split_items(lane_sums(builder, body, arithmetic, 4, cascade), 1)
        return builder.fold((*first, *rest, *others), replace(arithmetic, start="first"))


@dataclass(frozen=True, slots=True)
class _Column(Order):
    """One cascade."""

    own: Settings = NO_SETTINGS
    name: ClassVar[str] = "torch_column_sum"

    def defaults(self, data: Format | None) -> Settings:
        del data
        return self.own

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        return Cascade(_LEVELS, _step(count_items(items))).build(builder, items, replace(arithmetic, start="+0"))


_ROW = _Row()


def _step(rows: int) -> int:
    """Return the number of rows that an accumulator of a cascade takes."""
    return int(2 ** max(4, (rows - 1).bit_length() // _LEVELS))


def _over_threads(builder: Builder, sums: list[Segment], threads: int, lanes: int, arithmetic: Arithmetic) -> Segment:
    """Add what the threads give as a row of so many terms; those without work give zeros."""

    def row(places: list[int]) -> list[Segment]:
        whole = len(places) // 4 * 4
        parts = [places[j:whole:4] for j in range(4)]
        parts[0] += places[whole:]
        return add([add([sums[i] for i in part if i < len(sums)]) for part in parts])

    def add(terms: list[list[Segment]] | list[Segment]) -> list[Segment]:
        flat = [term for part in terms for term in (part if isinstance(part, list) else [part])]
        return [builder.fold(flat, arithmetic)] if flat else []

    whole = threads // lanes * lanes
    if not whole:
        return row([*range(threads)])[0]
    rest = [sums[i] for i in range(whole, len(sums))]
    return add([rest, *(row([*range(lane, whole, lanes)]) for lane in range(lanes))])[0]
