"""The page of what is known of real libraries names all that there is."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from fpsim.devices import gloo, implementations
from fpsim.devices.operations import OPERATIONS

PAGE = (Path(__file__).parents[1] / "docs" / "devices.md").read_text(encoding="utf-8")


def table() -> dict[str, set[str]]:
    """Return the operations that the page has for each implementation."""
    found: dict[str, set[str]] = defaultdict(set)
    section = PAGE.split("## Implementation by operation")[1].split("\n## ")[0]
    rows = [line.replace(r"\|", "").split("|")[1:-1] for line in section.splitlines() if line.startswith("| `")]
    for names, operations, _, _ in rows:
        for name in re.findall(r"`([^`]+)`", names):
            found[name].update(re.findall(r"`([^`]+)`", operations))
    return found


def test_every_implementation_and_operation_is_named() -> None:
    known = [*implementations(), *gloo.implementations()]
    named = table()
    assert named.keys() == {one.name for one in known}
    for one in known:
        assert named[one.name] >= set(one.routines), one.name
        assert named[one.name] <= set(OPERATIONS)


def test_libraries_that_may_be_absent_have_all_operations() -> None:
    named = table()
    for name in ("numpy", "torch.cpu", "torch.cuda", "jax.cpu", "jax.gpu", "cupy"):
        assert named[name] == set(OPERATIONS) - {"all_reduce"}, name
