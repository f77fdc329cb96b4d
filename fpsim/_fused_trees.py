"""What probed trees show of fused additions: chains of those of many terms, and which products are fused."""

from __future__ import annotations

from fpsim._arithmetic_facts import is_fused
from fpsim._black_box import BlackBox
from fpsim._probing import Node, bottom_up

_TILES = (16, 32, 64, 128, 256)  # of terms, the first of which may hold the rest
_Tree = Node | int
_Chain = list[list[int]]  # the terms of each fused add, first to last


def fused_chains(root: _Tree, /) -> str | None:
    """Return the order of chains of fused adds over neighbouring terms, whose sums are added from first to last.

    Returns
    -------
    str or None
        Such as ``chunks([32, 32, 13], fused(16))``; None where the tree is something else.
    """
    spine: list[_Chain] = []
    here = root
    while (chain := _chain(here)) is None:
        if isinstance(here, int) or len(here.children) != 2:
            return None
        left, right = sorted(here.children, key=_first_term)
        last = _chain(right)
        if last is None:
            return None
        spine.append(last)
        here = left
    spine = [chain, *spine[::-1]]
    groups = [sorted(group) for chain in spine for group in chain]
    if [term for group in groups for term in group] != list(range(_count(groups))):
        return None
    most = max(map(len, groups))
    shared = set.intersection(*(_orders(chain, most) for chain in spine))
    if not shared:
        return None
    order = min(shared, key=lambda text: (len(text), text))
    sizes = [_count(chain) for chain in spine]
    if len(sizes) == 1:
        return order
    if len(set(sizes[:-1])) == 1 and sizes[-1] <= sizes[0]:
        return f"chunks({sizes[0]}, {order})"
    return f"chunks([{', '.join(map(str, sizes))}], {order})"


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
