"""Mechanisms of the range of a format: subnormal numbers flushed to zero, intermediates that overflow."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from fpsim.explaining.mechanisms import Prediction, mechanism
from fpsim.explaining.observation import Case
from fpsim.explaining.operations import ELEMENTWISE, normalised, reference, wide
from fpsim.formats import round_to

_FLUSHED = "sum mean dot matmul cumsum cumprod norm " + " ".join(sorted(ELEMENTWISE))


def _flush(values: Any, least: float) -> Any:
    return np.where(np.abs(values) < least, 0.0, values)


@mechanism(
    "subnormal numbers flushed to zero (FTZ/DAZ)", "range", _FLUSHED, rank=1,
    switch="keep subnormals: no -ffast-math objects in the process, -ftz=false, torch.set_flush_denormal(False), or scale"
    " the data by a power of two",
    foresees="zeros where the other side has numbers below the smallest normal one",
)  # fmt: skip
def _flush_to_zero(case: Case) -> Iterator[Prediction]:
    least = case.data.smallest_normal
    with np.errstate(invalid="ignore"):  # of signaling NaN
        tiny = [np.abs(np.asarray(x, np.float64)) < least for x in case.inputs]
    has = any(bool((small & (np.asarray(x) != 0)).any()) for small, x in zip(tiny, case.inputs, strict=True))

    def operands() -> Any:
        flushed = tuple(np.where(s, 0, x).astype(x.dtype) for s, x in zip(tiny, case.inputs, strict=True))
        found = reference(Case(case.op, flushed, case.data, case.result, case.settings, case.known))
        assert found is not None
        with np.errstate(all="ignore"):
            return np.asarray(round_to(found.value, case.result))

    def results() -> Any:
        found = reference(case)
        assert found is not None
        return _flush(np.asarray(round_to(found.value, case.result)), case.result.smallest_normal)

    if has:
        yield Prediction("subnormal operands read as zero", 0, operands)
    yield Prediction("subnormal results written as zero", 1, results)


@mechanism(
    "intermediate out of range", "range", "rms_norm layer_norm instance_norm norm softmax log_softmax logsumexp var std mean",
    rank=2, switch="compute in float32, or scale the data first", foresees="zeros, infinities or NaN for large data",
)  # fmt: skip
def _overflow(case: Case) -> Iterator[Prediction]:
    for number, name in enumerate(dict.fromkeys((str(case.result), str(case.data), "float16"))):
        if name == "float64":
            continue
        yield Prediction(f"intermediates in {name}", number, partial(_in_range_of, case, name))


def _in_range_of(case: Case, name: str) -> Any:
    x = wide(case, case.x).astype(np.float64)

    def low(v: Any) -> Any:
        return np.asarray(round_to(np.asarray(v, np.float64), name))

    with np.errstate(all="ignore"):
        if case.op.endswith("_norm"):
            return low(normalised(case, x, low))
        axis = case.get("axis", -1 if "softmax" in case.op or case.op == "logsumexp" else None)
        axis = tuple(axis) if isinstance(axis, list) else axis
        if case.op == "norm":
            return low(np.sqrt(low(low(x * x).sum(axis=axis))))
        if case.op == "mean":
            return low(low(x.sum(axis=axis)) / (x.size if axis is None else x.shape[axis]))
        if case.op in ("var", "std"):
            var = low(low((x - x.mean(axis=axis, keepdims=True)) ** 2).mean(axis=axis))
            return low(np.sqrt(var)) if case.op == "std" else var
        powers = low(np.exp(x))
        total = low(powers.sum(axis=axis, keepdims=True))
        if case.op == "softmax":
            return low(powers / total)
        return low(np.log(total)).squeeze(axis) if case.op == "logsumexp" else low(np.log(low(powers / total)))
