"""The specification's cluster vectors on whole simulated brokers: replies and states of every step,
those of the remote tier included."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from sim.old_followers import followers
from sim.vector_player import play
from support.vectors import load_yaml
from tidelog.tiered.reads import remote_reads
from tidelog_storage.remote.api import SegmentState
from tidelog_storage.remote.lineage import part_end

if TYPE_CHECKING:
    from collections.abc import Callable

TESTS = Path(__file__).parent.parent
VECTORS = {
    path.stem: load_yaml(path)
    for path in sorted(TESTS.glob("*/vectors/*.yaml"))
    if "\nkind: cluster\n" in path.read_text()
}


def test_all_are_there() -> None:
    assert list(VECTORS) == [
        "hw-propagation",
        "kip101-s1-lost-message",
        "kip101-s2-divergence",
        "unclean-election",
        "kip405-follower-to-leader",
        "kip405-s1-new-follower",
        "kip405-s2-out-of-sync",
        "kip405-s3-multiple-hard-failures",
        "kip405-s4-unclean-truncation",
        "kip405-s5-remote-divergence",
        "remote-outage",
        "topic-deletion",
    ]


@pytest.mark.parametrize("name", VECTORS)
def test_cluster_vector(name: str) -> None:
    assert play(VECTORS[name]) == ""


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("kip101-s1-lost-message", "A is back; it must not cut to its HW"),
        ("kip101-s2-divergence", "A's first fetch says the same"),
        ("unclean-election", "a consumer that had read offset 4"),
    ],
)
def test_followers_of_earlier_days_fail(name: str, step: str) -> None:
    with followers("high-watermark"):
        assert step in play(VECTORS[name])


class KafkasCache:
    """Of the segments of an epoch that begin at one offset, the one finished last is known."""

    def __init__(self, metadata):
        self._metadata = metadata

    def segment_for(self, partition, epoch, offset):
        listed = self._metadata.segments(partition, epoch)
        finished = [s for s in listed if s.state is SegmentState.COPY_SEGMENT_FINISHED]
        starts = {dict(segment.epochs)[epoch]: segment for segment in finished}
        below = [start for start in starts if start <= offset]
        found = starts[max(below)] if below else None
        return found if found is not None and part_end(found, epoch) >= offset else None


REAL = remote_reads.segment_at


def to_the_end_of_the_file(*asked):
    segment, _ = REAL(*asked)
    return segment, segment.end_offset + 1


def by_kafkas_cache(partition, offset, log, metadata):
    return REAL(partition, offset, log, KafkasCache(metadata))


@pytest.mark.parametrize(
    ("name", "way", "told"),
    [
        (
            "kip405-s3-multiple-hard-failures",
            to_the_end_of_the_file,
            "consumer that knows epoch 0 reads offset 0: the answer: records [0] 0 msg 0, 1 msg 1,",
        ),
        (
            "kip405-s5-remote-divergence",
            by_kafkas_cache,
            "without an epoch reads offset 2: the answer: error OFFSET_OUT_OF_RANGE, expected NONE",
        ),
    ],
)
def test_reads_as_kafkas_differ(name: str, way: Callable[..., object], told: str) -> None:
    """The specification's rules beyond Kafka: without them the vectors tell."""
    with mock.patch.object(remote_reads, "segment_at", way):
        assert told in play(VECTORS[name])
