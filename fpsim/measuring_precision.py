"""Which precision does this product really use: the answer of directed probes, in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from fpsim._arithmetic_facts import Facts, facts_of
from fpsim._black_box import BlackBox
from fpsim._precision_checks import confirmed, promotion, rounds_operands
from fpsim._precision_probes import Operand, keeps, keeps_products, operand, products
from fpsim.errors import InputError
from fpsim.formats import BFLOAT16, FLOAT32, FLOAT64, Format, as_format
from fpsim.switches import FULL_FLOAT32, NO_TF32

SCHEMA: Final = "fpsim.precision/1"
_NAMES = {"tf32": "TF32"}
_ACCUMULATORS = {8: "bfloat16", 11: "float16", 24: "float32", 53: "float64", 64: "extended"}

_FLOAT16 = {"torch": "torch.backends.cuda.matmul.allow_fp16_accumulation = False"}
_FLOAT64 = {"jax": 'jax.config.update("jax_enable_x64", True) before arrays are made'}
_FLUSHING = {"torch": "torch.set_flush_denormal(False), on a CPU"}


@dataclass(frozen=True, slots=True)
class Precision:
    """The precision of a product; see `precision`.

    Attributes
    ----------
    op : str
        The operation.
    shape : tuple of int
        n, or the shape of the product.
    dtype : str
        Format of the operands.
    result : str
        Format of the results.
    name : str
        In a word or two: "float32", "TF32", "bfloat16", "float16", "bf16x3", "bf16x6", "bf16x9", "tf32x3", ...
    left, right : Operand or None
        What the operands are rounded to or split into before they are multiplied; None where no format explains it, or
        where there is no such operand.
    products : str or None
        "separate": rounded before they are added; "fma": fused with one addition; "exact": never rounded; None where
        products of the operands are exact anyway.
    accumulator : str
        The narrowest accumulator that was met: "float32", "float16", ..., or its number of bits; "exact" where nothing
        was lost.
    rounding : str or None
        How that rounds.
    promoted : int or None
        A sum in that accumulator is moved to a wider one after so many terms.
    align : int or None
        Several products are added at a time, as matrix units do, with so many fraction bits below the largest.
    ftz, daz : bool or None
        Subnormal results, respectively operands, become zero.
    error : float
        The largest relative error of one product that rounded operands and the accumulator make, without underflow.
    switch : str or None
        What gives the full precision of `dtype`, where that is known and needed.
    calls : int
        How often the function was called.
    """

    op: str
    shape: tuple[int, ...]
    dtype: str
    result: str
    name: str
    left: Operand | None
    right: Operand | None
    products: str | None
    accumulator: str
    rounding: str | None
    promoted: int | None
    align: int | None
    ftz: bool | None
    daz: bool | None
    error: float
    switch: str | None
    calls: int

    @property
    def reduced(self) -> bool:
        """Whether this is less than the precision of the operands and an accumulator of float32."""
        return self.switch is not None

    def __str__(self) -> str:
        from fpsim._precision_text import as_text

        return as_text(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python objects."""

        def of(one: Operand | None) -> dict[str, Any] | None:
            if one is None:
                return None
            return {"format": str(one.form), "rounding": one.mode, "pieces": one.pieces, "last": one.last or one.mode}

        return {
            "schema": SCHEMA, "op": self.op, "shape": list(self.shape), "dtype": self.dtype, "result": self.result,
            "name": self.name, "left": of(self.left), "right": of(self.right), "products": self.products,
            "accumulator": self.accumulator, "rounding": self.rounding, "promoted": self.promoted,
            "align": self.align, "ftz": self.ftz,
            "daz": self.daz, "error": self.error, "reduced": self.reduced, "switch": self.switch, "calls": self.calls,
        }  # fmt: skip


def precision(
    function: Callable[..., Any],
    /,
    *,
    op: str = "matmul",
    shape: tuple[int, ...] | None = None,
    n: int | None = None,
    dtype: Any = "float32",
    library: str | None = None,
    rng: Any = 0,
) -> Precision:
    """Find out which precision a product really uses, on this machine, now, and for operands of this shape.

    Parameters
    ----------
    function : callable
        Takes one array (sum, mean) or two (products), and returns the result: a number or an array that `numpy.asarray`
        or an array library reads.
    op : {"matmul", "dot", "matvec", "vecmat", "sum", "mean"}
        What it computes.
    shape : tuple of int, optional
        Of a product: (m, k, n) of two matrices, (m, k) of a matrix times a vector, (k, n) of a vector times a matrix;
        256 each by default. Libraries choose by the shape: cuBLAS multiplies vectors without TF32.
    n : int, optional
        Number of terms of vectors, 256 by default.
    dtype : dtype, Format or str
        The format of the operands; they are passed as float32 where NumPy lacks it.
    library : str, optional
        Whose switch to name, such as "torch"; by default that of the function's module, or of all that are imported.
    rng : int, SeedSequence or Generator
        Source of the probes.

    Returns
    -------
    Precision
        Printed, it is one line, the effect, and the switch that gives full precision again where it is not used.

    Raises
    ------
    InputError
        The operation or shape does not fit, or the function returns something else than numbers of the right shape.

    Notes
    -----
    Some 100 to 300 calls on few operands that are not 0: a lone product shows what operands are rounded to or split into, three
    terms show the accumulator, and ``a * a - b`` whether products are rounded. The order is not looked for; `reveal`
    does that, and proves it.

    Examples
    --------
    >>> import numpy as np, fpsim
    >>> found = fpsim.precision(lambda a, b: fpsim.matmul(a, b, "fused(8)+align(24)+operands(tf32)"), shape=(8, 64, 8))
    >>> print(str(found).splitlines()[0])  # doctest: +NORMALIZE_WHITESPACE
    matmul of 8x64x8 float32: TF32, operands keep 10 of 23 fraction bits (to nearest even), added several at a time as
    matrix units do, float32 accumulator (truncated)
    """
    from fpsim.formats import _generator

    form = as_format(dtype)
    box = BlackBox(function, op, _sizes(op, shape, n), form)
    source = _generator(rng)
    first = box.run(*(np.zeros(each, box.dtype) for each in box.operand_shapes))
    result = as_format(first.dtype)
    with np.errstate(all="ignore"):
        left = operand(box, 0, result, source)
        right = operand(box, 1, result, source) if box.multiplies else None
        multiplied = products(box)
        for one in (left, right):  # what operands cannot hold would look like what the accumulator loses
            if one is not None and one.form.emin > box.form.emin:
                box.form = one.form
        facts = confirmed(function, box, facts_of(box, result, source), result, source)
        moved = promotion(box, facts)
        box.form = form
        left, right = (_of_operand(box, one, facts) for one in (left, right))
        multiplied = multiplied if facts.precision >= form.precision or facts.precision == 0 else None
        name = _name(box, left, right, multiplied, facts)
    full = _is_full(form, left, right, name, facts)
    return Precision(
        op, box.shape, str(form), str(result), name, left, right, multiplied, _accumulator(facts), facts.rounding,
        moved, facts.align, facts.ftz, facts.daz, _error(name, left, right, facts),
        None if full else _switch(name, function, library, form, facts), box.calls,
    )  # fmt: skip


def _sizes(op: str, shape: tuple[int, ...] | None, n: int | None) -> tuple[int, ...]:
    length = {"matvec": 2, "vecmat": 2, "matmul": 3}.get(op, 1)
    if shape is not None and n is not None:
        message = f"give n for vectors or shape for products, one of them, for {op}"
        raise InputError(message)
    if n is not None:
        return (int(n),)
    return tuple(int(size) for size in shape) if shape is not None else (256,) * length


def _of_operand(box: BlackBox, one: Operand | None, facts: Facts) -> Operand | None:
    """Return what an operand becomes: not what the accumulator alone has made of it."""
    if one is not None and one.form == box.form and facts.result.precision < box.form.precision:
        narrow = facts.result  # which a lone term is rounded to at the end anyway
        modes = [mode for mode in ("nearest-even", "toward-zero") if rounds_operands(box, narrow, mode)]
        return Operand(narrow, modes[0]) if len(modes) == 1 else one  # type: ignore[arg-type]
    if one is None or one.form == box.form or one.form.precision not in (facts.precision, facts.result.precision):
        return one
    if keeps_products(box, one.form) or rounds_operands(box, one.form, one.mode):
        return one
    return Operand(box.form)


def _name(box: BlackBox, left: Operand | None, right: Operand | None, multiplied: str | None, facts: Facts) -> str:
    if left is None or (right is None and box.multiplies):
        return "not known"
    narrow = left if right is None or left.error >= right.error else right
    if narrow.pieces > 1:
        short, shift = ("bf16", 9) if narrow.form == BFLOAT16 else (str(narrow.form), 12)
        return f"{short}x{4 if keeps(box, 1, 1, shift=shift) else 3}"
    names = [_NAMES.get(str(one.form), str(one.form)) for one in (left, right) if one is not None]
    if len(set(names)) > 1:
        return " times ".join(names)
    sums = _accumulator(facts)
    if narrow.form == box.form and sums in _ACCUMULATORS.values():
        if sums not in ("float32", str(box.form)):
            return f"{sums} accumulate"
        if box.form == FLOAT32 and multiplied == "exact":
            return "bf16x9" if keeps(box, 1, 2) else "bf16x6"
    return names[0]


def _accumulator(facts: Facts) -> str:
    bits = facts.precision
    if not bits:
        return "not known"
    if bits > 64:
        return "exact"
    return _ACCUMULATORS.get(bits, f"{bits}-bit")


def _is_full(form: Format, left: Operand | None, right: Operand | None, name: str, facts: Facts) -> bool:
    """Tell whether nothing is less precise than the operands, and float32."""
    if left is None or name in ("bf16x3", "bf16x4", "tf32x3", "tf32x4") or facts.ftz or facts.daz:
        return False
    if any(one is not None and one.form.precision < form.precision for one in (left, right)):
        return False
    return not facts.precision or facts.precision >= min(max(form.precision, 24), 53)


def _error(name: str, left: Operand | None, right: Operand | None, facts: Facts) -> float:
    """Return the largest relative error of a product: of its operands, and of one rounding in the accumulator."""
    known = [one for one in (left, right) if one is not None]
    growth = 1.0
    for one in known:
        growth *= 1 + (one.error if one.form.precision < 24 else 0.0)
    if 0 < facts.precision <= 64:
        growth *= 1 + 2.0 ** -(facts.precision - (facts.rounding == "toward-zero"))
    missing = left.rest * right.rest if name.endswith("x3") and left and right else 0.0  # that of the smaller pieces
    return growth - 1 + missing


def _switch(name: str, function: Callable[..., Any], library: str | None, form: Format, facts: Facts) -> str:
    """Return what gives full precision again, for the library of the function or those that are imported."""
    root = library or str(getattr(function, "__module__", None) or "").partition(".")[0].replace("jaxlib", "jax")
    if form == FLOAT64:
        return _FLOAT64.get(root, "not known")
    if name == str(form) and facts.precision >= FLOAT32.precision:  # but for flushed subnormals
        return _FLUSHING.get(root, "not known; compilers flush with -ftz=true, -ffast-math and the like")
    if form != FLOAT32:
        return _FLOAT16.get(root, "operands of float32, or an accumulator of float32 where the library offers one")
    if root in FULL_FLOAT32:
        known = [FULL_FLOAT32[root]]
    else:
        known = [switch for module, switch in FULL_FLOAT32.items() if library is None and module in sys.modules]
    if not known and library is None:
        known = [f"the switch of its library; give library= for those of {', '.join(FULL_FLOAT32)}"]
    return "; or ".join([*known, *([NO_TF32] if "tf32" in name.lower() else [])]) or "not known"


__all__ = ["SCHEMA", "Precision", "precision"]
