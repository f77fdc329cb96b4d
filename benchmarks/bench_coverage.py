"""Coverage and tightness of the probabilistic bound at 99.9 %: a table of cells op x strategy x law x n.

    python benchmarks/bench_coverage.py [--inputs 2000] [--numbers 20000000] [--smallest 100] [--largest 1000000]
        [--workers 1] [--ops sum dot] [--strategies serial pairwise] [--csv FILE]

Every input has the bound of its own data, for one output. Shown are the share of inputs whose error is not above it and
the 99.9 % point of error/bound, which should lie between 0.5 and 1, and the cells where it does not. A cell has at most
`--numbers` terms in all, so that long sums have fewer inputs; the table states how many. Constant data and 1/k are scaled
by a random factor, so that inputs differ.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from fpsim import study

STRATEGIES = {
    "sum": ("serial", "pairwise", "numpy_sum", "grid(32, 256)", "split_k(4)"),
    "dot": (
        "serial",
        "serial+fma",
        "pairwise",
        "lanes(16)+fma",
        "grid(32, 256)+fma",
        "split_k(4)+fma",
        "fused(8)+align(25)",
    ),
}
SIZES = (100, 1000, 10_000, 100_000, 1_000_000)


def constant(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return np.full(shape, 0.5 + rng.random())


def reciprocal(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return (0.5 + rng.random()) / np.arange(1.0, 1.0 + shape[-1]) + np.zeros(shape)


LAWS = ("uniform(0, 1)", "uniform(-1, 1)", "normal", "lognormal", "sorted(0, 1)", constant, reciprocal)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--inputs", type=int, default=2000)
    arguments.add_argument("--numbers", type=float, default=2e7)
    arguments.add_argument("--smallest", type=int, default=0)
    arguments.add_argument("--largest", type=int, default=10**6)
    arguments.add_argument("--seconds", type=float, default=float("inf"))
    arguments.add_argument("--workers", type=int, default=1)
    arguments.add_argument("--ops", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    arguments.add_argument("--strategies", nargs="+", help="some of those of the table, instead of all")
    arguments.add_argument("--csv", type=Path)
    given = arguments.parse_args()
    cells: list[study.CoverageCell] = []
    end = time.monotonic() + given.seconds
    print(f"{'op':4} {'strategy':20} {'law':15} {'n':>8} {'inputs':>6} {'covered':>8} {'99.9 %':>7} {'median':>7}")
    tasks = [
        (op, name, law, n, int(min(given.inputs, max(given.numbers // n, 20))))
        for op in given.ops
        for n in (n for n in SIZES if given.smallest <= n <= given.largest)
        for name in (s for s in STRATEGIES[op] if s in (given.strategies or (s,)))
        for law in LAWS
    ]
    with ProcessPoolExecutor(given.workers) as executor:
        for c in executor.map(cell, tasks):
            cells.append(c)
            print(
                f"{c.op:4} {c.order:20} {c.law:15} {c.n:8} {c.applied:6} {100 * c.covered:7.2f}%"
                f" {c.quantile:7.3f} {c.median:7.3f}",
                flush=True,
            )
            if time.monotonic() > end:
                executor.shutdown(cancel_futures=True)
                break
    summary(cells)
    if given.csv is not None:
        with given.csv.open("x", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(cells[0].to_dict()))
            writer.writeheader()
            writer.writerows(c.to_dict() for c in cells)
    return 0


def cell(task: tuple[str, str, Any, int, int]) -> study.CoverageCell:
    """Return one cell of the table."""
    op, name, law, n, inputs = task
    (found,) = study.coverage(
        op, orders=[name], arithmetics=[""], laws=[law], sizes=[n], progress=False, inputs=inputs
    ).cells
    return found


def summary(cells: list[study.CoverageCell]) -> None:
    inside = [c for c in cells if 0.5 <= c.quantile <= 1.0]
    over = [c for c in cells if c.quantile > 1.05]
    short = [c for c in cells if c.covered < 0.999]
    print(f"{len(inside)} of {len(cells)} cells between 0.5 and 1; {len(over)} above 1.05; {len(short)} cover < 99.9 %")
    for law in dict.fromkeys(c.law for c in cells):
        own = [c for c in cells if c.law == law]
        points = [c.quantile for c in own]
        print(
            f"{law:16} {sum(0.5 <= q <= 1.0 for q in points):3} of {len(own):3} between 0.5 and 1;"
            f" from {min(points):.2f} to {max(points):.2f}"
        )


if __name__ == "__main__":
    sys.exit(main())
