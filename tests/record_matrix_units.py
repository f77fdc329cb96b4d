"""Record what MMA-Sim says of matrix instructions, for `test_matrix_units.py` and `test_microscaling.py`.

    python tests/record_matrix_units.py        (needs torch, mmasim and torchao, and no GPU)

For every unit of `fpsim.orders.tensor_core` that it has: operands of several laws for chains of instructions on an
accumulator that starts from zero, as the bits of their formats, and its results. And nvfp4 numbers of torchao.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import mmasim.amd.sim as amd
import mmasim.nv_ptx.sim as nv
import numpy as np
import torch

LAWS = ("normal", "wide", "subnormal", "special", "near")
ARCHES = {"volta": "Volta", "turing": "Turing", "ampere": "Ampere", "ada": "Ada Lovelace", "hopper": "Hopper",
          "blackwell": "Blackwell", "rtx_blackwell": "RTX Blackwell"}  # fmt: skip
PTX = {
    "float16": "f16",
    "bfloat16": "bf16",
    "tf32": "tf32",
    "e4m3fn": "e4m3",
    "e5m2": "e5m2",
    "e2m3fn": "e2m3",
    "e3m2fn": "e3m2",
}
TORCH = {
    "float16": torch.float16, "bfloat16": torch.bfloat16, "tf32": torch.float32, "e4m3fn": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2, "e4m3fnuz": torch.float8_e4m3fnuz, "e5m2fnuz": torch.float8_e5m2fnuz,
}  # fmt: skip
EMIN = {"float16": -14, "bfloat16": -126, "tf32": -126, "e4m3fn": -6, "e5m2": -14, "e4m3fnuz": -7, "e5m2fnuz": -15}
EMAX = {"float16": 15, "bfloat16": 127, "tf32": 127, "e4m3fn": 8, "e5m2": 15, "e4m3fnuz": 7, "e5m2fnuz": 15}
SHAPE = {"volta": "m8n8k4", "turing": "m16n8k8"}


def numbers(rng: np.random.Generator, shape: tuple[int, ...], form: str, law: str) -> torch.Tensor:
    """Return numbers of a format."""
    low, high = EMIN[form], EMAX[form]
    x = rng.standard_normal(shape)
    if law == "wide":
        x = np.ldexp(x, rng.integers(max(low - 3, -70), min(high, 60) - 1, shape))
    elif law == "subnormal":
        x = np.ldexp(x, rng.integers(max(low, -75) - 3, max(low, -75) + 3, shape))
    elif law == "near":
        x = np.ldexp(np.sign(x) * rng.choice([1.0, 1.0, 1.5, 1.125], shape), rng.integers(-2, 3, shape))
    elif law == "special":
        kinds = rng.random(shape)
        x = np.where(kinds < 0.02, np.nan, np.where(kinds < 0.06, np.inf, np.where(kinds < 0.1, -np.inf, x)))
        x = np.where(kinds > 0.9, x * 2.0 ** (high - 1), x)
        if form.startswith("e4") or form.endswith("fnuz"):
            x = np.where(np.isinf(x), 1.0, x)
    x = np.where(rng.random(shape) < 0.08, 0.0, x)
    limit = (2 - 2.0**-2) * 2.0 ** (high - 1)
    x = np.where(np.isfinite(x), np.clip(x, -limit, limit), x)
    return torch.tensor(x, dtype=torch.float32).to(TORCH[form])


def bits(x: torch.Tensor) -> Any:
    kind = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32}[x.dtype.itemsize]
    return x.contiguous().view(kind).numpy()


def six(rng: np.random.Generator, shape: tuple[int, int]) -> torch.Tensor:
    """Return 6-bit codes, and in the last columns zeros."""
    codes = rng.integers(0, 64, shape, np.uint8)
    return torch.tensor(np.where(rng.random(shape) < 0.3, codes & 0x27, codes))


def plain(
    kept: dict[str, Any], rng: np.random.Generator, name: str, form: str, op: Any, depth: int, half: bool
) -> None:
    """Record a unit without scales: two instructions and a half."""
    for law in LAWS:
        a, b = (
            numbers(rng, (5, 2 * depth + depth // 2), form, law),
            numbers(rng, (2 * depth + depth // 2, 6), form, law),
        )
        c = torch.zeros((5, 6), dtype=torch.float16 if half else torch.float32)
        out = op(a, b, c)
        kept.update({f"{name}/{law}/a": bits(a), f"{name}/{law}/b": bits(b), f"{name}/{law}/c": bits(out)})


def instructions() -> Any:
    """Yield name, form, operation and inner dimension of the units."""
    for arch, theirs in ARCHES.items():
        for form in ("float16", "bfloat16", "tf32", "e4m3fn", "e5m2"):
            size = TORCH[form].itemsize
            for half in (False, True):
                kind, depth = PTX[form], 32 // size
                shape = SHAPE.get(arch, f"m16n8k{depth}")
                depth = {"volta": 4, "turing": 8}.get(arch, depth)
                d = "f16" if half else "f32"
                try:
                    if arch in ("hopper", "blackwell") and size == 1:
                        if arch == "hopper":
                            unit = nv.WGMMA(theirs, f"m64n8k32.{d}.{kind}.{kind}")
                        else:
                            unit = nv.TCGen05MMA(theirs, f"m64n8k32.kind::f8f6f4.{d}.{kind}.{kind}")
                    else:
                        unit = nv.MMA(theirs, f"{shape}.{d}.{kind}.{kind}.{d}")
                except AssertionError:
                    continue
                yield f"{arch} {form}" + (" float16" if half else ""), form, unit.arithmetic_op, depth, half
    for arch, form, suffix, depth in (
        ("cdna1", "float16", "f32_16x16x16f16", 16), ("cdna1", "bfloat16", "f32_16x16x8bf16", 8),
        ("cdna2", "float16", "f32_16x16x16f16", 16), ("cdna2", "bfloat16", "f32_16x16x16bf16_1k", 16),
        ("cdna2", "bfloat16", "f32_16x16x8bf16", 8),
        ("cdna3", "float16", "f32_16x16x16_f16", 16), ("cdna3", "bfloat16", "f32_16x16x16_bf16", 16),
        ("cdna3", "tf32", "f32_16x16x8_xf32", 8), ("cdna3", "e4m3fnuz", "f32_16x16x32_fp8_fp8", 32),
        ("cdna3", "e5m2fnuz", "f32_16x16x32_bf8_bf8", 32),
    ):  # fmt: skip
        name = f"{arch} {form}" + (" bf16" if suffix.endswith("8bf16") and arch == "cdna2" else "")
        yield name, form, amd.MFMA(arch.upper(), suffix).arithmetic_op, depth, False


def scaled(kept: dict[str, Any], rng: np.random.Generator) -> None:
    """Record block-scaled units: fp8 and fp6 with a scale for 32, fp4 with one for 32 or 16."""
    for kind, form in (("e4m3", "e4m3fn"), ("e5m2", "e5m2"), ("e2m3", "e2m3fn"), ("e3m2", "e3m2fn")):
        op = nv.TCGen05MMABlockScale(
            "Blackwell", f"m128n8k32.kind::mxf8f6f4.block32.f32.{kind}.{kind}.ue8m0"
        ).arithmetic_op
        for law in ("normal", "subnormal") if kind in ("e4m3", "e5m2") else ("codes",):
            a, b = (six(rng, s) if law == "codes" else numbers(rng, s, form, law) for s in ((5, 96), (96, 6)))
            scales = [torch.tensor(rng.integers(low, 160, s, np.uint8)) for low, s in ((100, (5, 3)), (90, (3, 6)))]
            scales[0][0, 0] = 255  # NaN
            e8m0 = [s.view(torch.float8_e8m0fnu) for s in scales]
            c = torch.zeros((5, 6))
            for k in range(3):
                part = slice(32 * k, 32 * k + 32)
                c = op(a[:, part], b[part], c, e8m0[0][:, k : k + 1], e8m0[1][k : k + 1])
            key = f"blackwell {form} scaled/{law}"
            kept.update({f"{key}/a": bits(a), f"{key}/b": bits(b), f"{key}/c": bits(c)})
            kept.update({f"{key}/left": scales[0].numpy(), f"{key}/right": scales[1].numpy()})
    for block, scale, span in (
        (32, "ue8m0", (100, 160)),
        (32, "ue8m0", (1, 60)),
        (16, "ue4m3", (0, 128)),
        (16, "ue4m3", (0, 16)),
    ):
        op = nv.TCGen05MMABlockScale(
            "Blackwell", f"m128n8k64.kind::mxf4nvf4.block{block}.f32.e2m1.e2m1.{scale}"
        ).arithmetic_op
        shapes = (5, 192), (192, 6)
        a, b = (np.where(rng.random(s) < 0.2, 0, rng.integers(0, 16, s)).astype(np.uint8) for s in shapes)
        a[1, :64] = 0  # whole groups of zeros
        values = [torch.tensor(_E2M1[x], dtype=torch.float32) for x in (a, b)]
        scales = [torch.tensor(rng.integers(*span, s, np.uint8)) for s in ((5, 192 // block), (192 // block, 6))]
        scales[0][0, 0] = 255 if scale == "ue8m0" else 127
        kind = torch.float8_e8m0fnu if scale == "ue8m0" else torch.float8_e4m3fn
        own = [s.view(kind) for s in scales]
        c, n = torch.zeros((5, 6)), 64 // block
        for k in range(3):
            part, s = slice(64 * k, 64 * k + 64), slice(n * k, n * k + n)
            c = op(values[0][:, part], values[1][part], c, own[0][:, s], own[1][s])
        key = f"blackwell e2m1fn scaled/{scale} {span[0]}"
        kept.update({f"{key}/a": a, f"{key}/b": b, f"{key}/c": bits(c)})
        kept.update({f"{key}/left": scales[0].numpy(), f"{key}/right": scales[1].numpy()})


_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def quantized(kept: dict[str, Any], rng: np.random.Generator) -> None:
    """Record nvfp4 of torchao."""
    from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize, per_tensor_amax_to_scale

    for law, x in (
        ("normal", rng.standard_normal((8, 64))), ("wide", np.exp2(rng.uniform(-9, 9, (8, 64)))),
        ("ties", rng.integers(-12, 13, (8, 64)) / 4.0), ("zeros", rng.standard_normal((8, 64)) * (rng.random((8, 4)) > 0.5).repeat(16, 1)),
    ):  # fmt: skip
        data = torch.tensor(x, dtype=torch.float32)
        whole = per_tensor_amax_to_scale(data.abs().max())
        scales, packed = nvfp4_quantize(data, 16, whole)
        codes = torch.stack([packed & 15, packed >> 4], dim=-1).reshape(8, 64)
        kept.update(
            {f"nvfp4/{law}/x": data.numpy(), f"nvfp4/{law}/codes": codes.numpy(), f"nvfp4/{law}/whole": whole.numpy()}
        )
        kept[f"nvfp4/{law}/scales"] = bits(scales.reshape(8, 4))


def main() -> None:
    """Record all."""
    rng = np.random.default_rng(51)
    kept: dict[str, Any] = {"mmasim": str(importlib.metadata.version("mmasim")), "torch": str(torch.__version__)}
    for name, form, op, depth, half in instructions():
        plain(kept, rng, name, form, op, depth, half)
    scaled(kept, rng)
    quantized(kept, rng)
    kept["torchao"] = str(importlib.metadata.version("torchao"))
    path = Path(__file__).parent / "data" / "matrix_units.npz"
    np.savez_compressed(path, **kept)
    print(path, path.stat().st_size, len(kept))


if __name__ == "__main__":
    main()
