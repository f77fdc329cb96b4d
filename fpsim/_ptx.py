"""What the instructions of a PTX text say of the arithmetic of a kernel, and what they leave to the assembler.

Source: PTX ISA 8.x, floating-point instructions: ``add``, ``sub`` and ``mul`` with a rounding modifier are never
contracted, those without one may be, by the assembler, into fused multiply-adds; ``fma`` always rounds once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_INSTRUCTION: Final = re.compile(r"^\s*(?:@!?%p\d+\s+)?([a-z][\w.:]*)\s[^;]*;", re.MULTILINE)
_FLOAT: Final = re.compile(r"\.((?:bf|f)\d+)(?:x2)?$")
_MATRIX: Final = ("mma", "wmma", "wgmma", "tcgen05")
_NAMES: Final = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
_MODES: Final = re.compile(r"\.(rz|rm|rp)(?=\.|$)")
ADDS, PRODUCTS, FUSED = ("add", "sub"), ("mul",), ("fma", "mad")


@dataclass(frozen=True, slots=True)
class PtxFacts:
    """The floating-point instructions of one or more kernels.

    Attributes
    ----------
    counts : dict of str to int
        How often each instruction on floating-point numbers that may round is there, and each atomic addition.
    matrix : bool
        There are instructions of tensor cores.
    swaps : bool
        There are atomic compare-and-swaps, which a loop may build an addition from.
    """

    counts: dict[str, int]
    matrix: bool = False
    swaps: bool = False

    def named(self, names: Iterable[str]) -> list[str]:
        """Return the instructions of these names."""
        return [one for one in self.counts if one.split(".")[0] in names]

    def types(self, names: Iterable[str]) -> set[str]:
        """Return the formats that instructions of these names work in."""
        return {_type(one) for one in self.named(names)}

    @property
    def atomics(self) -> list[str]:
        """Atomic additions of floating-point numbers."""
        return self.named(("atom", "red"))

    @property
    def contractible(self) -> bool:
        """Whether the assembler may fuse a product and an addition, as neither says how it rounds."""
        bare = {
            kind: {_type(one) for one in self.named(names) if ".rn" not in one}
            for kind, names in (("add", ADDS), ("mul", PRODUCTS))
        }
        return bool(bare["add"] & bare["mul"])

    @property
    def flushes(self) -> bool | None:
        """Whether subnormal numbers are flushed by all, by no (False), or by some (None) of the instructions."""
        some = [".ftz" in one for one in self.named((*ADDS, *PRODUCTS, *FUSED)) if _type(one) == "float32"]
        return None if len(set(some)) > 1 else bool(some and some[0])

    @property
    def directed(self) -> list[str]:
        """Instructions that round otherwise than to nearest."""
        return [one for one in self.named((*ADDS, *PRODUCTS, *FUSED)) if _MODES.search(one)]

    @property
    def approximate(self) -> list[str]:
        """Instructions with an error that IEEE 754 does not allow."""
        return [one for one in self.counts if ".approx" in one or ".full" in one]

    def __str__(self) -> str:
        return ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items())) or "none"


def _type(instruction: str) -> str:
    found = _FLOAT.search(instruction)
    return _NAMES.get(found[1], found[1]) if found else ""


def facts_of(*texts: str) -> PtxFacts:
    r"""Return what the PTX of one or more kernels says.

    Examples
    --------
    >>> found = facts_of("fma.rn.f32 %f1, %f2, %f3, %f4;\n add.f32 %f1, %f2, %f3;")
    >>> str(found), found.contractible
    ('1 add.f32, 1 fma.rn.f32', False)
    """
    counts = Counter(name for text in texts for name in _INSTRUCTION.findall(text))
    rounding = (*ADDS, *PRODUCTS, *FUSED, "div", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
    wanted = {}
    for name, count in counts.items():
        first, *rest = name.split(".")
        if _FLOAT.search(name) and (first in rounding or (first in ("atom", "red") and "add" in rest)):
            wanted[name] = count
    return PtxFacts(
        wanted,
        any(name.split(".")[0] in _MATRIX for name in counts),
        any(name.startswith("atom.") and ".cas." in f"{name}." for name in counts),
    )
