"""Training runs whose gradients are added in another order each time, beside runs of other seeds.

    python benchmarks/sgd_divergence.py [--steps 1000] [--repeats 8] [--rate 0.5] [--torch]

A network of one hidden layer learns a noisy rule by stochastic gradient descent, in float32. In NumPy the sums over the
batch, which make the gradients, are those of a strategy of fpsim with another random order in every step; with
``--torch`` the rows of each batch are taken in another order, which changes nothing but the order of the same sums.
Prints tables of the loss over all data and of the weights.
"""

from __future__ import annotations

import argparse
from functools import cache, partial
from typing import Any

import numpy as np

import fpsim
from fpsim.study import divergence

ROWS, FEATURES, HIDDEN, BATCH = 2048, 20, 32, 128
RECORDED = (1, 2, 3, 10, 30, 100, 300, 1000, 3000, 10_000)  # steps


@cache
def data() -> tuple[Any, Any]:
    """Return inputs and labels, the same for all runs."""
    rng = np.random.default_rng(2024)
    x = rng.standard_normal((ROWS, FEATURES)).astype(np.float32)
    score = np.sin(x[:, 0] * x[:, 1]) + x[:, 2] * x[:, 3] + 0.5 * rng.standard_normal(ROWS)
    return x, (score > 0).astype(np.float32)


def start(seed: int) -> tuple[Any, list[Any]]:
    """Return the generator of a run, and its first weights."""
    rng = np.random.default_rng(seed)
    first = rng.standard_normal((FEATURES, HIDDEN)) / np.sqrt(FEATURES)
    second = rng.standard_normal((HIDDEN, 1)) / np.sqrt(HIDDEN)
    return rng, [part.astype(np.float32) for part in (first, np.zeros(HIDDEN), second, np.zeros(1))]


def loss(weights: list[Any]) -> float:
    """Return the loss over all data, computed in float64."""
    x, y = (part.astype(np.float64) for part in data())
    w1, b1, w2, b2 = (part.astype(np.float64) for part in weights)
    score = (np.tanh(x @ w1 + b1) @ w2 + b2)[:, 0]
    return float(np.mean(np.logaddexp(0, score) - y * score))


def record(weights: list[Any]) -> Any:
    """Return the loss and the weights."""
    return np.concatenate([[loss(weights)], *(part.reshape(-1) for part in weights)])


@cache
def numpy_run(seed: int, order: int, *, steps: int, text: str, rate: float) -> Any:
    """Train in NumPy, with the sums over a batch under a strategy; return what is compared at the recorded steps."""
    rng, weights = start(seed)
    orders = np.random.default_rng([7, order])
    x, y = data()
    found = []
    for step in range(1, steps + 1):
        rows = rng.choice(ROWS, BATCH, replace=False)
        strategy = text.format(orders.integers(2**31))
        w1, b1, w2, b2 = weights
        hidden = np.tanh(x[rows] @ w1 + b1)
        score = (hidden @ w2 + b2)[:, 0]
        error = (1 / (1 + np.exp(-score)) - y[rows])[:, None] / np.float32(BATCH)
        inner = (error @ w2.T) * (1 - hidden * hidden)
        ones = np.ones((1, BATCH), np.float32)
        pairs = ((x[rows].T, inner), (ones, inner), (hidden.T, error), (ones, error))
        gradients = [fpsim.matmul(np.ascontiguousarray(a), b, strategy) for a, b in pairs]
        weights = [w - np.float32(rate) * g.reshape(w.shape) for w, g in zip(weights, gradients, strict=True)]
        if step in RECORDED:
            found.append(record(weights))
    return np.array(found)


@cache
def torch_run(seed: int, order: int, *, steps: int, rate: float) -> Any:
    """Train in PyTorch, with the rows of each batch in another order for each number `order`."""
    import torch

    torch.set_num_threads(1)
    rng, first = start(seed)
    orders = np.random.default_rng([7, order])
    x, y = (torch.from_numpy(part) for part in data())
    weights = [torch.from_numpy(part.copy()).requires_grad_() for part in first]
    optimizer = torch.optim.SGD(weights, lr=rate)
    found = []
    for step in range(1, steps + 1):
        rows = torch.from_numpy(orders.permutation(rng.choice(ROWS, BATCH, replace=False)))
        w1, b1, w2, b2 = weights
        score = (torch.tanh(x[rows] @ w1 + b1) @ w2 + b2)[:, 0]
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(score, y[rows]).backward()
        optimizer.step()
        if step in RECORDED:
            found.append(record([part.detach().numpy() for part in weights]))
    return np.array(found)


def main() -> None:
    """Print a table for each way to train, of losses and of weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--rate", type=float, default=0.5, help="of learning")
    parser.add_argument("--torch", action="store_true", help="train in PyTorch too")
    options = parser.parse_args()
    ways: dict[str, Any] = {
        "NumPy, `shuffle`": partial(numpy_run, text="shuffle({})"),
        "NumPy, `split(8, combine=shuffle)`": partial(numpy_run, text="split(8, combine=shuffle({}))"),
    }
    if options.torch:
        ways["PyTorch, rows of batches permuted"] = torch_run
    steps = [step for step in RECORDED if step <= options.steps]
    print(f"learning rate {options.rate:g}, {options.repeats} orders and {options.repeats} seeds")
    print("| |", " ".join(f"step {step} |" for step in steps))
    print("|---|" + "---|" * len(steps))
    for name, run in ways.items():
        train = partial(run, steps=options.steps, rate=options.rate)
        for what, part in (("loss", slice(0, 1)), ("weights", slice(1, None))):
            found = divergence(
                lambda seed, order, train=train, part=part: train(seed, order)[:, part],
                repeats=options.repeats, seeds=options.repeats,
            )  # fmt: skip
            print(f"| {name}: {what}, orders |", " ".join(f"{v:.1e} |" for v in found.orders))
            print(f"| {what}, seeds |", " ".join(f"{v:.1e} |" for v in found.others))
            print("| ratio |", " ".join(f"{v:.2g} |" for v in found.ratio), flush=True)
            if what == "loss":
                print("| mean loss |", " ".join(f"{v:.3f} |" for v in found.mean[:, 0]), flush=True)


if __name__ == "__main__":
    main()
