"""Bounds of abs(error) that hold with a probability, each a function of a case or of two.

All assume local errors of mean zero, which rounding to nearest does not promise: the error of a long chain that has grown
to the size of its terms drifts, and constant terms repeat the same rounding. Only `ulp_variance` allows for that.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.bounds.cases import Case, NotApplicableError
from fpsim.bounds.formulas import hallman_ipsen_bound, higham_mary_bound, probability_factor, stochastic_bound
from fpsim.bounds.worst import half_ulp, of_strategy
from fpsim.errors import InputError
from fpsim.formats import Format, as_format

Floats = NDArray[np.float64]


def higham_mary(case: Case, /) -> Floats:
    """(exp(lambda sqrt(h) u + h u**2/(1 - u)) - 1) A, lambda = sqrt(2 ln(2 n/delta)/(1 - u)), h the longest path.

    Local errors independent, of mean zero and at most u; one format, no overflow. Higham & Mary, SISC 41 (2019)
    A2815-A2835, theorems 2.4 and 3.1 (n there is the height here).
    """
    case.require_one_format()
    case.require_no_overflow()
    one = np.vectorize(lambda h: higham_mary_bound(h, case.u, case.failure, terms=case.n), otypes=[float])
    return np.asarray(one(case.roundings) * case.magnitude)


def hallman_ipsen(case: Case, /) -> Floats:
    """Root of sum (u_k s_k)**2 over the partial sums, times exp(lambda_eta sqrt(h) u) sqrt(2 ln(2/delta)).

    delta and eta share 1 - confidence. Any tree of height h; local errors independent and of mean zero, no under- or
    overflow. Hallman & Ipsen, arXiv 2107.01604, theorem 2.6; several precisions as in Numer. Math. 155 (2023) 83-119.
    """
    sums = case.partial_sums
    case.require(np.isfinite(sums.largest).all(), "a partial sum is not finite")
    u = case.u
    one = np.vectorize(lambda h: hallman_ipsen_bound(h, case.n, u, 1.0 / u, case.failure), otypes=[float])
    return np.asarray(one(case.roundings) * sums.second)


def stochastic_rounding(case: Case, /) -> Floats:
    """Bound the error that the same tree has with stochastic rounding: `hallman_ipsen` with 2u.

    No assumption: the local errors of stochastic rounding have mean zero whatever came before. Connolly, Higham & Mary,
    SISC 43 (2021) A566-A585.
    """
    sums = case.partial_sums
    case.require(np.isfinite(sums.largest).all(), "a partial sum is not finite")
    u = case.u
    one = np.vectorize(lambda h: stochastic_bound(h, case.n, u, 1.0 / u, case.failure), otypes=[float])
    return np.asarray(one(case.roundings) * sums.second)


def ulp_variance(case: Case, /) -> Floats:
    """abs(drift) + a tail of at most sqrt(2 V ln(2/delta)), V the sum of the variances of the local errors.

    A node that drops j bits has the variance ulp**2/12 (1 + 2/4**j), and no more than the square of its smaller operand;
    the drift is measured on permutations of the terms where the error has grown to the size of one, and that of fused
    adds, which truncate, is what they drop on average. It is the probabilistic part of `fpsim.tolerance`, here for each output by itself, and never above the worst case.
    """
    from fpsim.tolerances import tolerance

    case.require(case.account is not None, "compensated and flushing sums have no account of single roundings")
    extra = {"axis": case.axis} if case.op == "sum" else {}
    found = tolerance(case.op, *case.inputs, strategy=case.strategy, confidence=case.confidence, outputs=1, **extra)
    return np.asarray(found.probabilistic, np.float64).reshape(case.shape)


def difference(one: Case, other: Case, /, *, proved: bool = False) -> Floats:
    """Return a bound of the difference of two strategies on the same data.

    With a probability: abs(drifts) + a tail with V_1 + V_2, which counts the roundings that both share twice, and so is
    safe. Proved: the sum of both worst cases.

    Parameters
    ----------
    one, other : Case
        Of the same operation and operands.
    proved : bool
        Return the worst case.

    Raises
    ------
    InputError
        The cases are not of the same operation and operands.
    """
    same = one.op == other.op and one.axis == other.axis and len(one.inputs) == len(other.inputs)
    if not (same and all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one.inputs, other.inputs, strict=True))):
        message = "the difference of two strategies needs the same operation, operands and axis"
        raise InputError(message)
    if proved:
        return np.asarray(_hard(one) + _hard(other))
    from fpsim.tolerances import tolerance

    extra = {"axis": one.axis} if one.op == "sum" else {}
    found = tolerance(
        one.op, *one.inputs, between=(one.strategy, other.strategy), confidence=one.confidence, outputs=1, **extra
    )
    return np.asarray(found.probabilistic, np.float64).reshape(one.shape)


def _hard(case: Case) -> Floats:
    try:
        return np.minimum(half_ulp(case), case.strategy_bound)
    except NotApplicableError:
        return of_strategy(case)


def random_order_deviation(values: Any, /, *, form: Any = "float32", corrected: bool | None = None) -> float:
    """Return the standard deviation of a serial sum over a random order of given values, as atomic additions make it.

    Parameters
    ----------
    values : array_like of shape (m,)
        What is added in random order: the partial sums of blocks, or single terms.
    form : Format or str
        The format of the additions, which are to nearest.
    corrected : bool, optional
        Subtract what all orders have in common; by default for values of one sign, whose binades are the same in any
        order. Without it the variance is that of the rounding errors themselves.

    Returns
    -------
    float

    Notes
    -----
    After k values the sum has the mean k m and the variance s**2 k (n - k)/(n - 1) (sampling without replacement), where
    m and s**2 are the mean and the variance of the values; a normal law of that mean and variance gives the expected
    ulp**2/12 of each addition, V in all. In a binade the error of adding a value is fixed, and a new order only shuffles
    which value meets which binade: ``Var = V - (1/n) sum over binades of K**2 ulp**2/12`` for K additions in it. The
    difference of two runs has twice the variance.
    """
    x = np.asarray(values, np.float64).reshape(-1)
    target: Format = as_format(form)
    m = x.size
    if m < 2:
        return 0.0
    k = np.arange(2.0, m + 1.0)
    mean, spread = k * x.mean(), np.sqrt(x.var() * k * (m - k) / (m - 1))
    points, weights = np.polynomial.hermite_e.hermegauss(21)
    sums = mean[:, None] + spread[:, None] * points
    ulps = np.asarray(target.ulp(sums))
    shares = weights / weights.sum()
    variance = float(np.sum(ulps**2 * shares) / 12.0)
    if corrected if corrected is not None else bool((x >= 0).all() or (x <= 0).all()):
        for size in np.unique(ulps):
            count = float(np.sum((ulps == size) * shares))
            variance -= (count * size) ** 2 / 12.0 / m
    return math.sqrt(max(variance, 0.0))


def random_order(case: Case, /) -> Floats:
    """Bound how far a run is from the mean of all where the terms of a serial sum come in random order: a tail of deviations.

    The tail is sqrt(2 ln(2/delta)) deviations.
    Bounds how far a run is from the mean of all runs, not from the exact sum: see `random_order_deviation`. Serial sums
    of one format, to nearest.
    """
    case.require(case.op == "sum", "for sums, whose terms are numbers of the format")
    case.require_one_format()
    case.require(all(p.height == max(p.n - 1, 0) for p, _ in case.programs), "for serial sums, as atomics make them")
    from fpsim.emulation import _terms

    view, shape, _ = _terms(case.operands.values[0], case.strategy, case.axis, case.operands.data, case.inputs[0])
    case.require(view.shape[0] <= 2**20, "more than 2**20 terms")
    deviations = [random_order_deviation(column, form=case.rounding.format) for column in view.T]
    return np.asarray(np.reshape(deviations, shape) * probability_factor(case.failure))


PROBABLE = (higham_mary, hallman_ipsen, ulp_variance)
#: Bounds of something else than the error of the case.
BESIDE = (stochastic_rounding, random_order)
