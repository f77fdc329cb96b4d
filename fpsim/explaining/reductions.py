"""Mechanisms of reductions: the order of additions, the accumulator, the operands."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from fpsim import _candidates
from fpsim.explaining.mechanisms import Prediction, mechanism
from fpsim.explaining.observation import Case
from fpsim.explaining.operations import terms_of, wide
from fpsim.formats import round_to
from fpsim.switches import FULL_FLOAT32, NO_TF32

_FEW = 300_000  # terms of all outputs up to which every order is tried
_SUMS = "sum mean var std norm prod all_reduce"
_PRODUCTS = "dot matmul"
_FAST = ("", "+fma", "+acc(float64)", "+fma+acc(float64)")  # settings that emulation has fast loops for
_SLOW = 60  # what another rounding costs beside a fast one


def emulated(case: Case, text: str) -> Any:
    """Return all outputs of a reduction or product under a strategy."""
    from fpsim import emulation

    name = {"all_reduce": "sum"}.get(case.op, case.op)
    settings: dict[str, Any] = {}
    if case.op in ("var", "std"):
        settings["ddof"] = case.get("ddof", 0)
    if name in ("dot", "matmul"):
        a, b = (x.astype(np.float32) if case.data.precision < 11 else x for x in case.inputs[:2])
        out = emulation.matmul(a, b, text)
        if len(case.inputs) > 2:  # a bias or beta*C, added in the format of the product
            out = np.asarray(out + case.inputs[2].astype(np.asarray(out).dtype))
    else:
        axis = case.get("axis", 0 if case.op == "all_reduce" else None)
        out = getattr(emulation, name)(case.x, text, axis=tuple(axis) if isinstance(axis, list) else axis, **settings)
    scale = case.get("scale", 1)
    return out if scale == 1 else np.asarray(out * np.asarray(scale, np.asarray(out).dtype))


def orders(case: Case) -> list[tuple[str, int]]:
    """Return order texts and ranks for a case: all for short sums, the likeliest for long ones."""
    if case.op in _PRODUCTS:
        n, outputs = case.inputs[0].shape[-1], 1
        own = _candidates.orders(n, op=case.op) if n * outputs <= 4096 else _candidates.short_orders(n, op=case.op)
        return [*own, *(_candidates.named_rules("dot") if case.op == "dot" else ())]
    terms, _ = terms_of(case)
    n = terms.shape[1]
    named = [
        pair for pair in _candidates.named_rules("sum") if case.data.precision == 24 and case.op in ("sum", "mean")
    ]
    if case.op == "prod":
        named = [("numpy_prod", 1)]
    if terms.size <= 20_000:
        return [*_candidates.orders(n, op="sum"), *named]
    short = _candidates.short_orders(n, op="sum")
    if terms.size > _FEW:
        plain = [pair for pair in short if "combine" not in pair[0] and "split(" not in pair[0]]
        short = plain[: 60 if terms.size <= 10 * _FEW else 12]
        short += [(f"lanes({k})", 4) for k in (16, 32, 64, 128) if terms.size <= 10 * _FEW]
    return [*dict.fromkeys(short), *named]


def _own_format(case: Case) -> str:
    """Return the settings of careful arithmetic for the case's formats."""
    if case.result.precision > 24:
        return "+acc(float64)"
    return "" if case.result.precision == 24 else f"+output({case.result})"


def _predictions(case: Case, settings: str, rank: int, few: int | None = None) -> Iterator[Prediction]:
    listed = orders(case)[:few]
    weight = 1 if settings in _FAST else _SLOW
    for order, own in listed:
        text = (
            order
            if order == "numpy_sum" and case.data.precision in (24, 53) and not settings.strip("+acflot(64)")
            else order + settings
        )
        yield Prediction(text, rank + own, partial(emulated, case, text), weight)


@mechanism(
    "order of additions", "rounding", f"{_SUMS} {_PRODUCTS}",
    switch="fix the number of threads, the kernel and the shape, or sum in a wider format",
    foresees="differences of few ulps of the data's size, all over the result, of both signs",
)  # fmt: skip
def _order_of_additions(case: Case) -> Iterator[Prediction]:
    yield from _predictions(case, _own_format(case), 0)


@mechanism(
    "FMA", "rounding", f"{_PRODUCTS} norm var std", rank=1,
    switch="-ffp-contract=off, or -fmad=false for CUDA",
    foresees="differences of at most an ulp of the largest product",
)  # fmt: skip
def _fused_multiply_add(case: Case) -> Iterator[Prediction]:
    yield from _predictions(case, "+fma" + _own_format(case), 1)


@mechanism(
    "compensated summation", "rounding", f"sum mean {_PRODUCTS}", rank=15,
    switch="the same summation routine on both sides (math.fsum, or a plain loop)",
    foresees="one side is the exact result, correctly rounded",
)  # fmt: skip
def _compensation(case: Case) -> Iterator[Prediction]:
    for name in ("kahan", "neumaier"):
        yield from _predictions(case, f"+{name}" + _own_format(case), 15, 3)


@mechanism(
    "wider accumulator", "rounding", f"{_SUMS} {_PRODUCTS}", rank=12,
    switch="the dtype argument of the reduction (dtype=float64)",
    foresees="one side is the exact result, correctly rounded",
)  # fmt: skip
def _wider_accumulator(case: Case) -> Iterator[Prediction]:
    if case.result.precision > 24:
        return
    yield from _predictions(case, f"+acc(float64)+output({case.result})", 12, 6)


@mechanism(
    "low-precision accumulator", "reduced", f"{_SUMS} {_PRODUCTS}", rank=5,
    switch="accumulate in float32: dtype=float32, or torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction=False",
    foresees="errors that grow with the length; sums that stop at a power of two",
)  # fmt: skip
def _low_accumulator(case: Case) -> Iterator[Prediction]:
    if case.result.precision < 24:
        yield from _predictions(case, f"+acc({case.result})", 0)
    elif case.result.precision == 24:
        for name in ("float16", "bfloat16"):
            yield from _predictions(case, f"+acc({name})", 10, 4)
    else:
        yield from _predictions(case, "", 2)


@mechanism(
    "reduced-precision operands", "reduced", _PRODUCTS, rank=10,
    switch="; or ".join([*(FULL_FLOAT32[library] for library in ("torch", "jax", "tensorflow")), NO_TF32]),
    foresees="relative errors of 2**-12 to 2**-9 of the data's size, although the results have all digits",
)  # fmt: skip
def _reduced_operands(case: Case) -> Iterator[Prediction]:
    if case.data.precision < 24:
        return
    for form, mode in _candidates.OPERANDS:
        for which, told in ((None, ""), (0, " of the first operand"), (1, " of the second operand")):
            yield Prediction(
                f"operands({form}{'' if mode == 'nearest-even' else ', ' + mode.replace('-', '_')}){told}",
                0 if which is None else 6, partial(_rounded_product, case, form, mode, which),
            )  # fmt: skip


def _rounded_product(case: Case, form: str, mode: str, which: int | None) -> Any:
    given = [wide(case, x) for x in case.inputs[:2]]
    for i in range(2):
        if which in (None, i):
            given[i] = np.asarray(round_to(np.asarray(case.inputs[i], np.float64), form, mode=mode))  # type: ignore[arg-type]
    out = given[0] @ given[1]
    if len(case.inputs) > 2:
        out = out + wide(case, case.inputs[2])
    return np.asarray(round_to(np.asarray(out, np.float64), case.result))


@mechanism(
    "one rounding of the exact result", "rounding", f"{_SUMS} {_PRODUCTS} cumsum cumprod softmax log_softmax logsumexp"
    " layer_norm instance_norm rms_norm distance linspace rolling_var", rank=20,
    switch="", foresees="one side is the exact result, correctly rounded",
)  # fmt: skip
def _exact_rounded(case: Case) -> Iterator[Prediction]:
    from fpsim.explaining.operations import reference

    def compute() -> Any:
        found = reference(case)
        assert found is not None
        with np.errstate(all="ignore"):
            return np.asarray(round_to(found.value, case.result))

    yield Prediction("the exact result, rounded once", 0, compute)


@mechanism(
    "rounded partial results", "reduced", "all_reduce matmul dot", rank=8,
    switch="reduce in float32, or use one algorithm and rank order (NCCL_ALGO)",
    foresees="a third of the elements differ, each by an ulp of the narrow format",
)  # fmt: skip
def _rounded_partials(case: Case) -> Iterator[Prediction]:
    if case.result.precision >= 24 or case.op == "all_reduce" or len(case.inputs) > 2:
        return
    for parts in (2, 4, 8, 16):
        yield Prediction(f"split_k({parts}) with parts in {case.result}", parts // 4, partial(_split, case, parts))


def _split(case: Case, parts: int) -> Any:
    a, b = (np.asarray(x, np.float64) for x in case.inputs[:2])
    step = -(-a.shape[-1] // parts)
    total: Any = 0.0
    for first in range(0, a.shape[-1], step):
        part = a[..., first : first + step] @ b[first : first + step]
        total = np.asarray(round_to(total + np.asarray(round_to(part, case.result)), case.result))
    return total
