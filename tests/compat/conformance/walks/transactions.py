"""Walks of two transactional ids over two partitions and one group.

Each step waits until no transaction is ending, for how long that takes is chance. A producer keeps
to one version of Produce, to transactional batches, and to its own id and epochs so far: what Kafka
has verified for an id, right or wrong, it keeps until the next such batch of that id. No commit has
only metadata that is too large, which makes a group on Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.batches import TIME, batch
from compat.conformance.transactional import (
    PATIENCE_MS,
    TIMEOUT_MS,
    Producer,
    log_of,
    new_topic,
    own_transactions,
)
from compat.conformance.walks.walk import Walk
from tidelog_protocol.records import Record

if TYPE_CHECKING:
    import random

    from compat.conformance.session import Session

STEPS = 50
PARTITIONS = 2
PRODUCE_VERSIONS = (11, 12)  # the first one of each transaction protocol


class Transactions(Walk):
    """The producers of a walk, as their broker has answered so far."""

    def __init__(self, session: Session, rng: random.Random) -> None:
        super().__init__(session, rng)
        session.coordinator()
        self.topic = new_topic(session, PARTITIONS)
        # The first producer id of a broker is 0, which is also told of ids that are unknown.
        session.quietly("InitProducerId", 0, transactional_id=None, transaction_timeout_ms=1)
        self.producers = [Producer(session, suffix) for suffix in (".one", ".two")]
        self.versions = {
            one.transactional_id: rng.choice(PRODUCE_VERSIONS) for one in self.producers
        }
        self.sequences: dict[tuple[int, int, int], int] = {}

    def settle(self) -> None:
        for one in self.producers:
            one.settle()

    def who(self, one: Producer) -> dict[str, Any]:
        """Mostly the producer's own id and epoch."""
        other = next(each for each in self.producers if each is not one)
        wrong: tuple[tuple[float, dict[str, Any]], ...] = (
            (3, {"producer_epoch": one.epoch - 1}),
            (3, {"producer_epoch": one.epoch + 1}),
            (1, {"producer_epoch": -1}),
            (1, {"producer_id": other.producer_id}),
            (1, {"producer_id": one.producer_id + 100_000}),
            (1, {"transactional_id": f"{self.session.name}.none"}),
            (0.5, {"transactional_id": ""}),
        )
        return one.who(**self.any_of((90, {}), *wrong))

    def init(self, one: Producer) -> None:
        """InitProducerId, of a new instance or to go on."""
        asked: dict[str, Any] = {
            "transactional_id": one.transactional_id,
            "transaction_timeout_ms": self.any_of((90, TIMEOUT_MS), (3, 0), (3, 10_000_000)),
        }
        if self.chance(40):
            asked |= {name: value for name, value in self.who(one).items() if "producer" in name}
        answer = self.session.ask("InitProducerId", self.any_of((1, 3), (1, 4), (1, 5)), **asked)
        if not answer["error_code"]:
            one.took(answer)

    def add(self, one: Producer) -> None:
        """AddPartitionsToTxn, of clients or between brokers."""
        who = self.who(one)
        name = self.any_of((95, self.topic), (5, f"{self.session.name}.none"))
        index = self.any_of((45, [0]), (25, [1]), (25, [0, 1]), (5, [0, 7]))
        topics = [{"name": name, "partitions": index}]
        if self.chance(70):
            fields = {f"v3_and_below_{key}": value for key, value in who.items()}
            self.session.ask("AddPartitionsToTxn", 3, **fields, v3_and_below_topics=topics)
        else:
            asked = {**who, "verify_only": self.chance(60), "topics": topics}
            version = self.any_of((1, 4), (1, 5))
            self.session.ask("AddPartitionsToTxn", version, transactions=[asked])

    def add_offsets(self, one: Producer) -> None:
        """AddOffsetsToTxn."""
        version = self.any_of((1, 3), (1, 4))
        self.session.ask("AddOffsetsToTxn", version, **self.who(one), group_id=self.session.name)

    def produce(self, one: Producer) -> None:
        """Produce to one partition."""
        index = self.rng.randrange(PARTITIONS)
        who = self.who(one)
        if who["producer_id"] != one.producer_id or who["producer_epoch"] > one.epoch:
            who = one.who()
        key = (one.producer_id, one.epoch, index)
        due = self.sequences.get(key, 0)
        sequence = self.any_of((88, due), (4, due + 1), (4, max(0, due - 1)), (4, 0))
        record = Record(0, TIME, None, b"%d" % sequence)
        data = batch(
            [record],
            producer_id=who["producer_id"],
            producer_epoch=who["producer_epoch"],
            base_sequence=sequence,
            transactional=True,
        )
        answer = self.session.ask(
            "Produce",
            self.versions[one.transactional_id],
            transactional_id=who["transactional_id"],
            acks=-1,
            timeout_ms=PATIENCE_MS,
            topic_data=[
                {"name": self.topic, "partition_data": [{"index": index, "records": data}]}
            ],
        )
        for topic in answer.get("responses", ()):
            if not topic["partition_responses"][0]["error_code"] and sequence == due:
                self.sequences[key] = due + 1

    def commit(self, one: Producer) -> None:
        """TxnOffsetCommit, of no member."""
        place = {
            "partition_index": self.any_of((45, 0), (45, 1), (10, 7)),
            "committed_offset": self.rng.randrange(9),
            "committed_metadata": self.any_of((90, "m"), (10, None)),
        }
        member = self.any_of((95, ("", -1)), (3, ("nobody", 1)), (2, ("", 3)))
        self.session.ask(
            "TxnOffsetCommit",
            self.any_of((1, 3), (1, 4), (2, 5)),
            **self.who(one),
            group_id=self.session.name,
            member_id=member[0],
            generation_id=member[1],
            topics=[{"name": self.topic, "partitions": [place]}],
        )

    def end(self, one: Producer) -> None:
        """EndTxn."""
        version = self.any_of((1, 3), (1, 4), (2, 5))
        answer = self.session.ask(
            "EndTxn", version, **self.who(one), committed=self.rng.random() < 0.5
        )
        if not answer["error_code"]:
            one.took(answer)

    def look(self, one: Producer) -> None:
        """What an administrator or a consumer sees."""
        kind = self.any_of((3, "state"), (1, "list"), (2, "producers"), (3, "log"), (3, "offsets"))
        session = self.session
        if kind == "state":
            session.record("DescribeTransactions", one.state())
        elif kind == "list":
            states = self.any_of((1, []), (1, ["Ongoing"]), (1, ["Empty", "CompleteAbort"]))
            own_transactions(session, 1, state_filters=states)
        elif kind == "producers":
            rows = [{"name": self.topic, "partition_indexes": list(range(PARTITIONS))}]
            answer = session.quietly("DescribeProducers", 0, topics=rows)
            for topic in answer["topics"]:
                for partition in topic["partitions"]:
                    partition["active_producers"].sort(key=lambda each: int(each["producer_id"]))
            session.record("DescribeProducers", answer)
        elif kind == "log":
            log_of(session, self.topic, self.rng.randrange(PARTITIONS))
        else:
            topics = [{"name": self.topic, "partition_indexes": [0, 1]}]
            asked = {"group_id": session.name, "topics": self.any_of((1, topics), (1, None))}
            stable = self.rng.random() < 0.5
            session.ask("OffsetFetch", 8, groups=[asked], require_stable=stable)


def walk(session: Session, rng: random.Random) -> None:
    """Fifty requests."""
    here = Transactions(session, rng)
    for _ in range(STEPS):
        step = here.any_of(
            (10, Transactions.init),
            (15, Transactions.add),
            (8, Transactions.add_offsets),
            (25, Transactions.produce),
            (12, Transactions.commit),
            (15, Transactions.end),
            (15, Transactions.look),
        )
        step(here, rng.choice(here.producers))
        here.settle()


KINDS = {"transactions": walk}
