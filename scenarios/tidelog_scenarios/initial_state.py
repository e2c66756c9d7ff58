"""Brings a new cluster into the state at the beginning of a vector.

Forced elections begin the leader epochs. Records are appended as followers append them. The leader
copies the remote segments.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog_scenarios.disk import checkpointed
from tidelog_scenarios.interventions import TIERED_TOPIC
from tidelog_scenarios.plan import topic_settings
from tidelog_scenarios.vocabulary import TOPIC

if TYPE_CHECKING:
    from tidelog_scenarios.interventions import Interventions
    from tidelog_scenarios.names import Names
    from tidelog_scenarios.stage import Stage

__all__ = ["InitialState"]


class InitialState:
    """The beginning of one play."""

    def __init__(
        self,
        stage: Stage,
        interventions: Interventions,
        names: Names,
        given: dict[str, Any],
        now_ms: int,
    ) -> None:
        self._stage = stage
        self._interventions = interventions
        self._names = names
        self._given = given
        self._now_ms = now_ms
        self._brokers: dict[str, dict[str, Any]] = given["brokers"]
        (self._leader,) = (n for n, facts in self._brokers.items() if facts["role"] == "leader")

    async def set_up(self) -> None:
        """Set up the whole state."""
        stage, leader, isr = self._stage, self._leader, self._given["isr"]
        followers = sorted(name for name in self._brokers if name != leader)
        configs = {"retention.ms": -1, **topic_settings(self._given)}
        if stage.is_tiered:
            configs |= TIERED_TOPIC
        await stage.create_play("".join((leader, *followers)), configs)
        for epoch in range(self._brokers[leader]["leader_epoch"] + 1):
            await self._lead(epoch)
        for name in followers:
            await self._write(name, self._rows(name))
        for name, facts in self._brokers.items():
            await stage.inside(name).set_high_watermark(facts["hw"])
        if stage.in_sync != sorted(isr):
            await self._interventions.decree(None, isr)
        await self._tell_leader()
        for name, facts in self._brokers.items():
            if facts["local_start"]:
                await self._leave_to_tier(name, facts["local_start"])
        for name in self._brokers:
            await stage.until(
                partial(self._is_checkpointed, name),
                f"the high watermark of {name} is on its disk",
            )

    async def _lead(self, epoch: int) -> None:
        """Begin an epoch of the leader and write its records. A remote segment is copied as soon as
        it ends; later the leader would copy others, too."""
        if epoch:
            await self._interventions.decree(self._leader, self._given["isr"])
        self._names.add_epoch(epoch, self._stage.decided.leader_epoch)
        copies = {each["end"] + 1: each["id"] for each in self._given.get("remote", [])}
        for row in self._rows(self._leader):
            if row[2] == epoch:
                await self._write(self._leader, [row])
                symbol = copies.get(row[0] + 1)
                if symbol is not None:
                    await self._copy(symbol)

    def _rows(self, name: str) -> list[list[Any]]:
        """Return the records of a broker, with those that only the remote tier will keep."""
        own = self._brokers[name]
        rows = {row[0]: row for each in self._given.get("remote", []) for row in each["records"]}
        end = own["leo"] if name == self._leader else own["local_start"]
        rows = {offset: row for offset, row in rows.items() if offset < end}
        rows |= {row[0]: row for row in own["records"]}
        return [rows[offset] for offset in sorted(rows)]

    async def _write(self, name: str, rows: list[list[Any]]) -> None:
        inside = self._stage.inside(name)
        await inside.write(rows, self._interventions.rolls[name], self._now_ms)

    async def _copy(self, symbol: str) -> None:
        inside = self._stage.inside(self._leader)
        await self._interventions.roll_if_due(self._leader)
        await inside.set_high_watermark((await inside.look())["leo"])
        await self._interventions.copy(self._leader, symbol)

    async def _leave_to_tier(self, name: str, start: int) -> None:
        """Delete a broker's records below `start` once it knows that they are remote."""
        inside = self._stage.inside(name)

        async def knows() -> bool:
            await inside.wake()
            found = await inside.look()
            highest: int = found.get("copied_to", -1)  # of the leader
            highest = max(highest, found.get("highest_remote", -1))
            return highest >= start - 1

        await self._stage.until(knows, f"{name} knows the remote segments")
        await self._interventions.delete_local(name, start)

    async def _tell_leader(self) -> None:
        """Set the leader's log end offsets of its followers, as if they had fetched."""
        ends = self._brokers[self._leader].get("remote_leo", {})
        known = {str(self._stage.ids[name]): end for name, end in ends.items()}
        await self._stage.inside(self._leader).tell_ends(known)

    async def _is_checkpointed(self, name: str) -> bool:
        stage = self._stage
        on_disk = checkpointed(stage.files_of(name), stage.data_folder(name), TOPIC)
        return bool(on_disk == (await stage.inside(name).look())["hw"])
