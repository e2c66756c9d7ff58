"""What Apache Kafka 4.3.1 answered to the members and the admin client of share groups, field by
field.

`vectors/kafka-4.3.1-share-groups.jsonl` has requests to a node of Kafka's, in order, with its
answers and the pauses between them. The ids of topics are their names in angle brackets.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from broker.group_broker import GroupBroker, topic
from tidelog_protocol.apis import API
from tidelog_protocol.schema import Struct
from wire_values import from_json

VECTORS = Path(__file__).parent / "vectors" / "kafka-4.3.1-share-groups.jsonl"
TOPICS = {"cmpa": 3, "cmpb": 1}
TABLES = {api.name: api for api in API.values()}


def plain(value: Any) -> Any:
    """A message as JSON has it, lists in order of what they are of."""
    if isinstance(value, Struct):
        return {field.name: plain(getattr(value, field.name)) for field in type(value).FIELDS}
    if isinstance(value, list):
        return sorted(map(plain, value), key=str)
    if isinstance(value, bytes | bytearray | memoryview):
        found = bytes(value)
        names = {name.encode().ljust(16): f"<{name}>" for name in TOPICS}
        return names.get(found, found.hex())
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value


def test_answers_are_kafkas() -> None:
    broker = GroupBroker(group_share_assignment_interval_ms="1000")
    for name, count in TOPICS.items():
        broker.topics[name] = topic(name, name.encode().ljust(16), count)
    broker.apply()
    wrong = []
    for number, line in enumerate(VECTORS.read_text().splitlines(), 1):
        step = json.loads(line)
        if "pause_s" in step:
            broker.time.pass_(step["pause_s"])
            continue
        api = TABLES[step["table"]]
        request = from_json(api.request, step["request"])
        found = plain(broker.ask(request, step["version"], client_id="test"))
        expected = plain(step["answer"])
        if found != expected:
            wrong.append((number, api.name, expected, found))
    assert wrong == []
