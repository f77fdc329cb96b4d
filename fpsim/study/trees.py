"""Orders from a function of one's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fpsim.arithmetic import Arithmetic
from fpsim.errors import InputError
from fpsim.orders import Order, Tree
from fpsim.programs import Builder, Items, Segment, count_items

Nested = Any  # an int, or a tuple of such trees


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
