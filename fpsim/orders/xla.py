"""The order of XLA's float32 sums on the CPU.

Source: the passes that rewrite a reduction into windows (``tree_reduction_rewriter.cc``), as seen in the compiled
module. Checked bit for bit against JAX 0.10 (x86-64).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from fpsim.arithmetic import Arithmetic
from fpsim.orders.base import Part, Reduction
from fpsim.orders.combinators import SERIAL, blocks
from fpsim.orders.named import NamedRule
from fpsim.programs import Builder, Items, Segment, count_items, split_items

_WINDOW = 32
_LIBRARY = 4096  # terms from which the sum goes to another library
_TOO_LONG = f"arrays of {_LIBRARY} elements or more, which XLA gives to a library that compensates"


@dataclass(frozen=True, slots=True)
class XlaCpuSum(NamedRule):
    """``jnp.sum`` on the CPU below 4096 terms: windows of 32, centred, their sums in windows of 32, and so on."""

    name: ClassVar[str] = "xla_cpu_sum"

    def layout(self, case: Reduction) -> tuple[tuple[int, ...], list[Part]]:
        # JAX copies what it is given into C order, so strides do not matter.
        if len(case.shape) > 2 or sum(case.shape[axis] != 1 for axis in case.axes) > 1:
            self.refuse("sums over several axes or of arrays of more than two dimensions")
        if math.prod(case.shape) >= _LIBRARY:
            self.refuse(_TOO_LONG)
        return case.axes, [Part(self)]

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        arithmetic = replace(arithmetic, start="+0")
        n = count_items(items)
        if n >= _LIBRARY:
            self.refuse(_TOO_LONG)
        while n > _WINDOW:
            # Zeros fill the windows up, half of them before the first term.
            zeros = -n % _WINDOW // 2
            first, rest = split_items(items, _WINDOW - zeros)
            items = (builder.fold(first, arithmetic), *blocks(builder, rest, arithmetic, _WINDOW, SERIAL))
            n = count_items(items)
        return builder.fold(items, arithmetic)
