"""Register tiles: the inner loops of the interpreter as LLVM IR.

A tile holds ``rows x vectors`` accumulators of ``lanes`` floats each. They stay in SIMD registers over a whole run of
leaves, of any stride and length, which is what makes an emulated product about as fast as a BLAS. Products are either
fused (``llvm.fma``) or rounded on their own; no fast-math flag is ever set, so the order is kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

# Start modes of a run, and what happens to its result.
START_FIRST, START_CONTINUE, START_ZERO, START_NEGATIVE_ZERO = 0, 1, 2, 3
END_STORE, END_ADD = 0, 1


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
    """Emits the code of one tile: vectors of `lanes` floats, or plain floats when `lanes` is 1."""

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

    def cells(self) -> list[tuple[int, int]]:
        return [(r, v) for r in range(self.tile.rows) for v in range(self.tile.vectors)]

    def register_index(self, register: Any, cell: tuple[int, int]) -> Any:
        r, v = cell
        size = self.tile.rows * self.tile.width
        offset = (r * self.tile.vectors + v) * self.tile.lanes
        return self.builder.add(self.builder.mul(register, _i64(size)), _i64(offset))


def _i32(value: int) -> Any:
    return ir.Constant(ir.IntType(32), value)


def _i64(value: int) -> Any:
    return ir.Constant(ir.IntType(64), value)


def _data(context: Any, builder: Any, array_type: Any, value: Any) -> Any:
    return context.make_array(array_type)(context, builder, value).data


def _emit_run(e: _Emitter, product: int, arrays: Any, numbers: Any) -> None:
    """One run: fold the leaves k = base + o*outer_stride + i*inner_stride into the tile's accumulators."""
    b = e.builder
    left, right, registers = arrays
    left_offset, right_offset, dst, start, end, base, n_outer, s_outer, n_inner, s_inner = numbers
    cells = e.cells()
    width = _i64(e.tile.width)

    def leaves(k: Any) -> list[tuple[Any, Any]]:
        """Operands of every cell at leaf k; the second is None for a sum."""
        row = b.add(right_offset, b.mul(k, width))
        columns = [e.load(right, b.add(row, _i64(v * e.tile.lanes))) for v in range(e.tile.vectors)]
        if not product:
            return [(columns[v], None) for _, v in cells]
        at = b.add(left_offset, b.mul(k, _i64(e.tile.rows)))
        scalars = [e.broadcast(left, b.add(at, _i64(r))) for r in range(e.tile.rows)]
        return [(scalars[r], columns[v]) for r, v in cells]

    def step(accumulators: list[Any], k: Any) -> list[Any]:
        out = []
        for acc, (x, y) in zip(accumulators, leaves(k), strict=True):
            if y is None:
                out.append(b.fadd(acc, x))
            elif product == FUSED:
                out.append(b.call(e.fma_function, [x, y, acc]))
            else:
                out.append(b.fadd(acc, b.fmul(x, y)))
        return out

    merged = [cgutils.alloca_once(b, e.vector) for _ in cells]
    after = b.append_basic_block("start.done")
    blocks = [b.append_basic_block(f"start.{name}") for name in ("first", "continue", "zero", "negative")]
    switch = b.switch(start, blocks[START_ZERO])
    for value in (START_FIRST, START_CONTINUE, START_NEGATIVE_ZERO):
        switch.add_case(_i64(value), blocks[value])
    for mode, block in enumerate(blocks):
        b.position_at_end(block)
        if mode == START_FIRST:
            initial = [x if y is None else b.fmul(x, y) for x, y in leaves(base)]
        elif mode == START_CONTINUE:
            initial = [e.load(registers, e.register_index(dst, cell)) for cell in cells]
        else:
            initial = [e.constant(0.0 if mode == START_ZERO else -0.0)] * len(cells)
        for slot, value in zip(merged, initial, strict=True):
            b.store(value, slot)
        b.branch(after)
    b.position_at_end(after)
    first = b.select(b.icmp_signed("==", start, _i64(START_FIRST)), _i64(1), _i64(0))

    outer = b.append_basic_block("outer")
    inner = b.append_basic_block("inner")
    outer_next = b.append_basic_block("outer.next")
    done = b.append_basic_block("done")
    initial = [b.load(slot) for slot in merged]
    entry = b.block
    nothing = b.or_(b.icmp_signed("<=", n_outer, _i64(0)), b.icmp_signed("<=", n_inner, _i64(0)))
    b.cbranch(nothing, done, outer)

    b.position_at_end(outer)
    o = b.phi(ir.IntType(64))
    skip = b.phi(ir.IntType(64))
    acc_outer = [b.phi(e.vector) for _ in cells]
    o.add_incoming(_i64(0), entry)
    skip.add_incoming(first, entry)
    for phi, value in zip(acc_outer, initial, strict=True):
        phi.add_incoming(value, entry)
    begin = b.add(base, b.add(b.mul(o, s_outer), b.mul(skip, s_inner)))
    empty = b.icmp_signed(">=", skip, n_inner)
    b.cbranch(empty, outer_next, inner)

    b.position_at_end(inner)
    i = b.phi(ir.IntType(64))
    k = b.phi(ir.IntType(64))
    acc = [b.phi(e.vector) for _ in cells]
    i.add_incoming(skip, outer)
    k.add_incoming(begin, outer)
    for phi, value in zip(acc, acc_outer, strict=True):
        phi.add_incoming(value, outer)
    updated = step(acc, k)
    i_next = b.add(i, _i64(1))
    i.add_incoming(i_next, inner)
    k.add_incoming(b.add(k, s_inner), inner)
    for phi, value in zip(acc, updated, strict=True):
        phi.add_incoming(value, inner)
    b.cbranch(b.icmp_signed("<", i_next, n_inner), inner, outer_next)

    b.position_at_end(outer_next)
    acc_next = [b.phi(e.vector) for _ in cells]
    for phi, skipped, value in zip(acc_next, acc_outer, updated, strict=True):
        phi.add_incoming(skipped, outer)
        phi.add_incoming(value, inner)
    o_next = b.add(o, _i64(1))
    o.add_incoming(o_next, outer_next)
    skip.add_incoming(_i64(0), outer_next)
    for phi, value in zip(acc_outer, acc_next, strict=True):
        phi.add_incoming(value, outer_next)
    b.cbranch(b.icmp_signed("<", o_next, n_outer), outer, done)

    b.position_at_end(done)
    final = [b.phi(e.vector) for _ in cells]
    for phi, value, value_next in zip(final, initial, acc_next, strict=True):
        phi.add_incoming(value, entry)
        phi.add_incoming(value_next, outer_next)
    adds = b.icmp_signed("==", end, _i64(END_ADD))
    with b.if_else(adds) as (then, otherwise):
        with then:
            for cell, value in zip(cells, final, strict=True):
                at = e.register_index(dst, cell)
                e.store(b.fadd(e.load(registers, at), value), registers, at)
        with otherwise:
            for cell, value in zip(cells, final, strict=True):
                e.store(value, registers, e.register_index(dst, cell))


# What a leaf is.
SUM, SEPARATE, FUSED = 0, 1, 2


@intrinsic
def run_tile(
    typingctx: Any, kind: Any, product: Any, left: Any, left_offset: Any, right: Any, right_offset: Any,
    registers: Any, dst: Any, start: Any, end: Any, base: Any, n_outer: Any, s_outer: Any,
    n_inner: Any, s_inner: Any,
) -> Any:  # fmt: skip
    """Fold one run of leaves into a register of the tile; `kind` and `product` are compile-time constants."""
    del typingctx
    if not (isinstance(kind, types.UniTuple) and isinstance(product, types.IntegerLiteral)):
        return None
    i64 = types.int64
    signature = types.void(kind, product, left, i64, right, i64, registers, i64, i64, i64, i64, i64, i64, i64, i64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        element, itemsize = _element(sig.args[6])
        emitter = _Emitter(builder, TILES[itemsize][kind.count - 1], element, itemsize)
        arrays = tuple(_data(context, builder, sig.args[p], args[p]) for p in (2, 4, 6))
        numbers = (args[3], args[5], *args[7:])
        _emit_run(emitter, product.literal_value, arrays, numbers)
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
        for cell in e.cells():
            at = e.register_index(args[2], cell)
            other = e.load(data, e.register_index(args[3], cell))
            e.store(builder.fadd(e.load(data, at), other), data, at)
        return context.get_dummy_value()

    return types.void(kind, registers, types.int64, types.int64), codegen
