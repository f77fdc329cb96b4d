"""The all-reduce of Gloo: ``torch.distributed`` between processes of this machine, over the loopback interface.

Operation ``all_reduce``: one operand of shape (ranks, n), a row for each rank; the result, of shape (n,), is the same
on every rank, which is checked. The processes start with the first call for a number of ranks and wait for the next.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime as dt
import importlib
import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any

import numpy as np

from fpsim.devices._libraries import imported, release, unknown
from fpsim.devices.base import Array, Implementation, Routine
from fpsim.errors import FpsimError, InputError, UnknownOrderError

#: Torch's name of a type by NumPy's (bfloat16 is that of ml_dtypes).
_TYPES = {"float32": "float32", "float64": "float64", "float16": "float16", "bfloat16": "bfloat16"}
_CHECKED = (2, 13)
_TIMEOUT = 60.0  # seconds that a start or a call may take
_GRACE = 5.0  # seconds that processes get to end by themselves


def implementations() -> list[Implementation]:
    """Return the all-reduce of PyTorch's Gloo."""
    version, missing = _torch()
    known = not missing and release(version) == _CHECKED
    strategy = _strategy if known else unknown(f"Gloo's all-reduce is known for PyTorch 2.13, not for {version}")
    routine = Routine(_launch, strategy)
    return [
        Implementation(
            "gloo", "Gloo in PyTorch", version, "processes of this machine, over loopback", routines={"all_reduce": routine},
            unavailable=missing,
        )
    ]  # fmt: skip


def _torch() -> tuple[str, str]:
    """Return the version of PyTorch, and why its Gloo cannot be used."""
    torch, reason = imported("torch", "PyTorch", "torch")
    if reason:
        return "", reason
    distributed, reason = imported("torch.distributed", "PyTorch", "torch")
    version = str(torch.__version__)
    if reason:
        return version, reason
    if not (distributed.is_available() and distributed.is_gloo_available()):
        return version, "this PyTorch was built without Gloo; install the CPU or CUDA wheel for Linux or macOS"
    return version, ""


def _strategy(x: Array) -> str:
    _check(x)
    if x.dtype.name not in _TYPES:
        message = f"Gloo adds {x.dtype} as integers or not at all; use {', '.join(_TYPES)}"
        raise UnknownOrderError(message)
    return "gloo_ring"


def _launch(x: Array) -> Array:
    results = all_reduce(x)
    bits = results.view(f"i{results.itemsize}")
    if not np.array_equal(bits, np.broadcast_to(bits[0], bits.shape)):
        message = f"the {len(results)} ranks of Gloo's all-reduce hold different results"
        raise FpsimError(message)
    total: Array = results[0]
    return total


def all_reduce(x: Array, /, *, timeout: float = _TIMEOUT) -> Array:
    """Add the rows of an array by ``torch.distributed.all_reduce`` between as many processes as it has rows.

    Parameters
    ----------
    x : ndarray, shape (ranks, n)
        float32, float64, float16, or bfloat16 of ml_dtypes.
    timeout : float, optional
        Seconds after which the processes are ended.

    Returns
    -------
    ndarray, shape (ranks, n)
        What each rank holds afterwards, of the type of x.

    Raises
    ------
    InputError
        x has another shape or type.
    FpsimError
        A process failed, or did not answer in time.
    """
    _check(x)
    if x.dtype.name not in _TYPES:
        message = f"all_reduce takes {', '.join(_TYPES)}, not {x.dtype}"
        raise InputError(message)
    with _LOCK:
        group = _group(x.shape[0], timeout)
        try:
            return group.all_reduce(x, timeout)
        except BaseException:
            _close()
            raise


def _check(x: Array) -> None:
    if x.ndim != 2 or x.shape[0] < 1:
        message = f"all_reduce takes one row for each rank, an array of shape (ranks, n), not {x.shape}"
        raise InputError(message)


# --- the processes ----------------------------------------------------------------------------------------------------

_LOCK = threading.Lock()
_open: list[_Group] = []


def _group(ranks: int, timeout: float) -> _Group:
    """Return the processes for a number of ranks; those for another number are ended."""
    if _open and (_open[0].ranks != ranks or not _open[0].alive):
        _close()
    if not _open:
        _open.append(_Group(ranks, timeout))
    return _open[0]


@atexit.register
def _close() -> None:
    while _open:
        _open.pop().close()


class _Group:
    """Processes that wait for rows to add."""

    def __init__(self, ranks: int, timeout: float) -> None:
        self.ranks = ranks
        self._room = tempfile.TemporaryDirectory(prefix="fpsim-gloo-", ignore_cleanup_errors=True)
        self._folder = Path(self._room.name)
        self._processes: list[subprocess.Popen[str]] = []
        self._answers: list[queue.Queue[str]] = []
        try:
            for rank in range(ranks):
                self._start(rank, timeout)
            self._wait("ready", timeout)
        except BaseException:
            self.close()
            raise

    def _start(self, rank: int, timeout: float) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        if "lo" in (name for _, name in socket.if_nameindex()):
            environment["GLOO_SOCKET_IFNAME"] = "lo"
        command = [sys.executable, "-m", __name__, self._room.name, str(rank), str(self.ranks), str(timeout)]
        with (self._folder / f"error{rank}").open("w") as errors:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=self._folder,
                env=environment,
            )  # fmt: skip
        self._processes.append(process)
        answers: queue.Queue[str] = queue.Queue()
        self._answers.append(answers)
        threading.Thread(target=_read, args=(process.stdout, answers), daemon=True).start()

    @property
    def alive(self) -> bool:
        return all(process.poll() is None for process in self._processes)

    def all_reduce(self, x: Array, timeout: float) -> Array:
        np.save(self._folder / "in.npy", np.ascontiguousarray(x).view(f"i{x.itemsize}"))
        for process in self._processes:
            assert process.stdin is not None
            with contextlib.suppress(OSError):  # a process that has ended is found below
                process.stdin.write(f"{_TYPES[x.dtype.name]}\n")
                process.stdin.flush()
        self._wait("done", timeout)
        return np.stack([np.load(self._folder / f"out{rank}.npy") for rank in range(self.ranks)]).view(x.dtype)

    def _wait(self, word: str, timeout: float) -> None:
        """Wait until every process has answered with a word."""
        end = time.monotonic() + timeout
        for rank, answers in enumerate(self._answers):
            try:
                answer = answers.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                message = f"rank {rank} of Gloo's all-reduce did not answer within {timeout:g} s"
                raise FpsimError(message) from None
            if answer != word:
                lines = (self._folder / f"error{rank}").read_text(errors="replace").strip().splitlines()
                message = f"rank {rank} of Gloo's all-reduce failed: {lines[-1] if lines else 'no message'}"
                raise FpsimError(message)

    def close(self) -> None:
        """End the processes and remove their files."""
        for process in self._processes:
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
        end = time.monotonic() + _GRACE
        for process in self._processes:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._room.cleanup()


def _read(stream: IO[str], answers: queue.Queue[str]) -> None:
    with stream:
        for line in stream:
            answers.put(line.strip())
    answers.put("")


def _work(folder: Path, rank: int, ranks: int, timeout: float) -> None:
    """Add rows until the standard input ends."""
    # Whatever libraries print must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch: Any = importlib.import_module("torch")
    distributed: Any = importlib.import_module("torch.distributed")
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=(folder / "store").as_uri(), rank=rank, world_size=ranks,
        timeout=dt.timedelta(seconds=timeout),
    )  # fmt: skip
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        bits = np.array(np.load(folder / "in.npy", mmap_mode="r")[rank])
        tensor = torch.from_numpy(bits)
        distributed.all_reduce(tensor.view(getattr(torch, line.strip())))
        np.save(folder / f"out{rank}.npy", bits)
        print("done", file=answers, flush=True)
    os._exit(0)  # nothing is left to do, and PyTorch takes its time to end


if __name__ == "__main__":
    _work(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
