"""fpsim: what floating-point reductions give on CPUs and GPUs, to the bit."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from fpsim import (
        bounds as bounds,
        elementary as elementary,
        exact as exact,
        fixed_point as fixed_point,
        formats as formats,
        microscaling as microscaling,
        profiles as profiles,
        split_products as split_products,
        study as study,
        testing as testing,
    )
    from fpsim.checking import Check as Check, check as check
    from fpsim.decisions import Decision as Decision, decision as decision
    from fpsim.emulation import (
        cumsum as cumsum,
        dot as dot,
        matmul as matmul,
        mean as mean,
        norm as norm,
        prod as prod,
        std as std,
        sum as sum,
        var as var,
    )
    from fpsim.errors import (
        FileError as FileError,
        FpsimError as FpsimError,
        InputError as InputError,
        MissingExtraError as MissingExtraError,
        StrategyError as StrategyError,
        UnknownOrderError as UnknownOrderError,
    )
    from fpsim.explanation import Explanation as Explanation, explain as explain
    from fpsim.formats import Format as Format, round_to as round_to
    from fpsim.gradients import GradientCheck as GradientCheck, gradient_check as gradient_check
    from fpsim.invariances import Invariance as Invariance, invariance as invariance
    from fpsim.laws import Law as Law, law as law
    from fpsim.locating import Located as Located, locate as locate
    from fpsim.measuring_precision import Precision as Precision, precision as precision
    from fpsim.prediction import Prediction as Prediction, predict as predict
    from fpsim.revealing import Revealed as Revealed, reveal as reveal
    from fpsim.revealing_kernels import RevealedKernel as RevealedKernel, reveal_kernel as reveal_kernel
    from fpsim.rules import RevealedRule as RevealedRule, reveal_rule as reveal_rule
    from fpsim.spreads import Spread as Spread, spread as spread
    from fpsim.strategies import Strategy as Strategy, strategy as strategy
    from fpsim.tolerances import Tolerance as Tolerance, tolerance as tolerance

# Public name -> module that defines it. Nothing below is imported before its first use, so that `import fpsim` costs
# milliseconds and pulls in neither numba nor numpy.
_HOME = {
    "FileError": "errors",
    "FpsimError": "errors",
    "InputError": "errors",
    "MissingExtraError": "errors",
    "StrategyError": "errors",
    "UnknownOrderError": "errors",
    "Format": "formats",
    "round_to": "formats",
    "Strategy": "strategies",
    "strategy": "strategies",
    "Check": "checking",
    "check": "checking",
    "Decision": "decisions",
    "decision": "decisions",
    "Explanation": "explanation",
    "explain": "explanation",
    "cumsum": "emulation",
    "dot": "emulation",
    "matmul": "emulation",
    "mean": "emulation",
    "norm": "emulation",
    "prod": "emulation",
    "std": "emulation",
    "sum": "emulation",
    "var": "emulation",
    "Invariance": "invariances",
    "invariance": "invariances",
    "Located": "locating",
    "locate": "locating",
    "Law": "laws",
    "law": "laws",
    "Revealed": "revealing",
    "reveal": "revealing",
    "RevealedKernel": "revealing_kernels",
    "reveal_kernel": "revealing_kernels",
    "RevealedRule": "rules",
    "reveal_rule": "rules",
    "Tolerance": "tolerances",
    "tolerance": "tolerances",
    "Precision": "measuring_precision",
    "precision": "measuring_precision",
    "GradientCheck": "gradients",
    "gradient_check": "gradients",
    "Spread": "spreads",
    "spread": "spreads",
    "Prediction": "prediction",
    "predict": "prediction",
}
_MODULES = frozenset(
    {"bounds", "elementary", "exact", "fixed_point", "formats", "microscaling", "profiles", "split_products", "study"}
    | {"testing"}
)

__all__ = ["__version__", *sorted(_HOME), *sorted(_MODULES)]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"fpsim.{name}")
    if name in _HOME:
        value = getattr(importlib.import_module(f"fpsim.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    message = f"module 'fpsim' has no attribute {name!r}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    return sorted(__all__)
