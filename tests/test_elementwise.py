from __future__ import annotations

import ctypes
import ctypes.util
import importlib
import importlib.util
import math
import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gmpy2
import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from fpsim.devices import _elementwise_inputs as inputs, _elementwise_reference as reference, _libm
from fpsim.devices._elementwise_libraries import cuda_kernels
from fpsim.devices.elementwise import (
    FUNCTIONS,
    Elementwise,
    compare,
    correctly_rounded,
    elementwise_implementations,
    measure,
    measure_all,
    ulp_errors,
)
from fpsim.errors import InputError, MissingExtraError
from fpsim.kernels import activations, elementwise as kernels

Array = NDArray[Any]

DATA = Path(__file__).parent / "data"
TRANSCENDENTAL = [name for name, f in FUNCTIONS.items() if f.exact is not None]
HALVED = [name for name, f in FUNCTIONS.items() if f.halves]
REQUIRED = ["add", "subtract", "multiply", "divide", "sqrt"]
NUMPY, NUMBA, LIBM = elementwise_implementations()[:3]

TINY, HUGE, INF, NAN = 2.0**-149, float(np.finfo(np.float32).max), math.inf, math.nan

# MPFR rounds correctly in any format: 24 bits from 2**-149 to 2**128 is float32.
MPFR = gmpy2.context(precision=24, emin=-148, emax=128, subnormalize=True)
WIDE = gmpy2.context(precision=800)

ORACLES: dict[str, Callable[..., Any]] = {
    "add": gmpy2.add, "subtract": gmpy2.sub, "multiply": gmpy2.mul, "divide": gmpy2.div, "sqrt": gmpy2.sqrt,
    "fma": gmpy2.fma, "multiply_add": gmpy2.fma, "exp": gmpy2.exp, "exp2": gmpy2.exp2, "expm1": gmpy2.expm1,
    "log": gmpy2.log, "log2": gmpy2.log2, "log1p": gmpy2.log1p, "sin": gmpy2.sin, "cos": gmpy2.cos,
    "tanh": gmpy2.tanh, "erf": gmpy2.erf, "rsqrt": gmpy2.rec_sqrt, "pow": lambda x, y: x**y,
    "reciprocal": lambda x: 1 / x,
}  # fmt: skip


def _gelu_tanh(x: Any) -> Any:
    u = gmpy2.sqrt(2 / gmpy2.const_pi()) * (x + gmpy2.mpfr(44715) / 1000000 * x**3)
    return x / (1 + gmpy2.exp(-2 * u))


# MPFR lacks these: they are composed in 800 bits.
COMPOSED: dict[str, Callable[..., Any]] = {
    "sigmoid": lambda x: 1 / (1 + gmpy2.exp(-x)),
    "silu": lambda x: x / (1 + gmpy2.exp(-x)),
    "gelu": lambda x: x / 2 * gmpy2.erfc(-x / gmpy2.sqrt(gmpy2.mpfr(2))),
    "gelu_tanh": _gelu_tanh,
    "softplus": lambda x: max(x, 0) + gmpy2.log1p(gmpy2.exp(-abs(x))),
}


def mpfr(name: str, operands: list[Array]) -> Array:
    """Return the correctly rounded results by MPFR; limits for values at infinities."""
    out = []
    for values in zip(*(x.tolist() for x in operands), strict=True):
        if name in HALVED and values[0] == -INF:
            out.append(-0.0)
            continue
        if name in COMPOSED:
            with WIDE:
                wide = COMPOSED[name](gmpy2.mpfr(values[0]))
            with MPFR:
                out.append(float(gmpy2.mpfr(wide)))
            continue
        if name in {"rsqrt", "reciprocal"} and values[0] == 0:
            out.append(math.copysign(INF, values[0]))  # IEEE 754-2019, 9.2.1; MPFR gives +inf for -0
            continue
        with MPFR:
            out.append(float(ORACLES[name](*(gmpy2.mpfr(v) for v in values))))
    return np.array(out, np.float32)


def same(a: Array, b: Array) -> Array:
    """Tell where the bits are equal; any NaN equals any NaN."""
    return np.asarray((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b)))


def drawn(name: str, size: int, seed: int) -> list[Array]:
    return inputs.operands(name, FUNCTIONS[name].operands, 0, size, size, np.random.default_rng(seed))


def telling(name: str, size: int) -> list[Array]:
    """Return operands whose results are not plain."""
    operands = drawn(name, 16 * size, 1)
    chosen = np.flatnonzero(reference.reference(name, *operands).flags == 0)[:size]
    return [x[chosen] for x in operands]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_reference_is_correctly_rounded(name: str) -> None:
    for operands in (drawn(name, 2**12, 0), telling(name, 2000)):
        got, expected = correctly_rounded(name, *operands), mpfr(name, operands)
        assert got.dtype == np.float32
        wrong = ~same(got, expected)
        assert not wrong.any(), [x[wrong][:3] for x in (*operands, got, expected)]


@pytest.mark.parametrize("name", TRANSCENDENTAL)
def test_reference_near_boundaries(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A wider bound sends many inputs to mpmath: it must agree with MPFR, and with what float64 alone decided.
    operands = drawn(name, 2**18, 2)
    narrow = reference.reference(name, *operands)
    monkeypatch.setattr(reference, "BOUND", 2.0**-34)
    wide = reference.reference(name, *operands)
    hard = np.flatnonzero(wide.flags & kernels.UNSAFE)
    assert hard.size >= 16
    assert same(narrow.correct, wide.correct).all()
    chosen = [x[hard[:500]] for x in operands]
    assert same(wide.correct[hard[:500]], mpfr(name, chosen)).all()


@pytest.mark.parametrize("name", TRANSCENDENTAL)
def test_float64_values_are_within_the_bound(name: str) -> None:
    operands = telling(name, 300)
    values = reference.reference(name, *operands).values
    context = mpmath.MPContext()
    context.prec = 200
    exact_function = FUNCTIONS[name].exact
    assert exact_function is not None
    for i, value in enumerate(values.tolist()):
        exact = exact_function(context, *(context.mpf(float(x[i])) for x in operands))
        assert abs(context.mpf(value) - exact) <= abs(exact) * context.mpf(reference.BOUND) / 8


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


EDGES: list[tuple[str, tuple[float, ...], float]] = [
    ("exp", (0.0,), 1.0),
    ("exp", (2.0**-24,), float(np.nextafter(np.float32(1), np.float32(2)))),  # 1 + 2**-24 + 2**-49: past the middle
    ("exp", (-(2.0**-25),), 1.0),  # 1 - 2**-25 + 2**-51: past the middle, upwards
    ("exp", (-INF,), 0.0),
    ("exp", (INF,), INF),
    ("exp", (89.0,), INF),
    ("exp", (-104.0,), 0.0),
    ("exp2", (128.0,), INF),
    ("exp2", (-149.0,), TINY),
    ("exp2", (-150.0,), 0.0),  # exactly in the middle of 0 and 2**-149: to even
    ("exp2", (-149.99998,), TINY),
    ("expm1", (-0.0,), -0.0),
    ("expm1", (-INF,), -1.0),
    ("log", (1.0,), 0.0),
    ("log", (0.0,), -INF),
    ("log", (-0.0,), -INF),
    ("log", (-1.0,), NAN),
    ("log2", (TINY,), -149.0),
    ("log2", (2.0**127,), 127.0),
    ("log1p", (-1.0,), -INF),
    ("log1p", (-TINY,), -TINY),
    ("sin", (-0.0,), -0.0),
    ("sin", (INF,), NAN),
    ("sin", (TINY,), TINY),
    ("cos", (2.0**-12,), 1.0),  # 1 - 2**-25 + 2**-50/1.5: just above the middle
    ("cos", (INF,), NAN),
    ("tanh", (-0.0,), -0.0),
    ("tanh", (-20.0,), -1.0),
    ("erf", (-0.0,), -0.0),
    ("erf", (INF,), 1.0),
    ("sigmoid", (-INF,), 0.0),
    ("sigmoid", (0.0,), 0.5),
    ("sigmoid", (INF,), 1.0),
    ("rsqrt", (0.0,), INF),
    ("rsqrt", (-0.0,), -INF),
    ("rsqrt", (-1.0,), NAN),
    ("rsqrt", (TINY * 2,), 2.0**74),
    ("rsqrt", (INF,), 0.0),
    ("pow", (NAN, 0.0), 1.0),
    ("pow", (1.0, NAN), 1.0),
    ("pow", (-1.0, INF), 1.0),
    ("pow", (-8.0, 1.0), -8.0),
    ("pow", (-2.0, 0.5), NAN),
    ("pow", (-0.0, -3.0), -INF),
    ("pow", (2.0, -150.0), 0.0),
    ("pow", (4.0, -74.5), TINY),
    ("pow", (-(2.0**-50), 3.0), -0.0),
    ("pow", (4097.0, 2.0), 16785408.0),  # 16785409 is in the middle of two numbers: to even
    ("pow", (4099.0, 2.0), 16801800.0),  # 16801801 likewise, to the even one below
    ("pow", (289.0**2, 1.5), 24137568.0),  # 17**6 = 24137569, likewise
    ("reciprocal", (-0.0,), -INF),
    ("reciprocal", (-INF,), -0.0),
    ("reciprocal", (HUGE,), 2.0**-128),
    ("silu", (-INF,), -0.0),  # the formula has -inf / inf
    ("silu", (INF,), INF),
    ("silu", (-0.0,), -0.0),
    ("silu", (TINY,), TINY),  # 1/2 and a little of the smallest number
    ("silu", (-TINY,), -0.0),
    ("silu", (-3 * TINY,), -TINY),
    ("silu", (3 * TINY,), 2 * TINY),
    ("silu", (-800.0,), -0.0),
    ("gelu", (-INF,), -0.0),
    ("gelu", (TINY,), TINY),
    ("gelu", (-15.0,), -0.0),
    ("gelu", (-HUGE,), -0.0),
    ("gelu", (HUGE,), HUGE),
    ("gelu_tanh", (-INF,), -0.0),
    ("gelu_tanh", (INF,), INF),
    ("gelu_tanh", (NAN,), NAN),
    ("gelu_tanh", (-HUGE,), -0.0),
    ("gelu_tanh", (-TINY,), -0.0),
    ("softplus", (-INF,), 0.0),
    ("softplus", (INF,), INF),
    ("softplus", (HUGE,), HUGE),
    ("softplus", (-0.0,), float(np.float32(math.log(2)))),
    ("softplus", (-104.0,), 0.0),
    ("fma", (1.0 + 2.0**-12, 1.0 + 2.0**-12, -(1.0 + 2.0**-11)), 2.0**-24),
    ("fma", (HUGE, 2.0, -HUGE), HUGE),
    ("fma", (TINY, 0.5, TINY), 2 * TINY),  # 1.5 * 2**-149: to even
    ("fma", (TINY, TINY, 1.0), 1.0),
    ("fma", (-1.0, 0.0, 0.0), 0.0),
    ("fma", (INF, 0.0, 1.0), NAN),
    ("divide", (TINY, 2.0), 0.0),
    ("multiply", (3 * TINY, 0.5), 2 * TINY),
]


@pytest.mark.parametrize(("name", "operands", "expected"), EDGES)
def test_edges(name: str, operands: tuple[float, ...], expected: float) -> None:
    arrays = [f32(x) for x in operands]
    got = correctly_rounded(name, *arrays)
    assert same(got, f32(expected)).all(), (got, expected)
    assert same(got, mpfr(name, arrays)).all()


@pytest.mark.parametrize("name", HALVED)
def test_halves_of_subnormal_numbers(name: str) -> None:
    units = np.arange(2**10, dtype=np.float64)
    magnitude = np.concatenate([units, units + 2**23 - 512, units + 2**24 - 512]) * TINY
    x = np.concatenate([magnitude, -magnitude]).astype(np.float32)
    assert same(correctly_rounded(name, x), mpfr(name, [x])).all()


@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_tanh", "softplus"])
def test_subnormal_results(name: str) -> None:
    wide = np.linspace(-104, -5, 2**16).astype(np.float32)
    exact = correctly_rounded(name, wide)
    x = wide[(np.abs(exact) < 2.0**-126) & (exact != 0)][:3000]
    assert x.size > 300
    assert same(correctly_rounded(name, x), mpfr(name, [x])).all()


def test_constants_of_activations() -> None:
    with mpmath.workprec(200):
        slope = 2 * mpmath.sqrt(2 / mpmath.pi)
        wanted = mpmath.sqrt(mpmath.mpf(1) / 2), slope, slope * 44715 / 1000000
        for exact, (high, low) in zip(
            wanted, (activations.HALF_ROOT, activations.SLOPE, activations.CUBIC), strict=True
        ):
            assert high == float(exact)
            assert low == float(exact - high)


@pytest.mark.parametrize("exponent", [2.0, 3.0, 1.5, 0.5, 1.25, 1.125, -1.0, -2.0, 15.0])
def test_exact_powers(exponent: float) -> None:
    # Small whole numbers: many results are exact or in the middle of two float32 numbers.
    root = np.arange(1, 4098, dtype=np.float64)
    x = np.concatenate([root, root**2, root**4, 2 * root + 1])
    x = x[x < 2.0**24].astype(np.float32)
    y = np.full(x.size, exponent, np.float32)
    assert same(correctly_rounded("pow", x, y), mpfr("pow", [x, y])).all()


def test_ulp_errors_against_mpmath() -> None:
    x = telling("log", 200)[0]
    observed = np.nextafter(np.log(x), np.float32(0))
    errors = ulp_errors("log", x, observed=observed)
    for value, result, error in zip(x.tolist(), observed.tolist(), errors.tolist(), strict=True):
        exact = mpmath.log(mpmath.mpf(value))
        spacing = mpmath.mpf(2) ** (math.floor(mpmath.log(abs(exact), 2)) - 23)
        assert abs(float(abs(result - exact) / spacing) - error) < 1e-6


def test_ulp_errors_at_the_ends() -> None:
    def error(name: str, x: float, result: float) -> float:
        return float(ulp_errors(name, f32(x), observed=f32(result))[0])

    assert error("exp", 1000.0, INF) == 0
    assert error("exp", 1000.0, HUGE) == INF
    assert error("log", -1.0, NAN) == 0
    assert math.isnan(error("log", 1.5, NAN))
    assert error("log", 0.0, -INF) == 0
    assert error("log", 0.0, -100.0) == INF
    assert error("exp2", -150.0, 0.0) == 0.5
    assert error("exp2", -150.0, TINY) == 0.5
    assert error("exp2", 127.0, INF) == 2.0**23
    assert error("exp2", 0.0, float(np.nextafter(np.float32(1), np.float32(2)))) == 1


def test_bit_patterns_cover_every_exponent_equally() -> None:
    bits = inputs.bit_patterns(0, 2**14, 2**14, np.random.default_rng(3)).view(np.uint32)
    assert (np.bincount(bits >> 23, minlength=512) == 32).all()
    assert (np.diff(bits.astype(np.int64)) > 0).all()
    part = inputs.bit_patterns(2**32 - 5, 2**32, 2**32, np.random.default_rng(0)).view(np.uint32)
    assert part.tolist() == list(range(2**32 - 5, 2**32))


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.parametrize("implementation", [NUMPY, NUMBA], ids=str)
def test_required_operations_are_correctly_rounded_here(implementation: Elementwise, name: str) -> None:
    errors = measure(implementation, name, samples=2**18)
    assert errors.correctly_rounded
    assert errors.count == errors.correct == 2**18
    assert errors.subnormals > 0
    assert errors.subnormals == errors.subnormal_correct
    assert 0.499 < errors.max_ulp <= 0.5
    assert "correctly rounded for all 262,144 inputs" in str(errors)


def test_fused_multiply_add_here() -> None:
    assert measure(NUMBA, "fma", samples=2**18).correctly_rounded
    # Without a fused instruction the product is rounded too.
    both = measure_all([NUMPY, NUMBA], "multiply_add", samples=2**16)
    assert both.different["numpy", "numba"] == (0, 0)
    assert not both.errors[0].correctly_rounded


@pytest.mark.parametrize("name", ["exp", "pow", "log1p"])
def test_measure_counts_what_numpy_gives(name: str) -> None:
    size = 2**12
    errors = measure(NUMPY, name, samples=size, rng=5)
    operands = inputs.operands(name, FUNCTIONS[name].operands, 0, size, size, np.random.default_rng([5, 0]))
    observed, expected = NUMPY.functions[name](*operands), mpfr(name, operands)
    right = same(observed, expected)
    assert (errors.count, errors.correct) == (size, right.sum())
    involved = np.any([(np.abs(x) < 2.0**-126) & (x != 0) for x in operands], axis=0)
    involved |= (np.abs(expected) <= 2.0**-126) & (expected != 0)
    plain = np.isin(np.abs(expected), [0.0, 0.5, 1.0, INF]) | np.isnan(expected)
    plain |= np.any([np.abs(x) == np.abs(expected) for x in operands], axis=0)
    counted = ~involved & ~plain
    assert (errors.telling, errors.telling_correct) == (counted.sum(), right[counted].sum())
    measured = ~involved & np.isfinite(observed) & np.isfinite(expected)
    each = ulp_errors(name, *operands, observed=observed)
    assert errors.max_ulp == each[measured].max()
    assert errors.mean_ulp == pytest.approx(each[measured & counted].mean(), rel=1e-12)
    assert errors.worst is not None
    i = int(np.flatnonzero(measured)[np.argmax(each[measured])])
    assert errors.worst.operands == tuple(float(x[i]) for x in operands)
    assert (errors.worst.observed, errors.worst.correct) == (float(observed[i]), float(expected[i]))
    assert errors.to_dict()["worst"]["operands"] == [float(x[i]).hex() for x in operands]


def test_measure_does_not_depend_on_threads() -> None:
    one, three = (measure(NUMBA, "tanh", samples=2**19, threads=t).to_dict() for t in (1, 3))
    for errors in (one, three):
        errors.pop("seconds")
    assert one == three


def test_progress_and_order() -> None:
    seen: list[tuple[int, int]] = []
    result = measure_all([NUMPY, NUMBA], "sqrt", samples=2**10, progress=lambda a, b: seen.append((a, b)))
    assert seen == [(2**10, 2**10)]
    assert [e.implementation for e in result.errors] == ["numpy", "numba"]
    assert result.to_dict()["different"] == [{"between": ["numpy", "numba"], "inputs": 0, "telling": 0, "farthest": 0}]


def test_differences_between_libraries_are_counted() -> None:
    def shifted(x: Array) -> Array:
        y: Array = NUMPY.functions["sqrt"](x)
        y.view(np.uint32)[(x > 2) & (x < 3e38)] += 5
        return y

    steady = Elementwise("steady", "none", functions={"sqrt": NUMPY.functions["sqrt"]})
    moved = Elementwise("moved", "none", functions={"sqrt": shifted})
    result = measure_all([steady, moved], "sqrt", samples=2**12)
    x = inputs.operands("sqrt", 1, 0, 2**12, 2**12, np.random.default_rng([0, 0]))[0]
    flags = reference.reference("sqrt", x).flags
    wrong = ~same(steady.functions["sqrt"](x), shifted(x))
    assert result.different["steady", "moved"] == (wrong.sum(), (wrong & (flags == 0)).sum())
    assert result.farthest == {("steady", "moved"): 5}


def test_wrong_results_are_told_apart() -> None:
    x = f32(1.0, 2.0, 3.0, -0.0, TINY, 2.0**-130, 1.5, 0.25)
    faulty = Elementwise("faulty", "none")
    observed = f32(1.0, NAN, INF, 0.0, 0.0, 2.0**-65, 1.2247449, 0.5)
    errors = compare(faulty, "sqrt", x, observed=observed)
    assert errors.count == 8
    assert errors.correct == 4  # 1, 2**-65, sqrt(1.5), 0.5
    assert errors.special == 2
    assert errors.special_example is not None
    assert errors.special_example.operands == (2.0,)
    assert errors.zero_signs == 1
    assert (errors.subnormals, errors.subnormal_correct, errors.flushed) == (2, 1, 1)
    assert errors.subnormal_text == "flushed in 50% of the cases"
    assert "2 wrong NaN or infinity, 1 zeros of the wrong sign" in str(errors)
    assert errors.max_ulp < 0.5


def test_flushing_is_seen() -> None:
    def flushed(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.log(np.where(np.abs(x) < 2.0**-126, x * np.float32(0), x))

    flushing = Elementwise("flushing", "NumPy", functions={"log": flushed})
    errors = measure(flushing, "log", samples=2**14)
    assert errors.subnormal_text == "flushed"
    assert errors.subnormals == errors.flushed > 0
    assert errors.special == 0  # they are not counted twice
    assert measure(NUMPY, "log", samples=2**14).subnormal_text == "kept"


def test_the_smallest_normal_result_may_be_flushed() -> None:
    # Libraries that flush give 0 for 2**-126 where they compute a little less.
    errors = compare(Elementwise("flushing", "none"), "exp2", f32(-126.0, -125.0), observed=f32(0.0, 2.0**-125))
    assert (errors.flushed, errors.max_ulp) == (1, 0.0)


def test_signaling_nan_is_not_an_operand_of_pow() -> None:
    x, y = drawn("pow", 2**14, 0)
    for z in (x, y):
        assert (z.view(np.uint32)[np.isnan(z)] & 0x400000 != 0).all()


def test_refusals() -> None:
    with pytest.raises(InputError, match="there is no elementwise function gamma"):
        measure(NUMPY, "gamma")
    with pytest.raises(InputError, match="numpy has no erf; it has"):
        measure(NUMPY, "erf")
    with pytest.raises(InputError, match="too many bit patterns to try them all"):
        measure(NUMPY, "pow", exhaustive=True)
    with pytest.raises(InputError, match="power of two up to 2\\*\\*32, not 1000"):
        measure(NUMPY, "exp", samples=1000)
    with pytest.raises(MissingExtraError, match="lost cannot run here: it is gone"):
        measure(Elementwise("lost", "none", unavailable="it is gone"), "exp")
    with pytest.raises(InputError, match="pow takes 2 operands, not 1"):
        correctly_rounded("pow", f32(1.0))
    with pytest.raises(InputError, match="exp takes float32 arrays of one shape"):
        correctly_rounded("exp", np.array([1.0]))
    with pytest.raises(InputError, match="observed must be a float32 array"):
        ulp_errors("exp", f32(1.0), observed=np.array([1.0]))
    wrong = Elementwise("wide", "none", functions={"exp": lambda x: np.zeros(x.shape)})
    with pytest.raises(InputError, match="wide returned float64 of shape"):
        measure(wrong, "exp", samples=2**10)


def test_implementations_say_what_they_are() -> None:
    found = elementwise_implementations()
    assert [x.name for x in found] == [
        "numpy", "numba", "libm", "torch.cpu", "jax.cpu", "numba.cuda", "torch.cuda", "cupy", "jax.gpu",
        "torch.cuda (model)", "cupy (model)",
    ]  # fmt: skip
    for x in found:
        assert x.available == bool(x.functions)
        assert x.available or x.unavailable in str(x)
        assert set(x.functions) <= set(FUNCTIONS)
        assert x.to_dict()["functions"] == list(x.functions)


@pytest.mark.parametrize("implementation", [x for x in elementwise_implementations() if x.available], ids=str)
def test_every_library_is_close(implementation: Elementwise) -> None:
    for name in implementation.functions:
        if name == "multiply_add" or name in HALVED:  # the functions that halve small numbers cancel for negative ones
            continue
        errors = measure(implementation, name, samples=2**14)
        assert errors.max_ulp < 100, errors
        assert errors.special == 0, errors


def test_libm_against_scalar_calls() -> None:
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    for name, symbol in _libm.NAMES.items():
        function = getattr(library, symbol)
        operands = drawn(name, 2**9, 4)
        function.restype, function.argtypes = ctypes.c_float, [ctypes.c_float] * len(operands)
        expected = f32(*(function(*values) for values in zip(*(x.tolist() for x in operands), strict=True)))
        assert same(LIBM.functions[name](*operands), expected).all(), name
    with pytest.raises(MissingExtraError, match="has no function gammonf"):
        _libm.function("gammonf")


def test_activations_at_minus_infinity_here() -> None:
    # x * sigmoid(x) is -inf * 0: the limit is 0, and the formula gives NaN.
    errors = compare(NUMPY, "silu", f32(-INF), observed=NUMPY.functions["silu"](f32(-INF)))
    assert errors.special == 1


def test_recorded_results_of_a_gpu() -> None:
    # NVIDIA states at most 2 ulps from the correctly rounded result for these functions, and 0 for the square root.
    with np.load(DATA / "elementwise_h200.npz", allow_pickle=False) as data:
        recorded = {name: data[name] for name in data.files}
    h200 = Elementwise("torch.cuda", "PyTorch", str(recorded.pop("versions")), kind="gpu")
    x = recorded.pop("x")
    assert len(recorded) == 11
    for name, observed in recorded.items():
        errors = compare(h200, name, x, observed=observed)
        assert errors.special == errors.zero_signs == 0
        assert errors.correctly_rounded == (name == "sqrt"), errors
        assert 0.49 < errors.max_ulp < 2.5, errors
        assert errors.flushed == 0, errors


@pytest.mark.skipif(
    find_spec("numba_cuda") is None or not hasattr(np, "row_stack"),
    reason="needs numba-cuda, and NumPy below 2.5, with which it works",
)
def test_cuda_kernels_round_once() -> None:
    cuda: Any = importlib.import_module("numba.cuda")
    vector = importlib.import_module("numba.types").float32[::1]
    instructions = {
        "add": "add.f32", "subtract": "sub.f32", "multiply": "mul.f32", "divide": "div.rn.f32", "sqrt": "sqrt.rn.f32",
        "fma": "fma.rn.f32", "multiply_add": "fma.rn.f32", "rsqrt": "rsqrt.approx.f32",
    }  # fmt: skip
    kernels_found = cuda_kernels(cuda)
    assert set(kernels_found) == {name for name, f in FUNCTIONS.items() if not f.composed}
    for name, kernel in kernels_found.items():
        ptx, _ = cuda.compile_ptx(kernel.py_func, (vector,) * (FUNCTIONS[name].operands + 1), cc=(9, 0))
        if name in instructions:
            rounding = set(re.findall(r"\b(?:add|sub|mul|div|fma|sqrt|rsqrt|cvt)\.[\w.]*f32\b", ptx))
            assert rounding == {instructions[name]}, name
        assert not re.search(r"\.f64\b", ptx) or name in {"sin", "cos"}, name  # these reduce huge arguments in float64


def page_module() -> Any:
    path = Path(__file__).parents[1] / "benchmarks" / "make_elementwise_page.py"
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # for the parts of the page
    spec = importlib.util.spec_from_file_location("make_elementwise_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_page_is_what_the_measurements_give() -> None:
    module = page_module()
    assert module.PAGE.read_text(encoding="utf-8") == module.page(module.machines())


def test_page_tells_small_shares_from_none() -> None:
    module = page_module()
    shares = [0.0, 1e-6, 0.005, 0.5, 0.99999, 1.0]
    assert [module.percent(x) for x in shares] == ["0%", "under 0.01%", "0.50%", "50.0%", "over 99.99%", "100%"]
    assert module.rounded_up(1.01e-7) == "1.1e-07"
    assert module.rounded_up(1.2e-7) == "1.2e-07"
