"""Rounding to a format: every result against exact integer arithmetic, mpmath, and other people's casts."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

import fpsim
from fpsim.formats import (
    BFLOAT16,
    E4M3FN,
    E5M2,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    FORMATS,
    OVERFLOW_POLICIES,
    ROUNDING_MODES,
    TF32,
    Format,
)
from fpsim.kernels import rounding

Array = Any  # results are checked by value

DETERMINISTIC: list[Any] = [mode for mode in ROUNDING_MODES if mode != "stochastic"]
ODD_ONES = [
    Format("", 1, -20, 20),
    Format("", 2, 0, 2, overflow="saturate"),
    Format("", 52, -1022, 1023),
    Format("", 9, -1022, -980),
    Format("", 5, 990, 1023, overflow="nan"),
    Format("", 3, -6, 8, max_significand=5),
]
ALL = [*FORMATS.values(), *ODD_ONES, *[f.without_subnormals() for f in (FLOAT32, E4M3FN, E5M2, *ODD_ONES)]]


def same(a: Array, b: Array) -> Array:
    """Tell where two arrays are equal, with the sign of zeros; any NaN equals any other."""
    return ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))


def widened(x: Array) -> Array:
    with np.errstate(invalid="ignore"):  # signalling NaN
        return x.astype(np.float64)


class Exact:
    """The neighbours of each value in a format, found with Python's integers."""

    def __init__(self, x: Array, form: Format) -> None:
        self.x, self.form = x, form
        fraction, exponent = np.frexp(np.abs(np.where(np.isfinite(x), x, 0)))
        low, where, scale = [], [], []  # lower neighbour in quanta; 0 exact, 1 below, 2 at, 3 above the midpoint
        for m, e in zip(np.ldexp(fraction, 53).astype(np.int64).tolist(), exponent.tolist(), strict=True):
            quantum = max(e - 1, form.emin) if form.subnormals else e - 1
            quantum -= form.precision - 1
            shift = quantum - (e - 53)
            if shift <= 0:
                k, rest = m << -shift, 0
            else:
                k, rest = m >> shift, m & ((1 << shift) - 1)
            half = 1 << max(shift - 1, 0)
            low.append(k)
            where.append(0 if rest == 0 else 2 + (rest > half) - (rest < half))
            scale.append(quantum)
        self.low, self.where, self.scale = np.array(low), np.array(where), np.array(scale)

    def rounded(self, mode: str) -> Array:
        low, where, negative = self.low, self.where, np.signbit(self.x)
        away = {
            "nearest-even": (where == 3) | ((where == 2) & (low % 2 == 1)),
            "nearest-away": where >= 2,
            "toward-zero": np.zeros_like(negative),
            "up": (where > 0) & ~negative,
            "down": (where > 0) & negative,
            "to-odd": (where > 0) & (low % 2 == 0),
        }[mode]
        with np.errstate(over="ignore"):
            size = np.ldexp((low + away).astype(np.float64), self.scale)
        return self.finish(size, mode)

    def finish(self, size: Array, mode: str) -> Array:
        """Apply overflow, underflow without subnormals, and signs."""
        form, negative = self.form, np.signbit(self.x)
        beyond = {"infinity": math.inf, "nan": math.nan, "saturate": form.max}[form.overflow]
        to_infinity: Any = {"up": ~negative, "down": negative, "toward-zero": False, "to-odd": False}.get(mode, True)
        size = np.where(size > form.max, np.where(to_infinity, beyond, form.max), size)
        size = np.where(np.isinf(self.x), beyond, size)
        if not form.subnormals:
            size = np.where(size < form.smallest_normal, 0.0, size)
        return np.where(np.isnan(self.x), math.nan, np.copysign(size, self.x))


def hard_values(form: Format, count: int, dtype: Any = np.float64) -> Array:
    """Return grid points, midpoints, their neighbours in dtype, and values over the whole range of dtype."""
    rng = np.random.default_rng(form.precision * 1000 + form.emin)
    info = np.finfo(dtype)
    lowest = max(form.emin - form.precision - 4, int(info.minexp) - int(info.nmant))
    exponent = rng.integers(lowest, min(form.emax + 2, 1023), count)
    quantum = np.maximum(exponent, form.emin) - form.precision + 1
    base = np.trunc(np.ldexp(1 + rng.random(count), exponent - quantum)) * np.ldexp(1.0, np.maximum(quantum, -1074))
    edges = [form.max, form.smallest_normal, form.smallest_subnormal, 2 * form.smallest_subnormal]
    base = np.concatenate([base, edges])
    with np.errstate(over="ignore", under="ignore"):
        middle = base + form.ulp(base) / 2
        points = np.concatenate([base, middle, middle - form.ulp(base)]).astype(dtype)
        near = [points, np.nextafter(points, dtype(np.inf)), np.nextafter(points, dtype(-np.inf))]
    words: Any = {np.float64: np.uint64, np.float32: np.uint32}[dtype]
    anything = rng.integers(0, np.iinfo(words).max, count, dtype=words, endpoint=True).view(dtype)
    special = np.array([0.0, math.inf, math.nan, info.max, info.tiny, info.smallest_subnormal], dtype)
    x = np.concatenate([*near, anything, special])
    return np.concatenate([x, -x]).astype(dtype)


def test_codes_of_the_kernels_are_positions_of_the_names() -> None:
    for names in (ROUNDING_MODES, OVERFLOW_POLICIES):
        for code, name in enumerate(names):
            assert getattr(rounding, name.upper().replace("-", "_")) == code


@pytest.mark.parametrize("form", ALL, ids=str)
def test_every_mode_from_float64(form: Format) -> None:
    x = hard_values(form, 11_000)
    assert x.size > 200_000
    exact = Exact(x, form)
    for mode in DETERMINISTIC:
        got = fpsim.round_to(x, form, mode=mode)
        assert got.dtype == np.float64
        wrong = ~same(got, exact.rounded(mode))
        assert not wrong.any(), f"{mode}: {wrong.sum()} wrong, e.g. {x[wrong][0].hex()} -> {got[wrong][0].hex()}"


@pytest.mark.parametrize("form", [f for f in ALL if FLOAT32.includes(f)], ids=str)
def test_every_mode_from_float32(form: Format) -> None:
    x = hard_values(form, 11_000, np.float32)
    exact = Exact(widened(x), form)
    for mode in DETERMINISTIC:
        got = fpsim.round_to(x, form, mode=mode)
        assert got.dtype == np.float32
        assert same(widened(got), exact.rounded(mode)).all(), mode


@pytest.mark.parametrize("form", [FLOAT16, BFLOAT16, E4M3FN, E5M2], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_around_every_midpoint(form: Format, dtype: Any) -> None:
    """All pairs of neighbouring numbers of the format, the last one with the number that would follow."""
    per_binade = 2 ** (form.precision - 1)
    k = np.arange(per_binade * (form.emax - form.emin + 2) + 1)
    binade = np.maximum(k // per_binade, 1)
    value = np.ldexp(
        (k % per_binade + per_binade * (k >= per_binade)).astype(float), binade - 1 + form.emin - form.nmant
    )
    k, value = k[: np.searchsorted(value, form.max) + 2], value[: np.searchsorted(value, form.max) + 2]
    assert value[-2] == form.max
    beyond = {"infinity": math.inf, "nan": math.nan}[form.overflow]
    below, above = value[:-1].astype(dtype), value[1:]
    middle = (value[:-1] / 2 + above / 2).astype(dtype)
    result: Any = np.where(value > form.max, beyond, value).astype(dtype)
    low, high, even = result[:-1], result[1:], k[:-1] % 2 == 0
    under, over = np.nextafter(middle, dtype(0)), np.nextafter(middle, dtype(np.inf))
    for sign in (dtype(1), dtype(-1)):
        cases: list[tuple[Any, ...]] = [
            ("nearest-even", low, np.where(even, low, high), high),
            ("nearest-away", low, high, high),
            ("toward-zero", low, low, low),
            ("up" if sign > 0 else "down", high, high, high),
            ("down" if sign > 0 else "up", low, low, low),
            ("to-odd", *(3 * [np.where(even & (above <= form.max), high, low)])),
        ]
        for mode, at_under, at_middle, at_over in cases:
            for x, want in ((under, at_under), (middle, at_middle), (over, at_over)):
                assert same(np.asarray(fpsim.round_to(sign * x, form, mode=mode)), sign * want).all(), mode
            assert same(np.asarray(fpsim.round_to(sign * below, form, mode=mode)), sign * low).all()


@pytest.mark.parametrize("form", [FLOAT32, TF32, BFLOAT16, FLOAT16, E4M3FN, E5M2, Format("", 1, -20, 20)], ids=str)
def test_normal_range_equals_mpmath(form: Format) -> None:
    rng = np.random.default_rng(1)
    x = np.ldexp(1 + rng.random(700), rng.integers(form.emin, form.emax, 700))
    x = np.concatenate([x, fpsim.round_to(x, form, mode="down") + form.ulp(x) / 2])
    x = np.concatenate([x, -x])
    letters: dict[Any, str] = {"nearest-even": "n", "toward-zero": "d", "up": "c", "down": "f"}
    for mode, letter in letters.items():
        want = [float(mpmath.mpf(v, prec=form.precision, rounding=letter)) for v in x.tolist()]
        assert fpsim.round_to(x, form, mode=mode).tolist() == want


def any_float32() -> Array:
    x = np.random.default_rng(2).integers(0, 2**32, 1_000_000, dtype=np.uint32).view(np.float32)
    return np.concatenate([x, *(hard_values(f, 3000, np.float32) for f in (FLOAT16, BFLOAT16, E4M3FN, E5M2))])


def test_float16_equals_numpy_bit_for_bit() -> None:
    x = any_float32()
    x = x[~np.isnan(x)]
    with np.errstate(over="ignore", under="ignore"):
        for values in (x, x.astype(np.float64)):
            got = np.asarray(fpsim.round_to(values, "float16"))
            assert got.dtype == values.dtype
            np.testing.assert_array_equal(
                got.astype(np.float16).view(np.uint16), values.astype(np.float16).view(np.uint16)
            )
            np.testing.assert_array_equal(got, values.astype(np.float16).astype(values.dtype))


@pytest.mark.parametrize(
    "name",
    ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3", "float8_e3m4", "float6_e2m3fn", "float4_e2m1fn"],
)
def test_equals_ml_dtypes_from_float32(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(ml_dtypes, name))
    x = any_float32()
    if name.startswith(("float6", "float4")):
        x = x[~np.isnan(x)]
    with np.errstate(all="ignore"):
        theirs = x.astype(dtype).astype(np.float32)
    got = fpsim.round_to(x, dtype)
    assert same(got, theirs).all()
    with np.errstate(all="ignore"):
        bits, their_bits = (v.astype(dtype).view(f"u{dtype.itemsize}") for v in (got, x))
    np.testing.assert_array_equal(bits[~np.isnan(got)], their_bits[~np.isnan(got)])


def test_float64_is_rounded_once() -> None:
    just_above = 1 + 2.0**-8 + 2.0**-40  # through float32 this becomes a tie of bfloat16
    assert fpsim.round_to(just_above, "bfloat16") == 1 + 2.0**-7
    assert fpsim.round_to(np.float32(just_above), "bfloat16") == 1.0


def test_overflow_policies() -> None:
    x = np.array([464.0, 464.1, 480.0, 1e300, math.inf])
    for form, beyond in (
        (E4M3FN, math.nan),
        (E4M3FN.with_overflow("infinity"), math.inf),
        (E4M3FN.with_overflow("saturate"), 448.0),
    ):
        mode: Any
        for mode in ("nearest-even", "up"):
            finite_first = 448.0 if mode == "nearest-even" else beyond
            want = np.array([finite_first, beyond, beyond, beyond, beyond])
            assert same(np.asarray(fpsim.round_to(x, form, mode=mode)), want).all()
        for mode in ("toward-zero", "down", "to-odd"):
            want = np.array([448.0, 448.0, 448.0, 448.0, beyond])
            assert same(np.asarray(fpsim.round_to(x, form, mode=mode)), want).all()
            mirrored: Any = {"down": "up"}.get(mode, mode)
            assert same(np.asarray(fpsim.round_to(-x, form, mode=mirrored)), -want).all()


def test_flush_happens_after_rounding() -> None:
    form = FLOAT16.without_subnormals()
    least, quantum = form.smallest_normal, 2.0**-24
    x = [least, least - quantum / 4, least - quantum / 3, least - quantum, -quantum]
    # A quarter quantum below 2**-14 is the midpoint of the last interval of an unbounded exponent range.
    assert np.asarray(fpsim.round_to(x, form)).tolist() == [least, least, 0.0, 0.0, 0.0]
    assert np.signbit(fpsim.round_to(x, form)).tolist() == [False, False, False, False, True]
    assert np.asarray(fpsim.round_to(x, form, mode="up")).tolist() == [least, least, least, 0.0, 0.0]


def test_signed_zeros_nan_and_infinities_are_kept() -> None:
    for form in (f for f in ALL if f.overflow == "infinity"):
        for mode in ROUNDING_MODES:
            got = np.asarray(fpsim.round_to([0.0, -0.0, math.inf, -math.inf, math.nan], form, mode=mode, rng=0))
            assert same(got, np.array([0.0, -0.0, math.inf, -math.inf, math.nan])).all()
    assert np.signbit(fpsim.round_to([-1e-300, 1e-300], "float16", mode="toward-zero")).tolist() == [True, False]


def test_properties_in_any_format() -> None:
    hypothesis = pytest.importorskip("hypothesis")
    st = hypothesis.strategies

    def formats(draw: Any) -> Format:
        emin = draw(st.integers(-1022, 1020))
        settings = {"subnormals": draw(st.booleans()), "overflow": draw(st.sampled_from(OVERFLOW_POLICIES))}
        return Format("", draw(st.integers(1, 53)), emin, draw(st.integers(emin, 1023)), **settings)

    numbers = st.lists(st.floats(allow_nan=True), min_size=1, max_size=8)

    def check(form: Format, values: list[float], mode: Any) -> None:
        x = np.array(values)
        y = np.asarray(fpsim.round_to(x, form, mode=mode))
        assert same(y, Exact(x, form).rounded(mode)).all()
        assert same(np.asarray(fpsim.round_to(y, form, mode=mode)), y).all() or form.overflow != "infinity"
        mirrored = {"up": "down", "down": "up"}.get(mode, mode)
        assert same(np.asarray(fpsim.round_to(-x, form, mode=mirrored)), -y).all()
        ordered = np.asarray(fpsim.round_to(np.sort(x[~np.isnan(x)]), form, mode=mode))
        assert form.overflow == "nan" or (np.diff(ordered[np.isfinite(ordered)]) >= 0).all()

    given = hypothesis.given(st.composite(formats)(), numbers, st.sampled_from(DETERMINISTIC))
    hypothesis.settings(deadline=None, max_examples=400)(given(check))()


# --- stochastic -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ALL, ids=str)
def test_stochastic_gives_a_neighbour_and_leaves_numbers_alone(form: Format) -> None:
    x = hard_values(form, 1000)
    got = np.asarray(fpsim.round_to(x, form, mode="stochastic", rng=7))
    exact = Exact(x, form)
    with np.errstate(over="ignore"):
        low, high = (np.ldexp((exact.low + up).astype(float), exact.scale) for up in (0, exact.where > 0))
    low, high = exact.finish(low, "stochastic"), exact.finish(high, "stochastic")
    assert (same(got, low) | same(got, high)).all()
    distinct = ~same(low, high)
    if form != FLOAT64:
        assert same(got, low)[distinct].any()
        assert same(got, high)[distinct].any()


def test_stochastic_probability_is_the_discarded_fraction_exactly() -> None:
    """All values of the few random bits that decide: as many round away as the discarded bits say."""
    parameters = Format("", 49, -1022, 1023).parameters
    for rest in range(16):
        x = np.full(16, 1 + rest * 2.0**-52)
        out = np.empty(16)
        rounding.round_array_stochastic(x, out, *parameters, np.arange(16))
        assert (out > 1).sum() == rest
    # Far below the smallest number: the threshold on 63 random bits is the value in units of 2**-63 quanta.
    parameters = FLOAT16.parameters
    for exponent in range(-87, -34):
        threshold = 2 ** (63 + 24 + exponent)
        x = np.full(2, -math.ldexp(1.0, exponent))
        rounding.round_array_stochastic(x, out[:2], *parameters, np.array([threshold - 1, threshold]))
        assert out[:2].tolist() == [-(2.0**-24), 0.0]


@pytest.mark.parametrize("form", [FLOAT16, BFLOAT16, E4M3FN], ids=str)
def test_stochastic_frequencies(form: Format) -> None:
    n = 200_000
    for k, fraction in enumerate((0.001, 0.25, 1 / 3, 0.5, 0.9, 0.999)):
        for low, quantum in (
            (1.0, form.eps),
            (-3 * form.smallest_subnormal, -form.smallest_subnormal),
            (0.0, 2.0**-24),
        ):
            step = quantum if low else form.smallest_subnormal
            x = np.full(n, low + fraction * step)
            away = np.asarray(fpsim.round_to(x, form, mode="stochastic", rng=100 + k)) != low
            p = float((Fraction(x[0]) - Fraction(low)) / Fraction(step))
            assert abs(away.mean() - p) < 5 * math.sqrt(p * (1 - p) / n)


def test_stochastic_overflow_has_the_next_number_as_its_neighbour() -> None:
    x = np.full(100_000, 65504.0 + 8)  # a quarter of the way to 65536
    got = np.asarray(fpsim.round_to(x, "float16", mode="stochastic", rng=3))
    assert set(got.tolist()) == {65504.0, math.inf}
    assert abs(np.isinf(got).mean() - 0.25) < 5 * math.sqrt(0.25 * 0.75 / x.size)


def test_stochastic_seed() -> None:
    x = np.random.default_rng(0).random((40, 50))
    first = fpsim.round_to(x, "e4m3fn", mode="stochastic", rng=5)
    assert np.array_equal(first, fpsim.round_to(x, "e4m3fn", mode="stochastic", rng=np.random.default_rng(5)))
    assert np.array_equal(first, fpsim.round_to(np.asfortranarray(x), "e4m3fn", mode="stochastic", rng=5))
    assert not np.array_equal(first, fpsim.round_to(x, "e4m3fn", mode="stochastic", rng=6))
    assert not np.array_equal(*(fpsim.round_to(x, "e4m3fn", mode="stochastic") for _ in range(2)))
    generator = np.random.default_rng(5)
    assert not np.array_equal(*(fpsim.round_to(x, "e4m3fn", mode="stochastic", rng=generator) for _ in range(2)))


# --- the array function ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["nearest-even", "down", "stochastic"])
def test_shapes_and_layouts(mode: Any) -> None:
    x = np.random.default_rng(1).standard_normal((4, 5, 6)).astype(np.float32)
    for view in (x, x.T, x[::2, ::-1, 1:], np.moveaxis(x, 0, 1), x[:0], np.broadcast_to(x[0, 0], (3, 6)), x[0, 0, 0]):
        want = np.array([fpsim.round_to(v, "e5m2", mode=mode, rng=0) for v in view.ravel().tolist()])
        got = fpsim.round_to(view, "e5m2", mode=mode, rng=0)
        assert got.shape == view.shape
        assert got.dtype == np.float32
        if mode != "stochastic":
            assert np.array_equal(np.ravel(got), want)
    read_only = x.copy()
    read_only.flags.writeable = False
    assert np.array_equal(
        fpsim.round_to(read_only, "e5m2", mode=mode, rng=0), fpsim.round_to(x, "e5m2", mode=mode, rng=0)
    )


def test_result_types() -> None:
    assert isinstance(fpsim.round_to(0.1, "float32"), np.float64)
    assert isinstance(fpsim.round_to(np.float32(0.1), "bfloat16"), np.float32)
    assert isinstance(fpsim.round_to(np.array(0.1), "bfloat16"), np.float64)
    assert fpsim.round_to(np.array([0.1], np.float16), "e5m2").dtype == np.float32
    assert fpsim.round_to(np.array([0.1], np.float32), "float64").dtype == np.float64
    assert fpsim.round_to(np.array([0.1], np.float32), Format("", 5, -200, 3)).dtype == np.float64
    assert fpsim.round_to([1, 2], "e5m2").dtype == np.float64
    assert fpsim.round_to(np.array([0.1], ">f4"), "e5m2").dtype == np.dtype(np.float32)
    for signalling in (
        np.array([0x7C01], np.uint16).view(np.float16),
        np.array([0x7F800001], np.uint32).view(np.float32),
    ):
        assert np.isnan(fpsim.round_to(signalling, "e5m2"))  # without a warning
        assert BFLOAT16.contains(signalling)
    x = np.array([0.1, 0.2])
    assert fpsim.round_to(x, "float64") is not x
    fpsim.round_to(x, "e5m2")
    assert x.tolist() == [0.1, 0.2]


@pytest.mark.parametrize(
    ("arguments", "settings", "says"),
    [
        ((1.0, "float33"), {}, "unknown format"),
        (
            (1.0, "float16"),
            {"mode": "nearest"},
            "nearest-even, nearest-away, toward-zero, up, down, to-odd, stochastic",
        ),
        (("text", "float16"), {}, "not numbers"),
        ((1j, "float16"), {}, "complex"),
        ((1.0, "float16"), {"mode": "stochastic", "rng": "seed"}, "rng must be a seed"),
    ],
)
def test_bad_arguments(arguments: tuple[Any, ...], settings: dict[str, Any], says: str) -> None:
    with pytest.raises(fpsim.InputError, match=says):
        fpsim.round_to(*arguments, **settings)


# --- round to odd ---------------------------------------------------------------------------------------------------


def test_round_to_odd_sum_makes_a_second_rounding_exact() -> None:
    rng = np.random.default_rng(8)
    a = np.ldexp(1 + rng.random(4000), rng.integers(-40, 40, 4000)) * rng.choice([-1, 1], 4000)
    b = np.ldexp(1 + rng.random(4000), rng.integers(-90, 40, 4000)) * rng.choice([-1, 1], 4000)
    a[:2000] = np.round(a[:2000] * 2**20) / 2**20  # few bits: totals are midpoints, and b decides
    a[:500] = np.ldexp(1.0, rng.integers(-40, 40, 500))
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        total, exact = x + y, Fraction(x) + Fraction(y)
        error = float(exact - Fraction(total))
        odd = float(rounding.round_to_odd_sum(total, error))
        if error == 0:
            assert odd == total
            continue
        m, e = math.frexp(odd)
        assert int(math.ldexp(m, 53)) % 2 == 1
        assert abs(Fraction(odd) - exact) < Fraction(2) ** (e - 53)
        for precision in (3, 24, 51):
            rounded = float(fpsim.round_to(odd, Format("", precision, -1000, 1000)))
            grid = Fraction(2) ** (math.frexp(float(exact))[1] - precision)
            assert abs(Fraction(rounded) - exact) <= grid / 2
            if 2 * abs(Fraction(rounded) - exact) == grid:
                assert Fraction(rounded) / grid % 2 == 0


def test_round_to_odd_sum_keeps_zeros_infinities_and_nan() -> None:
    for total in (0.0, -0.0, math.inf, -math.inf, math.nan):
        for error in (0.0, 1.0, -1.0, math.nan, -math.inf):
            got = np.float64(rounding.round_to_odd_sum(total, error))
            assert same(np.array([got]), np.array([total])).all()
    assert rounding.round_to_odd_sum(1.0, math.nan) == 1.0
