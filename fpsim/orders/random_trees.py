"""Uniformly random summation trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fpsim.arithmetic import Arithmetic
from fpsim.errors import InputError, StrategyError
from fpsim.formats import _generator
from fpsim.orders.base import SERIAL, Order
from fpsim.orders.explicit import Tree
from fpsim.programs import Builder, Items, Segment, count_items

LEAVES = ("inorder", "permuted")


def random_tree(n: int, /, *, rng: Any = None, permuted: bool = False) -> str:
    """Return a uniformly random binary summation tree over n leaves, as a `tree` order reads it.

    Parameters
    ----------
    n : int
        Number of leaves, at least 1.
    rng : Generator, SeedSequence or int, optional
        Source of random bits.
    permuted : bool
        False: leaves stand in order, and each of the Catalan(n - 1) shapes is equally likely. True: their numbers are a
        random permutation, and each of the (2n - 3)!! trees with numbered leaves is, where left and right do not count
        (addition commutes).

    Returns
    -------
    str

    Raises
    ------
    InputError
        n is below 1.

    Notes
    -----
    Rémy's algorithm in Knuth's form (*The Art of Computer Programming* 4A, 7.2.1.6, algorithm R), in linear time. The
    mean height grows as sqrt(4 pi n).

    Examples
    --------
    >>> from fpsim.study import random_tree
    >>> random_tree(5, rng=1), random_tree(5, rng=1, permuted=True)
    ('(((0 (1 2)) 3) 4)', '(((3 (0 1)) 4) 2)')
    """
    if isinstance(n, bool) or int(n) != n or n < 1:
        message = f"a tree has at least 1 leaf, not {n}"
        raise InputError(message)
    source = _generator(rng)
    inner = int(n) - 1
    links = [0] * (2 * inner + 1)
    for k, x in enumerate(source.integers(0, 4 * np.arange(1, inner + 1) - 2).tolist(), 1):
        side, place = x % 2, x // 2
        links[2 * k - side] = 2 * k
        links[2 * k - 1 + side] = links[place]
        links[place] = 2 * k - 1
    numbers = source.permutation(n).tolist() if permuted else list(range(n))
    out: list[str] = []
    leaf = 0
    stack: list[int | str] = [links[0]]
    while stack:
        top = stack.pop()
        if isinstance(top, str):
            out.append(top)
        elif top % 2:
            stack += [")", links[top + 1], " ", links[top], "("]
        else:
            out.append(str(numbers[leaf]))
            leaf += 1
    return "".join(out)


def _is_seed(seed: Any) -> bool:
    return isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0


@dataclass(frozen=True, slots=True)
class UniformTree(Order):
    """A uniformly random binary tree, the same for the same seed and number of terms; see `random_tree`.

    Attributes
    ----------
    seed : int
        What it is drawn from.
    leaves : {"inorder", "permuted"}
        Whether the terms stand in order, or their numbers are a random permutation.

    Examples
    --------
    >>> import fpsim
    >>> fpsim.strategy("uniform_tree(1)").program(5).nested()
    '((((1 2) 0) 3) 4)'
    """

    seed: int
    leaves: str = "inorder"
    name: ClassVar[str] = "uniform_tree"

    def __post_init__(self) -> None:
        if not _is_seed(self.seed):
            message = f"uniform_tree: seed must be a whole number of at least 0, not {self.seed!r}"
            raise StrategyError(message)
        if self.leaves not in LEAVES:
            message = f"uniform_tree: leaves={self.leaves} is not one of {', '.join(LEAVES)}"
            raise StrategyError(message)

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        """Return the sum of `items`."""
        n = count_items(items)
        if n < 2:
            return SERIAL.build(builder, items, arithmetic, width=width)
        text = random_tree(n, rng=self.seed, permuted=self.leaves == "permuted")
        return Tree(text).build(builder, items, arithmetic, width=width)

    def arguments(self) -> list[str]:
        """Return the arguments as a text shows them."""
        return [str(self.seed), *(["leaves=permuted"] if self.leaves == "permuted" else [])]
