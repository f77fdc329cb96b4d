"""The order of a reduction kernel against a simulation of the kernel, thread by thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import reference
from hypothesis import given, settings as hypothesis_settings, strategies as st
from numpy.typing import NDArray

import fpsim
from fpsim.errors import StrategyError
from fpsim.formats import FLOAT32
from fpsim.orders import CudaReduce, HalvingFold, Pairwise, Serial

Values = list[np.float32]
Step = Callable[[np.float32, int], np.float32]
ZERO = np.float32(0)


@dataclass
class Kernel:
    """The kernel as its author writes it, with the names of CUDA; `shuffle` and `shared` say how a block adds."""

    gridDim: int
    blockDim: int
    items: int = 1
    vector: int = 1
    accumulators: int = 1
    blocked: bool = False
    shuffle: str = ""
    shared: str = "fold"

    def run(self, n: int, step: Step) -> Values:
        """Return what each block writes."""
        return [self._block(block, n, step) for block in range(self.gridDim)]

    def _block(self, block: int, n: int, step: Step) -> np.float32:
        values = [self._thread(block, thread, n, step) for thread in range(self.blockDim)]
        if not self.shuffle:
            return self._shared(values)
        warps = [_shuffle(values[w : w + 32], self.shuffle) for w in range(0, self.blockDim, 32)]
        if self.shared == "serial":
            return _left_to_right(warps)
        return _shuffle([*warps, *[ZERO] * (32 - len(warps))], self.shared)

    def _shared(self, values: Values) -> np.float32:
        if self.shared == "serial":
            return _left_to_right(values)
        size = len(values)
        while size > 1:
            half = (size + 1) // 2
            for thread in range(size - half):
                values[thread] = values[thread] + values[thread + half]
            size = half
        return values[0]

    def _thread(self, block: int, thread: int, n: int, step: Step) -> np.float32:
        sums = [ZERO] * self.accumulators
        tile, taken = block, 0
        while tile * self.blockDim * self.items * self.vector < n:
            for item in range(self.items):
                place = thread * self.items + item if self.blocked else item * self.blockDim + thread
                first = (tile * self.blockDim * self.items + place) * self.vector
                for i in range(first, first + self.vector):
                    if i < n:
                        sums[taken % self.accumulators] = step(sums[taken % self.accumulators], i)
                    taken += 1
            tile += self.gridDim
        return _left_to_right(sums)


def _left_to_right(values: Values) -> np.float32:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def _shuffle(lanes: Values, offsets: str) -> np.float32:
    """`__shfl_down_sync` on all 32 lanes: a lane whose partner does not exist gets its own value."""
    for offset in (16, 8, 4, 2, 1) if offsets == "fold" else (1, 2, 4, 8, 16):
        lanes = [lanes[t] + lanes[t + offset if t + offset < 32 else t] for t in range(32)]
    return lanes[0]


def strategies_of(kernel: Kernel) -> str:
    """Return the text of the order of a kernel, without its second pass."""
    text = f"cuda_reduce({kernel.gridDim}, {kernel.blockDim}, items={kernel.items}, vector={kernel.vector}"
    text += f", accumulators={kernel.accumulators}, index={'blocked' if kernel.blocked else 'strided'}"
    return text + (f", warp={kernel.shuffle}" if kernel.shuffle else "") + f", combine={kernel.shared}"


def again(kernel: Kernel, partials: Values, threads: int) -> np.float32:
    """Run the kernel with one block of so many threads over the sums of the blocks."""
    one = Kernel(**{**vars(kernel), "gridDim": 1, "blockDim": threads})
    return one.run(len(partials), lambda total, i: total + partials[i])[0]


def terms(n: int, kind: str, seed: int) -> NDArray[np.float32]:
    rng = np.random.default_rng((n, seed))
    values = rng.normal(size=n)
    if kind == "wide":
        values *= 2.0 ** rng.integers(-12, 13, n)
    if kind == "zeros":
        values = rng.choice([0.0, -0.0, 2.0**-149, -(2.0**-149), 2.0**-130, 1.0], n)
    if kind == "tiny":
        values = -np.abs(values) * 2.0**-100
    return values.astype(np.float32)


def steps(x: NDArray[np.float32], y: NDArray[np.float32]) -> dict[str, Step]:
    def fused(total: np.float32, i: int) -> np.float32:
        return np.float32(reference.fma(float(x[i]), float(y[i]), float(total), FLOAT32, "nearest-even"))

    return {
        "sum": lambda total, i: total + x[i],
        "separate": lambda total, i: total + x[i] * y[i],
        "fma": fused,
    }


def predicted(x: NDArray[np.float32], y: NDArray[np.float32], text: str, what: str) -> int:
    value = fpsim.sum(x, text) if what == "sum" else fpsim.dot(x, y, f"{text}+{what}")
    return int(np.float32(value).view(np.uint32))


def bits(value: Any) -> int:
    return int(np.float32(value).view(np.uint32))


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    shuffle = draw(st.sampled_from(["", "fold", "pairwise"]))
    blockDim = draw(st.sampled_from([32, 64, 96, 160, 256] if shuffle else [1, 2, 3, 7, 8, 32, 50, 64]))
    items, vector = draw(st.sampled_from([1, 1, 2, 3, 4])), draw(st.sampled_from([1, 2, 4]))
    accumulators = draw(st.sampled_from([k for k in range(1, items * vector + 1) if items * vector % k == 0]))
    shared = draw(st.sampled_from(["fold", "serial", *(["pairwise"] if shuffle else [])]))
    grid = draw(st.sampled_from([1, 2, 3, 5, 8]))
    return Kernel(grid, blockDim, items, vector, accumulators, draw(st.booleans()), shuffle, shared)


@given(
    kernel=kernels(),
    n=st.one_of(st.integers(0, 40), st.integers(0, 1500)),
    kind=st.sampled_from(["normal", "wide", "zeros", "tiny"]),
    what=st.sampled_from(["sum", "separate", "fma"]),
    seed=st.integers(0, 2**16),
    second=st.sampled_from(["again", "other block", "serial", "arrival"]),
)
@hypothesis_settings(max_examples=400)
def test_a_kernel_run_thread_by_thread(kernel: Kernel, n: int, kind: str, what: str, seed: int, second: str) -> None:
    x, y = terms(n, kind, seed), terms(n, kind, seed + 1)
    partials = kernel.run(n, steps(x, y)[what])
    text = strategies_of(kernel)
    if kernel.gridDim == 1:
        total = partials[0]
    elif second == "again":
        total = again(kernel, partials, kernel.blockDim)
    elif second == "other block":
        total = again(Kernel(1, 64), partials, 64)
        text += ", second=cuda_reduce(1, 64)"
    elif second == "serial":
        total = _left_to_right([ZERO, *partials])
        text += ", second=serial"
    else:
        working = min(kernel.gridDim, -(-n // (kernel.blockDim * kernel.items * kernel.vector)))
        arrived = np.random.default_rng(seed).permutation(working)
        total = _left_to_right([ZERO, *(partials[i] for i in arrived)])
        text += f", second=shuffle({seed})"
    assert predicted(x, y, text + ")", what) == bits(total), (text, n, kind, what)


def test_ordinary_kernels_on_many_sizes() -> None:
    for kernel in (
        Kernel(4, 64),
        Kernel(3, 64, shuffle="fold"),
        Kernel(2, 32, 1, 4, 4),
        Kernel(5, 32, 4, shuffle="pairwise"),
    ):
        for n in (*range(20), 31, 32, 33, 63, 64, 65, 255, 256, 257, 1000, 1024, 4097):
            x = terms(n, "wide", 0)
            total = again(kernel, kernel.run(n, steps(x, x)["sum"]), kernel.blockDim)
            assert predicted(x, x, strategies_of(kernel) + ")", "sum") == bits(total), (kernel, n)


def test_no_term_gives_a_positive_zero_and_a_lone_negative_zero_disappears() -> None:
    assert bits(fpsim.sum(np.zeros(0, np.float32), "cuda_reduce(4, 32)")) == 0
    assert bits(fpsim.sum(np.array([-0.0], np.float32), "cuda_reduce(1, 1)")) == 0
    # The product of one thread underflows to -0, and stays so only where nothing else is added.
    tiny = np.full(1, 2.0**-100, np.float32)
    assert bits(fpsim.dot(tiny, -tiny, "cuda_reduce(1, 1)+fma")) == 0x80000000
    assert bits(fpsim.dot(tiny, -tiny, "cuda_reduce(1, 2)+fma")) == 0
    assert bits(fpsim.dot(tiny, -tiny, "cuda_reduce(2, 1)+fma")) == 0


def test_the_order_nests() -> None:
    # Terms that are scattered, or are sums themselves, go the same ways as those side by side.
    x = terms(3000, "wide", 5)
    for inner in ("cuda_reduce(3, 32, items=2, vector=2)", "cuda_reduce(2, 64, warp=fold, combine=serial)"):
        places = np.random.default_rng(9).permutation(3000)
        assert bits(fpsim.sum(x, f"shuffle(9, {inner})")) == bits(fpsim.sum(x[places], inner))
        halves = [np.float32(fpsim.sum(part, "pairwise")) for part in np.split(x, 1500)]
        assert bits(fpsim.sum(x, f"chunks(2, pairwise, combine={inner})")) == bits(fpsim.sum(halves, inner))


def test_text() -> None:
    for text in (
        "cuda_reduce(32, 256)",
        "cuda_reduce(64, 256, items=4, vector=4, accumulators=1, index=blocked)",
        "cuda_reduce(8, 128, warp=pairwise, combine=serial, second=shuffle(3))",
        "cuda_reduce(8, 128, second=cuda_reduce(1, 512, warp=fold))+fma",
    ):
        assert str(fpsim.strategy(text)) == text
    assert fpsim.strategy("cuda_reduce:32:256") == fpsim.strategy(CudaReduce(32, 256))
    assert fpsim.strategy("cuda_reduce:32:256:pairwise").order == CudaReduce(32, 256, warp=Pairwise())
    named = CudaReduce(8, 64, warp=HalvingFold(), combine=Serial(), second=Serial())
    assert fpsim.strategy("cuda_reduce(8, 64, warp=fold, combine=serial, second=serial)").order == named


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cuda_reduce(0, 32)", "grid must be a whole number of at least 1"),
        ("cuda_reduce(1, 2048)", "at most 1024 threads"),
        ("cuda_reduce(1, 48, warp=fold)", "multiple of 32"),
        ("cuda_reduce(1, 32, items=4, accumulators=3)", "must divide items"),
        ("cuda_reduce(1, 32, index=interleaved)", "index"),
        ("cuda_reduce(1)", "needs block"),
    ],
)
def test_launches_that_cannot_be(text: str, message: str) -> None:
    with pytest.raises(StrategyError, match=message):
        fpsim.strategy(text)


def test_the_program_stays_small() -> None:
    for text in ("cuda_reduce(528, 512, vector=4)", "cuda_reduce(1, 256)", "cuda_reduce(64, 1024, items=8, warp=fold)"):
        assert fpsim.strategy(text).program(10**8 + 7).nodes.shape[0] < 100, text
