"""Time rounding 10^6 values against gfloat, pychop, ml_dtypes and NumPy, as ratios within one run, and count wrong results.

python benchmarks/bench_rounding.py [--repeats 9]

gfloat, pychop and ml_dtypes are optional; a missing one is named and skipped.
"""

from __future__ import annotations

import argparse
import importlib
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # spinning BLAS threads would slow whatever runs next

import numpy as np

import fpsim
from fpsim.formats import BFLOAT16, E4M3FN, FLOAT16, Format

Rounder = Callable[[Any], Any]


def peers(form: Format, dtype: np.dtype[Any]) -> dict[str, Rounder]:
    """Return what can round to this format here, with the same signature."""
    found: dict[str, Rounder] = {"fpsim.round_to": lambda x: fpsim.round_to(x, form)}
    makers = {"gfloat.round_ndarray": _gfloat, "pychop.Chop": _pychop, "ml_dtypes astype": _ml_dtypes}
    for label, make in makers.items():
        name = label.replace(".", " ").split()[0]
        try:
            found[label] = make(importlib.import_module(name), form, dtype)
        except ImportError:
            print(f"{name} is not installed: skipped")
        except LookupError:
            pass  # no such format there
    if form == FLOAT16:
        found["numpy astype"] = lambda x: x.astype(np.float16).astype(dtype)
    return found


def _gfloat(gfloat: Any, form: Format, dtype: np.dtype[Any]) -> Rounder:
    formats = importlib.import_module("gfloat.formats")
    info = {
        "float16": formats.format_info_binary16, "bfloat16": formats.format_info_bfloat16,
        "e4m3fn": formats.format_info_ocp_e4m3,
    }[str(form)]  # fmt: skip
    return lambda x: gfloat.round_ndarray(info, x).astype(dtype, copy=False)


def _pychop(pychop: Any, form: Format, dtype: np.dtype[Any]) -> Rounder:
    pychop.backend("numpy")
    chop = pychop.Chop(exp_bits=form.nexp, sig_bits=form.nmant, subnormal=True, rmode=1)
    return lambda x: np.asarray(chop(x)).astype(dtype, copy=False)


def _ml_dtypes(ml_dtypes: Any, form: Format, dtype: np.dtype[Any]) -> Rounder:
    target = {"bfloat16": ml_dtypes.bfloat16, "e4m3fn": ml_dtypes.float8_e4m3fn}[str(form)]
    return lambda x: x.astype(target).astype(dtype)


def milliseconds(function: Rounder, x: Any, repeats: int) -> float:
    """Return the median time, after one call that warms up; slow functions run three times."""
    times = []
    function(x)
    while len(times) < repeats and not (len(times) >= 3 and sum(times) > 2):
        start = time.perf_counter()
        function(x)
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def hard_values(form: Format, dtype: np.dtype[Any]) -> Any:
    """Return midpoints and both neighbours of each, over the range of the format."""
    rng = np.random.default_rng(1)
    base = np.ldexp(1 + rng.random(100_000), rng.integers(form.emin - form.precision, form.emax, 100_000))
    base = np.asarray(fpsim.round_to(base, form, mode="toward-zero"))
    middle = np.concatenate([base + form.ulp(base) / 2, [form.max + form.ulp(form.max) / 2]]).astype(dtype)
    points = [middle, np.nextafter(middle, dtype.type(0)), np.nextafter(middle, dtype.type(np.inf))]
    return np.concatenate([*points, *(-p for p in points)])


def expected(x: Any, form: Format) -> Any:
    """Round by division by the unit in the last place, exact because that is a power of two."""
    wide = x.astype(np.float64)
    value = np.rint(wide / form.ulp(wide)) * form.ulp(wide)
    beyond = np.nan if form.overflow == "nan" else np.inf
    return np.where(np.abs(value) > form.max, np.copysign(beyond, value), value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    rng = np.random.default_rng(0)
    np.seterr(all="ignore")
    for dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        for form in (FLOAT16, BFLOAT16, E4M3FN):
            x = (rng.standard_normal(10**6) * np.exp2(rng.uniform(-4, 4, 10**6))).astype(dtype)
            hard = hard_values(form, dtype)
            want = expected(hard, form)
            functions = peers(form, dtype)
            times = {name: milliseconds(function, x, repeats) for name, function in functions.items()}
            print(f"\n10^6 {dtype} -> {form}")
            print(f"{'':28}{'ms':>10}{'x fpsim':>10}{'wrong of ' + str(hard.size):>20}")
            for name, function in functions.items():
                got = np.asarray(function(hard)).astype(np.float64)
                wrong = int(((got != want) & ~(np.isnan(got) & np.isnan(want))).sum())
                print(f"{name:28}{times[name]:10.2f}{times[name] / times['fpsim.round_to']:10.1f}{wrong:20}")


if __name__ == "__main__":
    main()
