"""Which brokers have been heard lately: what the active controller alone knows, and forgets.

Soft state beside the image (Kafka's BrokerHeartbeatManager): a new controller begins with a fresh
session for every broker, so that its own election fences none. Times are monotonic seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import ClusterImage


class Session:
    """One broker's session.

    `heard`: this controller itself had a request of the broker's present life. `metadata_offset`:
    last record the broker said it has applied. `shutdown_offset`: once every active broker has
    applied it, no broker takes the leaving one for a leader any more; -1 if it isn't leaving.
    """

    __slots__ = ("heard", "last_contact", "metadata_offset", "shutdown_offset")

    def __init__(self, now: float, *, heard: bool) -> None:
        self.last_contact = now
        self.heard = heard
        self.metadata_offset = -1
        self.shutdown_offset = -1


class Sessions:
    """Sessions of the registered brokers, by id."""

    def __init__(self, image: ClusterImage, now: float, timeout_s: float) -> None:
        """`timeout_s` is broker.session.timeout.ms."""
        self.is_settled = False
        """Whether all partitions are as the brokers' states want them (`settle`)."""
        self._timeout_s = timeout_s
        self._sessions = {node_id: Session(now, heard=False) for node_id in image.brokers}
        self._began = now
        self._rounds: dict[str, float] = {}  # when each kind of round was last due

    def begin(self, node_id: int, now: float) -> None:
        """A new life of a broker has registered."""
        self._sessions[node_id] = Session(now, heard=True)

    def end(self, node_id: int) -> None:
        """The broker is no longer registered."""
        self._sessions.pop(node_id, None)

    def touch(self, node_id: int, now: float, metadata_offset: int) -> None:
        """A heartbeat came."""
        session = self.of(node_id, now)
        session.heard = True
        session.last_contact = now
        session.metadata_offset = metadata_offset

    def leave(self, node_id: int, now: float, metadata_offset: int) -> None:
        """A broker is leaving; what makes others leaders is in the log up to here, or before."""
        session = self.of(node_id, now)
        if session.shutdown_offset < 0:
            session.shutdown_offset = metadata_offset

    def of(self, node_id: int, now: float) -> Session:
        """The session of a registered broker."""
        return self._sessions.setdefault(node_id, Session(now, heard=False))

    def heard(self) -> list[int]:
        """Brokers of which this controller has heard in their present lives."""
        return [node_id for node_id, session in self._sessions.items() if session.heard]

    def is_taken(self, image: ClusterImage, node_id: int, now: float) -> bool:
        """Whether the registered life of this broker may run: it has a session.

        Also one that began with this controller's election, which has not heard of it yet (Kafka:
        ClusterControlManager.activate, BrokerHeartbeatManager.hasValidSession).
        """
        broker = image.brokers.get(node_id)
        if broker is None or broker.fenced:
            return False
        return self.of(node_id, now).last_contact + self._timeout_s >= now

    def is_due(self, name: str, now: float, seconds: float) -> bool:
        """Whether a round that is held every so often is due; if so, it counts as held."""
        if now - self._rounds.get(name, self._began) < seconds:
            return False
        self._rounds[name] = now
        return True

    def expired(self, image: ClusterImage, now: float) -> int | None:
        """The broker to fence: of those silent for too long the one that is so the longest."""
        silent = [
            (self.of(broker.node_id, now).last_contact, broker.node_id)
            for broker in image.alive_brokers()
        ]
        if not silent:
            return None
        last_contact, node_id = min(silent)
        return node_id if last_contact + self._timeout_s < now else None

    def lowest_active_offset(self, image: ClusterImage, now: float) -> int | None:
        """What all active brokers have applied at least; None if there are none."""
        return min(
            (
                self.of(node_id, now).metadata_offset
                for node_id in image.brokers
                if image.is_active(node_id)
            ),
            default=None,
        )
