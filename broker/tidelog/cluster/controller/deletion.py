"""Pure decision about DeleteTopics, which takes topics by name or by id (KIP-4, KIP-516).

Kafka shuffles the results, so that their order reveals nothing about topics that a client may not
see. There is no authorization here, so results have the order of the request.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.cluster.controller.decisions import Decision, RefusedError
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import DeleteTopicsResponse
from tidelog_protocol.messages.metadata_records import RemoveTopicRecord
from tidelog_protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.cluster.controller.decisions import Charge
    from tidelog.cluster.metadata.image import ClusterImage, TopicImage
    from tidelog_protocol.messages.admin import DeleteTopicsRequest
    from tidelog_protocol.schema import Message

    Result = DeleteTopicsResponse.DeletableTopicResult
    Asked = tuple[str | None, bytes]

_UNKNOWN_TOPIC = "This server does not host this topic-partition."
_UNKNOWN_TOPIC_ID = "This server does not host this topic ID."


def delete_topics(
    image: ClusterImage, request: DeleteTopicsRequest, charge: Charge | None = None
) -> Decision[Result]:
    """Decide a DeleteTopics; each topic has one result, however often it is named."""
    asked: Counter[Asked] = Counter((name, ZERO_UUID) for name in request.topic_names)
    asked.update((topic.name, topic.topic_id) for topic in request.topics)
    records: list[Message] = []
    results = []
    for name, topic_id in asked:
        try:
            topic = _find_topic(image, name, topic_id, asked)
        except RefusedError as refusal:
            results.append(_result(name, topic_id, refusal))
            continue
        if name is None and asked[topic.name, ZERO_UUID]:
            continue  # it is also named, which has the result
        if name is not None and asked[None, topic.topic_id]:
            message = "The provided topic name maps to an ID that was already supplied."
            twice = RefusedError(ErrorCode.INVALID_REQUEST, message)
            results.append(_result(topic.name, topic.topic_id, twice))
            continue
        excess = _charged(charge, topic)
        if excess is None:
            records.append(RemoveTopicRecord(topic_id=topic.topic_id))
        results.append(_result(topic.name, topic.topic_id, excess))
    return Decision(records, results)


def _charged(charge: Charge | None, topic: TopicImage) -> RefusedError | None:
    """Charge a deletion; return why it must not be done now, if so."""
    try:
        if charge is not None:
            charge.take(len(topic.partitions))
    except RefusedError as refusal:
        return refusal
    return None


def refuse_deletion(request: DeleteTopicsRequest, code: ErrorCode) -> list[Result]:
    """Return the same error for all topics: delete.topic.enable is false."""
    asked = [(name, ZERO_UUID) for name in request.topic_names]
    asked += [(topic.name or "", topic.topic_id) for topic in request.topics]
    return [_result(name or None, topic_id, RefusedError(code, None)) for name, topic_id in asked]


def _find_topic(
    image: ClusterImage, name: str | None, topic_id: bytes, asked: Mapping[Asked, int]
) -> TopicImage:
    problem = None
    if name is None and topic_id == ZERO_UUID:
        problem = "Neither topic name nor id were specified."
    elif name is not None and topic_id != ZERO_UUID:
        problem = "You may not specify both topic name and topic id."
    elif asked[name, topic_id] > 1:
        problem = "Duplicate topic id." if name is None else "Duplicate topic name."
    if problem is not None:
        raise RefusedError(ErrorCode.INVALID_REQUEST, problem)
    if name is None:
        by_id = image.topic_by_id(topic_id)
        if by_id is None:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_ID, _UNKNOWN_TOPIC_ID)
        return by_id
    by_name = image.topics.get(name)
    if by_name is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN_TOPIC)
    return by_name


def _result(name: str | None, topic_id: bytes, refusal: RefusedError | None) -> Result:
    return DeleteTopicsResponse.DeletableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE if refusal is None else refusal.code,
        error_message=None if refusal is None else refusal.message,
    )
