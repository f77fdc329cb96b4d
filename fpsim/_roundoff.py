"""What the roundings of a strategy may cost on given data: a hard bound and a variance for every output."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim._execution import closing_folds, for_each, rooms, table_of
from fpsim.bounds import Operands, operands
from fpsim.emulation import _terms, product_shape
from fpsim.errors import InputError
from fpsim.programs import Program
from fpsim.strategies import Strategy

Floats = NDArray[np.float64]
Sample = tuple[NDArray[np.int64], NDArray[np.int64]]
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
        a.compensation is None and not a.ftz and not a.daz and a.align is None and not a.terms
        and all(form.subnormals for form in (a.accumulator.format, a.product, a.output and a.output.format) if form)
        for a in program.arithmetics
    )  # fmt: skip


def account(
    op: str, chosen: Strategy, /, *inputs: Any, axis: Any = None, some: Sample | None = None
) -> Account | None:  # fmt: skip
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
    some : pair of arrays of int, optional
        Work out only these rows and columns of a product, or of a sum those outputs that the second names; the answer
        then comes flat.
    """
    given = operands(op, chosen, *inputs, axis=axis)
    shape = given.magnitude.shape
    every = np.arange(1), np.arange(math.prod(shape))
    if op != "sum":
        _check_dimensions(*given.values)
        whole = product_shape(*given.values)
        every = np.arange(whole.m), np.arange(whole.n)
    found = (
        _sums(chosen, given, axis, inputs[0], some or every) if op == "sum" else _products(chosen, given, some or every)
    )
    if found is None:
        return None
    magnitude, conversion = (picked(x, every, some) for x in (given.magnitude, given.conversion))
    hard, variance, largest = (x.reshape(magnitude.shape) for x in found)
    # The bounds of single roundings are exact, their sum is not; that of the operands themselves was measured.
    terms = max(x.size for x in given.values)
    with np.errstate(all="ignore"):
        hard = hard * (1.0 + (2 * terms + 8) * 2.0**-52) + conversion
        variance = variance + conversion**2
    hard, variance = (np.where(np.isnan(x), np.inf, x) for x in (hard, variance))
    return Account(hard, variance, largest, magnitude)


def picked(x: Any, every: Sample, some: Sample | None) -> Any:
    """Return the chosen outputs of an array of results, flat; all of them as they are without a choice."""
    if some is None:
        return x
    return np.reshape(x, (every[0].size, every[1].size))[np.ix_(*some)].reshape(-1)


def _sums(chosen: Strategy, given: Operands, axis: Any, source: Any, some: Sample) -> Floats | None:
    view, _, parts = _terms(given.values[0], chosen, axis, given.data, source)
    n = view.shape[0]
    out = np.zeros((3, 1, some[1].size))
    for part in parts:
        program = _program(chosen, part.order, n, given)
        if not has_account(program):
            return None
        places = _among(some[1], part.columns)
        out[:, :, places] = _run(None, view[:, some[1][places]], program)
    return out


def _among(some: NDArray[np.int64], part: Any) -> NDArray[np.int64]:
    """Return which of the chosen rows or columns belong to a part; all do if that is None."""
    return np.arange(some.size) if part is None else np.flatnonzero(np.isin(some, np.array(part, np.int64)))


def _check_dimensions(a: Any, b: Any) -> None:
    if not 0 < a.ndim < 3 or not 0 < b.ndim < 3:
        message = (
            f"a tolerance is worked out for products of one or two dimensions, not of shapes {a.shape} and {b.shape}"
        )
        raise InputError(message)


def _products(chosen: Strategy, given: Operands, some: Sample) -> Floats | None:
    a, b = given.values
    shape = product_shape(a, b)
    left, right = np.atleast_2d(a), b[:, None] if b.ndim == 1 else b
    out = np.zeros((3, some[0].size, some[1].size))
    for part in chosen.order.product(shape):
        program = _program(chosen, part.order, shape.k, given)
        if not has_account(program):
            return None
        rows, columns = _among(some[0], part.rows), _among(some[1], part.columns)
        out[:, rows[:, None], columns] = _run(left[some[0][rows]], right[:, some[1][columns]], program)
    return out


def _program(chosen: Strategy, order: Any, n: int, given: Operands) -> Program:
    own = chosen if order is chosen.order else Strategy(order, chosen.settings)
    return own.program(n, data=given.data)


def _run(left: Any, right: Any, program: Program) -> Floats:
    from fpsim.kernels import roundoff

    rows = np.zeros((1, 0)) if left is None else left.astype(np.float64)
    columns = right.shape[1]
    if not rows.shape[0] or not columns:
        return np.zeros((3, rows.shape[0], columns))
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
