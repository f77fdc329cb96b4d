"""Programs as data: folds and segments, their statistics, their views, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import reference

import fpsim
from fpsim.arithmetic import Arithmetic, Rounding
from fpsim.errors import InputError
from fpsim.formats import BFLOAT16, FLOAT64
from fpsim.programs import Builder, Items, Program, Segment, count_items, joined, leaves, rows_of, split_items

PLAIN = Arithmetic()


def numbers(items: Items) -> list[int]:
    """The positions of terms, by the definition of a segment."""
    return [
        s.base + o * s.outer_stride + i * s.stride for s in items for o in range(s.outer_count) for i in range(s.count)
    ]


def random_items(rng: np.random.Generator) -> Items:
    out = []
    for _ in range(int(rng.integers(1, 5))):
        count, outer = rng.integers(1, 5, 2).tolist()
        stride = int(rng.choice([-3, -1, 1, 2]))
        outer_stride = int(rng.choice([count * stride, 7, 20, -9])) if outer > 1 else 0
        out.append(Segment(int(rng.integers(100)), count, stride, outer, outer_stride))
    return tuple(out)


def test_splitting_keeps_the_sequence() -> None:
    rng = np.random.default_rng(1)
    for _ in range(500):
        items = random_items(rng)
        expected = numbers(items)
        assert count_items(items) == len(expected)
        assert numbers(rows_of(items)) == expected
        for size in (2, 3):
            assert numbers(rows_of(items, unless_multiple_of=size)) == expected
        assert numbers(joined(items)) == expected
        assert numbers(joined(rows_of(items))) == expected
        for position in range(len(expected) + 1):
            head, tail = split_items(items, position)
            assert (numbers(head), numbers(tail)) == (expected[:position], expected[position:])
    assert leaves(0) == ()
    assert numbers(leaves(4)) == [0, 1, 2, 3]


def test_joining_is_compact() -> None:
    single = [Segment(3 * i, 1) for i in range(50)]
    assert joined(single) == (Segment(0, 50, 3),)
    assert joined([Segment(0, 4), Segment(4, 3)]) == (Segment(0, 7),)
    assert len(joined([Segment(0, 4), Segment(5, 3)])) == 2


def test_equal_folds_are_stored_once() -> None:
    builder = Builder()
    first = builder.fold([Segment(0, 4)], PLAIN)
    second = builder.fold([Segment(100, 4)], PLAIN)
    assert first.item is second.item
    assert (first.base, second.base) == (0, 100)
    assert builder.fold([Segment(0, 4)], PLAIN, start="+0").item is not first.item
    assert builder.fold([first], PLAIN) == first
    pair = builder.fold([Segment(8, 1), first], PLAIN)  # a leaf before a sum is added to the sum
    assert Program.of(builder.fold([pair, Segment(4, 4)], PLAIN), 9).nested() == "(((0 1 2 3) 8) 4 5 6 7)"


def test_every_leaf_once() -> None:
    builder = Builder()
    for items, n in (([Segment(0, 4)], 5), ([Segment(0, 4), Segment(0, 1)], 4)):
        with pytest.raises(InputError, match="does not visit each"):
            Program.of(builder.fold(items, PLAIN), n)


def test_statistics_of_known_trees() -> None:
    for text, n, height, registers, nesting in (
        ("serial", 1, 0, 1, 1),
        ("serial", 10, 9, 1, 1),
        ("pairwise", 8, 3, 3, 3),
        ("pairwise", 9, 4, 3, 4),
        ("lanes(4)", 12, 5, 2, 2),
        ("numpy_sum", 128, 18, 5, 5),
        ("numpy_sum", 10**6, 31, 18, 18),
    ):
        program = fpsim.strategy(text).program(n)
        assert program.height == height, (text, n)
        assert program.height == program.depths().max(initial=0)
        assert program.registers <= registers, (text, n)
        assert program.nesting <= nesting, (text, n)
        assert program.additions == n - 1


def test_text_views() -> None:
    program = fpsim.strategy("chunks(4)").program(10)
    assert str(program) == program.text() == fpsim.strategy("chunks(4)").tree(10)
    assert program.text() == (
        "10 leaves, height 5, 3 distinct folds\nt0 = 0..1\nt1 = 0..3\nt2 = t1@0..4/4 t0@8"
    )  # fmt: skip
    assert "+0.0" in fpsim.strategy("serial").tree(0)
    assert fpsim.strategy("serial+start(-0.0)").tree(3).endswith("t0 = -0.0 0..2")
    mixed = fpsim.strategy("chunks(2, serial+acc(bfloat16))").tree(4)
    assert [line.partition(" = ")[0] for line in mixed.splitlines()[1:3]] == ["t0 [0]", "t1 [1]"]
    assert fpsim.strategy("interleaved(2, block=2)").program(8).text().count("2*(0..1)/4") == 1


def test_nested_view_has_a_limit() -> None:
    program = fpsim.strategy("serial").program(5000)
    with pytest.raises(InputError, match="longer than limit=4096"):
        program.nested()
    assert program.nested(limit=5000).count(" ") == 4999


def test_depths_and_heights_of_random_trees() -> None:
    rng = np.random.default_rng(2)
    for _ in range(100):
        n = int(rng.integers(1, 60))
        terms = [str(i) for i in rng.permutation(n)]
        while len(terms) > 1:
            size = int(rng.integers(2, min(len(terms), 5) + 1))
            picked = [terms.pop(int(rng.integers(len(terms)))) for _ in range(size)]
            terms.append(f"({' '.join(picked)})")
        strategy = fpsim.strategy(f'tree("{terms[0]}")')
        program = strategy.program(n)
        depths = program.depths()
        assert depths.tolist() == reference.depths(reference.tree_of(strategy, n), n)
        assert program.height == depths.max()
        if n > 1:
            assert (depths >= 1).all()
            # Of a left fold of two terms at a time: Kraft's equality of a binary tree.
            assert sum(2.0 ** -depths.astype(float)) == 1.0


def test_visits_in_sequence() -> None:
    for text, expected in (
        ("serial", True),
        ("pairwise", True),
        ("chunks(3, combine=pairwise)", True),
        ("reverse", False),
        ("lanes(4)", False),
        ("fold", False),
    ):
        assert fpsim.strategy(text).program(16).visits_in_sequence == expected


def test_narrow_starts_are_explicit_in_the_program() -> None:
    """Rounding a partial sum that starts a narrower accumulator is a fold of its own."""
    wide = fpsim.strategy("chunks(4, serial+acc(float64))").program(8)
    same = fpsim.strategy("chunks(4, serial+acc(float32))").program(8)
    assert any(a.output == Rounding(Arithmetic().accumulator.format) for a in wide.arithmetics)
    assert not any(a.output for a in same.arithmetics)
    assert {a.accumulator.format for a in wide.arithmetics} == {FLOAT64, Arithmetic().accumulator.format}
    assert wide.nested() == same.nested()
    narrow = fpsim.strategy("chunks(4, serial+acc(bfloat16))").program(8)
    assert not any(a.output for a in narrow.arithmetics)
    assert narrow.arithmetics[0].accumulator.format == BFLOAT16
