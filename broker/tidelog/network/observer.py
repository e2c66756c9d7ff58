"""Sees requests end: one line in the log for each, Kafka's RequestMetrics, and the last ones.

The dispatchers show it their responses only while metrics are served, the logger `tidelog.requests`
is at debug, or the last requests are asked for (`Dispatcher.observe`). A request's time is that
from its handler's begin until it has a response, without the time on the wire.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.metrics.meters import Name, Sample
from tidelog_protocol.apis import API
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.schema import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.metrics.meters import Meters, Timer
    from tidelog.network.dispatch import Dispatcher, RequestContext
    from tidelog.seams import Clock

__all__ = [
    "REQUESTS",
    "KeptRequest",
    "RequestObserver",
    "error_name",
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
        self, clock: Clock, dispatchers: Sequence[Dispatcher], meters: Meters | None
    ) -> None:
        """`meters` is None if metrics are not served."""
        self.now_s = clock.monotonic
        self._wall_ms = clock.wall_ms
        self._dispatchers = dispatchers
        self._meters = meters
        self._is_logging = False
        self._kept: deque[KeptRequest] | None = None
        self._asked_s = 0.0
        self._counts: defaultdict[tuple[int, int], int] = defaultdict(int)
        self._timers: dict[int, Timer] = {}
        if meters is not None:
            meters.counted(_RATE, self._rates)
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
        self._asked_s = self.now_s()
        if self._kept is None:
            self._kept = deque(maxlen=KEPT_MAX)
            self.follow_level()
        return list(self._kept)

    def answered(self, context: RequestContext, response: Any) -> None:
        """Log and count a request that has its response."""
        if context.began_s is None:
            return  # from before requests were observed
        took_s = self.now_s() - context.began_s
        key = context.api_key
        if self._meters is not None:
            self._counts[key, context.api_version] += 1
            timer = self._timers.get(key)
            if timer is None:
                labels = (("request", API[key].name),)
                timer = self._timers[key] = self._meters.timer(_TIME, labels)
            timer.record(took_s)
        if self._is_logging:
            _log(context, took_s, response)
        if self._kept is not None:
            self._keep(self._kept, context, took_s, response)

    def _keep(
        self, kept: deque[KeptRequest], context: RequestContext, took_s: float, response: Any
    ) -> None:
        if self.now_s() - self._asked_s > KEPT_S:
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
        return [
            Sample((("request", API[key].name), ("version", str(version))), count)
            for (key, version), count in sorted(self._counts.items())
        ]


def _log(context: RequestContext, took_s: float, response: Any) -> None:
    fields = {
        "client_id": context.client_id,
        "client": f"{context.client_host}:{context.client_port}",
        "api": API[context.api_key].name,
        "version": context.api_version,
        "correlation_id": context.correlation_id,
        "latency_ms": round(1000 * took_s, 3),
        "error": error_name(first_error(response)),
    }
    log.debug(
        "%(client)s %(client_id)r %(api)s v%(version)d #%(correlation_id)d"
        " %(latency_ms).3f ms %(error)s",
        fields,
        extra={"fields": fields},
    )


def error_name(code: int) -> str:
    """Return Kafka's name of an error code, or its number."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def first_error(response: Any) -> int:
    """Return the first error code of a response; 0 if it has none. An encoded body has none."""
    if isinstance(response, Struct):
        code: int = getattr(response, "error_code", 0)
        if code:
            return code
        return next(filter(None, map(first_error, _parts(response))), 0)
    return 0


def _parts(message: Struct) -> list[Any]:
    found: list[Any] = []
    for field in message.FIELDS:
        value = getattr(message, field.name)
        found += value if isinstance(value, list) else (value,)
    return found
