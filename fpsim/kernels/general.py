"""The general executor: any accumulator format, compensation, flush-to-zero; slower than tiles, and just as exact.

Values travel as float64. Every operation is computed exactly or rounded to odd in float64 and then rounded once to its
format (Boldo & Melquiond 2008), so that nothing is rounded twice.
"""

from __future__ import annotations

import math
from typing import Any

from numba import types
from numba.extending import intrinsic

from fpsim.kernels._jit import inlined, kernel
from fpsim.kernels.rounding import DOWN, round_to_odd_sum, round_value
from fpsim.kernels.sequencer import (
    ADD,
    ARITHMETIC,
    BASE,
    DST,
    N_INNER,
    N_ITEMS,
    N_OUTER,
    OP,
    RUN,
    S_INNER,
    S_OUTER,
    SHIFT,
    START,
    START_FIRST,
    START_NEGATIVE_ZERO,
    START_ZERO,
    restart,
    sequence,
)

# Columns of the table of arithmetics: three formats of six numbers each, then the settings.
ACCUMULATOR, PRODUCT, OUTPUT = 0, 6, 12
FMA, COMPENSATION, HAS_OUTPUT, SUBNORMALS = 18, 19, 20, 21
TABLE_COLUMNS = 22
PLAIN, KAHAN, NEUMAIER, DOT2 = range(4)
# Products of at least SMALL have an error that is a float64.
SMALL, LARGEST = 2.0**-960, 1.7976931348623157e308


@intrinsic
def fma64(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a*b + c with one rounding, in float64."""
    del typingctx, a, b, c

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del context, signature
        return builder.fma(*args)

    return types.float64(types.float64, types.float64, types.float64), codegen


@inlined
def two_sum_error(a: float, b: float, total: float) -> float:
    """Return (a + b) - total exactly, where total is a + b rounded to nearest (Knuth)."""
    virtual = total - a
    return (a - (total - virtual)) + (b - virtual)


@inlined
def is_finite(x: float) -> bool:
    """Whether x is neither infinite nor NaN."""
    return x - x == 0.0


@kernel
def rounded(x: float, table: Any, f: int) -> float:
    """Round x to the format in columns f to f + 5 of an arithmetic."""
    return round_value(
        x, int(table[f]), int(table[f + 1]), table[f + 2], int(table[f + 3]), table[f + 4] != 0.0, int(table[f + 5])
    )


@kernel
def added(a: float, b: float, table: Any, f: int) -> float:
    """Return a + b with one rounding."""
    total = a + b
    if table[f] == 53.0 or not is_finite(total):
        return rounded(total, table, f)
    if total == 0.0 and table[f + 5] == DOWN:  # the one mode in which x - x is -0 (IEEE 754-2019, 6.3)
        return -0.0 if math.copysign(1.0, a) < 0.0 or math.copysign(1.0, b) < 0.0 else 0.0
    return rounded(round_to_odd_sum(total, two_sum_error(a, b, total)), table, f)


@inlined
def _beyond(a: float, b: float, product: float) -> float:
    """Return a stand-in for a product at the ends of the range of float64, where its error is no float64.

    No format but float64 itself reaches there, so that a finite product is as good as the largest number, and one
    other than zero as good as any small one.
    """
    if is_finite(product):
        return math.copysign(SMALL, product) if a != 0.0 and b != 0.0 else product
    return math.copysign(LARGEST, product) if is_finite(a) and is_finite(b) else product


@kernel
def multiplied(a: float, b: float, table: Any, f: int) -> float:
    """Return a*b with one rounding."""
    product = a * b
    if table[f] == 53.0:
        return rounded(product, table, f)
    if abs(product) < SMALL or not is_finite(product):
        return rounded(_beyond(a, b, product), table, f)
    return rounded(round_to_odd_sum(product, fma64(a, b, -product)), table, f)


@kernel
def fused(a: float, b: float, c: float, table: Any, f: int) -> float:
    """Return a*b + c with one rounding."""
    if table[f] == 53.0:
        return rounded(fma64(a, b, c), table, f)
    high = a * b
    if abs(high) < SMALL or not is_finite(high):
        return added(_beyond(a, b, high), c, table, f)
    if not is_finite(c):
        return rounded(c, table, f)
    low = fma64(a, b, -high)
    if low == 0.0:
        return added(high, c, table, f)
    inner = c + low
    inner_error = two_sum_error(c, low, inner)
    total = high + inner
    error = two_sum_error(high, inner, total)
    tail = error + inner_error
    tail = round_to_odd_sum(tail, two_sum_error(error, inner_error, tail))
    result = total + tail
    return rounded(round_to_odd_sum(result, two_sum_error(total, tail, result)), table, f)


@kernel
def take(s: Any, c: Any, r: int, j: int, x: float, error: float, table: Any) -> None:
    """Add a term x, with an error of its own, to the sum in register r."""
    kind = int(table[COMPENSATION])
    a = s[r, j]
    if kind == PLAIN:
        s[r, j] = added(a, x, table, ACCUMULATOR)
    elif kind == KAHAN:
        y = added(x, -c[r, j], table, ACCUMULATOR)
        total = added(a, y, table, ACCUMULATOR)
        c[r, j] = added(added(total, -a, table, ACCUMULATOR), -y, table, ACCUMULATOR)
        s[r, j] = total
    else:
        total = added(a, x, table, ACCUMULATOR)
        if is_finite(total):
            big, small = (a, x) if abs(a) >= abs(x) else (x, a)
            local = added(added(big, -total, table, ACCUMULATOR), small, table, ACCUMULATOR)
            if kind == DOT2:
                local = added(local, error, table, ACCUMULATOR)
            c[r, j] = added(c[r, j], local, table, ACCUMULATOR)
        s[r, j] = total


@kernel
def begin(s: Any, c: Any, r: int, j: int, x: float, error: float, table: Any) -> None:
    """Start the sum in register r with the term x: a conversion, which flushes nothing that the format has."""
    s[r, j] = round_value(
        x, int(table[ACCUMULATOR]), int(table[ACCUMULATOR + 1]), table[ACCUMULATOR + 2], int(table[ACCUMULATOR + 3]),
        table[SUBNORMALS] != 0.0, int(table[ACCUMULATOR + 5]),
    )  # fmt: skip
    c[r, j] = error


@kernel
def _product_error(a: float, b: float, product: float, table: Any) -> float:
    if not is_finite(product):
        return 0.0
    return fused(a, b, -product, table, ACCUMULATOR)


@kernel
def take_corrected(s: Any, c: Any, r: int, j: int, a: float, b: float, table: Any) -> None:
    """Kahan's step with the product fused into its correction: y = a*b - c."""
    y = fused(a, b, -c[r, j], table, ACCUMULATOR)
    total = added(s[r, j], y, table, ACCUMULATOR)
    c[r, j] = added(added(total, -s[r, j], table, ACCUMULATOR), -y, table, ACCUMULATOR)
    s[r, j] = total


@kernel
def run_leaves(code: Any, q: int, table: Any, left: Any, right: Any, has_left: bool, s: Any, c: Any, out: Any) -> None:
    """Fold a run of leaves; `out` of at least one row takes the sum after every leaf."""
    r = code[q, DST]
    start = code[q, START]
    columns = right.shape[1]
    if start == START_ZERO or start == START_NEGATIVE_ZERO:
        for j in range(columns):
            s[r, j] = 0.0 if start == START_ZERO else -0.0
            c[r, j] = 0.0
    first = start == START_FIRST
    fma = table[FMA] != 0.0 and has_left
    kahan = table[COMPENSATION] == KAHAN
    emit = out.shape[0] > 0
    # Each of the larger functions is called in one place: the compiler copies them to every call.
    for o in range(code[q, N_OUTER]):
        for i in range(code[q, N_INNER]):
            k = code[q, BASE] + o * code[q, S_OUTER] + i * code[q, S_INNER]
            for j in range(columns):
                x = right[k, j]
                error = 0.0
                if has_left and (first or not fma):
                    y = x
                    x = multiplied(left[k], y, table, PRODUCT)
                    if table[COMPENSATION] == DOT2:
                        error = _product_error(left[k], y, x, table)
                if first:
                    begin(s, c, r, j, x, error, table)
                elif fma:
                    if kahan:
                        take_corrected(s, c, r, j, left[k], x, table)
                    else:
                        s[r, j] = fused(left[k], x, s[r, j], table, ACCUMULATOR)
                else:
                    take(s, c, r, j, x, error, table)
                if emit:
                    out[k, j] = closed(s[r, j], c[r, j], table)
            first = False


@kernel
def closed(s: float, c: float, table: Any) -> float:
    """Return the value of a finished sum: s + c for Neumaier and Dot2, else s; rounded to the output format."""
    if table[COMPENSATION] >= NEUMAIER and is_finite(s):
        s = added(s, c, table, ACCUMULATOR)
    if table[HAS_OUTPUT] != 0.0:
        s = rounded(s, table, OUTPUT)
    return s


@kernel
def add_register(s: Any, c: Any, r: int, carries: bool, table: Any) -> None:
    """Add register r + 1 to register r; an error that it carries is carried on."""
    for j in range(s.shape[1]):
        take(s, c, r, j, s[r + 1, j], 0.0, table)
        if carries:
            c[r, j] = added(c[r, j], c[r + 1, j], table, ACCUMULATOR)


@kernel
def general(
    nodes: Any, segments: Any, closing: Any, tables: Any, left: Any, right: Any, has_left: bool, s: Any, c: Any,
    result: Any, scan: Any, stack: Any, code: Any,
) -> None:  # fmt: skip
    """Run a program in any arithmetic.

    Parameters
    ----------
    nodes, segments, closing : arrays
        The program; `closing` marks the folds whose sums are finished by a step of their own.
    tables : float64 array of shape (arithmetics, TABLE_COLUMNS)
        The arithmetics.
    left : float64 array of shape (m, n)
        Rows of the left operand; a sum has one row, not looked at, and `has_left` False.
    right : float64 array of shape (n, columns)
        The terms, or the right operand.
    s, c : float64 arrays of shape (registers, columns)
        Room for the partial sums.
    result : float64 array of shape (m, columns)
        The finished sums.
    scan : float64 array of shape (n, columns) or (0, columns)
        If not empty, takes the sum after every leaf (m is 1 then).
    stack, code : arrays
        Room for the sequencer.
    """
    scanning = scan.shape[0] > 0
    for m in range(left.shape[0]):
        restart(nodes, stack)
        while stack[0, 0] > 0:
            count = sequence(nodes, segments, closing, False, scanning, stack, code)
            for q in range(count):
                table = tables[code[q, ARITHMETIC]]
                r = code[q, DST]
                if code[q, OP] == RUN:
                    run_leaves(code, q, table, left[m], right, has_left, s, c, scan)
                elif code[q, OP] == ADD:
                    add_register(s, c, r, table[COMPENSATION] >= NEUMAIER, table)
                elif code[q, OP] == SHIFT:
                    for k in range(code[q, BASE], code[q, BASE] + code[q, N_ITEMS]):
                        for j in range(right.shape[1]):
                            scan[k, j] = added(s[r, j], scan[k, j], table, ACCUMULATOR)
                else:
                    for j in range(right.shape[1]):
                        s[r, j] = closed(s[r, j], c[r, j], table)
                        c[r, j] = 0.0
        for j in range(right.shape[1]):
            result[m, j] = s[0, j]
