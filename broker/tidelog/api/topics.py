"""CreateTopics (API 19), DeleteTopics (20) and CreatePartitions (37).

Behaviour. The controller decides each request as a whole against the latest metadata and answers
when the change is on disk and in the broker's image, so a client that then asks for the topic finds
it and its leader. Each topic has its own error, which does not stop the others. Errors and texts:
`controller/topics.py` and `controller/deletion.py`. If nothing can be written, every topic gets
KAFKA_STORAGE_ERROR.

A client above its quota of mutations (KIP-599) gets THROTTLING_QUOTA_EXCEEDED for the topics that
are too much; older versions, which do not know the code, are done and throttled.

A request with topics and a `timeout_ms` of 0 or less gets REQUEST_TIMED_OUT for each of them and
changes nothing, as in Kafka.

Left out: policies; a `timeout_ms` above 0 (nothing here waits for other brokers).

Version notes. CreateTopics 4 (KIP-464): -1 for the broker's defaults, which earlier versions accept
too. 5 (KIP-525): the response has partitions, replicas and settings. 7 (KIP-516): topic id.
DeleteTopics 3: TOPIC_DELETION_DISABLED. 5: texts. 6 (KIP-516): by id. CreatePartitions 2: flexible.
"""

# ruff: noqa: PLC0415 - the tables of admin requests are imported by the first of them

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.decided import refuse_without_time
from tidelog.cluster.controller.decisions import RefusedError
from tidelog.network.observer import is_of_broker
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.primitives import ZERO_UUID
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from tidelog.cluster.controller.controller import Controller
    from tidelog.cluster.controller.decisions import Charge
    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog_protocol.messages.admin import (
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        CreateTopicsRequest,
        CreateTopicsResponse,
        DeleteTopicsRequest,
        DeleteTopicsResponse,
    )

__all__ = ["TopicsApi"]


class TopicsApi:
    """Handlers that create, grow and delete topics."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {
            ApiKey.CREATE_TOPICS: self.create_topics,
            ApiKey.DELETE_TOPICS: self.delete_topics,
            ApiKey.CREATE_PARTITIONS: self.create_partitions,
        }

    def _charge(self, context: RequestContext, strict_from: int) -> Charge | None:
        """Return what charges the client for its partitions; brokers are free."""
        if context.client_id is None or is_of_broker(context):
            return None
        is_strict = context.api_version >= strict_from
        return self._controller.charges(context.principal.name, context.client_id, is_strict)

    async def create_topics(
        self, context: RequestContext, request: CreateTopicsRequest
    ) -> CreateTopicsResponse:
        """Answer a CreateTopics request."""
        from tidelog_protocol.messages.admin import CreateTopicsResponse

        charge = self._charge(context, strict_from=6)
        try:
            if request.topics:
                refuse_without_time(request.timeout_ms)
            return await self._controller.create_topics(request, charge)
        except (RefusedError, StorageError) as error:
            return CreateTopicsResponse(
                topics=[
                    CreateTopicsResponse.CreatableTopicResult(
                        name=topic.name,
                        error_code=error.code,
                        error_message=error.message,
                        configs=[],
                    )
                    for topic in request.topics
                ]
            )

    async def delete_topics(
        self, context: RequestContext, request: DeleteTopicsRequest
    ) -> DeleteTopicsResponse:
        """Answer a DeleteTopics request."""
        from tidelog_protocol.messages.admin import DeleteTopicsResponse

        charge = self._charge(context, strict_from=5)
        try:
            if request.topics or request.topic_names:
                refuse_without_time(request.timeout_ms)
            return await self._controller.delete_topics(request, context.api_version, charge)
        except (RefusedError, StorageError) as error:
            asked: list[tuple[str | None, bytes]] = [
                (name, ZERO_UUID) for name in request.topic_names
            ]
            asked += [(topic.name, topic.topic_id) for topic in request.topics]
            return DeleteTopicsResponse(
                responses=[
                    DeleteTopicsResponse.DeletableTopicResult(
                        name=name,
                        topic_id=topic_id,
                        error_code=error.code,
                        error_message=error.message,
                    )
                    for name, topic_id in asked
                ]
            )

    async def create_partitions(
        self, context: RequestContext, request: CreatePartitionsRequest
    ) -> CreatePartitionsResponse:
        """Answer a CreatePartitions request."""
        from tidelog_protocol.messages.admin import CreatePartitionsResponse

        charge = self._charge(context, strict_from=3)
        try:
            if request.topics:
                refuse_without_time(request.timeout_ms)
            return await self._controller.create_partitions(request, charge)
        except (RefusedError, StorageError) as error:
            return CreatePartitionsResponse(
                results=[
                    CreatePartitionsResponse.CreatePartitionsTopicResult(
                        name=topic.name, error_code=error.code, error_message=error.message
                    )
                    for topic in request.topics
                ]
            )
