"""What libraries gave, by the bit, and how a library that is installed is checked.

``data/recorded_libraries.npz`` was recorded by ``benchmarks/gpu/check_devices.py``, on operands of ``device_inputs.py``.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import device_inputs as inputs
import numpy as np
import pytest

from fpsim.devices import _libraries
from fpsim.devices.base import Implementation
from fpsim.devices.operations import OPERATIONS, predicted
from fpsim.errors import MissingExtraError, UnknownOrderError

FILE = Path(__file__).parent / "data" / "recorded_libraries.npz"
RECORDED: dict[str, Any] = dict(np.load(FILE))
_LIVE = ((1,), (7,), (33,), (300,), (5000,)), ((3, 5), (40, 9), (129, 70)), ((3, 5, 2),)


def routines(begin: str) -> list[str]:
    """Return the recorded routines whose names begin so."""
    return sorted(key.removesuffix("/bits") for key in RECORDED if key.endswith("/bits") and key.startswith(begin))


def replay(routine: str) -> list[tuple[Any, str, str]]:
    """Return the recorded results that the strategy does not give."""
    operation = routine.rsplit("/", 1)[1]
    wrong = []
    rows = zip(*(RECORDED[f"{routine}/{part}"] for part in ("size", "law", "strategy", "bits")), strict=True)
    for size, law, strategy, bits in rows:
        name, text = str(RECORDED["laws"][law]), str(RECORDED["strategies"][strategy])
        operands = inputs.operands(operation, OPERATIONS[operation].shapes(*size.tolist()), name)
        if inputs.digest(predicted(operation, text, *operands)) != bits:
            wrong.append((size.tolist(), name, text))
    return wrong


def check_live(one: Implementation) -> None:
    """Compare a library that is installed with its strategies."""
    known = 0
    for name in one.routines:
        for size in _LIVE[OPERATIONS[name].dimensions - 1]:
            for law in inputs.LAWS:
                operands = inputs.operands(name, OPERATIONS[name].shapes(*size), law)
                actual = one.run(name, *operands)
                one.synchronize()
                try:
                    expected = predicted(name, one.strategy(name, *operands), *operands)
                except UnknownOrderError:
                    continue
                known += 1
                assert inputs.digest(actual) == inputs.digest(expected), (one.name, name, size, law)
    assert known


def check_reasons(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, absent: str) -> None:
    """Check what is said where a library is not there, and where it is broken."""
    found = importlib.util.find_spec

    def without(wanted: str, package: str | None = None) -> Any:
        return None if wanted == name else found(wanted, package)

    monkeypatch.setattr(_libraries, "find_spec", without)
    assert {one.unavailable for one in module.implementations()} == {absent}

    def broken(wanted: str, package: str | None = None) -> Any:
        if wanted == name:
            message = "libcudart.so.13: cannot open shared object file"
            raise OSError(message)
        return importlib.import_module(wanted, package)

    monkeypatch.setattr(_libraries, "find_spec", lambda _: True)
    monkeypatch.setattr(_libraries, "import_module", broken)
    for one in module.implementations():
        assert "is installed, but cannot be imported (OSError: libcudart.so.13" in one.unavailable
        with pytest.raises(MissingExtraError, match="cannot run here"):
            one.run("sum", np.ones(3, np.float32))
