"""Orders that a profile has on record."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fpsim.arithmetic import NO_SETTINGS, Arithmetic, Settings
from fpsim.errors import UnknownOrderError
from fpsim.formats import Format, as_format
from fpsim.orders.base import Configured, Order, Part, Product, Reduction
from fpsim.orders.numpy_matmul import NumpyMatmul
from fpsim.programs import Builder, Items, Segment, count_items

if TYPE_CHECKING:
    from fpsim.profiles import Profile
    from fpsim.profiles.keys import Key


@dataclass(frozen=True, slots=True)
class ProfileOrder(Order):
    """What a device and library did for this operation and shape, see `fpsim.profiles`; with a `mode`, in that one."""

    text: str
    mode: str = ""
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
        if "other" in (shape.left, shape.right) or shape.same:
            message = f"{self} knows products of two different contiguous matrices, perhaps transposed"
            raise UnknownOrderError(message)
        key = dataclasses.replace(self._key(), left=shape.left, right=shape.right)
        has = {(case.op, case.shape) for case in self._profile().cases if case.key == key}
        if shape.m == shape.n == 1:
            parts = self._parts("dot", (shape.k,))
        elif shape.n == 1 and ("matvec", (shape.m, shape.k)) in has:
            parts = self._parts("matvec", (shape.m, shape.k), key)
        elif shape.m == 1 and ("vecmat", (shape.k, shape.n)) in has:
            parts = self._parts("vecmat", (shape.k, shape.n), key)
        else:
            parts = self._parts("matmul", (shape.m, shape.k, shape.n), key)
        if len(parts) == 1 and isinstance(parts[0].order, NumpyMatmul):  # has parts of its own
            return parts[0].order.product(shape)
        return parts

    def _profile(self) -> Profile:
        from fpsim.profiles import load

        return load(self.text)

    def _key(self) -> Key:
        common = self._profile().key
        return dataclasses.replace(common, mode=self.mode) if self.mode else common

    def defaults(self, data: Format | None) -> Settings:
        from fpsim.strategies import strategy

        profile = self._profile()
        wanted = as_format(profile.dtype)
        if data not in (None, wanted):
            message = f"profile:{self.text} is known for operands in {wanted}, not in {data}"
            raise UnknownOrderError(message)
        return strategy(f"serial{profile.settings}").settings if profile.settings else NO_SETTINGS

    def _parts(self, op: str, shape: tuple[int, ...], key: Key | None = None) -> list[Part]:
        from fpsim.strategies import strategy

        parts = []
        for text, rows, columns in self._profile().case(op, shape, key or self._key()).parts:
            chosen = strategy(text)
            order = Configured(chosen.order, chosen.settings) if chosen.settings else chosen.order
            parts.append(Part(order, rows, columns))
        return parts

    def __str__(self) -> str:
        return f'profile("{self.text}", mode={self.mode})' if self.mode else f"profile:{self.text}"
