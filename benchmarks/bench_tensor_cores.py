"""Time of emulated tensor-core products on one core, and of mmaemu's fp8 products in the same run if it is installed.

    python benchmarks/bench_tensor_cores.py [--repeats 15] [--sizes 64 128 256]

Every row is the smallest CPU time of the process over the repeats, so that other work on the machine matters little.
mmaemu (https://pypi.org/project/mmaemu) emulates `torch._scaled_mm` on Hopper; its results must have the same bits.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import numpy as np

import fpsim
from fpsim.formats import E4M3FN, round_to

ROWS = (
    ("float16", "tensor_core(arch=hopper, type=float16)"),
    ("bfloat16", "tensor_core(arch=hopper, type=bfloat16)"),
    ("tf32", "tensor_core(arch=hopper, type=tf32)"),
    ("fp8, fast accumulation", "tensor_core(arch=hopper, type=e4m3fn)"),
    ("fp8", "chunks(128, tensor_core(arch=hopper, type=e4m3fn))+operands(e4m3fn)"),
    ("float16 on Ampere", "tensor_core(arch=ampere, type=float16)"),
)


def milliseconds(run: Callable[[], Any], repeats: int) -> float:
    """Return the smallest CPU time of a call."""
    run()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times) * 1e3


def peer(size: int, a: Any, b: Any, repeats: int) -> None:
    """Time mmaemu's fp8 products, and compare the bits."""
    try:
        import mmaemu
        import torch
    except ImportError:
        print("mmaemu is not installed")
        return
    torch.set_num_threads(1)
    left = torch.tensor(a).to(torch.float8_e4m3fn)
    right = torch.tensor(np.ascontiguousarray(b.T)).to(torch.float8_e4m3fn)
    for fast, text in ((True, ROWS[3][1]), (False, ROWS[4][1])):

        def run(fast: bool = fast) -> Any:
            return mmaemu.accumulate(left, right, use_fast_accum=fast, profile="hopper", splitk=1, backend="reference")

        theirs = np.asarray(run())
        ours = fpsim.matmul(a, b, text)
        equal = (theirs.view(np.uint32) == ours.view(np.uint32)).mean()
        name = "fp8, fast accumulation" if fast else "fp8"
        print(f"{size:5d}  {'mmaemu ' + name:32s} {milliseconds(run, repeats):9.3f} ms   equal bits {equal:.1%}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 128, 256])
    options = parser.parse_args()
    rng = np.random.default_rng(1)
    for size in options.sizes:
        a, b = rng.standard_normal((2, size, size)).astype(np.float32)
        a, b = (np.asarray(round_to(x, E4M3FN), np.float32) for x in (a, b))
        for name, text in ROWS:
            chosen = fpsim.strategy(text)
            taken = milliseconds(lambda chosen=chosen, a=a, b=b: fpsim.matmul(a, b, chosen), options.repeats)
            print(f"{size:5d}  {name:32s} {taken:9.3f} ms")
        peer(size, a, b, options.repeats)


if __name__ == "__main__":
    main()
