"""What a measurement of elementwise functions found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Example:
    """One input, what a library gave for it, and the correctly rounded result; all float32 numbers.

    Attributes
    ----------
    operands : tuple of float
        The input.
    observed, correct : float
        The two results.
    """

    operands: tuple[float, ...]
    observed: float
    correct: float

    def __str__(self) -> str:
        given = ", ".join(f"{x:.9g}" for x in self.operands)
        return f"f({given}) gave {self.observed:.9g}, correctly rounded {self.correct:.9g}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects; the numbers are written as by `float.hex`."""
        return {
            "operands": [x.hex() for x in self.operands],
            "observed": self.observed.hex(),
            "correct": self.correct.hex(),
        }


@dataclass(frozen=True, slots=True)
class ElementwiseErrors:
    """How the results of one library compare with the correctly rounded ones.

    Attributes
    ----------
    function, implementation, library, version, device : str
        What was measured.
    inputs : str
        What it was measured on.
    count, correct : int
        Inputs, and how many of them have the bits of the correctly rounded result (any NaN equals any NaN).
    telling, telling_correct : int
        The same without the inputs whose result any library gets right (plus or minus an input, 0, 1/2, 1, an
        infinity, NaN) and without subnormal numbers.
    max_ulp, mean_ulp : float
        Largest distance from the exact value in ulps of the exact value, where neither an operand nor the correct
        result is subnormal and both results are finite; mean over the telling ones of these. Correct rounding has a
        largest error of 0.5 and a mean of about 0.25.
    worst : Example or None
        Where `max_ulp` occurs.
    special : int
        Inputs without subnormal numbers for which one result is NaN or infinite and the other is not, or has another
        sign.
    special_example : Example or None
        The first of them.
    zero_signs : int
        Zeros with the wrong sign.
    subnormals, subnormal_correct, flushed : int
        Inputs for which an operand or the correct result is subnormal (a result of 2**-126 counts as such), and a zero
        in its place would show; how many results have the correct bits; how many are as if it were zero.
    subnormal_max_ulp : float
        Largest error of those neither correct nor flushed.
    subnormal_example : Example or None
        Where that occurs, or the first flushed one.
    seconds : float
        Time that the library took, with transfers.
    """

    function: str
    implementation: str
    library: str
    version: str
    device: str
    inputs: str
    count: int
    correct: int
    telling: int
    telling_correct: int
    max_ulp: float
    mean_ulp: float
    worst: Example | None
    special: int
    special_example: Example | None
    zero_signs: int
    subnormals: int
    subnormal_correct: int
    flushed: int
    subnormal_max_ulp: float
    subnormal_example: Example | None
    seconds: float

    @property
    def correctly_rounded(self) -> bool:
        """Whether every result has the bits of the correctly rounded one."""
        return self.correct == self.count

    @property
    def share(self) -> float:
        """Share of the telling inputs with the correct bits; 1 where there are none."""
        return self.telling_correct / self.telling if self.telling else 1.0

    @property
    def subnormal_text(self) -> str:
        """What becomes of subnormal numbers: ``kept``, ``flushed``, or ``flushed in ...% of the cases``."""
        if not self.flushed:
            return "kept"
        if self.subnormal_correct < 0.01 * self.subnormals:
            return "flushed"
        return f"flushed in {100 * self.flushed / self.subnormals:.2g}% of the cases"

    def __str__(self) -> str:
        who = f"{self.function} of {self.implementation}"
        if self.correctly_rounded:
            return f"{who}: correctly rounded for all {self.count:,} inputs"
        text = f"{who}: {100 * self.share:.4g}% correctly rounded, largest error {self.max_ulp:.4g} ulp"
        if self.special:
            text += f", {self.special:,} wrong NaN or infinity"
        if self.zero_signs:
            text += f", {self.zero_signs:,} zeros of the wrong sign"
        return f"{text}, subnormal numbers {self.subnormal_text}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects."""
        names = [f for f in self.__slots__ if f not in {"worst", "special_example", "subnormal_example"}]
        out: dict[str, Any] = {name: getattr(self, name) for name in names}
        for name in ("worst", "special_example", "subnormal_example"):
            example = getattr(self, name)
            out[name] = example.to_dict() if example else None
        return out


@dataclass(frozen=True, slots=True)
class Comparison:
    """How several libraries compare on one function.

    Attributes
    ----------
    function : str
        The function.
    errors : list of ElementwiseErrors
        One for each library that has the function.
    different : dict
        From two names to the number of inputs for which their bits differ, and to the number of telling ones
        among these.
    farthest : dict
        From two names to the largest difference of two finite results of telling inputs, counted in float32 numbers.
    """

    function: str
    errors: list[ElementwiseErrors]
    different: dict[tuple[str, str], tuple[int, int]]
    farthest: dict[tuple[str, str], int]

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects."""
        return {
            "function": self.function,
            "errors": [e.to_dict() for e in self.errors],
            "different": [
                {"between": list(pair), "inputs": a, "telling": b, "farthest": self.farthest[pair]}
                for pair, (a, b) in self.different.items()
            ],
        }
