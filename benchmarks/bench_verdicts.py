"""Verdicts on injected faults and on pairs of different strategies: how often a fault passes, how often rounding does not.

    python benchmarks/bench_verdicts.py [--faults 10000] [--seconds 600] [--processes 2] [--seed 0] [--failures FILE] [--rows FILE]

A fault counts where it changes a bit. It is *inside rounding* where no output is further from the exact one than the
probabilistic tolerance of usual orders, at 1 - 10**-6: no tool can see it. All others must not be called rounding; faults
that are less precision may be called so. A pair of right results is a false alarm where a bug is suspected. Each
explanation has 16 right results, in eight pairs that share no side, and up to nine faulty ones; the verdict of a pair is
that of its worse side, which is checked on some pairs by explaining them alone.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import injected_faults as injected
import numpy as np
from scipy.stats import beta

import fpsim
from fpsim._matching import search
from fpsim._observed_operation import operation
from fpsim.errors import FpsimError
from fpsim.explaining.judging import examined
from fpsim.explaining.linear import _side
from fpsim.explanation import _fitted, _observation, _observed

_VERDICT = {
    "reproduced": "rounding", "rounding size": "rounding", "reduced": "reduced", "reduced size": "reduced",
    "too large": "unknown", "unlike the others": "unknown", "not examined": "unknown",
    "other computation": "bug", "fault": "bug", "beyond bound": "bug",
}  # fmt: skip
_OF_PAIRS = {
    "identical": "rounding", "expected rounding": "rounding", "reduced precision": "reduced", "unknown": "unknown",
    "bug suspected": "bug", "different computation": "bug",
}  # fmt: skip
_WORSE = ("rounding", "reduced", "unknown", "bug")
RIGHT, FAULTY = 16, 9


def explain(given: injected.Problem, observed: dict[str, Any]) -> fpsim.Explanation:
    inputs = given.operands if len(given.operands) > 1 else given.operands[0]
    return fpsim.explain(observed, op=given.op, inputs=inputs, axis=given.axis)


def sides(given: injected.Problem, observed: dict[str, Any]) -> list[Any]:
    """Return what an explanation says of each side; of sums and products without comparing each pair of sides."""
    if given.op not in ("sum", "dot", "matmul") or len(given.operands) > 2:
        inputs = given.operands if len(given.operands) > 1 else given.operands[0]
        observation = _observation((observed,), given.op, inputs, None, {}, None)
        assert observation.case is not None
        return examined(observation.case, observation)[1]
    task = operation(given.op, given.operands if len(given.operands) > 1 else given.operands[0], axis=given.axis)
    fitted = {name: _fitted(name, *pair, task) for name, pair in _observed((observed,), None).items()}
    reference = task.exact()
    found = search(task, fitted, strategies=[], seed=0)
    sampled = task.sample(np.random.default_rng(0)).outputs
    return [_side(name, *pair, found[name], task, reference, sampled) for name, pair in fitted.items()]


def one(seed: int) -> list[dict[str, Any]]:
    """Return a row for each pair of one random problem."""
    rng = np.random.default_rng([seed, 7])
    given = injected.problem(rng)
    right: dict[str, Any] = {}
    while len(right) < RIGHT:
        text = given.strategy(rng)
        try:
            right[f"{len(right)} {text}"] = given.compute(text)
        except FpsimError:
            continue
    truth, allowed = given.exact(), given.tolerance()
    faulty, inside = {}, {}
    strategy = next(name for name in right).split(" ", 1)[1]
    kinds = injected.faults(given, rng, strategy)
    plain = given.compute(strategy)
    for kind in rng.permutation(list(kinds)):
        try:
            values = kinds[kind]()
        except FpsimError:
            continue
        if values.shape == plain.shape and not np.array_equal(values, plain, equal_nan=True) and len(faulty) < FAULTY:
            name = f"fault {kind}"
            faulty[name] = values
            with np.errstate(all="ignore"):
                far = np.abs(values.astype(np.float64) - truth) > allowed + 2.0**-24 * np.abs(truth)
            inside[name] = not bool(np.any(far | ~np.isfinite(values)))
    start = time.perf_counter()
    try:
        found = sides(given, {**right, **faulty})
    except Exception as error:  # noqa: BLE001 - a failure of the program is a row of its own
        return [{"kind": "failed", "seed": seed, "error": f"{type(error).__name__}: {error}"}]
    seconds = time.perf_counter() - start
    verdicts = {side.name: _VERDICT[side.status] for side in found}
    notes = {side.name: f"{side.status}: {side.note}" for side in found}
    common = {"seed": seed, "op": given.op, "law": given.law, "terms": given.size, "outputs": int(plain.size)}
    rows = []
    names = list(right)
    for a, b in zip(names[::2], names[1::2], strict=True):
        verdict = max(verdicts[a], verdicts[b], key=_WORSE.index)
        rows.append({**common, "kind": "right", "pair": (a, b), "verdict": verdict,
                     "notes": [notes[a], notes[b]]})  # fmt: skip
    for number, name in enumerate(faulty):
        other = names[number]
        verdict = max(verdicts[name], verdicts[other], key=_WORSE.index)
        rows.append({**common, "kind": name[6:], "pair": (name, other), "verdict": verdict, "inside": inside[name],
                     "alone": verdicts[name], "notes": [notes[name], notes[other]]})  # fmt: skip
    if seed % 25 == 0:  # does a pair alone have the same verdict?
        row = rows[-1]
        both = {name: {**right, **faulty}[name] for name in row["pair"]}
        row["checked"] = _OF_PAIRS[explain(given, both).verdict] == row["verdict"]
    rows[0]["seconds"] = seconds
    return rows


def limits(count: int, total: int) -> str:
    """Return a share in percent with its Clopper-Pearson limits of 95 %."""
    if not total:
        return "-"
    low = beta.ppf(0.025, count, total - count + 1) if count else 0.0
    high = beta.ppf(0.975, count + 1, total - count) if count < total else 1.0
    return f"{100 * count / total:.2f} % ({100 * low:.2f} to {100 * high:.2f})"


def report(rows: list[dict[str, Any]]) -> str:
    """Return the tables."""
    lines = ["| fault | outside rounding | bug | unknown | reduced precision | passed as rounding | inside rounding |"]
    lines.append("|---|--:|--:|--:|--:|--:|--:|")
    faults = [row for row in rows if row["kind"] not in ("right", "failed")]
    outside = [row for row in faults if not row["inside"]]
    for kind in sorted({row["kind"] for row in faults}):
        own = Counter(row["alone"] for row in outside if row["kind"] == kind)
        hidden = sum(row["inside"] for row in faults if row["kind"] == kind)
        lines.append(
            f"| {kind} | {own.total()} | {own['bug']} | {own['unknown']} | {own['reduced']} | {own['rounding']} | {hidden} |"
        )
    missed = [row for row in outside if missed_fault(row)]
    right = [row for row in rows if row["kind"] == "right"]
    own = Counter(row["verdict"] for row in right)
    called = Counter(row["alone"] for row in outside)
    failed = [row for row in rows if row["kind"] == "failed"]
    checked = [row["checked"] for row in rows if "checked" in row]
    told = f"{len(faults)} faults, {len(outside)} outside rounding: missed {len(missed)}, {limits(len(missed), len(outside))}"
    told += f"; called a bug {limits(called['bug'], len(outside))}, unknown {limits(called['unknown'], len(outside))}"
    pairs = f"{len(right)} pairs of right results: false alarms {own['bug']}, {limits(own['bug'], len(right))}; unknown"
    pairs += f" {limits(own['unknown'], len(right))}, reduced precision {limits(own['reduced'], len(right))}"
    lines += [
        "", told, pairs,
        f"{sum(checked)} of {len(checked)} pairs that were explained alone have the same verdict; {len(failed)} explanations failed",
    ]  # fmt: skip
    return "\n".join(lines)


def missed_fault(row: dict[str, Any]) -> bool:
    """Whether a fault outside rounding was called rounding, or reduced precision without being so."""
    return row["alone"] == "rounding" or (row["alone"] == "reduced" and row["kind"] not in injected.REDUCED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--failures", type=Path, help="where pairs with a wrong verdict are listed, as JSON lines")
    parser.add_argument("--rows", type=Path, help="JSON lines that rows are added to; all in it are reported")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    rows: list[dict[str, Any]] = []
    seed = arguments.seed * 1_000_000
    with ProcessPoolExecutor(arguments.processes) as pool:
        waiting = {pool.submit(one, seed + i) for i in range(2 * arguments.processes)}
        seed += len(waiting)
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                rows += future.result()
            right = sum(row["kind"] == "right" for row in rows)
            if time.monotonic() < end and min(len(rows) - right, right) < arguments.faults:
                waiting |= {pool.submit(one, seed + i) for i in range(len(done))}
                seed += len(done)
    if arguments.failures is not None:
        wrong = [row for row in rows if row["kind"] == "failed" or row.get("checked") is False
                 or (row["kind"] == "right" and row["verdict"] != "rounding")
                 or (row.get("inside") is False and (missed_fault(row) or row["alone"] == "unknown"))]  # fmt: skip
        arguments.failures.write_text("\n".join(json.dumps(row) for row in wrong) + "\n")
    if arguments.rows is not None:
        with arguments.rows.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        rows = [json.loads(line) for line in arguments.rows.read_text().splitlines()]
    print(report(rows), flush=True)
    used = [row["seconds"] for row in rows if "seconds" in row]
    print(f"{len(used)} explanations, {np.mean(used):.2f} s each, the slowest {max(used):.2f} s")


if __name__ == "__main__":
    main()
