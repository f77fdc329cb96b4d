"""One more input that tells apart what gives the same bits: its recipe, and what each candidate makes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim._matching import Match
from fpsim._observed_operation import Operation, operation
from fpsim.errors import FileError, FpsimError
from fpsim.explaining.observation import Case, hold
from fpsim.formats import Format, as_format, round_to

Doubles = NDArray[np.float64]
#: Laws of the numbers, in the sequence in which they are tried, as expressions over a generator g and a shape s.
LAWS: Final = {
    "standard normal": lambda g, s: g.standard_normal(s),
    "uniform [0,1)": lambda g, s: g.random(s),
    "normal times powers of two": lambda g, s: g.standard_normal(s) * 2.0 ** g.integers(-12, 13, s),
}
_EXPRESSIONS: Final = {
    "standard normal": "g.standard_normal({s})",
    "uniform [0,1)": "g.random({s})",
    "normal times powers of two": "g.standard_normal({s}) * 2.0 ** g.integers(-12, 13, {s})",
}
_SEEDS: Final = 20  # tried of each law at most
_MOST_CANDIDATES: Final = 64
_MOST_NUMBERS: Final = 4_000_000
_WORK: Final = 10_000_000  # roundings of all candidates on all inputs
_START: Final = 30_000  # what evaluating a candidate costs beside its roundings
_SHOWN: Final = 12  # results in the text
_PLACES: Final = 4  # outputs that may be needed together
_Evaluate = Callable[[tuple[NDArray[Any], ...], Sequence[str]], tuple[list[Doubles | None], NDArray[np.int64]]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one candidate gives for the deciding input.

    Attributes
    ----------
    candidate : str
        The strategy or mechanism.
    values : tuple of float
        The outputs at the places that decide.
    hexadecimal : tuple of str
        The same, exactly.
    """

    candidate: str
    values: tuple[float, ...]
    hexadecimal: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DecidingInput:
    """An input on which candidates differ that gave the same bits on the data observed.

    Attributes
    ----------
    op : str
        The operation.
    law : str
        Of the numbers, a key of `LAWS`.
    seeds : tuple of int
        Of ``numpy.random.default_rng``: one for each run; more than one where a single input does not do.
    shapes : tuple of tuple of int
        Of the inputs: those observed, since libraries choose their order by the shape.
    format : str
        That the inputs are rounded to.
    places : tuple of (int, int)
        The outputs to look at: number of the run, flat index.
    outcomes : tuple of Outcome
        What each candidate gives there.
    undecided : tuple of tuple of str
        Candidates that agree there as well.
    """

    op: str
    law: str
    seeds: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    format: str
    places: tuple[tuple[int, int], ...]
    outcomes: tuple[Outcome, ...]
    undecided: tuple[tuple[str, ...], ...] = ()

    @property
    def recipe(self) -> str:
        """The inputs as NumPy code."""
        parts = ", ".join(_EXPRESSIONS[self.law].format(s=shape) for shape in self.shapes)
        kind = self.format if self.format in ("float16", "float32", "float64") else None
        rounded = f"each .astype({kind!r})" if kind else f"each rounded to {self.format}"
        seed = str(self.seeds[0]) if len(self.seeds) == 1 else f"seed), seed = {', '.join(map(str, self.seeds))}"
        return f"g = numpy.random.default_rng({seed}{')' * (len(self.seeds) == 1)}; {parts}, {rounded}"

    def inputs(self, run: int = 0, /) -> tuple[NDArray[Any], ...]:
        """Return the inputs of a run."""
        return made(self.law, self.seeds[run], self.shapes, as_format(self.format))

    def save(self, path: str | Path, /) -> None:
        """Write the inputs to a new .npz file: ``x`` for one input, ``a`` and ``b`` for two; ``x1``, ... of more runs.

        Raises
        ------
        FileError
            The file is there already, or cannot be written.
        """
        arrays: dict[str, Any] = {}
        for run in range(len(self.seeds)):
            own = self.inputs(run)
            names = ("x",) if len(own) == 1 else tuple("abcdefgh"[: len(own)])
            arrays |= {f"{name}{run or ''}": x for name, x in zip(names, own, strict=True)}
        try:
            with Path(path).open("xb") as file:
                np.savez(file, **arrays)
        except FileExistsError as error:
            message = f"{path} is there already: name a new file for the deciding input"
            raise FileError(message) from error
        except OSError as error:
            message = f"{path}: cannot be written ({error.strerror or error})"
            raise FileError(message) from error

    def __str__(self) -> str:
        indices = [str(place) if len(self.seeds) == 1 else f"{place} of run {run}" for run, place in self.places]
        where = "the result" if indices == ["0"] else f"output {', '.join(indices)} (flat index)"
        lines = [f"To decide, run {self.op} on {self.recipe}, and look at {where}:"]
        groups: dict[tuple[str, ...], list[Outcome]] = {}
        for one in self.outcomes:
            groups.setdefault(one.hexadecimal, []).append(one)
        for group in list(groups.values())[:_SHOWN]:
            names = ", ".join(one.candidate for one in group[:4]) + (
                f", {len(group) - 4} more" if len(group) > 4 else ""
            )
            lines.append(f"  {_listed(group[0].values)} ({_listed(group[0].hexadecimal)}): {names}")
        if len(groups) > _SHOWN:
            lines.append(f"  ... and {len(groups) - _SHOWN} more results in the JSON form")
        return "\n".join(lines)


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(f"{v:.9g}" if isinstance(v, float) else str(v) for v in values)


def made(law: str, seed: int, shapes: Sequence[tuple[int, ...]], form: Format, /) -> tuple[NDArray[Any], ...]:
    """Return inputs of a law, rounded to a format."""
    generator = np.random.default_rng(seed)
    return tuple(hold(np.asarray(LAWS[law](generator, shape), np.float64), form) for shape in shapes)


def deciding(
    op: str,
    shapes: Sequence[tuple[int, ...]],
    form: Format,
    candidates: Sequence[str],
    evaluate: _Evaluate,
    /,
    *,
    work: int = 1,
) -> DecidingInput | None:
    """Search for an input on which candidates differ.

    Parameters
    ----------
    op, shapes, form
        The operation, the shapes of its inputs and their format.
    candidates : sequence of str
        Names.
    evaluate : callable
        Takes inputs and names; returns the outputs of each (None where it is not defined), and their flat indices.
    work : int
        Roundings that each candidate takes: so many inputs are tried as the work allows.

    Returns
    -------
    DecidingInput or None
        None where no input tried tells any two of them apart.
    """
    names = list(dict.fromkeys(candidates))[:_MOST_CANDIDATES]
    if len(names) < 2 or sum(int(np.prod(s, dtype=np.int64)) for s in shapes) > _MOST_NUMBERS:
        return None
    best: tuple[int, int, DecidingInput] | None = None
    most = max(1, min(_SEEDS, _WORK // ((work + _START) * len(names))))
    for law in LAWS:
        columns: list[Doubles] = []
        told: list[tuple[int, int]] = []  # seed and place of each column
        defined = names
        for seed in range(most):
            results, outputs = evaluate(made(law, seed, shapes, form), names)
            defined = [name for name, r in zip(names, results, strict=True) if r is not None and r.size]
            if len(defined) < 2:
                break
            columns.append(np.stack([r for r in results if r is not None and r.size]) + 0.0)
            told += [(seed, int(i)) for i in outputs]
            if len(_groups(columns[-1])) == len(defined):
                columns, told = columns[-1:], told[-len(outputs) :]  # one input does
                break
        if len(defined) < 2 or len({len(part) for part in columns}) != 1:
            continue
        one = _chosen(op, law, shapes, form, defined, np.concatenate(columns, axis=1), told)
        count = len(defined) - sum(len(group) - 1 for group in one.undecided)
        if count > 1 and (best is None or (count, -len(one.seeds)) > best[:2]):
            best = count, -len(one.seeds), one
        if count == len(defined):
            break
    return None if best is None else best[2]


def _chosen(
    op: str, law: str, shapes: Sequence[tuple[int, ...]], form: Format, names: list[str], columns: Doubles,
    told: list[tuple[int, int]],
) -> DecidingInput:  # fmt: skip
    places = _places(columns)
    values = columns[:, places]
    seeds = tuple(dict.fromkeys(told[i][0] for i in places))
    outcomes = tuple(
        Outcome(name, tuple(map(float, row)), tuple(float(v).hex() for v in row))
        for name, row in zip(names, values, strict=True)
    )
    undecided = tuple(tuple(names[i] for i in group) for group in _groups(values) if len(group) > 1)
    where = tuple((seeds.index(told[i][0]), told[i][1]) for i in places)
    return DecidingInput(op, law, seeds, tuple(shapes), str(form), where, outcomes, undecided)


def _groups(rows: Doubles) -> list[list[int]]:
    """Return the numbers of equal rows."""
    found: dict[bytes, list[int]] = {}
    for number, row in enumerate(rows):
        found.setdefault(row.tobytes(), []).append(number)
    return list(found.values())


def _places(columns: Doubles) -> NDArray[np.int64]:
    """Return few columns that together separate the rows: at each step the one that separates most."""
    groups = np.zeros(len(columns), np.int64)
    chosen: list[int] = []
    for _ in range(_PLACES):
        best = (int(groups.max()) + 1, -1, groups)
        for place in range(columns.shape[1]):
            _, codes = np.unique(np.stack([groups, columns[:, place].view(np.int64)]), axis=1, return_inverse=True)
            codes = codes.reshape(-1)
            if int(codes.max()) + 1 > best[0]:
                best = int(codes.max()) + 1, place, codes
            if best[0] == len(columns):
                break
        if best[1] < 0:
            break
        chosen.append(best[1])
        groups = best[2]
    return np.array(chosen or [0], np.int64)


def for_operation(task: Operation, matches: Sequence[Sequence[Match]], result: Format, /) -> DecidingInput | None:
    """Return an input that tells apart the strategies that match sides of a sum or product."""
    names = [one.strategy for own in matches if len(own) > 1 for one in own]
    count = min(16, task.size)
    names = names[: max(2, _WORK // (2 * task.n * count))]

    def evaluate(inputs: tuple[NDArray[Any], ...], texts: Sequence[str]) -> tuple[list[Any], NDArray[np.int64]]:
        other = operation(task.op, list(inputs), axis=task.axis)
        sample = other.sample(np.random.default_rng(0), outputs=count)
        found: list[Any] = []
        for text in texts:
            try:
                with np.errstate(all="ignore"):
                    given = other.whole(text).reshape(-1)[sample.outputs] if task.op == "sum" else sample.evaluate(text)
                    found.append(np.asarray(round_to(np.asarray(given, np.float64), result)).reshape(-1))
            except FpsimError:
                found.append(None)
        return found, sample.outputs

    return deciding(task.op, [x.shape for x in task.inputs], task.data, names, evaluate, work=task.n * count)


def for_case(case: Case, matches: Sequence[Sequence[Match]], /) -> DecidingInput | None:
    """Return an input that tells apart the predictions of mechanisms that match sides of a case."""
    from fpsim.explaining.mechanisms import computed, work_of

    if not case.inputs or any(not x.ndim or not x.size for x in case.inputs):
        return None
    wanted = [(one.mechanism, one.strategy) for own in matches if len(own) > 1 for one in own]
    wanted = list(dict.fromkeys(wanted))[: max(2, _WORK // (2 * work_of(case)))]
    names = [f"{told} ({name})" for name, told in wanted]
    kinds = [name for name, _ in wanted]

    def evaluate(inputs: tuple[NDArray[Any], ...], texts: Sequence[str]) -> tuple[list[Any], NDArray[np.int64]]:
        other = replace(case, inputs=inputs, known=True)
        given = {
            f"{prediction.text} ({one.name})": values.reshape(-1)[:64]
            for one, prediction, values in computed(other, names=kinds, texts={told for _, told in wanted})
        }
        sizes = {v.size for v in given.values()}
        most = min(sizes, default=0)
        return [given[t][:most] if t in given else None for t in texts], np.arange(most, dtype=np.int64)

    return deciding(case.op, [x.shape for x in case.inputs], case.data, names, evaluate, work=work_of(case))
