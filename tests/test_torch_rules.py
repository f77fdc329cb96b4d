"""PyTorch's rules: against code of their own, against what PyTorch gave, and against PyTorch where it is installed."""

from __future__ import annotations

import importlib
import importlib.util
from itertools import pairwise
from typing import Any

import library_results as results
import numpy as np
import pytest
from numpy.typing import NDArray

import fpsim
from fpsim.devices import torch as devices
from fpsim.devices.operations import OPERATIONS
from fpsim.errors import StrategyError, UnknownOrderError

Array = NDArray[Any]
HAS_TORCH = importlib.util.find_spec("torch") is not None


@pytest.mark.parametrize("routine", results.routines("torch."))
def test_recorded_results(routine: str) -> None:
    assert results.replay(routine) == []


# --- the CPU's sums, written down once more -------------------------------------------------------------------------


def cascade(rows: Array) -> Array:
    """The sum over axis 0 by four accumulators, each of which is added to the next when it has taken enough."""
    size = len(rows)
    power = max(4, (size - 1).bit_length() // 4)
    kept = [np.zeros(rows.shape[1:], rows.dtype) for _ in range(4)]
    full = size >> power << power
    for i in range(full):
        kept[0] = kept[0] + rows[i]
        done = i + 1
        if done % (1 << power) == 0:
            for level in range(1, 4):
                kept[level] = kept[level] + kept[level - 1]
                kept[level - 1] = np.zeros_like(kept[0])
                if done & (((1 << power) - 1) << (level * power)):
                    break
    for row in rows[full:]:
        kept[0] = kept[0] + row
    return ((kept[0] + kept[1]) + kept[2]) + kept[3]


def interleaved(rows: Array) -> Array:
    """Four cascades over every fourth row; the rows left over go to the first."""
    whole = len(rows) // 4 * 4
    parts = [cascade(rows[j:whole:4]) for j in range(4)]
    for row in rows[whole:]:
        parts[0] = parts[0] + row
    return ((parts[0] + parts[1]) + parts[2]) + parts[3]


def whole(x: Array) -> Any:
    lanes = 32 // x.itemsize
    if x.size < lanes:
        return interleaved(x[:, None])[0]
    cut = x.size // lanes * lanes
    total = x.dtype.type(0)
    for value in (*x[cut:], *interleaved(x[:cut].reshape(-1, lanes))):
        total = total + value
    return total


def down(x: Array, threads: int) -> Array:
    """The sums over axis 0, by threads that take columns."""
    lanes, columns = 32 // x.itemsize, x.shape[1]
    size = -(-columns // min(threads, columns))
    starts = [start - start % (4 * lanes) for start in range(0, columns, size)] if x.size >= 32768 else [0]
    out = np.zeros(columns, x.dtype)
    for start, end in pairwise([*starts, columns]):
        part = x[:, start:end]
        straight = 4 * lanes if part.shape[1] >= lanes else 4
        cut = part.shape[1] // straight * straight
        out[start : start + cut] = cascade(part[:, :cut])
        out[start + cut : end] = interleaved(part[:, cut:])
    return out


def draw(shape: tuple[int, ...], seed: int, dtype: Any = np.float32) -> Array:
    rng = np.random.default_rng(seed)
    return (rng.choice([-1, 1], shape) * 2.0 ** rng.uniform(-20, 20, shape)).astype(dtype)


@pytest.mark.parametrize(("dtype", "arguments"), [("float32", ""), ("float64", ", lanes=4")])
def test_sums_on_the_cpu(dtype: str, arguments: str) -> None:
    for n in (1, 3, 4, 7, 8, 9, 31, 100, 129, 1000, 1025, 4097, 20001):
        x = draw((n,), n, dtype)
        assert fpsim.sum(x, f"torch_cpu_sum(threads=1{arguments})") == whole(x), n
    for rows, columns in ((3, 5), (17, 9), (100, 31), (129, 40), (300, 72), (1025, 36), (4097, 7), (70, 500)):
        x = draw((rows, columns), rows, dtype)
        text = f"torch_cpu_sum(threads=1{arguments})"
        assert fpsim.sum(x, text, axis=0).tolist() == down(x, 1).tolist(), (rows, columns)
        assert fpsim.sum(x, text, axis=1).tolist() == [whole(row) for row in x], (rows, columns)


@pytest.mark.parametrize(("dtype", "arguments"), [("float32", ""), ("float64", ", lanes=4")])
def test_threads_that_take_columns(dtype: str, arguments: str) -> None:
    # The last of many threads can have so few columns that it takes them in another way.
    changed = 0
    for columns in (36, 37, 39, 67, 70, 100, 101):
        x = draw((2100, columns), columns, dtype)
        alone = fpsim.sum(x, f"torch_cpu_sum(threads=1{arguments})", axis=0)
        for threads in (2, 8, 20):
            got = fpsim.sum(x, f"torch_cpu_sum(threads={threads}{arguments})", axis=0)
            assert got.tolist() == down(x, threads).tolist(), (columns, threads)
            changed += got.tolist() != alone.tolist()
    assert changed or dtype == "float64"


def test_norms_on_the_cpu() -> None:
    differ = 0
    for n in (*range(1, 60), 103, 255, 1003):
        x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
        lanes = np.zeros(8, np.float32)
        for row in x[: n // 8 * 8].reshape(-1, 8):
            lanes = lanes + row * row
        rest = x[n // 8 * 8 :]
        total = np.float32(0)
        for value in (*lanes, *(v * v for v in rest[: len(rest) // 4 * 4])):
            total = total + value
        fused = plain = total
        for v in rest[len(rest) // 4 * 4 :]:
            plain = plain + v * v
            fused = fpsim.dot(np.array([fused, v]), np.array([1, v], np.float32), "serial+fma")
        assert fpsim.norm(x, "torch_cpu_norm") == np.sqrt(fused), n
        assert fpsim.norm(x, "torch_cpu_norm(code=default)") == np.sqrt(plain), n
        differ += bool(fused != plain)
    assert differ


def variance(x: Array, threads: int, ddof: int) -> np.float64:
    """The variance of a whole tensor: from the mean as `x` has it on, all in float64, by threads."""
    arguments = "" if x.dtype == np.float32 else ", lanes=4"
    mean = np.float64(fpsim.sum(x, f"torch_cpu_sum(threads={threads}{arguments})") / x.dtype.type(x.size))
    squares = (x.reshape(-1).astype(np.float64) - mean) ** 2
    size = -(-x.size // min(threads, -(-x.size // 32768)))
    total = np.float64(0)
    for first in range(0, x.size, size):
        total = total + np.cumsum(squares[first : first + size])[-1]
    return total / np.float64(x.size - ddof)


@pytest.mark.parametrize(("dtype", "arguments"), [(np.float32, ""), (np.float64, ", lanes=4")])
def test_variances_on_the_cpu(dtype: Any, arguments: str) -> None:
    for n in (1, 2, 3, 9, 100, 1001, 32768, 32769, 70_000):
        for threads in (1, 2, 3):
            x = (1000 + np.random.default_rng(n).random(n)).astype(dtype)
            text = f"torch_cpu_sum(threads={threads}{arguments})"
            for ddof in (0, 1) if n > 1 else (0,):
                expected = variance(x, threads, ddof)
                assert fpsim.var(x, text, ddof=ddof) == dtype(expected), (n, threads)
                assert fpsim.std(x, text, ddof=ddof) == dtype(np.sqrt(expected)), (n, threads)
    x = np.random.default_rng(0).random((30, 40)).astype(dtype)
    text = f"torch_cpu_sum(threads=1{arguments})"
    assert fpsim.var(x.T, text) == fpsim.var(x, text) == fpsim.var(x.reshape(-1), text)
    assert fpsim.var(x, text, axis=(1, 0), keepdims=True).shape == (1, 1)
    with pytest.raises(UnknownOrderError, match="several variances at a time"):
        fpsim.var(x, text, axis=1)


@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
def test_variances_of_pytorch_here() -> None:
    torch = importlib.import_module("torch")
    known = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            for n in (1, 2, 9, 100, 1001, 32769, 70_000):
                for dtype, arguments in ((np.float32, ""), (np.float64, ", lanes=4")):
                    for x in (draw((n,), n, dtype), (1000 + np.random.default_rng(n).random(n)).astype(dtype)):
                        text, t = f"torch_cpu_sum(threads={threads}{arguments})", torch.from_numpy(x)
                        assert fpsim.var(x, text) == torch.var(t, correction=0).numpy(), (n, threads)
                        assert fpsim.std(x, text) == torch.std(t, correction=0).numpy(), (n, threads)
    finally:
        torch.set_num_threads(known)


# --- what is not known ----------------------------------------------------------------------------------------------


def test_cases_that_were_not_checked() -> None:
    x = np.ones((6, 8), np.float32)
    with pytest.raises(UnknownOrderError, match=r"float64.*lanes=4 is the rule"):
        fpsim.sum(x.astype(np.float64), "torch_cpu_sum")
    with pytest.raises(UnknownOrderError, match="operands in float32"):
        fpsim.sum(x, "torch_cpu_sum(lanes=4)")
    with pytest.raises(StrategyError, match="lanes=5 is not known"):
        fpsim.strategy("torch_cpu_sum(lanes=5)")
    with pytest.raises(UnknownOrderError, match="neither the first nor the last"):
        fpsim.sum(x.reshape(2, 3, 8), "torch_cpu_sum", axis=1)
    with pytest.raises(UnknownOrderError, match="side by side"):
        fpsim.sum(x[:, ::2], "torch_cpu_sum", axis=0)
    with pytest.raises(UnknownOrderError, match="without the number of blocks"):
        fpsim.sum(np.ones((70_000, 3), np.float32), "torch_cuda_sum", axis=0)


# --- PyTorch itself -------------------------------------------------------------------------------------------------


def test_reasons_for_not_running(monkeypatch: pytest.MonkeyPatch) -> None:
    results.check_reasons(monkeypatch, devices, "torch", "PyTorch is not installed: python -m pip install torch")


@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
def test_pytorch_here() -> None:
    cpu, cuda = devices.implementations()
    for one in (cpu, cuda) if cuda.available else (cpu,):
        assert {"sum"} <= set(one.routines) <= set(OPERATIONS)
        results.check_live(one)
