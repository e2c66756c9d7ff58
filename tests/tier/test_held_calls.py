"""Calls of the store that take long while something else happens, on real brokers (kafka-tests 4).

A leader changes in the middle of a copy and both finish theirs in either order (point 4); a
follower is added while the head expires (point 5); a topic is created again while its copies or
deletions are under way (point 8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.clusters import run, until
from tidelog_storage.remote.api import SegmentState
from tier import admin
from tier.harness import EARLIEST_LOCAL, kv
from tier.held import Held, is_held, known
from tier.reading import read
from tier.recording_store import COPY, DELETE, INDEX

if TYPE_CHECKING:
    from pathlib import Path

STARTED, FINISHED, *_ = SegmentState


@pytest.mark.parametrize("first", [0, 1], ids=["the old leader first", "the new leader first"])
def test_two_brokers_finish_copies_of_the_same_offsets(tmp_path: Path, first: int) -> None:
    """Both are legal, readers see each record once, and the expiry deletes both."""

    async def test() -> None:
        async with Held(tmp_path) as cluster:
            for broker in (0, 1):
                cluster.history.hold(COPY, broker + 1)
            # What the slower one copies must be on its disk until it does.
            kept = {"local.retention.bytes": "-2"}
            await cluster.create("a", [(0, 1)], batches_per_segment=2, configs=kept)
            await cluster.expect_leader("a", 0, 0)
            await cluster.produce("a", 0, kv(0, 1, 2))
            await is_held(cluster, COPY, 0)
            copier = cluster.node(0).server.tier.partitions["a", 0].copier
            assert copier.lag()[1] == 1
            await cluster.lead_by(1, "a")
            assert copier.lag() == (0, 0), "a follower lags behind nobody"
            await cluster.produce("a", 0, kv(3, 4, 5))
            await is_held(cluster, COPY, 1)
            assert [one.state for one in known(cluster, 1, "a")] == [STARTED] * 2
            for broker in (first, 1 - first):
                cluster.history.release(COPY, broker + 1)
                await until(
                    lambda broker=broker: any(
                        one.broker_id == broker + 1 and one.state is FINISHED
                        for one in known(cluster, 0, "a")
                    ),
                    f"{broker} has finished its copy",
                )
                assert [one.value for one in await read(cluster, "a", 0, 0, 6)] == [
                    b"v%d" % number for number in range(6)
                ]
            await cluster.alter("a", {"local.retention.bytes": "1"})
            await cluster.expect_earliest_local("a", 0, 4)
            finished = [one for one in known(cluster, 1, "a") if one.state is FINISHED]
            assert [one.start_offset for one in finished] == [0, 0, 2]
            assert sorted(one.broker_id for one in finished) == [1, 2, 2]
            for start in range(6):
                found = await read(cluster, "a", 0, start, 6)
                assert [one.offset for one in found] == list(range(start, 6))
            await cluster.delete_records("a", 0, 4)
            await until(lambda: not cluster.objects("a"), "both copies are deleted")

    run(test)


def test_a_copy_under_way_when_its_records_expire(tmp_path: Path) -> None:
    """The old leader's, of what the new one has copied and deleted meanwhile: it ends one way or
    the other, and nothing of it is left."""

    async def test() -> None:
        async with Held(tmp_path) as cluster:
            cluster.history.hold(COPY, 1)
            await cluster.create("a", [(0, 1)], batches_per_segment=1)
            await cluster.expect_leader("a", 0, 0)
            await cluster.produce("a", 0, kv(0, 1))
            await is_held(cluster, COPY, 0)
            await cluster.lead_by(1, "a")
            await cluster.produce("a", 0, kv(2))
            await cluster.expect_earliest_local("a", 0, 2)
            await cluster.delete_records("a", 0, 2)
            await until(lambda: not cluster.objects("a"), "what was copied is deleted")
            cluster.history.release(COPY, 1)
            await until(lambda: (COPY, 1) not in cluster.history.held)
            await cluster.produce("a", 0, kv(3))
            await cluster.expect_earliest_local("a", 0, 3)
            # A deletion that takes the empty folder away may fail a copy to it: [2] is known twice.
            await until(
                lambda: {one.start_offset for one in known(cluster, 1, "a")} == {2},
                "the late copy is deleted too",
            )
            assert {name.rpartition("/")[2][:20] for name in cluster.objects("a")} == {f"{2:020d}"}
            assert [one.offset for one in await read(cluster, "a", 0, 2, 4)] == [2, 3]

    run(test)


@pytest.mark.parametrize("left", [1, 0], ids=["some of it is left", "all of it expires"])
def test_a_follower_is_added_while_the_head_expires(tmp_path: Path, left: int) -> None:
    """It is about to read of the last remote segment where the log goes on for it; then what is
    before that goes, or that segment as well."""

    async def test() -> None:
        async with Held(tmp_path) as cluster:
            await cluster.create("a", [(0,)], batches_per_segment=1)
            await cluster.produce("a", 0, kv(*range(6)))
            await cluster.expect_earliest_local("a", 0, 5)
            cluster.history.hold(INDEX, 2)
            await admin.reassign(cluster.server(), "a", 0, [1, 2])
            await is_held(cluster, INDEX, 1)
            size = known(cluster, 0, "a")[0].size  # of each, the active one included
            await cluster.alter("a", {"retention.bytes": str(2 * size if left else 1)})
            await cluster.expect_deletions(0, "a", 0, 5 - left)
            cluster.history.release(INDEX, 2)
            await cluster.expect_in_sync("a", 0, {0, 1})
            await cluster.lead_by(1, "a")
            held = cluster.partition(1, "a", 0).log
            assert (held.log_start_offset, held.local_log_start_offset) == (5 - left, 5)
            found = await read(cluster, "a", 0, 5 - left, 6)
            assert [one.offset for one in found] == list(range(5 - left, 6))
            await cluster.alter("a", {"retention.bytes": "-1"})
            await cluster.produce("a", 0, kv(6))
            await cluster.expect_earliest_local("a", 0, 6)
            found = await read(cluster, "a", 0, 5 - left, 7)
            assert [one.offset for one in found] == list(range(5 - left, 7))
            assert (await cluster.list_offsets("a", 0, EARLIEST_LOCAL))[1] == 6

    run(test)


@pytest.mark.parametrize("what", [COPY, DELETE])
def test_a_topic_is_created_again_while_the_store_is_busy_with_the_old_one(
    tmp_path: Path, what: str
) -> None:
    async def test() -> None:
        async with Held(tmp_path) as cluster:
            await cluster.create("a", [(0, 1)], batches_per_segment=1)
            await cluster.expect_leader("a", 0, 0)
            await cluster.produce("a", 0, kv(0, 1))
            await cluster.expect_earliest_local("a", 0, 1)
            cluster.history.hold(what, 1)
            await cluster.produce("a", 0, kv(2))
            old = cluster.finished("a", 0)[0].topic_id_partition
            if what == COPY:
                await is_held(cluster, COPY, 0)
            else:
                await cluster.expect_earliest_local("a", 0, 2)
            await admin.delete_topic(cluster.server(), "a")
            if what == DELETE:
                await is_held(cluster, DELETE, 0)
            await cluster.create("a", [(1, 0)], batches_per_segment=1)
            await cluster.expect_leader("a", 0, 1)
            await cluster.produce("a", 0, [(b"k", b"new0"), (b"k", b"new1"), (b"k", b"new2")])
            await cluster.expect_earliest_local("a", 0, 2)
            found = await read(cluster, "a", 0, 0, 3)
            assert [one.value for one in found] == [b"new0", b"new1", b"new2"]
            cluster.history.release(what, 1)
            new = next(
                s.topic_id_partition
                for s in cluster.finished("a", 0)
                if s.topic_id_partition != old
            )
            await until(
                lambda: len({name.partition("/")[0] for name in cluster.objects("a")}) == 1,
                "nothing is left of the old topic",
            )
            assert {one.topic_id_partition for one in known(cluster, 1, "a")} == {new}
            assert [one.start_offset for one in known(cluster, 1, "a")] == [0, 1]
            assert (await read(cluster, "a", 0, 0, 3))[0].value == b"new0"

    run(test)
