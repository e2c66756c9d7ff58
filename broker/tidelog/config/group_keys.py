"""The broker's settings of consumer, share and streams groups: Kafka's names, each declared once.

A part of `keys.py`. A group may have values of its own for most of them (`group_settings.py`),
within the `min` and `max` of its broker (`group_limits.py`).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from tidelog.config.vocabulary import (
    CLUSTER_WIDE,
    HIGH,
    LOW,
    ConfigError,
    integer,
    short,
    string,
    strings,
)
from tidelog_storage.config_key import refuse

if TYPE_CHECKING:
    from collections.abc import Mapping

ASSIGNOR_CLASSES: Mapping[str, str] = MappingProxyType(
    {
        f"org.apache.kafka.coordinator.group.assignor.{name.capitalize()}Assignor": name
        for name in ("uniform", "range")
    }
)
"""Kafka's own assignors by the names of their classes; no others can be loaded."""

_MIGRATION_POLICIES = ("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL")


def _check_not_empty(name: str, value: list[str]) -> None:
    if not value:
        raise ConfigError(
            name,
            f"Configuration '{name}' must not be empty. Valid values include: any non-empty value",
        )


def _check_assignors(name: str, value: list[str]) -> None:
    _check_not_empty(name, value)
    names = tuple(ASSIGNOR_CLASSES.values())
    for each in value:
        if each not in names and each not in ASSIGNOR_CLASSES:
            raise refuse(name, each, f"String must be one of: {', '.join(names)}")


def _check_protocols(name: str, value: list[str]) -> None:
    if "classic" not in value:
        raise ConfigError(name, f"{name}: disabling the 'classic' protocol is not supported.")


def _check_policy(name: str, value: str) -> None:
    if value.upper() not in _MIGRATION_POLICIES:
        choices = ", ".join(_MIGRATION_POLICIES)
        raise refuse(name, value, f"String must be one of (case insensitive): {choices}")


class ConsumerGroupKeys:
    """Consumer groups of KIP-848, whose partitions the broker assigns."""

    group_coordinator_rebalance_protocols: list[str] = strings(
        ("classic", "consumer", "streams"),
        "Protocols of groups: without `consumer` those of KIP-848 are off, without `streams` those "
        "of KIP-1071. Deprecated in Kafka.",
        choices=("consumer", "classic", "share", "streams"),
        unique=True,
        check=_check_protocols,
    )
    group_consumer_session_timeout_ms: int = integer(
        45000, "A member without heartbeats for this long leaves its group.", low=1
    )
    group_consumer_min_session_timeout_ms: int = integer(
        45000, "Shortest session timeout of members.", low=1
    )
    group_consumer_max_session_timeout_ms: int = integer(
        60000, "Longest session timeout of members.", low=1
    )
    group_consumer_heartbeat_interval_ms: int = integer(
        5000, "Time between a member's heartbeats.", low=1
    )
    group_consumer_min_heartbeat_interval_ms: int = integer(
        5000, "Shortest time between heartbeats.", low=1
    )
    group_consumer_max_heartbeat_interval_ms: int = integer(
        15000, "Longest time between heartbeats.", low=1
    )
    group_consumer_max_size: int = integer(2147483647, "Members of one consumer group.", low=1)
    group_consumer_assignors: list[str] = strings(
        ("uniform", "range"),
        "Assignors that members may choose from, `uniform` and `range` or Kafka's classes of them; "
        "the first one is the default.",
        unique=True,
        check=_check_assignors,
    )
    group_consumer_migration_policy: str = string(
        "bidirectional",
        "Whether groups may change between the classic and the consumer protocol online.",
        check=_check_policy,
    )
    group_consumer_assignment_interval_ms: int = integer(
        1000,
        "Shortest time between two assignments of a consumer group's partitions.",
        low=0,
        mode=CLUSTER_WIDE,
    )
    group_consumer_min_assignment_interval_ms: int = integer(
        0, "Smallest value of that interval.", low=0
    )
    group_consumer_max_assignment_interval_ms: int = integer(
        15000, "Largest value of that interval.", low=0
    )
    group_consumer_regex_refresh_interval_ms: int = integer(
        600000,
        "Time after which regular expressions are matched again.",
        low=10000,
        internal=True,
        inert=True,
    )


class ShareGroupKeys:
    """Share groups (KIP-932)."""

    group_share_session_timeout_ms: int = integer(45000, "Session timeout of members.", low=1)
    group_share_min_session_timeout_ms: int = integer(45000, "Its minimum.", low=1)
    group_share_max_session_timeout_ms: int = integer(60000, "Its maximum.", low=1)
    group_share_heartbeat_interval_ms: int = integer(5000, "Time between heartbeats.", low=1)
    group_share_min_heartbeat_interval_ms: int = integer(5000, "Its minimum.", low=1)
    group_share_max_heartbeat_interval_ms: int = integer(15000, "Its maximum.", low=1)
    group_share_record_lock_duration_ms: int = integer(
        30000, "How long a member may hold a record.", low=1000, high=3600000
    )
    group_share_min_record_lock_duration_ms: int = integer(
        15000, "Its minimum.", low=1000, high=30000
    )
    group_share_max_record_lock_duration_ms: int = integer(
        60000, "Its maximum.", low=30000, high=3600000
    )
    group_share_delivery_count_limit: int = integer(5, "Deliveries of one record.", low=2, high=10)
    group_share_min_delivery_count_limit: int = integer(2, "Their minimum.", low=2, high=5)
    group_share_max_delivery_count_limit: int = integer(10, "Their maximum.", low=5, high=25)
    group_share_partition_max_record_locks: int = integer(
        2000, "Records of a partition held at a time.", low=100, high=10000
    )
    group_share_min_partition_max_record_locks: int = integer(
        100, "Their minimum.", low=100, high=2000
    )
    group_share_max_partition_max_record_locks: int = integer(
        4000, "Their maximum.", low=2000, high=10000
    )
    group_share_assignment_interval_ms: int = integer(
        1000, "Shortest time between two assignments.", low=0, mode=CLUSTER_WIDE
    )
    group_share_min_assignment_interval_ms: int = integer(0, "Its minimum.", low=0)
    group_share_max_assignment_interval_ms: int = integer(15000, "Its maximum.", low=0)
    group_share_max_size: int = integer(200, "Members of one share group.", low=1, high=1000)
    group_share_max_share_sessions: int = integer(
        2000, "Share sessions of one broker, at least group.share.max.size.", low=1
    )
    group_share_assignors: list[str] = strings(
        ("simple",),
        "The assignor; there is this one.",
        choices=("simple",),
        unique=True,
        check=_check_not_empty,
        inert=True,
    )
    group_share_initialize_retry_interval_ms: int = integer(
        30000,
        "Time after which the state of share partitions is initialized again.",
        low=1,
        internal=True,
    )
    share_fetch_purgatory_purge_interval_requests: int = integer(
        1000, "Requests between two cleanups of the waiting share fetches.", inert=True
    )


class ShareCoordinatorKeys:
    """The state of share groups (KIP-932) and its topic."""

    share_coordinator_state_topic_num_partitions: int = integer(
        50, "Partitions of __share_group_state.", low=1, importance=HIGH
    )
    share_coordinator_state_topic_replication_factor: int = short(
        3, "Replicas of __share_group_state.", low=1, importance=HIGH
    )
    share_coordinator_state_topic_min_isr: int = short(
        2, "min.insync.replicas of __share_group_state.", low=1, importance=HIGH
    )
    share_coordinator_state_topic_segment_bytes: int = integer(
        104857600, "Segment size of __share_group_state.", low=1, importance=HIGH
    )
    share_coordinator_threads: int = integer(1, "Threads of the coordinator.", low=1, inert=True)
    share_coordinator_snapshot_update_records_per_snapshot: int = integer(
        500, "Changes of a state between two snapshots of it.", low=0, high=500
    )
    share_coordinator_load_buffer_size: int = integer(
        5242880, "Bytes read at a time when loading states.", low=1, importance=HIGH
    )
    share_coordinator_state_topic_compression_codec: int = integer(
        0, "Codec of the batches in __share_group_state.", importance=HIGH
    )
    share_coordinator_append_linger_ms: int = integer(
        -1, "Wait for more writes before an append.", low=-1, inert=True
    )
    share_coordinator_write_timeout_ms: int = integer(
        5000, "How long a write waits for the replicas.", low=1, importance=HIGH
    )
    share_coordinator_state_topic_prune_interval_ms: int = integer(
        300000,
        "Time between deletions of records that no state needs.",
        low=1,
        importance=LOW,
        internal=True,
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = integer(
        300000,
        "Age of a state's last snapshot at which it gets another one.",
        low=1,
        importance=LOW,
        internal=True,
    )
    share_coordinator_cached_buffer_max_bytes: int = integer(
        1048588, "Largest buffer kept for reuse.", low=524288, mode=CLUSTER_WIDE, inert=True
    )


class StreamsGroupKeys:
    """Streams groups (KIP-1071)."""

    group_streams_session_timeout_ms: int = integer(45000, "Session timeout of members.", low=1)
    group_streams_min_session_timeout_ms: int = integer(45000, "Its minimum.", low=1)
    group_streams_max_session_timeout_ms: int = integer(60000, "Its maximum.", low=1)
    group_streams_heartbeat_interval_ms: int = integer(5000, "Time between heartbeats.", low=1)
    group_streams_min_heartbeat_interval_ms: int = integer(5000, "Its minimum.", low=1)
    group_streams_max_heartbeat_interval_ms: int = integer(15000, "Its maximum.", low=1)
    group_streams_max_size: int = integer(2147483647, "Members of one streams group.", low=1)
    group_streams_num_standby_replicas: int = integer(0, "Standby replicas of each task.", low=0)
    group_streams_max_standby_replicas: int = integer(2, "Their maximum.", low=0)
    group_streams_initial_rebalance_delay_ms: int = integer(
        3000, "Wait for more members before a new group's first assignment.", low=0
    )
    group_streams_assignment_interval_ms: int = integer(
        1000, "Shortest time between two assignments.", low=0, mode=CLUSTER_WIDE
    )
    group_streams_min_assignment_interval_ms: int = integer(0, "Its minimum.", low=0)
    group_streams_max_assignment_interval_ms: int = integer(15000, "Its maximum.", low=0)
