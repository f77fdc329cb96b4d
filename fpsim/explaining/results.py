"""What an explanation consists of."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Final

from fpsim._differences import Difference
from fpsim._matching import Match, Part
from fpsim.explaining.attribution import Attribution
from fpsim.explaining.deciding import DecidingInput
from fpsim.explaining.evidence import Evidence

SCHEMA: Final = "fpsim.explanation/2"
#: Every verdict, and the exit code of the command for it: 0 rounding explains it, 1 it does not, 3 unknown.
VERDICTS: Final = {
    "identical": 0,
    "expected rounding": 0,
    "reduced precision": 0,
    "different computation": 1,
    "bug suspected": 1,
    "unknown": 3,
}


@dataclass(frozen=True, slots=True)
class Side:
    """One observed result.

    Attributes
    ----------
    name : str
        How it was called.
    format : str
        The format of its numbers.
    max_ulp, rms_ulp : float or None
        Errors against the exact result, in ulps of the exact value (finite ones); None without inputs.
    max_error : float or None
        Largest absolute error.
    worst_at : tuple of int or None
        Where the largest error in ulps is.
    correctly_rounded : float or None
        Share of outputs that are the exact result correctly rounded.
    bound_ratio : float or None
        Largest error divided by the worst-case bound that holds for every order.
    rounding_ratio : float or None
        Root mean square of the errors divided by the statistical size of one long chain's rounding.
    status : str
        "reproduced", "reduced", "rounding size", "reduced size", "too large", "unlike the others" (a strategy gives
        nearly all of the elements, but not these), "beyond bound", "other computation", "fault" or "not examined".
    note : str
        What stands out, in words.
    matches : tuple of Match
        The strategies that give this result bit for bit, simplest first.
    nearest : tuple of (str, float) or None
        Without a match: the strategy that gives most outputs, and their share.
    tried : int
        Number of strategies tried.
    parts : tuple of Part
        Without a match: few strategies that give all outputs together.
    """

    name: str
    format: str
    max_ulp: float | None = None
    rms_ulp: float | None = None
    max_error: float | None = None
    worst_at: tuple[int, ...] | None = None
    correctly_rounded: float | None = None
    bound_ratio: float | None = None
    rounding_ratio: float | None = None
    status: str = "not examined"
    note: str = ""
    matches: tuple[Match, ...] = ()
    nearest: tuple[str, float] | None = None
    tried: int = 0
    parts: tuple[Part, ...] = ()

    @property
    def is_reproduced(self) -> bool:
        """Whether a strategy, or few of them together, gives these bits."""
        return bool(self.matches or self.parts)


@dataclass(frozen=True)
class Explanation:
    """What can be said about results of one operation.

    Attributes
    ----------
    verdict : str
        One of `VERDICTS`: "identical"; "expected rounding" (every side is reproduced bit for bit by a strategy of full
        precision, or its errors are within the worst-case bound and of the size that rounding gives); "reduced
        precision" (a side rounds its operands below their own format, or accumulates below float32); "different
        computation" (the sides compute different things: another divisor, subnormal numbers flushed, an intermediate
        out of range, an operator that is not associative); "bug suspected" (an error that rounding cannot give);
        "unknown".
    reason : str
        Why, in words.
    mechanisms : tuple of str
        What makes the sides differ, as far as the data tell, one of the simplest explanations.
    sides : tuple of Side
        In the order given.
    differences : tuple of Difference
        One for each pair of sides.
    closest : tuple of str
        Names of the sides nearest to the exact result (root mean square in ulps).
    next_steps : tuple of str
        What would tell more.
    op : str or None
        The operation.
    terms : int or None
        Terms of each output.
    shape : tuple of int
        Of the results.
    condition : tuple of (float, float) or None
        Median and largest condition number of the outputs.
    ranked : tuple of str
        Names of the mechanisms that fit, likeliest first.
    switches : tuple of str
        What removes the difference, where that is known.
    confidence : str
        "high" (bits or all printed digits are reproduced, or the bound is broken by far), "moderate" or "low" (by size
        only).
    tolerance : float or None
        The absolute tolerance that sides of this case need, if all roundings are legitimate.
    figures : tuple of str
        What was said about figures, such as a largest error, that were observed instead of results.
    attribution : tuple of Attribution
        The difference of each two reproduced sides as a chain of single changes with their shares.
    deciding_input : DecidingInput or None
        Where several strategies give the same bits: an input on which they differ.
    """

    verdict: str
    reason: str
    mechanisms: tuple[str, ...]
    sides: tuple[Side, ...]
    differences: tuple[Difference, ...]
    closest: tuple[str, ...]
    next_steps: tuple[str, ...]
    op: str | None
    terms: int | None
    shape: tuple[int, ...]
    condition: tuple[float, float] | None
    ranked: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    confidence: str = "moderate"
    tolerance: float | None = None
    figures: tuple[str, ...] = ()
    attribution: tuple[Attribution, ...] = ()
    deciding_input: DecidingInput | None = None
    _evidence: Evidence | None = field(default=None, repr=False, compare=False)

    @property
    def explainable(self) -> bool | None:
        """Whether rounding explains the difference; None where that is unknown."""
        return {0: True, 1: False, 3: None}[self.exit_code]

    @property
    def exit_code(self) -> int:
        """0 explained, 1 a bug is suspected, 3 unknown."""
        return VERDICTS[self.verdict]

    def __str__(self) -> str:
        from fpsim._explanation_text import text

        return text(self)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain Python objects that JSON takes; numbers that are not finite become texts."""
        return {"schema": SCHEMA, "exit_code": self.exit_code, "explainable": self.explainable, **_plain(self)}

    def to_html(self) -> str:
        """Return one HTML document that needs no other file and no network: charts, trees, evidence and switches."""
        from fpsim.reports import page

        return page(self)

    def _repr_html_(self) -> str:
        from fpsim.reports import fragment

        return fragment(self)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value) if f.repr}
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
