"""How a side that rounding cannot give is related to the exact result: dropout, or other random numbers."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
DROPOUT: Final = "dropout or training mode"
STREAM: Final = "different random stream"
OUT_OF_RANGE: Final = "intermediate out of range"
_LEAST: Final = 16  # elements below which a relation may be chance
_KOLMOGOROV: Final = 1.63  # of two samples of n: exceeded once in a hundred times this over sqrt(n/2)


def relation(values: Any, exact: Any, slack: Any, /) -> tuple[str, str]:
    """Return the name of a relation and what was found, or two empty texts.

    Parameters
    ----------
    values, exact : float64 arrays
        What was observed, and the exact result.
    slack : float64 array
        How far the results may be from what was printed.
    """
    v, e, room = (
        np.broadcast_to(np.asarray(x, np.float64), np.shape(values)).reshape(-1) for x in (values, exact, slack)
    )
    if v.size < _LEAST or not (np.isfinite(v).all() and np.isfinite(e).all()):
        return "", ""
    return _dropped(v, e, room) or _other_numbers(v, e) or ("", "")


def added(values: Any, exact: Any, bound: Any, /) -> str:
    """Say what a result has that its product has not: one number, or one vector in every row or column; or ''.

    Parameters
    ----------
    values, exact, bound : float64 arrays of one shape
        What was observed, the exact product, and how far rounding leads from it.
    """
    with np.errstate(all="ignore"):
        rest = np.asarray(values - exact)
        room = 2 * bound + 2.0**-23 * np.abs(rest)  # the addition is rounded as well
    if rest.ndim != 2 or min(rest.shape) < 2 or rest.size < _LEAST or not np.isfinite(rest).all():
        return ""
    for axis, each in (((0, 1), "element"), (0, "row"), (1, "column")):
        same = np.median(rest, axis=axis, keepdims=True)
        if np.all(np.abs(rest - same) <= room) and np.any(np.abs(same) > 4 * room):
            what = f"the number {float(same.reshape(-1)[0]):.6g}" if axis == (0, 1) else "the same vector"
            return (
                f"every {each} differs from the product by {what}: a bias or beta*C that one side has, or has twice;"
                " give it as a third input"
            )
    return ""


def _dropped(v: Doubles, e: Doubles, room: Doubles) -> tuple[str, str] | None:
    """Zeros, and one factor 1/(1 - p) elsewhere, where p is the share of zeros."""
    kept = v != 0
    share = 1 - float(kept.mean())
    if not 0.02 <= share <= 0.98 or not np.any(e[~kept]):
        return None
    factor = float(np.sum(v[kept] * e[kept]) / max(float(np.sum(e[kept] ** 2)), 1e-300))
    rest = np.abs(v[kept] - factor * e[kept])
    if not np.all(rest <= 2 * room[kept] + 2e-3 * float(np.sqrt(np.mean(v[kept] ** 2)))) or factor <= 0:
        return None
    spread = 4 * math.sqrt(share * (1 - share) / v.size) + 0.01
    if abs(1 - 1 / factor - share) > spread:
        return None
    told = f"{100 * share:.3g} % of the elements are zero and the others {factor:.4g} times the exact ones: dropout"
    return DROPOUT, f"{told} with p = {1 - 1 / factor:.2g}, so that this side ran in training mode"


def _other_numbers(v: Doubles, e: Doubles) -> tuple[str, str] | None:
    """Values of the same law that have nothing to do with the exact ones."""
    if v.std() == 0 or e.std() == 0 or len(np.unique(v)) < v.size // 2:
        return None
    correlation = float(np.corrcoef(v, e)[0, 1])
    both = np.sort(np.concatenate([v, e]))
    steps = [np.searchsorted(np.sort(x), both, side="right") / x.size for x in (v, e)]
    distance = float(np.abs(steps[0] - steps[1]).max())
    if np.array_equal(np.sort(v), np.sort(e)) or abs(correlation) > 3 / math.sqrt(v.size):
        return None
    if distance > _KOLMOGOROV / math.sqrt(v.size / 2):
        return None
    return STREAM, (
        f"its values have the law of the exact ones but nothing to do with them (correlation {correlation:.2g}): other"
        " random inputs, such as another seed or generator, or results of another call"
    )
