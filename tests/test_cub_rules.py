"""The rules of CUB and CuPy, against what CuPy gave on a GPU, and CuPy where it is installed."""

from __future__ import annotations

import importlib.util

import library_results as results
import numpy as np
import pytest

import fpsim
from fpsim.devices import cupy as devices
from fpsim.errors import UnknownOrderError

HAS_CUPY = importlib.util.find_spec("cupy") is not None


@pytest.mark.parametrize("routine", results.routines("cupy/"))
def test_recorded_results(routine: str) -> None:
    assert results.replay(routine) == []


def test_sizes_of_segments() -> None:
    """A segment is the business of a thread, a warp or a block."""
    rng = np.random.default_rng(1)
    known = {
        15: "serial", 16: "pairwise", 17: "lanes(32, combine=pairwise)", 511: "lanes(32, combine=pairwise)",
        513: "cub_sum", 4096: "cub_sum", 9000: "cub_sum(blocks=1)",
    }  # fmt: skip
    for n, text in known.items():
        x = rng.standard_normal((3, n)).astype(np.float32)
        got = fpsim.sum(x, "cub_segmented_sum", axis=1)
        assert got.tolist() == [fpsim.sum(row, text) for row in x], n


def test_rows_that_begin_between_multiples_of_16_bytes() -> None:
    x = np.random.default_rng(2).standard_normal((5, 5001)).astype(np.float32)
    got = fpsim.sum(x, "cub_segmented_sum", axis=1)
    texts = ["cub_sum(blocks=1)", *["cub_sum(blocks=1, loads=single)"] * 3, "cub_sum(blocks=1)"]
    assert got.tolist() == [fpsim.sum(row, text) for row, text in zip(x, texts, strict=True)]


def test_cases_that_were_not_checked() -> None:
    x = np.ones((6, 8), np.float32)
    with pytest.raises(UnknownOrderError, match="side by side"):
        fpsim.sum(x, "cub_segmented_sum", axis=0)
    with pytest.raises(UnknownOrderError, match="more than two dimensions"):
        fpsim.sum(x.reshape(2, 3, 8), "cub_segmented_sum", axis=2)


def test_reasons_for_not_running(monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = "cupy-cuda13x (or cupy-cuda12x, as the driver needs)"
    results.check_reasons(monkeypatch, devices, "cupy", f"CuPy is not installed: python -m pip install {wheels}")


@pytest.mark.skipif(not HAS_CUPY, reason="CuPy is not installed")
def test_cupy_here() -> None:
    (one,) = devices.implementations()
    if one.available:
        results.check_live(one)
    else:
        assert "sees no CUDA device" in one.unavailable
