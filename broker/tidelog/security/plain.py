"""SASL PLAIN (RFC 4616): a user's name and password in one message (PlainSaslServer)."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from tidelog.security.refused import RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PlainServer", "users_of"]

_FAILED = "Authentication failed: "


def users_of(options: Mapping[str, str]) -> dict[str, str]:
    """Return the passwords of the users that a login module's options `user_NAME` have."""
    prefix = "user_"
    return {name[len(prefix) :]: text for name, text in options.items() if name.startswith(prefix)}


class PlainServer:
    """A server's side."""

    expires_ms: int | None = None
    is_of_token = False

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.user: str | None = None

    def evaluate(self, token: bytes) -> bytes:
        """Check the name and password."""
        parts = token.decode("utf-8", "replace").split("\0", 4)[:4]
        if len(parts) != 3:
            raise RefusedError.openly(
                f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            )
        wanted, user, password = parts
        if not user:
            raise RefusedError.openly(f"{_FAILED}username not specified")
        if not password:
            raise RefusedError.openly(f"{_FAILED}password not specified")
        expected = self._passwords.get(user)
        same = hmac.compare_digest((expected or "").encode(), password.encode())
        if expected is None or not same:
            raise RefusedError.openly(f"{_FAILED}Invalid username or password")
        if wanted and wanted != user:
            raise RefusedError.openly(
                f"{_FAILED}Client requested an authorization id that is different from username"
            )
        self.user = user
        return b""
