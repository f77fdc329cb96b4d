"""Profiles: the strategies of one device and library version, as data, with their evidence.

A profile is a JSON file. The shipped ones lie beside this module, one folder for each device; a user's own are named by
their path.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fpsim.errors import FileError, UnknownOrderError
from fpsim.profiles.keys import DEFAULTS, Key

if TYPE_CHECKING:
    from fpsim.profiles.candidates import Candidates, Possible

__all__ = ["SCHEMA", "Case", "Key", "Profile", "load", "names", "parse"]

SCHEMA: Final = "fpsim.profile/2"
_SCHEMAS: Final = ("fpsim.profile/1", SCHEMA)  # the first had no keys
_NEAREST = 3


@dataclass(frozen=True, slots=True)
class Case:
    """One shape that was observed.

    Attributes
    ----------
    op : str
        The operation: sum, mean, dot, matvec, vecmat or matmul.
    shape : tuple of int
        n, or the shape of the product.
    parts : tuple of (str, rows, columns)
        Strategies, each with the rows and columns of the outputs that it computes, as lists of int, or None for all.
    evidence : mapping
        How often it was replayed with equal bits.
    key : Key
        What else the order depended on.
    """

    op: str
    shape: tuple[int, ...]
    parts: tuple[tuple[str, tuple[int, ...] | None, tuple[int, ...] | None], ...]
    evidence: Mapping[str, Any]
    key: Key = DEFAULTS

    @property
    def strategies(self) -> tuple[str, ...]:
        """The strategies of the outputs."""
        return tuple(text for text, _, _ in self.parts)

    def to_dict(self, common: Key = DEFAULTS, /) -> dict[str, Any]:
        """Return plain Python objects, as a file has them whose cases share a key."""
        out: dict[str, Any] = {"op": self.op, "shape": list(self.shape)}
        if self.key != common:
            out["key"] = self.key.beside(common)
        if len(self.parts) == 1 and self.parts[0][1:] == (None, None):
            out["strategy"] = self.parts[0][0]
        else:
            out["parts"] = [
                {"strategy": text, "rows": _listed(rows), "columns": _listed(columns)}
                for text, rows, columns in self.parts
            ]
        return {**out, "evidence": dict(self.evidence)}


def _listed(places: tuple[int, ...] | None) -> list[int] | None:
    return None if places is None else list(places)


@dataclass(frozen=True, slots=True)
class Profile:
    """The strategies of one device and library version.

    Attributes
    ----------
    name : str
        Such as ``h200/cublas-13.1``.
    device : str
        The device.
    implementation : str
        What was run, see `fpsim.devices.implementations`.
    versions : mapping of str to str
        Of the libraries and the driver.
    dtype : str
        Format of the operands.
    settings : str
        Settings that all strategies share, such as ``+operands(tf32)``.
    recorded : str
        The date.
    notes : tuple of str
        What else the strategies depend on, and what was held fixed.
    cases : tuple of Case
        What was observed.
    key : Key
        What else the orders depend on and was the same for most cases.
    """

    name: str
    device: str
    implementation: str
    versions: Mapping[str, str]
    dtype: str
    settings: str
    recorded: str
    notes: tuple[str, ...]
    cases: tuple[Case, ...]
    key: Key = DEFAULTS

    def case(self, op: str, shape: tuple[int, ...], key: Key | None = None, /) -> Case:
        """Return what was observed for a shape and a key; without a key, that of the profile.

        Raises
        ------
        UnknownOrderError
            Nothing was; the nearest shapes are named.
        """
        own = [one for one in self.cases if one.op == op]
        if not own:
            known = ", ".join(sorted({one.op for one in self.cases}))
            message = f"the profile {self.name} has no {op}; it has {known}"
            raise UnknownOrderError(message)
        key = self.key if key is None else key
        for one in own:
            if one.shape == shape and one.key == key:
                return one
        keys = sorted({str(one.key) for one in own})
        own = [one for one in own if one.key == key]
        if not own:
            message = f"the profile {self.name} has no {op} with {key}; it has {'; '.join(keys)}"
            raise UnknownOrderError(message)
        nearest = sorted(own, key=lambda one: _distance(one.shape, shape))[:_NEAREST]
        texts = ", ".join(f"{_times(one.shape)} ({one.strategies[0][:60]})" for one in nearest)
        message = (
            f"the profile {self.name} does not have {op} of shape {_times(shape)}, and the order depends on the shape;"
            f" nearest known: {texts}{self._other_ways(op)}"
        )
        raise UnknownOrderError(message)

    def _other_ways(self, op: str) -> str:
        from fpsim.profiles.order_rule import rule_of

        rule = rule_of(self.name)
        if rule is None or op != "matmul":
            return ""
        ways = "observed (probed, not replayed)" + (" or predicted" if rule.roots else "")
        word = "predicted" if rule.roots else "observed"
        return f"; for an order that is {ways} say 'profile(\"{self.name}\", accept={word})'"

    def candidates(self, op: str, shape: tuple[int, ...], key: Key | None = None, /) -> Candidates:
        """Return the orders that a shape may have, the likeliest first, and how far they can be trusted.

        What was replayed comes alone; then what was observed by first-leaf probes; then the votes of a decision rule
        that was fitted to such observations, with its cross-validated accuracy. Without a key, that of the profile.

        Raises
        ------
        UnknownOrderError
            The profile has neither the case nor a rule for it, or the shape lies outside of those that were observed.

        Examples
        --------
        >>> from fpsim import profiles
        >>> found = profiles.load("h200/cublas-13.1").candidates("matmul", (300, 400, 700))
        >>> found.evidence, found.best.strategy
        ('predicted', 'interleaved(4, block=8)+fma')
        """
        from fpsim.profiles.candidates import candidates_of

        return candidates_of(self, op, shape, self.key if key is None else key)

    def possible(self, op: str, /, *operands: Any) -> Possible:
        """Return the results that an operation may have on the device: those of all candidates.

        Parameters
        ----------
        op : str
            sum, dot, matvec, vecmat or matmul.
        *operands : array_like
            Vectors and matrices, as the operation takes them.

        Raises
        ------
        InputError
            The operation or the operands are of another kind.
        UnknownOrderError
            As `candidates` raises it.
        """
        from fpsim.profiles.candidates import possible_results

        return possible_results(self, op, operands)

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        key = "" if self.key == DEFAULTS else f"; {self.key}"
        lines = [
            f"profile:{self.name}",
            f"  {self.device}; {versions}; {self.dtype} operands{key}; recorded {self.recorded}",
            *(f"  {note}" for note in self.notes),
        ]
        for one in self.cases:
            what = one.strategies[0] if len(one.parts) == 1 else f"{len(one.parts)} orders, by the place of the output"
            own = ", ".join(f"{name}={value}" for name, value in one.key.beside(self.key).items())
            lines.append(f"  {one.op:8} {_times(one.shape):16} {f'{own}: ' if own else ''}{what[:100]}")
        return "\n".join([*lines, *self._rule_lines()])

    def _rule_lines(self) -> list[str]:
        from fpsim.profiles.order_rule import rule_of

        rule = rule_of(self.name)
        if rule is None:
            return []
        lines = [f"  and {len(rule.shapes)} shapes of matmul by {rule.facts['evidence']} (accept=observed)"]
        if rule.roots:
            known, new = rule.facts["known_k"], rule.facts["new_k"]
            lines.append(
                f"  and others predicted from those (accept=predicted); right for {known['first']:.1%} of held-out"
                f" shapes, {known['five']:.1%} within five candidates; {new['first']:.1%} and {new['five']:.1%} where"
                " no shape with the same k was observed"
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects, as the file has them."""
        return {
            "schema": SCHEMA,
            "device": self.device,
            "implementation": self.implementation,
            "versions": dict(self.versions),
            "dtype": self.dtype,
            "settings": self.settings,
            "recorded": self.recorded,
            "notes": list(self.notes),
            **({"key": self.key.to_dict()} if self.key != DEFAULTS else {}),
            "cases": [one.to_dict(self.key) for one in self.cases],
        }


def _times(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _distance(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    return sum(abs(math.log(a / b)) for a, b in zip(one, other, strict=True))


def names() -> list[str]:
    """Return the names of the shipped profiles."""
    folder = files("fpsim.profiles")
    found = [
        f"{device.name}/{file.name.removesuffix('.json')}"
        for device in folder.iterdir()
        if device.is_dir()
        for file in device.iterdir()
        if file.name.endswith(".json")
    ]
    return sorted(found)


@functools.lru_cache(maxsize=64)
def load(name: str, /) -> Profile:
    """Return a profile.

    Parameters
    ----------
    name : str
        Of a shipped profile, as `names` lists them, or the path of a file that ends in ``.json``.

    Raises
    ------
    UnknownOrderError
        There is no shipped profile of that name.
    FileError
        The file cannot be read, or is no profile.
    """
    if name.endswith(".json"):
        path = Path(name)
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            message = f"{name} cannot be read: {error}"
            raise FileError(message) from error
        return parse(text, name)
    if name not in names():
        message = f"there is no profile {name!r}; known are {', '.join(names()) or 'none'}, or the path of a .json file"
        raise UnknownOrderError(message)
    device, _, rest = name.partition("/")
    return parse(files("fpsim.profiles").joinpath(device, f"{rest}.json").read_text(encoding="utf-8"), name)


def parse(text: str, name: str, /) -> Profile:
    """Return the profile that a JSON text holds.

    Raises
    ------
    FileError
        The text is no profile.
    """
    try:
        data = json.loads(text)
        _check_schema(data["schema"])
        key = DEFAULTS.over(data.get("key", {}))
        cases = tuple(_case(one, key) for one in data["cases"])
        _check_cases(cases)
        return Profile(
            name, data["device"], data["implementation"], data["versions"], data["dtype"], data["settings"],
            data["recorded"], tuple(data["notes"]), cases, key,
        )  # fmt: skip
    except FileError as error:
        message = f"{name}: {error}"
        raise FileError(message) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"{name} is not a profile: {error!r}"
        raise FileError(message) from error


def _check_schema(given: Any) -> None:
    if given not in _SCHEMAS:
        known = " or ".join(map(repr, _SCHEMAS))
        message = f"it is not a profile of this version: its schema is {given!r}, not {known}"
        raise FileError(message)


def _check_cases(cases: tuple[Case, ...]) -> None:
    seen: set[tuple[str, tuple[int, ...], Key]] = set()
    for one in cases:
        if any("+operands(" in text for text in one.strategies):
            message = f"the case {one.op} {_times(one.shape)} rounds operands; that belongs in the profile's settings"
            raise FileError(message)
        if (one.op, one.shape, one.key) in seen:
            message = f"it has {one.op} of shape {_times(one.shape)} with {one.key} twice; keep one of them"
            raise FileError(message)
        seen.add((one.op, one.shape, one.key))


def _case(data: Mapping[str, Any], common: Key) -> Case:
    parts = data.get("parts") or [{"strategy": data["strategy"]}]
    return Case(
        data["op"],
        tuple(data["shape"]),
        tuple((one["strategy"], _places(one.get("rows")), _places(one.get("columns"))) for one in parts),
        data["evidence"],
        common.over(data.get("key", {})),
    )


def _places(given: list[int] | None) -> tuple[int, ...] | None:
    return None if given is None else tuple(given)
