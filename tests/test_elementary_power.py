from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from fpsim.devices.elementwise import correctly_rounded, ulp_errors
from fpsim.elementary import evaluate

Array = NDArray[Any]
NUMBERS = st.floats(width=32)

with np.load(Path(__file__).parent / "data" / "h200_pow.npz", allow_pickle=False) as _data:
    RECORDED = {name: _data[name].view(np.float32) for name in _data.files if name != "versions"}


def different(a: Array, b: Array) -> Array:
    return np.asarray((a.view(np.uint32) != b.view(np.uint32)) & ~(np.isnan(a) & np.isnan(b)))


@pytest.mark.parametrize("call", ["hard/torch.cuda", "bits/torch.cuda", "bits/cupy"])
def test_recorded_powers(call: str) -> None:
    inputs, implementation = call.split("/")
    x, y = (RECORDED[f"{inputs}/{label}"] for label in "xy")
    wrong = different(evaluate("pow", x, y, implementation=implementation), RECORDED[call])
    assert not wrong.any(), (x[wrong][:3], y[wrong][:3])


def test_recorded_powers_are_not_correctly_rounded() -> None:
    x, y, z = (RECORDED[f"hard/{label}"] for label in ("x", "y", "torch.cuda"))
    errors = ulp_errors("pow", x, y, observed=z)
    assert 0.05 < (errors > 0.5).mean() < 0.5
    assert errors.max() < 4  # what NVIDIA documents


@settings(deadline=None, max_examples=300)
@given(NUMBERS, NUMBERS)
def test_special_cases_are_those_of_ieee_754(x: float, y: float) -> None:
    a, b = (np.array([v], np.float32) for v in (x, y))
    z, exact = evaluate("pow", a, b), correctly_rounded("pow", a, b)
    if not np.isfinite(exact) or exact == 0 or abs(x) in (0, 1, np.inf):
        assert not different(z, exact).any()
    elif abs(exact) >= np.float32(2.0**-126):
        assert ulp_errors("pow", a, b, observed=z) < 4


@pytest.mark.parametrize(
    ("x", "y", "z"), [(2e-40, 0.5, 0.0), (2e-40, -0.5, np.inf), (-2.0, 1e-40, 1.0), (2.0, -127.0, 0.0)]
)
def test_cupy_takes_subnormal_numbers_for_zero(x: float, y: float, z: float) -> None:
    operands = [np.array([v], np.float32) for v in (x, y)]
    assert evaluate("pow", *operands, implementation="cupy") == np.float32(z)
    assert different(evaluate("pow", *operands), np.array([z], np.float32)).all()
