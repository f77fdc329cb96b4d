"""How far libraries' elementary functions are from the correctly rounded result, as measured: the largest error in float32.

The numbers are those behind docs/elementwise.md (docs/data/elementwise-*.json), the largest over all machines and rounded
up; models count as the libraries whose bits they have. An envelope is measured and not proved: another version may exceed
it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim._elementary_errors_data import ACTIVATIONS, MEASURED
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
    "libm": "glibc 2.36", "torch.cpu": "PyTorch 2.11.0 and 2.13.0 with AVX-512", "jax.cpu": "JAX 0.10.2 and 0.11.2 with AVX-512",
    "torch.cuda": "PyTorch 2.11.0, CUDA 13.0, NVIDIA H200", "numba.cuda": "numba-cuda 0.30.4, NVIDIA H200",
    "cupy": "CuPy 14.2.0, NVIDIA H200", "jax.gpu": "JAX 0.11.2, NVIDIA H200",
}  # fmt: skip
_FLUSHING: Final = {"cupy", "jax.cpu"}  # they read subnormal operands as zero


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
        small = np.abs(values) <= _NORMAL
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
    for function, libraries in MEASURED.items():
        found[function] = {
            name: Envelope(
                function,
                name,
                ulps,
                _FLUSHED if isinstance(tiny, str) else tiny,
                name in _FLUSHING,
                source=SOURCES[name],
            )
            for name, (ulps, tiny) in libraries.items()
        }
    for function, bounded in ACTIVATIONS.items():
        found[function] = {
            name: Envelope(function, name, ulps, _FLUSHED, limit=limit, below=below, source=SOURCES[name])
            for name, (ulps, limit, below) in bounded.items()
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
    1.931
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
    """Return the largest absolute error of any library that was measured; subnormal operands read as zero are no error."""
    keeping = [
        replace(one, flushes=False, subnormal=one.ulps) if one.flushes else one for one in ENVELOPES[function].values()
    ]
    rooms = [one.room(values, *operands) for one in keeping]
    return np.asarray(np.max(rooms, axis=0))
