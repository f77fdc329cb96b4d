"""Reveal a ``numba.cuda`` kernel on a CPU: its tree in the CUDA simulator, its arithmetic in its PTX."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from fpsim._ptx import ADDS, FUSED, PRODUCTS, PtxFacts, facts_of
from fpsim._revealed import Evidence, Revealed, RevealedPart
from fpsim.arithmetic import Rounding
from fpsim.errors import InputError, MissingExtraError, StrategyError
from fpsim.formats import format_named
from fpsim.orders import Order
from fpsim.strategies import Strategy, strategy as as_strategy

SCHEMA: Final = "fpsim.revealed-kernel/1"
REPLAYS: Final = 20
_SWITCH: Final = "NUMBA_ENABLE_CUDASIM"
_UNPROVED: Final = (
    "the assembler ptxas was not run: that it keeps the order and kind of these instructions is what NVIDIA documents,"
    " not what was seen; other sizes and launches were not tried"
)


@dataclass(frozen=True, slots=True)
class RevealedKernel:
    """The strategy of a kernel; see `reveal_kernel`.

    Attributes
    ----------
    strategy : Strategy or None
        The order that the simulator shows, with the arithmetic that the PTX shows; None where one of them does not
        tell, or where there are several.
    parts : tuple of RevealedPart
        The strategies of the outputs, where they differ.
    simulated : Revealed
        What was revealed in the simulator, which rounds each product and each addition in the types that NumPy gives
        them; its replays prove the order.
    kernels : tuple of str
        The kernels that were launched, with blocks and threads.
    ptx : PtxFacts
        Their floating-point instructions.
    facts, reasons : tuple of str
        What the PTX shows, and why no strategy is claimed.
    """

    strategy: Strategy | None
    parts: tuple[RevealedPart, ...]
    simulated: Revealed
    kernels: tuple[str, ...]
    ptx: PtxFacts
    facts: tuple[str, ...]
    reasons: tuple[str, ...]

    @property
    def found(self) -> bool:
        """Whether every output's strategy is known."""
        return self.strategy is not None or bool(self.parts)

    def __str__(self) -> str:
        from fpsim._revealed_text import kernel_text

        return kernel_text(self, _UNPROVED)

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects."""
        return {
            "schema": SCHEMA,
            "op": self.simulated.op,
            "shape": list(self.simulated.shape),
            "dtype": self.simulated.dtype,
            "strategy": None if self.strategy is None else str(self.strategy),
            "parts": [{"strategy": str(p.strategy), "outputs": int(p.outputs.sum())} for p in self.parts],
            "kernels": list(self.kernels),
            "ptx": dict(self.ptx.counts),
            "facts": list(self.facts),
            "reasons": list(self.reasons),
            "unproved": _UNPROVED,
            "simulated": self.simulated.to_dict(),
        }


def reveal_kernel(
    function: str | Callable[..., Any],
    /,
    *,
    op: str = "sum",
    n: int | None = None,
    shape: tuple[int, ...] | None = None,
    dtype: Any = "float32",
    strategies: Sequence[str | Strategy | Order] = (),
    replays: int = REPLAYS,
    probe: bool | None = None,
    rng: int = 0,
    cc: tuple[int, int] = (9, 0),
    timeout: float = 3600.0,
    progress: bool = False,
) -> RevealedKernel:
    """Find the strategy of a ``numba.cuda`` kernel without a GPU.

    Parameters
    ----------
    function : str or callable
        A function of a module, or its name (``my_kernels.block_sum``), that takes one array (sum, mean) or two
        (products), launches one or more kernels, and returns the result. It is imported again, in a process of its own.
    op, n, shape, dtype, strategies, probe
        As for `reveal`. A call takes about 2 ms for each thread in the simulator, and some 60 are made: choose small
        sizes and launches.
    replays : int
        Random operands for the proof of the order, 20 by default.
    rng : int
        Seed of probes and replays.
    cc : (int, int)
        Compute capability to compile for; 9.0 by default.
    timeout : float
        Seconds after which the simulator is given up.
    progress : bool
        Whether to show on standard error how far the simulator is.

    Returns
    -------
    RevealedKernel
        Its strategy is None where the simulator does not show the order, or the PTX leaves the arithmetic open.

    Raises
    ------
    MissingExtraError
        numba-cuda is missing.
    InputError
        The function cannot be imported, simulated or compiled, with the reason.

    Notes
    -----
    Numba's CUDA simulator runs each thread in Python, and rounds float32 sums and products of NumPy as IEEE 754 says; it
    has no fused multiply-add, and gives Python's numbers other types than the compiler does. So only the order is taken
    from it, proved by replays with the simulator's own arithmetic; what is fused, and the format of accumulators, is
    read from the PTX that numba-cuda compiles. Atomic additions of more than one number to a place have no fixed order.
    """
    if find_spec("numba_cuda") is None:
        message = "reveal_kernel needs numba-cuda, with its compiler: python -m pip install 'numba-cuda[cu13]'"
        raise MissingExtraError(message)
    sizes = (n,) if n is not None else shape
    if sizes is None or (n is not None and shape is not None):
        message = f"give n for vectors or shape for products, one of them, for {op}"
        raise InputError(message)
    request = {
        "target": _target(function), "op": op, "shape": [int(size) for size in sizes], "dtype": str(dtype),
        "strategies": [str(one) for one in strategies], "replays": replays, "probe": probe, "rng": rng, "cc": list(cc),
        "progress": progress, "path": [str(Path.cwd()), *sys.path],
    }  # fmt: skip
    made = _asked({**request, "mode": "compile"}, timeout)  # first, as it takes seconds and may refuse
    if not made["launches"]:
        message = f"{request['target']['name']} launches no numba.cuda kernel"  # type: ignore[index]
        raise InputError(message)
    seen = _asked({**request, "mode": "simulate"}, timeout)
    return combined(_revealed(seen), made["launches"], made["result"], seen["contributions"])


# --- the two processes ----------------------------------------------------------------------------------------------


def _target(function: str | Callable[..., Any]) -> dict[str, str]:
    if isinstance(function, str):
        module, _, name = function.partition(":") if ":" in function else function.rpartition(".")
        if not module or not name:
            message = f"name a function of a module, as in my_kernels.block_sum, not {function!r}"
            raise InputError(message)
        return {"module": module, "name": name, "file": ""}
    module, name = getattr(function, "__module__", None) or "", getattr(function, "__qualname__", "")
    file = ""
    if module == "__main__":
        file = str(getattr(sys.modules[module], "__file__", None) or "")
    if not module or not name or "<" in name or (module == "__main__" and not file):
        message = f"reveal_kernel imports the function again, in the simulator: put {name or function!r} in a module"
        raise InputError(message)
    return {"module": module, "name": name, "file": str(Path(file).resolve()) if file else ""}


def _asked(request: dict[str, Any], timeout: float) -> dict[str, Any]:
    """Run a request in a process of its own, with the simulator switched on or off before Numba is imported."""
    simulates = request["mode"] == "simulate"
    environment = {**os.environ, _SWITCH: "1" if simulates else "0"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    with tempfile.TemporaryDirectory() as folder:
        asked, answer = Path(folder, "request.json"), Path(folder, "result.json")
        asked.write_text(json.dumps(request), encoding="utf-8")
        try:
            done = subprocess.run(
                [sys.executable, "-m", "fpsim.devices._kernel_process", str(asked), str(answer)],
                env=environment, stdout=subprocess.DEVNULL, stderr=None if request["progress"] else subprocess.PIPE,
                check=False, timeout=timeout,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            message = f"the simulator took more than {timeout:g} s; choose fewer terms, threads or replays"
            raise InputError(message) from error
        if not answer.exists():
            said = (done.stderr or b"").decode(errors="replace").strip()[-300:]
            message = f"the process of the kernel ended with code {done.returncode}: {said}"
            raise InputError(message)
        out: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if "error" in out:
        raise InputError(_reason(request, out))
    return out


def _reason(request: dict[str, Any], out: dict[str, Any]) -> str:
    kind, said = out["error"]
    name, version = request["target"]["name"], out.get("version", "")
    lacking = said.rpartition("has no attribute ")[2].strip("'")
    if request["mode"] == "simulate" and ("FakeCUDAModule" in said or "numba.cuda" in said) and lacking != said:
        return (
            f"the CUDA simulator of numba-cuda {version} has no cuda.{lacking}, so {name} cannot be run in it; reveal it"
            " on a GPU with fpsim.reveal"
        )
    what = "run in the CUDA simulator" if request["mode"] == "simulate" else "compiled to PTX"
    return f"{name} cannot be {what} ({kind}: {said})"


def _revealed(seen: dict[str, Any]) -> Revealed:
    """Return what the simulator's process wrote, as it was but for counterexamples."""
    r = seen["revealed"]
    e = r["evidence"]
    evidence = Evidence(
        e["calls"], e["seconds"], e["method"], e["replays"], e["equal"], tuple(e["facts"]), tuple(e["notes"]), e["tree"]
    )
    parts = tuple(
        RevealedPart(as_strategy(part["strategy"]), np.array(outputs, np.bool))
        for part, outputs in zip(r["parts"], seen["outputs"], strict=True)
    )
    chosen = None if r["strategy"] is None else as_strategy(r["strategy"])
    return Revealed(r["op"], tuple(r["shape"]), r["dtype"], chosen, parts, tuple(r["alternatives"]), evidence)


# --- order and arithmetic together ----------------------------------------------------------------------------------


def combined(
    simulated: Revealed, launches: Sequence[dict[str, Any]], result: str, contributions: int, /
) -> RevealedKernel:
    """Return the order of the simulator with the arithmetic of the PTX.

    Parameters
    ----------
    simulated : Revealed
        From the simulator.
    launches : sequence of dict
        For each kernel: name, ptx, fastmath, grid, block.
    result : str
        The dtype of the results.
    contributions : int
        The most atomic additions of floating-point numbers to one place that the simulator has met.
    """
    if simulated.strategy is not None:
        simulated = dataclasses.replace(simulated, strategy=_plain(simulated), alternatives=())
    ptx = facts_of(*(one["ptx"] for one in launches))
    facts: list[str] = []
    reasons = _open(ptx, contributions) + [
        f"{one['name']} is compiled with fastmath, which lets the compiler change the order" for one in launches
        if one["fastmath"]
    ]  # fmt: skip
    changes = _changes(ptx, simulated, result, facts, reasons)
    if ptx.atomics and contributions <= 1:
        facts.append(
            "no place gets more than one atomic addition; in memory of float32 it flushes subnormal numbers, which the"
            " strategy does not"
        )
    if not simulated.found:
        reasons.append("the simulator does not show one order")
    chosen: Strategy | None = None
    parts: tuple[RevealedPart, ...] = ()
    if not reasons:
        try:
            chosen = None if simulated.strategy is None else _with(simulated.strategy, changes)
            parts = tuple(RevealedPart(_with(part.strategy, changes), part.outputs) for part in simulated.parts)
        except StrategyError as error:
            reasons.append(f"the order and the arithmetic do not go together: {error}")
    kernels = tuple(f"{one['name']}[{_dims(one['grid'])}, {_dims(one['block'])}]" for one in launches)
    return RevealedKernel(chosen, parts, simulated, kernels, ptx, tuple(facts), tuple(reasons))


def _dims(size: Sequence[int]) -> str:
    kept = list(size)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return str(kept[0]) if len(kept) == 1 else f"({', '.join(map(str, kept))})"


def _open(ptx: PtxFacts, contributions: int) -> list[str]:
    """Return why the PTX alone leaves order or arithmetic open."""
    reasons = []
    if ptx.matrix:
        reasons.append("there are tensor-core instructions, whose order is the device's")
    if ptx.swaps:
        reasons.append("there are atomic compare-and-swaps, from which additions in any order can be built")
    if ptx.atomics and contributions > 1:
        reasons.append(
            f"{' and '.join(ptx.atomics)}: up to {contributions} numbers are added to one place atomically, in the order"
            " of their arrival, which the simulator does not show"
        )
    if ptx.directed:
        reasons.append(f"{' and '.join(ptx.directed)}: rounding that is not to nearest")
    if ptx.approximate:
        reasons.append(f"{' and '.join(ptx.approximate)}: results that the simulator does not have")
    if ptx.flushes is None:
        reasons.append("some float32 instructions flush subnormal numbers, and others do not")
    return reasons


def _changes(ptx: PtxFacts, simulated: Revealed, result: str, facts: list[str], reasons: list[str]) -> dict[str, Any]:
    """Return the settings that the PTX shows; say what it shows, and what it leaves open."""
    changes: dict[str, Any] = {}
    multiplies = simulated.op not in ("sum", "mean")
    fused, products = ptx.named(FUSED), ptx.named(PRODUCTS)
    sums = ptx.types((*ADDS, *FUSED, "atom", "red"))
    if len(sums) > 1:
        reasons.append(f"additions in {' and in '.join(sorted(sums))}, which belong to no single accumulator")
    elif sums:
        (wide,) = sums
        facts.append(f"accumulators are {wide}")
        if wide != "float32" or simulated.dtype != "float32":
            changes["accumulator"] = Rounding(format_named(wide))
        if wide != result:
            changes["output"] = Rounding(format_named(result))
        if ptx.types(PRODUCTS) - {wide}:
            reasons.append(f"products in {' and in '.join(sorted(ptx.types(PRODUCTS)))}, sums in {wide}")
    if fused and (products or not multiplies):
        where = f"beside {' and '.join(products)}" if products else "in a sum of single terms"
        reasons.append(f"{' and '.join(fused)} {where}: which operations are fused is not read from the PTX")
    elif fused:
        changes["fma"] = True
        facts.append(f"every product is fused into its addition ({', '.join(fused)}), as there is no other product")
    elif products and ptx.contractible:
        reasons.append(
            f"{' and '.join(products)} and additions carry no rounding modifier, so that the assembler may fuse them"
        )
    elif products and multiplies:
        changes["fma"] = False
        facts.append(f"products are rounded before they are added ({', '.join(products)})")
    if ptx.flushes:
        changes |= {"ftz": True, "daz": True}
        facts.append("subnormal numbers are flushed (.ftz)")
    return changes


def _plain(simulated: Revealed) -> Strategy:
    """Return the strategy of a general order, where one has the same bits as the rule of a library."""
    from fpsim.orders.named import NamedRule

    assert simulated.strategy is not None
    found = [simulated.strategy, *map(as_strategy, simulated.alternatives)]
    return next((one for one in found if not isinstance(one.order, NamedRule)), found[0])


def _with(chosen: Strategy, changes: dict[str, Any]) -> Strategy:
    settings = dataclasses.replace(chosen.settings, **changes)
    return dataclasses.replace(chosen, settings=settings)
