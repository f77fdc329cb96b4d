"""Structural faults: what programs compute by mistake. Each is tested by its exact result, see `gives`.

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


def gives(values: Any, given: Any, exact: Any, room: Any, /) -> bool:
    """Tell whether the exact result of a fault explains what the right one does not.

    Parameters
    ----------
    values, given, exact : float64 arrays of one shape
        What was observed, the exact result of the fault, and that of the operation.
    room : float64 array
        How far rounding may lead.

    Notes
    -----
    Some elements must be out of reach for rounding, all of those must be within reach of the fault and at least 8 times
    nearer to it (root mean square), and no other element may be beyond both.
    """
    with np.errstate(all="ignore"):
        error, left = np.abs(values - exact), np.abs(values - given)
        wrong = ~(error <= room * (1 + 1e-9)) & ~(np.isnan(values) & np.isnan(exact)) & (values != exact)
        near = (left <= room * (1 + 1e-9)) | (np.isnan(values) & np.isnan(given)) | (values == given)
        if not wrong.any() or not near[wrong].all():
            return False
        sizes = [float(np.mean(np.square(np.nan_to_num(x[wrong])))) for x in (left, error)]
        return 64 * sizes[0] < sizes[1] or not np.isfinite(values[wrong]).all()


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
        if x.ndim == 2 and x.strides[1] > x.itemsize and x.strides[0] > 0:
            dense = np.lib.stride_tricks.as_strided(x, x.shape, (x.strides[0], x.itemsize), writeable=False)
            inputs = [*case.inputs[:number], dense, *case.inputs[number + 1 :]]
            yield Prediction(
                f"the rows of operand {number + 1} read with stride 1", number, partial(_other, case, *inputs)
            )
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
        (("the second operand is transposed", a, b.T), ("the first operand is transposed", a.T, b),
         ("both operands are transposed", a.T, b.T), ("the operands are swapped", b, a), ("the result is transposed", b.T, a.T))
    ):  # fmt: skip
        if x.shape[1] == y.shape[0] and (x.shape[0], y.shape[1]) == shape:
            yield Prediction(told, number, partial(_other, case, x, y, *rest))
    for number, (told, i) in enumerate((("the first operand", 0), ("the second operand", 1))):
        x = case.inputs[i]
        if x.shape[0] != x.shape[1]:
            inputs = list(case.inputs)
            inputs[i] = np.ascontiguousarray(x).T.reshape(x.shape)
            yield Prediction(f"{told} read in the other memory order", 6 + number, partial(_other, case, *inputs))


def _parts(n: int) -> Iterator[tuple[list[int], str]]:
    """Yield the terms that a loop with wrong bounds takes of n, and what it does; the simplest first."""
    for count in sorted({1, 2, 3, 4, n % 4, n % 8, n % 16, n % 32, n % 64} - {0}):
        if count < n:
            some = "term of each sum is" if count == 1 else f"{count} terms of each sum are"
            yield [*range(n - count)], f"the last {some} missing"
            yield [*range(count, n)], f"the first {some} missing"
    if n > 3:
        yield [*range(n // 2)], "the first half only was summed"
        yield [*range(n - n // 2, n)], "the last half only was summed"
    yield [*range(n), n - 1], "the last term is added twice"


@mechanism("dropped terms", "fault", "matmul dot", rank=2, switch="check the length and the tail of the inner loop")
def _dropped_terms(case: Case) -> Iterator[Prediction]:
    a, b = case.inputs[:2]

    def compute(keep: list[int]) -> Any:
        return _other(case, a[..., keep], np.take(b, keep, -1 if b.ndim == 1 else -2), *case.inputs[2:])

    if a.ndim and b.ndim:
        for number, (keep, told) in enumerate(_parts(a.shape[-1])):
            yield Prediction(told, number, partial(compute, keep))


@mechanism(
    "beta*C dropped or doubled", "fault", "matmul dot", rank=1,
    switch="check beta, and where the bias is added: once, in the epilogue or after the last part of a split product",
)  # fmt: skip
def _addend(case: Case) -> Iterator[Prediction]:
    a, b, *rest = case.inputs
    if rest:
        yield Prediction("the bias or beta*C is dropped", 0, partial(_other, case, a, b))
        for number, (factor, told) in enumerate(((2, "added twice"), (-1, "subtracted"))):
            addend = np.asarray(factor * np.asarray(rest[0]))
            yield Prediction(f"the bias or beta*C is {told}", 1 + number, partial(_other, case, a, b, addend))


@mechanism("dropped or repeated terms", "fault", _REDUCTIONS, rank=2, switch="check the bounds of the loop")
def _dropped(case: Case) -> Iterator[Prediction]:
    if case.op == "cumsum":
        return
    terms, shape = terms_of(case)

    def compute(keep: list[int]) -> Any:
        return _other(case, terms[:, keep], axis=1).reshape(shape)

    for number, (keep, told) in enumerate(_parts(terms.shape[1])):
        yield Prediction(told, number, partial(compute, keep))


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
    "factor of two",
    "fault",
    f"{_REDUCTIONS} matmul dot conv",
    rank=6,
    switch="look for a repeated or halved accumulation",
)
def _doubled(case: Case) -> Iterator[Prediction]:
    yield Prediction("everything is added twice", 0, lambda: 2.0 * _other(case, *case.inputs))
    yield Prediction("halved", 1, lambda: 0.5 * _other(case, *case.inputs))


@mechanism(
    "wrong sign", "fault", f"{_REDUCTIONS} matmul dot conv", rank=6, switch="look for a sign: alpha, or a - b for b - a"
)
def _negated(case: Case) -> Iterator[Prediction]:
    yield Prediction("negated", 0, lambda: -_other(case, *case.inputs))


@mechanism(
    "output not written", "fault", f"{_REDUCTIONS} prod cumprod matmul dot conv", rank=5,
    switch="check that the kernel was launched and covers the whole output",
)  # fmt: skip
def _not_written(case: Case) -> Iterator[Prediction]:
    yield Prediction("nothing computed: zero", 0, lambda: 0.0 * np.nan_to_num(_other(case, *case.inputs)))


@mechanism(
    "another kernel of the convolution", "fault", "conv", rank=3, switch="check the layout of the kernel, and padding"
)
def _kernel(case: Case) -> Iterator[Prediction]:
    x, w = case.inputs[:2]
    yield Prediction(
        "the kernel is flipped (convolution in place of correlation)", 0, partial(_other, case, x, np.flip(w))
    )
    if w.ndim == 2 and w.shape[0] == w.shape[1]:
        yield Prediction("the kernel is transposed", 1, partial(_other, case, x, w.T))
    for axis in range(w.ndim):
        for place, which in ((-1, "last"), (0, "first")):
            cut = np.array(w)
            cut[(slice(None),) * axis + (place,)] = 0
            if w.shape[axis] > 1:
                yield Prediction(
                    f"the {which} taps along axis {axis} are missing", 2 + axis, partial(_other, case, x, cut)
                )
        for step, where in ((1, "before"), (-1, "after")):
            told = f"read one element {where} along axis {axis} (padding)"
            yield Prediction(told, 4 + axis, partial(_other, case, np.roll(x, step, axis), w))
