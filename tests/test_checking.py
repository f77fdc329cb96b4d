"""`fpsim check`, with routines whose answers are known to be right, wrong or unpredictable."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim import devices
from fpsim.checking import check_operands
from fpsim.cli import main
from fpsim.devices import Implementation, Routine
from fpsim.devices.operations import OPERATIONS
from fpsim.devices.timing import Crossover, recorded_crossover
from fpsim.errors import InputError, UnknownOrderError


def serially(x: Any) -> Any:
    return np.cumsum(x)[-1]


def nobody_knows(*operands: Any) -> str:
    message = f"nobody knows the order of {len(operands)} operand"
    raise UnknownOrderError(message)


HONEST = Implementation(
    "honest", "NumPy", "1", "a processor",
    routines={
        "sum": Routine(serially, lambda x: "serial"),  # noqa: ARG005
        "sum_axis0": Routine(lambda x: np.cumsum(x, axis=0)[-1], lambda x: "serial"),  # noqa: ARG005
        "multiply": Routine(np.multiply, lambda a, b: "serial"),  # noqa: ARG005
    },
)  # fmt: skip
WRONG = Implementation("wrong", "NumPy", "1", routines={"sum": Routine(serially, lambda x: "reverse")})  # noqa: ARG005
UNKNOWN = Implementation("unknown", "NumPy", "1", routines={"sum": Routine(serially, nobody_knows)})
ABSENT = Implementation("absent", "Nothing", unavailable="it is not installed")
GPU = Implementation(
    "gpu", "NumPy", "1", "no GPU at all", "gpu",
    routines={"multiply": Routine(np.multiply, lambda a, b: "serial")},  # noqa: ARG005
    load=np.copy, fetch=np.copy,
)  # fmt: skip


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_all", lambda: (HONEST, WRONG, UNKNOWN, ABSENT, GPU))


@pytest.mark.usefixtures("known")
def test_a_right_rule_a_wrong_one_and_none() -> None:
    result = fpsim.check(operations="sum", sizes=[1000], times=False)
    by_name = {one.implementation: one for one in result.comparisons}
    assert [one.status for one in result.comparisons] == ["equal", "different", "unknown"]
    honest = by_name["honest"]
    assert honest.outputs == honest.equal == len(result.laws) == 3
    assert honest.strategy == "serial"
    assert honest.actual_error == honest.predicted_error > 1
    assert honest.bound > honest.actual_error
    assert by_name["wrong"].predicted_error != by_name["wrong"].actual_error
    mismatch = by_name["wrong"].mismatch
    assert mismatch is not None
    assert mismatch.predicted != mismatch.actual
    assert "nobody knows" in by_name["unknown"].unknown
    assert result.wrong == (by_name["wrong"],)


def test_a_rule_that_is_wrong_for_one_law_and_not_known_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def for_positive(x: Any) -> str:
        return "reverse" if (x > 0).all() else nobody_knows(x)

    one = Implementation("half", "NumPy", "1", routines={"sum": Routine(serially, for_positive)})
    monkeypatch.setattr(devices, "_all", lambda: (one,))
    for laws in (["uniform(1, 2)", "normal"], ["normal", "uniform(1, 2)"]):
        result = fpsim.check(operations="sum", sizes=[1000], laws=laws, times=False)
        (row,) = result.wrong
        assert (row.status, row.outputs, row.equal) == ("different", 1, 0)
        assert "nobody knows" in row.unknown
        assert "0 of 1" in str(result)


def test_a_routine_that_fails_leaves_the_others_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(x: Any) -> Any:
        message = f"out of memory\nfor {x.size} numbers"
        raise RuntimeError(message)

    broken = Implementation("broken", "NumPy", "1", routines={"sum": Routine(fails, lambda x: "serial")})  # noqa: ARG005
    monkeypatch.setattr(devices, "_all", lambda: (broken, HONEST))
    first, second = fpsim.check(operations="sum", sizes=[10]).comparisons
    assert first.unknown == "it failed here (RuntimeError: out of memory for 10 numbers)"
    assert (first.status, first.outputs, first.times) == ("unknown", 0, None)
    assert second.status == "equal"


@pytest.mark.usefixtures("known")
def test_the_error_is_that_of_the_worst_output() -> None:
    (one,) = fpsim.check(operations="sum_axis0", sizes=["300x40"], laws="normal", rng=5, times=False).comparisons
    x = fpsim.law("normal").draw((300, 40), rng=np.random.default_rng(5).spawn(1)[0])
    errors = np.abs(fpsim.exact.sum(x, axis=0).ulp_error(np.cumsum(x, axis=0)[-1]))
    assert one.actual_error == errors.max()


@pytest.mark.usefixtures("known")
def test_every_implementation_gets_the_same_operands_and_the_seed_decides() -> None:
    first = fpsim.check(operations="sum", sizes=[100], times=False, rng=1)
    again = fpsim.check(operations="sum", sizes=[100], times=False, rng=1)
    other = fpsim.check(operations="sum", sizes=[100], times=False, rng=2)
    errors = [one.actual_error for one in first.comparisons]
    assert len(set(errors)) == 1
    assert errors == [one.actual_error for one in again.comparisons]
    assert errors != [one.actual_error for one in other.comparisons]


@pytest.mark.usefixtures("known")
def test_times_and_crossover() -> None:
    result = fpsim.check(operations="multiply", sizes=["20x30"], implementations=["honest", "gpu"])
    cpu, gpu = result.comparisons
    assert cpu.times is not None
    assert gpu.times is not None
    assert cpu.times.with_transfers is None
    assert gpu.times.with_transfers is not None
    assert gpu.times.compute > 0
    assert result.crossover == recorded_crossover()  # no implementation is called numpy
    assert "recorded" in str(result)


def test_first_faster() -> None:
    sizes = ((10, 10), (20, 20), (30, 30))
    x = Crossover("c", "g", sizes, (1.0, 2.0, 3.0), (2.0, 1.0, 1.0), (9.0, 1.0, 9.0), measured=True)
    assert x.first_faster(transfers=False) == (20, 20)
    assert x.first_faster(transfers=True) is None


def test_the_recorded_h200_is_slower_for_200_by_100_and_faster_for_large_matrices() -> None:
    x = recorded_crossover()
    small = x.sizes.index((200, 100))
    assert x.cpu_seconds[small] < x.gpu_seconds[small] < x.gpu_seconds_with_transfers[small]
    assert x.gpu_seconds[-1] < x.cpu_seconds[-1]


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"operations": "summe"}, "unknown operation 'summe'"),
        ({"implementations": "nope"}, "unknown implementation 'nope'"),
        ({"sizes": ["10y"]}, "a size is"),
        ({"sizes": [0]}, "a size is"),
        ({"sizes": 7.5}, "a size is"),
        ({"sizes": ["100000x100000x2"]}, "at most 2.*31 elements here"),
        ({"operations": 5}, "operations are named by text"),
        ({"operations": "sum", "sizes": ["10x10"]}, "no operation that is checked has sizes like 10x10"),
        ({"dtype": "bfloat16"}, "float16, float32 and float64, not bfloat16"),
        ({"laws": "gauss"}, "unknown law"),
    ],
)
def test_errors(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fpsim.check(times=False, **settings)


@pytest.mark.usefixtures("known")
def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--ops", "sum", "--sizes", "50", "--implementations", "honest", "absent"]) == 0
    out = capsys.readouterr().out
    assert "All 3 outputs of 1 cases have exactly the predicted bits" in out
    assert "absent: not available, it is not installed" in out
    assert main(["check", "--ops", "sum", "--sizes", "50", "--no-times", "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert result["schema"] == "fpsim.check/1"
    assert [one["status"] for one in result["comparisons"]] == ["equal", "different", "unknown"]
    assert result["wrong"] == 1
    assert main(["check", "--ops", "sum", "--sizes", "50", "--no-times"]) == 1
    out = capsys.readouterr().out
    assert "WRONG: in 1 of 2 cases" in out
    assert "predicted" in out
    assert main(["check", "--ops", "nonsense"]) == 2
    assert main(["check", "--seed", "x"]) == 2
    capsys.readouterr()
    assert main(["check", "--list"]) == 0
    assert "absent: not available" in capsys.readouterr().out
    assert main(["check", "--list", "--json"]) == 0
    assert [one["available"] for one in json.loads(capsys.readouterr().out)] == [True, True, True, False, True]


@pytest.mark.usefixtures("known")
def test_predict_run(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    command = [
        "predict",
        "sum",
        "--shape",
        "100",
        "--data",
        "normal",
        "--repeats",
        "2",
        "--strategy",
        "serial",
        "--run",
    ]
    assert main(command) == 1  # one of the known implementations has a wrong rule
    out = capsys.readouterr().out
    assert "honest" in out
    assert "WRONG: in 1 of 2 cases" in out
    np.save(tmp_path / "x.npy", np.array([1, 2, 3], np.float32))
    assert main(["predict", "sum", "--inputs", str(tmp_path / "x.npy"), "--run", "--format", "json"]) == 0
    run = json.loads(capsys.readouterr().out)["run"]
    assert [one["status"] for one in run["comparisons"]] == ["equal", "equal", "unknown"]
    # What cannot be run is said before anything is worked out.
    np.save(tmp_path / "cube.npy", np.ones((2, 3, 4), np.float32))
    assert main(["predict", "sum", "--inputs", str(tmp_path / "cube.npy"), "--run"]) == 2
    told = capsys.readouterr()
    assert "sum is run for one or two dimensions" in told.err
    assert told.out == ""
    command = ["predict", "dot", "--shape", "10", *("--data", "normal") * 3, "--run"]
    assert main(command) == 2
    assert "Error" not in capsys.readouterr().err


def test_operands_that_do_not_fit() -> None:
    row, matrix = np.ones(3, np.float32), np.ones((4, 2), np.float32)
    for op, operands in (("dot", (row, row[:2])), ("matmul", (row, matrix)), ("matmul", (matrix, matrix))):
        with pytest.raises(InputError, match=f"{op} needs as many terms on either side, not float32"):
            check_operands(op, *operands)
    with pytest.raises(InputError, match=r"not for float32\(3,\) and float64\(3,\)"):
        check_operands("dot", row, row.astype(np.float64))


def test_errors_of_every_operation_are_those_of_float64_arithmetic() -> None:
    """The exact references against float64 results, on well-conditioned operands."""
    rng = np.random.default_rng(3)
    plain: dict[str, Any] = {
        "sum": np.sum, "mean": np.mean, "var": np.var, "std": np.std, "norm": np.linalg.norm, "dot": np.dot,
        "sum_axis0": lambda x: np.sum(x, axis=0), "sum_axis1": lambda x: np.sum(x, axis=1), "cumsum": np.cumsum,
        "all_reduce": lambda x: np.sum(x, axis=0), "matvec": np.matmul, "vecmat": np.matmul, "matmul": np.matmul, "multiply": np.multiply, "prod": np.prod,
    }  # fmt: skip
    assert set(plain) == set(OPERATIONS)
    for name, one in OPERATIONS.items():
        size = {1: (40,), 2: (7, 11), 3: (4, 30, 5)}[one.dimensions]
        operands = one.draw(size, "uniform(1, 2)", rng=rng)
        wide = np.asarray(plain[name](*(x.astype(np.float64) for x in operands)))
        rounded = wide.astype(np.float32)
        shifted = np.nextafter(rounded, np.float32(np.inf))
        for result in (rounded, shifted):
            errors = one.errors(operands, result)
            expected = np.abs(result - wide) / np.spacing(np.abs(rounded)).astype(np.float64)
            known = ~np.isnan(errors)
            assert known.any()
            np.testing.assert_allclose(errors[known], expected[known], atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_bounds_hold_in_ulps(dtype: str) -> None:
    rng = np.random.default_rng(4)
    width = 3 if dtype == "float16" else 20
    for name, one in OPERATIONS.items():
        if one.bound is None:
            continue
        size = {1: (200,), 2: (70, 11), 3: (4, 300, 5)}[one.dimensions]
        for law in ("normal", "uniform(0, 1)", f"wide(-{width}, {width})"):
            operands = one.draw(size, law, rng=rng, dtype=dtype)
            for order in ("serial", "pairwise", "chunks(16)", "lanes(4)"):
                if name == "cumsum" and order.startswith("lanes"):
                    continue
                accumulators = ("", "+acc(float32, up)", "+acc(bfloat16)+output(float16)", "+output(float16)")
                for settings in (
                    accumulators if dtype != "float64" else ("+acc(float64)", "+acc(float64)+output(float32)")
                ):
                    chosen = fpsim.strategy(order + settings)
                    errors = one.errors(operands, one.emulate(operands, chosen))
                    known = np.isfinite(errors)
                    assert known.any() or settings
                    bound = np.asarray(one.bound(operands, chosen))
                    assert (errors[known] <= bound[known]).all(), (name, law, chosen)
                    assert settings or np.isfinite(bound[known]).all()


def test_bounds_of_norms_and_cumulative_sums_are_not_loose() -> None:
    norm, cumsum = OPERATIONS["norm"], OPERATIONS["cumsum"]
    x = np.full(1000, 0.1, np.float32)
    for one, least in ((norm, 0.02), (cumsum, 0.02)):
        for text in ("serial", "chunks(50)"):
            chosen = fpsim.strategy(text)
            assert one.bound is not None
            bound = np.nanmax(one.bound((x,), chosen))
            assert least * bound < np.nanmax(one.errors((x,), one.emulate((x,), chosen))) <= bound


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_products_of_all_terms_stay_in_range(dtype: str) -> None:
    least, most = np.finfo(dtype).smallest_normal, np.finfo(dtype).max
    for n in (1, 7, 100, 4097, 100_000):
        for seed in range(5):
            (x,) = OPERATIONS["prod"].draw((n,), "normal", rng=np.random.default_rng(seed), dtype=dtype)
            running = np.abs(np.cumprod(x))
            assert ((running >= least) & (running <= most)).all()
            assert n == 1 or np.unique(np.abs(x)).size > 3


def test_types_of_operands_and_no_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    # What a routine makes of sums beyond float16 is compared like any other result; a warning would be an error here.
    for dtype in ("float16", "float32", "float64"):
        result = fpsim.check(implementations="numpy", sizes=[3000, "20x300", "3x40x5"], dtype=dtype, times=False,
                             laws=["uniform(0, 1)", "constant(60000)"])  # fmt: skip
        assert {one.operation for one in result.comparisons} >= set(OPERATIONS) - {"all_reduce"}
        assert not [one for one in result.comparisons if one.status == "different"]
        str(result)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("known")
def test_text_of_products_and_of_what_is_not_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = str(fpsim.check(operations="multiply", sizes=["20x30"], times=False)).splitlines()
    assert all(line.endswith("one rounding") for line in lines if line.startswith("  multiply"))
    assert sum("with copies" in line for line in lines) >= 2
    absent = [Implementation(f"absent.{i}", "Nothing", unavailable="it is not installed") for i in range(20)]
    other = Implementation("other", "Nothing", unavailable="it is broken")
    monkeypatch.setattr(devices, "_all", lambda: (*absent[:10], HONEST, other, *absent[10:]))
    for command in (["check", "--ops", "sum", "--sizes", "5", "--no-times"], ["check", "--list"]):
        assert main(command) == 0
        lines = capsys.readouterr().out.splitlines()
        first = next(i for i, line in enumerate(lines) if line.startswith("absent"))
        text = " ".join(line.strip() for line in lines[first:])
        names = ", ".join(one.name for one in absent)
        assert text.startswith(f"{names}: not available, it is not installed other: not available, it is broken")
        assert max(len(line) for line in lines[first:]) <= 100
