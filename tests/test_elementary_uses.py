"""Elementary functions in `predict`, `explain`, `tolerance` and `check`, on results that a GPU gave."""

from __future__ import annotations

import json
import math
import platform
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

import fpsim
from fpsim import _checking_functions as checking, elementary_errors as measured
from fpsim.cli import main
from fpsim.devices._elementwise_libraries import Elementwise
from fpsim.devices.elementwise import correctly_rounded
from fpsim.elementary import MODELS, evaluate, log_softmax
from fpsim.errors import InputError, UnknownOrderError
from fpsim.testing import assert_close

Array = NDArray[Any]
HERE = Path(__file__).parent

with np.load(HERE / "data" / "h200_functions.npz", allow_pickle=False) as _data:
    RECORDED = {name: _data[name] for name in _data.files}
CALLS = [name for name in RECORDED if name.count("/") == 2 and name.startswith(("torch.cuda/", "cupy/"))]
EXACT = {"sqrt", "reciprocal", "divide"}
X = RECORDED["x/normal"].view(np.float32)


def recorded(call: str) -> tuple[str, str, tuple[Array, ...], Array]:
    implementation, name, law = call.split("/")
    operands = [RECORDED[f"x/{law}"].view(np.float32)]
    if MODELS[name].operands == 2:
        operands.append(RECORDED[f"y/{law}"].view(np.float32))
    return implementation, name, tuple(operands), RECORDED[call].view(np.float32)


def moved(values: Array, steps: int) -> Array:
    """Return the float32 numbers some places away from positive ones."""
    return (values.view(np.int32) + np.int32(steps)).view(np.float32)


# --- explain ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [call for call in CALLS if not (call.startswith("cupy") and call.endswith("bits"))])
def test_results_of_a_gpu_are_named(call: str) -> None:
    implementation, name, operands, y = recorded(call)
    found = fpsim.explain({"gpu": y}, op=name, inputs=operands if len(operands) > 1 else operands[0])
    (side,) = found.sides
    assert (found.verdict, found.confidence, found.explainable) == ("expected rounding", "high", True)
    texts = {m.strategy: m.mechanism for m in side.matches}
    label = {"torch.cuda": "torch CUDA", "cupy": "CuPy"}[implementation]
    named = [text for text, mechanism in texts.items() if mechanism == "elementary function" and text.startswith(label)]
    assert len(named) == 1
    if name in EXACT:
        assert side.matches[0].mechanism == "correct rounding"
    else:
        assert f"elementary function: torch CUDA {name}" in found.reason
        assert "100 % of bits" in found.reason
        assert found.ranked[0] == "elementary function"


@pytest.mark.parametrize("name", ["exp", "exp2", "log", "tanh", "erf", "rsqrt", "sin"])
def test_the_build_that_flushes_is_told_from_the_one_that_does_not(name: str) -> None:
    _, _, (x,), y = recorded(f"cupy/{name}/bits")
    found = fpsim.explain({"cupy": y, "ieee": evaluate(name, x)}, op=name, inputs=x)
    cupy, ieee = found.sides
    assert found.verdict == "different computation"
    assert cupy.matches[0].strategy == f"CuPy {name} (flush-to-zero build)"
    assert cupy.matches[0].mechanism == "subnormal numbers flushed to zero (FTZ/DAZ)"
    assert cupy.note == "100 % of bits"
    assert (ieee.status, ieee.matches[0].strategy) == ("reproduced", f"torch CUDA {name}")


@pytest.mark.parametrize("name", ["gelu_tanh", "softplus", "gelu", "exp2"])
def test_hard_inputs_of_functions(name: str) -> None:
    x, y = (RECORDED[f"hard/torch.cuda/{name}/{label}"].view(np.float32) for label in "xy")
    found = fpsim.explain(y, op=name, inputs=x)
    assert found.verdict == "expected rounding"
    assert found.sides[0].matches[0].strategy == f"torch CUDA {name}"


def test_two_sides_each_with_its_library() -> None:
    _, _, (x,), y = recorded("torch.cuda/tanh/normal")
    found = fpsim.explain({"gpu": y, "numpy": np.tanh(x), "best": correctly_rounded("tanh", x)}, op="tanh", inputs=x)
    assert found.verdict == "expected rounding"
    first = [side.matches[0].strategy for side in found.sides]
    assert first == [
        "torch CUDA tanh", "NumPy's tanh in float32 on this machine", "the exact value, correctly rounded"
    ]  # fmt: skip
    assert found.closest == ("best",)
    assert found.sides[2].correctly_rounded == 1.0


def test_one_wrong_bit_is_no_match() -> None:
    _, _, (x,), y = recorded("torch.cuda/exp/normal")
    changed = y.copy()
    place = int(np.argmin(np.abs(x - 1)))
    changed[place] = moved(changed[place : place + 1], 1)[0]
    found = fpsim.explain(changed, op="exp", inputs=x)
    (side,) = found.sides
    assert not side.matches
    assert side.nearest == ("torch CUDA exp", 1 - 1 / x.size)
    assert (found.verdict, found.confidence) == ("expected rounding", "moderate")
    assert "where libraries were measured to err by up to 5.51 ulp" in found.reason


def test_errors_beyond_those_of_all_libraries() -> None:
    x = X[np.abs(X) < 80]
    best = correctly_rounded("exp", x)
    within, beyond, far = (fpsim.explain(moved(best, steps), op="exp", inputs=x) for steps in (4, 7, 300))
    assert (within.verdict, within.confidence) == ("expected rounding", "moderate")
    assert beyond.verdict == "different computation"
    assert "no library that was measured errs by more than 5.51 ulp" in beyond.reason
    assert (far.verdict, far.ranked[0]) == ("bug suspected", "fault")


@pytest.mark.parametrize(
    ("op", "other"),
    [
        ("gelu", "gelu_tanh"),
        ("gelu_tanh", "gelu"),
        ("exp", "exp2"),
        ("log", "log2"),
        ("sin", "cos"),
        ("sigmoid", "tanh"),
    ],
)
def test_another_formula(op: str, other: str) -> None:
    x = np.abs(X) + np.float32(0.5) if op == "log" else X
    matched = fpsim.explain(evaluate(other, x), op=op, inputs=x)
    assert (matched.verdict, matched.ranked[0]) == ("different computation", "different formula")
    assert matched.sides[0].matches[0].strategy == f"torch CUDA {other}"
    # Of another library there is no model to match: its errors as results of the other function tell.
    unknown = correctly_rounded(other, x)
    if other == "gelu_tanh":  # rounded correctly it is a mechanism of its own
        unknown[::3] = np.nextafter(unknown[::3], np.float32(0))
    found = fpsim.explain(unknown, op=op, inputs=x)
    assert (found.verdict, found.ranked[0], found.confidence) == (
        "different computation",
        "different formula",
        "moderate",
    )
    assert not found.sides[0].matches


def test_printed_numbers_are_no_bits() -> None:
    found = fpsim.explain({"gpu": "0.60436773"}, op="tanh", inputs=np.array([0.7], np.float32))
    assert found.sides[0].note == "100 % of the numbers as printed"
    assert "bits" not in found.reason


@pytest.mark.parametrize("shape", ["8x257", "4x1024"])
def test_softmax_has_the_exponential_of_the_gpu_and_an_order(shape: str) -> None:
    x, y = RECORDED[f"rows/{shape}/x"], RECORDED[f"rows/{shape}/softmax"]
    found = fpsim.explain(y, op="softmax", inputs=x)
    assert found.verdict == "expected rounding"
    assert found.sides[0].matches[0].strategy == "torch CUDA exp, its sum in the order of torch CUDA"
    assert "its sum in serial" not in " ".join(m.strategy for m in found.sides[0].matches)


def test_logarithm_of_a_softmax() -> None:
    x = RECORDED["rows/8x257/x"]
    found = fpsim.explain(log_softmax(x), op="log_softmax", inputs=x)
    assert found.verdict == "expected rounding"
    assert found.sides[0].matches[0].strategy == "torch CUDA exp and log, its sum in the order of torch CUDA"


def test_the_c_library_is_named_by_its_recorded_profile() -> None:
    x = np.linspace(-80, 80, 60_001, dtype=np.float32)
    y = evaluate("exp", x, implementation="profile:glibc-2.36/expf")
    assert (y != correctly_rounded("exp", x)).any()
    (match,) = fpsim.explain(y, op="exp", inputs=x).sides[0].matches
    assert (match.mechanism, match.strategy) == ("elementary function", "glibc-2.36 expf, as recorded")


# --- predict ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call", ["torch.cuda/exp/normal", "torch.cuda/gelu/normal", "cupy/log/bits", "cupy/rsqrt/bits"]
)
def test_prediction_has_the_bits_of_the_gpu(call: str) -> None:
    implementation, name, operands, y = recorded(call)
    p = fpsim.predict(name, *operands, strategies=[implementation, "correctly rounded"])
    one, best = p.strategies
    assert one.result is not None
    assert best.result is not None
    assert np.array_equal(one.result, y, equal_nan=True)
    wrong = (y.view(np.uint32) != best.result.view(np.uint32)) & ~(np.isnan(y) & np.isnan(best.result))
    assert one.differs == np.count_nonzero(wrong) > 0
    assert best.differs == 0
    assert best.maximum <= 0.5 + 2.0**-20


def test_errors_are_those_of_mpmath() -> None:
    x = X[np.abs(X) < 50][:200]
    p = fpsim.predict("exp", x)
    assert [one.strategy for one in p.strategies] == ["torch.cuda", "cupy", "numpy", "correctly rounded"]
    for one in p.strategies:
        errors = []
        assert one.result is not None
        for v, y in zip(x, one.result, strict=True):
            with mpmath.workprec(200):
                truth = mpmath.exp(mpmath.mpf(float(v)))
                unit = mpmath.mpf(2) ** (mpmath.frexp(truth)[1] - 24)
                errors.append(float(abs(mpmath.mpf(float(y)) - truth) / unit))
        assert one.maximum == pytest.approx(max(errors), rel=1e-6)
        assert one.rms == pytest.approx(math.sqrt(np.mean(np.square(errors))), rel=1e-6)
        assert one.used <= 1
        assert one.differs == sum(e > 0.5 for e in errors)
    assert p.strategies[0].same_as == ("cupy",)
    assert np.array_equal(p.strategies[2].result, np.exp(x))  # type: ignore[arg-type]


def test_softmax_beside_its_correct_rounding() -> None:
    x = RECORDED["rows/8x257/x"]
    p = fpsim.predict("softmax", x, strategies=["torch.cuda", "numpy", "correctly rounded"])
    assert np.array_equal(p.strategies[0].result, RECORDED["rows/8x257/softmax"])  # type: ignore[arg-type]
    best = p.strategies[2].result
    assert best is not None
    with mpmath.workprec(200):
        for row, results in zip(x[:, :40], best, strict=True):
            total = mpmath.fsum(mpmath.exp(mpmath.mpf(float(v))) for v in x[list(x[:, 0]).index(row[0])])
            for v, y in zip(row, results, strict=False):
                truth = mpmath.exp(mpmath.mpf(float(v))) / total
                for other in (np.nextafter(y, np.float32(0)), np.nextafter(y, np.float32(1))):
                    assert abs(mpmath.mpf(float(y)) - truth) < abs(mpmath.mpf(float(other)) - truth)


def test_predictions_of_a_law_repeat() -> None:
    first, again, other = (fpsim.predict("exp", "normal", shape="20x10", repeats=3, rng=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert (first.shape, first.repeats, first.strategies[0].outputs, first.is_sampled) == ((20, 10), 3, 600, True)
    assert "implementation" in str(first)
    assert "differ_from_correctly_rounded" in json.dumps(first.to_dict())


def test_what_a_library_lacks_is_noted_and_refused_by_name() -> None:
    p = fpsim.predict("gelu", "normal", shape=100)
    assert [one.strategy for one in p.strategies] == ["torch.cuda", "cupy", "correctly rounded"]
    assert "numpy: it has no gelu" in p.notes
    with pytest.raises(UnknownOrderError, match="it has no gelu"):
        fpsim.predict("gelu", "normal", shape=100, strategies="numpy")
    assert any("cupy.exp2 is another one" in note for note in fpsim.predict("exp2", X).notes)


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (("exp",), {}, "exp needs data"),
        (("exp", X, X), {}, "takes 1 operand"),
        (("exp", X.astype(np.float64) / 3), {}, "take float32 arrays"),
        (("exp", X), {"fma": True}, "fma and axis are for sums"),
        (("exp", X), {"shape": 5}, "shape is for data of a law"),
        (("exp", "normal"), {"shape": "5xq"}, "whole numbers"),
        (("exp", "normal"), {"shape": 5, "dtype": "float16"}, "are of float32"),
        (("exp", X), {"strategies": "pairwise"}, "is one of torch.cuda, cupy"),
        (("cosh", X), {}, "unknown operation 'cosh'"),
        (("softmax", np.array([np.inf, 1], np.float32)), {}, "rows of finite numbers"),
    ],
)
def test_predictions_that_are_refused(arguments: Any, settings: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fpsim.predict(*arguments, **settings)


# --- tolerance --------------------------------------------------------------------------------------------------------


def test_envelopes_are_those_of_the_published_tables() -> None:
    """Where this fails, run benchmarks/make_elementary_errors.py."""
    seen: dict[tuple[str, str], list[Any]] = {}
    for path in sorted((HERE.parent / "docs" / "data").glob("elementwise-*.json")):
        for function in json.loads(path.read_text(encoding="utf-8"))["functions"]:
            for one in function["errors"]:
                library = one["implementation"].removesuffix(" (model)")
                seen.setdefault((function["function"], library), []).append(one)
    compared = 0
    for function, own in measured.ENVELOPES.items():
        for name, envelope in own.items():
            if (found := seen.get((function, name))) is None or envelope.below or name == "numba.cuda":
                continue
            compared += 1
            largest = max(one["max_ulp"] for one in found)
            assert largest <= envelope.ulps <= largest + 0.001 or envelope.ulps == 0.5
            small = max(one["subnormal_max_ulp"] for one in found)
            assert envelope.subnormal >= (2.0**23 if any(one["flushed"] for one in found) else small)
    assert compared > 100


@pytest.mark.parametrize("call", CALLS)
def test_results_of_a_gpu_are_within_the_envelope(call: str) -> None:
    implementation, name, operands, y = recorded(call)
    values = measured.exact_values(name, *operands)
    room = measured.envelope(name, implementation).room(values, *operands)
    with np.errstate(all="ignore"):
        error = np.abs(y - values)
    usual = np.isfinite(y) & np.isfinite(values) & (np.abs(values) < 3.4e38)
    assert usual.sum() > 200
    assert (error <= room * (1 + 2.0**-20))[usual].all()


@pytest.mark.parametrize("name", ["exp", "log", "sin", "tanh", "rsqrt", "sigmoid"])
def test_tolerance_passes_a_gpu_and_numpy_and_no_other_formula(name: str) -> None:
    _, _, (x,), y = recorded(f"torch.cuda/{name}/normal")
    tol = fpsim.tolerance(name, x, between=("numpy", "torch.cuda"))
    p = fpsim.predict(name, x, strategies="numpy")
    assert p.strategies[0].result is not None
    assert_close(p.strategies[0].result, y, tol)
    np.testing.assert_allclose(p.strategies[0].result, y, **tol.kwargs("numpy"))
    ulps = sum(measured.envelope(name, side).ulps for side in ("numpy", "torch.cuda"))
    assert 0 < tol.rtol <= ulps * 2.0**-23 * 1.003
    assert tol.power()["bfloat16 instead of float32"] > 100
    with pytest.raises(AssertionError):
        assert_close(p.strategies[0].result * np.float32(1 + 3e-6), y, tol)
    assert f"{name}, float32, between numpy and torch.cuda" in str(tol)
    assert tol.mechanism.startswith("elementary function: numpy errs by at most")


def test_tolerance_of_gelu_tells_the_forms_apart() -> None:
    _, _, (x,), y = recorded("torch.cuda/gelu/normal")
    tol = fpsim.tolerance("gelu", x, strategy="torch.cuda")
    np.testing.assert_allclose(y, correctly_rounded("gelu", x), **tol.kwargs("numpy"))
    assert tol.power()["gelu_tanh instead of gelu"] > 100
    assert not tol.proved
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(evaluate("gelu_tanh", x), correctly_rounded("gelu", x), **tol.kwargs("numpy"))


def test_tolerance_of_gelu_between_cpu_and_gpu() -> None:
    tol = fpsim.tolerance("gelu", "normal", shape=1000, between=("torch.cpu", "torch.cuda"))
    assert 0 < tol.atol < 2e-6
    assert 0 < tol.rtol < 1e-6


def test_tolerance_of_a_law_holds_for_other_data() -> None:
    tol = fpsim.tolerance("exp", "normal(0, 20)", shape=1000, between=("any library", "torch.cuda"))
    _, _, (x,), y = recorded("torch.cuda/exp/normal")
    np.testing.assert_allclose(np.exp(x), y, **tol.kwargs("numpy"))
    assert tol.outputs == 1000


def test_operands_that_one_side_reads_as_zero_have_no_tolerance() -> None:
    x = np.array([1e-40, 2.0], np.float32)
    tol = fpsim.tolerance("log", x, between=("cupy", "torch.cuda"))
    assert math.isinf(tol.worst_case[0])
    assert tol.worst_case[1] < 1e-6
    assert any("there is no tolerance" in flag for flag in tol.flags)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"strategy": "serial"}, UnknownOrderError, "not for serial"),
        ({}, InputError, "say strategy"),
        ({"between": ("numpy",)}, InputError, "say strategy"),
        ({"strategy": "numpy", "axis": 0}, InputError, "axis is for sums"),
        ({"strategy": "numpy", "shape": 3}, InputError, "shape is for data of a law"),
    ],
)
def test_tolerances_that_are_refused(settings: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        fpsim.tolerance("exp", X, **settings)


# --- check ------------------------------------------------------------------------------------------------------------


def replayed(name: str, device: str = "NVIDIA H200", *, wrong: bool = False) -> Elementwise:
    """Return a library that gives what was recorded of a GPU, for the recorded operands alone."""
    functions = {}
    for call in CALLS:
        implementation, function, law = call.split("/")
        if implementation == name and law == "bits":
            y = RECORDED[call].view(np.float32)
            functions[function] = lambda *_, y=y: moved(y, 1) if wrong else y
    return Elementwise(name, "a library", "1", device, "gpu", functions)


@pytest.mark.parametrize("name", ["torch.cuda", "cupy"])
def test_recorded_libraries_have_the_predicted_bits(name: str) -> None:
    library = replayed(name)
    for function in library.functions:
        _, _, operands, _ = recorded(f"{name}/{function}/bits")
        row = checking.compare_function(library, function, [("bit patterns", operands)])
        if (name, function) == ("cupy", "exp2"):
            assert (row.status, row.unknown) == ("unknown", "no model of exp2 of cupy")
        else:
            assert (row.status, row.equal, row.outputs) == ("equal", 1536, 1536), function
            assert row.actual_error == row.predicted_error
            assert function in row.strategy


def test_wrong_results_on_the_gpu_that_was_measured_and_on_another_one() -> None:
    _, _, operands, _ = recorded("torch.cuda/exp/bits")
    drawn = [("bit patterns", operands)]
    bad = checking.compare_function(replayed("torch.cuda", wrong=True), "exp", drawn)
    assert bad.status == "different"
    assert bad.mismatch is not None
    other = checking.compare_function(replayed("torch.cuda", "another GPU", wrong=True), "exp", drawn)
    assert other.status == "unknown"
    assert "compared with an NVIDIA H200" in other.unknown


@pytest.mark.skipif(platform.libc_ver() != ("glibc", "2.36"), reason="the profile is of glibc 2.36")
def test_a_recorded_c_library_here() -> None:
    (row,) = fpsim.check(implementations="numba.serial", operations="exp", times=False).comparisons
    assert (row.implementation, row.status, row.strategy) == ("numba", "equal", "profile glibc-2.36/expf")


def test_what_runs_here() -> None:
    result = fpsim.check(implementations="numpy", operations=["sqrt", "divide", "reciprocal", "exp"], times=False)
    rows = {(one.implementation, one.operation): one for one in result.comparisons}
    for name in ("sqrt", "divide", "reciprocal"):
        row = rows["numpy", name]
        assert (row.status, row.strategy, row.outputs) == ("equal", "correctly rounded", 4 * 4096)
        assert row.actual_error <= 0.5
    assert rows["numpy", "exp"].status == "unknown"
    assert rows["numpy", "exp"].unknown == "no model of exp of numpy"
    assert 0.5 < rows["numpy", "exp"].actual_error < 3
    assert not result.wrong
    assert "no model of exp of numpy" in str(result)
    with pytest.raises(InputError, match="checked in float32"):
        fpsim.check(operations="exp", dtype="float64")
    (sized,) = fpsim.check(
        implementations="numpy", operations="sqrt", sizes=[100], laws="normal", times=False
    ).comparisons
    assert sized.size == (100,)


def test_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--ops", "sqrt", "exp", "--implementations", "numpy", "--no-times"]) == 0
    assert "correctly rounded" in capsys.readouterr().out
    assert main(["predict", "tanh", "--shape", "1000", "--data", "normal"]) == 0
    assert "torch.cuda" in capsys.readouterr().out
    assert main(["tolerance", "tanh", "--shape", "1000", "--data", "normal", "--between", "numpy,torch.cuda"]) == 0
    assert "rtol=" in capsys.readouterr().out
    assert main(["predict", "tanh", "--shape", "1000", "--data", "normal", "--run"]) == 2
