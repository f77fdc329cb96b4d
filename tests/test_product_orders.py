"""The program that finds the orders of a GPU's products, on products of the emulator."""

from __future__ import annotations

import importlib
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim.profiles import load


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Return `make_profiles`, with the emulator as its library, and `product_orders`."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks" / "gpu"))
    maker, orders = (importlib.import_module(name) for name in ("make_profiles", "product_orders"))
    monkeypatch.setattr(maker, "_library", maker.Fake())
    return maker, orders


@pytest.mark.parametrize("family", ["16", "8"])
def test_orders_of_all_kinds_are_found(programs: tuple[Any, Any], family: str) -> None:
    maker, orders = programs
    shape = (7, 48, 16)
    rows, kept = maker.products(family, shape)
    assert [row["kind"] for row in rows] == maker.FAMILIES[family]
    assert not kept
    rng = np.random.default_rng(0)
    for row in rows:
        assert row["replays"] == 200
        assert row["repeats"]
        a, b = (
            fpsim.round_to(rng.standard_normal(size).astype(np.float32), orders.FORMATS[form])
            for size, form in zip((shape[:2], shape[1:]), (row["left"], row["right"]), strict=True)
        )
        expected = maker._library.product(row["kind"], a, b)
        assert np.array_equal(np.asarray(fpsim.matmul(a, b, row["strategy"]), np.float32), expected), row


@pytest.mark.parametrize("text", ["reverse+fma", "chunks(12, fused(4, rest=first)+align(24))", "lanes(3)+fma"])
def test_trees_are_probed_with_all_outputs_at_once(programs: tuple[Any, Any], text: str) -> None:
    _, orders = programs
    calls = 0

    def product(kind: str, x: Any, y: Any) -> Any:
        nonlocal calls
        del kind
        calls += 1
        return np.asarray(fpsim.matmul(x, y, text), np.float32)

    sizes = orders.distances(product, "bf16_f32", (5, 30, 10), lambda x, form, side: x)  # noqa: ARG005
    assert calls == 6 * 3
    found = orders.probed_orders(sizes, np.random.default_rng(0))
    a, b = np.random.default_rng(1).standard_normal((2, 30, 30)).astype(np.float32)
    same = [np.array_equal(fpsim.matmul(a, b, one), fpsim.matmul(a, b, text)) for one in found]
    assert any(same), found


def test_what_is_found_comes_back_from_profiles(
    programs: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker, orders = programs
    merger = importlib.import_module("merge_cases")
    shape = (5, 32, 16)
    rows = [row for family in maker.FAMILIES for row in maker.products(family, shape)[0]]
    (tmp_path / "cases.json").write_text(json.dumps({"cases": rows}))
    shipped = files("fpsim.profiles").joinpath("h200", "cublas-13.1.json").read_text(encoding="utf-8")
    (tmp_path / "cublas-13.1.json").write_text(shipped)
    monkeypatch.setattr("sys.argv", ["merge_cases.py", str(tmp_path / "cases.json"), str(tmp_path)])
    assert merger.main() == 0
    assert (tmp_path / "cublas-13.1.json").read_text() == shipped
    rng = np.random.default_rng(0)
    for row in rows:
        form, right = row["left"], row["right"]
        path = tmp_path / f"cublas-13.1-{row['kind'].replace('_', '-')}.json"
        profile = load(str(path))
        a = fpsim.round_to(rng.standard_normal(shape[:2]).astype(np.float32), orders.FORMATS[form])
        b = fpsim.round_to(rng.standard_normal(shape[1:]).astype(np.float32), orders.FORMATS[right])
        expected = maker._library.product(row["kind"], a, b)
        b = np.asfortranarray(b) if profile.key.right == "F" else b
        given = fpsim.matmul(a, b, f"profile:{path}{profile.settings}")
        assert np.array_equal(given, expected), row
