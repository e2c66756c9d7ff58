"""Pure decisions about leaders and in-sync replicas: AlterPartition, ElectLeaders, lost brokers.

An operation works on one `Changes`: the image plus the changes of the operation so far, so that the
second change of a partition in one request sees the first. `changes.py` derives what each change
implies. Checks, their order and their codes are Kafka's (KIP-497, 704, 841, 903).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.changes import (
    RECOVERED,
    RECOVERING,
    Election,
    PartitionDraft,
    Rules,
)
from tidelog.cluster.controller.decisions import RefusedError
from tidelog.cluster.controller.placement import directory_of
from tidelog.cluster.metadata.features import ELIGIBLE_FEATURE
from tidelog.cluster.metadata.image import NO_LEADER
from tidelog.cluster.metadata.replay import merge_partition
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.controller import AlterPartitionResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from tidelog.cluster.metadata.image import ClusterImage, PartitionImage, TopicImage
    from tidelog.config.broker import BrokerConfig
    from tidelog_protocol.messages.controller import AlterPartitionRequest
    from tidelog_protocol.schema import Message

    PartitionData = AlterPartitionRequest.TopicData.PartitionData
    AlteredPartition = AlterPartitionResponse.TopicData.PartitionData

CHANGES_PER_STEP_MAX = 1000  # partitions that one batch of records changes: about 20 ms of CPU
UNCLEAN_KEY = "unclean.leader.election.enable"
_MIN_ISR_KEY = "min.insync.replicas"
_NO_EPOCH = -1
_ISR_WITH_EPOCHS_SINCE = 3  # AlterPartition version


class Changes:
    """The records of one operation so far, and partitions as they are after them."""

    def __init__(
        self,
        image: ClusterImage,
        config: BrokerConfig,
        *,
        returning: int = NO_LEADER,
        leaving: int = NO_LEADER,
        heard: Collection[int] | None = None,
        in_steps: bool = False,
    ) -> None:
        """`returning` may lead although it is fenced in the image; `leaving` may not lead.

        `heard`: only these may lead, because the others may have failed unnoticed. `in_steps`:
        `partitions` ends after `CHANGES_PER_STEP_MAX` changes.
        """
        self.image = image
        self.records: list[Message] = []
        self._config = config
        self._returning = returning
        self._leaving = leaving
        self._heard = heard
        self._changes_max = CHANGES_PER_STEP_MAX if in_steps else None
        self._changed: dict[tuple[bytes, int], PartitionImage] = {}
        self._rules_of: dict[tuple[bytes, Election | None], Rules] = {}
        self._inherited: dict[str, str] = image.broker_config(config.node_id)

    # ---- looking ------------------------------------------------------------------------------

    def partition(self, topic: TopicImage, index: int) -> PartitionImage | None:
        """Return a partition after the changes so far, or None."""
        if not 0 <= index < len(topic.partitions):
            return None
        return self._changed.get((topic.topic_id, index), topic.partitions[index])

    def partitions(self) -> Iterator[tuple[TopicImage, PartitionImage]]:
        """Yield all partitions, by topic name, until a step is full."""
        for name in sorted(self.image.topics):
            topic = self.image.topics[name]
            for old in topic.partitions:
                if len(self.records) == self._changes_max:
                    return
                yield topic, self._changed.get((topic.topic_id, old.partition), old)

    def may_lead(self, partition: PartitionImage, node_id: int) -> bool:
        """Return whether a broker is active, not leaving, and has the replica's directory."""
        if node_id == self._leaving or (self._heard is not None and node_id not in self._heard):
            return False
        if node_id != self._returning and not self.image.is_active(node_id):
            return False
        return self._holds(partition, node_id)

    def _holds(self, partition: PartitionImage, node_id: int) -> bool:
        """Return whether the broker still has the replica's directory (KIP-858)."""
        broker = self.image.brokers.get(node_id)
        return broker is None or broker.has_online(partition.directory_of(node_id))

    @property
    def keeps_eligible(self) -> bool:
        """Return whether the cluster keeps eligible leader replicas (KIP-966)."""
        return self.image.features.get(ELIGIBLE_FEATURE, 0) > 0

    def unclean_allowed(self, topic: str) -> bool:
        """Return whether the topic allows unclean elections, which may lose records."""
        text = self._setting(topic, UNCLEAN_KEY)
        if text is None:
            return bool(self._config.log_defaults.unclean_leader_election_enable)
        return text.strip().lower() == "true"

    def _setting(self, topic: str, name: str) -> str | None:
        own = self.image.topic_config(topic).get(name)
        return self._inherited.get(name) if own is None else own

    def _rules(self, topic: TopicImage, election: Election | None) -> Rules:
        """Return the rules of a topic, computed once for all its partitions."""
        key = (topic.topic_id, election)
        rules = self._rules_of.get(key)
        if rules is None:
            rules = self._rules_of[key] = self._new_rules(topic, election)
        return rules

    def _new_rules(self, topic: TopicImage, election: Election | None) -> Rules:
        if election is None:
            unclean = self.unclean_allowed(topic.name)
            election = Election.UNCLEAN if unclean else Election.ONLINE
        text = self._setting(topic.name, _MIN_ISR_KEY)
        min_isr = self._config.log_defaults.min_insync_replicas if text is None else int(text)
        return Rules(
            may_lead=self.may_lead,
            default_directory=lambda node_id: directory_of(self.image, node_id),
            min_isr=min(min_isr, len(topic.partitions[0].replicas)),
            eligible_enabled=self.keeps_eligible,
            election=election,
        )

    # ---- changing -----------------------------------------------------------------------------

    def change(
        self,
        topic: TopicImage,
        partition: PartitionImage,
        fill: Callable[[PartitionDraft], None] | None = None,
        *,
        election: Election | None = None,
    ) -> PartitionImage | None:
        """Change a partition by `fill`, elect if needed; return it, or None if nothing changes.

        `election` None: what the topic's settings allow.
        """
        draft = PartitionDraft(partition, self._rules(topic, election))
        if fill is not None:
            fill(draft)
        draft.refreshed = [
            node_id
            for node_id in draft.isr
            if node_id not in partition.isr and not self._holds(partition, node_id)
        ]
        record = draft.record(topic.topic_id)
        if record is None:
            return None
        changed = merge_partition(partition, record)
        self.records.append(record)
        self._changed[topic.topic_id, partition.partition] = changed
        return changed

    def without(
        self,
        node_id: int,
        directories: Sequence[bytes] | None = None,
        *,
        election: Election | None = None,
    ) -> None:
        """Take a broker out of all ISRs and elect elsewhere; only for replicas in `directories`.

        `election` as for `change`.
        """
        for topic, partition in self.partitions():
            if node_id not in partition.isr:
                continue
            if directories is not None and partition.directory_of(node_id) not in directories:
                continue

            def leave(draft: PartitionDraft) -> None:
                draft.isr.remove(node_id)

            self.change(topic, partition, leave, election=election)

    def after_restart(self, node_id: int) -> None:
        """End the leaderships of a broker's previous registration.

        The broker stays in sync only where no other in-sync broker is known to run, as after a stop
        of the whole cluster.
        """
        for topic, partition in self.partitions():
            if node_id not in partition.isr:
                continue
            others = [member for member in partition.isr if self.may_lead(partition, member)]

            def leave(draft: PartitionDraft) -> None:
                draft.isr.remove(node_id)

            if others:
                self.change(topic, partition, leave, election=Election.ONLINE)
            elif partition.leader == node_id:
                self.change(topic, partition, election=Election.ONLINE)

    def without_unclean(self, node_id: int) -> None:
        """Take a broker out of ISRs and eligible replicas: after a crash it may lack acknowledged
        records."""
        for topic, partition in self.partitions():
            if node_id in partition.isr or node_id in partition.eligible_leader_replicas:

                def distrust(draft: PartitionDraft) -> None:
                    draft.unclean_shutdowns = (node_id,)
                    if node_id in draft.isr:
                        draft.isr.remove(node_id)

                self.change(topic, partition, distrust)

    def elect_leaderless(self) -> None:
        """Elect where there is no leader, after a broker came back."""
        for topic, partition in self.partitions():
            if partition.leader == NO_LEADER:
                self.change(topic, partition)

    def settle(self, heard: Collection[int]) -> None:
        """Do what the states of the brokers imply and was not done yet, without unclean elections.

        `heard` are the brokers that are known to run. An ISR without a leader stays as it is: each
        of its members may come back soon.
        """
        for topic, partition in self.partitions():
            if partition.leader == NO_LEADER:
                members = (
                    partition.isr
                    or partition.eligible_leader_replicas
                    or partition.last_known_eligible_leader_replicas
                )
                if any(self.may_lead(partition, member) for member in members):
                    self.change(topic, partition, election=Election.ONLINE)
                continue
            if self.image.is_active(partition.leader) and partition.leader not in heard:
                # It may have failed unnoticed, and a fenced member with all records may be back
                # from a stop of the whole cluster: see `after_restart`.
                continue
            present = [member for member in partition.isr if self.image.is_active(member)]
            if len(present) < len(partition.isr):

                def stay(draft: PartitionDraft, present: list[int] = present) -> None:
                    draft.isr = present

                self.change(topic, partition, stay, election=Election.ONLINE)


def settle(image: ClusterImage, config: BrokerConfig, heard: Collection[int]) -> list[Message]:
    """Return the next step of a new controller, [] after the last one: the previous controller may
    have ended between two steps of a broker's fencing, shutdown or return."""
    changes = Changes(image, config, in_steps=True)
    changes.settle(heard)
    return changes.records


# ---- AlterPartition ---------------------------------------------------------------------------


def alter_partition(
    image: ClusterImage, config: BrokerConfig, request: AlterPartitionRequest, api_version: int
) -> tuple[list[Message], AlterPartitionResponse]:
    """Decide an AlterPartition; each partition has its own result, in order.

    Raises RefusedError STALE_BROKER_EPOCH if the sender's registration is not the current one.
    """
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    changes = Changes(image, config)
    topics = []
    for asked in request.topics:
        topic = image.topic_by_id(asked.topic_id)
        answers = []
        for data in asked.partitions:
            if topic is None:
                answers.append(_refused(data.partition_index, ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            try:
                changed = _alter(changes, request.broker_id, topic, data, api_version)
            except RefusedError as refusal:
                answers.append(_refused(data.partition_index, refusal.code))
            else:
                answers.append(_altered(changed))
        topics.append(AlterPartitionResponse.TopicData(topic_id=asked.topic_id, partitions=answers))
    return changes.records, AlterPartitionResponse(topics=topics)


def _alter(
    changes: Changes, sender: int, topic: TopicImage, data: PartitionData, api_version: int
) -> PartitionImage:
    members = (
        [(state.broker_id, state.broker_epoch) for state in data.new_isr_with_epochs]
        if api_version >= _ISR_WITH_EPOCHS_SINCE
        else [(node_id, _NO_EPOCH) for node_id in data.new_isr]
    )
    isr = [node_id for node_id, _ in members]
    partition = changes.partition(topic, data.partition_index)
    if partition is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    error = _epoch_error(partition, sender, data) or _isr_error(partition, isr, data)
    if error is None and not all(_is_eligible(changes.image, *member) for member in members):
        error = ErrorCode.INELIGIBLE_REPLICA
    if error is not None:
        raise RefusedError(error, None)

    def follow(draft: PartitionDraft) -> None:
        draft.isr = isr
        draft.recovery_state = data.leader_recovery_state

    changed = changes.change(topic, partition, follow)
    if changed is None:
        return partition
    if changed.leader != sender:
        # The change completed a reassignment that removes the leader. It is committed, and still an
        # error: the sender must see the new metadata before it asks again.
        raise RefusedError(ErrorCode.NEW_LEADER_ELECTED, None)
    return changed


def _epoch_error(partition: PartitionImage, sender: int, data: PartitionData) -> ErrorCode | None:
    if (
        data.leader_epoch > partition.leader_epoch
        or data.partition_epoch > partition.partition_epoch
    ):
        return ErrorCode.NOT_CONTROLLER  # the sender has newer metadata: this node leads no more
    if data.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if data.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    return None


def _isr_error(
    partition: PartitionImage, isr: Sequence[int], data: PartitionData
) -> ErrorCode | None:
    state = data.leader_recovery_state
    is_wrong = (
        len(set(isr)) != len(isr)
        or not set(isr) <= set(partition.replicas)
        or partition.leader not in isr
        or state not in (RECOVERED, RECOVERING)
        or (state == RECOVERING and len(isr) > 1)
        or (state == RECOVERING and partition.leader_recovery_state == RECOVERED)
    )
    return ErrorCode.INVALID_REQUEST if is_wrong else None


def _is_eligible(image: ClusterImage, node_id: int, broker_epoch: int) -> bool:
    """Return whether a broker may be in an ISR: active, and registered as the leader saw it."""
    if not image.is_active(node_id):
        return False
    return broker_epoch in (_NO_EPOCH, image.brokers[node_id].epoch)


def _refused(index: int, code: ErrorCode) -> AlteredPartition:
    return AlterPartitionResponse.PartitionData(partition_index=index, error_code=code)


def _altered(partition: PartitionImage) -> AlteredPartition:
    return AlterPartitionResponse.PartitionData(
        partition_index=partition.partition,
        error_code=ErrorCode.NONE,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def check_broker_epoch(image: ClusterImage, node_id: int, broker_epoch: int) -> None:
    """RefusedError STALE_BROKER_EPOCH unless this is the broker's current registration."""
    broker = image.brokers.get(node_id)
    if broker is None:
        raise RefusedError(
            ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {node_id}"
        )
    if broker.epoch != broker_epoch:
        raise RefusedError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}",
        )


def has_leaderships(image: ClusterImage, node_id: int) -> bool:
    """Return whether a broker leads any partition."""
    return any(
        partition.leader == node_id
        for topic in image.topics.values()
        for partition in topic.partitions
    )
