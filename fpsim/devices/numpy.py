"""NumPy on the CPU: its reductions, its products through OpenBLAS, and the loops of ``einsum``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fpsim.devices._libraries import is_x86, release
from fpsim.devices._openblas import numpy_blas
from fpsim.devices.base import Array, Implementation, Routine
from fpsim.emulation import product_shape
from fpsim.errors import UnknownOrderError
from fpsim.formats import as_format
from fpsim.strategies import strategy as as_strategy

_FLOATS = ("float16", "float32", "float64")
_RELEASES = (2, 3), (2, 5)  # the first and the last release whose reductions and einsum are known
_BUFFER = 8192  # elements, NumPy's default
_FMA_BASELINES = {"FMA3", "AVX2", "X86_V3", "X86_V4", "AVX512F"}
# NumPy multiplies float16 without BLAS: serially in float32, and rounds once. A norm goes on from the rounded sum.
_HALF_DOT = "serial+start(0.0)+output(float16)"
_HALF_NORM = "split(1, serial+acc(float32)+output(float16))+acc(float16)"
_CUMSUM = {"float16": "serial+acc(float16)", "float32": "serial", "float64": "serial+acc(float64)"}


def implementations() -> list[Implementation]:
    """Return ``numpy`` and ``numpy.einsum``."""
    version, device = np.__version__, f"CPU, {numpy_blas()}"
    return [
        Implementation("numpy", "NumPy", version, device, "cpu", _routines()),
        Implementation("numpy.einsum", "NumPy", version, "CPU, loops of its own", "cpu", _einsum_routines()),
    ]


def _routines() -> dict[str, Routine]:
    def reduction(launch: Callable[..., Any], text: str) -> Routine:
        return Routine(launch, _known(text, _RELEASES))

    def cumulative(x: Array) -> str:
        return _known(_CUMSUM.get(x.dtype.name, ""))(x)

    return {
        "sum": reduction(np.sum, "numpy_sum"),
        "sum_axis0": reduction(lambda x: np.sum(x, axis=0), "numpy_sum"),
        "sum_axis1": reduction(lambda x: np.sum(x, axis=1), "numpy_sum"),
        "mean": reduction(np.mean, "numpy_sum"),
        "var": reduction(np.var, "numpy_sum"),
        "std": reduction(np.std, "numpy_sum"),
        "prod": reduction(np.prod, "numpy_prod"),
        "norm": Routine(np.linalg.norm, _norm),
        "cumsum": Routine(np.cumsum, cumulative),
        "dot": Routine(np.dot, _dot),
        "matvec": Routine(np.matmul, _product),
        "vecmat": Routine(np.matmul, _product),
        "matmul": Routine(np.matmul, _product),
        "multiply": Routine(np.multiply, _known("serial")),
    }


def _known(text: str, releases: tuple[tuple[int, int], tuple[int, int]] | None = None) -> Callable[..., str]:
    """Return a strategy that is known for floats, in some releases of NumPy."""

    def strategy(*operands: Array) -> str:
        _check_floats(*operands)
        if releases is not None and not releases[0] <= release(np.__version__) <= releases[1]:
            first, last = (".".join(map(str, one)) for one in releases)
            message = f"this order is known for NumPy {first} to {last}, not for {np.__version__}"
            raise UnknownOrderError(message)
        if releases is not None and np.getbufsize() != _BUFFER:
            message = f"this order is known for NumPy's buffers of {_BUFFER} elements, not of {np.getbufsize()}"
            raise UnknownOrderError(message)
        return text

    return strategy


def _check_floats(*operands: Array) -> None:
    for x in operands:
        if x.dtype.name not in _FLOATS:
            message = f"the orders of NumPy are known for {', '.join(_FLOATS)}, not for {x.dtype}"
            raise UnknownOrderError(message)


def _norm(x: Array) -> str:
    """``np.linalg.norm`` of a vector is the root of ``np.dot`` of the vector with itself."""
    return _HALF_NORM if x.dtype == np.float16 else _dot(x, x)


def _dot(a: Array, b: Array) -> str:
    _check_floats(a, b)
    if a.dtype == np.float16:
        return _HALF_DOT
    if a.size <= 1:  # one product is not added to anything
        return "serial" if a.dtype == np.float32 else "serial+acc(float64)"
    blas = numpy_blas()
    blas.check()
    if a.dtype == np.float64:
        return _checked(f"openblas_ddot(core={blas.core}, threads={blas.threads})", a, b)
    return _checked(f"openblas_sdot(core={blas.core})", a, b)


def _product(a: Array, b: Array) -> str:
    _check_floats(a, b)
    if a.dtype == np.float16:
        return _HALF_DOT
    blas = numpy_blas()
    blas.check()
    kernels = f'core={blas.core}, threads={blas.threads}, version="{blas.version}"'
    if blas.version != "0.3.31":
        kernels += f", processor={blas.processor}"
    return _checked(f"numpy_matmul({kernels}, data={a.dtype.name})", a, b)


def _checked(text: str, a: Array, b: Array) -> str:
    """Return the canonical text of a strategy, after its rule was asked whether it knows this product."""
    chosen = as_strategy(text)
    chosen.arithmetic(as_format(a.dtype))
    chosen.order.product(product_shape(a, b))
    return str(chosen)


# --- einsum ---------------------------------------------------------------------------------------------------------


def _einsum_routines() -> dict[str, Routine]:
    def launch(subscripts: str) -> Callable[..., Any]:
        return lambda *operands: np.einsum(subscripts, *operands, optimize=False)

    return {
        "sum": Routine(launch("i->"), _einsum("einsum_sum")),
        "dot": Routine(launch("i,i->"), _einsum("einsum_dot")),
        "matmul": Routine(launch("ij,jk->ik"), _einsum_matmul),
    }


def _einsum(text: str) -> Callable[..., str]:
    known = _known(text, _RELEASES)

    def strategy(*operands: Array) -> str:
        _check_einsum()
        for x in operands:
            as_strategy(text).arithmetic(as_format(x.dtype))
        return known(*operands)

    return strategy


def _check_einsum() -> None:
    build: Any = np.show_config(mode="dicts")
    baseline = _FMA_BASELINES.intersection(build.get("SIMD Extensions", {}).get("baseline", ()))
    if not is_x86() or baseline:
        message = (
            "the loops of einsum are known for x86-64 builds of NumPy whose baseline has no FMA, as wheels have it"
        )
        raise UnknownOrderError(message)


def _einsum_matmul(a: Array, b: Array) -> str:
    """Return how outputs are added to: serially, from zero, for the inner loop runs along the rows of b."""
    _check_einsum()
    known = {"float32": "serial+start(0.0)", "float64": "serial+start(0.0)+acc(float64)"}
    if a.dtype.name not in known:
        message = f"matrix products of einsum are known for float32 and float64, not for {a.dtype}"
        raise UnknownOrderError(message)
    if b.shape[1] == 1 and a.shape[1] > 1:
        if a.shape[0] == 1:
            return _einsum("einsum_dot")(a, b)
        message = "with one column einsum adds along the rows of a matrix in chunks that cut across them: not modelled"
        raise UnknownOrderError(message)
    return _known(known[a.dtype.name], _RELEASES)(a, b)
