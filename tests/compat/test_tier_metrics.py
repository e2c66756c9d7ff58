"""The names of tiered metrics that our tests know are those in Apache Kafka's jars."""

from __future__ import annotations

import re
import struct
import zipfile
from pathlib import Path

import pytest

from compat.jvm import require_jars
from tidelog_bench.peers import kafka_jars
from tier.test_tier_metrics import FURTHER, OF_READERS, OF_THE_MANAGER, OF_TOPICS

pytestmark = pytest.mark.reference

STORAGE = "org/apache/kafka/server/log/remote/storage"
# Class -> what of its strings are names (in FURTHER, but for the first).
METRICS = f"{STORAGE}/RemoteStorageMetrics.class"
OTHERS = {
    f"{STORAGE}/RemoteLogManager.class": r"remote-\w+-throttle-time",
    "org/apache/kafka/server/purgatory/DelayedOperationPurgatory.class": r"PurgatorySize|Num\w+",
    "org/apache/kafka/storage/internals/log/LogMetricNames.class": r"Log\w+|Num\w+|\w*Size\w*",
    "org/apache/kafka/server/purgatory/DelayedRemoteFetch.class": r"ExpiresPerSec|\w+Metrics",
    "org/apache/kafka/server/purgatory/DelayedRemoteListOffsets.class": r"ExpiresPerSec|\w+Metrics",
}
ENTRY_BYTES = {
    3: 5, 4: 5, 5: 9, 6: 9, 7: 3, 8: 3, 9: 5, 10: 5, 11: 5, 12: 5, 15: 4, 16: 3, 17: 5, 18: 5
}  # fmt: skip


def strings(data: bytes) -> set[str]:
    """The string constants of a class file."""
    (count,) = struct.unpack_from(">H", data, 8)
    texts: dict[int, str] = {}
    constants: list[int] = []
    position, slot = 10, 1
    while slot < count:
        tag = data[position]
        if tag == 1:
            (size,) = struct.unpack_from(">H", data, position + 1)
            texts[slot] = data[position + 3 : position + 3 + size].decode()
            position += 3 + size
        else:
            if tag == 8:
                constants += struct.unpack_from(">H", data, position + 1)
            position += ENTRY_BYTES[tag]
        slot += 2 if tag in (5, 6) else 1
    return {texts[constant] for constant in constants}


@pytest.fixture(scope="module")
def classes() -> dict[str, set[str]]:
    """The strings of the classes above."""
    require_jars()
    found = {}
    for jar in sorted(Path(kafka_jars.classpath().rstrip("*")).glob("kafka-s*.jar")):
        with zipfile.ZipFile(jar) as entries:
            names = {METRICS, *OTHERS} & set(entries.namelist())
            found.update({name: strings(entries.read(name)) for name in names})
    return found


def test_all_names_of_tiered_metrics_are_known(classes: dict[str, set[str]]) -> None:
    told = {name for name in classes[METRICS] if re.fullmatch(r"[A-Z]\w+", name)}
    groups = {"BrokerTopicMetrics", "RemoteLogManager", "RemoteStorageThreadPool"}
    parts = {"AvgIdlePercent", "RemoteLogReader", "TaskQueueSize"}  # of OF_READERS
    assert told - groups - parts == OF_TOPICS | OF_THE_MANAGER | OF_READERS


@pytest.mark.parametrize("name", OTHERS)
def test_further_names_are_known(classes: dict[str, set[str]], name: str) -> None:
    told = {text for text in classes[name] if re.fullmatch(OTHERS[name], text)}
    assert told
    for text in told:
        assert any(text in known for known in FURTHER), text
