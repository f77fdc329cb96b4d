"""Invariance of real routines, and of ones that are made to depend on one thing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim.cli import main
from fpsim.errors import InputError
from fpsim.invariances import DIMENSIONS

RNG = np.random.default_rng(3)
A = RNG.standard_normal((16, 300)).astype(np.float32)
B = RNG.standard_normal((300, 8)).astype(np.float32)


def forwards(rows: np.ndarray) -> np.ndarray:
    return np.cumsum(rows, axis=1)[:, -1]


def backwards(rows: np.ndarray) -> np.ndarray:
    return forwards(rows[:, ::-1])


def sums(kind: str) -> Any:
    """Return sums of rows that take the terms backwards in one case."""

    def fn(x: np.ndarray) -> np.ndarray:
        if kind == "batch":
            return backwards(x) if len(x) == 2 else forwards(x)
        if kind == "row":
            return np.concatenate([backwards(x[:1]), forwards(x[1:])])
        if kind == "layout":
            return forwards(x) if x.flags.c_contiguous else backwards(x)
        if kind == "alignment":
            return forwards(x) if x.ctypes.data % 64 != 32 else backwards(x)
        return forwards(x) if len(x) <= 20 else backwards(x)

    return fn


CHANGED = {
    "batch": ["2 rows"],
    "row": ["rows moved by 1", "rows moved by 8", "rows moved by 15"],
    "layout": ["input 0 in Fortran order"],
    "alignment": ["input 0 starts 8 elements later"],
    "padding": ["8 more rows", "64 more rows"],
}


@pytest.mark.parametrize("dim", DIMENSIONS)
def test_what_a_routine_depends_on_is_named(dim: str) -> None:
    for kind in DIMENSIONS:
        found = fpsim.invariance(sums(kind), A, dim=dim)
        changed = [v.name for v in found.variants if v.changed]
        assert changed == (CHANGED[dim] if dim == kind else [])
        assert found.invariant == (dim != kind)
    found = fpsim.invariance(sums(dim), A, dim=dim)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["variants"][0]["outputs"] > 0
    assert f"other bits with {CHANGED[dim][0]}" in str(found)


def test_the_share_of_changed_bits() -> None:
    found = fpsim.invariance(sums("batch"), A, dim="batch")
    share = float((forwards(A[:2]) != backwards(A[:2])).mean())
    assert share > 0
    assert [v.changed for v in found.variants] == [0, share, 0, 0]


def test_einsum_without_blas_is_invariant_to_rows() -> None:
    def product(a: np.ndarray, b: np.ndarray) -> Any:
        return np.einsum("ij,jk->ik", a, b, optimize=False)

    for dim in ("batch", "row", "padding"):
        assert fpsim.invariance(product, A, B, dim=dim).invariant


def test_wrong_use() -> None:
    with pytest.raises(InputError, match="dim must be one of"):
        fpsim.invariance(forwards, A, dim="x")
    with pytest.raises(InputError, match="at least 2 rows"):
        fpsim.invariance(forwards, A[0])
    with pytest.raises(InputError, match="first axis has 16 rows"):
        fpsim.invariance(lambda x: x.sum(axis=0), A)
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match="two calls with the same arguments"):
        fpsim.invariance(lambda x: x[:, 0] + rng.random(16), A)


def test_the_command_tells_where_bits_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    source = (
        "import numpy as np\ndef rows(x):\n    return x.sum(axis=1)\ndef peeks(x):\n    return x.sum(axis=1) * len(x)\n"
    )
    (tmp_path / "layers_of_mine.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    common = ["--shape", "8x50", "--dim", "batch"]
    assert main(["invariance", "layers_of_mine.rows", *common]) == 0
    assert "batch: the same bits in all variants" in capsys.readouterr().out
    assert main(["invariance", "layers_of_mine.peeks", *common, "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["results"][0]["invariant"] is False
    assert main(["invariance", "numpy.matmul", "--shape", "8x16x8"]) in (0, 1)
    assert capsys.readouterr().out.count("\n\n") == 4  # a table for each of five dimensions
    assert main(["invariance", "numpy.matmul", "--shape", "8"]) == 2
    assert main(["invariance", "numpy.matmul", "--dim", "colour"]) == 2
