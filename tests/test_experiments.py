"""Published experiments on the error of sums and products, with the outcomes that their papers report."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim import bounds, exact
from fpsim.laws import law

U = 2.0**-24
U16 = 2.0**-11


def backward(op: str, text: str, *operands: Any) -> float:
    """Return abs(error) / A."""
    given = bounds.case(op, text, *operands)
    return float(given.error / given.magnitude)


@pytest.mark.parametrize("n", [100, 1000, 10_000, 100_000])
def test_higham_mary_2019_inner_products(n: int) -> None:
    """E1: backward errors of serial float32 dot products grow as sqrt(n) for U(0, 1), and not at all for U(-1, 1)."""
    positive = np.mean([backward("dot", "serial", *law("uniform").draw((2, n), rng=s)) for s in range(20)])
    zero_mean = np.mean([backward("dot", "serial", *law("uniform(-1, 1)").draw((2, n), rng=s)) for s in range(20)])
    assert 0.1 < positive / (math.sqrt(n) * U) < 0.4
    assert 0.1 < zero_mean / U < 0.6
    assert positive < bounds.higham_mary_bound(n, U, 0.001, terms=n) < bounds.gamma_bound(n, U)


def test_higham_mary_2019_stagnation_of_float16() -> None:
    """E1: serial sums of U(0, 1) in float16 stop at 2048; of U(-1, 1) they do not."""
    text = "serial+acc(float16)"
    for n, low, high in ((100, 3e-4, 3e-3), (1000, 1e-3, 1.2e-2), (10_000, 0.55, 0.63), (100_000, 0.955, 0.965)):
        x = law("uniform").draw((5, n), rng=1, dtype="float16")
        assert low < np.mean([backward("sum", text, row) for row in x]) < high
        assert n < 10_000 or (fpsim.sum(x, text, axis=1) == 2048).all()
        y = law("uniform(-1, 1)").draw((20, n), rng=2, dtype="float16")
        assert np.mean([backward("sum", text, row) for row in y]) < 4e-4


def test_hallman_ipsen_trees() -> None:
    """E3: their bound at 10**-3 is 2 to 5 times the 99.9 % point of the error, and not exceeded on trees."""
    for name in ("uniform", "normal"):
        x = law(name).draw((2000, 1000), rng=3)
        for text in ("serial", "pairwise", "chunks(32)"):
            given = bounds.case("sum", text, x, axis=1)
            used = given.error / bounds.hallman_ipsen(given)
            assert used.max() < 1
            assert 2 < 1 / np.quantile(used, 0.999) < 5
    x = law("uniform").draw((100, 1000), rng=3)
    worst = {text: bounds.case("sum", text, x, axis=1).error.max() for text in ("serial", "pairwise", "serial+kahan")}
    assert worst["serial+kahan"] < worst["pairwise"] < worst["serial"]


def test_castaldo_superblocks() -> None:
    """E4: heights of superblock dot products of 10**6 terms, and errors that follow sqrt(sum m_k**2)."""
    n = 10**6
    orders = {1: "serial", 2: "chunks(1000)", 3: "chunks(100, serial, combine=chunks(100))"}
    heights = {t: fpsim.strategy(text).program(n).height for t, text in orders.items()}
    assert heights == {1: 999_999, 2: 1998, 3: 297} == {t: bounds.superblock_height(n, t) for t in orders}
    assert fpsim.strategy("pairwise").program(n).height == 20
    x = law("uniform").draw((8, n), rng=0)
    rms = {t: float(np.sqrt(np.mean(bounds.case("sum", text, x, axis=1).error ** 2))) for t, text in orders.items()}
    pairwise = float(np.sqrt(np.mean(bounds.case("sum", "pairwise", x, axis=1).error ** 2)))
    assert rms[1] > rms[2] > rms[3] > pairwise


def test_blanchard_higham_mary_fabsum() -> None:
    """E5: blocks of b terms with exact-enough sums over them have an error that n does not change; blocked sums grow."""
    fab, blocked = "chunks(128, serial, combine=serial+acc(float64))", "chunks(128)"
    errors: dict[str, list[float]] = {fab: [], blocked: []}
    for n in (1280, 12_800, 128_000, 1_280_000):
        for text, found in errors.items():
            x = law("uniform").draw((6, n), rng=n)
            given = bounds.case("sum", f"{text}+output(float64)" if text == fab else text, x, axis=1)
            relative = given.error / given.magnitude
            assert text != fab or relative.max() <= bounds.fabsum_bound(n, 128, U, 2.0**-53) < 130 * U
            found.append(float(np.sqrt(np.mean(relative**2))))
    assert max(errors[fab]) < 3 * U
    assert errors[blocked][-1] > 4 * errors[fab][-1]
    # Recursive sums in bfloat16 stop at 256; blocks whose sums are added in float32 do not.
    x = law("uniform").draw(100_000, rng=0, dtype="bfloat16")
    assert backward("sum", "serial+acc(bfloat16)", x) > 0.99
    assert backward("sum", "chunks(128, serial+acc(bfloat16), combine=serial+acc(float32))+output(float32)", x) < 0.05


SHANMUGAVELU = [  # law, sum of the data, and by block std(1 - abs(S_nd/S_d))
    ("uniform(0, 1)", None, {256: 1.2e-15, 64: 2.4e-15, 1: 1.9e-14}),
    ("uniform(-5, 5)", -2030, {256: 2.7e-15, 64: 4.5e-15, 1: 3.6e-14}),
    ("normal", -113, {256: 9.8e-15, 64: 2.4e-14, 1: 1.8e-13}),
]


@pytest.mark.parametrize(("name", "total", "expected"), SHANMUGAVELU, ids=[row[0] for row in SHANMUGAVELU])
def test_shanmugavelu_atomics(name: str, total: float | None, expected: dict[int, float]) -> None:
    """E6: blocks or single terms added in random order in float64, n = 10**6: V = 1 - abs(S_nd/S_d) of their laws."""
    x = law(name).draw(10**6, rng=1, dtype="float64")
    if total is not None:  # V is relative to the sum of the data, which is theirs
        x += (total - x.sum()) / x.size
    for block, deviation in expected.items():
        order = "shuffle" if block == 1 else f"chunks({block}, fold, combine=shuffle)"
        s = fpsim.spread("sum", x, strategy=f"{order}+acc(float64)", runs=40 if block == 1 else 1000)
        reference = float(fpsim.sum(x, f"{'serial' if block == 1 else f'chunks({block}, fold)'}+acc(float64)"))
        v = 1 - np.abs(s.results / reference)
        assert np.std(v) == pytest.approx(deviation, rel=0.35 if block == 1 else 0.25)
        assert s.predicted_std is not None
        assert float(s.predicted_std) / abs(reference) == pytest.approx(deviation, rel=0.25)
        if block == 1:
            continue
        assert 50 <= s.distinct <= 700
        kurtosis = float(np.mean((v - v.mean()) ** 4) / np.var(v) ** 2)
        assert (2.6 < kurtosis < 3.2) if total is None else (3.5 < kurtosis < 6.2)
        predicted = bounds.random_order_deviation(s.partials, form="float64") / abs(reference)
        assert np.std(v) == pytest.approx(predicted, rel=0.25)


def test_whitepaper_table() -> None:
    """E9: the dot product of NVIDIA's white paper, whose inputs were recovered from its results."""

    def floats(words: str) -> Any:
        return np.array([int(word, 16) for word in words.split()], np.uint32).view(np.float32)

    a, b = floats("3FF42C76 BF494494 3F92DB19 3F75DCC9"), floats("BF6F7CEE BF3106DA 3FDCBB70 BF35B25D")
    for text, word in (("serial", "3D653510"), ("serial+fma", "3D653501"), ("pairwise", "3D653500")):
        assert f"{np.float32(fpsim.dot(a, b, text)).view(np.uint32):08X}" == word
    given = {text: bounds.case("dot", text, a, b) for text in ("serial", "pairwise", "serial+fma")}
    limits = {text: float(bounds.half_ulp(one)) for text, one in given.items()}
    # Without the rule that finds exact additions the sums of half ulps are these.
    for (text, limit), most in zip(limits.items(), (2.705e-7, 3.005e-7, 1.515e-7), strict=True):
        assert given[text].error <= limit <= most
    errors = [float(one.error) for one in given.values()]
    assert errors == pytest.approx([5.46e-08, 4.98e-09, 1.255e-09], rel=2e-3)


@pytest.mark.parametrize(
    ("name", "constants"), [("uniform(0, 2)", (0.20, 0.33, 0.53)), ("exponential", (0.13, 0.33, 0.63))]
)
def test_robertazzi_schwartz_constants(name: str, constants: tuple[float, ...]) -> None:
    """E10: mean square errors of serial sums in increasing, random and decreasing order are c mu**2 n**3 sigma**2."""
    n = 1000
    x = law(name).draw((200, n), rng=0)
    ordered = (np.sort(x, axis=1), x, np.sort(x, axis=1)[:, ::-1])
    for values, constant in zip(ordered, constants, strict=True):
        second = bounds.case("sum", "serial", np.ascontiguousarray(values), axis=1).partial_sums.second / U
        assert np.mean(second**2) / n**3 == pytest.approx(constant, abs=0.012)


def ill_conditioned(rng: np.random.Generator, n: int, cond: float) -> tuple[Any, Any]:
    """Return a dot product of about this condition number (Ogita, Rump & Oishi 2005, algorithm 6.1)."""
    half = n // 2
    span = math.log2(cond) / 2
    e = np.rint(rng.uniform(0, span, half))
    e[0], e[-1] = np.rint(span) + 1, 0
    a, b = np.zeros(n), np.zeros(n)
    a[:half], b[:half] = (rng.uniform(-1, 1, half) * 2.0**e for _ in range(2))
    e = np.rint(np.linspace(span, 0, n - half))
    for i in range(half, n):
        a[i] = rng.uniform(-1, 1) * 2.0 ** e[i - half]
        so_far = sum((Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[:i], b[:i], strict=True)), Fraction(0))
        b[i] = float((Fraction(float(rng.uniform(-1, 1) * 2.0 ** e[i - half])) - so_far) / Fraction(float(a[i])))
    order = rng.permutation(n)
    return a[order], b[order]


@pytest.mark.parametrize("power", [4, 10, 20, 28, 40])
def test_ogita_rump_oishi_dot2(power: int) -> None:
    """E11: Dot2's relative error is u up to a condition of 1/u, then u**2 cond, and 1 beyond 1/u**2."""
    rng = np.random.default_rng(power)
    u = 2.0**-53
    for _ in range(5):
        a, b = ill_conditioned(rng, 60, 10.0**power)
        given = bounds.case("dot", "serial+dot2+acc(float64)", a, b)
        relative = float(given.error / given.value)
        cond = 2 * float(given.magnitude / given.value)
        assert given.error <= bounds.compensated(given)
        assert relative <= u + 0.5 * bounds.gamma_bound(60, u) ** 2 * cond
        assert cond > 1e14 or relative <= 2 * u
        plain = bounds.case("dot", "serial+acc(float64)", a, b)
        assert power < 20 or plain.error > 0.1 * plain.value


def test_neumaier_klein_toy() -> None:
    """E12: sums of 2 and 1 that compensation, or an order, rescues."""
    x = np.array([1, 1e100, 1, -1e100])
    results = [float(fpsim.sum(x, f"serial+acc(float64){c}")) for c in ("", "+kahan", "+neumaier")]
    assert results == [0, 0, 2]
    m = 2.0**60
    y = np.array([1, m, 2 * m, -3 * m])
    assert fpsim.sum(y, "serial+acc(float64)") == 0
    assert fpsim.sum(y, "reverse+acc(float64)") == 1
    assert float(exact.sum(y).round("float64")) == 1


def test_numpy_folklore() -> None:
    """E14: ten million times float32's 0.1."""
    x = np.full(10**7, 0.1, np.float32)
    assert fpsim.sum(x, "serial") == np.cumsum(x)[-1] == np.float32(1087937.0)
    assert fpsim.sum(x, "numpy_sum") == np.sum(x) == np.float32(1000000.1)
    assert float(exact.sum(x).round("float64")) == pytest.approx(1000000.0149, abs=1e-4)
