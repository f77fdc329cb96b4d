"""All-reduces against recorded and real ones, and against the messages that the algorithms send."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import record_collectives as recorded
from numpy.typing import NDArray

import fpsim
from fpsim.devices import _libraries, gloo
from fpsim.errors import FpsimError, InputError, MissingExtraError, StrategyError, UnknownOrderError

DATA = Path(__file__).parent / "data"
GLOO = np.load(DATA / "gloo.npz")
MPI = np.load(DATA / "mpi.npz")
RULES = (
    "gloo_ring", "gloo_ring(max_segment_size=64)", "mpi_ring", "mpi_ring(library=mpich)", "mpi_recursive_doubling",
    "mpi_rabenseifner", "nccl_ring(counts=[60, 41], chunk_bytes=[32, 48])", "nccl_tree",
    "nccl_tree(nodes=3, pattern=split_tree, counts=[50, 51], chain=[1, 0])",
)  # fmt: skip
HAS_TORCH = importlib.util.find_spec("torch") is not None


def replay(x: NDArray[Any], text: str) -> NDArray[Any]:
    """Return the sum in the type of x."""
    chosen = text if "_" in text or x.dtype == np.float32 else f"{text}+acc(float64)"
    return np.asarray(fpsim.sum(x, chosen, axis=0)).astype(x.dtype)


# --- real all-reduces -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", recorded.RANKS)
@pytest.mark.parametrize("kind", recorded.TYPES)
def test_gloo(kind: str, ranks: int) -> None:
    sizes = recorded.sizes(ranks, kind)
    shown = replay(recorded.vectors(ranks, recorded.SHOWN, kind), "gloo_ring")
    np.testing.assert_array_equal(shown.view(f"u{shown.itemsize}"), GLOO[f"{kind}/{ranks}/bits"])
    got = [recorded.digest(replay(recorded.vectors(ranks, n, kind), "gloo_ring")) for n in sizes]
    different = [
        n for n, ours, theirs in zip(sizes, got, GLOO[f"{kind}/{ranks}"].tolist(), strict=True) if ours != theirs
    ]
    assert different == []


def test_gloo_cuts_long_messages_into_more_segments() -> None:
    # Other segments give other bits.
    n = 3 * 2 * 2**20 // 8 + 12345
    wanted = int(GLOO["float64/3"][recorded.sizes(3, "float64").index(n)])
    x = recorded.vectors(3, n, "float64")
    assert recorded.digest(replay(x, "gloo_ring")) == wanted
    assert recorded.digest(replay(x, "gloo_ring(max_segment_size=2097152)")) != wanted


@pytest.mark.parametrize("ranks", recorded.RANKS)
@pytest.mark.parametrize(
    ("library", "algorithm"), [(library, name) for library, names in recorded.ALGORITHMS.items() for name in names]
)
def test_mpi(library: str, algorithm: str, ranks: int) -> None:
    text = recorded.ALGORITHMS[library][algorithm]
    for kind in ("float32", "float64"):
        theirs = MPI[f"{library}.{algorithm}/{kind}/{ranks}"].tolist()
        for n, wanted in zip(recorded.mpi_sizes(ranks), theirs, strict=True):
            x = recorded.vectors(ranks, n, kind)
            if text == "mpi_rabenseifner" and n < 1 << ranks.bit_length() - 1:
                with pytest.raises(UnknownOrderError, match="elements on"):
                    replay(x, text)
            else:
                assert recorded.digest(replay(x, text)) == wanted, n


@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
@pytest.mark.parametrize("ranks", [2, 3])
def test_gloo_here(ranks: int) -> None:
    (one,) = gloo.implementations()
    for kind in recorded.TYPES:
        for n in (1, 2, 5, 6, 7, 100, 4099):
            x = recorded.vectors(ranks, n, kind)
            strategy = one.strategy("all_reduce", x)
            np.testing.assert_array_equal(one.run("all_reduce", x), replay(x, str(strategy)))


@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
def test_gloo_ends_what_does_not_answer() -> None:
    with pytest.raises(FpsimError, match="did not answer within"):
        gloo.all_reduce(np.zeros((2, 3), np.float32), timeout=0.01)
    np.testing.assert_array_equal(gloo.all_reduce(np.ones((2, 3), np.float32)), np.full((2, 3), 2, np.float32))


@pytest.mark.skipif(HAS_TORCH, reason="PyTorch is installed")
def test_gloo_is_not_there() -> None:
    (one,) = gloo.implementations()
    with pytest.raises(MissingExtraError, match="PyTorch is not installed"):
        one.run("all_reduce", np.zeros((2, 3), np.float32))


def test_gloo_of_a_broken_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(wanted: str) -> Any:
        message = f"cannot load {wanted}"
        raise OSError(message)

    monkeypatch.setattr(_libraries, "find_spec", lambda _: True)
    monkeypatch.setattr(_libraries, "import_module", broken)
    (one,) = gloo.implementations()
    assert "PyTorch is installed, but cannot be imported (OSError: cannot load torch)" in one.unavailable


def test_gloo_takes_rows_of_floats() -> None:
    strategy = gloo._strategy
    assert strategy(np.zeros((2, 3), np.float16)) == "gloo_ring"
    with pytest.raises(InputError, match="one row for each rank"):
        strategy(np.zeros(3, np.float32))
    with pytest.raises(UnknownOrderError, match="int32"):
        strategy(np.zeros((2, 3), np.int32))
    with pytest.raises(InputError, match="not int32"):
        gloo.all_reduce(np.zeros((2, 3), np.int32))


# --- the messages of the algorithms -----------------------------------------------------------------------------------


def sent_around(x: NDArray[Any], cuts: list[int], first: int, step: int) -> NDArray[Any]:
    """Let partial sums travel: the chunk c begins at rank c + first and goes `step` ranks further each time."""
    ranks = len(x)
    held: NDArray[Any] = x.copy()
    out: NDArray[Any] = np.empty_like(x[0])
    for chunk in range(ranks):
        part = slice(cuts[chunk], cuts[chunk + 1])
        at = (chunk + first) % ranks
        for _ in range(ranks - 1):
            to = (at + step) % ranks
            held[to, part] += held[at, part]
            at = to
        out[part] = held[at, part]
    return out


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
@pytest.mark.parametrize("segment", [4, 10, 64, 1 << 20])
def test_gloo_segments(ranks: int, segment: int) -> None:
    for n in (1, 5, 40, 333):
        x = recorded.vectors(ranks, n, "float32")
        # A rank's segments, one after another as Gloo sends them.
        segments = 2 * ranks
        while segments * (segment // 4) < n or segments % ranks:
            segments += 1
        each = -(-n // segments) * (segments // ranks)
        cuts = [min(c * each, n) for c in range(ranks + 1)]
        np.testing.assert_array_equal(replay(x, f"gloo_ring(max_segment_size={segment})"), sent_around(x, cuts, -1, -1))


def test_nccl_ring_goes_over_a_channel_in_loops() -> None:
    ranks, ring = 4, [0, 2, 3, 1]
    x = recorded.vectors(ranks, 1000, "float32")
    got = replay(x, "nccl_ring(counts=[700, 300], chunk_bytes=[256, 512], ring=[3, 1, 0, 2])")
    along = x[ring]
    want = np.empty_like(x[0])
    for begin, count, each in ((0, 700, 64), (700, 300, 128)):
        for loop in range(begin, begin + count, ranks * each):
            stop = min(loop + ranks * each, begin + count)
            size = each if stop - loop == ranks * each else -(-(stop - loop) // 16) * 4
            cuts = [min(loop + c * size, stop) - loop for c in range(ranks + 1)]
            want[loop:stop] = sent_around(along[:, loop:stop], cuts, 1, 1)
    np.testing.assert_array_equal(got, want)


#: Parent of each node: the pictures in NCCL's source, of the first tree and of the second.
TREES = {
    (14, 0): {8: 0, 4: 8, 12: 8, 2: 4, 6: 4, 10: 12, 13: 12, 1: 2, 3: 2, 5: 6, 7: 6, 9: 10, 11: 10},
    (12, 1): {3: 11, 1: 3, 7: 3, 5: 7, 9: 7, 0: 1, 2: 1, 4: 5, 6: 5, 8: 9, 10: 9},
    (13, 1): {9: 1, 5: 9, 0: 9, 3: 5, 7: 5, 11: 0, 2: 3, 4: 3, 6: 7, 8: 7, 10: 11, 12: 11},
}


@pytest.mark.parametrize(("nodes", "tree"), TREES)
def test_nccl_tree_across_nodes(nodes: int, tree: int) -> None:
    parents = TREES[nodes, tree]
    x = recorded.vectors(nodes, 500, "float32")
    (root,) = set(range(nodes)) - set(parents)

    def first_number(node: int) -> int:
        """Return the number of a node in the first tree, by which its parent orders its children."""
        return [node, (node - 1) % nodes if nodes % 2 else nodes - 1 - node][tree]

    def total(node: int) -> NDArray[Any]:
        own: NDArray[Any] = x[node].copy()
        for child in sorted((child for child, parent in parents.items() if parent == node), key=first_number):
            own += total(child)
        return own

    np.testing.assert_array_equal(replay(x, f"nccl_tree(nodes={nodes}, counts=[500], tree={tree})"), total(root))


def test_nccl_tree_in_a_node_is_a_chain() -> None:
    x = recorded.vectors(6, 100, "float32")
    np.testing.assert_array_equal(replay(x, "nccl_tree"), replay(x, "reverse"))
    np.testing.assert_array_equal(replay(x, "nccl_tree(chain=[5, 4, 3, 2, 1, 0])"), replay(x, "serial"))


def test_nccl_tree_hangs_nodes_on_ranks() -> None:
    # Two nodes of three: the root is node 0 in the first tree and node 1 in the second.
    x = recorded.vectors(6, 4, "float32")
    a, b = x[:3], x[3:]

    def chain(node: NDArray[Any]) -> Any:
        return node[0] + (node[1] + node[2])

    first = {
        "plain_tree": (a[0] + (a[1] + a[2])) + chain(b),
        "balanced_tree": (a[0] + (a[1] + a[2])) + chain(b),
        "split_tree": a[0] + ((a[1] + a[2]) + chain(b)),
    }
    second = {
        "plain_tree": (b[0] + (b[1] + b[2])) + chain(a),
        "balanced_tree": (b[0] + (b[1] + b[2])) + chain(a),
        "split_tree": b[0] + ((b[1] + b[2]) + chain(a)),
    }
    for pattern, want in first.items():
        got = replay(x, f"nccl_tree(nodes=2, pattern={pattern}, counts=[2, 2])")
        np.testing.assert_array_equal(got, [*want[:2], *second[pattern][2:]])


# --- what all rules have in common ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", RULES)
def test_texts_are_read_back(text: str) -> None:
    assert str(fpsim.strategy(text)) == text


@pytest.mark.parametrize("text", RULES)
def test_every_rank_counts_once(text: str) -> None:
    # Powers of two add up exactly in any order.
    x = np.ldexp(1.0, np.arange(6))[:, None] * np.ones(101, np.float64)
    np.testing.assert_array_equal(fpsim.sum(x.astype(np.float32), text, axis=0), np.full(101, 63, np.float32))


def test_two_ranks_add_in_any_order() -> None:
    x = recorded.vectors(2, 100, "float32")
    for text in ("gloo_ring", "mpi_ring", "mpi_rabenseifner", "nccl_ring", "nccl_tree", "nccl_tree(nodes=2)"):
        np.testing.assert_array_equal(replay(x, text), x[0] + x[1])


def test_the_ranks_may_stand_on_any_axis() -> None:
    x = recorded.vectors(5, 60, "float32")
    want = replay(x, "gloo_ring")
    np.testing.assert_array_equal(fpsim.sum(x.T, "gloo_ring", axis=1), want)
    np.testing.assert_array_equal(fpsim.sum(x.reshape(5, 3, 20), "gloo_ring", axis=0), want.reshape(3, 20))


def test_a_given_chunk_holds_for_all_elements() -> None:
    x = recorded.vectors(4, 50, "float32")
    np.testing.assert_array_equal(replay(x, "gloo_ring(chunk=2)"), ((x[1] + x[0]) + x[3]) + x[2])
    np.testing.assert_array_equal(replay(x, "mpi_ring(chunk=2)"), ((x[2] + x[3]) + x[0]) + x[1])


def test_the_format_decides_the_size_of_elements() -> None:
    # 100 bytes are 25 elements of float32 and 50 of bfloat16, so that chunks differ.
    x = recorded.vectors(3, 400, "bfloat16")
    text = "gloo_ring(max_segment_size=100)"
    of_type = replay(x, text)
    stated = fpsim.sum(x.astype(np.float32), f"{text}+acc(bfloat16)+operands(bfloat16)", axis=0)
    np.testing.assert_array_equal(of_type.astype(np.float32), stated)
    other = fpsim.sum(x.astype(np.float32), f"{text}+acc(bfloat16)", axis=0)
    assert (other != stated).any()


def test_nothing_to_send() -> None:
    for text in RULES[:6]:
        if text != "mpi_rabenseifner":
            assert fpsim.sum(np.zeros((3, 0), np.float32), text, axis=0).shape == (0,)
        assert fpsim.sum(np.zeros((0, 4), np.float32), text, axis=0).tolist() == [0, 0, 0, 0]


def test_unknown_cases_are_refused() -> None:
    x = np.ones((4, 10), np.float32)
    with pytest.raises(UnknownOrderError, match="several axes"):
        fpsim.sum(x, "gloo_ring")
    with pytest.raises(UnknownOrderError, match="4 ranks without the sizes"):
        fpsim.sum(x, "nccl_ring", axis=0)
    with pytest.raises(UnknownOrderError, match="2 nodes without the number"):
        fpsim.sum(x, "nccl_tree(nodes=2)", axis=0)
    with pytest.raises(UnknownOrderError, match="4 ranks on 3 nodes"):
        fpsim.sum(x, "nccl_tree(nodes=3, counts=[10])", axis=0)
    with pytest.raises(UnknownOrderError, match="elements in float16"):
        fpsim.sum(x.astype(np.float16), "mpi_ring", axis=0)
    with pytest.raises(UnknownOrderError, match="3 elements on 4 ranks"):
        fpsim.sum(x[:, :3], "mpi_rabenseifner", axis=0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gloo_ring(max_segment_size=0)", "max_segment_size must be"),
        ("gloo_ring(chunk=-1)", "chunk must be"),
        ("mpi_ring(library=intel)", "library=intel is not one of openmpi, mpich"),
        ("nccl_tree(pattern=star)", "pattern=star is not one of"),
        ("nccl_ring(counts=[5, 4], chunk_bytes=[64])", "add up to 9 elements, not 10"),
        ("nccl_ring(counts=[5, 5], chunk_bytes=[64, 64, 64])", "chunk_bytes needs one number"),
        ("nccl_ring(counts=[5, 5], chunk_bytes=[2])", "chunk_bytes needs one number of at least 4"),
        ("nccl_ring(counts=[10], chunk_bytes=[64], ring=[0, 1, 2, 2])", "does not name each of 4 ranks"),
        ("nccl_tree(chain=[0, 1, 2])", "does not name each of 4 ranks of a node"),
    ],
)
def test_arguments_that_make_no_sense(text: str, message: str) -> None:
    with pytest.raises(StrategyError, match=message):
        fpsim.sum(np.ones((4, 10), np.float32), text, axis=0)
