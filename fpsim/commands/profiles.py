"""``fpsim profiles``: what is on record of devices, and whether it still holds."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from fpsim.errors import InputError

_DESCRIPTION = """\
List the profiles that fpsim has, show one, or verify one on the device it was recorded on. Exit code 0; 1 where a
verified strategy was wrong; 2 for wrong usage."""

_EXAMPLES = """\
examples:
  fpsim profiles list
  fpsim profiles show h200/cublas-13.1
  fpsim profiles show h200/cublas-13.1 --shape 300x400x700
  fpsim profiles verify h200/cublas-13.1"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.add_argument("action", metavar="ACTION", help="list, show or verify")
    parser.add_argument("name", metavar="NAME", nargs="?", help="a profile, or the path of a .json file")
    parser.add_argument(
        "--shape", metavar="MxKxN", help="of show: the order of a product of this shape, or the likeliest ones"
    )
    parser.add_argument("--seed", metavar="N", default="0", help="seed of the operands of verify (default: 0)")


def run(arguments: argparse.Namespace) -> int:
    """Do what is asked for."""
    from fpsim import profiles

    if arguments.action == "list":
        return _list(arguments)
    if arguments.action not in ("show", "verify"):
        message = f"unknown action {arguments.action!r}; use list, show or verify"
        raise InputError(message)
    if arguments.name is None:
        message = f"name the profile to {arguments.action}; known are {', '.join(profiles.names())}"
        raise InputError(message)
    if arguments.shape is not None and arguments.action != "show":
        message = f"--shape goes with show, not with {arguments.action}"
        raise InputError(message)
    profile = profiles.load(arguments.name)
    if arguments.action == "show":
        shown = profile if arguments.shape is None else profile.candidates("matmul", _shape(arguments.shape))
        print(json.dumps(shown.to_dict(), indent=2) if arguments.format == "json" else shown)
        return 0
    return _verify(profile, arguments)


def _shape(text: str) -> tuple[int, ...]:
    numbers = text.split("x")
    if len(numbers) != len("mkn") or not all(number.isascii() and number.isdigit() for number in numbers):
        message = f"--shape must be MxKxN, such as 300x400x700, not {text!r}"
        raise InputError(message)
    return tuple(map(int, numbers))


def _list(arguments: argparse.Namespace) -> int:
    from fpsim import profiles

    known = [profiles.load(name) for name in profiles.names()]
    if arguments.format == "json":
        print(
            json.dumps(
                [{"name": one.name, **{k: v for k, v in one.to_dict().items() if k != "cases"}} for one in known]
            )
        )
        return 0
    for one in known:
        ops = sorted({case.op for case in one.cases})
        print(f"profile:{one.name:28} {one.device}; {one.dtype}; {len(one.cases)} cases of {', '.join(ops)}")
    return 0


def _verify(profile: Any, arguments: argparse.Namespace) -> int:
    from fpsim.commands._progress import ProgressLine
    from fpsim.profiles.verification import verify

    if not (arguments.seed.isascii() and arguments.seed.isdigit()):
        message = f"--seed must be a whole number of at least 0, not {arguments.seed!r}"
        raise InputError(message)
    progress = ProgressLine("verifying", sys.stderr)
    try:
        results = verify(profile, rng=int(arguments.seed), progress=progress)
    finally:
        progress.clear()
    wrong = [case for case, equal, outputs in results if equal != outputs]
    if arguments.format == "json":
        rows = [{"op": c.op, "shape": list(c.shape), "equal": e, "outputs": o} for c, e, o in results]
        print(json.dumps({"profile": profile.name, "cases": rows, "wrong": len(wrong)}, indent=2))
    else:
        for case, equal, outputs in results:
            state = "all bits equal" if equal == outputs else f"WRONG: {equal} of {outputs} outputs equal"
            print(f"{case.op:8} {'x'.join(map(str, case.shape)):16} {state}")
        print(f"{len(results) - len(wrong)} of {len(results)} cases hold on this machine.")
    return 1 if wrong else 0
