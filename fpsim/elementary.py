"""Elementary functions of GPU libraries, to the bit: what `torch.exp` or `cupy.tanh` gives for a float32 array.

On a GPU these functions are short programs around a few approximations that the hardware offers. `evaluate` runs a model
of such a program on the CPU; `MODELS` says what each model is and how far it was verified.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim import emulation
from fpsim.errors import InputError, UnknownOrderError

__all__ = ["IMPLEMENTATIONS", "MODELS", "Model", "evaluate", "log_softmax", "softmax"]

Array = NDArray[Any]

_SUM_OF_SOFTMAX = "torch_cuda_softmax_sum"
_PROFILE = "profile:"
IMPLEMENTATIONS = {"torch.cuda": False, "cupy": True}  # whether subnormal numbers are flushed to zero


@dataclass(frozen=True, slots=True)
class Model:
    """How a function of the CUDA math library is computed.

    Attributes
    ----------
    function : str
        The name of the function.
    operands : int
        How many it takes.
    method : str
        What the model does.
    """

    function: str
    operands: int
    method: str

    def __str__(self) -> str:
        return f"{self.function}: {self.method}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects."""
        return {"function": self.function, "operands": self.operands, "method": self.method}


MODELS = {
    m.function: m
    for m in (
        Model("exp", 1, "2**f by the special-function unit, after a reduction by powers of two"),
        Model("exp2", 1, "the special-function unit"),
        Model("sigmoid", 1, "1 / (1 + exp(-x))"),
        Model("silu", 1, "x / (1 + exp(-x))"),
        Model("tanh", 1, "1 - 2 / (exp(2x) + 1) by the special-function unit, a polynomial below 0.6"),
        Model("rsqrt", 1, "the special-function unit"),
        Model("reciprocal", 1, "correctly rounded"),
        Model("sqrt", 1, "correctly rounded"),
        Model("log", 1, "a polynomial on 2/3 to 4/3"),
        Model("log1p", 1, "a polynomial on -1/4 to 1/2"),
        Model("expm1", 1, "a polynomial after a reduction by powers of two"),
        Model("erf", 1, "a polynomial below 1, 1 - 2**p(x) by the special-function unit above"),
        Model("sin", 1, "two polynomials after a reduction by pi/2"),
        Model("cos", 1, "two polynomials after a reduction by pi/2"),
        Model("log2", 1, "a polynomial on sqrt(1/2) to sqrt(2)"),
        Model("gelu", 1, "x / 2 * (1 + erf(x / sqrt(2)))"),
        Model("gelu_tanh", 1, "x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))"),
        Model("softplus", 1, "log1p(exp(x)), x above 20"),
        Model("divide", 2, "correctly rounded"),
        Model("pow", 2, "2**(y log2(x)) by two polynomials, the logarithm in two numbers"),
    )
}


def evaluate(function: str, /, *operands: Any, implementation: str = "torch.cuda") -> Array:
    """Return what a GPU library gives for a function of float32 arrays, bit for bit.

    Parameters
    ----------
    function : str
        A name in `MODELS`.
    *operands : float32 arrays of one shape
        What the library is given.
    implementation : {"torch.cuda", "cupy"} or str
        PyTorch keeps subnormal numbers; CuPy compiles its kernels to flush them to zero. ``profile:FILE`` replays what
        ``fpsim reveal --elementary`` recorded of any implementation.

    Returns
    -------
    float32 array of the same shape

    Raises
    ------
    InputError
        The operands do not fit the function, or the implementation is unknown.
    UnknownOrderError
        No model is known for the function, or a profile does not have some of the inputs.
    FileError
        There is no such profile.

    Examples
    --------
    >>> import numpy as np
    >>> from fpsim.elementary import evaluate
    >>> x = np.array([-95.0, 1.0], np.float32)
    >>> evaluate("exp", x)
    array([5.5211159e-42, 2.7182817e+00], dtype=float32)
    >>> evaluate("exp", x, implementation="cupy")
    array([0.       , 2.7182817], dtype=float32)
    """
    if implementation.startswith(_PROFILE):
        profiles: Any = importlib.import_module("fpsim.elementary_profiles")
        recorded = profiles.load(implementation.removeprefix(_PROFILE)).evaluate(function, *operands)
        return np.asarray(recorded)
    if implementation not in IMPLEMENTATIONS:
        message = f"implementation must be one of {', '.join(IMPLEMENTATIONS)}, or profile:FILE, not {implementation}"
        raise InputError(message)
    model = MODELS.get(function)
    if model is None:
        message = f"no model of {function} is known; there are models of {', '.join(MODELS)}"
        raise UnknownOrderError(message)
    arrays = [np.asarray(x, order="C") for x in operands]
    if len(arrays) != model.operands or any(x.dtype != np.float32 or x.shape != arrays[0].shape for x in arrays):
        message = f"{function} takes {model.operands} float32 array{'s of one shape' if model.operands > 1 else ''}"
        raise InputError(message)
    kernels: Any = importlib.import_module("fpsim.kernels.cuda_functions")
    out = np.empty(arrays[0].shape, np.float32)
    vectors = [x.reshape(-1) for x in arrays]
    flush = IMPLEMENTATIONS[implementation]
    if function == "divide":
        kernels.quotients(flush, *vectors, out.reshape(-1))
    elif function == "pow":
        importlib.import_module("fpsim.kernels.cuda_power").powers(flush, *vectors, out.reshape(-1))
    else:
        kernels.evaluate(getattr(kernels, function.upper()), flush, *vectors, out.reshape(-1))
    return out


def softmax(x: Any, /, strategy: Any = None, *, implementation: str = "torch.cuda") -> Array:
    """Return the softmax over the last axis as a GPU library gives it, given the order of its sums.

    Parameters
    ----------
    x : float32 array
        Finite numbers.
    strategy : str or Strategy, optional
        The order in which the exponentials of a row are added (`fpsim.reveal` finds it). By default that of PyTorch for a
        contiguous tensor, ``torch_cuda_softmax_sum``.
    implementation : {"torch.cuda", "cupy"}
        See `evaluate`.

    Returns
    -------
    float32 array of the same shape

    Raises
    ------
    InputError
        The data do not fit.
    UnknownOrderError
        The order of the sums is not known, and no strategy is given.

    Notes
    -----
    The numbers are exp(x - max x) over their sum, each step rounded (PyTorch 2.11, ``SoftMax.cu`` and
    ``PersistentSoftmax.cuh``).

    Examples
    --------
    >>> import numpy as np
    >>> from fpsim.elementary import softmax
    >>> softmax(np.array([0.0, 1.0, 2.0], np.float32))
    array([0.09003057, 0.24472848, 0.6652409 ], dtype=float32)
    """
    _, powers, total = _exponentials("softmax", x, strategy, implementation)
    return evaluate("divide", powers, np.broadcast_to(total, powers.shape), implementation=implementation)


def log_softmax(x: Any, /, strategy: Any = None, *, implementation: str = "torch.cuda") -> Array:
    """Return the logarithm of the softmax over the last axis as a GPU library gives it, given the order of its sums.

    Parameters, the array returned and errors are those of `softmax`.

    Notes
    -----
    The numbers are (x - max x) - log(sum), where the sum is that of exp(x - max x), each step rounded.

    Examples
    --------
    >>> import numpy as np
    >>> from fpsim.elementary import log_softmax
    >>> log_softmax(np.array([0.0, 1.0, 2.0], np.float32))
    array([-2.4076061 , -1.407606  , -0.40760604], dtype=float32)
    """
    shifted, _, total = _exponentials("log_softmax", x, strategy, implementation)
    return np.asarray(shifted - evaluate("log", total, implementation=implementation))


def _exponentials(name: str, x: Any, strategy: Any, implementation: str) -> tuple[Array, Array, Array]:
    """Return x - max x, its exponentials, and their sum over the last axis, which is kept."""
    values = np.ascontiguousarray(x)
    if values.dtype != np.float32 or np.ndim(x) == 0 or values.shape[-1] == 0 or not np.isfinite(values).all():
        message = f"{name} takes a float32 array of finite numbers with at least one number in a row"
        raise InputError(message)
    if strategy is None:
        if implementation != "torch.cuda":
            message = f"the order of the sums in {name} by {implementation} is not known: give its strategy"
            raise UnknownOrderError(message)
        strategy = _SUM_OF_SOFTMAX
    shifted = values - values.max(axis=-1, keepdims=True)
    powers = evaluate("exp", shifted, implementation=implementation)
    total = np.asarray(emulation.sum(powers, strategy, axis=-1, keepdims=True), np.float32)
    return shifted, powers, total
