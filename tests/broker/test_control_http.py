"""The control calls over HTTP: the same calls, arguments and errors as the Python doors."""

from __future__ import annotations

import asyncio
import http.client
import inspect
import select
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import h11
import pytest
from openapi_spec_validator import validate

from support import http_door
from support.http_door import LOOPBACK, send
from support.processes import COMMAND, END_S_MAX, Serve
from tidelog.control.brokers import Brokers, BrokerState
from tidelog.control.errors import ClusterError, ControlError
from tidelog.control.http import BODY_BYTES_MAX, Address, HttpDoor, drop_silent
from tidelog.control.http_client import HttpControl
from tidelog.control.losing import Lost
from tidelog.control.making import Made
from tidelog.control.openapi import document, path_of
from tidelog.control.table import CALLS, find
from tidelog.control.values import from_json, to_json
from tidelog.embedded.running import RunningCluster
from tidelog.start_error import StartError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping


def state(*, is_running: bool) -> BrokerState:
    return BrokerState(
        node_id=1, is_running=is_running, is_frozen=False, address="h:1", failure=None, running=None
    )


ONE = Brokers("h:1", (state(is_running=True),))
PLAIN_PATHS = ("/v1/health", "/v1/scenarios", "/v1/scenarios/{name}")


async def checked(call: str, args: Mapping[str, Any]) -> Any:
    """Check a call as the table does, and describe one broker."""
    from_json(find(call, "cluster").arguments, dict(args))
    return ONE


def with_door(
    use: Callable[[str], None],
    ask: Callable[[str, Mapping[str, Any]], Awaitable[Any]] = checked,
    address: Address = LOOPBACK,
) -> None:
    http_door.with_door(use, ask, address)


def test_an_offer_of_http_2_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    """As Java's HttpClient makes it with each call."""
    offer = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AA"}

    def use(url: str) -> None:
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=END_S_MAX)
        connection.request("POST", "/v1/brokers/describe", "{}", offer)
        assert connection.getresponse().status == 200
        connection.close()

    with_door(use)
    assert caplog.messages == []


def test_calls_and_their_errors() -> None:
    def use(url: str) -> None:
        calls = f"{url}/v1/brokers"
        described = to_json(ONE)
        assert send(f"{calls}/describe") == (200, "application/json", described)
        assert send(f"{calls}/describe", {}).body == described
        assert send(f"{calls}/describe", body=b"").body == described
        assert send(f"{calls}/stop", {"broker": 1}).status == 200
        problem = "application/problem+json"
        assert send(f"{calls}/stop", {"broker": "1"}) == (
            400,
            problem,
            {
                "type": "about:blank",
                "title": "Bad Request",
                "status": 400,
                "detail": "must be an integer, not '1'",
                "field": "broker",
            },
        )
        for wrong, status, detail in (
            (send(f"{calls}/stops", {}), 404, "did you mean brokers.stop?"),
            (send(f"{url}/v1/broker/describe", {}), 404, "there is no call"),  # not of clusters
            (send(f"{calls}/stop"), 405, "brokers.stop is no call that only reads: use POST"),
            (send(f"{calls}/describe?broker=1"), 400, "is unknown"),
            (send(f"{calls}/stop", [1]), 400, "no JSON object"),
            (send(f"{calls}/stop", body=b"{"), 400, "no JSON: Expecting property name"),
            (send(f"{calls}/stop", body=bytes(BODY_BYTES_MAX + 1)), 413, "more than"),
            (send(f"{url}/elsewhere"), 404, "Not Found"),
            (send(f"{url}/v1/scenarios/x"), 404, "there is no scenario 'x'; there are kip101-s1"),
        ):
            assert (wrong.status, wrong.kind) == (status, problem)
            assert detail in wrong.body["detail"]

    with_door(use)


def test_a_fault_of_ours_is_an_answer_too(caplog: pytest.LogCaptureFixture) -> None:
    async def ask(_call: str, _args: Mapping[str, Any]) -> Any:
        raise KeyError("x")

    def use(url: str) -> None:
        answer = send(f"{url}/v1/brokers/describe")
        assert (answer.status, answer.body["detail"]) == (500, "KeyError: 'x'")

    with_door(use, ask)
    assert "a control call failed" in caplog.text


@pytest.mark.parametrize(("running", "status"), [(True, 200), (False, 503)])
def test_health_is_whether_a_broker_runs(running: bool, status: int) -> None:
    async def ask(_call: str, _args: Mapping[str, Any]) -> Any:
        return Brokers("", (state(is_running=running),))

    def use(url: str) -> None:
        answer = send(f"{url}/v1/health")
        assert (answer.status, answer.body) == (status, {"running": [1] if running else []})

    with_door(use, ask)


def test_web_pages_of_others_make_no_calls() -> None:
    """One that names its own server 127.0.0.1 has its own name in `Host`."""

    def use(url: str) -> None:
        describe = f"{url}/v1/brokers/describe"
        assert send(describe, Host="evil.example").status == 421
        assert send(describe, {}, Origin="https://evil.example").status == 403
        assert send(describe, {}, Origin=url).status == 200
        assert send(describe.replace("127.0.0.1", "localhost")).status == 200

    with_door(use)


def test_a_token_is_needed_where_others_reach_the_door() -> None:
    with pytest.raises(StartError, match="set TIDELOG_CONTROL_TOKEN"):
        Address.parse("0.0.0.0:0", None)
    with pytest.raises(StartError, match="set TIDELOG_CONTROL_TOKEN"):
        Address.parse("example.org:0", "")

    def use(url: str) -> None:
        near = url.replace("0.0.0.0", "127.0.0.1")
        describe = f"{near}/v1/brokers/describe"
        for wrong in ({}, {"Authorization": "Bearer guess"}, {"Authorization": "Bearer \xe9"}):
            assert send(describe, **wrong).status == 401
        assert send(describe, Authorization="Bearer secret").status == 200
        assert send(f"{near}/v1/health").status == 200
        assert send(f"{near}/openapi.json").status == 200

    with_door(use, address=Address.parse("0.0.0.0:0", "secret"))


@pytest.mark.parametrize("text", ["9000", "h:", ":9000", "h:x", "h:65536", "h:-1"])
def test_a_bad_address_is_refused(text: str) -> None:
    with pytest.raises(StartError, match="is not HOST:PORT"):
        Address.parse(text, "secret")


def test_an_address_of_ipv6_has_brackets() -> None:
    assert Address.parse("[::1]:0", None) == Address("::1", 0, None)
    assert Address.parse("localhost:5", None).is_loopback


def test_a_taken_port_is_one_line() -> None:
    def use(url: str) -> None:
        port = url.rpartition(":")[2]
        with pytest.raises(StartError, match=f"cannot listen on 127.0.0.1:{port}: Address already"):
            with_door(lambda _: None, address=Address("127.0.0.1", int(port), None))

    with_door(use)


def test_a_call_that_waits_does_not_hold_up_the_end() -> None:
    async def ask(_call: str, _args: Mapping[str, Any]) -> Any:
        await asyncio.sleep(600)

    async def test() -> None:
        door = HttpDoor(LOOPBACK, ask)
        await door.start()
        host, port = door.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /v1/brokers/describe HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.05)
        await door.stop()
        writer.close()

    asyncio.run(asyncio.wait_for(test(), END_S_MAX))


def test_the_document_has_every_call() -> None:
    made = document()
    validate(made)
    assert sorted(made["paths"]) == sorted(
        [*PLAIN_PATHS, *(path_of(call.name) for call in CALLS.values() if call.scope == "cluster")]
    )
    stop = made["paths"]["/v1/brokers/stop"]["post"]
    assert stop["summary"] == "Move a broker's leaderships to other brokers, then stop it."
    assert stop["requestBody"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/brokers.OneBroker"
    }
    schemas = made["components"]["schemas"]
    assert schemas["brokers.OneBroker"]["required"] == ["broker"]
    assert schemas["brokers.AddBroker"]["properties"] == {
        name: {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
        for name in ("rack", "advertised_listeners")
    }

    def use(url: str) -> None:
        assert send(f"{url}/openapi.json").body == made

    with_door(use)


# -- the Python client -----------------------------------------------------------------------------


def test_the_python_client_has_the_values_and_the_errors() -> None:
    def use(url: str) -> None:
        control = HttpControl(url)
        assert control.ask("brokers.describe", {}) == ONE
        for call, args, field in (
            ("brokers.stop", {"broker": "1"}, "broker"),
            ("brokers.stops", {}, "call"),
        ):
            with pytest.raises(ControlError) as raised:
                control.ask(call, args)
            assert raised.value.field == field

    with_door(use)


def test_the_python_client_has_the_names_of_a_running_cluster() -> None:
    for name, member in vars(HttpControl).items():
        if not name.startswith("_"):
            same = inspect.getattr_static(RunningCluster, name)
            ours, theirs = (
                each.fget if isinstance(each, property) else each for each in (member, same)
            )
            assert inspect.signature(ours) == inspect.signature(theirs), name


def test_the_python_client_sends_the_token() -> None:
    def use(url: str) -> None:
        assert HttpControl(url, "secret").ask("brokers.describe", {}) == ONE
        with pytest.raises(ControlError, match="the token is missing or wrong") as raised:
            HttpControl(url).ask("brokers.describe", {})
        assert raised.value.status == 401

    with_door(use, address=Address("127.0.0.1", 0, "secret"))


def test_the_python_client_uses_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setattr("urllib.request._opener", None)  # it is made once, by the environment
    with_door(lambda url: HttpControl(url).ask("brokers.describe", {}))


def test_the_python_client_says_what_it_could_not_reach() -> None:
    with pytest.raises(ControlError, match=r"no answer from http://127\.0\.0\.1:1: .*refused"):
        HttpControl("http://127.0.0.1:1/").ask("brokers.describe", {})


# -- tidelog serve ---------------------------------------------------------------------------------


def test_serve_names_the_door_and_takes_calls(serve: Serve) -> None:
    served = serve("--port", "0", "--control", "127.0.0.1:0")
    servers, _, url = served.bootstrap.partition(" control=")
    assert send(f"{url}/v1/health").body == {"running": [1]}
    assert send(f"{url}/v1/topics/create", {"name": "t", "partitions": 2}).status == 200
    again = send(f"{url}/v1/topics/create", {"name": "t"})
    assert "already exists" in again.body["detail"]
    topics = send(f'{url}/v1/state?topics=["t"]').body["topics"]
    assert [(topic["name"], len(topic["partitions"])) for topic in topics] == [("t", 2)]
    killed = send(f"{url}/v1/brokers/kill", {"broker": 1})
    assert killed.body["bootstrap_servers"] == ""
    assert send(f"{url}/v1/health").status == 503
    assert send(f"{url}/v1/brokers/start", {"broker": 1}).body["bootstrap_servers"] == servers
    assert served.end(signal.SIGTERM) == (0, "", "")


def test_rare_logs_are_made_over_http_by_isolated_brokers(serve: Serve) -> None:
    served = serve("--port", "0", "--brokers", "3", "--isolated", "--control", "127.0.0.1:0")
    control = HttpControl(served.bootstrap.partition(" control=")[2])
    topics = control.topics
    control.create_topic("t", config={"retention.ms": None})
    assert topics.make_gap("t", count=2) == Made(0, 1)
    assert topics.make_aborted("t", values=["x", "y"]) == Made(2, 4)
    assert topics.make_control_batch("t") == Made(5, 5)
    assert topics.make_tombstones("t", ["a", "b"]) == Made(6, 7)
    state = control.wait_for(
        lambda state: [log.high_watermark for log in state.partition("t").logs] == [8] * 3
    )
    first, second, third = state.partition("t").replicas
    assert topics.truncate("t", 0, second, 7) == 6
    control.wait_for(lambda state: state.partition("t").log(second).high_watermark == 8)
    assert topics.lose("t", offset=5, broker=third) == Lost(third, 5)
    control.wait_for(
        lambda state: [log.log_end_offset for log in state.partition("t").logs] == [5] * 3
    )
    topics.elect("t", 0)
    assert control.state().partition("t").leader == first
    handles = control.brokers
    handles[1].kill()
    assert [each.is_running for each in handles] == [True, False, True]
    with pytest.raises(ClusterError, match="broker 2 is not running"):
        assert handles[1].bootstrap_server
    control.start_brokers()
    servers = ",".join(each.bootstrap_server for each in handles)
    assert control.bootstrap_servers == served.bootstrap.partition(" ")[0] == servers
    topics.elect("t", 0, unclean=True)  # not needed: it has a leader
    code, _, log = served.end(signal.SIGTERM)
    assert code == 0
    assert "t-0: truncating from 8 to 5, high watermark 8" in log


def test_the_same_errors_as_in_python(serve: Serve) -> None:
    served = serve("--port", "0", "--control", "127.0.0.1:0")
    url = served.bootstrap.partition(" control=")[2]
    for call, args in (
        ("brokers.stop", {"broker": 9}),
        ("brokers.stop", {}),
        ("cluster.add_broker", {}),
        ("topics.delete", {"name": "none"}),
        ("topics.delete", {"name": 1}),
        ("nothing.such", {}),
    ):
        answer = send(f"{url}{path_of(call)}", args)
        error = asyncio.run(error_in_python(call, args))
        assert answer.status == error.status
        assert answer.body["detail"] == error.message
        assert answer.body.get("field") == error.field


async def error_in_python(call: str, args: Mapping[str, Any]) -> ControlError:
    import tidelog
    from tidelog.control.wire import error_form

    async with tidelog.Cluster() as cluster:
        try:
            await cluster.ask(call, args)
        except tidelog.TidelogError as error:
            return ControlError(**error_form(error))
    raise AssertionError("no error")


def test_serve_says_what_is_wrong_with_the_address() -> None:
    ended = subprocess.run(
        [*COMMAND, "serve", "--port", "0", "--control", "0.0.0.0:0"],
        capture_output=True,
        text=True,
        timeout=END_S_MAX,
        check=False,
    )
    reason = "--control: other machines reach 0.0.0.0: set TIDELOG_CONTROL_TOKEN to a secret"
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", f"tidelog: {reason}\n")


def test_without_it_nothing_of_it_is_imported() -> None:
    script = (
        "import sys, tidelog, asyncio\n"
        "import tidelog.cli.serve_cluster\n"
        "async def run():\n"
        "    async with tidelog.Cluster(): pass\n"
        "asyncio.run(run())\n"
        "print(*({'starlette', 'uvicorn', 'h11', 'tidelog.control.table'} & {*sys.modules}))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "\n"


def test_silent_connections_above_the_limit_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """They took all descriptors of the process, and its logs found none."""
    monkeypatch.setattr("tidelog.control.http.CONNECTIONS_MAX", 3)

    def use(url: str) -> None:
        host, _, port = url.removeprefix("http://").rpartition(":")
        with ExitStack() as silent:
            refused: list[socket.socket] = []
            while not refused:  # those before it count once the loop has made them
                silent.enter_context(socket.create_connection((host, int(port))))
                client = silent.enter_context(socket.create_connection((host, int(port))))
                refused, _, _ = select.select([client], [], [], 0.1)
            assert client.recv(1) == b""
        status = 0
        while status != 200:  # the door learns that they are closed
            with suppress(OSError):
                status = send(f"{url}/v1/health").status

    with_door(use)


def test_connections_that_send_no_whole_request_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """128 of them kept others out for ever."""
    monkeypatch.setattr("tidelog.control.http.SILENT_S_MAX", 0.05)
    head = b"POST /v1/brokers/describe HTTP/1.1\r\nHost: localhost\r\n"

    def use(url: str) -> None:
        host, _, port = url.removeprefix("http://").rpartition(":")
        with ExitStack() as silent:
            for sent in (b"", head, head + b"Content-Length: 9\r\n\r\n{"):
                client = silent.enter_context(
                    socket.create_connection((host, int(port)), END_S_MAX)
                )
                client.sendall(sent)
                with suppress(ConnectionResetError):
                    assert client.recv(1) == b""

    with_door(use)


def test_a_connection_is_silent_while_it_owes_the_same_request() -> None:
    aborted: list[str] = []

    class Connection:
        def __init__(self, name: str) -> None:
            self.conn = self
            self.transport = self
            self.their_state: object = h11.IDLE
            self.cycle: object = None
            self.abort = partial(aborted.append, name)

    silent, slow, answered, asking = map(Connection, ("silent", "slow", "answered", "asking"))
    all_ = [silent, slow, answered, asking]
    waiting = drop_silent(all_, {})
    assert aborted == []
    slow.cycle, slow.their_state = object(), h11.SEND_BODY
    asking.their_state = h11.DONE
    answered.cycle = object()
    waiting = drop_silent(all_, waiting)
    assert aborted == ["silent"]
    asking.their_state = h11.IDLE
    answered.cycle = object()
    waiting = drop_silent(all_[1:], waiting)
    assert aborted == ["silent", "slow"]
    drop_silent(all_[2:], waiting)
    assert aborted == ["silent", "slow", "answered", "asking"]
