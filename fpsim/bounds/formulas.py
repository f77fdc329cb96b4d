"""Formulas of worst-case rounding error bounds, each with what it assumes and where it comes from.

u is the unit roundoff, s the exact sum, A the sum of the magnitudes of the terms. v is the largest relative error of
one rounding, with respect to the exact value. Sums of log1p(v) along a path are called growth, so that expm1(growth) =
(1 + v_1)(1 + v_2)... - 1.
"""

from __future__ import annotations

import math

from fpsim.arithmetic import Rounding

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
