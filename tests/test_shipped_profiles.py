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
REDUCED = Path(__file__).parent / "data" / "h200_tensor_cores.npz"
#: Profiles of products of reduced precision, by what the recorded results are called.
KINDS = {
    "tf32": "tf32", "bf16": "bf16", "bf16_f32": "bf16-f32", "f16": "f16", "f16_f32": "f16-f32", "e4m3": "e4m3",
    "e4m3_fast": "e4m3-fast", "e5m2_e4m3": "e5m2-e4m3", "e5m2_e4m3_fast": "e5m2-e4m3-fast",
}  # fmt: skip
H200 = (
    "h200/cublas-13.1", "h200/cupy-14.2", "h200/jax-0.11", "h200/jax-0.11-tf32", "h200/jax-0.11-tf32-away",
    "h200/torch-2.11", "h200/cublas-13.1-e4m3-bf16", *(f"h200/cublas-13.1-{kind}" for kind in KINDS.values()),
)  # fmt: skip


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


def reduced() -> list[str]:
    with np.load(REDUCED, allow_pickle=False) as file:
        return [name for name in file.files if name.rpartition("/")[2] in KINDS and re.match(r"\d+x\d+x\d+/", name)]


@pytest.mark.parametrize("name", reduced())
def test_products_of_reduced_precision_have_the_recorded_bits(name: str) -> None:
    """Some rows and columns of recorded products, by the strategy that the profile has for the whole shape."""
    shape = tuple(map(int, name.partition("/")[0].split("x")))
    case_name, _, kind = name.rpartition("/")
    profile = profiles.load(f"h200/cublas-13.1-{KINDS[kind]}")
    known = {case.shape for case in profile.cases}
    if shape not in known:  # a product with a vector, which is not multiplied in TF32
        assert kind == "tf32"
        assert 1 in shape
        return
    with np.load(REDUCED, allow_pickle=False) as file:
        a, b, actual = (file[f"{case_name}/{leaf}"] for leaf in ("a", "b", kind))
    ((text, _, _),) = profile.case("matmul", shape, profile.key).parts
    got = np.asarray(fpsim.matmul(a, b, text + profile.settings), np.float32)
    assert ((got == actual) | (np.isnan(got) & np.isnan(actual))).all()


def test_a_profile_of_reduced_precision_multiplies_by_name() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 400, 400)).astype(np.float32)
    tf32 = fpsim.matmul(a, b, "profile:h200/cublas-13.1-tf32")
    assert np.array_equal(tf32, fpsim.matmul(a, b, "fused(8)+align(25)+operands(tf32)"))
    left, right = fpsim.round_to(a, "bfloat16"), fpsim.round_to(b, "bfloat16")
    bf16 = fpsim.matmul(left, right, "profile:h200/cublas-13.1-bf16+operands(bfloat16)")
    assert np.array_equal(bf16, fpsim.round_to(bf16, "bfloat16"))


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
            b = np.asfortranarray(b) if profile.key.right == "F" else b
            given = fpsim.matmul(a, b, f"profile:{name}{profile.settings}")
            assert np.isfinite(given).all()
            assert given.shape == (left[:-1] + right[1:])


def test_a_shape_of_the_h200_that_is_not_on_record_names_the_nearest() -> None:
    a, b = np.ones((401, 400), np.float32), np.ones((400, 400), np.float32)
    with pytest.raises(UnknownOrderError, match=r"nearest known: 400x400x400 \(interleaved\(5, block=8\)\+fma\)"):
        fpsim.matmul(a, b, "profile:h200/cublas-13.1")
