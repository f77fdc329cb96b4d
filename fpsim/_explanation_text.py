"""An explanation in words and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fpsim.explanation import Difference, Explanation, Match, Side

_SHOWN = 5
#: What each verdict means, for people.
MEANING = {
    "identical": "no difference",
    "expected rounding": "not a bug: different, equally legitimate roundings",
    "reduced precision": "not a fault in the computation, but less precision than the data have",
    "different computation": "not rounding: the sides do not compute the same thing",
    "bug suspected": "rounding cannot do this",
    "unknown": "neither shown to be rounding nor shown to be a bug",
}


def text(found: Explanation) -> str:
    """Return the explanation as text: the verdict and why, then the evidence."""
    lines = [f"{found.verdict.upper()}: {MEANING[found.verdict]}.", found.reason]
    lines += [f"  because of {mechanism}" for mechanism in found.mechanisms if _is_pair(mechanism)]
    if found.ranked:
        lines.append(f"Mechanisms that fit, likeliest first: {', '.join(found.ranked)}.")
    lines += [f"Attribution of {one}." for one in found.attribution]
    lines += [f"To remove it: {switch}." for switch in found.switches]
    if found.closest:
        lines.append(_closest(found))
    lines.append("")
    if found.terms is not None:
        lines.append(f"{_subject(found)}")
    lines += [_difference(difference) for difference in found.differences]
    if found.op is not None and found.sides:
        lines += ["", *_table(found), ""]
        for side in found.sides:
            lines += _matches(side)
    if found.next_steps:
        lines += ["", *(f"Next: {step}." for step in found.next_steps)]
    if found.deciding_input is not None:
        lines += [str(found.deciding_input)]
    return "\n".join(lines)


def number(value: float | None) -> str:
    """Return a number of a table in three digits."""
    return "-" if value is None else f"{value:.3g}"


def columns(rows: list[list[str]]) -> list[str]:
    """Return rows as lines with aligned columns, the first row as a header."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]


def _is_pair(mechanism: str) -> bool:
    return " = " in mechanism


def _subject(found: Explanation) -> str:
    shape = " x ".join(map(str, found.shape)) or "one number"
    told = f"{found.op}, {found.terms} terms each, result {shape}"
    if found.condition is not None:
        median, largest = found.condition
        told += f"; condition number {number(median)}" + (f" (largest {number(largest)})" if found.shape else "")
    return told


def _closest(found: Explanation) -> str:
    if len(found.closest) > 1:
        return f"Equally close to the exact result: {', '.join(found.closest)}."
    errors = ", ".join(f"{side.name} {number(side.rms_ulp)} ulp" for side in found.sides)
    exact = all((side.correctly_rounded or 0) == 1 for side in found.sides if side.name in found.closest)
    note = "which is the exact result, correctly rounded" if exact else "but it is not exact either"
    return f"Closest to the exact result: {found.closest[0]}, {note} (root mean square errors: {errors})."


def _difference(d: Difference) -> str:
    if not d.differing:
        return f"{d.first} and {d.second}: all {d.total} values are equal."
    return (
        f"{d.first} and {d.second}: {d.differing} of {d.total} values differ, by at most {number(d.max_ulp)} ulp,"
        f" {number(d.max_absolute)} absolute, {number(d.max_relative)} relative ({d.where})."
    )


def _rows(found: Explanation) -> list[list[str]]:
    head = ["side", "format", "max error", "rms error", "at", "absolute", "of bound", "correctly rounded", "finding"]
    body = [
        [
            side.name, side.format, f"{number(side.max_ulp)} ulp", f"{number(side.rms_ulp)} ulp",
            str(list(side.worst_at)) if side.worst_at else "-", number(side.max_error), number(side.bound_ratio),
            f"{100 * (side.correctly_rounded or 0):.4g} %", side.status,
        ]
        for side in found.sides
    ]  # fmt: skip
    return [head, *body]


def _table(found: Explanation) -> list[str]:
    return columns(_rows(found))


def _matches(side: Side) -> list[str]:
    if side.parts:
        return [
            f"{side.name}: bit for bit by {len(side.parts)} strategies that share the elements",
            *(f"  {part.strategy}: {part.count} ({part.where})" for part in side.parts),
        ]
    if not side.matches:
        near = ""
        if side.nearest is not None:
            near = f"; nearest: {side.nearest[0]}, {100 * side.nearest[1]:.4g} % of the values"
        return [f"{side.name}: none of {side.tried} strategies gives these bits{near}"]
    count = len(side.matches)
    head = f"{side.name}: bit for bit {side.matches[0].strategy}{_also(side.matches[0])}"
    if count == 1:
        return [f"{head}, alone among {side.tried} strategies"]
    others = ", ".join(match.strategy for match in side.matches[1:_SHOWN])
    more = f", and {count - _SHOWN} more" if count > _SHOWN else ""
    return [
        head,
        f"  {count} strategies give the same bits here: the data cannot separate them ({others}{more})",
    ]


def _also(match: Match) -> str:
    if not match.also:
        return ""
    more = f" and {len(match.also) - 2} more names" if len(match.also) > 2 else ""
    return f" (the same tree: {', '.join(match.also[:2])}{more})"
