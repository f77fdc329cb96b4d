"""The CUDA kernels without a GPU: the rounding instructions in their PTX, and what they say of themselves."""

from __future__ import annotations

import re
from collections import Counter
from importlib import metadata
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim.devices import _cuda_kernels as kernels, numba_cuda
from fpsim.devices.base import Implementation
from fpsim.errors import MissingExtraError, UnknownOrderError

CASES = [
    (name, product, form)
    for name in (*kernels.REDUCTIONS, *kernels.PRODUCTS)
    for product in ("sum", "fused", "separate")
    for form in ("float32", "float64")
    if (name, product) not in {(name, "sum") for name in kernels.PRODUCTS}
]
BROKEN = numba_cuda._numbers(np.__version__) >= (2, 5)
#: Instructions on floating-point numbers that may round.
ROUNDING = re.compile(r"(add|sub|mul|fma|mad|div|rcp|sqrt|rsqrt|ex2|lg2|sin|cos|tanh|cvt)\..*\b[bf]?f\d+")
needs_numba_cuda = pytest.mark.skipif(
    find_spec("numba_cuda") is None or BROKEN, reason="needs numba-cuda, and NumPy below 2.5, with which it works"
)


def instructions(ptx: str) -> Counter[str]:
    """Count the instructions of a PTX text by name."""
    return Counter(re.findall(r"^\s*(?:@!?%p\d+\s+)?([a-z][\w.:]*)\s[^;]*;", ptx, re.MULTILINE))


@pytest.mark.parametrize(("name", "product", "form"), CASES)
@needs_numba_cuda
def test_the_kernel_rounds_as_its_order_demands(name: str, product: Any, form: str) -> None:
    cuda = kernels.numba_cuda()
    ptx, _ = cuda.compile_ptx(kernels.source(name, product, form), kernels.signature(name, form), cc=(9, 0))
    found, t = instructions(ptx), "f64" if form == "float64" else "f32"
    rounding = {name: count for name, count in found.items() if ROUNDING.match(name)}
    assert not re.search(r"\.ftz|\.approx|\." + ("f32" if t == "f64" else "f64"), ptx)

    # The compiler copies loops; each copy reads its terms once.
    where = "shared" if name == "matmul_tiled" else "global"
    terms = found[f"ld.{where}.{t}"] + 4 * found[f"ld.global.v4.{t}"] + 2 * found[f"ld.global.v2.{t}"]
    assert terms > 0
    added = combining(name, found, t)
    together = {f"add.{t}": added} if added else {}
    if product == "sum":
        assert rounding == {f"add.{t}": terms + added}
    elif product == "fused":
        assert rounding == {f"fma.rn.{t}": terms / 2} | together
    else:
        # Only with the suffix .rn does the assembler leave a product and its addition apart.
        assert rounding == {f"mul.rn.{t}": terms / 2, f"add.rn.{t}": terms / 2} | together


def combining(name: str, found: Counter[str], t: str) -> int:
    """Return how many additions combine the threads of a block, from how values reach other threads."""
    parts = kernels.REDUCTIONS.get(name)
    halves = 2 if t == "f64" else 1  # a float64 is shuffled in halves
    shuffles = {place: found[f"shfl.sync.{place}.b32"] // halves for place in ("down", "bfly", "up", "idx")}
    wide = "v2.f64" if t == "f64" else "v4.f32"
    assert (found[f"ld.global.{wide}"] > 0) == (parts is not None and parts.collect == "float4")
    assert (found[f"atom.global.add.{t}"] > 0) == (name == "atomic")
    if parts is None or parts.combine == "none":
        assert not any(shuffles.values())
        return 0
    if parts.combine == "fold":
        assert not any(shuffles.values())
        steps = found[f"st.shared.{t}"] - 1  # after the first, each stores a sum
        assert steps in (1, parts.block.bit_length() - 1)
        return steps + (3 if parts.collect == "float4" else 0)
    direction = "down" if parts.combine == "down" else "bfly"
    assert [place for place, count in shuffles.items() if count] == [direction]
    if direction == "down":
        return shuffles["down"]
    return shuffles["bfly"] + found[f"ld.shared.{t}"] - 1  # the first warp's sum is not added to anything


@needs_numba_cuda
def test_shuffles_go_over_the_lanes_that_the_order_names() -> None:
    cuda = kernels.numba_cuda()
    for name, offsets in (("shuffle_down", [16, 8, 4, 2, 1] * 2), ("shuffle_xor", [1, 2, 4, 8, 16])):
        ptx, _ = cuda.compile_ptx(kernels.source(name, "sum"), kernels.signature(name), cc=(9, 0))
        given = re.findall(r"shfl\.sync\.\w+\.b32\s+%r\d+\|%p\d+, %r\d+, (%r\d+|\d+),", ptx)
        values = dict(re.findall(r"mov\.(?:u|b|s)32\s+(%r\d+), (\d+);", ptx))
        assert [int(values.get(place, place)) for place in given] == offsets


def named(name: str) -> Implementation:
    return next(one for one in numba_cuda.implementations() if one.name == name)


def shapes_of(operation: str, n: int) -> list[tuple[int, ...]]:
    return [(3, n), (n, 2)] if operation == "matmul" else [(n,)] * (1 if operation == "sum" else 2)


@pytest.mark.parametrize("form", ["float32", "float64"])
def test_every_kernel_states_an_order_for_every_size(form: str) -> None:
    rng = np.random.default_rng(0)
    for one in numba_cuda.implementations():
        if one.name == "numba.cuda.reduce" and form == "float64":
            continue
        for operation, routine in one.routines.items():
            for n in (1, 2, 255, 256, 257, 5000):
                operands = [rng.normal(size=shape).astype(form) for shape in shapes_of(operation, n)]
                if "atomic" in one.name and n > kernels.BLOCK:
                    with pytest.raises(UnknownOrderError, match="arrive in any order"):
                        routine.strategy(*operands)
                    assert not routine.reproducible
                    continue
                text = str(routine.strategy(*operands))
                result = getattr(fpsim, operation)(*operands, text)
                wide = [x.astype(np.longdouble) for x in operands]
                exact = np.sum(wide[0]) if operation == "sum" else np.matmul(*wide)
                assert result.dtype == form
                assert np.max(np.abs(result - exact)) < 1e3 * np.finfo(form).eps * np.sqrt(n)
                assert ("+fma" in text) == (operation != "sum" and not one.name.endswith(".separate"))


def test_other_types_are_unknown() -> None:
    for one in numba_cuda.implementations():
        for operation, routine in one.routines.items():
            operands = [np.ones((2, 2), np.float16)] * (1 if operation == "sum" else 2)
            with pytest.raises(UnknownOrderError, match="take float32 and float64, not float16"):
                routine.strategy(*operands)
    with pytest.raises(UnknownOrderError, match="not known for operands in float64"):
        fpsim.sum(np.ones(3), named("numba.cuda.reduce").routines["sum"].strategy(np.ones(3)))


def test_why_the_kernels_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert "numba-cuda is not installed" in named("cuda.serial").unavailable
    with pytest.raises(MissingExtraError, match=r"cuda\.float4 cannot run here"):
        named("cuda.float4").run("sum", np.ones(3, np.float32))
    monkeypatch.setattr(metadata, "version", lambda _: "0.30.4")
    monkeypatch.setattr(np, "__version__", "2.5.2")
    assert "pip install 'numpy<2.5'" in named("numba.cuda.reduce").unavailable
    monkeypatch.setattr(np, "__version__", "2.4.6")
    gpus = type("Cuda", (), {"is_available": staticmethod(lambda: False)})
    monkeypatch.setattr(kernels, "numba_cuda", lambda: gpus)
    assert "no CUDA GPU" in named("cuda.serial").unavailable

    def broken() -> Any:
        message = "libcuda.so: too old"
        raise OSError(message)

    gpus = type("Cuda", (), {"is_available": staticmethod(lambda: True), "get_current_device": staticmethod(broken)})
    assert "cannot use the GPU (OSError: libcuda.so: too old)" in named("cuda.serial").unavailable
    monkeypatch.setattr(kernels, "numba_cuda", broken)
    assert "cannot be imported (OSError: libcuda.so: too old)" in named("cuda.serial").unavailable
