"""``fpsim predict``: the error of strategies on data from files or of a law."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from fpsim.commands._options import whole
from fpsim.errors import InputError

HELP = "predict the error of strategies on given data or a data law"

_DESCRIPTION = """\
Run strategies (summation orders with their arithmetic) on the same data, measure each result against the exact one, and
show the worst-case bound and how often the bits differ from those of NumPy on this machine."""

_EXAMPLES = """\
examples:
  fpsim predict sum --shape 1000000 --data 'uniform(0,1)' --strategy serial --strategy pairwise --strategy lanes:8
  fpsim predict matmul --shape 400x400x400 --data uniform:0:1 --strategy serial --strategy split_k:5 --fma both
  fpsim predict exp --shape 100000 --data normal --strategy torch.cuda --strategy cupy --strategy numpy
  fpsim predict dot --shape 4096 --data normal --data lognormal:0:2 --dtype bfloat16
  fpsim predict matmul --inputs A.npy B.npy --strategy serial+fma --format json
  fpsim predict sum --inputs results.npz:loss --strategy numpy_sum --strategy 'serial+acc(float64)'

data laws: uniform(low,high) normal(mean,sd) lognormal(mean,sd) exponential(scale) constant(value)
  wide(low,high) (random sign times 2**U) harmonic() integers(low,high); in a shell also uniform:0:1"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.add_argument("op", metavar="OP", help="sum, dot or matmul; or a function such as exp or softmax")
    parser.add_argument(
        "--shape", metavar="N", help="terms of a sum or dot product, or M x K x N of a product, as in 400x400x400"
    )
    parser.add_argument(
        "--data", metavar="LAW", action="append", help="law of the data: once, or once for each operand"
    )
    parser.add_argument(
        "--inputs", metavar="FILE", nargs="+", help="operands from .npy, .npz (file.npz:key), .csv or .txt instead"
    )
    parser.add_argument(
        "--strategy", metavar="TEXT", action="append", help="a strategy, such as lanes:8+fma; may be repeated"
    )
    parser.add_argument(
        "--fma", metavar="HOW", help="yes, no or both: how products enter a sum (default: as each strategy says)"
    )
    parser.add_argument("--seed", metavar="N", help="seed of the data (default: 0)")
    parser.add_argument("--repeats", metavar="N", help="how often data are drawn (default: what takes some seconds)")
    parser.add_argument(
        "--run",
        action="store_true",
        help="also run the libraries of this machine on these operands (one draw of a law)",
    )
    parser.add_argument(
        "--dtype", metavar="TYPE", help="type of the operands (default: float32; for files, the type in the file)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Predict and print; exit code 0, or 1 where ``--run`` shows that a rule was wrong."""
    from fpsim._prediction_functions import FUNCTIONS
    from fpsim.bounds import OPERATIONS
    from fpsim.commands._progress import ProgressLine
    from fpsim.prediction import predict

    op = arguments.op
    if op not in (*OPERATIONS, *FUNCTIONS):
        message = f"unknown operation {op!r}; use one of {', '.join((*OPERATIONS, *FUNCTIONS))}"
        raise InputError(message)
    if arguments.run and op in FUNCTIONS:
        message = f"--run is for sums and products; name a library with --strategy, or see fpsim check --ops {op}"
        raise InputError(message)
    settings: dict[str, Any] = {"strategies": arguments.strategy, "fma": _fma(arguments.fma)}
    inputs = _files(arguments) if arguments.inputs else _law_settings(arguments, settings)
    progress = ProgressLine("predicting", sys.stderr)
    try:
        operands = _operands(op, inputs, arguments) if arguments.run else ()
        prediction = predict(op, *inputs, progress=progress, **settings)
    except MemoryError as error:
        message = "the data do not fit into memory; choose a smaller shape"
        raise InputError(message) from error
    finally:
        progress.clear()
    checked = None
    if arguments.run:
        from fpsim.checking import check_operands

        checked = check_operands(op, *operands, source="given data" if arguments.inputs else ", ".join(inputs))
    if arguments.format == "json":
        out = prediction.to_dict()
        if checked is not None:
            out["run"] = checked.to_dict()
        print(json.dumps(out, indent=2, allow_nan=False))
    else:
        print(prediction)
        if checked is not None:
            print(f"\n{checked}")
    return 1 if checked is not None and checked.wrong else 0


def _operands(op: str, inputs: list[Any], arguments: argparse.Namespace) -> tuple[Any, ...]:
    """Return what is run beside the prediction: the given operands, or one draw; an error comes before the work."""
    import numpy as np

    from fpsim.checking import case_of
    from fpsim.laws import law
    from fpsim.prediction import sizes_of

    if arguments.inputs:
        return case_of(op, *inputs)[1]
    sizes = sizes_of(op, arguments.shape)
    shapes = {"sum": [sizes], "dot": [sizes] * 2, "matmul": [sizes[:2], sizes[1:]]}[op]
    laws = inputs if len(inputs) == len(shapes) else inputs * len(shapes)
    # A wrong number of laws is what the prediction says.
    rng = np.random.default_rng(int(arguments.seed or 0))
    dtype = arguments.dtype or "float32"
    operands = [law(one).draw(shape, rng=rng, dtype=dtype) for one, shape in zip(laws, shapes, strict=False)]
    return case_of(op, *operands)[1]


def _fma(word: str | None) -> bool | str | None:
    words = {None: None, "both": "both", "yes": True, "no": False}
    if word not in words:
        message = f"--fma is yes, no or both, not {word!r}"
        raise InputError(message)
    return words[word]


def _law_settings(arguments: argparse.Namespace, settings: dict[str, Any]) -> list[str]:
    """Read what belongs to data of a law into `settings`; return the laws."""
    if arguments.data is None:
        message = "say where the data come from: --data LAW with --shape, or --inputs FILE ..."
        raise InputError(message)
    settings["shape"] = arguments.shape
    settings["dtype"] = arguments.dtype or "float32"
    settings["rng"] = 0 if arguments.seed is None else whole("--seed", arguments.seed, 0)
    if arguments.repeats is not None:
        settings["repeats"] = whole("--repeats", arguments.repeats, 1)
    return list(arguments.data)


def _files(arguments: argparse.Namespace) -> list[Any]:
    """Return the operands from files, rounded to the type that is asked for."""
    from fpsim._files import load_array
    from fpsim.formats import as_format, round_to

    for option in ("data", "shape", "seed", "repeats"):
        if getattr(arguments, option) is not None:
            message = f"--{option} is for data of a law; leave it out with --inputs"
            raise InputError(message)
    wanted = 2 if arguments.op in ("dot", "matmul", "divide", "pow") else 1
    if len(arguments.inputs) != wanted:
        message = f"{arguments.op} takes {wanted} file{'s' * (wanted > 1)}, not {len(arguments.inputs)}"
        raise InputError(message)
    arrays = [load_array(path) for path in arguments.inputs]
    # Decimals have no type of their own: they become float32 unless another is named.
    decimals = [path.lower().endswith((".csv", ".txt")) for path in arguments.inputs]
    if arguments.dtype is None and not any(decimals):
        return arrays
    target = as_format(arguments.dtype or "float32")
    chosen = [array if arguments.dtype is None and not text else round_to(array, target)
              for array, text in zip(arrays, decimals, strict=True)]  # fmt: skip
    for path, array, rounded in zip(arguments.inputs, arrays, chosen, strict=True):
        if _overflows(array, rounded):
            message = f"{path}: holds numbers that {target} does not hold; choose a wider --dtype"
            raise InputError(message)
    return [_stored(array, target) for array in chosen]


def _overflows(array: Any, rounded: Any) -> bool:
    import numpy as np

    return bool((np.isfinite(array) & ~np.isfinite(rounded)).any())


def _stored(array: Any, target: Any) -> Any:
    import numpy as np

    from fpsim.formats import FLOAT16, FLOAT32

    if target == FLOAT16:
        return np.asarray(array, np.float16)
    return np.asarray(array, np.float32) if FLOAT32.includes(target) else np.asarray(array)
