"""Whether runs that were observed can come from reordering alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fpsim._arrays import as_floats
from fpsim._reordering import expected_distinct
from fpsim.errors import InputError

if TYPE_CHECKING:
    from fpsim.spreads import Spread, SpreadTest

Doubles = NDArray[np.float64]


def tested(predicted: Spread, observed: Any, error_rate: float, /) -> SpreadTest:
    """Return what `Spread.test` says."""
    from fpsim.spreads import SpreadTest

    values, form = as_floats(observed, name="observed")
    if values.shape[1:] != predicted.results.shape[1:] or not len(values):
        message = (
            f"observed must hold runs of shape {predicted.results.shape[1:]}, the first axis being the runs;"
            f" its shape is {values.shape}"
        )
        raise InputError(message)
    if not 0 < error_rate < 1:
        message = f"error_rate must be between 0 and 1, not {error_rate!r}"
        raise InputError(message)
    runs = len(values)
    flat = values.reshape(runs, -1).astype(np.float64)
    mean, std = predicted.mean.reshape(-1), predicted.std.reshape(-1)
    if predicted.predicted_std is not None and predicted.predicted_mean is not None:
        std = np.maximum(std, predicted.predicted_std.reshape(-1))
    unit = form.ulp(mean)
    distance = np.abs(flat - mean)
    # A result stands on a grid of steps `unit`, so that a small spread is not smooth.
    deviation = np.maximum(distance - unit, 0.0) / np.maximum(std, unit / 4)
    worst = np.unravel_index(int(np.argmax(deviation)), deviation.shape)
    output = int(worst[1])
    outside = _outside(predicted, flat)
    limit = math.sqrt(2 * math.log(2 * deviation.size / error_rate))
    parts: dict[str, Any] = {
        "error_rate": error_rate,
        "largest_deviation": float(deviation[worst]),
        "outside": int(outside.any(axis=1).sum()),
        "observed_std": float(flat[:, output].std()),
        "predicted_std": float(std[output]),
        "observed_distinct": float(np.unique(flat[:, output]).size),
        "expected_distinct": expected_distinct(float(std[output]), float(unit[output]), runs),
    }
    if not np.isfinite(flat).all():
        return SpreadTest("unknown", "some observed runs are not finite", **parts)
    if outside.any():
        run, place = np.unravel_index(int(np.argmax(np.where(outside, distance, -1.0))), outside.shape)
        lost = _lost(predicted, flat[run, place], int(place), float(std[place]), limit)
        reason = f"{parts['outside']} of {runs} runs have a result that no order of the same terms gives"
        reason += f"; {_named(lost)} would give the outermost" if lost else ""
        return SpreadTest(
            "impossible", f"{reason}. Terms were lost, doubled or changed: look for a race", **parts, lost=lost
        )
    if parts["largest_deviation"] > limit:
        lost = _lost(predicted, flat[worst], output, float(std[output]), limit)
        reason = (
            f"a run lies {parts['largest_deviation']:.3g} standard deviations out; of {deviation.size} results in"
            f" uniformly random order none lies beyond {limit:.3g}, but once in {1 / error_rate:.3g} tests"
        )
        reason += f"; {_named(lost)} would explain it" if lost else ""
        return SpreadTest("unlikely", reason, **parts, lost=lost)
    reason = (
        f"all {runs} runs lie within {limit:.3g} standard deviations ({parts['predicted_std']:.3g}), where a random order"
        f" puts them; the outermost at {parts['largest_deviation']:.3g}"
    )
    return SpreadTest("reordering", reason, **parts)


def _outside(predicted: Spread, flat: Doubles) -> NDArray[np.bool]:
    """Return which results no order gives."""
    if predicted.center is None or predicted.worst_case is None:
        return np.zeros(flat.shape, np.bool)
    return np.asarray(np.abs(flat - predicted.center.reshape(-1)) > predicted.worst_case.reshape(-1))


def _lost(predicted: Spread, value: float, output: int, std: float, limit: float) -> tuple[int, ...]:
    """Return the terms whose loss, each alone, explains a result."""
    if predicted.partials is None:
        return ()
    terms = predicted.partials[:, output].astype(np.float64)
    missing = float(predicted.mean.reshape(-1)[output]) - value
    reach = limit * max(std, abs(missing) * 1e-6)
    far = np.abs(terms - missing)
    order = np.argsort(far, kind="stable")[:10]
    explains = [int(i) for i in order if far[i] <= reach and abs(terms[i]) > 2 * reach]
    return tuple(explains)


def _named(lost: tuple[int, ...]) -> str:
    if len(lost) == 1:
        return f"the loss of term {lost[0]} alone"
    return f"the loss of one term ({', '.join(map(str, lost[:-1]))} or {lost[-1]})"
