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
        """Take all records that are left: each is one delivery further."""
        due = set(self._left)
        accepted = set(sorted(self._left)[: self.ACCEPTED])
        end = time.monotonic() + 60
        while due and time.monotonic() < end:
            due -= self._take(bootstrap, accepted)
        assert not due, due

    def _take(self, bootstrap: str, accepted: set[int]) -> set[int]:
        """Take what one member gets: nothing that is accepted, each once, one delivery further.

        It acknowledges with the request that closes its session, and not before it has records.
        Kafka's client may have a fetch under way when it returns: what that gets, of records that
        were released or that the member did not wait for, are deliveries that it never shows.
        """
        settings = {"share.acknowledgement.mode": "explicit"}
        member = {"member": "mover"}
        place = {"bootstrap": bootstrap, "group": "share", "topic": "queue"}
        self._java.call("share_open", **member, **place, settings=settings)
        found = self._java.call("share_poll", **member, wait_ms=60_000)["records"]
        kinds = {True: "ACCEPT", False: "RELEASE"}
        marks = [[offset, kinds[offset in accepted]] for offset, _, _ in found]
        errors = self._java.call("share_close", **member, marks=marks)["errors"]
        assert (errors, bool(found)) == ([], True), (errors, found)
        taken = {offset: deliveries for offset, _, deliveries in found}
        assert len(taken) == len(found), found
        expected = {offset: count + 1 for offset, count in self._left.items() if offset in taken}
        assert taken == expected, (taken, expected)
        self._left |= taken
        for offset in accepted & taken.keys():
            del self._left[offset]
        return set(taken)


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
