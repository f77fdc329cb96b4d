"""Write docs/elementwise.md from the recorded measurements in docs/data: elementwise-*.json and variants-*.json.

python benchmarks/make_elementwise_page.py [--check]

With ``--check`` nothing is written; the exit code is 1 if the page is not what the measurements give. The measurements are
made by benchmarks/gpu/elementwise.py and benchmarks/cpu_variants.py.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elementwise_tables import number, percent, rounded_up, table
from elementwise_variants import sections

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "elementwise.md"
REQUIRED = ["add", "subtract", "multiply", "divide", "sqrt", "fma"]
ULP = 2.0**-23
_PLACES = {"cpu": {"cpu"}, "gpu": {"gpu", "model"}}  # the models have the bits of a GPU

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Machine:
    """The measurements of one machine."""

    implementations: list[Entry]
    functions: dict[str, Entry]

    @property
    def names(self) -> list[str]:
        """Implementations that were measured, those on the processor first."""
        measured = [x for x in self.implementations if any(self.errors(f, x["name"]) for f in self.functions)]
        return [x["name"] for x in sorted(measured, key=lambda x: str(x["kind"]))]

    @property
    def label(self) -> str:
        """The processor, and the GPU if there is one."""
        devices = {x["kind"]: x["device"] for x in self.implementations if x["name"] in self.names}
        return " and ".join(devices[kind] for kind in ("cpu", "gpu") if kind in devices)

    def kind(self, name: str) -> str:
        """``cpu`` or ``gpu``."""
        return next(str(x["kind"]) for x in self.implementations if x["name"] == name)

    def errors(self, function: str, name: str) -> Entry | None:
        """What was measured for one function of one implementation."""
        entries = self.functions[function]["errors"] if function in self.functions else []
        return next((e for e in entries if e["implementation"] == name), None)

    def different(self, function: str, a: str, b: str) -> float | None:
        """Share of the telling inputs for which two implementations differ."""
        entry = self.functions.get(function)
        for pair in entry["different"] if entry else []:
            if set(pair["between"]) == {a, b}:
                errors = self.errors(function, a)
                assert errors is not None
                return float(pair["telling"] / errors["telling"])
        return None


def machines() -> list[Machine]:
    """Return the recorded machines, in the order of their files' names."""
    found = []
    for path in sorted((DOCS / "data").glob("elementwise-*.json")):
        recorded = json.loads(path.read_text(encoding="utf-8"))
        functions = {entry["function"]: entry for entry in recorded["functions"]}
        found.append(Machine(recorded["implementations"], functions))
    return found


def is_exact(e: Entry) -> bool:
    """Whether all results outside the subnormal numbers have the bits of the correctly rounded ones."""
    return bool(e["telling"] == e["telling_correct"] and e["special"] == e["zero_signs"] == 0 and e["max_ulp"] <= 0.5)


def measured_functions(found: list[Machine]) -> list[str]:
    """Functions that IEEE 754 does not require to be correctly rounded, in the recorded order."""
    seen = dict.fromkeys(f for m in found for f in m.functions)
    return [f for f in seen if f not in REQUIRED and f != "multiply_add"]


def extremes(found: list[Machine], function: str, kind: str) -> list[tuple[float, str]]:
    """Return (largest error, implementation) of each implementation of a kind, smallest first."""
    out = []
    for m in found:
        for name in m.names:
            e = m.errors(function, name)
            if e and m.kind(name) in _PLACES[kind]:
                out.append((float(e["max_ulp"]), name))
    return sorted(out)


def span(errors: list[tuple[float, str]]) -> str:
    """Write the smallest and largest of the largest errors, with whose they are."""
    if not errors:
        return "-"
    (low, best), (high, worst) = errors[0], errors[-1]
    return f"{number(low)} ({best})" if best == worst else f"{number(low)} ({best}) to {number(high)} ({worst})"


def overview(found: list[Machine]) -> list[str]:
    """Return the table that answers by how much a processor and a GPU can differ."""
    rows = []
    for function in measured_functions(found):
        cpu, gpu = extremes(found, function, "cpu"), extremes(found, function, "gpu")
        reach = ((cpu[-1][0] if cpu else 0.5) + (gpu[-1][0] if gpu else 0.5)) * ULP
        rows.append([f"`{function}`", span(cpu), span(gpu), rounded_up(reach) if reach < 0.1 else "none does"])
    return table(
        ["function", "largest error on a CPU, ulp", "largest error on a GPU, ulp", "rtol that covers both"], rows
    )


def exceptions(found: list[Machine]) -> list[str]:
    """Name each required operation that some implementation does not round correctly."""
    lines = []
    for m in found:
        for function in REQUIRED:
            for name in m.names:
                e = m.errors(function, name)
                if e and not is_exact(e):
                    wrong = percent(1 - e["telling_correct"] / e["telling"])
                    lines.append(
                        f"* `{function}` of {name} {e['version']} on {e['device']}: {wrong} of the results are wrong,"
                        f" the largest error is {number(e['max_ulp'])} ulp; {example(e['worst'])}."
                        f"{_NOTES.get((function, name), '')}"
                    )
    return lines or ["None was found."]


def example(worst: Entry) -> str:
    """Write one input with its two results."""
    given = ", ".join(f"{float.fromhex(x):.9g}" for x in worst["operands"])
    observed, correct = (float.fromhex(worst[key]) for key in ("observed", "correct"))
    return f"for {given} it gives {observed:.9g}, correctly rounded {correct:.9g}"


def roundings(m: Machine, name: str, e: Entry) -> str:
    """Tell how a*b + c is rounded: NumPy rounds the product and the sum."""
    if is_exact(e):
        return "fused"
    if name == "numpy" or m.different("multiply_add", "numpy", name) == 0:
        return "two roundings"
    return f"{percent(e['telling_correct'] / e['telling'])} as if fused"


def required(m: Machine) -> list[str]:
    """Return the table of the operations that are correctly rounded by IEEE 754."""
    rows = []
    for function in (*REQUIRED, "multiply_add"):
        cells = []
        for name in m.names:
            e = m.errors(function, name)
            if e is None:
                cells.append("-")
            elif function == "multiply_add":
                cells.append(roundings(m, name, e))
            else:
                cells.append("exact" if is_exact(e) else f"{percent(e['telling_correct'] / e['telling'])} exact")
        rows.append([f"`{'a*b + c' if function == 'multiply_add' else function}`", *cells])
    return table(["operation", *m.names], rows)


def accuracy(m: Machine) -> list[str]:
    """Return the table of largest errors and shares of correctly rounded results."""
    rows = []
    for function in measured_functions([m]):
        cells = []
        for name in m.names:
            e = m.errors(function, name)
            cells.append(f"{number(e['max_ulp'])}, {percent(e['telling_correct'] / e['telling'])}" if e else "-")
        rows.append([f"`{function}`", *cells])
    return table(["function", *m.names], rows)


def worst(m: Machine) -> list[str]:
    """Return the table of the inputs with the largest errors."""
    rows = []
    for function in measured_functions([m]):
        found = [e for name in m.names if (e := m.errors(function, name)) and e["worst"]]
        e = max(found, key=lambda e: float(e["max_ulp"]))
        given = ", ".join(f"{float.fromhex(x):.9g}" for x in e["worst"]["operands"])
        observed, correct = (f"{float.fromhex(e['worst'][key]):.9g}" for key in ("observed", "correct"))
        rows.append([f"`{function}`", e["implementation"], number(e["max_ulp"]), given, observed, correct])
    return table(["function", "library", "ulp", "input", "gives", "correctly rounded"], rows)


def specials(found: list[Machine]) -> list[str]:
    """Name wrong NaNs, infinities and signs of zeros of the functions."""
    lines = []
    for m in found:
        for function in measured_functions([m]):
            for name in m.names:
                e = m.errors(function, name)
                if e and e["special"]:
                    lines.append(
                        f"* `{function}` of {name}: {e['special']:,} of {e['count']:,} inputs;"
                        f" {example(e['special_example'])}."
                    )
                if e and e["zero_signs"]:
                    lines.append(f"* `{function}` of {name}: {e['zero_signs']:,} zeros have the wrong sign.")
    return lines or ["None was found."]


def pairs(m: Machine) -> list[tuple[str, str]]:
    """Return the implementations whose results are compared with each other: neighbours in use."""
    wanted = [
        ("numpy", "cupy"), ("torch.cpu", "torch.cuda"), ("jax.cpu", "jax.gpu"), ("numba", "numba.cuda"),
        ("numba.cuda", "torch.cuda"), ("torch.cuda", "cupy"), ("torch.cuda", "jax.gpu"), ("numpy", "torch.cpu"),
        ("numpy", "numba"), ("numba", "libm"), ("numba", "torch.cpu"), ("torch.cpu", "jax.cpu"), ("numba", "jax.cpu"),
        ("torch.cpu", "torch.cuda (model)"), ("numpy", "cupy (model)"),
    ]  # fmt: skip
    names = m.names
    has_gpu = any(m.kind(name) == "gpu" for name in names)
    chosen = [pair for pair in wanted if pair[0] in names and pair[1] in names]
    return [p for p in chosen if "gpu" in (m.kind(p[0]), m.kind(p[1]))] if has_gpu else chosen


def disagreement(m: Machine) -> list[str]:
    """Return the table of how often two implementations differ."""
    rows = []
    for function in (*(f for f in REQUIRED if f in m.functions), *measured_functions([m])):
        cells = []
        for a, b in pairs(m):
            share = m.different(function, a, b)
            cells.append("-" if share is None else ("never" if share == 0 else percent(share)))
        if any(cell != "-" for cell in cells):
            rows.append([f"`{function}`", *cells])
    return table(["function", *(f"{a}, {b}" for a, b in pairs(m))], rows) if rows else []


def subnormals(m: Machine) -> list[str]:
    """Return the table of what becomes of subnormal numbers."""
    rows = []
    for name in m.names:
        groups: dict[str, list[str]] = {"kept": [], "flushed": [], "partly": []}
        for function in m.functions:
            e = m.errors(function, name)
            if not e or not e["subnormals"] or function == "multiply_add":
                continue
            lost = e["subnormal_correct"] < 0.01 * e["subnormals"]
            groups["kept" if not e["flushed"] else "flushed" if lost else "partly"].append(function)
        everything = sum(map(len, groups.values()))
        cells = ["all" if len(g) == everything else ", ".join(g) or "-" for g in groups.values()]
        rows.append([name, *cells])
    return table(["library", "kept in", "flushed to zero in", "flushed in part in"], rows)


def sources(m: Machine) -> list[str]:
    """Say what was measured on what."""
    used = [x for x in m.implementations if x["name"] in m.names]
    lines = [f"* {x['name']}: {x['library']} {x['version']}, {x['device']}" for x in used if x["kind"] != "model"]
    if len(lines) < len(used):
        lines.append(
            "* (model): the models of `fpsim.elementary`, which have [the bits of a GPU](elementary.md); `exp2` of cupy"
            " (model) is CUDA's `exp2f`, which CuPy does not use"
        )
    groups: dict[str, list[str]] = {}
    for function, entry in m.functions.items():
        whose: dict[str, list[str]] = {}
        for e in entry["errors"]:
            whose.setdefault(e["inputs"], []).append(e["implementation"])
        for what, names in whose.items():
            only = "" if len(whose) == 1 else f" ({', '.join(names)})"
            groups.setdefault(what, []).append(f"`{function}`{only}")
    lines += ["", *(f"Inputs of {', '.join(functions)}: {what}.\n" for what, functions in groups.items())]
    return lines


def page(found: list[Machine]) -> str:
    """Return the whole page."""
    out = [_INTRODUCTION, *overview(found), _TOLERANCE, _NEVER]
    for m in found:
        out += [f"On {m.label}:", "", *required(m)]
    out += ["Operations that should be exact and are not:", "", *exceptions(found), "", _DIFFER]
    for m in found:
        out += [f"On {m.label}:", "", *accuracy(m), "The largest of these errors, and where it occurs:", "", *worst(m)]
    out += ["Wrong NaNs, infinities and signs of zeros, subnormal numbers apart:", "", *specials(found), "", _AGREE]
    for m in found:
        if lines := disagreement(m):
            out += [f"On {m.label}:", "", *lines]
    out += [*sections(DOCS / "data"), _SUBNORMALS]
    for m in found:
        out += [f"On {m.label}:", "", *subnormals(m)]
    out += [_MEASURED]
    for m in found:
        out += [f"### {m.label}", "", *sources(m), ""]
    return "\n".join(out).replace("\n\n\n", "\n\n").rstrip() + "\n"


_NOTES = {
    ("sqrt", "torch.cpu"): " PyTorch hands arrays to the vector functions of Intel's MKL, whose square root is not the"
    " processor's (pytorch issues 31250 and 188792). Take the square root in float64 and round it, or use NumPy.",
}

_INTRODUCTION = """\
<!-- Written by benchmarks/make_elementwise_page.py from docs/data: do not edit. -->

# Elementwise functions on CPU and GPU

A sum has an order, and the order decides its last bits. `exp(x)` has none: where two devices give different bits for
it, their libraries compute the function itself differently. This page says for which operations that happens, and by
how much, as measured in float32.

In short:

* **Add, subtract, multiply, divide, square root and fused multiply-add have one correct result**, which IEEE 754
  demands, and CPU and GPU give the same bits. The exceptions that were found are listed below: look there before you
  rely on it.
* **`a*b + c` differs** where one device fuses it into one instruction with one rounding and another rounds twice. Few
  bits in general, but where the sum cancels, all of them.
* **`exp`, `log`, `sin`, `pow` and the like differ in their last bits**, from library to library rather than from device
  to device. Nobody promises correct rounding, and each library has its own program. The table says how far off each is;
  for PyTorch and CuPy on a GPU, `fpsim.elementary` gives [the very bits](elementary.md).
* **One library gives other bits on another processor**, and a few functions even for another place in the array
  ([code paths](#one-processor-several-code-paths)).
* **Subnormal numbers** (below 1.18e-38) are zero for some libraries.

Errors are in ulps: 1 ulp is the distance between two neighbouring float32 numbers, 6e-8 to 1.2e-7 of the number. A
correctly rounded result is off by 0.5 ulp at most.

## By how much functions differ
"""

_TOLERANCE = """\
The last column is the tolerance to give `numpy.testing.assert_allclose(a, b, rtol=..., atol=0)` when one array was
computed by any of these CPU libraries and the other by any of these GPU libraries (where a column is empty, by a
correctly rounded function), for results that are not subnormal. Two libraries with errors e and f differ by at most
e + f ulps, and an ulp is at most 1.2e-7 of the number.
"""

_NEVER = """\
## What never differs

*exact*: every result had the bits of the correctly rounded one, so that all libraries marked so give equal bits.
Subnormal numbers are left aside; they have a table of their own.
"""

_DIFFER = """\
## What differs, library by library

Largest error in ulps, and share of the results with the bits of the correctly rounded one. The share counts only inputs
that tell something: those whose result is the input itself, 0, 1/2, 1, an infinity or NaN are left out, because any
library gets them right. 100% would mean correct rounding. `rsqrt` and `sigmoid` are `1 / sqrt(x)` and
`1 / (1 + exp(-x))` where a library has no such function: two or three roundings, hence larger errors. `silu`, `gelu` and
`gelu_tanh` lose every digit for large negative numbers, where their formulas cancel or overflow: an error of 1.7e7 ulp is a
zero in place of a small number.
"""

_AGREE = """\
## How often two libraries disagree

Share of the telling inputs for which the bits differ.
"""

_SUBNORMALS = """\
## Subnormal numbers

*Flushed to zero*: the library takes subnormal operands as zero, or gives zero for a subnormal result.
"""

_MEASURED = """\
## How this was measured

The correctly rounded result comes from float64 with a proof of safety: where its error bound reaches across a rounding
boundary, mpmath decides with as many bits as it takes. `fpsim.devices.elementwise.measure` does the same for your own
library, and

```
python benchmarks/gpu/elementwise.py -o docs/data/elementwise-mine.json
python benchmarks/cpu_variants.py -o docs/data/variants-mine.json
python benchmarks/make_elementwise_page.py
```

measure every library on your machine and its code paths, and add them to this page. All 2^32 bit patterns, where
stated, are all float32 numbers there are, so the largest error is the largest there is; in a sample of them, it may be a
little larger elsewhere.
"""


def main() -> int:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if the page is outdated")
    arguments = parser.parse_args()
    text = page(machines())
    if arguments.check:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
