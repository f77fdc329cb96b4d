"""Numbers and tables of the page on elementwise functions."""

from __future__ import annotations


def number(x: float) -> str:
    """Write an error in ulps."""
    return f"{x:.2f}" if x < 99.5 else f"{x:.3g}"


def rounded_up(x: float) -> str:
    """Write a tolerance with two digits, never below it."""
    text = f"{x:.1e}"
    return text if float(text) >= x else f"{x * 1.05:.1e}"


def percent(x: float) -> str:
    """Write a share so that only 0 and 1 look like 0% and 100%."""
    if x in (0.0, 1.0):
        return f"{x:.0%}"
    text = f"{100 * x:.2f}%" if x > 0.99 or x < 0.01 else f"{100 * x:.1f}%"
    if text == "100.00%":
        return "over 99.99%"
    return "under 0.01%" if text == "0.00%" else text


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]
