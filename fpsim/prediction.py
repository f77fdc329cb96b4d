"""Predict: the error of strategies on given data or on data of a law, beside the classical bound and NumPy's result."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim import bounds
from fpsim._prediction_data import Batch, Drawn, Given
from fpsim._prediction_request import (
    DEFAULT_PRODUCTS,
    DEFAULT_SUMS,
    LARGEST_REPEATS,
    default_repeats,
    laws_of,
    positive,
    sizes_of,
    strategies_of,
)
from fpsim._prediction_results import SCHEMA, Prediction, StrategyPrediction, quantile, root_mean_square
from fpsim.errors import InputError
from fpsim.exact import Exact
from fpsim.formats import Format, as_format
from fpsim.laws import Law
from fpsim.orders import Order
from fpsim.strategies import Strategy

__all__ = ["DEFAULT_PRODUCTS", "DEFAULT_SUMS", "SCHEMA", "Prediction", "StrategyPrediction", "predict", "sizes_of"]

_Array = NDArray[Any]
Progress = Callable[[int, int], None]


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
    op : {"sum", "dot", "matmul"} or str
        The operation; or an elementary function, such as "exp", or "softmax" of the last axis.
    *inputs : array_like, or str or Law
        Arrays; or laws (see `fpsim.law`) together with `shape`, one for all operands or one for each.
    strategies : sequence of str or Strategy, optional
        See `fpsim.strategy`; by default a few that stand for usual CPU and GPU orders. Repeated ones are merged.
        Of an elementary function the names of implementations: "torch.cuda" and "cupy" are models, see
        `fpsim.elementary`, and so is "profile:FILE"; "numpy" and other libraries are run here; "correctly rounded".
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
    Errors are measured against the exact result of the stored operands. The bound is `fpsim.bounds.bound`; of an
    elementary function it is the largest error that was measured of the implementation, see `fpsim.elementary_errors`, and
    `differs` counts the outputs that are not correctly rounded.

    Examples
    --------
    >>> import fpsim
    >>> p = fpsim.predict("sum", "uniform(0, 1)", shape=1000, repeats=200, strategies=["serial", "pairwise"])
    >>> [one.rms < one.bound for one in p.strategies], str(p.most_accurate[0].strategy)
    ([True, True], 'pairwise')
    >>> p = fpsim.predict("exp", "normal", shape=1000, strategies=["torch.cuda", "correctly rounded"])
    >>> [one.differs for one in p.strategies]
    [289, 0]
    """
    if op not in bounds.OPERATIONS:
        from fpsim._prediction_functions import FUNCTIONS, predict_function

        if op in FUNCTIONS:
            if fma is not None or axis is not None:
                message = f"fma and axis are for sums and products, not for {op}"
                raise InputError(message)
            return predict_function(op, inputs, strategies, shape, repeats, rng, dtype)
        message = f"unknown operation {op!r}; use one of {', '.join((*bounds.OPERATIONS, *FUNCTIONS))}"
        raise InputError(message)
    chosen, notes = strategies_of(op, strategies, fma)
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
        texts = laws_of(op, inputs)
        times = default_repeats(op, sizes, chosen) if repeats is None else positive("repeats", repeats)
        if times > LARGEST_REPEATS:
            message = f"repeats must be at most {LARGEST_REPEATS}, not {times}"
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
                rms=root_mean_square(errors) if some else math.nan,
                quantile=quantile(errors, 0.999) if some else math.nan,
                maximum=float(errors.max()) if some else math.nan,
                relative=tally.relative,
                absolute=tally.absolute,
                bound=quantile(limits, 0.5) if some else math.nan,
                bound_absolute=tally.bound_absolute,
                used=tally.used,
                differs=tally.differs,
                outputs=tally.outputs,
                same_as=same,
                result=results[index],
            )
        )
    return tuple(out)
