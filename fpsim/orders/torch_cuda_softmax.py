"""The order of the float32 sums in PyTorch's softmax and log_softmax of rows on CUDA GPUs.

Sources: ``SoftMax.cu``, ``PersistentSoftmax.cuh``, ``block_reduce.cuh`` in ``aten/src/ATen/native/cuda``. Checked bit for
bit against recorded results of PyTorch 2.11 with CUDA 13.0 on an H200.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from fpsim.arithmetic import Arithmetic
from fpsim.orders.base import Order, Part, Reduction
from fpsim.orders.combinators import Chunks, HalvingFold, Lanes
from fpsim.orders.named import NamedRule, Terms
from fpsim.programs import Builder, Items, Segment, count_items

_WARP, _THREADS = 32, 1024
_ONE_WARP = 2048  # terms up to which a warp has a row to itself
_REGISTERS = 9 * _THREADS  # up to which the threads of a block keep a row in registers
_SHARED = 49152 // 4 - _WARP  # below which it fits in shared memory beside the sums of the warps
_VECTOR = 4  # terms read at a time
_FOLD = HalvingFold()
#: Warps add in halves, and so does a warp the sums of the warps.
_BLOCK = Chunks(_WARP, _FOLD, combine=_FOLD)


@dataclass(frozen=True, slots=True)
class TorchCudaSoftmaxSum(NamedRule):
    """The sum of the exponentials in ``torch.softmax`` and ``log_softmax`` over the last axis of a CUDA tensor.

    Up to 2048 terms a warp takes every 32nd, up to 9216 a block every 1024th; above, threads take four neighbours at a
    time. Threads are added in halves. `shift` is how many elements the first term lies behind a multiple of 16 bytes;
    the rows of a matrix that begins at one find this out by themselves.
    """

    shift: int = 0
    name: ClassVar[str] = "torch_cuda_softmax_sum"

    def layout(self, case: Reduction) -> tuple[tuple[int, ...], list[Part]]:
        axes, _ = NamedRule.layout(self, case)
        if case.outputs <= 1:
            return axes, [Part(self)]
        if axes != (len(case.shape) - 1,):
            self.refuse("sums over another axis than the last")
        if self.shift:
            self.refuse("several sums at a time that do not begin at a multiple of 16 bytes")
        if case.n <= _REGISTERS or case.n % _VECTOR == 0:
            return axes, [Part(self)]
        period = _VECTOR // math.gcd(case.n, _VECTOR)
        parts = [
            Part(replace(self, shift=row * case.n % _VECTOR), columns=range(row, case.outputs, period))
            for row in range(min(period, case.outputs))
        ]
        return axes, parts

    def for_outputs(self, outputs: int) -> TorchCudaSoftmaxSum:
        del outputs
        return self

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        n = count_items(items)
        if n <= _REGISTERS:
            lanes = min(_WARP, 1 << (n - 1).bit_length()) if n <= _ONE_WARP else _THREADS
            order: Order = Lanes(lanes, combine=_FOLD if n <= _ONE_WARP else _BLOCK)
            return order.build(builder, items, arithmetic, width=width)
        threads = _vectors(builder, Terms(items), arithmetic, self.shift % _VECTOR)
        return _BLOCK.build(builder, threads, arithmetic, width=_THREADS)


def _vectors(builder: Builder, terms: Terms, arithmetic: Arithmetic, shift: int) -> Items:
    """Return the sums of threads that take a term each up to a multiple of 16 bytes, then four at a time, then the rest.

    A row that begins at a multiple of 16 bytes and fits in shared memory is taken four at a time to its end.
    """
    first = _THREADS - shift if shift else 0
    every = _VECTOR * _THREADS
    in_shared_memory = not shift and terms.n % _VECTOR == 0 and terms.n < _SHARED
    rest = 0 if in_shared_memory else (terms.n - first) % every
    end = terms.n - rest

    def total(thread: int) -> Segment:
        before = terms.take(thread - shift, 1) if first and thread >= shift else ()
        begin = first + thread * _VECTOR
        own = _repeated(terms, begin, max(0, -(-(end - begin) // every)), every)
        after = terms.take(end + thread, -(-(rest - thread) // _THREADS), _THREADS) if thread < rest else ()
        return builder.fold((*before, *own, *after), arithmetic)

    def sort(thread: int) -> object:
        # Terms outside the vectors lie at another distance from them for each thread.
        apart = thread if (first and thread >= shift) or thread < rest else -1
        return (end - first - thread * _VECTOR - 1) // every, apart

    return terms.alike(_THREADS, _VECTOR, sort, total)


def _repeated(terms: Terms, begin: int, times: int, every: int) -> Items:
    """Return four neighbours at `begin`, four more `every` terms further on, and so on."""
    one = terms.take(begin, _VECTOR) if times else ()
    if times > 1 and len(one) == 1:
        apart = terms.take(begin + every, 1)[0].base - one[0].base
        return (replace(one[0], outer_count=times, outer_stride=apart),)
    return tuple(part for time in range(times) for part in terms.take(begin + time * every, _VECTOR))
