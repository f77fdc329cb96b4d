"""The verdict: what sides, figures and statements together say, how sure that is, and what to do next."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from fpsim._differences import Difference, differences as compare
from fpsim.explaining.attribution import attributions
from fpsim.explaining.deciding import for_case
from fpsim.explaining.elementary import FORMULA
from fpsim.explaining.law import LawMatch
from fpsim.explaining.mechanisms import KINDS, mechanisms
from fpsim.explaining.observation import Case, Observation
from fpsim.explaining.operations import ELEMENTWISE, reference
from fpsim.explaining.reductions import emulated
from fpsim.explaining.relations import DROPOUT, OUT_OF_RANGE, STREAM
from fpsim.explaining.results import Explanation, Side

_BASELINE = ("order of additions", "one rounding of the exact result", "correct rounding", "direct distance")
_ORDERED = frozenset(("sum", "mean", "dot", "matmul", "var", "std", "norm", "prod", "cumsum", "cumprod", "all_reduce"))
_UNLIKE = re.compile(r"\bdiffer|not equal|unequal|another|wrong|varie|change|not constant|not < |flipp", re.IGNORECASE)
_DETAILS = 4


def conclude(
    observation: Observation, case: Case, sides: tuple[Side, ...], fits: dict[str, Any], figured: Sequence[Any],
    laws: dict[str, list[LawMatch]],
) -> Explanation:  # fmt: skip
    """Return the explanation."""
    differences: tuple[Difference, ...] = ()
    if len({s.values.shape for s in observation.sides}) == 1:
        differences = compare({s.name: (s.values, s.format) for s in observation.sides})
    exact = None if case.get("of_law") else reference(case)
    verdict, reason = _verdict(observation, case, sides, figured, differences, exact)
    ranked = _ranked(case, sides, fits, figured, laws, observation, verdict)
    by_name = {m.name: m for m in mechanisms()}
    switches = tuple(
        dict.fromkeys(by_name[name].switch for name in ranked[:3] if name in by_name and by_name[name].switch)
    )
    told = tuple(f"{f.measure.name}: {f.text}" for f in figured if f.text)
    shape = observation.sides[0].values.shape if observation.sides else ()
    errors = {s.name: s.rms_ulp for s in sides if s.rms_ulp is not None and s.status != "not examined"}
    closest = tuple(n for n, e in errors.items() if e == min(errors.values())) if len(errors) > 1 else ()
    tolerance = None
    if exact is not None and exact.size.size:
        limit = math.sqrt(2 * math.log(2000 * exact.size.size))
        most = float(np.max(limit * math.sqrt(2) * exact.size + 2 * exact.last))
        tolerance = most if math.isfinite(most) else None
    return Explanation(
        verdict, reason, _mechanisms(sides, figured), sides, differences, closest, _next(verdict, sides, observation),
        case.op, _terms(case), shape, None, ranked=ranked, switches=switches, confidence=_confidence(verdict, sides, figured),
        tolerance=tolerance, figures=told, attribution=attributions(sides, differences, partial(emulated, case)),
        deciding_input=for_case(case, [s.matches for s in sides]) if sides and not case.get("of_law") else None,
    )  # fmt: skip


def _terms(case: Case) -> int | None:
    if not case.inputs:
        return None
    return int(
        case.get("of_law") or (case.x.shape[-1] if case.op in ("dot", "matmul") and case.x.ndim else case.x.size)
    )


# -- the verdict ------------------------------------------------------------------------------------------------------


def _verdict(
    observation: Observation, case: Case, sides: tuple[Side, ...], figured: Sequence[Any],
    differences: tuple[Difference, ...], exact: Any,
) -> tuple[str, str]:  # fmt: skip
    def named(*statuses: str) -> list[Side]:
        return [s for s in sides if s.status in statuses]

    def told(some: list[Side]) -> str:
        return "; ".join(f"{s.name}: {_said(s)}" for s in some)

    if bad := named("fault"):
        return "bug suspected", f"Rounding cannot do this; a fault does. {told(bad)}."
    if bad := named("beyond bound"):
        if case.op not in ELEMENTWISE and all(not _finite(observation, s) for s in bad):
            return (
                "different computation",
                f"Not rounding: an intermediate leaves the range of its format. {told(bad)}.",
            )
        return "bug suspected", f"Rounding cannot give these errors. {told(bad)}."
    if worse := [f for f in figured if f.status == "beyond bound"]:
        return "bug suspected", "Rounding cannot give this. " + "; ".join(
            f"{f.measure.name}: {f.text}" for f in worse
        ) + "."
    if other := named("other computation"):
        return "different computation", f"Not rounding: the sides do not compute the same thing. {told(other)}."
    if lost := _lost(observation):
        return (
            "different computation",
            f"Not rounding: {OUT_OF_RANGE}: {lost} is infinite where another side is finite.",
        )
    unlike = [text for name, text in observation.statements if _UNLIKE.search(text) or _UNLIKE.search(name)]
    if unlike and exact is not None and exact.bound.size and float(np.max(exact.bound)) == 0.0:
        return "bug suspected", f"Every order gives the same bits here, no rounding happens at all; yet: {unlike[0]}."
    if odd := named("too large"):
        return "unknown", f"Not reproduced by any mechanism tried, and not surely rounding. {told(odd)}."
    if strange := [f for f in figured if f.status == "too large"]:
        return "unknown", "Not what any mechanism tried gives. " + "; ".join(
            f"{f.measure.name}: {f.text}" for f in strange
        ) + "."
    usable = [s for s in sides if s.status != "not examined"]
    known = [f for f in figured if f.status != "not examined"]
    lower = [*(_said(s) for s in sides if s.status == "reduced"), *(f.text for f in figured if f.status == "reduced")]
    if (
        differences
        and not any(d.differing for d in differences)
        and len(usable) == len(sides)
        and not observation.statements
        and not known
    ):
        return "identical", "All sides have the same values."
    if lower:
        return "reduced precision", "Explained, but with less precision than the data have. " + "; ".join(lower) + "."
    if usable and (len(usable) == len(sides)):
        weak = [s for s in usable if s.status == "rounding size"]
        if not weak:
            return "expected rounding", f"Every side is reproduced. {told(usable)}."
        return "expected rounding", f"Of the size that rounding gives. {told(usable)}."
    if known:
        return "expected rounding", "; ".join(f"{f.measure.name}: {f.text}" for f in known) + "."
    texts = [text.lower() for _, text in observation.statements]
    if unlike and any(text.strip() == "equal" for text in texts) and exact is not None:
        return (
            "expected rounding",
            "Equal where every partial sum is exact, unequal where sums must be rounded: the order shows.",
        )
    return "unknown", "Nothing that was observed can be compared with a prediction."


def _lost(observation: Observation) -> str:
    """Return the name of a side that is infinite where another is finite, well within the range of its format; or ''."""
    for side in observation.sides:
        for other in observation.sides:
            if other.values.shape == side.values.shape:
                apart = np.isinf(side.values) & (np.abs(other.values) < 0.99 * side.format.max)
                apart |= np.isinf(side.values) & np.isfinite(other.values) & (other.format.max > side.format.max)
                if apart.any():
                    return side.name
    return ""


def _finite(observation: Observation, side: Side) -> bool:
    values = next(s.values for s in observation.sides if s.name == side.name)
    return bool(np.isfinite(values).all())


def _said(side: Side) -> str:
    parts = []
    if side.matches:
        first = side.matches[0]
        parts.append(f"{first.mechanism}: {first.strategy}" if first.mechanism else first.strategy)
        if len(side.matches) > 1:
            more = len(side.matches) - 1
            parts[-1] += f" ({more} other{'s' * (more > 1)} give{'s' * (more == 1)} the same numbers)"
    elif side.status == "rounding size":
        parts.append(f"{side.max_ulp:.3g} ulp from exact" if side.max_ulp is not None else "within what rounding gives")
    if side.note:
        parts.append(side.note)
    return ", ".join(parts) or side.status


def _confidence(verdict: str, sides: tuple[Side, ...], figured: Sequence[Any]) -> str:
    if verdict == "unknown":
        return "low"
    if verdict == "bug suspected":
        ratios = [s.bound_ratio for s in sides if s.status == "beyond bound" and s.bound_ratio is not None]
        return "high" if any(s.status == "fault" for s in sides) or any(r > 10 for r in ratios) else "moderate"
    if sides and all(s.matches for s in sides):
        return "high"
    return "low" if not sides and not any(f.mechanism for f in figured) else "moderate"


# -- mechanisms -------------------------------------------------------------------------------------------------------


def _ranked(
    case: Case, sides: tuple[Side, ...], fits: dict[str, Any], figured: Sequence[Any],
    laws: dict[str, list[LawMatch]], observation: Observation, verdict: str,
) -> tuple[str, ...]:  # fmt: skip
    """Return the names of mechanisms that fit: the one that sets a side apart first, then alternatives."""
    first: list[tuple[int, int, str]] = []
    others: list[tuple[int, int, str]] = []
    for own in fits.values():
        allowed = ("rounding", "reduced") if own and own[0].mechanism.kind in ("rounding", "reduced") else KINDS
        names = list(dict.fromkeys(f.mechanism.name for f in own if f.mechanism.kind in allowed))
        for number, name in enumerate(names):
            fit = next(f for f in own if f.mechanism.name == name)
            severity = -KINDS.index(fit.mechanism.kind)
            entry = (severity if number == 0 else 0, 10 if name in _BASELINE else fit.key[1], name)
            (first if number == 0 else others).append(entry)
    for name, found in laws.items():
        del name
        if found and found[0].accumulators is not None:
            first.append((-2, 0, "stagnation"))
    for one in figured:
        if one.mechanism is not None:
            first.append((-KINDS.index(one.mechanism.kind), 0, one.mechanism.name))
            others += [(0, i, name) for i, name in enumerate(one.others)]
    names = [name for _, _, name in sorted(first)]
    if any("transform convolution" in s.note for s in sides):
        names.insert(0, "transform convolution")
    for told in (DROPOUT, STREAM, OUT_OF_RANGE, FORMULA):
        if any(f"{told}: " in s.note for s in sides):
            names.insert(0, told)
    if any("stagnation" in s.note for s in sides):
        names.append("stagnation")
    if any(m.against == "runs" for m in observation.measures):
        names.insert(0, "nondeterministic order")
    if any(s.status == "rounding size" for s in sides) or any(f.status == "rounding size" for f in figured):
        names.append("elementary-function error" if case.op in ELEMENTWISE else "order of additions")
    if not names and verdict == "expected rounding" and case.op in _ORDERED:
        names.append("order of additions")
    if verdict == "different computation" and not any(s.status == "other computation" for s in sides):
        names.insert(0, "intermediate out of range")
    if verdict == "bug suspected" and not any(s.status == "fault" for s in sides):
        names.insert(0, "fault")
    names += [name for _, _, name in sorted(others)]
    return tuple(dict.fromkeys(names))


def _mechanisms(sides: tuple[Side, ...], figured: Sequence[Any]) -> tuple[str, ...]:
    told = [f"{s.name} = {s.matches[0].strategy} ({s.matches[0].mechanism})" for s in sides if s.matches]
    told += [f"{f.measure.name} = {f.mechanism.name}: {f.text}" for f in figured if f.mechanism is not None]
    return tuple(told[: 2 * _DETAILS])


def _next(verdict: str, sides: tuple[Side, ...], observation: Observation) -> tuple[str, ...]:
    steps = []
    if verdict == "unknown":
        if not observation.sides:
            steps.append("give the results of both sides, all digits or the files, for the inputs named")
        steps.append("give the library, its version, the device and the kernel of the side that is not explained")
    if verdict in ("bug suspected", "different computation"):
        steps.append("recompute one of the wrong elements on its own, and compare the inputs that this side saw")
    ambiguous = [
        s for s in sides if len({m.mechanism for m in s.matches}) > 1 and s.status in ("reproduced", "reduced")
    ]
    if ambiguous:
        listed = ", ".join(dict.fromkeys(m.mechanism for m in ambiguous[0].matches))
        steps.append(
            f"to tell {listed} apart for {ambiguous[0].name}, give more outputs, or the same with signed random data"
        )
    return tuple(steps)
