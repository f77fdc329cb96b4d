"""A case as it is described: a mapping with an operation, inputs as values, expressions or laws, and printed results."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpsim.errors import InputError
from fpsim.explaining.expressions import make
from fpsim.explaining.names import operation_name
from fpsim.explaining.observation import Case, Measure, Observation, Observed, hold
from fpsim.explaining.printed import Printed, is_number, read
from fpsim.formats import Format, as_format

Array = NDArray[Any]
_MOST_PRODUCTS = 20_000_000
_MOST_OUTPUTS = 1_000_000  # of a product; more are represented by some rows
#: Words of a figure's name, the statistic that it is, and what it compares.
_MEASURES: Final = (
    (r"run[- ]to[- ]run", "max", "runs"),
    (r"share|fraction|percent|elements that differ", "share", "other"),
    (r"entries equal to\s*([-\d.]+)", "count", "exact"),
    (r"max.* / max|max over max", "max over max", "other"),
    (r"max.*relative", "max relative", "other"),
    (r"max.*err", "max", "exact"),
    (r"(?:mean|average).*err", "mean", "exact"),
    (r"err.*norm|norm.*err", "norm", "exact"),
    (r"(?:std|standard deviation) of (?:the )?diff", "std", "other"),
    (r"(?:mean|average).*diff", "mean", "other"),
    (r"(?:max|largest).*(?:diff|absolute)|^\|.*-.*\||differs? by|^difference", "max", "other"),
    (r"first differing", "place", "other"),
    (r"max(?:imum)? output", "max output", "exact"),
)


# -- a case as a mapping ----------------------------------------------------------------------------------------------


def from_mapping(given: Mapping[str, Any], /) -> Observation:
    """Return the observation that a mapping describes, see `docs/explain.md`.

    Raises
    ------
    InputError
        It has no ``observed``, or a part of it is not understood.
    """
    if "observed" not in given:
        message = "a case needs observed: the results of each side"
        raise InputError(message)
    text = str(given.get("operation", given.get("op", "")) or "")
    op = operation_name(text)
    forms = [as_format(word) for word in _format_words(str(given.get("dtype", "float32")))]
    data, result = forms[0], forms[-1]
    settings = dict(given.get("settings", {}))
    inputs = given.get("inputs", given.get("input"))
    case = None
    if op is not None and inputs is not None:
        case = _case(op, inputs, given.get("shapes", ()), data, result, settings)
    sides, measures, statements = _observed(given["observed"], result, op, given)
    devices = tuple(map(str, given.get("devices_libraries", given.get("devices", ()))))
    return Observation(case, op, sides, measures, statements, devices)


def _format_words(text: str) -> list[str]:
    words = re.findall(r"b?float\d+|bfloat16|float64|double|half|single|int\d+|fp\d+|bf16|f\d+", text.lower())
    known = {"double": "float64", "half": "float16", "single": "float32", "bf16": "bfloat16"}
    out = []
    for word in words or ["float32"]:
        name = known.get(word, re.sub(r"^(fp|f)(?=\d)", "float", word))
        out.append("float64" if name.startswith("int") else name)
    return out


_SETTINGS: Final = (
    "axis", "ddof", "eps", "window", "momentum", "steps", "scale", "operator", "start", "end", "method", "divisor",
    "m", "n", "k", "alpha", "beta", "bias", "count", "of_law", "n_per_channel", "initial", "exponent",
)  # fmt: skip


def _case(op: str, inputs: Any, shapes: Any, data: Format, result: Format, settings: dict[str, Any]) -> Case | None:
    needed = 2 if op in ("dot", "matmul", "distance", "divide", "conv") else 1
    arrays, known, extra = _inputs(inputs, shapes, needed)
    if op in ("dot", "matmul", "distance", "conv") and len(arrays) < 2:
        arrays = _empty_product(arrays, extra)
        if not arrays:
            return None
    if op == "matmul" and len(arrays) > 1:
        arrays = _some_outputs(arrays)
    settings = {**{k: v for k, v in extra.items() if k in _SETTINGS}, **settings}
    if not arrays and op not in ("finite_difference", "batch_norm", "linspace"):
        return None
    if op == "linspace" and not arrays:
        arrays = [np.asarray(settings.get(k, 0)) for k in ("start", "end")] + [np.asarray(settings.get("steps", 2))]
    with np.errstate(all="ignore"):
        held = tuple(hold(a, data) for a in arrays)
    return Case(op, held, data, result, settings, known)


def _empty_product(arrays: list[Array], given: Mapping[str, Any]) -> list[Array]:
    """Return the operands of a product over no terms, which has none; else nothing: an operand is missing."""
    if int(given.get("k", -1)) == 0:
        return [np.zeros((int(given.get("m", 1)), 0)), np.zeros((0, int(given.get("n", 1))))]
    return arrays[:0]


def _some_outputs(arrays: list[Array]) -> list[Array]:
    """Return operands of fewer outputs where there are very many, and a linear layer's weight as a product needs it."""
    a, b = (np.asarray(x) for x in arrays[:2])
    if a.ndim < 1 or b.ndim < 1:
        return arrays
    inner = b.shape[-2] if b.ndim > 1 else b.shape[0]
    if a.shape[-1] != inner and b.ndim == 2 and a.shape[-1] == b.shape[1]:
        b = b.T
    elif a.shape[-1] != inner and a.ndim == 2 and b.ndim >= 2 and b.shape[-1] == a.shape[1]:
        a, b = b, a.T
    a = a.reshape(-1, a.shape[-1]) if a.ndim > 2 and b.ndim <= 2 else a
    columns = b.shape[-1] if b.ndim > 1 else 1
    rows = max(1, min(_MOST_OUTPUTS // max(columns, 1), _MOST_PRODUCTS // max(columns * inner, 1)))
    if a.ndim == 2 and a.shape[0] > rows:
        a = a[:: -(-a.shape[0] // rows)].copy()
    return [a, b, *arrays[2:]]


def _inputs(inputs: Any, shapes: Any, needed: int = 1) -> tuple[list[Array], bool, dict[str, Any]]:
    """Return arrays, whether they are the very numbers, and what else was said."""
    ranks = re.search(r"(\d+)\s+ranks?", str(inputs))
    if ranks:
        shapes = [
            [int(ranks[1]), min(int(np.prod([i for i in s if isinstance(i, int)], dtype=np.int64)), 2**16)]
            for s in shapes[:1]
        ]
    if isinstance(inputs, str):
        made = make(inputs, shapes=shapes, count=needed)
        return list(made.arrays), made.known, {} if made.count is None else {"of_law": made.count}
    if not isinstance(inputs, Mapping):
        return [np.asarray(part) for part in inputs], True, {}
    shape = tuple(shapes[0]) if shapes and all(isinstance(i, int) for i in shapes[0]) else ()
    if "fill" in inputs:
        return [np.full(shape, float(inputs["fill"]))], True, dict(inputs)
    text = inputs.get("spec") or inputs.get("expression") or inputs.get("law")
    names = {k: np.asarray(_floats(v)) for k, v in inputs.items() if _is_numbers(v)}
    if text:
        if isinstance(text, Sequence) and not isinstance(text, str):
            text = ", ".join(text)
        made = make(str(text), names, shapes=shapes, count=needed)
        rest = {k: v for k, v in inputs.items() if k not in ("spec", "kind")}
        if made.count is not None:
            rest["of_law"] = made.count
        return list(made.arrays), made.known, rest
    if isinstance(inputs.get("use"), str):
        made = make(inputs["use"].replace(" times ", ", "), names, shapes=shapes)
        return list(made.arrays), made.known, dict(inputs)
    if "columns" in inputs and shape:
        return [np.broadcast_to(np.asarray(_floats(inputs["columns"])), shape)], True, dict(inputs)
    ordered = [k for k in ("x", "a", "v", "left", "y", "b", "right") if k in inputs]
    if not ordered:
        ordered = [k for k, v in inputs.items() if isinstance(v, list) and _is_numbers(v)]
    arrays = []
    for number, key in enumerate(ordered):
        value = inputs[key]
        own = tuple(shapes[min(number, len(shapes) - 1)]) if shapes else shape
        if isinstance(value, str) and value in ("ones", "zeros"):
            arrays.append(np.broadcast_to(np.float64(value == "ones"), own))
        elif isinstance(value, str):
            arrays.append(make(value, names, shapes=[own]).arrays[0])
        else:
            arrays.append(np.asarray(_floats(value)))
    return arrays, True, {k: v for k, v in inputs.items() if k not in ordered}


def _is_numbers(value: Any) -> bool:
    try:
        np.asarray(_floats(value), np.float64)
    except (TypeError, ValueError):
        return False
    return True


def _floats(value: Any) -> Any:
    return [_floats(part) for part in value] if isinstance(value, list | tuple) else float(value)


# -- what was observed ------------------------------------------------------------------------------------------------


def _observed(
    listed: Any, form: Format, op: str | None, given: Mapping[str, Any]
) -> tuple[tuple[Observed, ...], tuple[Measure, ...], tuple[tuple[str, str], ...]]:
    if isinstance(listed, Mapping):
        listed = [{"side": name, "value": value} for name, value in listed.items()]
    sides: list[Observed] = []
    measures: list[Measure] = []
    statements: list[tuple[str, str]] = []
    for entry in listed:
        name, value = str(entry.get("side", f"side {len(sides) + 1}")), entry.get("value")
        measure = _measure(name, value)
        if measure:
            measures += measure
        elif _all_numbers(value):
            told = entry.get("dtype") or _from_name(name).get("dtype")
            own = as_format(told) if told else form
            printed = read(value, own, name=name)
            if np.any(np.isinf(printed.values) & np.isfinite(np.asarray(_floats(value), np.float64))):
                own = _wider(value)  # no number of the format stated prints so
                printed = read(value, own, name=name)
            settings = {**_from_name(name), **{k: v for k, v in entry.items() if k not in ("side", "value", "dtype")}}
            sides.append(_side(name, printed, own, settings))
        elif isinstance(value, str) and re.search(r"\bflushed|all zeros|zeros?$", value):
            sides.append(_side(name, read(0, form), form))
        elif value is not None:
            statements.append((name, str(value)))
    del op, given
    return tuple(sides), tuple(measures), tuple(statements)


def _wider(value: Any) -> Format:
    """Return the format that holds printed numbers beyond the range of the one stated."""
    finite = np.abs(np.asarray(_floats(value), np.float64))
    return as_format("float32" if np.max(finite[np.isfinite(finite)]) <= as_format("float32").max else "float64")


def _from_name(name: str) -> dict[str, Any]:
    """Return what a side's name says about how it was computed."""
    settings: dict[str, Any] = {}
    if match := re.search(r"axis\s*=\s*(\d+)", name):
        settings["axis"] = int(match[1])
    if match := re.search(r"\belement\s+(\d+)", name):
        settings["index"] = int(match[1])
    if re.search(r"\bof (?:the |one |a )?column", name):
        settings["column"] = 0
    if match := re.search(r"\b(float16|float32|float64)\b", name):
        settings["dtype"] = match[1]
    if match := re.search(r"\bn\s*=\s*(\d+)", name):
        settings["n"] = int(match[1])
    return settings


def _side(name: str, printed: Printed, form: Format, settings: Mapping[str, Any] | None = None) -> Observed:
    """Return a side from what was printed."""
    return Observed(name, printed.values, printed.low, printed.high, form, settings or {}, printed.note)


def _all_numbers(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_all_numbers, value))
    return is_number(value)


def _measure(name: str, value: Any) -> list[Measure]:
    """Return the figures that a name and a value mean; none where the value is a result itself."""
    for pattern, statistic, against in _MEASURES:
        match = re.search(pattern, name.lower())
        if match is None:
            continue
        told = statistic
        if statistic == "count":
            told = f"count {match[1]}"
        numbers = value if isinstance(value, list) else [value]
        out = []
        for number in numbers:
            interval = _interval(number)
            if interval is not None:
                out.append(Measure(name, told, *interval, against))
        return out
    if isinstance(value, str) and "allclose" in value:
        return [Measure(name, "max relative", 1e-5, np.inf, "other")]
    return []


def _interval(value: Any) -> tuple[float, float] | None:
    """Return what a figure may be: ``0.2188``, ``"1e-6 to 1e-5"``, ``"about 34%"``."""
    text = str(value).strip()
    numbers = re.findall(r"\d+\.?\d*(?:[eE][-+]?\d+)?", text)
    if not numbers or re.search(r"not in|many", text):
        return None
    unit = 0.01 if "%" in text else 1.0
    found = [float(n) * unit for n in numbers]
    if len(found) >= 2:
        return min(found[:2]), max(found[:2])
    digits = len(re.sub(r"[eE].*", "", numbers[0]).replace(".", "").lstrip("0"))
    spread = abs(found[0]) * 0.5 * 10.0 ** (1 - max(digits, 1)) if "." in numbers[0] or unit != 1 else 0.0
    return found[0] - spread, found[0] + spread
