"""The first operation that differs: made to differ in one known place, in NumPy and, where it is there, PyTorch."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import json
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim import locating
from fpsim._recorded_runs import Run
from fpsim._tracing import Call, Operand, Recorder
from fpsim._tracing_numpy import Traced, tracing, wrap
from fpsim.cli import main
from fpsim.errors import InputError
from fpsim.locating import Located
from fpsim.switches import FULL_FLOAT32, NONDETERMINISTIC, SWITCHES, known, relevant, table

X = np.random.default_rng(0).random((30, 40)).astype(np.float32)
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")


def noisy(right: int) -> Callable[[Any], Any]:
    """Return an operation that adds 2**-20 to the first row, but not in its first `right` calls."""
    calls = itertools.count()

    def change(values: Any) -> Any:
        return values + np.float32(2.0**-20) if next(calls) >= right else values

    return lambda x: np.piecewise(x, [np.arange(len(x)) == 0], [change, lambda v: v])


# NumPy


def test_equal_runs_have_no_difference() -> None:
    found = fpsim.locate(lambda x: np.sqrt(x).sum() / 3, X, runs=4)
    assert (found.cause, found.same, found.runs, found.calls, found.first) == ("none", True, 4, 3, None)
    assert str(found) == "no difference in 4 runs of 3 recorded operations"


def test_an_operation_that_differs_is_named_with_its_line() -> None:
    operation = noisy(1)

    def loss(x: Any) -> Any:
        y = np.sqrt(x)
        z = operation(y)
        unrelated = np.exp(x)
        return (z * 2).sum(axis=1), unrelated

    found = fpsim.locate(loss, X)
    assert (found.cause, found.operation) == ("operation", "numpy.piecewise")
    assert (found.position, found.calls) == (3, 6)  # after sqrt and equal
    assert found.follow == 2  # z * 2 and its sum; exp has the same operands and the same bits
    assert found.own == 0
    assert found.result_differs
    assert "test_locate.py:" in found.where
    assert (found.differing, found.total, found.max_absolute) == (40, X.size, 2.0**-20)
    text = str(found)
    assert "gave other bits from the same bits" in text
    assert "40 of 1200 elements" in text
    assert "2 operations with operands that follow from it; the result differs" in text
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (plain["operation"], plain["position"], plain["follow"]) == ("numpy.piecewise", 3, 2)
    assert plain["operands"][0]["shape"] == [30, 40]


def test_later_operations_that_differ_by_themselves() -> None:
    first, second = noisy(1), noisy(1)
    found = fpsim.locate(lambda x: (first(x), second(np.exp(x)) * 2), X)
    assert found.cause == "operation"
    assert (found.own, found.follow) == (1, 1)
    assert [one.name for one in found.others] == ["piecewise"]
    assert "1 more that gave other bits from the same bits" in str(found)


def test_runs_go_on_until_the_first_difference() -> None:
    operation = noisy(4)
    assert fpsim.locate(lambda x: operation(x).sum(), X, runs=3).same
    operation = noisy(4)
    found = fpsim.locate(lambda x: operation(x).sum(), X, runs=9)
    assert (found.cause, found.runs, found.sides) == ("operation", 5, ("run 1", "run 5"))


def in_fortran_order(x: Any) -> Any:
    return np.asfortranarray(x).sum(axis=0)


def test_the_size_of_a_difference() -> None:
    rows = X.T.copy()
    found = fpsim.locate(lambda x: x.sum(axis=0), rows, against=in_fortran_order)
    assert (found.cause, found.operation) == ("operation", "numpy.sum")
    ours, theirs = rows.sum(axis=0), in_fortran_order(rows)
    differing = ours != theirs
    assert differing.any()
    assert (found.differing, found.total) == (differing.sum(), rows.shape[1])
    assert found.max_ulp == (np.abs(ours - theirs) / np.spacing(np.maximum(ours, theirs))).max()
    assert found.max_absolute == np.abs(ours - theirs).max()
    assert any("strides" in note for note in found.notes)
    assert found.switches == ()  # none makes two layouts equal


def test_zeros_of_another_sign_differ_and_all_nan_are_one() -> None:
    turn = itertools.count()

    def change(_: Any) -> Any:
        return np.array([-0.0, -np.nan, 1.0]) if next(turn) else np.array([0.0, np.nan, 1.0])

    found = fpsim.locate(lambda x: np.piecewise(x, [x < 1], [change]), np.zeros(3))
    assert (found.cause, found.differing, found.total, found.max_ulp) == ("operation", 1, 3, 0)


def test_results_that_were_not_kept_are_fetched_again() -> None:
    rows = X.T.copy()
    kept = fpsim.locate(lambda x: x.sum(axis=0), rows, against=in_fortran_order)
    fetched = fpsim.locate(lambda x: x.sum(axis=0), rows, against=in_fortran_order, memory=0)
    assert kept.differing
    assert (kept.differing, kept.max_ulp) == (fetched.differing, fetched.max_ulp)


def test_what_does_not_show_again_has_no_size() -> None:
    assert fpsim.locate(noisy(1), X).differing == 40
    found = fpsim.locate(noisy(1), X, memory=0)  # the first run is right, and no later one
    assert (found.cause, found.differing, found.max_ulp) == ("operation", None, None)
    assert any("did not show it again" in note for note in found.notes)


def test_a_stream_without_a_seed_is_a_cause_of_its_own() -> None:
    def shuffled(x: Any) -> Any:
        return x[np.random.default_rng().permutation(len(x))].sum(axis=0)

    found = fpsim.locate(shuffled, X)
    assert (found.cause, found.operation, found.position) == ("random", "numpy.random.permutation", 1)
    assert found.follow == 2
    assert [one.setting for one in found.switches] == ["numpy.random.default_rng(0)"]
    assert "seed=" in str(found)
    assert fpsim.locate(lambda x: x[np.random.default_rng(1).permutation(len(x))].sum(axis=0), X).same


@pytest.mark.parametrize("name", ["rand", "normal", "permutation", "standard_normal"])
def test_the_hidden_stream_of_numpy(name: str) -> None:
    def drawn(x: Any) -> Any:
        return x[0, :5] * getattr(np.random, name)(5)

    assert fpsim.locate(drawn, X).cause == "random"
    assert fpsim.locate(drawn, X, seed=3).same


def test_a_shuffle_in_place_and_a_generator_among_the_inputs() -> None:
    def shuffled(x: Any, generator: Any) -> Any:
        generator.shuffle(x)
        return np.cumsum(x, axis=0)

    generator = np.random.default_rng(0)
    before = generator.bit_generator.state
    given = X.copy()
    assert fpsim.locate(shuffled, given, generator).same
    assert generator.bit_generator.state == before  # each run has a copy
    assert np.array_equal(given, X)


def test_pythons_random_is_outside_and_is_hinted_at() -> None:
    def shuffled(x: Any) -> Any:
        order = list(range(len(x)))
        random.shuffle(order)
        return x[order].sum(axis=0)

    found = fpsim.locate(shuffled, X)
    assert (found.cause, found.operation) == ("outside", "numpy.getitem")
    assert any("random" in note for note in found.notes)
    assert fpsim.locate(shuffled, X, seed=0).same


def test_an_argument_that_changes() -> None:
    turn = itertools.count(1)
    found = fpsim.locate(lambda x: np.roll(x, next(turn)), X)
    assert (found.cause, found.operation) == ("outside", "numpy.roll")
    assert any("argument" in note for note in found.notes)


def test_values_that_arrive_in_another_order() -> None:
    orders = itertools.cycle([[0, 1, 2, 3], [2, 0, 3, 1]])

    def total(x: Any) -> Any:
        parts = [part.sum() for part in np.split(x, 4)]
        result = np.zeros(())
        for place in next(orders):
            result = result + parts[place]
        return result / 7

    found = fpsim.locate(total, X[:28])
    assert (found.cause, found.operation, found.position) == ("order", "numpy.add", 6)
    assert "another order" in str(found)


def test_parts_of_an_input_in_another_order() -> None:
    orders = itertools.cycle([range(30), range(29, -1, -1)])

    def total(x: Any) -> Any:
        result = np.zeros(40, np.float32)
        for row in next(orders):
            result = result + x[row]
        return result

    assert fpsim.locate(total, X).cause == "order"


def test_state_that_is_kept_between_calls() -> None:
    weights = np.ones(40)

    def step(x: Any) -> Any:
        weights[:] = np.asarray(weights) * 0.5 + x[0]
        return np.asarray(weights) * 2

    found = fpsim.locate(step, X)
    assert (found.cause, found.operation, found.position) == ("outside", "numpy.multiply", 1)
    assert "an operand is a result of the run before: state is kept between calls" in found.notes


def test_an_operand_that_no_result_depends_on_is_no_difference() -> None:
    """PyTorch's attention leaves its seed as it finds it where nothing is dropped."""
    state = np.zeros(1)

    def unused(x: Any) -> Any:
        memoryview(state)[0] = state[0] + 1.0  # type: ignore[arg-type]
        return np.where(x > -1.0, x, state)

    found = fpsim.locate(unused, np.ones(3))
    assert found.cause == "none", found
    assert "no result depends on it" in str(found)


def test_threads_may_take_turns() -> None:
    def total(x: Any) -> Any:
        with ThreadPoolExecutor(4) as pool:
            waiting = {pool.submit(lambda part: np.sqrt(part).sum(), part): n for n, part in enumerate(np.split(x, 10))}
            parts = {waiting[one]: one.result() for one in as_completed(waiting)}
        return sum(parts[n] for n in range(10))

    found = fpsim.locate(total, X, runs=10)
    assert found.same
    assert found.calls == 1 + 2 * 10 + 10


def test_other_operations_and_a_decision() -> None:
    found = fpsim.locate(lambda x: (x * 2).sum(), X, against=lambda x: np.exp(x).sum())
    assert (found.cause, found.operation) == ("sequence", "numpy.exp")
    assert str(found.counterpart).startswith("numpy.multiply")
    turn = itertools.count()
    found = fpsim.locate(lambda x: x.sum() if next(turn) % 2 == 0 else x, X)
    assert (found.cause, found.first) == ("outside", None)


def test_results_that_no_operation_made() -> None:
    found = fpsim.locate(lambda: [random.random()])
    assert (found.cause, found.calls, found.result_differs) == ("outside", 0, True)


def test_settings_of_each_side() -> None:
    scale = [1.0]

    def setting(value: float) -> Callable[[], None]:
        return lambda: scale.__setitem__(0, value)

    found = fpsim.locate(lambda x: x * scale[0], X, settings=(setting(1.0), setting(3.0)))
    assert (found.cause, found.sides) == ("outside", ("setting 1", "setting 2"))
    assert fpsim.locate(lambda x: x * scale[0], X, settings=(setting(2.0), setting(2.0))).same


def test_sides_are_compared_only_if_the_first_agrees_with_itself() -> None:
    found = fpsim.locate(lambda x: x[np.random.default_rng().permutation(30)], X, against=lambda x: x)
    assert (found.cause, found.sides) == ("random", ("run 1", "run 2"))


def functions() -> Iterator[tuple[str, Any]]:
    square = X[:, :30]
    yield "add.at", lambda x: np.add.at(x, [0, 1, 1], x[3:6])
    yield "matmul", lambda x: x @ x.T
    yield "dot", lambda x: x.dot(x.T)
    yield "einsum", lambda x: np.einsum("ij,kj->ik", x, x)
    yield "linalg.norm", np.linalg.norm
    yield "linalg.solve", lambda x: np.linalg.solve(square, x)
    yield "add.reduceat", lambda x: np.add.reduceat(x, [0, 5, 9])
    yield "var", lambda x: x.var(axis=0)
    yield "mean", np.mean
    yield "cumsum", lambda x: x.cumsum()
    yield "fft.rfft", np.fft.rfft
    yield "bincount", lambda x: np.bincount([0, 1, 1], weights=x[0, :3])
    yield "multiply", lambda x: np.asarray(x, np.float64) * 2
    yield "add", lambda x: np.zeros(len(x)) + 1
    yield "clip", lambda x: np.clip(x, 0, 1, out=np.empty_like(x))
    yield "modf", np.modf
    yield "copyto", lambda x: np.copyto(x, 0)


@pytest.mark.parametrize(("name", "function"), list(functions()), ids=[name for name, _ in functions()])
def test_operations_are_recorded_and_give_what_they_give(name: str, function: Any) -> None:
    recorder = Recorder()
    with tracing(recorder, ""):
        given = wrap(X.copy())
        result = function(given)
    assert [call.name for call in recorder.calls] == [name]
    expected, plain = X.copy(), None
    plain = function(expected)
    assert np.array_equal(given.view(np.ndarray), expected)
    if plain is not None:
        for one, two in zip(*(x if isinstance(x, tuple) else (x,) for x in (result, plain)), strict=True):
            assert np.asarray(one).tobytes() == np.asarray(two).tobytes()
            assert np.asarray(one).dtype == np.asarray(two).dtype


def test_recorded_scalars_behave_like_those_of_numpy() -> None:
    with tracing(Recorder(), ""):
        x = wrap(X.copy())
        total = x.sum()
        before = total
        total += 1
        assert float(before) == float(X.sum())
        assert total == X.sum() + 1
        assert {before: 1}[X.sum()] == 1
        assert f"{before:.3f}" == f"{X.sum():.3f}"
        assert round(before, 1) == round(float(X.sum()), 1)
        assert before.is_integer() == X.sum().is_integer()
        assert type(x[0, 0]) is Traced
        assert [float(one) for one in x[0, :3]] == [float(one) for one in X[0, :3]]
        with pytest.raises(TypeError, match="unhashable"):
            hash(x)
        with pytest.raises(AttributeError, match="nothing"):
            _ = x.nothing


def test_numpy_is_as_before_after_a_run_that_fails() -> None:
    before = {name: getattr(np, name) for name in ("zeros", "asarray", "array")}
    with pytest.raises(ZeroDivisionError):
        fpsim.locate(lambda x: x.size // 0, X)
    assert all(getattr(np, name) is one for name, one in before.items())
    assert type(np.asarray(X)) is np.ndarray
    assert type(np.random.default_rng(0)) is np.random.Generator


def test_compiled_functions_still_compile() -> None:
    numba = importlib.import_module("numba")

    def rows(x: Any) -> Any:
        result = np.zeros(x.shape[0], np.float32)
        for i in range(x.shape[0]):
            result[i] = np.asarray(x)[i].sum()
        return result

    compiled = numba.njit(rows)
    assert fpsim.locate(lambda x: compiled(x) * 2, X).same
    assert compiled.signatures


def test_wrong_use() -> None:
    with pytest.raises(InputError, match="runs must be at least 2"):
        fpsim.locate(np.sqrt, X, runs=1)
    with pytest.raises(InputError, match="give one of against"):
        fpsim.locate(np.sqrt, X, against=np.exp, settings=(int, int))
    with pytest.raises(InputError, match="give one of against"):
        fpsim.locate(np.sqrt, X, devices=("cpu", "cuda", "cpu"))


SOURCE = """\
import numpy as np
def steady(x, y):
    return (x @ y).sum()
def shuffled(x, y):
    order = np.random.default_rng().permutation(len(y))
    return x[:, order] @ y[order]
def by_columns(x, y):
    return np.asfortranarray(x).sum(axis=0)
def by_rows(x, y):
    return x.sum(axis=0)
"""


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (tmp_path / "losses_of_mine.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    np.savez("batch.npz", x=X.T, y=X)
    np.save("x.npy", X.T.copy())
    np.save("y.npy", X)
    assert main(["locate", "losses_of_mine.steady", "--input", "batch.npz"]) == 0
    assert "no difference in 2 runs" in capsys.readouterr().out
    files = ["--input", "x.npy", "--input", "y.npy"]
    assert main(["locate", "losses_of_mine.shuffled", *files, "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["cause"], found["operation"]) == ("random", "numpy.random.permutation")
    assert found["where"] == "losses_of_mine.py:5 in shuffled"
    assert main(["locate", "losses_of_mine.by_rows", *files, "--against", "losses_of_mine.by_columns"]) == 1
    assert "numpy.sum" in capsys.readouterr().out
    assert main(["locate", "losses_of_mine.steady", "--input", "none.npz"]) == 2
    assert main(["locate", "losses_of_mine.steady", "--runs", "1"]) == 2
    assert main(["locate", "losses_of_mine.steady", "--device", "cpu", "--device", "cuda", "--against", "x.y"]) == 2


# Switches


def test_the_table_of_switches() -> None:
    libraries = {one.library for one in SWITCHES}
    assert libraries == {"torch", "tensorflow", "jax", "numpy"}
    for library in libraries:
        assert {one.kind for one in SWITCHES if one.library == library} >= {"seed", "order"}
    assert all(one.cost and one.pins and one.source for one in SWITCHES)
    assert len({one.setting for one in SWITCHES}) == len(SWITCHES)
    assert table().count("\n") == len(SWITCHES) + 1
    assert {one.setting for one in SWITCHES if one.kind == "precision"} >= {FULL_FLOAT32["torch"], FULL_FLOAT32["jax"]}


def test_the_page_has_the_table_of_switches() -> None:
    page = Path(__file__).parents[1] / "docs" / "same-seed.md"
    assert f"\n{table()}\n" in page.read_text(encoding="utf-8")


def test_what_is_known_to_be_nondeterministic() -> None:
    assert len({(one.library, one.name, one.device, one.when) for one in NONDETERMINISTIC}) == len(NONDETERMINISTIC)
    assert known("torch", "aten.index_add_", device="cuda:1") is not None
    assert known("torch", "aten.index_copy", device="cpu") is not None
    assert known("torch", "aten.cumsum", device="cpu") is None
    cumsum = known("torch", "aten.cumsum")
    assert cumsum is not None
    assert not cumsum.pinned
    settings = [one.setting for one in relevant("torch", "aten.mm", "order", {"cuda:0"})]
    assert any("CUBLAS_WORKSPACE_CONFIG" in one for one in settings)
    assert not any("cudnn" in one or "num_threads" in one for one in settings)
    assert not any("CUBLAS" in one.setting for one in relevant("torch", "aten.mm", "order", {"cpu"}))


def on(call: Call, device: str) -> Call:
    moved = [tuple(replace(one, device=device) for one in side) for side in (call.operands, call.results)]
    return replace(call, operands=moved[0], results=moved[1])


def compared(first: Call, second: Call, sides: tuple[str, str]) -> Located:
    """Compare two runs of one operation each, as they might come from a GPU."""
    recorder = Recorder(reference=(first,), comparing=True)
    recorder.record(second, tuple, 0)
    before = Run(Recorder(calls=[first]), first.outputs, python_random=False)
    return locating._compared(before, Run(recorder, second.outputs, python_random=False), sides, 2)


def test_what_is_said_of_a_gpu() -> None:
    what = Operand((5, 8), "float32", "cuda:0", (32, 4), 0)
    call = Call("torch", "aten.index_add_", (what, what), (b"a", b"b", b""), (what,), (b"c",), "train.py:3 in loss")
    found = compared(call, replace(call, outputs=(b"d",)), ("run 1", "run 2"))
    assert found.cause == "operation"
    assert found.known == known("torch", "index_add")
    assert [one.setting for one in found.switches] == ["torch.use_deterministic_algorithms(True)"]
    text = str(found)
    assert "torch.aten.index_add_(float32 5x8 on cuda:0, float32 5x8 on cuda:0) -> float32 5x8 on cuda:0" in text
    assert "nondeterministic on a GPU; has a deterministic form (PyTorch 2.13" in text
    # A CPU beside it: no switch makes both add in one order.
    found = compared(on(call, "cpu"), replace(call, outputs=(b"d",)), ("cpu", "cuda"))
    assert found.cause == "operation"
    assert found.switches == ()
    assert "operand 0 is on cpu and on cuda:0" in found.notes
    product = replace(call, name="aten.mm")
    found = compared(on(product, "cpu"), replace(product, outputs=(b"d",)), ("cpu", "cuda"))
    assert [one.kind for one in found.switches] == ["precision"]
    drawn = replace(call, name="aten.randn", operands=(), inputs=(b"",), state=b"stream")
    found = compared(on(drawn, "cpu"), replace(drawn, outputs=(b"d",), state=b"other"), ("cpu", "cuda"))
    assert (found.cause, found.switches) == ("random", ())
    assert "draw other numbers from the same seed" in str(found)


# PyTorch


@needs_torch
def test_every_listed_operation_of_torch_exists() -> None:
    torch = importlib.import_module("torch")
    for one in NONDETERMINISTIC:
        if one.library == "torch":
            assert hasattr(torch.ops.aten, one.name), one.name


def step(net: Any, optimizer: Any, x: Any, y: Any) -> Any:
    optimizer.zero_grad()
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss, net.state_dict()


def model() -> tuple[Any, ...]:
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Dropout(0.5), torch.nn.Linear(32, 2))
    return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), torch.randn(16, 8), torch.randn(16, 2)


@needs_torch
def test_dropout_with_and_without_a_seed() -> None:
    given = model()
    weights = [one.detach().clone() for one in given[0].parameters()]
    found = fpsim.locate(step, *given)
    assert (found.cause, found.operation) == ("random", "torch.aten.bernoulli_")
    assert found.own == 0
    assert "in step" in found.where
    assert fpsim.locate(step, *given, seed=1).same
    given[0].eval()
    assert fpsim.locate(step, *given).same
    assert all((a == b).all() for a, b in zip(weights, given[0].parameters(), strict=True))  # copies were trained


@needs_torch
def test_a_backward_pass_is_recorded_with_its_forward_line() -> None:
    torch = importlib.import_module("torch")
    orders = itertools.cycle([False, True])

    base: Any = torch.autograd.Function

    class Product(base):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, x: Any) -> Any:
            context.order = next(orders)
            return x.clone()

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            return gradient.flip(0) if context.order else gradient

    def loss(x: Any) -> Any:
        w = x.clone().requires_grad_()
        y = w * torch.arange(5.0)
        Product.apply(y).square().sum().backward()
        return w.grad

    found = fpsim.locate(loss, torch.rand(5))
    assert (found.cause, found.operation) == ("sequence", "torch.aten.flip")
    assert found.first is not None
    assert found.first.backward
    again = fpsim.locate(lambda x: torch.autograd.grad(x.requires_grad_().exp().sum(), x), torch.rand(4))
    assert again.same
    assert again.calls >= 4  # exp, sum, and those of the backward pass


@needs_torch
def test_in_place_operations_and_several_results() -> None:
    torch = importlib.import_module("torch")
    x, index = torch.rand(1000, 3), torch.zeros(1000, dtype=torch.int64)
    shuffled = torch.randperm(1000)

    def total(x: Any, order: Any = slice(None)) -> Any:
        result = torch.zeros(1, 3)
        result.index_add_(0, index, x[order])
        return result.max(dim=0)

    assert fpsim.locate(total, x).same
    found = fpsim.locate(total, x, against=lambda x: total(x, shuffled))
    assert not found.same
    other = fpsim.locate(lambda x: total(x, shuffled), x, against=lambda x: total(x, shuffled.flip(0)))
    assert (other.cause, other.operation) == ("sequence", "torch.aten.flip")
    found = fpsim.locate(lambda x, i: torch.zeros(1, 3).index_add_(0, index, x[i]), x, shuffled)
    assert found.same
    names = ("values", "indices")
    assert fpsim.locate(lambda x: [getattr(x.max(dim=0), name) for name in names], x).same


@needs_torch
def test_an_operation_of_torch_that_differs() -> None:
    torch = importlib.import_module("torch")
    library = torch.library.Library("fpsim_tests", "FRAGMENT")
    turn = itertools.count()
    library.define("noisy(Tensor x) -> Tensor")
    library.impl("noisy", lambda x: x * (1 + 2.0**-23 * (next(turn) > 0)), "CompositeExplicitAutograd")
    x = torch.tensor([1.0, 0.0, -1.0, float("nan")])
    found = fpsim.locate(lambda x: torch.ops.fpsim_tests.noisy(x.neg()).sum(), x)
    assert (found.cause, found.operation, found.position) == ("operation", "torch.fpsim_tests.noisy", 2)
    assert (found.differing, found.total, found.max_ulp) == (2, 4, 1)
    assert found.follow == 1
    assert not found.result_differs  # the sum is NaN on both sides
    assert next(one.setting for one in found.switches) == "torch.use_deterministic_algorithms(True)"


@needs_torch
def test_layers_are_named_and_scratch_memory_does_not_count() -> None:
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.Dropout(0.5))
    found = fpsim.locate(net, torch.randn(16, 8))
    assert found.where.endswith("(Sequential > Dropout)")
    assert fpsim.locate(torch.nn.LSTM(8, 4), torch.randn(16, 8), runs=5).same  # whose workspace is as it was found
    given = torch.randn(16, 8, requires_grad=True)
    history = given * 2
    assert fpsim.locate(lambda x, _: (x * x).sum(), history, net).same
    found = fpsim.locate(lambda x: torch.empty(1000).fill_(1).sum() + x.sum(), given)
    assert found.same


@needs_torch
def test_a_training_step_of_a_model_with_what_cannot_be_copied() -> None:
    torch = importlib.import_module("torch")
    lock = threading.Lock()

    def with_lock(net: Any, optimizer: Any, x: Any, y: Any, held: Any) -> Any:
        with held:
            return step(net, optimizer, x, y)

    net, optimizer, x, y = model()
    before = [one.detach().clone() for one in net.parameters()]
    found = fpsim.locate(with_lock, net, optimizer, x, y, lock, seed=1)
    assert found.same
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    trained = fpsim.locate(with_lock, net, optimizer, x, y, lock, seed=1, against=lambda *given: with_lock(*given)[1])
    assert trained.cause == "outside"  # the results are not the same ones


@needs_torch
def test_arrays_become_tensors_on_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    torch = importlib.import_module("torch")
    found = fpsim.locate(lambda x: (x @ x.T).sum(), X, devices=("cpu",))
    assert found.same
    assert found.calls == 2
    assert fpsim.locate(lambda x: torch.zeros(30) + x[:, 0], X, devices=("cpu", "cpu")).same
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    (tmp_path / "tensors_of_mine.py").write_text("def total(x):\n    return x.relu().sum()\n")
    assert main(["locate", "tensors_of_mine.total", "--input", "x.npy", "--device", "cpu"]) == 0
    assert main(["locate", "torch.sum", "--input", "x.npy"]) == 0
    assert capsys.readouterr().out.count("no difference in 2 runs of") == 2
