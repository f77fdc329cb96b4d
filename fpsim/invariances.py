"""Whether a routine gives the same bits for the same numbers in another call: batch, place, memory, threads, axis."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim.errors import InputError, MissingExtraError

SCHEMA: Final = "fpsim.invariance/1"
DIMENSIONS: Final = ("batch", "row", "layout", "alignment", "padding", "threads", "axis")
_THREADS: Final = (1, 2, 3, 4, 8)
_Array = NDArray[Any]
_Call = tuple[str, tuple[_Array, ...], Callable[[_Array], _Array], Callable[[_Array], _Array]]


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to ask for the same numbers.

    Attributes
    ----------
    name : str
        What is different, such as ``"4 rows"``.
    outputs : int
        How many results were compared.
    changed : float
        The share of them whose bits differ from the whole computation.
    largest : float
        The largest difference, in units in the last place of the larger number.
    """

    name: str
    outputs: int
    changed: float
    largest: float


@dataclass(frozen=True, slots=True)
class Invariance:
    """What `invariance` found.

    Attributes
    ----------
    dim : str
        What was varied.
    variants : tuple of Variant
        In the order in which they were tried.
    """

    dim: str
    variants: tuple[Variant, ...]

    @property
    def invariant(self) -> bool:
        """Whether no variant changed a bit."""
        return not any(variant.changed for variant in self.variants)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        rows = [asdict(variant) for variant in self.variants]
        return {"schema": SCHEMA, "dim": self.dim, "invariant": self.invariant, "variants": rows}

    def __str__(self) -> str:
        changed = [variant.name for variant in self.variants if variant.changed]
        head = f"{self.dim}: " + (
            f"other bits with {', '.join(changed)}" if changed else "the same bits in all variants"
        )
        wide = max(len(variant.name) for variant in self.variants)
        rows = [
            f"  {v.name:<{wide}}  {v.changed:7.1%} of {v.outputs} results differ, by {v.largest:.3g} ulp at most"
            for v in self.variants
        ]
        return "\n".join([head, *rows])


def invariance(fn: Callable[..., Any], /, *inputs: Any, dim: str = "batch") -> Invariance:
    """Say whether a routine gives the same bits for the same numbers when one thing about the call is different.

    Parameters
    ----------
    fn : callable
        Takes the inputs as NumPy arrays, and returns an array whose first axis is that of the first input, such as
        ``numpy.matmul`` or ``lambda x: x.sum(axis=1)``. For PyTorch: ``lambda a, b: torch.matmul(torch.from_numpy(a),
        torch.from_numpy(b)).numpy()``.
    *inputs : array_like of float
        The first one has at least 2 dimensions and at least 2 rows.
    dim : {"batch", "row", "layout", "alignment", "padding", "threads", "axis"}
        "batch": the first rows are computed in calls of 1, 2, 4, ... rows. "row": all rows stand elsewhere, moved on
        in a circle. "layout": an input is in Fortran order. "alignment": an input starts 1, 2, 4 or 8 elements behind
        a multiple of 64 bytes. "padding": rows of zeros are put behind the first input. "threads": 1, 2, 3, 4 and 8
        threads of BLAS and OpenMP libraries (by threadpoolctl) and of PyTorch, where these are there. "axis": the terms
        of a sum or the like lie along each other axis; the routine takes one input and an argument ``axis``, as
        ``numpy.sum`` does.

    Returns
    -------
    Invariance

    Raises
    ------
    InputError
        `dim` is not one of these, the first input has no rows to choose from, or the result has another first axis.
    MissingExtraError
        There is nothing that can change the number of threads.

    Notes
    -----
    A routine whose two calls with equal arguments differ would look like one that is not invariant, so it is called
    twice first, and refused where that gives other bits: see `fpsim.spread`.

    Examples
    --------
    >>> import numpy as np, fpsim
    >>> x = np.random.default_rng(0).standard_normal((8, 1000)).astype(np.float32)
    >>> fpsim.invariance(lambda x: x.sum(axis=1), x, dim="batch").invariant
    True
    >>> print(fpsim.invariance(lambda x: x.sum(axis=1), x, dim="layout"))  # doctest: +ELLIPSIS
    layout: other bits with input 0 in Fortran order
      input 0 in Fortran order  ...
    """
    if dim not in DIMENSIONS:
        message = f"dim must be one of {', '.join(DIMENSIONS)}, not {dim!r}"
        raise InputError(message)
    arrays = tuple(_aligned(np.asarray(given), 0) for given in inputs)
    if not arrays or arrays[0].ndim < 2 or len(arrays[0]) < 2:
        message = "invariance needs a first input of at least 2 dimensions and at least 2 rows"
        raise InputError(message)
    call = fn
    if dim == "axis":
        if len(arrays) != 1:
            message = f"dim='axis' takes one input, not {len(arrays)}"
            raise InputError(message)
        call = lambda x: fn(x, axis=x.ndim - 1)
    whole = _called(call, arrays, len(arrays[0]))
    if not _same(whole, _called(call, arrays, len(arrays[0]))).all():
        message = "two calls with the same arguments gave other bits; fpsim.spread is for routines that do"
        raise InputError(message)
    if dim == "axis":
        return Invariance(dim, tuple(_compared(name, got, whole) for name, got in _along(fn, arrays[0])))
    if dim == "threads":
        counted = [(count, _with_threads(fn, arrays, count)) for count in _THREADS]
        return Invariance(dim, tuple(_compared(f"{n} thread{'s' * (n > 1)}", got, whole) for n, got in counted))
    variants = []
    for name, changed, taken, expected in _calls(dim, arrays):
        got = taken(_called(fn, changed, len(changed[0])))
        variants.append(_compared(name, got, expected(whole)))
    return Invariance(dim, tuple(variants))


def _calls(dim: str, arrays: tuple[_Array, ...]) -> Iterator[_Call]:
    """Yield the name of each variant, its inputs, which of its results count, and which of the whole they repeat."""
    first, others = arrays[0], arrays[1:]
    rows = len(first)
    if dim == "batch":
        for power in range(rows.bit_length()):
            count = 2**power
            if count < rows:
                yield f"{count} row{'s' * (count > 1)}", (_aligned(first[:count], 0), *others), _all, _first(count)
    elif dim == "row":
        for shift in sorted({1, rows // 2, rows - 1}):
            yield f"rows moved by {shift}", (_aligned(np.roll(first, shift, axis=0), 0), *others), _back(shift), _all
    elif dim == "padding":
        for count in (1, 3, 8, 64):
            zeros = np.zeros((count, *first.shape[1:]), first.dtype)
            yield (
                f"{count} more row{'s' * (count > 1)}",
                (_aligned(np.concatenate([first, zeros]), 0), *others),
                _first(rows),
                _all,
            )
    else:
        for place, array in enumerate(arrays):
            if dim == "layout":
                if array.ndim > 1:
                    turned = _aligned(array.T, 0).T
                    yield f"input {place} in Fortran order", (*arrays[:place], turned, *arrays[place + 1 :]), _all, _all
                continue
            for shift in (1, 2, 4, 8):
                moved = _aligned(array, shift)
                name = f"input {place} starts {shift} element{'s' * (shift > 1)} later"
                yield name, (*arrays[:place], moved, *arrays[place + 1 :]), _all, _all


def _along(fn: Callable[..., Any], x: _Array) -> Iterator[tuple[str, _Array]]:
    """Yield what the routine gives for the same terms along each axis but the last."""
    for axis in range(x.ndim - 1):
        moved = _aligned(np.moveaxis(x, -1, axis), 0)

        def call(given: _Array, axis: int = axis) -> Any:
            return fn(given, axis=axis)

        yield f"terms along axis {axis}", _called(call, (moved,), len(x))


def threads_can_vary() -> bool:
    """Return whether there is something that changes the number of threads."""
    return "torch" in sys.modules or find_spec("threadpoolctl") is not None


def _with_threads(fn: Callable[..., Any], arrays: tuple[_Array, ...], count: int) -> _Array:
    if not threads_can_vary():
        message = "to vary the number of threads, install threadpoolctl: python -m pip install threadpoolctl"
        raise MissingExtraError(message)
    with contextlib.ExitStack() as stack:
        if find_spec("threadpoolctl") is not None:
            stack.enter_context(import_module("threadpoolctl").threadpool_limits(count))
        torch = sys.modules.get("torch")
        if torch is not None:
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(count)
        return _called(fn, arrays, len(arrays[0]))


def _all(result: _Array) -> _Array:
    return result


def _first(count: int) -> Callable[[_Array], _Array]:
    return lambda result: result[:count]


def _back(shift: int) -> Callable[[_Array], _Array]:
    return lambda result: np.roll(result, -shift, axis=0)


def _aligned(array: _Array, shift: int) -> _Array:
    """Return a C-contiguous copy that starts so many elements behind a multiple of 64 bytes."""
    size = array.dtype.itemsize
    room = np.empty(array.nbytes + 64 + shift * size, np.uint8)
    start = -room.ctypes.data % 64 + shift * size
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _called(fn: Callable[..., Any], arrays: tuple[_Array, ...], rows: int) -> _Array:
    result = np.array(fn(*arrays))
    if result.ndim == 0 or len(result) != rows or result.dtype.kind != "f":
        message = f"the routine must return floats whose first axis has {rows} rows; it gave {result.dtype}"
        message += f" of shape {result.shape}"
        raise InputError(message)
    return result


def _same(a: _Array, b: _Array) -> NDArray[np.bool]:
    whole = f"u{a.dtype.itemsize}"
    return np.asarray(np.ascontiguousarray(a).view(whole) == np.ascontiguousarray(b).view(whole))


def _compared(name: str, got: _Array, expected: _Array) -> Variant:
    changed = ~_same(got, expected)
    with np.errstate(invalid="ignore", over="ignore"):
        far = np.abs(got.astype(np.float64) - expected)[changed]
        unit = np.spacing(np.maximum(np.abs(got), np.abs(expected)))[changed]
        largest = float(np.nanmax(far / unit, initial=0.0))
    return Variant(name, changed.size, float(changed.mean()), largest)
