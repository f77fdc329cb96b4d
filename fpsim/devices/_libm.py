"""The float32 functions of the C library's libm, called by their addresses."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib
import platform
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.errors import MissingExtraError

Array = NDArray[Any]

# By the names of `fpsim.devices.elementwise.FUNCTIONS`.
NAMES = {
    "sqrt": "sqrtf", "exp": "expf", "exp2": "exp2f", "expm1": "expm1f", "log": "logf", "log2": "log2f",
    "log1p": "log1pf", "sin": "sinf", "cos": "cosf", "tanh": "tanhf", "erf": "erff", "pow": "powf",
}  # fmt: skip


def version() -> str:
    """Return the C library and its version, as far as they are known."""
    return " ".join(platform.libc_ver()).strip() or platform.system()


def function(name: str, /) -> Callable[..., Array]:
    """Return a function of libm, such as ``expf``, for float32 vectors.

    Raises
    ------
    MissingExtraError
        There is no libm, or the function is not in it.
    """
    found = ctypes.util.find_library("m")
    if found is None:
        message = "no libm was found here"
        raise MissingExtraError(message)
    try:
        symbol = getattr(ctypes.CDLL(found), name)
    except (OSError, AttributeError) as error:
        message = f"libm ({found}) has no function {name}"
        raise MissingExtraError(message) from error
    address = ctypes.cast(symbol, ctypes.c_void_p).value
    kernels: Any = importlib.import_module("fpsim.kernels.calls")

    def run(*operands: Array) -> Array:
        out = np.empty(operands[0].shape, np.float32)
        vectors = [np.ascontiguousarray(x, np.float32).reshape(-1) for x in operands]
        (kernels.apply, kernels.apply2)[len(vectors) - 1](address, *vectors, out.reshape(-1))
        return out

    return run
