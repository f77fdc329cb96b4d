"""Inputs given as a short expression or a law: ``RandomState(1234).rand(5000, 2) * 100``, ``n ones``, ``uniform [0,1)``."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim.errors import InputError

Array = NDArray[Any]
_MOST = 2**31  # numbers of an input, so that a typing error does not fill the memory
_BINARY: Final[dict[type[ast.AST], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow, ast.MatMult: operator.matmul, ast.Mod: operator.mod, ast.FloorDiv: operator.floordiv,
}  # fmt: skip
_TYPES = {"float16": np.float16, "float32": np.float32, "float64": np.float64, "half": np.float16, "double": np.float64}
_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "arange": np.arange, "linspace": np.linspace, "ones": np.ones, "zeros": np.zeros, "full": np.full, "eye": np.eye,
    "identity": np.identity, "array": np.array, "abs": np.abs, "sqrt": np.sqrt, "exp": np.exp, "log": np.log,
    "sin": np.sin, "cos": np.cos, "float16": np.float16, "float32": np.float32, "float64": np.float64,
    "repeat": np.repeat, "tile": np.tile, "frac": lambda x: x - np.floor(x), "indices": np.indices,
    "diag": np.diag, "where": np.where, "sum": np.sum, "outer": np.outer, "concatenate": np.concatenate,
}  # fmt: skip
_METHODS = frozenset(
    ("T", "astype", "reshape", "transpose", "copy", "ravel", "shape", "half", "double", "rand", "randn", "normal",
     "standard_normal", "uniform", "random", "integers", "randint", "random_sample", "standard_exponential")
)  # fmt: skip


class Torch:
    """The numbers of ``torch.manual_seed`` on a CPU, for uniform numbers; normal ones within a few ulps.

    Source: ``aten/src/ATen/native/cpu/DistributionTemplates.h`` and ``ATen/core/DistributionsHelper.h`` of PyTorch 2:
    a Mersenne twister; 24 bits for a float32, 53 of two words for a float64; normal numbers by the method of Box and
    Muller over blocks of 16, the last block drawn anew where the count is not a multiple of 16.
    """

    def __init__(self, seed: int) -> None:
        self._twister = np.random.RandomState(seed)

    def _words(self, count: int) -> NDArray[np.uint32]:
        return self._twister.randint(0, 2**32, count, np.uint32)

    def rand(self, *shape: Any, dtype: Any = np.float32) -> Array:
        """Return uniform numbers on [0, 1)."""
        shape = _shape(shape)
        n = math.prod(shape)
        if dtype is np.float64:
            words = self._words(2 * n).astype(np.uint64)
            whole = (words[0::2] << np.uint64(32) | words[1::2]) & np.uint64(2**53 - 1)
            return (whole * 2.0**-53).reshape(shape)
        return ((self._words(n) & np.uint32(2**24 - 1)) * 2.0**-24).astype(np.float32).reshape(shape)

    def randn(self, *shape: Any) -> Array:
        """Return normal numbers."""
        shape = _shape(shape)
        n = math.prod(shape)
        if n < 16:
            u = np.concatenate([self.rand(2, dtype=np.float64) for _ in range(n)]) if n else np.zeros(0)
            first, second = u[0::2][: (n + 1) // 2], u[1::2][: (n + 1) // 2]
            radius, angle = np.sqrt(-2 * np.log1p(-second)), 2 * math.pi * first
            both = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)
            return both[:n].astype(np.float32).reshape(shape)
        u = self.rand(n)
        rest = n % 16
        blocks = _box_muller(u[: n - rest])
        if rest:
            last = _box_muller(self.rand(16))
            blocks = np.concatenate([blocks, np.zeros(rest, np.float32)])
            blocks[n - 16 :] = last
        return blocks.reshape(shape)

    standard_normal = randn
    normal = randn


def _box_muller(u: Array) -> Array:
    pairs = u.reshape(-1, 2, 8)
    radius = np.sqrt(np.float32(-2) * np.log(np.float32(1) - pairs[:, 0]))
    angle = np.float32(2 * math.pi) * pairs[:, 1]
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).astype(np.float32).reshape(-1)


def _shape(given: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(given[0]) if len(given) == 1 and isinstance(given[0], tuple | list) else tuple(given)


@dataclass(frozen=True, eq=False, slots=True)
class Made:
    """Inputs from a text.

    Attributes
    ----------
    arrays : tuple of ndarray
        One or more.
    known : bool
        Whether they are the very numbers; else others of the same law.
    count : int or None
        How many numbers there were, where the arrays are a stratified sample of them.
    """

    arrays: tuple[Array, ...]
    known: bool
    count: int | None = None


_LARGE = 20_000_000  # numbers of a law that are not drawn: stratified ones stand for them
_STRATA = 2**16


def make(text: str, /, names: Mapping[str, Any] | None = None, *, shapes: Any = (), count: int = 1) -> Made:
    """Return the arrays that a text describes.

    Parameters
    ----------
    text : str
        Expressions of NumPy, separated by commas, after an optional ``torch seed 0:`` or ``numpy seed 1:``; ``random``
        functions without a seed mean a law only. A shape may be left out where `shapes` has it.
    names : mapping, optional
        Arrays that the expressions may name.
    shapes : sequence of tuples, optional
        Of the arrays, in order.
    count : int, optional
        How many arrays are needed; a single expression without a shape is worked out anew for each.

    Raises
    ------
    InputError
        The text is not understood.
    """
    match = re.match(
        r"\s*(torch|numpy)?\s*(?:manual_)?seed\s*[=(]?\s*(\d+)\)?\s*[:,]?\s*(.*)", text, re.IGNORECASE | re.DOTALL
    )
    seed: int | None = None
    library, body = "numpy", text.strip()
    if match:
        library, seed, body = (match[1] or "numpy").lower(), int(match[2]), match[3]
    generator = re.match(r"\s*default_rng\((\d+)\)\s*:\s*(.*)", text, re.DOTALL)
    if generator:
        library, seed, body = "generator", int(generator[1]), generator[2]
    body = _translated(body)
    wanted = [tuple(s) for s in shapes if isinstance(s, tuple | list) and all(isinstance(i, int) for i in s)]
    reader = _Reader(dict(names or {}), library, seed, wanted)
    try:
        tree = ast.parse(body.strip(), mode="eval").body
    except SyntaxError as error:
        message = f"{text!r} is not an expression that describes inputs; write one such as randn(100) or arange(10)/7"
        raise InputError(message) from error
    try:
        nodes = tree.elts if isinstance(tree, ast.Tuple) else [tree]
        parts = [reader.value(node) for node in nodes]
        while len(nodes) == 1 and reader.drawn and len(parts) < count and (len(wanted) in (1, count)):
            parts.append(reader.value(tree))
    except (TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        message = f"{text!r} cannot be worked out: {error}"
        raise InputError(message) from error
    return Made(tuple(np.asarray(part) for part in parts), not reader.random_law, reader.count)


_WORDS = (
    (r";.*$", ""),
    (r"\b(?:the\s+)?(?:b?float\d*|double|number)s?\s+nearest\s+to\s+", ""),
    (r"^\s*([-\d.e]+)\s+repeated\s+(\d+)\s+times.*$", r"full(\2, \1)"),
    (r"\buniforms?\s*[\[(]\s*([-\d.e]+)\s*,\s*([-\d.e]+)\s*[\])]", r"uniform(\1,\2)"),
    (r"\bU\s*[\[(]\s*([-\d.e]+)\s*,\s*([-\d.e]+)\s*[\])]", r"uniform(\1,\2)"),
    (r"\bstandard normals?\b", "standard_normal()"),
    (r"\b(?:as|in)\s+(?:type\s+)?(?:b?float\d+|half|double|single)\b", ""),
    (r"\s+(?:b?float\d+|half|double)\s*$", ""),
    (r"\|([^|]+)\|", r"abs(\1)"),
    (r"\s+times\s+", " @ "),
    (r"\s+dot\s+", ", "),
    (r"\b(\d[\d_]*)\s+ones\b", r"ones(\1)"),
    (r"\bn ones\b", "ones()"),
    (r"\b(?:np|numpy|torch|random|jnp|rng)\.", ""),
    (r",\s*\d+\s+ranks?\b", ""),
    (r",\s*sum of .*$", ""),
    (r"\b(?:np|numpy|torch)\s+(?=RandomState|default_rng)", ""),
    (r"\bbias\s+", ""),
    (r"(\d)\.\.(\d)", r"\1 .. \2"),
    (r"^\s*(\d+)\s+\.\.\s+(\d+)\s*$", r"arange(\1, \2 + 1)"),
    (r"^\s*frac\(k\*pi\).*?k\s*=\s*0\s*\.\.\s*(\d+).*$", r"frac(arange(\1 + 1) * pi)"),
)


def _translated(text: str) -> str:
    for pattern, by in _WORDS:
        text = re.sub(pattern, by, text, flags=re.IGNORECASE)
    return text.strip().rstrip(",;.")


class _Reader:
    """Works out expressions of a few names and operators; nothing else of Python can be reached."""

    def __init__(self, names: dict[str, Any], library: str, seed: int | None, shapes: list[tuple[int, ...]]) -> None:
        self.names = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan, **names}
        self.shapes = shapes
        self.drawn = 0
        self.random_law = False
        self.count: int | None = None
        self.seeded = seed is not None
        self.source: Any = np.random.RandomState(seed or 0)
        if library == "torch" and seed is not None:
            self.source = Torch(seed)
        elif library == "generator":
            self.source = np.random.default_rng(seed)

    def value(self, node: ast.AST) -> Any:
        match node:
            case ast.Constant(value=value) if isinstance(value, int | float):
                return value
            case ast.Name(id=name):
                return self.name(name)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _BINARY[type(op)](self.value(left), self.value(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.value(operand)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                return [self.value(element) for element in elements]
            case ast.Subscript(value=inner, slice=index):
                return self.value(inner)[self.index(index)]
            case ast.Attribute(value=inner, attr=name) if name in _METHODS:
                return getattr(self.value(inner), name)
            case ast.Call(func=function, args=arguments, keywords=keywords):
                return self.call(function, arguments, keywords)
        message = f"{ast.unparse(node)!r} is not understood"
        raise ValueError(message)

    def name(self, name: str) -> Any:
        if name in self.names:
            return self.names[name]
        if name in ("rand", "randn", "uniform", "normal", "standard_normal", "random"):
            return self.draw(name, [])
        if name in _TYPES:
            return _TYPES[name]
        message = f"{name!r} is not known"
        raise ValueError(message)

    def index(self, node: ast.AST) -> Any:
        match node:
            case ast.Slice(lower=low, upper=high, step=step):
                return slice(*(None if part is None else self.value(part) for part in (low, high, step)))
            case ast.Tuple(elts=elements):
                return tuple(self.index(element) for element in elements)
        return self.value(node)

    def call(self, function: ast.expr, arguments: list[ast.expr], keywords: list[ast.keyword]) -> Any:
        given = [self.value(argument) for argument in arguments]
        named = {k.arg: self.value(k.value) for k in keywords if k.arg in ("axis", "size", "dtype", "low", "high")}
        if isinstance(function, ast.Name):
            name = function.id
            if name in ("RandomState", "default_rng", "manual_seed"):
                self.seeded = bool(given)
                return np.random.RandomState(*given) if name == "RandomState" else np.random.default_rng(*given)
            if name in ("rand", "randn", "uniform", "normal", "standard_normal", "random", "randint"):
                return self.draw(name, given, named)
            if name in ("ones", "zeros") and not given:
                given = [self.next_shape()]
            if name not in _FUNCTIONS:
                message = f"{name!r} is not known"
                raise ValueError(message)
            if name in ("ones", "zeros", "full", "arange") and math.prod(np.atleast_1d(given[0]).astype(float)) > _MOST:
                message = "these are too many numbers"
                raise ValueError(message)
            return _FUNCTIONS[name](*given, **named)
        method = self.value(function)
        if isinstance(function, ast.Attribute) and function.attr in ("half", "double"):
            return np.asarray(self.value(function.value)).astype(_TYPES[function.attr])
        owner = getattr(method, "__self__", None)
        if isinstance(owner, np.random.Generator | np.random.RandomState) and "size" not in named:
            kind = getattr(method, "__name__", "")
            if kind in ("uniform", "normal") and len(given) <= 2:
                named["size"] = self.next_shape()
        return method(*given, **named)

    def draw(self, name: str, given: list[Any], named: Mapping[str, Any] | None = None) -> Any:
        """Draw from the source; ``normal(20, 20)`` and ``uniform(0, 1)`` are told apart by what is known of the shape."""
        self.random_law |= not self.seeded
        size = (named or {}).get("size")
        if name == "uniform" and len(given) >= 2:
            low, high = given[:2]
            shape = size or (tuple(given[2]) if len(given) > 2 and isinstance(given[2], list) else self.next_shape())
            return low + (high - low) * self._uniform(shape)
        whole = bool(given) and all(isinstance(x, int) for x in given)
        if name == "normal" and size is not None:
            mean, spread = (*given, 0, 1)[:2] if given else (0, 1)
            return mean + spread * self._normal(_shape((size,)) if not isinstance(size, int) else (size,))
        shape = _shape(tuple(given)) if whole or (given and isinstance(given[0], list)) else self.next_shape()
        if isinstance(self.source, Torch) and (named or {}).get("dtype") is np.float64 and name == "rand":
            return self.source.rand(*shape, dtype=np.float64)
        return self._uniform(shape) if name in ("rand", "uniform", "random") else self._normal(shape)

    def _uniform(self, shape: tuple[int, ...]) -> Any:
        if not self.seeded and math.prod(shape) > _LARGE:
            return self._stratified(shape)
        return self.source.random(shape) if hasattr(self.source, "random") else self.source.rand(*shape)

    def _stratified(self, shape: tuple[int, ...]) -> Any:
        """Return the midpoints of equally likely intervals, in random order, instead of very many random numbers."""
        self.count = math.prod(shape)
        return np.random.default_rng(self.drawn).permutation((np.arange(_STRATA) + 0.5) / _STRATA)

    def _normal(self, shape: tuple[int, ...]) -> Any:
        if not self.seeded and math.prod(shape) > _LARGE:
            from statistics import NormalDist

            law = NormalDist()
            return np.array([law.inv_cdf(u) for u in self._stratified(shape)])
        return self.source.normal(0.0, 1.0, shape) if hasattr(self.source, "spawn") else self.source.randn(*shape)

    def next_shape(self) -> tuple[int, ...]:
        if not self.shapes:
            message = "the shape is missing"
            raise ValueError(message)
        shape = self.shapes[min(self.drawn, len(self.shapes) - 1)]
        self.drawn += 1
        return shape
