"""Settings of Apache Kafka for what is done otherwise here: they are accepted and have no effect.

Types, defaults and ranges are Kafka's. Those of what tidelog does not have are in
`unavailable_keys.py`, but those of Kerberos are here: they have no effect on Kafka either without
its mechanism GSSAPI, which tidelog refuses.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tidelog.config import vocabulary
from tidelog.config.vocabulary import HIGH, LOW, PER_BROKER

integer = partial(vocabulary.integer, inert=True)
long = partial(vocabulary.long, inert=True)


def kerberos(declare: Any, default: object, documentation: str) -> Any:
    """A setting of Kerberos, which Kafka lets change while it runs."""
    return declare(default, documentation, mode=PER_BROKER, inert=True)


class InertKeys:
    """See the module's docstring."""

    alter_log_dirs_replication_quota_window_num: int = integer(
        11, "Samples kept of the rate of moves between log directories.", low=1, importance=LOW
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = integer(
        1, "Time of each of these samples.", low=1, importance=LOW
    )
    controller_quorum_append_linger_ms: int = integer(
        25, "Time that a leader of the quorum gathers writes for.", low=0
    )
    controller_quorum_fetch_max_bytes: int = integer(
        1048576, "Most bytes of a Fetch of the metadata log.", low=1, importance=LOW
    )
    controller_quorum_fetch_snapshot_max_bytes: int = integer(
        1048576, "Most bytes of a FetchSnapshot.", low=1, importance=LOW
    )
    controller_quorum_retry_backoff_ms: int = integer(
        20, "Pause after a failed request of the quorum.", low=0, importance=LOW
    )
    controller_socket_timeout_ms: int = integer(30000, "Timeout of channels to brokers.")
    early_start_listeners: list[str] | None = vocabulary.strings(
        None, "Listeners opened before the authorizer is there.", importance=HIGH, inert=True
    )
    group_coordinator_append_linger_ms: int = integer(
        -1, "Time that the group coordinator gathers writes for; -1 adapts it.", low=-1
    )
    group_coordinator_background_threads: int = integer(
        2, "Threads for patterns and assignments.", low=1, importance=HIGH
    )
    group_coordinator_threads: int = integer(
        4, "Threads of the group coordinator.", low=1, importance=HIGH
    )
    kafka_metrics_polling_interval_secs: int = integer(
        10, "Interval of reporters of metrics.", low=1, importance=LOW
    )
    metadata_max_idle_interval_ms: int = integer(
        500, "Time after which an idle controller writes a record.", low=0, importance=LOW
    )
    metadata_max_retention_bytes: int = long(
        104857600,
        "Size above which old snapshots and segments of the metadata log are removed; the last two"
        " snapshots and what follows them are kept.",
        importance=HIGH,
    )
    metadata_max_retention_ms: int = long(
        604800000, "Age after which they are removed.", importance=HIGH
    )
    metrics_num_samples: int = integer(2, "Samples kept to compute metrics.", low=1, importance=LOW)
    metrics_recording_level: str = vocabulary.string(
        "INFO", "Which metrics are recorded.", importance=LOW, inert=True
    )
    metrics_sample_window_ms: int = long(30000, "Time of a sample.", low=1, importance=LOW)
    replica_socket_receive_buffer_bytes: int = integer(
        65536, "SO_RCVBUF of sockets to leaders.", importance=HIGH
    )
    sasl_kerberos_kinit_cmd: str = kerberos(
        vocabulary.string, "/usr/bin/kinit", "Path of Kerberos' kinit."
    )
    sasl_kerberos_min_time_before_relogin: int = kerberos(
        vocabulary.long, 60000, "Pause between renewals."
    )
    sasl_kerberos_principal_to_local_rules: list[str] = kerberos(
        vocabulary.strings, ("DEFAULT",), "Rules that shorten names of principals."
    )
    sasl_kerberos_service_name: str | None = kerberos(
        vocabulary.string, None, "The brokers' name in Kerberos."
    )
    sasl_kerberos_ticket_renew_jitter: float = kerberos(
        vocabulary.double, 0.05, "Chance in the time of a renewal."
    )
    sasl_kerberos_ticket_renew_window_factor: float = kerberos(
        vocabulary.double, 0.8, "Part of a ticket's time after which it is renewed."
    )
    socket_connection_setup_timeout_ms: int = long(
        10000, "Time that a connection to another node may take, at first."
    )
    socket_connection_setup_timeout_max_ms: int = long(30000, "The most that this time grows to.")
