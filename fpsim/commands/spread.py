"""``fpsim spread``: what many runs of a reduction give whose order of additions is random."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from fpsim.commands._options import number, whole
from fpsim.errors import InputError

_DESCRIPTION = """\
Emulate many runs of a reduction in which terms or partial sums arrive in a random order (atomic additions, threads that
finish when they can), and say how far the runs are apart. With --observed, say whether the runs in a file can come
from that alone. Exit code 1: no order gives one of them, so that terms were lost or changed."""

_EXAMPLES = """\
examples:
  fpsim spread sum --shape 100000 --data 'uniform(0,1)' --strategy shuffle
  fpsim spread sum --shape 1000000 --data normal --strategy 'chunks(256, fold, combine=shuffle)'
  fpsim spread sum --inputs x.npy --strategy 'cuda_reduce(132, 256, second=shuffle)' --observed runs.npy
  fpsim spread sum --shape 1000000 --data normal --strategy 'shuffle+ftz' --arrivals 'sweeps(1056, 2.5)' --runs 50
  fpsim spread matmul --shape 1x4096x8 --data normal --strategy 'split_k(8, combine=shuffle)+fma' --runs 200

shuffle: one atomic addition for each term; chunks(32, fold, combine=shuffle): for each warp;
chunks(256, fold, combine=shuffle) or cuda_reduce(grid, block, second=shuffle): for each block"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.add_argument("op", metavar="OP", help="sum, dot, matmul or index_add")
    parser.add_argument("--shape", metavar="N", help="terms, outputs x terms, or M x K x N of a product")
    parser.add_argument(
        "--data", metavar="LAW", action="append", help="law of the data: once, or once for each operand"
    )
    parser.add_argument("--inputs", metavar="FILE", nargs="+", help="operands from .npy, .npz, .csv or .txt instead")
    parser.add_argument("--strategy", metavar="TEXT", required=True, help="a strategy with shuffle, without a seed")
    parser.add_argument("--runs", metavar="N", default="1000", help="runs to emulate (default: 1000)")
    parser.add_argument(
        "--arrivals",
        metavar="MODEL",
        help="how terms arrive instead of at random: h200(TERMS), fit(h200(TERMS)), sweeps(WARPS, LATE), or a file of"
        " recorded places, one row for each run",
    )
    parser.add_argument("--observed", metavar="FILE", help="results of real runs, the first axis being the runs")
    parser.add_argument(
        "--error-rate", metavar="P", default="1e-6", help="of calling a random order unlikely (default: 1e-6)"
    )
    parser.add_argument("--dtype", metavar="TYPE", default="float32", help="type of drawn operands (default: float32)")
    parser.add_argument("--seed", metavar="N", default="0", help="seed of the data and the orders (default: 0)")


def run(arguments: argparse.Namespace) -> int:
    """Emulate and print; exit code 0, or 1 where observed runs are impossible."""
    from fpsim._files import load_array
    from fpsim.commands._progress import ProgressLine
    from fpsim.spreads import spread

    line = ProgressLine("emulating runs", sys.stderr)
    seed = whole("--seed", arguments.seed, 0)
    operands = _operands(arguments, seed)
    predicted = spread(
        arguments.op,
        *operands,
        strategy=arguments.strategy,
        runs=whole("--runs", arguments.runs, 1),
        axis=1 if len(operands) == 1 and operands[0].ndim == 2 else None,
        arrivals=arguments.arrivals,
        rng=seed,
        progress=line,
    )
    line.clear()
    verdict = None
    if arguments.observed is not None:
        verdict = predicted.test(
            load_array(arguments.observed), error_rate=number("--error-rate", arguments.error_rate)
        )
    if arguments.format == "json":
        found = predicted.to_dict() | ({} if verdict is None else {"test": verdict.to_dict()})
        print(json.dumps(found, indent=2, allow_nan=False))
    else:
        print(predicted)
        if verdict is not None:
            print(f"observed runs: {verdict}")
    return 1 if verdict is not None and verdict.verdict == "impossible" else 0


def _operands(arguments: argparse.Namespace, seed: int) -> list[Any]:
    from fpsim._files import load_array
    from fpsim.laws import law
    from fpsim.prediction import sizes_of

    if arguments.inputs:
        if arguments.data or arguments.shape:
            message = "--data and --shape are for data of a law; leave them out with --inputs"
            raise InputError(message)
        return [load_array(path) for path in arguments.inputs]
    if not arguments.data or not arguments.shape or arguments.op == "index_add":
        message = "say where the data come from: --data LAW with --shape (not for index_add), or --inputs FILE ..."
        raise InputError(message)
    sizes = sizes_of(arguments.op, arguments.shape)
    shapes = [sizes[:2], sizes[1:]] if arguments.op == "matmul" else [sizes] * (1 if arguments.op == "sum" else 2)
    laws = arguments.data if len(arguments.data) == len(shapes) else arguments.data[:1] * len(shapes)
    if len(arguments.data) not in (1, len(shapes)):
        message = f"--data is given once or {len(shapes)} times, not {len(arguments.data)} times"
        raise InputError(message)
    import numpy as np

    rng = np.random.default_rng(seed)
    return [law(text).draw(shape, rng=rng, dtype=arguments.dtype) for text, shape in zip(laws, shapes, strict=True)]
