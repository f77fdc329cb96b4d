"""Reveal what the GPU libraries that run here do, and write it down for profiles.

Usage: python benchmarks/gpu/make_profiles.py [--seconds 480] [--workers 14] [-o FOLDER]
First the products of PyTorch (cuBLAS) in TF32, bfloat16, float16 and fp8, see `product_orders`; then the float32 sums,
dot products and products of PyTorch, CuPy and JAX that no shipped profile has. Every claim is proved by 200 replays.
``cases.json`` has a row for each case, with what was held fixed, and is written again every few seconds;
``open.npz`` has operands and results of products whose order was not found, and the sizes of smallest subtrees.
``--fake`` takes the emulator itself for the library, as a test of this program on a machine without a GPU.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from product_orders import SIDES, Data, distances, find, observe, probed_orders
from tensor_cores import KINDS, with_operands

VECTORS = (4, 7, 8, 16, 31, 33, 64, 100, 128, 256, 400, 511, 1000, 1024, 4096)
# What is recorded elsewhere, matrices with one row or column, rows of one product taken by themselves; then small,
# middle and large outputs for several depths, and squares.
_PRODUCTS = (
    "400x400x400 1x400x400 2x400x400 16x400x400 64x400x400 200x400x400 400x400x1 400x400x64 1x1000x64 1x4096x1024"
    " 33x77x29 17x129x65 48x320x32 128x512x16 16x1024x32 32x128x48 16x400x16 16x4096x16 16x64x16 64x256x64"
    " 128x1024x128 1024x64x1024 1024x400x1024 1024x512x1024 10x784x128 128x784x10 128x784x128 32x768x3072"
    " 32x3072x768 8x512x512 4x100x4 5x40x3 100x10x100 1000x3x1000 512x2048x512"
    " 16x16x16 16x100x16 16x256x16 64x16x64 64x64x64 64x100x64 64x400x64 64x1024x64 64x4096x64 256x16x256 256x64x256"
    " 256x100x256 256x256x256 256x400x256 256x1024x256 256x4096x256 8x8x8 32x32x32 50x50x50 100x100x100 128x128x128"
    " 200x200x200 300x300x300 500x500x500 512x512x512 1000x1000x1000 1024x1024x1024"
)
PRODUCTS = _PRODUCTS.split()
# The inner and the last dimension of fp8 products are multiples of 16.
_NARROW = (
    " 1x16x16 1x64x64 1x256x256 1x784x128 1x1024x16 2x1024x1024 4x512x64 8x256x8 8x64x256 8x1024x512 24x1008x48"
    " 33x80x32 17x128x64 48x96x80 80x112x48 100x400x100 100x112x112 128x16x128 128x8192x128 16x16384x16 64x32x2048"
    " 2048x32x64 320x48x320 200x304x112 240x304x176 512x64x512 96x1536x384 384x96x1536 320x512x448 640x256x640"
    " 384x768x384 1000x16x1008 300x304x304 512x1024x16 1024x16x1024 5x48x16 3x4096x48"
)
FAMILIES = {
    "16": [kind for kind, (left, _, _) in KINDS.items() if left not in ("e4m3", "e5m2")],
    "8": [kind for kind, (left, _, _) in KINDS.items() if left in ("e4m3", "e5m2")],
}
_SAVED = 15.0  # seconds between two writings
Shape = tuple[int, ...]
Task = tuple[str, str, Shape]


def parsed(text: str) -> Shape:
    return tuple(map(int, text.split("x")))


def product_tasks() -> list[Task]:
    """Return the products in few bits, the small ones first."""
    wide = [parsed(text) for text in PRODUCTS]
    narrow = [s for s in dict.fromkeys([*wide, *map(parsed, _NARROW.split())]) if s[1] % 16 == 0 and s[2] % 16 == 0]
    tasks = [("products", "16", s) for s in wide] + [("products", "8", s) for s in narrow]
    return sorted(tasks, key=lambda task: np.prod(task[2], dtype=np.float64))


def missing_tasks(names: list[str]) -> list[Task]:
    """Return the float32 cases of these implementations that the shipped profiles do not have."""
    from fpsim.profiles import load, names as shipped

    known: dict[str, set[tuple[str, Shape]]] = {name: set() for name in names}
    for profile in (load(text) for text in shipped()):
        cases = {(case.op, case.shape) for case in profile.cases} if profile.dtype == "float32" else set()
        known[profile.implementation] = known.get(profile.implementation, set()) | cases
    wanted = [(op, (n,)) for op in ("dot", "sum") for n in VECTORS] + [("matmul", parsed(text)) for text in PRODUCTS]
    tasks = [(name, op, shape) for name in names for op, shape in wanted if (op, shape) not in known[name]]
    return sorted(tasks, key=lambda task: (task[0].startswith("jax"), np.prod(task[2], dtype=np.float64)))


# --- the library ------------------------------------------------------------------------------------------------------


class Torch:
    """The products of PyTorch on a GPU."""

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)
        self.torch = torch
        self.types = {
            "tf32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn,
            "e5m2": torch.float8_e5m2,
        }  # fmt: skip
        self.one = torch.ones((), device="cuda")

    def load(self, x: Any, form: str, side: int) -> Any:
        """Return an operand on the GPU in C order, the right one of an fp8 product in Fortran order."""
        if side and form in ("e4m3", "e5m2"):
            return self.torch.tensor(np.ascontiguousarray(x.T)).cuda().to(self.types[form]).t()
        return self.torch.tensor(np.ascontiguousarray(x)).cuda().to(self.types[form])

    def product(self, kind: str, x: Any, y: Any) -> Any:
        left, _, result = KINDS[kind]
        torch = self.torch
        torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
        if left in ("e4m3", "e5m2"):
            fast = kind.endswith("_fast")
            out = torch._scaled_mm(
                x, y, scale_a=self.one, scale_b=self.one, out_dtype=getattr(torch, result), use_fast_accum=fast
            )
            out = out[0] if isinstance(out, tuple) else out
        elif result == "float32" and left != "tf32":
            out = torch.mm(x, y, out_dtype=torch.float32)
        else:
            out = torch.mm(x, y)
        return out.float().cpu().numpy()


class Fake:
    """Products of the emulator, in an order that only the shape and kind decide."""

    def load(self, x: Any, form: str, side: int) -> Any:
        del form, side
        return np.ascontiguousarray(x)

    def product(self, kind: str, x: Any, y: Any) -> Any:
        import fpsim

        (m, k), n = x.shape, y.shape[1]
        terms, bits = {"tf32": (8, 25), "bf16": (16, 25), "f16": (16, 25)}.get(KINDS[kind][0], (32, 13))
        choices = [
            f"fused({terms})+align({bits})", f"chunks(128, fused({terms})+align({bits}))",
            f"fused({terms}, rest=first)+align({bits})", f"chunks({-(-k // 4)}, fused({terms})+align({bits}))",
        ]  # fmt: skip
        if bits == 25:  # found by probes only
            choices += ["lanes(4, combine=pairwise)+fma", "chunks(12, fused(4, rest=first)+align(24))", "reverse+fma"]
        text = with_operands(kind.removesuffix("_fast"), choices[(m + k + n) % len(choices)])
        return np.asarray(fpsim.matmul(x, y, text), np.float32)


# --- workers ----------------------------------------------------------------------------------------------------------

_library: Any = None


def settle(number: Any, fake: bool) -> None:
    """Give a worker one core of its own: emulators take as many threads as they may."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    with number.get_lock():
        number.value += 1
        mine = number.value
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[mine % len(cores)]})
    global _library  # noqa: PLW0603 - one of each worker
    _library = Fake() if fake else None


def work(task: Task) -> tuple[Task, list[dict[str, Any]], dict[str, Any]]:
    """Reveal what a task asks for; return rows, and arrays of what was not found."""
    global _library  # noqa: PLW0603
    if task[0] != "products":
        return task, [revealed(*task)], {}
    _library = _library or Torch()
    return (task, *products(task[1], task[2]))


def products(family: str, shape: Shape) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Find the orders of a product in all kinds of a family."""
    rng = np.random.default_rng([*shape, len(family)])
    rows: list[dict[str, Any]] = []
    kept: dict[str, Any] = {}
    drawn: dict[tuple[str, str], Data] = {}
    known = float32_orders(shape) if family == "16" else []
    for kind in FAMILIES[family]:
        left, right, result = KINDS[kind]
        row: dict[str, Any] = {
            "implementation": "torch.cuda", "op": "matmul", "shape": list(shape), "kind": kind, "left": left,
            "right": right, "output": result, "fast_accumulation": kind.endswith("_fast"), "strategy": None,
        }  # fmt: skip
        rows.append(row)
        start = time.monotonic()
        try:
            if (left, right) not in drawn:
                drawn[left, right] = Data.drawn(shape, (left, right), rng)  # type: ignore[arg-type]
            data = drawn[left, right]
            seen = observe(_library.product, kind, data, _library.load)
        except Exception as error:  # noqa: BLE001 - whatever the library does not do is listed
            row["error"] = f"{type(error).__name__}: {error}"[:300]
            continue
        sizes: list[Any] = [None]

        def more(kind: str = kind, sizes: list[Any] = sizes) -> list[str]:
            sizes[0] = distances(_library.product, kind, shape, _library.load)  # type: ignore[arg-type]
            return probed_orders(sizes[0], rng)

        try:
            text, best, notes = find(kind, data, seen, known, more)
        except Exception as error:  # noqa: BLE001 - one product must not end the others
            row["error"] = f"{type(error).__name__}: {error}"[:300]
            continue
        outputs = sum(x.size for x in seen.sampled.values()) + sum(x.size for x in seen.whole.values())
        row |= {
            "strategy": text, "replays": len(seen.sampled) * SIDES**2, "calls": seen.calls, "outputs": outputs,
            "best": best, "notes": notes, "repeats": seen.repeats, "seconds": round(time.monotonic() - start, 2),
        }  # fmt: skip
        if text is not None:
            known.insert(0, without_formats(text))
            continue
        name = f"{'x'.join(map(str, shape))}/{kind}"
        if sizes[0] is not None and sizes[0].shape[0] <= 512:
            kept[f"{name}/sizes"] = sizes[0].astype(np.int16)
        for law, results in seen.sampled.items():
            a, b = data.sampled(law)
            kept[f"{name}/{law}/a"], kept[f"{name}/{law}/b"] = a[:24], b[:, :24]
            kept[f"{name}/{law}/c"] = results[:24, :24]
    return rows, kept


def float32_orders(shape: Shape) -> list[str]:
    """Return the order of a product with a vector in float32, which cuBLAS keeps where TF32 is allowed."""
    from fpsim.profiles import load

    if 1 not in (shape[0], shape[2]):
        return []
    cases = [case for case in load("h200/cublas-13.1").cases if case.op == "matmul" and case.shape == shape]
    return [str(text) for case in cases for text, *_ in case.parts[:1] if len(case.parts) == 1]


def without_formats(text: str) -> str:
    """Return a strategy without the formats of operands and output that stand at its end."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and text.startswith(("+operands", "+output"), place):
            return text[:place]
    return text


def revealed(name: str, op: str, shape: Shape) -> dict[str, Any]:
    """Reveal one float32 case."""
    from fpsim import reveal
    from fpsim.devices import implementations

    row: dict[str, Any] = {"implementation": name, "op": op, "shape": list(shape), "kind": "f32", "strategy": None}
    try:
        (one,) = implementations([name])
        found = reveal(lambda *x: one.run(op, *x), op=op, shape=shape, probe=True)
    except Exception as error:  # noqa: BLE001 - one case must not end the others
        return {**row, "error": f"{type(error).__name__}: {error}"[:300]}
    row["revealed"] = found.to_dict()
    row["parts"] = [[str(p.strategy), np.argwhere(p.outputs).tolist()] for p in found.parts if p.outputs.size < 10**4]
    e = found.evidence
    row |= {"replays": e.replays, "equal": e.equal, "calls": e.calls, "seconds": round(e.seconds, 2)}
    row["strategy"] = str(found.strategy) if found.strategy else f"{len(found.parts)} parts" if found.parts else None
    if e.counterexample is not None:
        row["notes"] = [*e.notes, f"{e.counterexample.strategy[:200]} failed after {e.equal} replays"]
    return row


def warm() -> None:
    """Compile what the workers need, once."""
    import fpsim

    x, y = np.ones((2, 64), np.float32), np.ones((64, 3), np.float32)
    chains = ("fused(16)+align(25)", "chunks(16, fused(8)+align(25))", "chunks(32, fused(32)+align(13))")
    for text in (*chains, "serial+fma", "serial", "lanes(4)+fma", "lanes(4)+kahan"):
        for form in ("", "+operands(bfloat16)", "+operands(float16)+output(float16)", "+operands(e4m3fn)"):
            fpsim.matmul(x, y, text + form)


def versions() -> dict[str, str]:
    """Return the versions of what is run."""
    found = {"NumPy": np.__version__}
    for module in ("torch", "cupy", "jax"):
        try:
            found[module] = str(__import__(module).__version__)
        except ImportError:
            continue
    if "torch" in found:
        import torch

        if torch.cuda.is_available():
            found["device"] = torch.cuda.get_device_name()
            found["cuBLAS"] = str(getattr(torch.backends.cuda, "cublas_version", lambda: "")())
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument(
        "--only", nargs="*", help="names of implementations for the float32 cases; none to leave them out"
    )
    parser.add_argument("--shapes", nargs="*", help="products such as 16x64x16, instead of all")
    parser.add_argument("--fake", action="store_true")
    parser.add_argument("-o", "--output", type=Path, default=Path(os.environ.get("OUT", ".")))
    options = parser.parse_args()
    start = time.monotonic()
    options.output.mkdir(parents=True, exist_ok=True)

    from fpsim.devices import implementations

    able = [one for one in implementations() if one.available and one.kind == "gpu"]
    able = [one for one in able if one.name.partition(".")[0] in ("torch", "cupy", "jax")]
    able = [one for one in able if options.only is None or one.name in options.only]
    tasks = product_tasks()
    if options.shapes:
        tasks = [task for task in tasks if task[2] in [parsed(text) for text in options.shapes]]
    tasks += missing_tasks([one.name for one in able])
    warm()
    print(f"{len(tasks)} tasks, {time.monotonic() - start:.0f} s until the first", file=sys.stderr, flush=True)
    about = {"versions": versions(), "devices": {one.name: one.device for one in able}, "tasks": len(tasks)}
    rows, done = run(tasks, about, options, start)
    show(rows, done, len(tasks), time.monotonic() - start)
    return 0


def run(tasks: list[Task], about: Any, options: Any, start: float) -> tuple[list[Any], int]:
    rows: list[dict[str, Any]] = []
    kept: dict[str, Any] = {}
    done, saved = 0, time.monotonic()

    def write() -> None:
        whole = {**about, "seconds": round(time.monotonic() - start, 1), "cases": rows}
        temporary = options.output / "cases.json.part"
        temporary.write_text(json.dumps(whole, indent=None).replace('}, {"implementation"', '},\n{"implementation"'))
        temporary.replace(options.output / "cases.json")
        np.savez_compressed(options.output / "open.npz", **kept)

    context = multiprocessing.get_context("spawn")
    with context.Pool(options.workers, settle, (context.Value("i", 0), options.fake)) as pool:
        running = pool.imap_unordered(work, tasks)
        while done < len(tasks):
            left = options.seconds - (time.monotonic() - start)
            try:
                _, more, arrays = running.next(timeout=max(0.1, left))
            except multiprocessing.TimeoutError:
                break
            done += 1
            rows += more
            kept |= arrays
            if time.monotonic() - saved > _SAVED:
                write()
                saved = time.monotonic()
        pool.terminate()
    write()
    return rows, done


def show(rows: list[dict[str, Any]], done: int, total: int, seconds: float) -> None:
    """Print what is open, and the table."""
    for row in rows:
        what = f"{row['implementation']} {row['op']} {'x'.join(map(str, row['shape']))} {row['kind']}"
        if row["strategy"] is None:
            notes = row.get("notes") or row.get("revealed", {}).get("evidence", {}).get("notes", [])
            reason = row.get("error") or f"best {row.get('best', 0):.1%} {' | '.join(notes)}"
            print(f"open: {what}: {reason[:160]}")
        elif not row.get("repeats", True):
            print(f"changes from run to run: {what}")
    print(f"\n{done} of {total} tasks in {seconds:.0f} s")
    groups: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        groups.setdefault((row["implementation"], row["kind"] if row["op"] == "matmul" else row["op"]), []).append(row)
    for (name, what), own in groups.items():
        found = [row for row in own if row["strategy"] is not None]
        used = len({row["strategy"] for row in found})
        took = sum(row.get("seconds", 0) for row in own)
        print(f"{name:12} {what:16} {len(found):3} of {len(own):3} established, {used:3} strategies, {took:6.0f} s")


if __name__ == "__main__":
    sys.exit(main())
