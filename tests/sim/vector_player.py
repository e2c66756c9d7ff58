"""Plays a `kind: cluster` vector that needs no remote tier on whole brokers, step by step.

Brokers are those of a `Stage`: real ones, their fetchers and the controller included. What is not
left to them is only when a follower fetches: each fetch waits at a turnstile for its step.

Decisions of the controller (`isr`, `elect`) are waited for, not made. One that today's controller
would never take has to be named (`by_decree`) and is written into the metadata log. Leader epochs
of a vector stand for those that the elections of the cluster really begin: a time without a leader
is an epoch as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from sim.machine import START_MS
from sim.stage import TOPIC, Stage
from sim.wire import WireConnection
from tidelog.replication import fetcher_manager
from tidelog.replication.replica_fetcher import ReplicaFetcher
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.configs import IncrementalAlterConfigsRequest
from tidelog_protocol.messages.data import FetchRequest, OffsetForLeaderEpochRequest
from tidelog_protocol.messages.metadata_records import PartitionChangeRecord
from tidelog_protocol.records import Record, build_batch, iter_batches, iter_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.loop import SimLoop

SETTLED_S = 0.3  # all that a step causes; less than any period but heartbeats
BETWEEN_CRASHES_S = 0.5  # so that the controller misses who crashed in this order
SETTINGS = {"replica.lag.time.max.ms": "30000"}
RECOVERING = 1
_TOPIC_RESOURCE, _SET = 2, 0


class Fetched(NamedTuple):
    """What a follower asked for, and what came."""

    asked: Any
    data: Any  # of the one partition; None if the leader had nothing new to say
    records: list[list[Any]]


class Turnstile:
    """Followers fetch when they are let through, once each time."""

    def __init__(self) -> None:
        self._opened: dict[int, asyncio.Event] = {}
        self._passed: dict[int, asyncio.Future[Fetched]] = {}

    def event(self, node_id: int) -> asyncio.Event:
        """Set while a broker may fetch."""
        return self._opened.setdefault(node_id, asyncio.Event())

    async def let(self, node_id: int) -> Fetched:
        """Have a broker fetch once, until it has done with the answer all that it does."""
        future = self._passed[node_id] = asyncio.get_running_loop().create_future()
        self.event(node_id).set()
        return await asyncio.wait_for(future, 30)

    def passed(self, node_id: int, fetched: Fetched) -> None:
        """It has fetched."""
        self.event(node_id).clear()
        self._passed[node_id].set_result(fetched)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """All fetchers made while the block runs pass here."""
        turnstile = self

        class GatedFetcher(ReplicaFetcher):
            async def _fetch(self) -> None:
                await turnstile.event(self._node_id).wait()
                self._update_session()  # roles may have changed meanwhile
                if not self._session.asked:
                    return
                self._answer: Any = None
                ((_, asked),) = self._session.asked.items()
                await super()._fetch()
                if self._answer is not None:
                    turnstile.passed(self._node_id, Fetched(asked, *self._answer))

            def _take(self, response: Any) -> None:
                partitions = [data for topic in response.responses for data in topic.partitions]
                self._answer = (None, [])
                for data in partitions:
                    self._answer = (data, records_of(data))
                super()._take(response)

        with mock.patch.object(fetcher_manager, "ReplicaFetcher", GatedFetcher):
            yield


class VectorPlayer:
    """One vector on stage. Brokers have the vector's letters."""

    def __init__(self, stage: Stage, turnstile: Turnstile, document: dict[str, Any]) -> None:
        self.stage, self.turnstile = stage, turnstile
        self.given, self.steps = document["given"], document["steps"]
        self.epochs = {-1: -1, 0: 0}  # of the vector, to those of the cluster
        self.seen: list[Any] = []  # states of the partition, as the controller made them
        self.waiting: list[asyncio.Future[Any]] = []  # producers that have no answer yet
        self.told: dict[str, dict[str, Any]] = {}  # by follower: what its leader said last
        self.by_decree: list[str] = []

    @classmethod
    async def play(
        cls, loop: SimLoop, document: dict[str, Any], by_decree: tuple[str, ...] = ()
    ) -> None:
        """From the given state to the last step; AssertionError says which step failed.

        `by_decree`: names of the steps in which the controller has to be told what to decide.
        """
        turnstile = Turnstile()
        letters = "".join(document["given"]["brokers"])
        with turnstile.installed():
            async with Stage(loop, letters, SETTINGS) as stage:
                player = cls(stage, turnstile, document)
                await player.set_up()
                for number, step in enumerate(player.steps, 1):
                    try:
                        await player.step(step)
                    except AssertionError as error:
                        error.add_note(f"step {number}: {step.get('name') or step['do']}")
                        raise
                for future in player.waiting:
                    assert future.done(), "a producer was never answered"
                    answer = future.result().responses[0].partition_responses[0]
                    assert answer.error_code == ErrorCode.NONE
                assert tuple(player.by_decree) == by_decree

    # -- the given state ---------------------------------------------------------------------------

    async def set_up(self) -> None:
        """Create the topic, and write what the vector says the logs hold."""
        brokers = self.given["brokers"]
        (leader,) = (name for name, it in brokers.items() if it["role"] == "leader")
        others = sorted(name for name in brokers if name != leader)
        config = {"flush.ms": sys.maxsize, **self.given.get("config", {})}
        await self.stage.create_topic("".join((leader, *others)), **config)
        self.stage.loop.after_step = self._watch
        await self.stage.until(lambda: self.stage.leads(leader), "led")
        for name, asked in brokers.items():
            self._fill(name, asked)
        remotes = self.stage.partition(leader).remotes
        for name, log_end in brokers[leader].get("remote_leo", {}).items():
            remotes[self.stage.ids[name]].log_end_offset = log_end
        await self._in_sync(self.given["isr"])
        for name in brokers:
            await self.stage.checkpoint(name)
        self.check(
            {
                key: self.given[key]
                for key in ("brokers", "isr", "partition_state")
                if key in self.given
            }
        )

    def _fill(self, name: str, asked: dict[str, Any]) -> None:
        log = self.stage.partition(name).log
        lost_from = [
            step["do"].get("lost_from", {}).get(name, sys.maxsize)
            for step in self.steps
            if step["do"]["action"] == "crash"
        ]
        for offset, value, epoch in asked["records"]:
            record = Record(offset, START_MS, None, value.encode())
            data = build_batch([record], base_offset=offset, leader_epoch=epoch)
            if offset == min(lost_from, default=sys.maxsize):
                self.stage.sync(name)
            log.append_as_follower(memoryview(bytearray(data)), leader_epoch=epoch, now_ms=0)
        log.set_high_watermark(asked["hw"])

    def _watch(self) -> None:
        self.stage.look()
        state = self.stage.decided if self.stage.has_controller else None
        if state is not None and (not self.seen or self.seen[-1] is not state):
            self.seen.append(state)

    # -- steps -------------------------------------------------------------------------------------

    async def step(self, step: dict[str, Any]) -> None:
        """One step: the action, its reply, the state after it."""
        action = dict(step["do"])
        name = action.pop("action")
        if name == "elect":
            action["title"] = step["name"]
        if name == "produce":
            action["answered"] = "reply" in step
        reply = await getattr(self, f"do_{name}")(**action)
        await asyncio.sleep(SETTLED_S)
        for key, expected in step.get("reply", {}).items():
            assert reply.get(key) == self._mapped(key, expected), f"{key} of the reply"
        self.check(step.get("expect", {}))

    async def do_produce(
        self, broker: str, values: list[str], acks: int, answered: bool
    ) -> dict[str, Any]:
        if answered or acks == 1:
            answer = await self.stage.produce(broker, *values, acks=acks)
            return {**error(answer.error_code), "offset": answer.base_offset}
        connection = await WireConnection.open(self.stage.machines[broker], "producer")
        self.waiting.append(connection.send(self.stage.produce_request(*values, acks=acks), 12))
        return {}

    async def do_follower_fetch(
        self,
        follower: str,
        leader: str,
        offset: int,
        last_fetched_epoch: int,
        current_leader_epoch: int,
    ) -> dict[str, Any]:
        assert self.stage.leads(leader)
        fetched = await self.turnstile.let(self.stage.ids[follower])
        assert fetched.asked.fetch_offset == offset
        assert fetched.asked.last_fetched_epoch == self.epochs[last_fetched_epoch]
        assert fetched.asked.leader_epoch == self.epochs[current_leader_epoch]
        if fetched.data is None:
            return {**self.told[follower], "records": []}
        reply = fetch_reply(fetched.data, fetched.records)
        self.told[follower] = {key: reply[key] for key in ("error", "hw", "log_start")}
        return reply

    async def do_consumer_fetch(
        self,
        broker: str,
        offset: int,
        last_fetched_epoch: int = -1,
        current_leader_epoch: int = -1,
    ) -> dict[str, Any]:
        topic = FetchRequest.FetchTopic
        partition = topic.FetchPartition(
            partition=0,
            fetch_offset=offset,
            last_fetched_epoch=self._epoch(last_fetched_epoch),
            current_leader_epoch=self._epoch(current_leader_epoch),
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, topics=[topic(topic=TOPIC, partitions=[partition])]
        )
        response = await self.stage.ask(broker, request, 12)
        data = response.responses[0].partitions[0]
        return fetch_reply(data, records_of(data))

    async def do_offset_for_leader_epoch(
        self, broker: str, leader_epoch: int, current_leader_epoch: int = -1
    ) -> dict[str, Any]:
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        partition = topic.OffsetForLeaderPartition(
            leader_epoch=self._epoch(leader_epoch),
            current_leader_epoch=self._epoch(current_leader_epoch),
        )
        request = OffsetForLeaderEpochRequest(topics=[topic(topic=TOPIC, partitions=[partition])])
        answer = (await self.stage.ask(broker, request, 4)).topics[0].partitions[0]
        return {
            **error(answer.error_code),
            "leader_epoch": answer.leader_epoch,
            "end_offset": answer.end_offset,
        }

    async def do_isr(self, isr: list[str], why: str = "") -> None:
        await self._in_sync(isr)
        if "RECOVERED" in why:
            await self.stage.until(
                lambda: self.stage.decided.leader_recovery_state != RECOVERING, why
            )

    async def _in_sync(self, names: list[str]) -> None:
        """The controller is asked for it by the leader, after at most one and a half times the lag
        that is allowed."""
        wanted = "".join(sorted(names))
        await self.stage.until(lambda: self.stage.in_sync == wanted, f"{wanted} are in sync")

    async def do_elect(
        self, leader: str, epoch: int, isr: list[str], title: str, unclean: bool = False
    ) -> None:
        with contextlib.suppress(AssertionError):
            await self.stage.until(lambda: self.stage.leads(leader), "elected")
        if not self.stage.leads(leader):
            self.by_decree.append(title)
            await self._decree(leader, isr)
        self.epochs[epoch] = self.stage.decided.leader_epoch
        begun = next(s for s in self.seen if s.leader_epoch == self.epochs[epoch])
        assert bool(begun.leader_recovery_state) is unclean
        assert self.stage.in_sync == "".join(sorted(isr))

    async def _decree(self, leader: str, isr: list[str]) -> None:
        partition = self.stage.decided.partition
        record = PartitionChangeRecord(
            partition_id=partition,
            topic_id=self.stage.topic_id,
            leader=self.stage.ids[leader],
            isr=[self.stage.ids[name] for name in isr],
        )
        await self.stage.commit(record)
        await self.stage.until(lambda: self.stage.leads(leader), "elected by decree")

    async def do_config(self, **options: dict[str, Any]) -> None:
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        configs = [
            resource.AlterableConfig(name=name, config_operation=_SET, value=str(value).lower())
            for name, value in options["set"].items()
        ]
        asked = resource(resource_type=_TOPIC_RESOURCE, resource_name=TOPIC, configs=configs)
        response = await self.stage.ask("X", IncrementalAlterConfigsRequest(resources=[asked]), 1)
        assert response.responses[0].error_code == ErrorCode.NONE, response

    async def do_stop(self, brokers: list[str], clean: bool = True) -> None:
        assert clean
        for name in brokers:
            await self.stage.stop(name)

    async def do_crash(self, brokers: list[str], lost_from: dict[str, int] | None = None) -> None:
        for name in brokers:
            if name not in (lost_from or {}):
                self.stage.sync(name)
            self.stage.power_failure(name)
            await asyncio.sleep(BETWEEN_CRASHES_S)
        await self.stage.until(lambda: all(map(self.stage.is_fenced, brokers)), "missed")

    async def do_start(self, broker: str) -> None:
        await self.stage.start(broker)
        await self.stage.until(lambda: self.stage.has_replica(broker), "a replica")

    # -- epochs ------------------------------------------------------------------------------------

    def _epoch(self, epoch: int) -> int:
        """An epoch of the cluster; one that the vector has not begun is above all."""
        newest = max(self.epochs)
        known = self.epochs.get(epoch)
        return self.epochs[newest] + epoch - newest if known is None else known

    def _mapped(self, key: str, value: Any) -> Any:
        """What the vector expects, in epochs of the cluster."""
        match key:
            case "leader_epoch":
                return self._epoch(value)
            case "epochs":
                return [[self._epoch(epoch), start] for epoch, start in value]
            case "records":
                return [[offset, text, self._epoch(epoch)] for offset, text, epoch in value]
            case "diverging":
                return {**value, "epoch": self._epoch(value["epoch"])}
        return value

    # -- the state ---------------------------------------------------------------------------------

    def check(self, expected: dict[str, Any]) -> None:
        """Compare what is named."""
        assert expected.keys() <= {"brokers", "isr", "partition_state"}
        if "isr" in expected:
            assert self.stage.in_sync == "".join(sorted(expected["isr"]))
        if "partition_state" in expected:
            assert expected["partition_state"] in self._partition_states()
        for name, wanted in expected.get("brokers", {}).items():
            for key, value in wanted.items():
                found = self._role(name) if key == "role" else self._look(name, key)
                assert found == self._mapped(key, value), f"{key} of {name}"

    def _partition_states(self) -> list[str]:
        """The state, and before it that of the epoch's begin: a leader has recovered at once."""
        state = self.stage.decided
        if state.leader < 0:
            return ["offline"]
        begun = next(s for s in self.seen if s.leader_epoch == state.leader_epoch)
        return ["recovering" if s.leader_recovery_state else "online" for s in (begun, state)]

    def _role(self, name: str) -> str:
        if self.stage.machines[name].server is None:
            return "stopped"
        if self.stage.leads(name):
            return "leader"
        return "follower" if name in self.stage.in_sync else "out_of_sync"

    def _look(self, name: str, key: str) -> Any:
        records = [list(record) for record in self.stage.records(name)]
        if key == "records":
            return records
        if self.stage.machines[name].server is None:
            assert key == "leo"
            return records[-1][0] + 1
        partition = self.stage.partition(name)
        log = partition.log
        return {
            "leader_epoch": partition.leader_epoch,
            "log_start": log.log_start_offset,
            "local_start": log.log_start_offset,
            "hw": log.high_watermark,
            "leo": log.log_end_offset,
            "epochs": [list(entry) for entry in log.epochs.entries],
            "remote_leo": {
                self.stage.letters[node_id]: max(replica.log_end_offset, 0)
                for node_id, replica in partition.remotes.items()
            },
        }[key]


def error(code: int) -> dict[str, Any]:
    """How replies name an error."""
    return {"error": ErrorCode(code).name, "error_code": code}


def records_of(data: Any) -> list[list[Any]]:
    """The records of a Fetch answer: offset, value, leader epoch."""
    found = []
    parts = data.records or b""
    content = b"".join(parts) if isinstance(parts, (list, tuple)) else bytes(parts)
    for position, header in iter_batches(content):
        for record in iter_records(content[position : position + header.size_in_bytes]):
            assert record.value is not None
            found.append([record.offset, bytes(record.value).decode(), header.leader_epoch])
    return found


def fetch_reply(data: Any, records: list[list[Any]]) -> dict[str, Any]:
    """One partition of a Fetch answer, as vectors write it."""
    reply = {
        **error(data.error_code),
        "hw": data.high_watermark,
        "log_start": data.log_start_offset,
        "records": records,
    }
    if data.diverging_epoch is not None:
        end = data.diverging_epoch
        reply["diverging"] = {"epoch": end.epoch, "end_offset": end.end_offset}
    return reply
