"""The operations that real routines are checked on: their operands, their emulation, and their exact result."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim import bounds, emulation, exact
from fpsim._execution import storage
from fpsim.emulation import _unrounded
from fpsim.errors import InputError, UnknownOrderError
from fpsim.formats import FLOAT32, Format, as_format, round_to
from fpsim.laws import Law, law as as_law
from fpsim.strategies import Strategy, strategy as as_strategy

Array = NDArray[Any]
_SAMPLED = 16  # prefixes of a cumulative sum whose exact value is worked out
_SPREAD = 4.0  # of the logarithm of a product of all terms
_SLACK = 1.0 + 2.0**-40  # for bounds that are worked out in float64
_BITS = 2400  # of a variance: twice float32's exponent range, and 2000 for float64's as far as its data use it


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on operands of one size.

    Attributes
    ----------
    name : str
        What it is called.
    size : str
        What its size consists of, such as ``"m x k x n"``.
    shapes : callable
        The shapes of the operands for the numbers of a size.
    emulate : callable
        The result under a strategy: ``emulate(operands, strategy)``.
    errors : callable
        ``errors(operands, result)``: abs(error) of each output in ulps of the exact value, NaN where that is not
        finite. Of a cumulative sum only some are worked out, of float64 products of single numbers none: the others
        are NaN.
    bound : callable or None
        ``bound(operands, strategy)``: the worst-case bound of each output's error in the same ulps.
    """

    name: str
    size: str
    shapes: Callable[..., tuple[tuple[int, ...], ...]]
    emulate: Callable[[tuple[Array, ...], Strategy], Array]
    errors: Callable[[tuple[Array, ...], Array], Array]
    bound: Callable[[tuple[Array, ...], Strategy], Array] | None = None

    @property
    def dimensions(self) -> int:
        """How many numbers a size has."""
        return len(self.size.split(" x "))

    def draw(
        self, size: tuple[int, ...], law: str | Law, /, *, rng: np.random.Generator, dtype: Any = "float32"
    ) -> tuple[Array, ...]:
        """Draw operands of a size; a product of all terms has a law of its own, with which it stays in range.

        Raises
        ------
        InputError
            The size has another number of dimensions than the operation.
        """
        if len(size) != self.dimensions:
            message = f"{self.name} has sizes {self.size}, not {'x'.join(map(str, size))}"
            raise InputError(message)
        chosen = as_law(law)
        if self.name == "prod":
            # The logarithm of a running product then spreads over at most some 2.3 binades; float16 has 14 each way.
            width = min(1.0, _SPREAD / math.sqrt(max(math.prod(size), 1)))
            chosen = Law("wide", (-width, width))
        return tuple(chosen.draw(shape, rng=rng, dtype=dtype) for shape in self.shapes(*size))


# --- errors -----------------------------------------------------------------------------------------------------------


def _from_exact(value: Callable[..., exact.Exact]) -> Callable[[tuple[Array, ...], Array], Array]:
    def errors(operands: tuple[Array, ...], result: Array) -> Array:
        signed: Array = np.asarray(value(*operands).ulp_error(result))
        return np.abs(signed)

    return errors


def _from_mpmath(value: Callable[[Array], Any]) -> Callable[[tuple[Array, ...], Array], Array]:
    """Return errors against an mpmath number, for an operation with one output."""

    def errors(operands: tuple[Array, ...], result: Array) -> Array:
        import mpmath

        (x,) = operands
        form = as_format(result.dtype)
        if x.size == 0 or not np.isfinite(x).all():
            return np.full(result.shape, np.nan)
        with mpmath.workprec(_BITS):
            return np.array(_ulps(float(result), value(x), form)).reshape(result.shape)

    return errors


def _ulps(result: float, value: Any, form: Format) -> float:
    import mpmath

    if not math.isfinite(result):
        return math.nan
    unit = max(mpmath.frexp(value)[1] - 1 if value else form.emin, form.emin) - form.precision + 1
    return float(mpmath.ldexp(abs(mpmath.mpf(result) - value), -unit))


def _mean(x: Array) -> Any:
    return exact.sum(x).to_mpmath() / x.size


def _norm(x: Array) -> Any:
    import mpmath

    return mpmath.sqrt(exact.dot(x, x).to_mpmath())


def _variance(x: Array) -> Any:
    total = exact.sum(x).to_mpmath()
    return (exact.dot(x, x).to_mpmath() - total * total / x.size) / x.size


def _deviation(x: Array) -> Any:
    import mpmath

    return mpmath.sqrt(_variance(x))


def _product(x: Array) -> Any:
    import mpmath

    with mpmath.workprec(200):
        return mpmath.fprod(x.tolist())


def _cumulative(operands: tuple[Array, ...], result: Array) -> Array:
    (x,) = operands
    out = np.full(x.shape, np.nan)
    for last in _some_places(x):
        out[last] = abs(float(exact.sum(x[: last + 1]).ulp_error(result[last])))
    return out


def _some_places(x: Array) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, x.size - 1, min(_SAMPLED, x.size)).astype(np.int64))


def _multiplied(operands: tuple[Array, ...], result: Array) -> Array:
    if as_format(operands[0].dtype).precision > 24:
        return np.full(result.shape, np.nan)
    products = _products(operands)
    with np.errstate(invalid="ignore"):
        errors = np.abs(result.astype(np.float64) - products) / _units(products, as_format(result.dtype))
    return np.where(np.isfinite(products) & np.isfinite(result), errors, np.nan)


# --- emulation --------------------------------------------------------------------------------------------------------


def _plainly(name: str, **settings: Any) -> Callable[[tuple[Array, ...], Strategy], Array]:
    def emulate(operands: tuple[Array, ...], strategy: Strategy) -> Array:
        return np.asarray(getattr(emulation, name)(*operands, strategy, **settings))

    return emulate


def _products(operands: tuple[Array, ...]) -> Array:
    """Return the products of two arrays, exact in float64."""
    a, b = operands
    if as_format(a.dtype).precision > 24:
        message = "products are exact in float64 for operands of at most 24 bits; multiply float32"
        raise UnknownOrderError(message)
    with np.errstate(all="ignore"):
        return a.astype(np.float64) * b.astype(np.float64)


def _rounded_products(operands: tuple[Array, ...], strategy: Strategy) -> Array:
    form = as_format(operands[0].dtype)
    target = strategy.arithmetic(form).result_format if form == FLOAT32 else form
    with np.errstate(over="ignore"):
        return np.asarray(round_to(_products(operands), target)).astype(storage(target))


# --- bounds -----------------------------------------------------------------------------------------------------------


def _bounded(
    op: str, value: Callable[..., exact.Exact], axis: int | None = None
) -> Callable[[tuple[Array, ...], Strategy], Array]:
    def bound(operands: tuple[Array, ...], strategy: Strategy) -> Array:
        absolute: Array = np.asarray(bounds.bound(op, strategy, *operands, axis=axis))
        return absolute / _units(value(*operands).round("float64"), _result_format(operands, strategy))

    return bound


def _mean_bound(operands: tuple[Array, ...], strategy: Strategy) -> Array:
    """Bound the error of the sum, divided by n, and at most two more roundings (of 1/n and of the product with it)."""
    (x,) = operands
    form = _result_format(operands, strategy)
    total = float(bounds.bound("sum", strategy, x))
    value = abs(float(exact.sum(x)))
    error = (total + 1.5 * form.eps * (value + total)) / max(x.size, 1)
    return np.asarray(error / _units(value / max(x.size, 1), form))


def _norm_bound(operands: tuple[Array, ...], strategy: Strategy) -> Array:
    """Bound the error of the root by that of the sum of squares, and by two more roundings in whatever direction."""
    (x,) = operands
    data = as_format(x.dtype)
    value = float(exact.dot(x, x).round("float64"))
    total = float(bounds.bound("dot", _unrounded(strategy, data), x, x, value=value)) + value * (_SLACK - 1.0)
    root = math.sqrt(value)
    error = max(root - math.sqrt(max(value - total, 0.0)), math.sqrt(value + total) - root)
    arithmetic = strategy.arithmetic(data)
    for form in (arithmetic.accumulator.format, arithmetic.result_format):
        least = form.smallest_normal if arithmetic.ftz else form.smallest_subnormal
        error += form.eps * (root + error) + least
    return np.asarray(error * _SLACK / _units(root, arithmetic.result_format))


def _cumulative_bounds(operands: tuple[Array, ...], strategy: Strategy) -> Array:
    """Bound the errors of the sampled prefixes: in none does a term pass more additions than in the whole sum."""
    (x,) = operands
    given = bounds.operands("sum", strategy, x)
    ((worst, _),) = bounds.worst_cases("sum", strategy, given)
    out = np.full(x.shape, np.nan)
    for last in _some_places(x):
        value = float(exact.sum(x[: last + 1]).round("float64"))
        magnitude = float(exact.sum(np.abs(x[: last + 1])).round("float64"))
        changed = float(given.conversion)
        error = float(worst.bound(magnitude * _SLACK + changed, value=abs(value) * _SLACK + changed)) + changed
        out[last] = error / _units(value, _result_format(operands, strategy))
    return out


def _result_format(operands: tuple[Array, ...], strategy: Strategy) -> Format:
    return strategy.arithmetic(as_format(operands[0].dtype)).result_format


def _units(values: Any, form: Format) -> Array:
    """Return the ulps of values in a format."""
    _, exponent = np.frexp(np.asarray(values, np.float64))
    units: Array = np.ldexp(1.0, np.maximum(exponent - 1, form.emin) - form.precision + 1)
    return units


_ONE = "n"


def _vector(n: int) -> tuple[tuple[int, ...], ...]:
    return ((n,),)


def _matrix(r: int, c: int) -> tuple[tuple[int, ...], ...]:
    return ((r, c),)


def _one_output(name: str, value: Callable[[Array], Any], bound: Any = None) -> Operation:
    return Operation(name, _ONE, _vector, _plainly(name), _from_mpmath(value), bound)


def _axis_sum(axis: int) -> Callable[[Array], exact.Exact]:
    return lambda x: exact.sum(x, axis=axis)


def _matrix_product(name: str, size: str, shapes: Callable[..., tuple[tuple[int, ...], ...]]) -> Operation:
    return Operation(
        name, size, shapes, _plainly("matmul"), _from_exact(exact.matmul), _bounded("matmul", exact.matmul)
    )


#: Every operation by its name.
OPERATIONS: dict[str, Operation] = {
    one.name: one
    for one in (
        Operation("sum", _ONE, _vector, _plainly("sum"), _from_exact(exact.sum), _bounded("sum", exact.sum)),
        Operation(
            "sum_axis0", "r x c", _matrix, _plainly("sum", axis=0),
            _from_exact(_axis_sum(0)), _bounded("sum", _axis_sum(0), 0),
        ),
        Operation(
            "sum_axis1", "r x c", _matrix, _plainly("sum", axis=1),
            _from_exact(_axis_sum(1)), _bounded("sum", _axis_sum(1), 1),
        ),
        Operation(
            "all_reduce", "ranks x n", _matrix, _plainly("sum", axis=0),
            _from_exact(_axis_sum(0)), _bounded("sum", _axis_sum(0), 0),
        ),
        _one_output("mean", _mean, _mean_bound),
        _one_output("var", _variance),
        _one_output("std", _deviation),
        _one_output("prod", _product),
        _one_output("norm", _norm, _norm_bound),
        Operation("cumsum", _ONE, _vector, _plainly("cumsum"), _cumulative, _cumulative_bounds),
        Operation(
            "dot", _ONE, lambda n: ((n,), (n,)), _plainly("dot"), _from_exact(exact.dot), _bounded("dot", exact.dot)
        ),
        _matrix_product("matvec", "m x k", lambda m, k: ((m, k), (k,))),
        _matrix_product("vecmat", "k x n", lambda k, n: ((k,), (k, n))),
        _matrix_product("matmul", "m x k x n", lambda m, k, n: ((m, k), (k, n))),
        Operation("multiply", "r x c", lambda r, c: ((r, c), (r, c)), _rounded_products, _multiplied),
    )
}  # fmt: skip


def operation(name: str, /) -> Operation:
    """Return an operation by its name.

    Raises
    ------
    InputError
        There is none of that name.
    """
    if name not in OPERATIONS:
        message = f"unknown operation {name!r}; use one of {', '.join(OPERATIONS)}"
        raise InputError(message)
    return OPERATIONS[name]


def predicted(name: str, strategy: str | Strategy, /, *operands: Array) -> Array:
    """Return the result of an operation under a strategy.

    Raises
    ------
    UnknownOrderError
        The strategy's rule does not know this case.
    """
    return operation(name).emulate(operands, as_strategy(strategy))
