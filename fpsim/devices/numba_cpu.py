"""Loops on the CPU that Numba compiles, each of which states its order.

Without ``fastmath`` the compiler neither reorders additions nor fuses products, so that a loop does what it says.
Checked with Numba 0.68 on an x86-64 CPU (AMD EPYC, Zen 4).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from fpsim.devices._libraries import only, unknown
from fpsim.devices.base import Array, Implementation, Routine
from fpsim.errors import UnknownOrderError

_FLOATS = ("float32", "float64")
_FASTMATH = (
    "with fastmath=True the compiler chooses the order and which products it fuses, for this processor; "
    "fpsim.reveal finds it from outside"
)
_VAR = "Numba's x.var() adds the squared deviations of float32 in float64, and returns float64"
_PRODUCTS = ("matvec", "vecmat", "matmul")
#: The strategies, and the kernels of `fpsim.devices._numba_kernels` by operation.
_KINDS: dict[str, tuple[str, dict[str, str]]] = {
    "numba.serial": (
        "serial+start(0.0)",
        {
            "sum": "serial_sum", "sum_axis0": "serial_sum_axis0", "sum_axis1": "serial_sum_axis1",
            "mean": "serial_mean", "var": "serial_var", "std": "serial_std", "prod": "serial_prod",
            "norm": "serial_norm", "cumsum": "serial_cumsum", "dot": "serial_dot",
            **dict.fromkeys(_PRODUCTS, "serial_matmul"), "multiply": "multiply",
        },
    ),
    "numba.fma": (
        "serial+fma+start(0.0)",
        {"norm": "fused_norm", "dot": "fused_dot", **dict.fromkeys(_PRODUCTS, "fused_matmul")},
    ),
    "numba.lanes": (
        "lanes(8, combine=fold)+start(0.0)",
        {
            "sum": "lanes_sum", "sum_axis1": "lanes_sum_axis1", "dot": "lanes_dot",
            **dict.fromkeys(_PRODUCTS, "lanes_matmul"),
        },
    ),
    "numba.pairwise": (
        "pairwise",
        {"sum": "pairwise_sum", "sum_axis1": "pairwise_sum_axis1", "dot": "pairwise_dot"},
    ),
    "numba.numpy": (
        "serial+start(0.0)",
        {
            name: f"numpy_{name}"
            for name in ("sum", "sum_axis0", "sum_axis1", "mean", "var", "std", "prod", "cumsum")
        },
    ),
    "numba.fastmath": ("", {"sum": "fastmath_sum", "dot": "fastmath_dot"}),
}  # fmt: skip


def implementations() -> list[Implementation]:
    """Return the kinds of loops: ``numba.serial`` and others; nothing is compiled before it runs."""
    try:
        release, reason = version("numba"), ""
    except PackageNotFoundError:
        release, reason = "", "Numba is not installed: python -m pip install numba"
    return [
        Implementation(
            name, "Numba", release, "CPU, one thread", "cpu",
            {operation: Routine(_launch(operation, kernel), _strategy(name, operation)) for operation, kernel in kernels.items()},
            unavailable=reason,
        )
        for name, (_, kernels) in _KINDS.items()
    ]  # fmt: skip


def _strategy(kind: str, operation: str) -> Callable[..., str]:
    if kind == "numba.fastmath":
        return unknown(_FASTMATH)
    text, _ = _KINDS[kind]

    def strategy(*operands: Array) -> str:
        if operands[0].dtype == np.float64:
            return f"{text}+acc(float64)"
        if kind == "numba.numpy" and operation in ("var", "std"):
            raise UnknownOrderError(_VAR)
        return text

    return only(kind, strategy, *_FLOATS)


def _launch(operation: str, kernel: str) -> Callable[..., Any]:
    def launch(*operands: Array) -> Any:
        if operands[0].dtype.name not in _FLOATS:
            message = f"Numba compiles these loops for {' and '.join(_FLOATS)}, not for {operands[0].dtype}"
            raise UnknownOrderError(message)
        run = getattr(importlib.import_module("fpsim.devices._numba_kernels"), kernel)
        if operation == "matvec":
            return run(operands[0], operands[1][:, None])[:, 0]
        if operation == "vecmat":
            return run(operands[0][None, :], operands[1])[0]
        result = run(*operands)
        # A float32 comes out of a compiled function as a Python float.
        return operands[0].dtype.type(result) if isinstance(result, float) else result

    return launch
