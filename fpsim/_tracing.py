"""Operations as a function calls them, each with digests of the bits that go in and come out."""

from __future__ import annotations

import hashlib
import sys
import sysconfig
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_LIBRARIES: Final = frozenset({"numpy", "torch", "scipy"})
_OWN: Final = frozenset(
    {"fpsim._tracing", "fpsim._tracing_numpy", "fpsim._tracing_torch"} | {"fpsim._recorded_runs", "fpsim.locating"}
)
_STDLIB: Final = sysconfig.get_path("stdlib")


@dataclass(frozen=True, slots=True)
class Operand:
    """What an operation took or gave, without its numbers.

    Attributes
    ----------
    shape : tuple of int
        Its shape.
    dtype : str
        Its type.
    device : str
        "cpu", or the device of a tensor.
    strides : tuple of int
        Distance in bytes from one element to the next, along each axis.
    offset : int
        Bytes from the last multiple of 64 to its first element.
    """

    shape: tuple[int, ...]
    dtype: str
    device: str
    strides: tuple[int, ...]
    offset: int

    def __str__(self) -> str:
        size = "x".join(map(str, self.shape)) or "scalar"
        return f"{self.dtype} {size}" + (f" on {self.device}" if self.device != "cpu" else "")

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded operation.

    Attributes
    ----------
    library, name : str
        As in ``"numpy"`` and ``"add.reduce"``, or ``"torch"`` and ``"aten.index_add_"``.
    operands, results : tuple of Operand
        What it took and gave.
    inputs, outputs : tuple of bytes
        Digests of their bits; the last of `inputs` is that of the other arguments.
    where : str
        The line of the user's source that called it: "file.py:12 in loss".
    backward : bool
        Whether it ran in a backward pass; `where` is then the line of the forward operation, where that is known.
    state : bytes
        Digest of the random stream that it advanced; empty for others.
    """

    library: str
    name: str
    operands: tuple[Operand, ...]
    inputs: tuple[bytes, ...]
    results: tuple[Operand, ...]
    outputs: tuple[bytes, ...]
    where: str
    backward: bool = False
    state: bytes = b""

    @property
    def key(self) -> tuple[str, str, tuple[bytes, ...]]:
        """The operation and the bits that went in."""
        return self.library, self.name, self.inputs

    def __str__(self) -> str:
        taken, given = (", ".join(map(str, side)) for side in (self.operands, self.results))
        return f"{self.library}.{self.name}({taken})" + (f" -> {given}" if given else "")


@dataclass(slots=True)
class Recorder:
    """Collects the calls of one run, and compares them with those of another as they come.

    Calls are paired by operation and operands, not by place, so that threads may take turns as they like.

    Attributes
    ----------
    reference : sequence of Call
        The run to compare with.
    budget : int
        Bytes of results to keep.
    only : int or None
        The one call whose results are kept.
    """

    reference: tuple[Call, ...] = ()
    budget: int = 0
    only: int | None = None
    comparing: bool = False
    calls: list[Call] = field(default_factory=list)
    kept: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    pairs: list[int | None] = field(default_factory=list)
    first: int | None = None
    _open: dict[Any, deque[int]] = field(default_factory=lambda: defaultdict(deque))
    _lock: Any = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        for place, call in enumerate(self.reference):
            self._open[call.key].append(place)

    def record(self, call: Call, results: Callable[[], tuple[Any, ...]], size: int) -> None:
        """Add a call; `results` copies its results, which have so many bytes, where they are to be kept."""
        with self._lock:
            place = len(self.calls)
            self.calls.append(call)
            keep = self.only == place if self.only is not None else size <= self.budget and not self.comparing
            if self.comparing:
                waiting = self._open.get(call.key)
                pair = waiting.popleft() if waiting else None
                self.pairs.append(pair)
                if self.first is None and (pair is None or self.reference[pair].outputs != call.outputs):
                    self.first, keep = place, True
            if keep:
                self.budget -= size
                self.kept[place] = results()


def digest(array: NDArray[Any], /) -> bytes:
    """Return a digest of the bits of an array, in which all NaN are one."""
    if array.dtype.hasobject:
        return text_digest(repr(array.tolist()))
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.kind == "f" and (nan := np.isnan(flat)).any():
        flat = np.where(nan, flat.dtype.type(np.nan), flat)
    kind = f"{array.dtype} {array.shape} ".encode()
    return _hashed(kind, flat.view(np.uint8) if flat.size else b"")


def bytes_digest(kind: str, content: Any, /) -> bytes:
    """Return the digest of a buffer of a kind."""
    return _hashed(kind.encode(), content)


def text_digest(text: str, /) -> bytes:
    """Return the digest of a text."""
    return _hashed(b"text ", text.encode())


def _hashed(*parts: Any) -> bytes:
    total = hashlib.sha256()  # where the processor has instructions for it the fastest
    for part in parts:
        total.update(part)
    return total.digest()[:16]


def arguments_digest(values: Iterable[Any], /) -> bytes:
    """Return the digest of arguments that are no arrays or scalars of NumPy; of objects only the type counts."""
    return text_digest(repr([_plain(value) for value in values]))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):  # a float64 is a float, too
        return type(value).__name__
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | np.dtype | slice):
        return repr(value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    return type(value).__name__


def caller() -> str:
    """Return the line of the user's source from which the present operation was called.

    Behind it stand the layers of PyTorch that were called there, as in "train.py:9 in step (Sequential > Linear)".
    """
    frame: Any = sys._getframe(1)
    layers: list[str] = []
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name not in _OWN and name.partition(".")[0] not in _LIBRARIES and not standard(frame.f_code.co_filename):
            code = frame.f_code
            inside = "" if code.co_name.startswith("<") else f" in {code.co_name}"
            chain = f" ({' > '.join(reversed(layers))})" if layers else ""
            return f"{_short(code.co_filename)}:{frame.f_lineno}{inside}{chain}"
        if name.startswith("torch.nn.") and frame.f_code.co_name == "forward":
            layers.append(type(frame.f_locals.get("self")).__name__)
        frame = frame.f_back
    return ""


@cache
def standard(filename: str, /) -> bool:
    """Whether a file belongs to Python itself."""
    return filename.startswith((_STDLIB, "<frozen")) and not (
        "site-packages" in filename or "dist-packages" in filename
    )


@cache
def _short(filename: str) -> str:
    try:
        return str(Path(filename).relative_to(Path.cwd()))
    except ValueError:
        return filename
