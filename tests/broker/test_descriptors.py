"""A process with few file descriptors: what goes on, and what is refused."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from support.clusters import WAIT_S_MAX, create_topic, librdkafka
from support.failing_files import FailingFiles
from tidelog.config.broker import BrokerConfig
from tidelog.embedded.cluster_settings import broker_properties
from tidelog.runtime import SystemNetwork, system_runtime
from tidelog.server import BrokerServer
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.records import Record, build_batch
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tidelog_storage.os_files import OsFile

SECONDS_MAX = 120.0

# ---- connections ------------------------------------------------------------------------------


class Greeter(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(b"!")


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


GREETER = """
import asyncio, logging, resource, sys
from tidelog.runtime import SystemNetwork
from tidelog_storage.open_files import OPEN_FILES

class Greeter(asyncio.Protocol):
    def connection_made(self, transport):
        transport.write(b"!")

async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))
    OPEN_FILES.limit = 20
    listener = await SystemNetwork().listen("127.0.0.1", 0, Greeter)
    print(listener.port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

logging.basicConfig(format="%(message)s")
asyncio.run(main())
"""


def greeted(port: int, clients: ExitStack) -> bool:
    client = clients.enter_context(socket.create_connection(("127.0.0.1", port)))
    client.settimeout(WAIT_S_MAX)
    try:
        return client.recv(1) == b"!"
    except ConnectionResetError:
        return False


def greeted_and_left(port: int) -> bool:
    with ExitStack() as clients:
        return greeted(port, clients)


def test_connections_are_closed_before_they_take_what_is_kept_for_files() -> None:
    command = [sys.executable, "-c", GREETER]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with ExitStack() as clients:
            answers = [greeted(port, clients) for _ in range(60)]
        room = answers.index(False)
        assert 30 <= room <= 96 - 96 // 8 - 2 * 20  # of 96, files and the rest keep 52
        assert answers[room:] == [False] * (60 - room)
        assert any(greeted_and_left(port) for _ in range(1000))  # it closes the others' first
        _, errors = process.communicate(timeout=WAIT_S_MAX)
    (warning,) = errors.splitlines()
    assert "ulimit -n" in warning


def test_failing_accepts_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        others: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: others.append(context))
        (await SystemNetwork().listen("127.0.0.1", 0, Greeter)).close()
        (await SystemNetwork().listen("127.0.0.1", 0, Greeter)).close()
        context = {
            "message": "socket.accept() out of system resource",
            "exception": OSError(errno.EMFILE, "Too many open files"),
        }
        for _ in range(100):
            loop.call_exception_handler(dict(context))
        loop.call_exception_handler({"message": "something else"})
        assert others == [{"message": "something else"}]

    asyncio.run(test())
    assert warnings_of(caplog) == [
        "cannot accept connections, trying again: [Errno 24] Too many open files"
    ]


def test_the_soft_limit_is_raised_and_shared_out() -> None:
    program = (
        "import resource; from tidelog.runtime import system_runtime; system_runtime();"
        "from tidelog_storage.open_files import OPEN_FILES;"
        "print(*resource.getrlimit(resource.RLIMIT_NOFILE), OPEN_FILES.limit)"
    )
    command = limited(512, [sys.executable, "-c", f"{LOWER_SOFT_LIMIT}; {program}"])
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS_MAX)
    assert said.stdout.split() == ["512", "512", "64"]


LOWER_SOFT_LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (128, 512))"


def limited(limit: int, command: list[str]) -> list[str]:
    """A command that may have so many open files."""
    return ["sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh", *command]


# ---- no descriptor is no disk failure -----------------------------------------------------------


class NoDescriptors(FailingFiles):
    """A file system that has no descriptor left for some paths."""

    part: str | None = None

    def open(self, path: str, *, create: bool = False) -> OsFile:
        if self.part is not None and self.part in path:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return super().open(path, create=create)


def topic_of(name: str) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=60_000, validate_only=False)


def test_a_log_that_finds_no_descriptor_is_opened_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.replication.replica_manager._OPEN_AGAIN_S", 0.05)

    async def test() -> None:
        files = NoDescriptors()
        properties = broker_properties({"log.dirs": str(tmp_path)}, port=0)
        server = BrokerServer(BrokerConfig.from_properties(properties), system_runtime(files))
        server.on_failure = lambda: pytest.fail(str(server.failure))
        await server.start()
        files.part = "/t-1/"
        await server.parts.controller.create_topics(topic_of("t"))
        assert server.replicas.partition("t", 1) is ErrorCode.KAFKA_STORAGE_ERROR
        append_to(server, 0)
        await asyncio.sleep(0.1)
        assert server.replicas.partition("t", 1) is ErrorCode.KAFKA_STORAGE_ERROR
        files.part = None
        async with asyncio.timeout(SECONDS_MAX):
            while isinstance(server.replicas.partition("t", 1), ErrorCode):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        append_to(server, 1)
        await server.stop()
        assert (tmp_path / ".kafka_cleanshutdown").exists()

    asyncio.run(test())


def test_an_append_that_finds_no_descriptor_can_be_repeated(tmp_path: Path) -> None:
    """The roll that it needs cannot open the new segment's files."""

    async def test() -> None:
        files = NoDescriptors()
        settings = {"log.dirs": str(tmp_path), "log.segment.bytes": "1048576"}
        server = BrokerServer(
            BrokerConfig.from_properties(broker_properties(settings, port=0)),
            system_runtime(files),
        )
        server.on_failure = lambda: pytest.fail(str(server.failure))
        await server.start()
        await server.parts.controller.create_topics(topic_of("t"))
        append_to(server, 0, 600_000)
        files.part = "/t-0/"
        for _ in range(2):
            with pytest.raises(StorageError) as refused:
                append_to(server, 0, 600_000)
            assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        files.part = None
        append_to(server, 0, 600_000)
        partition = server.replicas.partition("t", 0)
        assert not isinstance(partition, ErrorCode)
        assert partition.log.log_end_offset == 2
        assert len(partition.log.segments) == 2
        await server.stop()

    asyncio.run(test())


def append_to(server: BrokerServer, index: int, size: int = 1) -> None:
    partition = server.replicas.partition("t", index)
    assert not isinstance(partition, ErrorCode)
    batch = memoryview(bytearray(build_batch([Record(0, 1, None, b"x" * size)])))
    partition.append(batch, acks=1, now_ms=1)


# ---- whole processes --------------------------------------------------------------------------


@contextmanager
def serving(limit: int, folder: Path, *options: str) -> Iterator[str]:
    """`tidelog serve` in a process that may have so many open files; where it listens."""
    command = [sys.executable, "-m", "tidelog", "serve", "--port", "0", "--data-dir", str(folder)]
    process = subprocess.Popen(
        limited(limit, [*command, *options]),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield line.split("=")[-1].strip()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=SECONDS_MAX)
        assert process.returncode == 0, errors
        assert "Too many open files" not in errors
        assert "Traceback" not in errors
    finally:
        process.kill()
        process.communicate()


def few_partitions(count: int) -> list[str]:
    """So many for each internal topic: each costs the disk of the test a few syncs."""
    names = ("offsets.topic.num.partitions", "transaction.state.log.num.partitions")
    return [word for name in names for word in ("--set", f"{name}={count}")]


def transact(bootstrap: str) -> None:
    """Read a record in a group and commit its offset in a transaction."""
    from confluent_kafka import Consumer, Producer

    producer = Producer(librdkafka(bootstrap, transactional_id="t"))
    producer.init_transactions(WAIT_S_MAX)
    consumer = Consumer(librdkafka(bootstrap, group_id="g", auto_offset_reset="earliest"))
    consumer.subscribe(["t"])
    producer.begin_transaction()
    producer.produce("t", b"in a transaction", partition=0)
    producer.commit_transaction(WAIT_S_MAX)
    message = None
    while message is None:
        message = consumer.poll(1.0)
    assert message.error() is None
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), WAIT_S_MAX
    )
    producer.commit_transaction(WAIT_S_MAX)
    consumer.close()


def committed(bootstrap: str) -> int:
    """How many records the topic has."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    settings = {"group.id": "none", "enable.partition.eof": True, "enable.auto.commit": False}
    consumer = Consumer(librdkafka(bootstrap) | settings)
    consumer.assign([TopicPartition("t", 0, 0)])
    count = 0
    while True:
        message = consumer.poll(WAIT_S_MAX)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            consumer.close()
            return count
        count += 1


def test_three_brokers_with_few_descriptors_serve_groups_and_transactions(tmp_path: Path) -> None:
    """The internal topics alone have more logs."""
    pytest.importorskip("confluent_kafka")
    options = ["--brokers", "3", *few_partitions(20)]
    for life in range(2):
        with serving(160, tmp_path, *options) as bootstrap:
            if not life:
                create_topic(bootstrap, "t", 1, 3)
            transact(bootstrap)
            assert committed(bootstrap) == life + 1


def test_a_broker_with_more_partitions_and_clients_than_descriptors_still_serves(
    tmp_path: Path,
) -> None:
    pytest.importorskip("confluent_kafka")
    options = few_partitions(1)
    with serving(160, tmp_path, *options) as bootstrap:
        create_topic(bootstrap, "many", 170, 1)
        host, _, port = bootstrap.rpartition(":")
        create_topic(bootstrap, "t", 1, 1)
        for count in (200, 20):  # the first take all that is for connections, and leave it
            with ExitStack() as idle:
                for _ in range(count):
                    idle.enter_context(socket.create_connection((host, int(port))))
                if count == 20:
                    transact(bootstrap)
        create_topic(bootstrap, "more", 10, 1)
        transact(bootstrap)
    with serving(160, tmp_path, *options) as bootstrap:
        transact(bootstrap)
        assert committed(bootstrap) == 3
