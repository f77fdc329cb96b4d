"""NumPy's matrix products against the rule `numpy_matmul`, to the bit, where NumPy runs the kernels that it knows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from blas import CORE, CORES, PROCESSOR, VERSION

import fpsim
from fpsim.errors import StrategyError, UnknownOrderError
from fpsim.orders.numpy_matmul import VERSIONS

threadpoolctl = pytest.importorskip("threadpoolctl")

only_known = pytest.mark.skipif(
    CORE != "skylakex" or VERSION not in VERSIONS, reason="NumPy does not run known SKYLAKEX kernels of OpenBLAS here"
)


def operands(rng: np.random.Generator, m: int, k: int, n: int) -> Iterator[tuple[Any, Any]]:
    for law in ("uniform", "normal", "wide"):
        pair = []
        for shape in ((m, k), (k, n)):
            if law == "uniform":
                pair.append(rng.random(shape, np.float32))
            elif law == "normal":
                pair.append(rng.standard_normal(shape, np.float32))
            else:
                exponents = rng.uniform(-30, 30, shape)
                pair.append((np.exp2(exponents) * rng.choice([-1, 1], shape)).astype(np.float32))
        yield pair[0], pair[1]


def layouts(a: Any, b: Any) -> Iterator[tuple[Any, Any]]:
    yield a, b
    yield a, np.asfortranarray(b)
    yield np.asfortranarray(a), b
    yield np.asfortranarray(a), np.asfortranarray(b)
    yield a, a.T
    yield np.asfortranarray(a), np.asfortranarray(a).T
    yield a, b[:, 0].copy()
    yield a, b[:, :1].copy()
    yield np.asfortranarray(a), b[:, 0].copy()
    yield a[0].copy(), b
    yield a[:1].copy(), np.asfortranarray(b)
    yield a[0].copy(), b[:, 0].copy()


def agree(a: Any, b: Any, threads: int) -> bool:
    """Whether the rule has NumPy's bits, or refuses a product in which NumPy crashes."""
    data = np.result_type(a, b)
    settings = f'core={CORE}, threads={threads}, version="{VERSION}", data={data}, processor={PROCESSOR}'
    try:
        emulated = np.asarray(fpsim.matmul(a, b, f"numpy_matmul({settings})"))
    except UnknownOrderError as error:
        return "beyond its stack" in str(error)
    # Once in many runs the flag was set for finite numbers, most likely by lanes beyond a matrix that OpenBLAS drops.
    with threadpoolctl.threadpool_limits(threads), np.errstate(invalid="ignore"):
        native = np.asarray(a @ b)
    bits = f"u{data.itemsize}"
    return bool(np.array_equal(emulated.view(bits), native.view(bits)))


def check_products(threads: int, repeats: int, data: str) -> None:
    """Compare products of random shapes and layouts."""
    rng = np.random.default_rng(threads)
    for _ in range(repeats):
        m, n = (int(size) for size in rng.integers(1, 90, 2))
        k = int(rng.choice([rng.integers(1, 12), rng.integers(12, 80), rng.integers(80, 1500)]))
        for a, b in operands(rng, m, k, n):
            for left, right in layouts(a.astype(data), b.astype(data)):
                assert agree(left, right, threads), (left.shape, right.shape, left.strides, right.strides)


def check_matrix_vector_products(threads: int, data: str) -> None:
    """Compare products with a vector at the sizes where OpenBLAS changes kernels, blocks and shares of threads."""
    rng = np.random.default_rng(5)
    for rows, columns in [
        *((rows, columns) for rows in (3, 14, 31) for columns in (2, 3, 4, 5, 6, 7, 8, 9, 53)),
        (16_384, 5), (16_385, 5), (17, 4101), (4103, 60), (1000, 461), (303, 4500), (2, 230_403), (4, 115_200),
        (5, 92_161),
    ]:  # fmt: skip
        a = rng.standard_normal((rows, columns), np.dtype(data))
        for matrix in (a, a.T):
            x, y = (rng.standard_normal(size, np.dtype(data)) for size in matrix.shape)
            assert agree(matrix, y, threads), (matrix.shape, matrix.strides)
            assert agree(x, matrix, threads), (matrix.shape, matrix.strides)
    for n in (2, 31, 100, 2001, 10_000, 10_001, 20_071):
        x, y = rng.standard_normal(n, np.dtype(data)), rng.standard_normal(n, np.dtype(data))
        assert agree(x, y, threads), n


def check_products_that_underflow(data: str) -> None:
    """Compare products of which many are below the smallest subnormal: the signs of zeros tell what is fused."""
    rng = np.random.default_rng(6)
    middle = {"float32": -75, "float64": -538}[data]
    for terms in (1, 2, 3, 4, 5, 6, 7, 8, 11, 49):
        for outputs in (1, 2, 3, 4, 7, 19):
            for sign in (-1, 0, 1):
                a, x = (
                    rng.standard_normal(shape) * np.exp2(rng.integers(middle - 6, middle + 7, shape))
                    for shape in ((terms, outputs), terms)
                )
                if sign:
                    a, x = np.abs(a), sign * np.abs(x)
                for matrix in (a.astype(data), np.asfortranarray(a, data)):
                    assert agree(x.astype(data), matrix, 1), (terms, outputs, matrix.strides)
                    assert agree(matrix.T, x.astype(data), 1), (terms, outputs, matrix.strides)


def check_large_products(threads: int, data: str) -> None:
    """Compare matrix products that are cut into blocks of terms, stretches of columns and shares of threads."""
    rng = np.random.default_rng(2)
    for m, k, n in [
        (20, 64, 400), (13, 400, 800), (777, 300, 401), (25, 700, 777), (300, 700, 500), (9, 330, 1300), (5, 25_000, 9),
    ]:  # fmt: skip
        a, b = rng.standard_normal((m, k), np.dtype(data)), rng.standard_normal((k, n), np.dtype(data))
        assert agree(a, b, threads), (m, k, n)
        assert agree(a, a.T, threads), (m, k)


@only_known
@pytest.mark.parametrize("data", ["float32", "float64"])
@pytest.mark.parametrize("threads", [1, 2])
def test_products(threads: int, data: str) -> None:
    check_products(threads, 4, data)
    check_matrix_vector_products(threads, data)
    check_large_products(threads, data)


@only_known
@pytest.mark.parametrize("data", ["float32", "float64"])
def test_products_that_underflow(data: str) -> None:
    check_products_that_underflow(data)


@pytest.mark.skipif("haswell" not in CORES or VERSION not in VERSIONS, reason="needs a known OpenBLAS, and AVX2")
def test_products_of_the_haswell_kernels() -> None:
    environment = {**os.environ, "OPENBLAS_CORETYPE": "Haswell"}
    result = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"haswell, {VERSION}\n"


@only_known
@pytest.mark.parametrize("threads", [3, 16])
@pytest.mark.parametrize("data", ["float32", "float64"])
def test_more_threads(threads: int, data: str) -> None:
    # As many as asked for start, however many processors there are.
    rng = np.random.default_rng(threads)
    for m, k, n in [(100, 400, 100), (300, 900, 30)]:
        a, b = rng.standard_normal((m, k), np.dtype(data)), rng.standard_normal((k, n), np.dtype(data))
        for left, right in ((a, b), (np.asfortranarray(a), b), (a, np.asfortranarray(b)), (a, a.T)):
            assert agree(left, right, threads), (left.shape, right.shape)
    for rows, columns in [(1000, 700), (7, 80_000), (80_000, 7)]:
        matrix = rng.standard_normal((rows, columns), np.dtype(data))
        x, y = (rng.standard_normal(size, np.dtype(data)) for size in matrix.shape)
        assert agree(matrix, y, threads), (rows, columns)
        assert agree(x, matrix, threads), (rows, columns)
    x, y = rng.standard_normal(20_071, np.dtype(data)), rng.standard_normal(20_071, np.dtype(data))
    assert agree(x, y, threads)


@only_known
def test_sizes_at_which_the_order_changes() -> None:
    rng = np.random.default_rng(3)
    for m, k, n in [
        (100, 100, 100), (100, 100, 101), (64, 449, 64), (64, 448, 64), (64, 895, 64), (64, 896, 64), (64, 897, 64),
        (128, 1345, 96), (200, 31, 9), (200, 32, 9), (17, 129, 65), (400, 400, 400), (3, 500, 1000), (33, 64, 24),
    ]:  # fmt: skip
        a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
        for threads in (1, 2):
            assert agree(a, b, threads), (m, k, n, threads)


def test_what_is_not_known_is_refused() -> None:
    a = np.ones((4, 20), np.float32)
    with pytest.raises(UnknownOrderError, match="openblas_sdot"):
        fpsim.dot(a[:, 0], a[:, 0], "numpy_matmul")
    with pytest.raises(UnknownOrderError, match="write data=float64"):
        fpsim.matmul(a.astype(float), a.T.astype(float), "numpy_matmul")
    with pytest.raises(UnknownOrderError, match="write data=float32"):
        fpsim.matmul(a, a.T, "numpy_matmul(data=float64)")
    with pytest.raises(UnknownOrderError, match="not for float16"):
        fpsim.matmul(a.astype(np.float16), a.T.astype(np.float16), "numpy_matmul")
    with pytest.raises(StrategyError, match="data=float16"):
        fpsim.strategy("numpy_matmul(data=float16)")
    b = np.ones((200, 900), np.float32)
    with pytest.raises(UnknownOrderError, match="processor=zen4"):
        fpsim.matmul(b, b.T.copy(), 'numpy_matmul(version="0.3.34")')
    wide = b[:, :400].astype(float)
    with pytest.raises(UnknownOrderError, match="beyond its stack"):
        fpsim.matmul(
            wide, wide.T.copy("K"), 'numpy_matmul(core=haswell, version="0.3.34", processor=zen4, data=float64)'
        )
    with pytest.raises(StrategyError, match="processor=zen3"):
        fpsim.strategy("numpy_matmul(processor=zen3)")
    with pytest.raises(UnknownOrderError, match="in place"):
        fpsim.matmul(np.ones((4, 40), np.float32)[:, ::2], np.ones((20, 3), np.float32), "numpy_matmul")
    with pytest.raises(UnknownOrderError, match="use it with matmul"):
        fpsim.sum(a, "numpy_matmul")
    with pytest.raises(StrategyError, match="core=zen"):
        fpsim.strategy("numpy_matmul(core=zen)")
    with pytest.raises(StrategyError, match="threads"):
        fpsim.strategy("numpy_matmul(threads=0)")


if __name__ == "__main__":
    for data in ("float32", "float64"):
        check_products_that_underflow(data)
        for threads in (1, 2):
            check_products(threads, 2, data)
            check_matrix_vector_products(threads, data)
            check_large_products(threads, data)
    print(f"{CORE}, {VERSION}")
