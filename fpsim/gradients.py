"""Gradient checks: the error of a finite difference by its step, where the function is computed under a strategy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim._prediction_text import plain_number
from fpsim.errors import InputError
from fpsim.formats import FLOAT32, _generator
from fpsim.orders import Order
from fpsim.strategies import Strategy, strategy as as_strategy

SCHEMA: Final = "fpsim.gradient-check/1"
DIVISORS: Final = ("nominal", "actual")
_EXACTLY: Final = "serial+acc(float64)"
_DRAWS = 64  # points at which the noise of the function is measured
_NEAR = 2.0**-10  # their distance, relative to x
_THIRD = 2.0**-5  # step of the third derivative, relative to x
_Doubles = NDArray[np.float64]
Function = Callable[[NDArray[Any], str], Any]


@dataclass(frozen=True, slots=True, eq=False)
class GradientCheck:
    """The error of central differences for each strategy and step; see `gradient_check`.

    Errors are root mean squares over the elements that were checked, relative to the largest gradient.

    Attributes
    ----------
    strategies : tuple of str
        The strategies.
    steps : float64 array of shape (steps,)
        The steps h of (f(x + h) - f(x - h)) / 2h.
    observed : float64 array of shape (strategies, steps)
        The error of emulated differences.
    predicted : float64 array of shape (strategies, steps)
        The error that noise, truncation and the rounding of x + h lead one to expect.
    noise : float64 array of shape (strategies,)
        Standard deviation of the rounding error of f, from points near x.
    best_steps : float64 array of shape (strategies,)
        The step with the smallest predicted error, not limited to `steps`; infinite where f has no third derivative.
    scale : float
        The largest gradient, in absolute value.
    """

    strategies: tuple[str, ...]
    steps: _Doubles
    observed: _Doubles
    predicted: _Doubles
    noise: _Doubles
    best_steps: _Doubles
    scale: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "schema": SCHEMA,
            "steps": self.steps.tolist(),
            "scale": self.scale,
            "strategies": [
                {
                    "strategy": text,
                    "noise": plain_number(self.noise[i]),
                    "best_step": plain_number(self.best_steps[i]),
                    "observed": [plain_number(v) for v in self.observed[i]],
                    "predicted": [plain_number(v) for v in self.predicted[i]],
                }
                for i, text in enumerate(self.strategies)
            ],
        }

    def __str__(self) -> str:
        width = max(map(len, self.strategies), default=0)
        lines = ["relative error of central differences, emulated (predicted)"]
        lines.append(f"{'step':{width}}  " + "  ".join(f"{step:^17.3g}" for step in self.steps))
        for i, text in enumerate(self.strategies):
            cells = [f"{o:7.1e} ({p:7.1e})" for o, p in zip(self.observed[i], self.predicted[i], strict=True)]
            lines.append(f"{text:{width}}  " + "  ".join(cells))
        for i, text in enumerate(self.strategies):
            best = "the largest" if math.isinf(self.best_steps[i]) else f"{self.best_steps[i]:.2g}"
            lines.append(f"{text}: noise of the function {self.noise[i]:.2g}, best step {best}")
        return "\n".join(lines)


def gradient_check(
    function: Function,
    x: Any,
    /,
    *,
    strategies: Sequence[str | Strategy | Order],
    gradient: Any = None,
    steps: Sequence[float] | None = None,
    elements: int = 16,
    divide_by: str = "nominal",
    rng: np.random.Generator | np.random.SeedSequence | int | None = 0,
) -> GradientCheck:
    """Say how large the error of a finite difference is for each step, and which step is best.

    Parameters
    ----------
    function : callable
        ``function(x, strategy)`` computes a number from x, in float32 or, with float64 arrays and a strategy that
        accumulates in float64, in float64. Its sums and products are those of fpsim under the strategy.
    x : array_like of float32
        Where the gradient is checked. Any shape.
    strategies : sequence of str or Strategy
        Those to compare, such as one of a CPU and one of a GPU.
    gradient : array_like, optional
        The gradient at x; without it central differences of `function` in float64 are taken.
    steps : sequence of float, optional
        By default powers of four from 2**-20 to 1.
    elements : int
        How many elements of x are checked, drawn at random.
    divide_by : {"nominal", "actual"}
        A check divides by 2h as it was asked for, as `torch.autograd.gradcheck` does, or by the difference of the two
        float32 numbers that x + h and x - h become.
    rng : Generator, SeedSequence or int, optional
        Source of the elements and of the points near x.

    Returns
    -------
    GradientCheck

    Raises
    ------
    InputError
        The function does not return one number, or an argument is out of range.

    Notes
    -----
    The difference of two results with independent rounding errors of standard deviation s has the error
    s / (sqrt(2) h); truncation adds h**2 f''' / 6; and x + h is rounded, which a nominal divisor does not see: an error
    of g ulp(x) / (sqrt(24) h), see Nocedal & Wright, Numerical Optimization (2006), section 8.1, and Press et al., Numerical
    Recipes (2007), section 5.7. The best step of the first two is (3 s / f''')**(1/3).

    Examples
    --------
    >>> import numpy as np, fpsim
    >>> x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    >>> def energy(x, strategy):
    ...     return fpsim.dot(x, x, strategy)
    >>> found = fpsim.gradient_check(energy, x, strategies=["serial", "pairwise+fma"], gradient=2 * x)
    >>> bool(found.noise[0] > 2 * found.noise[1])
    True
    """
    values = np.asarray(x, np.float32)
    if values.size == 0 or not np.isfinite(values).all():
        message = "x must hold at least one number, all finite"
        raise InputError(message)
    if divide_by not in DIVISORS:
        message = f"divide_by={divide_by!r} is not one of {', '.join(DIVISORS)}"
        raise InputError(message)
    chosen = tuple(str(as_strategy(one)) for one in strategies)
    taken = np.array([2.0**e for e in range(-20, 1, 4)] if steps is None else steps, np.float64)
    if not chosen or not taken.size or not (np.isfinite(taken) & (taken > 0)).all():
        message = "give at least one strategy, and steps that are positive numbers"
        raise InputError(message)
    generator = _generator(rng)
    places = generator.choice(values.size, min(max(int(elements), 1), values.size), replace=False)
    size = float(np.sqrt(np.mean(values.astype(np.float64) ** 2))) or 1.0
    exact = _derivatives(function, values, places, size) if gradient is None else None
    slopes = exact[0] if exact is not None else np.asarray(gradient, np.float64).reshape(-1)[places]
    third = _derivatives(function, values, places, size)[1] if exact is None else exact[1]
    scale = float(np.abs(slopes).max()) or 1.0
    observed = np.empty((len(chosen), taken.size))
    predicted = np.empty_like(observed)
    noise = np.empty(len(chosen))
    ulps = FLOAT32.ulp(values.reshape(-1)[places].astype(np.float64))
    for i, text in enumerate(chosen):
        noise[i] = _noise(function, values, text, generator)
        for j, step in enumerate(taken):
            errors = [_difference(function, values, place, step, text, divide_by) for place in places] - slopes
            observed[i, j] = math.sqrt(float(np.mean(errors**2))) / scale
            unseen = float(np.mean((slopes * ulps) ** 2)) / 24 if divide_by == "nominal" else 0.0
            rounding = (noise[i] ** 2 / 2 + unseen) / step**2
            predicted[i, j] = math.sqrt(rounding + (step**2 * third / 6) ** 2) / scale
    best = np.cbrt(3 * noise / third) if third > 0 else np.full(len(chosen), math.inf)
    return GradientCheck(chosen, taken, observed, predicted, noise, best, scale)


def _value(function: Function, x: NDArray[Any], text: str) -> float:
    result = np.asarray(function(x, text))
    if result.size != 1:
        message = f"the function must return one number, not an array of shape {result.shape}"
        raise InputError(message)
    return float(result.reshape(()))


def _moved(x: NDArray[Any], place: int, by: float) -> NDArray[Any]:
    out = x.copy()
    out.reshape(-1)[place] += x.dtype.type(by)
    return out


def _difference(function: Function, x: NDArray[Any], place: int, step: float, text: str, divide_by: str) -> float:
    above, below = _moved(x, place, step), _moved(x, place, -step)
    width = 2 * step
    if divide_by == "actual":
        width = float(above.reshape(-1)[place].astype(np.float64) - below.reshape(-1)[place])
    return (_value(function, above, text) - _value(function, below, text)) / width if width else 0.0


def _derivatives(function: Function, x: NDArray[Any], places: Any, size: float) -> tuple[_Doubles, float]:
    """Return first derivatives, and the root mean square of third ones, from central differences in float64."""
    wide = x.astype(np.float64)
    small, large = size * 2.0**-17, size * _THIRD
    slopes, thirds, floors = [], [], []
    for place in places:

        def at(by: float, place: int = place) -> float:
            return _value(function, _moved(wide, place, by), _EXACTLY)

        slopes.append((at(small) - at(-small)) / (2 * small))
        ends = at(2 * large), at(large), at(-large), at(-2 * large)
        thirds.append((ends[0] - 2 * ends[1] + 2 * ends[2] - ends[3]) / (2 * large**3))
        floors.append(max(map(abs, ends)) * 2.0**-48 / large**3)  # what rounding alone makes of it
    third = math.sqrt(float(np.mean(np.square(thirds))))
    return np.array(slopes), third if third > max(floors) else 0.0


def _noise(function: Function, x: NDArray[Any], text: str, rng: np.random.Generator) -> float:
    """Return the standard deviation of the rounding error of the function at points near x."""
    errors = []
    for _ in range(_DRAWS):
        near = (x * (1 + _NEAR * rng.standard_normal(x.shape))).astype(np.float32)
        errors.append(_value(function, near, text) - _value(function, near.astype(np.float64), _EXACTLY))
    return float(np.std(errors))
