"""``fpsim tolerance``: the tolerance that a comparison needs, to paste into a test."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from typing import Any

from fpsim.commands._options import number, whole
from fpsim.errors import InputError

_DESCRIPTION = """\
Work out how far two results of an operation may be apart, or a result from the exact one: what is proved, and what holds
at a confidence for all outputs together; beside it, what the default tolerances of NumPy, PyTorch and JAX would do.
With --table, work out a whole table of them."""

_EXAMPLES = """\
examples:
  fpsim tolerance matmul --shape 400x400x400 --data 'uniform(0,1)' --between numpy,profile:h200/cublas-13.1
  fpsim tolerance sum --shape 100000 --data normal --strategy numpy_sum
  fpsim tolerance matmul --shape 64x1000x64 --data normal --between serial+fma 'any split_k:1..16+fma'
  fpsim tolerance exp --shape 4096 --data normal --between numpy torch.cuda
  fpsim tolerance sum --shape 4096 --data normal --between numpy 'any order'
  fpsim tolerance matmul --inputs A.npy B.npy --between numpy 'any of: profile:h200/cublas-13.1; serial+fma'
  fpsim tolerance --table ops.toml               a new table, or what has changed in one that exists
  fpsim tolerance --table ops.toml --force       work out an existing table again

A side is a strategy, a routine such as numpy (see `fpsim check --list`), 'any order', 'any' and a strategy with ranges, or
'any of:' several, separated by semicolons."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.add_argument("op", metavar="OP", nargs="?", help="sum, dot or matmul; or a function such as exp")
    parser.add_argument("--shape", metavar="N", help="terms, or M x K x N of a product")
    parser.add_argument(
        "--data", metavar="LAW", action="append", help="law of the data: once, or once for each operand"
    )
    parser.add_argument("--inputs", metavar="FILE", nargs="+", help="operands from .npy, .npz, .csv or .txt instead")
    parser.add_argument("--strategy", metavar="TEXT", help="one side; the other is the exact result")
    parser.add_argument("--between", metavar="TEXT", nargs="+", help="both sides: ONE OTHER, or ONE,OTHER")
    parser.add_argument("--confidence", metavar="P", default="0.999999", help="of an assertion (default: 0.999999)")
    parser.add_argument("--outputs", metavar="M", help="outputs that one assertion compares (default: all)")
    parser.add_argument("--dtype", metavar="TYPE", help="type of drawn operands (default: float32; of a table: all)")
    parser.add_argument("--table", metavar="FILE", help="a table in TOML instead: a new one, or one to check")
    parser.add_argument("--force", action="store_true", help="work out an existing table again and overwrite it")
    parser.add_argument("--seed", metavar="N", default="0", help="seed of pilot data (default: 0)")


def run(arguments: argparse.Namespace) -> int:
    """Work out and print; exit code 0, or 1 where an existing table has become too loose or too tight."""
    if arguments.table is not None:
        return _run_table(arguments)
    if arguments.op is None:
        message = "name an operation: sum, dot or matmul; or a table with --table FILE"
        raise InputError(message)
    if arguments.force:
        message = "--force is for --table"
        raise InputError(message)
    if (arguments.strategy is None) == (arguments.between is None):
        message = "say --strategy TEXT for a tolerance against the exact result, or --between ONE OTHER for two results"
        raise InputError(message)
    from fpsim._tolerance_data import check_operation
    from fpsim.elementary_errors import ENVELOPES
    from fpsim.tolerances import tolerance

    if arguments.op not in ENVELOPES:
        check_operation(arguments.op)
    settings: dict[str, Any] = {
        "confidence": number("--confidence", arguments.confidence),
        "rng": whole("--seed", arguments.seed, 0),
        "outputs": None if arguments.outputs is None else whole("--outputs", arguments.outputs, 1),
    }
    if arguments.inputs:
        from fpsim._files import load_array

        if arguments.data or arguments.shape or arguments.dtype:
            message = "--data, --shape and --dtype are for data of a law; leave them out with --inputs"
            raise InputError(message)
        inputs: list[Any] = [load_array(path) for path in arguments.inputs]
        example = inputs
    elif arguments.data is None:
        message = "say where the data come from: --data LAW with --shape, or --inputs FILE ..."
        raise InputError(message)
    else:
        inputs = list(arguments.data)
        dtype = arguments.dtype or "float32"
        settings |= {"shape": arguments.shape, "dtype": dtype}
        example = []

    def resolved(text: str) -> str:
        if arguments.op in ENVELOPES:
            return text
        return routine_strategy(
            text, arguments.op, lambda: example or _empty(arguments.op, arguments.shape, settings["dtype"])
        )

    if arguments.strategy is not None:
        settings["strategy"] = resolved(arguments.strategy)
    if arguments.between is not None:
        settings["between"] = tuple(resolved(text) for text in _two(arguments.between))
    result = tolerance(arguments.op, *inputs, **settings)
    print(json.dumps(result.to_dict(), indent=2, allow_nan=False) if arguments.format == "json" else result)
    return 0


def _run_table(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from fpsim.tolerance_tables import DTYPES, new_table, read_table

    for option in ("inputs", "outputs", "strategy"):
        if getattr(arguments, option) is not None:
            message = f"--{option} is for one tolerance, not for --table"
            raise InputError(message)
    path, chosen = Path(arguments.table), {"op", "shape", "data", "between", "dtype"}
    if not path.exists():
        if arguments.shape is not None and arguments.op is None:
            message = "--shape needs the operation that it is for"
            raise InputError(message)
        pair = None if arguments.between is None else _two(arguments.between)
        table = new_table(
            ops=(arguments.op,) if arguments.op else ("sum", "dot", "matmul"),
            dtypes=arguments.dtype.split(",") if arguments.dtype else DTYPES,
            shape=arguments.shape, data=arguments.data or ("normal",), between=pair,
        )  # fmt: skip
        table.write(path)
        known = sum(not entry.unsupported for entry in table)
        print(f"{path}: {known} tolerances, {len(table.entries) - known} not supported, each with the reason")
        return 0
    if any(getattr(arguments, name) is not None for name in chosen):
        message = (
            f"{path} exists: its questions are in it; edit them there, and leave out operation, shape, data and sides"
        )
        raise InputError(message)
    table = read_table(path)
    if arguments.force:
        table.updated().write(path, overwrite=True)
        print(f"{path}: written again")
        return 0
    problems = [problem for entry in table if not entry.unsupported and (problem := entry.problem())]
    print("\n".join(problems) if problems else f"{path}: all {len(table.entries)} entries are as they should be")
    return 1 if problems else 0


def routine_strategy(text: str, op: str, example: Callable[[], list[Any]]) -> str:
    """Return the strategy of a real routine, such as ``numpy``, for such operands; of any other text the text.

    Raises
    ------
    UnknownOrderError
        The routine has no such operation, or its order is not known for these operands.
    """
    from fpsim.devices import implementations
    from fpsim.orders import ORDERS

    name = text.strip()
    if not re.fullmatch(r"[a-z_]+(\.[a-z_]+)*", name) or name in ORDERS:
        return text
    found = [one for one in implementations() if one.name == name]
    if not found:
        return text
    operation, operands = op, example()
    if op == "sum" and operands[0].ndim == 2:
        operation = "sum_axis1"
    return str(found[0].strategy(operation, *operands))


def _empty(op: str, shape: Any, dtype: str) -> list[Any]:
    """Return operands of this shape, of which a routine's rule looks at the shape alone."""
    import numpy as np

    from fpsim.prediction import sizes_of

    if dtype not in ("float16", "float32", "float64"):
        message = f"the strategy of a real routine is known for float16, float32 and float64, not for {dtype}; name a strategy"
        raise InputError(message)
    sizes = sizes_of(op, shape)
    shapes = [sizes] if op == "sum" else [sizes, sizes] if op == "dot" else [sizes[:2], sizes[1:]]
    return [np.empty(one, dtype) for one in shapes]


def _two(words: list[str]) -> tuple[str, str]:
    """Return both sides, which may stand in one word, with a comma outside of parentheses and quotes."""
    sides = words
    if len(words) == 1:
        sides, depth, quote = [""], 0, ""
        for letter in words[0]:
            if quote or letter in "\"'":
                quote = "" if letter == quote else quote or letter
            depth += 0 if quote else (letter in "([") - (letter in ")]")
            if letter == "," and depth == 0 and not quote:
                sides.append("")
            else:
                sides[-1] += letter
    if len(sides) != 2 or not all(side.strip() for side in sides):
        message = f"--between takes two sides, as in --between numpy,serial+fma, not {' '.join(words)!r}"
        raise InputError(message)
    return sides[0].strip(), sides[1].strip()
