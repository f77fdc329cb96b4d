"""Tolerances for sets of strategies and for any order, of fused adds, of operands that are rounded, and of stacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim import bounds, exact
from fpsim._tolerance_targets import target
from fpsim.errors import InputError, StrategyError
from fpsim.hypothesis_strategies import _tree
from fpsim.testing import assert_close

LAWS = ("uniform(0, 1)", "normal", "wide(-20, 20)", "integers(-9, 9)", "constant(0.1)", "wide(-148, -120)", "harmonic")


def error_of(op: str, given: tuple[Any, ...], order: Any, axis: Any = None) -> Any:
    reference = exact.sum(*given, axis=axis) if op == "sum" else exact.matmul(*given)
    result = fpsim.sum(given[0], order, axis=axis) if op == "sum" else fpsim.matmul(given[0], given[1], order)
    return np.abs(reference.error(result))


@pytest.mark.parametrize("law", LAWS)
def test_no_order_passes_the_worst_case_of_any_order(law: str) -> None:
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 9, 40):
        for settings in ("", "+acc(float16)", "+acc(bfloat16)", "+output(bfloat16)", "+acc(float32, toward_zero)"):
            x = fpsim.law(law).draw(
                (n, 6), rng=rng, dtype="float16" if "float16" in settings and law == "normal" else "float32"
            )
            a, b = fpsim.law(law).draw((4, n), rng=rng), fpsim.law(law).draw((n, 3), rng=rng)
            whole = fpsim.tolerance("sum", x, strategy=f"any order{settings}", axis=0)
            product = fpsim.tolerance("matmul", a, b, strategy=f"any order{settings}")
            orders = [_tree(n, seed, settings) for seed in range(6)]
            falling = np.argsort(-np.abs(x[:, 0].astype(np.float64)))  # the chain with the largest partial sums
            orders.append(fpsim.strategy(f"permute({list(map(int, falling))}){settings}"))
            for order in orders:
                errors = error_of("sum", (x,), order, 0)
                assert (np.where(np.isnan(errors), np.inf, errors) <= whole.worst_case).all(), (str(order), n)
                for fma in ("", "+fma"):
                    errors = error_of("matmul", (a, b), fpsim.strategy(f"{order}{fma}"))
                    assert (np.where(np.isnan(errors), np.inf, errors) <= product.worst_case).all(), (str(order), fma)


@pytest.mark.parametrize("law", ["uniform(0, 1)", "normal", "lognormal"])
def test_orders_stay_within_the_probabilistic_tolerance_of_any_order(law: str) -> None:
    x = fpsim.law(law).draw((1000, 300), rng=1)
    tol = fpsim.tolerance("sum", x, strategy="any order", axis=0)
    assert (tol.probabilistic < tol.worst_case).all()
    for order in ("serial", "pairwise", "numpy_sum", "lanes(7)", "split_k(16)", "reverse", "grid(4, 64)"):
        own = fpsim.tolerance("sum", x, strategy=order, axis=0)
        assert (own.worst_case <= tol.worst_case * (1 + 1e-9)).all(), order
        assert (error_of("sum", (x,), order, 0) <= tol.probabilistic).all()
        if order != "serial" or law == "normal":
            assert (own.sigma <= tol.sigma).all(), order
    # Near: added by falling magnitude, positive terms come within a factor of three.
    if law == "uniform(0, 1)":
        largest = fpsim.tolerance("sum", np.sort(x, axis=0)[::-1].copy(), strategy="serial", axis=0)
        assert (tol.worst_case < 1.5 * largest.worst_case).all()


def test_exact_sums_are_exact_in_any_order() -> None:
    a, b = (fpsim.law("integers(-50, 50)").draw(shape, rng=2) for shape in ((5, 300), (300, 4)))
    assert fpsim.tolerance("matmul", a, b, between=("any order", "any order+fma")).atol == 0
    assert fpsim.tolerance("matmul", a * np.float32(2**-40), b, between=("any order", "serial")).atol == 0
    assert (
        fpsim.tolerance("matmul", a * np.float32(2**-100), b * np.float32(2**-60), strategy="any order").atol > 0
    )  # below float32's subnormal numbers


def test_targets_of_several_strategies() -> None:
    assert [str(one) for one in target("any split_k(2..4)+fma").members] == [f"split_k({k})+fma" for k in (2, 3, 4)]
    assert [str(one) for one in target("any split_k:2..3+fma").members] == ["split_k(2)+fma", "split_k(3)+fma"]
    assert len(target("any interleaved(2..4, block=1..3)").members) == 9
    both = target("any of: any lanes(2..3); serial ; any order+fma")
    assert [str(one) for one in both.members] == ["lanes(2)", "lanes(3)", "serial", "any order+fma"]
    assert str(both) == "any of: any lanes(2..3); serial ; any order+fma"
    assert [str(one) for one in target(["serial", "any order"]).members] == ["serial", "any order"]
    for text, message in (
        ("any split_k(2)", "has no range"),
        ("any lanes(5..2)", "goes upwards"),
        ("any lanes(1..300)", "256 strategies at most, not 300"),
        ("any order+kahan", "plain additions"),
        ("any of: ", "not a strategy"),
        ('any of: tree("0..3"); any tree("0..3")', "has no range"),
    ):
        with pytest.raises(StrategyError, match=message):
            target(text)


def test_a_set_holds_for_each_member() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.random((6, 200), np.float32), rng.random((200, 5), np.float32)
    tol = fpsim.tolerance("matmul", a, b, between=("serial+fma", "any split_k(1..16)+fma"))
    results = [fpsim.matmul(a, b, f"split_k({k})+fma") for k in range(1, 17)]
    for k, result in enumerate(results, 1):
        one = fpsim.tolerance("matmul", a, b, between=("serial+fma", f"split_k({k})+fma"))
        assert (one.worst_case <= tol.worst_case).all()
        if k > 1:
            assert (one.probabilistic <= tol.probabilistic).all()
        assert_close(fpsim.matmul(a, b, "serial+fma"), result, tol)


FUSED = ("fused(16)+align(25)+operands(bfloat16)", "chunks(96, fused(8, rest=first)+align(25))+operands(tf32)",
         "fused(4)+align(23)+operands(float16)", "fused(16)+align(24, float16)+operands(float16)")  # fmt: skip


@pytest.mark.parametrize("text", FUSED)
@pytest.mark.parametrize("law", ["uniform(0, 1)", "normal", "wide(-12, 12)", "integers(-3, 3)"])
def test_fused_adds_have_an_account(text: str, law: str) -> None:
    a, b = fpsim.law(law).draw((16, 700), rng=4), fpsim.law(law).draw((700, 24), rng=5)
    if "float16)" in text and "align(24" in text:
        a, b = a * np.float32(0.01), b * np.float32(0.01)
    chosen = fpsim.strategy(text)
    used = bounds.operands("matmul", chosen, a, b).values
    tol = fpsim.tolerance("matmul", *used, strategy=text)
    errors = exact.matmul(*used).error(fpsim.matmul(a, b, text))
    assert (np.abs(errors) <= tol.worst_case).all()
    assert (np.abs(errors) <= tol.probabilistic).all()
    if law == "integers(-3, 3)":
        assert tol.atol == 0 or "align(24" in text
    if law == "uniform(0, 1)" and "align(24" not in text:
        # Truncation is one-sided: the mean is predicted, and worst case and tolerance are near.
        assert errors.mean() < 0
        assert tol.drift.mean() == pytest.approx(-errors.mean(), rel=0.01)
        assert np.abs(errors).max() > 0.5 * tol.probabilistic.max()
    if law == "normal" and "tf32" in text:
        assert np.median(tol.probabilistic / tol.worst_case) < 0.8


def test_operands_that_both_sides_round_alike_cancel() -> None:
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((8, 256)).astype(np.float32), rng.standard_normal((256, 9)).astype(np.float32)
    alike = fpsim.tolerance("matmul", a, b, between=("serial+fma+operands(tf32)", "pairwise+fma+operands(tf32)"))
    plain = fpsim.tolerance("matmul", a, b, between=("serial+fma", "pairwise+fma"))
    assert alike.atol < 1.1 * plain.atol
    assert np.all(alike.shift == 0)
    other = fpsim.tolerance("matmul", a, b, between=("serial+fma", "pairwise+fma+operands(tf32)"))
    assert other.atol > 50 * plain.atol
    one, rounded = fpsim.matmul(a, b, "serial+fma"), fpsim.matmul(a, b, "pairwise+fma+operands(tf32)")
    assert (np.abs(one.astype(np.float64) - rounded) <= other.worst_case).all()
    assert_close(one, rounded, other)
    assert_close(fpsim.matmul(a, b, "serial+fma+operands(tf32)"), rounded, alike)
    # The change is known: what it leaves is no wider than without it.
    with np.errstate(all="ignore"):
        assert np.median(np.abs(one.astype(np.float64) - rounded - other.shift)) < plain.atol
    assert "operands rounded differently" in other.mechanism


def test_operands_of_a_law_are_rounded_with_a_variance() -> None:
    sides = ("serial+fma", "pairwise+fma+operands(tf32)")
    tol = fpsim.tolerance("matmul", "normal", shape="30x500x30", between=sides, confidence=0.999)
    worst = []
    for seed in range(40):
        a, b = (
            fpsim.law("normal").draw(shape, rng=100 + seed + 1000 * i) for i, shape in enumerate(((30, 500), (500, 30)))
        )
        one, other = (fpsim.matmul(a, b, side).astype(np.float64) for side in sides)
        worst.append(np.abs(one - other).max() / tol.atol)
    assert 0.5 < max(worst) <= 1
    given = fpsim.bounds.bound("matmul", sides[1], a, b)
    assert tol.atol < 0.5 * np.median(given)  # where the bound of the operands alone is the worst case
    cut = fpsim.tolerance(
        "matmul", "uniform(0, 1)", shape="20x300x20", between=("serial", "serial+operands(tf32, toward_zero)")
    )
    a, b = (fpsim.law("uniform(0, 1)").draw(shape, rng=7) for shape in ((20, 300), (300, 20)))
    apart = np.abs(
        fpsim.matmul(a, b, "serial").astype(np.float64) - fpsim.matmul(a, b, "serial+operands(tf32, toward_zero)")
    )
    assert 0.3 * cut.atol < apart.max() <= cut.atol


def test_stacks_of_products() -> None:
    a, b = fpsim.law("normal").draw((3, 1, 5, 40), rng=8), fpsim.law("normal").draw((2, 40, 6), rng=9)
    tol = fpsim.tolerance("matmul", a, b, between=("serial+fma", "any order+fma"))
    assert np.shape(tol.probabilistic) == (3, 2, 5, 6)
    assert tol.outputs == 180
    one = fpsim.tolerance("matmul", a[1, 0], b[1], between=("serial+fma", "any order+fma"), outputs=180)
    np.testing.assert_allclose(tol.probabilistic[1, 1], one.probabilistic, rtol=1e-12)
    assert_close(fpsim.matmul(a, b, "serial+fma"), fpsim.matmul(a, b, "pairwise+fma"), tol)
    vector = fpsim.tolerance("matmul", a, b[0, :, 0], strategy="any order")
    assert np.shape(vector.probabilistic) == (3, 1, 5)
    for wrong in (np.ones((2, 2, 40, 6), np.float32), np.ones((2, 39, 6), np.float32)):
        with pytest.raises(InputError, match=r"whose shapes np\.matmul takes"):
            fpsim.tolerance("matmul", a, wrong, strategy="serial")


def test_what_is_not_supported_is_named() -> None:
    for op in ("mean", "norm", "var", "std", "prod", "cumsum"):
        with pytest.raises(InputError, match=f"the tolerance of a {op} is not supported"):
            fpsim.tolerance(op, np.ones(3), strategy="serial")
    with pytest.raises(InputError, match="complex"):
        fpsim.tolerance("sum", np.ones(3, np.complex64), strategy="serial")


def test_bugs_have_the_size_that_is_told() -> None:
    rng = np.random.default_rng(10)
    a, b = rng.random((12, 300), np.float32), rng.random((300, 11), np.float32)
    tol = fpsim.tolerance("matmul", a, b, between=("serial+fma", "pairwise+fma"))
    right = fpsim.matmul(a, b, "pairwise+fma").astype(np.float64)
    dropped = [np.abs(np.outer(a[:, k], b[k])) for k in range(300)]
    sizes = np.median([np.max(one / tol.probabilistic) for one in dropped])
    assert tol.power()["a dropped term"] == pytest.approx(float(sizes), rel=0.2)
    tf32 = np.abs(fpsim.matmul(a, b, "serial+acc(float64)+operands(tf32)") - fpsim.matmul(a, b, "serial+acc(float64)"))
    assert tol.power()["TF32 instead of float32"] == pytest.approx(float(np.max(tf32 / tol.probabilistic)), rel=1e-3)
    place = np.unravel_index(np.argmin(np.abs(tol.probabilistic / right - tol.smallest_error)), right.shape)
    for factor, caught in ((0.8, False), (1.2, True)):
        fault = right.copy()
        fault[place] *= 1 + factor * tol.smallest_error
        if caught:
            with pytest.raises(AssertionError, match="1 of 132"):
                assert_close(fault, right, tol)
        else:
            assert_close(fault, right, tol)
    loose = fpsim.tolerance("sum", rng.random(3000, np.float32), strategy="any order+acc(bfloat16)")
    assert loose.power()["a dropped term"] < 1
    assert "NOT caught" in str(loose)


def test_default_tolerances_do_what_is_told() -> None:
    rng = np.random.default_rng(11)
    for low, scale in ((0.0, 1.0), (-0.5, 1.0), (0.0, 1e-4)):
        a, b = ((rng.random(shape, np.float32) + np.float32(low)) * np.float32(scale) for shape in ((9, 200), (200, 8)))
        tol = fpsim.tolerance("matmul", a, b, between=("serial+fma", "pairwise+fma"))
        right = np.matmul(a.astype(np.float64), b.astype(np.float64))
        told = tol.defaults()
        for name, call in (
            ("np.allclose", np.allclose),
            ("numpy.testing.assert_allclose", lambda x, y: np.allclose(x, y, rtol=1e-7, atol=0)),
            ("torch.testing.assert_close", lambda x, y: np.allclose(x, y, rtol=1.3e-6, atol=1e-5)),
        ):
            passes, largest = told[name]
            # Results that are off by just what rounding can do, in every output
            assert call(right + 0.999 * tol.probabilistic, right) >= passes
            assert call(right + 1.001 * tol.probabilistic, right) <= passes
            allowed = [
                call(np.where(right == one, right + f * largest * size, right), right)
                for f in (0.999, 1.001)
                for one, size in zip(right.ravel(), tol.probabilistic.ravel(), strict=True)
            ]
            assert any(allowed[: right.size])
            assert not any(allowed[right.size :])
