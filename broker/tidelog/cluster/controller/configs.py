"""Pure decisions about configuration: AlterConfigs and IncrementalAlterConfigs → ConfigRecords.

In Apache Kafka the receiving broker checks broker settings and forwards the rest to the controller.
Here one module has the checks of both, in the same order and with the same codes and texts
(KIP-226, KIP-339); the controller repeats those of the broker, since its own clients (KIP-919)
passed none.
A resource is changed as a whole or not at all.

Not supported: loggers and policies.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from tidelog.cluster.controller.decisions import Decision, RefusedError
from tidelog.cluster.controller.names import invalid_topic_reason
from tidelog.cluster.metadata.features import (
    CORDONED_SINCE,
    ELIGIBLE_FEATURE,
    METADATA_FEATURE,
    METADATA_VERSION,
)
from tidelog.cluster.metadata.image import (
    DEFAULT_BROKER_RESOURCE,
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from tidelog.config.broker import ALTERABLE_KEYS, update_mode
from tidelog.config.client_metrics import CLIENT_METRICS_KEYS, OutOfRangeError, subscription_of
from tidelog.config.group_settings import GROUP_KEYS, validate_group
from tidelog.config.listener_changes import LISTENER_KEYS, check_listener_changes
from tidelog.config.listeners import CLUSTER_WIDE_LIMITS, LISTENER_PREFIX, check_listener_name
from tidelog.config.security_keys import STORE_KEYS
from tidelog.config.vocabulary import PER_BROKER, READ_ONLY
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.metadata_records import ClearElrRecord, ConfigRecord
from tidelog_storage.config import TOPIC_KEYS, ConfigError
from tidelog_storage.config_rules import validate_topic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.config.broker import BrokerConfig
    from tidelog_protocol.messages.configs import (
        AlterConfigsRequest,
        IncrementalAlterConfigsRequest,
    )
    from tidelog_storage.config_key import ConfigKey

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
_OPERATIONS = {SET: "SET", DELETE: "DELETE", APPEND: "APPEND", SUBTRACT: "SUBTRACT"}
_TYPES = (RESOURCE_TOPIC, RESOURCE_BROKER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP)
_MIN_ISR_KEY = "min.insync.replicas"
_CORDONED_KEY = "cordoned.log.dirs"
_OWN = (_CORDONED_KEY, *LISTENER_KEYS)
_CLEANER_MEMORY = ("log.cleaner.dedupe.buffer.size", "log.cleaner.threads")
_CLEANER_BYTES = 1 << 20  # a thread's map has more
_STORES = (
    "Validation of dynamic config update of SSLFactory failed:"
    " org.apache.kafka.common.config.ConfigException: "
)
_CONNECTIONS = "max.connections"
_POOLS = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)


class Change(NamedTuple):
    """One key of a request. A legacy AlterConfigs sets all its keys."""

    name: str
    operation: int
    value: str | None


class Resource(NamedTuple):
    """One resource of a request. `replaces`: keys that are not named are deleted (legacy)."""

    type: int
    name: str
    changes: Sequence[Change]
    replaces: bool


class ResourceResult(NamedTuple):
    """The answer for one resource."""

    type: int
    name: str
    code: ErrorCode
    message: str | None


def incremental_resources(request: IncrementalAlterConfigsRequest) -> list[Resource]:
    """The resources of an IncrementalAlterConfigs."""
    return [
        Resource(
            resource.resource_type,
            resource.resource_name,
            [Change(entry.name, entry.config_operation, entry.value) for entry in resource.configs],
            replaces=False,
        )
        for resource in request.resources
    ]


def legacy_resources(request: AlterConfigsRequest) -> list[Resource]:
    """The resources of an AlterConfigs."""
    return [
        Resource(
            resource.resource_type,
            resource.resource_name,
            [Change(entry.name, SET, entry.value) for entry in resource.configs],
            replaces=True,
        )
        for resource in request.resources
    ]


class Alteration:
    """One request, decided in steps: between them the caller writes the records of a step."""

    def __init__(
        self, config: BrokerConfig, resources: Sequence[Resource], *, is_forwarded: bool = True
    ) -> None:
        """`is_forwarded`: the broker that knows its log directories has checked the request."""
        self._config = config
        self._is_forwarded = is_forwarded
        self._named = Counter((resource.type, resource.name) for resource in resources)
        self._left = list({(one.type, one.name): one for one in resources}.values())

    @property
    def is_over(self) -> bool:
        """Whether all of it is decided."""
        return not self._left

    def step(self, image: ClusterImage, count: int) -> Decision[ResourceResult]:
        """Decide the changes of the next resources, at most so many; for `validate_only` the caller
        drops the records."""
        decided, self._left = self._left[:count], self._left[count:]
        records: list[ConfigRecord] = []
        results = []
        for resource in decided:
            try:
                records += self._altered(image, resource)
            except RefusedError as refusal:
                code, message = refusal.code, refusal.message
            else:
                code, message = ErrorCode.NONE, None
            results.append(ResourceResult(resource.type, resource.name, code, message))
        return Decision([*records, *_cleared_eligible(image, records)], results)

    def _altered(self, image: ClusterImage, resource: Resource) -> list[ConfigRecord]:
        if self._named[resource.type, resource.name] > 1:
            raise _invalid("Duplicate resource.")
        altered = _alter(image, self._config, resource)
        _check_min_isr(image, altered)
        for record in altered:
            if record.name == _CORDONED_KEY and record.resource_type == RESOURCE_BROKER:
                _check_cordoned(image, record, is_forwarded=self._is_forwarded)
        return altered


def _check_cordoned(image: ClusterImage, record: ConfigRecord, *, is_forwarded: bool) -> None:
    """Refuse `cordoned.log.dirs` below 4.3-IV0 (KIP-1066). A controller does not know a broker's
    log directories, so its own clients can only uncordon them."""
    if image.features.get(METADATA_FEATURE, METADATA_VERSION) < CORDONED_SINCE:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            "The cordoned.log.dirs configuration value cannot be set because it requires"
            " metadata.version >= 4.3-IV0",
        )
    current = image.broker_configs.get(record.resource_name, {})
    parse = ALTERABLE_KEYS[_CORDONED_KEY].parse
    known = parse(current.get(_CORDONED_KEY, ""))
    if not (is_forwarded or set(parse(record.value or "")) <= set(known)):
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            "When updating cordoned.log.dirs via controllers,  the new value must be a subset"
            " of the current configuration value.",
        )


def _check_min_isr(image: ClusterImage, records: Sequence[ConfigRecord]) -> None:
    """Keep `min.insync.replicas` the same for all brokers while there are eligible replicas
    (KIP-966)."""
    for record in records:
        if record.name != _MIN_ISR_KEY or record.resource_type != RESOURCE_BROKER:
            continue
        if not image.features.get(ELIGIBLE_FEATURE):
            continue
        if record.resource_name != DEFAULT_BROKER_RESOURCE:
            raise RefusedError(
                ErrorCode.INVALID_CONFIG,
                "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
            )
        if record.value is None:
            raise RefusedError(
                ErrorCode.INVALID_CONFIG,
                "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
            )


def _cleared_eligible(image: ClusterImage, records: Sequence[ConfigRecord]) -> list[ClearElrRecord]:
    """Clear the eligible replicas that another `min.insync.replicas` had chosen (KIP-966)."""
    if not image.features.get(ELIGIBLE_FEATURE):
        return []
    return [
        ClearElrRecord(topic_name=record.resource_name)  # "", of the brokers' default: all topics
        for record in records
        if record.name == _MIN_ISR_KEY
    ]


def refused_by_the_asked(
    config: BrokerConfig, dynamic: Mapping[str, str], resources: Sequence[Resource]
) -> dict[int, RefusedError]:
    """Return what a broker refuses before it forwards the rest, by index: settings of another
    broker, loggers, unknown types, and what is named twice.

    `dynamic` are the broker's settings that were set while it runs.
    """
    named = Counter((resource.type, resource.name) for resource in resources)
    refused = {}
    for index, resource in enumerate(resources):
        try:
            if named[resource.type, resource.name] > 1:
                raise _invalid("Each resource must appear at most once.")
            _check_keys(resource)
            if resource.type not in _types(resource):
                raise _invalid(f"Unknown resource type {resource.type}")
            _check_owner(config, dynamic, resource)
        except RefusedError as refusal:
            refused[index] = refusal
    return refused


def _types(resource: Resource) -> tuple[int, ...]:
    """Return the types of resources that a request of this kind may alter."""
    return _TYPES if resource.replaces else (*_TYPES, RESOURCE_BROKER_LOGGER)


def _check_owner(config: BrokerConfig, dynamic: Mapping[str, str], resource: Resource) -> None:
    if resource.type == RESOURCE_BROKER_LOGGER and not resource.replaces:
        _alter_logger(config, resource)
    elif resource.type == RESOURCE_BROKER and resource.name != DEFAULT_BROKER_RESOURCE:
        node_id = parse_node_id(resource.name)
        if node_id is None:
            raise _no_node_id(resource.name)
        if node_id != config.node_id:
            raise _foreign(config, resource.name)
        _check_own(config, dynamic, resource)


def _check_own(config: BrokerConfig, dynamic: Mapping[str, str], resource: Resource) -> None:
    """Check what only the broker itself knows: its log directories and its listeners."""
    _check_operations(resource)
    current = _own_settings(dynamic)
    # A list is appended to its dynamic value, else to the default, as in ConfigAdminManager.
    wanted = _merged(current, _changed(resource, current, ALTERABLE_KEYS))
    try:
        new = config.with_dynamic(_own_settings(wanted))
        new.check_cordoned()
        old = config.with_dynamic(current)
        if any(change.name in LISTENER_KEYS for change in resource.changes):
            check_listener_changes(old, new)
        if any(change.name.startswith(LISTENER_PREFIX) for change in resource.changes):
            _check_stores(old, new)
    except ConfigError as error:
        raise _invalid(error.message) from None


def _check_stores(old: BrokerConfig, new: BrokerConfig) -> None:
    """Refuse key and trust stores that the listeners cannot change to; RefusedError."""
    from tidelog.security.renewal import check_stores  # noqa: PLC0415 - it imports ssl

    named = {one.name for one in (*old.client_listeners(), *old.controller_listeners())}
    for name in (one.name for one in (*new.client_listeners(), *new.controller_listeners())):
        settings = new.listener_settings(name)
        if settings.is_tls and name in named:
            is_of_brokers = name == new.inter_broker_listener() and not new.is_alone()
            try:
                check_stores(old.listener_settings(name), settings, is_of_brokers=is_of_brokers)
            except ConfigError as error:
                raise _invalid_change(f"{_STORES}{error.message}") from None


def _own_settings(settings: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in settings.items()
        if name in _OWN or name.startswith(LISTENER_PREFIX)
    }


def _foreign(config: BrokerConfig, name: str) -> RefusedError:
    return _invalid(f"Unexpected broker id, expected {config.node_id}, but received {name}")


def _check_keys(resource: Resource) -> None:
    names = [change.name for change in resource.changes]
    if len(set(names)) != len(names):
        raise _invalid("Error due to duplicate config keys")
    nulls = [
        change.name
        for change in resource.changes
        if change.value is None and change.operation != DELETE
    ]
    if nulls:
        raise _invalid(f"Null value not supported for : {', '.join(nulls)}")


def _alter(image: ClusterImage, config: BrokerConfig, resource: Resource) -> list[ConfigRecord]:
    _check_keys(resource)
    if resource.type == RESOURCE_TOPIC:
        return _alter_topic(image, config, resource)
    if resource.type == RESOURCE_BROKER:
        return _alter_broker(image, config, resource)
    if resource.type == RESOURCE_BROKER_LOGGER and not resource.replaces:
        return _alter_logger(config, resource)
    if resource.type == RESOURCE_GROUP:
        return _alter_group(image, config, resource)
    if resource.type == RESOURCE_CLIENT_METRICS:
        return _alter_client_metrics(image, resource)
    raise RefusedError(ErrorCode.UNSUPPORTED_VERSION, f"Unknown resource type {resource.type}.")


# ---- topics -----------------------------------------------------------------------------------


def validate_topic_configs(
    config: BrokerConfig,
    image: ClusterImage,
    overrides: Mapping[str, str],
    existing: Mapping[str, str] | None = None,
) -> str | None:
    """Return the error in a topic's settings, given the broker's defaults; None without one.

    `existing` are the topic's settings before the change.
    """
    defaults = config.with_dynamic(image.broker_config(config.node_id)).log_defaults
    try:
        validate_topic(
            overrides,
            defaults=defaults,
            existing=existing,
            remote_storage_system_enabled=config.remote_log_storage_system_enable,
        )
    except ConfigError as error:
        return error.message
    return None


def _alter_topic(
    image: ClusterImage, config: BrokerConfig, resource: Resource
) -> list[ConfigRecord]:
    current = image.topic_config(resource.name)
    changed = _changed(resource, current, TOPIC_KEYS)
    if not resource.name:
        raise _invalid("Default topic resources are not allowed.")
    reason = invalid_topic_reason(resource.name)
    if reason is not None:
        raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    error = validate_topic_configs(config, image, _merged(current, changed), current)
    if error is not None:
        raise RefusedError(ErrorCode.INVALID_CONFIG, error)
    if resource.name not in image.topics:
        raise RefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.name}' does not exist."
        )
    return _differing(resource, current, changed)


# ---- groups -----------------------------------------------------------------------------------


def _alter_group(
    image: ClusterImage, config: BrokerConfig, resource: Resource
) -> list[ConfigRecord]:
    """Change the settings of a group, which need not exist."""
    current = image.group_config(resource.name)
    changed = _changed(resource, current, GROUP_KEYS)
    if not resource.name:
        raise _invalid("Default group resources are not allowed.")
    try:
        validate_group(config, _merged(current, changed))
    except ConfigError as error:
        raise RefusedError(ErrorCode.INVALID_CONFIG, error.message) from None
    return _differing(resource, current, changed)


# ---- clients' metrics --------------------------------------------------------------------------


def _alter_client_metrics(image: ClusterImage, resource: Resource) -> list[ConfigRecord]:
    """Change a subscription of clients' metrics (Kafka's ClientMetricsConfigs)."""
    current = image.client_metrics.get(resource.name, {})
    # The controller of Kafka knows no types of these settings, so it appends to none of them.
    changed = _changed(resource, current, {})
    if not resource.name:
        raise _invalid("Subscription name can't be empty")
    merged = _merged(current, changed)
    for name in merged:
        if name not in CLIENT_METRICS_KEYS:
            raise _invalid(f"Unknown client metrics configuration: {name}")
    try:
        subscription_of(merged)
    except OutOfRangeError as error:
        raise _invalid(error.message) from None
    except ConfigError as error:
        raise RefusedError(ErrorCode.INVALID_CONFIG, error.message) from None
    return _differing(resource, current, changed)


# ---- brokers ----------------------------------------------------------------------------------


def _alter_broker(
    image: ClusterImage, config: BrokerConfig, resource: Resource
) -> list[ConfigRecord]:
    if resource.name != DEFAULT_BROKER_RESOURCE:
        _check_node_id(image, config, resource.name)
    current = image.broker_configs.get(resource.name, {})
    _check_operations(resource)
    changed = _changed(resource, current, ALTERABLE_KEYS)
    merged = _merged(current, changed)
    _check_dynamic(merged, per_broker=resource.name != DEFAULT_BROKER_RESOURCE)
    defaults = image.broker_configs.get(DEFAULT_BROKER_RESOURCE, {})
    own = image.broker_configs.get(str(config.node_id), {})
    before, after = (
        {**defaults, **each} if resource.name else {**each, **own} for each in (current, merged)
    )
    try:
        wanted = config.with_dynamic(after)
    except ConfigError as error:
        raise _invalid(error.message) from None
    if any(name in _CLEANER_MEMORY for name in changed):
        _check_cleaner_memory(wanted)
    _check_connections(changed)
    _check_threads(config.with_dynamic(before), wanted)
    # An unchanged value gets a record too: it makes the broker reload the files that it names.
    return [_record(resource, name, value) for name, value in changed.items()]


def _check_operations(resource: Resource) -> None:
    """Refuse unknown operations, and those of lists on other keys of a broker."""
    for change in resource.changes:
        if change.operation not in _OPERATIONS:
            raise _invalid(f"Unknown operations type {change.operation}")
        key = ALTERABLE_KEYS.get(change.name)
        if change.operation not in (APPEND, SUBTRACT) or (key and key.type_name == "LIST"):
            continue
        reason = f"Unknown config name: {change.name}"
        if key is not None:
            verb = _OPERATIONS[change.operation].lower()
            reason = f"Config value {verb} is not allowed for config key: {change.name}"
        raise RefusedError(ErrorCode.INVALID_CONFIG, reason)


def _check_dynamic(settings: Mapping[str, str], *, per_broker: bool) -> None:
    """Refuse keys that are not dynamic, and per-broker keys in the cluster-wide defaults.

    Unknown names pass, as in Kafka: they may belong to a plug-in.
    """
    declared = sorted(name for name in settings if name in ALTERABLE_KEYS)
    fixed = [name for name in declared if update_mode(name) == READ_ONLY]
    if fixed:
        raise _invalid(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    bare = [name for name in declared if name in STORE_KEYS]
    if bare:
        raise _invalid(
            "These security configs can be dynamically updated only per-listener using the listener"
            f" prefix: [{', '.join(bare)}]"
        )
    for name in declared:
        try:
            ALTERABLE_KEYS[name].parse(settings[name])
        except ConfigError as error:
            raise _invalid(error.message) from None
    single = [name for name in declared if update_mode(name) == PER_BROKER]
    for name in sorted(settings):
        key = check_listener_name(name)
        if key is not None and key.name not in CLUSTER_WIDE_LIMITS:
            single.append(name)
    if single and not per_broker:
        raise _invalid(
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"[{', '.join(single)}]"
        )


def _check_cleaner_memory(wanted: BrokerConfig) -> None:
    """Refuse a map of compaction that is too small for its threads, as KafkaConfig does. An
    operator may still start with one, and then change other settings."""
    threads = wanted.log_cleaner_threads
    if threads and wanted.log_cleaner_dedupe_buffer_size // threads <= _CLEANER_BYTES:
        raise _invalid(
            "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner"
            " thread."
        )


def _check_connections(changed: Mapping[str, str | None]) -> None:
    """Refuse a limit that could not be raised again; a start may have it (ConnectionQuotas)."""
    for name, value in changed.items():
        is_limit = name == _CONNECTIONS or name.endswith(f".{_CONNECTIONS}")
        if is_limit and value is not None and int(value) <= 0:
            raise _invalid_change(f"Invalid {_CONNECTIONS} {int(value)}")


def _check_threads(old: BrokerConfig, new: BrokerConfig) -> None:
    """Refuse to change the size of a pool by more than a factor of two."""
    for name in _POOLS:
        before, after = (getattr(config, name.replace(".", "_")) for config in (old, new))
        if before // 2 <= after <= before * 2:
            continue
        limit = "be at least half" if after < before else "not be greater than double"
        raise _invalid_change(
            f"Dynamic thread count update validation failed for {name}={after}, value should "
            f"{limit} the current value {before}"
        )
    before, after = old.log_cleaner_threads, new.log_cleaner_threads
    if after != before and after < 1:
        raise _invalid_change("Log cleaner threads should be at least 1")
    if not before // 2 <= after <= before * 2:
        limit = "reduced to less than half" if after < before else "increased to more than double"
        raise _invalid_change(f"Log cleaner threads cannot be {limit} the current value {before}")


def _invalid_change(reason: str) -> RefusedError:
    return _invalid(
        f"Invalid value org.apache.kafka.common.config.ConfigException: {reason} for configuration "
        "Invalid dynamic configuration"
    )


def _check_node_id(image: ClusterImage, config: BrokerConfig, name: str) -> None:
    """Refuse ids of unknown brokers; a forwarded request does not name its receiver."""
    node_id = parse_node_id(name)
    if node_id is None:
        raise _no_node_id(name)
    if node_id != config.node_id and node_id not in image.brokers:
        raise RefusedError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {name} found.")


def _no_node_id(name: str) -> RefusedError:
    return _invalid(f"Node id must be an integer, but it is: {name}")


def parse_node_id(name: str) -> int | None:
    """Return a broker resource's name as an id; None if it is no int32."""
    digits = name[1:] if name[:1] in ("-", "+") else name
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
        return None
    return int(name)


def _alter_logger(config: BrokerConfig, resource: Resource) -> list[ConfigRecord]:
    """Refuse each logger as Kafka refuses an unknown one: tidelog has none to set."""
    node_id = parse_node_id(resource.name)
    if node_id is None:
        raise _no_node_id(resource.name)
    if node_id != config.node_id:
        raise _invalid(
            f"Unexpected node id. Expected {config.node_id}, but received {resource.name}"
        )
    for change in resource.changes:
        raise RefusedError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
    return []


# ---- both -------------------------------------------------------------------------------------


def _changed(
    resource: Resource, current: Mapping[str, str], keys: Mapping[str, ConfigKey]
) -> dict[str, str | None]:
    """Return the new values by key, None for a deletion."""
    changed: dict[str, str | None] = {}
    for change in resource.changes:
        changed[change.name] = _new_value(change, current, keys)
    if resource.replaces:
        changed.update(dict.fromkeys(name for name in current if name not in changed))
    return changed


def _new_value(
    change: Change, current: Mapping[str, str], keys: Mapping[str, ConfigKey]
) -> str | None:
    if change.operation in (SET, DELETE):
        return None if change.operation == DELETE else change.value
    if change.operation not in _OPERATIONS:
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, None)  # as Kafka: it does not look
    key = keys.get(change.name)
    if key is None or key.type_name != "LIST":
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {_OPERATIONS[change.operation]} to key {change.name} because its type is "
            "not LIST.",
        )
    text = current.get(change.name, key.format(key.default)) or ""
    items = [item for item in text.split(",") if item]
    assert change.value is not None, "nulls are refused before"
    for item in change.value.split(","):
        if change.operation == APPEND and item not in items:
            items.append(item)
        elif change.operation == SUBTRACT and item in items:
            items.remove(item)
    return ",".join(items)


def _merged(current: Mapping[str, str], changed: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**current, **changed}
    return {name: value for name, value in merged.items() if value is not None}


def _differing(
    resource: Resource, current: Mapping[str, str], changed: Mapping[str, str | None]
) -> list[ConfigRecord]:
    return [
        _record(resource, name, value)
        for name, value in changed.items()
        if current.get(name) != value
    ]


def _record(resource: Resource, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(
        resource_type=resource.type, resource_name=resource.name, name=name, value=value
    )


def _invalid(message: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_REQUEST, message)
