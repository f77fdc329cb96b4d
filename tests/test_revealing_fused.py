"""`fpsim.reveal` of tensor cores, as fused adds of many terms, and what it says of products fused only in part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim import _hypotheses
from fpsim._fused_trees import fused_chains
from fpsim._probing import Node, tree_of
from fpsim.programs import smallest_subtree


@pytest.fixture(autouse=True)
def _no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_hypotheses, "RECENT", type(_hypotheses.RECENT)(maxlen=1))


def box_of(text: str) -> Any:
    return lambda a, b: fpsim.matmul(a, b, text)


@pytest.mark.parametrize(
    ("text", "dtype", "k"),
    [
        ("fused(16)+align(25)", "float16", 100),
        ("fused(16)+align(25)+output(float16)", "float16", 100),
        ("fused(4)+align(23, float16)+output(float16)", "float16", 50),
        ("fused(16, rest=first)+align(25)", "float16", 77),
        ("fused(16, rest=first, tile=64)+align(25)", "float16", 100),
        ("fused(8, rest=first, tile=32)+align(25)+operands(tf32)", "float32", 90),
        ("chunks(20, fused(8, rest=first))+align(25)+operands(tf32)", "float32", 100),
        ("chunks(64, fused(8))+align(24)+operands(bfloat16)", "bfloat16", 150),
        ("fused(16)+align(25)+operands(bfloat16)+output(bfloat16)", "bfloat16", 150),
        ("chunks(32, fused(8))+align(25)+operands(tf32)", "float32", 100),
        ("fused(8)+align(24)+operands(tf32, toward_zero)", "float32", 100),
        ("fused(32)+align(13)+operands(e4m3fn)", "e4m3fn", 150),
        ("chunks(64, fused(32))+align(13)+operands(e4m3fn)", "e4m3fn", 150),
        ("split_k(3, fused(16), combine=fold)+align(25)+operands(bfloat16)", "float32", 150),
    ],
)
def test_tensor_cores(text: str, dtype: str, k: int) -> None:
    revealed = fpsim.reveal(box_of(text), op="matmul", shape=(3, k, 4), dtype=dtype, replays=20)
    assert str(revealed.strategy) == text, revealed
    assert revealed.evidence.equal == 20
    bits = text.partition("align(")[2][:2]
    assert any(f"with {bits} fraction bits" in fact for fact in revealed.evidence.facts)


def test_chunks_of_any_size_are_probed() -> None:
    text = "chunks([48, 16, 36], fused(16))+align(25)"
    revealed = fpsim.reveal(box_of(text), op="matmul", shape=(2, 100, 3), dtype="float16", replays=20)
    assert str(revealed.strategy) == text
    assert revealed.evidence.method == "probing"


def test_fused_adds_in_an_unknown_order_are_refused() -> None:
    """Fused adds of terms in a random order: seen as such, and nothing is claimed."""
    places = np.random.default_rng(3).permutation(60)

    def mixed(a: Any, b: Any) -> Any:
        return fpsim.matmul(a[:, places], b[places], "fused(8)+align(25)")

    revealed = fpsim.reveal(mixed, op="matmul", shape=(2, 60, 2), dtype="float16", replays=10)
    assert not revealed.found
    assert any("is no chain of them" in note for note in revealed.evidence.notes), revealed


def test_other_alignment_is_not_claimed() -> None:
    """Products truncated one by one before they are added: no fused add, whatever the order of the terms."""

    def truncated(a: Any, b: Any) -> Any:
        terms = (a.astype(np.float64)[:, :, None] * b.astype(np.float64)[None]).astype(np.float16).astype(np.float64)
        return np.float32(terms.sum(axis=1))

    revealed = fpsim.reveal(truncated, op="matmul", shape=(2, 40, 2), dtype="float16", replays=10)
    assert not revealed.found


def chain(*groups: list[int]) -> Node:
    tree = Node(tuple(groups[0]))
    for group in groups[1:]:
        tree = Node((tree, *group))
    return tree


def test_chains_of_probed_trees() -> None:
    four = chain([0, 1, 2, 3], [4, 5, 6, 7], [8])
    assert fused_chains(four) == ["fused(4)"]
    assert fused_chains(Node((Node((0, 1, 2, 3)), 4, 5))) == ["fused(4)"]
    assert fused_chains(chain([0, 1], [2, 3, 4, 5], [6, 7, 8, 9])) == ["fused(4, rest=first)"]
    other = chain([9, 10, 11, 12], [13])
    assert fused_chains(Node((four, other))) == ["chunks(9, fused(4))"]
    assert fused_chains(Node((other, four))) == ["chunks(9, fused(4))"]  # additions commute
    assert fused_chains(chain([0, 1, 2, 4], [3, 5, 6, 7])) == []
    assert fused_chains(Node((Node((0, 1, 2)), Node((3, 4, 5)), Node((6, 7, 8))))) == []


def test_products_that_are_fused_in_part() -> None:
    places = np.random.default_rng(1).permutation(40)

    def mixed(x: Any, y: Any) -> Any:
        x, y = x[places], y[places]
        one = fpsim.dot(x[:25], y[:25], "lanes(2)+fma")
        return np.float32(one + fpsim.dot(x[25:], y[25:], "serial"))

    revealed = fpsim.reveal(mixed, op="dot", n=40, replays=20)
    assert revealed.strategy is not None
    assert revealed.evidence.equal == 20
    x, y = np.random.default_rng(2).standard_normal((2, 40)).astype(np.float32)
    assert fpsim.dot(x, y, revealed.strategy) == mixed(x, y)
    assert f"({places[39]})" in str(revealed.strategy)  # a rounded product
    assert f"({places[24]})" not in str(revealed.strategy)  # a fused one


def test_trees_say_which_products_are_rounded() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 4)).astype(np.float32)
    products = [np.float32(p) for p in a.astype(np.float64) * b.astype(np.float64)]

    def fma(place: int, to: np.float32) -> np.float32:  # exact in float64 but for one rounding, for these numbers
        return np.float32(np.longdouble(a[place]) * np.longdouble(b[place]) + np.longdouble(to))

    for text, expected in (
        ("0 1 2", fma(2, fma(1, products[0]))),
        ("(0) (1) 2", fma(2, products[0] + products[1])),
        ("(0 1) (2)", fma(1, products[0]) + products[2]),
        ("0 (1)", fma(0, products[1])),
        ("(0) (1)", products[0] + products[1]),
    ):
        n = 2 if text.count("2") == 0 else 3
        assert fpsim.dot(a[:n], b[:n], f'tree("{text}")+fma') == expected
        assert str(fpsim.strategy(f'tree("{text}")+fma')) == f'tree("{text}")+fma'
    assert fpsim.dot(a, b, 'tree("(0) (1) (2) (3)")') == fpsim.dot(a, b, "serial")


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("chunks(68, fused(8, rest=first, tile=16))", 400), ("fused(16, rest=first, tile=128)", 500), ("fused(8)", 500),
        ("chunks(52, fused(8), combine=fold)", 784),
        ("chunks(64, fused(8), combine=lanes(4, pairwise, combine=fold))", 1024),
    ],
)  # fmt: skip
def test_chains_of_a_tree_are_read_back(text: str, n: int) -> None:
    """As cuBLAS has them for TF32 at K = 400 and for bfloat16 at K = 500 on an H200, and XLA for TF32."""
    program = fpsim.strategy(f"{text}+align(25)").program(n)
    rng = np.random.default_rng(0)
    tree = tree_of(n, lambda i, j: smallest_subtree(program, i, j), rng)
    assert fused_chains(tree)[0] == text


def test_sums_of_chains_in_an_order_of_their_own() -> None:
    """The first strategy gives some outputs by chance; the one that gives all is claimed."""
    text = "chunks(32, fused(8), combine=lanes(4, pairwise, combine=fold))+align(25)"
    revealed = fpsim.reveal(lambda a, b: fpsim.matmul(a, b, text), op="matmul", shape=(16, 512, 16), replays=30)
    assert str(revealed.strategy) == text
    odd = 'chunks(8, fused(4), combine=tree("(0 3) (1 5) (2 4)"))+align(25)'
    found = fpsim.reveal(lambda a, b: fpsim.matmul(a, b, odd), op="matmul", shape=(8, 48, 8), replays=30)
    assert str(found.strategy) == odd.replace("(0 3) (1 5) (2 4)", "0 3 (1 5) (2 4)")
