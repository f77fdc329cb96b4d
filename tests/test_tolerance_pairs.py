"""Real results against their tolerances: true pairs pass, and bugs fail. benchmarks/tolerance_pairs.py does all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_tensor_cores import strategy_of

import fpsim
from fpsim.devices import implementations
from fpsim.errors import UnknownOrderError
from fpsim.testing import assert_close

DATA = Path(__file__).parent / "data"
CPU = 'numpy_matmul(core=skylakex, threads=1, version="0.3.31")'
with np.load(DATA / "h200_products.npz", allow_pickle=False) as file:
    PRODUCTS = {name: file[name] for name in file.files}
with np.load(DATA / "h200_tensor_cores.npz", allow_pickle=False) as file:
    UNITS = {name: file[name] for name in file.files}
CASES = [name.removesuffix("/A") for name in PRODUCTS if name.endswith("/A")]
UNIT_CASES = [
    name for name in UNITS
    if name.split("/")[1:2] in (["u01"], ["normal"], ["wide"]) and name.rpartition("/")[2] in ("tf32", "bf16_f32", "bf16", "f16_f32", "f16")
]  # fmt: skip


def check_bugs(a: Any, b: Any, right: Any, tol: fpsim.Tolerance, compute: Callable[[Any, Any], Any]) -> None:
    """Check that results with bugs are told from the right ones."""
    with pytest.raises(AssertionError, match="outputs are further apart"):
        assert_close(compute(np.ascontiguousarray(a[:, :-1]), np.ascontiguousarray(b[:-1])), right, tol)
    with pytest.raises(AssertionError, match="outputs are further apart"):
        assert_close(compute(a, np.ascontiguousarray(b.T).reshape(b.shape)), right, tol)
    tile = compute(a, b)
    tile[:8, :8] = np.roll(tile, -1, axis=1)[:8, :8]
    with pytest.raises(AssertionError, match=r"outputs are further apart"):
        assert_close(tile, right, tol)


def serial(a: Any, b: Any) -> Any:
    return fpsim.matmul(a, b, "serial+fma")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("other", ["profile:h200/cublas-13.1", "any order+fma"])
def test_numpy_and_an_h200_in_float32(case: str, other: str) -> None:
    a, b, cpu, gpu = (PRODUCTS[f"{case}/{leaf}"] for leaf in ("A", "B", "numpy.f32", "torch.f32"))
    tol = fpsim.tolerance("matmul", a, b, between=(CPU, other))
    assert_close(cpu, gpu, tol)
    np.testing.assert_allclose(cpu, gpu, **tol.kwargs("numpy"))
    check_bugs(a, b, gpu, tol, serial)
    with pytest.raises(AssertionError, match="outputs are further apart"):
        assert_close(cpu, fpsim.matmul(a, b, "fused(8)+align(25)+operands(tf32)"), tol)


@pytest.mark.parametrize("case", UNIT_CASES)
def test_float32_and_an_h200_in_reduced_precision(case: str) -> None:
    where, _, kind = case.rpartition("/")
    a, b, gpu = UNITS[f"{where}/a"], UNITS[f"{where}/b"], UNITS[case]
    shape = where.partition("/")[0]
    # The inputs are rows and columns of a larger product, whose order was that of its shape.
    tol = fpsim.tolerance("matmul", a, b, between=("serial+fma", strategy_of(shape, kind)))
    assert_close(serial(a, b), gpu, tol)
    if np.isfinite(tol.atol):  # no pair of numbers allows for results that may overflow
        np.testing.assert_allclose(serial(a, b), gpu, **tol.kwargs("numpy"))
    # Terms of many magnitudes are lost in the rounding of operands, and in outputs of 8 bits.
    if kind not in ("bf16", "f16") and where.endswith(("u01", "normal")):
        with pytest.raises(AssertionError, match="outputs are further apart"):
            assert_close(serial(a[:, :-1].copy(), b[:-1].copy()), gpu, tol)
    strict = fpsim.tolerance("matmul", a, b, between=("serial+fma", "split_k(4)+fma"))
    with pytest.raises(AssertionError, match="outputs are further apart"):
        assert_close(serial(a, b), gpu, strict)  # passed off as float32


@pytest.mark.parametrize("case", [name for name in UNITS if "/special" in name and name[-2:] not in ("/a", "/b")])
def test_infinite_and_overflowing_operands_on_an_h200(case: str) -> None:
    where, _, kind = case.rpartition("/")
    a, b, gpu = UNITS[f"{where}/a"], UNITS[f"{where}/b"], UNITS[case]
    cpu = fpsim.matmul(a, b, "serial+fma")
    tol = fpsim.tolerance("matmul", a, b, between=("serial+fma", strategy_of(where.partition("/")[0], kind)))
    assert_close(cpu, gpu, tol)
    nan = np.isnan(cpu) & np.isnan(gpu)
    assert nan.any()
    with pytest.raises(AssertionError, match="outputs are further apart"):
        assert_close(cpu, np.where(nan, 1, gpu), tol)


@pytest.mark.parametrize("k", [16, 256, 4096])
@pytest.mark.parametrize("law", ["uniform(0, 1)", "normal"])
def test_tf32_is_told_from_float32(k: int, law: str) -> None:
    a, b = fpsim.law(law).draw((8, k), rng=1), fpsim.law(law).draw((k, 8), rng=2)
    right = fpsim.matmul(a, b, "interleaved(5, block=8)+fma")
    tol = fpsim.tolerance("matmul", a, b, between=("serial+fma", "interleaved(5, block=8)+fma"))
    assert_close(serial(a, b), right, tol)
    with pytest.raises(AssertionError, match="outputs are further apart"):
        assert_close(fpsim.matmul(a, b, "fused(8)+align(25)+operands(tf32)"), right, tol)
    check_bugs(a, b, right, tol, serial)


NUMPY: dict[str, tuple[str, Any]] = {
    "sum": ("numpy_sum", np.sum),
    "dot": ("openblas_sdot", np.dot),
    "matmul": ("numpy_matmul", np.matmul),
}
HERE = [one for one in implementations("numpy") if one.available]


@pytest.mark.parametrize("implementation", HERE, ids=lambda one: one.name)
@pytest.mark.parametrize("op", NUMPY)
def test_routines_here(implementation: Any, op: str) -> None:
    sizes: dict[str, list[tuple[int, ...]]] = {"sum": [(3000,)], "dot": [(3000,)] * 2, "matmul": [(7, 150), (150, 9)]}
    given = [fpsim.law("normal").draw(shape, rng=3 + i) for i, shape in enumerate(sizes[op])]
    strategy, call = NUMPY[op]
    try:
        other = str(implementation.strategy(op, *given))
        tol = fpsim.tolerance(op, *given, between=(strategy, other))
    except UnknownOrderError:  # on another processor
        tol = fpsim.tolerance(op, *given, between=("any order", "any order"))
    result = implementation.run(op, *given)
    assert_close(call(*given), result, tol)
    less = [x[..., :-1] if i == 0 else x[:-1] for i, x in enumerate(given)]
    with pytest.raises(AssertionError, match="further apart"):
        assert_close(call(*less), result, tol)
