"""The name and kind of what sends requests (KafkaPrincipal)."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ANONYMOUS", "USER", "Principal"]

USER = "User"


class Principal(NamedTuple):
    """An identity, such as User:alice. Its text is the form of ACLs and `super.users`.

    `is_of_token`: a delegation token proved it. The text does not show that.
    """

    type: str
    name: str
    is_of_token: bool = False

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Return the principal of a stored text such as `User:alice`. As in Kafka (SecurityUtils)
        a type or a name may be empty. A text without a colon, which Kafka never writes, is a name.
        """
        kind, colon, name = text.partition(":")
        return cls(kind, name) if colon else cls("", text)


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""What a connection without authentication belongs to."""
