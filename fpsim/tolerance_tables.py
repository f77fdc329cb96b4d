"""Tables of tolerances in a TOML file: reviewed with the code, computed again on demand."""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fpsim.errors import FileError, FpsimError, InputError
from fpsim.tolerances import CONFIDENCE, Tolerance, tolerance

SCHEMA: Final = "fpsim.tolerances/1"
#: A tolerance that allows so many times more than is needed is too loose.
TOO_LOOSE: Final = 10.0
#: One that allows less than this share of what is needed is too tight; a smaller change comes from other versions.
TOO_TIGHT: Final = 0.5
DTYPES: Final = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
SHAPES: Final = {"sum": "4096", "dot": "4096", "matmul": "400x400x400"}
_COMPLEX = "complex operands are not supported: compare real and imaginary parts one after the other"
_HEADER = (
    "# Tolerances worked out by fpsim. Numbers below `between` are written again by `pytest --fpsim-update` and by\n"
    "# `fpsim tolerance --table FILE --force`; what is above them is the question, and may be edited.\n"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a table: a comparison, and the tolerance it needs.

    Attributes
    ----------
    name : str
        By which tests find it.
    op, shape, dtype : str
        The operation, its shape as in ``"400x400x400"``, and the type of the operands.
    data : tuple of str
        Law of the data, one or one for each operand.
    between : tuple of (str, str)
        Both sides, of which the second may be "exact".
    confidence : float
        Of an assertion.
    rtol, atol : float or None
        The tolerance; None where there is none yet.
    unsupported : str
        Why there is no tolerance.
    """

    name: str
    op: str
    shape: str
    dtype: str
    data: tuple[str, ...]
    between: tuple[str, str]
    confidence: float = CONFIDENCE
    rtol: float | None = None
    atol: float | None = None
    unsupported: str = ""

    def needed(self) -> Tolerance:
        """Work out the tolerance that is needed now.

        Raises
        ------
        FpsimError
            It is not supported; the message says why.
        """
        if self.dtype.startswith("complex"):
            raise InputError(_COMPLEX)
        one, other = self.between
        sides: dict[str, Any] = {"strategy": one} if other == "exact" else {"between": (one, other)}
        return tolerance(self.op, *self.data, shape=self.shape, dtype=self.dtype, confidence=self.confidence, **sides)

    def updated(self) -> Entry:
        """Return the entry with the tolerance that is needed now, or with the reason why there is none."""
        try:
            tol = self.needed()
        except FpsimError as error:
            return dataclasses.replace(self, rtol=None, atol=None, unsupported=" ".join(str(error).split()))
        if not math.isfinite(tol.atol):
            return dataclasses.replace(self, rtol=None, atol=None, unsupported="; ".join(tol.flags))
        return dataclasses.replace(self, rtol=tol.rtol, atol=_rounded_up(tol.atol), unsupported="")

    def looseness(self, needed: Tolerance | None = None) -> float:
        """Return what the entry allows in an output of typical size, in units of what is needed now."""
        own = self.needed() if needed is None else needed
        allowed = (self.atol or 0.0) + (self.rtol or 0.0) * float(own.scale)
        least = float(own.probabilistic)
        return allowed / least if least else (math.inf if allowed else 1.0)

    def problem(self) -> str:
        """Return what is wrong with the numbers of the entry, or "" if nothing is."""
        again = "run `pytest --fpsim-update`, and review the change"
        if self.unsupported or self.atol is None or self.rtol is None:
            return f"{self.name} has no tolerance: {self.unsupported or again}"
        try:
            ratio = self.looseness()
        except FpsimError as error:
            return f"{self.name} has a tolerance, but none is known any more: {error}"
        if ratio >= TOO_LOOSE:
            return f"{self.name} has become too loose: it allows {ratio:.3g} times what is needed now; {again}"
        if ratio < TOO_TIGHT:
            return f"{self.name} has become too tight: it allows {ratio:.3g} times what is needed now; {again}"
        return ""

    def kwargs(self, library: str, /) -> dict[str, float]:
        """Return the tolerance as keyword arguments of a library's comparison, as `Tolerance.kwargs` does.

        Raises
        ------
        InputError
            Another library, or an entry without a tolerance.
        """
        if self.atol is None or self.rtol is None:
            message = f"{self.name} has no tolerance: {self.unsupported or 'update the table first'}"
            raise InputError(message)
        names = {
            "numpy": ("rtol", "atol"),
            "torch": ("rtol", "atol"),
            "jax": ("rtol", "atol"),
            "pytest": ("rel", "abs"),
        }
        if library not in names:
            message = f"kwargs are for numpy, torch, jax or pytest, not {library!r}"
            raise InputError(message)
        return dict(zip(names[library], (self.rtol, self.atol), strict=True))


@dataclass(frozen=True, slots=True)
class Table:
    """Entries in the order of their file."""

    entries: tuple[Entry, ...]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __getitem__(self, name: str) -> Entry:
        for entry in self.entries:
            if entry.name == name:
                return entry
        message = f"the table has no tolerance {name!r}; it has {', '.join(entry.name for entry in self.entries)}"
        raise InputError(message)

    def updated(self) -> Table:
        """Return the table with all tolerances worked out again."""
        return Table(tuple(entry.updated() for entry in self.entries))

    def text(self) -> str:
        """Return the table as TOML; equal tables give equal text."""
        lines = [f"{_HEADER}schema = {json.dumps(SCHEMA)}\n"]
        for entry in self.entries:
            lines.append("\n[[tolerance]]\n")
            for key, value in dataclasses.asdict(entry).items():
                if value is None or value == "":
                    continue
                written = repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=True)
                lines.append(f"{key} = {written}\n")
        return "".join(lines)

    def write(self, path: str | Path, /, *, overwrite: bool = False) -> None:
        """Write the table to a file.

        Raises
        ------
        FileError
            The file exists and `overwrite` is false, or cannot be written.
        """
        target = Path(path)
        if target.exists() and not overwrite:
            message = f"{target} exists and is not overwritten; use --force, or another name"
            raise FileError(message)
        try:
            target.write_text(self.text(), encoding="utf-8")
        except OSError as error:
            message = f"{target} cannot be written: {error.strerror}"
            raise FileError(message) from error


def read_table(path: str | Path, /) -> Table:
    """Read a table of tolerances.

    Raises
    ------
    FileError
        There is no such file, or it is no table of tolerances; the message says where.
    """
    source = Path(path)
    try:
        content = tomllib.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        message = f"{source} cannot be read: {error.strerror}"
        raise FileError(message) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        message = f"{source} is not TOML: {error}"
        raise FileError(message) from error
    if content.get("schema") != SCHEMA or not isinstance(content.get("tolerance", []), list):
        message = f"{source} is no table of tolerances: it needs schema = {SCHEMA!r} and [[tolerance]] entries"
        raise FileError(message)
    entries = tuple(_entry(source, number, one) for number, one in enumerate(content.get("tolerance", []), 1))
    names = [entry.name for entry in entries]
    if len(set(names)) < len(names):
        message = f"{source} has several entries of the name {max(names, key=names.count)!r}"
        raise FileError(message)
    return Table(entries)


_TEXTS = ("name", "op", "shape", "dtype", "unsupported")
_NUMBERS = ("confidence", "rtol", "atol")
_LISTS = ("data", "between")


def _entry(source: Path, number: int, given: Any) -> Entry:
    problem = ""
    if not isinstance(given, dict):
        problem = "it is no table"
    else:
        unknown = [key for key in given if key not in (*_TEXTS, *_NUMBERS, *_LISTS)]
        missing = [key for key in ("name", "op", "shape", "dtype", "data", "between") if key not in given]
        wrong = [key for key in _TEXTS if key in given and not isinstance(given[key], str)]
        wrong += [key for key in _NUMBERS if key in given and not _is_number(given[key])]
        wrong += [key for key in _LISTS if key in given and not _is_texts(given[key])]
        wrong += ["between"] if "between" in given and "between" not in wrong and len(given["between"]) != 2 else []
        for words, keys in (("unknown", unknown), ("missing", missing), ("of the wrong kind", wrong)):
            problem = problem or (f"{', '.join(keys)} {words}" if keys else "")
    if problem:
        message = f"{source}, entry {number}: {problem}"
        raise FileError(message)
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    return Entry(**values)


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x) and x >= 0


def _is_texts(x: Any) -> bool:
    return isinstance(x, list) and bool(x) and all(isinstance(one, str) for one in x)


def _rounded_up(x: float) -> float:
    from fpsim._tolerance_text import rounded_up

    return float(rounded_up(x))


def new_table(
    *,
    ops: Iterable[str] = ("sum", "dot", "matmul"),
    dtypes: Iterable[str] = DTYPES,
    shape: str | None = None,
    data: Sequence[str] = ("normal",),
    between: tuple[str, str] | None = None,
) -> Table:
    """Return a table of operation, type and pair of backends, with all tolerances worked out.

    Parameters
    ----------
    ops, dtypes : iterable of str
        The operations and types; by default those that are supported and the complex ones, which the table names.
    shape : str, optional
        Of a single operation; by default 4096 terms, or 400x400x400.
    data : sequence of str
        Law of the operands.
    between : pair of str, optional
        One pair of strategies, of which the second may be "exact"; by default NumPy, any order, and a GPU (PyTorch's sum
        and cuBLAS on an H200).

    Returns
    -------
    Table
    """
    entries = []
    for op in ops:
        for dtype in dtypes:
            pairs = _pairs(op, dtype) if between is None else {"given": between}
            for name, pair in pairs.items():
                one = Entry(f"{op}-{dtype}-{name}", op, shape or SHAPES.get(op, "4096"), dtype, tuple(data), pair)
                entries.append(one.updated())
    return Table(tuple(entries))


def _pairs(op: str, dtype: str) -> dict[str, tuple[str, str]]:
    """Return the usual backends of an operation in a type, in pairs."""
    half = dtype in ("float16", "bfloat16")
    acc = f"+output({dtype})" if half else "+acc(float64)" if dtype == "float64" else ""
    numpy = {"sum": "numpy_sum", "dot": "openblas_ddot" if dtype == "float64" else "openblas_sdot"}.get(
        op, "numpy_matmul"
    )
    gpu = "torch_cuda_sum" if op == "sum" else f"fused(16)+align(25){acc}" if half else "profile:h200/cublas-13.1"
    pairs = {"numpy-exact": (numpy, "exact"), "any-exact": (f"any order{acc}", "exact")}
    pairs["numpy-any"] = (numpy, f"any order{acc}")
    if op != "dot":
        pairs["numpy-gpu"] = (numpy, gpu)
        pairs["gpu-any"] = (gpu, f"any order{acc}")
    return pairs
