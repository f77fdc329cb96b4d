"""The one numba wrapper of the project: cached, GIL-free, IEEE division, and never `fastmath` or `parallel`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile `function` on its first call and keep the machine code on disk.

    Cached callers are not recompiled when a callee in another file changes: use a fresh ``NUMBA_CACHE_DIR`` after
    editing kernels.
    """
    return cast("F", numba.jit(cache=True, nogil=True, error_model="numpy")(function))


def inlined(function: F) -> F:
    """Compile a small helper that is always inlined into its callers."""
    return cast("F", numba.jit(nogil=True, error_model="numpy", inline="always")(function))
