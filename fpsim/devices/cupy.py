"""CuPy on a CUDA GPU.

Checked with CuPy 14.2 (CUDA 13.0) on an H200.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fpsim.devices._libraries import imported, only, release, subnormal, unknown
from fpsim.devices.base import Array, Implementation, Routine
from fpsim.errors import UnknownOrderError

_LIBRARY = "CuPy"
_CHECKED = (14, 2)
_THREADS = 256  # of a block of CUB
_SIMPLE, _BESIDE = 512, 32  # threads of a block of CuPy's own kernel, and the most that begin with neighbours
_FLUSHED_PRODUCTS = "+product(float32(subnormals=False))+daz"  # by CuPy's own kernel; CUB's sum of them flushes nothing
_CUBLAS = "CuPy gives {} to cuBLAS, whose order depends on the shape and on the version"


_NEWEST = 9  # compute capability that CUB's policy was checked on


def implementations() -> list[Implementation]:
    """Return ``cupy``."""
    cupy, reason = imported("cupy", _LIBRARY, "cupy-cuda13x (or cupy-cuda12x, as the driver needs)")
    version = "" if cupy is None else str(cupy.__version__)
    reason = reason or _no_gpu(cupy)
    if reason:
        return [Implementation("cupy", _LIBRARY, version, kind="gpu", unavailable=reason)]
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    processors, threads = int(properties["multiProcessorCount"]), int(properties["maxThreadsPerMultiProcessor"])
    name = properties["name"]
    device = (
        f"{name.decode() if isinstance(name, bytes) else name} (compute capability {properties['major']}."
        f"{properties['minor']}, {processors} multiprocessors)"
    )
    strategies = _strategies(version, 5 * processors * (threads // _THREADS))
    if int(properties["major"]) > _NEWEST:
        reason = f"CuPy's sums are known for compute capabilities up to {_NEWEST}.0: CUB has other tiles on newer GPUs"
        strategies |= {name: unknown(reason) for name in strategies if name != "multiply"}
    calls = _launches(cupy)
    routines = {name: Routine(calls[name], rule, reproducible=name != "cumsum") for name, rule in strategies.items()}
    return [
        Implementation(
            "cupy", _LIBRARY, version, device, "gpu", routines,
            load=cupy.asarray, fetch=cupy.asnumpy, synchronize=cupy.cuda.runtime.deviceSynchronize,
        )
    ]  # fmt: skip


def _no_gpu(cupy: Any) -> str:
    try:
        found = cupy.cuda.runtime.getDeviceCount() > 0
    except Exception as error:  # noqa: BLE001 - CuPy's own class, that of a library that it cannot load, or others
        return f"CuPy sees no CUDA device ({str(error).splitlines()[0][:200] if str(error) else type(error).__name__})"
    return "" if found else "CuPy sees no CUDA device; nvidia-smi shows whether the driver does"


def _launches(cupy: Any) -> dict[str, Callable[..., Any]]:
    """Return the call of each operation."""
    return {
        "sum": cupy.sum,
        "sum_axis0": lambda x: cupy.sum(x, 0),
        "sum_axis1": lambda x: cupy.sum(x, 1),
        "mean": cupy.mean,
        "var": cupy.var,
        "std": cupy.std,
        "prod": cupy.prod,
        "norm": cupy.linalg.norm,
        "cumsum": cupy.cumsum,
        "dot": cupy.dot,
        "matvec": cupy.matmul,
        "vecmat": cupy.matmul,
        "matmul": cupy.matmul,
        "multiply": cupy.multiply,
    }


def _strategies(version: str, blocks: int) -> dict[str, Callable[..., str]]:
    total = f"cub_sum(blocks={blocks})"

    def checked(operation: str, known: Callable[..., str] | str = total) -> Callable[..., str]:
        what = f"cupy.{operation}"
        if release(version) != _CHECKED:
            return unknown(f"{what} is known for CuPy 14.2, not for {version}")
        return only(what, known)

    def average(x: Array) -> str:
        _check_normal(x, x.sum(dtype=np.float64) / max(x.size, 1) / 2)
        return total

    own = unknown("cupy.var and cupy.std run a kernel of CuPy's own in two passes, for which no rule is known")
    return {
        "sum": checked("sum"),
        "sum_axis0": checked("sum", _first_axis),
        "sum_axis1": checked("sum", "cub_segmented_sum"),
        "mean": checked("mean", average),
        "var": own,
        "std": own,
        "prod": checked("prod"),
        "norm": checked("linalg.norm", _unflushed(total)),
        "cumsum": unknown("cupy.cumsum is a scan whose blocks add what those before them have done so far"),
        "dot": checked("dot", f"{total}{_FLUSHED_PRODUCTS}"),
        **{name: unknown(_CUBLAS.format(name)) for name in ("matvec", "vecmat", "matmul")},
        "multiply": checked("multiply", _unflushed("serial")),
    }


def _first_axis(x: Array) -> str:
    """Return the order of CuPy's own kernel, in which threads beside each other have sums of their own.

    Source: ``_get_block_specs`` in ``cupy/_core/_reduction.pyx``.
    """
    rows, columns = x.shape
    if columns == 1 and rows > 1:
        message = "cupy.sum is not known for the first axis of a matrix of one column"
        raise UnknownOrderError(message)
    beside = max(min(columns, _BESIDE), _SIMPLE // max(rows, 1))
    beside = 1 << (beside.bit_length() - 1)
    return f"grid(1, {max(1, _SIMPLE // beside)})+start(0.0)+ftz+daz"


def _unflushed(known: str) -> Callable[..., str]:
    """Return a strategy for products; CuPy's own kernels flush subnormal numbers, CUB's do not."""

    def strategy(a: Array, b: Array | None = None) -> str:
        b = a if b is None else b
        _check_normal(a, b, a.astype(np.float64) * b.astype(np.float64))
        return known

    return strategy


def _check_normal(*values: Array) -> None:
    if subnormal(*values):
        message = "CuPy's own kernels flush subnormal numbers, of which there are some"
        raise UnknownOrderError(message)
