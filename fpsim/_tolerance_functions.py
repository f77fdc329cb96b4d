"""Tolerances of elementary functions: the largest errors that were measured of each implementation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim._arrays import as_floats
from fpsim.elementary_errors import CORRECTLY_ROUNDED, ENVELOPES, Envelope, envelope, exact_values
from fpsim.errors import InputError
from fpsim.formats import FLOAT32, Format, as_format, round_to
from fpsim.laws import Law, law as as_law

if TYPE_CHECKING:
    from fpsim.tolerances import Tolerance

_Array = NDArray[Any]
_EACH, _ANY = "any of:", "any library"
_MOST_PILOT: Final = 2**20
_MARGIN: Final = 1.0 + 2.0**-9  # of rtol and atol, as for other operations
_FORMS: Final = {"gelu": "gelu_tanh", "gelu_tanh": "gelu"}


def mechanism(op: str, sides: Sequence[str]) -> str:
    """Return what makes the two sides differ."""
    told = [f"{side} errs by at most {_ulps(op, side):g} ulp" for side in sides if side != "exact"]
    return f"elementary function: {', '.join(told)}, as measured"


def members(op: str, side: Any) -> tuple[Envelope, ...]:
    """Return the implementations that a side stands for."""
    if isinstance(side, str) and side.strip() == _ANY:
        return tuple(one for one in ENVELOPES[op].values() if one.implementation != CORRECTLY_ROUNDED)
    if isinstance(side, str):
        text = side.strip()
        names = [part.strip() for part in text.removeprefix(_EACH).split(";")] if text.startswith(_EACH) else [text]
    else:
        names = [str(one) for one in side] if isinstance(side, Sequence) else [str(side)]
    names = [CORRECTLY_ROUNDED if name == "exact" else name for name in names if name]
    if not names:
        message = f"name an implementation of {op}, such as torch.cuda, or '{_ANY}'"
        raise InputError(message)
    return tuple(envelope(op, name) for name in names)


def text_of(side: Any) -> str:
    """Return a side as it is written."""
    return side.strip() if isinstance(side, str) else f"{_EACH} {'; '.join(map(str, side))}"


def _ulps(op: str, side: str) -> float:
    return max(one.ulps for one in members(op, side))


class Account:
    """What is known of each output.

    Attributes
    ----------
    room : ndarray
        The largest difference; zero where the exact result is not finite in float32.
    values : ndarray
        The exact results, as float64; infinite where float32 overflows.
    pair : tuple of float
        rtol and atol that hold for all operands.
    infinite : bool
        Whether any difference is possible in some output.
    flags : list of str
        What a reader should know.
    bugs : dict
        Sizes of usual bugs in tolerances.
    """

    def __init__(self, op: str, operands: tuple[_Array, ...], sides: Sequence[tuple[Envelope, ...]]) -> None:
        values = exact_values(op, *operands)
        over = np.abs(values) > FLOAT32.max
        self.values = np.where(over, np.copysign(np.inf, values), values)
        rooms = [np.max([one.room(values, *operands) for one in side], axis=0) for side in sides]
        self.room = np.where(over, 0.0, np.sum(rooms, axis=0))
        self.infinite = bool(np.isinf(self.room).any())
        relative = sum(max(one.ulps for one in side) for side in sides) * FLOAT32.eps
        absolute = sum(max(one.below + one.subnormal * 2.0**-149 for one in side) for side in sides)
        self._relative = relative
        self.pair = relative / (1 - 2 * relative) * _MARGIN, absolute * _MARGIN
        self.flags = ["the largest errors that were measured, not proved: other versions may err by more"]
        flushing = dict.fromkeys(one.implementation for side in sides for one in side if one.flushes)
        if flushing:
            self.flags.append(f"subnormal operands are read as zero by {', '.join(flushing)}")
        self.bugs = self._bugs(op, operands)

    def tight_pair(self) -> tuple[float, float]:
        """Return rtol and atol for these operands: relative, and absolute for what is too small for that."""
        size = np.abs(self.values)
        usual = (size >= 2.0**-126) & np.isfinite(size) & (self.room <= self._relative * size)
        own, sizes = self.room[usual], size[usual]
        rtol = float((own / (sizes - 2 * own)).max(initial=0.0))
        rest = ~usual & np.isfinite(size) & (self.room > 0)
        left = self.room[rest] - rtol * np.maximum(size[rest] - self.room[rest], 0.0)
        return rtol * _MARGIN, float(left.max(initial=0.0)) * _MARGIN

    def _bugs(self, op: str, operands: tuple[_Array, ...]) -> dict[str, float]:
        def largest(changed: _Array) -> float:
            with np.errstate(all="ignore"):
                ratio = np.abs(changed - self.values) / self.room
            ratio = ratio[np.isfinite(self.values) & ~np.isnan(ratio)]
            return float(ratio.max(initial=0.0))

        finite = np.where(np.isfinite(self.values), self.values, 0.0)
        found = {"bfloat16 instead of float32": largest(np.asarray(round_to(finite, "bfloat16"), np.float64))}
        if op in _FORMS:
            found[f"{_FORMS[op]} instead of {op}"] = largest(exact_values(_FORMS[op], *operands))
        return found


def given(op: str, inputs: Sequence[Any]) -> tuple[_Array, ...]:
    """Return operands as float32 arrays of one shape.

    Raises
    ------
    InputError
        They are not.
    """
    pairs = [as_floats(x) for x in inputs]
    wanted = 2 if op in ("divide", "pow") else 1
    if (
        len(pairs) != wanted
        or any(f != FLOAT32 or not x.size for x, f in pairs)
        or len({x.shape for x, _ in pairs}) > 1
    ):
        held = " and ".join(f"{form}{x.shape}" for x, form in pairs)
        message = f"the errors of {op} were measured for {wanted} float32 operand{'s of one shape' * (wanted > 1)}, not for {held}"
        raise InputError(message)
    return tuple(np.ascontiguousarray(x) for x, _ in pairs)


def drawn(op: str, laws: Sequence[Any], shape: Any, form: Format, rng: Any) -> tuple[tuple[_Array, ...], int]:
    """Return pilot data of laws, and how many outputs the whole shape has."""
    from fpsim._prediction_functions import sizes_of_function
    from fpsim.formats import _generator

    if form != FLOAT32:
        message = f"the errors of {op} were measured for float32, not for {form}"
        raise InputError(message)
    sizes = sizes_of_function(op, shape)
    count = math.prod(sizes)
    wanted = 2 if op in ("divide", "pow") else 1
    known = [as_law(one) for one in laws] * (wanted if len(laws) == 1 else 1)
    if len(known) != wanted:
        message = f"{op} takes one law, or one for each of its {wanted} operands, not {len(known)}"
        raise InputError(message)
    generator = _generator(rng)
    return tuple(one.draw(min(count, _MOST_PILOT), rng=generator, dtype="float32") for one in known), count


def tolerance_of_function(
    op: str, inputs: Sequence[Any], strategy: Any, between: Any, axis: Any, shape: Any, dtype: Any, outputs: int | None,
    rng: Any,
) -> Tolerance:  # fmt: skip
    """Return what `fpsim.tolerance` says of an elementary function."""
    from fpsim.tolerances import Tolerance

    sides = [strategy] if strategy is not None else list(between) if isinstance(between, tuple | list) else []
    if (strategy is None) == (between is None) or len(sides) not in ((1,) if between is None else (2,)):
        message = "say strategy=... for a tolerance against the exact result, or between=(one, other) for two results"
        raise InputError(message)
    if axis is not None:
        message = f"axis is for sums, not for {op}"
        raise InputError(message)
    of_law = bool(inputs) and all(isinstance(x, str | Law) for x in inputs)
    if of_law:
        operands, count = drawn(op, inputs, shape, as_format(dtype), rng)
    elif shape is not None:
        message = "shape is for data of a law, not for given arrays"
        raise InputError(message)
    else:
        operands = given(op, inputs)
        count = int(operands[0].size)
    one = Account(op, operands, [members(op, side) for side in sides])
    names = tuple(text_of(side) for side in sides) if between is not None else (text_of(sides[0]), "exact")
    scale = np.abs(one.values)
    some = scale[np.isfinite(scale) & (scale > 0)]
    room: Any = one.room if not of_law else float(one.room.max())
    size: Any = scale if not of_law else float(some.max(initial=0.0))
    if one.infinite:
        one.flags.append("the result may be infinite where a subnormal operand is read as zero: there is no tolerance")
    return Tolerance(
        op, names, 1.0, count if outputs is None else int(outputs), room, room, 0.0, 0.0, size,
        float(np.median(some)) if some.size else 0.0, tuple(one.flags), False, "float32", 1,
        _form=one.pair if of_law else one.tight_pair(), _bugs=one.bugs,
    )  # fmt: skip


def text_lines(t: Tolerance) -> list[str]:
    """Return the first lines of the text: the numbers to paste and where they come from."""
    from fpsim._tolerance_text import rounded_up

    return [
        f"Tolerance of {t.op}, {t.dtype}, between {' and '.join(t.sides)}; {t.outputs} output{'s' * (t.outputs > 1)} in an assertion.",
        f"rtol={rounded_up(t.rtol)}, atol={rounded_up(t.atol)}",
        f"largest difference {float(np.max(np.asarray(t.worst_case))):.3g}: the sum of the largest errors that were measured",
    ]
