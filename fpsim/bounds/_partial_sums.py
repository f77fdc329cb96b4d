"""Running a case for the sums over its partial sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpsim._execution import closing_folds, rooms, table_of
from fpsim.arithmetic import Arithmetic, Rounding
from fpsim.bounds.cases import Case, NotApplicableError, PartialSums
from fpsim.emulation import _places, _resolved, _terms, product_shape
from fpsim.programs import Program

_PANEL = 64


def partial_sums(case: Case, /) -> PartialSums:
    """Return the sums over the partial sums of a case."""
    for program, _ in case.programs:
        if not _one_by_one(program):
            message = "compensated, flushing or fused sums: their partial sums are not rounded one by one"
            raise NotApplicableError(message)
    values = case.operands.values
    if case.op == "sum":
        view, shape, parts = _terms(values[0], case.strategy, case.axis, case.operands.data, case.inputs[0])
        out = np.zeros((4, 1, view.shape[1]))
        for part in parts:
            program = _resolved(case.strategy, part.order).program(view.shape[0], data=case.operands.data)
            places = _places(part.columns)
            out[:, :, places] = _run(None, view[:, places], program)
    else:
        a, b = values
        case.require(a.ndim < 3 and b.ndim < 3, "products of more than two dimensions")
        left, right, shape = np.atleast_2d(a), b[:, None] if b.ndim == 1 else b, case.shape
        out = np.zeros((4, left.shape[0], right.shape[1]))
        for part in case.strategy.order.product(product_shape(a, b)):
            program = _resolved(case.strategy, part.order).program(left.shape[1], data=case.operands.data)
            rows, columns = np.arange(left.shape[0])[_places(part.rows)], np.arange(right.shape[1])
            columns = columns[_places(part.columns)]
            out[:, rows[:, None], columns] = _run(left[rows], right[:, columns], program)
    first, second, largest, roundings = (x.reshape(shape) for x in out)
    return PartialSums(first, np.sqrt(second), largest, roundings)


def _one_by_one(program: Program) -> bool:
    return not any(
        a.compensation or a.ftz or a.daz or a.terms or not a.accumulator.format.subnormals for a in program.arithmetics
    )


def _unit(rounding: Rounding) -> float:
    u = rounding.format.unit_roundoff
    return u if rounding.mode.startswith("nearest") else 2.0 * u


def _units(a: Arithmetic) -> list[float]:
    product = Rounding(a.product or a.accumulator.format, a.accumulator.mode)
    return [_unit(a.accumulator), _unit(product), _unit(a.output or a.accumulator)]


def _run(left: Any, right: Any, program: Program) -> Any:
    from fpsim.kernels import partial_sums as kernels

    rows = np.zeros((1, 0)) if left is None else left.astype(np.float64)
    tables = np.array([table_of(a) for a in program.arithmetics])
    units = np.array([_units(a) for a in program.arithmetics])
    out = np.zeros((4, rows.shape[0], right.shape[1]))
    if not rows.shape[0]:
        return out
    _, stack, code = rooms(program, 1, 1, np.float64)
    for start in range(0, right.shape[1], _PANEL):
        part = np.ascontiguousarray(right[:, start : start + _PANEL], np.float64)
        some = np.zeros((4, rows.shape[0], part.shape[1]))
        kernels.partial_sums(
            program.nodes, program.segments, closing_folds(program), tables, units, rows, part, left is not None,
            np.zeros((program.registers, part.shape[1])), some[0], some[1], some[2], some[3], stack, code,
        )  # fmt: skip
        out[:, :, start : start + _PANEL] = some
    return out
