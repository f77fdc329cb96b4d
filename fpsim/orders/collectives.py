"""The orders of all-reduce: the sum of one vector of each rank, over axis 0 of an array of shape (ranks, elements).

The order depends on the chunk that an element falls into, and every hop rounds to the type of the elements. Sources:
``gloo/allreduce.cc`` (Gloo), ``ompi/mca/coll/base/coll_base_allreduce.c`` (Open MPI 5), ``src/mpi/coll/allreduce``
(MPICH 5), ``src/device/all_reduce.h``, ``src/graph/trees.cc`` and ``src/graph/connect.cc`` (NCCL 2.22 to 2.30).

Checked bit for bit, on every rank: `GlooRing` (PyTorch 2.13), `MpiRing`, `MpiRecursiveDoubling` and `MpiRabenseifner`
(Open MPI 5.0.11, MPICH 5.0.2), `NcclRing` and `NcclTree` (NCCL 2.32.3, four ranks). What of NCCL is read in the source
only stands with the two.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fpsim.arithmetic import NO_SETTINGS, Arithmetic, Rounding, Settings
from fpsim.errors import StrategyError
from fpsim.formats import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, Format
from fpsim.orders.base import Part, Reduction, Scattered, pairs
from fpsim.orders.named import NamedRule
from fpsim.programs import Builder, Items, Segment, count_items, split_items


class AllReduce(NamedRule):
    """What the rules of all-reduce have in common.

    Attributes
    ----------
    formats : tuple of Format
        The types of the elements that are known.
    """

    formats: ClassVar[tuple[Format, ...]] = (FLOAT32, FLOAT64)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.name in self.choices:
                if value not in self.choices[field.name]:
                    message = f"{self.name}: {field.name}={value} is not one of {', '.join(self.choices[field.name])}"
                    raise StrategyError(message)
                continue
            least = 0 if field.default in (None, 0, ()) else 1
            for number in value if isinstance(value, tuple) else () if value is None else (value,):
                if not isinstance(number, int) or isinstance(number, bool) or number < least:
                    message = f"{self.name}: {field.name} must be whole numbers of at least {least}, not {value!r}"
                    raise StrategyError(message)

    def layout(self, case: Reduction) -> tuple[tuple[int, ...], list[Part]]:
        if len(case.axes) != 1:
            self.refuse("sums over several axes; put the ranks on one axis")
        return case.axes, self.parts(case.n, case.outputs, _bytes(case.format))

    def parts(self, ranks: int, elements: int, size: int) -> list[Part]:
        """Return which elements of a message, of `size` bytes each, are added in which order."""
        del ranks, elements, size
        return [Part(self)]

    def defaults(self, data: Format | None) -> Settings:
        if data is None or data == FLOAT32:
            return NO_SETTINGS
        if data not in self.formats:
            self.refuse(f"elements in {data}")
        return Settings(accumulator=Rounding(data))

    def arguments(self) -> list[str]:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        given = [(field.name, getattr(self, field.name), field.default) for field in fields]
        return [f"{name}={_written(value)}" for name, value, default in given if value != default]


class Ring(AllReduce):
    """A ring: a chunk goes from rank to rank, each of which adds its own elements to it."""

    chunk: int | None
    #: The chunk c begins at this position of the ring, counted from c, and goes on by this step.
    first: ClassVar[int]
    step: ClassVar[int]

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        ranks = count_items(items)
        chunk = self.chunk or 0
        ring = self.places(ranks)
        places = [ring[(chunk + self.start() + self.step * hop) % ranks] for hop in range(ranks)]
        return builder.fold(Scattered(items).pick(np.array(places)), arithmetic)

    def start(self) -> int:
        """Return the position at which a chunk begins, less its number."""
        return self.first

    def places(self, ranks: int) -> list[int]:
        """Return the rank at each position of the ring."""
        return list(range(ranks))

    def chunked(self, ranges: Iterator[tuple[int, int, int]]) -> list[Part]:
        """Return the parts of ranges (chunk, start, stop) of elements."""
        return [
            Part(replace(self, chunk=chunk), columns=range(start, stop))  # type: ignore[type-var]
            for chunk, start, stop in ranges
            if stop > start
        ]


@dataclass(frozen=True, slots=True)
class GlooRing(Ring):
    """Gloo's ring, ``torch.distributed.all_reduce`` with the backend ``gloo`` on CPU tensors.

    The elements are cut into segments, an equal number for each rank and at least two, of at most `max_segment_size`
    bytes; the segments of a rank are its chunk. Chunk c is x[c-1] + x[c-2] + ... + x[c], ranks modulo their number.
    float16 and bfloat16 are rounded at every hop.

    Checked bit for bit with PyTorch 2.13 (x86-64): 2 to 8 ranks, up to 3*10^6 elements, float32, float64, float16 and
    bfloat16. `max_segment_size` is ``AllreduceOptions::setMaxSegmentSize``, which PyTorch leaves alone. `chunk` is
    set by the rule itself; given, it is the chunk of all elements.
    """

    max_segment_size: int = 1 << 20
    chunk: int | None = None
    name: ClassVar[str] = "gloo_ring"
    formats: ClassVar[tuple[Format, ...]] = (FLOAT32, FLOAT64, FLOAT16, BFLOAT16)
    first: ClassVar[int] = -1
    step: ClassVar[int] = -1

    def parts(self, ranks: int, elements: int, size: int) -> list[Part]:
        if self.chunk is not None or not elements or ranks < 2:
            return [Part(self)]
        each = _gloo_chunk(ranks, elements, size, self.max_segment_size)
        return self.chunked((c, c * each, min((c + 1) * each, elements)) for c in range(ranks))


def _gloo_chunk(ranks: int, elements: int, size: int, most: int) -> int:
    """Return the number of elements of a chunk."""
    most = max(1, most // size)
    segments = -(-max(-(-elements // most), 2 * ranks) // ranks) * ranks
    return segments // ranks * -(-elements // segments)


@dataclass(frozen=True, slots=True)
class MpiRing(Ring):
    """The ring of Open MPI (algorithms 4, ``ring``, and 5, ``segmented_ring``) or of MPICH (``ring``).

    In Open MPI chunk c is x[c] + x[c+1] + ... + x[c-1], and the first n mod ranks chunks are one element longer; fewer
    elements than ranks are added by recursive doubling. In MPICH it is x[c+1] + x[c+2] + ... + x[c], and chunks have
    ceil(n / ranks) elements. Checked bit for bit with Open MPI 5.0.11 and MPICH 5.0.2, float32 and float64, 2 to 8
    ranks. Which algorithm runs is the library's choice, or set: ``coll_tuned_allreduce_algorithm`` in Open MPI,
    ``MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM`` in MPICH.
    """

    library: str = "openmpi"
    chunk: int | None = None
    name: ClassVar[str] = "mpi_ring"
    choices: ClassVar[dict[str, tuple[str, ...]]] = {"library": ("openmpi", "mpich")}
    step: ClassVar[int] = 1

    def start(self) -> int:
        return 0 if self.library == "openmpi" else 1

    def parts(self, ranks: int, elements: int, size: int) -> list[Part]:
        del size
        if self.chunk is not None or not elements or ranks < 2:
            return [Part(self)]
        if self.library == "mpich":
            each = -(-elements // ranks)
            return self.chunked((c, c * each, min((c + 1) * each, elements)) for c in range(ranks))
        if elements < ranks:
            return [Part(MpiRecursiveDoubling())]
        each, longer = divmod(elements, ranks)
        cuts = [c * each + min(c, longer) for c in range(ranks + 1)]
        return self.chunked((c, *cut) for c, cut in enumerate(itertools.pairwise(cuts)))


@dataclass(frozen=True, slots=True)
class MpiRecursiveDoubling(AllReduce):
    """Recursive doubling of Open MPI (algorithm 3) and MPICH.

    With R = 2^k + e ranks the first 2e are added in pairs, (0, 1), (2, 3), ...; then neighbours, pairs of neighbours
    and so on. Checked as `MpiRing` is.
    """

    name: ClassVar[str] = "mpi_recursive_doubling"

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        return _doubled(builder, items, arithmetic)


@dataclass(frozen=True, slots=True)
class MpiRabenseifner(AllReduce):
    """Rabenseifner's algorithm, a reduce-scatter and an all-gather: Open MPI (algorithm 6), MPICH.

    It halves the vectors while it doubles the distance, so that the terms of every element are added as in
    `MpiRecursiveDoubling`. Not known for fewer elements than the largest power of two up to the number of ranks.
    Checked as `MpiRing` is.
    """

    name: ClassVar[str] = "mpi_rabenseifner"

    def parts(self, ranks: int, elements: int, size: int) -> list[Part]:
        del size
        if ranks and elements < _power(ranks):
            self.refuse(f"{elements} elements on {ranks} ranks; from {_power(ranks)} elements on it is")
        return [Part(self)]

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        return _doubled(builder, items, arithmetic)


def _power(ranks: int) -> int:
    return 1 << (ranks.bit_length() - 1)


def _doubled(builder: Builder, items: Items, arithmetic: Arithmetic) -> Segment:
    ranks = count_items(items)
    paired, rest = split_items(items, 2 * (ranks - _power(ranks)))
    if paired:
        items = (*pairs(builder, paired, arithmetic), *rest)
    while count_items(items) > 1:
        items = pairs(builder, items, arithmetic)
    (total,) = items
    return total if total.item is not None else builder.fold(items, arithmetic)


@dataclass(frozen=True, slots=True)
class NcclRing(Ring):
    """NCCL's ring (``NCCL_ALGO=Ring``).

    Channel after channel takes a run of elements and goes over it in loops of a chunk for each rank; chunk c of a loop
    is x[c+1] + x[c+2] + ... + x[c], where x[i] belongs to the rank at position i of the ring. In a loop that is not
    full a chunk is ceil(rest / ranks), rounded up to 16 bytes. float16 and bfloat16 are rounded at every hop.

    NCCL chooses the sizes by protocol, number of channels and message. With ``NCCL_DEBUG=INFO`` and
    ``NCCL_DEBUG_SUBSYS=TUNING`` it prints the channels of a message as ``channel{Lo..Hi}``; all but the last one get
    equally many cells, of 16 KiB (Simple) or 4 KiB (LL) from NCCL 2.29 on, as few as do for so many channels. Built
    with ``TRACE=1`` it prints the sizes as ``count{Lo,Mid,Hi}`` and ``chunkBytes{Lo,Mid,Hi}``: the first channel, those
    in between, the last one. Without them more than two ranks are refused.

    Checked bit for bit with NCCL 2.32.3, four ranks on an H200, the ring 0, 1, 2, 3, protocols Simple and LL: 1 to
    1000003 elements in float32, float16 and bfloat16, on 1 to 62 channels, in every one of which a single loop does.
    Read in the source of NCCL 2.22 to 2.30 only: several loops, other rings, float64, the protocol LL128.

    Attributes
    ----------
    counts : tuple of int
        Elements of each channel.
    chunk_bytes : tuple of int
        Bytes of a chunk in each channel; a single number holds for all channels.
    ring : tuple of int
        The ranks along the ring, 0, 1, ... unless given; position 0 is rank 0.
    """

    counts: tuple[int, ...] = ()
    chunk_bytes: tuple[int, ...] = ()
    ring: tuple[int, ...] = ()
    chunk: int | None = None
    name: ClassVar[str] = "nccl_ring"
    formats: ClassVar[tuple[Format, ...]] = (FLOAT32, FLOAT64, FLOAT16, BFLOAT16)
    first: ClassVar[int] = 1
    step: ClassVar[int] = 1

    def places(self, ranks: int) -> list[int]:
        if self.ring and sorted(self.ring) != list(range(ranks)):
            message = f"{self.name}: ring={_written(self.ring)} does not name each of {ranks} ranks once"
            raise StrategyError(message)
        ring = list(self.ring or range(ranks))
        zero = ring.index(0)
        return ring[zero:] + ring[:zero]

    def parts(self, ranks: int, elements: int, size: int) -> list[Part]:
        if self.chunk is not None or not elements or ranks < 3:
            return [Part(self)]
        if not self.counts or not self.chunk_bytes:
            self.refuse(f"{ranks} ranks without the sizes of channels and chunks (counts=[...], chunk_bytes=[...])")
        if len(self.chunk_bytes) not in (1, len(self.counts)) or min(self.chunk_bytes) < size:
            message = f"{self.name}: chunk_bytes needs one number of at least {size}, or one for each channel"
            raise StrategyError(message)
        return self.chunked(self._ranges(ranks, elements, size))

    def _ranges(self, ranks: int, elements: int, size: int) -> Iterator[tuple[int, int, int]]:
        for number, (begin, count) in enumerate(_channels(self, elements)):
            given = self.chunk_bytes[0 if len(self.chunk_bytes) == 1 else number]
            for loop in range(0, count, ranks * (given // size)):
                left, each = count - loop, given // size
                if left < ranks * each:
                    unit = 16 // size
                    each = -(-left // (ranks * unit)) * unit
                for c in range(ranks):
                    yield c, begin + loop + min(c * each, left), begin + loop + min((c + 1) * each, left)


@dataclass(frozen=True, slots=True)
class NcclTree(AllReduce):
    """NCCL's double binary tree (``NCCL_ALGO=Tree``).

    Inside a node the ranks are a chain, each adding what comes from the next one; across nodes there are two binary
    trees, of which the first half of the channels takes one and the second half the other. A rank adds its children in
    order, ((own + next in the chain) + first child) + second child. float16 and bfloat16 are rounded at every hop.

    Checked as `NcclRing` is: the chain of one node, with Simple and LL; and two nodes of two ranks, with Simple. Read
    in the source of NCCL 2.22 to 2.30 only: more nodes, two children, the other patterns.

    Attributes
    ----------
    nodes : int
        How many nodes share the ranks, in order and equally.
    pattern : {"balanced_tree", "split_tree", "plain_tree"}
        Which ranks of a node talk to its children, by their place in the chain: the second to the first child and the
        first to the second (``NCCL_TOPO_PATTERN_BALANCED_TREE``); the second to both (``..._SPLIT_TREE``); the first to
        both (``..._TREE``). NCCL prints the trees with ``NCCL_DEBUG=INFO`` and ``NCCL_DEBUG_SUBSYS=GRAPH``.
    counts : tuple of int
        Elements of each channel, from channel 0; needed for several nodes, see `NcclRing`.
    channels : int
        The channels of the communicator, as many as have elements unless given.
    chain : tuple of int
        The ranks of a node along its chain; 0, 1, ... unless given.
    """

    nodes: int = 1
    pattern: str = "balanced_tree"
    counts: tuple[int, ...] = ()
    channels: int = 0
    chain: tuple[int, ...] = ()
    tree: int | None = None
    name: ClassVar[str] = "nccl_tree"
    choices: ClassVar[dict[str, tuple[str, ...]]] = {"pattern": ("balanced_tree", "split_tree", "plain_tree")}
    formats: ClassVar[tuple[Format, ...]] = (FLOAT32, FLOAT64, FLOAT16, BFLOAT16)

    def parts(self, ranks: int, elements: int, size: int) -> list[Part]:
        del size
        if self.tree is not None or not elements or self.nodes < 2 or ranks < 3:
            return [Part(self)]
        if not self.counts:
            self.refuse(f"{self.nodes} nodes without the number of elements of each channel (counts=[...])")
        half = (self.channels or len(self.counts)) / 2
        return [
            Part(replace(self, tree=int(number >= half)), columns=range(begin, begin + count))
            for number, (begin, count) in enumerate(_channels(self, elements))
        ]

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        ranks = count_items(items)
        local, rest = divmod(ranks, self.nodes)
        if rest:
            self.refuse(f"{ranks} ranks on {self.nodes} nodes of different sizes")
        if self.chain and sorted(self.chain) != list(range(local)):
            message = f"{self.name}: chain={_written(self.chain)} does not name each of {local} ranks of a node once"
            raise StrategyError(message)
        chain = self.chain or range(local)
        scattered = Scattered(items)

        def own(node: int, position: int) -> Items:
            return scattered.pick(np.array([node * local + chain[position]]))

        def total(node: int) -> Segment:
            children = _children(self.nodes, node, self.tree or 0)
            first, second = (min(place, local - 1) for place in _ATTACHED[self.pattern])
            sums: Items = ()
            for position in reversed(range(local)):
                terms = [*own(node, position), *sums]
                for child, place in zip(children, (first, second), strict=True):
                    if child is not None and place == position:
                        terms.append(total(child))
                sums = (builder.fold(terms, arithmetic),)
            return sums[0]

        root = next(n for n in range(self.nodes) if _is_root(self.nodes, n, self.tree or 0))
        return total(root)


#: Position in the chain of a node that its first and its second child talk to.
_ATTACHED = {"balanced_tree": (1, 0), "split_tree": (1, 1), "plain_tree": (0, 0)}


def _is_root(nodes: int, node: int, tree: int) -> bool:
    return _first_tree(nodes, node, tree) == 0


def _first_tree(nodes: int, node: int, tree: int) -> int:
    """Return the number that a node has in the first tree: the second one is shifted, or mirrored for an even number."""
    if not tree:
        return node
    return (node - 1) % nodes if nodes % 2 else nodes - 1 - node


def _children(nodes: int, node: int, tree: int) -> tuple[int | None, int | None]:
    """Return the children of a node in one of the two trees."""
    number = _first_tree(nodes, node, tree)
    if number == 0:
        # All others hang from the largest power of two among them.
        return None, _back(nodes, _power(nodes - 1), tree) if nodes > 1 else None
    low = (number & -number) >> 1
    if not low:
        return None, None
    other = low
    while other and number + other >= nodes:
        other >>= 1
    return _back(nodes, number - low, tree), _back(nodes, number + other, tree) if other else None


def _back(nodes: int, number: int, tree: int) -> int:
    if not tree:
        return number
    return (number + 1) % nodes if nodes % 2 else nodes - 1 - number


def _channels(rule: NcclRing | NcclTree, elements: int) -> Iterator[tuple[int, int]]:
    """Give the first element of each channel, and how many it has."""
    if sum(rule.counts) != elements:
        message = f"{rule.name}: counts={_written(rule.counts)} add up to {sum(rule.counts)} elements, not {elements}"
        raise StrategyError(message)
    yield from zip(itertools.accumulate(rule.counts, initial=0), rule.counts, strict=False)


def _bytes(form: Format | None) -> int:
    """Return the size of an element."""
    return (form.bits or 32) // 8 if form is not None else 4


def _written(value: Any) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)
