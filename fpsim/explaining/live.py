"""Explanations of what real routines give here: they run, and their results are explained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from fpsim.devices import implementations
from fpsim.devices.base import Implementation
from fpsim.devices.operations import OPERATIONS
from fpsim.emulation import product_shape
from fpsim.errors import InputError, MissingExtraError, UnknownOrderError
from fpsim.explaining.results import Explanation
from fpsim.explanation import explain
from fpsim.laws import Law, law as as_law
from fpsim.orders.base import Order
from fpsim.strategies import Strategy

#: Operations of routines, what `fpsim.explain` calls them, the axis, and a size that has something to round.
_OPERATIONS: Final[dict[str, tuple[str, int | None, tuple[int, ...]]]] = {
    "sum": ("sum", None, (1000,)), "sum_axis0": ("sum", 0, (100, 64)), "sum_axis1": ("sum", 1, (64, 100)),
    "mean": ("mean", None, (1000,)), "var": ("var", None, (1000,)), "std": ("std", None, (1000,)),
    "prod": ("prod", None, (1000,)), "norm": ("norm", None, (1000,)), "cumsum": ("cumsum", None, (1000,)),
    "dot": ("dot", None, (1000,)), "matvec": ("matmul", None, (64, 256)), "vecmat": ("matmul", None, (256, 64)),
    "matmul": ("matmul", None, (64, 64, 64)),
}  # fmt: skip


def explain_live(
    routine: str,
    /,
    *,
    against: Sequence[str] = (),
    inputs: Sequence[Any] | None = None,
    shape: Sequence[int] | None = None,
    data: str | Law = "normal",
    dtype: Any = "float32",
    seed: int = 0,
) -> Explanation:
    """Run a real routine on this machine and explain what it gives.

    Parameters
    ----------
    routine : str
        A library or an implementation of `fpsim.devices.implementations`, and an operation: ``numpy.matmul``,
        ``torch.cpu.sum``. ``torch`` stands for all implementations
        whose names begin so and that can run here.
    against : sequence of str
        Other implementations, whose results are compared with it.
    inputs : sequence of array_like, optional
        The operands; drawn from `data` by default.
    shape : sequence of int, optional
        Size of the operation, such as m, k, n of a product.
    data : str or Law
        Law of the operands.
    dtype : dtype
        Their type.
    seed : int
        Of the operands.

    Returns
    -------
    Explanation
        A routine whose runs may differ is run twice, as two sides.

    Raises
    ------
    InputError
        No such implementation or operation, or sizes that do not fit.
    MissingExtraError
        None of the implementations can run here.
    UnknownOrderError
        An implementation has no such operation.

    Examples
    --------
    >>> from fpsim.explaining.live import explain_live
    >>> found = explain_live("numpy.sum", against=["numba.serial"], shape=[1000])
    >>> found.verdict, [side.name for side in found.sides]
    ('expected rounding', ['numpy', 'numba.serial'])
    """
    library, _, operation = routine.rpartition(".")
    if operation not in _OPERATIONS or not library:
        message = (
            f"{routine!r} is not a routine: write an implementation and an operation, such as numpy.matmul; operations"
            f" are {', '.join(_OPERATIONS)}"
        )
        raise InputError(message)
    op, axis, usual = _OPERATIONS[operation]
    chosen = [*_running(library, operation), *(one for name in against for one in _running(name, operation))]
    if inputs is None:
        size = tuple(shape) if shape is not None else usual
        operands = OPERATIONS[operation].draw(size, as_law(data), rng=np.random.default_rng(seed), dtype=dtype)
    else:
        operands = tuple(np.ascontiguousarray(x) for x in inputs)
    observed: dict[str, Any] = {}
    strategies: dict[str, None] = {}
    for one in dict.fromkeys(one.name for one in chosen):
        device = next(other for other in chosen if other.name == one)
        observed[one] = device.run(operation, *operands)
        if not device.routine(operation).reproducible:
            observed[f"{one} (second run)"] = device.run(operation, *operands)
        try:
            own = device.strategy(operation, *operands)
            if not _by_shape(own, op, operands):
                own.program(2)  # raises where its order is chosen for each output of a sum
            strategies[str(own)] = None
        except UnknownOrderError:
            continue
    settings: dict[str, Any] = {}
    if op in ("sum", "dot", "matmul"):
        settings["strategies"] = strategies
    return explain(observed, op=op, inputs=operands if len(operands) > 1 else operands[0], axis=axis, **settings)


def _by_shape(own: Strategy, op: str, operands: Sequence[Any]) -> bool:
    """Tell whether a strategy chooses the orders of a product by its shape, and knows this one."""
    if op not in ("dot", "matmul") or type(own.order).product is Order.product:
        return False
    own.order.product(product_shape(*operands))
    return True


def _running(name: str, operation: str) -> list[Implementation]:
    """Return the implementations of a name that run an operation here."""
    known = implementations(name)
    known = tuple(one for one in known if one.name == name) or known
    running = [one for one in known if one.available and operation in one.routines]
    if running:
        return running
    if not any(one.available for one in known):
        message = f"{name} cannot run here: {known[0].unavailable}"
        raise MissingExtraError(message)
    message = f"{name} has no {operation}; it has {', '.join(next(one for one in known if one.available).routines)}"
    raise UnknownOrderError(message)
