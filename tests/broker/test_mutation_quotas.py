"""Quotas of partitions that clients create and delete (KIP-599)."""

from __future__ import annotations

from typing import Any

import pytest

import tidelog
from support.clusters import controller_of, run, until
from support.data_path import ManualClock
from support.metadata import CountedRng, broker_config, cluster, decide_creation, topic
from support.wire_client import WireClient
from tidelog.cluster.controller.deletion import delete_topics
from tidelog.cluster.controller.topics import create_partitions
from tidelog.quotas.mutations import MutationCharge, Mutations
from tidelog.quotas.windows import TokenBucket
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from tidelog_protocol.messages.quotas import AlterClientQuotasRequest

IMAGE = cluster(topic("e", 1, 4), topic("f", 2, 4), topic("g", 3, 4))
EXCEEDED = (ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
NONE = (ErrorCode.NONE, None)


class Charges:
    """A quota of one partition per second; six may be mutated at once."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.mutations = Mutations(1.0, TokenBucket(6, 1))

    def request(self, *, is_strict: bool = True) -> MutationCharge:
        return MutationCharge(self.mutations, lambda: self.clock.now_ms, is_strict=is_strict)


def results(decision: Any) -> list[tuple[ErrorCode, str | None]]:
    return [(result.error_code, result.error_message) for result in decision.results]


def created(charge: MutationCharge, *names: str) -> Any:
    wanted = CreateTopicsRequest.CreatableTopic
    topics = [wanted(name=name, num_partitions=4, replication_factor=1) for name in names]
    request = CreateTopicsRequest(topics=topics)
    return decide_creation(IMAGE, request, broker_config(), charge)


def test_topics_above_the_quota_are_refused() -> None:
    charges = Charges()
    charge = charges.request()
    decision = created(charge, "a", "b", "c")
    assert results(decision) == [NONE, NONE, EXCEEDED], "the last one allowed may take on debt"
    assert charge.throttle_ms() == 2000
    charges.clock.now_ms += 500
    assert charge.throttle_ms() == 1500
    charges.clock.now_ms += 1500
    charge = charges.request()
    assert results(created(charge, "c")) == [NONE]
    assert charge.throttle_ms() == 0


def test_older_versions_are_done_and_throttled() -> None:
    charge = Charges().request(is_strict=False)
    assert results(created(charge, "a", "b", "c")) == [NONE, NONE, NONE]
    assert charge.throttle_ms() == 6000


def test_refused_topics_are_not_charged() -> None:
    charges = Charges()
    codes = [code for code, _ in results(created(charges.request(), "e", "f", "g", "a", "b"))]
    assert codes == [ErrorCode.TOPIC_ALREADY_EXISTS] * 3 + [ErrorCode.NONE] * 2


def test_deletions_and_new_partitions_are_charged() -> None:
    charges = Charges()
    decision = delete_topics(
        IMAGE, DeleteTopicsRequest(topic_names=["e", "f", "g"]), charges.request()
    )
    assert results(decision) == [NONE, NONE, EXCEEDED]
    assert len(decision.records) == 2
    wanted = CreatePartitionsRequest.CreatePartitionsTopic
    request = CreatePartitionsRequest(topics=[wanted(name="g", count=5, assignments=None)])
    grown = create_partitions(IMAGE, request, CountedRng(), charges.request())
    assert results(grown) == [EXCEEDED]
    assert grown.records == []
    charges.clock.now_ms += 3000
    grown = create_partitions(IMAGE, request, CountedRng(), charges.request())
    assert results(grown) == [NONE]


@pytest.mark.parametrize("brokers", [1, 3])
def test_the_controller_charges_forwarded_requests(brokers: int) -> None:
    entry = AlterClientQuotasRequest.EntryData
    limit = AlterClientQuotasRequest(
        entries=[
            entry(
                entity=[entry.EntityData(entity_type="client-id", entity_name="test")],
                ops=[entry.OpData(key="controller_mutation_rate", value=0.2)],
            )
        ]
    )
    wanted = CreateTopicsRequest.CreatableTopic

    def creation(*names: str) -> CreateTopicsRequest:
        topics = [wanted(name=name, num_partitions=2, replication_factor=1) for name in names]
        return CreateTopicsRequest(topics=topics, timeout_ms=60_000)

    async def test() -> None:
        async with tidelog.Cluster(brokers=brokers) as cluster:
            controller = controller_of(cluster) if brokers > 1 else cluster.brokers[0]
            asked = next((node for node in cluster.brokers if node is not controller), controller)
            async with await WireClient.connect(asked.bootstrap_server) as client:
                assert (await client.ask(limit, 1)).entries[0].error_code == 0
                await until(
                    lambda: all(
                        node.server.metadata.image.client_quotas for node in cluster.brokers
                    )
                )
                answer = await client.ask(creation("a", "b", "c"), 7)
                codes = [each.error_code for each in answer.topics]
                assert codes == [0, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
                assert 0 < answer.throttle_time_ms <= 10_000
            async with await WireClient.connect(asked.bootstrap_server) as client:
                again = await client.ask(creation("c"), 5)
                assert again.topics[0].error_code == 0, "older versions are only throttled"
                assert again.throttle_time_ms > answer.throttle_time_ms

    run(test)
