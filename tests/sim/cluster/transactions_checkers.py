"""What must hold of transactions: now and then, and when all of them are over.

The bytes on the disks are read as the record format says, by nobody's word but theirs: which
transactions are open in a log, which are committed, and in which order their records lie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.cluster.transactions_ledger import ABORTED, COMMITTED, OPEN, Attempt
from sim.cluster.transactions_reader import Found
from sim.history import require
from sim.raw_logs import DATA, read_log
from tidelog.cluster.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from tidelog.coordinators.transactions.records import decode
from tidelog.coordinators.transactions.states import COMPLETE, TransactionState
from tidelog.coordinators.transactions.transaction import NO_EPOCH
from tidelog_protocol.records import ControlType, control_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sim.raw_logs import RawBatch
    from tidelog.coordinators.transactions.coordinator import TransactionCoordinator
    from tidelog.replication.partition import Partition
    from tidelog.server import BrokerServer
    from tidelog.simulation.machine import Machine

OVER = COMPLETE | {TransactionState.EMPTY}


class LogOfTransactions:
    """What batches say of transactions."""

    def __init__(self, batches: Sequence[RawBatch]) -> None:
        self.open: dict[int, int] = {}  # first offsets by producer id
        self.committed: list[Found] = []  # records, in the order of their offsets
        self.aborted: list[Found] = []
        pending: dict[int, list[Found]] = {}
        for batch in batches:
            header = batch.header
            if header.is_control:
                marker = batch.records()
                kind = control_type(marker[0]) if marker else None  # cleaned, with its records
                self.open.pop(header.producer_id, None)
                ended = self.committed if kind == ControlType.COMMIT else self.aborted
                ended += pending.pop(header.producer_id, [])
            elif header.is_transactional:
                self.open.setdefault(header.producer_id, header.base_offset)
                pending.setdefault(header.producer_id, []).extend(
                    Found(record.offset, record.value or b"") for record in batch.records()
                )
        self.committed.sort()

    @property
    def first_open(self) -> int | None:
        """Where the oldest open transaction begins."""
        return min(self.open.values(), default=None)


def coordinator_of(server: BrokerServer) -> TransactionCoordinator | None:
    """The broker's coordinator of transactions, if one is in use."""
    return server.parts.transactions.coordinator_in_use if server.is_built else None


class TransactionCheckers:
    """All of them; `world` has the machines, `world.transactions` the ledger and the topics."""

    def __init__(self, world: Any) -> None:
        self.world = world

    def _replicas(self, topics: set[str]) -> Iterator[tuple[int, Machine, Partition]]:
        for node_id, server in self.world.machines.servers():
            if not server.is_built:
                continue
            for partition in server.replicas.partitions():
                if partition.topic_partition.topic in topics:
                    yield node_id, self.world.machines.by_id[node_id], partition

    # -- now and then ------------------------------------------------------------------------------

    def check_last_stable_offsets(self) -> None:
        """Nobody's last stable offset is beyond an open transaction."""
        topics = {*self.world.transactions.topics, GROUP_METADATA_TOPIC}
        for node_id, machine, partition in self._replicas(topics):
            log: Any = partition.log
            raw = read_log(machine.disk, log.folder)
            if any(raw.torn.values()):
                continue  # rotten: what lies behind cannot be read
            first = LogOfTransactions(raw.batches()).first_open
            require(
                first is None or log.last_stable_offset <= first,
                f"{log!r} of {node_id}: the last stable offset is {log.last_stable_offset}, and a"
                f" transaction is open at {first}",
            )

    # -- when faults have stopped ------------------------------------------------------------------

    def unsettled(self) -> str | None:
        """A transaction that is not over; None if all are."""
        unready: str | None = self.world.unready()
        if unready is not None:
            return unready
        for node_id, server in self.world.machines.servers():
            coordinator = coordinator_of(server)
            if coordinator is None:
                continue
            for shard in coordinator.led.shards.values():
                if shard.is_loading:
                    return f"{TRANSACTION_STATE_TOPIC}-{shard.index} is loading on {node_id}"
                for transaction in shard.transactions.values():
                    if transaction.value.state not in OVER or transaction.pending is not None:
                        return f"{transaction} on {node_id}"
        topics = {*self.world.transactions.topics, GROUP_METADATA_TOPIC}
        for node_id, _, partition in self._replicas(topics):
            log: Any = partition.log
            if log.producers.first_unstable_offset is not None:
                return (
                    f"{log!r} of {node_id}: a transaction is open at"
                    f" {log.producers.first_unstable_offset}"
                )
        return self._unstable_group()

    def _unstable_group(self) -> str | None:
        for node_id, server in self.world.machines.servers():
            for shard in server.parts.groups.led.active() if server.is_built else ():
                if shard.pending:
                    return f"offsets wait for {shard.pending._producers} on {node_id}"
        return None

    # -- the end -----------------------------------------------------------------------------------

    def check(self) -> None:
        """Transactions are whole or absent, in order; copies are the source; memory is the log."""
        self.check_last_stable_offsets()
        logs: dict[tuple[str, int], LogOfTransactions] = {}
        for _, machine, partition in self._replicas(set(self.world.transactions.topics)):
            name = (partition.topic_partition.topic, partition.topic_partition.partition)
            log = LogOfTransactions(self.world.tier.batches(machine, partition))
            require(not log.open, f"{partition.log!r}: {log.open} are open")
            logs[name] = log
        self._check_attempts(logs)
        self._check_order(logs)
        self._check_copies(logs)
        self._check_memory()

    def _check_attempts(self, logs: dict[tuple[str, int], LogOfTransactions]) -> None:
        seen: dict[Attempt, set[bytes]] = {}
        for name, log in logs.items():
            values = [each.value for each in log.committed]
            require(len(values) == len(set(values)), f"{name}: committed records are doubled")
            for value in values:
                seen.setdefault(self.world.transactions.ledger.of(value), set()).add(value)
        for attempt in self.world.transactions.ledger.attempts:
            wanted = {value for values in attempt.values.values() for value in values}
            found = seen.get(attempt, set())
            if attempt.outcome == COMMITTED:
                require(found == wanted, f"{attempt}: {len(found)} of {len(wanted)} records")
            elif attempt.outcome in (ABORTED, OPEN):
                require(not found, f"{attempt}: {sorted(found)[:2]} are committed")
            else:
                require(
                    found in (set(), wanted), f"{attempt}: {len(found)} of {len(wanted)} records"
                )

    def _check_order(self, logs: dict[tuple[str, int], LogOfTransactions]) -> None:
        for name, log in logs.items():
            last: dict[bytes, tuple[int, int]] = {}
            for each in log.committed:
                writer, number, count, _ = each.value.split(b"/")
                place = (int(number), int(count))
                require(
                    place > last.get(writer, (0, 0)),
                    f"{name}: {each.value[:40]!r} at {each.offset} comes after {last.get(writer)}",
                )
                last[writer] = place

    def _check_copies(self, logs: dict[tuple[str, int], LogOfTransactions]) -> None:
        """Every group has copied every committed record of the source once, in order."""
        workload = self.world.transactions
        for group, names in workload.copies:
            writers = {name.encode() for name in names}
            for index, source in enumerate(workload.sources):
                wanted = [found.offset for found in logs[source.topic.name, index].committed]
                target = workload.targets[index % len(workload.targets)]
                words = [
                    found.value.split(b"/")
                    for found in logs[target.topic.name, target.index].committed
                ]
                copied = [
                    int(text.split(b":")[1])
                    for writer, _, _, text in words
                    if writer in writers and int(text.split(b":")[0]) == index
                ]
                if copied != wanted:
                    lost, more = set(wanted) - set(copied), len(copied) - len(set(copied))
                    require(
                        False,
                        f"{group} of {source}: {len(copied)} copies of {len(wanted)}, not"
                        f" {sorted(lost)[:5]}, {more} doubled",
                    )
                self.world.history.count("records copied", len(copied))

    def _check_memory(self) -> None:
        """What a coordinator knows is what its log says."""
        for node_id, server in self.world.machines.servers():
            coordinator = coordinator_of(server)
            if coordinator is None:
                continue
            machine = self.world.machines.by_id[node_id]
            for shard in coordinator.led.active():
                folder = f"{DATA}/{TRANSACTION_STATE_TOPIC}-{shard.index}"
                newest: dict[str, Any] = {}
                end = 0
                for batch in read_log(machine.disk, folder).batches():
                    if batch.header.base_offset > end:
                        self.world.history.count("compacted away from coordinators' logs")
                    end = batch.header.last_offset + 1
                    for record in () if batch.header.is_control else batch.records():
                        change = decode(record.key, record.value)
                        if change is not None:
                            newest[change.transactional_id] = change.value
                lost = {name for name, value in newest.items() if value} - set(shard.transactions)
                require(not lost, f"{node_id} does not know of {lost}, and its log does")
                for transaction in shard.transactions.values():
                    value = transaction.value
                    logged = newest.get(transaction.transactional_id)
                    if transaction.pending is None and value.producer_epoch != NO_EPOCH:
                        require(
                            logged == value._replace(last_producer_epoch=NO_EPOCH),
                            f"{transaction} on {node_id}; its log says {logged}",
                        )
