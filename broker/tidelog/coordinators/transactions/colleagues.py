"""Requests to other brokers about transactions: write markers, add or verify partitions.

Every failure is a `PeerError`, after which it is unknown whether the request took effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.network.peers import Channels
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.txns import AddPartitionsToTxnRequest, WriteTxnMarkersRequest
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.coordinators.transactions.decisions import ProducerIdAndEpoch
    from tidelog.coordinators.transactions.markers import Marker
    from tidelog.network.peers import PeerChannel
    from tidelog_protocol.messages.txns import (
        AddPartitionsToTxnResponse,
        WriteTxnMarkersResponse,
    )

    Outcome = dict[TopicPartition, ErrorCode]

__all__ = ["Colleagues", "by_topic"]

_Marker = WriteTxnMarkersRequest.WritableTxnMarker
_MarkerTopic = _Marker.WritableTxnMarkerTopic
_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_TransactionTopic = _Transaction.AddPartitionsToTxnTopic


def by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    """Return partition indexes by topic, the form of most requests."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


class Colleagues:
    """Channels to other brokers' client listeners."""

    def __init__(
        self, new_channel: Callable[[str, int], PeerChannel], image: Callable[[], ClusterImage]
    ) -> None:
        """`image` returns the current image."""
        self._channels = Channels(new_channel, lambda node_id: image().address_of(node_id))

    def close(self) -> None:
        """Close all channels; pending requests get a PeerError."""
        self._channels.close()

    async def write_markers(self, leader: int, markers: list[Marker]) -> list[Outcome]:
        """Send markers to a leader; return its outcomes in the order of the markers."""
        request = WriteTxnMarkersRequest(
            markers=[
                _Marker(
                    producer_id=marker.producer_id,
                    producer_epoch=marker.producer_epoch,
                    transaction_result=marker.is_commit,
                    coordinator_epoch=marker.coordinator_epoch,
                    transaction_version=marker.transaction_version,
                    topics=[
                        _MarkerTopic(name=name, partition_indexes=indexes)
                        for name, indexes in by_topic(marker.partitions).items()
                    ],
                )
                for marker in markers
            ]
        )
        response: WriteTxnMarkersResponse = await self._channels.to(leader).ask(request)
        return [
            {
                TopicPartition(topic.name, each.partition_index): ErrorCode(each.error_code)
                for topic in marker.topics
                for each in topic.partitions
            }
            for marker in response.markers
        ]

    async def add_partitions(
        self,
        coordinator: int,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: AbstractSet[TopicPartition],
        *,
        verify_only: bool,
    ) -> Outcome:
        """Ask a transaction's coordinator to add or verify partitions (KIP-890)."""
        request = AddPartitionsToTxnRequest(
            transactions=[
                _Transaction(
                    transactional_id=transactional_id,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    verify_only=verify_only,
                    topics=[
                        _TransactionTopic(name=name, partitions=indexes)
                        for name, indexes in by_topic(sorted(partitions)).items()
                    ],
                )
            ]
        )
        response: AddPartitionsToTxnResponse = await self._channels.to(coordinator).ask(request)
        if response.error_code:
            return dict.fromkeys(partitions, ErrorCode(response.error_code))
        return {
            TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
            for transaction in response.results_by_transaction
            for topic in transaction.topic_results
            for each in topic.results_by_partition
        }
