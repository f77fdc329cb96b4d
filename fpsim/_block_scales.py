"""Products of block-scaled operands (microscaling), whose scales take part in the alignment of fused adds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim._execution import storage
from fpsim._fused_execution import run_fused
from fpsim.errors import InputError
from fpsim.formats import Format
from fpsim.strategies import Strategy

_Array = NDArray[Any]
_SMALLEST, _LARGEST = 2.0**-127, 2.0**127  # of e8m0, the scales' format


def scaled_product(
    left: _Array, right: _Array, chosen: Strategy, forms: tuple[Format, Format], scales: tuple[Any, Any]
) -> _Array:
    """Return the product of two matrices whose blocks are scaled by powers of two; see `fpsim.matmul`."""
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
        message = f"scaled operands are matrices of shapes (m, k) and (k, n), not {left.shape} and {right.shape}"
        raise InputError(message)
    program, arithmetic = chosen.program(left.shape[1], data=forms[0]), chosen.arithmetic(forms[0])
    if not any(own.terms for own in program.arithmetics):
        message = f"scales belong to fused adds, which {chosen} has not; scale the operands themselves"
        raise InputError(message)
    stated = [arithmetic.operand(name) for name in "ab"]
    own = [given if rounding is None else rounding.format for rounding, given in zip(stated, forms, strict=True)]
    factors = _factors(scales[0], left.shape, 1, "left"), _factors(scales[1], right.shape, 0, "right")
    wide = run_fused(left, right, program, (own[0], own[1]), factors)
    with np.errstate(over="ignore"):
        return wide.astype(storage(arithmetic.result_format))


def _factors(scale: Any, shape: tuple[int, ...], axis: int, name: str) -> _Array:
    """Return the scale of each element of an operand; NaN where a scale is NaN."""
    values = np.asarray(scale, np.float64)
    blocks = values.shape[axis] if values.ndim == 2 else 0
    if values.ndim != 2 or values.shape[1 - axis] != shape[1 - axis] or not 0 < blocks <= max(shape[axis], 1):
        message = f"the {name} scales of an operand of shape {shape} have one row or column for each of its own, and one scale for each block, not the shape {values.shape}"
        raise InputError(message)
    fraction = np.frexp(values)[0]
    if (((fraction != 0.5) | (values < _SMALLEST) | (values > _LARGEST)) & ~np.isnan(values)).any():
        message = f"the {name} scales must be powers of two from 2**-127 to 2**127"
        raise InputError(message)
    size = -(-shape[axis] // blocks)
    return np.take(values, np.arange(shape[axis]) // size, axis=axis)
