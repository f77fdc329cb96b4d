"""The logits that decisions are made on: what they are from run to run, in closed form and in emulated runs."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim import emulation, exact as exactly
from fpsim._arrays import as_floats
from fpsim._arrivals import random_places
from fpsim._decision_law import LogitLaw
from fpsim.errors import InputError
from fpsim.formats import FLOAT64, Format, round_to
from fpsim.strategies import Strategy

_Array = NDArray[Any]
_Doubles = NDArray[np.float64]
_FEWEST: Final = 100  # runs that a correlation is taken from
_MOST_SAMPLES: Final = 2**24  # logits that are drawn at a time


@dataclass(frozen=True, eq=False)
class Side:
    """What one strategy gives: a law for every row, and runs of shape (runs, rows, classes)."""

    laws: list[LogitLaw]
    samples: _Array
    fixed: bool  # every run gives the same

    def correlation(self, row: int, pair: NDArray[np.int64], /) -> float:
        """Return the correlation of two logits over the runs; NaN where one of them does not vary."""
        a, b = self.samples[:, row, pair[0]], self.samples[:, row, pair[1]]
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            return math.nan
        one, other = a - a.mean(), b - b.mean()
        size = math.sqrt(float((one**2).sum()) * float((other**2).sum()))
        return float((one * other).sum()) / size if size else math.nan

    def law(self, row: int, pair: NDArray[np.int64], /) -> LogitLaw:
        """Return the law of a row in which the difference of two logits has the variance that their correlation gives."""
        law, correlation = self.laws[row], self.correlation(row, pair)
        if len(self.samples) < _FEWEST or math.isnan(correlation):
            return law
        std = law.std.copy()
        whole = float((std[pair] ** 2).sum())
        if whole:
            std[pair] *= math.sqrt(max(1 - 2 * correlation * float(std[pair].prod()) / whole, 0.0))
        return dataclasses.replace(law, std=std)


def of_logits(
    inputs: tuple[Any, ...], std: Any, runs: int, rng: np.random.Generator
) -> tuple[_Doubles, list[Side], bool]:
    if len(inputs) != 1:
        message = f"std= goes with logits alone, not with {len(inputs)} arrays"
        raise InputError(message)
    values, form = as_floats(inputs[0], name="logits")
    logits = _rows(values.astype(np.float64), "logits")
    deviation = np.asarray(std, np.float64)
    if not (np.isfinite(deviation) & (deviation >= 0)).all() or deviation.shape not in ((), values.shape):
        message = f"std must be finite and at least 0, one number or of the logits' shape {values.shape}"
        raise InputError(message)
    deviation = np.broadcast_to(deviation, values.shape).reshape(logits.shape)
    unit = _units(logits, form)
    zero = np.zeros(logits.shape[1])
    laws = [
        LogitLaw(logits[row], np.where(np.isfinite(logits[row]), deviation[row], 0.0), zero, zero, unit[row])
        for row in range(len(logits))
    ]
    if runs * logits.size > _MOST_SAMPLES:
        message = f"{runs} runs of {logits.size} logits are too many to draw; ask for fewer runs or rows"
        raise InputError(message)
    drawn = logits + deviation * rng.standard_normal((runs, *logits.shape))
    samples = drawn if form == FLOAT64 else np.asarray(round_to(drawn, form), np.float64)
    return logits, [Side(laws, samples, fixed=not deviation.any())], values.ndim == 1


def of_products(
    inputs: tuple[Any, ...], chosen: list[Strategy], runs: int, rng: np.random.Generator
) -> tuple[_Doubles, list[Side], bool]:
    if len(inputs) not in (2, 3):
        message = f"strategy= goes with a hidden state, weights and, optionally, a bias, not with {len(inputs)} arrays"
        raise InputError(message)
    x, weights = as_floats(inputs[0], name="x")[0], as_floats(inputs[1], name="weights")[0]
    if x.ndim not in (1, 2) or weights.ndim != 2 or x.shape[-1] != weights.shape[0] or 0 in (*x.shape, *weights.shape):
        message = f"x must have shape (n,) or (rows, n) and weights (n, classes), not {x.shape} and {weights.shape}"
        raise InputError(message)
    bias = np.zeros(weights.shape[1]) if len(inputs) == 2 else np.asarray(as_floats(inputs[2], name="bias")[0], float)
    if bias.shape != weights.shape[1:]:
        message = f"bias must have shape {weights.shape[1:]}, not {bias.shape}"
        raise InputError(message)
    exact = np.atleast_2d(np.asarray(exactly.matmul(np.atleast_2d(x), weights).round("float64"), np.float64)) + bias
    added = len(inputs) == 3
    sides = [_side(one, np.atleast_2d(x), weights, (bias, added), runs, rng, exact) for one in chosen]
    return exact, sides, x.ndim == 1


def _side(
    chosen: Strategy, x: _Array, weights: _Array, bias: tuple[_Doubles, bool], runs: int, rng: np.random.Generator,
    exact: _Doubles,
) -> Side:  # fmt: skip
    """Return the runs of a product and the laws of its outputs, before the bias is added to them."""
    data = emulation.operand_of(x, "x", chosen)[1]
    form = chosen.arithmetic(data).result_format
    random = bool(random_places(chosen.order))
    if random:
        from fpsim.spreads import spread

        s = spread("matmul", x, weights, strategy=chosen, runs=runs, rng=rng)
        results = s.results.astype(np.float64)
        mean, std = s.mean, s.std
        if s.predicted_mean is not None and s.predicted_std is not None:
            mean, std = s.predicted_mean, s.predicted_std
    else:
        from fpsim import bounds

        results = np.asarray(emulation.matmul(x, weights, chosen), np.float64)[None]
        account = bounds.case("matmul", chosen, x, weights).account
        if account is None:
            message = f"the roundings of {chosen} cannot be told apart; give std= and logits"
            raise InputError(message)
        mean, std = exact - bias[0], np.sqrt(account.variance).reshape(exact.shape)
    grid = _units(np.asarray(mean), form)
    unit = np.zeros(exact.shape)
    if bias[1]:
        sums = results + bias[0]
        results = sums if form == FLOAT64 else np.asarray(round_to(sums, form), np.float64)
        unit = _units(exact, form)
    laws = [
        LogitLaw(mean[row], np.where(np.isfinite(mean[row]), std[row], 0.0), grid[row], bias[0], unit[row])
        for row in range(len(exact))
    ]
    return Side(laws, results, fixed=not random)


def _rows(values: _Doubles, name: str) -> _Doubles:
    if values.ndim not in (1, 2) or 0 in values.shape:
        message = f"{name} must have shape (classes,) or (rows, classes), and at least one class, not {values.shape}"
        raise InputError(message)
    return np.atleast_2d(values)


def _units(values: _Doubles, form: Format) -> _Doubles:
    """Return units in the last place; 0 for float64, whose steps the float64 arithmetic of laws does not resolve."""
    if form == FLOAT64:
        return np.zeros(values.shape)
    finite = np.isfinite(values)
    return np.where(finite, form.ulp(np.where(finite, values, 0.0)), 0.0)


def copies_of(inputs: tuple[Any, ...]) -> list[int]:
    """Return the classes whose weights and bias are, to the bit, those of an earlier class."""
    columns = np.asarray(as_floats(inputs[1])[0]).T
    if len(inputs) == 3:
        columns = np.concatenate([columns, np.asarray(as_floats(inputs[2])[0])[:, None]], axis=1)
    seen: set[bytes] = set()
    copies = []
    for number, column in enumerate(np.ascontiguousarray(columns)):
        key = column.tobytes()
        if key in seen:
            copies.append(number)
        seen.add(key)
    return copies
