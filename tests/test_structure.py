"""Regular orders from few probes."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim
from fpsim import _hypotheses
from fpsim._black_box import BlackBox
from fpsim._probing import Prober
from fpsim._structure import structures
from fpsim.errors import InputError
from fpsim.formats import as_format
from fpsim.programs import smallest_subtree


@pytest.mark.parametrize(
    "text",
    [
        "serial", "pairwise", "lanes(8, combine=fold)", "numpy_sum", "interleaved(5, block=8)", "shuffle(3)",
        "chunks(16, lanes(4), combine=pairwise)", "cascade(3, 16)", "lanes(4, tail=after)", "reverse", "grid(3, 16)",
    ],
)  # fmt: skip
def test_smallest_subtrees_are_those_that_masking_probes_show(text: str) -> None:
    n = 203
    program = fpsim.strategy(text).program(n)
    prober = Prober.of(BlackBox(lambda x: fpsim.sum(x, text), "sum", (n,), as_format("float32")))
    rng = np.random.default_rng(0)
    for _ in range(40):
        i, j = map(int, rng.choice(n, 2, replace=False))
        assert smallest_subtree(program, i, j) == prober.sizes(i, j)[0], (i, j)


@pytest.mark.parametrize(
    "text", ["fused(8)+align(24)", "fused(8, rest=first)+align(24)", "chunks(20, fused(4))+align(25)"]
)
def test_smallest_subtrees_of_fused_adds(text: str) -> None:
    n = 45
    program = fpsim.strategy(text).program(n)
    box = BlackBox(lambda x, y: fpsim.dot(x, y, text), "dot", (n,), as_format("float16"))
    prober = Prober.of(box)
    for i in range(0, n, 3):
        for j in range(i):
            assert smallest_subtree(program, i, j) == prober.sizes(i, j)[0], (i, j)


@pytest.mark.parametrize("pair", [(0, 0), (-1, 2), (1, 5)])
def test_two_different_leaves_are_needed(pair: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="two different leaves from 0 to 4"):
        smallest_subtree(fpsim.strategy("serial").program(5), *pair)


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("lanes(12, chunks(50, combine=pairwise), combine=reverse)", 4096),
        ("interleaved(6, reverse, block=24, combine=pairwise)", 4096),
        ("split_k(9, interleaved(3, block=5))", 4096),
        ("chunks(128, rotate(5))", 4096),
        ("grid(4, 64, 2)", 4096),
        ("lanes(16, lanes(4), combine=fold)", 4096),
        ("lanes(9, pairwise, tail=lane0)", 5000),
        ("chunks(100, chunks(10), combine=chunks(8))", 5000),
        ("chunks(1000, lanes(8, combine=fold))", 10**6),
        ("chunks(64, lanes(5), combine=lanes(4, combine=pairwise))", 10**5),
        ("lanes(100, pairwise)", 10**5),
        ("split(3, pairwise)", 1024),
        ("split(4, pairwise)", 1001),
        ("split(6, fold)", 4099),
        ("interleaved(64, block=2, combine=chunks(32, fold))", 4096),
    ],
)
def test_two_levels_are_found_from_few_probes(text: str, n: int) -> None:
    program = fpsim.strategy(text).program(n)
    asked = 0

    def size(i: int, j: int) -> int:
        nonlocal asked
        asked += 1
        return smallest_subtree(program, i, j)

    found = structures(n, size, np.random.default_rng(1))
    assert asked <= 700
    assert found
    x = np.random.default_rng(2).standard_normal(n).astype(np.float32)
    y = fpsim.law("wide(-20, 20)").draw(n, rng=3)
    same = [fpsim.sum(x, one) == fpsim.sum(x, text) and fpsim.sum(y, one) == fpsim.sum(y, text) for one in found]
    assert same[0], found


def test_what_is_no_regular_order_is_not_found() -> None:
    program = fpsim.strategy("shuffle(1)").program(300)
    assert structures(300, lambda i, j: smallest_subtree(program, i, j), np.random.default_rng(0)) == []
    assert structures(300, lambda i, j: 0, np.random.default_rng(0)) == []  # noqa: ARG005 - unreadable


@pytest.mark.parametrize("text", ["lanes(12, chunks(50, combine=pairwise), combine=reverse)", "chunks(128, rotate(5))"])
def test_reveal_takes_few_calls(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_hypotheses, "RECENT", type(_hypotheses.RECENT)(maxlen=1))
    revealed = fpsim.reveal(lambda x: fpsim.sum(x, text), n=4096)
    assert str(revealed.strategy) == text
    assert revealed.evidence.calls < 1000
    assert revealed.evidence.equal == 200
