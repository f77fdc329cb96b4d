"""``fpsim reveal --elementary``: which known model an elementary function follows, or a profile of it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from fpsim.commands._options import number, whole
from fpsim.errors import FileError, InputError

_LIBM = "libm."
_FORBIDDEN = ("n", "shape", "strategy", "replays", "cuda_simulator", "probe")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that only elementary functions take."""
    group = parser.add_argument_group("elementary functions (float32, one operand)")
    group.add_argument(
        "--elementary", action="store_true", help="TARGET is exp, erf, gelu or the like: compare it with known models"
    )
    group.add_argument(
        "--range",
        metavar="LOW:HIGH",
        help="inputs, both ends included, as in --range=-1:1 (default: all finite numbers)",
    )
    group.add_argument("--exhaustive", action="store_true", help="try every float32 number of the range")
    group.add_argument("--samples", metavar="N", help="how many numbers to try otherwise (default: 4194304)")


def refuse(arguments: argparse.Namespace) -> None:
    """Refuse the options of elementary functions where ``--elementary`` is missing."""
    for option in ("range", "exhaustive", "samples"):
        if getattr(arguments, option):
            message = f"--{option} goes with --elementary"
            raise InputError(message)


def run(arguments: argparse.Namespace) -> int:
    """Compare, record where asked, and print; exit code 3 where no model has all bits and nothing was recorded."""
    from fpsim.commands._progress import ProgressLine
    from fpsim.revealing_elementary import function_named, reveal_elementary

    for option in _FORBIDDEN:
        if getattr(arguments, option):
            message = f"--{option.replace('_', '-')} does not go together with --elementary"
            raise InputError(message)
    if arguments.dtype != "float32":
        message = f"--elementary compares float32 functions, not {arguments.dtype}"
        raise InputError(message)
    call, device, versions = _called(arguments.target, arguments.device)
    function = function_named(arguments.op or arguments.target)
    if function is None:
        message = f"say with --op which elementary function {arguments.target} is, such as exp or gelu_tanh"
        raise InputError(message)
    if arguments.save is not None and Path(arguments.save).exists():
        message = f"{arguments.save} exists already; choose another name, or remove it first"
        raise FileError(message)
    settings: dict[str, Any] = {}
    if arguments.range is not None:
        settings["low"], settings["high"] = _ends(arguments.range)
    if arguments.samples is not None:
        settings["samples"] = whole("--samples", arguments.samples, 1)
    progress = ProgressLine(f"revealing {arguments.target}", sys.stderr)
    try:
        result = reveal_elementary(
            call,
            function,
            exhaustive=arguments.exhaustive,
            record=arguments.save is not None,
            target=arguments.target,
            device=device,
            versions=versions,
            progress=progress,
            **settings,
        )
    finally:
        progress.clear()
    if result.profile is not None:
        result.profile.save(arguments.save)
    print(json.dumps(result.to_dict(), indent=2) if arguments.format == "json" else result)
    if result.found and arguments.save is not None:
        print(f"{arguments.save} was not written: {result.model} gives every result", file=sys.stderr)
    return 0 if result.found or result.profile is not None else 3


def _ends(text: str) -> tuple[float, float]:
    low, colon, high = text.partition(":")
    if not colon:
        message = f"--range takes LOW:HIGH, as in --range=-1:1, not {text!r}"
        raise InputError(message)
    return number("--range", low), number("--range", high)


def _called(text: str, device: str | None) -> tuple[Any, str, dict[str, str]]:
    """Return the function, what it runs on, and the versions of its libraries."""
    from fpsim._targets import target
    from fpsim.devices._elementwise_libraries import processor

    if text.startswith(_LIBM):
        import platform

        from fpsim.devices import _libm

        if device is not None:
            message = "--device is for functions of torch, not of libm"
            raise InputError(message)
        library, _, version = _libm.version().partition(" ")
        return _libm.function(text.removeprefix(_LIBM)), processor(), {library: version or platform.release()}
    found = target(text, device=device)
    where = found.device if device is not None and device.startswith("cuda") else processor()
    return found.function, where, found.versions
