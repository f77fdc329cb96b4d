"""How a `Tolerance` is written."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING

import numpy as np

from fpsim._tolerance_functions import mechanism as mechanism_of_function, text_lines
from fpsim.elementary_errors import ENVELOPES

if TYPE_CHECKING:
    from fpsim.tolerances import Tolerance

_WIDTH = 100


def rounded_up(x: float) -> str:
    """Return a tolerance to paste, of three digits and no smaller than x."""
    if not math.isfinite(x) or float(f"{x:.3g}") >= x:
        return f"{x:.3g}"
    return f"{x + 0.5 * 10.0 ** (math.floor(math.log10(x)) - 2):.3g}"


def mechanism(t: Tolerance) -> str:
    """Return what makes the two sides differ."""
    if t.op in ENVELOPES:
        return mechanism_of_function(t.op, t.sides)
    terms = f"{t.terms} term{'s' if t.terms > 1 else ''}"
    worst, sigma, drift, shift = (float(np.max(np.abs(x))) for x in (t.worst_case, t.sigma, t.drift, t.shift))
    if worst == 0:
        return "the results are the same, or exact"
    many = "two orders of additions" if t.sides[-1] != "exact" else "additions"
    parts = [f"rounding errors of {many} over {terms}"]
    if sigma:
        parts.append(f"random in size {sigma:.3g}")
    if drift:
        parts.append(f"in one direction up to {drift:.3g}")
    if shift:
        parts.append(f"operands rounded differently, which changes results by up to {shift:.3g}")
    return "; ".join(parts)


def as_text(t: Tolerance) -> str:
    """Return the numbers to paste, what they rest on, and what default tolerances would do."""
    worst, soft, sigma = (float(np.max(np.asarray(x))) for x in (t.worst_case, t.probabilistic, t.sigma))
    proved = "proved for these data" if t.proved else "the largest of the pilot data, not proved"
    lines = [
        f"Tolerance of {t.op}, {t.dtype}, between {' and '.join(t.sides)}; {t.outputs} output{'s' * (t.outputs > 1)} in an assertion.",
        f"rtol={rounded_up(t.rtol)}, atol={rounded_up(t.atol)}    at a confidence of 1 - {1 - t.confidence:.0e} for all outputs together",
        f"At most {t.false_alarms:.1g} false alarms are expected in 1,000 runs of a test with one such assertion.",
        f"worst case {worst:.3g} ({proved}); probabilistic {soft:.3g}; standard deviation {sigma:.3g}",
        f"Mechanism: {t.mechanism}.",
    ]
    if t.op in ENVELOPES:
        lines = [*text_lines(t), lines[-1]]
    if t.collapse > 1.5:
        lines.append(
            f"One pair of numbers for all outputs is up to {t.collapse:.3g} times looser than their own tolerances."
        )
    lines += [f"Note: {flag}." for flag in t.flags]
    caught = [
        f"{name} ({size:.3g} times the tolerance: {'caught' if size > 1 else 'NOT caught'})"
        for name, size in t.power().items()
    ]
    caught.append(f"one output that is off by more than {t.smallest_error:.2g} of its size is caught")
    lines.append(f"Bugs: {'; '.join(caught)}.")
    lines.append("Default tolerances on the same data:")
    for name, (passes, size) in t.defaults().items():
        verdict = "passes correct results" if passes else "CAN FAIL on correct results"
        lines.append(f"  {name:32} {verdict}; bugs below {size:.3g} tolerances pass")
    return "\n".join(
        line
        for text in lines
        for line in (
            textwrap.wrap(text, _WIDTH, subsequent_indent="  ", break_on_hyphens=False)
            if len(text) > _WIDTH
            else [text]
        )
    )
