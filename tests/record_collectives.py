"""Record all-reduces: ``python tests/record_collectives.py gloo OUT.npz``, or ``openmpi`` or ``mpich`` for MPI.

The vectors come from integers, as in `record`; of a result only a digest is kept, and of one Gloo message its bits. MPI runs
need mpi4py and the library's ``mpiexec`` on the path; OUT.npz may hold the recordings of the other library. NCCL is
recorded by ``benchmarks/gpu/nccl_check.py``.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from record import terms

RANKS = (2, 3, 4, 5, 6, 8)
TYPES: dict[str, Any] = {
    "float32": np.float32, "float64": np.float64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16,
}  # fmt: skip
SHOWN = 33  # elements of the message whose bits are kept
_SIZES = (*range(1, 21), 31, 32, SHOWN, 47, 63, 64, 65, 100, 127, 128, 129, 255, 257, 1000, 1001, 4096, 4099, 10007)
#: Open MPI's number of an algorithm, or MPICH's name, and the rule that it follows.
ALGORITHMS = {
    "openmpi": {"1": "reverse", "3": "mpi_recursive_doubling", "4": "mpi_ring", "5": "mpi_ring", "6": "mpi_rabenseifner"},
    "mpich": {
        "recursive_doubling": "mpi_recursive_doubling", "ring": "mpi_ring(library=mpich)",
        "reduce_scatter_allgather": "mpi_rabenseifner",
    },
}  # fmt: skip


def vectors(ranks: int, n: int, kind: str) -> NDArray[Any]:
    """Return the vectors of an all-reduce, shape (ranks, n); the law changes with n."""
    law = {"float32": ("signed", "wide", "zeros"), "float64": ("signed", "wide", "signed")}.get(kind, ("signed",) * 3)
    rows = [terms(n, law[n % 3], 64 * ranks + rank).astype(np.float64) for rank in range(ranks)]
    x = np.stack(rows)
    if kind == "float64":
        x *= (
            1
            + np.stack([terms(n, "uniform", 999 * ranks + rank) for rank in range(ranks)]).astype(np.float64) * 2.0**-26
        )
    # Subnormal sums and overflows, too.
    x *= {"float16": (1.0, 30000.0, 2.0**-14), "bfloat16": (1.0, 2.0**20, 2.0**-126)}.get(kind, (1.0,) * 3)[n % 3]
    return x.astype(np.float32).astype(TYPES[kind]) if kind != "float64" else x


def sizes(ranks: int, kind: str) -> list[int]:
    """Return the lengths of the messages that are recorded for Gloo."""
    out = {*_SIZES, *range(2 * ranks - 1, 2 * ranks + 2), 4 * ranks + 1, 8 * ranks - 1}
    if kind in ("float32", "float64"):
        out.add(65537)
    if ranks == 3 or (ranks == 4 and kind == "float64"):
        # Somewhat longer than two of Gloo's segments for each rank, of 1 MiB at most.
        out.add(2 * ranks * 2**20 // np.dtype(TYPES[kind]).itemsize + 12345)
    if kind == "float32" and ranks > 3:
        out.add(1000003)
    return sorted(out)


def mpi_sizes(ranks: int) -> list[int]:
    """Return the lengths of the messages that are recorded for MPI."""
    return sorted({*_SIZES, *range(2 * ranks - 1, 2 * ranks + 2), 65537})


@functools.cache
def nccl_rows(ranks: int, n: int) -> NDArray[Any]:
    """Return the vectors of a NCCL all-reduce, shape (ranks, n), in float32; other types round them."""
    return np.random.default_rng([ranks, n]).standard_normal((ranks, n), np.float32)


def nccl_probe(ranks: int, n: int, i: int, j: int) -> NDArray[Any]:
    """Return vectors whose sum tells how many ranks are added after the ranks i and j have met."""
    x = np.ones((ranks, n), np.float32)
    x[i], x[j] = 2.0**30, -(2.0**30)
    return x


def nccl_kept(y: NDArray[Any]) -> NDArray[Any]:
    """Return the elements of a result that are recorded: every 7th one of a long result."""
    return y[::7] if y.size > 100_000 else y


def nccl_counts(n: int, size: int, channels: int, protocol: str) -> list[int]:
    """Return the elements of each channel of NCCL, from 2.29 on, for `n` elements of `size` bytes on so many channels."""
    cell = {"Simple": 16384, "LL": 4096}[protocol]
    cells = math.ceil(n * size / cell)
    each = math.ceil(cells / channels) * (cell // size)
    return [each] * (channels - 1) + [n - each * (channels - 1)]


def digest(y: NDArray[Any]) -> int:
    """Return a number that only equal bits share."""
    return int.from_bytes(hashlib.sha256(np.ascontiguousarray(y).tobytes()).digest()[:8], "little")


def _same(results: NDArray[Any]) -> NDArray[Any]:
    """Return the result of all ranks."""
    bits = results.view(f"u{results.itemsize}")
    if not np.array_equal(bits, np.broadcast_to(bits[0], bits.shape)):
        message = "the ranks hold different results"
        raise AssertionError(message)
    return bits[0]  # type: ignore[no-any-return]


def _gloo() -> dict[str, Any]:
    from fpsim.devices import gloo

    out: dict[str, Any] = {"version": import_module("torch").__version__}
    for ranks in RANKS:
        for kind in TYPES:
            results = {n: _same(gloo.all_reduce(vectors(ranks, n, kind))) for n in sizes(ranks, kind)}
            out[f"{kind}/{ranks}"] = np.array([digest(y) for y in results.values()], np.uint64)
            out[f"{kind}/{ranks}/bits"] = results[SHOWN]
            print(kind, ranks, len(results), flush=True)
    return out


def _mpi(library: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for ranks in RANKS:
            for algorithm in ALGORITHMS[library]:
                path = Path(folder) / "out.npz"
                environment, options = dict(os.environ), ["-n", str(ranks)]
                if library == "openmpi":
                    options += ["--oversubscribe", "--mca", "coll", "^han,xhc,acoll"]
                    options += ["--mca", "coll_tuned_use_dynamic_rules", "1"]
                    options += ["--mca", "coll_tuned_allreduce_algorithm", algorithm]
                    options += ["--mca", "coll_tuned_allreduce_algorithm_segmentsize", "256"]
                else:
                    environment["MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM"] = algorithm
                    environment["MPIR_CVAR_ENABLE_SMP_COLLECTIVES"] = "0"
                    environment["MPIR_CVAR_ALLREDUCE_DEVICE_COLLECTIVE"] = "0"
                command = ["mpiexec", *options, sys.executable, __file__, "rank", str(path)]
                subprocess.run(command, env=environment, check=True, timeout=600)
                with np.load(path) as arrays:
                    out |= {f"{library}.{algorithm}/{name}": arrays[name] for name in arrays if name != "version"}
                    out[f"{library}.version"] = arrays["version"]
                print(library, algorithm, ranks, flush=True)
    return out


def _rank() -> dict[str, Any]:
    """Return what one rank of an MPI run sees; the first one collects."""
    MPI: Any = import_module("mpi4py.MPI")
    world = MPI.COMM_WORLD
    out: dict[str, Any] = {"version": MPI.Get_library_version().split("\n")[0][:60]}
    ranks = world.Get_size()
    for kind in ("float32", "float64"):
        digests = []
        for n in mpi_sizes(ranks):
            x = vectors(ranks, n, kind)
            y = np.empty_like(x[0])
            world.Allreduce(x[world.Get_rank()].copy(), y, op=MPI.SUM)
            every = world.gather(y, root=0)
            if every is not None:
                digests.append(digest(_same(np.stack(every))))
        out[f"{kind}/{ranks}"] = np.array(digests, np.uint64)
    return out if world.Get_rank() == 0 else {}


if __name__ == "__main__":
    what, target = sys.argv[1:]
    recorded = _gloo() if what == "gloo" else _rank() if what == "rank" else _mpi(what)
    if recorded:
        if what in ALGORITHMS and Path(target).exists():
            with np.load(target) as earlier:
                recorded = {**earlier, **recorded}
        np.savez_compressed(target, **recorded)
