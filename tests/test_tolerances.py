"""Tolerances: the hard bound is never passed, the probabilistic one holds and is near, and tests can use both."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim._roundoff import account
from fpsim._tolerance_tails import tail
from fpsim._tolerance_text import rounded_up
from fpsim.cli import main
from fpsim.errors import FpsimError, InputError, StrategyError
from fpsim.testing import assert_close

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


ORDERS = (
    "serial", "pairwise", "lanes(3, combine=fold)", "numpy_sum", "chunks(7, serial+acc(float64))",
    "chunks(5, pairwise+acc(bfloat16))", "split_k(2, serial+output(float16))", "chunks(4, serial+product(float64))",
)  # fmt: skip
FORMATS = (
    "float32", "float64", "float16", "bfloat16", "e4m3fn", "e5m2", "e4m3fn(overflow=saturate)", "float6_e3m2fn",
    "float16(overflow=nan)", "format(1, -10, 10)", "format(2, -3, 3, overflow=saturate)", "float32(subnormals=False)",
)  # fmt: skip
MODES = ("", "", "", ", toward_zero", ", up", ", down", ", to_odd", ", nearest_away")
DATA = ("normal", "wide(-20, 14)", "integers(-9, 9)", "wide(-149, -120)", "constant(0.1)", "wide(-75, -60)", "harmonic")


def _any_strategy(source: random.Random) -> fpsim.Strategy | None:
    """Return a strategy of any arithmetic; None where the settings contradict each other."""
    pick = source.choice
    text = pick(ORDERS) + pick(("", "+start(0.0)", "+start(-0.0)"))
    text += pick(("", f"+acc({pick(FORMATS)}{pick(MODES)})")) + pick(("", "+fma", f"+product({pick(FORMATS)})"))
    text += pick(("", "", f"+operands({pick(FORMATS)}{pick(MODES)})")) + pick(
        ("", f"+output({pick(FORMATS)}{pick(MODES)})")
    )
    try:
        return fpsim.strategy(text)
    except StrategyError:
        return None


def test_no_error_passes_the_hard_bound_of_any_arithmetic() -> None:
    source, rng, tried = random.Random(5), np.random.default_rng(5), 0
    for _ in range(350):
        chosen, k = _any_strategy(source), source.choice((1, 2, 5, 33, 90))
        if chosen is None:
            continue
        a, b = (fpsim.law(source.choice(DATA)).draw(shape, rng=rng) for shape in ((3, k), (k, 4)))
        for op, given in (("sum", (b,)), ("matmul", (a, b))):
            axis = 0 if op == "sum" else None
            try:
                own = account(op, chosen, *given, axis=axis)
            except FpsimError:  # a named rule that is for sums, or for other types
                continue
            if own is None:
                continue
            tried += 1
            used = fpsim.bounds.operands(
                op, chosen, *given, axis=axis
            ).values  # what their rounding costs is known apart
            exact = fpsim.exact.sum(*used, axis=0) if op == "sum" else fpsim.exact.matmul(*used)
            errors = np.abs(exact.error(fpsim.sum(b, chosen, axis=0) if op == "sum" else fpsim.matmul(a, b, chosen)))
            assert (np.where(np.isnan(errors), np.inf, errors) <= own.hard).all(), (str(chosen), op)
    assert tried > 200


@pytest.mark.parametrize(
    "text",
    [
        "serial+kahan",
        "serial+ftz",
        "serial+daz",
        "fused(16)+align(25, groups)",
        "serial+acc(float32(subnormals=False))",
    ],
)
def test_arithmetic_without_an_account(text: str) -> None:
    assert account("sum", fpsim.strategy(text), np.ones(9, np.float32)) is None


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


def smooth(rng: np.random.Generator, shape: tuple[int, int], kind: str) -> Any:
    """Return rows whose terms change little from one to the next, each row scaled by a random factor."""
    line = np.arange(1.0, shape[1] + 1)
    rows: dict[str, Callable[[], Any]] = {
        "sorted": lambda: np.sort(rng.random(shape), axis=1),
        "1/k": lambda: (0.5 + rng.random((shape[0], 1))) / line,
        "constant": lambda: (0.5 + rng.random((shape[0], 1))) * np.ones(shape),
        "sine": lambda: (0.5 + rng.random((shape[0], 1))) * np.sin(line / 100),
    }
    return rows[kind]().astype(np.float32)


@pytest.mark.parametrize("kind", ["sorted", "1/k", "constant", "sine"])
@pytest.mark.parametrize("text", ["serial", "grid(32, 64)", "split_k(4)"])
def test_the_probabilistic_tolerance_is_near_and_holds_for_structured_data(kind: str, text: str) -> None:
    x = smooth(np.random.default_rng(2), (1000, 500), kind)
    tol = fpsim.tolerance("sum", x, strategy=text, axis=1, confidence=0.999, outputs=1)
    assert any("structured" in flag for flag in tol.flags)
    error = np.abs(fpsim.exact.sum(x, axis=1).error(fpsim.sum(x, text, axis=1)))
    ratio = np.divide(error, tol.probabilistic, out=np.zeros_like(error), where=error > 0)
    assert 0.5 < np.quantile(ratio, 0.999) < 1.05
    assert np.median(ratio) < 0.45


def test_structured_products_one_by_one_and_together() -> None:
    a, b = (smooth(np.random.default_rng(seed), (6, 300), "sorted") for seed in (3, 4))
    apart = [fpsim.tolerance("dot", x, y, strategy="serial+fma", outputs=1).sigma for x, y in zip(a, b, strict=True)]
    stack = fpsim.tolerance("matmul", a[:, None, :], b[:, :, None], strategy="serial+fma", outputs=1)
    assert stack.sigma.reshape(-1) == pytest.approx(apart)
    square = fpsim.tolerance("matmul", a, np.ascontiguousarray(b.T), strategy="serial+fma", outputs=1)
    error = np.abs(fpsim.exact.matmul(a, b.T).error(fpsim.matmul(a, b.T, "serial+fma")))
    assert (error < square.probabilistic).all()
    assert (square.probabilistic < 0.5 * square.worst_case).all()


def test_what_is_too_large_to_measure_or_has_any_order_gets_its_worst_case(monkeypatch: pytest.MonkeyPatch) -> None:
    large = np.tile(np.float32(0.1), (50, 300))
    small = fpsim.tolerance("sum", large, strategy="pairwise", axis=1)
    assert (small.probabilistic < small.worst_case).all()
    with monkeypatch.context() as patch:
        patch.setattr("fpsim._tolerance_drift._MOST_SUMMED", large.size - 1)
        tol = fpsim.tolerance("sum", large, strategy="pairwise", axis=1)
    assert (tol.probabilistic == tol.worst_case).all()
    assert any("worst case is used" in flag for flag in tol.flags)
    steps = np.linspace(0.1, 1, 200).astype(np.float32)
    any_order = fpsim.tolerance("sum", steps, between=("serial", "any order"))
    one = fpsim.tolerance("sum", steps, strategy="serial")
    assert one.probabilistic < one.worst_case
    other = fpsim.tolerance("sum", steps, strategy="any order")
    assert other.probabilistic == other.worst_case
    assert any_order.probabilistic > other.worst_case


def test_tails_are_safe_and_scale() -> None:
    rng = np.random.default_rng(0)
    for parts in ((1.0,), (1.0, 1.0), (1.0, 0.1, 0.1), (1.0,) * 20):
        errors = sum(rng.uniform(-size, size, 200_000) for size in parts)
        variances = np.square(parts) / 3
        for level in (0.1, 0.01, 0.001):
            bound = tail(np.array(variances.sum()), np.array(variances.max()), level)
            assert np.quantile(np.abs(errors), 1 - level) <= bound
            # Chernoff's bound is no more than this above the quantile
            assert bound < 1.6 * np.quantile(np.abs(errors), 1 - level)
    for scale in (1e-280, 1e280):
        assert tail(np.array(3 * scale), np.array(scale), 1e-15) == pytest.approx(
            math.sqrt(scale) * float(tail(np.array(3.0), np.array(1.0), 1e-15)), rel=1e-12
        )
    assert tail(np.zeros(2), np.zeros(2), 0.1).tolist() == [0, 0]
    assert np.isinf(tail(np.array(np.inf), np.array(0.0), 0.1))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_a_pair_of_numbers_is_never_tighter(dtype: type, size: float) -> None:
    rng = np.random.default_rng(3)
    for law in (rng.standard_normal, rng.random):
        a: Any = np.asarray(law((9, 40)) * size, dtype)
        b: Any = np.asarray(law((9, 40)) * size, dtype)
        form = np.dtype(dtype).name
        sides = (f"serial+fma+acc({form})", f"pairwise+acc({form})")
        tol = fpsim.tolerance("matmul", a, b.T, between=sides)
        results = [fpsim.matmul(a, b.T, side) for side in sides]
        allowed = tol.atol + tol.rtol * np.abs(results[1].astype(np.float64))
        assert (allowed >= tol.probabilistic).all()
        # A result that is off by all of its own tolerance passes, in the arithmetic of the library
        right = results[1].astype(np.float64)
        edge = (right + 0.99 * tol.probabilistic).astype(dtype)
        edge = np.where(np.abs(edge - right) <= tol.probabilistic, edge, results[1])
        np.testing.assert_allclose(edge, results[1], **tol.kwargs("numpy"))


def test_numbers_beyond_the_squares_of_float64() -> None:
    x = np.random.default_rng(4).random(100) * 1e-200
    tol = fpsim.tolerance("sum", x, strategy="serial+acc(float64)")
    assert tol.probabilistic == tol.worst_case > 0
    assert abs(fpsim.exact.sum(x).error(fpsim.sum(x, "serial+acc(float64)"))) <= tol.probabilistic


def test_terms_that_are_not_finite() -> None:
    x = np.random.default_rng(5).random((4, 50), np.float32)
    x[0, 3], x[1, 4], x[2, 5] = np.nan, np.inf, -np.inf
    tol = fpsim.tolerance("sum", x, between=("serial", "pairwise"), axis=1)
    assert tol.probabilistic[:3].tolist() == [0, 0, 0]
    assert 0 < tol.atol < 1e-4
    assert any("3 outputs are not finite" in flag for flag in tol.flags)
    assert not any("structured" in flag for flag in tol.flags)
    one, other = fpsim.sum(x, "serial", axis=1), fpsim.sum(x, "pairwise", axis=1)
    assert_close(one, other, tol)
    np.testing.assert_allclose(one, other, **tol.kwargs("numpy"))
    other[1] = 3
    with pytest.raises(AssertionError, match="1 where one result is not finite"):
        assert_close(one, other, tol)


def test_infinite_terms_beside_sums_that_may_overflow() -> None:
    big, inf = np.float32(3e38), np.float32(np.inf)
    x = np.array([[-big, -big, inf, 1], [inf, 1, 2, 3], [inf, -inf, big, big], [np.nan, big, big, 1]], np.float32)
    one = fpsim.sum(x, "serial", axis=1)
    other = fpsim.sum(x, "reverse", axis=1)
    assert np.isnan(one).tolist() == [True, False, True, True]
    assert np.isnan(other).tolist() == [False, False, True, True]
    for pair in (("serial", "reverse"), ("serial", "any order")):
        tol = fpsim.tolerance("sum", x, between=pair, axis=1)
        assert tol.probabilistic.tolist() == [np.inf, 0, 0, 0]
        assert_close(one, other, tol)
        with pytest.raises(AssertionError, match="outputs are further apart"):
            assert_close(one, np.array([1, 2, np.nan, np.nan], np.float32), tol)
    same = fpsim.tolerance("sum", x, between=("serial", "serial"), axis=1)
    assert same.probabilistic.tolist() == [0, 0, 0, 0]
    a = np.array([[inf, big], [inf, 1]], np.float32)
    products = fpsim.tolerance("matmul", a, np.array([[1], [-2]], np.float32), between=("serial+fma", "any order+fma"))
    assert products.probabilistic.tolist() == [[np.inf], [0]]


def test_zeros_do_not_make_errors_drift() -> None:
    rng = np.random.default_rng(6)
    x = (rng.random(1000) * (rng.random(1000) < 0.3)).astype(np.float32)
    assert fpsim.tolerance("sum", x, strategy="serial").flags == ()


def test_sums_over_several_axes_are_not_taken_for_sorted() -> None:
    x = np.random.default_rng(7).random((60, 5, 4), np.float32)
    assert fpsim.tolerance("sum", x, strategy="numpy_sum", axis=(0, 2)).flags == ()
    assert fpsim.tolerance("sum", np.sort(x, axis=0), strategy="numpy_sum", axis=(0,)).flags != ()


def test_a_compensated_side_costs_its_bound_and_no_more() -> None:
    x = np.random.default_rng(8).standard_normal((300, 500)).astype(np.float32)
    tol = fpsim.tolerance("sum", x, between=("serial", "serial+kahan"), axis=1, confidence=0.999)
    alone = fpsim.tolerance("sum", x, strategy="serial", axis=1, confidence=0.999)
    kahan = fpsim.bounds.bound("sum", "serial+kahan", x, axis=1)
    np.testing.assert_allclose(tol.probabilistic, np.minimum(alone.probabilistic + kahan, tol.worst_case), rtol=1e-12)
    assert (tol.probabilistic < tol.worst_case).mean() > 0.9
    assert_close(fpsim.sum(x, "serial", axis=1), fpsim.sum(x, "serial+kahan", axis=1), tol)


def test_pilot_data_have_the_true_shape() -> None:
    # Which columns of this product NumPy computes by which order depends on its shape.
    tol = fpsim.tolerance("matmul", "normal", shape="3x200x70", between=("serial+fma", "numpy_matmul"))
    a, b = fpsim.law("normal").draw((3, 200), rng=1), fpsim.law("normal").draw((200, 70), rng=2)
    given = fpsim.tolerance("matmul", a, b, between=("serial+fma", "numpy_matmul"))
    assert 0.7 < tol.atol / given.atol < 1.5
    assert fpsim.tolerance("sum", "constant(1e38)", shape=100, strategy="serial").atol == math.inf
    assert fpsim.tolerance("dot", "normal", shape=300, strategy="serial+fma").outputs == 1


def test_printed_numbers_are_rounded_up() -> None:
    for x in (1.0, 1.2341e-7, 9.9951e-3, 1.235e8, 0.0, math.inf, 1.005e-12):
        shown = float(rounded_up(x))
        assert x <= shown <= x * 1.01 or x == shown


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
        ((np.ones(3),), {"strategy": "serial", "axis": 4}, "axis 4"),
        ((np.ones(3),), {"strategy": "serial", "outputs": 0}, "outputs must be"),
        ((np.ones(3),), {"strategy": []}, "at least one strategy"),
        (("normal", "normal"), {"strategy": "serial", "shape": 3}, "one law"),
    ],
)
def test_usage_errors(inputs: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fpsim.tolerance("sum", *inputs, **settings)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tolerance", "matmul", "--shape", "20x50x10", "--data", "normal"]
    assert main([*command, "--between", "serial+fma", "any of: split_k:2+fma; lanes(4, combine=fold)+fma"]) == 0
    assert "any of: split_k:2+fma; lanes(4, combine=fold)+fma" in " ".join(capsys.readouterr().out.split())
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
        [*command, "--strategy", "numpy", "--dtype", "bfloat16"],
        ["tolerance", "mean", "--data", "normal", "--shape", "5", "--strategy", "serial"],
    ):
        assert main(wrong) == 2
    assert main([*command, "--strategy", "serial+fma", "--dtype", "bfloat16"]) == 0
    assert "matmul, bfloat16," in capsys.readouterr().out


def test_command_as_it_is_written_in_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tolerance", "matmul", "--shape", "16x64x16", "--data", "uniform(0,1)"]
    assert main([*command, "--between", "numpy,profile:h200/cublas-13.1"]) in (0, 2)  # a processor may be unknown
    capsys.readouterr()
    assert main([*command, "--between", "lanes(8, combine=fold)+fma,any order+fma", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sides"] == ["lanes(8, combine=fold)+fma", "any order+fma"]
    assert main([*command, "--between", "numba.fma", "any split_k:2..5+fma", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["sides"] == ["serial+fma+start(0.0)", "any split_k:2..5+fma"]
    for wrong, message in (
        (["--between", "serial"], "two sides"),
        (["--between", "serial,"], "two sides"),
        (["--between", "numpy", "serial", "--dtype", "bfloat16"], "name a strategy"),
        (["--strategy", "serial", "--force"], "for --table"),
    ):
        assert main([*command, *wrong]) == 2
        assert message in capsys.readouterr().err
