"""Orders that a profile has on record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fpsim.arithmetic import NO_SETTINGS, Arithmetic, Settings
from fpsim.errors import UnknownOrderError
from fpsim.formats import Format, as_format
from fpsim.orders.base import Configured, Order, Part, Product, Reduction
from fpsim.orders.numpy_matmul import NumpyMatmul
from fpsim.programs import Builder, Items, Segment, count_items


@dataclass(frozen=True, slots=True)
class ProfileOrder(Order):
    """What a device and library did for this operation and shape, see `fpsim.profiles`."""

    text: str
    name: ClassVar[str] = "profile"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        parts = self._parts("sum", (count_items(items),))
        return parts[0].order.build(builder, items, arithmetic, width=width)

    def layout(self, case: Reduction) -> tuple[tuple[int, ...], list[Part]]:
        if case.outputs != 1 or len(case.axes) != 1:
            message = f"profile:{self.text} knows sums of whole vectors, not over axes"
            raise UnknownOrderError(message)
        return case.axes, self._parts("sum", (case.n,))

    def product(self, shape: Product) -> list[Part]:
        if (shape.left, shape.right) != ("C", "C") or shape.same:
            message = f"profile:{self.text} knows products of two matrices in C order"
            raise UnknownOrderError(message)
        if shape.m == shape.n == 1:
            parts = self._parts("dot", (shape.k,))
        elif shape.n == 1 and self._has("matvec", (shape.m, shape.k)):
            parts = self._parts("matvec", (shape.m, shape.k))
        elif shape.m == 1 and self._has("vecmat", (shape.k, shape.n)):
            parts = self._parts("vecmat", (shape.k, shape.n))
        else:
            parts = self._parts("matmul", (shape.m, shape.k, shape.n))
        if len(parts) == 1 and isinstance(parts[0].order, NumpyMatmul):  # has parts of its own
            return parts[0].order.product(shape)
        return parts

    def _has(self, op: str, shape: tuple[int, ...]) -> bool:
        from fpsim.profiles import load

        return any(case.op == op and case.shape == shape for case in load(self.text).cases)

    def defaults(self, data: Format | None) -> Settings:
        from fpsim.profiles import load
        from fpsim.strategies import strategy

        profile = load(self.text)
        wanted = as_format(profile.dtype)
        if data not in (None, wanted):
            message = f"profile:{self.text} is known for operands in {wanted}, not in {data}"
            raise UnknownOrderError(message)
        return strategy(f"serial{profile.settings}").settings if profile.settings else NO_SETTINGS

    def _parts(self, op: str, shape: tuple[int, ...]) -> list[Part]:
        from fpsim.profiles import load
        from fpsim.strategies import strategy

        parts = []
        for text, rows, columns in load(self.text).case(op, shape).parts:
            chosen = strategy(text)
            order = Configured(chosen.order, chosen.settings) if chosen.settings else chosen.order
            parts.append(Part(order, rows, columns))
        return parts

    def __str__(self) -> str:
        return f"profile:{self.text}"
