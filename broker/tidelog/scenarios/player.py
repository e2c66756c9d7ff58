"""Plays a vector on a live stage, step by step, and tells what happens.

Decisions of the controller are waited for, not made. Those that today's controller would never take
are decreed, and it is said so.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.peers import PeerError
from tidelog.scenarios.answers import Client
from tidelog.scenarios.compare import facts_differ, reply_differs, state_differs, unsound
from tidelog.scenarios.direction import Direction
from tidelog.scenarios.disk import cut
from tidelog.scenarios.given import Given
from tidelog.scenarios.look import Looker
from tidelog.scenarios.names import Names
from tidelog.scenarios.table import asked, paragraph, sentence, state_lines
from tidelog.scenarios.words import TOPIC, PlayError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.scenarios.stage import Stage

__all__ = ["Player", "play"]

Reply = dict[str, Any]

SETTLES_S_MAX = 60.0
LOOK_AGAIN_S = 0.05
BETWEEN_CRASHES_S = 1.0  # so that the controller misses in this order who crashed
STEP_S_MAX = 240.0
_UNSAID = ("error_code", "first_record")
DECREED = {
    # A broker that restarts leaves the ISR in a cluster of today, and is elected no more.
    ("kip101-s1-lost-message", "A is elected"): "A left the ISR when it stopped",
    ("kip405-s5-remote-divergence", "leadership moves to B"): "A leads well, and nobody asked",
}
"""Elections that are made by decree, and why they have to be: by vector and step."""


async def play(stage: Stage, document: dict[str, Any], say: Callable[[str], None]) -> str:
    """Play a vector up to the first step that differs from it; that step and the differences, "" if
    there are none.

    `say` is given the lines of the account.
    """
    for line in _title_lines(document):
        say(line)
    async with stage:
        return await Player(stage, document, say).play()


def _title_lines(document: dict[str, Any]) -> list[str]:
    lines = paragraph(document["title"])
    for key, word in (("sources", "source"), ("notes", "note"), ("deviations", "deviates")):
        for text in document.get(key, ()):
            lines += paragraph(f"{word:<9} {text}", "  ", " " * 12)
    lines += paragraph(
        "legend    epochs 1@3: leader epoch 1 begins at offset 3. Records [1] 3 x, 4 y: offsets and"
        " values of leader epoch 1. Ends are exclusive. * is before what a step has changed.",
        "  ",
        " " * 12,
    )
    return lines


def _said(step: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in step["do"].items() if key != "action"}


class Player:
    """Of one play. An action of a step is done by the method of its name with `do_` before it."""

    def __init__(self, stage: Stage, document: dict[str, Any], say: Callable[[str], None]) -> None:
        self.stage, self.say = stage, say
        self.given, self.steps, self.id = document["given"], document["steps"], document["id"]
        self.now_ms = stage.clock.wall_ms()
        self.names = Names()
        self.looker = Looker(stage, self.names)
        self.client = Client(stage, self.names, self.now_ms)
        self.direction = Direction(stage, self.names, self.client, document, self.now_ms)
        self.shown: dict[str, Any] | None = None
        self.told: dict[str, Reply] = {}  # by follower: what its leader said last
        self.isr_before: list[str] = []  # somebody stopped or crashed
        self.differences: list[str] = []  # of this step

    async def play(self) -> str:
        """To the first step that differs; that step and the differences, "" if there are none."""
        self.say("")
        self.say(f"0. The state that is given, of brokers {' and '.join(self.given['brokers'])}")
        keys = ("brokers", "isr", "remote", "rlmm")
        expected = {key: self.given[key] for key in keys if key in self.given}
        if not await self._step(self._set_up(), {}, expected):
            return self._told("in what is given")
        for number, step in enumerate(self.steps, 1):
            name = step.get("name", "")
            self.say("")
            for line in paragraph(f"{number}. {name}", "", "   "):
                self.say(line)
            self._tell("asked", asked(step["do"]["action"], _said(step)))
            work = getattr(self, f"do_{step['do']['action']}")(**self.arguments(step))
            if not await self._step(work, step.get("reply", {}), step.get("expect", {})):
                return self._told(f"in step {number}, {name}")
            if "note" in step:
                self._tell("note", step["note"])
        return ""

    def arguments(self, step: dict[str, Any]) -> dict[str, Any]:
        """What the method of a step's action is given."""
        arguments, reply = _said(step), step.get("reply", {})
        match step["do"]["action"]:
            case "elect":
                arguments["title"] = step.get("name", "")
            case "follower_fetch":
                arguments["rows"] = reply.get("records", [])
            case "build_aux_state":
                arguments["may_fail"] = "error" in reply
        return arguments

    def _told(self, where: str) -> str:
        return f"{where}: {'; '.join(self.differences)}"

    async def _set_up(self) -> None:
        copied = "; what is remote, the leader has copied" if self.stage.is_tiered else ""
        self._tell(
            "made",
            f"leader epochs and the ISR by decree, records written as followers write them{copied}",
        )
        given = Given(self.stage, self.direction, self.names, self.given, self.now_ms)
        await given.set_up()

    async def _step(self, work: Any, reply: Reply, expected: dict[str, Any]) -> bool:
        """Whether it went as it should."""
        try:
            async with asyncio.timeout(STEP_S_MAX):
                answer: Reply = await work or {}
                if answer:
                    shown = {key: value for key, value in answer.items() if key not in _UNSAID}
                    self._tell("answered", sentence(shown))
                self.differences += reply_differs(answer, reply)
                state = await self._settled(expected)
        except TimeoutError:
            self.differences.append(f"it is not over after {STEP_S_MAX:g} s")
        except (PlayError, PeerError) as error:
            self.differences.append(str(error))
        else:
            for line in state_lines(state, self.shown):
                self.say(line)
            self.shown = state
            self.differences += self.differs(state, expected)
        for difference in self.differences:
            self._tell("DIFFERS", difference)
        return not self.differences

    async def _settled(self, expected: dict[str, Any]) -> dict[str, Any]:
        """The state once it is as expected, or will not become so any more."""
        if self.stage.is_tiered:
            await self.direction.until_agreed(self.given["brokers"])
        loop = asyncio.get_running_loop()
        until = loop.time() + SETTLES_S_MAX
        while True:
            await asyncio.sleep(LOOK_AGAIN_S)
            state = await self.looker.state()
            if loop.time() > until or not self.differs(state, expected):
                return state

    def differs(self, state: dict[str, Any], expected: dict[str, Any]) -> list[str]:
        """A sentence for each difference, and for each rule of every state that is broken."""
        return [*state_differs(state, expected), *unsound(state)]

    def _tell(self, word: str, text: str) -> None:
        for line in paragraph(f"{word:<9} {text}", "   ", " " * 13):
            self.say(line)

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
        self,
        broker: str,
        offset: int,
        last_fetched_epoch: int = -1,
        current_leader_epoch: int = -1,
    ) -> Reply:
        """One fetch; of which tier and segments, too."""
        if not self.stage.is_tiered:
            return await self.client.fetch(broker, offset, last_fetched_epoch, current_leader_epoch)
        inside = self.stage.inside(broker)
        await inside.forget_reads([segment_id.hex() for segment_id in self.names.segments])
        reply = await self.client.fetch(broker, offset, last_fetched_epoch, current_leader_epoch)
        if reply["records"]:
            reads = [self.names.symbol(bytes.fromhex(each)) for each in await inside.reads()]
            reply["from"] = "remote" if reads else "local"
            reply["segments"] = reads
            reply["first_record"] = reply["records"][0]
        return reply

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

    # -- followers ---------------------------------------------------------------------------------

    async def do_follower_fetch(
        self, follower: str, leader: str, rows: list[list[Any]], **asked: int
    ) -> Reply:
        """One fetch; several where one segment has not all of the `rows` that are to come."""
        await self.stage.until(partial(self.stage.leads, leader), f"{leader} leads")
        reply = await self._fetch(follower, asked)
        records = got = reply["records"]
        while got and len(records) < len(rows) and rows[: len(records)] == records:
            self._tell("then", "one fetch reads of one segment: the follower fetches again")
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
            raise PlayError(f"{follower} begins at {end}, where {from_segment} does not end")
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
            self._tell("by decree", f"the ISR is {brokers[-1]}: it was the last to be missed")
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
            self._tell("by decree", f"the controller would not do it: {why}")
            await self.direction.decree(leader, isr)
        await stage.until(partial(stage.leads, leader), f"{leader} leads")
        begun = stage.decided.leader_epoch
        self.names.add_epoch(epoch, begun)
        if begun != epoch:
            self._tell(
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
        """See that a segment begins here."""
        if at not in await self.stage.inside(broker).bases():
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
        await self.direction.until_ready(broker)
        await self.stage.inside(broker).run(task)

    async def do_metadata_lookup(self, epoch: int, offset: int, broker: str = "") -> Reply:
        """Which finished segment has an offset of an epoch, as the leader knows it."""
        name = broker or await self._leader()
        await self.direction.until_ready(name)
        found = await self.stage.inside(name).segment_for(self.names.cluster_epoch(epoch), offset)
        return {"segment": None if found is None else self.names.symbol(bytes.fromhex(found))}

    async def _leader(self) -> str:
        actors: list[str] = list(self.given["brokers"])
        for name in actors:
            if await self.stage.leads(name):
                return name
        raise PlayError("nobody leads")
