"""``fpsim invariance``: whether a routine gives the same bits for the same numbers in another call."""

from __future__ import annotations

import argparse
import json

from fpsim.commands._options import whole
from fpsim.errors import InputError

_DESCRIPTION = """\
Call a routine with the same numbers in another batch, place, memory layout, alignment or padding, and say where that
changes bits. Exit code 0 where nothing changes, 1 where something does."""

_EXAMPLES = """\
examples:
  fpsim invariance numpy.matmul
  fpsim invariance numpy.matmul --dim row --dim layout --shape 64x256x64
  fpsim invariance torch.matmul --device cuda --dim batch --shape 400x400x400
  fpsim invariance my_module.layer --dim padding --shape 32x512      (a function of one array)"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.add_argument("target", metavar="TARGET", help="a function, as in numpy.matmul, or torch.cuda:matmul")
    parser.add_argument(
        "--dim", metavar="WHAT", action="append", help="batch, row, layout, alignment or padding (default: all)"
    )
    parser.add_argument(
        "--shape", metavar="MxKxN", default="400x400x400", help="of a product, or ROWSxCOLUMNS of one operand"
    )
    parser.add_argument("--data", metavar="LAW", default="normal", help="law of the operands (default: normal)")
    parser.add_argument("--dtype", metavar="TYPE", default="float32", help="type of the operands (default: float32)")
    parser.add_argument("--device", metavar="NAME", help="cuda or cpu, for functions of torch")
    parser.add_argument("--seed", metavar="N", default="0", help="seed of the operands (default: 0)")


def run(arguments: argparse.Namespace) -> int:
    """Compare and print; exit code 1 where bits change."""
    import numpy as np

    from fpsim._targets import target
    from fpsim.invariances import DIMENSIONS, invariance
    from fpsim.laws import law

    sizes = [whole("a size", word, 1) for word in arguments.shape.lower().split("x")]
    if len(sizes) not in (2, 3):
        message = f"--shape is MxKxN of a product, or ROWSxCOLUMNS of one operand, not {arguments.shape!r}"
        raise InputError(message)
    rng = np.random.default_rng(whole("--seed", arguments.seed, 0))
    shapes = [tuple(sizes[:2]), tuple(sizes[1:])] if len(sizes) > len("mk") else [tuple(sizes)]
    drawn = [law(arguments.data).draw(shape, rng=rng, dtype=arguments.dtype) for shape in shapes]
    function = target(arguments.target, device=arguments.device).function
    found = [invariance(lambda *x: _fetched(function(*x)), *drawn, dim=dim) for dim in arguments.dim or DIMENSIONS]
    out = {"target": arguments.target, "results": [one.to_dict() for one in found]}
    print(json.dumps(out, indent=2, allow_nan=False) if arguments.format == "json" else "\n\n".join(map(str, found)))
    return 0 if all(one.invariant for one in found) else 1


def _fetched(result: object) -> object:
    """Return a result as a NumPy array, from a GPU too."""
    for step in ("detach", "cpu", "get"):
        result = getattr(result, step)() if hasattr(result, step) and not hasattr(result, "__array_ufunc__") else result
    return result
