"""Programs: summation trees as nested left folds, shared where they repeat.

Every summation tree is a nest of left folds: an accumulator takes one term after another, and a term is a leaf or the
result of another fold. So one kind of node is enough. Terms come in *segments*, strided sequences of leaves or of
equal sub-folds at different leaf offsets, and equal folds are stored once. NumPy's pairwise sum of 10^8 terms has a
few dozen distinct folds, a serial sum one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim.arithmetic import STARTS, Arithmetic
from fpsim.errors import InputError

LEAF: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """A left fold over `segments`, whose leaf positions count from the fold's own first leaf."""

    segments: tuple[Segment, ...]
    arithmetic: Arithmetic
    start: str


@dataclass(frozen=True, slots=True)
class Segment:
    """Terms at ``base + o*outer_stride + i*stride``, o slowest; each a leaf (`item` is None) or that fold."""

    base: int
    count: int = 1
    stride: int = 1
    outer_count: int = 1
    outer_stride: int = 0
    item: Fold | None = None

    @property
    def size(self) -> int:
        """Number of terms."""
        return self.count * self.outer_count

    def moved(self, offset: int) -> Segment:
        """Return the same terms `offset` leaves further on."""
        if offset == 0:
            return self
        return Segment(self.base + offset, self.count, self.stride, self.outer_count, self.outer_stride, self.item)


Items = tuple[Segment, ...]


def leaves(n: int, /) -> Items:
    """Return the terms 0 to n-1 in order."""
    return (Segment(0, n),) if n else ()


@dataclass(slots=True)
class Builder:
    """Makes folds, and makes each distinct one only once."""

    _known: dict[tuple[object, ...], Fold] = field(default_factory=dict)

    def fold(self, items: Iterable[Segment], arithmetic: Arithmetic, *, start: str | None = None) -> Segment:
        """Return the left fold over `items` as a single term.

        A lone term that is already a fold of the same arithmetic is returned as it is. A leaf in front of a fold
        changes place with it where addition commutes, so that its product can be fused. A partial sum that starts an
        accumulator is rounded to its format; later terms enter an addition as they are.
        """
        items = list(joined(segment for segment in items if segment.size))
        start = arithmetic.start if start is None else start
        if (
            len(items) == 1
            and items[0].size == 1
            and items[0].item is not None
            and start == "first"
            and not arithmetic.output
        ):
            inner = items[0].item.arithmetic
            same = inner.accumulator == arithmetic.accumulator and inner.ftz == arithmetic.ftz
            if same and inner.compensation == arithmetic.compensation:
                return items[0]
        leaf_first = len(items) > 1 and items[0].size == 1 and items[0].item is None and items[1].item is not None
        if leaf_first and arithmetic.compensation is None:
            head, rest = split_items(tuple(items[1:]), 1)
            items = [*head, items[0], *rest]
        items = [self._closed(segment, arithmetic) for segment in items]
        if items and items[0].item is not None and start == "first":
            source = items[0].item.arithmetic
            if arithmetic.accumulator.format.changes(source.result_format):
                narrow = dataclasses.replace(
                    source, compensation=None, ftz=False, output=arithmetic.accumulator, start="first"
                )
                head, rest = split_items(tuple(items), 1)
                items = [self._shared(head, narrow, "first"), *rest]
        return self._shared(items, arithmetic, start)

    def _closed(self, segment: Segment, arithmetic: Arithmetic) -> Segment:
        """Add up the sum and the error of each term where `arithmetic` does not carry the error on."""
        if segment.item is None:
            return segment
        source = segment.item.arithmetic
        carried = source.compensation == arithmetic.compensation and source.accumulator == arithmetic.accumulator
        if carried or source.output is not None or source.compensation in (None, "kahan"):
            return segment
        closer = self._shared(
            [Segment(0, 1, 0, item=segment.item)], dataclasses.replace(source, output=source.accumulator), "first"
        )
        return dataclasses.replace(segment, item=closer.item)

    def _shared(self, items: Iterable[Segment], arithmetic: Arithmetic, start: str) -> Segment:
        items = list(items)
        origin = min((segment.base for segment in items), default=0)
        segments = tuple(segment.moved(-origin) for segment in items)
        key = (segments_key(segments), arithmetic, start)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Fold(segments, arithmetic, start)
        return Segment(origin, 1, 0, item=known)


def segments_key(segments: Items) -> tuple[object, ...]:
    """Return a hashable identity of `segments` within one builder."""
    return tuple((s.base, s.count, s.stride, s.outer_count, s.outer_stride, id(s.item)) for s in segments)


def count_items(items: Items) -> int:
    """Return the number of terms in `items`."""
    return sum(segment.size for segment in items)


def split_items(items: Items, position: int) -> tuple[Items, Items]:
    """Return the first `position` terms and the rest."""
    head: list[Segment] = []
    tail: list[Segment] = []
    for segment in items:
        if position >= segment.size:
            head.append(segment)
        elif position <= 0:
            tail.append(segment)
        else:
            first, second = _split_segment(segment, position)
            head += first
            tail += second
        position -= segment.size
    return tuple(head), tuple(tail)


def _split_segment(s: Segment, position: int) -> tuple[list[Segment], list[Segment]]:
    rows, rest = divmod(position, s.count)
    head, tail = [], []
    if rows:
        head.append(Segment(s.base, s.count, s.stride, rows, s.outer_stride, s.item))
    row = s.base + rows * s.outer_stride
    if rest:
        head.append(Segment(row, rest, s.stride, 1, 0, s.item))
        tail.append(Segment(row + rest * s.stride, s.count - rest, s.stride, 1, 0, s.item))
        rows, row = rows + 1, row + s.outer_stride
    if rows < s.outer_count:
        tail.append(Segment(row, s.count, s.stride, s.outer_count - rows, s.outer_stride, s.item))
    return [flat(x) for x in head], [flat(x) for x in tail]


def flat(s: Segment) -> Segment:
    """Write a segment with one level where one level is enough."""
    if s.outer_count == 1 or s.count * s.stride == s.outer_stride:
        return Segment(s.base, s.size, s.stride, 1, 0, s.item)
    if s.count == 1:
        return Segment(s.base, s.outer_count, s.outer_stride, 1, 0, s.item)
    return s


def rows_of(items: Items, *, unless_multiple_of: int = 0) -> Items:
    """Return `items` with two-level segments written as one segment a row, but for rows of that many terms or twice."""
    out: list[Segment] = []
    for s in items:
        if s.outer_count == 1 or (unless_multiple_of and s.count % unless_multiple_of == 0):
            out.append(s)
        else:
            out += [Segment(s.base + o * s.outer_stride, s.count, s.stride, 1, 0, s.item) for o in range(s.outer_count)]
    return tuple(out)


def joined(items: Iterable[Segment]) -> Items:
    """Merge neighbouring one-level segments that continue each other."""
    out: list[Segment] = []
    for s in items:
        if out and out[-1].item is s.item and out[-1].outer_count == s.outer_count == 1:
            last = out[-1]
            gap = s.base - last.base
            if last.count == 1 and s.count == 1:
                out[-1] = Segment(last.base, 2, gap, item=s.item)
                continue
            stride = last.stride if last.count > 1 else s.stride
            if gap == last.count * stride and (s.count == 1 or s.stride == stride):
                out[-1] = Segment(last.base, last.count + s.count, stride, item=s.item)
                continue
        out.append(s)
    return tuple(out)


@dataclass(frozen=True, slots=False, eq=False)
class Program:
    """A summation tree over n leaves in executable form.

    Attributes
    ----------
    n : int
        Number of leaves.
    nodes : int64 array of shape (folds, 5)
        First segment, number of segments, start (position in `STARTS`), arithmetic, and number of leaves of each
        fold; a fold stands after all that it uses, the root is the last.
    segments : int64 array of shape (segments, 6)
        Base, outer count, outer stride, count, stride, and the fold or `LEAF`.
    arithmetics : tuple of Arithmetic
        What the last column of `nodes` points into.
    """

    n: int
    nodes: NDArray[np.int64]
    segments: NDArray[np.int64]
    arithmetics: tuple[Arithmetic, ...]

    @classmethod
    def of(cls, root: Segment, n: int, /) -> Program:
        """Flatten the fold `root`, whose leaves must be 0 to n-1, each once."""
        assert root.item is not None
        number: dict[int, int] = {}
        arithmetics: dict[Arithmetic, int] = {}
        nodes: list[tuple[int, ...]] = []
        segments: list[tuple[int, ...]] = []
        stack: list[tuple[Fold, bool]] = [(root.item, False)]
        while stack:
            fold, ready = stack.pop()
            if id(fold) in number:
                continue
            if not ready:
                stack.append((fold, True))
                stack += [(s.item, False) for s in fold.segments if s.item is not None and id(s.item) not in number]
                continue
            first = len(segments)
            origin = root.base if fold is root.item else 0
            for s in fold.segments:
                child = LEAF if s.item is None else number[id(s.item)]
                # Strides that are never taken may be larger than an integer of the tables, as in lanes(10**30).
                outer_stride, stride = s.outer_stride if s.outer_count > 1 else 0, s.stride if s.count > 1 else 1
                segments.append((s.base + origin, s.outer_count, outer_stride, s.count, stride, child))
            arithmetic = arithmetics.setdefault(fold.arithmetic, len(arithmetics))
            leaf_count = sum(s[1] * s[3] * (1 if s[5] == LEAF else nodes[s[5]][4]) for s in segments[first:])
            nodes.append((first, len(segments) - first, STARTS.index(fold.start), arithmetic, leaf_count))
            number[id(fold)] = len(nodes) - 1
        node_array = np.array(nodes, np.int64).reshape(-1, 5)
        segment_array = np.array(segments, np.int64).reshape(-1, 6)
        program = cls(n, node_array, segment_array, tuple(arithmetics))
        if node_array[-1, 4] != n:
            message = f"the order does not visit each of the {n} terms once"
            raise InputError(message)
        return program

    def children(self, node: int) -> list[tuple[int, int]]:
        """Return (times, fold or LEAF) of each segment of a fold, in order."""
        first, count = self.nodes[node, :2]
        rows = self.segments[first : first + count].tolist()
        return [(row[1] * row[3], row[5]) for row in rows]

    @cached_property
    def _heights(self) -> list[int]:
        out: list[int] = []
        for node in range(len(self.nodes)):
            height = -1
            for times, child in self.children(node):
                below = 0 if child == LEAF else out[child]
                added = times if height >= 0 else times - 1  # the very first term only starts the accumulator
                height = max(height, below) + added if added else max(height, below)
            out.append(max(height, 0))
        return out

    @property
    def height(self) -> int:
        """Largest number of additions that any leaf passes."""
        return self._heights[-1]

    @property
    def additions(self) -> int:
        """Number of two-term additions in the tree."""
        return max(self.n - 1, 0)

    @property
    def fold_count(self) -> int:
        """Number of distinct folds stored."""
        return len(self.nodes)

    @cached_property
    def nesting(self) -> int:
        """Depth to which folds stand inside folds."""
        out: list[int] = []
        for node in range(len(self.nodes)):
            out.append(1 + max((out[child] for _, child in self.children(node) if child != LEAF), default=0))
        return out[-1]

    @cached_property
    def visits(self) -> NDArray[np.int64]:
        """The leaves in the order in which they are visited, int64 of shape (n,)."""
        return self._relative_depths()[0]

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        """When each leaf is visited, int64 of shape (n,): the inverse of `visits`."""
        out = np.empty(self.n, np.int64)
        out[self.visits] = np.arange(self.n)
        return out

    @property
    def visits_in_sequence(self) -> bool:
        """Whether the leaves are visited from first to last."""
        return self.sequential is self or bool(np.array_equal(self.visits, np.arange(self.n)))

    @cached_property
    def sequential(self) -> Program:
        """The same tree over the leaves in the order of `visits`, so that it visits them from first to last."""
        nodes = self.nodes.copy()
        segments: list[list[int]] = []
        for node, (first, count) in enumerate(self.nodes[:, :2].tolist()):
            nodes[node, 0] = len(segments)
            base = 0
            for _, n_outer, _, n_inner, _, child in self.segments[first : first + count].tolist():
                size = 1 if child == LEAF else int(self.nodes[child, 4])
                many = n_outer * n_inner
                if base and segments[-1][5] == child:
                    segments[-1][3] += many
                else:
                    segments.append([base, 1, 0, many, size, child])
                base += many * size
            nodes[node, 1] = len(segments) - nodes[node, 0]
        table = np.array(segments, np.int64).reshape(-1, 6)
        mine = self.segments
        same = table.shape == mine.shape and bool(
            (table[:, [0, 1, 3]] == mine[:, [0, 1, 3]]).all()
            and ((table[:, 4] == mine[:, 4]) | (mine[:, 3] == 1)).all()
        )
        return self if same else Program(self.n, nodes, table, self.arithmetics)

    @cached_property
    def has_long_runs(self) -> bool:
        """Whether leaves are always taken in runs of at least 16."""
        runs = self.segments[self.segments[:, 5] == LEAF]
        return bool((runs[:, 1] * runs[:, 3] >= 16).all())

    @cached_property
    def registers(self) -> int:
        """Number of partial sums alive at the same time."""
        out: list[int] = []
        for node in range(len(self.nodes)):
            need = 1
            first = True
            for times, child in self.children(node):
                if child != LEAF:
                    fresh = self.nodes[node, 2] == 0 and first
                    need = max(need, out[child] + (0 if fresh and times == 1 else 1), out[child])
                first = False
            out.append(need)
        return out[-1] if out else 1

    def depths(self) -> NDArray[np.int64]:
        """Return the number of additions that each leaf passes on its way to the root, int64 of shape (n,)."""
        out = np.zeros(self.n, np.int64)
        positions, depth = self._relative_depths()
        out[positions] = depth
        return out

    def _relative_depths(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Leaf positions of the root in order of visit, and the additions above each."""
        root = len(self.nodes) - 1
        uses: list[list[int]] = [[] for _ in range(root + 1)]  # the folds that use a fold, as often as they do
        for node in range(root + 1):
            for times, child in self.children(node):
                if child != LEAF:
                    uses[child] += [node] * min(times, 2)
        # A fold that is used once is laid out inside its user, so that deep trees do not copy again and again.
        owner = [*range(root + 1)]
        for node in range(root - 1, -1, -1):
            if len(uses[node]) == 1:
                owner[node] = owner[uses[node][0]]
        last_use = {node: max(owner[user] for user in uses[node]) for node in range(root) if owner[node] == node}
        known: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        for node in range(root + 1):
            if owner[node] == node:
                known[node] = self._laid_out(node, known)
                for other in [other for other in known if last_use.get(other) == node]:
                    del known[other]
        return known[root]

    def _laid_out(
        self, root: int, known: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Leaf positions of a fold and the additions above each; `known` has those of the folds used several times."""
        where, depth = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        stack: list[Any] = [(root, 0, 0)]
        while stack:
            top = stack.pop()
            if len(top) == 2:
                where.append(top[0])
                depth.append(top[1])
                continue
            node, origin, below = top
            first, count = self.nodes[node, :2].tolist()
            rows = self.segments[first : first + count].tolist()
            above = below + sum(row[1] * row[3] for row in rows)
            parts: list[Any] = []
            for base, n_outer, s_outer, n_inner, s_inner, child in rows:
                size = n_outer * n_inner
                steps = above - np.arange(size)
                if not parts:
                    steps[0] -= 1  # the first term starts the accumulator, or is added to an exact zero
                above -= size
                if child != LEAF and child not in known:
                    parts.append((child, origin + base, int(steps[0])))
                    continue
                offsets = origin + base + s_outer * np.arange(n_outer)[:, None] + s_inner * np.arange(n_inner)
                inner_where, inner_depth = (np.zeros(1, np.int64),) * 2 if child == LEAF else known[child]
                parts.append(
                    ((offsets.reshape(-1, 1) + inner_where).reshape(-1), (steps[:, None] + inner_depth).reshape(-1))
                )
            stack += reversed(parts)
        return np.concatenate(where), np.concatenate(depth)

    def text(self) -> str:
        """Return the compact form: a line for each distinct fold, the root last.

        ``0..15`` are leaves, ``0..112/8`` every eighth, ``3*(0..7)/8`` three such groups eight leaves apart, and
        ``t2@64`` is fold t2 moved by 64 leaves. Terms are added from left to right. Where parts differ in arithmetic,
        ``[1]`` after a fold points to the list at the end.
        """
        header = f"{self.n} leaves, height {self.height}, {self.fold_count} distinct folds"
        lines = [header]
        for node in range(len(self.nodes)):
            first, count, start, arithmetic, _ = self.nodes[node].tolist()
            terms = [self._segment_text(*row) for row in self.segments[first : first + count].tolist()]
            zero = [f"{STARTS[start]}.0"] if start else []
            label = f" [{arithmetic}]" if len(self.arithmetics) > 1 else ""
            lines.append(f"t{node}{label} = {' '.join(zero + terms) or '+0.0'}")
        if len(self.arithmetics) > 1:
            lines += [f"[{index}] {arithmetic}" for index, arithmetic in enumerate(self.arithmetics)]
        return "\n".join(lines)

    @staticmethod
    def _segment_text(base: int, n_outer: int, s_outer: int, n_inner: int, s_inner: int, child: int) -> str:
        def sequence(first: int, count: int, stride: int) -> str:
            if count == 1:
                return f"{first}"
            return f"{first}..{first + (count - 1) * stride}" + ("" if stride == 1 else f"/{stride}")

        if child == LEAF:
            inner = sequence(base, n_inner, s_inner)
            return inner if n_outer == 1 else f"{n_outer}*({inner})/{s_outer}"
        inner = f"t{child}@{sequence(base, n_inner, s_inner)}"
        return inner if n_outer == 1 else f"{n_outer}*({inner})/{s_outer}"

    def nested(self, *, limit: int = 4096) -> str:
        """Return the whole tree in one line: ``(a b c)`` adds b to a, then c to that. `tree` orders read this form.

        Raises
        ------
        InputError
            The tree has more than `limit` leaves; use `text`, or raise the limit.
        """
        if self.n > limit:
            message = f"a nested view of {self.n} leaves is longer than limit={limit}; use text() or raise the limit"
            raise InputError(message)
        if self.n == 0:
            return "()"
        out: list[str] = []
        stack: list[tuple[int, int] | str] = [(len(self.nodes) - 1, 0)]
        while stack:
            top = stack.pop()
            if isinstance(top, str):
                out.append(top)
                continue
            node, offset = top
            parts: list[tuple[int, int] | str] = []
            first, count = self.nodes[node, :2].tolist()
            for base, n_outer, s_outer, n_inner, s_inner, child in self.segments[first : first + count].tolist():
                for o in range(n_outer):
                    for i in range(n_inner):
                        at = offset + base + o * s_outer + i * s_inner
                        parts.append(f"{at}" if child == LEAF else (child, at))
            if len(parts) == 1:
                stack.append(parts[0])
                continue
            stack.append(")")
            for position, part in enumerate(reversed(parts)):
                stack.append(part)
                if position < len(parts) - 1:
                    stack.append(" ")
            stack.append("(")
        return "".join(out)

    def __str__(self) -> str:
        return self.text()


def smallest_subtree(program: Program, i: int, j: int, /) -> int:
    """Return how many leaves the smallest subtree has that holds leaves i and j: where a masking probe shows them meet.

    Raises
    ------
    InputError
        i and j are not two different leaves of the program.
    """
    if not (0 <= i < program.n and 0 <= j < program.n) or i == j:
        message = f"i and j must be two different leaves from 0 to {program.n - 1}, not {i} and {j}"
        raise InputError(message)
    tree = program.sequential
    if tree is program:
        low, high = sorted((i, j))
    else:
        places = program.positions
        low, high = sorted((int(places[i]), int(places[j])))
    node = len(tree.nodes) - 1
    while True:
        first, count, start, arithmetic, size = (int(x) for x in tree.nodes[node])
        done = 0  # terms of the segments before
        for base, _, _, many, _, child in tree.segments[first : first + count].tolist():
            width = 1 if child == LEAF else int(tree.nodes[child, 4])
            end = base + many * width
            if high >= end:
                done += many
                continue
            index = (high - base) // width
            begin = base + index * width
            if low < begin:
                terms = program.arithmetics[arithmetic].terms
                if not terms:
                    return int(begin + width)
                # One fused add takes the accumulator, which may be the first term, and `terms` leaves.
                own = done + index - (STARTS[start] == "first")
                return int(min(size, begin + terms - own % terms))
            low, high, node = low - begin, high - begin, child
            break
