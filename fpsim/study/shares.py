"""Coverage: how often bounds hold, and how far above the errors they are."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np

from fpsim import bounds as fpsim_bounds
from fpsim.bounds.tables import Bound, evaluated, name_of
from fpsim.orders.named import NamedRule
from fpsim.study.grid import Cell, check_count, grid, run

_NUMBERS = 2**21  # that are held at a time


@dataclass(frozen=True, slots=True)
class CoverageCell:
    """How a bound does in one cell.

    Attributes
    ----------
    op, order, arithmetic, law, bound : str
        Which.
    n, inputs : int
        Number of terms, and of inputs that were drawn.
    applied : int
        Inputs that the bound applies to.
    covered : float
        Share of those whose error is not above it.
    quantile : float
        The point of error/bound that a share of `confidence` of the inputs stays below.
    median, largest : float
        Median and largest error/bound.
    """

    op: str
    order: str
    arithmetic: str
    law: str
    bound: str
    n: int
    inputs: int
    applied: int
    covered: float
    quantile: float
    median: float
    largest: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Coverage:
    """Coverage of bounds over a grid; see `coverage`.

    Attributes
    ----------
    confidence : float
        Of the probabilistic bounds, for each output.
    cells : tuple of CoverageCell
        One for each point of the grid and bound.
    """

    confidence: float
    cells: tuple[CoverageCell, ...]

    def __str__(self) -> str:
        point = f"{100 * self.confidence:g} %"
        head = f"{'op':4} {'strategy':26} {'law':16} {'n':>8} {'inputs':>7} {'bound':14} {'covered':>8} {point:>7} {'median':>7}"
        lines = [
            f"{c.op:4} {c.order + ('+' + c.arithmetic if c.arithmetic else ''):26} {c.law:16} {c.n:8} {c.applied:7}"
            f" {c.bound:14} {100 * c.covered:7.2f}% {c.quantile:7.3f} {c.median:7.3f}"
            for c in self.cells
        ]
        return "\n".join([f"error/bound at the {point} point and the median", head, *lines])

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects."""
        return {
            "schema": "fpsim.coverage/1", "confidence": self.confidence, "cells": [c.to_dict() for c in self.cells]
        }  # fmt: skip


def coverage(
    op: str = "sum",
    /,
    *,
    orders: Sequence[Any],
    sizes: Sequence[int],
    laws: Sequence[Any] = ("uniform(0, 1)",),
    arithmetics: Sequence[str] = ("",),
    dtype: Any = "float32",
    inputs: int = 1000,
    bounds: Sequence[Bound] = (fpsim_bounds.ulp_variance,),
    confidence: float = 0.999,
    seed: int = 0,
    executor: Executor | None = None,
    progress: bool | None = None,
) -> Coverage:
    """Return how often bounds hold and how tight they are, each input with its own bound.

    Parameters
    ----------
    op, orders, sizes, laws, arithmetics, dtype, confidence, seed, executor, progress
        As for `sweep`.
    inputs : int
        How many inputs are drawn in each cell.
    bounds : sequence of callables
        Bounds, your own included.

    Returns
    -------
    Coverage

    Raises
    ------
    InputError
        The grid is empty, or what it names does not fit.

    Examples
    --------
    >>> from fpsim import study
    >>> (cell,) = study.coverage(orders=["pairwise"], sizes=[100], inputs=200).cells
    >>> cell.covered, cell.quantile < 1.05
    (1.0, True)
    """
    check_count("inputs", inputs)
    cells = grid(op, orders, sizes, laws, arithmetics, dtype)
    tasks = [(cell, seed, inputs, tuple(bounds), confidence) for cell in cells]
    found = run(_cell, tasks, executor, progress)
    return Coverage(confidence, tuple(one for some in found for one in some))


def _cell(cell: Cell, seed: int, inputs: int, bounds: tuple[Bound, ...], confidence: float) -> list[CoverageCell]:
    ratios: dict[str, list[Any]] = {name_of(one): [] for one in bounds}
    batch = max(1, min(inputs, _NUMBERS // cell.n))
    # A library may take the rows of an array in another order than a vector: named rules get one vector at a time.
    if isinstance(cell.strategy.order, NamedRule):
        batch = 1
    for start in range(0, inputs, batch):
        drawn = [cell.draw(seed, repeat) for repeat in range(start, min(start + batch, inputs))]
        given = _case(cell, drawn, confidence)
        error = np.where(np.isnan(given.error), np.inf, given.error)
        for one in bounds:
            try:
                limit = evaluated(one, given)
            except fpsim_bounds.NotApplicableError:
                continue
            with np.errstate(all="ignore"):
                ratio = np.where(error == 0, 0.0, error / limit)
            ratios[name_of(one)].append(np.nan_to_num(np.ravel(ratio), nan=np.inf))
    out = []
    for name, parts in ratios.items():
        some = np.concatenate(parts) if parts else np.zeros(0)
        out.append(
            CoverageCell(
                cell.op, cell.order, cell.arithmetic, str(cell.law), name, cell.n, inputs, some.size,
                float(np.mean(some <= 1.0)) if some.size else np.nan, _quantile(some, confidence), _quantile(some, 0.5),
                float(some.max()) if some.size else np.nan,
            )
        )  # fmt: skip
    return out


def _case(cell: Cell, drawn: list[tuple[Any, ...]], confidence: float) -> fpsim_bounds.Case:
    """Return one case of several inputs: rows that are summed, or a stack of products."""
    if len(drawn) == 1:
        return fpsim_bounds.case(cell.op, cell.strategy, *drawn[0], confidence=confidence)
    if cell.op == "sum":
        rows = np.stack([x for (x,) in drawn])
        return fpsim_bounds.case("sum", cell.strategy, rows, axis=1, confidence=confidence)
    left, right = (np.stack(each) for each in zip(*drawn, strict=True))
    return fpsim_bounds.case("matmul", cell.strategy, left[:, None, :], right[:, :, None], confidence=confidence)


def _quantile(values: Any, share: float) -> float:
    return float(np.quantile(values, share)) if values.size else np.nan
