"""How large usual bugs are on given data, to be compared with a tolerance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim._arrays import axes_of
from fpsim._roundoff import Sample, picker
from fpsim.formats import FLOAT32, FLOAT64, TF32, Format, round_to

_Array = NDArray[Any]
_DROPPED = 16  # terms that are dropped in turn
_OUTPUTS = 2**16  # that are looked at
#: What is taken by mistake for a format of operands.
_NARROWER = {FLOAT32: ("TF32 instead of float32", TF32), FLOAT64: ("float32 instead of float64", FLOAT32)}


@dataclass(frozen=True, slots=True)
class Bugs:
    """What bugs change the outputs of an assertion by.

    Attributes
    ----------
    dropped : ndarray of shape (terms, outputs)
        The terms of some positions, each of which a bug may leave out of all outputs.
    narrow : ndarray or None
        What operands of a narrower format change.
    name : str
        What that bug is called.
    pick : callable
        Takes the outputs that were looked at from an array of the shape of the result.
    """

    dropped: _Array
    narrow: _Array | None
    name: str
    pick: Callable[[Any], _Array]


def bugs(op: str, arrays: tuple[_Array, ...], axis: Any, form: Format, some: Sample | None = None) -> Bugs:
    """Return what usual bugs would change on these data."""
    if op == "sum":
        x = arrays[0].astype(np.float64)
        axes = axes_of(x.ndim, axis)
        kept = [a for a in range(x.ndim) if a not in axes]
        terms = x.transpose((*axes, *kept)).reshape(-1, max(1, int(np.prod([x.shape[a] for a in kept]))))
        places = some[1] if some is not None else _spread(terms.shape[1], _OUTPUTS)
        return Bugs(np.abs(terms[np.ix_(_spread(len(terms), _DROPPED), places)]), None, "", _line(places, some))
    a, b = (x.astype(np.float64) for x in arrays)
    stacked = max(a.ndim, b.ndim) > 2
    a, b = (x.reshape(-1, *x.shape[-2:])[0] if x.ndim > 2 else x for x in (a, b))  # of a stack the first
    left, right = np.atleast_2d(a), b[:, None] if b.ndim == 1 else b
    m, n = left.shape[0], right.shape[1]
    chosen = some or (_spread(m, 256), _spread(n, _OUTPUTS // min(m, 256)))
    left, right = left[chosen[0]], right[:, chosen[1]]
    places = _spread(left.shape[1], _DROPPED)
    dropped = np.abs(left.T[places, :, None] * right[places, None, :]).reshape(places.size, -1)
    name, narrower = _NARROWER.get(form, ("", None))
    narrow = None
    if narrower is not None:
        with np.errstate(all="ignore"):
            less = [round_to(x, narrower).astype(np.float64) - x for x in (left, right)]
            narrow = np.abs(np.matmul(less[0], right) + np.matmul(left + less[0], less[1])).reshape(-1)
    take = picker(op, (left, right) if some is not None else (np.empty((m, 1)), right), chosen)

    def pick(tolerance: Any) -> _Array:
        if np.ndim(tolerance) == 0 or some is not None:
            return np.asarray(tolerance)
        own = np.reshape(tolerance, (-1, m * n))[0] if stacked else tolerance
        return np.asarray(take(own))

    return Bugs(dropped, narrow, name, pick)


def _line(places: NDArray[np.int64], some: Sample | None) -> Callable[[Any], _Array]:
    return lambda x: np.asarray(x) if np.ndim(x) == 0 or some is not None else np.reshape(x, -1)[places]


def _spread(count: int, most: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, count - 1, max(1, min(count, most))).astype(np.int64))


def in_tolerances(found: Sequence[Bugs], tolerance: Any) -> dict[str, float]:
    """Return the sizes of the bugs, as the largest change of an output in units of its tolerance.

    That is what decides whether an assertion over all outputs fails. Of the terms that may be dropped, and of several
    data sets, the median counts.
    """
    dropped, narrow, name = [], [], ""
    for one in found:
        own = one.pick(tolerance)
        with np.errstate(all="ignore"):
            dropped.append(_ratio(one.dropped, own).max(axis=1, initial=0.0))
            if one.narrow is not None:
                name = one.name
                narrow.append(_ratio(one.narrow, own).max(initial=0.0))
    out = {"a dropped term": float(np.median(np.concatenate(dropped)))}
    if name:
        out[name] = float(np.median(narrow))
    return out


def _ratio(size: _Array, tolerance: _Array) -> _Array:
    """Return size / tolerance, infinite for a tolerance of zero; a size of zero is never caught."""
    ratio = np.where(tolerance > 0, size / tolerance, np.inf)
    return np.where((size == 0) | np.isnan(size), 0.0, ratio)
