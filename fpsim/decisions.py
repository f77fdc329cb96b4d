"""Decisions on logits that rounding changes from run to run: argmax, the leading k, a threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim._decision_law import ranked, set_chances
from fpsim._decision_sides import Side, copies_of, of_logits, of_products
from fpsim._prediction_text import plain_number
from fpsim.errors import InputError
from fpsim.formats import _generator
from fpsim.orders import Order
from fpsim.strategies import Strategy, strategy as as_strategy

SCHEMA: Final = "fpsim.decision/1"
_Array = NDArray[Any]
_Doubles = NDArray[np.float64]
_Given = str | Strategy | Order


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """How often rounding in another order changes a decision; see `decision`.

    All arrays have one entry for each row of logits, and those of single logits one for each class too.

    Attributes
    ----------
    kind : str
        ``"argmax"``, ``"top k"`` or ``"threshold"``.
    sides : tuple of str
        The strategies; empty for logits with a standard deviation.
    runs : int
        How many runs were emulated or drawn.
    decided : ndarray
        What the exact logits decide: the classes of the k largest, ascending, or which logits reach the threshold.
    margin : float64 array
        The exact distance to another decision: between the k-th and the next logit, or to the threshold.
    noise : float64 array, shape of the logits
        Standard deviation of a logit from run to run; of a strategy without a random order, of its rounding error as
        the variances of its roundings add up. Of the first strategy.
    log_probability_noise : float64 array, shape of the logits
        The same of log(softmax), from independent logits; its own rounding is not in it.
    correlation : float64 array
        Between the k-th and the next logit over the runs; NaN where one of them does not vary.
    flip, disagree : float64 array
        The share of runs (of the first strategy) that decide otherwise than the exact logits, and of pairs of runs
        (one of each strategy, where there are two) that decide differently.
    predicted_flip, predicted_disagree : float64 array
        The same from normal logits on the numbers that their format has. Sets that differ from the decided one by
        more than one class all count as different from each other, so that `predicted_disagree` can be too high.
    """

    kind: str
    sides: tuple[str, ...]
    runs: int
    decided: _Array
    margin: _Doubles
    noise: _Doubles = field(repr=False)
    log_probability_noise: _Doubles = field(repr=False)
    correlation: _Doubles = field(repr=False)
    flip: _Doubles
    disagree: _Doubles
    predicted_flip: _Doubles
    predicted_disagree: _Doubles

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        floats = (
            "margin", "noise", "log_probability_noise", "correlation", "flip", "disagree", "predicted_flip",
            "predicted_disagree",
        )  # fmt: skip
        parts = {name: _plain(getattr(self, name)) for name in floats}
        head = {"schema": SCHEMA, "kind": self.kind, "sides": list(self.sides), "runs": self.runs}
        return {**head, "decided": self.decided.tolist(), **parts}

    def __str__(self) -> str:
        what = " against ".join(self.sides) or "given standard deviation"
        closest = int(np.argmin(self.margin))
        rows = self.margin.size
        place = f" (place {closest})" if rows > 1 else ""
        lines = [
            f"{self.kind}, {what}: {rows} decision{'s' * (rows > 1)}, {self.runs} run{'s' * (self.runs > 1)}",
            f"  noise of a logit           {_rms(self.noise):.2g} (root mean square), {self.noise.max(initial=0):.2g} at most",
        ]
        if self.kind != "threshold":
            lines.append(f"  noise of a log-probability {_rms(self.log_probability_noise):.2g}")
        lines.append(f"  smallest margin            {self.margin.min():.3g}{place}")
        pairs = (("a run decides otherwise", "flip"), ("two runs differ", "disagree"))
        for name, key in pairs:
            seen, expected = getattr(self, key), getattr(self, f"predicted_{key}")
            lines.append(
                f"  {name:<26} {seen.mean():.3%} of runs, predicted {expected.mean():.3%};"
                f" at most {seen.max():.2%}, predicted {expected.max():.2%}"
            )
        return "\n".join(lines)


def decision(
    *inputs: Any,
    strategy: _Given | tuple[_Given, _Given] | None = None,
    std: Any = None,
    k: int = 1,
    threshold: float | None = None,
    runs: int = 1000,
    rng: np.random.Generator | np.random.SeedSequence | int | None = 0,
) -> Decision:
    """Say how often rounding in another order changes what logits decide.

    Parameters
    ----------
    *inputs : array_like
        Hidden state x, shape (n,) or (rows, n); weights, shape (n, classes); and, optionally, a bias, shape
        (classes,): logits are ``x @ weights + bias``. Of a torch layer the weights are ``layer.weight.T``. Or, with
        `std`, the logits, shape (classes,) or (rows, classes).
    strategy : str, Strategy or pair of them
        How the product is computed. With ``shuffle`` in it, without a seed, every run has another order. Two of them
        are compared with each other; one without a random order is compared with the exact logits.
    std : array_like of float
        Standard deviation of the logits from run to run, such as `Spread.std`; a number, or of the logits' shape.
    k : int
        The classes of the k largest logits are decided on, as a set; 1 is argmax. Of equal logits the first ranks first.
    threshold : float, optional
        Decide for every logit instead whether it is at least this.
    runs : int
        How many runs are emulated or, with `std`, drawn.
    rng : Generator, SeedSequence or int, optional
        Source of the orders.

    Returns
    -------
    Decision

    Raises
    ------
    InputError
        A logit is NaN, or the arguments do not fit each other.

    Notes
    -----
    The prediction takes logits as normal variates with the closed-form mean and standard deviation of
    `fpsim.spread` (that of the runs where there is no closed form), on the multiples of a unit in the last place,
    as the format has them, so that ties are counted too (near a power of two: as on the side of the mean; not for
    float64, whose steps are left out). For a strategy without a random order the variances of its roundings stand
    for its unknown error (`fpsim.bounds`), so that the prediction is one for many rows of such data rather than for
    these. Runs of one strategy see one order for all classes, as the outputs of a tile do, so that logits with
    similar weights vary together: the difference of the k-th and the next logit is given the variance that their
    correlation over the runs makes, and of equal columns of weights the first always ranks first. Other
    correlations are left out.

    Examples
    --------
    >>> import numpy as np, fpsim
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal(512).astype(np.float32)
    >>> w = rng.standard_normal((512, 3)).astype(np.float32)
    >>> w[:, 1] = w[::-1, 0]
    >>> found = fpsim.decision(x, w, strategy="shuffle", runs=200)
    >>> found.decided, float(found.flip)
    (array([0]), 0.0)
    >>> close = fpsim.decision(np.float32([3.0, 2.999999, 1.0]), std=1e-6)
    >>> bool(abs(close.flip - close.predicted_flip) < 0.05), f"{float(close.predicted_flip):.2f}"
    (True, '0.23')
    """
    if k < 1:
        message = f"k must be a whole number of at least 1, not {k!r}"
        raise InputError(message)
    if runs < 1:
        message = f"runs must be a whole number of at least 1, not {runs!r}"
        raise InputError(message)
    if (std is None) == (strategy is None):
        message = "give strategy= with a hidden state and weights, or std= with logits"
        raise InputError(message)
    generator = _generator(rng)
    if std is not None:
        exact, sides, single = of_logits(inputs, std, runs, generator)
        copies: list[list[int]] = [[]]
        names: tuple[str, ...] = ()
    else:
        given: tuple[Any, ...] = strategy if isinstance(strategy, tuple) else (strategy,)
        if not 1 <= len(given) <= 2:
            message = f"strategy= takes one strategy or two to compare, not {len(given)}"
            raise InputError(message)
        chosen = [as_strategy(one) for one in given]
        exact, sides, single = of_products(inputs, chosen, runs, generator)
        copies, names = [copies_of(inputs)], tuple(map(str, chosen))
    if np.isnan(exact).any() or any(np.isnan(side.samples).any() for side in sides):
        row = int(np.argmax(np.isnan(exact).any(axis=-1)))
        message = f"a logit of row {row} is NaN, which nothing can be decided on"
        raise InputError(message)
    if threshold is None:
        if k > exact.shape[-1]:
            message = f"there are {exact.shape[-1]} classes, of which k={k} cannot lead"
            raise InputError(message)
        parts = _of_ranks(exact, sides, k, copies[0])
    else:
        if k != 1:
            message = "k= is for ranks; leave it out with threshold="
            raise InputError(message)
        parts = _of_threshold(exact, sides, float(threshold))
    noise = np.stack([np.where(np.isfinite(law.center), law.std, 0.0) for law in sides[0].laws])
    log_noise = _log_probability_noise(exact, noise)
    kind = "threshold" if threshold is not None else ("argmax" if k == 1 else f"top {k}")
    shown = {name: value[0] if single else value for name, value in parts.items()}
    return Decision(
        kind=kind, sides=names, runs=runs, noise=noise[0] if single else noise,
        log_probability_noise=log_noise[0] if single else log_noise, **shown,
    )  # fmt: skip


def _of_ranks(exact: _Doubles, sides: list[Side], k: int, copies: list[int]) -> dict[str, _Array]:
    decided = ranked(exact, k)
    rows, classes = exact.shape
    flips, differs = np.zeros(rows), np.zeros(rows)
    margin, correlation = np.full(rows, math.inf), np.full(rows, math.nan)
    if k == classes:
        return _parts(decided, margin, correlation, _counted(sides, exact, k), (flips, differs))
    order = np.argsort(-exact, axis=-1, kind="stable")[:, k - 1 : k + 1]
    for row in range(rows):
        pair = order[row]
        with np.errstate(invalid="ignore"):
            margin[row] = np.nan_to_num(exact[row, pair[0]] - exact[row, pair[1]], nan=0.0, posinf=math.inf)
        if not sides[0].fixed:
            correlation[row] = sides[0].correlation(row, pair)
        chances = [set_chances(side.law(row, pair), decided[row].tolist(), copies if k == 1 else ()) for side in sides]
        nominal = frozenset(decided[row].tolist())
        flips[row] = _other(chances[0], nominal)
        if len(sides) == 2 or not sides[0].fixed:
            differs[row] = _two_differ(chances[0], chances[-1])
    return _parts(decided, margin, correlation, _counted(sides, exact, k), (flips, differs))


def _other(chances: dict[frozenset[int], float], nominal: frozenset[int]) -> float:
    missing = 1.0 - sum(chances.values())
    others = sum(chance for one, chance in chances.items() if one != nominal)
    return min(1.0, others + (missing if missing > 1e-9 else 0.0))


def _two_differ(one: dict[frozenset[int], float], other: dict[frozenset[int], float]) -> float:
    """Return the probability of different sets, precise where it is small."""
    total = sum(one.values())
    apart = sum(chance * sum(p for name, p in other.items() if name != own) for own, chance in one.items())
    missing = max(0.0, 1.0 - total * sum(other.values()))
    return min(1.0, apart + (missing if missing > 1e-9 else 0.0))


def _counted(sides: list[Side], exact: _Doubles, k: int) -> tuple[_Doubles, _Doubles]:
    """Return the shares of runs that decide otherwise, and of pairs of runs that differ, for each row."""
    nominal = ranked(exact, k)
    chosen = [np.stack([ranked(run, k) for run in side.samples]) for side in sides]
    flip = (chosen[0] != nominal).any(axis=-1).mean(axis=0)
    differ = np.zeros(len(exact))
    for row in range(len(exact)):
        differ[row] = _pairs([one[:, row] for one in chosen])
    return np.asarray(flip, np.float64), differ


def _pairs(sides: list[_Array]) -> float:
    """Return the share of pairs of runs with different rows: within one side, or one of each side."""
    _, numbers = np.unique(np.concatenate(sides), axis=0, return_inverse=True)
    numbers = numbers.reshape(-1)
    counts = [np.bincount(part, minlength=numbers.max() + 1) for part in np.split(numbers, [len(sides[0])])]
    runs = len(sides[0])
    if len(sides) == 2:
        return 1.0 - float(counts[0] @ counts[1]) / (runs * len(sides[1]))
    return 1.0 - float((counts[0] * (counts[0] - 1)).sum()) / (runs * (runs - 1)) if runs > 1 else 0.0


def _of_threshold(exact: _Doubles, sides: list[Side], threshold: float) -> dict[str, _Array]:
    if math.isnan(threshold):
        message = "threshold must not be NaN"
        raise InputError(message)
    decided = exact >= threshold
    at = np.array([threshold])
    reached = [np.zeros((2, *exact.shape)) for _ in sides]  # probabilities of reaching it, and of not
    for side, chances in zip(sides, reached, strict=True):
        for row, law in enumerate(side.laws):
            for i in range(exact.shape[1]):
                if not np.isfinite(law.center[i]):
                    chances[:, row, i] = decided[row, i], not decided[row, i]
                    continue
                chances[0, row, i] = law.above(i, at, equal=True)[0]
                chances[1, row, i] = law.below(i, at, equal=False)[0]
    flips = np.where(decided, reached[0][1], reached[0][0])
    differs = reached[0][0] * reached[-1][1] + reached[0][1] * reached[-1][0]
    if len(sides) == 1 and sides[0].fixed:
        differs = np.zeros(exact.shape)
    seen = [side.samples >= threshold for side in sides]
    share = [one.mean(axis=0) for one in seen]
    if len(sides) == 2:
        differ = share[0] * (1 - share[1]) + share[1] * (1 - share[0])
    else:
        runs = len(seen[0])
        differ = 2 * share[0] * (1 - share[0]) * runs / max(runs - 1, 1)
    with np.errstate(invalid="ignore"):
        margin = np.nan_to_num(np.abs(exact - threshold), nan=0.0, posinf=math.inf)
    counted = (np.where(decided, 1 - share[0], share[0]), differ)
    return _parts(decided, margin, np.full(exact.shape, math.nan), counted, (flips, differs))


def _parts(
    decided: _Array, margin: _Doubles, correlation: _Doubles, counted: tuple[_Doubles, _Doubles],
    predicted: tuple[_Doubles, _Doubles],
) -> dict[str, _Array]:  # fmt: skip
    flip, differ = counted
    return {
        "decided": decided, "margin": margin, "correlation": correlation, "flip": flip, "disagree": differ,
        "predicted_flip": predicted[0], "predicted_disagree": predicted[1],
    }  # fmt: skip


def _log_probability_noise(exact: _Doubles, noise: _Doubles) -> _Doubles:
    """Return the standard deviation of log(softmax): of d_j - sum_i p_i d_i for independent d."""
    with np.errstate(invalid="ignore"):
        shares = np.exp(np.nan_to_num(exact - exact.max(axis=-1, keepdims=True), nan=0.0))
    shares /= shares.sum(axis=-1, keepdims=True)
    whole = ((shares * noise) ** 2).sum(axis=-1, keepdims=True)
    own = (1 - 2 * shares) * noise**2
    return np.asarray(np.sqrt(np.maximum(own + whole, 0.0)))


def _rms(values: _Doubles) -> float:
    return float(np.sqrt((values**2).mean()))


def _plain(values: _Doubles) -> Any:
    return plain_number(float(values)) if values.ndim == 0 else [_plain(one) for one in values]
