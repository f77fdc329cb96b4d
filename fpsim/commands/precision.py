"""``fpsim precision``: the precision that a function really uses."""

from __future__ import annotations

import argparse
import json

from fpsim.commands._options import whole
from fpsim.errors import InputError

_DESCRIPTION = """\
Say in one line which precision a product really uses on this machine now, and how to get full precision. Exit code 0:
it is that of the operands; 3: it is less; 2: wrong usage."""

_EXAMPLES = """\
examples:
  fpsim precision numpy.matmul
  fpsim precision torch.matmul --device cuda --shape 1024x1024x1024
  fpsim precision torch.matmul --device cuda --dtype float16
  fpsim precision jax.numpy.dot --op dot --n 4096"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.add_argument("target", metavar="TARGET", help="a function, or an implementation and its operation")
    parser.add_argument(
        "--op", metavar="OP", help="matmul, dot, matvec, vecmat, sum or mean, where the name does not tell"
    )
    parser.add_argument("--n", metavar="N", help="number of terms of vectors (default: 256)")
    parser.add_argument("--shape", metavar="MxKxN", help="shape of a product (default: 256 each)")
    parser.add_argument("--dtype", metavar="TYPE", default="float32", help="format of the operands (default: float32)")
    parser.add_argument("--device", metavar="NAME", help="for functions of torch: cuda or cpu")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print; exit code 3 where the precision is reduced."""
    from fpsim._targets import target
    from fpsim.measuring_precision import precision

    found = target(arguments.target, device=arguments.device)
    op = arguments.op or found.op or "matmul"
    if arguments.n is not None and arguments.shape is not None:
        message = "give --n for vectors or --shape for products, one of them"
        raise InputError(message)
    given = arguments.n if arguments.n is not None else arguments.shape
    sizes = [whole("a size", word, 1) for word in given.lower().split("x")] if given is not None else []
    library = arguments.target.partition(":")[0].partition(".")[0]
    result = precision(
        found.function, op=op, shape=tuple(sizes) or None, dtype=arguments.dtype, library=library
    )  # fmt: skip
    print(
        json.dumps({"target": arguments.target, **result.to_dict()}, indent=2) if arguments.format == "json" else result
    )
    return 3 if result.reduced else 0
