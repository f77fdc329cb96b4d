"""Arrays from files, and files that are never overwritten by accident."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.errors import FileError

SUFFIXES = (".npy", ".npz", ".csv", ".txt", ".safetensors", ".pt", ".pth")
_NAMED = (".npz", ".safetensors", ".pt", ".pth")
_NPY_MAGIC = b"\x93NUMPY"
# What NumPy raises on files that are cut short, forged or of another kind: headers are read as Python literals, and a
# forged shape asks for more memory than there is. An archive can be encrypted or packed in an unknown way besides.
_BROKEN = (ValueError, TypeError, KeyError, OverflowError, EOFError, SyntaxError, MemoryError)
_BROKEN_ZIP = (*_BROKEN, zipfile.BadZipFile, zlib.error, RuntimeError)


def load_array(path: str | Path, /, *, name: str | None = None) -> NDArray[Any]:
    """Return the array of real numbers in a file.

    Parameters
    ----------
    path : str or Path
        ``.npy``; ``.npz``, ``.safetensors`` or ``.pt`` (which needs torch) with one array, or ``file.npz:key``; ``.csv`` or ``.txt`` with a line for each row, numbers
        separated by semicolons, commas or blanks. Empty lines and what follows ``#`` are skipped; one line or one
        column gives a vector.
    name : str, optional
        What the file stands for, such as ``"A"``; error messages begin with it.

    Returns
    -------
    ndarray
        Not empty. A binary file keeps its dtype (integers, bools, any float); decimals are read as the nearest float64,
        and the caller rounds to the type of the operands.

    Raises
    ------
    FileError
        The file is missing, unreadable, cut short or of an unknown kind, holds pickled objects, complex numbers, text,
        records or nothing, or a line of text is not a row of numbers. Nothing is ever unpickled.
    """
    text = str(path)
    label = text if name is None else f"{name}: {text}"
    file, key = _file_and_key(text)
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        message = f"{label}: the kind of file is told by its ending, which must be one of {', '.join(SUFFIXES)}"
        raise FileError(message)
    try:
        if suffix == ".npy":
            array = _load_npy(file, label)
        elif suffix == ".npz":
            array = _load_npz(file, key, label)
        elif suffix in _NAMED:
            array = _load_tensor(file, suffix, key, label)
        else:
            array = _load_text(file, label)
    except OSError as error:
        message = f"{label}: {_reason(error)}"
        raise FileError(message) from error
    return _numbers(array, label)


def write_new(path: str | Path, data: bytes, /) -> None:
    """Write a file that does not exist yet.

    Raises
    ------
    FileError
        The file exists, or it cannot be written.
    """
    try:
        with Path(path).open("xb") as file:
            file.write(data)
    except FileExistsError as error:
        message = f"{path} exists and is left as it is; choose another name"
        raise FileError(message) from error
    except OSError as error:
        message = f"{path}: {_reason(error)}"
        raise FileError(message) from error


def _file_and_key(text: str) -> tuple[Path, str | None]:
    """Split ``file.npz:key``; a file whose whole name is that wins."""
    head, colon, key = text.rpartition(":")
    if colon and head.lower().endswith(_NAMED) and not Path(text).exists():
        return Path(head), key
    return Path(text), None


def _reason(error: OSError) -> str:
    kinds = {
        FileNotFoundError: "there is no such file or folder",
        IsADirectoryError: "this is a folder, not a file",
        PermissionError: "no permission",
    }
    return kinds.get(type(error), (error.strerror or str(error)).lower())


def _load_npy(file: Path, label: str) -> Any:
    with file.open("rb") as stream:
        magic = stream.read(len(_NPY_MAGIC))
        if magic != _NPY_MAGIC:
            message = f"{label}: not a .npy file" + (": it is empty" if not magic else "; write it with numpy.save")
            raise FileError(message)
        stream.seek(0)
        try:
            return np.load(stream, allow_pickle=False)
        except _BROKEN as error:
            message = f"{label}: {_broken(error)}"
            raise FileError(message) from error


def _load_npz(file: Path, key: str | None, label: str) -> Any:
    with file.open("rb") as stream:
        if not zipfile.is_zipfile(stream):
            message = f"{label}: not a .npz file, or cut short; write it with numpy.savez"
            raise FileError(message)
        stream.seek(0)
        try:
            with np.load(stream, allow_pickle=False) as archive:
                return archive[_chosen(list(archive.files), key, label)]
        except FileError:
            raise
        except _BROKEN_ZIP as error:
            message = f"{label}: {_broken(error)}"
            raise FileError(message) from error


def _load_tensor(file: Path, suffix: str, key: str | None, label: str) -> Any:
    from fpsim._tensor_files import load_safetensors, load_torch

    if not file.exists():
        raise FileNotFoundError(label)
    tensors = load_safetensors(file, label) if suffix == ".safetensors" else load_torch(file, label)
    return tensors[_chosen(list(tensors), key, label)]


def _chosen(keys: list[str], key: str | None, label: str) -> str:
    listed = ", ".join(keys)
    if key is None:
        if len(keys) == 1:
            return keys[0]
        message = f"{label}: holds {len(keys)} arrays"
        message += f" ({listed}); name one, as in file.npz:{keys[0]}" if keys else ""
        raise FileError(message)
    if key not in keys:
        message = f"{label}: has no array {key!r}; it holds {listed or 'none'}"
        raise FileError(message)
    return key


def _broken(error: Exception) -> str:
    if "allow_pickle" in str(error):
        return "holds pickled Python objects, which are not read; save numbers only"
    return f"cut short or damaged ({str(error).splitlines()[0] if str(error) else type(error).__name__})"


def _load_text(file: Path, label: str) -> NDArray[np.float64]:
    rows: list[list[float]] = []
    first = 0
    try:
        lines = file.read_text("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        message = f"{label}: not a text file in UTF-8 (byte {error.start})"
        raise FileError(message) from error
    for number, line in enumerate(lines, 1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        row = _row(content, f"{label}, line {number}")
        if rows and len(row) != len(rows[0]):
            message = f"{label}, line {number}: {len(row)} numbers, but line {first} has {len(rows[0])}"
            raise FileError(message)
        first = first or number
        rows.append(row)
    array = np.array(rows, np.float64)
    return array.reshape(-1) if 1 in array.shape else array


def _row(content: str, place: str) -> list[float]:
    separator = ";" if ";" in content else "," if "," in content else None
    values = []
    for word in content.split(separator):
        try:
            values.append(float(word.replace("_", "?")))  # float() takes 1_000 for a number
        except ValueError:
            shown = word.strip() if len(word.strip()) <= 30 else f"{word.strip()[:27]}..."
            message = f"{place}: {shown!r} is not a number" if shown else f"{place}: a number is missing"
            raise FileError(message) from None
    return values


def _numbers(array: Any, label: str) -> NDArray[Any]:
    if not isinstance(array, np.ndarray):
        message = f"{label}: holds no array; write it with numpy.save"
        raise FileError(message)
    if array.dtype.kind == "c":
        message = f"{label}: holds complex numbers; save the real and the imaginary part, each in a file of its own"
        raise FileError(message)
    if array.dtype.kind not in "biuf":
        message = f"{label}: holds {array.dtype}, not numbers of a type NumPy knows; save it as float32 or float64"
        raise FileError(message)
    if array.size == 0:
        message = f"{label}: holds no numbers"
        raise FileError(message)
    return array
