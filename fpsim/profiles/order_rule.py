"""The order of a product that a profile does not hold, from the products that were observed on the same device.

Trees of decisions lead a shape to observed shapes that a library treats alike, and each tree votes for the order of the
one that it reaches, carried over to the other inner dimension. The votes are no probabilities: how often the first
and the first five candidates were right for shapes that were held out is recorded with the rule, by
``benchmarks/fit_order_rule.py``, which grows it.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Shape = tuple[int, int, int]
LEAF: Final = 255
#: Votes for the order with chunks of the same size, beside the one with as many chunks, where the two differ.
_SECOND: Final = 0.25
_CHUNKS: Final = re.compile(r"chunks\((\d+)\)\+fma")
_WARPS: Final = re.compile(r"interleaved\(32, block=(\d+), combine=fold\)\+fma")
_HALVES: Final = re.compile(r"chunks\((\d+), chunks\(256\)\)\+fma")


def features(m: int, k: int, n: int, /) -> tuple[int | float, ...]:
    """Return what the trees ask of a product (m, k) by (k, n)."""
    return (m, n, k, m * n, m * n * k, m / n, min(m, n), max(m, n), _twos(k), _twos(m), _twos(n))


def _twos(x: int) -> int:
    return min(x & -x, 64)


def chunk_count(text: str, k: int, /) -> int | None:
    """Return in how many chunks an order cuts k terms, None for orders that do not."""
    found = _CHUNKS.fullmatch(text)
    return math.ceil(k / int(found[1])) if found else None


def carried(text: str, k: int, other: int, /) -> list[tuple[str, float]]:
    """Return the orders over `other` terms that are likely where this is the one over k, with the votes for each.

    Of orders that depend on the number of terms only the sizes change. cuBLAS cuts an inner dimension into chunks of a
    multiple of 4 terms, and one that is a multiple of 32 into chunks of powers of two.
    """
    if k == other:
        return [(text, 1.0)]
    if found := _WARPS.fullmatch(text):
        return [(text.replace(found[1], str(math.ceil(other / 32)), 1) if other > 64 else text, 1.0)]
    if _HALVES.fullmatch(text):
        return [(f"chunks({math.ceil(other / 2)}, chunks(256))+fma", 1.0)]
    count = chunk_count(text, k)
    if count is None:
        return [(text, 1.0)]
    found = _CHUNKS.fullmatch(text)
    assert found is not None
    size, equal = int(found[1]), _quarters(other, count)
    if k % 32 == other % 32 == 0:
        return [(_cut(size, other), 1.0)]
    near = _quarters(other, max(1, round(other / size))) if other % 32 else size
    first, second = _cut(equal, other), _cut(near, other)
    return [(first, 1.0)] if first == second else [(first, 1.0), (second, _SECOND)]


def _quarters(k: int, count: int) -> int:
    """Return the least multiple of 4 of which so many cover k terms."""
    return 4 * math.ceil(k / count / 4)


def _cut(size: int, k: int) -> str:
    return "serial+fma" if size >= k else f"chunks({size})+fma"


@dataclass(frozen=True, slots=True)
class OrderRule:
    """Observed orders of products, and trees of decisions over them.

    Attributes
    ----------
    shapes : int array, (observed, 3)
        m, k and n of the observed products.
    orders : tuple of str
        The distinct strategies; "" stands for those that have none.
    assumed : tuple of bool
        Which of `orders` have their arithmetic from other orders, and not from a replayed product.
    order : int array, (observed,)
        Which of `orders` was observed for each shape.
    trees : int array, (nodes, 3)
        Of all trees, in preorder: the feature, or `LEAF`; the place of its threshold in `thresholds`, or the observed
        shape; the node of those above the threshold, counted from this one.
    thresholds : float array
        The distinct thresholds.
    roots : int array
        Where each tree begins.
    facts : mapping
        The evidence, and the cross-validated accuracy at observed inner dimensions (``known_k``) and at others
        (``new_k``): shares of held-out shapes whose order was the ``first`` candidate and among the first ``five``.
    """

    shapes: NDArray[np.integer[Any]]
    orders: tuple[str, ...]
    assumed: tuple[bool, ...]
    order: NDArray[np.integer[Any]]
    trees: NDArray[np.integer[Any]]
    thresholds: NDArray[np.floating[Any]]
    roots: tuple[int, ...]
    facts: Mapping[str, Any]

    def observed(self, shape: Shape, /) -> str | None:
        """Return the observed strategy of a shape, "" where it was not established, None where nothing was observed."""
        found = np.flatnonzero((self.shapes == shape).all(axis=1))
        return self.orders[int(self.order[found[0]])] if found.size else None

    def knows(self, k: int, /) -> bool:
        """Whether products with this inner dimension were observed."""
        return bool((self.shapes[:, 1] == k).any())

    def votes(self, shape: Shape, /) -> list[tuple[str, float, tuple[Shape, ...]]]:
        """Return the candidates for a shape, most votes first: strategy, share of the votes, and from which shapes."""
        asked, k = features(*shape), shape[1]
        shares: dict[str, float] = defaultdict(float)
        basis: dict[str, dict[Shape, None]] = defaultdict(dict)
        for root in self.roots:
            reached = self._reached(root, asked)
            m, own, n = map(int, self.shapes[reached])
            for text, vote in carried(self.orders[int(self.order[reached])], own, k):
                shares[text] += vote
                basis[text][(m, own, n)] = None
        total = sum(shares.values())
        ranked = sorted(shares, key=lambda text: (-shares[text], text))
        return [(text, shares[text] / total, tuple(basis[text])) for text in ranked]

    def _reached(self, node: int, asked: tuple[int | float, ...]) -> int:
        while True:
            feature, value, jump = map(int, self.trees[node])
            if feature == LEAF:
                return value
            node += 1 if asked[feature] <= self.thresholds[value] else jump


def jumps(kinds: NDArray[np.integer[Any]], /) -> NDArray[np.int64]:
    """Return for nodes of binary trees in preorder how far behind each its second child stands; 0 for leaves."""
    out = np.zeros(len(kinds), np.int64)
    size = np.ones(len(kinds) + 1, np.int64)
    for node in range(len(kinds) - 1, -1, -1):
        if kinds[node] != LEAF:
            out[node] = 1 + size[node + 1]
            size[node] = out[node] + size[node + out[node]]
    return out


@functools.lru_cache(maxsize=16)
def rule_of(name: str, /) -> OrderRule | None:
    """Return the rule that is shipped beside a profile, None if there is none."""
    device, _, rest = name.partition("/")
    place = files("fpsim.profiles").joinpath(device, f"{rest}.npz")
    if name.endswith(".json") or not rest or not place.is_file():
        return None
    with place.open("rb") as file, np.load(file, allow_pickle=False) as data:
        kinds, values = data["kinds"], data["values"]
        trees = np.stack([kinds, values, jumps(kinds)], axis=1, dtype=np.int64, casting="unsafe")
        return OrderRule(
            data["shapes"].astype(np.int64), tuple(data["orders"].tolist()), tuple(data["assumed"].tolist()),
            data["order"], trees, data["thresholds"], tuple(data["roots"].tolist()), json.loads(str(data["facts"])),
        )  # fmt: skip
