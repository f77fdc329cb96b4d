"""Studies: grids of orders, arithmetics, laws and sizes; coverage of bounds; random trees; plots; training runs.

Orders, data laws and bounds may be functions of your own everywhere: `order` makes an order of one, `fpsim.law` a law, and
a bound is a function of an `fpsim.bounds.Case`.
"""

from __future__ import annotations

from fpsim.orders.random_trees import UniformTree, random_tree
from fpsim.study.drawing import plot_errors
from fpsim.study.grid import Sweep, sweep
from fpsim.study.shares import Coverage, CoverageCell, coverage
from fpsim.study.training import Divergence, divergence
from fpsim.study.trees import FunctionOrder, order

__all__ = [
    "Coverage", "CoverageCell", "Divergence", "FunctionOrder", "Sweep", "UniformTree", "coverage", "divergence",
    "order", "plot_errors", "random_tree", "sweep",
]  # fmt: skip
