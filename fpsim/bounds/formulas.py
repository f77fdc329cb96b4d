"""Formulas of rounding error bounds, each with what it assumes and where it comes from.

u is the unit roundoff, s the exact sum, A the sum of the magnitudes of the terms. v is the largest relative error of
one rounding, with respect to the exact value. Sums of log1p(v) along a path are called growth, so that expm1(growth) =
(1 + v_1)(1 + v_2)... - 1.
"""

from __future__ import annotations

import math

from fpsim.arithmetic import Rounding
from fpsim.errors import InputError

# --- one rounding -----------------------------------------------------------------------------------------------------


def relative_rounding_error(rounding: Rounding, /) -> float:
    """Return v, the largest relative error of one rounding with respect to the exact value.

    u/(1 + u) to nearest (Jeannerod & Rump, Math. Comp. 87 (2018) 803-819), 2u in any other mode. Assumes that the
    result is normal and does not overflow.
    """
    u = rounding.format.unit_roundoff
    return u / (1.0 + u) if rounding.mode.startswith("nearest") else 2.0 * u


def underflow_error(rounding: Rounding, /, *, flush: bool = False) -> float:
    """Return the largest absolute error of one rounding whose result is smaller than the smallest normal number.

    Half the smallest subnormal number to nearest, all of it in other modes, and the smallest normal number where
    subnormal results are flushed to zero.
    """
    form = rounding.format
    if flush or not form.subnormals:
        return form.smallest_normal
    return form.smallest_subnormal * (0.5 if rounding.mode.startswith("nearest") else 1.0)


# --- formulas ---------------------------------------------------------------------------------------------------------


def path_bound(roundings: float, v: float, /) -> float:
    """Return theta = (1 + v)**roundings - 1, which bounds abs(error)/A for a path of so many roundings.

    Any tree: ``abs(error) <= sum_i theta_(d_i) abs(x_i) <= theta_h A``. It is Wilkinson's gamma_h (Higham 2002,
    section 4.2) without its restriction h*u < 1, and never larger.
    """
    return growth_bound(roundings * math.log1p(v))


def sum_bound(n: int, v: float, /) -> float:
    """Return (n - 1) v, which bounds abs(error)/A of a sum of n numbers of the format, in any order.

    To nearest, one format throughout, gradual underflow; no restriction on n. Jeannerod & Rump, Math. Comp. 87 (2018)
    803-819, theorem 4.1.
    """
    return max(n - 1, 0) * v


def real_sum_bound(n: int, v: float, /) -> float:
    """Return v + (n - 1) v (1 + v), which bounds abs(error)/A where the n terms are real numbers, such as products.

    Assumptions as in `sum_bound`. For terms that are rounded first this is theorem 4.2 of Jeannerod & Rump (2018),
    (n u + (2n - 1) u**2)/(1 + u)**2 < n u. For terms that enter by a fused multiply-add the same induction holds: of
    two operands p (a partial sum) and z (real) the error is at most abs(z), at most abs(p) + v abs(z), and at most
    v abs(p + z); the three cases abs(z) <= v A_p, A_p <= v abs(z) and neither give the step.
    """
    return v + max(n - 1, 0) * v * (1.0 + v) if n else 0.0


def fused_add_error(terms: int, bits: int, result: Rounding, /) -> float:
    """Return v, which bounds abs(error)/M of a fused add of so many products and an accumulator.

    M is the sum of the magnitudes of all that is added. Each term loses less than ``2**(e - bits)`` where it is aligned
    to the largest exponent e, and ``2**e <= M`` unless an operand or the accumulator is subnormal; what is left of them
    adds up to at most M and is rounded once (the model of Fasi, Higham, Mikaitis & Pranesh, PeerJ CS 7 (2021) e330).
    """
    return (terms + 1) * math.ldexp(1.0, -bits) + relative_rounding_error(result)


def kahan_bound(n: int, v: float, /) -> tuple[float, float]:
    """Return (r, q): abs(error) <= r A + q eta for Kahan's sum of n terms, eta the underflow error of an operation.

    r = 3v + O(n v**2), from the standard model alone, so that it holds in every format, rounding mode and for fused
    products. (The 2u of Knuth and Higham (4.8) needs properties of the format.) Infinite where n v**2 is not small.

    Notes
    -----
    With y = (x - c)(1 + e1), t = s + y, s' = t(1 + e2) = t + E, c' = ((s' - s)(1 + e3) - y)(1 + e4) the corrected sum
    s - c changes in a step by x + e1 (x - c) - E(e3 + e4 + e3 e4) - e3 (1 + e4) y. So t differs from the exact sum by
    no more than D, the sum of the magnitudes of those changes but x; abs(E) <= v (A + D); C bounds abs(c). D and
    C follow from each other by induction, and their least solution is found by iteration. The result is t + E.
    """
    return _kahan(n, v, 1.0, 0.0), _kahan(n, v, 0.0, 1.0)


def _kahan(n: int, v: float, a: float, eta: float) -> float:
    c = d = 0.0
    for _ in range(1000):
        y = (1.0 + v) * (a + c) + eta
        y_total = (1.0 + v) * (a + n * c) + n * eta
        e = v * (a + d) + eta
        c_new = (e * (1.0 + v) + v * y + eta) * (1.0 + v) + eta
        d_new = v * (a + n * c) + n * eta + n * (2.0 * v + v * v) * e + v * (1.0 + v) * y_total + n * (2.0 + v) * eta
        if d_new <= d * (1.0 + 1e-15) and c_new <= c * (1.0 + 1e-15):
            return (d_new + e) * (1.0 + 1e-12)
        c, d = c_new, d_new
        if d > 1e6 * (a + n * eta):
            break
    return math.inf


def compensated_bound(inner: float, errors: float, /) -> float:
    """Return theta(errors) * theta(inner), which bounds abs(sum + correction - s)/A of a tree with collected errors.

    Neumaier (1974), Dot2 (Ogita, Rump & Oishi, SISC 26 (2005) 1955-1988) and their trees: the errors of the additions
    are exact and add up to at most theta(inner) A, where `inner` is the growth of the sum; the correction is their
    rounded sum, of growth `errors`. Closing adds v abs(s): together u abs(s) + O(n**2 u**2) A.

    Rounding to nearest, all terms in the accumulator format, gradual underflow.
    """
    return growth_bound(errors) * growth_bound(inner)


def uncorrected_bound(inner: float, errors: float, v: float, /) -> float:
    """Return what takes the place of `compensated_bound` where the errors of the additions are not found exactly.

    Directed rounding, or terms that are wider than the accumulator. From the standard model alone: the correction is
    at most (1 + theta(errors)) times the sum of (1 + v)(abs(e) + v(abs(smaller operand) + abs(e))) over the additions.
    """
    theta = growth_bound(inner)
    return theta + (1.0 + growth_bound(errors)) * (1.0 + v) * ((1.0 + v) * theta + theta * (1.0 + theta))


def growth_bound(growth: float, /) -> float:
    """Return expm1(growth), or infinity: bounds abs(error)/A where `growth` is the largest of all paths."""
    return math.expm1(growth) if growth < 700.0 else math.inf


def growth_factor(growth: float, /) -> float:
    """Return exp(growth), or infinity."""
    return math.exp(growth) if growth < 700.0 else math.inf


# --- classical and published forms ------------------------------------------------------------------------------------


def gamma_bound(roundings: int, u: float, /) -> float:
    """Return gamma_k = k u/(1 - k u), which bounds abs(error)/A for paths of k roundings; infinite unless k u < 1.

    Any tree and order, no over- or underflow. Wilkinson (1963); Higham, *Accuracy and Stability* (2002), section 3.1 and
    (4.4). Of a sum of n terms k = n - 1, of a dot product n; of a tree its height.
    """
    return roundings * u / (1.0 - roundings * u) if roundings * u < 1.0 else math.inf


def height_bound(height: int, u: float, /) -> float:
    """Return h u, which bounds abs(error)/A of a tree of height h; infinite unless h <= u**(-1/2) - 1.

    To nearest, one format. Lange & Rump, Math. Comp. 88 (2019) 349-368. Beyond that height h u is false: for u = 1/4 and
    h = 5, u = 1/8 and h = 6, there are trees whose error is larger.
    """
    return height * u if height <= u**-0.5 - 1.0 else math.inf


def neumaier_bound(n: int, u: float, /) -> tuple[float, float]:
    """Return (u, q): abs(error) <= u abs(s) + q A with q = gamma_(n-1)**2, for Neumaier's sum of n terms (Sum2).

    To nearest, n u < 1; holds with underflow. Neumaier (1974); Ogita, Rump & Oishi, SISC 26 (2005) 1955-1988, proposition
    4.5.
    """
    return u, gamma_bound(max(n - 1, 0), u) ** 2


def dot2_bound(n: int, u: float, /) -> tuple[float, float]:
    """Return (u, q): abs(error) <= u abs(s) + q A with q = gamma_n**2, for the compensated dot product Dot2.

    To nearest, n u < 1, no underflow. Ogita, Rump & Oishi, SISC 26 (2005) 1955-1988, proposition 5.5.
    """
    return u, gamma_bound(n, u) ** 2


def pairwise_compensated_bound(height: int, v: float, /) -> tuple[float, float]:
    """Return (u, q): abs(error) <= u abs(s) + q A, for a tree whose errors are summed up the same tree.

    q = (1 + u) theta_(2h) theta_h: the exact errors of the additions add up to at most theta_h A, and each passes at most
    2h roundings on its way. To nearest, one format, errors exact (TwoSum), h the height.
    """
    u = v / (1.0 - v)
    return u, (1.0 + u) * path_bound(2 * height, v) * path_bound(height, v)


def superblock_bound(n: int, levels: int, u: float, /) -> float:
    """Return gamma_(t (n**(1/t) - 1) + 1), which bounds abs(error)/A of a dot product in t levels of equal blocks.

    n must be a t-th power. Castaldo, Whaley & Chronopoulos, SISC 31 (2008) 1156-1174, proposition 3.1.
    """
    return gamma_bound(superblock_height(n, levels) + 1, u)


def superblock_height(n: int, levels: int, /) -> int:
    """Return t (n**(1/t) - 1), the height of a sum of n terms in t levels of equal blocks."""
    side = round(n ** (1.0 / levels))
    if side**levels != n:
        message = f"{n} is not a power of exponent {levels}"
        raise InputError(message)
    return int(levels * (side - 1))


def fabsum_bound(n: int, block: int, fast: float, accurate: float, /) -> float:
    """Return e_f(b) + e_a(n/b) + e_f e_a, which bounds abs(error)/A of FABsum.

    Blocks of b terms are summed recursively with unit roundoff `fast`, their sums in a precision of unit roundoff
    `accurate`: about b u, whatever n is. Blanchard, Higham & Mary, SISC 42 (2020) A1541-A1557.
    """
    inner, outer = path_bound(block - 1, fast), path_bound(max(-(-n // block) - 1, 0), accurate)
    return inner + outer + inner * outer


def accurate_accumulator_bound(n: int, u: float, wide: float, /) -> tuple[float, float]:
    """Return (u, q): abs(error) <= u abs(s) + q A for a sum in unit roundoff `wide`, rounded once to unit roundoff u.

    q = (1 + u) theta_(n-1) of `wide`; about n u**2 if `wide` is u**2. Higham (2002), section 4.6.
    """
    return u, (1.0 + u) * path_bound(max(n - 1, 0), wide)


def block_fma_bound(n: int, width: int, low: float, high: float, /) -> float:
    """Return what bounds abs(error)/A of a matrix product by block FMAs, operands rounded to `low`, sums in `high`.

    (1 + u_low)**2 (1 + theta_(ceil(n/b) + b - 1)) - 1, where the additions inside a block of b products are rounded too;
    about 2 u_low + (n/b + b) u_high. Blanchard, Higham, Lopez, Mary & Pranesh, SISC 42 (2020) C124-C141.
    """
    inside = path_bound(-(-n // width) + width - 1, high)
    return (1.0 + low) ** 2 * (1.0 + inside) - 1.0


def fused_chain_bound(n: int, terms: int, bits: int, /) -> float:
    """Return n 2**-F + ceil(n/P) 2**-23, which bounds abs(error)/A of a chain of fused adds of P products.

    Products exact, all terms truncated to F fraction bits below the largest exponent, results truncated to float32 (the
    model of Fasi, Higham, Mikaitis & Pranesh, PeerJ CS 7 (2021) e330); first order, no underflow. The errors are
    one-sided: of data of one sign they add up, and a variance without their mean is no tolerance.
    """
    return n * math.ldexp(1.0, -bits) + -(-n // terms) * 2.0**-23


# --- probabilistic forms ----------------------------------------------------------------------------------------------


def probability_factor(failure: float, count: int = 1, /) -> float:
    """Return lambda = sqrt(2 ln(2 count/failure)): a sub-Gaussian sum passes lambda sigma with that probability."""
    return math.sqrt(2.0 * math.log(2.0 * count / failure))


def higham_mary_bound(n: int, u: float, failure: float, /, *, terms: int = 1) -> float:
    """Return gamma~_n = exp(lambda sqrt(n) u + n u**2/(1 - u)) - 1, which bounds abs(error)/A with a probability.

    Local errors independent, of mean zero. For `terms` paths of at most n roundings it fails with a probability of
    `failure` at most: lambda = sqrt(2 ln(2 terms/failure))/(1 - u)**(1/2). Higham & Mary, SISC 41 (2019) A2815-A2835,
    theorems 2.4 and 3.1.
    """
    factor = probability_factor(failure, max(terms, 1)) / math.sqrt(1.0 - u)
    return growth_bound(factor * math.sqrt(n) * u + n * u * u / (1.0 - u))


def random_data_bound(n: int, u: float, failure: float, mean: float, largest: float, /) -> float:
    """Return (lambda abs(mean) n**(3/2) + lambda**2 C n) u, which bounds abs(error) of a serial sum of random data.

    Terms independent, of this mean and of magnitude at most C; first order. Without a mean the error does not grow
    relative to A. Higham & Mary, SISC 42 (2020) A3427-A3446.
    """
    factor = probability_factor(failure, n + 1)
    return float((factor * abs(mean) * n**1.5 + factor**2 * largest * n) * u)


def hallman_ipsen_bound(height: int, n: int, u: float, second: float, failure: float, /) -> float:
    """Return u exp(lambda_eta sqrt(h) u) sqrt(sum s_k**2) sqrt(2 ln(2/delta)), which bounds abs(error) with a probability.

    Any tree of height h over n terms; `second` is the root of sum s_k**2 over the partial sums. Local errors independent
    and of mean zero; it fails with a probability of delta + eta, both half of `failure`. Hallman & Ipsen, arXiv
    2107.01604, theorem 2.6.
    """
    half = failure / 2.0
    growth = growth_factor(probability_factor(half, max(n, 1)) * math.sqrt(height) * u)
    return float(u * growth * second * probability_factor(half))


def stochastic_bound(height: int, n: int, u: float, second: float, failure: float, /) -> float:
    """Return `hallman_ipsen_bound` for stochastic rounding: with 2u, and no assumption, for the model is exact there.

    Connolly, Higham & Mary, SISC 43 (2021) A566-A585: local errors are below 2u, of mean zero whatever came before.
    """
    return hallman_ipsen_bound(height, n, 2.0 * u, second, failure)


def stochastic_azuma_bound(height: int, u: float, failure: float, /) -> float:
    """Return sqrt(w gamma_(2h)(w)) sqrt(ln(2/failure)) with w = 2u, which bounds abs(error)/A of stochastic rounding.

    gamma_k(w) = (1 + w)**k - 1; h is the height of the tree, n for a serial dot product. El Arar, Sohier, de Oliveira
    Castro & Petit, SISC 45 (2023) C255-C275.
    """
    w = 2.0 * u
    return float(math.sqrt(w * path_bound(2 * height, w)) * math.sqrt(math.log(2.0 / failure)))


def stochastic_variance_bound(n: int, u: float, /) -> float:
    """Return gamma_n(w**2), w = 2u: the variance of a stochastically rounded result is at most that times A**2.

    El Arar et al. (2023); gamma_n(x) = (1 + x)**n - 1.
    """
    return path_bound(n, (2.0 * u) ** 2)
