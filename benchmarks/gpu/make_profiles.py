"""Reveal the sums, dot products and products of the GPU libraries that run here, and write profiles.

Usage: python benchmarks/gpu/make_profiles.py --device h200 -o FOLDER [--seconds 240] [--workers 12]
Every claim is proved by 200 replays; what could not be established is left out and listed. One file for each library.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

VECTORS = (4, 7, 8, 16, 31, 33, 64, 100, 128, 256, 400, 511, 1000, 1024, 4096)
# What is recorded elsewhere, matrices with one row or column, rows of one product taken by themselves; then small,
# middle and large outputs for several depths, and squares.
_PRODUCTS = (
    "400x400x400 1x400x400 2x400x400 16x400x400 64x400x400 200x400x400 400x400x1 400x400x64 1x1000x64 1x4096x1024"
    " 33x77x29 17x129x65 48x320x32 128x512x16 16x1024x32 32x128x48 16x400x16 16x4096x16 16x64x16 64x256x64"
    " 128x1024x128 1024x64x1024 1024x400x1024 1024x512x1024 10x784x128 128x784x10 128x784x128 32x768x3072"
    " 32x3072x768 8x512x512 4x100x4 5x40x3 100x10x100 1000x3x1000 512x2048x512"
    " 16x16x16 16x100x16 16x256x16 64x16x64 64x64x64 64x100x64 64x400x64 64x1024x64 64x4096x64 256x16x256 256x64x256"
    " 256x100x256 256x256x256 256x400x256 256x1024x256 256x4096x256 8x8x8 32x32x32 50x50x50 100x100x100 128x128x128"
    " 200x200x200 300x300x300 500x500x500 512x512x512 1000x1000x1000 1024x1024x1024"
)
PRODUCTS = _PRODUCTS.split()


def settle(number: Any) -> None:
    """Give a worker one core of its own: emulators take as many threads as they may."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    with number.get_lock():
        number.value += 1
        mine = number.value
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[mine % len(cores)]})


def work(task: tuple[str, str, tuple[int, ...]]) -> tuple[tuple[str, str, tuple[int, ...]], Any]:
    """Reveal one case; return the result or the error as text."""
    from fpsim import reveal
    from fpsim.devices import implementations

    name, op, shape = task
    (implementation,) = implementations([name])
    try:
        return task, reveal(lambda *x: implementation.run(op, *x), op=op, shape=shape)
    except Exception as error:  # noqa: BLE001 - one case must not end the others
        return task, f"{type(error).__name__}: {error}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="gpu", help="the first part of the profiles' names")
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 4))
    parser.add_argument("--only", nargs="*", help="names of implementations")
    parser.add_argument("-o", "--output", default=os.environ.get("OUT", "."))
    options = parser.parse_args()

    from fpsim.devices import implementations

    able = [one for one in implementations(options.only) if one.available and one.kind == "gpu"]
    able = [one for one in able if one.name.partition(".")[0] in ("torch", "cupy", "jax")]
    tasks = [(one.name, op, (n,)) for one in able for op in ("sum", "dot") if op in one.routines for n in VECTORS]
    shapes = [tuple(map(int, text.split("x"))) for text in PRODUCTS]
    tasks += [(one.name, "matmul", shape) for one in able if "matmul" in one.routines for shape in shapes]
    print(f"{len(tasks)} cases of {', '.join(one.name for one in able)}", file=sys.stderr)
    results: dict[str, list[Any]] = defaultdict(list)
    failed: list[str] = []
    start = time.monotonic()
    context = multiprocessing.get_context("spawn")
    with context.Pool(options.workers, settle, (context.Value("i", 0),)) as pool:
        running = pool.imap_unordered(work, tasks)
        for _ in range(len(tasks)):
            try:
                (name, op, shape), result = running.next(timeout=max(1.0, options.seconds - (time.monotonic() - start)))
            except multiprocessing.TimeoutError:
                break
            what = f"{name} {op} {'x'.join(map(str, shape))}"
            if isinstance(result, str):
                failed.append(f"{what}: {result}")
                continue
            results[name].append(result)
            if not result.found:
                failed.append(f"{what}: {' | '.join(result.evidence.notes) or 'not established'}")
        pool.terminate()
    print_table(able, results, failed, len(tasks), time.monotonic() - start, options)
    return 0


def print_table(able: Any, results: Any, failed: list[str], total: int, seconds: float, options: Any) -> None:
    import numpy as np

    from fpsim.profiles.recording import profile_of, save

    for line in failed:
        print(f"open: {line}")
    print(f"\n{sum(map(len, results.values()))} of {total} cases in {seconds:.0f} s")
    for one in able:
        own = sorted(results[one.name], key=lambda r: (r.op, r.shape))
        found = [r for r in own if r.found]
        for r in found:
            text = str(r.strategy) if r.strategy is not None else f"{len(r.parts)} parts"
            print(f"{one.name:12} {r.op:7} {'x'.join(map(str, r.shape)):16} {r.evidence.calls:6} {text[:70]}")
        profile = profile_of(
            own, name=f"{options.device}/{one.name}-{one.version}", device=one.device, implementation=one.name,
            versions={one.library: one.version, "NumPy": np.__version__},
            notes=["contiguous operands in C order at multiples of 256 bytes, float32 without TF32"],
        )  # fmt: skip
        path = Path(options.output) / f"{one.name}.json"
        path.unlink(missing_ok=True)
        save(profile, path)
        print(f"{one.name}: {len(found)} of {len(own)} established")


if __name__ == "__main__":
    sys.exit(main())
