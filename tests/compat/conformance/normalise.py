"""Makes answers of two brokers comparable: what is random or of the machine becomes a name."""

from __future__ import annotations

import re
import time
from typing import Any

from compat.brokers import address

ZERO_UUID = bytes(16)
# Values that differ by nature: each becomes "<kind#n>", numbered by first appearance in the case,
# so that "the same id again" is still compared.
NAMED = {
    "topic_id": "topic-id",
    "member_id": "member",
    "leader": "member",
    "session_id": "session",
    "producer_id": "producer",
    "coordinator_key": "key",
    "log_dir": "log-dir",
    "client_instance_id": "instance",
    "subscription_id": "subscription",
}
MACHINE = {"total_bytes", "usable_bytes", "cluster_id"}
# Lists whose order no client may rely on, by what identifies an element.
SORT_KEYS = (
    "name",
    "group_id",
    "config_name",
    "resource_name",
    "api_key",
    "topic",
    "topic_name",
    "subtopology_id",
)
NODES = {"brokers": ("node_id", "broker_id"), "nodes": ("node_id",)}
BY_INDEX = {("Produce", "partition_responses"), ("ListOffsets", "partitions")}
BY_INDEX |= {("DescribeLogDirs", "partitions"), ("TxnOffsetCommit", "partitions")}
BY_INDEX |= {("AlterReplicaLogDirs", "partitions")}
BY_INDEX |= {(f"{verb}ShareGroupOffsets", "partitions") for verb in ("Describe", "Alter")}
BY_INDEX |= {("ShareFetch", "partitions")}
BY_INDEX |= {("AddPartitionsToTxn", "results_by_partition"), ("WriteTxnMarkers", "partitions")}
ORDERED = {"Fetch", "Produce", "JoinGroup"}
ORDERED_LISTS = {("DescribeConfigs", "configs"), ("DescribeConfigs", "synonyms")}
NOW_WITHIN_MS = 3_600_000
DAY_MS = 86_400_000
SHORT_BYTES = 64


class Normaliser:
    """Remembers the names it gave within one case.

    `bootstrap` is one address, or those of all brokers in the order of their ids.
    """

    def __init__(self, bootstrap: str) -> None:
        ports = [address(one)[1] for one in bootstrap.split(",")]
        self._ports = {
            port: "<port>" if len(ports) == 1 else f"<port{node_id}>"
            for node_id, port in enumerate(ports, 1)
        }
        self._names: dict[tuple[str, Any], str] = {}
        self._counts: dict[str, int] = {}
        self._api = ""

    def normal(self, api: str, answer: Any) -> Any:
        """The comparable form: JSON values only."""
        self._api = api
        return self._value("", answer, sort=api not in ORDERED)

    def _value(self, name: str, value: Any, *, sort: bool) -> Any:
        if isinstance(value, dict):
            return {key: self._value(key, one, sort=sort) for key, one in value.items()}
        if isinstance(value, list):
            return self._list(name, value, sort=sort)
        if name in NAMED:
            return self._named(NAMED[name], value)
        if name in MACHINE:
            return None if value is None else f"<{name}>"
        if name == "finalized_features_epoch" and value >= 0:
            return f"<{name}>"  # an offset of the metadata log
        if name == "port":
            return self._ports.get(value, value)
        return self._scalar(name, value)

    def _scalar(self, name: str, value: Any) -> Any:
        if isinstance(value, bytes | bytearray):
            return _shown(bytes(value))
        if "time" in name and isinstance(value, int) and self._is_now(value):
            return "<now>"
        if isinstance(value, str):
            return self._text(value)
        return value

    def _text(self, value: str) -> str:
        """Messages and config values quote names given above, and addresses."""
        for (_, original), given in self._names.items():
            if isinstance(original, str) and len(original) > 8:
                value = value.replace(original, given)
        value = re.sub(r"\b\d{13}\b", self._time, value)
        for port, given in self._ports.items():
            value = re.sub(rf"(?<!\d){port}(?!\d)", given, value)
        return value

    def _time(self, match: re.Match[str]) -> str:
        """Times in messages are of the run, or a day away from it."""
        days = round((int(match[0]) - time.time() * 1000) / DAY_MS)
        return f"<now{days:+d} days>" if abs(days) < 10 else match[0]

    def _is_now(self, value: int) -> bool:
        return abs(value - time.time() * 1000) < NOW_WITHIN_MS

    def _list(self, name: str, values: list[Any], *, sort: bool) -> list[Any]:
        if name == "subscribed_topic_names":
            values = sorted(values)
        elif (self._api, name) == ("ConsumerGroupHeartbeat", "topic_partitions"):
            values = sorted(values, key=lambda one: one["partitions"])  # their ids are random
        elif (
            sort
            and (self._api, name) not in ORDERED_LISTS
            and values
            and isinstance(values[0], dict)
        ):
            keys = NODES.get(name, SORT_KEYS)
            key = next((key for key in keys if key in values[0]), None)
            if key is not None:
                values = sorted(values, key=lambda one: (str(one[key]), repr(one)))
        normal = [self._value(name, one, sort=sort) for one in values]
        # Members come in the order of a hash table; their names were given before.
        if name in ("members", "partitions_by_user_endpoint"):
            return sorted(normal, key=repr)
        # Kafka answers partitions with errors apart from the others.
        return sorted(normal, key=_index) if (self._api, name) in BY_INDEX else normal

    def _named(self, kind: str, value: Any) -> Any:
        nothing = (None, -1) if kind == "producer" else (None, "", -1, 0, ZERO_UUID)
        if value in nothing or (kind == "member" and isinstance(value, int)):
            return _shown(value) if isinstance(value, bytes) else value
        if kind == "key":
            return value
        known = self._names.get((kind, value))
        if known is None:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            known = self._names[kind, value] = f"<{kind}#{self._counts[kind]}>"
        return known


def _index(one: dict[str, Any]) -> int:
    return int(one.get("index", one.get("partition_index", 0)))


def _shown(data: bytes) -> str:
    if len(data) <= SHORT_BYTES:
        return f"hex:{data.hex()}"
    # Records are answered as they were stored: both ends and the length tell them apart.
    return f"hex:{data[:SHORT_BYTES].hex()}...{data[-8:].hex()} ({len(data)} bytes)"
