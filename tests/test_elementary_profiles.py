from __future__ import annotations

import bz2
import json
import math
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from fpsim.cli import main
from fpsim.devices import _libm
from fpsim.devices._elementwise_inputs import bit_patterns
from fpsim.devices.elementwise import correctly_rounded, ulp_errors
from fpsim.elementary import evaluate
from fpsim.elementary_profiles import LARGEST, ElementaryProfile, decoded, encoded, load, numbers, ordinals, shipped
from fpsim.errors import FileError, InputError, UnknownOrderError
from fpsim.revealing_elementary import Match, RevealedElementary, function_named, reveal_elementary

Array = NDArray[Any]

LOW = 1.0
HIGH = float(np.uint32(0x3F80_0000 + 2**20 - 1).view(np.float32))  # 2**20 bit patterns from 1 on


def same(a: Array, b: Array) -> bool:
    return bool(((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))).all())


def recorded(call: Callable[[Array], Any], function: str, **settings: Any) -> ElementaryProfile:
    profile = reveal_elementary(call, function, record=True, **settings).profile
    assert profile is not None
    return profile


@settings(deadline=None)
@given(st.lists(st.floats(width=32), min_size=1), st.integers(-LARGEST - 2, LARGEST + 1))
def test_ordinals_count_the_numbers(values: list[float], ordinal: int) -> None:
    x = np.array(values, np.float32)
    assert same(numbers(ordinals(x)), x)
    assert int(ordinals(numbers(np.array([ordinal])))[0]) == ordinal
    finite = np.sort(x[np.isfinite(x)])
    assert (np.diff(ordinals(finite[finite != 0])) >= 0).all()
    if -LARGEST - 1 <= ordinal < LARGEST and ordinal not in {-2, -1}:
        here, above = numbers(np.array([ordinal, ordinal + 1]))
        assert np.nextafter(here, np.float32(np.inf)) == above


def test_round_trip_of_numpy_exp(tmp_path: Path) -> None:
    profile = recorded(np.exp, "exp", low=LOW, high=HIGH, target="numpy.exp", versions={"NumPy": np.__version__})
    assert profile.count == 2**20
    profile.save(tmp_path / "exp.npz")
    assert (tmp_path / "exp.npz").stat().st_size < 150_000
    every = np.arange(0x3F80_0000, 0x3F80_0000 + 2**20, dtype=np.uint32).view(np.float32)
    replayed = evaluate("exp", every, implementation=f"profile:{tmp_path / 'exp.npz'}")
    assert same(replayed, np.exp(every))
    assert not same(replayed, correctly_rounded("exp", every))
    shuffled = np.random.default_rng(0).permutation(every)[: 2**10].reshape(32, 32)
    assert same(evaluate("exp", shuffled, implementation=f"profile:{tmp_path / 'exp.npz'}"), np.exp(shuffled))
    text = str(load(tmp_path / "exp.npz"))
    assert text.startswith("exp as numpy.exp on cpu gives it (NumPy")
    assert "all 1,048,576 float32 numbers from 1 to" in text


def perturbed(x: Array) -> Array:
    """Return 2**x with every kind of fault: small and large shifts, zeros, infinities, NaN, wrong signs."""
    y = correctly_rounded("exp2", x).copy()
    bits = x.view(np.uint32)
    bits_of_y = y.view(np.uint32)
    bits_of_y[bits % 97 == 0] += 2
    bits_of_y[bits % 1009 == 0] += 100_000
    y[bits % 100_003 == 1] = 0.0
    y[bits % 100_003 == 2] = -0.0
    y[bits % 100_003 == 3] = np.inf
    y[bits % 100_003 == 4] = -np.inf
    y[bits % 100_003 == 5] = np.nan
    y[bits % 100_003 == 6] *= -1
    y[np.isinf(x)] = 7.0
    return y


def test_round_trip_of_a_perturbed_function(tmp_path: Path) -> None:
    # The range crosses zero, and begins and ends inside of blocks.
    high = float(numbers(np.array([2**20 + 1234]))[0])
    profile = recorded(perturbed, "exp2", low=-high, high=high)
    x = numbers(np.arange(-(2**20) - 1235, 2**20 + 1235))
    assert (profile.first, profile.last) == (-(2**20) - 1235, 2**20 + 1234)
    profile.save(tmp_path / "exp2.npz")
    again = load(tmp_path / "exp2.npz")
    assert same(again.evaluate("exp2", x), perturbed(x))
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0], np.float32)
    assert same(again.evaluate("exp2", x), perturbed(x))


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(width=32), st.floats(width=32)), min_size=1, max_size=50))
def test_any_differences_are_kept(pairs: list[tuple[float, float]]) -> None:
    # Values and results that have nothing to do with each other, in place of a function.
    observed, correct = (np.array(values, np.float32) for values in zip(*pairs, strict=True))
    data = encoded(observed, correct)
    if not data:
        assert same(observed, correct)
        return
    profile = ElementaryProfile("exp", "", "", "", {}, 0, len(pairs) - 1, (0, 0, 0), {0: data})
    out = ordinals(correct)
    profile._shift(np.arange(len(pairs)), np.ones(len(pairs), bool), out)
    assert same(numbers(out), observed)


def test_unrecorded_numbers_are_refused(tmp_path: Path) -> None:
    recorded(np.exp, "exp", low=LOW, high=HIGH).save(tmp_path / "exp.npz")
    where = f"profile:{tmp_path / 'exp.npz'}"
    x = np.array([1.0, 2.5, np.nextafter(np.float32(1), np.float32(0))], np.float32)
    with pytest.raises(UnknownOrderError, match=r"has exp from 1 to 1\.12.*; 2 of 3 numbers, such as 2\.5, were not"):
        evaluate("exp", x, implementation=where)
    with pytest.raises(InputError, match="is of exp, not of log"):
        evaluate("log", x, implementation=where)
    with pytest.raises(InputError, match="exp takes 1 float32 array"):
        evaluate("exp", x.astype(np.float64), implementation=where)
    with pytest.raises(InputError, match="exp takes 1 float32 array"):
        evaluate("exp", x, x, implementation=where)


def test_files_are_not_replaced_and_damage_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "exp.npz"
    profile = recorded(np.exp, "exp", low=LOW, high=HIGH)
    profile.save(path)
    before = path.read_bytes()
    with pytest.raises(FileError, match="exists and is left as it is"):
        profile.save(path)
    assert path.read_bytes() == before
    with pytest.raises(FileError, match="there is no such file; the profiles that come with fpsim are"):
        load(tmp_path / "none.npz")
    (tmp_path / "cut.npz").write_bytes(before[: len(before) // 2])
    with pytest.raises(FileError, match="not a profile of an elementary function, or damaged"):
        load(tmp_path / "cut.npz")
    np.savez(tmp_path / "pickled.npz", header=np.array([{}], object))
    with pytest.raises(FileError, match="not a profile of an elementary function, or damaged"):
        load(tmp_path / "pickled.npz")
    with pytest.raises(FileError, match="it has another length"):
        decoded(bz2.compress(bytes(10)), 11)
    with pytest.raises(FileError, match="it has another length"):
        decoded(bz2.compress(bytes(1000)), 11)
    with pytest.raises(FileError, match="a block of the profile is damaged"):
        decoded(b"something", 11)


def test_models_are_tried_first() -> None:
    found = reveal_elementary(np.sqrt, "sqrt", samples=2**12)
    assert (found.found, found.model, found.largest) == (True, "correctly rounded", 0)
    assert str(found.matches[0]) == "correctly rounded: 100 % of 4,099 inputs"
    like_torch = reveal_elementary(lambda x: evaluate("tanh", x), "tanh", samples=2**15, record=False)
    assert like_torch.model == "torch.cuda's tanh model"
    like_cupy = reveal_elementary(lambda x: evaluate("exp", x, implementation="cupy"), "exp", samples=2**15)
    assert like_cupy.model == "cupy's exp model"
    assert [m.found for m in like_cupy.matches] == [True, False, False, False]

    def expf(x: Array) -> Array:
        return evaluate("exp", x, implementation="profile:glibc-2.36/expf")

    glibc = reveal_elementary(expf, "exp", low=0.5, high=1.0, samples=2**16)
    assert glibc.model == "profile:glibc-2.36/expf"
    # What a model gives is not recorded.
    assert reveal_elementary(np.sqrt, "sqrt", low=1, high=1.01, record=True).profile is None
    assert str(Match("x", 9_999_999, 10_000_000)) == "x: 99.9999 % of 10,000,000 inputs"


def test_the_largest_difference_and_the_position() -> None:
    def far(x: Array) -> Array:
        y = correctly_rounded("exp", x).copy()
        y.view(np.uint32)[x == 1.5] += 9
        return y

    found = reveal_elementary(far, "exp", low=1.4, high=1.6)
    assert (found.largest, found.where) == (9, 1.5)
    assert not found.found
    assert found.matches[0].equal == found.matches[0].count - 1
    assert found.alone == 0
    assert "record a profile with --save FILE" in str(found)

    def positional(x: Array) -> Array:
        return correctly_rounded("exp", x) + np.float32(x.size < 8)

    assert reveal_elementary(positional, "exp", samples=100).alone > 1000
    assert "the bits depend on the position" in str(reveal_elementary(positional, "exp", samples=100))


def test_refusals() -> None:
    with pytest.raises(InputError, match="there is no elementary function gamma of one operand"):
        reveal_elementary(np.exp, "gamma")
    with pytest.raises(InputError, match="there is no elementary function pow of one operand"):
        reveal_elementary(lambda x: x, "pow")
    for low, high in ((2.0, 1.0), (math.nan, 1.0), (0.0, math.nan), (0.0, math.inf), (0.0, 1e39)):
        with pytest.raises(InputError, match="the range must be of finite float32 numbers"):
            reveal_elementary(np.exp, "exp", low=low, high=high)
    with pytest.raises(InputError, match="the function failed for a float32 vector: TypeError"):
        reveal_elementary(lambda: None, "exp")  # type: ignore[arg-type,misc]
    with pytest.raises(InputError, match="the function returned float64 of shape"):
        reveal_elementary(lambda x: x.astype(np.float64), "exp")


def test_names_tell_the_function() -> None:
    names = ["torch.erf", "libm.expf", "torch.special.expit", "my.fast_exp", "numpy.power", "torch.cuda:tanh", "log1pf"]
    assert [function_named(x) for x in names] == ["erf", "exp", "sigmoid", "exp", None, "tanh", "log1p"]


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    source = "import numpy\n\ndef nearly_exp(x):\n    return numpy.exp(x) + numpy.float32(2**-20) * (x > 1.1)\n"
    (tmp_path / "module_of_mine.py").write_text(source, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    command = ["reveal", "--elementary", "module_of_mine.nearly_exp", f"--range={LOW}:{HIGH!r}"]
    assert main([*command, "--save", "nearly.npz"]) == 0
    assert "recorded: exp as module_of_mine.nearly_exp on" in capsys.readouterr().out
    assert load("nearly.npz").versions["NumPy"] == np.__version__
    x = np.array([1.0, 1.0999, 1.1001, 1.12], np.float32)
    assert same(evaluate("exp", x, implementation="profile:nearly.npz"), np.exp(x) + np.float32(2**-20) * (x > 1.1))
    assert main([*command, "--save", "nearly.npz"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main([*command, "--samples", "1000", "--format", "json"]) == 3
    shown = json.loads(capsys.readouterr().out)
    assert shown["function"] == "exp"
    candidates = {"correctly rounded", "torch.cuda's exp model", "cupy's exp model", "profile:glibc-2.36/expf"}
    assert {m["model"] for m in shown["matches"]} == candidates
    assert main(["reveal", "--elementary", "numpy.sqrt", "--samples", "1000"]) == 0
    assert "correctly rounded: 100 % of 1,003 inputs" in capsys.readouterr().out
    assert main(["reveal", "--elementary", "numpy.sqrt", "--range=1:2", "--save", str(tmp_path / "no.npz")]) == 0
    assert "was not written: correctly rounded gives every result" in capsys.readouterr().err
    assert not (tmp_path / "no.npz").exists()
    for wrong, reason in (
        (["numpy.sum"], "say with --op which elementary function numpy.sum is"),
        (["numpy.exp", "--n", "10"], "--n does not go together with --elementary"),
        (["numpy.exp", "--dtype", "float64"], "--elementary compares float32 functions, not float64"),
        (["numpy.exp", "--range=1"], "--range takes LOW:HIGH"),
        (["libm.nothingf", "--op", "exp"], "has no function nothingf"),
    ):
        assert main(["reveal", "--elementary", *wrong]) == 2
        assert reason in capsys.readouterr().err
    assert main(["reveal", "numpy.sum", "--n", "10", "--range=1:2"]) == 2
    assert "--range goes with --elementary" in capsys.readouterr().err


GLIBC = " ".join(platform.libc_ver())


@pytest.mark.parametrize("name", shipped())
def test_shipped_profiles_describe_themselves(name: str) -> None:
    profile = load(name)
    assert (profile.first, profile.last) == (-LARGEST - 1, LARGEST)
    assert Path(profile.source).stat().st_size < 300_000
    assert profile.versions
    x = bit_patterns(0, 2**10, 2**10, np.random.default_rng(8))
    observed = evaluate(profile.function, x, implementation=f"profile:{name}")
    errors = ulp_errors(profile.function, x, observed=observed)
    exact = correctly_rounded(profile.function, x)
    assert errors[np.isfinite(exact)].max() < 3


@pytest.mark.skipif(GLIBC != "glibc 2.36", reason="needs glibc 2.36, of which the profiles are")
@pytest.mark.parametrize("name", [name for name in shipped() if name.startswith("glibc-2.36/")])
def test_shipped_profiles_have_the_bits_of_the_c_library(name: str) -> None:
    x = bit_patterns(0, 2**18, 2**18, np.random.default_rng(9))
    symbol = name.rpartition("/")[2]
    replayed = evaluate(load(name).function, x, implementation=f"profile:{name}")
    assert same(replayed, _libm.function(symbol)(x))


def test_result_as_plain_objects() -> None:
    found: RevealedElementary = reveal_elementary(np.exp, "exp", low=LOW, high=HIGH, record=True)
    plain = found.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["profile"]["first"] == 0x3F80_0000
    assert plain["exhaustive"] is True
