"""Assertions for tests of numerical code: with a tolerance that was worked out, in ulps, or bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim._arrays import as_floats
from fpsim.errors import InputError
from fpsim.formats import as_format
from fpsim.tolerances import Tolerance

_Array = NDArray[Any]
_SHOWN = 3


def assert_close(actual: Any, expected: Any, tol: Tolerance, /) -> None:
    """Raise `AssertionError` where two results are further apart than a tolerance, each output by its own.

    Parameters
    ----------
    actual, expected : array_like
        Results of one shape.
    tol : Tolerance
        See `fpsim.tolerance`; an array of tolerances must have the results' shape.

    Raises
    ------
    AssertionError
        With the worst output, its difference in ulps and in units of the tolerance, and whether the difference is in
        few outputs or in many.
    InputError
        The shapes do not fit.
    """
    a, b, form = _pair(actual, expected)
    allowed = np.asarray(tol.probabilistic, np.float64)
    if allowed.ndim and allowed.shape != a.shape:
        message = f"the tolerance is for results of shape {allowed.shape}, not {a.shape}"
        raise InputError(message)
    with np.errstate(all="ignore"):
        difference = np.where(_same(a, b), 0.0, np.abs(a - b))
        wrong = ~(difference <= allowed)
    if not wrong.any():
        return
    ratio = np.where(wrong, difference / np.where(allowed > 0, allowed, np.nan), 0.0)
    place = _worst(np.where(np.isnan(ratio), np.inf, ratio))
    share = int(wrong.sum())
    spread = "in few outputs: look there for a local fault"
    if share * 10 >= a.size:
        spread = "all over the result" if a.size > 1 else "a scalar"
    odd = int((wrong & (np.isfinite(a) != np.isfinite(b))).sum())
    spread += f"; {odd} where one result is not finite and the other is" if odd else ""
    size, worst = (float(np.broadcast_to(x, a.shape)[place]) for x in (allowed, np.asarray(tol.worst_case)))
    message = (
        f"{share} of {a.size} outputs are further apart than rounding explains, {spread}\n"
        f"worst at {list(map(int, place))}: {a[place]!r} and {b[place]!r}, {_ulps(a[place], b[place], form):.6g} ulps apart,"
        f" {difference[place]:.3g} where {size:.3g} is allowed (worst case {worst:.3g})\n"
        f"tolerance: {tol.op} between {' and '.join(tol.sides)}, at a confidence of 1 - {1 - tol.confidence:.0e}"
    )
    raise AssertionError(message)


def assert_max_ulp(actual: Any, expected: Any, ulps: float, /) -> None:
    """Raise `AssertionError` where results differ by more than so many ulps of the larger one's format.

    Parameters
    ----------
    actual, expected : array_like
        Results of one shape.
    ulps : float
        The most that is allowed, in ulps of `expected`.
    """
    a, b, form = _pair(actual, expected)
    apart = np.array([_ulps(x, y, form) for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True)]).reshape(a.shape)
    wrong = ~((apart <= ulps) | _same(a, b))
    if wrong.any():
        place = _worst(np.where(np.isnan(apart), np.inf, apart))
        message = (
            f"{int(wrong.sum())} of {a.size} outputs differ by more than {ulps:g} ulps; worst at {list(map(int, place))}:"
            f" {a[place]!r} and {b[place]!r}, {apart[place]:.6g} ulps apart"
        )
        raise AssertionError(message)


def assert_bitwise_equal(actual: Any, expected: Any, /) -> None:
    """Raise `AssertionError` where results do not have the same bits; signed zeros count, payloads of NaN do not.

    Parameters
    ----------
    actual, expected : array_like
        Results of one shape and type.
    """
    a, b, form = _pair(actual, expected)
    kinds = [as_floats(x)[1] for x in (actual, expected)]
    if kinds[0] != kinds[1]:
        message = f"the results have different types, {kinds[0]} and {kinds[1]}"
        raise AssertionError(message)
    wrong = ~_same(a, b)
    if wrong.any():
        zeros = int((wrong & (a == 0) & (b == 0)).sum())
        places = [tuple(map(int, place)) for place in np.argwhere(wrong)[:_SHOWN]]
        shown = ", ".join(f"{list(p)}: {a[p]!r} and {b[p]!r} ({_ulps(a[p], b[p], form):.6g} ulps)" for p in places)
        extra = f", {zeros} of them only in the sign of zero" if zeros else ""
        message = f"{int(wrong.sum())} of {a.size} outputs have other bits{extra}; {shown}"
        raise AssertionError(message)


def _pair(actual: Any, expected: Any) -> tuple[_Array, _Array, Any]:
    (a, form), (b, other) = as_floats(actual, name="actual"), as_floats(expected, name="expected")
    if a.shape != b.shape:
        message = f"the results have different shapes, {a.shape} and {b.shape}"
        raise AssertionError(message)
    narrow = form if form.precision <= other.precision else other
    return a.astype(np.float64), b.astype(np.float64), as_format(narrow)


def _same(a: _Array, b: _Array) -> NDArray[np.bool]:
    same: NDArray[np.bool] = ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
    return same


def _worst(x: _Array) -> tuple[Any, ...]:
    return tuple(np.unravel_index(int(np.argmax(x)), x.shape))


def _ulps(a: Any, b: Any, form: Any) -> float:
    if not (np.isfinite(a) and np.isfinite(b)):
        return 0.0 if a == b else float("nan")
    exponent = max(int(np.frexp(float(b))[1]) - 1, form.emin) - form.precision + 1
    return float(np.ldexp(abs(float(a) - float(b)), -exponent))
