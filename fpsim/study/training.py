"""How far training runs are apart that differ in the order of additions alone, beside runs of other seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim._prediction_text import plain_number
from fpsim.errors import InputError

SCHEMA: Final = "fpsim.divergence/1"
_Doubles = NDArray[np.float64]
_SHOWN = 12


@dataclass(frozen=True, slots=True, eq=False)
class Divergence:
    """How far runs are apart at every recorded step; see `divergence`.

    Attributes
    ----------
    repeats, seeds : int
        How many runs had one seed and another order each, and how many had another seed each.
    mean : float64 array of shape (steps, values)
        Of the runs with other orders.
    orders, others : float64 array of shape (steps,)
        Standard deviation over the runs with other orders, and over those with other seeds; the root mean square over
        the values of a step.
    distinct : int array of shape (steps,)
        How many of the runs with other orders had different bits.
    """

    repeats: int
    seeds: int
    mean: _Doubles
    orders: _Doubles
    others: _Doubles
    distinct: NDArray[np.int64]

    @property
    def ratio(self) -> _Doubles:
        """How many times farther apart runs of other seeds are; infinite where orders change nothing."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.orders > 0, self.others / self.orders, np.inf)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        floats = {name: [plain_number(v) for v in getattr(self, name)] for name in ("orders", "others", "ratio")}
        head = {"schema": SCHEMA, "repeats": self.repeats, "seeds": self.seeds}
        return {**head, **floats, "distinct": self.distinct.tolist()}

    def __str__(self) -> str:
        steps = len(self.orders)
        shown = sorted({round(step) for step in np.geomspace(1, steps, min(steps, _SHOWN))})
        lines = [
            f"{self.repeats} orders of one seed, {self.seeds} seeds",
            "step  distinct  std, orders  std, seeds    ratio",
        ]
        for step in shown:
            i = step - 1
            cells = f"{self.orders[i]:11.2e}  {self.others[i]:10.2e}  {self.ratio[i]:7.2g}"
            lines.append(f"{step:4}  {self.distinct[i]:8}  {cells}")
        return "\n".join(lines)


def divergence(train: Callable[[int, int], Any], /, *, repeats: int = 8, seeds: int = 8) -> Divergence:
    """Train many times, and say how far apart other orders of additions take the runs, and how far other seeds do.

    Parameters
    ----------
    train : callable
        ``train(seed, order)`` returns an array of shape (steps,), such as the losses, or (steps, values), such as some
        weights. The seed determines the start and the batches; the order, a whole number, changes nothing but the order
        of additions, as in ``fpsim.matmul(x.T, d, f"shuffle({order})")``.
    repeats : int
        Runs with seed 0 and the orders 0, 1, ..., at least 2.
    seeds : int
        Runs with the seeds 0, 1, ... and order 0, at least 2.

    Returns
    -------
    Divergence

    Raises
    ------
    InputError
        There are too few runs, or `train` returns something else, or not finite numbers.

    Examples
    --------
    >>> import numpy as np, fpsim
    >>> def train(seed, order):
    ...     rng = np.random.default_rng(seed)
    ...     target, w, losses = np.ones(4, np.float32), rng.random(4, np.float32), []
    ...     for step in range(20):
    ...         x = rng.random((64, 4), np.float32)
    ...         error = x @ w - x @ target
    ...         w = w - np.float32(0.01) * fpsim.matmul(x.T, error, f"shuffle({1000 * order + step})")
    ...         losses.append(float(error @ error))
    ...     return losses
    >>> found = fpsim.study.divergence(train, repeats=3, seeds=3)
    >>> bool((found.orders[5:] > 0).all() and (found.ratio[5:] > 1000).all())
    True
    """
    for name, count in (("repeats", repeats), ("seeds", seeds)):
        if count < 2:
            message = f"{name} must be a whole number of at least 2, not {count!r}"
            raise InputError(message)
    first = _trace(train(0, 0))
    orders = np.stack([first, *(_like(first, train(0, order)) for order in range(1, repeats))])
    others = np.stack([first, *(_like(first, train(seed, 0)) for seed in range(1, seeds))])
    distinct = [len({run[step].tobytes() for run in orders}) for step in range(len(first))]
    return Divergence(
        repeats, seeds, orders.mean(axis=0), _apart(orders), _apart(others), np.array(distinct, np.int64)
    )  # fmt: skip


def _trace(values: Any) -> _Doubles:
    trace = np.asarray(values, np.float64)
    if trace.ndim not in (1, 2) or 0 in trace.shape or not np.isfinite(trace).all():
        message = f"train must return finite numbers of shape (steps,) or (steps, values), not of shape {trace.shape}"
        raise InputError(message)
    return trace.reshape(len(trace), -1)


def _like(first: _Doubles, values: Any) -> _Doubles:
    trace = _trace(values)
    if trace.shape != first.shape:
        message = f"train returned {first.shape} numbers for one run and {trace.shape} for another"
        raise InputError(message)
    return trace


def _apart(runs: _Doubles) -> _Doubles:
    return np.asarray(np.sqrt(runs.var(axis=0, ddof=1).mean(axis=-1)))
