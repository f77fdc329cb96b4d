"""Correctly rounded float32 results of elementwise functions, and the error of a library's results in ulps.

A float64 value decides almost every rounding: its error bound is known, and only where the bound reaches across a
rounding boundary is the function computed anew with mpmath, in as many bits as it takes (Ziv, "Fast evaluation of
elementary mathematical functions with correctly rounded last bit", ACM TOMS 17, 1991).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

from fpsim.errors import InputError
from fpsim.kernels import activations, elementwise as kernels

Array = NDArray[Any]

# The largest known errors of the C libraries' float64 functions used here are below 3 ulps, but for erfc (tanh of glibc:
# 2.2, erfc: 5.2; Gladman, Innocente, Mather, Zimmermann, "Accuracy of mathematical functions in single, double, double
# extended, and quadruple precision", 2024); composed functions add a few roundings. 2**-47 is 32 ulps or more.
BOUND = 2.0**-47

_LARGEST = 2.0**128  # what an infinity stands for when a boundary is computed
_local = threading.local()


@dataclass(frozen=True, slots=True)
class Function:
    """An elementwise function of float32 operands.

    Attributes
    ----------
    name : str
        Such as ``exp``.
    operands : int
        How many it takes.
    code : int
        Its number in `fpsim.kernels.elementwise` or `fpsim.kernels.activations`.
    exact : callable, optional
        Takes an mpmath context and the operands; None for the operations that IEEE 754 requires to be correctly
        rounded, whose float64 result is as good as exact.
    halves : bool
        Whether the function is x/2 plus a small positive multiple of x**2 for small x.
    """

    name: str
    operands: int
    code: int
    exact: Callable[..., Any] | None = None
    halves: bool = False

    @property
    def composed(self) -> bool:
        """Whether C libraries lack it, and `fpsim.kernels.activations` puts it together."""
        return self.code >= activations.SILU


def _power(m: Any, x: Any, y: Any) -> Any:
    return m.power(x, y)


def _gelu(m: Any, x: Any) -> Any:
    return x / 2 * m.erfc(-x / m.sqrt(2))


def _gelu_tanh(m: Any, x: Any) -> Any:
    inner = m.sqrt(2 / m.pi) * (x + m.mpf(44715) / 1000000 * x**3)
    return x / (1 + m.exp(-2 * inner))


FUNCTIONS = {
    f.name: f
    for f in (
        Function("add", 2, kernels.ADD),
        Function("subtract", 2, kernels.SUBTRACT),
        Function("multiply", 2, kernels.MULTIPLY),
        Function("divide", 2, kernels.DIVIDE),
        Function("sqrt", 1, kernels.SQRT),
        Function("fma", 3, kernels.MULTIPLY_ADD),
        Function("multiply_add", 3, kernels.MULTIPLY_ADD),
        Function("exp", 1, kernels.EXP, lambda m, x: m.exp(x)),
        Function("exp2", 1, kernels.EXP2, lambda m, x: m.power(2, x)),
        Function("expm1", 1, kernels.EXPM1, lambda m, x: m.expm1(x)),
        Function("log", 1, kernels.LOG, lambda m, x: m.log(x)),
        Function("log2", 1, kernels.LOG2, lambda m, x: m.log(x) / m.log(2)),
        Function("log1p", 1, kernels.LOG1P, lambda m, x: m.log1p(x)),
        Function("sin", 1, kernels.SIN, lambda m, x: m.sin(x)),
        Function("cos", 1, kernels.COS, lambda m, x: m.cos(x)),
        Function("tanh", 1, kernels.TANH, lambda m, x: m.tanh(x)),
        Function("erf", 1, kernels.ERF, lambda m, x: m.erf(x)),
        Function("sigmoid", 1, kernels.SIGMOID, lambda m, x: 1 / (1 + m.exp(-x))),
        Function("rsqrt", 1, kernels.RSQRT, lambda m, x: 1 / m.sqrt(x)),
        Function("pow", 2, kernels.POW, _power),
        Function("reciprocal", 1, activations.RECIPROCAL),
        Function("silu", 1, activations.SILU, lambda m, x: x / (1 + m.exp(-x)), halves=True),
        Function("gelu", 1, activations.GELU, _gelu, halves=True),
        Function("gelu_tanh", 1, activations.GELU_TANH, _gelu_tanh, halves=True),
        Function("softplus", 1, activations.SOFTPLUS, lambda m, x: max(x, 0) + m.log1p(m.exp(-abs(x)))),
    )
}


@dataclass(frozen=True, slots=True)
class Reference:
    """What a function gives, for n positions.

    Attributes
    ----------
    values : float64 array of shape (n,)
        Within 2**-47 of the exact values, relatively.
    correct : float32 array of shape (n,)
        The exact values, rounded once to nearest even.
    flags : uint8 array of shape (n,)
        ``TRIVIAL`` and ``SUBNORMAL`` of `fpsim.kernels.elementwise`; ``UNSAFE`` where mpmath decided.
    """

    values: Array
    correct: Array
    flags: Array


def _function(name: str) -> Function:
    if name not in FUNCTIONS:
        message = f"there is no elementwise function {name}; there are {', '.join(FUNCTIONS)}"
        raise InputError(message)
    return FUNCTIONS[name]


def _operands(function: Function, operands: tuple[Any, ...]) -> list[Array]:
    arrays = [np.ascontiguousarray(x) for x in operands]
    if len(arrays) != function.operands:
        message = f"{function.name} takes {function.operands} operands, not {len(arrays)}"
        raise InputError(message)
    if any(x.dtype != np.float32 or x.shape != arrays[0].shape for x in arrays):
        message = f"{function.name} takes float32 arrays of one shape"
        raise InputError(message)
    return [x.ravel() for x in arrays]


def _float64_values(function: Function, operands: list[Array]) -> Array:
    values = np.empty(operands[0].size, np.float64)
    if function.operands == 3:
        a, b, c = operands
        kernels.fused(a, b, c, values)
    elif function.operands == 2:
        a, b = (x.astype(np.float64) for x in operands)
        kernels.apply2(function.code, a, b, values)
    else:
        kernel = activations.apply if function.composed else kernels.apply
        kernel(function.code, operands[0].astype(np.float64), values)
    return values


def reference(function: str, /, *operands: Any) -> Reference:
    """Return the exact results of a function, as float64 values and correctly rounded.

    Parameters
    ----------
    function : str
        A name in `FUNCTIONS`. ``fma`` and ``multiply_add`` both mean a*b + c rounded once; ``gelu_tanh`` is x/2 *
        (1 + tanh(sqrt(2/pi) * (x + 0.044715 x**3))), and ``softplus`` log(1 + exp(x)). The value at an infinity is the
        limit, also where the formula has inf / inf or inf * 0.
    *operands : float32 arrays of one shape
        Taken as vectors.

    Raises
    ------
    InputError
        The function is unknown, or the operands do not fit it.
    """
    known = _function(function)
    arrays = _operands(known, operands)
    with np.errstate(all="ignore"):
        values = _float64_values(known, arrays)
        correct, flags = np.empty(values.size, np.float32), np.zeros(values.size, np.uint8)
        for x in arrays:
            kernels.mark_subnormal(x, flags)
        kernels.round_safely(values, BOUND if known.exact else 0.0, correct, flags)
        if known.halves:
            activations.halve_upwards(arrays[0], correct, flags, kernels.UNSAFE)
    for i in np.flatnonzero(flags & kernels.UNSAFE):
        correct[i] = _decided(known, float(values[i]), [float(x[i]) for x in arrays])
    for x in arrays:
        kernels.mark_equal(x, correct, flags)
    return Reference(values, correct, flags)


def correctly_rounded(function: str, /, *operands: Any) -> Array:
    """Return the exact results of a function rounded once to float32, in the shape of the operands.

    Examples
    --------
    >>> import numpy as np
    >>> from fpsim.devices.elementwise import correctly_rounded
    >>> correctly_rounded("exp", np.array([0.0, 1.0], np.float32))
    array([1.       , 2.7182817], dtype=float32)
    """
    return reference(function, *operands).correct.reshape(np.shape(operands[0]))


def ulp_errors(function: str, /, *operands: Any, observed: Any) -> Array:
    """Return how far a library's float32 results are from the exact ones, in ulps of the exact ones.

    Parameters
    ----------
    function : str
        A name in `FUNCTIONS`.
    *operands : float32 arrays of one shape
        What the library was given.
    observed : float32 array of the same shape
        What it gave.

    Returns
    -------
    float64 array of the same shape
        The distance from the exact value over the spacing of the float32 numbers at the exact value (2**-149 below
        2**-126): at most 0.5 for a correctly rounded result. An infinity counts as 2**128; NaN where one of the two is
        NaN, and infinity where the exact result is infinite and the observed one is not.

    Examples
    --------
    >>> import numpy as np
    >>> from fpsim.devices.elementwise import ulp_errors
    >>> x = np.array([1.0], np.float32)
    >>> ulp_errors("exp", x, observed=np.nextafter(np.exp(x), np.float32(3))).round(2)
    array([1.65])
    """
    values = reference(function, *operands).values
    errors = np.empty(values.size, np.float64)
    kernels.ulp_errors(values, observed_vector(observed, operands), errors)
    return errors.reshape(np.shape(operands[0]))


def observed_vector(observed: Any, operands: tuple[Any, ...]) -> Array:
    """Return results as a vector, after a check that they fit the operands."""
    results = np.ascontiguousarray(observed)
    if results.dtype != np.float32 or results.shape != np.shape(operands[0]):
        message = "observed must be a float32 array of the shape of the operands"
        raise InputError(message)
    return results.ravel()


def _context() -> Any:
    if not hasattr(_local, "context"):
        _local.context = mpmath.MPContext()
    return _local.context


def _decided(function: Function, value: float, operands: list[float]) -> np.float32:
    # The exact value is near the boundary between two neighbours: find its side, or that it is the boundary itself.
    with np.errstate(all="ignore"):
        low, high = np.float32(value * (1 - BOUND)), np.float32(value * (1 + BOUND))
    if value < 0:
        low, high = high, low
    boundary = (max(float(low), -_LARGEST) + min(float(high), _LARGEST)) / 2
    context = _context()
    precision = 120
    while True:
        context.prec = precision
        assert function.exact is not None
        exact = function.exact(context, *(context.mpf(x) for x in operands))
        distance = exact - context.mpf(boundary)
        if abs(distance) > abs(exact) * context.mpf(2) ** (16 - precision):
            return high if distance > 0 else low
        if _is_equal(function.name, operands, boundary):
            return _even(low, high)
        precision *= 2


def _even(low: np.float32, high: np.float32) -> np.float32:
    return low if int(np.float32(low).view(np.uint32)) % 2 == 0 else high


def _is_equal(name: str, operands: list[float], boundary: float) -> bool:
    """Tell whether the function is exactly the boundary, of which a power alone is capable.

    A boundary has at most 25 bits. Let x = a * 2**e with odd a, and y = p / q with a power of two q. If a > 1, then
    a**p = b**q for the odd part b < 2**25 of the boundary, so 0 < p < 16 and q < 16: small enough to check with integers.
    """
    if name not in {"exp2", "pow"}:
        return False
    base, exponent = (Fraction(2), Fraction(operands[0])) if name == "exp2" else map(Fraction, operands)
    p, q, target = exponent.numerator, exponent.denominator, Fraction(abs(boundary))
    magnitude = abs(base)
    odd = magnitude.numerator >> ((magnitude.numerator & -magnitude.numerator).bit_length() - 1)
    if odd == 1:
        power = (magnitude.numerator.bit_length() - magnitude.denominator.bit_length()) * exponent
        return power.denominator == 1 and Fraction(2) ** int(power) == target
    return 0 < p < 16 and q < 16 and magnitude**p == target**q
