"""Ways to add float32 numbers, side by side: errors, results over permutations of the terms, and time beside ``np.sum``.

    python benchmarks/remedies.py [--terms 1000000] [--orders 200]

Needs Numba. The loops are compiled as written, for one core, without any fast-math option. Prints a table.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

import fpsim

Way = Callable[[Any], Any]


@numba.njit
def serial(x: Any) -> Any:
    """Add term after term."""
    total = np.float32(0)
    for value in x:
        total += value
    return total


@numba.njit
def lanes(x: Any) -> Any:
    """Add in 32 accumulators, as SIMD code does, and then these by halves: one order, whatever the machine."""
    sums = np.zeros(32, np.float32)
    whole = x.size // 32 * 32
    for first in range(0, whole, 32):
        for lane in range(32):
            sums[lane] += x[first + lane]
    for i in range(whole, x.size):
        sums[i - whole] += x[i]
    half = 16
    while half:
        for lane in range(half):
            sums[lane] += sums[lane + half]
        half //= 2
    return sums[0]


@numba.njit
def kahan(x: Any) -> Any:
    """Add with Kahan's correction."""
    total, error = np.float32(0), np.float32(0)
    for value in x:
        y = value - error
        after = total + y
        error = (after - total) - y
        total = after
    return total


@numba.njit
def neumaier(x: Any) -> Any:
    """Add with the sum of all rounding errors beside (Neumaier 1974)."""
    total, error = np.float32(0), np.float32(0)
    for value in x:
        after = total + value
        if abs(total) >= abs(value):
            error += (total - after) + value
        else:
            error += (value - after) + total
        total = after
    return total + error


@numba.njit
def wide(x: Any) -> Any:
    """Add in float64, and round once."""
    total = 0.0
    for value in x:
        total += value
    return np.float32(total)


#: What each does, the strategy whose bits it is seen to have, if any, and how it is computed.
WAYS: dict[str, tuple[str | None, Way]] = {
    "term after term": ("serial+start(0.0)", serial),
    "`np.sum` (blocks, pairwise)": ("numpy_sum", np.sum),
    "32 accumulators, fixed order": ("interleaved(32, combine=fold)+start(0.0)", lanes),
    "Kahan": ("serial+start(0.0)+kahan", kahan),
    "Neumaier": ("serial+start(0.0)+neumaier", neumaier),
    "float64": ("serial+start(0.0)+acc(float64)+output(float32)", wide),
    "`np.sum`, `dtype=float64`": (None, lambda x: np.float32(np.sum(x, dtype=np.float64))),
    "`fpsim.exact.sum`, rounded once": (None, lambda x: fpsim.exact.sum(x).round("float32")),
}  # fmt: skip


def data_sets(n: int) -> dict[str, Any]:
    """Return positive numbers, and some that cancel to about 10**-6 and 10**-12 of their size."""
    rng = np.random.default_rng(n)
    half = rng.standard_normal(n * 9 // 20).astype(np.float32)
    small = rng.random(n - 2 * half.size).astype(np.float32)
    found = {"well": rng.random(n, np.float32)}
    for name, scale in (("ill", 1e-5), ("very ill", 1e-11)):
        found[name] = rng.permutation(np.concatenate([half, -half, small * np.float32(scale)]))
    return found


def seconds(way: Way, x: Any) -> float:
    """Return the shortest time of 40 calls, which other work on the machine disturbs least."""
    times = []
    for _ in range(40):
        start = time.perf_counter()
        way(x)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--terms", type=int, default=1_000_000)
    parser.add_argument("--orders", type=int, default=200)
    options = parser.parse_args()
    data = data_sets(options.terms)
    cells: dict[str, list[str]] = {name: [] for name in WAYS}
    for kind, x in data.items():
        exact = math.fsum(x)
        unit = float(np.spacing(np.float32(abs(exact))))
        size = float(np.abs(x.astype(np.float64)).sum())
        print(f"{kind}: {x.size} terms, condition number {size / abs(exact):.3g}")
        rng = np.random.default_rng(0)
        results: dict[str, list[float]] = {name: [] for name in WAYS}
        for number in range(options.orders):
            y = rng.permutation(x)
            for name, (text, way) in WAYS.items():
                got = np.float32(way(y))
                results[name].append(float(got))
                if number == 0 and text is not None and (expected := fpsim.sum(y, text)) != got:
                    print(f"{name}: {got!r}, but {text} gives {expected!r}")
        for name, got in results.items():
            errors = np.abs(np.array(got) - exact) / unit
            cells[name] += [f"{np.median(errors):.2g}, {errors.max():.2g}", str(len(set(got)))]
    usual = seconds(np.sum, data["well"])
    print(f"np.sum: {1e3 * usual:.3g} ms; math.fsum: {seconds(math.fsum, data['well']) / usual:.0f} times that")
    print("| sum |", " ".join(f"ulps, {kind} | results |" for kind in data), "time / `np.sum` |")
    print("|---|", "---|---|" * len(data), "---|", sep="")
    for name, (_, way) in WAYS.items():
        print(f"| {name} | {' | '.join(cells[name])} | {seconds(way, data['well']) / usual:.1f} |")


if __name__ == "__main__":
    main()
