"""Run an implementation on many random arrays and compare every bit with the prediction.

Usage: python benchmarks/implementations_bits.py NAME [--operations sum dot ...] [--arrays 10000] [--shapes 200]
       [--dtypes float32 ...] [--seconds 600] [--seed 0]

NAME is one of `fpsim.devices.implementations`, such as numpy or torch.cpu. Each operation gets that many arrays and
its share of the time, and has shapes of its own, each of which is drawn from by all laws in turn.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections import Counter
from typing import Any

import numpy as np

from fpsim.devices import LIBRARIES
from fpsim.devices.base import Implementation
from fpsim.devices.operations import OPERATIONS, Operation
from fpsim.errors import UnknownOrderError
from fpsim.laws import law

LAWS = ("uniform(0, 1)", "normal(0, 1)", "wide(-12, 12)", "mixed")
_TINY = {"float16": -22, "float32": -146, "float64": -1070}  # exponents among the subnormal numbers
_LONGEST = {1: 200_000, 2: 400_000, 3: 3_000_000}  # terms or products of the largest operands


def available(name: str) -> Implementation:
    """Return the implementation of that name, whether the modules of other libraries import or not."""
    known = []
    for library in LIBRARIES:
        try:
            known += importlib.import_module(f"fpsim.devices.{library}").implementations()
        except ImportError:
            continue
    for one in known:
        if one.name == name:
            return one
    message = f"unknown implementation {name!r}; use one of {', '.join(one.name for one in known)}"
    raise SystemExit(message)


def sizes(operation: Operation, count: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Return sizes from one upwards, logarithmic, small ones and multiples of 8 and 16 among them."""
    out: dict[tuple[int, ...], None] = {}
    while len(out) < count:
        most = _LONGEST[operation.dimensions] // (1 if rng.random() < 0.1 else 20)
        spread = np.log10(most) / operation.dimensions * rng.choice([0.5, 1.0, 1.4], p=[0.4, 0.4, 0.2])
        size = [max(1, int(10 ** rng.uniform(0, spread))) for _ in range(operation.dimensions)]
        if rng.random() < 0.3:
            size = [max(1, n // 16 * 16) for n in size]
        while np.prod(size) > most:
            size[int(np.argmax(size))] //= 2
        out[tuple(size)] = None
    return list(out)


def draw(operation: Operation, size: tuple[int, ...], name: str, rng: np.random.Generator, dtype: str) -> Any:
    if name == "wide(-12, 12)" and dtype == "float16":
        name = "wide(-4, 4)"
    if name != "mixed":
        return operation.draw(size, name, rng=rng, dtype=dtype)
    out = []
    for shape in operation.shapes(*size):
        x = law("normal(0, 1)").draw(shape, rng=rng, dtype=dtype)
        tiny = (np.ldexp(1.0, _TINY[dtype]) * rng.integers(-3, 4, shape)).astype(dtype)
        kind = rng.integers(0, 4, shape)
        zero = np.where(rng.random(shape) < 0.5, np.asarray(-0.0, dtype), np.asarray(0.0, dtype))
        out.append(np.where(kind == 0, zero, np.where(kind == 1, tiny, x)).astype(dtype))
    return tuple(out)


def same(a: Any, b: Any) -> Any:
    """Return which elements have the same bits; any NaN is the same as any other."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return np.zeros(max(a.size, 1), bool)
    bits = f"u{a.itemsize}"
    return (np.ascontiguousarray(a).view(bits) == np.ascontiguousarray(b).view(bits)) | (np.isnan(a) & np.isnan(b))


def compare(one: Implementation, operation: Operation, dtype: str, options: Any, seconds: float) -> Counter[str]:
    rng = np.random.default_rng(options.seed)
    tally: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    shapes = sizes(operation, options.shapes, rng)
    per_shape = -(-options.arrays // len(shapes))
    try:  # what is compiled on first use does not count
        first = draw(operation, shapes[0], LAWS[0], rng, dtype)
        operation.emulate(first, one.strategy(operation.name, *first))
        one.run(operation.name, *first)
    except UnknownOrderError:
        pass
    end = time.perf_counter() + seconds
    seen = set()
    # All shapes once, then again: what the time allows is spread over them.
    for turn in range(per_shape):
        for number, size in enumerate(shapes):
            if time.perf_counter() > end:
                break
            operands = draw(operation, size, LAWS[(turn + number) % len(LAWS)], rng, dtype)
            tally["arrays"] += 1
            seen.add(size)
            try:
                strategy = one.strategy(operation.name, *operands)
                predicted = operation.emulate(operands, strategy)
            except UnknownOrderError as error:
                tally["unknown"] += 1
                reasons[str(error)] += 1
                continue
            with np.errstate(all="ignore"):
                actual = one.run(operation.name, *operands)
                equal = same(actual, predicted)
            tally["outputs"] += equal.size
            tally["equal"] += int(np.count_nonzero(equal))
            tally["zeros"] += int(np.count_nonzero(~equal & (predicted == actual))) if equal.size == actual.size else 0
            if not equal.all() and tally["shown"] < 3:
                tally["shown"] += 1
                print(f"DIFFERENT: {one.name} {operation.name} {dtype} {size}: {strategy}", flush=True)
        else:
            continue
        break
    tally["shapes"] = len(seen)
    for reason, times in reasons.most_common(3):
        print(f"unknown {times} times: {one.name} {operation.name} {dtype}: {reason}", flush=True)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--operations", nargs="+")
    parser.add_argument("--arrays", type=int, default=10_000)
    parser.add_argument("--shapes", type=int, default=200)
    parser.add_argument("--dtypes", nargs="+", default=["float32"])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    one = available(options.name)
    if not one.available:
        raise SystemExit(str(one))
    names = options.operations or list(one.routines)
    rows = []
    jobs = [(name, dtype) for name in names for dtype in options.dtypes]
    for name, dtype in jobs:
        rows.append((name, dtype, compare(one, OPERATIONS[name], dtype, options, options.seconds / len(jobs))))
    print(f"\n{one}")
    print("operation  dtype     arrays shapes    outputs      equal  different (sign of zero)  unknown")
    for name, dtype, t in rows:
        different = t["outputs"] - t["equal"]
        print(
            f"{name:10s} {dtype:8s} {t['arrays']:7d} {t['shapes']:6d} {t['outputs']:10d} {t['equal']:10d} {different:10d}"
            f" {t['zeros']:14d} {t['unknown']:8d}"
        )
    return int(any(t["outputs"] != t["equal"] for _, _, t in rows))


if __name__ == "__main__":
    raise SystemExit(main())
