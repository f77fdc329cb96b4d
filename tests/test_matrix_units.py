"""Every unit of the table, against recorded results of MMA-Sim, the model of other authors; block-scaled ones too."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference_fused
from numpy.typing import NDArray

import fpsim
from fpsim import bounds, exact
from fpsim.errors import InputError, StrategyError
from fpsim.orders.tensor_core import OTHERS, UNITS

RECORDED = np.load(Path(__file__).parent / "data" / "matrix_units.npz")
NAMES = sorted({name.split("/")[0] for name in RECORDED.files if "/" in name and not name.startswith("nvfp4")})
PLAIN, SCALED = ([name for name in NAMES if name.endswith("scaled") is kind] for kind in (False, True))
NAN_LOST = ("cdna3 e4m3fnuz", "cdna3 e5m2fnuz")
MISSING: set[tuple[str, ...]] = set()
LAWS = ("normal", "wide", "subnormal", "special", "near")
ELEMENTS = {
    "e4m3fn": "float8_e4m3fn", "e5m2": "float8_e5m2", "e4m3fnuz": "float8_e4m3fnuz", "e5m2fnuz": "float8_e5m2fnuz",
    "bfloat16": "bfloat16", "e2m3fn": "float6_e2m3fn", "e3m2fn": "float6_e3m2fn", "e2m1fn": "float4_e2m1fn",
}  # fmt: skip


def numbers(codes: NDArray[Any], form: str) -> NDArray[np.float32]:
    """Return the numbers that codes of a format stand for, as ml_dtypes reads them."""
    if form in ("float16", "tf32", "float32"):
        return codes.view(np.float16 if form == "float16" else np.float32).astype(np.float32)
    ml_dtypes = pytest.importorskip("ml_dtypes")
    return np.asarray(codes.view(getattr(ml_dtypes, ELEMENTS[form])), np.float32)


def results(codes: NDArray[Any]) -> NDArray[np.float32]:
    return codes.view(np.float16 if codes.dtype == np.uint16 else np.float32).astype(np.float32)


def unequal(got: Any, wanted: Any) -> int:
    """Count results of other bits; a NaN is as good as another."""
    a, b = np.asarray(got, np.float32), np.asarray(wanted, np.float32)
    return int(((a.view(np.uint32) != b.view(np.uint32)) & ~(np.isnan(a) & np.isnan(b))).sum())


def text_of(name: str) -> str:
    arch, form, *rest = name.split()
    last = {"float16": ", result=float16", "bf16": ", instruction=bf16"}.get(rest[0] if rest else "", "")
    return f"tensor_core(arch={arch}, type={form}{last})"


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", PLAIN)
def test_unit(name: str, law: str) -> None:
    form = name.split()[1]
    a, b = (numbers(RECORDED[f"{name}/{law}/{x}"], form) for x in "ab")
    got, wanted = fpsim.matmul(a, b, text_of(name)), results(RECORDED[f"{name}/{law}/c"])
    if name in NAN_LOST and law == "special":  # MMA-Sim compares the exponent that frexp gives NaN, and drops it
        lost = np.isnan(got) & ~np.isnan(wanted)
        assert np.isnan(a @ b)[lost].all()
        got = np.where(lost, wanted, got)
    assert unequal(got, wanted) == 0


def test_every_unit_is_recorded() -> None:
    """But for the 6-bit types without scales, and float16 results of fp8 by `mma`, which MMA-Sim has not on Ada."""
    named = {tuple(name.split()) for name in PLAIN}
    wanted = {(a, f) if r == "float32" else (a, f, r) for a, f, r in UNITS if f not in ("e2m3fn", "e3m2fn", "e2m1fn")}
    assert wanted - named == MISSING
    assert named - wanted == {key for key in OTHERS if key[2] == "bf16"}
    assert {name.split()[1] for name in SCALED} == {"e4m3fn", "e5m2", "e2m3fn", "e3m2fn", "e2m1fn"}


@pytest.mark.parametrize("case", sorted({name.rpartition("/")[0] for name in RECORDED.files if " scaled/" in name}))
def test_block_scaled_unit(case: str) -> None:
    """Scales are e8m0 for 32 elements, and for 16, those of nvfp4, e4m3; some are NaN."""
    form = case.split()[1]
    a, b = (numbers(RECORDED[f"{case}/{x}"], form) for x in "ab")
    kind = "float8_e4m3fn" if "ue4m3" in case else "float8_e8m0fnu"
    ml_dtypes = pytest.importorskip("ml_dtypes")
    scales: Any = tuple(RECORDED[f"{case}/{side}"].view(getattr(ml_dtypes, kind)) for side in ("left", "right"))
    text = f"tensor_core(arch=blackwell, type={form})"
    got, wanted = fpsim.matmul(a, b, text, scales=scales), results(RECORDED[f"{case}/c"])
    assert np.isnan(wanted[0]).all()
    assert unequal(got, wanted) == 0
    left, right = (np.asarray(s, np.float64) for s in scales)
    assert unequal(fpsim.matmul(a, b, text, scales=(left, right)), wanted) == 0


def test_without_scales() -> None:
    """Elements of 4 bits have scales of 1 then."""
    rng = np.random.default_rng(1)
    a, b = (
        np.asarray(fpsim.round_to(rng.normal(size=s) * 3, ELEMENTS["e2m1fn"]), np.float32) for s in ((4, 96), (96, 3))
    )
    text = "tensor_core(arch=blackwell, type=e2m1fn)"
    ones = np.ones((4, 3)), np.ones((3, 3))
    plain = fpsim.matmul(a, b, text)
    assert unequal(plain, fpsim.matmul(a, b, text, scales=ones)) == 0
    assert np.array_equal(plain, a.astype(np.float64) @ b)
    small = np.full((4, 3), 2.0**-40)
    small[:, 0] = 1
    got = fpsim.matmul(np.ones((4, 96)), np.ones((96, 3)), text, scales=(small, ones[1]))
    assert (got == 32).all()  # what is 35 bits below the largest scale is lost


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        ((np.full((2, 4), 3.3), np.ones((4, 2))), "left scales of 16 elements must be numbers of e4m3fn"),
        ((np.full((2, 4), -1.0), np.ones((4, 2))), "must be numbers of e4m3fn, not negative"),
        ((np.full((2, 2), 3.0), np.ones((2, 2))), "must be powers of two"),
        ((np.ones((2, 8)), np.ones((8, 2))), "left scales are for 8 elements each"),
        ((np.ones((2, 2)), np.ones((4, 2))), "do not go together"),
    ],
)
def test_rejected_scales(scales: Any, message: str) -> None:
    a, b = np.ones((2, 64), np.float32), np.ones((64, 2), np.float32)
    with pytest.raises(InputError, match=message):
        fpsim.matmul(a, b, "tensor_core(arch=blackwell, type=e2m1fn)", scales=scales)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("fused(8)+align(24, float32, late)", None), ("fused(16)+align(24, float32, late_pairs)", None),
        ("fused(64)+align(35, groups)", None), ("fused(4)+align(exact)", None),
        ("fused(4)+align(exact, float16, toward_zero)", None), ("fused(4)+align(exact, float32)", "fused(4)+align(exact)"),
        ("tensor_core(arch=cdna2, type=bfloat16, instruction=bf16)", None),
    ],
)  # fmt: skip
def test_text(text: str, canonical: str | None) -> None:
    chosen = fpsim.strategy(text)
    assert str(chosen) == (canonical or text)
    assert fpsim.strategy(str(chosen)) == chosen


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fused(65)+align(exact)", "64 terms at most"), ("fused(8)+align(30, float32, late)", "keeps 25 bits at most"),
        ("fused(8)+align(late)", "cannot read the setting"), ("fused(8)+align(24, later)", "later"),
        ("tensor_core(arch=cdna3, type=e4m3fn)", "known: type=float16, type=bfloat16"),
    ],
)  # fmt: skip
def test_rejected_text(text: str, message: str) -> None:
    with pytest.raises(StrategyError, match=message):
        fpsim.strategy(text)


@pytest.mark.parametrize("name", ["cdna1 float16", "cdna1 bfloat16", "cdna3 float16", "cdna3 tf32"])
def test_bound_holds(name: str) -> None:
    form = name.split()[1]
    a, b = (numbers(RECORDED[f"{name}/normal/{x}"], form) for x in "ab")
    text = text_of(name)
    error = np.abs(exact.matmul(a, b).error(fpsim.matmul(a, b, text)))
    bound = bounds.bound("matmul", text, a, b)
    assert (error <= bound).all()
    assert (error > bound / 1000).any()


def test_exact_sums_are_rounded_once() -> None:
    """Four products and the accumulator; ties are decided by what lies far below."""
    rng = np.random.default_rng(2)
    a, b = (np.ldexp(rng.choice([1, -1, 1.5], s), rng.integers(-60, 40, s)) for s in ((40, 12), (12, 5)))
    a, b = (np.asarray(fpsim.round_to(x, "bfloat16"), np.float32) for x in (a, b))
    a[:, 3], b[3] = a[:, 2] * 2.0**-25, b[2]
    got = fpsim.matmul(a, b, "fused(4)+align(exact)+operands(bfloat16)")
    for i, j in np.ndindex(got.shape):
        total = 0.0
        for k in range(0, 12, 4):
            terms = [
                Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[i, k : k + 4], b[k : k + 4, j], strict=True)
            ]
            total = reference_fused.rounded(Fraction(total) + sum(terms), 24, -126, 127, "nearest-even")
        assert got[i, j] == np.float32(total)


MMAEMU = np.load(Path(__file__).parent / "data" / "mmaemu.npz")
ADA, HOPPER = "fused(16)+align(13)", "fused(32)+align(13)"
LATE_SUM = "chunks(32, fused(32)+align(25))"  # the accumulator is added in float32


@pytest.mark.parametrize("case", sorted({name.rpartition("/")[0] for name in MMAEMU.files if "/" in name}))
def test_against_mmaemu(case: str) -> None:
    """Fp8 products of Ada and Hopper, fast and slow, all pairs of formats; `mma` of B200 as mmaemu has it."""
    preset, forms, _ = case.split("/")
    left, right = forms.split()
    a, b = numbers(MMAEMU[f"{case}/a"], left), numbers(MMAEMU[f"{case}/b"], right)
    for kind in ("fast", "slow"):
        if f"{case}/{kind}" not in MMAEMU.files:
            continue
        wanted = MMAEMU[f"{case}/{kind}"].view(np.float32)
        if preset == "b200_mma_sync":
            text = LATE_SUM
        else:
            chain = {"ada": ADA, "hopper": HOPPER}[preset]
            text = chain if kind == "fast" else f"chunks(128, {chain})"
        assert unequal(fpsim.matmul(a, b, f"{text}+operands({left}, {right})"), wanted) == 0
