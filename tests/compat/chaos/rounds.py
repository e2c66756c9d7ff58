"""Three isolated brokers, two producers, and rounds of faults that a seed chooses."""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from compat.chaos.check import check_found, check_replicas, check_seen, longest_gap_s
from compat.chaos.load import Load, java_command, librdkafka_command
from compat.eventually import eventually
from tidelog_bench.peers.tidelog import TidelogCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

TOPIC = "chaos"
PARTITIONS = 6
NODES = (1, 2, 3)
RATE = 1000  # records a second of each producer
SESSION_S = 1.5
SETTINGS = {
    "broker.session.timeout.ms": f"{SESSION_S * 1000:.0f}",
    "broker.heartbeat.interval.ms": "300",
}
WAIT_S_MAX = 60.0
PROGRESS = 20  # more records of every partition, from each producer


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
    kinds: dict[str, int]
    acknowledged: dict[str, int]
    longest_gap_s: dict[str, float]
    wall_s: float

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items()))
        each = ", ".join(f"{count} by {name}" for name, count in self.acknowledged.items())
        gaps = ", ".join(f"{name} {gap:.1f} s" for name, gap in self.longest_gap_s.items())
        rounds = sum(self.kinds.values())
        return (
            f"seed {self.seed}: {rounds} rounds ({kinds}), {sum(self.acknowledged.values())} "
            f"records acknowledged ({each}), longest time without one: {gaps}; {self.wall_s:.0f} s"
        )


def planned(seed: int, rounds: int) -> list[Round]:
    """The faults of a seed, every kind of them as often as the others."""
    rng = random.Random(seed)
    kinds = ["kill", "pause", "restart"] * (rounds // 3 + 1)
    rng.shuffle(kinds)
    plan = []
    for kind in kinds[:rounds]:
        is_calm = rng.random() < 0.75
        goes_on = is_calm and kind != "pause" and rng.random() < 0.7
        # Some are over before the session is, and nobody but clients may notice.
        pause_s = SESSION_S * rng.choice((0.4, 1.5, 2.5))
        plan.append(Round(kind, rng.choice(NODES), is_calm, goes_on, pause_s))
    return plan


def run_chaos(folder: Path, seed: int, rounds: int, say: Callable[[str], None]) -> Figures:
    """All of it; AssertionError with the ends of the brokers' logs when something is wrong."""
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    cluster = TidelogCluster(folder / "cluster", SETTINGS)
    loads: list[Load] = []
    try:
        cluster.folder.mkdir()
        cluster.start()
        loads.append(Load("librdkafka", librdkafka_command(), folder))
        loads.append(Load("java", java_command(), folder))
        rig = _Rig(cluster, loads, say)
        rig.start()
        for number, fault in enumerate(planned(seed, rounds), 1):
            say(f"{time.monotonic() - began:6.1f} s  round {number}: {fault}")
            rig.round(fault)
        figures = rig.finish()
    except Exception as error:
        error.add_note(f"seed {seed}\n{_tails(cluster, loads)}")
        raise
    finally:
        for load in loads:
            load.close()
        cluster.kill()
    kinds = Counter(fault.kind for fault in planned(seed, rounds))
    return figures._replace(seed=seed, kinds=dict(kinds), wall_s=time.monotonic() - began)


def _tails(cluster: TidelogCluster, loads: Iterable[Load]) -> str:
    logs = {f"broker {node_id}": node.log for node_id, node in cluster.nodes.items()}
    logs |= {load.name: load.log for load in loads}
    texts = {name: log.read_text(errors="replace")[-4000:] for name, log in logs.items()}
    return "\n".join(f"---- {name}\n{text}" for name, text in texts.items())


class _Rig:
    """The running cluster under load."""

    def __init__(
        self, cluster: TidelogCluster, loads: Sequence[Load], say: Callable[[str], None]
    ) -> None:
        self.cluster = cluster
        self.loads = loads
        self.say = say
        self.watcher = loads[0]

    def start(self) -> None:
        bootstrap = self.cluster.bootstrap
        settings = {"min_insync_replicas": "2", "segment_bytes": str(1 << 20)}
        self.watcher.create_topic(bootstrap, TOPIC, PARTITIONS, **settings)
        for load in self.loads:
            load.start(bootstrap, TOPIC, PARTITIONS, RATE)
        self.watcher.follow()
        self.progress()

    def round(self, fault: Round) -> None:
        if fault.is_calm:
            self.all_in_sync()
        if fault.kind == "pause":
            self.cluster.pause(fault.node_id)
            time.sleep(fault.pause_s)
            self.cluster.resume(fault.node_id)
        else:
            if fault.kind == "kill":
                self.cluster.kill(fault.node_id)
            else:
                code = self.cluster.stop(fault.node_id)
                assert code == 0, f"broker {fault.node_id} stopped with {code}"
            if fault.goes_on:
                self.progress()
            self.cluster.start(fault.node_id)
        self.progress()

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
        acknowledged = {load.name: load.finish() for load in self.loads}
        seen = self.watcher.followed(sum(map(len, acknowledged.values())))
        found = {load.name: load.read() for load in self.loads}
        assert len(set(map(str, found.values()))) == 1, "the clients read different records"
        check_found(found[self.watcher.name], acknowledged)
        check_seen(seen, found[self.watcher.name])
        eventually(lambda: check_replicas(self.cluster, TOPIC, PARTITIONS), "".__eq__, WAIT_S_MAX)
        counts = {name: len(entries) for name, entries in acknowledged.items()}
        gaps = {name: longest_gap_s(entries) for name, entries in acknowledged.items()}
        return Figures(0, {}, counts, gaps, 0.0)
