"""Laws that random operands are drawn from, and the text that names them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.errors import InputError
from fpsim.formats import FLOAT16, FLOAT32, FLOAT64, Format, as_format, round_to

_Draw = Callable[[np.random.Generator, tuple[int, ...], tuple[float, ...]], NDArray[np.float64]]


def _uniform(rng: np.random.Generator, shape: tuple[int, ...], p: tuple[float, ...]) -> NDArray[np.float64]:
    return p[0] + (p[1] - p[0]) * rng.random(shape)


def _wide(rng: np.random.Generator, shape: tuple[int, ...], p: tuple[float, ...]) -> NDArray[np.float64]:
    sign = 1.0 - 2.0 * rng.integers(0, 2, shape)
    return np.asarray(sign * np.exp2(_uniform(rng, shape, p)))


def _harmonic(rng: np.random.Generator, shape: tuple[int, ...], p: tuple[float, ...]) -> NDArray[np.float64]:
    del rng, p
    return np.broadcast_to(1.0 / np.arange(1.0, 1.0 + shape[-1]), shape) if shape else np.array(1.0)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A family of laws: its parameters with their defaults, how numbers are drawn, and what the parameters must be."""

    defaults: dict[str, float | None]
    draw: _Draw
    valid: Callable[[tuple[float, ...]], bool] = lambda p: True  # noqa: ARG005
    rule: str = ""


_KINDS = {
    "uniform": _Kind({"low": 0, "high": 1}, _uniform, lambda p: p[0] < p[1], "low < high"),
    "normal": _Kind({"mean": 0, "sd": 1}, lambda r, s, p: r.normal(p[0], p[1], s), lambda p: p[1] > 0, "sd > 0"),
    "lognormal": _Kind(
        {"mean": 0, "sd": 1}, lambda r, s, p: np.exp(r.normal(p[0], p[1], s)), lambda p: p[1] > 0, "sd > 0"
    ),
    "exponential": _Kind({"scale": 1}, lambda r, s, p: r.exponential(p[0], s), lambda p: p[0] > 0, "scale > 0"),
    "constant": _Kind({"value": None}, lambda r, s, p: np.full(s, p[0])),  # noqa: ARG005
    "wide": _Kind({"low": -30, "high": 30}, _wide, lambda p: p[0] < p[1], "low < high"),
    "harmonic": _Kind({}, _harmonic),
    "sorted": _Kind(
        {"low": 0, "high": 1},
        lambda r, s, p: np.sort(_uniform(r, s, p), -1) if s else _uniform(r, s, p),
        lambda p: p[0] < p[1],
        "low < high",
    ),
    "integers": _Kind(
        {"low": None, "high": None},
        lambda r, s, p: r.integers(int(p[0]), int(p[1]), s, endpoint=True).astype(np.float64),
        lambda p: p[0] <= p[1] and all(x.is_integer() and abs(x) <= 2.0**53 for x in p),
        "whole numbers of at most 2**53 with low <= high",
    ),
}
LAWS = tuple(_KINDS)


@dataclass(frozen=True, slots=True)
class Law:
    """A law that operands are drawn from.

    Attributes
    ----------
    name : str
        One of `LAWS`.
    parameters : tuple of float
        Its parameters, in the order of the table in `law`.

    Notes
    -----
    ``str`` gives the canonical text; `law` reads it back to an equal law.
    """

    name: str
    parameters: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.name not in _KINDS:
            message = f"unknown law {self.name!r}; known laws: {', '.join(LAWS)}"
            raise InputError(message)
        kind = _KINDS[self.name]
        names = ", ".join(kind.defaults)
        if len(self.parameters) != len(kind.defaults):
            message = f"{self.name} takes {len(kind.defaults) or 'no'} parameters"
            message += f" ({names}), not {len(self.parameters)}" if names else ""
            raise InputError(message)
        values = tuple(float(value) for value in self.parameters)
        if not all(math.isfinite(value) for value in values):
            message = f"{self.name}: parameters must be finite numbers"
            raise InputError(message)
        if not kind.valid(values):
            message = f"{self.name}({', '.join(map(_number, values))}): parameters must be {kind.rule}"
            raise InputError(message)
        object.__setattr__(self, "parameters", values)

    def draw(
        self,
        shape: int | tuple[int, ...],
        /,
        *,
        rng: np.random.Generator | np.random.SeedSequence | int | None = None,
        dtype: Any = "float32",
    ) -> NDArray[Any]:
        """Draw numbers.

        Parameters
        ----------
        shape : int or tuple of int
            Shape of the result.
        rng : Generator, SeedSequence or int, optional
            Source of random bits, for `numpy.random.default_rng`; the same seed, shape and NumPy give the same numbers.
        dtype : dtype, Format or str, optional
            The format of the numbers.

        Returns
        -------
        ndarray
            The numbers, drawn in float64 and then rounded once to nearest even: a float32 draw from ``uniform(0, 1)`` is
            ``rng.random(shape).astype("float32")``, all of float32's numbers in [0, 1] and 1 itself once in 2**25
            draws, and not the multiples of 2**-24 of ``rng.random(dtype="float32")``. float16, float32 or
            float64 for these formats; any other comes as float32, or as float64 where float32 does not hold it.

        Raises
        ------
        InputError
            The format does not hold a number that was drawn (overflow), or the shape or format is none.

        Examples
        --------
        >>> from fpsim.laws import law
        >>> law("harmonic").draw(3)
        array([1.        , 0.5       , 0.33333334], dtype=float32)
        >>> law("integers(-2, 2)").draw((2, 3), rng=1).shape
        (2, 3)
        """
        from fpsim.formats import _generator

        form = as_format(dtype)
        sizes: tuple[Any, ...] = shape if isinstance(shape, tuple) else (shape,)
        if not all(isinstance(size, int | np.integer) and size >= 0 for size in sizes):
            message = f"a shape is made of whole numbers of at least 0, not {shape!r}"
            raise InputError(message)
        with np.errstate(over="ignore", under="ignore"):
            drawn = _rounded(self._values(_generator(rng), sizes), form)
        if not np.isfinite(drawn).all():
            message = f"{self} gives numbers that {form} does not hold; choose a narrower law or a wider format"
            raise InputError(message)
        return drawn

    def _values(self, rng: np.random.Generator, sizes: tuple[int, ...]) -> NDArray[np.float64]:
        return _KINDS[self.name].draw(rng, sizes, self.parameters)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(_number, self.parameters))})"


@dataclass(frozen=True, slots=True)
class FunctionLaw(Law):
    """The law of a function of one's own; see `law`.

    Attributes
    ----------
    function : callable
        From a Generator and a shape to an array of that shape.
    """

    function: Callable[[np.random.Generator, tuple[int, ...]], Any]

    def __post_init__(self) -> None:
        """Take any name, and no parameters."""

    def _values(self, rng: np.random.Generator, sizes: tuple[int, ...]) -> NDArray[np.float64]:
        values = np.asarray(self.function(rng, sizes))
        if values.shape != sizes or values.dtype.kind not in "biuf":
            message = (
                f"the law {self.name} must return real numbers of shape {sizes}, not {values.dtype} {values.shape}"
            )
            raise InputError(message)
        return values.astype(np.float64)

    def __str__(self) -> str:
        return self.name


def _rounded(values: NDArray[np.float64], form: Format) -> NDArray[Any]:
    for native, dtype in ((FLOAT64, np.float64), (FLOAT32, np.float32), (FLOAT16, np.float16)):
        if form == native:
            return values.astype(dtype)
    rounded = np.asarray(round_to(values, form))
    return rounded.astype(np.float32) if FLOAT32.includes(form) else rounded


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


_TEXT = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\((.*)\)|:(.*))?\s*", re.DOTALL)


def law(text: Any, /) -> Law:
    """Return the law that a text names, or that a function draws from.

    Parameters
    ----------
    text : str, Law or callable
        A function from a `numpy.random.Generator` and a shape to numbers of that shape, the terms of a sum along the last
        axis; it is named by its ``__name__``. Or a name and its parameters, as in ``"uniform(-1, 1)"``; in a shell ``uniform:-1:1`` needs no quotes. Parameters
        at the end may be left out where the table has a default.

        ==========================  =================================================================
        ``uniform(low, high)``      uniform on [low, high); 0 and 1
        ``normal(mean, sd)``        normal; 0 and 1
        ``lognormal(mean, sd)``     exp of ``normal(mean, sd)``; 0 and 1
        ``exponential(scale)``      exponential of mean `scale`; 1
        ``constant(value)``         every number the same
        ``wide(low, high)``         random sign times 2**U, U uniform on [low, high); -30 and 30
        ``harmonic()``              1/k, k = 1, 2, ... along the last axis
        ``sorted(low, high)``       ``uniform(low, high)`` in ascending order along the last axis; 0 and 1
        ``integers(low, high)``     whole numbers from low to high, both included
        ==========================  =================================================================

    Returns
    -------
    Law

    Raises
    ------
    InputError
        The text does not name a law, or its parameters do not fit.

    Examples
    --------
    >>> print(law("uniform"), law("normal:2"), law("wide(-8, 8.5)"))
    uniform(0, 1) normal(2, 1) wide(-8, 8.5)
    >>> def squares(rng, shape):
    ...     return rng.random(shape) ** 2
    >>> law(squares).draw(4, rng=1).dtype
    dtype('float32')
    """
    if isinstance(text, Law):
        return text
    if callable(text):
        return FunctionLaw(str(getattr(text, "__name__", type(text).__name__)), (), text)
    if not isinstance(text, str):
        message = f"a law is a text such as 'uniform(0, 1)', or a function, not {type(text).__name__}"
        raise InputError(message)
    match = _TEXT.fullmatch(text)
    if match is None:
        message = f"{text!r} is not a law; write a name and parameters, as in 'uniform(0, 1)' or 'normal:0:1'"
        raise InputError(message)
    name = match[1]
    if name not in _KINDS:
        message = f"unknown law {name!r}; known laws: {', '.join(LAWS)}"
        raise InputError(message)
    inner, separator = (match[3], ":") if match[3] is not None else (match[2] or "", ",")
    words = inner.split(separator) if inner.strip() else []
    values = [_parameter(name, word) for word in words]
    defaults = list(_KINDS[name].defaults.items())
    for parameter, default in defaults[len(values) :]:
        if default is None:
            message = f"{name} needs {', '.join(_KINDS[name].defaults)}: {parameter} is missing"
            raise InputError(message)
        values.append(default)
    return Law(name, tuple(values))


def _parameter(name: str, word: str) -> float:
    try:
        return float(word.replace("_", "?"))
    except ValueError:
        message = f"{name}: {word.strip()!r} is not a number"
        raise InputError(message) from None
