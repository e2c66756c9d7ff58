"""Registration, heartbeats, fencing and leave of brokers, as the controller decides them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.controller_cluster import (
    CONFIG,
    apply,
    beat,
    broker,
    directory,
    image_of,
    incarnation,
    partition,
    registration,
    state,
)
from support.metadata import names_of
from tidelog.cluster.controller.brokers import (
    BrokerState,
    allocate_producer_ids,
    fence,
    heartbeat,
    register_broker,
    state_of,
    unregister_broker,
)
from tidelog.cluster.controller.decisions import RefusedError
from tidelog.cluster.controller.sessions import Sessions
from tidelog.cluster.metadata.features import supported_levels
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.primitives import uuid_to_str

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog_protocol.messages.controller import BrokerHeartbeatRequest

NO_NODE = ()
NEW_EPOCH = 201


def register(
    image: ClusterImage, request: Any, *, is_taken: bool = False, heard: tuple[int, ...] = NO_NODE
) -> tuple[int, ClusterImage]:
    """The epoch of the answer, and the image after."""
    records, response = register_broker(
        image, CONFIG, request, epoch=NEW_EPOCH, is_taken=is_taken, heard=heard
    )
    assert response.error_code == 0
    return response.broker_epoch, apply(image, records)


def refusal(image: ClusterImage, request: Any, *, is_taken: bool = False) -> RefusedError:
    with pytest.raises(RefusedError) as refused:
        register(image, request, is_taken=is_taken)
    return refused.value


# ---- registration -----------------------------------------------------------------------------


def test_a_new_broker_is_registered_fenced() -> None:
    epoch, image = register(image_of(), registration(4, rack="r"))
    new = image.brokers[4]
    assert epoch == new.epoch == NEW_EPOCH
    assert (new.host, new.port, new.rack) == ("127.0.0.1", 9094, "r")
    assert (new.incarnation_id, new.log_dirs) == (incarnation(4), (directory(4),))
    assert state_of(new) is BrokerState.FENCED
    assert not image.is_active(4)


def test_the_same_life_keeps_its_epoch_and_state() -> None:
    leaving = broker(2, in_controlled_shutdown=True)
    image = image_of(partition(leader=2), brokers=[broker(1), leaving])
    epoch, after = register(image, registration(2, rack="moved"), is_taken=True)
    assert epoch == 102
    registered = after.brokers[2]
    assert registered == leaving._replace(
        rack="moved", endpoints=registered.endpoints, features=registered.features
    )
    assert registered.endpoints == (("PLAINTEXT", registered.host, registered.port, 0),)
    assert {name for name, *_ in registered.features} == supported_levels().keys()
    assert state(after) == state(image)


def test_a_life_after_fencing_changes_no_partition() -> None:
    image = image_of(
        partition(isr=(1,), leader=-1), brokers=[broker(1, fenced=True), broker(2), broker(3)]
    )
    epoch, after = register(image, registration(1, life=77), heard=(2, 3))
    assert (epoch, state(after)) == (NEW_EPOCH, state(image))


def test_a_life_begun_unnoticed_leaves_the_isrs_that_others_hold() -> None:
    image = image_of(partition(), partition((1, 2), isr=(1,)), partition((2, 1, 3)))
    _, after = register(image, registration(1, life=77), heard=(2,))
    assert state(after, 0) == (2, 6, (2, 3), 8)
    assert state(after, 1) == (-1, 6, (1,), 8), "the last in sync stays it, and leads no more"
    assert state(after, 2) == (2, 5, (2, 3), 8)
    assert after.brokers[1].fenced


def test_after_a_stop_of_all_every_replica_stays_in_sync() -> None:
    image = image_of(partition(), partition((2, 3, 1)))
    _, after = register(image, registration(1, life=77, previous_broker_epoch=101))
    assert state(after, 0) == (-1, 6, (1, 2, 3), 8)
    assert state(after, 1) == state(image, 1)
    sessions = Sessions(after, 0.0, 9.0)
    records, _ = heartbeat(after, CONFIG, beat(1, NEW_EPOCH), sessions, 0.0)
    after = apply(after, records)
    assert state(after, 0) == (1, 7, (1, 2, 3), 9), "it is as good as any"


def test_after_a_crash_it_leaves_the_isrs_to_brokers_not_seen_yet() -> None:
    """A power failure, then it was the first to register with a new controller: it led again, and
    what it had lost was cut from the others (simulation of three brokers, seed 171)."""
    image = image_of(partition(), partition((2, 3, 1)))
    _, after = register(image, registration(1, life=77))
    assert state(after, 0) == (2, 6, (2, 3), 8)
    assert state(after, 1)[2] == (2, 3)


def test_no_unclean_election_for_a_restart() -> None:
    config = {"unclean.leader.election.enable": "true"}
    image = image_of(partition(isr=(1,)), topic_config=config)
    _, after = register(image, registration(1, life=77), heard=(2, 3))
    assert state(after) == (-1, 6, (1,), 8)


def test_registrations_refused() -> None:
    image = image_of()
    E = ErrorCode  # noqa: N806 - short for the table
    zero, reserved = bytes(16), (99).to_bytes(16, "big")
    cases: list[tuple[dict[str, Any], ErrorCode, str]] = [
        ({"cluster_id": "other"}, E.INCONSISTENT_CLUSTER_ID, "but got cluster ID other"),
        ({"is_migrating_zk_broker": True}, E.BROKER_ID_NOT_REGISTERED, "ZK"),
        (
            {"features": []},
            E.INVALID_REGISTRATION,
            "Request features do not contain 'metadata.version'",
        ),
        ({"log_dirs": []}, E.INVALID_REGISTRATION, "No directories specified in request"),
        ({"log_dirs": [zero]}, E.INVALID_REGISTRATION, "Reserved directory ID in request"),
        ({"log_dirs": [reserved]}, E.INVALID_REGISTRATION, "Reserved directory ID in request"),
        (
            {"log_dirs": [directory(4)] * 2},
            E.INVALID_REGISTRATION,
            "Duplicate directory ID in request",
        ),
        (
            {"log_dirs": [directory(2)]},
            E.INVALID_REGISTRATION,
            f"Broker 2 is already registered with directory {uuid_to_str(directory(2))}",
        ),
    ]
    for changes, code, text in cases:
        refused = refusal(image, registration(4, **changes))
        assert refused.code is code
        assert text in (refused.message or "")


@pytest.mark.parametrize("log_dirs", [[], [bytes(16)], [directory(4)] * 2, [directory(2)]])
def test_before_metadata_version_3_7_log_directories_of_brokers_are_not_looked_at(
    log_dirs: list[bytes],
) -> None:
    """Kafka's ClusterControlManager.registerBroker; 17 is 3.7-IV2 (KIP-858)."""
    image = image_of(features={"metadata.version": 16})
    _, after = register(image, registration(4, log_dirs=log_dirs))
    assert after.brokers[4].log_dirs == ()
    after = image_of(features={"metadata.version": 17})
    assert refusal(after, registration(4, log_dirs=log_dirs)).code is ErrorCode.INVALID_REGISTRATION


def test_another_broker_is_refused_while_one_runs_under_its_id() -> None:
    elsewhere = registration(2, life=77, log_dirs=[directory(9)])
    refused = refusal(image_of(), elsewhere, is_taken=True)
    assert refused.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert refused.message == "Another broker is registered with that broker id."
    register(image_of(), elsewhere, is_taken=False)


def test_a_known_directory_id_does_not_override_a_session() -> None:
    """The directory may be a copy: both lives led the same partitions."""
    for previous in (-1, 101):
        request = registration(2, life=77, previous_broker_epoch=previous)
        refused = refusal(image_of(), request, is_taken=True)
        assert refused.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_clean_stop_of_the_registered_life_ends_its_session() -> None:
    request = registration(2, life=77, previous_broker_epoch=102)
    epoch, image = register(image_of(), request, is_taken=True)
    assert (epoch, image.brokers[2].fenced) == (NEW_EPOCH, True)


@pytest.mark.parametrize("leaving", [False, True])
def test_a_broker_is_fenced_when_it_says_that_it_is_over(leaving: bool) -> None:
    """By the next holder of its locks. What it led waits for it, unclean elections or not."""
    config = {"unclean.leader.election.enable": "true"}
    brokers = [broker(1, in_controlled_shutdown=leaving), broker(2), broker(3)]
    image = image_of(partition(isr=(1,)), partition(), brokers=brokers, topic_config=config)
    sessions = Sessions(image, 0.0, 9.0)
    wishes = {"want_fence": True, "want_shut_down": True}
    records, answer = heartbeat(image, CONFIG, beat(1, 101, **wishes), sessions, 0.0)
    after = apply(image, records)
    assert (answer.is_fenced, after.brokers[1].fenced) == (True, True)
    assert state(after, 0)[::2] == (-1, (1,))
    assert state(after, 1)[::2] == (2, (2, 3))
    assert not sessions.is_taken(after, 1, 0.0)


@pytest.mark.parametrize("level", [6, 31])
def test_a_broker_of_another_metadata_version_is_refused(level: int) -> None:
    refused = refusal(image_of(features={"metadata.version": level}), registration(4))
    assert refused.code is ErrorCode.UNSUPPORTED_VERSION
    assert f"finalized version {level} of metadata.version" in (refused.message or "")
    register(image_of(features={"metadata.version": 30}), registration(4))


def test_a_feature_the_broker_does_not_name_it_does_not_know() -> None:
    assert refusal(image_of(features={"new": 1}), registration(4)).code == 35


ELIGIBLE = {"eligible.leader.replicas.version": 1}


@pytest.mark.parametrize(("previous", "kept"), [(101, (1,)), (-1, ())])
def test_eligibility_survives_a_clean_stop_alone(previous: int, kept: tuple[int, ...]) -> None:
    old = partition((1, 2), isr=(), leader=-1, eligible_leader_replicas=(1,))
    brokers = [broker(1, fenced=True), broker(2)]
    image = image_of(
        old, brokers=brokers, features=ELIGIBLE, topic_config={"min.insync.replicas": "2"}
    )
    request = registration(1, life=77, previous_broker_epoch=previous)
    _, after = register(image, request)
    assert after.topics["t"].partitions[0].eligible_leader_replicas == kept


def test_the_last_leader_leads_again_after_a_kill() -> None:
    """An only replica that was killed: neither in sync nor eligible, but no other one is left."""
    old = partition((1,), isr=(1,))
    image = image_of(old, brokers=[broker(1)], features=ELIGIBLE)
    _, after = register(image, registration(1, life=77, previous_broker_epoch=-1))
    left = after.topics["t"].partitions[0]
    assert (left.leader, left.isr, left.eligible_leader_replicas) == (-1, (), ())
    assert left.last_known_eligible_leader_replicas == (1,)
    beating = Beating(after)
    assert beating(beat(1, NEW_EPOCH)) == (True, False, False)
    again = beating.image.topics["t"].partitions[0]
    assert (again.leader, again.isr, again.leader_recovery_state) == (1, (1,), 1)
    assert again.last_known_eligible_leader_replicas == ()


# ---- heartbeats -------------------------------------------------------------------------------


class Beating:
    """One controller's life: an image and sessions, and what heartbeats do to them."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.now = 0.0
        self.sessions = Sessions(image, 0.0, 9.0)

    def __call__(self, request: BrokerHeartbeatRequest) -> tuple[bool, bool, bool]:
        """Caught up, fenced, may stop."""
        records, response = heartbeat(self.image, CONFIG, request, self.sessions, self.now)
        self.sessions.touch(request.broker_id, self.now, request.current_metadata_offset)
        if request.want_shut_down and not response.is_fenced:
            last_offset = self.image.offset + len(records)
            self.sessions.leave(request.broker_id, self.now, last_offset)
        if records:
            self.image = apply(self.image, records)
        return response.is_caught_up, response.is_fenced, response.should_shut_down


def test_a_fenced_broker_is_unfenced_when_it_knows_of_its_registration() -> None:
    old = partition(isr=(1,), leader=-1)
    beating = Beating(image_of(old, brokers=[broker(1, fenced=True), broker(2)]))
    assert beating(beat(1, 101, offset=100)) == (False, True, False)
    assert beating(beat(1, 101, offset=101, want_fence=True)) == (True, True, False)
    assert beating.image.brokers[1].fenced
    assert beating(beat(1, 101, offset=101)) == (True, False, False)
    assert state(beating.image) == (1, 6, (1,), 8), "it was in sync and leads again"
    before = beating.image
    assert beating(beat(1, 101)) == (True, False, False)
    assert beating.image is before


def test_an_earlier_life_s_heartbeat_is_stale() -> None:
    for request in (beat(1, 100), beat(9, 109)):
        with pytest.raises(RefusedError) as refused:
            Beating(image_of())(request)
        assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_controlled_shutdown_waits_until_all_know() -> None:
    beating = Beating(image_of(partition(), partition((2, 1, 3))))
    for node_id in (1, 2, 3):
        beating(beat(node_id, 100 + node_id, offset=200))
    assert beating(beat(1, 101, want_shut_down=True)) == (True, False, False)
    assert state(beating.image, 0) == (2, 6, (2, 3), 8)
    assert state(beating.image, 1) == (2, 5, (2, 3), 8)
    assert state_of(beating.image.brokers[1]) is BrokerState.CONTROLLED_SHUTDOWN
    assert not beating.image.is_active(1)
    moved_at = beating.image.offset
    assert beating(beat(1, 101, want_shut_down=True)) == (True, False, False)
    beating(beat(2, 102, offset=moved_at))
    assert beating(beat(1, 101, want_shut_down=True)) == (True, False, False), "3 does not know"
    beating(beat(3, 103, offset=moved_at))
    assert beating(beat(1, 101, want_shut_down=True)) == (True, True, True)
    assert beating.image.brokers[1].fenced
    assert beating(beat(1, 101, want_shut_down=True)) == (True, True, True), "asked once more"


def test_controlled_shutdown_under_a_new_controller() -> None:
    brokers = [broker(1, in_controlled_shutdown=True), broker(2)]
    beating = Beating(image_of(partition((2, 1), isr=(2,)), brokers=brokers))
    assert beating(beat(1, 101, want_shut_down=True)) == (True, False, False), "2 was not heard"
    beating(beat(2, 102, offset=199))
    assert beating(beat(1, 101, want_shut_down=True)) == (True, False, False), "it is behind"
    beating(beat(2, 102, offset=200))
    assert beating(beat(1, 101, want_shut_down=True)) == (True, True, True)


def test_the_last_broker_may_leave() -> None:
    beating = Beating(image_of(partition((1,)), brokers=[broker(1)]))
    assert beating(beat(1, 101, want_shut_down=True)) == (True, False, False)
    assert state(beating.image) == (-1, 6, (1,), 8)
    assert beating(beat(1, 101, want_shut_down=True)) == (True, True, True)


def test_a_broker_that_leads_nothing_or_asks_to_be_fenced_may_stop_at_once() -> None:
    beating = Beating(image_of(partition((1, 2))))
    assert beating(beat(2, 102, want_shut_down=True)) == (True, True, True)
    assert state(beating.image) == (1, 5, (1,), 8)
    assert beating(beat(1, 101, want_shut_down=True, want_fence=True)) == (True, True, True)
    assert beating(beat(3, 103, want_fence=True)) == (True, True, False)


def test_directories_that_fail() -> None:
    two = (b"a" * 16, b"b" * 16)
    in_a = partition((1, 2), directories=(two[0], directory(2)))
    in_b = partition((1, 2), directories=(two[1], directory(2)))
    beating = Beating(image_of(in_a, in_b, brokers=[broker(1, log_dirs=two), broker(2)]))
    assert beating(beat(1, 101, offline_log_dirs=[two[0]])) == (True, False, False)
    assert state(beating.image, 0) == (2, 6, (2,), 8)
    assert state(beating.image, 1) == state(image_of(in_a, in_b), 1)
    assert beating.image.brokers[1].log_dirs == two[1:]
    before = beating.image
    beating(beat(1, 101, offline_log_dirs=[two[0]]))
    assert beating.image is before


def test_directories_that_are_cordoned() -> None:
    """KIP-1066. None: the broker does not know yet, or no more."""
    two = (b"a" * 16, b"b" * 16)
    beating = Beating(image_of(partition((1, 2)), brokers=[broker(1, log_dirs=two), broker(2)]))
    for told, known, all_of_them in (
        ([two[0]], (two[0],), False),
        (None, (two[0],), False),
        (list(two), two, True),
        ([], (), False),
    ):
        beating(beat(1, 101, cordoned_log_dirs=told))
        now = beating.image.brokers[1]
        assert (now.cordoned_log_dirs, now.is_cordoned) == (known, all_of_them)
        before = beating.image
        beating(beat(1, 101, cordoned_log_dirs=told))
        assert beating.image is before
    assert now.log_dirs == two


def test_silence() -> None:
    image = image_of(partition())
    sessions = Sessions(image, 0.0, 9.0)
    assert sessions.expired(image, 9.0) is None
    sessions.touch(2, 5.0, 200)
    sessions.touch(1, 6.0, 200)
    assert sessions.expired(image, 9.5) == 3
    image = apply(image, fence(image, CONFIG, 3))
    assert (image.brokers[3].fenced, state(image)) == (True, (1, 5, (1, 2), 8))
    assert sessions.expired(image, 14.0) is None
    assert sessions.expired(image, 15.5) == 2, "the one silent for longest"
    image = apply(image, fence(image, CONFIG, 2))
    assert sessions.expired(image, 15.5) == 1
    image = apply(image, fence(image, CONFIG, 1))
    assert state(image) == (-1, 6, (1,), 10)
    assert sessions.expired(image, 99.0) is None


def test_a_broker_with_a_session_has_its_place_taken() -> None:
    image = image_of()
    sessions = Sessions(image, 0.0, 9.0)
    assert sessions.is_taken(image, 1, 9.0), "since the controller's election"
    assert not sessions.is_taken(image, 1, 9.1)
    assert sessions.heard() == []
    sessions.touch(1, 1.0, 0)
    assert sessions.heard() == [1]
    assert sessions.is_taken(image, 1, 10.0)
    assert not sessions.is_taken(image, 1, 10.1)
    sessions.begin(4, 10.0)
    assert not sessions.is_taken(image, 4, 10.0), "not in the image"
    sessions.end(1)
    assert sessions.heard() == [4]
    assert not sessions.is_taken(image_of(brokers=[broker(4, fenced=True)]), 4, 10.0)


# ---- the rest ---------------------------------------------------------------------------------


def test_a_broker_is_forgotten() -> None:
    image = image_of(partition(), partition((1,)))
    records = unregister_broker(image, CONFIG, 1)
    assert names_of(records)[-1] == "UnregisterBrokerRecord"
    image = apply(image, records)
    assert sorted(image.brokers) == [2, 3]
    assert state(image, 0) == (2, 6, (2, 3), 8)
    assert state(image, 1) == (-1, 6, (1,), 8)
    with pytest.raises(RefusedError) as refused:
        unregister_broker(image, CONFIG, 1)
    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert refused.value.message == "Broker ID 1 is not currently registered"


def test_producer_ids_continue_from_broker_to_broker() -> None:
    image = image_of()
    records, block = allocate_producer_ids(image, 2, 102)
    assert block == range(1000)
    image = apply(image, records)
    assert allocate_producer_ids(image, 3, 103)[1] == range(1000, 2000)
    with pytest.raises(RefusedError):
        allocate_producer_ids(image, 3, 102)
