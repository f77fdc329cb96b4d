"""Compare NumPy's products with the rule `numpy_matmul`, bit for bit, on many random operands.

Usage: python benchmarks/numpy_products_bits.py [--count 10000] [--seed 0] [--kinds matvec,...] [--threads 1,2]
       [--data float64]

Runs the kernels of both cores that the rule knows, each in a process of its own (``OPENBLAS_CORETYPE``), on one and on
two threads, and counts the products with equal bits, with other bits, and those of which the rule says that it does
not know them. Needs a NumPy with OpenBLAS, threadpoolctl, and a processor with AVX-512.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl
from numpy.typing import NDArray

import fpsim
from fpsim.errors import UnknownOrderError

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from blas import PROCESSOR  # type: ignore[import-not-found]

_CORES = {"skylakex": "SkylakeX", "haswell": "Haswell"}
_KINDS = ("matvec", "vecmat", "matmul", "transposed", "syrk")
_LAWS = ("uniform", "normal", "wide", "zeros")
_REPEATS = 10  # products of each shape
_MOST = 2_000_000  # multiplications of a matrix product
#: Sizes at which something changes; each is drawn with its neighbours.
_EDGES = (2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 4096, 16384)

Floats = NDArray[Any]


def size(rng: np.random.Generator, most: int) -> int:
    """Return a size from 1 to `most`, log-uniform or near one of the edges."""
    edges = [edge for edge in _EDGES if edge < most]
    if edges and rng.random() < 0.5:
        return int(np.clip(rng.choice(edges) + rng.integers(-3, 4), 1, most))
    return int(np.exp(rng.uniform(0, np.log(most + 1))))


def values(rng: np.random.Generator, law: str, data: Any, *shape: int) -> Floats:
    """Return numbers of one of four laws, of either sign but for the first."""
    if law == "uniform":
        return rng.random(shape, data)
    x = rng.standard_normal(shape, data)
    if law == "wide":
        x *= np.exp2(rng.integers(-20, 21, shape)).astype(x.dtype)
    if law == "zeros":
        x[rng.random(shape) < 0.4] *= 0
    return x


def shapes(rng: np.random.Generator, kind: str) -> tuple[int, int, int]:
    """Return m, k and n of a product of this kind, now and then large enough for threads."""
    if kind in ("matvec", "vecmat"):
        if rng.random() < 0.05:
            k = int(np.exp(rng.uniform(np.log(2), np.log(250_000))))
            outputs = max(2, -(-460_800 // k) + int(rng.integers(-4, int(rng.choice([5, 200])))))
        else:
            k = size(rng, 6000)
            outputs = size(rng, max(2, min(20_000, 400_000 // k)))
        return (outputs, k, 1) if kind == "matvec" else (1, k, outputs)
    m = size(rng, 900)
    k = size(rng, 2500)
    if kind == "syrk":
        return min(m, max(2, int((_MOST / k) ** 0.5))), k, 0
    if rng.random() < 0.2:
        return m, k, max(2, min(2000, int(rng.integers(524_288, _MOST)) // (m * k)))
    return m, k, size(rng, max(2, min(900, _MOST // (m * k))))


def operands(rng: np.random.Generator, kind: str, data: str) -> Iterator[tuple[Floats, Floats]]:
    """Draw a shape and yield operands of it, in the memory orders that belong to the kind."""
    m, k, n = shapes(rng, kind)
    for repeat in range(_REPEATS):
        law = str(rng.choice(_LAWS))
        a, b = values(rng, law, data, m, k), values(rng, law, data, k, n)
        if kind == "matvec":
            yield (np.asfortranarray(a) if repeat % 2 else a), b[:, 0].copy()
        elif kind == "vecmat":
            yield a[0].copy(), (np.asfortranarray(b) if repeat % 2 else b)
        elif kind == "matmul":
            yield a, b
        elif kind == "syrk":
            a = np.asfortranarray(a) if repeat % 2 else a
            yield a, a.T
        else:
            left, right = ((True, False), (False, True), (True, True))[repeat % 3]
            yield (np.asfortranarray(a) if left else a), (np.asfortranarray(b) if right else b)


def compare(tally: Counter[str], a: Floats, b: Floats, strategy: str) -> None:
    """Count one product."""
    try:
        emulated = np.asarray(fpsim.matmul(a, b, strategy))
    except UnknownOrderError as error:
        tally["unknown"] += 1
        tally[f"unknown: {error}"] += 1
        return
    native = np.asarray(a @ b)
    bits = f"u{native.itemsize}"
    if np.array_equal(emulated.view(bits), native.view(bits)):
        tally["equal"] += 1
        return
    tally["different"] += 1
    where = np.argwhere(emulated.view(bits) != native.view(bits))
    if tally["different"] <= 5:
        print(f"DIFFERENT: {a.shape} @ {b.shape}, strides {a.strides} {b.strides}, {strategy}, {len(where)} outputs,",
              f"the first at {where[0].tolist()}, the last at {where[-1].tolist()}", flush=True)  # fmt: skip


def run(core: str, asked: argparse.Namespace) -> int:
    """Compare on the kernels that this process runs, and print a line for each kind and number of threads."""
    (blas,) = [pool for pool in threadpoolctl.threadpool_info() if pool["internal_api"] == "openblas"]
    version = ".".join(blas["version"].split(".")[:3])
    if blas["architecture"].lower() != core:
        print(f"{core}: NumPy runs the kernels of {blas['architecture']} here")
        return 1
    wrong = 0
    for threads in asked.threads:
        settings = f'core={core}, threads={threads}, version="{version}", data={asked.data}, processor={PROCESSOR}'
        for kind in asked.kinds:
            rng = np.random.default_rng([asked.seed, threads, _KINDS.index(kind)])
            tally: Counter[str] = Counter()
            drawn = set()
            start = time.perf_counter()
            with threadpoolctl.threadpool_limits(threads):
                while sum(tally[name] for name in ("equal", "unknown", "different")) < asked.count:
                    for a, b in operands(rng, kind, asked.data):
                        drawn.add((a.shape, b.shape))
                        compare(tally, a, b, f"numpy_matmul({settings})")
            wrong += tally["different"]
            print(f"{asked.data} {core:9} {version} {threads} {kind:11} {len(drawn):6} shapes {tally['equal']:7} equal "
                  f"{tally['unknown']:6} unknown {tally['different']:6} different "
                  f"{time.perf_counter() - start:6.0f} s", flush=True)  # fmt: skip
            for name in sorted(tally):
                if name.startswith("unknown:"):
                    print(f"    {tally[name]:6} {name}")
    return int(wrong > 0)


def main() -> int:
    """Compare on each core that runs here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(_KINDS))
    parser.add_argument("--threads", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2])
    parser.add_argument("--data", choices=("float32", "float64"), default="float32")
    parser.add_argument("--core", choices=_CORES, help="one core, in this process")
    asked = parser.parse_args()
    if asked.core:
        return run(asked.core, asked)
    status = 0
    for core, name in _CORES.items():
        environment = {**os.environ, "OPENBLAS_CORETYPE": name}
        command = [sys.executable, *sys.argv, "--core", core]
        status |= subprocess.run(command, env=environment, check=False).returncode
    return status


if __name__ == "__main__":
    raise SystemExit(main())
