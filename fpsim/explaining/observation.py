"""What was observed, as far as it is known: the operation, its inputs or their law, and the results or figures of each side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.formats import Format, round_to

Array = NDArray[Any]
Doubles = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Case:
    """One computation: an operation on inputs, under settings. It is all that a mechanism sees.

    Attributes
    ----------
    op : str
        A name in `fpsim.explaining.operations.OPERATIONS`.
    inputs : tuple of ndarray
        In the format of the data, held as float64, float32 or float16.
    data : Format
        Of the inputs.
    result : Format
        Of the results.
    settings : mapping
        ``axis``, ``ddof``, ``eps``, ``window``, ``momentum``, ``steps``, ``scale``, ``operator``, ``names``, ...
    known : bool
        Whether the inputs are the very numbers, or others of the same law.
    """

    op: str
    inputs: tuple[Array, ...]
    data: Format
    result: Format
    settings: Mapping[str, Any] = field(default_factory=dict)
    known: bool = True

    @property
    def x(self) -> Array:
        """The first input."""
        return self.inputs[0]

    def get(self, name: str, default: Any = None) -> Any:
        """Return a setting."""
        return self.settings.get(name, default)


def stored(case: Case, value: Any) -> Any:
    """Return values rounded to the format of a case's results."""
    with np.errstate(all="ignore"):
        return np.asarray(round_to(np.asarray(value, np.float64), case.result))


@dataclass(frozen=True, eq=False)
class Observed:
    """Numbers of one side; every number from low to high, both included, may have been the result.

    Attributes
    ----------
    name : str
        How it is called.
    values, low, high : float64 arrays
        The nearest numbers of the format, and the intervals.
    format : Format
        Of the numbers.
    settings : mapping
        What this side did in its own way, such as another axis.
    note : str
        What stands out.
    """

    name: str
    values: Doubles
    low: Doubles
    high: Doubles
    format: Format
    settings: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    def view(self, given: Any) -> Doubles:
        """Return results in the shape that was observed, or the one element that was."""
        given = np.asarray(given, np.float64)
        index = self.settings.get("index")
        if index is not None and given.size > int(index):
            return np.broadcast_to(given.reshape(-1)[int(index)], self.values.shape)
        return fitted(given, self.values.shape)

    @property
    def is_exact(self) -> bool:
        """Whether the numbers are known to the bit."""
        return bool(np.all((self.low == self.high) | np.isnan(self.values)))

    def slack(self) -> Doubles:
        """Return how far the result may be from `values`."""
        with np.errstate(invalid="ignore"):
            return np.nan_to_num(np.maximum(self.high - self.values, self.values - self.low), nan=0.0, posinf=0.0)

    def same(self, given: Any) -> NDArray[np.bool]:
        """Tell which numbers may have been those given; one NaN, one zero."""
        given = self.view(given)
        return np.asarray(((given >= self.low) & (given <= self.high)) | (np.isnan(given) & np.isnan(self.values)))


def fitted(given: Doubles, shape: tuple[int, ...]) -> Doubles:
    """Return results in an observed shape: one number for all, or the first of more than were observed."""
    if given.shape == shape:
        return given
    size = int(np.prod(shape, dtype=np.int64))
    flat = given.reshape(-1)
    if flat.size == 1:
        return np.broadcast_to(flat.reshape((1,) * len(shape)), shape) if shape else flat.reshape(())
    if flat.size < size:
        return np.full(shape, np.nan)
    if len(shape) == 1 and given.ndim == 2 and given.shape[1] == size:
        flat = given[0]
    return flat[:size].reshape(shape)


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure about results instead of the results: the largest error, the mean difference, a count.

    Attributes
    ----------
    name : str
        As it was given.
    statistic : str
        What it is, as `fpsim.explaining.described` names it.
    low, high : float
        What it may be.
    against : str
        "exact" for an error, "other" for a difference of two sides, "runs" for one of two runs of one program.
    """

    name: str
    statistic: str
    low: float
    high: float
    against: str


@dataclass(frozen=True, eq=False)
class Observation:
    """Everything that was reported.

    Attributes
    ----------
    case : Case or None
        The computation; None where the operation or its inputs are unknown.
    op : str or None
        The operation, even if its inputs are unknown.
    sides : tuple of Observed
    measures : tuple of Measure
    statements : tuple of (str, str)
        What was said in words: side, text.
    devices : tuple of str
    """

    case: Case | None
    op: str | None
    sides: tuple[Observed, ...] = ()
    measures: tuple[Measure, ...] = ()
    statements: tuple[tuple[str, str], ...] = ()
    devices: tuple[str, ...] = ()


def hold(values: Any, form: Format, /) -> Array:
    """Return numbers rounded to a format, in the narrowest type that holds it; strides of a view are kept."""
    array = np.asarray(values)
    kind = {11: np.float16, 24: np.float32}.get(form.precision, np.float32 if form.precision < 24 else np.float64)
    if array.dtype == kind and form.precision in (11, 24, 53):
        return array
    base = array.base
    if isinstance(base, np.ndarray) and base.size and array.strides and base.dtype == array.dtype:
        whole = np.asarray(round_to(np.asarray(base, np.float64), form)).astype(kind)
        ratio = np.dtype(kind).itemsize / array.dtype.itemsize
        offset = int((array.__array_interface__["data"][0] - base.__array_interface__["data"][0]) * ratio)
        if base.flags.c_contiguous:
            return np.ndarray(array.shape, kind, whole, offset, tuple(int(s * ratio) for s in array.strides))
    return np.asarray(round_to(np.asarray(array, np.float64), form)).astype(kind)
