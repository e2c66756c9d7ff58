"""The broker's settings of the remote tier (KIP-405): Kafka's names, each declared once.

A part of `keys.py`, used only if `remote.log.storage.system.enable` is on. Other settings of the
plug-ins begin with a prefix, are not declared here, and reach the plug-ins without the prefix.
"""

from __future__ import annotations

from tidelog.config.vocabulary import (
    CLUSTER_WIDE,
    LOW,
    boolean,
    double,
    integer,
    long,
    string,
    strings,
)
from tidelog_storage.config_key import refuse

_INT64_MAX = 2**63 - 1
_OUR_STORES = (
    "tidelog_storage.remote.",
    "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
)
# Settings of tidelog's stores beyond the declared keys: their place, and no secrets.
_PLACES = frozenset(
    {
        "bucket",
        "connect.timeout.ms",
        "dir",
        "endpoint.url",
        "multipart.part.bytes",
        "path.style.access",
        "prefix",
        "profile",
        "read.timeout.ms",
        "region",
        "retries.max",
    }
)
_TOPIC_BASED = (
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
)


def _check_not_empty(name: str, value: str) -> None:
    if not value:
        raise refuse(name, value, "String must be non-empty")


def is_place_of_store(class_name: str | None, key: str, text: str) -> bool:
    """Return whether a setting (without its prefix) of this store is its place, and no secret.

    Apache Kafka never shows the value of an undeclared key; tidelog knows its own stores.
    """
    if "@" in text:  # a URL may hold a password
        return False
    return is_our_store(class_name) and key in _PLACES


def is_our_store(class_name: str | None) -> bool:
    """Return whether the class is one of tidelog's own stores, under any of their names."""
    return class_name is None or class_name.startswith(_OUR_STORES)


def is_known_to_our_stores(key: str) -> bool:
    """Return whether tidelog's stores read this setting (without its prefix)."""
    return key in _PLACES


class TieredKeys:
    """The remote tier: its plug-ins, tasks, reads, quotas and index cache."""

    remote_log_storage_system_enable: bool = boolean(
        False, "Whether this broker has a remote tier; topics join by remote.storage.enable."
    )
    remote_storage_topics: list[str] = strings(
        (),
        "Names, with * and ? for any characters, of topics that are created with "
        "remote.storage.enable=true unless they say otherwise. tidelog's own.",
        internal=True,
    )
    # -- plug-ins ----------------------------------------------------------------------------------
    remote_log_storage_manager_class_name: str | None = string(
        None, "Class that keeps the bytes of remote segments.", check=_check_not_empty
    )
    remote_log_storage_manager_class_path: str | None = string(
        None, "Folders in which to look for that class first."
    )
    remote_log_storage_manager_impl_prefix: str = string(
        "rsm.config.", "Prefix of the settings that class is given.", check=_check_not_empty
    )
    remote_log_metadata_manager_class_name: str = string(
        _TOPIC_BASED, "Class that keeps the metadata of remote segments.", check=_check_not_empty
    )
    remote_log_metadata_manager_class_path: str | None = string(
        None, "Folders in which to look for that class first."
    )
    remote_log_metadata_manager_impl_prefix: str = string(
        "rlmm.config.", "Prefix of the settings that class is given.", check=_check_not_empty
    )
    remote_log_metadata_manager_listener_name: str | None = string(
        None, "Listener of this broker that class connects to.", check=_check_not_empty
    )
    remote_log_metadata_custom_metadata_max_bytes: int = integer(
        128,
        "Bytes that a plug-in may keep with a segment; more stops copying the partition.",
        low=0,
        importance=LOW,
    )
    # -- index cache -------------------------------------------------------------------------------
    remote_log_index_file_cache_total_size_bytes: int = long(
        1 << 30,
        "Bytes of local disk for the indexes of remote segments.",
        low=1,
        importance=LOW,
        mode=CLUSTER_WIDE,
    )
    remote_log_index_file_cache_ttl_ms: int = long(
        900000,
        "Time after which unused indexes leave that cache; -1 for never.",
        low=-1,
        importance=LOW,
        internal=True,
    )
    # -- tasks -------------------------------------------------------------------------------------
    remote_log_manager_copier_thread_pool_size: int = integer(
        10, "Segments copied at a time.", low=1, mode=CLUSTER_WIDE
    )
    remote_log_manager_expiration_thread_pool_size: int = integer(
        10, "Partitions whose remote segments expire at a time.", low=1, mode=CLUSTER_WIDE
    )
    remote_log_manager_follower_thread_pool_size: int = integer(
        2, "Followed partitions looked after at a time.", low=1, mode=CLUSTER_WIDE
    )
    remote_log_manager_thread_pool_size: int = integer(
        2, "Older name for the sizes of all pools together.", low=1, inert=True
    )
    remote_log_manager_task_interval_ms: int = long(
        30000, "Time between the runs of a partition's remote tasks.", low=1, importance=LOW
    )
    remote_log_manager_task_retry_backoff_ms: int = long(
        500, "First pause after a remote failure.", low=1, importance=LOW, internal=True
    )
    remote_log_manager_task_retry_backoff_max_ms: int = long(
        30000, "Longest pause after remote failures.", low=1, importance=LOW, internal=True
    )
    remote_log_manager_task_retry_jitter: float = double(
        0.2,
        "Random share by which those pauses vary.",
        low=0,
        high=0.5,
        importance=LOW,
        internal=True,
    )
    # -- reads -------------------------------------------------------------------------------------
    remote_log_reader_threads: int = integer(
        10, "Remote reads at a time.", low=1, mode=CLUSTER_WIDE
    )
    remote_log_reader_max_pending_tasks: int = integer(
        100, "Remote reads that may wait for their turn; more are refused.", low=1
    )
    remote_fetch_max_wait_ms: int = integer(
        500, "How long a fetch waits for its remote reads.", low=1, mode=CLUSTER_WIDE
    )
    remote_list_offsets_request_timeout_ms: int = long(
        30000, "How long a look-up by time in the remote tier may take.", low=1, mode=CLUSTER_WIDE
    )
    # -- quotas ------------------------------------------------------------------------------------
    remote_log_manager_copy_max_bytes_per_second: int = long(
        _INT64_MAX, "Bytes a second of copying, all partitions together.", low=1, mode=CLUSTER_WIDE
    )
    remote_log_manager_copy_quota_window_num: int = integer(
        11, "Windows that the rate of copying is taken over.", low=1
    )
    remote_log_manager_copy_quota_window_size_seconds: int = integer(
        1, "Length of each of those windows.", low=1
    )
    remote_log_manager_fetch_max_bytes_per_second: int = long(
        _INT64_MAX, "Bytes a second of remote reads, all together.", low=1, mode=CLUSTER_WIDE
    )
    remote_log_manager_fetch_quota_window_num: int = integer(
        11, "Windows that the rate of remote reads is taken over.", low=1
    )
    remote_log_manager_fetch_quota_window_size_seconds: int = integer(
        1, "Length of each of those windows.", low=1
    )
    # -- replication and deletion ------------------------------------------------------------------
    follower_fetch_last_tiered_offset_enable: bool = boolean(
        False,
        "Whether an empty follower skips what the remote tier has already (KIP-1023).",
        mode=CLUSTER_WIDE,
    )
    remote_partition_remover_task_interval_ms: int = long(
        3600000,
        "Time between checks for remote parts of deleted topics. Named by KIP-405, not in Kafka.",
        low=1,
        importance=LOW,
        internal=True,
    )
