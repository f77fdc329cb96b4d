"""Check: run what this machine has, and compare every bit with what the rules predict."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim._checking_cases import DTYPES, LAWS, NARROW_LAWS, RANKS, SIZES, case_of, listed, sizes_of, spawned
from fpsim._checking_functions import FUNCTIONS, SIZE, as_implementation, compare_function, libraries_of, operands_of
from fpsim._checking_results import SCHEMA, Check, Comparison, Mismatch, mismatch_of, same_bits
from fpsim.devices import Implementation, implementations as all_implementations
from fpsim.devices.operations import OPERATIONS, Operation, operation
from fpsim.devices.timing import crossover, measure
from fpsim.errors import InputError, UnknownOrderError
from fpsim.formats import FLOAT32, Format, as_format
from fpsim.laws import Law, law as as_law

__all__ = [
    "LAWS",
    "SCHEMA",
    "SIZES",
    "Check",
    "Comparison",
    "Mismatch",
    "case_of",
    "check",
    "check_operands",
    "compare",
]

_Array = NDArray[Any]
Progress = Callable[[int, int, str], None]


def check(
    *,
    operations: Sequence[str] | str | None = None,
    implementations: Sequence[str] | str | None = None,
    sizes: Sequence[Any] | str | None = None,
    laws: Sequence[str | Law] | str | None = None,
    dtype: Any = "float32",
    rng: Any = 0,
    times: bool = True,
    progress: Progress | None = None,
) -> Check:
    """Run real routines and compare every bit with the prediction.

    Parameters
    ----------
    operations : sequence of str, optional
        Of `fpsim.devices.operations.OPERATIONS`, and elementary functions, the keys of `fpsim.elementary.MODELS`; by
        default all that an implementation has.
    implementations : sequence of str, optional
        See `fpsim.devices.implementations`; by default all that can run here.
    sizes : sequence of int, tuple or str, optional
        Such as ``1000``, ``"200x100"`` (for sums over an axis and matrix times vector) and ``"64x300x48"`` (for
        products of matrices): each operation takes those of its kind. By default a few of each kind; an all-reduce
        takes sizes that are given only where it is asked for by name.
    laws : sequence of str or Law, optional
        What operands are drawn from, see `fpsim.law`.
    dtype : dtype or str
        float16, float32 or float64.
    rng : int, SeedSequence or Generator
        Source of the operands; every implementation gets the same.
    times : bool
        Measure how long each routine takes, and from which size on a GPU is faster.
    progress : callable, optional
        Called as ``progress(done, total, what)``.

    Returns
    -------
    Check

    Raises
    ------
    InputError
        An unknown operation, implementation, size, law or type.

    Examples
    --------
    >>> import fpsim
    >>> result = fpsim.check(implementations="numpy", operations="sum", sizes=[1000], times=False)
    >>> result.comparisons[0].status, result.comparisons[0].strategy
    ('equal', 'numpy_sum')
    """
    form = as_format(dtype)
    if str(form) not in DTYPES:
        message = f"check runs float16, float32 and float64, not {form}"
        raise InputError(message)
    chosen_laws = tuple(str(as_law(one)) for one in listed(laws, "laws") or (LAWS if form.emax > 100 else NARROW_LAWS))
    asked, functions = _asked(operations, form)
    numbers = sizes_of(sizes, {one.dimensions for one in asked} | {1 for _ in functions})
    known = all_implementations(listed(implementations, "implementations") or None)
    libraries = libraries_of(known) if functions else []
    cases = [
        (one, size, [impl for impl in known if impl.available and one.name in impl.routines])
        for one in asked
        for size in (RANKS if one.name == "all_reduce" and operations is None else numbers[one.dimensions])
    ]
    evaluated = [
        (name, size[0], [one for one in libraries if name in one.functions])
        for name in functions
        for size in ((SIZE,) if sizes is None else numbers[1])
    ]
    total, done = sum(len(able) for _, _, able in cases) + sum(len(able) for _, _, able in evaluated), 0
    streams = spawned(rng, len(cases) + len(evaluated))
    compared: list[Comparison] = []
    for (one, size, able), stream in zip(cases, streams, strict=False):
        drawn = [(text, one.draw(size, text, rng=stream, dtype=form)) for text in chosen_laws]
        for implementation in able:
            if progress is not None:
                progress(done, total, f"{implementation.name} {one.name} {'x'.join(map(str, size))}")
            compared.append(compare(implementation, one.name, size, drawn, times=times))
            done += 1
    for (name, length, having), stream in zip(evaluated, streams, strict=True):
        drawn = operands_of(name, length, chosen_laws, stream, patterns=laws is None)
        for library in having:
            if progress is not None:
                progress(done, total, f"{library.name} {name} {length}")
            compared.append(compare_function(library, name, drawn))
            done += 1
    names = {one.name for one in known}
    run = {one.implementation for one in compared}
    known += tuple(as_implementation(one) for one in libraries if one.name not in names and one.name in run)
    crossing = crossover(known) if times and any(one.name == "multiply" for one in asked) else None
    seed = int(rng) if isinstance(rng, int | np.integer) else None
    return Check(known, tuple(compared), chosen_laws, str(form), seed, crossing)


def _asked(operations: Sequence[str] | str | None, form: Format) -> tuple[list[Operation], list[str]]:
    """Return the operations and the elementary functions that are checked; the functions have models of float32 alone."""
    names = listed(operations, "operations")
    if not names:
        return [operation(name) for name in OPERATIONS], list(FUNCTIONS) if form == FLOAT32 else []
    functions = [name for name in names if name in FUNCTIONS]
    if functions and form != FLOAT32:
        message = f"elementary functions are checked in float32, not in {form}: leave out {', '.join(functions)}"
        raise InputError(message)
    return [operation(name) for name in names if name not in FUNCTIONS], functions


def check_operands(op: str, /, *operands: Any, source: str = "given data", times: bool = True) -> Check:
    """Run every implementation that is available on the same operands, and compare it with its prediction.

    Parameters
    ----------
    op : {"sum", "dot", "matmul"}
        The operation; a sum over an array of two dimensions runs along each row, a product with a vector is a
        matrix-vector product.
    *operands : array_like of float16, float32 or float64
        As `fpsim.predict` takes them.
    source : str
        What the operands are called.
    times : bool
        Measure how long each routine takes.

    Raises
    ------
    InputError
        The operands are not of one of these types, or have other dimensions or lengths that do not fit.
    """
    name, arrays = case_of(op, *operands)
    size = arrays[0].shape if len(arrays) == 1 or name in ("dot", "matvec") else arrays[-1].shape
    if name == "matmul":
        size = (*arrays[0].shape, arrays[1].shape[1])
    known = all_implementations()
    able = [one for one in known if one.available and name in one.routines]
    compared = tuple(compare(one, name, size, [(source, arrays)], times=times) for one in able)
    return Check(known, compared, (source,), str(as_format(arrays[0].dtype)), None)


def compare(
    implementation: Implementation,
    name: str,
    size: tuple[int, ...],
    drawn: Sequence[tuple[str, tuple[_Array, ...]]],
    /,
    *,
    times: bool = True,
) -> Comparison:
    """Run one routine on operands (each with the name of their law) and compare it with its prediction."""
    # The laws reach beyond what float16 holds: infinities and NaNs are results like others.
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return _compared(implementation, name, size, drawn, times)


def _compared(
    implementation: Implementation,
    name: str,
    size: tuple[int, ...],
    drawn: Sequence[tuple[str, tuple[_Array, ...]]],
    times: bool,
) -> Comparison:
    one = operation(name)
    unknown = strategy = ""
    outputs = known = equal = 0
    repeats = True
    worst = _Worst()
    first: Mismatch | None = None
    for text, operands in drawn:
        try:
            actual, again = (implementation.run(name, *operands) for _ in range(2))
        except UnknownOrderError as error:  # the routine does not take this type or size
            unknown = str(error)
            continue
        except Exception as error:  # noqa: BLE001 - a library may raise anything; the others must still be checked
            unknown = f"it failed here ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
            continue
        repeats = repeats and same_bits(actual, again).all().item()
        outputs += actual.size
        try:
            chosen = implementation.strategy(name, *operands)
            predicted = one.emulate(operands, chosen)
        except UnknownOrderError as error:
            unknown = unknown or str(error)
            worst.add(one, operands, None, actual, None)
            continue
        strategy = str(chosen)
        same = same_bits(predicted, actual)
        known += same.size
        equal += int(np.count_nonzero(same))
        if first is None and not same.all():
            first = mismatch_of(text, same, predicted, actual)
        worst.add(one, operands, predicted, actual, None if one.bound is None else _bound(one, operands, chosen))
    spent = measure(implementation, name, *drawn[-1][1]) if times and outputs else None
    return Comparison(
        implementation.name, name, size, strategy, unknown, known or outputs, equal,
        worst.predicted, worst.actual, worst.bound, spent, repeats, first,
    )  # fmt: skip


class _Worst:
    """The largest errors over several operands, in ulps of the exact value."""

    def __init__(self) -> None:
        self.predicted = self.actual = self.bound = math.nan

    def add(
        self,
        one: Operation,
        operands: tuple[_Array, ...],
        predicted: _Array | None,
        actual: _Array,
        bound: _Array | None,
    ) -> None:
        with np.errstate(all="ignore"):
            errors = np.asarray(one.errors(operands, actual), np.float64).reshape(-1)
            if predicted is not None:
                self.predicted = _larger(self.predicted, np.asarray(one.errors(operands, predicted)))
        if not np.isfinite(errors).any():
            return
        place = int(np.nanargmax(np.where(np.isfinite(errors), errors, np.nan)))
        if not errors[place] <= self.actual:
            self.actual = float(errors[place])
            self.bound = math.nan if bound is None else float(np.asarray(bound).reshape(-1)[place])


def _larger(so_far: float, errors: _Array) -> float:
    finite = errors[np.isfinite(errors)]
    return so_far if finite.size == 0 else float(np.fmax(so_far, finite.max()))


def _bound(one: Operation, operands: tuple[_Array, ...], chosen: Any) -> _Array | None:
    assert one.bound is not None
    try:
        return one.bound(operands, chosen)
    except UnknownOrderError:
        return None
