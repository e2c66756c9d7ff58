"""What a fetcher has instead of a `PeerChannel`: straight to a leader's handlers, through bytes.

Requests and responses go through the real codecs, in order; a request that comes while another is
parked hurries that one, as a connection does.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from support.handler_calls import RecordingPeer
from tidelog.network.dispatch import Deferred, RequestContext
from tidelog.network.peers import PeerError
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.messages.data import FetchResponse, ListOffsetsResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class LeaderChannel:
    """`asked` has all requests as the leader got them; while `is_down` nobody is reached."""

    def __init__(self, handlers: Mapping[Any, Any]) -> None:
        self.handlers = handlers
        self.asked: list[Any] = []
        self.is_down = False
        self.is_closed = False
        self._parked: list[Deferred] = []

    @property
    def fetches(self) -> list[Any]:
        """The Fetch requests of `asked`."""
        return [request for request in self.asked if request.API_KEY == ApiKey.FETCH]

    async def ask(self, request: Any, version: int | None = None) -> Any:
        """The leader's response."""
        await asyncio.sleep(0)
        if self.is_down or self.is_closed:
            raise PeerError("nobody there")
        api = API[request.API_KEY]
        version = api.max_version if version is None else version
        request = api.request_codec(version).decode(api.request_codec(version).encode(request))
        self.asked.append(request)
        for deferred in self._parked:
            deferred.hurry()
        self._parked.clear()
        peer = AnsweringPeer()
        context = RequestContext(peer, api.key, version, 1, "test")
        response = self.handlers[api.key](context, request)
        if isinstance(response, Deferred):
            self._parked.append(response)
            response = await peer.answer
        codec = api.response_codec(version)
        # A handler may give the body of its response as it goes out.
        body = b"".join(response) if isinstance(response, list) else codec.encode(response)
        return codec.decode(memoryview(bytearray(body)))

    def close(self) -> None:
        """As a channel's."""
        self.is_closed = True


class AnsweringPeer(RecordingPeer):
    """A connection that hands the answer on."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def complete(self, context: RequestContext, response: Any) -> None:
        """Answer the one request."""
        del context
        if not self.answer.done():
            self.answer.set_result(response)


class ScriptedLeader:
    """Answers each Fetch with the next of `answers` (a dict by (topic id, partition), or a function
    of the request), parks when there is none; ListOffsets from `ends` and `starts` by topic."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.ends: dict[str, int] = {}
        self.starts: dict[str, int] = {}
        self.keeps_sessions = True
        self.lists_offsets = True
        self.parked: list[tuple[Any, Deferred]] = []
        self.handlers: dict[ApiKey, Callable[[RequestContext, Any], Any]] = {
            ApiKey.FETCH: self.fetch,
            ApiKey.LIST_OFFSETS: self.list_offsets,
        }

    def fetch(self, context: RequestContext, request: Any) -> Any:
        """The next answer of the script."""
        if self.answers:
            answer = self.answers.pop(0)
            return self.response(answer(request) if callable(answer) else answer)
        deferred = context.defer(lambda: deferred.complete(self.response({})))
        self.parked.append((request, deferred))
        return deferred

    def say(self, answer: Any) -> None:
        """Answer the fetch that is parked, or the next one."""
        parked = [deferred for _, deferred in self.parked if not deferred.done]
        if parked:
            parked[-1].complete(self.response(answer))
        else:
            self.answers.append(answer)

    def response(self, answer: Any) -> FetchResponse:
        """A response of partition data by key; an int is an error of the whole."""
        if isinstance(answer, int):
            return FetchResponse(error_code=answer)
        responses = [
            FetchResponse.FetchableTopicResponse(topic_id=topic_id, partitions=[data])
            for (topic_id, _), data in answer.items()
        ]
        return FetchResponse(session_id=7 if self.keeps_sessions else 0, responses=responses)

    def list_offsets(self, context: RequestContext, request: Any) -> Any:
        """Ends for -1, starts for -2."""
        if request.topics and not self.lists_offsets:
            return context.defer()
        answer = ListOffsetsResponse.ListOffsetsTopicResponse
        topics = []
        for topic in request.topics:
            (asked,) = topic.partitions
            offsets = self.ends if asked.timestamp == -1 else self.starts
            offset = offsets[topic.name]
            error = -offset if offset < 0 else 0
            data = answer.ListOffsetsPartitionResponse(
                partition_index=asked.partition_index, offset=offset, error_code=error
            )
            topics.append(answer(name=topic.name, partitions=[data]))
        return ListOffsetsResponse(topics=topics)
