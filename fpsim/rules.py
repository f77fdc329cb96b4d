"""Rules: strategies that reproduce a black box at every size."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fpsim._black_box import BlackBox
from fpsim._hypotheses import Observed, same_bits
from fpsim.errors import InputError, StrategyError
from fpsim.formats import as_format
from fpsim.orders.base import Order
from fpsim.revealing import Progress, Revealed, laws_of, reveal
from fpsim.strategies import Strategy, strategy

SCHEMA: Final = "fpsim.revealed_rule/1"
Size = int | tuple[int, ...]
_FIRST = 9  # observations that a candidate is tried on at a size


@dataclass(frozen=True, slots=True)
class RevealedRule:
    """A strategy for all sizes of a black box; see `reveal_rule`.

    Attributes
    ----------
    op, dtype : str
        The operation, and the format of the operands.
    rule : Strategy or None
        The strategy whose bits all replays had at all sizes; None where there is no such one.
    alternatives : tuple of str
        Other strategies of which the same is true.
    sizes, verified : tuple of sizes
        Where strategies were revealed, and the sizes never probed before at which the rule was replayed.
    results : tuple of Revealed
        What was found at each of `sizes`.
    replays : int
        Random operands at each verified size.
    calls : int
        How often the routine was called in all.
    seconds : float
        Wall-clock time.
    notes : tuple of str
        Why there is no rule, and where it stops to hold.
    """

    op: str
    dtype: str
    rule: Strategy | None
    alternatives: tuple[str, ...]
    sizes: tuple[Size, ...]
    verified: tuple[Size, ...]
    results: tuple[Revealed, ...]
    replays: int
    calls: int
    seconds: float
    notes: tuple[str, ...]

    def __str__(self) -> str:
        spent = f"{self.calls} calls, {self.seconds:.1f} s"
        where = ", ".join(map(_named, self.sizes))
        if self.rule is None:
            lines = [f"{self.op}, {self.dtype}: no rule is claimed ({spent})."]
            lines += [f"  {_named(size)}: {_claim(one)}" for size, one in zip(self.sizes, self.results, strict=True)]
        else:
            proof = f"{self.replays} of {self.replays} random replays have equal bits at each of"
            lines = [
                f"{self.op}, {self.dtype}: {self.rule}",
                f"Revealed at {where}; {proof} {', '.join(map(_named, self.verified))} ({spent}).",
            ]
        if self.alternatives:
            lines.append(f"The same bits everywhere: {', '.join(self.alternatives)}.")
        return "\n".join([*lines, *(f"{note[0].upper()}{note[1:]}." for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects."""
        return {
            "schema": SCHEMA,
            "op": self.op,
            "dtype": self.dtype,
            "rule": None if self.rule is None else str(self.rule),
            "alternatives": list(self.alternatives),
            "sizes": [_plain(size) for size in self.sizes],
            "verified": [_plain(size) for size in self.verified],
            "results": [one.to_dict() for one in self.results],
            "replays": self.replays,
            "calls": self.calls,
            "seconds": round(self.seconds, 3),
            "notes": list(self.notes),
        }


def reveal_rule(
    function: Callable[..., Any],
    /,
    *,
    sizes: Sequence[Size],
    op: str = "sum",
    dtype: Any = "float32",
    verify: Sequence[Size] | None = None,
    strategies: Sequence[str | Strategy | Order] = (),
    replays: int = 50,
    rng: Any = 0,
    progress: Progress | None = None,
) -> RevealedRule:
    """Find one strategy that reproduces a black box at several sizes, and prove it at sizes never probed.

    Parameters
    ----------
    function : callable
        As for `fpsim.reveal`; it must take operands of any size.
    sizes : sequence of int, or of tuple of int for products
        At least two sizes at which to reveal: numbers of terms, or shapes (m, k, n). Sizes that are no powers of two,
        on both sides of a power of two, tell most.
    op, dtype, strategies, rng, progress
        As for `fpsim.reveal`.
    verify : sequence of sizes, optional
        Where to replay the rule; by default at numbers of terms between, below and above those of `sizes`.
    replays : int
        Random operands at each verified size.

    Returns
    -------
    RevealedRule
        Its rule is None where no strategy gave every bit at every size; then its notes tell why.

    Raises
    ------
    InputError
        There are fewer than two sizes, or one that does not fit the operation.

    Notes
    -----
    A rule holds at the sizes listed. Libraries change their order beyond some size: include sizes of your use.

    Examples
    --------
    >>> import numpy as np, fpsim
    >>> found = fpsim.reveal_rule(np.sum, sizes=[100, 1000])
    >>> str(found.rule), found.verified
    ('numpy_sum', (33, 101, 326, 661, 2003))
    """
    from fpsim.formats import _generator

    started = time.monotonic()
    own = list(dict.fromkeys(size if isinstance(size, int) else tuple(size) for size in sizes))
    if len(own) < 2:
        message = "a rule needs at least two sizes, such as sizes=[100, 1000]"
        raise InputError(message)
    source = _generator(rng)
    if replays < 1:
        message = f"replays must be at least 1, not {replays}"
        raise InputError(message)
    fresh = tuple(verify) if verify is not None else _between(own, op)
    boxes = {size: BlackBox(function, op, _shape(size), as_format(dtype)) for size in (*own, *fresh)}
    results: dict[Size, Revealed] = {}
    pool: dict[str, None] = {}
    for done, size in enumerate(sorted(own, key=_terms(op), reverse=True)):  # large sizes tell orders apart
        if progress is not None:
            progress(done, len(own), f"revealing at {_named(size)}")
        kind = {"n": size} if isinstance(size, int) else {"shape": size}
        one = reveal(function, op=op, dtype=dtype, strategies=[*strategies, *pool], replays=replays, rng=source, **kind)
        results[size] = one
        pool |= dict.fromkeys([] if one.strategy is None else [str(one.strategy), *one.alternatives])
    notes: list[str] = [f"at {_named(size)} no strategy was found" for size, one in results.items() if not one.found]
    seen = {size: _observed(boxes[size], source, _FIRST) for size in own}
    alive = [text for text in pool if all(_holds(boxes[size], text, seen[size]) for size in own)]
    if not alive and not notes:
        notes.append("no strategy has the bits of all sizes: the order depends on the number of terms in another way")
    for done, size in enumerate(fresh):
        if not alive:
            break
        if progress is not None:
            progress(done, len(fresh), f"replaying at {_named(size)}")
        news = _observed(boxes[size], source, replays)
        left = [text for text in alive if _holds(boxes[size], text, news)]
        if not left:
            notes.append(f"{alive[0]} holds at {', '.join(map(_named, own))}, but not at {_named(size)}")
        alive = left
    calls = sum(one.evidence.calls for one in results.values()) + sum(box.calls for box in boxes.values())
    return RevealedRule(
        op, str(as_format(dtype)), strategy(alive[0]) if alive else None, tuple(alive[1:]), tuple(own), fresh,
        tuple(results[size] for size in own), replays, calls, time.monotonic() - started, tuple(notes),
    )  # fmt: skip


def _plain(size: Size) -> int | list[int]:
    return size if isinstance(size, int) else list(size)


def _named(size: Size) -> str:
    return str(size) if isinstance(size, int) else "x".join(map(str, size))


def _claim(one: Revealed) -> str:
    if one.strategy is not None:
        return str(one.strategy)
    return f"{len(one.parts)} orders, by the place of the output" if one.parts else "none"


def _shape(size: Size) -> tuple[int, ...]:
    return (size,) if isinstance(size, int) else size


def _axis(op: str) -> int:
    return 1 if op in ("matvec", "matmul") else 0


def _terms(op: str) -> Callable[[Size], int]:
    return lambda size: size if isinstance(size, int) else size[_axis(op)]


def _between(sizes: Sequence[Size], op: str) -> tuple[Size, ...]:
    """Return sizes below, between and above these."""
    counts = sorted({_terms(op)(size) for size in sizes})
    wanted = {max(1, counts[0] // 3), counts[0] + 1, counts[-1] * 2 + 3}
    for low, high in itertools.pairwise(counts):
        wanted |= {low + (high - low) // 4 + 1, low + (high - low) * 5 // 8 - 1}
    found: list[Size] = []
    for count in sorted(wanted - set(counts)):
        model = sizes[0]
        if isinstance(model, int):
            found.append(count)
        else:
            axis = _axis(op)
            found.append((*model[:axis], count, *model[axis + 1 :]))
    return tuple(found)


def _observed(box: BlackBox, rng: Any, count: int) -> list[Observed]:
    laws = laws_of(box.form)
    drawn = [box.draw(laws[i % len(laws)], rng) for i in range(count)]
    return [Observed(operands, box.run(*operands)) for operands in drawn]


def _holds(box: BlackBox, text: str, seen: Sequence[Observed]) -> bool:
    try:
        chosen = strategy(text)
    except StrategyError:
        return False
    return all((same := same_bits(box, chosen, one)) is not None and bool(same.all()) for one in seen)
