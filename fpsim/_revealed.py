"""What reveal returns: the strategies of a black box, with their evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim._black_box import Array
from fpsim.strategies import Strategy

SCHEMA: Final = "fpsim.revealed/1"


@dataclass(frozen=True, slots=True)
class Counterexample:
    """Operands for which the best strategy gives other bits.

    Attributes
    ----------
    strategy : str
        The strategy.
    operands : tuple of ndarray
        What the routine was called with.
    actual, predicted : ndarray
        What it gave, and what the strategy gives.
    """

    strategy: str
    operands: tuple[Array, ...]
    actual: Array
    predicted: Array


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a claim rests on.

    Attributes
    ----------
    calls : int
        How often the routine was called in all.
    seconds : float
        Wall-clock time.
    method : str
        "hypothesis": a known rule fitted; "probing": the tree was probed pair by pair; "none".
    replays, equal : int
        Random operands that the routine was called with for the proof, and those whose every output had the predicted
        bits.
    facts : tuple of str
        What directed probes showed of the arithmetic.
    notes : tuple of str
        What else is known: several strategies with the same bits, an order that depends on the values or changes from
        run to run, an exact sum.
    tree : str or None
        The probed tree, as an order ``tree`` reads it.
    counterexample : Counterexample or None
        For the best strategy that failed.
    """

    calls: int
    seconds: float
    method: str
    replays: int
    equal: int
    facts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tree: str | None = None
    counterexample: Counterexample | None = None


@dataclass(frozen=True, slots=True)
class RevealedPart:
    """Outputs of a product that one strategy computes.

    Attributes
    ----------
    strategy : Strategy
        The strategy.
    outputs : bool array of the shape of the result
        Which ones.
    """

    strategy: Strategy
    outputs: NDArray[np.bool] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Revealed:
    """The strategy of a black box; see `reveal`.

    Attributes
    ----------
    op : str
        The operation.
    shape : tuple of int
        n, or the shape of the product.
    dtype : str
        Format of the operands.
    strategy : Strategy or None
        The strategy whose bits all replays had; None where there is no such one for all outputs.
    parts : tuple of RevealedPart
        The strategies of the outputs, where they differ.
    alternatives : tuple of str
        Other strategies that all replays fit as well.
    evidence : Evidence
        What this rests on.
    """

    op: str
    shape: tuple[int, ...]
    dtype: str
    strategy: Strategy | None
    parts: tuple[RevealedPart, ...]
    alternatives: tuple[str, ...]
    evidence: Evidence

    @property
    def found(self) -> bool:
        """Whether every output's strategy is known and was proved by replay."""
        return self.strategy is not None or bool(self.parts)

    def __str__(self) -> str:
        from fpsim._revealed_text import as_text

        return as_text(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects."""
        e = self.evidence
        return {
            "schema": SCHEMA,
            "op": self.op,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "strategy": None if self.strategy is None else str(self.strategy),
            "parts": [{"strategy": str(p.strategy), "outputs": int(p.outputs.sum())} for p in self.parts],
            "alternatives": list(self.alternatives),
            "evidence": {
                "calls": e.calls,
                "seconds": round(e.seconds, 3),
                "method": e.method,
                "replays": e.replays,
                "equal": e.equal,
                "facts": list(e.facts),
                "notes": list(e.notes),
                "tree": e.tree,
            },
        }
