"""Training runs in other orders of additions, beside other seeds."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim.errors import InputError
from fpsim.study import Divergence, divergence

X = np.random.default_rng(5).standard_normal((256, 6)).astype(np.float32)
Y = (X[:, 0] * X[:, 1] > 0).astype(np.float32)


def network(seed: int, order: int, *, text: str = "shuffle({})", steps: int = 25) -> Any:
    """Train a network of one hidden layer; return its weights after every step."""
    rng, orders = np.random.default_rng(seed), np.random.default_rng([1, order])
    w = rng.standard_normal((6, 8)).astype(np.float32)
    v = rng.standard_normal((8, 1)).astype(np.float32)
    found = []
    for _ in range(steps):
        rows = rng.choice(len(X), 64, replace=False)
        strategy = text.format(orders.integers(2**31))
        hidden = np.tanh(X[rows] @ w)
        error = (1 / (1 + np.exp(-(hidden @ v))) - Y[rows][:, None]) / np.float32(64)
        inner = (error @ v.T) * (1 - hidden * hidden)
        w = w - np.float32(0.5) * fpsim.matmul(X[rows].T, inner, strategy)
        v = v - np.float32(0.5) * fpsim.matmul(hidden.T, error, strategy)
        found.append(np.concatenate([w.reshape(-1), v.reshape(-1)]))
    return found


def test_orders_change_bits_but_far_less_than_seeds() -> None:
    found = divergence(network, repeats=4, seeds=4)
    assert found.distinct[-1] == 4
    assert (found.orders > 0).all()
    assert (found.ratio > 1e4).all()
    assert found.orders[-1] > found.orders[0]  # they drift apart
    assert found.mean.shape == (25, 56)


def test_the_same_order_gives_the_same_bits() -> None:
    assert np.array_equal(network(3, 2), network(3, 2))
    found = divergence(lambda seed, order: network(seed, order, text="pairwise", steps=5), repeats=3, seeds=3)
    assert found.distinct.tolist() == [1] * 5
    assert not found.orders.any()
    assert np.isinf(found.ratio).all()
    assert (found.others > 0.1).all()
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["ratio"] == ["inf"] * 5


def test_deviations_are_those_of_the_runs() -> None:
    rng = np.random.default_rng(0)
    runs = {(0, order): rng.standard_normal((3, 2)) for order in range(5)}
    runs |= {(seed, 0): 10 * rng.standard_normal((3, 2)) for seed in range(1, 4)}
    found = divergence(lambda seed, order: runs[seed, order], repeats=5, seeds=4)
    same = np.stack([runs[0, order] for order in range(5)])
    other = np.stack([runs[seed, 0] for seed in range(4)])
    assert found.orders == pytest.approx(np.sqrt((np.std(same, axis=0, ddof=1) ** 2).mean(axis=1)))
    assert found.others == pytest.approx(np.sqrt((np.std(other, axis=0, ddof=1) ** 2).mean(axis=1)))
    assert isinstance(found, Divergence)
    assert str(found).splitlines()[0] == "5 orders of one seed, 4 seeds"
    assert len(str(found).splitlines()) == 5


def test_wrong_use() -> None:
    with pytest.raises(InputError, match="repeats must be"):
        divergence(lambda *_: [1.0], repeats=1)
    with pytest.raises(InputError, match="finite numbers"):
        divergence(lambda *_: [np.nan])
    with pytest.raises(InputError, match=r"\(1, 1\) numbers for one run and \(2, 1\)"):
        divergence(lambda *given: [1.0] * (1 + given[1]))
