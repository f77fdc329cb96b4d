"""The executor for fused adds: many products and an accumulator, aligned, truncated, and summed exactly.

Everything is exact in float64. A product of two operands of at most 26 bits is a float64; scaled by a power of two, it
is truncated to an integer by one instruction; and the sum of the integers stays below 2**53. So the loops over the
columns of a panel are a handful of vector instructions for each product.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fpsim.kernels._jit import kernel
from fpsim.kernels.fused_kinds import (
    EXACT,
    GROUPS,
    LATE,
    LATE_PAIRS,
    PLAIN,
    exact_sums,
    grouped_sum,
    late_sums,
    power_of,
)
from fpsim.kernels.general import ACCUMULATOR, COMPENSATION, NEUMAIER, add_register, closed, run_leaves
from fpsim.kernels.rounding import NEAREST_EVEN, TOWARD_ZERO, round_value
from fpsim.kernels.sequencer import (
    ADD,
    ARITHMETIC,
    BASE,
    DST,
    N_INNER,
    OP,
    RUN,
    START,
    START_CONTINUE,
    restart,
    sequence,
)

# Columns of the table of fused adds: products in each (0: this arithmetic has none), 2**fraction bits, the power of two
# that a zero accumulator counts with, the least one of another accumulator, and how they align.
TERMS, UNIT, ZERO_POWER, LEAST_POWER, KIND = range(5)


@kernel
def _largest_power(first: int, last: int, own: Any, left_powers: Any, right_powers: Any, sums: Any, peak: Any) -> None:
    """Set ``peak[j]`` to the largest power of two of the products first to last - 1 and the accumulator."""
    width = sums.shape[0]
    zero, least = own[ZERO_POWER], own[LEAST_POWER]
    for j in range(width):
        p = power_of(sums[j])
        p = p if p > least else least
        peak[j] = p if sums[j] != 0.0 else zero
    k = first
    while k + 4 <= last:  # four at a time, so that the largest one stays in a register
        p0, p1, p2, p3 = left_powers[k], left_powers[k + 1], left_powers[k + 2], left_powers[k + 3]
        for j in range(width):
            a, b = p0 * right_powers[k, j], p1 * right_powers[k + 1, j]
            c, d = p2 * right_powers[k + 2, j], p3 * right_powers[k + 3, j]
            a = a if a > b else b
            c = c if c > d else d
            a = a if a > c else c
            peak[j] = a if a > peak[j] else peak[j]
        k += 4
    while k < last:
        for j in range(width):
            a = left_powers[k] * right_powers[k, j]
            peak[j] = a if a > peak[j] else peak[j]
        k += 1


@kernel
def _aligned_sum(
    first: int, last: int, unit: float, left: Any, right: Any, sums: Any, peak: Any, scale: Any, total: Any
) -> None:
    """Set ``total[j]`` to the sum of the truncated products and accumulator, in units of ``peak[j] / unit``."""
    width = sums.shape[0]
    for j in range(width):
        scale[j] = unit / peak[j]
        total[j] = np.trunc(sums[j] * scale[j]) + 0.0  # an exact zero is +0
    k = first
    while k + 4 <= last:
        a, b, c, d = left[k], left[k + 1], left[k + 2], left[k + 3]
        for j in range(width):
            q = scale[j]
            low = np.trunc(a * right[k, j] * q) + np.trunc(b * right[k + 1, j] * q)
            high = np.trunc(c * right[k + 2, j] * q) + np.trunc(d * right[k + 3, j] * q)
            total[j] += low + high
        k += 4
    while k < last:
        for j in range(width):
            total[j] += np.trunc(left[k] * right[k, j] * scale[j])
        k += 1


@kernel
def _round_sums(table: Any, unit: float, peak: Any, total: Any, sums: Any) -> None:
    """Set ``sums[j]`` to the rounded total; a sum that is infinite or NaN already stays so.

    A sum that is rounded to zero is +0, whatever its sign, as the accumulators of an H200 have it.
    """
    precision, emin, largest = int(table[ACCUMULATOR]), int(table[ACCUMULATOR + 1]), table[ACCUMULATOR + 2]
    overflow, subnormals = int(table[ACCUMULATOR + 3]), table[ACCUMULATOR + 4] != 0.0
    mode = int(table[ACCUMULATOR + 5])
    inverse, beyond = 1.0 / unit, 2.0 * power_of(largest)
    if mode == TOWARD_ZERO:  # a loop for each usual mode, for a literal mode is what makes it vectorise
        for j in range(sums.shape[0]):
            x = total[j] * (peak[j] * inverse)
            x = x if abs(x) < beyond else math.copysign(math.inf, x)  # the units overflow to infinity in this mode too
            x = round_value(x, precision, emin, largest, overflow, subnormals, TOWARD_ZERO) + 0.0
            sums[j] = x if sums[j] - sums[j] == 0.0 else sums[j]
    elif mode == NEAREST_EVEN:
        for j in range(sums.shape[0]):
            x = total[j] * (peak[j] * inverse)
            x = round_value(x, precision, emin, largest, overflow, subnormals, NEAREST_EVEN) + 0.0
            sums[j] = x if sums[j] - sums[j] == 0.0 else sums[j]
    else:
        for j in range(sums.shape[0]):
            x = total[j] * (peak[j] * inverse)
            x = round_value(x, precision, emin, largest, overflow, subnormals, mode) + 0.0
            sums[j] = x if sums[j] - sums[j] == 0.0 else sums[j]


@kernel
def _special_sums(first: int, last: int, left: Any, right: Any, sums: Any, plain: Any) -> None:
    """Set ``plain[j]`` to the IEEE sum: infinite or NaN just where an operand or the accumulator is."""
    for j in range(sums.shape[0]):
        plain[j] = sums[j]
    for k in range(first, last):
        for j in range(sums.shape[0]):
            plain[j] += left[k] * right[k, j]


@kernel
def _run_fused(
    code: Any, q: int, table: Any, own: Any, top: int, rows: int, left: Any, left_powers: Any, finite: Any, right: Any,
    right_powers: Any, right_finite: bool, s: Any, room: Any,
) -> None:  # fmt: skip
    """Add the products of a run of leaves to a register, ``own[TERMS]`` at a time."""
    r, start, first, count = code[q, DST], code[q, START], code[q, BASE], code[q, N_INNER]
    if start != START_CONTINUE:
        for i in range(rows):
            for j in range(s.shape[2]):
                s[i, r, j] = 0.0
    terms, unit, kind = int(own[TERMS]), own[UNIT], int(own[KIND])
    peak, scale, total, plain = room[0], room[1], room[2], room[3]
    for k in range(first, first + count, terms):
        last = min(k + terms, first + count)
        for i in range(rows):
            sums = s[i, r]
            special = not (right_finite and finite[top + i])
            if special:
                _special_sums(k, last, left[top + i], right, sums, plain)
            if kind == PLAIN or kind == GROUPS:
                _largest_power(k, last, own, left_powers[top + i], right_powers, sums, peak)
                if kind == PLAIN:
                    _aligned_sum(k, last, unit, left[top + i], right, sums, peak, scale, total)
                else:
                    grouped_sum(k, last, unit, left[top + i], right, sums, peak, total)
                _round_sums(table, unit, peak, total, sums)
            elif kind == EXACT:
                exact_sums(k, last, table, left[top + i], right, sums)
            else:
                late_sums(k, last, kind, unit, table, left[top + i], left_powers[top + i], right, right_powers, sums)
            if special:
                late = kind == LATE or kind == LATE_PAIRS  # where products that overflow are infinite too
                for j in range(sums.shape[0]):
                    usual = plain[j] - plain[j] == 0.0 or (late and plain[j] == plain[j])
                    sums[j] = sums[j] if usual else plain[j]


@kernel
def fused_products(
    nodes: Any, segments: Any, closing: Any, tables: Any, own: Any, left: Any, left_powers: Any, finite: Any, right: Any,
    right_powers: Any, right_finite: bool, s: Any, c: Any, room: Any, result: Any, stack: Any, code: Any,
) -> None:  # fmt: skip
    """Compute the sums over k of ``left[i, k] * right[k, j]`` along a program with fused adds.

    Parameters
    ----------
    nodes, segments, closing : arrays
        The program, which takes its leaves from first to last; see `sequence`.
    tables : float64 array of shape (arithmetics, TABLE_COLUMNS)
        The arithmetics, see `fpsim.kernels.general`. The accumulator is what a fused add is rounded to.
    own : float64 array of shape (arithmetics, 5)
        Their fused adds: the columns TERMS to KIND.
    left, left_powers : float64 arrays of shape (m, n)
        Left operand, and the power of two that each of its elements counts with, zero for a zero.
    finite : bool array of shape (m,)
        Whether a row has neither infinities nor NaN.
    right, right_powers : float64 arrays of shape (n, columns)
        The same for a panel of the right operand; `right_finite` tells whether all of it is finite.
    s, c : float64 arrays of shape (rows, registers, columns)
        Room for the partial sums of so many rows at a time.
    room : float64 array of shape (4, columns)
        More room.
    result : float64 array of shape (m, columns)
        The finished sums.
    stack, code : arrays
        Room for the sequencer.
    """
    m = left.shape[0]
    nothing = np.empty((0, right.shape[1]))
    for top in range(0, m, s.shape[0]):
        rows = min(s.shape[0], m - top)
        restart(nodes, stack)
        while stack[0, 0] > 0:
            count = sequence(nodes, segments, closing, False, False, stack, code)
            for q in range(count):
                index = code[q, ARITHMETIC]
                table, r = tables[index], code[q, DST]
                if code[q, OP] == RUN and own[index, TERMS] > 0.0:
                    _run_fused(
                        code, q, table, own[index], top, rows, left, left_powers, finite, right, right_powers,
                        right_finite, s, room,
                    )  # fmt: skip
                    continue
                for i in range(rows):
                    if code[q, OP] == RUN:
                        run_leaves(code, q, table, left[top + i], right, True, s[i], c[i], nothing)
                    elif code[q, OP] == ADD:
                        add_register(s[i], c[i], r, table[COMPENSATION] >= NEUMAIER, table)
                    else:
                        for j in range(right.shape[1]):
                            s[i, r, j] = closed(s[i, r, j], c[i, r, j], table)
                            c[i, r, j] = 0.0
        for i in range(rows):
            for j in range(right.shape[1]):
                result[top + i, j] = s[i, 0, j]
