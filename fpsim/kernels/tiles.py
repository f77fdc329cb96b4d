"""Register tiles: the inner loops of the interpreter as LLVM IR.

A tile holds ``rows x vectors`` accumulators of ``lanes`` floats each. They stay in SIMD registers over a whole run of
leaves, of any stride and length, which is what makes an emulated product about as fast as a BLAS. Products are either
fused (``llvm.fma``) or rounded on their own; no fast-math flag is ever set, so the order is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fpsim.kernels.sequencer import END_ADD, START_CONTINUE, START_FIRST, START_ZERO


class Tile(NamedTuple):
    """Shape of a register tile: `rows` x `vectors` accumulators of `lanes` floats."""

    rows: int
    vectors: int
    lanes: int

    @property
    def width(self) -> int:
        """Columns of the tile."""
        return self.vectors * self.lanes


def _host_vector_bytes() -> int:
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 64
    return 32 if features.get("avx2") else 16


def _tiles(itemsize: int) -> tuple[Tile, Tile, Tile]:
    # wide: as many accumulators as the register file holds beside the operands; row: enough to hide the latency.
    lanes = _host_vector_bytes() // itemsize
    wide = {64: Tile(8, 2, lanes), 32: Tile(4, 2, lanes), 16: Tile(4, 2, lanes)}[_host_vector_bytes()]
    return Tile(1, 1, 1), Tile(1, 4, lanes), wide


# Which tile a kernel uses is told by the length of a tuple: numba compiles a function anew for each tuple type, and
# unlike a literal argument that costs nothing per call.
SCALAR, ROW, WIDE = (0,), (0, 0), (0, 0, 0)
TILES = {4: _tiles(4), 8: _tiles(8)}


def _element(array_type: Any) -> tuple[Any, int]:
    return (ir.FloatType(), 4) if array_type.dtype == types.float32 else (ir.DoubleType(), 8)


class _Emitter:
    """Emits the code of one tile, or of `rows` of its rows: vectors of `lanes` floats, plain floats if `lanes` is 1."""

    def __init__(self, builder: Any, tile: Tile, element: Any, itemsize: int) -> None:
        self.builder = builder
        self.tile = tile
        self.element = element
        self.itemsize = itemsize
        self.vector = element if tile.lanes == 1 else ir.VectorType(element, tile.lanes)
        suffix = {4: "f32", 8: "f64"}[itemsize]
        name = f"llvm.fma.{suffix}" if tile.lanes == 1 else f"llvm.fma.v{tile.lanes}{suffix}"
        self.fma_function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(self.vector, [self.vector] * 3), name
        )

    def constant(self, value: float) -> Any:
        if self.tile.lanes == 1:
            return ir.Constant(self.element, value)
        return ir.Constant(self.vector, [ir.Constant(self.element, value)] * self.tile.lanes)

    def load(self, pointer: Any, index: Any) -> Any:
        address = self.builder.bitcast(self.builder.gep(pointer, [index]), self.vector.as_pointer())
        return self.builder.load(address, align=self.itemsize)

    def store(self, value: Any, pointer: Any, index: Any) -> None:
        address = self.builder.bitcast(self.builder.gep(pointer, [index]), self.vector.as_pointer())
        self.builder.store(value, address, align=self.itemsize)

    def broadcast(self, pointer: Any, index: Any) -> Any:
        scalar = self.builder.load(self.builder.gep(pointer, [index]), align=self.itemsize)
        if self.tile.lanes == 1:
            return scalar
        single = self.builder.insert_element(ir.Constant(self.vector, ir.Undefined), scalar, _i32(0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), self.tile.lanes), [0] * self.tile.lanes)
        return self.builder.shuffle_vector(single, ir.Constant(self.vector, ir.Undefined), mask)

    def cells(self, rows: int) -> list[tuple[int, int]]:
        return [(r, v) for r in range(rows) for v in range(self.tile.vectors)]

    def register_index(self, register: Any, first_row: Any, cell: tuple[int, int]) -> Any:
        r, v = cell
        b = self.builder
        row = b.add(b.mul(register, _i64(self.tile.rows)), b.add(first_row, _i64(r)))
        return b.add(b.mul(row, _i64(self.tile.width)), _i64(v * self.tile.lanes))

    def loop(self, count: Any, values: list[Any], body: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
        """Run ``values = body(i, values)`` for i in 0 to count - 1, with the values in registers."""
        b = self.builder
        before = b.block
        inside, after = b.append_basic_block("loop"), b.append_basic_block("loop.end")
        b.cbranch(b.icmp_signed(">", count, _i64(0)), inside, after)
        b.position_at_end(inside)
        i = b.phi(ir.IntType(64))
        carried = [b.phi(self.vector) for _ in values]
        updated = body(i, carried)
        i_next = b.add(i, _i64(1))
        i.add_incoming(_i64(0), before)
        i.add_incoming(i_next, b.block)
        for phi, value, new in zip(carried, values, updated, strict=True):
            phi.add_incoming(value, before)
            phi.add_incoming(new, b.block)
        last = b.block
        b.cbranch(b.icmp_signed("<", i_next, count), inside, after)
        b.position_at_end(after)
        results = []
        for value, new in zip(values, updated, strict=True):
            phi = b.phi(self.vector)
            phi.add_incoming(value, before)
            phi.add_incoming(new, last)
            results.append(phi)
        return results


def _i32(value: int) -> Any:
    return ir.Constant(ir.IntType(32), value)


def _i64(value: int) -> Any:
    return ir.Constant(ir.IntType(64), value)


def _data(context: Any, builder: Any, array_type: Any, value: Any) -> Any:
    return context.make_array(array_type)(context, builder, value).data


class _Run(NamedTuple):
    """The operands of a run: arrays as pointers, the rest as 64-bit integers."""

    left: Any
    right: Any
    registers: Any
    left_offset: Any
    row_stride: Any
    leaf_stride: Any
    right_offset: Any
    right_stride: Any
    dst: Any
    start: Any
    end: Any
    base: Any
    n_items: Any
    s_items: Any
    n_outer: Any
    s_outer: Any
    n_inner: Any
    s_inner: Any


def _emit_leaves(
    e: _Emitter, product: int, run: _Run, base: Any, first_row: Any, rows: int, values: list[Any]
) -> list[Any]:
    """Fold the leaves ``base + o*s_outer + i*s_inner`` into `values`, one vector for each cell."""
    b = e.builder
    cells = e.cells(rows)

    def step(k: Any, accumulators: list[Any]) -> list[Any]:
        row = b.add(run.right_offset, b.mul(k, run.right_stride))
        columns = [e.load(run.right, b.add(row, _i64(v * e.tile.lanes))) for v in range(e.tile.vectors)]
        if not product:
            return [b.fadd(acc, columns[v]) for acc, (_, v) in zip(accumulators, cells, strict=True)]
        at = b.add(run.left_offset, b.mul(k, run.leaf_stride))
        places = [b.add(at, b.mul(run.row_stride, b.add(first_row, _i64(r)))) for r in range(rows)]
        scalars = [e.broadcast(run.left, place) for place in places]
        if product == FUSED:
            return [
                b.call(e.fma_function, [scalars[r], columns[v], acc])
                for acc, (r, v) in zip(accumulators, cells, strict=True)
            ]
        return [b.fadd(acc, b.fmul(scalars[r], columns[v])) for acc, (r, v) in zip(accumulators, cells, strict=True)]

    def inner(o: Any, accumulators: list[Any]) -> list[Any]:
        begin = b.add(base, b.mul(o, run.s_outer))
        return e.loop(run.n_inner, accumulators, lambda i, acc: step(b.add(begin, b.mul(i, run.s_inner)), acc))

    return e.loop(run.n_outer, values, inner)


def _emit_start(e: _Emitter, run: _Run, first_row: Any, rows: int) -> list[Any]:
    """Return the accumulators as the run finds them. Starting from -0 is starting from the first term: x + -0 is x."""
    b = e.builder
    cells = e.cells(rows)
    zero = b.icmp_signed("==", run.start, _i64(START_ZERO))
    constant = b.select(zero, e.constant(0.0), e.constant(-0.0))
    before = b.block
    loads, after = b.append_basic_block("continue"), b.append_basic_block("started")
    b.cbranch(b.icmp_signed("==", run.start, _i64(START_CONTINUE)), loads, after)
    b.position_at_end(loads)
    loaded = [e.load(run.registers, e.register_index(run.dst, first_row, cell)) for cell in cells]
    b.branch(after)
    b.position_at_end(after)
    out = []
    for value in loaded:
        phi = b.phi(e.vector)
        phi.add_incoming(constant, before)
        phi.add_incoming(value, loads)
        out.append(phi)
    return out


def _emit_end(e: _Emitter, run: _Run, first_row: Any, rows: int, values: list[Any]) -> None:
    """Store the accumulators in the register, or add them to it."""
    b = e.builder
    with b.if_else(b.icmp_signed("==", run.end, _i64(END_ADD))) as (adds, stores):
        for branch, add in ((adds, True), (stores, False)):
            with branch:
                for cell, value in zip(e.cells(rows), values, strict=True):
                    at = e.register_index(run.dst, first_row, cell)
                    e.store(b.fadd(e.load(run.registers, at), value) if add else value, run.registers, at)


def _emit_quad(e: _Emitter, product: int, run: _Run, first_row: Any, rows: int) -> list[Any]:
    """Return ``(x0 + x1) + (x2 + x3)`` of four leaves that follow each other, of a packed left operand."""
    b = e.builder
    cells = e.cells(rows)
    row = b.mul(run.base, _i64(e.tile.width))
    at = b.add(b.add(run.left_offset, b.mul(run.base, _i64(e.tile.rows))), first_row)

    def leaf(position: int) -> tuple[list[Any], list[Any]]:
        offset = position * e.tile.width
        columns = [e.load(run.right, b.add(row, _i64(offset + v * e.tile.lanes))) for v in range(e.tile.vectors)]
        scalars = [e.broadcast(run.left, b.add(at, _i64(position * e.tile.rows + r))) for r in range(rows)]
        return scalars, columns

    def pair(position: int) -> list[Any]:
        scalars, columns = leaf(position)
        sums = [b.fmul(scalars[r], columns[v]) for r, v in cells]
        scalars, columns = leaf(position + 1)
        terms = [(scalars[r], columns[v]) for r, v in cells]
        if product == FUSED:
            return [b.call(e.fma_function, [x, y, total]) for (x, y), total in zip(terms, sums, strict=True)]
        return [b.fadd(total, b.fmul(x, y)) for (x, y), total in zip(terms, sums, strict=True)]

    return [b.fadd(one, other) for one, other in zip(pair(0), pair(2), strict=True)]


def _emit_run(e: _Emitter, product: int, run: _Run) -> None:
    """One run of leaves, or a fold over equal runs. The latter needs two sets of accumulators, so half the rows."""
    b = e.builder
    rows = e.tile.rows
    half = max(rows // 2, 1)

    def many(h: Any, nothing: list[Any]) -> list[Any]:
        first_row = b.mul(h, _i64(half))

        def item(i: Any, totals: list[Any]) -> list[Any]:
            base = b.add(run.base, b.mul(i, run.s_items))
            fresh = [e.constant(-0.0)] * len(totals)
            sums = _emit_leaves(e, product, run, base, first_row, half, fresh)
            return [b.fadd(total, value) for total, value in zip(totals, sums, strict=True)]

        _emit_end(e, run, first_row, half, e.loop(run.n_items, _emit_start(e, run, first_row, half), item))
        return nothing

    def quad(h: Any, nothing: list[Any]) -> list[Any]:
        first_row = b.mul(h, _i64(half))
        _emit_end(e, run, first_row, half, _emit_quad(e, product, run, first_row, half))
        return nothing

    with b.if_else(b.icmp_signed("==", run.n_items, _i64(1))) as (one, several):
        with one:
            values = _emit_start(e, run, _i64(0), rows)
            values = _emit_leaves(e, product, run, run.base, _i64(0), rows, values)
            _emit_end(e, run, _i64(0), rows, values)
        with several:
            if product and rows > 1:
                # The bottom of a pairwise tree, where there is little to do for an instruction.
                wanted = ((run.n_items, 2), (run.s_items, 2), (run.n_outer, 1), (run.n_inner, 2), (run.s_inner, 1),
                          (run.start, START_FIRST), (run.leaf_stride, rows))  # fmt: skip
                is_quad = _i64(1)
                for value, expected in wanted:
                    is_quad = b.and_(is_quad, b.zext(b.icmp_signed("==", value, _i64(expected)), ir.IntType(64)))
                with b.if_else(b.icmp_signed("==", is_quad, _i64(1))) as (four, general):
                    with four:
                        e.loop(_i64(rows // half), [], quad)
                    with general:
                        e.loop(_i64(rows // half), [], many)
            else:
                e.loop(_i64(rows // half), [], many)


# What a leaf is.
SUM, SEPARATE, FUSED = 0, 1, 2


@intrinsic
def run_tile(
    typingctx: Any, kind: Any, product: Any, left: Any, left_offset: Any, row_stride: Any,
    leaf_stride: Any, right: Any, right_offset: Any, right_stride: Any, registers: Any, dst: Any, start: Any, end: Any, base: Any, n_items: Any, s_items: Any, n_outer: Any, s_outer: Any,
    n_inner: Any, s_inner: Any,
) -> Any:  # fmt: skip
    """Fold a run of leaves, or `n_items` equal runs, into a register of the tile.

    `kind` (by its type) and `product` (SUM, SEPARATE or FUSED) are compile-time constants.
    """
    del typingctx
    if not (isinstance(kind, types.UniTuple) and isinstance(product, types.IntegerLiteral)):
        return None
    i64 = types.int64
    signature = types.void(kind, product, left, i64, i64, i64, right, i64, i64, registers, *[i64] * 10)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        element, itemsize = _element(sig.args[9])
        emitter = _Emitter(builder, TILES[itemsize][kind.count - 1], element, itemsize)
        arrays = (_data(context, builder, sig.args[p], args[p]) for p in (2, 6, 9))
        _emit_run(emitter, product.literal_value, _Run(*arrays, *args[3:6], *args[7:9], *args[10:]))
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def add_tile(typingctx: Any, kind: Any, registers: Any, dst: Any, src: Any) -> Any:
    """``R[dst] = R[dst] + R[src]`` for a whole tile."""
    del typingctx
    if not isinstance(kind, types.UniTuple):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        element, itemsize = _element(sig.args[1])
        e = _Emitter(builder, TILES[itemsize][kind.count - 1], element, itemsize)
        data = _data(context, builder, sig.args[1], args[1])
        for cell in e.cells(e.tile.rows):
            at = e.register_index(args[2], _i64(0), cell)
            other = e.load(data, e.register_index(args[3], _i64(0), cell))
            e.store(builder.fadd(e.load(data, at), other), data, at)
        return context.get_dummy_value()

    return types.void(kind, registers, types.int64, types.int64), codegen
