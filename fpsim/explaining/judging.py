"""From an observation to a verdict: evidence first, then what each mechanism predicts, the verdict last."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim._matching import Match
from fpsim._plausibility import pattern
from fpsim.explaining import elementary, figures, law
from fpsim.explaining.copies import copied
from fpsim.explaining.evidence import of_references
from fpsim.explaining.faults import gives
from fpsim.explaining.mechanisms import KINDS, Mechanism, computed
from fpsim.explaining.observation import Case, Observation, Observed
from fpsim.explaining.operations import ELEMENTWISE, Reference, reference, ulp
from fpsim.explaining.relations import OUT_OF_RANGE, relation
from fpsim.explaining.results import Explanation, Side

Doubles = NDArray[np.float64]
_DEVIATION: Final = 2 * math.log(2000)
#: Operations whose bound holds for every order: no rounding leads beyond it, whatever gives the same numbers.
_BOUNDED: Final = frozenset(("sum", "dot", "matmul"))
_ALIKE: Final = 8  # how many times the others a transform's error may be, and elements needed to tell
_STATUS: Final = {"rounding": "reproduced", "reduced": "reduced", "range": "other computation",
                  "definition": "other computation", "fault": "fault"}  # fmt: skip


@dataclass(frozen=True, eq=False, slots=True)
class Fit:
    """A mechanism's prediction that gives a side."""

    mechanism: Mechanism
    text: str
    rank: int

    @property
    def key(self) -> tuple[int, int]:
        """For sorting: what is harmless first, then what is simple."""
        return KINDS.index(self.mechanism.kind), self.mechanism.rank + self.rank


Examined = tuple[Case, list[Side], dict[str, list[Fit]], dict[str, Reference | None], dict[str, list[law.LawMatch]]]


def judged(observation: Observation, /) -> Explanation:
    """Return the explanation of an observation."""
    case = observation.case
    if case is None:
        from fpsim.explaining.triage import without_inputs

        return without_inputs(observation)
    if case.op == "finite_difference":
        from fpsim.explaining.triage import finite_differences

        return finite_differences(observation, case)
    case, sides, fits, exacts, laws = examined(case, observation)
    figured = []
    if observation.measures and not case.get("of_law"):
        exact = reference(case)
        if exact is not None:
            figured = [figures.judge(case, exact, measure) for measure in observation.measures]
    from fpsim.explaining.verdicts import conclude

    told = conclude(observation, case, tuple(sides), fits, figured, laws)
    return replace(told, _evidence=of_references({s.name: (s.values, s.format) for s in observation.sides}, exacts))


def examined(case: Case, observation: Observation, /) -> Examined:
    """Return what can be said about each side: the case with all its settings, sides, what fits, exact results, laws."""
    case = _with_divisor(case, observation.sides)
    found: dict[Any, tuple[Reference | None, list[tuple[Mechanism, Any, Doubles]]]] = {}
    sides: list[Side] = []
    fits: dict[str, list[Fit]] = {}
    exacts: dict[str, Reference | None] = {}
    laws: dict[str, list[law.LawMatch]] = {}
    if case.get("of_law") or (not case.known and observation.sides):
        for side in observation.sides:
            laws[side.name] = law.matches(case, side, side.format)
    for side in observation.sides:
        if side.name in laws:
            sides.append(_law_side(case, side, laws[side.name]))
            continue
        own = _case_of(case, side)
        key = (
            own.op,
            str(side.settings.get("column")),
            str(own.result),
            tuple(sorted((k, str(v)) for k, v in own.settings.items())),
        )
        if key not in found:
            exact = reference(own)
            found[key] = exact, list(computed(own))
        exact, predictions = found[key]
        own_fits = _fits(side, predictions, exact, bounded=own.op in _BOUNDED and own.known)
        fits[side.name], exacts[side.name] = own_fits, exact
        judged_side = _side(own, side, exact, own_fits, len(predictions))
        sides.append(elementary.refined(own, side, judged_side, predictions))
    return case, sides, fits, exacts, laws


def _with_divisor(case: Case, sides: tuple[Observed, ...]) -> Case:
    """Settle the divisor of a variance that was not named: the one that most sides have, n first."""
    if case.op not in ("var", "std", "rolling_var") or "ddof" in case.settings:
        return case
    counts = []
    for ddof in (0, 1):
        settled = replace(case, settings={**case.settings, "ddof": ddof})
        exact = reference(settled)
        assert exact is not None
        with np.errstate(invalid="ignore"):
            near = sum(
                float(np.mean(np.abs(s.values - s.view(exact.value)) <= s.slack() + 2 * ulp(s.values, s.format)))
                for s in sides
            )
        counts.append((-near, ddof, settled))
    return min(counts, key=lambda c: c[:2])[2]


def _case_of(case: Case, side: Observed) -> Case:
    settings = {k: v for k, v in side.settings.items() if k not in ("op", "inputs", "dtype", "index", "column", "n")}
    own = replace(case, settings={**case.settings, **settings}, result=side.format)
    if "column" in side.settings and case.inputs and case.x.ndim > 1:
        column = np.ascontiguousarray(case.x[..., int(side.settings["column"])])
        own = replace(
            own, inputs=(column, *case.inputs[1:]), settings={k: v for k, v in own.settings.items() if k != "axis"}
        )
    return replace(own, op=str(side.settings["op"])) if "op" in side.settings else own


def _fits(
    side: Observed, predictions: list[tuple[Mechanism, Any, Doubles]], exact: Reference | None, *, bounded: bool
) -> list[Fit]:  # fmt: skip
    """Return the predictions that give a side; of a fault also those within rounding of it, see `gives`.

    Where the operation is `bounded`, what is beyond the bound of every order is no rounding, whatever gives it.
    """
    right = np.zeros(side.values.shape, bool)
    if exact is not None:
        with np.errstate(all="ignore"):
            error = np.abs(side.values - side.view(exact.value)) - side.slack()
            right = np.isfinite(side.values) & (error <= side.view(exact.bound) * (1 + 1e-9))
    found = []
    for one, prediction, given in predictions:
        if bounded and one.kind == "rounding" and bool(np.any(~right & np.isfinite(side.values))):
            continue
        same, partly = bool(side.same(given).all()), False
        if one.kind == "fault" and exact is not None:
            apart = np.abs(side.view(given) - side.view(exact.value))
            if np.all(apart <= side.view(exact.last) * 1.01):
                continue  # with these inputs the fault changes nothing
        if one.kind == "fault" and not same and exact is not None:
            room = side.view(exact.bound if exact.direct is None else exact.direct) + side.slack()
            partly = gives(side.values, side.view(given), side.view(exact.value), room)
        if partly or same:
            found.append(Fit(one, prediction.text, prediction.rank + 4 * partly))
    return sorted(found, key=lambda fit: fit.key)


def _law_side(case: Case, side: Observed, found: list[law.LawMatch]) -> Side:
    name = str(side.format)
    if not found:
        return Side(
            side.name, name, status="too large", note="no number of accumulators gives this for terms of this law"
        )
    if any(m.accumulators is None for m in found):
        return Side(side.name, name, status="rounding size", note=law.describe(found, case), tried=1)
    low = found[0].format in ("float16", "bfloat16")
    matches = tuple(
        Match(f"{m.accumulators} accumulators in {m.format}", reduced=low, mechanism="stagnation") for m in found
    )
    return Side(
        side.name,
        name,
        status="reduced" if low else "reproduced",
        note=f"stagnation: {law.describe(found, case)}",
        matches=matches,
        tried=len(found),
    )


# -- one side ---------------------------------------------------------------------------------------------------------


def _side(case: Case, side: Observed, exact: Reference | None, fits: list[Fit], tried: int) -> Side:
    matches = tuple(
        Match(fit.text, checked=side.values.size, reduced=fit.mechanism.kind == "reduced", mechanism=fit.mechanism.name)
        for fit in fits
    )
    plain = Side(side.name, str(side.format), note=side.note, matches=matches, tried=tried)
    if exact is None:
        return replace(plain, status=_STATUS[fits[0].mechanism.kind] if fits else "not examined")
    value = side.view(exact.value)
    bound, size, last = (side.view(v) for v in (exact.bound, exact.size, exact.last))
    with np.errstate(all="ignore"):
        error = np.maximum(np.abs(side.values - value) - side.slack(), 0.0)
        special = ~(np.isfinite(side.values) & np.isfinite(value))
        same = (side.values == value) | (np.isnan(side.values) & np.isnan(value))
        wrong = np.where(special, ~same & ~(np.abs(value) + bound >= side.format.max), error > bound * (1 + 1e-9))
        error = np.where(special, 0.0, error)
        in_ulps = error / ulp(value, side.format)
        limit = math.sqrt(_DEVIATION + 2 * math.log(max(error.size, 1)))
        within = error <= size * (limit if case.op not in ELEMENTWISE else 4.0) + last
        ratio = np.where(error == 0, 0.0, error / bound)
    numbers = replace(
        plain, max_ulp=_largest(in_ulps), rms_ulp=_root_mean_square(np.nan_to_num(in_ulps, posinf=0)),
        max_error=_largest(error), bound_ratio=float(np.nanmax(np.where(special, 0, ratio), initial=0.0)),
        rounding_ratio=_largest(np.where(error == 0, 0.0, error / np.where(size > 0, size, np.where(last > 0, last, 1.0)))),
        correctly_rounded=float(np.mean(error <= 0.5 * ulp(value, side.format))),
        worst_at=tuple(int(i) for i in np.unravel_index(int(np.argmax(np.nan_to_num(in_ulps))), in_ulps.shape)) if in_ulps.shape else (),
    )  # fmt: skip
    if fits and fits[0].mechanism.kind in ("rounding", "reduced"):
        lost = wrong & (~np.isfinite(side.values) | (side.values == 0))
        if lost.any():
            told = (
                f"{pattern(np.atleast_1d(lost))}: infinite, NaN or zero although the exact result is within the range"
            )
            return replace(numbers, status="other computation", note=_join(side.note, f"{OUT_OF_RANGE}: {told}"))
    if fits:
        return replace(
            numbers, status=_STATUS[fits[0].mechanism.kind], note=_join(side.note, _stopped(side, value, fits))
        )
    if wrong.any():
        related, told = relation(side.values, value, side.slack())
        if related:
            return replace(numbers, status="other computation", note=_join(side.note, f"{related}: {told}"))
        return replace(
            numbers,
            status="beyond bound",
            note=_join(
                side.note,
                f"beyond what rounding can give: {pattern(np.atleast_1d(wrong))}",
                copied(side.values, wrong),
                _wrong_kind(case, side, value),
            ),
        )
    if bool(np.all(within | special)) and exact.direct is not None and np.any(error > side.view(exact.direct)):
        far = error > side.view(exact.direct)
        if far.sum() < far.size >= _ALIKE and error.max() > _ALIKE * _root_mean_square(error[~far]):
            told = "more than a direct sum can err, at some elements only, where a transform errs alike everywhere"
            return replace(numbers, status="too large", note=_join(side.note, told, pattern(np.atleast_1d(far))))
        told = "more than a direct sum can err: a transform convolution (FFT or Winograd), whose errors scale with the largest activation"
        return replace(numbers, status="rounding size", note=_join(side.note, told))
    if bool(np.all(within | special)):
        return replace(numbers, status="rounding size")
    told = f"within the worst-case bound ({numbers.bound_ratio:.2g} of it), but {numbers.rounding_ratio:.3g} times what rounding gives"
    return replace(numbers, status="too large", note=_join(side.note, told))


def _wrong_kind(case: Case, side: Observed, value: Doubles) -> str:
    lost = ~np.isfinite(side.values) & np.isfinite(value)
    if lost.any():
        return "infinite or NaN although the exact result is finite: an intermediate left the range, or a fault"
    if case.op in ("sin", "cos") and np.any(np.abs(side.values) > 1):
        return "outside [-1, 1]: the reduction of large arguments is broken"
    return ""


def _stopped(side: Observed, value: Doubles, fits: list[Fit]) -> str:
    """Say where a running sum stopped."""
    if side.values.size != 1 or fits[0].mechanism.name not in ("low-precision accumulator", "order of additions"):
        return ""
    one, exact = abs(float(side.values.reshape(-1)[0])), abs(float(np.asarray(value).reshape(-1)[0]))
    if one and math.log2(one).is_integer() and exact > 1.2 * one:
        return f"the sum stops at 2**{int(math.log2(one))}, where a term is half an ulp or less: stagnation"
    return ""


def _join(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _root_mean_square(values: Doubles) -> float:
    most = float(values.max(initial=0.0))  # whose square may overflow
    return most * math.sqrt(float(np.mean(np.square(values / most)))) if most else 0.0


def _largest(values: Any) -> float:
    values = np.asarray(values, np.float64)
    return float(values[np.isfinite(values)].max(initial=0.0))
