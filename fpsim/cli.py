"""The command ``fpsim``.

Exit codes: 0 done (for ``explain``: explained), 1 a bug is suspected, 2 wrong usage or unusable input, 3 unknown,
70 a defect of fpsim itself.
Results go to standard output, progress and errors to standard error.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from types import ModuleType

from fpsim import __version__
from fpsim.errors import FpsimError

USAGE = 2
DEFECT = 70
#: Sub-commands in the order of the help page; each is a module of `fpsim.commands`, imported when it is used.
COMMANDS = {
    "demo": "answer two classic questions from data inside the package",
    "predict": "predict the error of strategies on given data or a data law",
    "tolerance": "work out the tolerance that a comparison needs",
    "spread": "emulate run-to-run differences of random orders, and judge observed runs",
    "invariance": "say whether batch, place, layout, alignment or padding change the bits of a routine",
    "locate": "name the first operation of a function whose bits differ between two runs",
    "check": "compare real routines with their predictions, to the bit",
    "precision": "say which precision a product really uses, and how to get full precision",
    "reveal": "find the order and arithmetic of a function, and prove it by replay",
    "profiles": "list, show or verify what is on record of devices",
    "explain": "explain why two results of one operation differ",
}


def main(arguments: Sequence[str] | None = None, /) -> int:
    """Run the command line and return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        parser, modules = _parser(given)
        parsed = parser.parse_args(given)
    except SystemExit as leaving:  # argparse has printed its message
        return leaving.code if isinstance(leaving.code, int) else USAGE
    try:
        code: int = modules[parsed.command].run(parsed)
        sys.stdout.flush()
    except FpsimError as error:
        print(f"fpsim {parsed.command}: {error}", file=sys.stderr)
        return USAGE
    except MemoryError:
        print(f"fpsim {parsed.command}: not enough memory; choose a smaller shape", file=sys.stderr)
        return USAGE
    except BrokenPipeError:  # the reader, such as `head`, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(f"fpsim {parsed.command}: interrupted", file=sys.stderr)
        return 130
    except Exception:  # noqa: BLE001 - Python's own exit code would read as "a bug is suspected" in the data
        traceback.print_exc()
        print(f"fpsim {parsed.command}: this is a defect of fpsim {__version__}; please report it", file=sys.stderr)
        return DEFECT
    return code


def _parser(given: list[str]) -> tuple[argparse.ArgumentParser, dict[str, ModuleType]]:
    """Return the parser; only the command that is used gets its arguments, so that the others are not imported."""
    parser = argparse.ArgumentParser(
        prog="fpsim",
        description="Predict, explain and bound floating-point reductions, to the bit.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"fpsim {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    used = next((word for word in given if not word.startswith("-")), None)
    modules = {}
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary.capitalize() + ".", allow_abbrev=False)
        if name == used:
            modules[name] = importlib.import_module(f"fpsim.commands.{name}")
            modules[name].add_arguments(command)
            choices = ("text", "json", *getattr(modules[name], "FORMATS", ()))
            command.add_argument(
                "--format", choices=choices, default="text", help="how to write the result (default: text)"
            )
    return parser, modules


if __name__ == "__main__":
    sys.exit(main())
