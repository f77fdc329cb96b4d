"""A program run with the sums over its partial sums that error bounds need: sum u|s|, sum (u s)**2, and the largest."""

from __future__ import annotations

from typing import Any

from fpsim.kernels._jit import inlined, kernel
from fpsim.kernels.general import ACCUMULATOR, FMA, HAS_OUTPUT, OUTPUT, PRODUCT, added, fused, multiplied, rounded
from fpsim.kernels.sequencer import (
    ADD,
    ARITHMETIC,
    BASE,
    DST,
    N_INNER,
    N_OUTER,
    OP,
    RUN,
    S_INNER,
    S_OUTER,
    START,
    START_FIRST,
    START_NEGATIVE_ZERO,
    START_ZERO,
    restart,
    sequence,
)


@inlined
def count(total: float, u: float, m: int, j: int, first: Any, second: Any, largest: Any, rounded_off: Any) -> None:
    """Add one rounded result to the sums."""
    size = u * abs(total)
    first[m, j] += size
    second[m, j] += size * size
    largest[m, j] = max(largest[m, j], abs(total))
    rounded_off[m, j] += 1.0


@kernel
def _leaves(
    code: Any, at: int, table: Any, units: Any, left: Any, right: Any, has_left: bool, m: int, s: Any, first: Any,
    second: Any, largest: Any, rounded_off: Any,
) -> None:  # fmt: skip
    r = code[at, DST]
    if code[at, START] == START_ZERO or code[at, START] == START_NEGATIVE_ZERO:
        for j in range(right.shape[1]):
            s[r, j] = 0.0
    starts = code[at, START] == START_FIRST
    fma = table[FMA] != 0.0 and has_left
    for o in range(code[at, N_OUTER]):
        for i in range(code[at, N_INNER]):
            k = code[at, BASE] + o * code[at, S_OUTER] + i * code[at, S_INNER]
            for j in range(right.shape[1]):
                x = right[k, j]
                if has_left and (starts or not fma):
                    x = multiplied(left[k], x, table, PRODUCT)
                    count(x, units[1], m, j, first, second, largest, rounded_off)
                if starts:
                    total = rounded(x, table, ACCUMULATOR)
                    if total != x:
                        count(total, units[0], m, j, first, second, largest, rounded_off)
                    else:
                        largest[m, j] = max(largest[m, j], abs(total))
                elif has_left and fma:
                    total = fused(left[k], x, s[r, j], table, ACCUMULATOR)
                    count(total, units[0], m, j, first, second, largest, rounded_off)
                else:
                    total = added(s[r, j], x, table, ACCUMULATOR)
                    if s[r, j] != 0.0 or total != x:
                        count(total, units[0], m, j, first, second, largest, rounded_off)
                s[r, j] = total
            starts = False


@kernel
def partial_sums(
    nodes: Any, segments: Any, closing: Any, tables: Any, units: Any, left: Any, right: Any, has_left: bool, s: Any,
    first: Any, second: Any, largest: Any, rounded_off: Any, stack: Any, code: Any,
) -> None:  # fmt: skip
    """Run a program without compensation and add up its rounded results.

    Parameters
    ----------
    nodes, segments, closing, tables, left, right, has_left, stack, code
        As `fpsim.kernels.general.general` takes them.
    units : float64 array of shape (arithmetics, 3)
        Unit roundoffs of additions, products and outputs.
    s : float64 array of shape (registers, columns)
        Room for the partial sums.
    first, second, largest, rounded_off : float64 arrays of shape (m, columns), zeros
        Take sum u|s|, sum (u s)**2, max |s|, and the number of operations that may round.
    """
    for m in range(left.shape[0]):
        restart(nodes, stack)
        while stack[0, 0] > 0:
            many = sequence(nodes, segments, closing, False, False, stack, code)
            for at in range(many):
                which = code[at, ARITHMETIC]
                table, unit = tables[which], units[which]
                r = code[at, DST]
                if code[at, OP] == RUN:
                    _leaves(
                        code, at, table, unit, left[m], right, has_left, m, s, first, second, largest, rounded_off
                    )  # fmt: skip
                elif code[at, OP] == ADD:
                    for j in range(s.shape[1]):
                        s[r, j] = added(s[r, j], s[r + 1, j], table, ACCUMULATOR)
                        count(s[r, j], unit[0], m, j, first, second, largest, rounded_off)
                elif table[HAS_OUTPUT] != 0.0:
                    for j in range(s.shape[1]):
                        total = rounded(s[r, j], table, OUTPUT)
                        if total != s[r, j]:
                            count(total, unit[2], m, j, first, second, largest, rounded_off)
                        s[r, j] = total
