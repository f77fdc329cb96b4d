"""Wrong elements that are right somewhere else: repeated rows and tiles, shifted ones, and those not written."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_LEAST: Final = 2  # elements that a copy must have, so that it is no chance
_TRIED: Final = 64  # places that hold the first wrong element's number


def copied(values: NDArray[Any], wrong: NDArray[np.bool], /) -> str:
    """Say where the wrong elements of a result were copied from; empty where they were not.

    Parameters
    ----------
    values, wrong : ndarray of one shape
        The result, and its wrong elements.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(12.0).reshape(3, 4)
    >>> x[2] = x[1]
    >>> copied(x, np.arange(3)[:, None] == [[2]] * np.ones((1, 4)))
    'these are the elements 1 rows before'
    """
    places = np.argwhere(wrong)
    if len(places) < _LEAST or values.ndim not in (1, 2):
        return ""
    given = values[tuple(places.T)]
    if not given.any():
        return "these elements are zero: not written, or not computed"
    if len(np.unique(given)) == 1:
        return f"these elements all are {given[0]:.9g}: not written, or filled"
    anchor = int(np.argmax(given != given[0]) if given[0] == 0 else 0)
    for source in np.argwhere(values == given[anchor])[:_TRIED]:
        step = source - places[anchor]
        moved = places + step
        if not step.any() or (moved < 0).any() or (moved >= np.array(values.shape)).any():
            continue
        if np.array_equal(values[tuple(moved.T)], given):
            return f"these are the elements {_step(step)}"
    return ""


def _step(step: NDArray[Any]) -> str:
    names = ("elements",) if len(step) == 1 else ("rows", "columns")
    parts = [f"{abs(int(s))} {name} {'before' if s < 0 else 'after'}" for s, name in zip(step, names, strict=True) if s]
    return " and ".join(parts)
