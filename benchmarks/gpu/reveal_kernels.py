"""Kernels revealed on a GPU: CUDA C from source; and those of ``numba.cuda`` against what was revealed without a GPU.

``python benchmarks/gpu/reveal_kernels.py --out DIR``. `EXPECTED` has what ``fpsim reveal --cuda-simulator`` says of the
kernels in ``tests/cuda_reductions.py`` on a machine without a GPU; ``--simulate`` reveals them again here.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import fpsim
from fpsim._black_box import BlackBox, laws_of
from fpsim.devices.cuda_source import kernel
from fpsim.errors import FpsimError
from fpsim.formats import FLOAT32

REPLAYS = 200
#: Name, operation, shape, and the strategy that was revealed without a GPU.
EXPECTED: list[tuple[str, str, tuple[int, ...], str]] = [
    ("block_sum", "sum", (40,), "lanes(16, combine=fold)"),
    ("block_sum", "sum", (20,), "lanes(16, combine=fold)"),
    ("wide_sum", "sum", (13,), "serial+acc(float64)+output(float32)"),
    ("warp_sum", "sum", (32,), "fold"),
    ("dot", "dot", (13,), "serial+fma"),
    ("separate_dot", "dot", (13,), "serial+separate"),
    ("tiled_matmul", "matmul", (5, 9, 3), "serial+fma"),
]
_HEAD = 'extern "C" __global__ void k('
_SUM, _DOT = (
    f"{_HEAD}const float* x, float* out, int n) {{",
    f"{_HEAD}const float* a, const float* b, float* out, int n) {{",
)
_SERIAL_DOT = f"{_DOT} float s = 0; for (int i = 0; i < n; i++) s += a[i] * b[i]; *out = s; }}"
_TREE = (
    f"{_SUM} __shared__ float v[128]; int t = threadIdx.x; float s = 0; for (int i = t; i < n; i += 128) s += x[i];"
    " v[t] = s; __syncthreads(); for (int h = 64; h; h /= 2) { if (t < h) v[t] += v[t + h]; __syncthreads(); }"
    " if (!t) *out = v[0]; }"
)
_SHUFFLE = (
    f"{_SUM} float s = 0; for (int i = threadIdx.x; i < n; i += 32) s += x[i];"
    " for (int d = 16; d; d /= 2) s += __shfl_down_sync(0xffffffffu, s, d); if (!threadIdx.x) *out = s; }"
)
_FLOAT4 = (
    f"{_SUM} const float4* v = (const float4*)x; float a = 0, b = 0, c = 0, d = 0;"
    " for (int i = 0; i < n / 4; i++) { a += v[i].x; b += v[i].y; c += v[i].z; d += v[i].w; }"
    " *out = (a + b) + (c + d); }"
)
_DOUBLE = f"{_DOT} double s = 0; for (int i = 0; i < n; i++) s += (double)a[i] * b[i]; *out = (float)s; }}"
_KAHAN = (
    f"{_SUM} float s = 0, c = 0; for (int i = 0; i < n; i++) {{ float y = x[i] - c, t = s + y; c = (t - s) - y; s = t; }}"
    " *out = s; }"
)
_MATMUL = (
    f"{_HEAD}const float* a, const float* b, float* out, int m, int n, int k) {{"
    " int j = blockIdx.x * 16 + threadIdx.x, i = blockIdx.y * 16 + threadIdx.y; if (i >= m || j >= n) return;"
    " float s = 0; for (int l = 0; l < k; l++) s += a[i * k + l] * b[l * n + j]; out[i * n + j] = s; }"
)
#: What it is, source, operation, shape, threads, options of NVRTC, and the strategies that the source allows.
SOURCES: list[tuple[str, str, str, tuple[int, ...], Any, tuple[str, ...], tuple[str, ...]]] = [
    ("serial, contracted", _SERIAL_DOT, "dot", (100,), 1, (), ("serial+fma",)),
    ("serial, -fmad=false", _SERIAL_DOT, "dot", (100,), 1, ("-fmad=false",), ("serial", "serial+separate")),
    ("block tree", _TREE, "sum", (1000,), 128, (), ("lanes(128, combine=fold)",)),
    ("warp shuffle", _SHUFFLE, "sum", (100,), 32, (), ("lanes(32, combine=fold)",)),
    ("float4", _FLOAT4, "sum", (100,), 1, (), ("lanes(4, combine=pairwise)",)),
    ("double accumulator", _DOUBLE, "dot", (100,), 1, (), ("serial+acc(float64)+output(float32)",)),
    ("Kahan", _KAHAN, "sum", (100,), 1, (), ("serial+kahan",)),
    ("matrix product", _MATMUL, "matmul", (20, 33, 17), (16, 16), (), ("serial+fma",)),
]


def on_the_gpu(name: str, op: str, shape: tuple[int, ...], strategy: str) -> dict[str, Any]:
    """Compare a numba.cuda kernel on the GPU with a strategy that was revealed without one."""
    function = getattr(import_module("cuda_reductions"), name)
    box = BlackBox(function, op, shape, FLOAT32)
    rng, laws, equal = np.random.default_rng(0), laws_of(FLOAT32), 0
    for index in range(REPLAYS):
        operands = box.draw(laws[index % len(laws)], rng)
        got, emulated = box.run(*operands), box.emulate(fpsim.strategy(strategy), operands)
        equal += bool(np.all((got.view(np.uint32) == emulated.view(np.uint32)) | (np.isnan(got) & np.isnan(emulated))))
    return {"what": f"numba {name}", "shape": shape, "strategy": strategy, "equal": equal, "replays": REPLAYS}


def from_source(what: str, source: str, op: str, shape: Any, block: Any, options: Any, allowed: Any) -> dict[str, Any]:
    """Reveal a CUDA C kernel."""

    def grid(*, m: int = 1, n: int = 1, k: int = 1) -> tuple[int, int]:
        del k
        return (-(-n // 16), -(-m // 16)) if op == "matmul" else (1, 1)

    function = kernel(source, "k", grid=grid, block=block, options=options)
    found = fpsim.reveal(function, op=op, shape=shape, replays=REPLAYS)
    expected = {str(fpsim.strategy(one)) for one in allowed}
    named = {str(found.strategy), *found.alternatives}
    return {
        "what": f"CUDA C {what}", "shape": shape, "strategy": str(found.strategy), "equal": found.evidence.equal,
        "replays": found.evidence.replays, "as written": bool(named & expected), "calls": found.evidence.calls,
        "text": str(found),
    }  # fmt: skip


def main() -> int:
    """Run all that fits into the time; print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=80.0)
    parser.add_argument("--simulate", action="store_true", help="reveal the numba.cuda kernels here, without the GPU")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if not hasattr(np, "row_stack"):  # which numba-cuda 0.30 asks for, and NumPy 2.5 no longer has
        setattr(np, "row_stack", np.vstack)  # noqa: B010
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
    if arguments.simulate:
        for name, op, shape, strategy in EXPECTED:
            found = fpsim.reveal_kernel(f"cuda_reductions.{name}", op=op, shape=shape)
            print(f"{name:14s} {'x'.join(map(str, shape)):8s} {found.strategy}  expected {strategy}", flush=True)
        return 0
    started, rows = time.monotonic(), []
    work: list[tuple[Any, tuple[Any, ...]]] = [(on_the_gpu, one) for one in EXPECTED]
    work += [(from_source, one) for one in SOURCES]
    for function, case in work:
        if time.monotonic() - started > arguments.seconds:
            print(f"no time for {case[0]}")
            continue
        before = time.monotonic()
        try:
            row = function(*case)
        except (FpsimError, RuntimeError, ImportError, TypeError) as error:
            row = {"what": case[0], "error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        rows.append({**row, "seconds": round(time.monotonic() - before, 2)})
        if arguments.out:
            arguments.out.mkdir(parents=True, exist_ok=True)
            (arguments.out / "reveal_kernels.json").write_text(json.dumps(rows, indent=1))
    print(f"\n{'kernel':28s} {'shape':>9s} {'equal':>8s} {'s':>6s}  strategy")
    for row in rows:
        size = "x".join(map(str, row.get("shape", ())))
        score = f"{row['equal']}/{row['replays']}" if "equal" in row else "-"
        other = "" if row.get("as written", True) else "  OTHER THAN WRITTEN"
        print(
            f"{row['what']:28s} {size:>9s} {score:>8s} {row['seconds']:6.1f}  {row.get('strategy', row.get('error'))}{other}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
