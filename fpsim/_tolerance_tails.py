"""Tails of sums of rounding errors."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Array = NDArray[Any]
_RATIOS = 512  # steps of the table of tails


def tail(variance: _Array, largest: _Array, level: float, /) -> _Array:
    """Return what a sum of independent rounding errors passes with a probability of at most `level`.

    Chernoff's bound, with the error of largest variance as uniform and the others as sub-Gaussian: where one rounding
    dominates, as the last of a balanced tree does, its error is bounded, and the tail is lighter than a Gaussian one.

    Parameters
    ----------
    variance, largest : ndarray of float64
        The variance, and the largest part of it that comes from one rounding.
    level : float
        The probability, of both signs together.
    """
    v = np.asarray(variance, np.float64)
    with np.errstate(all="ignore"):
        share = np.where(v > 0, np.clip(np.asarray(largest, np.float64) / v, 0.0, 1.0), 0.0)
        # The tail is a multiple of the deviation that the share of the largest error decides; a smaller share is safe.
        places = np.floor(np.nan_to_num(share) * _RATIOS).astype(np.int64)
        return np.asarray(np.where(v > 0, np.sqrt(v) * _tails(level)[places], 0.0))


@functools.lru_cache(maxsize=16)
def _tails(level: float) -> _Array:
    """Return the tail of unit variance for shares 0, 1 / _RATIOS, ... 1 of the largest error."""
    one = np.linspace(0.0, 1.0, _RATIOS + 1)[:, None]
    step = np.geomspace(0.5, 120, 400)
    side = step * np.sqrt(3 * one)
    with np.errstate(all="ignore"):
        # ln(sinh(y) / y), without overflow; it is below y**2 / 6
        bounded = np.where(side > 1e-3, side + np.log1p(-np.exp(-2 * side)) - np.log(2 * side), side * side / 6)
    gain: _Array = (0.5 * step * step * (1 - one) + bounded + math.log(2 / level)) / step
    return np.asarray(np.min(gain, axis=1))


def mixture(variance: _Array, level: float, /) -> float:
    """Return t with mean over i of P(abs(N(0, V_i)) > t) = level."""
    sigma = np.sqrt(variance[variance > 0])
    if sigma.size == 0:
        return 0.0
    if not np.isfinite(sigma).all():
        return math.inf
    share = sigma.size / variance.size
    low, high = 0.0, float(sigma.max()) * 60
    for _ in range(200):
        middle = 0.5 * (low + high)
        beyond = share * float(np.mean([math.erfc(middle / (one * math.sqrt(2))) for one in sigma]))
        low, high = (middle, high) if beyond > level else (low, middle)
    return high


def gaussian(level: float, /) -> float:
    """Return z with P(abs(N(0, 1)) > z) = level."""
    return mixture(np.ones(1), level)
