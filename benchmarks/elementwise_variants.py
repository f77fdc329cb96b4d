"""The section on code paths of one processor, from docs/data/variants-*.json, for docs/elementwise.md."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from elementwise_tables import number, percent, table

Entry = dict[str, Any]

_LAYOUTS = {
    "alone": "alone", "short": "in a short array", "shifted": "moved along", "strided": "every second number",
    "reversed": "backwards (`x[::-1]`)",
}  # fmt: skip

_INTRODUCTION = """\
## One processor, several code paths

A library can have several programs for one function, and chooses by what the processor has. So one version of NumPy or
PyTorch gives other bits on another CPU. {device} was made to run each of them,
by {how}
({libraries}).
Inputs: {what}.{dropped}
"""

_GROUPS = """\
Which give the same bits for all inputs, subnormal numbers, infinities and NaNs included: those between two commas.
"""

_FAR = """\
How often the bits differ where they do: share of the telling inputs, and the largest difference, counted in float32
numbers.
"""

_ERRORS = """\
Largest error in ulps of each, and share of the telling inputs with correctly rounded results:
"""

_PLACES = """\
### Where the number lies in the array

Most functions give x[i] the same bits wherever it lies. These do not: the rest of an array that does not fill a vector, an
array with gaps, or one that runs backwards goes to another program. Share of 4096 telling inputs whose bits are other than
in one whole array: *alone*, each in an array of its own; *in a short array*, of 1 to 68 numbers; *moved along*, with the
first 1 to 16 numbers left out; *every second number* of an array twice as long; *backwards*. A copy
(`np.ascontiguousarray(x)`) cures the last two.
"""


def _same(entry: Entry, a: str, b: str) -> bool:
    return a == b or _pair(entry, a, b)["inputs"] == 0


def _pair(entry: Entry, a: str, b: str) -> Entry:
    return next(pair for pair in entry["different"] if set(pair["between"]) == {a, b})


def groups(entry: Entry) -> list[list[str]]:
    """Return the variants of a function in groups that have the same bits."""
    found: list[list[str]] = []
    for e in entry["errors"]:
        name = e["implementation"]
        for group in found:
            if _same(entry, group[0], name):
                group.append(name)
                break
        else:
            found.append([name])
    return found


def _reduced(record: Entry) -> tuple[Entry, list[str]]:
    """Return the record without variants that have the bits of the one before everywhere, and a note for each."""
    notes: list[str] = []
    gone: set[str] = set()
    for names in record["variants"].values():
        kept = names[0]
        for name in names[1:]:
            entries = [e for e in record["functions"] if name in e["layouts"]]
            if all(_same(e, kept, name) and e["layouts"][kept] == e["layouts"][name] for e in entries):
                notes.append(f"{name} has the bits of {kept} for all of them, and is left out below")
                gone.add(name)
            else:
                kept = name
    reduced = {
        **record,
        "variants": {k: [n for n in names if n not in gone] for k, names in record["variants"].items()},
        "implementations": [x for x in record["implementations"] if x["name"] not in gone],
        "functions": [
            {
                **entry,
                "errors": [e for e in entry["errors"] if e["implementation"] not in gone],
                "layouts": {name: found for name, found in entry["layouts"].items() if name not in gone},
            }
            for entry in record["functions"]
        ],
    }
    return reduced, notes


def _short(names: Iterable[str]) -> str:
    """Write names so that a library is named once: ``numpy AVX2 and AVX-512``."""
    out = []
    for library, members in itertools.groupby(names, key=lambda name: name.split(" ", 1)[0]):
        out.append(f"{library} {' and '.join(name.split(' ', 1)[1] for name in members)}")
    return " = ".join(out)


def _distance(count: int) -> str:
    return str(count) if count < 1000 else "no digit in common"


def _far(record: Entry) -> list[str]:
    lines: list[str] = []
    libm = record["variants"]["libm"][-1]
    for library, names in record["variants"].items():
        pairs = [*itertools.pairwise(names), *([(names[0], libm)] if library != "libm" else [])]
        if not pairs:
            continue
        rows, never = [], []
        for entry in record["functions"]:
            known = {e["implementation"]: e for e in entry["errors"]}
            if not set(names) & set(known):
                continue
            cells = []
            for a, b in pairs:
                if a not in known or b not in known:
                    cells.append("-")
                    continue
                pair = _pair(entry, a, b)
                share = pair["telling"] / known[a]["telling"]
                cells.append("never" if pair["inputs"] == 0 else f"{percent(share)}, {_distance(pair['farthest'])}")
            if all(cell in {"never", "-"} for cell in cells):
                never.append(f"`{entry['function']}`")
            else:
                rows.append([f"`{entry['function']}`", *cells])
        if rows:
            lines += table(["function", *(" : ".join(pair) for pair in pairs)], rows)
        if never:
            lines += [f"{'Never' if not rows else 'All others never'}, of {library}: {', '.join(never)}.", ""]
    return lines


def _errors(record: Entry) -> list[str]:
    names = [x["name"] for x in record["implementations"]]
    rows = []
    for entry in record["functions"]:
        known = {e["implementation"]: e for e in entry["errors"]}
        cells = [
            f"{number(known[n]['max_ulp'])}, {percent(known[n]['telling_correct'] / known[n]['telling'])}"
            if n in known
            else "-"
            for n in names
        ]
        rows.append([f"`{entry['function']}`", *cells])
    return table(["function", *names], rows)


def _places(record: Entry) -> list[str]:
    rows = []
    for entry in record["functions"]:
        seen: dict[str, list[str]] = {}
        for name, found in entry["layouts"].items():
            if any(found.values()):
                cells = ["-" if found[key] is None else percent(found[key]) for key in _LAYOUTS]
                seen.setdefault("|".join(cells), []).append(name)
        rows += [[f"`{entry['function']}`", _short(names), *cells.split("|")] for cells, names in seen.items()]
    return table(["function", "variant", *_LAYOUTS.values()], rows) if rows else ["None was found.", ""]


def sections(data: Path) -> list[str]:
    """Return the lines of the section; none without measurements."""
    out: list[str] = []
    for path in sorted(data.glob("variants-*.json")):
        record, notes = _reduced(json.loads(path.read_text(encoding="utf-8")))
        first = record["implementations"][0]
        variables = {name: None for variant in record["environment"].values() for name in variant}
        libraries = {f"{x['library']} {x['version']}" for x in record["implementations"]}
        out.append(
            _INTRODUCTION.format(
                device=f"An {first['device'].split(',')[0]}",
                how=", ".join(f"`{name}`" for name in variables),
                libraries=", ".join(sorted(libraries)),
                dropped="".join(f"\n{note}." for note in notes),
                what=record["functions"][0]["errors"][0]["inputs"],
            )
        )
        rows = [
            [f"`{entry['function']}`", ", ".join(_short(group) for group in groups(entry))]
            for entry in record["functions"]
        ]
        out += [_GROUPS, *table(["function", "same bits"], rows)]
        out += [_FAR, *_far(record), _ERRORS, *_errors(record), _PLACES, *_places(record)]
    return out
