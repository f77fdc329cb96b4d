"""Measure the elementwise functions of every library found here, on the CPU and the GPU, and write what they gave.

python benchmarks/gpu/elementwise.py [--samples 67108864 | --exhaustive] [--functions exp log] [--seconds 270] [-o out.json]

Each function is compared with correctly rounded results, and each library with every other. With ``--exhaustive`` the
functions of one operand are given all 2**32 bit patterns. Works without a GPU; libraries that are missing are named. What
is in the output file already stays, but for what is measured anew.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX shares the GPU with the other libraries

from fpsim.devices.elementwise import (
    FUNCTIONS,
    Comparison,
    Elementwise,
    elementwise_implementations,
    measure,
    measure_all,
)

_PATTERNS = 2**32
_SEVERAL = 2**27  # most inputs of functions of several operands, which cannot be tried exhaustively
_FIRST = 2**20  # inputs of the run that compiles everything and tells how long a function takes


def _progress(function: str) -> Any:
    def show(done: int, total: int) -> None:
        if done == total or sys.stderr.isatty():
            end = "\n" if done == total else "\r"
            print(f"{function}: {done:,} of {total:,}", end=end, file=sys.stderr, flush=True)

    return show


def _working(function: str, found: list[Elementwise]) -> list[Elementwise]:
    """Return the implementations that have the function and run it; this also compiles it, one thread at a time."""
    working = []
    for x in found:
        if function not in x.functions:
            continue
        try:
            measure(x, function, samples=2**12)
        except Exception as error:  # noqa: BLE001
            print(f"{function} of {x.name} failed: {type(error).__name__}: {error}", file=sys.stderr)
        else:
            working.append(x)
    return working


def _affordable(per_input: float, wanted: int, seconds: float) -> int:
    """Return the largest power of two up to `wanted` that takes at most `seconds`."""
    samples = wanted
    while samples > _FIRST and samples * per_input > seconds:
        samples //= 2
    return samples


def measure_function(function: str, found: list[Elementwise], wanted: int, seconds: float) -> Comparison:
    """Measure one function in about `seconds`: a first small run compiles, a second tells the time per input."""
    implementations = _working(function, found)
    begin = time.perf_counter()
    first = measure_all(implementations, function, samples=_FIRST)
    per_input = (time.perf_counter() - begin) / _FIRST
    if FUNCTIONS[function].operands > 1:
        wanted = min(wanted, _SEVERAL)
    samples = _affordable(per_input, wanted, seconds)
    if samples <= _FIRST:
        return first
    return measure_all(implementations, function, samples=samples, progress=_progress(function))


def merged(recorded: dict[str, Any], comparison: Comparison) -> dict[str, Any]:
    """Return the record with what was measured of one function replaced or added, in the order of `FUNCTIONS`."""
    entries = {entry["function"]: entry for entry in recorded["functions"]}
    new = comparison.to_dict()
    old = entries.get(comparison.function, {"errors": [], "different": []})
    errors = {e["implementation"]: e for e in (*old["errors"], *new["errors"])}
    run = {e["implementation"] for e in new["errors"]}
    different = [pair for pair in old["different"] if not run & set(pair["between"])]  # the others saw other inputs
    names = [x["name"] for x in recorded["implementations"]]
    entries[comparison.function] = {
        "function": comparison.function,
        "errors": [errors[name] for name in names if name in errors],
        "different": different + new["different"],
    }
    return {**recorded, "functions": [entries[name] for name in FUNCTIONS if name in entries]}


def _without(recorded: dict[str, Any], gone: set[str]) -> list[dict[str, Any]]:
    """Return the functions of a record without what was measured of some implementations."""
    return [
        {
            "function": entry["function"],
            "errors": [e for e in entry["errors"] if e["implementation"] not in gone],
            "different": [pair for pair in entry["different"] if not gone & set(pair["between"])],
        }
        for entry in recorded["functions"]
    ]


def started(everything: list[Elementwise], output: Path | None) -> dict[str, Any]:
    """Return an empty record, or the one in the output file without what other versions of these libraries gave."""
    new = {x.name: x.to_dict() for x in everything}
    recorded: dict[str, Any] = {"format": "fpsim-elementwise-1", "implementations": list(new.values()), "functions": []}
    if output is None or not output.exists():
        return recorded
    before: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    old = {x["name"]: x for x in before["implementations"]}
    run = {name: x for name, x in new.items() if not x["unavailable"] or name not in old}
    gone = {name for name, x in run.items() if name in old and old[name]["version"] != x["version"]}
    if gone:
        print(f"{output} has other versions of {', '.join(sorted(gone))}: they are replaced", file=sys.stderr)
    return {**before, "implementations": list((old | run).values()), "functions": _without(before, gone)}


def table(recorded: dict[str, Any]) -> str:
    """Return one line for each function, with a column for each implementation."""
    names = [x["name"] for x in recorded["implementations"] if not x["unavailable"]]
    lines = [f"{'':<13}" + "".join(f"{name:>20}" for name in names)]
    for entry in recorded["functions"]:
        cells = dict.fromkeys(names, "-")
        for e in entry["errors"]:
            share = 100 * e["telling_correct"] / max(e["telling"], 1)
            kept = "*" if e["flushed"] else ""
            exact = e["telling"] == e["telling_correct"] and not e["special"]
            cells[e["implementation"]] = ("exact" if exact else f"{e['max_ulp']:.3g} {share:.4g}%") + kept
        lines.append(f"{entry['function']:<13}" + "".join(f"{cell:>20}" for cell in cells.values()))
    return "\n".join([*lines, "largest error in ulps, share with correct bits; * not all subnormal numbers are kept"])


def main() -> int:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", nargs="+", choices=list(FUNCTIONS), default=list(FUNCTIONS), metavar="NAME")
    parser.add_argument("--implementations", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--samples", type=int, default=2**27, help="largest number of inputs, a power of two")
    parser.add_argument("--exhaustive", action="store_true", help="all 2**32 bit patterns, however long it takes")
    parser.add_argument("--seconds", type=float, default=240.0, help="about how long to measure in all")
    parser.add_argument("-o", "--output", type=Path, help="JSON file to write, or to update")
    arguments = parser.parse_args()
    wanted, seconds = (_PATTERNS, float("inf")) if arguments.exhaustive else (arguments.samples, arguments.seconds)
    only = arguments.implementations
    everything = [x for x in elementwise_implementations() if not only or x.name in only]
    for x in everything:
        print(x, file=sys.stderr)
    found = [x for x in everything if x.available]
    functions = [name for name in arguments.functions if any(name in x.functions for x in found)]
    recorded = started(everything, arguments.output)
    end = time.perf_counter() + seconds
    for k, function in enumerate(functions):
        share = max(end - time.perf_counter(), 0) / (len(functions) - k)
        recorded = merged(recorded, measure_function(function, found, wanted, share))
        if arguments.output:
            arguments.output.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    print(table(recorded))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
