"""Apply metadata records to a `ClusterImage`: the one place that knows what each record means.

The metadata log calls it, at start for the whole log and then for each appended batch. Topics that
a batch does not touch keep their `TopicImage` object, so that a listener finds changes by identity.
A record that does not fit the image (an unknown topic or broker) is a broken log or a bug and
raises `ReplayError`: the broker must stop rather than guess.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.cluster.metadata.features import DYNAMIC_LEVEL, KRAFT_FEATURE
from tidelog.cluster.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
    is_internal_topic,
    quota_entity,
)
from tidelog.cluster.metadata.records import kraft_level
from tidelog_protocol.messages import metadata_records as records
from tidelog_protocol.records import ControlType, control_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tidelog_protocol.records import Record
    from tidelog_protocol.schema import Message

NO_LEADER_CHANGE = -2
_CONFIGS = {
    RESOURCE_TOPIC: "topic_configs",
    RESOURCE_BROKER: "broker_configs",
    RESOURCE_GROUP: "group_configs",
    RESOURCE_CLIENT_METRICS: "client_metrics",
}


class ReplayError(Exception):
    """The metadata log contradicts itself."""


class ImageBuilder:
    """Applies records beside an image; mappings are copied when first changed, else shared."""

    def __init__(self, image: ClusterImage) -> None:
        self._base = image
        self._changed: dict[str, Any] = {}  # by attribute of ClusterImage
        self._next_producer_id = image.next_producer_id
        # Partitions of the topics touched so far, by number; `build` makes new TopicImages of them.
        self._touched: dict[str, dict[int, PartitionImage]] = {}

    def apply(self, record: Message) -> None:
        """Apply one record. ReplayError if it does not fit."""
        handler = _HANDLERS.get(type(record))
        if handler is not None:
            handler(self, record)
        elif type(record) not in _WITHOUT_IMAGE:
            raise ReplayError(f"no rule for {type(record).__name__}")

    def apply_control(self, record: Record) -> None:
        """Apply a control record: `kraft.version` and the voters (KIP-853). Voters show level 1;
        without them, or at another level, the level is one that no broker here can work with."""
        kind = control_type(record)
        if kind == ControlType.KRAFT_VERSION:
            level = kraft_level(record)
            self._feature(records.FeatureLevelRecord(name=KRAFT_FEATURE, feature_level=level))
        elif kind == ControlType.KRAFT_VOTERS:
            from tidelog.cluster.metadata.voters import voters_in  # noqa: PLC0415 - few logs have it

            self._changed["voters"] = voters_in(record)
        if self._now("voters") and self._now("features").get(KRAFT_FEATURE) == DYNAMIC_LEVEL:
            del self._own("features")[KRAFT_FEATURE]

    def _now(self, attribute: str) -> Mapping[Any, Any]:
        """Return a mapping of the current image, to read."""
        now: Mapping[Any, Any] = self._changed.get(attribute, getattr(self._base, attribute))
        return now

    def _own(self, attribute: str) -> dict[Any, Any]:
        """Return a mapping of the image, to change."""
        if attribute not in self._changed:
            self._changed[attribute] = dict(getattr(self._base, attribute))
        own: dict[Any, Any] = self._changed[attribute]
        return own

    def build(self, *, offset: int, leader_epoch: int, controller_id: int) -> ClusterImage:
        """Build the new image, as of `offset`, the last one applied."""
        for name, partitions in self._touched.items():
            count = len(partitions)
            if any(index not in partitions for index in range(count)):
                raise ReplayError(f"partitions of {name} are not numbered 0 to {count - 1}")
            topics = self._own("topics")
            topics[name] = topics[name]._replace(
                partitions=tuple(partitions[index] for index in range(count))
            )
        self._touched.clear()
        return self._base._replace(
            controller_id=controller_id,
            next_producer_id=self._next_producer_id,
            offset=offset,
            leader_epoch=leader_epoch,
            **self._changed,
        )

    # ---- topics and partitions ----------------------------------------------------------------

    def _topic(self, record: records.TopicRecord) -> None:
        if record.name in self._now("topics"):
            raise ReplayError(f"topic {record.name} exists already")
        self._own("topics")[record.name] = TopicImage(
            record.name, record.topic_id, (), is_internal_topic(record.name)
        )
        self._own("topic_names")[record.topic_id] = record.name

    def _remove_topic(self, record: records.RemoveTopicRecord) -> None:
        name = self._name(record.topic_id)
        del self._own("topic_names")[record.topic_id]
        del self._own("topics")[name]
        self._touched.pop(name, None)
        if name in self._now("topic_configs"):
            del self._own("topic_configs")[name]

    def _partition(self, record: records.PartitionRecord) -> None:
        partitions = self._partitions(self._name(record.topic_id))
        partitions[record.partition_id] = PartitionImage(
            partition=record.partition_id,
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            directories=tuple(record.directories),
            eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
            last_known_eligible_leader_replicas=tuple(record.last_known_elr or ()),
            leader_recovery_state=record.leader_recovery_state,
        )

    def _partition_change(self, record: records.PartitionChangeRecord) -> None:
        name = self._name(record.topic_id)
        partitions = self._partitions(name)
        old = partitions.get(record.partition_id)
        if old is None:
            raise ReplayError(f"change to the unknown partition {name}-{record.partition_id}")
        partitions[record.partition_id] = merge_partition(old, record)

    def _clear_eligible_leaders(self, record: records.ClearElrRecord) -> None:
        for name in [record.topic_name] if record.topic_name else list(self._now("topics")):
            if name not in self._now("topics"):
                raise ReplayError(f"eligible replicas cleared for the unknown topic {name}")
            stale = [
                index
                for index, old in self._peek(name).items()
                if old.eligible_leader_replicas or old.last_known_eligible_leader_replicas
            ]
            for index in stale:
                old = self._partitions(name)[index]
                self._partitions(name)[index] = old._replace(
                    eligible_leader_replicas=(),
                    last_known_eligible_leader_replicas=(),
                    partition_epoch=old.partition_epoch + 1,
                )

    def _peek(self, name: str) -> dict[int, PartitionImage]:
        touched = self._touched.get(name)
        if touched is None:
            return dict(enumerate(self._now("topics")[name].partitions))
        return touched

    def _partitions(self, name: str) -> dict[int, PartitionImage]:
        touched = self._touched.get(name)
        if touched is None:
            touched = self._touched[name] = self._peek(name)
        return touched

    def _name(self, topic_id: bytes) -> str:
        name: str | None = self._now("topic_names").get(topic_id)
        if name is None:
            raise ReplayError(f"unknown topic id {topic_id.hex()}")
        return name

    def _scram_credential(self, record: records.UserScramCredentialRecord) -> None:
        self._own("scram_credentials")[record.name, record.mechanism] = record

    def _remove_scram_credential(self, record: records.RemoveUserScramCredentialRecord) -> None:
        self._own("scram_credentials").pop((record.name, record.mechanism), None)

    def _token(self, record: records.DelegationTokenRecord) -> None:
        self._own("delegation_tokens")[record.token_id] = record

    def _remove_token(self, record: records.RemoveDelegationTokenRecord) -> None:
        self._own("delegation_tokens").pop(record.token_id, None)

    # ---- configuration ------------------------------------------------------------------------

    def _config(self, record: records.ConfigRecord) -> None:
        attribute = _CONFIGS.get(record.resource_type)
        if attribute is None:
            return  # of a type that no broker reads; it stays in the log
        configs = self._own(attribute)
        resource = dict(configs.get(record.resource_name, ()))
        if record.value is None:
            resource.pop(record.name, None)
        else:
            resource[record.name] = record.value
        if resource:
            configs[record.resource_name] = resource
        else:
            configs.pop(record.resource_name, None)

    def _client_quota(self, record: records.ClientQuotaRecord) -> None:
        entity = quota_entity({each.entity_type: each.entity_name for each in record.entity})
        quotas = dict(self._now("client_quotas").get(entity, ()))
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        if quotas:
            self._own("client_quotas")[entity] = quotas
        else:
            self._own("client_quotas").pop(entity, None)

    def _acl(self, record: records.AccessControlEntryRecord) -> None:
        from tidelog.security.acls import Acl  # noqa: PLC0415 - few clusters have ACLs

        acls = self._own("acls")
        if record.id in acls:
            raise ReplayError(f"the ACL {record.id.hex()} exists")
        acls[record.id] = Acl(*(getattr(record, field) for field in Acl._fields))

    def _remove_acl(self, record: records.RemoveAccessControlEntryRecord) -> None:
        if self._own("acls").pop(record.id, None) is None:
            raise ReplayError(f"there is no ACL {record.id.hex()}")

    def _feature(self, record: records.FeatureLevelRecord) -> None:
        if record.feature_level:
            self._own("features")[record.name] = record.feature_level
        else:
            self._own("features").pop(record.name, None)

    def _producer_ids(self, record: records.ProducerIdsRecord) -> None:
        if record.next_producer_id <= self._next_producer_id:
            raise ReplayError(f"producer ids went back to {record.next_producer_id}")
        self._next_producer_id = record.next_producer_id

    # ---- brokers ------------------------------------------------------------------------------

    def _register_broker(self, record: records.RegisterBrokerRecord) -> None:
        endpoints = tuple(
            (each.name, each.host, each.port, each.security_protocol) for each in record.end_points
        )
        own = [each for each in endpoints if each[0] == self._base.listener]
        _, host, port, _ = (*own, *endpoints, ("", "", -1, 0))[0]
        self._own("brokers")[record.broker_id] = BrokerImage(
            node_id=record.broker_id,
            host=host,
            port=port,
            rack=record.rack,
            epoch=record.broker_epoch,
            fenced=record.fenced,
            incarnation_id=record.incarnation_id,
            log_dirs=tuple(record.log_dirs),
            in_controlled_shutdown=record.in_controlled_shutdown,
            endpoints=endpoints,
            features=tuple(
                (each.name, each.min_supported_version, each.max_supported_version)
                for each in record.features
            ),
            cordoned_log_dirs=tuple(record.cordoned_log_dirs or ()),
        )

    def _unregister_broker(self, record: records.UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        del self._own("brokers")[record.broker_id]

    def _fence_broker(self, record: records.FenceBrokerRecord) -> None:
        old = self._broker(record.id, record.epoch)
        self._own("brokers")[record.id] = old._replace(fenced=True)

    def _unfence_broker(self, record: records.UnfenceBrokerRecord) -> None:
        old = self._broker(record.id, record.epoch)
        self._own("brokers")[record.id] = old._replace(fenced=False)

    def _change_broker(self, record: records.BrokerRegistrationChangeRecord) -> None:
        old = self._broker(record.broker_id, record.broker_epoch)
        fenced = old.fenced if record.fenced == 0 else record.fenced > 0
        leaving = old.in_controlled_shutdown or record.in_controlled_shutdown > 0
        self._own("brokers")[record.broker_id] = old._replace(
            fenced=fenced,
            in_controlled_shutdown=leaving,
            log_dirs=tuple(record.log_dirs) or old.log_dirs,
            cordoned_log_dirs=old.cordoned_log_dirs
            if record.cordoned_log_dirs is None
            else tuple(record.cordoned_log_dirs),
        )

    def _register_controller(self, record: records.RegisterControllerRecord) -> None:
        self._own("controllers")[record.controller_id] = record

    def _unregister_controller(self, record: records.UnregisterControllerRecord) -> None:
        self._own("controllers").pop(record.controller_id, None)

    def _broker(self, node_id: int, epoch: int) -> BrokerImage:
        broker: BrokerImage | None = self._now("brokers").get(node_id)
        if broker is None or broker.epoch != epoch:
            raise ReplayError(f"change to the unknown broker {node_id}, epoch {epoch}")
        return broker


def merge_partition(old: PartitionImage, record: records.PartitionChangeRecord) -> PartitionImage:
    """Return the partition after a change. A named leader, even the same one, begins a new
    epoch."""
    elects = record.leader != NO_LEADER_CHANGE
    keep = record.leader_recovery_state < 0

    def pick(value: list[Any] | None, current: tuple[Any, ...]) -> tuple[Any, ...]:
        return current if value is None else tuple(value)

    return PartitionImage(
        partition=old.partition,
        leader=record.leader if elects else old.leader,
        leader_epoch=old.leader_epoch + 1 if elects else old.leader_epoch,
        partition_epoch=old.partition_epoch + 1,
        replicas=pick(record.replicas, old.replicas),
        isr=pick(record.isr, old.isr),
        removing_replicas=pick(record.removing_replicas, old.removing_replicas),
        adding_replicas=pick(record.adding_replicas, old.adding_replicas),
        directories=pick(record.directories, old.directories),
        eligible_leader_replicas=pick(
            record.eligible_leader_replicas, old.eligible_leader_replicas
        ),
        last_known_eligible_leader_replicas=pick(
            record.last_known_elr, old.last_known_eligible_leader_replicas
        ),
        leader_recovery_state=old.leader_recovery_state if keep else record.leader_recovery_state,
    )


def replay(
    image: ClusterImage,
    changes: Iterable[Message],
    *,
    offset: int,
    leader_epoch: int,
    controller_id: int,
) -> ClusterImage:
    """Return the image after these records, the last of which has `offset`."""
    builder = ImageBuilder(image)
    for record in changes:
        builder.apply(record)
    return builder.build(offset=offset, leader_epoch=leader_epoch, controller_id=controller_id)


_HANDLERS: dict[type, Callable[[ImageBuilder, Any], None]] = {
    records.TopicRecord: ImageBuilder._topic,
    records.RemoveTopicRecord: ImageBuilder._remove_topic,
    records.PartitionRecord: ImageBuilder._partition,
    records.PartitionChangeRecord: ImageBuilder._partition_change,
    records.ClearElrRecord: ImageBuilder._clear_eligible_leaders,
    records.ConfigRecord: ImageBuilder._config,
    records.ClientQuotaRecord: ImageBuilder._client_quota,
    records.AccessControlEntryRecord: ImageBuilder._acl,
    records.RemoveAccessControlEntryRecord: ImageBuilder._remove_acl,
    records.UserScramCredentialRecord: ImageBuilder._scram_credential,
    records.RemoveUserScramCredentialRecord: ImageBuilder._remove_scram_credential,
    records.DelegationTokenRecord: ImageBuilder._token,
    records.RemoveDelegationTokenRecord: ImageBuilder._remove_token,
    records.FeatureLevelRecord: ImageBuilder._feature,
    records.ProducerIdsRecord: ImageBuilder._producer_ids,
    records.RegisterBrokerRecord: ImageBuilder._register_broker,
    records.UnregisterBrokerRecord: ImageBuilder._unregister_broker,
    records.FenceBrokerRecord: ImageBuilder._fence_broker,
    records.UnfenceBrokerRecord: ImageBuilder._unfence_broker,
    records.BrokerRegistrationChangeRecord: ImageBuilder._change_broker,
    records.RegisterControllerRecord: ImageBuilder._register_controller,
    records.UnregisterControllerRecord: ImageBuilder._unregister_controller,
}

# Records that change nothing an image shows.
_WITHOUT_IMAGE = frozenset(
    {
        records.NoOpRecord,
        records.BeginTransactionRecord,
        records.EndTransactionRecord,
        records.ZkMigrationStateRecord,
    }
)
