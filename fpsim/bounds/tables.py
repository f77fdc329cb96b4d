"""All bounds of a case side by side, with the observed error."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from fpsim.bounds.cases import Case, NotApplicableError, case
from fpsim.bounds.probable import BESIDE, PROBABLE
from fpsim.bounds.worst import WORST
from fpsim.errors import InputError
from fpsim.orders import Order
from fpsim.strategies import Strategy

Bound = Callable[[Case], Any]
SCHEMA: Final = "fpsim.bounds/1"
PROVED: Final[tuple[Bound, ...]] = WORST
WITH_PROBABILITY: Final[tuple[Bound, ...]] = PROBABLE
#: Of what else the same sum might do, which the table shows without comparing it with the error.
OF_OTHERS: Final[tuple[Bound, ...]] = BESIDE
#: What `table` shows.
ALL: Final[tuple[Bound, ...]] = (*PROVED, *WITH_PROBABILITY, *OF_OTHERS)

_KINDS: Final = (("proved", PROVED), ("probability", WITH_PROBABILITY), ("other", OF_OTHERS))


def name_of(one: Bound, /) -> str:
    """Return the name of a bound, a callable of one's own included."""
    return str(getattr(one, "__name__", None) or type(one).__name__)


def evaluated(one: Bound, given: Case, /) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a bound of every output of a case.

    Raises
    ------
    NotApplicableError
        The bound says so.
    InputError
        A bound of one's own returned what is no array of non-negative numbers of the shape of the result.
    """
    try:
        found = np.broadcast_to(np.asarray(one(given), np.float64), given.shape)
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError) or one in ALL:
            raise
        message = f"the bound {name_of(one)} must return numbers of shape {given.shape}: {error}"
        raise InputError(message) from error
    if np.isnan(found).any() or (found < 0).any():
        message = f"the bound {name_of(one)} returned numbers that are negative or NaN"
        raise InputError(message)
    return found


@dataclass(frozen=True, slots=True)
class BoundRow:
    """One bound of a table.

    Attributes
    ----------
    name : str
        Name of the bound.
    kind : {"proved", "probability", "other", "own"}
        Whether it is proved, holds with a probability, does so for something else than this error (stochastic rounding,
        terms in random order), or is the user's own.
    largest : float
        The largest over the outputs; NaN where it does not apply.
    closest : float
        Smallest bound/error over the outputs: a bound that held is at least 1. Infinite where all errors are zero, NaN
        where it bounds something else.
    exceeded : int
        Outputs whose error is larger.
    statement : str
        The first line of its documentation.
    why_not : str
        Why it does not apply, or empty.
    """

    name: str
    kind: str
    largest: float
    closest: float
    exceeded: int
    statement: str
    why_not: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects."""
        out: dict[str, Any] = {"name": self.name, "kind": self.kind, "statement": self.statement}
        if self.why_not:
            return {**out, "why_not": self.why_not}
        numbers = {"largest": self.largest}
        if self.kind == "other":
            return {**out, "largest": self.largest if np.isfinite(self.largest) else str(self.largest)}
        numbers["bound_over_error"] = self.closest
        plain = {key: value if np.isfinite(value) else str(value) for key, value in numbers.items()}
        return {**out, **plain, "exceeded": self.exceeded}


@dataclass(frozen=True, slots=True)
class BoundTable:
    """Bounds beside the observed error; see `table`.

    Attributes
    ----------
    op, strategy : str
        What was bounded.
    outputs, terms : int
        Number of outputs, and of terms of each.
    confidence : float
        Of the probabilistic bounds, for each output.
    error : float
        Largest observed abs(error).
    magnitude : float
        Largest sum of the magnitudes of the terms.
    rows : tuple of BoundRow
        The bounds.
    """

    op: str
    strategy: str
    outputs: int
    terms: int
    confidence: float
    error: float
    magnitude: float
    rows: tuple[BoundRow, ...]

    def __getitem__(self, name: str) -> BoundRow:
        for row in self.rows:
            if row.name == name:
                return row
        message = f"no bound {name!r} in this table; it has {', '.join(row.name for row in self.rows)}"
        raise InputError(message)

    def _cells(self) -> list[tuple[str, str, str, str]]:
        out = []
        for row in self.rows:
            if row.why_not:
                out.append((row.name, row.kind, "-", row.why_not))
            else:
                if row.kind == "other":
                    out.append((row.name, row.kind, f"{row.largest:.3g}", row.statement))
                    continue
                note = f"exceeded by {row.exceeded}" if row.exceeded else row.statement
                beside = f"{row.closest:.3g} x error" if row.closest != np.inf else "no error"
                out.append((row.name, row.kind, f"{row.largest:.3g}", f"{beside}; {note}"))
        return out

    def __str__(self) -> str:
        head = (
            f"{self.op} of {self.terms} terms, {self.strategy}: largest error {self.error:.3g} of {self.outputs} outputs,"
            f" sum of magnitudes {self.magnitude:.3g}; probabilities at {self.confidence:g}"
        )
        cells = self._cells()
        widths = [max(len(row[i]) for row in cells) for i in range(3)]
        lines = [
            f"  {name:<{widths[0]}}  {kind:<{widths[1]}}  {size:>{widths[2]}}  {note}"
            for name, kind, size, note in cells
        ]
        return "\n".join([head, *lines])

    def _repr_html_(self) -> str:
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self._cells()
        )
        head = "".join(f"<th>{name}</th>" for name in ("bound", "kind", "largest", "beside the error"))
        title = html.escape(str(self).partition("\n")[0])
        return f"<table><caption>{title}</caption><tr>{head}</tr>{rows}</table>"

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects; a number that is not finite is a text."""
        return {
            "schema": SCHEMA,
            "op": self.op,
            "strategy": self.strategy,
            "outputs": self.outputs,
            "terms": self.terms,
            "confidence": self.confidence,
            "largest_error": self.error if np.isfinite(self.error) else str(self.error),
            "largest_magnitude": self.magnitude if np.isfinite(self.magnitude) else str(self.magnitude),
            "bounds": [row.to_dict() for row in self.rows],
        }


def table(
    op: str,
    strategy: str | Strategy | Order,
    /,
    *inputs: Any,
    axis: Any = None,
    confidence: float = 0.999,
    bounds: Sequence[Bound] = ALL,
) -> BoundTable:
    """Return all bounds of a strategy on given data beside the observed error.

    Parameters
    ----------
    op, strategy, *inputs, axis
        As for `fpsim.bounds.operands`.
    confidence : float
        Of probabilistic bounds, for each output.
    bounds : sequence of callables
        What to show, by default all: functions of a `Case`, your own included.

    Returns
    -------
    BoundTable

    Raises
    ------
    InputError
        The data do not fit the operation, or a bound of one's own returns no bound.

    Examples
    --------
    >>> import numpy as np
    >>> from fpsim import bounds
    >>> x = np.random.default_rng(0).random(1000, np.float32)
    >>> shown = bounds.table("sum", "pairwise", x)
    >>> all(row.closest >= 1 for row in shown.rows if row.kind != "other" and not row.why_not)
    True
    >>> shown["compensated"].why_not
    'no compensation by collected errors'
    """
    given = case(op, strategy, *inputs, axis=axis, confidence=confidence)
    error = np.where(np.isnan(given.error), np.inf, given.error)
    rows = []
    for one in bounds:
        kind = next((kind for kind, some in _KINDS if one in some), "own")
        statement = (getattr(one, "__doc__", None) or "").strip().partition("\n")[0].rstrip(".")
        try:
            found = evaluated(one, given)
        except NotApplicableError as why:
            rows.append(BoundRow(name_of(one), kind, np.nan, np.nan, 0, statement, str(why)))
            continue
        if kind == "other":
            rows.append(BoundRow(name_of(one), kind, float(found.max(initial=0.0)), np.nan, 0, statement))
            continue
        some = error > 0
        with np.errstate(all="ignore"):
            closest = float(np.min(found[some] / error[some])) if some.any() else np.inf
        exceeded = int(np.count_nonzero(error > found))
        rows.append(BoundRow(name_of(one), kind, float(found.max(initial=0.0)), closest, exceeded, statement))
    return BoundTable(
        op, str(given.strategy), int(np.prod(given.shape)), given.n, confidence, float(error.max(initial=0.0)),
        float(given.magnitude.max(initial=0.0)), tuple(rows),
    )  # fmt: skip
