"""How a `Prediction` is written: as text, as HTML, and as plain numbers."""

from __future__ import annotations

import html
import math
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fpsim.prediction import Prediction, StrategyPrediction

_WIDTH, _NAME_WIDTH = 100, 34
_SYMBOLS = {"sum": "sum", "dot": "dot product", "matmul": "matrix product"}  # functions have their own names


def plain_number(value: float) -> float | str:
    """Return a number as JSON holds it: what is not finite becomes "inf", "-inf" or "nan"."""
    return float(value) if math.isfinite(value) else str(float(value))


def with_bits(value: NDArray[Any]) -> dict[str, Any]:
    """Return the one number of an array, and its bits in its own NumPy type."""
    one = value.reshape(-1)[0]
    bits = int(np.asarray(one).view(f"u{one.dtype.itemsize}"))
    return {"value": plain_number(float(one)), "hex": f"0x{bits:0{2 * one.dtype.itemsize}x}", "dtype": str(one.dtype)}


def as_text(p: Prediction) -> str:
    """Return the table with its reading guide and conclusion."""
    rows = [_cells(one, p) for one in p.strategies]
    header = _header(p)
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(1, len(header))]
    name_width = min(max(len(row[0]) for row in [header, *rows]), _NAME_WIDTH)
    lines = [*_wrapped([_title(p), *_guide(p)]), ""]
    for row in [header, *rows]:
        numbers = "  ".join(cell.rjust(width) for cell, width in zip(row[1:], widths, strict=True))
        if len(row[0]) > name_width:
            lines.append(row[0])
            lines.append(f"{' ' * name_width}  {numbers}")
        else:
            lines.append(f"{row[0].ljust(name_width)}  {numbers}")
    lines += ["", *_wrapped([_conclusion(p), *(f"Note: {note}." for note in p.notes)])]
    return "\n".join(lines)


def _wrapped(paragraphs: list[str]) -> list[str]:
    return [line for text in paragraphs for line in textwrap.wrap(text, _WIDTH, break_on_hyphens=False)]


def as_html(p: Prediction) -> str:
    """Return the same as a table for notebooks, styled in place."""
    cell = "style='text-align:right;padding:2px 10px'"
    left = "style='text-align:left;padding:2px 10px;font-family:monospace'"

    def row(cells: list[str], tag: str) -> str:
        inner = "".join(
            f"<{tag} {left if i == 0 else cell}>{html.escape(text)}</{tag}>" for i, text in enumerate(cells)
        )
        return f"<tr>{inner}</tr>"

    body = "".join(row(_cells(one, p), "td") for one in p.strategies)
    notes = "".join(f"<p>Note: {html.escape(note)}.</p>" for note in p.notes)
    guide = "<br>".join(html.escape(line) for line in _guide(p))
    return (
        f"<div><p><b>{html.escape(_title(p))}</b><br>{guide}</p><table style='border-collapse:collapse'>"
        f"<thead>{row(_header(p), 'th')}</thead><tbody>{body}</tbody></table>"
        f"<p>{html.escape(_conclusion(p))}</p>{notes}</div>"
    )


def _title(p: Prediction) -> str:
    size = "x".join(map(str, p.shape))
    what = f"{_SYMBOLS.get(p.op, p.op)} of {size} {p.dtype}"
    if not p.is_sampled:
        exact = ""
        if p.exact is not None and math.prod(p.exact.shape) == 1:
            exact = f"; exact result {float(np.ravel(p.exact.round('float64'))[0])!r}"
        return f"{what}, given data{exact}"
    laws = p.data[0] if len(set(p.data)) == 1 else " and ".join(p.data)
    times = "1 draw" if p.repeats == 1 else f"{p.repeats} draws"
    seed = "" if p.seed is None else f", seed {p.seed}"
    outputs = p.strategies[0].outputs
    pooled = "" if outputs == p.repeats else f", {outputs} outputs"
    return f"{what}, {laws}: {times}{seed}{pooled}"


def _guide(p: Prediction) -> list[str]:
    single = p.strategies[0].outputs == 1
    columns = "error" if single else "rms, 99.9%, max"
    median = "" if single else " (median)"
    if p.op not in _SYMBOLS:
        return [
            f"{columns}: error against the exact result, in ulps of it; used: largest error / bound;",
            f"bound: largest error that was measured, in ulps{median}; !=rounded: outputs that are not correctly rounded.",
        ]
    return [
        f"{columns}: error against the exact result, in ulps of it; used: largest error / bound;",
        f"bound: worst case of order and arithmetic, in ulps{median}; !=NumPy: outputs with other bits.",
    ]


def _header(p: Prediction) -> list[str]:
    first, last = ("strategy", "!=NumPy") if p.op in _SYMBOLS else ("implementation", "!=rounded")
    if p.strategies[0].outputs == 1:
        shown = ["result", "bits"] if not p.is_sampled else []
        return [first, *shown, "error", "relative", "bound", "used", last]
    return [first, "rms", "99.9%", "max", "relative max", "bound", "used", last]


def _cells(one: StrategyPrediction, p: Prediction) -> list[str]:
    bound = "none" if not math.isfinite(one.bound) else number(one.bound)
    used = "-" if not math.isfinite(one.bound_absolute) and one.used == 0.0 else f"{one.used:.2g}"
    if one.outputs == 1:
        shown = []
        if not p.is_sampled and one.result is not None:
            value = one.result.reshape(-1)[0]
            shown = [f"{value}", with_bits(one.result)["hex"]]
        differs = "yes" if one.differs else "same"
        return [str(one.strategy), *shown, number(one.maximum), number(one.relative), bound, used, differs]
    differs = "none" if not one.differs else _share(one.differs, one.outputs)
    values = (one.rms, one.quantile, one.maximum, one.relative)
    return [str(one.strategy), *(number(value) for value in values), bound, used, differs]


def _share(count: int, total: int) -> str:
    share = 100.0 * count / total
    digits = f"{share:.0f}%" if share >= 10 else f"{share:.2g}%"
    if count == total:
        digits = "all"
    elif share >= 99.5:
        digits = ">99%"
    return f"{count} ({digits})" if count < 100_000 or count == total else digits


def number(value: float) -> str:
    """Return a number to three digits, plain where that is short."""
    if not math.isfinite(value):
        return str(value)
    if value == 0.0:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        digits = max(0, 2 - math.floor(math.log10(abs(value))))
        return f"{value:.{digits}f}"
    return f"{value:.1e}"


def _conclusion(p: Prediction) -> str:
    best = p.most_accurate
    names = ", ".join(str(one.strategy) for one in best)
    alike = " (equal bits)" if len(best) > 1 else ""
    size = f"{number(best[0].maximum)} ulp" if best[0].outputs == 1 else f"RMS {number(best[0].rms)} ulp"
    text = f"Most accurate here: {names}{alike}, {size}."
    same = [str(one.strategy) for one in p.strategies if not one.differs]
    if p.op not in _SYMBOLS:
        return f"{text} Correctly rounded throughout: {', '.join(same) if same else 'none of these'}."
    return f"{text} NumPy's bits: {', '.join(same) if same else 'none of these'}."
