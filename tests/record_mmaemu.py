"""Record what mmaemu says of fp8 products on Ada and Hopper, for `test_matrix_units.py`.

    python tests/record_mmaemu.py        (needs torch and mmaemu, and no GPU)

Its presets `ada` and `hopper`, which its author checked on an RTX 4060 and an H100, with and without fast accumulation, for
all pairs of formats; and `b200_mma_sync`, which is fitted to recorded instructions.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmaemu.backends import ChainRequest, select
from mmaemu.model.plan import execute_plan, make_plan
from mmaemu.model.presets import get_preset

FORMATS = {"e4m3fn": (torch.float8_e4m3fn, -9, 8), "e5m2": (torch.float8_e5m2, -16, 15)}


def codes(rng: np.random.Generator, shape: tuple[int, int], form: str, law: str) -> Any:
    kind, low, high = FORMATS[form]
    x = rng.standard_normal(shape)
    if law == "wide":
        x = np.ldexp(np.sign(x), rng.integers(low, high - 1, shape)) * rng.choice([1, 1.25, 1.5], shape)
    elif law == "subnormal":
        x = np.ldexp(x, rng.integers(low, low + 5, shape))
    elif law == "special":
        kinds = rng.random(shape)
        x = np.where(kinds < 0.004, np.nan, np.where((kinds < 0.01) & (form == "e5m2"), np.inf, x))
    return torch.tensor(x, dtype=torch.float32).to(kind).view(torch.uint8)


def main() -> None:
    """Record all."""
    rng = np.random.default_rng(61)
    kept: dict[str, Any] = {"mmaemu": str(importlib.metadata.version("mmaemu"))}
    for preset in ("ada", "hopper", "b200_mma_sync"):
        own = get_preset(preset, warn=False)
        for left in FORMATS:
            for right in FORMATS:
                for law in ("normal", "wide", "subnormal", "special"):
                    a, b = codes(rng, (6, 320), left, law), codes(rng, (5, 320), right, law)
                    name = f"{preset}/{left} {right}/{law}"
                    kept[f"{name}/a"], kept[f"{name}/b"] = a.numpy(), b.numpy().T.copy()
                    request = ChainRequest(device=a.device, fmt_a=left[:4], fmt_b=right[:4], preset=preset)
                    chain = select(request, "reference").chain_fn(request)
                    for fast in (True, False) if own.slow_chunk else (True,):
                        plan = make_plan(320, fast=fast, S=1, preset=own)
                        out = execute_plan(plan, a, b, fmt_a=left[:4], fmt_b=right[:4], chain_fn=chain)
                        kept[f"{name}/{'fast' if fast else 'slow'}"] = out.view(torch.uint32).numpy()
    path = Path(__file__).parent / "data" / "mmaemu.npz"
    np.savez_compressed(path, **kept)
    print(path, path.stat().st_size, len(kept))


if __name__ == "__main__":
    main()
