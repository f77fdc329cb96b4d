"""``fpsim demo``: two classic questions, answered from data inside the package."""

from __future__ import annotations

import argparse
import json
import sys

HELP = "answer two classic questions from data inside the package"
_CASES = ("product", "white-paper")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--case", choices=_CASES, help="one of the cases (default: both)")
    parser.add_argument(
        "--write", metavar="FOLDER",
        help="instead, write the matrices of the product, NumPy's result here and the recorded one as .npy files",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from fpsim.demo import demo, write_product

    if arguments.write is not None:
        for path in write_product(arguments.write):
            print(f"wrote {path}", file=sys.stderr)
        return 0
    result = demo(arguments.case)
    print(json.dumps(result.to_dict(), indent=2, allow_nan=False) if arguments.format == "json" else result)
    return 0
