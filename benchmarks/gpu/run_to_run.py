"""Run-to-run differences on a CUDA GPU beside their prediction, and the sum that has none.

    python benchmarks/gpu/run_to_run.py --out results [--runs 1000] [--launches 10000]
        [--only atomics,reproducible,time,remedies]
    python benchmarks/gpu/run_to_run.py --verify results/run_to_run.npz

Needs numba-cuda, and CuPy for the times; PyTorch for index_add_. Writes ``run_to_run.npz`` (the results of all runs, and
the orders in which blocks arrived) and ``run_to_run.json``, and prints a table last.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import fpsim
from fpsim.devices import cuda as reproducible

GRID, BLOCK, WARP = 132, 256, 32
LAWS = ("uniform(0,1)", "normal")
SIZES = (100_000, 1_000_000)
#: What arrives in each kind of run.
STRATEGIES = {
    "element": "shuffle+ftz",
    "warp": f"cuda_reduce({GRID * BLOCK // WARP}, {WARP}, warp=fold, second=shuffle+ftz)",
    "block": f"cuda_reduce({GRID}, {BLOCK}, warp=fold, second=shuffle+ftz)",
    "index_add_": "shuffle+ftz",
}


def kernels() -> dict[str, Any]:
    """Return the kernels that add to one number by atomic additions."""
    from numba import cuda, float32

    @cuda.jit
    def element(x: Any, out: Any, tickets: Any, arrived: Any) -> None:  # noqa: ARG001
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            cuda.atomic.add(out, 0, x[i])

    def collected(warps: bool) -> Any:
        @cuda.jit
        def kernel(x: Any, out: Any, tickets: Any, arrived: Any) -> None:
            sums = cuda.shared.array(WARP, float32)
            thread, lane = cuda.threadIdx.x, cuda.threadIdx.x % WARP
            total = float32(0.0)
            for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
                total += x[i]
            for step in range(5):
                total += cuda.shfl_down_sync(0xFFFFFFFF, total, 16 >> step)
            if warps:
                if lane == 0:
                    cuda.atomic.add(out, 0, total)
                return
            if lane == 0:
                sums[thread // WARP] = total
            cuda.syncthreads()
            total = sums[lane] if lane < cuda.blockDim.x // WARP else float32(0.0)
            if thread < WARP:
                for step in range(5):
                    total += cuda.shfl_down_sync(0xFFFFFFFF, total, 16 >> step)
                if thread == 0:
                    if arrived.size > 1:
                        arrived[cuda.blockIdx.x] = cuda.atomic.add(tickets, 0, 1)
                    cuda.atomic.add(out, 0, total)

        return kernel

    return {"element": element, "warp": collected(True), "block": collected(False)}


def runs_of(kind: str, x: np.ndarray, runs: int, found: dict[str, Any]) -> np.ndarray:
    """Return the results of so many runs."""
    if kind == "index_add_":
        import torch

        source = torch.from_numpy(x).cuda()
        index = torch.zeros(x.size, dtype=torch.int64, device="cuda")
        out = torch.zeros((runs, 1), device="cuda")
        for run in range(runs):
            out[run].index_add_(0, index, source)
        return out.cpu().numpy()[:, 0]
    from numba import cuda

    values, nothing = cuda.to_device(x), cuda.to_device(np.zeros(1, np.int32))
    out = np.empty(runs, np.float32)
    for run in range(runs):
        total = cuda.to_device(np.zeros(1, np.float32))
        found[kind][GRID, BLOCK](values, total, nothing, nothing)
        out[run] = total.copy_to_host()[0]
    return out


def arrivals(x: np.ndarray, runs: int, found: dict[str, Any]) -> np.ndarray:
    """Return the places in which the blocks arrived, shape (runs, blocks)."""
    from numba import cuda

    values, out = cuda.to_device(x), np.empty((runs, GRID), np.int16)
    for run in range(runs):
        tickets, arrived = cuda.to_device(np.zeros(1, np.int32)), cuda.to_device(np.zeros(GRID, np.int32))
        found["block"][GRID, BLOCK](values, cuda.to_device(np.zeros(1, np.float32)), tickets, arrived)
        out[run] = arrived.copy_to_host()
    return out


def check_atomics(runs: int, saved: dict[str, Any]) -> list[dict[str, Any]]:
    """Run all kinds of atomic additions and compare their spread with the prediction."""
    found, rows = kernels(), []
    for number, law in enumerate(LAWS):
        for n in SIZES:
            x = fpsim.law(law).draw(n, rng=number)
            saved[f"arrived/{law}/{n}"] = arrivals(x, 100, found)
            for kind, strategy in STRATEGIES.items():
                try:
                    results = runs_of(kind, x, runs, found)
                except ImportError as error:
                    print(f"{kind}: {error}", file=sys.stderr)
                    continue
                saved[f"runs/{kind}/{law}/{n}"] = results
                s = fpsim.spread("sum", x, strategy=strategy, runs=40)
                test = s.test(results)
                std = float(results.std(dtype=np.float64))
                row = {"kind": kind, "law": law, "n": n, "std": std, "predicted": float(s.predicted_std or 0)}
                row |= {"ratio": float(s.predicted_std) / std if std else float("nan"), "verdict": test.verdict}
                row |= {"distinct": int(np.unique(results).size), "expected": s.expected_distinct(runs)}
                row |= {"outside": test.outside}
                rows.append(row)
                print(row, file=sys.stderr, flush=True)
    return rows


def check_reproducible(launches: int, seed: int = 0) -> dict[str, Any]:
    """Launch the reproducible sum with random geometry and count what is not the exactly rounded sum."""
    from numba import cuda

    rng = np.random.default_rng(seed)
    wrong = patterns = 0
    for number in range(5):
        n = (1_000_000, 999_983, 1, 4097, 300_000)[number]
        x = rng.standard_normal(n).astype(np.float32)
        if number in (1, 3):
            x = (x * 2.0 ** rng.uniform(-120, 100, n)).astype(np.float32)
        expected = np.float32(fpsim.exact.sum(x).round("float32"))
        values, seen = cuda.to_device(x), set()
        for _ in range(launches // 5):
            grid, block = int(rng.integers(1, 2000)), 2 ** int(rng.integers(5, 11))
            got = reproducible.reproducible_sum(values, grid=grid, block=block)
            seen.add(got.tobytes())
            wrong += got.tobytes() != expected.tobytes()
        patterns = max(patterns, len(seen))
    return {"launches": launches // 5 * 5, "wrong": wrong, "most patterns of one array": patterns}


def check_time(n: int = 10**8) -> dict[str, Any]:
    """Time the reproducible sum, whole calls, beside CuPy's sum."""
    import cupy
    from numba import cuda

    x = cupy.random.default_rng(0).standard_normal(n, dtype=cupy.float32)
    values = cuda.as_cuda_array(x)
    out: dict[str, Any] = {"n": n}

    def cupy_sum() -> None:
        x.sum().item()

    def own() -> None:
        reproducible.reproducible_sum(values)

    for name, call in (("cupy.sum", cupy_sum), ("reproducible_sum", own)):
        call()
        times = []
        for _ in range(30):
            cuda.synchronize()
            start = time.perf_counter()
            call()
            cuda.synchronize()
            times.append(time.perf_counter() - start)
        out[f"{name} ms"] = 1e3 * float(np.median(times))
    places = cuda.to_device(np.zeros(reproducible.PLACES, np.int64))
    events = cuda.event(), cuda.event()
    launched = reproducible.kernel(reproducible.BLOCK)
    for name, call in (
        ("cupy.sum", x.sum),
        ("reproducible_sum", lambda: launched[1056, reproducible.BLOCK](values, places)),
    ):
        events[0].record(cuda.default_stream())
        for _ in range(20):
            call()
        events[1].record(cuda.default_stream())
        events[1].synchronize()
        out[f"{name} on the device ms"] = cuda.event_elapsed_time(*events) / 20
    out["ratio"] = out["reproducible_sum ms"] / out["cupy.sum ms"]
    return out


def well_and_ill(n: int) -> dict[str, np.ndarray]:
    """Return float32 numbers whose sum has the condition number 1, and some that cancel to one in a million."""
    rng = np.random.default_rng(n)
    half = rng.standard_normal(n * 9 // 20).astype(np.float32)
    small = (rng.random(n - 2 * half.size) * 1e-5).astype(np.float32)
    return {"well": rng.random(n, np.float32), "ill": rng.permutation(np.concatenate([half, -half, small]))}


def remedies(values: Any, found: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return, for each way to add, a function that gives the sum, and one that launches its kernels and no more."""
    import cupy
    from numba import cuda

    from fpsim.devices import _cuda_kernels, _cuda_sums

    x, grid, block = cuda.as_cuda_array(values), 1056, BLOCK
    nothing, one = cuda.to_device(np.zeros(1, np.int32)), cupy.zeros(1, cupy.float32)
    total = cuda.as_cuda_array(one)

    def atomics() -> None:
        one.fill(0)
        found["block"][grid, block](x, total, nothing, nothing)

    def launched(how: str) -> Any:
        if how == "pairwise":
            rooms, n = [], x.size
            while n > 1:
                n = -(-n // (_cuda_kernels.BLOCK * _cuda_kernels.ITEMS))
                rooms.append(cuda.device_array(n, np.float32))

            def tiles() -> None:
                given = x
                for room in rooms:
                    _cuda_kernels.compiled("two_pass", "sum")[room.size, _cuda_kernels.BLOCK](given, given, room)
                    given = room

            return tiles
        totals, errors = (cuda.device_array(grid, _cuda_sums.accumulator(how)) for _ in range(2))
        first, last = (_cuda_sums.kernel(how, block, last=one) for one in (False, True))

        def passes() -> None:
            first[grid, block](x, totals, errors)
            last[1, block](totals, errors, total)

        return passes

    def added() -> float:
        atomics()
        return float(one.get()[0])

    places = cuda.to_device(np.zeros(reproducible.PLACES, np.int64))
    whole = reproducible.kernel(block)
    ways: dict[str, tuple[Any, Any]] = {"block atomics": (added, atomics)}
    ways["cupy.sum"] = (lambda: float(values.sum()), values.sum)
    for how in reproducible.HOW:
        ways[how] = (functools.partial(reproducible.ordered_sum, values, how=how), launched(how))
    ways["reproducible_sum"] = (lambda: reproducible.reproducible_sum(values), lambda: whole[grid, block](x, places))
    return ways


def check_remedies(saved: dict[str, Any], runs: int = 200, n: int = 10**7) -> list[dict[str, Any]]:
    """Add well and ill conditioned numbers in all ways: errors, distinct results, and times beside CuPy's."""
    import cupy
    from numba import cuda

    warnings.simplefilter("ignore")
    found, rows = kernels(), []
    for kind, x in well_and_ill(n).items():
        exact = math.fsum(x.tolist())
        unit = float(np.spacing(np.float32(abs(exact))))
        base = cupy.asarray(x)
        values = base.copy()
        ways = remedies(values, found)
        same = {name: {np.float32(way()).tobytes() for _ in range(runs)} for name, (way, _) in ways.items()}
        results: dict[str, list[float]] = {name: [] for name in ways}
        rng = cupy.random.RandomState(1)
        for _ in range(runs):
            values[...] = base[rng.permutation(n)]
            for name, (way, _) in ways.items():
                results[name].append(float(way()))
        for name, got in results.items():
            errors = np.abs(np.array(got) - exact) / unit
            row = {"data": kind, "sum": name, "median ulp": float(np.median(errors)), "max ulp": float(errors.max())}
            row |= {"distinct, same order": len(same[name]), "distinct, permuted": len(set(got))}
            rows.append(row)
    for size in (10**6, 999_983):
        for kind, x in well_and_ill(size).items():
            values = cupy.asarray(x)
            for how in reproducible.HOW:
                saved[f"remedies/{how}/{kind}/{size}"] = np.float32(reproducible.ordered_sum(values, how=how))
    for size in (n, 10 * n):
        ways = remedies(cupy.random.RandomState(0).random_sample(size, dtype=cupy.float32), found)
        for name, (way, launch) in ways.items():
            times = []
            for _ in range(20):
                cuda.synchronize()
                start = time.perf_counter()
                way()
                times.append(time.perf_counter() - start)
            events = cuda.event(), cuda.event()
            launch()
            events[0].record(cuda.default_stream())
            for _ in range(20):
                launch()
            events[1].record(cuda.default_stream())
            events[1].synchronize()
            row = {"n": size, "sum": name, "device ms": cuda.event_elapsed_time(*events) / 20}
            rows.append(row | {"call ms": 1e3 * float(np.median(times))})
    return rows


def verify(path: Path) -> None:
    """Compare recorded ordered sums with their strategies, bit for bit; needs no GPU."""
    with np.load(path, allow_pickle=False) as saved:
        recorded = {name: saved[name] for name in saved if name.startswith("remedies/")}
    for name, got in recorded.items():
        _, how, kind, size = name.split("/")
        text = reproducible.ordered_sum_strategy(int(size), how=how)
        expected = fpsim.sum(well_and_ill(int(size))[kind], text)
        print(name, text, "equal" if got.tobytes() == expected.tobytes() else f"{got!r}, not {expected!r}")


def main() -> None:
    """Run the parts that are asked for, and print a table last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--verify", type=Path)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--launches", type=int, default=10_000)
    parser.add_argument("--only", default="atomics,reproducible,time")
    options = parser.parse_args()
    if options.verify is not None:
        verify(options.verify)
        return
    if options.out is None:
        parser.error("--out is missing")
    options.out.mkdir(parents=True, exist_ok=True)
    saved: dict[str, Any] = {}
    report: dict[str, Any] = {}
    for part in options.only.split(","):
        start = time.perf_counter()
        try:
            if part == "atomics":
                report[part] = check_atomics(options.runs, saved)
            elif part == "reproducible":
                report[part] = check_reproducible(options.launches)
            elif part == "remedies":
                report[part] = check_remedies(saved)
            else:
                report[part] = check_time()
        except Exception as error:  # noqa: BLE001 - the other parts are worth having
            report[part] = repr(error)
        print(f"{part}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    np.savez_compressed(options.out / "run_to_run.npz", **saved)
    (options.out / "run_to_run.json").write_text(json.dumps(report, indent=1, default=str))
    for part, found in report.items():
        for row in found if isinstance(found, list) else [found]:
            print(part, row)


if __name__ == "__main__":
    main()
