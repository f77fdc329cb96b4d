"""What a check finds: each routine beside its prediction."""

from __future__ import annotations

import dataclasses
import platform
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim import __version__
from fpsim._check_text import as_text
from fpsim._prediction_text import plain_number
from fpsim.devices import Implementation
from fpsim.devices.timing import Crossover, Times

SCHEMA: Final = "fpsim.check/1"

_Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first output whose bits are not the predicted ones.

    Attributes
    ----------
    law, index, predicted, actual
        The law of the operands, the position of the output, and the two values as text with their bits.
    """

    law: str
    index: tuple[int, ...]
    predicted: str
    actual: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """A routine and its prediction on operands of one size.

    Attributes
    ----------
    implementation, operation : str
        What ran.
    size : tuple of int
        The size, see `fpsim.devices.operations.OPERATIONS`.
    strategy : str
        The predicted strategy; of several, for different laws, the last.
    unknown : str
        Why no prediction is made, or the routine gives no result, for one law at least; else empty.
    outputs, equal : int
        Number of outputs over all laws, of those that are predicted where any is, and how many of them have the
        predicted bits (any NaN equals any other).
    predicted_error, actual_error : float
        Largest error against the exact result, in ulps of it; NaN where none is finite.
    bound : float
        Worst-case bound, in the same ulps, of the output that has the largest actual error; NaN where none is known.
    times : Times or None
        How long the routine takes.
    repeats : bool
        The routine gave the same bits again.
    mismatch : Mismatch or None
        The first output that differs.
    """

    implementation: str
    operation: str
    size: tuple[int, ...]
    strategy: str
    unknown: str
    outputs: int
    equal: int
    predicted_error: float
    actual_error: float
    bound: float
    times: Times | None = None
    repeats: bool = True
    mismatch: Mismatch | None = None

    @property
    def status(self) -> str:
        """One of "equal", "different" (the rule was wrong) and "unknown" (there is no rule, for one law at least)."""
        if self.mismatch is not None:
            return "different"
        return "unknown" if self.unknown else "equal"

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects; a number that is not finite is the text "inf" or "nan"."""
        out: dict[str, Any] = {
            "implementation": self.implementation,
            "operation": self.operation,
            "size": list(self.size),
            "status": self.status,
            "strategy": self.strategy or None,
            "unknown": self.unknown or None,
            "outputs": self.outputs,
            "equal": self.equal,
            "max_error_ulps": {
                "predicted": plain_number(self.predicted_error),
                "actual": plain_number(self.actual_error),
                "bound": plain_number(self.bound),
            },
            "same_bits_again": self.repeats,
        }
        if self.times is not None:
            out["seconds"] = self.times.compute
            out["seconds_with_transfers"] = self.times.with_transfers
        if self.mismatch is not None:
            out["first_mismatch"] = dataclasses.asdict(self.mismatch)
        return out


@dataclass(frozen=True, slots=True)
class Check:
    """Real routines beside their predictions; see `check`.

    Attributes
    ----------
    implementations : tuple of Implementation
        Those that were asked for, with those that cannot run here.
    comparisons : tuple of Comparison
        One for each implementation, operation and size.
    laws : tuple of str
        What operands were drawn from.
    dtype : str
        Their type.
    seed : int or None
        What the draws began with.
    crossover : Crossover or None
        From which size on a GPU multiplies matrices element by element faster than NumPy.
    """

    implementations: tuple[Implementation, ...]
    comparisons: tuple[Comparison, ...]
    laws: tuple[str, ...]
    dtype: str
    seed: int | None
    crossover: Crossover | None = None

    @property
    def wrong(self) -> tuple[Comparison, ...]:
        """The comparisons where a rule that claims to know was wrong."""
        return tuple(one for one in self.comparisons if one.status == "different")

    def __str__(self) -> str:
        return as_text(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects for JSON."""
        return {
            "schema": SCHEMA,
            "fpsim": __version__,
            "python": platform.python_version(),
            "dtype": self.dtype,
            "laws": list(self.laws),
            "seed": self.seed,
            "implementations": [one.to_dict() for one in self.implementations],
            "comparisons": [one.to_dict() for one in self.comparisons],
            "wrong": len(self.wrong),
            "crossover": None if self.crossover is None else self.crossover.to_dict(),
        }


def same_bits(one: _Array, other: _Array) -> NDArray[np.bool]:
    """Tell which bits are equal; a NaN equals any other."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return np.zeros(other.shape, np.bool)
    kind = f"u{one.dtype.itemsize}"
    bits = np.ascontiguousarray(one).view(kind) == np.ascontiguousarray(other).view(kind)
    return np.asarray(bits.reshape(other.shape) | (np.isnan(one) & np.isnan(other)))


def mismatch_of(law: str, same: NDArray[np.bool], predicted: _Array, actual: _Array) -> Mismatch:
    """Return the first output that differs."""
    index = tuple(int(i) for i in np.argwhere(~same)[0])
    if predicted.shape != actual.shape or predicted.dtype != actual.dtype:
        return Mismatch(law, index, f"{predicted.dtype}{predicted.shape}", f"{actual.dtype}{actual.shape}")
    return Mismatch(law, index, _with_bits(predicted[index]), _with_bits(actual[index]))


def _with_bits(value: Any) -> str:
    one = np.asarray(value)
    return f"{one[()]!s} (0x{int(one.view(f'u{one.itemsize}')):0{2 * one.itemsize}x})"
