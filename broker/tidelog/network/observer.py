"""Sees requests end: one line in the log for each, and Kafka's RequestMetrics.

The dispatchers show it their responses only while metrics are served or the logger
`tidelog.requests` is at debug (`Dispatcher.observe`). A request's time is that from its handler's
begin until it has a response, without the time on the wire.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tidelog.metrics.meters import Name, Sample
from tidelog_protocol.apis import API
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.schema import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.metrics.meters import Meters, Timer
    from tidelog.network.dispatch import Dispatcher, RequestContext
    from tidelog.seams import Clock

__all__ = ["REQUESTS", "RequestObserver", "first_error"]

REQUESTS = "tidelog.requests"
"""The logger with a line for each request."""

log = logging.getLogger(REQUESTS)

_RATE = Name("kafka.network", "RequestMetrics", "RequestsPerSec")
_TIME = Name("kafka.network", "RequestMetrics", "TotalTimeMs")


class RequestObserver:
    """Logs and counts the requests of one broker."""

    def __init__(
        self, clock: Clock, dispatchers: Sequence[Dispatcher], meters: Meters | None
    ) -> None:
        """`meters` is None if metrics are not served."""
        self.now_s = clock.monotonic
        self._dispatchers = dispatchers
        self._meters = meters
        self._is_logging = False
        self._counts: defaultdict[tuple[int, int], int] = defaultdict(int)
        self._timers: dict[int, Timer] = {}
        if meters is not None:
            meters.counted(_RATE, self._rates)
        self.follow_level()

    def follow_level(self) -> None:
        """Observe as the level of the log demands; called after it has changed."""
        self._is_logging = log.isEnabledFor(logging.DEBUG)
        is_on = self._is_logging or self._meters is not None
        for dispatcher in self._dispatchers:
            dispatcher.observe(self if is_on else None)

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

    def _rates(self) -> list[Sample]:
        return [
            Sample((("request", API[key].name), ("version", str(version))), count)
            for (key, version), count in sorted(self._counts.items())
        ]


def _log(context: RequestContext, took_s: float, response: Any) -> None:
    code = first_error(response)
    try:
        error = ErrorCode(code).name
    except ValueError:
        error = str(code)
    fields = {
        "client_id": context.client_id,
        "client": f"{context.client_host}:{context.client_port}",
        "api": API[context.api_key].name,
        "version": context.api_version,
        "correlation_id": context.correlation_id,
        "latency_ms": round(1000 * took_s, 3),
        "error": error,
    }
    log.debug(
        "%(client)s %(client_id)r %(api)s v%(version)d #%(correlation_id)d"
        " %(latency_ms).3f ms %(error)s",
        fields,
        extra={"fields": fields},
    )


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
