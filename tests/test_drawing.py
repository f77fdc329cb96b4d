"""Pictures of summation trees."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

import fpsim

SPACE = "{http://www.w3.org/2000/svg}"


def parts(text: str, n: int) -> tuple[list[ET.Element], list[ET.Element], list[str]]:
    root = ET.fromstring(fpsim.strategy(text).tree(n).svg())
    labels = [one.text or "" for one in root.iter(f"{SPACE}text")]
    return list(root.iter(f"{SPACE}line")), list(root.iter(f"{SPACE}circle")), labels


@pytest.mark.parametrize("text", ["serial", "pairwise", "lanes(8, combine=fold)", "numpy_sum", "reverse", "shuffle(3)"])
@pytest.mark.parametrize("n", [1, 2, 7, 100, 128])
def test_small_trees_are_drawn_in_full(text: str, n: int) -> None:
    lines, sums, labels = parts(text, n)
    assert sorted(map(int, labels)) == list(range(n))
    if n > 1:
        assert len(sums) == n - 1
        assert len(lines) == 2 * (n - 1)


def test_the_picture_has_the_depth_of_the_tree() -> None:
    for text, depth in (("serial", 15), ("pairwise", 4), ("lanes(4, combine=pairwise)", 5)):
        _, sums, _ = parts(text, 16)
        assert len({one.get("cy") for one in sums}) == depth


@pytest.mark.parametrize("text", ["serial", "pairwise", "numpy_sum", "lanes(1000)", "chunks(100, lanes(8))"])
def test_large_trees_are_collapsed(text: str) -> None:
    _, _, labels = parts(text, 10**6)
    assert len(labels) <= 128
    assert any("terms" in one or "more" in one for one in labels)


def test_fused_adds_take_many_terms() -> None:
    lines, sums, labels = parts("fused(8)+align(24)", 20)
    assert len(sums) == 3
    assert len(lines) == 20 + 2
    assert len(labels) == 20


def test_notebooks_show_the_picture_and_the_text_is_as_before() -> None:
    tree = fpsim.strategy("pairwise").tree(8)
    assert tree._repr_svg_() == tree.svg()
    assert str(tree).startswith("8 leaves, height 3")
    assert str(fpsim.strategy("serial").tree(0)).startswith("0 leaves")
    assert "svg" in fpsim.strategy("serial").tree(0).svg()
