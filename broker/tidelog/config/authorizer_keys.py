"""The settings of the authorizer.

Kafka's StandardAuthorizer reads `super.users` and `allow.everyone.if.no.acl.found` itself, so they
are not among the broker's own keys there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.config.vocabulary import LOW, ConfigError, boolean, string

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["OF_AUTHORIZER", "AuthorizerKeys", "check_authorizer", "super_user_names"]

OF_AUTHORIZER = frozenset({"super.users", "allow.everyone.if.no.acl.found"})
"""Settings that Kafka's broker does not declare: it shows them as unknown ones, without values."""
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class AuthorizerKeys:
    """What decides which principal may do what."""

    authorizer_class_name: str = string(
        "",
        f"Class of the authorizer: {STANDARD_AUTHORIZER}, or empty for none.",
        importance=LOW,
    )
    super_users: str = string(
        "", "Principals that may do everything, as User:alice;User:bob.", internal=True
    )
    allow_everyone_if_no_acl_found: bool = boolean(
        False, "Whether everyone may use resources that no ACL is about.", internal=True
    )


def check_authorizer(value_of: Callable[[str], object]) -> None:
    """Check the authorizer's settings, which `value_of` returns; ConfigError names the key."""
    name = value_of("authorizer.class.name")
    if name not in ("", STANDARD_AUTHORIZER):
        raise ConfigError(
            "authorizer.class.name",
            f"authorizer.class.name is {name}, but only {STANDARD_AUTHORIZER} is there",
        )
    super_user_names(str(value_of("super.users")))


def super_user_names(text: str) -> frozenset[str]:
    """Return the principals of `super.users`; ConfigError if one has no type."""
    names = [name.strip() for name in text.split(";")]
    for name in names:
        kind, colon, rest = name.partition(":")
        if name and not (kind and colon and rest):
            raise ConfigError(
                "super.users",
                "super.users: expected a string in format principalType:principalName but got "
                f"{name}",
            )
    return frozenset(name for name in names if name)
