"""Spreads against runs of seeded emulation, recorded GPU runs, and independent code."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim import cli
from fpsim._arrivals import arrivals, seeded
from fpsim._reordering import chance_of_agreement, expected_distinct, moments, worst_case
from fpsim.arithmetic import Rounding
from fpsim.errors import InputError
from fpsim.formats import FLOAT16, FLOAT32

RNG = np.random.default_rng(7)
X = RNG.standard_normal(1000).astype(np.float32)
Y = RNG.standard_normal(1000).astype(np.float32)
TEXTS = [
    "shuffle",
    "shuffle(block=32)",
    "shuffle(window=50)",
    "shuffle(pairwise)",
    "chunks(32, fold, combine=shuffle)",
    "chunks(37, combine=shuffle(pairwise))",
    "cuda_reduce(7, 64, second=shuffle)",
    "split_k(9, combine=shuffle+acc(float64))+output(float32)",
    "lanes(8, combine=shuffle)",
    "grid(5, 8, 2, combine=shuffle(window=3))",
    "chunks(100, combine=shuffle+ftz)+output(float16)",
    "interleaved(6, block=3, combine=shuffle)",
]


def serial(terms: Any) -> Any:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("op", ["sum", "dot", "fused"])
def test_partial_sums_in_an_order_are_the_seeded_strategy(text: str, op: str) -> None:
    chosen = fpsim.strategy(text + ("+fma" if op == "fused" else ""))
    operands = (X[:, None],) if op == "sum" else (X[None, :], Y[:, None])
    found = arrivals(chosen, operands, FLOAT32)
    if found is None:  # products that are fused into the accumulator have no values of their own
        assert op == "fused"
        assert text.startswith("shuffle")
        return
    one = seeded(chosen, np.random.default_rng(3))
    seed = int(np.random.default_rng(3).integers(2**63))
    places = found.shuffle.places(len(found.partials), np.random.default_rng(seed))
    expected = fpsim.sum(X, one) if op == "sum" else fpsim.dot(X, Y, one)
    assert found._summed(found.partials[places])[0] == expected


def test_few_terms_give_the_results_of_all_their_orders() -> None:
    x = np.array([1.0, 2.0**-24, 2.0**-24, 2.0**-25, 3.0], np.float32)
    every = {float(serial(x[list(order)])) for order in itertools.permutations(range(5))}
    s = fpsim.spread("sum", x, strategy="shuffle", runs=2000)
    values, counts = s.values()
    assert set(values.astype(float).tolist()) == every
    assert counts.sum() == 2000
    assert s.agreement == pytest.approx(((counts / 2000) ** 2).sum(), abs=1e-3)
    assert s.worst_case is not None
    assert s.center is not None
    assert max(abs(v - float(s.center)) for v in every) <= float(s.worst_case)


def test_no_order_exceeds_the_proved_bound() -> None:
    rng = np.random.default_rng(5)
    for form, dtype in ((FLOAT32, np.float32), (FLOAT16, np.float16)):
        for _ in range(300):
            n = int(rng.integers(2, 7))
            x = (rng.standard_normal(n) * 2.0 ** rng.integers(-9, 9, n)).astype(dtype)
            exact = sum((Fraction(float(v)) for v in x), Fraction(0))
            bound = worst_case(x.astype(np.float64), Rounding(form))
            far = max(abs(Fraction(float(serial(x[list(p)]))) - exact) for p in itertools.permutations(range(n)))
            assert far <= Fraction(bound)


def test_no_closed_form_where_the_result_is_rounded_to_another_format() -> None:
    x = RNG.random(1000).astype(np.float32)
    narrow = fpsim.spread("sum", x, strategy="shuffle+output(float16)", runs=20)
    assert narrow.predicted_std is None
    assert float(narrow.std) == 0.0
    assert fpsim.spread("sum", x, strategy="shuffle+output(float32)", runs=2).predicted_std is not None


def test_sums_that_are_exact_in_any_order_do_not_spread() -> None:
    x = RNG.integers(-1000, 1000, 5000).astype(np.float32)
    s = fpsim.spread("sum", x, strategy="shuffle", runs=20)
    assert (float(s.std), int(s.distinct), s.agreement) == (0.0, 1, 1.0)
    assert s.predicted_std is not None
    assert float(s.predicted_std) == 0.0
    assert s.worst_case is not None
    assert float(s.worst_case) < 1e-9
    assert s.expected_distinct(1000) == 1.0


LAWS = {
    "uniform": lambda rng, n: rng.random(n),
    "normal": lambda rng, n: rng.standard_normal(n),
    "shifted": lambda rng, n: rng.uniform(-1, 1.2, n),
    "lognormal": lambda rng, n: rng.lognormal(size=n),
    "on a grid": lambda rng, n: np.rint(rng.random(n) * 4096) / 4096 + 2.0**-12 * (rng.random(n) < 0.5),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("text", ["shuffle", "chunks(64, fold, combine=shuffle)"])
def test_closed_form_has_the_moments_of_the_runs(law: str, text: str) -> None:
    x = LAWS[law](np.random.default_rng(11), 20000).astype(np.float32)
    runs = 600
    s = fpsim.spread("sum", x, strategy=text, runs=runs)
    assert s.predicted_std is not None
    assert s.predicted_mean is not None
    if float(s.std) == 0.0:
        assert float(s.predicted_std) == 0.0
        return
    assert 0.85 < float(s.predicted_std) / float(s.std) < 1.15  # 600 runs give the deviation within 9 % at 3 sigma
    # Ties are taken as going up and down alike, but the last bits of sums of coarse terms are not evenly odd.
    assert abs(float(s.predicted_mean) - float(s.mean)) < (1.0 if law == "on a grid" else 0.3) * float(s.std)
    assert s.expected_distinct(runs) == pytest.approx(int(s.distinct), rel=0.25, abs=3)
    assert s.expected_agreement() == pytest.approx(s.agreement, rel=0.3)


def test_normal_law_on_a_grid() -> None:
    rng = np.random.default_rng(2)
    for std in (0.2, 1.0, 7.0):
        draws = np.rint(rng.standard_normal((400, 50)) * std)
        assert expected_distinct(std, 1.0, 50) == pytest.approx(np.mean([np.unique(d).size for d in draws]), rel=0.03)
        pairs = np.rint(rng.standard_normal((2, 200_000)) * std)
        assert chance_of_agreement(std, 1.0) == pytest.approx((pairs[0] == pairs[1]).mean(), rel=0.05)
    assert moments(np.array([1.0]), FLOAT32).std == 0.0


def test_products_and_sums_along_an_axis_have_a_spread_for_each_output() -> None:
    a = RNG.standard_normal((3, 256)).astype(np.float32)
    b = RNG.standard_normal((256, 4)).astype(np.float32)
    s = fpsim.spread("matmul", a, b, strategy="split_k(8, combine=shuffle)+fma", runs=50)
    assert s.results.shape == (50, 3, 4)
    assert s.exact.shape == s.std.shape == s.distinct.shape == (3, 4)
    assert s.predicted_std is not None
    assert s.worst_case is not None
    assert s.center is not None
    assert (np.abs(s.results - s.center) <= s.worst_case).all()
    rows = fpsim.spread("sum", a, strategy="chunks(16, combine=shuffle)", axis=1, runs=30)
    assert rows.results.shape == (30, 3)
    alone = fpsim.spread("sum", a[1], strategy="chunks(16, combine=shuffle)", runs=30)
    assert alone.partials is not None
    assert rows.partials is not None
    assert (rows.partials[:, 1] == alone.partials[:, 0]).all()


def test_random_orders_inside_a_sum_are_emulated_run_by_run() -> None:
    s = fpsim.spread("sum", X, strategy="lanes(4, shuffle)", runs=20)
    assert s.predicted_std is None
    assert s.worst_case is None
    assert int(s.distinct) > 1
    assert s.test(s.results).verdict in ("reordering", "unlikely")


def test_index_add_adds_to_slots() -> None:
    rng = np.random.default_rng(1)
    target = np.array([0.0, 5.0, -1.0, 2.5], np.float32)
    index = rng.integers(0, 3, 300)
    source = rng.standard_normal(300).astype(np.float32)
    s = fpsim.spread("index_add", target, index, source, strategy="shuffle", runs=40)
    assert s.results.shape == (40, 4)
    assert (s.results[:, 3] == 2.5).all()  # nothing was added there
    assert s.worst_case is not None
    exact = [float(target[j]) + source[index == j].astype(np.float64).sum() for j in range(4)]
    np.testing.assert_allclose(s.exact, exact, rtol=1e-12)
    assert (np.abs(s.results - np.array(exact)) <= s.worst_case + 1e-12).all()
    few = fpsim.spread("index_add", target[1:2], [0, 0], source[:2], strategy="shuffle", runs=60)
    orders = {float(target[1] + source[0] + source[1]), float(target[1] + source[1] + source[0])}
    assert set(few.results.reshape(-1).tolist()) == orders


def test_runs_that_lost_a_term_are_told_from_reordering() -> None:
    x = np.random.default_rng(4).random(20000).astype(np.float32)
    s = fpsim.spread("sum", x, strategy="chunks(256, fold, combine=shuffle)", runs=200)
    true = fpsim.spread("sum", x, strategy="chunks(256, fold, combine=shuffle)", runs=300, rng=9).results
    assert s.test(true).verdict == "reordering"
    assert s.partials is not None
    racy = true.copy()
    racy[17] -= s.partials[23, 0]
    found = s.test(racy)
    assert found.verdict == "impossible"
    assert found.outside == 1
    assert 23 in found.lost
    assert "look for a race" in str(found)
    json.dumps(found.to_dict(), allow_nan=False)
    # A lost term that hides in what any order could give is still too far out for a random one.
    atomics = fpsim.spread("sum", x, strategy="shuffle", runs=100)
    hidden = atomics.results.copy()
    hidden[5] -= np.float32(0.99)
    assert atomics.test(hidden).verdict == "unlikely"


def test_false_alarms_are_rarer_than_stated() -> None:
    x = np.random.default_rng(8).standard_normal(300).astype(np.float32)
    s = fpsim.spread("sum", x, strategy="shuffle", runs=500)
    alarms = 0
    for seed in range(200):
        runs = fpsim.spread("sum", x, strategy="shuffle", runs=20, rng=1000 + seed).results
        alarms += s.test(runs, error_rate=0.05).verdict != "reordering"
    assert alarms <= 0.05 * 200


def test_recorded_atomics_of_a_gpu() -> None:
    """1000 runs on an H200 of 100,000 atomic additions, and of 132 blocks with one each."""
    recorded = np.load(Path(__file__).parent / "data" / "h200_atomics.npz", allow_pickle=False)
    x = recorded["x"]
    s = fpsim.spread("sum", x, strategy="shuffle", runs=300)
    for name in ("element", "block"):
        runs = recorded[name]
        if name == "block":
            s = fpsim.spread("sum", x, strategy="cuda_reduce(132, 256, second=shuffle)", runs=300)
        found = s.test(runs)
        assert found.verdict == "reordering"
        assert found.outside == 0
    element = recorded["element"].astype(np.float64)
    predicted = fpsim.spread("sum", x, strategy="shuffle", runs=2)
    assert predicted.predicted_std is not None
    assert float(predicted.predicted_std) == pytest.approx(element.std(), rel=0.15)
    assert predicted.expected_distinct(1000) == pytest.approx(np.unique(element).size, rel=0.15)


def test_the_command_judges_observed_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(4).random(5000).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    runs = fpsim.spread("sum", x, strategy="chunks(64, fold, combine=shuffle)", runs=50, rng=3).results
    np.save(tmp_path / "runs.npy", runs)
    runs[0] = 0
    np.save(tmp_path / "bad.npy", runs)
    common = ["spread", "sum", "--inputs", str(tmp_path / "x.npy"), "--strategy", "chunks(64, fold, combine=shuffle)"]
    common += ["--runs", "100"]
    assert cli.main([*common, "--observed", str(tmp_path / "runs.npy")]) == 0
    assert "observed runs: reordering" in capsys.readouterr().out
    assert cli.main([*common, "--observed", str(tmp_path / "bad.npy"), "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["test"]["verdict"] == "impossible"
    assert cli.main(["spread", "sum", "--shape", "3x40", "--data", "normal", "--strategy", "shuffle"]) == 0
    assert "outputs                3" in capsys.readouterr().out
    modelled = ["spread", "sum", "--shape", "132", "--data", "normal", "--strategy", "shuffle", "--runs", "9"]
    assert cli.main([*modelled, "--arrivals", "sweeps(2, 0.5)", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["predicted_std"] is None
    assert cli.main([*modelled, "--arrivals", "sweeps"]) == 2


def test_wrong_use() -> None:
    with pytest.raises(InputError, match="write shuffle, without a seed"):
        fpsim.spread("sum", X, strategy="chunks(8, combine=shuffle(1))")
    with pytest.raises(InputError, match="runs must be a whole number"):
        fpsim.spread("sum", X, strategy="shuffle", runs=0)
    with pytest.raises(InputError, match="op=sum, dot"):
        fpsim.spread("norm", X, strategy="shuffle")
    with pytest.raises(InputError, match="takes 2 operands"):
        fpsim.spread("dot", X, strategy="shuffle")
    with pytest.raises(InputError, match="observed must hold runs"):
        fpsim.spread("sum", X, strategy="shuffle", runs=2).test(X.reshape(10, 100))
    with pytest.raises(InputError, match="indices must be from 0 to 3"):
        fpsim.spread("index_add", np.zeros(4), [4], [1.0], strategy="shuffle")
