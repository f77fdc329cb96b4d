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
# Operations: fold a run of leaves, or N_ITEMS equal runs S_ITEMS leaves apart; R[dst] += R[dst + 1]; finish R[dst]; add R[dst] to N_ITEMS outputs from BASE on.
RUN, ADD, CLOSE, SHIFT = range(4)
# How a run starts (the first leaf, what the register holds, a zero) and what becomes of its sum.
START_FIRST, START_CONTINUE, START_ZERO, START_NEGATIVE_ZERO = range(4)
END_STORE, END_ADD = range(2)
# Columns of a stack frame: fold, segment, outer and inner position, leaf offset, register, and what has been done.
_FOLD, _SEGMENT, _O, _I, _OFFSET, _REGISTER, _BEGUN, _CLOSED, _SHIFTED = range(9)


def new_stack(depth: int) -> NDArray[np.int64]:
    """Return a stack for programs nested `depth` folds deep; row 0 holds the height."""
    return np.zeros((depth + 2, 9), np.int64)


@kernel
def restart(nodes: Any, stack: Any) -> None:
    """Set `stack` to the beginning of the program."""
    stack[0, 0] = 1
    for column in range(stack.shape[1]):
        stack[1, column] = 0
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
    n = 0
    top = stack[0, 0]
    while top > 0 and n < code.shape[0]:
        fold = stack[top, _FOLD]
        first, count, start, arithmetic = nodes[fold, 0], nodes[fold, 1], nodes[fold, 2], nodes[fold, 3]
        register, offset, begun = stack[top, _REGISTER], stack[top, _OFFSET], stack[top, _BEGUN]
        # The next instruction, if this step writes one; `run` is the segment of leaves whose extent it takes.
        op, begin, end, base, run, items, spread = -1, START_FIRST, END_STORE, offset, -1, 1, 0
        if begun == 0 and (start != 0 or count == 0):
            op, begin = RUN, START_NEGATIVE_ZERO if start == 2 else START_ZERO
            stack[top, _BEGUN] = 1
        elif stack[top, _SEGMENT] == count:
            if closing[fold] and not stack[top, _CLOSED]:
                op = CLOSE
                stack[top, _CLOSED] = 1
            elif top > 1 and stack[top - 1, _BEGUN]:
                # The parent takes the sum, after the outputs of a scan have taken what stood before.
                register, arithmetic = stack[top - 1, _REGISTER], nodes[stack[top - 1, _FOLD], 3]
                if scan and not stack[top, _SHIFTED]:
                    op, items = SHIFT, nodes[fold, 4]
                    stack[top, _SHIFTED] = 1
                else:
                    op = ADD
                    top -= 1
            else:
                top -= 1
                stack[top, _BEGUN] = 1
        else:
            segment = first + stack[top, _SEGMENT]
            child = segments[segment, 5]
            base += segments[segment, 0] + stack[top, _O] * segments[segment, 2] + stack[top, _I] * segments[segment, 4]
            if child < 0:
                op, run, begin = RUN, segment, START_CONTINUE if begun else START_FIRST
                stack[top, _BEGUN] = 1
                stack[top, _SEGMENT] += 1
            elif merge and stack[top, _I] == 0 and _is_run(nodes, segments, child):
                op, run = RUN, nodes[child, 0]
                base += segments[run, 0]
                items, spread, arithmetic = segments[segment, 3], segments[segment, 4], nodes[child, 3]
                if begun:
                    # One run begins afresh and is then added to the register; several are added to it one by one.
                    begin, end = (START_FIRST, END_ADD) if items == 1 else (START_CONTINUE, END_STORE)
                stack[top, _BEGUN] = 1
                _next_row(segments, segment, stack, top)
            else:
                stack[top, _I] += 1
                if stack[top, _I] == segments[segment, 3]:
                    _next_row(segments, segment, stack, top)
                inner = nodes[child, 0]
                plain = nodes[child, 1] == 1 and nodes[child, 2] == 0 and segments[inner, 1] == 1
                if merge and begun and plain and _is_run(nodes, segments, segments[inner, 5]):
                    # The child is one row of runs: it can be added to the register as it ends.
                    op, run, end = RUN, nodes[segments[inner, 5], 0], END_ADD
                    items, spread = segments[inner, 3], segments[inner, 4]
                    base += segments[inner, 0] + segments[run, 0]
                    arithmetic = nodes[segments[inner, 5], 3]
                else:
                    top += 1
                    for column in range(stack.shape[1]):
                        stack[top, column] = 0
                    stack[top, _FOLD] = child
                    stack[top, _OFFSET] = base
                    stack[top, _REGISTER] = register + begun
        if op >= 0:
            code[n, OP] = op
            code[n, DST] = register
            code[n, START] = begin
            code[n, END] = end
            code[n, ARITHMETIC] = arithmetic
            code[n, N_ITEMS] = items
            code[n, S_ITEMS] = spread
            for column in range(4):
                code[n, N_OUTER + column] = segments[run, 1 + column] if run >= 0 else 0
            code[n, BASE] = base
            n += 1
    stack[0, 0] = top
    return n


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
