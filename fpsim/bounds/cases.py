"""What a bound may look at: a strategy, its operands, and what is known of its partial sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.arithmetic import Arithmetic, Rounding
from fpsim.bounds.data import Operands, _index, bound_of, operands
from fpsim.bounds.formulas import relative_rounding_error
from fpsim.bounds.programs import one_format_bound
from fpsim.errors import FpsimError, InputError
from fpsim.orders import Order
from fpsim.orders.base import Reduction
from fpsim.programs import LEAF, Program
from fpsim.strategies import Strategy, strategy as as_strategy

Floats = NDArray[np.float64]


class NotApplicableError(FpsimError):
    """A bound does not apply to a case; the message says why. A bound of one's own may raise it too."""


@dataclass(frozen=True, slots=True)
class PartialSums:
    """Sums over all rounded results s_k of a tree, for every output; u_k is the unit roundoff of each.

    Attributes
    ----------
    first : ndarray of float64
        sum u_k abs(s_k).
    second : ndarray of float64
        Root of sum (u_k s_k)**2.
    largest : ndarray of float64
        Largest abs(s_k).
    roundings : ndarray of float64
        How many there are.
    """

    first: Floats
    second: Floats
    largest: Floats
    roundings: Floats


@dataclass(frozen=True, slots=False)
class Case:
    """A strategy on given data, as bounds see it.

    A bound is a callable that takes a case and returns an array of the shape of the result, or a number; it may raise
    `NotApplicableError`. Arrays below have the shape of the result.

    Attributes
    ----------
    op : str
        The operation.
    strategy : Strategy
        The strategy.
    inputs : tuple
        The operands as given.
    axis : int or tuple of int or None
        Of a sum.
    confidence : float
        What a probabilistic bound holds with, for each output.
    operands : Operands
        The operands as the strategy uses them, and A.
    programs : tuple of (Program, index)
        The trees, and the outputs that each computes.
    """

    op: str
    strategy: Strategy
    inputs: tuple[Any, ...]
    axis: Any
    confidence: float
    operands: Operands
    programs: tuple[tuple[Program, Any], ...] = field(repr=False)

    @property
    def failure(self) -> float:
        """1 - confidence."""
        return 1.0 - self.confidence

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return self.operands.magnitude.shape

    @property
    def n(self) -> int:
        """The number of terms of an output."""
        return self.programs[0][0].n

    @property
    def arithmetic(self) -> Arithmetic:
        """The arithmetic of the whole strategy."""
        return self.strategy.arithmetic(self.operands.data)

    @property
    def magnitude(self) -> Floats:
        """A, the sum of the magnitudes of the terms, or a little more."""
        return self.operands.magnitude

    @property
    def rounding(self) -> Rounding:
        """The accumulator format and mode."""
        return self.arithmetic.accumulator

    @property
    def u(self) -> float:
        """Unit roundoff of the accumulator: to nearest; twice that in other modes."""
        u = self.rounding.format.unit_roundoff
        return u if self.rounding.mode.startswith("nearest") else 2.0 * u

    @property
    def v(self) -> float:
        """Largest relative error of an addition with respect to the exact sum."""
        return relative_rounding_error(self.rounding)

    @cached_property
    def exact(self) -> Any:
        """The exact result, an `fpsim.exact.Exact`."""
        from fpsim import exact

        return exact.sum(*self.inputs, axis=self.axis) if self.op == "sum" else getattr(exact, self.op)(*self.inputs)

    @cached_property
    def value(self) -> Floats:
        """abs(exact result) in float64."""
        return np.asarray(np.abs(self.exact.round("float64")), np.float64)

    @cached_property
    def error(self) -> Floats:
        """abs(emulated result - exact result)."""
        from fpsim import emulation

        extra = {"axis": self.axis} if self.op == "sum" else {}
        with np.errstate(all="ignore"):
            result = getattr(emulation, self.op)(*self.inputs, self.strategy, **extra)
            return np.asarray(np.abs(self.exact.error(result)), np.float64)

    @cached_property
    def account(self) -> Any:
        """Half-ulp bound and variance of the local errors (hard, variance, largest), or None where there is none."""
        from fpsim._roundoff import account

        return account(self.op, self.strategy, *self.inputs, axis=self.axis)

    @cached_property
    def partial_sums(self) -> PartialSums:
        """Sums over the partial sums; raises `NotApplicableError` where a rounding cannot be seen on its own."""
        from fpsim.bounds._partial_sums import partial_sums

        return partial_sums(self)

    def each(self, of: Callable[[Program], float], /) -> Floats:
        """Return a number of each tree for the outputs that it computes."""
        out = np.zeros(self.shape)
        for program, places in self.programs:
            out[places] = of(program)
        return out

    def require(self, holds: object, why: str, /) -> None:
        """Raise `NotApplicableError` with the reason unless something holds."""
        if not holds:
            raise NotApplicableError(why)

    def require_one_format(self) -> None:
        """Raise `NotApplicableError` unless all roundings are to nearest in one format, and the operands are of it."""
        self.require(not np.any(self.operands.conversion), "operands are rounded first")
        for program, _ in self.programs:
            root = program.arithmetics[int(program.nodes[-1, 3])]
            plain = np.isfinite(one_format_bound(self.op, program, root, self.operands.data))
            own = root.output is None and all(
                a.accumulator == self.rounding and a.product in (None, self.rounding.format)
                for a in program.arithmetics
            )
            terms = self.op != "sum" or self.rounding.format.includes(self.operands.data)
            self.require(plain and own and terms, "not one format, to nearest, without compensation and flushing")

    def require_no_overflow(self) -> None:
        """Raise `NotApplicableError` where a partial sum may overflow."""
        self.require(np.isfinite(self.strategy_bound).all(), "partial sums may overflow, or no bound is known")

    @cached_property
    def strategy_bound(self) -> Floats:
        """The worst-case bound of the strategy, `fpsim.bounds.bound`."""
        return np.asarray(bound_of(self.op, self.strategy, self.operands, axis=self.axis, value=self.value))

    @cached_property
    def roundings(self) -> Floats:
        """Largest number of roundings on a path from a leaf to the root, products included."""
        return self.each(lambda program: float(self.leaf_roundings(program).max(initial=0)))

    def leaf_roundings(self, program: Program, /) -> NDArray[np.int64]:
        """Return the number of roundings that each leaf passes: additions, and its product unless that is fused."""
        depths = program.depths()
        if self.op == "sum":
            return depths
        fused = {node for node in range(len(program.nodes)) if program.arithmetics[int(program.nodes[node, 3])].fma}
        if not fused:
            return depths + 1
        product = np.ones(program.n, np.int64)
        if len(fused) == len(program.nodes):
            product[:] = 0
            product[_first_leaves(program)] = 1
        return depths + product


def _first_leaves(program: Program) -> NDArray[np.int64]:
    """Return the leaves that start an accumulator: their products are rounded even where products are fused."""
    known: list[NDArray[np.int64]] = []
    for node in range(len(program.nodes)):
        first, count = program.nodes[node, :2].tolist()
        parts = [np.zeros(0, np.int64)]
        for position, row in enumerate(program.segments[first : first + count].tolist()):
            base, n_outer, s_outer, n_inner, s_inner, child = row
            if child == LEAF:
                if position == 0:  # also where it is added to an exact zero
                    parts.append(np.array([base]))
                continue
            offsets = base + s_outer * np.arange(n_outer)[:, None] + s_inner * np.arange(n_inner)
            parts.append((offsets.reshape(-1, 1) + known[child]).reshape(-1))
        known.append(np.concatenate(parts))
    return known[-1]


def case(
    op: str, strategy: str | Strategy | Order, /, *inputs: Any, axis: Any = None, confidence: float = 0.999
) -> Case:
    """Return what bounds may look at.

    Parameters
    ----------
    op, strategy, *inputs, axis
        As for `operands`.
    confidence : float
        What probabilistic bounds hold with, for each output.

    Returns
    -------
    Case

    Raises
    ------
    InputError
        The data do not fit the operation, or the confidence does not lie between 0 and 1.

    Examples
    --------
    >>> from fpsim import bounds
    >>> one = bounds.case("sum", "pairwise", [1.0, 2.0, 3.0, 4.0])
    >>> print(f"{float(bounds.depth_weighted(one)) * 2**24:.4f}")
    20.0000
    """
    from fpsim._arrays import as_floats, axes_of
    from fpsim.emulation import product_shape

    if not 0 < confidence < 1:
        message = f"confidence must lie between 0 and 1, not {confidence}"
        raise InputError(message)
    chosen = as_strategy(strategy)
    given = operands(op, chosen, *inputs, axis=axis)
    if op == "sum":
        source = inputs[0] if isinstance(inputs[0], np.ndarray) else as_floats(inputs[0])[0]
        reduction = Reduction(source.shape, source.strides, axes_of(source.ndim, axis), given.data)
        n, parts = reduction.n, chosen.order.layout(reduction)[1]
    else:
        product = product_shape(*given.values)
        n, parts = product.k, chosen.order.product(product)
    programs = []
    for part in parts:
        own = chosen if part.order is chosen.order else Strategy(part.order, chosen.settings)
        programs.append((own.program(n, data=given.data), _index(op, part, given)))
    return Case(op, chosen, tuple(inputs), axis, confidence, given, tuple(programs))
