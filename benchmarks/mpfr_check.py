"""Compare fused multiply-adds, additions and products with MPFR on 10**7 random and hard operands.

Usage: python benchmarks/mpfr_check.py [number of operations, default 10**7] [seed, default 0]

Every operation is checked against MPFR itself (gmpy2), in one rounding with the format's precision, exponent range and
subnormal numbers.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from fpsim.formats import BFLOAT16, E5M2, FLOAT16, FLOAT32, FLOAT64, TF32

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import triples
from reference import same


def main() -> int:
    count = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10_000_000
    rng = np.random.default_rng(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    formats = (FLOAT32, BFLOAT16, FLOAT16, TF32, E5M2, FLOAT64)
    each = max(1, count // (len(formats) * len(triples.OPERATIONS) * len(triples.KINDS)))
    done = wrong = 0
    start = time.perf_counter()
    for form in formats:
        for operation in triples.OPERATIONS:
            bad = checked = 0
            for kind in triples.KINDS:
                a, b, c = triples.triples(rng, each, form, kind, operation)
                modes = ["nearest-even"] if form == FLOAT64 else list(triples.MPFR_MODES)
                shares = [0.7] + [0.1] * (len(modes) - 1) if len(modes) > 1 else [1.0]
                cuts = np.cumsum([0, *(int(each * share) for share in shares)])
                cuts[-1] = each
                for mode, first, last in zip(modes, cuts[:-1], cuts[1:], strict=True):
                    part = (a[first:last], b[first:last], c[first:last])
                    exact = triples.by_mpfr(operation, *part, form, mode)
                    bad += report(
                        form, operation, kind, mode, part, triples.by_kernel(operation, *part, form, mode), exact
                    )
                    if form in (FLOAT32, FLOAT64) and mode == "nearest-even":
                        fast, places = triples.by_tiles(operation, *part, form)
                        some = tuple(x[places] for x in part)
                        bad += report(form, operation, kind, "tiles", some, fast.astype(np.float64), exact[places])
                    checked += last - first
            print(f"{form!s:>9} {operation}: {checked:8d} operations, {bad} unlike MPFR")
            done, wrong = done + checked, wrong + bad
    print(f"{done} operations, {wrong} unlike MPFR ({time.perf_counter() - start:.0f} s)")
    return int(wrong > 0)


def report(
    form: object,
    operation: str,
    kind: str,
    mode: str,
    operands: tuple[np.ndarray, ...],
    found: np.ndarray,
    exact: np.ndarray,
) -> int:
    bad = np.flatnonzero(~same(found, exact))
    for i in bad[:3]:
        values = ", ".join(float(x[i]).hex() for x in operands)
        print(
            f"UNLIKE: {form} {operation} {mode} ({kind}): {values}: {float(found[i]).hex()}, not {float(exact[i]).hex()}"
        )
    return len(bad)


if __name__ == "__main__":
    raise SystemExit(main())
