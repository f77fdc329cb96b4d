"""Decisions: predicted chances against runs that are counted, and against sums over all cases."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim._decision_law import LogitLaw, ranked, set_chances
from fpsim.errors import InputError

RNG = np.random.default_rng(11)
N, ROWS, CLASSES = 400, 24, 5


def near_ties(noise: float) -> tuple[Any, Any, Any]:
    """Return positive operands, and a bias that leaves the logits of the first row a few times the noise apart."""
    x = np.repeat(RNG.random((1, N)), ROWS, axis=0).astype(np.float32)
    w = RNG.random((N, CLASSES)).astype(np.float32)
    exact = x[0].astype(np.float64) @ w
    return x, w, (150 - exact + noise * RNG.standard_normal(CLASSES)).astype(np.float32)


def surprise(seen: Any, expected: Any, runs: int) -> float:
    """Return how far a count is from what is expected, in standard deviations of a binomial count."""
    return float(abs(seen - expected) * runs / math.sqrt(max(expected * (1 - expected) * runs, 1.0)))


@pytest.mark.parametrize("k", [1, 2])
def test_drawn_logits_decide_as_often_as_predicted(k: int) -> None:
    for unit, std in ((1.5, 3e-7), (1.5, 3e-8), (1.5, 2e-6)):
        logits = (unit + 2e-7 * RNG.standard_normal(6)).astype(np.float32)
        runs = 20_000
        found = fpsim.decision(logits, std=std, k=k, runs=runs)
        assert surprise(found.flip, found.predicted_flip, runs) < 4.5
        assert found.disagree <= found.predicted_disagree + 0.02
        if k == 1 or std < 1e-6:  # where two of two classes change, all sets count as different
            assert found.disagree == pytest.approx(found.predicted_disagree, abs=0.02)
        assert (found.flip > 0.01) or std < 1e-7


@pytest.mark.parametrize("form", [np.float16, np.float32, np.float64])
def test_thresholds_of_drawn_logits(form: Any) -> None:
    eps = 1e-9 if form is np.float64 else float(np.finfo(form).eps)
    logits = (1.5 + eps * np.arange(-3, 4)).astype(form)
    found = fpsim.decision(logits, std=1.3 * eps, threshold=1.5, runs=20_000)
    assert found.decided.tolist() == [False] * 3 + [True] * 4
    for seen, expected in zip(found.flip, found.predicted_flip, strict=True):
        assert surprise(seen, expected, 20_000) < 4.5
    assert found.disagree == pytest.approx(found.predicted_disagree, abs=0.02)
    assert 0.3 < float(found.flip[2]) < 0.5 or form is np.float64


@pytest.mark.parametrize("strategy", ["shuffle", "chunks(20, fold, combine=shuffle)"])
def test_flips_of_emulated_runs_are_as_many_as_predicted(strategy: str) -> None:
    noise = float(fpsim.decision(*near_ties(0)[:2], strategy=strategy, runs=30).noise.mean())
    runs = 300
    x, w, bias = near_ties(noise)
    seen, expected = [], []
    for _ in range(4):
        x, w, bias = near_ties(noise)
        found = fpsim.decision(x[0], w, bias, strategy=strategy, runs=runs)
        assert found.noise == pytest.approx(
            fpsim.spread("matmul", x[:1], w, strategy=strategy, runs=runs).std[0], rel=0.25
        )
        seen.append(float(found.flip))
        expected.append(float(found.predicted_flip))
    # the closed form knows the standard deviation to about 10 %, which moves a chance by 0.024 at most
    for one, other in zip(seen, expected, strict=True):
        assert abs(one - other) < 0.03 + 4 * math.sqrt(0.25 / runs)
    assert 0.05 < sum(seen) / len(seen) < 0.95


def law(means: Any, std: Any, grid: Any, bias: Any = 0.0, unit: Any = 0.0) -> LogitLaw:
    shape = np.shape(means)
    return LogitLaw(
        np.array(means, float), *(np.broadcast_to(np.array(v, float), shape) for v in (std, grid, bias, unit))
    )


def test_chances_are_sums_over_all_cases() -> None:
    one = law([0.3, 1.1, 0.7], [0.8, 0.6, 0.5], 1.0)
    masses = [dict(zip(*one.masses(i)[:2], strict=True)) for i in range(3)]
    for i, mean in enumerate((0.3, 1.1, 0.7)):
        assert sum(masses[i].values()) == pytest.approx(1)
        assert sum(v * p for v, p in masses[i].items()) == pytest.approx(mean)
        assert sum((v - mean) ** 2 * p for v, p in masses[i].items()) == pytest.approx(one.std[i] ** 2, rel=0.1)
    for k in (1, 2):
        expected: dict[Any, float] = {}
        for cases in itertools.product(*(m.items() for m in masses)):
            leading = frozenset(ranked(np.array([v for v, _ in cases]), k).tolist())
            expected[leading] = expected.get(leading, 0.0) + math.prod(p for _, p in cases)
        found = set_chances(one, [1] if k == 1 else [1, 2])
        assert found == pytest.approx({name: expected[name] for name in found})
        assert sum(found.values()) == pytest.approx(1)


def test_rounding_of_the_bias_is_in_the_law() -> None:
    # Values 0 and 1, each with probability 1/2; a bias of 64, and steps of 4: ties go to 64, others to 64 as well.
    one = law([0.5], [0.4], 1.0, 64.0, 4.0)
    assert one.below(0, np.array([64.0]), equal=True)[0] == pytest.approx(1)
    one = law([0.5], [0.4], 1.0, 65.0, 4.0)  # 65 goes to 64, and 66 is halfway and goes to 64, whose last bit is even
    assert one.below(0, np.array([64.0]), equal=True)[0] == pytest.approx(1)
    one = law([0.5], [0.4], 1.0, 66.0, 4.0)  # 66 to 64, 67 to 68
    assert one.below(0, np.array([64.0]), equal=True)[0] == pytest.approx(0.5)
    assert one.above(0, np.array([64.0]), equal=False)[0] == pytest.approx(0.5)


def test_rare_flips_are_not_rounded_away() -> None:
    found = fpsim.decision(np.array([8.0, 0.0]), std=math.sqrt(0.5), runs=10)
    assert float(found.predicted_flip) == pytest.approx(0.5 * math.erfc(8 / math.sqrt(2)), rel=0.05)
    assert float(found.flip) == 0.0


def test_ties_one_class_and_logits_that_no_order_changes() -> None:
    x, w, _ = near_ties(0)
    w[:, 3] = w[:, 1]
    bias = np.array([0, 50, 0, 50, 0], np.float32)
    found = fpsim.decision(x[0], w, bias, strategy="shuffle", runs=50)
    assert found.decided.tolist() == [1]
    assert (float(found.margin), float(found.flip), float(found.predicted_flip)) == (0.0, 0.0, 0.0)
    assert float(found.correlation) == pytest.approx(1)
    assert float(fpsim.decision(np.zeros(2, np.float32), std=0.0).predicted_flip) == 0.0
    whole = fpsim.decision(np.ones((2, 8)), np.ones((8, 3)), strategy="shuffle", runs=20)
    assert whole.decided.tolist() == [[0], [0]]
    assert not whole.flip.any()
    assert not whole.predicted_flip.any()
    only = fpsim.decision(x, w[:, :1], strategy="shuffle", runs=5)
    assert not only.flip.any()
    assert not only.predicted_disagree.any()
    assert np.isinf(only.margin).all()
    assert "argmax, shuffle: 24 decisions" in str(only)


def test_masked_logits_never_lead_and_nan_is_refused() -> None:
    found = fpsim.decision(np.array([-np.inf, 1.0, 1.0, np.inf], np.float32), std=1e-3, k=2, runs=100)
    assert found.decided.tolist() == [1, 3]
    assert 0.4 < float(found.flip) < 0.6
    assert float(found.predicted_flip) == pytest.approx(0.5, abs=0.02)
    with pytest.raises(InputError, match="a logit of row 1 is NaN"):
        fpsim.decision(np.array([[1.0, 2.0], [np.nan, 1.0]]), std=0.1)


def test_two_strategies_and_one_without_a_random_order() -> None:
    x = RNG.standard_normal((60, 300)).astype(np.float32)
    w = RNG.standard_normal((300, 2)).astype(np.float32)
    exact = x.astype(np.float64) @ w
    x[:, 0] -= (exact[:, 0] - exact[:, 1]) / (w[0, 0] - w[0, 1])  # near ties: margins of the size of the roundings
    both = fpsim.decision(x, w, strategy=("serial", "pairwise"), runs=1)
    a, b = fpsim.matmul(x, w, "serial"), fpsim.matmul(x, w, "pairwise")
    assert both.disagree.tolist() == (ranked(a, 1) != ranked(b, 1))[:, 0].astype(float).tolist()
    assert surprise(both.disagree.mean(), both.predicted_disagree.mean(), 60) < 4
    alone = fpsim.decision(x, w, strategy="serial", runs=1)
    assert not alone.disagree.any()
    assert not alone.predicted_disagree.any()
    assert 0 < alone.flip.sum() < 60
    assert "argmax, serial against pairwise" in str(both)


def test_log_probabilities_vary_as_drawn_ones_do() -> None:
    logits, std = np.array([2.0, 1.5, 0.0, -1.0]), np.array([0.02, 0.01, 0.03, 0.01])
    found = fpsim.decision(logits, std=std)
    drawn = logits + std * RNG.standard_normal((20_000, 4))
    logs = drawn - np.log(np.exp(drawn).sum(axis=1, keepdims=True))
    assert found.log_probability_noise == pytest.approx(logs.std(axis=0), rel=0.03)


def test_plain_data_and_wrong_use() -> None:
    x, w, bias = near_ties(1e-5)
    found = fpsim.decision(x[:2], w, bias, strategy="shuffle", k=2, runs=5)
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (plain["kind"], plain["runs"], len(plain["flip"])) == ("top 2", 5, 2)
    for arguments, named, match in (
        ((x, w), {}, "give strategy="),
        ((x, w), {"strategy": "shuffle", "k": 0}, "k must be"),
        ((x, w), {"strategy": "shuffle", "runs": 0}, "runs must be"),
        ((x, w), {"strategy": ("serial",) * 3}, "one strategy or two"),
        ((x, w), {"strategy": "shuffle", "k": 9}, "5 classes"),
        ((x, w), {"strategy": "shuffle", "k": 2, "threshold": 1.0}, "k= is for ranks"),
        ((x,), {"strategy": "shuffle"}, "hidden state, weights"),
        ((x, w[1:]), {"strategy": "shuffle"}, "must have shape"),
        ((x, w, bias[1:]), {"strategy": "shuffle"}, "bias must have shape"),
        ((bias,), {"std": -1.0}, "std must be finite"),
        ((bias, bias), {"std": 1.0}, "logits alone"),
        ((bias,), {"std": 1.0, "threshold": math.nan}, "not be NaN"),
    ):
        with pytest.raises(InputError, match=match):
            fpsim.decision(*arguments, **named)
