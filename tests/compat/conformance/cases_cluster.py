"""Cases: ApiVersions, Metadata, DescribeCluster, DescribeTopicPartitions, FindCoordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.registry import case

if TYPE_CHECKING:
    from compat.conformance.session import Session

UNKNOWN_ID = bytes(range(16))
SOFTWARE = {"client_software_name": "conformance", "client_software_version": "1.0"}


def versions_fields(version: int, **changes: str) -> dict[str, Any]:
    return {**SOFTWARE, **changes} if version >= 3 else {}


@case("ApiVersions")
def served(s: Session, version: int) -> None:
    answer = s.quietly("ApiVersions", version, **versions_fields(version))
    keys = answer.pop("api_keys")
    s.record("ApiVersions", answer)
    ranges = {str(one["api_key"]): [one["min_version"], one["max_version"]] for one in keys}
    s.record("ApiVersions", {"ranges": ranges})


@case("ApiVersions", first=3)
def software_names(s: Session, version: int) -> None:
    for name in ("", "-dash", "dash-", "sp ace", "a", "A.b-9", "apache-kafka-java", "é"):
        answer = s.quietly("ApiVersions", version, **{**SOFTWARE, "client_software_name": name})
        s.record("ApiVersions", {"name": name, "error_code": answer["error_code"]})
    answer = s.quietly("ApiVersions", version, **{**SOFTWARE, "client_software_version": "1,0"})
    s.record("ApiVersions", {"error_code": answer["error_code"], "keys": len(answer["api_keys"])})


@case("Metadata")
def no_topics(s: Session, version: int) -> None:
    if version:
        s.ask("Metadata", version, topics=[])


@case("Metadata")
def all_topics(s: Session, version: int) -> None:
    names = [s.topic(), s.topic(partitions=2)]
    answer = s.quietly("Metadata", version, topics=None if version else [])
    mine = [topic for topic in answer["topics"] if topic["name"] in names]
    s.record("Metadata", {**answer, "topics": mine})


@case("Metadata")
def by_name(s: Session, version: int) -> None:
    name = s.topic(partitions=3)
    s.ask("Metadata", version, topics=[{"name": name}, {"name": name}])


@case("Metadata", first=4)
def unknown_without_creation(s: Session, version: int) -> None:
    fields: dict[str, Any] = {"allow_auto_topic_creation": False}
    s.ask("Metadata", version, topics=[{"name": f"{s.name}.none"}], **fields)


@case("Metadata")
def unknown_with_creation(s: Session, version: int) -> None:
    name = f"{s.name}.auto"
    s.ask("Metadata", version, topics=[{"name": name}])
    s.await_topic(name)
    s.ask("Metadata", version, topics=[{"name": name}])


@case("Metadata")
def invalid_names(s: Session, version: int) -> None:
    for name in ("", ".", "..", "a b", "a/b", "x" * 250, "é"):
        s.ask("Metadata", version, topics=[{"name": name}])


@case("Metadata")
def internal_by_name(s: Session, version: int) -> None:
    s.coordinator()
    answer = s.quietly("Metadata", version, topics=[{"name": "__consumer_offsets"}])
    for topic in answer.get("topics", []):
        topic["partitions"] = len(topic["partitions"])
    s.record("Metadata", answer)


@case("Metadata", first=10)
def by_id(s: Session, version: int) -> None:
    topic_id = s.topic_id(s.topic())
    s.ask("Metadata", version, topics=[{"topic_id": topic_id, "name": None}])
    s.ask("Metadata", version, topics=[{"topic_id": UNKNOWN_ID, "name": None}])
    s.ask("Metadata", version, topics=[{"topic_id": bytes(16), "name": None}])


@case("Metadata", first=12)
def by_id_and_name(s: Session, version: int) -> None:
    name = s.topic()
    s.ask("Metadata", version, topics=[{"topic_id": s.topic_id(name), "name": name}])


@case("Metadata", first=8)
def authorized_operations(s: Session, version: int) -> None:
    fields: dict[str, Any] = {"include_topic_authorized_operations": True}
    if version <= 10:
        fields["include_cluster_authorized_operations"] = True
    s.ask("Metadata", version, topics=[{"name": s.topic()}], **fields)


@case("DescribeCluster")
def cluster(s: Session, version: int) -> None:
    s.ask("DescribeCluster", version)
    s.ask("DescribeCluster", version, include_cluster_authorized_operations=True)


@case("DescribeCluster", first=1)
def endpoint_types(s: Session, version: int) -> None:
    for kind in (0, 2, 3):
        s.ask("DescribeCluster", version, endpoint_type=kind)


@case("DescribeTopicPartitions")
def pages(s: Session, version: int) -> None:
    names = sorted([s.topic(partitions=3), s.topic(partitions=2)])
    topics = [{"name": name} for name in reversed(names)]
    answer = s.ask("DescribeTopicPartitions", version, topics=topics)
    answer = s.ask("DescribeTopicPartitions", version, topics=topics, response_partition_limit=2)
    for _ in range(3):
        answer = s.ask(
            "DescribeTopicPartitions",
            version,
            topics=topics,
            response_partition_limit=2,
            cursor=answer["next_cursor"],
        )


@case("DescribeTopicPartitions")
def unknown_topics(s: Session, version: int) -> None:
    topics = [{"name": f"{s.name}.none"}, {"name": "in valid"}]
    s.ask("DescribeTopicPartitions", version, topics=topics)
    cursor = {"topic_name": s.topic(), "partition_index": -1}
    s.ask("DescribeTopicPartitions", version, topics=topics, cursor=cursor)
    s.ask("DescribeTopicPartitions", version, topics=topics, response_partition_limit=0)


@case("FindCoordinator", last=3)
def coordinator_of_one(s: Session, version: int) -> None:
    s.coordinator()
    s.ask("FindCoordinator", version, key=s.name)
    s.ask("FindCoordinator", version, key="")
    if version >= 1:
        s.ask("FindCoordinator", version, key=s.name, key_type=9)


@case("FindCoordinator", first=4)
def coordinators_of_several(s: Session, version: int) -> None:
    s.coordinator()
    s.ask("FindCoordinator", version, coordinator_keys=[s.name, "", f"{s.name}2"])
    s.ask("FindCoordinator", version, coordinator_keys=[])
    s.ask("FindCoordinator", version, coordinator_keys=[s.name], key_type=9)
    s.ask("FindCoordinator", version, coordinator_keys=["not:a:share:key"], key_type=2)
