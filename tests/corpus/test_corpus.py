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
#: Cases whose inputs are millions of numbers.
LONG = {
    "numpy-8170",
    "numpy-14691",
    "pytorch-19164",
    "openmp-forum",
    "tensorflow-127346",
    "sklearn-13410",
    "pytorch-180150",
    "pytorch-180154",
    "pytorch-75240",
    "pytorch-122045",
    "numpy-11046",
}
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
