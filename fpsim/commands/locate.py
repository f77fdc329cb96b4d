"""``fpsim locate``: the first operation of a function whose bits differ between two runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from fpsim.commands._options import whole
from fpsim.errors import FileError, InputError

_DESCRIPTION = """\
Run a function of NumPy or PyTorch again, and name the first operation whose bits differ, where it was called, and what
pins it. Exit code 0: no difference in these runs; 1: a difference; 2: wrong usage."""

_EXAMPLES = """\
examples:
  fpsim locate my_module.loss --input batch.npz --runs 20
  fpsim locate my_module.training_step --seed 0
  fpsim locate my_module.loss --input x.npy --input y.npy --against my_module.other_loss
  fpsim locate my_module.model --input batch.npz --device cpu --device cuda     (inputs become tensors)"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.add_argument("target", metavar="TARGET", help="a function, as in my_module.loss")
    parser.add_argument(
        "--input", metavar="FILE", action="append", default=[],
        help="an array (.npy), or all arrays of a .npz in their order; may be repeated",
    )  # fmt: skip
    parser.add_argument("--against", metavar="TARGET", help="a second function, to be compared with the first")
    parser.add_argument(
        "--device", metavar="NAME", action="append", default=[], help="cpu or cuda, for PyTorch; two are compared"
    )
    parser.add_argument("--runs", metavar="N", default="2", help="how often to run at most (default: 2)")
    parser.add_argument("--seed", metavar="N", help="seed Python, NumPy and PyTorch before each run")


def run(arguments: argparse.Namespace) -> int:
    """Locate and print; exit code 1 where bits differ."""
    from fpsim._targets import target
    from fpsim.locating import locate

    settings: dict[str, Any] = {"runs": whole("--runs", arguments.runs, 2)}
    if arguments.seed is not None:
        settings["seed"] = whole("--seed", arguments.seed, 0)
    inputs = [array for file in arguments.input for array in _arrays(file)]
    devices = arguments.device
    if len(devices) > 2 or (len(devices) > 1 and arguments.against is not None):
        message = "give --against, or --device once or twice"
        raise InputError(message)
    if arguments.target.startswith("torch."):  # such functions get tensors from NumPy arrays
        functions = [target(arguments.target, device=one).function for one in devices or [None]]
        if arguments.against is not None:
            functions.append(_second(arguments.against, devices))
        if len(functions) > 1:
            settings["against"] = functions[1]
        function = functions[0]
    else:
        function = target(arguments.target).function
        settings |= {"against": _second(arguments.against, devices)} if arguments.against is not None else {}
        settings |= {"devices": devices} if devices else {}
    found = locate(function, *inputs, **settings)
    print(json.dumps(found.to_dict(), indent=2, allow_nan=False) if arguments.format == "json" else found)
    return 0 if found.same else 1


def _second(text: str, devices: list[str]) -> Callable[..., Any]:
    from fpsim._targets import target

    return target(text, device=devices[0] if devices and text.startswith("torch.") else None).function


def _arrays(file: str) -> list[Any]:
    """Return all arrays of a file."""
    from fpsim._files import load_array

    if not file.endswith(".npz"):
        return [load_array(file)]
    try:
        with np.load(file, allow_pickle=False) as archive:
            names = list(archive)
    except (OSError, ValueError) as error:
        message = f"{file} cannot be read: {error}"
        raise FileError(message) from error
    return [load_array(f"{file}:{name}") for name in names]
