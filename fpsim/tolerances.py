"""Tolerance: how far two results of an operation may be apart, proved and at a confidence."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim._arrays import as_floats
from fpsim._prediction_text import plain_number
from fpsim._tolerance_bugs import bugs, in_tolerances
from fpsim._tolerance_data import check_operation, check_shapes, measured, terms_of
from fpsim._tolerance_functions import tolerance_of_function
from fpsim._tolerance_pilots import LEAST, pilot
from fpsim._tolerance_tails import tail
from fpsim._tolerance_targets import Side, Target, target
from fpsim.elementary_errors import ENVELOPES
from fpsim.errors import InputError
from fpsim.formats import Format, as_format
from fpsim.laws import Law, law as as_law
from fpsim.prediction import sizes_of

SCHEMA: Final = "fpsim.tolerance/2"
CONFIDENCE: Final = 1.0 - 1e-6
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
        Of the whole assertion, all outputs together; 1 for an elementary function, which errs the same each time.
    outputs : int
        How many outputs an assertion has.
    worst_case : float or ndarray
        No difference is larger: proved for given data. For data of a law it is the largest of the pilot data, and not
        proved, and of an elementary function the largest that was measured. Of the shape of the result, or one number.
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
    shift : float or ndarray
        What the sides differ by since they round their operands differently: known for given data.
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
    shift: Any = 0.0
    _form: tuple[float, float] = field(default=(0.0, 0.0), repr=False, compare=False)
    _bugs: dict[str, float] = field(default_factory=dict, repr=False, compare=False)

    @property
    def rtol(self) -> float:
        """Relative part of the tolerance as one pair of numbers for all outputs."""
        return self._form[0]

    @property
    def atol(self) -> float:
        """Absolute part of the tolerance as one pair of numbers for all outputs."""
        return self._form[1]

    @property
    def mechanism(self) -> str:
        """What makes the results differ, in words."""
        from fpsim._tolerance_text import mechanism

        return mechanism(self)

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

    @property
    def false_alarms(self) -> float:
        """Assertions with this tolerance that are expected to fail on correct results, of 1,000: at most so many."""
        return 1000.0 * (1.0 - self.confidence)

    @property
    def smallest_error(self) -> float:
        """Relative error of one output, of the median size, that is caught."""
        with np.errstate(all="ignore"):
            ratio = np.asarray(self.probabilistic, np.float64) / np.asarray(self.scale, np.float64)
        ratio = ratio[~np.isnan(ratio)]
        return float(np.median(ratio)) if ratio.size else 0.0

    def power(self) -> dict[str, float]:
        """Return sizes of usual bugs in units of the tolerance; those above 1 are caught.

        Each is the largest change of an output, which decides whether an assertion over all outputs fails: of the data
        given, or of pilot data of the law. "a dropped term" leaves one term out of every output, the median one of 16;
        "TF32 instead of float32", of products, rounds the operands.
        """
        return dict(self._bugs)

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
            "shift": largest(np.abs(self.shift)),
            "mechanism": self.mechanism,
            "flags": list(self.flags),
            "false_alarms_per_1000_runs": self.false_alarms,
            "smallest_error": plain_number(self.smallest_error),
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
    op : {"sum", "dot", "matmul"} or str
        The operation; or an elementary function of float32, such as "exp".
    *inputs : array_like, or str or Law
        The operands; or laws of data with `shape`, as `fpsim.predict` takes them.
    strategy : str or Strategy, or a sequence of them
        One side; the other is the exact result. ``"any order"`` with settings, as in ``"any order+fma"``, is every
        binary tree with that arithmetic; ``"any split_k(2..16)"`` is every strategy of these numbers; ``"any of: a; b"``
        and a sequence are any of these. Of an elementary function an implementation, see
        `fpsim.elementary_errors.ENVELOPES`, ``"any of: numpy; torch.cuda"``, or ``"any library"``.
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
    The hard bound is the sum over the inexact nodes of min(ulp/2, smaller operand). For several strategies it is the
    largest of theirs; for any order, sorted partial sums are at most those of the terms added by falling magnitude, so
    that the sum of half of those ulps is a bound, and so is ``(1 + v)**n - 1``, as no tree is higher than n - 1. The probabilistic one is
    ``abs(drift)`` and a Chernoff tail bound of at most ``sigma * sqrt(2 ln(2 M / (1 - confidence)))`` for M outputs, with
    the variance of the local errors of the partial sums that occur, where dropped bits are random. Where a long chain has
    an error beyond a twentieth of a typical term, roundings are no longer fair, and what they drift by is measured on
    permutations of the terms. Of structured data (constant, sorted, smooth) mean and variance are measured on copies of the
    data that are scaled by random factors near 1.

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
    if op in ENVELOPES:
        return tolerance_of_function(op, inputs, strategy, between, axis, shape, dtype, outputs, rng)
    check_operation(op)
    sides = _sides(strategy, between)
    if inputs and all(isinstance(x, str | Law) for x in inputs):
        return _of_law(op, inputs, sides, confidence, shape, as_format(dtype), outputs, rng)
    if shape is not None:
        message = "shape is for data of a law, not for given arrays"
        raise InputError(message)
    return _of_data(op, inputs, sides, confidence, axis, outputs, rng)


def _sides(strategy: Side | None, between: tuple[Side, Side] | None) -> list[Target]:
    if (strategy is None) == (between is None):
        message = "say strategy=... for a tolerance against the exact result, or between=(one, other) for two results"
        raise InputError(message)
    if strategy is not None:
        return [target(strategy)]
    sides = () if between is None or isinstance(between, str) else tuple(between)
    if len(sides) != 2:
        message = f"between takes two sides, not {between!r}"
        raise InputError(message)
    return [target(side) for side in sides]


def _names(sides: list[Target]) -> tuple[str, ...]:
    return tuple(map(str, sides)) if len(sides) == 2 else (str(sides[0]), "exact")


def _of_data(
    op: str, inputs: tuple[Any, ...], sides: list[Target], confidence: float, axis: Any, outputs: int | None, rng: Any
) -> Tolerance:  # fmt: skip
    check_operation(op, len(inputs))
    pairs = [as_floats(x) for x in inputs]
    arrays, form = tuple(values for values, _ in pairs), pairs[0][1]
    check_shapes(op, arrays, axis)
    one = measured(op, sides, arrays, axis, rng)
    count = int(np.size(one.hard)) if outputs is None else int(outputs)
    known = np.abs(one.shift) + one.shift_slack
    hard = one.hard + known
    soft = np.abs(one.drift) + one.fixed + known + tail(one.variance, one.largest, (1 - confidence) / count)
    # Where float64 does not hold the variance, nothing but the bound is known.
    soft = np.where(one.variance > LEAST, np.minimum(hard, soft), hard)
    out = Tolerance(
        op, _names(sides), confidence, count, hard[()], soft[()], np.sqrt(one.variance)[()], one.drift[()],
        one.scale[()], one.term, one.flags, True, str(form), terms_of(op, arrays, one.scale.size), one.shift[()],
    )  # fmt: skip
    found = in_tolerances([bugs(op, arrays, axis, form)], soft)
    return dataclasses.replace(out, _form=_collapsed(soft, one.scale), _bugs=found)


def _of_law(
    op: str, given: tuple[Any, ...], sides: list[Target], confidence: float, shape: Any, form: Format,
    outputs: int | None, rng: Any,
) -> Tolerance:  # fmt: skip
    from fpsim.formats import _generator

    sizes = sizes_of(op, shape)
    wanted = 1 if op == "sum" else 2
    laws = [as_law(one) for one in given] * (wanted if len(given) == 1 else 1)
    if len(laws) != wanted:
        message = f"{op} takes one law, or one for each of its {wanted} operands, not {len(laws)}"
        raise InputError(message)
    count = {"sum": math.prod(sizes[:-1]), "dot": 1, "matmul": sizes[0] * sizes[-1]}[op]
    count = int(outputs) if outputs is not None else count
    one = pilot(op, sizes, laws, form, sides, (1 - confidence) / count, _generator(rng))
    out = Tolerance(
        op, _names(sides), confidence, count, one.hard, one.soft, one.sigma, one.drift, one.scale, one.term, one.flags,
        False, str(form), sizes[1] if op == "matmul" else sizes[-1],
    )  # fmt: skip
    return dataclasses.replace(out, _form=(0.0, one.soft * _MARGIN), _bugs=in_tolerances(one.bugs, one.soft))


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
