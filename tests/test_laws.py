"""Data laws: their text, their statistics against closed forms, and their errors."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest

from fpsim.errors import InputError
from fpsim.formats import BFLOAT16
from fpsim.laws import LAWS, Law, law

TEXTS = ["sorted(-1, 1)", 
    "uniform(0, 1)", "uniform(-1, 1)", "uniform(0.1, 0.30000000000000004)", "normal(0, 1)", "normal(-2.5, 1e-05)",
    "lognormal(0, 1)", "exponential(2)", "constant(0.1)", "wide(-30, 30)", "harmonic()", "integers(-5, 5)",
    "constant(-1e+300)", "constant(12345678901234567000.0)",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_text_and_pickle_round_trip(text: str) -> None:
    chosen = law(text)
    assert law(str(chosen)) == chosen
    assert pickle.loads(pickle.dumps(chosen)) == chosen
    assert hash(law(str(chosen))) == hash(chosen)
    assert law(chosen) is chosen


def test_canonical_and_shell_forms() -> None:
    for text in TEXTS[:-1]:
        assert str(law(text)) == text
    assert law("uniform:0:1") == law("uniform( 0 ,1.0)") == law("uniform") == law("uniform()")
    assert law("normal:3") == law("normal(3, 1)")
    assert law("wide:-8:8") == Law("wide", (-8, 8))
    assert {law(text).name for text in TEXTS} == set(LAWS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("unform(0,1)", "unknown law 'unform'; known laws: uniform, normal"),
        ("uniform(0,1,2)", r"uniform takes 2 parameters \(low, high\), not 3"),
        ("harmonic(1)", "harmonic takes no parameters"),
        ("uniform(1,0)", "low < high"),
        ("uniform(0,x)", "'x' is not a number"),
        ("uniform(0,1_0)", "'1_0' is not a number"),
        ("uniform(0,)", "'' is not a number"),
        ("uniform(0,nan)", "finite"),
        ("normal(0,0)", "sd > 0"),
        ("exponential(-1)", "scale > 0"),
        ("constant", "value is missing"),
        ("integers(1)", "high is missing"),
        ("integers(0,1.5)", "whole numbers"),
        ("integers(0,1e300)", "whole numbers"),
        ("uniform(0,1", "is not a law"),
        ("", "is not a law"),
        (3, "not int"),
    ],
)
def test_one_line_errors(text: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        law(text)
    assert "\n" not in str(caught.value)


N = 200_000


@pytest.mark.parametrize(
    ("text", "mean", "variance"),
    [
        ("uniform(-1, 3)", 1, 16 / 12),
        ("normal(2, 0.5)", 2, 0.25),
        ("exponential(3)", 3, 9),
        ("lognormal(0, 0.5)", math.exp(0.125), (math.exp(0.25) - 1) * math.exp(0.25)),
        ("integers(-2, 3)", 0.5, 35 / 12),
        # E X = 0 and E X^2 = integral of 4^t over [-2, 2] divided by 4.
        ("wide(-2, 2)", 0, (16 - 1 / 16) / (4 * math.log(4))),
    ],
)
def test_moments(text: str, mean: float, variance: float) -> None:
    x = law(text).draw(N, rng=7, dtype="float64")
    centred = x - mean
    # Six standard errors of the mean and of the variance.
    assert abs(centred.mean()) < 6 * math.sqrt(variance / N)
    assert abs((centred**2).mean() - variance) < 6 * float(np.std(centred**2)) / math.sqrt(N)


def test_distribution_functions() -> None:
    grid = np.linspace(-2, 2, 9)
    uniform = law("uniform(-2, 2)").draw(N, rng=1, dtype="float64")
    wide = law("wide(-2, 2)").draw(N, rng=2, dtype="float64")
    normal = law("normal").draw(N, rng=3, dtype="float64")
    exponents = np.log2(np.abs(wide))
    phi = np.array([0.5 * math.erfc(-z / math.sqrt(2)) for z in grid])
    for values, expected in ((uniform, (grid + 2) / 4), (exponents, (grid + 2) / 4), (normal, phi)):
        below = (values[:, None] <= grid).mean(0)
        assert np.abs(below - expected).max() < 3.0 / math.sqrt(N)  # Kolmogorov: exceeded with probability 3e-8
    assert 0.49 < (wide > 0).mean() < 0.51


def test_exact_values() -> None:
    assert law("constant(0.1)").draw((2, 2)).tolist() == [[float(np.float32(0.1))] * 2] * 2
    harmonic = law("harmonic").draw((2, 1000))
    assert (harmonic == np.float32(1) / np.arange(1, 1001, dtype=np.float32)).all()
    integers = law("integers(-3, 3)").draw(10_000, rng=0)
    assert set(integers.tolist()) == {-3, -2, -1, 0, 1, 2, 3}


def test_a_draw_is_the_double_rounded_once() -> None:
    x = law("uniform(0, 1)").draw(1000, rng=5)
    assert x.dtype == np.float32
    assert (x == np.random.default_rng(5).random(1000).astype(np.float32)).all()
    assert (x * 2.0**24 % 1 != 0).any()
    y = law("uniform(0, 1)").draw(1000, rng=5, dtype="bfloat16")
    assert y.dtype == np.float32
    assert BFLOAT16.contains(y).all()
    assert law("uniform").draw(3, rng=5, dtype="float16").dtype == np.float16


def test_seeds() -> None:
    one = law("normal")
    assert (one.draw(9, rng=1) == one.draw(9, rng=1)).all()
    assert (one.draw(9, rng=1) != one.draw(9, rng=2)).any()
    assert (one.draw(9, rng=np.random.default_rng(1)) == one.draw(9, rng=1)).all()
    assert (one.draw(9) != one.draw(9)).any()


def test_drawing_errors() -> None:
    with pytest.raises(InputError, match=r"wide\(100, 300\) gives numbers that float32 does not hold"):
        law("wide(100, 300)").draw(100, rng=0)
    with pytest.raises(InputError, match="does not hold"):
        law("constant(1e6)").draw(3, dtype="float16")
    with pytest.raises(InputError, match="whole numbers of at least 0"):
        law("normal").draw(-1)
    with pytest.raises(InputError, match="seed"):
        law("normal").draw(3, rng="x")  # type: ignore[arg-type]


def test_sorted_draws_ascend() -> None:
    x = law("sorted(-1, 1)").draw((3, 50), rng=1)
    assert (np.diff(x, axis=1) >= 0).all()
    assert (x == np.sort(law("uniform(-1, 1)").draw((3, 50), rng=1), axis=1)).all()
