"""Plays a `kind: cluster` vector of the specification that needs no remote tier.

Real replica managers, handlers and logs, one `DataPath` for each letter; this file is the
controller and carries the fetches. One topic of one partition; broker letters become ids from 1.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from support.data_path import DataPath, ManualClock, topic_id
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.cluster.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from tidelog.replication.truncation import follower_truncation
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.controller import AlterPartitionResponse
from tidelog_protocol.messages.data import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from tidelog_protocol.records import Record, build_batch, iter_batches, iter_records
from tidelog_storage.types import OffsetAndEpoch

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog.replication.partition import Partition
    from tidelog_storage.log import Log

TOPIC = "t"
BROKER_EPOCH = 10
_TURNS = 20  # of the loop, until everything that a step causes has happened
_WAIT_MS = 500
_TIMEOUT_MS = 1_000_000


class Scenario:
    """The brokers of one vector and their controller."""

    def __init__(self, folder: Path, given: dict[str, Any]) -> None:
        self.folder = folder
        self.names = {name: index for index, name in enumerate(sorted(given["brokers"]), 1)}
        self.letters = {node: name for name, node in self.names.items()}
        self.clock = ManualClock()
        self.stopped: set[int] = set()
        self.state = PartitionImage(
            0,
            -1,
            0,
            0,
            tuple(self.names.values()),
            tuple(self.names[name] for name in given["isr"]),
        )
        self.config = _texts(given.get("config", {}))
        self.proposals: list[tuple[Any, asyncio.Future[Any]]] = []
        self.image = self._new_image()
        self.paths = {node: self._open(node) for node in self.letters}
        for name, asked in given["brokers"].items():
            self._fill(self.log(name), asked)
        for name, asked in given["brokers"].items():
            if asked["role"] == "leader":
                self.change(leader=self.names[name], leader_epoch=asked["leader_epoch"])
                remotes = self.partition(name).remotes
                for follower, log_end in asked.get("remote_leo", {}).items():
                    remotes[self.names[follower]].log_end_offset = log_end

    def _fill(self, log: Log, asked: dict[str, Any]) -> None:
        for offset, value, epoch in asked["records"]:
            records = [Record(offset, self.clock.now_ms, None, value.encode())]
            data = build_batch(records, base_offset=offset, leader_epoch=epoch)
            log.append_as_follower(memoryview(data), leader_epoch=epoch, now_ms=self.clock.now_ms)
        log.set_high_watermark(asked["hw"])

    # -- brokers -----------------------------------------------------------------------------------

    def _open(self, node: int) -> DataPath:
        path = DataPath(
            self.folder / self.letters[node], node_id=node, clock=self.clock, apply_first=False
        )
        path.replicas.use_controller(self._ask_controller, lambda: BROKER_EPOCH, 30_000)
        path.image = self.image
        old = None
        if path.logs.has_new_directory:  # topics come after the first image, else theirs were lost
            old = ClusterImage(cluster_id="test", brokers=self.image.brokers, offset=BROKER_EPOCH)
            path.replicas.apply(MetadataDelta(None, old), old)
        path.replicas.apply(MetadataDelta(old, self.image), self.image)
        return path

    def log(self, name: str) -> Log:
        return self.partition(name).log

    def partition(self, name: str) -> Partition:
        return self.paths[self.names[name]].partition(TOPIC)

    async def stop(self, names: list[str], lost_from: dict[str, int] | None = None) -> None:
        """Down; the handles stay, so that the state at that moment can still be looked at."""
        for name in names:
            path = self.paths[self.names[name]]
            await path.replicas.stop()
            log = self.log(name)
            if lost_from and name in lost_from:
                log.truncate_to(lost_from[name])
            path.logs.upkeep.prepare_checkpoints()()
            log.flush()
            path.logs.abandon()
            self.stopped.add(self.names[name])
        if self.state.leader in self.stopped:
            alive = tuple(n for n in self.state.isr if n not in self.stopped)
            self.change(
                leader=-1,
                leader_epoch=self.state.leader_epoch,
                isr=alive,
            )
        else:
            self.publish()

    def start(self, name: str) -> None:
        node = self.names[name]
        self.stopped.discard(node)
        self.image = self._new_image()
        self.paths[node] = self._open(node)
        self.publish()

    # -- the controller ----------------------------------------------------------------------------

    def _new_image(self) -> ClusterImage:
        topic = TopicImage(TOPIC, topic_id(TOPIC), (self.state,))
        return ClusterImage(
            cluster_id="test",
            brokers={
                node: BrokerImage(node, "h", 1, epoch=BROKER_EPOCH, fenced=node in self.stopped)
                for node in self.letters
            },
            topics={TOPIC: topic},
            topic_names={topic.topic_id: TOPIC},
            topic_configs={TOPIC: self.config},
            offset=BROKER_EPOCH,
        )

    def change(self, **fields: Any) -> None:
        """Commit a change of the partition and tell everybody."""
        epoch = self.state.partition_epoch + 1
        self.state = self.state._replace(partition_epoch=epoch, **fields)
        self.publish()

    def publish(self) -> None:
        old, self.image = self.image, self._new_image()
        for node, path in self.paths.items():
            if node not in self.stopped:
                path.image = self.image
                path.replicas.apply(MetadataDelta(old, self.image), self.image)

    async def _ask_controller(self, request: Any) -> Any:
        future = asyncio.get_running_loop().create_future()
        self.proposals.append((request, future))
        return await future

    async def settle(self, *, recovery: bool = True) -> None:
        """Let everything happen that does not need time; grant what leaders ask for."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)
            if self.proposals and (recovery or not self.state.leader_recovery_state):
                request, future = self.proposals.pop(0)
                asked = request.topics[0].partitions[0]
                isr = [broker.broker_id for broker in asked.new_isr_with_epochs]
                assert asked.partition_epoch == self.state.partition_epoch
                assert request.broker_id == self.state.leader
                self.change(isr=tuple(isr), leader_recovery_state=asked.leader_recovery_state)
                answer = AlterPartitionResponse.PartitionData(
                    isr=isr,
                    leader_epoch=self.state.leader_epoch,
                    partition_epoch=self.state.partition_epoch,
                )
                topic = AlterPartitionResponse.TopicData(
                    topic_id=topic_id(TOPIC), partitions=[answer]
                )
                future.set_result(AlterPartitionResponse(topics=[topic]))

    # -- actions -----------------------------------------------------------------------------------

    async def play(self, step: dict[str, Any]) -> None:
        """One step: the action, its reply, the state after it."""
        action = dict(step["do"])
        name = action.pop("action")
        reply = await getattr(self, f"do_{name}")(**action)
        await self.settle(recovery=name != "elect")
        for key, expected in step.get("reply", {}).items():
            assert reply[key] == expected, f"{key} of the reply"
        self.check(step.get("expect", {}))

    async def do_produce(self, broker: str, values: list[str], acks: int = 1) -> dict[str, Any]:
        records = [
            Record(index, self.clock.now_ms, None, value.encode())
            for index, value in enumerate(values)
        ]
        answer = self.paths[self.names[broker]].produce(
            TOPIC,
            0,
            memoryview(bytearray(build_batch(records))),
            acks=acks,
            timeout_ms=_TIMEOUT_MS,
        )
        if answer is None:
            return {}
        return {**_error(answer.error_code), "offset": answer.base_offset}

    async def do_consumer_fetch(self, broker: str, offset: int, **fields: int) -> dict[str, Any]:
        path = self.paths[self.names[broker]]
        return _fetched(path.fetch((topic_id(TOPIC), 0, offset, fields), version=17))

    async def do_follower_fetch(
        self, follower: str, leader: str, offset: int, **fields: int
    ) -> dict[str, Any]:
        partition = self.partition(follower)
        log = partition.log
        assert offset == log.log_end_offset
        assert fields.get("last_fetched_epoch", -1) == log.epochs.latest_epoch
        path = self.paths[self.names[leader]]
        node = self.names[follower]
        fields["log_start_offset"] = log.log_start_offset
        response = path.fetch(
            (topic_id(TOPIC), 0, offset, fields),
            version=17,
            max_wait_ms=_WAIT_MS,
            replica_state=FetchRequest.ReplicaState(replica_id=node, replica_epoch=BROKER_EPOCH),
        )
        if response is None:
            context = path.context
            path.timers.advance_ms(_WAIT_MS)
            response = path.answer_of(context)
        reply = _fetched(response)
        if reply["error"] == "NONE":
            self._follow(partition, reply)
        return reply

    def _follow(self, partition: Partition, reply: dict[str, Any]) -> None:
        epoch = partition.leader_epoch
        if "diverging" in reply:
            diverging = reply["diverging"]
            log = partition.log
            cut = follower_truncation(
                OffsetAndEpoch(diverging["end_offset"], diverging["epoch"]),
                log.end_offset_for_epoch(diverging["epoch"]),
                log_end_offset=log.log_end_offset,
                high_watermark=log.high_watermark,
            )
            partition.followed_log(epoch).truncate_to(cut.offset, self.clock.now_ms)
        else:
            partition.append_as_follower(
                memoryview(reply["bytes"]), leader_epoch=epoch, now_ms=self.clock.now_ms
            )
            partition.advance_as_follower(reply["hw"], reply["log_start"])

    async def do_list_offsets(
        self, broker: str, timestamp: int, version: int = 9, **fields: int
    ) -> dict[str, Any]:
        topic = ListOffsetsRequest.ListOffsetsTopic
        asked = topic.ListOffsetsPartition(timestamp=timestamp, **fields)
        request = ListOffsetsRequest(replica_id=-1, topics=[topic(name=TOPIC, partitions=[asked])])
        path = self.paths[self.names[broker]]
        answer = path.call(ApiKey.LIST_OFFSETS, version, request).topics[0].partitions[0]
        return {
            **_error(answer.error_code),
            "offset": answer.offset,
            "leader_epoch": answer.leader_epoch,
        }

    async def do_offset_for_leader_epoch(
        self, broker: str, leader_epoch: int, current_leader_epoch: int = -1
    ) -> dict[str, Any]:
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        asked = topic.OffsetForLeaderPartition(
            leader_epoch=leader_epoch, current_leader_epoch=current_leader_epoch
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[topic(topic=TOPIC, partitions=[asked])]
        )
        path = self.paths[self.names[broker]]
        answer = path.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, request).topics[0].partitions[0]
        return {
            **_error(answer.error_code),
            "leader_epoch": answer.leader_epoch,
            "end_offset": answer.end_offset,
        }

    async def do_isr(self, isr: list[str], why: str = "") -> None:
        await self.settle()
        asked = tuple(self.names[name] for name in isr)
        if "ran out" in why:  # else the follower would count as one that may join right now
            self.clock.now_ms += 30_001
        if set(asked) != set(self.state.isr):
            self.change(isr=asked)
        if "RECOVERED" in why:
            assert self.state.leader_recovery_state == 0  # it has said so itself

    async def do_elect(
        self, leader: str, epoch: int, isr: list[str], *, unclean: bool = False
    ) -> None:
        self.change(
            leader=self.names[leader],
            leader_epoch=epoch,
            isr=tuple(self.names[name] for name in isr),
            leader_recovery_state=int(unclean),
        )

    async def do_config(self, **options: dict[str, Any]) -> None:
        self.config = {**self.config, **_texts(options["set"])}
        self.publish()

    async def do_stop(self, brokers: list[str], clean: bool = True) -> None:
        del clean
        await self.stop(brokers)

    async def do_crash(self, brokers: list[str], lost_from: dict[str, int] | None = None) -> None:
        await self.stop(brokers, lost_from)

    async def do_start(self, broker: str) -> None:
        self.start(broker)

    # -- the state ---------------------------------------------------------------------------------

    def check(self, expected: dict[str, Any]) -> None:
        if "isr" in expected:
            assert {self.letters[node] for node in self.state.isr} == set(expected["isr"])
        if "partition_state" in expected:
            assert self._partition_state() == expected["partition_state"]
        for name, wanted in expected.get("brokers", {}).items():
            for key, value in wanted.items():
                found = self._role(name) if key == "role" else self._look(name, key)
                assert found == value, f"{key} of {name}"

    def _partition_state(self) -> str:
        if self.state.leader < 0:
            return "offline"
        return "recovering" if self.state.leader_recovery_state else "online"

    def _role(self, name: str) -> str:
        node = self.names[name]
        if node in self.stopped:
            return "stopped"
        if node == self.state.leader:
            assert self.partition(name).is_leader
            return "leader"
        return "follower" if node in self.state.isr else "out_of_sync"

    def _look(self, name: str, key: str) -> Any:
        partition = self.partition(name)
        log = partition.log
        if key == "remote_leo":
            return {
                self.letters[node]: replica.log_end_offset
                for node, replica in partition.remotes.items()
            }
        if key == "records":
            return _records(_stored(log))
        return {
            "leader_epoch": partition.leader_epoch,
            "log_start": log.log_start_offset,
            "local_start": log.log_start_offset,
            "hw": log.high_watermark,
            "leo": log.log_end_offset,
            "epochs": [list(entry) for entry in log.epochs.entries],
        }[key]


def _texts(config: dict[str, Any]) -> dict[str, str]:
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in config.items()
    }


def _error(code: int) -> dict[str, Any]:
    return {"error": ErrorCode(code).name, "error_code": code}


def _stored(log: Log) -> bytes:
    end = log.log_end_offset
    parts: list[Any] = []
    offset = log.log_start_offset
    while offset < end:
        outcome = log.read(offset, 1 << 30, upper_bound=end)
        parts += outcome.parts  # type: ignore[union-attr]
        offset = outcome.next_offset  # type: ignore[union-attr]
    return b"".join(parts)


def _records(data: bytes) -> list[list[Any]]:
    found = []
    for position, header in iter_batches(data):
        for record in iter_records(data[position : position + header.size_in_bytes]):
            assert record.value is not None
            found.append([record.offset, bytes(record.value).decode(), header.leader_epoch])
    return found


def _fetched(response: Any) -> dict[str, Any]:
    data = response.responses[0].partitions[0]
    records = data.records
    data_bytes = b"".join(records) if isinstance(records, (list, tuple)) else bytes(records)
    reply: dict[str, Any] = {
        **_error(data.error_code),
        "hw": data.high_watermark,
        "log_start": data.log_start_offset,
        "bytes": data_bytes,
        "records": _records(data_bytes),
    }
    if data.diverging_epoch is not None:
        diverging = data.diverging_epoch
        reply["diverging"] = {"epoch": diverging.epoch, "end_offset": diverging.end_offset}
    return reply
