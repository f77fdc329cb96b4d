"""What can be said without inputs: scale, representability, and which mechanisms would look so."""

from __future__ import annotations

import math

import numpy as np

from fpsim._differences import Difference, differences as compare, narrower, scale
from fpsim.explaining.mechanisms import mechanisms
from fpsim.explaining.observation import Case, Observation, Observed
from fpsim.explaining.results import Explanation, Side
from fpsim.formats import round_to


def without_inputs(observation: Observation, /) -> Explanation:
    """Return what two results alone, or figures alone, tell."""
    sides = observation.sides
    given = tuple(Side(s.name, str(s.format), note=s.note or narrower(s.values, s.format)) for s in sides)
    differences: tuple[Difference, ...] = ()
    if len(sides) > 1 and len({s.values.shape for s in sides}) == 1:
        results = {s.name: (s.values, s.format) for s in sides}
        differences = compare(results)
    hidden = hidden_conversion(sides)
    likely = tuple(
        m.name
        for m in mechanisms()
        if observation.op in m.operations and m.foresees and m.kind in ("rounding", "reduced")
    )
    step = ("give the operation and its inputs, or how they were made: an expression, a seed, or their law",)
    shape = sides[0].values.shape if sides else ()
    if hidden:
        return Explanation(
            "expected rounding", hidden, (hidden,), given, differences, (), step, observation.op, None, shape, None,
            ranked=("output rounding or representation",), confidence="moderate",
        )  # fmt: skip
    if differences and not any(d.differing for d in differences):
        return Explanation(
            "identical",
            "All sides have the same values.",
            (),
            given,
            differences,
            (),
            (),
            observation.op,
            None,
            shape,
            None,
        )
    reason = "Without the inputs nothing can be said about right and wrong."
    if differences:
        worst = max(differences, key=lambda d: d.max_absolute)
        reason += f" {scale({s.name: (s.values, s.format) for s in sides}, worst)}"
    near_zero = near_zero_reference(observation)
    if near_zero:
        reason += f" {near_zero}"
    return Explanation(
        "unknown",
        reason,
        (),
        given,
        differences,
        (),
        step,
        observation.op,
        None,
        shape,
        None,
        ranked=likely,
        confidence="low",
    )


def hidden_conversion(sides: tuple[Observed, ...]) -> str:
    """Say that one side is the other after a conversion to a narrower format, if it is."""
    for a in sides:
        for b in sides:
            if a is b or a.values.shape != b.values.shape or np.array_equal(a.values, b.values, equal_nan=True):
                continue
            for name in ("float32", "float16", "bfloat16", "tf32"):
                with np.errstate(all="ignore"):
                    rounded = np.asarray(round_to(a.values, name))
                if np.array_equal(rounded, b.values, equal_nan=True) and b.is_exact:
                    return f"{b.name} is {a.name} rounded to {name}: a hidden conversion through {name}"
    return ""


def near_zero_reference(observation: Observation) -> str:
    """Say what a large relative and a small absolute difference mean together."""
    absolute = [m for m in observation.measures if m.statistic == "max" and math.isfinite(m.high)]
    relative = [m for m in observation.measures if m.statistic == "max relative" and math.isfinite(m.high)]
    if absolute and relative and relative[0].low > 1:
        size = absolute[0].high / relative[0].low
        return f"The largest relative difference is at a result of about {size:.1g}: near zero, where relative differences mean nothing."
    return ""


def finite_differences(observation: Observation, case: Case, /) -> Explanation:
    """Tell whether numerical derivatives are whole multiples of an ulp of the function's values over the step.

    A central difference divides by twice the step, so that its smallest change is an ulp over 2 eps.
    """
    eps = float(case.get("eps", 1e-6))
    sides = observation.sides
    given = []
    quantised = []
    for side in sides:
        told = _quanta(side, eps, 24 if case.result.precision <= 24 else 53)
        quantised.append(bool(told))
        given.append(Side(side.name, str(side.format), status="reproduced" if told else "not examined", note=told))
    notes = "; ".join(f"{s.name}: {s.note}" for s in given if s.note)
    shape = sides[0].values.shape if sides else ()
    differences = (
        compare({s.name: (s.values, s.format) for s in sides}) if len({s.values.shape for s in sides}) == 1 else ()
    )
    if not any(quantised):
        reason = "No numerical derivative is a multiple of an ulp of the function over twice the step."
        step = ("give the function's value and the step eps",)
        return Explanation(
            "unknown", reason, (), tuple(given), differences, (), step, case.op, None, shape, None, confidence="low"
        )
    reason = f"The step {eps:g} is too small for the format: {notes}. The derivative has no more digits than that."
    return Explanation(
        "expected rounding", reason, (notes,), tuple(given), differences, (), ("take a larger step, or compute in float64",),
        case.op, None, shape, None, ranked=("finite difference below the resolution", "catastrophic cancellation"),
        switches=("float64 inputs, or eps near the cube root of the unit roundoff",), confidence="moderate",
    )  # fmt: skip


def _quanta(side: Observed, eps: float, precision: int) -> str:
    """Say of which ulp over 2 eps all numbers are small whole multiples; empty if of none, or if chance would do it."""
    values, slack = side.values.reshape(-1), side.slack().reshape(-1)
    if not np.isfinite(values).all() or not values.any():
        return ""
    for exponent in range(8, -1 - precision, -1):
        quantum = 2.0 ** (exponent - precision + 1) / (2 * eps)
        counts = np.rint(values / quantum)
        off = np.abs(values - counts * quantum)
        chance = float(np.prod(np.minimum(1.0, 2 * (slack + 1e-4 * np.abs(values)) / quantum)))
        if (
            chance < 0.02
            and np.abs(counts).max() <= 64
            and counts.any()
            and np.all(off <= slack + 1e-4 * np.abs(values))
        ):
            listed = ", ".join(f"{int(c)}" for c in counts[:4])
            return f"{listed} times 2**{exponent - precision + 1}/(2 eps) = {quantum:.6g}, an ulp of values near 2**{exponent}"
    return ""
