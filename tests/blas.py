"""Which BLAS NumPy runs here, as the tests of rules for it need to know."""

from __future__ import annotations

from fpsim.devices._openblas import numpy_blas

_BLAS = numpy_blas()
#: The kernels that NumPy's OpenBLAS runs and its version, empty for another BLAS.
CORE, VERSION = _BLAS.core, _BLAS.version
#: The kernels that can run here: a processor for SKYLAKEX also runs those of HASWELL.
CORES = {"skylakex": ("skylakex", "haswell"), "haswell": ("haswell",)}.get(CORE, ())
