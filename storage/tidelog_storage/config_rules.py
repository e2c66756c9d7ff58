"""Rules between the settings of a topic, and between those of a broker.

The controller asks `validate_topic` before a topic is created or altered, the broker
`validate_broker` when it starts. Texts are Apache Kafka 4.4's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_storage.config import LIKE_TOTAL_RETENTION, UNLIMITED, LogConfig
from tidelog_storage.config_key import ConfigError, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping


def validate_topic(
    overrides: Mapping[str, str],
    *,
    defaults: LogConfig,
    existing: Mapping[str, str] | None = None,
    remote_storage_system_enabled: bool = False,
) -> LogConfig:
    """Return a topic's configuration with `overrides`, all of its own settings.

    `existing` are the overrides before an alteration. ConfigError (INVALID_CONFIG) if they are not
    allowed.
    """
    config = LogConfig.from_overrides(defaults, overrides)
    _check_compaction_lag(config)
    if config.remote_storage_enable:
        _check_remote_allowed(config, remote_storage_system_enabled)
        _check_local("bytes", config.local_retention_bytes, config.retention_bytes)
        _check_local("ms", config.local_retention_ms, config.retention_ms)
        _check_copy_disabled(config)
        _check_copy_lag(config)
    else:
        was_enabled = (existing or {}).get("remote.storage.enable", "false").lower() == "true"
        _check_switching_off(config, was_enabled=was_enabled)
    return config


def validate_broker(config: LogConfig, *, remote_storage_system_enabled: bool = False) -> None:
    """Check that `config`, from `LogConfig.from_broker`, can be the default of topics."""
    if config.segment_ms < 1:
        raise ConfigError("log.roll.ms", "log.roll.ms must be greater than or equal to 1")
    if config.segment_jitter_ms < 0:
        raise ConfigError(
            "log.roll.jitter.ms", "log.roll.jitter.ms must be greater than or equal to 0"
        )
    if config.retention_ms == 0:
        raise ConfigError(
            "log.retention.ms",
            "log.retention.ms must be unlimited (-1) or, equal or greater than 1",
        )
    _check_compaction_lag(config)
    if remote_storage_system_enabled:
        _check_local("bytes", config.local_retention_bytes, config.retention_bytes)
        _check_local("ms", config.local_retention_ms, config.retention_ms)


def _check_compaction_lag(config: LogConfig) -> None:
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigError(
            "min.compaction.lag.ms",
            f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms})"
            f" > max.compaction.lag.ms ({config.max_compaction_lag_ms})",
        )


def _check_remote_allowed(config: LogConfig, system_enabled: bool) -> None:
    if not system_enabled:
        raise ConfigError(
            "remote.storage.enable",
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured"
            " with remote log storage.",
        )
    if config.is_compacted:
        raise ConfigError(
            "cleanup.policy",
            "Remote log storage only supports topics with cleanup.policy=delete or"
            " cleanup.policy being an empty list.",
        )


def _check_local(unit: str, local: int, total: int) -> None:
    """Check that local retention does not exceed total retention."""
    if total == UNLIMITED or local == LIKE_TOTAL_RETENTION:
        return
    name = f"local.retention.{unit}"
    if local == UNLIMITED:
        raise refuse(
            name, local, f"Value must not be -1 as retention.{unit} value is set as {total}."
        )
    if local > total:
        raise refuse(
            name, local, f"Value must not be more than retention.{unit} property value: {total}"
        )


def _check_copy_disabled(config: LogConfig) -> None:
    if not config.remote_log_copy_disable:
        return
    pairs = (
        ("ms", config.effective_local_retention_ms, config.retention_ms),
        ("bytes", config.effective_local_retention_bytes, config.retention_bytes),
    )
    for unit, local, total in pairs:
        if local != total:
            raise ConfigError(
                f"local.retention.{unit}",
                "When `remote.log.copy.disable` is set to true, the"
                f" `local.retention.{unit}` and `retention.{unit}` must be set to the identical"
                " value because there will be no more logs copied to the remote storage.",
            )


def _check_copy_lag(config: LogConfig) -> None:
    """Check that a segment is copied before local retention would delete it."""
    pairs = (
        ("ms", config.remote_copy_lag_ms, config.effective_local_retention_ms),
        ("bytes", config.remote_copy_lag_bytes, config.effective_local_retention_bytes),
    )
    for unit, lag, local in pairs:
        if local != UNLIMITED and lag > local:
            raise refuse(
                f"remote.copy.lag.{unit}",
                lag,
                f"Value must not exceed local.retention.{unit} (effective value: {local})",
            )


def _check_switching_off(config: LogConfig, *, was_enabled: bool) -> None:
    if was_enabled and not config.remote_log_delete_on_disable:
        raise ConfigError(
            "remote.storage.enable",
            "It is invalid to disable remote storage without deleting remote data. If you want to"
            " keep the remote data and turn to read only, please set"
            " `remote.storage.enable=true,remote.log.copy.disable=true`. If you want to disable"
            " remote storage and delete all remote data, please set"
            " `remote.storage.enable=false,remote.log.delete.on.disable=true`.",
        )
