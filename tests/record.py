"""Record sums and dot products of one library, for the tests to replay: ``python tests/record.py LIBRARY OUT.npz``.

The terms come from integer arithmetic alone, so that they need not be stored and no version of NumPy changes them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

LAWS = ("uniform", "signed", "wide", "zeros")
_FEW = (*range(1, 70), 95, 96, 97, 100, 127, 128, 129, 255, 256, 257, 300, 511, 512, 513, 1000, 1023, 1024, 1025)
_MORE = (2047, 2048, 2049, 4095, 4096, 4097, 8191, 8192, 8193, 8200, 16384, 20000, 32767, 32768, 32769, 65536, 65537)
_DRAWN = tuple(70 + 7919 * i * i % 3989 for i in range(60)) + tuple(4100 + 104729 * i * i % 40009 for i in range(70))
SIZES = tuple(sorted({*_FEW, *_MORE, *_DRAWN}))
LARGE = (98304, 98305, 100003, 131072, 262147, 1000003)


def terms(n: int, law: str, seed: int) -> NDArray[np.float32]:
    """Return n float32 terms of a law."""
    z = np.arange(1, n + 1, dtype=np.uint64) + np.uint64(seed << 32)
    z = z * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    words = (z ^ (z >> np.uint64(31))) >> np.uint64(16)
    fraction = (words % np.uint64(1 << 24)).astype(np.float64) / 2**24
    sign = np.where(words >> np.uint64(40) & np.uint64(1), 1.0, -1.0)
    power = (words >> np.uint64(24) & np.uint64(63)).astype(np.int64) - 31
    values = {
        "uniform": fraction,
        "signed": sign * fraction,
        "wide": sign * np.ldexp(1 + fraction, power),
        "zeros": np.array([0.0, -0.0, 1e-30, -1e-30, 1.0])[(words % np.uint64(5)).astype(np.int64)],
    }
    return values[law].astype(np.float32)


def operands(n: int, law: str, count: int) -> list[NDArray[np.float32]]:
    """Return the operands of the recorded call with n terms."""
    return [terms(n, law, 2 * n + place) for place in range(count)]


def strided(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return x with room between its elements."""
    wide = np.zeros(2 * x.size, np.float32)
    wide[::2] = x
    return wide[::2]


def record(call: Callable[..., Any], sizes: tuple[int, ...], count: int = 1) -> dict[str, NDArray[Any]]:
    """Return the sizes, and the bits of the results of shape (sizes, laws)."""
    rows = [[np.float32(call(*operands(n, law, count))).view(np.uint32) for law in LAWS] for n in sizes]
    return {"n": np.array(sizes, np.int32), "bits": np.array(rows, np.uint32)}


def _numpy() -> dict[str, dict[str, NDArray[Any]]]:
    """NumPy: the dot product of OpenBLAS (set OPENBLAS_CORETYPE) and einsum."""
    sizes = tuple(n for n in SIZES if n > 1)
    return {
        "dot": record(np.vdot, SIZES, 2),
        "dot.strided": record(lambda x, y: np.dot(strided(x), y), sizes, 2),
        "einsum.sum": record(lambda x: np.einsum("i->", x), SIZES),
        "einsum.sum.strided": record(lambda x: np.einsum("i->", strided(x)), sizes),
        "einsum.dot": record(lambda x, y: np.einsum("i,i->", x, y), SIZES, 2),
        "einsum.dot.strided": record(lambda x, y: np.einsum("i,i->", strided(x), y), sizes, 2),
    }


def _torch() -> dict[str, dict[str, NDArray[Any]]]:
    """PyTorch on the CPU, by number of threads."""
    torch = import_module("torch")

    out = {}
    for threads in (1, 2, 3, 8, 20):
        torch.set_num_threads(threads)
        sizes = (*(n for n in SIZES if threads < 3 or n >= 32768), *LARGE)
        out[f"threads{threads}"] = record(lambda x: torch.from_numpy(x).sum(), sizes)
    return out


def _jax() -> dict[str, dict[str, NDArray[Any]]]:
    """JAX on the CPU."""
    jax = import_module("jax")

    add = jax.jit(lambda x: x.sum())
    return {"sum": record(add, tuple(n for n in SIZES if n < 4096))}


def _tensorflow(threads: str) -> dict[str, dict[str, NDArray[Any]]]:
    """TensorFlow on the CPU."""
    tf = import_module("tensorflow")

    tf.config.threading.set_intra_op_parallelism_threads(int(threads))
    sizes = (*SIZES, *LARGE) if threads == "1" else LARGE[2:]
    return {f"threads{threads}": record(lambda x: tf.reduce_sum(tf.constant(x)), sizes)}


def _torch_cuda() -> dict[str, dict[str, NDArray[Any]]]:
    """PyTorch on a GPU; `shift` elements behind a multiple of 16 bytes."""
    torch = import_module("torch")

    def shifted(shift: int) -> Callable[[NDArray[np.float32]], Any]:
        def call(x: NDArray[np.float32]) -> Any:
            room = torch.zeros(x.size + 4, device="cuda")
            room[shift : shift + x.size] = torch.from_numpy(x)
            return room[shift : shift + x.size].sum().cpu()

        return call

    large = (*SIZES, *LARGE, 130560, 130561, 131073, 200000, 524288, 2000000, 10000019, 40000003)
    return {f"shift{shift}": record(shifted(shift), large if not shift else SIZES) for shift in range(4)}


def _cupy() -> dict[str, dict[str, NDArray[Any]]]:
    """CuPy on a GPU."""
    cupy = import_module("cupy")

    def unaligned(x: NDArray[np.float32]) -> Any:
        room = cupy.zeros(x.size + 1, np.float32)
        room[1:] = cupy.asarray(x)
        return room[1:].sum().get()

    sizes = (*SIZES, *LARGE, 2000000, 10000019, 21626880, 21626881, 30000001)
    return {"vector": record(lambda x: cupy.asarray(x).sum().get(), sizes), "single": record(unaligned, SIZES)}


LIBRARIES: dict[str, Callable[..., dict[str, dict[str, NDArray[Any]]]]] = {
    "numpy": _numpy, "torch": _torch, "jax": _jax, "tensorflow": _tensorflow, "torch.cuda": _torch_cuda, "cupy": _cupy,
}  # fmt: skip


if __name__ == "__main__":
    library, path, *rest = sys.argv[1:]
    cases = LIBRARIES[library](*rest)
    arrays: dict[str, Any] = {f"{case}/{name}": x for case, data in cases.items() for name, x in data.items()}
    np.savez_compressed(path, **arrays)
