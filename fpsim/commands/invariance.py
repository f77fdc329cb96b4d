"""``fpsim invariance``: whether a routine gives the same bits for the same numbers in another call."""

from __future__ import annotations

import argparse
import json
from typing import Any

from fpsim.commands._options import whole
from fpsim.errors import InputError

_DESCRIPTION = """\
Call a routine with the same numbers in another batch, place, memory layout, alignment or padding, with other numbers of
threads, or along another axis, and say where that changes bits. Exit code 0 where nothing changes, 1 where something does."""

_EXAMPLES = """\
examples:
  fpsim invariance numpy.matmul
  fpsim invariance numpy.matmul --dim row --dim layout --shape 64x256x64
  fpsim invariance numpy.sum --dim axis --dim threads --shape 64x1000
  fpsim invariance torch.matmul --device cuda --dim batch --shape 400x400x400
  fpsim invariance my_module.layer --dim padding --shape 32x512      (a function of one array)"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.add_argument("target", metavar="TARGET", help="a function, as in numpy.matmul, or torch.cuda:matmul")
    parser.add_argument(
        "--dim",
        metavar="WHAT",
        action="append",
        help="batch, row, layout, alignment, padding, threads or axis (default: all)",
    )
    parser.add_argument(
        "--shape",
        metavar="MxKxN",
        help="of a product, or ROWSxCOLUMNS of one operand (default: 400x400x400; 400x400 of a sum)",
    )
    parser.add_argument("--data", metavar="LAW", default="normal", help="law of the operands (default: normal)")
    parser.add_argument("--dtype", metavar="TYPE", default="float32", help="type of the operands (default: float32)")
    parser.add_argument("--device", metavar="NAME", help="cuda or cpu, for functions of torch")
    parser.add_argument("--seed", metavar="N", default="0", help="seed of the operands (default: 0)")


def run(arguments: argparse.Namespace) -> int:
    """Compare and print; exit code 1 where bits change."""
    import numpy as np

    from fpsim._targets import target
    from fpsim.invariances import DIMENSIONS, invariance, threads_can_vary
    from fpsim.laws import law

    found = target(arguments.target, device=arguments.device)
    reduction = found.op in ("sum", "mean") and ":" not in arguments.target
    shape = arguments.shape or ("400x400" if reduction else "400x400x400")
    sizes = [whole("a size", word, 1) for word in shape.lower().split("x")]
    if len(sizes) not in (2, 3) or (reduction and len(sizes) != len("mk")):
        message = f"--shape is MxKxN of a product, or ROWSxCOLUMNS of one operand, not {shape!r}"
        raise InputError(message)
    rng = np.random.default_rng(whole("--seed", arguments.seed, 0))
    shapes = [tuple(sizes[:2]), tuple(sizes[1:])] if len(sizes) > len("mk") else [tuple(sizes)]
    drawn = [law(arguments.data).draw(one, rng=rng, dtype=arguments.dtype) for one in shapes]
    possible = {"axis": reduction, "threads": threads_can_vary()}
    dims = arguments.dim or [dim for dim in DIMENSIONS if possible.get(dim, True)]

    def call(*x: Any, **options: Any) -> object:
        return _fetched(found.function(*x, **({"axis": 1} | options if reduction else options)))

    results = [invariance(call, *drawn, dim=dim) for dim in dims]
    out = {"target": arguments.target, "results": [one.to_dict() for one in results]}
    print(json.dumps(out, indent=2, allow_nan=False) if arguments.format == "json" else "\n\n".join(map(str, results)))
    return 0 if all(one.invariant for one in results) else 1


def _fetched(result: object) -> object:
    """Return a result as a NumPy array, from a GPU too."""
    for step in ("detach", "cpu", "get"):
        result = getattr(result, step)() if hasattr(result, step) and not hasattr(result, "__array_ufunc__") else result
    return result
