"""XLA's rules on the CPU: against code of their own, what JAX gave, and JAX where it is installed."""

from __future__ import annotations

import functools
import importlib.util
import operator
from typing import Any

import library_results as results
import numpy as np
import pytest
from numpy.typing import NDArray

import fpsim
from fpsim.devices import jax as devices
from fpsim.devices.operations import OPERATIONS
from fpsim.errors import UnknownOrderError

Array = NDArray[np.float32]
HAS_JAX = importlib.util.find_spec("jax") is not None


@pytest.mark.parametrize("routine", results.routines("jax."))
def test_recorded_results(routine: str) -> None:
    assert results.replay(routine) == []


# --- YNNPACK's sum, written down once more --------------------------------------------------------------------------


def left(terms: Any) -> Any:
    return functools.reduce(operator.add, terms)


def nest(vectors: Any) -> Any:
    """Groups of four, of those, and so on."""
    if len(vectors) == 1:
        return vectors[0]
    size = len(vectors) // 4
    return left([nest(vectors[i : i + size]) for i in range(0, len(vectors), size)])


def ynnpack(x: Array) -> Any:
    vectors = np.append(x, np.zeros(-x.size % 16, np.float32)).reshape(-1, 16)
    full = x.size // 16
    total, correction = np.zeros((2, 16), np.float32)
    for start in range(0, full - 63, 64):
        y = nest(vectors[start : start + 64]) - correction
        new = total + y
        correction, total = (new - total) - y, new
    start = full // 64 * 64
    rest = []
    for size in (16, 4):
        while full - start >= size:
            rest.append(nest(vectors[start : start + size]))
            start += size
    if start < len(vectors):
        rest.append(left(vectors[start:]))
    lanes = total + ((left(rest) if rest else np.float32(0)) - correction)
    while lanes.size > 1:
        lanes = lanes[: lanes.size // 2] + lanes[lanes.size // 2 :]
    return lanes[0]


def shared(x: Array) -> Any:
    """The same where there are several threads."""
    if x.size <= 32768:
        return ynnpack(x)
    return shared(np.array([ynnpack(x[i : i + 32768]) for i in range(0, x.size, 32768)], np.float32))


def draw(shape: tuple[int, ...], seed: int) -> Array:
    rng = np.random.default_rng(seed)
    return (rng.choice([-1, 1], shape) * 2.0 ** rng.uniform(-12, 12, shape)).astype(np.float32)


def test_long_sums() -> None:
    corrected = 0
    for n in (4096, 4097, 5000, 5008, 8192, 8702, 20001, 32768):
        for seed in range(4):
            x = draw((n,), n + seed)
            assert fpsim.sum(x, "xla_cpu_sum") == fpsim.sum(x, "xla_cpu_sum(threads=2)") == ynnpack(x), n
            corrected += fpsim.sum(x, "xla_cpu_sum+uncompensated") == ynnpack(x)
    assert corrected == 32  # a setting of the rule's parts does not come from outside
    for n in (32769, 40000, 65536, 100_000, 600_000):
        x = draw((n,), n)
        assert fpsim.sum(x, "xla_cpu_sum") == ynnpack(x), n
        assert fpsim.sum(x, "xla_cpu_sum(threads=4)") == shared(x), n


def test_rows() -> None:
    for rows, columns in ((1000, 5), (300, 20), (100, 64), (7, 1000), (2, 40_000)):
        x = draw((rows, columns), rows)
        expected = [shared(row) for row in x]
        assert fpsim.sum(x, "xla_cpu_sum(threads=2)", axis=1).tolist() == expected, (rows, columns)
    short = draw((60, 60), 1)
    assert fpsim.sum(short, "xla_cpu_sum", axis=0).tolist() == fpsim.sum(short.T, "xla_cpu_sum", axis=1).tolist()


def down(x: Array, share: int = 0) -> Any:
    """The sums over the first axis."""
    if share and len(x) > share:
        return down(np.array([down(x[i : i + share]) for i in range(0, len(x), share)], np.float32), share)
    total, correction = np.zeros((2, x.shape[1]), np.float32)
    rest = np.float32(0)
    for start in range(0, len(x), 256):
        rows = x[start : start + 256]
        cut = len(rows) // 16 * 16
        parts = [nest(rows[i : i + 16]) for i in range(0, cut, 16)]
        if cut < len(rows):
            parts.append(left([left(rows[i : i + 4]) for i in range(cut, len(rows), 4)]))
        if len(rows) < 256:
            rest = left(parts)
            break
        y = left(parts) - correction
        new = total + y
        correction, total = (new - total) - y, new
    return total + (rest - correction)


def test_first_axis() -> None:
    for rows, columns in ((64, 64), (300, 64), (512, 8), (1000, 5), (5000, 2), (300, 200), (520, 1000), (20_000, 3)):
        x = draw((rows, columns), rows)
        assert fpsim.sum(x, "xla_cpu_sum", axis=0).tolist() == down(x).tolist(), (rows, columns)
        share = 32768 // columns
        assert fpsim.sum(x, "xla_cpu_sum(threads=2)", axis=0).tolist() == down(x, share).tolist(), (rows, columns)
        blocks = max(share // 256 * 256, 256)
        newer = fpsim.sum(x, "xla_cpu_sum(threads=2, runs=blocks)", axis=0)
        assert newer.tolist() == down(x, blocks).tolist(), (rows, columns)
    column = draw((50_000, 1), 7)
    assert fpsim.sum(column, "xla_cpu_sum(threads=2, runs=blocks)", axis=0) == shared(column[:, 0])
    assert fpsim.sum(column, "xla_cpu_sum(threads=2)", axis=0) == shared(column[:, 0])


def test_threads_of_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    # JAX 0.11 cuts sums into runs with one thread too; dot products are cut by either release.
    monkeypatch.setattr(devices, "is_x86", lambda: True)
    x = np.ones(100, np.float32)
    for threads in (1, 4):
        monkeypatch.setenv("PJRT_NPROC", str(threads))
        old, new = devices._cpu_strategies("0.10.2"), devices._cpu_strategies("0.11.2")
        runs = f"xla_cpu_sum(threads={max(threads, 2)}"
        assert old["sum"](x) == ("xla_cpu_sum" if threads == 1 else f"{runs})")
        assert old["dot"](x, x) == f"{runs})"
        assert new["sum"](x) == new["dot"](x, x) == f"{runs}, runs=blocks)"


def test_subnormals_are_flushed() -> None:
    tiny = np.float32(1e-40)
    assert fpsim.sum([tiny] * 3, "xla_cpu_sum") == 0
    assert fpsim.sum([tiny] * 3, "xla_cpu_sum+ftz(off)+daz(off)") > 0
    normal = np.array([1.5e-38, -1.4e-38], np.float32)
    assert fpsim.sum(normal, "xla_cpu_sum") == 0


def test_products_of_all_terms() -> None:
    x = np.float32(2) ** draw((5000,), 5).clip(-0.1, 0.1)
    parts = x
    while parts.size > 32:
        zeros = -parts.size % 32
        padded = np.concatenate([np.ones(zeros // 2), parts, np.ones(zeros - zeros // 2)]).astype(np.float32)
        parts = np.array([functools.reduce(operator.mul, row) for row in padded.reshape(-1, 32)], np.float32)
    assert fpsim.prod(x, "xla_cpu_prod") == functools.reduce(operator.mul, parts)


def test_cases_that_were_not_checked() -> None:
    x = np.ones((80, 80), np.float32)
    with pytest.raises(UnknownOrderError, match="more than 16384 columns, by several threads"):
        fpsim.sum(np.ones((2, 20_000), np.float32), "xla_cpu_sum(threads=2)", axis=0)
    with pytest.raises(UnknownOrderError, match="products of matrices"):
        fpsim.matmul(x, x, "xla_cpu_sum")
    with pytest.raises(UnknownOrderError, match="several axes"):
        fpsim.sum(x, "xla_cpu_sum")
    with pytest.raises(UnknownOrderError, match="several sums"):
        fpsim.prod(x, "xla_cpu_prod", axis=1)


def test_trees_with_an_empty_sum() -> None:
    # Where no terms are left over after the blocks, an empty sum takes their place in the Kahan sums.
    program = fpsim.strategy("xla_cpu_sum").program(8192)
    assert sorted(program.visits.tolist()) == list(range(8192))
    assert program.depths().max() == program.height == 21
    assert program.fold_count < 20


def test_long_sums_need_the_processors_that_were_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "is_x86", lambda: True)
    monkeypatch.setattr(devices, "has_avx512", lambda: False)
    strategies = devices._cpu_strategies("0.10.2")
    for name in ("sum", "mean", "norm", "dot"):
        short, long = (np.ones(n, np.float32) for n in (4095, 4096))
        count = 2 if name == "dot" else 1
        assert "xla_cpu_sum" in strategies[name](*[short] * count)
        with pytest.raises(UnknownOrderError, match="4096 or more elements with AVX-512 only"):
            strategies[name](*[long] * count)
    assert strategies["prod"](long) == "xla_cpu_prod"
    monkeypatch.setattr(devices, "has_avx512", lambda: True)
    assert "xla_cpu_sum" in strategies["sum"](long)


# --- JAX itself -----------------------------------------------------------------------------------------------------


def test_reasons_for_not_running(monkeypatch: pytest.MonkeyPatch) -> None:
    results.check_reasons(monkeypatch, devices, "jax", "JAX is not installed: python -m pip install jax")


@pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
def test_jax_here() -> None:
    cpu, _ = devices.implementations()
    assert {"sum"} <= set(cpu.routines) <= set(OPERATIONS)
    results.check_live(cpu)
