"""Calls of C functions by their addresses, over vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fpsim.kernels._jit import kernel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def _called(builder: Any, address: Any, operands: list[Any]) -> Any:
    signature = ir.FunctionType(ir.FloatType(), [ir.FloatType()] * len(operands))
    return builder.call(builder.inttoptr(address, signature.as_pointer()), operands)


@intrinsic
def call1(typingctx: Any, address: Any, x: Any) -> Any:
    """Call ``float f(float)`` at an address."""
    del typingctx, address, x

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del context, signature
        return _called(builder, args[0], list(args[1:]))

    return types.float32(types.int64, types.float32), codegen


@intrinsic
def call2(typingctx: Any, address: Any, x: Any, y: Any) -> Any:
    """Call ``float f(float, float)`` at an address."""
    del typingctx, address, x, y

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del context, signature
        return _called(builder, args[0], list(args[1:]))

    return types.float32(types.int64, types.float32, types.float32), codegen


@kernel
def apply(address: int, x: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Write f(x) into out, for the function at an address."""
    for i in range(x.size):
        out[i] = call1(address, x[i])


@kernel
def apply2(address: int, x: NDArray[np.float32], y: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Write f(x, y) into out, for the function at an address."""
    for i in range(x.size):
        out[i] = call2(address, x[i], y[i])
