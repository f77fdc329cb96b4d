"""The float32 functions of NVIDIA's CUDA math library, to the bit: range reductions around the special-function unit.

Every function takes `flush`: false for code that keeps subnormal numbers (PyTorch), true for code compiled to flush
them to zero (CuPy). Where a result does not depend on it, the argument is missing.

The steps were inferred from the outputs of CUDA 13.0 on an NVIDIA H200, most of them tried first in the form that N.
Juffa published (see `docs/elementary.md` for each); coefficients are fitted to the outputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels import special_function_unit as unit
from fpsim.kernels._jit import kernel
from fpsim.kernels.elementwise import fma32

(
    EXP,
    EXP2,
    EXPM1,
    LOG,
    LOG2,
    LOG1P,
    SIN,
    COS,
    TANH,
    ERF,
    RSQRT,
    SQRT,
    RECIPROCAL,
    SIGMOID,
    SILU,
    GELU,
    GELU_TANH,
    SOFTPLUS,
) = range(18)
DIVIDE, POW = range(2)

_ZERO, _HALF, _ONE, _TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)
_INFINITY, _NAN = np.float32(np.inf), np.float32(np.nan)
_SMALLEST_NORMAL = np.float32(2.0**-126)
_LN2 = np.float32(0.6931471805599453)
_LN2_23 = np.float32(0.6931471805599453 * 2.0**-23)
_LOG2E = np.float32(1.4426950408889634)
_LOG2E_252 = np.float32(_LOG2E / np.float32(252))
_LOG2E_REST = np.float32(1.925963033500011e-08)  # log2(e) - float32(log2(e))
_TWO_THIRDS, _ROOT_HALF_BITS = 0x3F2AAAAB, 0x3F3504F3
_ROOT_HALF = np.float32(0.7071067811865476)
_ROOT_TWO_OVER_PI = np.float32(0.7978845608028654)
_TWO_LOG2E = np.float32(2.8853900817779268)


def _coefficients(*texts: str) -> tuple[Any, ...]:
    return tuple(np.float32(float.fromhex(text)) for text in texts)


_SIN = _coefficients("-0x1.9a82a6p-13", "0x1.110bc8p-7", "-0x1.555550p-3")
_COS = _coefficients("0x1.975800p-16", "-0x1.6c0fdap-10", "0x1.555576p-5", "-0x1.fffffep-2")
_TANH = _coefficients("0x1.01e104p-6", "-0x1.ac795cp-5", "0x1.10b282p-3", "-0x1.5553dap-2")
_LOG = _coefficients(
    "-0x1.0aa086p-3", "0x1.2073ecp-3", "-0x1.f19b8ep-4", "0x1.1e52aap-3", "-0x1.55b172p-3", "0x1.99da16p-3",
    "-0x1.fffe44p-3", "0x1.5554f0p-2", "-0x1p-1",
)  # fmt: skip
_LOG2 = _coefficients(
    "0x1.8d6144p-4", "-0x1.58fd02p-3", "0x1.5f9e10p-3", "-0x1.6e9ca0p-3", "0x1.a417f2p-3", "-0x1.ec7916p-3",
    "0x1.277f32p-2", "-0x1.715492p-2", "0x1.ec7094p-2", "-0x1.715476p-1",
)  # fmt: skip
_LOG1P = _coefficients(
    "-0x1.737eeap-5", "0x1.b00022p-4", "-0x1.0ef1c0p-3", "0x1.28c8eap-3", "-0x1.54d1bap-3", "0x1.995f3cp-3",
    "-0x1.000084p-2", "0x1.5555ccp-2", "-0x1p-1",
)  # fmt: skip
_ERF = _coefficients(
    "0x1.63d2d6p-14", "-0x1.ae9a40p-11", "0x1.55abd4p-8", "-0x1.b837cep-6", "0x1.ce315ep-4", "-0x1.812758p-2",
    "0x1.06eba6p-3",
)  # fmt: skip

_ERF_TAIL = _coefficients(
    "0x1.d69874p-14", "-0x1.5c00b6p-10", "0x1.13233ep-7", "-0x1.49b334p-5", "0x1.46aa32p-3", "0x1.d369f2p-1",
    "0x1.421428p-1",
)  # fmt: skip
_ERF_CHANGES = np.float32(1.00296)
_EXPM1 = _coefficients("0x1.6bd7ccp-10", "0x1.12acc6p-7", "0x1.5557c6p-5", "0x1.5553ecp-3", "0x1.fffffcp-2")
_LN2_UPPER, _LN2_LOWER = np.float32(-0.693145752), np.float32(-1.42860677e-6)

# The first bits of 2 / pi, in words of 32, for the reduction of large angles.
_TWO_OVER_PI = np.array([0, 0x28BE60DB, 0x9391054A, 0x7F09D5F4, 0x7D4D3770, 0x36D8A566, 0x4F10E410, 0], np.uint64)
_PER_RIGHT_ANGLE = np.float32(0.6366197723675814)  # 2 / pi
_RIGHT_ANGLE = (-np.float32(float.fromhex("0x1.921fb0p+0")), -np.float32(float.fromhex("0x1.5110b4p-22")),
                -np.float32(float.fromhex("0x1.846988p-48")))  # fmt: skip
_REDUCED_EXACTLY = np.float32(105615)


@kernel
def _bits(x: Any) -> Any:
    return np.int64(np.float32(x).view(np.int32))


@kernel
def _float(bits: Any) -> Any:
    return np.int32(bits).view(np.float32)


@kernel
def flushed(x: Any, flush: bool) -> Any:
    """Return x, or a zero of its sign if it is subnormal and subnormal numbers are flushed."""
    if flush & (abs(x) < _SMALLEST_NORMAL):
        return np.float32(np.copysign(_ZERO, x))
    return x


@kernel
def _polynomial(coefficients: Any, x: Any) -> Any:
    """Return a polynomial by Horner's rule with fused multiply-adds, highest power first."""
    total = coefficients[0]
    for k in range(1, len(coefficients)):
        total = fma32(total, x, coefficients[k])
    return total


@kernel
def exp(x: Any, flush: bool) -> Any:
    """Return e**x: 2**f of the unit, scaled by 2**j, where x / log(2) = j + f."""
    w = fma32(x, _LOG2E_252, _HALF)
    w = min(max(w, _ZERO), _ONE)  # of NaN, NaN or 0: the unit returns NaN anyway
    j = np.floor(np.float64(w) * 252.0) - 126.0
    f = fma32(x, _LOG2E_REST, fma32(x, _LOG2E, np.float32(-j)))
    return flushed(np.float32(np.float64(unit.ex2(f)) * 2.0**j), flush)


@kernel
def _scaled_log(a: Any, coefficients: Any) -> Any:
    m = _polynomial(coefficients, a)
    return fma32(np.float32(m * a), a, a)


@kernel
def _parts(x: Any, least: int) -> Any:
    """Return m and e of a positive x = (1 + m) 2**e, with 1 + m from the float32 number of these bits to its double."""
    exponent = _ZERO
    if x < _SMALLEST_NORMAL:
        x = np.float32(x * np.float32(2.0**23))
        exponent = np.float32(-23)
    bits = _bits(x)
    e = (bits - least) >> 23 << 23
    return np.float32(_float(bits - e) - _ONE), fma32(np.float32(e), np.float32(2.0**-23), exponent)


@kernel
def log(x: Any, flush: bool) -> Any:
    """Return log(x) = e log(2) + log(1 + m), with 1 + m from 2/3 to 4/3."""
    x = flushed(x, flush)
    if not ((x > _ZERO) & (x < _INFINITY)):
        if x == _ZERO:
            return -_INFINITY
        return x if x == _INFINITY else _NAN
    m, exponent = _parts(x, _TWO_THIRDS)
    return flushed(fma32(exponent, _LN2, _scaled_log(m, _LOG)), flush)


@kernel
def log2(x: Any, flush: bool) -> Any:
    """Return log2(x) = e + log2(1 + m), with 1 + m from sqrt(1/2) to sqrt(2)."""
    x = flushed(x, flush)
    if not ((x > _ZERO) & (x < _INFINITY)):
        if x == _ZERO:
            return -_INFINITY
        return x if x == _INFINITY else _NAN
    m, exponent = _parts(x, _ROOT_HALF_BITS)
    y = np.float32(np.float32(_polynomial(_LOG2, m) * m) * m)
    return flushed(np.float32(exponent + fma32(m, _LOG2E, y)), flush)


@kernel
def log1p(x: Any, flush: bool) -> Any:
    """Return log(1 + x) = e log(2) + log(1 + m), with m from -1/4 to 1/2."""
    x = flushed(x, flush)
    if not ((x > -_ONE) & (x < _INFINITY)):
        if x == -_ONE:
            return -_INFINITY
        return x if x == _INFINITY else _NAN
    if x == _ZERO:
        return x
    exact = np.float64(x) + 1.0
    u = np.float32(exact)
    if (np.float64(u) > exact) | ((exact == 1.0) & (x < _ZERO)):
        u = _float(_bits(u) - 1)
    e = (_bits(u) - 0x3F400000) >> 23 << 23
    m = _float(_bits(x) - e) if _bits(x) - e > -0x80000000 else _ZERO
    quarter = _float(0x40800000 - e)
    m = np.float32(m + fma32(np.float32(0.25), quarter, -_ONE))
    return flushed(fma32(np.float32(e), _LN2_23, _scaled_log(m, _LOG1P)), flush)


@kernel
def _large_angle(x: Any) -> Any:
    """Return the remainder of x by pi/2 and the quotient, from 96 bits of 2/pi (Payne, Hanek, 1983)."""
    bits = _bits(x)
    e = ((bits >> 23) & 0xFF) - 126
    significand = np.uint64(((bits & 0x7FFFFF) | 0x800000) << 8)
    i, left, right = e >> 5, np.uint64(e & 31), np.uint64(32 - (e & 31))
    word = np.uint64(0xFFFFFFFF)
    hi = ((_TWO_OVER_PI[i] << left) | (_TWO_OVER_PI[i + 1] >> right)) & word
    mid = ((_TWO_OVER_PI[i + 1] << left) | (_TWO_OVER_PI[i + 2] >> right)) & word
    lo = ((_TWO_OVER_PI[i + 2] << left) | (_TWO_OVER_PI[i + 3] >> right)) & word
    product = significand * mid + ((significand * lo) >> np.uint64(32))
    product = (((significand * hi) & word) << np.uint64(32)) + product
    quotient = np.int64(product >> np.uint64(62))
    fraction = np.int64(product & np.uint64(0x3FFFFFFFFFFFFFFF))
    if fraction & 0x2000000000000000:
        fraction -= 0x4000000000000000
        quotient += 1
    remainder = np.float32(np.float64(fraction) * (1.5707963267948966 * 2.0**-62))
    if x < _ZERO:
        return -remainder, -quotient
    return remainder, quotient


@kernel
def _angle(x: Any) -> Any:
    """Return the remainder of x by pi/2 and the quotient, in three steps if x is small enough (Cody, Waite, 1980)."""
    if abs(x) > _REDUCED_EXACTLY:
        return _large_angle(x)
    j = np.float32(np.rint(np.float32(x * _PER_RIGHT_ANGLE)) + _ZERO)
    r = fma32(j, _RIGHT_ANGLE[0], x)
    r = fma32(j, _RIGHT_ANGLE[1], r)
    return fma32(j, _RIGHT_ANGLE[2], r), np.int64(j)


@kernel
def _sine(x: Any, quarter: int, flush: bool) -> Any:
    x = flushed(x, flush)
    if not abs(x) < _INFINITY:
        return _NAN
    r, quotient = _angle(x)
    quotient += quarter
    s = np.float32(r * r)
    if quotient & 1:
        y = fma32(_polynomial(_COS, s), s, _ONE)
    else:
        y = fma32(_polynomial(_SIN, s), fma32(s, r, _ZERO), r)
    return flushed(-y if quotient & 2 else y, flush)


@kernel
def sin(x: Any, flush: bool) -> Any:
    """Return sin(x)."""
    return _sine(x, 0, flush)


@kernel
def cos(x: Any, flush: bool) -> Any:
    """Return cos(x)."""
    return _sine(x, 1, flush)


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
    return flushed(fma32(fma32(_polynomial(_TANH, s), s, _ZERO), x, x), flush)


@kernel
def erf(x: Any, flush: bool) -> Any:
    """Return erf(x): a polynomial in the middle, 1 - 2**(-t - t p(t)) with t = abs(x) outside."""
    x = flushed(x, flush)
    t = abs(x)
    if t < _ERF_CHANGES:
        return flushed(fma32(_polynomial(_ERF, np.float32(x * x)), x, x), flush)
    if not t < np.float32(4):
        return np.float32(np.copysign(_ONE, x)) if x == x else _NAN  # noqa: PLR0124
    power = unit.ex2(fma32(_polynomial(_ERF_TAIL, t), -t, -t))
    return np.float32(np.copysign(np.float32(_ONE - power), x))


@kernel
def expm1(x: Any, flush: bool) -> Any:
    """Return e**x - 1 = 2**j (e**f - 1) + 2**j - 1, with f = x below 0.41."""
    x = flushed(x, flush)
    if not abs(x) < np.float32(128):
        return _INFINITY if x > _ZERO else (-_ONE if x < _ZERO else _NAN)
    j = _ZERO if abs(x) < np.float32(0.41) else np.float32(np.rint(np.float32(x * _LOG2E)))
    f = fma32(j, _LN2_LOWER, fma32(j, _LN2_UPPER, x))
    y = np.float32(_polynomial(_EXPM1, f) * f)
    y = fma32(y, f, f)
    if x < np.float32(-25):
        return -_ONE
    if j >= np.float32(128):
        half = _float((min(np.int64(j), 128) + 126) << 23)
        y = fma32(y, half, np.float32(half - _HALF)) if j < np.float32(129) else _INFINITY
        return np.float32(y + y)
    scale = _float((np.int64(j) + 127) << 23)
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
def evaluate2(
    function: int, flush: bool, x: NDArray[np.float32], y: NDArray[np.float32], out: NDArray[np.float32]
) -> None:
    """Write a function of each x and y into out."""
    for i in range(x.size):
        out[i] = divide(x[i], y[i], flush)
