"""The broker's own settings: Kafka's `server.properties` names, each declared once.

An attribute is a key with dots for underscores (`num_partitions` is `num.partitions`). Types,
defaults, ranges, importance and the way a key may change while the broker runs are Apache Kafka
4.4's; the documentation strings are ours. Keys of the topics' log settings (`log.segment.bytes` …)
are not repeated here: they come from `tidelog_storage.config`, where each topic key names its
broker synonyms.

`inert=True` marks keys that Kafka's own configuration files set and that have no meaning for one
process with one event loop: they are accepted, checked and described, and change nothing.

A feature adds the keys that it reads. A key that nothing reads and that is not inert is a bug.
"""

from __future__ import annotations

from tidelog.config.vocabulary import (
    CLUSTER_WIDE,
    HIGH,
    LOW,
    PER_BROKER,
    boolean,
    double,
    integer,
    long,
    required_integer,
    short,
    string,
    strings,
)


class ProcessKeys:
    """The process's identity, listeners and limits of connections."""

    node_id: int = required_integer(
        "Id of this broker in its cluster, unique and never changed.", low=0, importance=HIGH
    )
    broker_id: int = integer(
        -1, "Older name of node.id; must equal it if both are set.", importance=HIGH
    )
    process_roles: list[str] = strings(
        ("broker", "controller"),
        "Roles of the process. A tidelog broker always has both.",
        choices=("broker", "controller"),
        importance=HIGH,
    )
    broker_rack: str | None = string(None, "Rack of the broker, for placing replicas apart.")
    listeners: list[str] = strings(
        ("PLAINTEXT://:9092",),
        "Addresses to listen on, as name://host:port; an empty host stands for all interfaces, "
        "port 0 for a free one.",
        importance=HIGH,
        mode=PER_BROKER,
    )
    advertised_listeners: list[str] | None = strings(
        None, "Addresses given to clients; those of listeners if unset.", importance=HIGH
    )
    listener_security_protocol_map: str = string(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Security protocol of each listener name.",
        importance=LOW,
        mode=PER_BROKER,
    )
    inter_broker_listener_name: str | None = string(None, "Listener for traffic between brokers.")
    controller_listener_names: list[str] = strings(
        ("CONTROLLER",), "Names of the listeners that serve the controller.", importance=HIGH
    )
    controller_quorum_bootstrap_servers: list[str] = strings(
        (),
        "Controllers to ask first, as host:port, if the metadata log names the voters.",
        importance=HIGH,
    )
    controller_quorum_auto_join_enable: bool = boolean(
        False,
        "Whether a controller that the metadata log does not name as a voter asks to be added"
        " (KIP-1186).",
        importance=LOW,
    )
    controller_quorum_voters: list[str] = strings(
        (), "Voters of the metadata quorum, as id@host:port.", importance=HIGH
    )
    socket_request_max_bytes: int = integer(
        104857600,
        "Largest request in bytes; a larger one closes the connection.",
        low=1,
        importance=HIGH,
    )
    socket_receive_buffer_bytes: int = integer(
        102400, "SO_RCVBUF of client sockets.", importance=HIGH, inert=True
    )
    socket_send_buffer_bytes: int = integer(
        102400, "SO_SNDBUF of client sockets.", importance=HIGH, inert=True
    )
    socket_listen_backlog_size: int = integer(
        50, "Connections the system may hold before they are accepted.", low=1, inert=True
    )
    connections_max_idle_ms: int = long(
        600000, "Close a connection that sent nothing for this long."
    )
    max_connections: int = integer(
        2147483647,
        "Connections to the broker at a time, to one listener with listener.name.<listener>. before"
        " it.",
        low=0,
        mode=CLUSTER_WIDE,
    )
    max_connections_per_ip: int = integer(
        2147483647, "Connections from one address at a time.", low=0, mode=CLUSTER_WIDE
    )
    max_connections_per_ip_overrides: str = string(
        "",
        "Limits of single addresses in the place of max.connections.per.ip: 192.0.2.1:10,...",
        mode=CLUSTER_WIDE,
    )
    max_connection_creation_rate: int = integer(
        2147483647,
        "New connections in a second, of one listener with listener.name.<listener>. before it; "
        "those above it are read later.",
        low=0,
        mode=CLUSTER_WIDE,
    )
    queued_max_requests: int = integer(
        500,
        "Requests that wait for a handler's thread, above which nothing is read. Here a request is "
        "handled as it is read, so that none waits.",
        low=1,
        importance=HIGH,
        inert=True,
    )
    queued_max_request_bytes: int = long(
        -1,
        "Bytes of large requests that have not arrived whole, of all connections. Above it, the "
        "connection that has sent nothing for longest is closed. -1: 256 MiB.",
    )
    request_timeout_ms: int = integer(
        30000, "How long the broker waits for answers to its own requests.", importance=HIGH
    )
    num_network_threads: int = integer(
        3, "Network threads.", low=1, importance=HIGH, mode=CLUSTER_WIDE, inert=True
    )
    num_io_threads: int = integer(
        8, "Request handler threads.", low=1, importance=HIGH, mode=CLUSTER_WIDE, inert=True
    )
    metrics_prometheus_listener: str | None = string(
        None,
        "Address at which the broker serves its metrics to Prometheus, as host:port; "
        "port 0 for a free one. tidelog's own: Kafka's metrics are JMX beans.",
        internal=True,
    )
    metrics_prometheus_internal_topics: bool = boolean(
        False,
        "Also serve the series of topics that brokers make for themselves, such as "
        "`__consumer_offsets`. Totals count them anyway. tidelog's own.",
        internal=True,
    )
    loop_watchdog_ms: int = integer(
        0,
        "Log each callback that holds the event loop for longer, with its stack; 0: off. "
        "tidelog's own: Kafka has threads.",
        low=0,
        internal=True,
    )
    telemetry_max_bytes: int = integer(
        1048576,
        "Largest metrics that a client may push, in bytes, compressed or not (KIP-714).",
        low=1,
        importance=LOW,
    )
    background_threads: int = integer(
        10, "Threads for background work.", low=1, importance=HIGH, mode=CLUSTER_WIDE, inert=True
    )


class TopicKeys:
    """Creation and deletion of topics."""

    auto_create_topics_enable: bool = boolean(
        True, "Create a topic when a client first asks for it by name.", importance=HIGH
    )
    delete_topic_enable: bool = boolean(
        True, "Allow topics to be deleted by request.", importance=HIGH
    )
    num_partitions: int = integer(1, "Partitions of a topic created without a number.", low=1)
    default_replication_factor: int = integer(1, "Replicas of a topic created without a number.")
    max_request_partition_size_limit: int = integer(
        2000, "Partitions in one DescribeTopicPartitions answer.", low=1
    )


class QuorumKeys:
    """The metadata log and the brokers' place in the cluster."""

    controller_quorum_election_timeout_ms: int = integer(
        1000, "Wait for a leader of the metadata quorum before an election.", importance=HIGH
    )
    controller_quorum_fetch_timeout_ms: int = integer(
        2000, "Time without an answer of the quorum's leader before an election.", importance=HIGH
    )
    controller_quorum_election_backoff_max_ms: int = integer(
        1000, "Longest pause after a lost election.", importance=HIGH
    )
    controller_quorum_request_timeout_ms: int = integer(
        2000, "How long a voter waits for answers of other voters."
    )
    metadata_log_dir: str | None = string(
        None, "Directory of the metadata log; the first of log.dirs if unset.", importance=HIGH
    )
    metadata_log_segment_bytes: int = integer(
        1073741824, "Segment size of the metadata log.", low=8388608, importance=HIGH
    )
    metadata_log_segment_ms: int = long(
        604800000, "Age at which a metadata segment is rolled.", importance=HIGH, inert=True
    )
    metadata_log_max_record_bytes_between_snapshots: int = long(
        20971520, "Growth of the metadata log between snapshots.", low=1, importance=HIGH
    )
    metadata_log_max_snapshot_interval_ms: int = long(
        3600000,
        "Age of the last metadata snapshot that calls for another; 0: never.",
        low=0,
        importance=HIGH,
    )
    broker_heartbeat_interval_ms: int = integer(2000, "Time between a broker's heartbeats.")
    auto_leader_rebalance_enable: bool = boolean(
        True, "Return leadership to the preferred replicas from time to time.", importance=HIGH
    )
    leader_imbalance_check_interval_seconds: int = long(
        300, "Time between rounds of preferred leader elections.", low=1, importance=HIGH
    )
    unclean_leader_election_interval_ms: int = long(
        300000,
        "Time between rounds of unclean elections, for topics that allow them.",
        low=1,
        internal=True,
    )
    broker_session_timeout_ms: int = integer(
        9000, "A broker without heartbeats for this long is fenced."
    )
    initial_broker_registration_timeout_ms: int = integer(
        60000, "A broker that is not registered after this long does not start."
    )
    controlled_shutdown_enable: bool = boolean(True, "Move leaders away before stopping.")


class FetchKeys:
    """Reading: limits of fetches, by clients and by followers."""

    fetch_max_bytes: int = integer(57671680, "Largest fetch answer in bytes.", low=1024)
    max_incremental_fetch_session_cache_slots: int = integer(
        1000, "Incremental fetch sessions kept at a time.", low=0
    )
    fetch_purgatory_purge_interval_requests: int = integer(
        1000, "Completed fetches kept before a purge.", inert=True
    )
    producer_purgatory_purge_interval_requests: int = integer(
        1000, "Completed produces kept before a purge.", inert=True
    )
    delete_records_purgatory_purge_interval_requests: int = integer(
        1, "Completed deletions of records kept before a purge.", inert=True
    )
    num_replica_fetchers: int = integer(
        1, "Fetchers for each leader.", low=1, importance=HIGH, mode=CLUSTER_WIDE
    )
    replica_lag_time_max_ms: int = long(
        30000, "A follower behind for this long leaves the ISR.", importance=HIGH
    )
    replica_fetch_max_bytes: int = integer(
        1048576, "Bytes a follower asks for per partition.", low=0
    )
    replica_fetch_response_max_bytes: int = integer(
        10485760, "Bytes a follower asks for in one fetch.", low=0
    )
    replica_fetch_min_bytes: int = integer(
        1, "Bytes a follower's fetch waits for.", importance=HIGH
    )
    replica_fetch_wait_max_ms: int = integer(
        500, "How long a follower's fetch may wait.", importance=HIGH
    )
    replica_selector_class: str | None = string(
        None,
        "Replica that serves a consumer with a rack: the leader, or an in-sync follower there.",
        choices=(
            "org.apache.kafka.common.replica.LeaderSelector",
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        ),
    )
    replica_socket_timeout_ms: int = integer(
        30000, "How long a follower waits for an answer.", importance=HIGH
    )
    replica_fetch_backoff_ms: int = integer(1000, "Pause of a follower after an error.", low=0)
    replica_high_watermark_checkpoint_interval_ms: int = long(
        5000, "Time between writes of replication-offset-checkpoint.", importance=HIGH
    )


class QuotaKeys:
    """How the use of quotas is measured."""

    quota_window_num: int = integer(11, "Windows over which rates of clients are measured.", low=1)
    quota_window_size_seconds: int = integer(1, "Length of such a window, in seconds.", low=1)
    replication_quota_window_num: int = integer(
        11, "Windows over which rates of replication are measured.", low=1
    )
    replication_quota_window_size_seconds: int = integer(
        1, "Length of such a window, in seconds.", low=1
    )
    controller_quota_window_num: int = integer(
        11, "Windows whose mutations of topics a client may make at once.", low=1
    )
    controller_quota_window_size_seconds: int = integer(
        1, "Length of such a window, in seconds.", low=1
    )


class DynamicOnlyKeys:
    """Limits that can only be set while a broker runs (QuotaConfig.brokerQuotaConfigs)."""

    leader_replication_throttled_rate: int = long(
        2**63 - 1,
        "Bytes per second that leaders send to the followers named by the topics'"
        " leader.replication.throttled.replicas.",
        low=0,
        mode=CLUSTER_WIDE,
    )
    follower_replication_throttled_rate: int = long(
        2**63 - 1,
        "Bytes per second that followers fetch of the replicas named by the topics'"
        " follower.replication.throttled.replicas.",
        low=0,
        mode=CLUSTER_WIDE,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = long(
        2**63 - 1,
        "Bytes per second of the moves of replicas between log directories.",
        low=0,
        mode=CLUSTER_WIDE,
    )


class LogKeys:
    """Log directories and the schedules of the log manager.

    Topic-level defaults (`log.*` synonyms) come from `LogConfig`.
    """

    log_dirs: list[str] | None = strings(
        None, "Directories of the logs; log.dir if unset.", importance=HIGH
    )
    log_dir: list[str] = strings(
        ("/tmp/kafka-logs",),  # noqa: S108 - Kafka's default; `serve` always sets log.dirs
        "Directory of the logs, if log.dirs is unset.",
        importance=HIGH,
    )
    cordoned_log_dirs: list[str] = strings(
        (),
        "Log directories that get no new replicas (KIP-1066): entries of log.dirs, or * for all.",
        mode=PER_BROKER,
        unique=True,
    )
    log_retention_check_interval_ms: int = long(
        300000, "Time between checks for old segments.", low=1
    )
    log_flush_scheduler_interval_ms: int  # declared by LogConfig, as a default of flush.ms
    log_flush_offset_checkpoint_interval_ms: int = integer(
        60000, "Time between writes of recovery-point-offset-checkpoint.", low=0, importance=HIGH
    )
    log_flush_start_offset_checkpoint_interval_ms: int = integer(
        60000, "Time between writes of log-start-offset-checkpoint.", low=0, importance=HIGH
    )
    log_initial_task_delay_ms: int = long(
        30000,
        "Wait before the first retention, flush and checkpoint runs.",
        low=0,
        importance=LOW,
        internal=True,
    )
    log_dir_failure_timeout_ms: int = long(
        30000,
        "Time to report a failed log directory to the controller; then the broker ends.",
        low=1,
        importance=LOW,
    )
    num_recovery_threads_per_data_dir: int = integer(
        2, "Recovery threads.", low=1, importance=HIGH, mode=CLUSTER_WIDE, inert=True
    )
    num_replica_alter_log_dirs_threads: int | None = integer(
        None, "Replicas moved between log directories at a time; as many as directories if unset."
    )
    log_cleaner_enable: bool = boolean(True, "Compact topics with cleanup.policy=compact.")
    log_cleaner_threads: int = integer(
        1, "Compactions at a time; 0 stops them.", low=0, mode=CLUSTER_WIDE
    )
    log_cleaner_backoff_ms: int = long(
        15000, "Time between checks for logs to compact.", low=0, mode=CLUSTER_WIDE
    )
    log_cleaner_dedupe_buffer_size: int = long(
        134217728, "Memory for the key map of compaction.", mode=CLUSTER_WIDE
    )
    log_cleaner_io_buffer_size: int = integer(
        524288, "Memory for the buffers of compaction.", low=0, mode=CLUSTER_WIDE, inert=True
    )
    log_cleaner_io_buffer_load_factor: float = double(
        0.9, "How full the key map may get.", mode=CLUSTER_WIDE
    )
    log_cleaner_io_max_bytes_per_second: float = double(
        1.7976931348623157e308, "Bytes a second of compaction.", mode=CLUSTER_WIDE
    )
    log_scrub_interval_ms: int = long(
        604800000,
        "Time between two passes that read all local and remote segments and repair what rotted; "
        "0 or less switches them off. The first begins ten minutes after the start, or sooner if "
        "this is shorter. tidelog's own: Kafka has no such pass.",
        internal=True,
    )
    log_scrub_io_max_bytes_per_second: float = double(
        16777216.0, "Bytes a second of these passes. tidelog's own.", low=1.0, internal=True
    )
    producer_id_expiration_ms: int = integer(
        86400000,
        "Forget a producer that wrote nothing for this long.",
        low=1,
        importance=LOW,
        mode=CLUSTER_WIDE,
    )
    producer_id_expiration_check_interval_ms: int = integer(
        600000,
        "Time between checks for forgotten producers; each pass of retention is one, too.",
        low=1,
        importance=LOW,
        internal=True,
    )


class GroupKeys:
    """Consumer groups and their offsets."""

    group_coordinator_cached_buffer_max_bytes: int = integer(
        1048588, "Largest buffer kept for reuse.", low=524288, mode=CLUSTER_WIDE, inert=True
    )

    group_initial_rebalance_delay_ms: int = integer(
        3000, "Wait for more members before a new group's first rebalance."
    )
    group_min_session_timeout_ms: int = integer(6000, "Shortest session timeout of a member.")
    group_max_session_timeout_ms: int = integer(1800000, "Longest session timeout of a member.")
    group_max_size: int = integer(2147483647, "Members of one group.", low=1)
    offset_metadata_max_bytes: int = integer(
        4096, "Largest metadata string of a committed offset.", importance=HIGH
    )
    offsets_commit_timeout_ms: int = integer(
        5000, "How long a commit waits for the offsets topic.", low=1, importance=HIGH
    )
    offsets_load_buffer_size: int = integer(
        5242880, "Bytes read at a time when loading groups.", low=1, importance=HIGH
    )
    offsets_retention_minutes: int = integer(
        10080, "Offsets of a group without members expire after this.", low=1, importance=HIGH
    )
    offsets_retention_check_interval_ms: int = long(
        600000, "Time between checks for expired offsets.", low=1, importance=HIGH
    )
    offsets_topic_num_partitions: int = integer(
        50, "Partitions of __consumer_offsets.", low=1, importance=HIGH
    )
    offsets_topic_replication_factor: int = short(
        3, "Replicas of __consumer_offsets.", low=1, importance=HIGH
    )
    offsets_topic_segment_bytes: int = integer(
        104857600, "Segment size of __consumer_offsets.", low=1, importance=HIGH
    )
    offsets_topic_compression_codec: int = integer(
        0, "Codec of the batches in __consumer_offsets.", importance=HIGH
    )


class TransactionKeys:
    """Transactions and their state topic."""

    transaction_max_timeout_ms: int = integer(
        900000, "Longest timeout a transactional producer may ask for.", low=1, importance=HIGH
    )
    transactional_id_expiration_ms: int = integer(
        604800000, "Forget a transactional id unused for this long.", low=1, importance=HIGH
    )
    transaction_state_log_num_partitions: int = integer(
        50, "Partitions of __transaction_state.", low=1, importance=HIGH
    )
    transaction_state_log_replication_factor: int = short(
        3, "Replicas of __transaction_state.", low=1, importance=HIGH
    )
    transaction_state_log_min_isr: int = integer(
        2, "min.insync.replicas of __transaction_state.", low=1, importance=HIGH
    )
    transaction_state_log_segment_bytes: int = integer(
        104857600, "Segment size of __transaction_state.", low=1, importance=HIGH
    )
    transaction_state_log_load_buffer_size: int = integer(
        5242880, "Bytes read at a time when loading transactions.", low=1, importance=HIGH
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        10000, "Time between checks for transactions to abort.", low=1, importance=LOW
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        3600000, "Time between checks for transactional ids to forget.", low=1, importance=LOW
    )
    transaction_partition_verification_enable: bool = boolean(
        True,
        "Check that a partition was added to the transaction before writing to it.",
        importance=LOW,
        mode=CLUSTER_WIDE,
    )
    add_partitions_to_txn_retry_backoff_ms: int = integer(
        20,
        "Pause before a partition is added again to a transaction whose producer's last one ends.",
        low=1,
        importance=HIGH,
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = integer(
        100,
        "Total time of these retries; after it the producer has to retry.",
        low=0,
        importance=HIGH,
    )
