"""Products of block-scaled operands (microscaling), whose scales take part in the alignment of fused adds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim._arrays import as_floats
from fpsim._execution import storage
from fpsim._fused_execution import Scales, run_fused
from fpsim.errors import InputError
from fpsim.formats import E4M3FN, Format
from fpsim.strategies import Strategy

_Array = NDArray[Any]
GROUP = 16  # products of 4-bit elements that are added before they are aligned
_SMALLEST, _LARGEST = 2.0**-127, 2.0**127  # of e8m0, the scales' format


def scaled_product(
    left: _Array, right: _Array, chosen: Strategy, forms: tuple[Format, Format], scales: tuple[Any, Any]
) -> _Array:
    """Return the product of two matrices whose blocks are scaled; see `fpsim.matmul`."""
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
        message = f"scaled operands are matrices of shapes (m, k) and (k, n), not {left.shape} and {right.shape}"
        raise InputError(message)
    program, arithmetic = chosen.program(left.shape[1], data=forms[0]), chosen.arithmetic(forms[0])
    if not any(own.terms for own in program.arithmetics):
        message = f"scales belong to fused adds, which {chosen} has not; scale the operands themselves"
        raise InputError(message)
    stated = [arithmetic.operand(name) for name in "ab"]
    own = [given if rounding is None else rounding.format for rounding, given in zip(stated, forms, strict=True)]
    grouped = any(one.align is not None and one.align.kind == "groups" for one in program.arithmetics if one.terms)
    factors = _factors(scales[0], left.shape, 1, "left", grouped), _factors(scales[1], right.shape, 0, "right", grouped)
    if grouped and factors[0].form != factors[1].form:
        message = "scales for 16 elements (e4m3fn) and for more (powers of two) do not go together"
        raise InputError(message)
    wide = run_fused(left, right, program, (own[0], own[1]), factors)
    with np.errstate(over="ignore"):
        return wide.astype(storage(arithmetic.result_format))


def _factors(scale: Any, shape: tuple[int, ...], axis: int, name: str, grouped: bool) -> Scales:
    """Return the scale of each element of an operand; NaN where a scale is NaN."""
    values = np.asarray(as_floats(scale, name=f"{name} scales")[0], np.float64)
    blocks = values.shape[axis] if values.ndim == 2 else 0
    if values.ndim != 2 or values.shape[1 - axis] != shape[1 - axis] or not 0 < blocks <= max(shape[axis], 1):
        message = f"the {name} scales of an operand of shape {shape} have one row or column for each of its own, and one scale for each block, not the shape {values.shape}"
        raise InputError(message)
    size = -(-shape[axis] // blocks)
    if grouped and size % GROUP and blocks > 1:
        message = f"the {name} scales are for {size} elements each; 4-bit products have one for {GROUP} or {2 * GROUP}"
        raise InputError(message)
    form = E4M3FN if grouped and size <= GROUP else None
    if form is not None and not (form.contains(values) & ((values >= 0) | np.isnan(values))).all():
        message = f"the {name} scales of {GROUP} elements must be numbers of e4m3fn, not negative"
        raise InputError(message)
    fraction = np.frexp(values)[0]
    outside = (fraction != 0.5) | (values < _SMALLEST) | (values > _LARGEST)
    if form is None and (outside & ~np.isnan(values)).any():
        message = f"the {name} scales must be powers of two from 2**-127 to 2**127"
        raise InputError(message)
    return Scales(np.take(values, np.arange(shape[axis]) // size, axis=axis), form, grouped)
