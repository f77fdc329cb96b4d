"""Strategies: an order with its arithmetic, and the text that names them."""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from dataclasses import dataclass
from typing import Any, NoReturn

from fpsim._drawing import Tree
from fpsim.arithmetic import KINDS, MOST_BITS, NO_SETTINGS, Alignment, Arithmetic, Rounding, Settings
from fpsim.errors import InputError, StrategyError
from fpsim.formats import FLOAT32, FLOAT64, ROUNDING_MODES, Format, format_named
from fpsim.orders import ORDERS, Configured, Order
from fpsim.orders.base import finished
from fpsim.orders.combinators import TAILS
from fpsim.programs import Builder, Program, Segment, leaves

_SYNONYMS = {"adjacent": "pairwise"}
_FLAGS: dict[str, dict[str, Any]] = {
    "fma": {"fma": True},
    "separate": {"fma": False},
    "kahan": {"compensation": "kahan"},
    "neumaier": {"compensation": "neumaier"},
    "dot2": {"compensation": "dot2"},
    "uncompensated": {"compensation": "none"},
    "ftz": {"ftz": True},
    "daz": {"daz": True},
    "divide": {"mean": "divide"},
    "reciprocal": {"mean": "reciprocal"},
}
_WITH_FORMAT = {"acc": "accumulator", "operands": "operands", "output": "output"}
SETTINGS = (*_FLAGS, *_WITH_FORMAT, "product", "start", "align")


@dataclass(frozen=True, slots=True)
class Strategy:
    """An order and the arithmetic at its nodes: all that decides the bits of a reduction.

    Attributes
    ----------
    order : Order
        The rule that gives the summation tree.
    settings : Settings
        Changes to the default arithmetic, which is float32, separate products, to nearest even, with gradual
        underflow.

    Notes
    -----
    ``str`` gives the canonical text; `strategy` reads it back to an equal strategy.
    """

    order: Order
    settings: Settings = NO_SETTINGS

    def __post_init__(self) -> None:
        arithmetic = self.arithmetic()
        arithmetic.check()
        _check_parts(self.order, dataclasses.replace(arithmetic, output=None))

    def arithmetic(self, data: Format | None = None, /) -> Arithmetic:
        """Return the arithmetic of the outermost order, for operands of format `data`.

        Only a named rule looks at `data`: it accumulates as its library does for that type.

        Raises
        ------
        UnknownOrderError
            A named rule does not know this type.
        """
        return _arithmetic(self, data)

    def _defaults(self, data: Format | None) -> Settings:
        """Return the settings that belong to a named rule for operands of this format."""
        own_types = self.settings.accumulator is not None or (self.settings.operands is not None and data != FLOAT64)
        return self.order.defaults(None if own_types else data)

    def program(self, n: int, /, *, data: Format | None = None) -> Program:
        """Return the summation tree over n terms.

        Raises
        ------
        InputError
            n is negative, or the order is not defined for n terms.
        """
        if n < 0:
            message = f"a sum has at least 0 terms, not {n}"
            raise InputError(message)
        return (_short_program if n <= _SHORT else _program)(self, n, data)

    def tree(self, n: int, /) -> Tree:
        """Return the summation tree over n terms as text, a line for each distinct part.

        Notebooks show it as a picture, which its method ``svg()`` returns; beyond 128 leaves with boxes for many terms.
        """
        return Tree.of(self.program(n))

    def __str__(self) -> str:
        return f"{self.order}{self.settings}"


def _check_parts(order: Order, arithmetic: Arithmetic) -> None:
    """Raise `StrategyError` where the settings of a part contradict each other or those around it."""
    if isinstance(order, Configured):
        arithmetic = order.settings.over(arithmetic)
        arithmetic.check()
    order.check(arithmetic)
    for field in dataclasses.fields(order):  # type: ignore[arg-type]
        part = getattr(order, field.name)
        if isinstance(part, Order):
            _check_parts(part, arithmetic)


@functools.lru_cache(maxsize=4096)
def _arithmetic(chosen: Strategy, data: Format | None) -> Arithmetic:
    defaults = chosen._defaults(data)
    own = chosen.settings.over(defaults.over(Arithmetic()))
    return dataclasses.replace(own, output=chosen.settings.output or defaults.output)


@functools.lru_cache(maxsize=256)
def _program(chosen: Strategy, n: int, data: Format | None) -> Program:
    arithmetic = dataclasses.replace(chosen.arithmetic(data), output=None)
    builder = Builder()
    if n == 0:
        total: Segment = builder.fold((), arithmetic, start="-0" if arithmetic.start == "-0" else "+0")
    else:
        total = chosen.order.build(builder, leaves(n), arithmetic)
    settings = Settings(output=chosen.arithmetic(data).output)
    assert total.item is not None
    if settings.output is None and arithmetic.accumulator.format.changes(total.item.arithmetic.result_format):
        settings = Settings(output=arithmetic.accumulator)
    return Program.of(finished(builder, total, settings), n)


_SHORT = 2048
_short_program = functools.lru_cache(maxsize=2048)(_program.__wrapped__)


def strategy(text: Any, /) -> Strategy:
    """Return the strategy that a text names.

    Parameters
    ----------
    text : str, Strategy or Order
        An order, then ``+`` and settings, such as ``"lanes(8, combine=fold)+fma"``. In a shell ``lanes:8+fma`` means
        ``lanes(8)+fma``. The page "Strategy text" of the documentation has the table of orders and settings.

    Raises
    ------
    StrategyError
        The text is not a strategy; the error tells the column.

    Examples
    --------
    >>> import fpsim
    >>> print(fpsim.strategy("interleaved:5:8+fma"))
    interleaved(5, block=8)+fma
    """
    if isinstance(text, Strategy):
        return text
    if isinstance(text, Order):
        return Strategy(text)
    if not isinstance(text, str):
        message = f"a strategy is a text such as 'pairwise+fma', not {type(text).__name__}"
        raise StrategyError(message)
    return _parsed(text)


@functools.lru_cache(maxsize=4096)
def _parsed(text: str) -> Strategy:
    return _Parser(text).strategy()


_SHELL = re.compile(r"([A-Za-z_]\w*)((?::[^:+()\[\]\s,]+)+)")


class _Parser:
    """Reads a strategy text through Python's own grammar, of which it allows names, calls, numbers and ``+``."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.source, self.columns = _without_colons(text)

    def fail(self, message: str, node: ast.AST | None = None) -> NoReturn:
        column = getattr(node, "col_offset", None)
        if column is None:
            message = f"{message} (in {self.text!r})"
            raise StrategyError(message)
        column = len(self.source.encode()[:column].decode(errors="ignore"))  # Python's parser counts bytes
        raise StrategyError(message, text=self.text, column=self.columns[min(column, len(self.columns) - 1)])

    def strategy(self) -> Strategy:
        if "#" in self.text:  # Python would take what follows for a comment, and drop it
            message = f"{self.text!r} is not a strategy: invalid character '#'"
            raise StrategyError(message)
        try:
            tree = ast.parse(self.source, mode="eval")
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            message = f"{self.text!r} is not a strategy: {getattr(error, 'msg', error)}"
            raise StrategyError(message) from error
        order, settings = self.configured(tree.body)
        try:
            return Strategy(order, settings)
        except StrategyError as error:
            self.fail(str(error))

    def configured(self, node: ast.expr) -> tuple[Order, Settings]:
        parts: list[ast.expr] = []
        while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            parts.append(node.right)
            node = node.left
        settings = Settings()
        for part in reversed(parts):
            new = self.setting(part)
            for field in dataclasses.fields(Settings):
                if getattr(settings, field.name) is not None and getattr(new, field.name) is not None:
                    self.fail(f"{ast.unparse(part)} contradicts or repeats an earlier setting", part)
            settings = settings.merged(new)
        return self.order(node), settings

    def inner(self, node: ast.expr) -> Order:
        order, settings = self.configured(node)
        if settings.operands is not None:
            self.fail("operands(...) belongs at the end of the whole strategy", node)
        return Configured(order, settings) if settings else order

    def order(self, node: ast.expr) -> Order:
        name, arguments, keywords = self.call(node)
        name = _SYNONYMS.get(name, name)
        if name not in ORDERS:
            extra = "; it is a setting, which goes after an order" if name in SETTINGS else ""
            self.fail(f"unknown order {name!r}{extra}; known orders: {', '.join(ORDERS)}", node)
        kind = ORDERS[name]
        fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
        values: dict[str, Any] = {}
        numbers = [f for f in fields if "Order" not in str(fields[f].type)]
        orders = [f for f in fields if "Order" in str(fields[f].type) and "str" not in str(fields[f].type)]
        for argument in arguments:
            value = self.value(argument)
            free = [f for f in (orders if isinstance(value, Order) else numbers) if f not in values]
            if not free:
                self.fail(f"{name} takes no further argument {ast.unparse(argument)}", argument)
            values[free[0]] = value
        for keyword in keywords:
            if keyword.arg not in fields:
                self.fail(f"{name} has no argument {keyword.arg}; it has {', '.join(fields) or 'none'}", keyword)
            if keyword.arg in values:
                self.fail(f"{name}: {keyword.arg} is given twice", keyword)
            word = keyword.value.id if isinstance(keyword.value, ast.Name) else ""
            takes_words = word != "" and "str" in str(fields[keyword.arg].type)
            is_word = takes_words and (word in TAILS or word not in ORDERS)  # "lanes" is an order and a kind of tail
            values[keyword.arg] = word if is_word else self.value(keyword.value)
        missing = [f for f in fields if fields[f].default is dataclasses.MISSING and f not in values]
        if missing:
            self.fail(f"{name} needs {', '.join(missing)}, as in {name}({', '.join(missing)})", node)
        for field_name, value in values.items():
            self.check_kind(name, field_name, str(fields[field_name].type), value, node)
        try:
            return kind(**values)
        except StrategyError as error:
            return self.fail(str(error), node)

    def check_kind(self, name: str, field: str, declared: str, value: Any, node: ast.expr) -> None:
        wants_order, wants_text = "Order" in declared, "str" in declared
        fits = (
            (wants_order and isinstance(value, Order))
            or (wants_text and isinstance(value, str))
            or ("int" in declared.split(" | ") and isinstance(value, int))
            or ("tuple" in declared and isinstance(value, tuple))
        )
        if not fits:
            wanted = "an order" if wants_order else "a text" if wants_text else "a whole number"
            wanted = wanted if "int" in declared.split(" | ") or "tuple" not in declared else "a list of whole numbers"
            self.fail(f"{name}: {field} must be {wanted}", node)

    def value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | str) and not isinstance(node.value, bool):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self.value(node.operand)
            if isinstance(value, int):
                return -value
        if isinstance(node, ast.List | ast.Tuple):
            values = [self.value(element) for element in node.elts]
            if all(isinstance(value, int) for value in values):
                return tuple(values)
        if isinstance(node, ast.Name | ast.Call | ast.BinOp):
            return self.inner(node)
        return self.fail(f"cannot use {ast.unparse(node)} here", node)

    def call(self, node: ast.expr) -> tuple[str, list[ast.expr], list[ast.keyword]]:
        if isinstance(node, ast.Name):
            return node.id, [], []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return node.func.id, node.args, node.keywords
        return self.fail(f"expected a name such as 'serial' or 'lanes(8)', not {ast.unparse(node)}", node)

    def setting(self, node: ast.expr) -> Settings:
        name, arguments, keywords = self.call(node)
        if name in _FLAGS and not arguments and not keywords:
            return Settings(**_FLAGS[name])
        if keywords or not arguments:
            if name not in SETTINGS:
                self.fail(f"unknown setting {name!r}; known settings: {', '.join(SETTINGS)}", node)
            self.fail(f"cannot read the setting {ast.unparse(node)}", node)
        words = [ast.unparse(argument) for argument in arguments]
        if name in ("ftz", "daz") and words == ["off"]:
            return Settings(ftz=False) if name == "ftz" else Settings(daz=False)
        if name == "start" and words in (["0.0"], ["-0.0"], ["first"]):
            return Settings(start={"0.0": "+0", "-0.0": "-0", "first": "first"}[words[0]])
        if name == "product" and len(words) == 1:
            return Settings(product=self.format(words[0], node))
        if name == "align":
            return Settings(align=self.alignment(words, node))
        if name == "operands" and len(words) in (2, 3) and self.is_format(words[1]):
            right = self.rounding(words[1:], node)
            return Settings(operands=Rounding(self.format(words[0], node), right.mode), right=right)
        if name in _WITH_FORMAT and len(words) <= 2:
            change: Any = {_WITH_FORMAT[name]: self.rounding(words, node)}
            return Settings(**change)
        if name in SETTINGS:
            self.fail(f"cannot read the setting {ast.unparse(node)}", node)
        return self.fail(f"unknown setting {name!r}; known settings: {', '.join(SETTINGS)}", node)

    def alignment(self, words: list[str], node: ast.expr) -> Alignment:
        """Return what the words of an ``align(...)`` say."""
        if words[0] == "exact" and len(words) <= 3:
            return Alignment(MOST_BITS, self.rounding(words[1:], node) if words[1:] else Rounding(FLOAT32), "exact")
        kind = words.pop() if words[-1] in KINDS[:-1] else ""
        if not words or not words[0].isdecimal() or len(words) > 3:
            self.fail(f"cannot read the setting {ast.unparse(node)}", node)
        plain = Alignment.to(int(words[0]), self.rounding(words[1:], node) if words[1:] else None)
        return dataclasses.replace(plain, kind=kind)

    def rounding(self, words: list[str], node: ast.expr) -> Rounding:
        """Return what a format and perhaps a rounding mode say."""
        mode: Any = words[1].strip("'\"").replace("_", "-").replace(" ", "") if len(words) == 2 else "nearest-even"
        if mode not in ROUNDING_MODES or mode == "stochastic":
            choices = ", ".join(m.replace("-", "_") for m in ROUNDING_MODES if m != "stochastic")
            self.fail(f"unknown rounding mode {words[1]}; known modes: {choices}", node)
        return Rounding(self.format(words[0], node), mode)

    @staticmethod
    def is_format(text: str) -> bool:
        try:
            format_named(text)
        except InputError:
            return False
        return True

    def format(self, text: str, node: ast.expr) -> Format:
        try:
            return format_named(text)
        except InputError as error:
            return self.fail(str(error), node)


def _without_colons(text: str) -> tuple[str, list[int]]:
    """Write ``name:a:b`` as ``name(a,b)``; also return the column in `text` of every character."""
    out: list[str] = []
    columns: list[int] = []
    position = 0
    quoted = [(m.start(), m.end()) for m in re.finditer(r"\"[^\"]*\"|'[^']*'", text)]
    for match in _SHELL.finditer(text):
        if any(a <= match.start() < b for a, b in quoted):
            continue
        before = text[position : match.start()]
        out.append(before)
        columns += range(position, match.start())
        inner = f'"{match[2][1:]}"' if match[1] == "profile" else match[2][1:].replace(":", ",")
        call = f"{match[1]}({inner})"
        out.append(call)
        columns += [*range(match.start(), match.end()), *[match.end() - 1] * (len(call) - len(match[0]))]
        position = match.end()
    out.append(text[position:])
    columns += range(position, len(text) + 1)
    return "".join(out).strip(), columns[len(text) - len(text.lstrip()) :] if text[:1].isspace() else columns
