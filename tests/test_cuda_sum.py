"""The reproducible sum on a GPU, without one: in Numba's simulator, and as PTX."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from fpsim.devices import _cuda_kernels as kernels, cuda as device, numba_cuda
from fpsim.errors import InputError, MissingExtraError

needs_numba_cuda = pytest.mark.skipif(
    find_spec("numba_cuda") is None or numba_cuda._numbers(np.__version__) >= (2, 5),
    reason="needs numba-cuda, and NumPy below 2.5, with which it works",
)
SIMULATED = """
import numpy as np
from numba import cuda
import fpsim
from fpsim.devices import cuda as device
rng = np.random.default_rng(0)
cases = [rng.standard_normal(60), rng.standard_normal(41) * 2.0 ** rng.uniform(-140, 120, 41), [3e38, 3e38, -3e38], [2.0**-149]]
cases += [[1.0, np.inf], [np.inf, -np.inf], [1.0, np.nan], [-np.inf], [-1e-45, 1e-45]]
for x in cases:
    x = np.asarray(x, np.float64).astype(np.float32)
    expected = np.float32(fpsim.exact.sum(x).round("float32"))
    for grid, block in ((1, 32), (3, 4), (2, 16)):
        places = cuda.to_device(np.zeros(device.PLACES, np.int64))
        device.kernel(block)[grid, block](cuda.to_device(x), places)
        got = device.result(places.copy_to_host())
        assert got.tobytes() == expected.tobytes() or (got != got and expected != expected), (x, grid, block, got, expected)
print("equal")
"""


@needs_numba_cuda
def test_any_launch_gives_the_exactly_rounded_sum_in_the_simulator() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SIMULATED],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.stdout == "equal\n", done.stderr


@needs_numba_cuda
def test_no_instruction_of_the_kernel_can_round_otherwise() -> None:
    from numba import types

    signature = (types.Array(types.float32, 1, "C"), types.Array(types.int64, 1, "C"))
    ptx, _ = kernels.numba_cuda().compile_ptx(device.source(256), signature, cc=(9, 0))
    assert not re.search(r"fma|\.ftz|\.approx|atom\.\w+\.add\.f", ptx)
    assert len(re.findall(r"\bcvt\.f64\.f32\b", ptx)) >= 1
    assert set(re.findall(r"\bmul\S*\.f64\b", ptx)) == {"mul.f64"}  # by powers of two


def test_digits_in_memory_are_one_number() -> None:
    places = [0] * device.PLACES
    places[12], places[13] = 1 << 3, 0  # 8 units of 2**-152
    assert device.result(places) == np.float32(2.0**-149)
    places[1] = -1  # -2**32 units of 2**88
    assert device.result(places) == np.float32(-(2.0**120))
    places[0] = 1 << 32
    assert device.result(places) == np.float32(2.0**-149)
    places[15] = 1
    assert device.result(places) == np.inf
    places[16] = 1
    assert np.isnan(device.result(places))


@pytest.mark.skipif(not numba_cuda._found()[0], reason="a GPU is there")
def test_without_a_gpu_it_says_what_is_missing() -> None:
    with pytest.raises(MissingExtraError, match="reproducible_sum needs a CUDA GPU"):
        device.reproducible_sum(np.ones(3, np.float32))


def test_launches_that_are_not_possible() -> None:
    with pytest.raises(InputError, match="power of two"):
        device._checked("block", 48)
    with pytest.raises(InputError, match="at least 1"):
        device._checked("grid", 0)
    with pytest.raises(InputError, match="float32, not float64"):
        device._host(np.ones(3))
