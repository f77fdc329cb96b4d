"""Time exact sums, dot products and products beside math.fsum, NumPy, xsum and mpmath, as ratios within one run.

    python benchmarks/bench_exact.py [--repeats 9]

Every row times fpsim and its peer in turn and prints medians. xsum is optional: without it its rows are named and
skipped. Sums and dot products run on one thread, products on all. OPENBLAS_THREAD_TIMEOUT is set before NumPy is
imported: without it OpenBLAS's idle threads spin for 0.1 s after a product and halve the speed of whatever runs next.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

import mpmath
import numpy as np

from fpsim import exact

N = 10**6
SIZE = 400


def laws(shape: Any) -> dict[str, Any]:
    """Float32 data of narrow, usual, wide and full range."""
    rng = np.random.default_rng(1)
    normal = rng.standard_normal(shape)
    return {
        "U(0,1)": rng.random(shape, np.float32),
        "normal": normal.astype(np.float32),
        "normal x 2^U(-20,20)": (normal * np.exp2(rng.uniform(-20, 20, shape))).astype(np.float32),
        "2^U(-140,120)": np.exp2(rng.uniform(-140, 120, shape)).astype(np.float32),
    }


def compare(ours: Callable[[], Any], peer: Callable[[], Any], repeats: int) -> tuple[float, float, float]:
    """Medians in ms of fpsim and its peer, timed in turn, and the median of their ratios."""
    ours()
    peer()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        ours()
        middle = time.perf_counter()
        peer()
        times.append((middle - start, time.perf_counter() - middle))
    mine, other = zip(*times, strict=True)
    return statistics.median(mine) * 1e3, statistics.median(other) * 1e3, statistics.median(a / b for a, b in times)


def row(label: str, name: str, figures: tuple[float, float, float], limit: float | None = None) -> None:
    mine, other, ratio = figures
    goal = "" if limit is None else f"   (at most {limit:g})"
    print(f"{label:34} {mine:9.3f} ms   {name:22} {other:9.3f} ms   ratio {ratio:8.4f}{goal}", flush=True)


def sums(repeats: int, xsum: Any) -> None:
    for law, x in laws(N).items():
        x64 = x.astype(np.float64)
        label = f"sum of 10^6, {law}"

        def ours(x: Any = x) -> Any:
            return exact.sum(x).round("float64")

        row(label, "math.fsum (float64)", compare(ours, lambda v=x64: math.fsum(v), min(repeats, 5)), 0.025)
        row(label, "np.sum float32", compare(ours, lambda v=x: np.sum(v), repeats))
        if xsum:
            row(label, "xsum large (float64)", compare(ours, lambda v=x64: _xsum(xsum, v), repeats), 0.5)
        small = x[: N // 100].astype(np.float64).tolist()
        mine, other, _ = compare(ours, lambda v=small: mpmath.fsum(v), 3)
        row(label, "mpmath.fsum (10^4 x 100)", (mine, other * 100, mine / (other * 100)))


def dots(repeats: int, xsum: Any) -> None:
    for law, x in laws(N).items():
        y = np.random.default_rng(2).permutation(x)
        x64, y64 = x.astype(np.float64), y.astype(np.float64)
        label = f"dot of 10^6, {law}"

        def ours(x: Any = x, y: Any = y) -> Any:
            return exact.dot(x, y).round("float64")

        row(
            label,
            "fsum of float64 products",
            compare(ours, lambda v=x64, w=y64: math.fsum(v * w), min(repeats, 5)),
            0.025,
        )
        row(label, "np.dot float64", compare(ours, lambda v=x64, w=y64: v @ w, repeats))
        if xsum:
            row(label, "xsum large (float64)", compare(ours, lambda v=x64, w=y64: _xsum(xsum, v, w), repeats), 0.5)


def _xsum(xsum: Any, *operands: Any) -> float:
    accumulator = xsum.xsum_large()
    (accumulator.add if len(operands) == 1 else accumulator.add_dot)(*operands)
    return float(accumulator.round())


def products(repeats: int) -> None:
    rng = np.random.default_rng(3)
    shape = (SIZE, SIZE)
    data = laws(shape) | {"2^U(-30,30)": np.exp2(rng.uniform(-30, 30, shape)).astype(np.float32)}
    data["normal float64"] = rng.standard_normal(shape)
    for law, a in data.items():
        b = np.ascontiguousarray(a.T)
        a64, b64 = a.astype(np.float64), b.astype(np.float64)
        figures = compare(lambda a=a, b=b: exact.matmul(a, b), lambda a=a64, b=b64: a @ b, repeats)
        row(f"product of {SIZE}^3, {law}", "float64 @", figures, None if "140" in law else 25)
        c = a @ b
        figures = compare(lambda a=a, b=b, c=c: exact.matmul(a, b).ulp_error(c), lambda a=a64, b=b64: a @ b, repeats)
        row(f"  with its errors in ulps, {law}", "float64 @", figures)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    try:
        xsum = importlib.import_module("xsum")
    except ImportError:
        xsum = None
        print("xsum is not installed: its rows are left out (python -m pip install xsum)")
    with np.errstate(over="ignore"):
        sums(options.repeats, xsum)
        dots(options.repeats, xsum)
        products(options.repeats)


if __name__ == "__main__":
    main()
