"""Block-scaled (microscaling) formats: mxfp8, mxfp6 and mxfp4 of OCP, and nvfp4."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim._arrays import as_floats
from fpsim.errors import InputError
from fpsim.formats import E4M3FN, E5M2, Format, as_format, round_to

_E2M3, _E3M2, _E2M1 = (as_format(name) for name in ("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"))
#: The elements' format, the number of elements with a scale in common, and the scales' format (None: a power of two).
KINDS: Final[dict[str, tuple[Format, int, Format | None]]] = {
    "mxfp8_e4m3": (E4M3FN, 32, None),
    "mxfp8_e5m2": (E5M2, 32, None),
    "mxfp6_e2m3": (_E2M3, 32, None),
    "mxfp6_e3m2": (_E3M2, 32, None),
    "mxfp4": (_E2M1, 32, None),
    "nvfp4": (_E2M1, 16, E4M3FN),
}
_LEAST, _MOST = -127, 127  # exponents of e8m0


@dataclass(frozen=True, slots=True)
class BlockScaled:
    """Numbers in a block-scaled format.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    axis : int
        The axis that is cut into blocks, not negative.
    elements : float32 array
        The elements, numbers of the kind's element format, in the shape of the data.
    scales : float32 array
        The scale of each block: the shape of the data, with one entry for each block along `axis`.
    tensor_scale : float32
        The scale of all, of nvfp4; else 1.
    """

    kind: str
    axis: int
    elements: NDArray[np.float32]
    scales: NDArray[np.float32]
    tensor_scale: np.float32

    def dequantize(self) -> NDArray[np.float32]:
        """Return elements times scale times tensor scale, rounded once to float32 (only nvfp4 needs that)."""
        block = KINDS[self.kind][1]
        places = np.arange(self.elements.shape[self.axis]) // block
        each = np.take(self.scales.astype(np.float64), places, axis=self.axis)
        with np.errstate(invalid="ignore", over="ignore"):
            out: NDArray[np.float32] = (self.elements * each * np.float64(self.tensor_scale)).astype(np.float32)
        return out

    def __str__(self) -> str:
        return f"{self.kind}: {'x'.join(map(str, self.elements.shape))}, scales along axis {self.axis}"


def quantize(x: Any, /, kind: str, *, axis: int = -1, tensor_scale: float | None = None) -> BlockScaled:
    """Return numbers in a block-scaled format.

    Parameters
    ----------
    x : array_like
        Values, at least one-dimensional. The last block along `axis` may be shorter.
    kind : {"mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4", "nvfp4"}
        The format.
    axis : int
        The axis whose neighbours share a scale: the inner dimension of a product, -1 of the left operand and 0 of the
        right one.
    tensor_scale : float, optional
        Of nvfp4 alone: the scale of all; by default the largest magnitude over 448 * 6.

    Returns
    -------
    BlockScaled

    Raises
    ------
    InputError
        There is no such kind or axis, or `tensor_scale` does not fit.

    Notes
    -----
    The mx kinds are as section 6.3 of OCP Microscaling Formats MX 1.0 has it: the scale is the largest power of two in
    the largest magnitude over that in the format, from 2**-127 to 2**127; elements are rounded to nearest even and
    saturate. What it leaves open: a block of zeros has the scale 2**-127, and one with an infinity or NaN has the
    scale NaN and elements 0. nvfp4 is as in torchao 0.18 (`nvfp4_tensor.py`), each step in float32: scales are the largest
    magnitude / 6 / tensor scale, from 2**-6 to 448, rounded to e4m3fn; elements are the data times (1 / tensor scale) /
    scale. Libraries that divide instead have another element now and then.

    Examples
    --------
    >>> from fpsim.microscaling import quantize
    >>> q = quantize([0.3, -5.0, 7.0, 100.0], "mxfp4")
    >>> q.elements, q.scales
    (array([ 0. , -0.5,  0.5,  6. ], dtype=float32), array([16.], dtype=float32))
    >>> q.dequantize()
    array([ 0., -8.,  8., 96.], dtype=float32)
    """
    if kind not in KINDS:
        message = f"there is no block-scaled format {kind!r}; known are {', '.join(KINDS)}"
        raise InputError(message)
    form, block, scale_form = KINDS[kind]
    values = as_floats(x)[0]
    if not values.ndim or not -values.ndim <= axis < values.ndim:
        message = f"axis={axis} is no axis of data of shape {values.shape}"
        raise InputError(message)
    if tensor_scale is not None and (scale_form is None or not 0 < tensor_scale < np.inf):
        message = f"tensor_scale is a positive number, and for nvfp4 alone, not {tensor_scale!r} for {kind}"
        raise InputError(message)
    axis %= values.ndim
    rows = np.moveaxis(values, axis, -1)
    padding = [(0, 0)] * (rows.ndim - 1) + [(0, -rows.shape[-1] % block)]
    blocks = np.pad(rows, padding).reshape(*rows.shape[:-1], -1, block)
    with np.errstate(all="ignore"):
        peaks = np.abs(blocks).max(axis=-1, initial=0.0)
        if scale_form is None:
            elements, scales, whole = *_mx(blocks.astype(np.float64), peaks.astype(np.float64), form), np.float32(1)
        else:
            elements, scales, whole = _nvfp4(blocks.astype(np.float32), peaks.astype(np.float32), tensor_scale)
    flat = elements.reshape(*rows.shape[:-1], -1)[..., : rows.shape[-1]]
    first, second = (np.ascontiguousarray(np.moveaxis(one, -1, axis), np.float32) for one in (flat, scales))
    return BlockScaled(kind, axis, first, second, whole)


def _mx(blocks: NDArray[np.float64], peaks: NDArray[np.float64], form: Format) -> tuple[Any, Any]:
    exponents = np.where(peaks > 0, np.frexp(peaks)[1] - 1 - form.emax, _LEAST)
    scales = np.ldexp(1.0, np.clip(exponents, _LEAST, _MOST))
    scales = np.where(np.isfinite(peaks), scales, np.nan)
    elements = round_to(blocks / scales[..., None], form.with_overflow("saturate"))
    return np.where(np.isnan(scales)[..., None], 0.0, elements), scales


def _nvfp4(
    blocks: NDArray[np.float32], peaks: NDArray[np.float32], tensor_scale: float | None
) -> tuple[Any, Any, np.float32]:
    most = np.float32(E4M3FN.max * _E2M1.max)
    whole = np.float32(tensor_scale) if tensor_scale is not None else peaks.max(initial=np.float32(0)) / most
    whole = whole if whole > 0 else np.float32(1)
    scales = np.clip(peaks / np.float32(_E2M1.max) / whole, np.float32(E4M3FN.smallest_normal), np.float32(E4M3FN.max))
    scales = np.asarray(round_to(scales, E4M3FN), np.float32)
    elements = np.asarray(round_to(blocks * (np.float32(1) / whole / scales)[..., None], _E2M1), np.float32)
    return np.where(np.isnan(elements), np.float32(0), elements), scales, np.float32(whole)


__all__ = ["KINDS", "BlockScaled", "quantize"]
