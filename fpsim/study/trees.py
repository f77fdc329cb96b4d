"""Orders for research: uniformly random summation trees, and orders from a function of one's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fpsim.arithmetic import Arithmetic
from fpsim.errors import InputError, StrategyError
from fpsim.formats import _generator
from fpsim.orders import Order, Tree
from fpsim.programs import Builder, Items, Segment, count_items

Nested = Any  # an int, or a tuple of such trees


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
    permuted : bool
        Whether the terms come in random order too.

    Examples
    --------
    >>> import fpsim
    >>> from fpsim.study import UniformTree
    >>> fpsim.strategy(UniformTree(1)).program(5).nested()
    '((((1 2) 0) 3) 4)'
    """

    seed: int
    permuted: bool = False
    name: ClassVar[str] = "uniform_tree"

    def __post_init__(self) -> None:
        if not _is_seed(self.seed):
            message = f"uniform_tree: seed must be a whole number of at least 0, not {self.seed!r}"
            raise StrategyError(message)

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        """Return the sum of `items`."""
        text = random_tree(count_items(items), rng=self.seed, permuted=self.permuted)
        return Tree(text).build(builder, items, arithmetic, width=width)

    def arguments(self) -> list[str]:
        """Return the arguments as a text shows them."""
        return [str(self.seed), *(["permuted=True"] if self.permuted else [])]


@dataclass(frozen=True, slots=True)
class FunctionOrder(Order):
    """The order that a function of the number of terms returns; see `order`.

    Attributes
    ----------
    function : callable
        From n to an order, the text of one, or a tree of nested tuples of leaf numbers.
    label : str
        What tables call it.
    """

    function: Callable[[int], Any]
    label: str
    name: ClassVar[str] = ""

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        """Return the sum of `items`."""
        found = as_order(self.function(count_items(items)), self.label)
        return found.build(builder, items, arithmetic, width=width)

    def __str__(self) -> str:
        return self.label


def as_order(found: Any, label: str, /) -> Order:
    """Return the order that an answer of a function means."""
    from fpsim.strategies import strategy

    if isinstance(found, Order):
        return found
    if isinstance(found, str):
        if found.lstrip()[:1] in ("(", *"0123456789"):
            return Tree(found)
        chosen = strategy(found)
        if chosen.settings:
            message = f"{label}: settings such as those of {found!r} go after the order, not into its function"
            raise InputError(message)
        return chosen.order
    if isinstance(found, int | tuple | list):
        return Tree(_text(found, label))
    message = f"{label} must return an order, the text of one or nested tuples of leaves, not {type(found).__name__}"
    raise InputError(message)


def _text(tree: Nested, label: str) -> str:
    out: list[str] = []
    stack: list[Any] = [tree]
    while stack:
        top = stack.pop()
        if isinstance(top, str):
            out.append(top)
        elif isinstance(top, tuple | list) and len(top):
            stack.append(")")
            for place, part in enumerate(reversed(top)):
                stack += [" ", part] if place else [part]
            stack.append("(")
        elif isinstance(top, int | np.integer) and not isinstance(top, bool) and top >= 0:
            out.append(str(int(top)))
        else:
            message = f"{label}: a tree is made of tuples and leaf numbers, not {top!r}"
            raise InputError(message)
    return "".join(out)


def order(function: Any, /, *, name: str | None = None) -> Order:
    """Return an order from a function of the number of terms, for use wherever an order is.

    Parameters
    ----------
    function : callable
        From n to an order, to the text of one such as ``"lanes(8)"``, or to an explicit tree: text as `fpsim.strategy`
        reads it in ``tree("...")``, or nested tuples of leaf numbers, ``((0, 1), 2)``. The same n must give the same.
    name : str, optional
        What tables call it; the function's name by default.

    Returns
    -------
    Order

    Raises
    ------
    InputError
        `function` is no function.

    Examples
    --------
    >>> import fpsim
    >>> from fpsim import study
    >>> def halves(n):
    ...     return f"chunks({max(n // 2, 1)})"
    >>> fpsim.strategy(study.order(halves)).program(6).nested()
    '((0 1 2) (3 4 5))'
    """
    if not callable(function):
        message = f"an order is made from a function of the number of terms, not from {type(function).__name__}"
        raise InputError(message)
    label = name or getattr(function, "__name__", type(function).__name__)
    return FunctionOrder(function, str(label))
