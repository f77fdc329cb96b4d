"""What a check is asked for: operations, sizes, operands."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from operator import index
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim._arrays import as_floats
from fpsim.errors import InputError
from fpsim.laws import Law

LAWS: Final = ("uniform(0, 1)", "normal(0, 1)", "wide(-12, 12)")
NARROW_LAWS: Final = ("uniform(0, 1)", "normal(0, 1)", "wide(-4, 4)")
SIZES: Final[dict[int, tuple[tuple[int, ...], ...]]] = {
    1: ((7,), (1000,), (4097,), (100_000,)),
    2: ((3, 50), (200, 100), (257, 129)),
    3: ((5, 40, 3), (33, 77, 29), (100, 400, 100)),
}
RANKS: Final = ((2, 1000), (3, 5003))  # of an all-reduce: processes and elements
DTYPES: Final = ("float16", "float32", "float64")
_LARGEST = 2**31  # elements

_Array = NDArray[Any]


def case_of(op: str, /, *operands: Any) -> tuple[str, tuple[_Array, ...]]:
    """Return the name of the operation that `check_operands` runs, and the operands side by side in memory.

    Raises
    ------
    InputError
        As `check_operands` does.
    """
    arrays = tuple(np.atleast_1d(as_floats(x, name=f"operand {i}")[0]) for i, x in enumerate(operands))
    arrays = tuple(np.ascontiguousarray(x) for x in arrays)
    kinds = {
        ("sum", (1,)): "sum", ("sum", (2,)): "sum_axis1", ("dot", (1, 1)): "dot", ("matmul", (1, 1)): "dot",
        ("matmul", (2, 1)): "matvec", ("matmul", (1, 2)): "vecmat", ("matmul", (2, 2)): "matmul",
    }  # fmt: skip
    name = kinds.get((op, tuple(x.ndim for x in arrays)))
    held = " and ".join(f"{x.dtype}{x.shape}" for x in arrays)
    if name is None or len({x.dtype for x in arrays}) != 1 or str(arrays[0].dtype) not in DTYPES:
        message = f"{op} is run for one or two dimensions and one type, float16, float32 or float64, not for {held}"
        raise InputError(message)
    if len(arrays) == 2 and arrays[0].shape[-1] != arrays[1].shape[0]:
        message = f"{op} needs as many terms on either side, not {held}"
        raise InputError(message)
    return name, arrays


def listed(given: Any, what: str) -> list[Any]:
    """Return what is asked for as a list; one text is a list of it."""
    if given is None:
        return []
    if isinstance(given, str | Law):
        return [given]
    try:
        return list(given)
    except TypeError:
        message = f"{what} are named by text or a list of texts, not by {given!r}"
        raise InputError(message) from None


def sizes_of(given: Any, wanted: set[int]) -> dict[int, tuple[tuple[int, ...], ...]]:
    """Return the sizes for operations of one, two and three dimensions."""
    if given is None:
        return SIZES
    sizes = [_size(one) for one in (given if isinstance(given, Iterable) and not isinstance(given, str) else [given])]
    out = {count: tuple(size for size in sizes if len(size) == count) for count in (1, 2, 3)}
    unused = [size for size in sizes if len(size) not in wanted]
    if unused:
        message = f"no operation that is checked has sizes like {'x'.join(map(str, unused[0]))}"
        raise InputError(message)
    return out


def _size(given: Any) -> tuple[int, ...]:
    words = given.lower().split("x") if isinstance(given, str) else given if isinstance(given, tuple) else (given,)
    try:
        size = tuple(int(word) if isinstance(word, str) else index(word) for word in words)
    except (TypeError, ValueError):
        size = ()
    if not 1 <= len(size) <= 3 or min(size) < 1:
        message = f"a size is one to three whole numbers of at least 1, such as 1000 or 64x300x48, not {given!r}"
        raise InputError(message)
    largest = max(math.prod(pair) for pair in itertools.combinations(size, min(len(size), 2)))
    if largest > _LARGEST:
        message = f"operands and results have at most 2**31 elements here; size {given!r} needs {largest}"
        raise InputError(message)
    return size


def spawned(rng: Any, count: int) -> Iterator[np.random.Generator]:
    """Return generators, one for each case."""
    from fpsim.formats import _generator

    return iter(_generator(rng).spawn(count))
