"""PEM in the forms that Kafka takes (DefaultSslEngineFactory.PemParser), as OpenSSL reads it.

What is on one line, with spaces where lines ended, is what lines that end with a backslash become
in `server.properties`. Text around the blocks does not count, whatever its characters.
"""

from __future__ import annotations

import re

__all__ = ["certificates", "private_keys"]

_BLOCK = (
    r"-+BEGIN\s+((?:[A-Z0-9]+\s+)*{label})\s*-+\s+"
    r"((?:[^\r\n:]*:[^\r\n]*[\r\n]+)*)([a-zA-Z0-9/+=\s]*)-+END\s"
)
_CERTIFICATE = re.compile(_BLOCK.format(label="CERTIFICATE"))
_PRIVATE_KEY = re.compile(_BLOCK.format(label=r"PRIVATE\s+KEY"))
_LINE = 64  # characters, as OpenSSL expects them


def certificates(data: bytes) -> bytes:
    """Return the certificates of a text."""
    return _blocks(_CERTIFICATE, data)


def private_keys(data: bytes) -> bytes:
    """Return the private keys of a text."""
    return _blocks(_PRIVATE_KEY, data)


def _blocks(pattern: re.Pattern[str], data: bytes) -> bytes:
    found = pattern.finditer(data.decode("utf-8", "replace"))
    return "".join(_block(*each.groups()) for each in found).encode("ascii", "replace")


def _block(label: str, headers: str, body: str) -> str:
    name = " ".join(label.split())
    digits = "".join(body.split())
    # Of an encrypted key; OpenSSL refuses others.
    kept = f"{headers.strip()}\n\n" if "Proc-Type" in headers else ""
    lines = "\n".join(digits[at : at + _LINE] for at in range(0, len(digits), _LINE))
    return f"-----BEGIN {name}-----\n{kept}{lines}\n-----END {name}-----\n"
