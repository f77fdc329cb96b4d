"""NumPy and the loops that Numba compiles, as implementations: every bit is the predicted one."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import reference
from blas import CORE, CORES, VERSION
from reference import same

import fpsim
from fpsim.devices import _openblas, numba_cpu, numpy as numpy_device
from fpsim.devices.base import Implementation
from fpsim.devices.operations import OPERATIONS
from fpsim.errors import UnknownOrderError
from fpsim.orders.numpy_matmul import VERSIONS

pytestmark = pytest.mark.skipif(
    not (2, 3) <= tuple(map(int, np.__version__.split(".")[:2])) <= (2, 5), reason="needs NumPy 2.3 to 2.5"
)

NUMPY, EINSUM = numpy_device.implementations()
NUMBA = {one.name: one for one in numba_cpu.implementations()}
THROUGH_BLAS = ("norm", "dot", "matvec", "vecmat", "matmul")
SIZES: dict[int, list[tuple[int, ...]]] = {
    1: [(1,), (2,), (7,), (8,), (33,), (129,), (1000,), (8193,)],
    2: [(1, 1), (1, 9), (9, 1), (3, 50), (17, 2), (2, 17), (17, 33), (64, 16), (130, 5)],
    3: [(1, 1, 1), (1, 9, 4), (5, 40, 3), (16, 16, 16), (33, 77, 29), (12, 100, 5)],
}

needs_blas = pytest.mark.skipif(
    CORE not in CORES or VERSION not in VERSIONS, reason="NumPy does not run known kernels of OpenBLAS here"
)


def _einsum_is_known() -> bool:
    try:
        EINSUM.strategy("sum", np.ones(3, np.float32))
    except UnknownOrderError:
        return False
    return True


needs_einsum = pytest.mark.skipif(not _einsum_is_known(), reason="needs NumPy for x86-64 with a baseline without FMA")


def check(one: Implementation, name: str, dtype: str, kinds: tuple[str, ...] = ("normal", "wide", "zeros")) -> int:
    """Compare an operation on all sizes; return for how many operands there is a prediction."""
    operation, rng = OPERATIONS[name], np.random.default_rng(1)
    known = 0
    for size in SIZES[operation.dimensions]:
        for kind in kinds:
            operands = []
            for shape in operation.shapes(*size):
                x = reference.random_terms(rng, int(np.prod(shape)), kind, dtype).reshape(shape)
                operands.append(np.exp2(x.clip(-3, 3) / 8) if name == "prod" else x)
            with np.errstate(all="ignore"):
                try:
                    strategy = one.strategy(name, *operands)
                    predicted = operation.emulate(tuple(operands), strategy)
                except UnknownOrderError:
                    continue
                actual = one.run(name, *operands)
            assert predicted.dtype == actual.dtype, (size, kind)
            assert same(predicted, actual).all(), (size, kind, str(strategy))
            known += 1
    return known


def everything(name: str) -> int:
    return 3 * len(SIZES[OPERATIONS[name].dimensions])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", [name for name in NUMPY.routines if name not in THROUGH_BLAS])
def test_numpy(name: str, dtype: str) -> None:
    known = check(NUMPY, name, dtype)
    assert known == (0 if (name, dtype) == ("multiply", "float64") else everything(name))


@pytest.mark.parametrize("name", THROUGH_BLAS)
def test_numpy_multiplies_half_precision_without_blas(name: str) -> None:
    assert check(NUMPY, name, "float16") == everything(name)


@needs_blas
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", THROUGH_BLAS)
def test_numpy_through_blas(name: str, dtype: str) -> None:
    # Products of small numbers underflow, and the sign of a zero tells whether one was fused.
    assert check(NUMPY, name, dtype, ("normal", "wide", "zeros", "small")) > len(SIZES[OPERATIONS[name].dimensions])


@needs_einsum
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", EINSUM.routines)
def test_einsum(name: str, dtype: str) -> None:
    known = check(EINSUM, name, dtype)
    assert (known > everything(name) // 2) == (dtype == "float32" or name == "matmul")


@pytest.mark.parametrize("name", ["numba.serial", "numba.fma", "numba.lanes", "numba.pairwise", "numba.numpy"])
def test_numba(name: str) -> None:
    one = NUMBA[name]
    for operation in one.routines:
        refused = name == "numba.numpy" and operation in ("var", "std")
        assert check(one, operation, "float32") == (0 if refused else everything(operation)), operation


def test_numba_in_double_precision() -> None:
    for kind, operation in [
        ("serial", "var"),
        ("numpy", "var"),
        ("fma", "matvec"),
        ("lanes", "sum"),
        ("pairwise", "dot"),
    ]:
        assert check(NUMBA[f"numba.{kind}"], operation, "float64") == everything(operation)


def test_fastmath_is_reproducible_and_unknown() -> None:
    one = NUMBA["numba.fastmath"]
    x = np.random.default_rng(2).standard_normal(10_000).astype(np.float32)
    with pytest.raises(UnknownOrderError, match="the compiler chooses the order"):
        one.strategy("sum", x)
    assert one.run("sum", x) == one.run("sum", x)
    assert abs(one.run("sum", x) - x.sum(dtype=np.float64)) < 1e-2


def test_what_is_not_known_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones(5)
    for operation, operands, reason in [
        ("sum", (np.ones(5, int),), "known for float16, float32, float64, not for int64"),
        ("sum", (np.ones(5, complex),), "not for complex128"),
        ("dot", (np.ones(5, np.longdouble),) * 2, "not for"),
    ]:
        with pytest.raises(UnknownOrderError, match=reason):
            NUMPY.strategy(operation, *operands)
    size = np.setbufsize(4096)
    try:
        with pytest.raises(UnknownOrderError, match="buffers of 8192 elements, not of 4096"):
            NUMPY.strategy("sum", x)
    finally:
        np.setbufsize(size)
    monkeypatch.setattr(np, "__version__", "2.2.6")
    with pytest.raises(UnknownOrderError, match=r"known for NumPy 2\.3 to 2\.5, not for 2\.2\.6"):
        NUMPY.strategy("sum", x)
    single = x.astype(np.float32)
    for blas, reason in [
        (_openblas.Blas("mkl-sdl"), "multiplies with mkl-sdl"),
        (_openblas.Blas("OpenBLAS", "neoversen1", "0.3.31"), "neoversen1 kernels"),
        (_openblas.Blas("OpenBLAS", "haswell", "0.3.12"), "OpenBLAS 0.3.12"),
        (_openblas.Blas("OpenBLAS", "haswell", "0.3.31", build="an OpenBLAS of another build"), "another build"),
    ]:
        monkeypatch.setattr(numpy_device, "numpy_blas", lambda blas=blas: blas)
        for name, operands in (("dot", (single, single)), ("norm", (single,)), ("matvec", (single[None], single))):
            with pytest.raises(UnknownOrderError, match=reason):
                NUMPY.strategy(name, *operands)
    monkeypatch.setattr(numpy_device, "is_x86", lambda: False)
    with pytest.raises(UnknownOrderError, match="x86-64"):
        EINSUM.strategy("sum", single)
    with pytest.raises(UnknownOrderError, match="not for float16"):
        NUMBA["numba.serial"].run("sum", x.astype(np.float16))


@needs_einsum
def test_einsum_with_one_column_is_refused() -> None:
    a, b = np.ones((5, 40), np.float32), np.ones((40, 1), np.float32)
    with pytest.raises(UnknownOrderError, match="one column"):
        EINSUM.strategy("matmul", a, b)
    assert str(EINSUM.strategy("matmul", a[:1], b)) == "einsum_dot"


@needs_blas
def test_the_blas_of_numpy() -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl")
    (pool,) = (pool for pool in threadpoolctl.threadpool_info() if "numpy" in pool["filepath"])
    blas = _openblas.numpy_blas()
    assert blas.core == pool["architecture"].lower()
    assert pool["version"].startswith(blas.version)
    for threads in (1, 2):
        with threadpoolctl.threadpool_limits(threads):
            assert _openblas.numpy_blas().threads == threads  # however many processors there are
            assert f"{threads} thread" in str(_openblas.numpy_blas())


@pytest.mark.skipif("haswell" not in CORES or VERSION not in VERSIONS, reason="needs a known OpenBLAS, and AVX2")
def test_numpy_through_the_haswell_kernels() -> None:
    environment = {**os.environ, "OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_NUM_THREADS": "1"}
    result = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "haswell\n"


def test_prediction_of_a_norm_in_half_precision_goes_on_from_the_rounded_sum() -> None:
    rng = np.random.default_rng(3)
    different = 0
    for _ in range(100):
        x = rng.standard_normal(50).astype(np.float16)
        assert NUMPY.run("norm", x) == fpsim.norm(x, NUMPY.strategy("norm", x))
        different += bool(fpsim.norm(x, "serial+output(float16)") != np.linalg.norm(x))
    assert different


def main() -> None:
    print(CORE)
    for name in THROUGH_BLAS:
        assert check(NUMPY, name, "float32", ("normal", "wide", "zeros", "small")), name


if __name__ == "__main__":
    main()
