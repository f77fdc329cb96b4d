"""The pytest plugin: fixtures, a marker, and a report of the assertions of `fpsim.testing`.

It imports nothing but the standard library and pytest until a fixture or an option is used.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from fpsim.tolerance_tables import Entry
    from fpsim.tolerances import Tolerance

_MARKER = (
    "fpsim(confidence=..., rng=...): settings of the tolerances that the fixture fpsim_tolerance works out in a test"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("fpsim", "tolerances of floating-point results")
    group.addoption(
        "--fpsim-json", metavar="PATH", help="write what the assertions of fpsim.testing found to this file"
    )
    group.addoption("--fpsim-update", action="store_true", help="work out the table of tolerances again, and write it")
    parser.addini("fpsim_table", "file of the table of tolerances, from the root directory", default="ops.toml")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def fpsim_tolerance(request: pytest.FixtureRequest) -> Callable[..., Tolerance]:
    """Give `fpsim.tolerance`, with the settings of the marker ``fpsim`` as defaults."""
    from fpsim.tolerances import tolerance

    settings: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("fpsim"))):  # the nearest one counts
        settings |= marker.kwargs

    def worked_out(op: str, *inputs: Any, **given: Any) -> Tolerance:
        return tolerance(op, *inputs, **{**settings, **given})

    return worked_out


class CheckedTable:
    """The table of tolerances; an entry that has become too loose or too tight fails the test that uses it."""

    def __init__(self, path: Path) -> None:
        from fpsim.tolerance_tables import read_table

        self.path = path
        self._table = read_table(path)
        self._problems: dict[str, str] = {}

    def __getitem__(self, name: str) -> Entry:
        entry = self._table[name]
        if name not in self._problems:
            self._problems[name] = entry.problem()
        if self._problems[name]:
            pytest.fail(f"{self.path.name}: {self._problems[name]}", pytrace=False)
        return entry


@pytest.fixture(scope="session")
def fpsim_table(request: pytest.FixtureRequest) -> CheckedTable:
    """Read the table that the setting ``fpsim_table`` names, by default ops.toml; see `fpsim.tolerance_tables.Entry`."""
    return CheckedTable(_table_path(request.config))


def _table_path(config: pytest.Config) -> Path:
    return config.rootpath / str(config.getini("fpsim_table"))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Work the table of tolerances out again where that was asked for, once in a run."""
    config = session.config
    if not config.getoption("--fpsim-update") or hasattr(config, "workerinput"):
        return
    from fpsim.errors import FpsimError
    from fpsim.tolerance_tables import read_table

    path = _table_path(config)
    try:
        read_table(path).updated().write(path, overwrite=True)
    except FpsimError as error:
        message = f"--fpsim-update: {error}; `fpsim tolerance --table {path.name}` makes a new table"
        raise pytest.UsageError(message) from error


def pytest_cmdline_main(config: pytest.Config) -> None:
    """Refuse a report over a file that is none, before any test runs."""
    path = config.getoption("--fpsim-json")
    if path and _is_foreign(Path(path)):
        message = f"--fpsim-json: {path} is there already and is no report of this plugin; choose another name"
        raise pytest.UsageError(message)


def _is_foreign(path: Path) -> bool:
    """Tell whether a path is something that this plugin did not write."""
    if not path.exists():
        return False
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return True
    return not (isinstance(found, dict) and str(found.get("schema", "")).startswith("fpsim.pytest/"))


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with new.open("x", encoding="utf-8") as file:
            file.write(text)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def report() -> dict[str, Any]:
    """Return what the assertions found, and how many false alarms are to be expected."""
    testing = sys.modules.get("fpsim.testing")
    records: list[dict[str, Any]] = [] if testing is None else list(testing.RECORDS)
    alarms = sum(1.0 - one["confidence"] for one in records if "confidence" in one)
    return {
        "schema": "fpsim.pytest/1",
        "assertions": records,
        "failed": sum(not one["passed"] for one in records),
        "expected_false_alarms_per_1000_runs": 1000.0 * alarms,
    }


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say how many assertions were made by tolerance, and write the report that was asked for."""
    path = config.getoption("--fpsim-json")
    found = report()
    if path:
        try:
            _write(Path(path), json.dumps(found, indent=2, allow_nan=False) + "\n")
            terminalreporter.write_line(f"fpsim: report written to {path}")
        except OSError as error:
            terminalreporter.write_line(f"fpsim: no report, {path} cannot be written: {error.strerror}", red=True)
    close = [one for one in found["assertions"] if "confidence" in one]
    if close:
        terminalreporter.write_line(
            f"fpsim: {len(close)} assertion{'s' * (len(close) > 1)} by tolerance, {sum(not one['passed'] for one in close)} failed;"
            f" {found['expected_false_alarms_per_1000_runs']:.2g} false alarms expected in 1,000 runs"
        )
