"""Real pairs of results against their tolerances: NumPy and recorded products of an H200, and all routines here.

    python benchmarks/tolerance_pairs.py OUTPUTS.npz [--implementations]

The file holds `mm/{m}x{k}x{n}/{kind}/A`, `B`, `numpy.f32`, `torch.f32`, `cupy.f32`, `torch.tf32`, `torch.bf16_f32`, ...
Every true pair has to pass at the default confidence, by each output's own tolerance and as one pair rtol and atol; and
every bug has to fail: one dropped k, TF32 passed off as float32, a transposed operand, a tile that is off by one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fpsim
from fpsim.errors import FpsimError, UnknownOrderError
from fpsim.testing import assert_close

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from test_tensor_cores import strategy_of  # type: ignore[import-not-found]

CPU = 'numpy_matmul(core=skylakex, threads=1, version="0.3.31")'
GPU = {"torch.f32": "profile:h200/cublas-13.1", "cupy.f32": "profile:h200/cupy-14.2"}
UNITS = {f"torch.{kind}": kind for kind in ("tf32", "bf16_f32", "f16_f32", "bf16", "f16")}
BUGS = ("dropped k", "TF32", "transposed", "off by one")


def passes(actual: Any, expected: Any, tol: fpsim.Tolerance) -> bool:
    try:
        assert_close(actual, expected, tol)
    except AssertionError:
        return False
    return True


def bugs(a: Any, b: Any, compute: Callable[[Any, Any], Any], tf32: Any) -> Iterator[tuple[str, Any]]:
    """Yield results with a bug, of a product whose right one `compute` gives."""
    right = compute(a, b)
    yield "dropped k", compute(np.ascontiguousarray(a[:, :-1]), np.ascontiguousarray(b[:-1]))
    if tf32 is not None:
        yield "TF32", tf32
    if min(b.shape) > 1:
        yield "transposed", compute(a, np.ascontiguousarray(b.T).reshape(b.shape))
    if min(right.shape) > 1:
        tile = right.copy()
        part = tile[:16, :16]
        part[...] = np.roll(right, -1, axis=1)[:16, :16]
        yield "off by one", tile


def sides(shape: str, name: str, a: Any, b: Any) -> list[tuple[str, tuple[Any, Any]]]:
    """Return the tolerances that a recorded pair is held to: of its own strategies, and of any order."""
    if name in GPU:
        return [("own", (CPU, GPU[name])), ("any order", (CPU, "any order+fma"))]
    gemv = 1 in (a.shape[0], b.shape[1])
    text = "any order+fma" if gemv and name == "torch.tf32" else strategy_of(shape, UNITS[name])
    return [("own", (CPU, text))]


def recorded(path: str) -> int:
    wrong = skipped = 0
    totals = dict.fromkeys(("passed", "true", *BUGS), 0)
    counts = dict.fromkeys(BUGS, 0)
    with np.load(path, allow_pickle=False) as file:
        cases = sorted(name.removesuffix("/A") for name in file.files if name.startswith("mm/") and name.endswith("/A"))
        for case in cases:
            a, b, cpu = file[f"{case}/A"], file[f"{case}/B"], file[f"{case}/numpy.f32"]
            shape = case.split("/")[1]
            for name in (*GPU, *UNITS):
                if f"{case}/{name}" not in file.files:
                    continue
                gpu = file[f"{case}/{name}"]
                try:
                    held = sides(shape, name, a, b)
                except (FpsimError, KeyError) as error:  # no rule for this product
                    skipped += 1
                    print(f"{case:28} {name:14} skipped    no strategy is known: {error}")
                    continue
                for what, pair in held:
                    try:
                        tol = fpsim.tolerance("matmul", a, b, between=pair)
                    except UnknownOrderError as error:
                        skipped += 1
                        print(f"{case:28} {name:14} skipped    {what}: {error}")
                        continue
                    good = passes(cpu, gpu, tol)
                    if np.isfinite(tol.atol):  # no pair of numbers allows for results that may overflow
                        good = good and np.allclose(cpu, gpu, **tol.kwargs("numpy"))
                    totals["true"] += 1
                    totals["passed"] += good
                    wrong += not good
                    with np.errstate(all="ignore"):
                        used = np.nanmax(np.abs(cpu.astype(np.float64) - gpu) / tol.probabilistic)
                    unit = 1 not in (a.shape[0], b.shape[1])  # TF32 is not used for vectors
                    tf32 = file.get(f"{case}/torch.tf32") if name in GPU and unit else None
                    caught = []
                    for bug, result in bugs(a, b, lambda x, y: fpsim.matmul(x, y, "serial+fma"), tf32):
                        found = not passes(result, gpu, tol)
                        counts[bug] += 1
                        totals[bug] += found
                        caught.append(f"{bug} {'fails' if found else 'PASSES'}")
                    print(
                        f"{case:28} {name:14} {what:10} {'passes' if good else 'FAILS'} at {used:.2f}  {'; '.join(caught)}"
                    )
    print(f"true pairs that pass: {totals['passed']} of {totals['true']}; skipped: {skipped}")
    for bug in BUGS:
        print(f"{bug}: caught in {totals[bug]} of {counts[bug]}")
    return wrong


def implementations() -> int:
    from fpsim.devices import implementations as known

    wrong = 0
    rng = np.random.default_rng(0)
    numpy_strategy = {"sum": "numpy_sum", "dot": "openblas_sdot", "matmul": "numpy_matmul"}
    for one in known():
        if not one.available:
            continue
        for op in ("sum", "dot", "matmul"):
            if op not in one.routines:
                continue
            for law in ("uniform(0, 1)", "normal"):
                shapes: Any = {"sum": [(20_000,)], "dot": [(20_000,)] * 2, "matmul": [(40, 300), (300, 50)]}[op]
                given = [fpsim.law(law).draw(shape, rng=rng) for shape in shapes]
                result = one.run(op, *given)
                try:
                    other = str(one.strategy(op, *given))
                except UnknownOrderError:  # LLVM is free to order the sum, which it does in lanes of vectors
                    other = "any lanes(1..64, combine=fold)" if one.name == "numba.fastmath" else "any order"
                call: Any = {"sum": np.sum, "dot": np.dot, "matmul": np.matmul}[op]
                expected = call(*given)
                tol = fpsim.tolerance(op, *given, between=(numpy_strategy[op], other))
                good = passes(expected, result, tol)
                less = [x[..., :-1] if i == 0 else x[:-1] for i, x in enumerate(given)]
                dropped = passes(call(*less), result, tol)
                wrong += (not good) + dropped
                print(
                    f"{one.name:16} {op:7} {law:14} {'passes' if good else 'FAILS'}; dropped term "
                    f"{'PASSES' if dropped else 'fails'}  ({other})"
                )
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?")
    parser.add_argument("--implementations", action="store_true")
    given = parser.parse_args()
    wrong = recorded(given.file) if given.file else 0
    wrong += implementations() if given.implementations or not given.file else 0
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
