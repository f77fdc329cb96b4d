"""Sums and products whose inputs are known: every strategy is tried, and errors are compared with bound and size."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim._differences import Difference
from fpsim._matching import LEAST_SHARE, Found, bits
from fpsim._observed_operation import Operation
from fpsim._plausibility import Judgement, judge, operands_that_fit, pattern, worst_case
from fpsim.explaining.attribution import nearest_pairs
from fpsim.explaining.chance import DOUBT, least_factor, of_reduced
from fpsim.explaining.consulted import consult
from fpsim.explaining.copies import copied
from fpsim.explaining.results import Side
from fpsim.formats import Format

if TYPE_CHECKING:
    from fpsim._exact_values import Exact

#: Share of elements that a strategy must give for the others to look like a fault, be they ever so nearly right.
FEW_APART: Final = 0.95
_OWN: Final = ("reduced size", "beyond bound", "fault", "other computation")  # they explain one side by itself
#: Findings that a mechanism of another kind than strategies may change.
_OPEN: Final = ("rounding size", "unlike the others", "too large", "beyond bound")


def _strategy(text: str) -> Any:
    from fpsim.strategies import strategy

    return strategy(text)


def _side(
    name: str, values: NDArray[Any], form: Format, found: Found, task: Operation, reference: Exact,
    sampled: NDArray[np.int64],
) -> Side:  # fmt: skip
    if found.unlike is not None and found.nearest is not None and found.nearest[1] >= LEAST_SHARE:
        sampled = task.sample_where(found.unlike).outputs  # those that are explained would hide the others
    bound = worst_case(task, reference, form)
    judgement = judge(task, bound, values, reference, form, sampled)
    status, note = _status(found, judgement, values, form, task, reference, sampled)
    matches = found.matches
    if status in _OPEN:
        told = consult(task, values, form, reference, bound, judgement.beyond)
        if told is not None:
            note = "; ".join(filter(None, (told[1] if told[0] != "reproduced" else "", note)))
            status, matches = told[0], (*matches, *told[2])
    ulps = np.asarray(reference.ulp_error(values, format=form), np.float64)
    usable = np.isfinite(ulps)
    worst = np.unravel_index(int(np.argmax(np.where(usable, np.abs(ulps), -1))), ulps.shape) if ulps.shape else ()
    error = np.abs(np.asarray(reference.error(values)))
    error = error[np.isfinite(error)]
    right = bits(np.asarray(reference.round(form))) == bits(values)
    finite = ulps[usable]
    return Side(
        name, str(form),
        max_ulp=float(np.abs(finite).max(initial=0.0)),
        rms_ulp=math.sqrt(float(np.mean(finite**2))) if finite.size else 0.0,
        max_error=float(error.max(initial=0.0)),
        worst_at=tuple(int(i) for i in worst),
        correctly_rounded=float(np.mean(right)),
        bound_ratio=judgement.bound_ratio, rounding_ratio=judgement.rms_ratio,
        status=status, note=note, matches=matches, nearest=found.nearest, tried=found.tried, parts=found.parts,
    )  # fmt: skip


def _status(
    found: Found, judgement: Judgement, values: NDArray[Any], form: Format, task: Operation, reference: Exact,
    sampled: NDArray[np.int64],
) -> tuple[str, str]:  # fmt: skip
    """Return the status of a side and what stands out."""
    if any(not match.reduced for match in found.matches):
        return "reproduced", ""
    if found.parts:
        told = "; ".join(f"{part.strategy} gives {part.count} ({part.where})" for part in found.parts)
        return "reproduced", f"several strategies share the elements: {told}"
    doubt = ""
    if found.matches:
        first = found.matches[0].strategy
        if of_reduced(first, values, form, task, reference, sampled) <= DOUBT:
            return "reduced", f"only with reduced precision: {first}"
        doubt = f"{first} gives these numbers, but so few outputs may agree by chance"
    remark = "; ".join(filter(None, (_apart(found), doubt)))
    if not judgement.has_rounding_size:
        fitting = operands_that_fit(task, values, reference, form, sampled)
        if fitting is not None and fitting[1] < least_factor(values, sampled):
            fitting = None
        if fitting is not None and _only_operands(task, values, form, fitting[0][0], sampled):
            (told, *others), factor = fitting
            same = f" ({', '.join(others)} cannot be told from it here)" if others else ""
            return "reduced size", (
                f"measured against inputs rounded as operands({told}), its errors are {factor:.3g} times smaller, so that"
                f" its operands were rounded so{same}, in an order that is not among those tried"
            )
    if judgement.is_within_bound:
        few_apart = found.nearest is not None and found.nearest[1] >= FEW_APART
        if judgement.has_rounding_size:
            return ("unlike the others", remark) if few_apart else ("rounding size", remark)
        large = (
            f"its errors are within the worst-case bound, but {judgement.rms_ratio:.3g} times (root mean square) and"
            f" {judgement.max_ratio:.3g} times (largest) what the rounding of one running sum gives"
        )
        return "too large", "; ".join(filter(None, (large, remark)))
    if doubt:
        return "too large", f"its errors are beyond the worst-case bound of full precision; {doubt}"
    return "beyond bound", _beyond_note(judgement, values)


def _apart(found: Found) -> str:
    """Say which elements differ from the strategy that gives most of them."""
    if found.nearest is None or found.unlike is None or found.nearest[1] < LEAST_SHARE:
        return ""
    text, share = found.nearest
    return f"{text} gives {_percent(share)} of the elements; others: {pattern(found.unlike)}"


def _only_operands(task: Operation, values: NDArray[Any], form: Format, told: str, sampled: NDArray[np.int64]) -> bool:
    """Check that against rounded operands no output is far off: an operation in reduced precision, and no other fault."""
    name, _, mode = told.partition(", ")
    rounded = task.rounded(name, (mode or "nearest-even").replace("_", "-"))  # type: ignore[arg-type]
    if rounded is None:
        return False
    reference = rounded.exact()
    # Hardware that multiplies such operands may truncate its sums: an ulp for each rounding instead of half of one.
    return judge(rounded, 2 * worst_case(rounded, reference, form), values, reference, form, sampled).is_within_bound


def _beyond_note(judgement: Judgement, values: NDArray[Any]) -> str:
    wrong = judgement.beyond
    told = f"beyond the worst-case bound of every order: {pattern(wrong)}"
    count = int((~np.isfinite(np.asarray(values, np.float64)) & wrong).sum())
    if count:
        told += f" ({count} of them infinite or NaN where the exact result is not)"
    return "; ".join(filter(None, (told, copied(values, wrong))))


def _rms(values: NDArray[Any]) -> float:
    return math.sqrt(float(np.mean(np.square(values)))) if np.isfinite(values).all() else math.inf


# -- all sides -------------------------------------------------------------------------------------------------------


def _verdict(sides: tuple[Side, ...], differences: tuple[Difference, ...], task: Operation) -> tuple[str, str]:
    by_status: dict[str, list[Side]] = {}
    for side in sides:
        by_status.setdefault(side.status, []).append(side)
    if bad := [*by_status.get("fault", ()), *by_status.get("beyond bound", ())]:
        reasons = "; ".join(f"{side.name}: {side.note}" for side in bad)
        shared = ""
        if _agree_elsewhere(bad, sides, differences):
            shared = " All sides share the error: the inputs or the operation may not be those that gave the results."
        return "bug suspected", f"No order of additions in full precision gives these errors. {reasons}.{shared}"
    if other := by_status.get("other computation"):
        reasons = "; ".join(f"{side.name}: {side.note}" for side in other)
        return "different computation", f"Not rounding: the sides do not compute the same thing. {reasons}."
    if odd := [*by_status.get("too large", ()), *by_status.get("unlike the others", ())]:
        reasons = "; ".join(f"{side.name}: {side.note}" for side in odd)
        return "unknown", f"Not reproduced by any strategy tried, and not surely rounding. {reasons}."
    lower = [*by_status.get("reduced", ()), *by_status.get("reduced size", ())]
    if sides and differences and not any(d.differing for d in differences):
        return "identical", "All sides have the same values" + (", by reduced precision." if lower else ".")
    if lower:
        reasons = "; ".join(f"{side.name}: {side.note}" for side in lower)
        return "reduced precision", f"Explained, but not by float32 arithmetic alone. {reasons}."
    weak = by_status.get("rounding size", [])
    if not weak:
        them = "This result is" if len(sides) == 1 else "Both sides are" if len(sides) == 2 else "All sides are"
        return "expected rounding", f"{them} reproduced bit for bit by strategies of full precision."
    names = ", ".join(side.name for side in weak)
    return "expected rounding", (
        f"Weaker evidence: no strategy tried gives the bits of {names}, but all errors are within the worst-case bound"
        f" of {task.n} terms and of the size that rounding gives."
    )


def _agree_elsewhere(bad: list[Side], sides: tuple[Side, ...], differences: tuple[Difference, ...]) -> bool:
    """Whether several sides share one error, a thousand times larger than what they differ by."""
    errors = [side.max_error for side in bad if side.max_error is not None]
    together = len(bad) == len(sides) > 1 and len(errors) == len(sides)
    return together and all(one.max_absolute <= 1e-3 * min(errors) for one in differences)


def _closest(sides: tuple[Side, ...]) -> tuple[str, ...]:
    if len(sides) < 2:
        return ()
    held = [side for side in sides if side.status != "beyond bound"] or sides  # some of those errors may be infinite
    errors = {side.name: side.rms_ulp for side in held if side.rms_ulp is not None}
    least = min(errors.values())
    return tuple(name for name, error in errors.items() if error == least)


def _mechanisms(sides: tuple[Side, ...], differences: tuple[Difference, ...]) -> tuple[str, ...]:
    """Name what distinguishes sides, from the pair of matches that have most in common."""
    by_name = {side.name: side for side in sides}
    told = []
    for difference in differences:
        first, second = by_name[difference.first], by_name[difference.second]
        if difference.differing and first.matches and second.matches:
            told.append(_mechanism(first, second))
    told += [f"{side.name}: {side.note}" for side in sides if side.status in _OWN]
    return tuple(told)


def _mechanism(first: Side, second: Side) -> str:
    pairs = nearest_pairs(first.matches, second.matches)
    if not pairs:
        return f"{first.name} and {second.name}: not told apart"
    changed, a, b = pairs[0]
    single = len(first.matches) == len(second.matches) == 1
    other = "" if single else "; other pairs of strategies fit as well"
    return f"{' and '.join(changed)}: {first.name} = {a}, {second.name} = {b}{other}"


def _next_steps(verdict: str, sides: tuple[Side, ...]) -> tuple[str, ...]:
    steps = []
    open_sides = [side.name for side in sides if not side.is_reproduced]
    if verdict == "bug suspected":
        steps.append("recompute the elements named above on their own, and compare the inputs that the faulty side saw")
    if verdict == "unknown" and open_sides:
        steps.append(f"name the order of {', '.join(open_sides)} if it is known (strategies=..., --strategy)")
    if any(len(side.matches) > 1 for side in sides):
        steps.append("more outputs, or more terms with mixed signs, tell strategies apart that give the same bits here")
    return tuple(steps)


def _percent(share: float) -> str:
    """Return a share in percent that reads 100 only if it is all."""
    text = f"{100 * share:.4g} %"
    return "almost 100 %" if share < 1 and text.startswith("100") else text
