"""Float64 products as sums of exact products of narrow slices of the operands: the Ozaki scheme, fixed-point emulation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim import emulation
from fpsim._arrays import as_floats
from fpsim.errors import InputError
from fpsim.strategies import Strategy

_INT32 = 2.0**31
_SMALLEST = -1074  # exponent of the last bit of float64


@dataclass(frozen=True, slots=True)
class Slices:
    """Rows or columns as fixed-point numbers, in slices of a few bits.

    Attributes
    ----------
    parts : tuple of float64 arrays
        The slices, whole numbers, the most significant one first, in the shape of the data.
    exponents : int64 array
        The power of two of each row (or column) that is above all of it.
    bits : tuple of int
        Bits of each slice after its sign: part i counts ``2.0**(exponents - sum(bits[:i + 1]))``.
    """

    parts: tuple[NDArray[np.float64], ...]
    exponents: NDArray[np.int64]
    bits: tuple[int, ...]

    @property
    def places(self) -> NDArray[np.int64]:
        """Bits from the top to the end of each slice."""
        return np.cumsum(self.bits)


def slices(x: Any, /, *, count: int | None = 8, bits: int = 7, signed: bool = True, axis: int = -1) -> Slices:
    """Return float64 numbers as integer slices of a common scale for each row (axis -1) or column (axis 0).

    Parameters
    ----------
    x : array_like of shape (m, n)
        A matrix of finite numbers.
    count : int or None
        The number of slices; None for as many as hold every bit.
    bits : int
        Bits of a slice after its sign, 1 to 10: 7 fill int8.
    signed : bool
        True: every slice has the sign of its number and is truncated (Ootomo, Ozaki & Yokota 2024). False: the first
        one is rounded down, and those after it have no sign and one bit more (ADP, arXiv 2511.13778).
    axis : {-1, 0}
        The inner dimension of the product.

    Returns
    -------
    Slices

    Raises
    ------
    InputError
        x is no matrix of finite numbers, or `count` or `bits` is out of range.

    Examples
    --------
    >>> from fpsim.fixed_point import slices
    >>> found = slices([[1.0, -0.34375]], count=2, bits=3)
    >>> [part.tolist() for part in found.parts], found.exponents.tolist()
    ([[[4.0, -1.0]], [[0.0, -3.0]]], [1])
    >>> [part.tolist() for part in slices([[1.0, -0.34375]], count=2, bits=3, signed=False).parts]
    [[[4.0, -2.0]], [[0.0, 10.0]]]
    """
    values = as_floats(x)[0].astype(np.float64)
    if values.ndim != 2 or not np.isfinite(values).all():
        message = "fixed-point products need matrices of finite numbers; libraries fall back to float64 for others"
        raise InputError(message)
    if not 1 <= bits <= 10 or (count is not None and not 1 <= count <= 400):
        message = f"a number has 1 to 400 slices of 1 to 10 bits, not {count} of {bits}"
        raise InputError(message)
    exponents = np.frexp(np.abs(values).max(axis=axis, initial=0.0))[1].astype(np.int64)
    rest = np.ldexp(values, -np.expand_dims(exponents, axis))
    parts: list[NDArray[np.float64]] = []
    widths: list[int] = []
    while count is None or len(parts) < count:
        width = bits + (not signed and bool(parts))
        scaled = np.ldexp(rest, width)
        part = np.trunc(scaled)
        parts.append(part)
        widths.append(width)
        rest = scaled - part
        if count is None and not rest.any():
            break
    if not signed:
        parts[-1] = parts[-1] - (rest < 0)
        for i in range(len(parts) - 1, 0, -1):
            borrowed = parts[i] < 0
            parts[i], parts[i - 1] = parts[i] + borrowed * 2.0 ** widths[i], parts[i - 1] - borrowed
    return Slices(tuple(parts), exponents, tuple(widths))


def fixed_point_matmul(
    a: Any,
    b: Any,
    strategy: str | Strategy | None = None,
    /,
    *,
    count: int | None = 8,
    bits: int = 7,
    signed: bool = True,
    triangular: bool = True,
    grouped: bool = True,
) -> NDArray[np.float64]:
    """Return a float64 product that is made of exact products of integer slices of the operands.

    Parameters
    ----------
    a, b : array_like of shapes (m, k) and (k, n)
        Finite matrices.
    strategy : str or Strategy, optional
        How slices are multiplied, such as ``"tensor_core(arch=hopper, type=float16)"``. By default as integers, exactly,
        as an int8 unit with an int32 accumulator does it.
    count, bits, signed
        The slices of both operands, see `slices`. 8 of 7 bits hold 56 bits; 7 without signs 55, which cuBLAS calls a
        mantissa of 55 bits.
    triangular : bool
        Only the products of slices i and j (from 0) with i + j < count are made, the others being as small as what the
        slices have left out.
    grouped : bool
        Products with the same i + j are added exactly (Uchino, Ozaki & Imamura 2024), and those sums in float64, the
        small ones first. False: every product is added in float64, i before j, the large ones first.

    Returns
    -------
    float64 array of shape (m, n)

    Raises
    ------
    InputError
        The operands do not fit, or int32 does not hold the sums: at most 2**31 / (2**bits - 1)**2 terms.

    Notes
    -----
    The scheme of Ozaki, Ogita, Oishi & Rump (Numerical Algorithms 59, 2012) with the integer slices of Ootomo, Ozaki &
    Yokota (Int. J. High Performance Computing Applications 38, 2024). `fixed_point_bound` bounds its error. The bits of
    cuBLAS are not claimed: its slices are as here, from the authors' description, but its order was not observed.

    Examples
    --------
    >>> import numpy as np, fpsim
    >>> from fpsim.fixed_point import fixed_point_matmul
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(size=(20, 300)), rng.normal(size=(300, 20))
    >>> exact = fpsim.exact.matmul(a, b)
    >>> for count in (4, 6, 8):
    ...     print(count, f"{abs(exact.error(fixed_point_matmul(a, b, count=count))).max():.0e}")
    4 4e-06
    6 4e-10
    8 2e-14
    """
    left, right = _operands(a, b, count, bits, signed)
    total = np.zeros((left.parts[0].shape[0], right.parts[0].shape[1]))
    most = max(len(left.parts), len(right.parts)) if triangular else len(left.parts) + len(right.parts)
    pairs = [(i, j) for i in range(len(left.parts)) for j in range(len(right.parts)) if i + j < most]
    shifts = {(i, j): -int(left.places[i] + right.places[j]) for i, j in pairs}
    if not grouped:
        for i, j in pairs:
            total = total + np.ldexp(_product(left.parts[i], right.parts[j], strategy), shifts[i, j])
    for level in range(most - 1, -1, -1) if grouped else ():
        own = [pair for pair in pairs if sum(pair) == level]
        if own:  # of different scales where only the first slices have signs
            lowest = min(shifts[pair] for pair in own)
            group = sum(
                np.ldexp(_product(left.parts[i], right.parts[j], strategy), shifts[i, j] - lowest) for i, j in own
            )
            total = total + np.ldexp(group, lowest)
    return _scaled(total, left, right)


def fixed_point_bound(
    a: Any, b: Any, /, *, count: int | None = 8, bits: int = 7, signed: bool = True, triangular: bool = True,
    grouped: bool = True,
) -> NDArray[np.float64]:  # fmt: skip
    """Return a bound of the error of every element of `fixed_point_matmul` with integer units.

    Parameters
    ----------
    a, b, count, bits, signed, triangular, grouped
        As for `fixed_point_matmul`.

    Returns
    -------
    float64 array of shape (m, n)

    Notes
    -----
    With W bits in all slices of an operand, whose largest magnitude is below 2**e, each number loses less than
    2**(e - W), so that a sum of k products loses less than ``k 2**(e_a + e_b - W) (2 + 2**-W)``. Products of slices
    that are not made add ``k 2**(e_a + e_b - W) c (count - 1) / (1 - 2**(1 - bits))**2``, c = 1 with signs and 2
    without. The additions in float64 add 2**-53 times the sum of all magnitudes for each of them.
    """
    left, right = _operands(a, b, count, bits, signed)
    k, s = left.parts[0].shape[1], min(len(left.parts), len(right.parts))
    width = int(min(left.places[-1], right.places[-1]))
    lost = 0.0 if count is None else 2.0 + 2.0**-width
    if triangular and s > 1:
        lost += (1 if signed else 2) * (max(len(left.parts), len(right.parts)) - 1) / (1 - 2.0 ** (1 - bits)) ** 2
    adds = len(left.parts) + len(right.parts) if grouped else len(left.parts) * len(right.parts)
    magnitudes = _magnitudes(left) @ _magnitudes(right)
    total = k * lost * 2.0**-width + adds * 2.0**-53 * magnitudes
    return _scaled(total * (1 + 2.0**-50), left, right) + 2.0**_SMALLEST


def _operands(a: Any, b: Any, count: int | None, bits: int, signed: bool) -> tuple[Slices, Slices]:
    left = slices(a, count=count, bits=bits, signed=signed)
    right = slices(b, count=count, bits=bits, signed=signed, axis=0)
    k = left.parts[0].shape[1]
    if k != right.parts[0].shape[0]:
        message = f"shapes {left.parts[0].shape} and {right.parts[0].shape} do not match"
        raise InputError(message)
    widest = 2.0 ** max(left.bits)
    if k * (widest - 1) ** 2 >= _INT32:
        message = (
            f"int32 does not hold sums of {k} products of {bits} bits: take fewer bits, or cut the inner dimension"
        )
        raise InputError(message)
    return left, right


def _product(
    left: NDArray[np.float64], right: NDArray[np.float64], strategy: str | Strategy | None
) -> NDArray[np.float64]:
    if strategy is None:
        return left @ right  # exact: whole numbers below 2**31
    narrow = left.astype(np.float32), right.astype(np.float32)
    return np.asarray(emulation.matmul(*narrow, strategy), np.float64)


def _magnitudes(one: Slices) -> NDArray[np.float64]:
    weights = [np.ldexp(np.abs(part), -int(place)) for part, place in zip(one.parts, one.places, strict=True)]
    return np.sum(weights, axis=0) * (1 + 2.0**-40)  # type: ignore[no-any-return]


def _scaled(total: NDArray[np.float64], left: Slices, right: Slices) -> NDArray[np.float64]:
    out: NDArray[np.float64] = np.ldexp(total, np.add.outer(left.exponents, right.exponents))
    return out


__all__ = ["Slices", "fixed_point_bound", "fixed_point_matmul", "slices"]
