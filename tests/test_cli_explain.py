"""The command ``fpsim explain`` on real files: output, exit codes, and one line for every unusable input."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import fpsim
from fpsim.cli import main

RNG = np.random.default_rng(7)
A = RNG.random((9, 30), dtype=np.float32)
B = RNG.random((30, 7), dtype=np.float32)
CPU = np.asarray(fpsim.matmul(A, B, "serial"))
GPU = np.asarray(fpsim.matmul(A, B, "interleaved(3, block=2)+fma"))


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, array in {"A": A, "B": B, "cpu": CPU, "gpu": GPU, "bad": fpsim.matmul(A[:, 1:], B[1:], "serial")}.items():
        np.save(f"{name}.npy", array)
    np.save("x.npy", A)
    np.save("rows.npy", A.sum(axis=1))
    np.save("columns.npy", A.sum(axis=0))
    np.save("empty.npy", A[:0])
    np.save("words.npy", np.array(["a"]))
    np.savez("both.npz", cpu=CPU, gpu=GPU)
    np.savetxt("gpu.csv", GPU, delimiter=",", fmt="%.9g")
    np.savetxt("A.csv", A, delimiter=",", fmt="%.9g")
    np.savetxt("B.csv", B, delimiter=",", fmt="%.9g")
    (tmp_path / "pickled.npy").write_bytes(pickle.dumps({"a": 1}))
    np.save("objects.npy", np.array([{}, {}]), allow_pickle=True)
    (tmp_path / "note.txt.bin").write_text("x")
    return tmp_path


PRODUCT = ["--op", "matmul", "--inputs", "A.npy", "B.npy"]


def test_two_results_of_a_product(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(path.name for path in files.iterdir())
    assert main(["explain", "cpu.npy", "gpu.npy", *PRODUCT]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("EXPECTED ROUNDING")
    assert "cpu = serial" in out
    assert "interleaved(3, block=2)+fma" in out
    assert err == ""
    assert sorted(path.name for path in files.iterdir()) == before


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["cpu.npy", "gpu.npy", *PRODUCT], 0),
        (["both.npz:cpu", "both.npz:gpu", *PRODUCT], 0),
        (["cpu.npy", "gpu.csv", *PRODUCT], 0),
        (["cpu.npy", "gpu.csv", "--op", "matmul", "--inputs", "A.csv", "B.csv"], 0),
        (["cpu.npy", "bad.npy", *PRODUCT], 1),
        (["cpu.npy", "gpu.npy"], 3),
        (["cpu.npy", "cpu.npy", *PRODUCT], 2),
        (["rows.npy", "rows.npy", "--op", "sum", "--inputs", "x.npy", "--axis", "1", "--names", "p", "q"], 0),
        (["rows.npy", "--op", "sum", "--inputs", "x.npy", "--axis", "1"], 0),
        (["columns.npy", "--op", "sum", "--inputs", "x.npy", "--axis", "0"], 0),
    ],
)
def test_exit_codes(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *arguments]) == code
    assert (capsys.readouterr().out != "") == (code != 2)


@pytest.mark.usefixtures("files")
def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "cpu.npy", "gpu.npy", *PRODUCT, "--format", "json", "--strategy", "shuffle:3"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "fpsim.explanation/2"
    assert (told["verdict"], told["exit_code"]) == ("expected rounding", 0)
    assert [side["name"] for side in told["sides"]] == ["cpu", "gpu"]


@pytest.mark.usefixtures("files")
def test_text_numbers_take_the_type_of_the_other_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "cpu.npy", "gpu.csv", *PRODUCT]) == 0
    assert "read as float32" in capsys.readouterr().err
    assert main(["explain", "gpu.csv", "--op", "matmul", "--inputs", "A.csv", "B.csv"]) == 0
    out, err = capsys.readouterr()
    assert "read as float32" in err
    assert "interleaved(3, block=2)+fma" in out


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["cpu.npy", "missing.npy"], "missing.npy: there is no such file"),
        (["cpu.npy", "pickled.npy"], "pickled.npy: not a .npy file"),
        (["cpu.npy", "objects.npy"], "objects.npy: holds pickled Python objects"),
        (["cpu.npy", "note.txt.bin"], "note.txt.bin"),
        (["cpu.npy", "empty.npy"], "empty.npy"),
        (["cpu.npy", "words.npy"], "words.npy"),
        (["cpu.npy", "both.npz"], "holds 2 arrays"),
        (["cpu.npy", "A.npy"], "one shape"),
        (["cpu.npy"], "only with op and inputs"),
        (["cpu.npy", "gpu.npy", "--op", "matmul"], "--op and --inputs go together"),
        (["cpu.npy", "gpu.npy", "--inputs", "A.npy", "B.npy"], "--op and --inputs go together"),
        (["cpu.npy", "gpu.npy", "--axis", "0"], "--axis needs"),
        (["cpu.npy", "gpu.npy", "--op", "matmul", "--inputs", "A.npy"], "2 inputs, not 1"),
        (["cpu.npy", "gpu.npy", "--op", "matmul", "--inputs", "B.npy", "A.npy"], "7 terms against 9"),
        (["A.npy", "gpu.npy", *PRODUCT], "A has shape (9, 30)"),
        (["rows.npy", "rows.npy", "--op", "sum", "--inputs", "x.npy", "--names", "a"], "--names needs 2"),
        (["rows.npy", "--op", "sum", "--inputs", "x.npy", "--axis", "5"], "axis 5"),
        (["cpu.npy", "gpu.npy", *PRODUCT, "--strategy", "sideways"], "unknown order 'sideways'"),
        (["cpu.npy", "gpu.npy", "--op", "nothing", "--inputs", "A.npy", "B.npy"], "nothing"),
        (["rows.npy", "--op", "sum", "--inputs", "x.npy", "--axis", "one"], "axis"),
    ],
)
def test_unusable_input_gives_one_message(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert "Traceback" not in err
    assert err.count("fpsim explain:") == 1


def test_case_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = tmp_path / "case.json"
    case.write_text(
        '{"operation": "division", "dtype": "float32", "inputs": {"a": [3163.328613], "b": [3163.328613]},'
        ' "observed": [{"side": "GPU", "value": 0.999999940395355}, {"side": "CPU", "value": 1.0}]}'
    )
    assert main(["explain", str(case), "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["explainable"], told["ranked"][0]) == (True, "approximate division")
    case.write_text("[1]")
    assert main(["explain", str(case)]) == 2
    assert "a case is an object" in capsys.readouterr().err


def test_safetensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for name, values in {"A": A, "B": B, "cpu": CPU}.items():
        head = json.dumps({"t": {"dtype": "F32", "shape": values.shape, "data_offsets": [0, values.nbytes]}}).encode()
        Path(f"{name}.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + values.tobytes())
    arguments = ["explain", "cpu.safetensors", "--op", "matmul", "--inputs", "A.safetensors", "B.safetensors:t"]
    assert main(arguments) == 0
    assert "serial" in capsys.readouterr().out
    Path("A.safetensors").write_bytes(b"no")
    assert main(arguments) == 2
    assert "not a safetensors file" in capsys.readouterr().err
