"""Write fpsim/_elementary_errors_data.py from docs/data/elementwise-*.json: the largest errors, with their subnormal part.

python benchmarks/make_elementary_errors.py

The errors of a library are the largest over all machines; those of a model count as those of the library whose bits it has.
silu and gelu, whose errors in ulps have no bound for negative operands, are measured here, on 2**26 bit patterns: in ulps from
an operand on, absolute below it. Of torch.cuda its models are; libraries that are not installed keep the numbers they have.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim._elementary_errors_data import ACTIVATIONS
from fpsim.devices import _elementwise_inputs as inputs
from fpsim.devices.elementwise import elementwise_implementations
from fpsim.elementary import MODELS, evaluate
from fpsim.elementary_errors import exact_values, unit_of

Array = NDArray[Any]

ROOT = Path(__file__).resolve().parent.parent
LIMITS = {"silu": -87.0, "gelu": -0.5, "gelu_tanh": -0.5}
SAMPLES, BLOCK = 2**26, 2**22
FLUSHED = "flush"
MEASURED_HERE = ("numpy", "torch.cpu")


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
                small = math.inf if one["flushed"] else one["subnormal_max_ulp"]
                before, tiny = found.setdefault(name, {}).get(library, (0.5, 0.5))
                tiny = math.inf if tiny == FLUSHED else tiny
                tiny = max(tiny, small)
                found[name][library] = max(before, up(one["max_ulp"])), FLUSHED if math.isinf(tiny) else up(tiny)
    for own in found.values():  # libdevice has the bits of torch.cuda
        if "numba.cuda" in own:
            own["numba.cuda"] = own["torch.cuda"]
    return found


def activation(name: str, function: Callable[[Array], Array]) -> tuple[float, float]:
    """Return the largest error in ulps from the limit on, and the largest absolute one below it."""
    above = below = 0.0
    for start in range(0, SAMPLES, BLOCK):
        (x,) = inputs.operands(name, 1, start, start + BLOCK, SAMPLES, np.random.default_rng([5, start]))
        values, y = exact_values(name, x), np.asarray(function(x))
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
    for function, errors in measured().items():
        lines.append(f'    "{function}": {{')
        lines += [f'        "{name}": ({ulps!r}, {json.dumps(tiny)}),' for name, (ulps, tiny) in errors.items()]
        lines.append("    },")
    lines += [
        "}",
        "# In ulps from the operand on, which comes second; the largest absolute error below it.",
        "ACTIVATIONS: dict[str, dict[str, tuple[float, float, float]]] = {",
    ]
    libraries = {one.name: one.functions for one in elementwise_implementations() if one.name in MEASURED_HERE}
    for name, limit in LIMITS.items():
        own: dict[str, tuple[float, float, float]] = dict(ACTIVATIONS.get(name, {}))
        for library in MEASURED_HERE:
            if name in libraries[library]:
                above, below = activation(name, libraries[library][name])
                own[library] = above, limit, below
        above, below = activation(name, partial(evaluate, name))
        own["torch.cuda"] = above, limit, below
        lines.append(f'    "{name}": {{')
        lines += [f'        "{library}": {numbers!r},' for library, numbers in sorted(own.items())]
        lines.append("    },")
    lines += ["}", ""]
    (ROOT / "fpsim" / "_elementary_errors_data.py").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
