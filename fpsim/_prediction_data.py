"""The operands that predictions are made for: given arrays, or repeated draws from a law."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim import bounds
from fpsim.errors import InputError
from fpsim.exact import Exact
from fpsim.formats import as_format
from fpsim.laws import Law
from fpsim.strategies import Strategy

_Array = NDArray[Any]

# Operands of many repeats are treated at once where they are small; a long sum runs faster on its own.
_BATCH_ELEMENTS, _BATCH_OUTPUTS, _ALONE = 1 << 22, 1 << 20, 1 << 16


@dataclass(frozen=True, slots=True)
class Batch:
    """Operands of many outputs at once; a dot product is a product of one row and one column."""

    op: str
    inputs: tuple[_Array, ...]
    axis: Any

    @property
    def stacked_dots(self) -> bool:
        """Whether these are several dot products: stacks of one row each, and of one column each."""
        return self.op == "dot" and self.inputs[0].ndim > 1

    def emulated(self, chosen: Strategy) -> _Array:
        """Return the results of a strategy."""
        import fpsim

        if self.op == "sum":
            return np.asarray(fpsim.sum(self.inputs[0], chosen, axis=self.axis))
        left, right = self.inputs
        product = np.asarray(fpsim.matmul(left, right, chosen))
        return product.reshape(-1) if self.stacked_dots else product

    def exact(self) -> Exact:
        """Return the exact results."""
        from fpsim import exact

        if self.op == "sum":
            return exact.sum(self.inputs[0], axis=self.axis)
        a, b = self.inputs
        if self.stacked_dots:
            return exact.dot(a[:, 0, :], b[:, :, 0])
        return exact.dot(a, b) if self.op == "dot" else exact.matmul(a, b)

    def from_numpy(self) -> _Array:
        """Return the results of NumPy on this machine."""
        with np.errstate(all="ignore"):
            if self.op == "sum":
                return np.asarray(np.sum(self.inputs[0], axis=self.axis))
            a, b = self.inputs
            if self.stacked_dots:
                return np.array([np.dot(x[0], y[:, 0]) for x, y in zip(a, b, strict=True)])
            return np.asarray(np.dot(a, b) if self.op == "dot" else np.matmul(a, b))


class Given:
    """Arrays of the caller."""

    repeats, seed = 1, None

    def __init__(self, op: str, inputs: Sequence[Any], axis: Any) -> None:
        from fpsim._arrays import as_floats

        bounds.check_operation(op, len(inputs))
        names = ("x",) if op == "sum" else ("a", "b")
        pairs = [as_floats(x, name=name) for x, name in zip(inputs, names, strict=True)]
        arrays = [values for values, _ in pairs]
        if any(values.size == 0 for values in arrays):
            message = f"{op} of empty arrays: there is no error to predict"
            raise InputError(message)
        if op == "dot" and any(values.ndim != 1 for values in arrays):
            message = f"dot takes two vectors, not arrays of {' and '.join(str(v.ndim) for v in arrays)} dimensions"
            raise InputError(message)
        if axis is not None and op != "sum":
            message = f"axis belongs to sums, not to {op}"
            raise InputError(message)
        self.op, self.inputs, self.axis = op, tuple(arrays), axis
        self.data = ("array",) * len(arrays)
        self.dtype = str(max((form for _, form in pairs), key=lambda form: (form.precision, form.emax)))
        self.shape = arrays[0].shape
        if op == "matmul" and arrays[1].ndim > 1:
            self.shape = (*self.shape, arrays[1].shape[-1])

    def batches(self) -> Iterator[Batch]:
        """Yield the operands, batch by batch."""
        yield Batch(self.op, self.inputs, self.axis)

    @property
    def count(self) -> int:
        """Number of batches."""
        return 1


class Drawn:
    """Operands of a law; each repeat has a random stream of its own, so that batches do not matter."""

    axis = -1

    def __init__(
        self, op: str, shape: tuple[int, ...], laws: tuple[Law, ...], repeats: int, rng: Any, dtype: Any
    ) -> None:
        from fpsim.formats import _generator

        self.op, self.shape, self.laws, self.repeats = op, shape, laws, repeats
        self.data = tuple(str(one) for one in laws)
        self.form = as_format(dtype)
        self.dtype = str(self.form)
        self.seed = int(rng) if isinstance(rng, int | np.integer) else None
        self.streams = _generator(rng).spawn(repeats)
        elements = max(math.prod(part) for part in self._parts())
        outputs = math.prod(shape[:-1]) if op == "sum" else shape[0] * shape[2] if op == "matmul" else 1
        self.size = max(1, min(_BATCH_ELEMENTS // elements, _BATCH_OUTPUTS // outputs)) if elements <= _ALONE else 1

    def _parts(self) -> list[tuple[int, ...]]:
        if self.op == "sum":
            return [self.shape]
        if self.op == "dot":
            return [(1, self.shape[0]), (self.shape[0], 1)]
        m, k, n = self.shape
        return [(m, k), (k, n)]

    def batches(self) -> Iterator[Batch]:
        """Yield the operands, batch by batch."""
        for first in range(0, self.repeats, self.size):
            streams = self.streams[first : first + self.size]
            drawn = []
            for one, part in zip(self.laws, self._parts(), strict=True):
                size = part if self.op != "dot" else (self.shape[0],)
                values = [one.draw(size, rng=stream, dtype=self.form).reshape(part) for stream in streams]
                stacked = np.stack(values) if len(values) > 1 else values[0][None]
                drawn.append(stacked.reshape(-1, part[-1]) if self.op == "sum" else stacked)
            yield Batch(self.op, tuple(drawn), self.axis if self.op == "sum" else None)

    @property
    def count(self) -> int:
        """Number of batches."""
        return -(-self.repeats // self.size)
