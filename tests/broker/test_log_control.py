"""Levels of what brokers log, changed while they run."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

import tidelog
from support.clusters import run
from tidelog.control.errors import ControlError
from tidelog.control.logs import PARTS
from tidelog.network.observer import REQUESTS


def test_the_parts_are_the_loggers_of_the_sources() -> None:
    folder = Path(tidelog.__file__).parent
    found = {"all"}
    for path in folder.rglob("*.py"):
        text = path.read_text()
        found |= set(re.findall(r'"tidelog\.(\w+)[\w.]*"\)?$', text, re.MULTILINE)) & set(PARTS)
        for name in re.findall(r'getLogger\("tidelog\.(\w+)', text):
            assert name in PARTS, path
        if "getLogger(__name__)" in text:
            assert path.relative_to(folder).parts[0] in PARTS, path
            found.add(path.relative_to(folder).parts[0])
    assert sorted(found) == sorted(PARTS)


def test_requests_are_logged_from_a_call_until_a_reset(caplog: pytest.LogCaptureFixture) -> None:
    async def apis(cluster: tidelog.Cluster) -> set[str]:
        caplog.clear()
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers):
            pass
        return {
            vars(record)["fields"]["api"] for record in caplog.records if record.name == REQUESTS
        }

    async def test() -> None:
        async with tidelog.Cluster() as cluster:
            assert await apis(cluster) == set()
            levels = await cluster.logs.level("requests", "debug")
            assert (levels["requests"], levels["network"]) == ("debug", levels["all"])
            assert await apis(cluster) >= {"ApiVersions", "Metadata"}
            await cluster.brokers[0].stop()
            logging.getLogger(REQUESTS).setLevel(logging.NOTSET)
            await cluster.brokers[0].start()
            assert await apis(cluster) >= {"ApiVersions", "Metadata"}
            await cluster.logs.reset()
            assert await apis(cluster) == set()
            assert logging.getLogger(REQUESTS).level == logging.NOTSET

    run(test)


def test_the_last_requests_of_clients_are_kept_from_the_first_call_on() -> None:
    async def test() -> None:
        async with tidelog.Cluster(brokers=2) as cluster:
            assert await cluster.logs.requests() == ()
            await cluster.create_topic("t")
            await cluster.faults.on("Produce").times(1).error("NOT_LEADER_OR_FOLLOWER")
            servers = cluster.bootstrap_servers
            async with AIOKafkaProducer(bootstrap_servers=servers, client_id="mine") as producer:
                await producer.send_and_wait("t", b"value")
            found = await cluster.logs.requests()
            produced = [one for one in found if one.api == "Produce"]
            assert [one.error for one in produced] == ["NOT_LEADER_OR_FOLLOWER", "NONE"]
            leader = (await cluster.state()).partition("t").leader
            assert {(one.client_id, one.broker) for one in produced} == {("mine", leader)}
            assert all(one.latency_ms >= 0 for one in found)
            assert not [one for one in found if (one.client_id or "").startswith("broker-")]

    run(test)


@pytest.mark.parametrize(
    ("part", "level", "field", "text"),
    [
        ("request", "debug", "part", "did you mean requests"),
        ("requests", "loud", "level", "must be one of debug, info"),
    ],
)
def test_a_part_or_level_that_is_not_there_is_refused(
    part: str, level: str, field: str, text: str
) -> None:
    async def test() -> None:
        async with tidelog.Cluster() as cluster:
            with pytest.raises(ControlError, match=text) as raised:
                await cluster.logs.level(part, level)
            assert raised.value.field == field

    run(test)
