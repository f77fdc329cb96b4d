"""Directed probes for the precision of a product: what its operands are rounded to or split into, and its products."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fpsim._black_box import BlackBox
from fpsim.formats import BFLOAT16, E4M3FN, E5M2, FLOAT16, FLOAT32, FLOAT64, TF32, Format, RoundingMode, round_to

_MODES: tuple[RoundingMode, ...] = ("nearest-even", "nearest-away", "toward-zero")
_NARROWER = (FLOAT32, TF32, FLOAT16, BFLOAT16, E4M3FN, E5M2)
_BEYOND_FLOAT16 = 1.5 * 2.0**17
_Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Operand:
    """What one operand is before it is multiplied.

    Attributes
    ----------
    form : Format
        The format that it is rounded to, or its pieces are.
    mode : str
        How it is rounded.
    pieces : int
        1, or the number of numbers of `form` that it is split into.
    last : str or None
        How the last piece is rounded, where that is another way than that of the others.
    """

    form: Format
    mode: RoundingMode = "nearest-even"
    pieces: int = 1
    last: RoundingMode | None = None

    def rounded(self, x: _Values) -> _Values:
        """Return x as the product has it."""
        total = np.zeros_like(x)
        for mode in self._modes:
            total = total + np.asarray(round_to(x - total, self.form, mode=mode), np.float64)
        return total

    @property
    def _modes(self) -> list[RoundingMode]:
        return [*[self.mode] * (self.pieces - 1), self.last or self.mode]

    @property
    def rest(self) -> float:
        """The largest relative size of what the first piece leaves."""
        return 2.0 ** ((self.mode == "toward-zero") - self.form.precision)

    @property
    def error(self) -> float:
        """The largest relative error of a number that is not subnormal."""
        return math.prod(2.0 ** ((mode == "toward-zero") - self.form.precision) for mode in self._modes)


def operand(box: BlackBox, side: int, result: Format, rng: np.random.Generator) -> Operand | None:
    """Return what the left (0) or right (1) operand becomes; None where nothing that is known explains it."""
    precision = box.form.precision
    values = 1 + np.r_[
        [2.0 ** -bits for bits in (3, 4, 8, 11, 12, 17, 24, 25) if bits < precision],
        [3 * 2.0 ** -bits for bits in (4, 8, 11, 24) if bits < precision],
        rng.integers(1, 2**20, 8) * 2.0**-20,
    ]  # fmt: skip
    values = np.r_[values, 2 - 2.0 ** (1 - precision), 1 + rng.random(16)]
    x = np.asarray(round_to(np.r_[values, -values], box.form), np.float64)
    seen = lone(box, x, side)
    for candidate in _operands(box.form):
        if np.array_equal(np.asarray(round_to(candidate.rounded(x), result), np.float64), seen):
            if candidate.form == TF32 and candidate.pieces == 1 and box.form.emax > FLOAT16.emax:
                large = float(lone(box, np.array([_BEYOND_FLOAT16]), side)[0])
                return candidate if large == _BEYOND_FLOAT16 else Operand(FLOAT16, candidate.mode)
            return candidate
    return None


def _operands(form: Format) -> Iterator[Operand]:
    yield Operand(form)
    for narrow in _NARROWER:
        if narrow.precision < form.precision and narrow != FLOAT16:
            yield from (Operand(narrow, mode) for mode in _MODES)
    if form == FLOAT32:
        for narrow in (BFLOAT16, TF32):
            yield from (Operand(narrow, mode, 2) for mode in _MODES)
            yield Operand(narrow, "toward-zero", 2, "nearest-even")  # as XLA does


def lone(box: BlackBox, values: _Values, side: int) -> _Values:
    """Return the results for sums with one term, a value of the left (0) or right (1) operand times 1."""
    place = box.n // 3
    shape = box.operand_shapes[side]
    free = side if len(shape) == 2 else None  # the axis that holds a value for each of its rows or columns
    at_once = shape[free] if free is not None else 1
    found: list[float] = []
    for first in range(0, len(values), at_once):
        part = values[first : first + at_once]
        operands = [np.zeros(each, box.dtype) for each in box.operand_shapes]
        for which, array in enumerate(operands):
            axis = array.ndim - 1 if which == 0 else 0  # the axis of the terms
            index: list[int | slice] = [slice(None)] * array.ndim
            index[axis] = place
            if which != side:
                array[tuple(index)] = 1
            elif free is None:
                array[tuple(index)] = part[0]
            else:
                index[free] = slice(0, len(part))
                array[tuple(index)] = part
        with np.errstate(all="ignore"):
            out = box.run(*operands).astype(np.float64)
        if box.op == "mean":
            out = out * box.n
        if out.ndim == 2:
            out = out[:, 0] if side == 0 else out[0]
        found += out.reshape(-1)[: len(part)].tolist()
    return np.array(found)


def keeps_products(box: BlackBox, form: Format) -> bool | None:
    """Tell whether a lone product of two numbers of a format has more bits than those; None of sums."""
    if not box.multiplies:
        return None
    half = form.precision // 2 + 1
    first, second = np.zeros(box.n), np.zeros(box.n)
    first[0] = second[0] = 1 + 2.0**-half
    out = box.run(*box.spread(first, second)).astype(np.float64).reshape(-1)
    return bool(out[0] == (1 + 2.0**-half) ** 2)


def products(box: BlackBox) -> str | None:
    """Return "separate", "fma", or "exact" where products are not rounded wherever they stand; None if not told.

    ``a * a - c`` with c the rounded square is its rounding error where the product is not rounded, and else 0. An
    addition is fused with one product at most, and terms at many distances are tried, since only those that meet first
    show it.
    """
    if box.form not in (FLOAT32, FLOAT64) or not box.multiplies or box.n < 2:
        return None
    distances = [*range(1, min(box.n, 33)), *(2**i for i in range(6, 20) if 2**i < box.n), box.n - 1]
    seen = [_unrounded(box, list(dict.fromkeys(distances)), product_first=first) for first in (True, False)]
    if all(map(all, seen)):
        return "exact"
    return "fma" if any(map(any, seen)) else "separate"


def _unrounded(box: BlackBox, distances: list[int], *, product_first: bool) -> list[bool]:
    """Tell for every distance whether a product and another term so far from it are added without another rounding."""
    half = (box.form.precision + 1) // 2
    a, c = 1 + 2.0**-half, 1 + 2.0 ** (1 - half)
    rows = box.operand_shapes[0]
    at_once = rows[0] if len(rows) == 2 else 1
    found: list[bool] = []
    for start in range(0, len(distances), at_once):
        part = distances[start : start + at_once]
        left = np.zeros((max(at_once, len(part)), box.n))
        right = np.full(box.n, 1.0 if product_first else a)
        right[0] = a if product_first else 1.0
        for row, distance in enumerate(part):
            left[row, 0], left[row, distance] = (a, -c) if product_first else (-c, a)
        b = right.astype(box.dtype)
        shape = box.operand_shapes[1]
        b = np.ascontiguousarray(np.broadcast_to(b[:, None], shape)) if len(shape) == 2 else b
        first = left.astype(box.dtype)
        out = box.run(first if len(rows) == 2 else first[0], b).astype(np.float64)
        out = out[:, 0] if out.ndim == 2 else out.reshape(-1)
        found += [bool(value == 2.0 ** (-2 * half)) for value in out[: len(part)]]
    return found


def keeps(box: BlackBox, left: int, right: int, *, shift: int = 9) -> bool | None:
    """Tell whether products of operands that are split have the product of pieces number `left` and `right`, from 0.

    The operands are sums of 1, 2**-shift and 2**-2 shift, which are pieces of their own in a split into bfloat16 numbers
    (shift 9) or tf32 numbers (12). Another term subtracts the other products of pieces, before or after them.
    """
    if box.n < 2:
        return None
    a, b = (sum(2.0 ** (-shift * piece) for piece in range(count + 1)) for count in (left, right))
    wanted = 2.0 ** (-shift * (left + right))
    last = box.n - 1
    for place, other in ((0, last), (last, 0)):
        first, second = np.zeros(box.n), np.zeros(box.n)
        first[place], second[place] = a, b
        first[other], second[other] = -(a * b - wanted), 1.0
        if float(box.run(*box.spread(first, second)).astype(np.float64).reshape(-1)[0]) != wanted:
            return False
    return True
