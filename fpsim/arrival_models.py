"""Orders in which the blocks of a kernel arrive: as they were recorded, and models of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from fpsim.errors import InputError

_DATA: Final = Path(__file__).parent / "data"
_RECORDED: Final = (100_000, 1_000_000)  # float32 terms


class ArrivalLaw(Protocol):
    """Where the order of arrival of one run comes from."""

    def places(self, n: int, rng: np.random.Generator, /) -> NDArray[np.int64]:
        """Return the numbers of n terms in the order in which they arrive."""


@dataclass(frozen=True, eq=False)
class RecordedArrivals:
    """Recorded orders of arrival, one of which is drawn for every run.

    Attributes
    ----------
    ranks : ndarray of integers, shape (runs, blocks)
        In which place, from 0, each block arrived.
    split : int
        How many neighbouring terms a block brings, such as the sums of its warps.
    late : float
        Each of these terms comes at the place of its block plus a random number below `late`.

    Raises
    ------
    InputError
        A row does not hold each place once, `split` is below 1 or `late` below 0.
    """

    ranks: NDArray[np.int64]
    split: int = 1
    late: float = 0.0

    def __post_init__(self) -> None:
        if self.split < 1 or not 0 <= self.late < np.inf:
            message = f"split must be at least 1 and late finite and at least 0, not {self.split} and {self.late}"
            raise InputError(message)
        ranks = np.asarray(self.ranks)
        if ranks.ndim != 2 or 0 in ranks.shape or ranks.dtype.kind not in "iu":
            message = (
                f"recorded arrivals are whole numbers of shape (runs, terms), not {ranks.dtype} of shape {ranks.shape}"
            )
            raise InputError(message)
        wrong = np.flatnonzero((np.sort(ranks, axis=1) != np.arange(ranks.shape[1])).any(axis=1))
        if wrong.size:
            message = f"run {wrong[0]} of the recorded arrivals does not hold each place 0 to {ranks.shape[1] - 1} once"
            raise InputError(message)
        object.__setattr__(self, "ranks", ranks.astype(np.int64))

    def places(self, n: int, rng: np.random.Generator, /) -> NDArray[np.int64]:
        """Return the numbers of n terms in the order of one of the recorded runs."""
        _fits(self.ranks.shape[1] * self.split, n)
        times = np.repeat(self.ranks[rng.integers(len(self.ranks))], self.split)
        return np.argsort(times + self.late * rng.random(n) if self.late else times, kind="stable")

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "schema": "fpsim.recorded_arrivals/1",
            "split": self.split,
            "late": self.late,
            "ranks": self.ranks.tolist(),
        }


@dataclass(frozen=True, slots=True)
class SweepArrivals:
    """Single terms that warps add as they go over the data in sweeps.

    In each sweep every warp takes `width` neighbouring terms, which arrive together. They arrive at the number of the
    sweep plus a random number below `late`: with `late` at most 1 the sweeps come one after another, each in random
    order; larger ones let warps run ahead by so many sweeps.

    Attributes
    ----------
    warps : int
        Warps that are launched, a sweep.
    late : float
        In sweeps, above 0.
    width : int
        Lanes of a warp.
    """

    warps: int
    late: float
    width: int = 32

    def __post_init__(self) -> None:
        if self.warps < 1 or self.width < 1 or not 0 < self.late < np.inf:
            message = f"sweeps need at least 1 warp and lane and a finite late above 0, not {self}"
            raise InputError(message)

    def places(self, n: int, rng: np.random.Generator, /) -> NDArray[np.int64]:
        """Return the numbers of n terms in the order in which they arrive."""
        rows = -(-n // self.width)
        order = np.argsort(np.arange(rows) // self.warps + self.late * rng.random(rows))
        places = (order[:, None] * self.width + np.arange(self.width)).reshape(-1)
        return places[places < n]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"schema": "fpsim.sweep_arrivals/1", "warps": self.warps, "late": self.late, "width": self.width}


@dataclass(frozen=True, eq=False)
class ArrivalModel:
    """Each term has a usual time of arrival, moves with all others in some runs, and is early or late on its own.

    Attributes
    ----------
    mean : ndarray, shape (terms,)
        The usual place of each term.
    common : ndarray, shape (terms,)
        How far each term moves with one standard normal variate of the run; it makes most of what varies where a run
        is scheduled in one of several ways.
    jitter : ndarray, shape (terms,)
        Standard deviation of the rest, independent from term to term.
    """

    mean: NDArray[np.float64]
    common: NDArray[np.float64]
    jitter: NDArray[np.float64]

    @classmethod
    def fit(cls, ranks: Any, /) -> ArrivalModel:
        """Fit the model to recorded arrivals.

        Parameters
        ----------
        ranks : array_like of integers, shape (runs, terms)
            In which place, from 0, each term arrived; at least 3 runs.

        Raises
        ------
        InputError
            A row does not hold each place once, or there are too few runs.
        """
        recorded = RecordedArrivals(np.asarray(ranks)).ranks.astype(np.float64)
        runs = len(recorded)
        if runs < 3:
            message = f"a model of arrivals needs at least 3 recorded runs, not {runs}"
            raise InputError(message)
        mean = recorded.mean(axis=0)
        left, sizes, right = np.linalg.svd(recorded - mean, full_matrices=False)
        rest = recorded - mean - sizes[0] * np.outer(left[:, 0], right[0])
        jitter = np.sqrt((rest**2).sum(axis=0) / (runs - 2))
        return cls(mean, sizes[0] / np.sqrt(runs - 1) * right[0], jitter)

    def places(self, n: int, rng: np.random.Generator, /) -> NDArray[np.int64]:
        """Return the numbers of n terms in the order in which they arrive."""
        _fits(self.mean.size, n)
        times = self.mean + rng.standard_normal() * self.common + rng.standard_normal(n) * self.jitter
        return np.argsort(times, kind="stable")

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        fields = {name: getattr(self, name).tolist() for name in ("mean", "common", "jitter")}
        return {"schema": "fpsim.arrival_model/1", **fields}

    def __str__(self) -> str:
        return (
            f"arrivals of {self.mean.size} terms: usual places apart by {self.mean.std():.3g} (standard deviation),"
            f" in a run moved together by {np.sqrt((self.common**2).mean()):.3g},"
            f" alone by {np.sqrt((self.jitter**2).mean()):.3g}"
        )


def h200_blocks(terms: int, /) -> NDArray[np.int64]:
    """Return the places in which 132 blocks of 256 threads arrived on an H200, shape (200, 132).

    Parameters
    ----------
    terms : {100000, 1000000}
        How many float32 numbers the kernel added, each thread every 33792nd. One block runs on each multiprocessor.

    Notes
    -----
    100 runs each on uniform and on normal data, taken by an atomic ticket before the block's atomic addition
    (numba-cuda, ``benchmarks/gpu/run_to_run.py``). Atomic additions of single terms or warps return no value, so that
    their order was not recorded: a ticket would change it.
    """
    if terms not in _RECORDED:
        message = (
            f"arrivals on an H200 are on record for sums of {' and '.join(map(str, _RECORDED))} terms, not {terms}"
        )
        raise InputError(message)
    with np.load(_DATA / "h200_arrivals.npz", allow_pickle=False) as data:
        return np.asarray(data[str(terms)], np.int64)


def arrival_law(given: Any, /) -> ArrivalLaw:
    """Return a law of arrival: a model, its text, or recorded places of shape (runs, terms).

    Texts are ``h200(TERMS)``, the arrivals of `h200_blocks`; the name of a file of recorded places; ``fit(...)`` of either,
    a model fitted to them; and ``sweeps(WARPS, LATE)``. ``split=`` and ``late=`` in ``h200(1000000, split=8, late=60)``
    are those of `RecordedArrivals`.

    Raises
    ------
    InputError
        The text is none of these.
    """
    if isinstance(given, str):
        return _from_text(given)
    if isinstance(given, ArrivalModel | RecordedArrivals | SweepArrivals):
        return given
    return RecordedArrivals(np.asarray(given))


def _from_text(text: str) -> ArrivalLaw:
    name, _, rest = text.strip().partition("(")
    inside = rest.strip().removesuffix(")")
    if not rest:
        from fpsim._files import load_array

        return RecordedArrivals(load_array(text.strip()))
    if name == "fit":
        recorded = _from_text(inside)
        if isinstance(recorded, RecordedArrivals) and recorded.split == 1:
            return ArrivalModel.fit(recorded.ranks)
    words = [word.strip() for word in inside.split(",")]
    options = dict(word.replace(" ", "").split("=", 1) for word in words if "=" in word)
    try:
        numbers = [float(word) for word in words if "=" not in word]
        named = {key: float(value) for key, value in options.items()}
        if name == "h200" and len(numbers) == 1 and named.keys() <= {"split", "late"}:
            split = int(named.get("split", 1))
            return RecordedArrivals(h200_blocks(int(numbers[0])), split=split, late=named.get("late", 0.0))
        if name == "sweeps" and len(numbers) == 2 and not named:
            return SweepArrivals(int(numbers[0]), numbers[1])
    except ValueError:
        pass
    message = (
        f"arrivals {text!r} are none of h200(TERMS), h200(TERMS, split=N, late=X), sweeps(WARPS, LATE), FILE,"
        " fit(h200(TERMS)) and fit(FILE)"
    )
    raise InputError(message)


def _fits(known: int, n: int) -> None:
    if known != n:
        message = f"the model of arrivals is of {known} terms, but {n} arrive"
        raise InputError(message)
