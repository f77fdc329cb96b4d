"""Check: run what this machine has, and compare every bit with what the rules predict."""

from __future__ import annotations

import dataclasses
import itertools
import math
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim import __version__
from fpsim._arrays import as_floats
from fpsim._check_text import as_text
from fpsim._prediction_text import plain_number
from fpsim.devices import Implementation, implementations as all_implementations
from fpsim.devices.operations import OPERATIONS, Operation, operation
from fpsim.devices.timing import Crossover, Times, crossover, measure
from fpsim.errors import InputError, UnknownOrderError
from fpsim.formats import as_format
from fpsim.laws import Law, law as as_law

SCHEMA: Final = "fpsim.check/1"
LAWS: Final = ("uniform(0, 1)", "normal(0, 1)", "wide(-12, 12)")
_NARROW_LAWS: Final = ("uniform(0, 1)", "normal(0, 1)", "wide(-4, 4)")
SIZES: Final[dict[int, tuple[tuple[int, ...], ...]]] = {
    1: ((7,), (1000,), (4097,), (100_000,)),
    2: ((3, 50), (200, 100), (257, 129)),
    3: ((5, 40, 3), (33, 77, 29), (100, 400, 100)),
}
_RANKS: Final = ((2, 1000), (3, 5003))  # of an all-reduce: processes and elements
_DTYPES = ("float16", "float32", "float64")
_LARGEST = 2**31  # elements

_Array = NDArray[Any]
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first output whose bits are not the predicted ones.

    Attributes
    ----------
    law, index, predicted, actual
        The law of the operands, the position of the output, and the two values as text with their bits.
    """

    law: str
    index: tuple[int, ...]
    predicted: str
    actual: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """A routine and its prediction on operands of one size.

    Attributes
    ----------
    implementation, operation : str
        What ran.
    size : tuple of int
        The size, see `fpsim.devices.operations.OPERATIONS`.
    strategy : str
        The predicted strategy; of several, for different laws, the last.
    unknown : str
        Why no prediction is made, or the routine gives no result, for one law at least; else empty.
    outputs, equal : int
        Number of outputs over all laws, of those that are predicted where any is, and how many of them have the
        predicted bits (any NaN equals any other).
    predicted_error, actual_error : float
        Largest error against the exact result, in ulps of it; NaN where none is finite.
    bound : float
        Worst-case bound, in the same ulps, of the output that has the largest actual error; NaN where none is known.
    times : Times or None
        How long the routine takes.
    repeats : bool
        The routine gave the same bits again.
    mismatch : Mismatch or None
        The first output that differs.
    """

    implementation: str
    operation: str
    size: tuple[int, ...]
    strategy: str
    unknown: str
    outputs: int
    equal: int
    predicted_error: float
    actual_error: float
    bound: float
    times: Times | None = None
    repeats: bool = True
    mismatch: Mismatch | None = None

    @property
    def status(self) -> str:
        """One of "equal", "different" (the rule was wrong) and "unknown" (there is no rule, for one law at least)."""
        if self.mismatch is not None:
            return "different"
        return "unknown" if self.unknown else "equal"

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects; a number that is not finite is the text "inf" or "nan"."""
        out: dict[str, Any] = {
            "implementation": self.implementation,
            "operation": self.operation,
            "size": list(self.size),
            "status": self.status,
            "strategy": self.strategy or None,
            "unknown": self.unknown or None,
            "outputs": self.outputs,
            "equal": self.equal,
            "max_error_ulps": {
                "predicted": plain_number(self.predicted_error),
                "actual": plain_number(self.actual_error),
                "bound": plain_number(self.bound),
            },
            "same_bits_again": self.repeats,
        }
        if self.times is not None:
            out["seconds"] = self.times.compute
            out["seconds_with_transfers"] = self.times.with_transfers
        if self.mismatch is not None:
            out["first_mismatch"] = dataclasses.asdict(self.mismatch)
        return out


@dataclass(frozen=True, slots=True)
class Check:
    """Real routines beside their predictions; see `check`.

    Attributes
    ----------
    implementations : tuple of Implementation
        Those that were asked for, with those that cannot run here.
    comparisons : tuple of Comparison
        One for each implementation, operation and size.
    laws : tuple of str
        What operands were drawn from.
    dtype : str
        Their type.
    seed : int or None
        What the draws began with.
    crossover : Crossover or None
        From which size on a GPU multiplies matrices element by element faster than NumPy.
    """

    implementations: tuple[Implementation, ...]
    comparisons: tuple[Comparison, ...]
    laws: tuple[str, ...]
    dtype: str
    seed: int | None
    crossover: Crossover | None = None

    @property
    def wrong(self) -> tuple[Comparison, ...]:
        """The comparisons where a rule that claims to know was wrong."""
        return tuple(one for one in self.comparisons if one.status == "different")

    def __str__(self) -> str:
        return as_text(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects for JSON."""
        return {
            "schema": SCHEMA,
            "fpsim": __version__,
            "python": platform.python_version(),
            "dtype": self.dtype,
            "laws": list(self.laws),
            "seed": self.seed,
            "implementations": [one.to_dict() for one in self.implementations],
            "comparisons": [one.to_dict() for one in self.comparisons],
            "wrong": len(self.wrong),
            "crossover": None if self.crossover is None else self.crossover.to_dict(),
        }


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
        Of `fpsim.devices.operations.OPERATIONS`; by default all that an implementation has.
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
    if str(form) not in _DTYPES:
        message = f"check runs float16, float32 and float64, not {form}"
        raise InputError(message)
    chosen_laws = tuple(
        str(as_law(one)) for one in _listed(laws, "laws") or (LAWS if form.emax > 100 else _NARROW_LAWS)
    )
    asked = [operation(name) for name in _listed(operations, "operations") or OPERATIONS]
    numbers = _sizes(sizes, asked)
    known = all_implementations(_listed(implementations, "implementations") or None)
    cases = [
        (one, size, [impl for impl in known if impl.available and one.name in impl.routines])
        for one in asked
        for size in (_RANKS if one.name == "all_reduce" and operations is None else numbers[one.dimensions])
    ]
    total, done = sum(len(able) for _, _, able in cases), 0
    streams = _spawned(rng, len(cases))
    compared: list[Comparison] = []
    for (one, size, able), stream in zip(cases, streams, strict=True):
        drawn = [(text, one.draw(size, text, rng=stream, dtype=form)) for text in chosen_laws]
        for implementation in able:
            if progress is not None:
                progress(done, total, f"{implementation.name} {one.name} {'x'.join(map(str, size))}")
            compared.append(compare(implementation, one.name, size, drawn, times=times))
            done += 1
    crossing = crossover(known) if times and any(one.name == "multiply" for one in asked) else None
    seed = int(rng) if isinstance(rng, int | np.integer) else None
    return Check(known, tuple(compared), chosen_laws, str(form), seed, crossing)


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


def case_of(op: str, /, *operands: Any) -> tuple[str, tuple[_Array, ...]]:
    """Return the name of the operation that `check_operands` runs, and the operands side by side in memory.

    Raises
    ------
    InputError
        As `check_operands` does.
    """
    arrays = tuple(np.atleast_1d(as_floats(x, name=f"operand {i}")[0]) for i, x in enumerate(operands))
    arrays = tuple(np.ascontiguousarray(x) for x in arrays)
    kinds = {
        ("sum", (1,)): "sum", ("sum", (2,)): "sum_axis1", ("dot", (1, 1)): "dot", ("matmul", (1, 1)): "dot",
        ("matmul", (2, 1)): "matvec", ("matmul", (1, 2)): "vecmat", ("matmul", (2, 2)): "matmul",
    }  # fmt: skip
    name = kinds.get((op, tuple(x.ndim for x in arrays)))
    held = " and ".join(f"{x.dtype}{x.shape}" for x in arrays)
    if name is None or len({x.dtype for x in arrays}) != 1 or str(arrays[0].dtype) not in _DTYPES:
        message = f"{op} is run for one or two dimensions and one type, float16, float32 or float64, not for {held}"
        raise InputError(message)
    if len(arrays) == 2 and arrays[0].shape[-1] != arrays[1].shape[0]:
        message = f"{op} needs as many terms on either side, not {held}"
        raise InputError(message)
    return name, arrays


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
        repeats = repeats and _same(actual, again).all().item()
        outputs += actual.size
        try:
            chosen = implementation.strategy(name, *operands)
            predicted = one.emulate(operands, chosen)
        except UnknownOrderError as error:
            unknown = unknown or str(error)
            worst.add(one, operands, None, actual, None)
            continue
        strategy = str(chosen)
        same = _same(predicted, actual)
        known += same.size
        equal += int(np.count_nonzero(same))
        if first is None and not same.all():
            first = _mismatch(text, same, predicted, actual)
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


def _same(one: _Array, other: _Array) -> NDArray[np.bool]:
    """Tell which bits are equal; a NaN equals any other."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return np.zeros(other.shape, np.bool)
    kind = f"u{one.dtype.itemsize}"
    bits = np.ascontiguousarray(one).view(kind) == np.ascontiguousarray(other).view(kind)
    return np.asarray(bits.reshape(other.shape) | (np.isnan(one) & np.isnan(other)))


def _mismatch(law: str, same: NDArray[np.bool], predicted: _Array, actual: _Array) -> Mismatch:
    index = tuple(int(i) for i in np.argwhere(~same)[0])
    if predicted.shape != actual.shape or predicted.dtype != actual.dtype:
        return Mismatch(law, index, f"{predicted.dtype}{predicted.shape}", f"{actual.dtype}{actual.shape}")
    return Mismatch(law, index, _with_bits(predicted[index]), _with_bits(actual[index]))


def _with_bits(value: Any) -> str:
    one = np.asarray(value)
    return f"{one[()]!s} (0x{int(one.view(f'u{one.itemsize}')):0{2 * one.itemsize}x})"


# --- what is asked for ------------------------------------------------------------------------------------------------


def _listed(given: Any, what: str) -> list[Any]:
    if given is None:
        return []
    if isinstance(given, str | Law):
        return [given]
    try:
        return list(given)
    except TypeError:
        message = f"{what} are named by text or a list of texts, not by {given!r}"
        raise InputError(message) from None


def _sizes(given: Any, asked: Sequence[Operation]) -> dict[int, tuple[tuple[int, ...], ...]]:
    """Return the sizes for operations of one, two and three dimensions."""
    if given is None:
        return SIZES
    sizes = [_size(one) for one in (given if isinstance(given, Iterable) and not isinstance(given, str) else [given])]
    out = {count: tuple(size for size in sizes if len(size) == count) for count in (1, 2, 3)}
    wanted = {one.dimensions for one in asked}
    unused = [size for size in sizes if len(size) not in wanted]
    if unused:
        message = f"no operation that is checked has sizes like {'x'.join(map(str, unused[0]))}"
        raise InputError(message)
    return out


def _size(given: Any) -> tuple[int, ...]:
    words = given.lower().split("x") if isinstance(given, str) else given if isinstance(given, tuple) else (given,)
    try:
        size = tuple(int(word) if isinstance(word, str) else index(word) for word in words)
    except (TypeError, ValueError):
        size = ()
    if not 1 <= len(size) <= 3 or min(size) < 1:
        message = f"a size is one to three whole numbers of at least 1, such as 1000 or 64x300x48, not {given!r}"
        raise InputError(message)
    largest = max(math.prod(pair) for pair in itertools.combinations(size, min(len(size), 2)))
    if largest > _LARGEST:
        message = f"operands and results have at most 2**31 elements here; size {given!r} needs {largest}"
        raise InputError(message)
    return size


def _spawned(rng: Any, count: int) -> Iterator[np.random.Generator]:
    from fpsim.formats import _generator

    return iter(_generator(rng).spawn(count))
