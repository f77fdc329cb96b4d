"""Tensors from safetensors files, and from those that torch.save writes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim.errors import FileError, MissingExtraError

_MOST_HEADER: Final = 100_000_000
#: Types of the format that NumPy has; bfloat16 is widened to float32.
_TYPES: Final = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1",
                 "BOOL": "?", "BF16": "<u2"}  # fmt: skip


def load_safetensors(file: Path, label: str) -> dict[str, NDArray[Any]]:
    """Return the tensors of a safetensors file: eight bytes of length, a header in JSON, then the numbers.

    Raises
    ------
    FileError
        The file is cut short, damaged, or holds a type that NumPy lacks.
    """
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > min(len(data) - 8, _MOST_HEADER):
        message = f"{label}: not a safetensors file, or cut short"
        raise FileError(message)
    try:
        header = json.loads(data[8 : 8 + size])
        return {
            name: _tensor(data[8 + size :], entry, label) for name, entry in header.items() if name != "__metadata__"
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"{label}: damaged ({error})"
        raise FileError(message) from error


def _tensor(data: bytes, entry: dict[str, Any], label: str) -> NDArray[Any]:
    kind, shape = entry["dtype"], tuple(int(i) for i in entry["shape"])
    if kind not in _TYPES:
        message = f"{label}: holds {kind} numbers, which NumPy lacks; save them as float32"
        raise FileError(message)
    first, last = entry["data_offsets"]
    numbers = np.frombuffer(data[first:last], _TYPES[kind])
    if numbers.size != math.prod(shape):
        message = f"{numbers.size} numbers do not make the shape {shape}"
        raise ValueError(message)
    if kind == "BF16":
        numbers = (numbers.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return numbers.reshape(shape)


def load_torch(file: Path, label: str) -> dict[str, NDArray[Any]]:
    """Return the tensors of a file of torch.save: one tensor, or a dict of them; no other objects are read.

    Raises
    ------
    MissingExtraError
        torch is not installed.
    FileError
        The file holds something else.
    """
    try:
        import torch
    except ImportError as error:
        message = f"{label}: reading it needs torch; install torch, or save the tensor with numpy.save"
        raise MissingExtraError(message) from error
    from fpsim._arrays import as_floats

    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        message = f"{label}: not a file of tensors alone ({str(error).splitlines()[0]})"
        raise FileError(message) from error
    named = found if isinstance(found, dict) else {"": found}
    return {str(key): as_floats(value, name=label)[0] for key, value in named.items() if hasattr(value, "detach")}
