"""The table of what reveal establishes on this machine, for the documentation.

Usage: python benchmarks/reveal_table.py [--only NAME ...] [--label TEXT] -o ROWS.json   reveals, and adds to the file
       python benchmarks/reveal_table.py --print ROWS.json ...                           prints the table
Implementations are those of `fpsim check --list` that run on the CPU, and a few functions that are written here: exact,
sorted, random, compensated and wider sums. Run it in an environment for each library; OPENBLAS_CORETYPE chooses
OpenBLAS's kernels.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from make_cpu_profiles import PRODUCTS, VECTORS, predicted

from fpsim import reveal
from fpsim.devices import implementations

_MATVECS = ((33, 77), (64, 256), (400, 400))
_MOST = 4  # strategies that a row names


def kahan(x: Any) -> Any:
    total = compensation = np.float32(0)
    for term in x:
        corrected = term - compensation
        new = total + corrected
        compensation = (new - total) - corrected
        total = new
    return total


def neumaier(x: Any) -> Any:
    total = compensation = np.float32(0)
    for term in x:
        new = total + term
        larger, smaller = (total, term) if abs(total) >= abs(term) else (term, total)
        compensation += (larger - new) + smaller
        total = new
    return total + compensation


_random = np.random.default_rng(0)
OWN: dict[str, Callable[..., Any]] = {
    "Kahan's sum": kahan,
    "Neumaier's sum": neumaier,
    "np.sum in float64": lambda x: np.float32(np.sum(x, dtype=np.float64)),
    "math.fsum": lambda x: np.float32(math.fsum(x.tolist())),
    "np.sum of sorted terms": lambda x: np.sum(np.sort(x)),
    "sum in random order": lambda x: np.add.accumulate(_random.permutation(x))[-1],
}


def tasks(names: list[str] | None) -> list[tuple[str, str, tuple[int, ...], Callable[..., Any], list[str]]]:
    """Return (implementation, operation, shape, function, strategies to try first)."""
    found: list[Any] = []
    shapes = [tuple(map(int, text.split("x"))) for text in PRODUCTS]
    for one in implementations():
        if one.kind != "cpu" or not one.available or (names is not None and one.name not in names):
            continue
        cases = [(op, (n,)) for op in ("sum", "dot") for n in VECTORS]
        cases += [("matmul", shape) for shape in shapes] + [("matvec", shape) for shape in _MATVECS]
        found += [
            (one.name, op, shape, lambda *x, one=one, op=op: one.run(op, *x), predicted(one, op, shape))
            for op, shape in cases
            if op in one.routines and one.routines[op].reproducible
        ]
    for name, function in OWN.items():
        if names is None or name in names:
            found += [(name, "sum", (n,), function, []) for n in VECTORS]
    return found


def measure(names: list[str] | None, label: str, path: Path) -> None:
    """Reveal every case, and write the rows after each."""
    rows = json.loads(path.read_text()) if path.exists() else []
    done = {(row["name"], row["op"], tuple(row["shape"])) for row in rows}
    for name, op, shape, function, rules in tasks(names):
        full = f"{name}{label}"
        if (full, op, shape) in done:
            continue
        r = reveal(function, op=op, shape=shape, strategies=rules, probe=True)
        e = r.evidence
        rows.append(
            {
                "name": full, "op": op, "shape": list(shape), "calls": e.calls, "seconds": round(e.seconds, 2),
                "strategies": [str(r.strategy)] if r.strategy else [str(part.strategy) for part in r.parts],
                "replays": e.replays, "equal": e.equal, "notes": list(e.notes),
            }
        )  # fmt: skip
        path.write_text(json.dumps(rows))
        print(full, op, shape, e.calls, round(e.seconds, 1), rows[-1]["strategies"][:2] or e.notes, flush=True)


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the lines of the table."""
    lines = [
        "| implementation | operation | established | equal replays | calls | seconds | strategies |",
        "|---|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["name"], row["op"]), []).append(row)
    last = ""
    for (name, op), own in groups.items():
        found = [row for row in own if row["strategies"]]
        calls, seconds = [row["calls"] for row in own], [row["seconds"] for row in own]
        equal, replays = sum(row["equal"] for row in found), sum(row["replays"] for row in found)
        rate = f"{equal:,} of {replays:,}" if found else "none claimed"
        few, many = min(calls), max(calls)
        spent = f"{statistics.median(seconds):.1f} ({max(seconds):.1f})"
        lines.append(
            f"| {'' if name == last else name} | {op} | {len(found)} of {len(own)} | {rate} |"
            f" {few if few == many else f'{few} to {many}'} | {spent} | {_named(own, found)} |"
        )
        last = name
    return lines


def _named(own: list[dict[str, Any]], found: list[dict[str, Any]]) -> str:
    """Return the strategies that most cases have, or what is said of those that have none."""
    counts: dict[str, int] = {}
    for row in found:
        for text in row["strategies"]:
            short = "a tree" if "tree(" in text else f"`{text}`"
            counts[short] = counts.get(short, 0) + 1
    names = sorted(counts, key=lambda text: -counts[text])
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    said = dict.fromkeys(_shortened(note) for row in own for note in row["notes"][:1])
    texts = [", ".join(names[:_MOST]) + more] if names else []
    return "; ".join([*texts, *(list(said)[:2] if len(found) < len(own) else [])])


def _shortened(note: str) -> str:
    return textwrap.shorten(note.partition(":")[0], 62, placeholder=" ...")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="names of implementations")
    parser.add_argument("--label", default="", help="added to their names, such as ', Haswell kernels'")
    parser.add_argument("--print", nargs="+", type=Path, dest="shown")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    if options.shown:
        print("\n".join(table([row for path in options.shown for row in json.loads(path.read_text())])))
    elif options.output:
        measure(options.only, options.label, options.output)
    else:
        parser.error("give -o or --print")
    return 0


if __name__ == "__main__":
    sys.exit(main())
