"""An explanation as one HTML file that opens offline: charts, trees and evidence, without scripts or other files."""

from __future__ import annotations

import base64
import math
import re
import struct
import zlib
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from fpsim._explanation_text import MEANING, _difference, _matches, _rows, number
from fpsim.errors import FpsimError

if TYPE_CHECKING:
    from fpsim.explaining.evidence import Errors, Evidence
    from fpsim.explaining.results import Explanation

Doubles = NDArray[np.float64]
_CELLS: Final = 256  # of a heat map, each way; larger matrices show the largest difference of each block
_BINS: Final = 41
_DEVIATIONS: Final = 6  # that a histogram reaches
_SIDES: Final = 4  # that have a histogram
_LOW, _HIGH, _SPECIAL = (253, 200, 80), (165, 15, 60), (140, 60, 200)
_STYLE: Final = """
.fpsim{--ink:#1b1f24;--paper:#fff;--soft:#59636e;--line:#d1d9e0;--bar:#8db4e2;--law:#b42318;
 font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:72em;padding:1em}
@media (prefers-color-scheme:dark){.fpsim{--ink:#e6e8eb;--paper:#14171b;--soft:#9aa4af;--line:#3a424b;--bar:#3f6ea5;--law:#ff8a7a}}
.fpsim h1{font-size:1.5em;margin:0 0 .2em}.fpsim h2{font-size:1.1em;margin:1.4em 0 .4em}
.fpsim table{border-collapse:collapse}.fpsim th,.fpsim td{border-bottom:1px solid var(--line);padding:3px 12px 3px 0;text-align:left}
.fpsim .row{display:flex;flex-wrap:wrap;gap:2em}.fpsim figure{margin:0;overflow:auto;max-width:min(34em,100%)}
.fpsim figcaption,.fpsim .soft{color:var(--soft);font-size:.9em}.fpsim pre{white-space:pre-wrap;font-size:.9em}
.fpsim img{image-rendering:pixelated;border:1px solid var(--line);min-width:min(16em,100%);max-width:100%}
.fpsim .wide{overflow-x:auto}.fpsim .explained{color:#1a7f37}.fpsim .bug{color:#d1242f}.fpsim .unknown{color:#9a6700}
.fpsim .bar{fill:var(--bar)}.fpsim .law{stroke:var(--law);fill:none;stroke-width:1.5}.fpsim svg{color:var(--ink)}
.fpsim svg text{fill:var(--ink)}.fpsim .axis{stroke:var(--soft)}"""


def page(found: Explanation, /) -> str:
    """Return an explanation as a whole HTML document."""
    title = escape(f"fpsim explain: {found.verdict}")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>'
        "<style>@media (prefers-color-scheme:dark){body{background:#14171b}}</style></head>"
        f"<body>{fragment(found)}</body></html>\n"
    )


def fragment(found: Explanation, /) -> str:
    """Return an explanation as a piece of HTML with its style, as notebooks show it."""
    kind = {0: "explained", 1: "bug", 3: "unknown"}[found.exit_code]
    parts = [
        f'<h1 class="{kind}">{escape(found.verdict)}</h1>',
        f'<p>{escape(MEANING[found.verdict])} <span class="soft">(confidence: {escape(found.confidence)})</span></p>',
        f"<p>{escape(found.reason)}</p>",
        _listed("What removes the difference", found.switches),
        _listed("Mechanisms that fit, likeliest first", found.ranked or found.mechanisms),
        _attribution(found),
        _listed("Next", found.next_steps),
        _table(found),
        _charts(found),
        _trees(found),
        _strategies(found),
    ]
    return f'<div class="fpsim"><style>{_STYLE}</style>{"".join(parts)}</div>'


# -- words ------------------------------------------------------------------------------------------------------------


def _listed(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return f"<h2>{escape(title)}</h2><ul>{''.join(f'<li>{escape(str(line))}</li>' for line in lines)}</ul>"


def _rows_of(rows: Iterable[Sequence[str]]) -> str:
    head, *body = rows
    first = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    rest = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in body)
    return f'<div class="wide"><table><thead><tr>{first}</tr></thead><tbody>{rest}</tbody></table></div>'


def _attribution(found: Explanation) -> str:
    """Return each chain of single changes as a table of the steps' shares."""
    told = []
    for chain in found.attribution:
        head = ["change", "share of the difference", "outputs changed", "largest change", "then"]
        rows = [
            [s.change, f"{100 * s.share:.3g} %", str(s.changed), number(s.largest), s.strategy] for s in chain.steps
        ]
        told.append(f"<p>From {escape(chain.first)} ({escape(chain.start)}) to {escape(chain.second)}</p>")
        told.append(_rows_of([head, *rows]))
    return f"<h2>Attribution</h2>{''.join(told)}" if told else ""


def _table(found: Explanation) -> str:
    lines = [*map(_difference, found.differences), *found.figures]
    if found.condition is not None:
        lines.append(f"Condition number: median {number(found.condition[0])}, largest {number(found.condition[1])}.")
    if found.tolerance is not None:
        lines.append(f"Absolute tolerance that this case needs: {number(found.tolerance)}.")
    table = _rows_of(_rows(found)) if found.op is not None and found.sides else ""
    return f"<h2>Evidence</h2>{table}<p>{'<br>'.join(map(escape, lines))}</p>"


def _strategies(found: Explanation) -> str:
    if found.op is None:
        return ""
    lines = "\n".join(line for side in found.sides for line in _matches(side))
    decides = "" if found.deciding_input is None else f"\n\n{found.deciding_input}"
    return f"<details><summary>Strategies that were found</summary><pre>{escape(lines + decides)}</pre></details>"


# -- charts -----------------------------------------------------------------------------------------------------------


def _charts(found: Explanation) -> str:
    evidence = found._evidence
    if evidence is None:
        return ""
    maps = [_heat(evidence, d.first, d.second) for d in found.differences[:3] if d.differing]
    told = f'<h2>Where they differ</h2><div class="row">{"".join(maps)}</div>' if any(maps) else ""
    if evidence.errors is None:
        return told
    known = [(side.name, evidence.errors(side.name)) for side in found.sides[:_SIDES]]
    bars = "".join(_histogram(name, errors) for name, errors in known if errors is not None)
    return told + (f'<h2>Errors, and what rounding predicts</h2><div class="row">{bars}</div>' if bars else "")


def _heat(evidence: Evidence, first: str, second: str) -> str:
    a, b = evidence.results[first], evidence.results[second]
    if a.size < 2:
        return ""
    form = min((evidence.formats[first], evidence.formats[second]), key=lambda f: f.precision)
    with np.errstate(all="ignore"):
        larger = np.maximum(np.abs(a), np.abs(b))
        exponent = np.maximum(np.frexp(larger)[1] - 1, form.emin) - form.precision + 1
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        ulps = np.where(same, 0.0, np.ldexp(np.abs(a - b), -exponent))
    cells, block = pooled(np.where(np.isnan(ulps), np.inf, ulps).reshape(-1, a.shape[-1]))
    most = float(cells[np.isfinite(cells)].max(initial=0.0))
    data = base64.b64encode(_png(_coloured(cells, most))).decode()
    height, width = cells.shape
    scale = max(1, 320 // max(height, width))
    each = "" if block == (1, 1) else f"; each cell is the largest of {block[0]} x {block[1]} elements"
    special = "; violet: infinite or NaN on one side" if np.isinf(cells).any() else ""
    told = f"{first} against {second}: from 0 (clear) to {number(most)} ulp (dark), logarithmic{each}{special}"
    return (
        f'<figure><img alt="{escape(told)}" width="{width * scale}" height="{height * scale}"'
        f' src="data:image/png;base64,{data}"><figcaption>{escape(told)}</figcaption></figure>'
    )


def pooled(values: Doubles, /) -> tuple[Doubles, tuple[int, int]]:
    """Return a matrix of at most 256 x 256 largest values of blocks, and the size of a block.

    Examples
    --------
    >>> import numpy as np
    >>> cells, block = pooled(np.eye(512))
    >>> cells.shape, block, float(cells.sum())
    ((256, 256), (2, 2), 256.0)
    """
    block = tuple(-(-size // _CELLS) for size in values.shape)
    rows, columns = (-(-size // step) for size, step in zip(values.shape, block, strict=True))
    padded = np.zeros((rows * block[0], columns * block[1]))
    padded[: values.shape[0], : values.shape[1]] = values
    return padded.reshape(rows, block[0], columns, block[1]).max(axis=(1, 3)), (block[0], block[1])


def _coloured(cells: Doubles, most: float) -> NDArray[np.uint8]:
    finite = np.isfinite(cells)
    part = np.log2(1 + np.where(finite, cells, 0.0)) / (math.log2(1 + most) or 1.0)
    low, high = np.array(_LOW, np.float64), np.array(_HIGH, np.float64)
    out = np.zeros((*cells.shape, 4), np.uint8)
    out[..., :3] = np.where(finite[..., None], low + part[..., None] * (high - low), _SPECIAL)
    out[..., 3] = np.where(cells > 0, 255, 0)
    return out


def _png(pixels: NDArray[np.uint8]) -> bytes:
    """Return an image of 8-bit RGBA pixels, as the PNG specification says (W3C, third edition)."""
    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def _histogram(name: str, errors: Errors) -> str:
    """Draw how often errors are so many predicted standard deviations, beside the normal law and the hard bound."""
    if not errors.ratios.size:
        return f'<p class="soft">{escape(name)}: no output is rounded</p>'
    width, height, most = 400, 150, _DEVIATIONS
    edges = np.linspace(-most, most, _BINS + 1)
    counts = np.histogram(np.clip(errors.ratios, -most, most), edges)[0] / errors.ratios.size
    law = np.diff([0.5 * (1 + math.erf(edge / math.sqrt(2))) for edge in edges])
    top, step = max(float(counts.max()), float(law.max())), width / _BINS
    bars = "".join(
        f'<rect class="bar" x="{i * step:.1f}" y="{height * (1 - share / top):.1f}" width="{step:.1f}"'
        f' height="{share / top * height:.1f}"/>'
        for i, share in enumerate(counts)
        if share
    )
    line = " ".join(f"{(i + 0.5) * step:.1f},{height * (1 - share / top):.1f}" for i, share in enumerate(law))
    marks = "".join(
        f'<line class="law" stroke-dasharray="4 3" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height}"/>'
        for x in ((1 + sign * errors.bound / most) * width / 2 for sign in (-1, 1))
        if 0 < x < width
    )
    labels = "".join(
        f'<text x="{(1 + at / most) * width / 2}" y="{height + 16}" font-size="11" text-anchor="{anchor}">{at}</text>'
        for at, anchor in ((-most, "start"), (-3, "middle"), (0, "middle"), (3, "middle"), (most, "end"))
    )
    outside = int(np.sum(np.abs(errors.ratios) > most))
    beyond = f"; {outside} beyond {most} stand in the outer bars" if outside else ""
    told = (
        f"{name}: errors of {errors.ratios.size} outputs in standard deviations of one running sum (bars), the normal law"
        f" (line); the worst-case bound is {number(errors.bound)} or more{beyond}"
    )
    return (
        f'<figure><svg role="img" viewBox="0 -4 {width} {height + 26}" width="{width}" height="{height + 30}">'
        f"<title>{escape(told)}</title>{bars}"
        f'<polyline class="law" points="{line}"/>{marks}'
        f'<line class="axis" x1="0" x2="{width}" y1="{height}" y2="{height}"/>{labels}</svg>'
        f"<figcaption>{escape(told)}</figcaption></figure>"
    )


def _trees(found: Explanation) -> str:
    """Draw the simplest strategies of two sides beside each other, large parts collapsed into boxes."""
    from fpsim.strategies import strategy

    drawn = []
    for side in [side for side in found.sides if side.matches][:2]:
        text = side.matches[0].strategy
        try:
            picture = strategy(text).tree(int(found.terms or 0)).svg()
        except FpsimError:
            continue  # a mechanism in words, or an order that a shape decides
        picture = re.sub(r' xmlns="[^"]*"', "", picture)
        drawn.append(f"<figure>{picture}<figcaption>{escape(f'{side.name} = {text}')}</figcaption></figure>")
    return f'<h2>Orders of additions</h2><div class="row">{"".join(drawn)}</div>' if drawn and found.terms else ""
