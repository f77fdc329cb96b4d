"""Settings of libraries that pin the bits of results, what they cost, and the operations that need them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

Kind = Literal["seed", "order", "precision"]


@dataclass(frozen=True, slots=True)
class Switch:
    """A setting of a library.

    Attributes
    ----------
    library : str
        As it is imported: "torch", "tensorflow", "jax", "numpy".
    setting : str
        What to write, or to set in the environment.
    kind : {"seed", "order", "precision"}
        What it pins: the random stream, the order of operations, or the format in which they are done.
    pins : str
        What it pins, in a few words.
    cost : str
        What it costs.
    source : str
        Where its library says so.
    concerns : str
        The operations and devices that it concerns; empty for all.
    """

    library: str
    setting: str
    kind: Kind
    pins: str
    cost: str
    source: str
    concerns: Literal["", "product", "convolution", "gpu product", "gpu convolution", "cpu"] = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Known:
    """An operation that its library's documentation calls nondeterministic.

    Attributes
    ----------
    library, name : str
        As in "torch" and "index_add".
    device : str
        "cuda", "cpu", or "any" for both.
    when : str
        A condition, or an empty text.
    pinned : bool
        Whether the switch makes it deterministic; otherwise it raises an error, and another operation must do.
    source : str
        Who says so.
    """

    library: str
    name: str
    device: str
    when: str
    pinned: bool
    source: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        place = "a CPU or GPU" if self.device == "any" else {"cuda": "a GPU", "cpu": "a CPU"}[self.device]
        then = "has a deterministic form" if self.pinned else "has no deterministic form: the switch makes it an error"
        return f"nondeterministic on {place}{', ' * bool(self.when)}{self.when}; {then} ({self.source})"


#: What gives float32 products again, by library.
FULL_FLOAT32: Final = {
    "torch": 'torch.set_float32_matmul_precision("highest"), and TORCH_ALLOW_TF32_CUBLAS_OVERRIDE not set to 1',
    "jax": 'jax.config.update("jax_default_matmul_precision", "highest"), or precision="highest" in the call',
    "cupy": "CUPY_TF32=0 in the environment before CuPy is imported",
    "tensorflow": "tf.config.experimental.enable_tensor_float_32_execution(False)",
    "mlx": "MLX_ENABLE_TF32=0 in the environment",
}
#: The same for all of NVIDIA's libraries.
NO_TF32: Final = "NVIDIA_TF32_OVERRIDE=0 in the environment, for all of NVIDIA's libraries"

# The documentation of torch.use_deterministic_algorithms in PyTorch 2.13, and of what it refers to.
_TORCH: Final = "PyTorch 2.13, torch.use_deterministic_algorithms"
# docs/source/notes/randomness.rst; pytorch pull request 161749 on cuBLAS.
_TORCH_NOTES: Final = "PyTorch 2.13, notes on reproducibility"
# tensorflow/python/framework/config.py and the release notes of 2.8.
_TENSORFLOW: Final = "TensorFlow 2.8 to 2.13, enable_op_determinism and release notes"
# docs/determinism.md of openxla/xla, commit 5a4bd2b; pull request 12520 on both flags.
_XLA: Final = "OpenXLA, docs/determinism.md (2024)"
# Parts of names of operations that BLAS and convolution libraries compute.
_PRODUCTS: Final = (
    "mm", "matmul", "dot", "mv", "bilinear", "einsum", "inner", "linalg", "vecdot", "matvec", "lstm", "gru",
)  # fmt: skip
_CONVOLUTIONS: Final = ("conv",)
_TF32_COST: Final = "products of float32 without matrix units, up to several times slower on GPUs that have TF32"

#: Every switch that is known here.
SWITCHES: Final[tuple[Switch, ...]] = (
    Switch(
        "torch", "torch.manual_seed(0)", "seed", "random numbers of CPU and GPU, each with a stream of its own",
        "none", _TORCH_NOTES,
    ),
    Switch(
        "torch", "torch.use_deterministic_algorithms(True)", "order",
        "atomic additions and other orders of arrival; operations without a deterministic form raise an error",
        "slower operations, more memory; also fills uninitialised memory", _TORCH,
    ),
    Switch(
        "torch", "torch.backends.cudnn.benchmark = False", "order",
        "the choice of a convolution algorithm by its measured time; False by default",
        "perhaps a slower algorithm", _TORCH_NOTES, "gpu convolution",
    ),
    Switch(
        "torch", "torch.backends.cudnn.deterministic = True", "order",
        "convolution algorithms; use_deterministic_algorithms includes it", "perhaps a slower algorithm", _TORCH_NOTES,
        "gpu convolution",
    ),
    Switch(
        "torch", "CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment", "order",
        "cuBLAS products on several streams; PyTorch asked for it from CUDA 10.2 on, until pull request 161749 (2025)",
        "24 MiB of GPU memory; with :16:8 less memory and less speed", "NVIDIA cuBLAS, Results reproducibility",
        "gpu product",
    ),
    Switch(
        "torch", "torch.set_num_threads(1)", "order", "how the CPU splits sums among threads",
        "one core; a fixed number of threads is enough on one machine", "measured: see fpsim's rules for PyTorch",
        "cpu",
    ),
    Switch(
        "torch", FULL_FLOAT32["torch"], "precision", "products in float32", _TF32_COST, "PyTorch 2.13", "gpu product",
    ),
    Switch(
        "torch", "torch.backends.cudnn.allow_tf32 = False", "precision",
        "convolutions in float32; from 2.9 also torch.backends.cudnn.conv.fp32_precision = 'ieee'", _TF32_COST,
        "PyTorch 2.13, torch.backends", "gpu convolution",
    ),
    Switch(
        "tensorflow", "tf.keras.utils.set_random_seed(1)", "seed",
        "random numbers of Python, NumPy and TensorFlow", "none", _TENSORFLOW,
    ),
    Switch(
        "tensorflow", "tf.config.experimental.enable_op_determinism()", "order",
        "all operations, or an error; it replaces TF_DETERMINISTIC_OPS and TF_CUDNN_DETERMINISTIC of older versions",
        "slower; scatter operations run on the CPU, and input pipelines lose parallelism", _TENSORFLOW,
    ),
    Switch(
        "tensorflow", FULL_FLOAT32["tensorflow"], "precision", "products in float32", _TF32_COST, "TensorFlow 2.13",
        "gpu product",
    ),
    Switch(
        "jax", "jax.random.key(0)", "seed", "all random numbers: JAX has no hidden stream", "none",
        "JAX, pseudorandom numbers",
    ),
    Switch(
        "jax", "XLA_FLAGS=--xla_gpu_exclude_nondeterministic_ops=true in the environment", "order",
        "scatter, products, convolutions and attention; compilation of select-and-scatter fails",
        "slower implementations", _XLA,
    ),
    Switch(
        "jax", "XLA_FLAGS=--xla_gpu_deterministic_ops=true in the environment", "order",
        "the same, and choices by measured time (autotuning)", "slower implementations, chosen without measuring",
        "OpenXLA, pull request 12520",
    ),
    Switch("jax", FULL_FLOAT32["jax"], "precision", "products in float32", _TF32_COST, "JAX 0.10", "gpu product"),
    Switch(
        "numpy", "numpy.random.default_rng(0)", "seed", "the numbers of this generator", "none",
        "NumPy 2.4, numpy.random",
    ),
    Switch(
        "numpy", "OPENBLAS_NUM_THREADS=1 in the environment, or threadpoolctl.threadpool_limits(1)", "order",
        "how OpenBLAS splits products among threads; NumPy's own sums use one thread",
        "one core; a fixed number of threads is enough on one machine", "measured: see fpsim's rules for NumPy",
        "product",
    ),
    Switch(
        "numpy", "MKL_CBWR=AVX2,STRICT in the environment", "order",
        "products of MKL for any number of threads and processor; without STRICT the number of threads must be fixed",
        "slower routines", "Intel oneMKL 2025.1, Reproducibility conditions", "product",
    ),
)  # fmt: skip


def _named(library: str, device: str, pinned: bool, source: str, names: str, when: str = "") -> tuple[Known, ...]:
    return tuple(Known(library, name, device, when, pinned, source) for name in names.split())


_ATTENTION: Final = "PyTorch, ATen/native/transformers/cuda/attention_backward.cu"
#: Operations that documentation lists; those of torch by their names in ATen, without a trailing underscore.
NONDETERMINISTIC: Final[tuple[Known, ...]] = (
    *_named("torch", "cuda", True, _TORCH, "index_add scatter_add convolution convolution_backward"),
    *_named(
        "torch", "cuda", True, _TORCH,
        "replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward",
    ),
    *_named("torch", "cuda", True, _TORCH, "scatter", "where the source is a tensor"),
    *_named("torch", "cuda", True, _TORCH, "max_pool3d_with_indices_backward"),
    *_named("torch", "cuda", True, _TORCH, "scatter_reduce", "with sum or mean; prod raises an error"),
    *_named("torch", "any", True, _TORCH, "index_copy"),
    *_named("torch", "any", True, _TORCH, "index_put _index_put_impl", "without accumulation, or on a CPU"),
    *_named("torch", "cpu", True, _TORCH, "put", "with accumulation"),
    *_named("torch", "cuda", False, _TORCH, "put"),
    *_named(
        "torch", "cuda", False, _TORCH,
        "avg_pool3d_backward _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward"
        " adaptive_max_pool2d_backward fractional_max_pool2d_backward fractional_max_pool3d_backward"
        " upsample_linear1d_backward upsample_bilinear2d_backward upsample_bicubic2d_backward"
        " upsample_trilinear3d_backward reflection_pad1d_backward reflection_pad2d_backward"
        " reflection_pad3d_backward nll_loss2d_forward _ctc_loss_backward histc"
        " grid_sampler_2d_backward grid_sampler_3d_backward",
    ),
    *_named("torch", "any", False, _TORCH, "max_unpool2d max_unpool3d"),
    *_named("torch", "cuda", False, _TORCH, "_embedding_bag_dense_backward", "with mode max"),
    *_named("torch", "cuda", False, _TORCH, "bincount", "with weights"),
    *_named("torch", "cuda", False, _TORCH, "median", "with indices"),
    *_named("torch", "cuda", False, _TORCH, "cumsum", "of floats"),
    *_named("torch", "cuda", True, _ATTENTION, "_scaled_dot_product_efficient_attention_backward"),
    *_named("torch", "cuda", True, _ATTENTION, "_scaled_dot_product_flash_attention_backward"),
    *_named(
        "tensorflow", "cuda", True, _TENSORFLOW,
        "math.segment_mean math.segment_prod math.segment_sum math.unsorted_segment_mean math.unsorted_segment_prod"
        " math.unsorted_segment_sum math.unsorted_segment_sqrt_n scatter_nd tensor_scatter_nd_update gather_gradient"
        " convert_to_tensor_of_IndexedSlices nn.sparse_softmax_cross_entropy_with_logits nn.ctc_loss",
    ),
    *_named(
        "jax", "cuda", True, _XLA,
        "scatter scatter_add scatter_mul dot_general conv_general_dilated dot_product_attention",
    ),
    *_named("jax", "cuda", False, _XLA, "select_and_scatter_add"),
)  # fmt: skip


def known(library: str, name: str, /, *, device: str = "cuda") -> Known | None:
    """Return what documentation says of an operation, if it calls it nondeterministic on that device.

    Parameters
    ----------
    library : str
        As it is imported.
    name : str
        As `fpsim.locate` names it: ``"aten.index_add_"``, or ``"index_add"``.
    device : str
        As in "cuda:0" or "cpu".

    Examples
    --------
    >>> from fpsim.switches import known
    >>> print(known("torch", "aten.index_add_"))
    nondeterministic on a GPU; has a deterministic form (PyTorch 2.13, torch.use_deterministic_algorithms)
    >>> known("torch", "aten.index_add_", device="cpu") is None
    True
    """
    short = name.removeprefix("aten.").rstrip("_")
    kind = device.partition(":")[0]
    for one in NONDETERMINISTIC:
        if one.library == library and one.name == short and one.device in (kind, "any"):
            return one
    return None


def relevant(library: str, name: str, kind: Kind, devices: Collection[str], /) -> tuple[Switch, ...]:
    """Return the switches of a kind that concern an operation.

    Parameters
    ----------
    library, name : str
        As `fpsim.locate` names it.
    kind : {"seed", "order", "precision"}
        What is to be pinned.
    devices : collection of str
        Where its operands are.

    Examples
    --------
    >>> [one.setting for one in relevant("torch", "aten.index_add_", "order", {"cuda:0"})]
    ['torch.use_deterministic_algorithms(True)']
    """
    gpu = any(one.startswith("cuda") for one in devices)
    product, convolution = (any(word in name for word in words) for words in (_PRODUCTS, _CONVOLUTIONS))
    concerned = {
        "product": product, "convolution": convolution, "gpu product": gpu and product,
        "gpu convolution": gpu and convolution, "cpu": not gpu, "": True,
    }  # fmt: skip
    return tuple(one for one in SWITCHES if one.library == library and one.kind == kind and concerned[one.concerns])


def table(*libraries: str) -> str:
    """Return the switches as a table in Markdown, of all libraries or of those that are named.

    Examples
    --------
    >>> print(table("jax"))  # doctest: +ELLIPSIS
    | library | switch | pins | cost |
    |---|---|---|---|
    | jax | `jax.random.key(0)` | all random numbers: JAX has no hidden stream | none |
    ...
    """
    rows = [f"| {s.library} | {_code(s.setting)} | {s.pins} | {s.cost} |" for s in _of(libraries)]
    return "\n".join(["| library | switch | pins | cost |", "|---|---|---|---|", *rows])


def _of(libraries: tuple[str, ...]) -> list[Switch]:
    return [one for one in SWITCHES if not libraries or one.library in libraries]


def _code(setting: str) -> str:
    """Mark what is to be typed, up to the words about it."""
    for word in (" in the environment", ", and ", ", or "):
        head, found, rest = setting.partition(word)
        if found:
            return f"`{head}`{found}{rest}"
    return f"`{setting}`"


__all__ = ["FULL_FLOAT32", "NONDETERMINISTIC", "NO_TF32", "SWITCHES", "Known", "Switch", "known", "relevant", "table"]
