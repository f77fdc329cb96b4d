"""Run all-reduces of NCCL, find the order of every element, and compare both with the rules.

python benchmarks/gpu/nccl_check.py [--ranks 4] [-o nccl.npz]     one rank for each GPU unless --ranks says more
python benchmarks/gpu/nccl_check.py --check nccl.npz              compare a recording with the orders found by probes
python benchmarks/gpu/nccl_check.py --shorten nccl.npz -o OUT.npz  keep digests of it, for tests/test_collectives.py

More ranks than GPUs need NCCL 2.31 or later, which runs several ranks on a GPU (NCCL_MULTI_RANK_GPU_ENABLE=1). The
order is found as FPRev does: with a large number at rank i, its negative at rank j and ones elsewhere, an element's
result counts the ranks that are added after both have met.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np

#: NCCL_ALGO, NCCL_PROTO, further settings of the environment.
RUNS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("Ring", "Simple", {}),
    ("Ring", "LL", {}),
    ("Ring", "Simple", {"NCCL_MAX_NCHANNELS": "2", "NCCL_MIN_NCHANNELS": "2"}),
    ("Tree", "Simple", {}),
    ("Tree", "LL", {}),
    ("Tree", "Simple", {"nodes": "2"}),
)
SIZES = (1, 5, 31, 1000, 4099, 65537, 300007, 1000003)
TYPES = ("float32", "float16", "bfloat16")
LARGE = 2.0**30
_SECONDS = 130  # after which no further run begins


def rows(ranks: int, n: int) -> Any:
    """Return normal numbers of shape (ranks, n), the same wherever they are drawn, and in ``record_collectives``."""
    return np.random.default_rng([ranks, n]).standard_normal((ranks, n), np.float32)


def work(rank: int, ranks: int, folder: Path) -> None:
    """Take part in every all-reduce, as one rank."""
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("nccl", init_method=(folder / "store").as_uri(), rank=rank, world_size=ranks)
    out: dict[str, Any] = {"torch": torch.__version__, "nccl": str(torch.cuda.nccl.version())}
    checksums: list[int] = []

    def all_reduce(row: Any, kind: str) -> Any:
        tensor = torch.from_numpy(np.ascontiguousarray(row)).to(getattr(torch, kind)).cuda()
        dist.all_reduce(tensor)
        total = tensor.float().cpu().numpy()
        checksums.append(zlib.crc32(total.tobytes()))
        return total

    for n in SIZES:
        for kind in TYPES:
            out[f"{kind}/{n}"] = all_reduce(rows(ranks, n)[rank], kind)
        for i, j in itertools.combinations(range(ranks), 2):
            value = LARGE if rank == i else -LARGE if rank == j else 1.0
            counts = all_reduce(np.full(n, value, np.float32), "float32")
            changes = np.flatnonzero(np.diff(counts)) + 1
            out[f"probe/{i}/{j}/{n}/start"] = np.array([0, *changes], np.int64)
            out[f"probe/{i}/{j}/{n}/count"] = counts[[0, *changes]].astype(np.int8)
    if rank == 0:
        np.savez(folder / "out.npz", **out)
    np.save(folder / f"checksums{rank}.npy", np.array(checksums))
    dist.destroy_process_group()


def record(ranks: int, path: Path) -> None:
    import torch

    gpus = torch.cuda.device_count()
    out: dict[str, Any] = {"ranks": ranks, "gpus": gpus}
    begin = time.monotonic()
    for number, (algorithm, protocol, extra) in enumerate(RUNS):
        started = time.monotonic()
        if started - begin > _SECONDS:
            print("no time left for", algorithm, protocol, extra)
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            processes = []
            for rank in range(ranks):
                environment = {
                    **os.environ, "NCCL_ALGO": algorithm, "NCCL_PROTO": protocol, "NCCL_NVLS_ENABLE": "0",
                    "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,TUNING,ENV", "NCCL_SOCKET_IFNAME": "lo",
                    "NCCL_DEBUG_FILE": str(folder / f"log{rank}"), **({"NCCL_MULTI_RANK_GPU_ENABLE": "1"} if ranks > gpus else {}),
                }  # fmt: skip
                environment |= {key: value for key, value in extra.items() if key != "nodes"}
                if "nodes" in extra:
                    # Ranks that believe to be on several machines talk over the loopback interface.
                    environment["NCCL_HOSTID"] = f"node{rank * int(extra['nodes']) // ranks}"
                command = [sys.executable, __file__, "--rank", str(rank), "--ranks", str(ranks), "--folder", name]
                processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
            errors = []
            for process in processes:
                try:
                    errors.append(process.communicate(timeout=60)[1])
                except subprocess.TimeoutExpired:
                    for other in processes:
                        other.kill()
                    errors.append(process.communicate()[1] + "\ntimed out")
            logs = sorted(folder.glob("log*"))
            out[f"{number}/log"] = logs[0].read_text(errors="replace")[:60000] if logs else ""
            out[f"{number}/settings"] = f"{algorithm} {protocol} {extra}"
            failed = [process.returncode for process in processes if process.returncode]
            if failed or not (folder / "out.npz").exists():
                print(algorithm, protocol, extra, "FAILED:", *[e[-700:] for e in errors if e.strip()][:1])
                continue
            with np.load(folder / "out.npz") as arrays:
                out |= {f"{number}/{key}": arrays[key] for key in arrays}
            sums = [np.load(path).tolist() for path in folder.glob("checksums*")]
        for key in [f"{number}/{kind}/{n}" for kind in TYPES for n in SIZES if n > 100_000]:
            out[key] = out[key][::7]  # every 7th element of a long result
        print(algorithm, protocol, extra, "NCCL", out[f"{number}/nccl"], "ranks agree:", sums == sums[:1] * ranks,
              f"{time.monotonic() - started:.0f} s", flush=True)  # fmt: skip
    np.savez_compressed(path, **out)


# --- comparison -------------------------------------------------------------------------------------------------------


def orders(data: Any, number: int, ranks: int, n: int) -> list[tuple[int, int, str]]:
    """Return stretches (start, stop, tree) of elements that are added alike."""
    probes, starts = {}, {0}
    for i, j in itertools.combinations(range(ranks), 2):
        start, count = data[f"{number}/probe/{i}/{j}/{n}/start"], data[f"{number}/probe/{i}/{j}/{n}/count"]
        probes[i, j] = start, count
        starts |= set(start.tolist())
    cuts = [*sorted(starts), n]
    out = []
    for a, b in itertools.pairwise(cuts):
        # The ranks below the node where i and j meet.
        below = {
            ij: ranks - int(count[np.searchsorted(start, a, "right") - 1]) for ij, (start, count) in probes.items()
        }
        out.append((a, b, tree_of(list(range(ranks)), below)))
    return out


def tree_of(members: list[int], below: dict[tuple[int, int], int]) -> str:
    """Return a summation tree in the notation of the order ``tree``; sums of two are written in order of rank."""
    if len(members) == 1:
        return str(members[0])
    first = members[0]
    joined = {m: below[min(first, m), max(first, m)] for m in members[1:]}
    top = max(joined.values())
    others = [m for m in members[1:] if joined[m] == top]
    same = [first, *(m for m in members[1:] if joined[m] < top)]
    return f"({tree_of(same, below)} {tree_of(others, below)})"


def check(path: Path) -> None:
    import ml_dtypes

    import fpsim

    data = np.load(path)
    ranks = int(data["ranks"])
    for number in range(len(RUNS)):
        if f"{number}/nccl" not in data:
            continue
        print(f"\n{data[f'{number}/settings']}, {loaded(data, number)}, {ranks} ranks, {data['gpus']} GPUs")
        for n in SIZES:
            found = orders(data, number, ranks, n)
            step = 7 if n > 100_000 else 1
            equal = []
            for kind in TYPES:
                x = rows(ranks, n).astype(getattr(ml_dtypes, kind) if kind == "bfloat16" else kind)
                y = np.empty(n, np.float32)
                accumulator = "" if kind == "float32" else f"+acc({kind})"
                for a, b, tree in found:
                    y[a:b] = fpsim.sum(x[:, a:b], f'tree("{tree}"){accumulator}', axis=0)
                equal.append(int((y[::step] != data[f"{number}/{kind}/{n}"]).sum()))
            trees = list(dict.fromkeys(tree for _, _, tree in found))
            print(f"  n = {n}: {len(found)} stretches, {len(trees)} trees; elements unlike the trees {equal}")
            print("   ", ", ".join(f"{a}:{b} {trees.index(t)}" for a, b, t in found[:10]), "|", "; ".join(trees[:4]))


def loaded(data: Any, number: int) -> str:
    """Return the version of NCCL that ran: PyTorch names the one that it was compiled with."""
    found = re.search(r"NCCL version \S+", str(data[f"{number}/log"]))
    return found.group() if found else f"NCCL as in PyTorch, {data[f'{number}/nccl']}"


def shorten(path: Path, output: Path) -> None:
    """Write digests of what a recording holds, and how many channels NCCL says that each message took."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
    import record_collectives as recorded

    data = np.load(path)
    ranks = int(data["ranks"])
    pairs = list(itertools.combinations(range(ranks), 2))
    found = [number for number in range(len(RUNS)) if f"{number}/nccl" in data]
    versions = {f"{loaded(data, number)}, PyTorch {data[f'{number}/torch']}" for number in found}
    out: dict[str, Any] = {"ranks": ranks, "sizes": np.array(SIZES), "types": np.array(TYPES)}
    out["versions"] = np.array(sorted(versions))
    out["rows"] = np.array([recorded.digest(rows(ranks, n)) for n in SIZES], np.uint64)
    for number in found:
        out[f"{number}/settings"] = data[f"{number}/settings"]
        messages = re.findall(r"AllReduce: (\d+) Bytes.*\{0\.\.(\d+)\}", str(data[f"{number}/log"]))
        firsts = messages[:: len(TYPES) + len(pairs)]
        assert [int(size) for size, _ in firsts] == [4 * n for n in SIZES]
        each = np.array([int(last) + 1 for _, last in messages]).reshape(len(SIZES), -1)
        out[f"{number}/channels"] = each[:, : len(TYPES)].T
        out[f"{number}/sums"] = np.array(
            [[recorded.digest(data[f"{number}/{kind}/{n}"]) for n in SIZES] for kind in TYPES], np.uint64
        )
        probes = np.empty((len(pairs), len(SIZES)), np.uint64)
        for (row, (i, j)), (column, n) in itertools.product(enumerate(pairs), enumerate(SIZES)):
            start, count = (data[f"{number}/probe/{i}/{j}/{n}/{part}"] for part in ("start", "count"))
            probes[row, column] = recorded.digest(np.repeat(count, np.diff([*start, n])))
        out[f"{number}/probes"] = probes
    np.savez_compressed(output, **out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, default=Path("nccl.npz"))
    parser.add_argument("--check", type=Path)
    parser.add_argument("--shorten", type=Path)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.check is not None:
        check(given.check)
    elif given.shorten is not None:
        shorten(given.shorten, given.output)
    elif given.rank is not None:
        work(given.rank, given.ranks, given.folder)
    else:
        import torch

        record(given.ranks or torch.cuda.device_count(), given.output)


if __name__ == "__main__":
    main()
