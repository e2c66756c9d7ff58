"""Which quota holds for a client, and how much of it the client has used. Pure.

Kafka: ClientQuotaManager with its DefaultQuotaCallback. Clients under a quota of a user share it,
those under a quota of a client id share that; a quota of a user and client id is for their pair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from tidelog.cluster.metadata.image import CLIENT_ID, USER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tidelog.cluster.metadata.image import QuotaEntity
    from tidelog.quotas.windows import RateWindows

    Quotas = Mapping[QuotaEntity, Mapping[str, float]]

__all__ = ["Applied", "ClientLimits", "Usage", "applied_quota"]

CLIENTS_MAX = 10_000  # whose use is known at a time; the oldest ones are forgotten


class Applied(NamedTuple):
    """The quota of a client. Those with the same tags share it; an empty tag stands for any."""

    user: str
    client_id: str
    limit: float


def applied_quota(quotas: Quotas, key: str, user: str, client_id: str) -> Applied | None:
    """Return the most specific quota of a client; None if it has none."""
    for entity, user_tag, client_tag in _entities(user, client_id):
        limit = quotas.get(entity, {}).get(key)
        if limit is not None:
            return Applied(user_tag, client_tag, limit)
    return None


def _entities(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, str, str]]:
    """Yield entities that include a client, the most specific one first, with their tags."""
    for of_user in ((USER, user), (USER, None)):
        if client_id:
            yield ((CLIENT_ID, client_id), of_user), user, client_id
            yield ((CLIENT_ID, None), of_user), user, client_id
        yield (of_user,), user, ""
    if client_id:
        yield ((CLIENT_ID, client_id),), "", client_id
        yield ((CLIENT_ID, None),), "", client_id


class Usage:
    """What the clients of one quota have used, and how long they were throttled."""

    __slots__ = ("limit", "rate", "throttled")

    def __init__(self, limit: float, rate: RateWindows) -> None:
        self.limit = limit
        self.rate = rate
        self.throttled = (0, 0)
        """Number and sum of the throttle times, in ms."""

    def charge(self, value: float, now_ms: float) -> int:
        """Count a value, and return for how many ms the client must be throttled."""
        self.rate.record(value, now_ms)
        return self.rate.throttle_ms(self.limit, now_ms)

    @property
    def throttle_time_ms(self) -> float:
        """The average throttle time."""
        count, total_ms = self.throttled
        return total_ms / count if count else 0.0

    def note_throttle(self, time_ms: int) -> None:
        """Count that a client was throttled."""
        count, total_ms = self.throttled
        self.throttled = count + 1, total_ms + time_ms


class HasLimit(Protocol):
    """The use of a quota."""

    limit: float


U = TypeVar("U", bound=HasLimit)


class ClientLimits(Generic[U]):
    """The quotas of one key, and the use of each."""

    def __init__(self, key: str, quotas: Quotas, new_usage: Callable[[float], U]) -> None:
        """`new_usage` takes the limit."""
        self._key = key
        self._quotas = quotas
        self._new_usage = new_usage
        self._of_clients: dict[tuple[str, str], U | None] = {}  # by user and client id
        self.usages: dict[tuple[str, str], U] = {}
        """By the tags of `Applied`."""

    def change(self, quotas: Quotas) -> None:
        """Let other quotas hold from now on; what was used stays used."""
        self._quotas = quotas
        self._of_clients.clear()

    def usage(self, user: str, client_id: str | None) -> U | None:
        """Return the use of the quota that holds for a client; None without one."""
        client = user, client_id or ""
        if client in self._of_clients:
            return self._of_clients[client]
        if len(self._of_clients) >= CLIENTS_MAX:
            self._of_clients.clear()
        applied = applied_quota(self._quotas, self._key, *client)
        usage = self._of_clients[client] = None if applied is None else self._of(applied)
        return usage

    def _of(self, applied: Applied) -> U:
        tags = applied.user, applied.client_id
        usage = self.usages.get(tags)
        if usage is None:
            if len(self.usages) >= CLIENTS_MAX:
                del self.usages[next(iter(self.usages))]
            usage = self.usages[tags] = self._new_usage(applied.limit)
        usage.limit = applied.limit
        return usage
