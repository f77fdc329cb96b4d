"""The exact value of an operation, and how far rounding alone may lead from it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim._observed_operation import lowest_bits
from fpsim.explaining.names import ELEMENTARY
from fpsim.explaining.observation import Case
from fpsim.formats import FLOAT32, FLOAT64, Format

Doubles = NDArray[np.float64]
_MP_MOST = 4096  # elements whose function is worked out with mpmath
_FAITHFUL = 4.0  # ulps that a mathematical library may err without a word


@dataclass(frozen=True, eq=False, slots=True)
class Reference:
    """The exact results and the room that rounding has.

    Attributes
    ----------
    value : float64 array
        The exact results of the stored inputs, rounded once (longer formats where float64 would not do are rounded at
        the end).
    bound : float64 array
        No order of additions, and no usual formula, in the accumulator format errs more than this.
    size : float64 array
        What one long chain of roundings gives statistically.
    last : float64 array
        Half an ulp of the result: its own rounding, which `size` leaves out and `bound` includes.
    direct : float64 array or None
        The bound of the plain formula, where `bound` allows for another one that errs more.
    """

    value: Doubles
    bound: Doubles
    size: Doubles
    last: Doubles
    direct: Doubles | None = None


def unit_of(case: Case) -> float:
    """Return the unit roundoff of careful arithmetic for a case: float32's, or float64's for float64 results."""
    return accumulator_of(case).unit_roundoff


def accumulator_of(case: Case) -> Format:
    """Return the format that a careful routine accumulates in."""
    return FLOAT64 if case.result.precision > 24 else FLOAT32


def ulp(values: Any, form: Format) -> Doubles:
    """Return the ulps of numbers in a format."""
    with np.errstate(all="ignore"):
        values = np.asarray(values, np.float64)
        exponent = np.where(values == 0, form.emin, np.frexp(values)[1] - 1)
        return np.asarray(np.ldexp(1.0, np.maximum(exponent, form.emin) - form.precision + 1))


def wide(case: Case, x: Any) -> Any:
    """Return numbers in a type with bits to spare."""
    return np.asarray(x).astype(np.float64 if case.data.precision <= 24 else np.longdouble)


def terms_of(case: Case, x: Any = None) -> Any:
    """Return the terms of each output of a reduction: (outputs, n), and the shape of the outputs."""
    x = case.x if x is None else x
    axis = case.get("axis", 0 if case.op == "all_reduce" else None)
    if axis is None:
        return x.reshape(1, -1), ()
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    axes = tuple(int(a) % x.ndim for a in axes)
    kept = [i for i in range(x.ndim) if i not in axes]
    shape = tuple(x.shape[i] for i in kept)
    n = math.prod(x.shape[i] for i in axes)
    return x.transpose((*kept, *axes)).reshape(-1, n), shape


def _finish(case: Case, value: Any, bound: Any, size: Any) -> Reference:
    """Add the rounding of the result."""
    with np.errstate(all="ignore"):
        value = np.asarray(value).astype(np.float64)
        last = 0.5 * ulp(np.abs(value) + np.nan_to_num(np.asarray(bound, np.float64)), case.result)
        bound = np.asarray(bound, np.float64) + last * 1.000001
        return Reference(value, bound, np.broadcast_to(np.asarray(size, np.float64), value.shape), last)


def _chain(case: Case, terms: Any) -> Doubles:
    form = accumulator_of(case)
    squares = [np.sum(ulp(np.cumsum(part, axis=1)[:, 1:], form) ** 2, axis=1) for part in (terms, terms[:, ::-1])]
    return np.asarray(np.sqrt(np.maximum(*squares) / 12), np.float64)


def _sum(case: Case) -> Reference:
    terms, shape = terms_of(case)
    n, u = terms.shape[1], unit_of(case)
    t = wide(case, terms)
    scale = float(case.get("scale", 1))
    absolute = np.abs(t).sum(axis=1)
    value = np.array([math.fsum(row) for row in terms.astype(np.float64)]) if n * len(terms) < 2e6 else t.sum(axis=1)
    bound, size = max(n - 1, 0) * u * absolute, _chain(case, t)
    factor = scale / n if case.op == "mean" and n else scale
    extra = 2 * u * np.abs(value) * (case.op == "mean" or scale != 1)
    # a mean may also be taken of numbers that were divided first
    divided = (case.op == "mean") * u
    typical = np.sqrt(size**2 + (extra / 2) ** 2 + divided**2 * (t.astype(np.float64) ** 2).sum(axis=1) / 3)
    pair = [np.asarray(v * abs(factor)).reshape(shape) for v in (bound + extra + 2 * divided * absolute, typical)]
    return _finish(case, (value * factor).reshape(shape), *pair)


def _prod(case: Case) -> Reference:
    terms, shape = terms_of(case)
    t = wide(case, terms)
    n, u = t.shape[1], unit_of(case)
    with np.errstate(all="ignore"):
        value = np.prod(t, axis=1)
        pair = [np.asarray(factor * u * np.abs(value)).reshape(shape) for factor in (n, math.sqrt(n / 3))]
    return _finish(case, value.reshape(shape), *pair)


def _variance(case: Case) -> Reference:
    terms, shape = terms_of(case)
    t = wide(case, terms)
    n, u = t.shape[1], unit_of(case)
    with np.errstate(all="ignore"):
        mean = t.mean(axis=1, keepdims=True)
        mean = mean + (t - mean).mean(axis=1, keepdims=True)
        value = ((t - mean) ** 2).sum(axis=1) / np.maximum(n - case.get("ddof", 0), 0)
        squares = (t**2).sum(axis=1) / max(n - case.get("ddof", 0), 1)
        bound = (2 * n + 6) * u * squares
        wrong_mean = np.abs(mean[:, 0]) * u * math.sqrt(n)
        # each square has an error of its own, their sum that of a chain, the quotient one more
        squared = ((t - mean) ** 4).sum(axis=1)
        chain = np.hypot(_chain(case, (t - mean) ** 2), u * np.sqrt(3 * squared)) / np.maximum(
            n - case.get("ddof", 0), 1
        )
        size = np.hypot(np.asarray(chain, np.float64), u * value) + wrong_mean**2
        if case.op == "std":
            root = np.sqrt(value)
            bound = (
                np.maximum(np.sqrt(value + bound) - root, root - np.sqrt(np.maximum(value - bound, 0))) + 2 * u * root
            )
            size = np.sqrt(value + size) - root + u * root
            value = root
    return _finish(case, value.reshape(shape), np.asarray(bound).reshape(shape), np.asarray(size).reshape(shape))


def _norm(case: Case) -> Reference:
    terms, shape = terms_of(case)
    t = wide(case, terms)
    n, u = t.shape[1], unit_of(case)
    squares = (t**2).sum(axis=1)
    root = np.sqrt(squares)
    # the root halves relative errors; a bound above 1 says nothing
    bound = root * min((n + 2) * u / 2 / max(1 - n * u, 1e-300) if n * u < 1 else 1.0, 1.0)
    return _finish(
        case, root.reshape(shape), bound.reshape(shape), (_chain(case, t**2) / (2 * root + 1e-300)).reshape(shape)
    )


def _products(case: Case) -> Reference:
    """Products of matrices or vectors in float64, or in longer numbers for float64 operands of moderate size."""
    a, b = (wide(case, x) for x in case.inputs[:2])
    n, u = a.shape[-1], unit_of(case)
    scale = float(case.get("scale", 1))
    with np.errstate(all="ignore"):
        value, absolute = a @ b, np.abs(a) @ np.abs(b)
        squares = np.sqrt((a**2) @ (b**2))
        if len(case.inputs) > 2:
            value, absolute = value + wide(case, case.inputs[2]), absolute + np.abs(case.inputs[2])
    bound = (n + 1) * u * absolute if n else 0 * absolute
    # like a random walk: the partial sums grow as the root of the sum of squares, or with the sum itself
    size = u * math.sqrt(max(n, 1) / 3) * (squares + np.abs(value))
    if exactly_summed(case):
        bound = size = 0 * absolute
        arrays = [np.asarray(v, np.float64) for v in (value * scale, bound, size, size)]
        return Reference(*arrays)
    return _finish(case, value * scale, bound * abs(scale), size * abs(scale))


def exactly_summed(case: Case) -> bool:
    """Tell whether every order of a product is exact: whole multiples of one power of two that stay small enough."""
    a, b = (np.asarray(x, np.float64) for x in case.inputs[:2])
    if not a.size or not b.size:
        return True
    if len(case.inputs) > 2 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return False
    if not a.any() or not b.any():
        return True
    steps = [2.0 ** int(lowest_bits(x.reshape(-1), 0)) for x in (a, b)]
    most = float((np.abs(a) @ np.abs(b)).max(initial=0.0))
    return (
        most
        <= min(2.0**case.result.precision, 2.0**24 if case.result.precision <= 24 else 2.0**53) * steps[0] * steps[1]
    )


def _scan(case: Case) -> Reference:
    x = case.x.reshape(-1) if case.get("axis") is None else np.moveaxis(case.x, int(case.get("axis")), -1)
    t, u = wide(case, x), unit_of(case)
    k = np.arange(1, t.shape[-1] + 1)
    if case.op == "cumsum":
        value = np.cumsum(t, axis=-1)
        size = np.sqrt(np.cumsum(ulp(value, accumulator_of(case)) ** 2, axis=-1) / 12)
        bound = k * u * np.cumsum(np.abs(t), axis=-1)
    else:
        with np.errstate(all="ignore"):
            value = np.cumprod(t, axis=-1)
            bound, size = k * u * np.abs(value), np.sqrt(k / 3) * u * np.abs(value)
    found = _finish(case, value, bound, size)
    if case.get("axis") is not None:
        moved = [np.moveaxis(v, -1, int(case.get("axis"))) for v in (found.value, found.bound, found.size, found.last)]
        found = Reference(*moved)
    return found


# -- elementwise ------------------------------------------------------------------------------------------------------


def _mp_function(name: str) -> Callable[..., Any] | None:
    import mpmath

    own: dict[str, Callable[..., Any]] = {
        "exp2": lambda x: mpmath.mpf(2) ** x, "log2": lambda x: mpmath.log(x, 2), "rsqrt": lambda x: 1 / mpmath.sqrt(x),
        "reciprocal": lambda x: 1 / x, "divide": lambda x, y: x / y, "pow": mpmath.power, "abs": abs,
        "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)), "erf": mpmath.erf, "log1p": mpmath.log1p,
        "gelu": lambda x: x * mpmath.ncdf(x), "silu": lambda x: x / (1 + mpmath.exp(-x)),
        "gelu_tanh": lambda x: x / 2 * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3))),
        "softplus": lambda x: mpmath.log1p(mpmath.exp(x)), "lgamma": mpmath.loggamma, "compare": lambda x: mpmath.mpf(x < 0),
    }  # fmt: skip
    return own.get(name) or getattr(mpmath, name, None)


def _elementwise(case: Case) -> Reference | None:
    import mpmath

    from fpsim.elementary_errors import unit_of as spacing
    from fpsim.explaining.elementary import exact_results

    if (measured := exact_results(case)) is not None:
        exact, room = measured
        unit = spacing(exact)
        # Four times this and half an ulp are what was measured of libraries, see `judging`.
        return Reference(exact, np.maximum(256 * unit, room), np.maximum(room - unit / 2, 0) / 4, unit / 2)
    function = _mp_function(case.op)
    arrays = [np.asarray(x, np.float64) for x in case.inputs]
    if case.op == "divide" and len(arrays) == 1:
        arrays = [arrays[0], arrays[0]]
    if case.op == "pow" and len(arrays) == 1:
        arrays.append(np.float64(case.get("exponent", 2)) * np.ones(arrays[0].shape))
    arrays = list(np.broadcast_arrays(*arrays))
    if function is None or arrays[0].size > _MP_MOST:
        return None
    out = np.empty(arrays[0].shape)
    with mpmath.workprec(2200):  # arguments up to 2**1024 are reduced exactly
        for place in np.ndindex(out.shape):
            try:
                value = function(*(mpmath.mpf(float(x[place])) for x in arrays))
                out[place] = float(value.real) if getattr(value, "imag", 0) == 0 else math.nan
            except (ZeroDivisionError, ValueError, TypeError, OverflowError):
                out[place] = math.nan if arrays[0][place] == 0 or case.op != "reciprocal" else math.inf
    unit = ulp(out, case.result)
    unit = unit * (case.op != "compare")
    return Reference(out, 256 * unit, _FAITHFUL / 4 * unit, unit / 2)


# -- compositions -----------------------------------------------------------------------------------------------------


def _rowwise(case: Case) -> Reference:
    axis = case.get("axis", -1)
    x = wide(case, case.x)
    u = unit_of(case)
    with np.errstate(all="ignore"):
        shifted = x - x.max(axis=axis, keepdims=True)
        log_sum = np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
        n = x.shape[axis]
        if case.op == "logsumexp":
            value = (log_sum + x.max(axis=axis, keepdims=True)).squeeze(axis)
        else:
            value = shifted - log_sum if case.op == "log_softmax" else np.exp(shifted - log_sum)
        room = (n + 8) * u * (1 + np.abs(shifted).max(initial=0.0) + np.abs(value))
    return _finish(case, value, room, np.sqrt(n + 8) * u * (1 + np.abs(value)))


def normalised(case: Case, x: Any, rounded: Callable[[Any], Any], *, unbiased: bool = False) -> Any:
    """Return a layer, instance or root-mean-square normalisation whose every step is passed through `rounded`."""
    eps = float(case.get("eps", 1e-5))
    axes = tuple(range(2, x.ndim)) if case.op == "instance_norm" and x.ndim > 2 else (-1,)
    n = math.prod(x.shape[a] for a in axes)
    with np.errstate(all="ignore"):
        if case.op == "rms_norm":
            scale = rounded(
                1 / rounded(np.sqrt(rounded(rounded(rounded(x * x).sum(axis=axes, keepdims=True) / n) + eps)))
            )
            return rounded(x * scale)
        mean = rounded(x.sum(axis=axes, keepdims=True) / n)
        centred = rounded(x - mean)
        var = (centred**2).sum(axis=axes, keepdims=True) / (n - unbiased)
        return rounded(centred * rounded(1 / np.sqrt(var + eps)))


def _normalisation(case: Case) -> Reference:
    x = wide(case, case.x)
    value = normalised(case, x, lambda v: v)
    n, u = x.shape[-1], unit_of(case)
    size = math.sqrt(n + 8) * u * (1 + np.abs(value))
    largest = np.abs(x).max(initial=1.0) / max(float(np.std(x.astype(np.float64))), 1e-30)
    return _finish(case, value, (n + 8) * u * (1 + np.abs(value)) * (1 + largest), size * (1 + largest) ** 0.5)


def _distance(case: Case) -> Reference:
    a, b = (wide(case, x) for x in case.inputs[:2])
    a, b = np.atleast_2d(a), np.atleast_2d(b)
    u = unit_of(case)
    value = np.sqrt(np.array([[((p - q) ** 2).sum() for q in b] for p in a]))
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :]
    n = a.shape[1]
    # the expanded formula is within its own bound, and loses what cancels
    room = 2 * (n + 3) * u * squares
    bound = np.maximum(np.sqrt(value**2 + room) - value, value - np.sqrt(np.maximum(value**2 - room, 0)))
    return _finish(case, value, bound, (math.sqrt(n) + 3) * u * value)


def _linspace(case: Case) -> Reference:
    start, end, steps = (float(x) for x in case.inputs[:3])
    i = np.arange(int(steps))
    value = start + i * ((end - start) / max(int(steps) - 1, 1))
    u = unit_of(case)
    most = max(abs(start), abs(end))
    return _finish(case, value, 4 * u * most * np.ones(i.size), u * most * np.ones(i.size))


def _rolling(case: Case) -> Reference:
    x, window = wide(case, case.x), int(case.get("window", 1))
    views = np.lib.stride_tricks.sliding_window_view(x, window)
    value = views.var(axis=-1, ddof=case.get("ddof", 1), dtype=np.longdouble)
    u = unit_of(case)
    most = np.maximum.accumulate((views**2).max(axis=-1))
    return _finish(case, value, 16 * x.size * u * most, 4 * u * value)


def _running(case: Case) -> Reference:
    """Return the running variance of data that do not change: it decays towards the variance of the batch."""
    momentum, steps = float(case.get("momentum", 0.9)), int(case.get("steps", 1))
    batch = float(np.var(np.asarray(case.x, np.float64))) if case.inputs else 0.0
    value = np.float64(momentum**steps + (1 - momentum**steps) * batch)
    u = unit_of(case)
    return _finish(case, value, 4 * steps * u * value, math.sqrt(steps) * 2 * u * value)


def _convolution(case: Case) -> Reference:
    """Return a correlation without padding; its room is that of a transform (FFT, Winograd).

    A transform mixes all activations of a tile, so that its errors scale with the largest of them (Higham, Accuracy and
    Stability of Numerical Algorithms, section 24.1).
    """
    value, absolute = _correlated(case)
    x, w = (np.abs(wide(case, v)) for v in case.inputs[:2])
    unit = unit_of(case) * math.log2(max(x.size, 2)) * float(x.max(initial=0.0)) * float(w.sum())
    direct = (w.size + 1) * unit_of(case) * absolute
    found = _finish(case, value, np.maximum(16 * unit, direct), 4 * unit + 0 * absolute)
    return replace(found, direct=np.asarray(direct, np.float64) + found.last)


def _correlated(case: Case) -> tuple[Any, Any]:
    x, w = (wide(case, v) for v in case.inputs[:2])
    views = np.lib.stride_tricks.sliding_window_view(x, w.shape)
    axes = tuple(range(x.ndim, 2 * x.ndim))
    return (views * w).sum(axis=axes), (np.abs(views) * np.abs(w)).sum(axis=axes)


_ELEMENTWISE = (*ELEMENTARY, "reciprocal", "divide", "compare")
#: How the exact results of each operation are found.
OPERATIONS: Final[dict[str, Callable[[Case], Reference | None]]] = {
    "sum": _sum, "mean": _sum, "all_reduce": _sum, "prod": _prod, "var": _variance, "std": _variance, "norm": _norm,
    "dot": _products, "matmul": _products, "cumsum": _scan, "cumprod": _scan, "softmax": _rowwise,
    "log_softmax": _rowwise, "logsumexp": _rowwise, "layer_norm": _normalisation, "instance_norm": _normalisation,
    "rms_norm": _normalisation, "distance": _distance, "linspace": _linspace, "rolling_var": _rolling,
    "batch_norm": _running, "conv": _convolution, **dict.fromkeys(_ELEMENTWISE, _elementwise),
}  # fmt: skip
ELEMENTWISE: Final = frozenset(_ELEMENTWISE)


def reference(case: Case, /) -> Reference | None:
    """Return the exact results of a case, or None where fpsim does not know the operation."""
    find = OPERATIONS.get(case.op)
    return None if find is None else find(case)
