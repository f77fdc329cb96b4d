"""Functions that are named on a command line."""

from __future__ import annotations

import importlib
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fpsim._black_box import OPERATIONS
from fpsim.errors import InputError, MissingExtraError

_GUESSES = {
    "sum": "sum", "nansum": "sum", "mean": "mean", "dot": "dot", "vdot": "dot", "inner": "dot", "mv": "matvec",
    "matmul": "matmul", "mm": "matmul",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Target:
    """A function, and the operation that its name suggests.

    Attributes
    ----------
    name : str
        As it was given.
    function : callable
        Takes NumPy arrays.
    op : str or None
        The operation, where the name tells.
    device : str
        What it runs on.
    implementation : str
        The name of the implementation, or that of the function.
    versions : dict of str to str
        Of the library, and of NumPy.
    """

    name: str
    function: Callable[..., Any]
    op: str | None
    device: str
    implementation: str
    versions: dict[str, str]


def target(text: str, /, *, device: str | None = None) -> Target:
    """Return the function that a text names.

    Parameters
    ----------
    text : str
        An implementation and its operation, as in ``torch.cuda:sum`` (see ``fpsim check --list``), or a function by its
        dotted name, as in ``numpy.sum`` or ``my_module.my_sum``. Functions of torch, jax and cupy get arrays of their
        library.
    device : str, optional
        For functions of torch: ``cuda`` or ``cpu``.

    Raises
    ------
    InputError
        There is no such function.
    MissingExtraError
        The implementation cannot run here.
    """
    if ":" in text:
        return _of_implementation(text)
    parts = text.split(".")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)  # as with python -m: modules of the current directory
    for count in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError as error:
            if error.name is not None and not ".".join(parts[:count]).startswith(error.name):
                message = f"{text} cannot be imported: {error}"
                raise InputError(message) from error
            continue
        for part in parts[count:]:
            found = getattr(found, part, None)
        if callable(found):
            function = _converting(found, parts[0], device)
            versions = _versions(parts[0], getattr(sys.modules[parts[0]], "__version__", ""))
            return Target(text, function, operation_of(text), _device(device), text, versions)
        message = f"{'.'.join(parts[:count])} has no function {'.'.join(parts[count:])}"
        raise InputError(message)
    message = (
        f"there is no function {text!r}; name one as in numpy.sum or my_module.my_sum, or an implementation and its"
        " operation as in torch.cuda:sum"
    )
    raise InputError(message)


def operation_of(text: str, /) -> str | None:
    """Return the operation that the name of a function tells: its own, or the last word of it, as in ``block_sum``."""
    name = text.replace(":", ".").rpartition(".")[2]
    return _GUESSES.get(name) or _GUESSES.get(name.rpartition("_")[2])


def _of_implementation(text: str) -> Target:
    from fpsim.devices import implementations

    name, _, operation = text.partition(":")
    found = [one for one in implementations() if one.name == name]
    if not found:
        known = ", ".join(one.name for one in implementations())
        message = f"there is no implementation {name!r}; known are {known}"
        raise InputError(message)
    found[0].routine(operation)
    one = found[0]
    op = operation if operation in OPERATIONS else None
    versions = _versions(one.library, one.version)
    return Target(text, lambda *x: one.run(operation, *x), op, one.device, one.name, versions)


def _versions(library: str, version: str) -> dict[str, str]:
    import numpy as np

    return {**({library: version} if version else {}), "NumPy": np.__version__}


def _device(name: str | None) -> str:
    if name is not None and name.startswith("cuda"):
        return str(sys.modules["torch"].cuda.get_device_name())
    return platform.processor() or platform.machine()


def _converting(function: Callable[..., Any], root: str, device: str | None) -> Callable[..., Any]:
    """Return the function for NumPy arrays, where its library takes only its own."""
    if root == "torch":
        torch = importlib.import_module("torch")

        where = device or "cpu"
        if where.startswith("cuda") and not torch.cuda.is_available():
            message = "torch sees no CUDA device here"
            raise MissingExtraError(message)
        return lambda *x, **options: function(*(torch.from_numpy(one).to(where) for one in x), **options)
    if device is not None:
        message = f"--device is for functions of torch, not of {root}"
        raise InputError(message)
    if root == "jax":
        jnp = importlib.import_module("jax.numpy")
        return lambda *x, **options: function(*map(jnp.asarray, x), **options)
    if root == "cupy":
        cupy = importlib.import_module("cupy")
        return lambda *x, **options: function(*map(cupy.asarray, x), **options)
    return function
