"""`fpsim.reveal_rule`: one strategy for all sizes, proved at sizes that were never probed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim import _hypotheses
from fpsim.errors import InputError


@pytest.fixture(autouse=True)
def _no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_hypotheses, "RECENT", type(_hypotheses.RECENT)(maxlen=1))


def sum_with(text: str) -> Callable[[Any], Any]:
    return lambda x: fpsim.sum(x, text)


def test_numpy() -> None:
    found = fpsim.reveal_rule(np.sum, sizes=[100, 700], replays=20)
    assert str(found.rule) == "numpy_sum"
    assert set(found.verified).isdisjoint(found.sizes)
    verified = [size for size in found.verified if isinstance(size, int)]
    assert min(verified) < 100
    assert max(verified) > 1400
    assert "20 of 20 random replays have equal bits at each of" in str(found)
    plain = found.to_dict()
    assert json.loads(json.dumps(plain)) == plain


@pytest.mark.parametrize(
    "text", ["lanes(8, combine=fold)", "split_k(4)", "chunks(32)", "pairwise", "lanes(4, tail=after)", "serial+kahan"]
)
def test_the_parameter_that_stays_is_found(text: str) -> None:
    """128 terms in 4 parts are also chunks of 32: other sizes tell them apart."""
    found = fpsim.reveal_rule(sum_with(text), sizes=[128, 259], replays=20)
    assert str(found.rule) == text, found


def test_products() -> None:
    found = fpsim.reveal_rule(
        lambda a, b: fpsim.matmul(a, b, "split_k(3)+fma"), op="matmul", sizes=[(3, 60, 4), (3, 101, 4)], replays=10
    )
    assert str(found.rule) == "split_k(3)+fma"
    assert all(size[::2] == (3, 4) for size in found.verified if not isinstance(size, int))


def test_a_rule_that_changes_is_not_claimed() -> None:
    def changing(x: Any) -> Any:
        return fpsim.sum(x, "serial" if x.size < 128 else "pairwise")

    found = fpsim.reveal_rule(changing, sizes=[50, 100], replays=10)
    assert found.rule is None
    assert any("holds at 50, 100, but not at 203" in note for note in found.notes), found
    across = fpsim.reveal_rule(changing, sizes=[100, 200], replays=10)
    assert across.rule is None
    assert any("in another way" in note for note in across.notes)
    assert "100: serial" in str(across)
    below = fpsim.reveal_rule(changing, sizes=[20, 40], verify=[30, 127], replays=10)
    assert str(below.rule) == "serial"
    assert below.verified == (30, 127)


def test_what_is_not_found_at_a_size_is_said() -> None:
    found = fpsim.reveal_rule(lambda x: np.add.accumulate(np.sort(x))[-1], sizes=[30, 41], replays=5)
    assert found.rule is None
    assert "at 41 no strategy was found" in found.notes


@pytest.mark.parametrize(
    ("settings", "message"), [({"sizes": [5]}, "at least two sizes"), ({"sizes": [5, 6], "replays": 0}, "replays must")]
)
def test_usage_errors(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fpsim.reveal_rule(np.sum, **settings)
