"""``fpsim reveal`` from the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import fpsim
from fpsim.cli import main
from fpsim.profiles import load


def test_a_library_function(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reveal", "numpy.sum", "--n", "300", "--replays", "20"]) == 0
    out = capsys.readouterr().out
    assert "sum of 300 float32: numpy_sum" in out
    assert "20 of 20 random replays have equal bits" in out


def test_several_sizes_as_json_and_a_file_that_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "revealed.json"
    command = ["reveal", "numpy.sum", "--n", "20", "--n", "30", "--replays", "5", "--save", str(path)]
    assert main([*command, "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [one["shape"] for one in printed["results"]] == [[20], [30]]
    profile = load(str(path))
    assert [case.shape for case in profile.cases] == [(20,), (30,)]
    assert profile.implementation == "numpy.sum"
    x = np.random.default_rng(0).standard_normal(20).astype(np.float32)
    assert fpsim.sum(x, f"profile:{path}") == np.sum(x)
    assert main(command) == 2
    assert "exists already" in capsys.readouterr().err


def test_nothing_established(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reveal", "math.fsum", "--op", "sum", "--n", "30"]) == 3
    assert "correctly rounded" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["numpy.sum"], "say for how many terms"),
        (["numpy.max", "--n", "5"], "say with --op"),
        (["numpy.summe", "--n", "5"], "numpy has no function summe"),
        (["no_such_module.f", "--n", "5"], "there is no function 'no_such_module.f'"),
        (["numpy.sum", "--n", "x"], "must be a whole number"),
        (["numpy.sum", "--n", "5", "--replays", "0"], "--replays must be"),
        (["numpy.sum", "--n", "5", "--device", "cuda"], "--device is for functions of torch"),
    ],
)
def test_usage(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reveal", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_function_of_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = "import numpy as np\ndef total(x):\n    return np.sum(x)\ndef fails(x):\n    raise RuntimeError('boom')\n"
    (tmp_path / "sums_of_mine.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [place for place in sys.path if place not in ("", str(tmp_path))])
    own = ["reveal", "sums_of_mine.total", "--op", "sum", "--n", "40", "--replays", "5", "--save", "own.json"]
    assert main(own) == 0
    assert "numpy_sum" in capsys.readouterr().out
    assert main(["profiles", "verify", "./own.json"]) == 0
    assert "1 of 1 cases hold" in capsys.readouterr().out
    assert main(["reveal", "sums_of_mine.fails", "--op", "sum", "--n", "40"]) == 2
    assert "the routine failed for float32 of shape (40,): RuntimeError: boom" in capsys.readouterr().err
