"""Block-scaled formats: against gfloat, ml_dtypes and recorded numbers of torchao, and through products."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fpsim
from fpsim._arrays import _code_values, as_floats
from fpsim.errors import InputError
from fpsim.microscaling import KINDS, quantize

RECORDED = np.load(Path(__file__).parent / "data" / "matrix_units.npz")
MX = [kind for kind in KINDS if kind != "nvfp4"]
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
ML_DTYPES = {
    "mxfp8_e4m3": "float8_e4m3fn", "mxfp8_e5m2": "float8_e5m2", "mxfp6_e2m3": "float6_e2m3fn",
    "mxfp6_e3m2": "float6_e3m2fn", "mxfp4": "float4_e2m1fn",
}  # fmt: skip


def data(law: str, shape: tuple[int, ...]) -> NDArray[Any]:
    rng = np.random.default_rng(7)
    x = rng.standard_normal(shape)
    if law == "wide":
        x = np.ldexp(x, rng.integers(-140, 120, shape))
    elif law == "ties":
        x = rng.integers(-64, 65, shape) / 8
    elif law == "zeros":
        x = x * (rng.random((*shape[:-1], 1)) > 0.5)
    return x


@pytest.mark.parametrize("law", ["normal", "wide", "ties", "zeros"])
@pytest.mark.parametrize("kind", MX)
def test_against_gfloat(kind: str, law: str) -> None:
    gfloat = pytest.importorskip("gfloat", reason="gfloat is not installed")
    from gfloat import formats

    info = getattr(formats, "format_info_mxfp4_e2m1" if kind == "mxfp4" else f"format_info_{kind}")
    x = data(law, (6, 96))
    found = quantize(x, kind)
    for row in range(6):
        for k in range(3):
            block = x[row, 32 * k : 32 * k + 32]
            scale = gfloat.compute_scale_amax(info.etype.emax, block)
            assert scale == found.scales[row, k]
            wanted = gfloat.quantize_block(info, block, gfloat.compute_scale_amax)
            assert np.array_equal(found.dequantize()[row, 32 * k : 32 * k + 32], wanted.astype(np.float32))


@pytest.mark.parametrize("law", ["normal", "wide", "ties"])
@pytest.mark.parametrize("kind", MX)
def test_against_ml_dtypes(kind: str, law: str) -> None:
    """A power of two, so that a cast of the quotients, which saturates, has the same elements."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = data(law, (64, 5)).astype(np.float32)
    found = quantize(x, kind, axis=0)
    element = getattr(ml_dtypes, ML_DTYPES[kind])
    most = float(ml_dtypes.finfo(element).max)
    scales = np.repeat(found.scales.astype(np.float64), 32, axis=0)
    assert np.array_equal(found.scales.astype(ml_dtypes.float8_e8m0fnu).astype(np.float32), found.scales)
    wanted = np.clip(x / scales, -most, most).astype(np.float32).astype(element).astype(np.float32)
    assert np.array_equal(found.elements, wanted)
    assert np.array_equal(found.dequantize(), (wanted * scales).astype(np.float32))
    peaks = np.abs(x).reshape(2, 32, 5).max(axis=1)
    power = 2.0 ** np.floor(np.log2(most))
    assert ((found.scales * power <= peaks) & (peaks < 2 * found.scales * power)).all()


@pytest.mark.parametrize("law", ["normal", "wide", "ties", "zeros"])
def test_nvfp4_of_torchao(law: str) -> None:
    x, codes, scales, whole = (RECORDED[f"nvfp4/{law}/{name}"] for name in ("x", "codes", "scales", "whole"))
    ml_dtypes = pytest.importorskip("ml_dtypes")
    found = quantize(x, "nvfp4")
    assert found.tensor_scale == whole
    assert np.array_equal(found.scales, scales.view(ml_dtypes.float8_e4m3fn).astype(np.float32))
    assert np.array_equal(found.elements, E2M1[codes])
    again = quantize(x.T, "nvfp4", axis=0, tensor_scale=float(whole))
    assert np.array_equal(again.elements, found.elements.T)
    assert np.array_equal(again.dequantize(), found.dequantize().T)


@pytest.mark.parametrize("kind", KINDS)
def test_quantized_twice(kind: str) -> None:
    x = data("normal", (3, 70))
    found = quantize(x, kind)
    assert found.scales.shape == (3, -(-70 // KINDS[kind][1]))
    assert KINDS[kind][0].contains(found.elements).all()
    back = found.dequantize()
    again = quantize(back, kind, tensor_scale=float(found.tensor_scale) if kind == "nvfp4" else None)
    if kind != "nvfp4":  # whose scales are not powers of two, so that its largest element may be another
        assert np.array_equal(again.dequantize(), back)
    assert np.abs(back - x).max() < {"mxfp8_e4m3": 0.2, "mxfp6_e2m3": 0.3}.get(kind, 0.8)
    assert str(found) == f"{kind}: 3x70, scales along axis 1"


def test_special_blocks() -> None:
    x = np.ones((1, 96))
    x[0, 5], x[0, 70] = np.inf, np.nan
    found = quantize(x, "mxfp4")
    assert np.isnan(found.scales[0]).tolist() == [True, False, True]
    assert np.isnan(found.dequantize()[0]).tolist() == [True] * 32 + [False] * 32 + [True] * 32
    assert quantize(np.zeros(40), "mxfp8_e5m2").scales.tolist() == [2.0**-127] * 2
    assert quantize(np.full(32, 1e300), "mxfp4").scales.tolist() == [2.0**127]
    assert quantize(np.full(32, 1e300), "mxfp4").elements.tolist() == [6.0] * 32
    assert not quantize(np.zeros((2, 16)), "nvfp4").dequantize().any()


@pytest.mark.parametrize(
    ("kind", "form"), [("mxfp8_e4m3", "e4m3fn"), ("mxfp6_e3m2", "e3m2fn"), ("mxfp4", "e2m1fn"), ("nvfp4", "e2m1fn")]
)
def test_products(kind: str, form: str) -> None:
    """What a Blackwell tensor core makes of them is near the exact product of the numbers that they stand for."""
    x, y = data("normal", (5, 128)), data("normal", (128, 4))
    a, b = quantize(x, kind), quantize(y, kind, axis=0)
    text = f"tensor_core(arch=blackwell, type={form})"
    got = fpsim.matmul(a.elements, b.elements, text, scales=(a.scales, b.scales)) * (a.tensor_scale * b.tensor_scale)
    exact = a.dequantize().astype(np.float64) @ b.dequantize()
    assert np.abs(got - exact).max() < 1e-5
    assert np.abs(exact - x @ y).max() > 0.05


@pytest.mark.parametrize(
    "kind", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
)
def test_codes(kind: str) -> None:
    """All 256 codes, as ml_dtypes reads them, and as they come from torch, whose tensors travel as codes."""
    dtype = getattr(pytest.importorskip("ml_dtypes"), kind)
    wanted = np.arange(256, dtype=np.uint8).view(dtype)
    values, form = as_floats(wanted)
    assert np.array_equal(values, wanted.astype(np.float32), equal_nan=True)
    assert np.array_equal(_code_values(form), values, equal_nan=True)
    assert np.array_equal(np.signbit(_code_values(form)), np.signbit(values)) or np.isnan(values[128])


def test_rejected() -> None:
    for arguments, message in (
        ({"kind": "mxfp5"}, "there is no block-scaled format 'mxfp5'"), ({"kind": "mxfp4", "axis": 2}, "axis=2 is no axis"),
        ({"kind": "mxfp4", "tensor_scale": 2.0}, "for nvfp4 alone"), ({"kind": "nvfp4", "tensor_scale": -1.0}, "positive"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            quantize(np.ones((2, 32)), **arguments)
    with pytest.raises(InputError, match="is no axis of data"):
        quantize(1.0, "mxfp4")
