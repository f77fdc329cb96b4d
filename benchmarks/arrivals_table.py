"""Recorded runs on an H200 beside models of arrival: ``python benchmarks/arrivals_table.py [--runs 400]``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import fpsim
from fpsim.arrival_models import ArrivalModel, RecordedArrivals, SweepArrivals, h200_blocks

LAWS, SIZES = ("uniform(0,1)", "normal"), (100_000, 1_000_000)
BLOCK = "cuda_reduce(132, 256, warp=fold, second=shuffle+ftz)"
WARP = "cuda_reduce(1056, 32, warp=fold, second=shuffle+ftz)"
RECORDED = Path(__file__).parents[1] / "tests" / "data" / "h200_run_to_run.npz"


def cases(n: int, law: str) -> list[tuple[str, str, str, Any]]:
    """Return kind, strategy, name of the model, and the model of arrival, of sums of n terms.

    The numbers `late` were chosen by hand, to fit the runs on uniform data, with those on normal data in view.
    """
    uniform, normal = np.split(h200_blocks(n), 2)
    ranks, other = (uniform, normal) if law == LAWS[0] else (normal, uniform)
    sweeps = SweepArrivals(1056, 0.5 if n == 100_000 else 2.5)
    warps = RecordedArrivals(ranks, split=8, late=20 if n == 100_000 else 60)
    return [
        ("block", BLOCK, "recorded", ranks),
        ("block", BLOCK, "fitted to the other data", ArrivalModel.fit(other)),
        ("warp", WARP, f"recorded, late={warps.late:g}", warps),
        ("element", "shuffle+ftz", f"sweeps, late={sweeps.late:g}", sweeps),
        ("index_add_", "shuffle+ftz", f"sweeps, late={sweeps.late:g}", sweeps),
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    runs = parser.parse_args().runs
    recorded = np.load(RECORDED, allow_pickle=False)
    print("| runs | data | n | model | measured | predicted | ratio | distinct | predicted, 1000 runs |")
    print("|---|---|---|---|---|---|---|---|---|")
    for n in SIZES:
        for number, law in enumerate(LAWS):
            for kind, text, name, model in cases(n, law):
                values, counts = (recorded[f"{kind}/{law}/{n}/{part}"] for part in ("values", "counts"))
                measured = float(np.repeat(values.astype(np.float64), counts).std())
                x = fpsim.law(law).draw(n, rng=number)
                s = fpsim.spread("sum", x, strategy=text, runs=runs, arrivals=model)
                ratio = float(s.std) / measured
                columns = (measured, float(s.std))
                distinct = f"{values.size} | {s.expected_distinct(1000):.0f}"
                print(
                    f"| {kind} | {law} | {n} | {name} |",
                    *(f"{v:.3g} |" for v in columns),
                    f"{ratio:.2f} | {distinct} |",
                )


if __name__ == "__main__":
    main()
