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
