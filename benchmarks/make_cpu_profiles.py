"""Reveal sums, dot products and products of the CPU libraries that run here, and write profiles.

Usage: python benchmarks/make_cpu_profiles.py IMPLEMENTATION [--name zen4/numpy-2.4] [--extend OLD.json] -o FILE.json
IMPLEMENTATION is one of `fpsim check --list`, such as numpy or torch.cpu. OPENBLAS_CORETYPE=Haswell chooses OpenBLAS's
kernels. Every claim is proved by 200 replays; what could not be established is listed in the notes. With --extend the cases of a profile are kept,
and only what it lacks is revealed.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from fpsim import reveal
from fpsim.devices import implementations
from fpsim.devices.base import Implementation
from fpsim.devices.operations import operation
from fpsim.errors import UnknownOrderError
from fpsim.formats import FLOAT32
from fpsim.profiles import load
from fpsim.profiles.recording import profile_of, save

VECTORS = (4, 7, 8, 16, 31, 33, 64, 100, 128, 256, 400, 511, 1000, 1024, 4096)
_PRODUCTS = (
    "4x100x4 5x40x3 8x8x8 16x16x16 3x1000x3 16x100x16 33x77x29 17x129x65 48x320x32 32x32x32 64x64x64 64x256x64"
    " 1x400x400 400x400x1 10x784x128 100x10x100 100x100x100 128x512x16 32x768x64 200x200x200"
)
PRODUCTS = _PRODUCTS.split()


def predicted(one: Implementation, op: str, shape: tuple[int, ...]) -> list[str]:
    """Return the strategy that is known for a case, to be tried first."""
    operands = operation(op).draw(shape, "normal(0, 1)", rng=np.random.default_rng(0), dtype=FLOAT32)
    try:
        return [str(one.strategy(op, *operands))]
    except UnknownOrderError:
        return []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("implementation")
    parser.add_argument("--name", default="cpu/profile")
    parser.add_argument("--seconds", type=float, default=1200.0)
    parser.add_argument("--extend", help="a profile whose cases are kept")
    parser.add_argument("--note", action="append", default=[], help="what else was held fixed")
    parser.add_argument("-o", "--output", required=True)
    options = parser.parse_args()

    (one,) = (one for one in implementations() if one.name == options.implementation)
    shapes = [tuple(map(int, text.split("x"))) for text in PRODUCTS]
    tasks: list[tuple[str, tuple[int, ...]]] = [(op, (n,)) for op in ("sum", "dot") for n in VECTORS]
    tasks += [("matmul", shape) for shape in shapes]
    tasks += [("matvec", shape) for shape in ((33, 77), (64, 256), (400, 400))]
    wanted = list(tasks)
    old = load(options.extend) if options.extend else None
    kept = {(case.op, case.shape) for case in old.cases} if old else set()
    tasks = [task for task in tasks if task not in kept]
    results: list[Any] = []
    start = time.monotonic()
    for op, shape in tasks:
        if time.monotonic() - start > options.seconds:
            print(f"stopped before {op} {shape}", file=sys.stderr)
            break
        rules = predicted(one, op, shape)
        found = reveal(lambda *x, op=op: one.run(op, *x), op=op, shape=shape, strategies=rules, probe=True)
        results.append(found)
        text = str(found.strategy) if found.strategy else f"{len(found.parts)} parts"
        evidence = found.evidence
        print(
            f"{op:7} {'x'.join(map(str, shape)):12} {evidence.calls:6} {evidence.seconds:6.1f} {text[:90]}", flush=True
        )
        if not found.found:
            print("   ", " | ".join(evidence.notes) or evidence.counterexample, flush=True)
    profile = profile_of(
        results, name=options.name, device=one.device, implementation=one.name, versions={one.library: one.version},
        notes=["contiguous operands in C order", *options.note],
    )  # fmt: skip
    if old:
        order = {(op, shape): place for place, (op, shape) in enumerate(wanted)}
        cases = sorted((*old.cases, *profile.cases), key=lambda case: order.get((case.op, case.shape), len(order)))
        notes = [note for note in old.notes if not note.startswith("no strategy was found")]
        notes = list(dict.fromkeys((*notes, *profile.notes)))
        profile = dataclasses.replace(old, recorded=profile.recorded, cases=tuple(cases), notes=tuple(notes))
    Path(options.output).unlink(missing_ok=True)
    save(profile, options.output)
    print(f"{sum(r.found for r in results)} of {len(results)} established")
    return 0


if __name__ == "__main__":
    sys.exit(main())
