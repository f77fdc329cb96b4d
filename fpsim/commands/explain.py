"""``fpsim explain``: why results of one operation differ, from files."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fpsim.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fpsim.explanation import Explanation

HELP = "explain why two results of one operation differ"
#: Formats of the result beside text and JSON.
FORMATS = ("html",)
_TEXT = (".csv", ".txt")
_TYPES = ("float16", "float32", "float64")
_EPILOG = """\
exit codes: 0 rounding explains it, 1 it does not (a bug, or different computations), 2 wrong usage or unusable input,
3 unknown
examples: fpsim explain cpu.npy gpu.npy --op matmul --inputs A.npy B.npy
          fpsim explain cpu.npy gpu.npy --op matmul --inputs A.npy B.npy --format html > report.html
          fpsim explain --live numpy.matmul --against numba.fma --shape 64x64x64"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument(
        "observed",
        nargs="*",
        metavar="FILE",
        help="observed results: .npy, .npz (file.npz:key), .safetensors, .pt, .csv or .txt; or one case as .json",
    )
    parser.add_argument("--op", help="the operation that gave them: sum, dot, matmul, var, cumsum, log, ...")
    parser.add_argument("--inputs", nargs="+", metavar="FILE", help="its inputs: one for sum, two for dot and matmul")
    parser.add_argument("--axis", type=_axes, help="axis of a sum, or several as 0,1 (default: all)")
    parser.add_argument("--names", nargs="+", metavar="NAME", help="how the results are called (default: file names)")
    parser.add_argument(
        "--strategy", action="append", default=[], metavar="TEXT", help="a strategy to try as well; may be repeated"
    )
    parser.add_argument(
        "--dtype", choices=_TYPES,
        help="what numbers in text files are rounded to (default: the type of the other files, or the narrower of"
        " float32 and float64 that holds them all as printed)",
    )  # fmt: skip
    live = parser.add_argument_group("real routines in place of files")
    live.add_argument(
        "--live", metavar="ROUTINE", help="run it here and explain what it gives: numpy.matmul, torch.cpu.sum, ..."
    )
    live.add_argument(
        "--against", nargs="+", default=[], metavar="NAME", help="other implementations, see fpsim check --list"
    )
    live.add_argument("--shape", type=_shape, help="size of its operands, such as 64x64x64")
    live.add_argument("--data", default="normal", metavar="LAW", help="law of its operands (default: normal)")
    live.add_argument("--seed", type=int, default=0, help="of its operands (default: 0)")
    parser.add_argument(
        "--save-deciding", metavar="FILE",
        help="write the input that tells apart what gives the same bits here to a new .npz file, if there is one",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from fpsim._files import load_array

    if arguments.live is not None:
        return _live(arguments)
    if not arguments.observed:
        message = "give files with results, or a routine to run with --live"
        raise InputError(message)
    if arguments.against:
        message = "--against belongs to --live"
        raise InputError(message)
    if len(arguments.observed) == 1 and arguments.observed[0].endswith(".json"):
        return _case(arguments)
    if (arguments.op is None) != (arguments.inputs is None):
        message = "--op and --inputs go together: give both, or neither"
        raise InputError(message)
    if arguments.op is None and arguments.axis is not None:
        message = "--axis needs --op sum and --inputs"
        raise InputError(message)
    names = _names(arguments.observed, arguments.names)
    paths = [*arguments.observed, *(arguments.inputs or ())]
    loaded = [load_array(path) for path in paths]
    arrays = _typed(paths, loaded, arguments.dtype)
    observed, inputs = arrays[: len(names)], arrays[len(names) :]
    from fpsim.explanation import explain

    found = explain(
        dict(zip(names, observed, strict=True)),
        op=arguments.op, inputs=inputs or None, axis=arguments.axis, strategies=arguments.strategy,
    )  # fmt: skip
    return _shown(found, arguments)


def _live(arguments: argparse.Namespace) -> int:
    """Run routines and explain their results."""
    from fpsim._files import load_array
    from fpsim.explaining.live import explain_live

    if arguments.observed or arguments.op is not None:
        message = "--live runs the routine itself: leave result files and --op out"
        raise InputError(message)
    inputs = None if arguments.inputs is None else [load_array(path) for path in arguments.inputs]
    found = explain_live(
        arguments.live, against=arguments.against, inputs=inputs, shape=arguments.shape, data=arguments.data,
        dtype=arguments.dtype or "float32", seed=arguments.seed,
    )  # fmt: skip
    return _shown(found, arguments)


def _case(arguments: argparse.Namespace) -> int:
    """Explain a case that a JSON file describes; decimals keep the digits that they have in the file."""
    from fpsim.errors import FileError
    from fpsim.explanation import explain

    path = Path(arguments.observed[0])
    try:
        case = json.loads(path.read_text("utf-8"), parse_float=str)
    except (OSError, ValueError) as error:
        message = f"{path}: not a readable JSON file ({error})"
        raise FileError(message) from error
    if not isinstance(case, dict):
        message = f"{path}: a case is an object with operation, inputs and observed"
        raise FileError(message)
    found = explain(case)
    return _shown(found, arguments)


def _shown(found: Explanation, arguments: argparse.Namespace) -> int:
    """Print an explanation, save what was asked for, and return the exit code."""
    if arguments.format == "html":
        print(found.to_html(), end="")
    else:
        print(json.dumps(found.to_dict(), indent=2, allow_nan=False) if arguments.format == "json" else found)
    if arguments.save_deciding is not None:
        if found.deciding_input is None:
            print("fpsim explain: nothing to decide, so that no input is saved", file=sys.stderr)
        else:
            found.deciding_input.save(arguments.save_deciding)
    return found.exit_code


def _axes(text: str) -> Any:
    numbers = tuple(int(part) for part in text.split(","))
    return numbers if len(numbers) > 1 else numbers[0]


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.lower().split("x"))


_shape.__name__ = "shape"
_axes.__name__ = "axis"  # argparse names it in its message


def _names(paths: Sequence[str], given: Sequence[str] | None) -> list[str]:
    """Return the names of the results: those given, or the shortest ends of the paths that tell them apart."""
    if given is not None:
        if len(given) != len(paths) or len(set(given)) != len(given):
            message = f"--names needs {len(paths)} different names, one for each result"
            raise InputError(message)
        return list(given)
    if len(set(paths)) != len(paths):
        message = "the same file is given twice"
        raise InputError(message)
    for name in (lambda p: Path(p).stem if ":" not in Path(p).name else Path(p).name, lambda p: Path(p).name, str):
        names = [name(path) for path in paths]
        if len(set(names)) == len(names):
            break
    return names


def _typed(paths: Sequence[str], arrays: list[NDArray[Any]], wanted: str | None) -> list[NDArray[Any]]:
    """Round what was read from text to the type that it was printed from."""
    import numpy as np

    is_text = [Path(path).suffix.lower() in _TEXT for path in paths]
    if not any(is_text):
        return arrays
    if wanted is None:
        binary = {str(array.dtype) for array, text in zip(arrays, is_text, strict=True) if not text}
        known = [name for name in _TYPES if name in binary]
        if known:
            wanted = known[-1] if len(known) == 1 else "float32" if "float32" in known else known[-1]
        else:
            decimals = [array for array, text in zip(arrays, is_text, strict=True) if text]
            wanted = "float32" if all(map(_printed_from_float32, decimals)) else "float64"
        print(f"fpsim explain: numbers in text files are read as {wanted}; --dtype says otherwise", file=sys.stderr)
    with np.errstate(all="ignore"):
        return [array.astype(wanted) if text else array for array, text in zip(arrays, is_text, strict=True)]


def _printed_from_float32(values: NDArray[Any]) -> bool:
    """Whether every decimal is what a float32 prints as: in full, as short as can be, or in nine digits."""
    import numpy as np

    with np.errstate(all="ignore"):
        narrow = values.astype(np.float32)
        shortest = np.array([float(str(x)) for x in narrow.reshape(-1)]).reshape(values.shape)
        nine_digits = np.abs(values - narrow) <= 5.001e-9 * np.abs(values)
    return bool(np.all((narrow == values) | (shortest == values) | nine_digits | np.isnan(values)))
