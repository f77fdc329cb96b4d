"""What all tests share: a fresh cache of compiled kernels, and reproducible random examples."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

if "NUMBA_CACHE_DIR" not in os.environ:
    # A cached caller is not recompiled when a kernel that it calls has changed in another file.
    _cache = tempfile.mkdtemp(prefix="fpsim-numba-")
    os.environ["NUMBA_CACHE_DIR"] = _cache
    atexit.register(shutil.rmtree, _cache, ignore_errors=True)

sys.path.insert(0, str(Path(__file__).parent))  # for `reference`

try:
    import hypothesis
except ImportError:
    pass
else:
    hypothesis.settings.register_profile("local", deadline=None)
    hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
    hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")
