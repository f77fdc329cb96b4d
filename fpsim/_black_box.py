"""A routine of unknown order as a function of its terms, for all its outputs at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim import emulation
from fpsim._arrays import as_floats
from fpsim.errors import FpsimError, InputError
from fpsim.formats import FLOAT32, Format
from fpsim.laws import law
from fpsim.strategies import Strategy

Array = NDArray[Any]
# Where most terms cancel, what a wide accumulator or a compensation still loses is seen in the result; where terms are
# tiny, the flushing of subnormal numbers is.
_LAWS = (
    "normal(0, 1)", "wide(-30, 30)", "cancelling wide(-30, 30)", "uniform(-1, 1)", "wide(-12, 12)",
    "cancelling wide(-12, 12)", "tiny", "normal(1, 1)", "cancelling normal(0, 1)",
)  # fmt: skip
_NARROW_LAWS = (
    "normal(0, 1)", "{wide}", "cancelling {wide}", "uniform(-1, 1)", "cancelling {wide}", "cancelling normal(0, 1)",
    "tiny", "cancelling {wide}", "wide(-6, 6)",
)  # fmt: skip
OPERATIONS = ("sum", "mean", "dot", "matvec", "vecmat", "matmul")


class BlackBox:
    """A routine that is called with operands of one shape and format.

    Parameters
    ----------
    function : callable
        Takes one operand (sum, mean) or two (products) and returns its result.
    op : str
        One of `OPERATIONS`.
    shape : tuple of int
        (n,) for vectors, (m, k) for matvec, (k, n) for vecmat, (m, k, n) for matmul.
    form : Format
        The format of the operands; they come as float16, float32 or float64, or as float32 where NumPy lacks it.

    Attributes
    ----------
    n : int
        Number of terms of each output.
    outputs : int
        Number of outputs.
    calls : int
        How often the routine was called.
    """

    def __init__(self, function: Callable[..., Any], op: str, shape: tuple[int, ...], form: Format) -> None:
        if op not in OPERATIONS:
            message = f"unknown operation {op!r}; use one of {', '.join(OPERATIONS)}"
            raise InputError(message)
        wanted = {"matvec": "(m, k)", "vecmat": "(k, n)", "matmul": "(m, k, n)"}.get(op, "(n,)")
        if len(shape) != wanted.count(",") + (len(wanted) > 4) or min(shape, default=0) < 1:
            message = f"the shape of a {op} is {wanted} with numbers of at least 1, not {shape}"
            raise InputError(message)
        self._function = function
        self.op, self.shape, self.form = op, shape, form
        self.operand_shapes: tuple[tuple[int, ...], ...] = {
            "sum": (shape,), "mean": (shape,), "dot": (shape, shape), "matvec": (shape, shape[1:]),
            "vecmat": (shape[:1], shape), "matmul": (shape[:2], shape[1:]),
        }[op]  # fmt: skip
        self.output_shape: tuple[int, ...] = {
            "matvec": shape[:1], "vecmat": shape[1:], "matmul": shape[::2],
        }.get(op, ())  # fmt: skip
        self.n = shape[1] if op in ("matvec", "matmul") else shape[0]
        self.outputs = int(np.prod(self.output_shape, dtype=np.int64))
        self.dtype = np.dtype(str(form)) if str(form) in ("float16", "float32", "float64") else np.dtype(np.float32)
        self.calls = 0

    @property
    def multiplies(self) -> bool:
        """Whether terms are products."""
        return len(self.operand_shapes) == 2

    def run(self, *operands: Array) -> Array:
        """Return the result of the routine as float16, float32 or float64.

        Raises
        ------
        InputError
            The routine fails, or its result has another shape than that of the operation.
        """
        self.calls += 1
        try:
            # A routine may keep or change what it is given.
            with np.errstate(all="ignore"):  # operands may overflow in it
                result = self._function(*(x.copy() for x in operands))
        except FpsimError:
            raise
        except Exception as error:
            shapes = " and ".join(str(x.shape) for x in operands)
            message = f"the routine failed for {operands[0].dtype} of shape {shapes}: {type(error).__name__}: {error}"
            raise InputError(message) from error
        values, _ = as_floats(result, name="the result")
        if values.shape != self.output_shape and values.size == self.outputs and values.size == 1:
            values = values.reshape(self.output_shape)
        if values.shape != self.output_shape:
            message = (
                f"the routine returned an array of shape {values.shape}; a {self.op} of shape {self.shape} has"
                f" {self.output_shape or 'one number'}"
            )
            raise InputError(message)
        return values

    def draw(self, text: str, rng: np.random.Generator) -> tuple[Array, ...]:
        """Return operands of a law, rounded to the format.

        With ``cancelling LAW`` most terms cancel others exactly; ``tiny`` are terms among the subnormal numbers.
        """
        word, _, rest = text.partition(" ")
        cancels = word == "cancelling"
        laws = [rest if cancels else text] * len(self.operand_shapes)
        if word == "tiny":
            low = self.form.emin - self.form.precision
            laws = [f"wide({low}, {self.form.emin + 4})", "uniform(-2, 2)"][: len(laws)]
        operands = [
            law(one).draw(shape, rng=rng, dtype=self.form).astype(self.dtype)
            for one, shape in zip(laws, self.operand_shapes, strict=True)
        ]
        if cancels and self.n >= 4:
            half = (self.n - 1) // 2
            places = rng.permutation(self.n)
            one, other = places[:half], places[half : 2 * half]
            first = operands[0]
            first[..., other] = -first[..., one]  # terms are the last axis of the first operand
            for x in operands[1:]:  # and the first axis of the second
                x[other] = x[one]
        return tuple(operands)

    def emulate(self, strategy: Strategy, operands: tuple[Array, ...]) -> Array:
        """Return the result under a strategy."""
        functions: dict[str, Callable[..., Any]] = {"sum": emulation.sum, "mean": emulation.mean}
        function: Callable[..., Any] = functions.get(self.op, emulation.matmul)
        return np.asarray(function(*operands, strategy))

    def operands_of(self, terms: Array) -> tuple[Array, ...]:
        """Return operands for which every output is the sum of these terms, powers of two or 0 of any sign.

        A term that the format does not hold is written as a product of two numbers that it does.
        """
        first = terms.astype(np.float64)
        second = np.ones(self.n)
        if self.multiplies:
            large, small = self.form.max, self.form.smallest_subnormal
            beyond = (np.abs(first) > large) | ((np.abs(first) < small) & (first != 0))
            _, exponent = np.frexp(first)
            half = np.where(beyond, (exponent - 1) // 2, 0)
            second = np.ldexp(second, half)
            first = first / second
        if not self.multiplies:
            return (first.astype(self.dtype),)
        return self.spread(first, second)

    def spread(self, first: Array, second: Array) -> tuple[Array, Array]:
        """Return operands for which every output is the sum of first[i] * second[i]."""
        left, right = self.operand_shapes
        a, b = first.astype(self.dtype), second.astype(self.dtype)
        if len(left) == 2:
            a = np.ascontiguousarray(np.broadcast_to(a, left))
        if len(right) == 2:
            b = np.ascontiguousarray(np.broadcast_to(b[:, None], right))
        return a, b

    def of_terms(self, terms: Array) -> NDArray[np.float64]:
        """Return every output, as one axis, for terms that are powers of two or 0."""
        with np.errstate(all="ignore"):
            values = self.run(*self.operands_of(terms)).astype(np.float64).reshape(-1)
        return values * self.n if self.op == "mean" else values


def probe_values(form: Format, multiplies: bool) -> tuple[float, float]:
    """Return the unit and the mask of masking probes: far enough apart to absorb the unit in any accumulator.

    The smallest unit against the largest mask whose products do not overflow (Xie et al., FPRev, USENIX ATC 2025, take
    1 for the unit, which a narrow format's largest number does not absorb in a wider accumulator).
    """
    if form.includes(FLOAT32) and form != FLOAT32:
        return 2.0**-200, 2.0**500
    if form.emax >= FLOAT32.emax:  # float32, tf32, bfloat16
        return 2.0**-60, 2.0**100
    tiny, large = form.smallest_subnormal, math.ldexp(1.0, form.emax)
    return (tiny * tiny, large * large) if multiplies and form.emax - form.emin < 20 else (tiny, large)


def laws_of(form: Format, /) -> tuple[str, ...]:
    """Return the laws that operands of a format are drawn from, as `BlackBox.draw` reads them."""
    if form.emax > 100:
        return _LAWS
    # As wide as the format: else a float32 accumulator loses nothing, and any order of it has the same bits.
    wide = f"wide({max(form.emin - form.precision + 5, -20)}, {form.emax - 3})"
    return tuple(text.format(wide=wide) for text in _NARROW_LAWS)
