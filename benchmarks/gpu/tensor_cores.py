"""Compare tensor-core products on a Hopper GPU with their emulation, to the bit.

    python benchmarks/gpu/tensor_cores.py [--part products] [--part instructions] [--part precision] [--tiles 1000000] [-o DIRECTORY]

First the products of PyTorch (cuBLAS): for each shape and type, the order is found among the usual ones on a few
outputs of one data law, and then all outputs of all laws must have the same bits. Then single instructions, `mma` and
`wgmma`, through inline PTX: chains of two on random tiles, so that the second one has an accumulator that is not zero.
Last what `fpsim.precision` says of PyTorch's products, by its switches (only with ``--part precision``).
Writes ``tensor_cores.json``, and the results that differ to ``tensor_cores.npz``; prints a table last.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fpsim
from fpsim.formats import BFLOAT16, E4M3FN, E5M2, FLOAT16, TF32, Format, round_to

FORMATS = {"tf32": TF32, "bf16": BFLOAT16, "f16": FLOAT16, "e4m3": E4M3FN, "e5m2": E5M2}
LAWS = ("normal", "wide", "subnormal", "special")


def operands(rng: np.random.Generator, rows: tuple[int, int], columns: tuple[int, int], forms: Any, law: str) -> Any:
    """Return two matrices. Of products that float32 holds as subnormals only, one operand is moderate."""
    moderate = rng.integers(2)
    return tuple(
        values(rng, shape, form, "moderate" if law == "subnormal" and form.emin <= -126 and side == moderate else law)
        for side, (shape, form) in enumerate(zip((rows, columns), forms, strict=True))
    )


def values(rng: np.random.Generator, shape: tuple[int, ...], form: Format, law: str) -> Any:
    """Return float32 numbers of a format; tf32 keeps the bits that are to be rounded away."""
    x = rng.standard_normal(shape)
    if law == "wide":
        x = np.sign(x) * 2.0 ** rng.uniform(-12, 12, shape)
    elif law == "subnormal":
        x = np.ldexp(x, rng.integers(form.emin - form.precision + 2, form.emin + 4, shape))
    elif law == "moderate":
        x = np.ldexp(x, rng.integers(-14, 10, shape))
    elif law == "special":
        kinds = rng.random(shape)
        x = np.where(kinds < 0.002, np.inf, np.where(kinds < 0.004, -np.inf, np.where(kinds < 0.005, np.nan, x)))
        x = np.where((kinds > 0.5) & (kinds < 0.6), 0.0, x)
        x = np.where((kinds > 0.9) & np.isfinite(x), x * form.max / 8, x)
        x = np.where((kinds > 0.6) & (kinds < 0.62), -0.0, x)
    elif law == "bits":
        x = np.ldexp(1 + rng.random(shape), rng.integers(form.emin - form.precision, form.emax + 1, shape))
        x = np.where(rng.random(shape) < 0.5, -x, x)
    elif law == "tiny":  # products at the lower end of float32, or of float16 for its own accumulator
        low = -77 if form.emin <= -126 else form.emin - 2
        x = np.ldexp(x, rng.integers(low, low + 6, shape))
    elif law == "near":
        x = np.ldexp(np.sign(x) * rng.choice([1.0, 1.0, 1.5, 1 + form.eps], shape), rng.integers(-2, 3, shape))
    with np.errstate(over="ignore"):
        wide = x.astype(np.float32)
    if form == TF32:
        return wide
    finite = np.isfinite(wide)
    out = np.asarray(round_to(np.where(finite, wide, 0), form.with_overflow("saturate")), np.float32)
    if form == E4M3FN:  # has no infinities
        return np.where(finite, out, np.float32(np.nan) if law == "special" else np.float32(0))
    return np.where(finite, out, wide)


def same(a: Any, b: Any) -> Any:
    """Tell which float32 results have the same bits; any NaN is as good as another here, and counted apart."""
    a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
    return (a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))


# --- products of the library ------------------------------------------------------------------------------------------

SHAPES = (
    (16, 8, 16), (16, 24, 32), (16, 64, 16), (8, 256, 8), (33, 77, 29), (16, 400, 16), (4, 512, 64), (32, 128, 48),
    (64, 64, 64), (128, 16, 128), (2, 400, 400), (48, 96, 80), (80, 112, 48), (16, 1024, 32), (65, 129, 63),
    (24, 1000, 40), (100, 100, 100), (64, 256, 64), (128, 512, 16), (16, 4096, 16), (128, 128, 128), (16, 16384, 16),
    (8, 1024, 512), (512, 1024, 8), (64, 32, 2048), (2048, 32, 64), (320, 48, 320), (200, 300, 100), (64, 2048, 64),
    (240, 304, 176), (500, 64, 500), (256, 256, 256), (96, 1536, 384), (384, 96, 1536), (320, 512, 448),
    (640, 256, 640), (384, 768, 384), (128, 8192, 128),
)  # fmt: skip
# Type of the operands and the result.
KINDS = {
    "tf32": ("tf32", "tf32", "float32"), "bf16_f32": ("bf16", "bf16", "float32"), "bf16": ("bf16", "bf16", "bfloat16"),
    "f16_f32": ("f16", "f16", "float32"), "f16": ("f16", "f16", "float16"), "e4m3": ("e4m3", "e4m3", "float32"),
    "e4m3_fast": ("e4m3", "e4m3", "float32"), "e5m2_e4m3": ("e5m2", "e4m3", "float32"),
    "e5m2_e4m3_fast": ("e5m2", "e4m3", "float32"), "e4m3_bf16": ("e4m3", "e4m3", "bfloat16"),
}  # fmt: skip
_SEARCH = 2.0  # seconds after which no further order is tried for a product
NAMES = {"tf32": "tf32", "bf16": "bfloat16", "f16": "float16", "e4m3": "e4m3fn", "e5m2": "e5m2"}


def library_product(torch: Any, kind: str, a: Any, b: Any) -> Any:
    """Return the product that cuBLAS gives, as float32."""
    types = {
        "tf32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn,
        "e5m2": torch.float8_e5m2,
    }  # fmt: skip
    left, right, result = KINDS[kind]
    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    x = torch.tensor(a).cuda().to(types[left])
    if left in ("e4m3", "e5m2"):
        y = torch.tensor(np.ascontiguousarray(b.T)).cuda().to(types[right]).t()
        one = torch.ones((), device="cuda")
        out = torch._scaled_mm(
            x, y, scale_a=one, scale_b=one, out_dtype=getattr(torch, result), use_fast_accum=kind.endswith("_fast")
        )
        out = out[0] if isinstance(out, tuple) else out
    else:
        y = torch.tensor(b).cuda().to(types[right])
        widened = result == "float32" and left != "tf32"
        out = torch.mm(x, y, out_dtype=torch.float32) if widened else torch.mm(x, y)
    return out.float().cpu().numpy()


def orders(kind: str, k: int) -> Iterator[str]:
    """Yield the usual orders of a product, the likely ones first."""
    left, _, result = KINDS[kind]
    fp8 = left in ("e4m3", "e5m2")
    bits = 13 if fp8 else 25
    terms = {"tf32": (8, 4), "bf16": (16, 8), "f16": (16, 8), "e4m3": (32,), "e5m2": (32,)}[left]
    chains = [f"fused({t}{rest})+align({bits})" for rest in ("", ", rest=first") for t in terms]
    tiles = (32, 64, 16, 128) if k % terms[0] else ()
    chains += [f"fused({t}, rest=first, tile={tile})+align({bits})" for tile in tiles for t in terms if tile % t == 0]
    if fp8:
        chains += [f"chunks(128, {chains[0]})"]
        chains = chains[::-1] if not kind.endswith("_fast") else chains
    yield from chains
    pairs = [c for c in chains if not c.startswith("chunks")]
    sizes: list[int] = []
    for parts in (*range(2, 33), 36, 40, 48, 64, 96, 128):
        part = math.ceil(k / parts)
        sizes += [math.ceil(part / multiple) * multiple for multiple in (1, 4, 8, 16, 32, 64, 128)]
    sizes += [4, 8, 16, 20, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024, 2048]
    combines = [""]
    if result != "float32":
        combines += [f", combine=serial+acc({result})"]
    for size in dict.fromkeys(s for s in sizes if 0 < s < k):
        for chain in [*pairs, *([chains[0]] if chains[0].startswith("chunks") else [])]:
            for combine in combines:
                yield f"chunks({size}, {chain}{combine})"
                if result != "float32":
                    yield f"chunks({size}, {chain}+output({result}){combine})"
    for parts in (2, 3, 4, 5, 6, 8, 16):
        for block in (8, 16, 32, 64, 128):
            if parts * block <= k:
                yield from (f"interleaved({parts}, {chain}, block={block})" for chain in pairs)
    # What small shapes fall back on: no tensor cores at all.
    yield from ("serial+fma", "serial", "lanes(32, combine=fold)+fma", "lanes(32, combine=fold)")


def with_operands(kind: str, order: str) -> str:
    """Return the strategy: an order with the types of the operands and the result."""
    left, right, result = KINDS[kind]
    if left == "tf32" and "fused" not in order:
        return order
    operands = NAMES[left] if left == right else f"{NAMES[left]}, {NAMES[right]}"
    return f"{order}+operands({operands})" + ("" if result == "float32" else f"+output({result})")


def find_order(kind: str, data: Any, results: Any, known: list[str]) -> tuple[str | None, float]:
    """Return the first order that gives the same bits on some outputs, and the best share of equal bits.

    A few outputs of one law decide which orders are tried on more of them, of all laws: results of 16 bits tell orders
    apart by few of their elements. `known` are orders of other types, tried first.
    """
    samples = []
    for law, sizes in (("wide", (4, 8)), *((law, (48, 64)) for law in LAWS)):
        (a, b), expected = data[law], results[law]
        places = [
            np.unique(np.linspace(0, n - 1, most).astype(int)) for n, most in zip(expected.shape, sizes, strict=True)
        ]
        samples.append((a[places[0]], np.ascontiguousarray(b[:, places[1]]), expected[np.ix_(*places)]))
    best, end = 0.0, time.perf_counter() + _SEARCH
    for order in dict.fromkeys([*known, *orders(kind, samples[0][0].shape[1])]):
        text = with_operands(kind, order)
        for left, right, wanted in samples:
            share = float(same(fpsim.matmul(left, right, text), wanted).mean())
            best = max(best, share)
            if share < 1.0:
                break
        else:
            return order, 1.0
        if time.perf_counter() > end:
            break
    return None, best


def compare_products(seconds: float, kept: dict[str, Any]) -> list[dict[str, Any]]:
    """Compare cuBLAS's products with the emulation, on all shapes, types and laws."""
    import torch

    rng = np.random.default_rng(20)
    out: list[dict[str, Any]] = []
    start = time.perf_counter()
    for m, k, n in SHAPES:
        known: dict[str, list[str]] = {}
        for kind, (left, right, _) in KINDS.items():
            if left in ("e4m3", "e5m2") and (k % 16 or n % 16):
                continue
            row: dict[str, Any] = {"shape": f"{m}x{k}x{n}", "kind": kind, "order": None, "laws": {}}
            out.append(row)
            if time.perf_counter() - start > seconds:
                row["error"] = "out of time"
                continue
            data = {law: operands(rng, (m, k), (k, n), (FORMATS[left], FORMATS[right]), law) for law in LAWS}
            try:
                results = {law: library_product(torch, kind, *operands) for law, operands in data.items()}
            except Exception as error:  # noqa: BLE001  whatever the library does not do is listed
                row["error"] = f"{type(error).__name__}: {error}"[:300]
                continue
            # The order of the same type with float32 results is the likely one, then that of other types of its width.
            width = "8" if left in ("e4m3", "e5m2") else "16"
            own, others = known.setdefault(left, []), known.setdefault(width, [])
            row["order"], row["best"] = find_order(kind, data, results, [*own, *others])
            if row["order"] is not None:
                own.append(row["order"])
                others.append(row["order"])
            if row["order"] is None:
                first = f"{row['shape']}/{kind}"
                kept[f"{first}/a"], kept[f"{first}/b"], kept[f"{first}/c"] = *data["wide"], results["wide"]
                continue
            text = with_operands(kind, row["order"])
            for law, (a, b) in data.items():
                got = np.asarray(fpsim.matmul(a, b, text), np.float32)
                equal = same(got, results[law])
                payload = (got.view(np.uint32) != results[law].view(np.uint32)) & np.isnan(got) & np.isnan(results[law])
                row["laws"][law] = [int(equal.size), int(equal.sum()), int(payload.sum())]
                if not equal.all():
                    i, j = (int(x) for x in np.argwhere(~equal)[0])
                    name = f"{row['shape']}/{kind}/{law}"
                    row.setdefault("examples", []).append(
                        [law, i, j, hex(got[i, j].view(np.uint32)), hex(results[law][i, j].view(np.uint32))]
                    )
                    kept[f"{name}/a"], kept[f"{name}/b"], kept[f"{name}/c"] = a[i], b[:, j], results[law][i, j]
    return out


# --- single instructions ----------------------------------------------------------------------------------------------

# A row of A, or a column of B, is 8 words of 32 bits in every one of these instructions.
SOURCE = r"""
#define MMA(name, shape, types) \
extern "C" __global__ void name(const unsigned* A, const unsigned* B, float* D, long long tiles, int steps) { \
  long long tile = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / 32; \
  if (tile >= tiles) return; \
  int lane = threadIdx.x % 32, g = lane >> 2, t = lane & 3; \
  float d0 = 0, d1 = 0, d2 = 0, d3 = 0; \
  for (int s = 0; s < steps; ++s) { \
    const unsigned* a = A + s * 16 * 8; const unsigned* b = B + (tile * steps + s) * 8 * 8; \
    asm volatile("mma.sync.aligned." shape ".row.col." types \
      " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
      : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) \
      : "r"(a[g * 8 + t]), "r"(a[(g + 8) * 8 + t]), "r"(a[g * 8 + t + 4]), "r"(a[(g + 8) * 8 + t + 4]), \
        "r"(b[g * 8 + t]), "r"(b[g * 8 + t + 4])); \
  } \
  float* d = D + tile * 8 + 2 * t; long long ld = tiles * 8; \
  d[g * ld] = d0; d[g * ld + 1] = d1; d[(g + 8) * ld] = d2; d[(g + 8) * ld + 1] = d3; \
}

#define MMA_HALF(name, shape, types) \
extern "C" __global__ void name(const unsigned* A, const unsigned* B, float* D, long long tiles, int steps) { \
  long long tile = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / 32; \
  if (tile >= tiles) return; \
  int lane = threadIdx.x % 32, g = lane >> 2, t = lane & 3; \
  unsigned d0 = 0, d1 = 0; \
  for (int s = 0; s < steps; ++s) { \
    const unsigned* a = A + s * 16 * 8; const unsigned* b = B + (tile * steps + s) * 8 * 8; \
    asm volatile("mma.sync.aligned." shape ".row.col." types \
      " {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};" \
      : "+r"(d0), "+r"(d1) \
      : "r"(a[g * 8 + t]), "r"(a[(g + 8) * 8 + t]), "r"(a[g * 8 + t + 4]), "r"(a[(g + 8) * 8 + t + 4]), \
        "r"(b[g * 8 + t]), "r"(b[g * 8 + t + 4])); \
  } \
  float* d = D + tile * 8 + 2 * t; long long ld = tiles * 8; \
  d[g * ld] = half(d0); d[g * ld + 1] = half(d0 >> 16); d[(g + 8) * ld] = half(d1); d[(g + 8) * ld + 1] = half(d1 >> 16); \
}

// A comes from registers, B from shared memory: two core matrices of 8 columns by 16 bytes, one after the other.
#define WGMMA(name, shape, types, more) \
extern "C" __global__ void __launch_bounds__(128) name( \
    const unsigned* A, const unsigned* B, float* D, long long tiles, int steps) { \
  __shared__ __align__(128) unsigned shared[64]; \
  long long tile = blockIdx.x; \
  int lane = threadIdx.x % 32, g = lane >> 2, t = lane & 3, row = threadIdx.x / 32 * 16 + g; \
  unsigned address = (unsigned)__cvta_generic_to_shared(shared); \
  unsigned long long descriptor = ((unsigned long long)((address & 0x3FFFF) >> 4)) | (8ULL << 16) | (8ULL << 32); \
  float d0 = 0, d1 = 0, d2 = 0, d3 = 0; \
  for (int s = 0; s < steps; ++s) { \
    const unsigned* a = A + s * 64 * 8; const unsigned* b = B + (tile * steps + s) * 8 * 8; \
    __syncthreads(); \
    if (threadIdx.x < 64) { \
      int column = threadIdx.x / 8, word = threadIdx.x % 8; \
      shared[(word / 4) * 32 + column * 4 + word % 4] = b[column * 8 + word]; \
    } \
    asm volatile("fence.proxy.async;" ::: "memory"); \
    __syncthreads(); \
    unsigned a0 = a[row * 8 + t], a1 = a[(row + 8) * 8 + t], a2 = a[row * 8 + t + 4], a3 = a[(row + 8) * 8 + t + 4]; \
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0;\n" \
      "wgmma.mma_async.sync.aligned." shape "." types " {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, p, 1, 1" more ";\n}" \
      : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(descriptor) : "memory"); \
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory"); \
  } \
  float* d = D + tile * 8 + 2 * t; long long ld = tiles * 8; \
  d[row * ld] = d0; d[row * ld + 1] = d1; d[(row + 8) * ld] = d2; d[(row + 8) * ld + 1] = d3; \
}

__device__ float half(unsigned x) {
  float f; asm("{ .reg .f16 h; mov.b16 h, %1; cvt.f32.f16 %0, h; }" : "=f"(f) : "h"((unsigned short)x)); return f;
}

MMA(mma_f16, "m16n8k16", "f32.f16.f16.f32")
MMA(mma_bf16, "m16n8k16", "f32.bf16.bf16.f32")
MMA(mma_tf32, "m16n8k8", "f32.tf32.tf32.f32")
MMA(mma_e4m3, "m16n8k32", "f32.e4m3.e4m3.f32")
MMA(mma_e5m2, "m16n8k32", "f32.e5m2.e5m2.f32")
MMA_HALF(mma_f16_f16, "m16n8k16", "f16.f16.f16.f16")
WGMMA(wgmma_f16, "m64n8k16", "f32.f16.f16", ", 0")
WGMMA(wgmma_bf16, "m64n8k16", "f32.bf16.bf16", ", 0")
WGMMA(wgmma_tf32, "m64n8k8", "f32.tf32.tf32", "")
WGMMA(wgmma_e4m3, "m64n8k32", "f32.e4m3.e4m3", "")
WGMMA(wgmma_e5m2, "m64n8k32", "f32.e5m2.e5m2", "")
"""

STEPS = 2
# Kernel: rows of A, operand type, inner dimension of the instruction, and strategies, the expected one first.
INSTRUCTIONS = {
    "mma_f16": (16, "f16", 16, ("fused(16)+align(25)", "fused(8)+align(25)", "fused(16)+align(24)")),
    "mma_bf16": (16, "bf16", 16, ("fused(16)+align(25)", "fused(8)+align(25)", "fused(16)+align(24)")),
    "mma_tf32": (16, "tf32", 8, ("fused(8)+align(25)", "fused(4)+align(25)", "fused(8)+align(24)")),
    "mma_e4m3": (16, "e4m3", 32, ("tensor_core(arch=hopper, type=e4m3fn, instruction=mma)",)),
    "mma_e5m2": (16, "e5m2", 32, ("tensor_core(arch=hopper, type=e5m2, instruction=mma)",)),
    "mma_f16_f16": (16, "f16", 16, ("fused(16)+align(25, float16)", "fused(8)+align(25, float16)", "fused(16)+align(24, float16)")),
    "wgmma_f16": (64, "f16", 16, ("fused(16)+align(25)", "fused(8)+align(25)")),
    "wgmma_bf16": (64, "bf16", 16, ("fused(16)+align(25)", "fused(8)+align(25)")),
    "wgmma_tf32": (64, "tf32", 8, ("fused(8)+align(25)", "fused(4)+align(25)")),
    "wgmma_e4m3": (64, "e4m3", 32, ("fused(32)+align(13)", "fused(16)+align(13)")),
    "wgmma_e5m2": (64, "e5m2", 32, ("fused(32)+align(13)", "fused(16)+align(13)")),
}  # fmt: skip
_REUSE = 16  # left operands that the same right ones are multiplied with, since drawing those takes most of the time
TILE_LAWS = ("normal", "wide", "subnormal", "special", "bits", "near", "tiny")


def compiled(directory: Path) -> Any:
    """Return the kernels, compiled for sm_90a, which has wgmma."""
    import cupy
    from cupy.cuda import nvrtc

    program = nvrtc.createProgram(SOURCE, "tensor_cores.cu", [], [])
    try:
        nvrtc.compileProgram(program, ["--gpu-architecture=sm_90a", "--std=c++17"])
    except nvrtc.NVRTCError:
        print(nvrtc.getProgramLog(program))
        raise
    path = directory / "tensor_cores.cubin"
    path.write_bytes(nvrtc.getCUBIN(program))
    return cupy.RawModule(path=str(path))


def words(x: Any, kind: str) -> Any:
    """Return rows of operands as 32-bit words, the bits that the instruction reads."""
    if kind == "tf32":
        return np.ascontiguousarray(x).view(np.uint32)
    if kind == "f16":
        return np.ascontiguousarray(x.astype(np.float16)).view(np.uint32)
    if kind == "bf16":
        return (np.ascontiguousarray(x).view(np.uint32) >> 16).astype(np.uint16).view(np.uint32)
    import torch

    form = torch.float8_e4m3fn if kind == "e4m3" else torch.float8_e5m2
    return torch.tensor(np.ascontiguousarray(x)).to(form).view(torch.uint8).numpy().view(np.uint32)


def right_words(b: Any, kind: str) -> Any:
    """Return tiles of 8 columns of b, (K, 8 * tiles), as the kernels read them, on the GPU."""
    import cupy

    tiles, depth = b.shape[1] // 8, b.shape[0] // STEPS
    return cupy.asarray(words(b.T.reshape(tiles, 8, STEPS, depth).transpose(0, 2, 1, 3), kind))


def run_tiles(kernel: Any, rows: int, kind: str, a: Any, b: Any, right: Any = None) -> Any:
    """Return what chains of instructions give for rows a, (rows, K), and tiles of 8 columns of b, (K, 8 * tiles)."""
    import cupy

    tiles, depth = b.shape[1] // 8, a.shape[1] // STEPS
    left = words(a.reshape(rows, STEPS, depth).transpose(1, 0, 2), kind)
    right = right_words(b, kind) if right is None else right
    out = cupy.empty((rows, tiles * 8), cupy.float32)
    grid, block = (tiles, 128) if rows == 64 else (-(-tiles * 32 // 128), 128)
    kernel((grid,), (block,), (cupy.asarray(left), right, out, np.int64(tiles), np.int32(STEPS)))
    return cupy.asnumpy(out)


def probed(rng: Any, kernel: Any, rows: int, kind: str, depth: int, texts: list[str]) -> dict[str, float]:
    """Return the share of equal bits of each strategy, on data that tell them apart."""
    shares = dict.fromkeys(texts, 0.0)
    laws = ("wide", "subnormal", "near")
    for law in laws:
        a, b = operands(rng, (rows, depth * STEPS), (depth * STEPS, 512), (FORMATS[kind],) * 2, law)
        hardware = run_tiles(kernel, rows, kind, a, b)
        for text in texts:
            shares[text] += float(same(fpsim.matmul(a, b, text), hardware).mean()) / len(laws)
    return shares


def compare_instructions(tiles: int, seconds: float, directory: Path, kept: dict[str, Any]) -> list[dict[str, Any]]:
    """Compare single instructions with the emulation, each on so many random tiles."""
    module = compiled(directory)
    rng = np.random.default_rng(21)
    out: list[dict[str, Any]] = []
    start = time.perf_counter()
    for number, (name, (rows, kind, depth, candidates)) in enumerate(INSTRUCTIONS.items()):
        row: dict[str, Any] = {"instruction": name, "tiles": 0, "outputs": 0, "equal": 0, "laws": {}, "examples": []}
        out.append(row)
        kernel = module.get_function(name)
        mode = ", toward_zero" if kind == "tf32" else ""
        stated = f"+operands({NAMES[kind]}{mode})"
        texts = [text if text.startswith("tensor_core") else text + stated for text in candidates]
        begin = time.perf_counter()
        share = (seconds - (begin - start)) / (len(INSTRUCTIONS) - number)
        group = 4096 if rows == 16 else 2048
        chosen: str | None = None
        index = 0
        while row["tiles"] < tiles and time.perf_counter() - begin < share:
            law = TILE_LAWS[index // _REUSE % len(TILE_LAWS)]
            if index % _REUSE == 0:
                several = operands(
                    rng, (rows * _REUSE, depth * STEPS), (depth * STEPS, 8 * group), (FORMATS[kind],) * 2, law
                )
                right = right_words(several[1], kind)
            a, b = several[0][index % _REUSE :: _REUSE], several[1]
            hardware = run_tiles(kernel, rows, kind, a, b, right)
            if chosen is None:
                row["candidates"] = shares = probed(rng, kernel, rows, kind, depth, texts)
                chosen = row["strategy"] = max(texts, key=lambda text: shares[text])
            got = np.asarray(fpsim.matmul(a, b, chosen), np.float32)
            equal = same(got, hardware)
            total, good, payload = row["laws"].setdefault(law, [0, 0, 0])
            other = np.isnan(got) & np.isnan(hardware) & (got.view(np.uint32) != hardware.view(np.uint32))
            row["laws"][law] = [total + equal.size, good + int(equal.sum()), payload + int(other.sum())]
            if f"sample/{name}/{law}/c" not in kept:  # for tests without a GPU
                kept[f"sample/{name}/{law}/a"], kept[f"sample/{name}/{law}/b"] = a[:4], b[:, :24]
                kept[f"sample/{name}/{law}/c"] = hardware[:4, :24]
            row["tiles"] += group
            row["outputs"] += equal.size
            row["equal"] += int(equal.sum())
            if not equal.all() and len(row["examples"]) < 12:
                for i, j in np.argwhere(~equal)[:3].tolist():
                    row["examples"].append(
                        [
                            law,
                            hex(got[i, j].view(np.uint32)),
                            hex(hardware[i, j].view(np.uint32)),
                            f"{name}/{law}/{index}",
                        ]
                    )
                    kept[f"{name}/{law}/{index}/{i}_{j}/a"], kept[f"{name}/{law}/{index}/{i}_{j}/b"] = a[i], b[:, j]
                    kept[f"{name}/{law}/{index}/{i}_{j}/c"] = hardware[i, j]
            index += 1
        row["seconds"] = time.perf_counter() - begin
    return out


def measure_precisions() -> list[str]:
    """Return which precision PyTorch's products have, by its switches."""
    import torch

    def product(kind: Any) -> Any:
        return lambda a, b: torch.mm(torch.tensor(a).cuda().to(kind), torch.tensor(b).cuda().to(kind)).float().cpu()

    lines = []
    for chosen in ("highest", "high", "medium"):
        torch.set_float32_matmul_precision(chosen)
        lines += [
            f"{chosen}: {fpsim.precision(product(torch.float32), shape=shape, library='torch')}"
            for shape in ((256, 256, 256), (64, 32, 2048), (1, 256, 256))
        ]
    torch.set_float32_matmul_precision("highest")
    for narrow in (False, True):
        torch.backends.cuda.matmul.allow_fp16_accumulation = narrow
        found = fpsim.precision(product(torch.float16), shape=(256, 256, 256), dtype="float16", library="torch")
        lines.append(f"allow_fp16_accumulation={narrow}: {found}")
    torch.backends.cuda.matmul.allow_fp16_accumulation = False
    lines.append(
        str(fpsim.precision(product(torch.bfloat16), shape=(256, 256, 256), dtype="bfloat16", library="torch"))
    )
    return lines


def main() -> None:
    """Run the parts, write what was found, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=["products", "instructions", "precision"])
    parser.add_argument("--tiles", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("-o", "--output", type=Path, default=Path(os.environ.get("OUT", ".")))
    options = parser.parse_args()
    parts = options.part or ["products", "instructions"]
    options.output.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"fpsim": fpsim.__version__}
    kept: dict[str, Any] = {}
    for module in ("torch", "cupy"):
        try:
            found[module] = __import__(module).__version__
        except ImportError as error:
            found[module] = str(error)

    def write() -> None:
        (options.output / "tensor_cores.json").write_text(json.dumps(found, indent=1))
        np.savez_compressed(options.output / "tensor_cores.npz", **dict(list(kept.items())[:3000]))

    share = options.seconds / len(parts)
    if "instructions" in parts:
        found["instructions"] = compare_instructions(options.tiles, share, options.output, kept)
        write()
    if "products" in parts:
        found["products"] = compare_products(share, kept)
        write()
    if "precision" in parts:
        found["precision"] = measure_precisions()
        write()
    show(found)


def show(found: dict[str, Any]) -> None:
    """Print the tables."""
    print(*found.get("precision", []), sep="\n")
    for row in found.get("instructions", []):
        unequal = {law: total - good for law, (total, good, _) in row["laws"].items() if total != good}
        payload = sum(other for _, _, other in row["laws"].values())
        print(
            f"{row['instruction']:12s} {row['tiles']:>9,} tiles {row['outputs']:>13,} outputs {row['equal'] / max(row['outputs'], 1):8.4%}"
            f"  {row.get('strategy', '')}  {row['seconds']:.0f} s"
            + (f"  DIFFERENT {unequal} {row['examples'][:2]}" if unequal else "")
            + (f"  NaN payloads {payload}" if payload else "")
        )
    products = found.get("products", [])
    for kind in KINDS:
        rows = [row for row in products if row["kind"] == kind]
        late = sum(row.get("error") == "out of time" for row in rows)
        rows = [row for row in rows if row.get("error") != "out of time"]
        done = [row for row in rows if "error" not in row]
        equal = [row for row in done if row["order"] and all(t == g for t, g, _ in row["laws"].values())]
        total = sum(t for row in done for t, _, _ in row["laws"].values())
        good = sum(g for row in done for _, g, _ in row["laws"].values())
        payload = sum(p for row in done for _, _, p in row["laws"].values())
        if rows:
            print(
                f"{kind:15s} {len(equal):3d} of {len(done):3d} shapes equal, {good:,} of {total:,} outputs"
                + (f", NaN payloads {payload}" if payload else "")
                + (f", {late} shapes not reached" if late else "")
            )
        for row in rows:
            if "error" in row:
                print(f"    {row['shape']}: {row['error'][:120]}")
            elif row["order"] is None:
                print(f"    {row['shape']}: no order found, best {row['best']:.1%}")
            elif row not in equal:
                bad = {law: f"{g}/{t}" for law, (t, g, _) in row["laws"].items() if g != t}
                print(f"    {row['shape']}: {row['order']} differs: {bad} {row.get('examples', [])[:1]}")


if __name__ == "__main__":
    main()
