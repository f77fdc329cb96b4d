"""What changes the order of a reduction beside the operation and the shape."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fpsim.errors import FileError


@dataclass(frozen=True, slots=True)
class Key:
    """All that can change the order of a case but its operation, its shape and the format of its left operand.

    A field that is left out of a file has its default, and a field that is unknown is refused.

    Attributes
    ----------
    right_dtype : str
        Format of the right operand, "" for that of the left one.
    output : str
        Format of the result, "" for that of the left operand.
    mode : str
        What a library was allowed or told to do, such as ``tf32`` or ``fast_accum``; "" for its defaults.
    left, right : {"C", "F"}
        Memory order of the operands: F is a transposed view of C.
    lda, ldb, ldc : int
        Leading dimensions, in elements; 0 is contiguous.
    batch : int
        Products in one call.
    epilogue : str
        What is fused behind it, such as ``bias`` or ``bias+relu``.
    align : int
        The operands began at multiples of so many bytes; 0 is not stated.
    backend : str
        The library behind the library, such as ``cublaslt``; "" is not stated.
    workspace : int
        Bytes of workspace; -1 is not stated.
    threads, sms : int
        Threads of a CPU, multiprocessors of a GPU; 0 is not stated.

    Examples
    --------
    >>> from fpsim.profiles import Key
    >>> print(Key(mode="tf32", right="F"))
    mode=tf32, right=F
    """

    right_dtype: str = ""
    output: str = ""
    mode: str = ""
    left: str = "C"
    right: str = "C"
    lda: int = 0
    ldb: int = 0
    ldc: int = 0
    batch: int = 1
    epilogue: str = "none"
    align: int = 0
    backend: str = ""
    workspace: int = -1
    threads: int = 0
    sms: int = 0

    def over(self, given: Mapping[str, Any], /) -> Key:
        """Return this key with fields of a file in place of its own.

        Raises
        ------
        FileError
            A field is unknown, or its value is of another kind.
        """
        known = {field.name: field for field in dataclasses.fields(self)}
        for name, value in given.items():
            if name not in known:
                message = f"a key has no field {name!r}; it has {', '.join(known)}"
                raise FileError(message)
            if type(value) is not type(known[name].default):
                message = f"the key's field {name} must be like {known[name].default!r}, not {value!r}"
                raise FileError(message)
            if name in ("left", "right") and value not in ("C", "F"):
                message = f"the key's field {name} is a memory order, C or F, not {value!r}"
                raise FileError(message)
        return dataclasses.replace(self, **given)

    def beside(self, common: Key, /) -> dict[str, Any]:
        """Return the fields that differ from those of another key."""
        names = [field.name for field in dataclasses.fields(self)]
        return {name: getattr(self, name) for name in names if getattr(self, name) != getattr(common, name)}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are not at their defaults."""
        return self.beside(DEFAULTS)

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.to_dict().items()) or "defaults"


DEFAULTS: Final = Key()
