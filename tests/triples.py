"""Operands a, b, c of one operation that are hard to round, and the operation as MPFR and as the kernels compute it."""

from __future__ import annotations

from typing import Any

import numpy as np

import fpsim
from fpsim.formats import Format, rounding_mode_code
from fpsim.kernels import general
from fpsim.kernels._jit import kernel

OPERATIONS = ("fma", "add", "mul")
KINDS = (
    "anywhere",
    "near",
    "cancelling",
    "half an ulp beside c",
    "middle and a tiny addend",
    "subnormal",
    "large",
    "special",
)
MPFR_MODES = {"nearest-even": "RoundToNearest", "toward-zero": "RoundToZero", "up": "RoundUp", "down": "RoundDown"}


def numbers(rng: np.random.Generator, n: int, form: Format, low: int, high: int) -> Any:
    """Numbers of a format with exponents from low to high, many of them with few bits or nearly a power of two."""
    p = form.precision
    low, high = max(low, form.emin - p + 1), min(high, form.emax)
    significand = rng.integers(2 ** (p - 1), 2**p, n)
    few = rng.integers(0, 4, n)
    keep = rng.integers(1, p + 1, n)
    significand = np.where(few == 0, significand >> (p - keep) << (p - keep), significand)
    significand = np.where(few == 1, np.minimum(2 ** (p - 1) + rng.integers(0, 3, n), 2**p - 1), significand)
    significand = np.where(few == 2, 2**p - 1 - rng.integers(0, min(3, 2 ** (p - 1)), n), significand)
    exponent = rng.integers(low, max(high, low) + 1, n)
    # Exact as long as the result is a number of the format; below its smallest normal number bits are cut off.
    cut = np.minimum(np.maximum(form.emin - exponent, 0), p)
    values = np.ldexp((significand >> cut).astype(np.float64), exponent - p + 1 + cut)
    return rng.choice([-1.0, 1.0], n) * values


def triples(rng: np.random.Generator, n: int, form: Format, kind: str, operation: str) -> tuple[Any, Any, Any]:
    """Return n triples; b is 1 for an addition a + c, and c is 0 for a product."""
    p, emin, emax = form.precision, form.emin, form.emax
    with np.errstate(all="ignore"):
        if kind == "anywhere":
            a, b, c = (numbers(rng, n, form, emin - p, emax) for _ in range(3))
        elif kind == "near":
            a, b = (numbers(rng, n, form, -p // 2, p // 2) for _ in range(2))
            c = numbers(rng, n, form, -2 * p, 2 * p)
        elif kind == "cancelling":
            a, b = (numbers(rng, n, form, emin // 2, emax // 2) for _ in range(2))
            b = np.ones(n) if operation == "add" else b
            c = -rounded(a * b, form)
            c = rounded(c + rng.integers(-2, 3, n) * form.ulp(c), form)
        elif kind == "half an ulp beside c":
            c = numbers(rng, n, form, emin + 4, emax - 4)
            shift = rng.integers(-2, 3, n)
            half = np.ldexp(np.copysign(form.ulp(c), rng.choice([-1.0, 1.0], n)), shift - 1)
            split = rng.integers(-3, 4, n)
            a = rounded(
                np.ldexp(half, split) * (1 + rng.integers(-1, 2, n) * np.ldexp(1.0, 1 - rng.integers(1, p + 1, n))),
                form,
            )
            b = np.ldexp(1.0, -split)
        elif kind == "middle and a tiny addend":
            bits = rng.integers(1, p + 1, n)  # an odd product of p + 1 bits lies in the middle of two numbers
            a = np.ldexp(1.0, bits - 1) + 2 * rng.integers(0, 2 ** np.maximum(bits - 2, 0), n) + (bits > 1)
            b = np.round(np.ldexp(rng.uniform(1, 2, n), p - bits)) // 2 * 2 + 1
            a, b = rounded(a, form), rounded(b, form)
            scale = rng.integers(emin // 2, max(emax // 2 - p, emin // 2) + 1, n)
            a, c = np.ldexp(a, scale) * rng.choice([-1.0, 1.0], n), numbers(rng, n, form, emin - p, emin + 3)
            c = np.where(rng.random(n) < 0.3, 0.0, c)
            a = rounded(a, form)
        elif kind == "subnormal":
            a = numbers(rng, n, form, emin // 2 - 3, emin // 2 + 3)
            b = np.ldexp(numbers(rng, n, form, 0, 0), emin - np.frexp(a)[1] + rng.integers(-p - 2, 3, n))
            b = rounded(b, form)
            c = numbers(rng, n, form, emin - p, emin + 1)
        elif kind == "large":
            a = numbers(rng, n, form, emax // 2 - 2, emax // 2 + 2)
            b = numbers(rng, n, form, emax // 2 - 2, emax // 2 + 2)
            c = numbers(rng, n, form, emax - 2, emax)
        else:
            pool = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, form.max, -form.max, form.smallest_subnormal]
            a, b, c = (rng.choice(pool, n) for _ in range(3))
    if operation == "add":
        b = np.ones(n)
    if operation == "mul":
        c = np.zeros(n)
    assert all(form.contains(x).all() for x in (a, b, c))
    return a, b, c


def rounded(x: Any, form: Format) -> Any:
    return np.asarray(fpsim.round_to(np.asarray(x, np.float64), form))


def by_mpfr(operation: str, a: Any, b: Any, c: Any, form: Format, mode: str) -> Any:
    """Return the operation with one rounding by MPFR."""
    import gmpy2

    wide = gmpy2.context(precision=53)
    with wide:
        x, y, z = (list(map(gmpy2.mpfr, values.tolist())) for values in (a, b, c))
    # MPFR writes a number as 0.1... times a power of two.
    context = gmpy2.context(
        precision=form.precision, emin=form.emin - form.precision + 2, emax=form.emax + 1, subnormalize=True,
        round=getattr(gmpy2, MPFR_MODES[mode]),
    )  # fmt: skip
    if operation == "fma":
        results = map(context.fma, x, y, z)
    elif operation == "add":
        results = map(context.add, x, z)
    else:
        results = map(context.mul, x, y)
    return np.fromiter(map(float, results), np.float64, len(x))


def by_kernel(operation: str, a: Any, b: Any, c: Any, form: Format, mode: str) -> Any:
    """Return the operation as the general executor computes it."""
    table = np.zeros(general.TABLE_COLUMNS)
    table[:6] = [float(number) for number in (*form.parameters, rounding_mode_code(mode))]
    out = np.empty(a.size)
    _each(OPERATIONS.index(operation), a, b, c, table, out)
    return out


@kernel
def _each(operation: int, a: Any, b: Any, c: Any, table: Any, out: Any) -> None:
    for i in range(a.size):
        if operation == 0:
            out[i] = general.fused(a[i], b[i], c[i], table, 0)
        elif operation == 1:
            out[i] = general.added(a[i], c[i], table, 0)
        else:
            out[i] = general.multiplied(a[i], b[i], table, 0)


def by_tiles(operation: str, a: Any, b: Any, c: Any, form: Format) -> tuple[Any, Any]:
    """Return the operation as the fast executor computes it for float32 or float64, and the number of its operands.

    Row i of the left operand is (c[i], a[i]) and column j of the right one (1, b[j]), so that each row meets its own b
    in the columns j = i mod 32. An addition or a product alone is a sum of two terms, or of one.
    """
    dtype = np.float32 if form.precision == 24 else np.float64
    setting = "" if dtype == np.float32 else "+acc(float64)"
    if operation == "add":
        return fpsim.sum(np.stack([a, c]).astype(dtype), "serial" + setting, axis=0), np.arange(a.size)
    rows = a.size // 32 * 32
    blocks = []
    for start in range(0, rows, 32):
        here = slice(start, start + 32)
        left, right = np.stack([c[here], a[here]], axis=1), np.stack([np.ones(32), b[here]])
        if operation == "mul":
            left, right = left[:, 1:], right[1:]
        blocks.append(np.diagonal(fpsim.matmul(left.astype(dtype), right.astype(dtype), f"serial+fma{setting}")))
    return np.concatenate([np.zeros(0, dtype), *blocks]), np.arange(rows)
