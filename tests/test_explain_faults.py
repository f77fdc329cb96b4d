"""Faults that the benchmark of verdicts found passing, or unnamed."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim

RNG = np.random.default_rng(5)
A = RNG.standard_normal((12, 50)).astype(np.float32)
B = RNG.standard_normal((50, 16)).astype(np.float32)
C = RNG.standard_normal((12, 16)).astype(np.float32)
RIGHT = np.asarray(fpsim.matmul(A, B, "serial"))


def test_one_number_that_a_narrow_accumulator_gives_is_no_proof() -> None:
    x = np.full(129, 0.1, np.float32)  # 130 terms, added exactly enough, are 13: a bfloat16
    found = fpsim.explain(np.float32(13.0), op="sum", inputs=x)
    assert found.verdict in ("unknown", "bug suspected")


def test_many_numbers_of_a_narrow_accumulator_are_proof() -> None:
    found = fpsim.explain(fpsim.matmul(A, B, "serial+acc(float16)"), op="matmul", inputs=(A, B))
    assert found.verdict == "reduced precision"


def test_repeated_rows_and_unwritten_tiles_are_named() -> None:
    repeated, empty = RIGHT.copy(), RIGHT.copy()
    repeated[7] = repeated[5]
    empty[4:8, 8:12] = 0
    assert "these are the elements 2 rows before" in fpsim.explain(repeated, op="matmul", inputs=(A, B)).reason
    assert "not written" in fpsim.explain(empty, op="matmul", inputs=(A, B)).reason


def test_the_tail_of_a_loop_is_named() -> None:
    found = fpsim.explain(fpsim.matmul(A[:, :48], B[:48], "serial"), op="matmul", inputs=(A, B))
    assert "the last 2 terms of each sum are missing" in found.reason


@pytest.mark.parametrize(("factor", "verdict"), [(1, "expected rounding"), (0, "bug suspected"), (2, "bug suspected")])
def test_the_addend_of_a_product(factor: int, verdict: str) -> None:
    found = fpsim.explain(
        np.asarray(fpsim.matmul(A, B, "lanes(4)") + np.float32(factor) * C), op="matmul", inputs=(A, B, C)
    )
    assert found.verdict == verdict


BIAS = RNG.standard_normal(16).astype(np.float32)


@pytest.mark.parametrize(("factor", "told"), [(0, "is dropped"), (2, "is added twice"), (-1, "is subtracted")])
def test_beta_times_c_is_named(factor: int, told: str) -> None:
    sides = {"right": RIGHT + C, "wrong": RIGHT + np.float32(factor) * C}
    found = fpsim.explain(sides, op="matmul", inputs=(A, B, C))
    assert found.ranked[0] == "beta*C dropped or doubled"
    assert f"the bias or beta*C {told}" in found.reason


@pytest.mark.parametrize("addend", [BIAS, BIAS[:12, None], np.float32(3)])
def test_a_bias_that_is_no_input_is_inferred(addend: np.ndarray) -> None:
    found = fpsim.explain({"with": RIGHT + addend, "without": RIGHT}, op="matmul", inputs=(A, B))
    assert (found.verdict, found.ranked[0]) == ("bug suspected", "beta*C dropped or doubled")


def test_another_matrix_is_no_bias() -> None:
    found = fpsim.explain({"with": RIGHT + C, "without": RIGHT}, op="matmul", inputs=(A, B))
    assert found.verdict == "bug suspected"
    assert "beta*C dropped or doubled" not in found.ranked


@pytest.mark.parametrize(("op", "inputs"), [("mean", A), ("sum", A), ("matmul", (A, B)), ("var", A)])
def test_zeros_are_an_output_that_was_not_written(op: str, inputs: object) -> None:
    shape = RIGHT.shape if op == "matmul" else ()
    found = fpsim.explain(np.zeros(shape, np.float32), op=op, inputs=inputs)
    assert (found.verdict, found.ranked[0]) == ("bug suspected", "output not written")


def test_rows_read_without_their_stride() -> None:
    memory = RNG.standard_normal((12, 100)).astype(np.float32)
    given = fpsim.matmul(memory[:, :50], B, "lanes(8)")
    found = fpsim.explain(given, op="matmul", inputs=(memory[:, ::2], B))
    assert (found.verdict, found.ranked[0]) == ("bug suspected", "stride ignored")


# -- mechanisms that are no strategies, for plain arrays ---------------------------------------------------------------


def test_integers_that_wrap() -> None:
    found = fpsim.explain(np.float64(300 * 10**8 - 7 * 2**32), op="sum", inputs=np.full(300, 1e8))
    assert (found.verdict, found.ranked[0]) == ("different computation", "integer overflow")


def test_dropout_and_other_random_numbers() -> None:
    dropped = np.where(RNG.random(RIGHT.shape) < 0.3, 0, RIGHT / np.float32(0.7)).astype(np.float32)
    other = fpsim.matmul(RNG.standard_normal(A.shape).astype(np.float32), B, "serial")
    for wrong, name in ((dropped, "dropout or training mode"), (other, "different random stream")):
        found = fpsim.explain({"right": RIGHT, "wrong": wrong}, op="matmul", inputs=(A, B))
        assert (found.verdict, found.ranked[0]) == ("different computation", name)


@pytest.mark.skipif(np.finfo(np.longdouble).nmant != 63, reason="this machine has no 80-bit numbers")
def test_products_in_80_bits() -> None:
    a, b = RNG.standard_normal((12, 40)), RNG.standard_normal((40, 10))
    total = np.zeros((12, 10), np.longdouble)
    for k in range(40):
        total = total + a[:, k, None].astype(np.longdouble) * b[k]
    found = fpsim.explain(total.astype(np.float64), op="matmul", inputs=(a, b))
    assert (found.verdict, found.ranked) == ("expected rounding", ("extended accumulator (x87)",))


# -- convolutions ------------------------------------------------------------------------------------------------------

IMAGE = RNG.standard_normal((20, 20)).astype(np.float32)
KERNEL = RNG.standard_normal((3, 3)).astype(np.float32)


def _correlated(image: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    out = np.zeros((18, 18), np.float32)
    for i, j in np.ndindex(3, 3):
        out = out + image[i : i + 18, j : j + 18] * kernel[i, j]
    return out


@pytest.mark.parametrize(
    "kernel",
    [KERNEL[::-1, ::-1], KERNEL.T, KERNEL * np.array([[1], [1], [0]], np.float32)],
    ids=["flipped", "transposed", "cut"],
)
def test_another_kernel_is_no_transform(kernel: np.ndarray) -> None:
    small = np.float32(1e-6) * KERNEL  # faults below what a transform may err, beside one large activation
    image, scale = IMAGE.copy(), np.float32(1e-6)
    image[0, 0] = 1e7
    found = fpsim.explain(_correlated(image, scale * kernel), op="conv", inputs=(image, small))
    assert (found.verdict, found.ranked[0]) == ("bug suspected", "another kernel of the convolution")


def test_one_element_of_a_convolution_is_not_rounding() -> None:
    wrong = _correlated(IMAGE, KERNEL)
    wrong[3, 4] *= np.float32(1 + 2e-6)
    assert fpsim.explain(_correlated(IMAGE, KERNEL), op="conv", inputs=(IMAGE, KERNEL)).verdict == "expected rounding"
    assert fpsim.explain(wrong, op="conv", inputs=(IMAGE, KERNEL)).verdict == "unknown"
