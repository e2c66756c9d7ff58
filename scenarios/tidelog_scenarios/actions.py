"""The actions of a vector's steps: the action `x` is the method `do_x`.

A play waits for the controller's decisions. It writes those into the metadata log that the
controller would never make, and reports it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tidelog_scenarios.client import Client
from tidelog_scenarios.compare import facts_differ
from tidelog_scenarios.disk import cut
from tidelog_scenarios.inside import from_hex
from tidelog_scenarios.interventions import Interventions
from tidelog_scenarios.names import Names
from tidelog_scenarios.vocabulary import TOPIC, PlayError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog_scenarios.inside import Inside
    from tidelog_scenarios.stage import Stage

__all__ = ["Actions", "Reply"]

Reply = dict[str, Any]

BETWEEN_CRASHES_S = 1.0  # so that the controller fences the brokers in this order
DECREED = {
    # Today a restarted broker leaves the ISR and is not elected.
    ("kip101-s1-lost-message", "A is elected"): "A left the ISR when it stopped",
    ("kip405-s5-remote-divergence", "leadership moves to B"): "A leads without a fault",
}
"""Elections that are forced, by vector and step, with the reason."""


def is_begin(some: list[Any], rows: list[Any]) -> bool:
    """Return whether `some` are the first of the rows, but not all."""
    return len(some) < len(rows) and rows[: len(some)] == some


async def _rests(inside: Inside) -> bool:
    return not await inside.is_store_slow()


class Actions:
    """The actions of one play. `differences` collects those found outside of the replies."""

    PATIENCE = 40  # retries of a consumer

    def __init__(
        self, stage: Stage, document: dict[str, Any], tell: Callable[[str, str], None]
    ) -> None:
        """`tell` takes a word and a text for the report."""
        self.stage, self.tell = stage, tell
        self.given, self.id = document["given"], document["id"]
        self.now_ms = stage.clock.wall_ms()
        self.names = Names()
        self.client = Client(stage, self.names, self.now_ms)
        self.interventions = Interventions(stage, self.names, self.client, document, self.now_ms)
        self.last_replies: dict[str, Reply] = {}  # of the leader, by follower
        self.isr_before: list[str] = []  # before the last stop or crash
        self.differences: list[str] = []  # of this step

    def arguments(self, step: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments for the method of a step's action."""
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

    async def do_nothing(self, why: str) -> None:
        """Leave out what a rule does not do."""

    # -- clients -----------------------------------------------------------------------------------

    async def do_produce(self, broker: str, values: list[str], acks: int) -> Reply:
        """Produce one batch for each segment that the values reach; return the first reply."""
        replies, rolls = [], self.interventions.rolls[broker]
        while values:
            end = await self.interventions.roll_if_due(broker)
            count = next((at - end for at in rolls if at > end), len(values))
            replies.append(await self.client.produce(broker, values[:count], acks))
            values = values[count:]
        return replies[0]

    async def do_consumer_fetch(
        self, broker: str, offset: int, *, expected: Reply, max_wait_ms: int = 0, **known: int
    ) -> Reply:
        """Fetch once; the reply names the tier and the segments, with `max_wait_ms` also the time.

        A fetch reads one local segment. It is repeated until all `expected` records are there.
        """
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        reply = await self._read(broker, offset, expected, known)
        if max_wait_ms:
            reply["waited_ms"] = self.waited_ms(1000 * (loop.time() - begun_s), max_wait_ms)
        rows, got = expected.get("records", []), reply["records"]
        while got and reply.get("from") == "local" and is_begin(reply["records"], rows):
            self.tell("then", "a fetch reads one segment: the consumer fetches again")
            rest = await self._read(broker, got[-1][0] + 1, {}, known)
            got = rest["records"]
            reply["records"] = reply["records"] + got
        return reply

    async def _read(
        self, broker: str, offset: int, expected: Reply, known: dict[str, int]
    ) -> Reply:
        """Fetch once, or again while `expected` records or errors are missing: on a busy machine a
        remote read may outlast the wait."""
        if not self.stage.is_tiered:
            return await self.client.fetch(broker, offset, **known)
        inside = self.stage.inside(broker)
        await inside.forget_reads([segment_id.hex for segment_id in self.names.segments])
        reply = await self.client.fetch(broker, offset, **known)
        if expected.get("records") or expected.get("error", "NONE") != "NONE":
            for _ in range(self.PATIENCE):
                if reply["records"] or reply["error"] != "NONE":
                    break
                self.tell("then", "no records within the wait: the consumer fetches again")
                reply = await self.client.fetch(broker, offset, **known)
        if reply["records"]:
            reads = [self.names.symbol(UUID(each)) for each in await inside.reads()]
            reply["from"] = "remote" if reads else "local"
            reply["segments"] = reads
            reply["first_record"] = reply["records"][0]
        return reply

    def waited_ms(self, found_ms: float, expected_ms: int) -> int:
        """Return how long a fetch without records waited. The machine adds what exceeds the
        expected time: a late store would have sent records."""
        return min(int(found_ms), expected_ms)

    async def do_list_offsets(
        self, broker: str, timestamp: int, current_leader_epoch: int = -1
    ) -> Reply:
        """Look up the offset of a special timestamp."""
        return await self.client.list_offsets(broker, timestamp, current_leader_epoch)

    async def do_offset_for_leader_epoch(
        self, broker: str, leader_epoch: int, current_leader_epoch: int = -1
    ) -> Reply:
        """Ask where an epoch ends."""
        return await self.client.end_of_epoch(broker, leader_epoch, current_leader_epoch)

    async def do_delete_records(self, broker: str, before: int) -> Reply:
        """Delete the records below an offset."""
        return await self.client.delete_records(broker, before)

    async def do_delete_topic(self, topic: str = "") -> Reply:
        """Delete the topic by its name; a `topic` of that name with another id does not exist."""
        del topic
        error = await self.client.delete_topic()
        if error == "NONE":
            stage = self.stage
            await stage.until(lambda: stage.is_deleted, "the topic is gone")
            for name in self.given["brokers"]:  # each applies it on its own
                await stage.until(partial(stage.lacks_replica, name), f"{name} has no replica")
        return {"error": error}

    # -- followers ---------------------------------------------------------------------------------

    async def do_follower_fetch(
        self, follower: str, leader: str, rows: list[list[Any]], **asked: int
    ) -> Reply:
        """Fetch once, or until all `rows` are there if they are in several segments."""
        await self.stage.until(partial(self.stage.leads, leader), f"{leader} leads")
        reply = await self._fetch(follower, asked)
        records = got = reply["records"]
        while got and is_begin(records, rows):
            self.tell("then", "a fetch reads one segment: the follower fetches again")
            reply = await self._fetch(follower, {})
            got = reply["records"]
            records = records + got
        return {**reply, "records": records}

    async def _fetch(self, follower: str, expected: dict[str, int]) -> Reply:
        fetched = await self.stage.inside(follower).fetch()
        asked = self.names.translated(fetched["asked"])
        self.differences += facts_differ(f"the fetch of {follower}", asked, expected)
        if fetched["reply"] is None:  # an incremental fetch without changes
            return {**self.last_replies.get(follower, {}), "records": []}
        reply = self.names.translated(fetched["reply"])
        kept = ("error", "error_code", "hw", "log_start")
        self.last_replies[follower] = {key: reply[key] for key in kept}
        return reply

    async def do_build_aux_state(
        self, follower: str, from_segment: str, *, may_fail: bool
    ) -> Reply:
        """Build once; if it `may_fail`, the reply has the error."""
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
            raise PlayError(f"{follower} starts at {end}, not at the end of {from_segment}")
        return {"error": "NONE"} if may_fail else {}

    # -- brokers and the controller ----------------------------------------------------------------

    async def do_stop(self, brokers: list[str], clean: bool = True) -> None:
        """Stop brokers in order; return once the controller has fenced them."""
        assert clean
        self.isr_before = self.stage.in_sync
        for name in brokers:
            await self.stage.stop(name)
            await self.stage.until(partial(self.stage.is_fenced, name), f"{name} is fenced")

    async def do_crash(self, brokers: list[str], lost_from: dict[str, int] | None = None) -> None:
        """Cut the power; return once the controller has fenced the brokers."""
        stage = self.stage
        self.isr_before = stage.in_sync
        for number, name in enumerate(brokers):
            if number:
                await asyncio.sleep(BETWEEN_CRASHES_S)
            await stage.crash(name)
        for name, offset in (lost_from or {}).items():
            cut(stage.files_of(name), stage.data_folder(name), TOPIC, offset)
        await stage.until(lambda: all(map(stage.is_fenced, brokers)), "they are fenced")
        if len(brokers) > 1 and stage.in_sync != brokers[-1:]:
            self.tell("forced", f"the ISR is {brokers[-1]}, the last broker to fail")
            await self.interventions.decree(None, brokers[-1:])

    async def do_start(self, broker: str, wipe: bool = False) -> None:
        """Start a broker."""
        await self.stage.start(broker, wipe=wipe)

    async def do_elect(
        self, leader: str, epoch: int, isr: list[str], title: str, unclean: bool = False
    ) -> None:
        """Wait for the controller's election, or force one that it would not hold."""
        stage = self.stage
        why = DECREED.get((self.id, title))
        if why is None:
            found = {"unclean": leader not in self.isr_before}
            self.differences += facts_differ("the election", found, {"unclean": unclean})
        else:
            self.tell("forced", f"the controller would not hold this election: {why}")
            await self.interventions.decree(leader, isr)
        await stage.until(partial(stage.leads, leader), f"{leader} leads")
        begun = stage.decided.leader_epoch
        self.names.add_epoch(epoch, begun)
        if begun != epoch:
            self.tell(
                "epochs",
                f"{epoch} is {begun} in this cluster: a time without a leader is an epoch, too",
            )
        await stage.until(
            lambda: stage.in_sync == sorted(isr), f"the ISR is {' and '.join(sorted(isr))}"
        )
        if stage.is_tiered:
            await self.interventions.until_ready(leader)

    # -- logs and the remote tier ------------------------------------------------------------------

    async def do_roll(self, broker: str, at: int) -> None:
        """Check that a segment begins here; roll the log if its end is here."""
        inside = self.stage.inside(broker)
        if (await inside.look())["leo"] == at:
            await self.interventions.roll_if_due(broker)
        if at not in await inside.bases():
            raise PlayError(f"no segment of {broker} begins at {at}")

    async def do_delete_local(self, broker: str, before: int) -> None:
        """Let local retention delete what is below an offset."""
        await self.interventions.delete_local(broker, before)

    async def do_copy(self, broker: str, segment: str, start: int, end: int) -> None:
        """Let the leader copy one segment."""
        copied = await self.interventions.copy(broker, segment)
        found = {"start": copied.start_offset, "end": copied.end_offset}
        self.differences += facts_differ(segment, found, {"start": start, "end": end})

    async def do_run(self, task: str, broker: str) -> None:
        """Run a task once."""
        inside = self.stage.inside(broker)
        if task == "remote_partition_remover":
            await self.stage.until(inside.leads_metadata, f"{broker} leads the remote metadata")
            await self._until_left(broker)
        else:
            await self.interventions.until_ready(broker)
        await inside.run(task)
        if task == "copy":
            await self._name_what_was_begun(broker)

    async def _until_left(self, broker: str) -> None:
        """Wait until the broker has left the deletion to the remover."""

        async def is_left() -> bool:
            return not await self.stage.inside(broker).is_deleting(self.stage.topic_id.hex())

        await self.stage.until(is_left, f"{broker} leaves the deletion to others")

    async def _name_what_was_begun(self, broker: str) -> None:
        """Give the next symbol to each segment that no step names."""
        for segment in from_hex(await self.stage.inside(broker).known() or ()):
            if segment.segment_id not in self.names.segments:
                self.names.add_segment(f"uuid-{len(self.names.segments) + 1}", segment)

    async def do_rsm(
        self, mode: str, operation: str = "all", error: str = "", delay_ms: int = 0
    ) -> None:
        """Set the state of all brokers' stores; return once earlier requests are answered."""
        assert mode in ("up", "fail", "slow")
        for name in filter(self.stage.is_running, self.given["brokers"]):
            inside = self.stage.inside(name)
            await inside.order(operation, error, delay_ms / 1000)
            await self.stage.until(partial(_rests, inside), f"the store of {name} has answered")

    async def do_advance_time(self, ms: int) -> None:
        """Advance the brokers' clocks; tasks still run in their steps."""
        self.tell("then", "the brokers' clocks are advanced at once")
        for name in filter(self.stage.is_running, self.given["brokers"]):
            await self.stage.inside(name).move_clock(ms)

    async def do_partition_event(self, state: str, accepted: bool) -> None:
        """Write an event of the deleted partition."""
        name = next(filter(self.stage.is_running, self.given["brokers"]))
        await self._until_left(name)
        found = await self.stage.inside(name).partition_event(self.stage.topic_id.hex(), state)
        self.differences += facts_differ("the event", {"accepted": found}, {"accepted": accepted})

    async def do_metadata_lookup(self, epoch: int, offset: int, broker: str = "") -> Reply:
        """Look up the finished segment with an offset of an epoch, in the leader's metadata."""
        name = broker or await self._leader()
        await self.interventions.until_ready(name)
        found = await self.stage.inside(name).segment_for(self.names.cluster_epoch(epoch), offset)
        return {"segment": None if found is None else self.names.symbol(UUID(found))}

    async def _leader(self) -> str:
        actors: list[str] = list(self.given["brokers"])
        for name in actors:
            if await self.stage.leads(name):
                return name
        raise PlayError("no broker leads the partition")
