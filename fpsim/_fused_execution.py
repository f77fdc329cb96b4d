"""Running programs that have fused adds."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim._execution import closing_folds, for_each, rooms, table_of, workers_for
from fpsim.arithmetic import KINDS, Arithmetic
from fpsim.formats import FLOAT32, Format
from fpsim.programs import Program

_Array = NDArray[Any]
_COLUMNS, _ROWS = 128, 16  # of the tile that is treated together, so that a fused add's operands stay in a near cache
_WIDE = 2**14  # elements of a panel that is made wider where there are few leaves
# A zero accumulator counts with an exponent that is less by so much than the smallest one of its format. On the H200 it
# is 7: -133 for float32 and -21 for float16; MMA-Sim 2.1 has 5 and 6 for units with 23 and 24 fraction bits.
_BELOW = {23: 5, 24: 6}
_USUALLY_BELOW, _GROUPS_BELOW = 7, 13
# The NaN of NVIDIA's matrix units, 0x7FFFFFFF as a float32 and 0x7FFF as a float16.
_NAN = np.int64(0x7FFF_FFFF_E000_0000).view(np.float64)


@dataclass(frozen=True, slots=True)
class Scales:
    """The block scale of each element of an operand.

    `form` is their format, or None for powers of two. Where products are grouped they count with the exponents of the
    scales alone, and else with those of the scaled elements.
    """

    values: _Array
    form: Format | None
    grouped: bool

    def __getitem__(self, index: Any) -> Scales:
        return Scales(self.values[index], self.form, self.grouped)


def run_fused(
    left: _Array, right: _Array, program: Program, formats: tuple[Format, Format],
    scales: tuple[Scales, Scales] | None = None,
) -> _Array:  # fmt: skip
    """Return the product of two matrices as float64; the operands are numbers of `formats`, inside float32.

    `scales` multiply them, and change the exponents that they count with.
    """
    from fpsim.kernels import fused

    if scales is None and any(
        a.terms and a.align is not None and a.align.kind == "groups" for a in program.arithmetics
    ):
        scales = Scales(np.ones(left.shape), None, grouped=True), Scales(np.ones(right.shape), None, grouped=True)
    if program.sequential is not program:
        places, program = program.visits, program.sequential
        left, right = left[:, places], right[places]
        scales = None if scales is None else (scales[0][:, places], scales[1][places])
    (m, n), columns = left.shape, right.shape[1]
    out = np.empty((m, columns))
    tables = np.array([table_of(a) for a in program.arithmetics])
    own = np.array([fused_table(a) for a in program.arithmetics])
    closing = closing_folds(program)
    panel = max(_COLUMNS, _WIDE // max(n, 1))
    rows, row_powers = _decoded(left, formats[0], None if scales is None else scales[0])
    finite = np.asarray(np.isfinite(rows).all(axis=1))

    def worker() -> Callable[[tuple[int, int, int]], None]:
        _, stack, code = rooms(program, 1, 1, np.float64)

        def block(task: tuple[int, int, int]) -> None:
            start, first, last = task
            across = slice(start, start + panel)
            part, part_powers = _decoded(right[:, across], formats[1], None if scales is None else scales[1][:, across])
            width = part.shape[1]
            s, c = np.zeros((2, _ROWS, program.registers, width))
            room, result = np.empty((4, width)), np.empty((last - first, width))
            fused.fused_products(
                program.nodes, program.segments, closing, tables, own, rows[first:last], row_powers[first:last],
                finite[first:last], part, part_powers, bool(np.isfinite(part).all()), s, c, room, result,
                stack, code,
            )  # fmt: skip
            out[first:last, start : start + width] = result

        return block

    starts = range(0, columns, panel)
    parts = max(1, min(m // _ROWS, workers_for(m * n * columns) // len(starts)))
    cuts = [m * part // parts for part in range(parts + 1)]
    for_each(worker, [(start, a, b) for start in starts for a, b in itertools.pairwise(cuts)], m * n * columns)
    out[np.isnan(out)] = _NAN
    return out


def _decoded(x: _Array, form: Format, scales: Scales | None) -> tuple[_Array, _Array]:
    """Return operands as float64, and the power of two that each counts with.

    That is its own, for a subnormal the smallest of its format; a zero counts for nothing.
    """
    values = np.ascontiguousarray(x, np.float64)
    powers = element_powers(values, form)
    if scales is None:
        return values, powers
    if not scales.grouped:
        return values * scales.values, powers * scales.values
    least = 0.0 if scales.form is None else scales.form.smallest_normal
    return values * scales.values, np.where(powers == 0, 0.0, _powers(scales.values, least))


def element_powers(values: _Array, form: Format) -> _Array:
    """Return the power of two that each element of an operand counts with where terms are aligned."""
    return _powers(values, form.smallest_normal)


def _powers(values: _Array, least: float) -> _Array:
    own = (np.ascontiguousarray(values).view(np.int64) & 0x7FF0_0000_0000_0000).view(np.float64)
    return np.where(values == 0, 0.0, np.maximum(own, least))


def fused_table(a: Arithmetic) -> list[float]:
    """Return the numbers of an arithmetic's fused adds as the executor reads them."""
    if a.align is None:
        return [float(a.terms), 1.0, 1.0, 1.0, 0.0]
    form, kind, bits = a.accumulator.format, a.align.kind, a.align.bits
    below = _GROUPS_BELOW if kind == "groups" else _BELOW.get(bits, _USUALLY_BELOW)
    zero = max(form.emin, FLOAT32.emin) - below
    return [float(a.terms), 2.0**bits, 2.0**zero, form.smallest_normal, float(("", *KINDS).index(kind))]
