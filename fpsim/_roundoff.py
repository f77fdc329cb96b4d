"""What the roundings of a strategy may cost on given data: a hard bound and a variance for every output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim._arrays import axes_of
from fpsim._execution import closing_folds, for_each, rooms, table_of
from fpsim.bounds import Operands, operands
from fpsim.emulation import product_shape
from fpsim.errors import InputError
from fpsim.orders.base import Reduction
from fpsim.programs import Program
from fpsim.strategies import Strategy

Floats = NDArray[np.float64]
_PANEL = 64


@dataclass(frozen=True, slots=True)
class Account:
    """Bound and variance of the rounding errors, arrays of the shape of the result.

    Attributes
    ----------
    hard : ndarray of float64
        No error is larger (barring compensation, which has no account).
    variance : ndarray of float64
        Of the error, where the bits that the roundings drop are random.
    largest : ndarray of float64
        The largest part of the variance that comes from one rounding.
    magnitude : ndarray of float64
        Sum of the terms' magnitudes.
    """

    hard: Floats
    variance: Floats
    largest: Floats
    magnitude: Floats


def has_account(program: Program) -> bool:
    """Whether all roundings of a program can be accounted for: sums of two, without compensation or flushing."""
    return all(
        a.compensation is None and not a.ftz and not a.daz and getattr(a, "align", None) is None
        for a in program.arithmetics
    )


def account(op: str, chosen: Strategy, /, *inputs: Any, axis: Any = None) -> Account | None:
    """Return the account of a strategy on data; None where its arithmetic has none.

    Parameters
    ----------
    op : {"sum", "dot", "matmul"}
        The operation.
    chosen : Strategy
        The strategy.
    *inputs : array_like
        The operands; of a product one or two dimensions each.
    axis : int or tuple of int, optional
        Of a sum.
    """
    given = operands(op, chosen, *inputs, axis=axis)
    shape = given.magnitude.shape
    found = _sums(chosen, given, axis) if op == "sum" else _products(chosen, given)
    if found is None:
        return None
    hard, variance, largest = (x.reshape(shape) for x in found)
    # The rounding of the operands themselves was measured.
    return Account(hard + given.conversion, variance + given.conversion**2, largest, given.magnitude)


def _sums(chosen: Strategy, given: Operands, axis: Any) -> Floats | None:
    x = given.values[0]
    axes = axes_of(x.ndim, axis)
    order_axes, parts = chosen.order.layout(Reduction(x.shape, x.strides, axes, given.data))
    kept = tuple(a for a in range(x.ndim) if a not in axes)
    moved = x.transpose((*order_axes, *kept))
    n = int(np.prod(moved.shape[: len(axes)], dtype=np.int64))
    view = moved.reshape(n, int(np.prod(moved.shape[len(axes) :], dtype=np.int64)))
    out = np.zeros((3, 1, view.shape[1]))
    for part in parts:
        program = _program(chosen, part.order, n, given)
        if not has_account(program):
            return None
        places = np.arange(view.shape[1]) if part.columns is None else np.array(part.columns, np.int64)
        out[:, :, places] = _run(None, view[:, places], program)
    return out


def _products(chosen: Strategy, given: Operands) -> Floats | None:
    a, b = given.values
    if a.ndim > 2 or b.ndim > 2:
        message = (
            f"a tolerance is worked out for products of one or two dimensions, not of shapes {a.shape} and {b.shape}"
        )
        raise InputError(message)
    shape = product_shape(a, b)
    left, right = np.atleast_2d(a), b[:, None] if b.ndim == 1 else b
    out = np.zeros((3, shape.m, shape.n))
    for part in chosen.order.product(shape):
        program = _program(chosen, part.order, shape.k, given)
        if not has_account(program):
            return None
        rows = np.arange(shape.m) if part.rows is None else np.array(part.rows, np.int64)
        columns = np.arange(shape.n) if part.columns is None else np.array(part.columns, np.int64)
        out[:, rows[:, None], columns] = _run(left[rows], right[:, columns], program)
    return out


def _program(chosen: Strategy, order: Any, n: int, given: Operands) -> Program:
    own = chosen if order is chosen.order else Strategy(order, chosen.settings)
    return own.program(n, data=given.data)


def _run(left: Any, right: Any, program: Program) -> Floats:
    from fpsim.kernels import roundoff

    rows = np.zeros((1, 0)) if left is None else left.astype(np.float64)
    columns = right.shape[1]
    tables = np.array([table_of(a) for a in program.arithmetics])
    closing = closing_folds(program)
    out = np.zeros((3, rows.shape[0], columns))

    def worker() -> Callable[[int], None]:
        _, stack, code = rooms(program, 1, 1, np.float64)

        def panel(start: int) -> None:
            part = np.ascontiguousarray(right[:, start : start + _PANEL], np.float64)
            width = part.shape[1]
            s, p = np.zeros((2, program.registers, width))
            q = np.zeros((program.registers, width), np.int64)
            some = np.zeros((3, rows.shape[0], width))
            roundoff.account(
                program.nodes, program.segments, closing, tables, rows, part, left is not None, s, q, p, some[0],
                some[1], some[2], stack, code,
            )  # fmt: skip
            out[:, :, start : start + width] = some

        return panel

    for_each(worker, range(0, columns, _PANEL), rows.shape[0] * right.size * 16)
    return out
