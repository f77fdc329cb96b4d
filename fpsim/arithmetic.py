"""What happens at the leaves and nodes of a summation tree."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Final

from fpsim.errors import StrategyError
from fpsim.formats import FLOAT32, FLOAT64, Format, RoundingMode

COMPENSATIONS: Final = ("kahan", "neumaier", "dot2")
STARTS: Final = ("first", "+0", "-0")


@dataclass(frozen=True, slots=True)
class Rounding:
    """A format to round to, and how.

    Attributes
    ----------
    format : Format
        The target.
    mode : str
        One of `fpsim.formats.ROUNDING_MODES`, without "stochastic".
    """

    format: Format
    mode: RoundingMode = "nearest-even"

    def __str__(self) -> str:
        mode = "" if self.mode == "nearest-even" else f", {self.mode.replace('-', '_')}"
        return f"{self.format}{mode}"


@dataclass(frozen=True, slots=True)
class Alignment:
    """How a fused add aligns its terms, and what it rounds their sum to.

    Attributes
    ----------
    bits : int
        Fraction bits that are kept below the largest exponent of all terms; the rest of each significand is dropped.
    result : Rounding
        What the exact sum of the truncated terms is rounded to: by default toward zero, in the exponents of float32,
        to ``bits + 1`` bits, but no more than float32 has.
    kind : {"", "groups", "late", "late_pairs", "exact"}
        "": as above. "groups": the products of 16 neighbours are added exactly first, and count with the exponents of
        their block scales. "late": the products are aligned to the largest of themselves, and then their sum, rounded
        down to 8 bits more, and the accumulator, rounded down, to the larger of both; "late_pairs": before that, those
        with even and with odd numbers apart. "exact": nothing is dropped.
    """

    bits: int
    result: Rounding
    kind: str = ""

    @classmethod
    def to(cls, bits: int, result: Rounding | None = None, /) -> Alignment:
        """Return an alignment to so many bits, and to the usual result if none is given."""
        return cls(bits, result or cls._usual(bits))

    @staticmethod
    def _usual(bits: int) -> Rounding:
        precision = min(FLOAT32.precision, max(bits, 0) + 1)
        return Rounding(Format("", precision, FLOAT32.emin, FLOAT32.emax), "toward-zero")

    def __str__(self) -> str:
        usual = Rounding(FLOAT32) if self.kind == "exact" else self._usual(self.bits)
        result = [] if self.result == usual else [str(self.result)]
        return ", ".join(["exact", *result] if self.kind == "exact" else [str(self.bits), *result, *self._kinds])

    @property
    def _kinds(self) -> list[str]:
        return [self.kind] if self.kind else []


#: How fused adds align, but for the usual way.
KINDS: Final = ("groups", "late", "late_pairs", "exact")
#: Terms of a fused add, and fraction bits of its alignment, up to which float64 holds every sum exactly.
MOST_TERMS, MOST_BITS = 1024, 40


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The arithmetic of one part of a summation tree.

    Attributes
    ----------
    accumulator : Rounding
        Format and rounding mode of every addition.
    fma : bool
        True: a product enters a sum by one fused multiply-add. False: it is rounded first.
    product : Format or None
        The format of separate products; None means the accumulator's.
    compensation : {None, "kahan", "neumaier", "dot2"}
        Kahan (1965) carries a correction into the next addition. Neumaier (1974) collects the exact errors of all
        additions beside the sum and adds them once, at the end; over a tree the errors are carried up with the
        partial sums. Dot2 (Ogita, Rump & Oishi 2005) collects the errors of the products too.
    ftz, daz : bool
        Flush subnormal results, respectively subnormal operands, to a zero of the same sign.
    align : Alignment or None
        The alignment of fused adds.
    terms : int
        0, or the number of leaves in a fused add: this part of the tree is a chain of them.
    operands : Rounding or None
        What the operands are rounded to before anything else.
    right : Rounding or None
        The same for the right operand of a product, where it is not as the left one.
    output : Rounding or None
        What the finished sum is rounded to.
    start : {"first", "+0", "-0"}
        How an accumulator starts: with its first term, or from a zero. Only the sign of a zero can tell.
    mean : {"divide", "reciprocal"}
        A mean divides the sum by n, or multiplies it by the rounded 1/n.
    """

    accumulator: Rounding = Rounding(FLOAT32)
    fma: bool = False
    product: Format | None = None
    compensation: str | None = None
    ftz: bool = False
    daz: bool = False
    align: Alignment | None = None
    terms: int = 0
    operands: Rounding | None = None
    right: Rounding | None = None
    output: Rounding | None = None
    start: str = "first"
    mean: str = "divide"

    def operand(self, name: str, /) -> Rounding | None:
        """Return what operand "a", "b" or "x" is rounded to."""
        return self.right if name == "b" and self.right is not None else self.operands

    @property
    def operand_format(self) -> Format:
        """The widest operand that is used as it is: as stated, else float32, or float64 for a wider accumulator."""
        if self.operands is not None:
            return self.operands.format
        wide = self.accumulator.format.precision > FLOAT32.precision or self.accumulator.format.emax > FLOAT32.emax
        return FLOAT64 if wide else FLOAT32

    @property
    def result_format(self) -> Format:
        """The format of a finished sum."""
        return (self.output or self.accumulator).format

    @property
    def is_plain(self) -> bool:
        """Whether every operation is one rounding to nearest in float32 or float64, as the hardware does it."""
        native = self.accumulator in (Rounding(FLOAT32), Rounding(FLOAT64))
        own_products = self.fma or self.product in (None, self.accumulator.format)
        return (
            native
            and own_products
            and self.compensation is None
            and not (self.ftz or self.terms)
            and self.output is None
        )

    def __str__(self) -> str:
        """Return the settings as a strategy text writes them, those that differ from the default."""
        plain = Arithmetic()
        changes = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        changed = {name: value for name, value in changes.items() if value != getattr(plain, name)}
        if changed.pop("terms", 0):
            own = Settings(align=self.align, output=self.output)
            return " + ".join([f"fused({self.terms})", *own.parts()])
        changed.pop("align", None)
        accumulator = {"accumulator": self.accumulator}
        return " + ".join(Settings(**{**accumulator, **changed}).parts())

    def check(self) -> None:
        """Raise `StrategyError` where two settings contradict each other."""
        accumulator = self.accumulator
        if self.fma and self.compensation in ("neumaier", "dot2"):
            message = (
                f"{self.compensation} needs the error of every addition, which a fused multiply-add does not give:"
                " drop fma (dot2 has the accuracy of exact products without it)"
            )
            raise StrategyError(message)
        for form in (accumulator.format, self.product):
            if form is not None and form != FLOAT64 and (form.emin - form.precision < -950 or form.emax > 1000):
                message = f"{form}: exponents as wide as float64's are emulated only as float64 itself"
                raise StrategyError(message)
        if accumulator.format.precision > 51 and accumulator != Rounding(FLOAT64):
            message = f"acc({accumulator}): more than 51 bits are emulated only as acc(float64), to nearest even"
            raise StrategyError(message)
        if self.product is not None and self.product.precision > 51 and self.product != accumulator.format:
            exact = self.product == FLOAT64 and FLOAT32.includes(self.operand_format)
            if not exact and (self.product != FLOAT64 or accumulator.mode != "nearest-even"):
                message = f"product({self.product}): more than 51 bits are emulated only as float64, to nearest even"
                raise StrategyError(message)
        if self.fma and self.product is not None:
            message = "product(...) says how a separate product is rounded, so it cannot be joined with fma"
            raise StrategyError(message)


@dataclass(frozen=True, slots=True)
class Settings:
    """Changes to an `Arithmetic`, as written after an order; None leaves a field as it is."""

    accumulator: Rounding | None = None
    fma: bool | None = None
    product: Format | None = None
    compensation: str | None = None
    ftz: bool | None = None
    daz: bool | None = None
    align: Alignment | None = None
    operands: Rounding | None = None
    right: Rounding | None = None
    output: Rounding | None = None
    start: str | None = None
    mean: str | None = None

    def over(self, arithmetic: Arithmetic, /) -> Arithmetic:
        """Return `arithmetic` with these changes, except `output`, which belongs to one sum and not to its parts."""
        changes = {name: value for name, value in self._given() if name != "output"}
        if changes.get("compensation") == "none":
            changes["compensation"] = None
        if changes.get("fma"):
            changes.setdefault("product", None)
        if changes.get("product") is not None:
            changes.setdefault("fma", False)
        if changes.get("operands") is not None:
            changes.setdefault("right", None)
        return dataclasses.replace(arithmetic, output=None, **changes)

    def merged(self, inner: Settings, /) -> Settings:
        """Return these settings with those of `inner` winning."""
        return dataclasses.replace(self, **dict(inner._given()))

    def _given(self) -> list[tuple[str, Any]]:
        pairs = [(field.name, getattr(self, field.name)) for field in dataclasses.fields(self)]
        return [(name, value) for name, value in pairs if value is not None]

    def __bool__(self) -> bool:
        return bool(self._given())

    def __str__(self) -> str:
        return "".join(f"+{part}" for part in self.parts())

    def parts(self) -> list[str]:
        """Return each setting in the notation of a strategy text, in canonical order."""
        parts = []
        if self.fma is not None:
            parts.append("fma" if self.fma else "separate")
        if self.accumulator is not None:
            parts.append(f"acc({self.accumulator})")
        if self.product is not None:
            parts.append(f"product({self.product})")
        if self.compensation is not None:
            parts.append(self.compensation if self.compensation != "none" else "uncompensated")
        if self.start is not None:
            parts.append(f"start({self.start})" if self.start == "first" else f"start({self.start}.0)".replace("+", ""))
        flags = {name: getattr(self, name) for name in ("ftz", "daz")}
        parts += [name if value else f"{name}(off)" for name, value in flags.items() if value is not None]
        if self.mean is not None:
            parts.append(self.mean)
        if self.align is not None:
            parts.append(f"align({self.align})")
        if self.operands is not None:
            right = "" if self.right is None else f", {self.right.format}"
            parts.append(
                f"operands({self.operands.format}{right}{str(self.operands)[len(str(self.operands.format)) :]})"
            )
        if self.output is not None:
            parts.append(f"output({self.output})")
        return parts


NO_SETTINGS: Final = Settings()
