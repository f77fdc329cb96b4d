"""Kernels of our own on a CUDA GPU, compiled by Numba, each of which realises one order; and ``numba.cuda.reduce``.

Each kernel with products comes in two forms: fused, as a compiler contracts ``a * b + c`` by default, and under the
name with ``.separate`` with products that are rounded first. Checked on an H200 with numba-cuda 0.30.4, each routine on
63 to 223 sizes by five laws, every bit (``benchmarks/gpu/check_devices.py``); what atomic additions give in more than
one block is, of up to six blocks, the sum in one of their sequences.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module, metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.devices import _cuda_kernels as kernels
from fpsim.devices._libraries import unknown
from fpsim.devices.base import Implementation, Routine
from fpsim.errors import UnknownOrderError

_LIBRARY = "numba-cuda"
_SETTINGS = {"sum": "", "fused": "+fma", "separate": "+separate"}
_CHECKED = (0, 30)  # numba.cuda.reduce
_BROKEN = (0, 30, 4)  # calls numpy.row_stack, which NumPy 2.5 no longer has


def implementations() -> list[Implementation]:
    """Return the implementations of this module: ``cuda.*`` and ``numba.cuda.reduce``."""
    reason, version, device = _found()
    found = []

    def add(name: str, routines: dict[str, Routine]) -> None:
        found.append(
            Implementation(
                name, _LIBRARY, version, device, "gpu", routines, _load, _fetch, _synchronize, unavailable=reason
            )
        )

    for name, parts in kernels.REDUCTIONS.items():
        if parts.order:
            add(f"cuda.{name}", {"sum": _reduction(name, "sum"), "dot": _reduction(name, "fused")})
            add(f"cuda.{name}.separate", {"dot": _reduction(name, "separate")})
    for name in kernels.PRODUCTS:
        add(f"cuda.{name}", {"matmul": _product(name, "fused")})
        add(f"cuda.{name}.separate", {"matmul": _product(name, "separate")})
    rule: Callable[..., str] = _known("numba_cuda_reduce")
    if not reason and _numbers(version)[:2] != _CHECKED:
        rule = unknown(f"numba.cuda.reduce is known for numba-cuda 0.30, not for {version}")
    add("numba.cuda.reduce", {"sum": Routine(_reduce, rule)})
    return found


def block_sums(*operands: NDArray[Any], product: kernels.Product = "sum") -> NDArray[Any]:
    """Return what the blocks of ``cuda.atomic`` add to the total, in the sequence of the blocks, for x or a and b."""
    x, y = (_load(operand) for operand in (operands[0], operands[-1]))
    parts = kernels.REDUCTIONS["grid_stride"]  # which differs in what it does with these sums
    out: NDArray[Any] = _run("grid_stride", product, x, y, parts.grid).copy_to_host()
    return out


# --- whether it can run ---------------------------------------------------------------------------------------------


def _found() -> tuple[str, str, str]:
    """Return why the kernels cannot run here, or nothing; the version of numba-cuda; and the GPU."""
    try:
        version = metadata.version(_LIBRARY)
    except metadata.PackageNotFoundError:
        return f"{_LIBRARY} is not installed: python -m pip install 'numba-cuda[cu13]'", "", ""
    if _numbers(version) <= _BROKEN and _numbers(np.__version__) >= (2, 5):
        reason = f"{_LIBRARY} {version} does not work with NumPy {np.__version__}: python -m pip install 'numpy<2.5'"
        return reason, version, ""
    try:
        cuda = kernels.numba_cuda()
    except (ImportError, OSError, RuntimeError, AttributeError) as error:  # without, or with another CUDA or numba
        return f"numba.cuda cannot be imported ({_in_short(error)})", version, ""
    if os.environ.get("NUMBA_ENABLE_CUDASIM", "0") != "0":
        return "NUMBA_ENABLE_CUDASIM is set, and the simulator does not round as a GPU does", version, ""
    try:
        if not cuda.is_available():
            return "no CUDA GPU was found; numba.cuda.detect() tells more", version, ""
        gpu = cuda.get_current_device()
    except Exception as error:  # noqa: BLE001 - classes of its own, of the driver, or of a library that it cannot load
        return f"numba.cuda cannot use the GPU ({_in_short(error)}); numba.cuda.detect() tells more", version, ""
    name = gpu.name.decode() if isinstance(gpu.name, bytes) else gpu.name
    return "", version, f"{name} (compute capability {'.'.join(map(str, gpu.compute_capability))})"


def _in_short(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3] if part.isdecimal())


# --- routines -------------------------------------------------------------------------------------------------------


def _reduction(name: str, product: kernels.Product) -> Routine:
    parts, settings = kernels.REDUCTIONS[name], _SETTINGS[product]

    def launch(x: Any, y: Any = None) -> Any:
        y = x if y is None else y
        if parts.store == "atomic":
            total = _load(np.zeros(1, x.dtype))
            return _run(name, product, x, y, parts.grid, total)
        blocks = parts.blocks(x.size)
        sums = _run(name, product, x, y, blocks)
        return sums if blocks == 1 else _run(parts.second, "sum", sums, sums, 1)

    def strategy(*operands: NDArray[Any]) -> str:
        n = operands[0].size
        if parts.store == "atomic" and n > parts.block:
            message = f"cuda.{name} is not known for {n} terms: the {parts.grid} blocks arrive in any order"
            raise UnknownOrderError(message)
        return parts.order.format(grid=parts.blocks(n)) + settings

    return Routine(launch, _known(strategy), reproducible=parts.store != "atomic")


def _product(name: str, product: kernels.Product) -> Routine:

    def launch(a: Any, b: Any) -> Any:
        cuda, tile = kernels.numba_cuda(), kernels.TILE
        rows, columns = a.shape[0], b.shape[1]
        c = cuda.device_array((rows, columns), a.dtype)
        with _quietly():
            kernels.compiled(name, product, a.dtype.name)[(-(-columns // tile), -(-rows // tile)), (tile, tile)](
                a, b, c
            )
        return c

    return Routine(launch, _known(f"serial+start(0.0){_SETTINGS[product]}"))


def _known(strategy: Callable[..., str] | str) -> Callable[..., str]:
    """Return a function that gives the strategy for float32 or float64 operands, for which kernels are compiled."""

    def known(*operands: NDArray[Any]) -> str:
        for operand in operands:
            _check(operand)
        text = strategy if isinstance(strategy, str) else strategy(*operands)
        if operands[0].dtype == np.float32 or text == "numba_cuda_reduce":
            return text
        return f"{text.replace('+ftz', '')}+acc(float64)"  # only float32 is flushed by atomic additions

    return known


def _check(x: NDArray[Any]) -> None:
    if x.dtype not in (np.float32, np.float64):
        message = f"the CUDA kernels take float32 and float64, not {x.dtype}"
        raise UnknownOrderError(message)


def _run(name: str, product: kernels.Product, x: Any, y: Any, blocks: int, out: Any = None) -> Any:
    """Launch the kernel of a reduction; return what its blocks have stored."""
    if out is None:
        out = kernels.numba_cuda().device_array(blocks, x.dtype)
    with _quietly():
        kernels.compiled(name, product, x.dtype.name)[blocks, kernels.REDUCTIONS[name].block](x, y, out)
    return out


@contextmanager
def _quietly() -> Iterator[None]:
    """Leave out the warning that a GPU has more room than a small launch takes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", import_module("numba.core.errors").NumbaPerformanceWarning)
        yield


@functools.cache
def _add() -> Any:
    return kernels.numba_cuda().reduce(lambda a, b: a + b)


def _reduce(x: Any) -> Any:
    with _quietly():
        return x.dtype.type(_add()(x))


def _load(x: NDArray[Any]) -> Any:
    _check(x)
    return kernels.numba_cuda().to_device(np.ascontiguousarray(x))


def _fetch(result: Any) -> Any:
    if not hasattr(result, "copy_to_host"):
        return result
    host = result.copy_to_host()
    return host if host.ndim == 2 else host[0]


def _synchronize() -> None:
    kernels.numba_cuda().synchronize()
