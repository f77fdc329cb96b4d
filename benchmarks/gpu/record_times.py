"""Time an elementwise product with NumPy and on the GPU, and write the figures that `fpsim check` shows without a GPU.

Usage: python benchmarks/gpu/record_times.py -o FOLDER
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from fpsim._check_text import crossover_text
from fpsim.devices import implementations
from fpsim.devices.timing import crossover


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", default=os.environ.get("OUT", "."))
    options = parser.parse_args()
    measured = crossover(implementations(["numpy", "cupy", "torch.cuda"]))
    if not measured.measured:
        print("no GPU library runs here", file=sys.stderr)
        return 1
    names = ("cpu", "gpu", "sizes", "cpu_seconds", "gpu_seconds", "gpu_seconds_with_transfers")
    text = json.dumps({name: measured.to_dict()[name] for name in names}, indent=2)
    (Path(options.output) / "h200_times.json").write_text(f"{text}\n", encoding="utf-8")
    print("\n".join(crossover_text(measured)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
