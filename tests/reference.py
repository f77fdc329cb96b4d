"""An evaluator of reductions that shares no code with the library's programs and kernels.

Orders are built naively, with lists and loops, as a device would run them. Sums are evaluated with Python's integers
and one correct rounding for each operation.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fpsim.arithmetic import Arithmetic, Rounding, Settings
from fpsim.formats import FLOAT16, FLOAT32, Format
from fpsim.strategies import Strategy

Exact = tuple[int, int]  # m * 2**e

# --- one rounding ---------------------------------------------------------------------------------------------------


def exact(x: float) -> Exact:
    """Return a finite float as an integer times a power of two."""
    fraction, exponent = math.frexp(x)
    return int(fraction * 2.0**53), exponent - 53


def plus(a: Exact, b: Exact) -> Exact:
    (m, e), (n, f) = a, b
    low = min(e, f)
    return (m << (e - low)) + (n << (f - low)), low


def times(a: Exact, b: Exact) -> Exact:
    return a[0] * b[0], a[1] + b[1]


def overflowed(negative: bool, form: Format, mode: str, infinite: bool = False) -> float:
    inward = {"toward-zero": True, "to-odd": True, "up": negative, "down": not negative}.get(mode, False)
    if inward and not infinite:
        size = form.max
    else:
        size = {"infinity": math.inf, "nan": math.nan, "saturate": form.max}[form.overflow]
    return -size if negative else size


def nearest(value: Exact, form: Format, mode: str) -> float:
    """Round a number other than zero."""
    m, e = value
    negative, m = m < 0, abs(m)
    top = m.bit_length() + e - 1
    quantum = (max(top, form.emin) if form.subnormals else top) - form.precision + 1
    shift = quantum - e
    if shift <= 0:
        whole, quantum = m, e
    else:
        whole, rest, half = m >> shift, m & ((1 << shift) - 1), 1 << (shift - 1)
        away = {
            "nearest-even": rest > half or (rest == half and whole & 1 == 1),
            "nearest-away": rest >= half,
            "toward-zero": False,
            "up": rest > 0 and not negative,
            "down": rest > 0 and negative,
            "to-odd": rest > 0 and whole & 1 == 0,
        }[mode]
        whole += away
    if whole.bit_length() + quantum - 1 > form.emax or _value(whole, quantum) > form.max:
        return overflowed(negative, form, mode)
    size = _value(whole, quantum)
    if not form.subnormals and size < form.smallest_normal:
        size = 0.0
    return -size if negative else size


def _value(whole: int, quantum: int) -> float:
    """whole * 2**quantum, which float64 holds."""
    spare = max(whole.bit_length() - 53, 0)
    return math.ldexp(float(whole >> spare), quantum + spare)


def convert(x: float, form: Format, mode: str = "nearest-even") -> float:
    if math.isnan(x) or x == 0:
        return x
    return overflowed(x < 0, form, mode, infinite=True) if math.isinf(x) else nearest(exact(x), form, mode)


def add(a: float, b: float, form: Format, mode: str) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        if math.isnan(a) or math.isnan(b) or (math.isinf(a) and math.isinf(b) and a != b):
            return math.nan
        return overflowed((a if math.isinf(a) else b) < 0, form, mode, infinite=True)
    total = plus(exact(a), exact(b))
    if total[0] == 0:
        return _zero(a, b, mode) if a == 0 and b == 0 else (-0.0 if mode == "down" else 0.0)
    return nearest(total, form, mode)


def _zero(a: float, b: float, mode: str) -> float:
    """The sum of two zeros (IEEE 754-2019, 6.3)."""
    negative = (math.copysign(1, a) < 0) + (math.copysign(1, b) < 0)
    return -0.0 if negative == 2 or (negative == 1 and mode == "down") else 0.0


def multiply(a: float, b: float, form: Format, mode: str) -> float:
    negative = math.copysign(1, a) * math.copysign(1, b) < 0
    if not (math.isfinite(a) and math.isfinite(b)):
        if math.isnan(a) or math.isnan(b) or a == 0 or b == 0:
            return math.nan
        return overflowed(negative, form, mode, infinite=True)
    if a == 0 or b == 0:
        return -0.0 if negative else 0.0
    return nearest(times(exact(a), exact(b)), form, mode)


def fma(a: float, b: float, c: float, form: Format, mode: str) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        if math.isnan(a) or math.isnan(b) or a == 0 or b == 0:
            return math.nan
        return add(math.copysign(math.inf, math.copysign(1, a) * math.copysign(1, b)), c, form, mode)
    if not math.isfinite(c):
        return convert(c, form, mode)
    if a == 0 or b == 0:
        return add(math.copysign(0.0, math.copysign(1, a) * math.copysign(1, b)), c, form, mode)
    total = plus(times(exact(a), exact(b)), exact(c))
    return nearest(total, form, mode) if total[0] else (-0.0 if mode == "down" else 0.0)


# --- trees ----------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Node:
    """A left fold over leaves (numbers) and other nodes."""

    terms: list[int | Node]
    arithmetic: Arithmetic
    start: str


Term = int | Node


def fold(terms: list[Term], arithmetic: Arithmetic, start: str | None = None) -> Node:
    if len(terms) > 1 and isinstance(terms[0], int) and isinstance(terms[1], Node) and not arithmetic.compensation:
        terms = [terms[1], terms[0], *terms[2:]]  # so that the leaf's product can be fused
    start = start or arithmetic.start
    if len(terms) == 1 and isinstance(terms[0], Node) and start == "first":
        own = terms[0].arithmetic
        if all(getattr(own, key) == getattr(arithmetic, key) for key in ("accumulator", "compensation", "ftz")):
            return terms[0]  # the sum of one partial sum is that
    return Node(list(terms), arithmetic, start)


def as_sum(term: Term, arithmetic: Arithmetic) -> Node:
    return term if isinstance(term, Node) else fold([term], arithmetic)


def text(node: Node) -> str:
    """Return the tree as `Program.nested` writes it."""
    out: list[str] = []
    stack: list[Term | str] = [node]
    while stack:
        top = stack.pop()
        if not isinstance(top, Node):
            out.append(str(top))
        elif not top.terms:
            out.append("()")
        elif len(top.terms) == 1:
            stack.append(top.terms[0])
        else:
            out.append("(")
            stack.append(")")
            for position in range(len(top.terms) - 1, -1, -1):
                stack.append(top.terms[position])
                if position:
                    stack.append(" ")
    return "".join(out)


def depths(node: Node, n: int) -> list[int]:
    """Additions that each leaf passes."""
    out = [-1] * n
    stack: list[tuple[Term, int]] = [(node, 0)]
    while stack:
        top, depth = stack.pop()
        if isinstance(top, int):
            assert out[top] == -1, "a leaf twice"
            out[top] = depth
            continue
        count = len(top.terms)
        for position, term in enumerate(top.terms):
            stack.append((term, depth + count - max(position, 1)))
    return out


# --- orders, naively ------------------------------------------------------------------------------------------------


def naive(order: Any, terms: list[Term], arithmetic: Arithmetic, width: int = 0) -> Node:
    """Build the tree of `order` over `terms` with lists and loops."""
    return _BUILDERS[type(order).__name__](order, terms, arithmetic, width)


def _serial(_order: Any, terms: list[Term], arithmetic: Arithmetic, _width: int) -> Node:
    return fold(terms, arithmetic)


def _pairwise(order: Any, terms: list[Term], arithmetic: Arithmetic, _width: int) -> Node:
    if order.base > 1:
        terms = [fold(terms[i : i + order.base], arithmetic) for i in range(0, len(terms), order.base)]
    while len(terms) > 1:
        new: list[Term] = [fold([terms[i], terms[i + 1]], arithmetic) for i in range(0, len(terms) - 1, 2)]
        if len(terms) % 2 == 1:
            new.append(terms[-1])
        terms = new
    return as_sum(terms[0], arithmetic)


def _halving(_order: Any, terms: list[Term], arithmetic: Arithmetic, width: int) -> Node:
    # Shared memory of fixed width; places without a term hold an exact zero, which is None here.
    shared: list[Term | None] = [*terms]
    while len(shared) < width:
        shared.append(None)
    w = len(shared)
    while w > 1:
        half = -(-w // 2)
        for t in range(half):
            other = shared[t + half] if t + half < w else None
            mine = shared[t]
            if other is not None:
                shared[t] = other if mine is None else fold([mine, other], arithmetic)
        w = half
    total = shared[0]
    assert total is not None
    return as_sum(total, arithmetic)


def _lanes(order: Any, terms: list[Term], arithmetic: Arithmetic, _width: int) -> Node:
    k = order.count
    n = len(terms)
    full = n if order.tail == "lanes" else n // k * k
    lanes: list[list[Term]] = [[] for _ in range(k)]
    for i in range(full):
        lanes[i % k].append(terms[i])
    rest = terms[full:]
    if order.tail == "lane0" and full:
        lanes[0] += rest
        rest = []
    sums: list[Term] = [naive(order.inner, lane, arithmetic) for lane in lanes if lane]
    total = naive(order.combine, sums, arithmetic, k) if sums else None
    if not rest:
        assert total is not None
        return total
    if isinstance(order.tail, str):
        return fold(rest if total is None else [total, *rest], arithmetic)
    own = naive(order.tail, rest, arithmetic)
    return own if total is None else fold([own, total], own.arithmetic)


def _in_runs(order: Any, terms: list[Term], arithmetic: Arithmetic, sizes: list[int]) -> Node:
    sums: list[Term] = []
    position = 0
    for size in sizes:
        if size:
            sums.append(naive(order.inner, terms[position : position + size], arithmetic))
        position += size
    assert position >= len(terms)
    return naive(order.combine, sums, arithmetic)


def _chunks(order: Any, terms: list[Term], arithmetic: Arithmetic, _width: int) -> Node:
    if isinstance(order.size, tuple):
        return _in_runs(order, terms, arithmetic, list(order.size))
    return _in_runs(order, terms, arithmetic, [order.size] * -(-len(terms) // order.size))


def _split_k(order: Any, terms: list[Term], arithmetic: Arithmetic, _width: int) -> Node:
    size = math.ceil(len(terms) / order.parts)
    sizes = []
    left = len(terms)
    while left > 0:
        sizes.append(min(size, left))
        left -= size
    return _in_runs(order, terms, arithmetic, sizes)


def _split(order: Any, terms: list[Term], arithmetic: Arithmetic, _width: int) -> Node:
    return _in_runs(
        order, terms, arithmetic, [len(part) for part in np.array_split(np.arange(len(terms)), order.parts)]
    )


def _interleaved(order: Any, terms: list[Term], arithmetic: Arithmetic, _width: int) -> Node:
    parts: list[list[Term]] = [[] for _ in range(order.parts)]
    for i, term in enumerate(terms):
        parts[i // order.block % order.parts].append(term)
    sums: list[Term] = [naive(order.inner, part, arithmetic) for part in parts if part]
    return naive(order.combine, sums, arithmetic, order.parts)


def _cascade(order: Any, terms: list[Term], arithmetic: Arithmetic, _width: int) -> Node:
    accumulators: list[list[Term]] = [[] for _ in range(order.levels)]
    for term in terms:
        accumulators[0].append(term)
        for level in range(order.levels - 1):
            if len(accumulators[level]) == order.step:
                accumulators[level + 1].append(fold(accumulators[level], arithmetic))
                accumulators[level] = []
    return fold([fold(kept, arithmetic) for kept in accumulators if kept], arithmetic)


def _grid(order: Any, terms: list[Term], arithmetic: Arithmetic, _width: int) -> Node:
    tile = order.threads * order.items
    sums: list[Term] = []
    for b in range(order.blocks):
        mine: list[list[Term]] = [[] for _ in range(order.threads)]
        first = b * tile
        while first < len(terms):
            for item in range(order.items):
                for t in range(order.threads):
                    i = first + item * order.threads + t
                    if i < len(terms):
                        mine[t].append(terms[i])
            first += order.blocks * tile
        threads: list[Term] = [fold(taken, arithmetic) for taken in mine if taken]
        if threads:
            sums.append(naive(order.block, threads, arithmetic, order.threads))
    return naive(order.combine, sums, arithmetic, order.blocks)


def _reverse(order: Any, terms: list[Term], arithmetic: Arithmetic, width: int) -> Node:
    return naive(order.inner, terms[::-1], arithmetic, width)


def _rotate(order: Any, terms: list[Term], arithmetic: Arithmetic, width: int) -> Node:
    s = order.shift % len(terms)
    return naive(order.inner, terms[s:] + terms[:s], arithmetic, width)


def _permute(order: Any, terms: list[Term], arithmetic: Arithmetic, width: int) -> Node:
    return naive(order.inner, [terms[i] for i in order.places], arithmetic, width)


def _shuffle(order: Any, terms: list[Term], arithmetic: Arithmetic, width: int) -> Node:
    blocks = [terms[i : i + order.block] for i in range(0, len(terms), order.block)]
    rng = np.random.default_rng(order.seed)
    if order.window:
        times = [i + order.window * late for i, late in enumerate(rng.random(len(blocks)))]
        places = sorted(range(len(blocks)), key=lambda i: times[i])
    else:
        places = list(rng.permutation(len(blocks)))
    return naive(order.inner, [term for i in places for term in blocks[i]], arithmetic, width)


def _tree(order: Any, terms: list[Term], arithmetic: Arithmetic, _width: int) -> Node:
    stack: list[list[Term]] = [[]]
    for token in order.text.replace("(", " ( ").replace(")", " ) ").split():
        if token == "(":
            stack.append([])
        elif token == ")":
            group = stack.pop()
            stack[-1].append(group[0] if len(group) == 1 else fold(group, arithmetic))
        else:
            ends, _, step = token.partition("/")
            first, _, last = ends.partition("..")
            stack[-1] += [terms[i] for i in range(int(first), int(last or first) + 1, int(step or 1))]
    return as_sum(stack[0][0], arithmetic) if len(stack[0]) == 1 else fold(stack[0], arithmetic)


def _numpy_sum(order: Any, terms: list[Term], arithmetic: Arithmetic, _width: int) -> Node:
    def block(x: list[Term]) -> Node:
        n = len(x)
        if n < 8:
            return fold(x, arithmetic)
        if n <= 128:
            r = [fold(x[i : n - n % 8 : 8], arithmetic) for i in range(8)]
            four = [fold([r[i], r[i + 1]], arithmetic) for i in (0, 2, 4, 6)]
            total = fold([fold([four[0], four[1]], arithmetic), fold([four[2], four[3]], arithmetic)], arithmetic)
            return fold([total, *x[n - n % 8 :]], arithmetic)
        half = n // 2
        half -= half % 8
        return fold([block(x[:half]), block(x[half:])], arithmetic)

    if order.chunk == 1:
        return fold(terms, arithmetic, "+0")
    half = arithmetic.accumulator
    as_numpy = half == Rounding(FLOAT16) and arithmetic.compensation is None and not arithmetic.ftz
    if as_numpy:
        arithmetic = dataclasses.replace(arithmetic, accumulator=Rounding(FLOAT32))
    parts: list[Term] = []
    row = order.row or len(terms)
    for first in range(0, len(terms), row):
        inner = terms[first : first + row]
        size = order.chunk or row
        parts += [block(inner[i : i + size]) for i in range(0, len(inner), size)]
    if not as_numpy:
        return fold(parts, arithmetic, "+0")
    rounded = dataclasses.replace(arithmetic, output=half)
    total = fold(parts[:1], rounded, "+0")
    for part in parts[1:]:
        total = fold([total, part], rounded, "first")
    return total


def _configured(order: Any, terms: list[Term], arithmetic: Arithmetic, width: int) -> Node:
    settings: Settings = order.settings
    total = naive(order.order, terms, settings.over(arithmetic), width)
    return with_output(total, settings)


def with_output(total: Node, settings: Settings) -> Node:
    if settings.output is None:
        return total
    own = total.arithmetic
    if own.output is not None:
        own = dataclasses.replace(own, compensation=None)  # already added up
    return Node([total], dataclasses.replace(own, output=settings.output), "first")


_BUILDERS = {
    "Serial": _serial, "Pairwise": _pairwise, "HalvingFold": _halving, "Lanes": _lanes, "Chunks": _chunks,
    "SplitK": _split_k, "Split": _split, "Interleaved": _interleaved, "Cascade": _cascade, "Grid": _grid,
    "Reverse": _reverse, "Rotate": _rotate, "Permute": _permute, "Shuffle": _shuffle, "Tree": _tree,
    "NumpySum": _numpy_sum, "Configured": _configured,
}  # fmt: skip


def tree_of(strategy: Strategy, n: int, data: Format | None = None) -> Node:
    """Return the tree of a strategy over n terms."""
    arithmetic = dataclasses.replace(strategy.arithmetic(data), output=None)
    if n == 0:
        total = Node([], arithmetic, "-0" if arithmetic.start == "-0" else "+0")
    else:
        total = naive(strategy.order, list(range(n)), arithmetic)
    settings = strategy.settings
    if settings.output is None and arithmetic.accumulator.format.changes(total.arithmetic.result_format):
        settings = Settings(output=arithmetic.accumulator)
    return with_output(total, settings)


# --- evaluation -----------------------------------------------------------------------------------------------------


def formats_of(a: Arithmetic) -> tuple[Format, Format, str]:
    def flushed(form: Format) -> Format:
        return form.without_subnormals() if a.ftz else form

    return flushed(a.accumulator.format), flushed(a.product or a.accumulator.format), a.accumulator.mode


class State:
    """An accumulator: a sum and its correction."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        self.arithmetic = arithmetic
        self.s: float | None = None
        self.c = 0.0

    def take(self, x: float, error: float = 0.0) -> None:
        a = self.arithmetic
        form, _, mode = formats_of(a)
        if self.s is None:
            # Starting from a term is a conversion, not an addition: nothing is flushed.
            self.s, self.c = convert(x, a.accumulator.format, mode), error
        elif a.compensation is None:
            self.s = add(self.s, x, form, mode)
        elif a.compensation == "kahan":
            self._kahan(add(x, -self.c, form, mode))
        else:
            total = add(self.s, x, form, mode)
            if math.isfinite(total):
                big, small = (self.s, x) if abs(self.s) >= abs(x) else (x, self.s)
                local = add(add(big, -total, form, mode), small, form, mode)
                if a.compensation == "dot2":
                    local = add(local, error, form, mode)
                self.c = add(self.c, local, form, mode)
            self.s = total

    def _kahan(self, y: float) -> None:
        assert self.s is not None
        form, _, mode = formats_of(self.arithmetic)
        total = add(self.s, y, form, mode)
        self.c = add(add(total, -self.s, form, mode), -y, form, mode)
        self.s = total

    def take_product(self, x: float, y: float) -> None:
        a = self.arithmetic
        form, product_form, mode = formats_of(a)
        if a.fma and self.s is not None:
            if a.compensation == "kahan":
                self._kahan(fma(x, y, -self.c, form, mode))
            else:
                self.s = fma(x, y, self.s, form, mode)
            return
        product = multiply(x, y, product_form, mode)
        error = 0.0
        if a.compensation == "dot2" and math.isfinite(product):
            error = fma(x, y, -product, form, mode)
        self.take(product, error)

    def take_sum(self, other: State) -> None:
        """Take a finished partial sum; an error that it carries is carried on."""
        a, b = self.arithmetic, other.arithmetic
        carries = a.compensation in ("neumaier", "dot2") and a.compensation == b.compensation
        carries = carries and a.accumulator == b.accumulator and b.output is None
        if not carries:
            self.take(other.value())
            return
        form, _, mode = formats_of(a)
        first = self.s is None
        self.take(other.raw())
        self.c = other.c if first else add(self.c, other.c, form, mode)

    def raw(self) -> float:
        assert self.s is not None
        return self.s

    def value(self) -> float:
        a = self.arithmetic
        form, _, mode = formats_of(a)
        s = self.raw()
        if a.compensation in ("neumaier", "dot2") and math.isfinite(s):
            s = add(s, self.c, form, mode)
        if a.output is not None:
            s = convert(s, a.output.format.without_subnormals() if a.ftz else a.output.format, a.output.mode)
        return s


def evaluate(root: Node, left: list[float], right: list[float] | None = None) -> float:
    """Evaluate a tree over the terms `left`, or over the products ``left[i]*right[i]``."""
    result: State | None = None
    stack: list[tuple[Node, State, int]] = [(root, State(root.arithmetic), 0)]
    while stack:
        node, state, position = stack.pop()
        if position == 0 and node.start != "first":
            state.s = 0.0 if node.start == "+0" else -0.0
        if result is not None:
            state.take_sum(result)
            result = None
        while position < len(node.terms):
            term = node.terms[position]
            position += 1
            if isinstance(term, Node):
                stack += [(node, state, position), (term, State(term.arithmetic), 0)]
                break
            if right is None:
                state.take(left[term])
            else:
                state.take_product(left[term], right[term])
        else:
            result = state
    assert result is not None
    return result.value()


# --- operations -----------------------------------------------------------------------------------------------------


def operand(x: float, strategy: Strategy, data: Format) -> float:
    """Return an operand as the arithmetic sees it."""
    a = strategy.arithmetic(data)
    form, target = data, a.operand_format
    if not target.includes(data):
        x = convert(x, target, a.operands.mode if a.operands else "nearest-even")
        form = target
    if a.operands is None and FLOAT32.includes(form):
        form = FLOAT32  # narrower numbers are widened on their way in, which keeps their subnormals
    return math.copysign(0.0, x) if a.daz and abs(x) < form.smallest_normal else x


def total(strategy: Strategy, x: Any, data: Format = FLOAT32) -> float:
    """Return the sum of a vector, before it is stored in a NumPy type."""
    values = [operand(float(v), strategy, data) for v in x]
    return evaluate(tree_of(strategy, len(values), data), values)


def inner_product(strategy: Strategy, x: Any, y: Any, data: Format = FLOAT32) -> float:
    """Return the dot product of two vectors, before it is stored in a NumPy type."""
    left = [operand(float(v), strategy, data) for v in x]
    right = [operand(float(v), strategy, data) for v in y]
    return evaluate(tree_of(strategy, len(left), data), left, right)


def same(a: Any, b: Any) -> Any:
    """Tell where two arrays are equal, with the sign of zeros; any NaN equals any other."""
    a, b = np.asarray(a), np.asarray(b)
    return ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))


# --- random strategies ----------------------------------------------------------------------------------------------


def random_order(choose: Any, depth: int, settings: bool, terms_only: bool = True) -> str:
    """Return the text of an order; `choose` picks from a sequence. Orders of partial sums are not `terms_only`."""

    def part(own: bool = settings) -> str:
        order = random_order(choose, depth - 1, settings, terms_only=False)
        return order + (random_settings(choose, inner=True) if own and choose((True, False, False)) else "")

    k, m = choose((1, 2, 3, 4, 5, 8)), choose((1, 2, 3, 4, 7))
    names = ["serial", "pairwise", "fold", "reverse", "pairwise(k)", "rotate(1)", "rotate(3)"]
    if depth > 0:
        nests = [
            "chunks",
            "split_k",
            "split",
            "interleaved",
            "lanes",
            "lanes",
            "cascade",
            "shuffle",
            "reverse()",
            "rotate()",
        ]
        names += nests * 2 + ["numpy_sum", "numpy_sum(chunk)"] + ["grid"] * 2 * terms_only
    name = choose(names)
    if name == "pairwise(k)":
        return f"pairwise({k})"
    if name == "numpy_sum(chunk)":
        return f"numpy_sum(chunk={4 * k}{choose(('', f', row={9 * m}'))})"
    if name == "cascade":
        return f"cascade({m}, {k})"
    if name == "shuffle":
        return f"shuffle({k}, {part(False)})"
    if name.endswith("()"):
        return f"{name[:-2]}({f'{m}, ' if name == 'rotate()' else ''}{part(False)})"
    if name == "grid":
        return f"grid({k}, {2 * m}, {choose((1, 2))}, block={part()}, combine={part()})"
    if name == "lanes":
        tail = choose(("", ", tail=after", ", tail=lane0", f", tail={part(False)}"))
        return f"lanes({k}, {part()}, combine={part()}{tail})" if choose((True, False)) else f"lanes({k}{tail})"
    if name == "interleaved":
        return f"interleaved({k}, {part()}, block={m}, combine={part()})"
    return f"{name}({k}, {part()}, combine={part()})" if name in ("chunks", "split_k", "split") else str(name)


FORMAT_TEXTS = (
    "float32", "float64", "bfloat16", "float16", "tf32", "e5m2", "e4m3fn", "e4m3fn(overflow=saturate)",
    "format(5, -10, 10)", "float16(subnormals=False)", "format(2, -3, 4)", "format(1, -20, 20)", "format(30, -200, 200)",
)  # fmt: skip
MODES = ("nearest_even", "nearest_even", "nearest_even", "nearest_away", "toward_zero", "up", "down", "to_odd")


def random_settings(choose: Any, inner: bool = False) -> str:
    parts = []

    def rounding() -> str:
        form, mode = choose(FORMAT_TEXTS), choose(MODES)
        return f"{form}" if mode == "nearest_even" else f"{form}, {mode}"

    accumulator = rounding() if choose((True, False)) else "float32"
    if accumulator.startswith("float64"):
        accumulator = "float64"
    if accumulator != "float32" or choose((False, True)):
        parts.append(f"acc({accumulator})")
    compensation = choose(("", "", "", "kahan", "neumaier", "dot2"))
    product = choose(("fma", "separate", "", "", f"product({choose(FORMAT_TEXTS)})"))
    if compensation in ("neumaier", "dot2") and product == "fma":
        product = "separate"
    if inner and not product:
        product = "separate"
    if inner and not compensation:
        compensation = "uncompensated"
    parts += [part for part in (product, compensation) if part]
    if choose((False, False, True)):
        parts.append(choose(("start(0.0)", "start(-0.0)", "start(first)")))
    parts += [name for name in ("ftz", "daz") if choose((False, False, False, True))]
    if choose((False, False, True)):
        parts.append(f"output({rounding()})")
    if not inner:
        if choose((False, False, True)):
            parts.append(choose(("divide", "reciprocal")))
        if choose((False, False, True)):
            parts.append(f"operands({rounding()})")
    return "".join(f"+{part}" for part in parts)


def random_strategy(choose: Any, depth: int = 2) -> str:
    return random_order(choose, depth, settings=True) + random_settings(choose)


def random_terms(rng: np.random.Generator, n: int, kind: str, dtype: Any = np.float32) -> Any:
    """Return n terms of one of the kinds of data that tell arithmetics apart."""
    sign = rng.choice([-1.0, 1.0], n)
    if kind == "uniform":
        x = rng.uniform(0, 1, n)
    elif kind == "normal":
        x = rng.standard_normal(n)
    elif kind == "wide":
        x = sign * rng.uniform(1, 2, n) * 2.0 ** rng.integers(-30, 31, n)
    elif kind == "small":
        info = np.finfo(dtype)
        x = sign * rng.uniform(0, 4, n) * float(info.smallest_normal) * 2.0 ** rng.integers(-info.nmant, 3, n)
    elif kind == "coarse":  # ties and cancellation
        x = sign * rng.integers(0, 5, n) * 2.0 ** rng.integers(-12, 13, n)
    else:
        pool = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, float(np.finfo(dtype).max), 1e-3]
        weights = np.array([6, 8, 4, 4, 1, 1, 1, 2, 4]) if kind == "special" else np.array([4, 8, 0, 0, 0, 0, 0, 0, 0])
        x = rng.choice(pool, n, p=weights / weights.sum())
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(x, np.float64).astype(dtype)


KINDS = ("uniform", "normal", "wide", "small", "coarse", "special", "zeros")
