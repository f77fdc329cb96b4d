"""Matrix units: chains of fused adds, and the units of GPU architectures as named rules."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from fpsim.arithmetic import MOST_BITS, MOST_TERMS, Alignment, Arithmetic, Rounding, Settings
from fpsim.errors import StrategyError
from fpsim.formats import BFLOAT16, E4M3FN, E5M2, FLOAT16, FLOAT32, TF32, Format, RoundingMode, as_format
from fpsim.orders.base import Order, Part, Reduction, Scattered
from fpsim.orders.combinators import Chunks, Pairwise
from fpsim.orders.named import NamedRule
from fpsim.programs import Builder, Items, Segment, count_items, split_items

RESTS: Final = ("last", "first")


@dataclass(frozen=True, slots=True)
class Fused(Order):
    """A chain of fused adds: the accumulator starts from zero and takes `terms` leaves at a time.

    A fused add aligns the products and the accumulator to the largest exponent among them, drops what is below the
    fraction bits of ``align``, sums exactly, and rounds once. The last one takes what is left, or the first one with
    ``rest=first``. With a ``tile`` the terms are cut into tiles of so many, of which the first takes what is left, and
    then the fused adds cut each: CUTLASS loads the inner dimension so (`predicated_tile_iterator.h`).
    """

    terms: int
    rest: str = "last"
    tile: int = 0
    name: ClassVar[str] = "fused"

    def __post_init__(self) -> None:
        if not 1 <= self.terms <= MOST_TERMS:
            message = f"fused: terms must be a whole number from 1 to {MOST_TERMS}, not {self.terms!r}"
            raise StrategyError(message)
        if self.rest not in RESTS:
            message = f"fused: rest={self.rest} is not one of {', '.join(RESTS)}"
            raise StrategyError(message)
        if self.tile and (self.rest != "first" or self.tile < 0 or self.tile % self.terms):
            message = f"fused: tile={self.tile} goes with rest=first, and is a multiple of the {self.terms} terms"
            raise StrategyError(message)

    def check(self, arithmetic: Arithmetic) -> None:
        align = arithmetic.align
        if align is None or not 1 <= align.bits <= MOST_BITS:
            message = f"{self} needs align(bits), 1 to {MOST_BITS} fraction bits, such as {self}+align(25)"
            raise StrategyError(message)
        if arithmetic.fma or arithmetic.product is not None or arithmetic.compensation is not None:
            message = f"{self} adds exact products in one step: drop fma, product(...) and compensation"
            raise StrategyError(message)
        result = align.result.format
        if result.precision > 51 or result.emin < -400 or result.emax > 400:
            message = f"{self}: the sum of a fused add is rounded to 51 bits at most, and exponents from -400 to 400"
            raise StrategyError(message)
        if align.kind == "exact" and self.terms > _MOST_EXACT:
            message = f"{self}: exact fused adds take {_MOST_EXACT} terms at most"
            raise StrategyError(message)
        if align.kind in ("late", "late_pairs") and (align.bits > 25 or not FLOAT32.includes(result)):
            message = f"{self}: align({align}) keeps 25 bits at most, and its result is a number of float32"
            raise StrategyError(message)
        for form in (arithmetic.operand_format, *(r.format for r in (arithmetic.right,) if r is not None)):
            if not FLOAT32.includes(form):
                message = f"{self}: fused adds are emulated for numbers of float32, not of {form}; add operands(...)"
                raise StrategyError(message)

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        self.check(arithmetic)
        if any(segment.item is not None for segment in items):
            message = f"{self} takes products, not partial sums; add those by another order"
            raise StrategyError(message)
        assert arithmetic.align is not None
        own = dataclasses.replace(
            arithmetic, terms=self.terms, accumulator=arithmetic.align.result, start="+0", output=None
        )
        short = count_items(items) % (self.tile or self.terms)
        if self.rest == "last" or not short or short == count_items(items):
            return builder.fold(items, own)
        head, tail = split_items(items, short)
        return builder.fold([builder.fold(head, own), *tail], own, start="first")

    def arguments(self) -> list[str]:
        tile = [f"tile={self.tile}"] if self.tile else []
        return [str(self.terms), *([] if self.rest == "last" else [f"rest={self.rest}"]), *tile]


@dataclass(frozen=True, slots=True)
class _ConvertedFp8(Order):
    """`mma` of fp8 where only `wgmma` has it: two instructions for float16, and an addition to the accumulator.

    The first one takes the lower two of every four neighbours, the second one goes on from its sum with the upper two.
    """

    name: ClassVar[str] = "converted_fp8"

    def check(self, arithmetic: Arithmetic) -> None:
        Fused(16).check(arithmetic)

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        del width
        assert arithmetic.align is not None
        own = dataclasses.replace(arithmetic, terms=16, accumulator=arithmetic.align.result, start="+0", output=None)
        places = np.arange(count_items(items))
        lower, upper = (Scattered(items).pick(places[places % 4 // 2 == half]) for half in (0, 1))
        first = builder.fold(lower, own)
        return builder.fold([first, *upper], own, start="first") if count_items(upper) else first


@dataclass(frozen=True, slots=True)
class Unit:
    """The arithmetic of one matrix instruction.

    Attributes
    ----------
    order : Order
        How it adds the products of its inner dimension, and goes on over several instructions.
    settings : Settings
        The arithmetic.
    instruction : str
        The instruction, with its inner dimension.
    maturity : {"hardware", "model"}
        "hardware": equal bits on recorded results of the hardware. "model": from a published model, not checked here.
    evidence : str
        Where it comes from.
    """

    order: Order
    settings: Settings
    instruction: str
    maturity: str
    evidence: str

    def __str__(self) -> str:
        """Return the order and its arithmetic, without the format of the operands."""
        plain = dataclasses.replace(self.settings, operands=None, output=None)
        return f"{self.order}{plain}"


_MMA_SIM = "MMA-Sim 2.1.1 (Xie et al., arXiv 2511.10909v2), which its authors checked against the hardware"
_FASI = "Fasi, Higham, Mikaitis & Pranesh (PeerJ CS 7 (2021) e330), and " + _MMA_SIM
_ADA_FP8 = _MMA_SIM + "; equal bits to mmaemu 0.1.0, whose author checked fp8 on an RTX 4060"
_H200 = "cuBLAS 13.1 on an H200 with PyTorch 2.11, and {:,} random tiles of {} there, all with equal bits"
_TILES = {
    **dict.fromkeys(("float16", "bfloat16", "tf32"), (2_004_992, "mma and wgmma")),
    **dict.fromkeys(("e4m3fn", "e5m2"), (1_001_472, "wgmma")),
}
_MMA = "1,003,520 random tiles of mma on an H200, all with equal bits"
_TYPES: dict[str, Format] = {
    "float16": FLOAT16, "bfloat16": BFLOAT16, "tf32": TF32, "e4m3fn": E4M3FN, "e5m2": E5M2,
    "e2m3fn": as_format("float6_e2m3fn"), "e3m2fn": as_format("float6_e3m2fn"), "e2m1fn": as_format("float4_e2m1fn"),
    "e4m3fnuz": as_format("float8_e4m3fnuz"), "e5m2fnuz": as_format("float8_e5m2fnuz"),
}  # fmt: skip
_FP8, _FP6 = ("e4m3fn", "e5m2"), ("e2m3fn", "e3m2fn")
_BLOCK_SCALES = "; the scales are ue8m0 for 32 elements, and for 16 those of nvfp4, ue4m3"
_MOST_EXACT = 64
# Fraction bits of the alignment, fp8 apart, and the leaves of a fused add.
_BITS = {"volta": 23, "turing": 24, "ampere": 24, "ada": 24, "hopper": 25, "blackwell": 25, "rtx_blackwell": 25}
_TERMS = {
    "volta": {"float16": 4},
    "turing": {"float16": 8},
    "ampere": {"float16": 8, "bfloat16": 8, "tf32": 4},
    "ada": {"float16": 8, "bfloat16": 8, "tf32": 4, "e4m3fn": 16, "e5m2": 16},
    "hopper": {"float16": 16, "bfloat16": 16, "tf32": 8, "e4m3fn": 32, "e5m2": 32},
    **{
        arch: {"float16": 16, "bfloat16": 16, "tf32": 8, **dict.fromkeys((*_FP8, *_FP6), 32)}
        for arch in ("blackwell", "rtx_blackwell")
    },
}
_INSTRUCTIONS = {
    "volta": "mma.m8n8k4", "turing": "mma.m16n8k8", "ampere": "mma, two halves of k", "ada": "mma, two halves of k",
    "hopper": "wgmma, and mma but for fp8", "blackwell": "tcgen05.mma and mma", "rtx_blackwell": "mma",
}  # fmt: skip


def _nvidia(arch: str, form: str, result: str) -> Unit:
    terms = _TERMS[arch][form]
    fp8 = form in _FP8
    bits = 13 if fp8 and arch in ("ada", "hopper") else _BITS[arch]
    rounding = Rounding(FLOAT16) if result == "float16" else None
    # The instruction drops the low bits of float32 operands.
    operands = Rounding(_TYPES[form], "toward-zero" if form == "tf32" else "nearest-even")
    settings = Settings(align=Alignment.to(bits, rounding), operands=operands, output=rounding)
    hardware = arch == "hopper" and (result == "float32" or form == "float16")
    recorded = _MMA if result == "float16" else _H200.format(*_TILES[form]) if hardware else ""
    published = _FASI if arch in ("volta", "turing") else _ADA_FP8 if fp8 and arch == "ada" else _MMA_SIM
    evidence = recorded if hardware else published
    return Unit(Fused(terms), settings, _INSTRUCTIONS[arch], "hardware" if hardware else "model", evidence)


def _converted(form: str) -> Unit:
    settings = Settings(align=Alignment.to(25), operands=Rounding(_TYPES[form]))
    return Unit(Chunks(32, _ConvertedFp8()), settings, "mma.m16n8k32", "hardware", _MMA)


def _fp4(arch: str) -> Unit:
    """Return the unit of 4-bit elements, which are always block-scaled."""
    align = dataclasses.replace(Alignment.to(35), kind="groups")
    settings = Settings(align=align, operands=Rounding(_TYPES["e2m1fn"]))
    instruction = f"{_INSTRUCTIONS[arch]}, k = 64, kinds mxf4 and mxf4nvf4"
    return Unit(Fused(64), settings, instruction, "model", _MMA_SIM + _BLOCK_SCALES)


def _cdna1(form: str) -> Unit:
    # Four products (two of bfloat16) and the accumulator are added with one rounding to float32.
    settings = Settings(align=Alignment(MOST_BITS, Rounding(FLOAT32), "exact"), operands=Rounding(_TYPES[form]))
    short = "f16" if form == "float16" else "bf16"
    evidence = f"{_MMA_SIM}; its version of 2025 had float32 additions in pairs, which this one contradicts"
    return Unit(Fused(4 if short == "f16" else 2), settings, f"v_mfma_f32_*{short}", "model", evidence)


def _cdna2(form: str, group: int) -> Unit:
    settings = Settings(ftz=True, daz=True, operands=Rounding(_TYPES[form]))
    short = {("float16", 4): "f16", ("bfloat16", 4): "bf16_1k", ("bfloat16", 2): "bf16"}[form, group]
    flushing = "; subnormals are flushed, as FTTN (Li et al., arXiv 2403.00232) has it for the MI250X"
    return Unit(Chunks(group, Pairwise()), settings, f"v_mfma_f32_*{short}", "model", _MMA_SIM + flushing)


def _cdna3(form: str) -> Unit:
    fp8 = form.endswith("fnuz")
    mode: RoundingMode = "toward-zero" if form == "tf32" else "nearest-even"
    align = Alignment(24, Rounding(FLOAT32), "late_pairs" if fp8 else "late")
    short = {"float16": "f16", "bfloat16": "bf16", "tf32": "xf32", "e4m3fnuz": "fp8_fp8", "e5m2fnuz": "bf8_bf8"}[form]
    terms = {"tf32": 4, "float16": 8, "bfloat16": 8}.get(form, 16)
    settings = Settings(align=align, operands=Rounding(_TYPES[form], mode))
    return Unit(Fused(terms), settings, f"v_mfma_f32_*{short}", "model", _MMA_SIM)


#: The matrix units by architecture, operand type and result type.
UNITS: Final[dict[tuple[str, str, str], Unit]] = {
    **{
        (arch, form, result): _nvidia(arch, form, result)
        for arch, forms in _TERMS.items()
        for form in forms
        for result in (("float32", "float16") if form not in ("bfloat16", "tf32") else ("float32",))
    },
    **{(arch, "e2m1fn", "float32"): _fp4(arch) for arch in ("blackwell", "rtx_blackwell")},
    **{("cdna1", form, "float32"): _cdna1(form) for form in ("float16", "bfloat16")},
    **{("cdna2", form, "float32"): _cdna2(form, 4) for form in ("float16", "bfloat16")},
    **{("cdna3", form, "float32"): _cdna3(form) for form in ("float16", "bfloat16", "tf32", "e4m3fnuz", "e5m2fnuz")},
}


#: Second instructions for the same types: by architecture, operand type and instruction.
OTHERS: Final[dict[tuple[str, str, str], Unit]] = {
    ("hopper", "e4m3fn", "mma"): _converted("e4m3fn"),
    ("hopper", "e5m2", "mma"): _converted("e5m2"),
    ("cdna2", "bfloat16", "bf16"): _cdna2("bfloat16", 2),
}


@dataclass(frozen=True, slots=True)
class TensorCore(NamedRule):
    """A chain of matrix instructions on one accumulator, as `UNITS` has them.

    `arch` is the architecture, `type` the operands' format, `result` the accumulator's. ``instruction=mma`` is that of
    fp8 on Hopper, which converts the operands to float16, ``instruction=bf16`` that of CDNA2 without ``_1k``.
    """

    arch: str
    type: str
    result: str = "float32"
    instruction: str = "native"
    name: ClassVar[str] = "tensor_core"
    choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "arch": tuple(dict.fromkeys(arch for arch, _, _ in UNITS)),
        "type": tuple(_TYPES),
        "result": ("float32", "float16"),
        "instruction": ("native", "mma", "bf16"),
    }

    def __post_init__(self) -> None:
        NamedRule.__post_init__(self)
        if (self.arch, self.type, self.result) not in UNITS:
            known = ", ".join(
                f"type={t}" + ("" if r == "float32" else f" result={r}") for a, t, r in UNITS if a == self.arch
            )
            message = f"tensor_core: arch={self.arch} is not known with type={self.type}, result={self.result}; known: {known}"
            raise StrategyError(message)
        if self.instruction != "native" and (self.result != "float32" or self._key not in OTHERS):
            known = "; ".join(f"arch={a} type={t}" for a, t, i in OTHERS if i == self.instruction)
            message = f"tensor_core: instruction={self.instruction} is one of its own for {known}, with result=float32"
            raise StrategyError(message)

    @property
    def _key(self) -> tuple[str, str, str]:
        return self.arch, self.type, self.instruction

    @property
    def unit(self) -> Unit:
        """The instruction."""
        if self.instruction != "native":
            return OTHERS[self._key]
        return UNITS[self.arch, self.type, self.result]

    def check(self, arithmetic: Arithmetic) -> None:
        self.unit.order.check(self._own(arithmetic))

    def _own(self, arithmetic: Arithmetic) -> Arithmetic:
        # Inside another order the rule keeps its alignment, but for one that is given there.
        return (
            arithmetic
            if arithmetic.align is not None
            else dataclasses.replace(arithmetic, align=self.unit.settings.align)
        )

    def build(self, builder: Builder, items: Items, arithmetic: Arithmetic, *, width: int = 0) -> Segment:
        return self.unit.order.build(builder, items, self._own(arithmetic), width=width)

    def layout(self, case: Reduction) -> tuple[tuple[int, ...], list[Part]]:
        return Order.layout(self, case)

    def defaults(self, data: Format | None) -> Settings:
        del data
        return self.unit.settings

    def arguments(self) -> list[str]:
        fields = [(field.name, getattr(self, field.name), field.default) for field in dataclasses.fields(self)]
        return [f"{name}={value}" for name, value, default in fields if value != default]


__all__ = ["UNITS", "Fused", "TensorCore", "Unit"]
