"""The float32 functions of NVIDIA's CUDA math library, to the bit: range reductions around the special-function unit.

Every function takes `flush`: false for code that keeps subnormal numbers (PyTorch), true for code compiled to flush
them to zero (CuPy).

The steps were inferred from the outputs of CUDA 13.0 on an NVIDIA H200, most of them tried first in the form that N.
Juffa published (see the documentation page on elementary functions); coefficients are fitted to the outputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels import special_function_unit as unit
from fpsim.kernels._jit import kernel
from fpsim.kernels.cuda_angles import cos, sin
from fpsim.kernels.cuda_arithmetic import coefficients, float_of, flushed, polynomial
from fpsim.kernels.cuda_logarithms import log, log1p, log2
from fpsim.kernels.elementwise import fma32

(
    EXP, EXP2, EXPM1, LOG, LOG2, LOG1P, SIN, COS, TANH, ERF, RSQRT, SQRT, RECIPROCAL, SIGMOID, SILU, GELU, GELU_TANH,
    SOFTPLUS,
) = range(18)  # fmt: skip

_ZERO, _HALF, _ONE, _TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)
_INFINITY, _NAN = np.float32(np.inf), np.float32(np.nan)
_SMALLEST_NORMAL = np.float32(2.0**-126)
_LOG2E = np.float32(1.4426950408889634)
_LOG2E_252 = np.float32(_LOG2E / np.float32(252))
_LOG2E_REST = np.float32(1.925963033500011e-08)  # log2(e) - float32(log2(e))
_ROOT_HALF = np.float32(0.7071067811865476)
_ROOT_TWO_OVER_PI = np.float32(0.7978845608028654)
_TWO_LOG2E = np.float32(2.8853900817779268)

_TANH = coefficients("0x1.01e104p-6", "-0x1.ac795cp-5", "0x1.10b282p-3", "-0x1.5553dap-2")
_ERF = coefficients(
    "0x1.63d2d4p-14", "-0x1.ae9a40p-11", "0x1.55abd4p-8", "-0x1.b837cep-6", "0x1.ce315ep-4", "-0x1.812758p-2",
    "0x1.06eba6p-3",
)  # fmt: skip
_ERF_TAIL = coefficients(
    "0x1.d69874p-14", "-0x1.5c00b6p-10", "0x1.13233ep-7", "-0x1.49b334p-5", "0x1.46aa32p-3", "0x1.d369f2p-1",
    "0x1.421428p-1",
)  # fmt: skip
_ERF_CHANGES = np.float32(1.00296)
_EXPM1 = coefficients("0x1.6bd7ccp-10", "0x1.12acc6p-7", "0x1.5557c6p-5", "0x1.5553ecp-3", "0x1.fffffcp-2")
_LN2_UPPER, _LN2_LOWER = np.float32(-0.693145752), np.float32(-1.42860677e-6)


@kernel
def exp(x: Any, flush: bool) -> Any:
    """Return e**x: 2**f of the unit, scaled by 2**j, where x / log(2) = j + f."""
    w = fma32(x, _LOG2E_252, _HALF)
    w = min(max(w, _ZERO), _ONE)  # of NaN, NaN or 0: the unit returns NaN anyway
    j = np.floor(np.float64(w) * 252.0) - 126.0
    f = fma32(x, _LOG2E_REST, fma32(x, _LOG2E, np.float32(-j)))
    return flushed(np.float32(np.float64(unit.ex2(f)) * 2.0**j), flush)


@kernel
def tanh(x: Any, flush: bool) -> Any:
    """Return tanh(x): 1 - 2 / (e**(2x) + 1) with two instructions of the unit, a polynomial below 0.6."""
    x = flushed(x, flush)
    t = abs(x)
    if t >= np.float32(0.6):
        power = unit.ex2(np.float32(t * _TWO_LOG2E))
        y = fma32(unit.rcp(np.float32(power + _ONE)), -_TWO, _ONE)
        return np.float32(np.copysign(y, x))
    s = np.float32(x * x)
    return flushed(fma32(fma32(polynomial(_TANH, s), s, _ZERO), x, x), flush)


@kernel
def erf(x: Any, flush: bool) -> Any:
    """Return erf(x): a polynomial in the middle, 1 - 2**(-t - t p(t)) with t = abs(x) outside."""
    x = flushed(x, flush)
    t = abs(x)
    if t < _ERF_CHANGES:
        return flushed(fma32(polynomial(_ERF, np.float32(x * x)), x, x), flush)
    if not t < np.float32(4):
        return np.float32(np.copysign(_ONE, x)) if x == x else _NAN  # noqa: PLR0124
    power = unit.ex2(fma32(polynomial(_ERF_TAIL, t), -t, -t))
    return np.float32(np.copysign(np.float32(_ONE - power), x))


@kernel
def expm1(x: Any, flush: bool) -> Any:
    """Return e**x - 1 = 2**j (e**f - 1) + 2**j - 1, with f = x below 0.41."""
    x = flushed(x, flush)
    if not abs(x) < np.float32(128):
        return _INFINITY if x > _ZERO else (-_ONE if x < _ZERO else _NAN)
    j = _ZERO if abs(x) < np.float32(0.41) else np.float32(np.rint(np.float32(x * _LOG2E)))
    f = fma32(j, _LN2_LOWER, fma32(j, _LN2_UPPER, x))
    y = np.float32(polynomial(_EXPM1, f) * f)
    y = fma32(y, f, f)
    if x < np.float32(-25):
        return -_ONE
    if j >= np.float32(128):
        half = float_of((min(np.int64(j), 128) + 126) << 23)
        y = fma32(y, half, np.float32(half - _HALF)) if j < np.float32(129) else _INFINITY
        return np.float32(y + y)
    scale = float_of((np.int64(j) + 127) << 23)
    return flushed(fma32(y, scale, np.float32(scale - _ONE)), flush) if x != _ZERO else x


@kernel
def rsqrt(x: Any, flush: bool) -> Any:
    """Return 1 / sqrt(x): one instruction of the unit, which takes a subnormal x times 2**24."""
    if (not flush) & (abs(x) < _SMALLEST_NORMAL) & (x != _ZERO):
        return np.float32(unit.rsqrt(np.float32(x * np.float32(2.0**24))) * np.float32(2.0**12))
    return unit.rsqrt(x)


@kernel
def exp2(x: Any, flush: bool) -> Any:
    """Return 2**x: one instruction of the unit; if subnormal numbers are kept, the square of 2**(x/2) below -126."""
    if flush | (not x < np.float32(-126)):
        return unit.ex2(x)
    y = unit.ex2(np.float32(x * _HALF))
    return np.float32(y * y)


@kernel
def divide(x: Any, y: Any, flush: bool) -> Any:
    """Return x / y, correctly rounded."""
    return flushed(np.float32(flushed(x, flush) / flushed(y, flush)), flush)


@kernel
def sqrt(x: Any, flush: bool) -> Any:
    """Return the square root of x, correctly rounded."""
    return np.float32(np.sqrt(flushed(x, flush)))


@kernel
def sigmoid(x: Any, flush: bool) -> Any:
    """Return 1 / (1 + exp(-x))."""
    return divide(_ONE, np.float32(_ONE + exp(-x, flush)), flush)


@kernel
def silu(x: Any, flush: bool) -> Any:
    """Return x / (1 + exp(-x))."""
    return divide(x, np.float32(_ONE + exp(-x, flush)), flush)


@kernel
def gelu(x: Any, flush: bool) -> Any:
    """Return x / 2 (1 + erf(x / sqrt(2)))."""
    x = flushed(x, flush)
    half = flushed(np.float32(x * _HALF), flush)
    return flushed(np.float32(half * np.float32(_ONE + erf(np.float32(x * _ROOT_HALF), flush))), flush)


@kernel
def gelu_tanh(x: Any, flush: bool) -> Any:
    """Return x / 2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x**3)))."""
    x = flushed(x, flush)
    cube = np.float32(np.float32(x * x) * x)
    inner = np.float32(_ROOT_TWO_OVER_PI * fma32(np.float32(0.044715), cube, x))
    half = flushed(np.float32(x * _HALF), flush)
    return flushed(np.float32(half * np.float32(_ONE + tanh(inner, flush))), flush)


@kernel
def softplus(x: Any, flush: bool) -> Any:
    """Return log(1 + exp(x)), or x above 20."""
    if x > np.float32(20):
        return x
    return log1p(exp(x, flush), flush)


@kernel
def evaluate(function: int, flush: bool, x: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Write a function of each x into out."""
    n = x.size
    if function == EXP:
        for i in range(n):
            out[i] = exp(x[i], flush)
    elif function == EXP2:
        for i in range(n):
            out[i] = exp2(x[i], flush)
    elif function == EXPM1:
        for i in range(n):
            out[i] = expm1(x[i], flush)
    elif function == LOG:
        for i in range(n):
            out[i] = log(x[i], flush)
    elif function == LOG2:
        for i in range(n):
            out[i] = log2(x[i], flush)
    elif function == LOG1P:
        for i in range(n):
            out[i] = log1p(x[i], flush)
    elif function == SIN:
        for i in range(n):
            out[i] = sin(x[i], flush)
    elif function == COS:
        for i in range(n):
            out[i] = cos(x[i], flush)
    elif function == TANH:
        for i in range(n):
            out[i] = tanh(x[i], flush)
    elif function == ERF:
        for i in range(n):
            out[i] = erf(x[i], flush)
    elif function == RSQRT:
        for i in range(n):
            out[i] = rsqrt(x[i], flush)
    elif function == SQRT:
        for i in range(n):
            out[i] = sqrt(x[i], flush)
    elif function == RECIPROCAL:
        for i in range(n):
            out[i] = divide(_ONE, x[i], flush)
    elif function == SIGMOID:
        for i in range(n):
            out[i] = sigmoid(x[i], flush)
    elif function == GELU:
        for i in range(n):
            out[i] = gelu(x[i], flush)
    elif function == GELU_TANH:
        for i in range(n):
            out[i] = gelu_tanh(x[i], flush)
    elif function == SOFTPLUS:
        for i in range(n):
            out[i] = softplus(x[i], flush)
    else:
        for i in range(n):
            out[i] = silu(x[i], flush)


@kernel
def quotients(flush: bool, x: NDArray[np.float32], y: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Write each x over each y into out."""
    for i in range(x.size):
        out[i] = divide(x[i], y[i], flush)
