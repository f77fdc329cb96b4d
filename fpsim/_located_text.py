"""A `Located` in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fpsim._tracing import Call
    from fpsim.locating import Located

_CAUSES = {
    "operation": "gave other bits from the same bits",
    "random": "drew from a random stream in another state",
    "order": "was given the same values in another order",
    "outside": "was given operands that differ already, and no recorded operation made them",
    "sequence": "is not what the other side calls here",
}
_ADVICE = {
    "random": "Seed the stream before each run (seed= here), or pass a generator, and look again.",
    "order": "Combine in a fixed order: by index, not by arrival of threads, or order of a set.",
    "outside": "Look for what is not recorded: compiled functions, uninitialised memory, files, clocks, state that is"
    " kept between calls, or a random generator that was made before.",
    "sequence": "The functions differ, or a decision before this point depends on what is not recorded.",
}


def located_text(found: Located) -> str:
    """Return what ``print`` shows of a `Located`."""
    count = f"{found.calls} recorded operation{'s' * (found.calls != 1)}"
    if found.cause == "none":
        return "\n".join([f"no difference in {found.runs} runs of {count}", *_notes(found)])
    if found.first is None:
        what = "the results differ" if found.result_differs else "the runs do not call the same number of operations"
        same = "every operation that was recorded gave the same bits"
        return "\n".join([f"{' and '.join(found.sides)}: {what}, but {same} ({count})", *_notes(found), _advice(found)])
    head = f"{' and '.join(found.sides)} differ first in operation {found.position} of {found.calls}"
    first = found.first
    lines = [head, f"  {first}", f"  {_CAUSES[found.cause]}"]
    if first.where:
        lines.append(f"  called at   {'the backward pass of ' * first.backward}{first.where}")
    if found.cause == "sequence":
        lines.append(f"  other side  {_call(found.counterpart)}")
    if found.differing is not None:
        lines.append(
            f"  difference  {found.differing} of {found.total} elements, by {found.max_ulp:.3g} ulp"
            f" ({found.max_absolute:.2g}) at most"
        )
    lines += [*_notes(found), f"  afterwards  {_later(found)}"]
    if found.known is not None:
        lines.append(f"  known       {found.known}")
    elif found.cause == "operation" and found.sides[0] == "run 1":
        lines.append("  known       no documentation calls it nondeterministic on this device")
    lines += [f"  pinned by   {s.setting}\n              cost: {s.cost}" for s in found.switches]
    return "\n".join([*lines, *([_advice(found)] if found.cause in _ADVICE else [])])


def _later(found: Located) -> str:
    parts = []
    if found.follow:
        parts.append(f"{found.follow} operation{'s' * (found.follow != 1)} with operands that follow from it")
    if found.own:
        named = ", ".join(f"{one.library}.{one.name} at {one.where}" for one in found.others[:3])
        parts.append(f"{found.own} more that gave other bits from the same bits ({named})")
    parts.append("the result differs" if found.result_differs else "the result has the same bits")
    return "; ".join(parts)


def _call(call: Call | None) -> str:
    return "no operation" if call is None else f"{call}" + (f" at {call.where}" if call.where else "")


def _notes(found: Located) -> list[str]:
    return [f"  besides     {note}" for note in found.notes]


def _advice(found: Located) -> str:
    return f"  what to do  {_ADVICE[found.cause]}"
