"""Orders that take the terms in another sequence: reversed, rotated, listed, or random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fpsim.arithmetic import Arithmetic
from fpsim.errors import InputError, StrategyError
from fpsim.orders.base import SERIAL, Order, Scattered, at_least_one, parts
from fpsim.programs import Builder, Items, Segment, count_items, flat, rows_of, split_items


@dataclass(frozen=True, slots=True)
class Reverse(Order):
    """The terms from last to first; with `block`, so in each run of that many neighbours."""

    inner: Order = SERIAL
    block: int = 0
    name: ClassVar[str] = "reverse"

    def __post_init__(self) -> None:
        if self.block:
            at_least_one("reverse", block=self.block)

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        if self.block:
            return self.inner.build(builder, self._blocks(items), arithmetic, width=width)
        turned = [
            Segment(
                s.base + (s.outer_count - 1) * s.outer_stride + (s.count - 1) * s.stride,
                s.count, -s.stride, s.outer_count, -s.outer_stride, s.item,
            )
            for s in reversed(items)
        ]  # fmt: skip
        return self.inner.build(builder, tuple(turned), arithmetic, width=width)

    def _blocks(self, items: Items) -> Items:
        rows, n, block = rows_of(items), count_items(items), self.block
        if len(rows) > 1:
            places = np.arange(n)
            first = places - places % block
            return Scattered(rows).pick(np.minimum(first + block, n) - 1 - places % block)
        row, many = rows[0], n // block
        turned = [Segment(row.base + (block - 1) * row.stride, block, -row.stride, many, block * row.stride, row.item)]
        if n % block:
            turned.append(Segment(row.base + (n - 1) * row.stride, n % block, -row.stride, item=row.item))
        return tuple(flat(segment) for segment in turned if segment.size)

    def arguments(self) -> list[str]:
        return [*parts(self.inner, SERIAL), *([f"block={self.block}"] if self.block else [])]


@dataclass(frozen=True, slots=True)
class Rotate(Order):
    """The terms from number `shift` on, then the first ones, as a ring reduction takes them."""

    shift: int
    inner: Order = SERIAL
    name: ClassVar[str] = "rotate"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        head, tail = split_items(items, self.shift % count_items(items))
        return self.inner.build(builder, (*tail, *head), arithmetic, width=width)

    def arguments(self) -> list[str]:
        return [str(self.shift), *parts(self.inner, SERIAL)]


@dataclass(frozen=True, slots=True)
class Permute(Order):
    """The terms in the listed order: first term number places[0], then number places[1], ..."""

    places: tuple[int, ...]
    inner: Order = SERIAL
    name: ClassVar[str] = "permute"

    def __post_init__(self) -> None:
        if sorted(self.places) != list(range(len(self.places))):
            message = f"permute: [{', '.join(map(str, self.places))}] does not name each of 0 to n-1 once"
            raise StrategyError(message)

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        n = count_items(items)
        if len(self.places) != n:
            message = f"permute lists {len(self.places)} places, but there are {n} terms"
            raise InputError(message)
        return self.inner.build(builder, Scattered(items).pick(np.array(self.places)), arithmetic, width=width)

    def arguments(self) -> list[str]:
        return [f"[{', '.join(map(str, self.places))}]", *parts(self.inner, SERIAL)]


@dataclass(frozen=True, slots=True)
class Shuffle(Order):
    """The terms in a random order, as atomic additions and threads that finish when they can take them.

    With `seed` it is one order, and without `window` ``numpy.random.default_rng(seed).permutation(n)``. Without a seed
    it stands for all of them, and only their distribution can be had (`fpsim.spread`). `block` neighbours, such as the
    lanes of a warp, stay together. With `window` what arrives is nearly sorted: term i, or block i, comes at the time
    i plus a random number below `window`.
    """

    seed: int | None = None
    inner: Order = SERIAL
    block: int = 1
    window: int = 0
    name: ClassVar[str] = "shuffle"

    def __post_init__(self) -> None:
        at_least_one("shuffle", block=self.block)
        for name, value in (("seed", self.seed or 0), ("window", self.window)):
            if value < 0:
                message = f"shuffle: {name} must be a whole number of at least 0, not {value}"
                raise StrategyError(message)

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        if self.seed is None:
            message = (
                f"{self} is any of many orders: give a seed, as in shuffle(0), or ask fpsim.spread for what they give"
            )
            raise StrategyError(message)
        places = self.places(count_items(items), np.random.default_rng(self.seed))
        return self.inner.build(builder, Scattered(items).pick(places), arithmetic, width=width)

    def places(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the numbers of n terms in the order in which they arrive."""
        blocks = -(-n // self.block)
        if self.window:
            order = np.argsort(np.arange(blocks) + self.window * rng.random(blocks), kind="stable")
        else:
            order = rng.permutation(blocks)
        if self.block == 1:
            return order
        places = (order[:, None] * self.block + np.arange(self.block)).reshape(-1)
        return places[places < n]

    def arguments(self) -> list[str]:
        seed = [] if self.seed is None else [str(self.seed)]
        block = [f"block={self.block}"] if self.block > 1 else []
        return [*seed, *parts(self.inner, SERIAL), *block, *([f"window={self.window}"] if self.window else [])]
