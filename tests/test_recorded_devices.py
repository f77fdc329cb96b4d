"""What routines gave on a GPU, replayed to the bit: recorded by ``benchmarks/gpu/check_devices.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import device_inputs as inputs
import numpy as np
import pytest

from fpsim.devices import numba_cuda
from fpsim.devices.operations import OPERATIONS, predicted
from fpsim.strategies import strategy

FILE = Path(__file__).parent / "data" / "recorded_devices.npz"
RECORDED: dict[str, Any] = dict(np.load(FILE)) if FILE.exists() else {}
ROUTINES = sorted(key.removesuffix("/bits") for key in RECORDED if key.endswith("/bits"))
KERNELS = {one.name: one for one in numba_cuda.implementations()}


@pytest.mark.skipif(not FILE.exists(), reason="no recording: run benchmarks/gpu/check_devices.py on a GPU")
@pytest.mark.parametrize("routine", ROUTINES)
def test_recorded_results(routine: str) -> None:
    name, operation = routine.rsplit("/", 1)
    sizes, laws, strategies, bits = (RECORDED[f"{routine}/{part}"] for part in ("size", "law", "strategy", "bits"))
    texts, names = RECORDED["strategies"], RECORDED["laws"]
    for size, law, number, recorded in zip(sizes.tolist(), laws, strategies, bits, strict=True):
        operands = inputs.operands(operation, OPERATIONS[operation].shapes(*size), str(names[law]))
        text = str(texts[number])
        if name in KERNELS:
            assert str(strategy(KERNELS[name].routines[operation].strategy(*operands))) == text
        assert inputs.digest(predicted(operation, text, *operands)) == recorded, (size, str(names[law]), text)


def test_operands_are_the_same_everywhere() -> None:
    # The recording holds results alone; its operands come from here.
    assert inputs.digest(inputs.draw((10007,), "wide", 5)) == 2555285199
    digests = [2373664187, 2211392202, 2435787609, 401830262, 518390879]
    assert [inputs.digest(inputs.draw((1000,), law, 3)) for law in inputs.LAWS] == digests
    assert inputs.digest(inputs.factors(1000, 7)) == 1065515390
