"""Groups of Java clients that are used before and after each move of the directories."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from compat.eventually import eventually
from compat.moving import GROUP, make_topics, records_of, set_config

if TYPE_CHECKING:
    from pathlib import Path

    from compat.jvm import Jvm


class ShareGroup:
    """A share group that accepts some records each time, and releases the others."""

    RECORDS, ACCEPTED = 30, 5

    def __init__(self, java: Jvm, bootstrap: str, replicas: int) -> None:
        self._java = java
        self._left = dict.fromkeys(range(self.RECORDS), 0)  # with their deliveries
        make_topics(bootstrap, {"queue": 1}, replicas)
        producer = Producer({"bootstrap.servers": bootstrap})
        for offset in self._left:
            producer.produce("queue", f"{offset}")
        assert producer.flush(60) == 0
        set_config(bootstrap, GROUP, "share", "share.auto.offset.reset", "earliest")

    def use(self, bootstrap: str) -> None:
        """Take all records that are left: each comes once, one delivery further."""
        settings = {"share.acknowledgement.mode": "explicit"}
        member = {"member": "mover"}
        place = {"bootstrap": bootstrap, "group": "share", "topic": "queue"}
        self._java.call("share_open", **member, **place, settings=settings)
        taken: dict[int, int] = {}
        end = time.monotonic() + 60
        while len(taken) < len(self._left) and time.monotonic() < end:
            found = self._java.call("share_poll", **member, wait_ms=10_000)["records"]
            assert not taken.keys() & {offset for offset, _, _ in found}
            taken |= {offset: deliveries for offset, _, deliveries in found}
            kinds = {
                offset: "ACCEPT" if place < self.ACCEPTED else "RELEASE"
                for place, offset in enumerate(sorted(self._left))
            }
            marks = [[offset, kinds[offset]] for offset, _, _ in found]
            assert self._java.call("share_commit", **member, marks=marks)["errors"] == []
        self._java.call("share_close", **member)
        assert taken == {offset: count + 1 for offset, count in self._left.items()}
        self._left = {
            offset: count
            for place, (offset, count) in enumerate(sorted(taken.items()))
            if place >= self.ACCEPTED
        }


class StreamsGroup:
    """A word count of Kafka Streams, exactly once, as a streams group (KIP-1071)."""

    WORDS = ("one", "two", "three")
    LINES = 20  # more, each time

    def __init__(self, java: Jvm, bootstrap: str, replicas: int, folder: Path) -> None:
        self._java, self._folder = java, folder
        self._uses = itertools.count(1)
        make_topics(bootstrap, {"lines": 2, "counts": 1}, replicas)

    def use(self, bootstrap: str) -> None:
        """Count more words: each goes on from the count that it had."""
        use, at = next(self._uses), {"bootstrap.servers": bootstrap}
        producer = Producer(at)
        for number in range(self.LINES):
            producer.produce("lines", " ".join(self.WORDS), partition=number % 2)
        assert producer.flush(60) == 0
        self._java.call(
            "wordcount_start",
            bootstrap=bootstrap,
            application="moved",
            protocol="streams",
            **{"from": "lines", "to": "counts", "folder": str(self._folder / f"streams-{use}")},
        )
        count = use * self.LINES
        found = eventually(
            lambda: records_of(at, "counts", 0, "read_committed"),
            lambda records: len(records) >= count * len(self.WORDS),
            120,
        )
        self._java.call("wordcount_stop")
        counts = defaultdict(list)
        for _, word, counted in found:
            counts[word].append(int(counted))
        assert counts == {word: list(range(1, count + 1)) for word in self.WORDS}
