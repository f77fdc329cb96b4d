"""Tolerances: the hard bound is never passed, the probabilistic one holds and is near, and tests can use both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim._roundoff import account
from fpsim.cli import main
from fpsim.errors import InputError
from fpsim.testing import assert_bitwise_equal, assert_close, assert_max_ulp

STRATEGIES = ("serial", "pairwise", "numpy_sum", "lanes(8)", "grid(4, 64)", "split_k(5)", "reverse")


@pytest.mark.parametrize(
    "law", ["uniform(0, 1)", "normal", "wide(-20, 20)", "integers(-9, 9)", "constant(0.1)", "wide(-148, -110)"]
)
def test_no_error_passes_the_hard_bound(law: str) -> None:
    rng = np.random.default_rng(1)
    x = fpsim.law(law).draw((60, 300), rng=rng)
    exact = fpsim.exact.sum(x, axis=1)
    extra = ("serial+acc(float16)", "pairwise+acc(bfloat16)", "serial+acc(float32, toward_zero)")
    for text in (*STRATEGIES, *extra, "pairwise+output(float16)"):
        chosen = fpsim.strategy(text)
        own = account("sum", chosen, x, axis=1)
        assert own is not None
        errors = np.abs(exact.error(fpsim.sum(x, chosen, axis=1)))
        assert (errors <= own.hard * (1 + 1e-12)).all(), text


@pytest.mark.parametrize(
    "text", ["serial", "serial+fma", "pairwise+fma", "lanes(8)+fma", "split_k(3)", "serial+acc(float64)"]
)
def test_no_error_of_a_product_passes_the_hard_bound(text: str) -> None:
    rng = np.random.default_rng(2)
    for law in ("normal", "wide(-30, 30)", "integers(-5, 5)", "wide(-100, -60)"):
        a, b = fpsim.law(law).draw((12, 90), rng=rng), fpsim.law(law).draw((90, 14), rng=rng)
        own = account("matmul", fpsim.strategy(text), a, b)
        assert own is not None
        errors = np.abs(fpsim.exact.matmul(a, b).error(fpsim.matmul(a, b, text)))
        assert (errors <= own.hard * (1 + 1e-12)).all(), law


def test_exact_sums_need_no_tolerance() -> None:
    x = fpsim.law("integers(-100, 100)").draw(500, rng=3)
    tol = fpsim.tolerance("sum", x, strategy="serial")
    assert tol.worst_case == tol.probabilistic == tol.atol == 0


@pytest.mark.parametrize("law", ["uniform(0, 1)", "normal", "lognormal"])
@pytest.mark.parametrize("text", ["serial", "numpy_sum", "pairwise"])
def test_the_probabilistic_tolerance_is_near_and_holds(law: str, text: str) -> None:
    x = fpsim.law(law).draw((400, 1000), rng=4)
    tol = fpsim.tolerance("sum", x, strategy=text, axis=1, confidence=0.999)
    errors = np.abs(fpsim.exact.sum(x, axis=1).error(fpsim.sum(x, text, axis=1)))
    share = errors / tol.probabilistic
    assert share.max() <= 1
    assert share.max() >= 0.3
    assert 0.8 < np.sqrt(np.mean((errors / tol.sigma) ** 2)) < 1.2
    assert (tol.probabilistic <= tol.worst_case).all()


def test_two_strategies_of_a_product() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.random((30, 200), np.float32), rng.random((200, 40), np.float32)
    one, other = "serial+fma", "interleaved(5, block=8)+fma"
    tol = fpsim.tolerance("matmul", a, b, between=(one, other))
    first, second = fpsim.matmul(a, b, one), fpsim.matmul(a, b, other)
    assert_close(first, second, tol)
    np.testing.assert_allclose(first, second, **tol.kwargs("numpy"))
    assert tol.kwargs("pytest") == {"rel": tol.rtol, "abs": tol.atol}
    assert fpsim.tolerance("matmul", a, b, between=(one, one)).atol == 0
    several = fpsim.tolerance("matmul", a, b, between=(one, [other, "pairwise+fma", "reverse+fma"]))
    assert (several.probabilistic >= tol.probabilistic).all()
    with pytest.raises(InputError, match="kwargs are for"):
        tol.kwargs("cobol")


def test_bugs_are_caught() -> None:
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((40, 512)).astype(np.float32), rng.standard_normal((512, 30)).astype(np.float32)
    tol = fpsim.tolerance("matmul", a, b, between=("serial+fma", "split_k(4)+fma"))
    right = fpsim.matmul(a, b, "split_k(4)+fma")
    assert_close(fpsim.matmul(a, b, "serial+fma"), right, tol)
    dropped = fpsim.matmul(a[:, :-1], b[:-1], "serial+fma")
    with pytest.raises(AssertionError, match="all over the result"):
        assert_close(dropped, right, tol)
    with pytest.raises(AssertionError, match="all over the result"):
        assert_close(fpsim.matmul(a, b, "serial+fma+operands(tf32)"), right, tol)
    fault = right.copy()
    fault[3, 4] *= np.float32(1.001)
    with pytest.raises(AssertionError, match=r"1 of 1200 outputs.*in few outputs(.|\n)*worst at \[3, 4\]"):
        assert_close(fault, right, tol)
    assert all(size > 1 for size in tol.power().values())


def test_data_of_a_law() -> None:
    tol = fpsim.tolerance("matmul", "uniform(0, 1)", shape="100x300x100", between=("serial+fma", "split_k(5)+fma"))
    assert not tol.proved
    assert tol.outputs == 10_000
    rng = np.random.default_rng(7)
    for _ in range(5):
        a, b = rng.random((100, 300), np.float32), rng.random((300, 100), np.float32)
        apart = np.abs(fpsim.matmul(a, b, "serial+fma") - fpsim.matmul(a, b, "split_k(5)+fma")).max()
        assert 0.3 * tol.atol < apart < tol.atol
    total = fpsim.tolerance("sum", "normal", shape=1000, strategy="numpy_sum", rng=3)
    assert total.atol == fpsim.tolerance("sum", "normal", shape=1000, strategy="numpy_sum", rng=3).atol


def test_structured_and_drifting_data_are_flagged() -> None:
    constant = fpsim.tolerance("sum", np.full(5000, 0.1, np.float32), strategy="serial")
    assert any("structured" in flag for flag in constant.flags)
    assert constant.probabilistic == constant.worst_case
    error = abs(
        fpsim.exact.sum(np.full(5000, 0.1, np.float32)).error(fpsim.sum(np.full(5000, 0.1, np.float32), "serial"))
    )
    assert error <= constant.probabilistic
    half = fpsim.law("uniform(0, 1)").draw(20_000, rng=8, dtype="float16")
    stuck = fpsim.tolerance("sum", half, strategy="serial+acc(float16)")
    assert any("drift" in flag for flag in stuck.flags)
    assert abs(fpsim.exact.sum(half).error(fpsim.sum(half, "serial+acc(float16)"))) <= stuck.probabilistic
    compensated = fpsim.tolerance("sum", np.ones(10, np.float32), strategy="serial+kahan")
    assert any("worst-case" in flag for flag in compensated.flags)


def test_text_and_dict() -> None:
    x = fpsim.law("normal").draw((7, 100), rng=9)
    tol = fpsim.tolerance("sum", x, between=("serial", "pairwise"), axis=1)
    text = str(tol)
    assert "atol=" in text
    assert "np.allclose" in text
    plain = tol.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["outputs"] == 7


@pytest.mark.parametrize(
    ("inputs", "settings", "message"),
    [
        ((np.ones(3),), {}, "say strategy"),
        ((np.ones(3),), {"strategy": "serial", "between": ("serial", "fold")}, "say strategy"),
        ((np.ones(3),), {"between": ("serial",)}, "two sides"),
        ((np.ones(3),), {"strategy": "serial", "confidence": 1.0}, "confidence"),
        ((np.ones(3),), {"strategy": "serial", "shape": 3}, "shape is for"),
        ((np.ones(0),), {"strategy": "serial"}, "empty"),
        (("normal", "normal"), {"strategy": "serial", "shape": 3}, "one law"),
    ],
)
def test_usage_errors(inputs: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fpsim.tolerance("sum", *inputs, **settings)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tolerance", "matmul", "--shape", "20x50x10", "--data", "normal"]
    assert main([*command, "--between", "serial+fma", "split_k:2+fma,lanes(4, combine=fold)+fma"]) == 0
    assert "split_k(2)+fma or lanes(4, combine=fold)+fma" in capsys.readouterr().out
    assert main([*command, "--strategy", "serial", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"] == 200
    np.save(tmp_path / "x.npy", np.ones(5, np.float32))
    assert main(["tolerance", "sum", "--inputs", str(tmp_path / "x.npy"), "--strategy", "serial"]) == 0
    capsys.readouterr()
    for wrong in (
        ["tolerance", "sum", "--strategy", "serial"],
        ["tolerance", "sum", "--data", "normal", "--shape", "5"],
        [*command, "--strategy", "serial", "--confidence", "much"],
        [*command, "--strategy", "serial", "--outputs", "0"],
    ):
        assert main(wrong) == 2


def test_ulps_and_bits() -> None:
    a = np.array([1, 2, -0.0, np.nan, np.inf], np.float32)
    assert_bitwise_equal(a, a.copy())
    assert_max_ulp(a, a, 0)
    b = a.copy()
    b[0] = np.nextafter(b[0], np.float32(2))
    assert_max_ulp(a, b, 1)
    with pytest.raises(AssertionError, match=r"differ by more than 0\.5 ulps"):
        assert_max_ulp(a, b, 0.5)
    with pytest.raises(AssertionError, match="1 of 5 outputs have other bits"):
        assert_bitwise_equal(a, b)
    b = a.copy()
    b[2] = 0.0
    with pytest.raises(AssertionError, match="only in the sign of zero"):
        assert_bitwise_equal(a, b)
    with pytest.raises(AssertionError, match="different types"):
        assert_bitwise_equal(a, a.astype(np.float64))
    with pytest.raises(AssertionError, match="different shapes"):
        assert_bitwise_equal(a, a[:2])
