"""What probed trees show of fused additions: chains of those of many terms, and which products are fused."""

from __future__ import annotations

import numpy as np

from fpsim._arithmetic_facts import is_fused
from fpsim._black_box import BlackBox
from fpsim._probing import Node, bottom_up, tree_text
from fpsim._structure import structures

_TILES = (16, 32, 64, 128, 256)  # of terms, the first of which may hold the rest
_WRITTEN = 64  # chunks whose tree is written out
_Tree = Node | int
_Chain = list[list[int]]  # the terms of each fused add, first to last


def fused_chains(root: _Tree, /) -> list[str]:
    """Return the orders of chains of fused adds over neighbouring terms, whose sums are added in an order of their own.

    Returns
    -------
    list of str
        Such as ``chunks(52, fused(8), combine=fold)`` or ``chunks([32, 32, 13], fused(16))``, the simplest first; empty
        where the tree is something else.
    """
    chains, above = _chunks(root)
    groups = [sorted(group) for chain in chains for group in chain]
    if not groups or [term for group in groups for term in group] != list(range(_count(groups))):
        return []
    most = max(map(len, groups))
    shared = set.intersection(*(_orders(chain, most) for chain in chains))
    if not shared:
        return []
    order = min(shared, key=lambda text: (len(text), text))
    sizes = [_count(chain) for chain in chains]
    if len(sizes) == 1:
        return [order]
    alike = len(set(sizes[:-1])) == 1 and sizes[-1] <= sizes[0]
    size = str(sizes[0]) if alike else f"[{', '.join(map(str, sizes))}]"
    return [f"chunks({size}, {order}{combine})" for combine in _combines(above, len(sizes))]


def _chunks(root: _Tree) -> tuple[list[_Chain], _Tree]:
    """Return the largest subtrees that are chains, by their first terms, and the binary tree of their numbers."""
    chains: dict[int, _Chain] = {}  # by the identity of their roots
    inner: list[Node] = []
    stack: list[_Tree] = [root]
    while stack:
        here = stack.pop()
        chain = _chain(here)
        if chain is not None:
            chains[id(here)] = chain
        elif isinstance(here, int) or len(here.children) != 2:
            return [], root
        else:
            inner.append(here)
            stack += here.children
    found = sorted(chains, key=lambda one: min(map(min, chains[one])))
    made: dict[int, _Tree] = {one: number for number, one in enumerate(found)}
    for node in reversed(inner):
        made[id(node)] = Node(tuple(made[id(child)] for child in node.children))
    return [chains[one] for one in found], made[id(root)]


def _combines(tree: _Tree, parts: int) -> list[str]:
    """Return how sums are added whose binary tree this is, as the end of the text of an order."""
    sizes = np.zeros((parts, parts), np.int64)
    leaves: dict[int, list[int]] = {}

    def under(child: _Tree) -> list[int]:
        return [child] if isinstance(child, int) else leaves[id(child)]

    for node in bottom_up(tree):
        one, other = map(under, node.children)
        leaves[id(node)] = one + other
        sizes[np.ix_(one, other)] = sizes[np.ix_(other, one)] = len(one) + len(other)
    if all(sizes[i, j] == max(i, j) + 1 for i in range(parts) for j in range(i)):
        return [""]
    rng = np.random.default_rng(0)
    texts = structures(parts, lambda i, j: int(sizes[i, j]), rng, most=10**6) if parts >= 3 else []
    whole = tree_text(tree) if parts <= _WRITTEN else None
    return [f", combine={text}" for text in (*texts, *([] if whole is None else [f'tree("{whole}")']))]


def _count(groups: _Chain) -> int:
    return sum(map(len, groups))


def _first_term(tree: _Tree) -> int:
    while isinstance(tree, Node):
        leaves = [child for child in tree.children if isinstance(child, int)]
        inner = [child for child in tree.children if isinstance(child, Node)]
        if not inner:
            return min(leaves)
        tree = inner[0]
    return tree


def _chain(tree: _Tree) -> _Chain | None:
    """Return the terms that each fused add of a chain takes, or None where this is no chain."""
    groups: _Chain = []
    here: _Tree = tree
    while True:
        if isinstance(here, int):
            return [[here]] if not groups else None
        leaves = [child for child in here.children if isinstance(child, int)]
        inner = [child for child in here.children if isinstance(child, Node)]
        if not leaves or len(inner) > 1:
            return None
        groups.append(leaves)
        if not inner:
            return groups[::-1]
        here = inner[0]


def _orders(chain: _Chain, most: int) -> set[str]:
    """Return the orders of one chain whose fused adds take `most` terms, but for one."""
    sizes = [len(group) for group in chain]
    n = sum(sizes)
    found = {f"fused({most})"} if sizes == _taken(n, most) else set()
    if sizes == _taken(n % most, most) + _taken(n - n % most, most):
        found.add(f"fused({most}, rest=first)")
    for tile in _TILES:
        if tile > most and tile % most == 0 and sizes == _taken(n % tile, most) + _taken(n - n % tile, most):
            found.add(f"fused({most}, rest=first, tile={tile})")
    return found


def _taken(n: int, most: int) -> list[int]:
    return [most] * (n // most) + [n % most] * (n % most > 0)


def rounded_terms(box: BlackBox, tree: _Tree, place: int) -> set[int] | None:
    """Return which terms' products are rounded before they join a partial sum or another product.

    That takes up to two calls for each term. None where products are exact.
    """
    rounded: set[int] = set()
    for node in bottom_up(tree):
        if len(node.children) != 2:
            return None
        one, other = node.children
        leaves = [child for child in node.children if isinstance(child, int)]
        seen = [is_fused(box, leaf, _first_term(other if leaf is one else one)) for leaf in leaves]
        if any(answer is None for answer in seen):
            return None
        fused = [answer is not None and bool(answer[place]) for answer in seen]
        if len(leaves) == 2:
            rounded |= set() if any(fused) else set(leaves)
        elif leaves and not fused[0]:
            rounded.add(leaves[0])
    return rounded
