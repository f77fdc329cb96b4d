"""An evaluator of fused adds in integers and fractions, one output at a time, that shares no code with the library."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

# A zero accumulator counts with the smallest exponent of its format, or of float32, less this: by fraction bits, or 7.
BELOW = {23: 5, 24: 6}


def exponent(x: Fraction) -> int:
    """Return e with 2**e <= abs(x) < 2**(e + 1)."""
    e = abs(x.numerator).bit_length() - x.denominator.bit_length()
    return e if abs(x) >= Fraction(2) ** e else e - 1


def truncated(x: Fraction, quantum: int) -> Fraction:
    """Return x without what is below 2**quantum."""
    unit = Fraction(2) ** quantum
    return math.trunc(x / unit) * unit


def rounded(x: Fraction, precision: int, emin: int, emax: int, mode: str) -> float:
    """Return x in a format with infinities; too large is infinite in every mode, as the units have it."""
    if x == 0:
        return 0.0
    quantum = max(exponent(x), emin) - precision + 1
    unit = Fraction(2) ** quantum
    low = truncated(x, quantum)
    if mode == "nearest-even":
        rest, half = abs(x - low), unit / 2
        if rest > half or (rest == half and (low / unit).numerator % 2):
            low += unit if x > 0 else -unit
    if low == 0:  # the accumulators of an H200 have no negative zero
        return 0.0
    if abs(low) >= Fraction(2) ** (emax + 1):
        return math.copysign(math.inf, x)
    return math.copysign(float(low), x)


def fused_add(
    a: Sequence[float], b: Sequence[float], c: float, *, bits: int, emins: tuple[int, int],
    result: tuple[int, int, int] = (24, -126, 127), mode: str = "toward-zero", scales: Sequence[int] | None = None,
) -> float:  # fmt: skip
    """Return the sum of the products and c: aligned to the largest exponent, truncated, added exactly, rounded once.

    `emins` are the smallest exponents of the operands' formats, `result` is precision, emin and emax of the result,
    `scales` are exponents of powers of two that multiply the products.
    """
    plain = c
    for x, y in zip(a, b, strict=True):
        plain += x * y
    if not math.isfinite(plain):
        return plain
    terms = [(Fraction(c), max(exponent(Fraction(c)), result[1]) if c else max(result[1], -126) - BELOW.get(bits, 7))]
    for x, y, scale in zip(a, b, scales or [0] * len(a), strict=True):
        if x and y:
            left, right = max(exponent(Fraction(x)), emins[0]), max(exponent(Fraction(y)), emins[1])
            terms.append((Fraction(x) * Fraction(y) * Fraction(2) ** scale, left + right + scale))
    largest = max(e for _, e in terms)
    return rounded(sum((truncated(x, largest - bits) for x, _ in terms), Fraction(0)), *result, mode)


def chain(
    a: Sequence[float], b: Sequence[float], terms: int, *, bits: int, emins: tuple[int, int],
    result: tuple[int, int, int] = (24, -126, 127), mode: str = "toward-zero", first: int = 0,
) -> float:  # fmt: skip
    """Return a chain of fused adds of `terms` products on an accumulator that starts from zero; `first` go first."""
    total = 0.0
    cuts = [0, *([first] if first else [])]
    while cuts[-1] < len(a):
        cuts.append(min(cuts[-1] + terms, len(a)))
    for i, j in itertools.pairwise(cuts):
        total = fused_add(a[i:j], b[i:j], total, bits=bits, emins=emins, result=result, mode=mode)
    return total
