"""Orders that a profile has on record."""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fpsim.arithmetic import NO_SETTINGS, Arithmetic, Settings
from fpsim.errors import StrategyError, UnknownOrderError
from fpsim.formats import Format, as_format
from fpsim.orders.base import Configured, Order, Part, Product, Reduction
from fpsim.orders.numpy_matmul import NumpyMatmul
from fpsim.programs import Builder, Items, Segment, count_items

if TYPE_CHECKING:
    from fpsim.profiles import Profile
    from fpsim.profiles.candidates import Candidates
    from fpsim.profiles.keys import Key

_ACCEPTED = ("replayed", "observed", "predicted")


@dataclass(frozen=True, slots=True)
class ProfileOrder(Order):
    """What a device and library did for this operation and shape, see `fpsim.profiles`; with a `mode`, in that one.

    `accept` says how the order must be known: "replayed" on random operands, "observed" at least by probes of one output
    column, or "predicted" from other shapes, which gives a `PredictedOrderWarning` that states the accuracy.
    """

    text: str
    mode: str = ""
    accept: str = "replayed"
    name: ClassVar[str] = "profile"

    def __post_init__(self) -> None:
        if self.accept not in _ACCEPTED:
            message = f"profile: accept={self.accept} is not one of {', '.join(_ACCEPTED)}"
            raise StrategyError(message)

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
        settings = strategy(f"serial{profile.settings}").settings if profile.settings else NO_SETTINGS
        rounded = [one.format for one in (settings.operands, settings.right) if one is not None]
        if data not in (None, wanted, *rounded):
            message = f"profile:{self.text} is known for operands in {wanted}, not in {data}"
            raise UnknownOrderError(message)
        return settings

    def _parts(self, op: str, shape: tuple[int, ...], key: Key | None = None) -> list[Part]:
        from fpsim.strategies import strategy

        profile, key = self._profile(), key or self._key()
        if self.accept != "replayed":
            found = profile.candidates(op, shape, key)
            if _ACCEPTED.index(found.evidence) > _ACCEPTED.index(self.accept):
                profile.case(op, shape, key)  # raises, and names what there is
            if found.evidence != "replayed":
                return self._unreplayed(found)
        parts = []
        for text, rows, columns in profile.case(op, shape, key).parts:
            chosen = strategy(text)
            order = Configured(chosen.order, chosen.settings) if chosen.settings else chosen.order
            parts.append(Part(order, rows, columns))
        return parts

    def _unreplayed(self, found: Candidates) -> list[Part]:
        from fpsim.profiles.candidates import PredictedOrderWarning
        from fpsim.strategies import strategy

        if not found.best.strategy:
            message = f"{self}: the likeliest order of {found.op} {found.shape} has no name yet; it is not emulated"
            raise UnknownOrderError(message)
        if found.evidence == "predicted":
            shape = "x".join(map(str, found.shape))
            message = f"{self}: {found.op} of shape {shape} as {found.best.strategy}, {found.accuracy}"
            warnings.warn(message, PredictedOrderWarning, stacklevel=2)
        chosen = strategy(found.best.strategy)
        return [Part(Configured(chosen.order, chosen.settings) if chosen.settings else chosen.order)]

    def __str__(self) -> str:
        given = {"mode": self.mode or None, "accept": self.accept if self.accept != "replayed" else None}
        words = [f"{name}={word}" for name, word in given.items() if word is not None]
        quoted = f'"{self.text}"'
        return f"profile({', '.join([quoted, *words])})" if words else f"profile:{self.text}"
