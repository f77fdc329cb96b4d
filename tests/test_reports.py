"""HTML reports: well-formed, without other files, escaped, and with the numbers of the explanation."""

from __future__ import annotations

import base64
import re
import shutil
import struct
import subprocess
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim.cli import main
from fpsim.reports import pooled

RNG = np.random.default_rng(11)
A = RNG.standard_normal((24, 60)).astype(np.float32)
B = RNG.standard_normal((60, 20)).astype(np.float32)
CPU = np.asarray(fpsim.matmul(A, B, "serial"))
GPU = np.asarray(fpsim.matmul(A, B, "split_k(4)+fma"))
WRONG = np.where(np.arange(24)[:, None] == 5, CPU + 1, CPU).astype(np.float32)
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
_VOID = {"meta", "img", "br", "link", "hr", "input"}


class _Elements(HTMLParser):
    """Every element is closed where it should be; texts and attributes are collected."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def product(*sides: Any, names: tuple[str, ...] = ("cpu", "gpu")) -> fpsim.Explanation:
    return fpsim.explain(dict(zip(names, sides, strict=True)), op="matmul", inputs=(A, B))


def test_a_report_has_the_numbers_the_trees_and_no_other_file() -> None:
    found = product(CPU, GPU)
    page = _Elements(found.to_html())
    assert {"script", "link", "iframe", "object"}.isdisjoint(page.tags)
    assert "http" not in found.to_html()
    assert [value[:22] for name, value in page.attributes if name in ("src", "href")] == ["data:image/png;base64,"]
    assert "expected rounding" in page.text
    assert f"{found.differences[0].differing} of 480 values differ" in page.text
    assert f"{found.sides[0].max_ulp:.3g} ulp" in page.text
    assert "Summation tree of 60 terms" in page.text
    assert "errors of 480 outputs in standard deviations" in page.text
    for step in found.attribution[0].steps:
        assert step.change in page.text
    assert page.tags.count("svg") == 4


def test_notebooks_get_the_same_without_a_document_around_it() -> None:
    fragment = product(CPU, GPU)._repr_html_()
    assert {"html", "body", "head"}.isdisjoint(_Elements(fragment).tags)
    assert fragment in product(CPU, GPU).to_html()


def test_names_are_escaped() -> None:
    evil = "<script>alert('x')</script>", '"><img src=x onerror=alert(1)>'
    page = _Elements(product(CPU, GPU, names=evil).to_html())
    assert "script" not in page.tags
    assert page.tags.count("img") == 1
    assert evil[0] in page.text
    assert evil[1] in page.text


def pixels(report: str) -> np.ndarray[Any, Any]:
    """Return the heat map's pixels, read by hand."""
    data = base64.b64decode(re.search(r"data:image/png;base64,([^\"]+)", report)[1])  # type: ignore[index]
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    at, packed = 8, b""
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        name, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(name + body)
        packed += body if name == b"IDAT" else b""
        at += 12 + size
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + 4 * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 4)


def test_the_heat_map_shows_the_wrong_row() -> None:
    shown = pixels(product(CPU, WRONG).to_html())
    assert shown.shape == (24, 20, 4)
    assert np.array_equal(shown[..., 3] > 0, CPU != WRONG)


def test_large_maps_show_the_largest_of_each_block() -> None:
    values = np.zeros((700, 300))
    values[699, 299] = 7.0
    values[1, 1] = 3.0
    cells, block = pooled(values)
    assert block == (3, 2)
    assert cells.shape == (234, 150)
    assert [cells[0, 0], cells[-1, -1]] == [3.0, 7.0]
    assert np.count_nonzero(cells) == 2


def test_values_alone_infinities_and_single_numbers_have_reports() -> None:
    broken = CPU.copy()
    broken[0, 0] = np.inf
    violet = pixels(fpsim.explain({"a": CPU, "b": broken}).to_html())
    assert violet[0, 0].tolist() == [140, 60, 200, 255]
    x = RNG.random(20).astype(np.float32)
    page = _Elements(fpsim.explain({"n": np.var(x), "n - 1": np.var(x, ddof=1)}, op="var", inputs=x).to_html())
    assert "divisor n - ddof" in page.text
    assert "img" not in page.tags


def test_exact_results_have_no_law_of_errors() -> None:
    whole = np.arange(12, dtype=np.float32).reshape(3, 4)
    page = _Elements(
        fpsim.explain({"a": whole.sum(axis=1), "b": whole.sum(axis=1) + 1}, op="sum", inputs=whole, axis=1).to_html()
    )
    assert "no output is rounded" in page.text


def test_the_command_writes_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, array in {"A": A, "B": B, "cpu": CPU, "bad": WRONG}.items():
        np.save(tmp_path / f"{name}.npy", array)
    files = [str(tmp_path / f"{name}.npy") for name in ("cpu", "bad", "A", "B")]
    assert main(["explain", *files[:2], "--op", "matmul", "--inputs", *files[2:], "--format", "html"]) == 1
    page = _Elements(capsys.readouterr().out)
    assert "bug suspected" in page.text
    assert "row" in page.text


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
def test_a_browser_shows_the_report(tmp_path: Path) -> None:
    assert BROWSER is not None
    report, log = tmp_path / "report.html", tmp_path / "shot.png"
    report.write_text(product(CPU, GPU).to_html(), "utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    done = subprocess.run(
        [BROWSER, *flags, f"--screenshot={log}", report.as_uri()], capture_output=True, timeout=120, check=True
    )
    assert log.stat().st_size > 10_000
    assert b"Uncaught" not in done.stderr
    shown = subprocess.run(
        [BROWSER, *flags, "--dump-dom", report.as_uri()], capture_output=True, timeout=120, check=True
    )
    page = _Elements(shown.stdout.decode())
    assert "Summation tree of 60 terms" in page.text
