"""Why results of one operation differ: which strategies give them, how wrong each is, and whether rounding can do it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim._arrays import as_floats
from fpsim._differences import Difference, Results, differences as _compare, narrower, scale
from fpsim._matching import LEAST_SHARE, Found, Match, Part, bits, search
from fpsim._observed_operation import Operation, operation
from fpsim._plausibility import Judgement, judge, operands_that_fit, pattern, worst_case
from fpsim.errors import InputError
from fpsim.formats import FLOAT32, FLOAT64, Format

if TYPE_CHECKING:
    from fpsim._exact_values import Exact

__all__ = ["Difference", "Explanation", "Match", "Part", "Side", "explain"]

SCHEMA: Final = "fpsim.explanation/1"
#: Share of elements that a strategy must give for the others to look like a fault, be they ever so nearly right.
FEW_APART: Final = 0.95
#: Every verdict, and the exit code of the command for it.
VERDICTS: Final = {
    "identical": 0,
    "expected rounding": 0,
    "reduced precision": 0,
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
        at least `FEW_APART` of the elements, but not these), "beyond bound" or "not examined".
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
        precision" (a side rounds its operands below their own format, or accumulates below float32); "bug suspected"
        (an error that no order of additions can give); "unknown".
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

    @property
    def exit_code(self) -> int:
        """0 explained, 1 a bug is suspected, 3 unknown."""
        return VERDICTS[self.verdict]

    def __str__(self) -> str:
        from fpsim._explanation_text import text

        return text(self)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain Python objects that JSON takes; numbers that are not finite become texts."""
        return {"schema": SCHEMA, "exit_code": self.exit_code, **_plain(self)}

    def _repr_html_(self) -> str:
        from fpsim._explanation_text import html

        return html(self)


def explain(
    *observed: Any,
    op: str | None = None,
    inputs: Any = None,
    names: Sequence[str] | None = None,
    axis: Any = None,
    strategies: Iterable[str] = (),
    seed: int = 0,
) -> Explanation:
    """Explain why observed results of one operation differ.

    Parameters
    ----------
    *observed : array_like, or one dict of name -> array_like
        Two or more results of one shape; with `op` and `inputs` one is enough.
    op : {"sum", "dot", "matmul"}, optional
        The operation.
    inputs : array_like or sequence of array_like, optional
        Its inputs: one array for a sum, two for a product.
    names : sequence of str, optional
        How the observed results are called; "a", "b", ... by default.
    axis : int or tuple of int, optional
        Of a sum; all axes by default.
    strategies : iterable of str, optional
        Strategies to try before the built-in ones.
    seed : int, optional
        Chooses the outputs that are looked at first.

    Returns
    -------
    Explanation

    Raises
    ------
    InputError
        Shapes, types or names do not fit, or an array is empty.
    StrategyError
        A text is not a strategy.

    Notes
    -----
    A side counts as rounding in one of two ways. *Reproduced*: a strategy gives all its bits. Else, weaker, and the
    reason says so: every error is within the worst-case bound of any order, and the errors are of the size
    ``s = sqrt(sum of ulp**2/12)`` over the roundings of a single running sum: their root mean square over sampled
    outputs is at most ``1 + 3/sqrt(2m)`` times s for m outputs, and none exceeds ``sqrt(2 log(2000 M))`` times s among
    all M. This is sufficient for being called rounding, not necessary; what fails it within the bound is "unknown".

    Examples
    --------
    >>> import numpy as np, fpsim
    >>> a = np.array([1.907607, -0.7862027, 1.147311, 0.9604002], np.float32)
    >>> b = np.array([-0.9355, -0.6915108, 1.72447, -0.7097529], np.float32)
    >>> cpu, gpu = np.array([0x3D6533F0, 0x3D6533F6], np.uint32).view(np.float32)
    >>> found = fpsim.explain({"cpu": cpu, "gpu": gpu}, op="dot", inputs=(a, b))
    >>> found.verdict, found.closest
    ('expected rounding', ('gpu',))
    """
    strategies = [str(_strategy(text)) for text in strategies]
    if (op is None) != (inputs is None):
        message = "op and inputs go together: give both, or neither"
        raise InputError(message)
    results = _observed(observed, names)
    if op is None:
        return _triage(results)
    task = operation(op, inputs, axis=axis)
    fitted = {name: _fitted(name, *pair, task) for name, pair in results.items()}
    reference = task.exact()
    found = search(task, fitted, strategies=strategies, seed=seed)
    sampled = task.sample(np.random.default_rng(seed)).outputs
    sides = tuple(_side(name, *pair, found[name], task, reference, sampled) for name, pair in fitted.items())
    differences = _compare(fitted)
    verdict, reason = _verdict(sides, differences, task)
    condition = np.asarray(reference.condition, np.float64)
    condition = condition[~np.isnan(condition)]
    spread = (float(np.median(condition)), float(condition.max())) if condition.size else None
    return Explanation(
        verdict, reason, _mechanisms(sides, differences), sides, differences, _closest(sides),
        _next_steps(verdict, sides), op, task.n, task.shape, spread,
    )  # fmt: skip


# -- observed results ------------------------------------------------------------------------------------------------


def _strategy(text: str) -> Any:
    from fpsim.strategies import strategy

    return strategy(text)


def _observed(observed: Sequence[Any], names: Sequence[str] | None) -> Results:
    if len(observed) == 1 and isinstance(observed[0], Mapping):
        if names is not None:
            message = "names are the keys of the dict already: leave names out"
            raise InputError(message)
        names, observed = [str(key) for key in observed[0]], list(observed[0].values())
    if not observed:
        message = "give at least two observed results, or one with op and inputs"
        raise InputError(message)
    names = [chr(ord("a") + i) if i < 26 else f"r{i}" for i in range(len(observed))] if names is None else list(names)
    if len(names) != len(observed) or len(set(names)) != len(names):
        message = f"{len(observed)} observed results need as many different names, not {names}"
        raise InputError(message)
    results = {}
    for name, value in zip(names, observed, strict=True):
        array, form = as_floats(value, name=name)
        if array.size == 0:
            message = f"{name} is empty (shape {array.shape}): there is nothing to explain"
            raise InputError(message)
        results[name] = array, form
    return results


def _fitted(name: str, values: NDArray[Any], form: Format, task: Operation) -> tuple[NDArray[Any], Format]:
    """Return one side in the shape of the operation's result, and in the format that its numbers really have."""
    if values.shape != task.shape and not (values.size == task.size == 1):
        inputs = " and ".join(str(x.shape) for x in task.inputs)
        over = "" if task.axis is None else f" over axis {task.axis}"
        message = f"{name} has shape {values.shape}, but {task.op} of {inputs}{over} has shape {task.shape}"
        raise InputError(message)
    values = values.reshape(task.shape)
    if form == FLOAT64 and task.data.precision <= FLOAT32.precision:
        with np.errstate(all="ignore"):
            narrow = values.astype(np.float32)
        if np.array_equal(narrow, values, equal_nan=True):
            return narrow, FLOAT32
    return values, form


# -- one side --------------------------------------------------------------------------------------------------------


def _side(
    name: str, values: NDArray[Any], form: Format, found: Found, task: Operation, reference: Exact,
    sampled: NDArray[np.int64],
) -> Side:  # fmt: skip
    if found.unlike is not None and found.nearest is not None and found.nearest[1] >= LEAST_SHARE:
        sampled = task.sample_where(found.unlike).outputs  # those that are explained would hide the others
    judgement = judge(task, worst_case(task, reference, form), values, reference, form, sampled)
    status, note = _status(found, judgement, values, form, task, reference, sampled)
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
        status=status, note=note, matches=found.matches, nearest=found.nearest, tried=found.tried, parts=found.parts,
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
    if found.matches:
        return "reduced", f"only with reduced precision: {found.matches[0].strategy}"
    remark = _apart(found)
    if not judgement.has_rounding_size:
        fitting = operands_that_fit(task, values, reference, form, sampled)
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
    return "beyond bound", _beyond_note(judgement, values, form, task, reference)


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


def _beyond_note(judgement: Judgement, values: NDArray[Any], form: Format, task: Operation, reference: Exact) -> str:
    wrong = judgement.beyond
    told = f"beyond the worst-case bound of every order: {pattern(wrong)}"
    count = int((~np.isfinite(np.asarray(values, np.float64)) & wrong).sum())
    if count:
        told += f" ({count} of them infinite or NaN where the exact result is not)"
    for what, faulty in task.faults():
        other = faulty()
        if other.shape != task.shape and np.prod(other.shape) != task.size:
            continue
        error = np.abs(np.asarray(other.error(values.reshape(other.shape)))).reshape(task.shape)
        if np.all(error[wrong] <= worst_case(task, reference, form)[wrong] * (1 + 1e-12)):
            return f"{told}; these values fit the fault that {what}"
    return told


# -- all sides -------------------------------------------------------------------------------------------------------


def _verdict(sides: tuple[Side, ...], differences: tuple[Difference, ...], task: Operation) -> tuple[str, str]:
    by_status: dict[str, list[Side]] = {}
    for side in sides:
        by_status.setdefault(side.status, []).append(side)
    if bad := by_status.get("beyond bound"):
        reasons = "; ".join(f"{side.name}: {side.note}" for side in bad)
        shared = ""
        if _agree_elsewhere(bad, sides, differences):
            shared = " All sides share the error: the inputs or the operation may not be those that gave the results."
        return "bug suspected", f"No order of additions in full precision gives these errors. {reasons}.{shared}"
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
    errors = {side.name: side.rms_ulp for side in sides if side.rms_ulp is not None}
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
    told += [f"{side.name}: {side.note}" for side in sides if side.status in ("reduced size", "beyond bound")]
    return tuple(told)


def _mechanism(first: Side, second: Side) -> str:
    pairs = [
        (len(changed), i + j, changed, a.strategy, b.strategy)
        for i, a in enumerate(first.matches[:40])
        for j, b in enumerate(second.matches[:40])
        if (changed := _changed(a.strategy, b.strategy))
    ]
    if not pairs:
        return f"{first.name} and {second.name}: not told apart"
    _, _, changed, a, b = min(pairs)
    single = len(first.matches) == len(second.matches) == 1
    other = "" if single else "; other pairs of strategies fit as well"
    return f"{' and '.join(changed)}: {first.name} = {a}, {second.name} = {b}{other}"


def _changed(first: str, second: str) -> list[str]:
    a, b = _strategy(first), _strategy(second)
    changed = ["order of additions"] if str(a.order) != str(b.order) else []
    x, y = a.settings, b.settings
    parts = {
        "FMA": bool(x.fma) != bool(y.fma),
        "operand precision": x.operands != y.operands,
        "accumulator precision": x.accumulator != y.accumulator,
        "compensation": x.compensation != y.compensation,
    }
    return changed + [name for name, differs in parts.items() if differs]


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


# -- without inputs --------------------------------------------------------------------------------------------------


def _triage(results: Results) -> Explanation:
    if len(results) < 2:
        message = "one observed result can be explained only with op and inputs"
        raise InputError(message)
    shapes = {name: array.shape for name, (array, _) in results.items()}
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        message = f"observed results must have one shape, not {listed}"
        raise InputError(message)
    differences = _compare(results)
    sides = tuple(Side(name, str(form), note=narrower(array, form)) for name, (array, form) in results.items())
    shape = next(iter(shapes.values()))
    if not any(d.differing for d in differences):
        return Explanation(
            "identical", "All sides have the same values.", (), sides, differences, (), (), None, None, shape, None
        )
    worst = max(differences, key=lambda d: d.max_absolute)
    reason = (
        "Without the operation and its inputs nothing can be said about right and wrong. "
        f"{scale(results, worst)}" + "".join(f" {side.name}: {side.note}." for side in sides if side.note)
    )
    steps = ("give the operation and its inputs: op= and inputs=, or --op and --inputs",)
    return Explanation("unknown", reason, (), sides, differences, (), steps, None, None, shape, None)


# -- plain objects ---------------------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _percent(share: float) -> str:
    """Return a share in percent that reads 100 only if it is all."""
    text = f"{100 * share:.4g} %"
    return "almost 100 %" if share < 1 and text.startswith("100") else text
