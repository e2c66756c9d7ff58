"""Cases: WriteTxnMarkers, DescribeTransactions, ListTransactions, DescribeProducers."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from compat.conformance.batches import batch, records
from compat.conformance.registry import case
from compat.conformance.transactional import (
    Producer,
    log_of,
    new_topic,
    offsets_pending,
    own_transactions,
    partition_of_group,
)

if TYPE_CHECKING:
    from compat.conformance.session import Session

# ---- WriteTxnMarkers ----------------------------------------------------------------------------


def marker(
    one: Producer, topic: str, *partitions: int, commit: bool = True, **changes: Any
) -> dict[str, Any]:
    return {
        "producer_id": one.producer_id,
        "producer_epoch": one.epoch,
        "transaction_result": commit,
        "coordinator_epoch": 0,
        "topics": [{"name": topic, "partition_indexes": list(partitions)}],
        **changes,
    }


@case("WriteTxnMarkers")
def markers(s: Session, version: int) -> None:
    topic = new_topic(s, 2)
    one, two = Producer(s, ".one"), Producer(s, ".two")
    one.init()

    def ask(*wanted: dict[str, Any]) -> None:
        s.ask("WriteTxnMarkers", version, markers=list(wanted))

    ask(marker(one, topic, 0))  # of a producer never heard of
    one.sent(topic, b"value")
    two.sent(topic, b"value")
    ask(marker(one, topic, 0, 7))
    one.sent(topic, b"value", partition=1)
    ask(marker(one, topic, 1, commit=False), marker(two, topic, 0, commit=False))
    ask(marker(one, topic, 0, coordinator_epoch=5))
    ask(marker(one, topic, 0, coordinator_epoch=4))
    ask(marker(one, topic, 0, coordinator_epoch=5, producer_epoch=one.epoch - 1))
    ask(marker(one, topic, 0, coordinator_epoch=-1))
    ask(marker(one, topic, 1, producer_epoch=one.epoch + 3))
    ask(marker(one, topic, 1))
    ask()
    ask(marker(one, topic, 0, topics=[]))
    for partition in (0, 1):
        log_of(s, topic, partition)


@case("WriteTxnMarkers")
def markers_of_groups(s: Session, version: int) -> None:
    s.coordinator()
    topic = s.topic()
    one = Producer(s)
    offsets_pending(s, one, topic, 0)
    every = range(8)
    s.ask("WriteTxnMarkers", version, markers=[marker(one, "__consumer_offsets", *every, 99)])
    asked = [{"name": topic, "partition_indexes": [0]}]
    s.ask("OffsetFetch", 7, group_id=s.name, topics=asked, require_stable=True)


@case("WriteTxnMarkers", first=2)
def markers_of_both_protocols(s: Session, version: int) -> None:
    """With the second one a marker's epoch is that after the producer's (KIP-890)."""
    topic = new_topic(s)
    one = Producer(s)
    for level in (0, 1, 2, 3):
        one.sent(topic, b"value")
        for bump in (0, 1, 1):  # the last one is a repetition
            epoch = one.epoch + bump
            made = marker(one, topic, 0, transaction_version=level, producer_epoch=epoch)
            s.ask("WriteTxnMarkers", version, markers=[made])
        one = Producer(s, f".{level}")
    log_of(s, topic)


# ---- looking at them ----------------------------------------------------------------------------


def states(s: Session) -> dict[str, Producer]:
    """Transactional ids in states that stay."""
    # The first producer id of a broker is 0, which is also told of ids that are unknown.
    s.quietly("InitProducerId", 0, transactional_id=None, transaction_timeout_ms=1)
    topic, other = new_topic(s, 3), new_topic(s)
    made = {state: Producer(s, f".{state}") for state in ("empty", "open", "aborted", "committed")}
    for state, one in made.items():
        if state != "empty":
            one.sent(topic, b"value", partition=2)
            one.sent(topic, b"value")
            one.sent(other, b"value")
    made["aborted"].ended(commit=False)
    made["committed"].ended(commit=True, version=5)
    return made


@case("DescribeTransactions")
def described(s: Session, version: int) -> None:
    made = states(s)
    for one in made.values():
        asked = [one.transactional_id]
        answer = s.quietly("DescribeTransactions", version, transactional_ids=asked)
        s.record("DescribeTransactions", {**answer, "transaction_states": one.state()})
    for asked in ([f"{s.name}.none"], [""], []):
        s.ask("DescribeTransactions", version, transactional_ids=asked)
    asked = [f"{s.name}.none", made["empty"].transactional_id, made["empty"].transactional_id]
    s.ask("DescribeTransactions", version, transactional_ids=asked)


@case("ListTransactions")
def listed(s: Session, version: int) -> None:
    made = states(s)

    ask = partial(own_transactions, s, version)
    ask()
    for names in (["Ongoing"], ["Empty", "CompleteAbort"], ["ongoing"], ["no state", "Ongoing"]):
        ask(state_filters=names)
    ask(state_filters=["no state"])
    ask(state_filters=["no state", "another"])
    ask(state_filters=["Dead", "PrepareEpochFence", "PrepareCommit"])
    some, other = made["open"].producer_id, made["empty"].producer_id
    ask(producer_id_filters=[some])
    ask(producer_id_filters=[some, other, 123_456_789])
    ask(producer_id_filters=[123_456_789])
    ask(producer_id_filters=[some], state_filters=["Empty"])
    if version >= 1:
        for duration_ms in (0, 3_600_000, -5):
            time.sleep(0.002)
            ask(duration_filter=duration_ms)
    if version >= 2:
        for pattern in ("", ".*", ".*[.]open", "open", "[", "(?i).*OPEN", r".*\.(open|empty)"):
            ask(transactional_id_pattern=pattern)
        ask(transactional_id_pattern=".*open", state_filters=["Empty"])


PATTERNS = (
    *("(?=x).*", "(?!x).*", "(?<=x).*", "(?<!x).*", "(?>a)", "(?#c).*", "(?P=n)", r"(.)\1", r"\8"),
    *("a++", ".*+", "a**", "*", "a{2,1}", ".{0,1000}", "x{1001}", "(.{100}){11}", "a{", "x{,2}"),
    *("(?P<n>.*)", "(?<n>.*)", "(?P<n>.)(?P<n>.*)", "(?P<>.*)", "(", ")", "]", "}", "[a", "[z-a]"),
    *("[^]a]+", "[]a]", r"[\w.-]+", "[[:alpha:]]+-.*", "[[:^digit:]]+.*", "[[:foo:]]+", "[a&&b]"),
    *(r"\p{L}.*", r"\pL.*", r"\P{Nd}.*", r"\p{^L}.*", r"\p{Lower}.*", r"\p{Foo}", r"\p{Greek}*.*"),
    *(r"\Q[\E.*", r"\QList\E.*", r"\z", r"\Z", r".*\z", r"\A.*", "^.*$", r"\bList\b.*", r"\BL.*"),
    *("(?i)list.*", "(?i:l)IST.*", "(?x)a b", "(?U).*", "(?s-i).*", "(?-s).*", "(?u).*", "(?-)"),
    *(r"\x{4c}ist.*", r"\x4Cist.*", r"\u004c.*", r"\114ist.*", r"\C.*", r"\e", r"\cA", r"\h", "\\"),
    *("|.*", "a||.*", "List.*open|x", "(?:List|x).*", ".+?", ".*n{1,2}?", "日.*", r"\-", r"[\w-a]"),
)


@case("ListTransactions", first=2)
def patterns(s: Session, version: int) -> None:
    """RE2's syntax, of the whole id."""
    Producer(s, ".open")
    for pattern in PATTERNS:
        answer = s.quietly("ListTransactions", version, transactional_id_pattern=pattern)
        ids = [each["transactional_id"] for each in answer["transaction_states"]]
        is_mine = f"{s.name}.id.open" in ids
        code = answer["error_code"]
        s.record("ListTransactions", {"pattern": pattern, "error_code": code, "mine": is_mine})


@case("DescribeProducers")
def producers_of_offsets(s: Session, version: int) -> None:
    s.coordinator()
    topic = s.topic()
    one = Producer(s)
    offsets_pending(s, one, topic, 0)
    offsets_pending(s, one, topic, 0)

    def ask() -> None:
        rows = [{"name": "__consumer_offsets", "partition_indexes": [partition_of_group(s.name)]}]
        answer = s.quietly("DescribeProducers", version, topics=rows)
        for each in answer["topics"][0]["partitions"]:
            mine = [
                row for row in each["active_producers"] if row["producer_id"] == one.producer_id
            ]
            for row in mine:
                row["current_txn_start_offset"] = row["current_txn_start_offset"] >= 0
            s.record("DescribeProducers", {"error_code": each["error_code"], "mine": mine})

    ask()
    one.ended(commit=True)
    ask()


@case("DescribeProducers")
def producers(s: Session, version: int) -> None:
    topic = new_topic(s, 3)

    def ask(name: str, *partitions: int) -> None:
        rows = [{"name": name, "partition_indexes": list(partitions)}]
        answer = s.quietly("DescribeProducers", version, topics=rows)
        for each in answer["topics"]:
            for partition in each["partitions"]:
                partition["active_producers"].sort(key=lambda one: int(one["producer_id"]))
        s.record("DescribeProducers", answer)

    ask(topic, 0, 1, 7)
    ask(f"{s.name}.none", 0)
    s.ask("DescribeProducers", version, topics=[])
    s.produce(topic, batch())
    ask(topic, 0)
    made = s.quietly("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=1000)
    who = {"producer_id": made["producer_id"], "producer_epoch": 0, "base_sequence": 0}
    s.produce(topic, batch(records(4), **who))
    ask(topic, 0)
    one = Producer(s)
    one.sent(topic, b"a", b"b")
    one.sent(topic, b"c")
    ask(topic, 0, 1)
    one.ended(commit=True)
    ask(topic, 0)
    one.sent(topic, b"c")
    ask(topic, 0)
    one.ended(commit=False, version=5)
    ask(topic, 0)
