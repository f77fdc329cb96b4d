"""Predictions of elementary functions: what each implementation gives, beside the correctly rounded result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim import elementary
from fpsim._arrays import as_floats
from fpsim._prediction_request import positive
from fpsim._prediction_results import Prediction, StrategyPrediction, quantile, root_mean_square
from fpsim.elementary_errors import CORRECTLY_ROUNDED, ENVELOPES, unit_of
from fpsim.errors import InputError, UnknownOrderError
from fpsim.formats import FLOAT32, as_format
from fpsim.laws import Law, law as as_law

_Array = NDArray[Any]
FUNCTIONS: Final = (*ENVELOPES, "softmax")
_TWO: Final = ("divide", "pow")
_LARGEST: Final = 2**26  # numbers
_SOFTMAX_BOUND: Final = 2.0**-44  # of the float64 value: the exponent is off by 2**-46 at most, sums and exp by less
_SLACK: Final = 1 + 2.0**-20  # exact values are known to 2**-47
_EXP2: Final = "cupy stands for CUDA's exp2f, compiled by CuPy; the function cupy.exp2 is another one"


def predict_function(
    op: str, inputs: Sequence[Any], names: Any, shape: Any, repeats: Any, rng: Any, dtype: Any
) -> Prediction:  # fmt: skip
    """Return what `fpsim.predict` says of an elementary function; its parameters are checked here."""
    wanted = 2 if op in _TWO else 1
    laws = [isinstance(x, str | Law) for x in inputs]
    if not inputs or (any(laws) and not all(laws)):
        message = f"{op} needs data: arrays, or laws and a shape, as in predict({op!r}, 'normal', shape=1000)"
        raise InputError(message)
    if len(inputs) != wanted and not (laws[0] and len(inputs) == 1):
        message = f"{op} takes {wanted} operand{'s' * (wanted > 1)}, not {len(inputs)}"
        raise InputError(message)
    if laws[0]:
        times = 1 if repeats is None else positive("repeats", repeats)
        sizes = sizes_of_function(op, shape)
        operands, texts = _drawn(inputs, wanted, sizes, times, rng, dtype)
    else:
        for name, value in (("shape", shape), ("repeats", repeats)):
            if value is not None:
                message = f"{name} is for data of a law, not for given arrays"
                raise InputError(message)
        operands, texts, times = _given(op, inputs), ("array",) * wanted, 1
        sizes = operands[0].shape
    values, correct = _exact(op, operands)
    notes: list[str] = []
    runs = _runs(op, names, operands, notes)
    finite = np.isfinite(correct)
    if not finite.all():
        notes.append(
            f"{np.count_nonzero(~finite)} outputs have no finite exact value in float32; errors do not count them"
        )
    bits = {name: result.view(np.uint32).copy() for name, result in runs.items()}
    for name, result in runs.items():
        bits[name][np.isnan(result)] = 0x7FC00000
    rows = []
    for name, result in runs.items():
        same = tuple(other for other in runs if other != name and np.array_equal(bits[name], bits[other]))
        rows.append(_row(op, name, result, operands, values, correct, same, keep=not laws[0]))
    seed = int(rng) if laws[0] and isinstance(rng, int | np.integer) else None
    return Prediction(op, sizes, texts, "float32", times, seed, tuple(rows), np.__version__, None, tuple(notes))


# --- data -------------------------------------------------------------------------------------------------------------


def _given(op: str, inputs: Sequence[Any]) -> tuple[_Array, ...]:
    pairs = [as_floats(x, name=name) for x, name in zip(inputs, ("x", "y"), strict=False)]
    if any(form != FLOAT32 for _, form in pairs) or any(not x.size or x.shape != pairs[0][0].shape for x, _ in pairs):
        message = f"the models of {op} take float32 arrays of one shape, not " + " and ".join(
            f"{form}{x.shape}" for x, form in pairs
        )
        raise InputError(message)
    return tuple(np.ascontiguousarray(x) for x, _ in pairs)


def _drawn(
    given: Sequence[Any], wanted: int, sizes: tuple[int, ...], times: int, rng: Any, dtype: Any
) -> tuple[tuple[_Array, ...], tuple[str, ...]]:
    from fpsim.formats import _generator

    if as_format(dtype) != FLOAT32:
        message = f"the models of elementary functions are of float32, not {as_format(dtype)}"
        raise InputError(message)
    if times * math.prod(sizes) > _LARGEST:
        message = f"{times} draws of {'x'.join(map(str, sizes))} are more than 2**26 numbers; choose fewer"
        raise InputError(message)
    laws = [as_law(one) for one in given] * (wanted if len(given) == 1 else 1)
    streams = _generator(rng).spawn(times)
    drawn = [[one.draw(sizes, rng=stream, dtype="float32") for one in laws] for stream in streams]
    return tuple(np.stack(arrays) for arrays in zip(*drawn, strict=True)), tuple(map(str, laws))


def sizes_of_function(op: str, shape: Any) -> tuple[int, ...]:
    """Return the shape of the operands of an elementary function as whole numbers."""
    words = shape.lower().replace("*", "x").split("x") if isinstance(shape, str) else shape
    words = words if isinstance(words, tuple | list) else (words,)
    if shape is None or not words or any(isinstance(w, str) and not w.strip().isdecimal() for w in words):
        message = f"the shape of the operands of {op} is whole numbers, as in 1000 or 8x257, not {shape!r}"
        raise InputError(message)
    return tuple(positive(f"the shape of {op}", int(w) if isinstance(w, str) else w) for w in words)


# --- results ----------------------------------------------------------------------------------------------------------


def _exact(op: str, operands: tuple[_Array, ...]) -> tuple[_Array, _Array]:
    """Return the exact results as float64, and correctly rounded."""
    from fpsim.devices._elementwise_reference import reference

    if op == "softmax":
        return _softmax(operands[0])
    found = reference(op, *operands)
    return found.values.reshape(operands[0].shape), found.correct.reshape(operands[0].shape)


def _softmax(x: _Array) -> tuple[_Array, _Array]:
    import mpmath

    if x.ndim == 0 or not np.isfinite(x).all():
        message = "softmax takes rows of finite numbers"
        raise InputError(message)
    wide = x.astype(np.float64).reshape(-1, x.shape[-1])
    powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
    values = powers / np.array([[math.fsum(row)] for row in powers])
    correct = values.astype(np.float32)
    low, high = (np.asarray(values * (1 + s * _SOFTMAX_BOUND)).astype(np.float32) for s in (-1, 1))
    with mpmath.workprec(400):
        for place in np.unique(np.argwhere(low != high)[:, 0]):
            terms = [mpmath.exp(mpmath.mpf(float(v))) for v in wide[place]]
            total = mpmath.fsum(terms)
            for column in np.flatnonzero(low[place] != high[place]):
                middle = (mpmath.mpf(float(low[place, column])) + mpmath.mpf(float(high[place, column]))) / 2
                above = terms[column] / total > middle
                correct[place, column] = (high if above else low)[place, column]
    return values.reshape(x.shape), correct.reshape(x.shape)


def _runs(op: str, names: Any, operands: tuple[_Array, ...], notes: list[str]) -> dict[str, _Array]:
    asked = [names] if isinstance(names, str) else None if names is None else list(names)
    if asked is not None and (not asked or not all(isinstance(one, str) for one in asked)):
        message = f"name implementations of {op} by text, such as torch.cuda, cupy, numpy and {CORRECTLY_ROUNDED!r}"
        raise InputError(message)
    found: dict[str, _Array] = {}
    for name in dict.fromkeys(("torch.cuda", "cupy", "numpy", CORRECTLY_ROUNDED) if asked is None else asked):
        try:
            found[name] = _result(op, name, operands)
        except UnknownOrderError as error:
            if asked is not None:
                raise
            notes.append(f"{name}: {error}")
    if op == "exp2" and "cupy" in found:
        notes.append(_EXP2)
    return found


def _result(op: str, name: str, operands: tuple[_Array, ...]) -> _Array:
    if name == CORRECTLY_ROUNDED:
        return _exact(op, operands)[1]
    if name in elementary.IMPLEMENTATIONS or name.startswith("profile:"):
        if op == "softmax":
            return elementary.softmax(operands[0], implementation=name)
        return elementary.evaluate(op, *operands, implementation=name)
    return np.asarray(_library(op, name)(*operands))


def _library(op: str, name: str) -> Callable[..., Any]:
    """Return a function of a library that runs here."""
    if op == "softmax" and name == "numpy":
        return _numpy_softmax
    from fpsim.devices.elementwise import elementwise_implementations

    libraries = [one for one in elementwise_implementations() if one.kind != "model"]
    known = {one.name: one for one in libraries}
    if name not in known:
        listed = ", ".join((*elementary.IMPLEMENTATIONS, CORRECTLY_ROUNDED, *(n for n in known if known[n].available)))
        message = f"an implementation of {op} is one of {listed}, or profile:FILE, not {name}"
        raise InputError(message)
    if not known[name].available:
        message = f"{name} cannot run here: {known[name].unavailable}"
        raise UnknownOrderError(message)
    if op not in known[name].functions:
        message = f"it has no {op}"
        raise UnknownOrderError(message)
    return known[name].functions[op]


def _numpy_softmax(x: _Array) -> _Array:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


# --- errors -----------------------------------------------------------------------------------------------------------


def _row(
    op: str, name: str, result: _Array, operands: tuple[_Array, ...], values: _Array, correct: _Array,
    same: tuple[str, ...], *, keep: bool,
) -> StrategyPrediction:  # fmt: skip
    finite = np.isfinite(correct)
    with np.errstate(all="ignore"):
        # An infinity counts as 2**128, as in fpsim.devices.elementwise.ulp_errors.
        seen = np.where(np.isinf(result), np.copysign(2.0**128, result), result.astype(np.float64))
        error = np.abs(seen - values)
        unit = unit_of(values)
        own = ENVELOPES.get(op, {}).get(name)
        room = np.full(values.shape, math.inf) if own is None else own.room(values, *operands)
        ratio = np.where(error == 0.0, 0.0, error / np.abs(values))
        used = np.where(error == 0.0, 0.0, error / (room * _SLACK))
        limits = room / unit
    error = np.where(np.isnan(error), math.inf, error)[finite]
    ulps, limits, ratio = (
        error / unit[finite],
        limits[finite],
        np.nan_to_num(ratio[finite], nan=math.inf, posinf=math.inf),
    )
    some = error.size > 0
    differs = (result.view(np.uint32) != correct.view(np.uint32)) & ~(np.isnan(result) & np.isnan(correct))
    return StrategyPrediction(
        strategy=name,
        result_format="float32",
        rms=root_mean_square(ulps) if some else math.nan,
        quantile=quantile(ulps, 0.999) if some else math.nan,
        maximum=float(ulps.max()) if some else math.nan,
        relative=float(ratio.max(initial=0.0)),
        absolute=float(error.max(initial=0.0)),
        bound=quantile(limits, 0.5) if some else math.nan,
        bound_absolute=float(room[finite].max(initial=0.0)),
        used=float(np.nan_to_num(used[finite]).max(initial=0.0)),
        differs=int(np.count_nonzero(differs)),
        outputs=int(result.size),
        same_as=same,
        result=result if keep else None,
        compared_with=CORRECTLY_ROUNDED,
    )
