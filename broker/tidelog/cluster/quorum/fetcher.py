"""A follower's copy of the metadata log: fetch from the leader, append, truncate, flush, apply.

It runs one task at a time, for one leader and epoch, which ends when either changes. Records are on
disk before the next fetch, because the leader counts the fetch offset (KIP-595). An observer
without a leader asks any voter, which names it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from tidelog.cluster.metadata.settings import METADATA_PARTITION, METADATA_TOPIC_ID
from tidelog.cluster.quorum import events as e
from tidelog.cluster.quorum.core import Role
from tidelog.cluster.quorum.requests import directory_of
from tidelog.network.peers import PeerError
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.messages.data import FetchRequest
from tidelog_protocol.messages.quorum import FetchSnapshotRequest
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from tidelog.cluster.quorum.driver import Quorum

__all__ = ["Fetcher"]

log = logging.getLogger("tidelog.cluster.quorum")

BYTES_MAX = 1 << 20  # of one fetch; Kafka's controller.quorum.fetch.max.bytes
RETRY_S = 0.05
SNAPSHOT_BYTES_MAX = 1 << 30


class Fetcher:
    """The fetching task of a node, if it has anything to fetch."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        self._key: tuple[int, int] | None = None  # epoch and leader (-1: any voter) fetched from
        self.task: asyncio.Task[None] | None = None

    def follow(self) -> None:
        """Follow the core's role: begin, continue or end."""
        core = self._quorum.core
        key = None
        if core.role is Role.FOLLOWER:
            key = (core.epoch, core.leader_id)
        elif not core.is_voter and core.role in (Role.UNATTACHED, Role.RESIGNED):
            key = (core.epoch, e.NO_NODE)
        if key == self._key:
            return
        self._key = key
        # The task that runs this step may be the old one: it finds its key gone.
        if self.task is not None and self.task is not asyncio.current_task():
            self.task.cancel()
        self.task = None
        if key is not None:
            loop = asyncio.get_running_loop()
            self.task = loop.create_task(self._run(key), name=f"quorum-fetch-{key[0]}")

    async def _run(self, key: tuple[int, int]) -> None:
        quorum = self._quorum
        try:
            while self._key == key and not quorum.is_out:
                await quorum.metadata.flush()
                if self._key == key and not await self._fetch(key) and self._key == key:
                    await asyncio.sleep(RETRY_S)
        except Exception as error:  # noqa: BLE001 - whatever it is, this copy is not right now
            if not quorum.is_out:
                log.error("following the metadata quorum failed: %s", error)
                quorum.metadata.fail(error)

    async def _fetch(self, key: tuple[int, int]) -> bool:
        """Send one request and apply the answer; False if the next one should wait."""
        quorum = self._quorum
        epoch, leader_id = key[0], self._source(key[1])
        last_epoch, end = quorum.metadata.log_end()
        try:
            response = await quorum.channels[leader_id].ask(
                self._request(epoch, last_epoch, end), timeout_s=quorum.request_timeout_s
            )
        except PeerError as error:
            log.debug("fetch from node %d: %s", leader_id, error)
            if self._key == key and not quorum.is_out:
                quorum.step(e.LeaderLost(epoch))
            return False
        if self._key != key or quorum.is_out:
            return True
        if response.error_code or not response.responses:
            log.error("node %d answered %s", leader_id, ErrorCode(response.error_code).name)
            return False
        for node in response.node_endpoints:
            quorum.learn(node.node_id, node.host, node.port)
        answer = response.responses[0].partitions[0]
        snapshot = answer.snapshot_id
        if not answer.error_code and snapshot is not None and snapshot.end_offset >= 0:
            return await self._fetch_snapshot(key, leader_id, snapshot.end_offset, snapshot.epoch)
        try:
            return self._take(epoch, answer)
        except StorageError as error:  # a full disk may get free space
            log.error("cannot append the records of node %d: %s", leader_id, error)
            return False

    def _source(self, leader_id: int) -> int:
        """Return the leader, or any node that may name it."""
        quorum = self._quorum
        if leader_id != e.NO_NODE and leader_id in quorum.channels:
            return leader_id
        voters = quorum.core.others if quorum.metadata.own is None else tuple(quorum.channels)
        return voters[min(int(quorum.rng.uniform(0, len(voters))), len(voters) - 1)]

    async def _fetch_snapshot(
        self, key: tuple[int, int], leader_id: int, end_offset: int, epoch: int
    ) -> bool:
        """Load the leader's snapshot, because the leader no longer has the records (KIP-630)."""
        quorum, channel = self._quorum, self._quorum.channels[leader_id]
        data = bytearray()
        size = 1
        log.info("fetching the metadata snapshot up to offset %d", end_offset)
        while len(data) < size:
            request = self._snapshot_request(key[0], end_offset, epoch, len(data))
            try:
                response = await channel.ask(request, timeout_s=quorum.request_timeout_s)
            except PeerError:
                return False
            answer = None if not response.topics else response.topics[0].partitions[0]
            if self._key != key or quorum.is_out or response.error_code or answer is None:
                return False
            size = answer.size
            if answer.error_code or not answer.unaligned_records or size > SNAPSHOT_BYTES_MAX:
                return False
            quorum.step(e.LeaderAnswered(key[0]))
            data += answer.unaligned_records
        from tidelog.cluster.metadata.snapshots import SnapshotId  # noqa: PLC0415 - seldom needed

        snapshot, content = SnapshotId(end_offset, epoch), bytes(data)
        try:
            image = await quorum.metadata.decode_snapshot(snapshot, content)
        except ProtocolError as error:
            log.error("the snapshot of node %d is unusable: %s", leader_id, error)
            return False
        if self._key != key or quorum.is_out:
            return False
        quorum.metadata.install_snapshot(snapshot, content, image)
        return True

    def _snapshot_request(
        self, leader_epoch: int, end_offset: int, epoch: int, position: int
    ) -> FetchSnapshotRequest:
        quorum = self._quorum
        partition = FetchSnapshotRequest.PartitionSnapshot(
            partition=0,
            current_leader_epoch=leader_epoch,
            snapshot_id=FetchSnapshotRequest.SnapshotId(end_offset=end_offset, epoch=epoch),
            position=position,
        )
        return FetchSnapshotRequest(
            cluster_id=quorum.cluster_id,
            replica_id=quorum.node_id,
            topics=[
                FetchSnapshotRequest.TopicSnapshot(
                    name=METADATA_PARTITION.topic, partitions=[partition]
                )
            ],
        )

    def _request(self, epoch: int, last_epoch: int, end: int) -> FetchRequest:
        quorum = self._quorum
        partition = FetchRequest.FetchPartition(
            partition=0,
            current_leader_epoch=epoch,
            fetch_offset=end,
            last_fetched_epoch=last_epoch,
            log_start_offset=quorum.metadata.log.log_start_offset,
            partition_max_bytes=BYTES_MAX,
            high_watermark=quorum.metadata.high_watermark,
            replica_directory_id=directory_of(quorum.metadata.own_entry),
        )
        return FetchRequest(
            cluster_id=quorum.cluster_id,
            replica_state=FetchRequest.ReplicaState(replica_id=quorum.node_id),
            max_wait_ms=int(quorum.fetch_wait_s * 1000),
            max_bytes=BYTES_MAX,
            topics=[FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
        )

    def _take(self, epoch: int, answer: Any) -> bool:
        """Apply the leader's answer; role and epoch are still those of the request."""
        quorum, metadata = self._quorum, self._quorum.metadata
        if answer.error_code:
            current = answer.current_leader
            if current is not None and current.leader_epoch >= 0:
                quorum.step(e.EpochTold(current.leader_epoch, current.leader_id))
            return False
        diverging = answer.diverging_epoch
        if diverging is not None and diverging.end_offset >= 0:
            # The rest may still differ from the leader's: this answer commits nothing.
            metadata.truncate(diverging.epoch, diverging.end_offset)
        else:
            if answer.records:
                metadata.append_fetched(memoryview(answer.records), epoch)
            metadata.advance(answer.high_watermark)
            if quorum.is_out:
                return True  # what it has is damaged
        leader = answer.current_leader
        if quorum.core.leader_id == e.NO_NODE and leader is not None:
            quorum.step(e.EpochTold(leader.leader_epoch, leader.leader_id))  # it is the leader
        quorum.step(e.LeaderAnswered(epoch))
        return True
