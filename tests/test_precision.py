"""`precision`: emulated black boxes of every kind, and NumPy."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fpsim
from fpsim.cli import main
from fpsim.errors import InputError
from fpsim.fixed_point import fixed_point_matmul
from fpsim.formats import BFLOAT16, TF32, Format, round_to
from fpsim.split_products import SCHEMES, pieces, split_matmul
from fpsim.switches import FULL_FLOAT32

_Function = Callable[[NDArray[Any], NDArray[Any]], Any]
SHAPE = (6, 48, 5)


def emulated(text: str) -> _Function:
    return lambda a, b: fpsim.matmul(a, b, text)


def by_pieces(pairs: list[tuple[int, int]], pieces: int, form: Format, text: str) -> _Function:
    """Return a product of operands that are split into numbers of a format, the products of pieces smallest first."""

    def split(x: NDArray[Any]) -> list[NDArray[np.float32]]:
        rest, out = x.astype(np.float64), []
        for _ in range(pieces):
            piece = np.asarray(round_to(rest, form), np.float64)
            out.append(piece.astype(np.float32))
            rest = rest - piece
        return out

    def product(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        left, right = split(a), split(b)
        total = np.zeros((a.shape[0], b.shape[1]), np.float32)
        for i, j in pairs:
            total = total + fpsim.matmul(left[i], right[j], text)
        return total

    return product


THREE = [(0, 1), (1, 0), (0, 0)]
SIX = [(2, 0), (0, 2), (1, 1), *THREE]
NINE = [(2, 2), (1, 2), (2, 1), *SIX]
BF16, TF32_UNIT = "fused(16)+align(25)", "fused(8)+align(25)"
# Name, function, products, accumulator, its rounding, fraction bits of fused adds, and whether it is reduced.
KINDS: dict[str, tuple[str, _Function, str | None, str, str | None, int | None, bool]] = {
    "separate": ("float32", emulated("serial"), "separate", "float32", "nearest-even", None, False),
    "pairwise": ("float32", emulated("pairwise"), "separate", "float32", "nearest-even", None, False),
    "fma": ("float32", emulated("lanes(8)+fma"), "fma", "float32", "nearest-even", None, False),
    "fma of odd lanes": ("float32", emulated("lanes(5, combine=pairwise)+fma"), "fma", "float32", "nearest-even", None, False),
    "fma of chunks": ("float32", emulated("chunks(16, reverse)+fma"), "fma", "float32", "nearest-even", None, False),
    "lanes": ("float32", emulated("lanes(16, combine=fold)"), "separate", "float32", "nearest-even", None, False),
    "truncated": ("float32", emulated("serial+acc(float32, toward_zero)"), "separate", "float32", "toward-zero", None, False),
    "tf32": ("TF32", emulated(f"{TF32_UNIT}+operands(tf32)"), None, "float32", "toward-zero", 25, True),
    "tf32 chunks": ("TF32", emulated("chunks(16, fused(4)+align(24))+operands(tf32, nearest_away)"), None, "float32", None, 24, True),
    "tf32 instruction": ("TF32", emulated("tensor_core(arch=hopper, type=tf32)"), None, "float32", "toward-zero", 25, True),
    "tf32 alone": ("TF32", emulated("serial+fma+operands(tf32)"), None, "float32", "nearest-even", None, True),
    "bfloat16": ("bfloat16", emulated(f"{BF16}+operands(bfloat16)"), None, "float32", "toward-zero", 25, True),
    "float16": ("float16", emulated(f"{BF16}+operands(float16)"), None, "float32", None, 25, True),
    "e4m3": ("e4m3fn", emulated("fused(32)+align(13)+operands(e4m3fn)"), None, "14-bit", "toward-zero", 13, True),
    "mixed": ("TF32 times bfloat16", emulated(f"{TF32_UNIT}+operands(tf32, bfloat16)"), None, "float32", "toward-zero", 25, True),
    "bf16x3": ("bf16x3", by_pieces(THREE, 2, BFLOAT16, BF16), None, "float32", "toward-zero", 25, True),
    "bf16x4": ("bf16x4", by_pieces([(1, 1), *THREE], 2, BFLOAT16, BF16), None, "float32", "toward-zero", 25, True),
    "bf16x6": ("bf16x6", by_pieces(SIX, 3, BFLOAT16, BF16), "exact", "float32", "toward-zero", 25, False),
    "bf16x9": ("bf16x9", by_pieces(NINE, 3, BFLOAT16, BF16), "exact", "float32", "toward-zero", 25, False),
    "tf32x3": ("tf32x3", by_pieces(THREE, 2, TF32, TF32_UNIT), None, "float32", "toward-zero", 25, True),
    "float64": ("float64 accumulate", emulated("serial+acc(float64)+output(float32)"), "exact", "float64", "nearest-even", None, False),
    "float16 sums": ("float16 accumulate", emulated("serial+acc(float16)"), None, "float16", "nearest-even", None, True),
    "bfloat16 sums": ("bfloat16 accumulate", emulated("serial+fma+acc(bfloat16)"), None, "bfloat16", "nearest-even", None, True),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_kinds(kind: str) -> None:
    name, function, products, accumulator, rounding, align, reduced = KINDS[kind]
    found = fpsim.precision(function, shape=SHAPE)
    assert (found.name, found.accumulator, found.align, found.reduced) == (name, accumulator, align, reduced)
    if rounding is not None:
        assert found.rounding == rounding
    if name in ("float32", "float64 accumulate", "bf16x6", "bf16x9"):
        assert found.products == products
    assert str(found).startswith(f"matmul of 6x48x5 float32: {name}, ")
    assert found.ftz is not True
    assert found.daz is not True


@pytest.mark.parametrize(
    ("text", "mode", "form", "error"),
    [
        ("operands(tf32)", "nearest-even", "tf32", 2.0**-10), ("operands(tf32, nearest_away)", "nearest-away", "tf32", 2.0**-10),
        ("operands(tf32, toward_zero)", "toward-zero", "tf32", 2.0**-9), ("operands(bfloat16)", "nearest-even", "bfloat16", 2.0**-7),
        ("operands(bfloat16, toward_zero)", "toward-zero", "bfloat16", 2.0**-6), ("operands(float16)", "nearest-even", "float16", 2.0**-10),
    ],
)  # fmt: skip
def test_operand_rounding(text: str, mode: str, form: str, error: float) -> None:
    found = fpsim.precision(emulated(f"{TF32_UNIT}+{text}"), shape=SHAPE)
    assert found.left == found.right
    assert found.left is not None
    assert (str(found.left.form), found.left.mode) == (form, mode)
    assert error < found.error < 1.01 * error
    # What is said of the error holds, and is met by some product of that many bits.
    x, y = (1 + np.random.default_rng(0).random((2, 200))).astype(np.float32)
    got = fpsim.matmul(x[:, None], y[None], f"{TF32_UNIT}+{text}").astype(np.float64)
    worst = np.max(np.abs(got / np.multiply.outer(x.astype(np.float64), y) - 1))
    assert 0.6 * found.error < worst <= found.error


@pytest.mark.parametrize(
    ("dtype", "text", "accumulator", "result", "reduced"),
    [
        ("float16", "serial", "float32", "float32", False), ("float16", "serial+output(float16)", "float32", "float16", False),
        ("float16", "serial+acc(float16)", "float16", "float16", True),
        ("float16", "fused(16)+align(25, float16)+output(float16)", "float16", "float16", True),
        ("bfloat16", "serial+acc(bfloat16)", "bfloat16", "float32", True), ("bfloat16", BF16, "float32", "float32", False),
        ("float64", "serial+acc(float64)", "float64", "float64", False), ("float64", "serial", "float32", "float32", True),
    ],
)  # fmt: skip
def test_other_operands(dtype: str, text: str, accumulator: str, result: str, reduced: bool) -> None:
    found = fpsim.precision(emulated(text), shape=SHAPE, dtype=dtype)
    name = "float32" if (dtype, text) == ("float64", "serial") else dtype  # which rounds operands to float32
    assert (found.name, found.accumulator, found.result, found.reduced) == (name, accumulator, result, reduced)


@pytest.mark.parametrize(
    ("text", "dtype", "name", "accumulator", "promoted"),
    [
        ("tensor_core(arch=hopper, type=e4m3fn)", "e4m3fn", "e4m3fn", "14-bit", None),  # fast accumulation
        ("tensor_core(arch=hopper, type=e4m3fn)", "float32", "e4m3fn", "14-bit", None),
        ("chunks(128, tensor_core(arch=hopper, type=e4m3fn))+operands(e4m3fn)", "e4m3fn", "e4m3fn", "14-bit", 128),
        ("chunks(64, tensor_core(arch=hopper, type=e5m2))+operands(e5m2)", "float32", "e5m2", "14-bit", 64),
        # What e4m3fn does not hold is not lost in an accumulator, and what is flushed neither.
        ("tensor_core(arch=hopper, type=e4m3fn, instruction=mma)", "e4m3fn", "e4m3fn", "float32", None),
        ("tensor_core(arch=blackwell, type=e4m3fn)", "e4m3fn", "e4m3fn", "float32", None),
        ("tensor_core(arch=cdna2, type=float16)", "float16", "float16", "float32", None),
        ("tensor_core(arch=cdna3, type=float16)", "float16", "float16", "float32", None),
        ("tensor_core(arch=cdna1, type=bfloat16)", "bfloat16", "bfloat16", "float32", None),
        # Operands and sums of the same format: both are said.
        ("tensor_core(arch=hopper, type=float16, result=float16)", "float32", "float16", "float16", None),
        ("tensor_core(arch=hopper, type=float16, result=float16)", "float16", "float16", "float16", None),
        ("serial+fma+acc(float16)", "float32", "float16 accumulate", "float16", None),
        ("serial+acc(float16)+operands(float16)", "float32", "float16", "float16", None),
        ("serial+acc(bfloat16)+operands(bfloat16)", "float32", "bfloat16", "bfloat16", None),
        ("serial+output(float16)", "float32", "float32", "float32", None),
        ("serial+operands(float16)+output(float16)", "float32", "float16", "float32", None),
        ("serial+output(float16, toward_zero)", "float32", "float32", "float32", None),
        ("serial+operands(float16, toward_zero)+output(float16)", "float32", "float16", "float32", None),
    ],
)
def test_nothing_wrong_is_said(text: str, dtype: str, name: str, accumulator: str, promoted: int | None) -> None:
    found = fpsim.precision(emulated(text), shape=(4, 256, 4), dtype=dtype)
    assert (found.name, found.accumulator, found.promoted) == (name, accumulator, promoted)
    assert (f"moved to a wider one every {promoted} terms" in str(found)) is (promoted is not None)


def test_numba_fastmath() -> None:
    """A function of Numba, as LLVM compiles it: fastmath contracts products and reorders sums, and no format changes."""
    numba = pytest.importorskip("numba")

    def product(a: NDArray[Any], b: NDArray[Any]) -> Any:
        out = np.zeros((a.shape[0], b.shape[1]), a.dtype)
        for i in range(a.shape[0]):
            for j in range(b.shape[1]):
                total = a.dtype.type(0)
                for k in range(a.shape[1]):
                    total += a[i, k] * b[k, j]
                out[i, j] = total
        return out

    strict, fast = numba.njit(product), numba.njit(fastmath=True)(product)  # code as users have it
    plain = fpsim.precision(strict, shape=(4, 256, 4))
    assert (plain.name, plain.products, plain.accumulator) == ("float32", "separate", "float32")
    found = fpsim.precision(fast, shape=(4, 256, 4))
    assert (found.name, found.accumulator, found.reduced) == ("float32", "float32", False)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 4, 256)).astype(np.float32)
    exact = np.array_equal(fast(a, b.T), strict(a, b.T))
    assert found.products in (("separate",) if exact else ("separate", "fma"))


def test_fixed_point() -> None:
    found = fpsim.precision(fixed_point_matmul, shape=(4, 64, 4), dtype="float64")
    assert (found.name, found.accumulator, found.reduced) == ("float64", "56-bit", False)
    short = fpsim.precision(lambda a, b: fixed_point_matmul(a, b, count=4), shape=(4, 64, 4), dtype="float64")
    assert (short.accumulator, short.reduced) == ("28-bit", True)


@pytest.mark.parametrize("flags", ["+ftz", "+daz", "+ftz+daz"])
def test_flushed(flags: str) -> None:
    found = fpsim.precision(emulated(f"serial+fma{flags}"), shape=SHAPE)
    assert (bool(found.ftz), bool(found.daz)) == ("ftz" in flags, "daz" in flags) or flags == "+ftz"
    assert found.name == "float32"
    assert found.reduced
    assert "subnormal numbers become zero" in str(found)


@pytest.mark.parametrize("op", ["dot", "matvec", "vecmat", "sum", "mean"])
def test_operations(op: str) -> None:
    text = f"{TF32_UNIT}+operands(tf32)"
    functions: dict[str, Callable[..., Any]] = {
        "sum": lambda x: fpsim.sum(x, "pairwise+operands(tf32)"), "mean": lambda x: fpsim.mean(x, "serial+operands(tf32)"),
    }  # fmt: skip
    found = fpsim.precision(functions.get(op, emulated(text)), op=op, n=40 if op in ("dot", "sum", "mean") else None,
                            shape={"matvec": (3, 40), "vecmat": (40, 3)}.get(op))  # fmt: skip
    if op == "mean":  # 40 is no power of two
        found = fpsim.precision(functions[op], op=op, n=32)
    assert found.name == "TF32"
    assert (found.right is None) == (op in ("sum", "mean"))


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_schemes(scheme: str) -> None:
    found = fpsim.precision(lambda a, b: split_matmul(a, b, scheme=scheme), shape=SHAPE)
    assert found.name == scheme
    assert found.reduced is scheme.endswith("x3")
    x, y = (1 + np.random.default_rng(1).random((2, 200))).astype(np.float32)
    got = split_matmul(x[:, None], y[None], scheme=scheme).astype(np.float64)
    worst = np.max(np.abs(got / np.multiply.outer(x.astype(np.float64), y) - 1))
    if found.reduced:
        assert 0.4 * found.error < worst <= found.error
    else:
        assert worst <= 4 * 2.0**-23  # of truncated additions


def test_pieces_and_special_values() -> None:
    x = np.random.default_rng(2).standard_normal((50, 4)).astype(np.float32)
    for scheme, (form, count, pairs) in SCHEMES.items():
        parts = pieces(x, scheme=scheme)
        assert len(parts) == count
        assert all(np.array_equal(round_to(part, form), part) for part in parts)
        total = np.sum([part.astype(np.float64) for part in parts], axis=0)
        assert np.array_equal(total, x) is (count == 3)
        assert len(pairs) == len(set(pairs)) == int(scheme[5:])
        a, b = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)
        a[0, 1] = np.inf
        assert split_matmul(a, b, scheme=scheme).tolist() == [[np.inf] * 2, [3.0] * 2]
    (high, low), (top, rest) = pieces(x.T), pieces(x)
    small = fpsim.matmul(low, top, "serial") + fpsim.matmul(high, rest, "serial")
    expected = small + fpsim.matmul(high, top, "serial")
    assert np.array_equal(split_matmul(x.T, x, "serial"), expected)
    with pytest.raises(InputError, match="there is no scheme 'bf16x2'"):
        pieces(x, scheme="bf16x2")


def test_numpy() -> None:
    found = fpsim.precision(np.matmul, shape=(64, 64, 64))
    assert found.name == found.accumulator == found.result == "float32"
    assert not found.reduced
    assert found.products in ("fma", "separate")
    assert fpsim.precision(np.matmul, shape=(16, 64, 16), dtype="float64").name == "float64"


@pytest.mark.parametrize("library", sorted(FULL_FLOAT32))
def test_switches(library: str) -> None:
    tf32, half = emulated(f"{TF32_UNIT}+operands(tf32)"), emulated("serial+acc(float16)")
    found = fpsim.precision(tf32, shape=SHAPE, library=library)
    assert found.switch is not None
    assert found.switch.startswith(FULL_FLOAT32[library])
    assert "NVIDIA_TF32_OVERRIDE=0" in str(found)
    other = fpsim.precision(half, shape=SHAPE, dtype="float16", library=library).switch
    assert other is not None
    assert ("allow_fp16_accumulation" in other) is (library == "torch")


def test_what_nothing_explains() -> None:
    def noisy(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        return np.asarray((a @ b) * np.float32(1.001))

    found = fpsim.precision(noisy, shape=SHAPE)
    assert found.name == "not known"
    assert found.left is None
    assert found.reduced
    with pytest.raises(InputError, match="one of them"):
        fpsim.precision(np.matmul, shape=SHAPE, n=3)
    with pytest.raises(InputError, match="unknown operation"):
        fpsim.precision(np.matmul, op="solve")


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["precision", "numpy.matmul", "--shape", "16x64x16"]) == 0
    assert capsys.readouterr().out.startswith("matmul of 16x64x16 float32: float32, ")
    assert main(["precision", "numpy.dot", "--n", "100", "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["target"], printed["op"], printed["shape"], printed["name"]) == (
        "numpy.dot",
        "dot",
        [100],
        "float32",
    )
    assert main(["precision", "numpy.dot", "--n", "y"]) == 2
    assert main(["precision", "numpy.dot", "--n", "3", "--shape", "3x3x3"]) == 2
    assert "one of them" in capsys.readouterr().err
