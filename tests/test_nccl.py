"""All-reduces of NCCL against recorded ones: four ranks on an H200, rings and trees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import record_collectives as recorded
from numpy.typing import NDArray

import fpsim

NCCL = np.load(Path(__file__).parent / "data" / "nccl.npz")
RUNS = range(6)


def replay(x: NDArray[Any], text: str) -> NDArray[Any]:
    """Return the sum in the type of x."""
    return np.asarray(fpsim.sum(x, text, axis=0)).astype(x.dtype)


def rule_of(run: int, n: int, kind: str) -> str:
    """Return what NCCL did in a recorded run; the number of channels is the one that NCCL printed."""
    algorithm, protocol, *_ = str(NCCL[f"{run}/settings"]).split()
    types, sizes = NCCL["types"].tolist(), NCCL["sizes"].tolist()
    channels = int(NCCL[f"{run}/channels"][types.index(kind), sizes.index(n)])
    counts = recorded.nccl_counts(n, np.dtype(recorded.TYPES[kind]).itemsize, channels, protocol)
    if algorithm == "Ring":
        return f"nccl_ring(counts={counts}, chunk_bytes=[{2**21 if protocol == 'Simple' else 2**15}])"
    return (
        f"nccl_tree(nodes=2, counts={counts}, channels=2)" if "nodes" in str(NCCL[f"{run}/settings"]) else "nccl_tree"
    )


@pytest.mark.parametrize("run", RUNS)
def test_results(run: int) -> None:
    ranks, sizes, different = int(NCCL["ranks"]), NCCL["sizes"].tolist(), []
    for kind, wanted in zip(NCCL["types"].tolist(), NCCL[f"{run}/sums"].tolist(), strict=True):
        for n, theirs, given in zip(sizes, wanted, NCCL["rows"].tolist(), strict=True):
            x = recorded.nccl_rows(ranks, n)
            assert recorded.digest(x) == given, "NumPy draws other numbers than those that were recorded"
            x = x.astype(recorded.TYPES[kind])
            total = recorded.nccl_kept(replay(x, rule_of(run, n, kind))).astype(np.float32)
            if recorded.digest(total) != theirs:
                different.append((kind, n))
    assert different == []


@pytest.mark.parametrize("run", RUNS)
def test_probes_of_every_element(run: int) -> None:
    # How many ranks are added after two of them have met.
    ranks = int(NCCL["ranks"])
    pairs = [(i, j) for i in range(ranks) for j in range(i + 1, ranks)]
    for n, wanted in zip(NCCL["sizes"].tolist(), NCCL[f"{run}/probes"].T.tolist(), strict=True):
        rule = rule_of(run, n, "float32")
        met = [replay(recorded.nccl_probe(ranks, n, *pair), rule).astype(np.int8) for pair in pairs]
        assert [recorded.digest(count) for count in met] == wanted, n


def test_other_types_have_other_chunks() -> None:
    # The channels of the float32 message do not predict the float16 one.
    n = 65537
    x = recorded.nccl_rows(4, n).astype(np.float16)
    wanted = int(NCCL["0/sums"][1, NCCL["sizes"].tolist().index(n)])
    assert recorded.digest(replay(x, rule_of(0, n, "float16")).astype(np.float32)) == wanted
    assert recorded.digest(replay(x, rule_of(0, n, "float32")).astype(np.float32)) != wanted
