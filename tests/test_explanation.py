"""Explanations: the true strategy is among the matches, ambiguity is told, and faults are never called rounding."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fpsim
from fpsim.errors import InputError, StrategyError
from fpsim.explanation import VERDICTS, Explanation, Side

Array = NDArray[Any]
_RNG = np.random.default_rng(20240501)
A = _RNG.random((24, 40), dtype=np.float32)
B = _RNG.random((40, 20), dtype=np.float32)
SIGNED_A = _RNG.standard_normal((24, 40), dtype=np.float32)
SIGNED_B = _RNG.standard_normal((40, 20), dtype=np.float32)
X = _RNG.standard_normal((40, 200), dtype=np.float32)


def f32(values: Any) -> Array:
    return np.array(values, np.float32)


def f16(values: Any) -> Array:
    return np.array(values, np.float16)


def side(found: Explanation, name: str) -> Side:
    return next(s for s in found.sides if s.name == name)


def texts(one: Side) -> set[str]:
    return {text for match in one.matches for text in (match.strategy, *match.also)}


def product(strategy: str, a: Array = A, b: Array = B) -> Array:
    return np.asarray(fpsim.matmul(a, b, strategy))


# -- the true strategy is found ---------------------------------------------------------------------------------------


PRODUCTS = (
    "serial", "serial+fma", "reverse", "pairwise+fma", "pairwise(8)", "fold", "numpy_sum", "lanes(7)+fma",
    "lanes(16, combine=fold)", "lanes(8, combine=pairwise)+fma", "split_k(5)+fma", "split(7)", "chunks(12)+fma",
    "chunks(16, combine=pairwise)", "interleaved(5, block=4)+fma", "interleaved(4, block=4, combine=fold)",
    "cascade(2, 16)", "serial+acc(float64)+output(float32)", "serial+kahan", "pairwise+neumaier", "serial+dot2",
)  # fmt: skip
SUMS = (
    "serial", "pairwise", "lanes(8, combine=fold)", "split_k(6)", "chunks(20)", "grid(4, 32)", "grid(2, 64)", "cascade(3, 16)",
)  # fmt: skip


def test_strategies_of_products_are_found() -> None:
    inputs = SIGNED_A, SIGNED_B
    found = fpsim.explain({text: product(text, *inputs) for text in PRODUCTS}, op="matmul", inputs=inputs)
    assert (found.verdict, found.exit_code) == ("expected rounding", 0)
    for one in found.sides:
        assert one.status == "reproduced"
        assert str(fpsim.strategy(one.name)) in {str(fpsim.strategy(text)) for text in texts(one)}
        assert {match.checked for match in one.matches} == {24 * 20}


def test_strategies_of_sums_are_found() -> None:
    observed = {text: np.asarray(fpsim.sum(X, text, axis=1)) for text in SUMS} | {"numpy_sum": np.sum(X, axis=1)}
    found = fpsim.explain(observed, op="sum", inputs=X, axis=1)
    assert found.verdict == "expected rounding"
    for one in found.sides:
        assert one.name in texts(one)


def test_every_match_gives_the_bits() -> None:
    result = product("serial+fma")
    found = fpsim.explain(result, op="matmul", inputs=(A, B))
    for text in texts(found.sides[0]):
        np.testing.assert_array_equal(product(text), result)


def test_numpy_sum_over_the_slow_axis_is_told_from_contiguous_terms() -> None:
    found = fpsim.explain(np.sum(X, axis=0), np.add.reduce(X.T.copy(), axis=1), op="sum", inputs=X, axis=0)
    assert "serial" in texts(found.sides[0])
    assert "numpy_sum(chunk=40)" in texts(found.sides[1])


@pytest.mark.parametrize(
    ("operands", "text"),
    [("tf32", "tf32"), ("tf32, nearest_away", "tf32, nearest_away"), ("tf32, toward_zero", "tf32, toward_zero"),
     ("bfloat16", "bfloat16"), ("float16", "float16")],
)  # fmt: skip
def test_rounded_operands_are_named(operands: str, text: str) -> None:
    low = product(f"split_k(2)+operands({operands})", SIGNED_A, SIGNED_B)
    found = fpsim.explain(
        {"full": product("serial", SIGNED_A, SIGNED_B), "low": low}, op="matmul", inputs=(SIGNED_A, SIGNED_B)
    )
    assert found.verdict == "reduced precision"
    assert f"split_k(2)+operands({text})" in texts(side(found, "low"))
    assert "operand precision" in found.mechanisms[0]


def test_rounded_operands_in_an_unknown_order_are_named_without_a_match() -> None:
    low = product("shuffle(3)+operands(tf32)")
    found = fpsim.explain(product("serial"), low, op="matmul", inputs=(A, B))
    assert found.verdict == "reduced precision"
    assert not found.sides[1].matches
    assert "operands(tf32)" in found.reason


@pytest.mark.parametrize("accumulator", ["float16", "bfloat16"])
def test_narrow_accumulators_are_named(accumulator: str) -> None:
    low = np.asarray(product(f"serial+acc({accumulator})"), np.float32)
    found = fpsim.explain(product("serial"), low, op="matmul", inputs=(A, B))
    assert found.verdict == "reduced precision"
    assert any(f"acc({accumulator})" in text for text in texts(found.sides[1]))


def test_own_strategy_is_tried_first() -> None:
    result = product("shuffle(11)+fma")
    unknown = fpsim.explain(result, product("serial"), op="matmul", inputs=(A, B))
    assert not unknown.sides[0].matches
    known = fpsim.explain(result, product("serial"), op="matmul", inputs=(A, B), strategies=["shuffle(11)+fma"])
    assert known.sides[0].matches[0].strategy == "shuffle(11)+fma"


def test_float64() -> None:
    a, b = SIGNED_A.astype(np.float64), SIGNED_B.astype(np.float64)
    results = product("serial+fma+acc(float64)", a, b), product("pairwise+acc(float64)", a, b)
    found = fpsim.explain(*results, op="matmul", inputs=(a, b))
    assert found.verdict == "expected rounding"
    assert "serial+fma+acc(float64)" in texts(found.sides[0])
    assert "pairwise+acc(float64)" in texts(found.sides[1])


def test_edges_in_another_order() -> None:
    """Libraries treat the columns that do not fill a vector, or the last rows, in another order."""
    mixed = product("serial+fma", SIGNED_A, SIGNED_B).copy()
    mixed[:, 16:] = product("lanes(4, combine=pairwise)+fma", SIGNED_A, SIGNED_B)[:, 16:]
    found = fpsim.explain(mixed, product("serial", SIGNED_A, SIGNED_B), op="matmul", inputs=(SIGNED_A, SIGNED_B))
    assert found.verdict == "expected rounding"
    first, second = found.sides[0].parts
    # NumPy's own rule is serial+fma in these columns, and gives some of the others by chance
    assert first.strategy == "numpy_matmul(core=skylakex, threads=1)"
    assert second.strategy == "lanes(4, combine=pairwise)+fma"
    assert "columns 16 to 19" in second.where


def test_float16() -> None:
    a, b = SIGNED_A.astype(np.float16), SIGNED_B.astype(np.float16)
    wide, narrow = product("serial+output(float16)", a, b), product("lanes(2)+acc(float16)", a, b)
    assert wide.dtype == narrow.dtype == np.float16
    found = fpsim.explain(wide, narrow, op="matmul", inputs=(a, b))
    assert found.verdict == "reduced precision"
    assert "serial+output(float16)" in texts(found.sides[0])
    assert "lanes(2)+acc(float16)" in texts(found.sides[1])


@pytest.mark.parametrize("n", [64, 90])
def test_dot_product_of_a_blas(n: int) -> None:
    """Lanes of vectors, folded as registers are, and a float64 tail: what OpenBLAS does with two vectors."""
    a, b = _RNG.standard_normal((2, n), dtype=np.float32)
    p = (a[:64].astype(np.float64) * b[:64]).astype(np.float32)  # one product a lane: no FMA before the fold
    q = p.reshape(4, 2, 8)
    c = (((q[0, 0] + q[0, 1]) + (q[1, 0] + q[1, 1])) + (q[2, 0] + q[2, 1])) + (q[3, 0] + q[3, 1])
    h = c[:4] + c[4:]
    rest = np.add.reduce((a[64:] * b[64:]).astype(np.float64), initial=0.0)
    result = np.float32(rest + np.float64((h[0] + h[1]) + (h[2] + h[3])))
    found = fpsim.explain(result, op="dot", inputs=(a, b))
    assert any(text.startswith("openblas_sdot") for text in texts(found.sides[0]))


def test_vectors_and_stacks() -> None:
    found = fpsim.explain(product("serial", A, B[:, 0]), op="matmul", inputs=(A, B[:, 0]))
    assert "serial" in texts(found.sides[0])
    stack = np.stack([A, SIGNED_A, A])
    found = fpsim.explain(
        product("serial+fma", stack, B), product("pairwise", stack, B), op="matmul", inputs=(stack, B)
    )
    assert (texts(found.sides[0]) >= {"serial+fma"}, texts(found.sides[1]) >= {"pairwise"}) == (True, True)


# -- public reports ---------------------------------------------------------------------------------------------------


def test_four_terms_on_host_and_gpu_are_ambiguous() -> None:
    """A public report of a float4 dot product: FMA is the likely difference, but plain orders give the bits as well."""
    a = f32([0.9996291399002075, -0.02438327670097351, -0.01212706696242094, 0.013238593004643917])
    b = f32([-0.0018407815368846059, 0.03313406929373741, 0.9884997010231018, 1.0])
    host, gpu = np.float32(-0.001397025771439075469971), np.float32(-0.001397024840116500854492)
    found = fpsim.explain({"host": host, "cuda": gpu}, op="dot", inputs=(a, b))
    assert found.verdict == "expected rounding"
    assert side(found, "host").matches[0].strategy == "serial"
    assert side(found, "cuda").matches[0].strategy == "serial+fma"
    plain = [text for text in texts(side(found, "cuda")) if "fma" not in text]
    assert plain
    assert "cannot separate them" in str(found)
    assert found.mechanisms == ("FMA: host = serial, cuda = serial+fma; other pairs of strategies fit as well",)
    assert found.closest == ("cuda",)
    assert found.condition is not None
    assert found.condition[0] == pytest.approx(19.952548447671212)


def test_half_product_without_its_last_term() -> None:
    """A public report: small integers are exact in float16, so that no rounding can lose 15."""
    a, b = np.arange(1, 16, dtype=np.float16).reshape(5, 3).T, f16([[5], [4], [3], [2], [1]])
    good, bad = f16([[75], [90], [105]]), f16([[75], [90], [90]])
    found = fpsim.explain({"good": good, "bad": bad}, op="matmul", inputs=(a, b))
    assert (found.verdict, found.exit_code) == ("bug suspected", 1)
    assert side(found, "bad").status == "fault"
    assert "the last term of each sum is missing" in found.reason
    assert "[2, 0]" in found.reason
    assert found.closest == ("good",)


def test_identity_in_tf32_shows_ties_away() -> None:
    """A public report: 1024.5 times a 1 x 1 identity gives 1025 on one card and 1024.5 on another."""
    found = fpsim.explain(f32([1025]), f32([1024.5]), op="matmul", inputs=(f32([1024.5]), f32([[1]])))
    assert found.verdict == "reduced precision"
    found_texts = texts(found.sides[0])
    assert "serial+operands(tf32, nearest_away)" in found_texts
    assert all(text.endswith("+operands(tf32, nearest_away)") for text in found_texts)


# -- faults -----------------------------------------------------------------------------------------------------------


def faults() -> dict[str, Array]:
    square = A[:, :24]
    one = product("serial+fma").copy()
    one[5, 7] *= np.float32(1.001)
    tile = product("serial+fma").copy()
    tile[8:16, 4:12] = product("serial+fma", A[:, 1:], B[1:])[8:16, 4:12]
    shifted = product("serial+fma").copy()
    shifted[:, 16:] = product("serial+fma", A, np.roll(B, 1, axis=1))[:, 16:]
    assert square.shape == (24, 24)
    return {
        "dropped first term": product("serial+fma", A[:, 1:], B[1:]),
        "dropped last term": product("serial+fma", A[:, :-1], B[:-1]),
        "one wrong element": one,
        "tile without its first term": tile,
        "tile shifted by one": shifted,
        "doubled": product("serial+fma") * np.float32(2),
        "zero": np.zeros_like(product("serial+fma")),
    }


def test_faults_are_not_rounding_and_are_placed() -> None:
    found = fpsim.explain({"good": product("serial"), **faults()}, op="matmul", inputs=(A, B))
    assert found.verdict == "bug suspected"
    assert side(found, "good").status == "reproduced"
    named = {"dropped first term", "dropped last term", "tile without its first term", "doubled", "zero"}
    statuses = {one.name: one.status for one in found.sides[1:]}
    assert statuses == {name: "fault" if name in named else "beyond bound" for name in faults()}
    assert found.closest == ("good",)
    notes = {one.name: one.note for one in found.sides}
    assert "first term of each sum is missing" in notes["dropped first term"]
    assert "last term of each sum is missing" in notes["dropped last term"]
    assert "one element, at [5, 7]" in notes["one wrong element"]
    assert "rows 8 to 15, columns 4 to 11" in notes["tile without its first term"]
    assert "columns 16 to 19" in notes["tile shifted by one"]


@pytest.mark.parametrize("kind", faults())
def test_one_fault_decides_the_verdict(kind: str) -> None:
    assert fpsim.explain(faults()[kind], op="matmul", inputs=(A, B)).exit_code == 1


def test_transposed_operand() -> None:
    a, b = SIGNED_A[:, :24], SIGNED_A[:, 16:40]
    found = fpsim.explain(product("serial", a, b), product("serial", a, b.T), op="matmul", inputs=(a, b))
    assert found.verdict == "bug suspected"
    assert "the second operand is transposed" in found.reason


def test_small_fault_in_one_element_is_not_called_rounding_where_the_others_are_reproduced() -> None:
    bad = product("serial+fma").copy()
    bad[3, 3] = np.nextafter(bad[3, 3], np.float32(np.inf))
    found = fpsim.explain(product("serial"), bad, op="matmul", inputs=(A, B))
    assert found.verdict == "unknown"
    assert "one element, at [3, 3]" in found.reason


def test_errors_within_the_bound_but_larger_than_rounding_are_unknown() -> None:
    exact = np.asarray(fpsim.exact.matmul(A, B).round("float64"))
    sign = np.where((np.indices(exact.shape).sum(axis=0) % 2).astype(bool), 1, -1)
    bad = (exact * (1 + sign * 30 * 2.0**-24)).astype(np.float32)
    found = fpsim.explain(product("serial"), bad, op="matmul", inputs=(A, B))
    assert side(found, "b").bound_ratio is not None
    assert side(found, "b").bound_ratio < 1  # type: ignore[operator]
    assert (found.verdict, found.exit_code) == ("unknown", 3)


@pytest.mark.parametrize("inputs", [(A, B), (SIGNED_A, SIGNED_B)])
def test_random_orders_are_accepted_by_size(inputs: tuple[Array, Array]) -> None:
    observed = {f"shuffle({seed}){'+fma' * (seed % 2)}": seed for seed in range(16)}
    found = fpsim.explain({text: product(text, *inputs) for text in observed}, op="matmul", inputs=inputs)
    assert found.verdict == "expected rounding"
    assert found.reason.startswith("Weaker evidence")
    assert [one.status for one in found.sides] == ["rounding size"] * 16


def test_sum_with_a_missing_half() -> None:
    found = fpsim.explain(np.sum(X, axis=1), np.sum(X[:, :100], axis=1), op="sum", inputs=X, axis=1)
    assert found.verdict == "bug suspected"
    assert "the first half only was summed" in found.reason


# -- special values ---------------------------------------------------------------------------------------------------


def test_nan_and_infinity_from_the_inputs_are_no_fault() -> None:
    a = A.copy()
    a[0, 0], a[1, 1] = np.nan, np.inf
    found = fpsim.explain(product("serial", a), product("pairwise", a), op="matmul", inputs=(a, B))
    assert found.verdict == "expected rounding"
    assert "serial" in texts(found.sides[0])
    assert found.sides[0].max_ulp is not None
    assert np.isfinite(found.sides[0].max_ulp)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_or_infinity_out_of_nothing_is_a_fault(value: float) -> None:
    bad = product("serial").copy()
    bad[2, 2] = value
    found = fpsim.explain(product("serial"), bad, op="matmul", inputs=(A, B))
    assert found.verdict == "bug suspected"
    assert "one element, at [2, 2]" in found.reason
    json.dumps(found.to_dict(), allow_nan=False)


def test_lost_nan_is_a_fault() -> None:
    a = A.copy()
    a[0, 0] = np.nan
    found = fpsim.explain(product("serial"), product("serial", a), op="matmul", inputs=(a, B))
    assert found.verdict == "bug suspected"
    assert "rows 0" in found.reason


def test_signed_zeros_are_equal() -> None:
    zero = np.zeros((2, 3), np.float32)
    found = fpsim.explain(
        np.zeros((2, 4), np.float32),
        -np.zeros((2, 4), np.float32),
        op="matmul",
        inputs=(zero, zero[:1].T @ np.ones((1, 4), np.float32)),
    )
    assert found.verdict == "identical"


# -- all sides, and none ----------------------------------------------------------------------------------------------


def test_identical_results() -> None:
    found = fpsim.explain(product("serial"), product("serial"), op="matmul", inputs=(A, B))
    assert (found.verdict, found.exit_code) == ("identical", 0)
    assert found.differences[0].differing == 0
    assert found.closest == ("a", "b")


def test_identical_but_wrong_results() -> None:
    bad = product("serial", A[:, 1:], B[1:])
    assert fpsim.explain(bad, bad, op="matmul", inputs=(A, B)).verdict == "bug suspected"


def test_three_sides() -> None:
    found = fpsim.explain(
        product("serial"), product("pairwise"), product("lanes(8)"), op="matmul", inputs=(A, B), names=("s", "p", "l")
    )
    assert [(d.first, d.second) for d in found.differences] == [("s", "p"), ("s", "l"), ("p", "l")]
    assert len(found.mechanisms) == 3


def test_without_inputs_only_equality_is_decided() -> None:
    x = product("serial")
    assert fpsim.explain(x, x.copy()).verdict == "identical"
    found = fpsim.explain(x, product("pairwise"))
    assert (found.verdict, found.exit_code) == ("unknown", 3)
    assert "inputs" in found.next_steps[0]
    narrow = fpsim.explain(x, fpsim.round_to(x, "bfloat16"))
    assert "bfloat16" in narrow.reason


def test_the_difference_is_counted_in_ulps() -> None:
    x = f32([1, 2, 3, -4])
    y = x.copy()
    y[1] = np.nextafter(np.float32(2), np.float32(3))
    y[3] = np.float32(-4) - 3 * np.spacing(np.float32(4))
    difference = fpsim.explain(x, y).differences[0]
    assert (difference.differing, difference.total, difference.max_ulp) == (2, 4, 3.0)
    assert difference.max_absolute == 3 * float(np.spacing(np.float32(4)))


def test_values_stored_as_float64_are_float32_values() -> None:
    found = fpsim.explain(product("serial").astype(np.float64), op="matmul", inputs=(A, B))
    assert found.sides[0].format == "float32"
    assert "serial" in texts(found.sides[0])


def test_report_forms() -> None:
    found = fpsim.explain({"cpu": product("serial"), "g<p>u": product("serial+fma")}, op="matmul", inputs=(A, B))
    told = found.to_dict()
    assert told["schema"] == "fpsim.explanation/2"
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["sides"][0]["matches"][0]["strategy"] == "serial"
    assert str(found).startswith("EXPECTED ROUNDING: ")
    assert "g&lt;p&gt;u" in found._repr_html_()
    assert "<p>u" not in found._repr_html_()


def test_exit_codes_are_the_documented_ones() -> None:
    assert VERDICTS == {
        "identical": 0, "expected rounding": 0, "reduced precision": 0, "different computation": 1, "bug suspected": 1,
        "unknown": 3,
    }  # fmt: skip


# -- unusable input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("observed", "settings", "words"),
    [
        ((), {}, "at least two"),
        ((A,), {}, "only with op and inputs"),
        ((A, B), {}, "one shape"),
        ((A, A), {"op": "sum"}, "go together"),
        ((A, A), {"inputs": A}, "go together"),
        ((A, A), {"op": "nothing known", "inputs": A}, "explain knows the operations"),
        ((A, A), {"op": "matmul", "inputs": (A, B)}, r"a has shape \(24, 40\)"),
        ((A, A), {"op": "matmul", "inputs": (A, A)}, "do not multiply"),
        ((A, A), {"op": "matmul", "inputs": A}, "2 inputs, not 1"),
        ((A, A), {"op": "sum", "inputs": (A, A)}, "1 input, not 2"),
        ((A, A), {"op": "dot", "inputs": (A, B)}, "two vectors"),
        ((A, A), {"op": "matmul", "inputs": (A, B), "axis": 0}, "axis belongs"),
        ((A[0], A[0]), {"op": "sum", "inputs": A, "axis": 2}, "axis 2"),
        ((A[:0], A[:0]), {}, "empty"),
        ((A, A), {"op": "sum", "inputs": A[:0]}, "empty"),
        ((A, A), {"names": ("x",)}, "names"),
        ((A, A), {"names": ("x", "x")}, "different names"),
        (({"a": A, "b": A},), {"names": ("x", "y")}, "keys"),
        ((np.array(["a"]), A), {}, "numbers"),
    ],
)
def test_unusable_input(observed: tuple[Any, ...], settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        fpsim.explain(*observed, **settings)


def test_unknown_strategy() -> None:
    with pytest.raises(StrategyError, match="unknown order"):
        fpsim.explain(A, A, strategies=["sideways"])


def test_an_error_that_all_sides_share_points_to_the_inputs() -> None:
    sides = {"cpu": product("serial", A, B), "gpu": product("pairwise+fma", A, B)}
    other = np.random.default_rng(99).random(A.shape, np.float32)
    found = fpsim.explain(sides, op="matmul", inputs=(other, B))
    assert found.verdict == "bug suspected"
    assert "not be those that gave the results" in found.reason
    alone = fpsim.explain({"cpu": sides["cpu"], "gpu": sides["gpu"] * 2}, op="matmul", inputs=(A, B))
    assert "not be those that gave the results" not in alone.reason


def test_a_signalling_nan_is_no_warning() -> None:
    x = np.ones(8, np.float32)
    wrong = np.array([0x7F800001], np.uint32).view(np.float32)[0]
    found = fpsim.explain({"right": np.float32(8), "wrong": wrong}, op="sum", inputs=x)
    assert found.verdict == "bug suspected"
    assert found.closest == ("right",)
