"""Compare the code paths of one library on one processor: SIMD levels of NumPy and PyTorch, libm with and without FMA.

python benchmarks/cpu_variants.py [--samples 16777216] [--functions exp log] [-o docs/data/variants-cpu.json]

Every variant runs in a process of its own, with the environment variable that chooses it. `benchmarks/make_elementwise_page.py`
writes the tables. Without PyTorch its variants are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.devices import _elementwise_inputs as inputs
from fpsim.devices._elementwise_reference import reference
from fpsim.devices.elementwise import FUNCTIONS, Elementwise, elementwise_implementations, measure_all

Array = NDArray[Any]

_V4 = "AVX512_ICL AVX512_SPR"
_V3 = f"X86_V4 {_V4}"
VARIANTS = {
    "numpy": [
        ("numpy SSE4.2", {"NPY_DISABLE_CPU_FEATURES": f"X86_V3 {_V3}"}),
        ("numpy AVX2", {"NPY_DISABLE_CPU_FEATURES": _V3}),
        ("numpy AVX-512", {"NPY_DISABLE_CPU_FEATURES": _V4}),
        ("numpy all", {"NPY_DISABLE_CPU_FEATURES": ""}),
    ],
    "libm": [
        ("libm SSE2", {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2"}),
        ("libm FMA", {"GLIBC_TUNABLES": ""}),
    ],
    "torch.cpu": [
        ("torch default", {"ATEN_CPU_CAPABILITY": "default"}),
        ("torch AVX2", {"ATEN_CPU_CAPABILITY": "avx2"}),
        ("torch AVX-512", {"ATEN_CPU_CAPABILITY": "avx512"}),
    ],
}
_EXACT = {"add", "subtract", "multiply", "divide", "fma", "multiply_add"}
_INPUTS, _LONGEST = 4096, 69  # of the comparison of layouts


def layouts(call: Callable[..., Array], operands: list[Array]) -> dict[str, float | None]:
    """Return the share of results whose bits depend on how the inputs lie in memory, for each layout.

    None stands for a layout that the library does not take.
    """
    whole = np.array(call(*operands))
    size = whole.size

    def share(pieces: list[tuple[slice, Callable[[Array], Array]]]) -> float | None:
        wrong = total = 0
        for part, view in pieces:
            try:
                result = np.ascontiguousarray(call(*(view(x) for x in operands)))
            except (ValueError, RuntimeError):
                return None
            wrong += int(np.count_nonzero(result.view(np.uint32) != whole[part].view(np.uint32)))
            total += result.size
        return wrong / total

    def spaced(x: Array) -> Array:
        wide = np.zeros(2 * x.size, np.float32)
        wide[::2] = x
        return wide[::2]

    everything = slice(None)
    return {
        "alone": share([(slice(i, i + 1), lambda x, i=i: x[i : i + 1].copy()) for i in range(size)]),  # type: ignore[misc]
        "short": share([(slice(n), lambda x, n=n: x[:n].copy()) for n in range(1, _LONGEST)]),  # type: ignore[misc]
        "shifted": share([(slice(n, None), lambda x, n=n: x[n:]) for n in range(1, 17)]),  # type: ignore[misc]
        "strided": share([(everything, spaced)]),
        "reversed": share([(everything, lambda x: x[::-1].copy()[::-1])]),
    }


def work(name: str) -> None:
    """Serve calls of one library: a line of JSON and the operands come in, the results go out."""
    library = next(x for x in elementwise_implementations() if x.name == name)
    stream, out = sys.stdin.buffer, sys.stdout.buffer
    while line := stream.readline():
        job = json.loads(line)
        count = FUNCTIONS[job["function"]].operands
        operands = [np.frombuffer(stream.read(4 * job["size"]), np.float32).copy() for _ in range(count)]
        call = library.functions[job["function"]]
        if job["layouts"]:
            out.write(json.dumps(layouts(call, operands)).encode() + b"\n")
        else:
            out.write(np.ascontiguousarray(call(*operands)).tobytes())
        out.flush()


@dataclass
class Child:
    """A process that runs one variant."""

    library: Elementwise
    name: str
    environment: dict[str, str]
    process: Any = field(init=False)

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", self.library.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # NumPy warns of features that it does not have
            env={**os.environ, **self.environment},
        )

    def _send(self, function: str, operands: tuple[Array, ...], how: bool) -> None:
        job = {"function": function, "size": operands[0].size, "layouts": how}
        self.process.stdin.write(json.dumps(job).encode() + b"\n")
        for x in operands:
            self.process.stdin.write(np.ascontiguousarray(x).tobytes())
        self.process.stdin.flush()

    def call(self, function: str) -> Callable[..., Array]:
        """Return a function that the process runs."""

        def run(*operands: Array) -> Array:
            self._send(function, operands, how=False)
            return np.frombuffer(self.process.stdout.read(operands[0].nbytes), np.float32)

        return run

    def layouts(self, function: str, operands: list[Array]) -> dict[str, float | None]:
        """Return what `layouts` finds in the process."""
        self._send(function, tuple(operands), how=True)
        found: dict[str, float | None] = json.loads(self.process.stdout.readline())
        return found

    def implementation(self) -> Elementwise:
        """Return the variant as an implementation."""
        library = self.library
        functions = {name: self.call(name) for name in library.functions}
        return Elementwise(self.name, library.library, library.version, library.device, "cpu", functions)

    def stop(self) -> None:
        """End the process."""
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def telling(function: str) -> list[Array]:
    """Return operands of the comparison of layouts: results that are neither plain nor subnormal."""
    size = 64 * _INPUTS
    operands = inputs.operands(function, FUNCTIONS[function].operands, 0, size, size, np.random.default_rng(1))
    chosen = np.flatnonzero(reference(function, *operands).flags == 0)
    chosen = np.random.default_rng(2).permutation(chosen)[:_INPUTS]
    return [x[chosen] for x in operands]


def main() -> int:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--samples", type=int, default=2**24, help="number of inputs, a power of two")
    parser.add_argument("--functions", nargs="+", choices=list(FUNCTIONS), default=list(FUNCTIONS), metavar="NAME")
    parser.add_argument("-o", "--output", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.worker)
        return 0
    known = {x.name: x for x in elementwise_implementations() if x.available}
    if find_spec("torch") is None:
        print("without PyTorch, its variants are left out", file=sys.stderr)
    children = [Child(known[name], *variant) for name, found in VARIANTS.items() if name in known for variant in found]
    variants = {child.name: child.implementation() for child in children}
    entries = []
    for function in arguments.functions:
        having = [child for child in children if function in child.library.functions]
        if function in _EXACT or not having:
            continue
        compared = measure_all([variants[child.name] for child in having], function, samples=arguments.samples)
        operands = telling(function)
        found = {child.name: child.layouts(function, operands) for child in having}
        entries.append({**compared.to_dict(), "layouts": found})
        print(function, {f"{a}, {b}": n for (a, b), (_, n) in compared.different.items() if n}, flush=True)
        for name, shares in found.items():
            if any(shares.values()):
                print("  ", name, shares, flush=True)
    for child in children:
        child.stop()
    record = {
        "format": "fpsim-elementwise-1",
        "variants": {name: [variant for variant, _ in found] for name, found in VARIANTS.items() if name in known},
        "environment": {child.name: child.environment for child in children},
        "implementations": [x.to_dict() for x in variants.values()],
        "functions": entries,
    }
    if arguments.output:
        arguments.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
