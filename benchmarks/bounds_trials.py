"""Look for violations of the worst-case bounds over random orders, arithmetics and laws.

    python benchmarks/bounds_trials.py --trials 1000000 [--seconds 3000] [--seed 0] [--out counts.json]

A trial is one output: a strategy drawn from every generic order (nested ones, uniform random trees), accumulator format,
rounding mode, compensation and setting, operands drawn from a law, the emulated result, and its exact error beside
that of the strategy (`bounds.bound`, with and without the value) and every other proved bound of `fpsim.bounds` that
applies. Prints the counts at the end; the exit status is 1 if any bound was exceeded.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import time
from pathlib import Path

import numpy as np

import fpsim
from fpsim import bounds, exact
from fpsim.bounds.tables import PROVED
from fpsim.errors import FpsimError

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from random_cases import random_case


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--trials", type=int, default=10**6)
    arguments.add_argument("--seconds", type=float, default=float("inf"))
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--out", type=Path)
    given = arguments.parse_args()
    rng = np.random.default_rng(given.seed)
    counts: collections.Counter[str] = collections.Counter()
    tightest: dict[str, float] = collections.defaultdict(float)
    violations: list[str] = []
    end, shown = time.monotonic() + given.seconds, time.monotonic()
    while counts["trials"] < given.trials and time.monotonic() < end:
        drawn = random_case(rng, outputs=40)
        if drawn is None:
            continue
        op, chosen, inputs, axis = drawn
        try:
            result = getattr(fpsim, op)(*inputs, chosen, **axis)
        except FpsimError:  # an inner part and the whole contradict each other
            continue
        truth = getattr(exact, op)(*inputs, **axis)
        with np.errstate(invalid="ignore"):
            error = np.atleast_1d(np.abs(truth.error(result)))
        value = truth.round("float64")
        limits = {"strategy": [bounds.bound(op, chosen, *inputs, value=v, **axis) for v in (None, value)]}
        given_case = bounds.case(op, chosen, *inputs, **axis)
        for one in PROVED:
            try:
                limits[one.__name__] = [one(given_case)]
            except bounds.NotApplicableError:
                counts[f"{one.__name__} does not apply"] += error.size
        counts["trials"] += error.size
        counts[op] += error.size
        for name, each in limits.items():
            for limit in map(np.atleast_1d, each):
                finite = np.isfinite(limit)
                counts[f"{name} finite"] += int(finite.sum())
                if (~(error <= limit) & finite).any() or np.isnan(limit).any():
                    violations.append(f"{name} {op} {chosen} {[x.shape for x in inputs]} seed {given.seed}")
                with np.errstate(all="ignore"):
                    ratio = np.where(finite & (limit > 0), error / limit, 0.0)
                tightest[name] = max(tightest[name], float(ratio.max()))
        counts["strategies"] += 1
        if time.monotonic() - shown > 20:
            shown = time.monotonic()
            print(f"{counts['trials']} trials, {len(violations)} violations", file=sys.stderr, flush=True)
    out = {"counts": dict(counts), "largest error/bound": tightest, "violations": violations}
    print(json.dumps(out, indent=1))
    if given.out is not None:
        given.out.write_text(json.dumps(out, indent=1))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
