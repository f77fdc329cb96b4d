"""How a `Check` is written as text."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fpsim._prediction_text import number

if TYPE_CHECKING:
    from fpsim.checking import Check, Comparison
    from fpsim.devices import Implementation
    from fpsim.devices.timing import Crossover

_WIDTH = 100
_HEADER = ("operation", "size", "equal bits", "max error, ulp", "predicted", "bound", "time", "with copies", "strategy")
_TEXT_COLUMNS = (0, 1, len(_HEADER) - 1)


def as_text(c: Check) -> str:
    """Return the tables, implementation by implementation, and what they come to."""
    lines = _wrapped(
        f"Real routines beside their predictions: {c.dtype} operands from {', '.join(c.laws)}. Errors are the largest in"
        " ulps of the exact result, of the routine and as predicted; the bound is that of the same output. Times are"
        " medians; 'with copies' has those to the GPU and back in it."
    )
    rows = {id(one): _cells(one) for one in c.comparisons}
    widths = [max(len(cells[i]) for cells in [_HEADER, *rows.values()]) for i in range(len(_HEADER))]
    for implementation in c.implementations:
        own = [one for one in c.comparisons if one.implementation == implementation.name]
        if own:
            lines += ["", str(implementation), _line(_HEADER, widths)]
            lines += [_line(rows[id(one)], widths) for one in own]
    missing = unavailable(c.implementations)
    if missing:
        lines += ["", *missing]
    if c.crossover is not None:
        lines += ["", *crossover_text(c.crossover)]
    return "\n".join([*lines, "", *_wrapped(_conclusion(c)), *_mismatches(c)])


def unavailable(implementations: Iterable[Implementation]) -> list[str]:
    """Return the implementations that cannot run here, those with the same reason together."""
    reasons: dict[str, list[str]] = {}
    for one in implementations:
        if not one.available:
            reasons.setdefault(one.unavailable, []).append(one.name)
    lines: list[str] = []
    for reason, names in reasons.items():
        text = f"{', '.join(names)}: not available, {reason}"
        lines += textwrap.wrap(text, _WIDTH, break_on_hyphens=False, break_long_words=False, subsequent_indent="    ")
    return lines


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, break_on_hyphens=False)


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    parts = [
        cell.ljust(width) if i in _TEXT_COLUMNS else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  " + "  ".join(parts).rstrip()


def _cells(one: Comparison) -> tuple[str, ...]:
    share = {"equal": "all", "unknown": "unknown"}.get(one.status, f"{one.equal} of {one.outputs}")
    times = one.times
    return (
        one.operation,
        "x".join(map(str, one.size)),
        share,
        _number(one.actual_error),
        _number(one.predicted_error),
        _number(one.bound),
        "" if times is None else seconds(times.compute),
        "" if times is None or times.with_transfers is None else seconds(times.with_transfers),
        _strategy(one),
    )


def _strategy(one: Comparison) -> str:
    if one.status == "unknown":
        return f"unknown: {one.unknown}"
    return "one rounding" if one.operation == "multiply" else one.strategy


def _number(value: float) -> str:
    return "-" if math.isnan(value) else number(value)


def seconds(value: float) -> str:
    """Return a time with a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-6:.3g} us"


def crossover_text(x: Crossover) -> list[str]:
    """Return the table of an elementwise product on CPU and GPU, and from which size on the GPU is faster."""
    where = "measured here" if x.measured else "recorded, because NumPy and a GPU library were not both run here"
    lines = [*_wrapped(f"Elementwise product of two float32 matrices, {x.cpu} against {x.gpu} ({where}):")]
    rows = [("size", "CPU", "GPU", "GPU with copies")]
    for size, *times in zip(x.sizes, x.cpu_seconds, x.gpu_seconds, x.gpu_seconds_with_transfers, strict=True):
        rows.append(("x".join(map(str, size)), *(seconds(t) for t in times)))  # type: ignore[arg-type]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines += ["  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    first, moved = x.first_faster(transfers=False), x.first_faster(transfers=True)

    def since(size: tuple[int, int] | None) -> str:
        return "at none of these sizes" if size is None else f"from {size[0]}x{size[1]} on"

    return [
        *lines,
        *_wrapped(
            f"The GPU is faster {since(first)} where operands and result stay on it, and {since(moved)} where they are"
            " copied each time: one multiplication for each number that is moved is too little work to pay for the"
            " copies, and a small matrix too little to pay for starting a kernel."
            + (" The results have the same bits." if x.same_bits else " The results do NOT have the same bits.")
        ),
    ]


def _conclusion(c: Check) -> str:
    known = [one for one in c.comparisons if one.status != "unknown"]
    outputs = sum(one.outputs for one in known)
    unknown = len(c.comparisons) - len(known)
    parts = []
    if not c.comparisons:
        parts.append("Nothing was run: no implementation that is available here has such an operation and size.")
    elif not known:
        parts.append("No rule is known for any of these cases.")
    elif not c.wrong:
        parts.append(f"All {outputs:,} outputs of {len(known)} cases have exactly the predicted bits.")
    else:
        parts.append(f"WRONG: in {len(c.wrong)} of {len(known)} cases a rule that claims to know was wrong.")
    if unknown and known:
        parts.append(f"For {unknown} case{'s' * (unknown > 1)} no rule is known, and nothing is guessed.")
    return " ".join(parts)


def _mismatches(c: Check) -> list[str]:
    return [
        f"  {one.implementation} {one.operation} {'x'.join(map(str, one.size))}, {one.mismatch.law}, output"
        f" {one.mismatch.index}: predicted {one.mismatch.predicted}, was {one.mismatch.actual}"
        for one in c.wrong
        if one.mismatch is not None
    ]
