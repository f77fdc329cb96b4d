"""Which BLAS NumPy runs here, as the tests of rules for it need to know."""

from __future__ import annotations

from pathlib import Path

from fpsim.devices._openblas import numpy_blas

_BLAS = numpy_blas()
#: The kernels that NumPy's OpenBLAS runs and its version, empty for another BLAS or one of another build.
CORE, VERSION = ("", "") if _BLAS.build else (_BLAS.core, _BLAS.version)
#: The kernels that can run here: a processor for SKYLAKEX also runs those of HASWELL.
CORES = {"skylakex": ("skylakex", "haswell"), "haswell": ("haswell",)}.get(CORE, ())


def _is_zen4() -> bool:
    """Whether OpenBLAS takes the processor for AMD's Zen 4 or 5: one with AVX-512."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return "AuthenticAMD" in text and " avx512f " in text


PROCESSOR = "zen4" if _is_zen4() else "other"
