"""Time of an emulated float32 product beside NumPy's own product of the same matrices, in one run.

    python benchmarks/bench_matmul.py [--size 1024] [--repeats 9]

Every row times the emulation and ``a @ b`` in turn and prints the median of the ratios. OPENBLAS_THREAD_TIMEOUT is set
before NumPy is imported: without it OpenBLAS's idle threads spin for 0.1 s after a product and halve the speed of
whatever is timed next.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

import numpy as np

import fpsim

# Strategy and the ratio it should stay below.
ROWS = (
    ("serial+fma", 1.5),
    ("serial", 2.0),
    ("split_k(5)+fma", 1.5),
    ("split_k(5)", 2.0),
    ("chunks(32)+fma", 1.5),
    ("chunks(32)", 2.0),
    ("reverse+fma", 3.5),
    ("pairwise+fma", 3.5),
    ("pairwise", 3.5),
    ("pairwise(128)+fma", 3.5),
    ("fold+fma", 3.5),
    ("fold", 3.5),
    ("lanes(8)+fma", 3.5),
    ("lanes(64, combine=fold)", 3.5),
    ("interleaved(5, block=8)+fma", 3.5),
    ("interleaved(5, block=8)", 3.5),
    ("cascade(4, 16)+fma", 3.5),
    ("grid(4, 32)+fma", 3.5),
    ("grid(4, 32)", 3.5),
    ("numpy_sum+fma", 3.5),
    ("numpy_sum", 3.5),
    ("shuffle(1)+fma", 3.5),
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only", nargs="*", help="strategies to time instead of the list")
    options = parser.parse_args()
    n = options.size
    rng = np.random.default_rng(1)
    a, b = rng.random((n, n), np.float32), rng.random((n, n), np.float32)
    rows = [(text, float("nan")) for text in options.only] if options.only else ROWS
    print(f"{n}x{n}x{n} float32, {len(os.sched_getaffinity(0))} threads; emulated time over NumPy's, medians")
    for text, limit in rows:
        fpsim.matmul(a, b, text)
        ratios, native = [], []
        for _ in range(options.repeats):
            start = time.perf_counter()
            fpsim.matmul(a, b, text)
            middle = time.perf_counter()
            _ = a @ b
            end = time.perf_counter()
            ratios.append((middle - start) / (end - middle))
            native.append(end - middle)
        ratio = statistics.median(ratios)
        mark = "" if not ratio > limit else "  above"
        print(f"{text:32} {ratio:6.2f}  (limit {limit}; NumPy {1e3 * statistics.median(native):.1f} ms){mark}")


if __name__ == "__main__":
    main()
