"""How this broker authenticates to other brokers and controllers: the client's side of SASL.

Each mechanism is a function that says its tokens to a server and takes the answers. Name and
password are options of the login module that the listener's own clients are checked by, as in
Kafka: `username` and `password`, for OAUTHBEARER `unsecuredLogin...`. Kafka: PlainSaslClient,
ScramSaslClient, OAuthBearerUnsecuredLoginCallbackHandler.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.config.security_keys import (
    BEARER,
    LOGINS,
    MECHANISMS,
    SIGNED_LOGINS,
    UNSECURED_LOGIN,
)
from tidelog.security.jaas import login_entry
from tidelog.security.refused import RefusedError
from tidelog.security.scram import ITERATIONS_MIN, SCRAM
from tidelog_storage.config_key import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tidelog.config.listeners import ListenerSettings
    from tidelog.seams import Clock, Executor, Rng

    Talk = Callable[[bytes], Awaitable[bytes]]
    """Sends a token; returns the server's answer."""
    Login = Callable[[Talk], Awaitable[None]]

__all__ = ["Means", "is_token", "login_of", "tokens_of", "unsecured_tokens"]

ITERATIONS_MAX = 1 << 20  # about a second: a server that asks for more is not served
TOKEN_BYTES_MAX = 64 << 10  # a file with more has no token
_TOKEN = re.compile(rb"[-_~+/.a-zA-Z0-9]+=*")  # as servers take it
_SERVER_FIRST = re.compile(
    r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=([0-9]{1,9})(?:,.*)?", re.DOTALL
)
_LIFETIME = re.compile(r"[+-]?[0-9]{1,18}")
_CLAIM = re.compile(r"unsecuredLogin(String|Number|List)Claim_(.+)", re.DOTALL)


class Means(NamedTuple):
    """What a login needs of this broker. PBKDF2 runs on the executor."""

    clock: Clock
    rng: Rng
    executor: Executor


def login_of(settings: ListenerSettings, mechanism_key: str, mechanism: str, means: Means) -> Login:
    """Return what authenticates a connection to a listener; ConfigError names the key that is
    wrong."""
    if mechanism not in MECHANISMS:
        names = ", ".join(MECHANISMS)
        raise ConfigError(
            mechanism_key, f"{mechanism_key}: {mechanism} is not supported; there are {names}"
        )
    key = settings.key("sasl.jaas.config", mechanism)
    entry = login_entry(key, settings.value("sasl.jaas.config", mechanism), mechanism)
    options = entry.options
    if mechanism == BEARER:
        tokens = tokens_of(settings, key, options, means.clock)
        return partial(_bearer, partial(means.executor.run, tokens), _extensions(options))
    missing = [name for name in ("username", "password") if not options.get(name)]
    if missing:
        raise ConfigError(
            key,
            f"{key}: has no {' and no '.join(missing)} to authenticate with"
            f" ({mechanism_key}={mechanism})",
        )
    user, password = options["username"], options["password"]
    if mechanism in SCRAM:
        more = ",tokenauth=true" if is_token(options) else ""
        return ScramLogin(SCRAM[mechanism].hash_name, user, password, means, more)
    return partial(_plain, user, password)


def is_token(options: Mapping[str, str]) -> bool:
    """Return whether a login of SCRAM is by a delegation token (KIP-48)."""
    return options.get("tokenauth", "").lower() == "true"


async def _plain(user: str, password: str, talk: Talk) -> None:
    await talk(f"\0{user}\0{password}".encode())


class ScramLogin:
    """SCRAM in the name of one user. The salted password is kept: connections to all brokers have
    the same."""

    def __init__(
        self, hash_name: str, user: str, password: str, means: Means, more: str = ""
    ) -> None:
        """`more` is said behind the nonce."""
        self._hash_name = hash_name
        self._more = more
        self._user = user.replace("=", "=3D").replace(",", "=2C")
        self._password = password
        self._means = means
        self._salted: tuple[tuple[bytes, int], bytes] | None = None

    async def __call__(self, talk: Talk) -> None:
        """Prove the password to the server, and let the server prove that it knows it."""
        nonce = self._means.rng.bytes(16).hex()
        bare = f"n={self._user},r={nonce}{self._more}"
        first = (await talk(f"n,,{bare}".encode())).decode("utf-8", "replace")
        both, salt, iterations = _parsed_first(first, nonce)
        salted = await self._salt(salt, iterations)
        unproved = f"c=biws,r={both}"  # `n,,` in base 64
        said = f"{bare},{first},{unproved}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._hash_name)
        stored_key = hashlib.new(self._hash_name, client_key).digest()
        signature = hmac.digest(stored_key, said, self._hash_name)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        final = await talk(f"{unproved},p={base64.b64encode(proof).decode()}".encode())
        server_key = hmac.digest(salted, b"Server Key", self._hash_name)
        expected = base64.b64encode(hmac.digest(server_key, said, self._hash_name))
        if not hmac.compare_digest(final.partition(b",")[0], b"v=" + expected):
            raise RefusedError("Invalid server signature in server final message")

    async def _salt(self, salt: bytes, iterations: int) -> bytes:
        if self._salted is not None and self._salted[0] == (salt, iterations):
            return self._salted[1]
        salted = await self._means.executor.run(
            hashlib.pbkdf2_hmac, self._hash_name, self._password.encode(), salt, iterations
        )
        self._salted = ((salt, iterations), salted)
        return salted


def _parsed_first(message: str, nonce: str) -> tuple[str, bytes, int]:
    """Return both nonces, the salt and the iterations of the server's first message."""
    match = _SERVER_FIRST.fullmatch(message)
    if match is None:
        raise RefusedError("Invalid SCRAM server first message format")
    if not match[1].startswith(nonce):
        raise RefusedError("Invalid server nonce: does not start with client nonce")
    iterations = int(match[3])
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise RefusedError(
            f"Requested iterations {iterations} are not from {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        )
    try:
        return match[1], base64.b64decode(match[2], validate=True), iterations
    except binascii.Error:
        raise RefusedError("Invalid SCRAM server first message format") from None


class _Claims(NamedTuple):
    """What this broker's unsecured tokens say."""

    lifetime_s: int
    claims: Mapping[str, object]

    @classmethod
    def of(cls, key: str, options: Mapping[str, str]) -> _Claims:
        """Return those of a login module's options; ConfigError names `key`."""
        lifetime = options.get("unsecuredLoginLifetimeSeconds", "").strip() or "3600"
        claims: dict[str, object] = {}
        if not _LIFETIME.fullmatch(lifetime):
            raise ConfigError(key, f"{key}: unsecuredLoginLifetimeSeconds is no number of seconds")
        try:
            for name, text in options.items():
                if match := _CLAIM.fullmatch(name):
                    claims[match[2]] = _claim(match[1], text)
        except ValueError as error:
            raise ConfigError(key, f"{key}: {error}, for a claim of unsecuredLogin") from None
        principal = options.get("unsecuredLoginPrincipalClaimName", "").strip() or "sub"
        if not isinstance(claims.get(principal), str):
            name = f"unsecuredLoginStringClaim_{principal}"
            raise ConfigError(key, f"{key}: has no {name} to authenticate as")
        return cls(int(lifetime), claims)


def _extensions(options: Mapping[str, str]) -> str:
    prefix = "unsecuredLoginExtension_"
    found = {name[len(prefix) :]: text for name, text in options.items() if name.startswith(prefix)}
    return "".join(f"\x01{name}={text}" for name, text in found.items())


def tokens_of(
    settings: ListenerSettings, key: str, options: Mapping[str, str], clock: Clock
) -> Callable[[], str]:
    """Return what gives a token for each login: the content of a file, or a new unsecured one.
    ConfigError; later on OSError and ValueError."""
    name = "sasl.login.callback.handler.class"
    handler = settings.value(name, BEARER)
    if handler is None or handler == UNSECURED_LOGIN:
        return unsecured_tokens(key, options, clock)
    if handler not in SIGNED_LOGINS:
        wrong = settings.key(name, BEARER)
        raise ConfigError(wrong, f"{wrong}: {handler} is none of {', '.join(LOGINS)}")
    key = settings.key("sasl.oauthbearer.token.endpoint.url", BEARER)
    url = settings.value("sasl.oauthbearer.token.endpoint.url", BEARER)
    if url is None:
        raise ConfigError(key, f"{key}: is missing beside {name}")
    if not url.startswith("file:///"):
        raise ConfigError(key, f"{key}: {url} is no URL of a file, and others are not supported")
    from urllib.parse import urlsplit  # noqa: PLC0415 - few brokers have a file
    from urllib.request import url2pathname  # noqa: PLC0415

    tokens = partial(_token_in, url2pathname(urlsplit(url).path))
    try:
        tokens()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(key, f"{key}: {url}: {reason}") from None
    return tokens


def _token_in(path: str) -> str:
    with open(path, "rb") as file:
        token = file.read(TOKEN_BYTES_MAX + 1).strip()
    if len(token) > TOKEN_BYTES_MAX or _TOKEN.fullmatch(token) is None:
        raise ValueError("it is no token")
    return token.decode()


def unsecured_tokens(key: str, options: Mapping[str, str], clock: Clock) -> Callable[[], str]:
    """Return what makes a new token with the claims of a login module's options; ConfigError names
    `key`."""
    claims = _Claims.of(key, options)

    def new() -> str:
        now_s = clock.wall_ms() / 1000
        said = {"exp": now_s + claims.lifetime_s, "iat": now_s, **claims.claims}
        return f"{_encoded({'alg': 'none'})}.{_encoded(said)}."

    return new


def _claim(kind: str, text: str) -> object:
    if kind == "Number":
        return float(text)
    return text if kind == "String" else text[1:].split(text[:1]) if text else []


async def _bearer(new_token: Callable[[], Awaitable[str]], extensions: str, talk: Talk) -> None:
    """Show a token. A server that refuses it says why, and waits for an answer."""
    try:
        token = await new_token()
    except (OSError, ValueError) as error:
        raise RefusedError(f"there is no token: {error}") from None
    reason = await talk(f"n,,\x01auth=Bearer {token}{extensions}\x01\x01".encode())
    if reason:
        await talk(b"\x01")
        raise RefusedError(reason.decode("utf-8", "replace"))


def _encoded(part: Mapping[str, Any]) -> str:
    import json  # noqa: PLC0415 - a start imports this module

    text = json.dumps(part, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()
