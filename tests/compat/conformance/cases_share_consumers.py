"""Cases: records of share groups (KIP-932): sessions, what is acquired, acknowledgements, the state
that leaders of share partitions keep."""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any

from compat.conformance.batches import batch, records
from compat.conformance.registry import case
from compat.conformance.session import PATIENCE_MS, RETRIABLE_AT_FIRST, WAIT_S

if TYPE_CHECKING:
    from compat.conformance.session import Session

FETCH, ACKNOWLEDGE = "ShareFetch", "ShareAcknowledge"
INITIALIZE, READ, WRITE = (f"{verb}ShareGroupState" for verb in ("Initialize", "Read", "Write"))
DELETE, SUMMARY = "DeleteShareGroupState", "ReadShareGroupStateSummary"
SHARE_KEY, MEGABYTE = 2, 1 << 20
NO_TOPIC = b"\x07" * 16
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
RECORD_LIMIT = 1
ONE, TWO = "member-of-one", "member-of-two"


def of_one(topic_id: bytes, partition: int = 0, **fields: Any) -> list[dict[str, Any]]:
    """One topic with one partition, as the five state APIs have it."""
    return [{"topic_id": topic_id, "partitions": [{"partition": partition, **fields}]}]


def code_of(answer: dict[str, Any]) -> int:
    code: int = answer["results"][0]["partitions"][0]["error_code"]
    return code


def coordinated(s: Session, partitions: int = 1) -> bytes:
    """A topic whose share partitions have a loaded coordinator; returns its id."""
    topic_id = s.topic_id(s.topic(partitions))
    encoded = base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()
    end = time.monotonic() + WAIT_S
    for partition in range(partitions):
        key = f"{s.name}:{encoded}:{partition}"
        while time.monotonic() < end:
            s.quietly("FindCoordinator", 6, coordinator_keys=[key], key_type=SHARE_KEY)
            topics = of_one(topic_id, partition, leader_epoch=0)
            if code_of(s.quietly(SUMMARY, 0, group_id=s.name, topics=topics)) not in (
                *RETRIABLE_AT_FIRST,
                3,
            ):
                break
            time.sleep(0.05)
    return topic_id


def begun(s: Session, *counts: int, partitions: int = 1) -> bytes:
    """A topic with batches of so many records, and a group that begins with the first of them."""
    topic_id = coordinated(s, partitions)
    for partition in range(partitions):
        topics = of_one(topic_id, partition, state_epoch=1, start_offset=0)
        answer = s.quietly(INITIALIZE, 0, group_id=s.name, topics=topics)
        assert code_of(answer) == 0, answer
        s.produce(f"{s.name}.1", *(batch(records(each)) for each in counts), partition=partition)
    return topic_id


def acks(*rows: tuple[int, int, list[int]]) -> list[dict[str, Any]]:
    return [
        {"first_offset": first, "last_offset": last, "acknowledge_types": kinds}
        for first, last, kinds in rows
    ]


def topics_of(topic_id: bytes | None, *rows: Any, partition: int = 0) -> list[dict[str, Any]]:
    if topic_id is None:
        return []
    partitions = [{"partition_index": partition, "acknowledgement_batches": acks(*rows)}]
    return [{"topic_id": topic_id, "partitions": partitions}]


def fetch(
    s: Session, version: int, epoch: int, topic_id: bytes | None, *rows: Any, **more: Any
) -> dict[str, Any]:
    """A ShareFetch that waits for records, unless it is told otherwise."""
    fields: dict[str, Any] = {
        "group_id": s.name,
        "member_id": ONE,
        "share_session_epoch": epoch,
        "max_wait_ms": PATIENCE_MS,
        "min_bytes": 1,
        "max_bytes": MEGABYTE,
        "max_records": 500,
        "batch_size": 500,
        "topics": topics_of(topic_id, *rows),
    }
    return s.ask(FETCH, version, **{**fields, **more})


def acknowledge(
    s: Session, version: int, epoch: int, topic_id: bytes | None, *rows: Any, **more: Any
) -> dict[str, Any]:
    fields = {"group_id": s.name, "member_id": ONE, "share_session_epoch": epoch}
    return s.ask(ACKNOWLEDGE, version, **{**fields, "topics": topics_of(topic_id, *rows), **more})


NOW = {"max_wait_ms": 0, "min_bytes": 0}


# ---- ShareFetch ----------------------------------------------------------------------------------


@case(FETCH)
def a_session(s: Session, version: int) -> None:
    """All kinds of acknowledgements in fetches; what is released comes again, to anyone."""
    topic_id = begun(s, 3, 2, 1)
    fetch(s, version, 0, topic_id)
    fetch(s, version, 1, topic_id, (0, 0, [ACCEPT]), (1, 2, [RELEASE]), (3, 4, [REJECT]))
    fetch(s, version, 2, topic_id, (1, 2, [ACCEPT, RELEASE]))
    fetch(s, version, 3, None, **NOW)
    fetch(s, version, -1, topic_id, (2, 2, [ACCEPT]), **NOW)
    fetch(s, version, 4, None, **NOW)
    fetch(s, version, 0, topic_id, member_id=TWO, max_wait_ms=1000)


@case(FETCH)
def two_members(s: Session, version: int) -> None:
    """What one holds is not given to the other, and not acknowledged by it."""
    topic_id = begun(s, 2)
    fetch(s, version, 0, topic_id)
    fetch(s, version, 0, topic_id, member_id=TWO, **NOW)
    fetch(s, version, 1, topic_id, (0, 1, [ACCEPT]), member_id=TWO, **NOW)
    fetch(s, version, 1, topic_id, (0, 1, [ACCEPT]), **NOW)


@case(FETCH)
def session_errors(s: Session, version: int) -> None:
    topic_id = begun(s, 1)
    fetch(s, version, 1, topic_id)
    fetch(s, version, -1, topic_id)
    fetch(s, version, 0, topic_id, (0, 0, [ACCEPT]))
    fetch(s, version, 0, topic_id)
    fetch(s, version, 2, topic_id)
    fetch(s, version, 0, topic_id, **NOW)
    fetch(s, version, -2, topic_id)
    fetch(s, version, 1, None, member_id=TWO)


@case(FETCH)
def wrong_fields(s: Session, version: int) -> None:
    topic_id = begun(s, 1)
    for change in (
        {"group_id": None},
        {"member_id": ""},
        {"member_id": None},
        {"member_id": "m" * 37},
        {"max_records": 0},
        {"max_bytes": 0},
    ):
        fetch(s, version, 0, topic_id, **{**NOW, **change})
    fetch(s, version, 0, topic_id, member_id="m" * 36)


@case(FETCH)
def wrong_acknowledgements(s: Session, version: int) -> None:
    """None of a partition's counts if one is wrong."""
    topic_id = begun(s, 3, 2)
    fetch(s, version, 0, topic_id)
    wrong = (
        [(2, 1, [ACCEPT])],
        [(0, 2, [ACCEPT, ACCEPT])],
        [(0, 2, [])],
        [(0, 2, [5])],
        [(0, 2, [-1])],
        [(3, 4, [ACCEPT]), (0, 2, [ACCEPT])],
        [(0, 2, [ACCEPT]), (2, 4, [ACCEPT])],
        [(0, 7, [ACCEPT])],
        [(7, 8, [ACCEPT])],
        [(0, 1, [ACCEPT]), (9, 9, [ACCEPT])],
        [(0, 1, [GAP]), (2, 4, [ACCEPT])],
        [(0, 4, [ACCEPT])],
    )
    for epoch, rows in enumerate(wrong, 1):
        fetch(s, version, epoch, topic_id, *rows, **NOW)


@case(FETCH)
def sizes(s: Session, version: int) -> None:
    """Whole batches, even beyond the number of records; then parts of the rest."""
    topic_id = begun(s, 5, 5, 5)
    fetch(s, version, 0, topic_id, max_records=2)
    fetch(s, version, 1, topic_id, max_records=6, batch_size=2)
    fetch(s, version, 2, None, **NOW)


@case(FETCH, first=2)
def record_limit(s: Session, version: int) -> None:
    topic_id = begun(s, 5, 5)
    limited = {"share_acquire_mode": RECORD_LIMIT}
    fetch(s, version, 0, topic_id, max_records=2, **limited)
    fetch(s, version, 1, topic_id, max_records=4, **limited)
    fetch(s, version, 2, topic_id, (0, 1, [RELEASE]), max_records=1, **limited)
    fetch(s, version, 3, topic_id, share_acquire_mode=2, **NOW)


@case(FETCH, first=2)
def renewed(s: Session, version: int) -> None:
    topic_id = begun(s, 2)
    fetch(s, version, 0, topic_id)
    nothing = {"is_renew_ack": True, "max_records": 0, "max_bytes": 0, "batch_size": 0}
    fetch(s, version, 1, topic_id, (0, 1, [RENEW]), **{**NOW, **nothing})
    fetch(s, version, 2, topic_id, (0, 1, [RENEW]), is_renew_ack=True, **NOW)
    fetch(s, version, 2, topic_id, (0, 1, [RENEW]), **NOW)
    fetch(s, version, 3, topic_id, (0, 1, [ACCEPT]), **NOW)


@case(FETCH)
def other_partitions(s: Session, version: int) -> None:
    """A partition that is not there, and one that is forgotten."""
    topic_id = begun(s, 1, partitions=2)
    fetch(s, version, 0, None, topics=topics_of(topic_id, partition=7), **NOW)
    fetch(s, version, 1, None, topics=topics_of(topic_id, partition=1))
    forgotten = [{"topic_id": topic_id, "partitions": [1, 7]}]
    fetch(s, version, 2, topic_id, forgotten_topics_data=forgotten)


# ---- ShareAcknowledge ----------------------------------------------------------------------------


@case(ACKNOWLEDGE)
def acknowledged(s: Session, version: int) -> None:
    topic_id = begun(s, 3, 2)
    fetch(s, 1, 0, topic_id)
    acknowledge(s, version, 1, topic_id, (0, 0, [ACCEPT]), (1, 2, [RELEASE, REJECT]))
    acknowledge(s, version, 2, topic_id, (0, 0, [ACCEPT]))
    acknowledge(s, version, 3, topic_id, (3, 4, [GAP]))
    acknowledge(s, version, 4, None)
    fetch(s, 1, 5, None)
    acknowledge(s, version, 6, topic_id, (1, 1, [ACCEPT]))
    acknowledge(s, version, -1, None)
    acknowledge(s, version, 1, topic_id, (1, 1, [ACCEPT]))


@case(ACKNOWLEDGE)
def sessions_of_acknowledgements(s: Session, version: int) -> None:
    topic_id = begun(s, 1)
    one = (0, 0, [ACCEPT])
    acknowledge(s, version, 0, topic_id, one)
    acknowledge(s, version, 1, topic_id, one)
    acknowledge(s, version, -1, topic_id, one)
    fetch(s, 1, 0, topic_id)
    acknowledge(s, version, 2, topic_id, one)
    for change in ({"group_id": None}, {"member_id": ""}, {"member_id": None}):
        acknowledge(s, version, 1, topic_id, one, **change)
    acknowledge(s, version, 1, None, topics=topics_of(topic_id, one, partition=7))


@case(ACKNOWLEDGE)
def wrong_rows(s: Session, version: int) -> None:
    topic_id = begun(s, 3)
    fetch(s, 1, 0, topic_id)
    wrong = ((2, 1, [ACCEPT]), (0, 2, []), (0, 2, [5]), (0, 2, [RENEW]), (1, 5, [ACCEPT]))
    for epoch, row in enumerate(wrong, 1):
        acknowledge(s, version, epoch, topic_id, row)


@case(ACKNOWLEDGE, first=2)
def renewals(s: Session, version: int) -> None:
    topic_id = begun(s, 2)
    fetch(s, 1, 0, topic_id)
    acknowledge(s, version, 1, topic_id, (0, 1, [RENEW]), is_renew_ack=True)
    acknowledge(s, version, 2, topic_id, (0, 1, [ACCEPT, RENEW]), is_renew_ack=True)


# ---- the state -----------------------------------------------------------------------------------


def read(s: Session, topic_id: bytes, leader_epoch: int = 0) -> None:
    s.ask(READ, 0, group_id=s.name, topics=of_one(topic_id, leader_epoch=leader_epoch))


@case(INITIALIZE)
def initialized(s: Session, version: int) -> None:
    topic_id = coordinated(s)
    read(s, topic_id)
    for state_epoch, start_offset in ((1, 5), (1, 7), (0, 3), (-1, 3), (2, -1)):
        topics = of_one(topic_id, state_epoch=state_epoch, start_offset=start_offset)
        s.ask(INITIALIZE, version, group_id=s.name, topics=topics)
        read(s, topic_id)


@case(WRITE)
def written(s: Session, version: int) -> None:
    topic_id = begun(s, 1)
    for state_epoch, leader_epoch, start_offset in (
        (1, 0, 0),
        (0, 0, 0),
        (2, 0, 0),
        (1, 3, 4),
        (1, 2, 4),
    ):
        rows = [
            {"first_offset": 4, "last_offset": 5, "delivery_state": 0, "delivery_count": 1},
            {"first_offset": 6, "last_offset": 6, "delivery_state": 2, "delivery_count": 2},
        ]
        topics = of_one(
            topic_id,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            state_batches=rows,
        )
        s.ask(WRITE, version, group_id=s.name, topics=topics)
    read(s, topic_id, 3)
    read(s, topic_id, 2)


@case(SUMMARY)
def summarized(s: Session, version: int) -> None:
    topic_id = coordinated(s)
    for leader_epoch in (-1, 0, 1):
        topics = of_one(topic_id, leader_epoch=leader_epoch)
        s.ask(SUMMARY, version, group_id=s.name, topics=topics)
    started = of_one(topic_id, state_epoch=1, start_offset=5)
    s.quietly(INITIALIZE, 0, group_id=s.name, topics=started)
    s.ask(SUMMARY, version, group_id=s.name, topics=of_one(topic_id, leader_epoch=0))
    s.ask(SUMMARY, version, group_id="", topics=of_one(topic_id, leader_epoch=0))


@case(DELETE)
def deleted(s: Session, version: int) -> None:
    topic_id = begun(s, 1)
    s.ask(DELETE, version, group_id=s.name, topics=of_one(topic_id))
    read(s, topic_id)
    s.ask(DELETE, version, group_id=s.name, topics=of_one(topic_id))
    s.ask(DELETE, version, group_id=s.name, topics=of_one(topic_id, 7))


def ask_several(s: Session, api: str, version: int, topic_id: bytes, **fields: Any) -> None:
    """Two partitions and one that does not exist; a topic that does not exist; none at all."""
    partitions = [{"partition": number, **fields} for number in (0, 1, 7)]
    topics = [{"topic_id": topic_id, "partitions": partitions}]
    for asked in (topics, of_one(NO_TOPIC, **fields), of_one(topic_id, -1, **fields), []):
        s.ask(api, version, group_id=s.name, topics=asked)


@case(READ)
def read_states(s: Session, version: int) -> None:
    """What is not there, of several; and a leader that was followed by another one."""
    topic_id = begun(s, 1, partitions=2)
    ask_several(s, READ, version, topic_id, leader_epoch=0)
    for group_id in ("", f"{s.name}.none"):
        s.ask(READ, version, group_id=group_id, topics=of_one(topic_id, leader_epoch=0))
    for leader_epoch in (2, 1, -1, 2):
        read(s, topic_id, leader_epoch)


@case(INITIALIZE)
def initialized_several(s: Session, version: int) -> None:
    topic_id = coordinated(s, 2)
    state = {"state_epoch": 1, "start_offset": 5}
    ask_several(s, INITIALIZE, version, topic_id, **state)
    for group_id in ("", f"{s.name}.none"):
        s.ask(INITIALIZE, version, group_id=group_id, topics=of_one(topic_id, **state))
    read(s, topic_id)


@case(WRITE)
def written_wrongly(s: Session, version: int) -> None:
    """States that do not exist, epochs that are not there, batches that cannot be."""
    topic_id = coordinated(s, 2)
    row = {"first_offset": 4, "last_offset": 5, "delivery_state": 0, "delivery_count": 1}
    state = {"state_epoch": 1, "leader_epoch": 0, "start_offset": 4, "state_batches": [row]}
    s.ask(WRITE, version, group_id=s.name, topics=of_one(topic_id, **state))
    started = of_one(topic_id, state_epoch=1, start_offset=0)
    s.quietly(INITIALIZE, 0, group_id=s.name, topics=started)
    ask_several(s, WRITE, version, topic_id, **state)
    s.ask(WRITE, version, group_id="", topics=of_one(topic_id, **state))
    for change in (
        {"start_offset": -1},
        {"state_batches": []},
        {"leader_epoch": -1},
        {"state_epoch": -1},
        {"state_batches": [row, {**row, "delivery_state": 2}]},
        {"start_offset": 5},
    ):
        s.ask(WRITE, version, group_id=s.name, topics=of_one(topic_id, **{**state, **change}))
    read(s, topic_id)


@case(SUMMARY)
def summarized_several(s: Session, version: int) -> None:
    topic_id = begun(s, 1, partitions=2)
    ask_several(s, SUMMARY, version, topic_id, leader_epoch=0)


@case(DELETE)
def deleted_several(s: Session, version: int) -> None:
    topic_id = begun(s, 1, partitions=2)
    ask_several(s, DELETE, version, topic_id)
    s.ask(DELETE, version, group_id="", topics=of_one(topic_id))
    read(s, topic_id)


@case("FindCoordinator", first=6)
def of_share_partitions(s: Session, version: int) -> None:
    topic_id = coordinated(s)
    encoded = base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()
    keys = [f"{s.name}:{encoded}:0", f"{s.name}:{encoded}:9", f":{encoded}:0", f"a:b:{encoded}:0"]
    keys += [f"{s.name}:{encoded}:x", f"{s.name}:x:0", f"{s.name}:{encoded}", s.name, ""]
    for asked in (*([key] for key in keys), keys[:2], []):
        answer = s.quietly("FindCoordinator", version, coordinator_keys=asked, key_type=SHARE_KEY)
        for one in answer["coordinators"]:
            one["key"] = one["key"].replace(encoded, "<topic-id>")
        s.record("FindCoordinator", answer)


@case(FETCH)
def acknowledged_elsewhere(s: Session, version: int) -> None:
    """Acknowledgements for a partition that is not there, then for the one that is."""
    topic_id = begun(s, 2)
    fetch(s, version, 0, topic_id)
    fetch(s, version, 1, None, topics=topics_of(topic_id, (0, 1, [ACCEPT]), partition=3), **NOW)
    fetch(s, version, 2, topic_id, (0, 1, [ACCEPT]), **NOW)


@case(FETCH)
def a_second_session(s: Session, version: int) -> None:
    """A member that comes again takes the place of its session, and not what it holds."""
    topic_id = begun(s, 2, 2)
    fetch(s, version, 0, topic_id, max_records=1)
    fetch(s, version, 0, topic_id, connection="second", max_records=1)
    fetch(s, version, 1, topic_id, (0, 1, [ACCEPT]), connection="second", **NOW)
    fetch(s, version, 2, None, **NOW)
    fetch(s, version, 1, None, **NOW)
