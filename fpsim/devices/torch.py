"""PyTorch on the CPU and on a CUDA GPU.

Checked with PyTorch 2.13 on an x86-64 CPU (AMD EPYC, Zen 4), and 2.11 with CUDA 13.0 on an H200.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fpsim.devices._libraries import imported, is_x86, only, release, unknown
from fpsim.devices.base import Array, Implementation, Routine
from fpsim.errors import UnknownOrderError

_LIBRARY = "PyTorch"
_CHECKED = (2, 11), (2, 13)  # the first and the last release that is known
_GRAIN = 32768  # elements from which threads share a product of all terms
_MKL = "PyTorch gives {} to MKL, whose order depends on the processor and on the version"
_CUBLAS = "PyTorch gives {} to cuBLAS, whose order depends on the shape and on the version"
_BLAS = ("dot", "matvec", "vecmat", "matmul")


def implementations() -> list[Implementation]:
    """Return ``torch.cpu`` and ``torch.cuda``."""
    torch, reason = imported("torch", _LIBRARY, "torch")
    return [_cpu(torch, reason), _cuda(torch, reason)]


def _launches(torch: Any) -> dict[str, Callable[..., Any]]:
    """Return the call of each operation."""
    return {
        "sum": torch.sum,
        "sum_axis0": lambda x: torch.sum(x, 0),
        "sum_axis1": lambda x: torch.sum(x, 1),
        "mean": torch.mean,
        "var": lambda x: torch.var(x, correction=0),
        "std": lambda x: torch.std(x, correction=0),
        "prod": torch.prod,
        "norm": torch.linalg.vector_norm,
        "cumsum": lambda x: torch.cumsum(x, 0),
        "dot": torch.dot,
        "matvec": torch.mv,
        "vecmat": torch.matmul,
        "matmul": torch.mm,
        "multiply": torch.mul,
    }


def _routines(
    torch: Any, strategies: dict[str, Callable[..., str]], varying: tuple[str, ...] = ()
) -> dict[str, Routine]:
    launches = _launches(torch)
    return {name: Routine(launches[name], rule, reproducible=name not in varying) for name, rule in strategies.items()}


# --- CPU ------------------------------------------------------------------------------------------------------------


def _cpu(torch: Any, reason: str) -> Implementation:
    if reason:
        return Implementation("torch.cpu", _LIBRARY, unavailable=reason)
    version = str(torch.__version__)
    code = str(torch.backends.cpu.get_cpu_capability())
    threads = torch.get_num_threads()
    device = f"CPU, {code} kernels, {threads} thread{'s' * (threads > 1)}"
    return Implementation(
        "torch.cpu", _LIBRARY, version, device, "cpu", _routines(torch, _cpu_strategies(torch, version, code)),
        load=lambda x: _as_tensor(torch, x), fetch=lambda y: y.numpy(),
    )  # fmt: skip


def _cpu_strategies(torch: Any, version: str, code: str) -> dict[str, Callable[..., str]]:
    def checked(operation: str, known: Callable[..., str] | str, *dtypes: str) -> Callable[..., str]:
        what = f"torch.{operation} on the CPU"
        if not is_x86():
            return unknown(f"{what} is known for x86-64 processors")
        if not _CHECKED[0] <= release(version) <= _CHECKED[1]:
            return unknown(f"{what} is known for PyTorch 2.11 to 2.13, not for {version}")
        return only(what, known, *dtypes)

    def total(*operands: Array) -> str:
        return _with_arguments("torch_cpu_sum", threads=_threads(torch), lanes=_lanes(operands[0]))

    def product(x: Array) -> str:
        return _product(x, torch.get_num_threads())

    def running(x: Array) -> str:
        return "serial+acc(float64)+start(0.0)" + ("+output(float32)" if x.dtype == np.float32 else "")

    both = ("float32", "float64")
    norm = _norm("torch_cpu_norm" if code != "DEFAULT" else "torch_cpu_norm(code=default)")
    return {
        "sum": checked("sum", total, *both),
        "sum_axis0": checked("sum", total, *both),
        "sum_axis1": checked("sum", total, *both),
        "mean": checked("mean", total, *both),
        "var": checked("var", total, *both),
        "std": checked("std", total, *both),
        "prod": checked("prod", product, *both),
        "norm": checked("linalg.vector_norm", norm),
        "cumsum": checked("cumsum", running, *both),
        **{name: unknown(_MKL.format(name)) for name in _BLAS},
        "multiply": only("torch.mul", "serial"),
    }


def _threads(torch: Any) -> int | None:
    threads = int(torch.get_num_threads())
    return threads if threads > 1 else None


def _lanes(x: Array) -> int | None:
    return 4 if x.dtype == np.float64 else None


def _with_arguments(name: str, **arguments: int | None) -> str:
    given = ", ".join(f"{key}={value}" for key, value in arguments.items() if value is not None)
    return f"{name}({given})" if given else name


def _norm(known: str) -> Callable[..., str]:
    # Of one number PyTorch takes the absolute value: no square that could underflow or overflow.
    return lambda x: known if x.size != 1 else "serial+acc(float64)+output(float32)"


def _product(x: Array, threads: int) -> str:
    """Return the order of ``torch.prod``: four vectors of lanes, their terms left over one by one.

    Source: ``binary_kernel_reduce_vec`` in ``aten/src/ATen/native/cpu/Reduce.h``.
    """
    lanes = 32 // x.dtype.itemsize
    one = f"lanes({4 * lanes}, combine=lanes({lanes}, pairwise), tail=after)"
    accumulator = "+acc(float64)" if x.dtype == np.float64 else ""
    parts = min(threads, -(-x.size // _GRAIN))
    if parts <= 1:
        return one + accumulator
    if threads >= 4 * lanes:
        message = f"torch.prod on the CPU is not known for {threads} threads"
        raise UnknownOrderError(message)
    return f"chunks({-(-x.size // parts)}, {one}){accumulator}"


# --- CUDA -----------------------------------------------------------------------------------------------------------


def _cuda(torch: Any, reason: str) -> Implementation:
    reason = reason or _no_gpu(torch)
    version = "" if torch is None else str(torch.__version__)
    if reason:
        return Implementation("torch.cuda", _LIBRARY, version, kind="gpu", unavailable=reason)
    properties = torch.cuda.get_device_properties(0)
    processors = properties.multi_processor_count
    blocks = processors * (properties.max_threads_per_multi_processor // 512)
    device = (
        f"{properties.name} (compute capability {properties.major}.{properties.minor}, {processors} multiprocessors),"
        f" CUDA {torch.version.cuda}"
    )
    return Implementation(
        "torch.cuda", _LIBRARY, version, device, "gpu",
        _routines(torch, _cuda_strategies(version, blocks), varying=("cumsum",)),
        load=lambda x: _as_tensor(torch, x).to("cuda:0"), fetch=lambda y: y.cpu().numpy(),
        synchronize=torch.cuda.synchronize,
    )  # fmt: skip


def _no_gpu(torch: Any) -> str:
    if torch.version.cuda is None:
        return f"PyTorch {torch.__version__} is built without CUDA; pytorch.org/get-started has builds with it"
    try:
        found = torch.cuda.is_available() and torch.cuda.device_count() > 0
    except (RuntimeError, AssertionError) as error:
        return f"PyTorch sees no CUDA device ({error})"
    return "" if found else "PyTorch sees no CUDA device; nvidia-smi shows whether the driver does"


def _cuda_strategies(version: str, blocks: int) -> dict[str, Callable[..., str]]:
    total = f"torch_cuda_sum(blocks={blocks})"

    def checked(operation: str, known: Callable[..., str] | str = total) -> Callable[..., str]:
        what = f"torch.{operation} on CUDA"
        if not _CHECKED[0] <= release(version) <= _CHECKED[1]:
            return unknown(f"{what} is known for PyTorch 2.11 to 2.13, not for {version}")
        return only(what, known)

    welford = unknown("torch.var and torch.std on CUDA combine Welford's recurrences of many threads")
    scan = unknown("torch.cumsum on CUDA is a scan whose blocks add what those before them have done so far")
    return {
        "sum": checked("sum"),
        "sum_axis0": checked("sum"),
        "sum_axis1": checked("sum"),
        "mean": checked("mean", f"{total}+reciprocal"),
        "var": welford,
        "std": welford,
        "prod": checked("prod"),
        "norm": checked("linalg.vector_norm", _norm(f"{total}+fma")),
        "cumsum": scan,
        **{name: unknown(_CUBLAS.format(name)) for name in _BLAS},
        "multiply": only("torch.mul", "serial"),
    }


def _as_tensor(torch: Any, x: Array) -> Any:
    return torch.from_numpy(np.require(x, requirements=["C", "W", "O"]))
