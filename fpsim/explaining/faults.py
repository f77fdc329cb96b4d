"""Structural faults: what programs compute by mistake. Each is tested by its exact result, not by bits.

To add a fault, write a function that yields predictions and register it as below; nothing else has to be changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from fpsim.explaining.mechanisms import Prediction, mechanism
from fpsim.explaining.observation import Case
from fpsim.explaining.operations import reference, terms_of
from fpsim.formats import round_to

_REDUCTIONS = "sum mean var std norm cumsum"


def _other(case: Case, *inputs: Any, **settings: Any) -> Any:
    """Return the exact results of the operation on other inputs."""
    changed = Case(case.op, inputs, case.data, case.result, {**case.settings, **settings}, case.known)
    found = reference(changed)
    assert found is not None
    with np.errstate(all="ignore"):
        return np.asarray(round_to(found.value, case.result))


@mechanism("stride ignored", "fault", "matmul dot sum", rank=0, switch="copy the view first (contiguous())")
def _stride_ignored(case: Case) -> Iterator[Prediction]:
    """Read a view as if its elements lay side by side, from its first on."""
    for number, x in enumerate(case.inputs):
        base = x
        while isinstance(base.base, np.ndarray):
            base = base.base
        if x.flags.c_contiguous or not base.size or base is x:
            continue
        flat = base.reshape(-1)
        first = (x.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // x.itemsize
        rows = x.shape[0]
        dense = flat[first : first + x.size]
        if dense.size == x.size:
            inputs = [*case.inputs[:number], dense.reshape(x.shape), *case.inputs[number + 1 :]]
            yield Prediction(f"operand {number + 1} read with stride 1", number, partial(_other, case, *inputs))
        if x.ndim == 2 and flat.size >= rows * x.shape[1]:
            dense = flat[: x.size].reshape(x.shape)
            inputs = [*case.inputs[:number], dense, *case.inputs[number + 1 :]]
            yield Prediction(
                f"operand {number + 1} read from the start of its memory", 2 + number, partial(_other, case, *inputs)
            )


@mechanism("transposed or swapped operands", "fault", "matmul", rank=1, switch="check layouts and leading dimensions")
def _transposed(case: Case) -> Iterator[Prediction]:
    a, b = case.inputs[:2]
    rest = case.inputs[2:]
    if a.ndim != 2 or b.ndim != 2:
        return
    shape = (a.shape[0], b.shape[1])
    for number, (told, x, y) in enumerate(
        (("the second operand transposed", a, b.T), ("the first operand transposed", a.T, b),
         ("both operands transposed", a.T, b.T), ("operands swapped", b, a), ("the result transposed", b.T, a.T))
    ):  # fmt: skip
        if x.shape[1] == y.shape[0] and (x.shape[0], y.shape[1]) == shape:
            yield Prediction(told, number, partial(_other, case, x, y, *rest))
    for number, (told, i) in enumerate((("the first operand", 0), ("the second operand", 1))):
        x = case.inputs[i]
        if x.shape[0] != x.shape[1]:
            inputs = list(case.inputs)
            inputs[i] = np.ascontiguousarray(x).T.reshape(x.shape)
            yield Prediction(f"{told} read in the other memory order", 6 + number, partial(_other, case, *inputs))


@mechanism("dropped terms", "fault", "matmul dot", rank=2, switch="check the length and the tail of the inner loop")
def _dropped_terms(case: Case) -> Iterator[Prediction]:
    a, b = case.inputs[:2]
    rest = case.inputs[2:]
    n = a.shape[-1]
    for count in sorted({1, 2, 3, 4, n % 4, n % 8, n % 16, n % 32, n % 64} - {0}):
        if count < n:
            yield Prediction(
                _last(count),
                count,
                partial(_other, case, a[..., :-count], b[..., :-count, :] if b.ndim > 1 else b[:-count], *rest),
            )
            yield Prediction(
                _last(count, "first"),
                count + 1,
                partial(_other, case, a[..., count:], b[..., count:, :] if b.ndim > 1 else b[count:], *rest),
            )
    if rest:
        yield Prediction("the bias or beta*C dropped", 3, partial(_other, case, a, b))
        yield Prediction("the bias or beta*C added twice", 4, partial(_other, case, a, b, 2 * rest[0]))


def _last(count: int, which: str = "last") -> str:
    return f"the {which} term of each sum missing" if count == 1 else f"the {which} {count} terms of each sum missing"


@mechanism("dropped or repeated terms", "fault", _REDUCTIONS, rank=2, switch="check the bounds of the loop")
def _dropped(case: Case) -> Iterator[Prediction]:
    if case.op == "cumsum":
        return
    terms, shape = terms_of(case)
    n = terms.shape[1]

    def compute(some: Any) -> Any:
        return _other(case, terms[:, some], axis=1).reshape(shape)

    for count in sorted({1, 2, n % 4, n % 8, n % 16, n % 32} - {0}):
        if count < n:
            yield Prediction(_last(count), count, partial(compute, slice(0, n - count)))
            yield Prediction(_last(count, "first"), count, partial(compute, slice(count, None)))
    if n > 3:
        yield Prediction("the first half only", 4, partial(compute, slice(0, n // 2)))
        yield Prediction(
            "the last term twice",
            5,
            partial(compute, [*range(n), n - 1]) if n < 10_000 else partial(compute, slice(0, n)),
        )


@mechanism("wrong divisor", "fault", "mean", rank=3, switch="check the count of elements")
def _divisor(case: Case) -> Iterator[Prediction]:
    n = terms_of(case)[0].shape[1]

    def compute(d: int) -> Any:
        with np.errstate(all="ignore"):
            return np.asarray(round_to(_other(case, *case.inputs) * n / d, case.result))

    for d in (n - 1, n + 1, *({case.x.size} - {n})):
        if d > 0:
            yield Prediction(f"divided by {d} instead of {n}", 0, partial(compute, d))


@mechanism("update not applied", "fault", "batch_norm", rank=0, switch="check that statistics are written in training")
def _stale(case: Case) -> Iterator[Prediction]:
    yield Prediction("the value it began with: no update applied", 0, lambda: np.float64(case.get("initial", 1.0)))
    for steps in (1, int(case.get("steps", 1)) - 1, int(case.get("steps", 1)) + 1):
        if steps > 0:
            yield Prediction(f"{steps} updates", 3, partial(_other, case, *case.inputs, steps=steps))


@mechanism("0/0 for a single element", "fault", "batch_norm var std", rank=1, switch="guard n - 1 = 0")
def _single(case: Case) -> Iterator[Prediction]:
    count = case.get("n_per_channel", case.get("count")) if case.op == "batch_norm" else terms_of(case)[0].shape[1]
    if count == 1:
        yield Prediction("n/(n-1) with n = 1", 0, lambda: np.float64(np.nan))


@mechanism(
    "factor of two", "fault", f"{_REDUCTIONS} matmul dot", rank=6, switch="look for a repeated or halved accumulation"
)
def _doubled(case: Case) -> Iterator[Prediction]:
    for number, factor in enumerate((2.0, 0.5, -1.0, 0.0)):
        told = {2.0: "doubled", 0.5: "halved", -1.0: "negated", 0.0: "nothing computed: zero"}[factor]
        yield Prediction(told, number, partial(lambda f: f * _other(case, *case.inputs), factor))
