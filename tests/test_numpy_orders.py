"""NumPy's own results against the rule that says how NumPy gets them."""

from __future__ import annotations

import warnings
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
    with pytest.raises(UnknownOrderError, match="adds with more bits"):
        fpsim.sum(np.ones(4, np.longdouble), "numpy_sum")
    with pytest.raises(InputError, match="complex"):
        fpsim.sum(np.ones(4, np.complex64), "numpy_sum")
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    with pytest.raises(UnknownOrderError, match="not known for bfloat16"):
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


#: Calls of NumPy, with the rule for each.
FORMULAS: dict[str, str] = {"sum": "numpy_sum", "mean": "numpy_sum", "var": "numpy_sum", "std": "numpy_sum"}


def compare(name: str, text: str, x: Any, axis: Any, keepdims: bool, **settings: Any) -> None:
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x, axis=axis, keepdims=keepdims, **settings)
    result = getattr(fpsim, name)(x, text, axis=axis, keepdims=keepdims, **settings)
    where = (name, x.shape, x.strides, x.dtype, axis, keepdims, settings)
    assert np.shape(result) == np.shape(expected), where
    assert result.dtype == expected.dtype.newbyteorder("="), where
    assert same(result, expected).all(), where


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_in_random_layouts(name: str) -> None:
    """Also of overlapping strides, where the layout of the mean decides how NumPy walks the deviations."""
    layouts = Layouts(np.random.default_rng(11), 5000)
    for _ in range(150):
        x, _ = layouts.array()
        if layouts.chance(0.4):
            x = in_half(x, layouts)
        if x.size == 0 and name != "sum":
            continue
        settings = {"ddof": layouts.pick((0, 1, 1.5))} if name in ("var", "std") else {}
        if settings and x.size <= 2:
            continue
        axis, keepdims = layouts.axis(x.ndim), layouts.chance(0.5)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "(?s).*freedom.*", RuntimeWarning)
            compare(name, FORMULAS[name], x, axis, keepdims, **settings)


def in_half(x: Any, layouts: Layouts) -> Any:
    """Return float16 numbers in a layout like that of x."""
    h = np.zeros(3 * x.size + 1, np.float16)
    with np.errstate(all="ignore"):
        h[: x.size] = x.reshape(-1)
    step = layouts.pick((1, 1, 2, 3))
    h = h[: x.size * step : step].reshape(x.shape, order=layouts.pick("CF"))
    h = h[..., ::-1] if layouts.chance(0.2) and x.ndim else h
    return h.astype(">f2") if layouts.chance(0.1) else h


@pytest.mark.parametrize("name", ["sum", "mean", "var"])
def test_half_precision_beyond_the_buffer(name: str) -> None:
    rng = np.random.default_rng(14)
    for shape in [(9000,), (70_001,), (3, 20_000), (20_000, 3), (40, 50, 30), (5, 9000, 2)]:
        x = (rng.standard_normal(shape) * 3).astype(np.float16)
        for view in (x, x[..., :-1], x[::-1], x[1:, ...], x.astype(">f2"), x.T):
            for axis in (None, 0, -1):
                compare(name, "numpy_sum", view, axis, True)
                compare(name, "numpy_sum", view, axis, False)


def test_mean_of_half_precision_rounds_a_scalar_once_and_an_array_twice() -> None:
    # The sum over 41101 is just above the middle of two float16 numbers, and float32 rounds it to that.
    rng = np.random.default_rng(15)
    found = 0
    while found < 20:
        n, total = int(rng.integers(20_000, 60_000)), np.float32(rng.integers(2**23, 2**24)) * np.float32(2**-9)
        quotient = np.float64(total) / n
        if np.float16(quotient) == np.float16(np.float32(quotient)):
            continue
        parts = []
        while total:
            half = np.float16(total)
            half = half if half <= total else np.nextafter(half, np.float16(0))
            parts.append(half)
            total -= np.float32(half)
        x = np.zeros(n, np.float16)
        x[: len(parts)] = parts
        compare("mean", "numpy_sum", x, None, False)
        compare("mean", "numpy_sum", x, None, True)
        found += fpsim.mean(x, "numpy_sum") != fpsim.mean(x, "numpy_sum", keepdims=True)[0]


def test_mean_divides_by_counts_that_float32_does_not_hold() -> None:
    x = np.ones(2**24 + 1, np.float32)
    x[:1000] = 1.3
    assert np.mean(x) != np.sum(x) / np.float32(x.size)
    compare("mean", "numpy_sum", x, None, False)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_prod(dtype: Any) -> None:
    layouts = Layouts(np.random.default_rng(16), 3000)
    for _ in range(150):
        shape = layouts.shape()
        x = np.exp2(layouts.rng.standard_normal(shape) * 0.1).astype(dtype, order=layouts.pick("CF"))
        x = x[tuple(slice(None, None, layouts.pick((1, 1, -1, 2))) for _ in shape)]
        compare("prod", "numpy_prod", x, layouts.axis(x.ndim), layouts.chance(0.5))
    assert fpsim.prod(np.zeros(0, dtype), "numpy_prod") == 1
    x = np.exp2(layouts.rng.standard_normal(50_000) * 0.02).astype(dtype)
    for view in (
        x,
        x[::2],
        x.astype(x.dtype.newbyteorder()),
        x.reshape(500, 100)[:, :90],
        x.reshape(100, 500)[:, 1:].T,
    ):
        compare("prod", "numpy_prod", view, None, False)


def test_cumsum() -> None:
    layouts = Layouts(np.random.default_rng(12), 2000)
    for _ in range(150):
        x, _ = layouts.array()
        text = "serial" if x.dtype.itemsize == 4 else "serial+acc(float64)"
        if layouts.chance(0.3):
            x, text = in_half(x, layouts), "serial+acc(float16)"
        for axis in (None, *range(-x.ndim, x.ndim)):
            with np.errstate(all="ignore"):
                expected = np.cumsum(x, axis=axis)
            assert same(fpsim.cumsum(x, text, axis=axis), expected).all()


def test_norm_along_axes() -> None:
    """With an axis `np.linalg.norm` sums rounded squares as `np.sum` does, of a temporary array."""
    layouts = Layouts(np.random.default_rng(13), 2000)
    for _ in range(150):
        x, special = layouts.array()
        if special or x.ndim > 3:
            continue
        x = in_half(x, layouts) if layouts.chance(0.3) else x
        axis = int(layouts.rng.integers(-x.ndim, x.ndim))
        with np.errstate(all="ignore"):
            expected = np.linalg.norm(x, axis=axis, keepdims=True)
        assert same(fpsim.norm(x, "numpy_sum", axis=axis, keepdims=True), expected).all(), (x.shape, x.strides, axis)


def test_cumsum_needs_a_sequence() -> None:
    with pytest.raises(InputError, match="in sequence"):
        fpsim.cumsum(np.ones(100, np.float32), "numpy_sum")
