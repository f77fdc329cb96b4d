"""Formats: their numbers against NumPy and ml_dtypes, their text form, their errors."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim.formats import (
    BFLOAT16,
    E4M3FN,
    E5M2,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    FORMATS,
    TF32,
    Format,
    as_format,
    format_named,
)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_numbers_equal_numpy_finfo(dtype: type) -> None:
    info, ours = np.finfo(dtype), as_format(dtype)
    for name in ("bits", "nmant", "nexp"):
        assert getattr(ours, name) == getattr(info, name), name
    for name in ("eps", "max", "min", "tiny", "smallest_normal", "smallest_subnormal"):
        assert getattr(ours, name) == float(getattr(info, name)), name
    assert (ours.emin, ours.emax) == (info.minexp, info.maxexp - 1)
    assert ours.unit_roundoff == float(info.eps) / 2


@pytest.mark.parametrize(
    "name",
    [
        "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3", "float8_e3m4",
        "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn",
    ],
)  # fmt: skip
def test_numbers_equal_ml_dtypes_finfo(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(ml_dtypes, name))
    info, ours = ml_dtypes.finfo(dtype), as_format(dtype)
    assert ours == as_format(name)
    assert (ours.nmant, ours.emin) == (info.nmant, info.minexp)
    for field in ("eps", "max", "min", "smallest_normal", "smallest_subnormal"):
        assert getattr(ours, field) == float(getattr(info, field)), field
    if name in {"bfloat16", "float8_e4m3fn", "float8_e5m2"}:
        assert (ours.bits, ours.nexp) == (info.bits, info.nexp)


def test_numbers_of_the_known_formats() -> None:
    shape = {name: (f.bits, f.precision, f.emin, f.emax, f.nexp) for name, f in FORMATS.items()}
    assert shape == {
        "float64": (64, 53, -1022, 1023, 11),
        "float32": (32, 24, -126, 127, 8),
        "tf32": (32, 11, -126, 127, 8),
        "bfloat16": (16, 8, -126, 127, 8),
        "float16": (16, 11, -14, 15, 5),
        "e4m3fn": (8, 4, -6, 8, 4),
        "e5m2": (8, 3, -14, 15, 5),
    }
    assert (E4M3FN.max, E4M3FN.overflow, E5M2.max) == (448.0, "nan", 57344.0)
    assert TF32.max == float.fromhex("0x1.ffcp127")
    assert Format("", 5, -3, 3).bits is None


def test_text_form_is_canonical_and_parses_back() -> None:
    cases = {
        "float32": Format("anything", 24, -126, 127),
        "e4m3fn": Format("", 4, -6, 8, overflow="nan", max_significand=14),
        "e4m3fn(overflow=saturate)": E4M3FN.with_overflow("saturate"),
        "e4m3fn(overflow=infinity)": E4M3FN.with_overflow("infinity"),
        "float32(subnormals=False)": FLOAT32.without_subnormals(),
        "e5m2(overflow=nan, subnormals=False)": E5M2.with_overflow("nan").without_subnormals(),
        "format(4, -6, 8)": Format("", 4, -6, 8),
        "format(5, -3, 3, max_significand=17, overflow=saturate, subnormals=False)": Format(
            "", 5, -3, 3, max_significand=17, overflow="saturate", subnormals=False
        ),
    }
    for text, form in cases.items():
        assert str(form) == text
        assert format_named(text) == form
        assert hash(format_named(text)) == hash(form)
        assert eval(repr(form)) == form
    assert format_named(" format( precision=8, emin=-126, emax=127 ) ") == BFLOAT16
    assert format_named("format(8, -126, 127, overflow='nan')") == BFLOAT16.with_overflow("nan")


def test_text_form_of_any_format_parses_back() -> None:
    hypothesis = pytest.importorskip("hypothesis")
    st = hypothesis.strategies

    def check(data: Any) -> None:
        p = data.draw(st.integers(1, 53))
        emin = data.draw(st.integers(-1022, 1023))
        form = Format(
            "", p, emin, data.draw(st.integers(emin, 1023)),
            subnormals=data.draw(st.booleans()),
            overflow=data.draw(st.sampled_from(["infinity", "nan", "saturate"])),
            max_significand=data.draw(st.integers(2 ** (p - 1), 2**p - 1)),
        )  # fmt: skip
        assert format_named(str(form)) == form
        assert form.name == str(form)

    hypothesis.settings(deadline=None, max_examples=300)(hypothesis.given(st.data())(check))()


def test_as_format_takes_formats_names_and_dtypes() -> None:
    assert as_format(TF32) is TF32
    assert as_format("bf16") == as_format("bfloat16") == BFLOAT16
    assert as_format(float) == as_format(np.dtype(">f8")) == FLOAT64
    assert as_format(np.dtype("<f2")) == as_format("half") == FLOAT16

    class dtype:
        def __str__(self) -> str:
            return "torch.float8_e5m2"

    dtype.__module__ = "torch"
    assert as_format(dtype()) == E5M2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("float33", "unknown format 'float33'.*float64, float32, tf32, bfloat16, float16, e4m3fn, e5m2"),
        ("e4m3", "unknown format 'e4m3'"),
        ("", "names no format"),
        ("float32 + 1", "names no format"),
        ("lanes(8", "names no format"),
        ("format(8, -126)", "precision, emin and emax"),
        ("format(8, -126, 127, -1)", "precision, emin and emax"),
        ("format(8, -126, 127, bias=3)", "no setting 'bias'"),
        ("format(8, -126, 127, overflow=inf)", "overflow must be one of infinity, nan, saturate"),
        ("format(8, -126, 127, subnormals=maybe)", "subnormals must be True or False"),
        ("format(8.0, -126, 127)", "precision must be an integer"),
        ("format(8, -126, 1+1)", "numbers and names"),
        ("format(8, **x)", "names no format"),
        ("float32(8)", "settings alone"),
        ("float32(precision=8)", "no setting 'precision'"),
        ("nonsense(overflow=nan)", "unknown format 'nonsense'"),
    ],
)
def test_bad_text_is_refused_with_the_way_out(text: str, says: str) -> None:
    with pytest.raises(fpsim.InputError, match=says):
        format_named(text)


# Where long double is double, it is a known format.
EXTENDED = [np.longdouble] if np.finfo(np.longdouble).nmant != np.finfo(np.float64).nmant else []


@pytest.mark.parametrize("x", [None, 3, object(), np.int32, np.complex64, "int8", *EXTENDED])
def test_what_is_no_format_is_refused(x: object) -> None:
    with pytest.raises(fpsim.InputError, match="float64, float32, tf32"):
        as_format(x)


@pytest.mark.parametrize(
    ("numbers", "settings"),
    [
        ((0, -1, 1), {}),
        ((54, -1, 1), {}),
        ((8, -1023, 1), {}),
        ((8, 2, 1), {}),
        ((8, 0, 1024), {}),
        ((True, 0, 1), {}),
        ((4, -6, 8), {"max_significand": 7}),
        ((4, -6, 8), {"max_significand": 16}),
    ],
)
def test_impossible_numbers_are_refused(numbers: tuple[int, int, int], settings: dict[str, int]) -> None:
    with pytest.raises(fpsim.InputError, match="must be an integer from"):
        Format("bad", *numbers, **settings)  # type: ignore[arg-type]


def test_formats_are_immutable_and_compare_by_numbers() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        FLOAT32.precision = 23  # type: ignore[misc]
    assert Format("a", 8, -126, 127) == BFLOAT16 != BFLOAT16.with_overflow("saturate")
    assert E4M3FN.with_overflow("nan") == E4M3FN


def test_includes() -> None:
    assert FLOAT32.includes(BFLOAT16)
    assert FLOAT32.includes(TF32)
    assert TF32.includes(FLOAT16)
    assert not BFLOAT16.includes(FLOAT16)
    assert not FLOAT16.includes(BFLOAT16)
    assert not FLOAT32.without_subnormals().includes(FLOAT32)
    assert FLOAT32.includes(Format("", 3, -147, 0))
    assert not FLOAT32.includes(Format("", 3, -148, 0))


@pytest.mark.parametrize("form", [*FORMATS.values(), Format("", 1, -3, 5), Format("", 7, -1022, -900)], ids=str)
def test_ulp_against_fractions(form: Format) -> None:
    rng = np.random.default_rng(5)
    x = np.ldexp(1 + rng.random(2000), rng.integers(-1074, 1023, 2000)) * rng.choice([-1, 1], 2000)
    x[:60] = np.ldexp(1.0, np.arange(form.emin - 30, form.emin + 30))
    for value, ulp in zip(x.tolist(), form.ulp(x).tolist(), strict=True):
        size, low = abs(Fraction(value)), Fraction(2) ** form.emin
        quantum = Fraction(ulp) * 2 ** (form.precision - 1)
        assert quantum == low if size < low else quantum <= size < 2 * quantum
    assert form.ulp(0.0) == form.ulp(-0.0) == math.ldexp(1.0, form.emin - form.precision + 1)
    assert np.isnan(form.ulp([math.nan, math.inf, -math.inf])).all()
    assert isinstance(form.ulp(1), np.float64)


def test_ulp_is_numpy_spacing() -> None:
    rng = np.random.default_rng(6)
    for dtype, words in ((np.float64, np.uint64), (np.float32, np.uint32), (np.float16, np.uint16)):
        x = rng.integers(0, np.iinfo(words).max, 5000, dtype=words).view(dtype)
        x = np.abs(x[np.isfinite(x)])
        np.testing.assert_array_equal(as_format(dtype).ulp(x), np.spacing(x).astype(np.float64))


def test_contains() -> None:
    assert FLOAT16.contains([65504.0, 65505.0, 65536.0, 2.0**-24, 2.0**-25, -0.0]).tolist() == [
        True, False, False, True, False, True,
    ]  # fmt: skip
    assert FLOAT16.contains([math.inf, math.nan]).tolist() == [True, True]
    assert E4M3FN.contains([448.0, 480.0, math.inf, math.nan]).tolist() == [True, False, False, True]
    assert not FLOAT16.without_subnormals().contains(2.0**-15)
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    assert FLOAT16.contains(every).all()
    finite = every[np.isfinite(every)].astype(np.float64)
    assert not FLOAT16.contains(np.nextafter(finite, np.inf)).any()


def test_formats_need_no_compiler() -> None:
    code = "import sys, fpsim.formats as f; f.as_format('e4m3fn(overflow=saturate)').ulp; print('numba' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
