"""Which BLAS NumPy runs: of its own OpenBLAS the kernels, the release and the number of threads."""

from __future__ import annotations

import ctypes
import functools
import importlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fpsim.errors import UnknownOrderError
from fpsim.orders.numpy_matmul import CORES, VERSIONS

# Names of OpenBLAS's functions in the builds that NumPy is linked with: those of its wheels, and others.
_OF_WHEELS = ("scipy_openblas_get_{}64_", "scipy_openblas_get_{}")
_OTHERS = ("openblas_get_{}64_", "openblas_get_{}")


@dataclass(frozen=True, slots=True)
class Blas:
    """The BLAS that NumPy multiplies with.

    Attributes
    ----------
    library : str
        Its name, as NumPy's build configuration has it.
    core : str
        The kernels that OpenBLAS chose for this processor, in lower case; empty for another library.
    version : str
        The release of OpenBLAS, such as ``0.3.31``.
    threads : int
        How many threads it may use now.
    processor : str
        As `fpsim.orders.numpy_matmul.NumpyMatmul` has it: ``zen4``, ``other``, or ``unstated`` where nothing tells.
    build : str
        Who built OpenBLAS, if it is not that of NumPy's wheels for Linux; the compiler decides which products are fused.
    """

    library: str
    core: str = ""
    version: str = ""
    threads: int = 1
    processor: str = "unstated"
    build: str = ""

    def __str__(self) -> str:
        if not self.core:
            return self.library
        return f"OpenBLAS {self.version}, {self.core} kernels, {self.threads} thread{'s' * (self.threads > 1)}"

    def check(self) -> None:
        """Raise `UnknownOrderError` where no rule is known for this library, its kernels or its release."""
        if not self.core:
            message = f"NumPy multiplies with {self.library} here; rules are known for OpenBLAS, as in NumPy's wheels"
            raise UnknownOrderError(message)
        if self.build:
            message = f"NumPy has {self.build} here; rules are known for that of its wheels for Linux"
            raise UnknownOrderError(message)
        if self.core not in CORES:
            message = f"OpenBLAS runs its {self.core} kernels here; known are those of {', '.join(CORES)}"
            raise UnknownOrderError(message)
        if self.version not in VERSIONS:
            message = f"NumPy has OpenBLAS {self.version} here; known are {', '.join(VERSIONS)}"
            raise UnknownOrderError(message)


def numpy_blas() -> Blas:
    """Return the BLAS of this NumPy, with the number of threads that it may use at the moment."""
    functions = _functions()
    if functions is None:
        return Blas(_library())
    core, version, threads, of_wheels = functions
    build = "" if of_wheels else "an OpenBLAS of another build"
    if of_wheels and sys.platform != "linux":
        build = f"the OpenBLAS of its wheels for {sys.platform}"
    return Blas("OpenBLAS", core, version, int(threads()), _processor(), build)


@functools.cache
def _processor() -> str:
    """Return what OpenBLAS takes the processor for: AMD's Zen 4 and 5 are those with AVX-512."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "unstated"
    return "zen4" if "AuthenticAMD" in text and " avx512f " in text else "other"


@functools.cache
def _functions() -> tuple[str, str, Any, bool] | None:
    """Return core, release, the function that gives the number of threads, and whether it is that of NumPy's wheels.

    None if it is no OpenBLAS.
    """
    for path in _paths():
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        for name in (*_OF_WHEELS, *_OTHERS):
            core, config, threads = (
                getattr(library, name.format(what), None) for what in ("corename", "config", "num_threads")
            )
            if core is None or config is None or threads is None:
                continue
            core.restype = config.restype = ctypes.c_char_p
            release = re.search(rb"OpenBLAS (\d+\.\d+\.\d+)", config() or b"")
            version = release[1].decode() if release else ""
            return (core() or b"").decode().lower(), version, threads, name in _OF_WHEELS
    return None


def _paths() -> list[Path]:
    """Return NumPy's extension module, in which the loader also finds what it is linked with, and bundled libraries."""
    extension = getattr(importlib.import_module("numpy._core._multiarray_umath"), "__file__", None)
    root = Path(np.__file__).parent
    bundled = [*root.parent.glob("numpy.libs/*openblas*"), *root.glob(".dylibs/*openblas*")]
    return [*([Path(extension)] if extension else []), *sorted(bundled)]


def _library() -> str:
    build: Any = np.show_config(mode="dicts")
    return str(build.get("Build Dependencies", {}).get("blas", {}).get("name", "an unknown BLAS"))
