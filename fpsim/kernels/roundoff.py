"""A program run with an account of what its roundings may have cost: a hard bound and a variance for every output.

The error of a summation tree is exactly the sum of the local errors of its nodes (Higham, *Accuracy and Stability*, 4.2).
A node whose operands are multiples of its result's ulp is exact. Any other is off by at most half an ulp, and by no more
than its smaller operand; where the j bits that it drops are equidistributed, the variance of its error is
ulp**2 / 12 * (1 + 2 / 4**j).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fpsim.kernels._jit import inlined, kernel
from fpsim.kernels.fused import LEAST_POWER, TERMS, UNIT, ZERO_POWER
from fpsim.kernels.fused_kinds import power_of
from fpsim.kernels.general import ACCUMULATOR, FMA, HAS_OUTPUT, OUTPUT, PRODUCT, added, fused, multiplied, rounded
from fpsim.kernels.rounding import power_of_two_bits
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
    START_CONTINUE,
    START_FIRST,
    START_NEGATIVE_ZERO,
    START_ZERO,
    restart,
    sequence,
)

_FAR = 4000  # the exponent of the grid of zero: zero is a multiple of everything
_SMALL = 2.0**-1000  # below this, products and halves may themselves be rounded in float64
_TO_NEAREST = 2  # rounding modes below this one are to nearest, with errors of at most half an ulp


@inlined
def exponent_of(x: float) -> int:
    """Return e where 2**e <= abs(x) < 2**(e + 1), for a finite x other than zero."""
    bits: Any = np.float64(x).view(np.int64)
    field = (bits >> 52) & 0x7FF
    return field - 1023 if 0 < field < 0x7FF else math.frexp(x)[1] - 1


@inlined
def power_of_two(exponent: int) -> float:
    """Return 2**exponent in float64."""
    if exponent > 1023:
        return math.inf
    bits: Any = np.int64(power_of_two_bits(exponent))
    return bits.view(np.float64) if exponent >= -1074 else 0.0


@inlined
def grid_of(x: float) -> int:
    """Return the exponent of the largest power of two that divides x."""
    if x == 0.0 or x - x != 0.0:
        return _FAR
    bits: Any = np.float64(x).view(np.int64)
    field = (bits >> 52) & 0x7FF
    whole = (bits & 0xF_FFFF_FFFF_FFFF) | (0x10_0000_0000_0000 if field > 0 else 0)
    return max(field, 1) - 1075 + exponent_of(float(whole & -whole))


@inlined
def ulp_exponent(x: float, precision: int, emin: int) -> int:
    """Return the exponent of the ulp of x in a format."""
    return (max(exponent_of(x), emin) if x != 0.0 else emin) - precision + 1


@inlined
def smaller(a: float, a_grid: int, x: float, grid: int, table: Any, f: int) -> float:
    """Return what the error of rounding a + x to nearest cannot pass: abs(x) if a is in the format, abs(a) if x is."""
    least = math.inf
    if ulp_exponent(a, int(table[f]), int(table[f + 1])) <= a_grid:
        least = abs(x)
    if abs(a) < least and ulp_exponent(x, int(table[f]), int(table[f + 1])) <= grid:
        least = abs(a)
    return least


@inlined
def overflows(value: float, table: Any, f: int) -> bool:
    """Whether rounding a value to a format goes beyond its largest number, whatever stands for infinity there."""
    if abs(value) < table[f + 2]:
        return False
    exponent = ulp_exponent(table[f + 2], int(table[f]), int(table[f + 1]))
    if int(table[f + 5]) < _TO_NEAREST:
        exponent -= 1
    # A little less, for a value that is itself rounded in float64, where float64's own overflows are infinite.
    return abs(value) >= (table[f + 2] + math.ldexp(1.0, exponent)) * (1.0 - 2.0**-50) and table[f] < 53.0


@kernel
def note(
    total: float, value: float, grid: int, odd: float, small: float, table: Any, f: int
) -> tuple[int, float, float, float]:
    """Account for one rounding to `total` of a number on a grid, whose last bit is 1 with probability `odd`.

    Returns the same of the result, then the largest error and its variance. A tie goes to even, so that after one
    dropped bit the last bit is 0 more often. `value` is the number in float64: it tells an overflow that saturates from a
    rounding. The error is no larger than `small`, which counts if float64 has it with full precision.
    """
    if total - total != 0.0 or overflows(value, table, f):
        return grid, odd, math.inf, math.inf
    ulp = ulp_exponent(total, int(table[f]), int(table[f + 1]))
    if ulp <= grid:
        return grid, odd, 0.0, 0.0
    size = power_of_two(ulp)
    lost = ulp - grid
    if int(table[f + 5]) >= _TO_NEAREST:
        return ulp, 0.5, size, size * size / 12.0
    if lost == 1:
        spread = 0.25 * odd
        odd = 0.5 * (1.0 - odd)
    else:
        ties = power_of_two(-lost)
        spread = (1.0 + 2.0 * ties * ties) / 12.0
        odd = 0.5 * (1.0 - ties)
    spread *= size * size
    if small > _SMALL:
        return ulp, odd, min(0.5 * size, small), min(spread, small * small)
    return ulp, odd, 0.5 * size if size > _SMALL else size, spread


@inlined
def charge(out: Any, m: int, j: int, hard: float, spread: float) -> None:
    """Add one rounding to the account of an output."""
    out[0, m, j] += hard
    out[1, m, j] += spread
    if spread < math.inf:
        out[2, m, j] = max(out[2, m, j], spread)


@inlined
def last_bit(one: int, odd: float, other: int, other_odd: float) -> tuple[int, float]:
    """Return the grid of a sum, and the probability that its last bit is 1."""
    if one < other:
        return one, odd
    if other < one:
        return other, other_odd
    return one, odd + other_odd - 2.0 * odd * other_odd


@kernel
def _leaves(
    code: Any,
    at: int,
    table: Any,
    left: Any,
    right: Any,
    has_left: bool,
    m: int,
    s: Any,
    q: Any,
    p: Any,
    out: Any,
) -> None:
    r = code[at, DST]
    columns = right.shape[1]
    if code[at, START] == START_ZERO or code[at, START] == START_NEGATIVE_ZERO:
        for j in range(columns):
            s[r, j] = 0.0
            q[r, j] = _FAR
            p[r, j] = 0.0
    first = code[at, START] == START_FIRST
    fma = table[FMA] != 0.0 and has_left
    for o in range(code[at, N_OUTER]):
        for i in range(code[at, N_INNER]):
            k = code[at, BASE] + o * code[at, S_OUTER] + i * code[at, S_INNER]
            for j in range(columns):
                x = right[k, j]
                grid, odd = grid_of(x), 0.5
                if has_left:
                    grid = min(grid + grid_of(left[k]), _FAR)
                if has_left and (first or not fma):
                    exact = left[k] * x
                    x = multiplied(left[k], x, table, PRODUCT)
                    grid, odd, hard, spread = note(x, exact, grid, odd, abs(exact), table, PRODUCT)
                    charge(out, m, j, hard, spread)
                if first:
                    total = rounded(x, table, ACCUMULATOR)
                    small = abs(x)
                    value = x
                elif has_left and fma:
                    total = fused(left[k], x, s[r, j], table, ACCUMULATOR)
                    value = s[r, j] + left[k] * x
                    small = smaller(s[r, j], q[r, j], left[k] * x, grid, table, ACCUMULATOR)
                    grid, odd = last_bit(q[r, j], p[r, j], grid, odd)
                else:
                    total = added(s[r, j], x, table, ACCUMULATOR)
                    value = s[r, j] + x
                    small = smaller(s[r, j], q[r, j], x, grid, table, ACCUMULATOR)
                    grid, odd = last_bit(q[r, j], p[r, j], grid, odd)
                q[r, j], p[r, j], hard, spread = note(total, value, grid, odd, small, table, ACCUMULATOR)
                charge(out, m, j, hard, spread)
                s[r, j] = total
            first = False


@kernel
def _fused_leaves(
    code: Any, at: int, table: Any, own: Any, left: Any, left_powers: Any, right: Any, right_powers: Any, m: int, s: Any,
    q: Any, p: Any, out: Any,
) -> None:  # fmt: skip
    """Account for a chain of fused adds: each term that is not a multiple of the unit loses less than one unit.

    Of a term that is truncated the mean is half a unit, toward zero, and the variance a twelfth of its square. The sum is
    rounded once; truncated, it loses less than an ulp, half an ulp on average.
    """
    r, first, count, terms = code[at, DST], code[at, BASE], code[at, N_INNER], int(own[TERMS])
    if code[at, START] != START_CONTINUE:
        for j in range(right.shape[1]):
            s[r, j] = 0.0
    nearest = int(table[ACCUMULATOR + 5]) < _TO_NEAREST
    for begin in range(first, first + count, terms):
        end = min(begin + terms, first + count)
        for j in range(right.shape[1]):
            sum_power = power_of(s[r, j])
            peak = max(sum_power, own[LEAST_POWER]) if s[r, j] != 0.0 else own[ZERO_POWER]
            for k in range(begin, end):
                peak = max(peak, left_powers[k] * right_powers[k, j])
            unit = peak / own[UNIT]
            total, hard, spread, lean = 0.0, 0.0, 0.0, 0.0
            for k in range(begin - 1, end):
                term = s[r, j] if k < begin else left[k] * right[k, j]
                kept = np.trunc(term / unit)
                total += kept
                if kept * unit != term:
                    hard += unit
                    spread += unit * unit / 12.0
                    lean -= math.copysign(0.5 * unit, term)
            value = total * unit
            result = rounded(value, table, ACCUMULATOR) + 0.0
            if result - result != 0.0 or overflows(value, table, ACCUMULATOR):
                hard = math.inf
            elif result != value:
                ulp = power_of_two(ulp_exponent(value, int(table[ACCUMULATOR]), int(table[ACCUMULATOR + 1])))
                hard += 0.5 * ulp if nearest else ulp
                spread += ulp * ulp / (8.0 if nearest else 12.0)
                if not nearest:
                    lean += 0.5 * math.copysign(ulp, result - value)
            out[0, m, j] += hard
            out[1, m, j] += spread
            out[3, m, j] += lean
            s[r, j] = result
    for j in range(right.shape[1]):
        q[r, j] = grid_of(s[r, j])
        p[r, j] = 0.5


@kernel
def account(
    nodes: Any, segments: Any, closing: Any, tables: Any, own: Any, left: Any, left_powers: Any, right: Any,
    right_powers: Any, has_left: bool, s: Any, q: Any, p: Any, out: Any, stack: Any, code: Any,
) -> None:  # fmt: skip
    """Run a program without compensation and add up, for every output, the bound and the variance of its roundings.

    Parameters
    ----------
    nodes, segments, closing, tables, left, right, has_left, stack, code
        As `fpsim.kernels.general.general` takes them.
    own, left_powers, right_powers : arrays
        As `fpsim.kernels.fused.fused_products` takes them; powers of no elements where no add is fused.
    s, q, p : float64, int64 and float64 arrays of shape (registers, columns)
        Room for the partial sums, the exponents of their grids, and the probabilities that they are odd there.
    out : float64 array of shape (4, m, columns), zeros
        Takes the bound, the variance, the largest part of it that comes from one rounding, and the mean.
    """
    for m in range(left.shape[0]):
        restart(nodes, stack)
        while stack[0, 0] > 0:
            count = sequence(nodes, segments, closing, False, False, stack, code)
            for at in range(count):
                table = tables[code[at, ARITHMETIC]]
                r = code[at, DST]
                if code[at, OP] == RUN and own[code[at, ARITHMETIC], TERMS] > 0.0:
                    _fused_leaves(
                        code, at, table, own[code[at, ARITHMETIC]], left[m], left_powers[m], right, right_powers, m, s, q,
                        p, out,
                    )  # fmt: skip
                elif code[at, OP] == RUN:
                    _leaves(code, at, table, left[m], right, has_left, m, s, q, p, out)
                elif code[at, OP] == ADD:
                    for j in range(s.shape[1]):
                        total = added(s[r, j], s[r + 1, j], table, ACCUMULATOR)
                        value = s[r, j] + s[r + 1, j]
                        small = smaller(s[r, j], q[r, j], s[r + 1, j], q[r + 1, j], table, ACCUMULATOR)
                        grid, odd = last_bit(q[r, j], p[r, j], q[r + 1, j], p[r + 1, j])
                        q[r, j], p[r, j], hard, spread = note(total, value, grid, odd, small, table, ACCUMULATOR)
                        charge(out, m, j, hard, spread)
                        s[r, j] = total
                elif table[HAS_OUTPUT] != 0.0:
                    for j in range(s.shape[1]):
                        total = rounded(s[r, j], table, OUTPUT)
                        small = abs(s[r, j])
                        q[r, j], p[r, j], hard, spread = note(total, s[r, j], q[r, j], p[r, j], small, table, OUTPUT)
                        charge(out, m, j, hard, spread)
                        s[r, j] = total
