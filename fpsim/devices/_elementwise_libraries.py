"""How each library runs the elementwise functions, on arrays in the host's memory."""

from __future__ import annotations

import importlib
import operator
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim import elementary
from fpsim.devices import _elementwise_reference as reference, _libm, numba_cuda
from fpsim.errors import MissingExtraError

Array = NDArray[Any]
Call = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Elementwise:
    """A library on a device, with the elementwise functions it offers.

    Attributes
    ----------
    name : str
        Such as ``numpy`` or ``torch.cuda``.
    library, version : str
        The library and its version, with that of the C library where the functions are that one's.
    device : str
        The processor, or the GPU.
    kind : {"cpu", "gpu", "model"}
        Where it computes; ``model`` is a model of `fpsim.elementary`, computed on the processor.
    functions : mapping of str to callable
        By the names of `fpsim.devices.elementwise.FUNCTIONS`: each takes float32 vectors in the host's memory and
        returns one.
    splits : bool
        Pieces of the vectors may be given to it from several threads, with the same results.
    unavailable : str
        Why it cannot run here; empty where it can.
    """

    name: str
    library: str
    version: str = ""
    device: str = ""
    kind: str = "cpu"
    functions: Mapping[str, Call] = field(default_factory=dict)
    splits: bool = False
    unavailable: str = ""

    @property
    def available(self) -> bool:
        """Whether it can run here."""
        return not self.unavailable

    def __str__(self) -> str:
        if self.unavailable:
            return f"{self.name}: not available, {self.unavailable}"
        return f"{self.name}: {self.library} {self.version} on {self.device}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects."""
        return {
            "name": self.name,
            "library": self.library,
            "version": self.version,
            "device": self.device,
            "kind": self.kind,
            "functions": list(self.functions),
            "unavailable": self.unavailable,
        }


def processor() -> str:
    """Return the model of the host's processor and the widest vectors that NumPy uses on it."""
    model = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        lines = information.read_text(encoding="utf-8").splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    features = getattr(importlib.import_module("numpy._core._multiarray_umath"), "__cpu_features__", {})
    widest = next((text for text, names in _VECTORS.items() if any(features.get(name) for name in names)), "")
    return f"{model}, {widest}" if widest else model


# NumPy 2.4 renamed the groups of features that it dispatches on.
_VECTORS = {"AVX-512": ("AVX512_SKX", "X86_V4"), "AVX2": ("AVX2", "X86_V3"), "NEON": ("ASIMD", "NEON")}


def _quiet(function: Call) -> Call:
    def run(*operands: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(*operands))

    return run


def _missing(name: str, library: str, kind: str, error: Exception) -> Elementwise:
    if isinstance(error, ModuleNotFoundError):
        reason = f"{library} is not installed"
    else:
        first = (str(error).strip().splitlines() or [""])[0][:120]
        reason = f"{library} found no usable device ({type(error).__name__}: {first})"
    return Elementwise(name, library, kind=kind, unavailable=reason)


def numpy_elementwise() -> Elementwise:
    """Return NumPy's float32 loops; its rsqrt is ``1 / sqrt(x)``, its softplus ``logaddexp(x, 0)``."""
    functions: dict[str, Call] = {
        "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "sqrt": np.sqrt,
        "multiply_add": lambda a, b, c: a * b + c,
        "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log1p": np.log1p,
        "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "pow": np.power,
        "rsqrt": lambda x: 1 / np.sqrt(x),
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "silu": lambda x: x / (1 + np.exp(-x)),
        "softplus": lambda x: np.logaddexp(x, np.float32(0)),
        "reciprocal": np.reciprocal,
    }  # fmt: skip
    quiet = {name: _quiet(function) for name, function in functions.items()}
    return Elementwise("numpy", "NumPy", np.__version__, processor(), functions=quiet, splits=True)


def numba_elementwise() -> Elementwise:
    """Return the loops that numba compiles for this processor, which call the C library's float32 functions."""
    numba: Any = importlib.import_module("numba")
    kernels: Any = importlib.import_module("fpsim.kernels.elementwise")
    library = "with SVML" if numba.config.USING_SVML else _libm.version()

    def call(function: reference.Function) -> Call:
        def run(*operands: Array) -> Array:
            out = np.empty_like(operands[0])
            if function.operands == 3:
                kernels.multiply_add(*operands, out)
            else:
                (kernels.apply, kernels.apply2)[function.operands - 1](function.code, *operands, out)
            return out

        return run

    functions = {name: call(f) for name, f in reference.FUNCTIONS.items() if name != "fma" and not f.composed}

    def fused(a: Array, b: Array, c: Array) -> Array:
        out = np.empty_like(a)
        kernels.fma(a, b, c, out)
        return out

    functions["fma"] = fused
    version = f"{numba.__version__}, {library}"
    return Elementwise("numba", "numba", version, processor(), functions=functions, splits=True)


def libm_elementwise() -> Elementwise:
    """Return the float32 functions of the C library."""
    try:
        functions = {name: _libm.function(symbol) for name, symbol in _libm.NAMES.items()}
    except MissingExtraError as error:
        return Elementwise("libm", "libm", unavailable=str(error))
    return Elementwise("libm", "libm", _libm.version(), processor(), functions=functions, splits=True)


def model_elementwise(implementation: str) -> Elementwise:
    """Return the models of `fpsim.elementary` of one library."""

    def call(function: str) -> Call:
        return lambda *x: elementary.evaluate(function, *x, implementation=implementation)

    functions = {name: call(name) for name in elementary.MODELS if name in reference.FUNCTIONS}
    name = f"{implementation} (model)"
    return Elementwise(name, "fpsim.elementary", "", implementation, "model", functions, splits=True)


def numba_cuda_elementwise() -> Elementwise:
    """Return kernels compiled by numba for the GPU, which call NVIDIA's libdevice."""
    like = numba_cuda.implementations()[0]  # knows whether kernels can run here
    if like.unavailable:
        return Elementwise("numba.cuda", like.library, kind="gpu", unavailable=like.unavailable)
    cuda: Any = importlib.import_module("numba.cuda")

    def call(kernel: Any) -> Call:
        def run(*operands: Array) -> Array:
            out = cuda.device_array(operands[0].shape, np.float32)
            kernel[(operands[0].size + 255) // 256, 256](*(cuda.to_device(x) for x in operands), out)
            return np.asarray(out.copy_to_host())

        return run

    functions = {name: call(kernel) for name, kernel in cuda_kernels(cuda).items()}
    return Elementwise("numba.cuda", like.library, like.version, like.device, "gpu", functions)


def cuda_kernels(cuda: Any) -> dict[str, Any]:
    """Return one kernel for each function: each thread computes one element."""
    d: Any = importlib.import_module("numba.cuda.libdevice")
    exp, one = d.expf, np.float32(1)

    def unary(f: Any) -> Any:
        def kernel(x: Any, out: Any) -> None:
            i = cuda.grid(1)
            if i < x.size:
                out[i] = f(x[i])

        return cuda.jit(kernel)

    def binary(f: Any) -> Any:
        def kernel(x: Any, y: Any, out: Any) -> None:
            i = cuda.grid(1)
            if i < x.size:
                out[i] = f(x[i], y[i])

        return cuda.jit(kernel)

    def fma(x: Any, y: Any, z: Any, out: Any) -> None:
        i = cuda.grid(1)
        if i < x.size:
            out[i] = d.fmaf(x[i], y[i], z[i])

    def multiply_add(x: Any, y: Any, z: Any, out: Any) -> None:
        i = cuda.grid(1)
        if i < x.size:
            out[i] = x[i] * y[i] + z[i]

    def sigmoid(x: Any, out: Any) -> None:
        i = cuda.grid(1)
        if i < x.size:
            out[i] = one / (one + exp(-x[i]))

    one_operand = {
        "sqrt": d.sqrtf, "exp": d.expf, "exp2": d.exp2f, "expm1": d.expm1f, "log": d.logf, "log2": d.log2f,
        "log1p": d.log1pf, "sin": d.sinf, "cos": d.cosf, "tanh": d.tanhf, "erf": d.erff, "rsqrt": d.rsqrtf,
    }  # fmt: skip
    two_operands = {
        "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
        "pow": d.powf,
    }  # fmt: skip
    others = {"fma": fma, "multiply_add": multiply_add, "sigmoid": sigmoid}
    kernels = {name: unary(f) for name, f in one_operand.items()}
    kernels |= {name: binary(f) for name, f in two_operands.items()}
    return kernels | {name: cuda.jit(kernel) for name, kernel in others.items()}


def _torch_elementwise(name: str, device: str) -> Elementwise:
    kind = "gpu" if device == "cuda" else "cpu"
    try:
        torch: Any = importlib.import_module("torch")
        if device == "cuda" and not torch.cuda.is_available():
            return Elementwise(name, "PyTorch", torch.__version__, kind=kind, unavailable="torch finds no CUDA device")
        label = torch.cuda.get_device_name() if device == "cuda" else processor()
    except Exception as error:  # noqa: BLE001
        return _missing(name, "torch", kind, error)

    def call(function: Call) -> Call:
        def run(*operands: Array) -> Array:
            loaded = [torch.from_numpy(x).to(device) for x in operands]
            return np.asarray(function(*loaded).cpu().numpy())

        return run

    names = "add subtract multiply divide sqrt exp exp2 expm1 log log2 log1p sin cos tanh erf sigmoid rsqrt pow"
    functions = {operation: call(getattr(torch, operation)) for operation in f"{names} reciprocal".split()}
    functions["multiply_add"] = call(lambda a, b, c: a * b + c)
    functions |= {
        operation: call(getattr(torch.nn.functional, operation)) for operation in ("silu", "gelu", "softplus")
    }
    functions["gelu_tanh"] = call(lambda x: torch.nn.functional.gelu(x, approximate="tanh"))
    return Elementwise(name, "PyTorch", torch.__version__, label, kind, functions)


def torch_cpu_elementwise() -> Elementwise:
    """Return PyTorch on the processor."""
    return _torch_elementwise("torch.cpu", "cpu")


def torch_cuda_elementwise() -> Elementwise:
    """Return PyTorch on the GPU."""
    return _torch_elementwise("torch.cuda", "cuda")


def cupy_elementwise() -> Elementwise:
    """Return CuPy's ufuncs, and ``a*b + c`` as one `cupy.fuse` kernel."""
    name, library = "cupy", "CuPy"
    try:
        cupy: Any = importlib.import_module("cupy")
        special: Any = importlib.import_module("cupyx.scipy.special")
        rsqrt = importlib.import_module("cupyx").rsqrt
        device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    except Exception as error:  # noqa: BLE001
        return _missing(name, library, "gpu", error)

    def call(function: Call) -> Call:
        def run(*operands: Array) -> Array:
            return np.asarray(cupy.asnumpy(function(*(cupy.asarray(x) for x in operands))))

        return run

    names = "add subtract multiply divide sqrt exp exp2 expm1 log log2 log1p sin cos tanh reciprocal"
    functions = {operation: call(getattr(cupy, operation)) for operation in names.split()}
    functions["pow"] = call(cupy.power)
    functions["erf"] = call(special.erf)
    functions["sigmoid"] = call(special.expit)
    functions["rsqrt"] = call(rsqrt)
    functions["multiply_add"] = call(cupy.fuse(lambda a, b, c: a * b + c))
    return Elementwise(name, library, cupy.__version__, device, "gpu", functions)


def _jax_elementwise(name: str, kind: str) -> Elementwise:
    try:
        jax: Any = importlib.import_module("jax")
        device = jax.devices(kind)[0]
    except Exception as error:  # noqa: BLE001
        return _missing(name, "JAX", kind, error)
    jnp, lax = jax.numpy, jax.lax

    def call(function: Call) -> Call:
        compiled = jax.jit(function)

        def run(*operands: Array) -> Array:
            return np.asarray(compiled(*(jax.device_put(x, device) for x in operands)))

        return run

    names = "add subtract multiply divide sqrt exp exp2 expm1 log log2 log1p sin cos tanh"
    functions = {operation: call(getattr(jnp, operation)) for operation in names.split()}
    functions["pow"] = call(jnp.power)
    functions["erf"] = call(lax.erf)
    functions["sigmoid"] = call(lax.logistic)
    functions["rsqrt"] = call(lax.rsqrt)
    functions["multiply_add"] = call(lambda a, b, c: a * b + c)
    functions["reciprocal"] = call(jnp.reciprocal)
    functions["silu"], functions["softplus"] = call(jax.nn.silu), call(jax.nn.softplus)
    functions["gelu"] = call(lambda x: jax.nn.gelu(x, approximate=False))
    functions["gelu_tanh"] = call(lambda x: jax.nn.gelu(x, approximate=True))
    label = processor() if kind == "cpu" else str(device.device_kind)
    return Elementwise(name, "JAX", jax.__version__, label, kind, functions)


def jax_cpu_elementwise() -> Elementwise:
    """Return JAX on the processor, each function compiled by XLA."""
    return _jax_elementwise("jax.cpu", "cpu")


def jax_gpu_elementwise() -> Elementwise:
    """Return JAX on the GPU, each function compiled by XLA."""
    return _jax_elementwise("jax.gpu", "gpu")
