"""What a live Apache Kafka 4.3.1 answered to FindCoordinator and to the requests for share states,
asked again here: the same bytes, but for the broker's address.

The first line of the vector has the id of the topic, which has two partitions; the state topic has
three. Left out is a batch that ends before it begins: Kafka takes it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from broker.group_broker import topic
from broker.share_broker import ShareBroker
from tidelog_protocol.apis import API, ApiKey

VECTOR = Path(__file__).parent / "vectors" / "kafka-4.3.1-share-requests.jsonl"


def without_address(response: Any) -> Any:
    """FindCoordinator's response without the address of a broker that was found."""
    for each in (response, *response.coordinators):
        if each.port > 0:
            each.host, each.port = "", 0
    return response


def test_answers_are_those_of_a_live_kafka() -> None:
    first, *steps = map(json.loads, VECTOR.read_text().splitlines())
    broker = ShareBroker(state_partitions=3)
    broker.topics["t"] = topic("t", bytes.fromhex(first["topic_id"]), 2)
    broker.apply()
    assert {step["key"] for step in steps} == {ApiKey.FIND_COORDINATOR, *range(83, 88)}
    for number, step in enumerate(steps):
        api, version = API[step["key"]], step["version"]
        request = api.request_codec(version).decode(bytes.fromhex(step["request"]))
        answer = broker.ask(request, version)
        expected = bytes.fromhex(step["response"])
        if api.key is ApiKey.FIND_COORDINATOR:
            theirs = api.response_codec(version).decode(expected)
            assert without_address(answer) == without_address(theirs), (number, request)
        else:
            assert api.response_codec(version).encode(answer) == expected, (number, request)
