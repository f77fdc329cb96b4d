"""The numbers behind an explanation, kept for its charts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim._differences import Results
from fpsim._observed_operation import Operation
from fpsim._plausibility import chain_size, worst_case
from fpsim.explaining.operations import Reference
from fpsim.formats import Format

Doubles = NDArray[np.float64]
_TERMS: Final = 1_000_000  # that predicted sizes are worked out from


@dataclass(frozen=True, eq=False, slots=True)
class Errors:
    """The errors of one side beside what rounding predicts.

    Attributes
    ----------
    ratios : float64 array
        Errors divided by the standard deviation that the roundings of one running sum give; outputs where nothing is
        rounded are left out.
    bound : float
        The smallest worst-case bound of these outputs in the same units.
    """

    ratios: Doubles
    bound: float


@dataclass(frozen=True, eq=False, slots=True)
class Evidence:
    """Results by name, and how their errors are worked out; only charts need them.

    Attributes
    ----------
    results : mapping of str to float64 array
    formats : mapping of str to Format
    errors : callable or None
        Returns the `Errors` of a side; None where nothing is known about right and wrong.
    """

    results: Mapping[str, Doubles]
    formats: Mapping[str, Format]
    errors: Callable[[str], Errors | None] | None = None


def of_results(results: Results, /) -> Evidence:
    """Return the evidence of results alone."""
    values = {name: np.asarray(array, np.float64) for name, (array, _) in results.items()}
    return Evidence(values, {name: form for name, (_, form) in results.items()})


def of_operation(results: Results, task: Operation, exact: Any, sampled: NDArray[np.int64], /) -> Evidence:
    """Return the evidence of sums and products whose inputs are known."""
    plain = of_results(results)

    def errors(name: str) -> Errors:
        values, form = results[name]
        count = min(task.size, max(len(sampled), _TERMS // max(task.n, 1)))
        chosen = np.linspace(0, task.size - 1, count).astype(np.int64)
        sigma = np.concatenate(
            [chain_size(task, task.terms(some), form) for some in np.array_split(chosen, -(-count // 64))]
        )
        error = np.asarray(exact.error(values), np.float64).reshape(-1)[chosen]
        return _errors(error, sigma, worst_case(task, exact, form).reshape(-1)[chosen])

    return Evidence(plain.results, plain.formats, errors)


def of_references(results: Results, references: Mapping[str, Reference | None], /) -> Evidence:
    """Return the evidence of other operations."""
    plain = of_results(results)

    def errors(name: str) -> Errors | None:
        exact, values = references.get(name), plain.results[name]
        if exact is None or exact.value.shape != values.shape:
            return None
        with np.errstate(all="ignore"):
            sigma = np.sqrt(exact.size**2 + exact.last**2 / 3)
            return _errors(values - exact.value, sigma, exact.bound)

    return Evidence(plain.results, plain.formats, errors)


def _errors(error: Doubles, sigma: Doubles, bound: Doubles) -> Errors:
    usable = np.isfinite(error) & np.isfinite(sigma) & (sigma > 0) & (bound > 0)
    with np.errstate(all="ignore"):
        return Errors(
            np.asarray(error[usable] / sigma[usable]), float(np.min(bound[usable] / sigma[usable], initial=np.inf))
        )
