"""How a `Revealed` is written."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fpsim.revealing import Revealed

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
    return "\n".join(
        line for text in lines for line in textwrap.wrap(text, _WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    )
