"""Exact matrix products: folds of float64 products, summed as integers.

The rows of A and the columns of B come scaled by powers of two to magnitudes below 1, so that one set of folds (see
`fpsim.kernels.exact`) serves all outputs; every product has at most 53 bits. Fold f gives the digit of weight
``2**(-51 * (f + 1))``.
"""

from __future__ import annotations

import numpy as np

from fpsim.kernels._jit import kernel
from fpsim.kernels.exact import FOLD, OTHER, classify, fma, power

# Terms whose folds 63 bits hold, and columns whose sums stay in the first-level cache.
CHUNK = 2048
TILE = 256
M1, M2, M3, M4 = (1.5 * 2.0 ** (52 - FOLD * (fold + 1)) for fold in range(4))


@kernel
def lowest_bit(x):
    """Largest e so that all elements of a vector of finite doubles are multiples of 2**e; 2047 when all are zero."""
    lowest = np.int64(2047)
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
def _fold_pair(x, y, p, q, s1, s2, s3, s4):
    """Add the folds of x * p + y * q, with scalars x and y, to s1, s2, ...; those after the last fold are None."""
    for c in range(s1.size):
        u = fma(x, p[c], M1)
        v = fma(y, q[c], M1)
        s1[c] += np.float64(u).view(np.int64) + np.float64(v).view(np.int64)
        if s2 is not None:
            t = fma(x, p[c], M1 - u)
            w = fma(y, q[c], M1 - v)
            u = t + M2
            v = w + M2
            s2[c] += np.float64(u).view(np.int64) + np.float64(v).view(np.int64)
            if s3 is not None:
                t -= u - M2
                w -= v - M2
                u = t + M3
                v = w + M3
                s3[c] += np.float64(u).view(np.int64) + np.float64(v).view(np.int64)
                if s4 is not None:
                    u = t - (u - M3) + M4
                    v = w - (v - M3) + M4
                    s4[c] += np.float64(u).view(np.int64) + np.float64(v).view(np.int64)


@kernel
def _fold_any(x, p, magic, t, sums):
    """Add any number of folds of x * p, with a scalar x, to the rows of sums."""
    for c in range(p.size):
        t[c] = x * p[c]
    for f in range(magic.size):
        m = magic[f]
        s = sums[f]
        for c in range(p.size):
            u = np.float64(t[c] + m)
            s[c] += u.view(np.int64)
            t[c] -= u - m


@kernel
def _fold_row(row, b, j, w, magic, t, sums):
    """Add the folds of the sum over k of row[k] * b[k, j:j+w] to sums (folds, TILE)."""
    folds = magic.size
    n = row.size
    if folds > 4:
        for k in range(n):
            _fold_any(row[k], b[k, j : j + w], magic, t[:w], sums)
        return
    for k in range(0, n, 2):
        x = row[k]
        p = b[k, j : j + w]
        if k + 1 < n:
            y = row[k + 1]
            q = b[k + 1, j : j + w]
        else:
            y = 0.0
            q = p
        if folds == 1:
            _fold_pair(x, y, p, q, sums[0, :w], None, None, None)
        elif folds == 2:
            _fold_pair(x, y, p, q, sums[0, :w], sums[1, :w], None, None)
        elif folds == 3:
            _fold_pair(x, y, p, q, sums[0, :w], sums[1, :w], sums[2, :w], None)
        else:
            _fold_pair(x, y, p, q, sums[0, :w], sums[1, :w], sums[2, :w], sums[3, :w])


@kernel
def add_products(a, b, digits, folds):
    """Add the product of a (M, K) and b (K, N) to digits (M, N, folds + 1), the least digit first."""
    magic = np.empty(folds)
    for f in range(folds):
        magic[f] = 1.5 * power(52 - FOLD * (f + 1))
    magic_bits = magic.view(np.int64)
    sums = np.empty((folds, TILE), np.int64)
    t = np.empty(TILE)
    mask = (np.int64(1) << FOLD) - 1
    for j in range(0, b.shape[1], TILE):
        w = min(TILE, b.shape[1] - j)
        for start in range(0, a.shape[1], CHUNK):
            stop = min(start + CHUNK, a.shape[1])
            terms = stop - start
            if folds <= 4:
                terms += terms % 2  # terms are folded in pairs
            for i in range(a.shape[0]):
                for f in range(folds):
                    sums[f, :w] = -terms * magic_bits[f]
                _fold_row(a[i, start:stop], b[start:stop], j, w, magic, t, sums)
                for c in range(w):
                    carry = np.int64(0)
                    for f in range(folds):
                        d = digits[i, j + c, f] + carry + sums[folds - 1 - f, c]
                        digits[i, j + c, f] = d & mask
                        carry = d >> FOLD
                    digits[i, j + c, folds] += carry


@kernel
def classify_products(a, b, zero, finite, met):
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
