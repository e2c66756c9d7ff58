"""`tidelog serve` and the console tools, as processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest

import tidelog
from support.processes import COMMAND, END_S_MAX, READY, Serve, Start, ended
from tidelog.__main__ import COMMANDS, main
from tidelog.embedded.simple_client import create_topic, delete_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def command(*words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words],
        capture_output=True,
        text=True,
        timeout=END_S_MAX,
        check=False,
        input=text,
    )


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + END_S_MAX
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def cluster() -> Iterator[tidelog.RunningCluster]:
    with tidelog.run() as running:
        yield running


# -- serve -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_says_one_line_and_stops_cleanly(serve: Serve, number: int, tmp_path: Path) -> None:
    served = serve("--port", "0", TMPDIR=str(tmp_path))
    assert served.line.startswith(f"{READY}127.0.0.1:")
    assert len(list(tmp_path.iterdir())) == 1  # its data
    assert served.end(number) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_serve_keeps_a_data_dir(serve: Serve, tmp_path: Path) -> None:
    data = tmp_path / "data"
    served = serve("--port", "0", "--data-dir", str(data))
    assert command("topics", "-b", served.bootstrap, "create", "kept").returncode == 0
    assert served.end(signal.SIGTERM)[0] == 0
    again = serve("--port", "0", "--data-dir", str(data))
    assert "kept" in command("topics", "-b", again.bootstrap, "list").stdout
    assert again.end(signal.SIGTERM)[0] == 0


def test_serve_stops_with_a_client_that_waits(serve: Serve) -> None:
    served = serve("--port", "0")
    host, _, port = served.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(b"\0\0\1\0")  # a request that never comes whole
        assert served.end(signal.SIGTERM) == (0, "", "")
        with contextlib.suppress(ConnectionResetError):  # for the bytes the broker had not read
            assert client.recv(1) == b""


def test_serve_stops_cleanly_while_it_starts(start: Start, tmp_path: Path) -> None:
    process = start(*COMMAND, "serve", "--port", "0", TMPDIR=str(tmp_path))
    while not list(tmp_path.iterdir()):  # its data
        time.sleep(0.001)
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 0
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_host_is_one_line() -> None:
    result = command("serve", "--host", "no.such.host.invalid", "--port", "0")
    assert result.returncode == 1
    assert result.stderr.startswith("tidelog: cannot listen on no.such.host.invalid:0: ")
    assert "Unknown error" not in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_taken_port_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = command("serve", "--port", str(port))
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr == (
        f"tidelog: cannot listen on 127.0.0.1:{port}: Address already in use\n"
    )


def test_a_locked_data_dir_is_one_line(serve: Serve, tmp_path: Path) -> None:
    first = serve("--port", "0", "--data-dir", str(tmp_path))
    second = command("serve", "--port", "0", "--data-dir", str(tmp_path))
    assert second.returncode == 1
    assert second.stderr.startswith(f"tidelog: log directory {tmp_path} is locked")
    assert second.stderr.count("\n") == 1
    assert first.end(signal.SIGTERM)[0] == 0


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["--set", "log.retention.hour=1"], "log.retention.hour"),
        (["--set", "num.partitions=none"], "num.partitions"),
        (["--set", "num.partitions=0"], "num.partitions"),
        (["--set", "listeners=HTTPS://127.0.0.1:0"], "listeners"),
        (["--set", "listeners=SSL://127.0.0.1:0"], "ssl.keystore.location"),
        (["--set", "oops"], "--set"),
    ],
)
def test_a_bad_setting_is_one_line_naming_its_key(words: list[str], key: str) -> None:
    result = command("serve", *words)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("tidelog: ")
    assert key in result.stderr
    assert result.stderr.count("\n") == 1


def test_settings_come_from_file_and_command_line(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "# ours\nlisteners=PLAINTEXT://127.0.0.1:0\nnum.partitions=3\n"
        f"log.dirs={tmp_path}/data\nauto.create.topics.enable=false\n"
    )
    served = serve("-c", str(file), "--set", "num.partitions=4")
    assert command("topics", "-b", served.bootstrap, "create", "t").returncode == 0
    listed = command("topics", "-b", served.bootstrap, "list", "--json")
    assert json.loads(listed.stdout) == [{"name": "t", "partitions": 4}]
    assert served.end(signal.SIGTERM)[0] == 0
    assert (tmp_path / "data" / "meta.properties").exists()


def test_a_tier_beside_the_data_takes_the_topics_of_a_pattern(serve: Serve, tmp_path: Path) -> None:
    words = ["--tiered", "--tiered-topics", "fl*,train", "--set", "log.segment.bytes=1048576"]
    served = serve("--port", "0", *words, TMPDIR=str(tmp_path))
    create_topic(served.bootstrap, "other", 1, {})
    create_topic(served.bootstrap, "flights", 1, {})
    line = 400_000 * "x" + "\n"
    for topic in ("other", "flights"):  # that of the tier last
        assert command("produce", "-b", served.bootstrap, topic, text=3 * line).returncode == 0
    (data,) = tmp_path.iterdir()
    until(lambda: list(data.glob("remote-tier/flights-*/**/*.log")))
    assert not list(data.glob("remote-tier/other-*"))
    asked = ("topic", "flights", "--json")
    described = command("configs", "-b", served.bootstrap, "describe", *asked)
    assert {"setting": "remote.storage.enable", "value": "true", "from": "topic"} in json.loads(
        described.stdout
    )
    assert served.end(signal.SIGTERM)[0] == 0
    assert list(tmp_path.iterdir()) == []


def test_isolated_brokers_serve_metrics_on_consecutive_ports(serve: Serve) -> None:
    """And of their lives, if it is asked for."""
    first = two_ports_in_a_row()
    listener = f"metrics.prometheus.listener=127.0.0.1:{first}"
    asked = ("--set", listener, "--log-level", "info")
    served = serve("--port", "0", "--brokers", "2", "--isolated", *asked)
    words = ["create", "spread", "--partitions", "2", "--replication-factor", "1"]
    assert command("topics", "-b", served.bootstrap, *words).returncode == 0

    def partitions(port: int) -> list[str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=END_S_MAX) as told:
            return re.findall(
                r'^kafka_log_log_size{partition="(.)",topic="spread"}',
                told.read().decode(),
                re.MULTILINE,
            )

    until(lambda: sorted(map(partitions, (first, first + 1))) == [["0"], ["1"]])
    code, _, err = served.end(signal.SIGTERM)
    assert code == 0
    assert all(f"broker {broker}: RUNNING" in err for broker in (1, 2))


def two_ports_in_a_row() -> int:
    """The first of them. Neither brokers of other tests nor the system take any from this range."""
    for first in range(10_000 + 2 * os.getpid() % 4000, 15_000, 2):
        with contextlib.suppress(OSError), contextlib.ExitStack() as taken:
            for port in (first, first + 1):
                taken.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    raise AssertionError("no ports")


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    result = command("serve", "-c", f"{tmp_path}/none")
    assert result.returncode == 1
    assert result.stderr == f"tidelog: {tmp_path}/none: No such file or directory\n"


def test_serve_says_so_when_it_could_not_stop_in_order(serve: Serve, tmp_path: Path) -> None:
    """A disk that takes no byte more: requests are refused, and there is no clean-shutdown mark."""
    served = serve("--port", "0", "--data-dir", str(tmp_path))
    script = (
        "import os, resource, sys\n"
        "resource.prlimit(int(sys.argv[1]), resource.RLIMIT_FSIZE, (0, 0))"
    )
    subprocess.run([sys.executable, "-c", script, str(served.process.pid)], check=True)
    result = command("topics", "-b", served.bootstrap, "create", "t")
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    code, _, err = served.end(signal.SIGTERM)
    assert code == 1
    assert "tidelog: did not stop cleanly: " in err
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_serve_ends_with_its_standard_input(serve: Serve) -> None:
    served = serve("--port", "0", "--until-stdin-ends")
    assert ended(served.process) == (0, "", "")  # which closes its input


# -- the overview ----------------------------------------------------------------------------------


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in COMMANDS)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tidelog {tidelog.__version__}\n"


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sing"]) == 2
    assert "sing" in capsys.readouterr().err


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "demo"])
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"tidelog {name}" in capsys.readouterr().out


# -- console tools, in this process: `main` is what the command runs -------------------------------


def tool(
    capsys: pytest.CaptureFixture[str], cluster: tidelog.RunningCluster, *words: str
) -> tuple[int, str, str]:
    name, *rest = words
    code = main([name, "-b", cluster.bootstrap_servers, *rest])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_first_broker_that_answers_is_asked(
    cluster: tidelog.RunningCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with every Kafka client: `bootstrap_servers` of several brokers is a list."""
    dead = "127.0.0.1:1"
    servers = f"{dead},{cluster.bootstrap_servers}"
    create_topic(servers, "of-several", 1, {})
    assert main(["topics", "-b", servers, "list"]) == 0
    assert "of-several" in capsys.readouterr().out
    delete_topic(servers, "of-several")
    assert main(["topics", "-b", f"{dead},{dead}", "list"]) == 1
    assert f"no broker at {dead},{dead}: " in capsys.readouterr().err
    assert main(["topics", "-b", f"{cluster.bootstrap_servers},nonsense", "list"]) == 1
    assert "is not of the form HOST:PORT" in capsys.readouterr().err


def test_topics(cluster: tidelog.RunningCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool(capsys, cluster, "topics", "create", "a-topic", "--partitions", "2") == (
        0,
        "a-topic: created\n",
        "",
    )
    code, out, err = tool(capsys, cluster, "topics", "create", "a-topic")
    assert (code, out) == (1, "")
    assert "TOPIC_ALREADY_EXISTS" in err
    assert err.count("\n") == 1
    assert tool(capsys, cluster, "topics", "create", "a-topic", "--if-not-exists")[0] == 0
    assert tool(capsys, cluster, "topics", "grow", "a-topic", "--partitions", "3")[0] == 0
    code, out, _ = tool(capsys, cluster, "topics", "describe", "a-topic", "--json")
    rows = json.loads(out)
    assert [row["partition"] for row in rows] == [0, 1, 2]
    assert all((row["first"], row["next"]) == (0, 0) for row in rows)
    code, out, _ = tool(capsys, cluster, "topics", "list")
    assert ["a-topic", "3"] in [line.split() for line in out.splitlines()]
    assert tool(capsys, cluster, "topics", "delete", "a-topic") == (0, "a-topic: deleted\n", "")
    assert tool(capsys, cluster, "topics", "describe", "a-topic")[0] == 1


def test_configs(cluster: tidelog.RunningCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.create_topic("configured", config={"retention.ms": 1000})
    resource = ("topic", "configured")
    code, out, _ = tool(capsys, cluster, "configs", "describe", *resource, "--json")
    assert json.loads(out) == [{"setting": "retention.ms", "value": "1000", "from": "topic"}]
    assert tool(capsys, cluster, "configs", "set", *resource, "cleanup.policy=compact")[0] == 0
    assert tool(capsys, cluster, "configs", "unset", *resource, "retention.ms")[0] == 0
    code, out, _ = tool(capsys, cluster, "configs", "describe", *resource)
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["cleanup.policy", "compact", "topic"]
    ]
    assert tool(capsys, cluster, "configs", "unset", *resource, "cleanup.policy")[0] == 0
    code, out, err = tool(capsys, cluster, "configs", "describe", *resource)
    assert (code, out, "--all" in err) == (0, "", True)
    code, _, err = tool(capsys, cluster, "configs", "set", *resource, "no.such.key=1")
    assert code == 1
    assert err.count("\n") == 1


def test_produce_consume_and_groups(
    cluster: tidelog.RunningCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create_topic("lines", partitions=1)
    bootstrap = cluster.bootstrap_servers
    words = ["produce", "-b", bootstrap, "lines", "--key-separator", ":", "--null", "NIL"]
    result = command(
        *words, "--header", "h=x", "--compression", "zstd", text="a:1\nb:zwei\nc:NIL\n"
    )
    assert (result.returncode, result.stdout) == (0, "")
    _code, out, _ = tool(
        capsys, cluster, "consume", "lines", "--from-beginning", "--until-end", "--json"
    )
    records = [json.loads(line) for line in out.splitlines()]
    assert [(r["offset"], r["key"], r["value"]) for r in records] == [
        (0, "a", "1"),
        (1, "b", "zwei"),
        (2, "c", None),
    ]
    assert records[0]["headers"] == [["h", "x"]]
    assert tool(
        capsys, cluster, "consume", "lines", "--partition", "0", "--offset", "1", "-n", "1"
    )[:2] == (0, "zwei\n")
    words = ["lines", "--group", "readers", "--from-beginning", "-n", "2", "--key", "="]
    assert tool(capsys, cluster, "consume", *words)[:2] == (0, "a=1\nb=zwei\n")
    _, out, _ = tool(capsys, cluster, "groups", "describe", "readers", "--json")
    assert json.loads(out)[0] == {
        "group": "readers",
        "state": "Empty",
        "topic": "lines",
        "partition": 0,
        "committed": 2,
        "end": 3,
        "lag": 1,
    }
    assert "readers" in tool(capsys, cluster, "groups", "list")[1]
    assert tool(capsys, cluster, "groups", "delete", "readers")[:2] == (0, "readers: deleted\n")
    assert tool(capsys, cluster, "groups", "delete", "readers")[0] == 1


def test_errors_are_one_line(
    cluster: tidelog.RunningCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (
        ["consume", "nowhere", "-n", "1"],
        ["consume", "nowhere", "--offset", "1"],
        ["groups", "describe", "nobody"],
        ["topics", "create", "in valid"],
    ):
        code, out, err = tool(capsys, cluster, *words)
        assert (code, out, err.count("\n")) == (1, "", 1), words
    assert "nowhere" not in tool(capsys, cluster, "topics", "list")[1]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for words in (["topics", "list"], ["consume", "t"], ["configs", "describe", "topic", "t"]):
        assert main([words[0], "-b", f"127.0.0.1:{port}", *words[1:]]) == 1
        assert capsys.readouterr().err.count("\n") == 1
    unable = command("produce", "-b", f"127.0.0.1:{port}", "t", text="a\n").stderr
    assert (unable.count("KafkaConnectionError"), unable.count("\n")) == (1, 1)
    assert main(["topics", "-b", "nonsense", "list"]) == 1
    assert "HOST:PORT" in capsys.readouterr().err
