"""The package as a whole: a light import, and names that resolve."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import fpsim
from fpsim.cli import main

SOURCE = Path(fpsim.__file__).parent


def test_import_loads_nothing_heavy() -> None:
    code = "import sys, fpsim; print([m for m in ('numba', 'numpy', 'mpmath', 'llvmlite') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_public_names() -> None:
    for name in fpsim.__all__:
        assert getattr(fpsim, name) is not None
    assert set(dir(fpsim)) == set(fpsim.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = fpsim.nothing


def test_type_checkers_see_every_public_name() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    names = {alias.asname for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert set(fpsim.__all__) - {"__version__"} <= names


def test_no_module_has_the_name_of_a_public_function() -> None:
    modules = {path.stem for path in SOURCE.glob("*.py")}
    assert not modules & (set(fpsim.__all__) - fpsim._MODULES)


def test_layers() -> None:
    """The kernels import nothing of fpsim but kernels, and only they and the devices import numba."""
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imports = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        imports += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
        for name in imports:
            if path.parent.name == "kernels":
                assert not name.startswith("fpsim") or name.startswith("fpsim.kernels"), path
            elif path.parent.name != "devices":
                assert name.partition(".")[0] not in {"numba", "llvmlite"}, path


def test_no_fast_math() -> None:
    for path in (SOURCE / "kernels").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword):
                assert node.arg not in {"fastmath", "parallel"}, path


def test_every_module_imports() -> None:
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        if parts[-1] not in {"__main__", "__init__"}:
            importlib.import_module(".".join(parts))


def test_a_defect_has_an_exit_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # 1, with which Python ends on an exception, would say that the data show a bug.
    def broken(arguments: object) -> int:
        raise ZeroDivisionError(arguments)

    monkeypatch.setattr("fpsim.commands.demo.run", broken)
    assert main(["demo"]) == 70
    assert "defect of fpsim" in capsys.readouterr().err
    monkeypatch.setattr("fpsim.commands.demo.run", lambda _: (_ for _ in ()).throw(MemoryError))
    assert main(["demo"]) == 2
    assert "not enough memory" in capsys.readouterr().err
