"""What a real routine is: how it runs, on what, and which strategy predicts its bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.errors import MissingExtraError, UnknownOrderError
from fpsim.strategies import Strategy, strategy as as_strategy

Array = NDArray[Any]


def _as_it_is(x: Any) -> Any:
    return x


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Routine:
    """One operation as a library runs it.

    Attributes
    ----------
    launch : callable
        Takes the operands where the device has them, and returns its result there.
    strategy : callable
        Takes the operands as NumPy arrays and returns the strategy (or its text) that gives the bits of the result;
        raises `UnknownOrderError`, with the reason, where no rule is known.
    reproducible : bool
        Two runs on the same operands give the same bits.
    """

    launch: Callable[..., Any]
    strategy: Callable[..., Strategy | str]
    reproducible: bool = True


@dataclass(frozen=True, slots=True)
class Implementation:
    """A library on a device, with the operations it offers.

    Attributes
    ----------
    name : str
        Such as ``numpy`` or ``torch.cuda``.
    library, version : str
        The library and its version.
    device : str
        What it runs on: the processor with the kernels and threads that matter, or the GPU.
    kind : {"cpu", "gpu"}
        Where it computes.
    routines : mapping of str to Routine
        By the name of the operation, see `fpsim.devices.operations.OPERATIONS`.
    load, fetch : callable
        Take one array of NumPy to the device, and a result from it.
    synchronize : callable
        Waits until the device has finished what it was given.
    unavailable : str
        Why it cannot run here; empty where it can.
    """

    name: str
    library: str
    version: str = ""
    device: str = ""
    kind: str = "cpu"
    routines: Mapping[str, Routine] = field(default_factory=dict)
    load: Callable[[Array], Any] = _as_it_is
    fetch: Callable[[Any], Any] = _as_it_is
    synchronize: Callable[[], None] = _nothing
    unavailable: str = ""

    @property
    def available(self) -> bool:
        """Whether it can run here."""
        return not self.unavailable

    def routine(self, operation: str, /) -> Routine:
        """Return how an operation is run.

        Raises
        ------
        MissingExtraError
            The implementation cannot run here.
        UnknownOrderError
            It does not offer the operation.
        """
        if self.unavailable:
            message = f"{self.name} cannot run here: {self.unavailable}"
            raise MissingExtraError(message)
        if operation not in self.routines:
            message = f"{self.name} has no {operation}; it has {', '.join(self.routines)}"
            raise UnknownOrderError(message)
        return self.routines[operation]

    def run(self, operation: str, /, *operands: Any) -> Array:
        """Return the result of the real routine for operands in the host's memory."""
        launch = self.routine(operation).launch
        return np.asarray(self.fetch(launch(*(self.load(x) for x in operands))))

    def strategy(self, operation: str, /, *operands: Any) -> Strategy:
        """Return the strategy that predicts the bits for these operands.

        Raises
        ------
        UnknownOrderError
            No rule is known for this case.
        """
        return as_strategy(self.routine(operation).strategy(*operands))

    def __str__(self) -> str:
        if self.unavailable:
            return f"{self.name}: not available, {self.unavailable}"
        return f"{self.name}: {self.library} {self.version} on {self.device}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects."""
        return {
            "name": self.name,
            "library": self.library,
            "version": self.version,
            "device": self.device,
            "kind": self.kind,
            "available": self.available,
            "unavailable": self.unavailable,
            "operations": list(self.routines),
        }
