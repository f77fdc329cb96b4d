"""Means, variances, deviations, norms and products of all terms, against an evaluator with exact rationals."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import reference
from reference import KINDS, add, convert, evaluate, random_terms, same, tree_of

import fpsim
from fpsim import strategies
from fpsim.arithmetic import Rounding, Settings
from fpsim.errors import InputError
from fpsim.formats import FLOAT16, FLOAT32, Format
from fpsim.orders import OpenblasSdot
from fpsim.strategies import Strategy

TEXTS = (
    "serial", "serial+fma", "pairwise", "pairwise+fma", "lanes(4)", "lanes(4, serial+fma, combine=fold)",
    "split_k(3, serial+acc(float16), combine=serial)", "numpy_sum", "chunks(5, serial+output(float16))",
    "serial+acc(float64)", "serial+acc(bfloat16)", "pairwise+acc(float16)+fma", "serial+acc(bfloat16, toward_zero)",
    "serial+acc(float16, up)", "serial+acc(format(30, -200, 200))", "serial+product(bfloat16)",
    "serial+product(float64)", "pairwise+kahan", "pairwise+neumaier", "serial+dot2", "serial+ftz", "serial+ftz+daz",
    "serial+reciprocal", "serial+acc(bfloat16)+reciprocal", "serial+operands(bfloat16)", "serial+output(float16)",
    "pairwise+acc(float64)+output(float32)", "serial+acc(float64)+output(bfloat16, toward_zero)",
)  # fmt: skip


def rational(x: Fraction, form: Format, mode: str) -> float:
    """Round a number other than zero: enough bits of it, the last one odd where there is more."""
    bits = 300 + max(0, x.denominator.bit_length() - x.numerator.bit_length())
    whole, rest = divmod(abs(x.numerator) << bits, x.denominator)
    whole |= rest != 0
    return reference.nearest((-whole if x < 0 else whole, -bits), form, mode)


def quotient(a: float, b: float, form: Format, mode: str) -> float:
    if not math.isfinite(a) or a == 0:
        return a if b else math.nan
    return rational(Fraction(a) / Fraction(b), form, mode)


def root(a: float, form: Format, mode: str) -> float:
    if not math.isfinite(a) or a <= 0:
        return math.nan if a < 0 else a
    whole = math.isqrt(int(Fraction(a) * 4**1200))
    whole |= whole * whole != Fraction(a) * 4**1200
    return reference.nearest((whole, -1200), form, mode)


class Naive:
    """The formulas over a strategy, one operation after another."""

    def __init__(self, text: str) -> None:
        given = fpsim.strategy(text)
        self.plain = Strategy(given.order, dataclasses.replace(given.settings, output=None))
        self.output = given.settings.output
        self.arithmetic = self.plain.arithmetic(FLOAT32)
        self.form, _, self.mode = reference.formats_of(self.arithmetic)

    def operands(self, x: Any) -> list[float]:
        return [reference.operand(float(v), self.plain, FLOAT32) for v in x]

    def divided(self, total: float, count: float) -> float:
        divisor = convert(count, FLOAT32 if FLOAT32.includes(self.form) else self.form)
        if self.arithmetic.mean == "divide":
            return quotient(total, divisor, self.form, self.mode)
        plain = self.arithmetic.accumulator.format
        return reference.multiply(total, quotient(1.0, divisor, plain, self.mode), self.form, self.mode)

    def stored(self, x: float) -> float:
        return x if self.output is None else convert(x, self.output.format, self.output.mode)

    def mean(self, values: list[float]) -> float:
        return self.divided(evaluate(tree_of(self.plain, len(values), FLOAT32), values), len(values))

    def var(self, values: list[float], ddof: float) -> float:
        middle = self.mean(values)
        away = [add(v, -middle, self.form, self.mode) for v in values]
        return self.divided(evaluate(tree_of(self.plain, len(away), FLOAT32), away, away), len(away) - ddof)

    def norm(self, values: list[float]) -> float:
        squares = evaluate(tree_of(self.plain, len(values), FLOAT32), values, values)
        return root(squares, self.arithmetic.accumulator.format, self.mode)


@pytest.mark.parametrize("text", TEXTS)
def test_formulas(text: str) -> None:
    rng = np.random.default_rng(1)
    naive = Naive(text)
    for n in (1, 2, 5, 23):
        for kind in KINDS:
            x = random_terms(rng, n, kind)
            values = naive.operands(x)
            ddof = 0 if n == 1 else 1
            var = naive.var(values, ddof)
            expected = {
                "mean": naive.mean(values), "var": var, "std": root(var, naive.form, naive.mode),
                "norm": naive.norm(values),
            }  # fmt: skip
            for name, value in expected.items():
                settings = {"ddof": ddof} if name in ("var", "std") else {}
                result = getattr(fpsim, name)(x, text, **settings)
                assert same(result, naive.stored(value)), (name, kind, n)


@pytest.mark.parametrize(
    "text",
    [text for text in TEXTS if not any(word in text for word in ("fma", "kahan", "neumaier", "dot2"))]
    + ["fold+acc(float64)", "interleaved(3)", "shuffle(1)", "pairwise+acc(e5m2)", "serial+acc(float16, up)+ftz"],
)
def test_products(text: str) -> None:
    rng = np.random.default_rng(2)
    given = fpsim.strategy(text)
    plain = Strategy(given.order, dataclasses.replace(given.settings, output=None))
    for n in (0, 1, 2, 5, 23):
        for kind in (*KINDS, "near one"):
            x = np.exp2(rng.standard_normal(n) / 8) if kind == "near one" else random_terms(rng, n, kind)
            x = x.astype(np.float32)
            factors = [reference.operand(float(v), plain, FLOAT32) for v in x]
            expected = product(tree_of(plain, n, FLOAT32), factors)
            if given.settings.output is not None:
                expected = convert(expected, given.settings.output.format, given.settings.output.mode)
            assert same(fpsim.prod(x, text), expected), (kind, n)


def product(node: reference.Node, factors: list[float]) -> float:
    a = node.arithmetic
    form, _, mode = reference.formats_of(a)
    out = 1.0
    for term in node.terms:
        factor = product(term, factors) if isinstance(term, reference.Node) else factors[term]
        out = reference.multiply(out, factor, form, mode)
    if a.output is not None:
        out = convert(out, a.output.format.without_subnormals() if a.ftz else a.output.format, a.output.mode)
    return out


def test_axes() -> None:
    x = random_terms(np.random.default_rng(3), 3 * 4 * 5, "normal").reshape(3, 4, 5)
    for text in ("serial", "pairwise+fma", "serial+acc(bfloat16)", "lanes(3)+output(float16)"):
        for name in ("mean", "var", "std", "norm", "prod"):
            if name == "prod" and "fma" in text:
                continue
            call: Any = getattr(fpsim, name)
            kept = call(x, text, axis=(0, 2), keepdims=True)
            assert kept.shape == (1, 4, 1)
            assert (kept[0, :, 0] == call(x, text, axis=(0, 2))).all()
            assert all(call(x[:, i, :], text) == kept[0, i, 0] for i in range(4)), (name, text)
            assert call(x, text, axis=()).shape == x.shape
            assert call(x[:0], text, axis=1).shape == (0, 5)


def test_a_default_output_of_a_rule_is_rounded_to_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mean, a norm and a cumulative sum go on from the unrounded sum; only their result is rounded."""
    rounded = Settings(fma=True, output=Rounding(FLOAT16))
    monkeypatch.setattr(OpenblasSdot, "own", rounded)
    for kept in ("_arithmetic", "_program", "_short_program"):  # what is worked out of this rule is not kept
        monkeypatch.setattr(strategies, kept, getattr(strategies, kept).__wrapped__)
    x = random_terms(np.random.default_rng(4), 300, "uniform")
    for name in ("sum", "mean", "var", "std", "norm"):
        call: Any = getattr(fpsim, name)
        with_default = call(x, "openblas_sdot")
        assert with_default.dtype == np.float16
        assert with_default == np.float16(call(x, "openblas_sdot+output(float32)")), name
        assert call(x, "openblas_sdot+output(float32)").dtype == np.float32


def test_degrees_of_freedom() -> None:
    x = np.arange(4, dtype=np.float32)
    assert fpsim.var(x, "serial", ddof=1.5) == 2.0
    assert fpsim.var(x, "serial", ddof=4) == np.inf
    assert fpsim.var(x, "serial", ddof=9) == np.inf
    assert np.isnan(fpsim.var(x[:1], "serial", ddof=1))
    assert np.isnan(fpsim.var(x[:0], "serial"))
    wrongs: tuple[Any, ...] = (np.nan, np.inf, 1j)
    for wrong in wrongs:
        with pytest.raises(InputError, match="ddof must be a finite number"):
            fpsim.var(x, "serial", ddof=wrong)


@pytest.mark.parametrize(
    "text", ["serial+fma", "pairwise+kahan", "serial+neumaier", "lanes(2, serial+fma)", "openblas_sdot"]
)
def test_products_have_no_sums(text: str) -> None:
    with pytest.raises(InputError, match="prod multiplies only"):
        fpsim.prod(np.ones(40, np.float32), text)
