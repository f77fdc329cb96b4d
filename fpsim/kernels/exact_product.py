"""Exact matrix products: folds of float64 products, summed as integers.

The rows of A and the columns of B come scaled by powers of two to magnitudes below 1, so that one set of folds (see
`fpsim.kernels.exact`) serves all outputs; every product has at most 53 bits. Fold f gives the digit of weight
``2**(-51 * (f + 1))``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fpsim.kernels._jit import kernel
from fpsim.kernels.exact import FOLD, OTHER, classify, fma, power

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

# Terms whose folds 63 bits hold; the block of B that stays in the first-level cache is DEPTH x TILE.
CHUNK = 2048
DEPTH, TILE = 16, 256
M1, M2, M3, M4 = (1.5 * 2.0 ** (52 - FOLD * (fold + 1)) for fold in range(4))


@kernel
def lowest_bit(x: Array) -> int:
    """Largest e so that all elements of a vector of finite doubles are multiples of 2**e; 2047 when all are zero."""
    lowest: Any = np.int64(2047)
    for i in range(x.size):
        bits = np.float64(x[i]).view(np.int64)
        field = (bits >> 52) & 2047
        m = bits & 0xFFFFFFFFFFFFF
        if field:
            m |= 0x10000000000000
        else:
            field = np.int64(1)
        if m:
            trailing = (np.float64(m & -m).view(np.int64) >> 52) - 1023
            lowest = min(lowest, field - 1075 + trailing)
    return lowest


@kernel
def _fold_pair(
    x: float,
    y: float,
    b: Array,
    k: int,
    last: int,
    j: int,
    w: int,
    sums: Array,
    i: int,
    two: int | None,
    three: int | None,
    four: int | None,
) -> None:
    """Add the folds of x * b[k, j:j+w] + y * b[last, j:j+w], with scalars x and y, to the rows of sums[i].

    two, three, four: 0 where there are so many folds, else None, so that each number of folds is its own machine code.
    No array is sliced: threads would wait for each other's reference counts.
    """
    row = np.uint64(i)
    for c in range(w):
        column = np.uint64(j + c)
        p = b[np.uint64(k), column]
        q = b[np.uint64(last), column]
        u = fma(x, p, M1)
        v = fma(y, q, M1)
        sums[row, 0, c] += np.float64(u).view(np.int64) + np.float64(v).view(np.int64)
        if two is not None:
            if three is None:
                u = fma(x, p, M1 + M2 - u)
                v = fma(y, q, M1 + M2 - v)
                sums[row, 1, c] += np.float64(u).view(np.int64) + np.float64(v).view(np.int64)
            else:
                t = fma(x, p, M1 - u)
                z = fma(y, q, M1 - v)
                u = t + M2
                v = z + M2
                sums[row, 1, c] += np.float64(u).view(np.int64) + np.float64(v).view(np.int64)
                if four is None:
                    u = t - (u - (M2 + M3))
                    v = z - (v - (M2 + M3))
                    sums[row, 2, c] += np.float64(u).view(np.int64) + np.float64(v).view(np.int64)
                else:
                    t -= u - M2
                    z -= v - M2
                    u = t + M3
                    v = z + M3
                    sums[row, 2, c] += np.float64(u).view(np.int64) + np.float64(v).view(np.int64)
                    u = t - (u - (M3 + M4))
                    v = z - (v - (M3 + M4))
                    sums[row, 3, c] += np.float64(u).view(np.int64) + np.float64(v).view(np.int64)


@kernel
def _fold_any(x: float, b: Array, k: int, j: int, w: int, magic: Array, t: Array, sums: Array, i: int) -> None:
    """Add any number of folds of x * b[k, j:j+w], with a scalar x, to the rows of sums[i]."""
    row = np.uint64(i)
    for c in range(w):
        t[c] = x * b[np.uint64(k), np.uint64(j + c)]
    for f in range(magic.size):
        m = magic[f]
        for c in range(w):
            u = np.float64(t[c] + m)
            sums[row, f, c] += u.view(np.int64)
            t[c] -= u - m


@kernel
def _fold_row(
    a: Array, b: Array, i: int, start: int, stop: int, j: int, w: int, magic: Array, t: Array, sums: Array
) -> None:
    """Add the folds of the sum over start <= k < stop of a[i, k] * b[k, j:j+w] to sums[i]."""
    folds = magic.size
    if folds > 4:
        for k in range(start, stop):
            _fold_any(a[i, k], b, k, j, w, magic, t, sums, i)
        return
    for k in range(start, stop, 2):
        last = min(k + 1, stop - 1)
        x = a[i, k]
        y = a[i, last] if last > k else 0.0
        if folds == 1:
            _fold_pair(x, y, b, k, last, j, w, sums, i, None, None, None)
        elif folds == 2:
            _fold_pair(x, y, b, k, last, j, w, sums, i, 0, None, None)
        elif folds == 3:
            _fold_pair(x, y, b, k, last, j, w, sums, i, 0, 0, None)
        else:
            _fold_pair(x, y, b, k, last, j, w, sums, i, 0, 0, 0)


@kernel
def _add_digits(sums: Array, digits: Array) -> None:
    """Add sums (folds, TILE) to digits (columns, folds + 1)."""
    folds = sums.shape[0]
    mask = (np.int64(1) << FOLD) - 1
    for c in range(digits.shape[0]):
        carry = np.int64(0)
        for f in range(folds):
            d = digits[c, f] + carry + sums[folds - 1 - f, c]
            digits[c, f] = d & mask
            carry = d >> FOLD
        digits[c, folds] += carry


@kernel
def add_products(a: Array, b: Array, digits: Array, folds: int) -> None:
    """Add the product of a (M, K) and b (K, N) to digits (M, N, folds + 1), the least digit first."""
    magic = np.empty(folds)
    for f in range(folds):
        magic[f] = 1.5 * power(52 - FOLD * (f + 1))
    magic_bits = magic.view(np.int64)
    sums = np.empty((a.shape[0], folds, TILE), np.int64)
    t = np.empty(TILE)
    for j in range(0, b.shape[1], TILE):
        w = min(TILE, b.shape[1] - j)
        for start in range(0, a.shape[1], CHUNK):
            stop = min(start + CHUNK, a.shape[1])
            terms = stop - start
            if folds <= 4:
                terms += terms % 2  # terms are folded in pairs
            for f in range(folds):
                sums[:, f] = -terms * magic_bits[f]
            for k in range(start, stop, DEPTH):
                for i in range(a.shape[0]):
                    _fold_row(a, b, i, k, min(k + DEPTH, stop), j, w, magic, t, sums)
            for i in range(a.shape[0]):
                _add_digits(sums[i], digits[i, j : j + w])


@kernel
def classify_products(a: Array, b: Array, zero: Array, finite: bool, met: Array) -> None:
    """Say what the terms of each output of a (M, K) times b (K, N) are (see `fpsim.kernels.exact`).

    With finite operands only outputs that are zero are looked at.
    """
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            met[i, j] = OTHER
            if finite and not zero[i, j]:
                continue
            seen = 0
            for k in range(a.shape[1]):
                x = a[i, k]
                y = b[k, j]
                if not (np.isfinite(x) and np.isfinite(y)):
                    seen |= OTHER | classify(x * y)
                elif (x != 0 and y != 0) or np.signbit(x) == np.signbit(y):
                    seen |= OTHER
                    if finite:
                        break
            met[i, j] = seen
