"""Orders of shapes that a profile does not hold: observed by probes, or predicted, with the accuracy stated."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fpsim
from fpsim import profiles
from fpsim.cli import main
from fpsim.errors import InputError, StrategyError, UnknownOrderError
from fpsim.profiles.candidates import PredictedOrderWarning
from fpsim.profiles.order_rule import carried, rule_of

NAME = "h200/cublas-13.1"
PREDICTED = f'profile("{NAME}", accept=predicted)'
OBSERVED = f'profile("{NAME}", accept=observed)'
PROFILE = profiles.load(NAME)


def tree(text: str, k: int) -> str:
    return str(fpsim.strategy(text).program(k))


def same(text: str, other: str, k: int) -> bool:
    a, b = np.random.default_rng(k).standard_normal((2, 40, k)).astype(np.float32)
    return np.array_equal(fpsim.matmul(a, b.T, text), fpsim.matmul(a, b.T, other))


def operands(m: int, k: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(m * k + n)
    return rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)


def test_what_the_probes_saw_agrees_with_every_replayed_product() -> None:
    rule = rule_of(NAME)
    assert rule is not None
    both = [case for case in PROFILE.cases if case.op == "matmul" and rule.observed(case.shape) is not None]  # type: ignore[arg-type]
    assert len(both) == 30
    for case in both:
        assert same(str(rule.observed(case.shape)), case.strategies[0], case.shape[1]), case.shape  # type: ignore[arg-type]


def test_replayed_products_that_were_not_probed_are_predicted_as_often_as_it_says() -> None:
    """These 25 shapes are no part of the rule: 14 at inner dimensions that it knows, 11 at others."""
    rule = rule_of(NAME)
    assert rule is not None
    right: dict[bool, list[int]] = {True: [], False: []}
    low, high = rule.shapes.min(axis=0), rule.shapes.max(axis=0)
    for case in PROFILE.cases:
        if case.op != "matmul" or rule.observed(case.shape) is not None:  # type: ignore[arg-type]
            continue
        if (low > case.shape).any() or (case.shape > high).any():
            continue
        m, k, n = case.shape
        trees = [tree(text, k) for text, _, _ in rule.votes((m, k, n))]
        right[rule.knows(k)].append(
            trees.index(tree(case.strategies[0], k)) if tree(case.strategies[0], k) in trees else 99
        )
    known, new = right[True], right[False]
    assert (len(known), sum(place == 0 for place in known), sum(place < 5 for place in known)) == (14, 12, 14)
    assert (len(new), sum(place == 0 for place in new), sum(place < 5 for place in new)) == (11, 5, 8)


def test_by_default_only_what_was_replayed_answers_and_the_error_says_how_to_ask() -> None:
    a, b = operands(300, 400, 70)
    with pytest.raises(UnknownOrderError, match=r"nearest known: 400x400x64.*accept=predicted"):
        fpsim.matmul(a, b, f"profile:{NAME}")
    with pytest.raises(UnknownOrderError, match="nearest known"):
        fpsim.matmul(a, b, OBSERVED)


def test_a_predicted_result_states_the_order_and_its_accuracy() -> None:
    a, b = operands(300, 400, 70)
    found = PROFILE.candidates("matmul", (300, 400, 70))
    assert found.evidence == "predicted"
    assert found.first is not None
    with pytest.warns(PredictedOrderWarning, match=rf"300x400x70 as .*right for {found.first:.1%}, and one of the"):
        given = fpsim.matmul(a, b, PREDICTED)
    assert np.array_equal(given, fpsim.matmul(a, b, found.best.strategy))
    assert f"{found.first:.1%}" in str(found)
    assert sum(one.votes for one in found.candidates) == pytest.approx(1.0)
    assert [one.votes for one in found.candidates] == sorted((one.votes for one in found.candidates), reverse=True)
    assert json.loads(json.dumps(found.to_dict()))["candidates"][0]["basis"]


def test_an_observed_order_needs_no_prediction_and_says_that_it_was_not_replayed() -> None:
    a, b = operands(128, 400, 128)
    found = PROFILE.candidates("matmul", (128, 400, 128))
    assert (found.evidence, found.best.strategy) == ("observed", "interleaved(6, block=8)+fma")
    assert "not replayed" in str(found)
    for text in (OBSERVED, PREDICTED):
        assert np.array_equal(fpsim.matmul(a, b, text), fpsim.matmul(a, b, found.best.strategy))
    with pytest.raises(UnknownOrderError, match="nearest known"):
        fpsim.matmul(a, b, f"profile:{NAME}")


def test_what_was_replayed_comes_first() -> None:
    a, b = operands(100, 100, 100)
    for text in (OBSERVED, PREDICTED):
        assert np.array_equal(fpsim.matmul(a, b, text), fpsim.matmul(a, b, f"profile:{NAME}"))
    assert PROFILE.candidates("matmul", (100, 100, 100)).evidence == "replayed"


def test_what_cannot_be_predicted_is_refused() -> None:
    with pytest.raises(UnknownOrderError, match="between the shapes 1x8x1 and 2048x2048x2048"):
        PROFILE.candidates("matmul", (300, 4000, 300))
    with pytest.raises(UnknownOrderError, match="has no name yet"):
        PROFILE.candidates("matmul", (1, 128, 400))
    with pytest.raises(UnknownOrderError, match="has no name yet"):
        fpsim.matmul(*operands(1, 128, 300), PREDICTED)
    with pytest.raises(UnknownOrderError, match="nearest known"):
        PROFILE.candidates("dot", (77,))
    with pytest.raises(UnknownOrderError, match="no matmul with left=F"):
        fpsim.matmul(np.asfortranarray(operands(300, 400, 70)[0]), operands(300, 400, 70)[1], PREDICTED)
    with pytest.raises(UnknownOrderError, match="nearest known"):
        profiles.load("h200/cupy-14.2").candidates("matmul", (300, 400, 70))
    with pytest.raises(StrategyError, match="accept=anything is not one of replayed, observed, predicted"):
        fpsim.strategy(f'profile("{NAME}", accept=anything)')


def test_the_text_of_a_strategy_that_accepts_more_reads_back() -> None:
    for text in (PREDICTED, OBSERVED, f'profile("{NAME}", mode=tf32, accept=predicted)'):
        assert str(fpsim.strategy(text)) == text
        assert fpsim.strategy(str(fpsim.strategy(text))) == fpsim.strategy(text)


def test_possible_results_are_those_of_all_candidates() -> None:
    a, b = operands(20, 400, 70)
    found = PROFILE.possible("matmul", a, b)
    each = {one.strategy: fpsim.matmul(a, b, one.strategy) for one in found.candidates.candidates if one.strategy}
    assert found.distinct == len({given.tobytes() for given in each.values()}) > 1
    assert sum(map(len, found.orders)) == len(each)
    stack = np.stack(list(each.values()))
    assert np.array_equal(found.low, stack.min(axis=0))
    assert np.array_equal(found.high, stack.max(axis=0))
    assert np.array_equal(found.spread, stack.max(axis=0).astype(float) - stack.min(axis=0))
    assert np.array_equal(found.values(3, 5), np.unique(stack[:, 3, 5]))
    for texts, result in zip(found.orders, found.results, strict=True):
        for text in texts:
            assert np.array_equal(each[text], result)
    assert f"{found.distinct} distinct results" in str(found)
    assert "right for" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["distinct"] == found.distinct


def test_the_result_of_a_known_shape_is_one() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, 100)).astype(np.float32)
    found = PROFILE.possible("dot", x, y)
    assert found.distinct == 1
    assert found.results[0] == fpsim.dot(x, y, f"profile:{NAME}")
    assert found.spread == 0.0
    with pytest.raises(InputError, match="1-dimensional and 1-dimensional"):
        PROFILE.possible("dot", x, x[None])
    with pytest.raises(InputError, match="not for 'softmax'"):
        PROFILE.possible("softmax", x)
    with pytest.raises(InputError, match="contiguous"):
        PROFILE.possible("matmul", np.ones((4, 8), np.float32)[:, ::2], np.ones((4, 3), np.float32))


@pytest.mark.parametrize(
    ("text", "k", "other", "first"),
    [
        ("chunks(64)+fma", 512, 1024, "chunks(64)+fma"),
        ("chunks(64)+fma", 1024, 1000, "chunks(64)+fma"),
        ("chunks(100)+fma", 400, 1000, "chunks(252)+fma"),
        ("chunks(32)+fma", 64, 32, "serial+fma"),
        ("interleaved(5, block=8)+fma", 400, 500, "interleaved(5, block=8)+fma"),
        ("interleaved(32, block=13, combine=fold)+fma", 400, 500, "interleaved(32, block=16, combine=fold)+fma"),
        ("chunks(500, chunks(256))+fma", 1000, 1024, "chunks(512, chunks(256))+fma"),
        ("serial+fma", 8, 2048, "serial+fma"),
    ],
)
def test_an_order_is_carried_over_to_another_inner_dimension(text: str, k: int, other: int, first: str) -> None:
    assert carried(text, k, other)[0][0] == first


def test_the_shipped_rules_are_consistent() -> None:
    for name in (NAME, f"{NAME}-tf32", f"{NAME}-bf16-f32"):
        rule = rule_of(name)
        assert rule is not None
        assert rule.facts["evidence"] == "first-leaf probes of output column 0, not replayed"
        assert len({tuple(shape) for shape in rule.shapes.tolist()}) == len(rule.shapes) == len(rule.order)
        for text in filter(None, rule.orders):
            assert str(fpsim.strategy(text)) == text
    assert rule_of("zen4/numpy-2.4") is None


def test_the_command_shows_candidates(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles", "show", NAME, "--shape", "300x400x700"]) == 0
    assert "the first candidate was right for" in capsys.readouterr().out
    assert main(["profiles", "show", NAME]) == 0
    assert "within five candidates" in capsys.readouterr().out
    assert main(["profiles", "show", NAME, "--shape", "300x400x700", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["evidence"] == "predicted"
    assert main(["profiles", "show", NAME, "--shape", "300x400"]) == 2
    assert main(["profiles", "verify", NAME, "--shape", "300x400x700"]) == 2
