"""The orders that a shape may have by a profile, how far they can be trusted, and the results that they give."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fpsim.errors import InputError, UnknownOrderError
from fpsim.profiles.order_rule import OrderRule, Shape, rule_of

if TYPE_CHECKING:
    from fpsim.profiles import Profile
    from fpsim.profiles.keys import Key

_SHOWN = 5
_BASIS = 3


class PredictedOrderWarning(UserWarning):
    """A result has an order that was predicted, and not observed; the text states how often that is right."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An order that a shape may have.

    Attributes
    ----------
    strategy : str
        The order and its arithmetic; "" for the orders that probes tell apart but that have no name.
    votes : float
        Its share of the votes, 1 for what was replayed or observed.
    basis : tuple of shapes
        The observed shapes that the votes come from, or the shape itself.
    assumed : bool
        Its arithmetic is that of other orders: no product with this one was replayed.
    """

    strategy: str
    votes: float
    basis: tuple[tuple[int, ...], ...]
    assumed: bool = False

    def __str__(self) -> str:
        near = ", ".join("x".join(map(str, shape)) for shape in self.basis[:_BASIS])
        more = f" and {len(self.basis) - _BASIS} more" if len(self.basis) > _BASIS else ""
        arithmetic = "; its arithmetic is assumed" if self.assumed else ""
        return f"{self.votes:6.1%}  {self.strategy or 'an order without a name'}  as {near}{more}{arithmetic}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects."""
        return {**dataclasses.asdict(self), "basis": [list(shape) for shape in self.basis]}


@dataclass(frozen=True, slots=True)
class Candidates:
    """The orders that a shape may have by a profile, the likeliest first.

    Attributes
    ----------
    profile : str
        The profile's name.
    op : str
        The operation.
    shape : tuple of int
        The shape.
    evidence : {"replayed", "observed", "predicted"}
        Replayed on random operands with equal bits; observed by first-leaf probes of output column 0 alone; or
        predicted from such observations of other shapes.
    candidates : tuple of Candidate
        The orders; exactly one unless they are predicted.
    first, five : float or None
        Of the shapes that were held out in cross-validation, the shares whose order was the first candidate, and one
        of the first five; None unless predicted.
    held_out : str
        Which shapes those were.
    """

    profile: str
    op: str
    shape: tuple[int, ...]
    evidence: str
    candidates: tuple[Candidate, ...]
    first: float | None = None
    five: float | None = None
    held_out: str = ""

    @property
    def best(self) -> Candidate:
        """The likeliest one."""
        return self.candidates[0]

    @property
    def accuracy(self) -> str:
        """How far the candidates can be trusted, as a sentence."""
        if self.evidence == "replayed":
            return "replayed on random operands, with equal bits"
        if self.evidence == "observed":
            return "observed by first-leaf probes of output column 0, not replayed"
        return (
            f"predicted; of {self.held_out} the first candidate was right for {self.first:.1%},"
            f" and one of the first five for {self.five:.1%}"
        )

    def __str__(self) -> str:
        what = f"profile:{self.profile}, {self.op} of shape {'x'.join(map(str, self.shape))}: {self.accuracy}"
        more = [f"  and {len(self.candidates) - _SHOWN} more"] if len(self.candidates) > _SHOWN else []
        return "\n".join([what, *(f"  {one}" for one in self.candidates[:_SHOWN]), *more])

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects."""
        names = ("profile", "op", "evidence", "accuracy", "first", "five", "held_out")
        return {
            **{name: getattr(self, name) for name in names},
            "shape": list(self.shape),
            "candidates": [one.to_dict() for one in self.candidates],
        }


def candidates_of(profile: Profile, op: str, shape: tuple[int, ...], key: Key, /) -> Candidates:
    """Return the orders that a shape may have; see `fpsim.profiles.Profile.candidates`."""
    for case in profile.cases:
        if (case.op, case.shape, case.key) == (op, shape, key):
            text = case.strategies[0] if len(case.parts) == 1 else f"profile:{profile.name}"
            return Candidates(profile.name, op, shape, "replayed", (Candidate(text, 1.0, (shape,)),))
    rule = rule_of(profile.name)
    if rule is None or op != "matmul" or key != profile.key:
        profile.case(op, shape, key)  # raises, and names what there is
    assert rule is not None
    m, k, n = shape
    seen = rule.observed((m, k, n))
    if seen == "":
        message = (
            f"the order of {op} {m}x{k}x{n} was probed on {profile.device}, but has no name yet; it is not emulated"
        )
        raise UnknownOrderError(message)
    if seen is not None:
        assumed = rule.assumed[rule.orders.index(seen)]
        return Candidates(profile.name, op, shape, "observed", (Candidate(seen, 1.0, (shape,), assumed),))
    return _predicted(profile, rule, (m, k, n))


def _predicted(profile: Profile, rule: OrderRule, shape: Shape) -> Candidates:
    if not rule.roots:
        message = (
            f"profile:{profile.name} has too few observed shapes to predict others from; it has {len(rule.shapes)}"
            " beside the replayed ones"
        )
        raise UnknownOrderError(message)
    low, high = rule.shapes.min(axis=0).tolist(), rule.shapes.max(axis=0).tolist()
    if not all(a <= x <= b for a, x, b in zip(low, shape, high, strict=True)):
        message = (
            f"profile:{profile.name} predicts orders between the shapes {'x'.join(map(str, low))} and"
            f" {'x'.join(map(str, high))} that were observed, not of {'x'.join(map(str, shape))}"
        )
        raise UnknownOrderError(message)
    assumed = dict(zip(rule.orders, rule.assumed, strict=True))
    found = tuple(Candidate(text, votes, basis, assumed.get(text, False)) for text, votes, basis in rule.votes(shape))
    known = rule.knows(shape[1])
    accuracy = rule.facts["known_k" if known else "new_k"]
    held_out = f"{accuracy['held_out']} shapes held out " + ("at random" if known else "with all others of their k")
    return Candidates(
        profile.name, "matmul", shape, "predicted", found, accuracy["first"], accuracy["five"], held_out
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Possible:
    """The results that an operation may have on a device, for these operands.

    Attributes
    ----------
    candidates : Candidates
        The orders.
    results : array, (distinct, ...)
        The distinct results, of the likeliest order first.
    orders : tuple of tuple of str
        The strategies that give each of them.
    unnamed : float
        Share of the votes for orders that cannot be emulated; their results are missing.
    """

    candidates: Candidates
    results: NDArray[Any]
    orders: tuple[tuple[str, ...], ...]
    unnamed: float

    @property
    def distinct(self) -> int:
        """The number of distinct results."""
        return len(self.orders)

    @property
    def low(self) -> NDArray[Any]:
        """The least value of each output."""
        least: NDArray[Any] = self.results.min(axis=0)
        return least

    @property
    def high(self) -> NDArray[Any]:
        """The greatest value of each output."""
        greatest: NDArray[Any] = self.results.max(axis=0)
        return greatest

    @property
    def spread(self) -> NDArray[np.float64]:
        """The difference of the two, as float64."""
        return np.asarray(self.high, np.float64) - np.asarray(self.low, np.float64)

    def values(self, *index: int) -> NDArray[Any]:
        """Return the distinct values of one output, ascending."""
        where: Any = (slice(None), *index)
        distinct: NDArray[Any] = np.unique(self.results[where])
        return distinct

    def __str__(self) -> str:
        several = int(np.count_nonzero(self.spread))
        orders = sum(map(len, self.orders))
        differ = f"{several} of {self.low.size} outputs differ, by up to {self.spread.max(initial=0.0):.3g}"
        lines = [
            f"{self.distinct} distinct results from {orders} orders; {differ}",
            f"  {self.candidates.accuracy}",
            *(f"  {', '.join(texts)}" for texts in self.orders),
        ]
        if self.unnamed:
            lines.append(f"  {self.unnamed:.1%} of the votes are for orders without a name, whose results are missing")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects."""
        return {
            "candidates": self.candidates.to_dict(),
            "distinct": self.distinct,
            "orders": [list(texts) for texts in self.orders],
            "low": self.low.tolist(),
            "high": self.high.tolist(),
            "spread": self.spread.tolist(),
            "unnamed": self.unnamed,
        }


def possible_results(profile: Profile, op: str, operands: tuple[Any, ...], /) -> Possible:
    """Return the results that an operation may have; see `fpsim.profiles.Profile.possible`."""
    from fpsim.emulation import dot, matmul, product_shape, sum as total

    routines: dict[str, Any] = {"sum": total, "dot": dot, "matvec": matmul, "vecmat": matmul, "matmul": matmul}
    if op not in routines:
        message = f"possible results are known for {', '.join(routines)}, not for {op!r}"
        raise InputError(message)
    arrays = tuple(np.asarray(x) for x in operands)
    ranks = {"sum": (1,), "dot": (1, 1), "matvec": (2, 1), "vecmat": (1, 2), "matmul": (2, 2)}[op]
    if tuple(x.ndim for x in arrays) != ranks:
        wanted = " and ".join(f"{rank}-dimensional" for rank in ranks)
        message = f"{op} takes operands that are {wanted}, not of shapes {', '.join(str(x.shape) for x in arrays)}"
        raise InputError(message)
    key, shape = profile.key, arrays[0].shape if len(arrays) == 1 else (*arrays[0].shape, *arrays[1].shape[1:])
    if op == "vecmat":
        shape = arrays[1].shape
    if len(arrays) == 2 and op != "dot":
        asked = product_shape(*arrays)
        if "other" in (asked.left, asked.right):
            message = "possible results are known for contiguous matrices, perhaps transposed; copy the operands"
            raise InputError(message)
        key = dataclasses.replace(key, left=asked.left, right=asked.right)
    found = profile.candidates(op, shape, key)
    results: dict[bytes, tuple[NDArray[Any], list[str]]] = {}
    for one in found.candidates:
        if one.strategy:
            given = np.asarray(routines[op](*arrays, f"{one.strategy}{profile.settings}"))
            results.setdefault(given.tobytes(), (given, []))[1].append(one.strategy)
    unnamed = sum(one.votes for one in found.candidates if not one.strategy)
    stacked = np.stack([given for given, _ in results.values()])
    return Possible(found, stacked, tuple(tuple(texts) for _, texts in results.values()), unnamed)
