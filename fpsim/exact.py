"""The exact reference: sums, dot products and matrix products without any rounding, and the errors of other results.

Every finite input is exact, however wide the range of exponents. Errors are always measured against the exact value of
the stored inputs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fpsim._arrays import as_floats, axes_of
from fpsim._exact_reductions import products, row_dots, sums
from fpsim._exact_values import Exact
from fpsim.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Exact", "dot", "matmul", "sum"]


def _wide(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.float32) if values.dtype == np.float16 else values


def sum(x: Any, /, *, axis: int | tuple[int, ...] | None = None) -> Exact:
    """Return the exact sum of the elements of an array.

    Parameters
    ----------
    x : array_like
        Terms: float16, float32, float64, or what converts to them exactly.
    axis : int or tuple of int, optional
        Axes that are summed; all by default.

    Returns
    -------
    Exact
        Of the shape of ``np.sum(x, axis)``.

    Raises
    ------
    InputError
        If x does not hold real numbers, or has no such axis.

    Examples
    --------
    >>> import numpy as np
    >>> from fpsim import exact
    >>> s = exact.sum(np.float32([1e30, 1, -1e30]))
    >>> float(s), s.error(np.float32(0)), f"{s.condition:.1e}"
    (1.0, np.float64(-1.0), '2.0e+30')
    """
    given, _ = as_floats(x, name="x")
    values, kept = _axes_last(_wide(given), axis)
    return Exact(
        values.shape[:kept],
        f"sum of {math.prod(values.shape[kept:])} terms",
        sums(values, kept),
        lambda: cast("Floats", sum(np.abs(given), axis=axis).round("float64")),
    )


def _axes_last(values: NDArray[Any], axis: int | tuple[int, ...] | None) -> tuple[NDArray[Any], int]:
    """Return values with the axes that are summed last, and the number of other axes."""
    if axis is None:
        return values.T if values.flags.f_contiguous else values, 0
    axes = axes_of(values.ndim, axis)
    kept = [i for i in range(values.ndim) if i not in axes]
    return values.transpose([*kept, *axes]), len(kept)


def dot(a: Any, b: Any, /) -> Exact:
    """Return the exact dot product of two vectors, or of stacks of vectors along their last axis.

    Parameters
    ----------
    a, b : array_like
        Vectors of one length n, or stacks (..., n) that broadcast.

    Returns
    -------
    Exact
        A scalar for vectors; else of the shape of the stack, as ``np.vecdot``.

    Raises
    ------
    InputError
        If the operands do not hold real numbers or their shapes do not fit.

    Examples
    --------
    >>> from fpsim import exact
    >>> d = exact.dot([1e300, 1e-300, -1e300], [1e300, 1e-300, 1e300])
    >>> float(d), bool(d.to_mpmath() > 0)
    (0.0, True)
    """
    x, y = (_wide(as_floats(v, name=name)[0]) for v, name in ((a, "a"), (b, "b")))
    if not x.ndim or not y.ndim or x.shape[-1] != y.shape[-1]:
        message = f"dot takes vectors of one length, not shapes {x.shape} and {y.shape}"
        raise InputError(message)
    try:
        x, y = np.broadcast_arrays(x, y)
    except ValueError as error:
        message = f"the stacks of vectors {x.shape} and {y.shape} do not broadcast"
        raise InputError(message) from error
    shape, terms = x.shape[:-1], x.shape[-1]
    numbers = row_dots(x.reshape(math.prod(shape), terms), y.reshape(math.prod(shape), terms))
    return Exact(
        shape,
        f"dot product of {terms} terms",
        numbers,
        lambda: cast("Floats", dot(np.abs(x), np.abs(y)).round("float64")),
    )


def matmul(a: Any, b: Any, /) -> Exact:
    """Return the exact matrix product, with the shapes of ``np.matmul``.

    Parameters
    ----------
    a, b : array_like
        Matrices (..., m, k) and (..., k, n) whose leading axes broadcast, or vectors.

    Returns
    -------
    Exact
        Of the shape of ``np.matmul(a, b)``. The bits do not depend on the number of threads.

    Raises
    ------
    InputError
        If the operands do not hold real numbers or their shapes do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from fpsim import exact
    >>> a = np.full((2, 3), 0.1, np.float32)
    >>> exact.matmul(a, a.T).ulp_error(a @ a.T).shape
    (2, 2)
    """
    x, y = (_wide(as_floats(v, name=name)[0]) for v, name in ((a, "a"), (b, "b")))
    if not x.ndim or not y.ndim:
        message = "matmul takes vectors and matrices, not scalars"
        raise InputError(message)
    left = x[None, :] if x.ndim == 1 else x
    right = y[:, None] if y.ndim == 1 else y
    if left.shape[-1] != right.shape[-2]:
        message = (
            f"the shapes {x.shape} and {y.shape} do not multiply: {left.shape[-1]} terms against {right.shape[-2]}"
        )
        raise InputError(message)
    try:
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError as error:
        message = f"the leading axes of {x.shape} and {y.shape} do not broadcast"
        raise InputError(message) from error
    count = math.prod(batch)
    left = np.broadcast_to(left, batch + left.shape[-2:]).reshape(count, *left.shape[-2:])
    right = np.broadcast_to(right, batch + right.shape[-2:]).reshape(count, *right.shape[-2:])
    shape = batch + (() if x.ndim == 1 else left.shape[-2:-1]) + (() if y.ndim == 1 else right.shape[-1:])
    return Exact(
        shape,
        f"matrix product of {left.shape[-1]} terms",
        products(left, right),
        lambda: cast("Floats", matmul(np.abs(x), np.abs(y)).round("float64")),
    )
