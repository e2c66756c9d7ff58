"""The stream of changes that the page shows, and the files of the page."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from support.clusters import run
from support.http_door import LOOPBACK, send, with_door
from support.processes import END_S_MAX
from tidelog.control import live
from tidelog.control.broker_clock import ClockState
from tidelog.control.brokers import Brokers, BrokerState
from tidelog.control.clock import Clocks
from tidelog.control.errors import ControlError
from tidelog.control.faults.devices import Devices
from tidelog.control.faults.group import Rules
from tidelog.control.faults.link_values import Links
from tidelog.control.http import Address, HttpDoor
from tidelog.control.last_requests import LastRequests
from tidelog.control.live import LISTENERS_MAX, Live
from tidelog.control.state import ClusterState, GroupState
from tidelog.control.values import to_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping


def group(name: str) -> GroupState:
    return GroupState(name, 1, "Empty", 0, None, None, (), ())


class Cluster:
    """Answers the calls that read."""

    def __init__(self) -> None:
        self.wall_ms = 5
        self.groups = (group("a"), group("b"))
        self.error: Exception | None = None
        self.asked = 0

    async def ask(self, call: str, _: Mapping[str, Any]) -> Any:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return {
            "brokers.describe": Brokers("h:1", (BrokerState(1, True, False, "h:1", None, None),)),
            "clock.describe": Clocks(1.0, {1: ClockState(self.wall_ms, 0, 0, 1.0)}),
            "cluster.state": ClusterState(1, (), (), self.groups, ()),
            "faults.list": Rules(),
            "network.list": Links(),
            "devices.list": Devices(),
            "logs.requests": LastRequests(()),
        }[call]


async def event(events: AsyncIterator[bytes]) -> dict[str, Any]:
    data = await asyncio.wait_for(anext(events), END_S_MAX)
    assert data.startswith(b"data: ")
    assert data.endswith(b"\n\n")
    changes: dict[str, Any] = json.loads(data.removeprefix(b"data: "))
    return changes


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PAUSE_S", 0.005)


def test_the_first_event_has_all_and_a_later_one_what_changed() -> None:
    async def test() -> None:
        cluster = Cluster()
        seen = Live(cluster.ask)
        events = seen.events()
        first = await event(events)
        assert sorted(first) == [
            "broker/1",
            "clock/1",
            "cluster",
            "group/a",
            "group/b",
            "requests",
        ]
        assert first["group/a"] == to_json(group("a"))
        cluster.wall_ms = 6
        assert list(await event(events)) == ["clock/1"]
        cluster.groups = (group("b"),)
        assert await event(events) == {"group/a": None}
        cluster.error = ControlError("broker 1 does not answer")
        assert await event(events) == {"error": "broker 1 does not answer"}
        cluster.error = None
        assert await event(events) == {"error": None}
        late = seen.events()
        assert sorted(await event(late)) == sorted(first.keys() - {"group/a"})
        await late.aclose()
        await events.aclose()

    asyncio.run(test())


def test_the_cluster_is_read_only_while_something_listens() -> None:
    async def test() -> None:
        cluster = Cluster()
        seen = Live(cluster.ask)
        await asyncio.sleep(0.02)
        assert cluster.asked == 0
        one, two = seen.events(), seen.events()
        await event(one)
        await event(two)
        calls = 7
        assert cluster.asked % calls == 0, "one look is for all listeners"
        await one.aclose()
        assert not seen.is_full
        await two.aclose()
        asked = cluster.asked
        await asyncio.sleep(0.02)
        assert cluster.asked == asked
        listeners = [seen.events() for _ in range(LISTENERS_MAX)]
        for each in listeners:
            await event(each)
        assert seen.is_full
        seen.end()
        for each in listeners:
            async with asyncio.timeout(END_S_MAX):
                assert [data async for data in each] == []
        assert not seen.is_full

    asyncio.run(test())


def test_the_values_are_those_of_the_state() -> None:
    async def test() -> None:
        async with tidelog.Cluster(brokers=2) as cluster:
            await cluster.create_topic("t", partitions=2)
            await cluster.faults.on("Produce").times(1).error("NOT_LEADER_OR_FOLLOWER")
            await cluster.network.slow(2, 1, 0.01)
            await cluster.network.cut(2, "clients", holds="sent")
            await cluster.devices.slow_disk(2, 0.01)
            await cluster.devices.fail_disk(2, "reads", topic="t")
            events = Live(cluster.ask).events()
            shown = await event(events)
            await events.aclose()
            state = await cluster.state()
            for partition in state.topic("t").partitions:
                key = f"partition/t/{partition.partition}"
                assert shown[key] == to_json(partition)
            assert shown["topic/t"] == {"name": "t", "config": {}, "partitions": 2}
            assert shown["cluster"]["controller"] == state.controller
            assert shown["fault/1"]["effect"]["kind"] == "error"
            assert [link["seconds"] for link in shown["link/1/2"]] == [0.01]
            assert [link["holds"] for link in shown["link/2/clients"]] == ["sent"]
            kinds = [each["kind"] for each in shown["device/2/disk"]]
            assert kinds == ["slow", "fails"]
            for broker in cluster.brokers:
                one = shown[f"broker/{broker.node_id}"]
                assert one["address"] == broker.bootstrap_server
                assert one["purgatories"].keys() == state.broker(broker.node_id).purgatories.keys()
                assert shown[f"clock/{broker.node_id}"]["speed"] == 1.0

    run(test)


def opened(url: str, **headers: str) -> Any:
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=END_S_MAX)


def test_the_door_serves_the_page_and_its_stream_to_no_other_origin() -> None:
    cluster = Cluster()

    def use(url: str) -> None:
        with opened(url) as page:
            assert page.headers["Content-Type"] == "text/html; charset=utf-8"
            assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
            assert b"<h1>tidelog</h1>" in page.read()
        with opened(f"{url}/page/page.js") as script:
            assert script.headers["Content-Type"] == "text/javascript; charset=utf-8"
        with opened(f"{url}/events") as stream:
            assert stream.headers["Content-Type"].startswith("text/event-stream")
            assert b'"bootstrap_servers":"h:1"' in stream.readline()
        assert send(f"{url}/page/none.js").status == 404
        assert send(f"{url}/page/..%2fhttp.py").status == 404
        for path in ("/", "/page/page.js", "/events"):
            assert send(f"{url}{path}", Host="evil.example").status == 421
            assert send(f"{url}{path}", Origin="https://evil.example").status == 403

    with_door(use, cluster.ask)


def test_the_stream_needs_the_token_and_the_files_do_not() -> None:
    def use(url: str) -> None:
        assert send(f"{url}/events").status == 401
        assert send(f"{url}/events?token=secret").status == 401, "it would be in logs of proxies"
        with opened(url) as page, opened(f"{url}/events", Authorization="Bearer secret") as stream:
            assert page.status == stream.status == 200

    with_door(use, Cluster().ask, Address("127.0.0.1", 0, "secret"))


def test_an_open_stream_does_not_hold_up_the_end() -> None:
    async def test() -> None:
        door = HttpDoor(LOOPBACK, Cluster().ask)
        await door.start()
        host, port = door.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"data: ")
        await door.stop()
        assert (await reader.read()).endswith(b"\r\n0\r\n\r\n"), "it was not cancelled"
        writer.close()

    asyncio.run(asyncio.wait_for(test(), END_S_MAX))
