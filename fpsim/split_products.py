"""Products of float32 matrices as several products of narrower pieces of them: bf16x3, bf16x6, bf16x9, tf32x3."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim import emulation
from fpsim._arrays import as_floats
from fpsim.errors import InputError
from fpsim.formats import BFLOAT16, TF32, Format, RoundingMode, round_to
from fpsim.strategies import Strategy, strategy as as_strategy

#: Format and number of pieces, and the pairs of pieces (0 the largest) whose products are added, from first to last.
SCHEMES: Final[dict[str, tuple[Format, int, tuple[tuple[int, int], ...]]]] = {
    "bf16x3": (BFLOAT16, 2, ((1, 0), (0, 1), (0, 0))),
    "bf16x6": (BFLOAT16, 3, ((1, 1), (0, 2), (2, 0), (0, 1), (1, 0), (0, 0))),
    "bf16x9": (BFLOAT16, 3, ((2, 2), (1, 2), (2, 1), (1, 1), (0, 2), (2, 0), (0, 1), (1, 0), (0, 0))),
    "tf32x3": (TF32, 2, ((1, 0), (0, 1), (0, 0))),
}
_UNITS = {"bf16": "tensor_core(arch=hopper, type=bfloat16)", "tf32": "tensor_core(arch=hopper, type=tf32)"}


def pieces(x: Any, /, *, scheme: str = "bf16x3") -> list[NDArray[np.float32]]:
    """Return float32 numbers as sums of numbers of the scheme's format, the largest first.

    All but the last are truncated, the last one is rounded to nearest even. Three pieces of bfloat16 hold every float32
    number that is not near the subnormal ones.

    Parameters
    ----------
    x : array_like
        Values of any shape, numbers of float32.
    scheme : {"bf16x3", "bf16x6", "bf16x9", "tf32x3"}
        Which formats and how many pieces.

    Returns
    -------
    list of float32 arrays of the shape of x

    Raises
    ------
    InputError
        There is no such scheme.
    """
    form, count, _ = _scheme(scheme)
    rest = np.asarray(as_floats(x, name="x")[0], np.float32)
    modes: list[RoundingMode] = [*["toward-zero"] * (count - 1), "nearest-even"]  # type: ignore[list-item]
    out = []
    with np.errstate(all="ignore"):
        for mode in modes:
            piece = np.asarray(round_to(rest, form, mode=mode), np.float32)
            out.append(piece)
            rest = rest - piece
    return out


def split_matmul(
    a: Any, b: Any, strategy: str | Strategy | None = None, /, *, scheme: str = "bf16x3"
) -> NDArray[np.float32]:
    """Return a product of float32 matrices that is made of products of narrower pieces of them.

    Each pair of pieces is multiplied by itself, and the products are added in float32, the small ones first. Before the
    last one, infinities and NaN of the sum are replaced by zeros, so that those of the largest pieces count alone.

    Parameters
    ----------
    a, b : array_like
        As for `fpsim.matmul`.
    strategy : str or Strategy, optional
        How pieces are multiplied; by default a chain of Hopper's instructions for the pieces' format.
    scheme : {"bf16x3", "bf16x6", "bf16x9", "tf32x3"}
        The pieces, and which of their products are made. bf16x3 and bf16x6 are put together as XLA does
        (`dot_algorithm_rewriter.cc`, 2025) where it multiplies by cuBLAS; the method is that of Henry, Tang & Heinecke
        (ARITH 2019). Libraries that add inside one kernel have other last bits.

    Returns
    -------
    float32 array

    Raises
    ------
    InputError
        There is no such scheme, or the operands do not fit.

    Examples
    --------
    >>> import numpy as np, fpsim
    >>> from fpsim.split_products import split_matmul
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.random((8, 64), np.float32), rng.random((64, 8), np.float32)
    >>> exact = fpsim.exact.matmul(a, b)
    >>> for scheme in ("bf16x3", "bf16x6"):
    ...     error = abs(exact.error(split_matmul(a, b, scheme=scheme))).max()
    ...     print(scheme, error < 1e-3, error < 2e-5)
    bf16x3 True False
    bf16x6 True True
    """
    _, _, pairs = _scheme(scheme)
    chosen = as_strategy(_UNITS[scheme[:4]] if strategy is None else strategy)
    left, right = pieces(a, scheme=scheme), pieces(b, scheme=scheme)
    total: NDArray[np.float32] | None = None
    with np.errstate(all="ignore"):
        for i, j in pairs:
            product = np.asarray(emulation.matmul(left[i], right[j], chosen), np.float32)
            if total is not None and (i, j) == (0, 0):
                total = np.where(np.isfinite(total), total, np.float32(0))
            total = product if total is None else total + product
    assert total is not None
    return total


def _scheme(name: str) -> tuple[Format, int, tuple[tuple[int, int], ...]]:
    if name not in SCHEMES:
        message = f"there is no scheme {name!r}; known are {', '.join(SCHEMES)}"
        raise InputError(message)
    return SCHEMES[name]


__all__ = ["SCHEMES", "pieces", "split_matmul"]
