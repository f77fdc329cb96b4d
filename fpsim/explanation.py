"""Why results of one operation differ: which strategies give them, how wrong each is, and whether rounding can do it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fpsim._arrays import as_floats
from fpsim._differences import Difference, Results, differences as _compare, narrower, scale
from fpsim._matching import Match, Part, is_compensated, search
from fpsim._observed_operation import OPERATIONS, Operation, operation
from fpsim.errors import InputError
from fpsim.explaining.attribution import attributions, ranked
from fpsim.explaining.deciding import for_operation
from fpsim.explaining.evidence import of_operation, of_results
from fpsim.explaining.linear import _closest, _mechanisms, _next_steps, _side, _strategy, _verdict
from fpsim.explaining.results import VERDICTS, Explanation, Side
from fpsim.formats import FLOAT32, FLOAT64, Format

if TYPE_CHECKING:
    from fpsim.explaining.observation import Observation

_LARGE = 10_000_000  # products of an operation from which on compensated sums take long
__all__ = ["VERDICTS", "Difference", "Explanation", "Match", "Part", "Side", "explain"]


@np.errstate(invalid="ignore")  # a signalling NaN is an observation as any other
def explain(
    *observed: Any,
    op: str | None = None,
    inputs: Any = None,
    names: Sequence[str] | None = None,
    axis: Any = None,
    strategies: Iterable[str] = (),
    seed: int = 0,
    dtype: Any = None,
    settings: Mapping[str, Any] | None = None,
) -> Explanation:
    """Explain why observed results of one operation differ.

    Parameters
    ----------
    *observed : array_like, or one dict of name -> array_like, or one case
        Two or more results of one shape; with `op` and `inputs` one is enough. Texts are decimals as printed: any number
        that prints so may have been the result. A case is a dict with ``observed``, ``operation``, ``inputs`` (values,
        an expression or a law), ``dtype``, ``shapes`` and ``settings``.
    op : str, optional
        The operation: "sum", "dot", "matmul", or another one, such as "var", "cumsum" or "log".
    inputs : array_like or sequence of array_like, optional
        Its inputs: one array for a sum, two for a product, and a third one that is added to it (beta*C, a bias).
    names : sequence of str, optional
        How the observed results are called; "a", "b", ... by default.
    axis : int or tuple of int, optional
        Of a sum; all axes by default.
    strategies : iterable of str, optional
        Strategies to try before the built-in ones.
    seed : int, optional
        Chooses the outputs that are looked at first.
    dtype : dtype or str, optional
        Format of numbers that are given as text; that of the first input by default.
    settings : mapping, optional
        Of operations other than sums and products: ``ddof``, ``eps``, ``window``, ``momentum``, ``steps``.

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
    if len(observed) == 1 and isinstance(observed[0], Mapping) and "observed" in observed[0]:
        from fpsim.explaining.described import from_mapping
        from fpsim.explaining.judging import judged

        return judged(from_mapping(observed[0]))
    strategies = [str(_strategy(text)) for text in strategies]
    if (op is None) != (inputs is None):
        message = "op and inputs go together: give both, or neither"
        raise InputError(message)
    if op is not None and (op not in OPERATIONS or settings or _has_text(observed) or _has_addend(op, inputs)):
        return _general(
            observed, op, inputs, names, {**(settings or {}), **({} if axis is None else {"axis": axis})}, dtype
        )
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
    chains = attributions([_affordable(side, task) for side in sides], differences, task.whole)
    return Explanation(
        verdict, reason, _mechanisms(sides, differences), sides, differences, _closest(sides),
        _next_steps(verdict, sides), op, task.n, task.shape, spread, ranked=ranked(sides, chains), attribution=chains,
        deciding_input=for_operation(task, [_strategies(side) for side in sides], next(iter(fitted.values()))[1]),
        _evidence=of_operation(fitted, task, reference, sampled),
    )  # fmt: skip


def _affordable(side: Side, task: Operation) -> Side:
    """Return a side without the compensated strategies that would take seconds for all outputs."""
    if task.size * task.n < _LARGE:
        return side
    return replace(side, matches=tuple(match for match in side.matches if not is_compensated(match.strategy)))


def _strategies(side: Side) -> tuple[Match, ...]:
    return tuple(match for match in side.matches if not match.mechanism)


# -- operations other than sums and products, and printed numbers ---------------------------------------------------


def _has_text(observed: Sequence[Any]) -> bool:
    values = list(observed[0].values()) if len(observed) == 1 and isinstance(observed[0], Mapping) else observed
    return any(np.asarray(value).dtype.kind == "U" for value in values if not hasattr(value, "dtype"))


def _has_addend(op: str, inputs: Any) -> bool:
    """Tell whether a product has a third operand that is added to it: beta*C, or a bias."""
    return op in ("dot", "matmul") and isinstance(inputs, tuple | list) and len(inputs) == 3


def _general(
    observed: Sequence[Any], op: str, inputs: Any, names: Sequence[str] | None, settings: Mapping[str, Any], dtype: Any
) -> Explanation:
    from fpsim.explaining.judging import judged

    return judged(_observation(observed, op, inputs, names, settings, dtype))


def _observation(
    observed: Sequence[Any], op: str, inputs: Any, names: Sequence[str] | None, settings: Mapping[str, Any], dtype: Any
) -> Observation:
    from fpsim.explaining.names import operation_name
    from fpsim.explaining.observation import Case, Observation, Observed
    from fpsim.explaining.operations import OPERATIONS as KNOWN
    from fpsim.explaining.printed import read
    from fpsim.formats import as_format

    name = op if op in KNOWN else operation_name(op)
    if name not in KNOWN:
        message = f"explain knows the operations {', '.join(KNOWN)}, not {op!r}"
        raise InputError(message)
    given = list(inputs) if isinstance(inputs, tuple) or _has_addend(op, inputs) else [inputs]
    pairs = [as_floats(x, name="an input") for x in given]
    data = pairs[0][1]
    if len(observed) == 1 and isinstance(observed[0], Mapping):
        names, observed = [str(key) for key in observed[0]], list(observed[0].values())
    labels = list(names) if names is not None else [chr(ord("a") + i) for i in range(len(observed))]
    sides = []
    for label, value in zip(labels, observed, strict=True):
        if _has_text([value]):
            form = as_format(dtype) if dtype is not None else data
            printed = read(np.asarray(value).tolist(), form, name=label)
            sides.append(Observed(label, printed.values, printed.low, printed.high, form, {}, printed.note))
        else:
            array, form = as_floats(value, name=label)
            exact = array.astype(np.float64)
            sides.append(Observed(label, exact, exact, exact, form))
    case = Case(name, tuple(x for x, _ in pairs), data, sides[0].format, dict(settings))
    return Observation(case, name, tuple(sides))


# -- observed results ------------------------------------------------------------------------------------------------


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
    return Explanation(
        "unknown", reason, (), sides, differences, (), steps, None, None, shape, None, _evidence=of_results(results)
    )  # fmt: skip
