"""Client instances that push metrics (KIP-714, Kafka's ClientMetricsManager): which subscriptions
each has, and when it may ask and push.

Time is given as an argument, in ms of a monotonic clock. An instance is forgotten once it is quiet
for three of its intervals, once its connection closes, or once others need its place; it is made
again by its next request.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, NamedTuple

from tidelog.config.client_metrics import ALL_METRICS, INTERVAL_MS_DEFAULT, subscription_of
from tidelog_protocol.checksum import crc32c
from tidelog_protocol.compression import Codec
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.config_key import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.config.client_metrics import Subscription

__all__ = ["RESERVED_IDS", "ClientInstance", "ClientInstances", "Wanted", "id_text"]

INSTANCES_MAX = 16384
KEPT_MS_MIN = 60000
RESERVED_IDS = (bytes(16), bytes(15) + b"\x01")
_UNTHROTTLED = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
_NEVER_MS = -1 << 62


class Wanted(NamedTuple):
    """What one client is to push. Kafka's `subscription id` stands for both and for the client."""

    metrics: tuple[str, ...]
    interval_ms: int

    def subscription_id(self, instance_id: bytes) -> int:
        """Return a number that changes with what is wanted of a client; signed, 32 bits."""
        number = crc32c(f"[{', '.join(self.metrics)}]{self.interval_ms}".encode(), 0)
        for start in range(0, 16, 4):
            number ^= int.from_bytes(instance_id[start : start + 4], "big")
        return number - (1 << 32) if number >> 31 else number


class ClientInstance:
    """One client that asked for its subscriptions."""

    __slots__ = (
        "attributes",
        "expires_ms",
        "instance_id",
        "last_error",
        "last_get_ms",
        "last_push_ms",
        "subscription_id",
        "terminating",
        "version",
        "wanted",
    )

    def __init__(
        self, instance_id: bytes, attributes: Mapping[str, str], wanted: Wanted, version: int
    ) -> None:
        self.instance_id = instance_id
        self.attributes = attributes
        self.wanted = wanted
        self.subscription_id = wanted.subscription_id(instance_id)
        self.version = version  # of the subscriptions
        self.last_get_ms = self.last_push_ms = _NEVER_MS
        self.last_error = ErrorCode.NONE
        self.terminating = False
        self.expires_ms = 0

    @property
    def kept_ms(self) -> int:
        """How long it is kept without a request."""
        return max(KEPT_MS_MIN, 3 * self.wanted.interval_ms)

    def check_get(self, now_ms: int) -> ErrorCode:
        """Decide whether it may ask: once in an interval, or after an error that tells it to."""
        if now_ms - max(self.last_get_ms, self.last_push_ms) >= self.wanted.interval_ms:
            self.last_get_ms = now_ms
        elif self.last_error not in _UNTHROTTLED:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        self.last_error = ErrorCode.NONE
        return ErrorCode.NONE

    def check_push(self, push: PushHead, bytes_max: int, now_ms: int) -> ErrorCode:
        """Decide whether it may push; the checks are in Kafka's order."""
        self.last_error = code = self._push_error(push, bytes_max, now_ms)
        self.terminating = push.terminating
        return code

    def _push_error(self, push: PushHead, bytes_max: int, now_ms: int) -> ErrorCode:
        if self.terminating:
            return ErrorCode.INVALID_REQUEST
        # The first push after a request for subscriptions may come early: clients add a jitter.
        may_push = (
            self.last_get_ms > self.last_push_ms
            or now_ms - self.last_push_ms >= self.wanted.interval_ms
        )
        if may_push:
            self.last_push_ms = now_ms
        elif not push.terminating:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if push.subscription_id != self.subscription_id:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if not Codec.NONE <= push.codec <= Codec.ZSTD:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if push.size > bytes_max:
            return ErrorCode.TELEMETRY_TOO_LARGE
        return ErrorCode.NONE


class PushHead(NamedTuple):
    """A PushTelemetry without its metrics."""

    subscription_id: int
    terminating: bool
    codec: int
    size: int


class ClientInstances:
    """The client instances of one broker; those without requests for longest come first."""

    def __init__(
        self,
        subscriptions: Callable[[], Mapping[str, Mapping[str, str]]],
        new_id: Callable[[], bytes],
        warn: Callable[..., None],
    ) -> None:
        """`subscriptions` returns the settings by name, the same mapping until they change."""
        self._read = subscriptions
        self._new_id = new_id
        self._warn = warn
        self._instances: dict[bytes, ClientInstance] = {}
        self._of_connections: dict[object, bytes] = {}
        self._settings: Mapping[str, Mapping[str, str]] | None = None
        self._subscriptions: list[Subscription] = []
        self._version = 0

    def unused_id(self) -> bytes:
        """Return a new id."""
        while True:
            made = self._new_id()
            # Kafka gives out none that is reserved or looks like an option of a command.
            is_taken = made in self._instances or made in RESERVED_IDS
            if not is_taken and not id_text(made).startswith("-"):
                return made

    def instance(
        self,
        instance_id: bytes,
        attributes: Mapping[str, str],
        connection: object,
        now_ms: int,
    ) -> tuple[ClientInstance, bool]:
        """Return a client's instance, and whether its connection is to be followed: on its close
        call `closed`."""
        self._follow()
        found = self._instances.pop(instance_id, None)
        is_new_connection = False
        if found is not None and found.expires_ms <= now_ms:
            found = None
        if found is None or found.version != self._version:
            known = attributes if found is None else found.attributes
            found = ClientInstance(instance_id, known, self._wanted(known), self._version)
            is_new_connection = connection not in self._of_connections
            self._of_connections[connection] = instance_id
        found.expires_ms = now_ms + found.kept_ms
        self._instances[instance_id] = found
        if len(self._instances) > INSTANCES_MAX:
            del self._instances[next(iter(self._instances))]
        return found, is_new_connection

    def closed(self, connection: object) -> None:
        """Forget the instance that came by a connection."""
        instance_id = self._of_connections.pop(connection, None)
        if instance_id is not None:
            self._instances.pop(instance_id, None)

    def count(self, now_ms: int) -> int:
        """Return how many there are."""
        return sum(one.expires_ms > now_ms for one in self._instances.values())

    def _follow(self) -> None:
        """Parse the subscriptions again if they have changed."""
        settings = self._read()
        if settings is self._settings:
            return
        is_changed, self._settings = settings != (self._settings or {}), settings
        if not is_changed:
            return
        self._version += 1
        self._subscriptions = []
        for name in sorted(settings):
            try:
                self._subscriptions.append(subscription_of(settings[name]))
            except ConfigError as error:  # Kafka wrote it, or a broker that has google-re2
                self._warn("subscription %s of client metrics has no effect: %s", name, error)

    def _wanted(self, attributes: Mapping[str, str]) -> Wanted:
        mine = [one for one in self._subscriptions if one.matches(attributes)]
        metrics = frozenset[str]().union(*(one.metrics for one in mine))
        names = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
        return Wanted(names, min([INTERVAL_MS_DEFAULT, *(one.interval_ms for one in mine)]))


def id_text(instance_id: bytes) -> str:
    """Return an id as Kafka writes it."""
    return urlsafe_b64encode(instance_id).decode().rstrip("=")
