"""Cases: delegation tokens, and logins with them. Tokens are removed at the end of a case."""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any

from compat.conformance.sasl.clients import Scram
from compat.conformance.sasl.registry import case

if TYPE_CHECKING:
    from compat.conformance.sasl.session import SaslSession

MINUTE_MS = 60_000


def ask(s: SaslSession, api: str, version: int, *, to: str = "SASL", **fields: Any) -> Any:
    """Ask without recording."""
    return s.receive(api, version, s.send(api, version, connection=to, **fields), record=False)


def create(
    s: SaslSession, version: int, *, to: str = "SASL", names: tuple[str, ...] = (), **fields: Any
) -> bytes:
    """Create a token; record what is not random."""
    renewers = [{"principal_type": "User", "principal_name": name} for name in names]
    fields = {"renewers": renewers, "max_lifetime_ms": -1, **fields}
    answer = ask(s, "CreateDelegationToken", version, to=to, **fields)
    hmac = answer.get("hmac", b"")
    if answer.get("token_id"):
        issued = answer["issue_timestamp_ms"]
        for name in ("expiry_timestamp_ms", "max_timestamp_ms"):
            answer[name] -= issued
        answer |= {"issue_timestamp_ms": "<now>", "hmac": len(hmac)}
        answer["token_id"] = len(answer["token_id"])
    s.record("CreateDelegationToken", answer)
    return bytes(hmac)


def listed(s: SaslSession, version: int, *owners: str, to: str = "SASL", **fields: Any) -> Any:
    """Describe tokens; record what is not random."""
    wanted = [{"principal_type": "User", "principal_name": name} for name in owners] or None
    fields = {"owners": wanted, **fields}
    answer = ask(s, "DescribeDelegationToken", version, to=to, **fields)
    found = [dict(token) for token in answer.get("tokens", ())]
    for token in answer.get("tokens", ()):
        issued = token["issue_timestamp"]
        token |= {"issue_timestamp": "<now>", "hmac": len(token["hmac"]), "token_id": "<id>"}
        token["expiry_timestamp"] = round((token["expiry_timestamp"] - issued) / MINUTE_MS)
        token["max_timestamp"] -= issued
    if "tokens" in answer:
        answer["tokens"].sort(key=repr)
    s.record("DescribeDelegationToken", answer)
    return found


def until(s: SaslSession, count: int, *, to: str = "SASL") -> list[Any]:
    """Wait until the broker has so many tokens."""
    end = time.monotonic() + 30
    while True:
        tokens: list[Any] = ask(s, "DescribeDelegationToken", 3, to=to, owners=None)["tokens"]
        if len(tokens) == count or time.monotonic() > end:
            return tokens
        time.sleep(0.02)


def await_end(s: SaslSession, minutes: int) -> None:
    """Wait until the broker knows that the only token ends in so many minutes."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        (token,) = until(s, 1)
        away_ms = token["expiry_timestamp"] - time.time() * 1000
        if round(away_ms / MINUTE_MS) == minutes:
            return
        time.sleep(0.02)
    raise TimeoutError(f"no token that ends in {minutes} minutes")


def change(
    s: SaslSession, api: str, version: int, hmac: bytes, period_ms: int, *, to: str = "SASL"
) -> None:
    """Renew or expire a token; record the new end in minutes from now."""
    name = "renew_period_ms" if api.startswith("Renew") else "expiry_time_period_ms"
    answer = ask(s, api, version, to=to, **{"hmac": hmac, name: period_ms})
    if answer.get("expiry_timestamp_ms", 0) > 1000:
        away_ms = answer["expiry_timestamp_ms"] - time.time() * 1000
        answer["expiry_timestamp_ms"] = f"in {round(away_ms / MINUTE_MS)} minutes"
    s.record(api, answer)


def remove(s: SaslSession, hmac: bytes, *, left: int = 0, to: str = "SASL") -> None:
    ask(s, "ExpireDelegationToken", 2, to=to, hmac=hmac, expiry_time_period_ms=-1)
    until(s, left, to=to)


@case("CreateDelegationToken")
def life(s: SaslSession, version: int) -> None:
    s.login()
    first = create(s, version)
    second = create(s, version, names=("bob", "bob"), max_lifetime_ms=3 * MINUTE_MS)
    until(s, 2)
    listed(s, version)
    older = min(version, 2)
    change(s, "RenewDelegationToken", older, first, 5 * MINUTE_MS)
    change(s, "RenewDelegationToken", older, first, -1)
    change(s, "RenewDelegationToken", older, second, 100 * MINUTE_MS)
    change(s, "ExpireDelegationToken", older, first, 10 * MINUTE_MS)
    change(s, "ExpireDelegationToken", older, second, 2**63 - 1)
    change(s, "ExpireDelegationToken", older, second, -1)
    until(s, 1)
    change(s, "ExpireDelegationToken", older, second, -1)
    listed(s, version)
    change(s, "ExpireDelegationToken", older, first, 0)
    change(s, "ExpireDelegationToken", older, first, -1)
    until(s, 0)


@case("RenewDelegationToken")
@case("ExpireDelegationToken")
def periods(s: SaslSession, version: int) -> None:
    """A period of no length comes last: the token is then expired, a moment later."""
    s.login()
    hmac = create(s, 3, names=("bob",), max_lifetime_ms=60 * MINUTE_MS)
    until(s, 1)
    api = s.run.case.api
    is_renewal = api.startswith("Renew")
    for period_ms in (5 * MINUTE_MS, MINUTE_MS, 2**63 - 1, *([-1, -(2**63)] * is_renewal)):
        change(s, api, version, hmac, period_ms)
    change(s, api, version, hmac[:-1], MINUTE_MS)
    change(s, api, version, b"", MINUTE_MS)
    change(s, api, version, hmac, MINUTE_MS, to="PLAINTEXT")
    for name in ("bob", "carol"):
        s.login(name, to=f"SASL:{name}")
        change(s, api, version, hmac, 2 * MINUTE_MS, to=f"SASL:{name}")
    await_end(s, 2)
    listed(s, 3)
    change(s, api, version, hmac, 0)
    if not is_renewal:
        change(s, api, version, hmac, -(2**63))
        until(s, 0)
        change(s, api, version, hmac, -1)
    remove(s, hmac)


@case("CreateDelegationToken")
def refused(s: SaslSession, version: int) -> None:
    s.login()
    create(s, version, renewers=[{"principal_type": "Group", "principal_name": "g"}])
    create(s, version, renewers=[{"principal_type": "", "principal_name": ""}])
    create(s, version, to="PLAINTEXT")
    listed(s, version, to="PLAINTEXT")
    older = min(version, 2)
    for api in ("RenewDelegationToken", "ExpireDelegationToken"):
        for to in ("SASL", "PLAINTEXT"):
            change(s, api, older, b"unknown", 1, to=to)
        change(s, api, older, b"", 1)


@case("CreateDelegationToken", 3)
def of_others(s: SaslSession, version: int) -> None:
    s.login()
    s.login("bob", to="SASL:bob")
    s.login("carol", to="SASL:carol")
    owner = {"owner_principal_type": "User", "owner_principal_name": "bob"}
    token = create(s, version, names=("carol",), **owner)
    empty = create(s, version, owner_principal_type="User", owner_principal_name="")
    until(s, 2)
    for to in ("SASL", "SASL:bob", "SASL:carol"):
        for owners in ((), ("bob",), ("carol",), ("alice", "bob"), ("dave",)):
            listed(s, version, *owners, to=to)
        listed(s, version, owners=[], to=to)
    for to in ("SASL", "SASL:carol", "SASL:bob"):
        change(s, "RenewDelegationToken", 2, token, MINUTE_MS, to=to)
        change(s, "ExpireDelegationToken", 2, token, 2 * MINUTE_MS, to=to)
    change(s, "ExpireDelegationToken", 2, token, -1)
    remove(s, token, left=1, to="SASL:bob")
    remove(s, empty)


@case("DescribeDelegationToken")
def lists(s: SaslSession, version: int) -> None:
    s.login()
    s.login("bob", to="SASL:bob")
    tokens = [create(s, 3, names=names) for names in ((), ("bob",))]
    until(s, 2)
    for to in ("SASL", "SASL:bob", "PLAINTEXT"):
        for owners in ((), ("alice",), ("bob",), ("alice", "alice")):
            listed(s, version, *owners, to=to)
        listed(s, version, owners=[], to=to)
        listed(s, version, owners=[{"principal_type": "", "principal_name": "alice"}], to=to)
    remove(s, tokens[0], left=1)
    remove(s, tokens[1])


@case("DescribeDelegationToken", 3)
def logins(s: SaslSession, version: int) -> None:
    s.login()
    hmac = create(s, 3, names=("bob",))
    (token,) = until(s, 1)
    password = base64.b64encode(hmac).decode()
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        to = f"SASL:{mechanism}"
        client = Scram(mechanism, token["token_id"], password, ",tokenauth=true")
        s.scram(client, mechanism, to=to)
        s.served(to=to)
        create(s, 3, to=to)
        listed(s, version, to=to)
        change(s, "RenewDelegationToken", 2, hmac, 1, to=to)
        change(s, "ExpireDelegationToken", 2, hmac, -1, to=to)
    for client in (
        Scram("SCRAM-SHA-256", token["token_id"], "wrong", ",tokenauth=true"),
        Scram("SCRAM-SHA-256", token["token_id"], password),
        Scram("SCRAM-SHA-256", "unknown", password, ",tokenauth=true"),
    ):
        s.scram(client, "SCRAM-SHA-256", to="SASL:wrong")
        s.ended(to="SASL:wrong")
    remove(s, hmac)
    client = Scram("SCRAM-SHA-256", token["token_id"], password, ",tokenauth=true")
    s.scram(client, "SCRAM-SHA-256", to="SASL:late")
