"""Programs run with multiplications in place of additions, in any accumulator format."""

from __future__ import annotations

from typing import Any

from fpsim.kernels._jit import kernel
from fpsim.kernels.general import ACCUMULATOR, HAS_OUTPUT, OUTPUT, multiplied, rounded
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
    restart,
    sequence,
)


@kernel
def multiply_all(
    nodes: Any, segments: Any, closing: Any, tables: Any, terms: Any, s: Any, result: Any, stack: Any, code: Any
) -> None:
    """Multiply the terms of each column along the tree of a program.

    Parameters
    ----------
    nodes, segments, closing, tables : arrays
        The program and its arithmetics, see `fpsim.kernels.general.general`; an accumulator that starts from a zero
        starts from 1 here, and the format of a product is the accumulator's.
    terms : float64 array of shape (n, columns)
        The factors.
    s : float64 array of shape (registers, columns)
        Room for the partial products.
    result : float64 array of shape (columns,)
        The products.
    stack, code : arrays
        Room for the sequencer.
    """
    columns = terms.shape[1]
    restart(nodes, stack)
    while stack[0, 0] > 0:
        count = sequence(nodes, segments, closing, False, False, stack, code)
        for q in range(count):
            table = tables[code[q, ARITHMETIC]]
            r = code[q, DST]
            if code[q, OP] == RUN:
                if code[q, START] != START_CONTINUE:
                    for j in range(columns):
                        s[r, j] = 1.0
                for o in range(code[q, N_OUTER]):
                    for i in range(code[q, N_INNER]):
                        k = code[q, BASE] + o * code[q, S_OUTER] + i * code[q, S_INNER]
                        for j in range(columns):
                            s[r, j] = multiplied(s[r, j], terms[k, j], table, ACCUMULATOR)
            elif code[q, OP] == ADD:
                for j in range(columns):
                    s[r, j] = multiplied(s[r, j], s[r + 1, j], table, ACCUMULATOR)
            elif table[HAS_OUTPUT] != 0.0:
                for j in range(columns):
                    s[r, j] = rounded(s[r, j], table, OUTPUT)
    for j in range(columns):
        result[j] = s[0, j]
