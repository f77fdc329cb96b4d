"""Regular orders from a few probes: lanes, chunks and interleaved blocks inside one another.

Terms fall into groups by a regular rule, each group is summed in one way, and the sums of the groups in another. What two
terms of one group meet in shows the inner order alone, and what terms of two groups meet in the outer one, so both are
found apart from each other, the inner one in the same way again. Sizes of smallest subtrees suggest the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fpsim.errors import InputError, StrategyError
from fpsim.programs import Program, smallest_subtree
from fpsim.strategies import strategy

Places = NDArray[np.int64]
Pair = tuple[int, int]
_DEPTH = 2  # levels of groups
_CHECKED = 24  # random pairs that a whole order is checked on
_NEAR = 64  # strides that are all tried
_PROCESSORS = (80, 108, 132)  # of a V100, an A100, and an H100 or H200: grids are multiples of them
_INNER = ("serial", "pairwise", "fold", "reverse")
_COMBINES = (
    *_INNER,
    *(f"lanes({m}, combine={inner})" for m in (2, 4, 8, 16, 32) for inner in _INNER[:3]),
    *(f"chunks({m}, {inner})" for m in (2, 4, 8, 16, 32) for inner in _INNER[:3]),
    *(f"pairwise({m})" for m in (2, 4, 8, 16)),
)


class _SpentError(Exception):
    """No more probes are allowed, or one could not be read."""


@dataclass(frozen=True, slots=True)
class _Partition:
    """Groups of terms: the order text with places for the inner order and the combination, and how terms are grouped."""

    text: str
    first: Places  # positions of one whole group
    group: Callable[[Places], Places]  # of positions
    far: tuple[int, ...]  # positions of other groups

    def of(self, inner: str, combine: str) -> str:
        return self.text.format(inner, combine)


@dataclass(slots=True)
class _Search:
    size: Callable[[int, int], int]
    most: int
    rng: np.random.Generator
    known: dict[Pair, int] = field(default_factory=dict)

    def ask(self, i: int, j: int) -> int:
        key = (min(i, j), max(i, j))
        if key not in self.known:
            if len(self.known) >= self.most:
                raise _SpentError
            found = int(self.size(*key))
            if found < 2:
                raise _SpentError
            self.known[key] = found
        return self.known[key]

    def orders(self, places: Places, depth: int) -> list[str]:
        """Return the orders of these terms that all probes fit, the simplest first."""
        n = places.size

        def size(i: int, j: int) -> int:
            return self.ask(int(places[i]), int(places[j]))

        if n <= 2:
            return ["serial"]
        pairs = _spread(n, self.rng)
        found = [text for text in _plain(n, size) if self._fits(text, n, size, pairs)]
        if found or not depth:
            return found[:2]
        values = _values(n, size)
        for part in _chunks(n, size, values):
            found = self._inside(part, places, size, depth - 1, pairs)
            if found:
                return found[:4]
        parts: list[_Partition] = []
        for below in range(depth):  # the least nested orders first
            for part in parts if below else _rounds(n, size, values):
                if not below:
                    parts.append(part)
                found = self._inside(part, places, size, below, pairs)
                if found:
                    return found[:4]
        return []

    def _inside(
        self, part: _Partition, places: Places, size: Callable[[int, int], int], depth: int, pairs: Sequence[Pair]
    ) -> list[str]:
        n = places.size
        start = int(part.first[0])
        ends = [(start, other) for other in part.far]
        across = list(
            dict.fromkeys([*ends, *((i, j) for i, j in pairs if len(set(part.group(np.array([i, j])))) == 2)])
        )
        combines = [text for text in _COMBINES if self._fits(part.of("serial", text), n, size, across)]
        if not combines:
            return []
        inners = self.orders(places[part.first], depth)
        texts = [part.of(inner, combine) for inner in inners for combine in combines[:2]]
        return [text for text in texts if self._fits(text, n, size, pairs)]

    @staticmethod
    def _fits(text: str, n: int, size: Callable[[int, int], int], pairs: Sequence[Pair]) -> bool:
        program = _program(text, n)
        return program is not None and all(smallest_subtree(program, i, j) == size(i, j) for i, j in pairs if i != j)


def _program(text: str, n: int) -> Program | None:
    try:
        return strategy(text).program(n)
    except (StrategyError, InputError):
        return None


def _spread(n: int, rng: np.random.Generator) -> list[Pair]:
    """Return pairs at both ends, in the middle and at random, the telling ones first."""
    fixed = [(0, 1), (n - 2, n - 1), (0, n - 1), (n // 2 - 1, n // 2), (0, n // 2), (1, 2), (n // 3, n // 3 + 2)]
    drawn = rng.integers(0, n, (_CHECKED // 2, 2)).tolist()
    near = [(i, min(n - 1, i + 1 + i % 7)) for i in rng.integers(0, n - 1, _CHECKED // 4).tolist()]
    return [(i, j) for i, j in (*fixed, *map(tuple, drawn), *near) if i != j and 0 <= i < n and 0 <= j < n]


def _plain(n: int, size: Callable[[int, int], int]) -> Iterator[str]:
    """Yield orders without groups."""
    yield from ("serial", "pairwise", "reverse", "fold", *(("numpy_sum",) if n >= 64 else ()))
    yield from (f"pairwise({2**a})" for a in range(1, 11) if 2**a < n)
    start = n + 2 - size(0, 1)  # where 0 and 1 are the last but `start` - 2 of all terms
    if 1 < start < n:
        yield f"rotate({start})"
    yield from (f"reverse(block={b})" for b in (2, 4, 8, 16, 32) if b < n)


def _values(n: int, size: Callable[[int, int], int]) -> dict[int, int]:
    """Return what the first term meets others at powers of two in."""
    return {2**a: size(0, 2**a) for a in range(int(n - 1).bit_length()) if 2**a < n}


def _chunks(n: int, size: Callable[[int, int], int], values: dict[int, int]) -> Iterator[_Partition]:
    """Yield groups of neighbours: what is in one meets in at most its size, what is in two in more than both."""
    tried: set[int] = set()
    for c in _chunk_sizes(n, size, values):
        if c in tried or not 2 <= c < n:
            continue
        tried.add(c)
        # The groups of a split may have one term less.
        if size(0, c - 1) > c or size(c - 1, c) < min(2 * c - 1, n):
            continue
        if 2 * c < n and size(c, max(c + 1, 2 * c - 2)) > c + 1:
            continue
        first = np.arange(c)
        parts = -(-n // c)
        texts = [(f"chunks({c}, {{}}, combine={{}})", c)]
        if -(-n // parts) == c and parts <= 1024:
            texts.insert(0 if c & (c - 1) else 1, (f"split_k({parts}, {{}}, combine={{}})", c))
            if n % parts:
                texts.append((f"split({parts}, {{}}, combine={{}})", c))
        for text, own in texts:
            split = text.startswith("split(")
            low, more = divmod(n, parts)

            def group(x: Places, own: int = own, split: bool = split, low: int = low, more: int = more) -> Places:
                return np.where(x < more * own, x // own, more + (x - more * own) // max(low, 1)) if split else x // own

            yield _Partition(text, first, group, (c, n - 1, n - 1 - n % c if n % c else n - c))


def _chunk_sizes(n: int, size: Callable[[int, int], int], values: dict[int, int]) -> Iterator[int]:
    yield from (v for v in values.values() if v < n)
    yield from (v // 2 for v in values.values() if v % 2 == 0)
    for low, value in values.items():
        high = 2 * low
        if value > high or high >= n + low:
            continue
        high = min(high, n - 1)
        if size(0, high - 1) <= high < size(0, high):
            yield high
            continue
        # Up to the end of the first group terms meet 0 in at most `high`, from there on in more.
        lo, hi = low, high
        while hi - lo > 1:
            middle = (lo + hi) // 2
            lo, hi = (middle, hi) if size(0, middle) <= high else (lo, middle)
        yield hi


def _rounds(n: int, size: Callable[[int, int], int], values: dict[int, int]) -> Iterator[_Partition]:
    """Yield groups that blocks of neighbours go round: lanes, and interleaved blocks."""
    counts = {*range(2, _NEAR + 1), *(2**a for a in range(7, 15)), *(3 * 2**a for a in range(5, 11))}
    counts |= {m * p for p in _PROCESSORS for m in (1, 2, 4, 8)}
    counts |= {round(m * n / v) for v in set(values.values()) for m in (1, 2)}
    for parts in sorted(counts):
        if not 2 <= parts <= n // 2:
            continue
        limit = 3 * n // (2 * parts)  # more than a group has, less than two have
        block = _run(size, values, limit)
        if block is None or parts * block >= n:
            continue
        if size(0, parts * block) > max(limit, -(-n // (parts * block)) * block):
            continue
        if parts > 2 and size(0, (parts - 1) * block) <= limit:
            continue
        yield from _round(n, parts, block)


def _run(size: Callable[[int, int], int], values: dict[int, int], limit: int) -> int | None:
    """Return how many first terms are in one group: those that meet 0 in at most `limit` terms."""
    beyond = [j for j, value in values.items() if value > limit]
    if not beyond:
        return None
    hi = beyond[0]
    lo = hi // 2
    while hi - lo > 1:
        middle = (lo + hi) // 2
        lo, hi = (middle, hi) if size(0, middle) <= limit else (lo, middle)
    return hi


def _round(n: int, parts: int, block: int) -> Iterator[_Partition]:
    far = (block, (parts - 1) * block, n - 1, (parts // 2) * block)
    if block > 1:
        first = np.flatnonzero(np.arange(n) // block % parts == 0)
        text = f"interleaved({parts}, {{}}, block={block}, combine={{}})"
        yield _Partition(text, first, lambda x: x // block % parts, far)
        return
    whole = n - n % parts
    yield _Partition(f"lanes({parts}, {{}}, combine={{}})", np.arange(0, n, parts), lambda x: x % parts, far)
    if whole == n:
        return
    own = np.arange(1, whole, parts)
    after = (2 % parts, parts, n - 1)
    yield _Partition(
        f"lanes({parts}, {{}}, combine={{}}, tail=after)", own,
        lambda x: np.where(x < whole, x % parts, parts + x), after,
    )  # fmt: skip
    yield _Partition(
        f"lanes({parts}, {{}}, combine={{}}, tail=lane0)", own, lambda x: np.where(x < whole, x % parts, 0), after
    )


def structures(n: int, size: Callable[[int, int], int], rng: np.random.Generator, /, *, most: int = 700) -> list[str]:
    """Return order texts that fit what probes show, the simplest first; an empty list where none was found.

    Parameters
    ----------
    n : int
        Number of terms, at least 3.
    size : callable
        ``size(i, j)``: the number of terms of the smallest subtree that holds both, 0 where that cannot be read.
    rng : Generator
        Chooses pairs for checks.
    most : int
        Pairs that may be asked for.
    """
    search = _Search(size, most, rng)
    try:
        found = search.orders(np.arange(n), _DEPTH)
    except _SpentError:
        return []
    return [str(strategy(text)) for text in found]
