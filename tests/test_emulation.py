"""Emulated reductions against an independent evaluator with one exact rounding for each operation."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import pytest
import reference
from reference import FORMAT_TEXTS, KINDS, MODES, random_strategy, random_terms, same

import fpsim
from fpsim import emulation
from fpsim.errors import InputError, UnknownOrderError
from fpsim.formats import FLOAT16, FLOAT32, FLOAT64, Format

Data = tuple[Any, Format]


def stored(values: Any, like: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.asarray(values, np.float64).astype(like.dtype)


def check_sum(text: str, x: Any, data: Format = FLOAT32) -> None:
    result = fpsim.sum(x, text)
    expected = reference.total(fpsim.strategy(text), x, data)
    assert same(result, stored(expected, result)), (text, x.tolist(), result, expected)


def check_dot(text: str, x: Any, y: Any, data: Format = FLOAT32) -> None:
    result = fpsim.dot(x, y, text)
    expected = reference.inner_product(fpsim.strategy(text), x, y, data)
    assert same(result, stored(expected, result)), (text, x.tolist(), y.tolist(), result, expected)


class Choice:
    """Picks from sequences, for the grammar of random strategies."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def __call__(self, items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]


@pytest.mark.parametrize("seed", range(4))
def test_random_strategies(seed: int) -> None:
    choose = Choice(seed)
    for _ in range(250):
        text = random_strategy(choose, choose((0, 1, 2)))
        try:
            fpsim.strategy(text)
        except fpsim.StrategyError as error:
            assert "51 bits" in str(error)  # noqa: PT017
            continue
        n, kind = choose((0, 1, 2, 3, 5, 7, 8, 9, 17, 33, 65)), choose(KINDS)
        if text.startswith("numpy_sum") and "operands(" in text:
            continue  # NumPy sums no other formats
        check_sum(text, random_terms(choose.rng, n, kind))
        check_dot(text, random_terms(choose.rng, n, kind), random_terms(choose.rng, n, kind))


def test_random_strategies_by_hypothesis() -> None:
    hypothesis = pytest.importorskip("hypothesis")
    st = hypothesis.strategies

    def run(data: Any) -> None:
        def choose(items: Any) -> Any:
            return data.draw(st.sampled_from(items))

        text = random_strategy(choose, choose((0, 1, 2)))
        try:
            fpsim.strategy(text)
        except fpsim.StrategyError:
            hypothesis.reject()
        hypothesis.assume(not (text.startswith("numpy_sum") and "operands(" in text))
        numbers = st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0, 2.0**-149, -(2.0**-126), math.inf, math.nan])
        x = np.array(data.draw(st.lists(numbers, max_size=20)), np.float32)
        check_sum(text, x)
        check_dot(text, x, x[::-1])

    hypothesis.settings(max_examples=100)(hypothesis.given(st.data())(run))()


@pytest.mark.parametrize("form", [*FORMAT_TEXTS, "format(51, -500, 500)"])
def test_every_format_and_mode(form: str) -> None:
    rng = np.random.default_rng(1)
    for mode in sorted(set(MODES)) if form != "float64" else ["nearest_even"]:
        for extra in ("", "+fma", "+kahan", "+neumaier", "+dot2", "+kahan+fma", "+ftz", "+ftz+daz+fma", "+start(0.0)"):
            text = f"lanes(2)+acc({form}, {mode}){extra}"
            for kind in KINDS:
                x, y = random_terms(rng, 9, kind), random_terms(rng, 9, kind)
                check_sum(text, x)
                check_dot(text, x, y)


def test_wide_operands() -> None:
    """float64 operands that enter a narrow accumulator as they are, or after one rounding."""
    rng = np.random.default_rng(2)
    for text in (
        "serial+acc(float64)",
        "pairwise+acc(float64)+fma",
        "serial+acc(float64)+kahan",
        "lanes(3)+acc(float64)+neumaier",
        "serial+acc(float64)+dot2",
        "serial+operands(float64)",
        "serial+operands(float64)+fma",
        "serial+operands(float64)+acc(bfloat16, to_odd)",
        "pairwise+operands(float64, down)+acc(float32, toward_zero)+output(float16)",
        "serial+operands(float16)+acc(float32)",
        "serial+operands(bfloat16, toward_zero)+fma",
    ):
        for kind in ("uniform", "normal", "wide", "small", "coarse", "special", "zeros"):
            for n in (0, 1, 2, 3, 7, 20):
                x, y = (random_terms(rng, n, kind, np.float64) for _ in range(2))
                check_sum(text, x, FLOAT64)
                check_dot(text, x, y, FLOAT64)


def test_float64_against_plain_loops() -> None:
    """What Python's own floats give, which are float64 to nearest."""
    rng = np.random.default_rng(3)
    for n in (1, 2, 5, 31):
        for kind in ("normal", "wide", "small"):
            x, y = (random_terms(rng, n, kind, np.float64) for _ in range(2))
            total = product = x[0].item()
            product = x[0].item() * y[0].item()
            for a, b in zip(x[1:].tolist(), y[1:].tolist(), strict=True):
                total += a
                product += a * b
            assert fpsim.sum(x, "serial+acc(float64)") == total
            assert fpsim.dot(x, y, "serial+acc(float64)") == product


def test_first_term_keeps_its_subnormals_under_ftz() -> None:
    """Flushing acts on results of operations: only `daz` touches what is read."""
    tiny, normal = 2.0**-149, 2.0**-126
    assert fpsim.sum([tiny, normal], "serial+ftz") == np.float32(tiny + normal)
    assert fpsim.sum([normal, tiny], "serial+ftz") == np.float32(tiny + normal)
    assert fpsim.sum([tiny, normal], "serial+daz") == np.float32(normal)
    assert fpsim.sum([tiny, tiny], "serial+ftz") == 0
    assert fpsim.sum([tiny], "serial+ftz") == np.float32(tiny)
    assert fpsim.sum(np.array([2.0**-24, 2.0**-24], np.float16), "serial+daz") == np.float32(2.0**-23)
    assert fpsim.sum(np.array([2.0**-24, 2.0**-24], np.float16), "serial+daz+operands(float16)") == 0
    assert fpsim.sum([1.5 * 2.0**-1022, -(2.0**-1022)], "serial+acc(float64)+ftz") == 0


def test_down_gives_negative_zero() -> None:
    for text in ("serial+acc(float32, down)", "serial+acc(float32, down)+fma", "pairwise+acc(bfloat16, down)"):
        assert np.signbit(fpsim.sum([1.0, -1.0], text))
        assert np.signbit(fpsim.sum([0.0, -0.0], text))
        assert not np.signbit(fpsim.sum([0.0, 0.0], text))
        assert np.signbit(fpsim.dot([1.0, -1.0], [1.0, 1.0], text))


# --- products of matrices: the fast executor at the edges of its tiles -------------------------------------------------

TILED = [
    "serial",
    "serial+fma",
    "lanes(3, combine=pairwise)+fma",
    "split_k(3, pairwise)",
    "reverse(chunks(4))+fma+start(-0.0)",
]


def general(monkeypatch: pytest.MonkeyPatch, a: Any, b: Any, text: str) -> Any:
    """Return the product as the general executor computes it."""
    with monkeypatch.context() as patch:
        patch.setattr("fpsim._execution._plain", lambda _: False)
        return fpsim.matmul(a, b, text)


def test_shapes_around_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    edges = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 70]
    for count, m in enumerate(edges):
        for n in edges:
            k = int(rng.integers(0, 12))
            a, b = random_terms(rng, m * k, "wide").reshape(m, k), random_terms(rng, k * n, "wide").reshape(k, n)
            text = TILED[(count + n) % len(TILED)]
            result = fpsim.matmul(a, b, text)
            assert result.shape == (m, n)
            assert result.dtype == np.float32
            assert same(result, general(monkeypatch, a, b, text)).all(), (m, k, n, text)
            for i, j in ((int(rng.integers(m)), int(rng.integers(n))), (m - 1, n - 1), (0, n - 1)):
                expected = reference.inner_product(fpsim.strategy(text), a[i], b[:, j])
                assert same(result[i, j], np.float32(expected)), (m, k, n, text, i, j)


def test_all_outputs_of_one_product() -> None:
    rng = np.random.default_rng(5)
    for dtype, data, setting in ((np.float32, FLOAT32, ""), (np.float64, FLOAT64, "+acc(float64)")):
        for kind in ("coarse", "special", "small"):
            a = random_terms(rng, 19 * 11, kind, dtype).reshape(19, 11)
            b = random_terms(rng, 11 * 21, kind, dtype).reshape(11, 21)
            for text in TILED:
                strategy = fpsim.strategy(text + setting)
                result = fpsim.matmul(a, b, strategy)
                with np.errstate(all="ignore"):
                    expected = np.array([
                        [reference.inner_product(strategy, row, column, data) for column in b.T] for row in a
                    ]).astype(dtype)  # fmt: skip
                assert same(result, expected).all()


def test_inner_dimensions_of_zero_and_one() -> None:
    for text in (*TILED, "serial+kahan", "numpy_sum"):
        zero = -0.0 if "start(-0.0)" in text else 0.0
        result = fpsim.matmul(np.zeros((3, 0), np.float32), np.zeros((0, 5), np.float32), text)
        assert same(result, np.full((3, 5), zero, np.float32)).all()
        assert fpsim.dot(np.zeros(0), np.zeros(0), text) == 0
        assert fpsim.matmul(np.zeros((0, 4)), np.zeros((4, 3)), text).shape == (0, 3)
        assert fpsim.matmul(np.zeros((2, 4)), np.zeros((4, 0)), text).shape == (2, 0)
        assert fpsim.sum(np.zeros((0, 3)), text, axis=0).shape == (3,)
        assert fpsim.sum(np.zeros((3, 0)), text, axis=0).shape == (0,)
        one = fpsim.matmul(np.array([[-1.5], [2.0]], np.float32), np.array([[3.0, -0.0]], np.float32), text)
        expected = np.array([[-4.5, 0.0], [6.0, -0.0]], np.float32)
        assert (one == expected).all()
        if "numpy" not in text and "kahan" not in text:
            assert same(one, expected).all()


def test_shapes_follow_numpy() -> None:
    rng = np.random.default_rng(6)
    shapes = [
        ((4,), (4,)), ((4,), (4, 3)), ((2, 4), (4,)), ((2, 4), (4, 3)), ((5, 2, 4), (4, 3)), ((5, 2, 4), (5, 4, 3)),
        ((5, 1, 2, 4), (3, 4, 2)), ((4,), (5, 4, 3)), ((5, 2, 4), (4,)), ((0, 2, 4), (4, 3)),
    ]  # fmt: skip
    for left, right in shapes:
        a, b = (rng.integers(-8, 9, shape).astype(np.float32) for shape in (left, right))
        for text in ("serial+fma", "pairwise+acc(bfloat16)"):
            result = fpsim.matmul(a, b, text)
            expected = np.matmul(a, b)
            assert np.shape(result) == np.shape(expected)
            if "bfloat16" not in text:
                assert (result == expected).all()  # small whole numbers are exact in any order


def test_memory_layouts_and_types() -> None:
    rng = np.random.default_rng(7)
    a, b = random_terms(rng, 20 * 33, "wide").reshape(20, 33), random_terms(rng, 33 * 18, "wide").reshape(33, 18)
    for text in ("serial+fma", "lanes(4, combine=fold)", "serial+acc(bfloat16)"):
        expected = fpsim.matmul(a, b, text)
        read_only = a.copy()
        read_only.flags.writeable = False
        for left, right in (
            (np.asfortranarray(a), b),
            (a, np.asfortranarray(b)),
            (read_only, b),
            (np.repeat(a, 2, axis=1)[:, ::2], np.repeat(b, 3, axis=1)[:, 1::3]),
            (a[::-1], b[:, ::-1]),
            (a.astype(">f4"), b),
            (a.astype(np.float64), b),
            (a.tolist(), b),
        ):
            flipped = left is not a and isinstance(left, np.ndarray) and left.strides[0] < 0
            result = fpsim.matmul(left, right, text)
            assert same(result[::-1, ::-1] if flipped else result, expected).all()
        for j in range(18):
            assert same(fpsim.sum(b, text, axis=0)[j], fpsim.sum(b[:, j], text))
    whole = rng.integers(-50, 50, (6, 7))
    for dtype in (np.int8, np.int64, np.float16, np.float64, np.bool):
        x = (whole > 0) if dtype == np.bool else whole.astype(dtype)
        assert (fpsim.matmul(x, x.T, "pairwise") == (x.astype(np.int64) @ x.astype(np.int64).T)).all()
        assert fpsim.sum(x, "serial+acc(float64)").dtype == np.float64
    half = random_terms(rng, 12, "normal", np.float16)
    check_sum("serial", half, FLOAT16)
    assert fpsim.sum(half, "serial+acc(float16)").dtype == np.float16
    assert fpsim.sum(half, "serial+output(float16)").dtype == np.float16
    assert fpsim.sum(half, "serial+acc(format(30, -100, 100))").dtype == np.float64


def test_axes_of_a_sum() -> None:
    rng = np.random.default_rng(8)
    x = random_terms(rng, 3 * 4 * 5 * 6, "wide").reshape(3, 4, 5, 6)
    for text in ("lanes(4)", "pairwise+acc(bfloat16)", "serial"):
        for axis in (None, 0, 3, -1, (1, 2), (2, 1), (0, 3), (0, 1, 2, 3), ()):
            axes = tuple(range(4)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
            result = fpsim.sum(x, text, axis=axis)
            kept = fpsim.sum(x, text, axis=axis, keepdims=True)
            assert np.shape(result) == np.shape(np.sum(x, axis=axis))
            assert np.shape(kept) == np.shape(np.sum(x, axis=axis, keepdims=True))
            assert same(np.reshape(kept, np.shape(result)), result).all()
            # Generic orders take the terms of an output in C order, however the axes are listed.
            rest = [a for a in range(4) if a not in {a % 4 for a in axes}]
            moved = x.transpose(sorted(a % 4 for a in axes) + rest)
            columns = moved.reshape(int(np.prod(moved.shape[: len(axes)])), -1)
            expected = [fpsim.sum(column, text) for column in columns.T]
            assert same(np.ravel(result), np.array(expected)).all()


def test_long_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of more instructions than the buffer holds, with several tiles, in both executors."""
    rng = np.random.default_rng(9)
    n = 9001
    a, b = random_terms(rng, 20 * n, "wide").reshape(20, n), random_terms(rng, 3 * n, "wide").reshape(n, 3)
    for text in ("pairwise+fma", "shuffle(1, pairwise)", "numpy_sum", "chunks(2)+fma"):
        result = fpsim.matmul(a, b, text)
        assert same(result, general(monkeypatch, a, b, text)).all()
        assert same(result.T, fpsim.matmul(b.T, a.T, text)).all()
        expected = reference.inner_product(fpsim.strategy(text), a[19], b[:, 2])
        assert same(result[19, 2], np.float32(expected))
        check_sum(text.replace("+fma", "+neumaier+acc(bfloat16)"), a[0])
    for size in (4090, 4091, 4092, 4093, 4094, 4095, 4096, 4097, 4098):  # around the size of the buffer
        for text in ("chunks(1)+fma", "shuffle(2)"):
            check_dot(text, a[0, :size], a[1, :size])
        check_sum("chunks(1)+acc(float32, down)", a[0, :size])


def test_threads_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(10)
    a, b = (
        random_terms(rng, 130 * 400, "wide").reshape(130, 400),
        random_terms(rng, 400 * 150, "wide").reshape(400, 150),
    )
    texts = ("serial+fma", "pairwise", "serial+acc(bfloat16)", "numpy_sum")
    cores = set(range(8))
    results = []
    for count in (1, 2, 7):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, count=count: set(list(cores)[:count]), raising=False)
        results.append([(fpsim.matmul(a, b, t), fpsim.sum(np.tile(a, (1, 60)), t, axis=1)) for t in texts])
    for others in results[1:]:
        for one, other in zip(results[0], others, strict=True):
            assert all(same(x, y).all() for x, y in zip(one, other, strict=True))


# --- other operations -------------------------------------------------------------------------------------------------


def partial_sums(strategy: Any, x: Any) -> list[float]:
    """A cumulative sum by definition: parts on their own, then what stands before a part added to its results."""
    tree = reference.tree_of(strategy, len(x))
    out = [0.0] * len(x)

    def walk(node: reference.Node) -> tuple[float, list[int]]:
        state = reference.State(node.arithmetic)
        if node.start != "first":
            state.s = -0.0 if node.start == "-0" else 0.0
        form, _, mode = reference.formats_of(node.arithmetic)
        seen: list[int] = []
        for term in node.terms:
            if isinstance(term, reference.Node):
                before = state.s
                value, below = walk(term)
                if before is not None:
                    for leaf in below:
                        out[leaf] = reference.add(before, out[leaf], form, mode)
                state.take(value)
                seen += below
            else:
                state.take(float(x[term]))
                out[term] = state.value()
                seen.append(term)
        return state.value(), seen

    if len(x):
        walk(tree)
    return out


def test_cumsum() -> None:
    rng = np.random.default_rng(11)
    for text in (
        "serial",
        "serial+kahan",
        "serial+neumaier+acc(float16)",
        "serial+acc(bfloat16, toward_zero)",
        "serial+start(0.0)",
        "pairwise",
        "chunks(4)",
        "chunks(4, pairwise, combine=pairwise)+acc(float32, down)",
        "split(3)+acc(tf32)",
        "cascade(3, 2)",
        "chunks(3)+ftz",
    ):
        strategy = fpsim.strategy(text)
        for n in (0, 1, 2, 3, 8, 24, 32):
            for kind in ("normal", "wide", "small", "special"):
                x = random_terms(rng, n, kind)
                if not strategy.program(n).visits_in_sequence:
                    with pytest.raises(InputError, match="in sequence"):
                        fpsim.cumsum(x, text)
                    continue
                result = fpsim.cumsum(x, text)
                assert result.shape == (n,)
                expected = partial_sums(strategy, x)
                assert same(result, stored(expected, result)).all(), (text, x, result, expected)
                if n and "output" not in text:
                    assert same(result[-1], fpsim.sum(x, text)), text


def test_cumsum_output_and_axes() -> None:
    rng = np.random.default_rng(12)
    x = random_terms(rng, 60, "normal").reshape(3, 4, 5)
    for axis in range(-3, 3):
        result = fpsim.cumsum(x, "chunks(2)", axis=axis)
        assert result.shape == x.shape
        lines = np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])
        expected = np.array([fpsim.cumsum(line, "chunks(2)") for line in lines])
        assert same(np.moveaxis(result, axis, -1).reshape(expected.shape), expected).all()
    flat = fpsim.cumsum(x, "chunks(2)+output(bfloat16, toward_zero)")
    plain = fpsim.cumsum(x, "chunks(2)")
    assert same(flat, fpsim.round_to(plain, "bfloat16", mode="toward-zero")).all()
    for text in ("reverse", "lanes(4)", "fold"):
        with pytest.raises(InputError, match="in sequence"):
            fpsim.cumsum(x, text)
    with pytest.raises(InputError, match="one running sum"):
        fpsim.cumsum(x, "chunks(4)+kahan")


def quotient(total: float, n: int, form: Format, mode: str) -> float:
    """The correctly rounded quotient of a sum by n."""
    if total == 0 or not math.isfinite(total):
        return total
    # Enough bits, and one more that says that the rest is not zero.
    m, e = reference.exact(total)
    q, rest = divmod(abs(m) << 200, n)
    exact = ((q << 1) | (rest != 0), e - 201)
    return reference.nearest((exact[0] if m > 0 else -exact[0], exact[1]), form, mode)


def test_mean() -> None:
    rng = np.random.default_rng(13)
    for text in (
        "serial",
        "pairwise+acc(bfloat16)",
        "serial+acc(float32, down)",
        "serial+acc(float16, to_odd)",
        "serial+acc(format(30, -200, 200))",
        "serial+acc(format(45, -200, 200), up)",
        "serial+ftz",
        "serial+acc(float64)",
    ):
        a = fpsim.strategy(text).arithmetic()
        form = a.accumulator.format.without_subnormals() if a.ftz else a.accumulator.format
        for n in (1, 2, 3, 7, 10, 21, 49):
            for kind in ("normal", "wide", "small", "special"):
                x = random_terms(rng, n, kind)
                total = reference.total(fpsim.strategy(text), x)
                result = fpsim.mean(x, text)
                expected = quotient(total, n, form, a.accumulator.mode)
                assert same(result, stored(expected, result)), (text, x, total, result, expected)
                if a.accumulator.format != FLOAT64:
                    inverse = quotient(1.0, n, a.accumulator.format, a.accumulator.mode)
                    expected = reference.multiply(total, inverse, form, a.accumulator.mode)
                    result = fpsim.mean(x, text + "+reciprocal")
                    assert same(result, stored(expected, result)), (text, x)


def test_mean_rounds_its_output_once() -> None:
    """The output format applies to the mean, not to the sum before it."""
    rng = np.random.default_rng(14)
    for _ in range(200):
        x = random_terms(rng, 3, "normal")
        mean = fpsim.mean(x, "serial")
        assert fpsim.mean(x, "serial+output(bfloat16)") == fpsim.round_to(mean, "bfloat16")
        assert fpsim.norm(x, "serial+output(bfloat16)") == fpsim.round_to(fpsim.norm(x, "serial"), "bfloat16")
    assert np.isnan(fpsim.mean(np.zeros(0, np.float32), "serial"))
    x = random_terms(rng, 24, "normal").reshape(2, 3, 4)
    assert fpsim.mean(x, "serial", axis=(0, 2), keepdims=True).shape == (1, 3, 1)


def test_norm() -> None:
    rng = np.random.default_rng(15)
    for text in (
        "serial",
        "serial+fma",
        "pairwise+acc(bfloat16, up)",
        "serial+acc(format(40, -300, 300))",
        "serial+dot2",
    ):
        strategy = fpsim.strategy(text)
        a = strategy.arithmetic().accumulator
        for n in (0, 1, 2, 5, 12):
            for kind in ("normal", "wide", "coarse", "special"):
                x = random_terms(rng, n, kind)
                square = reference.inner_product(strategy, x, x)
                result = fpsim.norm(x, text)
                if square == 0 or not math.isfinite(square):
                    assert same(result, stored(square, result))
                    continue
                m, e = reference.exact(square)
                m, e = (m << (400 + e % 2)), e - 400 - e % 2
                root = math.isqrt(m)
                exact = ((root << 1) | (root * root != m), e // 2 - 1)
                assert same(result, stored(reference.nearest(exact, a.format, a.mode), result)), (text, x)
    x = random_terms(rng, 24, "normal").reshape(4, 6)
    assert fpsim.norm(x, "serial", axis=1, keepdims=True).shape == (4, 1)
    assert same(fpsim.norm(x, "serial", axis=1)[2], fpsim.norm(x[2], "serial"))


def test_bad_input() -> None:
    x = np.ones((2, 3), np.float32)
    for bad, message in (
        (lambda: fpsim.dot(x, x, "serial"), "dot takes two vectors"),
        (lambda: fpsim.matmul(x, x, "serial"), "inner dimensions are 3 and 2"),
        (lambda: fpsim.matmul(x, 1.0, "serial"), "at least one dimension"),
        (lambda: fpsim.matmul(np.ones((2, 2, 3)), np.ones((3, 3, 2)), "serial"), "do not broadcast"),
        (lambda: fpsim.sum(x, "serial", axis=2), "axis 2 does not exist"),
        (lambda: fpsim.sum(x, "serial", axis=(0, -2)), "names an axis twice"),
        (lambda: fpsim.sum(x, "serial", axis=0.5), "axis must be a whole number"),
        (lambda: fpsim.sum(["a"], "serial"), "not numbers"),
        (lambda: fpsim.sum(np.ones(3, complex), "serial"), "complex"),
        (lambda: fpsim.cumsum(np.float32(1).reshape(()), "serial", axis=0), "axis 0 does not exist"),
        (lambda: fpsim.cumsum(x, "serial", axis=(0, 1)), "cumsum goes along one axis"),  # type: ignore[arg-type]
        (lambda: fpsim.cumsum(x, "serial", axis=()), "cumsum goes along one axis"),  # type: ignore[arg-type]
        (lambda: fpsim.dot([[1.0], [1.0, 2.0]], [1.0], "serial"), "cannot be read as an array"),
    ):
        with pytest.raises(InputError, match=message):
            bad()  # type: ignore[no-untyped-call]


def test_named_rules_refuse_what_the_library_does_not_add_as_floats() -> None:
    assert fpsim.sum(np.array([1, 2]), "serial") == 3
    for x in (np.array([2**53, 1]), [2**53, 1], np.ones(3, np.bool), np.array([1, 2**-60], np.longdouble)):
        if isinstance(x, np.ndarray) and x.dtype == np.float64:
            continue  # a platform whose long double is a double
        for operation in (emulation.sum, emulation.mean, emulation.norm):
            with pytest.raises(UnknownOrderError, match="numpy_sum adds"):
                operation(x, "numpy_sum")


def test_counts_beyond_machine_integers() -> None:
    x = np.random.default_rng(17).random(100, np.float32)
    n = 10**30
    for text in (
        f"lanes({n})",
        f"interleaved(2, block={n})",
        f"lanes({n}, lanes({n}))",
        f"rotate({n})",
        f"chunks({n})",
    ):
        assert same(fpsim.sum(x, text), fpsim.sum(x, "serial")), text
    assert fpsim.strategy(f"grid(1, {n})").program(100).height == 7


def test_emulation_leaves_its_input_alone() -> None:
    x = np.random.default_rng(16).standard_normal((5, 6)).astype(np.float32)
    before = x.copy()
    for operation in (emulation.sum, emulation.mean, emulation.norm, emulation.cumsum):
        operation(x, "pairwise+operands(float16)+daz")
    fpsim.matmul(x, x.T, "serial+operands(float16)")
    assert (x == before).all()
