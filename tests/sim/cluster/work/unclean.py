"""A topic with unclean.leader.election.enable: what an election of a replica that lags may lose.

When the controller makes such a leader, `Elections` compares its log with those of the replicas
that were in sync. From the first offset on at which they differ (`lost_from`) everything may be
gone, and what its forgotten leader still takes is lost with it; below that everything stays. The
checkers of the simulation and those of the clients' histories excuse just that.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from histories.calls import Loss
from sim.cluster.in_sync_checkers import may_lead
from sim.cluster.producers import PlainClusterProducer
from sim.cluster.sequences import LAG_S, LEADERLESS_S_MAX, Play
from sim.cluster.work.part import PAUSES_S, WRITTEN_MAX, Part
from sim.cluster.work.reader import LooseReader
from sim.cluster.work.seeds import UNCLEAN_ELECTION
from sim.raw_logs import DATA, read_log
from sim.wire import ANSWER_S_MAX

if TYPE_CHECKING:
    from sim.cluster.faults import ClusterFaults
    from sim.history import PartitionHistory, TopicHistory
    from tidelog.cluster.metadata.image import PartitionImage

TOPIC = "unclean"


class Unclean(NamedTuple):
    """An election: nothing of earlier leader epochs is sure to stay from an offset on."""

    at_s: float
    epoch: int
    lost_from: int


class Writer(PlainClusterProducer):
    """acks=all or 1, each record once; what it is told holds until the next unclean election."""

    def __init__(self, world: Any, target: PartitionHistory) -> None:
        super().__init__(world, "plain-unclean", WRITTEN_MAX)
        self.acks = self.rng.choice((1, -1, -1))
        self._target = target

    def target(self) -> PartitionHistory:
        """The one partition."""
        return self._target

    async def run(self) -> None:
        """As long as faults come."""
        while self.left > 0 and not self.world.is_quiet:
            await self.write(self._target)
            await asyncio.sleep(self.rng.choice(PAUSES_S))
        self.cluster.close()

    def learn(self, target: PartitionHistory, batch: Any, answer: Any, life: int) -> None:
        """The history of its calls knows."""
        self.world.history.count("records acknowledged, unclean", len(batch.values))


class Elections(Part):
    """The topic, its clients, and all unclean elections of it."""

    name = "unclean elections"

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self._topic: TopicHistory | None = None
        self._elections: list[Unclean] = []
        self._epochs: dict[int, int] = {}  # leader epochs by node, as last seen

    def topic_config(self, name: str) -> dict[str, str] | None:
        """One in-sync replica is enough to commit, and none is needed to lead."""
        if name != TOPIC:
            return None
        return {
            "unclean.leader.election.enable": "true",
            "min.insync.replicas": "1",
            "internal.segment.bytes": str(self.rng.choice((2500, 1 << 20))),
        }

    async def create(self) -> None:
        """The topic. No other producer writes to it: none of its records is sure to stay."""
        topic = self._topic = await self.create_topic(TOPIC, 1)
        del self.world.history.topics[topic.topic_id]
        self.topics.append(topic)
        self.world.checkers.in_sync.unclean[topic.topic_id, 0] = self._elected
        self.world.checkers.is_behind[topic.topic_id, 0] = self._is_behind

    def start(self) -> None:
        """One writes, one reads."""
        assert self._topic is not None
        target = self._topic.partition(0)
        self.start_writer(Writer(self.world, target))
        self.start_client(LooseReader(self.world, "unclean-consumer", [target]))

    async def play(self, faults: ClusterFaults, kind: str, name: str) -> None:
        """The fault of this kind."""
        if kind == UNCLEAN_ELECTION and self._topic is not None:
            await LeaderAlone(faults, name, self._topic.partition(0)).run(kind)

    # -- what may be lost --------------------------------------------------------------------------

    def _elected(self, before: PartitionImage, state: PartitionImage) -> int:
        """The controller has made a leader that was not in sync; from where on records may go."""
        assert self._topic is not None
        checkers, key = self.world.checkers, (self._topic.topic_id, 0)
        checkers.check_bytes()
        committed = checkers.logs[key].batches if key in checkers.logs else {}
        known = {base: data for base, (data, _) in self._log(state.leader).items()}
        end = max((after for _, after in self._log(state.leader).values()), default=0)
        others = dict(committed)
        for node_id in may_lead(before):
            others |= {base: data for base, (data, _) in self._log(node_id).items()}
        lost_from = min([end, *(base for base, data in others.items() if known.get(base) != data)])
        for base in [base for base in committed if base >= lost_from]:
            del committed[base]
        self._elections.append(Unclean(self.world.loop.time(), state.leader_epoch, lost_from))
        self._note_loss(self._elections[-1])
        self.world.history.count("unclean elections")
        text = f"{state.leader} leads and was not in sync: from {lost_from} on records may go"
        self.world.loop.tell(TOPIC, text)
        return lost_from

    def _log(self, node_id: int) -> dict[int, tuple[bytes, int]]:
        """Bytes and end of each batch on a broker's disk, by base offset."""
        machine = self.world.machines.by_id.get(node_id)
        if machine is None:
            return {}
        return {
            batch.header.base_offset: (batch.data, batch.header.last_offset + 1)
            for batch in read_log(machine.disk, f"{DATA}/{TOPIC}-0").batches()
        }

    def _note_loss(self, election: Unclean) -> None:
        """What clients were told up to now is over, answers on their way included."""
        assert self._topic is not None
        over_s = self.world.loop.time() + ANSWER_S_MAX
        place = (self._topic.topic_id.hex(), 0)
        loss = Loss(over_s, place, election.lost_from, since=election.at_s)
        self.world.observer.losses.append(loss)

    def _is_behind(self, node_id: int, partition: Any) -> bool:
        """Whether a replica may still be what it was before the last unclean election."""
        image = self.world.machines.image()
        topic = None if image is None else image.topic_by_id(partition.topic_id)
        if topic is None or not self._elections:
            return False
        state = topic.partitions[0]
        return node_id not in state.isr or partition.leader_epoch != state.leader_epoch

    def look(self, node_id: int, partition: Any) -> None:
        """A replica hears of an unclean election: until now it may have served what is lost."""
        if self._topic is None or partition.topic_id != self._topic.topic_id:
            return
        epoch, before = partition.leader_epoch, self._epochs.get(node_id, -1)
        self._epochs[node_id] = epoch
        for election in self._elections:
            if before < election.epoch <= epoch:
                self._note_loss(election)


class LeaderAlone(Play):
    """The followers fall out of the in-sync replicas; the leader goes on alone, and goes."""

    async def _unclean_election(self) -> None:
        leader, followers = self.leader(), self.followers()
        if leader < 0 or not followers:
            return
        await self.faults.until_may_strike(leader)
        network, links = self.machines.network, self.links(leader, followers, data=True)
        with self.faults.cut_off(leader):
            network.cut(links)
            if await self.until(lambda: self._is_alone(leader), LAG_S[1] + 1.5):
                await self.pause(0.05, 0.3, 0.8)
                if self.rng.random() < 0.5:
                    self.kill(leader)
                else:
                    more = self.links(leader, list(self.machines.by_id), data=False)
                    network.cut(more)
                    links += more
                await self.until(lambda: self.leader() not in (-1, leader), LEADERLESS_S_MAX)
                await self.pause(0, 0.1, 0.6)
            network.heal(links)

    def _is_alone(self, leader: int) -> bool:
        state = self.state()
        return state is not None and state.isr == (leader,)
