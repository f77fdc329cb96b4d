"""Gradient checks against derivatives in closed form."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim.errors import InputError
from fpsim.gradients import gradient_check

RNG = np.random.default_rng(0)
W = (RNG.standard_normal((64, 200)) / 14).astype(np.float32)
T = RNG.standard_normal(64).astype(np.float32)
X = RNG.standard_normal(200).astype(np.float32)
STEPS = [2.0**-k for k in (16, 12, 8, 6, 4, 2)]


def loss(x: Any, strategy: str) -> Any:
    y = fpsim.matmul(W.astype(x.dtype), x, strategy)
    rest = np.tanh(y) - T.astype(x.dtype)
    return fpsim.dot(rest, rest, strategy)


def slope() -> Any:
    y = W.astype(float) @ X.astype(float)
    return W.T.astype(float) @ (2 * (np.tanh(y) - T) / np.cosh(y) ** 2)


@pytest.mark.parametrize("divide_by", ["nominal", "actual"])
def test_predicted_errors_are_those_of_emulated_differences(divide_by: str) -> None:
    found = gradient_check(
        loss, X, strategies=["serial", "split_k(4)+fma"], steps=STEPS, divide_by=divide_by, gradient=slope()
    )
    ratio = found.predicted / found.observed
    assert ((ratio > 0.5) & (ratio < 2)).all()
    # The order with less noise is better where noise rules, and no better where truncation does.
    assert (found.observed[0, 1:3] > 1.5 * found.observed[1, 1:3]).all()
    assert found.observed[0, -1] == pytest.approx(found.observed[1, -1], rel=0.05)
    for i in range(2):
        least = found.steps[np.argmin(found.observed[i])]
        assert least / 4 <= found.best_steps[i] <= 4 * least


def test_the_gradient_may_be_left_out() -> None:
    given = gradient_check(loss, X, strategies=["pairwise"], steps=STEPS, gradient=slope(), elements=5)
    own = gradient_check(loss, X, strategies=["pairwise"], steps=STEPS, elements=5)
    np.testing.assert_allclose(own.observed, given.observed, rtol=1e-3)
    json.dumps(own.to_dict(), allow_nan=False)
    assert "best step" in str(own)


def test_a_quadratic_has_no_best_step_and_rounds_its_points() -> None:
    def energy(x: Any, strategy: str) -> Any:
        return fpsim.dot(x, x, strategy)

    big = (X * 1000).astype(np.float32)
    nominal, actual = (
        gradient_check(energy, big, strategies=["serial+acc(float64)"], steps=[1e-3], divide_by=by, elements=64)
        for by in ("nominal", "actual")
    )
    assert np.isinf(nominal.best_steps).all()
    assert "the largest" in str(nominal)
    assert actual.observed[0, 0] < nominal.observed[0, 0] / 100
    assert nominal.predicted[0, 0] == pytest.approx(nominal.observed[0, 0], rel=0.6)


def test_wrong_use() -> None:
    with pytest.raises(InputError, match="one number"):
        gradient_check(lambda x, s: x, X, strategies=["serial"])  # noqa: ARG005
    with pytest.raises(InputError, match="divide_by"):
        gradient_check(loss, X, strategies=["serial"], divide_by="h")
    with pytest.raises(InputError, match="at least one strategy"):
        gradient_check(loss, X, strategies=[])
    with pytest.raises(InputError, match="at least one number"):
        gradient_check(loss, [], strategies=["serial"])
