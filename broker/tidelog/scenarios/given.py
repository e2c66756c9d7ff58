"""Brings a fresh cluster into the state that a vector begins with.

Elections by decree begin the leader epochs; the records are written into the logs as followers
write them; what is remote is copied there by the leader.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.scenarios.direction import TIERED_TOPIC
from tidelog.scenarios.disk import checkpointed
from tidelog.scenarios.stage import TOPIC
from tidelog_protocol.records import Record, build_batch

if TYPE_CHECKING:
    from tidelog.scenarios.direction import Direction
    from tidelog.scenarios.look import Names
    from tidelog.scenarios.stage import Stage

__all__ = ["Given"]


class Given:
    """The beginning of one play."""

    def __init__(
        self, stage: Stage, direction: Direction, names: Names, given: dict[str, Any], now_ms: int
    ) -> None:
        self._stage = stage
        self._direction = direction
        self._names = names
        self._given = given
        self._now_ms = now_ms
        self._brokers: dict[str, dict[str, Any]] = given["brokers"]
        (self._leader,) = (n for n, facts in self._brokers.items() if facts["role"] == "leader")

    async def set_up(self) -> None:
        """All that `given` says."""
        stage, leader, isr = self._stage, self._leader, self._given["isr"]
        followers = sorted(name for name in self._brokers if name != leader)
        configs = {"retention.ms": -1, **self._given.get("config", {})}
        if stage.is_tiered:
            configs |= TIERED_TOPIC
        await stage.create_play("".join((leader, *followers)), configs)
        for epoch in range(self._brokers[leader]["leader_epoch"] + 1):
            await self._lead(epoch)
        for name in followers:
            for row in self._brokers[name]["records"]:
                self._write(name, row)
        for name, facts in self._brokers.items():
            stage.partition(name).log.set_high_watermark(facts["hw"])
        if stage.in_sync != sorted(isr):
            await self._direction.decree(None, isr)
        self._tell_leader()
        start = self._brokers[leader]["local_start"]
        if start > stage.partition(leader).log.local_log_start_offset:
            await self._direction.delete_local(leader, start)
        for name in self._brokers:
            await stage.until(
                partial(self._is_checkpointed, name),
                f"the high watermark of {name} is on its disk",
            )

    async def _lead(self, epoch: int) -> None:
        """An epoch of the leader, with its records; segments that are to be remote are copied when
        they end: later there would be others that could be copied."""
        if epoch:
            await self._direction.decree(self._leader, self._given["isr"])
        self._names.add_epoch(epoch, self._stage.decided.leader_epoch)
        copies = {each["end"] + 1: each["id"] for each in self._given.get("remote", [])}
        for row in self._rows():
            if row[2] == epoch:
                self._write(self._leader, row)
                symbol = copies.get(row[0] + 1)
                if symbol is not None:
                    await self._copy(symbol)

    def _rows(self) -> list[list[Any]]:
        """The records of the leader, those that will be remote only with them."""
        rows = {row[0]: row for each in self._given.get("remote", []) for row in each["records"]}
        rows |= {row[0]: row for row in self._brokers[self._leader]["records"]}
        return [rows[offset] for offset in sorted(rows)]

    def _write(self, name: str, row: list[Any]) -> None:
        """A record, in a batch of its own."""
        offset, value, epoch = row
        record = Record(offset, self._now_ms, None, value.encode())
        data = build_batch([record], base_offset=offset, leader_epoch=epoch)
        self._direction.roll_if_due(name)
        log = self._stage.partition(name).log
        log.append_as_follower(memoryview(bytearray(data)), leader_epoch=epoch, now_ms=self._now_ms)

    async def _copy(self, symbol: str) -> None:
        log = self._stage.partition(self._leader).log
        self._direction.roll_if_due(self._leader)
        log.set_high_watermark(log.log_end_offset)
        await self._direction.copy(self._leader, symbol)

    def _tell_leader(self) -> None:
        """Where its followers are, as if they had fetched."""
        remotes = self._stage.partition(self._leader).remotes
        for name, log_end in self._brokers[self._leader].get("remote_leo", {}).items():
            remotes[self._stage.ids[name]].log_end_offset = log_end

    def _is_checkpointed(self, name: str) -> bool:
        on_disk = checkpointed(self._stage.files, self._stage.data_folder(name), TOPIC)
        return on_disk == self._stage.partition(name).log.high_watermark
