"""Launches of ``numba.cuda`` kernels without a GPU: recorded, to compile what they launch; and counted in the simulator.

Checked with numba-cuda 0.30.4, whose dispatcher, simulator and array functions are replaced here for as long as one
host function runs.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from unittest import mock

import numpy as np


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel that was launched: its name, PTX, whether fast-math was asked for, and the blocks and their threads."""

    name: str
    ptx: str
    fastmath: bool
    grid: tuple[int, ...]
    block: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects."""
        return {
            "name": self.name, "ptx": self.ptx, "fastmath": self.fastmath,
            "grid": list(self.grid), "block": list(self.block),
        }  # fmt: skip


class _HostArray(np.ndarray):
    """An array on the host with the methods of one on a device."""

    def copy_to_host(self, ary: Any = None, stream: Any = 0) -> Any:
        del stream
        if ary is None:
            return np.array(self)
        ary[...] = self
        return ary

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        del stream
        self[...] = np.asarray(ary)

    def is_c_contiguous(self) -> bool:
        return bool(self.flags.c_contiguous)


@contextlib.contextmanager
def recorded(cc: tuple[int, int]) -> Iterator[list[Launch]]:
    """Compile each kernel that is launched inside to PTX, instead of running it; arrays stay on the host, zeros.

    The module of the kernels is best imported inside, so that whatever it imports from ``numba.cuda`` is replaced.
    """
    cuda = import_module("numba.cuda")
    dispatcher = import_module("numba.cuda.dispatcher").CUDADispatcher
    launches: list[Launch] = []
    known: set[Any] = set()

    def call(self: Any, args: Any, launch: Any) -> None:
        types = tuple(self.typeof_pyval(np.asarray(a) if isinstance(a, _HostArray) else a) for a in args)
        key = (id(self), types, launch.griddim, launch.blockdim)
        if key in known:
            return
        known.add(key)
        options = self.targetoptions
        ptx, _ = cuda.compile_ptx(
            self.py_func, types, cc=cc, fastmath=options.get("fastmath", False), opt=options.get("opt", True)
        )
        name = self.py_func.__name__
        launches.append(Launch(name, ptx, bool(options.get("fastmath")), tuple(launch.griddim), tuple(launch.blockdim)))

    def to_device(obj: Any, stream: Any = 0, copy: bool = True, to: Any = None) -> Any:
        del stream, copy, to
        return np.array(obj).view(_HostArray)

    def device_array(
        shape: Any, dtype: Any = np.float64, strides: Any = None, order: Any = "C", stream: Any = 0
    ) -> Any:
        del strides, stream
        return np.zeros(shape, dtype, order).view(_HostArray)

    def device_array_like(ary: Any, stream: Any = 0) -> Any:
        del stream
        return np.zeros_like(np.asarray(ary)).view(_HostArray)

    replaced: dict[str, Callable[..., Any]] = {
        "to_device": to_device, "device_array": device_array, "device_array_like": device_array_like,
        "synchronize": lambda: None,
    }  # fmt: skip
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(dispatcher, "call", call))
        for name, function in replaced.items():
            stack.enter_context(mock.patch.object(cuda, name, function))
        yield launches


@dataclass(slots=True)
class Counted:
    """The launches in the simulator, and the most atomic additions of floating-point numbers to one place in one."""

    launches: int = 0
    contributions: int = 0
    _places: Counter[Any] = field(default_factory=Counter)

    def launch(self) -> None:
        """Begin with a new launch."""
        self.launches += 1
        self._places.clear()

    def add(self, array: Any, place: Any) -> None:
        """Count one addition."""
        self._places[id(getattr(array, "_item", array)), str(place)] += 1
        self.contributions = max(self.contributions, *self._places.values())


@contextlib.contextmanager
def counted() -> Iterator[Counted]:
    """Count in the simulator what is launched inside, and what atomic additions it makes."""
    kernel = import_module("numba.cuda.simulator.kernel")
    api = import_module("numba.cuda.simulator.kernelapi")
    found = Counted()
    run, add = kernel.FakeCUDAKernel.__call__, api.FakeCUDAAtomic.add

    def launching(self: Any, *args: Any) -> Any:
        if not self._device and kernel._get_kernel_context() is None:
            found.launch()
        return run(self, *args)

    def adding(self: Any, array: Any, index: Any, value: Any) -> Any:
        if np.issubdtype(np.asarray(value).dtype, np.inexact) or np.issubdtype(array.dtype, np.inexact):
            found.add(array, index)
        return add(self, array, index, value)

    with (
        mock.patch.object(kernel.FakeCUDAKernel, "__call__", launching),
        mock.patch.object(api.FakeCUDAAtomic, "add", adding),
    ):
        yield found
