"""Cases: AlterUserScramCredentials. Users are removed at the end of a case."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from compat.conformance.registry import case
from compat.eventually import eventually

if TYPE_CHECKING:
    from compat.conformance.session import Session

SHA_256, SHA_512 = 1, 2
SALTED = hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 4096)


def wanted(name: str, mechanism: int = SHA_256, iterations: int = 4096) -> dict[str, Any]:
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": b"salt",
        "salted_password": SALTED,
    }


def unwanted(name: str, mechanism: int = SHA_256) -> dict[str, Any]:
    return {"name": name, "mechanism": mechanism}


def alter(s: Session, version: int, *changes: dict[str, Any]) -> None:
    """Results come in the order of a hash map."""
    upsertions = [each for each in changes if "salt" in each]
    deletions = [each for each in changes if "salt" not in each]
    fields = {"deletions": deletions, "upsertions": upsertions}
    answer = s.quietly("AlterUserScramCredentials", version, **fields)
    answer["results"].sort(key=lambda each: each["user"])
    s.record("AlterUserScramCredentials", answer)


def described(s: Session, name: str, credentials: int) -> None:
    """What a broker says of a user once it has so many credentials; they come in any order."""

    def known(answer: dict[str, Any]) -> bool:
        return len(answer["results"][0]["credential_infos"]) == credentials

    fields = {"users": [{"name": name}]}
    answer = eventually(lambda: s.quietly("DescribeUserScramCredentials", 0, **fields), known, 10.0)
    answer["results"][0]["credential_infos"].sort(key=lambda each: each["mechanism"])
    s.record("DescribeUserScramCredentials", answer)


@case("AlterUserScramCredentials")
def changes(s: Session, version: int) -> None:
    alter(s, version, wanted(f"{s.name}.a"), wanted(f"{s.name}.b", SHA_512, 16384))
    described(s, f"{s.name}.a", 1)
    alter(s, version, wanted(f"{s.name}.a", SHA_512))
    described(s, f"{s.name}.a", 2)
    alter(s, version, wanted(f"{s.name}.a", SHA_512, 8192))
    alter(s, version, unwanted(f"{s.name}.a"), unwanted(f"{s.name}.b", SHA_512))
    described(s, f"{s.name}.a", 1)
    alter(s, version, unwanted(f"{s.name}.a", SHA_512))
    described(s, f"{s.name}.a", 0)


@case("AlterUserScramCredentials")
def refusals(s: Session, version: int) -> None:
    name = s.name
    alter(s, version)
    alter(s, version, wanted(""), unwanted(name))
    for mechanism in (-1, 0, 3):
        alter(s, version, wanted(name, mechanism))
        alter(s, version, unwanted(name, mechanism))
    for iterations in (-1, 4095, 16385):
        alter(s, version, wanted(name, SHA_256, iterations))
    alter(s, version, wanted(name), wanted(name, SHA_512), wanted(name))
    alter(s, version, unwanted(name), wanted(name))
    alter(s, version, wanted(name) | {"salt": b"", "salted_password": b"x"}, unwanted("x" * 30_000))
    alter(s, version, wanted(name) | {"salted_password": b""})
    alter(s, version, unwanted(name))
    described(s, name, 0)
