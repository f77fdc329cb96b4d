"""The text form of strategies: what it means, that it is read back, and how it fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference

import fpsim
from fpsim.arithmetic import Arithmetic, Rounding, Settings
from fpsim.errors import InputError, StrategyError
from fpsim.formats import BFLOAT16, E4M3FN, FLOAT16, FLOAT32, FLOAT64, TF32
from fpsim.orders import (
    Cascade,
    Chunks,
    Configured,
    Grid,
    HalvingFold,
    Interleaved,
    Lanes,
    NumpySum,
    Order,
    Pairwise,
    Permute,
    Reverse,
    Rotate,
    Serial,
    Shuffle,
    Split,
    SplitK,
    Tree,
)
from fpsim.strategies import Strategy

FMA = Settings(fma=True)

# text, what it means, canonical text
MEANINGS: list[tuple[str, Order, Settings, str]] = [
    ("serial", Serial(), Settings(), "serial"),
    ("serial+fma", Serial(), FMA, "serial+fma"),
    ("  serial + fma ", Serial(), FMA, "serial+fma"),
    ("numpy_sum", NumpySum(), Settings(), "numpy_sum"),
    ("numpy_sum(chunk=8190)", NumpySum(8190), Settings(), "numpy_sum(chunk=8190)"),
    ("pairwise", Pairwise(), Settings(), "pairwise"),
    ("adjacent", Pairwise(), Settings(), "pairwise"),
    ("pairwise(1)", Pairwise(), Settings(), "pairwise"),
    ("pairwise(128)", Pairwise(128), Settings(), "pairwise(128)"),
    ("fold", HalvingFold(), Settings(), "fold"),
    ("lanes(8)+fma", Lanes(8), FMA, "lanes(8)+fma"),
    ("lanes:8+fma", Lanes(8), FMA, "lanes(8)+fma"),
    ("lanes(count=8)", Lanes(8), Settings(), "lanes(8)"),
    ("lanes(8, serial, combine=serial, tail=lanes)", Lanes(8), Settings(), "lanes(8)"),
    ("split_k(5)", SplitK(5), Settings(), "split_k(5)"),
    ("split_k:5:pairwise", SplitK(5, Pairwise()), Settings(), "split_k(5, pairwise)"),
    ("split(3, fold)", Split(3, HalvingFold()), Settings(), "split(3, fold)"),
    ("interleaved(5, block=8)+fma", Interleaved(5, block=8), FMA, "interleaved(5, block=8)+fma"),
    ("interleaved(5, 8)+fma", Interleaved(5, block=8), FMA, "interleaved(5, block=8)+fma"),
    ("interleaved:5:8+fma", Interleaved(5, block=8), FMA, "interleaved(5, block=8)+fma"),
    ("cascade(4, 16)", Cascade(4, 16), Settings(), "cascade(4, 16)"),
    ("grid:132:512:4", Grid(132, 512, 4), Settings(), "grid(132, 512, 4)"),
    (
        "grid(2, 8, block=pairwise, combine=fold)",
        Grid(2, 8, 1, Pairwise(), HalvingFold()),
        Settings(),
        "grid(2, 8, block=pairwise, combine=fold)",
    ),
    ("reverse(pairwise)", Reverse(Pairwise()), Settings(), "reverse(pairwise)"),
    ("rotate(-3)", Rotate(-3), Settings(), "rotate(-3)"),
    ("shuffle(1, fold)", Shuffle(1, HalvingFold()), Settings(), "shuffle(1, fold)"),
    ("permute([2, 0, 1])", Permute((2, 0, 1)), Settings(), "permute([2, 0, 1])"),
    ("chunks([3, 1, 4])", Chunks((3, 1, 4)), Settings(), "chunks([3, 1, 4])"),
    ("tree('((0  1)\t2)')", Tree("((0 1) 2)"), Settings(), 'tree("((0 1) 2)")'),
    (
        "lanes(64, combine=fold, tail=serial+acc(float64))+fma",
        Lanes(64, combine=HalvingFold(), tail=Configured(Serial(), Settings(accumulator=Rounding(FLOAT64)))),
        FMA,
        "lanes(64, combine=fold, tail=serial+acc(float64))+fma",
    ),
    (
        "split_k(5, serial+output(float16), combine=serial+acc(float16))+operands(bfloat16)",
        SplitK(
            5,
            Configured(Serial(), Settings(output=Rounding(FLOAT16))),
            Configured(Serial(), Settings(accumulator=Rounding(FLOAT16))),
        ),
        Settings(operands=Rounding(BFLOAT16)),
        "split_k(5, serial+output(float16), combine=serial+acc(float16))+operands(bfloat16)",
    ),
    (
        "serial+output(e4m3fn, down)+operands(tf32)+kahan+acc(bfloat16, toward_zero)",
        Serial(),
        Settings(
            accumulator=Rounding(BFLOAT16, "toward-zero"),
            compensation="kahan",
            operands=Rounding(TF32),
            output=Rounding(E4M3FN, "down"),
        ),
        "serial+acc(bfloat16, toward_zero)+kahan+operands(tf32)+output(e4m3fn, down)",
    ),
    (
        "serial+separate+product(float32)+neumaier+start(-0.0)+ftz+daz(off)+reciprocal",
        Serial(),
        Settings(
            fma=False, product=FLOAT32, compensation="neumaier", start="-0", ftz=True, daz=False, mean="reciprocal"
        ),
        "serial+separate+product(float32)+neumaier+start(-0.0)+ftz+daz(off)+reciprocal",
    ),
    ("serial+start(0.0)", Serial(), Settings(start="+0"), "serial+start(0.0)"),
    (
        "serial+uncompensated+divide",
        Serial(),
        Settings(compensation="none", mean="divide"),
        "serial+uncompensated+divide",
    ),
    (
        "serial+acc(e4m3fn(overflow=saturate))",
        Serial(),
        Settings(accumulator=Rounding(E4M3FN.with_overflow("saturate"))),
        "serial+acc(e4m3fn(overflow=saturate))",
    ),
    ("serial+acc(float16, 'toward-zero')", Serial(), Settings(accumulator=Rounding(FLOAT16, "toward-zero")), ""),
    ("serial+acc(format(8, -126, 127))", Serial(), Settings(accumulator=Rounding(BFLOAT16)), "serial+acc(bfloat16)"),
]


@pytest.mark.parametrize(("text", "order", "settings", "canonical"), MEANINGS)
def test_meaning(text: str, order: Order, settings: Settings, canonical: str) -> None:
    strategy = fpsim.strategy(text)
    assert strategy == Strategy(order, settings)
    if canonical:
        assert str(strategy) == canonical
    again = fpsim.strategy(str(strategy))
    assert again == strategy
    assert hash(again) == hash(strategy)
    assert str(again) == str(strategy)


def test_objects_pass_through() -> None:
    strategy = fpsim.strategy("lanes(8)+fma")
    assert fpsim.strategy(strategy) is strategy
    assert fpsim.strategy(Lanes(8)) == fpsim.strategy("lanes(8)")
    assert fpsim.strategy("serial") != fpsim.strategy("pairwise")
    assert fpsim.strategy("serial+fma") != fpsim.strategy("serial")


def test_random_texts_are_read_back() -> None:
    rng = np.random.default_rng(1)

    def choose(items: Any) -> Any:
        return items[int(rng.integers(len(items)))]

    for _ in range(1000):
        read_back(reference.random_strategy(choose, choose((0, 1, 2, 3))))


def test_texts_by_hypothesis() -> None:
    hypothesis = pytest.importorskip("hypothesis")
    st = hypothesis.strategies

    def run(data: Any) -> None:
        read_back(reference.random_strategy(lambda items: data.draw(st.sampled_from(items)), 3))

    hypothesis.settings(max_examples=200)(hypothesis.given(st.data())(run))()


def read_back(text: str) -> None:
    try:
        strategy = fpsim.strategy(text)
    except StrategyError as error:
        assert "51 bits" in str(error)  # noqa: PT017
        return
    again = fpsim.strategy(str(strategy))
    assert again == strategy
    assert str(again) == str(strategy)
    assert fpsim.strategy(text.replace(" ", "")) == strategy


# --- scope of settings ------------------------------------------------------------------------------------------------


def arithmetics(text: str, n: int) -> dict[str, Arithmetic]:
    """The arithmetic of every fold, by its leaves."""
    tree = reference.tree_of(fpsim.strategy(text), n)
    program = fpsim.strategy(text).program(n)
    out: dict[str, Arithmetic] = {}
    stack = [tree]
    while stack:
        node = stack.pop()
        out.setdefault(reference.text(node), node.arithmetic)
        stack += [term for term in node.terms if isinstance(term, reference.Node)]
    assert {a for a in out.values() if not a.output} <= set(program.arithmetics)
    return out


def test_settings_reach_every_part_and_the_inner_one_wins() -> None:
    plain = Arithmetic()
    assert set(arithmetics("chunks(2, combine=pairwise)", 8).values()) == {plain}
    assert {a.fma for a in arithmetics("chunks(2, combine=pairwise)+fma", 8).values()} == {True}

    parts = arithmetics("chunks(2, serial+separate, combine=pairwise)+fma+acc(float64)", 4)
    assert not parts["(0 1)"].fma
    assert parts["((0 1) (2 3))"].fma
    assert {a.accumulator.format for a in parts.values()} == {FLOAT64}

    parts = arithmetics("chunks(4, chunks(2)+acc(float16), combine=serial+acc(bfloat16))", 8)
    assert parts["(0 1)"].accumulator.format == FLOAT16
    assert parts["((0 1) (2 3))"].accumulator.format == FLOAT16
    assert parts["(((0 1) (2 3)) ((4 5) (6 7)))"].accumulator.format == BFLOAT16

    parts = arithmetics("chunks(2, serial+kahan, combine=serial+uncompensated)+neumaier", 4)
    assert parts["(0 1)"].compensation == "kahan"
    assert parts["((0 1) (2 3))"].compensation is None

    parts = arithmetics("chunks(2, serial+product(float32))+fma", 4)
    assert (parts["(0 1)"].fma, parts["(0 1)"].product) == (False, FLOAT32)
    assert parts["((0 1) (2 3))"].fma

    parts = arithmetics("chunks(2, serial+ftz(off))+ftz+daz", 4)
    assert (parts["(0 1)"].ftz, parts["(0 1)"].daz) == (False, True)
    assert parts["((0 1) (2 3))"].ftz


def test_output_belongs_to_one_sum() -> None:
    x = np.array([1.0, 2.0**-9, 1.0, 2.0**-9], np.float32)
    assert fpsim.sum(x, "chunks(2)+output(bfloat16)") == 2.0
    assert fpsim.sum(x, "chunks(2, serial+output(bfloat16))") == 2.0
    assert fpsim.sum(x, "chunks(2, serial+output(bfloat16), combine=serial)+output(float32)") == 2.0
    assert fpsim.sum(x, "chunks(2)") == 2.0 + 2.0**-8
    # An output of a part is not lost where the part is all there is, or is rounded again.
    one = np.array([1 + 2.0**-8 + 2.0**-20], np.float32)
    twice = fpsim.round_to(fpsim.round_to(one[0], "format(9, -126, 127)"), "bfloat16")
    assert twice != fpsim.round_to(one[0], "bfloat16")
    assert fpsim.sum(one, "chunks(4, serial+output(format(9, -126, 127)))+output(bfloat16)") == twice


def test_partial_sums_of_a_wider_format() -> None:
    """A partial sum that starts a narrower accumulator is rounded to it; a later one enters an addition as it is."""
    x = np.array([1.0, 2.0**-9, 2.0**-9, 2.0**-9], np.float32)
    assert fpsim.sum(x, "chunks(2, serial+acc(float32))+acc(bfloat16)") == 1.0  # 1 + 2**-8 is a tie, to even
    assert fpsim.sum(x[::-1], "chunks(2, serial+acc(float32))+acc(bfloat16)") == 1.0 + 2.0**-7  # 2**-8 + (1 + 2**-9)
    wide = fpsim.sum(x[:2], "lanes(4, tail=serial+acc(float32))+acc(bfloat16)")
    assert wide == 1.0  # the result has the format that the strategy names
    assert fpsim.sum(x[:2], "lanes(4, tail=serial+acc(float64))").dtype == np.float32


def test_the_arithmetic_of_named_rules() -> None:
    assert fpsim.strategy("numpy_sum").arithmetic().accumulator.format == FLOAT32
    assert fpsim.strategy("numpy_sum").arithmetic(FLOAT64).accumulator.format == FLOAT64
    assert fpsim.strategy("serial").arithmetic(FLOAT64).accumulator.format == FLOAT32
    assert fpsim.strategy("numpy_sum+acc(bfloat16)").arithmetic(FLOAT64).accumulator.format == BFLOAT16


# --- errors -----------------------------------------------------------------------------------------------------------

# text, part of the message, where the column points
BAD: list[tuple[str, str, str | None]] = [
    ("", "is not a strategy", None),
    ("serial+", "is not a strategy", None),
    ("serial)", "is not a strategy", None),
    ("lanes(8", "is not a strategy", None),
    ("lanes(8))+fma", "is not a strategy", None),
    ("serial fma", "is not a strategy", None),
    ("serial\nserial", "is not a strategy", None),
    ("serial\0", "is not a strategy", None),
    ("serial#+fma", "invalid character '#'", None),
    ("shuffle(-1)", "seed must be a whole number of at least 0", "shuffle"),
    ('tree("0..99999999999999")', "is too large; leaves go from 0", "tree"),
    (f'tree("{"9" * 5000}")', "is too large; leaves go from 0", "tree"),
    ("sreial", "unknown order 'sreial'", "sreial"),
    ("fma", "it is a setting, which goes after an order", "fma"),
    ("lanes(8, sreial)+fma", "unknown order 'sreial'", "sreial"),
    ("serial+fam", "unknown setting 'fam'", "fam"),
    ("serial+fma+fam(3)", "unknown setting 'fam'", "fam(3)"),
    ("serial-fma", "expected a name", "serial-fma"),
    ("serial*2", "expected a name", "serial*2"),
    ("8", "expected a name", "8"),
    ("'serial'", "expected a name", "'serial'"),
    ("a.b", "expected a name", "a.b"),
    ("a.b(3)", "expected a name", "a.b(3)"),
    ("(lambda: 0)()", "expected a name", "(lambda: 0)()"),
    ("[serial]", "expected a name", "[serial]"),
    ("lanes", "lanes needs count", "lanes"),
    ("lanes+fma", "lanes needs count", "lanes"),
    ("serial(8)", "serial takes no further argument 8", "8)"),
    ("lanes(8, 9)", "lanes takes no further argument 9", "9)"),
    ("lanes(8, fold, fold, fold)", "no further argument", "fold)"),
    ("lanes(8, width=3)", "lanes has no argument width", "width=3"),
    ("lanes(8, count=3)", "count is given twice", "count=3"),
    ("lanes(0)", "count must be a whole number of at least 1", "lanes(0)"),
    ("lanes(-1)", "count must be a whole number of at least 1", "lanes(-1)"),
    ("lanes(8.5)", "cannot use 8.5", "8.5"),
    ("lanes(True)", "cannot use True", "True"),
    ("lanes(1j)", "cannot use 1j", "1j"),
    ("lanes(8 if 1 else 9)", "cannot use", "8 if"),
    ("lanes(x for x in y)", "cannot use", None),
    ("lanes(*8)", "cannot use", "*8"),
    ("lanes(**8)", "no argument", None),
    ("lanes('8')", "count must be a whole number", None),
    ("lanes(count=fold)", "count must be a whole number", None),
    ("lanes(8, combine=3)", "combine must be an order", None),
    ("lanes(8, tail=middle)", "tail=middle is not one of", None),
    ("lanes(8, tail=3)", "tail must be", None),
    ("chunks([])", "chunks", None),
    ("chunks([3, fold])", "cannot use", None),
    ("chunks([3, 0])", "size must be a whole number of at least 1", None),
    ("permute([0, 2])", "each of 0 to n-1 once", "permute"),
    ("permute(3)", "places must be a list of whole numbers", "permute(3)"),
    ("tree(3)", "text must be a text", None),
    ('tree("0 (1")', "unbalanced parentheses", "tree"),
    ("tree(serial)", "tree takes no further argument serial", "serial)"),
    ("serial+acc", "cannot read the setting acc", "acc"),
    ("serial+acc()", "cannot read the setting acc()", "acc()"),
    ("serial+acc(float31)", "unknown format 'float31'", "acc"),
    ("serial+acc(float16, nearest)", "unknown rounding mode nearest", "acc"),
    ("serial+acc(float16, stochastic)", "unknown rounding mode stochastic", "acc"),
    ("serial+acc(float16, up, down)", "cannot read the setting", "acc"),
    ("serial+acc(format(99, 0, 1))", "precision", "acc"),
    ("serial+acc(format(8, -126, 127, 3, 4))", "format", "acc"),
    ("serial+fma(3)", "cannot read the setting", "fma(3)"),
    ("serial+start(1.0)", "cannot read the setting", "start"),
    ("serial+start(second)", "cannot read the setting", "start"),
    ("serial+ftz(on)", "cannot read the setting", "ftz"),
    ("serial+fma+fma", "contradicts or repeats", None),
    ("serial+fma+separate", "contradicts or repeats", "separate"),
    ("serial+kahan+neumaier", "contradicts or repeats", "neumaier"),
    ("serial+acc(float16)+acc(bfloat16)", "contradicts or repeats", "acc(bfloat16)"),
    ("serial+divide+reciprocal", "contradicts or repeats", "reciprocal"),
    ("serial+neumaier+fma", "drop fma", None),
    ("serial+dot2+fma", "drop fma", None),
    ("serial+product(float32)+fma", "cannot be joined with fma", None),
    ("serial+acc(format(52, -100, 100))", "only as acc(float64), to nearest even", None),
    ("serial+acc(format(40, -1000, 1000))", "emulated only as float64 itself", None),
    ("serial+product(format(11, -14, 1023))", "emulated only as float64 itself", None),
    ("serial+acc(float64, up)", "only as acc(float64), to nearest even", None),
    ("serial+product(format(53, -100, 100))", "more than 51 bits", None),
    ("chunks(4, serial+operands(float16))", "belongs at the end", "serial+operands"),
    ("lanes(4, combine=serial+operands(float16))", "belongs at the end", "serial+operands"),
    ("chunks(4, serial+neumaier)+fma", "drop fma", None),
    ("chunks(4, combine=lanes(2, serial+fma+dot2))", "drop fma", None),
    ("lanes::8", "is not a strategy", None),
    ("lanes:", "is not a strategy", None),
    (":8", "is not a strategy", None),
    ("lanes:8:9", "takes no further argument 9", ":9"),
    ("lanes:x", "unknown order 'x'", "x"),
    ("lanes:0+fma", "at least 1", "lanes:0"),
    ("split_k:5:sreial+fma", "unknown order 'sreial'", "sreial"),
    ("split_k:5:pairwise+fam", "unknown setting 'fam'", "fam"),
    ("  lanes:8 + fam", "unknown setting 'fam'", "fam"),
    ("serial+é", "unknown setting 'é'", "é"),
    ("é+fma", "unknown order 'é'", "é"),
    ("lanes(8, é)+fam(é)", "unknown setting 'fam'", "fam"),
]


@pytest.mark.parametrize(("text", "message", "place"), BAD)
def test_bad_text(text: str, message: str, place: str | None) -> None:
    with pytest.raises(StrategyError) as caught:
        fpsim.strategy(text)
    error = caught.value
    assert message in str(error)
    assert isinstance(error, ValueError)
    if place is not None:
        assert error.text == text
        assert error.column is not None
        assert text[error.column :].startswith(place.removeprefix(":"))
        first, shown, mark = str(error).rsplit("\n", 2)
        assert first
        assert shown[2:] == text
        assert mark.index("^") - 2 == error.column
    elif error.column is not None:
        assert 0 <= error.column < max(len(text), 1)


def test_other_objects_are_refused() -> None:
    bad: Any
    for bad in (None, 3, b"serial", ["serial"]):
        with pytest.raises(StrategyError, match="a strategy is a text such as"):
            fpsim.strategy(bad)
    with pytest.raises(InputError, match="at least 0 terms"):
        fpsim.strategy("serial").program(-1)


def test_deeply_nested_text_fails_in_words() -> None:
    for text in ("(" * 5000 + "serial" + ")" * 5000, "reverse(" * 5000 + "serial" + ")" * 5000):
        with pytest.raises(StrategyError):
            fpsim.strategy(text)
    assert fpsim.strategy("reverse(" * 30 + "serial" + ")" * 30).program(5).nested() == "(0 1 2 3 4)"


def test_settings_in_objects_are_checked_too() -> None:
    with pytest.raises(StrategyError, match="drop fma"):
        Strategy(Serial(), Settings(fma=True, compensation="neumaier"))
    with pytest.raises(StrategyError, match="at least 1"):
        Lanes(0)
    with pytest.raises(StrategyError, match="at least 1"):
        Chunks((1, 0))
