from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fpsim.devices.elementwise import elementwise_implementations

Array = NDArray[Any]

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
RECORD = json.loads((BENCHMARKS.parent / "docs" / "data" / "variants-cpu.json").read_text(encoding="utf-8"))


@pytest.fixture(name="variants")
def _variants(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("cpu_variants")
    sys.modules.pop("cpu_variants")


@pytest.fixture(name="page")
def _page(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("elementwise_variants")


def test_layouts_that_change_bits_are_seen(variants: Any) -> None:
    x = np.random.default_rng(0).uniform(1, 2, 4096).astype(np.float32)

    def tails(x: Array) -> Array:
        # Vectors of 16, and the rest in another way; arrays with gaps in another way, too.
        y = np.sqrt(x)
        rest = x.size % 16 if x.strides[0] == 4 else x.size
        y[y.size - rest :] += np.float32(2.0**-20)
        return y

    found = variants.layouts(tails, [x])
    assert found["alone"] == found["strided"] == 1
    assert found["shifted"] == sum(-n % 16 for n in range(1, 17)) / sum(4096 - n for n in range(1, 17))
    assert found["short"] == sum(n % 16 for n in range(1, 69)) / sum(range(1, 69))
    assert set(variants.layouts(np.sqrt, [x]).values()) == {0}

    def forwards(x: Array) -> Array:
        if x.strides[0] < 0:
            message = "no negative strides"
            raise ValueError(message)
        return np.sqrt(x)

    assert variants.layouts(forwards, [x])["reversed"] is None


def test_a_variant_runs_in_its_own_process(variants: Any) -> None:
    numpy = elementwise_implementations()[0]
    child = variants.Child(numpy, "numpy here", {"NPY_DISABLE_CPU_FEATURES": ""})
    operands = [x.astype(np.float32) for x in np.random.default_rng(1).uniform(0.5, 2, (2, 1000))]
    try:
        for name in ("exp", "pow"):
            inputs = operands[: 2 if name == "pow" else 1]
            assert child.implementation().functions[name](*inputs).tobytes() == numpy.functions[name](*inputs).tobytes()
        assert set(child.layouts("exp", operands[:1])) == {"alone", "short", "shifted", "strided", "reversed"}
    finally:
        child.stop()
    assert child.process.returncode == 0


def test_groups_have_equal_bits(page: Any) -> None:
    pairs = [
        ("a 1", "a 2", 0),
        ("a 1", "b 1", 7),
        ("a 1", "b 2", 0),
        ("a 2", "b 1", 7),
        ("a 2", "b 2", 0),
        ("b 1", "b 2", 7),
    ]
    entry = {
        "errors": [{"implementation": name} for name in ("a 1", "a 2", "b 1", "b 2")],
        "different": [{"between": [a, b], "inputs": n} for a, b, n in pairs],
    }
    assert page.groups(entry) == [["a 1", "a 2", "b 2"], ["b 1"]]
    assert [page._short(group) for group in page.groups(entry)] == ["a 1 and 2 = b 2", "b 1"]


def test_recorded_differences_are_consistent(page: Any) -> None:
    for entry in RECORD["functions"]:
        groups = page.groups(entry)
        for group in groups:
            for other in groups:
                for a in group:
                    for b in other:
                        assert page._same(entry, a, b) == (group is other), (entry["function"], a, b)


def test_numpy_without_simd_has_the_bits_of_the_c_library(page: Any) -> None:
    for entry in RECORD["functions"]:
        if {"numpy SSE4.2", "libm FMA"} <= {e["implementation"] for e in entry["errors"]}:
            assert page._same(entry, "numpy SSE4.2", "libm FMA"), entry["function"]
