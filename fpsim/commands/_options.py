"""Numbers given as options."""

from __future__ import annotations

from fpsim.errors import InputError


def whole(option: str, word: str, least: int, /) -> int:
    """Return the whole number that a word is, or say of which option it is not one."""
    if not (word.isascii() and word.isdigit()) or int(word) < least:
        message = f"{option} must be a whole number of at least {least}, not {word!r}"
        raise InputError(message)
    return int(word)


def number(option: str, word: str, /) -> float:
    """Return the number that a word is, or say of which option it is not one."""
    try:
        return float(word)
    except ValueError as error:
        message = f"{option} must be a number, not {word!r}"
        raise InputError(message) from error
