"""NumPy's own results against the rule that says how NumPy gets them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference
from layouts import Layouts
from reference import same

import fpsim
from fpsim.errors import InputError, UnknownOrderError
from fpsim.orders.base import Reduction
from fpsim.orders.numpy import sum_layout

pytestmark = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.3.0", reason="the iterator cuts arrays in another way before NumPy 2.3"
)


def agrees(x: Any, **where: Any) -> None:
    expected = np.sum(x, **where)
    result = fpsim.sum(x, "numpy_sum", **where)
    assert np.shape(result) == np.shape(expected)
    assert result.dtype == expected.dtype.newbyteorder("=")
    assert same(result, expected).all(), f"shape {x.shape}, strides {x.strides}, {where}"


@pytest.mark.parametrize("kind", ["uniform", "normal", "wide", "special", "zeros"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_vectors(kind: str, dtype: Any) -> None:
    rng = np.random.default_rng(5)
    sizes = [*range(40), 127, 128, 129, 136, 255, 256, 257, 1000, 1024, 4097, 8191, 8192, 8193, 100_003]
    for n in sizes:
        x = reference.random_terms(rng, 3 * n, kind, dtype)
        with np.errstate(all="ignore"):
            for view in (x[:n], x[::3], x[::-1], x[2::-3] if n else x):
                agrees(view)


def test_a_million_terms() -> None:
    rng = np.random.default_rng(6)
    for kind in ("uniform", "normal", "wide"):
        x = reference.random_terms(rng, 1_000_000, kind)
        agrees(x)
        agrees(x[: 10**6 - 7 : 2])
        agrees(x.reshape(1000, 1000), axis=0)
        agrees(x.reshape(1000, 1000), axis=1, keepdims=True)
        agrees(x.reshape(1000, 1000)[:, :999])
        agrees(x.astype(x.dtype.newbyteorder()))


def test_random_layouts() -> None:
    layouts = Layouts(np.random.default_rng(7), 30_000)
    for _ in range(700):
        x, _ = layouts.array()
        agrees(x, axis=layouts.axis(x.ndim), keepdims=layouts.chance(0.3))


def test_particular_layouts() -> None:
    rng = np.random.default_rng(8)
    x = reference.random_terms(rng, 120_000, "wide")
    agrees(x[:1].reshape(()))
    agrees(x[0:0].reshape(0, 5), axis=0)
    agrees(x[0:0].reshape(0, 5), axis=1)
    agrees(x.reshape(400, 300), axis=())
    for a in (x.reshape(400, 300), np.asfortranarray(x.reshape(400, 300)), x.reshape(300, 400).T):
        axes: tuple[Any, ...] = (None, 0, 1, -1, (0, 1))
        for axis in axes:
            for view in (a, a[::-1], a[:, ::-1], a[::2], a[:, :30], a[:, 5:6], a[3:4]):
                agrees(view, axis=axis)
                agrees(view, axis=axis, keepdims=True)
    more: tuple[Any, ...] = (0, 1, 2, (0, 1), (0, 2), (1, 2), (2, 0, 1), None)
    for axis in more:
        agrees(x.reshape(20, 60, 100), axis=axis)
        agrees(x.reshape(20, 60, 100)[:, ::2, 1:], axis=axis)
        agrees(np.broadcast_to(x[:5000].reshape(100, 1, 50), (100, 9, 50)), axis=axis)
    agrees(x.reshape(3, 20_000, 2)[:, :, :1], axis=(0, 1))  # rows longer than the buffer
    agrees(x.reshape(5, 24_000)[:, ::2].astype(">f4"), axis=1)


def test_lists_are_summed_as_float64() -> None:
    x = np.random.default_rng(9).standard_normal(1000)
    assert fpsim.sum(x.tolist(), "numpy_sum") == np.sum(x.tolist())


def test_the_accumulator_of_a_named_rule_can_be_changed() -> None:
    x = np.random.default_rng(10).standard_normal(5000).astype(np.float32)
    wide = fpsim.sum(x, "numpy_sum+acc(float64)")
    assert wide.dtype == np.float64
    assert wide == np.sum(x.astype(np.float64))


def test_other_types_are_refused() -> None:
    with pytest.raises(UnknownOrderError, match="not modelled; sum it as float32"):
        fpsim.sum(np.ones(4, np.float16), "numpy_sum")
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    with pytest.raises(UnknownOrderError, match="over bfloat16"):
        fpsim.sum(np.ones(4, bfloat16), "numpy_sum")


def test_the_rule_of_a_layout() -> None:
    def rule(x: Any, *axes: int) -> str:
        return str(sum_layout(Reduction(x.shape, x.strides, axes))[1])

    x = np.zeros((100, 200), np.float32)
    assert rule(x, 0, 1) == "numpy_sum"
    assert rule(x, 1) == "numpy_sum"
    assert rule(x, 0) == "numpy_sum(chunk=1)"
    assert rule(x[:, :190], 0, 1) == "numpy_sum(chunk=8170)"
    assert rule(np.zeros((5, 20_000), np.float32)[:, ::2], 0, 1) == "numpy_sum"  # collapses
    assert rule(np.zeros((4, 3, 50), np.float32), 0, 2) == "numpy_sum(chunk=50)"
    assert sum_layout(Reduction((3, 4), (4, 12), (0, 1))) == ((1, 0), fpsim.strategy("numpy_sum").order)


# --- other reductions -----------------------------------------------------------------------------------------------


def test_mean() -> None:
    layouts = Layouts(np.random.default_rng(11), 5000)
    for _ in range(150):
        x, _ = layouts.array()
        axis = layouts.axis(x.ndim)
        if x.size == 0:
            continue
        expected = np.mean(x, axis=axis, keepdims=True)
        result = fpsim.mean(x, "numpy_sum", axis=axis, keepdims=True)
        assert same(result, expected).all()
        assert result.dtype == expected.dtype.newbyteorder("=")


def test_cumsum() -> None:
    layouts = Layouts(np.random.default_rng(12), 2000)
    for _ in range(150):
        x, _ = layouts.array()
        text = "serial" if x.dtype.itemsize == 4 else "serial+acc(float64)"
        for axis in (None, *range(-x.ndim, x.ndim)):
            assert same(fpsim.cumsum(x, text, axis=axis), np.cumsum(x, axis=axis)).all()


def test_norm_along_axes() -> None:
    """With an axis `np.linalg.norm` sums rounded squares as `np.sum` does, of a temporary array."""
    layouts = Layouts(np.random.default_rng(13), 2000)
    for _ in range(150):
        x, special = layouts.array()
        if special or x.ndim > 3:
            continue
        axis = int(layouts.rng.integers(-x.ndim, x.ndim))
        expected = np.linalg.norm(x, axis=axis, keepdims=True)
        assert same(fpsim.norm(x, "numpy_sum", axis=axis, keepdims=True), expected).all(), (x.shape, x.strides, axis)


def test_cumsum_needs_a_sequence() -> None:
    with pytest.raises(InputError, match="in sequence"):
        fpsim.cumsum(np.ones(100, np.float32), "numpy_sum")
