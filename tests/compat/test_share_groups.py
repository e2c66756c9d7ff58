"""Kafka's own share consumer and kafka-share-groups, against a broker that offers share groups."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

import tidelog
from compat.test_console_tools import Tools
from tidelog import assembly
from tidelog.cluster.metadata import features

if TYPE_CHECKING:
    from compat.jvm import Jvm

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]

SETTINGS = {f"group.share.{name}heartbeat.interval.ms": "100" for name in ("", "min.", "max.")} | {
    "group.share.assignment.interval.ms": "0",
    "share.coordinator.state.topic.num.partitions": "1",
}


def test_a_group_of_one_consumer(java: Jvm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "SHARE_GROUPS_OFFERED", True)
    monkeypatch.setattr(features, "SHARE_VERSION", 1)

    async def test() -> None:
        async with tidelog.Cluster(SETTINGS) as cluster:
            await asyncio.to_thread(play, Tools(java, cluster.bootstrap_servers))

    asyncio.run(test())


def play(tools: Tools) -> None:
    def groups(*args: str) -> str:
        return tools.run("consumer.group.ShareGroupCommand", *args)

    def is_line(pattern: str, text: str) -> bool:
        return re.search(rf"^{pattern} *$", text, re.MULTILINE) is not None

    tools.topics("--create", "--topic", "t", "--partitions", "1")
    tools.produce("t", "a\nb\nc\n")
    own = ["--entity-type", "groups", "--entity-name", "g"]
    tools.configs("--alter", *own, "--add-config", "share.auto.offset.reset=earliest")
    bound = ["--max-messages", "3", "--timeout-ms", "20000"]
    consumed = tools.run("consumer.ConsoleShareConsumer", "--topic", "t", "--group", "g", *bound)
    assert consumed.split() == ["a", "b", "c"]
    assert groups("--list").split() == ["g"]
    describe = ["--describe", "--group", "g"]
    assert is_line(r"g +\S+ +\(1\) +Empty +0", groups(*describe, "--state"))
    assert is_line(r"g +t +0 +\d +0", groups(*describe))
    of_topic = ["--group", "g", "--topic", "t"]
    reset = groups("--reset-offsets", *of_topic, "--to-earliest", "--execute")
    assert is_line(r"g +t +0 +0", reset)
    assert is_line(r"g +t +0 +0 +3", groups(*describe))
    assert is_line("t +Successful", groups("--delete-offsets", *of_topic))
    assert "was successful" in groups("--delete", "--group", "g")
    assert groups("--list").split() == []
