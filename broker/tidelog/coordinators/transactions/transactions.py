"""The interface of this room: everything that the rest of a broker needs of transactions.

The coordinator is built when the first request needs it, or when the cluster has transactions: most
test runs have none, and all of them wait for the start.
"""

# ruff: noqa: PLC0415 - built when first needed, and imported then

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from tidelog.awaiting import called_back, drive
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.cluster.metadata.image import TRANSACTION_STATE_TOPIC
from tidelog.coordinators.transactions.producer_ids import ProducerIds
from tidelog.replication.internal_topics import partition_for
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from collections.abc import Set as AbstractSet

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.config.broker import BrokerConfig
    from tidelog.coordinators.transactions.colleagues import Colleagues
    from tidelog.coordinators.transactions.coordinator import TransactionCoordinator
    from tidelog.coordinators.transactions.decisions import ProducerIdAndEpoch
    from tidelog.coordinators.transactions.marker_writer import EndOfOffsets, MarkerWriter
    from tidelog.coordinators.transactions.verification import Verifications
    from tidelog.network.peers import PeerChannel
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Timeline
    from tidelog_storage.types import TopicPartition

__all__ = ["Transactions"]


class Transactions:
    """The transaction coordinator of a broker, and its part in other coordinators' transactions."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        sessions: Timeline,
        work: Timeline,
        replica_manager: ReplicaManager,
        allocate_producer_ids: Callable[[], Awaitable[range]],
        end_of_offsets: EndOfOffsets,
        new_channel: Callable[[str, int], PeerChannel] | None = None,
    ) -> None:
        """`end_of_offsets` is the group coordinator's; `new_channel` connects to other brokers'
        client listeners, None for a lone broker."""
        self.config = config
        self.producer_ids = ProducerIds(allocate_producer_ids)
        self._clock = replica_manager.clock
        self._sessions, self._work = sessions, work
        self._replicas = replica_manager
        self._end_of_offsets = end_of_offsets
        self._new_channel = new_channel
        self._image: ClusterImage | None = None
        self._coordinator: TransactionCoordinator | None = None
        self._writer: MarkerWriter | None = None
        self._verifications: Verifications | None = None
        self._colleagues: Colleagues | None = None

    # -- parts, built when first asked for -------------------------------------------------------

    @property
    def coordinator(self) -> TransactionCoordinator:
        """The coordinator of the transactional ids whose partition this broker leads."""
        if self._coordinator is None:
            from tidelog.coordinators.transactions.coordinator import TransactionCoordinator
            from tidelog.coordinators.transactions.markers import MarkerSender

            colleagues = self.colleagues
            self._coordinator = TransactionCoordinator(
                config=self.config,
                sessions=self._sessions,
                work=self._work,
                replica_manager=self._replicas,
                producer_ids=self.producer_ids,
                markers=MarkerSender(
                    node_id=self._replicas.node_id,
                    timers=self._sessions,
                    write_here=self.writer.write,
                    ask_leader=None if colleagues is None else colleagues.write_markers,
                ),
            )
            if self._image is not None:
                self._coordinator.on_image(MetadataDelta(None, self._image), self._image)
        return self._coordinator

    @property
    def coordinator_in_use(self) -> TransactionCoordinator | None:
        """The coordinator, None before its first use."""
        return self._coordinator

    @property
    def writer(self) -> MarkerWriter:
        """The writer of markers to partitions led here."""
        if self._writer is None:
            from tidelog.coordinators.transactions.marker_writer import MarkerWriter

            self._writer = MarkerWriter(
                self._replicas,
                self.verifications,
                self._end_of_offsets,
                timeout_ms=self.config.request_timeout_ms,
            )
        return self._writer

    @property
    def verifications(self) -> Verifications:
        """The guards of transactions in partitions led here."""
        if self._verifications is None:
            from tidelog.coordinators.transactions.verification import Verifications

            self._verifications = Verifications()
        return self._verifications

    @property
    def colleagues(self) -> Colleagues | None:
        """The other brokers; None for a lone broker."""
        if self._colleagues is None and self._new_channel is not None:
            from tidelog.coordinators.transactions.colleagues import Colleagues

            self._colleagues = Colleagues(self._new_channel, lambda: self.image)
        return self._colleagues

    @property
    def image(self) -> ClusterImage:
        """The latest image that this room received."""
        assert self._image is not None, "the first image comes before the first request"
        return self._image

    # -- the cluster -----------------------------------------------------------------------------

    def reconfigure(self, config: BrokerConfig) -> None:
        """Follow dynamic settings: `transaction.partition.verification.enable`."""
        self.config = config

    def on_image(self, delta: MetadataDelta, image: ClusterImage) -> None:
        """Follow the cluster."""
        self._image = image
        if self._coordinator is not None:
            self._coordinator.on_image(delta, image)
        elif TRANSACTION_STATE_TOPIC in image.topics:
            _ = self.coordinator  # loads what this broker leads

    def close(self) -> None:
        """Stop, while the metadata log still runs."""
        self.producer_ids.close()
        if self._coordinator is not None:
            self._coordinator.close()
        if self._colleagues is not None:
            self._colleagues.close()

    # -- requests of leaders to coordinators -----------------------------------------------------

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: AbstractSet[TopicPartition],
        *,
        verify_only: bool,
        again: Callable[[], None],
    ) -> dict[TopicPartition, ErrorCode]:
        """Add or verify partitions of a transaction at its coordinator, on any broker.

        Until the markers of the producer's last transaction are written, this retries for a while
        (KIP-890), because clients pause for much longer. `again` is called before each retry: it
        renews the guards, which these markers may have voided.
        """
        config = self.config
        retry_ms = min(config.add_partitions_to_txn_retry_backoff_max_ms, config.request_timeout_ms)
        end_s = self._clock.monotonic() + retry_ms / 1000
        while True:
            outcome = await self._ask_coordinator(
                transactional_id, producer, partitions, verify_only=verify_only
            )
            is_busy = not verify_only and ErrorCode.CONCURRENT_TRANSACTIONS in outcome.values()
            if not is_busy or self._clock.monotonic() >= end_s:
                return outcome
            await asyncio.sleep(config.add_partitions_to_txn_retry_backoff_ms / 1000)
            again()

    async def _ask_coordinator(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: AbstractSet[TopicPartition],
        *,
        verify_only: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        node_id = self._coordinator_of(transactional_id)
        if node_id == self._replicas.node_id:
            if verify_only:
                return self.coordinator.verify_partitions(transactional_id, producer, partitions)
            from tidelog.coordinators.transactions.transaction import TransactionVersion

            asked = (transactional_id, producer, partitions, TransactionVersion.V2)
            error = await called_back(partial(drive, self.coordinator.add_partitions(*asked)))
            return dict.fromkeys(partitions, error)
        if node_id is None or self.colleagues is None:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        from tidelog.network.peers import PeerError

        try:
            return await self.colleagues.add_partitions(
                node_id, transactional_id, producer, partitions, verify_only=verify_only
            )
        except PeerError:
            return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)

    def _coordinator_of(self, transactional_id: str) -> int | None:
        topic = self.image.topics.get(TRANSACTION_STATE_TOPIC)
        if topic is None:
            return None
        leader = topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader
        return leader if leader >= 0 else None
