"""Fixed-point float64 products: slices and products in Python's integers, errors against the exact reference."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as draws
from numpy.typing import NDArray

from fpsim import exact
from fpsim.errors import InputError
from fpsim.fixed_point import fixed_point_bound, fixed_point_matmul, slices


def data(rng: np.random.Generator, shape: tuple[int, int], law: str) -> NDArray[np.float64]:
    x = rng.standard_normal(shape)
    if law == "wide":
        x = np.ldexp(x, rng.integers(-40, 40, shape))
    elif law == "positive":
        x = np.abs(x)
    elif law == "tiny":
        x = np.ldexp(x, rng.integers(-560, -500, shape))
    elif law == "short":
        x = rng.integers(-9, 10, shape).astype(np.float64)
    return x


LAWS = ("normal", "wide", "positive", "tiny", "short")


@settings(max_examples=80, deadline=None)
@given(
    draws.integers(0, 2**32 - 1), draws.integers(1, 12), draws.integers(1, 8), draws.booleans(), draws.sampled_from(LAWS),
    draws.sampled_from([-1, 0]),
)  # fmt: skip
def test_slices(seed: int, count: int, bits: int, signed: bool, law: str, axis: int) -> None:
    x = data(np.random.default_rng(seed), (3, 4), law)
    found = slices(x, count=count, bits=bits, signed=signed, axis=axis)
    assert found.bits == (bits, *[bits if signed else bits + 1] * (count - 1))
    for i, j in np.ndindex(3, 4):
        e = int(found.exponents[j if axis == 0 else i])
        whole, place = Fraction(0), 0
        for k, (part, width) in enumerate(zip(found.parts, found.bits, strict=True)):
            place += width
            value = float(part[i, j])
            assert value == int(value)
            assert (abs(value) < 2**bits if signed else -(2**bits) <= value < 2**bits) if not k else True
            assert signed or k == 0 or 0 <= value < 2 ** (bits + 1)
            whole += Fraction(value) * Fraction(2) ** (e - place)
        rest = Fraction(float(x[i, j])) - whole
        assert abs(rest) < Fraction(2) ** (e - place)
        assert rest >= 0 if not signed else rest * Fraction(float(x[i, j])) >= 0


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("law", LAWS)
def test_all_slices_give_the_exact_product(law: str, signed: bool) -> None:
    """Nothing is lost but in the float64 additions, and with whole numbers not there either."""
    rng = np.random.default_rng(1)
    a, b = data(rng, (4, 30), law), data(rng, (30, 5), law)
    got = fixed_point_matmul(a, b, count=None, signed=signed, triangular=False)
    error = np.abs(exact.matmul(a, b).error(got))
    assert (error <= fixed_point_bound(a, b, count=None, signed=signed, triangular=False)).all()
    if law == "short":
        assert not error.any()


@settings(max_examples=60, deadline=None)
@given(
    draws.integers(0, 2**32 - 1), draws.integers(1, 9), draws.integers(2, 8), draws.booleans(), draws.booleans(),
    draws.booleans(), draws.sampled_from(LAWS), draws.integers(1, 40),
)  # fmt: skip
def test_bound(
    seed: int, count: int, bits: int, signed: bool, triangular: bool, grouped: bool, law: str, k: int
) -> None:
    rng = np.random.default_rng(seed)
    a, b = data(rng, (3, k), law), data(rng, (k, 2), law)
    chosen: dict[str, Any] = {
        "count": count, "bits": bits, "signed": signed, "triangular": triangular, "grouped": grouped,
    }  # fmt: skip
    error = np.abs(exact.matmul(a, b).error(fixed_point_matmul(a, b, **chosen)))
    assert (error <= fixed_point_bound(a, b, **chosen)).all()


def test_bound_is_met() -> None:
    """Numbers of ones lose the most: within a factor of 4 of the bound, triangular or not."""
    a, b = np.full((1, 50), 2 - 2.0**-52), np.full((50, 1), 2 - 2.0**-52)
    for triangular in (True, False):
        error = np.abs(exact.matmul(a, b).error(fixed_point_matmul(a, b, count=4, triangular=triangular)))
        bound = fixed_point_bound(a, b, count=4, triangular=triangular)
        assert bound / 4 < error <= bound


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("triangular", [True, False])
def test_in_integers(signed: bool, grouped: bool, triangular: bool) -> None:
    """Products of slices in Python's integers, added in float64 in the stated order."""
    rng = np.random.default_rng(3)
    a, b = data(rng, (2, 20), "wide"), data(rng, (20, 3), "wide")
    count = 5
    left = slices(a, count=count, signed=signed)
    right = slices(b, count=count, signed=signed, axis=0)
    got = fixed_point_matmul(a, b, count=count, signed=signed, grouped=grouped, triangular=triangular)
    for row, column in np.ndindex(2, 3):
        values = {}
        for i in range(count):
            for j in range(count):
                if i + j < count or not triangular:
                    whole = sum(int(left.parts[i][row, k]) * int(right.parts[j][k, column]) for k in range(20))
                    values[i, j] = Fraction(whole, 2 ** (sum(left.bits[: i + 1]) + sum(right.bits[: j + 1])))
        total = 0.0
        if grouped:
            for level in range(2 * count - 2, -1, -1):
                total += float(sum((v for pair, v in values.items() if sum(pair) == level), Fraction(0)))
        else:
            for value in values.values():
                total += float(value)
        assert got[row, column] == np.ldexp(total, left.exponents[row] + right.exponents[column])


def test_units() -> None:
    """On a float16 unit the slices are exact as long as 24 bits hold their sums, and no longer."""
    rng = np.random.default_rng(4)
    a, b = data(rng, (4, 256), "positive"), data(rng, (256, 5), "positive")
    unit = "tensor_core(arch=hopper, type=float16)"
    for bits in (7, 8):
        whole = fixed_point_matmul(a, b, count=7, bits=bits)
        assert np.array_equal(fixed_point_matmul(a, b, unit, count=7, bits=bits), whole)
    assert not np.array_equal(
        fixed_point_matmul(a, b, unit, count=7, bits=10), fixed_point_matmul(a, b, count=7, bits=10)
    )
    integers = fixed_point_matmul(a, b, "fused(4)+align(exact)+operands(float16)", count=7)
    assert np.array_equal(integers, fixed_point_matmul(a, b, count=7))


def test_as_good_as_float64() -> None:
    """8 slices of 7 bits, or 7 of ADP with 55 bits: a float64 product's error for numbers of like size."""
    rng = np.random.default_rng(5)
    a, b = data(rng, (10, 400), "normal"), data(rng, (400, 10), "normal")
    reference = exact.matmul(a, b)
    plain = np.abs(reference.error(a @ b)).max()
    assert np.abs(reference.error(fixed_point_matmul(a, b, count=9))).max() < 2 * plain
    assert np.abs(reference.error(fixed_point_matmul(a, b, count=8, signed=False))).max() < 2 * plain
    assert np.abs(reference.error(fixed_point_matmul(a, b, count=6))).max() > 100 * plain
    a[:, 0] *= 2.0**60  # one large number, and the others of the row are lost
    b[0] = 0
    assert np.abs(exact.matmul(a, b).error(fixed_point_matmul(a, b))).max() > 1e-3


def test_rejected() -> None:
    x = np.ones((2, 3))
    for call, message in (
        (lambda: fixed_point_matmul(x, x), "do not match"), (lambda: slices([1.0, 2.0]), "matrices of finite numbers"),
        (lambda: slices([[np.inf]]), "fall back to float64"), (lambda: slices(x, bits=11), "1 to 10 bits, not 8 of 11"),
        (lambda: slices(x, count=0), "1 to 400 slices"),
        (lambda: fixed_point_matmul(np.ones((1, 140_000)), np.ones((140_000, 1))), "int32 does not hold sums of 140000"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            call()
    assert fixed_point_matmul(np.ones((1, 130_000)), np.ones((130_000, 1))) == 130_000
    assert fixed_point_matmul(np.zeros((2, 3)), x.T).tolist() == [[0.0] * 2] * 2
