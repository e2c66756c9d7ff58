"""Pure decisions about brokers: registration, heartbeats, fencing, controlled shutdown (KIP-631).

A broker registers fenced and becomes active with a heartbeat that shows that it has applied its own
registration. A silent broker is fenced: it leaves all ISRs, and others take its leaderships. A
broker that asks to shut down leads nothing new, its leaderships move, and it may stop once no
broker takes it for a leader.

While a registered process has a session, no other one registers with its id: two processes would
lead the same partitions. A directory id proves nothing, because a directory may be a copy. Two
things prove that the registered process has ended: its epoch in the clean-shutdown mark, which the
registration contains (`previous_broker_epoch`), or a heartbeat in its name that asks to be fenced,
from the next holder of its locks. In Kafka a restarted broker waits for the end of the session.

A new registration leaves the ISRs in which another broker is known to run, because its process may
have lost records that were not on disk. The partitions that it led begin a new leader epoch.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from tidelog.cluster.controller.changes import Election
from tidelog.cluster.controller.decisions import RefusedError
from tidelog.cluster.controller.partitions import Changes, check_broker_epoch, has_leaderships
from tidelog.cluster.metadata.features import METADATA_FEATURE, has_directories
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages import metadata_records as tables
from tidelog_protocol.messages.controller import (
    BrokerHeartbeatResponse,
    BrokerRegistrationResponse,
)
from tidelog_protocol.primitives import uuid_to_str

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidelog.cluster.controller.sessions import Session, Sessions
    from tidelog.cluster.metadata.image import BrokerImage, ClusterImage
    from tidelog.config.broker import BrokerConfig
    from tidelog_protocol.messages.controller import (
        BrokerHeartbeatRequest,
        BrokerRegistrationRequest,
    )
    from tidelog_protocol.schema import Message

PRODUCER_ID_BLOCK = 1000
_FENCE, _UNFENCE = 1, -1
_LEAVES = 1
_DIRECTORY_IDS_RESERVED = 100  # ids below are no directories: unassigned, lost, migrating


# ---- registration -----------------------------------------------------------------------------


def register_broker(
    image: ClusterImage,
    config: BrokerConfig,
    request: BrokerRegistrationRequest,
    *,
    epoch: int,
    is_taken: bool,
    heard: Collection[int],
) -> tuple[list[Message], BrokerRegistrationResponse]:
    """Register a broker; `epoch` is the offset of its record.

    `is_taken` and `heard` (brokers known to run) come from the sessions. A process that registers
    again, because its address has changed, keeps epoch and state. Raises RefusedError.
    """
    node_id = request.broker_id
    old = image.brokers.get(node_id)
    _check_registration(image, request, is_taken=is_taken)
    is_same = old is not None and old.incarnation_id == request.incarnation_id
    record = tables.RegisterBrokerRecord(
        broker_id=node_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=old.epoch if old is not None and is_same else epoch,
        end_points=[
            tables.RegisterBrokerRecord.BrokerEndpoint(
                name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=listener.security_protocol,
            )
            for listener in request.listeners
        ],
        features=[
            tables.RegisterBrokerRecord.BrokerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
        rack=request.rack,
        fenced=old.fenced if old is not None and is_same else True,
        in_controlled_shutdown=old is not None and is_same and old.in_controlled_shutdown,
        log_dirs=list(request.log_dirs) if has_directories(image.features) else [],
    )
    records: list[Message] = [record]
    if old is not None and not is_same:
        records += _end_of_life(image, config, old, heard, request.previous_broker_epoch)
    return records, BrokerRegistrationResponse(broker_epoch=record.broker_epoch)


def _end_of_life(
    image: ClusterImage,
    config: BrokerConfig,
    old: BrokerImage,
    heard: Collection[int],
    previous_epoch: int,
) -> list[Message]:
    # After a crash it may lack acknowledged records. Another in-sync replica has them, and the
    # partition waits for it even if it was not heard yet.
    was_clean = previous_epoch == old.epoch
    changes = Changes(image, config, leaving=old.node_id, heard=heard if was_clean else None)
    if changes.keeps_eligible and not was_clean:
        changes.without_unclean(old.node_id)
    changes.after_restart(old.node_id)  # its fencing may not have reached all partitions
    return changes.records


def _check_registration(
    image: ClusterImage, request: BrokerRegistrationRequest, *, is_taken: bool
) -> None:
    node_id = request.broker_id
    old = image.brokers.get(node_id)
    if request.cluster_id != image.cluster_id:
        raise RefusedError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {image.cluster_id}, but got cluster ID {request.cluster_id}",
        )
    if (
        is_taken
        and old is not None
        and old.incarnation_id != request.incarnation_id
        and old.epoch != request.previous_broker_epoch
    ):
        raise RefusedError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id.",
        )
    if request.is_migrating_zk_broker:
        raise RefusedError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            "Controller does not support registering ZK brokers.",
        )
    problem = _directory_problem(image, request)
    if problem is not None:
        raise RefusedError(ErrorCode.INVALID_REGISTRATION, problem)
    _check_features(image, request)


def _directory_problem(image: ClusterImage, request: BrokerRegistrationRequest) -> str | None:
    log_dirs = request.log_dirs
    if not has_directories(image.features):
        return None
    if not log_dirs:
        return "No directories specified in request"
    if any(int.from_bytes(directory, "big") < _DIRECTORY_IDS_RESERVED for directory in log_dirs):
        return "Reserved directory ID in request"
    if len(set(log_dirs)) != len(log_dirs):
        return "Duplicate directory ID in request"
    for broker in image.brokers.values():
        for directory in log_dirs:
            if broker.node_id != request.broker_id and directory in broker.log_dirs:
                return (
                    f"Broker {broker.node_id} is already registered with directory "
                    f"{uuid_to_str(directory)}"
                )
    return None


def _check_features(image: ClusterImage, request: BrokerRegistrationRequest) -> None:
    for feature in request.features:
        low, high = feature.min_supported_version, feature.max_supported_version
        _check_feature(image, feature.name, low, high)
    named = {feature.name for feature in request.features}
    if METADATA_FEATURE not in named:
        raise RefusedError(
            ErrorCode.INVALID_REGISTRATION,
            f"Request features do not contain '{METADATA_FEATURE}'",
        )
    for name in sorted(image.features.keys() - named):
        _check_feature(image, name, 0, 0)


def _check_feature(image: ClusterImage, name: str, low: int, high: int) -> None:
    finalized = image.features.get(name, 0)
    if not low <= finalized <= high:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Unable to register because the broker does not support finalized version "
            f"{finalized} of {name}. The broker wants a version between {low} and {high}, "
            "inclusive.",
        )


def unregister_broker(image: ClusterImage, config: BrokerConfig, node_id: int) -> list[Message]:
    """Remove a broker from all ISRs and from the cluster. Raises RefusedError."""
    broker = image.brokers.get(node_id)
    if broker is None:
        raise RefusedError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"Broker ID {node_id} is not currently registered",
        )
    if len(image.brokers) == 1:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            f"Broker {node_id} is the only broker of the cluster and cannot be unregistered.",
        )
    changes = Changes(image, config, leaving=node_id)
    changes.without(node_id)
    if changes.keeps_eligible:
        changes.without_unclean(node_id)
    gone = tables.UnregisterBrokerRecord(broker_id=node_id, broker_epoch=broker.epoch)
    return [*changes.records, gone]


# ---- heartbeats -------------------------------------------------------------------------------


class BrokerState(Enum):
    """What the controller allows a broker."""

    FENCED = "registered; neither leads nor is in sync"
    UNFENCED = "active"
    CONTROLLED_SHUTDOWN = "leaving: leads what no other broker can take, joins nothing"
    SHUTDOWN_NOW = "may stop; fenced"


def state_of(broker: BrokerImage) -> BrokerState:
    """Return a broker's state in the image."""
    if broker.fenced:
        return BrokerState.FENCED
    if broker.in_controlled_shutdown:
        return BrokerState.CONTROLLED_SHUTDOWN
    return BrokerState.UNFENCED


def heartbeat(
    image: ClusterImage,
    config: BrokerConfig,
    request: BrokerHeartbeatRequest,
    sessions: Sessions,
    now: float,
) -> tuple[list[Message], BrokerHeartbeatResponse]:
    """Decide a heartbeat. Raises RefusedError STALE_BROKER_EPOCH for an earlier registration.

    The sessions stay unchanged: the caller records the heartbeat (`touch`, and `leave`).
    """
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    broker = image.brokers[request.broker_id]
    present = state_of(broker)
    following = _next_state(
        image,
        request,
        sessions.of(broker.node_id, now),
        sessions.lowest_active_offset(image, now),
    )
    records: list[Message] = []
    if following is not present:
        if following is BrokerState.UNFENCED:
            records = _unfence(image, config, broker)
        elif following is BrokerState.CONTROLLED_SHUTDOWN:
            records = _leave(image, config, broker)
        elif present is not BrokerState.FENCED:
            records = fence(image, config, broker.node_id, is_silent=not request.want_fence)
    if not records:  # otherwise the next heartbeat repeats it
        records = _offline_directories(image, config, broker, request.offline_log_dirs)
    records += _cordoned_directories(broker, request.cordoned_log_dirs)
    return records, BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= broker.epoch,
        is_fenced=following in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW),
        should_shut_down=following is BrokerState.SHUTDOWN_NOW,
    )


def _next_state(
    image: ClusterImage,
    request: BrokerHeartbeatRequest,
    session: Session,
    lowest_active_offset: int | None,
) -> BrokerState:
    broker = image.brokers[request.broker_id]
    present = state_of(broker)
    if present is BrokerState.FENCED:
        is_caught_up = request.current_metadata_offset >= broker.epoch
        stays = request.want_fence or not is_caught_up
        following = BrokerState.FENCED if stays else BrokerState.UNFENCED
        return BrokerState.SHUTDOWN_NOW if request.want_shut_down else following
    leads = has_leaderships(image, broker.node_id)
    if present is BrokerState.CONTROLLED_SHUTDOWN:
        known = session.shutdown_offset if session.shutdown_offset >= 0 else image.offset
        all_applied_it = lowest_active_offset is None or known <= lowest_active_offset
        may_go = request.want_fence or (all_applied_it and not leads)
        return BrokerState.SHUTDOWN_NOW if may_go else BrokerState.CONTROLLED_SHUTDOWN
    if not request.want_shut_down:
        return BrokerState.FENCED if request.want_fence else BrokerState.UNFENCED
    must_wait = leads and not request.want_fence
    return BrokerState.CONTROLLED_SHUTDOWN if must_wait else BrokerState.SHUTDOWN_NOW


def fence(
    image: ClusterImage, config: BrokerConfig, node_id: int, *, is_silent: bool = True
) -> list[Message]:
    """Fence a broker: remove it from all ISRs and move its leaderships.

    A broker that is not silent asks to be fenced for a moment: no unclean leader replaces it. This
    is the first step; `finish` returns the others.
    """
    return [
        *_without(image, config, node_id, is_silent=is_silent),
        tables.BrokerRegistrationChangeRecord(
            broker_id=node_id, broker_epoch=image.brokers[node_id].epoch, fenced=_FENCE
        ),
    ]


def finish(
    image: ClusterImage, config: BrokerConfig, node_id: int, epoch: int, *, is_silent: bool
) -> list[Message]:
    """Return the next step of a change of a broker's state, [] after the last one or when the
    broker has registered again. `is_silent` as for `fence`."""
    broker = image.brokers.get(node_id)
    if broker is None or broker.epoch != epoch:
        return []
    if image.is_active(node_id):
        changes = Changes(image, config, in_steps=True)
        changes.elect_leaderless()
        return changes.records
    return _without(image, config, node_id, is_silent=is_silent)


def _without(
    image: ClusterImage, config: BrokerConfig, node_id: int, *, is_silent: bool = True
) -> list[Message]:
    """Return the next step of removing a broker from all ISRs and moving its leaderships."""
    changes = Changes(image, config, leaving=node_id, in_steps=True)
    changes.without(node_id, election=None if is_silent else Election.ONLINE)
    return changes.records


def _unfence(image: ClusterImage, config: BrokerConfig, broker: BrokerImage) -> list[Message]:
    changes = Changes(image, config, returning=broker.node_id, in_steps=True)
    if not broker.in_controlled_shutdown:
        changes.elect_leaderless()
    return [
        tables.BrokerRegistrationChangeRecord(
            broker_id=broker.node_id, broker_epoch=broker.epoch, fenced=_UNFENCE
        ),
        *changes.records,
    ]


def _leave(image: ClusterImage, config: BrokerConfig, broker: BrokerImage) -> list[Message]:
    return [
        tables.BrokerRegistrationChangeRecord(
            broker_id=broker.node_id, broker_epoch=broker.epoch, in_controlled_shutdown=_LEAVES
        ),
        *_without(image, config, broker.node_id),
    ]


def _offline_directories(
    image: ClusterImage, config: BrokerConfig, broker: BrokerImage, offline: list[bytes]
) -> list[Message]:
    """Remove replicas in failed directories from the ISRs (KIP-858)."""
    lost = [directory for directory in broker.log_dirs if directory in offline]
    if not lost:
        return []
    changes = Changes(image, config, leaving=broker.node_id)
    changes.without(broker.node_id, lost)
    return [
        *changes.records,
        tables.BrokerRegistrationChangeRecord(
            broker_id=broker.node_id,
            broker_epoch=broker.epoch,
            log_dirs=[directory for directory in broker.log_dirs if directory not in lost],
        ),
    ]


def _cordoned_directories(broker: BrokerImage, cordoned: list[bytes] | None) -> list[Message]:
    """Record which directories get no new replicas (KIP-1066); None: the broker does not know."""
    if cordoned is None or set(cordoned) == set(broker.cordoned_log_dirs):
        return []
    change = tables.BrokerRegistrationChangeRecord(
        broker_id=broker.node_id, broker_epoch=broker.epoch, cordoned_log_dirs=list(cordoned)
    )
    return [change]


# ---- producer ids -----------------------------------------------------------------------------


def allocate_producer_ids(
    image: ClusterImage, node_id: int, broker_epoch: int
) -> tuple[list[Message], range]:
    """Return a block of ids for a broker (KIP-730). Raises RefusedError STALE_BROKER_EPOCH."""
    check_broker_epoch(image, node_id, broker_epoch)
    first = image.next_producer_id
    block = range(first, first + PRODUCER_ID_BLOCK)
    record = tables.ProducerIdsRecord(
        broker_id=node_id, broker_epoch=broker_epoch, next_producer_id=block.stop
    )
    return [record], block
