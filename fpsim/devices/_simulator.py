"""What Numba's CUDA simulator lacks: shuffles within a warp, and the sums and products of libdevice.

Source: CUDA C++ Programming Guide 13.0, 10.22 "Warp Shuffle Functions": lanes whose source is outside the warp keep
their own value. Checked with numba-cuda 0.30.4.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any
from unittest import mock

import numpy as np

_WARP = 32
_PATIENCE = 60.0  # seconds that a lane waits for the others of its warp
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
}  # fmt: skip


class _Warps:
    """Where the lanes of each warp of the running block meet."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.barriers: dict[Any, threading.Barrier] = {}
        self.values: defaultdict[Any, dict[int, Any]] = defaultdict(dict)

    def exchange(self, mask: int, value: Any, source: Callable[[int], int]) -> Any:
        """Return the value of the lane that `source` gives for this one; its own where there is none."""
        thread: Any = threading.current_thread()
        warp, lane = divmod(thread.thread_id, _WARP)
        lanes = min(_WARP, int(np.prod(thread._manager._block_dim)) - warp * _WARP)
        key = (thread._manager, warp, int(mask))
        with self.lock:
            if key not in self.barriers:
                self.barriers[key] = threading.Barrier((int(mask) & ((1 << lanes) - 1)).bit_count())
            values = self.values[key]
            values[lane] = value
        try:
            self.barriers[key].wait(_PATIENCE)
            got = values.get(source(lane), value)
            self.barriers[key].wait(_PATIENCE)
        except threading.BrokenBarrierError as error:
            message = f"not all lanes of warp {warp} that the mask {int(mask):#x} names came to a shuffle"
            raise RuntimeError(message) from error
        return got


def _shuffles(warps: _Warps) -> dict[str, Callable[..., Any]]:
    """Return the methods of the simulator's module."""

    def down(mask: int, value: Any, delta: int) -> Any:
        return warps.exchange(mask, value, lambda lane: lane + int(delta) if lane + delta < _WARP else lane)

    def up(mask: int, value: Any, delta: int) -> Any:
        return warps.exchange(mask, value, lambda lane: lane - int(delta) if lane >= delta else lane)

    def xor(mask: int, value: Any, other: int) -> Any:
        return warps.exchange(mask, value, lambda lane: lane ^ int(other))

    def index(mask: int, value: Any, source: int) -> Any:
        return warps.exchange(mask, value, lambda _: int(source) % _WARP)

    def syncwarp(mask: int = 0xFFFFFFFF) -> None:
        warps.exchange(mask, None, lambda lane: lane)

    return {
        "shfl_down_sync": down, "shfl_up_sync": up, "shfl_xor_sync": xor, "shfl_sync": index, "syncwarp": syncwarp,
    }  # fmt: skip


@contextlib.contextmanager
def completed() -> Iterator[None]:
    """Give the simulator what it lacks, for as long as this lasts; other functions of libdevice raise an error."""
    api = import_module("numba.cuda.simulator.kernelapi")
    manager = import_module("numba.cuda.simulator.kernel").BlockManager
    libdevice = import_module("numba.cuda.libdevice")
    warps, run = _Warps(), manager.run

    def fresh(self: Any, *args: Any) -> Any:
        warps.barriers.clear()
        warps.values.clear()
        return run(self, *args)

    known = {
        f"{letter}{name}_rn": _as_type(operation, dtype)
        for letter, dtype in (("f", np.float32), ("d", np.float64))
        for name, operation in _OPERATIONS.items()
    }
    # The simulator has no fused operations, and the order does not depend on them.
    for name, dtype in (("fmaf_rn", np.float32), ("fma_rn", np.float64), ("fmaf", np.float32), ("fma", np.float64)):
        known[name] = _as_type(lambda a, b, c: a * b + c, dtype)
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(manager, "run", fresh))
        for name, function in _shuffles(warps).items():
            if not hasattr(api.FakeCUDAModule, name):
                stack.enter_context(mock.patch.object(api.FakeCUDAModule, name, staticmethod(function), create=True))
        stack.enter_context(mock.patch.object(api.FakeCUDAModule, "libdevice", libdevice, create=True))
        for name in [one for one in vars(libdevice) if callable(getattr(libdevice, one)) and not one.startswith("_")]:
            stack.enter_context(mock.patch.object(libdevice, name, known.get(name) or _missing(name)))
        yield


def _as_type(operation: Callable[..., Any], dtype: Any) -> Callable[..., Any]:
    def computed(*values: Any) -> Any:
        return operation(*(dtype(value) for value in values))

    return computed


def _missing(name: str) -> Callable[..., Any]:
    def missing(*values: Any) -> Any:
        del values
        message = f"module 'numba.cuda' has no attribute 'libdevice.{name}'"
        raise AttributeError(message)

    return missing
