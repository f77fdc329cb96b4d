"""Name the operations of PyTorch that give other bits at each run on a GPU, and see whether the switch pins them.

python benchmarks/gpu/locate.py [--seconds 120] [--runs 20] [--out DIRECTORY] [--device cuda]

Each case runs with the default settings, then with ``torch.use_deterministic_algorithms(True)``. Writes ``locate.json``
and prints a table last: what was named, what documentation says of it, how far the results were apart, and what the
switch did. The last rows compare a CPU with the GPU.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import fpsim
from fpsim.locating import Located


def gradient(fn: Callable[..., Any]) -> Callable[..., Any]:
    def backward(x: Any, *others: Any) -> Any:
        x = x.detach().requires_grad_()
        fn(x, *others).square().sum().backward()
        return x.grad

    return backward


def cases(device: str) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Return functions and inputs; index arrays send many elements to few places."""
    torch.manual_seed(0)
    x = torch.randn(200_000, 4, device=device)
    few = torch.randint(0, 7, (200_000,), device=device)
    table = torch.randn(7, 4, device=device)
    image = torch.randn(4, 8, 32, 32, device=device)
    kernel = torch.randn(8, 8, 3, 3, device=device)
    heads = torch.randn(2, 4, 1024, 64, device=device)
    attention = torch.nn.attention

    def sdpa(q: Any) -> Any:
        with attention.sdpa_kernel(attention.SDPBackend.EFFICIENT_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(q, q, q)

    wide = few[:, None].expand(-1, 4)
    return {
        "index_add_": (lambda x, i: torch.zeros(7, 4, device=x.device).index_add_(0, i, x), (x, few)),
        "scatter_add": (lambda x, i: torch.zeros(7, 4, device=x.device).scatter_add(0, i, x), (x, wide)),
        "cumsum, one row": (lambda x: x.reshape(-1).cumsum(0), (x,)),
        "bincount with weights": (lambda i, w: torch.bincount(i, weights=w), (few, x[:, 0].contiguous())),
        "index_select, backward": (gradient(lambda t, i: t.index_select(0, i)), (table, few)),
        "gather, backward": (gradient(lambda t, i: t.gather(0, i)), (table, wide)),
        "table[index], backward": (gradient(lambda t, i: t[i]), (table, few)),
        "embedding, backward": (gradient(lambda t, i: torch.nn.functional.embedding(i, t)), (table, few)),
        "interpolate bilinear, backward": (
            gradient(lambda x: torch.nn.functional.interpolate(x, scale_factor=2.7, mode="bilinear")), (image,),
        ),
        "conv2d, backward of the kernel": (gradient(lambda k, x: torch.nn.functional.conv2d(x, k)), (kernel, image)),
        "attention (efficient), backward": (gradient(sdpa), (heads,)),
        "product": (lambda q: q @ q.transpose(-1, -2), (heads,)),
        "sum": (lambda x: x.sum(0), (x,)),
        "dropout": (lambda x: torch.nn.functional.dropout(x, 0.5) * 2, (x,)),
    }  # fmt: skip


def located(fn: Callable[..., Any], inputs: tuple[Any, ...], **settings: Any) -> Located | str:
    try:
        return fpsim.locate(fn, *inputs, **settings)
    except (RuntimeError, ValueError) as error:
        return str(error).partition(".")[0][:60]


def row(name: str, found: Located | str, pinned: Located | str) -> str:
    after = pinned if isinstance(pinned, str) else pinned.cause
    if isinstance(found, str):
        return f"{name:32} error: {found}"
    size = f"{found.differing}/{found.total} by {found.max_ulp:.3g} ulp" if found.differing is not None else ""
    listed = "listed" if found.known else ""
    back = " (backward)" if found.first is not None and found.first.backward else ""
    return f"{name:32} {found.cause:10} {found.runs:3}  {found.operation or '':48} {listed:7} {size:28} {after}{back}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path())
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    rows, written = [], []

    def add(name: str, found: Located | str, pinned: Located | str) -> None:
        rows.append(row(name, found, pinned))
        plain = [one if isinstance(one, str) else one.to_dict() for one in (found, pinned)]
        written.append({"case": name, "found": plain[0], "pinned": plain[1]})

    for name, (fn, inputs) in cases(arguments.device).items():
        if time.monotonic() > end:
            rows.append(f"{name:32} not run: time is over")
            continue
        found = located(fn, inputs, runs=arguments.runs)
        torch.use_deterministic_algorithms(True)
        pinned = located(fn, inputs, runs=arguments.runs)
        torch.use_deterministic_algorithms(False)
        add(name, found, pinned)
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.LayerNorm(256), torch.nn.Linear(256, 8)
    )
    add("model, CPU and GPU", located(net, (torch.randn(32, 64),), devices=("cpu", arguments.device)), "")
    add("max, CPU and GPU", located(lambda x: x.max(0), (torch.randn(32, 64),), devices=("cpu", arguments.device)), "")
    noise = located(lambda x: x + torch.randn(64), (torch.randn(32, 64),), devices=("cpu", arguments.device), seed=0)
    add("randn with a seed, CPU and GPU", noise, "")
    name = torch.cuda.get_device_name() if arguments.device == "cuda" else "CPU"
    out = {"torch": torch.__version__, "device": name, "cases": written}
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "locate.json").write_text(json.dumps(out, indent=1, allow_nan=False), encoding="utf-8")
    print(f"PyTorch {torch.__version__}, {name}")
    print(f"{'case':32} {'cause':10} run  {'operation':48} {'':7} {'difference':28} with the switch")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
