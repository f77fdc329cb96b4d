"""What the models of CUDA functions are made of: bits, polynomials by fused multiply-adds, flushed subnormal numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpsim.kernels._jit import kernel
from fpsim.kernels.elementwise import fma32

_ZERO = np.float32(0)
_SMALLEST_NORMAL = np.float32(2.0**-126)


def coefficients(*texts: str) -> tuple[Any, ...]:
    """Return float32 numbers from their hexadecimal form, highest power first."""
    return tuple(np.float32(float.fromhex(text)) for text in texts)


@kernel
def bits_of(x: Any) -> Any:
    """Return the bits of a float32 number, as a signed integer."""
    return np.int64(np.float32(x).view(np.int32))


@kernel
def float_of(bits: Any) -> Any:
    """Return the float32 number of these bits."""
    return np.int32(bits).view(np.float32)


@kernel
def flushed(x: Any, flush: bool) -> Any:
    """Return x, or a zero of its sign if it is subnormal and subnormal numbers are flushed."""
    if flush & (abs(x) < _SMALLEST_NORMAL):
        return np.float32(np.copysign(_ZERO, x))
    return x


@kernel
def polynomial(factors: Any, x: Any) -> Any:
    """Return a polynomial by Horner's rule with fused multiply-adds, highest power first."""
    total = factors[0]
    for k in range(1, len(factors)):
        total = fma32(total, x, factors[k])
    return total
