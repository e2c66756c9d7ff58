"""Control calls: arguments and errors, and the same calls in process and through the pipes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import pytest

import tidelog
from tidelog.control.brokers import AddBroker, Brokers, OneBroker
from tidelog.control.errors import ControlError
from tidelog.control.table import CALLS, find
from tidelog.control.values import from_json, to_json
from tidelog.control.wire import Asker, CallReader, answer_of, call_line


@dataclass(frozen=True)
class Inner:
    count: int
    name: str | None = None


@dataclass(frozen=True)
class Outer:
    seconds: float
    inner: Inner | None = None
    parts: tuple[int, ...] = ()
    when: Literal["now", "later"] = "now"
    sizes: dict[int, bool] | None = None
    code: int | str = 0


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ({}, "seconds", "is missing"),
        ({"seconds": "1"}, "seconds", "must be a number, not '1'"),
        ({"seconds": 1, "secs": 2}, "secs", "is unknown"),
        ({"seconds": 1, "inner": {"count": 1.5}}, "inner.count", "must be an integer, not 1.5"),
        ({"seconds": 1, "inner": {}}, "inner.count", "is missing"),
        ({"seconds": 1, "inner": {"count": 1, "x": 0}}, "inner.x", "is unknown"),
        ({"seconds": 1, "parts": [1, None]}, "parts[1]", "must be an integer, not None"),
        ({"seconds": 1, "parts": 3}, "parts", "must be a list, not 3"),
        ({"seconds": True}, "seconds", "must be a number, not True"),
        ({"seconds": 1, "when": "soon"}, "when", "must be one of now, later, not 'soon'"),
        ({"seconds": 1, "inner": 4}, "inner", "must be an object, not 4"),
        ({"seconds": 1, "sizes": {"1": 1}}, "sizes.1", "must be true or false, not 1"),
        ({"seconds": 1, "code": 1.5}, "code", "must be a string, not 1.5"),
    ],
)
def test_an_error_names_the_field(given: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(ControlError) as raised:
        from_json(Outer, given)
    error = raised.value
    assert (error.field, error.message, error.status) == (field, message, 400)
    assert str(error) == f"{field}: {message}"


def test_values_survive_their_json_form() -> None:
    for value in (
        Outer(1.5, Inner(2, "é"), (1, 2), "later", {3: True}, "NONE"),
        Outer(1.0),
    ):
        assert from_json(Outer, json.loads(json.dumps(to_json(value)))) == value


def test_an_unknown_call_gets_the_nearest_name() -> None:
    with pytest.raises(ControlError, match=r"no call 'brokers\.stops'; did you mean brokers\.stop"):
        find("brokers.stops", "cluster")
    with pytest.raises(ControlError, match="no call") as raised:
        find("broker.describe", "cluster")  # of the other scope
    assert raised.value.status == 404


def test_every_call_is_described_and_takes_json() -> None:
    for call in CALLS.values():
        assert call.doc, call.name
        assert call.name.count(".") == 1
        assert (call.scope == "broker") == call.name.startswith("broker."), call.name
    assert from_json(AddBroker, {}) == AddBroker(rack=None)
    assert from_json(OneBroker, {"broker": 2}) == OneBroker(2)


def test_brokers_of_this_loop() -> None:
    async def test() -> None:
        async with tidelog.Cluster() as cluster:
            before = await cluster.ask("brokers.describe", {})
            (broker,) = before.brokers
            assert (broker.is_running, broker.address) == (True, cluster.bootstrap_servers)
            assert broker.pid == os.getpid()
            assert broker.running.controller_id == broker.node_id
            stopped = await cluster.ask("brokers.stop", {"broker": broker.node_id})
            assert (stopped.bootstrap_servers, stopped.brokers[0].running) == ("", None)
            again = await cluster.ask("brokers.start", {"broker": broker.node_id})
            assert again.bootstrap_servers == before.bootstrap_servers
            with pytest.raises(
                ControlError, match="there is no broker 7; the brokers are"
            ) as wrong:
                await cluster.ask("brokers.kill", {"broker": 7})
            assert (wrong.value.field, wrong.value.status) == ("broker", 404)

    asyncio.run(test())


def test_brokers_in_processes_of_their_own() -> None:
    async def test() -> None:
        async with tidelog.Cluster(isolated=True) as cluster:
            (broker,) = (await cluster.ask("brokers.describe", {})).brokers
            node: Any = cluster.brokers[0]
            assert broker.pid == node.pid != os.getpid()
            with pytest.raises(ControlError, match=r"did you mean broker\.describe"):
                await node.ask("broker.describes", {})
            node._asker._write(b"nonsense\n")
            with pytest.raises(ControlError) as wrong:
                await node._asker.ask("broker.describe", {"times": 1})
            assert (wrong.value.field, wrong.value.status) == ("times", 400)
            assert (await node.ask("broker.describe", {})).controller_id == node.node_id

    asyncio.run(test())


def test_blocking_calls_of_several_threads() -> None:
    with tidelog.run() as cluster, ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda _: cluster.ask("brokers.describe", {}), range(20)))
        assert all(isinstance(result, Brokers) for result in results)
        assert {result.brokers[0].pid for result in results} == {cluster.pid}
        with pytest.raises(ControlError) as wrong:
            cluster.ask("brokers.stop", {"broker": "1"})
        assert (wrong.value.field, wrong.value.message) == ("broker", "must be an integer, not '1'")
        os.kill(cluster.pid, signal.SIGKILL)
        with pytest.raises(ControlError, match=r"ended during brokers\.describe"):
            cluster.ask("brokers.describe", {})
        cluster.kill()
        with pytest.raises(tidelog.ClusterError, match="not running"):
            cluster.ask("brokers.describe", {})


def test_calls_are_answered_as_they_end_and_every_failure_is_reported() -> None:
    async def test() -> None:
        release = asyncio.Event()
        ended = asyncio.Event()
        lines: asyncio.Queue[str] = asyncio.Queue()

        async def perform(call: str, args: Any) -> Any:
            if call == "slow":
                await release.wait()
            if call == "bug":
                raise KeyError("x")
            if call == "refused":
                raise tidelog.ClusterError("not\nnow")
            return args

        reading, writing = os.pipe()
        reader = CallReader(reading, perform, write=lines.put_nowait, at_end=ended.set)
        os.write(writing, call_line(1, "slow", {}) + call_line(2, "bug", {})[:9])
        os.write(writing, call_line(2, "bug", {})[9:] + call_line(3, "refused", {}) + b"[]\n\n")
        os.write(writing, call_line(4, "echo", {"a": 1}))
        async with asyncio.timeout(10):
            got = [await lines.get() for _ in range(4)]
            release.set()
            got.append(await lines.get())
            os.close(writing)
            await ended.wait()
        await reader.stop()
        os.close(reading)
        answers = {}
        for line in got:
            answer = answer_of(line)
            assert answer is not None
            number, result, error = answer
            answers[number] = result if error is None else (error.status, str(error))
        assert answers == {
            1: {},
            2: (500, "KeyError: 'x'"),
            3: (409, "not now"),
            4: {"a": 1},
            -1: (400, "not a call: []"),
        }

    asyncio.run(test())


def test_a_call_without_an_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.control.wire.ANSWER_S_MAX", 0.01)

    async def test() -> None:
        asker = Asker(lambda line: None)
        with pytest.raises(ControlError, match=r"no answer to clock\.get within 0\.01 s"):
            await asker.ask("clock.get", {})
        call = asyncio.ensure_future(asker.ask("clock.get", {}))
        await asyncio.sleep(0)
        asker.end("broker 1 ended during the call")
        with pytest.raises(ControlError, match="broker 1 ended"):
            await call
        assert not asker.take(b"tidelog failed: disk\n")

    asyncio.run(test())
