"""Mechanisms of cumulative sums and products."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from fpsim.explaining.mechanisms import Prediction, mechanism
from fpsim.explaining.observation import Case
from fpsim.formats import Format, round_to

_ITEMS = (15, 4, 8, 16)  # of a thread of a device-wide scan: CUB's default first
_BLOCKS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


def _sequence(case: Case) -> Any:
    return case.x.reshape(-1) if case.get("axis") is None else np.moveaxis(case.x, int(case.get("axis")), -1)


def _back(case: Case, out: Any) -> Any:
    with np.errstate(all="ignore"):
        out = np.asarray(round_to(np.asarray(out, np.float64), case.result))
    return out if case.get("axis") is None else np.moveaxis(out, -1, int(case.get("axis")))


def running(x: Any, form: Format, product: bool) -> Any:
    """Return the running sum or product along the last axis, every step rounded to a format."""
    native = {11: np.float16, 24: np.float32, 53: np.float64}.get(form.precision)
    add = np.multiply if product else np.add
    with np.errstate(all="ignore"):
        if native is not None:
            return add.accumulate(x.astype(native), axis=-1).astype(np.float64)
        out = np.empty(x.shape)
        total = np.asarray(x[..., 0], np.float64)
        out[..., 0] = total
        for i in range(1, x.shape[-1]):
            step = total * x[..., i] if product else total + x[..., i]
            total = _rounded(np.asarray(step, np.float64), form)
            out[..., i] = total
        return out


def _rounded(values: Any, form: Format) -> Any:
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.rint(np.ldexp(mantissa, form.precision)), exponent - form.precision)


def blocked(x: Any, form: Format, product: bool, block: int, *, carries: Format | None = None) -> Any:
    """Return a scan in blocks: each on its own, then the running total of the blocks before is joined to every element."""
    n = x.shape[-1]
    rows = -(-n // block)
    padded = np.full((*x.shape[:-1], rows * block), float(product))
    padded[..., :n] = x
    padded = padded.reshape(*x.shape[:-1], rows, block)
    own = running(padded, form, product)
    totals = running(own[..., -1], carries or form, product)
    before = np.concatenate([np.full((*totals.shape[:-1], 1), float(product)), totals[..., :-1]], axis=-1)[..., None]
    with np.errstate(all="ignore"):
        joined = own * before if product else own + before
        joined = np.asarray(round_to(joined, form))
    return joined.reshape(*x.shape[:-1], rows * block)[..., :n]


def by_threads(x: Any, form: Format, product: bool, items: int, threads: int = 128) -> Any:
    """Return a scan as blocks of threads make it: each thread its own items, warps of 32 by doubling, then block by block.

    Notes
    -----
    CUB's DeviceScan (cub/agent/agent_scan.cuh and warp_scan_shfl.cuh of CUDA 12): 15 items a thread unless tuned, warps
    by shuffles (Kogge-Stone), warps in sequence, blocks in sequence by decoupled look-back. A thread's items follow its
    prefix one by one.
    """
    n, one = x.shape[-1], float(product)
    join = np.multiply if product else np.add
    native = np.float32 if form.precision == 24 else np.float64
    blocks = -(-n // (items * threads))
    padded = np.full((*x.shape[:-1], blocks * items * threads), one, native)
    padded[..., :n] = x
    padded = padded.reshape(*x.shape[:-1], blocks, threads // 32, 32, items)
    with np.errstate(all="ignore"):
        lanes = join.accumulate(padded, axis=-1)[..., -1]
        for step in (1, 2, 4, 8, 16):
            lanes = np.concatenate([lanes[..., :step], join(lanes[..., :-step], lanes[..., step:])], axis=-1)
        warps = join.accumulate(lanes[..., -1], axis=-1)
        carried = join.accumulate(warps[..., -1], axis=-1)
        before = join(_exclusive(warps, one)[..., None], _exclusive(lanes, one))
        before = join(_exclusive(carried, one)[..., None, None], before)
        out = join.accumulate(np.concatenate([before[..., None], padded], axis=-1), axis=-1)[..., 1:]
    return out.reshape(*x.shape[:-1], blocks * items * threads)[..., :n].astype(np.float64)


def _exclusive(totals: Any, one: float) -> Any:
    first = np.full((*totals.shape[:-1], 1), one, totals.dtype)
    return np.concatenate([first, totals[..., :-1]], axis=-1)


@mechanism(
    "order of additions", "rounding", "cumsum cumprod",
    switch="the same scan on both sides; one running sum, or a wider format",
    foresees="differences that begin at a multiple of the block length",
)  # fmt: skip
def _scan_order(case: Case) -> Iterator[Prediction]:
    x, product = _sequence(case), case.op == "cumprod"
    form = careful_format(case)
    yield Prediction(f"serial in {form}", 0, lambda: _back(case, running(x, form, product)))
    for items in _ITEMS:
        if items < x.shape[-1] and form.precision in (24, 53):
            yield Prediction(
                f"threads of {items} terms in {form}",
                3,
                partial(lambda items: _back(case, by_threads(x, form, product, items)), items),
            )
    for block in _BLOCKS:
        if block < x.shape[-1]:
            yield Prediction(
                f"chunks({block}) in {form}",
                4,
                partial(lambda block: _back(case, blocked(x, form, product, block)), block),
            )


def careful_format(case: Case) -> Format:
    """Return the careful accumulator's format."""
    from fpsim.explaining.operations import accumulator_of

    return accumulator_of(case)


@mechanism(
    "wider accumulator", "rounding", "cumsum cumprod", rank=3,
    switch="dtype=float64 on the other side", foresees="one side is correctly rounded",
)  # fmt: skip
def _wide_scan(case: Case) -> Iterator[Prediction]:
    from fpsim.formats import FLOAT64

    if case.result.precision <= 24:
        x = _sequence(case)
        yield Prediction("serial in float64", 0, lambda: _back(case, running(x, FLOAT64, case.op == "cumprod")))


@mechanism(
    "low-precision accumulator", "reduced", "cumsum cumprod", rank=2,
    switch="accumulate in float32 (dtype=float32) and round at the end",
    foresees="errors that grow along the result, many times half an ulp of it",
)  # fmt: skip
def _narrow_scan(case: Case) -> Iterator[Prediction]:
    if case.result.precision >= 24:
        return
    x, product = _sequence(case), case.op == "cumprod"
    if x.size <= 200_000 or case.result.precision == 11:
        yield Prediction(f"serial in {case.result}", 0, lambda: _back(case, running(x, case.result, product)))
    for block in _BLOCKS:
        if 1 < block < x.shape[-1]:
            yield Prediction(
                f"chunks({block}) in {case.result}", 3,
                partial(lambda block: _back(case, blocked(x, case.result, product, block)), block),
            )  # fmt: skip
            yield Prediction(
                f"chunks({block}) in float32 with {case.result} carries", 4,
                partial(lambda block: _back(case, _half_carries(x, case.result, product, block)), block),
            )  # fmt: skip


def _half_carries(x: Any, form: Format, product: bool, block: int) -> Any:
    n = x.shape[-1]
    rows = math.ceil(n / block)
    padded = np.full((*x.shape[:-1], rows * block), float(product))
    padded[..., :n] = x
    own = np.multiply.accumulate if product else np.add.accumulate
    parts = own(padded.reshape(*x.shape[:-1], rows, block).astype(np.float32), axis=-1)
    out = np.empty(parts.shape, np.float64)
    carry = np.full(x.shape[:-1], float(product))
    with np.errstate(all="ignore"):
        for row in range(rows):
            joined = parts[..., row, :] * carry[..., None] if product else parts[..., row, :] + carry[..., None]
            out[..., row, :] = np.asarray(round_to(joined.astype(np.float64), form))
            carry = out[..., row, -1]
    return out.reshape(*x.shape[:-1], rows * block)[..., :n]
