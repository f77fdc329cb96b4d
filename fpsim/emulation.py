"""Reductions as a strategy computes them: the bits that a device with that order and arithmetic gives."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim._arrays import as_floats, axes_of
from fpsim._execution import run_multiplied, run_products, run_scan, run_sums, storage
from fpsim._steps import differences, divided, flushed, roots, squares, stored
from fpsim.arithmetic import Arithmetic, Rounding
from fpsim.errors import InputError, UnknownOrderError
from fpsim.formats import FLOAT32, FLOAT64, Format, round_to
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
    values, data = operand_of(x, "x", chosen)
    total, _, _ = _reduce(values, data, chosen, axis, keepdims, x)
    return total[()]


def mean(x: Any, /, strategy: str | Strategy | Order, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the mean under a strategy: the sum divided by n, or times the rounded 1/n (setting ``reciprocal``).

    Parameters, result and errors are those of `sum`; the last operation is rounded in the accumulator format. The mean
    of nothing is NaN. With ``numpy_sum`` it is `numpy.mean`, which sums float16 in float32.
    """
    chosen = as_strategy(strategy)
    values, data = operand_of(x, "x", chosen)
    if not _has_own_types(chosen, data):
        order, own = chosen.order.for_mean(data)
        chosen = Strategy(order, own.merged(chosen.settings))
    output = chosen.arithmetic(data).output
    chosen = _unrounded(chosen, data)
    total, n, arithmetic = _reduce(values, data, chosen, axis, keepdims, x)
    quotient = divided(total, n, arithmetic, exact_count=chosen.order.by_passes)
    accumulator = arithmetic.accumulator
    form = flushed(arithmetic)
    if chosen.order.by_passes and output is not None and quotient.ndim == 0:
        form, accumulator = output.format, output
    return stored(quotient, form, accumulator.mode, output)[()]


def var(
    x: Any, /, strategy: str | Strategy | Order, *, axis: Any = None, ddof: float = 0, keepdims: bool = False
) -> Any:
    """Return the variance under a strategy, in two passes: the mean of the squared deviations from the mean.

    Parameters
    ----------
    x : array_like of float
        Any shape.
    strategy : str or Strategy
        Gives the sum of the terms and that of the squared deviations. Each deviation and each square is rounded in the
        accumulator format, or the square is fused into the sum with FMA. ``numpy_sum`` gives the bits of `numpy.var`,
        ``torch_cpu_sum`` those of ``torch.var`` of a whole tensor.
    axis, keepdims
        As in `sum`.
    ddof : float, optional
        The sum of squares is divided by n - ddof, at least 0.

    Returns
    -------
    ndarray or scalar
        As in `sum`.

    Raises
    ------
    InputError, StrategyError, UnknownOrderError
        As in `sum`.

    Examples
    --------
    >>> import numpy as np, fpsim
    >>> x = np.arange(10, dtype=np.float32) / 3
    >>> bool(fpsim.var(x, "numpy_sum", ddof=1) == np.var(x, ddof=1))
    True
    """
    quotient, arithmetic, output = _variance(x, as_strategy(strategy), axis, ddof, keepdims)
    return stored(quotient, flushed(arithmetic), arithmetic.accumulator.mode, output)[()]


def std(
    x: Any, /, strategy: str | Strategy | Order, *, axis: Any = None, ddof: float = 0, keepdims: bool = False
) -> Any:
    """Return the standard deviation under a strategy: the square root of `var`, which has the same parameters.

    The variance is rounded in the accumulator format, and so is its root.
    """
    quotient, arithmetic, output = _variance(x, as_strategy(strategy), axis, ddof, keepdims)
    form, mode = flushed(arithmetic), arithmetic.accumulator.mode
    return stored(roots(stored(quotient, form, mode), form), form, mode, output)[()]


def _variance(
    x: Any, chosen: Strategy, axis: Any, ddof: float, keepdims: bool
) -> tuple[_Array, Arithmetic, Rounding | None]:
    """Return the variance before it is rounded, the arithmetic, and the output format."""
    if not np.isreal(ddof) or not np.isfinite(ddof):
        message = f"ddof must be a finite number, not {ddof!r}"
        raise InputError(message)
    values, data = operand_of(x, "x", chosen)
    squared = chosen
    if not _has_own_types(chosen, data):
        order, own = chosen.order.for_deviations(data)
        squared = Strategy(order, own.merged(chosen.settings))
    output = squared.arithmetic(data).output
    chosen, squared = _unrounded(chosen, data), _unrounded(squared, data)
    total, n, arithmetic = _reduce(values, data, chosen, axis, True, x)
    exact = chosen.order.by_passes
    form, mode = flushed(arithmetic), arithmetic.accumulator.mode
    means = stored(divided(total, n, arithmetic, exact_count=exact), form, mode)
    arithmetic = squared.arithmetic(data)
    sums = _sums_of_squares(differences(values, _laid_out(means, values), arithmetic), data, squared, axis)
    quotient = divided(sums, max(n - float(ddof), 0.0), arithmetic, exact_count=exact)
    return _with_axes(quotient, values.ndim, axis, keepdims), arithmetic, output


def _laid_out(means: _Array, values: _Array) -> _Array:
    """Return the means in the memory order of the axes of `values`, as NumPy allocates the result of a reduction."""
    first = values[tuple(slice(size) for size in means.shape)]
    if first.shape != means.shape:  # nothing is averaged
        return means
    out = np.empty_like(np.positive(first), means.dtype)
    out[...] = means
    return out


def _sums_of_squares(x: _Array, data: Format, chosen: Strategy, axis: Any) -> _Array:
    """Return the sums of squares over axes under a strategy without an output format, in the shape of the outputs."""
    arithmetic = chosen.arithmetic(data)
    view, outputs, parts = _terms(x, chosen, axis, data)
    out = np.empty(view.shape[1], storage(arithmetic.result_format))
    squared: _Array | None = None
    for part in parts:
        program = _resolved(chosen, part.order).program(view.shape[0], data=data)
        places = _places(part.columns)
        plainly = not any(a.fma or a.terms or a.compensation == "dot2" for a in program.arithmetics)
        alike = {(a.accumulator, a.product, a.ftz) for a in program.arithmetics} == {
            (arithmetic.accumulator, arithmetic.product, arithmetic.ftz)
        }
        if plainly and (alike or chosen.order.by_passes):
            squared = squares(view, arithmetic) if squared is None else squared
            if squared is not None:
                out[places] = run_sums(squared[:, places], program, arithmetic)
                continue
        for place in np.arange(view.shape[1])[places]:
            column = view[:, place]
            out[place] = run_products(column[None, :], column[:, None], program, arithmetic)[0, 0]
    return out.reshape(outputs)


def norm(x: Any, /, strategy: str | Strategy | Order, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the Euclidean norm under a strategy: the square root of the dot product of x with itself.

    Parameters, result and errors are those of `sum`. With FMA the squares are fused into the sum. The sum of squares
    and its root are rounded in the accumulator format.
    """
    chosen = as_strategy(strategy)
    values, data = operand_of(x, "x", chosen)
    output = chosen.arithmetic(data).output
    chosen = _unrounded(chosen, data)
    arithmetic = chosen.arithmetic(data)
    # A library sums a temporary array of squares, which is dense whatever the strides of x.
    sums = _sums_of_squares(np.positive(values), data, chosen, axis)
    form, mode = arithmetic.accumulator.format, arithmetic.accumulator.mode
    return _with_axes(stored(roots(sums, form), form, mode, output), values.ndim, axis, keepdims)[()]


def prod(x: Any, /, strategy: str | Strategy | Order, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the product of all terms under a strategy: the order's tree, with multiplications at its nodes.

    Parameters
    ----------
    x : array_like of float
        Any shape.
    strategy : str or Strategy
        Its order and the formats of its operands, accumulator and output count; accumulators start from 1.
        ``numpy_prod`` gives the bits of `numpy.prod`.
    axis, keepdims
        As in `sum`.

    Returns
    -------
    ndarray or scalar
        As in `sum`.

    Raises
    ------
    InputError
        The strategy has FMA or compensation, which products of all terms do not have, or the data do not fit.
    StrategyError, UnknownOrderError
        As in `sum`.

    Examples
    --------
    >>> import fpsim
    >>> float(fpsim.prod([3.0, 1 / 3, 0.1], "serial")), float(fpsim.prod([3.0, 1 / 3, 0.1], "reverse"))
    (0.10000000149011612, 0.10000000894069672)
    """
    chosen = as_strategy(strategy)
    values, data = operand_of(x, "x", chosen)
    arithmetic = chosen.arithmetic(data)
    view, outputs, parts = _terms(values, chosen, axis, data, x)
    out = np.empty(view.shape[1], storage(arithmetic.result_format))
    for part in parts:
        program = _resolved(chosen, part.order).program(view.shape[0], data=data)
        if any(a.fma or a.terms or a.compensation is not None for a in program.arithmetics):
            message = f"prod multiplies only: {chosen} has fused adds, multiply-adds or compensation, which sums have"
            raise InputError(message)
        places = _places(part.columns)
        out[places] = run_multiplied(view[:, places], program, arithmetic)
    return _with_axes(out.reshape(outputs), values.ndim, axis, keepdims)[()]


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
    program = _unrounded(chosen, data).program(n, data=data)
    if not program.visits_in_sequence:
        message = (
            f"cumsum needs an order that takes the terms in sequence (serial, chunks, split, pairwise): not {chosen}"
        )
        raise InputError(message)
    if any(a.terms for a in program.arithmetics):
        message = f"cumsum needs a sum after every term, which the fused adds of {chosen} do not have"
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
    result = stored(out, arithmetic.accumulator.format, arithmetic.accumulator.mode, arithmetic.output)
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


def matmul(
    a: Any, b: Any, /, strategy: str | Strategy | Order, *, scales: tuple[Any, Any] | None = None
) -> Any:  # fmt: skip
    """Return the matrix product under a strategy: every output element is one dot product in the strategy's order.

    Parameters
    ----------
    a, b : array_like of float
        Matrices, vectors or stacks of matrices, as `numpy.matmul` takes them.
    strategy : str or Strategy
        See `fpsim.strategy`.
    scales : pair of array_like, optional
        Block scales (microscaling) of two matrices, powers of two of shapes (m, blocks) and (blocks, n): neighbouring
        elements along the inner dimension have one in common. For strategies with fused adds, which align scaled terms.

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
    if scales is not None:
        from fpsim._block_scales import scaled_product

        return scaled_product(left, right, chosen, (form_a, form_b), scales)
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
                run_products(one, other, program, arithmetic, out[index], (form_a, form_b))
                continue
            block = run_products(one[rows], other[:, columns], program, arithmetic, None, (form_a, form_b))
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
    stated = arithmetic.operand(name)
    target = arithmetic.operand_format if stated is None else stated.format
    if not target.includes(form):
        values = np.asarray(round_to(values, target, mode="nearest-even" if stated is None else stated.mode))
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


def _has_own_types(chosen: Strategy, data: Format) -> bool:
    """Whether settings say in which format a sum over these numbers is accumulated, instead of a named rule."""
    return chosen.settings.accumulator is not None or (chosen.settings.operands is not None and data != FLOAT64)


def _unrounded(chosen: Strategy, data: Format) -> Strategy:
    """Return the strategy without rounding to an output format."""
    settings = dataclasses.replace(chosen.settings, output=None)
    own = Strategy(chosen.order, settings).arithmetic(data)
    if own.output is not None:  # a rule's default, which only another output overrides
        settings = dataclasses.replace(settings, output=own.accumulator)
    return Strategy(chosen.order, settings)


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


def _reduce(
    values: _Array, data: Format, chosen: Strategy, axis: Any, keepdims: bool, source: Any
) -> tuple[_Array, int, Arithmetic]:
    """Return the sums over axes, the number of terms of each, and the arithmetic; `source` is what the caller gave."""
    arithmetic = chosen.arithmetic(data)
    view, outputs, parts = _terms(values, chosen, axis, data, source)
    total = np.empty(view.shape[1], storage(arithmetic.result_format))
    for part in parts:
        program = _resolved(chosen, part.order).program(view.shape[0], data=data)
        places = _places(part.columns)
        total[places] = run_sums(view[:, places], program, arithmetic)
    return _with_axes(total.reshape(outputs), values.ndim, axis, keepdims), view.shape[0], arithmetic


def _with_axes(out: _Array, ndim: int, axis: Any, keepdims: bool) -> _Array:
    return np.expand_dims(out, axes_of(ndim, axis)) if keepdims else out
