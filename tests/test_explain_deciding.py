"""The difference as a chain of single changes, and the input that tells apart what gives the same bits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fpsim
from fpsim.cli import main
from fpsim.errors import FileError
from fpsim.explaining.attribution import attribute, changes
from fpsim.explaining.deciding import DecidingInput

A = np.array([1.907607, -0.7862027, 1.147311, 0.9604002], np.float32)
B = np.array([-0.9355, -0.6915108, 1.72447, -0.7097529], np.float32)
SIDES = dict(zip(("cpu", "gpu"), np.array([0x3D6533F0, 0x3D6533F6], np.uint32).view(np.float32), strict=True))


def _product(first: str, second: str, n: int = 96) -> fpsim.Explanation:
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(12, n)).astype(np.float32), rng.normal(size=(n, 12)).astype(np.float32)
    sides = {"cpu": fpsim.matmul(a, b, first), "gpu": fpsim.matmul(a, b, second)}
    return fpsim.explain(sides, op="matmul", inputs=(a, b))


def test_each_change_has_its_share() -> None:
    (chain,) = _product("serial", "split_k(4)+fma+operands(tf32)").attribution
    assert chain.start == "serial"
    by_change = {step.change: step for step in chain.steps}
    assert set(by_change) >= {"order of additions", "operand precision"}
    assert sum(step.share for step in chain.steps) == pytest.approx(1.0)
    assert by_change["operand precision"].share > 0.99
    assert abs(by_change["order of additions"].share) < 0.01


def test_the_steps_are_what_their_strategies_give() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(12, 96)).astype(np.float32), rng.normal(size=(96, 12)).astype(np.float32)
    (chain,) = _product("lanes(8)", "split_k(4)+fma").attribution
    assert [step.change for step in chain.steps] == ["order of additions", "FMA"]
    results = [np.float64(fpsim.matmul(a, b, text)) for text in (chain.start, *(s.strategy for s in chain.steps))]
    whole = results[-1] - results[0]
    for step, before, after in zip(chain.steps, results, results[1:], strict=False):
        assert step.changed == np.sum(before != after)
        assert step.share == pytest.approx(np.sum((after - before) * whole) / np.sum(whole**2))


def test_a_single_change_is_the_whole_difference() -> None:
    (chain,) = _product("serial", "serial+fma").attribution
    assert [(s.change, s.share) for s in chain.steps] == [("FMA", 1.0)]
    assert "FMA 100 %" in str(chain)
    assert _product("serial", "serial+fma").ranked == ("FMA",)
    assert _product("serial", "split_k(4)+fma+operands(tf32)").ranked[0] == "reduced-precision operands"


def test_no_chain_where_a_side_is_not_reproduced() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(4, 32)).astype(np.float32), rng.normal(size=(32, 4)).astype(np.float32)
    found = fpsim.explain({"cpu": a @ b, "gpu": a @ b + np.float32(1)}, op="matmul", inputs=(a, b))
    assert found.attribution == ()


def test_changes_are_named() -> None:
    assert changes("serial", "serial+fma") == ["FMA"]
    assert changes("serial", "serial+separate") == []
    assert changes("lanes(4)", "serial+acc(float64)") == ["order of additions", "accumulator precision"]
    assert changes("what a rule in words says", "serial") == ["mechanism"]
    assert attribute(("a", "b"), ((), ()), np.zeros) is None


def test_the_deciding_input_separates_fma_from_order() -> None:
    found = fpsim.explain(SIDES, op="dot", inputs=(A, B))
    deciding = found.deciding_input
    assert deciding is not None
    outcomes = {one.candidate: one.values for one in deciding.outcomes}
    assert len(outcomes) == sum(len(s.matches) for s in found.sides if len(s.matches) > 1)
    for text in ("serial", "lanes(2)", "split(3)+fma"):
        operands = [deciding.inputs(run) for run, _ in deciding.places]
        given = tuple(float(fpsim.dot(one[0], one[1], text)) for one in operands)
        assert outcomes[text] == given
    assert len({outcomes[text] for text in ("serial", "lanes(2)", "split(3)+fma")}) == 3
    told = {name for group in deciding.undecided for name in group}
    assert not told & {"serial", "split(3)+fma"}
    assert str(deciding) in str(found)


def test_the_recipe_makes_the_inputs() -> None:
    deciding = DecidingInput("sum", "uniform [0,1)", (5,), ((2, 3),), "float32", ((0, 0),), ())
    assert "default_rng(5); g.random((2, 3)), each .astype('float32')" in deciding.recipe
    assert np.array_equal(deciding.inputs()[0], np.random.default_rng(5).random((2, 3)).astype(np.float32))


def test_nothing_to_decide() -> None:
    assert _product("lanes(8)", "split_k(4)+fma").deciding_input is None


def test_mechanisms_in_words_are_told_apart_too() -> None:
    x = np.array([2281.5, 2281.25], np.float32)
    deciding = fpsim.explain({"along a dimension": "0.0", "of all": "0.03125"}, op="var", inputs=x).deciding_input
    assert deciding is not None
    outcomes = {one.candidate: one.values for one in deciding.outcomes}
    assert outcomes["serial (order of additions)"] != outcomes["serial+fma (FMA)"]
    one_pass = outcomes["mean of x**2 - (mean of x)**2, serial (one-pass variance)"]
    assert len({one_pass, outcomes["serial (order of additions)"], (0.0,) * len(one_pass)}) == 3


def test_the_command_saves_it_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for name, values in (("cpu", SIDES["cpu"]), ("gpu", SIDES["gpu"]), ("a", A), ("b", B)):
        paths.append(str(tmp_path / f"{name}.npy"))
        np.save(paths[-1], values)
    target = tmp_path / "decide.npz"
    arguments = ["explain", *paths[:2], "--op", "dot", "--inputs", *paths[2:], "--format", "json"]
    assert main([*arguments, "--save-deciding", str(target)]) == 0
    told = json.loads(capsys.readouterr().out)
    with np.load(target, allow_pickle=False) as saved:
        seed = told["deciding_input"]["seeds"][0]
        generator = np.random.default_rng(seed)
        assert np.array_equal(saved["a"], generator.standard_normal(4).astype(np.float32))
        assert np.array_equal(saved["b"], generator.standard_normal(4).astype(np.float32))
    assert [step["change"] for step in told["attribution"][0]["steps"]] == ["FMA"]
    before = target.read_bytes()
    assert main([*arguments, "--save-deciding", str(target)]) == 2
    assert target.read_bytes() == before


def test_saving_refuses_to_overwrite(tmp_path: Path) -> None:
    deciding = DecidingInput("sum", "standard normal", (1,), ((4,),), "float32", ((0, 0),), ())
    deciding.save(tmp_path / "x.npz")
    with pytest.raises(FileError, match="already"):
        deciding.save(tmp_path / "x.npz")
