"""Profiles from what was revealed."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fpsim.arithmetic import Settings
from fpsim.errors import FileError
from fpsim.profiles import Case, Profile
from fpsim.profiles.keys import DEFAULTS, Key
from fpsim.revealing import Revealed
from fpsim.strategies import Strategy

_Places = tuple[int, ...] | None


def profile_of(
    results: Sequence[Revealed],
    /,
    *,
    name: str,
    device: str,
    implementation: str,
    versions: Mapping[str, str],
    notes: Sequence[str] = (),
    key: Key = DEFAULTS,
) -> Profile:
    """Return the profile of an implementation from results of `fpsim.reveal`, without those that found nothing.

    To which format operands are rounded is a setting of the whole profile: that of most results. Those that differ are
    left out, and noted.

    Parameters
    ----------
    results : sequence of Revealed
        Of operands in one format.
    name, device, implementation, versions, notes, key
        See `fpsim.profiles.Profile`.
    """
    rounding = Counter(_rounding(one) for one in results if one.found)
    settings = rounding.most_common(1)[0][0] if rounding else ""
    cases, missing = [], []
    for one in results:
        what = f"{one.op} {'x'.join(map(str, one.shape))}"
        if not one.found:
            missing.append(f"no strategy was found for {what}")
        elif _rounding(one) != settings:
            missing.append(f"left out: {what}, which has {_rounding(one) or 'unrounded operands'}")
        else:
            evidence = {"replays": one.evidence.equal, "calls": one.evidence.calls}
            cases.append(Case(one.op, one.shape, _parts(one), evidence, key))
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    dtype = results[0].dtype if results else "float32"
    return Profile(
        name, device, implementation, dict(versions), dtype, settings, today, (*notes, *missing), tuple(cases), key
    )


def _rounding(one: Revealed) -> str:
    """Return the settings that round the operands of a result, which all of its parts share."""
    found = one.strategy if one.strategy is not None else one.parts[0].strategy
    assert found is not None
    return str(Settings(operands=found.settings.operands, right=found.settings.right))


def _order(found: Strategy) -> str:
    """Return the text of a strategy without what rounds the operands."""
    return str(Strategy(found.order, dataclasses.replace(found.settings, operands=None, right=None)))


def _parts(one: Revealed) -> tuple[tuple[str, _Places, _Places], ...]:
    if one.strategy is not None:
        return ((_order(one.strategy), None, None),)
    found: list[tuple[str, _Places, _Places]] = []
    for part in one.parts:
        mask = np.atleast_2d(part.outputs)
        if one.op == "matvec":
            mask = mask.T
        patterns: dict[bytes, list[int]] = {}
        for row in range(mask.shape[0]):
            if mask[row].any():
                patterns.setdefault(mask[row].tobytes(), []).append(row)
        for rows in patterns.values():
            columns = np.flatnonzero(mask[rows[0]]).tolist()
            found.append((_order(part.strategy), tuple(rows), tuple(columns)))
    return tuple(found)


def save(profile: Profile, path: str | Path, /) -> None:
    """Write a profile as JSON, a line for each case.

    Raises
    ------
    FileError
        The file exists already.
    """
    data: dict[str, Any] = profile.to_dict()
    cases = ",\n".join(f"    {json.dumps(case)}" for case in data.pop("cases"))
    head = json.dumps(data, indent=2).removesuffix("\n}")
    try:
        with Path(path).open("x", encoding="utf-8") as file:
            file.write(f'{head},\n  "cases": [\n{cases}\n  ]\n}}\n')
    except FileExistsError as error:
        message = f"{path} exists already; choose another name, or remove it first"
        raise FileError(message) from error
