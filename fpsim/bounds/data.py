"""The worst-case bound of a strategy on given data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.bounds.programs import SLACK, WorstCase, check_operation, worst_case
from fpsim.formats import FLOAT64, Format
from fpsim.orders import Order
from fpsim.orders.base import Part, Reduction
from fpsim.strategies import Strategy, strategy as as_strategy

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Operands:
    """Operands as a strategy uses them, and what bounds need to know of them.

    Attributes
    ----------
    values : tuple of ndarray
        The operands after rounding to the operand format and flushing of subnormal ones.
    data : Format
        Their format, as `Strategy.program` takes it.
    magnitude : ndarray of float64
        Upper bound of the sum of the terms' magnitudes, of the shape of the result.
    conversion : ndarray of float64
        Upper bound of what the rounding of the operands changes the result by.
    """

    values: tuple[NDArray[Any], ...]
    data: Format
    magnitude: Floats
    conversion: Floats


def operands(op: str, strategy: str | Strategy | Order, /, *inputs: Any, axis: Any = None) -> Operands:
    """Return the operands as a strategy uses them.

    Parameters
    ----------
    op : {"sum", "dot", "matmul"}
        The operation.
    strategy : str or Strategy
        See `fpsim.strategy`.
    *inputs : array_like
        One array for a sum, two for a product.
    axis : int or tuple of int, optional
        Of a sum.

    Returns
    -------
    Operands
    """
    from fpsim._arrays import as_floats
    from fpsim.emulation import operand_of

    check_operation(op, len(inputs))
    chosen = as_strategy(strategy)
    names = ("x",) if op == "sum" else ("a", "b")
    given = [as_floats(x, name=name)[0] for x, name in zip(inputs, names, strict=True)]
    used, forms = zip(*(operand_of(x, name, chosen) for x, name in zip(inputs, names, strict=True)), strict=True)
    data = FLOAT64 if FLOAT64 in forms else forms[0]
    with np.errstate(all="ignore"):
        sizes = [np.abs(values) for values in used]
        magnitude = _total(op, sizes, axis)
        conversion = np.zeros_like(magnitude)
        same = all(u is g or np.array_equal(u, g, equal_nan=True) for u, g in zip(used, given, strict=True))
        if not same:
            changes = [np.abs(u.astype(np.float64) - g) for u, g in zip(used, given, strict=True)]
            if op == "sum":
                conversion = _total(op, changes, axis)
            else:
                conversion = _total(op, [changes[0], np.abs(given[1])], axis)
                conversion = conversion + _total(op, [sizes[0], changes[1]], axis)
    return Operands(tuple(used), data, magnitude, conversion)


def _total(op: str, magnitudes: list[NDArray[Any]], axis: Any) -> Floats:
    """Return an upper bound of the sum of non-negative terms: float64's own result, and its largest error on top."""
    if op == "sum":
        (x,) = magnitudes
        total = np.asarray(np.sum(x, axis=axis, dtype=np.float64))
        terms = x.size // max(total.size, 1)
        return np.asarray(total * (1.0 + (terms + 4) * 2.0**-52))
    total = np.asarray(np.matmul(*(m.astype(np.float64, copy=False) for m in magnitudes)))
    terms = magnitudes[0].shape[-1]
    tiny = terms * 2.0**-1074 if all(m.any() for m in magnitudes) else 0.0  # products that underflow in float64
    return np.asarray(total * (1.0 + (terms + 4) * 2.0**-52) + tiny)


def bound(op: str, strategy: str | Strategy | Order, /, *inputs: Any, axis: Any = None, value: Any = None) -> Any:
    """Return the worst-case bound of abs(computed - exact) of a strategy on given data.

    Parameters
    ----------
    op, strategy, *inputs, axis
        As for `operands`.
    value : array_like of float, optional
        abs(exact result) or more, which sharpens the bounds of compensated sums and of rounded outputs.

    Returns
    -------
    ndarray of float64 or scalar
        Of the shape of the result; infinite where a partial sum might overflow or no bound is known.

    Raises
    ------
    InputError
        The data do not fit the operation.

    Notes
    -----
    The rounding of the operands themselves is not bounded but measured: sum of abs(x' - x), or abs(a' - a) abs(b) +
    abs(a') abs(b' - b), for operands x, a, b that become x', a', b'.

    Examples
    --------
    >>> import numpy as np
    >>> from fpsim import bounds, exact
    >>> x = np.random.default_rng(1).random(10000).astype(np.float32)
    >>> error = exact.sum(x).error(np.cumsum(x)[-1])
    >>> bool(abs(error) <= bounds.bound("sum", "serial", x))
    True
    """
    chosen = as_strategy(strategy)
    return bound_of(op, chosen, operands(op, chosen, *inputs, axis=axis), axis=axis, value=value)


def bound_of(op: str, chosen: Strategy, given: Operands, /, *, axis: Any = None, value: Any = None) -> Any:
    """Return `bound` for operands that are prepared already."""
    return over_outputs(worst_cases(op, chosen, given, axis=axis), given, value=value)


def worst_cases(op: str, chosen: Strategy, given: Operands, /, *, axis: Any = None) -> list[tuple[WorstCase, Any]]:
    """Return the worst case of each order that a strategy takes here, and the index of the outputs it computes."""
    from fpsim._arrays import axes_of
    from fpsim.emulation import product_shape

    if op == "sum":
        x = given.values[0]
        case = Reduction(x.shape, x.strides, axes_of(x.ndim, axis), given.data)
        n, parts = case.n, chosen.order.layout(case)[1]
    else:
        shape = product_shape(*given.values)
        n, parts = shape.k, chosen.order.product(shape)
    arithmetic = chosen.arithmetic(given.data)
    out: list[tuple[WorstCase, Any]] = []
    for part in parts:
        own = chosen if part.order is chosen.order else Strategy(part.order, chosen.settings)
        worst = worst_case(op, own.program(n, data=given.data), arithmetic, data=given.data)
        out.append((worst, _index(op, part, given)))
    return out


def _index(op: str, part: Part, given: Operands) -> Any:
    """Return the index of a part's outputs in the results; of a stack of products, in each."""
    rows, columns = (None if x is None else np.array(x, np.int64) for x in (part.rows, part.columns))
    if op == "sum":
        return ... if columns is None else np.unravel_index(columns, given.magnitude.shape)
    whole = slice(None)
    if given.values[1].ndim == 1:
        return ... if rows is None or given.values[0].ndim == 1 else (..., rows)
    if given.values[0].ndim == 1:
        return ... if columns is None else (..., columns)
    if rows is not None and columns is not None:
        return (..., rows[:, None], columns)
    return (..., whole if rows is None else rows, whole if columns is None else columns)


def over_outputs(cases: list[tuple[WorstCase, Any]], given: Operands, /, *, value: Any = None) -> Any:
    """Return the bound of the rounding errors and of the rounding of the operands together."""
    out = np.full(given.magnitude.shape, math.inf)
    for worst, places in cases:
        changed = given.conversion[places]
        size = None if value is None else np.abs(np.asarray(value)[places]) * SLACK + changed
        total = worst.bound(given.magnitude[places], value=size) + changed
        out[places] = np.where(np.isnan(total), math.inf, total)
    return out[()]
