"""A broker that keeps the state of share groups, for tests: a `GroupBroker` with share groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.group_broker import GroupBroker, Peer, topic
from tidelog.api.groups import GroupsApi
from tidelog.api.share_state import ShareStateApi
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.cluster.metadata.image import SHARE_GROUP_STATE_TOPIC
from tidelog.coordinators.groups.classic.membership import ClassicMembership
from tidelog.coordinators.share.share_states import ShareStates
from tidelog.network.dispatch import Dispatcher

if TYPE_CHECKING:
    from tidelog.coordinators.groups.coordinator import GroupCoordinator

STATE_TOPIC_ID = b"#" * 16


class ShareBroker(GroupBroker):
    """Its state topic has two partitions, unless `state_partitions` says otherwise."""

    def __init__(self, *, state_partitions: int = 2, **settings: str) -> None:
        self.states: ShareStates | None = None
        self.state_partitions = state_partitions
        super().__init__(**settings)
        self.lead()

    @property
    def share_states(self) -> ShareStates:
        assert self.states is not None
        return self.states

    def lead(self, **changes: Any) -> None:
        """Publish the state topic, changed."""
        if self.state_partitions:
            image = topic(SHARE_GROUP_STATE_TOPIC, STATE_TOPIC_ID, self.state_partitions, **changes)
            self.topics[SHARE_GROUP_STATE_TOPIC] = image
            self.apply()
            self.time.pass_()

    def start(self) -> None:
        super().start()
        classic = ClassicMembership(self.coordinator, self.rng)
        handlers = {
            **GroupsApi(classic, lambda: self.image, self).handlers(),
            **ShareStateApi(self.share_states).handlers(),
        }
        self.dispatcher = Dispatcher(handlers)
        self.peer = Peer(self.dispatcher)

    def new_coordinator(self) -> GroupCoordinator:
        self.states = ShareStates(
            config=self.config,
            sessions=self.time,
            work=self.time,
            replica_manager=self.replica_manager,
            topics=self,
        )
        return super().new_coordinator()

    def apply(self, *, first: bool = False) -> None:
        old = self.image
        super().apply(first=first)
        self.share_states.on_image(MetadataDelta(None if first else old, self.image), self.image)
