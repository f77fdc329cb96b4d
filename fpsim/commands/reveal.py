"""``fpsim reveal``: the strategy of a function, proved by replay."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from fpsim.commands import _elementary
from fpsim.commands._options import whole
from fpsim.errors import FileError, InputError

_DESCRIPTION = """\
Find the order and arithmetic of a function, and prove it by replay on random operands. Exit code 0: found; 3: no
strategy could be established, and the output says what was; 2: wrong usage."""

_EXAMPLES = """\
examples:
  fpsim reveal numpy.sum --n 4096
  fpsim reveal numpy.matmul --shape 64x100x48
  fpsim reveal torch.matmul --device cuda --shape 400x400x400
  fpsim reveal torch.cuda:sum --n 1000            (an implementation of `fpsim check --list`)
  fpsim reveal my_module.my_sum --op sum --n 100 --n 1000 --save profile.json
  fpsim reveal my_kernels.block_sum --op sum --cuda-simulator --n 100       (a numba.cuda kernel, without a GPU)
  fpsim reveal --elementary torch.erf                                       (which model gives its bits)
  fpsim reveal --elementary libm.expf --range=-1:1 --save expf.npz          (a profile, where none does)"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.add_argument("target", metavar="TARGET", help="a function, or an implementation and its operation")
    parser.add_argument(
        "--op", metavar="OP", help="sum, mean, dot, matvec, vecmat or matmul, where the name does not tell"
    )
    parser.add_argument("--n", metavar="N", action="append", help="number of terms, for vectors; may be repeated")
    parser.add_argument("--shape", metavar="MxKxN", action="append", help="shape of a product; may be repeated")
    parser.add_argument("--dtype", metavar="TYPE", default="float32", help="format of the operands (default: float32)")
    parser.add_argument("--device", metavar="NAME", help="for functions of torch: cuda or cpu")
    parser.add_argument("--strategy", metavar="TEXT", action="append", help="to be tried first; may be repeated")
    parser.add_argument(
        "--cuda-simulator", action="store_true", help="run numba.cuda kernels in Numba's simulator, and read their PTX"
    )
    parser.add_argument(
        "--replays", metavar="N", help="random operands for the proof (default: 200, or 20 in the simulator)"
    )
    parser.add_argument("--probe", action="store_true", help="probe trees of any size, pair by pair: about 5 N calls")
    parser.add_argument("--seed", metavar="N", default="0", help="seed of probes and replays (default: 0)")
    parser.add_argument(
        "--save", metavar="FILE", help="write a profile (JSON; .npz for --elementary); an existing file is not replaced"
    )
    _elementary.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Reveal and print; exit code 3 where nothing could be established for a size."""
    if arguments.elementary:
        return _elementary.run(arguments)
    _elementary.refuse(arguments)

    from fpsim._targets import target
    from fpsim.commands._progress import ProgressLine
    from fpsim.profiles.recording import profile_of, save
    from fpsim.revealing import reveal

    if arguments.cuda_simulator:
        return _kernel(arguments)
    found = target(arguments.target, device=arguments.device)
    op = arguments.op or found.op
    if op is None:
        message = f"say with --op what {arguments.target} computes: sum, mean, dot, matvec, vecmat or matmul"
        raise InputError(message)
    sizes = _sizes(arguments)
    if arguments.save is not None and Path(arguments.save).exists():
        message = f"{arguments.save} exists already; choose another name, or remove it first"
        raise FileError(message)
    results = []
    for size in sizes:
        progress = ProgressLine(f"revealing {'x'.join(map(str, size))}", sys.stderr)
        try:
            results.append(
                reveal(
                    found.function,
                    op=op,
                    shape=size,
                    dtype=arguments.dtype,
                    strategies=arguments.strategy or (),
                    replays=whole("--replays", arguments.replays or "200", 1),
                    probe=arguments.probe or None,
                    rng=whole("--seed", arguments.seed, 0),
                    progress=progress,
                )
            )
        finally:
            progress.clear()
    out = {"target": arguments.target, "results": [one.to_dict() for one in results]}
    if arguments.save is not None:
        save(
            profile_of(
                results,
                name=Path(arguments.save).stem,
                device=found.device,
                implementation=found.implementation,
                versions=found.versions,
                notes=[f"revealed by calls of {arguments.target}"],
            ),
            arguments.save,
        )
    print(json.dumps(out, indent=2) if arguments.format == "json" else "\n\n".join(map(str, results)))
    return 0 if all(one.found for one in results) else 3


def _kernel(arguments: argparse.Namespace) -> int:
    """Reveal a ``numba.cuda`` kernel without a GPU."""
    from fpsim._targets import operation_of
    from fpsim.revealing_kernels import reveal_kernel

    for option in ("device", "save"):
        if getattr(arguments, option) is not None:
            message = f"--{option} does not go together with --cuda-simulator, which shows the order of no device"
            raise InputError(message)
    op = arguments.op or operation_of(arguments.target)
    if op is None:
        message = f"say with --op what {arguments.target} computes: sum, mean, dot, matvec, vecmat or matmul"
        raise InputError(message)
    results = [
        reveal_kernel(
            arguments.target,
            op=op,
            shape=size,
            dtype=arguments.dtype,
            strategies=arguments.strategy or (),
            replays=whole("--replays", arguments.replays or "20", 1),
            probe=arguments.probe or None,
            rng=whole("--seed", arguments.seed, 0),
            progress=True,
        )
        for size in _sizes(arguments)
    ]
    out = {"target": arguments.target, "results": [one.to_dict() for one in results]}
    print(json.dumps(out, indent=2) if arguments.format == "json" else "\n\n".join(map(str, results)))
    return 0 if all(one.found for one in results) else 3


def _sizes(arguments: argparse.Namespace) -> list[tuple[int, ...]]:
    given: list[Any] = [*(arguments.n or ()), *(arguments.shape or ())]
    if not given:
        message = "say for how many terms: --n N, or --shape MxKxN for a product"
        raise InputError(message)
    return [tuple(whole("a size", word, 1) for word in text.lower().split("x")) for text in given]
