"""Throttles clients that exceed a quota of the image (KIP-13, KIP-124, KIP-219, KIP-612).

A response goes out at once, with the throttle time in it; then the connection is not read until
that time is over. Bytes of Produce requests and of the records in responses of Fetch and ShareFetch
count, and the time of the loop that the handlers of requests take; what a handler awaits does not
count.
Followers and other requests of brokers are exempt. A user is the name of a principal, whatever its
type: ANONYMOUS without authentication, and in requests that a broker forwards to the controller.

While there are no quotas, nothing calls this: neither the dispatcher nor the handlers of fetches,
the controller or new connections.
"""

# ruff: noqa: PLC0415 - few brokers have quotas

from __future__ import annotations

from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from tidelog.network.dispatch import Deferred
from tidelog.network.observer import is_of_broker
from tidelog_protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.cluster.metadata.delta import MetadataDelta
    from tidelog.cluster.metadata.image import ClusterImage, QuotaEntity
    from tidelog.config.broker import BrokerConfig
    from tidelog.metrics.meters import Meters, Sample
    from tidelog.network.dispatch import Dispatcher, Handler, RequestContext
    from tidelog.quotas.connection_rates import ConnectionRates
    from tidelog.quotas.limits import ClientLimits, Usage
    from tidelog.quotas.mutations import MutationCharge, Mutations
    from tidelog.quotas.windows import RateWindows
    from tidelog.seams import Clock

    Quotas = Mapping[QuotaEntity, Mapping[str, float]]

__all__ = ["ClientQuotas", "FetchQuota"]

PRODUCE, FETCH, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
MUTATION, CONNECTION = "controller_mutation_rate", "connection_creation_rate"
UNLIMITED = 2147483647  # Kafka's default of max.connection.creation.rate
# Kafka's names of the quotas' types, and of what they measure.
_MEASURED = {
    PRODUCE: ("Produce", "byte-rate"),
    FETCH: ("Fetch", "byte-rate"),
    REQUEST: ("Request", "request-time"),
}
ADDRESSES_MAX = 10_000  # whose connections are counted at a time


class FetchQuota:
    """What the handlers of Fetch and ShareFetch ask while there are quotas of fetched bytes."""

    def __init__(
        self, limits: ClientLimits[Usage], now_ms: Callable[[], float], burst_s: int
    ) -> None:
        """A client may fetch at once what its quota allows in `burst_s`."""
        self._limits = limits
        self._now_ms = now_ms
        self._burst_s = burst_s

    def bytes_max(self, context: RequestContext, asked: int) -> int:
        """Return how many bytes a client may fetch at once, at most the number it asked for."""
        usage = self._limits.usage(context.principal.name, context.client_id)
        return asked if usage is None else int(min(usage.limit * self._burst_s, asked))

    def throttle_ms(self, context: RequestContext, size: int) -> int:
        """Count bytes of a response. If it returns a time, the client is throttled, and the bytes
        must not be sent: they do not count."""
        time_ms = self.charge_ms(context, size)
        usage = self._limits.usage(context.principal.name, context.client_id)
        if time_ms > 0 and usage is not None:
            usage.rate.record(-size, self._now_ms())
        return time_ms

    def charge_ms(self, context: RequestContext, size: int) -> int:
        """Count bytes of a response that is sent; return for how long the client is throttled."""
        usage = self._limits.usage(context.principal.name, context.client_id)
        if usage is None:
            return 0
        time_ms = usage.charge(size, self._now_ms())
        if time_ms > 0:
            usage.note_throttle(time_ms)
        return time_ms


class ClientQuotas:
    """The quotas of clients on one broker."""

    def __init__(self, config: BrokerConfig, clock: Clock, meters: Meters | None) -> None:
        """`meters` is None if metrics are not served."""
        self._config = config
        self._clock = clock
        self._meters = meters
        self._shown: set[str] = set()
        self._rates: dict[str, ClientLimits[Usage]] = {}  # by key of `_MEASURED`
        self._mutations: ClientLimits[Mutations] | None = None
        self._connections: dict[str | None, float] = {}  # limits by address, None for the default
        self._connected: dict[str, RateWindows] = {}
        self._connection_rates: ConnectionRates | None = None
        self._listeners: list[Callable[[], None]] = []

    def on_image(self, delta: MetadataDelta, image: ClusterImage) -> None:
        """Let the quotas of a new image hold."""
        if not delta.client_quotas:
            return
        quotas = image.client_quotas
        for key in _MEASURED:
            self._change_rate(key, quotas)
        self._change_mutations(quotas)
        self._connections = {
            name: each[CONNECTION]
            for ((kind, name), *_), each in quotas.items()
            if kind == "ip" and CONNECTION in each
        }
        for listener in self._listeners:
            listener()

    def _follow(self, listener: Callable[[], None]) -> None:
        """Call back now and whenever quotas change."""
        self._listeners.append(listener)
        listener()

    def _now_ms(self) -> float:
        return 1000 * self._clock.monotonic()

    # ---- what follows quotas ------------------------------------------------------------------

    def throttle(self, dispatcher: Dispatcher) -> None:
        """Throttle the requests that come to this dispatcher."""

        def follow() -> None:
            is_on = bool(self._rates) or self._mutations is not None
            dispatcher.throttle(self if is_on else None)

        self._follow(follow)

    def limit_fetches(self, limit: Callable[[FetchQuota | None], None]) -> None:
        """Call `limit` now and whenever it changes with what limits fetches, None for nothing."""

        def follow() -> None:
            limits = self._rates.get(FETCH)
            config = self._config
            burst_s = (config.quota_window_num - 1) * config.quota_window_size_seconds
            limit(None if limits is None else FetchQuota(limits, self._now_ms, burst_s))

        self._follow(follow)

    def limit_connections(self, limit: Callable[[Callable[[str], float] | None], None]) -> None:
        """Call `limit` now and whenever it changes with what delays connections, or None."""
        self._follow(lambda: limit(self._connect if self._connections else None))

    # ---- changes ------------------------------------------------------------------------------

    def _change_rate(self, key: str, quotas: Quotas) -> None:
        if not _has(quotas, key):
            self._rates.pop(key, None)
        elif key in self._rates:
            self._rates[key].change(quotas)
        else:
            from tidelog.quotas.limits import ClientLimits, Usage

            self._rates[key] = ClientLimits(
                key, quotas, lambda limit: Usage(limit, self._new_rate())
            )
            self._show(key)

    def _change_mutations(self, quotas: Quotas) -> None:
        if not _has(quotas, MUTATION):
            self._mutations = None
        elif self._mutations is not None:
            self._mutations.change(quotas)
        else:
            from tidelog.quotas.limits import ClientLimits
            from tidelog.quotas.mutations import Mutations
            from tidelog.quotas.windows import TokenBucket

            config = self._config
            size = config.controller_quota_window_num, config.controller_quota_window_size_seconds
            self._mutations = ClientLimits(
                MUTATION, quotas, lambda limit: Mutations(limit, TokenBucket(*size))
            )

    def _new_rate(self) -> RateWindows:
        from tidelog.quotas.windows import RateWindows

        config = self._config
        return RateWindows(config.quota_window_num, config.quota_window_size_seconds)

    # ---- requests -----------------------------------------------------------------------------

    def wrap(self, api_key: int, handler: Handler) -> Handler:
        """Return the handler as its requests are charged."""
        now_s, charge = self._clock.monotonic, self.charge

        def serve(context: RequestContext, request: Any) -> Any:
            began_s = now_s()
            response = handler(context, request)
            context.took_s = now_s() - began_s
            if response.__class__ is Deferred or response.__class__ is CoroutineType:
                return response  # charged when it is encoded
            return charge(context, response)

        def fetch(context: RequestContext, request: Any) -> Any:
            state = request.replica_state  # KIP-903: of version 15
            context.is_follower = (request.replica_id if state is None else state.replica_id) >= 0
            return serve(context, request)

        return fetch if api_key == ApiKey.FETCH else serve

    def charge(self, context: RequestContext, response: Any) -> Any:
        """Count a request that has its response, and return the response to send. A client above
        its quota gets the throttle time, and its connection is not read meanwhile."""
        if context.is_follower or is_of_broker(context):
            return response
        time_ms = self._throttle_ms(context, has_response=response is not None)
        if response.__class__ is not list:  # an encoded body has no throttle time
            # Of the handlers of fetches, or of the controller.
            time_ms = max(time_ms, getattr(response, "throttle_time_ms", 0))
        if time_ms <= 0:
            return response
        context.peer.throttle(time_ms / 1000)
        return _with_throttle_time(context.api_key, response, time_ms)

    def _throttle_ms(self, context: RequestContext, *, has_response: bool) -> int:
        """Return the longest throttle time; it shows at its own quota."""
        longest: tuple[int, Usage | None] = 0, None
        now_ms = self._now_ms()
        usage = self._usage(REQUEST, context)
        if usage is not None and has_response:  # Kafka does not charge acks=0
            most_ms = 1000 * self._config.quota_window_size_seconds
            time_ms = usage.charge(100 * getattr(context, "took_s", 0.0), now_ms)
            longest = min(time_ms, most_ms), usage
        usage = self._usage(PRODUCE, context) if context.api_key == ApiKey.PRODUCE else None
        if usage is not None:
            time_ms = usage.charge(getattr(context, "size", 0), now_ms)
            if time_ms > longest[0]:
                longest = time_ms, usage
        time_ms, usage = longest
        if time_ms > 0 and usage is not None:
            usage.note_throttle(time_ms)
        return time_ms

    def _usage(self, key: str, context: RequestContext) -> Usage | None:
        limits = self._rates.get(key)
        if limits is None:
            return None
        return limits.usage(context.principal.name, context.client_id)

    # ---- mutations and connections ------------------------------------------------------------

    def mutations(self, user: str, client_id: str | None, is_strict: bool) -> MutationCharge | None:
        """Return what charges a request for the partitions that it creates or deletes; None if it
        is free. `is_strict`: it may be refused."""
        if self._mutations is None:
            return None
        usage = self._mutations.usage(user, client_id)
        if usage is None:
            return None
        from tidelog.quotas.mutations import MutationCharge

        return MutationCharge(usage, self._now_ms, is_strict=is_strict)

    def connection_delays(self, config: BrokerConfig) -> Callable[[str], float] | None:
        """Return what counts a new connection of a listener and says how long it must wait; None
        without a limit (`max.connection.creation.rate`)."""
        limits = config.of_listeners("max.connection.creation.rate")
        if self._connection_rates is None:
            if config.max_connection_creation_rate == UNLIMITED and not limits:
                return None
            from tidelog.quotas.connection_rates import ConnectionRates

            wait_ms_max = 1000 * config.quota_window_size_seconds
            self._connection_rates = ConnectionRates(self._new_rate, wait_ms_max)
        rates = self._connection_rates
        rates.change(config.max_connection_creation_rate, limits, config.protected_listener())
        if not rates.is_limited:
            return None
        return lambda listener: rates.delay_s(listener, self._now_ms())

    def _connect(self, address: str) -> float:
        """Count a new connection; return in how many seconds it must be closed, 0 for never."""
        limit = self._connections.get(address, self._connections.get(None))
        if limit is None:
            return 0.0
        rate = self._connected.get(address)
        if rate is None:
            if len(self._connected) >= ADDRESSES_MAX:
                del self._connected[next(iter(self._connected))]
            rate = self._connected[address] = self._new_rate()
        now_ms = self._now_ms()
        rate.record(1, now_ms)
        time_ms = min(
            rate.throttle_ms(limit, now_ms), 1000 * self._config.quota_window_size_seconds
        )
        if time_ms:
            rate.record(-1, now_ms)
        return time_ms / 1000

    # ---- metrics ------------------------------------------------------------------------------

    def _show(self, key: str) -> None:
        """Register `kafka.server:type=Produce,user=…,client-id=…` and its like."""
        if self._meters is None or key in self._shown:
            return
        from tidelog.metrics.meters import Name

        self._shown.add(key)
        kind, measured = _MEASURED[key]
        rates = partial(self._samples, key, lambda usage: usage.rate.rate(self._now_ms()))
        times = partial(self._samples, key, lambda usage: usage.throttle_time_ms)
        self._meters.gauge(Name("kafka.server", kind, measured), rates)
        self._meters.gauge(Name("kafka.server", kind, "throttle-time"), times)

    def _samples(self, key: str, value_of: Callable[[Usage], float]) -> list[Sample]:
        from tidelog.metrics.meters import Sample

        limits = self._rates.get(key)
        return [
            Sample((("client-id", client_id), ("user", user)), value_of(usage))
            for (user, client_id), usage in (limits.usages.items() if limits is not None else ())
        ]


def _has(quotas: Quotas, key: str) -> bool:
    return any(key in each for each in quotas.values())


def _with_throttle_time(api_key: int, response: Any, time_ms: int) -> Any:
    """Put a throttle time into a response, if it has the field; None has none."""
    if response.__class__ is list:
        from tidelog_protocol.plain_answers import with_throttle_time

        return with_throttle_time(response, time_ms, is_last=api_key == ApiKey.PRODUCE)
    if hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = time_ms
    return response
