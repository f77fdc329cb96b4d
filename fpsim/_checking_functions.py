"""Checks of elementary functions: each library beside the model of it, or beside correct rounding where that is certain."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim import elementary
from fpsim._checking_results import Comparison, mismatch_of, same_bits
from fpsim.devices import Implementation, _elementwise_inputs as inputs
from fpsim.devices._elementwise_libraries import Elementwise
from fpsim.devices.elementwise import FUNCTIONS as MEASURED, correctly_rounded, elementwise_implementations, ulp_errors
from fpsim.elementary_profiles import shipped
from fpsim.errors import UnknownOrderError
from fpsim.laws import law as as_law

_Array = NDArray[Any]
Model = tuple[str, Callable[..., _Array]]
#: Functions that are checked.
FUNCTIONS: Final = (*elementary.MODELS,)
SIZE: Final = (4096,)
BIT_PATTERNS: Final = "bit patterns"
_EXACT: Final = {
    "numpy": ("sqrt", "reciprocal", "divide"), "numba": ("sqrt", "divide"),
    "torch.cpu": ("reciprocal", "divide"),
}  # fmt: skip
_SHARED: Final = ("exp", "expm1", "log", "log1p", "sin", "cos", "rsqrt")
#: Functions of other libraries that had the bits of torch.cuda wherever they were measured, see docs/elementwise.md.
_LIKE_TORCH: Final = {
    "jax.gpu": _SHARED, "numba.cuda": (*_SHARED, "exp2", "log2", "tanh", "erf", "sigmoid", "sqrt", "divide"),
}  # fmt: skip
_COMPARED: Final = "H200"  # the GPU whose results the models were compared with
_MKL: Final = "no model: PyTorch takes MKL's vector square root, which not every processor rounds correctly"


def model_of(library: Elementwise, function: str, /) -> Model:
    """Return the name of what predicts a function of a library, and what computes it.

    Raises
    ------
    UnknownOrderError
        There is no model.
    """
    name = library.name
    if function in _EXACT.get(name, ()):
        return "correctly rounded", lambda *x: correctly_rounded(function, *x)
    if (profile := _recorded(library, function)) is not None:
        return f"profile {profile}", lambda *x: elementary.evaluate(function, *x, implementation=f"profile:{profile}")
    if (name, function) == ("torch.cpu", "sqrt"):
        raise UnknownOrderError(_MKL)
    if name in elementary.IMPLEMENTATIONS and (name, function) != ("cupy", "exp2"):
        like = name
    elif function in _LIKE_TORCH.get(name, ()):
        like = "torch.cuda"
    else:
        message = f"no model of {function} of {name}"
        raise UnknownOrderError(message)
    label = f"model of CuPy {function}" if like == "cupy" else f"model of torch CUDA {function}"
    return label, lambda *x: elementary.evaluate(function, *x, implementation=like)


def _recorded(library: Elementwise, function: str) -> str | None:
    """Return the name of the shipped profile of what a library calls: the C library, in its release."""
    if library.name != "numba" or "glibc " not in library.version:
        return None
    name = f"glibc-{library.version.rpartition('glibc ')[2]}/{function}f"
    return name if name in shipped() else None


def libraries_of(chosen: Sequence[Implementation], /) -> list[Elementwise]:
    """Return the libraries whose functions can run here, of implementations that were asked for."""
    names = {one.name for one in chosen if one.available}
    return [
        one
        for one in elementwise_implementations()
        if one.available and one.kind != "model" and any(n == one.name or n.startswith(f"{one.name}.") for n in names)
    ]


def as_implementation(library: Elementwise, /) -> Implementation:
    """Return a library as an implementation without other routines."""
    return Implementation(library.name, library.library, library.version, library.device, library.kind)


def operands_of(
    function: str, size: int, laws: Sequence[str], rng: np.random.Generator, /, *, patterns: bool
) -> list[tuple[str, tuple[_Array, ...]]]:
    """Return operands of each law, and bit patterns of all exponents, each with its name."""
    count = elementary.MODELS[function].operands
    drawn = [(text, tuple(as_law(text).draw((size,), rng=rng, dtype="float32") for _ in range(count))) for text in laws]
    if patterns:
        spread = 1 << max(size - 1, 0).bit_length()
        arrays = inputs.operands(function, count, 0, spread, spread, rng)
        drawn.append((BIT_PATTERNS, tuple(x[:size] for x in arrays)))
    return drawn


def compare_function(
    library: Elementwise, function: str, drawn: Sequence[tuple[str, tuple[_Array, ...]]], /
) -> Comparison:  # fmt: skip
    """Run a function of a library and compare it with its model; without one the row says so."""
    unknown = label = ""
    model: Callable[..., _Array] | None = None
    try:
        label, model = model_of(library, function)
    except UnknownOrderError as error:
        unknown = str(error)
    size = drawn[0][1][0].shape
    outputs = equal = 0
    predicted_error = actual_error = math.nan
    repeats, first = True, None
    for law, operands in drawn:
        try:
            actual, again = (np.asarray(library.functions[function](*operands)) for _ in range(2))
        except Exception as error:  # noqa: BLE001 - a library may raise anything; the others must still be checked
            unknown = f"it failed here ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
            continue
        repeats = repeats and bool(same_bits(actual, again).all())
        outputs += actual.size
        actual_error = _largest(function, operands, actual, actual_error)
        if model is None:
            continue
        predicted = model(*operands)
        same = same_bits(predicted, actual)
        equal += int(np.count_nonzero(same))
        predicted_error = _largest(function, operands, predicted, predicted_error)
        if first is None and not same.all():
            first = mismatch_of(law, same, predicted, actual)
    if first is not None and library.kind == "gpu" and _COMPARED not in library.device:
        unknown = f"the model was compared with an NVIDIA {_COMPARED}; here it gives {equal} of {outputs} outputs"
        first = None
    return Comparison(
        library.name, function, size, label, unknown, outputs, equal, predicted_error, actual_error, math.nan,
        None, repeats, first,
    )  # fmt: skip


def _largest(function: str, operands: tuple[_Array, ...], result: _Array, so_far: float) -> float:
    if function not in MEASURED:
        return so_far
    with np.errstate(all="ignore"):
        errors = ulp_errors(function, *operands, observed=result)
    finite = errors[np.isfinite(errors)]
    return so_far if not finite.size else float(np.fmax(so_far, finite.max()))
