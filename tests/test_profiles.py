"""Profiles: strategies of a device as data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim import devices, profiles
from fpsim.cli import main
from fpsim.devices import Implementation, Routine
from fpsim.errors import FileError, UnknownOrderError
from fpsim.profiles.recording import profile_of, save


def product(a: Any, b: Any) -> Any:
    """A product whose order depends on the place of the output."""
    out = fpsim.matmul(a, b, "serial+fma")
    out[2:, 3:] = fpsim.matmul(a, b, "lanes(4)+fma")[2:, 3:]
    return out


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = [
        fpsim.reveal(np.sum, n=40, replays=5),
        fpsim.reveal(lambda x, y: fpsim.dot(x, y, "pairwise+fma"), op="dot", n=33, replays=5),
        fpsim.reveal(product, op="matmul", shape=(4, 50, 6), replays=5),
        fpsim.reveal(lambda x: np.add.accumulate(np.sort(x))[-1], n=40, replays=5),
    ]
    made = profile_of(
        found, name="test", device="none", implementation="mine", versions={"mine": "1"}, notes=["a note"]
    )
    file = tmp_path / "profile.json"
    save(made, file)
    return file


def test_a_profile_gives_the_recorded_bits(path: Path) -> None:
    rng = np.random.default_rng(7)
    text = f"profile:{path}"
    assert str(fpsim.strategy(text)) == text
    assert fpsim.strategy(str(fpsim.strategy(text))) == fpsim.strategy(text)
    x, y = rng.standard_normal((2, 40)).astype(np.float32)
    assert fpsim.sum(x, text) == np.sum(x)
    assert fpsim.dot(x[:33], y[:33], text) == fpsim.dot(x[:33], y[:33], "pairwise+fma")
    a, b = rng.standard_normal((4, 50)).astype(np.float32), rng.standard_normal((50, 6)).astype(np.float32)
    assert np.array_equal(fpsim.matmul(a, b, text), product(a, b))


def test_what_is_not_on_record_is_refused_and_the_nearest_are_named(path: Path) -> None:
    text = f"profile:{path}"
    with pytest.raises(UnknownOrderError, match=r"sum of shape 41.*nearest known: 40 "):
        fpsim.sum(np.ones(41, np.float32), text)
    with pytest.raises(UnknownOrderError, match="known for operands in float32, not in float64"):
        fpsim.sum(np.ones(40), text)
    with pytest.raises(UnknownOrderError, match="sums of whole vectors"):
        fpsim.sum(np.ones((40, 2), np.float32), text, axis=0)
    with pytest.raises(UnknownOrderError, match="no matmul with left=F; it has defaults"):
        fpsim.matmul(np.ones((50, 4), np.float32).T, np.ones((50, 6), np.float32), text)
    with pytest.raises(UnknownOrderError, match="there is no profile 'nobody/nothing'"):
        fpsim.strategy("profile:nobody/nothing")


def test_what_was_not_established_is_noted(path: Path) -> None:
    loaded = profiles.load(str(path))
    assert len(loaded.cases) == 3
    assert loaded.notes == ("a note", "no strategy was found for sum 40")
    assert "a note" in str(loaded)


def test_a_file_is_never_replaced(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(FileError, match="exists already"):
        save(profiles.load(str(path)), path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a profile"),
        ("[]", "is not a profile"),
        ('{"schema": "fpsim.profile/9"}', "not a profile of this version"),
        ('{"schema": "fpsim.profile/1", "cases": [{}]}', "is not a profile"),
    ],
)
def test_broken_files(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text(text, encoding="utf-8")
    with pytest.raises(FileError, match=message):
        profiles.load(str(tmp_path / "broken.json"))
    with pytest.raises(FileError, match="cannot be read"):
        profiles.load(str(tmp_path / "absent.json"))


def test_every_shipped_profile_parses_and_its_strategies_are_strategies() -> None:
    for name in profiles.names():
        profile = profiles.load(name)
        assert profile.cases
        for case in profile.cases:
            assert case.evidence["replays"] >= 100
            for text in case.strategies:
                assert str(fpsim.strategy(text)) == text
        assert json.loads(json.dumps(profile.to_dict()))["schema"] == profiles.SCHEMA


def test_commands(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles", "list"]) == 0
    assert main(["profiles", "list", "--format", "json"]) == 0
    capsys.readouterr()
    assert main(["profiles", "show", str(path)]) == 0
    assert "4x50x6" in capsys.readouterr().out
    assert main(["profiles", "show", str(path), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["implementation"] == "mine"
    right = {"sum": Routine(np.sum, lambda x: "serial"), "matmul": Routine(product, lambda a, b: "serial")}  # noqa: ARG005
    right["dot"] = Routine(lambda x, y: fpsim.dot(x, y, "pairwise+fma"), lambda x, y: "serial")  # noqa: ARG005
    monkeypatch.setattr(devices, "_all", lambda: (Implementation("mine", "mine", "1", routines=right),))
    assert main(["profiles", "verify", str(path)]) == 0
    assert "3 of 3 cases hold" in capsys.readouterr().out
    wrong = {**right, "sum": Routine(lambda x: fpsim.sum(x, "reverse"), lambda x: "serial")}  # noqa: ARG005
    monkeypatch.setattr(devices, "_all", lambda: (Implementation("mine", "mine", "1", routines=wrong),))
    assert main(["profiles", "verify", str(path)]) == 1
    assert "WRONG" in capsys.readouterr().out
    absent = Implementation("mine", "mine", unavailable="it is not here")
    monkeypatch.setattr(devices, "_all", lambda: (absent,))
    assert main(["profiles", "verify", str(path)]) == 2
    assert "it is not here" in capsys.readouterr().err
    assert main(["profiles", "forget"]) == 2
    assert main(["profiles", "show"]) == 2


def written(tmp_path: Path, key: Any, *cases: dict[str, Any]) -> str:
    head = {
        "schema": profiles.SCHEMA, "device": "none", "implementation": "mine", "versions": {}, "dtype": "float32",
        "settings": "", "recorded": "2026-01-01", "notes": [], "key": key,
    }  # fmt: skip
    (tmp_path / "keys.json").write_text(json.dumps({**head, "cases": cases}), encoding="utf-8")
    return str(tmp_path / "keys.json")


def case(strategy: str, **key: Any) -> dict[str, Any]:
    return {"op": "matmul", "shape": [3, 40, 5], "strategy": strategy, "key": key, "evidence": {"replays": 200}}


def test_the_key_decides_which_case_answers(tmp_path: Path) -> None:
    file = written(
        tmp_path, {"sms": 132}, case("serial+fma"), case("reverse+fma", left="F"), case("pairwise", mode="tf32")
    )
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((3, 40)).astype(np.float32), rng.standard_normal((40, 5)).astype(np.float32)
    bits = {
        "serial+fma": fpsim.matmul(a, b, f"profile:{file}"),
        "reverse+fma": fpsim.matmul(np.asfortranarray(a), b, f"profile:{file}"),
        "pairwise": fpsim.matmul(a, b, f'profile("{file}", mode=tf32)'),
    }
    for text, given in bits.items():
        assert np.array_equal(given, fpsim.matmul(a, b, text)), text
    assert len({given.tobytes() for given in bits.values()}) == 3
    tf32 = fpsim.strategy(f'profile("{file}", mode=tf32)')
    assert fpsim.strategy(str(tf32)) == tf32
    with pytest.raises(UnknownOrderError, match=r"no matmul with right=F, sms=132; it has left=F, sms=132; mode=tf32"):
        fpsim.matmul(a, np.asfortranarray(b), f"profile:{file}")
    with pytest.raises(UnknownOrderError, match="contiguous"):
        fpsim.matmul(a, np.repeat(b, 2, axis=1)[:, ::2], f"profile:{file}")
    loaded = profiles.load(file)
    assert loaded.cases[1].key == profiles.Key(left="F", sms=132)
    assert profiles.parse(json.dumps(loaded.to_dict()), file) == loaded


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ({"phase": 1}, "a key has no field 'phase'; it has right_dtype, output, mode"),
        ({"batch": "two"}, "field batch must be like 1, not 'two'"),
        ({"left": "T"}, "field left is a memory order, C or F, not 'T'"),
    ],
)
def test_a_key_that_is_not_understood_is_refused(key: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=message):
        profiles.load(written(tmp_path, key, case("serial")))
    with pytest.raises(FileError, match=message):
        profiles.load(written(tmp_path, {}, case("serial", **key)))


def test_one_key_has_one_case(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="matmul of shape 3x40x5 with batch=2 twice"):
        profiles.load(written(tmp_path, {}, case("serial", batch=2), case("pairwise", batch=2)))


def test_operands_are_rounded_as_the_profile_says(tmp_path: Path) -> None:
    """TF32 products: the format of the operands is one setting of the whole profile."""
    tf32 = "fused(8)+align(25)+operands(tf32)"
    found = [
        fpsim.reveal(lambda a, b: fpsim.matmul(a, b, tf32), op="matmul", shape=(3, 40, 5), replays=5),
        fpsim.reveal(lambda a, b: fpsim.matmul(a, b, tf32), op="matmul", shape=(4, 16, 4), replays=5),
        fpsim.reveal(lambda a, b: fpsim.matmul(a, b, "serial+fma"), op="matmul", shape=(1, 24, 4), replays=5),
    ]
    key = profiles.Key(mode="tf32")
    made = profile_of(found, name="t", device="none", implementation="mine", versions={}, key=key)
    assert made.settings == "+operands(tf32)"
    assert made.notes == ("left out: matmul 1x24x4, which has unrounded operands",)
    save(made, tmp_path / "tf32.json")
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((3, 40)).astype(np.float32), rng.standard_normal((40, 5)).astype(np.float32)
    given = fpsim.matmul(a, b, f"profile:{tmp_path / 'tf32.json'}")
    assert np.array_equal(given, fpsim.matmul(a, b, tf32))
    assert not np.array_equal(given, fpsim.matmul(a, b, "fused(8)+align(25)"))
    with pytest.raises(FileError, match="matmul 3x40x5 rounds operands; that belongs in the profile's settings"):
        profiles.load(written(tmp_path, {}, case(tf32)))
