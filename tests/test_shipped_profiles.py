"""The shipped profiles against products recorded on the devices that they describe."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim import profiles
from fpsim.errors import UnknownOrderError

DATA = Path(__file__).parent / "data" / "h200_products.npz"
H200 = ("h200/cublas-13.1", "h200/cupy-14.2", "h200/jax-0.11", "h200/torch-2.11")


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    with np.load(DATA, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def cases() -> list[str]:
    with np.load(DATA, allow_pickle=False) as file:
        return [name.removesuffix("/A") for name in file.files if name.endswith("/A")]


@pytest.mark.parametrize("case", cases())
@pytest.mark.parametrize(
    ("library", "text"),
    [
        ("torch.f32", "profile:h200/cublas-13.1"),
        ("cupy.f32", "profile:h200/cupy-14.2"),
        ("numpy.f32", 'numpy_matmul(core=skylakex, threads=1, version="0.3.31")'),
    ],
)
def test_products_have_the_recorded_bits(case: str, library: str, text: str, recorded: dict[str, Any]) -> None:
    a, b, actual = (recorded[f"{case}/{leaf}"] for leaf in ("A", "B", library))
    assert np.array_equal(fpsim.matmul(a, b, text).view(np.uint32), actual.view(np.uint32))


def test_the_h200_profiles_are_shipped() -> None:
    assert set(H200) <= set(profiles.names())


@pytest.mark.parametrize("name", profiles.names())
def test_every_strategy_of_a_profile_is_defined_for_its_shape(name: str) -> None:
    profile = profiles.load(name)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", profile.recorded)
    rng = np.random.default_rng(0)
    for case in profile.cases:
        assert case.evidence["replays"] == 200
        if len(case.shape) == 1:
            x, y = rng.standard_normal((2, *case.shape)).astype(np.float32)
            given = fpsim.sum(x, f"profile:{name}") if case.op == "sum" else fpsim.dot(x, y, f"profile:{name}")
            assert np.isfinite(given)
        elif np.prod(case.shape) <= 10**5:
            left, right = (case.shape, case.shape[1:]) if case.op == "matvec" else (case.shape[:2], case.shape[1:])
            a, b = (rng.standard_normal(shape).astype(np.float32) for shape in (left, right))
            given = fpsim.matmul(a, b, f"profile:{name}")
            assert np.isfinite(given).all()
            assert given.shape == (left[:-1] + right[1:])


def test_a_shape_of_the_h200_that_is_not_on_record_names_the_nearest() -> None:
    a, b = np.ones((401, 400), np.float32), np.ones((400, 400), np.float32)
    with pytest.raises(UnknownOrderError, match=r"nearest known: 400x400x400 \(interleaved\(5, block=8\)\+fma\)"):
        fpsim.matmul(a, b, "profile:h200/cublas-13.1")
