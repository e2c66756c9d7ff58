"""Kafka Streams with `processing.guarantee=exactly_once_v2`, an instance killed on the way."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from compat.clients.protocol import decoded, encoded
from compat.conftest import Client
from compat.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compat.brokers import Broker
    from compat.conftest import ClientPool

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]

WORDS = ("und", "der", "die", "das", "sie", "aber", "nicht", "wir")
PARTITIONS = 2


class Words:
    """Lines of words, sent in transactions of which some are aborted."""

    def __init__(self, client: Client, topic: str, transactional_id: str) -> None:
        self.counts: Counter[str] = Counter()
        self._client, self._topic = client, topic
        self._random = random.Random(5)
        client.call("txn_open", producer="words", transactional_id=transactional_id)

    def send(self, lines: int, *, commit: bool = True) -> None:
        words = [self._random.choices(WORDS, k=5) for _ in range(lines)]
        records = [
            {"key": None, "value": encoded(" ".join(line).encode()), "partition": n % PARTITIONS}
            for n, line in enumerate(words)
        ]
        fields: dict[str, Any] = {"topic": self._topic, "records": records, "begin": True}
        self._client.call("txn_send", producer="words", **fields)
        self._client.call("txn_end", producer="words", commit=commit)
        if commit:
            for line in words:
                self.counts.update(line)


def counted(client: Client, topic: str, number: int) -> dict[str, list[int]]:
    """Word by word, the counts of the first so many committed records."""
    fields: dict[str, Any] = {"topic": topic, "partition": 0, "from": "earliest"}
    answer = client.call("consume", count=number, committed=True, **fields)
    found = defaultdict(list)
    for record in answer["records"]:
        word = (decoded(record["key"]) or b"").decode()
        found[word].append(int(decoded(record["value"]) or b""))
    return found


def test_a_word_count_counts_each_word_once_though_it_is_killed(
    broker: Broker, client_pool: ClientPool, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    client = Client("librdkafka", client_pool.get("librdkafka"), broker.bootstrap)
    source, to, application = fresh("lines"), fresh("counts"), fresh("wordcount")
    client.call("create_topic", topic=source, partitions=PARTITIONS, configs={})
    client.call("create_topic", topic=to, partitions=1, configs={})
    words = Words(client, source, fresh("id"))
    words.send(10)
    words.send(5, commit=False)

    def start(number: int) -> Client:
        jvm = Client("java", client_pool.start("java"), broker.bootstrap)
        fields = {"from": source, "to": to, "folder": str(tmp_path / str(number))}
        jvm.call("wordcount_start", application=application, **fields)
        return jvm

    first = start(1)
    assert sum(map(len, counted(client, to, 50).values())) == 50
    words.send(40)
    first.process.kill()
    words.send(5, commit=False)
    words.send(10)
    second = start(2)
    found = eventually(
        lambda: counted(client, to, 300), lambda seen: sum(map(len, seen.values())) >= 300, 60
    )
    assert found == {word: list(range(1, n + 1)) for word, n in words.counts.items()}
    assert second.call("wordcount_state") == {"state": "RUNNING"}
    second.call("wordcount_stop")
    second.process.kill()
    client.call("txn_close", producer="words")
