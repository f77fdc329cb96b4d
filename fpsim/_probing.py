"""Masking probes: which terms meet where in the summation tree of a black box.

A large M as term i and -M as term j swallow every unit that is added to either before the two meet; the units that
survive are those outside the smallest subtree that holds i and j (Xie et al., FPRev, USENIX ATC 2025). What differs
here: unit and mask follow from the format, all outputs are probed at the same time, no tree is too deep, the pivots
are random, so that no order is quadratic, and a wider accumulator or a compensation is noticed instead of misread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim._black_box import BlackBox, probe_values

Array = NDArray[Any]


def _counts(box: BlackBox, unit: float, count: int) -> bool:
    """Tell whether the result for so many units is their number."""
    terms = np.zeros(box.n)
    terms[:count] = unit
    return bool((np.abs(box.of_terms(terms) / unit - count) <= _doubt(box)).all())


def _doubt(box: BlackBox) -> float:
    return 0.25 if box.op == "mean" else 0.0  # n times the rounded mean


class UnreadableTreeError(Exception):
    """Masking probes do not show a tree; the message says why."""


@dataclass(slots=True)
class Prober:
    """Answers how many terms the smallest subtree of two terms has, for every output.

    Attributes
    ----------
    box : BlackBox
        What is probed.
    unit, mask : float
        The values of the probes.
    capacity : int
        How many units a result counts exactly; more are counted in several calls.
    """

    box: BlackBox
    unit: float
    mask: float
    capacity: int
    _known: dict[tuple[int, int], NDArray[np.int64]] = field(default_factory=dict)

    @classmethod
    def of(cls, box: BlackBox) -> Prober:
        """Choose unit and mask, and find how far results count.

        Raises
        ------
        UnreadableTreeError
            Units are not counted, or not swallowed.
        """
        unit, mask = probe_values(box.form, box.multiplies)
        capacity = box.n
        while capacity >= 2 and not all(_counts(box, unit, count) for count in (capacity, capacity - 1)):
            capacity = min(1 << (capacity - 1).bit_length() - 1, 2**24)
        if capacity < 2 <= box.n:
            message = "the sum of units is not their number: this is not a plain sum of its terms"
            raise UnreadableTreeError(message)
        return cls(box, unit, mask, capacity)

    def sizes(self, i: int, j: int) -> NDArray[np.int64]:
        """Return the number of terms of the smallest subtree that holds i and j, for each output; 0 where unreadable."""
        key = (min(i, j), max(i, j))
        if key not in self._known:
            self._known[key] = self._ask(*key)
        return self._known[key]

    def alike(self, place: int) -> NDArray[np.bool]:
        """Tell which outputs gave the same answers as that one to all that was asked."""
        if not self._known:
            return np.ones(self.box.outputs, np.bool)
        answers = np.array(list(self._known.values())).reshape(-1, self.box.outputs)
        return np.asarray((answers == answers[:, [place]]).all(axis=0))

    def _ask(self, i: int, j: int) -> NDArray[np.int64]:
        n = self.box.n
        survivors = np.zeros(self.box.outputs)
        for first in range(0, n, self.capacity):
            terms = np.zeros(n)
            terms[first : first + self.capacity] = self.unit
            terms[i], terms[j] = self.mask, -self.mask
            survivors += self.box.of_terms(terms) / self.unit
        sizes = n - survivors
        with np.errstate(invalid="ignore"):
            whole = np.rint(sizes)
            fine = np.isfinite(sizes) & (np.abs(sizes - whole) <= 0.25) & (whole >= 2) & (whole <= n)
        return np.where(fine, whole, 0).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Node:
    """Partial sums or terms (int) that are added at once: two, or more where one fused addition takes them."""

    children: tuple[Node | int, ...]


def tree_of(n: int, size: Callable[[int, int], int], rng: np.random.Generator) -> Node | int:
    """Return the tree that sizes of smallest subtrees belong to.

    Parameters
    ----------
    n : int
        Number of terms.
    size : callable
        ``size(i, j)``: the number of terms of the smallest subtree that holds both.
    rng : Generator
        Chooses the pivots: from a random term the others are sorted by where they meet it, and each group is taken apart
        likewise. That asks for n log n pairs on average whatever the tree.

    Raises
    ------
    UnreadableTreeError
        The sizes contradict each other.
    """
    root = _Group(np.arange(n), n + 1)
    groups = [root]
    for group in groups:  # grows while it is gone through
        rest = group.terms
        while rest.size:
            pivot = int(rest[rng.integers(rest.size)])
            rest = rest[rest != pivot]
            sizes = np.array([size(pivot, int(other)) for other in rest], np.int64)
            own = sizes < group.whole
            levels, counts = np.unique(sizes[own], return_counts=True)
            if not np.array_equal(levels, 1 + np.cumsum(counts)) or (sizes > group.whole).any():
                message = "the probes contradict each other: the result is not that of one tree"
                raise UnreadableTreeError(message)
            below = [_Group(rest[sizes == level], int(level)) for level in levels]
            groups += below
            group.parts.append((pivot, below))
            rest = rest[~own]  # terms of another child of the same fused addition
    for group in reversed(groups):
        for pivot, below in group.parts:
            tree: Node | int = pivot
            for other in below:
                tree = Node((tree, *other.trees))
            group.trees.append(tree)
    return root.trees[0]


class _Group:
    """Terms that join a partial sum at a node of `whole` terms: those of one child of the node, or of several."""

    def __init__(self, terms: NDArray[np.int64], whole: int) -> None:
        self.terms, self.whole = terms, whole
        self.parts: list[tuple[int, list[_Group]]] = []  # of each child: a term, and what it meets on its way up
        self.trees: list[Node | int] = []


def pairs_of(root: Node | int, /) -> list[tuple[int, int]]:
    """Return the nodes that add two terms."""
    return [
        (node.children[0], node.children[1])
        for node in bottom_up(root)
        if len(node.children) == 2 and isinstance(node.children[0], int) and isinstance(node.children[1], int)
    ]


def tree_text(
    root: Node | int, /, *, second: AbstractSet[int] = frozenset(), rounded: AbstractSet[int] = frozenset()
) -> str | None:
    """Return the tree as an order ``tree`` reads it; None where a node takes more than two.

    Of the two parts of a node the first is the larger one, or the one with the earlier term; but of two terms one in
    `second` is the second, so that its product can be the fused one. Products of terms in `rounded` are not fused.
    """
    key: dict[int, tuple[int, int]] = {}  # of a node by its identity: minus its number of terms, its first term
    text: dict[int, list[str]] = {}

    def key_of(x: Node | int) -> tuple[int, int]:
        return (-1, x) if isinstance(x, int) else key[id(x)]

    def leaf(term: int) -> str:
        return f"({term})" if term in rounded else str(term)

    for node in bottom_up(root):
        if len(node.children) != 2:
            return None
        left, right = sorted(node.children, key=key_of)
        if isinstance(left, int) and isinstance(right, int) and left in second and right not in second:
            left, right = right, left
        head = [leaf(left)] if isinstance(left, int) else text.pop(id(left))
        head.append(leaf(right) if isinstance(right, int) else f"({_joined(text.pop(id(right)))})")
        text[id(node)] = head
        key[id(node)] = (key_of(left)[0] + key_of(right)[0], min(key_of(left)[1], key_of(right)[1]))
    return str(root) if isinstance(root, int) else _joined(text[id(root)])


def bottom_up(root: Node | int) -> list[Node]:
    """Return the nodes of a tree, each after those below it."""
    order: list[Node] = []
    stack = [root]
    while stack:
        top = stack.pop()
        if isinstance(top, Node):
            order.append(top)
            stack += top.children
    return order[::-1]


def _joined(parts: Iterable[str]) -> str:
    """Join terms, writing leaves at equal distances as ranges."""
    out: list[str] = []
    run: list[int] = []

    def flush() -> None:
        if len(run) > 3:
            step = run[1] - run[0]
            out.append(f"{run[0]}..{run[-1]}" + ("" if step == 1 else f"/{step}"))
        else:
            out.extend(map(str, run))
        run.clear()

    for part in parts:
        if not part.isdigit():
            flush()
            out.append(part)
            continue
        leaf = int(part)
        if len(run) >= 2 and leaf - run[-1] != run[1] - run[0]:
            last = run[-1] if len(run) == 2 else None
            if last is not None:
                out.append(str(run.pop(0)))
                run[:] = [last]
            else:
                flush()
        if len(run) == 1 and leaf <= run[0]:
            flush()
        run.append(leaf)
    flush()
    return " ".join(out)
