"""Summation trees as pictures."""

from __future__ import annotations

from dataclasses import dataclass, field

from fpsim.programs import LEAF, Program

_MOST = 128  # leaves and boxes that are drawn
_ENDS = 6  # terms of a long fold that are drawn at its beginning, and at its end
_STEP_X, _STEP_Y, _MARGIN = 26, 22, 20


class Tree(str):
    """The text of a summation tree, which notebooks show as a picture."""

    __slots__ = ("_program",)
    _program: Program

    @classmethod
    def of(cls, program: Program, /) -> Tree:
        """Return the tree of a program."""
        self = cls(program.text())
        self._program = program
        return self

    def svg(self) -> str:
        """Return a picture: terms below, the sum on top; what is beyond 128 leaves stands as boxes with their numbers."""
        return svg(self._program)

    def _repr_svg_(self) -> str:
        return self.svg()


@dataclass(slots=True, eq=False)
class _Shape:
    """A term, a box of several terms, or an addition of the shapes below it."""

    label: str = ""
    below: list[_Shape] = field(default_factory=list)
    fold: tuple[int, int] | None = None  # a fold and its first leaf, not drawn yet
    x: float = 0.0
    level: int = 0


def svg(program: Program, /) -> str:
    """Return a summation tree as SVG."""
    root = _Shape(fold=(len(program.nodes) - 1, 0))
    shown, waiting = 1, [root]
    for shape in waiting:  # grows while it is gone through: the upper folds first
        assert shape.fold is not None
        node, origin = shape.fold
        parts = _parts(program, node, origin, _MOST - shown + 1)
        if len(parts) > _MOST - shown + 1:
            size = int(program.nodes[node, 4])
            shape.label = f"{size} terms"
            continue
        if len(parts) == 1:  # nothing is added
            shape.label, shape.fold = parts[0].label, parts[0].fold
            waiting += [shape] if shape.fold is not None else []
            continue
        shown += len(parts) - 1
        waiting += [part for part in parts if part.fold is not None]
        _add(shape, parts, program.arithmetics[int(program.nodes[node, 3])].terms)
    return _drawn(root, program.n)


def _parts(program: Program, node: int, origin: int, room: int) -> list[_Shape]:
    """Return the terms of a fold; those in the middle as one box where there are more than there is room for."""
    first, count = program.nodes[node, :2].tolist()
    rows = program.segments[first : first + count].tolist()
    total = sum(row[1] * row[3] for row in rows)
    keep = range(total) if total <= room else (*range(_ENDS), *range(total - _ENDS, total))
    parts: list[_Shape] = []
    last = -1
    for index in keep:
        if index != last + 1:
            parts.append(_Shape(f"{index - last - 1} more"))
        last = index
        for base, n_outer, s_outer, n_inner, s_inner, child in rows:
            if index < n_outer * n_inner:
                at = origin + base + index // n_inner * s_outer + index % n_inner * s_inner
                parts.append(_Shape(str(at)) if child == LEAF else _Shape(fold=(child, at)))
                break
            index -= n_outer * n_inner  # noqa: PLW2901 - counts within the segments
    return parts


def _add(shape: _Shape, parts: list[_Shape], terms: int) -> None:
    """Add the parts from first to last, `terms` at a time for fused adds; `shape` becomes the sum."""
    if not parts:
        shape.label = "0"
        return
    step = terms or 1
    groups = [parts[: terms or 2], *(parts[i : i + step] for i in range(terms or 2, len(parts), step))]
    total: _Shape | None = None
    for group in groups:
        total = _Shape(below=[*([] if total is None else [total]), *group])
    assert total is not None
    shape.below = total.below


def _drawn(root: _Shape, n: int) -> str:
    order: list[_Shape] = []
    stack = [root]
    while stack:
        top = stack.pop()
        order.append(top)
        stack += top.below[::-1]
    leaves = [shape for shape in order if not shape.below]
    at = 0.0
    for leaf in leaves:
        width = max(1.0, 0.35 * len(leaf.label))
        leaf.x = _MARGIN + (at + width / 2) * _STEP_X
        at += width
    for shape in reversed(order):
        if shape.below:
            shape.level = 1 + max(other.level for other in shape.below)
            shape.x = sum(other.x for other in shape.below) / len(shape.below)
    height = 2 * _MARGIN + root.level * _STEP_Y

    def y(shape: _Shape) -> float:
        return height - _MARGIN - shape.level * _STEP_Y

    lines = [
        f'<line x1="{s.x:.1f}" y1="{y(s):.1f}" x2="{o.x:.1f}" y2="{y(o):.1f}" stroke="currentColor"/>'
        for s in order
        for o in s.below
    ]
    sums = [f'<circle cx="{s.x:.1f}" cy="{y(s):.1f}" r="3" fill="currentColor"/>' for s in order if s.below]
    texts = [
        f'<text x="{s.x:.1f}" y="{y(s) + 13:.1f}" font-size="10" text-anchor="middle" fill="currentColor">{s.label}</text>'
        for s in leaves
    ]
    width = 2 * _MARGIN + at * _STEP_X
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" role="img">'
    return "\n".join([head, f"<title>Summation tree of {n} terms</title>", *lines, *sums, *texts, "</svg>"])
