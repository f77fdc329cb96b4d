"""JAX on the CPU and on a GPU.

Checked with JAX 0.10.2 and 0.11.2 on x86-64 CPUs with AVX-512 (AMD EPYC, Intel Xeon).
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from typing import Any

import numpy as np

from fpsim.devices._libraries import has_avx512, imported, is_x86, only, release, subnormal, unknown
from fpsim.devices.base import Array, Implementation, Routine
from fpsim.errors import UnknownOrderError

_LIBRARY = "JAX"
_CHECKED = ((0, 10), (0, 11))
_SERIAL = 32  # terms up to which XLA's code for the CPU takes products one by one
_LONG = 4096  # elements from which XLA gives sums to a library, whose lanes may be the processor's
_WINDOW, _SCAN = 16, 256  # terms of a window of a cumulative sum, and up to which there is a single level of them
_EMITTER = "XLA compiles {} for its shape on the CPU, and no rule is known"
_GPU = "XLA compiles a kernel of its own for each shape on a GPU, and no rule is known"


def implementations() -> list[Implementation]:
    """Return ``jax.cpu`` and ``jax.gpu``."""
    jax, reason = imported("jax", _LIBRARY, "jax")
    if not reason:
        _, reason = imported("jaxlib", "jaxlib", "jax")
    return [_on(jax, "cpu", reason), _on(jax, "gpu", reason)]


def _launches(jax: Any) -> dict[str, Callable[..., Any]]:
    """Return the compiled call of each operation."""
    from importlib import import_module

    jnp = import_module("jax.numpy")
    calls: dict[str, Callable[..., Any]] = {
        "sum": jnp.sum,
        "sum_axis0": lambda x: jnp.sum(x, 0),
        "sum_axis1": lambda x: jnp.sum(x, 1),
        "mean": jnp.mean,
        "var": jnp.var,
        "std": jnp.std,
        "prod": jnp.prod,
        "norm": jnp.linalg.norm,
        "cumsum": jnp.cumsum,
        "dot": jnp.dot,
        "matvec": jnp.matmul,
        "vecmat": jnp.matmul,
        "matmul": jnp.matmul,
        "multiply": jnp.multiply,
    }
    return {name: jax.jit(call) for name, call in calls.items()}


def _on(jax: Any, kind: str, reason: str) -> Implementation:
    name = f"jax.{kind}"
    version = "" if jax is None else str(jax.__version__)
    device: Any = None
    if not reason:
        device, reason = _device(jax, kind)
    if reason:
        return Implementation(name, _LIBRARY, version, kind=kind, unavailable=reason)
    strategies = _cpu_strategies(version) if kind == "cpu" else dict.fromkeys(_cpu_strategies(version), unknown(_GPU))
    launches = _launches(jax)
    last: list[Any] = []

    def launched(call: Callable[..., Any]) -> Callable[..., Any]:
        def launch(*operands: Any) -> Any:
            last[:] = [call(*operands)]
            return last[0]

        return launch

    routines = {op: Routine(launched(launches[op]), rule) for op, rule in strategies.items()}
    threads = f", {_threads()} thread{'s' * (_threads() > 1)}" if kind == "cpu" else ""
    text = f"{platform.machine()} CPU{threads}" if kind == "cpu" else str(device.device_kind)
    return Implementation(
        name, _LIBRARY, version, text, kind, routines,
        load=lambda x: jax.device_put(x, device), fetch=np.asarray, synchronize=lambda: jax.block_until_ready(last),
    )  # fmt: skip


def _device(jax: Any, kind: str) -> tuple[Any, str]:
    """Return a device, and why there is none."""
    try:
        found = jax.devices(kind)
    except (RuntimeError, ValueError) as error:
        reason = str(error).split("\n", 1)[0][:200]
        if kind == "gpu":
            return None, "JAX sees no GPU; its builds for CUDA are installed by: python -m pip install 'jax[cuda13]'"
        return None, f"JAX sees no CPU device ({reason})"
    return found[0], ""


def _threads() -> int:
    """Return the number of threads that XLA's client for the CPU starts with."""
    for name in ("PJRT_NPROC", "NPROC"):
        if os.environ.get(name, "").isdecimal():
            return max(1, int(os.environ[name]))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_strategies(version: str) -> dict[str, Callable[..., str]]:
    newer = release(version) >= (0, 11)
    # JAX 0.11 cuts long sums into runs with one thread too, and 0.10 so does with dot products.
    cut = f"xla_cpu_sum(threads={max(_threads(), 2)}{', runs=blocks' * newer})"
    total = cut if newer or _threads() > 1 else "xla_cpu_sum"

    def several(known: str, axis: int = 0) -> Callable[..., str]:
        # One term is not added to anything, nor flushed.
        return lambda x: known if x.shape[axis] != 1 else "serial"

    def added(operation: str, known: Callable[..., str]) -> Callable[..., str]:
        def strategy(*operands: Array) -> str:
            if operands[0].size >= _LONG and not has_avx512():
                message = f"jnp.{operation} on the CPU is known for {_LONG} or more elements with AVX-512 only"
                raise UnknownOrderError(message)
            return known(*operands)

        return checked(operation, strategy)

    def checked(operation: str, known: Callable[..., str] | str) -> Callable[..., str]:
        what = f"jnp.{operation} on the CPU"
        if not is_x86():
            return unknown(f"{what} is known for x86-64 processors")
        if release(version) not in _CHECKED:
            return unknown(f"{what} is known for JAX 0.10 and 0.11, not for {version}")
        return only(what, known)

    def products(x: Array, y: Array) -> str:
        del y
        if x.size == 1:
            return "serial+ftz+daz"
        return cut if x.size > _SERIAL else "serial+fma+start(0.0)+ftz+daz"

    def squares(x: Array) -> str:
        if x.size <= _SERIAL:
            message = f"jnp.linalg.norm on the CPU is not known for fewer than {_SERIAL + 1} terms"
            raise UnknownOrderError(message)
        return total

    def running(x: Array) -> str:
        if x.size > _SCAN:
            message = f"jnp.cumsum on the CPU is not known for more than {_SCAN} terms"
            raise UnknownOrderError(message)
        if x.size == 1:
            return "serial"
        return ("serial" if x.size <= _WINDOW else f"chunks({_WINDOW})") + "+start(0.0)+ftz+daz"

    return {
        "sum": added("sum", several(total)),
        "sum_axis0": added("sum", several(total)),
        "sum_axis1": added("sum", several(total, 1)),
        "mean": added("mean", several(f"{total}+reciprocal")),
        "var": unknown(_EMITTER.format("jnp.var")),
        "std": unknown(_EMITTER.format("jnp.std")),
        "prod": checked("prod", several("xla_cpu_prod")),
        "norm": added("linalg.norm", squares),
        "cumsum": checked("cumsum", running),
        "dot": added("dot", products),
        **{name: unknown(_EMITTER.format(name)) for name in ("matvec", "vecmat", "matmul")},
        "multiply": checked("multiply", _multiplied),
    }


def _multiplied(a: Array, b: Array) -> str:
    if subnormal(a, b, a.astype(np.float64) * b.astype(np.float64)):
        message = "jnp.multiply on the CPU flushes subnormal numbers, and these have some"
        raise UnknownOrderError(message)
    return "serial"
