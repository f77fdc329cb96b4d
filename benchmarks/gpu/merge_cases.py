"""Add what `make_profiles.py` found to profiles.

Usage: python benchmarks/gpu/merge_cases.py cases.json fpsim/profiles/h200
Cases that a profile has are kept as they are; a case is added where every replay had equal bits and it did not change
from run to run. A kind of product with another format or mode has a file of its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import json
import sys
from pathlib import Path
from typing import Any

from tensor_cores import KINDS, NAMES

from fpsim.profiles import Case, Profile, load
from fpsim.profiles.keys import Key
from fpsim.profiles.recording import save

_FILES = {"torch.cuda": "cublas-13.1", "cupy": "cupy-14.2", "jax.gpu": "jax-0.11"}
_SUMS = {"torch.cuda": "torch-2.11"}
_NOTES = {
    "torch.cuda": "contiguous operands at multiples of 256 bytes, through torch.mm, of fp8 torch._scaled_mm",
    "jax.gpu": "jnp.matmul of contiguous operands with the default precision, of shapes that it multiplies in TF32",
}


def place(row: dict[str, Any]) -> tuple[str, str, Key]:
    """Return the file, the format of its operands and the key of its cases."""
    name, kind = row["implementation"], row["kind"]
    file = _FILES[name]
    if kind == "f32" and "operands(tf32" in (row["strategy"] or ""):  # JAX's default precision, by the shape
        ties = "-away" if "nearest_away" in row["strategy"] else ""
        return f"{file}-tf32{ties}", "float32", Key()
    if kind == "f32":
        return _SUMS.get(name, file) if row["op"] == "sum" else file, "float32", Key()
    left, right, output = KINDS[kind]
    if kind == "tf32":
        return f"{file}-tf32", "float32", Key(mode="tf32")
    fast = kind.endswith("_fast")
    key = Key(
        right_dtype=NAMES[right] if left != right else "",
        output=output if output != NAMES[left] else "",
        mode="fast_accum" if fast else "",
        right="F" if left in ("e4m3", "e5m2") else "C",
    )
    return f"{file}-{kind.replace('_', '-')}", NAMES[left], key


def divided(text: str) -> tuple[str, str]:
    """Return a strategy without its operands, and those, which are a setting of a whole profile."""
    head, found, rest = text.partition("+operands(")
    inner, _, tail = rest.partition(")")
    return head + tail, f"+operands({inner})" if found else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    found = json.loads(options.cases.read_text(encoding="utf-8"))
    profiles: dict[str, Profile] = {}
    added: dict[str, int] = {}
    for row in found["cases"]:
        sound = row["strategy"] is not None and row.get("repeats", True) and "parts" not in str(row["strategy"])[-6:]
        if not sound:
            continue
        file, dtype, key = place(row)
        path = options.folder / f"{file}.json"
        if file not in profiles:
            base = options.folder / f"{_FILES[row['implementation']]}.json"
            head = load(str(path if path.exists() else base))
            today = dt.datetime.now(tz=dt.UTC).date().isoformat()
            if not path.exists():
                notes = (_NOTES[row["implementation"]],)
                head = dataclasses.replace(head, dtype=dtype, notes=notes, cases=(), key=key)
            profiles[file] = dataclasses.replace(head, recorded=today)
        profile = profiles[file]
        shape = tuple(row["shape"])
        text, operands = divided(row["strategy"])
        if not profile.cases and operands:
            profile = profiles[file] = dataclasses.replace(profile, settings=operands)
        if operands != profile.settings:
            print(f"left out, its operands are others than {profile.settings}: {file} {row['strategy']} {shape}")
            continue
        if any((case.op, case.shape, case.key) == (row["op"], shape, key) for case in profile.cases):
            continue
        case = Case(row["op"], shape, ((text, None, None),), {"replays": row["replays"], "calls": row["calls"]}, key)
        open_note = f"no strategy was found for {row['op']} {'x'.join(map(str, shape))}"
        notes = tuple(note for note in profile.notes if note != open_note)
        profiles[file] = dataclasses.replace(profile, cases=(*profile.cases, case), notes=notes)
        added[file] = added.get(file, 0) + 1
    for file, count in added.items():
        path = options.folder / f"{file}.json"
        path.unlink(missing_ok=True)
        save(profiles[file], path)
        print(f"{file}: {count} cases added, {len(profiles[file].cases)} in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
