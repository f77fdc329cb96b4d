"""Kernels from source, with a launcher in CuPy's place that runs Python functions on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim.devices.cuda_source import kernel
from fpsim.errors import InputError, MissingExtraError


class Fake:
    """Notes what it was asked, and runs a function instead."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function
        self.compiled: Any = None
        self.launched: list[Any] = []

    def compile(self, source: str, name: str, options: tuple[str, ...], /) -> Callable[..., None]:
        self.compiled = (source, name, options)

        def run(grid: Any, block: Any, arguments: Any, shared: int) -> None:
            self.launched.append((grid, block, [type(one) for one in arguments], shared))
            self.function(*arguments)

        return run

    def load(self, x: Any, /) -> Any:
        return x.copy()

    def fetch(self, x: Any, /) -> Any:
        return x


def test_a_sum_is_launched_and_revealed() -> None:
    def add(x: Any, out: Any, n: Any) -> None:
        total = np.float32(0)
        for value in x[:n][::-1]:
            total += value
        out[0] = total

    fake = Fake(add)
    function = kernel("source", "add", grid=2, block=(32, 2), options=["-fmad=false"], shared=128, launcher=fake)
    assert str(fpsim.reveal(function, n=20, replays=10).strategy) == "reverse"
    assert fake.compiled == ("source", "add", ("-fmad=false",))
    assert fake.launched[0] == ((2,), (32, 2), [np.ndarray, np.ndarray, np.int32], 128)


@pytest.mark.parametrize(
    ("shapes", "sizes", "result"),
    [
        (((3, 4), (4, 2)), {"m": 3, "n": 2, "k": 4}, (3, 2)),
        (((3, 4), (4,)), {"m": 3, "k": 4}, (3,)),
        (((4,), (4, 2)), {"k": 4, "n": 2}, (2,)),
        (((4,), (4,)), {"n": 4}, ()),
    ],
)
def test_products_get_their_sizes_in_order(shapes: Any, sizes: dict[str, int], result: tuple[int, ...]) -> None:
    def multiply(a: Any, b: Any, out: Any, *given: Any) -> None:
        assert list(map(int, given)) == list(sizes.values())
        out[...] = a @ b

    asked: list[dict[str, int]] = []

    def grid(**given: int) -> tuple[int, int]:
        asked.append(given)
        return 1, 2

    function = kernel("source", "multiply", grid=grid, block=1, launcher=Fake(multiply), result="float64")
    a, b = (np.ones(shape, np.float32) for shape in shapes)
    found = function(a, b)
    assert np.shape(found) == result
    assert found.dtype == np.float64
    assert np.all(found == 4)
    assert asked == [sizes]


def test_arguments_in_an_order_of_their_own() -> None:
    def add(n: Any, out: Any, x: Any) -> None:
        assert (type(n), out.dtype) == (np.int64, np.float16)
        out[0] = x.sum()

    function = kernel("s", "add", grid=1, block=1, arguments="n:int64, out, x", result="float16", launcher=Fake(add))
    assert function(np.ones(3, np.float32)) == 3
    with pytest.raises(InputError, match="unknown argument 'z' of a kernel"):
        kernel("s", "add", grid=1, block=1, arguments="x z", launcher=Fake(add))
    with pytest.raises(InputError, match="unknown argument 'n:float32'"):
        kernel("s", "add", grid=1, block=1, arguments="n:float32", launcher=Fake(add))
    with pytest.raises(InputError, match="add is called with x, out, n, not with a"):
        kernel("s", "add", grid=1, block=1, arguments="a", launcher=Fake(add))(np.ones(3))


@pytest.mark.skipif(find_spec("cupy") is not None, reason="CuPy is there")
def test_without_cupy() -> None:
    with pytest.raises(MissingExtraError, match="kernels from source need a CUDA GPU: CuPy is not installed"):
        kernel("s", "add", grid=1, block=1)
