"""Assertions, the pytest plugin, and strategies for Hypothesis."""

from __future__ import annotations

import importlib.metadata
import json
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import fpsim
from fpsim import hypothesis_strategies as draws
from fpsim.errors import InputError, MissingExtraError
from fpsim.formats import as_format
from fpsim.testing import assert_bitwise_equal, assert_close, assert_explained, assert_max_ulp

INSTALLED = any(one.name == "fpsim" for one in importlib.metadata.entry_points(group="pytest11"))
PLUGIN = [] if INSTALLED else ["-p", "fpsim.pytest_plugin"]


def test_ulps_and_bits() -> None:
    a = np.array([1, 2, -0.0, np.nan, np.inf], np.float32)
    assert_bitwise_equal(a, a.copy())
    assert_max_ulp(a, a, 0)
    b = a.copy()
    b[0] = np.nextafter(b[0], np.float32(2))
    assert_max_ulp(a, b, 1)
    with pytest.raises(AssertionError, match=r"differ by more than 0\.5 ulps"):
        assert_max_ulp(a, b, 0.5)
    with pytest.raises(AssertionError, match=r"1 of 5 outputs have other bits.*\[0\]: 1 and 1\.00000012 \(1 ulps\)"):
        assert_bitwise_equal(a, b)
    b = a.copy()
    b[2] = 0.0
    with pytest.raises(AssertionError, match="only in the sign of zero"):
        assert_bitwise_equal(a, b)
    with pytest.raises(AssertionError, match="different types"):
        assert_bitwise_equal(a, a.astype(np.float64))
    with pytest.raises(AssertionError, match="different shapes"):
        assert_bitwise_equal(a, a[:2])


def test_a_failure_says_what_and_where() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((40, 64), np.float32), rng.random((64, 50), np.float32)
    tol = fpsim.tolerance("matmul", a, b, between=("serial+fma", "pairwise+fma"))
    right, other = fpsim.matmul(a, b, "serial+fma"), fpsim.matmul(a, b, "pairwise+fma")
    assert_close(right, other, tol)
    tile = other.copy()
    tile[16:32, 8:16] += np.float32(0.01)
    with pytest.raises(AssertionError) as caught:
        assert_close(right, tile, tol)
    text = str(caught.value)
    assert "128 of 2000 outputs" in text
    assert "all in [16:32, 8:16]" in text
    assert "ulps apart" in text
    assert "beyond the worst case" in text
    assert "it allows for rounding errors of two orders of additions over 64 terms" in text
    with pytest.raises(AssertionError, match="all over the result"):
        assert_close(right, other + np.float32(0.01), tol)
    with pytest.raises(InputError, match="of shape"):
        assert_close(right[0], other[0], tol)
    one = fpsim.tolerance("dot", a[0], b[:, 0], strategy="serial")
    with pytest.raises(AssertionError, match="a scalar"):
        assert_close(np.float32(1e9), fpsim.dot(a[0], b[:, 0], "serial"), one)


def test_differences_that_are_explained() -> None:
    x = np.random.default_rng(1).random(9, np.float32)
    assert_explained({"cpu": x, "gpu": x.copy()})
    with pytest.raises(AssertionError, match="not explained, verdict: "):
        assert_explained({"cpu": x, "gpu": x * np.float32(2)})


# --- the plugin -------------------------------------------------------------------------------------------------------


def run_pytest(where: Path, *arguments: str, plugin: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *(PLUGIN if plugin else []), *arguments]
    return subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)


def test_loading_the_plugin_imports_nothing_heavy() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import fpsim.pytest_plugin; new = set(sys.modules) - before;"
        "print(sorted(m for m in new if m.partition('.')[0] not in ('fpsim', 'json')), 'fpsim.testing' in new)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[] False"


def test_a_run_that_does_not_use_the_plugin_pays_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(
        "import sys\ndef test():\n    assert not {'numpy', 'numba', 'fpsim.testing'} & set(sys.modules)\n"
    )
    result = run_pytest(tmp_path)
    assert result.returncode == 0, result.stdout
    assert "false alarms" not in result.stdout


SUITE = """
import numpy as np, pytest, fpsim
from fpsim.testing import assert_close, assert_bitwise_equal

x = np.random.default_rng(0).random((3, 200), np.float32)

@pytest.mark.fpsim(confidence=0.99)
def test_marked(fpsim_tolerance):
    tol = fpsim_tolerance("sum", x, strategy="serial", axis=1)
    assert tol.confidence == 0.99
    assert_close(fpsim.sum(x, "serial", axis=1), x.sum(axis=1, dtype=np.float64), tol)

def test_plain(fpsim_tolerance):
    tol = fpsim_tolerance("sum", x, between=("serial", "pairwise"), axis=1)
    assert tol.confidence == 1 - 1e-6
    assert_close(fpsim.sum(x, "serial", axis=1), fpsim.sum(x, "pairwise", axis=1), tol)

def test_fault(fpsim_tolerance):
    tol = fpsim_tolerance("sum", x, strategy="serial", axis=1)
    assert_close(fpsim.sum(x[:, 1:], "serial", axis=1), fpsim.sum(x, "serial", axis=1), tol)

def test_bits():
    assert_bitwise_equal(x, x)
"""


def test_fixture_marker_and_report(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SUITE)
    result = run_pytest(tmp_path, "--strict-markers", "--fpsim-json", "out.json")
    assert "1 failed, 3 passed" in result.stdout
    assert "fpsim: 3 assertions by tolerance, 1 failed; 10 false alarms expected in 1,000 runs" in result.stdout
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["expected_false_alarms_per_1000_runs"] == pytest.approx(10.002)
    assert report["failed"] == 1
    tests = [one["test"].rpartition("::")[2] for one in report["assertions"]]
    assert tests == ["test_marked", "test_plain", "test_fault", "test_bits"]
    assert [one["passed"] for one in report["assertions"]] == [True, True, False, True]
    assert report["assertions"][1]["sides"] == ["serial", "pairwise"]
    assert 0 < report["assertions"][1]["worst_over_tolerance"] < 1
    assert report["assertions"][2]["worst_over_tolerance"] > 1
    result = run_pytest(tmp_path, "--fpsim-json", "no/such/folder.json")
    assert "cannot be written" in result.stdout


def test_a_report_replaces_only_a_report(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n")
    for old in ("my notes", '{"schema": "mine"}', "[]"):
        (tmp_path / "out.json").write_text(old)
        result = run_pytest(tmp_path, "--fpsim-json", "out.json")
        assert "no report of this plugin; choose another name" in result.stderr
        assert (tmp_path / "out.json").read_text() == old
    (tmp_path / "out.json").write_text('{"schema": "fpsim.pytest/1"}')
    assert "report written" in run_pytest(tmp_path, "--fpsim-json", "out.json").stdout
    assert json.loads((tmp_path / "out.json").read_text())["assertions"] == []
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".json" or ".json." in path.name) == [
        "out.json"
    ]


TABLE = """
schema = "fpsim.tolerances/1"

[[tolerance]]
name = "totals"
op = "sum"
shape = "8x500"
dtype = "float32"
data = ["normal"]
between = ["serial", "any order"]
"""
USE = """
def test_it(fpsim_table):
    assert set(fpsim_table["totals"].kwargs("numpy")) == {"rtol", "atol"}
"""


def test_a_table_in_a_suite(tmp_path: Path) -> None:
    path = tmp_path / "tolerances.toml"
    (tmp_path / "pytest.ini").write_text("[pytest]\nfpsim_table = tolerances.toml\n")
    (tmp_path / "test_it.py").write_text(USE)
    result = run_pytest(tmp_path, "--fpsim-update")
    assert "makes a new table" in result.stderr + result.stdout
    path.write_text(TABLE)
    assert "1 passed" in run_pytest(tmp_path, "--fpsim-update").stdout
    written = path.read_text()
    value = next(line for line in written.splitlines() if line.startswith("atol"))
    number = float(value.partition("= ")[2])
    path.write_text(written.replace(value, f"atol = {number * 11!r}"))
    changed = path.read_text()
    assert "has become too loose: it allows 11" in run_pytest(tmp_path).stdout
    assert path.read_text() == changed  # nothing is written without being asked
    assert "1 passed" in run_pytest(tmp_path, "--fpsim-update").stdout
    assert path.read_text() == written


# --- strategies for Hypothesis ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", "bfloat16", "e4m3fn", "float64", "format(3, -2, 2)"])
def test_numbers_of_a_format(name: str) -> None:
    seen: set[float] = set()

    @settings(max_examples=200, deadline=None, database=None)
    @given(draws.floats_in(name))
    def check(x: float) -> None:
        seen.add(x)
        assert fpsim.round_to(np.float64(x), name) == x
        assert math.isfinite(x)

    check()
    form = as_format(name)
    assert any(0 < abs(x) < form.smallest_normal for x in seen)
    assert any(x < 0 for x in seen)
    with pytest.raises(InputError, match="exponents from"):
        draws.floats_in(name, low=5000)


@settings(max_examples=60, deadline=None)
@given(draws.ill_conditioned_sums(most=20, digits=20))
def test_condition_numbers_are_exact(case: tuple[Any, float]) -> None:
    x, condition = case
    assert 4 <= x.size <= 20
    exact = [Fraction(float(one)) for one in x]
    total = abs(sum(exact, Fraction(0)))
    if total:
        assert condition == float(sum(map(abs, exact), Fraction(0)) / total)
        assert condition == pytest.approx(float(fpsim.exact.sum(x).condition), rel=1e-9)
    else:
        assert condition == math.inf


def test_sums_may_be_ill_conditioned() -> None:
    worst = [0.0]

    @settings(max_examples=100, deadline=None, database=None)
    @given(draws.ill_conditioned_sums(digits=15))
    def check(case: tuple[Any, float]) -> None:
        worst.append(case[1])

    check()
    assert max(worst) > 1e10


@settings(max_examples=40, deadline=None)
@given(draws.trees(most=30, settings="+fma"))
def test_random_trees_are_strategies(order: fpsim.Strategy) -> None:
    n = len([word for word in str(order).replace("(", " ").replace(")", " ").split() if word.strip('"').isdigit()])
    assert 1 <= n <= 30
    x = np.ones(n, np.float32)
    assert fpsim.dot(x, x, order) == n


def test_without_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis.strategies", None)
    with pytest.raises(MissingExtraError, match="extra 'hypothesis'"):
        draws.floats_in("float32")
