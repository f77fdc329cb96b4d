"""An operation with its inputs, as an explanation sees it: outputs that can be computed one by one, or all at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from fpsim import exact
from fpsim._arrays import as_floats, axes_of
from fpsim.errors import InputError
from fpsim.formats import FLOAT32, FLOAT64, Format, RoundingMode, as_format, round_to

if TYPE_CHECKING:
    from fpsim._exact_values import Exact
    from fpsim.strategies import Strategy

Floats = NDArray[Any]
OPERATIONS = ("sum", "dot", "matmul")
_TERMS = 4_000_000  # terms of sampled outputs held at once


@dataclass(frozen=True, eq=False)
class Operation:
    """A sum over axes, or a product of two vectors, matrices or stacks of matrices.

    Attributes
    ----------
    op : str
        "sum", "dot" or "matmul".
    inputs : tuple of ndarray
        As they came, in float16, float32 or float64.
    data : Format
        The widest format of the inputs.
    axis : int, tuple or None
        Of a sum.
    shape : tuple of int
        Of the result.
    n : int
        Terms of each output.
    """

    op: str
    inputs: tuple[Floats, ...]
    data: Format
    axis: Any
    shape: tuple[int, ...]
    n: int
    _left: Floats = field(repr=False)
    _right: Floats | None = field(repr=False)

    @property
    def size(self) -> int:
        """Number of outputs."""
        return int(np.prod(self.shape, dtype=np.int64))

    def exact(self) -> Exact:
        """Return the exact results."""
        if self.op == "sum":
            return exact.sum(self.inputs[0], axis=self.axis)
        return exact.matmul(*self.inputs)

    def whole(self, text: str) -> Floats:
        """Return all outputs under a strategy."""
        from fpsim import emulation

        plain, _, output = text.partition("+output(")
        if plain.endswith("+acc(float64)") and output.endswith(
            ")"
        ):  # the same in two steps, of which the first is fast
            form = as_format(output[:-1])
            kind = np.float32 if form.precision <= FLOAT32.precision else np.float64
            return np.asarray(round_to(self.whole(plain), form)).astype(kind)
        if self.op == "sum":
            return np.asarray(emulation.sum(self.inputs[0], text, axis=self.axis))
        a, b = self.inputs
        return np.asarray(emulation.matmul(a, b, text))

    def rounded(self, form: str, mode: RoundingMode) -> Operation | None:
        """Return the operation on inputs that are rounded to a format first; None where that changes nothing."""
        with np.errstate(over="ignore"):
            inputs = tuple(np.asarray(round_to(x, form, mode=mode)).astype(x.dtype) for x in self.inputs)
        same = all(np.array_equal(x, y, equal_nan=True) for x, y in zip(inputs, self.inputs, strict=True))
        return None if same else operation(self.op, inputs, axis=self.axis)

    def sample(self, generator: np.random.Generator, outputs: int = 64) -> Sample:
        """Return some outputs that a strategy computes together."""
        room = max(1, min(outputs, _TERMS // max(self.n, 1)))
        if self._right is None:
            chosen = _some(generator, self._left.shape[0], room)
            terms = np.ascontiguousarray(self._left[chosen])
            return Sample(self.op, chosen, terms, None)
        stack, m, n = self._left.shape[0], self._left.shape[1], self._right.shape[2]
        which = int(generator.integers(stack))
        columns = min(n, max(int(room**0.5), room // m, 1))
        rows = _some(generator, m, max(1, room // columns))
        across = _some(generator, n, columns)
        flat = (which * m + rows[:, None]) * n + across
        return Sample(self.op, flat.reshape(-1), self._left[which][rows], self._right[which][:, across])

    def sample_where(self, wanted: NDArray[np.bool], outputs: int = 64) -> Sample:
        """Return a sample with many of the marked outputs; others may be among them."""
        room = max(1, min(outputs, _TERMS // max(self.n, 1)))
        if self._right is None:
            chosen = np.flatnonzero(wanted)
            chosen = chosen[np.linspace(0, len(chosen) - 1, min(room, len(chosen))).astype(np.int64)]
            return Sample(self.op, chosen, np.ascontiguousarray(self._left[chosen]), None)
        stack, m, n = self._left.shape[0], self._left.shape[1], self._right.shape[2]
        marked = wanted.reshape(stack, m, n)
        which = int(np.argmax(marked.sum(axis=(1, 2))))
        columns = _most(marked[which].sum(axis=0), int(room**0.5))
        rows = _most(marked[which][:, columns].sum(axis=1), room // len(columns))
        flat = (which * m + rows[:, None]) * n + columns
        return Sample(self.op, flat.reshape(-1), self._left[which][rows], self._right[which][:, columns])

    def terms(self, outputs: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the exact terms, as far as float64 holds them, of outputs by flat index: (outputs, n)."""
        if self._right is None:
            return np.asarray(self._left[outputs], np.float64)
        m, n = self._left.shape[1], self._right.shape[2]
        stack, row, column = outputs // (m * n), outputs // n % m, outputs % n
        with np.errstate(all="ignore"):
            left = self._left[stack, row].astype(np.float64)
            return np.asarray(left * self._right[stack, :, column].astype(np.float64))

    def rounded_terms(self) -> NDArray[np.int64]:
        """Return for each output how many of its terms are not zero: adding zero rounds nothing, in any order."""
        if self._right is None:
            count = np.count_nonzero(self._left, axis=1)
        else:
            factors = [(x != 0).astype(np.float32 if self.n < 2**24 else np.float64) for x in (self._left, self._right)]
            count = np.rint(factors[0] @ factors[1])
        return np.asarray(count).astype(np.int64).reshape(self.shape)

    def exact_in(self, form: Format, magnitude: Floats) -> NDArray[np.bool]:
        """Tell which outputs every order computes without any rounding when it accumulates in a format.

        All terms are multiples of a power of two that the format holds, and no partial sum exceeds 2**precision of it.
        """
        with np.errstate(all="ignore"):
            if self._right is None:
                grid = lowest_bits(self._left, -1)
            else:
                grid = lowest_bits(self._left, -1)[:, :, None] + lowest_bits(self._right, -2)[:, None, :]
            grid = grid.reshape(self.shape)
            limit = np.ldexp(1.0, np.minimum(grid + form.precision, form.emax))
        return (np.asarray(magnitude) <= limit) & (grid >= form.emin - form.precision + 1)


@dataclass(frozen=True, eq=False)
class Sample:
    """Some outputs of an operation, by flat index, and the operands that give them."""

    op: str
    outputs: NDArray[np.int64]
    left: Floats
    right: Floats | None

    def probe(self, most: int = 6) -> tuple[Sample, NDArray[np.int64]]:
        """Return a few of these outputs, and their places among all."""
        if self.right is None:
            return Sample(self.op, self.outputs[:most], self.left[:most], None), np.arange(min(most, len(self.outputs)))
        columns = min(self.right.shape[1], most)
        rows = min(self.left.shape[0], max(1, most // columns))
        places = (np.arange(rows)[:, None] * self.right.shape[1] + np.arange(columns)).reshape(-1)
        return Sample(self.op, self.outputs[places], self.left[:rows], self.right[:, :columns]), places

    def evaluate(self, text: str | Strategy) -> Floats:
        """Return these outputs under a strategy, in the order of `outputs`."""
        from fpsim import emulation

        if self.right is None:
            return np.asarray(emulation.sum(self.left, text, axis=1)).reshape(-1)
        return np.asarray(emulation.matmul(self.left, self.right, text)).reshape(-1)


def operation(op: str, inputs: Any, /, *, axis: Any = None) -> Operation:
    """Return the operation, with its inputs checked.

    Raises
    ------
    InputError
        The operation is unknown, or the inputs do not fit it.
    """
    if op not in OPERATIONS:
        message = f"explain knows the operations {', '.join(OPERATIONS)}, not {op!r}"
        raise InputError(message)
    wanted = 1 if op == "sum" else 2
    given = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    if wanted == 1 and len(given) > 1 and not any(hasattr(x, "shape") for x in given):
        given = [given]  # plain numbers
    if len(given) != wanted:
        message = f"{op} has {wanted} input{'s' * (wanted > 1)}, not {len(given)}"
        raise InputError(message)
    names = ("x",) if op == "sum" else ("a", "b")
    pairs = [as_floats(x, name=name) for x, name in zip(given, names, strict=True)]
    arrays = tuple(array for array, _ in pairs)
    for array, name in zip(arrays, names, strict=True):
        if array.size == 0:
            message = f"input {name} is empty (shape {array.shape}): there is nothing to explain"
            raise InputError(message)
    data = max((form for _, form in pairs), key=lambda form: form.precision)
    if op == "sum":
        return _sum(arrays[0], data, axis)
    if axis is not None:
        message = f"axis belongs to a sum, not to {op}"
        raise InputError(message)
    return _product(op, arrays, data)


def _sum(values: Floats, data: Format, axis: Any) -> Operation:
    axes = axes_of(values.ndim, axis)
    kept = [i for i in range(values.ndim) if i not in axes]
    shape = tuple(values.shape[i] for i in kept)
    n = int(np.prod([values.shape[i] for i in axes], dtype=np.int64))
    terms = values.transpose((*kept, *axes)).reshape(-1, n)
    return Operation("sum", (values,), data, axis, shape, n, terms, None)


def _product(op: str, arrays: tuple[Floats, ...], data: Format) -> Operation:
    a, b = arrays
    shapes = f"{a.shape} and {b.shape}"
    if op == "dot" and (a.ndim, b.ndim) != (1, 1):
        message = f"dot takes two vectors, not shapes {shapes}; use matmul"
        raise InputError(message)
    if not a.ndim or not b.ndim:
        message = "matmul takes vectors and matrices, not single numbers"
        raise InputError(message)
    left, right = a[None, :] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
    if left.shape[-1] != right.shape[-2]:
        message = f"inputs of shapes {shapes} do not multiply: {left.shape[-1]} terms against {right.shape[-2]}"
        raise InputError(message)
    try:
        stack = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError as error:
        message = f"the leading dimensions of {shapes} do not broadcast"
        raise InputError(message) from error
    shape = (*stack, *(() if a.ndim == 1 else left.shape[-2:-1]), *(() if b.ndim == 1 else right.shape[-1:]))
    left = np.broadcast_to(left, (*stack, *left.shape[-2:])).reshape(-1, *left.shape[-2:])
    right = np.broadcast_to(right, (*stack, *right.shape[-2:])).reshape(-1, *right.shape[-2:])
    return Operation(op, arrays, data, None, shape, left.shape[-1], left, right)


def accumulator(data: Format, result: Format, /) -> Format:
    """Return the format that a careful routine accumulates in: float32, or float64 for float64 results or data."""
    return FLOAT64 if FLOAT64 in (data, result) and result == FLOAT64 else FLOAT32


def _some(generator: np.random.Generator, size: int, count: int) -> NDArray[np.int64]:
    """Return up to `count` distinct numbers below `size`, the first and last among them."""
    if size <= count:
        return np.arange(size, dtype=np.int64)
    chosen = {0, size - 1} if count > 2 else set()
    while len(chosen) < count:
        chosen.add(int(generator.integers(size)))
    return np.array(sorted(chosen), np.int64)


def _most(counts: NDArray[Any], limit: int) -> NDArray[np.int64]:
    """Return the places of the largest counts that are not zero, up to `limit` of them, in order."""
    chosen = np.argsort(counts, kind="stable")[::-1][: max(limit, 1)]
    return np.sort(chosen[counts[chosen] > 0]).astype(np.int64)


def lowest_bits(values: Floats, axis: int) -> NDArray[np.int64]:
    """Return along an axis the exponent of the largest power of two that divides every value; large for zeros."""
    mantissa, exponent = np.frexp(values.astype(np.float64))
    whole = np.where(np.isfinite(mantissa), np.ldexp(mantissa, 53), 0).astype(np.int64)
    lowest = whole & -whole
    bit = np.frexp(lowest.astype(np.float64))[1] - 1 + exponent.astype(np.int64) - 53
    return cast("NDArray[np.int64]", np.where(whole == 0, 10_000, bit).min(axis=axis))
