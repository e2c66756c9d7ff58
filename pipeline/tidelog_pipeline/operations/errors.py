"""The error of an operation, and the one sentence of an error of Spark's."""

from __future__ import annotations

import re

__all__ = ["OperationError", "sentence_of"]

_LINE = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|NotFound)): (.+)$", re.MULTILINE)
_OF_PY4J = re.compile(r"^An error occurred while calling .*\n: ")
_OF_JAVA = re.compile(r"^\s*at [\w.$]+\(|^Caused by: ", re.MULTILINE)


class OperationError(Exception):
    """An operation can't be done; the text is one line for the user."""


def sentence_of(error: BaseException) -> str:
    """The cause of an error that went through Spark: the last line of a Python traceback in it, or
    its first line."""
    text = _OF_PY4J.sub("", str(error))
    java = _OF_JAVA.search(text)
    found: list[tuple[str, str]] = _LINE.findall(text[: java.start()] if java else text)
    python = [line for name, line in found if name not in ("PythonException", "SparkException")]
    if python:
        return python[-1].strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
