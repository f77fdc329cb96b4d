"""Mechanisms of formulas and number types in use beside the textbook's: naive functions, x87, integers that wrap."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from fpsim.errors import InputError
from fpsim.explaining.formulas import native
from fpsim.explaining.mechanisms import Prediction, mechanism
from fpsim.explaining.observation import Case, stored
from fpsim.explaining.operations import normalised, terms_of, wide


@mechanism(
    "catastrophic cancellation", "rounding", "expm1 log1p", rank=4,
    switch="expm1(x) in place of exp(x) - 1, log1p(x) in place of log(1 + x)",
    foresees="relative errors that grow as x goes to zero",
)  # fmt: skip
def _naive_function(case: Case) -> Iterator[Prediction]:
    kind = native(case.result)

    def compute() -> Any:
        x = case.x.astype(kind)
        with np.errstate(all="ignore"):
            return stored(case, np.exp(x) - kind(1) if case.op == "expm1" else np.log(kind(1) + x))

    yield Prediction("exp(x) - 1" if case.op == "expm1" else "log(1 + x)", 0, compute)


@mechanism(
    "approximation by tanh", "definition", "gelu", rank=1,
    switch="the same formula on both sides: approximate='none' or 'tanh'", foresees="differences below 5e-4",
)  # fmt: skip
def _gelu_by_tanh(case: Case) -> Iterator[Prediction]:
    def by_tanh() -> Any:
        x = case.x.astype(np.float64)
        return stored(case, 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))

    def by_sigmoid() -> Any:
        x = case.x.astype(np.float64)
        return stored(case, x / (1 + np.exp(-1.702 * x)))

    yield Prediction("0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x**3)))", 0, by_tanh)
    yield Prediction("x sigmoid(1.702 x)", 1, by_sigmoid)


@mechanism(
    "divisor n - ddof", "definition", "layer_norm instance_norm", rank=2,
    switch="the biased variance (divisor n), as layer normalisation is defined",
)  # fmt: skip
def _unbiased(case: Case) -> Iterator[Prediction]:
    if case.x.shape[-1] > 1:
        yield Prediction(
            "the variance with n - 1", 0,
            lambda: stored(case, normalised(case, wide(case, case.x), lambda v: v, unbiased=True)),
        )  # fmt: skip


@mechanism(
    "integer overflow", "range", "sum dot prod cumsum matmul", rank=0,
    switch="a wider integer type: dtype=int64", foresees="results that differ by a multiple of 2**32 or 2**16",
)  # fmt: skip
def _wrapped(case: Case) -> Iterator[Prediction]:
    given = case.inputs[:2]
    with np.errstate(all="ignore"):
        if not all(np.all(x == np.rint(x)) & np.isfinite(x).all() for x in given) or sum(x.size for x in given) > 10**6:
            return
    yield from (
        Prediction(f"wrapped to {'' if signed else 'u'}int{width}", number, partial(_modulo, case, width, signed))
        for number, (width, signed) in enumerate((w, s) for w in (32, 64, 16, 8) for s in (True, False))
    )


def _modulo(case: Case, width: int, signed: bool) -> Any:
    whole = [
        np.array([int(v) for v in np.asarray(x, np.float64).reshape(-1)], object).reshape(x.shape)
        for x in case.inputs[:2]
    ]
    if case.op in ("dot", "matmul"):
        exact = np.asarray(whole[0] @ whole[1], object)
        if len(case.inputs) > 2:
            message = "an addend may be of another type"
            raise InputError(message)
    elif case.op == "cumsum":
        exact = np.cumsum(whole[0])
    else:
        terms, shape = terms_of(case, whole[0])
        combine = math.prod if case.op == "prod" else sum
        exact = np.array([combine(row) for row in terms], object).reshape(shape)
    low = 2 ** (width - 1) if signed else 0
    out = [float((int(v) + low) % 2**width - low) for v in exact.reshape(-1)]
    if all(float(int(v)) == given for v, given in zip(exact.reshape(-1), out, strict=True)):
        message = "nothing overflows"
        raise InputError(message)
    return stored(case, np.array(out).reshape(exact.shape))


@mechanism(
    "extended accumulator (x87)", "rounding", "sum mean dot matmul norm", rank=9,
    switch="-mfpmath=sse (or -ffloat-store) in place of the x87 unit", foresees="one side nearly correctly rounded",
)  # fmt: skip
def _extended(case: Case) -> Iterator[Prediction]:
    if np.finfo(np.longdouble).nmant != 63 or case.result.precision < 24:
        return
    # of float32 data it is nearly always the exact result, rounded once
    rank = 13 if case.result.precision == 24 else 0
    yield Prediction("serial in 80-bit numbers, rounded at the end", rank, partial(_in_extended, case))


def _with_addend(case: Case, product: Any) -> Any:
    """Add a bias or beta*C to a product."""
    return product + np.asarray(case.inputs[2]).astype(product.dtype) if len(case.inputs) > 2 else product


def _in_extended(case: Case) -> Any:
    long = np.longdouble
    if case.op in ("dot", "matmul"):
        a, b = (np.asarray(x).astype(long) for x in case.inputs[:2])
        out: Any = long(0)
        for k in range(a.shape[-1]):
            left = a[..., k] if b.ndim == 1 else a[..., k, None]
            out = out + left * (b[k] if b.ndim <= 2 else b[..., k, None, :])
        return stored(case, _with_addend(case, np.asarray(out)).astype(np.float64))
    terms, shape = terms_of(case)
    t = terms.astype(long)
    total = np.add.accumulate(t * t if case.op == "norm" else t, axis=1)[:, -1]
    total = np.sqrt(total) if case.op == "norm" else total / long(terms.shape[1]) if case.op == "mean" else total
    return stored(case, total.astype(np.float64).reshape(shape))
