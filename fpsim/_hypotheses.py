"""Strategies that a black box may be, and which of them give the bits that it gave."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fpsim import _candidates
from fpsim._black_box import Array, BlackBox
from fpsim.errors import InputError, StrategyError, UnknownOrderError
from fpsim.orders.base import Order
from fpsim.strategies import Strategy, strategy as as_strategy

_FUSED = (16, 8, 4, 32, 2, 64, 3, 6, 12, 24)  # products of a fused add
_CHUNKS = tuple(
    sorted({*(2**i for i in range(2, 13)), *(m * 2**i for m in (3, 5, 7, 9, 11, 13, 15) for i in range(2, 10))},
           key=lambda size: (size & (size - 1) != 0, size))
)  # fmt: skip
_SAMPLED = 6  # rows and columns of a product that every candidate is tried on
#: What was revealed lately, in this process: tried after the named rules.
RECENT: deque[str] = deque(maxlen=32)


@dataclass(frozen=True, slots=True)
class Observed:
    """Operands and the result that the black box gave for them."""

    operands: tuple[Array, ...]
    result: Array


def bits(x: Array, dtype: np.dtype[np.floating]) -> NDArray[np.integer]:
    """Return bit patterns, the same one for every NaN."""
    with np.errstate(all="ignore"):
        values = np.asarray(x).astype(dtype)
    values = np.where(np.isnan(values), np.asarray(np.nan, dtype), values)
    return np.ascontiguousarray(values).view(f"u{dtype.itemsize}").reshape(values.shape)


def same_bits(box: BlackBox, chosen: Strategy, seen: Observed) -> NDArray[np.bool] | None:
    """Tell which outputs a strategy gives exactly; None where it is not defined for the case."""
    try:
        with np.errstate(all="ignore"):
            given = box.emulate(chosen, seen.operands)
    except (InputError, UnknownOrderError, StrategyError):
        return None
    if not np.can_cast(given.dtype, seen.result.dtype):
        return None
    dtype = seen.result.dtype
    same: NDArray[np.bool] = np.equal(bits(given, dtype), bits(seen.result, dtype))
    return np.asarray(same)


def named(box: BlackBox) -> Iterator[str]:
    """Yield named rules for an operation of this kind."""
    if box.op in ("sum", "mean"):
        yield "numpy_sum"
        yield from (text for text, _ in _candidates.named_rules("sum"))
        workers = sorted({2, os.cpu_count() or 1})
        yield from (
            f"{rule}={count}" + ")" for rule in ("torch_cpu_sum(threads", "eigen_sum(shards") for count in workers
        )
        # What an H200 runs at once, with 132 multiprocessors.
        yield from ("torch_cuda_sum(blocks=528)", "cub_sum(blocks=5280)")
        return
    if box.op == "dot":
        yield from (text for text, _ in _candidates.named_rules("dot"))
    for version in ("0.3.31", "0.3.34"):
        for core in ("skylakex", "haswell"):
            for threads in sorted({1, 2, os.cpu_count() or 1}):
                yield f'numpy_matmul(core={core}, threads={threads}, version="{version}")'


def texts(
    box: BlackBox, settings: Sequence[str], own: Sequence[str | Strategy | Order], *,
    fused: Sequence[str] = (), pairs: bool = True,
) -> Iterator[str]:  # fmt: skip
    """Yield strategy texts, each once: the caller's, the simplest, named rules, recent ones, then other orders.

    `fused` are the settings to try with fused adds, before all others where there are any; `pairs` says whether to go
    on to additions of two terms then.
    """
    op = "sum" if not box.multiplies else "dot" if box.op == "dot" else "matmul"
    orders = _candidates.orders(box.n, op=op)

    def generic(low: int, high: int) -> Iterator[str]:
        means = ("", "+reciprocal") if box.op == "mean" else ("",)
        for setting in settings:
            kinds = kinds_of_products(box, setting)
            for order, rank in orders:
                if low <= rank < high:
                    yield from (f"{order}{fma}{setting}{mean}" for fma in kinds for mean in means)

    seen: set[str] = set()
    chains = (f"{order}{setting}" for setting in fused for order in fused_orders(box.n))
    others = (*generic(0, 3), *named(box), *RECENT, *generic(3, 10**6)) if pairs or not fused else ()
    for text in (*map(str, own), *chains, *others):
        if text not in seen:
            seen.add(text)
            yield text


def kinds_of_products(box: BlackBox, setting: str, /) -> tuple[str, ...]:
    """Return what to write before a setting for rounded and for fused products; some settings need rounded ones."""
    rounded = any(word in setting for word in ("neumaier", "dot2", "product("))
    return ("", "+fma") if box.multiplies and not rounded else ("",)


def fused_orders(n: int, /) -> Iterator[str]:
    """Yield chains of fused adds: one, or several whose sums are added, the likeliest first."""
    for k in _FUSED:
        yield f"fused({k})"
        if n % k and k < n:
            yield f"fused({k}, rest=first)"
            yield from (f"fused({k}, rest=first, tile={tile})" for tile in (32, 64) if k < tile < n)
    sizes = [size for size in _CHUNKS if size < n]
    combines = ("", ", combine=pairwise", ", combine=fold")
    for k in _FUSED:
        yield from (f"chunks({size}, fused({k}))" for size in sizes if size >= k)
        yield from (f"chunks({size}, fused({k}, rest=first))" for size in sizes if size > k and size % k)
        for parts in range(2, 33):
            if parts * k <= n:
                yield from (f"split_k({parts}, fused({k}){combine})" for combine in combines[: 1 + 2 * (parts > 2)])
        for parts in (2, 4, 8):
            for block in (8, 16, 32, 64):
                if parts * block <= n and block >= k:
                    yield from (
                        f"interleaved({parts}, fused({k}), block={block}{combine})"
                        for combine in combines[: 1 + 2 * (parts > 2)]
                    )


def from_zero(found: Sequence[Strategy], n: int, /) -> list[Strategy]:
    """Return the strategies of plain orders with the sum of all n terms added to +0 last."""
    texts = (
        f"chunks({n}, {one.order}, combine=serial+start(0.0)){one.settings}"
        for one in found
        if _generic(one) and one.settings.start is None
    )
    return [as_strategy(text) for text in texts]


def surviving(box: BlackBox, candidates: Iterable[str], seen: Sequence[Observed], *, enough: int) -> list[Strategy]:
    """Return the strategies that give every observed bit, in their order; not more than `enough`."""
    found: dict[Strategy, None] = {}
    first = _sample(box, seen[0])
    for text in candidates:
        try:
            chosen = as_strategy(text)
        except StrategyError:
            continue
        if _generic(chosen) and first is not None:
            fits = same_bits(first[0], chosen, first[1])
            if fits is None or not fits.all():
                continue
        if all((fits := same_bits(box, chosen, one)) is not None and fits.all() for one in seen):
            found[chosen] = None
            if len(found) >= enough:
                break
    return list(found)


def _generic(chosen: Strategy) -> bool:
    return type(chosen.order).product is Order.product


class _Sampled(BlackBox):
    """Some rows and columns of a product."""

    def __init__(self, whole: BlackBox, shape: tuple[int, ...]) -> None:
        super().__init__(whole.run, whole.op, shape, whole.form)


def _sample(box: BlackBox, seen: Observed) -> tuple[BlackBox, Observed] | None:
    """Return a small part of a large product: generic orders treat all outputs alike."""
    if box.op != "matmul" or box.outputs <= _SAMPLED**2:
        return None
    m, k, n = box.shape
    rows, columns = (np.unique(np.linspace(0, size - 1, _SAMPLED).astype(np.int64)) for size in (m, n))
    a, b = seen.operands
    part = Observed((a[rows], b[:, columns]), seen.result[np.ix_(rows, columns)])
    return _Sampled(box, (rows.size, k, columns.size)), part


def covering(
    box: BlackBox, candidates: Iterable[str], seen: Sequence[Observed], *, positions: NDArray[np.bool] | None = None
) -> list[tuple[Strategy, NDArray[np.bool]]]:
    """Return strategies and the outputs that each gives in every observation, those that give the most first.

    Outputs that several give are left to the first of them; `positions` are those that matter.
    """
    wanted = np.ones(box.output_shape, np.bool) if positions is None else positions.copy()
    fits: list[tuple[Strategy, NDArray[np.bool]]] = []
    for text in candidates:
        try:
            chosen = as_strategy(text)
        except StrategyError:
            continue
        mask = wanted.copy()
        for one in seen:
            same = same_bits(box, chosen, one)
            mask = mask & same if same is not None else np.zeros_like(mask)
            if not mask.any():
                break
        if mask.any():
            fits.append((chosen, mask))
    chosen_parts: list[tuple[Strategy, NDArray[np.bool]]] = []
    while wanted.any() and fits:
        best = max(range(len(fits)), key=lambda i: (int((fits[i][1] & wanted).sum()), -i))
        gained = fits[best][1] & wanted
        if not gained.any():
            break
        chosen_parts.append((fits[best][0], gained))
        wanted &= ~gained
    return chosen_parts


def held_by(seen: Sequence[Observed]) -> list[str]:
    """Return the narrow formats that all results are numbers of."""
    from fpsim.formats import format_named, round_to

    values = np.concatenate([np.asarray(one.result, np.float64).reshape(-1) for one in seen])
    values = values[np.isfinite(values)]
    found = []
    for name in ("float16", "bfloat16"):
        with np.errstate(all="ignore"):
            rounded = np.asarray(round_to(values, format_named(name)), np.float64)
        if values.size and np.array_equal(rounded, values):
            found.append(name)
    return found
