"""Tokens of OAUTHBEARER: unsecured JWS (RFC 7515), which the brokers of a test take."""

# ruff: noqa: PLC0415 - the client's library is there if its configuration is asked for

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

from tidelog.runtime import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LIFETIME_S", "aiokafka_provider", "kafka_python_provider", "librdkafka_callback", "new"]

LIFETIME_S = 3600


def new(user: str, *, is_expired: bool = False) -> str:
    """Return a token of a user."""
    now_s = SystemClock().wall_ms() // 1000
    issued_s = now_s - 2 * LIFETIME_S if is_expired else now_s
    claims = {"sub": user, "iat": issued_s, "exp": issued_s + LIFETIME_S}
    return ".".join([_part({"alg": "none"}), _part(claims), ""])


def _part(value: dict[str, object]) -> str:
    text = json.dumps(value, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def librdkafka_callback(token: Callable[[], str]) -> Callable[[str], tuple[str, float]]:
    """Return an `oauth_cb`. librdkafka sends no token with a lifetime that has ended, so the
    callback gives a time in the future."""

    def give(_config: str) -> tuple[str, float]:
        return token(), SystemClock().wall_ms() / 1000 + LIFETIME_S

    return give


def aiokafka_provider(token: Callable[[], str]) -> object:
    """Return a `sasl_oauth_token_provider` of aiokafka."""
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]  # its library has no types
        async def token(self) -> str:
            """Return a new token."""
            return token()

    return Provider()


def kafka_python_provider(token: Callable[[], str]) -> object:
    """Return a `sasl_oauth_token_provider` of kafka-python."""
    try:
        from kafka.net.sasl.oauth import AbstractTokenProvider  # kafka-python 3
    except ImportError:
        from kafka.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]  # its library has no types
        def token(self) -> str:
            """Return a new token."""
            return token()

    return Provider()
