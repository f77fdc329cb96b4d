"""Random arrays in random memory layouts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import reference


class Layouts:
    """Draws arrays of up to `largest` numbers: transposed, sliced, reversed, broadcast, byte-swapped, unaligned."""

    def __init__(self, rng: np.random.Generator, largest: int) -> None:
        self.rng = rng
        self.largest = largest

    def pick(self, items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def shape(self) -> list[int]:
        shape = []
        for _ in range(self.pick((1, 1, 2, 2, 3, 4))):
            top = self.pick((10, 30, 200, self.largest))
            shape.append(self.pick((1, 2, 3, *self.rng.integers(0, top, 5).tolist())))
        while math.prod(max(n, 1) for n in shape) > self.largest:
            axis = int(np.argmax(shape))
            shape[axis] = shape[axis] // 2
        return shape

    def array(self) -> tuple[Any, str]:
        """Return an array of float32 or float64 and what is special about its bytes."""
        shape = self.shape()
        base = [n if self.chance(0.5) else n * self.pick((1, 2, 3)) + self.pick((0, 0, 1, 3)) for n in shape]
        kind, dtype = self.pick(("uniform", "normal", "wide", "zeros")), self.pick((np.float32, np.float32, np.float64))
        x = reference.random_terms(self.rng, int(np.prod(base)), kind, dtype)
        x = x.reshape(base, order=self.pick("CCF")).transpose(self.rng.permutation(len(base)))
        cuts = [
            slice(None),
            slice(None),
            slice(None, None, -1),
            slice(None, None, 2),
            slice(None, None, -2),
            slice(1, None),
        ]
        x = x[tuple(self.pick([*cuts, slice(0, n // 2), slice(0, 1)]) for n in x.shape)]
        if self.chance(0.1) and 0 < x.size < self.largest // 8:
            axis = int(self.rng.integers(x.ndim))
            x = np.broadcast_to(x.take([0], axis), [*x.shape[:axis], self.pick((2, 9, 130)), *x.shape[axis + 1 :]])
        if self.chance(0.1):
            return x.astype(x.dtype.newbyteorder()), "byte-swapped"
        if self.chance(0.05) and x.size:
            return unaligned(x), "unaligned"
        return x, ""

    def axis(self, ndim: int) -> Any:
        """Return an axis argument: None, a number or a tuple."""
        several = tuple(self.rng.permutation(ndim)[: int(self.rng.integers(ndim + 1))].tolist())
        return self.pick((None, int(self.rng.integers(-ndim, ndim)), several))


def unaligned(x: Any) -> Any:
    out = np.empty(x.size * x.itemsize + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    out[...] = x
    return out
