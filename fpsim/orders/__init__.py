"""Orders: the generic combinators, and one named rule for each known implementation."""

from __future__ import annotations

from fpsim.orders.base import Configured, Order, Serial
from fpsim.orders.collectives import GlooRing, MpiRabenseifner, MpiRecursiveDoubling, MpiRing, NcclRing, NcclTree
from fpsim.orders.combinators import (
    Cascade,
    Chunks,
    Grid,
    HalvingFold,
    Interleaved,
    Lanes,
    Pairwise,
    Split,
    SplitK,
)
from fpsim.orders.cub import CubSegmentedSum, CubSum
from fpsim.orders.cuda import CudaReduce
from fpsim.orders.eigen import EigenSum
from fpsim.orders.explicit import Tree
from fpsim.orders.numba_cuda import NumbaCudaReduce
from fpsim.orders.numpy import NumpyProd, NumpySum
from fpsim.orders.numpy_einsum import EinsumDot, EinsumSum
from fpsim.orders.numpy_matmul import NumpyMatmul
from fpsim.orders.openblas import OpenblasDdot, OpenblasSdot
from fpsim.orders.permutations import Permute, Reverse, Rotate, Shuffle
from fpsim.orders.profile import ProfileOrder
from fpsim.orders.random_trees import UniformTree
from fpsim.orders.tensor_core import Fused, TensorCore
from fpsim.orders.torch_cpu import TorchCpuNorm, TorchCpuSum
from fpsim.orders.torch_cuda import TorchCudaSum
from fpsim.orders.torch_cuda_softmax import TorchCudaSoftmaxSum
from fpsim.orders.xla import XlaCpuProd, XlaCpuSum

#: Every order by its name in a strategy text.
ORDERS: dict[str, type[Order]] = {
    order.name: order
    for order in (
        Serial, Pairwise, HalvingFold, Lanes, Chunks, SplitK, Split, Interleaved, Cascade, Grid, Reverse, Rotate,
        Permute, Shuffle, Tree, UniformTree, Fused, TensorCore, NumpySum, NumpyProd, NumpyMatmul, OpenblasSdot, OpenblasDdot,
        EinsumSum, EinsumDot, TorchCpuSum, TorchCpuNorm,
        TorchCudaSum, TorchCudaSoftmaxSum, CubSum, CubSegmentedSum, CudaReduce, NumbaCudaReduce, XlaCpuSum, XlaCpuProd, EigenSum,
        ProfileOrder,
        GlooRing, MpiRing, MpiRecursiveDoubling, MpiRabenseifner, NcclRing, NcclTree,
    )
}  # fmt: skip

__all__ = [
    "ORDERS", "Cascade", "Chunks", "Configured", "CubSegmentedSum", "CubSum", "CudaReduce", "EigenSum", "EinsumDot", "EinsumSum", "Fused",
    "GlooRing", "Grid", "HalvingFold", "Interleaved", "Lanes", "MpiRabenseifner", "MpiRecursiveDoubling", "MpiRing",
    "NcclRing", "NcclTree", "NumbaCudaReduce", "NumpyMatmul", "NumpyProd", "NumpySum", "OpenblasDdot", "OpenblasSdot",
    "Order", "Pairwise", "Permute", "ProfileOrder", "Reverse", "Rotate", "Serial", "Shuffle", "Split", "SplitK", "TensorCore", "TorchCpuNorm",
    "TorchCpuSum", "TorchCudaSoftmaxSum", "TorchCudaSum", "Tree", "UniformTree", "XlaCpuProd", "XlaCpuSum",
]  # fmt: skip
