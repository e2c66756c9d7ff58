"""The quorum's state machine: roles step by step, and the model under faults of every kind."""

from __future__ import annotations

import pytest

from support.quorum_model import ModelRng, Quorum
from tidelog.cluster.quorum import events as e
from tidelog.cluster.quorum.core import TRANSITIONS, QuorumCore, Role, Timeouts
from tidelog.cluster.quorum.progress import OBSERVERS_MAX
from tidelog_protocol.errors import ErrorCode


class LowRng(ModelRng):
    """Always the low end."""

    def __init__(self) -> None:
        """No stream."""

    def uniform(self, low: float, high: float) -> float:
        assert low <= high
        return low


class Voter:
    """One core, driven by hand; `log` is its end."""

    def __init__(
        self,
        node_id: int = 1,
        voters: tuple[int, ...] = (1, 2, 3),
        stored: e.Election = e.Election(),  # noqa: B008 - immutable
        log: e.LogEnd = e.LogEnd(0, 0),  # noqa: B008 - immutable
    ) -> None:
        self.log = log
        self.now = 0.0
        self.core = QuorumCore(
            node_id=node_id,
            voters=voters,
            stored=stored,
            log_end=lambda: self.log,
            rng=LowRng(),
            timeouts=Timeouts(),
        )
        self.core.start(0.0)

    def step(self, event: e.Event) -> list[e.Effect]:
        return self.core.step(event, self.now)

    def tick(self) -> list[e.Effect]:
        self.now = max(self.now, self.core.deadline)
        return self.step(e.Tick())

    def answered(self, voter: int, *, granted: bool = True, epoch: int | None = None) -> list:  # type: ignore[type-arg]
        pre_vote = self.core.role is Role.PROSPECTIVE
        asked = self.core.epoch
        answer = e.VoteAnswered(voter, asked, pre_vote, granted, asked if epoch is None else epoch)
        return self.step(answer)

    def lead(self) -> Voter:
        self.tick()
        self.answered(2)
        self.answered(2)
        assert self.core.role is Role.LEADER
        return self

    def follow(self, leader: int = 2, epoch: int = 1) -> Voter:
        self.step(e.EpochBegun(leader, epoch))
        assert self.core.role is Role.FOLLOWER
        return self


def vote(candidate: int, epoch: int, log: e.LogEnd, *, pre_vote: bool = False) -> e.VoteAsked:
    return e.VoteAsked(candidate, epoch, log, pre_vote)


EMPTY = e.LogEnd(0, 0)


def reply_of(effects: list[e.Effect]) -> e.Reply:
    (reply,) = [effect for effect in effects if isinstance(effect, e.Reply)]
    return reply


# ---- elections ---------------------------------------------------------------------------------


def test_an_election() -> None:
    voter = Voter()
    assert voter.tick() == [e.RoleChanged(), e.AskVotes(0, pre_vote=True)]
    assert voter.core.role is Role.PROSPECTIVE
    assert voter.core.stored == e.Election(), "a pre-vote binds nobody"
    effects = voter.answered(2)
    assert effects == [
        e.Persist(e.Election(1, -1, 1)),
        e.RoleChanged(),
        e.AskVotes(1, pre_vote=False),
    ]
    assert voter.core.role is Role.CANDIDATE
    assert voter.core.unanswered() == (2, 3)
    effects = voter.answered(3)
    assert effects == [
        e.Persist(e.Election(1, 1, -1)),
        e.RoleChanged(),
        e.BeginEpoch(1, (2, 3)),
    ]
    assert voter.core.is_leader
    assert not voter.core.leads_committed


def test_a_quorum_of_one_elects_itself_at_once() -> None:
    voter = Voter(voters=(1,))
    voter.tick()
    assert voter.core.is_leader
    voter.log = e.LogEnd(1, 1)
    assert voter.step(e.LocalFlushed(1)) == [e.HighWatermarkMoved(1)]
    assert voter.core.leads_committed
    assert voter.core.deadline > 1e9, "nothing to wait for"


def test_one_vote_per_epoch_durable_before_it_is_given() -> None:
    voter = Voter()
    effects = voter.step(vote(2, 1, EMPTY))
    assert effects[0] == e.Persist(e.Election(1, -1, 2))
    assert reply_of(effects) == e.Reply(granted=True)
    assert reply_of(voter.step(vote(3, 1, EMPTY))) == e.Reply(granted=False)
    assert reply_of(voter.step(vote(2, 1, EMPTY))) == e.Reply(granted=True), "asked again"
    old = vote(3, 0, EMPTY, pre_vote=True)
    assert reply_of(voter.step(old)).error is ErrorCode.FENCED_LEADER_EPOCH
    restarted = Voter(stored=voter.core.stored)
    assert reply_of(restarted.step(vote(3, 1, EMPTY))) == e.Reply(granted=False)
    assert reply_of(restarted.step(vote(3, 2, EMPTY))) == e.Reply(granted=True)


def test_a_vote_is_for_one_directory() -> None:
    """Two processes with the id of one controller: one of them has lost its disk (KIP-853)."""
    old, new = bytes(15) + b"\1", bytes(15) + b"\2"
    voter = Voter()
    voter.core.start(0.0, e.Seat(is_voter=True, stands=True))
    effects = voter.step(vote(2, 1, EMPTY)._replace(directory_id=old))
    assert effects[0] == e.Persist(e.Election(1, -1, 2, old))
    for directory, granted in ((new, False), (old, True)):
        asked = vote(2, 1, EMPTY)._replace(directory_id=directory)
        assert reply_of(voter.step(asked)) == e.Reply(granted=granted)


def test_a_node_votes_before_its_log_names_it_and_does_not_stand() -> None:
    node = Voter(4)
    node.core.start(0.0, e.Seat(is_voter=False, stands=False))
    assert reply_of(node.step(vote(7, 1, EMPTY))) == e.Reply(granted=True)
    assert node.core.deadline == float("inf")
    node.step(e.VotersChanged((1, 2, 3, 4), e.Seat(is_voter=True, stands=True)))
    assert node.core.deadline < float("inf")
    node.tick()
    assert node.core.role is Role.PROSPECTIVE


def test_a_leader_counts_the_new_voters_at_once() -> None:
    leader = Voter(1, (1,))
    leader.core.start(0.0, e.Seat(is_voter=True, stands=True))
    leader.tick()
    assert leader.core.role is Role.LEADER
    leader.log = e.LogEnd(1, 1)
    assert leader.step(e.LocalFlushed(1)) == [e.HighWatermarkMoved(1)]
    leader.step(e.VotersChanged((1, 2), e.Seat(is_voter=True, stands=True)))
    leader.log = e.LogEnd(1, 2)
    assert leader.step(e.LocalFlushed(2)) == [], "2 does not have it"
    assert leader.step(e.ReplicaFetched(2, 2)) == [e.HighWatermarkMoved(2)]
    removed = e.Seat(is_voter=False, stands=True)
    leader.log = e.LogEnd(1, 3)
    assert leader.step(e.VotersChanged((2,), removed)) == []
    assert leader.step(e.LocalFlushed(3)) == [], "its own copy does not count"
    assert leader.step(e.ReplicaFetched(2, 3)) == [e.HighWatermarkMoved(3)]


@pytest.mark.parametrize("pre_vote", [False, True])
@pytest.mark.parametrize(
    ("log", "granted"),
    [
        (e.LogEnd(3, 9), False),
        (e.LogEnd(3, 10), True),
        (e.LogEnd(3, 11), True),
        (e.LogEnd(2, 99), False),
        (e.LogEnd(4, 1), True),
    ],
)
def test_only_a_log_that_is_not_behind_gets_the_vote(
    log: e.LogEnd, *, granted: bool, pre_vote: bool
) -> None:
    voter = Voter(log=e.LogEnd(3, 10), stored=e.Election(3))
    assert reply_of(voter.step(vote(2, 5, log, pre_vote=pre_vote))) == e.Reply(granted=granted)


def test_a_pre_vote_takes_no_vote_away() -> None:
    voter = Voter()
    assert reply_of(voter.step(vote(2, 0, EMPTY, pre_vote=True))).granted
    assert reply_of(voter.step(vote(3, 0, EMPTY, pre_vote=True))).granted
    assert voter.core.voted_id == -1


def test_a_follower_with_a_leader_wants_no_other() -> None:
    voter = Voter().follow()
    assert reply_of(voter.step(vote(3, 1, EMPTY, pre_vote=True))).granted, "not fetched yet"
    voter.step(e.LeaderAnswered(1))
    assert not reply_of(voter.step(vote(3, 1, EMPTY, pre_vote=True))).granted
    assert not reply_of(voter.step(vote(3, 1, EMPTY))).granted
    voter.step(e.LeaderLost(1))
    assert reply_of(voter.step(vote(3, 1, EMPTY, pre_vote=True))).granted
    assert reply_of(voter.step(vote(3, 2, EMPTY))).granted


def test_losing_the_leader_shortens_the_wait_once() -> None:
    voter = Voter().follow()
    voter.step(e.LeaderLost(1))
    assert voter.core.deadline == 2.0, "it never answered"
    voter.step(e.LeaderAnswered(1))
    voter.now = 1.0
    voter.step(e.LeaderLost(1))
    assert voter.core.deadline == 1.25
    voter.step(e.LeaderAnswered(1))
    assert voter.core.deadline == 3.0


def test_others_naming_the_lost_leader_does_not_end_a_pre_vote() -> None:
    voter = Voter().follow(2, 4)
    voter.tick()
    voter.step(e.VoteAnswered(3, 4, pre_vote=True, granted=True, epoch=4, leader_id=2))
    assert voter.core.role is Role.CANDIDATE
    assert voter.core.epoch == 5


def test_refused_prospects_go_back_to_their_leader() -> None:
    voter = Voter().follow(2, 4)
    voter.tick()
    voter.step(e.VoteAnswered(3, 4, pre_vote=True, granted=False, epoch=4, leader_id=2))
    assert voter.core.role is Role.PROSPECTIVE
    voter.step(e.VoteAnswered(2, 4, pre_vote=True, granted=False, epoch=4, leader_id=2))
    assert (voter.core.role, voter.core.leader_id) == (Role.FOLLOWER, 2)


def test_a_prospect_learns_of_the_leader() -> None:
    voter = Voter()
    voter.tick()
    effects = voter.step(e.VoteAnswered(3, 0, pre_vote=True, granted=False, epoch=7, leader_id=2))
    assert effects == [e.Persist(e.Election(7, 2, -1)), e.RoleChanged()]
    assert voter.core.role is Role.FOLLOWER


def test_a_beaten_candidate_asks_again_after_a_while() -> None:
    voter = Voter()
    voter.tick()
    voter.answered(2)
    voter.answered(2, granted=False)
    voter.answered(3, granted=False)
    assert voter.core.role is Role.CANDIDATE
    assert voter.core.deadline == voter.now
    assert e.AskVotes(1, pre_vote=True) in voter.tick()
    assert voter.core.role is Role.PROSPECTIVE


def test_a_restarted_leader_leaves_its_epoch() -> None:
    voter = Voter(stored=e.Election(5, leader_id=1))
    assert (voter.core.epoch, voter.core.leader_id) == (6, -1)
    effects = voter.step(e.Tick())
    assert effects[0] == e.Persist(e.Election(6, -1, -1))


def test_a_leader_that_learns_of_a_newer_epoch_steps_down() -> None:
    voter = Voter().lead()
    effects = voter.step(e.EpochTold(9, 3))
    assert effects == [e.Persist(e.Election(9, 3, -1)), e.RoleChanged()]
    assert voter.core.role is Role.FOLLOWER
    assert voter.step(e.LocalFlushed(100)) == [], "a flush that comes late"


def test_only_voters_are_listened_to() -> None:
    voter = Voter()
    for event in (vote(9, 1, EMPTY), e.EpochBegun(9, 1), e.EpochEnded(9, 1)):
        assert reply_of(voter.step(event)).error is ErrorCode.INCONSISTENT_VOTER_SET
    assert voter.core.epoch == 0
    observer = Voter(node_id=7)
    assert reply_of(observer.step(vote(2, 1, EMPTY))).error is ErrorCode.INCONSISTENT_VOTER_SET
    assert observer.core.deadline == float("inf")


# ---- leading -----------------------------------------------------------------------------------


def test_commitment_needs_a_majority_and_a_record_of_the_epoch() -> None:
    voter = Voter(log=e.LogEnd(3, 10), stored=e.Election(3))
    voter.lead()
    assert voter.core.epoch_start_offset == 10
    assert voter.step(e.ReplicaFetched(2, 10)) == []
    voter.log = e.LogEnd(4, 11)
    assert voter.step(e.LocalFlushed(11)) == [], "ten of an earlier epoch on two nodes"
    assert voter.step(e.ReplicaFetched(9, 11)) == [], "observers don't count"
    assert voter.step(e.ReplicaFetched(2, 11)) == [e.HighWatermarkMoved(11)]
    voter.log = e.LogEnd(4, 14)
    assert voter.step(e.ReplicaFetched(2, 13)) == []
    assert voter.step(e.ReplicaFetched(3, 12)) == [e.HighWatermarkMoved(12)]
    assert voter.step(e.LocalFlushed(14)) == [e.HighWatermarkMoved(13)]
    assert voter.step(e.ReplicaFetched(2, 11)) == [], "never back"


def test_four_voters_need_three() -> None:
    voter = Voter(voters=(1, 2, 3, 4))
    assert voter.core.majority == 3
    voter.tick()
    for other in (2, 3):
        voter.answered(other)
    for other in (2, 3):
        voter.answered(other)
    assert voter.core.is_leader
    voter.log = e.LogEnd(1, 5)
    voter.step(e.LocalFlushed(5))
    assert voter.step(e.ReplicaFetched(2, 5)) == []
    assert voter.step(e.ReplicaFetched(4, 3)) == [e.HighWatermarkMoved(3)]


def test_a_leader_announces_itself_to_voters_that_do_not_fetch() -> None:
    voter = Voter().lead()
    voter.now = 0.9
    voter.step(e.ReplicaFetched(2, 0))
    assert voter.tick() == [e.BeginEpoch(1, (3,))]


def test_a_leader_without_fetching_voters_resigns() -> None:
    voter = Voter().lead()
    for _ in range(20):
        if voter.core.role is not Role.LEADER:
            break
        voter.tick()
    assert voter.core.role is Role.RESIGNED
    assert voter.now == 3.0
    assert not reply_of(voter.step(vote(2, 1, e.LogEnd(1, 1)))).granted
    assert reply_of(voter.step(vote(2, 1, e.LogEnd(1, 1), pre_vote=True))).granted
    effects = voter.tick()
    assert effects == [e.Persist(e.Election(2, -1, -1)), e.RoleChanged()]
    assert voter.core.role is Role.UNATTACHED


def test_leaving_names_the_longest_log_first() -> None:
    voter = Voter().lead()
    voter.log = e.LogEnd(1, 5)
    voter.step(e.ReplicaFetched(2, 3))
    voter.step(e.ReplicaFetched(3, 5))
    assert voter.step(e.Leave()) == [e.RoleChanged(), e.EndEpoch(1, (3, 2))]
    first, second = Voter(node_id=3).follow(1), Voter(node_id=2).follow(1)
    for other in (first, second):
        other.step(e.LeaderAnswered(1))
        assert reply_of(other.step(e.EpochEnded(1, 1, (3, 2)))) == e.Reply()
    assert first.core.deadline == 0
    assert second.core.deadline == 0.5
    assert reply_of(second.step(vote(3, 1, EMPTY, pre_vote=True))).granted


def test_transitions_are_a_closed_table() -> None:
    assert set(TRANSITIONS) == set(Role)
    voter = Voter()
    with pytest.raises(AssertionError):
        voter.core._become(Role.LEADER, 0)


# ---- the model ---------------------------------------------------------------------------------


@pytest.mark.parametrize("voters", [1, 2, 3, 4, 5])
def test_a_quorum_starts_within_a_second(voters: int) -> None:
    quorum = Quorum(voters, voters)
    quorum.start_all()
    assert quorum.run(1.0, quorum.is_settled)


@pytest.mark.parametrize("seed", range(60))
def test_faults_lose_nothing_and_elect_one(seed: int) -> None:
    quorum = Quorum(seed, voters=3 if seed % 3 else 5, observers=seed % 2)
    chance = quorum.chance
    quorum.start_all()
    for _ in range(60):
        for _ in range(chance.randint(1, 5)):
            quorum.submit()
            quorum.run(chance.choice((0.01, 0.1, 0.5)))
        quorum.check_matching()
        fault = chance.randrange(7)
        victim = chance.choice(list(quorum.nodes.values()))
        if fault == 0:
            quorum.loss = chance.choice((0.0, 0.1, 0.5))
        elif fault == 1:
            quorum.delay_s = chance.choice((0.001, 0.05, 0.6))
        elif fault == 2:
            others = [n for n in quorum.nodes if n != victim.node_id]
            quorum.cut |= {(victim.node_id, n) for n in others}
            if chance.random() < 0.5:  # one-way else
                quorum.cut |= {(n, victim.node_id) for n in others}
        elif fault == 3:
            quorum.cut.clear()
        elif fault == 4 and victim.core is not None:
            victim.crash()
        elif fault == 5:
            leader = quorum.leader()
            if leader is not None:
                leader.step(e.Leave()) if chance.random() < 0.3 else leader.crash()
        else:
            quorum.start_all()
    quorum.loss, quorum.delay_s = 0.0, 0.01
    quorum.cut.clear()
    quorum.start_all()
    assert quorum.run(20.0, quorum.is_settled), "all caught up once the faults have stopped"
    quorum.check_matching()
    leader = quorum.leader()
    assert leader is not None
    assert leader.log[: len(quorum.committed)] == quorum.committed
    assert len(quorum.committed) > 3


def test_a_cut_off_voter_does_not_disturb() -> None:
    quorum = Quorum(7)
    quorum.start_all()
    assert quorum.run(2.0, quorum.is_settled)
    leader = quorum.leader()
    assert leader is not None
    assert leader.core is not None
    epoch = leader.core.epoch
    lonely = next(n for n in quorum.voters if n != leader.node_id)
    others = [n for n in quorum.voters if n != lonely]
    quorum.cut = {(lonely, n) for n in others} | {(n, lonely) for n in others}
    quorum.run(30.0)
    quorum.cut.clear()
    assert quorum.run(5.0, quorum.is_settled)
    quorum.run(5.0)
    assert quorum.leader() is leader
    assert leader.core.epoch == epoch


def test_a_leader_that_leaves_is_followed_at_once() -> None:
    quorum = Quorum(3)
    quorum.start_all()
    assert quorum.run(2.0, quorum.is_settled)
    first = quorum.leader()
    assert first is not None
    first.step(e.Leave())

    def another() -> bool:
        leader = quorum.leader()
        return leader is not None and leader is not first

    assert quorum.run(0.3, another)


def test_forgetting_a_vote_is_found() -> None:
    """The model finds what it is there to find: two leaders in one epoch."""

    def run(seed: int) -> None:
        quorum = Quorum(seed)
        chance = quorum.chance
        quorum.start_all()
        for _ in range(40):
            quorum.run(chance.choice((0.1, 0.3)))
            quorum.submit()
            victim = chance.choice(list(quorum.nodes.values()))
            if victim.core is not None:
                victim.crash()
                victim.election = e.Election(max(0, victim.election.epoch - 1))  # the planted bug
                victim.start()

    def search() -> None:
        for seed in range(40):
            run(seed)

    with pytest.raises(AssertionError):
        search()


# ---- requests out of range ---------------------------------------------------------------------

LAST = (1 << 31) - 1
FAR = 1 << 20


@pytest.mark.parametrize(
    "event",
    [
        e.EpochBegun(2, LAST),
        e.EpochBegun(2, 4 + FAR),
        e.EpochEnded(2, LAST),
        vote(2, LAST, e.LogEnd(3, 10)),
        vote(2, 4 + FAR, e.LogEnd(3, 10), pre_vote=True),
        vote(2, 4, e.LogEnd(-1, 10)),
        vote(2, 4, e.LogEnd(3, -1)),
        vote(2, 4, e.LogEnd(5, 10)),
    ],
)
def test_a_request_out_of_range_changes_nothing(event: e.Event) -> None:
    voter = Voter(log=e.LogEnd(3, 10), stored=e.Election(3))
    assert voter.step(event) == [e.Reply(ErrorCode.INVALID_REQUEST)]
    assert (voter.core.epoch, voter.core.role) == (3, Role.UNATTACHED)


def test_negative_epochs_and_unknown_voters_are_refused() -> None:
    voter = Voter(stored=e.Election(3))
    for event in (e.EpochBegun(2, -1), e.EpochEnded(2, -(1 << 31))):
        assert voter.step(event) == [e.Reply(ErrorCode.FENCED_LEADER_EPOCH)]
    for malformed in (vote(2, -1, EMPTY), vote(2, 0, EMPTY)):  # not above the epoch of the log
        assert voter.step(malformed) == [e.Reply(ErrorCode.INVALID_REQUEST)]
    for event in (e.EpochBegun(-1, 4), e.EpochEnded(4, 4), vote(LAST, 4, EMPTY), vote(1, 4, EMPTY)):
        assert voter.step(event) == [e.Reply(ErrorCode.INCONSISTENT_VOTER_SET)]


def test_requests_leave_epochs_for_elections() -> None:
    """However many requests push the epoch up, elections do not overflow int32."""
    voter = Voter(stored=e.Election(LAST - 2 * FAR))
    voter.follow(2, LAST - FAR)
    assert voter.step(e.EpochBegun(2, LAST - FAR + 1)) == [e.Reply(ErrorCode.INVALID_REQUEST)]
    voter.tick()
    voter.answered(3)
    voter.answered(3)
    assert (voter.core.role, voter.core.epoch) == (Role.LEADER, LAST - FAR + 1)


def test_an_answer_may_be_any_number_of_epochs_ahead() -> None:
    voter = Voter()
    voter.step(e.EpochTold(2 * FAR, 3))
    assert (voter.core.role, voter.core.epoch) == (Role.FOLLOWER, 2 * FAR)


def test_a_second_leader_of_an_epoch_is_refused() -> None:
    voter = Voter().follow(2, 4)
    for event in (e.EpochBegun(3, 4), e.EpochEnded(3, 4)):
        assert voter.step(event) == [e.Reply(ErrorCode.INVALID_REQUEST)]
    leader = Voter().lead()
    assert leader.step(e.EpochBegun(2, leader.core.epoch)) == [e.Reply(ErrorCode.INVALID_REQUEST)]
    assert leader.core.role is Role.LEADER


def test_the_progress_of_observers_is_bounded() -> None:
    leader = Voter().lead()
    for observer in range(10, 10 + OBSERVERS_MAX + 5):
        leader.now += 0.001
        leader.step(e.ReplicaFetched(observer, 0))
    assert len(leader.core.progress) == OBSERVERS_MAX + 2
    assert {2, 3} <= leader.core.progress.keys()
    assert 10 not in leader.core.progress
    assert 10 + OBSERVERS_MAX + 4 in leader.core.progress
