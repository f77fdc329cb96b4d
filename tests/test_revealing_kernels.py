"""Kernels revealed without a GPU: in Numba's simulator and from their PTX; and the PTX alone."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim._ptx import facts_of
from fpsim._revealed import Evidence, Revealed
from fpsim.cli import main
from fpsim.devices import numba_cuda
from fpsim.errors import InputError, MissingExtraError
from fpsim.revealing_kernels import RevealedKernel, combined, reveal_kernel

needs_numba_cuda = pytest.mark.skipif(
    find_spec("numba_cuda") is None or numba_cuda._numbers(np.__version__) >= (2, 5),
    reason="needs numba-cuda, and NumPy below 2.5, with which it works",
)


def simulated(strategy: str | None, op: str = "sum", dtype: str = "float32", alternatives: Any = ()) -> Revealed:
    chosen = None if strategy is None else fpsim.strategy(strategy)
    return Revealed(op, (8,), dtype, chosen, (), tuple(alternatives), Evidence(60, 1.0, "hypothesis", 20, 20))


def of_ptx(
    text: str, strategy: str | None = "serial", *, op: str = "dot", dtype: str = "float32", result: str = "float32",
    contributions: int = 0, fastmath: bool = False,
) -> RevealedKernel:  # fmt: skip
    launch = {"name": "kernel", "ptx": text, "fastmath": fastmath, "grid": [1, 1, 1], "block": [32, 1, 1]}
    return combined(simulated(strategy, op, dtype), [launch], result, contributions)


FUSED, ADD, ADD_RN = "fma.rn.f32 %f1, %f2, %f3, %f4;", "add.f32 %f1, %f2, %f3;", "add.rn.f32 %f1, %f2, %f3;"
MUL, MUL_RN, WIDE = "mul.f32 %f1, %f2, %f3;", "mul.rn.f32 %f1, %f2, %f3;", "fma.rn.f64 %fd1, %fd2, %fd3, %fd4;"
ATOMIC = "@%p1 atom.global.add.f32 %f1, [%rd1], %f2;"


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        (FUSED, "serial+fma"),
        (f"{FUSED}\n{ADD}", "serial+fma"),
        (f"{MUL_RN}\n{ADD_RN}", "serial+separate"),
        (f"{MUL_RN}\n{ADD}", "serial+separate"),
        (WIDE, "serial+fma+acc(float64)+output(float32)"),
        ("fma.rn.ftz.f32 %f1, %f2, %f3, %f4;", "serial+fma+ftz+daz"),
    ],
)
def test_what_the_instructions_make_of_an_order(text: str, strategy: str) -> None:
    found = of_ptx(text)
    assert found.strategy == fpsim.strategy(strategy)
    assert found.reasons == ()
    assert "Not proved: the assembler" in str(found)


@pytest.mark.parametrize(
    ("text", "settings", "reason"),
    [
        (f"{MUL}\n{ADD}", {}, "the assembler may fuse them"),
        (f"{MUL_RN}\n{FUSED}", {}, "which operations are fused is not read"),
        (FUSED, {"op": "sum"}, "in a sum of single terms"),
        (f"{WIDE}\n{ADD}", {}, "additions in float32 and in float64"),
        (f"{MUL}\nadd.f64 %fd1, %fd2, %fd3;", {}, "products in float32, sums in float64"),
        (ATOMIC, {"op": "sum", "contributions": 2}, "up to 2 numbers are added to one place atomically"),
        ("atom.global.cas.b32 %r1, [%rd1], %r2, %r3;", {}, "compare-and-swaps"),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1}, {%r1}, {%r2}, {%f2};", {}, "tensor-core"),
        ("add.rz.f32 %f1, %f2, %f3;", {"op": "sum"}, "not to nearest"),
        (f"{ADD}\ndiv.approx.f32 %f1, %f2, %f3;", {"op": "mean"}, "results that the simulator does not have"),
        (f"{ADD}\nadd.ftz.f32 %f1, %f2, %f3;", {"op": "sum"}, "and others do not"),
        (ADD, {"op": "sum", "fastmath": True}, "lets the compiler change the order"),
        (ADD, {"op": "sum", "strategy": None}, "does not show one order"),
        (FUSED, {"strategy": "serial+neumaier"}, "do not go together"),
    ],
)
def test_what_is_left_open(text: str, settings: dict[str, Any], reason: str) -> None:
    found = of_ptx(text, settings.pop("strategy", "serial"), **settings)
    assert found.strategy is None
    assert not found.found
    assert any(reason in one for one in found.reasons), found.reasons
    assert "no strategy is claimed" in str(found)
    assert found.to_dict()["strategy"] is None


def test_a_single_atomic_addition_has_an_order() -> None:
    found = of_ptx(f"{ADD}\n{ATOMIC}", op="sum", contributions=1)
    assert str(found.strategy) == "serial"
    assert any("no place gets more than one" in fact for fact in found.facts)


def test_float64_and_float16_operands() -> None:
    assert str(of_ptx("add.f64 %fd1, %fd2, %fd3;", op="sum", dtype="float64", result="float64").strategy) == (
        "serial+acc(float64)"
    )
    found = of_ptx("add.f16 %rs1, %rs2, %rs3;", op="sum", dtype="float16", result="float16")
    assert str(found.strategy) == "serial+acc(float16)"


def test_a_general_order_is_claimed_instead_of_the_rule_of_a_library() -> None:
    launch = {"name": "kernel", "ptx": ADD, "fastmath": False, "grid": [1, 1, 1], "block": [32, 1, 1]}
    seen = simulated("torch_cuda_sum", alternatives=["cub_sum", "fold"])
    assert str(combined(seen, [launch], "float32", 0).strategy) == "fold"


def test_instructions_under_predicates_count_and_others_do_not() -> None:
    found = facts_of(
        f"{ATOMIC}\n @!%p3 add.f32 %f1, %f2, %f3;\n add.s32 %r1, %r2, 4; // add.f32 no\n mad.lo.s32 %r1, %r2, 4, 5;"
    )
    assert found.counts == {"atom.global.add.f32": 1, "add.f32": 1}
    assert found.atomics == ["atom.global.add.f32"]


@pytest.mark.parametrize(
    ("name", "op", "shape", "strategy"),
    [
        ("block_sum", "sum", (20,), "lanes(16, combine=fold)"),
        ("wide_sum", "sum", (9,), "serial+acc(float64)+output(float32)"),
        ("warp_sum", "sum", (32,), "fold"),
        ("separate_dot", "dot", (9,), "serial+separate"),
        ("tiled_matmul", "matmul", (3, 6, 2), "serial+fma"),
    ],
)
@needs_numba_cuda
def test_kernels_in_the_simulator(name: str, op: str, shape: tuple[int, ...], strategy: str) -> None:
    found = reveal_kernel(f"cuda_reductions.{name}", op=op, shape=shape, replays=5)
    assert found.strategy == fpsim.strategy(strategy), str(found)
    assert (found.simulated.evidence.equal, found.simulated.evidence.replays) == (5, 5)


@needs_numba_cuda
def test_atomic_additions_have_no_order() -> None:
    found = reveal_kernel("cuda_reductions:atomic_sum", n=6, replays=3)
    assert not found.found
    (reason,) = found.reasons
    assert "atom.global.add.f32: up to 6 numbers are added to one place atomically" in reason


@needs_numba_cuda
def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reveal", "cuda_reductions.wide_sum", "--cuda-simulator", "--n", "5", "--replays", "3"]
    assert main(command) == 0
    assert "sum of 5 float32 by wide_kernel[1, 1]: serial+acc(float64)+output(float32)" in capsys.readouterr().out
    assert main([*command, "--save", "x.json"]) == 2
    assert "--save does not go together with --cuda-simulator" in capsys.readouterr().err


@needs_numba_cuda
def test_what_cannot_be_revealed() -> None:
    with pytest.raises(InputError, match=r"no_such cannot be compiled to PTX \(AttributeError"):
        reveal_kernel("cuda_reductions.no_such", n=4)
    with pytest.raises(InputError, match=r"sum launches no numba\.cuda kernel"):
        reveal_kernel("numpy.sum", n=4)
    with pytest.raises(InputError, match=r"put .* in a module"):
        reveal_kernel(lambda x: x, n=4)
    with pytest.raises(InputError, match="give n for vectors or shape"):
        reveal_kernel("numpy.sum")
    with pytest.raises(InputError, match="name a function of a module"):
        reveal_kernel("sum", n=4)
    with pytest.raises(InputError, match=r"has no cuda\.libdevice\.fast_expf, so exponentials cannot be run in it"):
        reveal_kernel("cuda_reductions.exponentials", n=4)


@pytest.mark.skipif(find_spec("numba_cuda") is not None, reason="numba-cuda is there")
def test_without_numba_cuda() -> None:
    with pytest.raises(MissingExtraError, match="needs numba-cuda"):
        reveal_kernel("numpy.sum", n=4)
