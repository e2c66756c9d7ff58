"""Sequences of requests, each on a connection of its own, to a broker that then restarts.

The requests come from the message tables, with lies in them. The broker may answer, refuse or
close the connection; it may not log a traceback, hold its loop, end, or leave a directory that
does not start. What has no answer after `QUIET_S` is parked: then the connection is closed. A slow
machine sees fewer answers, and no fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import struct
from typing import TYPE_CHECKING, Any

from fuzz.wire_targets import drawn_request
from support.logs import batch
from support.wire_client import WireClient
from tidelog.config.broker import BrokerConfig
from tidelog.embedded.cluster_settings import broker_properties
from tidelog.runtime import system_runtime
from tidelog.server import BrokerServer
from tidelog.watchdog import watch
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.messages.data import ProduceRequest

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog.watchdog import SlowCallback

QUIET_S = 0.05
CPU_MS_MAX = 2000  # of one callback
REQUESTS = (1, 2, 4, 8, 12)
FORBIDDEN = (ApiKey.UNREGISTER_BROKER,)  # may be right, and end the broker
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "num.partitions": "2",
}
OWN = "of-the-test"  # a topic with a name that no request has


class Faults(logging.Handler):
    """Collects what may not happen."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(logging.Formatter().format(record))

    def slow(self, callback: SlowCallback) -> None:
        if callback.cpu_ms > CPU_MS_MAX:
            self.found.append(f"the loop was held: {callback}")


def server_on(folder: Path) -> BrokerServer:
    properties = broker_properties(SETTINGS, port=0, data_dir=str(folder))
    return BrokerServer(BrokerConfig.from_properties(properties), system_runtime(durable=False))


def sequence(seed: str, keys: list[ApiKey]) -> list[bytes]:
    """Frames with their sizes."""
    rng = random.Random(f"sequence:{seed}")
    frames = [drawn_request(rng, keys) for _ in range(rng.choice(REQUESTS))]
    return [struct.pack(">i", len(frame)) + frame for frame in frames]


async def play(folder: Path, seeds: list[str]) -> dict[str, list[str]]:
    """Play sequences by their seeds, restart, and use the broker; return the faults by seed."""
    faults, found = Faults(), dict[str, list[str]]()
    root = logging.getLogger()
    root.addHandler(faults)
    end_watch = watch(CPU_MS_MAX, faults.slow)
    try:
        server = server_on(folder)
        await server.start()
        await _create(server.bootstrap_servers)
        keys = sorted(set(server.dispatchers[0].served) - set(FORBIDDEN))
        for seed in seeds:
            await _send(server.bootstrap_servers, sequence(seed, keys))
            await _use(server.bootstrap_servers)
            if faults.found:
                found[seed] = list(faults.found)
                faults.found.clear()
        await server.stop()
        server = server_on(folder)
        await server.start()
        await _use(server.bootstrap_servers)
        await server.stop()
    finally:
        end_watch()
        root.removeHandler(faults)
    if faults.found:
        found["restart"] = faults.found
    return found


async def _send(server: str, frames: list[bytes]) -> None:
    client = await WireClient.connect(server)
    client.writer.write(b"".join(frames))
    with contextlib.suppress(TimeoutError, asyncio.IncompleteReadError, ConnectionError):
        for _ in frames:
            async with asyncio.timeout(QUIET_S):
                await client.receive_frame()
    client.writer.close()


async def _create(server: str) -> None:
    async with await WireClient.connect(server) as client:
        topics: list[Any] = [
            CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            for name in (OWN, "t")
        ]
        await client.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 5)


async def _use(server: str) -> None:
    """The broker serves: a record is written to a topic that no request has named."""
    part = ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=bytes(batch()))
    data = ProduceRequest.TopicProduceData(name=OWN, partition_data=[part])
    asked = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data])
    async with await WireClient.connect(server) as client:
        answer = await client.ask(asked, 9)
    error = ErrorCode(answer.responses[0].partition_responses[0].error_code)
    assert error is ErrorCode.NONE, error
