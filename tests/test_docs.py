"""Every example in docstrings, the README and the documentation is run; so is every command they show."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import fpsim
from fpsim.cli import main
from fpsim.orders import ORDERS
from fpsim.strategies import SETTINGS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = sorted(
    module.name for module in pkgutil.walk_packages(fpsim.__path__, "fpsim.") if not module.name.endswith("__main__")
)
COMMANDS = sorted(
    {
        part.partition(" > ")[0].strip()
        for page in PAGES
        for block in re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        for line in block.splitlines()
        for part in line.split("&&")
        if part.strip().startswith("fpsim ")
    }
)


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:pycon|python)\n(.*?)```", text, re.DOTALL)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page.name, str(page), 0)
    runner = doctest.DocTestRunner()
    runner.run(test)
    assert runner.summarize().failed == 0


def test_pages_link_to_pages_that_exist() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_order_and_setting_is_in_the_table() -> None:
    table = (ROOT / "docs" / "strategy-text.md").read_text(encoding="utf-8")
    for name in (*ORDERS, *SETTINGS):
        assert re.search(rf"`{name}[`(]", table), name


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The files that a command names are made small: a product of 6x8 and 8x5 in two orders.
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    words = shlex.split(command)
    a, b = rng.random((6, 8), np.float32), rng.random((8, 5), np.float32)
    operation = next((word for word in words if word in {"matmul", "dot", "sum"}), "matmul")
    inputs = {"matmul": (a, b), "dot": (a[0], b[:, 0]), "sum": (a,)}[operation]
    call = getattr(fpsim, operation)
    extra = {"axis": 0} if "--axis" in words else {}
    files = [word for word in words if word.endswith((".npy", ".csv"))]
    named = [word for word in words[words.index("--inputs") :] if word in files] if "--inputs" in words else []
    observed = [word for word in files if word not in named]
    arrays = [call(*inputs, order, **extra) for order in ("serial", "pairwise")][: len(observed)]
    for name, array in zip([*observed, *named], [*arrays, *inputs[: len(named)]], strict=True):
        path = Path(name)
        path.parent.mkdir(exist_ok=True)
        if path.suffix == ".npy":
            np.save(path, array)
        else:
            path.write_text("\n".join(repr(float(x)) for x in np.atleast_1d(array)), encoding="utf-8")
    assert main(words[1:]) in {0, 3}
