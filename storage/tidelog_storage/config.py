"""`LogConfig`: the settings of one topic's logs, under Kafka's topic-level names.

Types, defaults, ranges and error texts are Apache Kafka 4.4's; the documentation is ours. Each key
is declared once, with the broker settings (`log.segment.bytes` …) that give its default: the broker
reads those through `BROKER_KEYS` and `LogConfig.from_broker`, so that none is declared twice.
A log asks attributes of a frozen instance and never sees strings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tidelog_protocol.compression import Codec
from tidelog_storage.config_key import (
    HIGH,
    ConfigError,
    ConfigKey,
    Synonym,
    boolean,
    collect_keys,
    double,
    integer,
    long,
    refuse,
    string,
    strings,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BROKER_KEYS", "TOPIC_KEYS", "ConfigError", "ConfigKey", "LogConfig", "Synonym"]

_INT64_MAX = 2**63 - 1
_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000
NEVER_TIERED = frozenset(
    {
        "__consumer_offsets",
        "__transaction_state",
        "__share_group_state",
        "__remote_log_metadata",
        "__cluster_metadata",
    }
)
"""Topics that stay local whatever their configuration says."""
LIKE_TOTAL_RETENTION = -2
"""`local.retention.*`: the same as `retention.*`."""
UNLIMITED = -1


def _same(name: str) -> tuple[Synonym, ...]:
    return (Synonym(name),)


def _check_gzip_level(name: str, value: int) -> None:
    if value != -1 and not 1 <= value <= 9:
        raise refuse(name, value, "Value must be between 1 and 9 or equal to -1")


def _check_throttled_replicas(name: str, value: list[str]) -> None:
    if value == ["*"]:
        return
    for item in value:
        partition, separator, broker = item.partition(":")
        if not (separator and partition.isdecimal() and broker.isdecimal()):
            raise refuse(
                name,
                value,
                f"{name} must be the literal '*' or a list of replicas in the following format:"
                " [partitionId]:[brokerId],[partitionId]:[brokerId],...",
            )


class LogConfig:
    """The settings of a topic, immutable; attributes are Kafka's names with underscores.

    `overridden` has the names set for the topic itself. `from_overrides` and `from_broker` create
    it; without arguments it holds Kafka's defaults.
    """

    # -- segments and indexes ----------------------------------------------------------------------
    segment_bytes: int = integer(
        1 << 30,
        "Size in bytes at which a segment file is closed and the next begun.",
        low=1 << 20,
        synonyms=_same("log.segment.bytes"),
    )
    segment_ms: int = long(
        7 * 24 * _HOUR_MS,
        "Age in ms at which a segment is closed even if it is not full, so that retention and "
        "compaction can have it.",
        low=1,
        synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
    )
    segment_jitter_ms: int = long(
        0,
        "Most ms taken off segment.ms at random, so that segments do not all roll at once.",
        low=0,
        synonyms=(Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _HOUR_MS)),
    )
    segment_index_bytes: int = integer(
        10 << 20,
        "Largest size in bytes of an offset or time index; a full one closes the segment.",
        low=4,
        synonyms=_same("log.index.size.max.bytes"),
    )
    flush_messages: int = long(
        _INT64_MAX,
        "Records after which a log is forced to disk. Replication is the better guarantee.",
        low=1,
        synonyms=_same("log.flush.interval.messages"),
    )
    flush_ms: int = long(
        _INT64_MAX,
        "Time in ms after which a log is forced to disk.",
        low=0,
        synonyms=(Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    )
    retention_bytes: int = long(
        -1,
        "Size in bytes a partition may have before its oldest segments are deleted; -1 for no "
        "limit. With a remote tier it counts both.",
        synonyms=_same("log.retention.bytes"),
    )
    retention_ms: int = long(
        7 * 24 * _HOUR_MS,
        "Age in ms of a segment's newest record at which the segment is deleted; -1 for never.",
        low=-1,
        synonyms=(
            Synonym("log.retention.ms"),
            Synonym("log.retention.minutes", _MINUTE_MS),
            Synonym("log.retention.hours", _HOUR_MS),
        ),
    )
    max_message_bytes: int = integer(
        (1 << 20) + 12,
        "Largest record batch in bytes, as compressed by the producer or the broker.",
        low=0,
        synonyms=_same("message.max.bytes"),
    )
    max_decompressed_message_bytes: int = integer(
        2147483639,
        "Bytes that a compressed batch may grow to when the broker has to look inside.",
        low=1,
        high=2147483639,
        synonyms=_same("max.decompressed.message.bytes"),
    )
    index_interval_bytes: int = integer(
        4096,
        "Bytes of records between two entries of the offset index.",
        low=0,
        synonyms=_same("log.index.interval.bytes"),
    )
    # -- compaction and deletion -------------------------------------------------------------------
    delete_retention_ms: int = long(
        24 * _HOUR_MS,
        "Time in ms that tombstones of a compacted topic stay readable.",
        low=0,
        synonyms=_same("log.cleaner.delete.retention.ms"),
    )
    min_compaction_lag_ms: int = long(
        0,
        "Time in ms for which a record stays uncompacted at least.",
        low=0,
        synonyms=_same("log.cleaner.min.compaction.lag.ms"),
    )
    max_compaction_lag_ms: int = long(
        _INT64_MAX,
        "Time in ms after which a record must be eligible for compaction.",
        low=1,
        synonyms=_same("log.cleaner.max.compaction.lag.ms"),
    )
    file_delete_delay_ms: int = long(
        _MINUTE_MS,
        "Time in ms between a segment's deletion and the removal of its files.",
        low=0,
        synonyms=_same("log.segment.delete.delay.ms"),
    )
    min_cleanable_dirty_ratio: float = double(
        0.5,
        "Share of a log that must be uncompacted before the cleaner takes it up.",
        low=0,
        high=1,
        synonyms=_same("log.cleaner.min.cleanable.ratio"),
    )
    cleanup_policy: list[str] = strings(
        ["delete"],
        "What happens to old records: delete whole segments, compact by key, both, or (empty) "
        "nothing.",
        choices=("compact", "delete"),
        unique=True,
        synonyms=_same("log.cleanup.policy"),
    )
    # -- replication -------------------------------------------------------------------------------
    unclean_leader_election_enable: bool = boolean(
        False,
        "Let a replica outside the ISR lead when no other is left, losing records.",
        synonyms=_same("unclean.leader.election.enable"),
    )
    min_insync_replicas: int = integer(
        1,
        "Replicas in the ISR below which writes with acks=all are refused.",
        low=1,
        synonyms=_same("min.insync.replicas"),
    )
    # -- records -----------------------------------------------------------------------------------
    compression_type: str = string(
        "producer",
        "Codec of the batches on disk; producer keeps each as it came.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonyms=_same("compression.type"),
    )
    compression_gzip_level: int = integer(
        -1,
        "Level for compression.type=gzip.",
        check=_check_gzip_level,
        synonyms=_same("compression.gzip.level"),
    )
    compression_lz4_level: int = integer(
        9,
        "Level for compression.type=lz4.",
        low=1,
        high=17,
        synonyms=_same("compression.lz4.level"),
    )
    compression_zstd_level: int = integer(
        3,
        "Level for compression.type=zstd.",
        low=-131072,
        high=22,
        synonyms=_same("compression.zstd.level"),
    )
    preallocate: bool = boolean(
        False,
        "Create segment files at their full size. Accepted for Kafka's sake, without effect here.",
        synonyms=_same("log.preallocate"),
    )
    message_timestamp_type: str = string(
        "CreateTime",
        "Whether records keep the producer's time or get the time of the append.",
        choices=("CreateTime", "LogAppendTime"),
        synonyms=_same("log.message.timestamp.type"),
    )
    message_timestamp_before_max_ms: int = long(
        _INT64_MAX,
        "How far in ms a producer's timestamp may lie before the broker's clock.",
        low=0,
        synonyms=_same("log.message.timestamp.before.max.ms"),
    )
    message_timestamp_after_max_ms: int = long(
        _HOUR_MS,
        "How far in ms a producer's timestamp may lie after the broker's clock.",
        low=0,
        synonyms=_same("log.message.timestamp.after.max.ms"),
    )
    leader_replication_throttled_replicas: list[str] = strings(
        [],
        "Replicas (partition:broker, or *) whose reading by followers is throttled at the leader, "
        "to the broker's leader.replication.throttled.rate.",
        check=_check_throttled_replicas,
    )
    follower_replication_throttled_replicas: list[str] = strings(
        [],
        "Replicas (partition:broker, or *) whose fetching is throttled at the follower, "
        "to the broker's follower.replication.throttled.rate.",
        check=_check_throttled_replicas,
    )
    # -- the remote tier ---------------------------------------------------------------------------
    remote_storage_enable: bool = boolean(
        False, "Copy closed segments to the remote tier and read them from there."
    )
    local_retention_ms: int = long(
        LIKE_TOTAL_RETENTION,
        "Age in ms up to which segments stay on local disk; -2 for the same as retention.ms.",
        low=-2,
        synonyms=_same("log.local.retention.ms"),
    )
    local_retention_bytes: int = long(
        LIKE_TOTAL_RETENTION,
        "Bytes of segments kept on local disk; -2 for the same as retention.bytes.",
        low=-2,
        synonyms=_same("log.local.retention.bytes"),
    )
    remote_log_copy_disable: bool = boolean(
        False, "Stop copying to the remote tier; what is there stays readable."
    )
    remote_copy_lag_ms: int = long(
        0,
        "Age in ms a closed segment has before it is copied; 0 at once, -1 as local retention.",
        low=-1,
        synonyms=_same("log.remote.copy.lag.ms"),
    )
    remote_copy_lag_bytes: int = long(
        -1,
        "Bytes newer than a closed segment before it is copied; 0 at once, -1 as local retention.",
        low=-1,
        synonyms=_same("log.remote.copy.lag.bytes"),
    )
    remote_log_delete_on_disable: bool = boolean(
        False, "Delete the remote data when remote.storage.enable is switched off."
    )
    errors_deadletterqueue_group_enable: bool = boolean(
        False,
        "Allow the topic to be the dead letter queue of share groups. Accepted for Kafka's sake, "
        "without effect here.",
    )
    internal_segment_bytes: int | None = integer(
        None, "Segment size without the lower bound of segment.bytes, for tests.", internal=True
    )

    overridden: frozenset[str]

    def __init__(
        self, values: Mapping[str, object] | None = None, overridden: frozenset[str] = frozenset()
    ) -> None:
        """`values` by Kafka name, parsed; keys left out have Kafka's default."""
        own = self.__dict__
        for name, key in TOPIC_KEYS.items():
            own[name.replace(".", "_")] = key.default
        for name, value in (values or {}).items():
            own[name.replace(".", "_")] = value
        self._derive(overridden)

    def _derive(self, overridden: frozenset[str]) -> None:
        own = self.__dict__
        own["overridden"] = overridden
        policies = own["cleanup_policy"]
        own["is_compacted"] = "compact" in policies
        own["deletes"] = "delete" in policies
        own["uses_log_append_time"] = own["message_timestamp_type"] == "LogAppendTime"
        own["segment_size"] = own["internal_segment_bytes"] or own["segment_bytes"]
        own["target_codec"] = _CODECS[own["compression_type"]]
        own["batch_bytes_max"] = min(own["max_message_bytes"], own["segment_size"])
        own["keeps_own_batches"] = own["target_codec"] is None and not own["uses_log_append_time"]
        own["keeps_batches"] = (
            own["keeps_own_batches"]
            and not own["is_compacted"]
            and own["message_timestamp_before_max_ms"] == _INT64_MAX
        )

    # Derived once, because the data path asks for them with every batch.
    is_compacted: bool
    deletes: bool  # whether retention applies
    uses_log_append_time: bool
    segment_size: int
    """`segment.bytes`, or the test setting under it: what a log rolls by."""
    target_codec: int | None
    """Codec that batches must have on disk; None keeps the producer's."""
    batch_bytes_max: int
    """What both `max.message.bytes` and the segment's size allow."""
    keeps_own_batches: bool
    """The same of what the broker itself writes, whose records are not checked."""
    keeps_batches: bool
    """Whether batches are stored as they come, and a header tells whether they may be."""

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name}: a LogConfig does not change; build a new one")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LogConfig) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = {name: self.value(name) for name in sorted(self.overridden)}
        return f"LogConfig({shown!r})"

    # -- making ------------------------------------------------------------------------------------

    @classmethod
    def from_overrides(cls, defaults: LogConfig, overrides: Mapping[str, str]) -> LogConfig:
        """Return `defaults` with a topic's own settings over them; ConfigError names the first
        invalid one.

        Each value is checked by itself; rules between keys are `config_rules.py`. The controller
        asks for thousands of topics at once: only their own settings are looked at.
        """
        check_names(overrides)
        config = cls.__new__(cls)
        own = config.__dict__
        own.update(defaults.__dict__)
        for name in overrides and TOPIC_KEYS:
            text = overrides.get(name)
            if text is not None:
                own[name.replace(".", "_")] = TOPIC_KEYS[name].parse(text)
        config._derive(frozenset(overrides))
        return config

    @classmethod
    def from_broker(cls, properties: Mapping[str, str]) -> LogConfig:
        """Return the topic defaults in a broker's own settings; other names are ignored."""
        values: dict[str, object] = {}
        for name, key in TOPIC_KEYS.items():
            for synonym in key.synonyms:
                text = properties.get(synonym.name)
                if text is not None:
                    value = BROKER_KEYS[synonym.name].parse(text)
                    values[name] = value if synonym.factor == 1 else value * synonym.factor
                    break
        retention_ms = values.get("retention.ms")
        if isinstance(retention_ms, int) and retention_ms < 0:
            values["retention.ms"] = UNLIMITED
        return cls(values)

    def keeping_all(self) -> LogConfig:
        """Return the same configuration, without deletion and compaction."""
        values = {name: self.value(name) for name in TOPIC_KEYS}
        return LogConfig({**values, "cleanup.policy": []}, self.overridden)

    def value(self, name: str) -> object:
        """Return the value of a key by its Kafka name."""
        value: object = getattr(self, name.replace(".", "_"))
        return value

    @property
    def effective_local_retention_ms(self) -> int:
        """Return `local.retention.ms`, or `retention.ms` if it is -2."""
        local = self.local_retention_ms
        return self.retention_ms if local == LIKE_TOTAL_RETENTION else local

    @property
    def effective_local_retention_bytes(self) -> int:
        """Return `local.retention.bytes`, or `retention.bytes` if it is -2."""
        local = self.local_retention_bytes
        return self.retention_bytes if local == LIKE_TOTAL_RETENTION else local

    @property
    def segment_ms_max(self) -> int:
        """Age at which to roll: compacted topics roll in time for max.compaction.lag.ms."""
        if self.is_compacted and self.max_compaction_lag_ms > 0:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms

    @property
    def compression_level(self) -> int | None:
        """Return the level for `target_codec`; None for codecs without one."""
        if self.target_codec == Codec.GZIP:
            return self.compression_gzip_level
        if self.target_codec == Codec.LZ4:
            return self.compression_lz4_level
        return self.compression_zstd_level if self.target_codec == Codec.ZSTD else None


_CODECS: dict[str, int | None] = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

TOPIC_KEYS: Mapping[str, ConfigKey] = collect_keys(LogConfig)
"""Every topic-level key by its Kafka name, in Kafka's order; `internal` ones are not described."""


def check_names(overrides: Mapping[str, str]) -> None:
    """Raise ConfigError for a name that is not a topic setting."""
    for name in overrides:
        if name not in TOPIC_KEYS:
            raise ConfigError(name, f"Unknown topic config name: {name}")


# Broker synonyms that differ from their topic key in more than the name.
_BROKER_ONLY: dict[str, ConfigKey] = {
    "log.roll.ms": long(None, "segment.ms of topics that do not set it."),
    "log.roll.hours": integer(168, "The same in hours, where log.roll.ms is not set.", low=1),
    "log.roll.jitter.ms": long(None, "segment.jitter.ms of topics that do not set it."),
    "log.roll.jitter.hours": integer(
        0, "The same in hours, where log.roll.jitter.ms is not set.", low=0
    ),
    "log.retention.ms": long(None, "retention.ms of topics that do not set it."),
    "log.retention.minutes": integer(
        None, "The same in minutes, where log.retention.ms is not set."
    ),
    "log.retention.hours": integer(
        168, "The same in hours, where neither log.retention.ms nor .minutes is set."
    ),
    "log.flush.interval.ms": long(None, "flush.ms of topics that do not set it."),
    "log.flush.scheduler.interval.ms": long(
        _INT64_MAX, "Time in ms between looks for logs to flush."
    ),
}


def _broker_keys() -> dict[str, ConfigKey]:
    keys: dict[str, ConfigKey] = {}
    for topic_key in TOPIC_KEYS.values():
        for synonym in topic_key.synonyms:
            key = _BROKER_ONLY.get(synonym.name) or ConfigKey(
                topic_key.type_name,
                topic_key.default,
                f"{topic_key.name} of topics that do not set it. {topic_key.documentation}",
                low=topic_key.low,
                high=topic_key.high,
                choices=topic_key.choices,
                check=topic_key.check,
                unique=topic_key.unique,
            )
            key.name = synonym.name
            key.importance = HIGH if synonym.name in _BROKER_ONLY else topic_key.importance
            keys[key.name] = key
    return keys


BROKER_KEYS: Mapping[str, ConfigKey] = _broker_keys()
"""The broker settings that give topics their defaults, by name."""
