"""Mechanisms of elementwise functions: approximate division, exp2(y log2 x), narrow intermediates."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from fpsim.errors import InputError
from fpsim.explaining.elementary import rounded_correctly
from fpsim.explaining.formulas import native
from fpsim.explaining.mechanisms import Prediction, mechanism
from fpsim.explaining.observation import Case, stored
from fpsim.explaining.operations import ELEMENTWISE, reference
from fpsim.formats import round_to

_ALL = " ".join(sorted(ELEMENTWISE))
_NUMPY: dict[str, Any] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log1p": np.log1p,
    "log10": np.log10, "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh, "sinh": np.sinh, "cosh": np.cosh,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sqrt": np.sqrt, "cbrt": np.cbrt, "abs": np.abs,
    "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x, "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}  # fmt: skip


def _pair(case: Case, kind: Any) -> tuple[Any, Any]:
    if case.op == "reciprocal":
        return np.ones_like(case.x, kind), case.x.astype(kind)
    a = case.x.astype(kind)
    return a, (case.inputs[1] if len(case.inputs) > 1 else case.x).astype(kind)


@mechanism(
    "correct rounding", "rounding", _ALL, switch="", foresees="one side is the exact value, correctly rounded",
)  # fmt: skip
def _correctly_rounded(case: Case) -> Iterator[Prediction]:
    exact = rounded_correctly(case)

    def compute() -> Any:
        if exact is not None:
            return exact
        found = reference(case)
        if found is None:
            message = "the exact value is not known"
            raise InputError(message)
        return stored(case, found.value)

    if exact is not None or case.x.size <= 4096:
        yield Prediction("the exact value, correctly rounded", 0, compute)


@mechanism(
    "elementary-function error", "rounding", " ".join(_NUMPY), rank=2,
    switch="one mathematical library on both sides; versions and instruction sets differ by an ulp",
    foresees="single elements that differ by one or two ulps",
)  # fmt: skip
def _library_here(case: Case) -> Iterator[Prediction]:
    kind = native(case.result)

    def compute() -> Any:
        with np.errstate(all="ignore"):
            return stored(case, _NUMPY[case.op](case.x.astype(kind)))

    yield Prediction(f"NumPy's {case.op} in {np.dtype(kind).name} on this machine", 0, compute)
    if case.result.precision > 24:

        def narrow() -> Any:
            with np.errstate(all="ignore"):
                return _NUMPY[case.op](case.x.astype(np.float32)).astype(np.float64)

        yield Prediction(f"{case.op} in float32 (default dtype)", 12, narrow)


@mechanism(
    "approximate division", "rounding", "divide reciprocal", rank=3,
    switch="IEEE division: no -use_fast_math or -prec-div=false; xla_cpu_enable_fast_math=false",
    foresees="quotients an ulp off, such as a/a = 1 - 2**-24",
)  # fmt: skip
def _approximate_division(case: Case) -> Iterator[Prediction]:
    kind = native(case.result)

    def product() -> Any:
        a, b = _pair(case, kind)
        with np.errstate(all="ignore"):
            return stored(case, a * (kind(1) / b))

    yield Prediction("a times the rounded 1/b", 0, product)
    for number, bits in enumerate((11, 12, 13, 14, 23)):
        for steps in (1, 2):
            for lanes in (0, 4, 8, 16, 32):
                told = f"a seed of {bits} bits and {steps} Newton step{'s' * (steps > 1)}"
                told += f" in vectors of {lanes}, true division in the tail" if lanes else ""
                yield Prediction(told, number + steps + bool(lanes), partial(_newton, case, kind, bits, steps, lanes))


def _newton(case: Case, kind: Any, bits: int, steps: int, lanes: int) -> Any:
    a, b = _pair(case, kind)
    with np.errstate(all="ignore"):
        true = a / b
        mantissa, exponent = np.frexp(1 / b.astype(np.float64))
        short = np.ldexp(np.floor(np.ldexp(mantissa, bits)) / 2.0**bits, exponent)
        low = np.where(short == 1 / b.astype(np.float64), short * (1 - 2.0 ** -(bits - 0)), short)
        y = low.astype(kind)
        for _ in range(steps):
            y = (y * (kind(2) - b * y)).astype(kind)
        out = a * y
        if lanes:
            flat, exact = np.ravel(out).copy(), np.ravel(true)
            body = flat.size // lanes * lanes
            flat[body:] = exact[body:]
            out = flat.reshape(np.shape(out))
        return stored(case, out)


@mechanism(
    "power by exp2(y*log2(x))", "fault", "pow", rank=2,
    switch="multiply x by itself for whole exponents", foresees="NaN for negative bases",
)  # fmt: skip
def _power_by_logarithm(case: Case) -> Iterator[Prediction]:
    kind = native(case.result)

    def compute() -> Any:
        y = case.inputs[1] if len(case.inputs) > 1 else np.asarray(case.get("exponent", 2))
        with np.errstate(all="ignore"):
            return stored(case, np.exp2(y.astype(kind) * np.log2(case.x.astype(kind))))

    yield Prediction("exp2(y*log2(x))", 0, compute)


@mechanism(
    "narrow intermediate", "reduced", " ".join(_NUMPY), rank=6,
    switch="compute in the format of the data (no autocast)", foresees="results that a narrower format holds",
)  # fmt: skip
def _narrow_function(case: Case) -> Iterator[Prediction]:
    for number, name in enumerate(("float16", "bfloat16")):
        if case.result.precision >= 24:

            def compute(name: str = name) -> Any:
                with np.errstate(all="ignore"):
                    x = np.asarray(round_to(np.asarray(case.x, np.float64), name))
                    return np.asarray(round_to(_NUMPY[case.op](x), name))

            yield Prediction(f"{case.op} in {name}", number, compute)
