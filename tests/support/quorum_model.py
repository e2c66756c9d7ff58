"""A quorum of cores over a network and disks made of lists: loss, delay, reordering, crashes.

Logs are lists of (epoch, value). A step of a node and what it persists are one moment; what a node
has appended and not flushed is lost in a crash, in part. Invariants are checked after every step.
"""

from __future__ import annotations

import heapq
import itertools
import random
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.cluster.quorum import events as e
from tidelog.cluster.quorum.core import QuorumCore, Role, Timeouts
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

RETRY_S = 0.05
FETCH_PAUSE_S = 0.05


class ModelRng:
    """The Rng seam over a seeded stream."""

    def __init__(self, stream: random.Random) -> None:
        self._stream = stream

    def bytes(self, length: int) -> bytes:
        return self._stream.randbytes(length)

    def uniform(self, low: float, high: float) -> float:
        return self._stream.uniform(low, high)

    def uuid(self) -> bytes:
        return self._stream.randbytes(16)


class Entry(NamedTuple):
    """A record: the epoch it was appended in, and what it says."""

    epoch: int
    value: str


class ModelNode:
    """One voter (or observer): its disk outlives its lives."""

    def __init__(self, world: Quorum, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.election = e.Election()
        self.log: list[Entry] = []
        self.flushed = 0
        self.high_watermark = 0
        self.life = 0
        self.core: QuorumCore | None = None
        self.fetching = -1  # the epoch that the fetch loop runs in

    def start(self) -> None:
        assert self.core is None
        self.life += 1
        self.flushed = len(self.log)  # a starting node syncs what it found
        self.high_watermark = 0
        self.fetching = -1
        self.core = QuorumCore(
            node_id=self.node_id,
            voters=self.world.voters,
            stored=self.election,
            log_end=self.log_end,
            rng=self.world.rng,
            timeouts=Timeouts(),
        )
        self.core.start(self.world.now)
        self.arm()
        self.look_for_leader()

    def crash(self) -> None:
        """Unflushed records are lost in part; the election never is."""
        self.core = None
        self.life += 1
        del self.log[self.world.chance.randint(self.flushed, len(self.log)) :]

    def log_end(self) -> e.LogEnd:
        return e.LogEnd(self.log[-1].epoch if self.log else 0, len(self.log))

    # ---- steps -------------------------------------------------------------------------------

    def step(self, event: e.Event) -> e.Reply | None:
        core = self.core
        assert core is not None
        reply = None
        for effect in core.step(event, self.world.now):
            match effect:
                case e.Persist(election):
                    assert election.epoch >= self.election.epoch
                    self.election = election
                case e.Reply(error):
                    assert error is not ErrorCode.INVALID_REQUEST, f"{self.node_id} refuses {event}"
                    reply = effect
                case e.AskVotes(epoch, pre_vote):
                    self.ask_votes(epoch, pre_vote=pre_vote)
                case e.BeginEpoch(epoch, voters):
                    for voter in voters:
                        self.send(voter, e.EpochBegun(self.node_id, epoch))
                case e.EndEpoch(epoch, preferred):
                    for voter in core.others:
                        self.send(voter, e.EpochEnded(self.node_id, epoch, preferred))
                case e.HighWatermarkMoved(offset):
                    self.commit(offset)
                case e.RoleChanged():
                    pass
        self.follow_role()
        self.arm()
        return reply

    def arm(self) -> None:
        core = self.core
        if core is not None and core.deadline != float("inf"):
            self.world.later(max(core.deadline - self.world.now, 0), self, self.tick)

    def look_for_leader(self) -> None:
        """An observer asks any voter, which tells who leads."""
        core = self.core
        if core is not None and not core.is_voter and core.role is Role.UNATTACHED:
            voter = self.world.chance.choice(self.world.voters)
            self.world.send(
                self,
                voter,
                lambda node: (node.core.epoch, node.core.leader_id) if node.core else None,
                lambda answer: self.step(e.EpochTold(*answer)),
            )
        self.world.later(0.2, self, self.look_for_leader)

    def tick(self) -> None:
        if self.core is not None and self.world.now >= self.core.deadline:
            self.step(e.Tick())

    def follow_role(self) -> None:
        core = self.core
        assert core is not None
        if core.role is Role.LEADER:
            if self.world.leaders.setdefault(core.epoch, self.node_id) != self.node_id:
                raise AssertionError(f"two leaders in epoch {core.epoch}")
            if not any(entry.epoch == core.epoch for entry in self.log):
                self.append(f"leader {self.node_id}")
        elif core.role is Role.FOLLOWER and self.fetching != core.epoch:
            self.fetching = core.epoch
            self.fetch(core.epoch)
        if core.role is not Role.FOLLOWER:
            self.fetching = -1

    def append(self, value: str) -> None:
        assert self.core is not None
        assert self.core.is_leader
        self.log.append(Entry(self.core.epoch, value))
        end = len(self.log)
        self.world.later(self.world.chance.uniform(0, 0.02), self, lambda: self.flush(end))

    def flush(self, end: int) -> None:
        self.flushed = max(self.flushed, min(end, len(self.log)))
        self.step(e.LocalFlushed(self.flushed))

    def commit(self, offset: int) -> None:
        assert offset <= len(self.log)
        assert offset >= self.high_watermark, "a high watermark went back"
        self.high_watermark = offset
        self.world.check_committed(self)

    # ---- asking ------------------------------------------------------------------------------

    def send(self, to: int, event: e.Event) -> None:
        self.world.send(self, to, lambda node: node.step(event), None)

    def ask_votes(self, epoch: int, *, pre_vote: bool) -> None:
        core = self.core
        role = Role.PROSPECTIVE if pre_vote else Role.CANDIDATE
        if core is None or core.role is not role or core.epoch != epoch:
            return
        request = e.VoteAsked(self.node_id, epoch, self.log_end(), pre_vote)
        for voter in core.unanswered():
            self.world.send(
                self,
                voter,
                lambda node: node.vote(request),
                lambda answer, voter=voter: self.step(  # type: ignore[misc]
                    e.VoteAnswered(voter, epoch, pre_vote, *answer)
                ),
            )
        self.world.later(RETRY_S, self, lambda: self.ask_votes(epoch, pre_vote=pre_vote))

    def vote(self, request: e.VoteAsked) -> tuple[bool, int, int]:
        reply = self.step(request)
        assert reply is not None
        assert self.core is not None
        return reply.granted, self.core.epoch, self.core.leader_id

    # ---- fetching ----------------------------------------------------------------------------

    def fetch(self, epoch: int) -> None:
        core = self.core
        if core is None or core.role is not Role.FOLLOWER or core.epoch != epoch:
            if self.fetching == epoch:
                self.fetching = -1
            return
        self.flushed = len(self.log)
        end = self.log_end()
        me = self.node_id
        self.world.send(
            self,
            core.leader_id,
            lambda leader: leader.serve(me, epoch, end),
            lambda answer: self.take(epoch, end.offset, answer),
            lambda: self.world.later(FETCH_PAUSE_S, self, lambda: self.fetch(epoch)),
        )

    def serve(self, replica_id: int, epoch: int, end: e.LogEnd) -> tuple[Any, ...]:
        core = self.core
        assert core is not None
        if core.epoch != epoch or not core.is_leader:
            return ("epoch", core.epoch, core.leader_id)
        if end.offset:
            held = [entry.epoch for entry in self.log if entry.epoch <= end.epoch]
            known = held[-1] if held else 0
            if known < end.epoch or len(held) < end.offset:
                return ("diverging", known, len(held))
        self.step(e.ReplicaFetched(replica_id, end.offset))
        return ("records", self.log[end.offset : end.offset + 3], self.high_watermark)

    def take(self, epoch: int, offset: int, answer: tuple[Any, ...]) -> None:
        core = self.core
        assert core is not None
        if core.role is not Role.FOLLOWER or core.epoch != epoch or offset != len(self.log):
            return
        match answer:
            case ("epoch", int(told), int(leader)):
                self.step(e.EpochTold(told, leader))
            case ("diverging", int(known), int(end)):
                end = min(end, sum(1 for entry in self.log if entry.epoch <= known))
                assert end >= self.high_watermark, "committed records would be cut"
                del self.log[end:]
                self.flushed = min(self.flushed, end)
                self.step(e.LeaderAnswered(epoch))
            case ("records", entries, int(committed)):
                self.log += entries
                self.step(e.LeaderAnswered(epoch))
                committed = min(committed, len(self.log))
                if committed > self.high_watermark:
                    self.commit(committed)
        pause = 0.0 if answer[0] == "records" and answer[1] else FETCH_PAUSE_S
        self.world.later(pause, self, lambda: self.fetch(epoch))


class Quorum:
    """The world: time, messages, faults, and what must always hold."""

    def __init__(self, seed: int, voters: int = 3, observers: int = 0) -> None:
        self.chance = random.Random(seed)
        self.rng = ModelRng(random.Random(f"{seed}:core"))
        self.voters = tuple(range(1, voters + 1))
        self.now = 0.0
        self.loss = 0.0
        self.delay_s = 0.01
        self.cut: set[tuple[int, int]] = set()  # (from, to) links that lose everything
        self.leaders: dict[int, int] = {}  # by epoch
        self.committed: list[Entry] = []
        self._queue: list[tuple[float, int, ModelNode, int, Callable[[], Any]]] = []
        self._order = itertools.count()
        self.nodes = {n: ModelNode(self, n) for n in range(1, voters + observers + 1)}
        self.submitted = 0

    def start_all(self) -> None:
        for node in self.nodes.values():
            if node.core is None:
                node.start()

    def later(self, delay_s: float, node: ModelNode, call: Callable[[], Any]) -> None:
        """Call in this life of the node, unless it ends first."""
        item = (self.now + delay_s, next(self._order), node, node.life, call)
        heapq.heappush(self._queue, item)

    def send(
        self,
        sender: ModelNode,
        to: int,
        call: Callable[[ModelNode], Any],
        answered: Callable[[Any], Any] | None,
        lost: Callable[[], Any] | None = None,
    ) -> None:
        """A request and its answer, each of which may be late or lost."""
        target = self.nodes[to]
        if not self._arrives(sender.node_id, to) or target.core is None:
            if lost is not None:
                self.later(2 * self.delay_s, sender, lost)
            return
        life = sender.life

        def arrive() -> None:
            answer = call(target)
            if sender.life != life or answered is None:
                return
            if self._arrives(to, sender.node_id):
                self.later(self._latency(), sender, lambda: answered(answer))
            elif lost is not None:
                self.later(2 * self.delay_s, sender, lost)

        self.later(self._latency(), target, arrive)
        if lost is not None:  # the target may die with the request
            epoch_life = target.life

            def check() -> None:
                if target.life != epoch_life:
                    lost()

            self.later(5 * self.delay_s, sender, check)

    def _arrives(self, sender: int, to: int) -> bool:
        return (sender, to) not in self.cut and self.chance.random() >= self.loss

    def _latency(self) -> float:
        return self.chance.uniform(0, 2 * self.delay_s)

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass; whether `until` came true (or true if there is none)."""
        end = self.now + seconds
        while self._queue and self._queue[0][0] <= end:
            self.now, _, node, life, call = heapq.heappop(self._queue)
            if node.life == life and node.core is not None:
                call()
                if until is not None and until():
                    return True
        self.now = end
        return until is None

    # ---- workload, checks -----------------------------------------------------------------------

    def leader(self) -> ModelNode | None:
        """The live leader of the newest epoch."""
        leaders = [n for n in self.nodes.values() if n.core is not None and n.core.is_leader]
        return max(leaders, key=lambda n: n.core.epoch if n.core else -1, default=None)

    def submit(self) -> None:
        """Every node that thinks it leads appends something."""
        for node in self.nodes.values():
            if node.core is not None and node.core.leads_committed:
                self.submitted += 1
                node.append(f"record {self.submitted}")

    def check_committed(self, node: ModelNode) -> None:
        """Everything below a high watermark is what everybody saw committed there."""
        known = min(len(self.committed), node.high_watermark)
        assert node.log[:known] == self.committed[:known], "a committed record changed"
        if node.high_watermark > known:
            self.committed += node.log[known : node.high_watermark]

    def check_matching(self) -> None:
        """Logs that agree on an entry's epoch agree on all before it (Raft's log matching)."""
        logs = [node.log for node in self.nodes.values()]
        for one, other in itertools.combinations(logs, 2):
            for index in range(min(len(one), len(other)) - 1, -1, -1):
                if one[index].epoch == other[index].epoch:
                    assert one[: index + 1] == other[: index + 1]
                    break

    def is_settled(self) -> bool:
        """Whether all live nodes follow one leader and hold all it holds, committed."""
        leader = self.leader()
        if leader is None or leader.core is None or not leader.core.leads_committed:
            return False
        return all(
            node.core is not None
            and node.core.epoch == leader.core.epoch
            and node.log == leader.log
            and node.high_watermark == len(leader.log)
            for node in self.nodes.values()
        )
