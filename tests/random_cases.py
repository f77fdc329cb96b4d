"""Random strategies, operands and settings, for looking for errors beyond a bound."""

from __future__ import annotations

from typing import Any

import numpy as np

import fpsim
from fpsim.errors import FpsimError
from fpsim.laws import law
from fpsim.strategies import Strategy
from fpsim.study import random_tree

ORDERS = [
    "serial", "pairwise", "lanes(8)", "lanes(4, combine=fold, tail=after)", "chunks(7)", "split_k(3)", "reverse",
    "interleaved(3, block=4)", "cascade(3, 4)", "grid(2, 8)", "numpy_sum", "chunks(5, serial+acc(bfloat16))",
    "lanes(4, serial+acc(float16), combine=pairwise+acc(float32))", "chunks(6, serial+kahan, combine=pairwise)",
    "chunks(4, combine=serial+acc(float64))", "chunks(5, serial+output(bfloat16), combine=serial)",
    "chunks(5, serial+neumaier, combine=serial)", "chunks(5, serial, combine=serial+neumaier)",
    "chunks(5, serial+acc(float64)+neumaier, combine=serial+neumaier)", "fold", "split(3, pairwise)", "rotate(2)",
    "shuffle(5)", "chunks(9, lanes(3), combine=pairwise)", "tree", "tree", "tree", "fused(8)+align(24)",
    "fused(4, rest=first)+align(12)", "split_k(2, fused(16)+align(25))",
]  # fmt: skip
FORMATS = [
    "", "", "float64", "bfloat16", "float16", "e5m2", "e4m3fn", "tf32", "bfloat16, toward_zero", "float16, up",
    "float32, down", "float16, to_odd", "e4m3fn(overflow=saturate)", "format(1, -60, 60)", "format(2, -60, 60)",
]  # fmt: skip
COMPENSATIONS = ["", "", "", "+fma", "+fma", "+kahan", "+fma+kahan", "+neumaier", "+dot2"]
EXTRAS = [
    "", "", "", "+ftz", "+daz", "+operands(bfloat16)", "+operands(float16)", "+operands(e4m3fn)", "+output(bfloat16)",
    "+output(float16)", "+output(e5m2, up)", "+ftz+output(float16)", "+product(bfloat16)", "+product(float64)",
    "+start(0.0)",
]  # fmt: skip
LAWS = [
    "uniform(0,1)", "uniform(-1,1)", "normal", "lognormal(0,2)", "wide(-30,30)", "wide(-12,2)", "harmonic",
    "integers(-3,3)", "constant(0.1)", "wide(-26,-12)", "wide(-140,-120)", "uniform(0,0.01)", "sorted(0,1)",
    "exponential",
]  # fmt: skip
LENGTHS = [1, 2, 3, 5, 8, 17, 40, 100, 300]

Drawn = tuple[str, Strategy, tuple[Any, ...], dict[str, int]]


def random_text(rng: np.random.Generator, n: int) -> str:
    order = str(rng.choice(ORDERS))
    if order == "tree":
        order = f'tree("{random_tree(n, rng=rng, permuted=bool(rng.integers(2)))}")'
    if "fused" in order:
        return f"{order}{rng.choice(['', '+operands(float16)', '+operands(bfloat16)', '+output(float16)'])}"
    if rng.random() < 0.3:
        return f"{order}{rng.choice(['', '+fma', '+acc(float64)', '+neumaier', '+acc(float64)+fma', '+dot2'])}"
    form = str(rng.choice(FORMATS))
    return f"{order}{f'+acc({form})' if form else ''}{rng.choice(COMPENSATIONS)}{rng.choice(EXTRAS)}"


def random_case(rng: np.random.Generator, outputs: int = 6) -> Drawn | None:
    """Return operation, strategy, operands and keywords; None where a random text contradicts itself."""
    op, n = str(rng.choice(["sum", "dot", "matmul"])), int(rng.choice(LENGTHS))
    cancels = op == "sum" and rng.random() < 0.3
    text = random_text(rng, 2 * n if cancels else n)
    rows = max(outputs // 4, 2)
    shapes: tuple[tuple[int, ...], ...] = ((rows, n), (n, 4)) if op == "matmul" else ((n,), (n,))
    if op == "sum":
        shapes = ((outputs, n),)
    dtype = rng.choice(["float32", "float32", "float16", "float64"])
    try:
        chosen = fpsim.strategy(text)
        inputs: tuple[Any, ...] = tuple(
            law(str(rng.choice(LAWS))).draw(shape, rng=rng, dtype=dtype) for shape in shapes
        )
        if cancels:
            x = inputs[0]
            inputs = (np.concatenate([x, np.flip(-x * x.dtype.type(1 + 1e-3 * rng.random()), 1)], 1),)
        if op == "sum":
            chosen.program(inputs[0].shape[1])
    except FpsimError:  # contradicting settings, or a law beyond float16
        return None
    return op, chosen, inputs, {"axis": 1} if op == "sum" else {}
