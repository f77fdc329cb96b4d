"""What the roundings of a strategy may cost on given data: a hard bound and a variance for every output."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim._execution import closing_folds, for_each, rooms, table_of
from fpsim._fused_execution import element_powers, fused_table
from fpsim.arithmetic import Arithmetic
from fpsim.bounds import Operands, operands
from fpsim.emulation import _terms, product_shape
from fpsim.formats import FLOAT32, Format
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
        No error is larger. That of rounding the operands does not count here, see `fpsim._tolerance_data`.
    variance : ndarray of float64
        Of the error, where the bits that the roundings drop are random.
    largest : ndarray of float64
        The largest part of the variance that comes from one rounding.
    magnitude : ndarray of float64
        Sum of the terms' magnitudes.
    drift : ndarray of float64
        Mean of the error: not zero where fused adds truncate.
    """

    hard: Floats
    variance: Floats
    largest: Floats
    magnitude: Floats
    drift: Floats


def has_account(program: Program) -> bool:
    """Whether all roundings of a program can be accounted for: those without compensation or flushing.

    Fused adds count that align all terms at once to one exponent.
    """
    return all(
        a.compensation is None and not a.ftz and not a.daz and (a.align is None or not a.align.kind)
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
    if op == "sum":
        found = _sums(chosen, given, axis, inputs[0], some or (np.arange(1), np.arange(math.prod(shape))))
    else:
        found = _stack(chosen, given, some)
    if found is None:
        return None
    magnitude = picker(op, given.values, some)(given.magnitude)
    hard, variance, largest, drift = (x.reshape(magnitude.shape) for x in found)
    # The bounds of single roundings are exact, their sum is not.
    terms = max(x.size for x in given.values)
    with np.errstate(all="ignore"):
        hard = hard * (1.0 + (2 * terms + 8) * 2.0**-52)
    hard, variance, drift = (np.where(np.isnan(x), np.inf, x) for x in (hard, variance, drift))
    return Account(hard, variance, largest, magnitude, drift)


def picker(op: str, arrays: tuple[Any, ...], some: Sample | None) -> Callable[[Any], Any]:
    """Return what takes the chosen outputs of an array of results, flat; all of them as they are without a choice."""
    if some is None:
        return np.asarray
    if op == "sum":
        return lambda x: np.reshape(x, -1)[some[1]]
    m = arrays[0].shape[0] if arrays[0].ndim > 1 else 1
    return lambda x: np.reshape(x, (m, -1))[np.ix_(*some)].reshape(-1)


def _sums(chosen: Strategy, given: Operands, axis: Any, source: Any, some: Sample) -> Floats | None:
    view, _, parts = _terms(given.values[0], chosen, axis, given.data, source)
    n = view.shape[0]
    out = np.zeros((4, 1, some[1].size))
    for part in parts:
        program = _program(chosen, part.order, n, given.data)
        if not has_account(program):
            return None
        places = _among(some[1], part.columns)
        forms = formats_of(chosen.arithmetic(given.data), given.data)
        out[:, :, places] = _run(None, view[:, some[1][places]], program, (FLOAT32, forms[0]))
    return out


def _among(some: NDArray[np.int64], part: Any) -> NDArray[np.int64]:
    """Return which of the chosen rows or columns belong to a part; all do if that is None."""
    return np.arange(some.size) if part is None else np.flatnonzero(np.isin(some, np.array(part, np.int64)))


def _stack(chosen: Strategy, given: Operands, some: Sample | None) -> Floats | None:
    """Return the accounts of a product, or of each of a stack of them."""
    a, b = given.values
    if max(a.ndim, b.ndim) <= 2:
        return _products(chosen, given.data, a, b, some)
    rows = a[None, :] if a.ndim == 1 else a
    columns = b[:, None] if b.ndim == 1 else b
    stack = np.broadcast_shapes(rows.shape[:-2], columns.shape[:-2])
    rows = np.broadcast_to(rows, (*stack, *rows.shape[-2:]))
    columns = np.broadcast_to(columns, (*stack, *columns.shape[-2:]))
    out = np.zeros((4, *stack, rows.shape[-2], columns.shape[-1]))
    for place in np.ndindex(*stack):
        own = _products(chosen, given.data, rows[place], columns[place], None)
        if own is None:
            return None
        out[(slice(None), *place)] = own
    return out


def _products(chosen: Strategy, data: Format, a: Any, b: Any, some: Sample | None) -> Floats | None:
    shape = product_shape(a, b)
    some = some or (np.arange(shape.m), np.arange(shape.n))
    left, right = np.atleast_2d(a), b[:, None] if b.ndim == 1 else b
    out = np.zeros((4, some[0].size, some[1].size))
    for part in chosen.order.product(shape):
        program = _program(chosen, part.order, shape.k, data)
        if not has_account(program):
            return None
        rows, columns = _among(some[0], part.rows), _among(some[1], part.columns)
        forms = formats_of(chosen.arithmetic(data), data)
        out[:, rows[:, None], columns] = _run(left[some[0][rows]], right[:, some[1][columns]], program, forms)
    return out


def formats_of(arithmetic: Arithmetic, data: Format) -> tuple[Format, Format]:
    """Return the formats of the operands of products, which decide the exponents that subnormal numbers count with."""
    own = [arithmetic.operand(name) for name in "ab"]
    left, right = (data if one is None else one.format for one in own)
    return left, right


def _program(chosen: Strategy, order: Any, n: int, data: Format) -> Program:
    own = chosen if order is chosen.order else Strategy(order, chosen.settings)
    return own.program(n, data=data)


def _run(left: Any, right: Any, program: Program, forms: tuple[Format, Format]) -> Floats:
    from fpsim.kernels import roundoff

    products = left is not None
    rows = left.astype(np.float64) if products else np.zeros((1, 0))
    right = right.astype(np.float64)
    fused = any(a.terms for a in program.arithmetics)
    if fused:
        rows = rows if products else np.ones((1, right.shape[0]))
        if program.sequential is not program:
            rows, right, program = rows[:, program.visits], right[program.visits], program.sequential
    columns = right.shape[1]
    if not rows.shape[0] or not columns:
        return np.zeros((4, rows.shape[0], columns))
    tables = np.array([table_of(a) for a in program.arithmetics])
    own = np.array([fused_table(a) for a in program.arithmetics])
    closing = closing_folds(program)
    powers = element_powers(rows, forms[0]) if fused else np.zeros((1, 0))
    out = np.zeros((4, rows.shape[0], columns))

    def worker() -> Callable[[int], None]:
        _, stack, code = rooms(program, 1, 1, np.float64)

        def panel(start: int) -> None:
            part = np.ascontiguousarray(right[:, start : start + _PANEL])
            width = part.shape[1]
            s, p = np.zeros((2, program.registers, width))
            q = np.zeros((program.registers, width), np.int64)
            some = np.zeros((4, rows.shape[0], width))
            part_powers = element_powers(part, forms[1]) if fused else np.zeros((1, 0))
            roundoff.account(
                program.nodes, program.segments, closing, tables, own, rows, powers, part, part_powers, products or fused,
                s, q, p, some, stack, code,
            )  # fmt: skip
            out[:, :, start : start + width] = some

        return panel

    for_each(worker, range(0, columns, _PANEL), rows.shape[0] * right.size * 16)
    return out
