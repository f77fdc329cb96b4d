"""Reductions as a strategy computes them: the bits that a device with that order and arithmetic gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim._arrays import as_floats, axes_of
from fpsim._execution import run_products, run_scan, run_sums, storage
from fpsim.arithmetic import Arithmetic
from fpsim.errors import InputError, UnknownOrderError
from fpsim.formats import FLOAT32, FLOAT64, Format, RoundingMode, round_to
from fpsim.orders import Order
from fpsim.orders.base import Part, Product, Reduction
from fpsim.strategies import Strategy, strategy as as_strategy

_Array = NDArray[Any]


def sum(x: Any, /, strategy: str | Strategy | Order, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Sum under a strategy.

    Parameters
    ----------
    x : array_like of float
        Any shape. Numbers wider than the strategy's operands are rounded to those first, to nearest even.
    strategy : str or Strategy
        See `fpsim.strategy`.
    axis : int or tuple of int, optional
        Axes to sum over; all by default. Generic orders take the terms in C order, a named rule as its library does
        for this memory layout.
    keepdims : bool
        Keep the summed axes with size 1.

    Returns
    -------
    ndarray or scalar
        float16, float32 or float64 for those formats of the result; any other format's numbers come as float32, or as
        float64 where float32 does not hold them.

    Raises
    ------
    InputError
        The data or the axis do not fit.
    StrategyError
        The text is not a strategy.
    UnknownOrderError
        A named rule does not know this case.

    Examples
    --------
    >>> import fpsim
    >>> float(fpsim.sum([1.0, 2.0**-24, 2.0**-24], "serial")), float(fpsim.sum([1.0, 2.0**-24, 2.0**-24], "reverse"))
    (1.0, 1.0000001192092896)
    """
    chosen = as_strategy(strategy)
    total, _, _ = _reduce(x, chosen, axis, keepdims)
    return total[()]


def mean(x: Any, /, strategy: str | Strategy | Order, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the mean under a strategy: the sum divided by n, or times the rounded 1/n (setting ``reciprocal``).

    Parameters, result and errors are those of `sum`; the last operation is rounded in the accumulator format. The mean
    of nothing is NaN.
    """
    chosen = as_strategy(strategy)
    total, n, plain = _reduce(x, _without_output(chosen), axis, keepdims)
    form, mode = plain.accumulator.format, plain.accumulator.mode
    wide = total.astype(np.float64)
    # The count is converted to float32, or to a wider accumulator, before it divides.
    count = np.float64(round_to(float(n), FLOAT32 if FLOAT32.includes(form) else form))
    with np.errstate(all="ignore"):
        if plain.mean == "divide":
            quotient = _sticky(wide / count, wide, form, lambda q, x: x - q * Fraction(float(count)))
        else:
            one = np.ones(1)
            inverse = _sticky(one / count, one, form, lambda q, x: x - q * Fraction(float(count)))
            factor = np.float64(round_to(inverse[0], form, mode=mode))
            quotient = _sticky(wide * factor, wide, form, lambda q, x: x * Fraction(float(factor)) - q)
    arithmetic = dataclasses.replace(plain, output=chosen.settings.output)
    return _stored(quotient, form.without_subnormals() if plain.ftz else form, mode, arithmetic)[()]


def norm(x: Any, /, strategy: str | Strategy | Order, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the Euclidean norm under a strategy: the square root of the dot product of x with itself.

    Parameters, result and errors are those of `sum`. With FMA the squares are fused into the sum.
    """
    chosen = as_strategy(strategy)
    values, data = operand_of(x, "x", chosen)
    arithmetic = chosen.arithmetic(data)
    plain = _without_output(chosen)
    # A library sums a temporary array of squares, which is dense whatever the strides of x.
    view, kept, parts = _terms(np.positive(values), plain, axis, data)
    squares = np.empty(view.shape[1], np.float64)
    for part in parts:
        program = _resolved(plain, part.order).program(view.shape[0], data=data)
        for place in np.arange(view.shape[1])[_places(part.columns)]:
            column = view[:, place]
            squares[place] = run_products(column[None, :], column[:, None], program, plain.arithmetic(data))[0, 0]
    wide = squares.reshape(kept)
    form = arithmetic.accumulator.format
    with np.errstate(all="ignore"):
        roots = _sticky(np.sqrt(wide), wide, form, lambda q, x: x - q * q)
    out = _stored(roots, form, arithmetic.accumulator.mode, arithmetic)
    return _with_axes(out, values.ndim, axis, keepdims)[()]


def cumsum(x: Any, /, strategy: str | Strategy | Order, *, axis: int | None = None) -> Any:
    """Return the cumulative sum under a strategy.

    Parameters
    ----------
    x : array_like of float
        Without `axis` taken in C order as one sequence.
    strategy : str or Strategy
        Its order must take the terms in sequence. Inside a part, such as a chunk, the terms are accumulated on their
        own, and then the sum of all that stands before the part is added to each of its results, innermost parts
        first; ``serial`` is a single running sum, ``pairwise`` a divide-and-conquer scan.
    axis : int, optional
        The axis to go along.

    Returns
    -------
    ndarray
        Shape of x, or (x.size,) without `axis`; dtype as in `sum`.

    Raises
    ------
    InputError
        The order does not take the terms in sequence, or the data do not fit.
    """
    chosen = as_strategy(strategy)
    values, data = operand_of(x, "x", chosen)
    arithmetic = chosen.arithmetic(data)
    if axis is None:
        values = values.reshape(-1)
        axis = 0
    axes = axes_of(values.ndim, axis)
    if len(axes) != 1:
        message = f"cumsum goes along one axis, not {axis}"
        raise InputError(message)
    moved = np.moveaxis(values, axes[0], 0)
    n = moved.shape[0]
    program = _without_output(chosen).program(n, data=data)
    if not program.visits_in_sequence:
        message = (
            f"cumsum needs an order that takes the terms in sequence (serial, chunks, split, pairwise): not {chosen}"
        )
        raise InputError(message)
    if arithmetic.compensation is not None and program.fold_count > 1:
        message = (
            f"cumsum with {arithmetic.compensation} needs one running sum, such as serial+{arithmetic.compensation}"
        )
        raise InputError(message)
    view = moved.reshape(n, int(np.prod(moved.shape[1:], dtype=np.int64)))
    out = np.empty(view.shape, np.float64)
    if out.size:
        run_scan(view, program, out)
    result = _stored(out, arithmetic.accumulator.format, arithmetic.accumulator.mode, arithmetic)
    return np.moveaxis(result.reshape(moved.shape), 0, axes[0])


def dot(a: Any, b: Any, /, strategy: str | Strategy | Order) -> Any:
    """Return the dot product of two vectors under a strategy.

    Parameters
    ----------
    a, b : array_like of float, shape (n,)
        The vectors; numbers wider than the strategy's operands are rounded to those first.
    strategy : str or Strategy
        See `fpsim.strategy`.

    Returns
    -------
    scalar
        In the format of the result, see `sum`.

    Examples
    --------
    The white paper's four terms, with and without FMA:

    >>> import numpy as np, fpsim
    >>> a = np.array([1.907607, -0.7862027, 1.147311, 0.9604002], np.float32)
    >>> b = np.array([-0.9355, -0.6915108, 1.72447, -0.7097529], np.float32)
    >>> [f"{fpsim.dot(a, b, s).view(np.uint32):08X}" for s in ("serial", "serial+fma", "pairwise")]
    ['3D6533F0', '3D6533F6', '3D6533E0']
    """
    left, right = (x.ndim if hasattr(x, "ndim") else as_floats(x, name=n)[0].ndim for x, n in ((a, "a"), (b, "b")))
    if left != 1 or right != 1:
        message = f"dot takes two vectors, not arrays of {left} and {right} dimensions; use matmul"
        raise InputError(message)
    return matmul(a, b, strategy)


def matmul(a: Any, b: Any, /, strategy: str | Strategy | Order) -> Any:
    """Return the matrix product under a strategy: every output element is one dot product in the strategy's order.

    Parameters
    ----------
    a, b : array_like of float
        Matrices, vectors or stacks of matrices, as `numpy.matmul` takes them.
    strategy : str or Strategy
        See `fpsim.strategy`.

    Returns
    -------
    ndarray or scalar
        Shape as `numpy.matmul`, dtype as in `sum`.

    Raises
    ------
    InputError
        The shapes do not match.
    """
    chosen = as_strategy(strategy)
    left, form_a = operand_of(a, "a", chosen)
    right, form_b = operand_of(b, "b", chosen)
    shapes = f"{left.shape} and {right.shape}"
    if left.ndim == 0 or right.ndim == 0:
        message = f"matmul needs at least one dimension on each side, not shapes {shapes}"
        raise InputError(message)
    one_row, one_column = left.ndim == 1, right.ndim == 1
    left = left[None, :] if one_row else left
    right = right[:, None] if one_column else right
    if left.shape[-1] != right.shape[-2]:
        message = f"shapes {shapes} do not match: the inner dimensions are {left.shape[-1]} and {right.shape[-2]}"
        raise InputError(message)
    try:
        stack = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError as error:
        message = f"shapes {shapes} do not match: the leading dimensions do not broadcast"
        raise InputError(message) from error
    data = FLOAT64 if FLOAT64 in (form_a, form_b) else form_a
    arithmetic = chosen.arithmetic(data)
    shape = (*stack, left.shape[-2], right.shape[-1])
    out = np.empty(shape, storage(arithmetic.result_format))
    lefts = np.broadcast_to(left, (*stack, *left.shape[-2:]))
    rights = np.broadcast_to(right, (*stack, *right.shape[-2:]))
    for index in np.ndindex(*stack):
        one, other = lefts[index], rights[index]
        for part in chosen.order.product(product_shape(one, other)):
            program = _resolved(chosen, part.order).program(one.shape[-1], data=data)
            rows, columns = _places(part.rows), _places(part.columns)
            if part.rows is None and part.columns is None:
                run_products(one, other, program, arithmetic, out[index])
                continue
            block = run_products(one[rows], other[:, columns], program, arithmetic)
            if isinstance(rows, slice) or isinstance(columns, slice):
                out[index][rows, columns] = block
            else:
                out[index][np.ix_(rows, columns)] = block
    if one_column:
        out = out[..., 0]
    if one_row:
        out = out[..., 0] if one_column else out[..., 0, :]
    return out[()]


def product_shape(left: _Array, right: _Array) -> Product:
    """Return what the order of a product can depend on; of stacks, that of their first matrices."""
    left = left[None, :] if left.ndim == 1 else left[(0,) * (left.ndim - 2)]
    right = right[:, None] if right.ndim == 1 else right[(0,) * (right.ndim - 2)]
    (m, k), n = left.shape, right.shape[1]
    address = [x.__array_interface__["data"][0] for x in (left, right)]
    same = address[0] == address[1] and m == n and left.strides == right.strides[::-1]
    return Product(m, k, n, _memory_order(left), _memory_order(right), same)


def _places(given: range | tuple[int, ...] | None) -> slice | NDArray[np.int64]:
    if given is None:
        return slice(None)
    return slice(given.start, given.stop, given.step) if isinstance(given, range) else np.array(given, np.int64)


def _memory_order(x: _Array) -> str:
    return "C" if x.flags.c_contiguous else "F" if x.flags.f_contiguous else "other"


# --- operands and results -------------------------------------------------------------------------------------------


def operand_of(x: Any, name: str, chosen: Strategy) -> tuple[_Array, Format]:
    """Return the operand as the arithmetic sees it, float32 or float64, and its format."""
    values, form = as_floats(x, name=name)
    if type(chosen.order).defaults is not Order.defaults:
        _check_summed_as_floats(x, name, chosen)
    arithmetic = chosen.arithmetic(form)
    target = arithmetic.operand_format
    if not target.includes(form):
        mode = arithmetic.operands.mode if arithmetic.operands is not None else "nearest-even"
        values = np.asarray(round_to(values, target, mode=mode))
        form = target
    wanted = np.float64 if form == FLOAT64 or not FLOAT32.includes(form) else np.float32
    if values.dtype != wanted:
        values = values.astype(wanted, order="K")
    if arithmetic.daz:
        # Narrower numbers are widened on their way in, which keeps their subnormals.
        native = FLOAT32 if arithmetic.operands is None and FLOAT32.includes(form) else form
        values = np.where(np.abs(values) < native.smallest_normal, np.copysign(wanted(0), values), values)
    return values, form


def _check_summed_as_floats(x: Any, name: str, chosen: Strategy) -> None:
    """Raise where a library adds these numbers in an arithmetic that is not emulated, whatever float64 holds of them."""
    dtype = np.dtype(x.dtype) if isinstance(x, np.ndarray | np.generic) else None
    if dtype is None and isinstance(x, int | list | tuple):
        dtype = np.asarray(x).dtype
    if dtype is not None and dtype.kind in "biu":
        message = f"{name} holds {dtype}, which {chosen} adds as integers; convert it to float64 to add floats"
        raise UnknownOrderError(message)
    if dtype is not None and dtype.char == "g" and dtype.itemsize > 8:
        message = f"{name} holds {dtype}, which {chosen} adds with more bits than float64; convert it first"
        raise UnknownOrderError(message)


def _without_output(chosen: Strategy) -> Strategy:
    return dataclasses.replace(chosen, settings=dataclasses.replace(chosen.settings, output=None))


def _sticky(results: _Array, values: _Array, form: Format, excess: Callable[[Fraction, Fraction], Fraction]) -> _Array:
    """Make float64 results of one operation odd where they are inexact, so that they can be rounded to `form`.

    `excess` of a result and its operand has the sign of the exact result minus the result. Up to 25 bits nothing needs
    to be done: a quotient, product or root of such numbers is exact or far from the middle between two of them.
    """
    if form.precision <= 25 or form == FLOAT64:
        return results
    out = np.array(results)
    for index, result in np.ndenumerate(results):
        if not np.isfinite(result) or result == 0:
            continue
        rest = excess(Fraction(float(result)), Fraction(float(values[index])))
        if rest and np.float64(result).view(np.int64) % 2 == 0:
            out[index] = np.nextafter(result, np.inf if rest > 0 else -np.inf)
    return out


def _stored(wide: _Array, form: Format, mode: RoundingMode, arithmetic: Arithmetic) -> _Array:
    """Return float64 results rounded to a format (and then to the output format), in its NumPy type."""
    values = np.asarray(round_to(wide, form, mode=mode))
    if arithmetic.output is not None:
        form = arithmetic.output.format
        values = np.asarray(round_to(values, form, mode=arithmetic.output.mode))
    with np.errstate(over="ignore"):
        return values.astype(storage(form))


def _terms(
    values: _Array, chosen: Strategy, axis: Any, data: Format, source: Any = None
) -> tuple[_Array, tuple[int, ...], list[Part]]:
    """Return the terms as an array of shape (n, outputs), the shape of the outputs, and their orders."""
    axes = axes_of(values.ndim, axis)
    given = source if isinstance(source, np.ndarray) else values
    buffered = not (given.dtype.isnative and given.flags.aligned)
    order_axes, parts = chosen.order.layout(Reduction(given.shape, given.strides, axes, data, buffered))
    kept = tuple(a for a in range(values.ndim) if a not in axes)
    moved = values.transpose((*order_axes, *kept))
    outputs = moved.shape[len(axes) :]
    n = int(np.prod(moved.shape[: len(axes)], dtype=np.int64))
    return moved.reshape(n, int(np.prod(outputs, dtype=np.int64))), outputs, parts


def _resolved(chosen: Strategy, order: Order) -> Strategy:
    return chosen if order is chosen.order else Strategy(order, chosen.settings)


def _reduce(x: Any, chosen: Strategy, axis: Any, keepdims: bool) -> tuple[_Array, int, Arithmetic]:
    values, data = operand_of(x, "x", chosen)
    arithmetic = chosen.arithmetic(data)
    view, outputs, parts = _terms(values, chosen, axis, data, x)
    total = np.empty(view.shape[1], storage(arithmetic.result_format))
    for part in parts:
        program = _resolved(chosen, part.order).program(view.shape[0], data=data)
        places = _places(part.columns)
        total[places] = run_sums(view[:, places], program, arithmetic)
    return _with_axes(total.reshape(outputs), values.ndim, axis, keepdims), view.shape[0], arithmetic


def _with_axes(out: _Array, ndim: int, axis: Any, keepdims: bool) -> _Array:
    return np.expand_dims(out, axes_of(ndim, axis)) if keepdims else out
