"""``fpsim tolerance``: the tolerance that a comparison needs, to paste into a test."""

from __future__ import annotations

import argparse
import json
from typing import Any

from fpsim.errors import InputError

_DESCRIPTION = """\
Work out how far two results of an operation may be apart, or a result from the exact one: what is proved, and what holds
at a confidence for all outputs together; beside it, what the default tolerances of NumPy, PyTorch and JAX would do."""

_EXAMPLES = """\
examples:
  fpsim tolerance matmul --shape 400x400x400 --data 'uniform(0,1)' --between numpy_matmul 'interleaved:5:8+fma'
  fpsim tolerance sum --shape 100000 --data normal --strategy numpy_sum
  fpsim tolerance matmul --inputs A.npy B.npy --between serial+fma profile:h200/cublas-13.1
  fpsim tolerance matmul --shape 64x1000x64 --data normal --between serial+fma split_k:2+fma,split_k:16+fma

A side may be several strategies, separated by commas: the tolerance then holds for any of them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.add_argument("op", metavar="OP", help="sum, dot or matmul")
    parser.add_argument("--shape", metavar="N", help="terms, or M x K x N of a product")
    parser.add_argument(
        "--data", metavar="LAW", action="append", help="law of the data: once, or once for each operand"
    )
    parser.add_argument("--inputs", metavar="FILE", nargs="+", help="operands from .npy, .npz, .csv or .txt instead")
    parser.add_argument("--strategy", metavar="TEXT", help="one side; the other is the exact result")
    parser.add_argument("--between", metavar="TEXT", nargs=2, help="both sides")
    parser.add_argument("--confidence", metavar="P", default="0.999999", help="of an assertion (default: 0.999999)")
    parser.add_argument("--outputs", metavar="M", help="outputs that one assertion compares (default: all)")
    parser.add_argument("--dtype", metavar="TYPE", default="float32", help="type of drawn operands (default: float32)")
    parser.add_argument("--seed", metavar="N", default="0", help="seed of pilot data (default: 0)")


def run(arguments: argparse.Namespace) -> int:
    """Work out and print; exit code 0."""
    from fpsim.tolerances import tolerance

    settings: dict[str, Any] = {
        "confidence": _number("--confidence", arguments.confidence),
        "rng": _whole("--seed", arguments.seed, 0),
        "outputs": None if arguments.outputs is None else _whole("--outputs", arguments.outputs, 1),
    }
    if arguments.strategy is not None:
        settings["strategy"] = _side(arguments.strategy)
    if arguments.between is not None:
        settings["between"] = tuple(_side(text) for text in arguments.between)
    if arguments.inputs:
        from fpsim._files import load_array

        if arguments.data or arguments.shape:
            message = "--data and --shape are for data of a law; leave them out with --inputs"
            raise InputError(message)
        inputs: list[Any] = [load_array(path) for path in arguments.inputs]
    elif arguments.data is None:
        message = "say where the data come from: --data LAW with --shape, or --inputs FILE ..."
        raise InputError(message)
    else:
        inputs = list(arguments.data)
        settings |= {"shape": arguments.shape, "dtype": arguments.dtype}
    result = tolerance(arguments.op, *inputs, **settings)
    print(json.dumps(result.to_dict(), indent=2, allow_nan=False) if arguments.format == "json" else result)
    return 0


def _side(text: str) -> Any:
    """Return the strategies that commas outside parentheses separate."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts if len(parts) > 1 else parts[0]


def _number(option: str, word: str) -> float:
    try:
        return float(word)
    except ValueError as error:
        message = f"{option} must be a number, not {word!r}"
        raise InputError(message) from error


def _whole(option: str, word: str, least: int) -> int:
    if not (word.isascii() and word.isdigit()) or int(word) < least:
        message = f"{option} must be a whole number of at least {least}, not {word!r}"
        raise InputError(message)
    return int(word)
