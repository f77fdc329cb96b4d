"""``fpsim predict`` through its command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fpsim.cli import main
from fpsim.commands._progress import ProgressLine
from fpsim.prediction import predict

X = np.array([1.0, 2.0**-24, 2.0**-24, 3.0], np.float32)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "A.npy", rng.random((6, 30), np.float32))
    np.save(tmp_path / "B.npy", rng.random((30, 5), np.float32))
    np.savez(tmp_path / "both.npz", a=rng.random(9), b=rng.random(9).astype(np.float32))
    (tmp_path / "x.csv").write_text("1\n5.9604644775390625e-08\n5.9604644775390625e-08\n3\n")
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: Any) -> tuple[int, str, str]:
    code = main(["predict", *map(str, words)])
    out, err = capsys.readouterr()
    # A first run compiles, and what takes long reports its progress.
    return code, out, "".join(line for line in err.splitlines(keepends=True) if not line.startswith("predicting: "))


def answer(capsys: pytest.CaptureFixture[str], *words: Any) -> dict[str, Any]:
    code, out, err = run(capsys, *words, "--format", "json")
    assert (code, err) == (0, "")
    result: dict[str, Any] = json.loads(out, parse_constant=pytest.fail)
    return result


# --- what it does -----------------------------------------------------------------------------------------------------


def test_the_command_of_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    words = "sum --shape 2000 --data uniform(0,1) --strategy serial --strategy pairwise --strategy lanes:8 --fma both"
    code, out, err = run(capsys, *words.split(), "--repeats", 50)
    assert (code, err) == (0, "")
    strategies = ["serial", "pairwise", "lanes:8"]
    expected = predict("sum", "uniform(0,1)", shape=2000, repeats=50, strategies=strategies, fma="both")
    assert out == f"{expected}\n"
    table = out.split("\n\n")[1]
    assert [line.split()[0] for line in table.splitlines()] == ["strategy", "serial", "pairwise", "lanes(8)"]
    assert "FMA changes nothing" in out


def test_matmul_with_both_products(capsys: pytest.CaptureFixture[str]) -> None:
    d = answer(capsys, "matmul", "--shape", "8x20x6", "--data", "uniform:0:1", "--fma", "both", "--repeats", 3,
               "--strategy", "serial", "--strategy", "split_k:5")  # fmt: skip
    assert [s["strategy"] for s in d["strategies"]] == ["serial", "serial+fma", "split_k(5)", "split_k(5)+fma"]
    assert (d["shape"], d["repeats"], d["seed"]) == ([8, 20, 6], 3, 0)
    assert all(s["outputs"] == 3 * 48 and 0 < s["max_error_over_bound"] < 1 for s in d["strategies"])


def test_seed_dtype_and_two_laws(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "dot",
        "--shape",
        100,
        "--data",
        "normal",
        "--data",
        "lognormal:0:2",
        "--repeats",
        20,
        "--strategy",
        "serial",
    )
    one, two = answer(capsys, *words, "--seed", 5), answer(capsys, *words, "--seed", 6)
    assert one == answer(capsys, *words, "--seed", 5)
    assert one["strategies"] != two["strategies"]
    assert one["data"] == ["normal(0, 1)", "lognormal(0, 2)"]
    narrow = answer(capsys, *words, "--dtype", "bfloat16")
    assert narrow["dtype"] == "bfloat16"


def test_files(capsys: pytest.CaptureFixture[str], files: Path) -> None:
    d = answer(capsys, "matmul", "--inputs", files / "A.npy", files / "B.npy", "--strategy", "serial+fma")
    a, b = np.load(files / "A.npy"), np.load(files / "B.npy")
    expected = predict("matmul", a, b, strategies=["serial+fma"]).to_dict()
    assert d == json.loads(json.dumps(expected))
    assert (d["shape"], d["data"], d["seed"]) == ([6, 30, 5], ["array", "array"], None)
    d = answer(capsys, "dot", "--inputs", f"{files}/both.npz:a", f"{files}/both.npz:b", "--strategy", "serial")
    assert d["dtype"] == "float64"


def test_decimals_are_float32_unless_said_otherwise(capsys: pytest.CaptureFixture[str], files: Path) -> None:
    for name in ("x.npy", "x.csv"):
        d = answer(capsys, "sum", "--inputs", files / name, "--strategy", "serial", "--strategy", "reverse")
        assert d["dtype"] == "float32"
        assert d["strategies"][0]["result"] == {"value": 4.0, "hex": "0x40800000", "dtype": "float32"}
        assert d["exact"]["value"] == 4 + 2.0**-23
    d = answer(capsys, "sum", "--inputs", files / "x.csv", "--strategy", "serial+acc(float64)", "--dtype", "float64")
    assert d["dtype"] == "float64"
    assert d["strategies"][0]["error_ulps"]["max"] == 0
    d = answer(capsys, "sum", "--inputs", files / "x.npy", "--strategy", "serial", "--dtype", "float16")
    assert d["dtype"] == "float16"


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for word in ("examples:", "--shape", "--inputs A.npy B.npy", "lanes:8", "wide(low,high)"):
        assert word in out


def test_as_a_process() -> None:
    words = [sys.executable, "-m", "fpsim", "predict", "sum", "--shape", "many", "--data", "normal"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "fpsim predict: the shape of a sum is n or outputs x n, as in 1000000, not 'many'\n"


# --- bad input --------------------------------------------------------------------------------------------------------

LAW = ("--shape", "9", "--data", "normal")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("mux", *LAW), "unknown operation 'mux'; use one of sum, dot, matmul"),
        (("sum",), "say where the data come from"),
        (("sum", "--shape", "9"), "say where the data come from"),
        (("sum", "--data", "normal"), "data of a law need a shape"),
        (("sum", "--data", "narmal", "--shape", "9"), "unknown law 'narmal'"),
        (("sum", "--data", "normal:0:0", "--shape", "9"), "sd > 0"),
        (("sum", "--data", "normal", "--data", "normal", "--shape", "9"), "one law"),
        (("sum", "--data", "normal", "--shape", "0"), "at least 1"),
        (("sum", "--data", "normal", "--shape", "-5"), "expected one argument|not '-5'"),
        (("sum", "--data", "normal", "--shape", "1e6"), "not '1e6'"),
        (("matmul", "--data", "normal", "--shape", "4x4"), "m x k x n"),
        (("sum", "--data", "normal", "--shape", "99999999999999"), "more than 2"),
        (("sum", *LAW, "--seed", "x"), "--seed must be a whole number"),
        (("sum", *LAW, "--repeats", "0"), "--repeats must be a whole number of at least 1"),
        (("sum", *LAW, "--repeats", "1000000000"), "at most 1000000"),
        (("sum", *LAW, "--dtype", "int32"), "int32"),
        (("sum", *LAW, "--fma", "maybe"), "--fma is yes, no or both"),
        (("sum", *LAW, "--strategy", ""), "is not a strategy"),
        (("sum", *LAW, "--strategy", "permute([0, 1])"), "permute lists 2 places"),
        (("sum", "--inputs", "{}/no.npy"), "no.npy: there is no such file"),
        (("sum", "--inputs", "{}"), "told by its ending"),
        (("sum", "--inputs", "{}/x.npy", "--shape", "4"), "--shape is for data of a law"),
        (("sum", "--inputs", "{}/x.npy", "--data", "normal"), "--data is for data of a law"),
        (("sum", "--inputs", "{}/x.npy", "{}/x.npy"), "sum takes 1 file, not 2"),
        (("dot", "--inputs", "{}/x.npy"), "dot takes 2 files, not 1"),
        (("matmul", "--inputs", "{}/A.npy", "{}/A.npy"), "do not multiply|do not match"),
        (("dot", "--inputs", "{}/x.npy", "{}/both.npz"), "holds 2 arrays"),
        (("sum", "--inputs", "{}/pickle.npy"), "pickled Python objects, which are not read"),
        (("sum", "--inputs", "{}/text.csv"), "line 2: 'b' is not a number"),
        (("sum", "--inputs", "{}/empty.npy"), "holds no numbers"),
        (("sum", "--inputs", "{}/complex.npy"), "complex"),
        (("sum", "--inputs", "{}/large.csv", "--dtype", "float16"), "holds numbers that float16 does not hold"),
        (("sum", "--inputs", "{}/large.csv"), "holds numbers that float32 does not hold"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_code_2(
    capsys: pytest.CaptureFixture[str], files: Path, words: tuple[str, ...], message: str
) -> None:
    np.save(files / "pickle.npy", np.array([{}], object), allow_pickle=True)
    np.save(files / "empty.npy", np.zeros(0))
    np.save(files / "complex.npy", np.ones(2, np.complex64))
    (files / "text.csv").write_text("1\nb\n")
    (files / "large.csv").write_text("1e300\n")
    before = {file: file.read_bytes() for file in files.iterdir()}
    code, out, err = run(capsys, *(word.replace("{}", str(files)) for word in words))
    assert (code, out) == (2, "")
    lines = [line for line in err.splitlines() if not line.startswith(("usage:", " "))]
    assert len(lines) == 1
    assert lines[0].startswith("fpsim predict: ")
    assert any(part in lines[0] for part in message.split("|"))
    assert {file: file.read_bytes() for file in files.iterdir()} == before


def test_a_bad_strategy_is_shown_with_its_column(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "sum", *LAW, "--strategy", "serial+fmaa")
    assert (code, out) == (2, "")
    first, shown, caret = err.splitlines()
    assert first.startswith("fpsim predict: unknown setting 'fmaa'")
    assert shown[caret.index("^") :] == "fmaa"


@pytest.mark.parametrize("words", [(), ("sum", "--nonsense"), ("sum", *LAW, "--format", "yaml"), ("sum", "--shape")])
def test_usage_errors(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert "error:" in err.splitlines()[-1]


# --- progress ---------------------------------------------------------------------------------------------------------


class Stream:
    def __init__(self, terminal: bool) -> None:
        self.terminal = terminal
        self.text = ""

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_line(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    stream = Stream(terminal)
    progress = ProgressLine("predicting", stream)  # type: ignore[arg-type]
    for done in range(1, 101):
        now[0] += 0.3
        progress(done, 100)
    progress.clear()
    if terminal:
        assert stream.text.startswith("\rpredicting: 1 %, about 30 s left")
        assert "\n" not in stream.text
        assert stream.text.endswith(" \r")
    else:
        assert "\r" not in stream.text
        assert 2 <= stream.text.count("\n") <= 7
        assert stream.text.startswith("predicting: ")


def test_short_work_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 0.0)
    for terminal in (True, False):
        stream = Stream(terminal)
        progress = ProgressLine("predicting", stream)  # type: ignore[arg-type]
        progress(1, 2)
        progress(2, 2)
        progress.clear()
        assert stream.text == ""
