"""Sees requests end: one line in the log for each, Kafka's RequestMetrics, and the last ones.

The dispatchers show it their responses only while metrics are served, the logger `tidelog.requests`
is at debug, or the last requests are asked for (`Dispatcher.observe`). A request's time is that
from its handler's begin until it has a response, without the time on the wire.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict, deque
from functools import cache
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.metrics.meters import Name, Sample, Timer
from tidelog.network.dispatch import Deferred
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import error_name
from tidelog_protocol.schema import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.metrics.meters import Labels, Meters
    from tidelog.network.dispatch import Dispatcher, Handler, RequestContext
    from tidelog.seams import Clock

__all__ = [
    "REQUESTS",
    "KeptRequest",
    "RequestObserver",
    "first_error",
    "is_of_broker",
]

REQUESTS = "tidelog.requests"
"""The logger with a line for each request."""

log = logging.getLogger(REQUESTS)

KEPT_MAX = 100
KEPT_S = 30.0
"""How long requests are kept after they were last asked for."""
_BROKER_CLIENT = re.compile(r"broker-\d+-")

_RATE = Name("kafka.network", "RequestMetrics", "RequestsPerSec")
_ERRORS = Name("kafka.network", "RequestMetrics", "ErrorsPerSec")
_TIME = Name("kafka.network", "RequestMetrics", "TotalTimeMs")


class KeptRequest(NamedTuple):
    """A request that has its response; `error` is 0 for none."""

    ended_ms: int
    client_id: str | None
    client: str
    api_key: int
    api_version: int
    latency_ms: float
    error: int


def is_of_broker(context: RequestContext) -> bool:
    """Return whether a broker made a request, by its client id."""
    return _BROKER_CLIENT.match(context.client_id or "") is not None


class RequestObserver:
    """Logs, counts and keeps the requests of one broker."""

    def __init__(
        self, node_id: int, clock: Clock, dispatchers: Sequence[Dispatcher], meters: Meters | None
    ) -> None:
        """`meters` is None if metrics are not served."""
        self._node_id = node_id
        self._now_s = clock.monotonic
        self._wall_ms = clock.wall_ms
        self._dispatchers = dispatchers
        self._meters = meters
        self._is_logging = False
        self._kept: deque[KeptRequest] | None = None
        self._asked_s = 0.0
        self._timers: dict[int, Timer] = {}  # by API key, version and whether of a follower
        self._errors: defaultdict[tuple[int, int], int] = defaultdict(int)  # by API key and code
        if meters is not None:
            meters.counted(_RATE, self._rates)
            meters.counted(_ERRORS, self._failures)
            meters.timed(_TIME, self._times)
        self.follow_level()

    def follow_level(self) -> None:
        """Observe as the level of the log demands; called after it has changed."""
        self._is_logging = log.isEnabledFor(logging.DEBUG)
        is_on = self._is_logging or self._meters is not None or self._kept is not None
        for dispatcher in self._dispatchers:
            dispatcher.observe(self if is_on else None)

    def kept(self) -> list[KeptRequest]:
        """Return the last requests of clients, oldest first.

        They are kept from the first call on, until there was none for `KEPT_S`.
        """
        self._asked_s = self._now_s()
        if self._kept is None:
            self._kept = deque(maxlen=KEPT_MAX)
            self.follow_level()
        return list(self._kept)

    def wrap(self, api_key: int, handler: Handler) -> Handler:
        """Return the handler as it is observed."""
        now_s, answered = self._now_s, self.answered

        def serve(context: RequestContext, request: Any) -> Any:
            context.began_s = now_s()
            response = handler(context, request)
            if response.__class__ is not Deferred and response.__class__ is not CoroutineType:
                answered(context, response)
            return response

        def fetch(context: RequestContext, request: Any) -> Any:
            state = request.replica_state  # KIP-903: of version 15
            context.is_follower = (request.replica_id if state is None else state.replica_id) >= 0
            return serve(context, request)

        return fetch if api_key == ApiKey.FETCH else serve

    def answered(self, context: RequestContext, response: Any) -> None:
        """Log and count a request that has its response."""
        if context.began_s is None:
            return  # from before requests were observed
        took_s = self._now_s() - context.began_s
        if self._meters is not None:
            kind = context.api_key << 17 | context.api_version << 1 | context.is_follower
            timer = self._timers.get(kind)
            if timer is None:
                timer = self._timers[kind] = Timer()
            timer.record(took_s)
            if response.__class__ is not list:  # an encoded body has no error
                for code in error_codes(response):
                    self._errors[context.api_key, code] += 1
        if self._is_logging:
            self._log(context, took_s, response)
        if self._kept is not None:
            self._keep(self._kept, context, took_s, response)

    def _log(self, context: RequestContext, took_s: float, response: Any) -> None:
        fields = {
            "broker": self._node_id,
            "client_id": context.client_id,
            "client": f"{context.client_host}:{context.client_port}",
            "api": API[context.api_key].name,
            "version": context.api_version,
            "correlation_id": context.correlation_id,
            "latency_ms": round(1000 * took_s, 3),
            "error": error_name(first_error(response)),
        }
        log.debug(
            "broker %(broker)d: %(client)s %(client_id)r %(api)s v%(version)d #%(correlation_id)d"
            " %(latency_ms).3f ms %(error)s",
            fields,
            extra={"fields": fields},
        )

    def _keep(
        self, kept: deque[KeptRequest], context: RequestContext, took_s: float, response: Any
    ) -> None:
        if self._now_s() - self._asked_s > KEPT_S:
            self._kept = None
            self.follow_level()
        elif not is_of_broker(context):
            kept.append(
                KeptRequest(
                    ended_ms=self._wall_ms(),
                    client_id=context.client_id,
                    client=f"{context.client_host}:{context.client_port}",
                    api_key=context.api_key,
                    api_version=context.api_version,
                    latency_ms=round(1000 * took_s, 3),
                    error=first_error(response),
                )
            )

    def _rates(self) -> list[Sample]:
        counts: defaultdict[Labels, int] = defaultdict(int)
        for kind, timer in self._timers.items():
            for name in _metric_names(kind):
                counts[("request", name), ("version", str(kind >> 1 & 0xFFFF))] += timer.count
        return [Sample(*item) for item in sorted(counts.items())]

    def _failures(self) -> list[Sample]:
        return [
            Sample((("error", error_name(code)), ("request", API[key].name)), count)
            for (key, code), count in sorted(self._errors.items())
        ]

    def _times(self) -> list[tuple[Labels, Timer]]:
        timers: defaultdict[str, list[Timer]] = defaultdict(list)
        for kind, timer in self._timers.items():
            for name in _metric_names(kind):
                timers[name].append(timer)
        return [((("request", name),), Timer.merged(timers[name])) for name in sorted(timers)]


def _metric_names(kind: int) -> tuple[str, ...]:
    """Fetch counts twice, as in Kafka: as such, and as that of a consumer or follower."""
    name = API[kind >> 17].name
    if kind >> 17 != ApiKey.FETCH:
        return (name,)
    return name, "FetchFollower" if kind & 1 else "FetchConsumer"


def first_error(response: Any) -> int:
    """Return the first error code of a response; 0 if it has none. An encoded body has none."""
    return next(error_codes(response), 0)


def error_codes(response: Any) -> Iterator[int]:
    """Return the error codes of a response, its own and those inside, without NONE."""
    if not isinstance(response, Struct):
        return
    for name, is_code in _fields_with_codes(type(response)):
        value = getattr(response, name)
        if is_code:
            if value:
                yield value
        elif isinstance(value, list):
            for part in value:
                yield from error_codes(part)
        else:
            yield from error_codes(value)


@cache
def _fields_with_codes(kind: type[Struct]) -> tuple[tuple[str, bool], ...]:
    """Return the fields in which error codes are or may be inside; the structure's own first."""
    inside = [
        (field.name, False)
        for field in kind.FIELDS
        if isinstance(field.element, type) and _fields_with_codes(field.element)
    ]
    own = [(field.name, True) for field in kind.FIELDS if field.name == "error_code"]
    return (*own, *inside)
