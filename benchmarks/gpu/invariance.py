"""Which routines on a GPU give other bits for the same numbers in another call.

    python benchmarks/gpu/invariance.py --out results [--seconds 40]

Needs PyTorch with CUDA. Writes ``invariance.json``, with every variant, and prints a table last: the largest share of
results whose bits change, and with how many rows, where the batch changes them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fpsim
from fpsim.invariances import DIMENSIONS

SHAPES = ((400, 400, 400), (64, 4096, 512), (256, 1024, 1024))


def on_device(x: np.ndarray, torch: Any, dtype: Any) -> Any:
    """Return a copy on the GPU with the same layout, and as many elements behind a multiple of 64 bytes."""
    if not x.flags.c_contiguous:
        return torch.from_numpy(np.ascontiguousarray(x.T)).cuda().to(dtype).T
    shift = x.ctypes.data % 64 // x.itemsize
    room = torch.empty(x.size + 16, dtype=dtype, device="cuda")
    view = room[shift : shift + x.size].view(x.shape)
    view.copy_(torch.from_numpy(x))
    return view


def routines(torch: Any) -> dict[str, tuple[Callable[..., Any], int, bool]]:
    """Return functions of NumPy arrays by name, how many operands they take, and whether they take an axis."""

    def product(dtype: Any, tf32: bool = False) -> Callable[..., Any]:
        def fn(a: np.ndarray, b: np.ndarray) -> Any:
            torch.backends.cuda.matmul.allow_tf32 = tf32
            left, right = (on_device(x, torch, dtype) for x in (a, b))
            return torch.matmul(left, right).float().cpu().numpy()

        return fn

    def of_rows(name: str) -> Callable[..., Any]:
        def fn(x: np.ndarray, axis: int = 1) -> Any:
            values = on_device(x, torch, torch.float32)
            if name == "softmax":
                return torch.softmax(values, axis).cpu().numpy()
            if name == "layer_norm":
                return torch.nn.functional.layer_norm(values, values.shape[1:]).cpu().numpy()
            return getattr(torch, name)(values, dim=axis).cpu().numpy()

        return fn

    products = {
        "matmul float32": product(torch.float32),
        "matmul TF32": product(torch.float32, tf32=True),
        "matmul bfloat16": product(torch.bfloat16),
        "matmul float16": product(torch.float16),
        "matmul float64": product(torch.float64),
    }
    found: dict[str, tuple[Callable[..., Any], int, bool]] = {name: (fn, 2, False) for name, fn in products.items()}
    for name in ("sum", "mean", "logsumexp"):
        found[name] = (of_rows(name), 1, True)
    for name in ("softmax", "layer_norm"):
        found[name] = (of_rows(name), 1, False)
    return found


def main() -> None:
    """Try all routines, and print a table last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=40.0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    import torch

    start, report, table = time.perf_counter(), [], []
    dims = [dim for dim in DIMENSIONS if dim != "threads"]
    for name, (fn, operands, axis) in routines(torch).items():
        for m, k, n in SHAPES:
            rng = np.random.default_rng(m)
            shapes = ((m, k), (k, n))[:operands]
            arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
            cells = []
            for dim in dims:
                if (dim == "axis" and not axis) or time.perf_counter() - start > options.seconds:
                    cells.append("")
                    continue
                try:
                    found = fpsim.invariance(fn, *arrays, dim=dim)
                except Exception as error:  # noqa: BLE001 - the other routines are worth having
                    cells.append(type(error).__name__)
                    report.append({"routine": name, "shape": [m, k, n], "dim": dim, "error": repr(error)})
                    continue
                report.append({"routine": name, "shape": [m, k, n], **found.to_dict()})
                most = max(v.changed for v in found.variants)
                names = [v.name.split()[0] for v in found.variants if v.changed] if dim == "batch" else []
                share = f"{most:.0%}" if most >= 0.01 else "below 1%"
                cells.append(share + (f" ({', '.join(names)})" if names else "") if most else "-")
            size = f"{m}x{k}x{n}" if operands == 2 else f"{m}x{k}"
            table.append(f"| {name}, {size} | {' | '.join(cells)} |")
    where = {"torch": torch.__version__, "device": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
    (options.out / "invariance.json").write_text(json.dumps({**where, "results": report}, indent=1))
    print(where, f"{time.perf_counter() - start:.0f} s")
    print("| routine |", " | ".join(dims), "|")
    print("|---|" + "---|" * len(dims))
    print("\n".join(table))


if __name__ == "__main__":
    main()
