"""Recording of PyTorch's operations, forward and backward, below its automatic differentiation."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from fpsim._tracing import Call, Operand, Recorder, arguments_digest, bytes_digest, caller

# Results without a meaning: memory as it was.
_EMPTY: Final = frozenset(
    {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_", "set_"}
)
# Operations that write to their first operand without reading it.
_FILLING: Final = frozenset(
    {"bernoulli_", "cauchy_", "copy_", "exponential_", "fill_", "geometric_", "log_normal_", "normal_", "random_"}
    | {"uniform_", "zero_"}
)
# Operations with scratch memory behind their results, and how many results they have.
_RESULTS: Final = {
    "mkldnn_rnn_layer": 3, "_cudnn_rnn": 3, "miopen_rnn": 3, "cudnn_batch_norm": 3, "_batch_norm_with_update": 3,
    "_scaled_dot_product_flash_attention": 2, "_scaled_dot_product_efficient_attention": 2,
    "_scaled_dot_product_cudnn_attention": 2, "_flash_attention_forward": 2, "_efficient_attention_forward": 2,
}  # fmt: skip
_PLACES: Final = frozenset({"device", "pin_memory", "generator", "layout", "non_blocking", "memory_format", "out"})


def tracing(recorder: Recorder, /) -> Any:
    """Return a context in which PyTorch's operations are recorded."""
    torch = importlib.import_module("torch")
    modes = importlib.import_module("torch.utils._python_dispatch")
    lines: dict[int, str] = {}
    scratch: dict[int, Any] = {}  # by address; held, so that no other tensor gets it

    class Mode(modes.TorchDispatchMode):  # type: ignore[misc,name-defined]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return _recorded(torch, recorder, lines, scratch, func, args, kwargs or {})

    return Mode()


def tensors_of(torch: Any, value: Any, /) -> Iterator[Any]:
    """Yield the tensors in a value, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from tensors_of(torch, one)
    elif isinstance(value, dict):
        yield from tensors_of(torch, list(value.values()))


def operand(tensor: Any, /) -> Operand:
    """Return the description of a tensor."""
    strided = str(tensor.layout) == "torch.strided"
    size = tensor.element_size()
    return Operand(
        tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), str(tensor.device),
        tuple(size * step for step in tensor.stride()) if strided else (), tensor.data_ptr() % 64 if strided else 0,
    )  # fmt: skip


def host(tensor: Any, /) -> Any:
    """Return a tensor on the CPU, dense and without a history."""
    tensor = tensor.detach()
    if str(tensor.layout) != "torch.strided":
        tensor = tensor.to_dense()
    return tensor.resolve_conj().resolve_neg().cpu()


def digest(tensor: Any, /) -> bytes:
    """Return a digest of the bits of a tensor, in which all NaN are one."""
    torch = importlib.import_module("torch")
    tensor = host(tensor).contiguous()
    if tensor.is_floating_point() and (nan := tensor.isnan()).any():
        tensor = tensor.masked_fill(nan, float("nan"))
    kind = f"{tensor.dtype} {tuple(tensor.shape)} "
    return bytes_digest(kind, tensor.reshape(-1).view(torch.uint8).numpy() if tensor.numel() else b"")


def _recorded(
    torch: Any, recorder: Recorder, lines: dict[int, str], scratch: dict[int, Any], func: Any, args: Any, kwargs: Any
) -> Any:  # fmt: skip
    name = str(func._schema.name).replace("::", ".")
    short = name.rpartition(".")[2]
    if short in _EMPTY or _is_view(func):
        return func(*args, **kwargs)
    place = _place(torch, lines)
    read = {key: value for key, value in kwargs.items() if key not in _PLACES}
    given = list(tensors_of(torch, [args[1:] if short in _FILLING else args, read]))
    operands = tuple(map(operand, given))
    given = [
        one for one, what in zip(given, operands, strict=True) if not what.strides or one.data_ptr() not in scratch
    ]
    inputs = (*map(digest, given), arguments_digest(_numbers(torch, [args, read])))
    stream = _stream(torch, func, short, args, kwargs)
    before = _state(torch, stream)
    result = func(*args, **kwargs)
    state = before if before != _state(torch, stream) else b""
    results = list(tensors_of(torch, result)) or _written(torch, func, args, kwargs)
    if short in _RESULTS:
        scratch.update((one.data_ptr(), one) for one in results[_RESULTS[short] :] if one.numel())
        results = results[: _RESULTS[short]]
    call = Call(
        "torch", name, operands, inputs, tuple(map(operand, results)), tuple(map(digest, results)), *place,
        state=state,
    )  # fmt: skip
    size = sum(one.numel() * one.element_size() for one in results)
    recorder.record(call, lambda: tuple(host(one).clone() for one in results), size)
    return result


def _is_view(func: Any) -> bool:
    returns = func._schema.returns
    return bool(returns) and all(
        one.alias_info is not None and not one.alias_info.is_write for one in returns
    )  # fmt: skip


def _place(torch: Any, lines: dict[int, str]) -> tuple[str, bool]:
    """Return the user's line and whether this is a backward pass, in which it is the line of the forward operation."""
    node = torch._C._current_autograd_node()
    if node is None:
        line = caller()
        # A node of the graph gets its number just before its forward operation comes here.
        lines[torch.autograd._get_sequence_nr() - 1] = line
        return line, False
    return lines.get(node._sequence_nr(), "") or caller(), True


def _numbers(torch: Any, value: Any) -> list[Any]:
    """Return the arguments with tensors left out."""
    if isinstance(value, torch.Tensor):
        return []
    if isinstance(value, list | tuple):
        return [_numbers(torch, one) for one in value]
    if isinstance(value, dict):
        return [[key, _numbers(torch, one)] for key, one in value.items()]
    if isinstance(value, torch.dtype):
        return [str(value)]
    if isinstance(value, np.generic):
        return [value.item()]
    return [] if isinstance(value, torch.device) else [value]


def _stream(torch: Any, func: Any, short: str, args: Any, kwargs: Any) -> Any:
    """Return the generator that an operation may draw from, or the device of the default one; None for others."""
    if torch.Tag.nondeterministic_seeded not in func.tags and short not in {"random_", "random"}:
        return None
    if isinstance(given := kwargs.get("generator"), torch.Generator):
        return given
    tensors = list(tensors_of(torch, [args, kwargs]))
    return torch.device(kwargs.get("device") or (tensors[0].device if tensors else "cpu"))


def _state(torch: Any, stream: Any) -> bytes:
    if stream is None:
        return b""
    if isinstance(stream, torch.Generator):
        state = stream.get_state()
    elif stream.type == "cuda":
        state = torch.cuda.get_rng_state(stream)
    elif stream.type == "cpu":
        state = torch.get_rng_state()
    else:
        return b""
    return bytes_digest("stream", state.numpy())


def _written(torch: Any, func: Any, args: Any, kwargs: Any) -> list[Any]:
    """Return the tensors that an operation without a result has changed."""
    changed = []
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = kwargs.get(argument.name, args[place] if place < len(args) else None)
            changed += list(tensors_of(torch, value))
    return changed
