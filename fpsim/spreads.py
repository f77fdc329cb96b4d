"""Run-to-run spread: what a reduction gives whose terms arrive in a random order, and whether that explains runs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim import exact as exactly
from fpsim._arrays import as_floats
from fpsim._arrivals import Arrivals, random_places
from fpsim._prediction_text import plain_number
from fpsim._reordering import chance_of_agreement, expected_distinct, moments, worst_case
from fpsim._spread_cases import Case, case_of, index_add_case, with_law
from fpsim.arrival_models import arrival_law
from fpsim.errors import InputError
from fpsim.formats import _generator
from fpsim.orders import Order
from fpsim.orders.base import SERIAL
from fpsim.strategies import Strategy, strategy as as_strategy

SCHEMA: Final = "fpsim.spread/1"
OPERATIONS: Final = ("sum", "dot", "matmul", "index_add")
QUANTILES: Final = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)
_Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """The results of many runs of one reduction on the same data; see `spread`.

    Attributes
    ----------
    op : str
        The operation.
    strategy : Strategy
        The strategy, with its random order.
    results : ndarray, shape (runs, ...)
        What the emulated runs gave.
    exact : ndarray, shape of the outputs
        The exact result, rounded to float64.
    terms : int
        How many terms or partial sums arrive in a random order, of the output that has most; 0 where that is not known.
    mean, std : ndarray, shape of the outputs
        Of the results.
    predicted_mean, predicted_std : ndarray or None
        The same in closed form, for one chain of additions in uniformly random order, whose result is not rounded to
        another format.
    center : ndarray or None
        The exact sum of the partial sums: what all runs would give without the additions that are reordered.
    worst_case : ndarray or None
        How far a result can be from `center`, whatever the order of arrival; proved.
    partials : ndarray or None, shape (terms, outputs)
        What arrives.
    """

    op: str
    strategy: Strategy
    results: _Array = field(repr=False)
    exact: _Array = field(repr=False)
    terms: int
    mean: _Array
    std: _Array
    predicted_mean: _Array | None = None
    predicted_std: _Array | None = None
    center: _Array | None = None
    worst_case: _Array | None = None
    partials: _Array | None = field(default=None, repr=False)

    @property
    def runs(self) -> int:
        """How many runs were emulated."""
        return len(self.results)

    @property
    def distinct(self) -> _Array:
        """How many distinct results each output had."""
        flat = self.results.reshape(self.runs, -1)
        counts = [np.unique(flat[:, j]).size for j in range(flat.shape[1])]
        return np.array(counts, np.int64).reshape(self.results.shape[1:])

    @property
    def agreement(self) -> float:
        """The estimated probability that two runs have the same bits in all outputs."""
        rows = np.ascontiguousarray(self.results.reshape(self.runs, -1))
        keys = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).reshape(-1)
        counts = np.unique(keys, return_counts=True)[1].astype(np.float64)
        return float((counts * (counts - 1)).sum() / (self.runs * (self.runs - 1))) if self.runs > 1 else 1.0

    def values(self) -> tuple[_Array, NDArray[np.int64]]:
        """Return the distinct results of a single output, ascending, and how many runs gave each."""
        return np.unique(self._single(), return_counts=True)

    def quantile(self, q: Any, /) -> _Array:
        """Return quantiles of the results of each output."""
        return np.asarray(np.quantile(self.results.astype(np.float64), q, axis=0))

    def expected_distinct(self, runs: int, /) -> float:
        """Return how many distinct results of a single output so many runs are expected to have, by the closed form."""
        std, unit = self._closed_form()
        return expected_distinct(std, unit, runs)

    def expected_agreement(self) -> float:
        """Return the probability that two runs have the same bits in a single output, by the closed form."""
        return chance_of_agreement(*self._closed_form())

    def test(self, observed: Any, /, *, error_rate: float = 1e-6) -> SpreadTest:
        """Say whether observed runs can come from reordering alone; see `SpreadTest`.

        Parameters
        ----------
        observed : array_like, shape (runs, ...)
            Results of real runs on the same data.
        error_rate : float
            Probability that runs which differ by nothing but a uniformly random order are called unlikely.
        """
        from fpsim._spread_test import tested

        return tested(self, observed, error_rate)

    def _single(self) -> _Array:
        if self.results.ndim != 1:
            message = f"this is for a single output; the results have shape {self.results.shape[1:]}"
            raise InputError(message)
        return self.results

    def _closed_form(self) -> tuple[float, float]:
        form = as_floats(self._single())[1]
        std = float(self.std if self.predicted_std is None else self.predicted_std)
        return std, float(form.ulp(np.float64(self.mean)))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, without the single results."""
        return {
            "schema": SCHEMA,
            "op": self.op,
            "strategy": str(self.strategy),
            "runs": self.runs,
            "terms": self.terms,
            "exact": _plain(self.exact),
            "mean": _plain(self.mean),
            "std": _plain(self.std),
            "predicted_mean": _plain(self.predicted_mean),
            "predicted_std": _plain(self.predicted_std),
            "worst_case": _plain(self.worst_case),
            "min": _plain(self.results.min(axis=0)),
            "max": _plain(self.results.max(axis=0)),
            "quantiles": {str(q): _plain(self.quantile(q)) for q in QUANTILES},
            "distinct": _plain(self.distinct),
            "agreement": self.agreement,
        }

    def __str__(self) -> str:
        from fpsim._spread_text import spread_text

        return spread_text(self)


@dataclass(frozen=True, slots=True)
class SpreadTest:
    """Whether observed runs can come from reordering alone.

    Attributes
    ----------
    verdict : {"reordering", "unlikely", "impossible", "unknown"}
        "reordering": all runs lie where a random order puts them. "unlikely": some lie farther out than a uniformly
        random order puts any of so many runs but with probability `error_rate`; another law of arrival may. "impossible":
        no order of the same terms gives some of the runs, so that terms were lost, doubled or changed (a race).
        "unknown": nothing is known of what arrives.
    reason : str
        In words.
    error_rate : float
        See `Spread.test`; "impossible" has none, it is proved.
    largest_deviation : float
        The largest distance of a run from the predicted mean, in predicted standard deviations.
    outside : int
        How many runs no order gives.
    observed_std, predicted_std : float
        Of the output with the largest deviation.
    observed_distinct, expected_distinct : float
        Number of distinct results of that output, and how many are expected in as many runs.
    lost : tuple of int
        Terms whose loss, each alone, explains the outermost run, the likeliest first; at most 10.
    """

    verdict: str
    reason: str
    error_rate: float
    largest_deviation: float
    outside: int
    observed_std: float
    predicted_std: float
    observed_distinct: float
    expected_distinct: float
    lost: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.verdict}: {self.reason}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {name: _plain(value) for name, value in dataclasses.asdict(self).items()}


def spread(
    op: str,
    /,
    *inputs: Any,
    strategy: str | Strategy | Order,
    runs: int = 1000,
    axis: Any = None,
    arrivals: Any = None,
    rng: np.random.Generator | np.random.SeedSequence | int | None = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Spread:
    """Emulate many runs of a reduction whose order of additions is random.

    Parameters
    ----------
    op : {"sum", "dot", "matmul", "index_add"}
        The operation.
    *inputs : array_like
        Its operands, as for `fpsim.sum`, `fpsim.dot` and `fpsim.matmul`. For ``index_add`` (also ``scatter_add``): the
        target, shape (slots,), the indices, shape (n,), and the source, shape (n,).
    strategy : str or Strategy
        A strategy with ``shuffle``, without a seed, where terms or partial sums arrive at random: ``"shuffle"`` is one
        atomic addition for each term, ``"chunks(32, fold, combine=shuffle)"`` for each warp,
        ``"cuda_reduce(132, 256, second=shuffle)"`` for each block, ``"split(8, combine=shuffle)"`` are threads
        that add their sums as they finish. ``block=`` and ``window=`` change the law of arrival, see `Shuffle`.
    runs : int
        How many runs to emulate.
    axis : int or tuple of int, optional
        Of a sum.
    arrivals : array_like, model or str, optional
        How terms arrive instead of at random: the recorded places of arrival, integers of shape (runs, terms), or a
        model or its text, see `fpsim.arrival_models`. There is no closed form then.
    rng : Generator, SeedSequence or int, optional
        Source of the orders; the same seed gives the same runs.
    progress : callable, optional
        Called with the number of runs done and of all runs.

    Returns
    -------
    Spread

    Raises
    ------
    InputError
        The data do not fit the operation, the strategy has no random order, or `arrivals` are of another number of
        terms.
    StrategyError, UnknownOrderError
        As in `fpsim.sum`.

    Examples
    --------
    >>> import numpy as np, fpsim
    >>> x = np.random.default_rng(0).random(10000).astype(np.float32)
    >>> atomics = fpsim.spread("sum", x, strategy="shuffle", runs=200)
    >>> blocks = fpsim.spread("sum", x, strategy="chunks(256, fold, combine=shuffle)", runs=200)
    >>> int(atomics.distinct), int(blocks.distinct)
    (55, 5)
    """
    if op not in OPERATIONS:
        message = f"spread takes op={', '.join(OPERATIONS)}, not {op!r}"
        raise InputError(message)
    if int(runs) != runs or runs < 1:
        message = f"runs must be a whole number of at least 1, not {runs!r}"
        raise InputError(message)
    chosen = as_strategy(strategy)
    if not random_places(chosen.order):
        message = (
            f"every run of {chosen} has the same order; write shuffle, without a seed, where terms arrive at random, as"
            " in 'chunks(256, fold, combine=shuffle)'"
        )
        raise InputError(message)
    generator = _generator(rng)
    case = index_add_case(inputs, chosen) if op == "index_add" else case_of(op, inputs, chosen, axis)
    if arrivals is not None:
        case = with_law(case, arrival_law(arrivals))
    done = 0
    results = []
    for batch in case.runs(int(runs), generator):
        results.append(batch)
        done += len(batch)
        if progress is not None:
            progress(done, int(runs))
    values = np.concatenate(results).reshape(int(runs), *case.shape)
    return _summary(op, chosen, values, case)


def _summary(op: str, chosen: Strategy, results: _Array, case: Case) -> Spread:
    wide = results.astype(np.float64)
    with np.errstate(invalid="ignore"):
        mean, std = wide.mean(axis=0), wide.std(axis=0)
    known = [part for part in case.parts if part is not None]
    common = {"op": op, "strategy": chosen, "results": results, "exact": case.exact, "mean": mean, "std": std}
    if not known:
        return Spread(**common, terms=0)
    terms = max(len(part.partials) for part in known)
    shape = case.shape
    bounds = np.zeros(math.prod(shape))
    closed = [np.zeros(math.prod(shape)) for _ in range(2)]
    centers = np.array(case.exact, np.float64).reshape(-1)
    simple = True
    columns = [(part, j) for part in case.parts for j in range(1 if part is None else part.partials.shape[1])]
    for output, (part, j) in enumerate(columns):
        if part is None:
            continue
        given, rounding = part.partials[:, j].astype(np.float64), part.additions.accumulator
        centers[output] = float(exactly.sum(given).round("float64"))
        if not np.isfinite(given).all():
            bounds[output], simple = math.inf, False
            continue
        serial = part.shuffle.inner == SERIAL
        if part.first is not None:
            centers[output] = case.exact.reshape(-1)[output]
        bounds[output] = _bound(part, given, centers[output], serial=serial)
        last = part.arithmetic.output
        fits = serial and rounding.mode == "nearest-even" and part.additions.compensation is None
        fits = fits and (last is None or last.format == rounding.format)
        if fits and part.first is None and part.law is None:
            own = moments(given, rounding.format)
            closed[0][output], closed[1][output] = centers[output] + own.mean, own.std
        else:
            simple = False
    arrived = known[0].partials if len(known) == 1 else None
    return Spread(
        **common,
        terms=terms,
        center=centers.reshape(shape),
        worst_case=bounds.reshape(shape),
        predicted_mean=closed[0].reshape(shape) if simple else None,
        predicted_std=closed[1].reshape(shape) if simple else None,
        partials=arrived,
    )


def _bound(part: Arrivals, given: NDArray[np.float64], center: float, *, serial: bool) -> float:
    """Return how far a result can be from the exact sum of what arrives."""
    additions, output = part.additions, part.arithmetic.output
    if additions.compensation is not None:
        return math.inf
    if part.first is not None:
        given = np.concatenate([part.first.astype(np.float64), given])
    bound = worst_case(given, additions.accumulator, ftz=additions.ftz, serial=serial)
    if output is not None and math.isfinite(bound):
        nearest = output.mode.startswith("nearest")
        bound += float(output.format.ulp(np.float64(abs(center) + bound))) * (0.5 if nearest else 1.0)
    return bound + math.ulp(center)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, tuple):
        return list(value)
    return plain_number(value) if np.ndim(value) == 0 else np.vectorize(plain_number, otypes=[object])(value).tolist()
