"""What the steps of a vector do: an action is done by the method of its name with `do_` before it.

Decisions of the controller are waited for, not made. Those that today's controller would never take
are decreed, and it is said so.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tidelog_scenarios.answers import Client
from tidelog_scenarios.compare import facts_differ
from tidelog_scenarios.direction import Direction
from tidelog_scenarios.disk import cut
from tidelog_scenarios.inside import from_hex
from tidelog_scenarios.names import Names
from tidelog_scenarios.words import TOPIC, PlayError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog_scenarios.inside import Inside
    from tidelog_scenarios.stage import Stage

__all__ = ["Actions", "Reply"]

Reply = dict[str, Any]

BETWEEN_CRASHES_S = 1.0  # so that the controller misses in this order who crashed
DECREED = {
    # A broker that restarts leaves the ISR in a cluster of today, and is elected no more.
    ("kip101-s1-lost-message", "A is elected"): "A left the ISR when it stopped",
    ("kip405-s5-remote-divergence", "leadership moves to B"): "A leads well, and nobody asked",
}
"""Elections that are made by decree, and why they have to be: by vector and step."""


def is_begin(some: list[Any], rows: list[Any]) -> bool:
    """Whether these are the first of the rows, and not all."""
    return len(some) < len(rows) and rows[: len(some)] == some


async def _rests(inside: Inside) -> bool:
    return not await inside.is_store_slow()


class Actions:
    """Of one play. What is found beside the answers goes to `differences`."""

    PATIENCE = 40  # so often consumers ask again

    def __init__(
        self, stage: Stage, document: dict[str, Any], tell: Callable[[str, str], None]
    ) -> None:
        """`tell` is given a word and a text for the account."""
        self.stage, self.tell = stage, tell
        self.given, self.id = document["given"], document["id"]
        self.now_ms = stage.clock.wall_ms()
        self.names = Names()
        self.client = Client(stage, self.names, self.now_ms)
        self.direction = Direction(stage, self.names, self.client, document, self.now_ms)
        self.told: dict[str, Reply] = {}  # by follower: what its leader said last
        self.isr_before: list[str] = []  # somebody stopped or crashed
        self.differences: list[str] = []  # of this step

    def arguments(self, step: dict[str, Any]) -> dict[str, Any]:
        """What the method of a step's action is given."""
        arguments = {key: value for key, value in step["do"].items() if key != "action"}
        reply = step.get("reply", {})
        match step["do"]["action"]:
            case "elect":
                arguments["title"] = step.get("name", "")
            case "follower_fetch":
                arguments["rows"] = reply.get("records", [])
            case "consumer_fetch":
                arguments["expected"] = reply
            case "build_aux_state":
                arguments["may_fail"] = "error" in reply
        return arguments

    # -- clients -----------------------------------------------------------------------------------

    async def do_produce(self, broker: str, values: list[str], acks: int) -> Reply:
        """One batch, or one in each segment that it comes to; the reply is the first one's."""
        replies, rolls = [], self.direction.rolls[broker]
        while values:
            end = await self.direction.roll_if_due(broker)
            count = next((at - end for at in rolls if at > end), len(values))
            replies.append(await self.client.produce(broker, values[:count], acks))
            values = values[count:]
        return replies[0]

    async def do_consumer_fetch(
        self, broker: str, offset: int, *, expected: Reply, max_wait_ms: int = 0, **known: int
    ) -> Reply:
        """One fetch, of which tier and segments, too; with `max_wait_ms` also how long it took.

        Again where a segment that is local, of which one fetch reads, has not all that is
        `expected`.
        """
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        reply = await self._read(broker, offset, expected, known)
        if max_wait_ms:
            reply["waited_ms"] = self.waited_ms(1000 * (loop.time() - begun_s), max_wait_ms)
        rows, got = expected.get("records", []), reply["records"]
        while got and reply.get("from") == "local" and is_begin(reply["records"], rows):
            self.tell("then", "one fetch reads of one segment: the consumer fetches again")
            rest = await self._read(broker, got[-1][0] + 1, {}, known)
            got = rest["records"]
            reply["records"] = reply["records"] + got
        return reply

    async def _read(
        self, broker: str, offset: int, expected: Reply, known: dict[str, int]
    ) -> Reply:
        """One fetch. On a busy machine what is remote may take longer than it waits: then again, if
        something is `expected`."""
        if not self.stage.is_tiered:
            return await self.client.fetch(broker, offset, **known)
        inside = self.stage.inside(broker)
        await inside.forget_reads([segment_id.hex for segment_id in self.names.segments])
        reply = await self.client.fetch(broker, offset, **known)
        if expected.get("records") or expected.get("error", "NONE") != "NONE":
            for _ in range(self.PATIENCE):
                if reply["records"] or reply["error"] != "NONE":
                    break
                self.tell("then", "nothing came for as long as it waits: the consumer asks again")
                reply = await self.client.fetch(broker, offset, **known)
        if reply["records"]:
            reads = [self.names.symbol(UUID(each)) for each in await inside.reads()]
            reply["from"] = "remote" if reads else "local"
            reply["segments"] = reads
            reply["first_record"] = reply["records"][0]
        return reply

    def waited_ms(self, found_ms: float, expected_ms: int) -> int:
        """What a fetch without records has waited. What it took longer than it should is the
        machine's: if it was the store's, there would be records."""
        return min(int(found_ms), expected_ms)

    async def do_list_offsets(
        self, broker: str, timestamp: int, current_leader_epoch: int = -1
    ) -> Reply:
        """The offset of a special timestamp."""
        return await self.client.list_offsets(broker, timestamp, current_leader_epoch)

    async def do_offset_for_leader_epoch(
        self, broker: str, leader_epoch: int, current_leader_epoch: int = -1
    ) -> Reply:
        """Where an epoch ends."""
        return await self.client.end_of_epoch(broker, leader_epoch, current_leader_epoch)

    async def do_delete_records(self, broker: str, before: int) -> Reply:
        """Give up what is below an offset."""
        return await self.client.delete_records(broker, before)

    async def do_delete_topic(self, topic: str = "") -> Reply:
        """By its name; a `topic` of that name with another id is not there."""
        del topic
        error = await self.client.delete_topic()
        if error == "NONE":
            stage = self.stage
            await stage.until(lambda: stage.is_deleted, "the topic is gone")
            for name in self.given["brokers"]:  # they hear of it one by one
                await stage.until(partial(stage.lacks_replica, name), f"{name} has no replica")
        return {"error": error}

    # -- followers ---------------------------------------------------------------------------------

    async def do_follower_fetch(
        self, follower: str, leader: str, rows: list[list[Any]], **asked: int
    ) -> Reply:
        """One fetch; several where one segment has not all of the `rows` that are to come."""
        await self.stage.until(partial(self.stage.leads, leader), f"{leader} leads")
        reply = await self._fetch(follower, asked)
        records = got = reply["records"]
        while got and is_begin(records, rows):
            self.tell("then", "one fetch reads of one segment: the follower fetches again")
            reply = await self._fetch(follower, {})
            got = reply["records"]
            records = records + got
        return {**reply, "records": records}

    async def _fetch(self, follower: str, expected: dict[str, int]) -> Reply:
        fetched = await self.stage.inside(follower).fetch()
        asked = self.names.told(fetched["asked"])
        self.differences += facts_differ(f"the fetch of {follower}", asked, expected)
        if fetched["reply"] is None:  # nothing that it has not said before
            return {**self.told.get(follower, {}), "records": []}
        reply = self.names.told(fetched["reply"])
        self.told[follower] = {
            key: reply[key] for key in ("error", "error_code", "hw", "log_start")
        }
        return reply

    async def do_build_aux_state(
        self, follower: str, from_segment: str, *, may_fail: bool
    ) -> Reply:
        """Once; if it `may_fail`, the reply says how it went."""
        inside = self.stage.inside(follower)
        failure = await inside.build()
        if failure:
            if not may_fail:
                raise PlayError(f"{follower} could not build its auxiliary state: {failure}")
            return {"error": failure.partition(":")[0]}
        end = (await inside.look())["leo"]
        used = {
            self.names.symbol(segment.segment_id)
            for segment in self.names.segments.values()
            if segment.end_offset + 1 == end
        }
        if from_segment not in used:
            raise PlayError(f"{follower} begins at {end}, which is not the end of {from_segment}")
        return {"error": "NONE"} if may_fail else {}

    # -- brokers and the controller ----------------------------------------------------------------

    async def do_stop(self, brokers: list[str], clean: bool = True) -> None:
        """An orderly stop, until the controller knows."""
        assert clean
        self.isr_before = self.stage.in_sync
        for name in brokers:
            await self.stage.stop(name)
            await self.stage.until(partial(self.stage.is_fenced, name), f"{name} is missed")

    async def do_crash(self, brokers: list[str], lost_from: dict[str, int] | None = None) -> None:
        """A power failure, until the controller knows."""
        stage = self.stage
        self.isr_before = stage.in_sync
        for number, name in enumerate(brokers):
            if number:
                await asyncio.sleep(BETWEEN_CRASHES_S)
            await stage.crash(name)
        for name, offset in (lost_from or {}).items():
            cut(stage.files_of(name), stage.data_folder(name), TOPIC, offset)
        await stage.until(lambda: all(map(stage.is_fenced, brokers)), "they are missed")
        if len(brokers) > 1 and stage.in_sync != brokers[-1:]:
            self.tell("by decree", f"the ISR is {brokers[-1]}: it was the last to be missed")
            await self.direction.decree(None, brokers[-1:])

    async def do_start(self, broker: str, wipe: bool = False) -> None:
        """Begin lives."""
        await self.stage.start(broker, wipe=wipe)

    async def do_elect(
        self, leader: str, epoch: int, isr: list[str], title: str, unclean: bool = False
    ) -> None:
        """See who is elected, or decree what nobody would decide."""
        stage = self.stage
        why = DECREED.get((self.id, title))
        if why is None:
            found = {"unclean": leader not in self.isr_before}
            self.differences += facts_differ("the election", found, {"unclean": unclean})
        else:
            self.tell("by decree", f"the controller would not do it: {why}")
            await self.direction.decree(leader, isr)
        await stage.until(partial(stage.leads, leader), f"{leader} leads")
        begun = stage.decided.leader_epoch
        self.names.add_epoch(epoch, begun)
        if begun != epoch:
            self.tell(
                "epochs",
                f"{epoch} is {begun} in this cluster, where a time without a leader is one as well",
            )
        await stage.until(
            lambda: stage.in_sync == sorted(isr), f"the ISR is {' and '.join(sorted(isr))}"
        )
        if stage.is_tiered:
            await self.direction.until_ready(leader)

    # -- logs and the remote tier ------------------------------------------------------------------

    async def do_roll(self, broker: str, at: int) -> None:
        """See that a segment begins here; one after all records, here and now."""
        inside = self.stage.inside(broker)
        if (await inside.look())["leo"] == at:
            await self.direction.roll_if_due(broker)
        if at not in await inside.bases():
            raise PlayError(f"no segment of {broker} begins at {at}")

    async def do_delete_local(self, broker: str, before: int) -> None:
        """Local retention lets go what is below an offset."""
        await self.direction.delete_local(broker, before)

    async def do_copy(self, broker: str, segment: str, start: int, end: int) -> None:
        """The leader copies one segment."""
        copied = await self.direction.copy(broker, segment)
        found = {"start": copied.start_offset, "end": copied.end_offset}
        self.differences += facts_differ(segment, found, {"start": start, "end": end})

    async def do_run(self, task: str, broker: str) -> None:
        """One round of a task."""
        inside = self.stage.inside(broker)
        if task == "remote_partition_remover":
            await self.stage.until(inside.leads_metadata, f"{broker} leads the remote metadata")
            await self._until_left(broker)
        else:
            await self.direction.until_ready(broker)
        await inside.run(task)
        if task == "copy":
            await self._name_what_was_begun(broker)

    async def _until_left(self, broker: str) -> None:
        """The deletion is the remover's."""

        async def is_left() -> bool:
            return not await self.stage.inside(broker).is_deleting(self.stage.topic_id.hex())

        await self.stage.until(is_left, f"{broker} leaves the deletion to others")

    async def _name_what_was_begun(self, broker: str) -> None:
        """Segments that no step names have the next symbol."""
        for segment in from_hex(await self.stage.inside(broker).known() or ()):
            if segment.segment_id not in self.names.segments:
                self.names.add_segment(f"uuid-{len(self.names.segments) + 1}", segment)

    async def do_rsm(
        self, mode: str, operation: str = "all", error: str = "", delay_ms: int = 0
    ) -> None:
        """How all brokers' stores are from now on, and what they were asked before is answered."""
        assert mode in ("up", "fail", "slow")
        for name in filter(self.stage.is_running, self.given["brokers"]):
            inside = self.stage.inside(name)
            await inside.order(operation, error, delay_ms / 1000)
            await self.stage.until(partial(_rests, inside), f"the store of {name} has answered")

    async def do_advance_time(self, ms: int) -> None:
        """The brokers' clocks go on; tasks run when their steps come."""
        self.tell("then", "the brokers' clocks are moved on, nobody waits")
        for name in filter(self.stage.is_running, self.given["brokers"]):
            await self.stage.inside(name).move_clock(ms)

    async def do_partition_event(self, state: str, accepted: bool) -> None:
        """Write an event of the deleted partition."""
        name = next(filter(self.stage.is_running, self.given["brokers"]))
        await self._until_left(name)
        found = await self.stage.inside(name).partition_event(self.stage.topic_id.hex(), state)
        self.differences += facts_differ("the event", {"accepted": found}, {"accepted": accepted})

    async def do_metadata_lookup(self, epoch: int, offset: int, broker: str = "") -> Reply:
        """Which finished segment has an offset of an epoch, as the leader knows it."""
        name = broker or await self._leader()
        await self.direction.until_ready(name)
        found = await self.stage.inside(name).segment_for(self.names.cluster_epoch(epoch), offset)
        return {"segment": None if found is None else self.names.symbol(UUID(found))}

    async def _leader(self) -> str:
        actors: list[str] = list(self.given["brokers"])
        for name in actors:
            if await self.stage.leads(name):
                return name
        raise PlayError("no broker leads the partition")
