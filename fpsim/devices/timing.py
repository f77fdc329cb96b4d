"""How long a real routine takes: where its operands are, and with their way to a device and back."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from fpsim.devices.base import Array, Implementation
from fpsim.laws import law

_ENOUGH, _FEWEST, _MOST = 0.05, 3, 200  # seconds, and runs
#: Sizes of an elementwise product between a matrix that fits in a cache and one that fills a memory bus.
SIZES = ((50, 50), (200, 100), (400, 400), (1000, 1000), (2000, 2000), (4000, 4000))


@dataclass(frozen=True, slots=True)
class Times:
    """Median wall-clock times of a routine, in seconds.

    Attributes
    ----------
    compute : float
        With the operands and the result where the device has them.
    with_transfers : float or None
        With copies of the operands to the device and of the result from it; None for a routine on the CPU.
    """

    compute: float
    with_transfers: float | None = None


def measure(implementation: Implementation, operation: str, /, *operands: Array) -> Times:
    """Time a routine: the median of at least three runs and of what fits in a twentieth of a second, after one run."""
    routine = implementation.routine(operation)
    loaded = [implementation.load(x) for x in operands]

    def compute() -> None:
        routine.launch(*loaded)
        implementation.synchronize()

    if implementation.kind == "cpu":
        return Times(_median(compute))
    return Times(_median(compute), _median(lambda: implementation.run(operation, *operands)))


def _median(run: Callable[[], Any]) -> float:
    run()
    taken: list[float] = []
    while len(taken) < _FEWEST or (sum(taken) < _ENOUGH and len(taken) < _MOST):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


@dataclass(frozen=True, slots=True)
class Crossover:
    """Times of an elementwise product on a CPU and on a GPU, by size.

    Attributes
    ----------
    cpu, gpu : str
        What ran: the implementation and its device.
    sizes : tuple of (int, int)
        Rows and columns of the operands, float32.
    cpu_seconds, gpu_seconds, gpu_seconds_with_transfers : tuple of float
        Median times for each size.
    measured : bool
        On this machine; otherwise these are recorded figures.
    same_bits : bool
        The results had the same bits.
    """

    cpu: str
    gpu: str
    sizes: tuple[tuple[int, int], ...]
    cpu_seconds: tuple[float, ...]
    gpu_seconds: tuple[float, ...]
    gpu_seconds_with_transfers: tuple[float, ...]
    measured: bool
    same_bits: bool = True

    def first_faster(self, *, transfers: bool) -> tuple[int, int] | None:
        """Return the smallest size from which on the GPU is the faster one, or None where it never is."""
        times = self.gpu_seconds_with_transfers if transfers else self.gpu_seconds
        first = len(self.sizes)
        while first and times[first - 1] < self.cpu_seconds[first - 1]:
            first -= 1
        return self.sizes[first] if first < len(self.sizes) else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects."""
        return {
            "cpu": self.cpu,
            "gpu": self.gpu,
            "measured_here": self.measured,
            "same_bits": self.same_bits,
            "sizes": [list(size) for size in self.sizes],
            "cpu_seconds": list(self.cpu_seconds),
            "gpu_seconds": list(self.gpu_seconds),
            "gpu_seconds_with_transfers": list(self.gpu_seconds_with_transfers),
            "gpu_faster_from": self.first_faster(transfers=False),
            "gpu_faster_with_transfers_from": self.first_faster(transfers=True),
        }


def crossover(implementations: Sequence[Implementation], /) -> Crossover:
    """Time elementwise products with NumPy and with the first GPU library that runs here.

    Without a GPU the recorded times of an NVIDIA H200 and its host are returned.
    """
    cpu = [one for one in implementations if one.available and one.name == "numpy"]
    gpu = [one for one in implementations if one.available and one.kind == "gpu" and "multiply" in one.routines]
    if not cpu or not gpu:
        return recorded_crossover()
    rng = np.random.default_rng(0)
    rows: list[tuple[float, float, float]] = []
    same = True
    for size in SIZES:
        a, b = (law("uniform(0, 1)").draw(size, rng=rng) for _ in range(2))
        there = measure(gpu[0], "multiply", a, b)
        assert there.with_transfers is not None
        rows.append((measure(cpu[0], "multiply", a, b).compute, there.compute, there.with_transfers))
        same = same and np.array_equal(cpu[0].run("multiply", a, b), gpu[0].run("multiply", a, b))
    here, compute, moved = zip(*rows, strict=True)
    return Crossover(_title(cpu[0]), _title(gpu[0]), SIZES, here, compute, moved, True, same)


def _title(one: Implementation) -> str:
    return f"{one.library} {one.version} on {one.device}"


def recorded_crossover() -> Crossover:
    """Return the times that were recorded with an NVIDIA H200."""
    data = json.loads(files("fpsim").joinpath("data", "h200_times.json").read_text(encoding="utf-8"))
    return Crossover(
        data["cpu"], data["gpu"], tuple((r, c) for r, c in data["sizes"]), tuple(data["cpu_seconds"]),
        tuple(data["gpu_seconds"]), tuple(data["gpu_seconds_with_transfers"]), measured=False,
    )  # fmt: skip
