"""Compare elementary functions of a GPU with their models, and the special-function unit with its own, bit by bit.

python benchmarks/gpu/functions.py [--out DIR] [--seconds 240] [--only NAME ...]

First every function on 2**24 bit patterns, then as many as the time allows on all 2**32 of them. PyTorch keeps subnormal
numbers, CuPy's compiler flushes them. The models run on all processor cores. With ``--out`` the inputs on which a model
is wrong are kept with what the GPU gave: DIR/functions.npz holds ``NAME/x`` and ``NAME/y`` as bit patterns (up to 2**16,
chosen at random from all that were found), ``NAME/count`` and, by sign and exponent, ``NAME/wrong``.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.devices import _elementwise_inputs as inputs
from fpsim.elementary import MODELS, evaluate
from fpsim.kernels import special_function_unit as unit

Array = NDArray[Any]

_PATTERNS, _FIRST, _BLOCK, _PIECE, _KEPT = 2**32, 2**24, 2**26, 2**18, 2**16

_TORCH: dict[str, str] = {
    "gelu": "torch.nn.functional.gelu", "gelu_tanh": "gelu_tanh", "silu": "torch.nn.functional.silu",
    "softplus": "torch.nn.functional.softplus", "divide": "torch.div",
}  # fmt: skip

# CUDA expressions, compiled by CuPy, which flushes subnormal numbers.
_CUDA = {
    "exp": "expf(x)", "exp2": "exp2f(x)", "expm1": "expm1f(x)", "log": "logf(x)", "log2": "log2f(x)",
    "log1p": "log1pf(x)", "sin": "sinf(x)", "cos": "cosf(x)", "tanh": "tanhf(x)", "erf": "erff(x)", "rsqrt": "rsqrtf(x)",
    "sqrt": "sqrtf(x)", "reciprocal": "1.0f / x", "sigmoid": "1.0f / (1.0f + expf(-x))",
    "silu": "x / (1.0f + expf(-x))", "divide": "x / y", "pow": "powf(x, y)",
}  # fmt: skip
_UNIT = {name: f"{name}.approx.ftz.f32" if name != "tanh" else "tanh.approx.f32" for name in unit.INSTRUCTIONS}

_SOURCE = """
extern "C" __global__ void f(const unsigned int* a, const float* b, float* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = __uint_as_float(a[i]), y = b ? b[i] : 0.0f, r;
    %s
    out[i] = r;
}
"""


@dataclass
class Case:
    """One function of one library: how it runs on the GPU, and its model; a running count of the differences."""

    name: str
    operands: int
    run: Callable[..., Array]
    model: Callable[..., Array]
    count: int = 0
    wrong: int = 0
    by_exponent: Array = field(default_factory=lambda: np.zeros(512, np.int64))
    kept: list[tuple[Array, ...]] = field(default_factory=list)
    seconds: float = 0.0

    def row(self) -> str:
        """Return a line of the table."""
        equal = f"{100 * (1 - self.wrong / max(self.count, 1)):.7f}%"
        return f"{self.name:<28}{self.count:>14,}{self.wrong:>14,}{equal:>16}{self.seconds:>9.1f} s"


def _cupy_runner(body: str) -> Callable[..., Array]:
    import cupy  # type: ignore[import-not-found,unused-ignore]

    kernel = cupy.RawModule(code=_SOURCE % body).get_function("f")

    def run(x: Array, *rest: Array) -> Array:
        a = cupy.asarray(x.view(np.uint32))
        b = cupy.asarray(rest[0]) if rest else np.uint64(0)
        out = cupy.empty(x.size, np.float32)
        kernel(((x.size + 255) // 256,), (256,), (a, b, out, np.int64(x.size)))
        return np.asarray(cupy.asnumpy(out))

    return run


def _torch_runner(name: str) -> Callable[..., Array]:
    import torch  # type: ignore[import-not-found,unused-ignore]

    path = _TORCH.get(name, f"torch.{name}")
    if path == "gelu_tanh":

        def function(x: Any) -> Any:
            return torch.nn.functional.gelu(x, approximate="tanh")
    else:
        function = torch
        for part in path.split(".")[1:]:
            function = getattr(function, part)

    def run(*operands: Array) -> Array:
        loaded = [torch.from_numpy(x).to("cuda") for x in operands]
        return np.asarray(function(*loaded).cpu().numpy())

    return run


def _unit_model(code: int) -> Callable[[Array], Array]:
    def model(x: Array) -> Array:
        out = np.empty_like(x)
        unit.evaluate(code, x, out)
        return out

    return model


def cases(only: list[str]) -> list[Case]:
    """Return what can be compared here; libraries that are missing are named."""
    found = []

    def add(name: str, operands: int, make: Callable[[], Callable[..., Array]], model: Any) -> None:
        if only and not any(word in name for word in only):
            return
        try:
            run = make()
            ones = [np.ones(8, np.float32)] * operands
            run(*ones)
            if model:
                model(*ones)  # compiles it
        except Exception as error:  # noqa: BLE001
            first = (str(error).splitlines() or [""])[0][:100]
            print(f"{name} cannot run here: {type(error).__name__}: {first}", file=sys.stderr)
        else:
            found.append(Case(name, operands, run, model))

    for code, name in enumerate(unit.INSTRUCTIONS):
        body = f'asm("{_UNIT[name]} %0, %1;" : "=f"(r) : "f"(x));'
        add(f"unit {name}", 1, lambda body=body: _cupy_runner(body), _unit_model(code))  # type: ignore[misc]
    for library in ("torch.cuda", "cupy"):
        for m in sorted(MODELS.values(), key=lambda m: m.operands):
            if library == "cupy" and m.function not in _CUDA:
                continue

            def model(*x: Array, function: str = m.function, library: str = library) -> Array:
                return evaluate(function, *x, implementation=library)

            if library == "cupy":
                body = f"r = {_CUDA[m.function]};"
                add(f"{library} {m.function}", m.operands, lambda body=body: _cupy_runner(body), model)  # type: ignore[misc]
            else:
                add(f"{library} {m.function}", m.operands, lambda name=m.function: _torch_runner(name), model)  # type: ignore[misc]
    return found


def _different(a: Array, b: Array) -> Array:
    u, v = a.view(np.uint32), b.view(np.uint32)
    return np.asarray((u != v) & ~(np.isnan(a) & np.isnan(b)))


def _compare(case: Case, operands: list[Array], pool: ThreadPoolExecutor) -> None:
    begin = time.perf_counter()
    size = operands[0].size
    observed = case.run(*operands)
    case.count += size

    def piece(start: int) -> tuple[Array, ...]:
        part = slice(start, start + _PIECE)
        at = np.flatnonzero(_different(case.model(*(x[part] for x in operands)), observed[part]))
        return (*(x[part][at] for x in operands), observed[part][at])

    for found in pool.map(piece, range(0, size, _PIECE)):
        if found[0].size:
            case.wrong += found[0].size
            np.add.at(case.by_exponent, found[0].view(np.uint32) >> 23, 1)
            case.kept.append(found)
    total = sum(x[0].size for x in case.kept)
    if total > 4 * _KEPT:
        case.kept = [_thinned(case.kept)]
    case.seconds += time.perf_counter() - begin


def _thinned(kept: list[tuple[Array, ...]]) -> tuple[Array, ...]:
    joined = [np.concatenate(parts) for parts in zip(*kept, strict=True)]
    chosen = np.sort(np.random.default_rng(0).choice(joined[0].size, min(_KEPT, joined[0].size), replace=False))
    return tuple(x[chosen] for x in joined)


def _drawn(case: Case, rng: np.random.Generator) -> list[Array]:
    name = case.name.split()[-1]
    return inputs.operands(name, case.operands, 0, _FIRST, _FIRST, rng)


def _write(directory: Path, found: list[Case]) -> None:
    data: dict[str, Any] = {}
    for case in found:
        data[f"{case.name}/count"] = np.array([case.count, case.wrong])
        if case.kept:
            *operands, y = _thinned(case.kept)
            for label, x in zip("xz", operands, strict=False):
                data[f"{case.name}/{label}"] = x.view(np.uint32)
            data[f"{case.name}/y"] = y.view(np.uint32)
            data[f"{case.name}/wrong"] = case.by_exponent
    directory.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(directory / "functions.npz", **data)


def main() -> int:
    """Compare, keep the differences, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="directory for the inputs on which models are wrong")
    parser.add_argument("--seconds", type=float, default=240.0, help="about how long to run in all")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="names, or parts of them")
    arguments = parser.parse_args()
    end = time.perf_counter() + arguments.seconds
    found = cases(arguments.only)
    rng = np.random.default_rng(20260)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool, np.errstate(all="ignore"):
        for case in found:
            _compare(case, _drawn(case, rng), pool)
            print(case.row(), file=sys.stderr, flush=True)
        if arguments.out:
            _write(arguments.out, found)
        for case in found:
            expected = case.seconds * _PATTERNS / max(case.count, 1)
            if case.operands > 1 or time.perf_counter() + expected > end:
                continue
            case.count, case.wrong, case.seconds, case.kept = 0, 0, 0.0, []
            case.by_exponent[:] = 0
            for start in range(0, _PATTERNS, _BLOCK):
                x = np.arange(start, start + _BLOCK, dtype=np.uint32).view(np.float32)
                _compare(case, [x], pool)
                if case.wrong > _PATTERNS // 50 and start > _PATTERNS // 4:
                    break  # plainly wrong: no need for more
            print(case.row(), file=sys.stderr, flush=True)
            if arguments.out:
                _write(arguments.out, found)
    print(f"{'':<28}{'inputs':>14}{'different':>14}{'equal':>16}{'time':>11}")
    for case in found:
        print(case.row())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
