"""What Apache Kafka 4.3.1's ShareCoordinatorShard did, replayed here: answers and records, byte for
byte.

Each line of the vector was given to Kafka's class: a request for one share partition, or periodic
work (`cold`: snapshots of cold states; `cleanup`: a deleted topic), at a time of its clock. Topics
`a` and `b` have two partitions; a snapshot follows three updates.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tidelog.coordinators.share.records import ShareRecord, encode
from tidelog.coordinators.share.shard import ShareShard
from tidelog.coordinators.share.values import SharePartition
from tidelog.coordinators.share.wire import OPERATIONS, items_of, response_of
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.primitives import uuid_from_str

VECTOR = Path(__file__).parent / "vectors" / "kafka-4.3.1-share-state.jsonl"
TOPICS = {b"a" * 16: 2, b"b" * 16: 2}
COLD_MS = 300_000
UPDATES_PER_SNAPSHOT = 3


def play(shard: ShareShard, step: dict[str, Any]) -> tuple[str | None, list[ShareRecord]]:
    """The response, if any, and the records of a step."""
    if "work" in step:
        if step["work"] == "cold":
            return None, shard.cold_snapshots(step["now"], COLD_MS)
        return None, shard.of_topics({uuid_from_str(step["topic"])})
    api, version, operation = API[step["key"]], step["version"], OPERATIONS[ApiKey(step["key"])]
    request = api.request_codec(version).decode(bytes.fromhex(step["request"]))
    [item] = items_of(operation, request)
    key = SharePartition(request.group_id, item.topic_id, item.partition)
    is_known = item.partition < TOPICS.get(item.topic_id, 0)
    outcome, record = operation.decide(shard, key, item, step["now"], is_known=is_known)
    response = response_of(operation, [item], [outcome])
    return api.response_codec(version).encode(response).hex(), [record] if record else []


def test_answers_and_records_are_kafkas() -> None:
    shard = ShareShard(0, 0, UPDATES_PER_SNAPSHOT)
    log: list[ShareRecord] = []
    steps = [json.loads(line) for line in VECTOR.read_text().splitlines()]
    assert len(steps) == 600
    for number, step in enumerate(steps):
        response, records = play(shard, step)
        assert response == step.get("response"), (number, step)
        ours = [[each and each.hex() for each in encode(record)] for record in records]
        assert sorted(ours) == sorted(step["records"]), (number, step)
        by_key = {each[0]: record for each, record in zip(ours, records, strict=True)}
        for key, _ in step["records"]:  # in Kafka's order, which is that of its map
            log.append(by_key[key])
            shard.replay(by_key[key], shard.end_offset)
        assert shard.redundant_offset == step["redundant"], (number, step)
        if not number % 20:
            check_load(shard, log)


def check_load(shard: ShareShard, log: list[ShareRecord]) -> None:
    """The part of the log that is not redundant has all states."""
    loaded = ShareShard(0, 1, UPDATES_PER_SNAPSHOT)
    for offset in range(shard.redundant_offset, len(log)):
        loaded.replay(log[offset], offset)
    for key in {record.key for record in log}:
        assert loaded.state(key) == shard.state(key)
