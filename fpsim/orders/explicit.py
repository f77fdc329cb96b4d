"""Trees written out, leaf by leaf."""

from __future__ import annotations

import bisect
import itertools
import re
from dataclasses import dataclass
from typing import ClassVar

from fpsim.arithmetic import Arithmetic
from fpsim.errors import InputError, StrategyError
from fpsim.orders.base import Order
from fpsim.programs import Builder, Items, Segment, count_items, joined, rows_of

_TOKEN = re.compile(r"\s*(?:(\d+)(?:\.\.(\d+)(?:/(\d+))?)?|([()]))")
_MOST_LEAVES = 2**24  # each takes some hundred bytes


@dataclass(frozen=True, slots=True)
class Tree(Order):
    """The tree in `text`: ``(a b c)`` adds b to a, then c to that; ``0..6/2`` stands for ``0 2 4 6``.

    With FMA, a leaf that is added to a sum is fused with it; the first leaf of a group is a rounded product, and so is
    one in parentheses of its own, as in ``((0 1) (2))``.
    """

    text: str
    name: ClassVar[str] = "tree"

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", " ".join(self.text.split()))
        tokens = _tokens(self.text)
        ranges = [token for token in tokens if isinstance(token, range)]
        count = sum(len(token) for token in ranges)
        if max((token[-1] for token in ranges), default=-1) != count - 1:
            message = f"tree: {_short(self.text)} has {count} leaves, which are not numbered from 0 to {count - 1}"
            raise StrategyError(message)
        if "()" in self.text.replace(" ", "") or not count:
            message = f"tree: {_short(self.text)} has an empty group"
            raise StrategyError(message)
        places = [leaf for token in ranges for leaf in token]
        if sorted(places) != list(range(len(places))):
            message = f"tree: the leaves of {_short(self.text)} are not each of 0 to n-1 once"
            raise StrategyError(message)

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        terms = _Terms(items)
        stack: list[list[Segment]] = [[]]
        need: dict[int, int] = {}  # registers that a fold takes
        for token in _tokens(self.text):
            if token == "(":
                stack.append([])
            elif token == ")":
                group = stack.pop()
                stack[-1].append(_group(builder, group, arithmetic, need))
            else:
                assert isinstance(token, range)
                stack[-1] += [terms.get(leaf) for leaf in token]
        if terms.used != count_items(items):
            message = f"the tree has {terms.used} leaves, but there are {count_items(items)} terms"
            raise InputError(message)
        total = _group(builder, stack[0], arithmetic, need)
        return total if total.item is not None else builder.fold([total], arithmetic)

    def arguments(self) -> list[str]:
        return [f'"{self.text}"']


class _Terms:
    """Single terms of a sequence, by number."""

    def __init__(self, items: Items) -> None:
        self._rows = rows_of(items)
        self._count = count_items(items)
        self._firsts = [0, *itertools.accumulate(row.count for row in self._rows)][:-1]
        self.used = 0

    def get(self, position: int) -> Segment:
        self.used += 1
        if position >= self._count:
            message = f"the tree names leaf {position}, but there are {self._count} terms"
            raise InputError(message)
        row_number = bisect.bisect_right(self._firsts, position) - 1
        row = self._rows[row_number]
        return Segment(row.base + (position - self._firsts[row_number]) * row.stride, 1, 0, item=row.item)


def _group(builder: Builder, group: list[Segment], arithmetic: Arithmetic, need: dict[int, int]) -> Segment:
    """Return the left fold of a group; of two sums the one that takes more registers goes first."""
    if not group:
        message = "tree: empty parentheses"
        raise StrategyError(message)
    if len(group) == 1:
        return builder.fold(group, arithmetic) if arithmetic.fma and group[0].item is None else group[0]
    registers = [need.get(id(term.item), 0) for term in group]
    if arithmetic.compensation is None and registers[1] > registers[0]:
        group = [group[1], group[0], *group[2:]]
        registers[:2] = registers[1::-1]
    total = builder.fold(joined(group), arithmetic)
    need[id(total.item)] = max([max(registers[0], 1), *(r + 1 for r in registers[1:] if r)])
    return total


def _tokens(text: str) -> list[str | range]:
    out: list[str | range] = []
    position = depth = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            message = f"tree: cannot read {_short(text[position:])!r}; leaves are numbers, groups stand in parentheses"
            raise StrategyError(message)
        position = match.end()
        if match[4]:
            depth += 1 if match[4] == "(" else -1
            out.append(match[4])
        else:
            if any(number and (len(number) > 8 or int(number) >= _MOST_LEAVES) for number in match.groups()[:3]):
                message = f"tree: {_short(match[0].strip())} is too large; leaves go from 0 to {_MOST_LEAVES - 1}"
                raise StrategyError(message)
            first, step = int(match[1]), int(match[3] or 1)
            leaves = range(first, int(match[2] or first) + 1, max(step, 1))
            if not leaves or not step:
                message = f"tree: {match[0].strip()} names no leaves; ranges go upwards, as in 0..6/2"
                raise StrategyError(message)
            out.append(leaves)
        if depth < 0:
            break
    if depth:
        message = f"tree: unbalanced parentheses in {_short(text)}"
        raise StrategyError(message)
    return out


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
