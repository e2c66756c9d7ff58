"""Damaged objects of the remote tier, of which one of three brokers may still have the records."""

from __future__ import annotations

import asyncio
import errno
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from damage.directory import SEGMENTS, SETTINGS, create, flip
from support.clusters import STEADY, has_isr_of, run, until
from support.txn_client import Nodes, TxnProducer
from tidelog.embedded.tiered import with_tier
from tidelog.healing import remote_copies
from tidelog_storage.config import LogConfig
from tidelog_storage.remote.api import RemoteStorageError, SegmentState
from tidelog_storage.remote.checks import check_segment
from tidelog_storage.remote.directory_store import DirectoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tidelog_storage.remote.api import RemoteSegment

METRIC = ("kafka.log.remote", "DamagedOffsets")
TOPIC = "r"
CONFIG = {**SEGMENTS, "remote.storage.enable": "true"}


class Brokers:
    """Three brokers with one tier; all sealed segments are remote, none of the first few is local
    to the leader any more."""

    def __init__(self, cluster: tidelog.Cluster, tier: Path) -> None:
        self.cluster = cluster
        self.tier = tier

    def partition(self, node: Any) -> Any:
        return node.server.replicas.partition(TOPIC, 0)

    @property
    def leader(self) -> Any:
        return next(node for node in self.cluster.brokers if self.partition(node).is_leader)

    @property
    def followers(self) -> list[Any]:
        return [node for node in self.cluster.brokers if node is not self.leader]

    def segments(self, node: Any | None = None) -> list[RemoteSegment]:
        """What is finished, as a broker knows it."""
        held = (node or self.leader).server.tier
        (name,) = [each.partition for each in held.partitions.values()]
        finished = SegmentState.COPY_SEGMENT_FINISHED
        return [each for each in held.metadata.segments(name) if each.state is finished]

    def objects(self, segment: RemoteSegment) -> dict[str, Path]:
        """The files of a remote segment by their endings."""
        found = self.tier.rglob(f"{segment.start_offset:020d}-*")
        return {path.name[path.name.index(".") :]: path for path in found}

    async def scrub(self) -> None:
        await self.leader.server.healing.healer.scrub_all()

    async def look_again(self) -> None:
        await self.leader.server.healing.healer.look_at_remote(self.partition(self.leader))

    def faults(self) -> list[str]:
        store = self.leader.server.tier.storage
        return [fault for each in self.segments() for fault in check_segment(store, each)]

    def damaged_offsets(self) -> float:
        """The metric."""
        for name, samples in self.leader.server.meters.gauges():
            if (name.domain, name.name) == METRIC:
                (sample,) = samples
                return sample.value
        raise AssertionError("there is no such metric")

    def expire(self, *nodes: Any) -> None:
        """Have local retention delete all that is remote."""
        for node in nodes:
            self.retain(node)
            start = self.partition(node).log.local_log_start_offset
            assert start > self.segments()[-1].start_offset

    def retain(self, node: Any) -> None:
        log = self.partition(node).log
        config = log.config
        log.config = LogConfig.from_overrides(config, {**CONFIG, "local.retention.bytes": "1"})
        log.delete_old_segments(node.server.runtime.clock.wall_ms())
        log.config = config


@asynccontextmanager
async def brokers(folder: Path) -> AsyncIterator[Brokers]:
    tier = folder / "tier"
    settings = {**STEADY, **SETTINGS, "log.retention.check.interval.ms": "3600000"}
    settings = with_tier({**settings, "rsm.config.dir": str(tier)}, None, 3) | settings
    async with tidelog.Cluster(settings, brokers=3, data_dir=str(folder / "data")) as cluster:
        async with Nodes(cluster.bootstrap_servers) as nodes:
            await create(nodes, TOPIC, CONFIG, 3)
            await until(lambda: has_isr_of(cluster, TOPIC, 3), "all in sync")
            producer = TxnProducer(nodes, "producer")
            await producer.init()
            for number in range(40):
                await producer.send(TOPIC, f"{number:02}".encode() * 60)
                if number % 4 == 3:
                    await producer.end(commit=number % 8 == 3)
        it = Brokers(cluster, tier)
        logs = [it.partition(node).log for node in cluster.brokers]
        await until(lambda: len({log.high_watermark for log in logs}) == 1)
        await until(lambda: len(it.segments()) == len(logs[0].segments) - 1, "copies")
        for node in cluster.brokers:
            await until(lambda node=node: len(it.segments(node)) == len(it.segments()))
        await until(lambda: len({log.highest_remote_offset for log in logs}) == 1)
        yield it


DAMAGES: dict[str, Callable[[dict[str, Path]], object]] = {
    "a bit of the records": lambda files: flip(files[".log"]),
    "the records are cut": lambda files: files[".log"].write_bytes(files[".log"].read_bytes()[:99]),
    "a bit of each index": lambda files: [
        flip(path) for ending, path in files.items() if ending not in (".log", ".manifest.json")
    ],
    "the manifest is gone": lambda files: files[".manifest.json"].unlink(),
    "all is gone": lambda files: [path.unlink() for path in files.values()],
}


def test_a_damaged_remote_segment_is_copied_again_from_a_follower(tmp_path: Path) -> None:
    async def test() -> None:
        async with brokers(tmp_path) as it:
            first, *_, last = it.followers
            it.expire(it.leader, first)
            assert len(it.segments()) > len(DAMAGES)
            before = {
                segment.start_offset: {e: p.read_bytes() for e, p in it.objects(segment).items()}
                for segment in it.segments()
            }
            metadata = {segment.start_offset: segment for segment in it.segments()}
            assert any(".txnindex" in files for files in before.values())
            damaged = it.segments()[: len(DAMAGES)]
            for segment, damage in zip(damaged, DAMAGES.values(), strict=True):
                damage(it.objects(segment))
            await it.scrub()
            assert it.faults() == []
            assert it.partition(last).log.local_log_start_offset == 0
            for segment in it.segments():
                old = metadata[segment.start_offset]
                assert (segment.end_offset, segment.epochs, segment.txn_index_empty) == (
                    old.end_offset,
                    old.epochs,
                    old.txn_index_empty,
                )
                for ending, path in it.objects(segment).items():
                    if ending != ".manifest.json":
                        assert path.read_bytes() == before[segment.start_offset][ending], ending
            assert [each.start_offset for each in it.segments()] == sorted(before)

    run(test)


def test_damage_without_a_sound_copy_is_logged_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with brokers(tmp_path) as it:
            it.expire(*it.cluster.brokers)
            segment = it.segments()[1]
            path = it.objects(segment)[".log"]
            good = path.read_bytes()
            flip(path)
            await it.scrub()
            offsets = f"{segment.start_offset}..{segment.end_offset}"
            assert f"remote segment {offsets} cannot be repaired" in caplog.text
            assert it.damaged_offsets() == segment.end_offset - segment.start_offset + 1
            assert it.faults()
            assert path.exists(), "what is left of it stays"
            path.write_bytes(good)
            await it.look_again()
            assert it.damaged_offsets() == 0
            assert it.objects(segment)[".log"] == path

    run(test)


def test_a_copy_that_fails_leaves_what_is_left_of_a_damaged_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is full while an index is damaged: the records are still there."""

    async def test() -> None:
        async with brokers(tmp_path) as it:
            it.expire(*it.cluster.brokers)
            segment = it.segments()[1]
            objects = it.objects(segment)
            flip(objects[".index"])
            left = {path: path.read_bytes() for path in objects.values()}
            with monkeypatch.context() as patched:
                patched.setattr(DirectoryStore, "_write", _is_full)
                await it.scrub()
            assert {path: path.read_bytes() for path in it.objects(segment).values()} == left
            await it.look_again()
            assert it.faults() == []

    run(test)


def _is_full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("what", ["a bit of the records", "all is gone"])
def test_a_read_that_meets_a_damaged_segment_has_it_copied_again(tmp_path: Path, what: str) -> None:
    async def test() -> None:
        async with brokers(tmp_path) as it:
            it.expire(it.leader)
            segment = it.segments()[1]
            DAMAGES[what](it.objects(segment))
            async with Nodes(it.cluster.bootstrap_servers) as nodes:
                values: list[bytes] = []
                while it.faults() or not values:
                    with suppress(AssertionError):  # an error, until it is repaired
                        values, _ = await nodes.fetched(TOPIC, offset=segment.start_offset)
                    await asyncio.sleep(0.02)

    run(test)


def test_local_retention_keeps_what_is_damaged_remotely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is full: the local segment is the last copy."""

    async def test() -> None:
        async with brokers(tmp_path) as it:
            segment = it.segments()[1]
            flip(it.objects(segment)[".log"])
            log = it.partition(it.leader).log
            tiered = it.leader.server.tier.partitions[TOPIC, 0]
            tiered.note_damaged(replace(segment, epochs=((99, segment.start_offset),)))
            assert log.kept_from is None, "it is of another branch"
            with monkeypatch.context() as patched:
                patched.setattr(DirectoryStore, "_write", _is_full)
                await it.scrub()
                it.retain(it.leader)
                assert log.local_log_start_offset == segment.start_offset
                kept: list[int | None] = []

                def check(*arguments: Any) -> list[str]:
                    kept.append(log.kept_from)
                    return check_segment(*arguments)

                patched.setattr(remote_copies, "check_segment", check)
                await it.scrub()
                assert set(kept) == {segment.start_offset}, "a later scrub does not let it go"
            await it.look_again()
            assert it.faults() == []
            it.expire(it.leader)

    run(test)


def test_a_leader_that_rolled_elsewhere_has_the_records_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with brokers(tmp_path) as it:
            it.expire(*it.followers)
            monkeypatch.setattr(remote_copies, "local_copy", lambda *_: None)
            flip(it.objects(it.segments()[1])[".log"])
            await it.scrub()
            assert it.faults() == []

    run(test)


def test_a_repair_does_without_earlier_records_that_are_gone(tmp_path: Path) -> None:
    """A leader rolled elsewhere, so that another remote segment had them."""

    async def test() -> None:
        async with brokers(tmp_path) as it:
            _, earlier, other, *_ = it.segments()
            segment = replace(other, start_offset=other.end_offset)
            remote = it.leader.server.healing.healer._remote
            partition = it.partition(it.leader)
            before, lead_in = await remote._before(partition, segment)
            assert before == earlier
            assert lead_in
            DAMAGES["all is gone"](it.objects(other))
            assert await remote._before(partition, segment) == (None, b"")

    run(test)


def test_a_damaged_copy_that_cannot_be_deleted_is_copied_again_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with brokers(tmp_path) as it:
            segment = it.segments()[1]
            flip(it.objects(segment)[".log"])
            logs = f"{segment.start_offset:020d}-*.log"
            with monkeypatch.context() as patched:
                patched.setattr(DirectoryStore, "delete_segment", _is_refused)
                await it.scrub()
                assert len(list(it.tier.rglob(logs))) == 2
                assert it.faults() == []
            await until(lambda: len(list(it.tier.rglob(logs))) == 1, "expiration deletes it")
            assert it.faults() == []

    run(test)


def _is_refused(*_: object) -> None:
    raise RemoteStorageError("not today")
