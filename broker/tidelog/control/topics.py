"""The calls on topics: create and delete."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from tidelog.control.calls import Call, Nothing
from tidelog.control.errors import ControlError
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.control.broker import BrokerControl
    from tidelog.control.cluster import ClusterControl

__all__ = ["CALLS"]

REQUEST_MS_MAX = 30_000
_FIELDS = {
    ErrorCode.TOPIC_ALREADY_EXISTS: "name",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "name",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "name",
    ErrorCode.INVALID_PARTITIONS: "partitions",
    ErrorCode.INVALID_REPLICATION_FACTOR: "replication_factor",
    ErrorCode.INVALID_CONFIG: "config",
}
"""The arguments at fault, by Kafka's errors."""


@dataclass(frozen=True)
class NewTopic:
    """A topic to create. -1 is the default of the broker."""

    name: str
    partitions: int = 1
    replication_factor: int = -1
    config: dict[str, str | int | float | bool] = field(default_factory=dict)
    """Settings by their Kafka names."""


@dataclass(frozen=True)
class OldTopic:
    """A topic to delete."""

    name: str
    missing_ok: bool = False


@dataclass(frozen=True)
class OldTopics:
    """Topics to delete in one request."""

    names: tuple[str, ...]
    missing_ok: bool


@dataclass(frozen=True)
class NamedTopic:
    """A topic by its name."""

    name: str


@dataclass(frozen=True)
class Known:
    """Whether a broker knows a topic, and whether it serves all partitions that it leads."""

    is_known: bool
    is_served: bool


async def _create(control: ClusterControl, args: NewTopic) -> Nothing:
    """Create a topic, and wait until all running brokers serve it."""
    await control.first_of_majority().ask("broker.create_topic", asdict(args))
    await _until_all(control, args.name, lambda known: known.is_served, "is not served yet")
    return Nothing()


async def _delete(control: ClusterControl, args: OldTopic) -> Nothing:
    """Delete a topic, and wait until no running broker knows it."""
    asked = {"names": (args.name,), "missing_ok": args.missing_ok}
    await control.first_of_majority().ask("broker.delete_topics", asked)
    await _until_all(control, args.name, lambda known: not known.is_known, "is still known")
    return Nothing()


async def _until_all(
    control: ClusterControl, name: str, is_so: Callable[[Known], bool], what: str
) -> None:
    async def look() -> str | None:
        found = await control.ask_all("broker.knows_topic", {"name": name})
        late = [str(node_id) for node_id, known in found.items() if not is_so(known)]
        return f"topic {name} {what} on broker {', '.join(late)}" if late else None

    await control.until(look)


async def _create_here(control: BrokerControl, args: NewTopic) -> Nothing:
    """Ask the controller to create a topic."""
    from tidelog.control.requests import check, perform_request  # noqa: PLC0415 - in a broker only
    from tidelog_protocol.messages.admin import CreateTopicsRequest  # noqa: PLC0415 - heavy table

    if not -1 <= args.replication_factor < 2**15:
        raise ControlError("must be 1 or more, or -1", field="replication_factor")
    if not -1 <= args.partitions < 2**31:
        raise ControlError("must be 1 or more, or -1", field="partitions")
    topic = CreateTopicsRequest.CreatableTopic(
        name=args.name,
        num_partitions=args.partitions,
        replication_factor=args.replication_factor,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key, value=_text(value))
            for key, value in args.config.items()
        ],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=REQUEST_MS_MAX)
    (result,) = (await perform_request(control.server, request)).topics
    check(result.error_code, result.error_message, _FIELDS)
    return Nothing()


def _text(value: str | float | bool) -> str:
    """Return a setting as Kafka has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


async def _delete_here(control: BrokerControl, args: OldTopics) -> Nothing:
    """Ask the controller to delete topics."""
    from tidelog.control.requests import check, perform_request  # noqa: PLC0415
    from tidelog_protocol.messages.admin import DeleteTopicsRequest  # noqa: PLC0415

    topics = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in args.names]
    request = DeleteTopicsRequest(topics=topics, timeout_ms=REQUEST_MS_MAX)
    for result in (await perform_request(control.server, request)).responses:
        if not args.missing_ok or result.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            check(result.error_code, result.error_message, _FIELDS)
    return Nothing()


def _knows(control: BrokerControl, args: NamedTopic) -> Known:
    """Return whether this broker knows a topic and serves what it leads of it."""
    server = control.server
    topic = server.metadata.image.topics.get(args.name)
    if topic is None:
        return Known(is_known=False, is_served=False)
    is_served = True
    for state in topic.partitions:
        if state.leader == server.config.node_id:
            replica = server.replicas.partition(topic.name, state.partition)
            is_served = is_served and not isinstance(replica, ErrorCode) and replica.is_leader
    return Known(is_known=True, is_served=is_served)


CALLS = (
    Call("topics.create", "cluster", NewTopic, Nothing, _create),
    Call("topics.delete", "cluster", OldTopic, Nothing, _delete),
    Call("broker.create_topic", "broker", NewTopic, Nothing, _create_here),
    Call("broker.delete_topics", "broker", OldTopics, Nothing, _delete_here),
    Call("broker.knows_topic", "broker", NamedTopic, Known, _knows),
)
