"""Kafka's console consumer prints what coordinators of tidelog write to their topics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from compat.test_console_tools import Tools
from compat.test_share_groups import SETTINGS, configure
from support.clusters import FAST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compat.jvm import Jvm

pytestmark = [pytest.mark.compat, pytest.mark.nightly, pytest.mark.timeout(400)]

OFFSETS = ("__consumer_offsets", "OffsetsMessageFormatter")
GROUPS = ("__consumer_offsets", "GroupMetadataMessageFormatter")
SHARES = ("__share_group_state", "group.share.ShareGroupStateMessageFormatter")


@pytest.fixture
def tools(java: Jvm) -> Iterator[Tools]:
    with tidelog.run({**FAST, **SETTINGS}) as cluster:
        yield Tools(java, cluster.bootstrap_servers)


def printed(tools: Tools, topic: str, formatter: str) -> list[dict[str, Any]]:
    """Print a topic from its beginning; the formatters end no line."""
    text = tools.consume(
        topic,
        1000,
        *("--from-beginning", "--formatter", f"org.apache.kafka.tools.consumer.{formatter}"),
    )
    records, decoder = [], json.JSONDecoder()
    while text := text.lstrip():
        record, end = decoder.raw_decode(text)
        records.append(record)
        text = text[end:]
    return records


def test_offsets_and_members_of_a_group(tools: Tools) -> None:
    tools.topics("--create", "--topic", "t", "--partitions", "1")
    tools.produce("t", "a\nb\nc\n")
    tools.consume("t", 3, "--from-beginning", "--group", "g")
    key = {"type": 1, "data": {"group": "g", "topic": "t", "partition": 0}}
    offsets = [one["value"] for one in printed(tools, *OFFSETS) if one["key"] == key]
    assert offsets[-1]["data"]["offset"] == 3
    key = {"type": 2, "data": {"group": "g"}}
    groups = [one["value"]["data"] for one in printed(tools, *GROUPS) if one["key"] == key]
    members = [member for group in groups for member in group["members"]]
    assert {group["protocolType"] for group in groups} <= {"", "consumer"}
    assert {member["clientId"] for member in members} == {"console-consumer"}


def test_the_state_of_a_share_group(tools: Tools) -> None:
    tools.topics("--create", "--topic", "t", "--partitions", "1")
    tools.produce("t", "a\nb\nc\n")
    configure(tools.bootstrap, "g")
    bound = ["--max-messages", "3", "--timeout-ms", "20000"]
    tools.run("consumer.ConsoleShareConsumer", "--topic", "t", "--group", "g", *bound)
    states = printed(tools, *SHARES)
    assert {one["key"]["data"]["groupId"] for one in states} == {"g"}
    batches = [batch for one in states for batch in one["value"]["data"]["stateBatches"]]
    assert 2 in {batch["lastOffset"] for batch in batches}
