"""A process of its own that reveals a kernel in the simulator, or compiles it; Numba is imported here, not before.

``python -m fpsim.devices._kernel_process REQUEST RESULT``, both JSON files.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np


def function_of(target: dict[str, Any]) -> Callable[..., Any]:
    """Import the host function of a request."""
    if target["file"]:
        spec = importlib.util.spec_from_file_location("fpsim_kernels_of_main", target["file"])
        assert spec is not None
        assert spec.loader is not None
        found: Any = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = found
        spec.loader.exec_module(found)
    else:
        found = importlib.import_module(target["module"])
    for part in target["name"].split("."):
        found = getattr(found, part)
    if not callable(found):
        message = f"{target['name']} of {target['module']} is no function"
        raise TypeError(message)
    function: Callable[..., Any] = found
    return function


def simulated(request: dict[str, Any]) -> dict[str, Any]:
    """Reveal in the simulator; return what was revealed, and the atomic additions that were met."""
    from fpsim.commands._progress import ProgressLine
    from fpsim.devices._kernel_launches import counted
    from fpsim.devices._simulator import completed
    from fpsim.revealing import reveal

    progress = ProgressLine("revealing in the CUDA simulator", sys.stderr) if request["progress"] else None
    with completed(), counted() as counts:
        found = reveal(
            function_of(request["target"]),
            op=request["op"],
            shape=tuple(request["shape"]),
            dtype=request["dtype"],
            strategies=request["strategies"],
            replays=request["replays"],
            probe=request["probe"],
            rng=request["rng"],
            progress=progress,
        )
    if progress is not None:
        progress.clear()
    return {
        "revealed": found.to_dict(),
        "outputs": [part.outputs.tolist() for part in found.parts],
        "launches": counts.launches,
        "contributions": counts.contributions,
    }


def compiled(request: dict[str, Any]) -> dict[str, Any]:
    """Run the host function with launches that are compiled instead; return their PTX."""
    from fpsim._black_box import BlackBox
    from fpsim.devices._kernel_launches import recorded
    from fpsim.formats import as_format

    with recorded(tuple(request["cc"])) as launches:
        function = function_of(request["target"])
        box = BlackBox(function, request["op"], tuple(request["shape"]), as_format(request["dtype"]))
        result = np.asarray(function(*box.draw("normal(0, 1)", np.random.default_rng(0))))
    return {"launches": [one.to_dict() for one in launches], "result": str(result.dtype)}


def main(arguments: list[str]) -> int:
    """Do what a request says; what goes wrong is written as the result."""
    request = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    sys.path[:] = request["path"]
    warnings.simplefilter("ignore")
    out: dict[str, Any] = {}
    try:
        out["version"] = metadata.version("numba-cuda")
        out |= {"simulate": simulated, "compile": compiled}[request["mode"]](request)
    except Exception as error:  # noqa: BLE001 - whatever the kernel, Numba or fpsim raises is told by the caller
        out["error"] = [type(error).__name__, " ".join(str(error).split())[:400]]
    Path(arguments[1]).write_text(json.dumps(out), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
