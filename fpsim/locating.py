"""The first operation whose bits differ between two runs of a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from fpsim._located_text import located_text
from fpsim._recorded_runs import Run, Side, run
from fpsim._tracing import Call, Operand, Recorder
from fpsim.errors import InputError
from fpsim.switches import Known, Switch, known, relevant

SCHEMA: Final = "fpsim.located/1"
_RERUNS: Final = 3  # to fetch results that were not kept
Cause = Literal["none", "operation", "random", "order", "outside", "sequence"]


@dataclass(frozen=True, slots=True)
class Located:
    """What `locate` found.

    Attributes
    ----------
    cause : str
        "none": all bits are the same. "operation": an operation gave other bits from the same bits. "random": a random
        function drew from a stream in another state. "order": an operation was given values of the other run, but in
        another order. "outside": its operands differ already, and no recorded operation made them. "sequence": the
        runs call different operations.
    sides : tuple of str
        What was compared: "run 1" and "run 2", two devices, functions or settings.
    runs : int
        How many runs were made until a difference came, fetching not counted.
    first : Call or None
        The first operation that differs, as the second side called it.
    position, calls : int
        Its place among all recorded operations of that run, from 1, and their number.
    counterpart : Call or None
        What the first side called in its place.
    differing, total : int or None
        Elements of its results whose bits differ, and all; None for other causes than "operation", and where both
        results could not be had.
    max_ulp, max_absolute : float or None
        Their largest distance, in units in the last place of the larger number, and as it is.
    follow, own : int
        Later operations whose operands are new, and ones that gave other bits from the same operands.
    others : tuple of Call
        The first of each operation and line among `own`.
    result_differs : bool
        Whether the function's result differs in the end.
    known : Known or None
        What documentation says of the operation.
    switches : tuple of Switch
        What pins it.
    notes : tuple of str
        What else was seen.
    """

    cause: Cause
    sides: tuple[str, str]
    runs: int
    first: Call | None
    position: int
    calls: int
    counterpart: Call | None
    differing: int | None
    total: int | None
    max_ulp: float | None
    max_absolute: float | None
    follow: int
    own: int
    others: tuple[Call, ...]
    result_differs: bool
    known: Known | None
    switches: tuple[Switch, ...]
    notes: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether no difference was found."""
        return self.cause == "none"

    @property
    def operation(self) -> str | None:
        """The name of the first operation that differs, as in ``"torch.aten.index_add_"``."""
        return f"{self.first.library}.{self.first.name}" if self.first else None

    @property
    def where(self) -> str:
        """The line of the user's source that called it, as in "file.py:12 in loss"."""
        return self.first.where if self.first else ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        first = self.first
        operands, results = (first.operands, first.results) if first else ((), ())
        return {
            "schema": SCHEMA, "cause": self.cause, "sides": list(self.sides), "runs": self.runs,
            "operation": self.operation, "where": self.where, "backward": bool(first and first.backward),
            "position": self.position, "calls": self.calls,
            "operands": [one.to_dict() for one in operands], "results": [one.to_dict() for one in results],
            "counterpart": str(self.counterpart) if self.counterpart else None,
            "differing": self.differing, "total": self.total, "max_ulp": self.max_ulp,
            "max_absolute": self.max_absolute, "follow": self.follow, "own": self.own,
            "others": [{"operation": f"{o.library}.{o.name}", "where": o.where} for o in self.others],
            "result_differs": self.result_differs, "known": self.known.to_dict() if self.known else None,
            "switches": [one.to_dict() for one in self.switches], "notes": list(self.notes),
        }  # fmt: skip

    def __str__(self) -> str:
        return located_text(self)


def locate(
    fn: Callable[..., Any], /, *inputs: Any, against: Callable[..., Any] | None = None,
    devices: Sequence[str] | None = None, settings: Sequence[Callable[[], Any]] | None = None, runs: int = 2,
    seed: int | None = None, memory: int = 2**28,
) -> Located:  # fmt: skip
    """Run a function again, and name the first operation whose bits differ.

    Parameters
    ----------
    fn : callable
        Of NumPy or PyTorch: a step of training, a loss, a model. It is run on copies of itself and the inputs.
    *inputs : object
        What it takes: arrays, tensors, models, optimizers, generators, or containers of them.
    against : callable, optional
        A second function, to be compared with the first instead.
    devices : sequence of str, optional
        One or two devices of PyTorch, as in ``("cpu", "cuda")``: tensors, arrays and models among the inputs are moved
        there, and new tensors are made there.
    settings : sequence of two callables, optional
        Called without arguments before a run, one for each side, as in ``(lambda: torch.set_num_threads(1), lambda:
        torch.set_num_threads(8))``. What they return is entered where it is a context.
    runs : int
        How many runs to make at most, at least 2; it ends at the first difference. Two sides are compared only when
        two runs of the first agree.
    seed : int, optional
        Seeds Python, NumPy and PyTorch before each run. By default no stream is touched, so that a missing seed shows.
    memory : int
        Bytes of results of the first run to keep. What is not kept is fetched by running again.

    Returns
    -------
    Located

    Raises
    ------
    InputError
        `runs` is less than 2, or more than one of `against`, two `devices` and `settings` are given.

    Notes
    -----
    PyTorch's operations are recorded below its automatic differentiation (``TorchDispatchMode``), so those of a
    backward pass too, with the line of the forward operation. NumPy's are recorded where an operand comes from the
    inputs, from ``np.zeros``, ``np.asarray`` and their kin, or from a random function. Compiled functions (Numba, JAX,
    TensorFlow, ``torch.compile``) are not looked into, nor PyTorch in threads of the function's own; a difference that
    they make is called "outside". While it is recorded, a float that NumPy returns is an array without dimensions.

    For each operand and result a digest is made, in which NaN are all alike; tensors of a GPU are copied to the CPU for
    that. A product of 1000x1000 NumPy matrices took three times as long, a step of Adam on 2 million weights forty.

    Other timing can make a race go away: "none" says that these runs agreed, and no more.

    Examples
    --------
    >>> import numpy as np, fpsim
    >>> x = np.random.default_rng(0).random((300, 300), np.float32)
    >>> fpsim.locate(lambda x: np.sqrt(x).sum(), x).same
    True
    >>> def by_columns(x):
    ...     return np.asfortranarray(np.sqrt(x)).sum(axis=1)
    >>> found = fpsim.locate(lambda x: np.sqrt(x).sum(axis=1), x, against=by_columns)
    >>> found.cause, found.operation, found.position
    ('operation', 'numpy.sum', 2)
    """
    sides = _sides(fn, against, devices, settings)
    if runs < 2:
        message = f"runs must be at least 2, not {runs}"
        raise InputError(message)
    reference = run(sides[0], inputs, seed, Recorder(budget=memory))
    for number in range(2, runs + 1):
        other = run(sides[0], inputs, seed, _against(reference))
        found = _compared(reference, other, ("run 1", f"run {number}"), number)
        if not found.same:
            return _completed(found, reference, other, sides[0], inputs, seed)
        if len(sides) > 1:
            break
    if len(sides) > 1:
        other = run(sides[1], inputs, seed, _against(reference))
        found = _compared(reference, other, (sides[0].name, sides[1].name), 3)
        return _completed(found, reference, other, sides[0], inputs, seed)
    return found


def _sides(
    fn: Callable[..., Any], against: Callable[..., Any] | None, devices: Sequence[str] | None,
    settings: Sequence[Callable[[], Any]] | None,
) -> list[Side]:  # fmt: skip
    devices = tuple(devices or (None,))  # type: ignore[arg-type]
    pairs = [against is not None, len(devices) > 1, settings is not None]
    if sum(pairs) > 1 or len(devices) > 2 or (settings is not None and len(settings) != 2):
        message = "give one of against, two devices, or two settings"
        raise InputError(message)
    if against is not None:
        return [Side("first function", fn, devices[0]), Side("second function", against, devices[0])]
    if settings is not None:
        return [Side(name, fn, devices[0], one) for name, one in zip(("setting 1", "setting 2"), settings, strict=True)]
    return [Side(device or "run", fn, device) for device in devices]


def _against(reference: Run) -> Recorder:
    return Recorder(reference=tuple(reference.trace.calls), comparing=True)


def _compared(reference: Run, other: Run, sides: tuple[str, str], runs: int) -> Located:
    """Return what the digests tell, without the size of the difference."""
    trace, calls = other.trace, other.trace.calls
    differs = reference.results != other.results
    place = trace.first
    first = calls[place] if place is not None else None
    cause: Cause = "none"
    counterpart = None
    notes: list[str] = []
    if first is not None and place is not None:
        counterpart = _counterpart(trace, place)
        cause, notes = _cause(trace, place, counterpart)
        if cause == "outside" and not differs and counterpart is not None and counterpart.outputs == first.outputs:
            said = f"an operand of {first} differs that no recorded operation made, and no result depends on it"
            cause, notes, first, place, counterpart = "none", [said], None, None, None
    if first is not None:
        notes += _layouts(first, counterpart) if cause == "operation" else []
        if cause == "random" and counterpart is not None and len(_devices(first, counterpart)) > 1:
            notes.append("a CPU and a GPU draw other numbers from the same seed: draw on one of them, and copy")
    elif differs:
        cause = "outside"
    elif len(calls) != len(trace.reference):
        cause = "sequence"
    if cause in ("outside", "order") and (reference.python_random or other.python_random):
        notes.append("Python's module random was used, whose numbers are not recorded")
    later = range(place + 1, len(calls)) if place is not None else range(0)
    own = [calls[at] for at in later if _gave_others(trace, at)]
    follow = sum(trace.pairs[at] is None or _drew_others(trace, at) for at in later)
    distinct = {(one.library, one.name, one.where): one for one in reversed(own)}
    fact = _fact(first, counterpart) if cause == "operation" else None
    return Located(
        cause, sides, runs, first, 0 if place is None else place + 1, len(calls), counterpart, None, None, None, None,
        follow, len(own), tuple(reversed(distinct.values())), differs, fact,
        _switches(cause, first, counterpart, sides), tuple(notes),
    )  # fmt: skip


def _gave_others(trace: Recorder, place: int) -> bool:
    """Whether a call gave other bits from the same operands and, if it is random, from the same stream."""
    pair = trace.pairs[place]
    call, other = trace.calls[place], None if pair is None else trace.reference[pair]
    return other is not None and other.outputs != call.outputs and other.state == call.state


def _drew_others(trace: Recorder, place: int) -> bool:
    pair = trace.pairs[place]
    return pair is not None and trace.reference[pair].state != trace.calls[place].state


def _counterpart(trace: Recorder, place: int) -> Call | None:
    """Return the call of the first run that stands where a call of the second does."""
    pair = trace.pairs[place]
    if pair is not None:
        return trace.reference[pair]
    used = set(trace.pairs)
    free = [at for at in range(len(trace.reference)) if at not in used]
    if place in free:
        return trace.reference[place]
    return trace.reference[free[0]] if free else None


def _cause(trace: Recorder, place: int, counterpart: Call | None) -> tuple[Cause, list[str]]:
    """Return why a call is the first that differs, and what shows it."""
    first = trace.calls[place]
    if trace.pairs[place] is not None and counterpart is not None:
        return ("random" if first.state != counterpart.state else "operation"), []
    if counterpart is None or (counterpart.library, counterpart.name) != (first.library, first.name):
        return "sequence", []
    if len(first.inputs) != len(counterpart.inputs):
        return "outside", []
    if first.inputs[:-1] == counterpart.inputs[:-1]:
        return "outside", ["all arrays that it was given are the same, but not another argument"]
    new = {a for a, b in zip(first.inputs, counterpart.inputs, strict=True) if a != b}
    here = {one for call in trace.calls[:place] for one in (*call.inputs[:-1], *call.outputs)}
    taken = {one for call in trace.reference for one in call.inputs[:-1]}
    given = {one for call in trace.reference for one in call.outputs}
    if (new & given) - here:
        return "outside", ["an operand is a result of the run before: state is kept between calls"]
    return ("order" if new <= taken else "outside"), []


def _layouts(first: Call, counterpart: Call | None) -> list[str]:
    """Say in what operands of the same bits differ."""
    notes = []
    for place, (a, b) in enumerate(zip(counterpart.operands if counterpart else (), first.operands, strict=False)):
        if a.device != b.device:
            notes.append(f"operand {place} is on {a.device} and on {b.device}")
        elif a.strides != b.strides:
            notes.append(f"operand {place} has strides of {a.strides} and of {b.strides} bytes")
        elif a.offset != b.offset:
            notes.append(f"operand {place} starts {a.offset} and {b.offset} bytes behind a multiple of 64")
    return notes


def _fact(first: Call | None, counterpart: Call | None) -> Known | None:
    for call in (first, counterpart):
        for one in (*call.operands, *call.results) if call else ():
            if call and (fact := known(call.library, call.name, device=one.device)) is not None:
                return fact
    return None


def _switches(cause: Cause, first: Call | None, counterpart: Call | None, sides: tuple[str, str]) -> tuple[Switch, ...]:
    """Return the switches that could make both sides equal."""
    if first is None or cause not in ("operation", "random"):
        return ()
    devices = _devices(first, counterpart)
    if cause == "random":
        return relevant(first.library, first.name, "seed", devices) if len(devices) == 1 else ()
    if sides[0] == "run 1":
        return relevant(first.library, first.name, "order", devices)
    return relevant(first.library, first.name, "precision", devices) if len(devices) > 1 else ()


def _devices(first: Call, counterpart: Call | None) -> set[str]:
    return {one.device for call in (first, counterpart) if call for one in (*call.operands, *call.results)}


def _completed(
    found: Located, reference: Run, other: Run, side: Side, inputs: tuple[Any, ...], seed: int | None
) -> Located:  # fmt: skip
    """Return what was found with the size of the difference, for which results are fetched by running again."""
    place = other.trace.first
    if found.cause != "operation" or place is None or found.counterpart is None:
        return found
    at = next(i for i, call in enumerate(reference.trace.calls) if call is found.counterpart)
    theirs, notes = reference.trace.kept.get(at), found.notes
    if theirs is None:
        theirs = _fetched(found.counterpart, at, other.trace.calls[place], side, inputs, seed)
        if theirs is None:
            notes = (*notes, f"{_RERUNS} more runs did not show it again, so its size is not known")
    if theirs is None:
        return replace(found, notes=notes)
    return replace(found, notes=notes, **_size(theirs, other.trace.kept[place]))


def _fetched(
    wanted: Call, at: int, other: Call, side: Side, inputs: tuple[Any, ...], seed: int | None
) -> tuple[Any, ...] | None:  # fmt: skip
    """Return the results of a call of the first side in a new run in which it differs from the other side again."""
    for _ in range(_RERUNS):
        trace = run(side, inputs, seed, Recorder(only=at)).trace
        if at < len(trace.calls) and trace.calls[at].key == wanted.key and trace.calls[at].outputs != other.outputs:
            return trace.kept[at]
    return None


def _size(theirs: tuple[Any, ...], ours: tuple[Any, ...]) -> dict[str, Any]:
    """Return how many elements differ and how far."""
    from fpsim._arrays import as_floats
    from fpsim._differences import differences

    differing = total = 0
    ulp = absolute = 0.0
    for a, b in zip(theirs, ours, strict=False):
        if tuple(a.shape) != tuple(b.shape) or "complex" in str(a.dtype) or "object" in str(a.dtype):
            return {}
        x, y = as_floats(a), as_floats(b)
        one = differences({"first": x, "second": y})[0]
        zeros = (x[0] == 0) & (y[0] == 0) & (np.signbit(x[0]) != np.signbit(y[0]))
        differing += one.differing + int(zeros.sum())
        total += one.total
        ulp, absolute = max(ulp, one.max_ulp), max(absolute, one.max_absolute)
    return {"differing": differing, "total": total, "max_ulp": ulp, "max_absolute": absolute}


__all__ = ["SCHEMA", "Call", "Located", "Operand", "locate"]
