"""Real routines: what runs here, and which strategy predicts its bits.

Each module for a library has one function ``implementations()``; nothing of a library is imported before it is called.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence

from fpsim.devices.base import Implementation, Routine
from fpsim.errors import InputError

#: The modules, in the order in which implementations are listed.
LIBRARIES = ("numpy", "numba_cpu", "torch", "jax", "cupy", "numba_cuda", "gloo")

__all__ = ["LIBRARIES", "Implementation", "Routine", "implementations"]


@functools.cache
def _all() -> tuple[Implementation, ...]:
    modules = [importlib.import_module(f"fpsim.devices.{name}") for name in LIBRARIES]
    return tuple(one for module in modules for one in module.implementations())


def implementations(names: Sequence[str] | str | None = None, /) -> tuple[Implementation, ...]:
    """Return the implementations that fpsim knows, whether they can run here or not.

    Parameters
    ----------
    names : sequence of str or str, optional
        Names such as ``numpy``, or beginnings such as ``torch`` for ``torch.cpu`` and ``torch.cuda``; all by default.

    Raises
    ------
    InputError
        A name fits none.

    Examples
    --------
    >>> from fpsim.devices import implementations
    >>> [one.name for one in implementations("numpy") if one.available]
    ['numpy', 'numpy.einsum']
    """
    known = _all()
    if names is None:
        return known
    asked = [names] if isinstance(names, str) else list(names)
    for name in asked:
        if not any(_fits(one.name, name) for one in known):
            message = f"unknown implementation {name!r}; use one of {', '.join(one.name for one in known)}"
            raise InputError(message)
    return tuple(one for one in known if any(_fits(one.name, name) for name in asked))


def _fits(name: str, asked: str) -> bool:
    return name == asked or name.startswith(f"{asked}.")
