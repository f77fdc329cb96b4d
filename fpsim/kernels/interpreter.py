"""The fast executor: programs in plain float32 or float64 arithmetic, on register tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels import tiles
from fpsim.kernels._jit import kernel
from fpsim.kernels.sequencer import (
    ARITHMETIC,
    BASE,
    DST,
    END,
    N_INNER,
    N_ITEMS,
    N_OUTER,
    OP,
    RUN,
    S_INNER,
    S_ITEMS,
    S_OUTER,
    START,
    restart,
    sequence,
)
from fpsim.kernels.tiles import FUSED, SEPARATE, SUM, add_tile, run_tile

SCALAR, ROW, WIDE = tiles.SCALAR, tiles.ROW, tiles.WIDE


def tile_shape(kind: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """Return rows and columns of a kind of tile."""
    tile = tiles.TILES[itemsize][len(kind) - 1]
    return tile.rows, tile.width


def aligned(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return an uninitialised array that starts on a cache line."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    buffer = np.empty(size + 64, np.uint8)
    start = -buffer.ctypes.data % 64
    return buffer[start : start + size].view(dtype).reshape(shape)


@kernel
def _execute_products(
    kind: Any, code: Any, count: int, fused: Any, left: Any, left_offset: int, row_stride: int,
    leaf_stride: int, right: Any, width: int, registers: Any,
) -> None:  # fmt: skip
    for q in range(count):
        if code[q, OP] == RUN:
            if fused[code[q, ARITHMETIC]]:
                run_tile(
                    kind, FUSED, left, left_offset, row_stride, leaf_stride, right, 0, width, registers, code[q, DST], code[q, START], code[q, END],
                    code[q, BASE], code[q, N_ITEMS], code[q, S_ITEMS], code[q, N_OUTER], code[q, S_OUTER], code[q, N_INNER], code[q, S_INNER],
                )  # fmt: skip
            else:
                run_tile(
                    kind, SEPARATE, left, left_offset, row_stride, leaf_stride, right, 0, width, registers, code[q, DST], code[q, START], code[q, END],
                    code[q, BASE], code[q, N_ITEMS], code[q, S_ITEMS], code[q, N_OUTER], code[q, S_OUTER], code[q, N_INNER], code[q, S_INNER],
                )  # fmt: skip
        else:
            add_tile(kind, registers, code[q, DST], code[q, DST] + 1)


@kernel
def _execute_sums(kind: Any, code: Any, count: int, right: Any, offset: int, stride: int, registers: Any) -> None:
    for q in range(count):
        if code[q, OP] == RUN:
            run_tile(
                kind, SUM, right, 0, 0, 0, right, offset, stride, registers, code[q, DST], code[q, START], code[q, END],
                code[q, BASE], code[q, N_ITEMS], code[q, S_ITEMS], code[q, N_OUTER], code[q, S_OUTER], code[q, N_INNER], code[q, S_INNER],
            )  # fmt: skip
        else:
            add_tile(kind, registers, code[q, DST], code[q, DST] + 1)


@kernel
def products(
    kind: Any, nodes: Any, segments: Any, closing: Any, fused: Any, left: Any, packed: bool, right: Any, registers: Any,
    out: Any, place: Any, stack: Any, code: Any,
) -> None:  # fmt: skip
    """Compute the sums over k of ``left[i, k] * right[k, j]`` in the order of a program.

    Parameters
    ----------
    kind : tuple
        The tile, see `fpsim.kernels.tiles`.
    nodes, segments, closing : arrays
        The program, see `sequence`.
    fused : bool array
        Whether a product in that arithmetic is fused.
    left : array of shape (tiles, rows, k), or (tiles, k, rows) if `packed`
        The left operand in groups of as many rows as the tile has.
    right : array of shape (k, columns)
        One panel of the right operand, as wide as the tile.
    registers : array of shape (registers, rows, columns)
        Room for the partial sums of a tile.
    out : contiguous matrix
        The outputs.
    place : tuple of four int
        Where they go: the first and the last row (not included), the same for columns.
    stack, code : arrays
        Room for the sequencer.
    """
    tiles, outer, inner = left.shape
    row_stride, leaf_stride = (1, inner) if packed else (inner, 1)
    rows, columns = registers.shape[1], right.shape[1]
    flat_registers, flat_left, flat_right = registers.reshape(-1), left.reshape(-1), right.reshape(-1)
    top, bottom, first, last = place
    restart(nodes, stack)
    count = sequence(nodes, segments, closing, True, False, stack, code)
    whole = stack[0, 0] == 0
    for tile in range(tiles):
        offset = tile * outer * inner
        if not whole:
            restart(nodes, stack)
        while True:
            if not whole:
                count = sequence(nodes, segments, closing, True, False, stack, code)
            _execute_products(
                kind, code, count, fused, flat_left, offset, row_stride, leaf_stride, flat_right, columns,
                flat_registers,
            )  # fmt: skip
            if stack[0, 0] == 0:
                break
        for i in range(min(rows, bottom - top - tile * rows)):
            for j in range(last - first):
                out[top + tile * rows + i, first + j] = flat_registers[i * columns + j]


@kernel
def sums(
    kind: Any, nodes: Any, segments: Any, closing: Any, right: Any, offset: int, stride: int, registers: Any, out: Any,
    stack: Any, code: Any,
) -> None:  # fmt: skip
    """Fill ``out[j]`` with the sum over k of ``right[offset + k*stride + j]`` in the order of a program.

    `right` is a vector; see `products` for the rest.
    """
    flat_registers = registers.reshape(-1)
    restart(nodes, stack)
    while stack[0, 0] > 0:
        count = sequence(nodes, segments, closing, True, False, stack, code)
        _execute_sums(kind, code, count, right, offset, stride, flat_registers)
    for j in range(out.shape[0]):
        out[j] = flat_registers[j]
