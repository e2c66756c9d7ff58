"""A lone broker with a remote tier: each of the two copies of a segment repairs the other."""

from __future__ import annotations

import asyncio
import inspect
import types
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from damage.directory import SEGMENTS, create, flip, server_on
from support.clusters import run, until
from support.logs import append, open_log
from support.remote import remote_segment
from support.txn_client import Nodes, TxnProducer
from tidelog.healing.remote_copies import RemoteCopies
from tidelog.simulation.disk import SimDisk
from tidelog_storage.remote.api import RemoteResourceNotFound

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tidelog_storage.remote.api import RemoteSegment


def logs_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.log"))


def test_a_local_and_a_remote_copy_repair_each_other(tmp_path: Path) -> None:
    async def test() -> None:
        server = server_on(tmp_path / "data", tmp_path / "tier")
        await server.start()
        try:
            async with Nodes(server.bootstrap_servers) as nodes:
                await create(nodes, "r", {**SEGMENTS, "remote.storage.enable": "true"})
                producer = TxnProducer(nodes, "producer")
                await producer.init()
                for number in range(20):
                    await producer.send("r", f"{number:02}".encode() * 60)
                await producer.end(commit=True)
            await until(lambda: len(logs_in(tmp_path / "tier")) > 2, "copies")
            assert server.healing is not None
            for folder in (tmp_path / "tier", tmp_path / "data" / "r-0"):
                path = logs_in(folder)[1]
                good = path.read_bytes()
                flip(path)
                await server.healing.healer.scrub_all()
                assert logs_in(folder)[1].read_bytes() == good
        finally:
            await server.stop()

    run(test)


def test_a_repair_that_is_dropped_with_its_loop_awaits_nothing() -> None:
    files = SimDisk("repair").files()
    log = open_log(files)
    append(log)
    runtime = SimpleNamespace(files=files, executor=SimpleNamespace(run=_never))
    pools = SimpleNamespace(reader=SimpleNamespace(run=_at_once))
    metadata = SimpleNamespace(segments=lambda _partition: [])
    tier = SimpleNamespace(metadata=metadata, pools=pools, storage=EmptyStore())
    remote: Any = RemoteCopies(tier, None, runtime=runtime, folder="repair", bytes_per_second=1)
    segment = remote_segment()
    repair = remote._replace_by(SimpleNamespace(log=log), None, segment, memoryview(b""))
    repair.send(None)
    assert inspect.getcoroutinestate(repair) == inspect.CORO_SUSPENDED
    repair.close()  # as Python does with what nothing refers to; RuntimeError if it awaits again
    assert inspect.getcoroutinestate(repair) == inspect.CORO_CLOSED


@pytest.mark.parametrize(("is_new_topic", "leads"), [(False, True), (True, True), (False, False)])
def test_a_scrub_notes_only_what_is_led_here(is_new_topic: bool, leads: bool) -> None:
    """Meanwhile a new topic may have the name, or another broker lead. A follower that noted a
    damage would keep its local records for ever."""
    segment = remote_segment()
    name = segment.topic_id_partition
    noted: list[RemoteSegment] = []
    tiered = SimpleNamespace(
        partition=name._replace(topic_id=UUID(int=2)) if is_new_topic else name,
        leads=leads,
        damaged={},
        note_damaged=noted.append,
    )
    tier: Any = SimpleNamespace(
        metadata=SimpleNamespace(segments=lambda _: [segment]),
        pools=SimpleNamespace(reader=SimpleNamespace(run=_find_damage)),
        storage=EmptyStore(),
        partitions={(name.topic, name.partition): tiered},
    )
    log = SimpleNamespace(log_start_offset=0, log_end_offset=0, epochs=SimpleNamespace(entries=()))
    scrubbed: Any = SimpleNamespace(  # the replica that the scrub began with
        topic_id=name.topic_id.bytes, topic_partition=(name.topic, name.partition), log=log
    )
    runtime: Any = SimpleNamespace(files=SimDisk("scrub").files())
    remote = RemoteCopies(tier, None, runtime=runtime, folder="repair", bytes_per_second=1)
    asyncio.run(remote._check(scrubbed, segment))
    is_noted = leads and not is_new_topic
    assert noted == ([segment] if is_noted else [])
    tiered.damaged[segment.segment_id] = segment
    assert remote.has_damages(scrubbed) is is_noted


class EmptyStore:
    """A remote store without objects."""

    def fetch_index(self, *_: object) -> None:
        raise RemoteResourceNotFound("it is not there")


async def _at_once(function: Any, *args: object) -> Any:
    return function(*args)


async def _find_damage(*_: object) -> list[str]:
    return ["is not there"]


@types.coroutine
def _never(*_: object) -> Generator[None, None, None]:
    yield
