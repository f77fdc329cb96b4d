"""Explanations of routines that run here."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.cli import main
from fpsim.errors import InputError, UnknownOrderError
from fpsim.explaining.live import explain_live


@pytest.mark.parametrize(
    "routine", ["numpy.sum", "numpy.sum_axis0", "numpy.sum_axis1", "numpy.dot", "numpy.matmul", "numpy.matvec"]
)
def test_routines_are_reproduced(routine: str) -> None:
    found = explain_live(routine, against=["numba.serial"])
    assert found.verdict in ("expected rounding", "identical")
    assert [side.status for side in found.sides] == ["reproduced"] * 2
    assert all(side.matches for side in found.sides)


def test_means_are_explained() -> None:
    assert explain_live("numpy.mean", against=["numba.serial"], shape=[300]).verdict in (
        "expected rounding",
        "identical",
    )


def test_given_operands_are_used() -> None:
    a, b = np.full((2, 3), 2.0, np.float32), np.full((3, 2), 5.0, np.float32)
    found = explain_live("numpy.matmul", inputs=[a, b])
    assert found.terms == 3
    assert found.shape == (2, 2)
    assert found.sides[0].max_ulp == 0


@pytest.mark.parametrize(
    ("routine", "error"),
    [
        ("matmul", InputError),
        ("numpy.nothing", InputError),
        ("nobody.sum", InputError),
        ("numba.fma.sum", UnknownOrderError),
    ],
)
def test_what_is_no_routine(routine: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        explain_live(routine)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["explain", "--live", "numpy.matmul", "--against", "numba.fma", "--shape", "16x32x8", "--data", "uniform"])
        == 0
    )
    out = capsys.readouterr().out
    assert out.startswith("EXPECTED ROUNDING")
    assert "numba.fma = serial+fma" in out
    assert "matmul, 32 terms each, result 16 x 8" in out


@pytest.mark.parametrize(
    "arguments",
    [[], ["x.npy", "--live", "numpy.sum"], ["x.npy", "--against", "numpy"], ["--live", "numpy.sum", "--op", "sum"]],
)
def test_what_does_not_go_together(arguments: list[str]) -> None:
    assert main(["explain", *arguments]) == 2
