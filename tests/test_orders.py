"""Every order against a naive construction of the tree that its docstring describes (see `reference`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference

import fpsim
from fpsim.errors import InputError, StrategyError
from fpsim.orders import ORDERS, base, combinators, explicit, permutations
from fpsim.programs import Program
from fpsim.strategies import Strategy

SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 23, 31, 32, 33, 63, 64, 65, 97, 127, 128, 129, 255, 256, 257, 300]

ORDER_TEXTS = [
    "serial",
    "pairwise",
    "pairwise(2)",
    "pairwise(7)",
    "pairwise(128)",
    "fold",
    "lanes(1)",
    "lanes(2)",
    "lanes(8)",
    "lanes(7, pairwise, combine=fold)",
    "lanes(64, combine=fold)",
    "lanes(5, combine=pairwise, tail=after)",
    "lanes(8, combine=pairwise, tail=lane0)",
    "lanes(6, chunks(3), combine=reverse, tail=lane0)",
    "lanes(16, serial, combine=fold, tail=serial+acc(float64))",
    "lanes(16, serial, combine=fold, tail=pairwise)",
    "lanes(4, lanes(4), combine=lanes(2))",
    "chunks(1)",
    "chunks(16)",
    "chunks(10, pairwise, combine=pairwise)",
    "chunks(32, lanes(4), combine=fold)",
    "chunks(5, chunks(2), combine=chunks(3))",
    "split_k(1)",
    "split_k(3)",
    "split_k(7, pairwise, combine=fold)",
    "split_k(7, pairwise, combine=lanes(2))",
    "split(1)",
    "split(4)",
    "split(7, pairwise, combine=reverse)",
    "interleaved(1)",
    "interleaved(5, block=8)",
    "interleaved(3, lanes(4), block=2, combine=fold)",
    "interleaved(4, pairwise, block=3, combine=rotate(1))",
    "interleaved(4, interleaved(2), block=5, combine=interleaved(2))",
    "cascade(1, 4)",
    "cascade(2, 1)",
    "cascade(3, 4)",
    "cascade(4, 16)",
    "grid(1, 1)",
    "grid(2, 8)",
    "grid(3, 7, 2)",
    "grid(4, 32, 4, combine=fold)",
    "grid(5, 6, 3, block=pairwise, combine=lanes(2))",
    "grid(2, 8, block=lanes(4, combine=fold), combine=pairwise)",
    "reverse",
    "reverse(pairwise)",
    "reverse(lanes(3, combine=reverse))",
    "reverse(interleaved(3, block=2))",
    "rotate(1)",
    "rotate(11, chunks(4))",
    "rotate(-3, pairwise)",
    "rotate(3, grid(2, 4))",
    "chunks(3, combine=grid(2, 4))",
    "lanes(3, grid(2, 3, 2, combine=fold), combine=reverse)",
    "shuffle(0)",
    "shuffle(4, grid(2, 4))",
    "shuffle(1, pairwise)",
    "shuffle(5, block=4)",
    "shuffle(6, window=3)",
    "chunks(2, combine=shuffle(7, pairwise, block=3, window=2))",
    "shuffle(2, lanes(4, combine=fold))",
    "chunks(8, combine=shuffle(3))",
    "split_k(6, combine=rotate(2, fold))",
    "numpy_sum",
    "numpy_sum(chunk=1)",
    "numpy_sum(chunk=13)",
    "numpy_sum(chunk=200)",
    "numpy_sum(chunk=8, row=24)",
    "numpy_sum(chunk=10, row=25)",
    "numpy_sum(row=30)",
    "chunks(40, numpy_sum, combine=pairwise)",
]


def check(strategy: Strategy, n: int) -> Program:
    """Compare a program with the naive tree, and its views with each other."""
    program = strategy.program(n)
    tree = reference.tree_of(strategy, n)
    assert program.nested() == reference.text(tree)
    depths = program.depths()
    assert depths.tolist() == reference.depths(tree, n)  # which also visits every leaf once
    assert program.n == n
    assert program.height == max(depths.tolist(), default=0)
    assert program.additions == max(n - 1, 0)
    lines = program.text().splitlines()
    assert len(lines) - 1 - program.fold_count == (len(program.arithmetics) if len(program.arithmetics) > 1 else 0)
    assert lines[0].startswith(f"{n} leaves, height {program.height}, ")
    assert program.registers >= 1
    assert program.nesting <= program.fold_count
    return program


@pytest.mark.parametrize("text", ORDER_TEXTS)
def test_order_is_the_tree_it_says(text: str) -> None:
    strategy = fpsim.strategy(text)
    for n in SIZES:
        check(strategy, n)


def test_every_generic_order_is_tried() -> None:
    tried = " ".join(ORDER_TEXTS)
    homes = [module.__name__ for module in (base, combinators, explicit, permutations)]
    generic = [name for name, kind in ORDERS.items() if kind.__module__ in homes]
    assert [name for name in generic if name not in tried] == ["permute", "tree"]  # which have a test of their own


def test_random_nests_of_orders() -> None:
    rng = np.random.default_rng(20)

    def choose(items: Any) -> Any:
        return items[int(rng.integers(len(items)))]

    for _ in range(300):
        strategy = fpsim.strategy(reference.random_order(choose, 2, settings=False))
        for n in (choose(SIZES[:4]), choose(SIZES[4:13]), choose(SIZES[13:])):
            check(strategy, n)


def test_no_terms() -> None:
    for text in ORDER_TEXTS:
        program = fpsim.strategy(text).program(0)
        assert (program.n, program.height, program.additions, program.depths().size) == (0, 0, 0, 0)
        assert program.nested() == "()"


def test_permute() -> None:
    rng = np.random.default_rng(1)
    for n in (1, 2, 9, 31):
        places = ", ".join(map(str, rng.permutation(n)))
        for inner in ("serial", "pairwise", "lanes(3, combine=fold)"):
            check(fpsim.strategy(f"permute([{places}], {inner})"), n)
    check(fpsim.strategy("chunks(5, combine=permute([2, 0, 1]))"), 13)
    assert fpsim.strategy("permute([2, 0, 1])").program(3).nested() == "(2 0 1)"
    with pytest.raises(InputError, match="3 places, but there are 4 terms"):
        fpsim.strategy("permute([2, 0, 1])").program(4)
    for bad in ("[0, 0]", "[1, 2]", "[-1, 0]"):
        with pytest.raises(StrategyError, match="each of 0 to n-1 once"):
            fpsim.strategy(f"permute({bad})")


def test_listed_chunks() -> None:
    check(fpsim.strategy("chunks([3, 1, 4], pairwise, combine=fold)"), 8)
    assert fpsim.strategy("chunks([3, 1, 4])").program(8).nested() == "((0 1 2) 3 (4 5 6 7))"
    with pytest.raises(InputError, match="add up to 8, but there are 9 terms"):
        fpsim.strategy("chunks([3, 1, 4])").program(9)


def test_hand_written_trees() -> None:
    """A few trees worked out by hand, so that the naive constructions are not the only witness."""
    expected = {
        ("serial", 4): "(0 1 2 3)",
        ("pairwise", 5): "(((0 1) (2 3)) 4)",
        ("pairwise", 7): "(((0 1) (2 3)) ((4 5) 6))",
        ("fold", 8): "(((0 4) (2 6)) ((1 5) (3 7)))",
        ("fold", 5): "(((0 3) 2) (1 4))",
        ("lanes(4)", 10): "((0 4 8) (1 5 9) (2 6) (3 7))",
        ("lanes(4, tail=after)", 10): "(((0 4) (1 5) (2 6) (3 7)) 8 9)",
        ("lanes(4, tail=lane0)", 10): "((0 4 8 9) (1 5) (2 6) (3 7))",
        ("lanes(4, tail=serial)", 10): "((8 9) ((0 4) (1 5) (2 6) (3 7)))",
        ("lanes(4, tail=after)", 3): "(0 1 2)",
        ("split_k(3)", 10): "((0 1 2 3) (4 5 6 7) (8 9))",
        ("split_k(4)", 5): "((0 1) (2 3) 4)",
        ("split(3)", 10): "((0 1 2 3) (4 5 6) (7 8 9))",
        ("interleaved(2, block=2)", 10): "((0 1 4 5 8 9) (2 3 6 7))",
        ("cascade(2, 4)", 10): "((8 9) ((0 1 2 3) (4 5 6 7)))",
        ("cascade(3, 2)", 7): "(6 (4 5) ((0 1) (2 3)))",
        ("grid(2, 2)", 10): "(((0 4 8) (1 5 9)) ((2 6) (3 7)))",
        ("grid(1, 2, 2)", 6): "((0 2 4) (1 3 5))",
        ("reverse", 4): "(3 2 1 0)",
        ("rotate(1)", 4): "(1 2 3 0)",
        ("chunks(4)", 9): "((0 1 2 3) (4 5 6 7) 8)",
        ("numpy_sum", 9): "((((0 1) (2 3)) ((4 5) (6 7))) 8)",
        ("pairwise(3)", 10): "(((0 1 2) (3 4 5)) ((6 7 8) 9))",
    }
    assert {key: fpsim.strategy(key[0]).program(key[1]).nested() for key in expected} == expected


# --- explicit trees -------------------------------------------------------------------------------------------------


def test_explicit_trees() -> None:
    def nested(tree: str, n: int) -> str:
        return fpsim.strategy(f'tree("{tree}")').program(n).nested()

    assert nested("((0 1) (2 3))", 4) == "((0 1) (2 3))"
    assert nested("0 1 2", 3) == "(0 1 2)"
    assert nested("(0..6/2) (1..7/2)", 8) == "((0 2 4 6) (1 3 5 7))"
    assert nested("((0)) 1", 2) == "(0 1)"
    assert nested("0", 1) == "0"
    # Addition commutes, and a leaf can be fused with a sum, but not a sum with a leaf.
    assert nested("(0 (1 2))", 3) == "((1 2) 0)"


def test_nested_form_is_read_back() -> None:
    """The tree order of a nested view is the same tree, up to which of two terms stands first."""
    rng = np.random.default_rng(3)

    def choose(items: Any) -> Any:
        return items[int(rng.integers(len(items)))]

    for _ in range(200):
        n = choose(SIZES[:20])
        nested = fpsim.strategy(reference.random_order(choose, 2, settings=False)).program(n).nested()
        again = fpsim.strategy(f'tree("{nested}")').program(n)
        assert canonical(again.nested()) == canonical(nested)
        twice = fpsim.strategy(f'tree("{again.nested()}")').program(n)
        assert twice.nested() == again.nested()


def canonical(nested: str) -> str:
    """Write a tree with the lesser of the first two terms of every group in front."""
    stack: list[list[str]] = [[]]
    for token in nested.replace("(", " ( ").replace(")", " ) ").split():
        if token == "(":
            stack.append([])
        elif token == ")":
            group = stack.pop()
            stack[-1].append(f"({' '.join([*sorted(group[:2]), *group[2:]])})")
        else:
            stack[-1].append(token)
    return " ".join(stack[0])


def test_bad_trees() -> None:
    for tree in ("((0 1)", "0 1)", "0 a", "0 -1", "0 0", "1 2", "0 2", "0, 1", "0..3/0", "()", "", "0 ()", ")("):
        with pytest.raises(StrategyError, match="tree"):
            fpsim.strategy(f'tree("{tree}")')
    with pytest.raises(InputError, match="3"):
        fpsim.strategy('tree("0 1 2")').program(4)
    with pytest.raises(InputError, match="2 terms"):
        fpsim.strategy('tree("0 1 2")').program(2)


# --- size -----------------------------------------------------------------------------------------------------------

# Orders of parts that do not fit into each other, and rearranged terms, take memory in proportion to n.
IRREGULAR = {
    "numpy_sum(chunk=10, row=25)",
    "interleaved(3, lanes(4), block=2, combine=fold)",
    "interleaved(4, pairwise, block=3, combine=rotate(1))",
    "interleaved(4, interleaved(2), block=5, combine=interleaved(2))",
    "rotate(3, grid(2, 4))",
    "chunks(3, combine=grid(2, 4))",
}
LARGE = [
    *(text for text in ORDER_TEXTS if text not in IRREGULAR and "shuffle" not in text),
    "grid(132, 512, 4)",
    "grid(1024, 256, 8, block=fold, combine=fold)",
    "lanes(1024, combine=fold)",
    "chunks(4096, lanes(8, combine=pairwise, tail=after), combine=pairwise)",
    "numpy_sum(chunk=8190)",
    "interleaved(5, lanes(4), block=8)",
    "interleaved(5, pairwise, block=8)",
    "split_k(13, interleaved(4, lanes(2), block=4), combine=fold)",
]


@pytest.mark.parametrize("n", [10**8, 99_999_989])
def test_structured_orders_stay_small(n: int) -> None:
    for text in LARGE:
        program = fpsim.strategy(text).program(n)
        assert program.fold_count < 500, text
        assert program.segments.size < 50_000, text
        assert program.nodes[-1, 4] == n
        assert program.height < n
        assert program.registers < 100


def left_deep(n: int) -> str:
    return "(" * (n - 1) + "0" + "".join(f" {i})" for i in range(1, n))


def right_deep(n: int) -> str:
    return "".join(f"({i} " for i in range(n - 1)) + f"{n - 1}" + ")" * (n - 1)


def balanced(n: int) -> str:
    terms = [str(i) for i in range(n)]
    while len(terms) > 1:
        pairs = [f"({terms[i]} {terms[i + 1]})" for i in range(0, len(terms) - 1, 2)]
        terms = pairs + terms[len(terms) - len(terms) % 2 :]
    return terms[0]


@pytest.mark.parametrize(("shape", "height"), [(left_deep, 39_999), (right_deep, 39_999), (balanced, 16)])
def test_deep_explicit_trees(shape: Any, height: int) -> None:
    n = 40_000  # far beyond any recursion limit
    tree = shape(n)
    strategy = fpsim.strategy(f'tree("{tree}")')
    program = strategy.program(n)
    assert program.height == height
    assert program.registers <= 18
    depths = program.depths()
    assert depths.max() == height
    if shape is right_deep:  # a leaf before a sum is added to that sum
        assert depths.tolist() == [*range(1, n), n - 1]
    if shape is left_deep:
        assert depths.tolist() == [n - 1, *range(n - 1, 0, -1)]
    x = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    serial = {left_deep: "serial", right_deep: "reverse", balanced: "pairwise"}[shape]
    assert fpsim.sum(x, strategy) == fpsim.sum(x, serial)
    assert program.nested(limit=n) == fpsim.strategy(f'tree("{program.nested(limit=n)}")').program(n).nested(limit=n)


def test_large_irregular_orders() -> None:
    n = 50_000
    x = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    places = np.random.default_rng(7).permutation(n)
    for inner in (
        "serial",
        "pairwise",
        "lanes(8, combine=fold)",
        "chunks(8)",
        "interleaved(4, block=8)",
        "cascade(4, 16)",
    ):
        assert fpsim.sum(x, f"shuffle(7, {inner})") == fpsim.sum(x[places], inner), inner
    for text in IRREGULAR:
        assert fpsim.strategy(text).program(n).nodes[-1, 4] == n


def test_shuffle_without_a_seed_stands_for_many_orders() -> None:
    with pytest.raises(StrategyError, match=r"give a seed, as in shuffle\(0\), or ask fpsim\.spread"):
        fpsim.sum(np.ones(4, np.float32), "chunks(2, combine=shuffle)")


def test_blocks_stay_together_and_a_window_keeps_terms_near_their_place() -> None:
    places = permutations.Shuffle(block=32).places(1000, np.random.default_rng(1))
    assert sorted(places) == list(range(1000))
    runs = np.split(places, np.flatnonzero(np.diff(places) != 1) + 1)
    assert {int(run[0]) % 32 for run in runs} == {0}
    near = permutations.Shuffle(window=10).places(1000, np.random.default_rng(1))
    assert sorted(near) == list(range(1000))
    assert 0 < np.abs(near - np.arange(1000)).max() < 10
