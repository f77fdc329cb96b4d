"""Which operation a description in words names."""

from __future__ import annotations

import re
from typing import Final

#: Words of an operation's description, and its name; the first that fits counts.
_OPERATIONS: Final = (
    (r"finite diff|gradcheck|numerical grad", "finite_difference"),
    (r"cumsum|cumulative sum|prefix sum|scan\b", "cumsum"),
    (r"cumprod|cumulative prod", "cumprod"),
    (r"all-?reduce|reduce-?scatter|mpi global sum", "all_reduce"),
    (r"custom red|lambda red", "reduce"),
    (r"log[-_ ]?softmax", "log_softmax"),
    (r"softmax", "softmax"),
    (r"log[-_ ]?sum[-_ ]?exp", "logsumexp"),
    (r"rms[-_ ]?norm|root mean square", "rms_norm"),
    (r"layer[-_ ]?norm", "layer_norm"),
    (r"instance[-_ ]?norm|group[-_ ]?norm", "instance_norm"),
    (r"(?:running|moving)[-_ ](?:var|mean)|batch[-_ ]?norm", "batch_norm"),
    (r"rolling[-_ ]var", "rolling_var"),
    (r"distance|cdist|pdist", "distance"),
    (r"conv", "conv"),
    (r"linspace|integer ramp", "linspace"),
    (r"matmul|gemm|gemv|mat(?:rix)?[- ]?(?:mul|vec|prod)|\blinear\b|dense|batched", "matmul"),
    (r"\bdot\b|inner product|sum of products?$", "dot"),
    (r"\bsum|atomics|nansum|add\.reduce", "sum"),
    (r"\bmean\b|average", "mean"),
    (r"\bstd\b|standard dev", "std"),
    (r"\bvar\b|variance", "var"),
    (r"norm\b", "norm"),
    (r"\bprod", "prod"),
    (r"reciprocal|1/x", "reciprocal"),
    (r"divi|a/a|quotient", "divide"),
    (r"compar|less than", "compare"),
)
#: Elementary functions.
ELEMENTARY: Final = (
    "exp2", "expm1", "exp", "log2", "log1p", "log10", "log", "sin", "cos", "tan", "tanh", "sinh", "cosh", "asin", "acos",
    "atan", "erf", "sigmoid", "rsqrt", "sqrt", "cbrt", "pow", "gelu", "gelu_tanh", "silu", "softplus", "gamma", "lgamma", "abs",
)  # fmt: skip


def operation_name(text: str, /) -> str | None:
    """Return the operation that a description names, or None."""
    text = text.strip().lower()
    for pattern, name in _OPERATIONS[:18]:
        if re.search(pattern, text):
            return name
    for name in sorted(ELEMENTARY, key=len, reverse=True):  # tanh before tan
        if re.search(rf"\b{name}", text):
            return name
    for pattern, name in _OPERATIONS[18:]:
        if re.search(pattern, text):
            return name
    return None
