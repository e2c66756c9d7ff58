"""SASL SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): the password never travels.

The server computes a few HMACs; the client that sets a password does the slow work. Unknown
extensions are ignored. Kafka: ScramSaslServer, ScramMessages, ScramFormatter.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from tidelog.security.refused import RefusedError
from tidelog_protocol.messages.metadata_records import UserScramCredentialRecord

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "ITERATIONS_MAX",
    "ITERATIONS_MIN",
    "SCRAM",
    "Credentials",
    "Scram",
    "ScramServer",
    "TokenLogin",
    "credential",
    "of_password",
]


class Scram(NamedTuple):
    """One mechanism: its number in requests and records, and its hash function."""

    number: int
    hash_name: str


SCRAM = {"SCRAM-SHA-256": Scram(1, "sha256"), "SCRAM-SHA-512": Scram(2, "sha512")}
ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384  # of credentials that are set: a client has to compute as many

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_MORE = rf"(?:,[A-Za-z]+={_VALUE})*"
_FIRST = re.compile(rf"n,(?:a=({_NAME}))?,(?:m={_VALUE},)?(n=({_NAME}),r=({_NONCE})({_MORE}))")
_FINAL = re.compile(rf"(c={_BASE64},r=({_NONCE})){_MORE},p=({_BASE64})")


def credential(
    scram: Scram, name: str, salt: bytes, salted_password: bytes, iterations: int
) -> UserScramCredentialRecord:
    """Return the record of a user's credential (ScramFormatter). The password is not in it."""
    client_key = hmac.digest(salted_password, b"Client Key", scram.hash_name)
    return UserScramCredentialRecord(
        name=name,
        mechanism=scram.number,
        salt=salt,
        stored_key=hashlib.new(scram.hash_name, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", scram.hash_name),
        iterations=iterations,
    )


def of_password(
    scram: Scram, name: str, password: str, salt: bytes, iterations: int = ITERATIONS_MIN
) -> UserScramCredentialRecord:
    """Return the record of a user's credential for a password."""
    salted = hashlib.pbkdf2_hmac(scram.hash_name, password.encode(), salt, iterations)
    return credential(scram, name, salt, salted, iterations)


class TokenLogin(NamedTuple):
    """What a client that names a token must prove, and the owner that this proves."""

    owner: str
    expires_ms: int
    credential: UserScramCredentialRecord


class Credentials(NamedTuple):
    """Finds what a client must prove: by a user's name and a mechanism's number, and by the id of
    a delegation token."""

    user: Callable[[str, int], UserScramCredentialRecord | None] = lambda _name, _number: None
    token: Callable[[str, Scram], TokenLogin | None] = lambda _token_id, _scram: None


class State(Enum):
    """What the client sends next."""

    FIRST = auto()
    FINAL = auto()
    NOTHING = auto()


class ScramServer:
    """A server's side."""

    def __init__(self, scram: Scram, credentials: Credentials, nonce: Callable[[], str]) -> None:
        self._scram = scram
        self._credentials = credentials
        self._nonce = nonce
        self._state = State.FIRST
        self._name = ""
        self._credential: UserScramCredentialRecord | None = None
        self._said = ""  # both first messages
        self._both_nonces = ""
        self.user: str | None = None
        self.expires_ms: int | None = None
        self.is_of_token = False

    def evaluate(self, token: bytes) -> bytes:
        """Take the client's first message, then its final one."""
        step = _STEPS.get(self._state)
        if step is None:
            raise RefusedError("Unexpected challenge after the last message")
        handle, after = step
        answer = handle(self, token.decode("utf-8", "replace"))
        self._state = after
        return answer.encode()

    def _first(self, message: str) -> str:
        match = _FIRST.fullmatch(message)
        if match is None:
            raise RefusedError("Invalid SCRAM client first message format")
        wanted, bare, name, nonce, more = match.groups()
        name = name.replace("=2C", ",").replace("=3D", "=")
        owner = name
        if any(part.lower() == "tokenauth=true" for part in more.split(",")):
            login = self._credentials.token(name, self._scram)
            if login is None:
                raise RefusedError(f"Token Authentication failed: Invalid tokenId : {name}")
            owner, self.expires_ms, credential = login
            self.is_of_token = True
        else:
            known = self._credentials.user(name, self._scram.number)
            if known is None:
                raise RefusedError("Authentication failed: Invalid user credentials")
            credential = known
        if wanted and wanted != name:
            raise RefusedError.openly(
                "Authentication failed: Client requested an authorization id that is different"
                " from username"
            )
        if credential.iterations < ITERATIONS_MIN:
            raise RefusedError(f"Iterations {credential.iterations} is less than {ITERATIONS_MIN}")
        self._name, self._credential = owner, credential
        self._both_nonces = nonce + self._nonce()
        salt = base64.b64encode(credential.salt).decode()
        answer = f"r={self._both_nonces},s={salt},i={credential.iterations}"
        self._said = f"{bare},{answer}"
        return answer

    def _final(self, message: str) -> str:
        credential, hash_name = self._credential, self._scram.hash_name
        assert credential is not None, "the first message has a user"
        match = _FINAL.fullmatch(message)
        if match is None:
            raise RefusedError("Invalid SCRAM client final message format")
        if match[2] != self._both_nonces:
            raise RefusedError("Invalid client nonce in the final client message.")
        said = f"{self._said},{match[1]}".encode()
        signature = hmac.digest(credential.stored_key, said, hash_name)
        proof = base64.b64decode(match[3])
        key = bytes(a ^ b for a, b in zip(signature, proof, strict=False))
        stored = hashlib.new(hash_name, key).digest()
        same = hmac.compare_digest(stored, credential.stored_key)
        if len(proof) != len(signature) or not same:
            raise RefusedError("Invalid client credentials")
        self.user = self._name
        answer = hmac.digest(credential.server_key, said, hash_name)
        return f"v={base64.b64encode(answer).decode()}"


_STEPS: dict[State, tuple[Callable[[ScramServer, str], str], State]] = {
    State.FIRST: (ScramServer._first, State.FINAL),
    State.FINAL: (ScramServer._final, State.NOTHING),
}
"""The step that takes the client's message in each state, and the state after it."""
