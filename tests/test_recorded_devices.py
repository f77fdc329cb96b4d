"""What kernels of our own gave on a GPU, replayed to the bit: recorded by ``benchmarks/gpu/check_devices.py``.

What PyTorch and CuPy gave is in ``test_torch_rules.py`` and ``test_cub_rules.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import device_inputs as inputs
import numpy as np
import pytest

from fpsim.devices import numba_cuda
from fpsim.devices.operations import OPERATIONS, predicted

RECORDED: dict[str, Any] = dict(np.load(Path(__file__).parent / "data" / "recorded_devices.npz"))
ROUTINES = sorted(key.removesuffix("/bits") for key in RECORDED if key.endswith("/bits"))
KERNELS = {one.name: one for one in numba_cuda.implementations()}


@pytest.mark.parametrize("routine", ROUTINES)
def test_recorded_results(routine: str) -> None:
    name, operation = routine.rsplit("/", 1)
    kernel = KERNELS[name].routines[operation]
    wrong = []
    rows = zip(*(RECORDED[f"{routine}/{part}"] for part in ("size", "law", "bits")), strict=True)
    for size, law, recorded in rows:
        operands = inputs.operands(operation, OPERATIONS[operation].shapes(*size.tolist()), str(RECORDED["laws"][law]))
        strategy = kernel.strategy(*operands)
        if inputs.digest(predicted(operation, strategy, *operands)) != recorded:
            wrong.append((size.tolist(), inputs.LAWS[law], strategy))
    assert wrong == []


def test_every_kernel_is_recorded() -> None:
    assert {f"{name}/{operation}" for name, one in KERNELS.items() for operation in one.routines} == set(ROUTINES)


def test_operands_are_the_same_everywhere() -> None:
    # The recording holds results alone; its operands come from here.
    assert inputs.digest(inputs.draw((10007,), "wide", 5)) == 2555285199
    digests = [2373664187, 2211392202, 2435787609, 401830262, 518390879]
    assert [inputs.digest(inputs.draw((1000,), law, 3)) for law in inputs.LAWS] == digests
    assert inputs.digest(inputs.factors(1000, 7)) == 1065515390
