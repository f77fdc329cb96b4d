"""Plots of a study; they need Matplotlib, the extra "plot"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fpsim.errors import InputError, MissingExtraError


def plot_errors(
    rows: Any,
    /,
    *,
    ax: Any = None,
    by: Sequence[str] = ("order", "law"),
    bounds: Sequence[str] = (),
    unit: str = "error",
) -> Any:
    """Plot the error against n, with bounds, of the rows of a sweep.

    Parameters
    ----------
    rows : Sweep or sequence of dict
        What `sweep` returned.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure.
    by : sequence of str
        Columns whose values make a line each.
    bounds : sequence of str
        Columns of bounds, which are drawn dashed: the median over the repeats.
    unit : str
        The column of the error: "error", "relative_error" or "error_over_magnitude".

    Returns
    -------
    matplotlib.axes.Axes
        Points are the largest error of each n, lines the root mean square.

    Raises
    ------
    MissingExtraError
        Matplotlib is not installed.
    InputError
        A column is missing.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        message = "plots need Matplotlib: install the extra plot of fpsim-float, or matplotlib itself"
        raise MissingExtraError(message) from error
    table = list(getattr(rows, "rows", rows))
    missing = [name for name in (*by, *bounds, unit, "n") if table and name not in table[0]]
    if missing or not table:
        message = f"nothing to plot: no column {missing[0]}" if missing else "nothing to plot: there are no rows"
        raise InputError(message)
    axes = plt.subplots()[1] if ax is None else ax
    styles = list(zip(("--", ":", "-.") * len(bounds), bounds, strict=False))
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in table:
        groups.setdefault(tuple(row[name] for name in by), []).append(row)
    for key, some in groups.items():
        sizes = sorted({row["n"] for row in some})
        each = [np.array([row[unit] for row in some if row["n"] == n], np.float64) for n in sizes]
        (line,) = axes.plot(sizes, [_plotted(np.sqrt(np.mean(x**2))) for x in each], label=", ".join(map(str, key)))
        axes.plot(sizes, [_plotted(x.max()) for x in each], ".", color=line.get_color())
        for style, name in styles:
            scale = [[_scaled(row, name, unit) for row in some if row["n"] == n] for n in sizes]
            axes.plot(sizes, [_plotted(np.median(x)) for x in scale], style, color=line.get_color(), lw=1)
    for style, name in styles:
        axes.plot([], [], style, color="gray", lw=1, label=name)
    axes.set(xscale="log", yscale="log", xlabel="terms n", ylabel=unit.replace("_", " "))
    axes.legend(fontsize="small")
    return axes


def _scaled(row: dict[str, Any], name: str, unit: str) -> float:
    value = float(row[name])
    below = {"relative_error": abs(float(row["exact"])), "error_over_magnitude": float(row["magnitude"])}.get(unit, 1.0)
    return value / below if below else np.nan


def _plotted(value: Any) -> float:
    return float(value) if np.isfinite(value) and value > 0 else np.nan
