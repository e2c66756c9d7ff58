"""Legal topic names."""

from __future__ import annotations

TOPIC_NAME_LENGTH_MAX = 249

_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def invalid_topic_reason(name: str) -> str | None:
    """Return why a name is illegal, in Kafka's words; None if it is legal."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > TOPIC_NAME_LENGTH_MAX:
        reason = (
            f"the length of '{name}' is longer than the max allowed length {TOPIC_NAME_LENGTH_MAX}"
        )
    elif not _CHARACTERS.issuperset(name):
        reason = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    else:
        return None
    return f"Topic name is invalid: {reason}"
