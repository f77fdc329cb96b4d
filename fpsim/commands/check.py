"""``fpsim check``: real routines beside their predictions, to the bit."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from fpsim.errors import InputError

_DESCRIPTION = """\
Run the libraries that this machine has, and compare every bit of their results with what fpsim predicts for them. Exit
code 0: every rule that claims to know was right; 1: one was wrong; 2: wrong usage."""

_EXAMPLES = """\
examples:
  fpsim check
  fpsim check --ops sum mean --implementations numpy torch.cpu --sizes 1000 1000000
  fpsim check --ops matmul --sizes 400x400x400 1x400x400 --data normal --data uniform:0:1
  fpsim check --ops exp gelu sqrt --implementations torch
  fpsim check --ops multiply --implementations numpy cupy        (from which size on is the GPU faster?)
  fpsim check --list

operations and their sizes:
  sum mean var std prod norm cumsum dot: n     sum_axis0 sum_axis1 multiply: r x c
  matvec: m x k     vecmat: k x n     matmul: m x k x n
  exp exp2 sigmoid silu tanh rsqrt log sin gelu ... (the functions of fpsim.elementary): n"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.add_argument("--ops", metavar="OP", nargs="+", help="operations (default: all)")
    parser.add_argument(
        "--implementations", metavar="NAME", nargs="+", help="such as numpy or torch.cpu; torch stands for torch.*"
    )
    parser.add_argument("--sizes", metavar="SIZE", nargs="+", help="such as 1000, 200x100, 64x300x48")
    parser.add_argument("--data", metavar="LAW", action="append", help="law of the operands; may be repeated")
    parser.add_argument("--dtype", metavar="TYPE", default="float32", help="float16, float32 (default) or float64")
    parser.add_argument("--seed", metavar="N", default="0", help="seed of the operands (default: 0)")
    parser.add_argument("--no-times", action="store_true", help="do not measure times")
    parser.add_argument("--list", action="store_true", help="say what is available here, and stop")
    parser.add_argument("--json", action="store_true", help="the same as --format json")


def run(arguments: argparse.Namespace) -> int:
    """Check and print; exit code 1 where a rule was wrong."""
    from fpsim.commands._progress import ProgressLine

    as_json = arguments.json or arguments.format == "json"
    if arguments.list:
        return _list(arguments.implementations, as_json)
    if not (arguments.seed.isascii() and arguments.seed.isdigit()):
        message = f"--seed must be a whole number of at least 0, not {arguments.seed!r}"
        raise InputError(message)
    from fpsim.checking import check

    progress = ProgressLine("checking", sys.stderr)
    try:
        result = check(
            operations=arguments.ops,
            implementations=arguments.implementations,
            sizes=arguments.sizes,
            laws=arguments.data,
            dtype=arguments.dtype,
            rng=int(arguments.seed),
            times=not arguments.no_times,
            progress=progress,
        )
    finally:
        progress.clear()
    print(json.dumps(result.to_dict(), indent=2, allow_nan=False) if as_json else result)
    return 1 if result.wrong else 0


def _list(names: Any, as_json: bool) -> int:
    from fpsim._check_text import unavailable
    from fpsim.devices import implementations

    known = implementations(names)
    if as_json:
        print(json.dumps([one.to_dict() for one in known], indent=2))
    else:
        for one in known:
            if one.available:
                print(f"{one}\n    {', '.join(one.routines)}")
        for line in unavailable(known):
            print(line)
    return 0
