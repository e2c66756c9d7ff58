"""Cases for a controller's listener: what brokers and other controllers ask, and refusals of it.

None of them changes who leads. Epochs and offsets are each cluster's own: only their signs count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance import registry
from compat.conformance.messages import APIS, decode, encode, request_payload

if TYPE_CHECKING:
    from collections.abc import Callable

    from compat.conformance.session import Session

CASES: list[registry.Case] = []
LOG = "__cluster_metadata"
LOG_ID = bytes(15) + b"\x01"
OTHER_ID = bytes(15) + b"\x07"
OWN = ("leader_epoch", "high_watermark", "log_start_offset", "position", "size", "epoch")
OLD, FUTURE = 0, 1_000_000  # epochs: before any leader of a running quorum, and after all
AWAY = 7  # a node that is not there


def case(api: str, first: int = 0, last: int = 99) -> Callable[..., Callable[..., None]]:
    """A case for the controllers' listener alone."""
    return registry.case(api, first, last, into=CASES)


def shown(value: Any) -> Any:
    """An answer without what each quorum decides for itself."""
    if isinstance(value, list):
        return [shown(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: f"<{key}>" if key in OWN and isinstance(one, int) and one > 0 else shown(one)
        for key, one in value.items()
    }


def ask(s: Session, api: str, version: int, **fields: Any) -> None:
    """Ask, and record what can be compared."""
    s.record(api, shown(s.quietly(api, version, **fields)))


def of_log(name: str = LOG, **fields: Any) -> list[dict[str, Any]]:
    """The topics of a request about the metadata log, or about another log."""
    return [{"topic_name": name, "partitions": [{"partition_index": 0, **fields}]}]


def voted(epoch: int = OLD, **fields: Any) -> dict[str, Any]:
    """What a candidate that is not there says."""
    own = {"replica_id": AWAY, "replica_epoch": epoch, "last_offset_epoch": 0, "last_offset": 0}
    return {**own, **fields}


@case("Vote")
def votes(s: Session, version: int) -> None:
    for topics in (
        of_log(**voted()),
        of_log(**voted(last_offset=-1)),
        of_log(**voted(last_offset_epoch=-1)),
        of_log(**voted(last_offset_epoch=FUTURE)),
        of_log("other", **voted()),
        [],
        [*of_log(**voted()), *of_log(**voted())],
    ):
        ask(s, "Vote", version, topics=topics)
    ask(s, "Vote", version, cluster_id="another", topics=of_log(**voted()))
    if version:
        ask(s, "Vote", version, voter_id=AWAY, topics=of_log(**voted()))
        ask(s, "Vote", version, voter_id=1, topics=of_log(**voted(voter_directory_id=OTHER_ID)))


@case("BeginQuorumEpoch")
@case("EndQuorumEpoch")
def epochs(s: Session, version: int) -> None:
    api = s.run.case.api
    for name, leader, epoch in (
        (LOG, 1, OLD),
        (LOG, AWAY, OLD),
        (LOG, AWAY, -1),
        (LOG, -1, OLD),
        ("other", 1, OLD),
    ):
        ask(s, api, version, topics=of_log(name, leader_id=leader, leader_epoch=epoch))
    ask(s, api, version, topics=[])
    asked = of_log(leader_id=1, leader_epoch=OLD)
    ask(s, api, version, cluster_id="another", topics=asked)


@case("Fetch")
def of_the_metadata_log(s: Session, version: int) -> None:
    def fetch(name: str = LOG, topic_id: bytes = LOG_ID, **fields: Any) -> None:
        part = {
            "partition": 0,
            "fetch_offset": 0,
            "partition_max_bytes": 1,
            "current_leader_epoch": OLD,
            "last_fetched_epoch": 0,
            **fields,
        }
        part = {key: one for key, one in part.items() if version >= SINCE.get(key, 0)}
        topic = {"topic": name} if version < 13 else {"topic_id": topic_id}
        who = {"replica_id": AWAY} if version < 15 else {"replica_state": {"replica_id": AWAY}}
        topics = [{**topic, "partitions": [part]}]
        ask(s, "Fetch", version, max_wait_ms=0, min_bytes=0, topics=topics, **who)

    fetch()
    fetch(current_leader_epoch=FUTURE)
    fetch(current_leader_epoch=-1)
    fetch(fetch_offset=-1)
    fetch(partition=1)
    fetch("other", OTHER_ID)


SINCE = {"current_leader_epoch": 9, "last_fetched_epoch": 12}


@case("AlterPartition")
def partitions_of_a_leader(s: Session, version: int) -> None:
    topic_id = s.topic_id(s.topic())
    isr = {"new_isr": [1]} if version < 3 else {"new_isr_with_epochs": [{"broker_id": 1}]}

    def alter(broker: int, identity: bytes, **fields: Any) -> None:
        part = {"partition_index": 0, "leader_epoch": 0, "partition_epoch": 0, **isr, **fields}
        topics = [{"topic_id": identity, "partitions": [part]}]
        s.ask("AlterPartition", version, broker_id=broker, broker_epoch=-1, topics=topics)

    alter(1, topic_id)
    alter(AWAY, topic_id)


@case("AssignReplicasToDirs")
def directories(s: Session, version: int) -> None:
    topic = {"topic_id": s.topic_id(s.topic()), "partitions": [{"partition_index": 0}]}
    for broker in (1, AWAY):
        rows = [{"id": OTHER_ID, "topics": [topic]}]
        s.ask("AssignReplicasToDirs", version, broker_id=broker, directories=rows)


@case("BrokerHeartbeat")
def heartbeats(s: Session, version: int) -> None:
    for broker, epoch in ((1, 0), (1, -1), (AWAY, 0), (-1, -1)):
        s.ask("BrokerHeartbeat", version, broker_id=broker, broker_epoch=epoch)


@case("AllocateProducerIds")
def producer_ids(s: Session, version: int) -> None:
    for broker, epoch in ((1, 0), (1, -1), (AWAY, 0), (-1, -1)):
        s.ask("AllocateProducerIds", version, broker_id=broker, broker_epoch=epoch)


LISTENER = {"name": "PLAINTEXT", "host": "somewhere", "port": 9, "security_protocol": 0}
FEATURE = {"name": "metadata.version", "min_supported_version": 1, "max_supported_version": 30}


@case("BrokerRegistration")
def registrations(s: Session, version: int) -> None:
    def register(broker: int, cluster: str, **fields: Any) -> None:
        asked = {"broker_id": broker, "cluster_id": cluster, "incarnation_id": OTHER_ID}
        asked |= {"listeners": [LISTENER], "features": [FEATURE], **fields}
        s.ask("BrokerRegistration", version, **asked)

    register(AWAY, "another")
    here = s.quietly("DescribeCluster", 1)["cluster_id"]
    register(1, here)
    register(AWAY, here, features=[])


@case("ControllerRegistration")
def controllers(s: Session, version: int) -> None:
    """Another process registers as the running controller, which then does so again."""
    for listeners in ([LISTENER], []):
        asked = {"controller_id": 1, "incarnation_id": OTHER_ID, "listeners": listeners}
        s.ask("ControllerRegistration", version, **asked, features=[FEATURE])


@case("UpdateRaftVoter")
def voters(s: Session, version: int) -> None:
    for epoch, cluster in ((OLD, None), (FUTURE, None), (OLD, "another")):
        asked = {"cluster_id": cluster, "current_leader_epoch": epoch, "voter_id": 1}
        asked |= {"voter_directory_id": OTHER_ID, "listeners": []}
        known = {"min_supported_version": 0, "max_supported_version": 1}
        ask(s, "UpdateRaftVoter", version, **asked, kraft_version_feature=known)


@case("FetchSnapshot")
def snapshots_of_another_cluster(s: Session, version: int) -> None:
    """All that can be compared: Kafka fails to write an answer with the error of a partition
    (UNKNOWN_SERVER_ERROR), ends on a request without topics, and has snapshots of its own."""
    part = {"partition": 0, "current_leader_epoch": OLD}
    topics = [{"name": LOG, "partitions": [part]}]
    ask(s, "FetchSnapshot", version, cluster_id="another", replica_id=AWAY, topics=topics)


PRINCIPAL = b"\0\0\x05User\x02x\0\0"  # version 0 of DefaultPrincipalData
HOST = bytes((127, 0, 0, 1))


@case("Envelope")
def enclosed_requests(s: Session, version: int) -> None:
    def enclose(api: str, inner: int, *, data: bytes | None = None, **fields: Any) -> None:
        tables = APIS[api]
        body = {"topics": None} if api == "ListPartitionReassignments" else {}
        made = request_payload(tables, inner, 7, "client", encode(tables, inner, body))
        asked = {"request_data": made if data is None else data, "request_principal": PRINCIPAL}
        asked |= {"client_host_address": HOST, **fields}
        answer = s.quietly("Envelope", version, **asked)
        if answer.get("response_data"):
            answer["response_data"] = decode(tables, inner, answer["response_data"])
        s.record("Envelope", answer)

    forwarded = "ListPartitionReassignments"
    enclose(forwarded, 0)
    enclose("ApiVersions", 3)
    enclose("Metadata", 9)
    whole = bytes((0, 46, 0, 0, 0, 0, 0, 7)) + b"\xff\xff\0" + bytes((0, 0, 3, 0))
    for data in (b"", b"\0", whole[:2], whole[:3] + b"\x63" + whole[4:], b"\x7f" * 20):
        enclose(forwarded, 0, data=data)
    for data in (whole, whole[:9], whole[:10], whole[:11], whole[:-1], whole + b"\0"):
        enclose(forwarded, 0, data=data)
    for principal in (None, b"", b"\0\0", b"\0\x09" + PRINCIPAL[2:], b"no principal"):
        enclose(forwarded, 0, request_principal=principal)
    for host in (b"", bytes(3), bytes(16)):
        enclose(forwarded, 0, client_host_address=host)


@case("DescribeAcls")
@case("CreateAcls")
@case("DeleteAcls")
def without_an_authorizer(s: Session, version: int) -> None:
    name = {"resource_type": 2, "principal": "User:x", "host": "*", "operation": 3}
    if s.run.case.api == "CreateAcls":
        rows = [{**name, "resource_name": "t", "permission_type": 3}]
        s.ask("CreateAcls", version, creations=[{**rows[0], "resource_pattern_type": 3}])
        return
    filters = {
        "resource_type_filter": 2,
        "resource_name_filter": "t",
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    fields = {"filters": [filters]} if s.run.case.api == "DeleteAcls" else filters
    s.ask(s.run.case.api, version, **fields)
