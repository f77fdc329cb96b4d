"""How long `fpsim.explain` takes, as a ratio to NumPy's own product or sum in the same run.

Run with ``python benchmarks/bench_explain.py``; it takes some seconds, and prints a table last. The shortest of several
runs counts, after one that compiles.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import fpsim

REPEATS = 3


def fastest(call: Callable[[], Any]) -> float:
    """Return the seconds of the fastest of some calls, after one that does not count."""
    call()
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(400, 400)).astype(np.float32), rng.normal(size=(400, 400)).astype(np.float32)
    x = rng.normal(size=10**6).astype(np.float32)
    serial = fpsim.matmul(a, b, "serial")
    tensor = fpsim.matmul(a, b, "tensor_core(arch=hopper, type=tf32)+operands(tf32)")
    products = {
        "NumPy and separate": {"first": a @ b, "second": serial},
        "separate and split-K with FMA": {"first": serial, "second": fpsim.matmul(a, b, "split_k(4)+fma")},
        "separate and TF32": {"first": serial, "second": tensor},
        "neither reproduced": {"first": (a.astype(np.float64) @ b).astype(np.float32), "second": a @ b},
    }
    sums = {
        "NumPy and serial": {"first": x.sum(), "second": fpsim.sum(x, "serial")},
        "NumPy and 32 lanes": {"first": x.sum(), "second": fpsim.sum(x, "lanes(32, combine=fold)")},
    }
    cases: list[tuple[str, str, dict[str, Any], Any, Callable[[], Any]]] = []
    cases += [("400x400x400", name, sides, (a, b), lambda: a @ b) for name, sides in products.items()]
    cases += [("10**6 terms", name, sides, x, x.sum) for name, sides in sums.items()]
    rows = []
    for size, name, sides, inputs, plain in cases:
        op = "sum" if inputs is x else "matmul"
        taken = fastest(lambda op=op, sides=sides, inputs=inputs: fpsim.explain(sides, op=op, inputs=inputs))  # type: ignore[misc]
        base = fastest(plain)
        found = fpsim.explain(sides, op=op, inputs=inputs)
        rows.append(f"| {op} | {size} | {name} | {taken:.2f} | {taken / base:.0f} | {found.verdict} |")
        print(rows[-1], flush=True)
    print("\n| operation | size | sides | seconds | times NumPy's own | verdict |\n|---|---|---|---|---|---|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
