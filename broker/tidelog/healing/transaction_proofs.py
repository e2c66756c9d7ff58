"""Compares transaction indexes with their records when a read needs one that may be wrong.

A read_committed Fetch that needs the index of a large segment, for the first time after a start,
answers nothing yet; when the index is known to be right, the Fetch is woken.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog_storage.transaction_proof import TransactionProof

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Executor
    from tidelog_storage.segment import Segment
    from tidelog_storage.types import TopicPartition

__all__ = ["TransactionProofs"]

_log = logging.getLogger("tidelog.healing")


class TransactionProofs:
    """The comparisons of one broker, one at a time for a partition."""

    def __init__(self, executor: Executor, replicas: ReplicaManager) -> None:
        self._executor = executor
        self._replicas = replicas
        self._under_way: dict[TopicPartition, asyncio.Task[None]] = {}
        self._failed: set[Segment] = set()
        replicas.rules.prove = self.begin

    def begin(self, partition: Partition, segment: Segment) -> bool:
        """Start to compare; False if that failed before: then the read finds the reason."""
        key = partition.topic_partition
        if segment in self._failed:
            return False
        if key not in self._under_way:
            task = asyncio.get_running_loop().create_task(
                self._prove(partition, segment), name=f"transactions of {key}"
            )
            self._under_way[key] = task
        return True

    async def _prove(self, partition: Partition, segment: Segment) -> None:
        key = partition.topic_partition
        proof = TransactionProof(partition.log, segment)
        try:
            proof.settle(await self._executor.run(proof.run))
        except Exception as error:  # noqa: BLE001 - the next read meets the same failure
            _log.info("%s: transactions of %s: %s", key, segment, error)
            self._failed.add(segment)
        finally:
            del self._under_way[key]
        self._replicas.fetch_purgatory.check(key)

    async def stop(self) -> None:
        """Cancel all comparisons."""
        self._replicas.rules.prove = None
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
