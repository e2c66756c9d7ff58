"""Whatever happens to brokers, what the controller decides keeps its invariants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from support.controller_cluster import (
    CONFIG,
    TOPIC_ID,
    apply,
    beat,
    broker,
    image_of,
    partition,
    registration,
)
from tidelog.cluster.controller import partitions
from tidelog.cluster.controller.brokers import fence, heartbeat, register_broker, unregister_broker
from tidelog.cluster.controller.elections import elect_leaders, elect_unclean, prefer_leaders
from tidelog.cluster.controller.partitions import alter_partition, settle
from tidelog.cluster.controller.reassignment import alter_reassignments
from tidelog.cluster.controller.sessions import Sessions
from tidelog_protocol.messages.cluster_admin import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
)
from tidelog_protocol.messages.controller import AlterPartitionRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.cluster.metadata.image import ClusterImage, PartitionImage
    from tidelog_protocol.schema import Message

BROKERS = range(1, 6)
PARTITIONS = 3
nodes = st.sampled_from(BROKERS)
indexes = st.sampled_from(range(PARTITIONS))
Moves = AlterPartitionReassignmentsRequest.ReassignableTopic


class ControllerModel(RuleBasedStateMachine):
    """Five brokers, three partitions, every decision in any order.

    If `in_steps`, one batch changes one partition, and each controller ends before the second.
    """

    image: ClusterImage
    unclean: bool
    in_steps: bool

    @initialize(unclean=st.booleans(), in_steps=st.booleans())
    def begin(self, unclean: bool, in_steps: bool) -> None:
        self.unclean, self.in_steps = unclean, in_steps
        self.patch = pytest.MonkeyPatch()
        if in_steps:
            self.patch.setattr(partitions, "CHANGES_PER_STEP_MAX", 1)
        self.image = image_of(
            partition((1, 2, 3)),
            partition((3, 4, 5)),
            partition((2,)),
            brokers=[broker(node_id) for node_id in BROKERS],
            topic_config={"unclean.leader.election.enable": "true"} if unclean else None,
        )
        self.sessions = Sessions(self.image, 0.0, 9.0)
        self.lives = 1000

    def _commit(
        self,
        records: Sequence[Message],
        *,
        may_be_unclean: bool = False,
        in_sync: Sequence[int] = (),
    ) -> None:
        """Apply records and check what they did; `in_sync` are those whom a leader vouches for."""
        old, new = self.image, apply(self.image, records)
        for before, after in zip(self._partitions(old), self._partitions(new), strict=True):
            known = (*before.isr, *in_sync)
            self._check_step(before, after, known, may_be_unclean=may_be_unclean or self.unclean)
        self.image = new

    def teardown(self) -> None:
        if hasattr(self, "image"):
            self.patch.undo()

    def _settled(self) -> ClusterImage:
        """What the next controller makes of the image."""
        image = self.image
        while self.in_steps and (records := settle(image, CONFIG, image.brokers)):
            image = apply(image, records)
        return image

    def _partitions(self, image: ClusterImage) -> Sequence[PartitionImage]:
        return image.topics["t"].partitions

    def _check_step(
        self,
        before: PartitionImage,
        after: PartitionImage,
        in_sync: Sequence[int],
        *,
        may_be_unclean: bool,
    ) -> None:
        assert after.partition_epoch - before.partition_epoch == (before != after)
        assert after.leader_epoch - before.leader_epoch in (0, 1)
        if after.leader != before.leader:
            assert after.leader_epoch == before.leader_epoch + 1
        is_clean = set(after.isr) <= set(in_sync)
        assert is_clean or (may_be_unclean and after.leader_recovery_state == 1)
        assert is_clean or len(after.isr) == 1

    @invariant()
    def partitions_are_sound(self) -> None:
        if not hasattr(self, "image"):
            return
        for one in self._partitions(self._settled()):
            assert one.isr
            assert set(one.isr) <= set(one.replicas)
            assert len(set(one.replicas)) == len(one.replicas) == len(one.directories)
            assert one.leader == -1 or one.leader in one.isr
            assert one.leader == -1 or self.image.is_active(one.leader)
            assert set(one.adding_replicas) <= set(one.replicas)
            assert set(one.removing_replicas) <= set(one.replicas)
            assert not set(one.adding_replicas) & set(one.removing_replicas)
            if one.leader == -1 and not self.unclean:
                assert not any(self.image.is_active(node_id) for node_id in one.isr)

    @rule(node_id=nodes)
    def restart(self, node_id: int) -> None:
        self.lives += 1
        records, _ = register_broker(
            self.image,
            CONFIG,
            registration(node_id, life=self.lives),
            epoch=self.image.offset + 1,
            is_taken=False,
            heard=[other for other in BROKERS if self.image.is_active(other)],
        )
        self._commit(records)
        self.sessions.begin(node_id, 0.0)
        assert all(one.leader != node_id for one in self._partitions(self.image))

    @rule(node_id=nodes, want_fence=st.booleans(), want_shut_down=st.booleans())
    def beats(self, node_id: int, want_fence: bool, want_shut_down: bool) -> None:
        if node_id not in self.image.brokers:
            return
        request = beat(
            node_id,
            self.image.brokers[node_id].epoch,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
        )
        records, response = heartbeat(self.image, CONFIG, request, self.sessions, 0.0)
        self.sessions.touch(node_id, 0.0, request.current_metadata_offset)
        self._commit(records)
        assert response.is_fenced == self.image.brokers[node_id].fenced
        assert not response.should_shut_down or response.is_fenced

    @rule(node_id=nodes)
    def falls_silent(self, node_id: int) -> None:
        if self.image.is_alive(node_id):
            self._commit(fence(self.image, CONFIG, node_id))

    @rule(node_id=nodes)
    def is_forgotten(self, node_id: int) -> None:
        if node_id in self.image.brokers and len(self.image.brokers) > 1:
            self._commit(unregister_broker(self.image, CONFIG, node_id))
            self.sessions.end(node_id)

    @rule(index=indexes, data=st.data())
    def changes_isr(self, index: int, data: st.DataObject) -> None:
        found = self._partitions(self.image)[index]
        if found.leader == -1:
            return
        others = [node_id for node_id in found.replicas if node_id != found.leader]
        chosen = data.draw(st.sets(st.sampled_from(others))) if others else set()
        isr = [found.leader, *sorted(chosen)]
        one = AlterPartitionRequest.TopicData.PartitionData
        request = AlterPartitionRequest(
            broker_id=found.leader,
            broker_epoch=self.image.brokers[found.leader].epoch,
            topics=[
                AlterPartitionRequest.TopicData(
                    topic_id=TOPIC_ID,
                    partitions=[
                        one(
                            partition_index=index,
                            leader_epoch=found.leader_epoch,
                            partition_epoch=found.partition_epoch,
                            leader_recovery_state=0,
                            new_isr_with_epochs=[
                                one.BrokerState(broker_id=node_id, broker_epoch=-1)
                                for node_id in isr
                            ],
                        )
                    ],
                )
            ],
        )
        records, response = alter_partition(self.image, CONFIG, request, 3)
        code = response.topics[0].partitions[0].error_code
        active = all(self.image.is_active(node_id) for node_id in isr)
        assert code in ((0, 108) if active else (107,))
        self._commit(records, in_sync=isr)

    @rule(index=indexes, replicas=st.none() | st.lists(nodes, max_size=4))
    def moves(self, index: int, replicas: list[int] | None) -> None:
        wanted = Moves.ReassignablePartition(partition_index=index, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(topics=[Moves(name="t", partitions=[wanted])])
        records, _ = alter_reassignments(self.image, CONFIG, request)
        self._commit(records)

    @rule(kind=st.sampled_from([0, 1]))
    def elects(self, kind: int) -> None:
        request = ElectLeadersRequest(election_type=kind, topic_partitions=None)
        records, _ = elect_leaders(self.image, CONFIG, request)
        self._commit(records, may_be_unclean=kind == 1)

    @rule()
    def rounds(self) -> None:
        self._commit(prefer_leaders(self.image, CONFIG))
        self._commit(elect_unclean(self.image, CONFIG))

    @precondition(lambda self: not self.unclean)
    @rule()
    def all_come_back(self) -> None:
        for node_id in BROKERS:
            if node_id not in self.image.brokers or not self.image.is_active(node_id):
                self.restart(node_id)
                self.beats(node_id, want_fence=False, want_shut_down=False)
        assert all(one.leader != -1 for one in self._partitions(self._settled()))


TestControllerModel = ControllerModel.TestCase
TestControllerModel.settings = settings(
    max_examples=120, stateful_step_count=30, deadline=None, derandomize=True
)
