"""Predictions: numbers recomputed with mpmath, draws that can be repeated, and the forms of the answer."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any

import mpmath
import numpy as np
import pytest

import fpsim
from fpsim import bounds
from fpsim.errors import InputError, StrategyError, UnknownOrderError
from fpsim.laws import law
from fpsim.prediction import DEFAULT_PRODUCTS, DEFAULT_SUMS, SCHEMA, Prediction, predict

mpmath_context = mpmath.mp.clone()
mpmath_context.prec = 3000


def exact_sum(terms: Any) -> Any:
    return mpmath_context.fsum(terms)


def ulps(result: float, truth: Any, precision: int = 24, emin: int = -126) -> Any:
    """Return abs(result - truth) in ulps of truth, from exponents that mpmath finds."""
    _, exponent = mpmath_context.frexp(truth)
    unit = max(int(exponent) - 1, emin) - precision + 1
    return abs(mpmath_context.mpf(float(result)) - truth) / mpmath_context.mpf(2) ** unit


def products(a: Any, b: Any) -> list[Any]:
    return [mpmath_context.mpf(float(x)) * mpmath_context.mpf(float(y)) for x, y in zip(a, b, strict=True)]


def serial(terms: list[Any]) -> np.float32:
    total = terms[0]
    for term in terms[1:]:
        total = np.float32(total + term)
    return np.float32(total)


# --- given data -------------------------------------------------------------------------------------------------------


def test_sum_of_given_data() -> None:
    x = law("normal").draw(200, rng=1)
    p = predict("sum", x, strategies=["serial", "pairwise", "numpy_sum"])
    assert (p.op, p.shape, p.data, p.dtype, p.repeats, p.seed) == ("sum", (200,), ("array",), "float32", 1, None)
    truth = exact_sum([mpmath_context.mpf(float(v)) for v in x])
    one = p.strategies[0]
    assert one.result is not None
    assert one.result == serial(list(x))
    expected = float(ulps(float(one.result), truth))
    assert one.rms == one.quantile == one.maximum == pytest.approx(expected, rel=1e-12)
    error = abs(mpmath_context.mpf(float(one.result)) - truth)
    assert one.absolute == pytest.approx(float(error), rel=1e-12)
    assert one.relative == pytest.approx(float(error / abs(truth)), rel=1e-12)
    limit = bounds.bound("sum", "serial", x, value=abs(float(truth)))
    assert one.bound_absolute == pytest.approx(limit, rel=1e-12)
    assert one.used == pytest.approx(float(error) / limit, rel=1e-12)
    assert (p.strategies[2].differs, p.strategies[2].result) == (0, np.sum(x))
    assert p.exact is not None
    assert float(p.exact) == float(truth)


def test_product_of_given_data() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(6, 50)).astype(np.float32), rng.normal(size=(50, 5)).astype(np.float32)
    p = predict("matmul", a, b, strategies=["serial", "lanes(8)+fma"])
    errors = np.empty((6, 5))
    for i, j in np.ndindex(6, 5):
        result = serial([np.float32(x * y) for x, y in zip(a[i], b[:, j], strict=True)])
        errors[i, j] = float(ulps(float(result), exact_sum(products(a[i], b[:, j]))))
    one = p.strategies[0]
    assert (p.shape, one.outputs) == ((6, 50, 5), 30)
    assert one.maximum == one.quantile == pytest.approx(errors.max(), rel=1e-12)
    assert one.rms == pytest.approx(math.sqrt((errors**2).mean()), rel=1e-12)
    for two in p.strategies:
        emulated = fpsim.matmul(a, b, two.strategy)
        assert two.differs == np.count_nonzero(emulated != a @ b)
        assert 0 < two.used < 1


def test_dot_in_other_formats() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.random(40).astype(np.float32), rng.random(40).astype(np.float32)
    p = predict("dot", a, b, strategies=["serial+acc(bfloat16)", "serial+acc(float64)", "serial+output(float16)"])
    truth = exact_sum(products(a, b))
    assert [one.result_format for one in p.strategies] == ["bfloat16", "float64", "float16"]
    for one, (precision, emin) in zip(p.strategies, ((8, -126), (53, -1022), (11, -14)), strict=True):
        assert one.result is not None
        assert one.maximum == pytest.approx(float(ulps(float(one.result), truth, precision, emin)), rel=1e-9)
        assert 0 <= one.used <= 1


def test_matrices_vectors_stacks_and_axes() -> None:
    rng = np.random.default_rng(4)
    a = rng.random((3, 4, 5)).astype(np.float32)
    assert predict("matmul", a, a[0].T, strategies=["serial"]).strategies[0].outputs == 3 * 4 * 4
    assert predict("matmul", a[0], a[0, 0], strategies=["serial"]).strategies[0].outputs == 4
    p = predict("sum", a, strategies=["numpy_sum"], axis=1)
    assert (p.strategies[0].outputs, p.strategies[0].differs) == (15, 0)
    assert predict("sum", a, strategies=["numpy_sum"], axis=(0, 2)).strategies[0].differs == 0
    assert predict("sum", a.astype(np.float64), strategies=["numpy_sum"]).strategies[0].differs == 0


def test_overflow_and_numbers_that_are_not_finite() -> None:
    x = np.array([3e38, 3e38, -3e38], np.float32)
    p = predict("sum", x, strategies=["serial", "serial+acc(float64)"])
    assert p.strategies[0].maximum == p.strategies[0].bound == math.inf
    assert p.strategies[1].maximum == 0
    text = json.dumps(p.to_dict(), allow_nan=False)
    assert json.loads(text)["strategies"][0]["error_ulps"]["max"] == "inf"
    assert "none" in str(p)
    nan = predict("sum", np.array([[np.nan, 1], [1, 2]], np.float32), strategies=["serial"], axis=1)
    assert nan.strategies[0].outputs == 2
    assert nan.strategies[0].maximum == 0
    assert "1 outputs have no finite exact value" in str(nan)
    nothing = predict("sum", np.array([np.inf], np.float32), strategies=["serial"])
    assert math.isnan(nothing.strategies[0].rms)
    assert json.loads(json.dumps(nothing.to_dict(), allow_nan=False))["strategies"][0]["error_ulps"]["rms"] == "nan"
    assert "serial" in str(nothing)


# --- data of a law ----------------------------------------------------------------------------------------------------


def test_sampled_sums_recomputed() -> None:
    repeats, n = 60, 30
    p = predict("sum", "normal(0, 1)", shape=n, strategies=["serial"], repeats=repeats, rng=9)
    errors = []
    for stream in np.random.default_rng(9).spawn(repeats):
        x = law("normal").draw(n, rng=stream)
        truth = exact_sum([mpmath_context.mpf(float(v)) for v in x])
        errors.append(float(ulps(float(serial(list(x))), truth)))
    one = p.strategies[0]
    assert (p.repeats, p.seed, one.outputs) == (repeats, 9, repeats)
    assert one.maximum == pytest.approx(max(errors), rel=1e-12)
    assert one.rms == pytest.approx(math.sqrt(np.mean(np.square(errors))), rel=1e-12)


def test_quantile_is_of_the_pooled_outputs() -> None:
    p = predict("matmul", "uniform(0, 1)", shape="20x10x20", strategies=["serial+fma"], repeats=10)
    pooled = []
    for stream in np.random.default_rng(0).spawn(10):
        a = law("uniform").draw((20, 10), rng=stream)
        b = law("uniform").draw((10, 20), rng=stream)
        pooled.append(np.abs(fpsim.exact.matmul(a, b).ulp_error(fpsim.matmul(a, b, "serial+fma"))).ravel())
    ordered = np.sort(np.concatenate(pooled))
    one = p.strategies[0]
    assert one.outputs == ordered.size == 4000
    assert one.quantile == ordered[3995]
    assert one.maximum == ordered[-1]
    assert one.result is None


def test_two_laws_and_dots() -> None:
    p = predict("dot", "constant(1)", "integers(-5, 5)", shape=100, repeats=50, strategies=["serial"])
    assert p.data == ("constant(1)", "integers(-5, 5)")
    assert p.strategies[0].maximum == 0
    assert p.strategies[0].differs == 0
    assert predict("dot", "normal", shape=10, repeats=2, strategies=["serial"]).data == ("normal(0, 1)",) * 2


def test_the_same_call_gives_the_same_answer() -> None:
    def again(**settings: Any) -> Prediction:
        return predict("sum", "uniform(0,1)", shape=500, repeats=20, strategies=["serial"], **settings)

    assert again() == again(rng=0) != again(rng=1)
    assert again(rng=np.random.SeedSequence(0)).strategies == again().strategies
    assert again(rng=np.random.default_rng(0)).seed is None
    # The streams belong to the repeats: more of them leave the first ones alone, whatever the batches.
    few = predict("sum", "uniform(0,1)", shape=70_000, repeats=2, strategies=["serial"])
    more = predict("sum", "uniform(0,1)", shape=70_000, repeats=3, strategies=["serial"])
    assert few.strategies[0].maximum <= more.strategies[0].maximum


@pytest.mark.parametrize("shape", [100, (7, 100)])
def test_shapes_of_sums(shape: Any) -> None:
    p = predict("sum", "uniform(0,1)", shape=shape, repeats=3, strategies=["numpy_sum"])
    assert p.strategies[0].outputs == 3 * (7 if shape != 100 else 1)
    assert p.strategies[0].differs == 0


def test_default_repeats_are_bounded_and_fall_with_the_size() -> None:
    small = predict("dot", "normal", shape=4, strategies=["serial"])
    assert small.repeats == 1000
    assert small.strategies[0].outputs == 1000


def test_known_laws_of_error_growth() -> None:
    """A serial sum of n numbers of U(0, 1) errs by about sqrt(n/21) u S, to 10 %; pairs by 0.41 to 0.82 u S."""
    n = 3000
    p = predict("sum", "uniform(0, 1)", shape=n, repeats=400, strategies=["serial", "pairwise"])
    u_s = 2.0**-24 * n / 2 / 2.0**-13  # in ulps of numbers from 1024 to 2048
    assert 0.8 * math.sqrt(n / 21) * u_s < p.strategies[0].rms < 1.2 * math.sqrt(n / 21) * u_s
    assert 0.35 * u_s < p.strategies[1].rms < 0.9 * u_s
    assert str(p.most_accurate[0].strategy) == "pairwise"


# --- strategies -------------------------------------------------------------------------------------------------------


def names(p: Prediction) -> list[str]:
    return [str(one.strategy) for one in p.strategies]


def test_default_strategies() -> None:
    assert names(predict("sum", np.ones(10, np.float32))) == list(DEFAULT_SUMS)
    assert names(predict("dot", np.ones(10, np.float32), np.ones(10, np.float32))) == list(DEFAULT_PRODUCTS)


def test_fma_of_each_strategy() -> None:
    a = np.ones(10, np.float32)

    def asked(fma: Any, *texts: str) -> list[str]:
        return names(predict("dot", a, a, strategies=texts, fma=fma))

    assert asked("both", "serial", "pairwise+fma") == ["serial", "serial+fma", "pairwise", "pairwise+fma"]
    assert asked("both", "serial+fma", "serial") == ["serial", "serial+fma"]
    assert asked(True, "serial", "serial+fma") == ["serial+fma"]
    assert asked(False, "serial+fma", "pairwise") == ["serial", "pairwise"]
    assert asked(None, "serial", "lanes:8", "lanes(8)", "serial") == ["serial", "lanes(8)"]
    p = predict("dot", a, a, strategies=["serial+neumaier", "serial+dot2"], fma="both")
    assert names(p) == ["serial+neumaier", "serial+dot2"]
    assert len(p.notes) == 2
    with pytest.raises(StrategyError, match="neumaier needs the error"):
        predict("dot", a, a, strategies=["serial+neumaier"], fma=True)


def test_fma_in_a_sum_is_a_note_not_a_duplicate() -> None:
    p = predict("sum", np.ones(4, np.float32), strategies=["serial", "pairwise"], fma="both")
    assert names(p) == ["serial", "pairwise"]
    assert p.notes == ("a sum has no products, so FMA changes nothing in it",)


def test_strategies_with_equal_bits_name_each_other() -> None:
    x = law("uniform").draw(200, rng=0)
    p = predict("sum", x, strategies=["serial", "split_k(1)", "reverse"])
    assert p.strategies[0].same_as == ("split_k(1)",)
    assert p.strategies[1].same_as == ("serial",)
    assert p.strategies[2].same_as == ()


def test_most_accurate_is_judged_across_formats() -> None:
    x = np.array([1, 2.0**-9, 2.0**-24, 2.0**-24], np.float32)
    p = predict("sum", x, strategies=["serial+acc(bfloat16)", "serial"])
    # The error is 0.25 ulp of bfloat16, and 1 ulp of float32.
    assert [round(one.rms, 3) for one in p.strategies] == [0.25, 1.0]
    assert [str(one.strategy) for one in p.most_accurate] == ["serial"]


# --- forms ------------------------------------------------------------------------------------------------------------


def test_text_fits_100_columns_and_names_everything() -> None:
    a = law("uniform").draw((30, 40), rng=0)
    long = "lanes(16, combine=fold, tail=serial+acc(float64))+fma"
    for p in (
        predict("matmul", a, a.T, strategies=["serial", long], fma="both"),
        predict("sum", "wide(-30, 30)", shape=100, repeats=5),
        predict("dot", a[0], a[1]),
    ):
        text = str(p)
        lines = text.splitlines()
        assert max(map(len, lines)) <= 100
        table = lines[lines.index("") + 1 :]
        for one in p.strategies:
            assert any(line.startswith(str(one.strategy)) for line in table)
        assert "Most accurate here" in text
        assert "ulps" in text


def test_dictionary() -> None:
    x = np.array([1, 2.0**-24, 2.0**-24], np.float32)
    p = predict("sum", x, strategies=["serial", "reverse"])
    d = json.loads(json.dumps(p.to_dict(), allow_nan=False))
    assert d["schema"] == SCHEMA == "fpsim.prediction/1"
    assert (d["op"], d["shape"], d["dtype"], d["numpy"]) == ("sum", [3], "float32", np.__version__)
    assert d["exact"]["value"] == 1 + 2.0**-23
    assert [s["strategy"] for s in d["strategies"]] == ["serial", "reverse"]
    assert d["strategies"][0]["result"] == {"value": 1.0, "hex": "0x3f800000", "dtype": "float32"}
    assert d["strategies"][1]["result"]["hex"] == "0x3f800001"
    assert d["strategies"][0]["error_ulps"]["max"] == 1.0
    assert d["strategies"][0]["same_bits_as"] == []
    assert d["most_accurate"] == ["reverse"]


def test_html_is_escaped() -> None:
    p = predict("sum", np.ones(4, np.float32), strategies=['tree("(0 1) (2 3)")'])
    page = p._repr_html_()
    assert page.count("<table") == page.count("</table>") == 1
    assert "&quot;(0 1) (2 3)&quot;" in page


def test_pickle_and_equality() -> None:
    p = predict("sum", "normal", shape=20, repeats=3, strategies=["serial"])
    assert pickle.loads(pickle.dumps(p)) == p
    assert str(pickle.loads(pickle.dumps(p))) == str(p)


def test_progress_counts_up_to_the_total() -> None:
    seen: list[tuple[int, int]] = []
    predict(
        "sum", "normal", shape=100_000, repeats=3, strategies=["serial", "reverse"],
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert seen[-1] == (9, 9)
    assert seen == sorted(seen)
    assert {total for _, total in seen} == {9}


# --- errors -----------------------------------------------------------------------------------------------------------

X = np.ones(4, np.float32)


@pytest.mark.parametrize(
    ("op", "inputs", "settings", "message"),
    [
        ("max", (X,), {}, "unknown operation 'max'; use one of sum, dot, matmul"),
        ("sum", (), {}, "sum needs data"),
        ("dot", (X,), {}, "dot takes 2 operands, not 1"),
        ("sum", (X, X), {}, "sum takes 1 operand, not 2"),
        ("dot", (X, "normal"), {}, "arrays or laws, not both"),
        ("dot", (X[None], X), {}, "dot takes two vectors"),
        ("dot", (X, X[:3]), {}, "one length"),
        ("matmul", (np.ones((2, 3)), np.ones((2, 3))), {}, "do not multiply|do not match"),
        ("matmul", (X, X), {"axis": 0}, "axis belongs to sums"),
        ("sum", (X,), {"axis": 3}, "no axis 3|axis 3 does not exist"),
        ("sum", (X,), {"shape": 4}, "shape is for data of a law"),
        ("sum", (X,), {"repeats": 4}, "repeats is for data of a law"),
        ("sum", (X[:0],), {}, "empty arrays"),
        ("sum", (X,), {"strategies": []}, "at least one strategy"),
        ("sum", (X,), {"fma": "maybe"}, "fma must be"),
        ("sum", ([1j],), {}, "complex"),
        ("sum", ("unform",), {"shape": 4}, "unknown law 'unform'"),
        ("sum", ("normal",), {}, "the shape of a sum is n or outputs x n, as in 1000000"),
        ("sum", ("normal",), {"shape": 0}, "at least 1, not 0"),
        ("sum", ("normal",), {"shape": True}, "whole number"),
        ("sum", ("normal",), {"shape": 2.5}, "whole number"),
        ("sum", ("normal",), {"shape": (1, 2, 3)}, "not 1x2x3"),
        ("dot", ("normal",), {"shape": "4x4"}, "the shape of a dot is n, as in 1000, not 4x4"),
        ("matmul", ("normal",), {"shape": "4x4"}, "m x k x n, as in 400x400x400, not 4x4"),
        ("matmul", ("normal",), {"shape": "4x-4x4"}, "not '4x-4x4'"),
        ("matmul", ("normal",), {"shape": "100000x1x100000"}, r"more than 2\*\*31 numbers"),
        ("sum", ("normal",), {"shape": 10**10}, r"more than 2\*\*31 numbers"),
        ("sum", ("normal",), {"shape": 4, "repeats": 0}, "repeats must be a whole number of at least 1"),
        ("sum", ("normal",), {"shape": 4, "repeats": 10**9}, "at most 1000000"),
        ("sum", ("normal",), {"shape": 4, "axis": 0}, "axis is for arrays"),
        ("sum", ("normal",), {"shape": 4, "dtype": "int32"}, "int32"),
        ("sum", ("normal",), {"shape": 4, "rng": "x"}, "seed"),
        ("sum", ("normal", "normal"), {"shape": 4}, "one law, not 2"),
        ("dot", ("normal",) * 3, {"shape": 4}, "one for each of its 2 operands, not 3"),
        ("sum", ("constant(1e10)",), {"shape": 4, "dtype": "float16"}, "does not hold"),
        ("sum", (X,), {"strategies": ["permute([0, 1])"]}, "permute lists 2 places"),
    ],
)  # fmt: skip
def test_one_precise_error(op: str, inputs: tuple[Any, ...], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        predict(op, *inputs, **settings)
    assert "\n" not in str(caught.value)


def test_errors_of_strategies() -> None:
    with pytest.raises(StrategyError, match="unknown order 'seriel'"):
        predict("sum", X, strategies=["seriel"])
    with pytest.raises(StrategyError, match="not int"):
        predict("sum", X, strategies=[3])  # type: ignore[list-item]
    with pytest.raises(UnknownOrderError, match="operands in float16"):
        predict("sum", np.ones(6, np.float16), strategies=["xla_cpu_sum"])
