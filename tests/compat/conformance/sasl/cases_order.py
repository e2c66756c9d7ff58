"""Cases: what comes when, before and after an authentication."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat.conformance.sasl.cases_mechanisms import PLAIN
from compat.conformance.sasl.clients import bearer, good, unsigned
from compat.conformance.sasl.registry import case

if TYPE_CHECKING:
    from compat.conformance.sasl.session import SaslSession


@case("SaslHandshake", 1)
def out_of_turn(s: SaslSession, version: int) -> None:
    s.served()
    s.tell("ApiVersions", 0, to="SASL:a")
    s.tell("ApiVersions", 0, to="SASL:a")
    s.tell("ApiVersions", 3, to="SASL:b", client_software_name="c", client_software_version="1")
    s.handshake("PLAIN", to="SASL:b")
    s.tell("ApiVersions", 0, to="SASL:b")
    s.handshake("PLAIN", to="SASL:c")
    s.handshake("PLAIN", to="SASL:c")
    s.ended(to="SASL:c")
    s.handshake("PLAIN", to="SASL:d")
    s.served(to="SASL:d")
    s.tell("SaslAuthenticate", 2, to="SASL:e", auth_bytes=PLAIN)


@case("SaslHandshake", 1)
def after_the_login(s: SaslSession, version: int) -> None:
    s.login()
    s.served()
    s.handshake("PLAIN", version)
    s.token(PLAIN)
    s.served()
    s.login("bob", to="SASL:b")
    s.handshake("PLAIN", version, to="SASL:b")
    s.token(PLAIN, to="SASL:b")
    s.ended(to="SASL:b")
    s.login("bob", to="SASL:c")
    s.handshake("OAUTHBEARER", version, to="SASL:c")
    s.token(bearer(unsigned(**good(sub="bob", scope="read"))), to="SASL:c")
    s.ended(to="SASL:c")
    s.login(to="SASL:d")
    s.handshake("GSSAPI", version, to="SASL:d")
    s.ended(to="SASL:d")
    s.login(to="SASL:e")
    s.handshake("PLAIN", version, to="SASL:e")
    s.token(b"\0alice\0wrong", to="SASL:e")
    s.ended(to="SASL:e")


@case("SaslAuthenticate")
def without_a_session_that_ends(s: SaslSession, version: int) -> None:
    s.user("ann", "ann-secret", 1)
    from compat.conformance.sasl.clients import Scram

    s.scram(Scram("SCRAM-SHA-256", "ann", "ann-secret"), "SCRAM-SHA-256")
    s.tell("SaslAuthenticate", version, auth_bytes=PLAIN)
    s.handshake("PLAIN")
    s.served()
