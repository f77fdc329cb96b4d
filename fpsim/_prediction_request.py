"""What a prediction is asked for: strategies, sizes, laws of data, and how often they are drawn."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from fpsim.errors import InputError, StrategyError
from fpsim.laws import Law, law as as_law
from fpsim.orders import Order
from fpsim.strategies import Strategy, strategy as as_strategy

DEFAULT_SUMS: Final = ("serial", "pairwise", "numpy_sum", "lanes(8)", "split_k(4)", "grid(32, 256)")
DEFAULT_PRODUCTS: Final = ("serial", "serial+fma", "pairwise", "lanes(8)+fma", "split_k(4)+fma", "grid(4, 64)+fma")

# What a term costs, in nanoseconds, to choose the number of repeats; estimates, so that the choice can be repeated.
_BUDGET, _DRAWING, _EXACT, _GENERAL, _OUTPUT = 6e9, 10.0, 2.0, 50.0, 300.0
_PLAIN = {"sum": 3.0, "dot": 3.0, "matmul": 0.7}
_MOST_REPEATS = 1000
LARGEST_REPEATS: Final = 10**6


def strategies_of(op: str, given: Any, fma: bool | str | None) -> tuple[list[Strategy], list[str]]:
    """Return the strategies, each once, and what is to be said about them."""
    if fma not in (None, True, False, "both"):
        message = f"fma must be True, False, 'both' or None, not {fma!r}"
        raise InputError(message)
    if given is None:
        given = DEFAULT_SUMS if op == "sum" else DEFAULT_PRODUCTS
    asked = [given] if isinstance(given, str | Strategy | Order) else list(given)
    if not asked:
        message = "name at least one strategy"
        raise InputError(message)
    notes: list[str] = []
    chosen = [as_strategy(one) for one in asked]
    if fma is not None and op == "sum":
        notes.append("a sum has no products, so FMA changes nothing in it")
    elif fma is not None:
        chosen = [new for one in chosen for new in _with_fma(one, fma, notes)]
    return list(dict.fromkeys(chosen)), list(dict.fromkeys(notes))


def _with_fma(one: Strategy, fma: bool | str, notes: list[str]) -> list[Strategy]:
    bare = Strategy(one.order, dataclasses.replace(one.settings, fma=None))
    separate = bare
    if bare.arithmetic().fma:
        separate = Strategy(one.order, dataclasses.replace(one.settings, fma=False))
    if fma is False:
        return [separate]
    try:
        fused = Strategy(one.order, dataclasses.replace(one.settings, fma=True))
        fused.program(2)
    except StrategyError as error:
        if fma is True:
            raise
        notes.append(f"{separate} has no FMA variant: {error}")
        return [separate]
    return [fused] if fma is True else [separate, fused]


def positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        message = f"{name} must be a whole number of at least 1, not {value!r}"
        raise InputError(message)
    return int(value)


def sizes_of(op: str, shape: Any) -> tuple[int, ...]:
    """Return the shape of an operation as whole numbers; the text ``"400x400x400"`` is a shape too."""
    forms = {"sum": ((1, 2), "n or outputs x n"), "dot": ((1,), "n"), "matmul": ((3,), "m x k x n")}
    lengths, wanted = forms[op]
    example = {"sum": "1000000", "dot": "1000", "matmul": "400x400x400"}[op]
    problem = f"the shape of a {op} is {wanted}, as in {example}"
    if shape is None:
        message = f"data of a law need a shape: {problem}"
        raise InputError(message)
    if isinstance(shape, str):
        words = shape.lower().replace("*", "x").split("x")
        if not all(word.strip().isascii() and word.strip().isdigit() for word in words):
            message = f"{problem}, not {shape!r}"
            raise InputError(message)
        given: tuple[Any, ...] = tuple(int(word) for word in words)
    else:
        given = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    if len(given) not in lengths:
        message = f"{problem}, not {'x'.join(map(str, given)) or '()'}"
        raise InputError(message)
    sizes = tuple(positive(f"the shape of a {op}", size) for size in given)
    m, k, n = sizes if op == "matmul" else (1, 1, math.prod(sizes))
    largest = max(m * k, k * n, m * n)
    if largest > 2**31:
        message = f"{'x'.join(map(str, sizes))} needs arrays of more than 2**31 numbers; choose a smaller shape"
        raise InputError(message)
    return sizes


def laws_of(op: str, given: Sequence[str | Law]) -> tuple[Law, ...]:
    wanted = 1 if op == "sum" else 2
    laws = tuple(as_law(one) for one in given)
    if len(laws) == 1:
        return laws * wanted
    if len(laws) != wanted:
        message = f"{op} takes one law, or one for each of its {wanted} operands, not {len(laws)}"
        raise InputError(message if wanted > 1 else f"a sum takes one law, not {len(laws)}")
    return laws


def default_repeats(op: str, sizes: tuple[int, ...], chosen: Sequence[Strategy]) -> int:
    """Return a number of repeats that takes some seconds, from estimates alone."""
    terms = math.prod(sizes)
    elements = terms if op == "sum" else 2 * terms if op == "dot" else sizes[1] * (sizes[0] + sizes[2])
    plain = sum(one.arithmetic().is_plain for one in chosen)
    outputs = math.prod(sizes[:-1]) if op == "sum" else sizes[0] * sizes[-1] if op == "matmul" else 1
    cost = elements * _DRAWING + terms * (_EXACT + plain * _PLAIN[op] + (len(chosen) - plain) * _GENERAL)
    cost += outputs * _OUTPUT * (2 + len(chosen))
    return int(min(max(_BUDGET // cost, 1), _MOST_REPEATS))
