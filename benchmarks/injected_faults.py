"""Problems with right results of many strategies, and results with one fault each, for `bench_verdicts.py`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import fpsim
from fpsim.laws import law

Array = Any
#: Laws of operands; "sparse" and "cancelling" change normal numbers.
LAWS = (
    "uniform", "normal", "lognormal", "wide(-8, 8)", "constant(0.1)", "integers(-9, 9)", "sparse", "cancelling",
    "normal(100, 1)", "exponential",
)  # fmt: skip
ORDERS = (
    "serial", "reverse", "pairwise", "fold", "numpy_sum", "pairwise(8)", "lanes({k})", "lanes({k}, combine=pairwise)",
    "lanes({p}, combine=fold)", "lanes({p}, tail=after)", "split_k({s})", "split({s})", "chunks({c})",
    "chunks({c}, combine=pairwise)", "interleaved({s}, block=4)", "cascade(2, 16)", "shuffle({seed})",
    "shuffle({seed}, pairwise)", "rotate({r})",
)  # fmt: skip
SUMS = ("torch_cpu_sum", "cub_sum", "numba_cuda_reduce", "xla_cpu_sum", "eigen_sum", "einsum_sum", "grid({p}, 32)")
DOTS = ("openblas_sdot(core=skylakex)", "openblas_sdot(core=haswell)", "einsum_dot")
WIDER = ("{order}+acc(float64)+output(float32)", "serial+kahan", "pairwise+neumaier")
#: Kinds whose results have less precision than float32, which a verdict may say in place of "bug".
REDUCED = ("TF32 operands", "bfloat16 operands", "float16 accumulator")
_ONE = ("sum", "mean", "var")


@dataclass(frozen=True)
class Problem:
    """An operation on given operands; `whole` is the memory that the first operand is a view of."""

    op: str
    operands: tuple[Array, ...]
    law: str
    whole: Array | None = None
    axis: int | None = None

    @property
    def size(self) -> int:
        """Terms of an output."""
        return int(self.operands[0].shape[-1])

    def compute(self, strategy: str, *operands: Array) -> Array:
        """Return the result of the operands, by default the right ones, in float32."""
        given = operands or self.operands
        with np.errstate(all="ignore"):
            if self.op in _ONE:
                return np.asarray(getattr(fpsim, self.op)(given[0], strategy, axis=self.axis), np.float32)
            product = np.asarray(fpsim.matmul(given[0], given[1], strategy), np.float32)
            return product + given[2] if len(given) > 2 else product

    def tolerance(self) -> Array:
        """Return how far an output may be from the exact one, by serial, reversed, paired and fused sums (1 - 1e-6)."""
        usual = ["serial", "reverse", "pairwise"]
        if self.op in ("dot", "matmul"):
            tol = fpsim.tolerance(self.op, *self.operands[:2], strategy=[*usual, "serial+fma"]).probabilistic
            if len(self.operands) > 2:
                a, b, c = (np.abs(x.astype(np.float64)) for x in self.operands)
                return tol + 2.0**-24 * (a @ b + c)
            return tol
        x = self.operands[0]
        if self.op == "sum":
            return fpsim.tolerance("sum", x, strategy=usual, axis=self.axis).probabilistic
        wide = x.astype(np.float64)
        mean = wide.mean(axis=self.axis, keepdims=True)
        terms = x if self.op == "mean" else ((wide - mean) ** 2).astype(np.float32)
        tol = np.asarray(fpsim.tolerance("sum", terms, strategy=usual, axis=self.axis).probabilistic) / self.size
        if self.op == "var":  # an error d of the mean adds d**2
            tol = (
                tol
                + (np.asarray(fpsim.tolerance("sum", x, strategy=usual, axis=self.axis).probabilistic) / self.size) ** 2
            )
        return tol + 2.0**-22 * np.abs(self.exact())

    def exact(self) -> Array:
        """Return the result in float64, near enough to tell faults by."""
        wide = [x.astype(np.float64) for x in self.operands]
        if self.op in _ONE:
            return np.asarray(getattr(np, self.op)(wide[0], axis=self.axis))
        product = np.asarray(fpsim.exact.matmul(*self.operands[:2]).round("float64"))
        return product + wide[2] if len(wide) > 2 else product

    def strategy(self, rng: np.random.Generator) -> str:
        """Return a strategy that real programs may use."""
        n = self.size
        product = self.op in ("dot", "matmul")
        orders = [
            *ORDERS,
            *(SUMS if self.op == "sum" and self.axis is None else ()),
            *(DOTS if self.op == "dot" else ()),
        ]
        order = str(rng.choice(orders)).format(
            k=rng.integers(2, 65), p=2 ** rng.integers(2, 6), s=rng.integers(2, 17), c=2 ** rng.integers(2, 9),
            seed=rng.integers(10**6), r=rng.integers(n),
        )  # fmt: skip
        if rng.random() < 0.1 and self.op in ("sum", "dot", "matmul"):
            return str(rng.choice(WIDER)).format(order=order if order not in (*SUMS, *DOTS) else "serial")
        named = ("(" not in order and order not in ORDERS) or order in DOTS
        return order + ("+fma" if product and not named and rng.random() < 0.5 else "")


def _numbers(rng: np.random.Generator, text: str, shape: tuple[int, ...]) -> Array:
    if text == "sparse":
        return (rng.standard_normal(shape) * (rng.random(shape) < 0.1)).astype(np.float32)
    if text == "cancelling":
        x = rng.standard_normal(shape).astype(np.float32)
        half = shape[-1] // 2
        x[..., half : 2 * half] = -x[..., :half]
        return rng.permuted(x, axis=-1) + (1e-3 * rng.standard_normal(shape)).astype(np.float32)
    return law(text).draw(shape, rng=rng)


def problem(rng: np.random.Generator) -> Problem:
    """Return a random operation of a random size on operands of a random law."""
    op = str(rng.choice(["sum", "sum", "rows", "dot", "dot", "matmul", "matmul", "matmul", "bias", "mean", "var"]))
    chosen = str(rng.choice(LAWS))
    if op in ("matmul", "bias"):
        sizes = (4, 5, 8, 12, 16, 17, 24, 32, 48, 64)
        m, k, n = (
            (int(i) for i in rng.choice(sizes, 3))
            if rng.random() < 0.97
            else (int(i) for i in rng.choice((128, 200, 256), 3))
        )
        if rng.random() < 0.4:
            k = n = m
        a, b = _numbers(rng, chosen, (m, k)), _numbers(rng, chosen, (k, n))
        whole = None
        if rng.random() < 0.3:
            whole = _numbers(rng, chosen, (m, 2 * k))
            a = whole[:, ::2]
        extra = (_numbers(rng, chosen, (m, n)),) if op == "bias" else ()
        return Problem("matmul", (a, b, *extra), chosen, whole)
    n = int(10 ** rng.uniform(1, 3.2)) if rng.random() < 0.95 else int(10 ** rng.uniform(3.2, 5))
    if op in ("mean", "var"):
        n = min(n, 2000)
    if op == "rows":
        return Problem("sum", (_numbers(rng, chosen, (int(rng.integers(2, 40)), min(n, 2000))),), chosen, axis=1)
    whole = _numbers(rng, chosen, (2 * n,)) if rng.random() < 0.3 else None
    x = whole[::2] if whole is not None else _numbers(rng, chosen, (n,))
    return Problem(op, (x, _numbers(rng, chosen, (n,))) if op == "dot" else (x,), chosen, whole)


# -- faults -----------------------------------------------------------------------------------------------------------


def faults(given: Problem, rng: np.random.Generator, strategy: str) -> dict[str, Callable[[], Array]]:
    """Return the faults that this problem can have: each computes a result with it."""
    found = {**_of_terms(given, rng, strategy), **_of_elements(given, rng, strategy)}
    a = given.operands[0]
    rest = given.operands[1:]
    if given.whole is not None:
        dense = given.whole.reshape(-1)[: a.size].reshape(a.shape)
        found["stride ignored"] = lambda: given.compute(strategy, dense, *rest)
    if given.op == "matmul":
        found |= _of_products(given, strategy)
    if given.op in ("sum", "dot", "matmul"):
        low = "serial+acc(float16)"
        found["float16 accumulator"] = lambda: given.compute(low)
    if given.op in ("dot", "matmul"):
        for name, form in (("TF32 operands", "tf32"), ("bfloat16 operands", "bfloat16")):
            found[name] = lambda form=form: given.compute(f"{strategy}+operands({form})")
    if given.op in ("mean", "var"):
        n = given.size
        for d in (n - 1, n + 1):
            found[f"divisor n {'-' if d < n else '+'} 1"] = lambda d=d: np.float32(
                given.compute(strategy) * np.float32(n / d)
            )
    return found


def _of_terms(given: Problem, rng: np.random.Generator, strategy: str) -> dict[str, Callable[[], Array]]:
    """Return faults that lose or repeat terms of every output."""
    n = given.size
    tails = [t for t in (n % 4, n % 8, n % 16, n % 32) if 0 < t < n]
    lost = int(rng.integers(1, max(2, n // 8)))
    start = int(rng.integers(n - lost + 1))
    block = max(1, n // int(rng.integers(2, 9)))
    kinds: dict[str, list[int]] = {
        "first term dropped": [*range(1, n)],
        "last term dropped": [*range(n - 1)],
        "last term twice": [*range(n), n - 1],
        "first half only": [*range(n // 2)],
        "middle block lost": [*range(start), *range(start + lost, n)],
        "block of terms read twice": [*range(n - block), *range(max(0, n - 2 * block), max(0, n - 2 * block) + block)],
        "everything doubled": [*range(n), *range(n)],
    }
    if tails:
        kinds["tail dropped"] = [*range(n - int(rng.choice(tails)))]

    def compute(some: list[int]) -> Array:
        a = np.ascontiguousarray(given.operands[0][..., some])
        if given.op in _ONE:
            out = given.compute(strategy, a)
            if given.op == "mean":  # the divisor stays
                out = np.float32(out * np.float32(len(some) / n))
            return out
        b, *rest = given.operands[1:]
        return given.compute(strategy, a, np.ascontiguousarray(b[some]), *rest)

    if given.op == "var":  # twice the terms have the same variance
        del kinds["everything doubled"]
    return {name: lambda some=some: compute(some) for name, some in kinds.items()}


def _of_products(given: Problem, strategy: str) -> dict[str, Callable[[], Array]]:
    a, b, *rest = given.operands
    found: dict[str, Callable[[], Array]] = {}
    pairs = {
        "second operand transposed": (a, b.T), "first operand transposed": (a.T, b), "operands swapped": (b, a),
        "result transposed": (b.T, a.T), "both operands transposed": (a.T, b.T),
    }  # fmt: skip
    for name, (x, y) in pairs.items():
        if x.shape[1] == y.shape[0] and (x.shape[0], y.shape[1]) == (a.shape[0], b.shape[1]):
            found[name] = lambda x=x, y=y: given.compute(
                strategy, np.ascontiguousarray(x), np.ascontiguousarray(y), *rest
            )
    if b.shape[0] != b.shape[1]:
        other = np.ascontiguousarray(b).reshape(b.shape[::-1]).T
        found["operand in the other memory order"] = lambda: given.compute(
            strategy, a, np.ascontiguousarray(other), *rest
        )
    if rest:
        found["beta*C dropped"] = lambda: given.compute(strategy, a, b)
        found["beta*C doubled"] = lambda: given.compute(strategy, a, b, 2 * rest[0])
    return found


def _of_elements(given: Problem, rng: np.random.Generator, strategy: str) -> dict[str, Callable[[], Array]]:
    """Return faults of some elements of a result."""

    def one_off() -> Array:
        out = given.compute(strategy).copy()
        at = tuple(int(rng.integers(s)) for s in out.shape)
        out[at] *= np.float32(1 + 2.0 ** -rng.integers(1, 20))
        return out

    def flipped() -> Array:
        out = given.compute(strategy).copy()
        at = int(rng.integers(out.size))
        out.reshape(-1).view(np.uint32)[at] ^= np.uint32(1 << int(rng.integers(0, 32)))
        return out

    found: dict[str, Callable[[], Array]] = {"one wrong element": one_off, "one bit flipped": flipped}
    shape = () if given.axis is None and given.op in _ONE else given.compute(strategy).shape
    if not shape or given.op in ("mean", "var"):
        return found

    def change(how: str) -> Array:
        out = given.compute(strategy).copy()
        size = [max(1, min(16, s // int(rng.integers(2, 5)))) for s in shape]
        corner = [int(rng.integers(s - t + 1)) for s, t in zip(shape, size, strict=True)]
        place = tuple(slice(c, c + t) for c, t in zip(corner, size, strict=True))
        match how:
            case "row repeated":
                i = int(rng.integers(shape[0] - 1))
                out[i + 1] = out[i]
            case "tile repeated":
                other = tuple(slice((c + t) % max(1, s - t + 1), (c + t) % max(1, s - t + 1) + t)
                              for c, t, s in zip(corner, size, shape, strict=True))  # fmt: skip
                out[place] = out[other].copy()
            case "tile not written":
                out[place] = 0
            case "tile of an older result":
                out[place] = given.compute(strategy, given.operands[0][::-1].copy(), *given.operands[1:])[place]
            case "tile shifted by one":
                out[place] = np.roll(out, -1, axis=-1)[place]
            case "updates lost":
                n, parts = given.size, int(rng.integers(2, 9))
                step = math.ceil(n / parts)
                first = step * int(rng.integers(math.ceil(n / step)))
                keep = [*range(first), *range(first + step, n)]
                if not keep:
                    return out
                a, rest = np.ascontiguousarray(given.operands[0][..., keep]), list(given.operands[1:])
                if rest:
                    rest[0] = np.ascontiguousarray(rest[0][keep])
                chosen = rng.random(shape) < 0.1
                out = np.where(chosen, given.compute(strategy, a, *rest), out).astype(np.float32)
        return out

    kinds = (
        "row repeated",
        "tile repeated",
        "tile not written",
        "tile of an older result",
        "tile shifted by one",
        "updates lost",
    )
    return {**found, **{kind: lambda kind=kind: change(kind) for kind in kinds}}
