"""The options of Spark's Kafka source, as this source takes them: the same names, values and errors
(KafkaSourceProvider, JsonUtils).

Names are case-insensitive. Beside them, the properties of the remote store under their own names
(`rsm.config.*`, `remote.log.storage.manager.class.name`) go over those that a broker describes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from tidelog.embedded.client_security import ClientSecurity
from tidelog_pipeline.history.client import KAFKA_PREFIX
from tidelog_storage.config_key import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HistoryOptions", "Limit", "LimitKind", "Subscription"]

BOOTSTRAP_SERVERS = "kafka.bootstrap.servers"
STORE_CLASS = "remote.log.storage.manager.class.name"
STORE_PREFIX = "rsm.config."
_STRATEGIES = ("subscribepattern", "subscribe", "assign")
_NOT_SUPPORTED = {
    "kafka.auto.offset.reset": "Instead set the source option 'startingoffsets'.",
    "kafka.key.deserializer": "Keys are deserialized as byte arrays.",
    "kafka.value.deserializer": "Values are deserialized as byte arrays.",
    "kafka.enable.auto.commit": "",
    "kafka.interceptor.classes": "",
}


class LimitKind(Enum):
    """How a limit of a read is given."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"  # by partition; -1 latest, -2 earliest
    TIMESTAMPS = "timestamps"  # by partition, ms
    TIMESTAMP = "timestamp"  # ms, of all partitions


@dataclass(frozen=True, slots=True)
class Limit:
    """Where a read begins or ends."""

    kind: LimitKind
    by_partition: tuple[tuple[tuple[str, int], int], ...] = ()
    timestamp: int = 0


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which partitions are read: of these topics, of those that match, or these."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class HistoryOptions:
    """One query's options, checked. The store's are in no `repr`: they may be secret."""

    bootstrap_servers: str
    subscription: Subscription
    starting: Limit
    ending: Limit
    is_latest_unmatched: bool = False  # a start after all records is the end, and no error
    includes_headers: bool = False
    partitions_min: int = 0
    is_committed: bool = False
    fails_on_data_loss: bool = True
    store: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    store_class: str | None = field(default=None, repr=False)
    security: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str], *, is_stream: bool = False) -> HistoryOptions:
        """ValueError with the Kafka source's words for what it refuses too."""
        given = {name.lower(): text for name, text in options.items()}
        _check_ends(given, is_stream=is_stream)
        _check_known(given)
        starting = _limit(given, "starting", LimitKind.LATEST if is_stream else LimitKind.EARLIEST)
        ending = _limit(given, "ending", LimitKind.LATEST)
        if not is_stream:
            _check_batch(starting, ending)
        _check_order(starting, ending)
        return cls(
            bootstrap_servers=given[BOOTSTRAP_SERVERS],
            subscription=_subscription(given),
            starting=starting,
            ending=ending,
            is_latest_unmatched=_word(
                given, "startingoffsetsbytimestampstrategy", "error", ("error", "latest")
            )
            == "latest",
            includes_headers=_flag(given, "includeheaders", default=False),
            partitions_min=_positive(given, "minpartitions"),
            is_committed=_word(
                given,
                "kafka.isolation.level",
                "read_uncommitted",
                ("read_uncommitted", "read_committed"),
            )
            == "read_committed",
            fails_on_data_loss=_flag(given, "failondataloss", default=True),
            store=tuple(
                (name.removeprefix(STORE_PREFIX), text)
                for name, text in sorted(given.items())
                if name.startswith(STORE_PREFIX)
            ),
            store_class=given.get(STORE_CLASS),
            security=_security(given),
        )


# ---- checks --------------------------------------------------------------------------------------


def _check_ends(given: Mapping[str, str], *, is_stream: bool) -> None:
    if is_stream and "endingoffsets" in given:
        raise ValueError("ending offset not valid in streaming queries")
    if is_stream and {"endingoffsetsbytimestamp", "endingtimestamp"} & given.keys():
        raise ValueError("ending timestamp not valid in streaming queries")
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger"):
        if is_stream and name.lower() in given:
            raise ValueError(
                f"{name}: Spark tells a Python data source of no limit of a micro-batch before 4.2"
            )


def _check_known(given: Mapping[str, str]) -> None:
    named = [name for name in _STRATEGIES if name in given]
    if len(named) != 1:
        which = "Only one" if named else "One"
        listed = ", ".join(_STRATEGIES)
        raise ValueError(
            f"{which} of the following options {'can' if named else 'must'} be specified for "
            f"Kafka source: {listed}. See the docs for more details."
        )
    for name, text in _NOT_SUPPORTED.items():
        if name in given:
            option = name.removeprefix("kafka.")
            raise ValueError(f"Kafka option '{option}' is not supported. {text}".rstrip(". ") + ".")
    if BOOTSTRAP_SERVERS not in given:
        raise ValueError(
            f"Option '{BOOTSTRAP_SERVERS}' must be specified for configuring Kafka consumer"
        )


def _check_batch(starting: Limit, ending: Limit) -> None:
    if starting.kind is LimitKind.LATEST:
        raise ValueError("starting offset can't be latest for batch queries on Kafka")
    if ending.kind is LimitKind.EARLIEST:
        raise ValueError("ending offset can't be earliest for batch queries on Kafka")
    if starting.kind is LimitKind.OFFSETS:
        for (topic, partition), offset in starting.by_partition:
            if offset == -1:
                name = f"{topic}-{partition}"
                raise ValueError(
                    f"startingOffsets for {name} can't be latest for batch queries on Kafka"
                )
    if ending.kind is LimitKind.OFFSETS:
        for (topic, partition), offset in ending.by_partition:
            if offset == -2:
                name = f"{topic}-{partition}"
                raise ValueError(
                    f"ending offset for {name} can't be earliest for batch queries on Kafka"
                )


def _check_order(starting: Limit, ending: Limit) -> None:
    if starting.kind is not ending.kind or not starting.by_partition:
        return
    starts, ends = dict(starting.by_partition), dict(ending.by_partition)
    if starts.keys() != ends.keys():
        raise ValueError(
            "Topic partitions in starting offsets and ending offsets differ: "
            f"{_names(starts)} and {_names(ends)}"
        )
    for (topic, partition), start in starts.items():
        end = ends[topic, partition]
        if start > end and start >= 0 and end >= 0:
            what = "offset" if starting.kind is LimitKind.OFFSETS else "timestamp"
            raise ValueError(
                f"Partition {topic}-{partition} has start {what} {start} greater than "
                f"end {what} {end}"
            )


def _names(partitions: Mapping[tuple[str, int], int]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions))


# ---- values --------------------------------------------------------------------------------------


def _security(given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The properties of TLS and SASL, without their prefix; ValueError if they do not fit."""
    found = {
        name.removeprefix(KAFKA_PREFIX): text
        for name, text in given.items()
        if name.startswith(KAFKA_PREFIX) and ClientSecurity.names(name.removeprefix(KAFKA_PREFIX))
    }
    try:
        ClientSecurity(found, KAFKA_PREFIX)
    except ConfigError as error:
        raise ValueError(error.message) from None
    return tuple(sorted(found.items()))


def _subscription(given: Mapping[str, str]) -> Subscription:
    if "assign" in given:
        text = given["assign"]
        if not text.strip().startswith("{"):
            raise ValueError(
                f"No topicpartitions to assign as specified value for option 'assign' is '{text}'"
            )
        return Subscription(partitions=_assigned(text))
    if "subscribe" in given:
        topics = [name.strip() for name in given["subscribe"].split(",")]
        topics = [name for name in topics if name]
        if not topics:
            text = given["subscribe"]
            raise ValueError(
                f"No topics to subscribe to as specified value for option 'subscribe' is '{text}'"
            )
        return Subscription(topics=tuple(dict.fromkeys(topics)))
    pattern = given["subscribepattern"].strip()
    if not pattern:
        raise ValueError(
            "Pattern to subscribe is empty as specified value for option 'subscribePattern' is ''"
        )
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"subscribePattern: {error}") from None
    return Subscription(pattern=pattern)


def _assigned(text: str) -> tuple[tuple[str, int], ...]:
    form = '{"topicA":[0,1],"topicB":[0,1]}'
    found = set()
    for topic, listed in _object(text, form).items():
        for partition in listed if isinstance(listed, list) else [None]:
            if type(partition) is not int or partition < 0:
                raise ValueError(f"Expected e.g. {form}, got {text}")
            found.add((topic, partition))
    return tuple(sorted(found))


def _limit(given: Mapping[str, str], side: str, default: LimitKind) -> Limit:
    """Timestamps of all go before those of partitions, and these before offsets."""
    if f"{side}timestamp" in given:
        text = given[f"{side}timestamp"].strip()
        try:
            return Limit(LimitKind.TIMESTAMP, timestamp=int(text))
        except ValueError:
            raise ValueError(f"Expected a single long value, got {text}") from None
    if f"{side}offsetsbytimestamp" in given:
        return Limit(LimitKind.TIMESTAMPS, _numbers(given[f"{side}offsetsbytimestamp"].strip()))
    text = given.get(f"{side}offsets", default.value).strip()
    if text.lower() in ("earliest", "latest"):
        return Limit(LimitKind(text.lower()))
    return Limit(LimitKind.OFFSETS, _numbers(text))


def _numbers(text: str) -> tuple[tuple[tuple[str, int], int], ...]:
    form = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    found = {}
    for topic, listed in _object(text, form).items():
        if not isinstance(listed, dict):
            raise ValueError(f"Expected e.g. {form}, got {text}")
        for partition, number in listed.items():
            if not partition.isdecimal() or type(number) is not int:
                raise ValueError(f"Expected e.g. {form}, got {text}")
            found[topic, int(partition)] = number
    return tuple(sorted(found.items()))


def _object(text: str, form: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"Expected e.g. {form}, got {text}")
    return found


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name, "true" if default else "false").lower()
    if text not in ("true", "false"):
        raise ValueError(f'For input string: "{text}" ({name})')
    return text == "true"


def _positive(given: Mapping[str, str], name: str) -> int:
    if name not in given:
        return 0
    try:
        number = int(given[name])
    except ValueError:
        raise ValueError(f'For input string: "{given[name]}" ({name})') from None
    if number <= 0:
        raise ValueError("minPartitions must be positive")
    return number


def _word(given: Mapping[str, str], name: str, default: str, words: tuple[str, ...]) -> str:
    text = given.get(name, default).lower()
    if text not in words:
        raise ValueError(f"{name}: {given[name]!r} is none of {', '.join(words)}")
    return text
