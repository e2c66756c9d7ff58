"""AddPartitionsToTxn of thousands of partitions: the same answer, in several turns of the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.data_path import DataPath
from support.handler_calls import RecordingPeer, make_context
from support.turns import counting_turns
from tidelog.api.transactions import TransactionsApi
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.network.wide_requests import PART_MAX, part_answer
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.txns import AddPartitionsToTxnRequest

if TYPE_CHECKING:
    from pathlib import Path

Added = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction


@pytest.mark.parametrize(
    ("widths", "is_wide"), [((1, 2), False), ((3 * PART_MAX,), True), ((300,) * 5, True)]
)
def test_many_partitions_are_checked_and_answered_in_turns(
    tmp_path: Path, widths: tuple[int, ...], is_wide: bool
) -> None:
    path = DataPath(tmp_path)
    path.create("t0", 2)
    path.transactions.on_image(MetadataDelta(None, path.image), path.image)
    handler = TransactionsApi(path.transactions, lambda _: 0).handlers()[
        ApiKey.ADD_PARTITIONS_TO_TXN
    ]
    topics = [
        Added.AddPartitionsToTxnTopic(name=f"t{number}", partitions=[*range(width)])
        for number, width in enumerate(widths)
    ]
    request = AddPartitionsToTxnRequest(transactions=[Added(transactional_id="x", topics=topics)])
    context = make_context(ApiKey.ADD_PARTITIONS_TO_TXN, 5, peer=RecordingPeer())

    async def answer() -> Any:
        return await part_answer(handler, context, request)

    response, turns = counting_turns(answer)
    path.transactions.close()
    path.logs.abandon()
    (result,) = response.results_by_transaction
    assert [
        (topic.name, each.partition_index, each.partition_error_code)
        for topic in result.topic_results
        for each in topic.results_by_partition
    ] == [
        (
            f"t{number}",
            index,
            ErrorCode.OPERATION_NOT_ATTEMPTED
            if not number and index < 2
            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        for number, width in enumerate(widths)
        for index in range(width)
    ]
    assert turns > 4 if is_wide else turns <= 2
