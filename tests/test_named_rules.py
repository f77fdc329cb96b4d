"""Named rules against what the libraries gave: recorded results, and the NumPy that is installed."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import record
from blas import CORES
from numpy.typing import NDArray

import fpsim
from fpsim.errors import StrategyError, UnknownOrderError
from fpsim.formats import FLOAT32, FLOAT64

#: Whether the rules of NumPy were checked for what is installed.
KNOWN_NUMPY = platform.machine() in ("x86_64", "AMD64") and np.__version__.startswith(("2.4.", "2.5."))
DATA = Path(__file__).parent / "data"
RECORDED = np.load(DATA / "named_rules.npz")
H200 = np.load(DATA / "h200_sums.npz")

# recorded call, the strategy that gives it, number of operands
CALLS = [
    ("numpy.skylakex/dot", "openblas_sdot", 2),
    ("numpy.skylakex/dot.strided", "openblas_sdot(inputs=strided)", 2),
    ("numpy.haswell/dot", "openblas_sdot(core=haswell)", 2),
    ("numpy.haswell/dot.strided", "openblas_sdot(core=haswell, inputs=strided)", 2),
    ("numpy/einsum.sum", "einsum_sum", 1),
    ("numpy/einsum.sum.strided", "einsum_sum(inputs=strided)", 1),
    ("numpy/einsum.dot", "einsum_dot", 2),
    ("numpy/einsum.dot.strided", "einsum_dot(inputs=strided)", 2),
    ("torch.cpu/threads1", "torch_cpu_sum", 1),
    ("torch.cpu/threads2", "torch_cpu_sum(threads=2)", 1),
    ("torch.cpu/threads3", "torch_cpu_sum(threads=3)", 1),
    ("torch.cpu/threads8", "torch_cpu_sum(threads=8)", 1),
    ("torch.cpu/threads20", "torch_cpu_sum(threads=20)", 1),
    ("jax.cpu/sum", "xla_cpu_sum", 1),
    ("tensorflow/threads1", "eigen_sum", 1),
    ("tensorflow/threads2", "eigen_sum(shards=2)", 1),
    ("tensorflow/threads4", "eigen_sum(shards=4)", 1),
    ("torch.cuda/shift0", "torch_cuda_sum(blocks=528)", 1),
    ("torch.cuda/shift1", "torch_cuda_sum(shift=1)", 1),
    ("torch.cuda/shift2", "torch_cuda_sum(shift=2)", 1),
    ("torch.cuda/shift3", "torch_cuda_sum(shift=3)", 1),
    ("cupy/vector", "cub_sum(blocks=5280)", 1),
    ("cupy/single", "cub_sum(blocks=5280, loads=single)", 1),
]
SUMS = [text for _, text, count in CALLS if count == 1] + ["numba_cuda_reduce", "cub_sum(thread=sequential)"]
RULES = [text for _, text, _ in CALLS] + SUMS[-2:]


def bits(x: Any) -> NDArray[np.uint32]:
    return np.asarray(x, np.float32).view(np.uint32)


operands = functools.lru_cache(maxsize=1024)(record.operands)


@pytest.mark.parametrize(("call", "text", "count"), CALLS)
def test_recorded_calls(call: str, text: str, count: int) -> None:
    function: Any = fpsim.sum if count == 1 else fpsim.dot
    wrong = []
    for n, row in zip(RECORDED[f"{call}/n"].tolist(), RECORDED[f"{call}/bits"], strict=True):
        for law, expected in zip(record.LAWS, row, strict=True):
            if (n > 5_000 and law not in ("signed", "wide")) or (n > 200_000 and law == "wide"):
                continue  # these were checked once; they take long
            terms = operands(n, law, count) if n < 100_000 else record.operands(n, law, count)
            if bits(function(*terms, text)) != expected:
                wrong.append((n, law))
    assert wrong == []


@pytest.mark.parametrize(
    ("key", "text"),
    [("numpy", "numpy_sum"), ("torch.cpu", "torch_cpu_sum"), ("torch.cuda", "torch_cuda_sum"), ("cupy", "cub_sum")],
)
def test_recorded_sums(key: str, text: str) -> None:
    names = [name for name in H200 if name.startswith("sum/") and name.endswith("/x")]
    assert len(names) == 18
    for name in names:
        got = [fpsim.sum(row, text) for row in H200[name]]
        assert bits(got).tolist() == bits(H200[f"{name[:-2]}/{key}"]).tolist(), name


def test_recorded_dot_products() -> None:
    for name in [name for name in H200 if name.endswith("/dot.numpy")]:
        case = name.removesuffix("/dot.numpy")
        got = [fpsim.dot(row, H200[f"{case}/y"], "openblas_sdot") for row in H200[f"{case}/x"]]
        assert bits(got).tolist() == bits(H200[name]).tolist(), name


def test_recorded_numba_reductions() -> None:
    for n in (100, 1000, 10007):
        got = [fpsim.sum(row, "numba_cuda_reduce") for row in H200[f"numba.reduce/{n}/x"]]
        assert bits(got).tolist() == bits(H200[f"numba.reduce/{n}/y"]).tolist(), n


def _where(core: str) -> pytest.MarkDecorator:
    known = KNOWN_NUMPY and core.lower() in CORES
    return pytest.mark.skipif(not known, reason=f"needs NumPy 2.4 or 2.5 with OpenBLAS's {core} kernels")


@pytest.mark.parametrize(
    ("core", "threads"),
    [pytest.param("SkylakeX", 1, marks=_where("SkylakeX")), pytest.param("Haswell", 2, marks=_where("Haswell"))],
)
def test_numpy_here_gives_what_is_recorded(core: str, threads: int, tmp_path: Path) -> None:
    settings = {"OPENBLAS_CORETYPE": core, "OPENBLAS_NUM_THREADS": str(threads), "OPENBLAS_VERBOSE": "2"}
    command = [sys.executable, str(Path(record.__file__)), "numpy", str(tmp_path / "here.npz")]
    run = subprocess.run(command, env=os.environ | settings, check=True, capture_output=True, text=True)
    assert f"Core: {core}" in run.stdout + run.stderr
    here = np.load(tmp_path / "here.npz")
    for name in here:
        library = f"numpy.{core.lower()}" if name.startswith("dot") else "numpy"
        assert np.array_equal(here[name], RECORDED[f"{library}/{name}"]), name


def test_einsum_of_strided_vectors() -> None:
    wide = record.terms(30_000, "wide", 1)
    other = record.terms(10_000, "wide", 2)
    for view in (wide[::3], wide[:10_000][::-1]):
        for text in ("einsum_sum", "einsum_sum(inputs=strided)+acc(float64)"):
            with pytest.raises(UnknownOrderError, match="side by side in memory"):
                fpsim.sum(np.broadcast_to(wide[:1], (9,)) if "strided" in text else view, text)
        with pytest.raises(UnknownOrderError, match="inputs=strided"):
            fpsim.dot(view, other, "einsum_dot")
        dense = np.ascontiguousarray(view)
        total, product = (
            fpsim.sum(view, "einsum_sum(inputs=strided)"),
            fpsim.dot(view, other, "einsum_dot(inputs=strided)"),
        )
        assert bits(total) == bits(fpsim.sum(dense, "einsum_sum(inputs=strided)"))
        assert bits(product) == bits(fpsim.dot(dense, other, "einsum_dot(inputs=strided)"))
        if KNOWN_NUMPY:
            assert bits(total) == bits(np.einsum("i->", view))
            assert bits(product) == bits(np.einsum("i,i->", view, other))


@pytest.mark.parametrize("text", SUMS)
def test_rule_over_permuted_terms(text: str) -> None:
    """Terms that are no plain sequence take another way to the same tree."""
    for n in (1, 3, 31, 127, 129, 500, 4095, 9001):
        x = record.terms(n, "wide", n)
        rule = fpsim.strategy(text)
        assert bits(fpsim.sum(x, f"rotate(3, {text})")) == bits(fpsim.sum(np.roll(x, -3), rule)), n
        places = np.random.default_rng(7).permutation(n)
        assert bits(fpsim.sum(x, f"shuffle(7, {text})")) == bits(fpsim.sum(x[places], rule)), n
        assert bits(fpsim.sum(x, f"reverse({text})")) == bits(fpsim.sum(x[::-1].copy(), rule)), n


@pytest.mark.parametrize("text", [text for text in RULES if "dot" in text])
def test_dot_rule_over_permuted_terms(text: str) -> None:
    fma = "+fma" if "openblas" in text else ""  # a rule inside another order has the settings of that
    for n in (1, 3, 31, 33, 64, 127, 129, 500):
        x, y = record.terms(n, "wide", n), record.terms(n, "wide", n + 1)
        places = np.random.default_rng(7).permutation(n)
        assert bits(fpsim.dot(x, y, f"shuffle(7, {text}{fma})")) == bits(fpsim.dot(x[places], y[places], text)), n
        left, right = np.roll(x, -5), np.roll(y, -5)
        assert bits(fpsim.dot(x, y, f"rotate(5, {text}{fma})")) == bits(fpsim.dot(left, right, text)), n


def test_cub_up_to_version_2_7_adds_the_terms_of_a_thread_one_by_one() -> None:
    x = record.terms(4096, "wide", 1)
    threads = np.zeros(256, np.float32)
    for part in x.reshape(4, 256, 4).transpose(0, 2, 1).reshape(16, 256):
        threads = threads + part
    warps = threads.reshape(8, 32)
    while warps.shape[1] > 1:
        warps = warps[:, ::2] + warps[:, 1::2]
    total = np.float32(0)
    for warp in warps[:, 0]:
        total = total + warp
    assert bits(fpsim.sum(x, "cub_sum(thread=sequential)")) == bits(total)
    assert bits(total) != bits(fpsim.sum(x, "cub_sum"))


@pytest.mark.parametrize("text", RULES)
def test_text_is_read_back(text: str) -> None:
    chosen = fpsim.strategy(text)
    assert str(chosen) == text
    assert fpsim.strategy(f"{text}+output(bfloat16)").order == chosen.order


@pytest.mark.parametrize("text", [text for text in RULES if "xla" not in text and "shift" not in text])
def test_long_sums_are_small_programs(text: str) -> None:
    program = fpsim.strategy(text).program(10**7 if "cub_sum(thread" not in text else 20_000)
    assert program.fold_count < 100


@pytest.mark.parametrize("text", RULES)
def test_sum_of_nothing(text: str) -> None:
    empty = np.zeros(0, np.float32)
    assert bits(fpsim.sum(empty, text)) == 0
    assert bits(fpsim.dot(empty, empty, text)) == 0


@pytest.mark.parametrize("text", RULES)
def test_formats_that_were_not_checked(text: str) -> None:
    assert fpsim.strategy(text).arithmetic(FLOAT32).accumulator.format == FLOAT32
    with pytest.raises(UnknownOrderError, match="operands in float64"):
        fpsim.strategy(text).arithmetic(FLOAT64)
    with pytest.raises(UnknownOrderError, match="operands in float16"):
        fpsim.sum(np.ones(4, np.float16), text)
    wide = fpsim.sum(np.array([1, 2.0**-30], np.float32), f"{text}+acc(float64)")  # settings override
    assert wide == 1 + 2.0**-30


SQUARE = np.ones((64, 64), np.float32)


@pytest.mark.parametrize(
    ("text", "x", "axis", "message"),
    [
        ("torch_cuda_sum", np.ones(130_561, np.float32), None, "130561 terms without the number of blocks"),
        ("torch_cuda_sum(shift=1, blocks=528)", np.ones(130_561, np.float32), None, "multiple of 16 bytes"),
        ("cub_sum", np.ones(5 * 4096 + 1, np.float32), None, "20481 terms without the number of blocks"),
        ("xla_cpu_sum", SQUARE.reshape(16, 16, 16), 0, "more than two dimensions"),
        ("xla_cpu_sum", SQUARE[:3], None, "several axes"),
        ("torch_cpu_sum(threads=257)", np.ones(10**5, np.float32), None, "more than 256 threads"),
        ("torch_cpu_sum", SQUARE.T, 1, "neither the first nor the last of a matrix"),
        ("torch_cpu_sum", SQUARE[:, 0], None, "side by side in memory"),
        ("torch_cpu_sum", SQUARE[:, :5], None, "side by side in memory"),
        ("torch_cpu_sum", SQUARE[0].astype(">f4"), None, "side by side in memory"),
        ("torch_cuda_sum(shift=1)", SQUARE, 1, "several sums at a time that do not begin"),
        ("torch_cuda_sum", SQUARE.T, 1, "several sums at a time but over an axis of a contiguous matrix"),
        ("cub_sum", SQUARE, 1, "several sums"),
        ("numba_cuda_reduce", SQUARE[0, ::2], None, "side by side in memory"),
        ("eigen_sum", SQUARE, 1, "several sums"),
        ("einsum_sum", SQUARE, 1, "several sums"),
        ("einsum_sum", SQUARE, None, "several axes"),
    ],
)
def test_cases_that_were_not_checked(text: str, x: NDArray[Any], axis: int | None, message: str) -> None:
    with pytest.raises(UnknownOrderError, match=message):
        fpsim.sum(x, text, axis=axis)


def test_products_that_were_not_checked() -> None:
    x = np.ones(64, np.float32)
    for text in ("openblas_sdot", "einsum_dot"):
        with pytest.raises(UnknownOrderError, match="matrices"):
            fpsim.matmul(SQUARE, x, text)
    with pytest.raises(UnknownOrderError, match="inputs=strided"):
        fpsim.dot(x[::2], x[:32], "openblas_sdot")
    assert fpsim.dot(x[::2], x[:32], "openblas_sdot(inputs=strided)") == 32


def test_torch_sums_over_rows_and_whole_arrays() -> None:
    x = record.terms(8 * 5000, "wide", 3).reshape(8, 5000)
    rows = [fpsim.sum(row, "torch_cpu_sum") for row in x]
    assert bits(fpsim.sum(x, "torch_cpu_sum(threads=2)", axis=1)).tolist() == bits(rows).tolist()
    whole = fpsim.sum(x.reshape(-1), "torch_cpu_sum(threads=2)")
    for array in (x, x.T, x.reshape(2, 4, 5000)):  # in the order of memory
        assert bits(fpsim.sum(array, "torch_cpu_sum(threads=2)")) == bits(whole)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("openblas_sdot(core=zen)", "core=zen is not known; known are skylakex, haswell"),
        ("openblas_sdot(core=haswell, inputs=dense)", "inputs=dense is not known"),
        ("cub_sum(thread=warp)", "known are tree, sequential"),
        ("torch_cpu_sum(threads=0)", "threads must be a whole number of at least 1, not 0"),
        ("torch_cuda_sum(shift=-1)", "shift must be a whole number of at least 0, not -1"),
    ],
)
def test_arguments_that_do_not_exist(text: str, message: str) -> None:
    with pytest.raises(StrategyError, match=message):
        fpsim.strategy(text)
