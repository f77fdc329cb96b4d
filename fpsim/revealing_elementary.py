"""Which known model an elementary function follows, and the profile of one that follows none."""

from __future__ import annotations

import datetime as dt
import importlib
import os
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim import elementary
from fpsim._arrays import as_floats
from fpsim.elementary_profiles import (
    BLOCK,
    LARGEST,
    SPECIAL,
    ElementaryProfile,
    different,
    encoded,
    load,
    numbers,
    ordinals,
    shipped,
    span,
)
from fpsim.errors import FpsimError, InputError

__all__ = ["Match", "RevealedElementary", "function_named", "reveal_elementary"]

Array = NDArray[Any]
Progress = Callable[[int, int], None]

CORRECT = "correctly rounded"
_ALIASES = {"expit": "sigmoid", "logistic": "sigmoid", "swish": "silu", "gelu_new": "gelu_tanh"}
_ALONE = 4096  # inputs that are also given one at a time


@dataclass(frozen=True, slots=True)
class Match:
    """How often a candidate has the bits of the function.

    Attributes
    ----------
    model : str
        ``correctly rounded``, whose model of `fpsim.elementary.MODELS` it is, or the name of a shipped profile.
    equal, count : int
        Inputs with equal bits (any NaN equals any NaN), and all.
    """

    model: str
    equal: int
    count: int

    @property
    def found(self) -> bool:
        """Whether all bits are equal."""
        return self.equal == self.count

    def __str__(self) -> str:
        share = 100 * self.equal / self.count
        text = "100" if self.found else f"{min(share, 99.9999):.6g}"
        return f"{self.model}: {text} % of {self.count:,} inputs"

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects."""
        return {"model": self.model, "equal": self.equal, "count": self.count}


@dataclass(frozen=True, slots=True)
class RevealedElementary:
    """What an elementary function of a library is.

    Attributes
    ----------
    function, target, device : str
        The function by its name in `fpsim.devices.elementwise.FUNCTIONS`, what was called, on what.
    low, high : float
        Ends of the range.
    exhaustive : bool
        Whether every number of the range was tried.
    matches : list of Match
        Candidates, the best first.
    largest, where : int, float
        Largest difference from the correctly rounded result, counted in float32 numbers, and its input; NaNs apart.
    alone : int
        How many of 4096 inputs have other bits when they are given one at a time: the result depends on the position
        in the array, and a profile is of positions in full vectors.
    profile : ElementaryProfile or None
        What was recorded.
    """

    function: str
    target: str
    device: str
    low: float
    high: float
    exhaustive: bool
    matches: list[Match]
    largest: int
    where: float
    alone: int
    profile: ElementaryProfile | None = None

    @property
    def found(self) -> bool:
        """Whether a candidate has all bits."""
        return self.matches[0].found

    @property
    def model(self) -> str | None:
        """The first candidate that has all bits."""
        return self.matches[0].model if self.found else None

    def __str__(self) -> str:
        inputs = "every float32 number" if self.exhaustive else "a sample of the float32 numbers"
        lines = [f"{self.target} on {self.device}, as {self.function}: {inputs} from {self.low:.9g} to {self.high:.9g}"]
        lines += [f"  {match}" for match in self.matches]
        if self.largest:
            lines.append(f"  largest difference from correctly rounded: {self.largest:,} ulp, for {self.where:.9g}")
        if self.alone:
            lines.append(
                f"  the bits depend on the position: {self.alone:,} of {_ALONE:,} inputs give others alone than in an array"
            )
        if self.profile is not None:
            lines.append(f"  recorded: {self.profile}")
        elif not self.found:
            lines.append("  no candidate has all bits: record a profile with --save FILE")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects."""
        return {
            "function": self.function, "target": self.target, "device": self.device, "low": self.low, "high": self.high,
            "exhaustive": self.exhaustive, "matches": [m.to_dict() for m in self.matches], "largest": self.largest,
            "where": self.where, "alone": self.alone, "model": self.model,
            "profile": self.profile.to_dict() if self.profile else None,
        }  # fmt: skip


def function_named(text: str, /) -> str | None:
    """Return the elementary function that a name such as ``torch.special.expit`` or ``libm.expf`` tells, or None."""
    known: Any = importlib.import_module("fpsim.devices.elementwise").FUNCTIONS
    name = text.replace(":", ".").rpartition(".")[2]
    for word in (name, name.removesuffix("f"), name.rpartition("_")[2]):
        chosen = _ALIASES.get(word, word)
        if chosen in known and known[chosen].operands == 1:
            return chosen
    return None


@dataclass(slots=True)
class _Sums:
    """What is counted over the pieces."""

    equal: dict[str, int]
    count: int = 0
    largest: int = 0
    where: float = 0.0
    blocks: dict[int, bytes] = field(default_factory=dict)


def _candidates(function: str, first: int, last: int) -> dict[str, Callable[[Array], Array]]:
    reference: Any = importlib.import_module("fpsim.devices.elementwise")
    found: dict[str, Callable[[Array], Array]] = {CORRECT: lambda x: reference.correctly_rounded(function, x)}
    model = elementary.MODELS.get(function)
    if model is not None and model.operands == 1:
        for name in elementary.IMPLEMENTATIONS:
            found[f"{name}'s {function} model"] = lambda x, name=name: elementary.evaluate(  # type: ignore[misc]
                function, x, implementation=name
            )
    for name in shipped():
        profile = load(name)
        if profile.function == function and profile.first <= first and last <= profile.last:
            found[f"profile:{name}"] = lambda x, profile=profile: profile.evaluate(function, x)  # type: ignore[misc]
    return found


def _observed(call: Callable[[Array], Any], x: Array) -> Array:
    """Return what the function gives, as a float32 vector."""
    try:
        with np.errstate(all="ignore"):
            result, _ = as_floats(call(x.copy()), name="the result")
    except FpsimError:
        raise
    except Exception as error:
        message = f"the function failed for a float32 vector: {type(error).__name__}: {error}"
        raise InputError(message) from error
    if result.dtype != np.float32 or result.shape != x.shape:
        message = f"the function returned {result.dtype} of shape {result.shape} for float32 of shape {x.shape}"
        raise InputError(message)
    return np.ascontiguousarray(result)


def _compared(
    x: Array, observed: Array, candidates: Mapping[str, Callable[[Array], Array]], encode: bool
) -> tuple[dict[str, int], int, float, bytes]:
    equal, largest, where, data = {}, 0, 0.0, b""
    for name, candidate in candidates.items():
        expected = candidate(x)
        places = different(observed, expected)
        equal[name] = x.size - places.size
        if name == CORRECT and places.size:
            both = places[~(np.isnan(observed[places]) | np.isnan(expected[places]))]
            apart = np.abs(ordinals(observed[both]) - ordinals(expected[both]))
            if apart.size:
                largest, where = int(apart.max()), float(x[both[np.argmax(apart)]])
            data = encoded(observed, expected) if encode else b""
    return equal, largest, where, data


def _alone(call: Callable[[Array], Any], first: int, last: int) -> int:
    """Count the inputs of a sample that give other bits alone than in an array."""
    x = numbers(np.linspace(first, last, _ALONE).astype(np.int64))
    together = ordinals(_observed(call, x))
    apart = ordinals(np.concatenate([_observed(call, x[i : i + 1]) for i in range(x.size)]))
    return int(np.count_nonzero(together != apart))


def _pieces(first: int, last: int, samples: int | None) -> list[tuple[int, Any]]:
    """Return (block, ordinals) of the whole range, or (0, ordinals) of one number at random from equal parts of it."""
    if samples is None:
        return [(k, None) for k in range(first // BLOCK, last // BLOCK + 1)]
    count = min(samples, last - first + 1)
    edges = np.linspace(first, last + 1, count + 1).astype(np.int64)
    drawn = np.random.default_rng(0).integers(edges[:-1], edges[1:])
    return [(0, drawn[i : i + BLOCK]) for i in range(0, count, BLOCK)]


def reveal_elementary(
    call: Callable[[Array], Any],
    function: str,
    /,
    *,
    low: float = -float(np.finfo(np.float32).max),
    high: float = float(np.finfo(np.float32).max),
    exhaustive: bool = False,
    record: bool = False,
    samples: int = 2**22,
    target: str = "the function",
    device: str = "cpu",
    versions: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> RevealedElementary:
    """Compare an elementary function with the correctly rounded one, the known models and profiles, and record it.

    Parameters
    ----------
    call : callable
        Takes a float32 vector and returns one, as an array of its library.
    function : str
        A name of one operand in `fpsim.devices.elementwise.FUNCTIONS`.
    low, high : float
        Ends of the range, both included; rounded to float32.
    exhaustive : bool
        Try every float32 number of the range instead of a sample.
    record : bool
        Return a profile of the whole range, unless a candidate has all bits; implies `exhaustive`.
    samples : int
        How many numbers to try otherwise, one from each of so many equal parts of the range.
    target, device, versions
        What the profile says about its origin.
    progress : callable, optional
        Is called with the number of inputs done and of all.

    Raises
    ------
    InputError
        The function or the range is unknown, or the call fails.

    Examples
    --------
    >>> import numpy as np
    >>> from fpsim.revealing_elementary import reveal_elementary
    >>> reveal_elementary(np.sqrt, "sqrt", samples=2**12).model
    'correctly rounded'
    """
    if function_named(function) != function:
        message = f"there is no elementary function {function} of one operand"
        raise InputError(message)
    with np.errstate(over="ignore"):
        first, last = ordinals(np.array([low, high]).astype(np.float32)).tolist()
    if not -LARGEST - 1 <= first <= last <= LARGEST:
        message = f"the range must be of finite float32 numbers, the lower one first, not from {low} to {high}"
        raise InputError(message)
    exhaustive = exhaustive or record or samples >= last - first + 1
    candidates = _candidates(function, first, last)
    special = _observed(call, SPECIAL)
    sums = _Sums(dict.fromkeys(candidates, 0))
    _add(sums, _compared(SPECIAL, special, candidates, encode=False), SPECIAL.size)
    pieces = _pieces(first, last, None if exhaustive else samples)
    waiting: deque[tuple[int, int, Future[Any]]] = deque()
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for done, (block, drawn) in enumerate(pieces):
            # The function is given whole blocks, so that no number is in the rest of a vector.
            x = numbers(np.arange(block * BLOCK, (block + 1) * BLOCK)) if drawn is None else numbers(drawn)
            observed = _observed(call, x)
            if drawn is None:
                begin, end = (place - block * BLOCK for place in span(block, first, last))
                x, observed = x[begin:end], observed[begin:end]
            waiting.append((block, x.size, pool.submit(_compared, x, observed, candidates, record)))
            while waiting and (len(waiting) > 4 or done == len(pieces) - 1):
                number, size, task = waiting.popleft()
                _add(sums, task.result(), size, number)
            if progress:
                progress(done + 1, len(pieces))
    matches = sorted((Match(k, n, sums.count) for k, n in sums.equal.items()), key=lambda m: -m.equal)
    minus, plus, nan = ordinals(special).tolist()
    profile = None
    if record and not matches[0].found:
        date = dt.datetime.now(tz=dt.UTC).date().isoformat()
        profile = ElementaryProfile(
            function, target, device, date, dict(versions or {}), first, last, (minus, plus, nan), sums.blocks
        )
    lowest, highest = (float(x) for x in numbers(np.array([first, last])))
    alone = _alone(call, first, last)
    return RevealedElementary(
        function, target, device, lowest, highest, exhaustive, matches, sums.largest, sums.where, alone, profile
    )


def _add(sums: _Sums, piece: tuple[dict[str, int], int, float, bytes], size: int, block: int = 0) -> None:
    equal, largest, where, data = piece
    for name, count in equal.items():
        sums.equal[name] += count
    sums.count += size
    if largest > sums.largest:
        sums.largest, sums.where = largest, where
    if data:
        sums.blocks[block] = data
