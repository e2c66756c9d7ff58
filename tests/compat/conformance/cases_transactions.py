"""Cases: InitProducerId with a transactional id, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, and
who coordinates transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.registry import case
from compat.conformance.transactional import (
    NOT_YET,
    TIMEOUT_MS,
    TRANSACTION,
    Producer,
    log_of,
    new_topic,
)

if TYPE_CHECKING:
    from compat.conformance.session import Session


def is_settled(answer: dict[str, Any]) -> bool:
    """The coordinator serves, and nothing is on its way."""
    return answer["error_code"] not in NOT_YET


@case("FindCoordinator", first=1, last=3)
def of_transactional_id(s: Session, version: int) -> None:
    Producer(s)
    s.ask("FindCoordinator", version, key=f"{s.name}.id", key_type=TRANSACTION)
    s.ask("FindCoordinator", version, key=f"{s.name}.none", key_type=TRANSACTION)
    s.ask("FindCoordinator", version, key="", key_type=TRANSACTION)


@case("FindCoordinator", first=4)
def of_transactional_ids(s: Session, version: int) -> None:
    Producer(s)
    keys = [f"{s.name}.id", f"{s.name}.none", "", f"{s.name}.id"]
    s.ask("FindCoordinator", version, coordinator_keys=keys, key_type=TRANSACTION)
    s.ask("FindCoordinator", version, coordinator_keys=[], key_type=TRANSACTION)


# ---- InitProducerId -----------------------------------------------------------------------------


def init(s: Session, version: int, name: str, **more: Any) -> dict[str, Any]:
    fields = {"transactional_id": name, "transaction_timeout_ms": TIMEOUT_MS, **more}
    return s.ask("InitProducerId", version, **fields)


@case("InitProducerId")
def epochs_of_an_id(s: Session, version: int) -> None:
    producer = Producer(s, ".first")  # the coordinator has loaded
    init(s, version, producer.transactional_id)
    fields = {"transactional_id": f"{s.name}.new", "transaction_timeout_ms": TIMEOUT_MS}
    s.ask_until("InitProducerId", version, is_settled, **fields)
    init(s, version, f"{s.name}.new")
    init(s, version, f"{s.name}.new")


@case("InitProducerId")
def bad_timeouts(s: Session, version: int) -> None:
    producer = Producer(s)
    for timeout_ms in (0, -1, 900_000, 900_001, 1):
        init(s, version, producer.transactional_id, transaction_timeout_ms=timeout_ms)
    init(s, version, "", transaction_timeout_ms=0)


@case("InitProducerId", first=3)
def going_on(s: Session, version: int) -> None:
    """KIP-360: a producer names the id and epoch it has."""
    one = Producer(s)

    def ask(epoch: int, producer_id: int = one.producer_id) -> None:
        who = {"producer_id": producer_id, "producer_epoch": epoch}
        init(s, version, one.transactional_id, **who)

    ask(0)
    ask(0)  # the answer was lost
    ask(5)
    ask(0, one.producer_id + 1000)
    ask(1)
    ask(0)
    ask(-1)
    ask(2, -1)
    init(s, version, one.transactional_id)
    ask(2)
    ask(3)
    never = f"{s.name}.never"
    init(s, version, never, producer_id=one.producer_id, producer_epoch=7)
    init(s, version, never)


@case("InitProducerId")
def with_an_open_transaction(s: Session, version: int) -> None:
    topic = new_topic(s)
    one = Producer(s)
    one.sent(topic, b"open")
    init(s, version, one.transactional_id)
    fields = {"transactional_id": one.transactional_id, "transaction_timeout_ms": TIMEOUT_MS}
    s.ask_until("InitProducerId", version, is_settled, **fields)
    for asked in (3, 5):
        s.ask("EndTxn", asked, **one.who(committed=True))
    log_of(s, topic)


@case("InitProducerId", first=3)
def going_on_with_an_open_transaction(s: Session, version: int) -> None:
    topic = new_topic(s)
    one = Producer(s)
    one.sent(topic, b"open")
    fields: dict[str, Any] = {"transaction_timeout_ms": TIMEOUT_MS, **one.who()}
    s.ask("InitProducerId", version, **{**fields, "producer_epoch": 9})
    one.settle()
    s.ask_until("InitProducerId", version, is_settled, **fields)
    s.ask_until("InitProducerId", version, is_settled, **fields)
    log_of(s, topic)


@case("InitProducerId", first=2)
def after_each_end(s: Session, version: int) -> None:
    topic = new_topic(s)
    one = Producer(s)
    for protocol in (4, 5):
        for commit in (True, False):
            one.sent(topic, b"value")
            one.ended(commit=commit, version=protocol)
            one.took(init(s, version, one.transactional_id))
    log_of(s, topic)


# ---- AddPartitionsToTxn -------------------------------------------------------------------------


def rows(*topics: tuple[str, list[int]]) -> list[dict[str, Any]]:
    return [{"name": name, "partitions": indexes} for name, indexes in topics]


@case("AddPartitionsToTxn", last=3)
def added(s: Session, version: int) -> None:
    topic, other = new_topic(s, 3), new_topic(s)
    one = Producer(s)

    def ask(*topics: tuple[str, list[int]], **changes: Any) -> None:
        who = {f"v3_and_below_{name}": value for name, value in one.who(**changes).items()}
        s.ask("AddPartitionsToTxn", version, **who, v3_and_below_topics=rows(*topics))

    ask((topic, [0]))
    ask((topic, [0, 2]), (other, [0]))
    ask((topic, [1, 9]), (f"{s.name}.none", [0]))
    ask((topic, [1]), ("__consumer_offsets", [0]))
    ask((topic, [1]), ("__transaction_state", [0]), (f"{s.name}.none", [0]))
    ask((topic, [1]), producer_id=one.producer_id + 1000)
    ask((topic, [1]), producer_epoch=one.epoch + 1)
    ask((topic, [1]), producer_epoch=-1)
    ask((topic, [1]), transactional_id=f"{s.name}.none")
    ask((topic, [1]), transactional_id="")
    ask()
    s.record("DescribeTransactions", one.state())
    one.init()
    ask((topic, [1]), producer_epoch=one.epoch - 1)
    ask((topic, [1]))
    one.ended(commit=True)
    ask((topic, [2]))
    s.record("DescribeTransactions", one.state())


@case("AddPartitionsToTxn", first=4)
def added_for_several(s: Session, version: int) -> None:
    s.coordinator()
    topic, other = new_topic(s, 3), new_topic(s)
    one, two = Producer(s, ".one"), Producer(s, ".two")

    def ask(*transactions: dict[str, Any]) -> None:
        s.ask("AddPartitionsToTxn", version, transactions=list(transactions))

    def of(who: Producer, *topics: tuple[str, list[int]], **changes: Any) -> dict[str, Any]:
        return {**who.who(**changes), "topics": rows(*topics)}

    ask(of(one, (topic, [0]), verify_only=True))
    ask(of(one, (topic, [0])))
    ask(of(one, (topic, [0]), verify_only=True))
    ask(of(one, (topic, [0, 1]), (other, [0]), verify_only=True))
    ask(of(one, (topic, [9]), (f"{s.name}.none", [0]), verify_only=True))
    ask(of(one, (topic, [1]), verify_only=True, producer_id=one.producer_id + 1000))
    ask(of(one, (topic, [1]), verify_only=True, producer_epoch=one.epoch + 1))
    ask(of(one, (topic, [1]), verify_only=True, transactional_id=f"{s.name}.none"))
    ask(of(one, (topic, [1]), verify_only=True, transactional_id=""))
    ask(of(one, (topic, [1]), producer_epoch=one.epoch + 1))
    ask(of(one, (topic, [1]), transactional_id=""))
    ask(of(one, (topic, [1]), ("__consumer_offsets", [0])))
    ask(of(one, (topic, [2]), (f"{s.name}.none", [0])))
    ask(of(one))
    ask(of(two, (topic, [2])), of(one, (topic, [2]), (other, [0])))
    ask(of(two, (topic, [0]), verify_only=True), of(one, (topic, [2])))
    # No transaction at all is left out: the reference never answers that.
    one.ended(commit=True)
    ask(of(one, (topic, [0]), verify_only=True))


# ---- AddOffsetsToTxn ----------------------------------------------------------------------------


@case("AddOffsetsToTxn")
def offsets_added(s: Session, version: int) -> None:
    s.coordinator()
    one = Producer(s)

    def ask(group: str = s.name, **changes: Any) -> None:
        s.ask("AddOffsetsToTxn", version, **one.who(**changes), group_id=group)

    ask(producer_id=one.producer_id + 1000)
    ask(producer_epoch=one.epoch + 1)
    ask(transactional_id=f"{s.name}.none")
    ask(transactional_id="")
    ask()
    ask()
    ask("")
    one.init()
    ask(producer_epoch=one.epoch - 1)
    ask()
    one.ended(commit=True)
    ask()


# ---- EndTxn -------------------------------------------------------------------------------------


def end(s: Session, version: int, one: Producer, *, commit: bool, **changes: Any) -> None:
    s.ask("EndTxn", version, **one.who(committed=commit, **changes))
    one.settle()


@case("EndTxn")
def every_state(s: Session, version: int) -> None:
    topic = new_topic(s)
    one = Producer(s)
    for commit in (True, False):
        end(s, version, one, commit=commit)  # empty
    one.init()
    for commit in (True, False):
        one.sent(topic, b"value")
        end(s, version, one, commit=commit)
        for again in (commit, not commit):
            end(s, version, one, commit=again)
        s.record("DescribeTransactions", one.state())
        one.init()
    log_of(s, topic)


@case("EndTxn")
def by_others(s: Session, version: int) -> None:
    topic = new_topic(s)
    one = Producer(s)
    one.init()
    one.sent(topic, b"value")
    for commit in (True, False):
        end(s, version, one, commit=commit, producer_id=one.producer_id + 1000)
        end(s, version, one, commit=commit, producer_epoch=one.epoch + 1)
        end(s, version, one, commit=commit, producer_epoch=one.epoch - 1)
        end(s, version, one, commit=commit, transactional_id=f"{s.name}.none")
        end(s, version, one, commit=commit, transactional_id="")
    s.record("DescribeTransactions", one.state())


@case("EndTxn", first=3)
def protocols_in_turn(s: Session, version: int) -> None:
    """A client of one protocol goes on where one of the other ended."""
    topic = new_topic(s)
    one = Producer(s)
    for commit in (True, False):
        one.sent(topic, b"other")
        one.ended(commit=commit, version=5 if version < 5 else 4)
        one.took(s.ask("EndTxn", version, **one.who(committed=not commit)))
        one.settle()
        one.sent(topic, b"value")
        answer = s.ask("EndTxn", version, **one.who(committed=commit))
        one.settle()
        one.took(answer)
        end(s, version, one, commit=not commit, producer_epoch=one.epoch - 1)
        end(s, version, one, commit=commit, producer_epoch=one.epoch - 1)
    log_of(s, topic)
    one.settle()
    s.record("DescribeTransactions", one.state())


@case("EndTxn", first=5)
def aborts_of_nothing(s: Session, version: int) -> None:
    """An abort of what is empty bumps the epoch (KIP-890)."""
    one = Producer(s)
    for _ in range(2):
        answer = s.ask("EndTxn", version, **one.who(committed=False))
        one.settle()
        end(s, version, one, commit=False)
        end(s, version, one, commit=True)
        one.took(answer)
        s.record("DescribeTransactions", one.state())
    s.ask("EndTxn", version, **one.who(committed=True))


@case("EndTxn", first=4)
def of_a_deleted_topic(s: Session, version: int) -> None:
    topic, other = new_topic(s), new_topic(s)
    one = Producer(s)
    one.sent(topic, b"gone")
    one.sent(other, b"here")
    s.quietly("DeleteTopics", 5, topic_names=[topic], timeout_ms=10_000)
    end(s, version, one, commit=True)
    s.record("DescribeTransactions", one.state())
    log_of(s, other)


@case("EndTxn", first=4)
def ran_out_of_time(s: Session, version: int) -> None:
    """The coordinator aborts, and its producer is fenced."""
    topic = new_topic(s)
    one = Producer(s)
    hasty = {"transactional_id": one.transactional_id, "transaction_timeout_ms": 100}
    one.took(s.quietly("InitProducerId", 4, **hasty))
    one.sent(topic, b"late")
    asked = {"transactional_ids": [one.transactional_id]}

    def is_over(answer: dict[str, Any]) -> bool:
        return bool(answer["transaction_states"][0]["transaction_state"] == "CompleteAbort")

    s.ask_until("DescribeTransactions", 0, is_over, **asked)
    who = {f"v3_and_below_{name}": value for name, value in one.who().items()}
    s.ask("AddPartitionsToTxn", 3, **who, v3_and_below_topics=rows((topic, [0])))
    s.ask("AddOffsetsToTxn", 4, **one.who(), group_id=s.name)
    for commit in (True, False):
        end(s, version, one, commit=commit)
    data = [{"index": 0, "records": one.batch(b"later", sequence=1)}]
    fields: dict[str, Any] = {"acks": -1, "timeout_ms": 5000}
    fields["topic_data"] = [{"name": topic, "partition_data": data}]
    s.ask("Produce", 12, transactional_id=one.transactional_id, **fields)
    s.ask("InitProducerId", 5, **{**hasty, **one.who()})
    s.ask("InitProducerId", 5, **hasty)
    log_of(s, topic)
