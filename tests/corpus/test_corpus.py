"""Every public report gets the right verdict, and most get the right mechanism; no fault passes as rounding."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

import fpsim


def _reports() -> tuple[Any, ...]:
    spec = importlib.util.spec_from_file_location("fpsim_corpus_cases", Path(__file__).with_name("cases.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return tuple(module.REPORTS)


REPORTS = _reports()
#: Reports of millions of numbers, made smaller: other inputs, shapes and results that the same mechanism gives. The full
#: ones are judged by `benchmarks/make_corpus_page.py`.
REDUCED: dict[str, dict[str, Any]] = {
    "numpy-8170": {
        "inputs": "RandomState(1234).rand(200000,2)*100",
        "observed": {"|mean(axis=0)[0] - mean of the column|": "0.0006"},
    },
    "numpy-14691": {"shapes": [[20000, 2]], "observed": {"std(axis=0)": "0.0", "std of column": "0.0"}},
    "pytorch-19164": {"shapes": [[68 * 64 * 64]], "observed": {"result": "278528.0", "true": "278528.0"}},
    "sklearn-13410": {
        "inputs": "full((1,10000), 1.0), full((1,10000), 1.1)",
        "observed": {"direct": "10.000002", "expanded": "10.0"},
    },
    "tensorflow-127346": {
        "inputs": "default_rng(133006): normal(8,197,256)*1000, normal(64,256)*50",
        "observed": {"max / max output": "0.00029477"},
    },
}
#: Judged by that program only: nine million terms.
LONG = {"openmp-forum", *REDUCED}
SHORT = [report for report in REPORTS if report.name not in LONG]


def test_every_report_is_there_once() -> None:
    assert len(REPORTS) == len({report.name for report in REPORTS}) == 68


@pytest.mark.parametrize("report", SHORT, ids=lambda report: report.name)
def test_verdict(report: Any) -> None:
    found = fpsim.explain(report.case())
    if report.explainable is None:
        assert found.verdict == "unknown"
    else:
        assert (found.explainable is True) == report.explainable
    assert found.to_dict()["explainable"] == found.explainable
    assert str(found).startswith(found.verdict.upper())


def test_a_scan_in_blocks_of_threads_has_the_largest_error_that_was_reported() -> None:
    report = next(report for report in REPORTS if report.name == "pytorch-180154")
    (told,) = [text for text in fpsim.explain(report.case()).figures if text.startswith("GPU")]
    assert "threads of 15 terms in float32 against the exact result gives 0.005483" in told


@pytest.mark.parametrize("name", REDUCED)
def test_verdict_of_a_smaller_one(name: str) -> None:
    report = next(report for report in REPORTS if report.name == name)
    assert fpsim.explain({**report.case(), **REDUCED[name]}).explainable == report.explainable
