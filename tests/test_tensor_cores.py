"""Fused adds and tensor cores, against recorded products of an H200 and an evaluator in integers."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
import reference_fused
from hypothesis import example, given, settings, strategies as draws
from numpy.typing import NDArray

import fpsim
from fpsim import bounds, exact
from fpsim.errors import InputError, StrategyError
from fpsim.formats import BFLOAT16, E4M3FN, E5M2, FLOAT16, FLOAT32, TF32, Format, format_named, round_to
from fpsim.orders.tensor_core import UNITS

H200 = np.load(Path(__file__).parent / "data" / "h200_tensor_cores.npz")
RECORDED = [name for name in H200.files if name.count("/") == 2 and not name.endswith(("/a", "/b"))]
FORMATS = {"float16": FLOAT16, "bfloat16": BFLOAT16, "tf32": TF32, "e4m3fn": E4M3FN, "e5m2": E5M2, "float32": FLOAT32}

# How cuBLAS cuts the inner dimension: its instruction, and what it does with the chains.
TF32_CHUNKS = {
    "16x64x16": 32, "32x128x48": 32, "64x256x64": 32, "128x512x16": 32, "16x400x16": 20, "16x1024x32": 64,
    "16x4096x16": 192,
}  # fmt: skip


def order_of(shape: str, kind: str) -> str:
    """Return the order in which cuBLAS 13.1 multiplied on the H200."""
    if kind == "tf32":
        chain = "fused(8, rest=first)+align(25)"
        return f"chunks({TF32_CHUNKS[shape]}, {chain})" if shape in TF32_CHUNKS else "fused(8)+align(25)"
    if kind.startswith(("e4m3", "e5m2")):
        return "fused(32)+align(13)" if kind.endswith("fast") else "chunks(128, fused(32)+align(13))"
    if shape == "33x77x29":  # rows that are not aligned
        return "chunks(8, fused(8)+align(25))" if kind.startswith("bf16") else "fused(16, rest=first)+align(25)"
    return "chunks(1408, fused(16)+align(25))" if shape == "16x4096x16" else "fused(16)+align(25)"


def strategy_of(shape: str, kind: str) -> str:
    operands = {
        "tf32": "tf32", "bf16": "bfloat16", "bf16_f32": "bfloat16", "f16": "float16", "f16_f32": "float16",
        "e4m3": "e4m3fn", "e4m3_fast": "e4m3fn", "e5m2_e4m3_fast": "e5m2, e4m3fn",
    }[kind]  # fmt: skip
    output = f"+output({operands})" if kind in ("bf16", "f16") else ""
    return f"{order_of(shape, kind)}+operands({operands}){output}"


def same_bits(a: Any, b: Any) -> bool:
    return bool(np.array_equal(np.asarray(a, np.float32).view(np.uint32), np.asarray(b, np.float32).view(np.uint32)))


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_product(name: str) -> None:
    case, kind = name.rsplit("/", 1)
    text = strategy_of(case.split("/")[0], kind)
    result = fpsim.matmul(H200[f"{case}/a"], H200[f"{case}/b"], text)
    expected = H200[name]
    if kind == "f16":  # the NaN 0x7FFF of float16 was widened on the GPU, to its float32 NaN
        assert np.array_equal(np.isnan(result), np.isnan(expected))
        result, expected = (np.where(np.isnan(x), 0, x) for x in (result, expected))
    assert same_bits(result, expected)


def test_recordings_tell_the_rules_apart() -> None:
    """Each ingredient matters: without it the recorded bits are not met."""
    wrong = {
        "16x64x16/wide/f16_f32": ["fused(16)+align(24)", "fused(8)+align(25)", "fused(16)+align(25, float32)"],
        "33x77x29/wide/f16_f32": ["fused(16)+align(25)"],
        "33x77x29/wide/bf16_f32": ["fused(8)+align(25)", "fused(16)+align(25)"],
        "64x256x64/wide.fp8/e4m3": ["fused(32)+align(13)", "chunks(128, fused(32)+align(13, float32, toward_zero))"],
        "64x256x64/subnormal.f160/f16_f32": ["fused(16)+align(25)+operands(float32)"],
        "64x256x64/subnormal.tf322/tf32": ["chunks(32, fused(8)+align(25))+operands(tf32, nearest_away)"],
    }
    for name, texts in wrong.items():
        case, kind = name.rsplit("/", 1)
        operands = strategy_of(case.split("/")[0], kind).rsplit("+", 1)[1]
        a, b = H200[f"{case}/a"], H200[f"{case}/b"]
        for text in texts:
            full = text if "operands" in text else f"{text}+{operands}"
            if full.endswith("operands(float32)"):
                a, b = round_to(a, FLOAT16), round_to(b, FLOAT16)
            assert not same_bits(fpsim.matmul(a, b, full), H200[name]), full


# --- single instructions, and products of rows that are not aligned ---------------------------------------------------

INSTRUCTIONS = np.load(Path(__file__).parent / "data" / "h200_instructions.npz")
# cuBLAS cuts the inner dimension into tiles, of which the first takes what is left.
UNALIGNED = {
    "24x1000x40/tf32": "chunks(44, fused(8, rest=first, tile=32)+align(25))+operands(tf32)",
    "200x300x100/tf32": "fused(8, rest=first, tile=32)+align(25)+operands(tf32)",
    "200x300x100/bf16": "fused(16, rest=first, tile=64)+align(25)+operands(bfloat16)+output(bfloat16)",
    "200x300x100/bf16_f32": "fused(16, rest=first, tile=64)+align(25)+operands(bfloat16)",
    "200x300x100/f16": "fused(16, rest=first, tile=64)+align(25)+operands(float16)+output(float16)",
    "200x300x100/f16_f32": "fused(16, rest=first, tile=64)+align(25)+operands(float16)",
    "100x100x100/f16": "fused(16, rest=first, tile=64)+align(25)+operands(float16)+output(float16)",
    "100x100x100/f16_f32": "fused(16, rest=first, tile=64)+align(25)+operands(float16)",
}


def widened(x: NDArray[Any]) -> NDArray[np.float32]:
    """Return recorded operands as float32; bfloat16 ones are kept as bits."""
    return (x.astype(np.uint32) << 16).view(np.float32) if x.dtype == np.uint16 else x.astype(np.float32)


@pytest.mark.parametrize("name", sorted({n[8:-2] for n in INSTRUCTIONS.files if n.startswith("product/")}))
def test_product_of_unaligned_rows(name: str) -> None:
    a, b, expected = (widened(INSTRUCTIONS[f"product/{name}/{x}"]) for x in "abc")
    assert same_bits(fpsim.matmul(a, b, UNALIGNED[name]), expected)
    if not name.endswith("16"):  # 16 bits do not show how the chain began
        untiled = re.sub(r", tile=\d+", "", UNALIGNED[name])
        assert not same_bits(fpsim.matmul(a, b, untiled), expected)


TILES = np.load(Path(__file__).parent / "data" / "h200_tiles.npz")
TILE_TEXTS = dict(line.split(": ", 1) for line in TILES["strategies"].tolist())


@pytest.mark.parametrize("name", sorted({n.rpartition("/")[0] for n in TILES.files if n.endswith("/c")}))
def test_tiles_of_every_instruction(name: str) -> None:
    """Two instructions on one accumulator, random operands of several laws, as an H200 gave them."""
    a, b, expected = (widened(TILES[f"{name}/{x}"]) for x in "abc")
    assert same_bits(fpsim.matmul(a, b, TILE_TEXTS[name.partition("/")[0]]), expected)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("mma_e4m3", "tensor_core(arch=hopper, type=e4m3fn, instruction=mma)"),
        ("mma_e5m2", "tensor_core(arch=hopper, type=e5m2, instruction=mma)"),
        ("mma_f16_f16", "tensor_core(arch=hopper, type=float16, result=float16)"),
    ],
)
def test_recorded_instructions(kind: str, text: str) -> None:
    """Two instructions on one accumulator; the recorded tiles are ones that simpler rules get wrong."""
    a, b, expected = (INSTRUCTIONS[f"tile/{kind}/{x}"].astype(np.float32) for x in "abc")
    for left, right, value in zip(a, b, expected, strict=True):
        assert same_bits(fpsim.dot(left, right, text), value)
    if kind != "mma_f16_f16":
        wrong = text.replace(", instruction=mma", "")
        got = [fpsim.dot(left, right, wrong) for left, right in zip(a, b, strict=True)]
        assert not same_bits(got, expected)
        return
    # Sums that are rounded to zero are +0, though most of them are negative.
    assert not expected.view(np.uint32).any()
    chained = fpsim.matmul(a, b.T, "fused(16)+align(25, float32)+operands(float16)").diagonal()
    assert (chained < 0).sum() == 9


@pytest.mark.parametrize("form", ["e4m3fn", "e5m2"])
@pytest.mark.parametrize("n", [3, 32, 44, 128])
def test_converted_fp8(form: str, n: int) -> None:
    """Two float16 instructions on every other pair of terms, then a float32 addition; zeros fill the last 32 terms."""
    rng = np.random.default_rng(15)
    a, b = numbers(rng, (3, n), FORMATS[form], "wide"), numbers(rng, (n, 4), FORMATS[form], "wide")
    places = [k for half in (0, 2) for k in range(32) if k % 4 // 2 * 2 == half]
    text = f"chunks(32, permute({places}, fused(16)+align(25)))+operands({form})"
    left, right = np.pad(a, ((0, 0), (0, -n % 32))), np.pad(b, ((0, -n % 32), (0, 0)))
    got = fpsim.matmul(a, b, f"tensor_core(arch=hopper, type={form}, instruction=mma)")
    assert same_bits(got, fpsim.matmul(left, right, text))


@pytest.mark.parametrize(
    ("terms", "tile", "n"), [(4, 8, 23), (4, 8, 24), (4, 16, 13), (8, 8, 21), (2, 6, 3), (4, 8, 44)]
)
def test_tiles(terms: int, tile: int, n: int) -> None:
    """The first tile takes what is left, and is cut from its beginning: as if zeros followed it."""
    rng = np.random.default_rng(14)
    a, b = numbers(rng, (3, n), FLOAT16, "wide"), numbers(rng, (n, 4), FLOAT16, "wide")
    got = fpsim.matmul(a, b, f"fused({terms}, rest=first, tile={tile})+align(25)+operands(float16)")
    short = n % tile
    padding = -short % terms
    left, right = np.insert(a, [short] * padding, 0, axis=1), np.insert(b, [short] * padding, 0, axis=0)
    assert same_bits(got, fpsim.matmul(left, right, f"fused({terms})+align(25)+operands(float16)"))


# --- the evaluator in integers ----------------------------------------------------------------------------------------


def numbers(rng: np.random.Generator, shape: tuple[int, int], form: Format, law: str) -> NDArray[np.float32]:
    x = rng.standard_normal(shape)
    if law == "wide":
        x = np.ldexp(x, rng.integers(form.emin - 4, form.emax - 1, shape))
    elif law == "cancelling":
        x = np.ldexp(np.sign(x) * rng.choice([1.0, 1.0, 1.5, 1 + form.eps], shape), rng.integers(-3, 3, shape))
    elif law == "subnormal":
        x = np.ldexp(x, rng.choice([form.emin - 1, form.emin - 3, form.emin // 2], shape))
    out = np.asarray(round_to(x.astype(np.float32), form.with_overflow("saturate")), np.float32)
    return np.where(rng.random(shape) < 0.1, np.float32(0), out)


WIDE = Format("", 48, -250, 250)
RESULTS = {
    "": None, ", float16": (FLOAT16, "nearest-even"), ", bfloat16, toward_zero": (BFLOAT16, "toward-zero"),
    ", float32": (FLOAT32, "nearest-even"), ", format(48, -250, 250), toward_zero": (WIDE, "toward-zero"),
}  # fmt: skip


@settings(max_examples=120)
@example(1, 2, 1, 2, "bfloat16", "e4m3fn", "subnormal", "last", "")  # a negative sum that is rounded to zero
@given(
    draws.integers(0, 2**32 - 1), draws.integers(1, 40), draws.integers(1, 20), draws.integers(2, 40),
    draws.sampled_from(sorted(FORMATS)), draws.sampled_from(sorted(FORMATS)),
    draws.sampled_from(["normal", "wide", "cancelling", "subnormal"]), draws.sampled_from(["last", "first"]),
    draws.sampled_from(sorted(RESULTS)),
)  # fmt: skip
def test_chain_against_integers(
    seed: int, n: int, terms: int, bits: int, left: str, right: str, law: str, rest: str, result: str
) -> None:
    rng = np.random.default_rng(seed)
    a, b = numbers(rng, (2, n), FORMATS[left], law), numbers(rng, (n, 3), FORMATS[right], law)
    usual = Format("", min(24, bits + 1), -126, 127), "toward-zero"
    form, mode = RESULTS[result] or usual
    text = f"fused({terms}, rest={rest})+align({bits}{result})+operands({left}, {right})"
    got = fpsim.matmul(a, b, text)
    emins = (FORMATS[left].emin, FORMATS[right].emin)
    for i in range(2):
        for j in range(3):
            expected = reference_fused.chain(
                a[i].tolist(), b[:, j].tolist(), terms, bits=bits, emins=emins,
                result=(form.precision, form.emin, form.emax), mode=mode, first=n % terms if rest == "first" else 0,
            )  # fmt: skip
            with np.errstate(over="ignore"):  # a result beyond float32 comes as infinity
                rounded = np.float32(expected)
            assert same_bits(got[i, j], rounded), (i, j, float(got[i, j]), expected)


@pytest.mark.parametrize("text", ["chunks(12, fused(4)+align(24))", "chunks(12, fused(4)+align(24), combine=pairwise)"])
def test_chunks_of_chains(text: str) -> None:
    rng = np.random.default_rng(7)
    a, b = numbers(rng, (3, 40), FLOAT16, "normal"), numbers(rng, (40, 5), FLOAT16, "normal")
    got = fpsim.matmul(a, b, f"{text}+operands(float16)")
    for i, j in np.ndindex(3, 5):
        parts = [
            reference_fused.chain(a[i, k : k + 12].tolist(), b[k : k + 12, j].tolist(), 4, bits=24, emins=(-14, -14))
            for k in range(0, 40, 12)
        ]
        if "pairwise" in text:
            pairs = [reference.add(parts[k], parts[k + 1], FLOAT32, "nearest-even") for k in (0, 2)]
            expected = reference.add(pairs[0], pairs[1], FLOAT32, "nearest-even")
        else:
            expected = parts[0]
            for part in parts[1:]:
                expected = reference.add(expected, part, FLOAT32, "nearest-even")
        assert same_bits(got[i, j], np.float32(expected))


@pytest.mark.parametrize("text", ["interleaved(3, fused(4)+align(25), block=4)", "lanes(5, fused(8)+align(25))"])
def test_chains_over_any_leaves(text: str) -> None:
    """A chain takes its leaves in sequence, wherever they lie."""
    rng = np.random.default_rng(8)
    n = 37
    a, b = numbers(rng, (3, n), FLOAT16, "wide"), numbers(rng, (n, 2), FLOAT16, "wide")
    count, block, terms = (3, 4, 4) if text.startswith("inter") else (5, 1, 8)
    got = fpsim.matmul(a, b, f"{text}+operands(float16)")
    for i, j in np.ndindex(3, 2):
        total = None
        for part in range(count):
            places = [k for k in range(n) if k // block % count == part]
            own = reference_fused.chain(
                a[i, places].tolist(), b[places, j].tolist(), terms, bits=25, emins=(-14, -14)
            )  # fmt: skip
            total = own if total is None else reference.add(total, own, FLOAT32, "nearest-even")
        assert total is not None
        assert same_bits(got[i, j], np.float32(total))


def test_special_values() -> None:
    inf, nan = math.inf, math.nan
    cases = [
        ([inf, 1.0], [1.0, 1.0], inf), ([inf, -inf], [1.0, 1.0], nan), ([inf, 1.0], [0.0, 1.0], nan),
        ([nan, 1.0], [0.0, 1.0], nan), ([-inf, 2.0**127], [3.0, 1.0], -inf), ([-0.0, 0.0], [1.0, -1.0], 0.0),
        ([2.0**127] * 2, [1.0, 1.0], inf), ([2.0**127, 2.0**127, -(2.0**127)], [1.0, 1.0, 1.0], 2.0**127),
        ([2.0**127, -(2.0**127)], [2.0, 2.0], 0.0), ([-(2.0**127)] * 2, [2.0, 2.0], -inf),
    ]  # fmt: skip
    for a, b, expected in cases:
        got = fpsim.dot(np.array(a, np.float32), np.array(b, np.float32), "fused(4)+align(25)")
        assert np.array_equal(got, np.float32(expected), equal_nan=True), (a, b)
        assert not (got == 0 and np.signbit(got))
    # An overflow stays, whatever is added in the next instruction.
    x = np.array([2.0**127, 2.0**127, -(2.0**127), -(2.0**127)], np.float32)
    assert fpsim.sum(x, "fused(2)+align(25)") == inf
    assert fpsim.sum(x, "fused(4)+align(25)") == 0
    assert np.isnan(fpsim.sum(np.array([inf, 1.0, -inf], np.float32), "fused(2)+align(25)"))
    bits = fpsim.dot(np.array([nan], np.float32), np.array([1.0], np.float32), "fused(4)+align(25)").view(np.uint32)
    assert bits == 0x7FFFFFFF
    half = fpsim.dot(np.array([nan]), np.array([1.0]), "fused(4)+align(25)+output(float16)")
    assert half.view(np.uint16) == 0x7FFF


def test_formats_of_the_arrays_count() -> None:
    """Without operands(...) a subnormal counts with the smallest exponent of its array's type."""
    a = np.array([2.0**-24, 1.0], np.float16)
    b = np.array([2.0**-3, 2.0**-20], np.float16)
    assert fpsim.dot(a, b, "fused(2)+align(2)") == 0  # 2**-27 is aligned to 2**-17, 2**-20 too
    assert fpsim.dot(a.astype(np.float32), b.astype(np.float32), "fused(2)+align(2)") == 2.0**-20
    assert fpsim.dot(a, b, "fused(2)+align(2)+operands(float32)") == 2.0**-20


def test_non_monotone() -> None:
    """A larger first term gives a smaller sum: the others are then aligned to the next power of two, and vanish."""
    small = [2.0**-26] * 15
    below = fpsim.sum(np.array([1 - 2.0**-24, *small], np.float32), "fused(16)+align(25)")
    above = fpsim.sum(np.array([1.0, *small], np.float32), "fused(16)+align(25)")
    assert below > above == 1.0


def test_order_matters_between_adds_only() -> None:
    rng = np.random.default_rng(5)
    a, b = numbers(rng, (64, 16), FLOAT16, "normal"), numbers(rng, (16, 1), FLOAT16, "normal")
    places = rng.permutation(16)
    for terms, equal in ((16, True), (8, False)):
        text = f"fused({terms})+align(25)+operands(float16)"
        assert same_bits(fpsim.matmul(a, b, text), fpsim.matmul(a[:, places], b[places], text)) is equal


@pytest.mark.parametrize("op", ["sum", "norm", "mean"])
def test_sums(op: str) -> None:
    rng = np.random.default_rng(6)
    x = rng.standard_normal((3, 50)).astype(np.float32)
    got = getattr(fpsim, op)(x, "fused(8)+align(25)", axis=1)
    for row, value in zip(x, got, strict=True):
        other = row.tolist() if op == "norm" else [1.0] * 50
        total = reference_fused.chain(row.tolist(), other, 8, bits=25, emins=(-126, -126))
        expected = {"sum": total, "norm": math.sqrt(total) if op == "norm" else 0, "mean": total / 50}[op]
        assert value == np.float32(expected)


def test_threads_and_tiles_do_not_matter() -> None:
    rng = np.random.default_rng(9)
    a, b = numbers(rng, (133, 150), BFLOAT16, "wide"), numbers(rng, (150, 131), BFLOAT16, "wide")
    a[5, 7], b[3, 100] = np.inf, np.nan
    text = "chunks(48, fused(16)+align(25))+operands(bfloat16)"
    whole = fpsim.matmul(a, b, text)
    for i, j in ((0, 0), (5, 64), (132, 130), (7, 100), (64, 63), (128, 128)):
        assert same_bits(whole[i, j], fpsim.dot(a[i], b[:, j], text))


# --- the units --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arch", "form", "result"), [key for key in UNITS if key[1] in FORMATS and key[0] not in ("cdna1", "cdna3")]
)
def test_unit_is_a_chain_of_instructions(arch: str, form: str, result: str) -> None:
    """By instructions: K is padded with zeros to whole ones; Ampere and Ada take each in two halves."""
    text = f"tensor_core(arch={arch}, type={form}, result={result})"
    chosen = fpsim.strategy(text)
    assert fpsim.strategy(str(chosen)) == chosen
    rng = np.random.default_rng(11)
    n, own = 44, FORMATS[form]
    law = "normal" if result == "float16" or arch.startswith("cdna") else "wide"
    a, b = numbers(rng, (3, n), own, law), numbers(rng, (n, 4), own, law)
    got = fpsim.matmul(a, b, text)
    assert got.dtype == (np.float16 if result == "float16" else np.float32)
    if arch.startswith("cdna"):
        assert same_bits(got, _by_pairs(a, b, 4))
        return
    depth = {"float16": 16, "bfloat16": 16, "tf32": 8, "e4m3fn": 32, "e5m2": 32}[form]
    depth = {"volta": 4, "turing": 8}.get(arch, depth)
    bits = {"volta": 23, "hopper": 25, "blackwell": 25, "rtx_blackwell": 25}.get(arch, 24)
    if depth == 32 and arch in ("ada", "hopper"):
        bits = 13
    parts = 2 if arch in ("ampere", "ada") else 1
    target = (11, -14, 15) if result == "float16" else (min(24, bits + 1), -126, 127)
    mode = "nearest-even" if result == "float16" else "toward-zero"
    for i, j in np.ndindex(3, 4):
        total = 0.0
        for k in range(0, n, depth):
            x, y = np.zeros(depth), np.zeros(depth)
            x[: n - k], y[: n - k] = a[i, k : k + depth], b[k : k + depth, j]
            for half in np.split(np.arange(depth), parts):
                total = reference_fused.fused_add(
                    x[half].tolist(), y[half].tolist(), total, bits=bits, emins=(own.emin, own.emin), result=target,
                    mode=mode,
                )  # fmt: skip
        assert same_bits(got[i, j], np.float32(total))


def _by_pairs(a: NDArray[np.float32], b: NDArray[np.float32], group: int) -> NDArray[np.float32]:
    products = a[:, :, None] * b[None, :, :]  # exact
    out = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(0, a.shape[1], group):
        part = [products[:, k + i] for i in range(group)]
        while len(part) > 1:
            part = [part[i] + part[i + 1] for i in range(0, len(part), 2)]
        out = out + part[0]
    return out


def test_units_say_where_they_come_from() -> None:
    for unit in UNITS.values():
        assert unit.maturity in ("hardware", "model")
        assert ("H200" in unit.evidence) == (unit.maturity == "hardware")


def test_unit_inside_another_order() -> None:
    a, b = H200["64x256x64/wide.fp8/a"], H200["64x256x64/wide.fp8/b"]
    inner = "chunks(128, tensor_core(arch=hopper, type=e4m3fn))+operands(e4m3fn)"
    assert same_bits(fpsim.matmul(a, b, inner), H200["64x256x64/wide.fp8/e4m3"])
    rounded = "tensor_core(arch=hopper, type=tf32)+operands(tf32)"  # what a library does before the instruction
    assert same_bits(fpsim.matmul(a, b, rounded), fpsim.matmul(a, b, "fused(8)+align(25)+operands(tf32)"))
    plain = fpsim.matmul(a, b, "tensor_core(arch=hopper, type=tf32)")
    assert same_bits(plain, fpsim.matmul(a, b, "fused(8)+align(25)+operands(tf32, toward_zero)"))
    assert not same_bits(plain, fpsim.matmul(a, b, rounded))


@pytest.mark.parametrize("form", ["e4m3fn", "e5m2", "format(4, 0, 2, overflow=saturate)"])
def test_block_scales(form: str) -> None:
    """The scales raise the exponents of the products, which then are aligned."""
    rng = np.random.default_rng(13)
    own = format_named(form)
    a, b = numbers(rng, (3, 80), own, "subnormal"), numbers(rng, (80, 4), own, "normal")
    exponents = rng.integers(-60, 60, (3, 3)), rng.integers(-60, 60, (3, 4))
    scales = np.ldexp(1.0, exponents[0]), np.ldexp(1.0, exponents[1])
    text = f"fused(32)+align(25)+operands({form})"
    got = fpsim.matmul(a, b, text, scales=scales)
    if form == "e4m3fn":
        assert same_bits(got, fpsim.matmul(a, b, "tensor_core(arch=blackwell, type=e4m3fn)", scales=scales))
    for i, j in np.ndindex(3, 4):
        total = 0.0
        # ceil(80 / 3) elements have one scale; a fused add takes 32.
        each = [int(exponents[0][i, k // 27] + exponents[1][k // 27, j]) for k in range(80)]
        for k in range(0, 80, 32):
            total = reference_fused.fused_add(
                a[i, k : k + 32].tolist(), b[k : k + 32, j].tolist(), total, bits=25, emins=(own.emin, own.emin),
                scales=each[k : k + 32],
            )  # fmt: skip
        assert same_bits(got[i, j], np.float32(total))
    ones = np.ones((3, 5)), np.ones((80, 4))
    assert same_bits(fpsim.matmul(a, b, text, scales=ones), fpsim.matmul(a, b, text))
    broken = scales[0].copy()
    broken[1, 2] = np.nan
    assert np.isnan(fpsim.matmul(a, b, text, scales=(broken, scales[1]))).tolist() == [
        [False] * 4,
        [True] * 4,
        [False] * 4,
    ]


def test_rejected_scales() -> None:
    a, b = np.ones((2, 8), np.float32), np.ones((8, 3), np.float32)
    text, good = "fused(4)+align(25)", (np.ones((2, 2)), np.ones((2, 3)))
    with pytest.raises(InputError, match="scales belong to fused adds"):
        fpsim.matmul(a, b, "serial", scales=good)
    for bad, message in (
        ((np.full((2, 2), 3.0), good[1]), "left scales must be powers of two"),
        ((good[0], np.zeros((2, 3))), "right scales must be powers of two"),
        ((good[0], np.ones((3, 2))), "right scales of an operand of shape"),
        ((np.ones(2), good[1]), "left scales of an operand of shape"),
    ):
        with pytest.raises(InputError, match=message):
            fpsim.matmul(a, b, text, scales=bad)
    with pytest.raises(InputError, match="scaled operands are matrices"):
        fpsim.matmul(a[0], b, text, scales=good)


# --- texts, errors and bounds -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("fused(16)+align(25)+operands(bfloat16)", None),
        ("fused:16+align:25", "fused(16)+align(25)"),
        ("fused(32)+align(13, float32, toward_zero)", None),
        ("fused(32)+align(13, format(14, -126, 127), toward_zero)", "fused(32)+align(13)"),
        ("fused(16)+align(25, float32, 'toward-zero')", "fused(16)+align(25)"),
        ("fused(4, rest=first)+align(23, float16)", None),
        ("fused(4, rest=first, tile=32)+align(23)", None),
        ("tensor_core(arch=hopper, type=e5m2, instruction=mma)", None),
        ("fused(4)+align(23)+operands(e5m2, e4m3fn)", None),
        ("fused(4)+align(23)+operands(e5m2, e4m3fn, toward_zero)", None),
        ("chunks(128, fused(32)+align(13), combine=serial)+operands(e4m3fn)", "chunks(128, fused(32)+align(13))+operands(e4m3fn)"),
        ("tensor_core(type=float16, arch=hopper)", "tensor_core(arch=hopper, type=float16)"),
    ],
)  # fmt: skip
def test_text(text: str, canonical: str | None) -> None:
    chosen = fpsim.strategy(text)
    assert str(chosen) == (canonical or text)
    assert fpsim.strategy(str(chosen)) == chosen


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fused(16)", r"needs align\(bits\)"),
        ("fused(16)+align(60)", r"needs align\(bits\)"),
        ("fused(0)+align(25)", "from 1 to 1024"),
        ("fused(16, rest=middle)+align(25)", "is not one of last, first"),
        ("fused(16, tile=32)+align(25)", "tile=32 goes with rest=first"),
        ("fused(16, rest=first, tile=40)+align(25)", "a multiple of the 16 terms"),
        ("fused(16)+align(25)+fma", "drop fma"),
        ("fused(16)+align(25)+kahan", "drop fma"),
        ("fused(16)+align(25)+acc(float64)", r"add operands\(...\)"),
        ("fused(16)+align(25, float64)", "51 bits at most"),
        ("chunks(8, fused(4))", r"needs align\(bits\)"),
        ("align(25)", "it is a setting"),
        ("tensor_core(arch=volta, type=tf32)", "arch=volta is not known with type=tf32"),
        ("tensor_core(arch=hopper, type=tf32, instruction=mma)", "instruction=mma is one of its own for arch=hopper"),
        ("tensor_core(arch=hopper, type=e4m3fn, result=float16, instruction=mma)", "instruction=mma is one of its own"),
        ("tensor_core(arch=pascal, type=float16)", "arch=pascal is not known"),
    ],
)
def test_rejected_text(text: str, message: str) -> None:
    with pytest.raises(StrategyError, match=message):
        fpsim.strategy(text)


def test_rejected_operations() -> None:
    x = np.ones(8, np.float32)
    with pytest.raises(StrategyError, match="not partial sums"):
        fpsim.sum(x, "chunks(4, combine=fused(4)+align(25))")
    with pytest.raises(InputError, match="sum after every term"):
        fpsim.cumsum(x, "fused(4)+align(25)")
    with pytest.raises(InputError, match="multiplies only"):
        fpsim.prod(x, "fused(4)+align(25)")


@pytest.mark.parametrize(
    "text",
    [
        "fused(16)+align(25)+operands(float16)", "chunks(32, fused(8)+align(25))+operands(tf32)",
        "fused(32)+align(13)+operands(e4m3fn)", "fused(4)+align(23, float16)+operands(float16)",
        "chunks(16, fused(16)+align(25, format(48, -250, 250)), combine=serial+acc(float32, toward_zero))",
        "tensor_core(arch=volta, type=float16, result=float16)", "fused(16, rest=first)+align(10)+operands(bfloat16)",
    ],
)  # fmt: skip
@pytest.mark.parametrize("law", ["positive", "normal", "large", "tiny"])
def test_bound_holds(text: str, law: str) -> None:
    rng = np.random.default_rng(12)
    a, b = rng.standard_normal((2, 9, 150))
    if law == "positive":
        a, b = abs(a), abs(b)
    if law == "large":
        a[:, 0] *= 16
    scale = 2.0**-9 if law == "tiny" else 1.0
    a, b = (a * scale).astype(np.float32), (b * scale).astype(np.float32).T
    result = fpsim.matmul(a, b, text)
    error = np.abs(np.asarray(exact.matmul(a, b).error(result)))
    bound = bounds.bound("matmul", text, a, b)
    assert np.isfinite(bound).all()
    assert (error <= bound).all()
    if law == "positive" and "float16, result" not in text:
        assert (error > bound / 200).any()


# --- the CPU ----------------------------------------------------------------------------------------------------------

ONEDNN = np.load(Path(__file__).parent / "data" / "onednn_bfloat16.npz")
PAIRS = "reverse(block=2)+fma+ftz+daz+start(0.0)+operands(bfloat16)+output(bfloat16)"


def onednn(name: str) -> NDArray[np.float32]:
    """Return a recorded matrix of bfloat16 numbers as float32."""
    bits: NDArray[np.uint32] = ONEDNN[name].astype(np.uint32) << 16
    return bits.view(np.float32)


@pytest.mark.parametrize("case", [name[:-2] for name in ONEDNN.files if name.endswith("/c")])
def test_onednn_bfloat16(case: str) -> None:
    """VDPBF16PS takes pairs, the odd one first, and flushes subnormals; long chains are cut."""
    a, b, expected = (onednn(f"{case}/{x}") for x in "abc")
    cut = PAIRS.replace("reverse(block=2)", "chunks(1024, reverse(block=2))")
    assert same_bits(fpsim.matmul(a, b, cut), expected)
    assert same_bits(fpsim.matmul(a, b, PAIRS), expected) is ("2000" not in case)
    if "subnormal" in case:
        for flag in ("+ftz", "+daz"):
            assert not same_bits(fpsim.matmul(a, b, cut.replace(flag, "")), expected)
    elif "wide" in case:
        assert not same_bits(fpsim.matmul(a, b, cut.replace("reverse(block=2)", "serial")), expected)


@pytest.mark.parametrize("n", [1, 2, 5, 8, 9])
@pytest.mark.parametrize("block", [1, 2, 3, 8, 20])
def test_reverse_in_blocks(n: int, block: int) -> None:
    places = [k for first in range(0, n, block) for k in reversed(range(first, min(first + block, n)))]
    assert fpsim.strategy(f"reverse(block={block})").program(n).visits.tolist() == places
    inner = [places.index(k) for k in range(n)]  # the terms lie scattered already
    scattered = fpsim.strategy(f"permute([{', '.join(map(str, inner))}], reverse(block={block}))").program(n)
    assert scattered.visits.tolist() == [inner[k] for k in places]


# --- explain ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "law", "kind", "text"),
    [
        ("16x64x16", "u01", "tf32", "chunks(32, fused(8))+align(25)+operands(tf32)"),
        ("16x400x16", "wide", "tf32", "chunks(20, fused(8, rest=first))+align(25)+operands(tf32)"),
        ("33x77x29", "wide", "bf16_f32", "chunks(8, fused(8))+align(25)+operands(bfloat16)"),
        ("33x77x29", "normal", "f16_f32", "fused(16, rest=first)+align(25)+operands(float16)"),
    ],
)
def test_products_of_tensor_cores_are_explained(shape: str, law: str, kind: str, text: str) -> None:
    """The recorded product and one in plain float32: the difference is named to the bit."""
    a, b = H200[f"{shape}/{law}/a"], H200[f"{shape}/{law}/b"]
    gpu = H200[f"{shape}/{law}/{kind}"]
    found = fpsim.explain({"cpu": fpsim.matmul(a, b, "serial"), "gpu": gpu}, op="matmul", inputs=(a, b))
    names = {name for match in found.sides[1].matches for name in (match.strategy, *match.also)}
    assert text in names
    for name in names:
        assert same_bits(fpsim.matmul(a, b, name), gpu)
    assert found.verdict == "reduced precision"


def test_unaligned_product_is_explained() -> None:
    a, b, gpu = (INSTRUCTIONS[f"product/200x300x100/tf32/{x}"] for x in "abc")
    found = fpsim.explain(fpsim.matmul(a, b, "serial+fma"), gpu, op="matmul", inputs=(a, b))
    assert found.sides[1].matches[0].strategy == "fused(8, rest=first, tile=32)+align(25)+operands(tf32)"
    assert found.verdict == "reduced precision"
