"""Plays every `kind: cluster` vector of the specification in the simulation: the player of `tidelog
scenario`, which here knows the actions of all vectors, on whole simulated brokers (`VectorStage`).

Time is virtual: what the vectors say of waiting and of task intervals is played as they say it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any

from sim.loop import simulate
from sim.raw_logs import DATA
from sim.vector_stage import ORDER, VectorStage
from tidelog.metadata.image import REMOTE_LOG_METADATA_TOPIC
from tidelog.remote.shared import until_ready
from tidelog.scenarios.compare import facts_differ, reply_differs
from tidelog.scenarios.inside import Inside, from_hex
from tidelog.scenarios.look import Looker
from tidelog.scenarios.player import Player
from tidelog.scenarios.words import TOPIC
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import DeleteTopicsRequest
from tidelog_protocol.records import iter_batches, iter_records
from tidelog_storage.remote import api
from tidelog_storage.remote.metadata_cache import PartitionMetadata
from tidelog_storage.remote.metadata_records import decode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.loop import SimLoop

RECOVERING = 1


def play(document: dict[str, Any], seed: str = "") -> str:
    """The first step that differs from the vector, and the differences; "" if none does."""
    return simulate(seed or document["id"], lambda loop: _play(loop, document))[0]


async def _play(loop: SimLoop, document: dict[str, Any]) -> str:
    given = document["given"]
    config = {key: str(value) for key, value in given.get("config", {}).items()}
    settings = {key: value for key, value in config.items() if key.startswith("remote.")}
    # The player says when copies are made and what local retention lets go.
    own = {key: value for key, value in config.items() if key not in settings}
    own.pop("local.retention.bytes", None)
    given = {**given, "config": {"flush.ms": sys.maxsize, **own}}
    deletes = any(step["do"]["action"] == "delete_topic" for step in document["steps"])
    if deletes:  # a follower looks after so long whether the leader has marked the partition
        settings["remote.log.manager.task.interval.ms"] = "1000"
    stage = VectorStage(
        loop,
        "".join(given["brokers"]),
        settings,
        tiered="remote" in given,
        new_inside=SimInside,
        metadata_on="BA" if deletes else "XY",  # whoever leads it runs the remover
    )
    async with stage:
        player = SimPlayer(stage, {**document, "given": given})
        difference = await player.play()
        if not difference:
            for produced in player.waiting:
                assert produced.done(), "a producer was never answered"
                assert produced.result()["error"] == "NONE"
        return difference


class SimInside(Inside):
    """A broker from inside, with the verbs that only some vectors need."""

    async def roll(self, now_ms: int) -> None:
        """Begin a segment."""
        self._partition.log.roll(now_ms)

    async def run(self, task: str) -> None:
        """One round; what the store refuses is the task's to bear."""
        with contextlib.suppress(api.RemoteStorageError):
            await self._run(task)

    async def _run(self, task: str) -> None:
        if task == "remote_partition_remover":
            assert self._tier.remover is not None
            await self._tier.remover.look()
        elif task == "copy":
            with self.lifted(1):
                await self._tiered.copier.run()
        elif task == "local_retention":
            with self.lifted(1):
                self._partition.log.delete_old_segments(self._server.runtime.clock.wall_ms())
        else:
            await super().run(task)

    async def is_deleting(self, topic_id: bytes) -> bool:
        """Whether it sees to it by itself that the partition is deleted, or at least marked."""
        partition = api.TopicIdPartition(topic_id, TOPIC, 0)
        return partition in self._tier._deletions

    async def partition_event(self, topic_id: bytes, state: str) -> bool:
        """Write an event of the partition's deletion; whether it was taken."""
        metadata, partition = self._tier.metadata, api.TopicIdPartition(topic_id, TOPIC, 0)
        was_known = metadata.is_tracked(partition)
        metadata.on_leadership_changes(set(), {partition})
        await until_ready(metadata, partition)
        now_ms = self._server.runtime.clock.wall_ms()
        event = api.PartitionDelete(
            partition, self._node_id, now_ms, api.PartitionDeleteState[state]
        )
        try:
            await metadata.put_partition_delete(event)
        except ValueError:
            return False
        finally:
            if not was_known:
                metadata.on_stop_partitions({partition})
        return True


class SimLooker(Looker):
    """Sees the partition's state and, once its topic is deleted, what the metadata topic tells."""

    async def state(self) -> dict[str, Any]:
        stage: Any = self._stage
        state = await super().state()
        state["partition_state"] = stage.partition_states()
        if stage.is_deleted:
            metadata = PartitionMetadata(stage.remote_partition)
            state["metadata_log"] = []
            for event in self._events():
                metadata.apply(event)
                line = self._line(event)
                if line not in (*state["metadata_log"], ""):  # repeating is legal
                    state["metadata_log"].append(line)
            state["rlmm"] = [self._described(segment) for segment in metadata.segments()]
        return state

    def _events(self) -> Iterator[Any]:
        name = next(filter(self._stage.is_running, "AB"))
        files, folder = self._stage.files_of(name), f"{DATA}/{REMOTE_LOG_METADATA_TOPIC}-0"
        for file in sorted(files.list(folder)):
            if file.endswith(".log"):
                data = files.read_bytes(f"{folder}/{file}")
                for position, _ in iter_batches(data):
                    for record in iter_records(data, position):
                        yield decode(record.value or b"")

    def _line(self, event: Any) -> str:
        """An event of a deletion; "" for any other."""
        name: str = event.state.name
        if isinstance(event, api.PartitionDelete):
            return name
        return f"{self._names.symbol(event.segment_id)} {name}" if "DELETE" in name else ""


class SimPlayer(Player):
    """All actions."""

    stage: VectorStage

    def __init__(self, stage: VectorStage, document: dict[str, Any]) -> None:
        super().__init__(stage, document, lambda _: None)
        self.looker = SimLooker(stage, self.names)
        self.waiting: list[asyncio.Future[Any]] = []  # producers that have no answer yet

    def arguments(self, step: dict[str, Any]) -> dict[str, Any]:
        arguments = super().arguments(step)
        if step["do"]["action"] == "produce":
            arguments["waits"] = "reply" in step or arguments["acks"] == 1
        if step["do"]["action"] == "consumer_fetch":
            arguments["rows"] = step["reply"].get("records", [])
        return arguments

    def differs(self, state: dict[str, Any], expected: dict[str, Any]) -> list[str]:
        rest = {**expected}
        wanted = rest.pop("partition_state", None)
        differences = [] if wanted is None or wanted in state["partition_state"] else [wanted]
        log = {key: rest.pop(key) for key in ("metadata_log",) if key in rest}
        return [*differences, *facts_differ("the topic", state, log), *super().differs(state, rest)]

    # -- clients -----------------------------------------------------------------------------------

    async def do_produce(
        self, broker: str, values: list[str], acks: int, *, waits: bool = True
    ) -> dict[str, Any]:
        produced = asyncio.ensure_future(super().do_produce(broker, values, acks))
        if waits:
            return await produced
        self.waiting.append(produced)
        return {}

    async def do_consumer_fetch(
        self, broker: str, offset: int, *, rows: list[Any], max_wait_ms: int = 0, **more: int
    ) -> dict[str, Any]:
        """One fetch; another where a local segment, of which one reads, has not all of `rows`."""
        begun_s = self.stage.brokers.loop.time()
        reply = await super().do_consumer_fetch(broker, offset, **more)
        if max_wait_ms:  # but for what the network takes
            reply["waited_ms"] = int((self.stage.brokers.loop.time() - begun_s) * 10) * 100
        records = reply["records"]
        if reply.get("from") == "local" and len(records) < len(rows):
            rest = await super().do_consumer_fetch(broker, records[-1][0] + 1, **more)
            reply["records"] = records + rest["records"]
        return reply

    async def do_delete_topic(self, topic: str = "") -> dict[str, Any]:
        del topic  # of another id: that name is nobody's
        state = DeleteTopicsRequest.DeleteTopicState(name=TOPIC)
        request = DeleteTopicsRequest(topics=[state], timeout_ms=3000)
        (answer,) = (await self.stage.ask("X", request)).responses
        if answer.error_code == ErrorCode.NONE:
            await self.stage.until(lambda: self.stage.is_deleted, "the topic is gone")
        return {"error": ErrorCode(answer.error_code).name}

    # -- the controller ----------------------------------------------------------------------------

    async def do_isr(self, isr: list[str], why: str = "") -> None:
        stage = self.stage
        await stage.until(lambda: stage.in_sync == sorted(isr), f"{isr} are in sync")
        if "RECOVERED" in why:
            await stage.until(lambda: stage.decided.leader_recovery_state != RECOVERING, why)

    async def do_config(self, **options: dict[str, Any]) -> None:
        await self.client.alter_config(options["set"])

    # -- logs and the remote tier ------------------------------------------------------------------

    async def do_roll(self, broker: str, at: int) -> None:
        inside = self.stage.inside(broker)
        if (await inside.look())["leo"] == at:
            await inside.roll(self.now_ms)
        await super().do_roll(broker, at)

    async def do_rsm(
        self, mode: str, operation: str = "all", error: str = "", delay_ms: int = 0
    ) -> None:
        assert mode in ("up", "fail", "slow")
        ORDER.operation = operation
        ORDER.error = getattr(api, error) if mode == "fail" else None
        for name in self.given["brokers"]:
            self.stage.slow(name, delay_ms / 1000)

    async def do_advance_time(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)

    async def do_run(self, task: str, broker: str) -> None:
        if task == "remote_partition_remover":
            await self._until_left_to_the_remover(broker)
        else:
            await self.direction.until_ready(broker)
        await self.stage.inside(broker).run(task)
        if task == "copy":
            await self._name_what_was_begun(broker)

    async def _until_left_to_the_remover(self, broker: str) -> None:
        inside = self.stage.inside(broker)
        await self.stage.until_metadata_is_led(broker)

        async def is_left() -> bool:
            return not await inside.is_deleting(self.stage.topic_id)

        await self.stage.until(is_left, f"{broker} leaves it to the remover")

    async def _name_what_was_begun(self, broker: str) -> None:
        """Segments that no step names have the next symbol."""
        for segment in from_hex(await self.stage.inside(broker).known() or ()):
            if segment.segment_id not in self.names.segments:
                self.names.add_segment(f"uuid-{len(self.names.segments) + 1}", segment)

    async def do_partition_event(self, state: str, accepted: bool) -> None:
        name = next(filter(self.stage.is_running, "AB"))
        found = await self.stage.inside(name).partition_event(self.stage.topic_id, state)
        self.differences += reply_differs({"accepted": found}, {"accepted": accepted})
