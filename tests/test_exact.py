"""Exact results against mpmath and exact fractions."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import mpmath
import numpy as np
import pytest

from fpsim import _exact_reductions, exact
from fpsim.errors import InputError
from fpsim.formats import BFLOAT16, E4M3FN, E5M2, FLOAT16, FLOAT32, FLOAT64, ROUNDING_MODES, TF32, Format

if TYPE_CHECKING:
    from numpy.typing import NDArray

DTYPES = (np.float16, np.float32, np.float64)
MODES = tuple(mode for mode in ROUNDING_MODES if mode != "stochastic")
INF, NAN = math.inf, math.nan
# Wide enough for every sum of products of doubles.
BITS = 4400


def draw(rng: np.random.Generator, shape: Any, dtype: Any, spread: float) -> NDArray[Any]:
    """Signed numbers over a range of binades that is clipped to that of the type."""
    info = np.finfo(dtype)
    lowest = float(np.log2(float(info.smallest_subnormal)))
    exponent = np.clip(rng.uniform(-spread, spread, shape), lowest, info.maxexp - 1)
    mantissa = rng.integers(2**52, 2**53, shape) * 2.0**-53 * rng.choice([-1, 1], shape)
    with np.errstate(under="ignore"):
        values: NDArray[Any] = np.ldexp(mantissa * np.exp2(exponent % 1), np.floor(exponent).astype(int)).astype(dtype)
    return values


def mp_sum(x: Any) -> Any:
    with mpmath.workprec(BITS):
        return mpmath.fsum(mpmath.mpf(v) for v in np.ravel(x).tolist())


def mp_dot(x: Any, y: Any) -> Any:
    with mpmath.workprec(BITS):
        return mpmath.fsum(mpmath.mpf(v) * mpmath.mpf(w) for v, w in zip(x.tolist(), y.tolist(), strict=True))


def fraction(value: Any) -> Fraction:
    sign, mantissa, exponent, _ = value._mpf_
    size: Fraction = Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
    return -size if sign else size


def round_fraction(value: Fraction, form: Format, mode: str) -> float:
    """Round by looking for the two neighbours of |value| among the numbers of the format."""
    size = abs(value)
    sign = -1.0 if value < 0 else 1.0
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    step = Fraction(2) ** ((max(exponent, form.emin) if form.subnormals else exponent) - form.precision + 1)
    below = size // step * step
    above = below if below == size else below + step
    odd = (below // step) % 2 == 1
    up_in_size = {"up": value > 0, "down": value < 0, "toward-zero": False, "to-odd": not odd}.get(mode)
    if up_in_size is None:
        twice = size - below - (above - size)
        up_in_size = twice > 0 or (twice == 0 and (mode == "nearest-away" or odd))
    result = above if up_in_size else below
    if result > Fraction(form.max):
        if mode in ("toward-zero", "to-odd") or (mode == "up" and value < 0) or (mode == "down" and value > 0):
            return sign * form.max
        return sign * {"infinity": math.inf, "nan": math.nan, "saturate": form.max}[form.overflow]
    if not form.subnormals and result < Fraction(2) ** form.emin:
        return sign * 0.0
    return sign * float(result)


# -- exact values -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 63, 100, 1000, 2047, 2048, 2049, 4095, 4096, 4097, 5000])
def test_sum_and_dot_equal_mpmath_at_every_length(n: int, dtype: Any) -> None:
    rng = np.random.default_rng(n)
    for spread in (1, 20, 200, 1100):
        x, y = (draw(rng, n, dtype, spread) for _ in range(2))
        assert exact.sum(x).to_mpmath() == mp_sum(x)
        assert exact.dot(x, y).to_mpmath() == mp_dot(x, y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_massive_cancellation(dtype: Any) -> None:
    rng = np.random.default_rng(5)
    for spread in (3, 30, 1100):
        x = draw(rng, 3000, dtype, spread)
        tiny = np.finfo(dtype).smallest_subnormal
        cancelling = rng.permutation(np.concatenate([x, -x, [tiny]])).astype(dtype)
        assert exact.sum(cancelling).to_mpmath() == mpmath.mpf(float(tiny))
        y = draw(rng, 3000, dtype, spread)
        order = rng.permutation(6000)
        zero = exact.dot(np.concatenate([x, -x])[order], np.concatenate([y, y])[order])
        assert zero.to_mpmath() == 0
        assert float(zero) == 0


def test_smallest_beside_largest() -> None:
    x = np.array([2.0**127, 2.0**-149, -(2.0**127), 1.0], np.float32)
    assert exact.sum(x).to_mpmath() == mp_sum(x)
    assert exact.sum(x).round("float64", mode="up") == 1 + 2.0**-52
    big, small = 1e300, 1e-300
    d = exact.dot([big, small, -big], [big, small, big])
    assert d.to_mpmath() == mp_dot(np.array([small]), np.array([small]))
    assert d.round("float64") == 0
    assert d.round("float64", mode="up") == 5e-324
    assert d.error(0.0) == 0  # -1e-600 underflows
    assert d.ulp_error(0.0, "float32") == 0
    d = exact.dot([big, small], [big, small])
    assert d.round("float64") == math.inf
    assert d.round("float64", mode="down") == np.finfo(np.float64).max
    assert d.round("e4m3fn(overflow=saturate)") == 448
    m = np.finfo(np.float64).max
    s = exact.sum([m, m, -m, -m, 5e-324, m])
    assert s.to_mpmath() == mp_sum([m, 5e-324])
    assert s.error(m) == -5e-324
    assert exact.sum([m, m]).error(m) == -m
    assert exact.sum([m, m, m]).error(m) == -math.inf


@pytest.mark.parametrize("copied", [2**17, 50])
@pytest.mark.parametrize("dtype", DTYPES)
def test_axes_and_strides(dtype: Any, copied: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_exact_reductions, "_COPY", copied)
    x = draw(np.random.default_rng(3), (3, 130, 5), dtype, 40)
    for view in (x, x[:, ::-2], x.T, np.asfortranarray(x), x[1:, ::3, ::-1], x[:, :0]):
        for axis in (None, 0, 1, 2, -1, (0, 1), (2, 0), (0, 1, 2), ()):
            got = exact.sum(view, axis=axis)
            shape = np.any(view, axis=axis).shape
            assert got.shape == shape
            values = np.empty(shape, object)
            axes = tuple(range(3)) if axis is None else (axis,) if isinstance(axis, int) else axis
            axes = tuple(a % 3 for a in axes)
            kept = view.transpose([a for a in range(3) if a not in axes] + list(axes))
            for index in np.ndindex(shape):
                values[index] = mp_sum(kept[index])
            assert np.array_equal(np.asarray(got.to_mpmath(), object), values)


def test_operands_at_the_ends_of_the_range() -> None:
    tiny, big = 5e-324, np.finfo(np.float64).max
    subnormal = tiny * np.arange(1, 60)
    large = np.nextafter(2.0 ** np.arange(960, 1019), INF)
    assert exact.dot(subnormal, large).to_mpmath() == mp_dot(subnormal, large)
    for a, b in (
        ([[big, tiny], [1.0, 1.0]], np.eye(2)),
        ([[big, tiny]], [[0.0, 1.0], [tiny, big]]),
        ([[big, -big]], [[1.0], [1.0]]),
    ):
        got = np.asarray(exact.matmul(a, b).to_mpmath())
        for i, j in np.ndindex(got.shape):
            assert got[i, j] == mp_dot(np.asarray(a)[i], np.asarray(b)[:, j])
    single = np.finfo(np.float32)
    x = np.array([single.smallest_subnormal, single.max, single.smallest_normal] * 900, np.float32)
    y = np.array([single.max, single.max, single.smallest_subnormal, -1, -single.max] * 540, np.float32)
    assert exact.dot(x, y).to_mpmath() == mp_dot(x, y)
    assert exact.sum(x).to_mpmath() == mp_sum(x)
    assert (
        exact.dot(np.full(40_000, single.max), np.full(40_000, single.smallest_subnormal)).to_mpmath()
        == 40_000 * (2**24 - 1) * 2.0**-45
    )


def test_exponent_bins_of_wide_float32_data() -> None:
    rng = np.random.default_rng(14)
    x, y = draw(rng, 60_000, np.float32, 130), draw(rng, 60_000, np.float32, 130)
    assert exact.sum(x).to_mpmath() == mp_sum(x)
    assert exact.dot(x, y).to_mpmath() == mp_dot(x, y)
    largest = np.resize(np.array([np.finfo(np.float32).max, 2.0**-149], np.float32), 70_000)
    assert exact.sum(largest).to_mpmath() == mp_sum(largest)
    assert exact.dot(largest, largest).to_mpmath() == mp_dot(largest, largest)


def test_many_outputs_and_long_strided_terms() -> None:
    rng = np.random.default_rng(8)
    x = draw(rng, (1500, 7), np.float64, 700)
    got = np.asarray(exact.sum(x, axis=1).to_mpmath())
    assert all(got[i] == mp_sum(x[i]) for i in range(0, 1500, 50))
    y = rng.integers(-1000, 1000, 600_000).astype(np.float32)[::2]
    assert exact.sum(y[::-1]).to_mpmath() == int(y.astype(np.int64).sum())
    z = rng.integers(-1000, 1000, (300_000, 3)).astype(np.float64)
    assert np.array_equal(exact.sum(z, axis=0).to_mpmath(), [int(v) for v in z.sum(0)])


def test_dot_of_stacks_and_mixed_types() -> None:
    rng = np.random.default_rng(4)
    a, b = draw(rng, (2, 3, 50), np.float32, 60), draw(rng, (3, 50), np.float64, 300)
    got = exact.dot(a, b)
    assert got.shape == (2, 3)
    for i, j in np.ndindex(2, 3):
        assert got.to_mpmath()[i, j] == mp_dot(a[i, j], b[j])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 4), (4, 5)), ((1, 1), (1, 1)), ((2, 0), (0, 3)), ((0, 3), (3, 2)), ((7,), (7,)), ((7,), (7, 3)), ((3, 7), (7,)),
        ((5, 2, 30), (5, 30, 3)), ((2, 1, 2, 6), (3, 6, 2)), ((4,), (2, 4, 3)), ((2, 3000), (3000, 2)), ((3, 65), (65, 130)),
    ],
)  # fmt: skip
def test_matmul_equals_mpmath(left: Any, right: Any, dtype: Any) -> None:
    rng = np.random.default_rng(6)
    for spread in (0.5, 12, 60, 1100):
        a, b = draw(rng, left, dtype, spread), draw(rng, right, dtype, spread)
        got = exact.matmul(a, b)
        with np.errstate(all="ignore"):
            shape = np.matmul(a.astype(np.float64), b.astype(np.float64)).shape
        assert got.shape == shape
        batch = np.broadcast_shapes(left[:-2], right[:-2])
        full_a = np.broadcast_to(a[None] if a.ndim == 1 else a, (*batch, *(a[None] if a.ndim == 1 else a).shape[-2:]))
        full_b = b[:, None] if b.ndim == 1 else b
        full_b = np.broadcast_to(full_b, (*batch, *full_b.shape[-2:]))
        values = np.asarray(got.to_mpmath()).reshape(*batch, full_a.shape[-2], full_b.shape[-1])
        indices = list(np.ndindex(values.shape))
        for *lead, i, j in indices[:: max(1, len(indices) // 12)]:
            assert values[(*lead, i, j)] == mp_dot(full_a[(*lead, i)], full_b[(*lead, slice(None), j)])


def test_matmul_bits_do_not_depend_on_threads_or_layout() -> None:
    rng = np.random.default_rng(9)
    a, b = draw(rng, (90, 100), np.float32, 20), draw(rng, (100, 80), np.float32, 20)
    whole = exact.matmul(a, b).to_mpmath()
    rows = np.stack([exact.matmul(row, np.asfortranarray(b)).to_mpmath() for row in a])
    assert np.array_equal(whole, rows)
    assert whole[89, 79] == mp_dot(a[89], b[:, 79])


def test_matmul_of_doubles_with_all_their_bits() -> None:
    rng = np.random.default_rng(10)
    a, b = rng.standard_normal((4, 90)), rng.standard_normal((90, 3))
    for x, y in ((a, b), (a, b.astype(np.float32)), (np.nextafter(1, 0) * np.sign(a), np.nextafter(1, 0) * np.sign(b))):
        got = exact.matmul(x, y).to_mpmath()
        for i, j in np.ndindex(4, 3):
            assert got[i, j] == mp_dot(x[i], y[:, j])


def test_mpmath_context_is_left_alone() -> None:
    with mpmath.workprec(20):
        value = exact.sum(np.array([1, 2.0**-80], np.float64)).to_mpmath()
        assert mpmath.mp.prec == 20
    with mpmath.workprec(200):
        assert value - 1 == mpmath.mpf(2) ** -80


# -- NaN, infinities, signed zeros ------------------------------------------------------------------------------------

SUMS = [
    ([1, NAN, INF], NAN), ([INF, 1, INF], INF), ([-INF, 2], -INF), ([INF, -INF], NAN), ([0.0, -0.0], 0.0), ([-0.0, -0.0], -0.0),
    ([1, -1], 0.0), ([], 0.0), ([-0.0], -0.0), ([-1, -0.0, 1], 0.0),
]  # fmt: skip
DOTS = [
    ([INF, 1], [0, 1], NAN), ([INF, 1], [2, 1], INF), ([INF, 1], [-2, 1], -INF), ([INF, INF], [1, -1], NAN), ([NAN, 1], [0, 1], NAN),
    ([-0.0, 1], [1, -0.0], -0.0), ([-0.0, 1], [1, 0.0], 0.0), ([-0.0], [-0.0], 0.0), ([1, 1], [1, -1], 0.0), ([], [], 0.0), ([1, -INF], [1e30, 1e-30], -INF),
    ([0.0, 0.0], [-3, -0.0], -0.0),
]  # fmt: skip


def same(value: Any, expected: float) -> bool:
    value = float(value)
    return (value == expected and math.copysign(1, value) == math.copysign(1, expected)) or (
        math.isnan(value) and math.isnan(expected)
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("x", "expected"), SUMS)
def test_special_sums(x: Any, expected: float, dtype: Any) -> None:
    x = np.array(x, dtype)
    for got in (exact.sum(x), exact.sum(np.repeat(x, 2)[::2])):
        assert same(got.round("float32"), expected)
        assert same(float(got), expected)
        value = got.to_mpmath()
        assert mpmath.isnan(value) if math.isnan(expected) else value == expected
    stacked = exact.sum(np.stack([x, np.ones_like(x)]), axis=1).round("float64")
    assert same(stacked[0], expected)
    assert stacked[1] == len(x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("a", "b", "expected"), DOTS)
def test_special_dots_and_products(a: Any, b: Any, expected: float, dtype: Any) -> None:
    a, b = np.array(a, dtype), np.array(b, dtype)
    assert same(float(exact.dot(a, b)), expected)
    assert same(float(exact.matmul(a, b)), expected)
    both = exact.matmul(np.stack([a, np.ones_like(a)]), np.stack([np.ones_like(b), b], 1)).round("float64")
    assert same(both[0, 1], expected)
    assert both[1, 0] == len(a)


def test_finite_doubles_whose_products_overflow_are_no_infinities() -> None:
    a, b = np.array([1e200, 1e200, 1.0]), np.array([1e200, -1e200, 3.0])
    assert float(exact.dot(a, b)) == 3
    assert float(exact.matmul(a, b)) == 3
    assert float(exact.dot(np.append(a, INF), np.append(b, 1))) == INF


# -- rounding ---------------------------------------------------------------------------------------------------------

FORMATS = [
    FLOAT64, FLOAT32, TF32, BFLOAT16, FLOAT16, E4M3FN, E5M2, E4M3FN.with_overflow("saturate"), FLOAT32.without_subnormals(),
    FLOAT64.without_subnormals(), *(Format(f"p{p}", p, -1022, 1023) for p in (50, 51, 52)),
    *(Format(f"n{p}", p, -100, 100) for p in (1, 2, 51, 52, 53)), *(Format(f"f{p}", p, -100, 100, subnormals=False) for p in (51, 52, 53)),
    Format("top", 51, 1000, 1023, max_significand=2**51 - 7), *(Format(f"ftz{p}", p, -1022, 1023, subnormals=False) for p in (51, 52)),
]  # fmt: skip


def hard_terms(form: Format, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Sums of doubles at, and just beside, numbers of a format and the midpoints between them."""
    p, tiny = form.precision, 5e-324
    low = max(form.emin - 3, -1022)
    exponents = rng.integers(low, form.emax + 1, count)
    exponents[: count // 3] = rng.integers(low, min(form.emin + 3, form.emax) + 1, count // 3)
    exponents[count // 3 : count // 2] = form.emax
    significands = rng.integers(2 ** (p - 1), 2**p, count)
    significands[::5] = 2**p - 1
    significands[1::5] = 2 ** (p - 1)
    base = np.ldexp(significands.astype(float), exponents - p + 1)
    quantum = (np.maximum(exponents, form.emin) if form.subnormals else exponents) - p + 1
    with np.errstate(under="ignore"):
        half = np.ldexp(1.0, quantum - 1)
    rest = rng.choice([0.0, tiny, -tiny, 1.5 * 2.0**-200, -(2.0**-300)], count)
    shift = rng.choice([0.0, 1.0, -1.0, 0.5, 2.0], count)
    with np.errstate(under="ignore"):
        terms: NDArray[np.float64] = np.stack([base, shift * half, rest], 1) * rng.choice([-1, 1], count)[:, None]
    return terms


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_rounding_of_ties_and_their_neighbours(form: Format) -> None:
    x = hard_terms(form, np.random.default_rng(form.precision), 600)
    got = exact.sum(x, axis=1)
    values = [fraction(mp_sum(row)) for row in x]
    for mode in MODES:
        want = np.array([round_fraction(v, form, mode) if v else 0.0 for v in values])
        rounded = got.round(form, mode=mode)
        assert np.array_equal(rounded, want, equal_nan=True), mode
        assert np.array_equal(np.signbit(rounded[want == 0]), np.signbit(want[want == 0]))


@pytest.mark.parametrize(
    "form", [FLOAT64, FLOAT32, E4M3FN, FLOAT64.without_subnormals(), FORMATS[12]], ids=lambda form: form.name
)
def test_rounding_beyond_the_range_of_doubles(form: Format) -> None:
    rng = np.random.default_rng(2)
    a, b = (
        np.ldexp(rng.integers(2**52, 2**53, (400, 2)).astype(float), rng.integers(-590, 480, (400, 1)))
        for _ in range(2)
    )
    b[::3] = np.ldexp(rng.choice([1.0, 3.0, -1.0], b[::3].shape), -537)
    a[::3] = np.ldexp(
        rng.choice([1.0, -1.0, 2.0**-300], a[::3].shape), rng.choice([-537, -538, -536, -485], (len(a[::3]), 1))
    )
    got = exact.dot(a, b)
    values = [fraction(mp_dot(x, y)) for x, y in zip(a, b, strict=True)]
    for mode in MODES:
        want = np.array([round_fraction(v, form, mode) if v else 0.0 for v in values])
        assert np.array_equal(got.round(form, mode=mode), want, equal_nan=True), mode


def test_rounded_types() -> None:
    s = exact.sum(np.ones((2, 2), np.float32), axis=0)
    types = {
        "float16": np.float16,
        "float32": np.float32,
        "float64": np.float64,
        "bfloat16": np.float32,
        "e4m3fn": np.float32,
    }
    for name, dtype in types.items():
        assert s.round(name).dtype == dtype
        assert isinstance(exact.sum([1.0]).round(name), dtype)
    with pytest.raises(InputError, match="stochastic"):
        s.round("float32", mode="stochastic")
    with pytest.raises(InputError, match="unknown rounding mode"):
        s.round("float32", mode="sideways")  # type: ignore[arg-type]


# -- errors -----------------------------------------------------------------------------------------------------------


def ulps(got: float, want: Fraction) -> float:
    """Error of a double in its own ulps."""
    return abs(float((Fraction(got) - want) / Fraction(math.ulp(float(want)))))


@pytest.mark.parametrize("dtype", DTYPES)
def test_errors_equal_fractions(dtype: Any) -> None:
    rng = np.random.default_rng(11)
    x = draw(rng, (200, 40), dtype, 8)
    got = exact.sum(x, axis=1)
    truth = [fraction(v) for v in got.to_mpmath()]
    form = {2: FLOAT16, 4: FLOAT32, 8: FLOAT64}[np.dtype(dtype).itemsize]
    near = got.round(form)
    candidates = (
        near,
        np.nextafter(near, dtype(INF)),
        np.nextafter(near, dtype(0)),
        x.sum(1),
        np.zeros(200, dtype),
        -near,
    )
    for result in candidates:
        error, relative, backward, in_ulps = (
            got.error(result), got.relative_error(result), got.backward_error(result), got.ulp_error(result)
        )  # fmt: skip
        for i, exact_value in enumerate(truth):
            want = Fraction(float(result[i])) - exact_value
            assert error[i] == 0 if want == 0 else ulps(error[i], want) <= 1
            size = Fraction(sum(abs(Fraction(float(v))) for v in x[i]))
            assert relative[i] == pytest.approx(float(want / abs(exact_value)), rel=1e-15, abs=0)
            assert backward[i] == pytest.approx(float(abs(want) / size), rel=1e-15, abs=0)
            exponent = max(math.frexp(float(exact_value))[1] - 1, form.emin)
            if abs(exact_value) < Fraction(2) ** exponent and exponent > form.emin:
                exponent -= 1
            want /= Fraction(2) ** (exponent - form.precision + 1)
            assert in_ulps[i] == pytest.approx(float(want), rel=1e-15, abs=0)


def test_nearest_result_has_a_correctly_rounded_error() -> None:
    x = draw(np.random.default_rng(12), (300, 30), np.float64, 5)
    got = exact.sum(x, axis=1)
    error = got.error(got.round("float64"))
    want = [Fraction(r) - fraction(v) for r, v in zip(got.round("float64").tolist(), got.to_mpmath(), strict=True)]
    assert error.tolist() == [float(v) for v in want]


def test_ulp_is_that_of_the_exact_binade() -> None:
    just_below = exact.sum(np.array([1, -(2.0**-100)], np.float64))
    assert just_below.ulp_error(np.float32(1)) == pytest.approx(2.0**-76)
    assert exact.sum(np.array([1], np.float32)).ulp_error(np.float32(1 + 2**-23)) == 1
    assert exact.sum(np.array([0], np.float32)).ulp_error(np.float32(2**-149)) == 1
    assert exact.sum(np.array([1], np.float64)).ulp_error(1 + 2.0**-10, "bfloat16") == 2.0**-3
    assert exact.sum(np.array([5e-324], np.float64)).ulp_error(0.0) == -1
    assert exact.sum(np.array([2.0**-126], np.float32)).ulp_error(np.float32(0), FLOAT32) == -(2.0**23)


def test_errors_of_special_values() -> None:
    infinite = exact.sum([INF, 1])
    assert infinite.error(INF) == 0
    assert infinite.ulp_error(INF) == 0
    assert infinite.relative_error(INF) == 0
    assert infinite.error(1.0) == -INF
    assert math.isnan(infinite.error(NAN))
    assert math.isnan(exact.sum([NAN]).error(1.0))
    assert exact.sum([1.0]).error(INF) == INF
    zero = exact.sum([1.0, -1.0])
    assert zero.relative_error(0.0) == 0
    assert zero.relative_error(-1e-9) == -INF
    assert zero.backward_error(1.0) == 0.5
    assert zero.condition == INF
    assert exact.sum([0.0]).condition == 1
    assert exact.sum([]).backward_error(0.0) == 0


def test_magnitude_and_condition() -> None:
    rng = np.random.default_rng(13)
    a, b = draw(rng, (4, 30), np.float32, 10), draw(rng, (30, 5), np.float32, 10)
    product = exact.matmul(a, b)
    for i, j in np.ndindex(4, 5):
        assert product.magnitude[i, j] == float(mp_dot(abs(a[i]), abs(b[:, j])))
        condition = mp_dot(abs(a[i]), abs(b[:, j])) / abs(product.to_mpmath()[i, j])
        assert product.condition[i, j] == pytest.approx(float(condition), rel=1e-15)
    assert exact.dot(a[0], b[:, 0]).magnitude == product.magnitude[0, 0]
    assert exact.sum([3.0, -4.0]).magnitude == 7


# -- properties, forms, refusals --------------------------------------------------------------------------------------


def test_order_and_grouping_do_not_matter() -> None:
    hypothesis: Any = pytest.importorskip("hypothesis")
    st = hypothesis.strategies

    def check(values: list[float], random: Any) -> None:
        shuffled = list(values)
        random.shuffle(shuffled)
        whole = exact.sum(values).to_mpmath()
        assert exact.sum(shuffled).to_mpmath() == whole
        assert fraction(whole) == sum(map(Fraction, values), Fraction(0))
        assert exact.dot(values, shuffled).to_mpmath() == exact.dot(shuffled, values).to_mpmath()
        assert exact.sum([*values, *(-v for v in shuffled)]).to_mpmath() == 0

    terms = st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=40)
    hypothesis.settings(deadline=None, max_examples=80)(hypothesis.given(terms, st.randoms())(check))()


def test_forms() -> None:
    s = exact.sum(np.array([1, 2], np.float32))
    assert str(s) == "exact sum of 2 terms: 3.0"
    assert repr(s) == "<exact sum of 2 terms: 3.0>"
    assert s.to_dict() == {"shape": [], "terms": "sum of 2 terms", "value": 3.0, "magnitude": 3.0, "condition": 1.0}
    rows = exact.sum(np.ones((2, 3)), axis=1)
    assert rows.to_dict()["value"] == [3.0, 3.0]
    assert "shape (2,)" in str(rows)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: exact.sum(np.ones(3), axis=1), "axis 1 does not exist in an array of 1 dimensions"),
        (lambda: exact.sum(["a"]), "x"),
        (lambda: exact.dot(np.ones(3), np.ones(4)), "dot takes vectors of one length, not shapes (3,) and (4,)"),
        (lambda: exact.dot(1.0, 2.0), "dot takes vectors of one length, not shapes () and ()"),
        (lambda: exact.dot(np.ones((2, 3)), np.ones((4, 3))), "stacks of vectors (2, 3) and (4, 3) do not broadcast"),
        (lambda: exact.matmul(np.ones((2, 3)), np.ones((4, 3))), "do not multiply: 3 terms against 4"),
        (lambda: exact.matmul(1.0, np.ones(3)), "not scalars"),
        (lambda: exact.matmul(np.ones((2, 2, 3)), np.ones((3, 3, 3))), "do not broadcast"),
        (lambda: exact.sum(np.ones((3, 2)), axis=1).error(np.ones(4)), "result has shape (4,)"),
        (lambda: float(exact.sum(np.ones((2, 2)), axis=0)), "shape (2,)"),
    ],
)  # fmt: skip
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        call()
