"""The demo answers its two questions from the package's own data."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import fpsim
from fpsim.cli import main
from fpsim.demo import demo, recorded_product
from fpsim.errors import FpsimError

PRINTED = ("0x3D6533F0", "0x3D6533F6", "0x3D6533E0")
PAPER = ("0x3D653510", "0x3D653501", "0x3D653500")


def test_recorded_product_is_reproduced_bit_for_bit() -> None:
    a, b, gpu, origin = recorded_product()
    assert a.shape == b.shape == gpu.shape == (400, 400)
    assert a.dtype == b.dtype == gpu.dtype == np.float32
    assert hashlib.sha256(gpu.tobytes()).hexdigest() == origin["sha256"]["h200"]
    assert "H200" in origin["device"]
    np.testing.assert_array_equal(fpsim.matmul(a, b, "interleaved(5, block=8)+fma"), gpu)


def test_recorded_product_is_explained() -> None:
    a, b, gpu, _ = recorded_product()
    found = fpsim.explain({"mine": fpsim.matmul(a, b, "split_k(2)"), "h200": gpu}, op="matmul", inputs=(a, b))
    assert found.verdict == "expected rounding"
    assert [match.strategy for match in found.sides[1].matches] == ["interleaved(5, block=8)+fma"]
    assert [match.strategy for match in found.sides[0].matches] == ["split_k(2)"]
    assert found.closest == ("h200",)


def test_product_case() -> None:
    case = demo("product").cases[0]
    told = case.facts["strategies"]
    assert told["interleaved(5, block=8)+fma"]["equal"]["h200"] == 1.0
    assert max(entry["max_ulp"] for entry in told.values()) < 339
    sides = {side["name"]: side for side in case.facts["explanation"]["sides"]}
    assert sides["H200"]["matches"][0]["strategy"] == "interleaved(5, block=8)+fma"
    assert 0 < sides["NumPy here"]["bound_ratio"] < 1
    assert "interleaved(5, block=8)+fma" in str(case)


def test_white_paper_case() -> None:
    case = demo("white-paper").cases[0]
    for name, expected in (("printed", PRINTED), ("paper", PAPER)):
        assert tuple(method["bits"] for method in case.facts[name]["methods"].values()) == expected
    errors = [method["ulp_error"] for method in case.facts["paper"]["methods"].values()]
    assert errors == pytest.approx([14.663, -0.337, -1.337], abs=1e-3)
    assert case.facts["paper"]["exact"] == pytest.approx(0.05595875284357632, rel=1e-15)
    assert case.facts["printed"]["exact"] == pytest.approx(0.055957829502951029, rel=1e-15)
    for name in ("printed", "paper"):
        for k in "ab":
            shown = [f"{x:.7g}" for x in case.facts[name][k]]
            assert shown == [f"{x:.7g}" for x in case.facts["printed"][k]]


def test_command_prints_all_six_bit_patterns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--case", "white-paper"]) == 0
    printed = capsys.readouterr().out
    assert all(bits in printed for bits in (*PRINTED, *PAPER))
    assert "The paper's own inputs have more digits than it" in " ".join(printed.split())


def test_command_writes_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "fpsim.demo/1"
    assert [case["name"] for case in told["cases"]] == ["product", "white-paper"]


def test_unknown_case(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FpsimError, match="product, white-paper"):
        demo("cosine")
    assert main(["demo", "--case", "cosine"]) == 2
    assert "cosine" in capsys.readouterr().err


def test_written_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "example"
    names = ["A", "B", "numpy", "h200"]
    for _ in range(2):  # the same files again are no conflict
        assert main(["demo", "--write", str(folder)]) == 0
    arrays = [np.load(folder / f"{name}.npy") for name in names]
    assert np.array_equal(arrays[2], arrays[0] @ arrays[1])
    assert np.array_equal(fpsim.matmul(arrays[0], arrays[1], "interleaved(5, block=8)+fma"), arrays[3])
    (folder / "A.npy").unlink()
    (folder / "numpy.npy").write_bytes(b"mine")
    assert main(["demo", "--write", str(folder)]) == 2
    assert "numpy.npy exists and is left as it is" in capsys.readouterr().err
    assert not (folder / "A.npy").exists()
    assert (folder / "numpy.npy").read_bytes() == b"mine"
    assert main(["demo", "--write", str(folder / "B.npy")]) == 2
    assert "cannot be used as a folder" in capsys.readouterr().err
