"""`fpsim.reveal`: black boxes whose strategy is known, and such that have none."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim import _hypotheses
from fpsim._black_box import BlackBox, probe_values
from fpsim._probing import Node, Prober, UnreadableTreeError, tree_of, tree_text
from fpsim.errors import InputError
from fpsim.formats import as_format


@pytest.fixture(autouse=True)
def _no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_hypotheses, "RECENT", type(_hypotheses.RECENT)(maxlen=1))


def sum_with(text: str) -> Callable[[Any], Any]:
    return lambda x: fpsim.sum(x, text)


def dot_with(text: str) -> Callable[[Any, Any], Any]:
    return lambda x, y: fpsim.dot(x, y, text)


def agrees(revealed: fpsim.Revealed, function: Callable[..., Any], *, operands: int, n: int) -> bool:
    """Compare on operands that reveal has not seen."""
    assert revealed.strategy is not None
    rng = np.random.default_rng(987)
    for law in ("normal", "wide(-25, 25)", "uniform(0, 1)"):
        given = [fpsim.law(law).draw(n, rng=rng) for _ in range(operands)]
        emulate: Callable[..., Any] = fpsim.sum if operands == 1 else fpsim.dot
        ours = emulate(*given, revealed.strategy)
        if np.float32(ours) != function(*given):
            return False
    return True


@pytest.mark.parametrize(
    "text",
    [
        "serial", "reverse", "pairwise", "fold", "lanes(8, combine=fold)", "split_k(5)", "interleaved(5, block=8)",
        "pairwise+neumaier", "serial+kahan", "pairwise+acc(float64)+output(float32)", "lanes(8)+acc(bfloat16)",
        "serial+acc(float32, toward_zero)", "pairwise+operands(tf32, nearest_away)", "serial+ftz+daz",
    ],
)  # fmt: skip
def test_sums(text: str) -> None:
    function = sum_with(text)
    revealed = fpsim.reveal(function, n=130, replays=60)
    assert agrees(revealed, function, operands=1, n=130), revealed
    assert revealed.evidence.method == "hypothesis"
    assert revealed.evidence.equal == revealed.evidence.replays == 60


@pytest.mark.parametrize(
    "text", ["serial+fma", "lanes(8)", "pairwise+fma", "serial+dot2", "split_k(3)+operands(bfloat16)"]
)
def test_dots(text: str) -> None:
    function = dot_with(text)
    assert agrees(fpsim.reveal(function, op="dot", n=90, replays=60), function, operands=2, n=90)


@pytest.mark.parametrize(
    ("order", "fma"), [("lanes(7, combine=reverse)", ""), ("shuffle(3)", "+fma"), ("rotate(5)", "+fma")]
)
def test_orders_that_are_not_tried_at_first_are_probed(order: str, fma: str) -> None:
    function = dot_with(order + fma)
    revealed = fpsim.reveal(function, op="dot", n=60, replays=40)
    assert agrees(revealed, function, operands=2, n=60), revealed
    assert revealed.evidence.method == "probing"
    assert str(revealed.strategy).startswith("tree(" if order.startswith("shuffle") else order)


def test_numpy_is_recognised_with_few_calls() -> None:
    revealed = fpsim.reveal(np.sum, n=4096)
    assert str(revealed.strategy) == "numpy_sum"
    assert revealed.evidence.calls <= 20_224 / 20  # what FPRev takes, by its paper
    backwards = fpsim.reveal(lambda x: np.add.accumulate(x[::-1])[-1], n=4096)
    assert str(backwards.strategy) == "reverse"
    assert backwards.evidence.calls <= 4096 * 4095 / 2 / 1000


def test_means() -> None:
    assert str(fpsim.reveal(np.mean, op="mean", n=500, replays=50).strategy) == "numpy_sum"
    scaled = fpsim.reveal(lambda x: fpsim.mean(x, "lanes(4)+reciprocal"), op="mean", n=501, replays=50)
    assert str(scaled.strategy) == "lanes(4)+reciprocal"


@pytest.mark.parametrize(
    ("function", "note"),
    [
        (lambda x: np.float32(math.fsum(x.tolist())), "correctly rounded exact one"),
        (lambda x: np.add.accumulate(np.sort(x))[-1], "sorted first, in ascending order"),
        (lambda x: np.sum(x[np.argsort(np.abs(x))]), "sorted first, by ascending magnitude"),
    ],
)
@pytest.mark.parametrize("n", [4, 100])
def test_sums_without_an_order_are_named_and_nothing_is_claimed(
    function: Callable[[Any], Any], note: str, n: int
) -> None:
    revealed = fpsim.reveal(function, n=n)
    assert revealed.strategy is None
    assert not revealed.found
    assert any(note in one for one in revealed.evidence.notes)
    assert "no strategy is claimed" in str(revealed)


@pytest.mark.parametrize("n", [4, 7, 16, 33])
def test_a_compensated_sum_is_not_taken_for_an_exact_one(n: int) -> None:
    """Neumaier's sum in float32 has nearly always the correctly rounded result."""

    def neumaier(x: Any) -> Any:
        total = compensation = np.float32(0)
        for term in x:
            new = total + term
            larger, smaller = (total, term) if abs(total) >= abs(term) else (term, total)
            compensation += (larger - new) + smaller
            total = new
        return total + compensation

    assert str(fpsim.reveal(neumaier, n=n).strategy) == "serial+neumaier"


@pytest.mark.parametrize("n", [4, 100])
def test_random_order_is_named(n: int) -> None:
    rng = np.random.default_rng(0)
    revealed = fpsim.reveal(lambda x: np.add.accumulate(rng.permutation(x))[-1], n=n)
    assert revealed.strategy is None
    assert "from run to run" in revealed.evidence.notes[0]


def test_a_wrong_tree_is_never_claimed() -> None:
    """A sum that skips the compensation on every third call by value: no tree and no arithmetic fits."""

    def odd(x: Any) -> Any:
        return fpsim.sum(x, "serial") if x[0] < 0 else fpsim.sum(x, "pairwise")

    revealed = fpsim.reveal(odd, n=64, replays=50)
    assert revealed.strategy is None
    assert revealed.evidence.counterexample is None or revealed.evidence.equal < revealed.evidence.replays


def test_a_late_counterexample_is_kept() -> None:
    calls = 0

    def tired(x: Any) -> Any:
        nonlocal calls
        calls += 1
        return fpsim.sum(x, "serial") if calls < 150 else np.nextafter(fpsim.sum(x, "serial"), np.float32(np.inf))

    revealed = fpsim.reveal(tired, n=20)
    assert revealed.strategy is None
    example = revealed.evidence.counterexample
    assert example is not None
    assert example.strategy == "serial"
    assert example.actual != example.predicted
    assert 0 < revealed.evidence.equal == revealed.evidence.replays - 1


def test_products() -> None:
    whole = fpsim.reveal(lambda a, b: fpsim.matmul(a, b, "split_k(3)+fma"), op="matmul", shape=(9, 50, 11), replays=30)
    assert str(whole.strategy) == "split_k(3)+fma"
    row = fpsim.reveal(lambda a, x: fpsim.matmul(a, x, "lanes(4)"), op="matvec", shape=(5, 64), replays=30)
    assert str(row.strategy) == "lanes(4)"
    column = fpsim.reveal(lambda x, a: fpsim.matmul(x, a, "reverse+fma"), op="vecmat", shape=(64, 5), replays=30)
    assert str(column.strategy) == "reverse+fma"


def test_outputs_with_different_orders() -> None:
    def product(a: Any, b: Any) -> Any:
        out = fpsim.matmul(a, b, "serial+fma")
        out[:, 4:] = fpsim.matmul(a, b, "lanes(4)+fma")[:, 4:]
        out[0, 0] = fpsim.matmul(a, b, "shuffle(5)")[0, 0]
        return out

    revealed = fpsim.reveal(product, op="matmul", shape=(6, 30, 8), replays=30)
    assert revealed.strategy is None
    assert revealed.found
    parts = {str(p.strategy): p.outputs for p in revealed.parts}
    assert parts["lanes(4)+fma"][:, 4:].all()
    assert parts["serial+fma"].sum() == 6 * 4 - 1
    (tree,) = [p for p in revealed.parts if str(p.strategy).startswith("tree(")]
    assert np.argwhere(tree.outputs).tolist() == [[0, 0]]
    assert "the order depends on the output" in str(revealed)


def test_a_sum_added_to_zero_last() -> None:
    """Products of XLA that underflow to -0 in every lane are +0."""
    lanes = "lanes(12, combine=pairwise)"
    text = f"chunks(64, {lanes}, combine=serial+start(0.0))+fma+ftz+daz"
    revealed = fpsim.reveal(lambda a, x: fpsim.matmul(a, x, text), op="matvec", shape=(24, 64), replays=120)
    assert str(revealed.strategy) == text
    plain = fpsim.reveal(
        lambda a, x: fpsim.matmul(a, x, f"{lanes}+fma+ftz+daz"), op="matvec", shape=(24, 64), replays=60
    )
    assert str(plain.strategy) == f"{lanes}+fma+ftz+daz"


def test_products_that_are_flushed_and_sums_that_are_not() -> None:
    """CuPy's dot product: a kernel of its own multiplies, and CUB adds."""

    def flushed(x: Any) -> Any:
        return np.where(np.abs(x) < np.finfo(np.float32).smallest_normal, np.copysign(np.float32(0), x), x)

    def dot(a: Any, b: Any) -> Any:
        with np.errstate(all="ignore"):
            return np.sum(flushed(flushed(a) * flushed(b)))

    revealed = fpsim.reveal(dot, op="dot", n=200, replays=120)
    assert str(revealed.strategy) == "numpy_sum+product(float32(subnormals=False))+daz"


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_formats(dtype: str) -> None:
    function = sum_with("lanes(3)+acc(float64)") if dtype == "float64" else sum_with("lanes(3)+acc(float16)")
    revealed = fpsim.reveal(function, n=300, dtype=dtype, replays=40)
    assert str(revealed.strategy) in ("lanes(3)+acc(float64)", "lanes(3)+acc(float16)")


def test_to_dict_and_text() -> None:
    revealed = fpsim.reveal(np.sum, n=50, replays=5)
    plain = revealed.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["evidence"]["equal"] == 5
    assert "5 of 5 random replays have equal bits" in str(revealed)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "give n"),
        ({"n": 5, "shape": (5,)}, "give n"),
        ({"n": 0}, "at least 1"),
        ({"op": "summe", "n": 5}, "unknown operation 'summe'"),
        ({"op": "matmul", "n": 5}, r"shape of a matmul is \(m, k, n\)"),
        ({"n": 5, "replays": 0}, "replays must be"),
    ],
)
def test_usage_errors(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fpsim.reveal(np.sum, **settings)


def test_a_result_of_the_wrong_shape() -> None:
    with pytest.raises(InputError, match="returned an array of shape"):
        fpsim.reveal(np.cumsum, n=5)


# --- probes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "e4m3fn", "e5m2"])
@pytest.mark.parametrize("multiplies", [True, False])
def test_probe_values_are_held_and_the_mask_absorbs_the_unit(dtype: str, multiplies: bool) -> None:
    form = as_format(dtype)
    unit, mask = probe_values(form, multiplies)
    assert mask / unit >= 2.0**14 * form.precision
    for value in (unit, mask):
        if not multiplies:
            assert fpsim.round_to(value, form) == value
    box = BlackBox(lambda a, b: float(a.astype(float) @ b.astype(float)), "dot", (3,), form)
    if multiplies:
        for value in (unit, mask):
            operands = box.operands_of(np.array([value, 0.0, 0.0]))
            assert all(np.array_equal(fpsim.round_to(x, form), x) for x in operands)
            assert box.of_terms(np.array([value, 0.0, 0.0]))[0] == value


def leaves(node: Node | int) -> list[int]:
    return [node] if isinstance(node, int) else [leaf for child in node.children for leaf in leaves(child)]


def size_in(root: Node | int, i: int, j: int) -> int:
    here = root
    while isinstance(here, Node):
        below = [child for child in here.children if {i, j} <= set(leaves(child))]
        if not below:
            return len(leaves(here))
        here = below[0]
    return 1


def test_trees_with_fused_nodes_come_back() -> None:
    rng = np.random.default_rng(5)

    def draw(terms: list[int]) -> Node | int:
        if len(terms) == 1:
            return terms[0]
        parts = int(rng.integers(2, min(5, len(terms)) + 1))
        cuts = np.sort(rng.choice(np.arange(1, len(terms)), parts - 1, replace=False)).tolist()
        pieces = [terms[a:b] for a, b in zip([0, *cuts], [*cuts, len(terms)], strict=True)]
        return Node(tuple(draw(piece) for piece in pieces))

    def canonical(node: Node | int) -> Any:
        return node if isinstance(node, int) else frozenset(canonical(child) for child in node.children)

    for _ in range(40):
        n = int(rng.integers(1, 25))
        tree = draw(rng.permutation(n).tolist())
        found = tree_of(n, lambda i, j, tree=tree: size_in(tree, i, j), rng)  # type: ignore[misc]
        assert canonical(found) == canonical(tree)


def test_contradicting_sizes_are_refused() -> None:
    with pytest.raises(UnreadableTreeError, match="contradict"):
        tree_of(4, lambda i, j: 3, np.random.default_rng(0))  # noqa: ARG005


def test_tree_text_writes_ranges() -> None:
    serial: Node | int = 0
    for leaf in range(1, 9):
        serial = Node((serial, leaf))
    assert tree_text(serial) == "0..8"
    assert tree_text(Node((0, 1))) == "0 1"
    assert tree_text(7) == "7"
    assert tree_text(Node((0, 1, 2))) is None


def test_a_deep_tree_is_no_problem() -> None:
    n = 3000
    tree = tree_of(n, lambda i, j: n - min(i, j), np.random.default_rng(0))  # reverse
    text = tree_text(tree)
    assert text is not None
    x = np.random.default_rng(1).standard_normal(n).astype(np.float32)
    assert fpsim.sum(x, f'tree("{text}")') == fpsim.sum(x, "reverse")


def test_a_narrow_result_counts_in_parts() -> None:
    box = BlackBox(lambda x: np.add.accumulate(x)[-1], "sum", (3000,), as_format("float16"))
    prober = Prober.of(box)
    assert prober.capacity == 2048
    assert prober.sizes(0, 2500)[0] == 2501


@pytest.mark.parametrize("n", [16, 300])
def test_float16_summed_in_float32_keeps_its_order(n: int) -> None:
    def backwards(x: Any) -> Any:
        return np.float16(np.add.accumulate(x[::-1].astype(np.float32))[-1])

    revealed = fpsim.reveal(backwards, n=n, dtype="float16")
    assert revealed.strategy is not None
    rng = np.random.default_rng(11)
    for _ in range(40):
        x = fpsim.law("wide(-20, 12)").draw(n, rng=rng, dtype="float16")
        half = (n - 1) // 2
        x[half : 2 * half] = -rng.permutation(x[:half])
        with np.errstate(over="ignore"):
            assert fpsim.sum(x, revealed.strategy) == backwards(x)


def test_a_function_of_nothing() -> None:
    revealed = fpsim.reveal(lambda x: np.float32(7), n=20)  # noqa: ARG005
    assert not revealed.found
    assert any("does not depend on the terms" in note for note in revealed.evidence.notes)
