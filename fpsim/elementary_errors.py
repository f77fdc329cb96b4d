"""How far libraries' elementary functions are from the correctly rounded result, as measured: the largest error in float32.

The numbers are those of docs/elementwise.md (docs/data/elementwise-*.json, of two processors and one GPU, the larger one
of each), rounded up; the activation functions of torch.cuda were measured on 16,777,216 bit patterns with its models, which
have its bits. An envelope is measured and not proved: another version may exceed it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim.errors import InputError, UnknownOrderError

__all__ = [
    "CORRECTLY_ROUNDED",
    "ENVELOPES",
    "SOURCES",
    "Envelope",
    "envelope",
    "exact_values",
    "largest_room",
    "unit_of",
]

Array = NDArray[Any]

CORRECTLY_ROUNDED: Final = "correctly rounded"
_NORMAL, _DIGITS, _EMIN = 2.0**-126, 23, -126
_FLUSHED: Final = 2.0**23  # units of 2**-149: the largest subnormal number, read or written as zero
#: What was measured.
SOURCES: Final = {
    "numpy": "NumPy 2.4.6 with AVX-512", "numba": "numba 0.68 with glibc 2.36 and 2.39",
    "torch.cpu": "PyTorch 2.11.0 and 2.13.0 with AVX-512", "jax.cpu": "JAX 0.10.2 and 0.11.2 with AVX-512",
    "torch.cuda": "PyTorch 2.11.0, CUDA 13.0, NVIDIA H200", "numba.cuda": "numba-cuda 0.30.4, NVIDIA H200",
    "cupy": "CuPy 14.2.0, NVIDIA H200", "jax.gpu": "JAX 0.11.2, NVIDIA H200",
}  # fmt: skip
_FLUSHING: Final = {"cupy", "jax.cpu"}  # they read subnormal operands as zero
_COLUMNS: Final = ("numpy", "numba", "torch.cpu", "jax.cpu", "torch.cuda", "cupy", "jax.gpu")
# Largest error in ulps of the exact value, and, after the stroke, that of subnormal operands and results where it is above
# 0.5 ("flush": some subnormal results are zero). numba.cuda has the bits of torch.cuda wherever both were measured.
_MEASURED: Final = {
    "exp": "2.541/1.537 0.502/0.501 0.571 5.512/flush 1.836/1.262 1.836/flush 1.836/1.262",
    "exp2": "2.74/flush 0.502/0.501 0.85/0.861 67.644/flush 2.055/2.152 0.77/flush 67.526/33.799",
    "expm1": "2.596 0.798 1.0 5.794 1.355 1.355/flush 1.355",
    "log": "3.832/0.542 0.818/0.501 0.974 1.192/flush 0.861/0.535 0.861/flush 0.861/0.535",
    "log2": "1.932/0.503 0.745/0.501 0.652/0.537 2.221/flush 0.919/0.503 0.919/flush 1.613/1.397",
    "log1p": "1.958 0.823 1.0/1.0 2.458/flush 0.887 0.887/flush 0.887",
    "sin": "1.487 0.561 0.606 0.561 1.492 1.492/flush 1.492",
    "cos": "1.436 0.561 0.602 0.561 1.484 1.484 1.484",
    "tanh": "1.374 2.189 0.568 4.897 1.807 1.807/flush 4.897",
    "erf": "- 0.909/0.726 1.0/0.738 5.345/flush 1.032/0.634 1.032/flush 5.265/1.007",
    "sigmoid": "3.243/flush 2.452/flush 2.452/flush 2.452/flush 3.361/flush 3.361/flush 3.255/flush",
    "rsqrt": "1.491/1.463 1.491/1.463 1.491/1.463 1.742/flush 1.515/1.411 1.515/flush 1.515/1.411",
    "pow": "1.335/0.976 0.765/0.594 0.593/0.79 0.765/22296695923602 1.631/1.004 1.631/flush 1.631/1.004",
    "sqrt": "0.5 0.5 0.75/0.541 0.5/flush 0.5 0.5/flush 0.94/0.928",
    "divide": "0.5 0.5 0.5 0.5/flush 0.5 0.5/flush 2.068/1.922",
}
# Largest error in ulps from an input on, and largest absolute error below it: 1 + erf(x / sqrt(2)) and 1 + tanh(...)
# cancel there, and exp(-x) of silu overflows.
_ACTIVATIONS: Final = {
    "silu": (2.807, -87.0, 2.61e-37), "gelu": (1.67, -0.5, 1.24e-7), "gelu_tanh": (2.054, -0.5, 7.69e-8),
    "softplus": (2.315, -math.inf, 0.0), "reciprocal": (0.5, -math.inf, 0.0),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Envelope:
    """The largest error of a function of one library.

    Attributes
    ----------
    function, implementation : str
        What was measured.
    ulps : float
        In ulps of the exact value, where neither it nor an operand is subnormal.
    subnormal : float
        In ulps of the exact value, where one is.
    flushes : bool
        Subnormal operands are read as zero.
    limit, below : float
        For operands below `limit` the largest absolute error is `below` instead.
    source : str
        What was measured.
    """

    function: str
    implementation: str
    ulps: float
    subnormal: float = 0.5
    flushes: bool = False
    limit: float = -math.inf
    below: float = 0.0
    source: str = ""

    def __str__(self) -> str:
        below = f" from {self.limit:g} on, {self.below:.3g} below" if self.below else ""
        return f"{self.implementation} {self.function}: at most {self.ulps:g} ulp{below}"

    def room(self, values: Array, /, *operands: Array) -> Array:
        """Return the largest absolute error of each result.

        Parameters
        ----------
        values : float64 array
            The exact results, see `exact_values`.
        *operands : float32 arrays of the same shape
            The operands.

        Returns
        -------
        float64 array
            Zero where the exact result is not finite; infinite where a subnormal operand is read as zero and the function
            has no finite value there.
        """
        unit = unit_of(values)
        small = np.abs(values) < _NORMAL
        for x in operands:
            small |= (np.abs(x) < _NORMAL) & (x != 0)
        with np.errstate(all="ignore"):
            out = np.where(small, max(self.subnormal, self.ulps), self.ulps) * unit
            if self.below:
                out = np.where(operands[0] < self.limit, np.maximum(out, self.below), out)
            if self.flushes:
                zeroed = [np.where(np.abs(x) < _NORMAL, np.copysign(0, x), x).astype(np.float32) for x in operands]
                if any((x != y).any() for x, y in zip(operands, zeroed, strict=True)):
                    other = exact_values(self.function, *zeroed)
                    moved = np.where(other == values, 0.0, np.abs(other - values))
                    out = out + np.where(np.isnan(moved), np.inf, moved)
        return np.asarray(np.where(np.isfinite(values), out, 0.0))


def _read() -> dict[str, dict[str, Envelope]]:
    found: dict[str, dict[str, Envelope]] = {}
    for function, text in _MEASURED.items():
        own = found.setdefault(function, {})
        for name, word in zip(_COLUMNS, text.split(), strict=True):
            if word == "-":
                continue
            ulps, _, rest = word.partition("/")
            subnormal = _FLUSHED if rest == "flush" else float(rest or 0.5)
            for one in (name, "numba.cuda") if name == "torch.cuda" else (name,):
                own[one] = Envelope(
                    function, one, float(ulps), subnormal, one in _FLUSHING, source=SOURCES[one]
                )  # fmt: skip
    for function, (most, limit, below) in _ACTIVATIONS.items():
        tiny = 0.5 if function == "reciprocal" else 2.5
        found[function] = {
            "torch.cuda": Envelope(
                function, "torch.cuda", most, tiny, limit=limit, below=below, source=SOURCES["torch.cuda"]
            )
        }
    for function, own in found.items():
        own[CORRECTLY_ROUNDED] = Envelope(function, CORRECTLY_ROUNDED, 0.5, source="by definition")
    return found


#: Of each function, by the name of the implementation.
ENVELOPES: Final = _read()


def envelope(function: str, implementation: str, /) -> Envelope:
    """Return the largest measured error of a function of a library.

    Raises
    ------
    InputError
        The function is unknown.
    UnknownOrderError
        It was not measured for this implementation.

    Examples
    --------
    >>> from fpsim.elementary_errors import envelope
    >>> envelope("exp", "torch.cuda").ulps
    1.836
    """
    if function not in ENVELOPES:
        message = f"no errors of {function} were measured; they were of {', '.join(ENVELOPES)}"
        raise InputError(message)
    own = ENVELOPES[function]
    if implementation not in own:
        message = f"the errors of {function} were measured for {', '.join(own)}, not for {implementation}"
        raise UnknownOrderError(message)
    return own[implementation]


def unit_of(values: Array, /) -> Array:
    """Return the spacing of the float32 numbers at numbers, 2**-149 at zero."""
    exponents = np.where(values == 0, _EMIN, np.frexp(values)[1] - 1)
    return np.asarray(np.ldexp(1.0, np.maximum(exponents, _EMIN) - _DIGITS))


def exact_values(function: str, /, *operands: Array) -> Array:
    """Return the exact results of float32 operands to 2**-47, as float64, in the shape of the operands."""
    from fpsim.devices._elementwise_reference import reference

    return np.asarray(reference(function, *operands).values.reshape(operands[0].shape))


def largest_room(function: str, values: Array, /, *operands: Array) -> Array:
    """Return the largest absolute error of any library that was measured and keeps subnormal numbers."""
    rooms = [one.room(values, *operands) for one in ENVELOPES[function].values() if not one.flushes]
    return np.asarray(np.max(rooms, axis=0))
