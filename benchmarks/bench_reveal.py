"""Calls and time of `fpsim.reveal` beside the algorithm of FPRev (Xie et al., USENIX ATC 2025).

FPRev's algorithm is written here from the pseudocode of the paper: it reveals a tree, with 1 for the unit and the first
term of a set as pivot, and does not check what it found. reveal finds the arithmetic too, and replays 200 operands.
Usage: python benchmarks/bench_reveal.py [n]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import fpsim

_MASK = np.float32(2.0**100)


class Counted:
    """A function that counts its calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *operands: Any) -> Any:
        self.calls += 1
        return self.function(*operands)


def fprev(function: Callable[[Any], Any], n: int, most: int) -> Any:
    """Return FPRev's tree as nested tuples, or None after `most` calls."""
    calls = 0

    def size(i: int, j: int) -> int:
        nonlocal calls
        calls += 1
        x = np.ones(n, np.float32)
        x[i], x[j] = _MASK, -_MASK
        return n - round(float(function(x)))

    def build(terms: list[int]) -> Any:
        if calls > most:
            return None
        if len(terms) == 1:
            return terms[0]
        groups: dict[int, list[int]] = {}
        for other in terms[1:]:
            groups.setdefault(size(terms[0], other), []).append(other)
        tree: Any = terms[0]
        for level in sorted(groups):
            tree = (tree, build(groups[level]))
        return tree

    sys.setrecursionlimit(10**6)
    tree = build(list(range(n)))
    return None if calls > most else tree


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 4096
    most = 200_000
    routines: dict[str, Callable[[Any], Any]] = {
        "np.sum": np.sum,
        "serial (np.add.accumulate)": lambda x: np.add.accumulate(x)[-1],
        "reverse serial": lambda x: np.add.accumulate(x[::-1])[-1],
        "np.sum in float64": lambda x: np.float32(np.sum(x, dtype=np.float64)),
        "lanes(8, combine=fold)": lambda x: fpsim.sum(x, "lanes(8, combine=fold)"),
        "a random permutation": lambda x: np.add.accumulate(x[np.random.default_rng(1).permutation(n)])[-1],
    }
    print(f"n = {n}; calls and seconds; FPRev stops after {most:,} calls")
    print(f"{'routine':30}{'reveal':>10}{'s':>8}{'FPRev':>12}{'s':>8}  strategy")
    for name, function in routines.items():
        ours, theirs = Counted(function), Counted(function)
        start = time.perf_counter()
        revealed = fpsim.reveal(ours, n=n, probe=True)
        middle = time.perf_counter()
        tree = fprev(theirs, n, most)
        end = time.perf_counter()
        calls = f"{theirs.calls:,}" if tree is not None else f"> {most:,}"
        text = "none" if revealed.strategy is None else str(revealed.strategy)[:40]
        print(f"{name:30}{ours.calls:>10,}{middle - start:>8.1f}{calls:>12}{end - middle:>8.1f}  {text}")


if __name__ == "__main__":
    main()
