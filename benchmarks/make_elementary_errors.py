"""Write fpsim/_elementary_errors_data.py from docs/data/elementwise-*.json: the largest errors, with their subnormal part.

python benchmarks/make_elementary_errors.py

The errors of a library are the largest over all machines; those of a model count as those of the library whose bits it has.
Of silu and gelu, whose errors in ulps have no bound for negative operands, the models of torch.cuda are measured here, on
2**26 bit patterns: in ulps from an operand on, absolute below it.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from fpsim.devices import _elementwise_inputs as inputs
from fpsim.elementary import MODELS, evaluate
from fpsim.elementary_errors import exact_values, unit_of

ROOT = Path(__file__).resolve().parent.parent
LIMITS = {"silu": -87.0, "gelu": -0.5, "gelu_tanh": -0.5}
SAMPLES, BLOCK = 2**26, 2**22
FLUSHED = "flush"
#: Of an earlier sample of 2**26 inputs, which a later one does not show, where a flushed result hides it.
EARLIER = {("exp2", "jax.cpu"): 67.644}
_EDGE = 1000.0  # a larger error is that of a result written as zero


def up(value: float) -> float:
    """Return a number rounded up to three decimals."""
    return math.ceil(value * 1000 - 1e-9) / 1000


def measured() -> dict[str, dict[str, tuple[float, Any]]]:
    """Return the largest errors of each function by library: in ulps, and where an operand or result is subnormal."""
    found: dict[str, dict[str, tuple[float, Any]]] = {}
    for path in sorted((ROOT / "docs" / "data").glob("elementwise-*.json")):
        for function in json.loads(path.read_text(encoding="utf-8"))["functions"]:
            name = function["function"]
            if name not in MODELS or name in LIMITS:
                continue
            for one in function["errors"]:
                library = one["implementation"].removesuffix(" (model)")
                ulps = one["max_ulp"] if one["max_ulp"] < _EDGE else EARLIER[name, library]
                small = math.inf if one["flushed"] else one["subnormal_max_ulp"]
                before, tiny = found.setdefault(name, {}).get(library, (0.5, 0.5))
                tiny = math.inf if tiny == FLUSHED else tiny
                tiny = max(tiny, small)
                found[name][library] = max(before, up(ulps)), FLUSHED if math.isinf(tiny) else up(tiny)
    for own in found.values():  # libdevice has the bits of torch.cuda
        if "numba.cuda" in own:
            own["numba.cuda"] = own["torch.cuda"]
    return found


def activation(name: str) -> tuple[float, float]:
    """Return the largest error in ulps from the limit on, and the largest absolute one below it."""
    above = below = 0.0
    for start in range(0, SAMPLES, BLOCK):
        (x,) = inputs.operands(name, 1, start, start + BLOCK, SAMPLES, np.random.default_rng([5, start]))
        values, y = exact_values(name, x), evaluate(name, x)
        with np.errstate(all="ignore"):
            error = np.where(np.isfinite(y) & np.isfinite(values), np.abs(y.astype(np.float64) - values), 0.0)
            normal = (np.abs(values) >= 2.0**-126) & (np.abs(x) >= 2.0**-126) & (x >= LIMITS[name])
            above = max(above, float(np.where(normal, error / unit_of(values), 0).max()))
            below = max(below, float(np.where(x < LIMITS[name], error, 0).max()))
    return up(above), float(f"{below * 1.001:.3g}")


def main() -> None:
    """Write the module."""
    lines = [
        '"""The largest errors of elementary functions: written by benchmarks/make_elementary_errors.py, do not edit."""',
        "",
        "# Of each library: in ulps of the exact value, and the same where an operand or the result is subnormal.",
        "MEASURED: dict[str, dict[str, tuple[float, float | str]]] = {",
    ]
    for function, own in measured().items():
        lines.append(f'    "{function}": {{')
        lines += [f'        "{name}": ({ulps!r}, {json.dumps(tiny)}),' for name, (ulps, tiny) in own.items()]
        lines.append("    },")
    lines += [
        "}",
        "# Of torch.cuda: in ulps from the operand on, which comes second; the largest absolute error below it.",
        "ACTIVATIONS: dict[str, tuple[float, float, float]] = {",
    ]
    for name, limit in LIMITS.items():
        above, below = activation(name)
        lines.append(f'    "{name}": ({above!r}, {limit!r}, {below!r}),')
    lines += ["}", ""]
    (ROOT / "fpsim" / "_elementary_errors_data.py").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
