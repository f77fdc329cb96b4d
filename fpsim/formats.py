"""Binary floating-point formats, and correct rounding to them."""

from __future__ import annotations

import ast
import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np

from fpsim.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "BFLOAT16",
    "E4M3FN",
    "E5M2",
    "FLOAT16",
    "FLOAT32",
    "FLOAT64",
    "FORMATS",
    "OVERFLOW_POLICIES",
    "ROUNDING_MODES",
    "TF32",
    "Format",
    "OverflowPolicy",
    "RoundingMode",
    "as_format",
    "format_named",
    "round_to",
    "rounding_mode_code",
]

RoundingMode = Literal["nearest-even", "nearest-away", "toward-zero", "up", "down", "to-odd", "stochastic"]
OverflowPolicy = Literal["infinity", "nan", "saturate"]

# The kernels know a mode and a policy by its position here.
ROUNDING_MODES: tuple[RoundingMode, ...] = get_args(RoundingMode)
OVERFLOW_POLICIES: tuple[OverflowPolicy, ...] = get_args(OverflowPolicy)


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating-point format inside the range of float64.

    Its finite numbers are ``m * 2**(e - precision + 1)`` with integers ``|m| < 2**precision`` and
    ``emin <= e <= emax``, up to `max`. Zero has a sign.

    Parameters
    ----------
    name : str
        A label for people. It takes no part in comparisons; the text form (``str``) is made from the numbers. An empty
        name becomes the text form.
    precision : int
        Bits of the significand, with the hidden bit: 24 for float32. From 1 to 53.
    emin, emax : int
        Exponents of the smallest normal number and of the largest binade: -126 and 127 for float32. Inside float64's
        -1022 to 1023.
    subnormals : bool, optional
        False: a value is rounded as if the exponent were unbounded below, and a result smaller than `smallest_normal`
        becomes a zero of the same sign, in every rounding mode.
    overflow : {"infinity", "nan", "saturate"}, optional
        What stands for infinity: infinity itself; NaN, for formats without infinities (OCP, non-saturating); or the
        largest finite number of the same sign (OCP, saturating). It replaces infinite inputs, and results that IEEE
        754 would round to infinity. Modes that never round up to infinity (toward zero, to odd, up for negative and
        down for positive values) give the largest finite number under every policy.
    max_significand : int, optional
        Significand of the largest finite number, an integer from ``2**(precision-1)`` to ``2**precision - 1``, the
        default. 14 for e4m3fn, which spends its last code on NaN.

    Raises
    ------
    InputError
        If the numbers do not describe a format inside float64.

    Notes
    -----
    With one bit of precision the significand is always 1, and a tie is decided as MPFR does: the significand of the
    value's own binade is odd, so ties go away from zero.

    Examples
    --------
    >>> from fpsim.formats import Format, E4M3FN
    >>> Format("msfp", 4, -14, 15).max
    61440.0
    >>> print(E4M3FN.with_overflow("saturate"), Format("mine", 8, -126, 127), Format("", 5, -10, 10))
    e4m3fn(overflow=saturate) bfloat16 format(5, -10, 10)
    """

    name: str = dataclasses.field(compare=False)
    precision: int
    emin: int
    emax: int
    subnormals: bool = dataclasses.field(default=True, kw_only=True)
    overflow: OverflowPolicy = dataclasses.field(default="infinity", kw_only=True)
    max_significand: int | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        precision = _integer("precision", self.precision, 1, 53)
        emin = _integer("emin", self.emin, -1022, 1023)
        emax = _integer("emax", self.emax, emin, 1023)
        full = 2**precision - 1
        last = full if self.max_significand is None else self.max_significand
        last = _integer("max_significand", last, 2 ** (precision - 1), full)
        if self.overflow not in OVERFLOW_POLICIES:
            message = f"overflow must be one of {', '.join(OVERFLOW_POLICIES)}, not {self.overflow!r}"
            raise InputError(message)
        if self.subnormals not in (False, True):
            message = f"subnormals must be True or False, not {self.subnormals!r}"
            raise InputError(message)
        changes = {"precision": precision, "emin": emin, "emax": emax, "max_significand": last}
        for field, value in {**changes, "subnormals": bool(self.subnormals)}.items():
            object.__setattr__(self, field, value)
        object.__setattr__(self, "name", self.name or str(self))

    @property
    def eps(self) -> float:
        """Distance from 1 to the next larger number: 2**(1 - precision)."""
        return math.ldexp(1.0, 1 - self.precision)

    @property
    def unit_roundoff(self) -> float:
        """Bound u = 2**-precision of the relative error of rounding to nearest (Higham, section 2.1)."""
        return math.ldexp(1.0, -self.precision)

    @property
    def max(self) -> float:
        """The largest finite number."""
        return math.ldexp(cast("int", self.max_significand), self.emax - self.precision + 1)

    @property
    def min(self) -> float:
        """The most negative finite number."""
        return -self.max

    @property
    def smallest_normal(self) -> float:
        """The smallest positive number of full precision: 2**emin."""
        return math.ldexp(1.0, self.emin)

    @property
    def tiny(self) -> float:
        """Another name of `smallest_normal`, as in `numpy.finfo`."""
        return self.smallest_normal

    @property
    def smallest_subnormal(self) -> float:
        """The smallest positive number: 2**(emin - precision + 1), or `smallest_normal` without subnormals."""
        return math.ldexp(1.0, self.emin - self.precision + 1) if self.subnormals else self.smallest_normal

    @property
    def nmant(self) -> int:
        """Bits of the significand that are stored: precision - 1."""
        return self.precision - 1

    @property
    def nexp(self) -> int:
        """Bits of the exponent field: as many as the binades, zero with the subnormals, and infinity need."""
        codes = self.emax - self.emin + 2 + (_base(self).overflow == "infinity")
        return (codes - 1).bit_length()

    @property
    def bits(self) -> int | None:
        """Width in which the format is stored, 32 for tf32; None for a custom format."""
        base = _base(self)
        if base not in FORMATS.values():
            return None
        return 32 if base == TF32 else 1 + self.nexp + self.nmant

    @property
    def parameters(self) -> tuple[int, int, float, int, bool]:
        """What the rounding kernels take: precision, emin, largest finite, code of the overflow policy, subnormals."""
        return self.precision, self.emin, self.max, OVERFLOW_POLICIES.index(self.overflow), self.subnormals

    def with_overflow(self, overflow: OverflowPolicy, /) -> Format:
        """Return the same format under another overflow policy."""
        return dataclasses.replace(self, name="", overflow=overflow)

    def without_subnormals(self) -> Format:
        """Return the same format with results below the smallest normal number flushed to zero."""
        return dataclasses.replace(self, name="", subnormals=False)

    def includes(self, other: Format, /) -> bool:
        """Tell whether every finite number of `other` is a number of this format."""
        lowest = self.emin - self.precision + 1 if self.subnormals else self.emin
        lowest_other = other.emin - other.precision + 1 if other.subnormals else other.emin
        return self.precision >= other.precision and lowest <= lowest_other and self.max >= other.max

    def changes(self, other: Format, /) -> bool:
        """Tell whether some number of `other`, or its infinity, is changed by rounding it to this format."""
        return other.overflow == "infinity" != self.overflow or not self.includes(other)

    def ulp(self, x: Any, /) -> NDArray[np.float64]:
        """Return the unit in the last place of the binade of x in this format.

        Parameters
        ----------
        x : array_like
            Values, read as float64.

        Returns
        -------
        ndarray of float64
            ``2**(max(e, emin) - precision + 1)`` where ``2**e <= |x| < 2**(e+1)``; at zero the smallest one. Above
            `max` the binades continue. NaN for NaN and infinities. Same shape as x, a scalar for a scalar.

        Examples
        --------
        >>> from fpsim.formats import FLOAT16
        >>> FLOAT16.ulp([1.0, 0.0, 1024.0])
        array([9.76562500e-04, 5.96046448e-08, 1.00000000e+00])
        """
        values = _as_float64(x)
        exponent = np.maximum(np.frexp(values)[1] - 1, self.emin)
        exponent = np.where(values == 0, self.emin, exponent)
        result = np.where(np.isfinite(values), np.ldexp(1.0, exponent - self.precision + 1), np.nan)
        return cast("NDArray[np.float64]", result[()])

    def contains(self, x: Any, /) -> NDArray[np.bool]:
        """Tell which values are numbers of this format, that is, which values rounding to it leaves alone.

        Parameters
        ----------
        x : array_like
            Values, read as float64.

        Returns
        -------
        ndarray of bool
            Same shape as x, a scalar for a scalar. True for NaN; for infinities only if the overflow policy is
            ``"infinity"``.

        Examples
        --------
        >>> from fpsim.formats import BFLOAT16
        >>> BFLOAT16.contains([1.0, 0.1, 3.0e38])
        array([ True, False, False])
        """
        values = _as_float64(x)
        rounded = np.asarray(round_to(values, self, mode="toward-zero"))
        return cast("NDArray[np.bool]", ((rounded == values) | np.isnan(values))[()])

    def __str__(self) -> str:
        base = _base(self)
        settings = [f"{key}={value}" for key, value in _differences(self, base)]
        for name, known in FORMATS.items():
            if known == base:
                return f"{name}({', '.join(settings)})" if settings else name
        numbers = [str(self.precision), str(self.emin), str(self.emax)]
        if self.max_significand != 2**self.precision - 1:
            numbers.append(f"max_significand={self.max_significand}")
        return f"format({', '.join(numbers + settings)})"


def _integer(name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        message = f"{name} must be an integer from {low} to {high}, not {value!r}"
        raise InputError(message)
    return int(value)


def _base(form: Format) -> Format:
    """Return the known format with these numbers whatever its settings, else the numbers with default settings."""
    numbers = (form.precision, form.emin, form.emax, form.max_significand)
    for known in FORMATS.values():
        if numbers == (known.precision, known.emin, known.emax, known.max_significand):
            return known
    if form.overflow == "infinity" and form.subnormals:
        return form
    return dataclasses.replace(form, name="custom", overflow="infinity", subnormals=True)


def _differences(form: Format, base: Format) -> list[tuple[str, Any]]:
    return [(key, getattr(form, key)) for key in ("overflow", "subnormals") if getattr(form, key) != getattr(base, key)]


FORMATS: dict[str, Format] = {}
"""The known formats by name."""

FLOAT64 = FORMATS["float64"] = Format("float64", 53, -1022, 1023)
FLOAT32 = FORMATS["float32"] = Format("float32", 24, -126, 127)
TF32 = FORMATS["tf32"] = Format("tf32", 11, -126, 127)
BFLOAT16 = FORMATS["bfloat16"] = Format("bfloat16", 8, -126, 127)
FLOAT16 = FORMATS["float16"] = Format("float16", 11, -14, 15)
E4M3FN = FORMATS["e4m3fn"] = Format("e4m3fn", 4, -6, 8, overflow="nan", max_significand=14)
E5M2 = FORMATS["e5m2"] = Format("e5m2", 3, -14, 15)

# Other names of the same formats, and formats that exist as array types alone.
_ALIASES = {
    "binary64": FLOAT64, "double": FLOAT64, "fp64": FLOAT64,
    "binary32": FLOAT32, "single": FLOAT32, "float": FLOAT32, "fp32": FLOAT32,
    "binary16": FLOAT16, "half": FLOAT16, "fp16": FLOAT16, "bf16": BFLOAT16,
    "float8_e4m3fn": E4M3FN, "float8_e5m2": E5M2,
    "float8_e4m3": Format("float8_e4m3", 4, -6, 7), "float8_e3m4": Format("float8_e3m4", 5, -2, 3),
    "float8_e4m3fnuz": Format("float8_e4m3fnuz", 4, -7, 7, overflow="nan"),
    "float8_e5m2fnuz": Format("float8_e5m2fnuz", 3, -15, 15, overflow="nan"),
    "float6_e2m3fn": Format("float6_e2m3fn", 4, 0, 2, overflow="saturate"),
    "float6_e3m2fn": Format("float6_e3m2fn", 3, -2, 4, overflow="saturate"),
    "float4_e2m1fn": Format("float4_e2m1fn", 2, 0, 2, overflow="saturate"),
    "float8_e8m0fnu": Format("float8_e8m0fnu", 1, -127, 127, overflow="nan", subnormals=False),  # has no zero either
}  # fmt: skip


def format_named(text: str, /) -> Format:
    """Return the format that a text names.

    Parameters
    ----------
    text : str
        A known name (``"float64"``, ``"float32"``, ``"tf32"``, ``"bfloat16"``, ``"float16"``, ``"e4m3fn"``,
        ``"e5m2"``), a known name with other settings (``"e4m3fn(overflow=saturate)"``,
        ``"float32(subnormals=False)"``), or the numbers of a format: ``"format(8, -126, 127)"`` for precision, emin and
        emax, with the keywords ``overflow``, ``subnormals`` and ``max_significand``. ``str`` of a format parses back.

    Returns
    -------
    Format

    Raises
    ------
    InputError
        If the text names no format; the message lists the known names.

    Examples
    --------
    >>> from fpsim.formats import format_named
    >>> format_named("format(11, -126, 127)").name
    'tf32'
    """
    text = text.strip()
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        node = None
    if isinstance(node, ast.Name):
        return _known(node.id)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and None not in {k.arg for k in node.keywords}:
        numbers = [_literal(argument) for argument in node.args]
        settings = {cast("str", k.arg): _literal(k.value) for k in node.keywords}
        return _from_call(node.func.id, numbers, settings)
    message = f"{text!r} names no format; {_CHOICES}"
    raise InputError(message)


_CHOICES = (
    f"use one of {', '.join(FORMATS)}, one of them with settings such as e4m3fn(overflow=saturate), "
    "or format(precision, emin, emax)"
)


def _known(name: str) -> Format:
    found = FORMATS.get(name) or _ALIASES.get(name)
    if found is None:
        message = f"unknown format {name!r}; {_CHOICES}"
        raise InputError(message)
    return found


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return node.id
    try:
        return ast.literal_eval(node)
    except ValueError:
        message = f"a format takes numbers and names, not {ast.unparse(node)!r}"
        raise InputError(message) from None


def _from_call(name: str, numbers: list[Any], settings: dict[str, Any]) -> Format:
    allowed = {"overflow", "subnormals"} | (
        {"precision", "emin", "emax", "max_significand"} if name == "format" else set()
    )
    unknown = sorted(settings.keys() - allowed)
    if unknown:
        message = f"{name}(...) has no setting {unknown[0]!r}; it takes {', '.join(sorted(allowed))}"
        raise InputError(message)
    if name != "format":
        if numbers:
            message = f"{name} takes settings alone, such as {name}(overflow=saturate)"
            raise InputError(message)
        return dataclasses.replace(_known(name), name="", **settings)
    try:
        return Format("", *numbers, **settings)
    except TypeError:
        message = "format(...) takes precision, emin and emax, such as format(8, -126, 127)"
        raise InputError(message) from None


def as_format(x: Any, /) -> Format:
    """Return the format that x stands for.

    Parameters
    ----------
    x : Format, str, numpy dtype or type
        A format, a text for `format_named`, or the data type of an array: of NumPy, ml_dtypes, or torch.

    Returns
    -------
    Format

    Raises
    ------
    InputError
        If x is none of these, or a data type that holds no such format; the message lists the known names.

    Examples
    --------
    >>> import numpy as np
    >>> from fpsim.formats import as_format
    >>> as_format(np.float16).precision, as_format("bfloat16").precision
    (11, 8)
    """
    if isinstance(x, Format):
        return x
    if isinstance(x, str):
        return format_named(x)
    if type(x).__module__.partition(".")[0] == "torch":
        return _known(str(x).rpartition(".")[2])
    try:
        name = np.dtype(x).name if x is not None else "None"
    except TypeError:
        name = repr(x)
    return _known(name)


def rounding_mode_code(mode: str, /) -> int:
    """Return the kernels' code of a rounding mode, its position in `ROUNDING_MODES`."""
    if mode not in ROUNDING_MODES:
        message = f"unknown rounding mode {mode!r}; use one of {', '.join(ROUNDING_MODES)}"
        raise InputError(message)
    return ROUNDING_MODES.index(mode)


def _as_float64(x: Any) -> NDArray[np.float64]:
    from fpsim._arrays import as_floats

    with np.errstate(invalid="ignore"):  # signalling NaN
        return as_floats(x)[0].astype(np.float64, copy=False)


def round_to(
    x: Any,
    /,
    format: Format | str | Any,
    *,
    mode: RoundingMode = "nearest-even",
    rng: np.random.Generator | np.random.SeedSequence | int | None = None,
) -> Any:
    """Round values to a format, once, whatever type they come in.

    Parameters
    ----------
    x : array_like
        Values of any shape: NumPy, torch, JAX, CuPy or ml_dtypes arrays, numbers, nested lists.
    format : Format, str or dtype
        The format: `Format`, or what `as_format` takes.
    mode : str, optional
        ``"nearest-even"`` (ties to the even significand), ``"nearest-away"`` (ties away from zero), ``"toward-zero"``,
        ``"up"`` (toward +infinity), ``"down"``, ``"to-odd"`` (an inexact result gets an odd significand), or
        ``"stochastic"`` (one of the two neighbours, the farther from zero with a probability that is the distance from
        the nearer over their distance, exact to 2**-63).
    rng : int, Generator or SeedSequence, optional
        Source of the random bits of the stochastic mode, for `numpy.random.default_rng`. The same seed and shape give
        the same result, whatever the memory layout. Without it the bits are fresh.

    Returns
    -------
    ndarray or scalar
        The rounded values, exact, in the shape of x: float32 if x is float32 or narrower and float32 holds every
        number of the format, else float64. A scalar for a scalar or a zero-dimensional array.

    Raises
    ------
    InputError
        If x holds no real numbers, or format or mode is unknown.

    Notes
    -----
    Overflow follows the format's policy, see `Format`. Stochastic rounding overflows like rounding to nearest: beyond
    the largest finite number the next number of an unbounded exponent range is the other neighbour. Signed zeros and
    NaN are kept. Rounding straight from float64 differs from rounding through float32, as casts to bfloat16 and float8
    by way of float32 do (double rounding).

    Examples
    --------
    >>> import numpy as np
    >>> import fpsim
    >>> fpsim.round_to(np.float32([0.1, 65520.0, 1e-8]), "float16")
    array([0.09997559,        inf, 0.        ], dtype=float32)
    >>> fpsim.round_to(464.1, "e4m3fn"), fpsim.round_to(464.1, "e4m3fn(overflow=saturate)")
    (np.float64(nan), np.float64(448.0))
    >>> fpsim.round_to([0.1, -0.1], "bfloat16", mode="up")
    array([ 0.10009766, -0.09960938])
    """
    from fpsim._arrays import as_floats
    from fpsim.kernels import rounding

    target = as_format(format)
    code = rounding_mode_code(mode)
    values, source = as_floats(x)
    if values.dtype == np.float16:
        with np.errstate(invalid="ignore"):  # signalling NaN
            values = values.astype(np.float32)
    narrow = FLOAT32.includes(source) and FLOAT32.includes(target)
    # One numba signature for all: contiguous, read-only.
    order: Literal["C", "F"] = "F" if values.flags.f_contiguous and mode != "stochastic" else "C"
    flat = np.asarray(values, order=order).reshape(-1, order=order).view()
    flat.flags.writeable = False
    out = np.empty(flat.shape, np.float32 if narrow else np.float64)
    if mode == "stochastic":
        random = _generator(rng).integers(0, 2**63, flat.size, dtype=np.int64)
        rounding.round_array_stochastic(flat, out, *target.parameters, random)
    elif mode == "nearest-even":
        rounding.round_array_to_nearest(flat, out, *target.parameters)
    else:
        rounding.round_array(flat, out, *target.parameters, code)
    return out.reshape(values.shape, order=order)[()]


def _generator(rng: Any) -> np.random.Generator:
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        message = f"rng must be a seed or a numpy.random.Generator, not {rng!r}"
        raise InputError(message) from error
