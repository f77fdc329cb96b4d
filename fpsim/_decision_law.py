"""Laws of logits that vary from run to run, and the chances of decisions under them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fpsim._reordering import normal_cdf

Doubles = NDArray[np.float64]
_REACH = 9.0  # standard deviations within which a logit lies
_CELLS = 2048
_SWAPS = 400  # pairs of contenders that are looked at
_SIDES = (-1.0, 1.0)


@dataclass(frozen=True, slots=True)
class LogitLaw:
    """Independent normal logits of one row, on the numbers that a format has.

    A logit is a normal number, taken to one of its two neighbours among the multiples of `grid` so that the mean is
    kept; `bias` is added to it, and the sum is rounded to nearest even among the multiples of `unit`. A `grid` or
    `unit` of 0 leaves the step out.

    Attributes
    ----------
    mean, std, grid, bias, unit : float64 array of shape (classes,)
        Of each logit; mean and std before the bias is added.
    """

    mean: Doubles
    std: Doubles
    grid: Doubles
    bias: Doubles
    unit: Doubles

    @property
    def center(self) -> Doubles:
        """The mean of each logit."""
        return self.mean + self.bias

    @property
    def reach(self) -> Doubles:
        """How far a logit may be from its mean."""
        return np.asarray(_REACH * self.std + 2 * np.maximum(self.grid, self.unit))

    def below(self, i: int, v: Doubles, /, *, equal: bool) -> Doubles:
        """Return the probability that logit i is less than each number v, or equal to it."""
        return self._side(i, v, equal=equal, side=0)

    def above(self, i: int, v: Doubles, /, *, equal: bool) -> Doubles:
        """Return the probability that logit i is greater than each number v, or equal to it; precise in the tail."""
        return self._side(i, v, equal=not equal, side=1)

    def _side(self, i: int, v: Doubles, *, equal: bool, side: int) -> Doubles:
        unit, grid = float(self.unit[i]), float(self.grid[i])
        limit = v - self.bias[i]
        if unit:
            steps = np.floor(v / unit) if equal else np.ceil(v / unit) - 1  # the largest number that counts
            limit = steps * unit + unit / 2 - self.bias[i]
            equal_to = steps % 2 == 0  # halfway cases go down to an even number
        else:
            equal_to = np.full(v.shape, equal)
        inner = math.sqrt(max(float(self.std[i]) ** 2 - grid**2 / 6, 0.0)) if grid else float(self.std[i])
        if not grid:
            return _normal_side(limit - self.mean[i], inner, equal_to, side)
        steps = np.where(equal_to, np.floor(limit / grid), np.ceil(limit / grid) - 1)
        if self.std[i] == 0.0:
            return _normal_side(steps * grid - np.rint(self.mean[i] / grid) * grid, 0.0, np.ones(v.shape, bool), side)
        low = steps * grid - self.mean[i]
        sign = _SIDES[1 - side]
        return np.clip(sign * (_shortfall(sign * (low + grid), inner) - _shortfall(sign * low, inner)) / grid, 0, 1)

    def masses(self, i: int, /) -> tuple[Doubles, Doubles, bool]:
        """Return values of logit i, their probabilities, and whether other logits can be equal to them.

        Where a logit has too many values they are taken together, and equality is left out.
        """
        unit = float(self.unit[i] or self.grid[i])
        reach = _REACH * float(self.std[i]) + 2 * unit
        if unit and 2 * reach / unit <= _CELLS:
            first, last = np.floor((self.center[i] - reach) / unit), np.ceil((self.center[i] + reach) / unit)
            values = np.arange(first, last + 1) * unit
            right = self.above(i, values, equal=True) - self.above(i, values, equal=False)
            left = self.below(i, values, equal=True) - self.below(i, values, equal=False)
            return values, np.where(values > self.center[i], right, left), True
        if reach == 0.0:
            return self.center[i : i + 1], np.ones(1), True
        edges = self.center[i] + np.linspace(-reach, reach, _CELLS + 1)
        right, left = -np.diff(self.above(i, edges, equal=False)), np.diff(self.below(i, edges, equal=True))
        values = (edges[1:] + edges[:-1]) / 2
        return values, np.where(values > self.center[i], right, left), False


def _normal_side(distance: Doubles, std: float, equal: NDArray[np.bool], side: int) -> Doubles:
    """Return P(x <= distance) of a normal x of mean 0, or with side = 1 P(x > distance)."""
    if std == 0.0:
        inside = np.where(equal, distance >= 0, distance > 0)
        return np.asarray(inside if side == 0 else ~inside, np.float64)
    return normal_cdf(distance / std if side == 0 else -distance / std)


def _shortfall(t: Doubles, std: float) -> Doubles:
    """Return the mean of max(t - x, 0) over normal x of mean 0."""
    if std == 0.0:
        return np.maximum(t, 0.0)
    z = t / std
    return np.asarray(t * normal_cdf(z) + std * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi))


def ranked(logits: Doubles, k: int, /) -> NDArray[np.int64]:
    """Return the classes of the k largest logits along the last axis, ascending; of equal ones the first."""
    return np.sort(np.argsort(-logits, axis=-1, kind="stable")[..., :k], axis=-1)


def set_chances(law: LogitLaw, decided: Sequence[int], copies: Sequence[int] = (), /) -> dict[frozenset[int], float]:
    """Return the probability of the decided set of leading classes and of all that differ by one class.

    Parameters
    ----------
    law : LogitLaw
        Of the logits of one row.
    decided : sequence of int
        The leading classes.
    copies : sequence of int
        Classes that never lead, since an earlier one has the same logit in every run.
    """
    chosen = frozenset(decided)
    classes = law.center.size
    rest = np.setdiff1d(np.arange(classes), [*chosen, *copies])
    inside = np.array(sorted(chosen), np.int64)
    if not rest.size or not inside.size:
        return {chosen: 1.0}
    low, high = law.center - law.reach, law.center + law.reach
    weak = inside[low[inside] <= high[rest].max()]
    strong = rest[high[rest] >= low[inside].min()]
    if not weak.size or not strong.size:
        return {chosen: 1.0}
    swaps = sorted(itertools.product(weak.tolist(), strong.tolist()), key=lambda p: law.center[p[0]] - law.center[p[1]])
    sets = [chosen, *((chosen - {out}) | {new} for out, new in swaps[:_SWAPS])]
    contenders = [*weak.tolist(), *strong.tolist()]
    found = {i: law.masses(i) for i in contenders}
    return {one: _chance(law, one & set(contenders), set(contenders) - one, found) for one in sets}


def _chance(
    law: LogitLaw, leading: frozenset[int], behind: set[int], masses: dict[int, tuple[Doubles, Doubles, bool]]
) -> float:
    """Return the probability that all `leading` logits are before all others, the lower number first where equal."""
    total = 0.0
    for last in leading:
        values, weights, ties = masses[last]
        chance = weights.copy()
        for i in leading - {last}:
            chance *= law.above(i, values, equal=ties and i < last)
        for i in behind:
            chance *= law.below(i, values, equal=ties and i > last)
        total += float(chance.sum())
    return total
