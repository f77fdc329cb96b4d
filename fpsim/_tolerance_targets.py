"""What a tolerance holds for: one strategy, any of several, or any order at all."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fpsim.arithmetic import NO_SETTINGS, Settings
from fpsim.errors import InputError, StrategyError
from fpsim.orders import Order
from fpsim.orders.base import SERIAL
from fpsim.strategies import Strategy, strategy as as_strategy

#: The most strategies that one "any" text stands for.
MOST_MEMBERS = 256
_RANGE = re.compile(r"(?<![\w.])(\d+)\.\.(\d+)(?![\w.])")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_EACH, _ANY, _ORDER = "any of:", "any ", "order"


@dataclass(frozen=True, slots=True)
class AnyOrder:
    """Every binary tree over the terms, with one arithmetic at all its nodes.

    Attributes
    ----------
    settings : Settings
        Changes to the default arithmetic, as in a strategy text. Products may be rounded or fused, whatever it says.
    """

    settings: Settings = NO_SETTINGS

    def variants(self) -> tuple[Strategy, ...]:
        """Return strategies of the largest height, whose worst cases no other order has beaten: see `any_order`."""
        separate = Strategy(SERIAL, replace(self.settings, fma=None))
        if separate.settings.product is not None:
            return (separate,)
        return separate, Strategy(SERIAL, replace(self.settings, fma=True))

    def __str__(self) -> str:
        return f"any order{self.settings}"


Member = Strategy | AnyOrder
Side = str | Strategy | Order | Sequence[Any]


@dataclass(frozen=True, slots=True)
class Target:
    """One side of a comparison.

    Attributes
    ----------
    members : tuple of Strategy or AnyOrder
        The tolerance holds for each.
    text : str
        As it is written.
    """

    members: tuple[Member, ...]
    text: str

    def __str__(self) -> str:
        return self.text


def target(side: Side, /) -> Target:
    """Return the side of a comparison that a text, a strategy, or a sequence of them names.

    Parameters
    ----------
    side : str, Strategy, Order or sequence
        A strategy text; ``"any order"`` and settings; ``"any split_k(2..16)+fma"``, where each ``a..b`` stands for all
        whole numbers from a to b; ``"any of: a; b; c"``, each of them such a text; or a sequence, which means any of
        these.

    Raises
    ------
    StrategyError
        The text is none, or stands for more than 256 strategies.
    """
    members = tuple(dict.fromkeys(_members(side)))
    if not members:
        message = "a side names at least one strategy"
        raise InputError(message)
    if len(members) > MOST_MEMBERS:
        message = f"a side stands for {MOST_MEMBERS} strategies at most, not {len(members)}: {side}"
        raise StrategyError(message)
    if isinstance(side, str) and len(members) > 1:
        return Target(members, " ".join(side.split()))
    return Target(members, " or ".join(map(str, members)))


def _members(side: Any) -> list[Member]:
    if isinstance(side, list | tuple):
        return [member for one in side for member in _members(one)]
    if not isinstance(side, str):
        return [as_strategy(side)]
    text = side.strip()
    if text.startswith(_EACH):
        return [member for part in text[len(_EACH) :].split(";") for member in _members(part)]
    if not text.startswith(_ANY):
        return [as_strategy(text)]
    rest = text[len(_ANY) :].strip()
    word, plus, settings = rest.partition("+")
    if word.strip() == _ORDER:
        return [AnyOrder(_plain(text, as_strategy(f"serial{plus}{settings}").settings))]
    return list(_ranges(text, rest))


def _plain(text: str, settings: Settings) -> Settings:
    """Return the settings of "any order", of whose additions the worst tree must be known."""
    if settings.compensation not in (None, "none") or settings.align is not None:
        message = f"{text}: any order is known for plain additions; leave out compensation and align(...)"
        raise StrategyError(message)
    return settings


def _ranges(text: str, rest: str) -> list[Strategy]:
    """Return the strategies that a text with ranges ``a..b`` stands for; those in quotes, as of a tree, are no ranges."""
    quoted = [(m.start(), m.end()) for m in _QUOTED.finditer(rest)]
    found = [m for m in _RANGE.finditer(rest) if not any(a <= m.start() < b for a, b in quoted)]
    if not found:
        message = f"{text!r} has no range: write 'any order', 'any split_k(2..16)' or 'any of: one; other'"
        raise StrategyError(message)
    ranges = [range(int(m[1]), int(m[2]) + 1) for m in found]
    count = 1
    for own, match in zip(ranges, found, strict=True):
        if not own:
            message = f"{text!r}: the range {match[0]} goes upwards"
            raise StrategyError(message)
        count *= len(own)
    if count > MOST_MEMBERS:
        message = f"a side stands for {MOST_MEMBERS} strategies at most, not {count}: {text}"
        raise StrategyError(message)
    out = []
    for numbers in itertools.product(*ranges):
        parts, at = [], 0
        for match, number in zip(found, numbers, strict=True):
            parts += [rest[at : match.start()], str(number)]
            at = match.end()
        out.append(as_strategy("".join(parts) + rest[at:]))
    return out
