"""The orders of a library's matrix products, many replays in one emulation.

A few left and a few right matrices of each law are multiplied with each other, 200 pairs in all, and of every pair a
random part of the rows and columns is compared with the emulation, which gives that of all pairs of a law at once. Of
one pair of each law all outputs are compared. Where no usual order has equal bits, masking probes of one row and one
column each, as many in a call as the product has outputs, show the tree.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tensor_cores import FORMATS, KINDS, orders, same, values, with_operands

import fpsim
from fpsim._fused_trees import fused_chains
from fpsim._probing import UnreadableTreeError, tree_of, tree_text
from fpsim._structure import structures
from fpsim.errors import InputError

Array = Any
LAWS = ("normal", "wide", "cancelling", "special", "subnormal", "near", "uniform", "cancelling wide")
SIDES = 5  # matrices of a side and law: 25 pairs, 200 of all laws
_ROWS, _COLUMNS = 12, 16  # of a matrix that are compared
_WHOLE = 2**27  # products of a case up to which all outputs of a pair of each law are compared, and of two laws beyond
_SEARCH = 6.0  # seconds after which no further usual order is tried
_PROBES = 4000  # calls for a tree
Product = Callable[[str, Array, Array], Array]  # kind, and operands where the device has them
Load = Callable[[Array, str, int], Any]  # of a matrix with a type, as left (0) or right (1) operand


@dataclass(slots=True)
class Data:
    """Operands of one shape for one pair of formats: SIDES matrices for each law and side, and what is compared."""

    shape: tuple[int, int, int]
    left: dict[str, list[Array]] = field(default_factory=dict)
    right: dict[str, list[Array]] = field(default_factory=dict)
    rows: dict[str, list[Array]] = field(default_factory=dict)
    columns: dict[str, list[Array]] = field(default_factory=dict)

    @classmethod
    def drawn(cls, shape: tuple[int, int, int], formats: tuple[str, str], rng: np.random.Generator) -> Data:
        m, k, n = shape
        data = cls(shape)
        for law in LAWS:
            pair = rng.permutation(k)
            one, other = pair[: (k - 1) // 2], pair[(k - 1) // 2 : 2 * ((k - 1) // 2)]
            for side, (kept, places, own, size) in enumerate(
                ((data.left, data.rows, _ROWS, m), (data.right, data.columns, _COLUMNS, n))
            ):
                form = FORMATS[formats[side]]
                kept[law], places[law] = [], []
                for _ in range(SIDES):
                    x = _draw(rng, (m, k) if side == 0 else (k, n), form, law, side)
                    if law.startswith("cancelling"):  # most terms cancel others exactly
                        if side == 0:
                            x[:, other] = -x[:, one]
                        else:
                            x[other] = x[one]
                    kept[law].append(x)
                    places[law].append(np.sort(rng.choice(size, min(own, size), replace=False)))
        return data

    def sampled(self, law: str) -> tuple[Array, Array]:
        """Return the rows of all left matrices that are compared, and the columns of all right ones."""
        left = np.concatenate([x[rows] for x, rows in zip(self.left[law], self.rows[law], strict=True)])
        right = np.concatenate([x[:, c] for x, c in zip(self.right[law], self.columns[law], strict=True)], axis=1)
        return left, np.ascontiguousarray(right)


def _draw(rng: np.random.Generator, shape: tuple[int, int], form: Any, law: str, side: int) -> Array:
    if law == "uniform":
        return values_of(rng.random(shape), form)
    if law == "subnormal" and form.emin <= -126 and side:
        law = "moderate"  # float32 holds the products as subnormals only
    return values(rng, shape, form, {"cancelling": "normal", "cancelling wide": "wide"}.get(law, law))


def values_of(x: Array, form: Any) -> Array:
    """Return float32 numbers of a format; tf32 keeps the bits that are to be rounded away."""
    wide = x.astype(np.float32)
    return wide if str(form) == "tf32" else np.asarray(fpsim.round_to(wide, form), np.float32)


@dataclass(slots=True)
class Results:
    """What the library gave: of each law the sampled outputs of all pairs, and of the first pair all outputs."""

    sampled: dict[str, Array] = field(default_factory=dict)
    whole: dict[str, Array] = field(default_factory=dict)
    calls: int = 0
    repeats: bool = True


def observe(product: Product, kind: str, data: Data, load: Load) -> Results:
    """Call the library with all pairs of all laws."""
    out = Results()
    m, k, n = data.shape
    most = LAWS if m * k * n * len(LAWS) <= _WHOLE * 4 else LAWS[:2]
    formats = KINDS[kind][:2]
    for law in LAWS:
        left = [load(x, formats[0], 0) for x in data.left[law]]
        right = [load(x, formats[1], 1) for x in data.right[law]]
        rows = []
        for i, x in enumerate(left):
            parts = []
            for j, y in enumerate(right):
                result = product(kind, x, y)
                out.calls += 1
                if i == j == 0 and law in most:
                    out.whole[law] = result
                parts.append(result[np.ix_(data.rows[law][i], data.columns[law][j])])
            rows.append(np.concatenate(parts, axis=1))
        out.sampled[law] = np.concatenate(rows)
        again = product(kind, left[0], right[0])
        first = again[np.ix_(data.rows[law][0], data.columns[law][0])]
        out.calls += 1
        out.repeats &= bool(same(first, out.sampled[law][: first.shape[0], : first.shape[1]]).all())
    return out


def find(
    kind: str, data: Data, seen: Results, known: Sequence[str], more: Callable[[], list[str]]
) -> tuple[str | None, float, list[str]]:
    """Return the first strategy with equal bits in all that is compared, the best share, and notes.

    `more` returns further orders where the usual ones fail.
    """
    samples = {law: data.sampled(law) for law in LAWS}
    few = {law: (_few(seen.sampled[law].shape[0], 6), _few(seen.sampled[law].shape[1], 8)) for law in LAWS}
    best, notes = 0.0, []

    def fits(text: str) -> bool:
        nonlocal best
        for part in (True, False):
            shares = []
            for law in ("wide", *(law for law in LAWS if law != "wide")):
                left, right = samples[law]
                wanted = seen.sampled[law]
                if part:
                    rows, columns = few[law]
                    left, right, wanted = (
                        left[rows],
                        np.ascontiguousarray(right[:, columns]),
                        wanted[np.ix_(rows, columns)],
                    )
                try:
                    shares.append(float(same(fpsim.matmul(left, right, text), wanted).mean()))
                except InputError:
                    return False
                if shares[-1] < 1.0:
                    best = max(best, float(np.mean(shares)))
                    return False
        return True

    end = time.monotonic() + _SEARCH
    tried: set[str] = set()

    def attempts() -> Iterator[str]:
        for order in (*known, *orders(kind, data.shape[1])):
            if time.monotonic() > end:
                break
            yield order
        yield from more()

    for order in attempts():
        text = with_operands(kind, order) if "+operands" not in order else order
        if text in tried:
            continue
        tried.add(text)
        if not fits(text):
            continue
        different = []
        for law, whole in seen.whole.items():
            got = np.asarray(fpsim.matmul(data.left[law][0], data.right[law][0], text), np.float32)
            equal = same(got, whole)
            if not equal.all():
                different.append(f"{law}: {int((~equal).sum())} of {equal.size}")
        if not different:
            return text, 1.0, notes
        notes.append(f"{text} fits the samples, not all outputs of one pair: {', '.join(different)}")
    return None, best, notes


def _few(size: int, most: int) -> Array:
    return np.unique(np.linspace(0, size - 1, most).astype(np.int64))


# --- trees from masking probes ----------------------------------------------------------------------------------------

# The unit of each operand, and the mask: their products are swallowed by, and swallow, as float32 accumulators do.
_PROBE = {"tf32": (2.0**-30, 2.0**50), "bf16": (2.0**-30, 2.0**50), "f16": (2.0**-12, 2.0**15)}


def distances(product: Product, kind: str, shape: tuple[int, int, int], load: Load) -> Array | None:
    """Return how many terms the smallest subtree of each pair of terms has, (k, k); 0 where that cannot be read.

    Row i of the left matrix has the mask as term p, column j of the right one minus the mask as term q, so that output
    (i, j) is the probe of p and q. That supposes one order for all outputs. None where it takes too many calls.
    """
    m, k, n = shape
    if -(-k // m) * -(-k // n) > _PROBES or KINDS[kind][0] not in _PROBE:
        return None
    unit, mask = _PROBE[KINDS[kind][0]]
    sizes = np.zeros((k, k), np.int64)
    for first in range(0, k, m):
        p = np.arange(first, min(first + m, k))
        a = np.full((m, k), unit)
        a[np.arange(p.size), p] = mask
        left = load(a.astype(np.float32), KINDS[kind][0], 0)
        for start in range(0, k, n):
            q = np.arange(start, min(start + n, k))
            b = np.full((k, n), unit)
            b[q, np.arange(q.size)] = -mask
            result = product(kind, left, load(b.astype(np.float32), KINDS[kind][1], 1))[: p.size, : q.size]
            with np.errstate(all="ignore"):
                found = k - result.astype(np.float64) / unit**2
            sizes[np.ix_(p, q)] = np.where(np.isfinite(found) & (found >= 2) & (found <= k), found, 0)
    np.fill_diagonal(sizes, 1)
    return sizes


def probed_orders(sizes: Array | None, rng: np.random.Generator) -> list[str]:
    """Return the orders that a matrix of sizes of smallest subtrees belongs to."""
    if sizes is None or sizes.shape[0] < 2:
        return []
    n = sizes.shape[0]

    def size(i: int, j: int) -> int:
        return int(sizes[i, j])

    found = structures(n, size, rng, most=10**6) if n >= 3 else []
    try:
        tree = tree_of(n, size, rng)
    except UnreadableTreeError:
        return [f"{order}{fma}" for order in found for fma in ("+fma", "")]
    chains = fused_chains(tree)
    if chains:
        return [f"{chain}+align({bits})" for bits in (25, 24, 23) for chain in chains]
    text = tree_text(tree)
    found += [] if text is None else [f'tree("{text}")']
    return [f"{order}{fma}" for order in found for fma in ("+fma", "")]
