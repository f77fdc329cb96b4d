"""Programs unrolled into straight-line instructions.

The sequencer walks the folds of a program depth first and writes one instruction for each run of leaves and each
addition of two partial sums. It can stop when the instruction buffer is full and go on later, so a program of any
length runs in constant memory. What the instructions compute is the business of whoever executes them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels._jit import kernel

# Columns of an instruction.
OP, DST, START, END, ARITHMETIC, BASE, N_OUTER, S_OUTER, N_INNER, S_INNER, N_ITEMS, S_ITEMS = range(12)
COLUMNS = 12
# Operations: fold a run of leaves, or N_ITEMS equal runs S_ITEMS leaves apart; R[dst] += R[dst + 1]; finish R[dst]; add R[dst] to N_OUTER outputs from BASE on.
RUN, ADD, CLOSE, SHIFT = range(4)
# How a run starts (the first leaf, what the register holds, a zero) and what becomes of its sum.
START_FIRST, START_CONTINUE, START_ZERO, START_NEGATIVE_ZERO = range(4)
END_STORE, END_ADD = range(2)
# Columns of a stack frame: fold, segment, outer and inner position, leaf offset, register, whether it has begun.
_FOLD, _SEGMENT, _O, _I, _OFFSET, _REGISTER, _BEGUN = range(7)


def new_stack(depth: int) -> NDArray[np.int64]:
    """Return a stack for programs nested `depth` folds deep; row 0 holds the height."""
    return np.zeros((depth + 2, 7), np.int64)


@kernel
def restart(nodes: Any, stack: Any) -> None:
    """Set `stack` to the beginning of the program."""
    stack[0, 0] = 1
    stack[1, :] = 0
    stack[1, _FOLD] = nodes.shape[0] - 1


@kernel
def sequence(nodes: Any, segments: Any, closing: Any, merge: bool, scan: bool, stack: Any, code: Any) -> int:
    """Write the next instructions into `code` and return their number; ``stack[0, 0]`` is 0 when the program ended.

    Parameters
    ----------
    nodes, segments : int64 arrays
        Those of a `Program`; the last column of nodes is the number of leaves below a fold.
    closing : bool array
        Whether a fold needs a CLOSE.
    merge : bool
        Write a fold over equal runs as one RUN of several items, and let a fold that is one RUN end by adding itself
        to its parent, instead of a separate ADD. For arithmetic in which x + -0 is x and nothing is carried.
    scan : bool
        Write a SHIFT before every ADD.
    """
    room = code.shape[0] - 3
    n = 0
    top = stack[0, 0]
    while top > 0 and n < room:
        fold = stack[top, _FOLD]
        first, count, start, arithmetic = nodes[fold, 0], nodes[fold, 1], nodes[fold, 2], nodes[fold, 3]
        register = stack[top, _REGISTER]
        if stack[top, _BEGUN] == 0 and (start != 0 or count == 0):
            stack[top, _BEGUN] = 1
            zero = START_NEGATIVE_ZERO if start == 2 else START_ZERO
            _write(code, n, RUN, register, zero, END_STORE, arithmetic, stack[top, _OFFSET])
            n += 1
            continue
        if stack[top, _SEGMENT] == count:
            if closing[fold]:
                _write(code, n, CLOSE, register, 0, 0, arithmetic, 0)
                n += 1
            top -= 1
            if top > 0:
                if stack[top, _BEGUN]:
                    parent = nodes[stack[top, _FOLD], 3]
                    if scan:
                        _write(code, n, SHIFT, stack[top, _REGISTER], 0, 0, parent, stack[top + 1, _OFFSET])
                        code[n, N_OUTER] = nodes[stack[top + 1, _FOLD], 4]
                        n += 1
                    _write(code, n, ADD, stack[top, _REGISTER], 0, 0, parent, 0)
                    n += 1
                else:
                    stack[top, _BEGUN] = 1
            continue
        segment = first + stack[top, _SEGMENT]
        child = segments[segment, 5]
        if child < 0:
            begin = START_CONTINUE if stack[top, _BEGUN] else START_FIRST
            _write_run(code, n, segments, segment, register, begin, END_STORE, arithmetic, stack[top, _OFFSET])
            n += 1
            stack[top, _BEGUN] = 1
            stack[top, _SEGMENT] += 1
            continue
        if merge and stack[top, _I] == 0 and _is_run(nodes, segments, child):
            begin = START_CONTINUE if stack[top, _BEGUN] else START_FIRST
            row = stack[top, _OFFSET] + stack[top, _O] * segments[segment, 2]
            _write_items(code, n, nodes, segments, segment, register, begin, END_STORE, row)
            n += 1
            stack[top, _BEGUN] = 1
            _next_row(segments, segment, stack, top)
            continue
        offset = (
            stack[top, _OFFSET]
            + segments[segment, 0]
            + stack[top, _O] * segments[segment, 2]
            + stack[top, _I] * segments[segment, 4]
        )
        stack[top, _I] += 1
        if stack[top, _I] == segments[segment, 3]:
            _next_row(segments, segment, stack, top)
        begun = stack[top, _BEGUN]
        inner = nodes[child, 0]
        if merge and begun and nodes[child, 1] == 1 and nodes[child, 2] == 0 and segments[inner, 1] == 1:
            # The child is one segment of runs: it can be added to the parent's register as it ends.
            if _is_run(nodes, segments, segments[inner, 5]):
                _write_items(code, n, nodes, segments, inner, register, START_FIRST, END_ADD, offset)
                n += 1
                continue
        top += 1
        stack[top, :] = 0
        stack[top, _FOLD] = child
        stack[top, _OFFSET] = offset
        stack[top, _REGISTER] = register + begun
    stack[0, 0] = top
    return n


@kernel
def _write(code: Any, n: int, op: int, dst: int, start: int, end: int, arithmetic: int, base: int) -> None:
    code[n, OP] = op
    code[n, DST] = dst
    code[n, START] = start
    code[n, END] = end
    code[n, ARITHMETIC] = arithmetic
    code[n, BASE] = base
    code[n, N_OUTER] = 0
    code[n, S_OUTER] = 0
    code[n, N_INNER] = 0
    code[n, S_INNER] = 0
    code[n, N_ITEMS] = 1
    code[n, S_ITEMS] = 0


@kernel
def _write_run(
    code: Any, n: int, segments: Any, segment: int, dst: int, start: int, end: int, arithmetic: int, offset: int
) -> None:
    _write(code, n, RUN, dst, start, end, arithmetic, offset + segments[segment, 0])
    code[n, N_OUTER] = segments[segment, 1]
    code[n, S_OUTER] = segments[segment, 2]
    code[n, N_INNER] = segments[segment, 3]
    code[n, S_INNER] = segments[segment, 4]


@kernel
def _is_run(nodes: Any, segments: Any, fold: int) -> bool:
    """Whether a fold is a run of leaves that starts with its first."""
    return fold >= 0 and nodes[fold, 1] == 1 and nodes[fold, 2] == 0 and segments[nodes[fold, 0], 5] < 0


@kernel
def _next_row(segments: Any, segment: int, stack: Any, top: int) -> None:
    stack[top, _I] = 0
    stack[top, _O] += 1
    if stack[top, _O] == segments[segment, 1]:
        stack[top, _O] = 0
        stack[top, _SEGMENT] += 1


@kernel
def _write_items(
    code: Any, n: int, nodes: Any, segments: Any, segment: int, dst: int, start: int, end: int, offset: int
) -> None:
    """Write the terms of one row of a segment, which are runs of leaves, as one RUN."""
    child = segments[segment, 5]
    offset += segments[segment, 0]
    _write_run(code, n, segments, nodes[child, 0], dst, start, end, nodes[child, 3], offset)
    if segments[segment, 3] == 1 and end == END_STORE and start == START_CONTINUE:
        # One run, begun afresh and then added to the register.
        code[n, START] = START_FIRST
        code[n, END] = END_ADD
    code[n, N_ITEMS] = segments[segment, 3]
    code[n, S_ITEMS] = segments[segment, 4]
