"""Operands by seed, of integer arithmetic alone, so that recorded results can be replayed with any NumPy.

``benchmarks/gpu/check_devices.py`` runs the real routines on them; ``test_recorded_devices.py`` replays what they gave.
"""

from __future__ import annotations

import functools
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Uniform on [0, 1); bell-shaped; signed over 2^24; zeros of both signs, subnormals and ones; subnormals alone.
LAWS = ("uniform", "normal", "wide", "mixed", "subnormal")

_NEAR = tuple(2**k + d for k in range(6, 18) for d in (-1, 0, 1))
_DRAWN = tuple(64 + 7919 * i * i % 3989 for i in range(50)) + tuple(4100 + 104729 * i * i % 195887 for i in range(70))
_VECTORS = tuple((n,) for n in sorted({*range(1, 65), 96, 100, 1000, 10007, 100_000, 200_000, *_NEAR, *_DRAWN}))
_EDGES = (1, 2, 3, 5, 8, 16, 17, 31, 33, 64, 100, 129, 255, 300, 513)
_MATRICES = (*((_EDGES[i], _EDGES[(7 * i + j) % 15]) for i in range(15) for j in range(4)), (200, 1000), (3000, 7))
_PRODUCTS = (
    *(
        (_EDGES[i] % 131, _EDGES[(4 * i + j) % 15], _EDGES[(11 * i + 2 * j) % 15] % 67)
        for i in range(15)
        for j in range(4)
    ),
    (400, 400, 400),
    (1, 4096, 1),
    (16, 3000, 16),
)
#: The sizes by how many numbers they have, for `fpsim.devices.operations.OPERATIONS`.
SIZES: dict[int, tuple[tuple[int, ...], ...]] = {1: _VECTORS, 2: _MATRICES, 3: _PRODUCTS}


def _words(n: int, seed: int) -> NDArray[np.uint64]:
    """Return n words of 64 bits (SplitMix64)."""
    z = np.arange(1, n + 1, dtype=np.uint64) + np.uint64(seed << 32)
    z = z * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    out: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return out


@functools.lru_cache(maxsize=4096)
def draw(shape: tuple[int, ...], law: str, seed: int, dtype: Any = np.float32) -> NDArray[Any]:
    """Return numbers of a law in float16, float32 or float64; the same array again for the same arguments."""
    n = int(np.prod(shape))
    form = np.finfo(dtype)
    words, more = _words(n, 2 * seed), _words(n, 2 * seed + 1)
    bits = form.nmant + 1
    fraction = (words >> np.uint64(64 - bits)).astype(np.float64) / 2.0**bits
    sign = np.where(more & np.uint64(1), 1.0, -1.0)
    if law == "normal":
        parts = (more >> np.uint64(16 * k) & np.uint64(0xFFFF) for k in range(4))
        values = (sum(part.astype(np.float64) for part in parts) - 2.0**17) / 2.0**15 + fraction / 2.0**15
    elif law == "wide":
        reach = 12 if form.nexp > 5 else 4
        power = (more >> np.uint64(8)).astype(np.float64) % (2 * reach) - reach
        values = sign * np.ldexp(1 + fraction, power.astype(np.int64))
    elif law == "mixed":
        small = float(form.smallest_subnormal) * np.floor(fraction * 1000)
        values = np.choose((more >> np.uint64(8)).astype(np.int64) % 4, [0 * sign, sign * small, sign * fraction, sign])
    elif law == "subnormal":
        values = sign * float(form.smallest_subnormal) * np.floor(fraction * 2.0 ** (bits - 9))
    else:
        values = fraction
    return np.asarray(values.astype(dtype).reshape(shape))


def factors(n: int, seed: int, dtype: Any = np.float32) -> NDArray[Any]:
    """Return factors near 1, so that their product stays in range for some time."""
    fraction = (_words(n, seed) >> np.uint64(40)).astype(np.float64) / 2**24
    return np.asarray(np.where(fraction < 0.55, 0.6 + fraction, 1.5 * fraction).astype(dtype))


def operands(operation: str, shapes: tuple[tuple[int, ...], ...], law: str, dtype: Any = np.float32) -> list[Any]:
    """Return the operands of one call."""
    seed = 4 * sum(31 * size + place for place, size in enumerate(shapes[0]))
    if operation == "prod":
        return [factors(shapes[0][0], seed + LAWS.index(law), dtype)]
    return [draw(shape, law, seed + place, dtype) for place, shape in enumerate(shapes)]


def digest(result: Any) -> int:
    """Return the bits of a single float32, and a checksum of other results; all NaNs are alike."""
    values = np.array(result, copy=True)
    values[np.isnan(values)] = np.nan
    if values.size == 1 and values.dtype == np.float32:
        return int(values.view(np.uint32).reshape(-1)[0])
    return zlib.crc32(np.ascontiguousarray(values).tobytes())
