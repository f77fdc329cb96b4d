"""How a `Revealed` is written."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fpsim.revealing import Revealed
    from fpsim.revealing_kernels import RevealedKernel

_WIDTH, _LONG = 100, 200


def short(text: str) -> str:
    """Return a text of at most two lines."""
    return text if len(text) <= _LONG else f"{text[: _LONG - 3]}..."


def as_text(r: Revealed) -> str:
    """Return the claim, what it rests on, and what is left open."""
    e = r.evidence
    what = f"{r.op} of {'x'.join(map(str, r.shape))} {r.dtype}"
    spent = f"{e.calls} calls, {e.seconds:.1f} s"
    if r.strategy is not None:
        lines = [
            f"{what}: {short(str(r.strategy))}",
            f"{e.equal} of {e.replays} random replays have equal bits ({spent}).",
        ]
    elif r.parts:
        lines = [f"{what}: the order depends on the output"]
        lines += [f"  {int(p.outputs.sum())} outputs: {short(str(p.strategy))}" for p in r.parts]
        lines.append(f"{e.equal} of {e.replays} random replays have equal bits ({spent}).")
    else:
        lines = [f"{what}: no strategy is claimed ({spent})."]
        if e.counterexample is not None:
            lines.append(
                f"The best one, {short(e.counterexample.strategy)}, had equal bits in {e.equal} of {e.replays} replays."
            )
    if r.alternatives:
        lines.append(f"The same bits in every replay: {', '.join(map(short, r.alternatives))}.")
    lines += [f"{note[0].upper()}{note[1:]}." for note in (*e.notes, *e.facts)]
    return _wrapped(lines)


def kernel_text(r: RevealedKernel, unproved: str) -> str:
    """Return the claim about a kernel, and which part of it rests on what."""
    s, e = r.simulated, r.simulated.evidence
    what = f"{s.op} of {'x'.join(map(str, s.shape))} {s.dtype} by {', '.join(r.kernels)}"
    if r.strategy is not None:
        lines = [f"{what}: {short(str(r.strategy))}"]
    elif r.parts:
        lines = [f"{what}: the order depends on the output"]
        lines += [f"  {int(p.outputs.sum())} outputs: {short(str(p.strategy))}" for p in r.parts]
    else:
        lines = [f"{what}: no strategy is claimed."]
    lines += [f"Why not: {reason}." for reason in r.reasons]
    found = short(str(s.strategy)) if s.strategy else f"{len(s.parts)} orders" if s.parts else "no order"
    if s.found:
        lines.append(
            f"Order: {found} in Numba's CUDA simulator, which has no fused products; {e.equal} of {e.replays} random"
            f" replays have equal bits ({e.calls} calls, {e.seconds:.1f} s)."
        )
    else:
        lines.append(f"Order: the CUDA simulator shows none ({e.calls} calls, {e.seconds:.1f} s).")
    lines += [f"{note[0].upper()}{note[1:]}." for note in e.notes]
    lines.append(f"Arithmetic, from the PTX: {r.ptx}.")
    lines += [f"{fact[0].upper()}{fact[1:]}." for fact in r.facts]
    lines.append(f"Not proved: {unproved}.")
    return _wrapped(lines)


def _wrapped(lines: list[str]) -> str:
    return "\n".join(
        line for text in lines for line in textwrap.wrap(text, _WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    )
