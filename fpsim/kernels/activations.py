"""Activation functions in float64, where their arguments are float32: within a few float64 ulps of the exact values.

What would lose digits, the argument of an exponential or of erfc far from 0, is kept as an unevaluated sum of two float64
numbers (Dekker, "A floating-point technique for extending the available precision", Numer. Math. 18, 1971).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fpsim.kernels._jit import inlined, kernel
from fpsim.kernels.general import fma64, two_sum_error

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Functions, numbered after those of `fpsim.kernels.elementwise`.
SILU, GELU, GELU_TANH, SOFTPLUS, RECIPROCAL = range(19, 24)

# Constants as a float64 number and what it lacks; tests/test_elementwise.py derives them anew.
HALF_ROOT = 0.7071067811865476, -4.833646656726457e-17  # sqrt(1/2)
SLOPE = 1.5957691216057308, -9.96930880911092e-17  # 2 sqrt(2/pi)
CUBIC = 0.07135481627260025, -6.175149918155315e-19  # SLOPE * 0.044715

_DENSITY = 1.1283791670955126  # 2 / sqrt(pi)
_HALVED = 2.0**-125  # below it a half of a float32 number may lie between two of them


@inlined
def _product(x: float, high: float, low: float) -> Any:
    """Return x * (high + low) as two numbers."""
    top = x * high
    return top, fma64(x, high, -top) + x * low


@kernel
def gelu(x: float) -> float:
    """Return x / 2 * erfc(-x / sqrt(2))."""
    if x == -np.inf:
        return -0.0
    top, rest = _product(-x, HALF_ROOT[0], HALF_ROOT[1])
    tail = math.erfc(top)
    if x < 0.0:
        tail -= _DENSITY * math.exp(-top * top) * rest
    return 0.5 * x * tail


@kernel
def gelu_tanh(x: float) -> float:
    """Return x / (1 + exp(-2u)) with u = sqrt(2/pi) * (x + 0.044715 x**3), which is x / 2 * (1 + tanh(u))."""
    if abs(x) > 100.0:
        return max(x, -0.0)
    square = x * x  # exact: 48 bits
    cubic, cubic_rest = _product(square, CUBIC[0], CUBIC[1])
    factor = SLOPE[0] + cubic
    factor_rest = two_sum_error(SLOPE[0], cubic, factor) + (SLOPE[1] + cubic_rest)
    top, rest = _product(-x, factor, factor_rest)
    if top > 700.0:
        return -0.0
    power = math.exp(top)
    return x / (1.0 + (power + power * rest))


@kernel
def softplus(x: float) -> float:
    """Return log(1 + exp(x))."""
    if x > 0.0:
        return x + math.log1p(math.exp(-x))
    return math.log1p(math.exp(x))


@kernel
def silu(x: float) -> float:
    """Return x / (1 + exp(-x))."""
    if x < -700.0:
        return -0.0
    return x / (1.0 + math.exp(-x))


@kernel
def apply(function: int, x: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Write a function of each x into out; limits stand for the values at infinities."""
    for i in range(x.size):
        if function == SILU:
            out[i] = silu(x[i])
        elif function == GELU:
            out[i] = gelu(x[i])
        elif function == GELU_TANH:
            out[i] = gelu_tanh(x[i])
        elif function == SOFTPLUS:
            out[i] = softplus(x[i])
        else:
            out[i] = 1.0 / x[i]


@kernel
def halve_upwards(x: NDArray[np.float32], out: NDArray[np.float32], flags: NDArray[np.uint8], decided: int) -> None:
    """Round x/2 + c*x*x, with a small positive c, where x is so small that the sum is next to x/2.

    There x/2 is a float32 number or in the middle of two, of which the upper one is then nearer. Clears the bit
    ``decided`` of the flags.
    """
    for i in range(x.size):
        value = np.float64(x[i])
        if abs(value) < _HALVED:
            units = np.int64(value * 2.0**149)  # exact
            half = np.float64((units + 1) >> 1) * 2.0**-149
            out[i] = np.float32(math.copysign(half, value))
            flags[i] &= ~decided & 0xFF
