"""Fused adds that align in other ways: groups of block-scaled products, AMD's units, and exact ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fpsim.kernels._jit import inlined, kernel
from fpsim.kernels.general import ACCUMULATOR
from fpsim.kernels.rounding import round_value

#: How fused adds align: the positions of `fpsim.arithmetic.KINDS`, after the usual way.
PLAIN, GROUPS, LATE, LATE_PAIRS, EXACT = range(5)
GROUP = 16  # products of a group
_LATER_BITS = 2.0**8  # more bits of a late sum, where it is aligned with the accumulator
_KEPT = 2.0**31  # fraction bits of the result before it is rounded
_OVERFLOW = 2.0**128
_LEAST = 2.0**-126
_EXPONENT = 0x7FF0_0000_0000_0000


@inlined
def power_of(x: float) -> float:
    """Return 2**e where 2**e <= abs(x) < 2**(e + 1), infinity for infinities and NaN."""
    return np.int64(np.float64(x).view(np.int64) & _EXPONENT).view(np.float64)


@kernel
def grouped_sum(first: int, last: int, unit: float, left: Any, right: Any, sums: Any, peak: Any, total: Any) -> None:
    """Set ``total[j]`` to the sum of the truncated sums of groups and accumulator, in units of ``peak[j] / unit``."""
    for j in range(sums.shape[0]):
        q = unit / peak[j]
        total[j] = np.trunc(sums[j] * q) + 0.0
        for start in range(first, last, GROUP):
            group = 0.0
            for k in range(start, min(start + GROUP, last)):
                group += left[k] * right[k, j]
            total[j] += np.trunc(group * q)


@inlined
def _rounded(x: float, table: Any) -> float:
    precision, emin, largest = int(table[ACCUMULATOR]), int(table[ACCUMULATOR + 1]), table[ACCUMULATOR + 2]
    overflow, subnormals = int(table[ACCUMULATOR + 3]), table[ACCUMULATOR + 4] != 0.0
    return round_value(x, precision, emin, largest, overflow, subnormals, int(table[ACCUMULATOR + 5]))


@inlined
def _truncated_dot(
    first: int, last: int, step: int, unit: float, left: Any, left_powers: Any, right: Any, right_powers: Any, j: int
) -> tuple[float, float]:
    """Return the largest power of two of some products, 0 if all are zero, and their sum, aligned to it."""
    peak = 0.0
    for k in range(first, last, step):
        p = left_powers[k] * right_powers[k, j]
        peak = p if p > peak else peak
    if peak == 0.0:
        return 0.0, 0.0
    quantum = peak / unit
    total = 0.0
    for k in range(first, last, step):
        product = left[k] * right[k, j]
        if abs(product) >= _OVERFLOW:
            total += math.copysign(math.inf, product)
        else:
            total += np.trunc(product / quantum)
    return peak, total * quantum


@kernel
def late_sums(
    first: int, last: int, kind: int, unit: float, table: Any, left: Any, left_powers: Any, right: Any, right_powers: Any,
    sums: Any,
) -> None:  # fmt: skip
    """Add products to ``sums[j]`` as CDNA3 does: among themselves first, then, rounded down, to the accumulator."""
    for j in range(sums.shape[0]):
        c = sums[j]
        if kind == LATE_PAIRS:
            even, total = _truncated_dot(first, last, 2, unit, left, left_powers, right, right_powers, j)
            odd, other = _truncated_dot(first + 1, last, 2, unit, left, left_powers, right, right_powers, j)
            peak = max(even, odd)
            if peak > 0.0:
                total = (np.floor(total / peak * unit) + np.floor(other / peak * unit)) * (peak / unit)
        else:
            peak, total = _truncated_dot(first, last, 1, unit, left, left_powers, right, right_powers, j)
        if not (abs(total) < math.inf and abs(c) < math.inf):
            sums[j] = total + c
            continue
        own = max(power_of(c), _LEAST)
        largest = max(peak, own)
        fine = largest / (unit * _LATER_BITS)
        total = np.floor(total / fine) * fine
        if kind == LATE_PAIRS and own * (2.0 * unit) < largest:
            c = 0.0
        total += np.floor(c / (largest / unit)) * (largest / unit)
        kept = max(power_of(total), _LEAST) / _KEPT
        sums[j] = _rounded(np.floor(total / kept) * kept, table)


@inlined
def _to_odd(parts: Any, count: int) -> float:
    """Return the sum of numbers that do not overlap, in increasing order, rounded to odd in float64."""
    high, low, i = parts[count - 1], 0.0, count - 1
    while i > 0 and low == 0.0:
        i -= 1
        x, y = high, parts[i]
        high = x + y
        low = y - (high - x)
    if low == 0.0:
        return high
    bits = np.float64(high).view(np.int64)
    bits -= 0 if (low > 0.0) == (high > 0.0) else 1
    return np.int64(bits | 1).view(np.float64)


@kernel
def exact_sums(first: int, last: int, table: Any, left: Any, right: Any, sums: Any) -> None:
    """Add products to ``sums[j]`` with one rounding."""
    parts = np.empty(last - first + 1)
    for j in range(sums.shape[0]):
        parts[0], count = sums[j], 1
        for k in range(first, last):
            x = left[k] * right[k, j]
            for i in range(count):
                y = parts[i]
                total = x + y
                rest = total - x
                parts[i] = (x - (total - rest)) + (y - rest)
                x = total
            parts[count] = x
            count += 1
        sums[j] = _rounded(_to_odd(parts, count), table)
