"""Predict: the error of strategies on given data or on data of a law, beside the classical bound and NumPy's result."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim import bounds
from fpsim._prediction_data import Batch, Drawn, Given
from fpsim._prediction_text import as_html, as_text, plain_number, with_bits
from fpsim.errors import InputError, StrategyError
from fpsim.exact import Exact
from fpsim.formats import Format, as_format
from fpsim.laws import Law, law as as_law
from fpsim.orders import Order
from fpsim.strategies import Strategy, strategy as as_strategy

SCHEMA: Final = "fpsim.prediction/1"
DEFAULT_SUMS: Final = ("serial", "pairwise", "numpy_sum", "lanes(8)", "split_k(4)", "grid(32, 256)")
DEFAULT_PRODUCTS: Final = ("serial", "serial+fma", "pairwise", "lanes(8)+fma", "split_k(4)+fma", "grid(4, 64)+fma")

_Array = NDArray[Any]
Progress = Callable[[int, int], None]

# What a term costs, in nanoseconds, to choose the number of repeats; estimates, so that the choice can be repeated.
_BUDGET, _DRAWING, _EXACT, _GENERAL, _OUTPUT = 6e9, 10.0, 2.0, 50.0, 300.0
_PLAIN = {"sum": 3.0, "dot": 3.0, "matmul": 0.7}
_MOST_REPEATS, _LARGEST_REPEATS = 1000, 10**6


@dataclass(frozen=True, slots=True)
class StrategyPrediction:
    """What is predicted for one strategy.

    Attributes
    ----------
    strategy : Strategy
        The strategy.
    result_format : str
        The format of its results; its ulps count.
    rms, quantile, maximum : float
        Root mean square, 99.9 % quantile and maximum of abs(error) over all outputs, in ulps of the exact value.
    relative, absolute : float
        Largest abs(error / exact) and abs(error).
    bound : float
        Classical worst-case bound in ulps of the exact value, the median over the outputs; infinite where a partial sum
        might overflow, or where no bound is known.
    bound_absolute : float
        Largest absolute bound.
    used : float
        Largest error/bound over the outputs: never above 1.
    differs : int
        Outputs whose value is not NumPy's.
    outputs : int
        Number of outputs.
    same_as : tuple of str
        The other strategies with the same bits in every output.
    result : ndarray or None
        The results, for given data.
    """

    strategy: Strategy
    result_format: str
    rms: float
    quantile: float
    maximum: float
    relative: float
    absolute: float
    bound: float
    bound_absolute: float
    used: float
    differs: int
    outputs: int
    same_as: tuple[str, ...] = ()
    result: _Array | None = dataclasses.field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return (
            f"{self.strategy}: {self.rms:.3g} ulp RMS, {self.maximum:.3g} ulp at most, bound {self.bound:.3g} ulp,"
            f" {self.differs} of {self.outputs} outputs differ from NumPy"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects; a number that is not finite is the text "inf" or "nan"."""
        out: dict[str, Any] = {"strategy": str(self.strategy), "result_format": self.result_format}
        out["error_ulps"] = {
            "rms": plain_number(self.rms),
            "quantile_0.999": plain_number(self.quantile),
            "max": plain_number(self.maximum),
        }
        out["max_relative_error"] = plain_number(self.relative)
        out["max_absolute_error"] = plain_number(self.absolute)
        out["bound_ulps"] = plain_number(self.bound)
        out["bound_absolute"] = plain_number(self.bound_absolute)
        out["max_error_over_bound"] = plain_number(self.used)
        out["outputs"] = self.outputs
        out["differ_from_numpy"] = self.differs
        out["same_bits_as"] = list(self.same_as)
        if self.result is not None and self.result.size == 1:
            out["result"] = with_bits(self.result)
        return out


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted errors of several strategies; see `predict`.

    Attributes
    ----------
    op : str
        The operation.
    shape : tuple of int
        n of a dot product, (n,) or the shape of the array of a sum, (m, k, n) of a matrix product.
    data : tuple of str
        The law of each operand, or "array".
    dtype : str
        The type of the operands.
    repeats : int
        How often operands were drawn; 1 for given data.
    seed : int or None
        What the draws began with, where that was a number.
    strategies : tuple of StrategyPrediction
        In the order in which they were asked for.
    numpy_version : str
        The NumPy that was run for comparison.
    exact : Exact or None
        The exact result, for given data.
    notes : tuple of str
        What a reader should know.
    """

    op: str
    shape: tuple[int, ...]
    data: tuple[str, ...]
    dtype: str
    repeats: int
    seed: int | None
    strategies: tuple[StrategyPrediction, ...]
    numpy_version: str
    exact: Exact | None = dataclasses.field(default=None, compare=False, repr=False)
    notes: tuple[str, ...] = ()

    @property
    def is_sampled(self) -> bool:
        """Whether the data were drawn from a law."""
        return self.exact is None

    @property
    def most_accurate(self) -> tuple[StrategyPrediction, ...]:
        """The strategies of the smallest RMS error, several where they have the same bits.

        An ulp of a wider format counts for less.
        """
        best = min(self.strategies, key=lambda one: (one.rms * as_format(one.result_format).eps, one.maximum))
        return tuple(one for one in self.strategies if one is best or str(one.strategy) in best.same_as)

    def __str__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects for JSON; a number that is not finite is the text "inf" or "nan"."""
        out: dict[str, Any] = {
            "schema": SCHEMA,
            "op": self.op,
            "shape": list(self.shape),
            "data": list(self.data),
            "dtype": self.dtype,
            "repeats": self.repeats,
            "seed": self.seed,
            "numpy": self.numpy_version,
            "strategies": [one.to_dict() for one in self.strategies],
            "most_accurate": [str(one.strategy) for one in self.most_accurate],
            "notes": list(self.notes),
        }
        if self.exact is not None and math.prod(self.exact.shape) == 1:
            out["exact"] = with_bits(np.asarray(self.exact.round("float64")))
        return out


def predict(
    op: str,
    /,
    *inputs: Any,
    strategies: Sequence[str | Strategy | Order] | str | None = None,
    fma: bool | str | None = None,
    shape: int | str | tuple[int, ...] | None = None,
    repeats: int | None = None,
    rng: Any = 0,
    dtype: Any = "float32",
    axis: Any = None,
    progress: Progress | None = None,
) -> Prediction:
    """Predict the error of strategies on given data, or on data of a law.

    Parameters
    ----------
    op : {"sum", "dot", "matmul"}
        The operation.
    *inputs : array_like, or str or Law
        Arrays; or laws (see `fpsim.law`) together with `shape`, one for all operands or one for each.
    strategies : sequence of str or Strategy, optional
        See `fpsim.strategy`; by default a few that stand for usual CPU and GPU orders. Repeated ones are merged.
    fma : bool or "both", optional
        For products: with fused multiply-add, without, or each strategy in both ways; by default as each strategy says.
    shape : int, tuple of int or str, for laws
        n or (outputs, n) for a sum, n for a dot product, (m, k, n) or ``"400x400x400"`` for a product.
    repeats : int, for laws
        How often operands are drawn. The default depends on op, shape and strategies alone, at most 1000, so that the
        answer takes some seconds.
    rng : int, SeedSequence or Generator, for laws
        Every repeat draws from a child of its own. 0 by default: the same call gives the same answer.
    dtype : dtype, Format or str, for laws
        The format of the operands.
    axis : int or tuple of int, optional
        Of a sum over an array.
    progress : callable, optional
        Called as ``progress(done, total)``.

    Returns
    -------
    Prediction

    Raises
    ------
    InputError
        Operation, data, shape or another argument does not fit.
    StrategyError
        A text is not a strategy.

    Notes
    -----
    Errors are measured against the exact result of the stored operands. The bound is `fpsim.bounds.bound`.

    Examples
    --------
    >>> import fpsim
    >>> p = fpsim.predict("sum", "uniform(0, 1)", shape=1000, repeats=200, strategies=["serial", "pairwise"])
    >>> [one.rms < one.bound for one in p.strategies], str(p.most_accurate[0].strategy)
    ([True, True], 'pairwise')
    """
    bounds.check_operation(op)
    chosen, notes = _strategies(op, strategies, fma)
    laws = [isinstance(x, str | Law) for x in inputs]
    if not inputs:
        message = f"{op} needs data: arrays, or a law and a shape, as in predict({op!r}, 'uniform(0, 1)', shape=...)"
        raise InputError(message)
    if any(laws) and not all(laws):
        message = "give arrays or laws, not both"
        raise InputError(message)
    if laws[0]:
        if axis is not None:
            message = "axis is for arrays; the shape of drawn data says what is summed"
            raise InputError(message)
        sizes = sizes_of(op, shape)
        texts = _laws(op, inputs)
        times = _default_repeats(op, sizes, chosen) if repeats is None else _positive("repeats", repeats)
        if times > _LARGEST_REPEATS:
            message = f"repeats must be at most {_LARGEST_REPEATS}, not {times}"
            raise InputError(message)
        source: Drawn | Given = Drawn(op, sizes, texts, times, rng, dtype)
    else:
        for name, value in (("shape", shape), ("repeats", repeats)):
            if value is not None:
                message = f"{name} is for data of a law, not for given arrays"
                raise InputError(message)
        source = Given(op, inputs, axis)
    tallies, skipped, results, exact = _run(source, chosen, progress)
    if skipped:
        notes.append(f"{skipped} outputs have no finite exact value; errors do not count them")
    if source.dtype not in ("float16", "float32", "float64"):
        notes.append(f"NumPy has no {source.dtype}: its result is that of the same numbers in a wider type")
    if 1 < tallies[0].outputs < 1000:
        notes.append(f"of {tallies[0].outputs} outputs the 99.9 % quantile is the largest")
    return Prediction(
        op, source.shape, source.data, source.dtype, source.repeats, source.seed,
        _summaries(chosen, tallies, results), np.__version__, exact, tuple(notes),
    )  # fmt: skip


# --- what is asked for ------------------------------------------------------------------------------------------------


def _strategies(op: str, given: Any, fma: bool | str | None) -> tuple[list[Strategy], list[str]]:
    """Return the strategies, each once, and what is to be said about them."""
    if fma not in (None, True, False, "both"):
        message = f"fma must be True, False, 'both' or None, not {fma!r}"
        raise InputError(message)
    if given is None:
        given = DEFAULT_SUMS if op == "sum" else DEFAULT_PRODUCTS
    asked = [given] if isinstance(given, str | Strategy | Order) else list(given)
    if not asked:
        message = "name at least one strategy"
        raise InputError(message)
    notes: list[str] = []
    chosen = [as_strategy(one) for one in asked]
    if fma is not None and op == "sum":
        notes.append("a sum has no products, so FMA changes nothing in it")
    elif fma is not None:
        chosen = [new for one in chosen for new in _with_fma(one, fma, notes)]
    return list(dict.fromkeys(chosen)), list(dict.fromkeys(notes))


def _with_fma(one: Strategy, fma: bool | str, notes: list[str]) -> list[Strategy]:
    bare = Strategy(one.order, dataclasses.replace(one.settings, fma=None))
    separate = bare
    if bare.arithmetic().fma:
        separate = Strategy(one.order, dataclasses.replace(one.settings, fma=False))
    if fma is False:
        return [separate]
    try:
        fused = Strategy(one.order, dataclasses.replace(one.settings, fma=True))
        fused.program(2)
    except StrategyError as error:
        if fma is True:
            raise
        notes.append(f"{separate} has no FMA variant: {error}")
        return [separate]
    return [fused] if fma is True else [separate, fused]


def _positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        message = f"{name} must be a whole number of at least 1, not {value!r}"
        raise InputError(message)
    return int(value)


def sizes_of(op: str, shape: Any) -> tuple[int, ...]:
    """Return the shape of an operation as whole numbers; the text ``"400x400x400"`` is a shape too."""
    forms = {"sum": ((1, 2), "n or outputs x n"), "dot": ((1,), "n"), "matmul": ((3,), "m x k x n")}
    lengths, wanted = forms[op]
    example = {"sum": "1000000", "dot": "1000", "matmul": "400x400x400"}[op]
    problem = f"the shape of a {op} is {wanted}, as in {example}"
    if shape is None:
        message = f"data of a law need a shape: {problem}"
        raise InputError(message)
    if isinstance(shape, str):
        words = shape.lower().replace("*", "x").split("x")
        if not all(word.strip().isascii() and word.strip().isdigit() for word in words):
            message = f"{problem}, not {shape!r}"
            raise InputError(message)
        given: tuple[Any, ...] = tuple(int(word) for word in words)
    else:
        given = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    if len(given) not in lengths:
        message = f"{problem}, not {'x'.join(map(str, given)) or '()'}"
        raise InputError(message)
    sizes = tuple(_positive(f"the shape of a {op}", size) for size in given)
    m, k, n = sizes if op == "matmul" else (1, 1, math.prod(sizes))
    largest = max(m * k, k * n, m * n)
    if largest > 2**31:
        message = f"{'x'.join(map(str, sizes))} needs arrays of more than 2**31 numbers; choose a smaller shape"
        raise InputError(message)
    return sizes


def _laws(op: str, given: Sequence[str | Law]) -> tuple[Law, ...]:
    wanted = 1 if op == "sum" else 2
    laws = tuple(as_law(one) for one in given)
    if len(laws) == 1:
        return laws * wanted
    if len(laws) != wanted:
        message = f"{op} takes one law, or one for each of its {wanted} operands, not {len(laws)}"
        raise InputError(message if wanted > 1 else f"a sum takes one law, not {len(laws)}")
    return laws


def _default_repeats(op: str, sizes: tuple[int, ...], chosen: Sequence[Strategy]) -> int:
    """Return a number of repeats that takes some seconds, from estimates alone."""
    terms = math.prod(sizes)
    elements = terms if op == "sum" else 2 * terms if op == "dot" else sizes[1] * (sizes[0] + sizes[2])
    plain = sum(one.arithmetic().is_plain for one in chosen)
    outputs = math.prod(sizes[:-1]) if op == "sum" else sizes[0] * sizes[-1] if op == "matmul" else 1
    cost = elements * _DRAWING + terms * (_EXACT + plain * _PLAIN[op] + (len(chosen) - plain) * _GENERAL)
    cost += outputs * _OUTPUT * (2 + len(chosen))
    return int(min(max(_BUDGET // cost, 1), _MOST_REPEATS))


# --- errors -----------------------------------------------------------------------------------------------------------


class _Reference:
    """The exact results of a batch, and the units that errors are counted in."""

    def __init__(self, exact: Exact) -> None:
        self.exact = exact
        self.value = np.asarray(exact.round("float64"))
        self.finite = np.isfinite(self.value)
        self._units: dict[Format, _Array] = {}

    def unit(self, form: Format) -> _Array:
        """Return the ulp of the exact values; rounded toward zero a value stays in its binade."""
        if form not in self._units:
            self._units[form] = np.asarray(form.ulp(self.exact.round("float64", mode="toward-zero")))
        return self._units[form]


class _Tally:
    """What is gathered for one strategy over the batches."""

    def __init__(self) -> None:
        self.form = ""
        self.errors: list[_Array] = []
        self.bounds: list[_Array] = []
        self.relative = self.absolute = self.bound_absolute = self.used = 0.0
        self.differs = self.outputs = 0
        self.digest = hashlib.blake2b()

    def add(self, result: _Array, numpy_bits: _Array, exact: _Reference, bound: _Array, form: Format) -> None:
        self.form = str(form)
        finite, unit = exact.finite, exact.unit(form)
        bits = _bits(result)
        with np.errstate(all="ignore"):
            error = np.abs(exact.exact.error(result))
            ulps = error / unit
            relative = np.where(error == 0.0, 0.0, error / np.abs(exact.value))
            used = np.where(error == 0.0, 0.0, error / bound)
            scaled = bound / unit
        # A result that is not a number although the exact one is finite is infinitely wrong.
        error, ulps, relative = (np.where(np.isnan(x), math.inf, x)[finite] for x in (error, ulps, relative))
        self.errors.append(np.ravel(ulps))
        self.bounds.append(np.ravel(scaled[finite]))
        self.relative = max(self.relative, float(relative.max(initial=0.0)))
        self.absolute = max(self.absolute, float(error.max(initial=0.0)))
        self.bound_absolute = max(self.bound_absolute, float(bound[finite].max(initial=0.0)))
        self.used = max(self.used, float(np.nan_to_num(used[finite]).max(initial=0.0)))
        self.outputs += result.size
        self.differs += int(np.count_nonzero(bits != numpy_bits))
        self.digest.update(bits.tobytes())


def _bits(x: _Array) -> NDArray[np.int64]:
    """Return values in a form that tells signed zeros apart and NaN not."""
    wide = np.where(np.isnan(x), np.float64(math.nan), x.astype(np.float64))
    return np.ascontiguousarray(wide).view(np.int64)


def _run(
    source: Given | Drawn, chosen: Sequence[Strategy], progress: Progress | None
) -> tuple[list[_Tally], int, list[_Array | None], Exact | None]:
    tallies = [_Tally() for _ in chosen]
    results: list[_Array | None] = [None] * len(chosen)
    worst: dict[Any, list[tuple[bounds.WorstCase, Any]]] = {}
    total, done, skipped = source.count * (1 + len(chosen)), 0, 0
    reference: _Reference | None = None
    op = "sum" if source.op == "sum" else "matmul"
    for batch in source.batches():
        reference = _Reference(batch.exact())
        value = reference.value
        skipped += int(np.count_nonzero(~reference.finite))
        numpy_bits = _bits(batch.from_numpy())
        prepared: dict[Any, bounds.Operands] = {}
        done += 1
        for index, one in enumerate(chosen):
            if progress is not None:
                progress(done, total)
            result = batch.emulated(one)
            form = one.arithmetic(_data_format(batch)).result_format
            key = _operand_key(one)
            if key not in prepared:
                prepared[key] = bounds.operands(op, one, *batch.inputs, axis=batch.axis)
            operands = prepared[key]
            case = (index, operands.magnitude.shape)
            if case not in worst:
                worst[case] = bounds.worst_cases(op, one, operands, axis=batch.axis)
            sized = value.reshape(operands.magnitude.shape)
            bound = np.asarray(bounds.over_outputs(worst[case], operands, value=sized)).reshape(value.shape)
            tallies[index].add(result, numpy_bits, reference, bound, form)
            done += 1
            if isinstance(source, Given):
                results[index] = result
    if progress is not None:
        progress(total, total)
    given = reference.exact if reference is not None and isinstance(source, Given) else None
    return tallies, skipped, results, given


def _data_format(batch: Batch) -> Any:
    wide = any(x.dtype == np.float64 for x in batch.inputs)
    return as_format("float64") if wide else as_format(batch.inputs[0].dtype)


def _operand_key(one: Strategy) -> Any:
    arithmetic = one.arithmetic()
    return one.order.name == "numpy_sum", arithmetic.operand_format, arithmetic.operands, arithmetic.daz


def _summaries(
    chosen: Sequence[Strategy], tallies: Sequence[_Tally], results: Sequence[_Array | None]
) -> tuple[StrategyPrediction, ...]:
    digests = [tally.digest.digest() for tally in tallies]
    out = []
    for index, (one, tally) in enumerate(zip(chosen, tallies, strict=True)):
        errors, limits = np.concatenate(tally.errors), np.concatenate(tally.bounds)
        same = tuple(str(chosen[i]) for i, digest in enumerate(digests) if i != index and digest == digests[index])
        some = errors.size > 0
        out.append(
            StrategyPrediction(
                strategy=one,
                result_format=tally.form,
                rms=_root_mean_square(errors) if some else math.nan,
                quantile=_quantile(errors, 0.999) if some else math.nan,
                maximum=float(errors.max()) if some else math.nan,
                relative=tally.relative,
                absolute=tally.absolute,
                bound=_quantile(limits, 0.5) if some else math.nan,
                bound_absolute=tally.bound_absolute,
                used=tally.used,
                differs=tally.differs,
                outputs=tally.outputs,
                same_as=same,
                result=results[index],
            )
        )
    return tuple(out)


def _root_mean_square(errors: _Array) -> float:
    largest = float(errors.max())
    if largest == 0.0 or not math.isfinite(largest):
        return largest
    return largest * math.sqrt(float(np.mean(np.square(errors / largest))))


def _quantile(values: _Array, share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    place = min(max(math.ceil(share * values.size) - 1, 0), values.size - 1)
    return float(np.partition(values, place)[place])
