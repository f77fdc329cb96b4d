"""Elementwise functions on CPUs and GPUs: how far each library is from the correctly rounded result, and from the others.

An elementwise function has no order, so two devices differ only through the function itself. `measure` says by how
much one library does; `measure_all` also how often any two differ.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.devices import _elementwise_inputs as inputs, _elementwise_libraries as libraries
from fpsim.devices._elementwise_libraries import Elementwise
from fpsim.devices._elementwise_reference import (
    FUNCTIONS,
    Reference,
    correctly_rounded,
    observed_vector,
    reference,
    ulp_errors,
)
from fpsim.devices._elementwise_results import Comparison, ElementwiseErrors, Example
from fpsim.errors import InputError, MissingExtraError
from fpsim.kernels import elementwise as kernels

__all__ = [
    "FUNCTIONS",
    "Comparison",
    "Elementwise",
    "ElementwiseErrors",
    "Example",
    "compare",
    "correctly_rounded",
    "elementwise_implementations",
    "measure",
    "measure_all",
    "ulp_errors",
]

Array = NDArray[Any]
Progress = Callable[[int, int], None]

_BLOCK, _CHUNK = 2**22, 2**17  # inputs given to a library at once, and to a thread


def elementwise_implementations() -> list[Elementwise]:
    """Return every library that this module knows, and the models; one that cannot run here says why.

    Examples
    --------
    >>> from fpsim.devices.elementwise import elementwise_implementations
    >>> [x.name for x in elementwise_implementations()][:3]
    ['numpy', 'numba', 'libm']
    """
    return [
        libraries.numpy_elementwise(),
        libraries.numba_elementwise(),
        libraries.libm_elementwise(),
        libraries.torch_cpu_elementwise(),
        libraries.jax_cpu_elementwise(),
        libraries.numba_cuda_elementwise(),
        libraries.torch_cuda_elementwise(),
        libraries.cupy_elementwise(),
        libraries.jax_gpu_elementwise(),
        libraries.model_elementwise("torch.cuda"),
        libraries.model_elementwise("cupy"),
    ]


@dataclass(slots=True)
class _Tally:
    """Sums up the comparisons of consecutive pieces."""

    counts: Array = field(default_factory=lambda: np.zeros(kernels.N_COUNTS, np.int64))
    errors: Array = field(default_factory=lambda: np.zeros(3))
    examples: list[Example | None] = field(default_factory=lambda: [None, None, None])
    seconds: float = 0.0

    def add(self, piece: tuple[Array, Array, Array], operands: Sequence[Array], exact: Reference, y: Array) -> None:
        counts, errors, where = piece
        news = (
            errors[kernels.MAX_ULP] > self.errors[kernels.MAX_ULP],
            self.examples[kernels.AT_SPECIAL] is None,
            self.examples[kernels.AT_SUBNORMAL] is None
            or errors[kernels.MAX_SUBNORMAL_ULP] > self.errors[kernels.MAX_SUBNORMAL_ULP],
        )
        for k, is_new in enumerate(news):
            if is_new and where[k] >= 0:
                i = int(where[k])
                self.examples[k] = Example(tuple(float(x[i]) for x in operands), float(y[i]), float(exact.correct[i]))
        self.counts += counts
        self.errors[kernels.SUM_ULP] += errors[kernels.SUM_ULP]
        for k in (kernels.MAX_ULP, kernels.MAX_SUBNORMAL_ULP):
            self.errors[k] = max(self.errors[k], errors[k])

    def result(self, implementation: Elementwise, function: str, what: str) -> ElementwiseErrors:
        n = [int(x) for x in self.counts]
        measured = n[kernels.MEASURED]
        return ElementwiseErrors(
            function=function,
            implementation=implementation.name,
            library=implementation.library,
            version=implementation.version,
            device=implementation.device,
            inputs=what,
            count=n[kernels.COUNT],
            correct=n[kernels.CORRECT],
            telling=n[kernels.TELLING],
            telling_correct=n[kernels.TELLING_CORRECT],
            max_ulp=float(self.errors[kernels.MAX_ULP]),
            mean_ulp=float(self.errors[kernels.SUM_ULP]) / measured if measured else 0.0,
            worst=self.examples[kernels.AT_MAX],
            special=n[kernels.SPECIAL],
            special_example=self.examples[kernels.AT_SPECIAL],
            zero_signs=n[kernels.ZERO_SIGN],
            subnormals=n[kernels.SUBNORMALS],
            subnormal_correct=n[kernels.SUBNORMAL_CORRECT],
            flushed=n[kernels.FLUSHED],
            subnormal_max_ulp=float(self.errors[kernels.MAX_SUBNORMAL_ULP]),
            subnormal_example=self.examples[kernels.AT_SUBNORMAL],
            seconds=self.seconds,
        )


def _compared(exact: Reference, observed: Array) -> tuple[Array, Array, Array]:
    out = np.zeros(kernels.N_COUNTS, np.int64), np.zeros(3), np.zeros(3, np.int64)
    kernels.compare(exact.values, exact.correct, exact.flags, observed, *out)
    return out


class _Block:
    """One block of inputs: its reference, computed in pieces by a pool of threads, and what is compared with it."""

    def __init__(self, function: str, operands: list[Array], pool: ThreadPoolExecutor) -> None:
        size = operands[0].size
        self.function, self.operands, self.pool = function, operands, pool
        self.pieces = [slice(i, min(i + _CHUNK, size)) for i in range(0, size, _CHUNK)]
        self.exact = list(pool.map(lambda s: reference(function, *(x[s] for x in operands)), self.pieces))

    def run(self, implementation: Elementwise) -> tuple[Array, float]:
        call = implementation.functions[self.function]
        begin = time.perf_counter()
        if implementation.splits:
            parts = self.pool.map(lambda s: call(*(x[s] for x in self.operands)), self.pieces)
            out = np.concatenate(list(parts))
        else:
            out = np.ascontiguousarray(call(*self.operands))
        seconds = time.perf_counter() - begin
        if out.dtype != np.float32 or out.shape != self.operands[0].shape:
            message = f"{implementation.name} returned {out.dtype} of shape {out.shape} for {self.function} of float32"
            raise InputError(message)
        return out, seconds

    def compare(self, tally: _Tally, observed: Array) -> None:
        pairs = list(zip(self.pieces, self.exact, strict=True))
        found = self.pool.map(lambda p: _compared(p[1], observed[p[0]]), pairs)
        for (piece, exact), result in zip(pairs, found, strict=True):
            tally.add(result, [x[piece] for x in self.operands], exact, observed[piece])

    def different(self, a: Array, b: Array) -> Array:
        def count(pair: tuple[slice, Reference]) -> Array:
            piece, exact = pair
            out = np.zeros(3, np.int64)
            kernels.count_different(a[piece].view(np.uint32), b[piece].view(np.uint32), exact.flags, out)
            return out

        return np.array(list(self.pool.map(count, zip(self.pieces, self.exact, strict=True))))


def _checked(implementations: Sequence[Elementwise], function: str, samples: int, exhaustive: bool) -> str:
    if function not in FUNCTIONS:
        message = f"there is no elementwise function {function}; there are {', '.join(FUNCTIONS)}"
        raise InputError(message)
    for implementation in implementations:
        if implementation.unavailable:
            message = f"{implementation.name} cannot run here: {implementation.unavailable}"
            raise MissingExtraError(message)
        if function not in implementation.functions:
            message = f"{implementation.name} has no {function}; it has {', '.join(implementation.functions)}"
            raise InputError(message)
    operands = FUNCTIONS[function].operands
    if exhaustive and operands > 1:
        message = f"{function} takes {operands} operands, too many bit patterns to try them all; give samples"
        raise InputError(message)
    if exhaustive or samples == inputs.PATTERNS:
        return f"all {inputs.PATTERNS:,} bit patterns"
    if samples < 1 or inputs.PATTERNS % samples:
        message = f"samples must be a power of two up to 2**32, not {samples}"
        raise InputError(message)
    what = f"{samples:,} bit patterns, one at random from each {inputs.PATTERNS // samples:,}"
    return what if operands == 1 else f"{what}, with random other operands that meet them"


def measure_all(
    implementations: Sequence[Elementwise],
    function: str,
    /,
    *,
    samples: int = 2**22,
    exhaustive: bool = False,
    rng: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare the results of several libraries with the correctly rounded ones, and with each other.

    Parameters
    ----------
    implementations : sequence of Elementwise
        Available ones that have the function.
    function : str
        A name in `FUNCTIONS`. ``multiply_add`` is ``a*b + c`` as the library evaluates it, compared with one rounding.
    samples : int
        How many inputs, a power of two. One bit pattern is drawn from each of so many equal intervals of the 2**32 bit
        patterns, so that every exponent has its part; further operands are drawn to meet the first.
    exhaustive : bool
        Take all 2**32 bit patterns. Only for functions of one operand.
    rng : int
        Seed of the inputs.
    threads : int, optional
        Threads that compute the reference and compare. Default: one for each processor. It does not change the result.
    progress : callable, optional
        Is called with the number of inputs done and the number of all, after each 2**22.

    Raises
    ------
    InputError
        The function is unknown or missing, or a setting does not fit it.
    MissingExtraError
        A library cannot run here.
    """
    what = _checked(implementations, function, samples, exhaustive)
    total = inputs.PATTERNS if exhaustive else samples
    tallies = [_Tally() for _ in implementations]
    pairs = [(i, j) for j in range(len(implementations)) for i in range(j)]
    different = np.zeros((len(pairs), 2), np.int64)
    farthest = np.zeros(len(pairs), np.int64)
    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        for number, start in enumerate(range(0, total, _BLOCK)):
            stop = min(start + _BLOCK, total)
            generator = np.random.default_rng([rng, number])
            operands = inputs.operands(function, FUNCTIONS[function].operands, start, stop, total, generator)
            block = _Block(function, operands, pool)
            results = []
            for implementation, tally in zip(implementations, tallies, strict=True):
                observed, seconds = block.run(implementation)
                tally.seconds += seconds
                block.compare(tally, observed)
                results.append(observed)
            for k, (i, j) in enumerate(pairs):
                found = block.different(results[i], results[j])
                different[k] += found[:, :2].sum(axis=0)
                farthest[k] = max(farthest[k], found[:, 2].max())
            if progress:
                progress(stop, total)
    names = [x.name for x in implementations]
    return Comparison(
        function,
        [t.result(x, function, what) for t, x in zip(tallies, implementations, strict=True)],
        {(names[i], names[j]): (int(a), int(b)) for (i, j), (a, b) in zip(pairs, different.tolist(), strict=True)},
        {(names[i], names[j]): int(far) for (i, j), far in zip(pairs, farthest, strict=True)},
    )


def measure(
    implementation: Elementwise,
    function: str,
    /,
    *,
    samples: int = 2**22,
    exhaustive: bool = False,
    rng: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> ElementwiseErrors:
    """Compare the results of one library with the correctly rounded ones; the settings are those of `measure_all`.

    Examples
    --------
    >>> from fpsim.devices.elementwise import elementwise_implementations, measure
    >>> numpy = elementwise_implementations()[0]
    >>> print(measure(numpy, "sqrt", samples=2**12))
    sqrt of numpy: correctly rounded for all 4,096 inputs
    """
    settings: dict[str, Any] = {"samples": samples, "exhaustive": exhaustive, "rng": rng, "threads": threads}
    return measure_all([implementation], function, **settings, progress=progress).errors[0]


def compare(implementation: Elementwise, function: str, /, *operands: Any, observed: Any) -> ElementwiseErrors:
    """Compare results that a library gave before with the correctly rounded ones.

    Parameters
    ----------
    implementation : Elementwise
        What gave them; it need not be available.
    function : str
        A name in `FUNCTIONS`.
    *operands, observed : float32 arrays of one shape
        What it was given, and what it gave.

    Raises
    ------
    InputError
        The function is unknown, or the arrays do not fit it.
    """
    exact = reference(function, *operands)
    results = observed_vector(observed, operands)
    tally = _Tally()
    tally.add(_compared(exact, results), [np.ravel(x) for x in operands], exact, results)
    return tally.result(implementation, function, f"{results.size:,} recorded inputs")
