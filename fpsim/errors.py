"""Every error fpsim raises on purpose: one base class, few precise kinds, messages that say the way out."""

from __future__ import annotations


class FpsimError(Exception):
    """Base class of the errors that fpsim raises on purpose."""


class InputError(FpsimError, ValueError):
    """The data do not fit the operation: wrong shape, dtype, value or setting."""


class FileError(FpsimError, ValueError):
    """A file cannot be read, has an unsupported kind or content, or would be overwritten."""


class StrategyError(FpsimError, ValueError):
    """A strategy text cannot be parsed, or its settings contradict each other.

    Attributes
    ----------
    text : str or None
        The text that was parsed.
    column : int or None
        Zero-based column of the offending part of `text`.
    """

    def __init__(self, message: str, /, *, text: str | None = None, column: int | None = None) -> None:
        self.text = text
        self.column = column
        if text is not None and column is not None and "\n" not in text:
            message = f"{message}\n  {text}\n  {' ' * column}^"
        super().__init__(message)


class UnknownOrderError(FpsimError, LookupError):
    """No rule is known for this implementation, shape or context; nothing is guessed."""


class MissingExtraError(FpsimError, ImportError):
    """An optional dependency is needed; the message names the extra that brings it."""
