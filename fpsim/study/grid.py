"""A sweep: errors and bounds over a grid of orders, arithmetics, laws, sizes and repeats, as tidy rows."""

from __future__ import annotations

import csv
import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim import bounds as fpsim_bounds
from fpsim.bounds.tables import Bound, evaluated, name_of
from fpsim.errors import FileError, InputError
from fpsim.formats import as_format
from fpsim.laws import Law, law as as_law
from fpsim.strategies import Strategy, strategy as as_strategy
from fpsim.study.trees import order as as_order

OPERATIONS: Final = ("sum", "dot")
_SILENT = 10.0  # seconds before progress is shown


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of a grid.

    Attributes
    ----------
    op : str
        "sum" or "dot".
    order, arithmetic : str
        What the columns call them.
    strategy : Strategy
        Both together.
    law : Law
        Of the operands.
    dtype : str
        Their format.
    n : int
        Number of terms.
    """

    op: str
    order: str
    arithmetic: str
    strategy: Strategy
    law: Law
    dtype: str
    n: int

    def draw(self, seed: int, repeat: int, /) -> tuple[NDArray[Any], ...]:
        """Return the operands of a repeat: the same for all strategies, whatever else is in the grid."""
        words = f"{self.op}|{self.law}|{self.dtype}|{self.n}".encode()
        digest = np.frombuffer(hashlib.blake2b(words, digest_size=16).digest(), np.uint32)
        source = np.random.SeedSequence(seed, spawn_key=(*map(int, digest), repeat))
        children = source.spawn(1 if self.op == "sum" else 2)
        return tuple(self.law.draw(self.n, rng=child, dtype=self.dtype) for child in children)


@dataclass(frozen=True, slots=True)
class Sweep:
    """Rows of a sweep, one for each cell and repeat.

    Attributes
    ----------
    rows : tuple of dict
        With the columns op, order, arithmetic, strategy, law, dtype, n, repeat, seed, exact, error,
        relative_error, magnitude (sum of the terms' magnitudes), error_over_magnitude, and one for each bound: NaN where
        it does not apply.
    """

    rows: tuple[dict[str, Any], ...]

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.rows[0]) if self.rows else []

    def to_csv(self, path: str | Path, /, *, overwrite: bool = False) -> None:
        """Write the rows as CSV, numbers so that they read back to the same float64.

        Raises
        ------
        FileError
            The file is there already, unless `overwrite`.
        """
        try:
            with Path(path).open("w" if overwrite else "x", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, self.columns)
                writer.writeheader()
                writer.writerows(self.rows)
        except FileExistsError as error:
            message = f"{path} is there already; choose another name, or pass overwrite=True"
            raise FileError(message) from error
        except OSError as error:
            message = f"{path} cannot be written: {error.strerror}"
            raise FileError(message) from error

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects."""
        return {"schema": "fpsim.sweep/1", "rows": [dict(row) for row in self.rows]}

    def __str__(self) -> str:
        strategies = {row["strategy"] for row in self.rows}
        return f"{len(self.rows)} rows, {len(strategies)} strategies; columns {', '.join(self.columns)}"


def sweep(
    op: str = "sum",
    /,
    *,
    orders: Sequence[Any],
    sizes: Sequence[int],
    laws: Sequence[Any] = ("uniform(0, 1)",),
    arithmetics: Sequence[str] = ("",),
    dtype: Any = "float32",
    repeats: int = 10,
    bounds: Sequence[Bound] = (),
    confidence: float = 0.999,
    seed: int = 0,
    executor: Executor | None = None,
    progress: bool | None = None,
) -> Sweep:
    """Return errors and bounds over a grid.

    Parameters
    ----------
    op : {"sum", "dot"}
        The operation.
    orders : sequence of str, Order or callable
        Orders, or functions of the number of terms (`order`).
    sizes : sequence of int
        Numbers of terms.
    laws : sequence of str, Law or callable
        Data laws; both operands of a dot product have the same.
    arithmetics : sequence of str
        Settings that are added to each order, such as ``"fma"`` or ``"acc(float16)+fma"``; "" for the order's own.
    dtype : dtype, Format or str
        Format of the operands.
    repeats : int
        How often operands are drawn.
    bounds : sequence of callables
        Bounds that get a column each: of `fpsim.bounds`, or your own functions of a case.
    confidence : float
        Of probabilistic bounds, for each output.
    seed : int
        Where random numbers begin. Data depend on the seed, operation, law, dtype, n and repeat only: not on the executor,
        the rest of the grid or its order, and strategies are compared on the same data.
    executor : concurrent.futures.Executor, optional
        What runs the cells. With processes, functions of your own must be importable.
    progress : bool, optional
        Show progress on standard error; by default for what takes more than ten seconds.

    Returns
    -------
    Sweep
        Rows in the order of the grid, whatever finishes first.

    Raises
    ------
    InputError
        The grid is empty, or what it names does not fit.

    Examples
    --------
    >>> from fpsim import bounds, study
    >>> found = study.sweep(orders=["serial", "pairwise"], sizes=[100, 1000], repeats=3, bounds=[bounds.half_ulp])
    >>> len(found.rows), all(row["error"] <= row["half_ulp"] for row in found.rows)
    (12, True)
    """
    cells = grid(op, orders, sizes, laws, arithmetics, dtype)
    check_count("repeats", repeats)
    settings = (seed, repeats, tuple(bounds), confidence)
    tasks = [(cell, *settings) for cell in cells]
    found = run(_cell_rows, tasks, executor, progress)
    return Sweep(tuple(row for rows in found for row in rows))


def grid(
    op: str, orders: Sequence[Any], sizes: Sequence[int], laws: Sequence[Any], arithmetics: Sequence[str], dtype: Any
) -> list[Cell]:
    """Return the cells of a grid."""
    if op not in OPERATIONS:
        message = f"a study is of {' or '.join(OPERATIONS)}, not of {op!r}"
        raise InputError(message)
    for name, given in (("orders", orders), ("sizes", sizes), ("laws", laws), ("arithmetics", arithmetics)):
        if isinstance(given, str) or not len(given):
            message = f"{name} must be a sequence with at least one element, such as a list"
            raise InputError(message)
    form = str(as_format(dtype))
    out = []
    for given in orders:
        base = as_strategy(as_order(given) if callable(given) else given)
        for text in arithmetics:
            chosen = _with(base, text)
            for one in map(as_law, laws):
                for n in sizes:
                    if isinstance(n, bool) or int(n) != n or n < 1:
                        message = f"sizes are whole numbers of at least 1, not {n!r}"
                        raise InputError(message)
                    out.append(Cell(op, str(base), text, chosen, one, form, int(n)))
    return out


def check_count(name: str, value: Any, /) -> None:
    """Raise `InputError` unless a value is a whole number of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        message = f"{name} must be a whole number of at least 1, not {value!r}"
        raise InputError(message)


def _with(base: Strategy, text: str) -> Strategy:
    """Return a strategy with settings added."""
    if not text:
        return base
    added = as_strategy(f"serial+{text.removeprefix('+')}").settings
    return Strategy(base.order, base.settings.merged(added))


def run(
    function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], executor: Executor | None, progress: bool | None
) -> list[Any]:
    """Return the results of a function of each task, in their order, with progress on standard error."""
    out: list[Any] = [None] * len(tasks)
    started = shown = time.monotonic()

    def finished() -> Iterator[tuple[int, Any]]:
        if executor is None:
            yield from ((index, function(*task)) for index, task in enumerate(tasks))
            return
        futures = {executor.submit(function, *task): index for index, task in enumerate(tasks)}
        yield from ((futures[future], future.result()) for future in as_completed(futures))

    for done, (index, result) in enumerate(finished(), 1):
        out[index] = result
        now = time.monotonic()
        wanted = progress if progress is not None else now - started > _SILENT
        if wanted and (now - shown > 1.0 or done == len(tasks)):
            shown = now
            sys.stderr.write(f"\r{done} of {len(tasks)} cells" + ("\n" if done == len(tasks) else ""))
            sys.stderr.flush()
    return out


def _cell_rows(
    cell: Cell, seed: int, repeats: int, bounds: tuple[Bound, ...], confidence: float
) -> list[dict[str, Any]]:
    rows = []
    for repeat in range(repeats):
        given = fpsim_bounds.case(cell.op, cell.strategy, *cell.draw(seed, repeat), confidence=confidence)
        error, size, exact = float(given.error), float(given.magnitude), float(given.exact.round("float64"))
        row: dict[str, Any] = {
            "op": cell.op, "order": cell.order, "arithmetic": cell.arithmetic, "strategy": str(cell.strategy),
            "law": str(cell.law), "dtype": cell.dtype, "n": cell.n, "repeat": repeat, "seed": seed,
            "exact": exact, "error": error, "magnitude": size,
            "relative_error": error / abs(exact) if error and exact else np.inf if error else 0.0,
            "error_over_magnitude": error / size if size else 0.0,
        }  # fmt: skip
        for one in bounds:
            try:
                row[name_of(one)] = float(evaluated(one, given))
            except fpsim_bounds.NotApplicableError:
                row[name_of(one)] = np.nan
        rows.append(row)
    return rows


__all__ = ["Cell", "Sweep", "grid", "run", "sweep"]
