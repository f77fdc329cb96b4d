"""Worst-case bounds: closed forms, extreme cases that attain them, and random strategies that must not exceed them."""

from __future__ import annotations

import collections
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from random_cases import random_case

import fpsim
from fpsim import bounds, exact
from fpsim.arithmetic import Rounding
from fpsim.bounds.tables import PROVED, name_of
from fpsim.errors import FpsimError, InputError
from fpsim.formats import BFLOAT16, E4M3FN, E5M2, FLOAT16, FLOAT32, FLOAT64, Format, round_to
from fpsim.laws import law

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


@pytest.mark.parametrize("seed", range(6))
def test_no_strategy_exceeds_any_proved_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    checked = 0
    applied: collections.Counter[str] = collections.Counter()
    while checked < 150:
        drawn = random_case(rng)
        if drawn is None:
            continue
        op, chosen, inputs, axis = drawn
        try:
            given = bounds.case(op, chosen, *inputs, **axis)
            error = given.error
        except FpsimError:  # an inner part and the whole contradict each other
            continue
        limits = {"without the value": bounds.bound(op, chosen, *inputs, **axis)}
        for one in PROVED:
            try:
                limits[name_of(one)] = one(given)
            except bounds.NotApplicableError:
                continue
        for name, limit in limits.items():
            finite = np.isfinite(limit)
            assert not np.isnan(limit).any()
            assert not (~(error <= limit) & finite).any(), (name, op, str(chosen), np.shape(inputs[0]), error, limit)
            applied[name] += bool(finite.any())
        checked += 1
    assert min(applied[name_of(one)] for one in PROVED) >= 1, applied  # each bound says something


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


# --- bounds of a case -------------------------------------------------------------------------------------------------


def test_depths_and_heights_of_fused_products() -> None:
    a = np.ones(6, np.float32)
    for text, expected in (("serial", [6, 6, 5, 4, 3, 2]), ("serial+fma", [6, 5, 4, 3, 2, 1])):
        given = bounds.case("dot", text, a, a)
        assert given.leaf_roundings(given.programs[0][0]).tolist() == expected
        assert given.roundings == 6
    given = bounds.case("dot", "pairwise+fma", a[:4], a[:4])
    assert sorted(given.leaf_roundings(given.programs[0][0]).tolist()) == [2, 2, 3, 3]


def test_running_bound_and_second_moment_are_those_of_the_partial_sums() -> None:
    x = np.random.default_rng(0).random((3, 500), np.float32)
    sums = np.cumsum(x, axis=1, dtype=np.float32)[:, 1:].astype(np.float64)
    given = bounds.case("sum", "serial", x, axis=1)
    assert given.partial_sums.first == pytest.approx(U * np.sum(np.abs(sums), axis=1), rel=1e-12)
    assert given.partial_sums.second == pytest.approx(U * np.sqrt(np.sum(sums**2, axis=1)), rel=1e-12)
    assert given.partial_sums.largest.tolist() == sums[:, -1].tolist()
    assert bounds.running(given) == pytest.approx(given.partial_sums.first, rel=1e-11)
    theta = bounds.case("dot", "serial", x[0], x[1]).partial_sums
    products = x[0] * x[1]
    total = np.cumsum(products, dtype=np.float32)[1:].astype(np.float64)
    assert theta.first == pytest.approx(U * (products.astype(np.float64).sum() + total.sum()), rel=1e-12)


def test_table_shows_all_bounds_and_ones_own() -> None:
    def half(case: bounds.Case) -> Any:
        """Half of the largest error, which is exceeded."""
        return case.error.max() / 2

    class Never:
        def __call__(self, case: bounds.Case) -> Any:
            case.require(False, "never applies")

    x = np.random.default_rng(0).random((20, 300), np.float32)
    table = bounds.table("sum", "lanes(4)", x, axis=1, bounds=(*bounds.ALL, half, Never()))
    assert [row.name for row in table.rows][-2:] == ["half", "Never"]
    assert table["half"].exceeded > 0
    assert table["Never"].why_not == "never applies"
    assert table["gamma"].closest > table["height"].closest > table["half_ulp"].closest >= 1
    assert table["hallman_ipsen"].closest > table["ulp_variance"].closest >= 1
    assert [row.name for row in table.rows if row.kind == "other"] == ["stochastic_rounding", "random_order"]
    assert table["stochastic_rounding"].largest == pytest.approx(2 * table["hallman_ipsen"].largest, rel=1e-3)
    assert "come in random order" in str(bounds.table("sum", "serial", x[0]))
    assert "exceeded by" in str(table)
    assert "never applies" in table._repr_html_()
    row = {one["name"]: one for one in table.to_dict()["bounds"]}
    assert row["half"]["exceeded"] == table["half"].exceeded
    assert set(row["stochastic_rounding"]) == {"name", "kind", "statement", "largest"}
    with pytest.raises(InputError, match="must return numbers of shape"):
        bounds.table("sum", "serial", x, axis=1, bounds=[lambda case: np.ones(3)])  # noqa: ARG005
    with pytest.raises(InputError, match="negative or NaN"):
        bounds.table("sum", "serial", x, axis=1, bounds=[lambda case: -case.magnitude])
    with pytest.raises(InputError, match="no bound 'x' in this table"):
        table["x"]


def test_stochastic_rounding_stays_below_its_bound() -> None:
    rng = np.random.default_rng(5)
    x = fpsim.round_to(rng.random(300), "bfloat16")
    total = np.zeros(2000)
    for term in x.tolist():
        total = fpsim.round_to(total + term, "bfloat16", mode="stochastic", rng=rng).astype(np.float64)
    error = np.abs(total - float(np.sum(x.astype(np.float64))))
    limit = float(bounds.stochastic_rounding(bounds.case("sum", "serial+acc(bfloat16)", x)))
    assert np.mean(error > limit) <= 0.001
    assert limit < 10 * np.quantile(error, 0.999)


def test_linear_height_only_where_it_holds() -> None:
    small, long = np.ones(10, np.float16), np.ones(200, np.float16)
    assert bounds.height_linear(bounds.case("sum", "serial+acc(float16)", small)) == pytest.approx(9 * 2.0**-11 * 10)
    with pytest.raises(bounds.NotApplicableError, match="needs h <="):
        bounds.height_linear(bounds.case("sum", "serial+acc(float16)", long))
    assert bounds.height_bound(45, 2.0**-11) == math.inf


def test_difference_of_two_strategies() -> None:
    x = np.random.default_rng(1).standard_normal((400, 200), np.float32)
    one, other = (bounds.case("sum", text, x, axis=1) for text in ("serial", "pairwise"))
    apart = np.abs(fpsim.sum(x, "serial", axis=1).astype(np.float64) - fpsim.sum(x, "pairwise", axis=1))
    assert (apart <= bounds.difference(one, other, proved=True)).all()
    assert np.mean(apart > bounds.difference(one, other)) <= 0.005
    assert (bounds.difference(one, other) <= bounds.difference(one, other, proved=True)).all()
    with pytest.raises(InputError, match="same operation, operands"):
        bounds.difference(one, bounds.case("sum", "serial", x + 1, axis=1))


def test_overflow() -> None:
    x = np.stack([np.full(8, 3e38, np.float32), np.ones(8, np.float32)])
    assert bounds.overflow_possible(bounds.case("sum", "serial", x, axis=1)).tolist() == [True, False]


@pytest.mark.parametrize(("n", "t", "height"), [(10**6, 1, 999999), (10**6, 2, 1998), (10**6, 3, 297)])
def test_superblocks(n: int, t: int, height: int) -> None:
    assert bounds.superblock_height(n, t) == height
    assert bounds.superblock_bound(n, t, U) == pytest.approx((height + 1) * U / (1 - (height + 1) * U))


def test_stochastic_rounding_stays_within_its_bounds() -> None:
    rng = np.random.default_rng(5)
    trials, n, u = 4000, 200, 2.0**-8
    x = np.asarray(round_to(rng.random(n), BFLOAT16))
    total = np.zeros(trials)
    for term in x:
        total = np.asarray(round_to(total + term, BFLOAT16, mode="stochastic", rng=rng))
    exactly = math.fsum(x)
    error = total - exactly
    second = math.sqrt(math.fsum(np.cumsum(x)[1:] ** 2))
    for failure in (0.1, 0.01):
        assert np.mean(np.abs(error) > bounds.stochastic_bound(n - 1, n, u, second, failure)) <= failure
        assert np.mean(np.abs(error) > exactly * bounds.stochastic_azuma_bound(n - 1, u, failure)) <= failure
    assert error.var() <= bounds.stochastic_variance_bound(n - 1, u) * exactly**2
    assert abs(error.mean()) < 4 * error.std() / math.sqrt(trials)  # while rounding to nearest stagnates at 512


def test_random_orders_spread_as_predicted() -> None:
    rng = np.random.default_rng(2)
    for x in (rng.random(3000), rng.uniform(-5, 5, 3000)):
        runs = fpsim.sum(np.stack([rng.permutation(x) for _ in range(1000)]), "serial+acc(float64)", axis=1)
        assert bounds.random_order_deviation(x, form="float64") == pytest.approx(np.std(runs), rel=0.3)


def test_formulas_without_data() -> None:
    assert bounds.gamma_bound(10**7, 2.0**-8) == math.inf
    assert bounds.neumaier_bound(1001, U) == (U, bounds.gamma_bound(1000, U) ** 2)
    assert bounds.dot2_bound(1000, U)[1] == bounds.gamma_bound(1000, U) ** 2
    assert bounds.pairwise_compensated_bound(10, V)[1] == pytest.approx(20 * 10 * U**2, rel=1e-4)
    assert bounds.fabsum_bound(10**6, 128, U, 2.0**-53) == pytest.approx(127 * U, rel=1e-3)
    assert bounds.accurate_accumulator_bound(1000, U, 2.0**-53)[1] == pytest.approx(999 * 2.0**-53, rel=1e-4)
    assert bounds.block_fma_bound(256, 4, 2.0**-11, U) == pytest.approx(2 * 2.0**-11 + 67 * U, rel=1e-2)
    assert bounds.fused_chain_bound(1024, 8, 24) == (1024 + 2 * 128) * 2.0**-24
    assert bounds.probability_factor(1e-3) == pytest.approx(3.899, abs=1e-3)
    assert bounds.higham_mary_bound(10_000, U, 1e-3) == pytest.approx(3.899 * 100 * U, rel=1e-3)
    # Data of mean zero have an error that grows as n, so that it does not grow beside A.
    one, ten = (bounds.random_data_bound(n, U, 1e-3, 0.0, 1.0) / n for n in (1000, 10_000))
    assert one < ten < 1.3 * one
