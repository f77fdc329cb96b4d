"""Running programs: which executor, what memory, which threads."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.arithmetic import COMPENSATIONS, Arithmetic
from fpsim.formats import FLOAT16, FLOAT32, Format, RoundingMode, rounding_mode_code
from fpsim.programs import Program

_Array = NDArray[Any]
_INSTRUCTIONS = 4096  # of the buffer that a program is unrolled into
_FEW = 16  # sums that are read in place
_PANEL = 64  # columns that the general executor treats together


def storage(form: Format) -> type[np.floating]:
    """Return the NumPy type that results in a format come in."""
    if form.precision == FLOAT16.precision and form.emax == FLOAT16.emax and form.emin == FLOAT16.emin:
        return np.float16
    return np.float32 if FLOAT32.includes(form) else np.float64


def _plain(program: Program) -> bool:
    """Whether the fast executor can run this program."""
    first = program.arithmetics[0]
    return all(a.is_plain and a.accumulator == first.accumulator for a in program.arithmetics)


def _has_fused_adds(program: Program) -> bool:
    return any(arithmetic.terms for arithmetic in program.arithmetics)


def closing_folds(program: Program) -> NDArray[np.bool]:
    """Which folds finish by a step of their own: rounding an output, dropping or adding a correction."""
    arithmetic = [program.arithmetics[index] for index in program.nodes[:, 3].tolist()]
    out = np.array([own.output is not None or own.compensation == "kahan" for own in arithmetic])
    out[-1] |= arithmetic[-1].compensation is not None
    return out


def workers_for(work: int) -> int:
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 1 if work < 2_000_000 else available


def for_each(start_worker: Callable[[], Callable[[Any], None]], tasks: Iterable[Any], work: int) -> None:
    """Run tasks that fill separate outputs; their number of threads cannot change a bit.

    Every worker calls `start_worker` once, for a function with working memory of its own, and does its share of tasks.
    """
    tasks = list(tasks)
    workers = min(workers_for(work), len(tasks))

    def share(first: int) -> None:
        run = start_worker()
        for task in tasks[first::workers]:
            run(task)

    if workers <= 1:
        share(0)
        return
    with ThreadPoolExecutor(workers - 1) as pool:
        others = [pool.submit(share, first) for first in range(1, workers)]
        share(0)
        for other in others:
            other.result()


def run_sums(view: _Array, program: Program, arithmetic: Arithmetic) -> _Array:
    """Return the sum of each column of `view`, shape (n, outputs)."""
    outputs = view.shape[1]
    if _has_fused_adds(program):
        summed: _Array = run_products(np.ones((1, view.shape[0]), view.dtype), view, program, arithmetic)[0]
        return summed
    out = np.empty(outputs, storage(arithmetic.result_format))
    if outputs == 0:
        return out
    accumulator = storage(program.arithmetics[-1].accumulator.format)
    if not _plain(program) or not np.can_cast(view.dtype, accumulator):
        wide = np.empty((1, outputs), np.float64)
        _general(None, view, program, None, wide)
        with np.errstate(over="ignore"):
            out[:] = wide[0]
        return out
    from fpsim.kernels import interpreter

    # A few sums are read in place, one by one; many go side by side through vector registers.
    kind = interpreter.SCALAR if outputs < _FEW else interpreter.ROW
    _, width = interpreter.tile_shape(kind, out.itemsize)
    closing = np.zeros(program.fold_count, np.bool)

    in_place = width == 1 and view.dtype == out.dtype

    def worker() -> Callable[[int], None]:
        registers, stack, code = rooms(program, 1, width, out.dtype)
        room = interpreter.aligned((0 if in_place else view.shape[0], width), out.dtype)

        def panel(start: int) -> None:
            if in_place:
                right, offset, stride = _in_place(view[:, start])
            else:
                right, offset, stride = _panel(view, start, None, room).reshape(-1), 0, width
            target = out[start : start + width]
            interpreter.sums(
                kind, program.nodes, program.segments, closing, right, offset, stride, registers, target, stack, code
            )  # fmt: skip

        return panel

    for_each(worker, range(0, outputs, width), view.size)
    return out


def _in_place(vector: _Array) -> tuple[_Array, int, int]:
    """Return a strided vector as contiguous memory, without a copy, with the place of its first element and its step.

    The memory comes read-only, so that one compiled kernel serves all.
    """
    step, rest = divmod(vector.strides[0], vector.itemsize)
    if rest or vector.size < 2:
        vector, step = np.ascontiguousarray(vector), 1
    first = -step * (vector.size - 1) if step < 0 else 0
    lowest = vector[::-1] if step < 0 else vector
    length = abs(step) * (vector.size - 1) + 1 if vector.size else 0
    memory = np.lib.stride_tricks.as_strided(lowest, (length,), (vector.itemsize,), writeable=False)
    return memory, first, step


def _frozen(x: _Array) -> _Array:
    """Return x read-only; a kernel is compiled once for that, and not again for operands that are so already."""
    view = x.view()
    view.flags.writeable = False
    return view


def _panel(matrix: _Array, start: int, places: _Array | None, room: _Array) -> _Array:
    """Return as many columns of a matrix as `room` has, from `start` on, with its rows in order `places`.

    They are copied into `room`, with zeros beyond the end of the matrix, unless they can be read in place.
    """
    part = matrix[:, start : start + room.shape[1]]
    width = part.shape[1]
    if places is None and part.shape == room.shape and part.flags.c_contiguous and part.dtype == room.dtype:
        return _frozen(part)
    if places is None or part.dtype != room.dtype:
        room[:, :width] = part if places is None else part[places]
    else:
        np.take(part, places, axis=0, out=room[:, :width], mode="clip")  # "raise" would buffer
    room[:, width:] = 0
    return _frozen(room)


def rooms(program: Program, rows: int, columns: int, dtype: Any) -> tuple[_Array, _Array, _Array]:
    """Return the working memory of a worker: registers, stack and instruction buffer."""
    from fpsim.kernels import interpreter, sequencer

    registers = interpreter.aligned((program.registers, rows, columns), dtype)
    stack = sequencer.new_stack(program.nesting)
    return registers, stack, np.empty((_INSTRUCTIONS, sequencer.COLUMNS), np.int64)


def run_products(
    left: _Array, right: _Array, program: Program, arithmetic: Arithmetic, out: _Array | None = None,
    formats: tuple[Format, Format] = (FLOAT32, FLOAT32),
) -> _Array:  # fmt: skip
    """Return the product of two matrices, in `out` if that contiguous matrix is given.

    `formats` are those of the operands, where the arithmetic states none. Only fused adds look at them.
    """
    (m, n), columns = left.shape, right.shape[1]
    if out is None:
        out = np.empty((m, columns), storage(arithmetic.result_format))
    if out.size == 0:
        return out
    if _has_fused_adds(program):
        stated = [arithmetic.operand(name) for name in "ab"]
        forms = [given if own is None else own.format for own, given in zip(stated, formats, strict=True)]
        from fpsim._fused_execution import run_fused

        wide = run_fused(left, right, program, (forms[0], forms[1]))
        with np.errstate(over="ignore"):
            out[:] = wide
        return out
    accumulator = storage(program.arithmetics[-1].accumulator.format)
    if not _plain(program) or not np.can_cast(np.result_type(left, right), accumulator):
        wide = np.empty((m, columns), np.float64)
        _general(left, right, program, None, wide)
        with np.errstate(over="ignore"):
            out[:] = wide
        return out
    if columns < m and columns < 16:
        out[:] = run_products(right.T, left.T, program, arithmetic).T
        return out
    from fpsim.kernels import interpreter

    kind = interpreter.SCALAR if out.size == 1 else interpreter.ROW if m < 4 else interpreter.WIDE
    rows, width = interpreter.tile_shape(kind, out.itemsize)
    whole = m // rows
    places = None
    if out.size > 1 and program.sequential is not program:
        # The leaves are laid out in the order of visit, so that every program reads its operands from first to last.
        places, program = program.visits, program.sequential
    packed = rows > 1 and (places is not None or not program.has_long_runs)
    tiles = _row_tiles(left[: whole * rows], rows, packed, places, out.dtype)
    rest = _row_tiles(left[whole * rows :], rows, packed, places, out.dtype)
    closing = np.zeros(program.fold_count, np.bool)
    fused = np.array([a.fma for a in program.arithmetics])

    def worker() -> Callable[[tuple[int, int, int]], None]:
        registers, stack, code = rooms(program, rows, width, out.dtype)
        room = interpreter.aligned((n, width), out.dtype)

        def block(task: tuple[int, int, int]) -> None:
            start, first, last = task
            panel = _panel(right, start, places, room)
            across = (start, min(start + width, columns))
            parts = [(tiles[first:last], (first * rows, last * rows, *across))]
            if last == whole:
                parts.append((rest, (whole * rows, m, *across)))
            for operand, place in parts:
                interpreter.products(
                    kind, program.nodes, program.segments, closing, fused, operand, packed, panel, registers, out,
                    place, stack, code,
                )  # fmt: skip

        return block

    work = m * n * columns
    panels = range(0, columns, width)
    parts = max(1, min(whole, workers_for(work) // len(panels)))
    cuts = [whole * part // parts for part in range(parts + 1)]
    for_each(worker, [(start, a, b) for start in panels for a, b in itertools.pairwise(cuts)], work)
    return out


def _row_tiles(left: _Array, rows: int, packed: bool, places: _Array | None, dtype: Any) -> _Array:
    """Return the rows of a matrix in groups of `rows`, zeros beyond the last; see `fpsim.kernels.interpreter.products`.

    Long runs of leaves read the rows in place. For short ones the rows of a group are put side by side.
    """
    from fpsim.kernels import interpreter

    m, n = left.shape
    groups, whole = -(-m // rows), m // rows
    if places is not None:
        left = left[:, places]
    if m == groups * rows and not packed:
        return _frozen(np.ascontiguousarray(left, dtype).reshape(groups, rows, n))
    out = interpreter.aligned((groups, n, rows) if packed else (groups, rows, n), dtype)
    view = out.transpose(0, 2, 1) if packed else out
    view[:whole] = left[: whole * rows].reshape(whole, rows, n)
    if whole < groups:
        view[whole] = 0
        view[whole, : m - whole * rows] = left[whole * rows :]
    return _frozen(out)


def run_scan(view: _Array, program: Program, out: _Array) -> None:
    """Fill `out` with the running sums down each column of `view`, float64 arrays of shape (n, outputs)."""
    _general(None, view, program, out)


def run_multiplied(view: _Array, program: Program, arithmetic: Arithmetic) -> _Array:
    """Return the product of the factors in each column of `view`, shape (n, outputs), along the tree of a program."""
    from fpsim.kernels import multiplying

    n, outputs = view.shape
    out = np.empty(outputs, storage(arithmetic.result_format))
    if outputs == 0:
        return out
    tables = np.array([table_of(a) for a in program.arithmetics])
    closing = closing_folds(program)

    def worker() -> Callable[[int], None]:
        _, stack, code = rooms(program, 1, 1, np.float64)

        def panel(start: int) -> None:
            part = np.ascontiguousarray(view[:, start : start + _PANEL], np.float64)
            width = part.shape[1]
            s, result = np.zeros((program.registers, width)), np.empty(width)
            multiplying.multiply_all(program.nodes, program.segments, closing, tables, part, s, result, stack, code)
            with np.errstate(over="ignore"):
                out[start : start + width] = result

        return panel

    for_each(worker, range(0, outputs, _PANEL), n * outputs * 8)
    return out


def _general(
    left: _Array | None, right: _Array, program: Program, scan: _Array | None, out: _Array | None = None
) -> None:
    """Run any program in any arithmetic, into `out` of shape (m, columns), or all partial sums into `scan`."""
    from fpsim.kernels import general

    columns = right.shape[1]
    tables = np.array([table_of(a) for a in program.arithmetics])
    closing = closing_folds(program)
    has_left = left is not None
    rows = np.zeros((1, 0)) if left is None else left.astype(np.float64)
    if out is None:
        out = np.empty((1, columns))

    def worker() -> Callable[[int], None]:
        _, stack, code = rooms(program, 1, 1, np.float64)

        def panel(start: int) -> None:
            part = np.ascontiguousarray(right[:, start : start + _PANEL], np.float64)
            width = part.shape[1]
            s, c = np.zeros((2, program.registers, width))
            result = np.empty((rows.shape[0], width))
            trace = np.empty((part.shape[0] if scan is not None else 0, width))
            general.general(
                program.nodes, program.segments, closing, tables, rows, part, has_left, s, c, result, trace, stack,
                code,
            )  # fmt: skip
            out[:, start : start + width] = result
            if scan is not None:
                scan[:, start : start + width] = trace

        return panel

    for_each(worker, range(0, columns, _PANEL), rows.shape[0] * right.size * 8)


def table_of(a: Arithmetic) -> list[float]:
    """Return the numbers of an arithmetic as the general executor reads them."""

    def numbers(form: Format, mode: RoundingMode) -> list[float]:
        flushed = form.without_subnormals() if a.ftz else form
        return [float(number) for number in (*flushed.parameters, rounding_mode_code(mode))]

    accumulator = a.accumulator
    output = a.output or accumulator
    compensation = 0 if a.compensation is None else 1 + COMPENSATIONS.index(a.compensation)
    return [
        *numbers(accumulator.format, accumulator.mode),
        *numbers(a.product or accumulator.format, accumulator.mode),
        *numbers(output.format, output.mode),
        float(a.fma), float(compensation), float(a.output is not None),
        float(accumulator.format.subnormals),
    ]  # fmt: skip
