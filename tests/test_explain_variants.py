"""Mechanisms beside orders: naive formulas, wrapped integers, lost range, dropout, other random numbers, whole products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim.explaining.mechanisms import computed, work_of
from fpsim.explaining.observation import Case
from fpsim.explaining.printed import read
from fpsim.explaining.relations import DROPOUT, STREAM, relation
from fpsim.formats import FLOAT32, FLOAT64


def _layer_norm(x: Any, ddof: int) -> list[str]:
    x = np.array(x)
    return [f"{v:.4f}" for v in (x - x.mean()) / np.sqrt(x.var(ddof=ddof) + 1e-5)]


def _gelu(x: float) -> str:
    return f"{0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))):.6f}"


NORMED, POINTS = [1.0, 2.0, 3.0, 5.0], [-2.0, -1.0, -0.5, 0.5, 1.0, 2.0]
CASES: dict[str, tuple[dict[str, Any], bool, str]] = {
    "integers that wrap": (
        {"operation": "sum", "dtype": "float64", "inputs": {"x": [2147483647, 1]},
         "observed": {"int32": "-2147483648", "Python": "2147483648"}}, False, "integer overflow"),
    "unbiased layer norm": (
        {"operation": "layer norm", "inputs": {"x": NORMED}, "settings": {"eps": 1e-5},
         "observed": {"own": _layer_norm(NORMED, 1), "torch": _layer_norm(NORMED, 0)}}, False, "divisor n - ddof"),
    "gelu by tanh": (
        {"operation": "gelu", "inputs": {"x": POINTS},
         "observed": {"erf": [f"{v * 0.5 * (1 + math.erf(v / 2**0.5)):.6f}" for v in POINTS],
                      "tanh": [_gelu(v) for v in POINTS]}}, False, "approximation by tanh"),
    "exp(x) - 1": (
        {"operation": "expm1", "inputs": {"x": [1e-5]},
         "observed": {"expm1": str(np.float32(math.expm1(np.float32(1e-5)))), "naive": "1.001358e-05"}}, True,
        "catastrophic cancellation"),
    "norm that overflows": (
        {"operation": "norm", "inputs": {"x": [1e20, 1e20]}, "observed": {"naive": "inf", "BLAS": "1.4142136e+20"}}, False,
        "intermediate out of range"),
    "norm that underflows": (
        {"operation": "norm", "inputs": {"x": [1e-25, 1e-25]}, "observed": {"naive": "0.0", "BLAS": "1.4142136e-25"}},
        False, "intermediate out of range"),
    "product of int16 that wraps": (
        {"operation": "prod", "dtype": "float64", "inputs": {"x": [300, 300]},
         "observed": {"int16": "24464", "int": "90000"}}, False, "integer overflow"),
    "hyperbolic tangent": (
        {"operation": "tanh", "inputs": {"x": [0.7]}, "observed": {"a": "0.6043678", "b": "0.60436773"}}, True,
        "elementary function"),
    "function beyond the range of half": (
        {"operation": "exp", "dtype": "float16", "inputs": {"x": [11.5, 12.0]},
         "observed": {"half": ["inf", "inf"], "float": ["98715.77", "162754.8"]}}, False, "intermediate out of range"),
    "half mean that overflows": (
        {"operation": "mean", "dtype": "float16", "inputs": {"fill": 100}, "shapes": [[1000]],
         "observed": {"half": "inf", "float": "100.0"}}, False, "intermediate out of range"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_mechanism_is_named_first(name: str) -> None:
    case, explainable, mechanism = CASES[name]
    found = fpsim.explain(case)
    assert found.explainable is explainable
    assert found.ranked[0] == mechanism


def test_naive_expm1_is_what_numpy_gives() -> None:
    assert str(np.exp(np.float32(1e-5)) - np.float32(1)) == "1.001358e-05"


def test_dropout_is_seen_by_its_zeros_and_its_factor() -> None:
    rng = np.random.default_rng(0)
    exact = rng.normal(size=(40, 20))
    given = exact * (rng.random(exact.shape) > 0.3) / 0.7
    name, told = relation(given, exact, np.zeros(exact.shape))
    assert name == DROPOUT
    assert "p = 0.3" in told
    assert relation(given * 1.2, exact, np.zeros(exact.shape)) == ("", "")  # the factor does not belong to the zeros


def test_other_random_numbers_are_seen_by_their_law() -> None:
    rng = np.random.default_rng(1)
    exact = rng.normal(size=500)
    assert relation(rng.normal(size=500), exact, np.zeros(500))[0] == STREAM
    assert relation(2 * rng.normal(size=500), exact, np.zeros(500)) == ("", "")
    assert relation(exact + 0.5 * rng.normal(size=500), exact, np.zeros(500)) == ("", "")
    assert relation(rng.permutation(exact), exact, np.zeros(500)) == ("", "")  # the same numbers in other places


def test_a_layer_in_training_mode_is_another_computation() -> None:
    rng = np.random.RandomState(10)
    product = rng.randn(64, 8) @ rng.randn(8, 8)
    mask = np.random.default_rng(1).random(product.shape) > 0.5
    listed = [[[f"{v:.4f}" for v in row] for row in x] for x in (product, product * mask * 2)]
    observed = dict(zip(("eval", "train"), listed, strict=True))
    case = {"operation": "linear", "inputs": "numpy seed 10: randn(64,8), randn(8,8)", "observed": observed}
    found = fpsim.explain(case)
    assert (found.verdict, found.ranked[0]) == ("different computation", DROPOUT)


@pytest.mark.parametrize("text", ["tf32, float32", "float32, tf32"])
def test_a_single_rounded_operand(text: str) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(12, 64)).astype(np.float32), rng.normal(size=(64, 12)).astype(np.float32)
    side = fpsim.explain(fpsim.matmul(a, b, f"serial+fma+operands({text})"), op="matmul", inputs=(a, b)).sides[0]
    assert side.matches[0].strategy == f"serial+fma+operands({text})"
    assert side.status == "reduced"


def test_rules_of_whole_products_and_profiles_are_candidates() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(40, 130)).astype(np.float32), rng.normal(size=(130, 37)).astype(np.float32)
    observed = fpsim.matmul(a, b, "numpy_matmul(core=haswell)")
    side = fpsim.explain(observed, op="matmul", inputs=(a, b)).sides[0]
    assert any(m.strategy.startswith("numpy_matmul(core=haswell") for m in side.matches)
    profile = fpsim.profiles.load("h200/cublas-13.1")
    m, k, n = min((c.shape for c in profile.cases if c.op == "matmul" and min(c.shape) > 1), key=math.prod)
    a, b = rng.normal(size=(m, k)).astype(np.float32), rng.normal(size=(k, n)).astype(np.float32)
    observed = fpsim.matmul(a, b, f"profile:{profile.name}")
    side = fpsim.explain(observed, op="matmul", inputs=(a, b)).sides[0]
    assert any(f"profile:{profile.name}" in (match.strategy, *match.also) for match in side.matches)


def test_extended_accumulator() -> None:
    """(2**53 + 1) + 1 is exact in 64 bits, and 2**53 in 53."""
    x = np.array([2.0**53, 1.0, 1.0])
    case = Case("sum", (x,), FLOAT64, FLOAT64)
    given = {p.text: float(v) for m, p, v in computed(case, names=["extended accumulator (x87)"])}
    if np.finfo(np.longdouble).nmant == 63:
        assert given == {"serial in 80-bit numbers, rounded at the end": 2.0**53 + 2}
    else:
        assert given == {}


def test_fixed_decimals_are_half_a_unit_of_the_last() -> None:
    printed = read(["12.3456", "0.4718", "-3.0000", "0.0012"], FLOAT32)
    assert np.allclose(printed.high - printed.low, 1e-4, rtol=1e-3)
    shortest = read(["12.3456", "0.47", "3.0", "0.5"], FLOAT32)
    assert shortest.high[1] - shortest.low[1] < 1e-5


def test_work_is_counted() -> None:
    a, b = np.ones((20, 30), np.float32), np.ones((30, 40), np.float32)
    assert work_of(Case("matmul", (a, b), FLOAT32, FLOAT32)) == 20 * 30 * 40
    assert work_of(Case("sum", (a,), FLOAT32, FLOAT32)) == 600
    long = Case("sum", (np.ones(9_000_000, np.float32),), FLOAT32, FLOAT32)
    texts = [p.text for _, p, _ in computed(long, names=["compensated summation"])]
    assert len(texts) == 1  # a slow kind of arithmetic is tried once, whatever it costs
