"""Recording of NumPy's operations: an array type that reports what is done with it."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fpsim._tracing import Call, Operand, Recorder, arguments_digest, caller, digest, standard, text_digest

_active: Recorder | None = None

# Functions whose results are new arrays, and which NumPy does not hand to the type of an operand.
_CREATING = (
    "array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "zeros", "ones", "full", "empty", "arange",
    "linspace", "eye", "identity", "fromiter", "frombuffer", "load", "loadtxt",
)  # fmt: skip
_METHODS = (
    "sum", "prod", "mean", "var", "std", "cumsum", "cumprod", "dot", "trace", "clip", "round", "max", "min", "argmax",
    "argmin", "argsort", "searchsorted", "take", "choose", "compress",
)  # fmt: skip
_IN_PLACE = {
    "iadd": np.add, "isub": np.subtract, "imul": np.multiply, "itruediv": np.true_divide, "ipow": np.power,
    "imod": np.remainder, "ifloordiv": np.floor_divide,
}  # fmt: skip
_OWN = str(Path(__file__).parent)
_NOT_STREAMS = frozenset({"bit_generator", "bytes", "spawn"})


class Traced(np.ndarray[Any, Any]):
    """An array whose operations are recorded. Floats that NumPy returns become such arrays without dimensions."""

    _scalar = False

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", ())
        settings = {name: plain(value) for name, value in kwargs.items()}
        if out:
            settings["out"] = tuple(_base(one) for one in out)
        name = ufunc.__name__ + ("" if method == "__call__" else f".{method}")
        taken = [_base(one) if method == "at" and place == 0 else plain(one) for place, one in enumerate(inputs)]
        result = _recorded(name, getattr(ufunc, method), taken, settings, changed=taken[0] if method == "at" else None)
        if out:
            return out[0] if len(out) == 1 else tuple(
                given if given is not None else new for given, new in zip(out, result, strict=True)
            )  # fmt: skip
        return result

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        out = kwargs.get("out")
        name = f"{func.__module__.removeprefix('numpy').lstrip('.')}.{func.__name__}".lstrip(".")
        changed = _base(args[0]) if func.__name__ in {"copyto", "put", "place", "putmask", "fill_diagonal"} else None
        taken = [changed, *map(plain, args[1:])] if changed is not None else [plain(one) for one in args]
        settings = {key: _base(value) if key == "out" else plain(value) for key, value in kwargs.items()}
        if func.__name__ in {"empty_like", "shares_memory", "may_share_memory"}:
            return wrap(func(*taken, **settings))
        result = _recorded(name, func, taken, settings, changed=changed)
        return out if isinstance(out, np.ndarray) else result

    def __getitem__(self, key: Any) -> Any:
        taken = plain(key)
        parts = taken if isinstance(taken, tuple) else (taken,)
        if any(isinstance(part, np.ndarray | list) for part in parts):
            index = [np.asarray(part) if isinstance(part, list) else part for part in parts]
            return _recorded("getitem", lambda x, *_: x[taken], [self.view(np.ndarray), *index], {})
        return wrap(self.view(np.ndarray)[taken])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.view(np.ndarray)[plain(key)] = plain(value)

    def __getattr__(self, name: str) -> Any:
        if self._scalar and not name.startswith("__"):
            return getattr(plain(self), name)
        message = f"'numpy.ndarray' object has no attribute {name!r}"
        raise AttributeError(message)

    def __hash__(self) -> int:  # type: ignore[override]
        if not self._scalar:
            message = "unhashable type: 'numpy.ndarray'"
            raise TypeError(message)
        return hash(self.item())

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.item(), digits)


def _method(name: str) -> Callable[..., Any]:
    function = getattr(np.ndarray, name)

    @functools.wraps(function)
    def called(self: Traced, *args: Any, **kwargs: Any) -> Any:
        settings = {key: _base(value) if key == "out" else plain(value) for key, value in kwargs.items()}
        result = _recorded(name, function, [self.view(np.ndarray), *map(plain, args)], settings)
        return kwargs["out"] if isinstance(kwargs.get("out"), np.ndarray) else result

    return called


def _in_place(ufunc: Any) -> Callable[..., Any]:
    # NumPy's scalars do not change in place: `x += 1` makes another one.
    return lambda self, other: ufunc(self, other) if self._scalar else ufunc(self, other, out=(self,))


for _name in _METHODS:
    setattr(Traced, _name, _method(_name))
for _name, _ufunc in _IN_PLACE.items():
    setattr(Traced, f"__{_name}__", _in_place(_ufunc))


def plain(value: Any, /) -> Any:
    """Return what a recorded value stands for: an array, a scalar, or a container of them."""
    if isinstance(value, Traced):
        return value.view(np.ndarray)[()] if value._scalar else value.view(np.ndarray)
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(plain(one) for one in value)
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, slice):
        return slice(plain(value.start), plain(value.stop), plain(value.step))
    return value


def wrap(value: Any, /) -> Any:
    """Return a result as one whose operations are recorded."""
    if type(value) is np.ndarray:
        return value.view(Traced)
    if isinstance(value, np.inexact):
        scalar = np.asarray(value).view(Traced)
        scalar._scalar = True
        return scalar
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(wrap, value))
    if isinstance(value, list | tuple):
        return type(value)(wrap(one) for one in value)
    return value


def _base(value: Any) -> Any:
    """Return the array itself, also where it has no dimensions, to be written to."""
    if isinstance(value, tuple):
        return tuple(_base(one) for one in value)
    return value.view(np.ndarray) if isinstance(value, Traced) else value


def arrays_of(value: Any, /) -> Iterator[NDArray[Any]]:
    """Yield the arrays in a value, in order."""
    if isinstance(value, np.ndarray | np.generic):
        yield np.asarray(value)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from arrays_of(one)
    elif isinstance(value, dict):
        yield from arrays_of(list(value.values()))


def operand(array: NDArray[Any], /) -> Operand:
    """Return the description of an array."""
    return Operand(array.shape, str(array.dtype), "cpu", array.strides, array.ctypes.data % 64)


def _recorded(
    name: str, function: Callable[..., Any], taken: list[Any], settings: dict[str, Any], *, changed: Any = None,
    stream: Callable[[], bytes] | None = None,
) -> Any:  # fmt: skip
    """Call a function of NumPy and record it; `changed` is an operand that it writes to."""
    recorder = _active
    if recorder is None:
        return wrap(function(*taken, **settings))
    read = {key: value for key, value in settings.items() if key != "out"}
    given = [*arrays_of(taken), *arrays_of(read)]
    operands = tuple(map(operand, given))
    inputs = (*map(digest, given), arguments_digest([*taken, read]))
    state = stream() if stream is not None else b""
    result = function(*taken, **settings)
    results = [np.asarray(changed)] if changed is not None else list(_results(result))
    call = Call(
        "numpy", name, operands, inputs, tuple(map(operand, results)), tuple(map(digest, results)), caller(),
        state=state,
    )  # fmt: skip
    recorder.record(call, lambda: tuple(one.copy() for one in results), sum(one.nbytes for one in results))
    return wrap(result)


def _results(value: Any) -> Iterator[NDArray[Any]]:
    if isinstance(value, list | tuple):
        for one in value:
            yield from _results(one)
    elif isinstance(value, np.ndarray | np.generic | bool | int | float | complex):
        yield np.asarray(value)


def _stream_of(generator: Any) -> bytes:
    state = generator.bit_generator.state if isinstance(generator, np.random.Generator) else generator.get_state()
    return text_digest(repr(state))


def _drawing(owner: Any, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a random function that is recorded with the state of its stream."""

    def drawn(*args: Any, **kwargs: Any) -> Any:
        taken = [_base(one) for one in args]
        changed = taken[0] if name == "shuffle" and taken else None
        settings = {key: _base(value) for key, value in kwargs.items()}
        return _recorded(f"random.{name}", function, taken, settings, changed=changed, stream=lambda: _stream_of(owner))

    return drawn


class TracedGenerator(np.random.Generator):
    """A generator whose numbers are recorded."""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or name in _NOT_STREAMS or not callable(found):
            return found
        return _drawing(self, name, getattr(np.random.Generator(self.bit_generator), name))


class _Replacing:
    """A function of NumPy that reports calls from the user's code.

    It is equal to the function it stands for, so that Numba, which looks functions up, still knows it.
    """

    __slots__ = ("__weakref__", "original", "replaced")
    roots: ClassVar[set[str]] = set()

    def __init__(self, original: Callable[..., Any], replaced: Callable[..., Any]) -> None:
        self.original, self.replaced = original, replaced

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _active is None:  # kept by somebody beyond the recording
            return self.original(*args, **kwargs)
        frame = sys._getframe(1)
        file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__", ""))
        foreign = standard(file) or file.startswith(_OWN) or "site-packages" in file or "dist-packages" in file
        if foreign and module.partition(".")[0] not in self.roots:
            return self.original(*args, **kwargs)
        return self.replaced(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)

    def __eq__(self, other: object) -> bool:
        return self.original == (other.original if isinstance(other, _Replacing) else other)

    def __hash__(self) -> int:
        return hash(self.original)


def _creating(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: wrap(
        function(*(_base(one) if isinstance(one, Traced) else plain(one) for one in args), **plain(kwargs))
    )


def _seeded(*args: Any, **kwargs: Any) -> TracedGenerator:
    return TracedGenerator(_default_rng(*args, **kwargs).bit_generator)


_default_rng = np.random.default_rng


def _replacements() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    for name in _CREATING:
        yield np, name, _creating(getattr(np, name))
    yield np.random, "default_rng", _seeded
    for name in np.random.__all__:
        function = getattr(np.random, name)
        owner = getattr(function, "__self__", None)
        if isinstance(owner, np.random.RandomState) and name not in {"seed", "get_state", "set_state", "bytes"}:
            yield np.random, name, _drawing(owner, name, function)


@contextlib.contextmanager
def tracing(recorder: Recorder, root: str, /) -> Iterator[None]:
    """Record NumPy's operations; `root` is the package of the function that is run."""
    importlib.import_module("numpy.ma")  # reads the docstrings of functions that are replaced below
    global _active  # noqa: PLW0603 - arrays of many threads report to the one recorder
    replaced = [(module, name, getattr(module, name), new) for module, name, new in _replacements()]
    _active, _Replacing.roots = recorder, {root} - {"numpy", "torch", "fpsim", ""}
    try:
        for module, name, original, new in replaced:
            setattr(module, name, _Replacing(original, new))
        yield
    finally:
        _active = None
        for module, name, original, _ in replaced:
            setattr(module, name, original)
