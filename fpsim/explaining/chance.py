"""Whether less precision explains results, or could have come to them by chance: few outputs prove little."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim._observed_operation import Operation, lowest_bits
from fpsim.formats import Format, as_format
from fpsim.strategies import strategy

if TYPE_CHECKING:
    from fpsim._exact_values import Exact

#: What may be chance, as a probability that some candidate fits a result of another origin.
DOUBT: Final = 1e-3
_SIMPLE: Final = ("serial", "pairwise", "numpy_sum")
_CANDIDATES: Final = (8, 400)  # with different results, in the simple orders and in all


def of_reduced(
    text: str, values: NDArray[Any], form: Format, task: Operation, reference: Exact, sampled: NDArray[np.int64]
) -> float:  # fmt: skip
    """Return the probability that a strategy of less precision gives results of another origin.

    Parameters
    ----------
    text : str
        The strategy.
    values : ndarray
        Results that it gives.
    form : Format
        Of the results.
    task : Operation
    reference : Exact
        Its exact results.
    sampled : array of int
        The outputs that are looked at.

    Notes
    -----
    A result that is off by E ulps of what the strategy accumulates in could have been any of 2E + 1 numbers. That it is
    a number of the narrower format at all halves the chance with each bit that the data could have set and did not.
    Outputs with the same result count once.
    """
    chosen = strategy(text)
    narrow = chosen.arithmetic(task.data).accumulator.format
    seen, places = np.unique(np.asarray(values, np.float64).reshape(-1)[sampled], return_index=True)
    outputs = sampled[places]
    error = np.abs(np.asarray(reference.error(values), np.float64)).reshape(-1)[outputs]
    usable = np.isfinite(seen) & np.isfinite(error) & (seen != 0)
    if not usable.any():
        return 1.0
    seen, outputs, error = seen[usable], outputs[usable], error[usable]
    own, wide = (_exponent(seen, one) for one in (min(narrow, form, key=lambda f: f.precision), form))
    bits = float(np.sum(np.log2(2 * error / np.ldexp(1.0, own) + 1)))
    terms = task.terms(outputs)
    uneven = np.any(terms != terms[:, :1], axis=1)  # multiples of one number have its bits
    bits += float(np.sum(np.where(uneven, np.maximum(own - np.maximum(wide, lowest_bits(terms, -1)), 0), 0)))
    count = _CANDIDATES[0] if str(chosen.order) in _SIMPLE else _CANDIDATES[1]
    return min(1.0, count * math.exp2(-min(bits, 1000.0)))


def least_factor(values: NDArray[Any], sampled: NDArray[np.int64]) -> float:
    """Return how many times smaller an error must become for it to be no chance, by the number of different outputs."""
    outputs = len(np.unique(np.asarray(values, np.float64).reshape(-1)[sampled]))
    return math.exp(math.log(_CANDIDATES[0] / DOUBT) / max(outputs, 1))


def _exponent(values: NDArray[np.float64], form: Format) -> NDArray[np.int64]:
    form = as_format(form)
    return np.asarray(np.maximum(np.frexp(values)[1] - 1, form.emin) - form.precision + 1, np.int64)
