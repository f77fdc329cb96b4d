"""Tables of tolerances: written to be read again, never overwritten silently, and told when they are out of date."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fpsim.cli import main
from fpsim.errors import FileError, InputError
from fpsim.tolerance_tables import DTYPES, Entry, Table, new_table, read_table

PAIR = ("serial", "any order")


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    table = new_table(ops=("sum",), shape="4x200", between=PAIR)
    assert [entry.dtype for entry in table] == list(DTYPES)
    assert [bool(entry.unsupported) for entry in table] == [False] * 4 + [True] * 2
    assert "complex operands are not supported" in table["sum-complex64-given"].unsupported
    path = tmp_path / "ops.toml"
    table.write(path)
    assert read_table(path) == table
    assert read_table(path).text() == path.read_text()
    assert read_table(path).updated() == table
    with pytest.raises(FileError, match="is not overwritten"):
        table.write(path)
    table.write(path, overwrite=True)


def test_entries_that_no_longer_fit() -> None:
    entry = Entry("it", "sum", "4x200", "float32", ("normal",), PAIR)
    assert "has no tolerance" in entry.problem()
    with pytest.raises(InputError, match="has no tolerance"):
        entry.kwargs("numpy")
    fresh = entry.updated()
    assert fresh.problem() == ""
    assert fresh.kwargs("pytest") == {"rel": fresh.rtol, "abs": fresh.atol}
    assert fresh.atol is not None
    for factor, message in ((9.5, ""), (10.5, "too loose"), (0.4, "too tight")):
        changed = dataclasses.replace(fresh, atol=fresh.atol * factor)
        assert message in changed.problem()
        assert bool(changed.problem()) == bool(message)
    # What is compared has changed, to something ten times as accurate
    assert "too loose" in dataclasses.replace(fresh, between=("pairwise", "exact")).problem()
    with pytest.raises(InputError, match="kwargs are for"):
        fresh.kwargs("cobol")
    with pytest.raises(InputError, match="has no tolerance 'other'"):
        Table((fresh,))["other"]
    assert (
        dataclasses.replace(fresh, op="var").updated().unsupported.startswith("the tolerance of a var is not supported")
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[tolerance", "is not TOML"),
        ("x = 1", "is no table of tolerances"),
        ('schema = "fpsim.tolerances/1"\ntolerance = [1]', "entry 1: it is no table"),
        (
            'schema = "fpsim.tolerances/1"\n[[tolerance]]\nname = "a"',
            "entry 1: op, shape, dtype, data, between missing",
        ),
        ('schema = "fpsim.tolerances/1"\n[[tolerance]]\nname = "a"\nhow = 1', "entry 1: how unknown"),
    ],
)
def test_files_that_are_no_tables(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(text)
    with pytest.raises(FileError, match=message):
        read_table(path)
    with pytest.raises(FileError, match="cannot be read"):
        read_table(tmp_path / "none.toml")


def test_names_occur_once(tmp_path: Path) -> None:
    entry = Entry("it", "sum", "50", "float32", ("normal",), PAIR)
    Table((entry, entry)).write(tmp_path / "t.toml")
    with pytest.raises(FileError, match="several entries of the name 'it'"):
        read_table(tmp_path / "t.toml")


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ops.toml"
    table = ["tolerance", "--table", str(path)]
    assert (
        main(
            [
                "tolerance",
                "dot",
                *table[1:],
                "--shape",
                "300",
                "--dtype",
                "float32,complex128",
                "--between",
                "serial,exact",
            ]
        )
        == 0
    )
    assert "1 tolerances, 1 not supported" in capsys.readouterr().out
    assert main(table) == 0
    assert "as they should be" in capsys.readouterr().out
    text = path.read_text()
    line = next(line for line in text.splitlines() if line.startswith("atol"))
    path.write_text(text.replace(line, "atol = 1.0"))
    assert main(table) == 1
    assert "too loose" in capsys.readouterr().out
    assert main([*table, "--force"]) == 0
    assert path.read_text() == text
    assert main([*table, "--shape", "5"]) == 2
    assert "its questions are in it" in capsys.readouterr().err
    assert main([*table, "--outputs", "5"]) == 2
    assert main(["tolerance", "--table", str(tmp_path / "new.toml"), "--shape", "5"]) == 2
    assert main(["tolerance", "--data", "normal"]) == 2
