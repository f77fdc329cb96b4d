"""Whether a profile holds on the device at hand."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from fpsim._targets import target
from fpsim.devices import implementations
from fpsim.devices.operations import operation
from fpsim.errors import MissingExtraError
from fpsim.formats import as_format
from fpsim.profiles import Case, Profile
from fpsim.strategies import strategy

_LAWS = ("normal(0, 1)", "uniform(0, 1)", "wide(-12, 12)")
Progress = Callable[[int, int], None]


def verify(profile: Profile, /, *, rng: Any = 0, progress: Progress | None = None) -> list[tuple[Case, int, int]]:
    """Run every case of a profile on fresh operands.

    Returns
    -------
    list of (Case, int, int)
        Each case with the number of outputs that have the recorded strategy's bits, and of all outputs.

    Raises
    ------
    MissingExtraError
        The profile's implementation cannot run here.
    InputError
        The profile is of a function that cannot be found.
    """
    from fpsim.formats import _generator

    run = _runner(profile)

    source = _generator(rng)
    chosen = strategy(f"profile:{profile.name}")
    results: list[tuple[Case, int, int]] = []
    for done, case in enumerate(profile.cases):
        if progress is not None:
            progress(done, len(profile.cases))
        one = operation(case.op)
        equal = outputs = 0
        for law in _LAWS:
            operands = one.draw(case.shape, law, rng=source, dtype=as_format(profile.dtype))
            actual = np.asarray(run(case.op, *operands))
            predicted = one.emulate(operands, chosen).astype(actual.dtype)
            same = (predicted == actual) & (np.signbit(predicted) == np.signbit(actual))
            equal += int(np.count_nonzero(same | (np.isnan(predicted) & np.isnan(actual))))
            outputs += actual.size
        results.append((case, equal, outputs))
    return results


def _runner(profile: Profile) -> Callable[..., Any]:
    """Return the function that runs an operation as the profile's implementation, or function, does."""
    for implementation in implementations():
        if implementation.name == profile.implementation:
            if not implementation.available:
                message = f"profile:{profile.name} is verified with {implementation}"
                raise MissingExtraError(message)
            return implementation.run
    function = target(profile.implementation, device=_torch_device(profile)).function
    return lambda op, *operands: function(*operands)  # noqa: ARG005


def _torch_device(profile: Profile) -> str | None:
    """Return ``cuda`` where the profile of a function of torch is of the GPU at hand."""
    if profile.implementation.partition(".")[0] != "torch" or find_spec("torch") is None:
        return None
    cuda = importlib.import_module("torch").cuda
    return "cuda" if cuda.is_available() and cuda.get_device_name() == profile.device else None
