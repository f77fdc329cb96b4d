"""Recorded results of an elementary function, as differences from the correctly rounded ones, and their replay.

Float32 numbers are counted from -inf to inf by their *ordinals*: 0.0 has 0, -0.0 has -1, and neighbours differ by 1. A
profile holds, for every number of a range, how many ordinals the recorded result is from the correctly rounded one.
"""

from __future__ import annotations

import bz2
import functools
import importlib
import io
import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim._files import write_new
from fpsim.errors import FileError, InputError, UnknownOrderError

__all__ = [
    "BLOCK", "LARGEST", "SPECIAL", "ElementaryProfile", "decoded", "different", "encoded", "load", "numbers", "ordinals",
    "shipped", "span",
]  # fmt: skip

Array = NDArray[Any]

BLOCK = 2**22  # ordinals in a block; block k has those from k * BLOCK on
LARGEST = 0x7F7F_FFFF  # ordinal of the largest finite number
_SHIPPED = Path(__file__).parent / "data" / "elementary"
SPECIAL = np.array([-math.inf, math.inf, math.nan], np.float32)  # recorded in every profile
FORMAT = "fpsim-elementary-profile-1"

# Symbols for what has no small difference: zero or infinity with the sign of the correct result, NaN, and any other.
_ZERO, _INFINITE, _NAN, _OTHER = -127, -126, -125, -128
_SMALL = 120
_NAN_ORDINAL = 0x7FC0_0000
_BROKEN = (
    ValueError,
    TypeError,
    KeyError,
    OSError,
    EOFError,
    OverflowError,
    MemoryError,
    SyntaxError,
    zipfile.BadZipFile,
)


def ordinals(x: Array, /) -> NDArray[np.int64]:
    """Return the ordinals of float32 numbers; every NaN has that of one.

    Examples
    --------
    >>> import numpy as np
    >>> from fpsim.elementary_profiles import ordinals
    >>> ordinals(np.array([-0.0, 0.0, 1e-45], np.float32))
    array([-1,  0,  1])
    """
    bits = np.ascontiguousarray(x, np.float32).view(np.int32).astype(np.int64)
    counted = np.where(bits < 0, -(bits & 0x7FFF_FFFF) - 1, bits)
    return np.where(np.isnan(x), _NAN_ORDINAL, counted)


def numbers(counted: Array, /) -> NDArray[np.float32]:
    """Return the float32 numbers that have these ordinals."""
    counted = np.asarray(counted, np.int64)
    bits = np.where(counted < 0, (-counted - 1) | 0x8000_0000, counted)
    return bits.astype(np.uint32).view(np.float32)


def span(block: int, first: int, last: int, /) -> tuple[int, int]:
    """Return the first ordinal of a range that is in a block, and the one after the last."""
    return max(first, block * BLOCK), min(last + 1, (block + 1) * BLOCK)


def different(a: Array, b: Array, /) -> NDArray[np.int64]:
    """Return the positions at which the bits of two float32 vectors differ; any NaN equals any NaN."""
    places = np.flatnonzero(a.view(np.uint32) != b.view(np.uint32))
    return places[~(np.isnan(a[places]) & np.isnan(b[places]))]


def encoded(observed: Array, correct: Array, /) -> bytes:
    """Return how results differ from the correctly rounded ones, compressed; nothing where they do not differ."""
    places = different(observed, correct)
    if not places.size:
        return b""
    near, target = ordinals(correct[places]), ordinals(observed[places])
    difference = target - near
    shown = np.where(np.abs(difference) <= _SMALL, difference, _OTHER)
    large = shown == _OTHER
    for symbol, ordinal in _signed(near < 0):
        shown = np.where(large & (target == ordinal), symbol, shown)
    others = difference[shown == _OTHER] & 0xFFFF_FFFF
    symbols = np.zeros(observed.size, np.int8)
    symbols[places] = shown
    return bz2.compress(symbols.tobytes() + others.astype("<u4").tobytes())


def _signed(negative: Array) -> list[tuple[int, Any]]:
    infinite = LARGEST + 1
    return [
        (_ZERO, np.where(negative, -1, 0)),
        (_INFINITE, np.where(negative, -infinite - 1, infinite)),
        (_NAN, _NAN_ORDINAL),
    ]


@functools.lru_cache(maxsize=16)
def decoded(data: bytes, size: int, /) -> tuple[Array, Array, Array]:
    """Return the symbols of a block, where one of them stands for another difference, and those differences.

    Raises
    ------
    FileError
        The data are not of a block of that size.
    """
    reader = bz2.BZ2Decompressor()
    try:
        raw = reader.decompress(data, max_length=5 * size + 1)
    except (OSError, EOFError, ValueError) as error:
        message = f"a block of the profile is damaged: {error}"
        raise FileError(message) from error
    symbols = np.frombuffer(raw[:size], np.int8)
    where = np.flatnonzero(symbols == _OTHER)
    if not reader.eof or len(raw) != size + 4 * where.size:
        message = "a block of the profile is damaged: it has another length"
        raise FileError(message)
    return symbols, where, np.frombuffer(raw[size:], "<u4")


@dataclass(frozen=True, slots=True)
class ElementaryProfile:
    """What an implementation gives for every float32 number of a range.

    Attributes
    ----------
    function : str
        A name in `fpsim.devices.elementwise.FUNCTIONS`, with one operand.
    target, device, date : str
        What was called, on what, and when (ISO 8601).
    versions : mapping of str to str
        Of the libraries.
    first, last : int
        Ordinals of the ends of the range.
    special : tuple of 3 ints
        Ordinals of the results for -inf, inf and NaN.
    blocks : mapping of int to bytes
        What `encoded` gave, by the number of the block; a block without differences is left out.
    source : str
        The file that it was read from.
    """

    function: str
    target: str
    device: str
    date: str
    versions: Mapping[str, str]
    first: int
    last: int
    special: tuple[int, int, int]
    blocks: Mapping[int, bytes]
    source: str = ""

    @property
    def low(self) -> float:
        """Lower end of the range."""
        return float(numbers(np.array([self.first]))[0])

    @property
    def high(self) -> float:
        """Upper end of the range."""
        return float(numbers(np.array([self.last]))[0])

    @property
    def count(self) -> int:
        """How many numbers the range has."""
        return self.last - self.first + 1

    def __str__(self) -> str:
        libraries = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        size = sum(map(len, self.blocks.values()))
        return (
            f"{self.function} as {self.target} on {self.device} gives it ({libraries}; {self.date}): all {self.count:,}"
            f" float32 numbers from {self.low:.9g} to {self.high:.9g}, infinities and NaN; {size:,} bytes"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects, without the results."""
        return {
            "function": self.function, "target": self.target, "device": self.device, "date": self.date,
            "versions": dict(self.versions), "first": self.first, "last": self.last, "special": list(self.special),
        }  # fmt: skip

    def evaluate(self, function: str, /, *operands: Any) -> Array:
        """Return the recorded results for float32 numbers, bit for bit (any NaN stands for any NaN).

        Parameters
        ----------
        function : str
            That of the profile.
        *operands : float32 array
            One: numbers of the range, infinities and NaN.

        Raises
        ------
        InputError
            It is a profile of another function, or the operand is not one float32 array.
        UnknownOrderError
            Some numbers were not recorded.
        """
        values = np.asarray(operands[0]) if len(operands) == 1 else np.empty(0)
        if function != self.function:
            message = f"{self.source or 'the profile'} is of {self.function}, not of {function}"
            raise InputError(message)
        if values.dtype != np.float32:
            message = f"{function} takes 1 float32 array"
            raise InputError(message)
        flat = values.reshape(-1)
        counted = ordinals(flat)
        finite = np.isfinite(flat)
        missing = finite & ((counted < self.first) | (counted > self.last))
        if missing.any():
            message = (
                f"{self.source or 'the profile'} has {function} from {self.low:.9g} to {self.high:.9g};"
                f" {np.count_nonzero(missing):,} of {flat.size:,} numbers, such as {flat[missing][0]:.9g}, were not recorded"
            )
            raise UnknownOrderError(message)
        reference: Any = importlib.import_module("fpsim.devices.elementwise")
        out = ordinals(reference.correctly_rounded(function, np.ascontiguousarray(flat)))
        self._shift(counted, finite, out)
        for value, ordinal in zip(SPECIAL[:2], self.special[:2], strict=True):
            out[flat == value] = ordinal
        out[np.isnan(flat)] = self.special[2]
        return numbers(out).reshape(values.shape)

    def _shift(self, counted: Array, finite: Array, out: Array) -> None:
        """Turn ordinals of correctly rounded results into those of the recorded ones."""
        which = np.where(finite, counted // BLOCK, 2**15)
        order = np.argsort(which, kind="stable")
        starts = np.flatnonzero(np.diff(which[order], prepend=-(2**15)))
        for block, places in zip(which[order][starts].tolist(), np.split(order, starts[1:]), strict=True):
            data = self.blocks.get(block)
            if data is None:
                continue
            begin, end = span(block, self.first, self.last)
            symbols, where, others = decoded(data, end - begin)
            at = counted[places] - begin
            symbol, near = symbols[at].astype(np.int64), out[places]
            found = near + symbol
            for name, ordinal in _signed(near < 0):
                found = np.where(symbol == name, ordinal, found)
            special = symbol == _OTHER
            shifted = near[special] + others[np.searchsorted(where, at[special])].astype(np.int64)
            found[special] = (shifted + 2**31) % 2**32 - 2**31
            out[places] = found

    def save(self, path: str | Path, /) -> None:
        """Write the profile to a new ``.npz`` file.

        Raises
        ------
        FileError
            The file exists, or it cannot be written.
        """
        known = sorted(self.blocks)
        stream = io.BytesIO()
        np.savez(
            stream,
            header=np.array(json.dumps({"format": FORMAT, **self.to_dict()})),
            numbers=np.array(known, np.int32),
            ends=np.cumsum([len(self.blocks[k]) for k in known], dtype=np.int64),
            data=np.frombuffer(b"".join(self.blocks[k] for k in known), np.uint8),
        )
        write_new(path, stream.getvalue())


def shipped() -> list[str]:
    """Return the names of the profiles that come with the package.

    Examples
    --------
    >>> from fpsim.elementary_profiles import shipped
    >>> "glibc-2.36/expf" in shipped()
    True
    """
    return sorted(file.relative_to(_SHIPPED).with_suffix("").as_posix() for file in _SHIPPED.glob("*/*.npz"))


def load(path: str | Path, /) -> ElementaryProfile:
    """Return the profile in a file that `ElementaryProfile.save` wrote, or one of `shipped` by its name.

    Raises
    ------
    FileError
        The file is missing, damaged, or of another kind. Nothing is ever unpickled.
    """
    known = shipped()
    file = _SHIPPED / f"{path}.npz" if str(path) in known else Path(path)
    try:
        state = file.stat()
    except OSError as error:
        message = f"{path}: there is no such file; the profiles that come with fpsim are {', '.join(known)}"
        raise FileError(message) from error
    return _loaded(str(file), state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=4)
def _loaded(path: str, changed: int, size: int) -> ElementaryProfile:
    del changed, size
    try:
        with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            header = json.loads(str(archive["header"]))
            known, ends, data = archive["numbers"], archive["ends"], archive["data"].tobytes()
        if header.pop("format") != FORMAT or known.size != ends.size or (np.diff(ends, prepend=0) < 0).any():
            message = "another kind of file"
            raise ValueError(message)
        starts = [0, *ends.tolist()]
        blocks = {int(k): data[a:b] for k, a, b in zip(known, starts, ends.tolist(), strict=False)}
        minus, plus, nan = (int(x) for x in header.pop("special"))
        profile = ElementaryProfile(**header, special=(minus, plus, nan), blocks=blocks, source=path)
        if not -LARGEST - 1 <= profile.first <= profile.last <= LARGEST or starts[-1] != len(data):
            message = "a range that is none"
            raise ValueError(message)
    except _BROKEN as error:
        message = f"{path}: not a profile of an elementary function, or damaged ({str(error) or type(error).__name__})"
        raise FileError(message) from error
    return profile
