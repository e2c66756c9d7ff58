"""The brokers' sessions, by their heartbeats (Kafka's BrokerHeartbeatManager).

Only the active controller has them, and they are not in the image: a new controller starts a new
session for every broker, so that its election fences none. Times are monotonic seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import ClusterImage


class Session:
    """One broker's session.

    `heard`: this controller has had a request of the broker's current registration.
    `metadata_offset`: the last record that the broker has applied. `shutdown_offset`: once every
    active broker has applied it, none takes the leaving one for a leader; -1 if it is not leaving.
    """

    __slots__ = ("heard", "last_contact", "metadata_offset", "shutdown_offset")

    def __init__(self, now: float, *, heard: bool) -> None:
        self.last_contact = now
        self.heard = heard
        self.metadata_offset = -1
        self.shutdown_offset = -1


class Sessions:
    """Sessions of the registered brokers, by id."""

    def __init__(
        self,
        image: ClusterImage,
        now: float,
        timeout_s: float,
        own_id: int | None = None,
        *,
        is_alone: bool = False,
    ) -> None:
        """`timeout_s` is broker.session.timeout.ms. `own_id` is that of the only voter: no earlier
        life of it can run. A lone broker's process is the controller's, so a pause of the process
        does not make it silent."""
        self._own_id = own_id
        self._is_alone = is_alone
        self.is_settled = False
        """Whether all partitions match the states of the brokers (`settle`)."""
        self._timeout_s = timeout_s
        self._sessions = {node_id: Session(now, heard=False) for node_id in image.brokers}
        self._began = now
        self._rounds: dict[str, float] = {}  # when each periodic task was last due

    def begin(self, node_id: int, now: float) -> None:
        """Start the session of a new registration."""
        self._sessions[node_id] = Session(now, heard=True)

    def end(self, node_id: int) -> None:
        """Remove a broker that is no longer registered."""
        self._sessions.pop(node_id, None)

    def touch(self, node_id: int, now: float, metadata_offset: int) -> None:
        """Record a heartbeat."""
        session = self.of(node_id, now)
        session.heard = True
        session.last_contact = now
        session.metadata_offset = metadata_offset

    def leave(self, node_id: int, now: float, metadata_offset: int) -> None:
        """Record that a broker is leaving, and the offset up to which the log moves its
        leaderships."""
        session = self.of(node_id, now)
        if session.shutdown_offset < 0:
            session.shutdown_offset = metadata_offset

    def of(self, node_id: int, now: float) -> Session:
        """Return the session of a registered broker."""
        return self._sessions.setdefault(node_id, Session(now, heard=False))

    def heard(self) -> list[int]:
        """Return the brokers that have sent a request since they registered."""
        return [node_id for node_id, session in self._sessions.items() if session.heard]

    def is_taken(self, image: ClusterImage, node_id: int, now: float) -> bool:
        """Return whether the registered process of this broker may still run: it has a session.

        A session that started with this controller's election counts (Kafka:
        ClusterControlManager.activate, BrokerHeartbeatManager.hasValidSession).
        """
        broker = image.brokers.get(node_id)
        if broker is None or broker.fenced:
            return False
        session = self.of(node_id, now)
        if node_id == self._own_id and not session.heard:
            return False
        return session.last_contact + self._timeout_s >= now

    def is_due(self, name: str, now: float, seconds: float) -> bool:
        """Return whether a periodic task is due; if so, its next interval starts."""
        if now - self._rounds.get(name, self._began) < seconds:
            return False
        self._rounds[name] = now
        return True

    def expired(self, image: ClusterImage, now: float) -> int | None:
        """Return the broker whose session timed out first, or None."""
        silent = [
            (self.of(broker.node_id, now).last_contact, broker.node_id)
            for broker in image.alive_brokers()
        ]
        if not silent or self._is_alone:
            return None
        last_contact, node_id = min(silent)
        return node_id if last_contact + self._timeout_s < now else None

    def lowest_active_offset(self, image: ClusterImage, now: float) -> int | None:
        """Return the offset that all active brokers have applied; None if there are none."""
        return min(
            (
                self.of(node_id, now).metadata_offset
                for node_id in image.brokers
                if image.is_active(node_id)
            ),
            default=None,
        )
