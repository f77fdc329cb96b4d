"""Run every routine on a GPU that fpsim knows, and compare the bits with the prediction.

python benchmarks/gpu/check_devices.py [--only cuda torch] [--operations sum dot] [--seconds 300] [-o DIRECTORY]

Operands are those of ``tests/device_inputs.py``, of more than 200 sizes and five laws. Each routine gets an equal share
of the seconds, and takes sizes from all over the range until they are over. Writes ``check_devices.json`` (everything)
and ``recorded_devices.npz`` (results by the bit, for ``tests/test_recorded_devices.py``), and prints a table last.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import fpsim
from fpsim.devices import LIBRARIES, Implementation
from fpsim.devices.operations import OPERATIONS, predicted
from fpsim.errors import UnknownOrderError

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
import device_inputs as inputs

_RECORDED = 20  # sizes of a routine in the recording
_STRIDE = 89  # sizes are taken in steps of so many, to come from all over the range
_SERIAL = 20_000  # terms that one thread is given at most
_BATCH = 32  # sizes whose predictions are worked out at a time


@dataclass
class Outcome:
    """What one routine gave."""

    implementation: str
    operation: str
    dtype: str
    cases: int = 0
    outputs: int = 0
    equal: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    different: list[dict[str, Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    recorded: list[tuple[tuple[int, ...], int, str, int]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def share(self) -> str:
        """The share of outputs with equal bits."""
        if not self.outputs:
            return "-"
        return "100%" if self.equal == self.outputs else f"{100 * self.equal / self.outputs:.4f}%"

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects."""
        return {
            "implementation": self.implementation,
            "operation": self.operation,
            "dtype": self.dtype,
            "cases": self.cases,
            "outputs": self.outputs,
            "equal": self.equal,
            "unknown": dict(self.unknown),
            "different": self.different[:20],
            "different_cases": len(self.different),
            "errors": self.errors[:5],
            "seconds": round(self.seconds, 2),
        }


def found(kinds: set[str], only: list[str]) -> tuple[list[Implementation], list[str]]:
    """Return the implementations that can run, and why others cannot."""
    able, missing = [], []
    for name in LIBRARIES:
        try:
            known = import_module(f"fpsim.devices.{name}").implementations()
        except ImportError as error:
            missing.append(f"{name}: {error}")
            continue
        for one in known:
            if one.kind not in kinds or (only and not any(one.name.startswith(start) for start in only)):
                continue
            if one.available:
                able.append(one)
            else:
                missing.append(str(one))
    return able, missing


def same(actual: Any, expected: Any) -> Any:
    """Return which outputs have the same bits; any NaN equals any other."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        message = f"the result is {actual.dtype}{actual.shape}, the prediction {expected.dtype}{expected.shape}"
        raise TypeError(message)
    kind = np.dtype(f"u{actual.dtype.itemsize}")
    equal = np.ascontiguousarray(actual).view(kind) == np.ascontiguousarray(expected).view(kind)
    return equal | (np.isnan(actual) & np.isnan(expected))


def spread(sizes: tuple[tuple[int, ...], ...]) -> list[tuple[int, ...]]:
    """Return the sizes in a sequence whose every beginning covers the range."""
    step = next(step for step in itertools.count(min(_STRIDE, len(sizes) // 2 + 1)) if np.gcd(step, len(sizes)) == 1)
    return [sizes[i * step % len(sizes)] for i in range(len(sizes))]


def expected(operation: str, strategy: str, size: tuple[int, ...], law: str, dtype: str) -> Any:
    """Return the prediction for a case; runs in a process of its own."""
    return predicted(operation, strategy, *drawn(operation, size, law, dtype))


def drawn(operation: str, size: tuple[int, ...], law: str, dtype: str) -> list[Any]:
    """Return the operands of a case."""
    return inputs.operands(operation, OPERATIONS[operation].shapes(*size), law, dtype)


def check(one: Implementation, operation: str, dtype: str, seconds: float, pool: Executor) -> Outcome:
    """Run a routine on all sizes and laws, or those for which there is time."""
    outcome = Outcome(one.name, operation, dtype)
    begin = time.perf_counter()
    sizes = spread(inputs.SIZES[OPERATIONS[operation].dimensions])
    if one.name.startswith("cuda.serial"):
        sizes = [size for size in sizes if size[0] <= _SERIAL]
    for first in range(0, len(sizes), _BATCH):
        if time.perf_counter() - begin > seconds or len(outcome.errors) > 50:
            break
        batch = sizes[first : first + _BATCH]
        cases = list(itertools.product(batch, inputs.LAWS))
        asked = [
            guarded(outcome, size, law, lambda s=size, a=law: ask(one, operation, s, a, dtype, pool))
            for size, law in cases
        ]
        for (size, law), given in zip(cases, asked, strict=True):
            if given is not None:
                guarded(outcome, size, law, lambda s=size, a=law, g=given: compare(outcome, one, s, a, *g))
        outcome.cases += len(batch)
    outcome.seconds = time.perf_counter() - begin
    return outcome


def guarded(outcome: Outcome, size: tuple[int, ...], law: str, action: Callable[[], Any]) -> Any:
    """Return what an action gives; note what it raises."""
    try:
        return action()
    except UnknownOrderError as error:
        outcome.unknown[str(error)] += 1
    except Exception as error:  # noqa: BLE001 - a library may raise anything; the others must still be checked
        outcome.errors.append(f"{size} {law}: {type(error).__name__}: {error}")
    return None


def ask(
    one: Implementation, operation: str, size: tuple[int, ...], law: str, dtype: str, pool: Executor
) -> tuple[str, Future[Any]]:
    """Return the strategy for a case, and its result to come."""
    strategy = str(one.strategy(operation, *drawn(operation, size, law, dtype)))
    return strategy, pool.submit(expected, operation, strategy, size, law, dtype)


def compare(
    outcome: Outcome, one: Implementation, size: tuple[int, ...], law: str, strategy: str, future: Future[Any]
) -> None:
    """Compare the result of one case with its prediction."""
    operation = outcome.operation
    operands = drawn(operation, size, law, outcome.dtype)
    actual = one.run(operation, *operands)
    prediction = future.result()
    equal = same(actual, prediction)
    outcome.outputs += equal.size
    outcome.equal += int(np.count_nonzero(equal))
    if len(outcome.recorded) < _RECORDED * len(inputs.LAWS) and outcome.dtype == "float32":
        outcome.recorded.append((size, inputs.LAWS.index(law), strategy, inputs.digest(actual)))
    if not equal.all():
        first = int(np.argmin(equal.reshape(-1)))
        place = np.unravel_index(first, equal.shape)
        outcome.different.append({
            "size": size, "law": law, "strategy": strategy, "different": int(equal.size - equal.sum()),
            "place": [int(i) for i in place], "actual": float(np.asarray(actual).reshape(-1)[first]).hex(),
            "predicted": float(np.asarray(prediction).reshape(-1)[first]).hex(),
            "same_bits_again": bool(same(one.run(operation, *operands), actual).all()),
        })  # fmt: skip


def check_atomics(able: list[Implementation]) -> list[dict[str, Any]]:
    """Check that a sum of atomic additions is that of the blocks' sums in one of their sequences."""
    out = []
    for one in able:
        if not one.name.startswith("cuda.atomic"):
            continue
        from fpsim.devices import _cuda_kernels as kernels, numba_cuda

        for operation, n, law in itertools.product(one.routines, (300, 1000, 1500, 100_000), inputs.LAWS[:3]):
            operands = inputs.operands(operation, OPERATIONS[operation].shapes(n), law)
            product = "sum" if operation == "sum" else "separate" if one.name.endswith("separate") else "fused"
            partials = numba_cuda.block_sums(*operands, product=product)
            settings = {"sum": "", "fused": "+fma", "separate": "+separate"}[product]
            every = np.arange(n) // kernels.BLOCK % kernels.GRID
            blocks = [
                predicted(operation, f"cuda_reduce(1, {kernels.BLOCK}){settings}", *(x[every == b] for x in operands))
                for b in range(kernels.GRID)
            ]
            seen = {float(one.run(operation, *operands)) for _ in range(20)}
            row = {"implementation": one.name, "operation": operation, "n": n, "law": law, "results": len(seen),
                   "blocks_as_predicted": bool(same(partials, np.array(blocks, np.float32)).all())}  # fmt: skip
            working = -(-n // kernels.BLOCK)
            if working <= 6:
                sums = np.zeros(720, np.float32)
                for term in np.array(list(itertools.permutations(partials[:working]))).T:
                    sums[: term.size] += term
                row["among_all_sequences"] = seen <= set(sums.tolist())
            exact = float(np.sum(partials, dtype=np.float64))
            room = kernels.GRID * 2.0**-24 * float(np.abs(partials).sum(dtype=np.float64))
            row["within_bound"] = all(abs(total - exact) <= room for total in seen)
            out.append(row)
    return out


def save(path: Path, outcomes: list[Outcome], versions: dict[str, str]) -> None:
    """Write the bits of results, with what they were predicted by."""
    strategies = sorted({text for one in outcomes for _, _, text, _ in one.recorded})
    number = {text: place for place, text in enumerate(strategies)}
    arrays: dict[str, Any] = {
        "strategies": np.array(strategies),
        "laws": np.array(inputs.LAWS),
        "versions": np.array([f"{name}: {text}" for name, text in versions.items()]),
    }
    for one in outcomes:
        if one.recorded:
            sizes, laws, texts, bits = zip(*one.recorded, strict=True)
            key = f"{one.implementation}/{one.operation}"
            arrays[f"{key}/size"] = np.array(sizes, np.int32)
            arrays[f"{key}/law"] = np.array(laws, np.uint8)
            arrays[f"{key}/strategy"] = np.array([number[text] for text in texts], np.int16)
            arrays[f"{key}/bits"] = np.array(bits, np.uint32)
    np.savez_compressed(path, **arrays)


def warm_up() -> None:
    """Compile what the emulation needs, so that the processes find it in Numba's cache."""
    x = np.ones(300, np.float32)
    for strategy in ("pairwise", "pairwise+fma", "serial+fma+start(0.0)", "pairwise+ftz"):
        fpsim.sum(x, strategy)
        fpsim.dot(x, x, strategy)
        fpsim.matmul(x.reshape(20, 15), x.reshape(15, 20), strategy)


def run(options: argparse.Namespace) -> int:
    """Check everything, write the files and print the table."""
    begin = time.perf_counter()
    able, missing = found({"gpu", "cpu"} if options.cpu else {"gpu"}, options.only)
    tasks = [
        (one, operation, dtype)
        for dtype in options.dtypes
        for one in able
        for operation in one.routines
        if operation in OPERATIONS and (not options.operations or operation in options.operations)
    ]
    warm_up()
    outcomes = []
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as pool:
        for place, (one, operation, dtype) in enumerate(tasks):
            left = options.seconds - (time.perf_counter() - begin)
            last = check(one, operation, dtype, left / (len(tasks) - place), pool)
            outcomes.append(last)
            line = f"{place + 1}/{len(tasks)} {one.name} {operation} {dtype}: {last.share}, {last.seconds:.1f} s"
            print(line, file=sys.stderr, flush=True)
    atomics = check_atomics(able)
    versions = {one.name: f"{one.library} {one.version}, {one.device}" for one in able}
    report = {
        "fpsim": fpsim.__version__, "numpy": np.__version__, "python": platform.python_version(), "versions": versions,
        "missing": missing, "outcomes": [one.to_dict() for one in outcomes], "atomics": atomics,
        "seconds": round(time.perf_counter() - begin, 1),
    }  # fmt: skip
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "check_devices.json").write_text(json.dumps(report, indent=1, default=str), encoding="utf-8")
    save(options.output / "recorded_devices.npz", outcomes, versions)
    show(outcomes, atomics, missing, report["seconds"])
    wrong = any(one.different or one.errors for one in outcomes)
    return int(wrong or not all(value for row in atomics for value in row.values() if isinstance(value, bool)))


def show(outcomes: list[Outcome], atomics: list[dict[str, Any]], missing: list[str], seconds: float) -> None:
    """Print the table."""
    for line in missing:
        print(line)
    for one in outcomes:
        for text, count in one.unknown.most_common(2):
            print(f"unknown {one.implementation} {one.operation} {one.dtype}, {count} cases: {text}")
        for row in (*one.different[:3], *one.errors[:3]):
            print(f"DIFFERENT {one.implementation} {one.operation} {one.dtype}: {row}")
    for row in atomics:
        if not all(value for value in row.values() if isinstance(value, bool)):
            print(f"DIFFERENT {row}")
    print(f"{len(atomics)} cases of atomics; several results in {sum(row['results'] > 1 for row in atomics)}")
    print(f"{'implementation':28}{'operation':12}{'dtype':9}{'sizes':>6}{'outputs':>10}{'equal':>10}{'unknown':>8}")
    for one in outcomes:
        print(
            f"{one.implementation:28}{one.operation:12}{one.dtype:9}{one.cases:6}{one.outputs:10}{one.share:>10}"
            f"{sum(one.unknown.values()):8}"
        )
    print(f"{seconds:.0f} s")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="beginnings of names of implementations")
    parser.add_argument("--operations", nargs="*", default=[], help="names of operations")
    parser.add_argument("--dtypes", nargs="*", default=["float32"], help="float16, float32, float64")
    parser.add_argument("--seconds", type=float, default=300, help="how long it may take in all")
    parser.add_argument("--cpu", action="store_true", help="also what runs on the CPU")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1), help="processes that emulate")
    output = Path(os.environ.get("OUT", "."))
    parser.add_argument("-o", "--output", type=Path, default=output, help="where to write; $OUT by default")
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
