"""SCRAM users in the form of `kafka-storage format --add-scram` (Kafka's ScramParser)."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import TYPE_CHECKING

from tidelog.config.vocabulary import ConfigError
from tidelog.security.scram import ITERATIONS_MAX, ITERATIONS_MIN, SCRAM, credential

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog_protocol.messages.metadata_records import UserScramCredentialRecord

__all__ = ["parse_scram"]

OPTION = "--add-scram"
SALT_BYTES = 20
_KEYS = {"name", "salt", "iterations", "password", "saltedpassword"}


def parse_scram(text: str, draw: Callable[[int], bytes]) -> UserScramCredentialRecord:
    """Return the credential of a text such as `SCRAM-SHA-256=[name=alice,password=secret]`; a salt
    that is not given is drawn. ConfigError, without passwords."""
    mechanism, equals, config = text.strip().partition("=")
    if not equals:
        raise _wrong("Failed to find equals sign in SCRAM argument")
    if mechanism not in SCRAM:
        raise _wrong(f"The add-scram mechanism {mechanism} is not supported.")
    for edge, found in (("start with [", config[:1] == "["), ("end with ]", config[-1:] == "]")):
        if not found:
            raise _wrong(f"Expected configuration string to {edge}")
    given = _components(config[1:-1])
    if "name" not in given:
        raise _wrong("You must supply 'name' to add-scram")
    iterations = _iterations(given.get("iterations"), mechanism)
    salt = _bytes(given, "salt") or draw(SALT_BYTES)
    scram = SCRAM[mechanism]
    if "password" in given:
        secret = given["password"].encode()
        salted = hashlib.pbkdf2_hmac(scram.hash_name, secret, salt, iterations)
    elif "saltedpassword" not in given:
        raise _wrong("You must supply one of 'password' or 'saltedpassword' to add-scram")
    elif "salt" not in given:
        raise _wrong("You must supply 'salt' with 'saltedpassword' to add-scram")
    else:
        salted = _bytes(given, "saltedpassword")
    if unknown := sorted(given.keys() - _KEYS):
        raise _wrong(f"Unknown SCRAM configurations: {', '.join(unknown)}")
    return credential(scram, given["name"], salt, salted, iterations)


def _components(text: str) -> dict[str, str]:
    found = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise _wrong("No equals sign found in a SCRAM component")
        if len(value) > 1 and value[0] == value[-1] == '"':
            value = value[1:-1]
        found[name] = value
    return found


def _iterations(text: str | None, mechanism: str) -> int:
    if text is None:
        return ITERATIONS_MIN
    try:
        iterations = int(text)
    except ValueError:
        raise _wrong(f"Failed to parse iterations count: {text}") from None
    for sign, limit in ((">=", ITERATIONS_MIN), ("<=", ITERATIONS_MAX)):
        if (iterations < limit) if sign == ">=" else (iterations > limit):
            what = f"The 'iterations' value must be {sign} {limit} for add-scram using {mechanism}"
            raise _wrong(what)
    return iterations


def _bytes(given: dict[str, str], name: str) -> bytes:
    try:
        return base64.b64decode(given.get(name, ""), validate=True)
    except (binascii.Error, ValueError):
        raise _wrong(f"Failed to decode given {name}") from None


def _wrong(what: str) -> ConfigError:
    return ConfigError(OPTION, what)
