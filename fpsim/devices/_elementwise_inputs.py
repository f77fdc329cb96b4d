"""What the elementwise functions are measured on: bit patterns spread over all exponents, and operands that meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

PATTERNS = 2**32
_SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, -2.0, 1.5, np.inf, -np.inf, np.nan, 2.0**-126, -(2.0**-149), 2.0**127],
    np.float32,
)


def bit_patterns(start: int, stop: int, samples: int, rng: np.random.Generator) -> Array:
    """Return positions `start` to `stop` of a sample of all float32 bit patterns: a random one from each equal interval.

    With 2**32 samples these are all patterns, in order. Every sign and exponent gets its 512th of the sample.
    """
    width = PATTERNS // samples
    bits = np.arange(start, stop, dtype=np.int64) * width
    if width > 1:
        bits += rng.integers(0, width, stop - start)
    return bits.astype(np.uint32).view(np.float32)


def _any_bits(size: int, rng: np.random.Generator) -> Array:
    return rng.integers(0, PATTERNS, size, dtype=np.uint32).view(np.float32)


def _near(x: Array, rng: np.random.Generator) -> Array:
    """Return numbers whose exponents are within 26 of those of x, of either sign."""
    bits = x.view(np.uint32).astype(np.int64)
    magnitude = np.clip((bits & 0x7FFFFFFF) + rng.integers(-26 << 23, 26 << 23, x.size), 0, 0x7F7FFFFF)
    bits = magnitude | (rng.integers(0, 2, x.size) << 31)
    return np.asarray(bits.astype(np.uint32).view(np.float32))


def _mixed(parts: list[Callable[[Array], Array]], size: int, rng: np.random.Generator) -> Array:
    """Return `size` numbers, each made by one of the parts, which take the positions that they fill."""
    which = rng.integers(0, len(parts), size)
    out = np.empty(size, np.float32)
    for k, part in enumerate(parts):
        positions = np.flatnonzero(which == k)
        out[positions] = part(positions)
    return out


def _exponents_for(x: Array, rng: np.random.Generator) -> Array:
    """Return exponents y for which x**y is spread evenly over the float32 range, on a logarithmic scale."""
    logarithm = np.log2(np.abs(x.astype(np.float64)))
    return (rng.uniform(-152.0, 129.0, x.size) / logarithm).astype(np.float32)


def _second(function: str, x: Array, rng: np.random.Generator) -> Array:
    def anything(at: Array) -> Array:
        return _any_bits(at.size, rng)

    def special(at: Array) -> Array:
        return rng.choice(_SPECIAL, at.size)

    if function == "pow":

        def small(at: Array) -> Array:
            return rng.choice(np.arange(-16, 17), at.size) / np.float32(2)

        def in_range(at: Array) -> Array:
            return _exponents_for(x[at], rng)

        return _mixed([in_range, in_range, in_range, in_range, in_range, small, anything, special], x.size, rng)

    def near(at: Array) -> Array:
        return _near(x[at], rng)

    return _mixed([near, near, near, near, anything, anything, anything, special], x.size, rng)


def _third(x: Array, y: Array, rng: np.random.Generator) -> Array:
    product = x * y

    def near(at: Array) -> Array:
        return _near(product[at], rng)

    def cancelling(at: Array) -> Array:
        bits = (-product[at]).view(np.int32).astype(np.int64) + rng.integers(-2, 3, at.size)
        return bits.astype(np.int32).view(np.float32)

    def anything(at: Array) -> Array:
        return _any_bits(at.size, rng)

    return _mixed([near, near, cancelling, anything], x.size, rng)


def operands(function: str, count: int, start: int, stop: int, samples: int, rng: np.random.Generator) -> list[Array]:
    """Return positions `start` to `stop` of the sample for a function of `count` operands.

    The first operand is `bit_patterns`. The others are drawn so that they meet it: exponents near those of the first
    operand or of the product, exact cancellation, powers inside the range, and any bit pattern besides. Signaling NaNs
    are made quiet: of these functions a power alone tells them apart.
    """
    x = bit_patterns(start, stop, samples, rng)
    if count == 1:
        return [x]
    with np.errstate(all="ignore"):
        y = _second(function, x, rng)
        drawn = [x, y] if count == 2 else [x, y, _third(x, y, rng)]
    return [np.where(np.isnan(z), np.float32(np.nan), z) for z in drawn]
