from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fpsim
from fpsim.elementary import evaluate, log_softmax, softmax
from fpsim.errors import UnknownOrderError

Array = NDArray[Any]

with np.load(Path(__file__).parent / "data" / "h200_softmax.npz", allow_pickle=False) as _data:
    RECORDED = {name: _data[name] for name in _data.files}

RULE = "torch_cuda_softmax_sum"
LENGTHS = [int(name.split("/")[0]) for name in RECORDED if name.endswith("/softmax")]


def rows(n: int) -> Array:
    """Return the rows that were given to the GPU: two of large differences, one of small ones."""
    x = (np.random.default_rng(n).standard_normal((3, n)) * 3).astype(np.float32)
    x[1] *= np.float32(0.01)
    return x


def checksums(y: Array) -> list[list[int]]:
    """Return two sums of the bits of each row, one weighted by position."""
    bits = y.view(np.uint32).astype(np.uint64)
    weights = np.arange(1, y.shape[1] + 1, dtype=np.uint64)
    return [[int(row.sum()), int((row * weights).sum())] for row in bits]


@pytest.mark.parametrize("n", LENGTHS)
def test_recorded_rows(n: int) -> None:
    x = rows(n)
    for name, function in (("softmax", softmax), ("log_softmax", log_softmax)):
        y = function(x)
        assert checksums(y) == RECORDED[f"{n}/{name}"].tolist()
        assert np.array_equal(y[:, :48], RECORDED[f"{n}/{name}/first"])
    # A tensor of one row begins at a multiple of 16 bytes.
    assert checksums(softmax(x[0])[np.newaxis]) == RECORDED[f"{n}/softmax"][:1].tolist()


def test_lengths_of_every_kernel_are_recorded() -> None:
    assert LENGTHS == [
        512, 1024, 1025, 1026, 1028, 1500, 2000, 2048, 3000, 4096, 4097, 5000, 8192, 10000, 16384, 32000, 50257, 65536, 100000,
    ]  # fmt: skip


@pytest.mark.parametrize("n", [2000, 5000, 32000, 50257])
def test_other_orders_give_other_bits(n: int) -> None:
    y = softmax(rows(n), "lanes(32, combine=pairwise)")
    assert checksums(y) != RECORDED[f"{n}/softmax"].tolist()


def threads(n: int, shift: int) -> list[list[int]]:
    """Return the terms of each thread, as the CUDA kernels take them, written out step by step."""
    out: list[list[int]] = [[] for _ in range(1024)]
    if n <= 9216:
        for term in range(n):
            out[term % 1024].append(term)
        return out
    if shift == 0 and n % 4 == 0 and n < (48 * 1024 - 32 * 4) // 4:
        for term in range(n):
            out[term // 4 % 1024].append(term)
        return out
    first = 0
    if shift:
        for thread in range(shift, 1024):
            out[thread].append(thread - shift)
        first = 1024 - shift
    vectors = (n - first) // 4096 * 4096
    for term in range(vectors):
        out[term // 4 % 1024].append(first + term)
    for term in range(first + vectors, n):
        out[(term - first - vectors) % 1024].append(term)
    return out


def halved(values: Array) -> Array:
    while values.shape[-1] > 1:
        values = values[..., : values.shape[-1] // 2] + values[..., values.shape[-1] // 2 :]
    return values[..., 0]


@pytest.mark.parametrize("shift", range(4))
@pytest.mark.parametrize("n", [2049, 9216, 9217, 9220, 12252, 12256, 13001, 20480, 21000])
def test_against_threads_written_out(n: int, shift: int) -> None:
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    sums = np.zeros(1024, np.float32)
    for thread, terms in enumerate(threads(n, shift)):
        for term in terms:
            sums[thread] += x[term]
    expected = halved(halved(sums.reshape(32, 32)))
    text = f"{RULE}(shift={shift})" if shift else RULE
    assert fpsim.sum(x, text) == expected
    assert fpsim.sum(np.vstack([x, x]), RULE, axis=1)[0] == fpsim.sum(x, RULE)


@pytest.mark.parametrize("n", [1, 2, 7, 31, 33])
def test_short_rows(n: int) -> None:
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    lanes = np.zeros(1 << min(5, (n - 1).bit_length()), np.float32)
    for term in range(n):
        lanes[term % lanes.size] += x[term]
    assert fpsim.sum(x, RULE) == halved(lanes)


def test_rows_in_more_dimensions_and_other_layouts() -> None:
    x = rows(10001)
    stacked = np.stack([x, x[::-1]])
    assert softmax(stacked).shape == stacked.shape
    assert np.array_equal(softmax(stacked).reshape(6, -1), softmax(stacked.reshape(6, -1)))
    assert np.array_equal(log_softmax(np.asfortranarray(x)), log_softmax(x))
    total = fpsim.sum(evaluate("exp", x), RULE, axis=-1)
    assert [fpsim.sum(evaluate("exp", row), f"{RULE}(shift={k})") for k, row in enumerate(x) if k] == total[1:].tolist()


@pytest.mark.parametrize(
    ("text", "x", "axis", "message"),
    [
        (RULE, np.ones((3, 8), np.float32), 0, "side by side in memory"),
        (RULE, np.ones((8, 3), np.float32, order="F"), 0, "another axis than the last"),
        (RULE, np.ones((3, 8), np.float32), None, "several axes"),
        (f"{RULE}(shift=1)", np.ones((3, 8), np.float32), 1, "several sums at a time that do not begin"),
        (RULE, np.ones((3, 8)), 1, "operands in float64"),
    ],
)
def test_cases_that_were_not_checked(text: str, x: Array, axis: int | None, message: str) -> None:
    with pytest.raises(UnknownOrderError, match=message):
        fpsim.sum(x, text, axis=axis)
