"""Random trees, orders and laws from functions, sweeps, coverage and plots."""

from __future__ import annotations

import csv
import math
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim import bounds, study
from fpsim.errors import FileError, InputError, MissingExtraError, StrategyError

# --- random trees -----------------------------------------------------------------------------------------------------


def shapes(n: int, first: int = 0) -> list[str]:
    """Return all binary trees over n leaves in order, as text."""
    if n == 1:
        return [str(first)]
    return [
        f"({left} {right})"
        for k in range(1, n)
        for left in shapes(k, first)
        for right in shapes(n - k, first + k)
    ]  # fmt: skip


def unordered(text: str) -> Any:
    """Return a tree as nested frozensets, in which left and right do not count."""
    return eval(text.replace("(", "frozenset([").replace(")", "])").replace(" ", ","))


def chi_square_is_small(counts: list[int], cells: int) -> bool:
    """Whether counts of `cells` equally likely outcomes lie within five deviations of what chi-square expects."""
    expected = sum(counts) / cells
    statistic = sum((count - expected) ** 2 / expected for count in counts) + (cells - len(counts)) * expected
    return abs(statistic - (cells - 1)) < 5 * math.sqrt(2 * (cells - 1))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
def test_shapes_are_uniform_over_the_catalan_ones(n: int) -> None:
    rng = np.random.default_rng(n)
    every = shapes(n)
    assert len(every) == math.comb(2 * n - 2, n - 1) // n
    draws = Counter(study.random_tree(n, rng=rng) for _ in range(200 * len(every)))
    assert set(draws) == set(every)
    assert len(every) == 1 or chi_square_is_small(list(draws.values()), len(every))


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_numbered_trees_are_uniform(n: int) -> None:
    rng = np.random.default_rng(n)
    many = math.prod(range(1, 2 * n - 2, 2))  # (2n - 3)!!
    draws = Counter(unordered(study.random_tree(n, rng=rng, permuted=True)) for _ in range(150 * many))
    assert len(draws) == many
    assert many == 1 or chi_square_is_small(list(draws.values()), many)


def test_height_grows_as_the_root_of_n() -> None:
    heights = [fpsim.strategy(study.UniformTree(seed)).program(2000).height for seed in range(20)]
    assert np.mean(heights) == pytest.approx(math.sqrt(4 * math.pi * 2000), rel=0.2)


def test_uniform_trees_are_orders() -> None:
    x = np.random.default_rng(0).random(50, np.float32)
    one = study.UniformTree(3, leaves="permuted")
    assert str(one) == "uniform_tree(3, leaves=permuted)"
    assert fpsim.strategy(str(one)).order == one
    assert fpsim.strategy("uniform_tree:5") == fpsim.strategy(study.UniformTree(5))
    text = study.random_tree(50, rng=3, permuted=True)
    assert fpsim.sum(x, one) == fpsim.sum(x, f'tree("{text}")')
    assert fpsim.predict("sum", x, strategies=[one]).strategies[0].used <= 1
    for n in (0, 1):
        assert fpsim.sum(x[:n], "uniform_tree(1)") == x[:n].sum()
    for seed in (-1, True, 1.5):
        with pytest.raises(StrategyError, match="seed must be a whole number"):
            study.UniformTree(seed)  # type: ignore[arg-type]
    with pytest.raises(StrategyError, match="leaves=left is not one of"):
        fpsim.strategy("uniform_tree(3, leaves=left)")
    with pytest.raises(InputError, match="at least 1 leaf"):
        study.random_tree(0)


# --- functions of one's own -------------------------------------------------------------------------------------------


def halves(n: int) -> str:
    return f"chunks({max(n // 2, 1)})"


def comb(n: int) -> Any:
    tree: Any = 0
    for leaf in range(1, n):
        tree = (tree, leaf)
    return tree


def cubes(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.random(shape) ** 3


def twice_running(case: bounds.Case) -> Any:
    """Twice the running bound."""
    return 2 * bounds.running(case)


def test_orders_from_functions() -> None:
    x = np.random.default_rng(1).random(101, np.float32)
    assert fpsim.sum(x, study.order(halves)) == fpsim.sum(x, "chunks(50)")
    assert fpsim.sum(x, study.order(comb)) == fpsim.sum(x, "serial")
    assert fpsim.sum(x, study.order(lambda n: fpsim.strategy("pairwise").order)) == fpsim.sum(x, "pairwise")  # noqa: ARG005
    assert fpsim.sum(x[:3], study.order(lambda n: "(0 2) 1", name="mine")) == (x[0] + x[2]) + x[1]  # noqa: ARG005
    assert str(fpsim.strategy(study.order(halves))) == "halves"
    tol = fpsim.tolerance("sum", x, between=(study.order(halves), "pairwise"))
    assert tol.sides == ("halves", "pairwise")
    with pytest.raises(InputError, match="from a function"):
        study.order("serial")
    for wrong, why in ((None, "must return an order"), ("serial+fma", "go after the order"), ((0, -1), "leaf numbers")):
        with pytest.raises(InputError, match=why):
            fpsim.strategy(study.order(lambda n, w=wrong: w)).program(2)  # noqa: ARG005


def test_laws_from_functions() -> None:
    law = fpsim.law(cubes)
    assert str(law) == "cubes"
    assert (law.draw(5, rng=1) == (np.random.default_rng(1).random(5) ** 3).astype(np.float32)).all()
    assert fpsim.predict("sum", law, shape=100, repeats=3, strategies=["serial"]).data == ("cubes",)
    assert fpsim.tolerance("sum", law, shape=100, strategy="serial").probabilistic > 0
    with pytest.raises(InputError, match="must return real numbers of shape"):
        fpsim.law(lambda rng, shape: rng.random(3)).draw(4)  # noqa: ARG005


# --- sweeps -----------------------------------------------------------------------------------------------------------

GRID: dict[str, Any] = {
    "orders": ["serial", halves, study.UniformTree(1)], "sizes": [5, 40], "laws": ["normal", cubes],
    "repeats": 2, "bounds": [bounds.half_ulp, twice_running, bounds.compensated],
}  # fmt: skip


def test_sweep_has_a_row_for_each_cell_and_repeat_and_ones_own_bound() -> None:
    found = study.sweep(**GRID, arithmetics=["", "acc(bfloat16)"])
    assert len(found.rows) == 3 * 2 * 2 * 2 * 2
    for row in found.rows:
        assert row["error"] <= row["half_ulp"] <= row["twice_running"]
        assert math.isnan(row["compensated"])
        assert row["strategy"] == row["order"] + ("+acc(bfloat16)" if row["arithmetic"] else "")
    # The same data for all strategies, and others for each repeat.
    exact = {(row["law"], row["n"], row["repeat"]): row["exact"] for row in found.rows}
    assert all(row["exact"] == exact[row["law"], row["n"], row["repeat"]] for row in found.rows)
    assert len(set(exact.values())) == 8


def test_sweep_depends_neither_on_the_executor_nor_on_the_rest_of_the_grid() -> None:
    expected = study.sweep(**GRID, seed=4).rows
    with ThreadPoolExecutor(3) as threads:
        assert repr(study.sweep(**GRID, seed=4, executor=threads).rows) == repr(expected)
    small = study.sweep(**{**GRID, "orders": [halves], "sizes": [40]}, seed=4).rows
    assert repr(small) == repr(tuple(row for row in expected if row["order"] == "halves" and row["n"] == 40))
    assert study.sweep(**GRID, seed=5).rows[0]["exact"] != expected[0]["exact"]


def test_sweep_in_processes() -> None:
    plain: dict[str, Any] = {"orders": ["serial"], "sizes": [20], "laws": ["normal"], "repeats": 3}
    with ProcessPoolExecutor(1) as processes:
        assert study.sweep("dot", **plain, executor=processes).rows == study.sweep("dot", **plain).rows


def test_sweep_as_csv(tmp_path: Path) -> None:
    found = study.sweep("dot", orders=["serial"], arithmetics=["fma"], sizes=[30], repeats=3)
    path = tmp_path / "sweep.csv"
    found.to_csv(path)
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["error"]) for row in rows] == [row["error"] for row in found.rows]
    assert rows[0]["strategy"] == "serial+fma"
    with pytest.raises(FileError, match="is there already"):
        found.to_csv(path)
    found.to_csv(path, overwrite=True)
    with pytest.raises(FileError, match="cannot be written"):
        found.to_csv(tmp_path / "no" / "such.csv")


def test_progress_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    study.sweep(orders=["serial"], sizes=[5], repeats=1, progress=True)
    assert "1 of 1 cells" in capsys.readouterr().err
    study.sweep(orders=["serial"], sizes=[5], repeats=1)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"orders": []}, "orders must be a sequence"), ({"orders": "serial"}, "orders must be a sequence"),
        ({"sizes": [0]}, "sizes are whole numbers"), ({"repeats": 0}, "repeats must be a whole number"),
        ({"laws": ["no"]}, "unknown law"), ({"confidence": 2}, "confidence must lie"),
    ],
)  # fmt: skip
def test_wrong_grids(change: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        study.sweep(**{"orders": ["serial"], "sizes": [5], **change})
    with pytest.raises(InputError, match="a study is of sum or dot"):
        study.sweep("max", orders=["serial"], sizes=[5])


# --- coverage ---------------------------------------------------------------------------------------------------------


def test_coverage_counts_what_is_exceeded() -> None:
    def median_like(case: bounds.Case) -> Any:
        return bounds.ulp_variance(case) / 6

    found = study.coverage(
        orders=["serial", "numpy_sum"],
        sizes=[200],
        inputs=400,
        bounds=[bounds.ulp_variance, median_like, bounds.half_ulp],
    )
    cells = {(cell.order, cell.bound): cell for cell in found.cells}
    for name in ("serial", "numpy_sum"):
        own = cells[name, "ulp_variance"]
        assert own.applied == 400
        assert own.covered >= 0.997
        assert 0.5 < own.quantile <= 1.05
        assert 0.2 < cells[name, "median_like"].covered < 0.8
        assert cells[name, "median_like"].quantile == pytest.approx(6 * own.quantile)
        assert cells[name, "half_ulp"].covered == 1
    assert "numpy_sum" in str(found)
    assert found.to_dict()["cells"][0]["covered"] == found.cells[0].covered


def test_coverage_is_of_the_same_inputs_as_single_ones() -> None:
    (cell,) = study.coverage(orders=["pairwise"], sizes=[50], inputs=20, seed=2, bounds=[bounds.half_ulp]).cells
    rows = study.sweep(orders=["pairwise"], sizes=[50], repeats=20, seed=2, bounds=[bounds.half_ulp]).rows
    assert cell.largest == pytest.approx(max(row["error"] / row["half_ulp"] for row in rows))


# --- plots ------------------------------------------------------------------------------------------------------------


class Axes:
    """Records what is drawn."""

    def __init__(self) -> None:
        self.lines: list[Any] = []

    def plot(self, x: Any, y: Any, *style: Any, **settings: Any) -> Any:
        self.lines.append((list(x), list(y), style, settings))
        return (self,)

    def get_color(self) -> str:
        return "C0"

    def set(self, **settings: Any) -> None:
        self.settings = settings

    def legend(self, **settings: Any) -> None:
        self.settings |= settings


def test_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    found = study.sweep(orders=["serial", "pairwise"], sizes=[10, 100], repeats=3, bounds=[bounds.half_ulp])
    monkeypatch.setitem(sys.modules, "matplotlib", type(sys)("matplotlib"))
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", type(sys)("matplotlib.pyplot"))
    axes = Axes()
    assert study.plot_errors(found, ax=axes, by=["order"], bounds=["half_ulp"]) is axes
    assert [line[3].get("label") for line in axes.lines[::3]] == ["serial", "pairwise", "half_ulp"]
    rms, points, bound = (line[1] for line in axes.lines[:3])
    assert all(a <= b <= c for a, b, c in zip(rms, points, bound, strict=True))
    with pytest.raises(InputError, match="no column nothing"):
        study.plot_errors(found, ax=axes, bounds=["nothing"])


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_plots_with_matplotlib(tmp_path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    found = study.sweep(orders=["serial", "pairwise"], sizes=[10, 100], repeats=3, bounds=[bounds.half_ulp])
    for unit in ("error", "relative_error", "error_over_magnitude"):
        axes = study.plot_errors(found, by=["order"], bounds=["half_ulp"], unit=unit)
        assert len(axes.lines) == 7
        assert [text.get_text() for text in axes.get_legend().get_texts()] == ["serial", "pairwise", "half_ulp"]
        assert (axes.get_xscale(), axes.get_ylabel()) == ("log", unit.replace("_", " "))
        axes.figure.savefig(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_plots_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(MissingExtraError, match="install the extra plot"):
        study.plot_errors([])
