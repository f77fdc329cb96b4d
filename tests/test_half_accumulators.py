"""Sums that are kept in 16 bits: NumPy's and ml_dtypes' own, and FMA in float16 against fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import reference_fused

import fpsim
from fpsim.formats import BFLOAT16, FLOAT16, round_to


def halves(rng: np.random.Generator, shape: Any, law: str) -> Any:
    x = rng.standard_normal(shape)
    if law == "wide":
        x = np.ldexp(x, rng.integers(-20, 6, shape))
    elif law == "subnormal":
        x = np.ldexp(x, rng.integers(-26, -12, shape))
    elif law == "positive":
        x = rng.random(shape)
    return x.astype(np.float16)


LAWS = ("normal", "wide", "subnormal", "positive")


@pytest.mark.parametrize("law", LAWS)
def test_numpy(law: str) -> None:
    """Rows are added one after another in float16, and cumulative sums too."""
    rng = np.random.default_rng(1)
    x = halves(rng, (700, 33), law)
    assert np.array_equal(x.sum(axis=0), fpsim.sum(x, "serial+acc(float16)", axis=0))
    assert np.array_equal(np.cumsum(x[:, 0]), fpsim.cumsum(x[:, 0], "serial+acc(float16)"))
    assert np.array_equal(np.add.accumulate(x, axis=1), fpsim.cumsum(x, "serial+acc(float16)", axis=1))
    assert not np.array_equal(x.sum(axis=0), fpsim.sum(x, "serial+output(float16)", axis=0))


@pytest.mark.parametrize("law", LAWS)
def test_bfloat16_of_ml_dtypes(law: str) -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    rng = np.random.default_rng(2)
    x = halves(rng, (300, 20), law).astype(np.float32).astype(bfloat16)
    wide = x.astype(np.float32)
    cumulative = np.add.accumulate(x, axis=1).astype(np.float32)
    assert np.array_equal(cumulative, fpsim.cumsum(wide, "serial+acc(bfloat16)", axis=1))
    assert np.array_equal(cumulative, fpsim.cumsum(x, "serial+acc(bfloat16)", axis=1).astype(np.float32))


def test_stagnation() -> None:
    """A sum of ones stops where the next number is 2 away."""
    ones = np.ones((5000, 3), np.float16)
    assert ones.sum(axis=0).tolist() == fpsim.sum(ones, "serial+acc(float16)", axis=0).tolist() == [2048.0] * 3
    assert fpsim.cumsum(ones[:, 0], "serial+acc(float16)").tolist() == np.cumsum(ones[:, 0]).tolist()
    for form, stop in (("float16", 2048.0), ("bfloat16", 256.0), ("float32", 5000.0)):
        assert fpsim.sum(np.ones(5000), f"serial+acc({form})") == stop
    # Pairs add up further.
    assert fpsim.sum(np.ones(4096), "pairwise+acc(float16)") == 4096
    assert fpsim.dot(np.ones(5000), np.ones(5000), "serial+fma+acc(float16)") == 2048


@pytest.mark.parametrize(("name", "form"), [("float16", FLOAT16), ("bfloat16", BFLOAT16)])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("lanes", [1, 32])
def test_fma(name: str, form: Any, law: str, lanes: int) -> None:
    """What AVX512-FP16 does with `vfmadd`: a product and an addition in one rounding, in each of 32 lanes."""
    rng = np.random.default_rng(3)
    a, b = (np.asarray(round_to(halves(rng, (6, 70), law), form), np.float32) for _ in range(2))
    order = "serial" if lanes == 1 else "lanes(32, combine=fold)"
    got = fpsim.matmul(a, b.T, f"{order}+fma+acc({name})+operands({name})").diagonal()
    for row in range(6):
        sums = []
        for lane in range(lanes):
            total = 0.0
            for k in range(lane, 70, lanes):
                term = Fraction(float(a[row, k])) * Fraction(float(b[row, k]))
                total = reference_fused.rounded(
                    term + Fraction(total), form.precision, form.emin, form.emax, "nearest-even"
                )
            sums.append(total)
        while len(sums) > 1:
            half = len(sums) // 2
            sums = [
                reference_fused.rounded(
                    Fraction(sums[i]) + Fraction(sums[i + half]), form.precision, form.emin, form.emax, "nearest-even"
                )
                for i in range(half)
            ]
        assert float(got[row]) == sums[0]
