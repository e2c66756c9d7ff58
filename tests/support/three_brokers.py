"""Three brokers and the controller they ask, through its handlers, over a real metadata log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.controller_cluster import beat, registration
from support.handler_calls import make_context
from support.metadata import Metadata
from tidelog.api.brokers import BrokersApi
from tidelog.api.elections import ElectionsApi
from tidelog.cluster.controller.controller import Controller
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.messages.admin import CreateTopicsRequest

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import BrokerImage, PartitionImage
    from tidelog_protocol.schema import Message


class Three:
    """Three brokers and the controller they ask."""

    def __init__(self, **settings: str) -> None:
        listeners = "PLAINTEXT://127.0.0.1:9091,CONTROLLER://127.0.0.1:9093"
        # Unless a test says so, the controller's own broker is none of them: its session differs.
        self.metadata = Metadata(listeners=listeners, **{"node_id": "9", **settings})
        self.lives: dict[int, int] = {}
        self.take_over()

    def take_over(self) -> None:
        """A new controller leads; it knows what is in the log alone."""
        metadata = self.metadata
        self.controller = Controller(
            metadata.log, metadata.config, metadata.rng, metadata.clock, metadata.clock.monotonic
        )
        self.handlers = {
            **BrokersApi(self.controller).handlers(),
            **ElectionsApi(self.controller).handlers(),
        }

    async def ask(self, request: Message, version: int | None = None) -> Any:
        """Through both codecs of a version, as a broker would."""
        assert request.API_KEY is not None
        key = ApiKey(request.API_KEY)
        api = API[key]
        version = api.max_version if version is None else version
        request = api.request_codec(version).decode(api.request_codec(version).encode(request))
        response: Any = await self.handlers[key](make_context(key, version), request)
        return api.response_codec(version).decode(api.response_codec(version).encode(response))

    async def join(self, node_id: int) -> int:
        """A new life of a broker registers and is unfenced; its epoch."""
        life = self.lives[node_id] = self.lives.get(node_id, node_id) + 100
        answer = await self.ask(registration(node_id, life))
        assert answer.error_code == 0
        answer = await self.ask(beat(node_id, answer.broker_epoch))
        assert (answer.error_code, answer.is_fenced, answer.is_caught_up) == (0, False, True)
        return self.broker(node_id).epoch

    def broker(self, node_id: int) -> BrokerImage:
        return self.metadata.log.image.brokers[node_id]

    def partition(self, topic: str = "t", index: int = 0) -> PartitionImage:
        return self.metadata.log.image.topics[topic].partitions[index]

    async def create(self, *replicas: list[int], **settings: str) -> None:
        """The topic `t`, with these replicas of its partitions."""
        topic = CreateTopicsRequest.CreatableTopic
        request = topic(
            name="t",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                topic.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
                for index, brokers in enumerate(replicas)
            ],
            configs=[
                topic.CreatableTopicConfig(name=name.replace("_", "."), value=value)
                for name, value in settings.items()
            ],
        )
        made = await self.controller.create_topics(CreateTopicsRequest(topics=[request]))
        assert made.topics[0].error_code == 0

    async def pass_time(self, seconds: float, *heard: int) -> None:
        """Let time pass, with heartbeats of these brokers."""
        self.metadata.clock.wall += int(seconds * 1000)
        for node_id in heard:
            await self.ask(beat(node_id, self.broker(node_id).epoch))
        await self.controller.tick()
