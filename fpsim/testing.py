"""Assertions for tests of numerical code: with a tolerance that was worked out, in ulps, bit for bit, or explained."""

from __future__ import annotations

import math
import os
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim._arrays import as_floats
from fpsim._prediction_text import plain_number
from fpsim.errors import InputError
from fpsim.formats import Format, as_format
from fpsim.tolerances import Tolerance

__all__ = ["assert_bitwise_equal", "assert_close", "assert_explained", "assert_max_ulp"]

_Array = NDArray[Any]
_SHOWN = 3
#: What the assertions of a pytest run found, for the plugin; nothing is kept outside of pytest.
RECORDS: Final[list[dict[str, Any]]] = []


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
        With the worst output, its difference in ulps and in units of the tolerance, what the tolerance allows for, and
        whether the difference is local or everywhere.
    InputError
        The shapes do not fit.
    """
    __tracebackhide__ = True
    a, b, form = _pair(actual, expected)
    allowed = np.asarray(tol.probabilistic, np.float64)
    if allowed.ndim and allowed.shape != a.shape:
        message = f"the tolerance is for results of shape {allowed.shape}, not {a.shape}"
        raise InputError(message)
    with np.errstate(all="ignore"):
        difference = np.where(_same(a, b), 0.0, np.abs(a - b))
        wrong = ~((difference <= allowed) | np.isposinf(allowed))
        ratio = np.where(difference > 0, difference / allowed, np.where(wrong, np.inf, 0.0))
    ratio = np.where(np.isnan(ratio), np.where(wrong, np.inf, 0.0), ratio)
    _record("assert_close", not wrong.any(), float(ratio.max(initial=0.0)), tol)
    if not wrong.any():
        return
    place = _worst(np.where(wrong, ratio, -1.0))
    size, worst = (float(np.broadcast_to(x, a.shape)[place]) for x in (allowed, np.asarray(tol.worst_case)))
    relation = "beyond the worst case, too" if difference[place] > worst else "within the worst case"
    message = (
        f"{int(wrong.sum())} of {a.size} outputs are further apart than rounding explains, {_spread(wrong)}"
        f"{_not_finite(wrong, a, b)}\n"
        f"worst at {list(map(int, place))}: {_number(a[place], form)} and {_number(b[place], form)}, {_ulps(a[place], b[place], form):.6g} ulps apart,"
        f" {difference[place]:.3g} where {size:.3g} is allowed (worst case {worst:.3g}: {relation})\n"
        f"tolerance: {tol.op} between {' and '.join(tol.sides)}, at a confidence of 1 - {1 - tol.confidence:.0e}\n"
        f"it allows for {tol.mechanism}"
    )
    raise AssertionError(message)


def assert_explained(*observed: Any, **settings: Any) -> None:
    """Raise `AssertionError` unless `fpsim.explain` finds why results differ: its exit code is 0.

    Parameters
    ----------
    *observed, **settings
        As `fpsim.explain` takes them: results, or a dict of them by name, with ``op=...`` and ``inputs=...``.

    Raises
    ------
    AssertionError
        With the explanation: a bug is suspected, or the cause is unknown.

    Examples
    --------
    >>> import numpy as np, fpsim
    >>> from fpsim.testing import assert_explained
    >>> x = np.random.default_rng(0).random(300, np.float32)
    >>> assert_explained(fpsim.sum(x, "serial"), fpsim.sum(x, "pairwise"), op="sum", inputs=x)
    """
    __tracebackhide__ = True
    from fpsim.explanation import explain

    found = explain(*observed, **settings)
    _record("assert_explained", found.exit_code == 0, None, None, verdict=found.verdict)
    if found.exit_code != 0:
        message = f"the difference is not explained, verdict: {found.verdict}\n{found}"
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
    __tracebackhide__ = True
    a, b, form = _pair(actual, expected)
    apart = np.array([_ulps(x, y, form) for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True)]).reshape(a.shape)
    wrong = ~((apart <= ulps) | _same(a, b))
    _record("assert_max_ulp", not wrong.any(), None, None)
    if wrong.any():
        place = _worst(np.where(np.isnan(apart), np.inf, apart))
        message = (
            f"{int(wrong.sum())} of {a.size} outputs differ by more than {ulps:g} ulp{'s' * (ulps != 1)}, {_spread(wrong)};"
            f" worst at {list(map(int, place))}:"
            f" {_number(a[place], form)} and {_number(b[place], form)}, {apart[place]:.6g} ulps apart"
        )
        raise AssertionError(message)


def assert_bitwise_equal(actual: Any, expected: Any, /) -> None:
    """Raise `AssertionError` where results do not have the same bits; signed zeros count, payloads of NaN do not.

    Parameters
    ----------
    actual, expected : array_like
        Results of one shape and type.
    """
    __tracebackhide__ = True
    a, b, form = _pair(actual, expected)
    kinds = [as_floats(x)[1] for x in (actual, expected)]
    if kinds[0] != kinds[1]:
        message = f"the results have different types, {kinds[0]} and {kinds[1]}"
        raise AssertionError(message)
    wrong = ~_same(a, b)
    _record("assert_bitwise_equal", not wrong.any(), None, None)
    if wrong.any():
        zeros = int((wrong & (a == 0) & (b == 0)).sum())
        places = [tuple(map(int, place)) for place in np.argwhere(wrong)[:_SHOWN]]
        shown = ", ".join(
            f"{list(p)}: {_number(a[p], form)} and {_number(b[p], form)} ({_ulps(a[p], b[p], form):.6g} ulps)"
            for p in places
        )
        extra = f", {zeros} of them only in the sign of zero" if zeros else ""
        message = f"{int(wrong.sum())} of {a.size} outputs have other bits{extra}, {_spread(wrong)}; {shown}"
        raise AssertionError(message)


def _pair(actual: Any, expected: Any) -> tuple[_Array, _Array, Any]:
    __tracebackhide__ = True
    (a, form), (b, other) = as_floats(actual, name="actual"), as_floats(expected, name="expected")
    if a.shape != b.shape:
        message = f"the results have different shapes, {a.shape} and {b.shape}"
        raise AssertionError(message)
    narrow = form if form.precision <= other.precision else other
    return a.astype(np.float64), b.astype(np.float64), as_format(narrow)


def _spread(wrong: NDArray[np.bool]) -> str:
    """Say where the wrong outputs are: everywhere, or in which part of the result."""
    if wrong.size == 1:
        return "a scalar"
    share = int(wrong.sum())
    places = np.argwhere(wrong)
    low, high = places.min(axis=0), places.max(axis=0) + 1
    room = int(np.prod(high - low))
    box = (
        "["
        + ", ".join(f"{a}:{b}" if b - a > 1 else f"{a}" for a, b in zip(low.tolist(), high.tolist(), strict=True))
        + "]"
    )
    if room * 2 <= wrong.size and share * 3 >= room:
        return f"in few outputs: look there for a local fault, all in {box}"
    if share * 10 >= wrong.size:
        return "all over the result"
    return "in few outputs: look there for a local fault"


def _not_finite(wrong: NDArray[np.bool], a: _Array, b: _Array) -> str:
    odd = int((wrong & (np.isfinite(a) != np.isfinite(b))).sum())
    return f"; {odd} where one result is not finite and the other is" if odd else ""


def _record(kind: str, passed: bool, used: float | None, tol: Tolerance | None, **extra: Any) -> None:
    """Keep what an assertion found, in a run of pytest."""
    test = os.environ.get("PYTEST_CURRENT_TEST")
    if test is None:
        return
    one: dict[str, Any] = {"test": test.rpartition(" (")[0], "assertion": kind, "passed": passed, **extra}
    if used is not None:
        one["worst_over_tolerance"] = plain_number(used)
    if tol is not None:
        one |= {"op": tol.op, "sides": list(tol.sides), "outputs": tol.outputs, "confidence": tol.confidence}
        one |= {"rtol": plain_number(tol.rtol), "atol": plain_number(tol.atol)}
    RECORDS.append(one)


def _same(a: _Array, b: _Array) -> NDArray[np.bool]:
    same: NDArray[np.bool] = ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
    return same


def _worst(x: _Array) -> tuple[Any, ...]:
    return tuple(np.unravel_index(int(np.argmax(x)), x.shape))


def _number(x: Any, form: Format) -> str:
    """Return a number with as many digits as tell those of a format apart."""
    return f"{float(x):.{1 + math.ceil(form.precision * math.log10(2.0))}g}"


def _ulps(a: Any, b: Any, form: Any) -> float:
    if not (np.isfinite(a) and np.isfinite(b)):
        return 0.0 if a == b else float("nan")
    exponent = max(int(np.frexp(float(b))[1]) - 1, form.emin) - form.precision + 1
    return float(np.ldexp(abs(float(a) - float(b)), -exponent))
