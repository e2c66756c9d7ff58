"""Starts scrubs: every log.scrub.interval.ms, and soon after a read meets damage.

Owns the tasks. `healer.py` does the work. It is imported when it is first needed, because most test
brokers stop before that.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.healing.transaction_proofs import TransactionProofs

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.config.broker import BrokerConfig
    from tidelog.healing.healer import Healer
    from tidelog.network.peers import PeerChannel
    from tidelog.replication.partition import Partition
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Runtime
    from tidelog.tiered.tier import RemoteTier
    from tidelog_storage.types import TopicPartition

__all__ = ["Healing"]

FIRST_PASS_S = 600.0  # after the start, or sooner if the interval is shorter
SUSPECTS_S = 1.0  # between two looks at what cannot be right
AGAIN_S_MAX = 3600.0  # between two attempts to repair a partition
REPAIR_FOLDER = "remote-log-repair"  # in the first log directory


class Healing:
    """The tasks of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        replicas: ReplicaManager,
        new_channel: Callable[[str, int], PeerChannel] | None,
        tier: RemoteTier | None,
    ) -> None:
        """Start the tasks. `new_channel` is None for a lone broker, `tier` without one."""
        self._config = config
        self._runtime = runtime
        self._replicas = replicas
        self._new_channel = new_channel
        self._tier = tier
        self._healer: Healer | None = None
        self._proofs = TransactionProofs(runtime.executor, replicas)
        self._suspects: dict[TopicPartition, None] = {}
        self._remote_suspects: dict[TopicPartition, None] = {}
        self._has_suspects = asyncio.Event()
        self._delays_s: dict[TopicPartition, float] = {}  # till those not repaired are tried again
        replicas.on_suspect = self.suspect
        if tier is not None:
            tier.on_damage = self.suspect_remote
        for key in sorted(replicas.suspects):
            self.suspect(key)
        replicas.suspects.clear()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._look_at_suspects(), name="healing suspects")]
        if config.log_scrub_interval_ms > 0:
            self._tasks.append(loop.create_task(self._repeat(), name="healing scrub"))

    @property
    def healer(self) -> Healer:
        """The scrubber, created when it is first needed."""
        if self._healer is None:
            from tidelog.healing.healer import Healer  # noqa: PLC0415 - see above
            from tidelog.healing.peer_copies import PeerCopies  # noqa: PLC0415

            peers = remote = None
            if self._new_channel is not None:
                peers = PeerCopies(self._new_channel, self._replicas)
            if self._tier is not None:
                from tidelog.healing.remote_copies import RemoteCopies  # noqa: PLC0415

                remote = RemoteCopies(
                    self._tier,
                    peers,
                    runtime=self._runtime,
                    folder=f"{self._replicas.logs.log_dirs[0]}/{REPAIR_FOLDER}",
                    bytes_per_second=self._config.log_scrub_io_max_bytes_per_second,
                )
            self._healer = Healer(
                bytes_per_second=self._config.log_scrub_io_max_bytes_per_second,
                runtime=self._runtime,
                replicas=self._replicas,
                peers=peers,
                remote=remote,
            )
        return self._healer

    async def stop(self) -> None:
        """Stop now; repairs that were not swapped in are dropped."""
        self._replicas.on_suspect = None
        if self._tier is not None:
            self._tier.on_damage = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self._proofs.stop()
        if self._healer is not None:
            self._healer.close()

    def suspect(self, key: TopicPartition) -> None:
        """Check the partition soon: a read has met damage."""
        self._suspects[key] = None
        self._has_suspects.set()

    def suspect_remote(self, key: TopicPartition) -> None:
        """Check the partition's suspect remote segments soon."""
        self._remote_suspects[key] = None
        self._has_suspects.set()

    async def _repeat(self) -> None:
        interval_s = self._config.log_scrub_interval_ms / 1000
        await self._runtime.work.sleep(min(interval_s, FIRST_PASS_S))
        while True:
            await self.healer.scrub_all()
            for partition in self._replicas.partitions():
                self._try_again(partition)
            await self._runtime.work.sleep(interval_s)

    async def _look_at_suspects(self) -> None:
        while True:
            await self._has_suspects.wait()
            self._has_suspects.clear()
            suspects, self._suspects = self._suspects, {}
            remote, self._remote_suspects = self._remote_suspects, {}
            for key in suspects | remote:
                partition = self._replicas.hosted(key)
                if partition is not None:
                    if key in suspects:
                        await self.healer.scrub_guarded(partition)
                    await self.healer.look_at_remote(partition)
                    self._try_again(partition)
            await asyncio.sleep(SUSPECTS_S)

    def _try_again(self, partition: Partition) -> None:
        """Schedule another attempt: a copy may appear when another replica starts or catches up."""
        key = partition.topic_partition
        is_alone = self._new_channel is None and self._tier is None
        if is_alone or not self.healer.has_damages(partition):
            self._delays_s.pop(key, None)
            return
        delay_s = self._delays_s.get(key, SUSPECTS_S)
        self._delays_s[key] = min(2 * delay_s, AGAIN_S_MAX)
        again = self.suspect if partition.log.damages else self.suspect_remote
        asyncio.get_running_loop().call_later(delay_s, again, key)
