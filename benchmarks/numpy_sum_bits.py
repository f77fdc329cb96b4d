"""Compare np.sum with the numpy_sum order, bit for bit, on many random arrays.

Usage: python benchmarks/numpy_sum_bits.py [number of arrays, default 10000] [seed, default 0]
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

import fpsim

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import reference
from layouts import Layouts


def vectors(rng: np.random.Generator, count: int, tally: Counter[str]) -> None:
    """Vectors and matrices of 0 to 10**6 numbers: contiguous, strided, reversed, by rows and columns, keepdims."""
    for _ in range(count):
        n = int(10 ** rng.uniform(0, 6)) if rng.random() < 0.95 else int(rng.integers(0, 10))
        kind = ("uniform", "normal", "wide")[int(rng.integers(3))]
        x = reference.random_terms(rng, n, kind)
        columns = max(1, int(10 ** rng.uniform(0, np.log10(n + 1))))
        matrix = x[: n // columns * columns].reshape(-1, columns)
        compare(tally, f"{kind}, contiguous", x)
        compare(tally, f"{kind}, strided", x[:: int(rng.integers(2, 5))])
        compare(tally, f"{kind}, reversed", x[::-1])
        compare(tally, f"{kind}, axis 0", matrix, axis=0)
        compare(tally, f"{kind}, axis 1, keepdims", matrix, axis=1, keepdims=True)


def layouts(rng: np.random.Generator, count: int, tally: Counter[str]) -> None:
    """Arrays of one to four axes: transposed, sliced, reversed, broadcast, byte-swapped, unaligned, float64."""
    draw = Layouts(rng, 200_000)
    for _ in range(count):
        x, special = draw.array()
        name = f"{x.ndim}-d {special or 'native'} {x.dtype.newbyteorder('=')}"
        compare(tally, name, x, axis=draw.axis(x.ndim), keepdims=draw.chance(0.3))


def compare(tally: Counter[str], name: str, x: np.ndarray, **where: object) -> None:
    expected, result = np.sum(x, **where), fpsim.sum(x, "numpy_sum", **where)
    tally[name] += 1
    if np.shape(result) != np.shape(expected) or not reference.same(result, expected).all():
        tally["WRONG"] += 1
        print(f"WRONG: {name}: shape {x.shape}, strides {x.strides}, {where}")


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    rng = np.random.default_rng(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    tally: Counter[str] = Counter()
    start = time.perf_counter()
    vectors(rng, count // 2, tally)
    layouts(rng, count - count // 2, tally)
    wrong = tally.pop("WRONG", 0)
    for name in sorted(tally):
        print(f"{tally[name]:8d}  {name}")
    print(f"NumPy {np.__version__}: {sum(tally.values())} sums of {count} arrays, {wrong} with other bits", end=" ")
    print(f"({time.perf_counter() - start:.0f} s)")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
