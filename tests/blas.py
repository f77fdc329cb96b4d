"""Which BLAS NumPy runs here, as the tests of rules for it need to know."""

from __future__ import annotations

try:
    import threadpoolctl
except ImportError:  # then nothing is known of the BLAS, and tests of its rules are skipped
    threadpoolctl = None


def _openblas() -> tuple[str, str]:
    """Return the kernels that NumPy's OpenBLAS runs and its version, empty for another BLAS."""
    for pool in threadpoolctl.threadpool_info() if threadpoolctl is not None else ():
        if pool["user_api"] == "blas" and pool["internal_api"] == "openblas":
            return str(pool.get("architecture")).lower(), ".".join(str(pool.get("version")).split(".")[:3])
    return "", ""


CORE, VERSION = _openblas()
#: The kernels that can run here: a processor for SKYLAKEX also runs those of HASWELL.
CORES = {"skylakex": ("skylakex", "haswell"), "haswell": ("haswell",)}.get(CORE, ())
