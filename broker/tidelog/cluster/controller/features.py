"""Pure decisions about UpdateFeatures (KIP-584, 778, 1022): checks, order and texts are those of
Kafka's FeatureControlManager.

All updates of a request are made, or none. A level counts if this node and all registered brokers
and controllers support it; voters of the settings must have registered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.decisions import RefusedError
from tidelog.cluster.metadata.features import (
    ELIGIBLE_FEATURE,
    KAFKA_FEATURES,
    KRAFT_FEATURE,
    METADATA_FEATURE,
    registers_controllers,
    supported_levels,
)
from tidelog.cluster.metadata.image import DEFAULT_BROKER_RESOURCE, RESOURCE_BROKER
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.cluster_admin import UpdateFeaturesResponse
from tidelog_protocol.messages.metadata_records import ConfigRecord, FeatureLevelRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.config.broker import BrokerConfig
    from tidelog_protocol.messages.cluster_admin import UpdateFeaturesRequest
    from tidelog_protocol.schema import Message

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3  # upgrade types of the request
_RESULTS_UNTIL = 1  # request version; later ones answer for all updates together
_DISABLED = (0, 0)
_MIN_ISR_KEY = "min.insync.replicas"
# Kafka's MetadataVersion: levels whose records differ from those of the level before.
_METADATA_CHANGED = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30})


def update_features(
    image: ClusterImage, config: BrokerConfig, request: UpdateFeaturesRequest, api_version: int
) -> tuple[list[Message], UpdateFeaturesResponse]:
    """Decide an UpdateFeatures. Raises RefusedError INVALID_UPDATE_VERSION."""
    updates = {update.feature: update for update in request.feature_updates}  # the last one counts
    records: list[Message] = []
    for name, update in updates.items():
        level = update.max_version_level
        problem = _problem(image, config, name, level, update.upgrade_type)
        if problem is not None:
            raise failed(problem)
        if name != KRAFT_FEATURE:  # its level is not in records of the metadata log
            records.append(FeatureLevelRecord(name=name, feature_level=level))
        if name == ELIGIBLE_FEATURE and level > 0:
            records += _safe_min_isr(image, config)
    response = UpdateFeaturesResponse()
    if api_version <= _RESULTS_UNTIL:
        response.results = [
            UpdateFeaturesResponse.UpdatableFeatureResult(
                feature=update.feature, error_message=ErrorCode.NONE.name
            )
            for update in request.feature_updates
        ]
    return [] if request.validate_only else records, response


def _safe_min_isr(image: ClusterImage, config: BrokerConfig) -> list[Message]:
    """Make `min.insync.replicas` the same for all brokers: the eligible replicas depend on it
    (Kafka's maybeGenerateElrSafetyRecords)."""
    values: dict[str, str | None] = {
        name: None
        for name, settings in image.broker_configs.items()
        if name != DEFAULT_BROKER_RESOURCE and _MIN_ISR_KEY in settings
    }
    if _MIN_ISR_KEY not in image.broker_configs.get(DEFAULT_BROKER_RESOURCE, {}):
        values[DEFAULT_BROKER_RESOURCE] = str(config.log_defaults.min_insync_replicas)
    return [
        ConfigRecord(
            resource_type=RESOURCE_BROKER, resource_name=name, name=_MIN_ISR_KEY, value=value
        )
        for name, value in values.items()
    ]


def level_of(image: ClusterImage, name: str) -> int:
    """Return the finalized level of a feature."""
    return int(bool(image.voters)) if name == KRAFT_FEATURE else image.features.get(name, 0)


def names_voters(image: ClusterImage, request: UpdateFeaturesRequest) -> bool:
    """Return whether a request lets the log name the voters (KIP-853)."""
    return not image.voters and any(
        update.feature == KRAFT_FEATURE and update.max_version_level
        for update in request.feature_updates
    )


def failed(problem: str) -> RefusedError:
    """Return the error of a request of which one update is refused."""
    return RefusedError(
        ErrorCode.INVALID_UPDATE_VERSION,
        "The update failed for all features since the following feature had an error: " + problem,
    )


def _problem(
    image: ClusterImage, config: BrokerConfig, name: str, level: int, upgrade_type: int
) -> str | None:
    present = level_of(image, name)
    text: str | None = None
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        text = "The controller does not support the given upgrade type."
    elif level < 0:
        text = "A feature version cannot be less than 0."
    else:
        text = _unsupported_by(image, config, name, level)
    if text is None and level < present and upgrade_type == UPGRADE:
        text = (
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    if text is None and level > present and upgrade_type != UPGRADE:
        text = "Can't downgrade to a newer version."
    if text is None and name == KRAFT_FEATURE and level < present:
        text = "Can't downgrade the version of this feature."
    if text is None and name == METADATA_FEATURE:
        return _metadata_problem(present, level, is_unsafe=upgrade_type == UNSAFE_DOWNGRADE)
    if text is None and name not in KAFKA_FEATURES:
        text = f"Feature {name} not found."
    return text and f"Invalid update version {level} for feature {name}. {text}"


def _unsupported_by(image: ClusterImage, config: BrokerConfig, name: str, level: int) -> str | None:
    """Return the first node that cannot work with a level, as text."""
    for where, (low, high) in _ranges(image, config.node_id, name):
        if not low <= level <= high:
            if high == 0:
                return f"{where} does not support this feature."
            levels = str(low) if low == high else f"{low}-{high}"
            return f"{where} only supports versions {levels}"
    if registers_controllers(image.features):
        for voter in config.quorum_voters():
            if voter.node_id not in (config.node_id, *image.controllers):
                return (
                    f"controller {voter.node_id} has not registered, and may not support this"
                    " feature"
                )
    return None


def _ranges(image: ClusterImage, node_id: int, name: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the levels of a feature that each node supports, this node's first."""
    yield f"Local controller {node_id}", supported_levels().get(name, _DISABLED)
    for broker in image.brokers.values():
        of_broker = {feature: (low, high) for feature, low, high in broker.features}
        yield f"Broker {broker.node_id}", of_broker.get(name, _DISABLED)
    for controller in image.controllers.values():
        if controller.controller_id != node_id and registers_controllers(image.features):
            of_controller = {
                each.name: (each.min_supported_version, each.max_supported_version)
                for each in controller.features
            }
            yield f"Controller {controller.controller_id}", of_controller.get(name, _DISABLED)


def _metadata_problem(present: int, level: int, *, is_unsafe: bool) -> str | None:
    if not any(level < changed <= present for changed in _METADATA_CHANGED):
        return None
    reason = (
        "Unsafe metadata downgrade is not supported in this version."
        if is_unsafe
        else "Refusing to perform the requested downgrade because it might delete metadata "
        "information."
    )
    return f"Unsupported metadata.version downgrade from {present} to {level}. {reason}"
