"""Mechanisms that are another definition: the sides do not compute the same thing."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from fpsim.explaining.expressions import _Reader
from fpsim.explaining.mechanisms import Prediction, mechanism
from fpsim.explaining.observation import Case
from fpsim.explaining.operations import normalised, reference, terms_of, wide
from fpsim.formats import round_to


def _rounded(case: Case, value: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.asarray(round_to(np.asarray(value, np.float64), case.result))


def _exact(case: Case, **settings: Any) -> Any:
    found = reference(Case(case.op, case.inputs, case.data, case.result, {**case.settings, **settings}, case.known))
    assert found is not None
    return _rounded(case, found.value)


@mechanism(
    "divisor n - ddof", "definition", "var std rolling_var", rank=0,
    switch="the same ddof (correction, unbiased) on both sides: NumPy divides by n, torch and pandas by n - 1",
    foresees="a constant ratio n/(n-1) of variances",
)  # fmt: skip
def _degrees_of_freedom(case: Case) -> Iterator[Prediction]:
    for ddof in (0, 1, 2):
        if ddof != case.get("ddof", 0):
            yield Prediction(f"ddof={ddof}", ddof, partial(_exact, case, ddof=ddof))


@mechanism(
    "variance in place of its root", "definition", "var std", rank=3, switch="compare std with std",
)  # fmt: skip
def _root(case: Case) -> Iterator[Prediction]:
    def other(ddof: int) -> Any:
        op = "var" if case.op == "std" else "std"
        found = reference(Case(op, case.inputs, case.data, case.result, {**case.settings, "ddof": ddof}, case.known))
        assert found is not None
        return _rounded(case, found.value)

    for ddof in (0, 1):
        yield Prediction(f"{'var' if case.op == 'std' else 'std'} with ddof={ddof}", ddof, partial(other, ddof))


@mechanism(
    "another epsilon", "definition", "layer_norm instance_norm rms_norm", rank=1, switch="the same eps on both sides",
)  # fmt: skip
def _epsilon(case: Case) -> Iterator[Prediction]:
    for number, eps in enumerate((1e-5, 1e-6, 1e-3, 1e-8, 1e-12, 0.0)):
        if eps != case.get("eps", 1e-5):
            yield Prediction(f"eps={eps:g}", number, partial(_exact, case, eps=eps))
    yield Prediction(
        "the variance divided by n - 1",
        6,
        lambda: _rounded(case, normalised(case, wide(case, case.x), lambda v: v, unbiased=True)),
    )


@mechanism(
    "dropout or training mode", "definition", "matmul dot sum mean softmax layer_norm", rank=6,
    switch="model.eval(), or training=False", foresees="some elements 0, the others too large by one factor",
)  # fmt: skip
def _dropout(case: Case) -> Iterator[Prediction]:
    for number, keep in enumerate((0.9, 0.8)):
        yield Prediction(
            f"everything divided by {keep}", number, partial(lambda keep: _rounded(case, _exact(case) / keep), keep)
        )


@mechanism(
    "sum in place of the mean", "definition", "sum mean", rank=2, switch="the same reduction on both sides",
)  # fmt: skip
def _sum_or_mean(case: Case) -> Iterator[Prediction]:
    n = terms_of(case)[0].shape[1]
    if n > 1:
        yield Prediction(
            "the sum" if case.op == "mean" else "the mean", 0,
            lambda: _rounded(case, _exact(case) * (n if case.op == "mean" else 1 / n)),
        )  # fmt: skip


@mechanism(
    "operator that is not associative", "definition", "reduce", rank=0,
    switch="reduce with an associative operator only", foresees="results of another size",
)  # fmt: skip
def _not_associative(case: Case) -> Iterator[Prediction]:
    """Regroup the terms as a parallel reduction does, which changes the exact result of such an operator."""
    tree = ast.parse(str(case.get("operator", "a + b")), mode="eval").body

    def join(a: Any, b: Any) -> Any:
        return _Reader({"a": a, "b": b}, "numpy", None, []).value(tree)

    x = np.asarray(case.x, np.float64).reshape(-1)

    def fold(values: Any) -> Any:
        total = values[0]
        for value in values[1:]:
            total = join(total, value)
        return total

    def tree_of(values: Any) -> Any:
        values = list(values)
        while len(values) > 1:
            pairs = [join(a, b) for a, b in itertools.batched(values, 2)] if hasattr(itertools, "batched") and len(values) % 2 == 0 else [
                join(values[i], values[i + 1]) if i + 1 < len(values) else values[i] for i in range(0, len(values), 2)
            ]  # fmt: skip
            values = pairs
        return values[0]

    yield Prediction("the terms one after another", 0, lambda: fold(x))
    yield Prediction("pairs of neighbours", 1, lambda: tree_of(x))
    for k in range(2, min(len(x), 64)):
        yield Prediction(f"{k} lanes", 2, partial(lambda k: fold([fold(x[i::k]) for i in range(min(k, len(x)))]), k))
        yield Prediction(
            f"parts of {k}", 2, partial(lambda k: fold([fold(x[i : i + k]) for i in range(0, len(x), k)]), k)
        )
    yield Prediction("halves on top of each other", 2, lambda: _halves(list(x), join))


def _halves(values: list[Any], join: Any) -> Any:
    width = 1
    while width < len(values):
        width *= 2
    while width > 1:
        width //= 2
        values = [
            join(values[i], values[i + width]) if i + width < len(values) else values[i]
            for i in range(min(width, len(values)))
        ]
    return values[0]
