"""Mechanisms of elementary functions in float32: models of GPU libraries, other formulas, and errors as they were measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim import elementary, elementary_errors as measured
from fpsim.elementary_profiles import shipped
from fpsim.errors import FpsimError
from fpsim.explaining.mechanisms import Mechanism, Prediction, mechanism
from fpsim.explaining.observation import Case, Observed
from fpsim.explaining.relations import STREAM
from fpsim.explaining.results import Side
from fpsim.formats import FLOAT32

FUNCTION: Final = "elementary function"
FORMULA: Final = "different formula"
FLUSHED: Final = "subnormal numbers flushed to zero (FTZ/DAZ)"
_MODELLED: Final = tuple(elementary.MODELS)
_LABELS: Final = {"torch.cuda": "torch CUDA", "cupy": "CuPy"}
#: Functions that are taken for each other.
_CONFUSED: Final = {
    "exp": ("exp2", "expm1"), "exp2": ("exp",), "expm1": ("exp",), "log": ("log2", "log1p"), "log2": ("log", "log1p"),
    "log1p": ("log", "log2"), "sin": ("cos",), "cos": ("sin",), "gelu": ("gelu_tanh", "silu"), "silu": ("gelu", "sigmoid"),
    "gelu_tanh": ("gelu", "silu"), "sigmoid": ("tanh", "silu"), "tanh": ("sigmoid",), "sqrt": ("rsqrt",),
    "rsqrt": ("sqrt", "reciprocal"), "reciprocal": ("rsqrt",), "softplus": ("silu",), "erf": ("tanh",),
}  # fmt: skip
_TOLD: Final = {"gelu": "gelu in its erf form", "gelu_tanh": "gelu in its tanh form"}
_SINGLE: Final = 4.5  # ulps that a function may err of which one library alone was measured
#: Orders of the sum of a softmax that are tried beside the library's own.
_ORDERS: Final = ("serial", "pairwise", "numpy_sum", "lanes:32:combine=fold", "lanes(8)", "lanes(4)", "lanes(16)")


def operands_of(case: Case, /) -> tuple[NDArray[np.float32], ...] | None:
    """Return the float32 operands of an elementwise function whose results are float32; None for any other case."""
    if case.op not in measured.ENVELOPES or case.result != FLOAT32 or case.data.precision > 24 or not case.inputs:
        return None
    arrays = [np.asarray(x) for x in case.inputs]
    if case.op == "divide" and len(arrays) == 1:
        arrays *= 2
    if case.op == "pow" and len(arrays) == 1:
        arrays.append(np.full(arrays[0].shape, case.get("exponent", 2), np.float32))
    if len(arrays) != (2 if case.op in ("divide", "pow") else 1):
        return None
    narrow = [np.asarray(x, np.float32) for x in arrays]
    if any(not np.array_equal(x, y, equal_nan=True) for x, y in zip(arrays, narrow, strict=True)):
        return None
    return tuple(np.ascontiguousarray(x) for x in np.broadcast_arrays(*narrow))


def exact_results(case: Case, /) -> tuple[Any, Any] | None:
    """Return the exact results and the largest errors that were measured, or None where the case is of another kind."""
    operands = operands_of(case)
    if operands is None:
        return None
    values = measured.exact_values(case.op, *operands)
    return values, _room(case.op, values, operands)


def _room(function: str, values: Any, operands: Sequence[Any]) -> Any:
    room = measured.largest_room(function, values, *operands)
    if len(measured.ENVELOPES[function]) > 2:  # of one library, and correct rounding
        return room
    return np.maximum(
        room, _SINGLE / 0.5 * measured.envelope(function, measured.CORRECTLY_ROUNDED).room(values, *operands)
    )


def rounded_correctly(case: Case, /) -> Any:
    """Return the results correctly rounded, or None where the case is of another kind."""
    from fpsim.devices._elementwise_reference import reference

    operands = operands_of(case)
    return None if operands is None else reference(case.op, *operands).correct.reshape(operands[0].shape)


# -- models -----------------------------------------------------------------------------------------------------------


def _models(case: Case) -> tuple[Any, Any] | None:
    operands = operands_of(case)
    if operands is None:
        return None
    torch, cupy = (elementary.evaluate(case.op, *operands, implementation=name) for name in ("torch.cuda", "cupy"))
    return torch, cupy


@mechanism(
    FUNCTION, "rounding", " ".join(_MODELLED), rank=1,
    switch="one mathematical library on both sides: results of a CPU and of a GPU differ by an ulp or two",
    foresees="single elements that differ by one or two ulps",
)  # fmt: skip
def _function_of_a_gpu(case: Case) -> Iterator[Prediction]:
    if (found := _models(case)) is None:
        return
    torch, cupy = found
    yield Prediction(f"torch CUDA {case.op}", 0, lambda: torch)
    if np.array_equal(torch, cupy, equal_nan=True):
        yield Prediction(f"CuPy {case.op} (flush-to-zero build)", 1, lambda: cupy)
    for name in shipped():
        release, _, function = name.partition("/")
        if function == f"{case.op}f":
            recorded = partial(elementary.evaluate, case.op, implementation=f"profile:{name}")
            yield Prediction(f"{release} {function}, as recorded", 2, partial(recorded, *(operands_of(case) or ())))


@mechanism(
    FLUSHED, "range", " ".join(_MODELLED),
    switch="compile CUDA C without -ftz=true, or scale the data by a power of two",
    foresees="zeros where the other side has numbers below the smallest normal one",
)  # fmt: skip
def _flushing_build(case: Case) -> Iterator[Prediction]:
    if (found := _models(case)) is not None and not np.array_equal(*found, equal_nan=True):
        yield Prediction(f"CuPy {case.op} (flush-to-zero build)", 0, lambda: found[1])


@mechanism(
    FORMULA, "definition", " ".join(_CONFUSED), rank=3, switch="the same function, in the same form, on both sides",
    foresees="errors that grow with the operand",
)  # fmt: skip
def _other_formula(case: Case) -> Iterator[Prediction]:
    operands = operands_of(case)
    if operands is None:
        return
    for number, (name, values) in enumerate(_others(case, operands)):
        del values
        for rank, (implementation, label) in enumerate(_LABELS.items()):
            compute = partial(elementary.evaluate, name, *operands, implementation=implementation)
            yield Prediction(f"{label} {name}", 2 * number + rank, compute)


def _others(case: Case, operands: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the functions that may have been taken for this one, with their exact values, where they can be told apart."""
    own = measured.exact_values(case.op, *operands)
    room = _room(case.op, own, operands)
    for name in _CONFUSED.get(case.op, ()):
        values = measured.exact_values(name, *operands)
        with np.errstate(invalid="ignore"):
            apart = np.abs(values - own) > room + _room(name, values, operands)
        if apart.any():
            yield name, values


@mechanism(
    FUNCTION, "rounding", "softmax log_softmax", rank=1, switch="one mathematical library, and one order of the sum, on both sides",
    foresees="differences of a few ulps in all elements of a row",
)  # fmt: skip
def _softmax_of_a_gpu(case: Case) -> Iterator[Prediction]:
    x = case.x
    if case.result != FLOAT32 or x.dtype != np.float32 or not x.ndim or case.get("axis", -1) not in (-1, x.ndim - 1):
        return
    compute = elementary.softmax if case.op == "softmax" else elementary.log_softmax
    functions = "exp" if case.op == "softmax" else "exp and log"
    for rank, order in enumerate(("", *_ORDERS)):
        told = f"its sum in {order}" if order else "its sum in the order of torch CUDA"
        yield Prediction(f"torch CUDA {functions}, {told}", rank, partial(compute, x, order or None))


# -- what the mechanisms leave open -----------------------------------------------------------------------------------


def refined(
    case: Case, side: Observed, judged: Side, predictions: Sequence[tuple[Mechanism, Prediction, Any]], /
) -> Side:
    """Return what was found of a side, with the nearest model and what its errors say beside those that were measured."""
    if judged.matches and judged.matches[0].mechanism in (FUNCTION, FORMULA, FLUSHED):
        return replace(judged, note=_join(f"100 % of {_numbers(side)}", judged.note))
    operands = operands_of(case)
    if operands is None or judged.matches:
        return judged
    if judged.status not in ("rounding size", "too large", "beyond bound") and STREAM not in judged.note:
        return judged
    most = max(one.ulps for one in measured.ENVELOPES[case.op].values())
    if judged.status == "rounding size":
        judged = replace(
            judged, note=_join(judged.note, f"where libraries were measured to err by up to {most:.3g} ulp")
        )
    shares = [
        (float(np.mean(side.same(given))), prediction.text)
        for one, prediction, given in predictions
        if one.name == FUNCTION
    ]
    if shares:
        share, text = max(shares)
        note = f"nearest model: {text}, {100 * share:.3g} % of {_numbers(side)}"
        judged = replace(judged, nearest=(text, share), note=_join(judged.note, note))
    if judged.status == "rounding size":
        return judged
    try:
        others = list(_others(case, operands))
    except FpsimError:
        others = []
    for name, values in others:
        with np.errstate(invalid="ignore"):
            error = np.abs(side.values - side.view(values)) - side.slack()
            near = (error <= side.view(_room(name, values, operands))) | (side.values == side.view(values))
        if bool(np.all(near | (np.isnan(side.values) & np.isnan(side.view(values))))):
            told = f"{FORMULA}: {_TOLD.get(name, name)}, whose exact values are within its own errors"
            return replace(judged, status="other computation", note=told)
    if judged.status == "too large":
        told = f"up to {judged.max_ulp:.3g} ulp from exact; no library that was measured errs by more than {most:.3g} ulp there"
        told = f"{told}: an approximation (fast-math), another function, or a fault"
        return replace(judged, status="other computation", note="; ".join((told, *judged.note.split("; ")[1:])))
    return judged


def _numbers(side: Observed) -> str:
    return "bits" if side.is_exact else "the numbers as printed"


def _join(*parts: str) -> str:
    return "; ".join(filter(None, parts))
