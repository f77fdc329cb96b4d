"""Models of arrival against recorded orders and runs of an H200."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fpsim
from fpsim.arrival_models import ArrivalModel, RecordedArrivals, SweepArrivals, arrival_law, h200_blocks
from fpsim.errors import InputError

BLOCK = "cuda_reduce(132, 256, warp=fold, second=shuffle+ftz)"
RECORDED = np.load(Path(__file__).parent / "data" / "h200_run_to_run.npz", allow_pickle=False)
LAWS = ("uniform(0,1)", "normal")


def observed(kind: str, law: str, n: int) -> np.ndarray:
    key = f"{kind}/{law}/{n}"
    return np.repeat(RECORDED[f"{key}/values"], RECORDED[f"{key}/counts"])


@pytest.mark.parametrize("law", LAWS)
def test_a_fitted_model_predicts_the_runs_of_a_million_terms(law: str) -> None:
    """The model knows the arrivals on the other data only."""
    ranks = h200_blocks(1_000_000)
    other = ranks[100:] if law == LAWS[0] else ranks[:100]
    x = fpsim.law(law).draw(1_000_000, rng=LAWS.index(law))
    runs = observed("block", law, 1_000_000)
    s = fpsim.spread("sum", x, strategy=BLOCK, runs=1000, arrivals=ArrivalModel.fit(other))
    assert s.predicted_std is None
    assert float(s.std) == pytest.approx(runs.astype(np.float64).std(), rel=0.15)
    assert int(s.distinct) == pytest.approx(np.unique(runs).size, rel=0.15, abs=1)
    assert s.test(runs).verdict == "reordering"
    random = fpsim.spread("sum", x, strategy=BLOCK, runs=2)
    assert random.predicted_std is not None
    assert float(random.predicted_std) > 1.3 * runs.astype(np.float64).std()  # uniformly random arrival is far off


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("kind", ["element", "block", "index_add_"])
def test_all_recorded_runs_are_possible(law: str, kind: str) -> None:
    x = fpsim.law(law).draw(100_000, rng=LAWS.index(law))
    s = fpsim.spread("sum", x, strategy=BLOCK if kind == "block" else "shuffle+ftz", runs=2)
    assert s.test(observed(kind, law, 100_000)).outside == 0


@pytest.mark.parametrize("law", LAWS)
def test_sweeps_of_warps_predict_atomic_additions_of_100_000_terms(law: str) -> None:
    x = fpsim.law(law).draw(100_000, rng=LAWS.index(law))
    s = fpsim.spread("sum", x, strategy="shuffle+ftz", runs=400, arrivals=SweepArrivals(1056, 0.5))
    assert float(s.std) == pytest.approx(observed("element", law, 100_000).astype(np.float64).std(), rel=0.15)


def test_recorded_orders_are_those_that_are_drawn() -> None:
    ranks = np.array([[2, 0, 1], [0, 1, 2]])
    x = np.array([1.0, 2.0**24, -(2.0**24)], np.float32)
    s = fpsim.spread("sum", x, strategy="shuffle", runs=60, arrivals=ranks)
    # In the first run the second term comes first, then the third, then the first.
    assert set(s.results.tolist()) == {1.0, float((x[0] + x[1]) + x[2])}
    drawn = {tuple(RecordedArrivals(ranks).places(3, np.random.default_rng(i)).tolist()) for i in range(20)}
    assert drawn == {(1, 2, 0), (0, 1, 2)}
    warps = RecordedArrivals(ranks[:1], split=2).places(6, np.random.default_rng(0))
    assert warps.tolist() == [2, 3, 4, 5, 0, 1]


def test_a_fit_finds_the_model_that_drew_the_orders() -> None:
    rng = np.random.default_rng(0)
    true = ArrivalModel(np.arange(60.0), np.where(np.arange(60) % 3, 3.0, -6.0), np.full(60, 2.0))
    orders = [true.places(60, rng) for _ in range(600)]
    found = ArrivalModel.fit(np.argsort(orders, axis=1))
    assert np.corrcoef(found.mean, true.mean)[0, 1] > 0.97
    assert abs(np.corrcoef(found.common, true.common)[0, 1]) > 0.97
    assert "60 terms" in str(found)
    json.dumps(found.to_dict(), allow_nan=False)


def test_sweeps_keep_warps_together_and_in_turn() -> None:
    places = SweepArrivals(4, 1.0, width=2).places(19, np.random.default_rng(1))
    assert sorted(places.tolist()) == list(range(19))
    assert set(places[:8].tolist()) == set(range(8))
    assert set(places[8:16].tolist()) == set(range(8, 16))


def test_wrong_use() -> None:
    x = np.ones(3, np.float32)
    with pytest.raises(InputError, match="run 1 of the recorded arrivals does not hold each place 0 to 2 once"):
        fpsim.spread("sum", x, strategy="shuffle", arrivals=[[0, 1, 2], [0, 0, 2]])
    with pytest.raises(InputError, match="of 2 terms, but 3 arrive"):
        fpsim.spread("sum", x, strategy="shuffle", arrivals=[[0, 1]])
    with pytest.raises(InputError, match="at least 3 recorded runs"):
        ArrivalModel.fit([[0, 1]])
    with pytest.raises(InputError, match="not for index_add"):
        fpsim.spread("index_add", x, [0, 0], x[:2], strategy="shuffle", arrivals=[[0, 1]])
    with pytest.raises(InputError, match="are on record for sums of"):
        h200_blocks(5)
    with pytest.raises(InputError, match="late above 0"):
        SweepArrivals(4, 0)


def test_texts_of_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ranks = h200_blocks(100_000)
    np.save("places.npy", ranks[:50])
    recorded = arrival_law("h200(100000, split=8, late=20)")
    assert isinstance(recorded, RecordedArrivals)
    assert (recorded.split, recorded.late) == (8, 20.0)
    assert np.array_equal(recorded.ranks, ranks)
    assert arrival_law("sweeps(1056, 2.5)") == SweepArrivals(1056, 2.5)
    from_file = arrival_law("places.npy")
    assert isinstance(from_file, RecordedArrivals)
    assert np.array_equal(from_file.ranks, ranks[:50])
    for text, own in (("fit(h200(100000))", ranks), ("fit(places.npy)", ranks[:50])):
        fitted = arrival_law(text)
        assert isinstance(fitted, ArrivalModel)
        assert np.array_equal(fitted.mean, ArrivalModel.fit(own).mean)
    x = np.random.default_rng(0).standard_normal(132 * 300).astype(np.float32)
    one, other = (
        fpsim.spread("sum", x, strategy="chunks(300, fold, combine=shuffle)", runs=20, arrivals=given).results
        for given in ("h200(100000)", ranks)
    )
    assert np.array_equal(one, other)
    for wrong in ("h100(100000)", "h200(many)", "h200(100000, early=1)", "sweeps(3)", "fit(sweeps(3, 1))", "h200(7)"):
        with pytest.raises(InputError, match=r"are none of h200\(TERMS\)|on record"):
            arrival_law(wrong)
