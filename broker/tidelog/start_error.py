"""Errors of a broker's start, in one line for the operator."""

from __future__ import annotations

from tidelog_storage.base_error import TidelogError

__all__ = ["StartError", "one_line", "system_words"]


class StartError(TidelogError):
    """The broker cannot start; the text is one line for the operator."""


def one_line(error: BaseException) -> str:
    """Return an error's text in one line, with its file."""
    if isinstance(error.__cause__, OSError) and not isinstance(error, OSError):
        error = error.__cause__
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def system_words(error: OSError) -> str:
    """Return the system's text, around which asyncio adds its own for failed binds.

    The resolver's numbers are negative, and its text is in the error.
    """
    if error.errno is not None and error.errno > 0:
        import os  # noqa: PLC0415 - only on the way out

        return os.strerror(error.errno)
    return error.strerror or str(error)
