"""How a `Precision` is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fpsim.formats import as_format

if TYPE_CHECKING:
    from fpsim._precision_probes import Operand
    from fpsim.measuring_precision import Precision

_MODES = {"nearest-even": "to nearest even", "nearest-away": "to nearest, ties away", "toward-zero": "truncated"}
_PRODUCTS = {
    "separate": "products rounded before they are added",
    "fma": "fused multiply-add",
    "exact": "exact products",
}


def as_text(p: Precision) -> str:
    """Return the precision in one line, what it means for results, and the switch."""
    what = f"{p.op} of {'x'.join(map(str, p.shape))} {p.dtype}"
    parts = [*_operands(p), *_sums(p)]
    if p.result != p.dtype:
        parts.append(f"results in {p.result}")
    lines = [f"{what}: {p.name}, {', '.join(parts)}", *_effects(p)]
    if p.switch is not None:
        lines.append(f"For full {p.dtype}: {p.switch}.")
    return "\n".join(lines)


def _operands(p: Precision) -> list[str]:
    if p.left is None or (p.right is None and p.op not in ("sum", "mean")):
        return ["operands become what no known format explains"]
    texts = [_operand(one, p.dtype) for one in (p.left, p.right) if one is not None]
    texts = list(dict.fromkeys(text for text in texts if text))
    if not texts:
        return []
    if len(texts) == 1 and (p.right is None or p.left == p.right):
        return [f"operands {texts[0]}"]
    return [
        f"{side} operands {_operand(one, p.dtype) or 'kept'}"
        for side, one in (("left", p.left), ("right", p.right))
        if one
    ]


def _operand(one: Operand, dtype: str) -> str:
    full = as_format(dtype)
    if one.form.precision >= full.precision and one.pieces == 1:
        return ""
    if one.pieces > 1:
        modes = _MODES[one.mode] + (f", the last {_MODES[one.last]}" if one.last else "")
        return f"split into {one.pieces} numbers of {one.form} ({modes})"
    return f"keep {one.form.precision - 1} of {full.precision - 1} fraction bits ({_MODES[one.mode]})"


def _sums(p: Precision) -> list[str]:
    texts = []
    if p.align is not None:
        texts.append("added several at a time as matrix units do")
    elif p.products is not None:
        texts.append(_PRODUCTS[p.products])
    if p.accumulator == "exact":
        texts.append("no sum is rounded before the last")
    elif p.accumulator != "not known":
        mode = f" ({_MODES[p.rounding]})" if p.rounding not in (None, "nearest-even") else ""
        moved = f", moved to a wider one every {p.promoted} terms" if p.promoted else ""
        texts.append(f"{p.accumulator} accumulator{mode}{moved}")
    if p.ftz or p.daz:
        texts.append("subnormal numbers become zero")
    return texts


def _effects(p: Precision) -> list[str]:
    """Return what that does to results."""
    texts = []
    bits = as_format(p.dtype).precision
    if p.error > 2.0 ** (3 - bits):
        texts.append(
            f"One product has a relative error of up to {p.error:.1e}; that of {p.dtype} has {2.0**-bits:.1e}."
        )
    if p.rounding == "toward-zero":
        texts.append("Sums are truncated: of terms of one sign the errors add up instead of cancelling.")
    narrow = {"float16": 2048, "bfloat16": 256}.get(p.accumulator)
    if narrow:
        texts.append(f"A sum stops growing at some {narrow} times its terms.")
    return texts
