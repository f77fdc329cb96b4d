"""Reveal: the strategy of a black box, proved by replay, or what could not be established."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim import _hypotheses as hypotheses
from fpsim._arithmetic_facts import Facts, facts_of, fused_settings, is_fused, settings_of
from fpsim._black_box import BlackBox, laws_of
from fpsim._fused_trees import fused_chains, rounded_terms
from fpsim._hypotheses import RECENT, Observed, bits, kinds_of_products, same_bits
from fpsim._probing import Node, Prober, UnreadableTreeError, pairs_of, tree_of, tree_text
from fpsim._revealed import Counterexample, Evidence, Revealed, RevealedPart
from fpsim._structure import structures
from fpsim._value_orders import exact_sum, value_order
from fpsim.errors import InputError
from fpsim.formats import FLOAT32, as_format
from fpsim.orders.base import Order
from fpsim.strategies import Strategy

__all__ = ["Counterexample", "Evidence", "Revealed", "RevealedPart", "laws_of", "reveal"]

REPLAYS: Final = 200
_FIRST = 9  # observations that candidates are tried on before the proof
_MORE = 30  # observations that an order by the values of the terms is tried on
_ALTERNATIVES = 8
_REGULAR = 8  # terms from which a regular order is looked for
_KINDS = 4  # outputs with different trees for which it is
_PROBED = 2048  # terms up to which a tree is probed pair by pair without being asked

Progress = Callable[[int, int, str], None]


def reveal(
    function: Callable[..., Any],
    /,
    *,
    op: str = "sum",
    n: int | None = None,
    shape: tuple[int, ...] | None = None,
    dtype: Any = "float32",
    strategies: Sequence[str | Strategy | Order] = (),
    replays: int = REPLAYS,
    probe: bool | None = None,
    rng: Any = 0,
    progress: Progress | None = None,
) -> Revealed:
    """Find the strategy of a black box, and prove it by replay.

    Parameters
    ----------
    function : callable
        Takes one array (sum, mean) or two (products), and returns the result: a number or an array that `numpy.asarray`
        or an array library reads.
    op : {"sum", "mean", "dot", "matvec", "vecmat", "matmul"}
        What it computes.
    n : int, for vectors
        Number of terms.
    shape : tuple of int, for products
        (m, k) of a matrix times a vector, (k, n) of a vector times a matrix, (m, k, n) of two matrices.
    dtype : dtype, Format or str
        The format of the operands; they are passed as float32 where NumPy lacks it.
    strategies : sequence of str or Strategy
        Tried before any other.
    replays : int
        Random operands for the proof, at least 1; 200 by default, of several laws, mixed signs and exponents up to
        2**±30.
    probe : bool, optional
        Whether to probe the tree pair by pair where no known order fits. That takes about 5 n calls; by default it is
        done for up to 2048 terms.
    rng : int, SeedSequence or Generator
        Source of probes and replays.
    progress : callable, optional
        Called as ``progress(done, total, what)``.

    Returns
    -------
    Revealed
        Its strategy is None where no strategy gave every bit of every replay.

    Raises
    ------
    InputError
        The operation or shape does not fit, or the routine returns something else than numbers of the right shape.

    Notes
    -----
    Known rules and simple orders are tried first, on a few random operands. Where none fits, masking probes show the
    tree (Xie et al., FPRev, USENIX ATC 2025), and directed probes the arithmetic. What is claimed was replayed on
    operands that were not used to find it.

    Examples
    --------
    >>> import numpy as np, fpsim
    >>> revealed = fpsim.reveal(np.sum, n=1000)
    >>> str(revealed.strategy), revealed.evidence.equal
    ('numpy_sum', 200)
    >>> print(fpsim.reveal(lambda x: np.add.accumulate(x[::-1])[-1], n=100).strategy)
    reverse
    """
    from fpsim.formats import _generator

    started = time.monotonic()
    form = as_format(dtype)
    sizes = _sizes(op, n, shape)
    if replays < 1:
        message = f"replays must be at least 1, not {replays}"
        raise InputError(message)
    box = BlackBox(function, op, sizes, form)
    source = _generator(rng)
    work = _Work(box, source, list(strategies), replays, probe, progress)
    strategy, parts, others = work.find()
    evidence = Evidence(
        box.calls, time.monotonic() - started, work.method, work.replayed, work.equal, tuple(work.facts.said),
        tuple(work.notes), work.tree, work.counterexample,
    )  # fmt: skip
    if strategy is not None and str(strategy) not in RECENT:
        RECENT.append(str(strategy))
    return Revealed(op, sizes, str(form), strategy, parts, others, evidence)


def _sizes(op: str, n: int | None, shape: tuple[int, ...] | None) -> tuple[int, ...]:
    if (n is None) == (shape is None):
        message = f"give n for vectors or shape for products, one of them, for {op}"
        raise InputError(message)
    return (int(n),) if n is not None else tuple(int(size) for size in shape or ())


class _Work:
    """One search: what was observed, tried and noted."""

    def __init__(
        self,
        box: BlackBox,
        rng: np.random.Generator,
        own: list[str | Strategy | Order],
        replays: int,
        probe: bool | None,
        progress: Progress | None,
    ) -> None:
        self.box, self.rng, self.own, self.replays = box, rng, own, replays
        self.probe = box.n <= _PROBED if probe is None else probe
        self.progress = progress or (lambda done, total, what: None)  # noqa: ARG005
        self.facts = Facts(FLOAT32)
        self.fused: list[str] = []
        self.probed: Prober | None = None
        self.trees: list[tuple[Node | int, int]] = []  # probed, each with an output that has it
        self.notes: list[str] = []
        self.method, self.replayed, self.equal = "none", 0, 0
        self.tree: str | None = None
        self.counterexample: Counterexample | None = None
        self.laws = laws_of(box.form)

    def observe(self, count: int, offset: int = 0) -> list[Observed]:
        """Call the routine with random operands of one law after another."""
        drawn = [self.box.draw(self.laws[(offset + i) % len(self.laws)], self.rng) for i in range(count)]
        return [Observed(operands, self.box.run(*operands)) for operands in drawn]

    def find(self) -> tuple[Strategy | None, tuple[RevealedPart, ...], tuple[str, ...]]:
        self.progress(0, 4, "observing")
        seen = self.observe(_FIRST)
        if not self._repeats(seen[:3]):
            return None, (), ()
        result = seen[0].result.dtype
        self.facts = facts_of(self.box, as_format(result), self.rng)
        settings = settings_of(self.facts, self.box)
        if self.facts.precision > 64:  # nothing is lost: an exact sum, which wide accumulators only come near to
            self.notes += exact_sum(self.box, [*seen, *self.observe(len(self.laws))])
            if self.notes:
                return None, (), ()
        self.progress(1, 4, "trying known orders")
        self.fused = fused_settings(self.facts, self.box, hypotheses.held_by(seen))
        found = self._surviving(seen, settings)
        if found:
            strategy, others = self._proved([*found, *self._from_zero(found)])
            if strategy is not None:
                self.method = "hypothesis"
                return strategy, (), others
        if value_order(self.box, seen):  # few terms in random order may have had the same sum so far
            seen += self.observe(_MORE)
            self.notes += value_order(self.box, seen) if self._repeats(seen) else []
            if self.notes:
                return None, (), ()
        self.progress(2, 4, "probing the tree")
        parts = self._by_position(seen, settings)
        if not parts:
            return None, (), ()
        self.progress(3, 4, "replaying")
        if len(parts) == 1:
            strategy, others = self._proved([parts[0].strategy, *self._from_zero([parts[0].strategy])])
            return strategy, (), others
        return None, self._parts_proved(parts), ()

    def _surviving(self, seen: list[Observed], settings: list[str]) -> list[Strategy]:
        """Return the known strategies that give every observed bit."""

        def fitting(observed: list[Observed]) -> list[Strategy]:
            candidates = hypotheses.texts(self.box, settings, self.own, fused=self.fused, pairs=False)
            return hypotheses.surviving(self.box, candidates, observed, enough=_ALTERNATIVES)

        found = fitting(seen)
        if found or self.facts.negative_zero is not False:
            return found
        plain = [one for place, one in enumerate(seen) if self.laws[place % len(self.laws)] != "tiny"]
        return hypotheses.surviving(self.box, map(str, self._from_zero(fitting(plain))), seen, enough=_ALTERNATIVES)

    def _from_zero(self, found: Sequence[Strategy]) -> list[Strategy]:
        """Return the strategies with their sums added to +0 last, where a sum of terms -0 is +0.

        That differs where terms underflow to -0, as few replays show.
        """
        return hypotheses.from_zero(found, self.box.n) if self.facts.negative_zero is False else []

    def _repeats(self, seen: list[Observed]) -> bool:
        """Tell whether the routine gives the same bits again; note how often not."""
        different = runs = 0
        for one in seen:
            for _ in range(3):
                again = self.box.run(*one.operands)
                runs += 1
                different += not np.array_equal(bits(again, one.result.dtype), bits(one.result, one.result.dtype))
        if different:
            self.notes.append(
                f"the result changes from run to run: {different} of {runs} repeated calls gave other bits for the same"
                " operands, so its order is random or depends on the time of arrival, and no strategy can reproduce it"
            )
        return not different

    def _proved(self, found: list[Strategy]) -> tuple[Strategy | None, tuple[str, ...]]:
        """Replay candidates on fresh operands; return the first that gives every bit, and the others that do."""
        alive = list(found)
        self.replayed = self.equal = 0
        for index in range(self.replays):
            one = self.observe(1, index)[0]
            self.replayed += 1
            fits = [(chosen, same_bits(self.box, chosen, one)) for chosen in alive]
            good = [chosen for chosen, same in fits if same is not None and same.all()]
            self.equal += bool(good)
            if not good:
                self._fails(alive[0], one)
                return None, ()
            alive = good
        zeros = set(self._from_zero(found)) if alive[0] in found else set()
        return alive[0], tuple(str(other) for other in alive[1:] if other not in zeros)

    def _fails(self, chosen: Strategy, one: Observed) -> None:
        try:
            predicted = self.box.emulate(chosen, one.operands)
        except InputError:
            predicted = np.full(one.result.shape, np.nan)
        self.counterexample = Counterexample(str(chosen), one.operands, one.result, predicted)

    def _by_position(self, seen: list[Observed], settings: list[str]) -> tuple[RevealedPart, ...]:
        """Return a strategy for every output: known orders where they fit, probed trees elsewhere."""
        box = self.box
        parts: list[tuple[Strategy, NDArray[np.bool]]] = []
        missing = np.ones(box.output_shape, np.bool)
        if box.outputs > 1:
            parts = hypotheses.covering(box, hypotheses.texts(box, settings, self.own, fused=self.fused), seen)
            zeros = self._from_zero([chosen for chosen, _ in parts])
            if zeros and parts[0][1].sum() < box.outputs:
                parts = hypotheses.covering(box, (str(one) for one in (*(p for p, _ in parts), *zeros)), seen)
            for _, mask in parts:
                missing &= ~mask
            self.method = "hypothesis"
        for ask in (self._structured, self._probed):
            if not missing.any():
                break
            more = hypotheses.covering(box, iter(ask(missing, settings)), seen, positions=missing)
            for _, mask in more:
                missing &= ~mask
            parts += more
            self.method = "probing"
        if missing.any():
            more = hypotheses.covering(box, iter(self._partly_fused(missing, settings)), seen, positions=missing)
            for _, mask in more:
                missing &= ~mask
            parts += more
        if missing.any():
            if box.n >= 2:
                self.notes.append(
                    f"{int(missing.sum())} of {box.outputs} outputs fit no order that was tried with any arithmetic"
                )
            return ()
        if len(parts) > 1:  # what was found last may give the outputs too that others gave by chance
            parts = hypotheses.covering(box, (str(chosen) for chosen, _ in parts), seen)
        return tuple(RevealedPart(chosen, mask) for chosen, mask in parts)

    def _structured(self, missing: NDArray[np.bool], settings: list[str]) -> list[str]:
        """Return strategy texts of regular orders that a few masking probes fit, for some of these outputs."""
        box, texts = self.box, []
        if box.n < _REGULAR or self.facts.align is not None:
            return []
        prober = self._prober()
        if prober is None:
            return []
        left = list(np.flatnonzero(missing.reshape(-1)))
        ends = [f"{kind}{setting}" for setting in settings for kind in kinds_of_products(box, setting)]
        for _ in range(_KINDS):
            if not left:
                break
            place = int(left[0])
            found = structures(box.n, lambda i, j, place=place: int(prober.sizes(i, j)[place]), self.rng)  # type: ignore[misc]
            texts += [f"{order}{end}" for order in found for end in ends]
            alike = prober.alike(place)
            left = [other for other in left if not alike[other]]
        return texts

    def _prober(self) -> Prober | None:
        try:
            self.probed = self.probed or Prober.of(self.box)
        except UnreadableTreeError as error:
            self.notes.append(str(error))
        return self.probed

    def _probed(self, missing: NDArray[np.bool], settings: list[str]) -> list[str]:
        """Return strategy texts of the trees that masking probes show for these outputs."""
        box = self.box
        if not self.probe:
            self.notes.append(f"no known order fits, and a tree of {box.n} terms is probed only with probe=True")
            return []
        prober = self._prober()
        if prober is None:
            return []
        texts: list[str] = []
        ends = [f"{kind}{setting}" for setting in settings for kind in kinds_of_products(box, setting)]
        left = list(np.flatnonzero(missing.reshape(-1)))
        while left:
            place = int(left[0])
            asked: set[tuple[int, int]] = set()

            def size(i: int, j: int, place: int = place, asked: set[tuple[int, int]] = asked) -> int:
                asked.add((i, j))
                return int(prober.sizes(i, j)[place])

            try:
                tree = tree_of(box.n, size, self.rng)
            except UnreadableTreeError as error:
                self.notes.append(f"output {place}: {error}")
                left.pop(0)
                continue
            answers = np.array([prober.sizes(i, j) for i, j in asked]).reshape(len(asked), box.outputs)
            alike = np.asarray((answers == answers[:, [place]]).all(axis=0))
            left = [other for other in left if not alike[other]]
            text = tree_text(tree, second=self._fused_terms(tree, place))
            if text is None:
                chains = fused_chains(tree)
                if not chains or not self.fused:
                    self.notes.append("the tree has fused additions of more than two terms, and is no chain of them")
                    continue
                texts += [f"{chain}{setting}" for chain in chains for setting in self.fused]
                continue
            self.tree = self.tree or text
            self.trees.append((tree, place))
            texts += [f'tree("{text}"){end}' for end in ends]
        return texts

    def _fused_terms(self, tree: Node | int, place: int) -> set[int]:
        """Return which terms of the pairs that meet first are fused into the other, rounded product."""
        fused: set[int] = set()
        for one, other in pairs_of(tree):
            seen = is_fused(self.box, one, other)
            if seen is None:
                break
            fused |= {one} if seen[place] else set()
        return fused

    def _partly_fused(self, missing: NDArray[np.bool], settings: list[str]) -> list[str]:
        """Return texts of the probed trees of these outputs in which some products are fused and others are not."""
        texts: list[str] = []
        for tree, place in self.trees:
            if not missing.reshape(-1)[place]:
                continue
            rounded = rounded_terms(self.box, tree, place)
            if rounded is not None and 0 < len(rounded) < self.box.n:
                text = tree_text(tree, second=self._fused_terms(tree, place), rounded=rounded)
                texts += [f'tree("{text}")+fma{setting}' for setting in settings if "product(" not in setting]
        return texts

    def _parts_proved(self, parts: tuple[RevealedPart, ...]) -> tuple[RevealedPart, ...]:
        """Replay the strategies of several parts on fresh operands; return those that give every bit, or nothing."""
        alive = [[part.strategy, *self._from_zero([part.strategy])] for part in parts]
        self.replayed = self.equal = 0
        for index in range(self.replays):
            one = self.observe(1, index)[0]
            self.replayed += 1
            for place, part in enumerate(parts):
                fits = [(chosen, same_bits(self.box, chosen, one)) for chosen in alive[place]]
                good = [chosen for chosen, same in fits if same is not None and same[part.outputs].all()]
                if not good:
                    self._fails(alive[place][0], one)
                    return ()
                alive[place] = good
            self.equal += 1
        return tuple(RevealedPart(own[0], part.outputs) for own, part in zip(alive, parts, strict=True))
