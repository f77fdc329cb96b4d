"""Sums of our own on a GPU, without one: in Numba's simulator, and as PTX."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import fpsim
from fpsim.devices import _cuda_kernels as kernels, _cuda_sums as sums, cuda as device, numba_cuda
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

ORDERED = """
import numpy as np
import fpsim
from fpsim.devices import cuda as device
rng = np.random.default_rng(0)
device._require_gpu = lambda name: None
def tiles(x, _, out):  # the kernel two_pass, which the simulator does not run, without a GPU
    x = np.pad(x.copy_to_host(), (0, out.size * 1024 - x.size)).reshape(out.size, 4, 256)
    sums = ((x[:, 0] + x[:, 1]) + x[:, 2]) + x[:, 3]
    while sums.shape[1] > 1:
        sums = sums[:, : sums.shape[1] // 2] + sums[:, sums.shape[1] // 2 :]
    out.copy_to_device(sums[:, 0])
class Launcher:
    def __getitem__(self, launch):
        return tiles
device.kernels.compiled = lambda kernel, product: Launcher() if kernel == "two_pass" else None
np.seterr(all="ignore")
cases = [(how, n, grid, 8) for how in ("float32", "neumaier", "float64") for n in (1, 5, 37, 300) for grid in (1, 3)]
for how, n, grid, block in [*cases, *(("pairwise", n, 1, 8) for n in (5, 1025, 1500, 2**21))]:
    x = (rng.standard_normal(n) * 2.0 ** rng.uniform(-20, 20, n)).astype(np.float32)
    options = {} if how == "pairwise" else {"grid": grid, "block": block}
    expected = fpsim.sum(x, device.ordered_sum_strategy(n, how=how, **options))
    got = device.ordered_sum(x, how=how, **options)
    assert got.tobytes() == expected.tobytes(), (how, n, grid, got, expected)
for how in device.HOW:
    for x in ([1.0, np.inf], [np.inf, -np.inf], [np.nan, 1.0], [3e38, 3e38]):
        x = np.array(x, np.float32)
        got = device.ordered_sum(x, how=how, grid=1, block=2)
        expected = fpsim.sum(x, device.ordered_sum_strategy(2, how=how, grid=1, block=2))
        assert got.tobytes() == expected.tobytes() or (got != got and expected != expected), (how, x, got, expected)
print("equal")
"""
#: Instructions that may round, in the kernels of each kind.
ADDITIONS = {"float32": {"add.f32"}, "float64": {"add.f64"}, "neumaier": {"add.f32", "sub.f32"}}


@needs_numba_cuda
def test_ordered_sums_have_the_bits_of_their_strategies_in_the_simulator() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ORDERED],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.stdout == "equal\n", done.stderr


@pytest.mark.parametrize("kind", sums.SETTINGS)
@needs_numba_cuda
def test_ordered_sums_add_and_do_nothing_else(kind: str) -> None:
    for last in (False, True):
        function = sums.source(kind, 256, last=last)
        ptx, _ = kernels.numba_cuda().compile_ptx(function, sums.signature(kind, last=last), cc=(9, 0))
        found = set(re.findall(r"\b(?:add|sub|mul|fma|mad|div)\S*\.f(?:32|64)\b", ptx))
        assert found == ADDITIONS[kind]
        assert not re.search(r"\.ftz|\.approx", ptx)
        assert ("cvt.rn.f32.f64" in ptx) == (kind == "float64" and last)


def test_strategies_of_ordered_sums() -> None:
    assert device.ordered_sum_strategy(10**6) == "cuda_reduce(1056, 256)+neumaier"
    expected = "cuda_reduce(977, 256, items=4, second=cuda_reduce(1, 256, items=4))"
    assert device.ordered_sum_strategy(10**6, how="pairwise") == expected
    x = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    exact = float(fpsim.exact.sum(x).round("float64"))
    errors = {how: abs(float(fpsim.sum(x, device.ordered_sum_strategy(x.size, how=how))) - exact) for how in device.HOW}
    assert errors["float64"] <= np.spacing(np.float32(abs(exact))) / 2
    assert errors["neumaier"] <= np.spacing(np.float32(abs(exact)))
    assert fpsim.strategy(device.ordered_sum_strategy(10**7, how="pairwise")).program(10**7).height <= 33
    with pytest.raises(InputError, match="how must be one of float32, pairwise, neumaier, float64"):
        device.ordered_sum(x, how="kahan")


def test_ordered_sums_of_an_h200_have_the_bits_of_their_strategies() -> None:
    tests = Path(__file__).parent
    terms = runpy.run_path(str(tests.parent / "benchmarks" / "gpu" / "run_to_run.py"))["well_and_ill"]
    with np.load(tests / "data" / "h200_ordered_sums.npz", allow_pickle=False) as saved:
        recorded = {name: saved[name] for name in saved if name != "versions"}
    assert len(recorded) == 16
    for name, got in recorded.items():
        how, law, n = name.split("/")
        expected = fpsim.sum(terms(int(n))[law], device.ordered_sum_strategy(int(n), how=how))
        assert got.tobytes() == expected.tobytes(), name


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
        device._host(np.ones(3), "reproducible_sum")
