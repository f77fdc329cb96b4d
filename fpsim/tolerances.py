"""Tolerance: how far two results of an operation may be apart, proved and at a confidence."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim import bounds, exact
from fpsim._arrays import as_floats, axes_of
from fpsim._prediction_text import plain_number
from fpsim._roundoff import Account, Sample, account
from fpsim.errors import InputError
from fpsim.formats import Format, as_format
from fpsim.laws import Law, law as as_law
from fpsim.orders import Order
from fpsim.prediction import sizes_of
from fpsim.strategies import Strategy, strategy as as_strategy

SCHEMA: Final = "fpsim.tolerance/1"
CONFIDENCE: Final = 1.0 - 1e-6
_PILOT, _SIDE = 256, 16  # outputs that are looked at for data of a law: of a product, rows and columns
_NUMBERS = 2**21  # of an operand of a pilot; a larger product or stack of sums has fewer rows and columns there
_PERMUTATIONS = 4
_LEAST = 1e-290  # variance
_RATIOS = 512  # steps of the table of tails
_DRIFTS = 0.05  # of a typical term: a smaller error of a sum does not drift
_INFLATION = 1.05  # of a tolerance for other data of the same law, as calibrated
_MARGIN = 1.0 + 2.0**-9  # of rtol and atol: libraries compare in the type of the results, down to float16
#: What libraries allow by default: (rtol, atol). PyTorch's depend on the type, see `TORCH_DEFAULTS`.
DEFAULTS: Final = {
    "np.allclose": (1e-5, 1e-8),
    "numpy.testing.assert_allclose": (1e-7, 0.0),
    "torch.testing.assert_close": (1.3e-6, 1e-5),
    "jax.numpy.allclose": (1e-5, 1e-8),
}
#: What `torch.testing.assert_close` allows by default (PyTorch 2.x): (rtol, atol).
TORCH_DEFAULTS: Final = {
    "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7),
}  # fmt: skip

_Array = NDArray[Any]
Side = str | Strategy | Order | Sequence[Any]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far results may be apart; see `tolerance`.

    Attributes
    ----------
    op : str
        The operation.
    sides : tuple of str
        What is compared: strategies, or a strategy and "exact".
    confidence : float
        Of the whole assertion, all outputs together.
    outputs : int
        How many outputs an assertion has.
    worst_case : float or ndarray
        No difference is larger: proved for given data. For data of a law it is the largest of the pilot data, and not
        proved. Of the shape of the result, or one number.
    probabilistic : float or ndarray
        The difference stays below this in all outputs at the confidence, where the bits that roundings drop are random.
    sigma, drift : float or ndarray
        Standard deviation of the difference, and what it drifts by in one direction.
    scale : float or ndarray
        Magnitude of the result.
    typical_term : float
        Median magnitude of a term.
    flags : tuple of str
        What a reader should know: stagnation, overflow, structured data, arithmetic without an account.
    proved : bool
        Whether `worst_case` is.
    dtype : str
        Format of the operands.
    terms : int
        Terms of an output.
    """

    op: str
    sides: tuple[str, ...]
    confidence: float
    outputs: int
    worst_case: Any
    probabilistic: Any
    sigma: Any
    drift: Any
    scale: Any
    typical_term: float
    flags: tuple[str, ...] = ()
    proved: bool = True
    dtype: str = "float32"
    terms: int = 1
    _form: tuple[float, float] = field(default=(0.0, 0.0), repr=False, compare=False)

    @property
    def rtol(self) -> float:
        """Relative part of the tolerance as one pair of numbers for all outputs."""
        return self._form[0]

    @property
    def atol(self) -> float:
        """Absolute part of the tolerance as one pair of numbers for all outputs."""
        return self._form[1]

    @property
    def collapse(self) -> float:
        """How much looser the pair (rtol, atol) is than the tolerance of each output, at worst: a factor."""
        with np.errstate(all="ignore"):
            allowed = self.atol + self.rtol * np.asarray(self.scale, np.float64)
            ratio = allowed / np.asarray(self.probabilistic, np.float64)
        finite = ratio[np.isfinite(ratio)]
        return float(finite.max()) if finite.size else 1.0

    def kwargs(self, library: str, /) -> dict[str, Any]:
        """Return the tolerance as keyword arguments of a library's comparison.

        Parameters
        ----------
        library : {"numpy", "torch", "jax", "pytest"}
            For `numpy.testing.assert_allclose` and `numpy.allclose`, `torch.testing.assert_close`,
            `jax.numpy.allclose`, `pytest.approx`.

        Raises
        ------
        InputError
            Another library.
        """
        if library in ("numpy", "torch", "jax"):
            return {"rtol": self.rtol, "atol": self.atol}
        if library == "pytest":
            return {"rel": self.rtol, "abs": self.atol}
        message = f"kwargs are for numpy, torch, jax or pytest, not {library!r}"
        raise InputError(message)

    def power(self) -> dict[str, float]:
        """Return sizes of usual bugs in units of the tolerance; those above 1 are caught.

        A dropped term changes a result by a typical term. TF32 operands change a product of float32 by about the root
        of the number of terms, times a typical term, times 2**-11.
        """
        tolerance = float(np.median(np.asarray(self.probabilistic)))
        sizes = {"a dropped term": self.typical_term}
        if self.op != "sum" and self.dtype == "float32":
            sizes["TF32 instead of float32"] = self.typical_term * math.sqrt(self.terms) * 2.0**-11
        return {name: _ratio(size, tolerance) for name, size in sizes.items()}

    def defaults(self) -> dict[str, tuple[bool, float]]:
        """Return whether libraries' default tolerances pass correct results, and how large a bug they pass.

        The second number is the largest difference allowed, in units of this tolerance.
        """
        out: dict[str, tuple[bool, float]] = {}
        own = np.asarray(self.probabilistic, np.float64)
        for name, default in DEFAULTS.items():
            rtol, atol = TORCH_DEFAULTS.get(self.dtype, default) if name.startswith("torch") else default
            with np.errstate(all="ignore"):
                allowed = np.nan_to_num(atol + rtol * np.asarray(self.scale, np.float64), nan=0.0, posinf=math.inf)
                ratio = np.where(allowed == own, 1.0, allowed / own)
            out[name] = bool((allowed >= own).all()), float(np.max(ratio))
        return out

    def __str__(self) -> str:
        from fpsim._tolerance_text import as_text

        return as_text(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects; of arrays the largest number."""

        def largest(x: Any) -> float | str:
            return plain_number(float(np.max(np.asarray(x))) if np.size(x) else 0.0)

        return {
            "schema": SCHEMA,
            "op": self.op,
            "sides": list(self.sides),
            "dtype": self.dtype,
            "confidence": self.confidence,
            "outputs": self.outputs,
            "terms": self.terms,
            "worst_case": largest(self.worst_case),
            "worst_case_proved": self.proved,
            "probabilistic": largest(self.probabilistic),
            "sigma": largest(self.sigma),
            "drift": largest(np.abs(self.drift)),
            "scale": largest(self.scale),
            "rtol": self.rtol,
            "atol": plain_number(self.atol),
            "collapse": plain_number(self.collapse),
            "flags": list(self.flags),
            "power": {name: plain_number(size) for name, size in self.power().items()},
            "defaults": {
                name: {"passes_correct_results": passes, "largest_passed": plain_number(size)}
                for name, (passes, size) in self.defaults().items()
            },
        }


def tolerance(
    op: str,
    /,
    *inputs: Any,
    strategy: Side | None = None,
    between: tuple[Side, Side] | None = None,
    confidence: float = CONFIDENCE,
    axis: Any = None,
    shape: Any = None,
    dtype: Any = "float32",
    outputs: int | None = None,
    rng: Any = 0,
) -> Tolerance:
    """Return the tolerance that a comparison needs.

    Parameters
    ----------
    op : {"sum", "dot", "matmul"}
        The operation.
    *inputs : array_like, or str or Law
        The operands; or laws of data with `shape`, as `fpsim.predict` takes them.
    strategy : str or Strategy, or a sequence of them
        One side; the other is the exact result. A sequence means any of these.
    between : pair of such sides
        Two results that are compared with each other.
    confidence : float
        That no output of an assertion is further off, by default 1 - 10**-6.
    axis : int or tuple of int, optional
        Of a sum.
    shape, dtype : for laws
        As for `fpsim.predict`.
    outputs : int, optional
        How many outputs one assertion compares, by default those of the operation.
    rng : int, SeedSequence or Generator
        Source of pilot data and permutations.

    Returns
    -------
    Tolerance

    Raises
    ------
    InputError
        The arguments do not fit.

    Notes
    -----
    The hard bound is the sum over the inexact nodes of min(ulp/2, smaller operand). The probabilistic one is
    ``abs(drift)`` and a Chernoff tail bound of at most ``sigma * sqrt(2 ln(2 M / (1 - confidence)))`` for M outputs, with
    the variance of the local errors of the partial sums that occur, where dropped bits are random. Where a long chain has
    an error beyond a twentieth of a typical term, roundings are no longer fair, and what they drift by is measured on
    permutations of the terms. Structured data (constant, sorted) get the hard bound.

    Examples
    --------
    >>> import numpy as np, fpsim
    >>> x = np.random.default_rng(0).random(1000, np.float32)
    >>> tol = fpsim.tolerance("sum", x, between=("serial", "pairwise"))
    >>> abs(fpsim.sum(x, "serial") - fpsim.sum(x, "pairwise")) <= tol.atol + tol.rtol * 500
    np.True_
    """
    if not 0 < confidence < 1:
        message = f"confidence must lie between 0 and 1, not {confidence}"
        raise InputError(message)
    if outputs is not None and (isinstance(outputs, bool) or outputs != int(outputs) or outputs < 1):
        message = f"outputs must be a whole number of at least 1, not {outputs!r}"
        raise InputError(message)
    sides = _sides(strategy, between)
    if inputs and all(isinstance(x, str | Law) for x in inputs):
        return _of_law(op, inputs, sides, between is not None, confidence, shape, as_format(dtype), outputs, rng)
    if shape is not None:
        message = "shape is for data of a law, not for given arrays"
        raise InputError(message)
    return _of_data(op, inputs, sides, between is not None, confidence, axis, outputs, rng)


def _sides(strategy: Side | None, between: tuple[Side, Side] | None) -> list[list[Strategy]]:
    if (strategy is None) == (between is None):
        message = "say strategy=... for a tolerance against the exact result, or between=(one, other) for two results"
        raise InputError(message)
    given = [strategy] if strategy is not None else list(between or ())
    if between is not None and len(given) != 2:
        message = f"between takes two sides, not {len(given)}"
        raise InputError(message)
    out = [[as_strategy(one) for one in (side if isinstance(side, list | tuple) else [side])] for side in given]
    if not all(out):
        message = "a side names at least one strategy"
        raise InputError(message)
    return out


def _ratio(size: float, tolerance: float) -> float:
    """Return size / tolerance, infinite for a tolerance of zero; a size of zero is never caught."""
    return (size / tolerance if tolerance else math.inf) if size else 0.0


@dataclass(frozen=True, slots=True)
class _Part:
    """What one side may be off by."""

    hard: _Array
    variance: _Array
    largest: _Array
    drift: _Array
    fixed: _Array
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Measured:
    """What both sides together may be off by, and the results' size."""

    hard: _Array
    variance: _Array
    largest: _Array
    drift: _Array
    fixed: _Array
    scale: _Array
    term: float
    structured: bool
    flags: tuple[str, ...]


def _of_data(
    op: str, inputs: tuple[Any, ...], sides: list[list[Strategy]], both: bool, confidence: float, axis: Any,
    outputs: int | None, rng: Any,
) -> Tolerance:  # fmt: skip
    bounds._check(op, len(inputs))
    pairs = [as_floats(x) for x in inputs]
    arrays = tuple(values for values, _ in pairs)
    _check_shapes(op, arrays, axis)
    both_same = both and len(sides[0]) == len(sides[1]) == 1 and sides[0] == sides[1]
    one = _measured(op, sides, arrays, axis, rng, both_same, None)
    hard, variance, flags = one.hard, one.variance, list(one.flags)
    count = int(np.size(hard)) if outputs is None else int(outputs)
    soft = np.abs(one.drift) + one.fixed + tail(variance, one.largest, (1 - confidence) / count)
    # Where float64 does not hold the variance, nothing but the bound is known.
    soft = hard if one.structured else np.where(variance > _LEAST, np.minimum(hard, soft), hard)
    out = Tolerance(
        op, _names(sides, both), confidence, count, hard[()], soft[()], np.sqrt(variance)[()], one.drift[()],
        one.scale[()], one.term, tuple(dict.fromkeys(flags)), True, str(pairs[0][1]),
        _term_count(op, arrays, one.scale),
    )  # fmt: skip
    return dataclasses.replace(out, _form=_collapsed(soft, one.scale))


def _measured(
    op: str, sides: list[list[Strategy]], arrays: tuple[_Array, ...], axis: Any, rng: Any, same: bool,
    some: Sample | None,
) -> _Measured:  # fmt: skip
    term = _typical_term(arrays)
    structured = _structured(op, arrays, axis)
    pick = _picker(op, arrays, some)
    found = [[_part(op, one, arrays, axis, term, structured, rng, some, pick) for one in side] for side in sides]
    hard, variance, largest, drift, fixed, flags = _together(found)
    if same:
        hard, variance, largest, drift, fixed = np.zeros((5, *hard.shape))
        flags = []
    with np.errstate(all="ignore"):
        scale = np.abs(pick(_result(op, arrays, axis)))
        special = np.isnan(pick(_result(op, tuple(x * x.dtype.type(0) for x in arrays), axis)))
    if special.any():
        hard, variance, largest, drift, fixed, scale = (
            np.where(special, 0.0, x) for x in (hard, variance, largest, drift, fixed, scale)
        )
        flags.append(f"terms of {int(special.sum())} outputs are not finite: there the results must be the same")
    if np.isinf(hard).any():
        flags.append("partial sums may overflow, and there is no tolerance then")
    if structured and np.any(hard > 0):
        flags.append("structured data: the terms are sorted or few of them differ, so the worst case is used")
    return _Measured(hard, variance, largest, drift, fixed, scale, term, structured, tuple(flags))


def _picker(op: str, arrays: tuple[_Array, ...], some: Sample | None) -> Callable[[Any], _Array]:
    if some is None:
        return np.asarray
    if op == "sum":
        return lambda x: np.reshape(x, -1)[some[1]]
    m = arrays[0].shape[0] if arrays[0].ndim > 1 else 1
    return lambda x: np.reshape(x, (m, -1))[np.ix_(*some)].reshape(-1)


def _check_shapes(op: str, arrays: tuple[_Array, ...], axis: Any) -> None:
    """Raise where there is nothing to work out a tolerance for."""
    if any(x.size == 0 for x in arrays):
        message = f"{op} of empty arrays has no tolerance"
        raise InputError(message)
    if op == "sum":
        axes_of(arrays[0].ndim, axis)
        return
    a, b = arrays
    if axis is not None:
        message = f"axis is for sums, not for {op}"
        raise InputError(message)
    wanted = (1,) if op == "dot" else (1, 2)
    if a.ndim not in wanted or b.ndim not in wanted or a.shape[-1] != b.shape[0]:
        kinds = "two vectors of one length" if op == "dot" else "matrices or vectors whose inner dimensions match"
        message = f"the tolerance of a {op} is worked out for {kinds}, not for shapes {a.shape} and {b.shape}"
        raise InputError(message)


def _term_count(op: str, arrays: tuple[_Array, ...], scale: _Array) -> int:
    return arrays[0].size // max(scale.size, 1) if op == "sum" else int(arrays[0].shape[-1])


def tail(variance: _Array, largest: _Array, level: float, /) -> _Array:
    """Return what a sum of independent rounding errors passes with a probability of at most `level`.

    Chernoff's bound, with the error of largest variance as uniform and the others as sub-Gaussian: where one rounding
    dominates, as the last of a balanced tree does, its error is bounded, and the tail is lighter than a Gaussian one.

    Parameters
    ----------
    variance, largest : ndarray of float64
        The variance, and the largest part of it that comes from one rounding.
    level : float
        The probability, of both signs together.
    """
    v = np.asarray(variance, np.float64)
    with np.errstate(all="ignore"):
        share = np.where(v > 0, np.clip(np.asarray(largest, np.float64) / v, 0.0, 1.0), 0.0)
        # The tail is a multiple of the deviation that the share of the largest error decides; a smaller share is safe.
        places = np.floor(np.nan_to_num(share) * _RATIOS).astype(np.int64)
        return np.asarray(np.where(v > 0, np.sqrt(v) * _tails(level)[places], 0.0))


@functools.lru_cache(maxsize=16)
def _tails(level: float) -> _Array:
    """Return the tail of unit variance for shares 0, 1 / _RATIOS, ... 1 of the largest error."""
    one = np.linspace(0.0, 1.0, _RATIOS + 1)[:, None]
    step = np.geomspace(0.5, 120, 400)
    side = step * np.sqrt(3 * one)
    with np.errstate(all="ignore"):
        # ln(sinh(y) / y), without overflow; it is below y**2 / 6
        bounded = np.where(side > 1e-3, side + np.log1p(-np.exp(-2 * side)) - np.log(2 * side), side * side / 6)
    gain: _Array = (0.5 * step * step * (1 - one) + bounded + math.log(2 / level)) / step
    return np.asarray(np.min(gain, axis=1))


def _together(found: list[list[_Part]]) -> tuple[_Array, _Array, _Array, _Array, _Array, list[str]]:
    """Add up the sides; of several strategies of a side the worst counts."""
    hard = sum(np.max([p.hard for p in side], axis=0) for side in found)
    variance = sum(np.max([p.variance for p in side], axis=0) for side in found)
    # A smaller part of one rounding is the safer assumption.
    largest = np.max([np.min([p.largest for p in side], axis=0) for side in found], axis=0)
    drift = sum(np.max([np.abs(p.drift) for p in side], axis=0) for side in found)
    fixed = sum(np.max([p.fixed for p in side], axis=0) for side in found)
    flags = [flag for side in found for part in side for flag in part.flags]
    hard, variance, largest, drift, fixed = (np.asarray(x) for x in (hard, variance, largest, drift, fixed))
    return hard, variance, largest, drift, fixed, flags


def _names(sides: list[list[Strategy]], both: bool) -> tuple[str, ...]:
    names = [" or ".join(map(str, side)) for side in sides]
    return tuple(names) if both else (*names, "exact")


def _part(
    op: str, chosen: Strategy, arrays: tuple[_Array, ...], axis: Any, term: float, structured: bool, rng: Any,
    some: Sample | None, pick: Callable[[Any], _Array],
) -> _Part:  # fmt: skip
    worst = np.asarray(pick(bounds.bound(op, chosen, *arrays, axis=axis)), np.float64)
    own: Account | None = account(op, chosen, *arrays, axis=axis, some=some)
    if own is None:
        flag = f"{chosen} compensates, flushes or fuses: its worst-case bound counts in full, beside the deviation"
        none = np.zeros_like(worst)
        return _Part(worst, none, none, none, worst, (flag,))
    flags: list[str] = []
    hard = np.minimum(own.hard, worst)
    drift = np.zeros_like(own.variance)
    known = own.variance[np.isfinite(own.variance)]
    if not structured and bool((np.sqrt(known) > _DRIFTS * term).any()):
        drift = pick(_drift(op, chosen, arrays, axis, rng))
        flags.append(f"the errors of {chosen} drift: they have grown to the size of its terms")
    return _Part(hard, own.variance, own.largest, drift, np.zeros_like(hard), tuple(flags))


def _drift(op: str, chosen: Strategy, arrays: tuple[_Array, ...], axis: Any, rng: Any) -> _Array:
    """Return the mean error over permutations of the terms."""
    from fpsim.formats import _generator

    source = _generator(rng)
    reference = _exact(op, arrays, axis)
    errors: list[_Array] = []
    for _ in range(_PERMUTATIONS):
        if op == "sum":
            x = arrays[0]
            axes = axes_of(x.ndim, axis)
            kept = [a for a in range(x.ndim) if a not in axes]
            moved = x.transpose((*kept, *axes)).reshape((*(x.shape[a] for a in kept), -1))
            errors.append(reference.error(_emulate("sum", chosen, (source.permuted(moved, axis=-1),), -1)))
        else:
            order = source.permutation(arrays[0].shape[-1])
            errors.append(reference.error(_emulate(op, chosen, (arrays[0][..., order], arrays[1][order]), None)))
    with np.errstate(all="ignore"):
        mean = np.asarray(np.mean(errors, axis=0))
    return np.where(np.isnan(mean), np.inf, mean)  # a sum that overflowed


def _emulate(op: str, chosen: Strategy, arrays: tuple[_Array, ...], axis: Any) -> Any:
    from fpsim import emulation

    if op == "sum":
        return emulation.sum(arrays[0], chosen, axis=axis)
    return emulation.matmul(arrays[0], arrays[1], chosen)


def _exact(op: str, arrays: tuple[_Array, ...], axis: Any) -> exact.Exact:
    return exact.sum(*arrays, axis=axis) if op == "sum" else exact.matmul(*arrays)


def _result(op: str, arrays: tuple[_Array, ...], axis: Any) -> Any:
    wide = [x.astype(np.float64) for x in arrays]
    return np.sum(wide[0], axis=axis) if op == "sum" else np.matmul(*wide)


def _typical_term(arrays: tuple[_Array, ...]) -> float:
    """Return the median magnitude of a term; zeros and numbers that are not finite do not count."""
    sizes = [np.abs(x.astype(np.float64)) for x in arrays]
    some = [x[(x > 0) & np.isfinite(x)] for x in sizes]
    with np.errstate(all="ignore"):
        return float(np.prod([float(np.median(x)) if x.size else 0.0 for x in some]))


def _structured(op: str, arrays: tuple[_Array, ...], axis: Any) -> bool:
    """Tell whether roundings may repeat: few different terms, or sorted ones."""
    if op == "sum":
        x = arrays[0]
        axes = axes_of(x.ndim, axis)
        kept = tuple(a for a in range(x.ndim) if a not in axes)
        n = math.prod(x.shape[a] for a in axes)
        rows = [x.transpose((*kept, *axes)).reshape(-1, n)[:8]]
    else:
        rows = [np.atleast_2d(arrays[0])[:8], np.atleast_2d(arrays[1].T)[:8]]
    found = []
    for some in rows:
        n = some.shape[1]
        with np.errstate(invalid="ignore"):
            steps = np.diff(some.astype(np.float64), axis=1)
        ordered = (steps >= 0).all(axis=1) | (steps <= 0).all(axis=1)
        few = np.array([np.unique(row).size <= max(2, n // 16) for row in some])
        found.append(n > 3 and bool((ordered | few).any()))
    return all(found)


def _collapsed(soft: _Array, scale: _Array) -> tuple[float, float]:
    """Return (rtol, atol) for all outputs: relative where that varies less over them than absolute."""
    own, size = np.asarray(soft, np.float64).reshape(-1), np.asarray(scale, np.float64).reshape(-1)
    with np.errstate(all="ignore"):
        # Libraries multiply with a result, which is off itself, and not with what is exact.
        relative = np.where(own == 0, 0.0, np.where(size > 2 * own, own / (size - 2 * own), np.inf))
    some = own[own > 0]
    if some.size == 0:
        return 0.0, 0.0
    if np.isfinite(relative).all() and relative.max() / relative[own > 0].min() < some.max() / some.min():
        return float(relative.max()) * _MARGIN, 0.0
    return 0.0, float(own.max()) * _MARGIN


# --- data of a law ----------------------------------------------------------------------------------------------------


def _of_law(
    op: str, given: tuple[Any, ...], sides: list[list[Strategy]], both: bool, confidence: float, shape: Any,
    form: Format, outputs: int | None, rng: Any,
) -> Tolerance:  # fmt: skip
    from fpsim.formats import _generator

    bounds._check(op)
    sizes = sizes_of(op, shape)
    wanted = 1 if op == "sum" else 2
    laws = [as_law(one) for one in given] * (wanted if len(given) == 1 else 1)
    if len(laws) != wanted:
        message = f"{op} takes one law, or one for each of its {wanted} operands, not {len(laws)}"
        raise InputError(message)
    source = _generator(rng)
    n = sizes[1] if op == "matmul" else sizes[-1]
    count = {"sum": math.prod(sizes[:-1]), "dot": 1, "matmul": sizes[0] * sizes[-1]}[op]
    same = both and len(sides[0]) == len(sides[1]) == 1 and sides[0] == sides[1]
    each = [
        _measured(op, sides, arrays, -1 if op == "sum" else None, source, same, some)
        for arrays, some in _pilots(op, sizes, laws, form, source)
    ]
    count = int(outputs) if outputs is not None else count
    variance = np.concatenate([one.variance for one in each])
    hard = max(float(np.max(one.hard)) for one in each)
    drift = max(float(np.max(np.abs(one.drift) + one.fixed)) for one in each)
    scale = float(np.median(np.concatenate([one.scale for one in each])))
    flags = tuple(dict.fromkeys(flag for one in each for flag in one.flags))
    level = (1 - confidence) / count
    soft = drift + _mixture(variance, level) * _INFLATION * math.sqrt(2 * math.log(2 / level)) / _gaussian(level)
    if any(one.structured for one in each) or not variance.max() > _LEAST:
        soft = hard
    soft = min(soft, hard) if math.isfinite(soft) else hard
    drift = max(float(np.max(np.abs(one.drift))) for one in each)
    out = Tolerance(
        op, _names(sides, both), confidence, count, hard, soft, math.sqrt(float(variance.mean())), drift, scale,
        float(np.median([one.term for one in each])), flags, False, str(form), n,
    )  # fmt: skip
    return dataclasses.replace(out, _form=(0.0, soft * _MARGIN))


def _pilots(
    op: str, sizes: tuple[int, ...], laws: list[Law], form: Format, source: Any
) -> Iterator[tuple[tuple[_Array, ...], Sample]]:
    """Draw pilot operands, with outputs of theirs to look at; of the true shape, on which an order may depend."""
    one = np.zeros(1, np.int64)
    if op == "dot":
        a, b = (law.draw((_SIDE, sizes[0]), rng=source, dtype=form) for law in laws)
        yield from (((x, y), (one, one)) for x, y in itertools.product(a, b))
        return
    if op == "sum":
        m = math.prod(sizes[:-1])
        m = min(m, max(_PILOT, _NUMBERS // sizes[-1]))
        shape = (m, sizes[-1]) if len(sizes) > 1 else sizes
        places = np.unique(np.linspace(0, m - 1, _PILOT).astype(np.int64))
        for _ in range(-(-_PILOT // m)):
            yield (laws[0].draw(shape, rng=source, dtype=form),), (one, places)
        return
    m, k, n = sizes
    m, n = (min(size, max(_SIDE, _NUMBERS // k)) for size in (m, n))
    rows, columns = (np.unique(np.linspace(0, size - 1, _SIDE).astype(np.int64)) for size in (m, n))
    for _ in range(-(-_PILOT // (rows.size * columns.size))):
        a, b = laws[0].draw((m, k), rng=source, dtype=form), laws[1].draw((k, n), rng=source, dtype=form)
        yield (a, b), (rows, columns)


def _mixture(variance: _Array, level: float) -> float:
    """Return t with mean over i of P(abs(N(0, V_i)) > t) = level."""
    sigma = np.sqrt(variance[variance > 0])
    if sigma.size == 0:
        return 0.0
    if not np.isfinite(sigma).all():
        return math.inf
    share = sigma.size / variance.size
    low, high = 0.0, float(sigma.max()) * 60
    for _ in range(200):
        middle = 0.5 * (low + high)
        tail = share * float(np.mean([math.erfc(middle / (one * math.sqrt(2))) for one in sigma]))
        low, high = (middle, high) if tail > level else (low, middle)
    return high


def _gaussian(level: float) -> float:
    """Return z with P(abs(N(0, 1)) > z) = level."""
    return _mixture(np.ones(1), level)
