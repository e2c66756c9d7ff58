"""`tidelog tiers` and `tidelog tiers verify`, on a real cluster over the directory store."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

import tidelog
from support.clusters import image_of, run, until
from support.remote_metadata import segment
from support.txn_client import Nodes, TxnProducer
from tidelog.cli import tiers
from tidelog.cli.tiers import main
from tidelog.embedded.ports import Ports
from tidelog.embedded.tier_view import PartitionTiers
from tidelog.embedded.tiered import DIRECTORY_STORE, S3_STORE
from tidelog.runtime import system_runtime
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.remote.api import (
    RetriableRemoteStorageError,
    SegmentState,
    TopicIdPartition,
)
from tidelog_storage.remote.directory_store import DirectoryStore
from tidelog_storage.remote.metadata_records import metadata_partition
from tier.admin import create_topic, delete_topic
from tier.harness import TieredCluster, kv
from tier.recording_store import FETCH


@pytest.fixture
def store(tmp_path):
    return {"inner": "directory", "dir": str(tmp_path / "tier")}


async def told(capsys, *words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command beside the brokers of this loop."""
    code = await asyncio.to_thread(main, words)
    said = capsys.readouterr()
    return code, said.out, said.err


async def tiered_topic(cluster: TieredCluster, topic: str = "t") -> None:
    """Five records: two segments of two are remote alone, the fifth is local."""
    await cluster.create(topic, batches_per_segment=2)
    await cluster.produce(topic, 0, kv(0, 1, 2, 3, 4))
    await cluster.expect_earliest_local(topic, 0, 4)


def damage(folder: str) -> None:
    """Flip a bit of the first remote segment and remove the second."""
    first, second = sorted(Path(folder).rglob("*.log"))
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    second.unlink()


def test_what_is_not_there_is_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """Copies that failed: the store has no bytes of them."""
    name = TopicIdPartition(UUID(int=0), "t", 0)
    whole = segment(name, 1)
    states = [SegmentState.COPY_SEGMENT_FINISHED, SegmentState.COPY_SEGMENT_STARTED]
    remote = [replace(whole, state=state) for state in states]
    view = PartitionTiers("t", 0, 1, 0, local_bytes=0, local_segments=1, remote=remote)
    tiers._print_partition(view, every=False)
    line = capsys.readouterr().out.splitlines()[2]
    assert (
        line == "  local 1 segments, 0 B  remote 1 segments, 100 B (1 more being copied or deleted)"
    )


def test_a_topic_is_shown(store: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    async def test():
        async with TieredCluster(store) as cluster:
            server = cluster.server()
            await tiered_topic(cluster)
            code, out, err = await told(capsys, "-b", server, "t")
            assert (code, err) == (0, "")
            lines = out.splitlines()
            assert lines[0] == "t-0  leader 1  epochs 0@0"
            assert lines[1] == (
                "  log start 0  local log start 4  highest copied 3  high watermark 5  log end 5"
            )
            assert lines[2].startswith("  local 1 segments, 72 B  remote 2 segments, 288 B")
            assert [line.split()[:4] for line in lines[4:]] == [
                ["0..1", "144", "0@0", "COPY_SEGMENT_FINISHED"],
                ["2..3", "144", "0@2", "COPY_SEGMENT_FINISHED"],
            ]
            code, out, _ = await told(capsys, "-b", server, "--json", "t")
            assert code == 0
            (view,) = json.loads(out)
            assert view["logStartOffset"] == 0
            assert view["localLogStartOffset"] == 4
            assert view["highestOffsetInRemoteStorage"] == 3
            assert view["logEndOffset"] == 5
            assert view["localSegments"] == 1
            assert [one["endOffset"] for one in view["remoteSegments"]] == [1, 3]

    run(test)


def test_what_is_not_there_is_said(
    store: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    async def test():
        async with TieredCluster(store) as cluster:
            code, out, err = await told(capsys, "-b", cluster.server(), "missing")
            assert (code, out) == (1, "")
            assert err == "tidelog tiers: there is no topic missing\n"
            await cluster.create("plain", tiered=False)
            code, out, _ = await told(capsys, "-b", cluster.server(), "plain")
            assert code == 0
            assert "remote 0 segments" in out

    run(test)


def test_remote_segments_are_verified(
    store: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    async def test():
        async with TieredCluster(store) as cluster:
            await tiered_topic(cluster)
            words = ("verify", "-b", cluster.server(), "--store", store["dir"], "t")
            written = os.stat(store["dir"]).st_mtime_ns
            code, out, err = await told(capsys, *words)
            assert (code, err) == (0, "")
            assert out.startswith("2 remote segments, 288 B: all match")
            assert os.stat(store["dir"]).st_mtime_ns == written, "it may be a copy, for reading"
            damage(store["dir"])
            code, out, err = await told(capsys, *words)
            assert code == 1
            assert "t-0 0..1: the batch at 1 has a bad checksum" in out
            assert "t-0 2..3: can't be read" in out
            assert err == (
                "tidelog tiers verify: 2 of 2 remote segments do not match their metadata or"
                " checksums\n"
            )

    run(test)


WAYS = {
    "a bit": lambda data: bytes([*data[:-1], data[-1] ^ 1]),
    "emptied": lambda data: b"",
    "removed": lambda data: None,
}


def objects_in(folder: str) -> list[Path]:
    return sorted(path for path in Path(folder).rglob("*") if path.is_file())


def test_damage_to_any_object_is_reported(
    store: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The records are not all that a segment is."""

    async def test():
        async with TieredCluster(store) as cluster:
            await cluster.create("t", batches_per_segment=9)
            async with Nodes(cluster.server()) as nodes:
                producer = TxnProducer(nodes, "one")
                assert await producer.init() is ErrorCode.NONE
                for value in (b"0", b"1"):
                    assert await producer.send("t", value) is ErrorCode.NONE
                assert await producer.end(commit=False) is ErrorCode.NONE
            (replica,) = cluster.replicas("t", 0)
            held = replica.log  # in which the marker comes later than the answer
            await until(lambda: held.last_stable_offset == 3, "the marker is at 2")
            held.roll(held.segments.active.created_ms)
            await cluster.produce("t", 0, kv(3))
            await cluster.expect_earliest_local("t", 0, 3)
            words = ("verify", "-b", cluster.server(), "--store", store["dir"], "t")
            code, out, err = await told(capsys, *words)
            assert (code, err, out[:18]) == (0, "", "1 remote segments,")
            objects = objects_in(store["dir"])
            assert len(objects) == 7
            for path in objects:
                data = path.read_bytes()
                for way, damage in WAYS.items():
                    damaged = damage(data)
                    path.unlink() if damaged is None else path.write_bytes(damaged)
                    code, out, err = await told(capsys, *words)
                    assert (code, "t-0 0..2: " in out) == (1, True), (path, way)
                    assert "1 of 1 remote segments does not match its metadata or checksums" in err
                path.write_bytes(data)
            assert (await told(capsys, *words))[0] == 0

    run(test)


async def told_by_verify(cluster: TieredCluster, capsys, change) -> tuple[int, str, str]:
    """The change comes when it has listed the segments, and has read none."""
    words = ["verify", "-b", cluster.server(), "t"]
    words += ["--class", "tier.recording_store.RecordingStore"]
    for key, text in cluster._store.items():
        words += ["--set", f"{key}={text}"]
    cluster.history.hold(FETCH, 0)  # no broker: those count from 1
    telling = asyncio.create_task(told(capsys, *words))
    try:
        await until(lambda: cluster.history.held, "it reads")
        await change()
    finally:
        cluster.history.release(FETCH, 0)
    return await telling


def test_what_is_deleted_while_others_are_read_is_no_fault(
    store: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """People and retention go on deleting for as long as it takes to read all."""

    async def test():
        async with TieredCluster(store) as cluster:

            async def delete_first(count: int) -> None:
                await cluster.delete_records("t", 0, 2 * count)
                await cluster.expect_deletions(0, "t", 0, count)

            async def delete_second_and_damage() -> None:
                await delete_first(2)
                damage(store["dir"])

            await cluster.create("t", batches_per_segment=2)
            await cluster.produce("t", 0, kv(*range(9)))
            await cluster.expect_earliest_local("t", 0, 8)
            code, out, err = await told_by_verify(cluster, capsys, lambda: delete_first(1))
            assert (code, err) == (0, "")
            assert out == (
                "3 remote segments, 432 B: all match their metadata and checksums (1 deleted"
                " meanwhile)\n"
            )
            code, out, err = await told_by_verify(cluster, capsys, delete_second_and_damage)
            assert (code, "t-0 2..3" in out) == (1, False)
            assert "t-0 4..5: the batch at 5 has a bad checksum" in out
            assert "t-0 6..7: can't be read" in out
            assert "2 of 2 remote segments do not match their metadata or checksums" in err

    run(test)


def test_a_topic_that_is_deleted_while_it_is_read_has_no_faults(
    store: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    async def test():
        async with TieredCluster(store) as cluster:

            async def delete() -> None:
                topic_id = cluster.topic_id("t")
                await delete_topic(cluster.server(), "t")
                await cluster.expect_empty_store("t", topic_id, [0])

            await tiered_topic(cluster)
            code, out, err = await told_by_verify(cluster, capsys, delete)
            assert (code, err) == (0, "")
            assert out == ("0 remote segments, 0 B: nothing to check (2 deleted meanwhile)\n")

    run(test)


def test_a_fault_is_reported_even_if_no_broker_is_left(
    store: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    async def test():
        async with TieredCluster(store) as cluster:

            async def damage_and_stop() -> None:
                damage(store["dir"])
                await cluster.stop(0)

            await tiered_topic(cluster)
            code, out, err = await told_by_verify(cluster, capsys, damage_and_stop)
            assert (code, "t-0 2..3: can't be read" in out) == (1, True)
            assert "2 of 2 remote segments do not match their metadata or checksums" in err

    run(test)


def test_what_can_be_seen_is_shown_while_a_broker_is_away(
    store: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    async def test():
        settings = {"broker.session.timeout.ms": "120000"}  # it leads for as long as we look
        async with TieredCluster(store, brokers=3, settings=settings) as cluster:
            await cluster.create("t", ((0,), (1,)), batches_per_segment=2)
            for index in range(2):
                await cluster.produce("t", index, kv(0, 1, 2))
                await cluster.expect_earliest_local("t", index, 2)
            servers = ",".join(cluster.server(broker) for broker in (1, 2))
            address = cluster.server(0)
            index = metadata_partition(UUID(bytes=cluster.topic_id("t")), 1, 5)
            asked = image_of(cluster.node(1)).partition("__remote_log_metadata", index).leader
            await cluster.node(0).kill()
            code, out, err = await told(capsys, "-b", servers, "t")
            assert (code, err) == (1, "tidelog tiers: some partitions could not be read\n")
            first, second = out.split("t-1  leader 2")
            assert f"(broker 1 at {address}: Connection refused)" in first
            assert "log start -1" in first
            assert "log start 0  local log start 2  highest copied 1" in second
            knows_remote = asked != 1  # who tells of the second one's segments is not the dead one
            assert ("(broker 1 at" in second, "0..1" in second) == (not knows_remote, knows_remote)

    run(test)


@pytest.mark.parametrize("place", ["directory", "moto"], indirect=True)
def test_the_broker_describes_its_own_store(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    is_directory = "dir" in place.config
    settings = {
        "remote.log.storage.manager.class.name": DIRECTORY_STORE if is_directory else S3_STORE
    }

    async def test():
        async with TieredCluster(place.config, settings=settings) as cluster:
            await tiered_topic(cluster)
            words = ("verify", "-b", cluster.server(), "t")
            code, out, err = await told(capsys, *words)
            assert (code, err) == (0, "")
            assert out.startswith("2 remote segments, 288 B: all match")
            if not is_directory:
                code, _, err = await told(capsys, *words, "--set", "bucket=another")
                assert (code, err[:21]) == (1, "tidelog tiers verify:")
                return
            damage(place.config["dir"])
            code, out, _ = await told(capsys, *words)
            assert code == 1
            assert "t-0 0..1: the batch at 1 has a bad checksum" in out
            os.rename(place.config["dir"], f"{place.config['dir']}-moved")
            code, out, err = await told(capsys, *words)
            assert (code, out) == (1, "")
            assert "is not on this machine: use --store" in err

    run(test)


def test_a_store_of_the_users_is_loaded_if_they_say_so(
    store: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Never on the broker's word alone: it would be a way to have this machine run anything."""

    async def test():
        async with TieredCluster(store) as cluster:
            await tiered_topic(cluster)
            words = ("verify", "-b", cluster.server(), "t")
            code, out, err = await told(capsys, *words)
            assert (code, out) == (1, "")
            name = "tier.recording_store.RecordingStore"
            assert f"the store is a {name}: load it with --class" in err
            name = "tier.threadless_store.NoStore"
            code, _, err = await told(capsys, *words, "--class", name)
            assert code == 1
            assert f"--class: no class {name}" in err
            words += ("--class", "tier.test_tiers_command.DirectoryOfUsers", "--set", "size=none")
            code, out, err = await told(capsys, *words, "--set", f"dir={store['dir']}")
            assert (code, err) == (0, "")
            assert out.startswith("2 remote segments, 288 B: all match")

    run(test)


class DirectoryOfUsers(DirectoryStore):
    """A user's own store."""

    def configure(self, config):
        assert config["size"] == "none"
        super().configure(config)


@pytest.mark.parametrize(
    "place", [pytest.param("versitygw", marks=pytest.mark.xdist_group("s3"))], indirect=True
)
def test_a_fault_of_the_whole_store_is_reported_once(
    place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was two lines a segment, and a sum of faults that were none of theirs."""
    settings = {"remote.log.storage.manager.class.name": S3_STORE}

    async def test():
        async with TieredCluster(place.config, settings=settings) as cluster:
            await tiered_topic(cluster)
            words = ("verify", "-b", cluster.server(), "t")
            assert (await told(capsys, *words))[0] == 0
            away = ("--set", "endpoint.url=http://127.0.0.1:1", "--set", "retries.max=1")
            await expect(words, "An error occurred (NoSuchBucket)", "--set", "bucket=another")
            await expect(words, "Could not connect to the endpoint URL", *away)
            with monkeypatch.context() as patch:
                patch.setenv("AWS_SECRET_ACCESS_KEY", "another")
                await expect(words, "An error occurred (SignatureDoesNotMatch)")
                patch.setenv("AWS_ACCESS_KEY_ID", "another")
                await expect(words, "An error occurred (XAdminUserNotFound)")

    async def expect(words, reason, *more):
        code, out, err = await told(capsys, *words, *more)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert err.startswith(f"tidelog tiers verify: the remote tier can't be read: {reason}")

    run(test)


def test_a_store_that_goes_while_it_is_read_is_left_alone(
    store: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    async def test():
        async with TieredCluster(store) as cluster:
            await cluster.create("t", batches_per_segment=2)
            await cluster.produce("t", 0, kv(*range(9)))
            await cluster.expect_earliest_local("t", 0, 8)
            words = ["verify", "-b", cluster.server(), "--set", f"dir={store['dir']}", "t"]
            code, out, err = await told(capsys, *words, "--class", f"{__name__}.GoesAway")
            assert (code, out) == (1, "t-0 2..3: can't be read: it went\n")
            assert err == (
                "tidelog tiers verify: after 2 segments, the remote tier can't be read: it went\n"
            )
            for place in (f"{store['dir']}-none", "/proc/none"):
                code, out, err = await told(capsys, *words[:3], "--store", place, "t")
                assert (code, out) == (1, "")
                assert err == f"tidelog tiers verify: {place}: there is no such directory\n"

    run(test)
    assert not os.path.exists(f"{store['dir']}-none")


class GoesAway(DirectoryStore):
    """It gives one segment."""

    def _place(self, segment):
        if segment.start_offset:
            raise RetriableRemoteStorageError("it went")
        return super()._place(segment)


def test_what_there_is_not_is_not_verified(
    store: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    async def test():
        async with TieredCluster(store) as cluster:
            await cluster.create("t")
            code, out, _ = await told(capsys, "verify", "-b", cluster.server(), "t")
            assert (code, out) == (0, "0 remote segments, 0 B: nothing to check\n")
        async with tidelog.Cluster() as cluster:
            await create_topic(cluster.bootstrap_servers, "t", {0: [1]}, {})
            code, out, err = await told(capsys, "verify", "-b", cluster.bootstrap_servers, "t")
            assert (code, out) == (1, "")
            assert err == "tidelog tiers verify: the broker has no remote tier\n"

    run(test)


def test_watching_shows_what_changes_until_ctrl_c(store: dict[str, str]) -> None:
    """Also while the broker is away: who watches wants to see it come back."""

    async def test():
        ports = Ports()  # of its own: it comes back there
        (port,) = await ports.take(system_runtime(), "127.0.0.1", 1)
        ports.release()
        settings = {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
        async with TieredCluster(store, settings=settings) as cluster:
            await tiered_topic(cluster)
            words = ("tiers", "-b", cluster.server(), "t", "--watch", "0.1")
            watcher = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tidelog", *words),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                preexec_fn=hears_ctrl_c,
            )
            try:
                await shown(watcher, "highest copied 3  high watermark 5")
                await cluster.produce("t", 0, kv(5, 6))
                await shown(watcher, "highest copied 5  high watermark 7")
                await cluster.stop(0)
                await shown(watcher, "(no answer: ")
                await cluster.start(0)
                await shown(watcher, "highest copied 5  high watermark 7")
                watcher.send_signal(signal.SIGINT)
                _, err = await watcher.communicate()
                assert (watcher.returncode, err) == (0, b"")
            finally:
                if watcher.returncode is None:
                    watcher.kill()
                    await watcher.communicate()

    run(test)


def hears_ctrl_c() -> None:
    """In the child: a shell has what it runs in the background ignore it, and so do heirs."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


async def shown(watcher: asyncio.subprocess.Process, text: str) -> None:
    """Read its output until a line has this in it."""
    assert watcher.stdout is not None
    while True:
        line = (await watcher.stdout.readline()).decode()
        assert line, "it has ended"
        if text in line:
            return


def test_a_store_that_is_none_is_refused(
    store: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    async def test():
        async with TieredCluster(store) as cluster:
            await cluster.create("t")
            code, _, err = await told(
                capsys, "verify", "-b", cluster.server(), "--store", "s3://", "t"
            )
            assert code == 1
            assert "s3://bucket/prefix" in err

    run(test)
