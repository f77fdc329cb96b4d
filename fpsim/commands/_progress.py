"""A progress line on standard error."""

from __future__ import annotations

import time
from typing import TextIO


class ProgressLine:
    """A line that counts on a terminal, and is cleared at the end; elsewhere a line every five seconds."""

    def __init__(self, doing: str, stream: TextIO) -> None:
        self.doing = doing
        self.stream = stream
        self.terminal = stream.isatty()
        self.start = self.last = time.monotonic()
        self.width = 0

    def __call__(self, done: int, total: int, what: str = "") -> None:
        now = time.monotonic()
        if now - self.last < (0.1 if self.terminal else 5.0) or done == total:
            return
        self.last = now
        rest = (now - self.start) * (total - done) / max(done, 1)
        line = f"{self.doing}: {100 * done // total} %, about {rest:.0f} s left{f', {what}' if what else ''}"
        if self.terminal:
            self.stream.write("\r" + line.ljust(self.width))
            self.width = len(line)
        else:
            self.stream.write(line + "\n")
        self.stream.flush()

    def clear(self) -> None:
        """Remove the line from a terminal."""
        if self.terminal and self.width:
            self.stream.write("\r" + " " * self.width + "\r")
            self.stream.flush()
            self.width = 0
