"""Three isolated brokers, four clients' producers and consumers, and faults that a seed chooses."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from compat.chaos.bad_disk import BadDisk
from compat.chaos.load import (
    Load,
    aiokafka_command,
    go_command,
    java_command,
    librdkafka_command,
)
from compat.chaos.observed import add_polls, add_sends, add_transactions, longest_gap_s
from compat.chaos.replicas import check_replicas
from compat.eventually import eventually
from histories.calls import ClientHistory
from histories.judge import anomalies
from tidelog_bench.peers.tidelog import TidelogCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from histories.calls import Anomaly

TOPIC, TRANSACTIONS = "chaos", "chaos-transactions"
PARTITIONS = 6
NODES = (1, 2, 3)
RATE = 300  # records a second of each producer
WRITERS = 2  # of transactions
SESSION_S = 1.5
SETTINGS = {
    "broker.session.timeout.ms": f"{SESSION_S * 1000:.0f}",
    "broker.heartbeat.interval.ms": "300",
    # A broker that has just started syncs something within seconds, and not after half a minute.
    "log.initial.task.delay.ms": "500",
}
WAIT_S_MAX = 60.0
DISK_S_MAX = 20.0  # until a broker notices what its disk does
PROGRESS = 20  # more records of every partition, from each producer
KINDS = ("kill", "pause", "restart", "fsync fails", "disk full")
OF_DISKS = ("fsync fails", "disk full")


class Round(NamedTuple):
    """One fault. `is_calm`: all replicas are in sync before. `goes_on`: acknowledgements of every
    partition are awaited while the broker is away; they can't be where the round is not calm, nor
    with a paused broker (clients wait for it for half a minute, as they do with Apache Kafka)."""

    kind: str
    node_id: int
    is_calm: bool
    goes_on: bool
    pause_s: float

    def __str__(self) -> str:
        words = [self.kind, f"broker {self.node_id}"]
        words += [f"for {self.pause_s:.1f} s"] if self.kind == "pause" else []
        words += ["" if self.is_calm else "(before all are in sync)"]
        words += ["and wait for acknowledgements without it"] if self.goes_on else []
        return " ".join(filter(None, words))


class Figures(NamedTuple):
    """What a run was, for people."""

    seed: int
    kinds: Mapping[str, int]
    acknowledged: Mapping[str, int]
    transactions: Mapping[str, int]
    reads: int
    longest_gap_s: Mapping[str, float]
    wall_s: float

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items()))
        each = ", ".join(f"{count} by {name}" for name, count in self.acknowledged.items())
        gaps = ", ".join(f"{name} {gap:.1f} s" for name, gap in self.longest_gap_s.items())
        ends = ", ".join(f"{count} {end}" for end, count in sorted(self.transactions.items()))
        return (
            f"seed {self.seed}: {sum(self.kinds.values())} rounds ({kinds}),"
            f" {sum(self.acknowledged.values())} records acknowledged ({each}), read"
            f" {self.reads} times; transactions: {ends}; longest time without an"
            f" acknowledgement: {gaps}; {self.wall_s:.0f} s"
        )


def planned(seed: int, rounds: int, kinds: Sequence[str] = KINDS) -> list[Round]:
    """The faults of a seed, every kind of them as often as the others."""
    rng = random.Random(seed)
    each = list(kinds) * (rounds // len(kinds) + 1)
    rng.shuffle(each)
    if rounds <= len(kinds):
        each = sorted(set(each), key=each.index)
    plan = []
    for kind in each[:rounds]:
        is_calm = kind in OF_DISKS or rng.random() < 0.75
        goes_on = is_calm and kind != "pause" and rng.random() < 0.7
        # Some are over before the session is: clients alone may notice.
        pause_s = SESSION_S * rng.choice((0.4, 1.5, 2.5))
        plan.append(Round(kind, rng.choice(NODES), is_calm, goes_on, pause_s))
    return plan


def run_chaos(
    folder: Path,
    seed: int,
    rounds: int,
    say: Callable[[str], None],
    until_s: float | None = None,
) -> Figures:
    """All of it; AssertionError with the ends of the brokers' logs if something is wrong.

    No further round begins `until_s` seconds after the start. Where there is no C compiler, disks
    do not fail, and a line says so.
    """
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    kinds = KINDS
    if not BadDisk.can_be_built():
        kinds = tuple(kind for kind in KINDS if kind not in OF_DISKS)
        say("there is no C compiler: disks do not fail")
    done: Counter[str] = Counter()
    cluster = TidelogCluster(folder / "cluster", SETTINGS)
    loads: list[Load] = []
    try:
        cluster.folder.mkdir()
        rig = _Rig(cluster, loads, BadDisk(folder) if kinds is KINDS else None)
        rig.start_brokers()
        commands = {
            "librdkafka": librdkafka_command(),
            "java": java_command(),
            "franz-go": go_command(),
            "aiokafka": aiokafka_command(),
        }
        for name, command in commands.items():
            loads.append(Load(name, command, folder))
        rig.start_loads(seed)
        for number, fault in enumerate(planned(seed, rounds, kinds), 1):
            if until_s is not None and time.monotonic() - began > until_s:
                break
            say(f"{time.monotonic() - began:6.1f} s  round {number}: {fault}")
            rig.round(fault)
            done[fault.kind] += 1
        figures = rig.finish()
    except Exception as error:
        error.add_note(f"seed {seed}\n{_tails(cluster, loads)}")
        raise
    finally:
        for load in loads:
            load.close()
        cluster.kill()
    return figures._replace(seed=seed, kinds=done, wall_s=time.monotonic() - began)


def _tails(cluster: TidelogCluster, loads: Iterable[Load]) -> str:
    logs = {f"broker {node_id}": node.log for node_id, node in cluster.nodes.items()}
    logs |= {load.name: load.log for load in loads}
    texts = {name: log.read_text(errors="replace")[-4000:] for name, log in logs.items()}
    return "\n".join(f"---- {name}\n{text}" for name, text in texts.items())


class _Rig:
    """The running cluster under load."""

    def __init__(
        self, cluster: TidelogCluster, loads: Sequence[Load], disk: BadDisk | None
    ) -> None:
        self.cluster = cluster
        self.loads = loads
        self.disk = disk

    @property
    def watcher(self) -> Load:
        """The load that is asked about replicas."""
        return self.loads[0]

    def start_brokers(self, node_id: int | None = None) -> None:
        disk = contextlib.nullcontext() if self.disk is None else self.disk.for_children()
        with disk:
            self.cluster.start(node_id)

    def start_loads(self, seed: int) -> None:
        bootstrap = self.cluster.bootstrap
        settings = {"min_insync_replicas": "2", "segment_bytes": str(1 << 20)}
        for topic in (TOPIC, TRANSACTIONS):
            self.watcher.create_topic(bootstrap, topic, PARTITIONS, **settings)
        for load in self.loads:
            load.start(bootstrap, TOPIC, PARTITIONS, RATE)
            load.follow("during")
        self.loads[-1].transact(TRANSACTIONS, seed, WRITERS)
        self.progress()

    def round(self, fault: Round) -> None:
        if fault.is_calm:
            self.all_in_sync()
        if fault.kind == "pause":
            self.cluster.pause(fault.node_id)
            time.sleep(fault.pause_s)
            self.cluster.resume(fault.node_id)
        else:
            self.end_broker(fault)
            if fault.goes_on:
                self.progress()
            self.start_brokers(fault.node_id)
        self.progress()

    def end_broker(self, fault: Round) -> None:
        node = self.cluster.nodes[fault.node_id]
        if fault.kind == "kill":
            self.cluster.kill(fault.node_id)
        elif fault.kind == "restart":
            code = self.cluster.stop(fault.node_id)
            assert code == 0, f"broker {fault.node_id} stopped with {code}"
        else:
            assert self.disk is not None
            self.disk.order("full" if fault.kind == "disk full" else "fsync-fails", node.folder)
            eventually(lambda: self.has_ended(fault.node_id), bool, DISK_S_MAX)
            self.disk.heal()
            code = node.end(signal.SIGKILL)
            assert code > 0, f"broker {fault.node_id} ended with {code} after: {fault.kind}"

    def has_ended(self, node_id: int) -> bool:
        try:
            self.cluster.nodes[node_id].child.check()
        except RuntimeError:
            return True
        return False

    def progress(self) -> None:
        """Every partition takes more records from each producer."""
        for load in self.loads:
            before = load.counts()

            def more(load: Load = load, before: Sequence[int] = before) -> list[int]:
                self.cluster.check()
                return [now - then for now, then in zip(load.counts(), before, strict=True)]

            try:
                eventually(more, lambda counts: min(counts) >= PROGRESS, WAIT_S_MAX)
            except AssertionError as error:
                leaders, in_sync = self.watcher.replicas()
                error.add_note(f"acknowledgements of {load.name} by partition; the partitions have")
                error.add_note(f"leaders {leaders} and in sync {in_sync}")
                raise

    def all_in_sync(self) -> None:
        full = [list(NODES)] * PARTITIONS
        eventually(lambda: self.watcher.replicas()[1], full.__eq__, WAIT_S_MAX)

    def finish(self) -> Figures:
        self.all_in_sync()
        history = ClientHistory()
        transactions = self.loads[-1].transacted()
        acknowledged = {load.name: load.finish() for load in self.loads}
        total = sum(map(len, acknowledged.values()))
        for name, entries in acknowledged.items():
            add_sends(history, TOPIC, name, entries)
        for load in self.loads:
            load.follow("after")
        for load in self.loads:
            for reader in ("during", "after"):
                found = load.followed(reader, total)
                assert len(found) >= total, f"{load.name} {reader}: {len(found)} of {total} records"
                add_polls(history, TOPIC, f"{load.name} {reader}", found)
        add_transactions(history, TRANSACTIONS, transactions)
        _require_none(anomalies(history))
        for topic in (TOPIC, TRANSACTIONS):
            same = lambda topic=topic: check_replicas(self.cluster, topic, PARTITIONS)  # noqa: E731
            eventually(same, "".__eq__, WAIT_S_MAX)
        return Figures(
            seed=0,
            kinds={},
            acknowledged={name: len(entries) for name, entries in acknowledged.items()},
            transactions=Counter(each["outcome"] for each in transactions),
            reads=2 * len(self.loads),
            longest_gap_s={name: longest_gap_s(each) for name, each in acknowledged.items()},
            wall_s=0.0,
        )


def _require_none(found: Sequence[Anomaly]) -> None:
    kinds = Counter(anomaly.kind for anomaly in found)
    assert not found, f"{dict(kinds)}\n" + "\n".join(map(str, found[:20]))
