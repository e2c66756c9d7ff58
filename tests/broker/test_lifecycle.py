"""The life of a broker in its cluster, against a controller that says what the test wants."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from support.metadata import CLUSTER_ID, CountedRng, broker_config, cluster
from tidelog.cluster.lifecycle import BrokerLifecycle, LifecycleError, State
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.cluster.metadata.image import BrokerImage
from tidelog.config.broker import Endpoint
from tidelog.network.peers import PeerError
from tidelog.simulation.loop import SimLoop, simulate
from tidelog.simulation.machine import SimClock
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.controller import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

EPOCH = 7


class Metadata:
    """The broker's image, and who is told of it; the cluster takes the broker when it is told."""

    def __init__(self) -> None:
        self.image = cluster(brokers=[BrokerImage(2, "h", 1)])
        self.listener: Any = None
        self.is_published = False
        self.failures: list[BaseException] = []
        self.failed = asyncio.Event()

    def show(self, *, fenced: bool, **other: bool) -> None:
        old = self.image
        me = BrokerImage(1, "h", 1, epoch=EPOCH, fenced=fenced)
        brokers = cluster(brokers=[me, BrokerImage(2, "h", 1, **other)]).brokers
        self.image = old._replace(brokers=brokers)
        if self.is_published:
            self.listener(MetadataDelta(old, self.image), self.image)

    def fail(self, error: BaseException) -> None:
        self.failures.append(error)
        self.failed.set()

    async def wait_for(self, offset: int) -> None:
        assert offset == EPOCH
        self.show(fenced=True)

    def start_publishing(self, broker_epoch: int) -> None:
        assert broker_epoch == EPOCH
        self.is_published = True
        self.listener(MetadataDelta(None, self.image), self.image)


class Controller:
    """Answers by the script, then as a good controller does."""

    def __init__(self, metadata: Metadata, *script: object) -> None:
        self.metadata = metadata
        self.script = list(script)
        self.asked: list[Any] = []

    async def ask(self, request: Any) -> Any:
        self.asked.append(request)
        await asyncio.sleep(0)
        if self.script:
            said = self.script.pop(0)
            if isinstance(said, Exception):
                raise said
            return said
        if isinstance(request, BrokerRegistrationRequest):
            return BrokerRegistrationResponse(broker_epoch=EPOCH)
        self.metadata.show(fenced=False)
        return BrokerHeartbeatResponse(is_fenced=False, should_shut_down=request.want_shut_down)


def lifecycle(
    *script: object, ended_broker_epoch: int = -1, **settings: str
) -> tuple[BrokerLifecycle, Controller]:
    metadata = Metadata()
    controller = Controller(metadata, *script)
    protocols = "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_SSL"
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    made = BrokerLifecycle(
        config=broker_config(broker_rack="r", listener_security_protocol_map=protocols, **settings),
        ask=controller.ask,
        metadata=metadata,  # type: ignore[arg-type]
        runtime=SimpleNamespace(clock=SimClock(loop), rng=CountedRng()),  # type: ignore[arg-type]
        endpoints=[Endpoint("PLAINTEXT", "h", 1), Endpoint("OUTSIDE", "o", 2)],
        logs=SimpleNamespace(  # type: ignore[arg-type]
            directories=[SimpleNamespace(directory_id=b"d" * 16, failure=None)],
            directory_id=lambda _path: b"d" * 16,
            clean_broker_epoch=-1,
            ended_broker_epoch=ended_broker_epoch,
        ),
    )
    metadata.listener = made.on_image
    return made, controller


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """In virtual time, which a busy machine does not change."""
    simulate("lifecycle", lambda _loop: test())


def refused(code: ErrorCode) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(error_code=code)


def test_registration_is_asked_again_until_it_is_granted() -> None:
    async def test() -> None:
        broker, controller = lifecycle(
            PeerError("nobody"),
            refused(ErrorCode.NOT_CONTROLLER),
            refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION),
            BrokerRegistrationResponse(broker_epoch=EPOCH),
            PeerError("gone"),
            BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER),
            BrokerHeartbeatResponse(is_fenced=True),
        )
        await broker.start()
        assert broker.state is State.RUNNING
        assert broker.broker_epoch == EPOCH
        registrations = controller.asked[:4]
        assert len({request.incarnation_id for request in registrations}) == 1
        assert registrations[0].rack == "r"
        assert registrations[0].cluster_id == CLUSTER_ID
        assert [(each.name, each.security_protocol) for each in registrations[0].listeners] == [
            ("PLAINTEXT", 0),
            ("OUTSIDE", 3),
        ]
        heartbeats = controller.asked[4:]
        assert all(isinstance(request, BrokerHeartbeatRequest) for request in heartbeats)
        assert {request.broker_epoch for request in heartbeats} == {EPOCH}
        broker.close()
        broker.close()
        assert broker.state is State.GONE

    run(test)


def test_it_beats_on_until_it_knows_that_it_is_unfenced() -> None:
    """Its session ended while it caught up: unfenced and fenced again, all before it heard of
    either. It waited for the first for ever (`python -m compat.chaos --seed 14` on a busy machine).
    """

    async def test() -> None:
        broker, controller = lifecycle(
            BrokerRegistrationResponse(broker_epoch=EPOCH),
            BrokerHeartbeatResponse(is_fenced=False),
            BrokerHeartbeatResponse(is_fenced=True),
            BrokerHeartbeatResponse(is_fenced=False),
            broker_heartbeat_interval_ms="20",
            initial_broker_registration_timeout_ms="20000",
        )
        await broker.start()
        assert broker.state is State.RUNNING
        assert len(controller.asked) >= 5
        assert controller.metadata.image.is_alive(1)
        broker.close()

    run(test)


def test_a_cluster_that_will_never_take_it() -> None:
    async def test() -> None:
        broker, _ = lifecycle(refused(ErrorCode.INCONSISTENT_CLUSTER_ID))
        with pytest.raises(LifecycleError, match="another id"):
            await broker.start()

    run(test)


def test_a_cluster_with_features_of_another_version_names_them() -> None:
    async def test() -> None:
        broker, controller = lifecycle(refused(ErrorCode.UNSUPPORTED_VERSION))
        levels = {"metadata.version": 30, "streams.version": 2, "share.version": 2}
        metadata = controller.metadata
        metadata.image = metadata.image._replace(features=levels)
        text = "another version; tidelog does not know streams.version 2, share.version 2 (UNSUPP"
        with pytest.raises(LifecycleError, match=re.escape(text)):
            await broker.start()

    run(test)


@pytest.mark.parametrize(
    ("log_dirs", "level", "is_refused"),
    [("a,b", 16, True), ("a,b", 17, False), ("a", 16, False)],
)
def test_several_log_directories_need_metadata_version_3_7(
    log_dirs: str, level: int, is_refused: bool
) -> None:
    async def test() -> None:
        broker, controller = lifecycle(log_dirs=log_dirs)
        metadata = controller.metadata
        metadata.image = metadata.image._replace(features={"metadata.version": level})
        if not is_refused:
            await broker.start()
            broker.close()
            return
        with pytest.raises(LifecycleError, match=r"log\.dirs: .* need metadata\.version 17"):
            await broker.start()
        assert not metadata.is_published

    run(test)


def test_registration_times_out() -> None:
    async def test() -> None:
        broker, _ = lifecycle(
            *[PeerError("nobody")] * 1000, initial_broker_registration_timeout_ms="100"
        )
        with pytest.raises(LifecycleError, match="nobody"):
            await broker.start()

    run(test)


def test_it_goes_when_it_may() -> None:
    async def test() -> None:
        broker, controller = lifecycle()
        await broker.start()
        controller.script += [
            BrokerHeartbeatResponse(is_fenced=False),
            PeerError("moved"),
            BrokerHeartbeatResponse(is_fenced=False),
        ]
        assert await broker.shut_down(20)
        assert all(request.want_shut_down for request in controller.asked[-4:])
        assert not await broker.shut_down(20), "once is enough"
        broker.close()

    run(test)


def test_it_does_not_wait_for_ever_to_be_let_go() -> None:
    async def test() -> None:
        broker, controller = lifecycle()
        await broker.start()
        controller.script += [BrokerHeartbeatResponse(is_fenced=False)] * 1000
        assert not await broker.shut_down(0.1)
        broker.close()

    run(test)


@pytest.mark.parametrize(
    ("change", "is_awaited"),
    [
        ({"fenced": True}, True),
        ({"fenced": False, "in_controlled_shutdown": True}, True),
        ({"fenced": False}, False),
    ],
)
def test_an_awaited_heartbeat_comes_at_once(change: dict[str, bool], is_awaited: bool) -> None:
    async def test() -> None:
        broker, controller = lifecycle(broker_heartbeat_interval_ms="3600000")
        await broker.start()
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(controller.asked) == 3  # the registration, one to be unfenced, the first beat
        controller.script += [BrokerHeartbeatResponse(is_fenced=False)] * 2
        controller.metadata.show(**change)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(controller.asked) == 3 + is_awaited
        broker.close()

    run(test)


def test_it_does_not_wait_if_no_broker_could_take_over() -> None:
    async def test() -> None:
        broker, controller = lifecycle()
        await broker.start()
        controller.metadata.show(fenced=False, in_controlled_shutdown=True)
        controller.script += [BrokerHeartbeatResponse(is_fenced=False)] * 1000
        async with asyncio.timeout(20):
            assert not await broker.shut_down(3600)
        broker.close()

    run(test)


# ---- two processes with one id ----------------------------------------------------------------

STALE = BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)


def test_a_life_known_to_be_over_is_fenced_in_its_name() -> None:
    async def test() -> None:
        broker, controller = lifecycle(
            refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION),
            BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER),
            refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION),
            BrokerHeartbeatResponse(is_fenced=True),
            ended_broker_epoch=3,
        )
        await broker.start()
        kinds = [type(request) for request in controller.asked[:5]]
        assert kinds == [BrokerRegistrationRequest, BrokerHeartbeatRequest] * 2 + kinds[:1]
        for request in controller.asked[1:4:2]:
            assert (request.broker_epoch, request.want_fence, request.want_shut_down) == (3, 1, 1)
        assert broker.broker_epoch == EPOCH
        broker.close()

    run(test)


def test_a_life_that_is_not_the_registered_one_is_named_once() -> None:
    async def test() -> None:
        broker, controller = lifecycle(
            refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION),
            STALE,
            *[refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION)] * 1000,
            ended_broker_epoch=3,
            initial_broker_registration_timeout_ms="100",
        )
        with pytest.raises(LifecycleError, match="another process runs as broker 1"):
            await broker.start()
        heartbeats = [r for r in controller.asked if isinstance(r, BrokerHeartbeatRequest)]
        assert len(heartbeats) == 1

    run(test)


def test_a_broker_whose_epoch_is_stale_ends() -> None:
    async def test() -> None:
        broker, controller = lifecycle(broker_heartbeat_interval_ms="1")
        await broker.start()
        controller.script += [STALE] * 1000
        await asyncio.wait_for(controller.metadata.failed.wait(), 20)
        asked = len(controller.asked)
        (failure,) = controller.metadata.failures
        assert "no broker 1 with epoch 7 any more" in str(failure)
        assert broker.state is State.GONE
        await asyncio.sleep(0.2)
        assert len(controller.asked) == asked, "it is silent"
        assert not await broker.shut_down(20)
        broker.close()

    run(test)


def test_a_broker_that_is_replaced_while_it_starts_does_not_start() -> None:
    async def test() -> None:
        broker, _ = lifecycle(BrokerRegistrationResponse(broker_epoch=EPOCH), STALE)
        with pytest.raises(
            LifecycleError, match="another process has since registered as broker 1"
        ):
            await broker.start()

    run(test)


def fail_directory(broker: BrokerLifecycle) -> None:
    error = OSError(5, "bad disk")
    broker._logs.directories[0].failure = error  # type: ignore[misc]
    broker.directory_failed("/d", error)


def test_a_failed_directory_is_told_at_once_and_from_then_on() -> None:
    async def test() -> None:
        broker, controller = lifecycle(log_dir_failure_timeout_ms="1")
        await broker.start()
        assert controller.asked[0].log_dirs == [b"d" * 16]
        assert controller.asked[-1].offline_log_dirs == []
        fail_directory(broker)
        await asyncio.sleep(0.05)  # the next heartbeat would come after two seconds
        assert controller.asked[-1].offline_log_dirs == [b"d" * 16]
        assert not controller.metadata.failures
        broker.close()

    run(test)


def test_a_broker_ends_that_cannot_tell_of_a_failed_directory() -> None:
    async def test() -> None:
        broker, controller = lifecycle(log_dir_failure_timeout_ms="20")
        await broker.start()
        controller.script += [PeerError("nobody")] * 1000
        fail_directory(broker)
        await asyncio.wait_for(controller.metadata.failed.wait(), 20)
        (failure,) = controller.metadata.failures
        assert "/d failed, and no controller answered" in str(failure)
        broker.close()

    run(test)
