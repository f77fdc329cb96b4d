"""Invariance of real routines, and of ones that are made to depend on one thing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import threadpoolctl

import fpsim
from fpsim import invariances
from fpsim.cli import main
from fpsim.errors import InputError, MissingExtraError
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

    def fn(given: np.ndarray, axis: int = 1) -> np.ndarray:
        x = given if axis else given.T
        if kind == "batch":
            return backwards(x) if len(x) == 2 else forwards(x)
        if kind == "row":
            return np.concatenate([backwards(x[:1]), forwards(x[1:])])
        if kind == "layout":
            return forwards(x) if given.flags.c_contiguous else backwards(x)
        if kind == "alignment":
            return forwards(x) if given.ctypes.data % 64 != 32 else backwards(x)
        if kind == "threads":
            return backwards(x) if threadpoolctl.threadpool_info()[0]["num_threads"] == 3 else forwards(x)
        if kind == "axis":
            return forwards(x) if axis else backwards(x)
        return forwards(x) if len(x) <= 20 else backwards(x)

    return fn


CHANGED = {
    "batch": ["2 rows"],
    "row": ["rows moved by 1", "rows moved by 8", "rows moved by 15"],
    "layout": ["input 0 in Fortran order"],
    "alignment": ["input 0 starts 8 elements later"],
    "padding": ["8 more rows", "64 more rows"],
    "threads": ["3 threads"],
    "axis": ["terms along axis 0"],
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
    with pytest.raises(InputError, match="takes one input, not 2"):
        fpsim.invariance(np.matmul, A, B, dim="axis")
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match="two calls with the same arguments"):
        fpsim.invariance(lambda x: x[:, 0] + rng.random(16), A)


def test_sums_of_numpy_along_the_other_axis() -> None:
    found = fpsim.invariance(np.sum, A, dim="axis")
    columns, rows = np.sum(np.ascontiguousarray(A.T), axis=0), np.sum(A, axis=1)
    assert [v.changed for v in found.variants] == [float((columns != rows).mean())]
    assert not found.invariant
    cube = RNG.standard_normal((4, 3, 50)).astype(np.float32)
    names = [v.name for v in fpsim.invariance(np.sum, cube, dim="axis").variants]
    assert names == ["terms along axis 0", "terms along axis 1"]


def test_threads_need_something_that_sets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invariances, "find_spec", lambda _: None)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(MissingExtraError, match="install threadpoolctl"):
        fpsim.invariance(forwards, A, dim="threads")
    counts: list[int] = []
    torch = SimpleNamespace(get_num_threads=lambda: 5, set_num_threads=counts.append)
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert fpsim.invariance(forwards, A, dim="threads").invariant
    assert counts == [1, 5, 2, 5, 3, 5, 4, 5, 8, 5]


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
    assert capsys.readouterr().out.count("\n\n") == 5  # a table for each of six dimensions
    assert main(["invariance", "numpy.sum", "--shape", "8x300"]) == 1
    out = capsys.readouterr().out
    assert out.count("\n\n") == 6
    assert "axis: other bits with terms along axis 0" in out
    assert main(["invariance", "numpy.sum", "--shape", "8x300x2"]) == 2
    assert main(["invariance", "numpy.matmul", "--shape", "8"]) == 2
    assert main(["invariance", "numpy.matmul", "--dim", "colour"]) == 2
