"""One run of a function whose operations are recorded."""

from __future__ import annotations

import contextlib
import copy
import importlib
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fpsim import _tracing_numpy, _tracing_torch
from fpsim._tracing import Recorder, digest, text_digest


@dataclass(frozen=True, slots=True)
class Side:
    """One way to run the function."""

    name: str
    function: Callable[..., Any]
    device: str | None = None
    setting: Callable[[], Any] | None = None


@dataclass(slots=True)
class Run:
    """What one run did: its operations, digests of its results, whether it used Python's module random."""

    trace: Recorder
    results: tuple[bytes, ...]
    python_random: bool


def run(side: Side, inputs: tuple[Any, ...], seed: int | None, recorder: Recorder) -> Run:
    """Run a side on copies of its function and inputs."""
    torch = sys.modules.get("torch")
    if side.device is not None:
        torch = importlib.import_module("torch")
    with contextlib.ExitStack() as stack:
        setting = side.setting() if side.setting is not None else None
        if isinstance(setting, contextlib.AbstractContextManager):
            stack.enter_context(setting)
        function, given = _copied((side.function, inputs))
        if side.device is not None:
            stack.enter_context(torch.device(side.device))  # type: ignore[union-attr]
            function, given = _moved(torch, (function, given), side.device)
        if seed is not None:
            _seed(torch, seed)
        before = random.getstate()
        root = str(getattr(function, "__module__", None) or "").partition(".")[0]
        stack.enter_context(_tracing_numpy.tracing(recorder, root))
        if torch is not None:
            stack.enter_context(_tracing_torch.tracing(recorder))
        result = function(*_followed(given))
    return Run(recorder, tuple(_digests(torch, result)), random.getstate() != before)


def _copied(value: Any, memo: dict[int, Any] | None = None) -> Any:
    """Return a copy, in which what was one thing is one thing again; what cannot be copied stays as it is."""
    memo = {} if memo is None else memo
    try:
        return copy.deepcopy(value, memo)
    except (TypeError, RuntimeError, NotImplementedError):  # locks, files, tensors that a computation gave, and such
        if isinstance(value, tuple | list):
            return type(value)(_copied(one, memo) for one in value)
        if hasattr(value, "detach"):  # a tensor with a history
            return value.detach().clone().requires_grad_(value.requires_grad)
        return value


def _seed(torch: Any, seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - the hidden stream is what the user's function may draw from
    if torch is not None:
        torch.manual_seed(seed)


def _moved(torch: Any, value: Any, device: str) -> Any:
    """Return a value with its arrays as tensors, and all tensors and models, on a device."""
    if isinstance(value, tuple | list):
        return type(value)(_moved(torch, one, device) for one in value)
    if isinstance(value, dict):
        return {name: _moved(torch, one, device) for name, one in value.items()}
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value).to(device)
    if isinstance(value, torch.Tensor):
        return value.detach().to(device).requires_grad_(value.requires_grad)
    return value.to(device) if isinstance(value, torch.nn.Module) else value


def _followed(value: Any) -> Any:
    """Return a value with its arrays and generators as ones that are recorded."""
    if type(value) in (tuple, list):
        return type(value)(map(_followed, value))
    if type(value) is dict:
        return {name: _followed(one) for name, one in value.items()}
    if type(value) is np.random.Generator:
        return _tracing_numpy.TracedGenerator(value.bit_generator)
    return _tracing_numpy.wrap(value)


def _digests(torch: Any, value: Any) -> list[bytes]:
    """Return the digests of all that a function has returned."""
    if torch is not None and isinstance(value, torch.Tensor):
        return [_tracing_torch.digest(value)]
    if isinstance(value, list | tuple):
        return [one for part in value for one in _digests(torch, part)]
    if isinstance(value, dict):
        return _digests(torch, list(value.values()))
    if isinstance(value, np.ndarray | np.generic):
        return [digest(np.asarray(_tracing_numpy.plain(value)))]
    if isinstance(value, bool | int | float | complex | str):
        return [text_digest(repr(value))]
    if hasattr(value, "__array__"):
        return [digest(np.asarray(value))]
    return []
