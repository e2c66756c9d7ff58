"""Markers on their way to the leaders: what is tried again, and what ends all of a transaction."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.data_path import DataPath
from tidelog.coordinators.transactions.decisions import ProducerIdAndEpoch
from tidelog.coordinators.transactions.markers import (
    MARKERS_MAX,
    MarkerSender,
    Marking,
    _fitting,
)
from tidelog.coordinators.transactions.shard import TransactionShard
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from pathlib import Path

FOO, BAR = TopicPartition("foo", 0), TopicPartition("bar", 0)


def marked(tmp_path: Path, answers: list[dict[TopicPartition, ErrorCode]]) -> tuple[Marking, Any]:
    """A marking for two partitions that are led here, which give `answers`, one for each try; and
    the requests, with "done" at the end."""
    path = DataPath(tmp_path)
    path.create("foo", 1)
    path.create("bar", 1)
    asked: list[Any] = []

    async def write(markers: Any) -> list[Any]:
        wanted = [one for marker in markers for one in marker.partitions]
        asked.append(wanted)
        return [{one: answers[len(asked) - 1][one] for one in wanted}]

    timers = path.timers
    sender = MarkerSender(node_id=path.node_id, timers=timers, write_here=write, ask_leader=None)
    sender.on_image(path.image)
    marking = Marking(
        TransactionShard(0, 3),
        7,
        2,
        is_commit=True,
        transaction_version=1,
        left={FOO, BAR},
        on_done=lambda _: asked.append("done"),
    )
    sender.send(marking)
    timers.advance_ms(1000)
    path.logs.abandon()
    return marking, asked


def test_a_partition_with_a_newer_epoch_of_the_producer_does_not_keep_the_others_waiting(
    tmp_path: Path,
) -> None:
    fenced, later = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER
    answers = [{FOO: fenced, BAR: later}, {BAR: ErrorCode.NONE}]
    marking, asked = marked(tmp_path, answers)
    assert asked == [[BAR, FOO], [BAR], "done"]
    assert not marking.left


def test_a_newer_coordinator_ends_all_markers(tmp_path: Path) -> None:
    fenced, later = ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.NOT_LEADER_OR_FOLLOWER
    marking, asked = marked(tmp_path, [{FOO: fenced, BAR: later}])
    assert asked == [[BAR, FOO]]
    assert marking.is_over


@pytest.mark.parametrize(
    ("busy", "verify_only", "tries"),
    [(2, False, 3), (10**6, False, None), (2, True, 1)],
)
def test_a_partition_is_added_again_while_the_last_transaction_ends(
    tmp_path: Path, busy: int, verify_only: bool, tries: int | None
) -> None:
    path = DataPath(
        tmp_path,
        add_partitions_to_txn_retry_backoff_ms="1",
        add_partitions_to_txn_retry_backoff_max_ms="5",
    )
    asked = 0
    renewed: list[int] = []

    async def ask(*_: Any, **__: Any) -> dict[TopicPartition, ErrorCode]:
        nonlocal asked
        asked += 1
        path.clock.now_ms += 1
        error = ErrorCode.CONCURRENT_TRANSACTIONS if asked <= busy else ErrorCode.NONE
        return {FOO: error}

    transactions: Any = path.transactions
    transactions._ask_coordinator = ask
    outcome = asyncio.run(
        transactions.add_partitions(
            "tx",
            ProducerIdAndEpoch(7, 2),
            {FOO},
            verify_only=verify_only,
            again=lambda: renewed.append(asked),
        )
    )
    path.logs.abandon()
    assert renewed == list(range(1, asked))  # before each further try
    is_added = tries is not None and not verify_only
    assert outcome == {FOO: ErrorCode.NONE if is_added else ErrorCode.CONCURRENT_TRANSACTIONS}
    assert asked == (5 if tries is None else tries)


def test_a_request_to_a_leader_stays_below_the_limit_of_its_elements() -> None:
    def queue(*sizes: int) -> list[Any]:
        return [(None, range(size)) for size in sizes]

    assert _fitting(queue(*[1] * 600)) == MARKERS_MAX
    assert _fitting(queue(3000, 2000, 1)) == 2
    assert _fitting(queue(9000, 1)) == 1
    assert _fitting(queue(1)) == 1
    assert _fitting([]) == 0
