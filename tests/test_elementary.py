from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fpsim
from fpsim.devices import _elementwise_inputs as inputs
from fpsim.devices.elementwise import FUNCTIONS, correctly_rounded, ulp_errors
from fpsim.elementary import IMPLEMENTATIONS, MODELS, evaluate, log_softmax, softmax
from fpsim.errors import InputError, UnknownOrderError
from fpsim.kernels import special_function_unit as unit

Array = NDArray[Any]

with np.load(Path(__file__).parent / "data" / "h200_functions.npz", allow_pickle=False) as _data:
    RECORDED = {name: _data[name] for name in _data.files}

CALLS = [name for name in RECORDED if name.count("/") == 2 and name.startswith(tuple(IMPLEMENTATIONS))]
COMPOSED = {"silu", "gelu", "gelu_tanh", "softplus"}  # not NVIDIA's: they lose every digit where they cancel
MEASURED = [name for name in MODELS if name in FUNCTIONS and name not in COMPOSED]
TINY = np.float32(2.0**-126)


def different(a: Array, b: Array) -> Array:
    return np.asarray((a.view(np.uint32) != b.view(np.uint32)) & ~(np.isnan(a) & np.isnan(b)))


def bit_patterns(name: str, size: int) -> list[Array]:
    return inputs.operands(name, MODELS[name].operands, 0, size, size, np.random.default_rng(3))


@pytest.mark.parametrize("call", CALLS)
def test_recorded_results_of_a_gpu(call: str) -> None:
    implementation, name, law = call.split("/")
    operands = [RECORDED[f"x/{law}"]] + ([RECORDED[f"y/{law}"]] if MODELS[name].operands == 2 else [])
    arrays = [x.view(np.float32) for x in operands]
    observed = RECORDED[call].view(np.float32)
    wrong = different(evaluate(name, *arrays, implementation=implementation), observed)
    assert not wrong.any(), [x[wrong][:3] for x in (*arrays, observed)]


@pytest.mark.parametrize("call", [name[5:-2] for name in RECORDED if name.startswith("hard/") and name.endswith("/x")])
def test_inputs_on_which_slightly_other_models_fail(call: str) -> None:
    implementation, name = call.split("/")
    x, y = (RECORDED[f"hard/{call}/{label}"].view(np.float32) for label in "xy")
    wrong = different(evaluate(name, x, implementation=implementation), y)
    assert not wrong.any(), (x[wrong][:3], y[wrong][:3])


def test_a_power_that_slightly_other_constants_miss() -> None:
    x, y, z = np.array([[1195541262], [3228920699], [563050982]], np.uint32).view(np.float32)
    assert not different(evaluate("pow", x, y, implementation="cupy"), z).any()


def test_recordings_cover_both_libraries() -> None:
    assert len(CALLS) == 51
    assert sum(call.startswith("cupy") for call in CALLS) == 23


@pytest.mark.parametrize("shape", ["8x257", "4x1024"])
def test_softmax_and_logsumexp_of_recorded_rows(shape: str) -> None:
    x = RECORDED[f"rows/{shape}/x"]
    assert not different(softmax(x), RECORDED[f"rows/{shape}/softmax"]).any()
    assert not different(softmax(x, "lanes:32:combine=fold"), RECORDED[f"rows/{shape}/softmax"]).any()
    assert different(softmax(x, "serial"), RECORDED[f"rows/{shape}/softmax"]).any()
    top = x.max(axis=-1)
    total = np.float32(fpsim.sum(evaluate("exp", x - top[:, None]), "lanes:32:combine=fold", axis=-1))
    assert not different(evaluate("log", total) + top, RECORDED[f"rows/{shape}/logsumexp"]).any()


@pytest.mark.parametrize("name", ["exp", "tanh", "sin", "gelu"])
@pytest.mark.parametrize("shape", ["8x257", "4x1024"])
def test_recorded_rows(shape: str, name: str) -> None:
    x = RECORDED[f"rows/{shape}/x"]
    assert not different(evaluate(name, x), RECORDED[f"rows/{shape}/{name}"]).any()


def test_unit_against_recorded_instruction() -> None:
    x, y = (RECORDED[f"unit/ex2/{label}"].view(np.float32) for label in "xy")
    out = np.empty_like(x)
    unit.evaluate(unit.EX2, x, out)
    assert not different(out, y).any()


def test_square_leaves_out_the_lower_columns() -> None:
    for x in [*range(0, 2**17, 1009), 2**17 - 1]:
        bits = [k for k in range(17) if x >> k & 1]
        products = [a + b for a in bits for b in bits]
        # A product of two different bits counts twice, that is once in the next column.
        kept = sum(2**c for c in (2 * a for a in bits) if c >= 19)
        kept += sum(2 ** (a + b + 1) for a in bits for b in bits if b < a and a + b + 1 >= 19)
        assert sum(2**c for c in products) == x * x
        assert unit.truncated_square(x) == kept >> 19


@pytest.mark.parametrize(
    ("name", "function", "low", "high", "error"),
    [
        # Errors from NVIDIA's PTX manual, section 9.7.3: relative for rcp, sqrt, rsqrt, ex2, absolute for the others.
        ("rcp", lambda x: 1 / x, 2.0**-100, 2.0**100, 2.0**-23), ("sqrt", np.sqrt, 2.0**-100, 2.0**100, 2.0**-22.5),
        ("rsqrt", lambda x: 1 / np.sqrt(x), 2.0**-100, 2.0**100, 2.0**-22.9), ("ex2", np.exp2, -100, 100, 2.0**-22.5),
        ("lg2", np.log2, 0.5, 2.0, 2.0**-22), ("sin", np.sin, 0.25, 3.14, 2.0**-20.5), ("cos", np.cos, 0.25, 3.14, 2.0**-20.5),
        ("tanh", np.tanh, 2.0**-12, 20.0, 2.0**-11),
    ],
)  # fmt: skip
def test_unit_is_as_accurate_as_documented(name: str, function: Any, low: float, high: float, error: float) -> None:
    rng = np.random.default_rng(1)
    draw = (
        rng.uniform(low, high, 20000)
        if name != "tanh" and (low < 0 or high < 10)
        else 2.0 ** rng.uniform(np.log2(low), np.log2(high), 20000)
    )
    x = draw.astype(np.float32)
    out = np.empty_like(x)
    unit.evaluate(unit.INSTRUCTIONS.index(name), x, out)
    exact = function(x.astype(np.float64))
    scale = np.abs(exact) if name in {"rcp", "sqrt", "rsqrt", "ex2", "tanh"} else 1.0
    worst = (np.abs(out - exact) / scale).max()
    assert error / 64 < worst <= error


def test_unit_against_recorded_tanh() -> None:
    with np.load(Path(__file__).parent / "data" / "h200_unit_tanh.npz", allow_pickle=False) as data:
        x, y = (data[name].view(np.float32) for name in "xy")
    for sign in (1, -1):
        out = np.empty_like(x)
        unit.evaluate(unit.TANH, np.float32(sign) * x, out)
        assert not different(out, np.float32(sign) * y).any()


def test_tanh_of_special_numbers() -> None:
    x = np.array([0.0, -0.0, 1e-40, -1e-40, 8.0, -np.inf, np.nan], np.float32)
    out = np.empty_like(x)
    unit.evaluate(unit.TANH, x, out)
    assert not different(out, np.array([0.0, -0.0, 1e-40, -1e-40, 1.0, -1.0, np.nan], np.float32)).any()


@pytest.mark.parametrize("name", MEASURED)
def test_errors_are_those_that_nvidia_documents(name: str) -> None:
    # CUDA C++ Programming Guide, table of single-precision functions: at most 2 ulps, 1 for log, log2, log1p, expm1.
    operands = bit_patterns(name, 2**16)
    observed = evaluate(name, *operands)
    exact = correctly_rounded(name, *operands)
    errors = ulp_errors(name, *operands, observed=observed)
    normal = (np.abs(exact) >= TINY) & np.isfinite(exact)
    limit = {"divide": 0.5, "sqrt": 0.5, "reciprocal": 0.5, "sigmoid": 4.0, "exp2": 2.5}.get(name, 2.0)
    assert errors[normal].max() <= limit
    # Infinities, NaNs and zeros of either sign are the same as those of the exact function.
    special = ~np.isfinite(exact) | (exact == 0)
    assert not different(observed[special], exact[special]).any()


@pytest.mark.parametrize("name", list(MODELS))
def test_cupy_flushes_and_otherwise_agrees(name: str) -> None:
    operands = bit_patterns("divide" if MODELS[name].operands == 2 else "exp", 2**14)[: MODELS[name].operands]
    kept, flushed = (evaluate(name, *operands, implementation=i) for i in IMPLEMENTATIONS)
    assert not ((np.abs(flushed) < TINY) & (flushed != 0)).any()
    normal = np.abs(kept) >= TINY
    for x in operands:
        normal &= (np.abs(x) >= TINY) | (x == 0)
    if name != "exp2":  # PyTorch squares 2**(x/2)
        plain = normal & ~np.isnan(kept)
        assert not different(kept[plain], flushed[plain]).any()


@pytest.mark.parametrize("name", ["sqrt", "reciprocal", "divide"])
def test_required_operations_are_correctly_rounded(name: str) -> None:
    operands = bit_patterns("divide" if name == "divide" else "sqrt", 2**15)
    operands = operands[:1] if name != "divide" else operands
    with np.errstate(all="ignore"):
        oracles: dict[str, Any] = {"sqrt": np.sqrt, "reciprocal": lambda x: np.float32(1) / x, "divide": np.divide}
        expected = oracles[name](*operands)
    assert not different(evaluate(name, *operands), expected).any()


def test_shapes_and_refusals() -> None:
    x = np.zeros((2, 3), np.float32)
    assert evaluate("exp", x).shape == (2, 3)
    assert evaluate("exp", x[0, 0]).shape == ()
    assert softmax(x).tolist() == [[np.float32(1 / 3)] * 3] * 2
    with pytest.raises(UnknownOrderError, match="no model of gamma is known; there are models of exp"):
        evaluate("gamma", x)
    with pytest.raises(InputError, match=r"one of torch\.cuda, cupy, or profile:FILE, not jax"):
        evaluate("exp", x, implementation="jax")
    with pytest.raises(InputError, match="divide takes 2 float32 arrays of one shape"):
        evaluate("divide", x)
    with pytest.raises(InputError, match="exp takes 1 float32 array"):
        evaluate("exp", x.astype(np.float64))
    with pytest.raises(UnknownOrderError, match="order of the sums in softmax by cupy is not known"):
        softmax(x, implementation="cupy")
    with pytest.raises(InputError, match="softmax takes a float32 array of finite numbers"):
        softmax(x[0, 0])
    with pytest.raises(InputError, match="log_softmax takes a float32 array of finite numbers"):
        log_softmax(np.array([np.inf], np.float32))


def test_models_describe_themselves() -> None:
    assert str(MODELS["exp"]).startswith("exp: 2**f by the special-function unit")
    assert MODELS["pow"].to_dict()["operands"] == 2
