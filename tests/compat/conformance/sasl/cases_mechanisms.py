"""Cases: SaslHandshake and SaslAuthenticate, right and wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat.conformance.sasl.clients import Scram, bearer, good, signed, unsigned
from compat.conformance.sasl.registry import case

if TYPE_CHECKING:
    from compat.conformance.sasl.session import SaslSession

PLAIN = b"\0alice\0alice-secret"
SIGNED = "SIGNED"
BEARER = "OAUTHBEARER"


@case("SaslHandshake")
def mechanisms(s: SaslSession, version: int) -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI", "plain", ""):
        s.handshake(mechanism, version, to=f"SASL:{mechanism}")
    for mechanism in ("GSSAPI", ""):
        s.ended(to=f"SASL:{mechanism}")
    s.handshake("PLAIN", version, to="SIGNED")
    s.ended(to="SIGNED")
    s.handshake("PLAIN", version, to="main")


@case("SaslHandshake", 0, 0)
def bare_tokens(s: SaslSession, version: int) -> None:
    s.handshake("PLAIN", version)
    s.bare(PLAIN)
    s.served()
    for token in (b"\0alice\0wrong", b"", b"alice"):
        s.handshake("PLAIN", version, to="SASL:wrong")
        s.bare(token, to="SASL:wrong")
        s.disconnect("SASL:wrong")
    s.handshake("OAUTHBEARER", version, to="SASL:bearer")
    s.bare(bearer(unsigned(**good(sub="")), more=""), to="SASL:bearer")
    s.bare(b"\x01", to="SASL:bearer")


@case("SaslAuthenticate")
def plain(s: SaslSession, version: int) -> None:
    s.handshake("PLAIN")
    s.token(PLAIN, version)
    s.served()
    s.token(PLAIN, version)
    s.served()
    s.handshake("PLAIN", to="SASL:self")
    s.token(b"alice" + PLAIN, version, to="SASL:self")


@case("SaslAuthenticate")
def plain_refused(s: SaslSession, version: int) -> None:
    for token in (
        b"\0alice\0wrong",
        b"\0nobody\0alice-secret",
        b"\0\0alice-secret",
        b"\0alice\0",
        b"bob" + PLAIN,
        b"",
        b"\0\0\0",
        b"alice-secret",
        PLAIN + b"\0",
        b"\xff\0\xff\0\xff",
    ):
        s.handshake("PLAIN")
        s.token(token, version)
        s.ended()


@case("SaslAuthenticate", 2)
def scram(s: SaslSession, version: int) -> None:
    s.user("sam,a=b", "sam-secret", 1, 2)
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        name = "sam=2Ca=3Db"
        s.scram(Scram(mechanism, name, "sam-secret"), mechanism)
        s.served()
        s.disconnect("SASL")
        for client in (
            Scram(mechanism, name, "wrong"),
            Scram(mechanism, "nobody", "sam-secret"),
            Scram(mechanism, name, "sam-secret", ",tokenauth=true"),
            Scram(mechanism, "a,b", "sam-secret"),
        ):
            s.scram(client, mechanism)
            s.ended()
        for more in (",tokenauth=false", ",x=1", ",tokenauth=TRUE"):
            s.scram(Scram(mechanism, name, "sam-secret", more), mechanism)
            s.disconnect("SASL")
        s.scram(Scram(mechanism, name, "sam-secret"), mechanism, authzid="sam=2Ca=3Db")
        s.disconnect("SASL")
        for changes in ({"authzid": "other"}, {"nonce": "x"}, {"channel": "eSws"}):
            s.scram(Scram(mechanism, name, "sam-secret"), mechanism, **changes)
            s.disconnect("SASL")


@case("SaslAuthenticate", 2)
def scram_of_the_other_mechanism(s: SaslSession, version: int) -> None:
    s.user("tim", "tim-secret", 1)
    s.scram(Scram("SCRAM-SHA-256", "tim", "tim-secret"), "SCRAM-SHA-256")
    s.scram(Scram("SCRAM-SHA-512", "tim", "tim-secret"), "SCRAM-SHA-512", to="SASL:other")
    s.ended(to="SASL:other")


@case("SaslAuthenticate", 2)
def scram_messages(s: SaslSession, version: int) -> None:
    for token in (b"", b"n,,", b"y,,n=a,r=b", b"n,,n=a", b"p=x,,n=a,r=b", b"n,,n=,r=x", b"\xff"):
        s.handshake("SCRAM-SHA-256")
        s.token(token, version)
        s.ended()


@case("SaslAuthenticate")
def unsigned_tokens(s: SaslSession, version: int) -> None:
    s.handshake(BEARER)
    s.token(bearer(unsigned(**good(scope=["read", "write"]))), version)
    s.served()
    s.disconnect("SASL")
    s.handshake(BEARER)
    s.token(bearer(unsigned(**good(scope="read write"))), version)
    s.disconnect("SASL")
    s.handshake(BEARER)
    s.token(bearer(unsigned(**good(scope=["read"], iat=None)), authzid="dave"), version)
    s.served()


WRONG = (
    {"sub": None},
    {"sub": ""},
    {"sub": 7},
    {"exp": None},
    {"exp": 1},
    {"exp": "soon"},
    {"iat": 4_000_000_000, "exp": 4_000_000_001},
    {"iat": "now"},
)


@case("SaslAuthenticate", 2)
def unsigned_tokens_refused(s: SaslSession, version: int) -> None:
    for changes in (*WRONG, {"scope": "write"}, {"scope": None}):
        s.handshake(BEARER)
        s.token(bearer(unsigned(**good(**changes))), version)
        s.token(b"\x01", version)
        s.ended()
    s.handshake(BEARER)
    s.token(bearer(unsigned(**good(scope="read")), authzid="other"), version)
    s.ended()


@case("SaslAuthenticate", 2)
def bearer_messages(s: SaslSession, version: int) -> None:
    token = unsigned(**good(scope="read"))
    for message in (
        b"",
        b"\x01",
        b"n,,\x01\x01",
        f"n,,\x01auth=Basic {token}\x01\x01".encode(),
        f"n,,\x01auth={token}\x01\x01".encode(),
        f"y,,\x01auth=Bearer {token}\x01\x01".encode(),
        bearer("x"),
        bearer("a.b.c"),
        bearer(signed(**good())),
        bearer(token, more="\x01auth=Bearer x"),
    ):
        s.handshake(BEARER)
        s.token(message, version)
        s.disconnect("SASL")
    s.handshake(BEARER)
    s.token(bearer(token, more="\x01host=x\x01port=1"), version)


@case("SaslAuthenticate", 2)
def signed_tokens(s: SaslSession, version: int) -> None:
    for header, changes in (
        ({}, {}),
        ({}, {"aud": ["another", "the brokers"]}),
        ({}, {"scope": ["read"]}),
        ({}, {"scope": None}),
        ({"typ": "at+jwt"}, {}),
    ):
        s.handshake(BEARER, to=SIGNED)
        s.token(bearer(signed(header, **good(**changes))), version, to=SIGNED)
        s.served(to=SIGNED)
        s.disconnect(SIGNED)


@case("SaslAuthenticate", 2)
def signed_tokens_refused(s: SaslSession, version: int) -> None:
    tokens = [signed(**good(**changes)) for changes in WRONG]
    tokens += [
        signed(**good(aud="another")),
        signed(**good(aud=None)),
        signed(**good(iss="another")),
        signed(**good(iss=None)),
        signed(**good(nbf=4_000_000_000)),
        signed({"kid": "second"}, **good()),
        signed({"kid": None}, **good()),
        signed({"alg": "HS256"}, **good()),
        signed({"alg": "RS512"}, **good()),
        signed(**good())[:-5],
        signed(**good())[:-6] + "AAAAAA",
        unsigned(**good()),
        "a.b.c",
        "x",
    ]
    for token in tokens:
        s.handshake(BEARER, to=SIGNED)
        answer = s.token(bearer(token), version, to=SIGNED)
        if answer["auth_bytes"]:
            s.token(b"\x01", version, to=SIGNED)
        s.ended(to=SIGNED)
    s.handshake(BEARER, to=SIGNED)
    s.token(bearer(signed(**good()), authzid="other"), version, to=SIGNED)
    s.ended(to=SIGNED)
