"""Worst-case bounds: closed forms, extreme cases that attain them, and random strategies that must not exceed them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim import bounds, exact
from fpsim.arithmetic import Rounding
from fpsim.errors import FpsimError, InputError
from fpsim.formats import BFLOAT16, E4M3FN, E5M2, FLOAT16, FLOAT32, FLOAT64, Format, round_to
from fpsim.laws import law
from fpsim.strategies import Strategy

U = 2.0**-24
V = U / (1 + U)


def case(text: str, n: int, op: str = "sum") -> bounds.WorstCase:
    chosen = fpsim.strategy(text)
    return bounds.worst_case(op, chosen.program(n), chosen.arithmetic())


# --- one rounding -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["nearest-even", "nearest-away", "toward-zero", "up", "down", "to-odd"])
@pytest.mark.parametrize(
    "form", [E5M2, E4M3FN, BFLOAT16, Format("", 1, -5, 5), Format("", 2, -5, 5), Format("", 6, -8, 8)]
)
def test_error_of_one_rounding(form: Format, mode: Any) -> None:
    """Over values on a grid 64 times finer than the format: never exceeded, and closely attained."""
    rounding = Rounding(form, mode)
    x = np.arange(2**form.precision * 64 + 1) / 64.0 * form.eps
    x = np.concatenate([x[x >= 1.0], -x[x >= 1.0]])
    normal = np.abs(np.asarray(round_to(x, form, mode=mode)) - x) / np.abs(x)
    v = bounds.relative_rounding_error(rounding)
    assert normal.max() <= v
    assert normal.max() > 0.9 * v / (1.0 + (0.0 if mode.startswith("nearest") else v))
    small = x * form.smallest_normal / 4.0
    for flush in (False, True):
        target = form.without_subnormals() if flush else form
        error = np.abs(np.asarray(round_to(small, target, mode=mode)) - small)
        assert (error <= v * np.abs(small) + bounds.underflow_error(rounding, flush=flush)).all()


# --- formulas ---------------------------------------------------------------------------------------------------------


def test_path_bound_is_the_exact_power() -> None:
    for h, v in ((1, 0.25), (10, 2.0**-8), (1000, 2.0**-24), (30, 1 / 9)):
        assert bounds.path_bound(h, v) == pytest.approx(float((1 + Fraction(v)) ** h - 1), rel=1e-13)
    assert bounds.path_bound(10**6, 0.25) == math.inf


def test_kahan_bound_is_three_u_at_first_order_and_gives_up_for_coarse_formats() -> None:
    relative, underflows = bounds.kahan_bound(1000, V)
    assert relative == pytest.approx(3 * U, rel=1e-3)
    assert 0 < underflows < 8 * 1000
    assert bounds.kahan_bound(10**6, V)[0] < 3.5 * U
    assert bounds.kahan_bound(10**6, 2.0**-8)[0] == math.inf


@pytest.mark.parametrize(
    ("text", "n", "expected"),
    [
        ("serial", 1, 0), ("serial", 2, 1), ("serial", 1000, 999), ("pairwise", 1024, 10), ("pairwise", 1025, 11),
        ("lanes(8)", 64, 7 + 7), ("chunks(32)", 1024, 31 + 31), ("numpy_sum", 128, 15 + 3), ("split_k(4)", 100, 24 + 3),
    ],
)  # fmt: skip
def test_height_counts_the_roundings(text: str, n: int, expected: int) -> None:
    assert fpsim.strategy(text).program(n).height == expected
    assert case(text, n).relative == pytest.approx(expected * U, rel=1e-4, abs=0)
    # A rounded product adds one rounding. Fused, only the first product is rounded on its own.
    assert case(text, n, "dot").relative == pytest.approx((expected + 1) * U, rel=1e-4)


def test_fused_products_count_as_the_tree_says() -> None:
    assert case("serial+fma", 1, "dot").relative == pytest.approx(U, rel=1e-4)
    assert case("serial+fma", 1000, "dot").relative == pytest.approx(1000 * U, rel=1e-4)
    # The longest path of pairs is that of a product that was rounded first.
    assert case("pairwise+fma", 1024, "dot").relative == pytest.approx(11 * U, rel=1e-4)


def test_number_of_terms_bounds_where_paths_do_not() -> None:
    assert case("serial+acc(bfloat16)+operands(bfloat16)", 10**6).relative <= 10**6 * 2.0**-8
    assert case("serial+acc(bfloat16, toward_zero)+operands(bfloat16)", 10**6).relative == math.inf


def test_mixed_formats_count_each_node_by_its_own_unit() -> None:
    worst = case("chunks(16, serial, combine=serial+acc(bfloat16))", 64)
    assert worst.relative == pytest.approx((1 + V) ** 15 * (1 + 2.0**-8 / (1 + 2.0**-8)) ** 4 - 1, rel=1e-9)


def test_compensated_bounds_have_the_published_form() -> None:
    # u abs(s) + c (n u)**2 A: Neumaier's c = 1; pairs carry errors up at every level; Dot2 adds two errors a term.
    for text, n, c in (("serial+neumaier", 1000, 1), ("pairwise+neumaier", 10, 2), ("serial+dot2", 1000, 2)):
        worst = case(text, 1000, "dot" if "dot2" in text else "sum")
        assert worst.last == pytest.approx(U, rel=1e-4)
        assert worst.relative == pytest.approx(c * (n * U) ** 2, rel=0.01)
    assert case("serial+kahan", 1000).relative == pytest.approx(3 * U, rel=1e-3)
    # Chunks that are closed one by one: u for each sum, and 3 u for those of the sums.
    worst = case("chunks(10, serial+neumaier, combine=serial+uncompensated)", 40)
    assert worst.relative == pytest.approx((1 + 3) * U, rel=1e-3)
    assert case("serial+neumaier", 100).bound(1.0, value=1e-3) == pytest.approx(U * 1e-3 + (99 * U) ** 2, rel=0.01)


# --- cases that attain a bound ----------------------------------------------------------------------------------------


def test_bound_is_attained_by_one_addition() -> None:
    x = np.array([1.0, U], np.float32)  # the exact sum is half an ulp above 1
    assert abs(exact.sum(x).error(fpsim.sum(x, "serial"))) == U
    assert U <= bounds.bound("sum", "serial", x) <= U * (1 + 1e-9)


def test_bound_of_stagnation_is_nearly_attained() -> None:
    n = 1000
    x = np.array([1.0, *[U] * n], np.float32)
    error = abs(exact.sum(x).error(fpsim.sum(x, "serial")))
    assert error == n * U
    assert error <= bounds.bound("sum", "serial", x) <= 1.001 * error


def test_bound_of_truncation() -> None:
    n = 100
    x = np.array([1.0, *[2 * U * (1 - 2.0**-20)] * n], np.float32)
    error = abs(exact.sum(x).error(fpsim.sum(x, "serial+acc(float32, toward_zero)")))
    assert error == pytest.approx(2 * U * n, rel=1e-5)
    assert error <= bounds.bound("sum", "serial+acc(float32, toward_zero)", x) <= 1.001 * error


def test_underflow_of_products() -> None:
    a = np.full(8, 2.0**-75, np.float32)
    error = abs(exact.dot(a, a).error(fpsim.dot(a, a, "serial")))
    assert error == 8 * 2.0**-150  # every product is half the smallest subnormal: all are lost
    assert error <= bounds.bound("dot", "serial", a, a) <= 2.5 * error
    b = np.full(8, 2.0**-64, np.float32)
    error = abs(exact.dot(b, b).error(fpsim.dot(b, b, "serial+ftz")))
    assert error == 8 * 2.0**-128
    assert error <= bounds.bound("dot", "serial+ftz", b, b)
    c = np.full(4, 2.0**-140, np.float32)
    assert abs(exact.sum(c).error(fpsim.sum(c, "serial+daz"))) <= bounds.bound("sum", "serial+daz", c)


def test_operand_rounding_is_measured() -> None:
    x = np.array([1 + 2.0**-9, 3.0], np.float32)
    assert bounds.bound("sum", "serial+operands(bfloat16)", x) == pytest.approx(2.0**-9 + 4 * U, rel=1e-5)
    y = x.astype(np.float64) + 2.0**-40
    assert bounds.operands("sum", "serial", y).conversion == pytest.approx(2 * 2.0**-40)
    assert bounds.operands("sum", "serial+acc(float64)", y).conversion == 0


def test_no_bound_where_sums_may_overflow() -> None:
    x = np.full(4, 3e38, np.float32)
    assert bounds.bound("sum", "serial", x) == math.inf
    assert bounds.bound("sum", "serial+acc(float64)", x) < 1e24
    assert bounds.bound("sum", "chunks(1, combine=serial+acc(float64))", x) == math.inf  # the result is float32
    assert bounds.bound("sum", "serial+acc(e4m3fn(overflow=saturate))", np.full(9, 100, np.float32)) == math.inf
    assert bounds.bound("sum", "serial", np.array([np.nan, 1], np.float32)) == math.inf
    assert bounds.bound("sum", "serial", np.array([np.inf, 1], np.float32)) == math.inf
    assert np.isinf(
        bounds.bound("dot", "serial+operands(float16)", np.full(2, 1e6, np.float32), np.ones(2, np.float32))
    )


def test_zero_and_exact() -> None:
    assert bounds.bound("sum", "serial", np.zeros(5, np.float32)) == 0
    assert bounds.bound("sum", "serial+acc(float16)+ftz", np.zeros(5, np.float32)) >= 0
    assert bounds.bound("sum", "serial", np.zeros((3, 0), np.float32), axis=1).tolist() == [0, 0, 0]


def test_errors() -> None:
    with pytest.raises(InputError, match="unknown operation 'max'"):
        bounds.bound("max", "serial", [1.0])
    with pytest.raises(InputError, match="dot takes 2 operands, not 1"):
        bounds.bound("dot", "serial", [1.0])
    with pytest.raises(InputError, match="x is complex"):
        bounds.bound("sum", "serial", [1j])


# --- random strategies ------------------------------------------------------------------------------------------------

ORDERS = [
    "serial", "pairwise", "lanes(8)", "lanes(4, combine=fold, tail=after)", "chunks(7)", "split_k(3)", "reverse",
    "interleaved(3, block=4)", "cascade(3, 4)", "grid(2, 8)", "numpy_sum", "chunks(5, serial+acc(bfloat16))",
    "lanes(4, serial+acc(float16), combine=pairwise+acc(float32))", "chunks(6, serial+kahan, combine=pairwise)",
    "chunks(4, combine=serial+acc(float64))", "chunks(5, serial+output(bfloat16), combine=serial)",
    "chunks(5, serial+neumaier, combine=serial)", "chunks(5, serial, combine=serial+neumaier)",
    "chunks(5, serial+acc(float64)+neumaier, combine=serial+neumaier)",
]  # fmt: skip
FORMATS = [
    "", "", "float64", "bfloat16", "float16", "e5m2", "e4m3fn", "tf32", "bfloat16, toward_zero", "float16, up",
    "float32, down", "float16, to_odd", "e4m3fn(overflow=saturate)", "format(1, -60, 60)", "format(2, -60, 60)",
]  # fmt: skip
COMPENSATIONS = ["", "", "", "+fma", "+fma", "+kahan", "+fma+kahan", "+neumaier", "+dot2"]
EXTRAS = [
    "", "", "", "+ftz", "+daz", "+operands(bfloat16)", "+operands(float16)", "+operands(e4m3fn)", "+output(bfloat16)",
    "+output(float16)", "+output(e5m2, up)", "+ftz+output(float16)", "+product(bfloat16)", "+product(float64)",
    "+start(0.0)",
]  # fmt: skip
LAWS = [
    "uniform(0,1)", "uniform(-1,1)", "normal", "lognormal(0,2)", "wide(-30,30)", "wide(-12,2)", "harmonic",
    "integers(-3,3)", "constant(0.1)", "wide(-26,-12)", "wide(-140,-120)", "uniform(0,0.01)",
]  # fmt: skip
LENGTHS = [1, 2, 3, 5, 8, 17, 40, 100, 300]


def random_case(rng: np.random.Generator) -> tuple[str, Strategy, tuple[Any, ...], dict[str, int]] | None:
    form = str(rng.choice(FORMATS))
    text = f"{rng.choice(ORDERS)}{f'+acc({form})' if form else ''}{rng.choice(COMPENSATIONS)}{rng.choice(EXTRAS)}"
    op, n = str(rng.choice(["sum", "dot", "matmul"])), int(rng.choice(LENGTHS))
    shapes: tuple[tuple[int, ...], ...] = ((3, n), (n, 4)) if op == "matmul" else ((n,), (n,))
    if op == "sum":
        shapes = ((6, n),)
    dtype = rng.choice(["float32", "float32", "float16", "float64"])
    try:
        chosen = fpsim.strategy(text)
        inputs: tuple[Any, ...] = tuple(
            law(str(rng.choice(LAWS))).draw(shape, rng=rng, dtype=dtype) for shape in shapes
        )
        if op == "sum":
            chosen.program(n)
    except FpsimError:  # contradicting settings, or a law beyond float16
        return None
    if rng.random() < 0.3:  # cancellation
        axis = 1 if op == "sum" else 0
        mirror = [np.flip(-x * x.dtype.type(1 + 1e-3 * rng.random()), axis) for x in inputs[:1]]
        inputs = (np.concatenate([inputs[0], mirror[0]], axis), *inputs[1:]) if op == "sum" else inputs
    return op, chosen, inputs, {"axis": 1} if op == "sum" else {}


@pytest.mark.parametrize("seed", range(6))
def test_no_strategy_exceeds_its_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    checked = finite = 0
    while checked < 250:
        drawn = random_case(rng)
        if drawn is None:
            continue
        op, chosen, inputs, axis = drawn
        try:
            result = getattr(fpsim, op)(*inputs, chosen, **axis)
        except FpsimError:  # an inner part and the whole contradict each other
            continue
        truth = getattr(exact, op)(*inputs, **axis)
        with np.errstate(invalid="ignore"):
            error = np.abs(truth.error(result))
        for value in (None, truth.round("float64")):
            limit = np.asarray(bounds.bound(op, chosen, *inputs, value=value, **axis))
            assert not np.isnan(limit).any()
            exceeded = ~(error <= limit) & np.isfinite(limit)
            assert not exceeded.any(), (op, str(chosen), np.shape(inputs[0]), error, limit)
            finite += int(np.isfinite(limit).sum())
        checked += 1
    assert finite > 250  # the bounds say something


@pytest.mark.parametrize(
    "text", ["serial", "pairwise", "lanes(8)", "serial+kahan", "serial+neumaier", "pairwise+neumaier"]
)
@pytest.mark.parametrize("name", ["uniform(0,1)", "normal", "wide(-20,20)"])
def test_float32_sums_of_all_lengths(text: str, name: str) -> None:
    for n in (1, 7, 64, 1000, 30000):
        x = law(name).draw((4, n), rng=n)
        truth = exact.sum(x, axis=1)
        error = np.abs(truth.error(fpsim.sum(x, text, axis=1)))
        limit = bounds.bound("sum", text, x, axis=1, value=truth.round("float64"))
        assert np.isfinite(limit).all()
        assert (error <= limit).all()


def test_magnitudes_are_upper_bounds() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(5, 40)).astype(np.float32), rng.normal(size=(40, 3)).astype(np.float32)
    given = bounds.operands("matmul", "serial", a, b)
    truth = exact.matmul(np.abs(a), np.abs(b))
    assert (truth.error(given.magnitude) >= 0).all()
    assert (truth.relative_error(given.magnitude) < 1e-13).all()
    assert given.data == FLOAT32
    assert bounds.operands("matmul", "serial", a, b.astype(np.float64)).data in (FLOAT32, FLOAT64)
    assert bounds.operands("sum", "serial", a.astype(np.float16)).data == FLOAT16
