"""The quota of partitions that a client creates and deletes (KIP-599).

Kafka: ControllerMutationQuotaManager. The active controller charges each topic of a request, in
whichever broker the client asked. Newer versions of the requests get THROTTLING_QUOTA_EXCEEDED for
what is above the quota; older ones are done, and throttled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.decisions import RefusedError
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.quotas.windows import TokenBucket

__all__ = ["MutationCharge", "Mutations"]


class Mutations:
    """What the clients of one quota have mutated."""

    __slots__ = ("bucket", "limit")

    def __init__(self, limit: float, bucket: TokenBucket) -> None:
        self.limit = limit
        self.bucket = bucket


class MutationCharge:
    """Charges one request for its partitions."""

    def __init__(
        self, mutations: Mutations, now_ms: Callable[[], float], *, is_strict: bool
    ) -> None:
        """`is_strict`: what is above the quota is refused."""
        self._mutations = mutations
        self._now_ms = now_ms
        self._is_strict = is_strict
        self._end_ms = 0.0

    def take(self, partitions: int) -> None:
        """Charge a topic; RefusedError if it is above the quota."""
        mutations, now_ms = self._mutations, self._now_ms()
        bucket, limit = mutations.bucket, mutations.limit
        time_ms = 0
        if self._is_strict:
            time_ms = bucket.throttle_ms(limit, now_ms)
        if not time_ms:
            bucket.take(partitions, limit, now_ms)
            if not self._is_strict:
                time_ms = bucket.throttle_ms(limit, now_ms)
        if time_ms:
            self._end_ms = now_ms + time_ms
        if time_ms and self._is_strict:
            raise RefusedError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."
            )

    def throttle_ms(self) -> int:
        """Return for how long the client must be throttled now; 0 if it need not be."""
        return max(round(self._end_ms - self._now_ms()), 0) if self._end_ms else 0
