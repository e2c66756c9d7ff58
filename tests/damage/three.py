"""Plays cases on three brokers: one broker's copy is damaged while it is down; what comes of it.

Nothing may be lost, and all replicas are equal in the end. A broker that refuses its start is
formatted anew, as its line says, and rebuilt from the others. The cluster lives on from case to
case: one costs the restart of a broker.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import tidelog
from damage.directory import SETTINGS, TOPICS, Truth, settle_disk, write
from damage.play import UNDETECTABLE, Listener, Outcome, Verdict, find_losses, names
from support.clusters import STEADY, until
from support.txn_client import RETRIABLE, Nodes
from tidelog.cluster.formatting import format_directories, look
from tidelog.embedded.cluster_settings import ClusterError
from tidelog.runtime import system_runtime
from tidelog.start_error import StartError
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import ProduceRequest
from tidelog_protocol.records import Record, build_batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Self

    from damage.cases import Case

UNDETECTABLE_OF_THREE = UNDETECTABLE | {"offsets .log, swap, kill"}
PLAY_S_MAX = 60.0


class Three:
    """A cluster on a folder, and what it acknowledged; not to be used after a case that failed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.truth = Truth({}, -1)
        self.cluster = tidelog.Cluster(
            {**STEADY, **SETTINGS}, brokers=3, data_dir=str(folder), tiered=str(folder / "tier")
        )
        self._count = 0

    async def __aenter__(self) -> Self:
        await self.cluster.start()
        async with Nodes(self.cluster.bootstrap_servers) as nodes:
            self.truth = await write(nodes, replicas=3)
        await self._until_whole()
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(ClusterError):  # of a broker that has ended in a case that failed
            await self.cluster.stop()

    # -- a case ------------------------------------------------------------------------------------

    async def play(self, case: Case) -> Outcome | None:
        """None if there is nothing to damage."""
        listener = Listener()
        logger = logging.getLogger("tidelog")
        await self._append()
        victim = self._leader("t")
        try:
            async with asyncio.timeout(PLAY_S_MAX):
                await self._stop(victim, case.stop)
                logger.addHandler(listener)
                is_damaged = case.apply(self._root_of(victim))
                refusal = await self._start(victim)
                await self._until_whole()
                await victim.server.healing.healer.scrub_all()
                found = await self._find_faults()
        finally:
            logger.removeHandler(listener)
        if not is_damaged:
            return None
        if found:
            is_named = all(names(listener.said, each.split()[0]) for each in found)
            verdict = Verdict.NAMED if is_named else Verdict.SILENT
            return Outcome(verdict, found, listener.said)
        if refusal:
            return Outcome(Verdict.REFUSED, [], [refusal])
        return Outcome(Verdict.WHOLE, [], listener.said)

    async def _append(self) -> None:
        """Something for the active segments, of which the case before may have made an end."""
        self._count += 1
        async with Nodes(self.cluster.bootstrap_servers) as nodes:
            for number, topic in enumerate(TOPICS):
                value = f"{topic} more {self._count}".encode() * 10
                timestamp = int(time.time() * 1000) + number  # of each topic another
                records = build_batch([Record(0, timestamp, None, value)])
                await until_sent(nodes, topic, records)
                self.truth.values[topic].append(value)
        await self._until_whole()
        for server in self._servers():
            settle_disk(server)

    async def _stop(self, victim: Any, how: str) -> None:
        if how == "clean":
            await victim.stop()
        elif how == "kill":
            await victim.kill()
        else:
            await asyncio.gather(*(each.stop(controlled=False) for each in self.cluster.brokers))

    async def _start(self, victim: Any) -> str:
        """What the start of the damaged one says if it refuses; it's formatted anew then."""
        others = [each.start() for each in self.cluster.brokers if not each.is_running]
        results = await asyncio.gather(*others, return_exceptions=True)
        refusal = next((each for each in results if each is not None), None)
        if refusal is None:
            return ""
        if not isinstance(refusal, StartError):
            raise refusal
        shutil.rmtree(self._folder_of(victim), ignore_errors=True)
        found = look([each.config for each in self.cluster.brokers], system_runtime().files)
        assert found.cluster_id is not None
        format_directories(found, system_runtime(), found.cluster_id)
        await asyncio.gather(
            *(each.start() for each in self.cluster.brokers if not each.is_running)
        )
        return str(refusal)

    # -- where things are --------------------------------------------------------------------------

    def _folder_of(self, node: Any) -> Path:
        return self.folder / f"broker-{node.node_id}"

    def _root_of(self, node: Any) -> Path:
        """A folder in which a broker's files have the names that the table of cases has."""
        root = self.folder / f"of-{node.node_id}"
        if not root.exists():
            root.mkdir()
            (root / "data").symlink_to(self._folder_of(node))
            (root / "tier").symlink_to(self.folder / "tier")
        return root

    def _leader(self, topic: str) -> Any:
        for each in self.cluster.brokers:
            partition = each.server.replicas.partition(topic, 0)
            if not isinstance(partition, ErrorCode) and partition.is_leader:
                return each
        raise AssertionError(f"{topic}-0 has no leader")

    def _servers(self) -> list[Any]:
        return [each.server for each in self.cluster.brokers]

    # -- what is expected --------------------------------------------------------------------------

    async def _until_whole(self) -> None:
        """All are in sync, and have all that was acknowledged."""
        await until(self._is_whole, "all replicas are in sync")

    def _is_whole(self) -> bool:
        assert all(each.is_running for each in self.cluster.brokers), "a broker has ended"
        servers = self._servers()
        for server in servers:
            image = server.metadata.image
            if any(len(state.isr) < 3 for _, state in partitions_of(image)):
                return False
        for key, _ in partitions_of(servers[0].metadata.image):
            logs = [server.replicas.partition(*key) for server in servers]
            if any(isinstance(each, ErrorCode) for each in logs):
                return False
            if len({(each.log.log_end_offset, each.log.high_watermark) for each in logs}) > 1:
                return False
        return True

    async def _find_faults(self) -> list[str]:
        """What was lost, differs between the replicas, or is still damaged."""
        end_offset = self._leader("t").server.replicas.partition("t", 0).log.log_end_offset
        found = await find_losses(self.cluster.bootstrap_servers, self.truth, end_offset)
        servers = self._servers()
        for key, _ in partitions_of(servers[0].metadata.image):
            logs = [server.replicas.partition(*key).log for server in servers]
            start = max(log.segments.first.base_offset for log in logs)
            if len({log.log_start_offset for log in logs}) > 1:
                found.append(f"{key[0]}-{key[1]} does not begin at the same offset on all")
            contents = {b"".join(batches_of(log, start)) for log in logs}
            if len(contents) > 1:
                found.append(f"{key[0]}-{key[1]} is not the same on all")
            found += [
                f"{key[0]}-{key[1]} is damaged: {each}" for log in logs for each in log.damages
            ]
        return found


def partitions_of(image: Any) -> Iterator[tuple[tuple[str, int], Any]]:
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            yield (topic.name, index), state


def batches_of(log: Any, start: int) -> Iterator[bytes]:
    """The bytes of all batches from an offset on."""
    for segment in log.segments:
        for _, header, batch in segment.batches():
            if header.base_offset >= start:
                yield bytes(batch)


async def until_sent(nodes: Nodes, topic: str, records: bytes) -> None:
    """Sent with acks=all, again while the leader changes."""
    part = ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=records)
    data = ProduceRequest.TopicProduceData(name=topic, partition_data=[part])
    asked = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data])
    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    while error in RETRIABLE:
        answer = await nodes.ask(await nodes.leader(topic, 0), asked, 9)
        error = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        await asyncio.sleep(0)
    assert error is ErrorCode.NONE, error
