"""What a random order of additions does to a sum: moments in closed form, and what no order can exceed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fpsim.arithmetic import Rounding
from fpsim.formats import Format

Doubles = NDArray[np.float64]
_PLACES = 2048  # of a chain that are looked at; others are interpolated
_SIGMAS = 9.0


@dataclass(frozen=True, slots=True)
class Moments:
    """Moments of the rounding error of one chain of additions over uniformly random orders of its terms.

    Attributes
    ----------
    mean : float
        Expected error.
    std : float
        Standard deviation of the result from run to run.
    """

    mean: float
    std: float


def moments(terms: Doubles, form: Format, /) -> Moments:
    """Return the moments of a serial sum, rounded to nearest even, whose terms come in uniformly random order.

    Parameters
    ----------
    terms : float64 array of shape (m,)
        Finite terms, as they enter the additions.
    form : Format
        The format of the accumulator.

    Notes
    -----
    After k of m terms with mean a and population variance q, the partial sum has mean k a and variance
    q k (m - k)/(m - 1) (sampling without replacement), which gives the expected number K of additions whose result has
    the unit in the last place D. Such an addition makes an error that depends on its term alone, since the partial sum
    is a multiple of D: the distance of the term from the nearest multiple, with a random sign at ties (an assumption: the partial sums are taken as odd
    and even alike). Where the
    partial sums grow steadily, K terms without replacement get D, so that their errors vary by the factor
    1 - (K - 1)/(m - 1) less, and those of different D are correlated; where they wander about zero, the terms that get
    D are as good as independent. Carried further from the argument of Shanmugavelu et al., arXiv 2408.05148, who
    measure these spreads.
    """
    m = terms.size
    if m < 2:
        return Moments(0.0, 0.0)
    mean, variance = float(terms.mean()), float(terms.var())
    exponents, counts = _additions(m, mean, variance, form)
    means, variances, ties, errors = [], [], [], []
    for exponent in exponents.tolist():
        unit = math.ldexp(1.0, exponent)
        scaled = terms / unit
        error = (np.rint(scaled) - scaled) * unit
        at_ties = np.abs(error) == unit / 2
        error[at_ties] = 0.0
        errors.append(error)
        means.append(float(error.mean()))
        variances.append(float(error.var()))
        ties.append(float(at_ties.mean()) * unit**2 / 4)
    steady = mean**2 * m > _SIGMAS * variance
    total = float(counts @ np.array(ties))
    if steady:
        spread = np.cov(np.array(errors), bias=True).reshape(len(counts), -1)
        shared = counts[:, None] * counts / (m - 1)
        total += float(counts @ (np.array(variances) * (1 + 1 / (m - 1)))) - float((shared * spread).sum())
    else:
        total += float(counts @ np.array(variances))
    return Moments(float(counts @ np.array(means)), math.sqrt(max(total, 0.0)))


def _additions(m: int, mean: float, variance: float, form: Format) -> tuple[NDArray[np.int64], Doubles]:
    """Return exponents of units in the last place, and how many of the m - 1 additions are expected to have them."""
    k = np.unique(np.linspace(2, m, min(m - 1, _PLACES)).round())
    weights = np.full(k.size, 1.0)
    if k.size < m - 1:
        edges = np.concatenate([[1.5], (k[1:] + k[:-1]) / 2, [m + 0.5]])
        weights = np.diff(edges)
    center = k * mean
    width = np.sqrt(np.maximum(variance * k * (m - k) / max(m - 1, 1), 0.0))
    width = np.maximum(width, np.abs(center) * 1e-9 + 1e-300)
    top = math.frexp(float((np.abs(center) + 6 * width).max()))[1]
    lowest = form.emin - form.precision + 1  # of a unit
    first = max(top - 40, form.emin + 1)
    bounds = np.ldexp(1.0, np.arange(first, top + 1))
    below = normal_cdf((bounds[:, None] - center) / width) - normal_cdf((-bounds[:, None] - center) / width)
    inside = np.diff(np.vstack([np.zeros(k.size), below]), axis=0) @ weights
    units = np.maximum(np.arange(first, top + 1) - form.precision, lowest)
    kept = inside > 1e-9 * m
    return units[kept], inside[kept]


def normal_cdf(z: Doubles) -> Doubles:
    """Return the normal distribution function."""
    flat = np.clip(z, -40.0, 40.0).reshape(-1)
    return np.array([0.5 * math.erfc(-v / math.sqrt(2.0)) for v in flat.tolist()]).reshape(z.shape)


def worst_case(terms: Doubles, rounding: Rounding, /, *, ftz: bool = False, serial: bool = True) -> float:
    """Return how far a sum of these terms, in whatever order they come, can be from its exact value.

    Parameters
    ----------
    terms : float64 array of shape (m,)
        Finite terms, as they enter the additions.
    rounding : Rounding
        That of the additions.
    ftz : bool
        Subnormal results are flushed.
    serial : bool
        One accumulator takes the terms; else they may be added in any tree.

    Notes
    -----
    The k-th addition of a chain has a result of at most the sum of the k largest magnitudes, grown by the roundings
    before it, and is wrong by half a unit in the last place of that; by none where all terms are multiples of a unit
    that the largest partial sum still has.
    """
    form = rounding.format
    sizes = np.sort(np.abs(terms[terms != 0]))[::-1]
    m = sizes.size
    if m < 2:
        return 0.0
    nearest = rounding.mode.startswith("nearest")
    unit = form.unit_roundoff * (1.0 if nearest else 2.0)
    with np.errstate(over="ignore"):
        sums = np.cumsum(sizes) * (1.0 + 2.0**-52 * m) * np.exp(np.arange(m) * unit * (1 + unit))
    if not np.isfinite(sums[-1]) or sums[-1] > form.max:
        return math.inf
    fraction, exponent = np.frexp(sizes)
    integers = np.ldexp(fraction, 53).astype(np.int64)
    grid = int((exponent - 53 + np.log2((integers & -integers).astype(np.float64))).min())
    if not ftz and sums[-1] <= math.ldexp(1.0, grid + form.precision) and grid >= form.emin - form.precision + 1:
        return 0.0
    ulps = form.ulp(sums if serial else np.full(m, sums[-1]))
    bound = float(np.sum(ulps[1:])) * (0.5 if nearest else 1.0) * (1.0 + 1e-9)
    return bound + (m * form.smallest_normal if ftz else 0.0)


def expected_distinct(std: float, unit: float, runs: int, /) -> float:
    """Return how many distinct results so many runs are expected to have, for a normal law on multiples of `unit`."""
    if std == 0.0 or runs == 0:
        return float(min(runs, 1))
    chance = np.diff(normal_cdf(_edges(std, unit)))
    return float(np.sum(-np.expm1(runs * np.log1p(-np.minimum(chance, 1 - 1e-16)))))


def chance_of_agreement(std: float, unit: float, /) -> float:
    """Return the probability that two runs have the same bits, for a normal law on multiples of `unit`."""
    if std == 0.0:
        return 1.0
    return float(np.sum(np.diff(normal_cdf(_edges(std, unit))) ** 2))


def _edges(std: float, unit: float) -> Doubles:
    """Return the borders between multiples of a unit, in standard deviations from the mean."""
    reach = int(min(max(8 * std / unit, 2), 10**6))
    return np.asarray((np.arange(-reach, reach + 2) - 0.5) * (unit / std), np.float64)
