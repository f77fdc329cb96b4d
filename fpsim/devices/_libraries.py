"""What the modules for optional libraries have in common: whether a library is there, and what is not known."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NoReturn

import numpy as np

from fpsim.devices.base import Array
from fpsim.errors import UnknownOrderError


def imported(name: str, library: str, install: str, /) -> tuple[Any, str]:
    """Return a module, and why it cannot be used: a reason and what to do, or nothing.

    Parameters
    ----------
    name, library : str
        The module and the name of the library.
    install : str
        What ``python -m pip install`` is given.
    """
    try:
        missing = find_spec(name) is None
    except (ImportError, ValueError):
        missing = True
    if missing:
        return None, f"{library} is not installed: python -m pip install {install}"
    try:
        return import_module(name), ""
    except (ImportError, OSError, RuntimeError, AttributeError) as error:  # a library that lacks one it is built on
        reason = " ".join(str(error).split())[:200]
        return None, f"{library} is installed, but cannot be imported ({type(error).__name__}: {reason})"


def release(version: str, /) -> tuple[int, int]:
    """Return the first two numbers of a version."""
    numbers = [int("".join(filter(str.isdigit, part)) or 0) for part in version.split(".")[:2]]
    return numbers[0], (numbers[1:] or [0])[0]


def is_x86() -> bool:
    """Whether this is an x86-64 processor."""
    return platform.machine() in ("x86_64", "AMD64")


def has_avx512() -> bool:
    """Whether this processor has AVX-512, as NumPy sees it."""
    features = getattr(import_module("numpy._core._multiarray_umath"), "__cpu_features__", {})
    return bool(features.get("AVX512F"))


def subnormal(*values: Array) -> bool:
    """Whether any of these numbers is subnormal as a float32."""
    smallest = np.finfo(np.float32).smallest_normal
    return any(bool(np.any((np.abs(x) < smallest) & (x != 0))) for x in values)


def unknown(reason: str, /) -> Callable[..., NoReturn]:
    """Return the strategy of a routine that no rule predicts."""

    def refuse(*operands: Array) -> NoReturn:
        del operands
        raise UnknownOrderError(reason)

    return refuse


def only(what: str, known: Callable[..., str] | str, /, *dtypes: str) -> Callable[..., str]:
    """Return a strategy that is known for some types of numbers.

    Parameters
    ----------
    what : str
        The routine, as it stands before "is not known for".
    known : callable or str
        The strategy.
    *dtypes : str
        The types; float32 alone where none is named.
    """

    def strategy(*operands: Array) -> str:
        for operand in operands:
            if operand.dtype.name not in (dtypes or ("float32",)):
                message = f"{what} is not known for {operand.dtype}"
                raise UnknownOrderError(message)
        return known if isinstance(known, str) else known(*operands)

    return strategy
