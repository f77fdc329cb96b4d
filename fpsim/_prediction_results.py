"""What is predicted for strategies, and for implementations of an elementary function."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim._prediction_text import as_html, as_text, plain_number, with_bits
from fpsim.exact import Exact
from fpsim.formats import as_format
from fpsim.strategies import Strategy

SCHEMA: Final = "fpsim.prediction/1"

_Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class StrategyPrediction:
    """What is predicted for one strategy.

    Attributes
    ----------
    strategy : Strategy or str
        The strategy; of an elementary function the name of the implementation.
    result_format : str
        The format of its results; its ulps count.
    rms, quantile, maximum : float
        Root mean square, 99.9 % quantile and maximum of abs(error) over all outputs, in ulps of the exact value.
    relative, absolute : float
        Largest abs(error / exact) and abs(error).
    bound : float
        Classical worst-case bound in ulps of the exact value, the median over the outputs; infinite where a partial sum
        might overflow, or where no bound is known.
    bound_absolute : float
        Largest absolute bound.
    used : float
        Largest error/bound over the outputs: never above 1.
    differs : int
        Outputs whose value is not NumPy's, or, of an elementary function, not correctly rounded.
    outputs : int
        Number of outputs.
    same_as : tuple of str
        The other strategies with the same bits in every output.
    result : ndarray or None
        The results, for given data.
    compared_with : str
        What `differs` counts against: "NumPy" or "correctly rounded".
    """

    strategy: Strategy | str
    result_format: str
    rms: float
    quantile: float
    maximum: float
    relative: float
    absolute: float
    bound: float
    bound_absolute: float
    used: float
    differs: int
    outputs: int
    same_as: tuple[str, ...] = ()
    result: _Array | None = dataclasses.field(default=None, compare=False, repr=False)
    compared_with: str = "NumPy"

    def __str__(self) -> str:
        return (
            f"{self.strategy}: {self.rms:.3g} ulp RMS, {self.maximum:.3g} ulp at most, bound {self.bound:.3g} ulp,"
            f" {self.differs} of {self.outputs} outputs differ from {self.compared_with}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects; a number that is not finite is the text "inf" or "nan"."""
        out: dict[str, Any] = {"strategy": str(self.strategy), "result_format": self.result_format}
        out["error_ulps"] = {
            "rms": plain_number(self.rms),
            "quantile_0.999": plain_number(self.quantile),
            "max": plain_number(self.maximum),
        }
        out["max_relative_error"] = plain_number(self.relative)
        out["max_absolute_error"] = plain_number(self.absolute)
        out["bound_ulps"] = plain_number(self.bound)
        out["bound_absolute"] = plain_number(self.bound_absolute)
        out["max_error_over_bound"] = plain_number(self.used)
        out["outputs"] = self.outputs
        out[f"differ_from_{self.compared_with.lower().replace(' ', '_')}"] = self.differs
        out["same_bits_as"] = list(self.same_as)
        if self.result is not None and self.result.size == 1:
            out["result"] = with_bits(self.result)
        return out


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted errors of several strategies; see `predict`.

    Attributes
    ----------
    op : str
        The operation.
    shape : tuple of int
        n of a dot product, (n,) or the shape of the array of a sum, (m, k, n) of a matrix product; of an elementary
        function that of its operands.
    data : tuple of str
        The law of each operand, or "array".
    dtype : str
        The type of the operands.
    repeats : int
        How often operands were drawn; 1 for given data.
    seed : int or None
        What the draws began with, where that was a number.
    strategies : tuple of StrategyPrediction
        In the order in which they were asked for.
    numpy_version : str
        The NumPy that was run for comparison.
    exact : Exact or None
        The exact result, for given data of a sum or product.
    notes : tuple of str
        What a reader should know.
    """

    op: str
    shape: tuple[int, ...]
    data: tuple[str, ...]
    dtype: str
    repeats: int
    seed: int | None
    strategies: tuple[StrategyPrediction, ...]
    numpy_version: str
    exact: Exact | None = dataclasses.field(default=None, compare=False, repr=False)
    notes: tuple[str, ...] = ()

    @property
    def is_sampled(self) -> bool:
        """Whether the data were drawn from a law."""
        return "array" not in self.data

    @property
    def most_accurate(self) -> tuple[StrategyPrediction, ...]:
        """The strategies of the smallest RMS error, several where they have the same bits.

        An ulp of a wider format counts for less.
        """
        best = min(self.strategies, key=lambda one: (one.rms * as_format(one.result_format).eps, one.maximum))
        return tuple(one for one in self.strategies if one is best or str(one.strategy) in best.same_as)

    def __str__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects for JSON; a number that is not finite is the text "inf" or "nan"."""
        out: dict[str, Any] = {
            "schema": SCHEMA,
            "op": self.op,
            "shape": list(self.shape),
            "data": list(self.data),
            "dtype": self.dtype,
            "repeats": self.repeats,
            "seed": self.seed,
            "numpy": self.numpy_version,
            "strategies": [one.to_dict() for one in self.strategies],
            "most_accurate": [str(one.strategy) for one in self.most_accurate],
            "notes": list(self.notes),
        }
        if self.exact is not None and math.prod(self.exact.shape) == 1:
            out["exact"] = with_bits(np.asarray(self.exact.round("float64")))
        return out


def root_mean_square(errors: _Array) -> float:
    """Return the root of the mean square of errors, of any size."""
    largest = float(errors.max())
    if largest == 0.0 or not math.isfinite(largest):
        return largest
    return largest * math.sqrt(float(np.mean(np.square(errors / largest))))


def quantile(values: _Array, share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    place = min(max(math.ceil(share * values.size) - 1, 0), values.size - 1)
    return float(np.partition(values, place)[place])
