"""Single additions, products and fused multiply-adds against MPFR."""

from __future__ import annotations

import numpy as np
import pytest
import triples
from reference import add, fma, multiply, same

from fpsim.formats import BFLOAT16, E5M2, FLOAT16, FLOAT32, FLOAT64, TF32, Format

FORMATS = [FLOAT32, BFLOAT16, FLOAT16, TF32, E5M2, FLOAT64, Format("", 50, -500, 500), Format("", 2, -5, 5)]


@pytest.mark.parametrize("form", FORMATS, ids=str)
@pytest.mark.parametrize("operation", triples.OPERATIONS)
def test_against_mpfr(form: Format, operation: str) -> None:
    pytest.importorskip("gmpy2")
    rng = np.random.default_rng(1)
    for kind in triples.KINDS:
        operands = triples.triples(rng, 400, form, kind, operation)
        for mode in ["nearest-even"] if form == FLOAT64 else triples.MPFR_MODES:
            exact = triples.by_mpfr(operation, *operands, form, mode)
            found = triples.by_kernel(operation, *operands, form, mode)
            assert same(found, exact).all(), (kind, mode)


@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_against_integers(form: Format) -> None:
    """The other modes, and without gmpy2, against the test's own integer arithmetic."""
    rng = np.random.default_rng(2)
    for kind in triples.KINDS:
        for operation in triples.OPERATIONS:
            a, b, c = triples.triples(rng, 50, form, kind, operation)
            for mode in ["nearest-even"] if form == FLOAT64 else ["nearest-even", "nearest-away", "to-odd", "down"]:
                rows = zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
                if operation == "fma":
                    exact = [fma(x, y, z, form, mode) for x, y, z in rows]
                elif operation == "add":
                    exact = [add(x, z, form, mode) for x, _, z in rows]
                else:
                    exact = [multiply(x, y, form, mode) for x, y, _ in rows]
                assert same(triples.by_kernel(operation, a, b, c, form, mode), exact).all(), (kind, operation, mode)


@pytest.mark.parametrize("form", [FLOAT32, FLOAT64], ids=str)
def test_fast_executor_against_integers(form: Format) -> None:
    rng = np.random.default_rng(3)
    for kind in triples.KINDS:
        for operation in triples.OPERATIONS:
            a, b, c = triples.triples(rng, 128, form, kind, operation)
            found, places = triples.by_tiles(operation, a, b, c, form)
            rows = zip(a[places].tolist(), b[places].tolist(), c[places].tolist(), strict=True)
            exact = [
                fma(x, y, z, form, "nearest-even") if operation != "mul" else multiply(x, y, form, "nearest-even")
                for x, y, z in rows
            ]
            assert same(found, exact).all(), (kind, operation)


def test_hard_operands_are_hard() -> None:
    """Of the kinds of operands, those made for it do hit ties, subnormal results and overflow."""
    rng = np.random.default_rng(4)
    for form in (FLOAT32, BFLOAT16, FLOAT16):
        a, b, c = triples.triples(rng, 2000, form, "middle and a tiny addend", "mul")
        even = [multiply(x, y, form, "nearest-even") for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        away = [multiply(x, y, form, "nearest-away") for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        assert sum(x != y for x, y in zip(even, away, strict=True)) > 100
        a, b, c = triples.triples(rng, 2000, form, "half an ulp beside c", "fma")
        rows = list(zip(a.tolist(), b.tolist(), c.tolist(), strict=True))
        assert sum(fma(*row, form, "nearest-even") != fma(*row, form, "nearest-away") for row in rows) > 50
        a, b, c = triples.triples(rng, 2000, form, "subnormal", "mul")
        product = np.abs(triples.rounded(a * b, form))
        assert np.count_nonzero((product > 0) & (product < form.smallest_normal)) > 500
        a, b, c = triples.triples(rng, 2000, form, "large", "mul")
        assert 100 < np.count_nonzero(np.isinf(triples.rounded(a * b, form))) < 1990
        a, b, c = triples.triples(rng, 2000, form, "cancelling", "fma")
        assert np.count_nonzero(np.abs(a * b + c) < 2.0**-4 * np.abs(c)) > 500
