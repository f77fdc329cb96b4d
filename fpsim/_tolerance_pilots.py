"""Pilot data of a law, and what two sides may differ by on other data of that law."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim._roundoff import Sample
from fpsim._tolerance_bugs import Bugs, bugs
from fpsim._tolerance_data import Measured, measured
from fpsim._tolerance_tails import gaussian, mixture
from fpsim._tolerance_targets import Target
from fpsim.formats import Format
from fpsim.laws import Law

_Array = NDArray[Any]
_PILOT, _SIDE = 256, 16  # outputs that are looked at for data of a law: of a product, rows and columns
_NUMBERS = 2**21  # of an operand of a pilot; a larger product or stack of sums has fewer rows and columns there
_INFLATION = 1.05  # of a tolerance for other data of the same law, as calibrated
LEAST = 1e-290  # variance


@dataclass(frozen=True, slots=True)
class Pilot:
    """What was found on pilot data: numbers for all outputs."""

    hard: float
    soft: float
    sigma: float
    drift: float
    scale: float
    term: float
    flags: tuple[str, ...]
    bugs: tuple[Bugs, ...]


def pilot(
    op: str, sizes: tuple[int, ...], laws: list[Law], form: Format, sides: list[Target], level: float, rng: Any
) -> Pilot:  # fmt: skip
    """Draw pilot data of the true shape and return what one output of other data passes with probability `level`.

    Parameters
    ----------
    op, sizes, form
        The operation, its shape, and the format of the operands.
    laws : list of Law
        Of each operand.
    sides : list of Target
        One, or two that are compared.
    level : float
        Probability.
    rng : Generator
    """
    each: list[Measured] = []
    found: list[Bugs] = []
    for arrays, some in _pilots(op, sizes, laws, form, rng):
        one = measured(op, sides, arrays, -1 if op == "sum" else None, rng, some)
        each.append(one)
        found.append(bugs(op, arrays, -1 if op == "sum" else None, form, some))
    rounding = np.concatenate([np.ravel(one.variance) for one in each])
    shifts = np.concatenate([np.ravel(one.shift) for one in each])
    spread = np.concatenate([np.ravel(one.shift_variance) for one in each])
    variance = rounding + spread
    hard = max(float(np.max(one.hard + np.abs(one.shift) + one.shift_slack)) for one in each)
    fixed = max(float(np.max(np.abs(one.drift) + one.fixed)) for one in each)
    # Operands that are rounded toward zero change results in one direction.
    mean = abs(float(shifts.mean()))
    leans = mean > 4.0 * math.sqrt(float(spread.mean()) / shifts.size)
    fixed += float(np.abs(shifts).max()) if leans else 0.0
    soft = fixed + mixture(variance, level) * _INFLATION * math.sqrt(2 * math.log(2 / level)) / gaussian(level)
    if not variance.max() > LEAST:
        soft = hard
    # On other data rounded operands may change a result by more than on these.
    shifted = bool(shifts.any())
    soft = soft if math.isfinite(soft) and (soft <= hard or shifted) else hard
    flags = [flag for one in each for flag in one.flags]
    if shifted:
        flags.append("the sides round their operands differently, which counts with its variance")
    drift = max(float(np.max(np.abs(one.drift))) for one in each)
    return Pilot(
        max(hard, soft) if shifted else hard, soft, math.sqrt(float(variance.mean())), drift,
        float(np.median(np.concatenate([np.ravel(one.scale) for one in each]))),
        float(np.median([one.term for one in each])), tuple(dict.fromkeys(flags)), tuple(found),
    )  # fmt: skip


def _pilots(
    op: str, sizes: tuple[int, ...], laws: list[Law], form: Format, source: Any
) -> Iterator[tuple[tuple[_Array, ...], Sample]]:
    """Draw pilot operands, with outputs of theirs to look at; of the true shape, on which an order may depend."""
    one = np.zeros(1, np.int64)
    if op == "dot":
        a, b = (law.draw((_SIDE, sizes[0]), rng=source, dtype=form) for law in laws)
        yield from (((x, y), (one, one)) for x, y in itertools.product(a, b))
        return
    if op == "sum":
        m = math.prod(sizes[:-1])
        m = min(m, max(_PILOT, _NUMBERS // sizes[-1]))
        shape = (m, sizes[-1]) if len(sizes) > 1 else sizes
        places = np.unique(np.linspace(0, m - 1, _PILOT).astype(np.int64))
        for _ in range(-(-_PILOT // m)):
            yield (laws[0].draw(shape, rng=source, dtype=form),), (one, places)
        return
    m, k, n = sizes
    m, n = (min(size, max(_SIDE, _NUMBERS // k)) for size in (m, n))
    rows, columns = (np.unique(np.linspace(0, size - 1, _SIDE).astype(np.int64)) for size in (m, n))
    for _ in range(-(-_PILOT // (rows.size * columns.size))):
        a, b = laws[0].draw((m, k), rng=source, dtype=form), laws[1].draw((k, n), rng=source, dtype=form)
        yield (a, b), (rows, columns)
