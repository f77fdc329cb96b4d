"""CUDA C kernels from source as functions of NumPy arrays, which `fpsim.reveal` takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from fpsim.devices._libraries import imported
from fpsim.errors import InputError, MissingExtraError

Array = NDArray[Any]
Size = int | tuple[int, ...]
_INTEGERS: Final = {"int32": np.int32, "int64": np.int64, "uint32": np.uint32, "uint64": np.uint64}
_DEFAULT: Final = {(1,): "x out n", (1, 1): "a b out n", (2, 1): "a b out m k", (1, 2): "a b out k n"}
_PRODUCT: Final = "a b out m n k"


class Launcher(Protocol):
    """What compiles and launches: CuPy, or something in its place."""

    def compile(self, source: str, name: str, options: tuple[str, ...], /) -> Callable[..., None]:
        """Return a function of grid, block, arguments and bytes of shared memory."""

    def load(self, x: Array, /) -> Any:
        """Return an array on the device."""

    def fetch(self, x: Any, /) -> Array:
        """Return an array on the host."""


def kernel(
    source: str,
    name: str,
    /,
    *,
    grid: Size | Callable[..., Size],
    block: Size,
    arguments: str | None = None,
    result: str = "float32",
    options: Sequence[str] = (),
    shared: int = 0,
    launcher: Launcher | None = None,
) -> Callable[..., Array]:
    """Return a CUDA C kernel as a function of NumPy arrays, compiled by NVRTC.

    Parameters
    ----------
    source : str
        The source, with ``extern "C"`` before the kernel.
    name : str
        The kernel.
    grid : int, tuple of int, or callable
        Blocks; a function is called with the sizes by name, as ``lambda *, m, n, **_: ((n + 15) // 16, (m + 15) // 16)``.
    block : int or tuple of int
        Threads of a block.
    arguments : str, optional
        What the kernel takes, in its order: ``x`` or ``a`` and ``b`` for the operands, ``out`` for the results, which are
        zeros before, and the sizes ``n``, ``m``, ``k`` as ``int`` or as in ``n:int64``. By default ``x out n`` for sums,
        ``a b out n`` for dot products and ``a b out m n k`` for products of matrices (m, k) and (k, n).
    result : str
        The type of the results.
    options : sequence of str
        For NVRTC, such as ``-fmad=false`` or ``-std=c++17``.
    shared : int
        Bytes of dynamic shared memory.
    launcher : Launcher, optional
        CuPy by default.

    Raises
    ------
    MissingExtraError
        CuPy or a GPU is missing.
    InputError
        The arguments name something unknown.

    Examples
    --------
    >>> from fpsim.devices.cuda_source import kernel
    >>> source = '''extern "C" __global__ void add(const float* x, float* out, int n) {
    ...     float total = 0;
    ...     for (int i = 0; i < n; i++) total += x[i];
    ...     *out = total;
    ... }'''
    >>> fpsim.reveal(kernel(source, "add", grid=1, block=1), n=100).strategy  # doctest: +SKIP
    serial
    """
    device = _CuPy() if launcher is None else launcher
    if arguments is not None:
        _words(arguments)
    run = device.compile(source, name, tuple(options))

    def launch(*operands: Array) -> Array:
        sizes, shape = _sizes(operands)
        known = {**dict(zip("ab" if len(operands) == 2 else "x", map(device.load, operands), strict=True))}
        known["out"] = out = device.load(np.zeros(shape or (1,), result))
        dimensions = tuple(x.ndim for x in operands)
        given = []
        for word, form in _words(arguments or _DEFAULT.get(dimensions, _PRODUCT)):
            if word not in known and word not in sizes:
                message = f"{name} is called with {', '.join((*known, *sizes))}, not with {word}"
                raise InputError(message)
            given.append(known[word] if word in known else _INTEGERS[form](sizes[word]))
        blocks = grid(**sizes) if callable(grid) else grid
        run(_size(blocks), _size(block), tuple(given), shared)
        found = device.fetch(out)
        return found if shape else found[0]

    return launch


def _words(arguments: str) -> list[tuple[str, str]]:
    words = []
    for word in arguments.replace(",", " ").split():
        one, _, form = word.partition(":")
        if one not in ("x", "a", "b", "out", "n", "m", "k") or (form or "int32") not in _INTEGERS:
            message = f"unknown argument {word!r} of a kernel; use x, a, b, out, n, m, k, or a size as in n:int64"
            raise InputError(message)
        words.append((one, form or "int32"))
    return words


def _sizes(operands: Sequence[Array]) -> tuple[dict[str, int], tuple[int, ...]]:
    """Return the sizes by name, and the shape of the results."""
    shapes = [x.shape for x in operands]
    if len(shapes) == 1:
        return {"n": int(np.prod(shapes[0]))}, ()
    left, right = shapes
    if len(left) == len(right) == 1:
        return {"n": left[0]}, ()
    if len(right) == 1:
        return {"m": left[0], "k": left[1]}, (left[0],)
    if len(left) == 1:
        return {"k": left[0], "n": right[1]}, (right[1],)
    return {"m": left[0], "n": right[1], "k": left[1]}, (left[0], right[1])


def _size(value: Size) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


class _CuPy:
    """CuPy, which compiles by NVRTC."""

    def __init__(self) -> None:
        self.cupy, reason = imported("cupy", "CuPy", "cupy-cuda13x (or cupy-cuda12x, as the driver needs)")
        if not reason:
            try:
                self.cupy.cuda.runtime.getDeviceCount()
            except Exception as error:  # noqa: BLE001 - CuPy's own classes, or of a library that it cannot load
                reason = f"CuPy sees no CUDA device ({' '.join(str(error).split())[:200]})"
        if reason:
            message = f"kernels from source need a CUDA GPU: {reason}"
            raise MissingExtraError(message)

    def compile(self, source: str, name: str, options: tuple[str, ...], /) -> Callable[..., None]:
        cuda = self.cupy.cuda
        nvrtc = cuda.nvrtc
        # CuPy's own compilation ends with -ftz=true, whatever the caller's options say.
        capability = cuda.Device().compute_capability
        folder = cuda.get_cuda_path()
        given = (f"-arch=sm_{capability}", *([f"-I{folder}/include"] if folder else []), *options)
        program = nvrtc.createProgram(source, f"{name}.cu", (), ())
        try:
            nvrtc.compileProgram(program, given)
            module = cuda.function.Module()
            module.load(nvrtc.getCUBIN(program))
            found = module.get_function(name)
        except Exception as error:
            log = " ".join(nvrtc.getProgramLog(program).split())
            message = f"{name} cannot be compiled: {log[:400] or ' '.join(str(error).split())[:400]}"
            raise InputError(message) from error
        finally:
            nvrtc.destroyProgram(program)

        def run(grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...], shared: int) -> None:
            found(grid, block, arguments, shared_mem=shared)

        return run

    def load(self, x: Array, /) -> Any:
        return self.cupy.asarray(np.ascontiguousarray(x))

    def fetch(self, x: Any, /) -> Array:
        found: Array = self.cupy.asnumpy(x)
        return found
