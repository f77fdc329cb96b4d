"""Scans as devices make them, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.explaining.scans import by_threads
from fpsim.formats import FLOAT32


def _one_by_one(x: np.ndarray, items: int, threads: int, product: bool) -> list[float]:
    """Return the scan by loops over blocks, warps and lanes."""
    one, join = np.float32(product), np.multiply if product else np.add
    out, carried = [], one
    for block in range(0, len(x), items * threads):
        before = one
        for warp in range(block, block + items * threads, 32 * items):
            lanes = []
            for lane in range(32):
                total = one
                for value in x[warp + lane * items : warp + (lane + 1) * items]:
                    total = join(total, value)
                lanes.append(total)
            for step in (1, 2, 4, 8, 16):
                lanes = [join(lanes[i - step], lanes[i]) if i >= step else lanes[i] for i in range(32)]
            for lane in range(32):
                total = join(carried, join(before, lanes[lane - 1] if lane else one))
                for value in x[warp + lane * items : warp + (lane + 1) * items]:
                    total = join(total, value)
                    out.append(float(total))
            before = join(before, lanes[-1])
        carried = join(carried, before)
    return out


@pytest.mark.parametrize("product", [False, True])
@pytest.mark.parametrize(("n", "items"), [(1, 4), (100, 4), (511, 15), (1000, 15), (777, 3)])
def test_threads_scan_as_a_loop_over_them_does(product: bool, n: int, items: int) -> None:
    x = (1 + 0.01 * np.random.default_rng(n).standard_normal(n)).astype(np.float32)
    given = by_threads(np.stack([x, x[::-1]]), FLOAT32, product, items, 64)
    assert given[0].tolist() == _one_by_one(x, items, 64, product)
    assert given[1].tolist() == _one_by_one(x[::-1], items, 64, product)
