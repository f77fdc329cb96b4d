"""Whatever holds numbers, as a NumPy array of floats; no array library is imported for it."""

from __future__ import annotations

import functools
import math
import sys
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fpsim.errors import InputError
from fpsim.formats import FLOAT16, FLOAT32, FLOAT64, Format, as_format

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NATIVE = {np.dtype(np.float16): FLOAT16, np.dtype(np.float32): FLOAT32, np.dtype(np.float64): FLOAT64}


def as_floats(x: Any, /, *, name: str = "x") -> tuple[NDArray[Any], Format]:
    """Return the numbers of x as a float array of NumPy, exactly, and the format they had.

    Parameters
    ----------
    x : array_like
        NumPy, ml_dtypes, torch, JAX or CuPy arrays on any device, Python numbers, nested lists.
    name : str, optional
        How error messages call x.

    Returns
    -------
    values : ndarray of float16, float32 or float64
        Native byte order, same shape. bfloat16 and 8-bit floats come as float32, integers, bools and long doubles as
        float64. Float arrays of NumPy and of torch on the CPU are not copied and keep their strides, and may be
        read-only; other byte orders and unaligned arrays are copied in the same axis order.
    format : Format
        The format of the numbers as they came: float64 for integers and bools.

    Raises
    ------
    InputError
        If x holds no real numbers, or numbers that float64 does not hold exactly.
    """
    if not isinstance(x, np.ndarray):
        x = _to_numpy(x, name)
        if isinstance(x, tuple):
            return cast("tuple[NDArray[Any], Format]", x)
    elif isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        message = f"{name} is a masked array; pass {name}.compressed() or {name}.filled(value)"
        raise InputError(message)
    array = np.asarray(x)
    form = _NATIVE.get(array.dtype)
    if form is not None and array.flags.aligned:
        return array, form
    return _convert(array, name)


def axes_of(ndim: int, axis: Any) -> tuple[int, ...]:
    """Return the axes that an `axis` argument names, counted from the front, in ascending order; None names all."""
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, tuple) else (axis,)
    try:
        axes = tuple(int(a.__index__()) for a in given)
    except (AttributeError, TypeError):
        message = f"axis must be a whole number or a tuple of them, not {axis!r}"
        raise InputError(message) from None
    for a in axes:
        if not -ndim <= a < ndim:
            message = f"axis {a} does not exist in an array of {ndim} dimensions"
            raise InputError(message)
    axes = tuple(sorted(a % ndim for a in axes))
    if len(set(axes)) < len(axes):
        message = f"axis {axis} names an axis twice"
        raise InputError(message)
    return axes


def _to_numpy(x: Any, name: str) -> Any:
    """Return x as an ndarray, or as the final result where NumPy has no type for its numbers."""
    root = type(x).__module__.partition(".")[0]
    try:
        if root == "torch":
            return _from_torch(x, root, name)
        if root == "cupy":
            return x.get(order="A")  # keeps Fortran order
        if root in {"numba", "numba_cuda"} and hasattr(x, "copy_to_host"):
            return x.copy_to_host()
        array = np.asarray(x)
        # NumPy rounds Python integers among floats without a word; beyond 2**53 each is looked at.
        large = isinstance(x, list | tuple) and array.dtype == np.float64 and bool((np.abs(array) >= 2.0**53).any())
        return np.asarray(x, object) if large else array
    except InputError:
        raise
    except Exception as error:
        message = f"{name} ({type(x).__name__}) cannot be read as an array of numbers: {error}"
        raise InputError(message) from error


def _from_torch(x: Any, root: str, name: str) -> Any:
    """Return a torch tensor as an ndarray; bfloat16 and 8-bit floats, which NumPy lacks, travel as their bits."""
    if str(x.layout) != "torch.strided":
        message = f"{name} is a tensor of layout {x.layout}; pass {name}.to_dense()"
        raise InputError(message)
    torch = sys.modules[root]
    kind = str(x.dtype).rpartition(".")[2]
    x = x.detach().cpu()
    if kind == "bfloat16":
        bits = x.view(torch.int16).numpy().view(np.uint16)
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32), as_format(kind)
    if kind.startswith("float8"):
        form = as_format(kind)
        return _code_values(form)[x.view(torch.uint8).numpy()], form
    return x.resolve_neg().numpy()


@functools.cache
def _code_values(form: Format) -> NDArray[np.float32]:
    """Return the values of the 256 codes of an 8-bit format."""
    codes = np.arange(256)
    if form.precision == 1:  # e8m0: powers of two, without sign and zero
        return np.where(codes < 255, np.ldexp(1.0, codes + form.emin), math.nan).astype(np.float32)
    field = (codes & 0x7F) >> form.nmant
    fraction = codes & ((1 << form.nmant) - 1)
    significand = fraction + np.where(field > 0, 1 << form.nmant, 0)
    values = np.ldexp(significand.astype(np.float64), np.maximum(field, 1) - 1 + form.emin - form.nmant)
    special = np.where((fraction == 0) & (form.overflow == "infinity"), math.inf, math.nan)
    values = np.where(values > form.max, special, values)
    out = np.where(codes < 128, values, -values).astype(np.float32)
    if form.overflow == "nan" and form.max_significand == 2**form.precision - 1:  # fnuz: NaN stands for -0
        out[128] = math.nan
    return out


def _convert(array: NDArray[Any], name: str) -> tuple[NDArray[Any], Format]:
    """Convert an array that is not of native, aligned float16, float32 or float64."""
    dtype = array.dtype
    if dtype.char in "efd":
        native = array.astype(dtype.newbyteorder("="))
        return native, _NATIVE[native.dtype]
    if dtype.kind in "biu":
        return _exact(array, name, _integer_is_exact(array)), FLOAT64
    if dtype.char == "g":
        with np.errstate(over="ignore", under="ignore"):
            same = (array.astype(np.float64).astype(dtype) == array) | np.isnan(array)
            return _exact(array, name, same), FLOAT64
    if dtype.kind == "O":
        return _from_objects(array, name), FLOAT64
    if dtype.kind == "c":
        message = f"{name} is complex; pass {name}.real and {name}.imag one after the other"
        raise InputError(message)
    if dtype.kind in "USTMm" or dtype.names is not None:
        message = f"{name} holds {dtype}, not numbers; convert it to float32 or float64 first"
        raise InputError(message)
    try:
        form = as_format(dtype)
    except InputError as error:
        message = f"{name} holds {dtype}, which has no format here; convert it to float32 or float64 first"
        raise InputError(message) from error
    with np.errstate(invalid="ignore"):  # signalling NaN
        return array.astype(np.float32), form


def _integer_is_exact(array: NDArray[Any]) -> NDArray[np.bool]:
    """Tell which integers float64 holds: those whose low half is what remains of the rounded value (exact steps)."""
    if array.dtype.itemsize < 8:
        return np.ones(array.shape, np.bool)
    low_mask, half = array.dtype.type(0xFFFF_FFFF), array.dtype.type(32)
    high = (array >> half).astype(np.float64) * 2.0**32
    return cast("NDArray[np.bool]", array.astype(np.float64) - high == (array & low_mask).astype(np.float64))


def _exact(array: NDArray[Any], name: str, exact: NDArray[np.bool]) -> NDArray[np.float64]:
    if not exact.all():
        value = array[~exact].flat[0]
        message = f"{name} holds {value}, which float64 does not hold exactly; round it to float64 first"
        raise InputError(message)
    with np.errstate(under="ignore"):
        return array.astype(np.float64)


def _from_objects(array: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Convert Python numbers, integers beyond 64 bits among them, and refuse every other object."""
    values = np.empty(array.shape, np.float64)
    for index, element in np.ndenumerate(array):
        item = element.item() if isinstance(element, np.generic) else element
        if not isinstance(item, int | float):
            message = (
                f"{name} holds objects ({type(item).__name__}) or rows of different lengths; "
                "convert it to float32 or float64 first"
            )
            raise InputError(message)
        try:
            values[index] = item
            exact = float(values[index]) == item or math.isnan(item)
        except OverflowError:
            exact = False
        if not exact:
            message = f"{name} holds {item}, which float64 does not hold exactly; round it to float64 first"
            raise InputError(message)
    return values
